//! `FromDump`: packets from a file of tcpdump's (pcap).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::input::{Input, Sample};
use super::link;
use super::timestamps::time;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::handler_call::HandlerCall;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Search};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Word, boolean};

pub(super) const CLASSES: &[Class] =
    &[Class::new("FromDump", configure).ports("0/1-2").processing("a/ah").flow("x/y")];

/// The longest packet that a file may have.
const LONGEST: u32 = 65535;
/// Records that are passed over before other tasks get their turn.
const RETRIES: u32 = 16;

/// `FromDump(FILENAME [, TIMING, STOP, ACTIVE, SAMPLE, FORCE_IP, START, START_AFTER, END, END_AFTER, INTERVAL, END_CALL,
/// FILEPOS])`: makes packets of the records of a pcap file.
///
/// With `FORCE_IP`, packets that are not IP leave by output 1 or are dropped.
struct FromDump {
    file: RefCell<File>,
    packet: RefCell<Option<Packet>>,
    sample: Sample,
    timing: bool,
    force_ip: Cell<bool>,
    pushes: bool,
    active: Cell<bool>,
    range: Range,
    end_call: RefCell<Option<HandlerCall>>,
    count: Cell<u64>,
    timing_offset: Cell<i64>,
    notifier: Rc<Notifier>,
}

/// A bound of time: none, a time, or a span from the first packet or the range's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    None,
    At(i64),
    After(i64),
    FromStart(i64),
}

/// Which packets are read, by time.
struct Range {
    start: Cell<Bound>,
    end: Cell<Bound>,
    /// The last end that was reached, which can be extended.
    last_end: Cell<i64>,
    /// Whether the first packet was seen.
    is_begun: Cell<bool>,
}

/// The file and what its header says.
struct File {
    input: Input,
    is_swapped: bool,
    nanoseconds: bool,
    /// Bytes behind each record's header that this version of the format adds.
    extra: usize,
    minor: u16,
    link: u32,
    /// Where the last record began.
    place: u64,
    /// Where to begin, if not at the first record.
    begin: u64,
}

/// The header of a record.
#[derive(Clone, Copy, Debug)]
struct Record {
    time: i64,
    captured: usize,
    missing: u32,
    /// Bytes behind the packet's that belong to the record.
    rest: usize,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let _: Option<bool> = arguments.keyword("MMAP");
    let filename: Option<Word> = arguments.required("FILENAME");
    let timing = arguments.positional("TIMING").unwrap_or(false);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let sample = Sample::read(arguments);
    let force_ip = arguments.keyword("FORCE_IP").unwrap_or(false);
    let mut bound = |keyword: &str| arguments.keyword_with(keyword, time).filter(|time| *time != 0);
    let (start, start_after) = (bound("START"), bound("START_AFTER"));
    let (end, end_after, interval) = (bound("END"), bound("END_AFTER"), bound("INTERVAL"));
    let end_call: Option<HandlerCall> = arguments.keyword("END_CALL");
    let begin: u64 = arguments.keyword("FILEPOS").unwrap_or(0);
    arguments.complete()?;
    let fail = |message: &str| {
        setup.errors.error(message);
        None
    };
    if start.is_some() && start_after.is_some() {
        return fail("START and START_AFTER are mutually exclusive");
    }
    if [end, end_after, interval].iter().flatten().count() > 1 {
        return fail("END, END_AFTER, and INTERVAL are mutually exclusive");
    }
    if stop && end_call.is_some() {
        return fail("END_CALL and STOP are mutually exclusive");
    }
    let start = start.map(Bound::At).or(start_after.map(Bound::After)).unwrap_or(Bound::None);
    let end = end
        .map(Bound::At)
        .or(end_after.map(Bound::After))
        .or(interval.map(Bound::FromStart))
        .unwrap_or(Bound::None);
    let own = |name: &str, value: &str| HandlerCall {
        element: setup.at.id,
        name: format!("{}.{name}", setup.at.name()),
        value: value.into(),
    };
    let end_call = match end_call {
        Some(call) => Some(call),
        None if stop => Some(own("stop", "")),
        None if end != Bound::None => Some(own("active", "false")),
        None => None,
    };
    Some(Rc::new(FromDump {
        file: RefCell::new(File {
            input: Input::file(&filename?.0).unnumbered(),
            is_swapped: false,
            nanoseconds: false,
            extra: 0,
            minor: 0,
            link: link::ETHERNET,
            place: 0,
            begin,
        }),
        packet: RefCell::default(),
        sample,
        timing,
        force_ip: Cell::new(force_ip),
        pushes: setup.at.output_is_push(0),
        active: Cell::new(active),
        range: Range {
            start: Cell::new(start),
            end: Cell::new(end),
            last_end: Cell::default(),
            is_begun: Cell::default(),
        },
        end_call: RefCell::new(end_call),
        count: Cell::default(),
        timing_offset: Cell::default(),
        notifier: Notifier::new("empty", Search::Stop),
    }))
}

