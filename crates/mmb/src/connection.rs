//! Connections: what a stateful rule's first match leaves behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::Encode;

/// Stateful rules that one connection can have.
pub(crate) const RULES: usize = 4;

/// A rule, by its slot and by how often the slot was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleRef {
    /// The slot from 1; 0 stands for none.
    pub(crate) slot: u32,
    /// The slot's use.
    pub(crate) generation: u32,
}

/// Which way a packet of a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// As the packet that made the connection.
    Forward,
    /// Against it.
    Reply,
}

impl Direction {
    /// 0 for forward, 1 for reply.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Progress {
    /// Only one side was seen, or TCP's handshake is not over.
    #[default]
    Opening = 0,
    /// Both sides were seen; in TCP, the handshake was.
    Open = 1,
    /// A FIN or RST was seen.
    Closing = 2,
}

impl Progress {
    /// Its name in listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Closing => "closing",
        }
    }
}

/// A connection, under the canonical key of its packets.
///
/// Where a rule maps it, its answers have another key, under which a second entry leads here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The rules whose first match made it or joined it.
    pub(crate) rules: [RuleRef; RULES],
    /// Its packets' key, in the direction of the first.
    pub(crate) origin: FlowKey,
    /// The same as it leaves, after `map`.
    pub(crate) translated: FlowKey,
    /// Whether this entry is only the way to the one under `origin`.
    pub(crate) is_alias: bool,
    /// How far it is.
    pub(crate) progress: Progress,
    /// TCP flags seen, by direction.
    pub(crate) seen: [u8; 2],
    /// The values of mapped fields beside addresses and ports.
    pub(crate) values: [u32; 2],
    /// The number that is added to sequence numbers of each direction; 0 without `shuffle`.
    pub(crate) shift: [u32; 2],
}

impl Connection {
    /// A connection of this first packet.
    pub(crate) fn new(origin: FlowKey) -> Self {
        Self {
            rules: [RuleRef::default(); RULES],
            origin,
            translated: origin,
            is_alias: false,
            progress: Progress::Opening,
            seen: [0; 2],
            values: [0; 2],
            shift: [0; 2],
        }
    }

    /// The direction of a packet with this flow; `None` if it is not of this connection.
    pub(crate) fn direction(&self, flow: &FlowKey) -> Option<Direction> {
        if *flow == self.origin {
            Some(Direction::Forward)
        } else if *flow == self.translated.reversed() {
            Some(Direction::Reply)
        } else {
            None
        }
    }

    /// The key that a packet of this direction has behind the rewrite.
    pub(crate) fn after(&self, direction: Direction) -> FlowKey {
        match direction {
            Direction::Forward => self.translated,
            Direction::Reply => self.origin.reversed(),
        }
    }

    /// Notes a packet. `tcp` has the flags of a TCP segment.
    pub(crate) fn note(&mut self, direction: Direction, tcp: Option<u8>) {
        self.seen[direction.index()] |= tcp.unwrap_or(flags::ACK);
        let [forward, reply] = self.seen;
        self.progress = match tcp {
            Some(_) if (forward | reply) & flags::RST != 0 || forward & reply & flags::FIN != 0 => {
                Progress::Closing
            }
            // A SYN answered by a SYN, or a connection of which the middle was met.
            Some(_) if forward & reply & flags::ACK != 0 => Progress::Open,
            Some(_) => Progress::Opening,
            None if forward != 0 && reply != 0 => Progress::Open,
            None => Progress::Opening,
        };
    }

    /// Whether the rule is one of this connection's.
    pub(crate) fn has(&self, rule: RuleRef) -> bool {
        self.rules.contains(&rule)
    }

    /// Adds a rule; `false` where there is no room.
    pub(crate) fn join(&mut self, rule: RuleRef, is_live: impl Fn(RuleRef) -> bool) -> bool {
        let free = self.rules.iter_mut().find(|known| known.slot == 0 || !is_live(**known));
        match free {
            Some(free) => {
                *free = rule;
                true
            }
            None => false,
        }
    }
}

/// Time without a packet after which connections end, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// TCP connections whose handshake is over.
    pub(crate) tcp: u64,
    /// TCP connections that open or close.
    pub(crate) tcp_transitory: u64,
    /// UDP, ICMP echoes, and what has no states.
    pub(crate) other: u64,
}

impl Timeouts {
    /// The timeout of a connection.
    pub(crate) fn of(&self, connection: &Connection) -> u64 {
        match (connection.origin.protocol(), connection.progress) {
            (protocol::TCP, Progress::Open) => self.tcp,
            (protocol::TCP, _) => self.tcp_transitory,
            _ => self.other,
        }
    }
}

/// One part of a connection's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sender's address.
    Source,
    /// The receiver's address.
    Destination,
    /// The sender's port.
    SourcePort,
    /// The receiver's port.
    DestinationPort,
    /// An ICMP echo's identifier, which stands for both ports.
    Identifier,
}

