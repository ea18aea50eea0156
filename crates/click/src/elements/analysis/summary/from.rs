//! `FromIPSummaryDump`: packets from the lines or records of a summary.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::draft::{Draft, Flow};
use super::field::Column;
use super::{first_timestamp, reader};
use crate::arguments::{Argument, Arguments};
use crate::element::Element;
use crate::elements::analysis::input::{Failure, Input, Sample};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::notifier::{Notice, Notifier, Search};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Raw, Word, boolean, integer};

/// `FromIPSummaryDump([FILENAME, STOP, ACTIVE, ZERO, TIMING, CHECKSUM, SAMPLE, PROTO, MULTIPACKET, FIELDS, FLOWID,
/// ALLOW_NONEXISTENT, DATA])`: makes a packet of each line of a dump, or of the configuration's `DATA`.
struct FromSummary {
    state: RefCell<State>,
    sample: Sample,
    stop: bool,
    timing: bool,
    checksum: bool,
    multipacket: bool,
    may_miss: bool,
    pushes: bool,
    active: Cell<bool>,
    complained: Cell<bool>,
    /// Steady time of packets with timestamp 0, once the first packet came.
    timing_offset: Cell<Option<i64>>,
    work: RefCell<Work>,
    notifier: Rc<Notifier>,
}

/// A packet that waits: for its time, or because it stands for several.
#[derive(Default)]
struct Work {
    packet: Option<Packet>,
    /// Of a packet that stands for several: the length of each, the time between them, the last's time.
    length: usize,
    step: i64,
    end: i64,
    is_begun: bool,
}

struct State {
    input: Input,
    columns: Vec<Column>,
    /// Columns in the order in which they make a packet.
    order: Vec<usize>,
    protocol: u8,
    flow: Option<Flow>,
    aggregate: u32,
    minor: u32,
    is_binary: bool,
    draft: Draft,
    line: Vec<u8>,
}

/// Messages about a dump: told while the configuration is made, said later.
enum Tell<'t> {
    Errors(&'t Errors),
    Chatter(At<'t>),
}

impl Tell<'_> {
    fn error(&self, landmark: &str, message: &str) {
        match self {
            Self::Errors(errors) => errors.error_at(landmark, message),
            Self::Chatter(at) => at.chatter(&format!("{landmark}: {message}")),
        }
    }
    fn warning(&self, landmark: &str, message: &str) {
        match self {
            Self::Errors(errors) => errors.warning_at(landmark, message),
            Self::Chatter(at) => at.chatter(&format!("{landmark}: warning: {message}")),
        }
    }
}

pub(super) fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let filename: Option<Word> = arguments.positional("FILENAME");
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    // Packets' bytes are always zero where a dump does not tell them.
    let _: Option<bool> = arguments.keyword("ZERO");
    let timing = arguments.keyword("TIMING").unwrap_or(false);
    let checksum = arguments.keyword("CHECKSUM").unwrap_or(false);
    let sample = Sample::read(arguments);
    let protocol: u8 = arguments.keyword("PROTO").unwrap_or(6);
    let multipacket = arguments.keyword("MULTIPACKET").unwrap_or(false);
    let mut fields: Option<Raw> = None;
    for keyword in ["DEFAULT_CONTENTS", "DEFAULT_FIELDS", "CONTENTS", "FIELDS"] {
        fields = arguments.keyword(keyword).or(fields);
    }
    let mut flow: Option<Raw> = None;
    for keyword in ["DEFAULT_FLOWID", "FLOWID"] {
        flow = arguments.keyword(keyword).or(flow);
    }
    let may_miss = arguments.keyword("ALLOW_NONEXISTENT").unwrap_or(false);
    let data: Option<Vec<u8>> = arguments.keyword("DATA");
    arguments.complete()?;
    let data = data.filter(|data| !data.is_empty());
    let filename = filename.map(|Word(filename)| filename).filter(|filename| !filename.is_empty());
    let input = match (filename, data) {
        (Some(_), Some(_)) => {
            setup.errors.error("FILENAME and DATA conflict");
            return None;
        }
        (Some(filename), None) => Input::file(&filename),
        (None, Some(data)) => Input::memory(data),
        (None, None) => {
            setup.errors.error("FILENAME: required argument missing");
            return None;
        }
    };
    let mut state = State {
        input,
        columns: Vec::new(),
        order: Vec::new(),
        protocol,
        flow: None,
        aggregate: 0,
        minor: super::VERSION.1,
        is_binary: false,
        draft: Draft::default(),
        line: Vec::new(),
    };
    let tell = Tell::Errors(setup.errors);
    if let Some(Raw(fields)) = fields {
        state.set_columns(&fields, &tell);
    }
    if let Some(Raw(flow)) = flow {
        state.set_flow(&format!("!flowid {flow}"), setup.at, &tell);
    }
    Some(Rc::new(FromSummary {
        state: RefCell::new(state),
        sample,
        stop,
        timing,
        checksum,
        multipacket,
        may_miss,
        pushes: setup.at.output_is_push(0),
        active: Cell::new(active),
        complained: Cell::default(),
        timing_offset: Cell::default(),
        work: RefCell::default(),
        notifier: Notifier::new("empty", Search::Stop),
    }))
}

