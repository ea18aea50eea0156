//! Connections, as stateful rules make them, in a list.

use crate::places::{Network, Part, Places, word};
use crate::rewriting::is_wrong_segment;

/// Addresses, ports and protocol of a packet, or of the packet that an ICMP error quotes, the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) from: (Vec<u8>, u16),
    pub(crate) to: (Vec<u8>, u16),
    pub(crate) protocol: u8,
}

impl Flow {
    pub(crate) fn reversed(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone(), protocol: self.protocol }
    }
}

/// The numbers of a TCP segment (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug)]
struct Segment {
    flags: u8,
    sequence: u32,
    acknowledgment: u32,
    /// Octets of its text.
    len: u32,
    /// Whether its checksum is known to be wrong.
    is_wrong: bool,
    /// Whether it has an MD5 signature (RFC 2385) or an authentication option (RFC 5925).
    is_signed: bool,
}

impl Segment {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 0x10;

    fn of(frame: &[u8], places: &Places) -> Option<Self> {
        let (at, ip) = (places.at(Part::Tcp)?, places.ip.as_ref()?);
        let long = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
        Some(Self {
            flags: frame[at + 13],
            sequence: long(at + 4),
            acknowledgment: long(at + 8),
            len: (ip.end - ip.tcp_end) as u32,
            is_wrong: is_wrong_segment(frame, places),
            is_signed: is_signed(&frame[at + 20..ip.tcp_end]),
        })
    }
    /// Whether it begins or ends something.
    fn is_control(&self) -> bool {
        self.flags & (Self::SYN | Self::FIN | Self::RST) != 0
    }
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn is_signed(options: &[u8]) -> bool {
    match options {
        [] | [0, ..] | [_] => false,
        [1, rest @ ..] => is_signed(rest),
        [kind, length, ..] => match options.get(usize::from(*length)..) {
            Some(_) if *length < 2 => false,
            Some(rest) => matches!(kind, 19 | 29) || is_signed(rest),
            None => false,
        },
    }
}

/// The part of a packet that connections see.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) flow: Option<Flow>,
    pub(crate) is_error: bool,
    segment: Option<Segment>,
    is_later: bool,
    /// Addresses, protocol and number of its packet's fragments; `None` for a whole packet.
    fragment: Option<(Flow, u32)>,
}

impl Seen {
    pub(crate) fn of(frame: &[u8], places: &Places) -> Self {
        let segment = Segment::of(frame, places);
        let icmp = places.at(Part::Icmp).filter(|at| matches!(frame[*at], 3 | 4 | 5 | 11 | 12));
        let error = icmp.or(places.at(Part::Icmp6).filter(|at| frame[*at] < 128));
        let is_error = error.is_some();
        let Some(ip) = &places.ip else {
            return Self { flow: None, is_error: false, segment, is_later: false, fragment: None };
        };
        let mut flow = flow(frame, ip, !ip.is_later);
        if let Some(at) = error.filter(|_| !ip.is_fragment)
            && let Some(quoted) = quoted(&frame[at + 8..ip.end])
        {
            flow = quoted.reversed();
        }
        let fragment = ip.is_fragment.then(|| {
            // RFC 791, section 3.2, names the protocol, RFC 8200, section 4.5, does not.
            let protocol = if ip.is_v6 { 0 } else { ip.protocol };
            let (from, to) = ((flow.from.0.clone(), 0), (flow.to.0.clone(), 0));
            (Flow { from, to, protocol }, ip.identification)
        });
        Self { flow: Some(flow), is_error, segment, is_later: ip.is_later, fragment }
    }
}

fn flow(frame: &[u8], ip: &Network, has_ports: bool) -> Flow {
    let (size, at) = if ip.is_v6 { (16, ip.at + 8) } else { (4, ip.at + 12) };
    let rest = &frame[ip.payload..ip.end];
    let ports = match (ip.protocol, rest) {
        _ if !has_ports => (0, 0),
        (6 | 17 | 33 | 132 | 136, [_, _, _, _, ..]) => (word(rest, 0), word(rest, 2)),
        // An echo's identifier stands for both.
        (1, [0 | 8, _, _, _, _, _, ..]) | (58, [128 | 129, _, _, _, _, _, ..]) => {
            (word(rest, 4), word(rest, 4))
        }
        _ => (0, 0),
    };
    let address = |at: usize| frame[at..at + size].to_vec();
    Flow { from: (address(at), ports.0), to: (address(at + size), ports.1), protocol: ip.protocol }
}

