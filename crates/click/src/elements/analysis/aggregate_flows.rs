//! `AggregateIPFlows`: the number of a packet's flow becomes its aggregate, its direction the paint.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::flow_table::{Events, Flow, FlowTable, Headers, Hosts, Outcome, Timeouts};
use super::output::Output;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{ElementNumber, SECOND, Span};

pub(super) const CLASSES: &[Class] =
    &[Class::new("AggregateIPFlows", configure).ports("1/1-2").processing("a/ah")];

/// `AggregateIPFlows([TCP_TIMEOUT, TCP_DONE_TIMEOUT, UDP_TIMEOUT, FRAGMENT_TIMEOUT, REAP, ICMP, TRACEINFO, SOURCE,
/// FRAGMENTS])`: numbers flows of TCP and UDP, and makes a packet's flow its aggregate and its direction its paint.
///
/// Fragments wait until the one with the ports has come. Packets without a flow leave by output 1 or are dropped.
/// `TRACEINFO` names a file to which flows are written in XML as they end.
struct AggregateFlows {
    tcp: RefCell<FlowTable>,
    udp: RefCell<FlowTable>,
    next: Cell<u32>,
    /// Time of the last packet, and of the next search for flows that have ended (s).
    now: Cell<i64>,
    reap_at: Cell<i64>,
    reap_interval: i64,
    handles_icmp: bool,
    fragments: Option<bool>,
    keeps_fragments: Cell<bool>,
    has_warned: Cell<bool>,
    trace_name: String,
    trace: RefCell<Output>,
    source: Option<usize>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let tcp_timeout: u32 = arguments.keyword("TCP_TIMEOUT").unwrap_or(24 * 60 * 60);
    let tcp_done_timeout: u32 = arguments.keyword("TCP_DONE_TIMEOUT").unwrap_or(30);
    let mut seconds = |keyword: &str, usual: i64| {
        let given: Option<Span> = arguments.keyword(keyword);
        given.map_or(usual, |Span(span)| (span / SECOND) as i64)
    };
    let udp_timeout = seconds("UDP_TIMEOUT", 60);
    let fragment = seconds("FRAGMENT_TIMEOUT", 30);
    let reap_interval = seconds("REAP", 20 * 60);
    let handles_icmp = arguments.keyword("ICMP").unwrap_or(false);
    let trace_name: String = arguments.keyword("TRACEINFO").unwrap_or_default();
    let source: Option<ElementNumber> = arguments.keyword("SOURCE");
    let fragments: Option<bool> = arguments.keyword("FRAGMENTS");
    arguments.complete()?;
    let tcp = Timeouts { active: i64::from(tcp_timeout), done: i64::from(tcp_done_timeout), fragment };
    let udp = Timeouts { active: udp_timeout, done: udp_timeout, fragment };
    let seed = setup.at.router.surroundings().seed;
    Some(Rc::new(AggregateFlows {
        tcp: RefCell::new(FlowTable::new(tcp, headers, seed)),
        udp: RefCell::new(FlowTable::new(udp, headers, seed)),
        next: Cell::new(1),
        now: Cell::default(),
        reap_at: Cell::default(),
        reap_interval,
        handles_icmp,
        fragments,
        keeps_fragments: Cell::default(),
        has_warned: Cell::default(),
        trace_name,
        trace: RefCell::new(Output::closed()),
        source: source.map(|ElementNumber(id)| id),
    }))
}

/// The IP header that tells a packet's flow, and whether an ICMP error has it inside.
#[inline]
fn flow_header(packet: &Packet) -> Option<(&[u8], bool)> {
    let ip = packet.network()?;
    if ip.get(9) != Some(&1) {
        return (ip.len() >= 20).then_some((ip, false));
    }
    let icmp = packet.transport()?;
    if ip.get(6)? & 0x1F != 0 || *ip.get(7)? != 0 || !matches!(icmp.first()?, 3 | 4 | 5 | 11 | 12) {
        return None;
    }
    let inside = icmp.get(8..)?;
    let length = usize::from(inside.first()? & 15) * 4;
    (length >= 20 && inside.len() >= length).then_some((inside, true))
}

