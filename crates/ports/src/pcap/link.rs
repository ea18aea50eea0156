//! Link types of captures, and their conversion to Ethernet frames, on which functions work.
//!
//! If the capture has no Ethernet addresses, synthetic, locally administered ones are used: 02:00:00:00:00:01
//! as source and 02:00:00:00:00:02 as destination. Written captures are always Ethernet.

use netbricks_packet::ethertype;

/// A link type that can be read (tcpdump.org, "Link-layer header types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// 1: Ethernet.
    Ethernet,
    /// 101, 12 and 14: an IP packet. 228 and 229: an IPv4 and an IPv6 packet.
    RawIp,
    /// 113: Linux cooked, version 1.
    LinuxCooked,
    /// 276: Linux cooked, version 2.
    LinuxCooked2,
    /// 0: BSD loopback, with the address family in the byte order of the capturing machine. 108: in network
    /// order.
    Loopback,
}

/// The longest header that is put before a record's data, in bytes.
pub(super) const HEADER: usize = 14;

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
const BROADCAST: [u8; 6] = [0xff; 6];

impl LinkType {
    /// The link type of this number. `None` if it cannot be made Ethernet.
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            101 | 12 | 14 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            0 | 108 => Self::Loopback,
            _ => return None,
        })
    }

    /// The Ethernet header that replaces a record's link header, and the data after it.
    ///
    /// The header has 0 bytes if the record has its own. On the wire the record had `wire` bytes.
    pub(super) fn frame(self, record: &[u8], wire: usize) -> Result<(Header, &[u8]), Unframed> {
        Ok(match self {
            Self::Ethernet => (Header::none(), record),
            Self::RawIp => (Header::new(DESTINATION, SOURCE, version(record)), record),
            Self::LinuxCooked => {
                let (header, rest) = record.split_first_chunk::<16>().ok_or(Unframed::Short)?;
                let [
                    _,
                    kind,
                    hardware,
                    hardware_low,
                    length_high,
                    length_low,
                    a,
                    b,
                    c,
                    d,
                    e,
                    f,
                    _,
                    _,
                    high,
                    low,
                ] = *header;
                let source = if [length_high, length_low] == [0, 6] { [a, b, c, d, e, f] } else { SOURCE };
                let hardware = u16::from_be_bytes([hardware, hardware_low]);
                let protocol = u16::from_be_bytes([high, low]);
                (Header::cooked(kind, source, hardware, protocol, wire.saturating_sub(16))?, rest)
            }
            Self::LinuxCooked2 => {
                let (header, rest) = record.split_first_chunk::<20>().ok_or(Unframed::Short)?;
                let [
                    high,
                    low,
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    hardware,
                    hardware_low,
                    kind,
                    length,
                    a,
                    b,
                    c,
                    d,
                    e,
                    f,
                    _,
                    _,
                ] = *header;
                let source = if length == 6 { [a, b, c, d, e, f] } else { SOURCE };
                let hardware = u16::from_be_bytes([hardware, hardware_low]);
                let protocol = u16::from_be_bytes([high, low]);
                (Header::cooked(kind, source, hardware, protocol, wire.saturating_sub(20))?, rest)
            }
            Self::Loopback => {
                let (family, rest) = record.split_first_chunk::<4>().ok_or(Unframed::Short)?;
                // Families are small numbers, so the smaller reading has the right byte order.
                let family = u32::from_le_bytes(*family).min(u32::from_be_bytes(*family));
                let number = match family {
                    2 => ethertype::IPV4,
                    // AF_INET6 of Linux, of NetBSD and OpenBSD, of FreeBSD, of macOS.
                    10 | 24 | 28 | 30 => ethertype::IPV6,
                    _ => version(rest),
                };
                (Header::new(DESTINATION, SOURCE, number), rest)
            }
        })
    }
}

/// The reason why a record has no Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unframed {
    /// The record is shorter than its link header.
    Short,
    /// The record holds a protocol that Ethernet does not carry.
    NotEthernet,
}

