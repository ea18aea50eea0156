//! The first look at a frame: its headers, and whether anything forbids to forward it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::length_slack;
use netbricks_core::packet::ip::IpFacts;
use netbricks_core::packet::stack::{Header, LengthSlack};
use netbricks_core::packet::{FlowKey, HashKey, Ip, IpRef, Ipv4, ethertype};

/// A frame at the first look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// It ends here.
    Lost(DropReason),
    /// An ARP packet.
    Arp { at: u8, vlan: Option<u16> },
    /// An IP packet.
    Ip(Parsed),
}

/// The headers of an IP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    /// Where the IP header begins.
    pub(crate) at: u8,
    pub(crate) vlan: Option<u16>,
    /// Where the payload begins and ends.
    pub(crate) end: u32,
    pub(crate) limit: u32,
    pub(crate) facts: IpFacts,
    pub(crate) destination: IpAddr,
}

/// Where the network header begins, the VLAN, and the type of that header.
fn link(frame: &[u8]) -> Option<(usize, Option<u16>, u16)> {
    let word = |at: usize| {
        frame.get(at..at + 2).and_then(|word| word.first_chunk()).map(|word| u16::from_be_bytes(*word))
    };
    let kind = word(12)?;
    if kind != ethertype::VLAN {
        return Some((14, None, kind));
    }
    // A tag of VLAN 0 says only how urgent the frame is.
    let vlan = word(14)? & 0xfff;
    Some((18, (vlan > 0).then_some(vlan), word(16)?))
}

/// Looks at a frame.
#[inline(always)]
pub(crate) fn look(packet: &Packet) -> Seen {
    let frame = packet.data();
    let Some((at, vlan, kind)) = link(frame) else { return Seen::Lost(DropReason::Malformed) };
    match kind {
        ethertype::IPV4 | ethertype::IPV6 => {}
        ethertype::ARP => return Seen::Arp { at: at as u8, vlan },
        _ => return Seen::Lost(DropReason::Unmatched),
    }
    let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
    let bytes = &frame[at..];
    let found = if slack.is_none() { Ip::find(bytes, kind) } else { Ip::find_with(bytes, kind, slack) };
    let Ok(found) = found else { return Seen::Lost(DropReason::Malformed) };
    let header = Ip::view(&bytes[..found.len], found.facts);
    let limit = at + found.total.unwrap_or(bytes.len()).min(bytes.len());
    Seen::Ip(Parsed {
        at: at as u8,
        vlan,
        end: (at + found.len) as u32,
        limit: limit as u32,
        facts: found.facts,
        destination: header.destination(),
    })
}

/// The slack of a packet that is not in a batch.
pub(crate) fn slack_of(packet: &mut Packet) -> LengthSlack {
    packet.open(|bytes| length_slack(bytes))
}

impl Parsed {
    /// The IP header and the payload.
    pub(crate) fn header<'f>(&self, frame: &'f [u8]) -> (IpRef<'f>, &'f [u8]) {
        let (at, end, limit) = (usize::from(self.at), self.end as usize, self.limit as usize);
        (Ip::view(&frame[at..end], self.facts), &frame[end..limit.max(end)])
    }

    /// Bytes of the IP packet.
    pub(crate) fn len(&self) -> usize {
        self.limit as usize - usize::from(self.at)
    }

    /// The hash of its flow, which chooses one of several next hops.
    ///
    /// Fragments of one packet go one way: their ports, which only the first has, do not count.
    pub(crate) fn hash(&self, frame: &[u8], key: &HashKey) -> u64 {
        let (ip, payload) = self.header(frame);
        let flow = if ip.is_fragment() {
            FlowKey::new(ip.source(), ip.destination(), 0, 0, ip.protocol())
        } else {
            FlowKey::of(ip, payload)
        };
        key.hash(&flow)
    }
}

/// Whether a packet's addresses forbid to forward it (RFC 1812 §5.3.7, RFC 3927 §7, RFC 4291 §2.5, RFC 6890).
pub(crate) fn is_martian(ip: IpRef<'_>) -> bool {
    match (ip.source(), ip.destination()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            is_martian_v4(source)
                || is_martian_v4(destination)
                || destination.is_multicast()
                || source.is_multicast()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => is_martian_v6(source) || is_martian_v6(destination),
        _ => true,
    }
}

fn is_martian_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first == 0 || first == 127 || first >= 240 || address.is_link_local()
}

fn is_martian_v6(address: Ipv6Addr) -> bool {
    address.is_multicast()
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_unicast_link_local()
        || address.to_ipv4_mapped().is_some()
}

/// Whether a source address is one that no single host has; it may be link-local.
pub(crate) fn is_no_source(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first == 0 || first == 127 || first >= 224
        }
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_loopback() || v6.to_ipv4_mapped().is_some(),
    }
}

/// Whether an IPv4 packet asks to be sent on a route of its source's choice (RFC 7126 §4.3 and §4.4).
pub(crate) fn is_source_routed(ip: IpRef<'_>) -> bool {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    match ip {
        IpRef::V4(header) if !header.options_bytes().is_empty() => {
            header.options().any(|option| option.is_ok_and(|option| matches!(option.kind, LOOSE | STRICT)))
        }
        _ => false,
    }
}

/// Whether the header checksum is right, where there is one.
#[inline(always)]
pub(crate) fn is_intact(frame: &[u8], parsed: &Parsed) -> bool {
    match parsed.facts {
        IpFacts::V4 => {
            let header = &frame[usize::from(parsed.at)..parsed.end as usize];
            Ipv4::view(header, ()).checksum_is_valid()
        }
        IpFacts::V6(_) => true,
    }
}
