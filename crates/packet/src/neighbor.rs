//! Neighbour discovery for IPv6 (RFC 4861, section 4): ICMPv6 types 133 to 137 and their options.

use core::net::Ipv6Addr;

use crate::icmpv6::{Icmpv6, kind};
use crate::mac::MacAddress;
use crate::stack::{Malformed, malformed};

/// A neighbour discovery message.
#[derive(Clone, Debug)]
pub enum Neighbor<'a> {
    /// A host asks for routers.
    RouterSolicitation {
        /// Its options.
        options: NeighborOptions<'a>,
    },
    /// A router announces itself.
    RouterAdvertisement {
        /// The hop limit that hosts should use; 0 for no advice.
        hop_limit: u8,
        /// Addresses are to be had by DHCPv6.
        managed: bool,
        /// Other configuration is to be had by DHCPv6.
        other: bool,
        /// Seconds that it serves as default router; 0 for not at all.
        router_lifetime: u16,
        /// Milliseconds that a neighbour counts as reachable; 0 for no advice.
        reachable_time: u32,
        /// Milliseconds between solicitations; 0 for no advice.
        retransmit_timer: u32,
        /// Its options.
        options: NeighborOptions<'a>,
    },
    /// Asks for the owner of an address.
    NeighborSolicitation {
        /// The address.
        target: Ipv6Addr,
        /// Its options.
        options: NeighborOptions<'a>,
    },
    /// States the owner of an address.
    NeighborAdvertisement {
        /// The address.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces cached entries.
        replaces: bool,
        /// Its options.
        options: NeighborOptions<'a>,
    },
    /// Names a better first hop.
    Redirect {
        /// The better hop, or the destination itself if it is on the link.
        target: Ipv6Addr,
        /// The destination to reach by it.
        destination: Ipv6Addr,
        /// Its options.
        options: NeighborOptions<'a>,
    },
}

