//! Connections, as stateful rules make them, in a list.

use crate::places::{Network, Part, Places, word};

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

/// The part of a packet that connections see.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) flow: Option<Flow>,
    pub(crate) is_error: bool,
    flags: Option<u8>,
}

impl Seen {
    pub(crate) fn of(frame: &[u8], places: &Places) -> Self {
        let flags = places.at(Part::Tcp).map(|at| frame[at + 13]);
        let icmp = places.at(Part::Icmp).filter(|at| matches!(frame[*at], 3 | 4 | 5 | 11 | 12));
        let error = icmp.or(places.at(Part::Icmp6).filter(|at| frame[*at] < 128));
        let Some(ip) = &places.ip else { return Self { flow: None, is_error: false, flags } };
        let mut flow = flow(frame, ip, !ip.is_fragment);
        if let Some(at) = error.filter(|_| !ip.is_fragment)
            && let Some(quoted) = quoted(&frame[at + 8..ip.end])
        {
            flow = quoted.reversed();
        }
        Self { flow: Some(flow), is_error: error.is_some(), flags }
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
    let (payload, protocol) = match is_v6 {
        true => (40, *quote.get(6)?),
        false => (usize::from(quote[0] & 15) * 4, *quote.get(9)?),
    };
    quote.get(payload..payload + 8)?;
    let ip = Network { is_v6, at: 0, payload, end: quote.len(), protocol, ..Network::default() };
    Some(flow(quote, &ip, true))
}

/// A connection.
#[derive(Clone, Debug)]
struct Connection {
    /// As its first packet.
    flow: Flow,
    rules: Vec<u64>,
    /// TCP flags seen of each side; ACK for a packet without.
    seen: [u8; 2],
    last: u64,
    timeout: u64,
}

impl Connection {
    fn note(&mut self, side: usize, flags: Option<u8>) {
        self.seen[side] |= flags.unwrap_or(0x10);
        let [one, other] = self.seen;
        let is_open = match flags {
            // A reset ends it at once, and so does a FIN of both sides.
            Some(_) => (one | other) & 4 == 0 && one & other & 1 == 0 && one & other & 0x10 != 0,
            None => one != 0 && other != 0,
        };
        self.timeout = match self.flow.protocol {
            6 if is_open => 14_400,
            6 => 120,
            _ => 600,
        };
    }
}

/// All connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

impl Connections {
    fn find(&self, flow: &Flow) -> Option<usize> {
        self.0.iter().position(|known| known.flow == *flow || known.flow == flow.reversed())
    }

    /// The rules of a packet's connection.
    pub(crate) fn meet(&mut self, packet: &Seen, live: &[u64], now: u64) -> Option<Vec<u64>> {
        let flow = packet.flow.as_ref()?;
        let place = self.find(flow)?;
        let known = &mut self.0[place];
        known.rules.retain(|rule| live.contains(rule));
        if now >= known.last + known.timeout || known.rules.is_empty() {
            self.0.remove(place);
            return None;
        }
        known.last = now;
        if !packet.is_error {
            known.note(usize::from(known.flow != *flow), packet.flags);
        }
        Some(known.rules.clone())
    }

    /// A stateful rule means a packet: its connection begins, or the rule joins it. At most four rules have room.
    pub(crate) fn begin(&mut self, packet: &Seen, rule: u64, live: &[u64], now: u64) -> Option<Vec<u64>> {
        let flow = packet.flow.as_ref().filter(|_| !packet.is_error)?;
        let place = self.find(flow).unwrap_or_else(|| {
            let mut fresh =
                Connection { flow: flow.clone(), rules: Vec::new(), seen: [0; 2], last: now, timeout: 0 };
            fresh.note(0, packet.flags);
            self.0.push(fresh);
            self.0.len() - 1
        });
        let known = &mut self.0[place];
        known.rules.retain(|rule| live.contains(rule));
        if !known.rules.contains(&rule) && known.rules.len() < 4 {
            known.rules.push(rule);
        }
        Some(known.rules.clone())
    }

    /// Whether it is not certain at this time, to some seconds, whether a connection has ended.
    pub(crate) fn is_about_to_end(&self, now: u64) -> bool {
        self.0.iter().any(|known| {
            let (end, few) = (known.last + known.timeout, 2 + known.timeout / 50);
            (end - few.min(end)..end + few).contains(&now)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