impl End {
    /// The part that a field is, by its name; `None` for other fields.
    pub(crate) fn of(field: &str) -> Option<Self> {
        match field {
            "ip-saddr" | "ip6-saddr" => Some(Self::Source),
            "ip-daddr" | "ip6-daddr" => Some(Self::Destination),
            "tcp-sport" | "udp-sport" => Some(Self::SourcePort),
            "tcp-dport" | "udp-dport" => Some(Self::DestinationPort),
            "icmp-id" | "icmp6-id" => Some(Self::Identifier),
            _ => None,
        }
    }
}

/// A key with another value in this part.
pub(crate) fn with(flow: &FlowKey, end: End, value: u128) -> FlowKey {
    let (mut source, mut destination) = (flow.source(), flow.destination());
    let (mut from, mut to) = (flow.source_port(), flow.destination_port());
    let address = match flow.is_v6() {
        true => IpAddr::V6(Ipv6Addr::from_bits(value)),
        false => IpAddr::V4(Ipv4Addr::from_bits(value as u32)),
    };
    match end {
        End::Source => source = address,
        End::Destination => destination = address,
        End::SourcePort => from = value as u16,
        End::DestinationPort => to = value as u16,
        End::Identifier => (from, to) = (value as u16, value as u16),
    }
    FlowKey::new(source, destination, from, to, flow.protocol())
}

impl Encode for Connection {
    const SIZE: usize = RULES * 8 + 40 + 40 + 4 + 16;
    const VERSION: u16 = 1;

    fn encode(&self, to: &mut [u8]) {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        for RuleRef { slot, generation } in self.rules {
            bytes.extend(slot.to_be_bytes());
            bytes.extend(generation.to_be_bytes());
        }
        for word in self.origin.words().into_iter().chain(self.translated.words()) {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([self.is_alias.into(), self.progress as u8, self.seen[0], self.seen[1]]);
        for number in self.values.into_iter().chain(self.shift) {
            bytes.extend(number.to_be_bytes());
        }
        to.copy_from_slice(&bytes);
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let mut rest = from;
        let mut take = |count: usize| {
            let (first, behind) = rest.split_at_checked(count)?;
            rest = behind;
            Some(first.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
        };
        let mut rules = [RuleRef::default(); RULES];
        for rule in &mut rules {
            *rule = RuleRef { slot: take(4)? as u32, generation: take(4)? as u32 };
        }
        let mut keys = [[0u64; 5]; 2];
        for key in &mut keys {
            for word in key.iter_mut() {
                *word = take(8)?;
            }
        }
        let [origin, translated] = [FlowKey::try_from_words(keys[0])?, FlowKey::try_from_words(keys[1])?];
        let is_alias = match take(1)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let progress = match take(1)? {
            0 => Progress::Opening,
            1 => Progress::Open,
            2 => Progress::Closing,
            _ => return None,
        };
        let seen = [take(1)? as u8, take(1)? as u8];
        let values = [take(4)? as u32, take(4)? as u32];
        let shift = [take(4)? as u32, take(4)? as u32];
        Some(Self { rules, origin, translated, is_alias, progress, seen, values, shift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowKey {
        FlowKey::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 40_000, 80, 6)
    }

    #[test]
    fn a_connection_survives_its_bytes() {
        let mut connection = Connection::new(flow());
        connection.translated = with(&flow(), End::Source, 0xcb00_7107);
        connection.rules[1] = RuleRef { slot: 7, generation: 3 };
        connection.shift = [1, u32::MAX];
        connection.note(Direction::Forward, Some(flags::SYN));
        let mut bytes = [0; Connection::SIZE];
        connection.encode(&mut bytes);
        assert_eq!(Connection::decode(&bytes), Some(connection));
        bytes[RULES * 8 + 80] = 2;
        assert_eq!(Connection::decode(&bytes), None);
    }

    #[test]
    fn answers_are_of_the_translated_tuple() {
        let mut connection = Connection::new(flow());
        connection.translated = with(&flow(), End::Source, 0xcb00_7107);
        assert_eq!(connection.direction(&flow()), Some(Direction::Forward));
        assert_eq!(connection.direction(&flow().reversed()), None);
        let answer = connection.translated.reversed();
        assert_eq!(connection.direction(&answer), Some(Direction::Reply));
        assert_eq!(connection.after(Direction::Reply), flow().reversed());
    }

    #[test]
    fn tcp_opens_by_its_handshake_and_closes_by_both_fins_or_a_reset() {
        let mut connection = Connection::new(flow());
        let steps = [
            (Direction::Forward, flags::SYN, Progress::Opening),
            (Direction::Reply, flags::SYN | flags::ACK, Progress::Opening),
            (Direction::Forward, flags::ACK, Progress::Open),
            (Direction::Forward, flags::FIN | flags::ACK, Progress::Open),
            (Direction::Reply, flags::FIN | flags::ACK, Progress::Closing),
        ];
        for (direction, seen, progress) in steps {
            connection.note(direction, Some(seen));
            assert_eq!(connection.progress, progress, "{seen:#x}");
        }
        let mut connection = Connection::new(flow());
        connection.note(Direction::Forward, Some(flags::ACK));
        connection.note(Direction::Reply, Some(flags::ACK));
        assert_eq!(connection.progress, Progress::Open, "met in its middle");
        connection.note(Direction::Reply, Some(flags::RST));
        assert_eq!(connection.progress, Progress::Closing);
    }
}
