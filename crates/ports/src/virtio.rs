//! The virtio-net header that AF_PACKET sockets and TAP devices put before a packet (Virtio 1.2, section
//! 5.1.6).
//!
//! It describes partial checksums and segmentation that are left to the next sender.

use netbricks_buffer::{GsoKind, Offload};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The checksum is partial.
const NEEDS_CSUM: u8 = 1;
/// The checksum was verified.
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set in addition to the kind when segmentation has to treat ECN by RFC 3168.
const GSO_ECN: u8 = 0x80;

/// The legacy header of 10 bytes, in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct VirtioHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

/// Bytes of the header.
pub(crate) const LEN: usize = size_of::<VirtioHeader>();
const _: () = assert!(LEN == crate::sys::packet::VIRTIO);

impl VirtioHeader {
    /// The offload that the header describes, for a packet of `len` bytes.
    ///
    /// `inserted` bytes were put behind the MAC addresses (a VLAN tag that had been removed). `None` when the
    /// header does not fit the packet, or asks for an unknown kind of segmentation.
    #[inline]
    pub(crate) fn offload(&self, inserted: usize, len: usize) -> Option<Offload> {
        if *self == Self::default() {
            return Some(Offload::default());
        }
        let needs_checksum = self.flags & NEEDS_CSUM != 0;
        let mut offload = Offload {
            needs_checksum,
            checksum_valid: self.flags & DATA_VALID != 0,
            gso_ecn: self.gso_type & GSO_ECN != 0,
            gso: match self.gso_type & !GSO_ECN {
                GSO_NONE => GsoKind::None,
                GSO_TCPV4 => GsoKind::TcpV4,
                GSO_TCPV6 => GsoKind::TcpV6,
                GSO_UDP_L4 => GsoKind::Udp,
                _ => return None,
            },
            gso_size: self.gso_size,
            ..Offload::default()
        };
        if needs_checksum {
            let start = self.csum_start as usize + inserted;
            if start + self.csum_offset as usize + 2 > len {
                return None;
            }
            offload.checksum_start = u16::try_from(start).ok()?;
            offload.checksum_offset = self.csum_offset;
        }
        if offload.gso != GsoKind::None && offload.gso_size == 0 {
            return None;
        }
        Some(offload)
    }

    /// The same header for a packet whose first `bytes` bytes are not sent.
    #[inline]
    pub(crate) fn behind(self, bytes: usize) -> Self {
        let less = |place: u16| place.saturating_sub(bytes as u16);
        Self { hdr_len: less(self.hdr_len), csum_start: less(self.csum_start), ..self }
    }

    /// The header for a packet with this offload.
    #[inline]
    pub(crate) fn of(offload: &Offload, packet: &[u8]) -> Self {
        if offload.is_none() {
            return Self::default();
        }
        let mut header = Self::default();
        if offload.needs_checksum {
            header.flags = NEEDS_CSUM;
            header.csum_start = offload.checksum_start;
            header.csum_offset = offload.checksum_offset;
        }
        if offload.gso != GsoKind::None {
            header.gso_type = match offload.gso {
                GsoKind::None => GSO_NONE,
                GsoKind::TcpV4 => GSO_TCPV4,
                GsoKind::TcpV6 => GSO_TCPV6,
                GsoKind::Udp => GSO_UDP_L4,
            } | if offload.gso_ecn { GSO_ECN } else { 0 };
            header.gso_size = offload.gso_size;
            // The kernel copies at least this much into the linear part of its buffer, where it reads
            // headers.
            let start = offload.checksum_start as usize;
            let own = match offload.gso {
                GsoKind::Udp => 8,
                _ => packet.get(start + 12).map_or(20, |byte| usize::from(byte >> 4) * 4),
            };
            header.hdr_len = (start + own).min(packet.len()) as u16;
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_refused_or_stays_inside(bytes: [u8; LEN], inserted in 0_usize..8, len in 0_usize..70_000) {
            let header = VirtioHeader::read_from_bytes(&bytes).unwrap();
            if let Some(offload) = header.offload(inserted, len) && offload.needs_checksum {
                prop_assert!(offload.checksum_start as usize + offload.checksum_offset as usize + 2 <= len);
                let back = VirtioHeader::of(&offload, &vec![0; len]);
                prop_assert_eq!(back.csum_start as usize, header.csum_start as usize + inserted);
                prop_assert!(back.hdr_len as usize <= len);
            }
        }
    }

    #[test]
    fn an_offload_survives_the_way_out_and_in() {
        for gso in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
            let offload = Offload {
                needs_checksum: true,
                gso_ecn: gso != GsoKind::Udp,
                gso,
                gso_size: 1448,
                checksum_start: 34,
                checksum_offset: 16,
                ..Offload::default()
            };
            let mut packet = vec![0; 3000];
            packet[34 + 12] = 8 << 4;
            let header = VirtioHeader::of(&offload, &packet);
            assert_eq!(header.hdr_len, 34 + if gso == GsoKind::Udp { 8 } else { 32 });
            assert_eq!(header.offload(0, packet.len()), Some(offload));
        }
        assert_eq!(VirtioHeader::of(&Offload::default(), &[]), VirtioHeader::default());
    }

    #[test]
    fn places_are_counted_from_the_first_byte_that_is_sent() {
        let header = VirtioHeader {
            flags: NEEDS_CSUM,
            hdr_len: 54,
            csum_start: 34,
            csum_offset: 16,
            ..Default::default()
        };
        let behind = header.behind(14);
        assert_eq!((behind.hdr_len, behind.csum_start, behind.csum_offset), (40, 20, 16));
        assert_eq!(header.behind(0), header);
        assert_eq!(VirtioHeader::default().behind(14), VirtioHeader::default());
    }
}