/// Whether the protocol is an EtherType in Linux cooked records of this hardware type.
///
/// The types are those of Linux's `if_arp.h` and tcpdump.org, "LINKTYPE_LINUX_SLL". CAN, netlink, radiotap
/// and Frame Relay put another number there or have no packets that Ethernet carries.
fn has_ethertypes(hardware: u16) -> bool {
    const CAN: u16 = 280;
    const FRAD: u16 = 770;
    const IEEE80211: u16 = 801;
    const IEEE80211_PRISM: u16 = 802;
    const IEEE80211_RADIOTAP: u16 = 803;
    const IEEE802154: u16 = 804;
    const IEEE802154_MONITOR: u16 = 805;
    const PHONET: u16 = 820;
    const CAIF: u16 = 822;
    const NETLINK: u16 = 824;
    const VSOCKMON: u16 = 826;
    !matches!(
        hardware,
        CAN | FRAD
            | IEEE80211
            | IEEE80211_PRISM
            | IEEE80211_RADIOTAP
            | IEEE802154
            | IEEE802154_MONITOR
            | PHONET
            | CAIF
            | NETLINK
            | VSOCKMON
    )
}

/// The EtherType of an IP packet, by its version.
///
/// For another version it is IPv4's, so that the packet appears as malformed.
fn version(packet: &[u8]) -> u16 {
    if packet.first().is_some_and(|byte| byte >> 4 == 6) { ethertype::IPV6 } else { ethertype::IPV4 }
}

/// An Ethernet header, or no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    bytes: [u8; HEADER],
    len: usize,
}

