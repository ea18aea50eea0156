//! `IPPrint`: a line for each IPv4 packet, as tcpdump writes it.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::header::{self, Ip, get16, get32};
use super::names;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Word, boolean, write_time};

pub(super) const CLASSES: &[Class] = &[Class::new("IPPrint", ip_print)];

/// How bytes are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    None,
    Hex,
    Ascii,
}

/// `IPPrint([LABEL, CONTENTS, PAYLOAD, MAXLENGTH, ID, TIMESTAMP, PAINT, TOS, TTL, SWAP, LENGTH, AGGREGATE, ACTIVE,
/// OUTFILE])`: says a line for each packet.
///
/// A packet without a marked network header passes unseen.
struct IpPrint {
    label: String,
    contents: Contents,
    payload: bool,
    limit: Option<usize>,
    swap: bool,
    id: bool,
    timestamp: bool,
    paint: bool,
    tos: bool,
    ttl: bool,
    length: bool,
    aggregate: bool,
    active: Cell<bool>,
    file_name: Option<String>,
    file: RefCell<Option<File>>,
}

fn contents(arguments: &mut Arguments<'_>) -> Option<(Contents, bool)> {
    let contents = arguments.keyword("CONTENTS").map_or_else(|| "no".to_owned(), |Word(word)| word);
    let payload = arguments.keyword("PAYLOAD").map_or_else(|| "no".to_owned(), |Word(word)| word);
    if !arguments.is_good() {
        return Some((Contents::None, false));
    }
    let (whole, shown) = match boolean(&contents) {
        Some(true) => (Contents::Hex, contents),
        Some(false) => (Contents::None, contents),
        None => {
            let upper = contents.to_uppercase();
            match &upper[..] {
                "NONE" => (Contents::None, upper),
                "HEX" => (Contents::Hex, upper),
                "ASCII" => (Contents::Ascii, upper),
                _ => {
                    arguments
                        .error(&format!("bad contents value '{upper}'; should be 'NONE', 'HEX', or 'ASCII'"));
                    return None;
                }
            }
        }
    };
    let part = match &payload.to_uppercase()[..] {
        "NO" | "FALSE" => Contents::None,
        "YES" | "TRUE" | "HEX" => Contents::Hex,
        "ASCII" => Contents::Ascii,
        _ => {
            arguments.error(&format!("bad payload value '{shown}'; should be 'false', 'hex', or 'ascii'"));
            return None;
        }
    };
    if part != Contents::None && whole != Contents::None {
        arguments.error("specify at most one of PAYLOAD and CONTENTS");
        return None;
    }
    Some(if part == Contents::None { (whole, false) } else { (part, true) })
}

fn ip_print(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let label: String = arguments.positional("LABEL").unwrap_or_default();
    let limit: i32 = arguments.keyword("MAXLENGTH").unwrap_or(1500);
    let limit = arguments.keyword("NBYTES").unwrap_or(limit);
    let [id, paint, tos, ttl, length, aggregate] = ["ID", "PAINT", "TOS", "TTL", "LENGTH", "AGGREGATE"]
        .map(|keyword| arguments.keyword(keyword).unwrap_or(false));
    let [timestamp, swap, active] =
        ["TIMESTAMP", "SWAP", "ACTIVE"].map(|keyword| arguments.keyword(keyword).unwrap_or(true));
    let file_name: Option<String> = arguments.keyword("OUTFILE");
    let _: Option<Word> = arguments.keyword("CHANNEL");
    let contents = contents(arguments);
    arguments.complete()?;
    let (contents, payload) = contents?;
    Some(Rc::new(IpPrint {
        label,
        contents,
        payload,
        limit: usize::try_from(limit).ok(),
        swap,
        id,
        timestamp,
        paint,
        tos,
        ttl,
        length,
        aggregate,
        active: Cell::new(active),
        file_name,
        file: RefCell::default(),
    }))
}

/// A line under construction. Writing to a text cannot fail.
macro_rules! add {
    ($line:expr, $($format:tt)*) => {{ let _ = write!($line, $($format)*); }};
}

fn addresses(line: &mut String, ip: Ip<'_>) {
    add!(line, "{} > {}", ip.source(), ip.destination());
}

fn endpoints(line: &mut String, ip: Ip<'_>, ports: &[u8]) {
    add!(line, "{}.{} > ", ip.source(), get16(ports, 0));
    add!(line, "{}.{}: ", ip.destination(), get16(ports, 2));
}

