//! Sessions, mappings and subscribers: what is known of them, and the states of TCP.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, MacAddress};

use super::spec::{Endpoint, Transport};

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
}

/// The state of a session (RFC 7857, section 2; RFC 6146, section 3.5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// UDP or an ICMP query.
    Plain = 0,
    /// The inside sent the SYN.
    OpenedInside = 1,
    /// The outside sent the SYN, and the inside answered it.
    OpenedOutside = 2,
    Established = 3,
    /// The inside sent a FIN.
    ClosedInside = 4,
    /// The outside sent a FIN.
    ClosedOutside = 5,
    /// Both sent a FIN. A SYN from outside changes nothing before the inside has answered it.
    Closed = 6,
    /// A RST came; a segment without SYN establishes the connection again.
    Reset = 7,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::OpenedInside,
        Self::OpenedOutside,
        Self::Established,
        Self::ClosedInside,
        Self::ClosedOutside,
        Self::Closed,
        Self::Reset,
    ];

    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "active",
            Self::OpenedInside | Self::OpenedOutside => "opening",
            Self::Established => "established",
            Self::ClosedInside | Self::ClosedOutside => "closing",
            Self::Closed => "closed",
            Self::Reset => "reset",
        }
    }

    /// The state after a segment with these flags.
    pub(super) fn after(self, seen: u8, direction: Direction) -> Self {
        let inside = direction == Direction::Out;
        if self == Self::Plain {
            return self;
        }
        if seen & flags::RST != 0 {
            return match self {
                // A connection that was never open is over.
                Self::OpenedInside | Self::OpenedOutside | Self::Established => Self::Reset,
                Self::ClosedInside | Self::ClosedOutside => Self::Reset,
                other => other,
            };
        }
        if seen & flags::SYN != 0 {
            return match (self, inside) {
                (Self::OpenedInside, false) | (Self::OpenedOutside, false) => Self::Established,
                // A connection on the same ports. Its SYN from outside came before, by the mapping alone.
                (Self::Closed | Self::Reset, true) if seen & flags::ACK != 0 => Self::OpenedOutside,
                (Self::Closed | Self::Reset, true) => Self::OpenedInside,
                (other, _) => other,
            };
        }
        if seen & flags::FIN != 0 {
            return match (self, inside) {
                (Self::OpenedInside | Self::Established | Self::Reset, true) => Self::ClosedInside,
                (Self::OpenedOutside | Self::Established | Self::Reset, false) => Self::ClosedOutside,
                (Self::OpenedOutside, true) => Self::ClosedInside,
                (Self::OpenedInside, false) => Self::ClosedOutside,
                (Self::ClosedInside, false) | (Self::ClosedOutside, true) => Self::Closed,
                (other, _) => other,
            };
        }
        match (self, inside) {
            (Self::OpenedOutside, false) | (Self::Reset, _) => Self::Established,
            (other, _) => other,
        }
    }

    /// Whether its segments without SYN, FIN and RST need no look at the state.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Self::Plain | Self::Established)
    }

    /// Whether the session's time is the short one of connections that open or close.
    pub(super) fn is_transitory(self) -> bool {
        matches!(self, Self::OpenedInside | Self::OpenedOutside | Self::Closed | Self::Reset)
    }
}

/// A session between a host inside and a remote endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) inside: Endpoint,
    /// The remote endpoint, as the host inside addresses it.
    pub(super) seen: Endpoint,
    /// The remote endpoint outside.
    pub(super) remote: Endpoint,
    pub(super) transport: Transport,
    pub(super) phase: Phase,
    /// Both ends are inside.
    pub(super) hairpin: bool,
    pub(super) mapping: u32,
    /// Its lifetime by PCP.
    pub(super) pcp: Option<u32>,
    /// The number of sessions that were made before it.
    pub(super) made: u64,
    /// The time (ns) of the last packet before the session came into this table.
    pub(super) known_at: u64,
    /// The time (ns) at which it came into this table, or changed its phase.
    pub(super) since: u64,
}

impl Session {
    /// The key of packets from inside.
    pub(super) fn out_key(&self) -> FlowKey {
        flow(self.inside, self.seen, self.transport, self.inside.port)
    }
    /// The key of packets from outside, to the mapping's outside endpoint.
    pub(super) fn in_key(&self, external: Endpoint) -> FlowKey {
        flow(self.remote, external, self.transport, external.port)
    }
    /// Whether packets need nothing but another address and port on one side.
    pub(super) fn is_simple(&self) -> bool {
        self.inside.address.is_ipv4()
            && self.seen == self.remote
            && !self.hairpin
            && self.transport != Transport::Icmp
    }
}

