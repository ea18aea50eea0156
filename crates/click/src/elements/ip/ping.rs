//! Echo requests and replies: `ICMPPingResponder`, `ICMPPingSource`.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::encap::{Destination, Template};
use super::header::{self, Ip, get16, ip_mut, put, replace16, set16};
use super::icmp_encap::{ECHO, ECHO_REPLY, write_icmp};
use super::pass;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{SECOND, Span, boolean, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("ICMPPingResponder", icmp_ping_responder).ports("1/1-2").processing("a/ah").answers(),
    Class::new("ICMPPingSource", icmp_ping_source).ports("0-1/1").processing("h/a"),
];

/// `ICMPPingResponder`: turns echo requests into replies. Other packets go to output 1, or are dropped.
struct IcmpPingResponder;

fn icmp_ping_responder(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(IcmpPingResponder))
}

/// Whether a packet is an ICMP message of this type with identifier and sequence.
fn is_echo(packet: &Packet, kind: u8) -> bool {
    Ip::of(packet).is_some_and(|ip| ip.protocol() == header::ICMP)
        && packet.transport().is_some_and(|icmp| icmp.len() >= 8 && icmp[0] == kind)
}

/// Turns an echo request into the reply to it.
fn reply(packet: &mut Packet) -> Option<()> {
    let destination = super::address::mirror(packet)?;
    let ip = ip_mut(packet)?;
    replace16(ip, 6, 0);
    let protocol = u16::from(Ip(ip).protocol());
    replace16(ip, 8, 0xFF00 | protocol);
    packet.set_dst_ip(destination);
    let icmp = packet.transport_mut()?;
    let old = get16(icmp, 0);
    put(icmp, 0, &[ECHO_REPLY, 0]);
    let carried = checksum::update16(get16(icmp, 2), old, 0);
    set16(icmp, 2, carried);
    if carried == 0 {
        // A sum of 0 has two forms; only a message of zeros has the other one.
        let sum = checksum::internet(icmp);
        set16(icmp, 2, sum);
    }
    Some(())
}

impl Element for IcmpPingResponder {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !is_echo(&packet, ECHO) || reply(&mut packet).is_none() {
            at.push_or_drop(1, packet, DropReason::Unmatched);
            return None;
        }
        packet.set_timestamp(at.now());
        packet.set_anno_u8(place::PAINT, 0);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}

/// Answers that came back to a source of echo requests.
struct Receiver {
    /// When each sequence number was sent (ns), negative once it was answered, 0 before.
    sent: Box<[i64]>,
    received: u64,
    duplicates: u64,
    /// Round trip times (µs).
    least: u64,
    most: u64,
    sum: u64,
    sum_of_squares: u64,
}

impl Receiver {
    /// Sequence numbers.
    const NUMBERS: usize = 1 << 16;
    /// Bytes of memory for the time of each.
    const BYTES: usize = Self::NUMBERS * size_of::<i64>();

    fn new() -> Self {
        Self {
            sent: vec![0; Self::NUMBERS].into_boxed_slice(),
            received: 0,
            duplicates: 0,
            least: 0,
            most: 0,
            sum: 0,
            sum_of_squares: 0,
        }
    }
    /// Notes a reply. The round trip time (µs), or `None` if nothing was asked.
    fn note(&mut self, sequence: u16, time: u64) -> Option<u64> {
        let sent = self.sent.get_mut(usize::from(sequence)).filter(|sent| **sent != 0)?;
        if *sent < 0 {
            self.duplicates += 1;
        }
        let span = if time == 0 { 0 } else { time.saturating_sub(sent.unsigned_abs()) / 1000 };
        *sent = -sent.abs();
        if time != 0 {
            self.least = if self.received == 0 { span } else { self.least.min(span) };
            self.most = self.most.max(span);
            self.sum = self.sum.wrapping_add(span);
            self.sum_of_squares = self.sum_of_squares.wrapping_add(span.wrapping_mul(span));
        }
        self.received += 1;
        Some(span)
    }
    fn average(&self) -> u64 {
        self.sum / self.received.max(1)
    }
    fn summary(&self, sent: i32) -> String {
        let unique = self.received - self.duplicates;
        let mut text = format!("{sent} packets transmitted, {unique} received");
        if self.duplicates > 0 {
            text += &format!(", +{} duplicates", self.duplicates);
        }
        if sent > 0 {
            let lost = i64::from(sent) - unique as i64;
            text += &format!(", {}% packet loss\n", lost * 100 / i64::from(sent));
        }
        if let Some(square) = self.sum_of_squares.checked_div(self.received) {
            let average = self.average();
            let variance = square.saturating_sub(average.wrapping_mul(average));
            let [least, average, most, deviation] =
                [self.least, average, self.most, variance.isqrt()].map(milliseconds);
            text += &format!("rtt min/avg/max/mdev = {least}/{average}/{most}/{deviation}\n");
        }
        text
    }
}

