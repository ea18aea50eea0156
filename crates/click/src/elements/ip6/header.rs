//! IPv6 headers in packets, read and written with all lengths checked, and IPv6 prefixes.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use crate::arguments::{Argument, Parsed, Problem};
use crate::element::Element;
use crate::names::Named;
use crate::packet::{Annotated, place};
use crate::router::At;

/// Bytes of an IPv6 header.
pub(super) const LENGTH: usize = 40;
/// Bytes of an Ethernet header.
pub(super) const ETHER: usize = 14;
/// Number of ICMPv6 among next headers.
pub(super) const ICMP6: u8 = 58;
/// Number of TCP among next headers.
pub(super) const TCP: u8 = 6;
/// Number of UDP among next headers.
pub(super) const UDP: u8 = 17;
/// Where the header has its source.
pub(super) const SOURCE: usize = 8;
/// Where the header has its destination.
pub(super) const DESTINATION: usize = 24;

/// Two bytes in network order; 0 where there are none.
pub(super) fn get16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Writes bytes where they have room, and nothing where not.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..value.len())) {
        place.copy_from_slice(value);
    }
}

/// Writes two bytes in network order.
pub(super) fn set16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, &value.to_be_bytes());
}

/// An address; `::` where there is none.
pub(super) fn get_address(bytes: &[u8], at: usize) -> Ipv6Addr {
    let address = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>);
    address.map_or(Ipv6Addr::UNSPECIFIED, |address| Ipv6Addr::from(*address))
}

/// An IPv6 header and what follows it: at least 40 bytes.
#[derive(Clone, Copy)]
pub(super) struct Ip6<'p>(pub(super) &'p [u8]);

impl<'p> Ip6<'p> {
    /// The packet's network header, if it is marked and 40 bytes of it are there.
    #[inline]
    pub(super) fn of(packet: &'p Packet) -> Option<Self> {
        packet.network().and_then(Self::read)
    }
    /// A header at the start of bytes, if 40 are there.
    #[inline]
    pub(super) fn read(bytes: &'p [u8]) -> Option<Self> {
        (bytes.len() >= LENGTH).then_some(Self(bytes))
    }
    /// Version.
    pub(super) fn version(self) -> u8 {
        self.0[0] >> 4
    }
    /// Length of what follows the header (bytes), by its own field.
    pub(super) fn payload_length(self) -> usize {
        usize::from(get16(self.0, 4))
    }
    /// Protocol of what follows the header.
    pub(super) fn next(self) -> u8 {
        self.0[6]
    }
    /// Hop limit.
    pub(super) fn hop_limit(self) -> u8 {
        self.0[7]
    }
    /// Source.
    pub(super) fn source(self) -> Ipv6Addr {
        get_address(self.0, SOURCE)
    }
    /// Destination.
    pub(super) fn destination(self) -> Ipv6Addr {
        get_address(self.0, DESTINATION)
    }
    /// The bytes behind the header: as many as its length says, where so many are there.
    pub(super) fn payload(self) -> &'p [u8] {
        let rest = &self.0[LENGTH..];
        rest.get(..self.payload_length()).unwrap_or(rest)
    }
}

/// The packet's network header for writing, if it is marked and 40 bytes of it are there.
#[inline]
pub(super) fn ip6_mut(packet: &mut Packet) -> Option<&mut [u8]> {
    packet.network_mut().filter(|bytes| bytes.len() >= LENGTH)
}

/// Fields of a new header.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// Protocol of what follows.
    pub(super) next: u8,
    /// Hop limit.
    pub(super) hop_limit: u8,
    /// Source.
    pub(super) source: Ipv6Addr,
    /// Destination.
    pub(super) destination: Ipv6Addr,
}

impl Fields {
    /// Writes a header over the first bytes, for all that follow them.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let length = u16::try_from(bytes.len().saturating_sub(LENGTH)).unwrap_or(u16::MAX);
        put(bytes, 0, &[0x60, 0, 0, 0]);
        set16(bytes, 4, length);
        put(bytes, 6, &[self.next, self.hop_limit]);
        put(bytes, SOURCE, &self.source.octets());
        put(bytes, DESTINATION, &self.destination.octets());
    }
}

/// Computes the checksum of the TCP, UDP or ICMPv6 segment behind a header. Short segments stay as they are.
pub(super) fn set_transport_checksum(bytes: &mut [u8]) {
    let Some((header, rest)) = bytes.split_at_mut_checked(LENGTH) else { return };
    let ip = Ip6(header);
    let length = ip.payload_length().min(rest.len());
    let segment = &mut rest[..length];
    let Some(field) = checksum::field_offset(ip.next()).filter(|field| field + 2 <= segment.len()) else {
        return;
    };
    set16(segment, field, 0);
    let sum = checksum::transport(ip.source().into(), ip.destination().into(), ip.next(), segment);
    set16(segment, field, sum);
}

/// An address as Click writes it: one whose first 96 bits are zero ends like an IPv4 address.
pub(super) fn show(address: Ipv6Addr) -> String {
    match u32::try_from(address.to_bits()) {
        Ok(low) if low != 0 => format!("::{}", Ipv4Addr::from(low)),
        _ => address.to_string(),
    }
}

/// The packet's destination annotation.
pub(super) fn annotation(packet: &Packet) -> Ipv6Addr {
    get_address(packet.anno(), place::DST_IP6)
}

/// Sets the packet's destination annotation.
pub(super) fn annotate(packet: &mut Packet, address: Ipv6Addr) {
    put(packet.anno_mut(), place::DST_IP6, &address.octets());
}

/// Gives each packet of a batch to an element's `action`, and passes on those that it yields, together.
pub(super) fn pass<E: Element>(element: &E, at: At<'_>, batch: &mut Batch) {
    at.gather(batch, |packet| element.action(at, packet));
}

/// An IPv6 address and the length of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Prefix6 {
    /// The address, without the bits beyond the prefix.
    pub(super) address: Ipv6Addr,
    /// The prefix's length (bits).
    pub(super) length: u32,
}

fn mask(length: u32) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0)
}

impl Prefix6 {
    pub(super) fn new(address: Ipv6Addr, length: u32) -> Self {
        Self { address: Ipv6Addr::from_bits(address.to_bits() & mask(length)), length: length.min(128) }
    }
    /// Whether an address lies in it.
    pub(super) fn contains(self, address: Ipv6Addr) -> bool {
        address.to_bits() & mask(self.length) == self.address.to_bits()
    }
}

impl Argument for Prefix6 {
    /// `ADDRESS/LENGTH`, `ADDRESS/MASK`, or an address alone.
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        if let Some((address, length)) = text.split_once('/') {
            let length = match length.parse::<u32>() {
                Ok(length) => length,
                Err(_) => {
                    let bits = Ipv6Addr::parse(length, at)?.to_bits();
                    Some(bits.leading_ones()).filter(|ones| mask(*ones) == bits).ok_or(Problem::Syntax)?
                }
            };
            if length > 128 {
                return Err(Problem::Syntax);
            }
            return Ok(Self::new(Ipv6Addr::parse(address, at)?, length));
        }
        if let Ok(address) = Ipv6Addr::parse(text, at) {
            return Ok(Self::new(address, 128));
        }
        let bytes = at.names().find(at, Named::Ip6Prefix, text).ok_or(Problem::Syntax)?;
        match bytes.get(16) {
            Some(length) => Ok(Self::new(get_address(&bytes, 0), u32::from(*length))),
            None => Err(Problem::Syntax),
        }
    }
}
