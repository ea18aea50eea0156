//! A frame's headers, found byte by byte from the RFCs, for the oracle alone.

/// A header, or a message with fields of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Frame,
    Ethernet,
    Vlan,
    InnerVlan,
    Mpls,
    Pppoe,
    Arp,
    Ip,
    Ip6,
    Icmp,
    IcmpEcho,
    IcmpMtu,
    Icmp6,
    Icmp6Echo,
    Icmp6Mtu,
    Udp,
    Tcp,
    Gre,
    Vxlan,
    Geneve,
    Gtpu,
    Srv6,
}

/// Where the headers of a frame are, as it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    found: Vec<(Part, usize)>,
    /// The EtherType behind tags and labels; 0 where there is none.
    pub(crate) network: u16,
    pub(crate) ip: Option<Network>,
    /// Where the PPPoE session's header is.
    pub(crate) pppoe: Option<usize>,
}

/// An IP header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    pub(crate) is_v6: bool,
    pub(crate) at: usize,
    /// The first byte behind the header and its extensions.
    pub(crate) payload: usize,
    /// The packet's end.
    pub(crate) end: usize,
    pub(crate) protocol: u8,
    /// Numbers of the extension headers, and of what follows them.
    pub(crate) extensions: Vec<u8>,
    pub(crate) is_fragment: bool,
    pub(crate) is_later: bool,
    /// The number that all fragments of a packet have in common.
    pub(crate) identification: u32,
    pub(crate) is_authenticated: bool,
    /// So many extension headers that what follows them was not looked for.
    pub(crate) is_hidden: bool,
    /// Whether transport checksums cover the address fields.
    pub(crate) covers: (bool, bool),
    /// Where the first segment routing header is (RFC 8754, section 2).
    pub(crate) segments: Option<usize>,
    /// The end of TCP's header, where it has one.
    pub(crate) tcp_end: usize,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}

impl Places {
    pub(crate) fn at(&self, part: Part) -> Option<usize> {
        self.found.iter().find(|(known, _)| *known == part).map(|(_, at)| *at)
    }

    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut places = Self { found: vec![(Part::Frame, 0)], ..Self::default() };
        if frame.len() < 14 {
            return places;
        }
        places.found.push((Part::Ethernet, 0));
        places.network = ethertype(word(frame, 12));
        let Some((next, at, end, parts)) = link(frame) else { return places };
        places.pppoe = parts.iter().find(|(part, _)| *part == Part::Pppoe).map(|(_, at)| *at);
        places.found.extend(parts);
        places.network = next;
        if next == 0x0806 && frame.len() >= at + 28 {
            places.found.push((Part::Arp, at));
        }
        let ip = match next {
            0x0800 => ipv4(frame, at, end),
            0x86dd => ipv6(frame, at, end),
            _ => None,
        };
        if let Some(mut ip) = ip {
            places.found.push((if ip.is_v6 { Part::Ip6 } else { Part::Ip }, at));
            places.found.extend(ip.segments.map(|at| (Part::Srv6, at)));
            if !ip.is_later {
                places.transport(frame, &mut ip);
            }
            places.ip = Some(ip);
        }
        places
    }

    fn transport(&mut self, frame: &[u8], ip: &mut Network) {
        let (at, length) = (ip.payload, ip.end - ip.payload);
        match ip.protocol {
            6 if length >= 20 => {
                let header = usize::from(frame[at + 12] >> 4) * 4;
                if (20..=length).contains(&header) {
                    self.found.push((Part::Tcp, at));
                    ip.tcp_end = at + header;
                }
            }
            17 if length >= 8 => {
                self.found.push((Part::Udp, at));
                let tunnel = match word(frame, at + 2) {
                    4789 => Some(Part::Vxlan),
                    6081 => Some(Part::Geneve),
                    2152 => Some(Part::Gtpu),
                    _ => None,
                };
                self.found.extend(tunnel.filter(|_| length >= 16).map(|tunnel| (tunnel, at + 8)));
            }
            1 if !ip.is_v6 && length >= 8 => {
                self.found.push((Part::Icmp, at));
                match (frame[at], frame[at + 1]) {
                    (0 | 8 | 13..=16, _) => self.found.push((Part::IcmpEcho, at)),
                    (3, 4) => self.found.push((Part::IcmpMtu, at)),
                    _ => {}
                }
            }
            58 if ip.is_v6 && length >= 8 => {
                self.found.push((Part::Icmp6, at));
                match frame[at] {
                    128 | 129 => self.found.push((Part::Icmp6Echo, at)),
                    2 => self.found.push((Part::Icmp6Mtu, at)),
                    _ => {}
                }
            }
            47 if length >= 4 => self.found.push((Part::Gre, at)),
            _ => {}
        }
    }

    /// The bytes that a header carries.
    pub(crate) fn payload(&self, frame: &[u8], part: Part) -> Option<std::ops::Range<usize>> {
        let ip = self.ip.as_ref()?;
        let at = self.at(part)?;
        let start = match part {
            Part::Ip | Part::Ip6 => ip.payload,
            Part::Tcp => ip.tcp_end,
            _ => at + 8,
        };
        let mut end = ip.end;
        if part == Part::Udp {
            // The length field counts the header (RFC 768); one that cannot be right says nothing.
            let stated = at + usize::from(word(frame, at + 4));
            if (start..=end).contains(&stated) {
                end = stated;
            }
        }
        Some(start..end)
    }

    /// The options of a TCP header: kind, and the place of the bytes behind kind and length.
    pub(crate) fn tcp_options(&self, frame: &[u8]) -> (Vec<(u8, std::ops::Range<usize>)>, bool) {
        let (Some(at), Some(ip)) = (self.at(Part::Tcp), &self.ip) else { return (Vec::new(), true) };
        let (mut at, end, mut options) = (at + 20, ip.tcp_end, Vec::new());
        while at < end {
            match frame[at] {
                0 => break,
                1 => at += 1,
                kind => {
                    let length = if at + 1 < end { usize::from(frame[at + 1]) } else { 0 };
                    if length < 2 || at + length > end {
                        return (options, false);
                    }
                    options.push((kind, at + 2..at + length));
                    at += length;
                }
            }
        }
        (options, true)
    }
}