impl State {
    fn set_columns(&mut self, line: &str, tell: &Tell<'_>) {
        let landmark = self.input.landmark();
        self.columns.clear();
        for (place, word) in text::split_words(line).iter().enumerate() {
            let name = String::from_utf8_lossy(&text::unquote(word)).into_owned();
            if place == 0 && matches!(&*name, "!data" | "!contents") {
                continue;
            }
            match Column::find(&name) {
                Some(column) if column.is_readable() => self.columns.push(column),
                _ => {
                    tell.warning(&landmark, &format!("unknown content type '{name}'"));
                    self.columns.push(Column::IGNORED);
                }
            }
        }
        if self.columns.is_empty() {
            tell.error(&landmark, "no contents specified");
        }
        let columns = &self.columns;
        self.order = (0..columns.len()).filter(|place| columns[*place].is_readable()).collect();
        self.order.sort_by_key(|place| columns[*place].order);
    }

    fn set_protocol(&mut self, word: Option<&str>, kind: &str, tell: &Tell<'_>) {
        let landmark = self.input.landmark();
        let Some(word) = word else {
            tell.error(&landmark, &format!("bad {kind}"));
            return;
        };
        let number = || integer(word).and_then(|number| u8::try_from(number).ok());
        match crate::names::ip_protocol(word).or_else(number).or(match word {
            "T" => Some(6),
            "U" => Some(17),
            "I" => Some(1),
            _ => None,
        }) {
            Some(protocol) => self.protocol = protocol,
            None => tell.error(&landmark, &format!("bad protocol in {kind}")),
        }
    }

    fn set_flow(&mut self, line: &str, at: At<'_>, tell: &Tell<'_>) {
        let words = text::split_words(line);
        let address = |place: usize| match words.get(place).map(String::as_str) {
            Some("-") => Some(Ipv4Addr::UNSPECIFIED),
            Some(word) => Ipv4Addr::parse(word, at).ok(),
            None => None,
        };
        let port = |place: usize| match words.get(place).map(String::as_str) {
            Some("-") => Some(0),
            Some(word) => integer(word).and_then(|port| u16::try_from(port).ok()),
            None => None,
        };
        match (address(1), port(2), address(3), port(4)) {
            (Some(source), Some(source_port), Some(destination), Some(destination_port)) => {
                if let Some(protocol) = words.get(5) {
                    self.set_protocol(Some(protocol), "!flowid", tell);
                }
                self.flow = Some(Flow { source, source_port, destination, destination_port });
            }
            _ => {
                tell.error(&self.input.landmark(), "bad !flowid specification");
                self.flow = None;
            }
        }
    }

