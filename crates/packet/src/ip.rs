//! IPv4 or IPv6 as one header: common fields under one name, the others by `match`.

use core::net::IpAddr;

use crate::ethernet::ethertype;
use crate::ipv4::{Ipv4, Ipv4Mut, Ipv4Ref};
use crate::ipv6::{Ipv6, Ipv6Facts, Ipv6Mut, Ipv6Ref};
use crate::protocol;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, Usual, malformed, shape};

/// The family of both IP versions: `parse::<Ip>()` takes whichever was announced.
#[derive(Debug)]
pub enum Ip {}

/// Set in the number by which a first fragment announces its transport protocol.
///
/// Such a fragment holds the transport header, but not all bytes that this header's length counts. Headers
/// that can be read there list both numbers. If the fragment does not even hold the whole transport header,
/// it announces nothing.
pub const FIRST_FRAGMENT: u16 = 0x100;

/// The number by which a first fragment of protocol `number` announces the header of its `payload`.
///
/// A sender may cut at any place behind the IP header (RFC 791, section 3.2). So a transport header that
/// continues in the next fragment is not malformed: then nothing is announced.
#[cold]
pub(crate) fn announced_by_first_fragment(number: u8, payload: &[u8]) -> u16 {
    let needed = match number {
        protocol::TCP => payload.get(12).map_or(20, |offset| (usize::from(offset >> 4) * 4).max(20)),
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
        _ => 0,
    };
    if payload.len() < needed { NOTHING } else { FIRST_FRAGMENT | u16::from(number) }
}

/// The version, and the results of its parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFacts {
    /// IPv4.
    V4,
    /// IPv6.
    V6(Ipv6Facts),
}

/// The version of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 4.
    V4,
    /// 6.
    V6,
}