/// The key of packets from one endpoint to another; `identifier` is that of an ICMP query.
pub(super) fn flow(from: Endpoint, to: Endpoint, transport: Transport, identifier: u16) -> FlowKey {
    let number = transport.number_with(from.address);
    let (from_port, to_port) = match transport {
        // A query has its identifier in both ports.
        Transport::Icmp => (identifier, identifier),
        _ => (from.port, to.port),
    };
    FlowKey::new(from.address, to.address, from_port, to_port, number)
}

/// A translation of an endpoint inside to one outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) inside: Endpoint,
    /// The index of the outside address.
    pub(super) index: u16,
    pub(super) port: u16,
    pub(super) transport: Transport,
    /// Its subscriber; `None` where it is static.
    pub(super) subscriber: Option<u32>,
    pub(super) sessions: u32,
    /// Its lifetime by PCP.
    pub(super) pcp: Option<u32>,
}

impl Mapping {
    /// Whether it has nothing that keeps it: no session, no lifetime by PCP, and it is not static.
    pub(super) fn is_idle(&self) -> bool {
        self.sessions == 0 && self.pcp.is_none() && self.subscriber.is_some()
    }
}

/// The key under which a mapping is found from inside.
pub(super) fn inside_key(inside: Endpoint, transport: Transport) -> FlowKey {
    let none = unspecified(inside.address);
    FlowKey::new(inside.address, none, inside.port, 0, transport.number())
}

/// The key under which a mapping is found from outside.
pub(super) fn outside_key(address: Ipv4Addr, port: u16, transport: Transport) -> FlowKey {
    FlowKey::new(Ipv4Addr::UNSPECIFIED.into(), address.into(), 0, port, transport.number())
}

/// The key of the sessions of a mapping with one remote address.
pub(super) fn contact_key(remote: IpAddr, address: Ipv4Addr, port: u16, transport: Transport) -> FlowKey {
    FlowKey::new(remote, address.into(), 1, port, transport.number())
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The most blocks of a subscriber.
pub(super) const MOST_BLOCKS: usize = 8;

/// A host or network inside that shares its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscriber {
    pub(super) address: IpAddr,
    /// The index of its outside address.
    pub(super) index: u16,
    pub(super) part: u32,
    pub(super) mappings: [u32; Transport::COUNT],
    pub(super) sessions: u32,
    /// Its blocks, the first `blocks_held`.
    pub(super) blocks: [u32; MOST_BLOCKS],
    pub(super) blocks_held: u8,
    /// Mappings that it may make at once, and when that was counted (ns).
    pub(super) tokens: u32,
    pub(super) filled: u64,
    /// The first of its mappings by PCP.
    pub(super) pcp: Option<u32>,
    /// Its Ethernet address, where it is known.
    pub(super) neighbor: Option<MacAddress>,
}

impl Subscriber {
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks[..usize::from(self.blocks_held)]
    }
    pub(super) fn is_idle(&self) -> bool {
        self.mappings == [0; Transport::COUNT] && self.sessions == 0 && self.blocks_held == 0
    }
}

/// The rewrite that packets of one direction of a session need, in one word.
///
/// | bits | of a packet from inside | of a packet from outside | where the session is to be asked |
/// |---|---|---|---|
/// | 0 to 31 | the session (24 bits), the tag of its host's Ethernet address (8 bits) | the new destination address | the session |
/// | 32 to 47 | the new source port | the new destination port | – |
/// | 48 to 59 | 12 bits of the outside address's index | the number of an Ethernet address | – |
/// | 60 to 63 | kind 1 | kind 2 | kind 3 or 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route(pub(super) u64);

const KIND: u32 = 60;
const OUT: u64 = 1 << KIND;
const IN: u64 = 2 << KIND;
const ASK_OUT: u64 = 3 << KIND;
const ASK_IN: u64 = 4 << KIND;
/// The most numbers of Ethernet addresses, and of outside addresses.
pub(super) const MOST_NEIGHBORS: usize = 1 << 12;

/// The bits of a session in a route for packets from inside: there are at most 2²⁴ sessions.
const SESSION: u32 = (1 << TAG) - 1;
const TAG: u32 = 24;

