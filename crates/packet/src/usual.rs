//! Shapes that nearly all frames have, so that a parse of them is mostly constants.

use crate::ethernet::ethertype;
use crate::protocol;
use crate::related::ANY_FRAGMENT;
use crate::stack::Header;

/// The shapes of nearly all frames.
///
/// For each, operators may compile a copy of a function, in which offsets are constants.
///
/// All are Ethernet and a complete IP packet with at least 4 bytes behind its header. The packet is IPv4
/// without options, or IPv6 directly before TCP, UDP or ICMPv6.
pub mod shape {
    /// None of these, or not known.
    pub const ANY: u8 = 0;
    /// IPv4, which most are.
    pub const V4: u8 = 1;
    /// IPv4 behind a VLAN tag.
    pub const TAGGED_V4: u8 = 2;
    /// IPv6, behind a VLAN tag or not.
    pub const V6: u8 = 3;
}

/// A frame with one of the usual [`shape`]s.
///
/// Further facts of the frame stay in registers, so that a second function fused behind a first need not look
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// The number of bytes of the packet behind the ports.
    ///
    /// It is not the length itself, and has 32 bits: so a compiler knows that the ports are in the packet.
    beyond: u32,
    /// Bytes of VLAN tags before IPv6.
    tags: u32,
}

impl Usual {
    /// The number of leading bytes that decide, with the frame's length, whether a frame has a shape.
    ///
    /// Code that writes none of them does not change the answer.
    pub const BYTES: usize = Self::LINK + Self::IPV4;
    /// Bytes of Ethernet, of a VLAN tag, and of the IP headers.
    const LINK: usize = 14;
    const TAG: usize = 4;
    const IPV4: usize = 20;
    const IPV6: usize = 40;
    /// Bytes of two ports.
    ///
    /// The shortest usual packet has room for them, so code that reads them need not check again.
    const PORTS: usize = 4;

    /// Looks whether a frame is of this shape; of none that is [any](shape::ANY).
    #[inline(always)]
    pub fn of<const SHAPE: u8>(frame: &[u8]) -> Option<Self> {
        match SHAPE {
            shape::V4 => Self::v4::<{ Self::LINK }, { Self::LINK + Self::IPV4 + Self::PORTS }>(frame),
            shape::TAGGED_V4 => {
                const LINK: usize = Usual::LINK + Usual::TAG;
                Self::v4::<LINK, { LINK + Self::IPV4 + Self::PORTS }>(frame)
            }
            shape::V6 => Self::v6(frame),
            _ => None,
        }
    }

    #[inline(always)]
    fn v4<const LINK: usize, const SHORTEST: usize>(frame: &[u8]) -> Option<Self> {
        let fixed = frame.first_chunk::<SHORTEST>()?;
        let beyond = Self::beyond([fixed[LINK + 2], fixed[LINK + 3]], Self::IPV4 + Self::PORTS);
        let usual = u16::from_be_bytes([fixed[LINK - 2], fixed[LINK - 1]]) == ethertype::IPV4
            && (LINK == Self::LINK || ethertype::is_vlan(u16::from_be_bytes([fixed[12], fixed[13]])))
            && fixed[LINK] == 0x45
            && beyond as usize <= frame.len() - SHORTEST;
        usual.then_some(Self { beyond, tags: 0 })
    }

    #[inline(always)]
    fn v6(frame: &[u8]) -> Option<Self> {
        let link = frame.first_chunk::<{ Self::LINK + Self::TAG }>()?;
        let tags = match u16::from_be_bytes([link[12], link[13]]) {
            ethertype::IPV6 => 0,
            outer if ethertype::is_vlan(outer) && link[16..] == ethertype::IPV6.to_be_bytes() => Self::TAG,
            _ => return None,
        };
        let ip = frame.get(Self::LINK + tags..)?;
        let fixed = ip.first_chunk::<{ Self::IPV6 + Self::PORTS }>()?;
        let beyond = Self::beyond([fixed[4], fixed[5]], Self::PORTS);
        let usual = fixed[0] >> 4 == 6
            && Self::is_followed_by(fixed[6])
            && beyond as usize <= ip.len() - Self::IPV6 - Self::PORTS;
        usual.then_some(Self { beyond, tags: tags as u32 })
    }