impl Header {
    fn none() -> Self {
        Self { bytes: [0; HEADER], len: 0 }
    }
    fn new(destination: [u8; 6], source: [u8; 6], ethertype: u16) -> Self {
        let mut bytes = [0; HEADER];
        bytes[..6].copy_from_slice(&destination);
        bytes[6..12].copy_from_slice(&source);
        bytes[12..].copy_from_slice(&ethertype.to_be_bytes());
        Self { bytes, len: HEADER }
    }
    /// The header for a Linux cooked record.
    ///
    /// Packet type 1 was a broadcast. The protocols 1 and 4 are not EtherTypes: an 802.3 frame follows, whose
    /// header has the length there: `carried` bytes. Other protocols below 0x600 are Linux's own numbers for
    /// packets that Ethernet does not carry, such as 0x000c for a CAN frame.
    fn cooked(
        kind: u8,
        source: [u8; 6],
        hardware: u16,
        protocol: u16,
        carried: usize,
    ) -> Result<Self, Unframed> {
        const NOVELL: u16 = 1;
        const LLC: u16 = 4;
        let destination = if kind == 1 { BROADCAST } else { DESTINATION };
        let number = match protocol {
            _ if !has_ethertypes(hardware) => return Err(Unframed::NotEthernet),
            NOVELL | LLC => carried.min(1500) as u16,
            0..0x600 => return Err(Unframed::NotEthernet),
            ethertype => ethertype,
        };
        Ok(Self::new(destination, source, number))
    }
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_type_gives_the_same_ip_packet_behind_ethernet() {
        let ip = [0x45u8, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sll = [&[0, 0, 0, 1, 0, 6, 2, 9, 9, 9, 9, 9, 0, 0, 8, 0][..], &ip].concat();
        let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 4, 6, 2, 9, 9, 9, 9, 9, 0, 0][..], &ip].concat();
        let null_le = [&[2, 0, 0, 0][..], &ip].concat();
        let null_be = [&[0, 0, 0, 2][..], &ip].concat();
        for (number, record) in [
            (101, &ip[..]),
            (228, &ip),
            (12, &ip),
            (113, &sll),
            (276, &sll2),
            (0, &null_le),
            (0, &null_be),
            (108, &null_be),
        ] {
            let (header, rest) = LinkType::of(number).unwrap().frame(record, record.len()).unwrap();
            assert_eq!(rest, ip, "{number}");
            assert_eq!(header.as_slice()[12..], [8, 0], "{number}");
            assert_eq!(header.as_slice()[0] & 1, 0);
            if matches!(number, 113 | 276) {
                assert_eq!(
                    header.as_slice()[6..12],
                    [2, 9, 9, 9, 9, 9],
                    "the sender's address is in the record"
                );
            }
        }
        let v6 = [0x60; 40];
        assert_eq!(LinkType::RawIp.frame(&v6, 40).unwrap().0.as_slice()[12..], [0x86, 0xdd]);
        assert_eq!(LinkType::Loopback.frame(&[30, 0, 0, 0], 4).unwrap().0.as_slice()[12..], [0x86, 0xdd]);
    }

    /// Cooked records of both versions: 802.3 records have the length on the wire.
    ///
    /// Records that Ethernet cannot carry have no frame.
    #[test]
    fn only_cooked_records_that_ethernet_carries_have_a_frame() {
        let cooked = |hardware: u16, protocol: u16| {
            let (hardware, protocol) = (hardware.to_be_bytes(), protocol.to_be_bytes());
            let first =
                [&[0, 0][..], &hardware, &[0, 6, 2, 9, 9, 9, 9, 9, 0, 0], &protocol, &[7; 30]].concat();
            let second =
                [&protocol[..], &[0, 0, 0, 0, 0, 1], &hardware, &[0, 6, 2, 9, 9, 9, 9, 9, 0, 0], &[7; 30]];
            let frame = |link: LinkType, record: &[u8]| {
                // 70 more bytes were on the wire.
                let wire = record.len() + 70;
                link.frame(record, wire).map(|(header, rest)| {
                    assert_eq!(rest, [7; 30]);
                    u16::from_be_bytes([header.as_slice()[12], header.as_slice()[13]])
                })
            };
            let first = frame(LinkType::LinuxCooked, &first);
            assert_eq!(frame(LinkType::LinuxCooked2, &second.concat()), first, "{hardware:?} {protocol:?}");
            first
        };
        // Ethernet, loopback, PPP, a TUN device, tunnels, GRE.
        for hardware in [1, 772, 512, 65_534, 768, 769, 776, 778, 823] {
            assert_eq!(cooked(hardware, 0x0800), Ok(0x0800));
            assert_eq!(cooked(hardware, 0x86dd), Ok(0x86dd));
        }
        assert_eq!((cooked(1, 4), cooked(1, 1)), (Ok(100), Ok(100)));
        // CAN, CAN FD and CAN XL, also with another hardware type than CAN's; 802.15.4, DSA, "all".
        for protocol in [0x0c, 0x0d, 0x0e, 0xf6, 0x1b, 3, 0, 0x5ff] {
            assert_eq!(cooked(1, protocol), Err(Unframed::NotEthernet));
            assert_eq!(cooked(280, protocol), Err(Unframed::NotEthernet));
        }
        // No number that netlink or a wireless monitor has there is an EtherType.
        for hardware in [280, 824, 801, 802, 803, 770, 804, 826] {
            assert_eq!(cooked(hardware, 0x0800), Err(Unframed::NotEthernet));
            assert_eq!(cooked(hardware, 4), Err(Unframed::NotEthernet));
        }
    }

    #[test]
    fn short_records_have_no_frame() {
        for (link, header) in
            [(LinkType::LinuxCooked, 16), (LinkType::LinuxCooked2, 20), (LinkType::Loopback, 4)]
        {
            for len in 0..header {
                assert_eq!(link.frame(&vec![0; len], len), Err(Unframed::Short));
            }
            assert_ne!(link.frame(&vec![0; header], header), Err(Unframed::Short));
        }
        assert_eq!(LinkType::of(105), None, "802.11");
    }
}
