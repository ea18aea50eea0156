//! `FromTcpdump`: packets from the lines that tcpdump prints.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::input::{Input, Sample};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::names;
use crate::notifier::{Notice, Notifier, Search};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Word, boolean, signed_seconds};

pub(super) const CLASSES: &[Class] = &[Class::new("FromTcpdump", configure).ports("0/1").flow("x/y")];

/// The most flows whose sequence numbers are remembered.
const MOST_FLOWS: usize = 1 << 16;
/// Flags of TCP by their letters, the lowest bit first.
const FLAGS: &[u8] = b"FSRPAUEC";
const SYN: u8 = 2;
const ACK: u8 = 16;

/// `FromTcpdump(FILENAME [, STOP, ACTIVE, ZERO, CHECKSUM, SAMPLE])`: makes packets from lines of an older tcpdump.
///
/// The lines are of IPv4 with TCP, UDP or ICMP, as `tcpdump -n -tt` printed them, with `-S` or not.
struct FromTcpdump {
    input: RefCell<Input>,
    flows: RefCell<Flows>,
    sample: Sample,
    stop: bool,
    checksum: bool,
    pushes: bool,
    active: Cell<bool>,
    complained: Cell<bool>,
    notifier: Rc<Notifier>,
}

/// Sequence numbers of flows, which tcpdump prints relative to the first unless told otherwise.
#[derive(Default)]
struct Flows {
    known: HashMap<(Ipv4Addr, u16, Ipv4Addr, u16), Sequence>,
    /// Whether the numbers are absolute, once a line has shown it.
    absolute: Option<bool>,
}

/// Sequence numbers of a flow's two directions.
#[derive(Clone, Copy, Default)]
struct Sequence {
    first: [u32; 2],
    last: [u32; 2],
}

/// A line that is read from its front.
struct Line<'l>(&'l str);

