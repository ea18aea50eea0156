//! Packets as Click sees them: annotations where Click lays them, and the places of headers.
//!
//! A packet is NetBricks's own. Its 48 far annotation bytes are Click's, byte for byte. Its near annotations hold the
//! places of the MAC, network and transport headers, so that a step of the plain IP path reads one cache line.

use std::net::Ipv4Addr;

use netbricks_core::buffer::{Packet, Pool};

/// Places of Click's annotations, in bytes from the first (Click's `packet_anno.hh`).
pub mod place {
    /// IPv4 destination of the next hop, 4 bytes.
    pub const DST_IP: usize = 0;
    /// IPv6 destination of the next hop, 16 bytes.
    pub const DST_IP6: usize = 0;
    /// Paint, 1 byte.
    pub const PAINT: usize = 16;
    /// Offset of a bad field for an ICMP parameter problem, 1 byte.
    pub const ICMP_PARAMETER_PROBLEM: usize = 17;
    /// Whether `FixIPSrc` replaces the source address, 1 byte.
    pub const FIX_IP_SRC: usize = 19;
    /// VLAN tag control information, 2 bytes.
    pub const VLAN_TCI: usize = 20;
    /// Aggregate, 4 bytes.
    pub const AGGREGATE: usize = 20;
    /// Another IPv4 address, 4 bytes.
    pub const MISC_IP: usize = 20;
    /// Number of further packets that this one stands for, 4 bytes.
    pub const EXTRA_PACKETS: usize = 24;
    /// Packets in a reassembler's chain, 4 bytes.
    pub const IP_REASSEMBLER: usize = 28;
    /// Bytes that were on the wire beyond those here, 4 bytes.
    pub const EXTRA_LENGTH: usize = 28;
    /// Timestamp of a flow's first packet, 8 bytes.
    pub const FIRST_TIMESTAMP: usize = 32;
    /// Number of a packet in a trace, 4 bytes.
    pub const PACKET_NUMBER: usize = 32;
    /// IPsec security parameters index, 4 bytes.
    pub const IPSEC_SPI: usize = 32;
    /// Sequence number, 4 bytes.
    pub const SEQUENCE_NUMBER: usize = 36;
    /// Processor cycles, 8 bytes.
    pub const PERFORMANCE_COUNTER: usize = 40;
    /// Where the annotations end.
    pub const SIZE: usize = 48;
}

const MAC: usize = 0;
const NETWORK: usize = 2;
const TRANSPORT: usize = 4;
const KIND: usize = 6;

/// Kind of a packet: whom its link layer addressed (Click's packet type annotation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// To this host.
    #[default]
    Host,
    /// To all hosts.
    Broadcast,
    /// To a group of hosts.
    Multicast,
    /// To another host.
    OtherHost,
    /// From this host.
    Outgoing,
}