fn tcp(line: &mut String, ip: Ip<'_>, tcp: &[u8], packet_length: usize) {
    if tcp.len() < 4 || !ip.is_first() {
        addresses(line, ip);
        line.push_str(if ip.is_first() { ": truncated-tcp" } else { ": tcp" });
        return;
    }
    endpoints(line, ip, tcp);
    if tcp.len() < 14 {
        line.push_str("truncated-tcp");
        return;
    }
    let flags = tcp[13];
    let header_length = i64::from(tcp[12] >> 4) * 4;
    let mut length = ip.total_length() as i64 - ip.header_length() as i64 - header_length;
    for (bit, letter, counts) in [(2, 'S', true), (1, 'F', true), (4, 'R', false), (8, 'P', false)] {
        if flags & bit != 0 {
            line.push(letter);
            length += i64::from(counts);
        }
    }
    if flags & 0x0F == 0 {
        line.push('.');
    }
    let sequence = get32(tcp, 4);
    add!(line, " {sequence}:{}", sequence.wrapping_add(length as u32));
    add!(line, "({length},{packet_length},{})", ip.total_length());
    if flags & 0x10 != 0 {
        add!(line, " ack {}", get32(tcp, 8));
    }
    if tcp.len() < 16 {
        line.push_str("truncated-tcp");
        return;
    }
    add!(line, " win {}", get16(tcp, 14));
}

fn udp(line: &mut String, ip: Ip<'_>, udp: &[u8]) {
    if udp.len() < 4 || !ip.is_first() {
        addresses(line, ip);
        line.push_str(if ip.is_first() { ": truncated-udp" } else { ": udp" });
        return;
    }
    endpoints(line, ip, udp);
    if udp.len() < 8 {
        line.push_str("truncated-udp");
    } else {
        add!(line, "udp {}", get16(udp, 4));
    }
}

/// Says what an unreachable message says. `false`: it is too short for that.
fn unreachable(line: &mut String, icmp: &[u8]) -> bool {
    let code = match names::icmp_code_name(3, icmp[1]) {
        Some(name) => name.to_owned(),
        None => format!("code {}", icmp[1]),
    };
    let Some(quoted) = icmp.get(8..).filter(|quoted| quoted.len() >= header::LENGTH).map(Ip) else {
        add!(line, "icmp unreachable {code} ");
        return false;
    };
    add!(line, "icmp {} unreachable {code}", quoted.destination());
    let protocol = names::protocol_name(quoted.protocol());
    match icmp[1] {
        2 => match protocol {
            Some(name) => add!(line, " {name}"),
            None => add!(line, " {}", quoted.protocol()),
        },
        3 => {
            match protocol {
                Some(name) => add!(line, " {name}"),
                None => add!(line, " protocol {}", quoted.protocol()),
            }
            let ports = quoted.0.get(quoted.header_length()..).unwrap_or_default();
            if ports.len() < 4 {
                return false;
            }
            add!(line, "/{}", get16(ports, 2));
        }
        4 if get16(icmp, 6) != 0 => add!(line, " (mtu {})", get16(icmp, 6)),
        _ => (),
    }
    true
}

fn icmp(line: &mut String, ip: Ip<'_>, icmp: &[u8], swap: bool) {
    addresses(line, ip);
    line.push_str(": ");
    if !ip.is_first() {
        line.push_str("icmp");
        return;
    }
    if icmp.len() < 2 {
        line.push_str("truncated-icmp");
        return;
    }
    let (kind, code) = (icmp[0], icmp[1]);
    let whole = match kind {
        0 | 8 => {
            line.push_str(if kind == 0 { "icmp echo-reply " } else { "icmp echo " });
            let order = |value: u16| if swap { value } else { value.swap_bytes() };
            if icmp.len() >= 8 {
                add!(line, "({}, {})", order(get16(icmp, 4)), order(get16(icmp, 6)));
            }
            icmp.len() >= 8
        }
        3 => unreachable(line, icmp),
        _ => {
            match names::icmp_type_name(kind) {
                Some(name) => add!(line, "icmp {name}"),
                None => add!(line, "icmp type {kind}"),
            }
            match names::icmp_code_name(kind, code) {
                Some(name) => add!(line, " {name}"),
                None if code != 0 => add!(line, " code {code}"),
                None => (),
            }
            true
        }
    };
    if !whole {
        line.push_str("truncated-icmp");
    }
}