impl<'l> Line<'l> {
    fn eat(&mut self, word: &str) -> bool {
        match self.0.strip_prefix(word) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }
    fn spaces(&mut self) {
        self.0 = self.0.trim_start_matches(' ');
    }
    fn number(&mut self) -> Option<u32> {
        let end = self.0.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        let value = digits
            .bytes()
            .fold(0_u32, |value, digit| value.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
        self.0 = rest;
        (end > 0).then_some(value)
    }
    /// A number behind a word, if the line goes on so.
    fn number_behind(&mut self, word: &str) -> Option<u32> {
        let rest = self.0.strip_prefix(word)?;
        let mut ahead = Line(rest);
        let value = ahead.number()?;
        self.0 = ahead.0;
        Some(value)
    }
    /// Passes over `[...]` if it begins with a word.
    fn skip_bracket(&mut self, word: &str) {
        if self.0.starts_with(word)
            && let Some(end) = self.0.find(']')
        {
            self.0 = self.0[end + 1..].trim_start_matches(' ');
        }
    }
}

/// An address and a port.
type End = (Ipv4Addr, u16);

/// A packet as its line tells it.
struct Told {
    time: i64,
    protocol: u8,
    source: End,
    destination: End,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    window: u32,
    urgent: u32,
    options: Vec<u8>,
    /// Bytes behind the headers, if the line tells them.
    length: Option<u32>,
    tos: u8,
    id: u32,
    fragment: u16,
    ttl: u8,
    /// Length of the IP packet, if the line tells it.
    total: Option<u32>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let filename: Option<Word> = arguments.required("FILENAME");
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    // Bytes that a line does not tell are always zero.
    let _: Option<bool> = arguments.keyword("ZERO");
    let checksum = arguments.keyword("CHECKSUM").unwrap_or(false);
    let sample = Sample::read(arguments);
    arguments.complete()?;
    Some(Rc::new(FromTcpdump {
        input: RefCell::new(Input::file(&filename?.0)),
        flows: RefCell::default(),
        sample,
        stop,
        checksum,
        pushes: setup.at.output_is_push(0),
        active: Cell::new(active),
        complained: Cell::default(),
        notifier: Notifier::new("empty", Search::Stop),
    }))
}

/// `1.2.3.4.80` or `1.2.3.4.www`.
fn address_and_port(text: &str, with_port: bool) -> Option<(Ipv4Addr, u16)> {
    if !with_port {
        return text.parse().ok().map(|address| (address, 0));
    }
    let (address, port) = text.rsplit_once(['.', ':'])?;
    let port = port.parse().ok().or_else(|| match port {
        "hsrp" => Some(1985),
        "svrloc" => Some(427),
        _ => names::port(port),
    })?;
    Some((address.parse().ok()?, port))
}

impl Told {
    fn new(time: i64, protocol: u8, source: End, destination: End) -> Self {
        Self {
            time,
            protocol,
            source,
            destination,
            flags: 0,
            sequence: 0,
            acknowledgement: 0,
            window: 0,
            urgent: 0,
            options: Vec::new(),
            length: None,
            tos: 0,
            id: 0,
            fragment: 0,
            ttl: 2,
            total: None,
        }
    }
    /// The key of the segment's flow, and whether the segment goes the flow's second way.
    fn flow(&self) -> ((Ipv4Addr, u16, Ipv4Addr, u16), bool) {
        let (source, destination) = (self.source, self.destination);
        // Click compares ports and addresses as numbers of a little-endian machine.
        let order = |end: End| (end.1.swap_bytes(), u32::from(end.0).swap_bytes());
        let is_second = order(source) < order(destination);
        let (one, other) = if is_second { (source, destination) } else { (destination, source) };
        ((one.0, one.1, other.0, other.1), is_second)
    }
}

impl Flows {
    /// Makes a segment's sequence numbers absolute.
    fn settle(&mut self, told: &mut Told, end: u32) {
        if told.flags & ACK == 0 {
            return;
        }
        let (key, is_second) = told.flow();
        if self.known.len() >= MOST_FLOWS && !self.known.contains_key(&key) {
            self.known.clear();
        }
        let known = self.known.entry(key).or_default();
        let (this, that) = (usize::from(is_second), usize::from(!is_second));
        let mut end = end;
        if known.first == [0; 2] || told.flags & SYN != 0 {
            known.first[this] = told.sequence;
            known.first[that] = told.acknowledgement.wrapping_sub(1);
        } else {
            let ahead = told.acknowledgement.wrapping_sub(known.first[that]) as i32 >= 0;
            let absolute = *self.absolute.get_or_insert(ahead && told.acknowledgement > 8000);
            if told.sequence == 0 && end == 0 {
                told.sequence = known.last[this];
                end = told.sequence;
            } else if !absolute {
                told.sequence = told.sequence.wrapping_add(known.first[this]);
                end = end.wrapping_add(known.first[this]);
            }
            if !absolute {
                told.acknowledgement = told.acknowledgement.wrapping_add(known.first[that]);
            }
        }
        let extra = u32::from(told.flags & SYN != 0) + u32::from(told.flags & 1 != 0);
        known.last[this] = end.wrapping_add(extra);
        if known.last[that] == 0 {
            known.last[that] = told.acknowledgement;
        }
    }

    /// The first sequence number of the direction against a segment's, to which its SACK blocks are relative.
    fn origin(&self, told: &Told) -> u32 {
        if self.absolute == Some(true) || told.flags & ACK == 0 {
            return 0;
        }
        let (key, is_second) = told.flow();
        self.known.get(&key).map_or(0, |known| known.first[usize::from(!is_second)])
    }