#[inline]
fn headers(packet: &Packet) -> Option<Headers> {
    let (ip, in_icmp) = flow_header(packet)?;
    if !matches!(ip[9], 6 | 17) {
        return None;
    }
    let number = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let (source, destination) = (number(12), number(16));
    if source == 0 && destination == 0 {
        return None;
    }
    let fragment = u16::from_be_bytes([ip[6], ip[7]]);
    let transport = ip.get(usize::from(ip[0] & 15) * 4..).unwrap_or_default();
    let ports = transport
        .get(..4)
        .map(|bytes| (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]])));
    // Where the addresses are the same, the ports tell the directions.
    let is_reverse = source > destination
        || source == destination && ports.is_some_and(|(source, destination)| source > destination);
    Some(Headers {
        hosts: Hosts { low: source.min(destination), high: source.max(destination) },
        id: u16::from_be_bytes([ip[4], ip[5]]),
        is_fragment: fragment & 0x3FFF != 0,
        is_first: fragment & 0x1FFF == 0,
        ports: ports.map(
            |(source, destination)| {
                if is_reverse { (destination, source) } else { (source, destination) }
            },
        ),
        paint: u8::from(is_reverse) | u8::from(in_icmp) << 1,
        is_tcp: ip[9] == 6,
        flags: transport.get(13).copied().filter(|_| ip[9] == 6 && !in_icmp),
    })
}

impl AggregateFlows {
    /// Looks at a packet: what became of it, and what happened beside.
    fn handle(&self, at: At<'_>, mut packet: Packet, events: &mut Events) -> Outcome {
        if packet.timestamp() == 0 {
            if !self.has_warned.replace(true) {
                at.chatter(&format!("{}: warning: packet received without timestamp", at.declaration()));
            }
            packet.set_timestamp(at.now());
        }
        let Some(headers) = headers(&packet).filter(|headers| self.handles_icmp || headers.paint < 2) else {
            return Outcome::Drop(packet);
        };
        let table = if headers.is_tcp { &self.tcp } else { &self.udp };
        let time = (packet.timestamp() as i64).div_euclid(SECOND as i64);
        let mut next = self.next.get();
        let place = || self.file_place(at);
        let outcome =
            table.borrow_mut().take(packet, &headers, self.keeps_fragments.get(), &mut next, &place, events);
        self.next.set(next);
        if !matches!(outcome, Outcome::Drop(_)) {
            self.now.set(time);
        }
        outcome
    }

    /// Annotates packets in their places, as long as each only goes on in its flow; how many those are.
    fn pass(&self, at: At<'_>, batch: &mut Batch) -> usize {
        let (mut tcp, mut udp) = (self.tcp.borrow_mut(), self.udp.borrow_mut());
        let keeps_fragments = self.keeps_fragments.get();
        let mut done = 0;
        batch.each_packet(|slot, packet| {
            if done < slot {
                return;
            }
            if packet.timestamp() == 0 {
                if !self.has_warned.get() {
                    return;
                }
                packet.set_timestamp(at.now());
            }
            let time = (packet.timestamp() as i64).div_euclid(SECOND as i64);
            let Some(headers) = headers(packet).filter(|headers| self.handles_icmp || headers.paint < 2)
            else {
                return;
            };
            let table = if headers.is_tcp { &mut tcp } else { &mut udp };
            if time < self.reap_at.get() && table.pass(packet, &headers, keeps_fragments) {
                self.now.set(time);
                done = slot + 1;
            }
        });
        done
    }