/// A few bits of an Ethernet address: where they differ, so do the addresses.
///
/// All bytes and their places count, since addresses of one maker are similar. It never is 0, which stands for no
/// address.
#[inline(always)]
pub(super) fn tag_of([a, b, c, d, e, f]: [u8; 6]) -> u8 {
    // Fibonacci hashing (Knuth, volume 3, section 6.4): the top bits depend on all others.
    let mixed = u64::from_be_bytes([0, 0, a, b, c, d, e, f]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 56) as u8).max(1)
}

/// A route, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Another source, of packets whose Ethernet source has this tag.
    Out { index: u16, port: u16, tag: u8 },
    /// Another destination, at this neighbour.
    In { address: u32, port: u16, neighbor: u16 },
    /// The session decides.
    Ask,
}

impl Route {
    pub(super) fn out(index: u16, port: u16, session: u32, tag: u8) -> Self {
        let low = session & SESSION | u32::from(tag) << TAG;
        Self(OUT | u64::from(index & 0xfff) << 48 | u64::from(port) << 32 | u64::from(low))
    }
    pub(super) fn inside(address: Ipv4Addr, port: u16, neighbor: u16) -> Self {
        Self(IN | u64::from(neighbor & 0xfff) << 48 | u64::from(port) << 32 | u64::from(address.to_bits()))
    }
    pub(super) fn ask(direction: Direction, session: u32) -> Self {
        let kind = if direction == Direction::Out { ASK_OUT } else { ASK_IN };
        Self(kind | u64::from(session))
    }
    #[inline(always)]
    pub(super) fn way(self) -> Way {
        let (index, port) = ((self.0 >> 48) as u16 & 0xfff, (self.0 >> 32) as u16);
        match self.0 >> KIND << KIND {
            OUT => Way::Out { index, port, tag: (self.0 as u32 >> TAG) as u8 },
            IN => Way::In { address: self.0 as u32, port, neighbor: index },
            _ => Way::Ask,
        }
    }
    /// The direction, and the session where the route names it.
    pub(super) fn session(self) -> (Direction, Option<u32>) {
        match self.0 >> KIND << KIND {
            OUT => (Direction::Out, Some(self.0 as u32 & SESSION)),
            ASK_OUT => (Direction::Out, Some(self.0 as u32)),
            IN => (Direction::In, None),
            _ => (Direction::In, Some(self.0 as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_keeps_its_parts() {
        let out = Route::out(4_095, 65_535, (1 << 24) - 1, 254);
        assert_eq!(out.way(), Way::Out { index: 4_095, port: 65_535, tag: 254 });
        assert_eq!(out.session(), (Direction::Out, Some((1 << 24) - 1)));
        let inside = Route::inside([255, 1, 2, 3].into(), 9, 4_095);
        assert_eq!(inside.way(), Way::In { address: 0xff01_0203, port: 9, neighbor: 4_095 });
        assert_eq!(inside.session(), (Direction::In, None));
        for direction in [Direction::Out, Direction::In] {
            let ask = Route::ask(direction, 7);
            assert_eq!((ask.way(), ask.session()), (Way::Ask, (direction, Some(7))));
        }
    }

    #[test]
    fn similar_ethernet_addresses_have_different_tags() {
        let (mut pairs, mut same) = (0, 0);
        let mut compare = |one: [u8; 6], other: [u8; 6]| {
            if one != other {
                pairs += 1;
                same += usize::from(tag_of(one) == tag_of(other));
            }
        };
        for host in 0..64u8 {
            let mac = [0x02, 0x1b, 0x21, host, host.wrapping_mul(37), host ^ 0xa5];
            for at in 0..6 {
                for change in 1..=255u8 {
                    let mut other = mac;
                    other[at] ^= change;
                    compare(mac, other);
                }
                for with in at + 1..6 {
                    let mut other = mac;
                    other.swap(at, with);
                    compare(mac, other);
                }
            }
        }
        assert!(pairs > 90_000 && same * 50 < pairs, "{same} of {pairs} have the same tag");
        // Not all of many addresses that differ in the same way: an XOR of the bytes does that.
        let swapped = (0..=254u8)
            .filter(|byte| tag_of([2, 0, 0, 0, *byte, byte + 1]) == tag_of([2, 0, 0, 0, byte + 1, *byte]));
        assert!(swapped.count() < 10);
        assert_eq!(tag_of([0; 6]), 1, "no address has the tag of none");
    }

    #[test]
    fn numbers_of_phases_are_theirs() {
        for phase in Phase::ALL {
            assert_eq!(Phase::of_number(phase as u8), Some(phase));
        }
        assert_eq!(Phase::of_number(8), None);
    }
}
