//! The protocols that qualify a primitive, and the numbers by which headers name them.

/// A protocol keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Link,
    Ip,
    Ip6,
    Arp,
    Rarp,
    Sctp,
    Tcp,
    Udp,
    Icmp,
    Icmp6,
    Igmp,
    Igrp,
    Pim,
    Vrrp,
    Carp,
    Ah,
    Esp,
    Atalk,
    Aarp,
    Decnet,
    Lat,
    Sca,
    Moprc,
    Mopdl,
    Iso,
    Esis,
    Isis,
    Clnp,
    L1,
    L2,
    Iih,
    Lsp,
    Snp,
    Csnp,
    Psnp,
    Stp,
    Ipx,
    Netbeui,
}

/// The versions of IP that can carry a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    Four,
    Six,
    Both,
}

/// The packets that a protocol keyword alone selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selects {
    /// An EtherType, or an LLC service access point below 256.
    LinkType(u32),
    /// A protocol number of IP.
    IpProtocol(u32, Versions),
    /// The first byte of an OSI network-layer packet (ISO/IEC TR 9577).
    IsoProtocol(u32),
    /// Types of IS-IS packets (ISO/IEC 10589).
    IsisTypes(&'static [u32]),
    /// Every frame: it is of no use alone.
    Everything,
}

/// The first byte of IS-IS packets.
pub(super) const ISIS: u32 = 0x83;

impl Protocol {
    pub(super) fn selects(self) -> Selects {
        use Selects::{IpProtocol, IsisTypes, IsoProtocol, LinkType};
        use Versions::{Both, Four, Six};
        match self {
            Self::Link => Selects::Everything,
            Self::Ip => LinkType(0x0800),
            Self::Ip6 => LinkType(0x86dd),
            Self::Arp => LinkType(0x0806),
            Self::Rarp => LinkType(0x8035),
            Self::Atalk => LinkType(0x809b),
            Self::Aarp => LinkType(0x80f3),
            Self::Decnet => LinkType(0x6003),
            Self::Lat => LinkType(0x6004),
            Self::Sca => LinkType(0x6007),
            Self::Moprc => LinkType(0x6002),
            Self::Mopdl => LinkType(0x6001),
            Self::Iso => LinkType(0xfe),
            Self::Stp => LinkType(0x42),
            Self::Ipx => LinkType(0xe0),
            Self::Netbeui => LinkType(0xf0),
            Self::Sctp => IpProtocol(132, Both),
            Self::Tcp => IpProtocol(6, Both),
            Self::Udp => IpProtocol(17, Both),
            Self::Icmp => IpProtocol(1, Four),
            Self::Icmp6 => IpProtocol(58, Six),
            Self::Igmp => IpProtocol(2, Four),
            Self::Igrp => IpProtocol(9, Four),
            Self::Pim => IpProtocol(103, Both),
            Self::Vrrp | Self::Carp => IpProtocol(112, Four),
            Self::Ah => IpProtocol(51, Both),
            Self::Esp => IpProtocol(50, Both),
            Self::Clnp => IsoProtocol(0x81),
            Self::Esis => IsoProtocol(0x82),
            Self::Isis => IsoProtocol(ISIS),
            Self::L1 => IsisTypes(&[26, 24, 18, 15, 17]),
            Self::L2 => IsisTypes(&[27, 25, 20, 16, 17]),
            Self::Iih => IsisTypes(&[17, 15, 16]),
            Self::Lsp => IsisTypes(&[18, 20]),
            Self::Snp => IsisTypes(&[27, 26, 24, 25]),
            Self::Csnp => IsisTypes(&[24, 25]),
            Self::Psnp => IsisTypes(&[26, 27]),
        }
    }

    /// Whether `proto[…]` reads from an IPv4 packet's payload.
    pub(super) fn is_over_ipv4(self) -> bool {
        use Protocol::{Carp, Icmp, Igmp, Igrp, Pim, Sctp, Tcp, Udp, Vrrp};
        matches!(self, Sctp | Tcp | Udp | Icmp | Igmp | Igrp | Pim | Vrrp | Carp)
    }

    /// Whether `proto[…]` reads from the payload of the link layer.
    pub(super) fn is_over_link(self) -> bool {
        use Protocol::{Arp, Atalk, Decnet, Ip, Ip6, Lat, Mopdl, Moprc, Rarp, Sca};
        matches!(self, Ip | Ip6 | Arp | Rarp | Atalk | Decnet | Lat | Sca | Moprc | Mopdl)
    }
}