/// An IP header, for reading.
#[derive(Clone, Copy)]
pub enum IpRef<'a> {
    /// IPv4.
    V4(Ipv4Ref<'a>),
    /// IPv6.
    V6(Ipv6Ref<'a>),
}

/// An IP header, for writing.
pub enum IpMut<'a> {
    /// IPv4.
    V4(Ipv4Mut<'a>),
    /// IPv6.
    V6(Ipv6Mut<'a>),
}

impl Header for Ip {
    type Facts = IpFacts;
    type Ref<'a> = IpRef<'a>;
    type Mut<'a> = IpMut<'a>;
    const EXACT: bool = true;
    const UNSTATED_IS_EMPTY: bool = true;
    const SHAPES: bool = false;
    const FAST_PATH: bool = true;
    const NAME: &'static str = "ip";
    const FIELDS: &'static [crate::field::Field] = &[];

    #[inline(always)]
    fn find(bytes: &[u8], announced: u16) -> Result<Found<IpFacts>, Malformed> {
        const V4: u16 = protocol::IPV4 as u16;
        const V6: u16 = protocol::IPV6 as u16;
        match announced {
            ethertype::IPV4 | V4 => find_v4(bytes),
            ethertype::IPV6 | V6 => find_v6(bytes),
            // A link without a header, such as a TUN device's: the first nibble gives the version.
            0 => match bytes.first().map(|byte| byte >> 4) {
                Some(4) => find_v4(bytes),
                Some(6) => find_v6(bytes),
                found => Err(malformed::<Self>(
                    "its version is neither 4 nor 6",
                    4,
                    usize::from(found.unwrap_or(0)),
                )),
            },
            other => Err(malformed::<Self>(
                "neither IPv4 nor IPv6 was announced",
                usize::from(ethertype::IPV4),
                usize::from(other),
            )),
        }
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<IpFacts>, Malformed> {
        // `find` checks that an IP header was announced at all; the first nibble gives its version.
        let refused = match Self::find(bytes, announced) {
            Ok(Found { facts: IpFacts::V4, len, total, next }) => {
                return Ok(Found { facts: IpFacts::V4, len, total, next });
            }
            Ok(Found { facts: IpFacts::V6(_), .. }) => None,
            Err(refused) if refused.header == Self::NAME => return Err(refused),
            Err(refused) => Some(refused),
        };
        match (bytes.first().map(|byte| byte >> 4), refused) {
            (Some(4), Some(refused)) if refused.header == Ipv4::NAME => {
                let Found { facts: (), len, total, next } = Ipv4::find_with(bytes, announced, slack)?;
                Ok(Found { facts: IpFacts::V4, len, total, next })
            }
            (Some(6), refused) if refused.is_none_or(|refused| refused.header == Ipv6::NAME) => {
                let Found { facts, len, total, next } = Ipv6::find_with(bytes, announced, slack)?;
                Ok(Found { facts: IpFacts::V6(facts), len, total, next })
            }
            (_, Some(refused)) => Err(refused),
            (_, None) => Self::find(bytes, announced),
        }
    }
    #[inline(always)]
    fn find_usual<const SHAPE: u8>(
        bytes: &[u8],
        at: usize,
        announced: u16,
        usual: Usual,
    ) -> Option<Found<IpFacts>> {
        if announced != Usual::network::<SHAPE>() {
            return None;
        }
        if SHAPE == shape::V6 {
            let Found { facts, len, total, next } = Ipv6::find_usual::<SHAPE>(bytes, at, announced, usual)?;
            return Some(Found { facts: IpFacts::V6(facts), len, total, next });
        }
        let Found { facts: (), len, total, next } = Ipv4::find_usual::<SHAPE>(bytes, at, announced, usual)?;
        Some(Found { facts: IpFacts::V4, len, total, next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], facts: IpFacts) -> IpRef<'_> {
        match facts {
            IpFacts::V4 => IpRef::V4(Ipv4::view(bytes, ())),
            IpFacts::V6(facts) => IpRef::V6(Ipv6::view(bytes, facts)),
        }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], facts: IpFacts) -> IpMut<'_> {
        match facts {
            IpFacts::V4 => IpMut::V4(Ipv4::view_mut(bytes, ())),
            IpFacts::V6(facts) => IpMut::V6(Ipv6::view_mut(bytes, facts)),
        }
    }
    fn announce(header: IpMut<'_>, next: u16) {
        match header {
            IpMut::V4(header) => Ipv4::announce(header, next),
            IpMut::V6(header) => Ipv6::announce(header, next),
        }
    }
    fn set_total(header: IpMut<'_>, total: usize) {
        match header {
            IpMut::V4(header) => Ipv4::set_total(header, total),
            IpMut::V6(header) => Ipv6::set_total(header, total),
        }
    }
}

#[inline(always)]
fn find_v4(bytes: &[u8]) -> Result<Found<IpFacts>, Malformed> {
    let Found { facts: (), len, total, next } = Ipv4::find(bytes, 0)?;
    Ok(Found { facts: IpFacts::V4, len, total, next })
}

#[inline(always)]
fn find_v6(bytes: &[u8]) -> Result<Found<IpFacts>, Malformed> {
    let Found { facts, len, total, next } = Ipv6::find(bytes, 0)?;
    Ok(Found { facts: IpFacts::V6(facts), len, total, next })
}

impl<'a> IpRef<'a> {
    /// The IP header at the start of `bytes` and the payload after it.
    ///
    /// Its length field gives the payload's end, and its first nibble the version.
    ///
    /// # Errors
    /// [`Malformed`] as [`Header::find`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let Found { facts, len, total, .. } = Ip::find(bytes, 0)?;
        let (header, rest) = bytes.split_at(len);
        let payload = &rest[..total.unwrap_or(bytes.len()).saturating_sub(len).min(rest.len())];
        Ok((Ip::view(header, facts), payload))
    }
    /// Bytes of the packet as its header states them, the header included.
    ///
    /// An IPv4 header states 0, and an IPv6 header 40, if the length is stated nowhere or in a jumbo payload
    /// option (RFC 2675).
    #[must_use]
    pub fn stated_len(&self) -> usize {
        match self {
            Self::V4(header) => header.total_length().into(),
            Self::V6(header) => Ipv6::SIZE + usize::from(header.payload_length()),
        }
    }
    /// The version.
    #[inline(always)]
    pub fn version(&self) -> Version {
        match self {
            Self::V4(_) => Version::V4,
            Self::V6(_) => Version::V6,
        }
    }
    /// Hops left: time to live or hop limit.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        match self {
            Self::V4(header) => header.time_to_live(),
            Self::V6(header) => header.hop_limit(),
        }
    }
    /// The transport protocol, in IPv6 after all extension headers.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        match self {
            Self::V4(header) => header.protocol(),
            Self::V6(header) => header.protocol(),
        }
    }
    /// The sender's address.
    #[inline(always)]
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.source()),
            Self::V6(header) => IpAddr::V6(header.source()),
        }
    }
    /// The receiver's address.
    #[inline(always)]
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.destination()),
            Self::V6(header) => IpAddr::V6(header.destination()),
        }
    }
    /// Differentiated services code point, 0 to 63.
    #[inline(always)]
    pub fn dscp(&self) -> u8 {
        match self {
            Self::V4(header) => header.dscp(),
            Self::V6(header) => header.dscp(),
        }
    }
    /// Explicit congestion notification, 0 to 3.
    #[inline(always)]
    pub fn ecn(&self) -> u8 {
        match self {
            Self::V4(header) => header.ecn(),
            Self::V6(header) => header.ecn(),
        }
    }
    /// A part of a larger packet.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        match self {
            Self::V4(header) => header.is_fragment(),
            Self::V6(header) => header.is_fragment(),
        }
    }
    /// Whether it is a part of a larger packet, but not the first: then there is no transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        match self {
            Self::V4(header) => header.is_later_fragment(),
            Self::V6(header) => header.is_later_fragment(),
        }
    }
}