/// A time (µs) in milliseconds with three decimals.
fn milliseconds(time: u64) -> String {
    format!("{}.{:03}", time / 1000, time % 1000)
}

/// A time (µs) as handlers show it: `"5us"`, `"0.01s"`.
fn microseconds(time: u64) -> String {
    if (1..1000).contains(&time) {
        return format!("{time}us");
    }
    let text = format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `ICMPPingSource(SRC, DST [, INTERVAL, IDENTIFIER, DATA, LIMIT, ACTIVE, VERBOSE, STOP, MIRROR])`: sends echo requests.
///
/// With an input, it takes the replies and says how long they took. With `MIRROR`, each reply becomes the next request.
struct IcmpPingSource {
    source: Cell<Ipv4Addr>,
    destination: Cell<Ipv4Addr>,
    /// Nanoseconds, in whole milliseconds.
    interval: Cell<u64>,
    identifier: u16,
    data: Vec<u8>,
    limit: Cell<i32>,
    count: Cell<i32>,
    active: Cell<bool>,
    verbose: bool,
    stop: Cell<bool>,
    mirror: bool,
    receives: bool,
    receiver: RefCell<Option<Receiver>>,
    /// When the timer is to expire next; `None` while it is not set.
    expiry: Cell<Option<u64>>,
}

const MILLISECOND: u64 = SECOND / 1000;

fn icmp_ping_source(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let destination: Option<Ipv4Addr> = arguments.required("DST");
    let interval: Option<Span> = arguments.keyword("INTERVAL");
    let identifier: u16 = arguments.keyword("IDENTIFIER").unwrap_or(0);
    let data: Vec<u8> = arguments.keyword("DATA").unwrap_or_default();
    let limit: i32 = arguments.keyword("LIMIT").unwrap_or(-1);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let verbose = arguments.keyword("VERBOSE").unwrap_or(true);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let mirror = arguments.keyword("MIRROR").unwrap_or(false);
    arguments.complete()?;
    let span = interval.map_or(1000, |span| (span.0 + MILLISECOND / 2) / MILLISECOND);
    if span == 0 {
        setup.errors.warning("INTERVAL so small that it is zero");
    }
    if setup.at.output_is_pull(0) {
        if interval.is_some() {
            setup.errors.warning("element is pull, INTERVAL parameter will be ignored");
        }
        if mirror {
            setup.errors.error("MIRROR invalid on pull element");
            return None;
        }
    }
    Some(Rc::new(IcmpPingSource {
        source: Cell::new(source?),
        destination: Cell::new(destination?),
        interval: Cell::new(span.saturating_mul(MILLISECOND)),
        // As Linux's ping, Click has it in the machine's order.
        identifier: u16::from_be_bytes(identifier.to_ne_bytes()),
        data,
        limit: Cell::new(limit),
        count: Cell::default(),
        active: Cell::new(active),
        verbose,
        stop: Cell::new(stop),
        mirror,
        receives: setup.inputs() == 1,
        receiver: RefCell::default(),
        expiry: Cell::default(),
    }))
}

impl IcmpPingSource {
    fn ended(&self) -> bool {
        self.limit.get() >= 0 && self.count.get() >= self.limit.get()
    }
    fn start(&self, at: At<'_>, time: u64) {
        self.expiry.set(Some(time));
        at.timer_at(0, time);
    }
    /// Starts the timer if there is reason to, and it is not running.
    fn resume(&self, at: At<'_>, after: u64) {
        if self.active.get() && self.expiry.get().is_none() && at.output_is_push(0) {
            self.start(at, at.steady().saturating_add(after));
        }
    }
    /// Makes a packet the next echo request. It has room for the headers.
    fn write(&self, at: At<'_>, packet: &mut Packet) {
        let sequence = (self.count.get() % 0xFFFF) as u16 + 1;
        if let Some(headers) = packet.data_mut().get_mut(..header::LENGTH + 8) {
            headers.fill(0);
        }
        let destination = Destination::Fixed(self.destination.get());
        Template::new(header::ICMP, self.source.get(), destination, 200).write(packet, sequence);
        if let Some(message) = packet.data_mut().get_mut(header::LENGTH..) {
            write_icmp(message, ECHO, 0, self.identifier, sequence);
        }
        let now = at.now();
        packet.set_timestamp(now);
        if let Some(receiver) = &mut *self.receiver.borrow_mut()
            && let Some(sent) = receiver.sent.get_mut(usize::from(sequence))
        {
            *sent = i64::try_from(now).unwrap_or(i64::MAX).max(1);
        }
        self.count.set(self.count.get().wrapping_add(1));
    }
    fn request(&self, at: At<'_>) -> Option<Packet> {
        let begin = header::LENGTH + 8;
        let mut packet = at.allocate(begin + self.data.len())?;
        put(packet.data_mut(), begin, &self.data);
        self.write(at, &mut packet);
        Some(packet)
    }
    /// Notes a reply, and says so.
    fn note(&self, at: At<'_>, packet: &Packet) {
        let (Some(ip), Some(icmp)) = (Ip::of(packet), packet.transport()) else { return };
        let sequence = get16(icmp, 6);
        let span = self
            .receiver
            .borrow_mut()
            .as_mut()
            .and_then(|receiver| receiver.note(sequence, packet.timestamp()));
        let Some(span) = span.filter(|_| self.verbose) else { return };
        let bytes = ip.total_length() as i64 - ip.header_length() as i64 - 8;
        at.chatter(&format!(
            "{}: {bytes} bytes from {}: icmp_seq={sequence} ttl={} time={} ms",
            at.declaration(),
            ip.source(),
            ip.ttl(),
            milliseconds(span)
        ));
    }
    fn of_receiver(&self, value: impl Fn(&Receiver) -> String) -> String {
        self.receiver.borrow().as_ref().map(value).unwrap_or_default()
    }
}

impl Element for IcmpPingSource {
    fn memory(&self) -> usize {
        // It counts from the start: the receiver is made when the configuration begins to run.
        if self.receives { Receiver::BYTES } else { 0 }
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if self.receives {
            *self.receiver.borrow_mut() = Some(Receiver::new());
        }
        if self.limit.get() != 0 {
            self.resume(at, self.interval.get());
        }
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let expiry = self.expiry.take().unwrap_or_else(|| at.steady());
        if self.ended() {
            if self.stop.get() {
                at.router.please_stop();
            }
            return;
        }
        if let Some(packet) = self.request(at) {
            at.push(0, packet);
            self.start(at, expiry.saturating_add(self.interval.get()));
        }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if !self.ended() {
            return self.request(at);
        }
        if self.stop.replace(false) {
            at.router.please_stop();
        }
        None
    }
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        let ours = is_echo(&packet, ECHO_REPLY)
            && packet.transport().is_some_and(|icmp| get16(icmp, 4) == self.identifier);
        if !ours {
            at.drop_packet(packet, DropReason::Unmatched);
            return;
        }
        self.note(at, &packet);
        if !self.mirror {
            at.drop_packet(packet, DropReason::LocalDelivery);
            return;
        }
        packet.pull_bytes(packet.network_place().and_then(|place| usize::try_from(place).ok()).unwrap_or(0));
        self.write(at, &mut packet);
        at.push(0, packet);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.active.set(boolean(value.trim()).ok_or("type mismatch")?);
            if this.active.get() {
                this.resume(at, 0);
            } else {
                this.expiry.set(None);
                at.unschedule_timer(0);
            }
            Ok(String::new())
        });
        for (name, cell) in [
            ("src", (|this: &Self| &this.source) as fn(&Self) -> &Cell<Ipv4Addr>),
            ("dst", |this| &this.destination),
        ] {
            handlers.read(name, move |this: &Self, _| cell(this).get()).calm = true;
            handlers.write(name, move |this: &Self, at, value| {
                cell(this).set(Ipv4Addr::parse(value.trim(), at).map_err(|_| "syntax error")?);
                Ok(String::new())
            });
        }
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers
            .write("limit", |this: &Self, at, value| {
                let limit = integer(value.trim()).and_then(|limit| i32::try_from(limit).ok());
                this.limit.set(limit.ok_or("'limit' should be integer")?);
                if !this.ended() {
                    this.resume(at, this.interval.get());
                }
                Ok(String::new())
            })
            .calm = true;
        handlers.write("interval", |this: &Self, at, value| {
            let span = Span::parse(value.trim(), at).map_err(|_| "'interval' should be an interval")?;
            this.interval.set(((span.0 + MILLISECOND / 2) / MILLISECOND).saturating_mul(MILLISECOND));
            Ok(String::new())
        });
        handlers.button("reset_counts", |this: &Self, at| {
            this.count.set(0);
            if let Some(receiver) = &mut *this.receiver.borrow_mut() {
                *receiver = Receiver::new();
            }
            if this.limit.get() > 0 {
                this.resume(at, this.interval.get());
            }
        });
        if self.receives {
            handlers.read("summary", |this: &Self, _| {
                this.of_receiver(|receiver| receiver.summary(this.count.get()))
            });
            handlers.read("rtt_min", |this: &Self, _| this.of_receiver(|one| microseconds(one.least)));
            handlers.read("rtt_avg", |this: &Self, _| this.of_receiver(|one| microseconds(one.average())));
            handlers.read("rtt_max", |this: &Self, _| this.of_receiver(|one| microseconds(one.most)));
        }
    }
    fn cleanup(&self, at: At<'_>) {
        let receiver = self.receiver.take();
        if let Some(receiver) = receiver.filter(|_| self.verbose) {
            for line in receiver.summary(self.count.get()).lines() {
                at.chatter(&format!("{}: {line}", at.declaration()));
            }
        }
    }
}