/// The flow of a quoted packet, of which the headers are whole.
fn quoted(quote: &[u8]) -> Option<Flow> {
    let is_v6 = quote.first()? >> 4 == 6;
    let (payload, protocol) = match quote[0] {
        0x60..0x70 => (40, *quote.get(6)?),
        0x45..0x50 => (usize::from(quote[0] & 15) * 4, *quote.get(9)?),
        _ => return None,
    };
    quote.get(payload..payload + 8)?;
    let ip = Network { is_v6, at: 0, payload, end: quote.len(), protocol, ..Network::default() };
    Some(flow(quote, &ip, true))
}

/// One side of a TCP connection, as far as its segments were seen.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// SND.NXT: behind all that it sent.
    next: Option<u32>,
    /// RCV.NXT: what it acknowledged last, and expects.
    expects: Option<u32>,
}

/// A connection.
#[derive(Clone, Debug)]
struct Connection {
    /// As its first packet.
    flow: Flow,
    rules: Vec<u64>,
    /// Flags seen of each side; ACK for a packet without.
    seen: [u8; 2],
    sides: [Side; 2],
    is_open: bool,
    /// Whether its SYN was signed, if one was seen.
    is_signed: Option<bool>,
    /// A reset was taken, or both sides are done.
    is_over: bool,
    last: u64,
    timeout: u64,
}

impl Connection {
    fn note(&mut self, side: usize, segment: Option<Segment>) {
        // RFC 2385 and RFC 5925: the ends of a connection drop segments that are signed where its own are not.
        let is_foreign = |one: &Segment| self.is_signed.is_some_and(|is_signed| is_signed != one.is_signed);
        match segment {
            Some(segment) if segment.is_control() && (segment.is_wrong || is_foreign(&segment)) => return,
            Some(segment) if segment.has(Segment::RST) && !self.takes_reset(side, &segment) => return,
            Some(segment) => {
                self.advance(side, &segment);
                self.seen[side] |= segment.flags;
                let [one, other] = self.seen;
                self.is_over = (one | other) & Segment::RST != 0 || one & other & Segment::FIN != 0;
                self.is_open = !self.is_over && one & other & Segment::ACK != 0;
            }
            None => {
                self.seen[side] |= Segment::ACK;
                self.is_open = self.seen.iter().all(|seen| *seen != 0);
            }
        }
        self.set_timeout();
    }

    fn set_timeout(&mut self) {
        self.timeout = match self.flow.protocol {
            6 if self.is_open => 14_400,
            6 => 120,
            _ => 600,
        };
    }

    /// Whether the receiver takes a RST, as far as can be seen.
    ///
    /// RFC 5961, section 3.2: it resets if the number is exactly RCV.NXT. Others it challenges or drops. RCV.NXT itself is
    /// not seen: it lies between the last acknowledgment and what was sent.
    ///
    /// RFC 9293, section 3.10.7.3: before a SYN was answered, a RST must acknowledge it.
    fn takes_reset(&self, side: usize, segment: &Segment) -> bool {
        let (expected, sent) = (self.sides[1 - side].expects, self.sides[side].next);
        let (Some(first), Some(last)) = (expected.or(sent), sent.or(expected)) else {
            let asked = self.sides[1 - side].next;
            return segment.has(Segment::ACK) && asked == Some(segment.acknowledgment);
        };
        let distance = |to: u32| i64::from(to.wrapping_sub(first) as i32);
        let behind = distance(segment.sequence);
        behind == 0 || behind == distance(last) || (0..=distance(last)).contains(&behind)
    }

    fn advance(&mut self, side: usize, segment: &Segment) {
        if segment.has(Segment::RST) {
            return;
        }
        // RFC 9293, section 3.4: all numbers are compared modulo 2^32.
        let newer =
            |known: Option<u32>, now: u32| known.is_none_or(|known| (now.wrapping_sub(known) as i32) > 0);
        let control = [Segment::SYN, Segment::FIN].iter().filter(|flag| segment.has(**flag)).count() as u32;
        let end = segment.sequence.wrapping_add(segment.len + control);
        // An initial number has nothing to do with those before. RFC 5961, section 4.2: in an open connection a SYN is
        // only challenged.
        let is_initial = segment.has(Segment::SYN) && !self.is_open;
        if is_initial {
            self.is_signed.get_or_insert(segment.is_signed);
        }
        let is_own = is_initial || !segment.has(Segment::SYN);
        if is_initial || is_own && newer(self.sides[side].next, end) {
            self.sides[side].next = Some(end);
        }
        if segment.has(Segment::ACK)
            && (is_initial || newer(self.sides[side].expects, segment.acknowledgment))
        {
            self.sides[side].expects = Some(segment.acknowledgment);
        }
    }
}