/// Annotations and header places of a packet.
///
/// Places of headers are bytes from the packet's first byte. They stay right when bytes are put before the packet or
/// taken from its front.
pub trait Annotated {
    /// All of Click's annotations.
    fn anno(&self) -> &[u8; place::SIZE];
    /// The same, for writing.
    fn anno_mut(&mut self) -> &mut [u8; place::SIZE];
    /// A byte of annotations.
    fn anno_u8(&self, place: usize) -> u8 {
        self.anno()[place]
    }
    /// Two bytes of annotations, in the machine's order.
    fn anno_u16(&self, place: usize) -> u16 {
        u16::from_ne_bytes([self.anno()[place], self.anno()[place + 1]])
    }
    /// Four bytes of annotations, in the machine's order.
    fn anno_u32(&self, place: usize) -> u32 {
        let bytes = self.anno();
        u32::from_ne_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
    }
    /// Writes a byte of annotations.
    fn set_anno_u8(&mut self, place: usize, value: u8) {
        self.anno_mut()[place] = value;
    }
    /// Writes two bytes of annotations, in the machine's order.
    fn set_anno_u16(&mut self, place: usize, value: u16) {
        self.anno_mut()[place..place + 2].copy_from_slice(&value.to_ne_bytes());
    }
    /// Writes four bytes of annotations, in the machine's order.
    fn set_anno_u32(&mut self, place: usize, value: u32) {
        self.anno_mut()[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }
    /// The destination annotation.
    fn dst_ip(&self) -> Ipv4Addr {
        let bytes = self.anno();
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])
    }
    /// Sets the destination annotation.
    fn set_dst_ip(&mut self, address: Ipv4Addr) {
        self.anno_mut()[..4].copy_from_slice(&address.octets());
    }
    /// The paint annotation.
    fn paint(&self) -> u8 {
        self.anno_u8(place::PAINT)
    }
    /// Where the MAC header begins, if known. Negative where it was taken from the front.
    fn mac_place(&self) -> Option<isize>;
    /// Sets where the MAC header begins, in bytes from the packet's first.
    fn set_mac_place(&mut self, place: Option<usize>);
    /// Sets where the MAC header begins and how long it is, which gives the network header's place.
    fn set_mac_header(&mut self, place: usize, length: usize);
    /// Where the network header begins, if known. Negative where it was taken from the front.
    fn network_place(&self) -> Option<isize>;
    /// Where the transport header begins, if known.
    fn transport_place(&self) -> Option<isize>;
    /// Sets where the network header begins and how long it is, which gives the transport header's place.
    fn set_network(&mut self, place: usize, length: usize);
    /// Forgets the places of the network and transport headers.
    fn clear_network(&mut self);
    /// Bytes from the network header on, if it is known and lies in the packet.
    fn network(&self) -> Option<&[u8]>;
    /// The same, for writing.
    fn network_mut(&mut self) -> Option<&mut [u8]>;
    /// Bytes from the transport header on, if it is known and lies in the packet.
    fn transport(&self) -> Option<&[u8]>;
    /// The same, for writing.
    fn transport_mut(&mut self) -> Option<&mut [u8]>;
    /// Length of the network header (bytes), if it is known.
    fn network_length(&self) -> Option<usize>;
    /// Whom the link layer addressed.
    fn kind(&self) -> Kind;
    /// Sets whom the link layer addressed.
    fn set_kind(&mut self, kind: Kind);
    /// When the packet arrived (ns since 1970), 0 where unknown.
    fn timestamp(&self) -> u64;
    /// Sets when the packet arrived.
    fn set_timestamp(&mut self, time: u64);
    /// Puts `count` zero bytes before the first, with a larger frame where the headroom is short.
    ///
    /// `false` when the pool has no frame for it; the packet is then as it was.
    #[must_use]
    fn push_bytes(&mut self, pool: &Pool, count: usize) -> bool;
    /// Takes bytes off the front, so that [`unpull_bytes`](Self::unpull_bytes) can bring them back. All when fewer.
    fn pull_bytes(&mut self, count: usize);
    /// Puts `count` bytes before the first: those that were pulled off, and zeros for what never was there.
    ///
    /// `false` when the pool has no frame for it; the packet is then as it was.
    #[must_use]
    fn unpull_bytes(&mut self, pool: &Pool, count: usize) -> bool;
    /// Bytes that were pulled off and lie before the first, the last of them at the end.
    fn pulled_bytes(&self) -> &[u8];
    /// Adds `count` zero bytes behind the last, with a larger frame where the tailroom is short.
    #[must_use]
    fn put_bytes(&mut self, count: usize) -> bool;
}

/// The timestamp of the first packet that a packet stands for (ns).
pub(crate) fn first_timestamp(packet: &Packet) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&packet.anno()[place::FIRST_TIMESTAMP..place::FIRST_TIMESTAMP + 8]);
    i64::from_ne_bytes(bytes)
}

/// Sets the timestamp of the first packet that a packet stands for.
pub(crate) fn set_first_timestamp(packet: &mut Packet, time: i64) {
    packet.anno_mut()[place::FIRST_TIMESTAMP..place::FIRST_TIMESTAMP + 8]
        .copy_from_slice(&time.to_ne_bytes());
}

#[inline]
fn place_of(packet: &Packet, slot: usize) -> Option<isize> {
    let near = packet.near_annotations();
    let stored = u16::from_ne_bytes([near[slot], near[slot + 1]]);
    (stored != 0).then(|| stored as isize - 1 - packet.headroom() as isize)
}

#[inline]
fn set_place(packet: &mut Packet, slot: usize, place: Option<isize>) {
    let stored = place
        .and_then(|place| u16::try_from(place.saturating_add(packet.headroom() as isize + 1)).ok())
        .unwrap_or(0);
    let mut annotations = packet.annotations_mut();
    annotations.near_mut()[slot..slot + 2].copy_from_slice(&stored.to_ne_bytes());
}

/// Sets the places in two neighbouring slots.
#[inline]
fn set_two_places(packet: &mut Packet, slot: usize, place: usize, next: usize) {
    let from = packet.headroom() + 1;
    let stored = |place: usize| u16::try_from(place.saturating_add(from)).unwrap_or(0).to_ne_bytes();
    let ([a, b], [c, d]) = (stored(place), stored(next));
    packet.annotations_mut().near_mut()[slot..slot + 4].copy_from_slice(&[a, b, c, d]);
}

#[inline]
fn inside(packet: &Packet, place: Option<isize>) -> Option<usize> {
    place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place <= packet.len())
}