/// Bytes in groups, on lines of their own.
fn show_bytes(line: &mut String, bytes: &[u8], contents: Contents) {
    let (row, group) = if contents == Contents::Hex { (24, 4) } else { (48, 8) };
    for (count, byte) in bytes.iter().enumerate() {
        if count % row == 0 {
            line.push_str("\n  ");
        } else if count % group == 0 {
            line.push(' ');
        }
        match contents {
            Contents::Hex => add!(line, "{byte:02x}"),
            _ if (32..127).contains(byte) => line.push(char::from(*byte)),
            _ => line.push('.'),
        }
    }
}

impl IpPrint {
    fn head(&self, packet: &Packet) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            add!(line, "{}: ", self.label);
        }
        if self.timestamp {
            add!(line, "{}: ", write_time(packet.timestamp()));
        }
        if self.aggregate {
            add!(line, "#{}", packet.anno_u32(place::AGGREGATE));
        }
        if self.paint {
            add!(line, "{}{}", if self.aggregate { "." } else { "paint " }, packet.paint());
        }
        if self.aggregate || self.paint {
            line.push_str(": ");
        }
        line
    }

    fn line(&self, packet: &Packet) -> String {
        let mut line = self.head(packet);
        let Some(ip) = Ip::of(packet) else {
            line.push_str("truncated-ip");
            return line;
        };
        let payload_length = ip.total_length() as i64 - ip.header_length() as i64;
        let transport = packet.transport().unwrap_or_default();
        let shown = transport.len().min(usize::try_from(payload_length).unwrap_or(0));
        let shown = &transport[..shown];
        for (wanted, name, value) in [
            (self.id, "id", usize::from(ip.id())),
            (self.ttl, "ttl", usize::from(ip.ttl())),
            (self.tos, "tos", usize::from(ip.tos())),
            (self.length, "length", ip.total_length()),
        ] {
            if wanted {
                add!(line, "{name} {value} ");
            }
        }
        match ip.protocol() {
            header::TCP => tcp(&mut line, ip, shown, packet.len()),
            header::UDP => udp(&mut line, ip, shown),
            header::ICMP => icmp(&mut line, ip, shown, self.swap),
            protocol => {
                addresses(&mut line, ip);
                add!(line, ": ip-proto-{protocol}");
            }
        }
        if ip.is_fragment() {
            let more = if ip.fragment() & header::MF != 0 { "+" } else { "" };
            let offset = (ip.fragment() & header::OFFSET) * 8;
            add!(line, " (frag {}:{payload_length}@{offset}{more})", ip.id());
        }
        if self.contents != Contents::None {
            let bytes = self.bytes(packet, ip, transport);
            let count = self.limit.map_or(bytes.len(), |limit| limit.min(bytes.len()));
            show_bytes(&mut line, &bytes[..count], self.contents);
        }
        line
    }

    /// The bytes to show.
    fn bytes<'p>(&self, packet: &'p Packet, ip: Ip<'_>, transport: &'p [u8]) -> &'p [u8] {
        if !self.payload {
            return packet.data();
        }
        let skip = match ip.protocol() {
            header::TCP if ip.is_first() => transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4),
            header::UDP if ip.is_first() => 8,
            _ => 0,
        };
        transport.get(skip..).unwrap_or_default()
    }
}

impl Element for IpPrint {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let Some(name) = &self.file_name else { return true };
        if !at.capabilities().files {
            errors.error(&format!("{name}: Operation not permitted"));
            return false;
        }
        match File::create(name) {
            Ok(file) => {
                *self.file.borrow_mut() = Some(file);
                true
            }
            Err(error) => {
                errors.error(&format!("{name}: {error}"));
                false
            }
        }
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if !self.active.get() || packet.network_place().is_none() {
            return Some(packet);
        }
        let line = self.line(&packet);
        if self.file_name.is_none() {
            at.chatter(&line);
        } else if let Some(file) = &mut *self.file.borrow_mut() {
            // A full disk costs lines, not packets.
            let _ = writeln!(file, "{line}");
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.flag("active", |this: &Self| &this.active).calm = true;
    }
    fn cleanup(&self, _: At<'_>) {
        *self.file.borrow_mut() = None;
    }
}