    /// Whether a header of this number may directly follow IPv6's fixed header.
    #[inline(always)]
    pub(crate) fn is_followed_by(number: u8) -> bool {
        matches!(number, protocol::TCP | protocol::UDP | protocol::ICMPV6)
    }

    /// Of a length that is less than `least` it is more than any frame has.
    #[inline(always)]
    fn beyond(length: [u8; 2], least: usize) -> u32 {
        u32::from(u16::from_be_bytes(length)).wrapping_sub(least as u32)
    }

    /// Finds again what [`of`](Self::of) found in a frame of this shape. In another it means nothing.
    #[inline(always)]
    pub(crate) fn again<const SHAPE: u8>(frame: &[u8]) -> Self {
        let tagged = SHAPE == shape::V6
            && frame
                .get(12..)
                .and_then(<[u8]>::first_chunk)
                .is_some_and(|bytes| *bytes != ethertype::IPV6.to_be_bytes());
        let tags = if tagged { Self::TAG as u32 } else { 0 };
        let known = Self { beyond: 0, tags };
        let (length, least) = match SHAPE {
            shape::V6 => (4, Self::PORTS),
            _ => (2, Self::IPV4 + Self::PORTS),
        };
        let length = frame.get(known.link::<SHAPE>() + length..).and_then(<[u8]>::first_chunk);
        Self { beyond: length.map_or(0, |length| Self::beyond(*length, least)), tags }
    }

    /// Whether writing header `H` at offset `at` may change the answer.
    #[inline(always)]
    #[must_use]
    pub fn is_shaped_by<H: Header>(at: usize) -> bool {
        at < Self::BYTES && (H::SHAPES || (at != Self::LINK && at != Self::LINK + Self::TAG))
    }

    /// Bytes before the IP header.
    #[inline(always)]
    pub(crate) fn link<const SHAPE: u8>(self) -> usize {
        match SHAPE {
            shape::V4 => Self::LINK,
            shape::TAGGED_V4 => Self::LINK + Self::TAG,
            _ => Self::LINK + self.tags as usize,
        }
    }

    /// Whether a frame of the shape [`V4`](shape::V4) has ports behind its IP header.
    ///
    /// A fragment has none here, not even a first one.
    #[inline(always)]
    pub fn has_ports(frame: &[u8]) -> bool {
        const END: usize = Usual::LINK + Usual::IPV4 + Usual::PORTS;
        frame.first_chunk::<END>().is_some_and(|bytes| {
            protocol::has_ports(bytes[Self::LINK + 9])
                // Both bytes at once, as the code that makes a key reads them: so the value is read only
                // once.
                && bytes[Self::LINK + 6..]
                    .first_chunk()
                    .is_some_and(|fragment| u16::from_ne_bytes(*fragment) & ANY_FRAGMENT.to_be() == 0)
        })
    }

    /// By which ethertype the IP header is announced.
    #[inline(always)]
    pub(crate) const fn network<const SHAPE: u8>() -> u16 {
        if SHAPE == shape::V6 { ethertype::IPV6 } else { ethertype::IPV4 }
    }

    /// The packet's length in bytes from the IP header's first byte on.
    ///
    /// `None` unless the header is announced by this ethertype and `at` is where it is.
    #[inline(always)]
    pub(crate) fn ip<const SHAPE: u8>(self, at: usize, ethertype: u16) -> Option<usize> {
        let header = if SHAPE == shape::V6 { Self::IPV6 } else { Self::IPV4 };
        let here = SHAPE != shape::ANY && ethertype == Self::network::<SHAPE>() && at == self.link::<SHAPE>();
        here.then_some(header + Self::PORTS + self.beyond as usize)
    }
}