    /// Follows a line that begins with `!`.
    fn command(&mut self, line: &str, at: At<'_>, tell: &Tell<'_>) {
        let name = line.split(|letter: char| letter.is_ascii_whitespace()).next().unwrap_or("");
        if name.len() == line.len() {
            return;
        }
        let words = text::split_words(line);
        let only = match &words[..] {
            [_, word] => Some(word.as_str()),
            _ => None,
        };
        match name {
            "!data" | "!contents" => self.set_columns(line, tell),
            "!flowid" => self.set_flow(line, at, tell),
            "!proto" => self.set_protocol(only, "!proto", tell),
            "!aggregate" => {
                let aggregate = only.and_then(integer).and_then(|aggregate| u32::try_from(aggregate).ok());
                self.aggregate = aggregate.unwrap_or(0);
                if aggregate.is_none() {
                    tell.error(&self.input.landmark(), "bad !aggregate specification");
                }
            }
            "!binary" => {
                if words.len() != 1 {
                    tell.error(&self.input.landmark(), "bad !binary specification");
                }
                self.is_binary = true;
                self.input.records = true;
                self.input.line = 1;
            }
            _ => (),
        }
    }

    /// Reads the next line or record into `line`. Whether it is binary; `None` at the end.
    fn next(&mut self, line: &mut Vec<u8>, tell: &Tell<'_>) -> Option<bool> {
        if !self.is_binary {
            return self.input.read_line(line).then_some(false);
        }
        let head = self.input.take(4)?;
        let is_text = head[0] & 0x80 != 0;
        let length = u32::from_be_bytes([head[0] & 0x7F, head[1], head[2], head[3]]) as usize;
        let Some(length) = length.checked_sub(4) else {
            tell.error(&self.input.landmark(), "binary record too short");
            return None;
        };
        let record = self.input.take(length)?;
        line.clear();
        line.extend_from_slice(record);
        if is_text {
            while line.last() == Some(&0) {
                line.pop();
            }
        }
        self.input.line = self.input.line.wrapping_add(1);
        Some(!is_text)
    }

    /// Makes the draft of a line of text. The number of fields that it tells.
    fn draft_text(&mut self, line: &[u8], at: At<'_>) -> usize {
        let words = split_line(line, self.columns.len());
        let mut count = 0;
        for &place in &self.order {
            let (Some(column), Some(word)) = (self.columns.get(place), words.get(place)) else { continue };
            if word.is_empty() || *word == b"-" {
                continue;
            }
            if let Some(told) = reader::text(column, word, &self.draft, self.minor, at) {
                self.draft.inject(column.field, &told);
                count += 1;
            }
        }
        count
    }

    /// Makes the draft of a binary record. The number of fields that it tells.
    fn draft_binary(&mut self, record: &[u8]) -> usize {
        let mut rest = record;
        let values: Vec<_> = self.columns.iter().map(|column| reader::binary(column, &mut rest)).collect();
        let mut count = 0;
        for &place in &self.order {
            if let (Some(column), Some(Some(told))) = (self.columns.get(place), values.get(place)) {
                self.draft.inject(column.field, told);
                count += 1;
            }
        }
        count
    }
}

/// Words of a line at white space outside double quotes, as many as there are columns.
fn split_line(line: &[u8], most: usize) -> Vec<&[u8]> {
    let mut words = Vec::with_capacity(most);
    let mut place = 0;
    while words.len() < most && place < line.len() {
        let begin = place;
        let mut is_quoted = false;
        while let Some(byte) = line.get(place) {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'\\' if is_quoted => place += 1,
                _ if !is_quoted && byte.is_ascii_whitespace() => break,
                _ => (),
            }
            place += 1;
        }
        place = place.min(line.len());
        words.push(&line[begin..place]);
        while line.get(place).is_some_and(u8::is_ascii_whitespace) {
            place += 1;
        }
    }
    words
}

