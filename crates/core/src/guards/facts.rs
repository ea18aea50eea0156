//! The facts that filters can know of a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;

/// The most VLAN tags that filters look behind.
const TAGS: usize = 2;
/// The most IPv6 extension headers that filters look behind.
pub const EXTENSIONS: usize = 4;
/// A mask of the flags and the fragment offset of IPv4 (RFC 791, section 3.1): not zero in any fragment.
pub const FRAGMENT_V4: u16 = 0x3fff;
/// As [`FRAGMENT_V4`], in IPv6's fragment header (RFC 8200, section 4.5).
pub const FRAGMENT_V6: u16 = 0xfff9;

/// The facts in a frame's first bytes.
///
/// Length fields in headers are not read, and neither is anything behind a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The id in the first VLAN tag.
    pub vlan: Option<u16>,
    /// The EtherType behind up to two VLAN tags.
    pub ethertype: u16,
    /// The facts of its IP header, if it has one.
    pub ip: Option<IpFacts>,
}

/// The facts of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFacts {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol. In IPv6, behind up to four extension headers, or the protocol in the fragment header.
    ///
    /// `None` if the extension headers are cut off.
    pub protocol: Option<u8>,
    /// Source and destination port, of protocols that have them.
    ///
    /// Fragments have none, also the first: all fragments of a packet have the same facts.
    pub ports: Option<(u16, u16)>,
}

impl IpFacts {
    /// The IP version.
    pub fn version(&self) -> Version {
        if self.source.is_ipv4() { Version::V4 } else { Version::V6 }
    }
}

impl Facts {
    /// The facts of an Ethernet frame.
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        let Some(mut ethertype) = half(frame, 12) else { return Self::default() };
        let (mut at, mut vlan) = (14, None);
        for _ in 0..TAGS {
            if !ethertype::is_vlan(ethertype) {
                break;
            }
            let (Some(control), Some(next)) = (half(frame, at), half(frame, at + 2)) else { break };
            vlan = vlan.or(Some(control & 0xfff));
            ethertype = next;
            at += 4;
        }
        let packet = frame.get(at..).unwrap_or_default();
        let ip = match ethertype {
            ethertype::IPV4 => v4(packet),
            ethertype::IPV6 => v6(packet),
            _ => None,
        };
        Self { vlan, ethertype, ip }
    }
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let [high, low] = *bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes([high, low]))
}

#[inline]
fn ports(packet: &[u8], at: usize, protocol: u8) -> Option<(u16, u16)> {
    if !protocol::has_ports(protocol) {
        return None;
    }
    Some((half(packet, at)?, half(packet, at + 2)?))
}

#[inline]
fn v4(packet: &[u8]) -> Option<IpFacts> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let [first, .., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || len < 20 {
        return None;
    }
    let protocol = header[9];
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_V4 != 0;
    Some(IpFacts {
        source: Ipv4Addr::new(s0, s1, s2, s3).into(),
        destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        protocol: Some(protocol),
        ports: if is_fragment { None } else { ports(packet, len, protocol) },
    })
}

#[inline]
fn v6(packet: &[u8]) -> Option<IpFacts> {
    let header: &[u8; 40] = packet.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let bytes = header[at..].first_chunk().copied().unwrap_or_default();
        IpAddr::from(Ipv6Addr::from_octets(bytes))
    };
    let (protocol, transport) = upper_layer(packet, header[6]);
    Some(IpFacts {
        source: address(8),
        destination: address(24),
        protocol,
        ports: protocol.zip(transport).and_then(|(protocol, at)| ports(packet, at, protocol)),
    })
}

/// The protocol behind the extension headers, and the place where it begins.
///
/// The place is not known in a fragment.
fn upper_layer(packet: &[u8], mut next: u8) -> (Option<u8>, Option<usize>) {
    let mut at = 40;
    for _ in 0..EXTENSIONS {
        let len = match next {
            protocol::FRAGMENT => 8,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                let Some(units) = packet.get(at + 1) else { return (None, None) };
                8 + usize::from(*units) * 8
            }
            _ => break,
        };
        let (Some(following), Some(offset)) = (packet.get(at), half(packet, at + 2)) else {
            return (None, None);
        };
        if next == protocol::FRAGMENT && offset & FRAGMENT_V6 != 0 {
            return (Some(*following), None);
        }
        next = *following;
        at += len;
    }
    (Some(next), Some(at))
}