impl File {
    fn number32(&self, bytes: &[u8], at: usize) -> u32 {
        let mut four = [0; 4];
        for (to, from) in four.iter_mut().zip(bytes.iter().skip(at)) {
            *to = *from;
        }
        if self.is_swapped { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }
    fn number16(&self, bytes: &[u8], at: usize) -> u16 {
        let pair = [bytes[at], bytes[at + 1]];
        if self.is_swapped { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    }

    /// Reads the file's header. A fault's message where it is none.
    fn read_header(&mut self) -> Result<(), String> {
        let mut header = [0; 24];
        match self.input.take(24) {
            Some(bytes) => header.copy_from_slice(bytes),
            None => return Err("not a tcpdump file (too short)".into()),
        }
        let magic = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let known = |magic| matches!(magic, 0xA1B2_C3D4 | 0xA1B2_3C4D | 0xA1B2_CD34_u32);
        // Numbers are big-endian where they are swapped for little-endian machines.
        self.is_swapped = !known(magic);
        let magic = if self.is_swapped { magic.swap_bytes() } else { magic };
        if !known(magic) {
            return Err("not a tcpdump file (bad magic number)".into());
        }
        self.nanoseconds = magic == 0xA1B2_3C4D;
        self.extra = if magic == 0xA1B2_CD34 { 8 } else { 0 };
        let major = self.number16(&header, 4);
        if major != 2 {
            return Err(format!("unknown major version {major}"));
        }
        self.minor = self.number16(&header, 6);
        self.link = link::canonical(self.number32(&header, 20));
        Ok(())
    }

    /// Reads the header of the next record. `None` at the file's end, after a fault was said.
    fn read_record(&mut self, at: At<'_>) -> Option<Record> {
        self.place = self.input.position();
        let mut header = [0; 16];
        header.copy_from_slice(self.input.take(16)?);
        let mut captured = self.number32(&header, 8);
        let mut length = self.number32(&header, 12);
        // Versions before 2.3, and some of 2.3, have the two lengths the other way round.
        if self.minor < 3 || self.minor == 3 && captured > length {
            std::mem::swap(&mut captured, &mut length);
        }
        if captured > LONGEST {
            at.chatter(&format!("{}: bad packet header; giving up", self.input.landmark()));
            return None;
        }
        let rest = captured.saturating_sub(length);
        captured -= rest;
        self.input.take_some(self.extra);
        let seconds = i64::from(self.number32(&header, 0) as i32);
        let parts = i64::from(self.number32(&header, 4) as i32);
        let parts = if self.nanoseconds { parts } else { parts.wrapping_mul(1000) };
        Some(Record {
            time: seconds.wrapping_mul(1_000_000_000).wrapping_add(parts),
            captured: captured as usize,
            missing: length - captured,
            rest: rest as usize,
        })
    }

    fn skip(&mut self, record: &Record) {
        self.input.take_some(record.captured + record.rest);
    }

    fn read_packet(&mut self, at: At<'_>, record: &Record) -> Option<Packet> {
        let bytes = self.input.take(record.captured)?;
        let Some(mut packet) = at.packet(bytes) else {
            at.chatter(&format!("{}: Cannot allocate memory", self.input.landmark()));
            return None;
        };
        self.input.take_some(record.rest);
        packet.set_timestamp(record.time as u64);
        packet.set_anno_u32(place::EXTRA_LENGTH, record.missing);
        packet.set_mac_place(Some(0));
        Some(packet)
    }
}

impl Range {
    /// Begins with the first packet's time.
    fn begin(&self, time: i64) {
        if let Bound::After(span) = self.start.get() {
            self.start.set(Bound::At(time.saturating_add(span)));
        }
        let from = match self.start.get() {
            Bound::At(start) => start,
            _ => time,
        };
        match self.end.get() {
            Bound::After(span) => self.end.set(Bound::At(time.saturating_add(span))),
            Bound::FromStart(span) => self.end.set(Bound::At(from.saturating_add(span))),
            _ => (),
        }
        self.is_begun.set(true);
    }
}

impl FromDump {
    fn call_end(&self, at: At<'_>) {
        let call = self.end_call.borrow().clone();
        if let Some(Err(message)) = call.map(|call| call.write(at.router)) {
            at.chatter(&message);
        }
    }

    /// Reads the next record into `packet`, or passes over it. `false` when no more are to be read.
    fn read(&self, at: At<'_>) -> bool {
        let Some(record) = self.file.borrow_mut().read_record(at) else { return false };
        if !self.range.is_begun.get() {
            self.range.begin(record.time);
            self.timing_offset.set((at.steady() as i64).wrapping_sub(record.time));
        }
        if let Bound::At(start) = self.range.start.get() {
            if record.time < start {
                self.file.borrow_mut().skip(&record);
                return true;
            }
            self.range.start.set(Bound::None);
        }
        while let Bound::At(end) = self.range.end.get()
            && record.time >= end
        {
            self.range.end.set(Bound::None);
            self.range.last_end.set(end);
            self.call_end(at);
            if !self.active.get() {
                self.file.borrow_mut().skip(&record);
                return false;
            }
        }
        if !self.sample.takes(at) {
            self.file.borrow_mut().skip(&record);
            return true;
        }
        let packet = self.file.borrow_mut().read_packet(at, &record);
        let more = packet.is_some();
        self.packet.replace(packet);
        more
    }

    /// Whether the packet's time has come; a timer waits for it otherwise.
    fn is_due(&self, at: At<'_>) -> bool {
        let Some(time) = self.packet.borrow().as_ref().map(|packet| packet.timestamp() as i64) else {
            return true;
        };
        let due = time.wrapping_add(self.timing_offset.get());
        if at.steady() as i64 >= due {
            return true;
        }
        at.timer_at(0, due as u64);
        if !self.pushes {
            self.notifier.sleep();
        }
        false
    }

    /// Takes the packet that was read, if it may pass.
    fn take(&self, at: At<'_>) -> Option<Packet> {
        let mut packet = self.packet.take()?;
        let link = self.file.borrow().link;
        if self.force_ip.get() && !link::find_ip(&mut packet, link) {
            at.push_or_drop(1, packet, DropReason::Unmatched);
            return None;
        }
        self.count.set(self.count.get() + 1);
        Some(packet)
    }

    fn set_active(&self, at: At<'_>, active: bool) {
        self.active.set(active);
        if active {
            if self.pushes { at.schedule(0) } else { self.notifier.wake(at.router) }
        }
    }
}

impl Element for FromDump {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let given = self.end_call.borrow().clone();
        if let Some(given) = given {
            match given.ready(at, true) {
                Ok(call) => *self.end_call.borrow_mut() = Some(call),
                Err(message) => {
                    errors.error(&message);
                    return false;
                }
            }
        }
        if self.pushes && self.active.get() {
            at.schedule(0);
        }
        let mut file = self.file.borrow_mut();
        if file.input.open(at, errors, false).is_err() {
            return false;
        }
        if let Err(message) = file.read_header() {
            errors.error_at(&file.input.landmark(), &message);
            return false;
        }
        if self.force_ip.get() && !link::has_ip(file.link) {
            let message = format!("unknown linktype {}; can't force IP packets", file.link);
            errors.error_at(&file.input.landmark(), &message);
            return false;
        }
        if file.link == link::RAW {
            self.force_ip.set(true);
        }
        let begin = file.begin;
        if begin != 0
            && let Err(message) = file.input.seek(begin)
        {
            errors.error(&message);
            return false;
        }
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.active.get() {
            return false;
        }
        for _ in 0..RETRIES {
            if self.packet.borrow().is_none() && !self.read(at) {
                self.call_end(at);
                return false;
            }
            if self.timing && !self.is_due(at) {
                return false;
            }
            if let Some(packet) = self.take(at) {
                at.schedule(0);
                at.push(0, packet);
                return true;
            }
        }
        at.schedule(0);
        false
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if self.active.get() {
            if self.pushes { at.schedule(0) } else { self.notifier.wake(at.router) }
        }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if !self.active.get() {
            self.notifier.sleep();
            return None;
        }
        let more = self.packet.borrow().is_some() || self.read(at);
        if self.timing && !self.is_due(at) {
            return None;
        }
        let packet = self.take(at);
        self.notifier.set_active(more, at.router);
        if !more {
            self.call_end(at);
        }
        packet
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty && !self.pushes).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("filename", |this: &Self, _| this.file.borrow().input.name().to_owned());
        handlers.read("filesize", |this: &Self, _| {
            this.file.borrow().input.size().map_or_else(|| "-".to_owned(), |size| size.to_string())
        });
        handlers.read("filepos", |this: &Self, _| this.file.borrow().input.position());
        handlers.write("filepos", |this: &Self, _, value| {
            let to = value.trim().parse().map_err(|_| "argument must be file offset".to_owned())?;
            this.file.borrow_mut().input.seek(to)?;
            Ok(String::new())
        });
        handlers.read("packet_filepos", |this: &Self, _| this.file.borrow().place);
        handlers.read("sampling_prob", |this: &Self, _| this.sample);
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.set_active(at, boolean(value.trim()).ok_or("type mismatch")?);
            Ok(String::new())
        });
        handlers.read("encap", |this: &Self, _| link::name(this.file.borrow().link));
        handlers.button("stop", |this: &Self, at| {
            this.set_active(at, false);
            at.router.please_stop();
        });
        handlers.write("extend_interval", |this: &Self, at, value| {
            let Ok(span) = time(value.trim(), at) else {
                return Err("'extend_interval' takes a time interval".into());
            };
            match this.range.end.get() {
                Bound::At(end) => this.range.end.set(Bound::At(end.saturating_add(span))),
                Bound::None if this.end_call.borrow().is_some() => {
                    this.range.end.set(Bound::At(this.range.last_end.get().saturating_add(span)));
                }
                _ => (),
            }
            if this.end_call.borrow().is_some() {
                this.set_active(at, true);
            }
            Ok(String::new())
        });
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.button("reset_counts", |this: &Self, _| this.count.set(0));
        handlers.button("reset_timing", |this: &Self, _| this.range.is_begun.set(false));
        if self.pushes {
            handlers.task::<Self>(0);
        }
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        if self.file.borrow().input.name() == before.file.borrow().input.name() {
            self.file.swap(&before.file);
            self.packet.swap(&before.packet);
            self.timing_offset.set(before.timing_offset.get());
            if self.file.borrow().link == link::RAW {
                self.force_ip.set(true);
            }
        }
    }
    fn cleanup(&self, at: At<'_>) {
        self.file.borrow_mut().input.close();
        if let Some(packet) = self.packet.take() {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}