impl Annotated for Packet {
    #[inline]
    fn anno(&self) -> &[u8; place::SIZE] {
        self.far_annotations()
    }
    #[inline]
    fn anno_mut(&mut self) -> &mut [u8; place::SIZE] {
        self.far_annotations_mut()
    }
    #[inline]
    fn mac_place(&self) -> Option<isize> {
        place_of(self, MAC)
    }
    #[inline]
    fn set_mac_place(&mut self, place: Option<usize>) {
        set_place(self, MAC, place.map(|place| place as isize));
    }
    #[inline]
    fn set_mac_header(&mut self, place: usize, length: usize) {
        set_two_places(self, MAC, place, place.saturating_add(length));
    }
    #[inline]
    fn network_place(&self) -> Option<isize> {
        place_of(self, NETWORK)
    }
    #[inline]
    fn transport_place(&self) -> Option<isize> {
        place_of(self, TRANSPORT)
    }
    #[inline]
    fn set_network(&mut self, place: usize, length: usize) {
        set_two_places(self, NETWORK, place, place.saturating_add(length));
    }
    fn clear_network(&mut self) {
        set_place(self, NETWORK, None);
        set_place(self, TRANSPORT, None);
    }
    #[inline]
    fn network(&self) -> Option<&[u8]> {
        inside(self, place_of(self, NETWORK)).and_then(|place| self.data().get(place..))
    }
    #[inline]
    fn network_mut(&mut self) -> Option<&mut [u8]> {
        inside(self, place_of(self, NETWORK)).and_then(|place| self.data_mut().get_mut(place..))
    }
    #[inline]
    fn transport(&self) -> Option<&[u8]> {
        inside(self, place_of(self, TRANSPORT)).and_then(|place| self.data().get(place..))
    }
    #[inline]
    fn transport_mut(&mut self) -> Option<&mut [u8]> {
        inside(self, place_of(self, TRANSPORT)).and_then(|place| self.data_mut().get_mut(place..))
    }
    #[inline]
    fn network_length(&self) -> Option<usize> {
        usize::try_from(place_of(self, TRANSPORT)? - place_of(self, NETWORK)?).ok()
    }
    #[inline]
    fn kind(&self) -> Kind {
        match self.near_annotations()[KIND] {
            1 => Kind::Broadcast,
            2 => Kind::Multicast,
            3 => Kind::OtherHost,
            4 => Kind::Outgoing,
            _ => Kind::Host,
        }
    }
    #[inline]
    fn set_kind(&mut self, kind: Kind) {
        self.annotations_mut().near_mut()[KIND] = kind as u8;
    }
    #[inline]
    fn timestamp(&self) -> u64 {
        self.received_at()
    }
    #[inline]
    fn set_timestamp(&mut self, time: u64) {
        self.set_received_at(time);
    }
    #[inline]
    fn push_bytes(&mut self, pool: &Pool, count: usize) -> bool {
        if self.push_front(count).is_ok() {
            return true;
        }
        let Some(mut larger) = count.checked_add(self.len()).and_then(|length| pool.allocate(length)) else {
            return false;
        };
        larger.data_mut()[count..].copy_from_slice(self.data());
        let places = [MAC, NETWORK, TRANSPORT].map(|slot| (slot, place_of(self, slot)));
        *larger.annotations_mut().near_mut() = *self.near_annotations();
        for (slot, place) in places {
            set_place(&mut larger, slot, place.map(|place| place + count as isize));
        }
        larger.anno_mut().copy_from_slice(self.anno());
        larger.set_received_at(self.received_at());
        *self = larger;
        true
    }
    #[inline]
    fn pull_bytes(&mut self, count: usize) {
        let _ = self.pull_front_kept(count.min(self.len()));
    }
    fn unpull_bytes(&mut self, pool: &Pool, count: usize) -> bool {
        let pulled = self.pulled_bytes();
        let known = pulled.len().min(count);
        let mut saved = [0; 512];
        let known = known.min(saved.len());
        saved[..known].copy_from_slice(&pulled[pulled.len() - known..]);
        if !self.push_bytes(pool, count) {
            return false;
        }
        self.data_mut()[count - known..count].copy_from_slice(&saved[..known]);
        true
    }
    fn pulled_bytes(&self) -> &[u8] {
        self.pulled()
    }
    fn put_bytes(&mut self, count: usize) -> bool {
        self.extend(count).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulled_bytes_come_back() -> Result<(), netbricks_core::buffer::PoolError> {
        let pool = Pool::builder().frames(8).build()?;
        let Some(mut packet) = pool.packet(b"0123456789") else { return Ok(()) };
        packet.set_kind(Kind::Multicast);
        packet.pull_bytes(4);
        packet.pull_bytes(2);
        assert_eq!(packet.data(), b"6789");
        let Some(mut copy) = packet.try_copy() else { return Ok(()) };
        assert!(packet.unpull_bytes(&pool, 3) && packet.data() == b"3456789");
        assert!(packet.push_bytes(&pool, 2) && packet.data() == b"\0\x003456789");
        packet.pull_bytes(3);
        assert!(packet.unpull_bytes(&pool, 5) && packet.data() == b"\x000\0\x003456789");
        // Nothing of an earlier packet shows.
        assert!(copy.unpull_bytes(&pool, 8) && copy.data() == b"\0\x000123456789");
        assert_eq!(copy.kind(), Kind::Multicast);
        Ok(())
    }
}