impl IpMut<'_> {
    /// The same header, for reading.
    #[inline(always)]
    pub fn as_ref(&self) -> IpRef<'_> {
        match self {
            Self::V4(header) => IpRef::V4(header.as_ref()),
            Self::V6(header) => IpRef::V6(header.as_ref()),
        }
    }
    /// The version.
    #[inline(always)]
    pub fn version(&self) -> Version {
        self.as_ref().version()
    }
    /// Hops left: time to live or hop limit.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.as_ref().ttl()
    }
    /// The transport protocol, in IPv6 after all extension headers.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.as_ref().protocol()
    }
    /// The sender's address.
    #[inline(always)]
    pub fn source(&self) -> IpAddr {
        self.as_ref().source()
    }
    /// The receiver's address.
    #[inline(always)]
    pub fn destination(&self) -> IpAddr {
        self.as_ref().destination()
    }
    /// Takes one hop off and carries it into IPv4's checksum; 0 stays 0.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        match self {
            Self::V4(header) => header.decrement_ttl(),
            Self::V6(header) => header.decrement_hop_limit(),
        }
    }
    /// Writes the hops left and carries them into IPv4's checksum.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        match self {
            Self::V4(header) => header.set_ttl(ttl),
            Self::V6(header) => header.set_hop_limit(ttl),
        }
    }
    /// Writes the DSCP (its low 6 bits) and carries it into IPv4's checksum.
    #[inline(always)]
    pub fn set_dscp(&mut self, dscp: u8) {
        match self {
            Self::V4(header) => header.set_dscp(dscp),
            Self::V6(header) => header.set_dscp(dscp),
        }
    }
    /// Writes the ECN (its low 2 bits) and carries it into IPv4's checksum.
    #[inline(always)]
    pub fn set_ecn(&mut self, ecn: u8) {
        match self {
            Self::V4(header) => header.set_ecn(ecn),
            Self::V6(header) => header.set_ecn(ecn),
        }
    }
}