impl<'a> Neighbor<'a> {
    /// Reads `payload`, which follows the 8 bytes of `header`.
    pub(crate) fn read(header: &Icmpv6, payload: &'a [u8]) -> Result<Option<Self>, Malformed> {
        fn fixed<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], NeighborOptions<'_>), Malformed> {
            match payload.split_first_chunk::<N>() {
                Some((fixed, rest)) => Ok((fixed, NeighborOptions { rest })),
                None => Err(malformed::<Icmpv6>(
                    "the message ends before its fixed part does",
                    N + 8,
                    payload.len() + 8,
                )),
            }
        }
        let flags = header.rest_of_header();
        Ok(Some(match header.message_type() {
            kind::ROUTER_SOLICITATION => {
                Self::RouterSolicitation { options: NeighborOptions { rest: payload } }
            }
            kind::ROUTER_ADVERTISEMENT => {
                let ([a, b, c, d, e, f, g, h], options) = fixed::<8>(payload)?;
                Self::RouterAdvertisement {
                    hop_limit: (flags >> 24) as u8,
                    managed: flags & 1 << 23 != 0,
                    other: flags & 1 << 22 != 0,
                    router_lifetime: flags as u16,
                    reachable_time: u32::from_be_bytes([*a, *b, *c, *d]),
                    retransmit_timer: u32::from_be_bytes([*e, *f, *g, *h]),
                    options,
                }
            }
            kind::NEIGHBOR_SOLICITATION => {
                let (target, options) = fixed::<16>(payload)?;
                Self::NeighborSolicitation { target: Ipv6Addr::from(*target), options }
            }
            kind::NEIGHBOR_ADVERTISEMENT => {
                let (target, options) = fixed::<16>(payload)?;
                Self::NeighborAdvertisement {
                    target: Ipv6Addr::from(*target),
                    router: flags & 1 << 31 != 0,
                    solicited: flags & 1 << 30 != 0,
                    replaces: flags & 1 << 29 != 0,
                    options,
                }
            }
            kind::REDIRECT => {
                let (target, NeighborOptions { rest }) = fixed::<16>(payload)?;
                let Some((destination, rest)) = rest.split_first_chunk::<16>() else {
                    return Err(malformed::<Icmpv6>(
                        "the message ends before its fixed part does",
                        40,
                        payload.len() + 8,
                    ));
                };
                Self::Redirect {
                    target: Ipv6Addr::from(*target),
                    destination: Ipv6Addr::from(*destination),
                    options: NeighborOptions { rest },
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Its options.
    pub fn options(&self) -> NeighborOptions<'a> {
        match self {
            Self::RouterSolicitation { options }
            | Self::RouterAdvertisement { options, .. }
            | Self::NeighborSolicitation { options, .. }
            | Self::NeighborAdvertisement { options, .. }
            | Self::Redirect { options, .. } => options.clone(),
        }
    }
}

/// An option of neighbour discovery (RFC 4861, section 4.6).
///
/// A known type with another length than the RFC gives is [`Unknown`](NeighborOption::Unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborOption<'a> {
    /// The sender's MAC address.
    SourceLinkLayerAddress(MacAddress),
    /// The target's MAC address.
    TargetLinkLayerAddress(MacAddress),
    /// A prefix on this link.
    Prefix {
        /// The prefix; bits after its length don't count.
        prefix: Ipv6Addr,
        /// Its length in bits, as stated.
        length: u8,
        /// Addresses in it are on this link.
        on_link: bool,
        /// Hosts may make addresses from it (RFC 4862).
        autonomous: bool,
        /// Seconds of validity; all ones means without end.
        valid_lifetime: u32,
        /// Seconds that addresses from it are preferred.
        preferred_lifetime: u32,
    },
    /// The beginning of the packet that caused a redirect.
    RedirectedHeader(&'a [u8]),
    /// The link's MTU, in bytes.
    Mtu(u32),
    /// Any other.
    Unknown {
        /// Its type.
        kind: u8,
        /// All after type and length.
        data: &'a [u8],
    },
}

/// The options of one message, in order. After a wrong length, one error and then nothing.
#[derive(Clone, Debug)]
pub struct NeighborOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for NeighborOptions<'a> {
    type Item = Result<NeighborOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        // RFC 4861, section 4.6: in units of 8 bytes, and 0 makes the whole packet invalid.
        let size = rest.get(1).map_or(0, |length| usize::from(*length) * 8);
        if size == 0 || size > rest.len() {
            return Some(Err(malformed::<Icmpv6>(
                "an option's length is 0 or beyond the message",
                rest.len(),
                size,
            )));
        }
        let (option, rest) = rest.split_at(size);
        self.rest = rest;
        let (kind, data) = (option[0], &option[2..]);
        let address = || data.as_array::<6>().map(|octets| MacAddress::new(*octets));
        let known = match kind {
            1 => address().map(NeighborOption::SourceLinkLayerAddress),
            2 => address().map(NeighborOption::TargetLinkLayerAddress),
            3 => data.as_array::<30>().map(|data| {
                let word =
                    |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
                let mut prefix = [0; 16];
                prefix.copy_from_slice(&data[14..30]);
                NeighborOption::Prefix {
                    prefix: Ipv6Addr::from(prefix),
                    length: data[0],
                    on_link: data[1] & 0x80 != 0,
                    autonomous: data[1] & 0x40 != 0,
                    valid_lifetime: word(2),
                    preferred_lifetime: word(6),
                }
            }),
            4 => data.get(6..).map(NeighborOption::RedirectedHeader),
            5 => data
                .as_array::<6>()
                .map(|[_, _, a, b, c, d]| NeighborOption::Mtu(u32::from_be_bytes([*a, *b, *c, *d]))),
            _ => None,
        };
        Some(Ok(known.unwrap_or(NeighborOption::Unknown { kind, data })))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn an_advertisement_tells_who_has_the_address() {
        let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let mut payload = Vec::from(target.octets());
        payload.extend([2, 1, 2, 0, 0, 0, 0, 9]);
        payload.extend([99, 1, 1, 2, 3, 4, 5, 6]);
        let header = Icmpv6::new(kind::NEIGHBOR_ADVERTISEMENT, 0, 0x6000_0000);
        let Ok(Some(message)) = header.neighbor(&payload) else { panic!("no message") };
        let Neighbor::NeighborAdvertisement { target: found, router, solicited, replaces, .. } = message
        else {
            panic!("another message")
        };
        assert_eq!((found, router, solicited, replaces), (target, false, true, true));
        let options: Vec<_> = message.options().map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                NeighborOption::TargetLinkLayerAddress(MacAddress::new([2, 0, 0, 0, 0, 9])),
                NeighborOption::Unknown { kind: 99, data: &[1, 2, 3, 4, 5, 6] }
            ]
        );
        assert!(header.neighbor(&payload[..15]).is_err());
    }

    #[test]
    fn lengths_that_lie_end_the_options() {
        for bad in [&[1u8][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0, 0, 0]] {
            let mut options = NeighborOptions { rest: bad };
            assert!(options.next().unwrap().is_err());
            assert!(options.next().is_none());
        }
    }
}