/// Seconds for which the first fragment of a packet is known (RFC 8200, section 4.5).
const FRAGMENTS: u64 = 60;

/// All connections, and the first fragments of packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    all: Vec<Connection>,
    /// Addresses, protocol and number of fragments, the flow of the first, and when one was seen last.
    fragments: Vec<((Flow, u32), Flow, u64)>,
}

impl Connections {
    fn find(&self, flow: &Flow) -> Option<usize> {
        self.all.iter().position(|known| known.flow == *flow || known.flow == flow.reversed())
    }

    /// A fragment's flow is that of its packet, if the first fragment is known.
    pub(crate) fn assign(&mut self, packet: &mut Seen, now: u64) {
        let Some(fragment) = &packet.fragment else { return };
        self.fragments.retain(|(.., last)| now < last + FRAGMENTS);
        let known = self.fragments.iter_mut().find(|(known, ..)| known == fragment);
        match (known, packet.is_later) {
            (Some((_, flow, last)), true) => {
                *last = now;
                packet.flow = Some(flow.clone());
            }
            (None, true) => packet.flow = None,
            (Some(known), false) => {
                *known = (fragment.clone(), packet.flow.clone().expect("an IP packet's flow"), now);
            }
            (None, false) => {
                let flow = packet.flow.clone().expect("an IP packet's flow");
                self.fragments.push((fragment.clone(), flow, now));
            }
        }
    }

    /// The rules of a packet's connection.
    pub(crate) fn meet(&mut self, packet: &Seen, live: &[u64], now: u64) -> Option<Vec<u64>> {
        let flow = packet.flow.as_ref()?;
        let place = self.find(flow)?;
        let known = &mut self.all[place];
        known.rules.retain(|rule| live.contains(rule));
        // RFC 9293, section 3.6.1: a SYN may open a connection anew that is closing.
        let flags = Segment::SYN | Segment::ACK | Segment::RST | Segment::FIN;
        let begins =
            packet.segment.is_some_and(|segment| segment.flags & flags == Segment::SYN && !segment.is_wrong);
        let is_other = known.is_over && begins && !packet.is_error;
        if now >= known.last + known.timeout || known.rules.is_empty() || is_other {
            self.all.remove(place);
            return None;
        }
        known.last = now;
        if !packet.is_error && !packet.is_later {
            known.note(usize::from(known.flow != *flow), packet.segment);
        }
        Some(known.rules.clone())
    }

    /// A stateful rule means a packet: its connection begins, or the rule joins it. At most four rules have room.
    ///
    /// A later fragment begins nothing, since what its packet's first fragment said is not in it.
    pub(crate) fn begin(&mut self, packet: &Seen, rule: u64, live: &[u64], now: u64) -> Option<Vec<u64>> {
        let flow = packet.flow.as_ref().filter(|_| !packet.is_error && !packet.is_later)?;
        let place = self.find(flow).unwrap_or_else(|| {
            let mut fresh = Connection {
                flow: flow.clone(),
                rules: Vec::new(),
                seen: [0; 2],
                sides: [Side::default(); 2],
                is_open: false,
                is_signed: None,
                is_over: false,
                last: now,
                timeout: 0,
            };
            fresh.set_timeout();
            fresh.note(0, packet.segment);
            self.all.push(fresh);
            self.all.len() - 1
        });
        let known = &mut self.all[place];
        known.rules.retain(|rule| live.contains(rule));
        if !known.rules.contains(&rule) && known.rules.len() < 4 {
            known.rules.push(rule);
        }
        Some(known.rules.clone())
    }

    /// Whether it is not certain at this time, to some seconds, whether a connection has ended.
    pub(crate) fn is_about_to_end(&self, now: u64) -> bool {
        let ends = self.all.iter().map(|known| (known.last, known.timeout));
        let ends = ends.chain(self.fragments.iter().map(|(.., last)| (*last, FRAGMENTS)));
        ends.into_iter().any(|(last, timeout)| {
            let (end, few) = (last + timeout, 2 + timeout / 50);
            (end - few.min(end)..end + few).contains(&now)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