    /// Where in its file the source's last packet lies, if a trace tells of it.
    fn file_place(&self, at: At<'_>) -> u64 {
        let Some(source) = self.source.filter(|_| !self.trace_name.is_empty()) else { return 0 };
        at.router
            .read_handler(source, "packet_filepos", "")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Looks for flows that have ended when it is time to.
    fn reap(&self, events: &mut Events) {
        if self.now.get() < self.reap_at.get() {
            return;
        }
        if self.reap_at.get() != 0 {
            self.tcp.borrow_mut().reap(self.now.get(), false, events);
            self.udp.borrow_mut().reap(self.now.get(), false, events);
        }
        self.reap_at.set(self.now.get().saturating_add(self.reap_interval));
    }

    fn settle(&self, at: At<'_>, events: Events) {
        for (hosts, flow) in &events.ended {
            self.write_flow(at, *hosts, flow);
        }
        for packet in events.lost {
            at.drop_packet(packet, DropReason::Fragment);
        }
        for packet in events.released {
            at.push(0, packet);
        }
    }

    fn write(&self, at: At<'_>, text: &str) {
        if let Err(error) = self.trace.borrow_mut().write(text.as_bytes()) {
            at.chatter(&format!("{}: {}: {error}", at.declaration(), self.trace_name));
        }
    }

    fn write_flow(&self, at: At<'_>, hosts: Hosts, flow: &Flow) {
        if self.trace_name.is_empty() {
            return;
        }
        let seconds = |time: i64| {
            let second = SECOND as i64;
            format!("{}.{:09}", time.div_euclid(second), time.rem_euclid(second))
        };
        let (low, high) = ((hosts.low, flow.ports.0), (hosts.high, flow.ports.1));
        let (source, destination) = if flow.is_reverse { (high, low) } else { (low, high) };
        let mut text = format!(
            "<flow aggregate='{}' src='{}' sport='{}' dst='{}' dport='{}' begin='{}' duration='{}'",
            flow.aggregate,
            Ipv4Addr::from(source.0),
            source.1,
            Ipv4Addr::from(destination.0),
            destination.1,
            seconds(flow.first),
            seconds(flow.duration()),
        );
        if flow.file_place != 0 {
            text.push_str(&format!(" filepos='{}'", flow.file_place));
        }
        let [forward, reverse] = flow.packets;
        text.push_str(&format!(
            ">\n  <stream dir='0' packets='{forward}' /><stream dir='1' packets='{reverse}' />\n</flow>\n"
        ));
        self.write(at, &text);
    }
}

impl Element for AggregateFlows {
    fn memory(&self) -> usize {
        self.tcp.borrow().memory() + self.udp.borrow().memory()
    }
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.fragments == Some(true) && at.input_is_pull(0) {
            errors.error("'FRAGMENTS true' is incompatible with pull; run this element in a push context");
            return false;
        }
        self.keeps_fragments.set(self.fragments.unwrap_or(!at.input_is_pull(0)));
        if self.trace_name.is_empty() {
            return true;
        }
        let Some(output) = Output::open(&self.trace_name, at, errors) else { return false };
        self.trace.replace(output);
        let file = self.source.and_then(|source| at.router.read_handler(source, "filename", "").ok());
        let attribute = match file.as_deref().map(str::trim) {
            Some(file) if !file.is_empty() => format!(" file='{file}'"),
            _ => String::new(),
        };
        self.write(at, &format!("<?xml version='1.0' standalone='yes'?>\n<trace{attribute}>\n"));
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let mut events = Events::default();
        let outcome = self.handle(at, packet, &mut events);
        self.reap(&mut events);
        self.settle(at, events);
        match outcome {
            Outcome::Pass(packet) => at.push(0, packet),
            Outcome::Drop(packet) => at.push_or_drop(1, packet, DropReason::Unmatched),
            Outcome::Taken => (),
        }
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        let known = self.pass(at, batch);
        if known == batch.len() {
            at.push_batch(0, batch);
            return;
        }
        for (slot, packet) in batch.drain().enumerate() {
            if slot < known { at.push(0, packet) } else { self.push(at, input, packet) }
        }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let packet = at.pull(0)?;
        let mut events = Events::default();
        let outcome = self.handle(at, packet, &mut events);
        self.reap(&mut events);
        // No packet waits in a pull context.
        self.settle(at, events);
        match outcome {
            Outcome::Pass(packet) => return Some(packet),
            Outcome::Drop(packet) => at.push_or_drop(1, packet, DropReason::Unmatched),
            Outcome::Taken => (),
        }
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.write("clear", |this: &Self, at, _| {
            let mut events = Events::default();
            this.tcp.borrow_mut().reap(0, true, &mut events);
            this.udp.borrow_mut().reap(0, true, &mut events);
            this.settle(at, events);
            Ok(String::new())
        });
    }
    fn cleanup(&self, at: At<'_>) {
        let mut events = Events::default();
        self.tcp.borrow_mut().end(&mut events);
        self.udp.borrow_mut().end(&mut events);
        self.settle(at, events);
        if !self.trace_name.is_empty() {
            self.write(at, "</trace>\n");
            let closed = self.trace.borrow_mut().close();
            if let Err(error) = closed {
                at.chatter(&format!("{}: {}: {error}", at.declaration(), self.trace_name));
            }
        }
    }
}