impl FromSummary {
    /// The packet of the next line. `None` for a line that makes none, and at the end.
    fn read(&self, at: At<'_>) -> Option<Packet> {
        let mut state = self.state.borrow_mut();
        let tell = Tell::Chatter(at);
        let mut line = std::mem::take(&mut state.line);
        let is_binary = loop {
            match state.next(&mut line, &tell) {
                None => {
                    state.input.close();
                    return None;
                }
                Some(true) => break true,
                Some(false) => match line.first() {
                    Some(b'!') => {
                        let text = String::from_utf8_lossy(&line).into_owned();
                        state.command(&text, at, &tell);
                    }
                    None | Some(b'#') => (),
                    Some(_) => break false,
                },
            }
        };
        let (protocol, flow, aggregate) = (state.protocol, state.flow, state.aggregate);
        state.draft.begin(protocol, flow, aggregate);
        let count = if is_binary { state.draft_binary(&line) } else { state.draft_text(&line, at) };
        let is_blank = !is_binary && line.iter().all(u8::is_ascii_whitespace);
        state.line = line;
        if count == 0 {
            if !is_blank && !self.complained.replace(true) {
                let what =
                    if state.columns.is_empty() { "no '!data' provided" } else { "packet parse error" };
                tell.error(&state.input.landmark(), what);
            }
            return None;
        }
        let packet = state.draft.finish(at, self.checksum);
        if packet.is_none() {
            tell.error(&state.input.landmark(), "Cannot allocate memory");
        }
        packet
    }

    fn is_open(&self) -> bool {
        self.state.borrow().input.is_open()
    }

    /// The next packet, of those that wait or of those in the file.
    fn next(&self, at: At<'_>) -> Option<Packet> {
        let waiting = self.work.borrow_mut().packet.take();
        let packet = waiting.or_else(|| self.read(at))?;
        if self.timing && !self.is_due(at, &packet) {
            self.work.borrow_mut().packet = Some(packet);
            return None;
        }
        if self.multipacket { self.next_of_many(at, packet) } else { Some(packet) }
    }

    /// Whether a packet's time has come; a timer waits for it otherwise.
    fn is_due(&self, at: At<'_>, packet: &Packet) -> bool {
        let now = at.steady() as i64;
        let time = packet.timestamp() as i64;
        let offset = self.timing_offset.get().unwrap_or_else(|| now.wrapping_sub(time));
        self.timing_offset.set(Some(offset));
        let due = time.wrapping_add(offset);
        if now >= due {
            return true;
        }
        at.timer_at(0, due as u64);
        if !self.pushes {
            self.notifier.sleep();
        }
        false
    }

    /// Takes one packet off one that stands for several, and keeps the rest.
    fn next_of_many(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let extra = packet.anno_u32(place::EXTRA_PACKETS);
        let mut work = self.work.borrow_mut();
        if extra == 0 {
            work.is_begun = false;
            return Some(packet);
        }
        let missing = packet.anno_u32(place::EXTRA_LENGTH) as usize;
        if !work.is_begun {
            work.is_begun = true;
            work.length = ((packet.len() + missing) / (extra as usize + 1)).max(packet.len());
            work.end = packet.timestamp() as i64;
            let first = first_timestamp(&packet);
            work.step = if first == 0 { 0 } else { work.end.wrapping_sub(first) / i64::from(extra) };
            if first != 0 {
                packet.set_timestamp(first as u64);
            }
            let rest = work.length.saturating_mul(extra as usize + 1) - packet.len();
            packet.set_anno_u32(place::EXTRA_LENGTH, u32::try_from(rest.max(missing)).unwrap_or(u32::MAX));
            set_lengths(&mut packet, work.length);
        }
        let mut one = at.copy(&packet)?;
        one.set_anno_u32(place::EXTRA_PACKETS, 0);
        one.set_anno_u32(place::EXTRA_LENGTH, (work.length - packet.len().min(work.length)) as u32);
        let left = packet.anno_u32(place::EXTRA_LENGTH).saturating_sub(work.length as u32);
        packet.set_anno_u32(place::EXTRA_PACKETS, extra - 1);
        packet.set_anno_u32(place::EXTRA_LENGTH, left);
        if extra == 1 {
            packet.set_timestamp(work.end as u64);
            let length = packet.len() + left as usize;
            set_lengths(&mut packet, length);
        } else {
            let time = (packet.timestamp() as i64).wrapping_add(work.step);
            packet.set_timestamp(time as u64);
        }
        work.packet = Some(packet);
        Some(one)
    }

    fn set_active(&self, at: At<'_>, active: bool) {
        self.active.set(active);
        if !self.pushes {
            self.notifier.set_active(active, at.router);
        } else if active {
            at.schedule(0);
        }
    }
}

