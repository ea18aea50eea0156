//! IPv4 headers in packets, read and written with all lengths checked.

use std::net::Ipv4Addr;

use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use crate::packet::Annotated;

/// Bytes of an IPv4 header without options.
pub(super) const LENGTH: usize = 20;
/// Protocol number of ICMP.
pub(super) const ICMP: u8 = 1;
/// Protocol number of TCP.
pub(super) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(super) const UDP: u8 = 17;

/// Don't fragment, in the word of the fragment offset.
pub(super) const DF: u16 = 0x4000;
/// More fragments, in the word of the fragment offset.
pub(super) const MF: u16 = 0x2000;
/// The fragment offset in its word.
pub(super) const OFFSET: u16 = 0x1FFF;

/// Options' type numbers.
pub(super) mod option {
    /// End of the list.
    pub(crate) const END: u8 = 0;
    /// No operation.
    pub(crate) const NOP: u8 = 1;
    /// Record route.
    pub(crate) const RECORD: u8 = 7;
    /// Timestamp.
    pub(crate) const TIMESTAMP: u8 = 68;
    /// Loose source route.
    pub(crate) const LOOSE: u8 = 131;
    /// Strict source route.
    pub(crate) const STRICT: u8 = 137;
}

/// Two bytes in network order; 0 where there are none.
pub(super) fn get16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Four bytes in network order; 0 where there are none.
pub(super) fn get32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..) {
        Some([a, b, c, d, ..]) => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

/// An address; 0.0.0.0 where there is none.
pub(super) fn get_address(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(get32(bytes, at))
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

/// An IPv4 header and what follows it: at least 20 bytes.
#[derive(Clone, Copy)]
pub(super) struct Ip<'p>(pub(super) &'p [u8]);

impl<'p> Ip<'p> {
    /// The packet's network header, if it is marked and 20 bytes of it are there.
    #[inline]
    pub(super) fn of(packet: &'p Packet) -> Option<Self> {
        packet.network().filter(|bytes| bytes.len() >= LENGTH).map(Self)
    }
    /// The header's length by its own field (bytes).
    pub(super) fn header_length(self) -> usize {
        header_length(self.0)
    }
    /// Type of service.
    pub(super) fn tos(self) -> u8 {
        self.0[1]
    }
    /// Length of header and payload.
    pub(super) fn total_length(self) -> usize {
        usize::from(get16(self.0, 2))
    }
    /// Identification.
    pub(super) fn id(self) -> u16 {
        get16(self.0, 4)
    }
    /// Flags and fragment offset.
    pub(super) fn fragment(self) -> u16 {
        get16(self.0, 6)
    }
    /// Whether it is a fragment of a larger packet.
    pub(super) fn is_fragment(self) -> bool {
        self.fragment() & (MF | OFFSET) != 0
    }
    /// Whether it has the packet's first byte.
    pub(super) fn is_first(self) -> bool {
        self.fragment() & OFFSET == 0
    }
    /// Time to live.
    pub(super) fn ttl(self) -> u8 {
        self.0[8]
    }
    /// Protocol of the payload.
    pub(super) fn protocol(self) -> u8 {
        self.0[9]
    }
    /// Source.
    pub(super) fn source(self) -> Ipv4Addr {
        get_address(self.0, 12)
    }
    /// Destination.
    pub(super) fn destination(self) -> Ipv4Addr {
        get_address(self.0, 16)
    }
}

/// The length of a header by its own field (bytes).
pub(super) fn header_length(header: &[u8]) -> usize {
    header.first().map_or(0, |first| usize::from(first & 15) * 4)
}

/// The packet's network header for writing, if it is marked and 20 bytes of it are there.
#[inline]
pub(super) fn ip_mut(packet: &mut Packet) -> Option<&mut [u8]> {
    packet.network_mut().filter(|bytes| bytes.len() >= LENGTH)
}

/// Writes two bytes of a header at an even place, and corrects the header's checksum for the change.
pub(super) fn replace16(header: &mut [u8], at: usize, value: u16) {
    let carried = checksum::update16(get16(header, 10), get16(header, at), value);
    set16(header, at, value);
    set16(header, 10, carried);
}

/// Computes a header's checksum. Headers that claim more bytes than there are stay as they are.
pub(super) fn set_checksum(header: &mut [u8]) {
    let length = header_length(header);
    if length >= LENGTH && length <= header.len() {
        set16(header, 10, 0);
        let sum = checksum::internet(&header[..length]);
        set16(header, 10, sum);
    }
}

/// The destination that transport checksums cover: the last address of a source route, or the header's own.
pub(super) fn final_destination(ip: Ip<'_>) -> Ipv4Addr {
    let Some(options) = ip.0.get(LENGTH..ip.header_length()) else { return ip.destination() };
    let mut rest = options;
    loop {
        match rest {
            [option::END, ..] | [] | [_] => return ip.destination(),
            [option::NOP, ..] => rest = &rest[1..],
            [kind, length, ..] => {
                let length = usize::from(*length);
                if length < 2 || length > rest.len() {
                    return ip.destination();
                }
                let (this, next) = rest.split_at(length);
                if matches!(*kind, option::LOOSE | option::STRICT)
                    && length >= 7
                    && usize::from(this[2]) <= length - 3
                {
                    return get_address(this, length - 4);
                }
                rest = next;
            }
        }
    }
}

/// The transport checksum of a segment whose own field is zero.
pub(super) fn transport_checksum(ip: Ip<'_>, protocol: u8, segment: &[u8]) -> u16 {
    checksum::transport(ip.source().into(), final_destination(ip).into(), protocol, segment)
}

/// Gives a packet the annotations of another, without the places of headers.
pub(super) fn copy_annotations(to: &mut Packet, from: &Packet) {
    *to.anno_mut() = *from.anno();
    to.set_timestamp(from.timestamp());
    to.set_kind(from.kind());
    to.set_ingress(from.ingress(), from.queue());
    to.set_owner(from.owner());
    to.set_vlan(from.vlan());
}