    fn read_tcp(&mut self, line: &mut Line<'_>, told: &mut Told) {
        if line.eat(".") {
            told.flags = ACK;
        } else {
            while let Some(bit) = line.0.bytes().next().and_then(flag_bit) {
                told.flags |= 1 << bit;
                line.0 = &line.0[1..];
            }
        }
        if !line.eat(" ") {
            return;
        }
        line.skip_bracket("[bad hdr");
        line.skip_bracket("[tcp sum ok]");
        line.skip_bracket("[bad tcp");
        let mut end = 0;
        if line.0.starts_with(|letter: char| letter.is_ascii_digit()) {
            let Some(sequence) = line.number() else { return };
            let Some(last) = line.number_behind(":") else { return };
            told.sequence = sequence;
            end = last;
            let Some(close) = line.0.find(')').filter(|_| line.0.starts_with('(')) else { return };
            line.0 = line.0[close + 1..].trim_start_matches(' ');
        }
        told.length = Some(end.wrapping_sub(told.sequence));
        if let Some(acknowledgement) = line.number_behind("ack ") {
            told.flags |= ACK;
            told.acknowledgement = acknowledgement;
            line.spaces();
        }
        self.settle(told, end);
        if let Some(window) = line.number_behind("win ") {
            told.window = window;
            line.spaces();
        }
        if let Some(urgent) = line.number_behind("urg ") {
            told.urgent = urgent;
            line.spaces();
        }
        if line.0.starts_with('<')
            && let Some(close) = line.0.find('>')
        {
            let origin = self.origin(told);
            for option in line.0[1..close].split(',') {
                read_option(option.trim(), origin, &mut told.options);
            }
            told.options.resize(told.options.len().next_multiple_of(4).min(40), 0);
            line.0 = &line.0[close + 1..];
        }
    }
}

/// The bit of a flag by its letter, of which some have two.
fn flag_bit(letter: u8) -> Option<usize> {
    match letter {
        b'X' => Some(6),
        b'W' | b'Y' => Some(7),
        _ => FLAGS.iter().position(|flag| *flag == letter),
    }
}

/// Adds an option of TCP as tcpdump writes it, if it is one.
fn read_option(text: &str, origin: u32, out: &mut Vec<u8>) {
    let mut line = Line(text);
    if line.eat("nop") {
        out.push(1);
    } else if line.eat("eol") {
        out.push(0);
    } else if let Some(size) = line.number_behind("mss ") {
        out.extend_from_slice(&[2, 4, (size >> 8) as u8, size as u8]);
    } else if let Some(scale) = line.number_behind("wscale ") {
        out.extend_from_slice(&[3, 3, scale as u8]);
    } else if line.eat("sackOK") {
        out.extend_from_slice(&[4, 2]);
    } else if let Some(value) = line.number_behind("timestamp ") {
        if let Some(echo) = line.number_behind(" ") {
            out.extend_from_slice(&[8, 10]);
            out.extend_from_slice(&value.to_be_bytes());
            out.extend_from_slice(&echo.to_be_bytes());
        }
    } else if line.number_behind("sack sack ").is_some() {
        let begin = out.len();
        out.extend_from_slice(&[5, 0]);
        line.spaces();
        while let Some(first) = line.number_behind("{") {
            let Some(last) = line.number_behind(":") else { break };
            if !line.eat("}") {
                break;
            }
            out.extend_from_slice(&first.wrapping_add(origin).to_be_bytes());
            out.extend_from_slice(&last.wrapping_add(origin).to_be_bytes());
        }
        out[begin + 1] = u8::try_from(out.len() - begin).unwrap_or(2);
    }
}

/// Reads what stands in parentheses and brackets at the end of a line: `(DF)`, `[tos 0x10]`, `(ttl 64, id 7, len 52)`.
fn read_tail(text: &str, told: &mut Told) {
    let mut rest = text.trim_end();
    while let Some(close) = rest.chars().next_back().filter(|letter| matches!(letter, ')' | ']')) {
        let open = if close == ')' { '(' } else { '[' };
        let Some(begin) = rest.rfind(open) else { return };
        let inside = &rest[begin + 1..rest.len() - 1];
        for item in inside.split(',') {
            let mut line = Line(item.trim());
            while !line.0.is_empty() && read_item(&mut line, told) {
                line.spaces();
            }
        }
        rest = rest[..begin].trim_end();
    }
}

fn read_item(line: &mut Line<'_>, told: &mut Told) -> bool {
    if line.eat("tos 0x") {
        let end = line.0.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(line.0.len());
        told.tos = u8::from_str_radix(&line.0[..end], 16).unwrap_or(0);
        line.0 = &line.0[end..];
    } else if line.eat("ECT(0)") {
        told.tos = told.tos & !3 | 1;
    } else if line.eat("ECT(1)") {
        told.tos = told.tos & !3 | 2;
    } else if line.eat("CE") {
        told.tos |= 3;
    } else if line.eat("DF") {
        told.fragment |= 0x4000;
    } else if let Some(id) = line.number_behind("frag ") {
        told.id = id;
        told.length = line.number_behind(":").or(told.length);
        let offset = line.number_behind("@").unwrap_or(0);
        told.fragment = told.fragment & !0x1FFF | (offset & 0x1FFF) as u16;
        if line.eat("+") {
            told.fragment |= 0x2000;
        }
    } else if let Some(ttl) = line.number_behind("ttl ") {
        told.ttl = ttl as u8;
    } else if let Some(id) = line.number_behind("id ") {
        told.id = id;
    } else if let Some(total) = line.number_behind("len ") {
        told.total = Some(total);
    } else {
        return false;
    }
    true
}

/// Reads a line. `None` where it is no packet's.
fn read_line(text: &str, flows: &mut Flows) -> Option<Told> {
    let (time, rest) = text.split_once(' ')?;
    let time = i64::try_from(signed_seconds(time)?).ok()?;
    let (addresses, data) =
        rest.split_once(": ").or_else(|| rest.trim_end().strip_suffix(':').map(|one| (one, "")))?;
    let data = data.trim_start();
    let protocol = match data.as_bytes() {
        [b'i', ..] => 1,
        [b'u', ..] | [b'[', b'u', ..] => 17,
        [b'.' | b'A'..=b'Z', ..] => 6,
        _ => 0,
    };
    let with_ports = matches!(protocol, 6 | 17);
    let (source, destination) = addresses.split_once(" > ")?;
    let (source, destination) =
        (address_and_port(source, with_ports)?, address_and_port(destination, with_ports)?);
    let mut told = Told::new(time, protocol, source, destination);
    let mut line = Line(data);
    match protocol {
        6 => flows.read_tcp(&mut line, &mut told),
        17 => {
            line.skip_bracket("[bad hdr");
            line.skip_bracket("[udp sum ok]");
            line.skip_bracket("[bad udp");
            told.length = line.number_behind("udp ");
        }
        _ => (),
    }
    read_tail(line.0, &mut told);
    Some(told)
}

impl Told {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        bytes[0] = 0x45;
        bytes[1] = self.tos;
        bytes[4..6].copy_from_slice(&(self.id as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        bytes[12..16].copy_from_slice(&self.source.0.octets());
        bytes[16..20].copy_from_slice(&self.destination.0.octets());
        if matches!(self.protocol, 6 | 17) {
            bytes.extend_from_slice(&self.source.1.to_be_bytes());
            bytes.extend_from_slice(&self.destination.1.to_be_bytes());
        }
        if self.protocol == 17 {
            bytes.extend_from_slice(&[0; 4]);
        }
        if self.protocol == 6 {
            bytes.extend_from_slice(&self.sequence.to_be_bytes());
            bytes.extend_from_slice(&self.acknowledgement.to_be_bytes());
            bytes.extend_from_slice(&[((5 + self.options.len() / 4) << 4) as u8, self.flags]);
            bytes.extend_from_slice(&(self.window as u16).to_be_bytes());
            bytes.extend_from_slice(&[0; 2]);
            bytes.extend_from_slice(&(self.urgent as u16).to_be_bytes());
            bytes.extend_from_slice(&self.options);
        }
        bytes
    }

    /// The packet, without the bytes that its line does not tell.
    fn packet(&self, at: At<'_>, with_checksum: bool) -> Option<Packet> {
        let mut bytes = self.bytes();
        let mut missing = self.length.unwrap_or(0);
        if let Some(total) = self.total {
            let headers = total.saturating_sub(self.length.unwrap_or(0)) as usize;
            match self.length {
                // What is more than headers and data is options that the line does not tell.
                Some(_) if self.protocol == 6 && headers > bytes.len() && headers <= 80 => {
                    bytes.resize(headers.next_multiple_of(4), 0);
                    bytes[32] = (((bytes.len() - 20) / 4) << 4) as u8;
                }
                Some(_) => (),
                None => missing = total.saturating_sub(bytes.len() as u32),
            }
        }
        let length = (bytes.len() as u32).wrapping_add(missing) as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        if self.protocol == 17 {
            bytes[24..26].copy_from_slice(&length.wrapping_sub(20).to_be_bytes());
        }
        if with_checksum {
            let sum = checksum::internet(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            let place = match self.protocol {
                6 => Some(36),
                17 => Some(26),
                _ => None,
            };
            if let Some(place) = place.filter(|_| self.fragment & 0x3FFF == 0) {
                let (source, destination) = (self.source.0.into(), self.destination.0.into());
                let sum = checksum::transport(source, destination, self.protocol, &bytes[20..]);
                bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        let mut packet = at.packet(&bytes)?;
        packet.set_network(0, 20);
        packet.set_timestamp(self.time as u64);
        packet.set_anno_u32(place::EXTRA_LENGTH, missing);
        Some(packet)
    }
}

impl FromTcpdump {
    /// The packet of the next line. `None` for a line that makes none, and at the end.
    fn read(&self, at: At<'_>) -> Option<Packet> {
        let mut input = self.input.borrow_mut();
        let mut line = Vec::new();
        loop {
            if !input.read_line(&mut line) {
                input.close();
                return None;
            }
            if !line.is_empty() && line[0] != b'#' {
                break;
            }
        }
        let text = String::from_utf8_lossy(&line);
        let told = read_line(text.trim_end(), &mut self.flows.borrow_mut());
        if let Some(told) = told {
            return told.packet(at, self.checksum);
        }
        if !text.trim().is_empty() && !self.complained.replace(true) {
            at.chatter(&format!("{}: packet parse error", input.landmark()));
        }
        None
    }

    /// The next packet of the sample. `None` for a line that makes none (then `true`), and at the end.
    fn next(&self, at: At<'_>) -> (Option<Packet>, bool) {
        loop {
            let packet = self.read(at);
            let is_open = self.input.borrow().is_open();
            match packet {
                Some(packet) if !self.sample.takes(at) => at.drop_packet(packet, DropReason::Denied),
                packet => return (packet, is_open),
            }
        }
    }
}

impl Element for FromTcpdump {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let mut input = self.input.borrow_mut();
        if input.open(at, errors, false).is_err() {
            return false;
        }
        let mut line = Vec::new();
        input.read_line(&mut line);
        if !line.first().is_some_and(u8::is_ascii_digit) {
            errors.warning_at(input.name(), "first line suspicious; is this a tcpdump output file?");
        }
        input.unread_line(&line);
        if self.pushes && self.active.get() {
            at.schedule(0);
        }
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.active.get() {
            return false;
        }
        let (packet, is_open) = self.next(at);
        if packet.is_none() && !is_open {
            if self.stop {
                at.router.please_stop();
            }
            return false;
        }
        at.schedule(0);
        if let Some(packet) = packet {
            at.push(0, packet);
        }
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if !self.active.get() {
            return None;
        }
        let (packet, is_open) = self.next(at);
        if packet.is_none() && !is_open {
            if self.stop {
                at.router.please_stop();
            }
            self.notifier.sleep();
        } else {
            self.notifier.wake(at.router);
        }
        packet
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty && !self.pushes).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("sampling_prob", |this: &Self, _| this.sample);
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            let active = boolean(value.trim()).ok_or("syntax error")?;
            this.active.set(active);
            if !this.pushes {
                this.notifier.set_active(active, at.router);
            } else if active {
                at.schedule(0);
            }
            Ok(String::new())
        });
        handlers.read("encap", |_: &Self, _| "IP");
        handlers.button("stop", |this: &Self, at| {
            this.active.set(false);
            at.router.please_stop();
        });
        handlers.read("filename", |this: &Self, _| this.input.borrow().name().to_owned());
        handlers.read("filesize", |this: &Self, _| {
            this.input.borrow().size().map_or_else(|| "-".to_owned(), |size| size.to_string())
        });
        handlers.read("filepos", |this: &Self, _| this.input.borrow().position());
        if self.pushes {
            handlers.task::<Self>(0);
        }
    }
    fn cleanup(&self, _: At<'_>) {
        self.input.borrow_mut().close();
    }
}