/// Has the headers of IP and UDP tell a length.
fn set_lengths(packet: &mut Packet, length: usize) {
    let header = packet.network_length().unwrap_or(0);
    let Some(ip) = packet.network_mut() else { return };
    if ip.len() < 20 {
        return;
    }
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    if ip[9] == 17
        && let Some(field) = ip.get_mut(header + 4..header + 6)
    {
        field.copy_from_slice(&(length.saturating_sub(header) as u16).to_be_bytes());
    }
}

impl Element for FromSummary {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.pushes && self.active.get() {
            at.schedule(0);
        }
        let mut state = self.state.borrow_mut();
        match state.input.open(at, errors, self.may_miss) {
            Ok(()) => (),
            Err(Failure::Missing) => return true,
            Err(Failure::Told) => return false,
        }
        let mut line = Vec::new();
        state.input.read_line(&mut line);
        if let Some(banner) = line.strip_prefix(b"!IPSummaryDump") {
            let banner = String::from_utf8_lossy(banner);
            let version = banner.trim().split_once('.');
            if let Some((Ok(major), Ok(minor))) =
                version.map(|(major, minor)| (major.parse::<u32>(), minor.parse::<u32>()))
            {
                state.minor = minor;
                if major != super::VERSION.0 || minor > super::VERSION.1 {
                    state.minor = super::VERSION.1;
                    let message = format!("unexpected IPSummaryDump version {major}.{minor}");
                    errors.warning_at(&state.input.landmark(), &message);
                }
            }
            return true;
        }
        state.input.unread_line(&line);
        let known = [&b"!creator"[..], b"!data", b"!contents", b"!proto", b"!flowid"];
        if !known.iter().any(|word| line.starts_with(word)) && state.columns.is_empty() {
            errors.warning_at(&state.input.landmark(), "missing banner line; is this an IP summary dump?");
        }
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.active.get() {
            return false;
        }
        loop {
            match self.next(at) {
                Some(packet) if !self.sample.takes(at) => {
                    at.drop_packet(packet, DropReason::Denied);
                }
                Some(packet) => {
                    at.push(0, packet);
                    break;
                }
                None if self.work.borrow().packet.is_some() && self.timing => return false,
                None if !self.is_open() => {
                    if self.stop {
                        at.router.please_stop();
                    }
                    return false;
                }
                None => break,
            }
        }
        at.schedule(0);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if self.active.get() {
            if self.pushes { at.schedule(0) } else { self.notifier.wake(at.router) }
        }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if !self.active.get() {
            return None;
        }
        loop {
            match self.next(at) {
                Some(packet) if !self.sample.takes(at) => {
                    at.drop_packet(packet, DropReason::Denied);
                }
                Some(packet) => {
                    self.notifier.wake(at.router);
                    return Some(packet);
                }
                None if self.work.borrow().packet.is_some() && self.timing => return None,
                None if !self.is_open() => {
                    if self.stop {
                        at.router.please_stop();
                    }
                    self.notifier.sleep();
                    return None;
                }
                None => (),
            }
        }
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty && !self.pushes).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("sampling_prob", |this: &Self, _| this.sample);
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.set_active(at, boolean(value.trim()).ok_or("type mismatch")?);
            Ok(String::new())
        });
        handlers.read("encap", |_: &Self, _| "IP");
        handlers.button("stop", |this: &Self, at| {
            this.active.set(false);
            at.router.please_stop();
        });
        handlers.read("filename", |this: &Self, _| this.state.borrow().input.name().to_owned());
        handlers.read("filesize", |this: &Self, _| {
            this.state.borrow().input.size().map_or_else(|| "-".to_owned(), |size| size.to_string())
        });
        handlers.read("filepos", |this: &Self, _| this.state.borrow().input.position());
        if self.pushes {
            handlers.task::<Self>(0);
        }
    }
    fn cleanup(&self, at: At<'_>) {
        self.state.borrow_mut().input.close();
        let waiting = self.work.borrow_mut().packet.take();
        if let Some(packet) = waiting {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}