/// The EtherType of a number: lower ones are lengths, and 0xffff is kept back for none (IEEE 802.3, clause 3.2.6).
fn ethertype(number: u16) -> u16 {
    if (0x600..0xffff).contains(&number) { number } else { 0 }
}

/// The network protocol, its place, its limit, and the headers before it; `None` where they are not well-formed.
#[expect(clippy::type_complexity, reason = "the answer of one function to one other")]
fn link(frame: &[u8]) -> Option<(u16, usize, usize, Vec<(Part, usize)>)> {
    let (mut next, mut at, mut parts, mut tags) = (word(frame, 12), 14, Vec::new(), 0);
    while [0x8100, 0x88a8, 0x9100].contains(&next) {
        if tags == 8 || frame.len() < at + 4 {
            return None;
        }
        match tags {
            0 => parts.push((Part::Vlan, at)),
            1 => parts.push((Part::InnerVlan, at)),
            _ => {}
        }
        next = word(frame, at + 2);
        (at, tags) = (at + 4, tags + 1);
    }
    match next {
        0x8847 | 0x8848 => {
            parts.push((Part::Mpls, at));
            loop {
                if tags == 8 || frame.len() < at + 4 {
                    return None;
                }
                let is_last = frame[at + 2] & 1 == 1;
                (at, tags) = (at + 4, tags + 1);
                if is_last {
                    break;
                }
            }
            let next = match frame.get(at).map(|byte| byte >> 4) {
                Some(4) => 0x0800,
                Some(6) => 0x86dd,
                _ => 0,
            };
            Some((next, at, frame.len(), parts))
        }
        0x8864 => {
            if frame.len() < at + 6 || frame[at] != 0x11 || frame[at + 1] != 0 {
                return None;
            }
            parts.push((Part::Pppoe, at));
            let end = at + 6 + usize::from(word(frame, at + 4));
            if end > frame.len() {
                return None;
            }
            let (number, size) = match &frame[at + 6..end] {
                [low, ..] if low & 1 == 1 => (u16::from(*low), 1),
                [high, low, ..] => (u16::from(*high) << 8 | u16::from(*low), 2),
                _ => return None,
            };
            let next = match number {
                0x21 => 0x0800,
                0x57 => 0x86dd,
                _ => 0,
            };
            Some((next, at + 6 + size, end, parts))
        }
        0..=1500 if at + usize::from(next) > frame.len() => None,
        _ => Some((ethertype(next), at, frame.len(), parts)),
    }
}

fn ipv4(frame: &[u8], at: usize, limit: usize) -> Option<Network> {
    if limit < at + 20 || frame[at] >> 4 != 4 {
        return None;
    }
    let header = usize::from(frame[at] & 15) * 4;
    let total = usize::from(word(frame, at + 2));
    if header < 20 || total < header || at + total > limit {
        return None;
    }
    let fragment = word(frame, at + 6);
    let protocol = frame[at + 9];
    Some(Network {
        is_v6: false,
        at,
        payload: at + header,
        end: at + total,
        protocol,
        extensions: Vec::new(),
        is_fragment: fragment & 0x3fff != 0,
        is_later: fragment & 0x1fff != 0,
        identification: word(frame, at + 4).into(),
        is_authenticated: protocol == 51,
        is_hidden: false,
        covers: (true, !has_source_route(&frame[at + 20..at + header])),
        segments: None,
        tcp_end: 0,
    })
}

/// Whether IPv4 options have a source route with stops left (RFC 791, section 3.1).
fn has_source_route(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let length = options.get(at + 1).map_or(0, |length| usize::from(*length));
        if length < 2 || at + length > options.len() {
            return false;
        }
        if [131, 137].contains(&options[at]) {
            return length >= 3 && usize::from(options[at + 2]) <= length;
        }
        at += length;
    }
    false
}

fn ipv6(frame: &[u8], at: usize, limit: usize) -> Option<Network> {
    if limit < at + 40 || frame[at] >> 4 != 6 {
        return None;
    }
    let end = at + 40 + usize::from(word(frame, at + 4));
    if frame[at + 6] == 0 && has_jumbo_length(&frame[at + 40..limit]) {
        // A jumbogram is longer than any frame here, and another length beside it is wrong (RFC 2675).
        return None;
    }
    if end > limit {
        return None;
    }
    let mut ip = Network {
        is_v6: true,
        at,
        payload: at + 40,
        end,
        protocol: frame[at + 6],
        extensions: Vec::new(),
        is_fragment: false,
        is_later: false,
        identification: 0,
        is_authenticated: false,
        is_hidden: false,
        covers: (true, true),
        segments: None,
        tcp_end: 0,
    };
    while [0, 43, 44, 51, 60, 135, 139, 140].contains(&ip.protocol) {
        if ip.extensions.len() == 16 {
            ip.is_hidden = true;
            break;
        }
        let rest = &frame[ip.payload..end];
        let size = match (ip.protocol, rest.get(1)) {
            (44, _) | (_, None) => 8,
            (51, Some(length)) => (usize::from(*length) + 2) * 4,
            (_, Some(length)) => (usize::from(*length) + 1) * 8,
        };
        let header = rest.get(..size)?;
        let kind = ip.protocol;
        ip.extensions.push(kind);
        if kind == 43 && header[2] == 4 && ip.segments.is_none() && has_segments(header) {
            ip.segments = Some(ip.payload);
        }
        (ip.protocol, ip.payload) = (header[0], ip.payload + size);
        match kind {
            43 if header[3] > 0 => ip.covers.1 = false,
            51 => ip.is_authenticated = true,
            60 if has_home_address(header) => ip.covers.0 = false,
            44 => {
                // Of several such headers, which no sender writes (RFC 8200, section 4.1), the last counts.
                ip.is_fragment = word(header, 2) & 0xfff9 != 0;
                ip.identification = u32::from(word(header, 4)) << 16 | u32::from(word(header, 6));
                if word(header, 2) >> 3 != 0 {
                    ip.is_later = true;
                    break;
                }
            }
            _ => {}
        }
    }
    ip.extensions.push(ip.protocol);
    ip.is_authenticated |= ip.protocol == 51;
    Some(ip)
}

/// Whether a segment routing header has its list whole, and no more segments left than that has.
fn has_segments(header: &[u8]) -> bool {
    let entries = usize::from(header[4]) + 1;
    8 + 16 * entries <= header.len() && usize::from(header[3]) <= entries
}

/// Options of a hop-by-hop or destination header: type and data.
fn options(header: &[u8]) -> Vec<(u8, &[u8])> {
    let (mut at, mut options) = (2, Vec::new());
    while at < header.len() {
        if header[at] == 0 {
            at += 1;
            continue;
        }
        let Some(length) = header.get(at + 1) else { break };
        let Some(data) = header.get(at + 2..at + 2 + usize::from(*length)) else { break };
        options.push((header[at], data));
        at += 2 + data.len();
    }
    options
}

fn has_jumbo_length(rest: &[u8]) -> bool {
    let Some(length) = rest.get(1) else { return false };
    let Some(header) = rest.get(..(usize::from(*length) + 1) * 8) else { return false };
    options(header).iter().any(|(kind, data)| *kind == 0xc2 && data.len() == 4)
}

fn has_home_address(header: &[u8]) -> bool {
    options(header).iter().any(|(kind, data)| *kind == 201 && data.len() == 16)
}
