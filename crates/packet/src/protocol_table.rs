//! The table of headers, from which the parser, the builder and the printer take their facts about each.
//!
//! A row says after which headers a header may come and by which numbers those announce it. The first number is
//! the one that an operator or the builder writes. It also says whether and how the header states a length, and
//! which options it may hold. The parser's [`Follows`] is made from it. So is [`Protocol`], by which the builder
//! and the printer know a header without its type.
//!
//! | entry | means |
//! |---|---|
//! | `after Ethernet, Vlan / Link: [0x0800];` | follows Ethernet or a tag, and the family `Link`, announced by this number |
//! | `length behind 6;` | a 16-bit field states the bytes behind its first 6, up to the payload's end |
//! | `length by f;` | `f` tells from the header's bytes how many the field does not count, if it has one |
//! | `options KindLengthData up to 40;` | holds options of this format, at most 40 bytes of them |
//! | `facts f;` | what a parse would remember of a header in the making, told by `f` |
//!
//! Numbers are EtherTypes, IP protocol numbers or UDP destination ports, whichever the header before has.

use crate::arp::Arp;
use crate::checksum;
use crate::ethernet::{Ethernet, ethertype};
use crate::field::Field;
use crate::geneve::Geneve;
use crate::gre::Gre;
use crate::gtpu::Gtpu;
use crate::icmpv4::Icmpv4;
use crate::icmpv6::Icmpv6;
use crate::ip::{FIRST_FRAGMENT, Ip};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::link::Link;
use crate::mpls::Mpls;
use crate::pppoe::{Ppp, PppShape, Pppoe};
use crate::stack::{Follows, Header, Layer, Malformed, Stack, Wire};
use crate::tcp::Tcp;
use crate::udp::Udp;
use crate::vlan::Vlan;
use crate::vxlan::Vxlan;

/// Options that a header may hold behind its fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// How one option ends and the next begins.
    pub(crate) format: OptionFormat,
    /// Bytes of the fixed part.
    pub(crate) fixed: usize,
    /// Bytes of options that the header can hold.
    pub(crate) most: usize,
}

/// How one option ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionFormat {
    /// A kind, a length that counts both, and data (RFC 791, RFC 9293).
    KindLengthData,
    /// IPv6's extension headers (RFC 8200, section 4).
    Extensions,
    /// GRE's words, of which flags tell (RFC 2784, RFC 2890).
    GreWords,
    /// Geneve's options (RFC 8926, section 3.5).
    Geneve,
    /// GTP-U's optional fields and extension headers (3GPP TS 29.281, section 5).
    Gtpu,
}

/// A header that the table knows by its own type.
pub(crate) trait Listed: Header {
    /// Which it is.
    const PROTOCOL: Protocol;
}

/// Writes `impl Follows`: one header after each of several.
macro_rules! follows {
    ($inner:ident, $numbers:tt, $($outer:ident)*) => {
        $( impl Follows<$outer> for $inner { const NUMBERS: &'static [u16] = &$numbers; } )*
    };
}

macro_rules! table {
    (protocols {
        $( $(#[$doc:meta])* $name:ident {
            $( after $($outer:ident),+ $(/ $($family:ident),+)?: $numbers:tt; )*
            $( length behind $uncounted:literal; )?
            $( length by $counts:path; )?
            $( options $format:ident up to $most:literal; )?
            $( facts $facts:path; )?
        } )*
    }
    families {
        $( $group:ident { $( after $($before:ident),+: $announced:tt; )* } )*
    }) => {
        $( $( follows! { $name, $numbers, $($outer)+ $($($family)+)? } )* )*
        $( $( follows! { $group, $announced, $($before)+ } )* )*
        $( impl Listed for $name { const PROTOCOL: Protocol = Protocol::$name; } )*

        /// A header, known by its name and not by its type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            $( $(#[$doc])* $name, )*
        }

        impl Protocol {
            /// All of them.
            const ALL: &'static [Self] = &[$( Self::$name ),*];

            /// Its short name, as tools print it.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => <$name as Header>::NAME, )* }
            }
            /// The fields of its fixed part.
            pub const fn table(self) -> &'static [Field] {
                match self { $( Self::$name => <$name as Header>::FIELDS, )* }
            }
            /// The numbers by which `outer` announces it; none if it may not come there.
            fn numbers_after(self, outer: Self) -> &'static [u16] {
                match self {
                    $( Self::$name => {
                        $( if [$( stringify!($outer) ),+].contains(&outer.type_name()) { return &$numbers; } )*
                        &[]
                    } )*
                }
            }
            const fn type_name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }
            /// Parses the header where `before` ends, with the checks of every other parse.
            ///
            /// Answers where the header ends, where its payload ends, and the number that it announces.
            pub(crate) fn parse<S: Stack>(self, before: S, frame: &[u8]) -> Result<(usize, usize, u16), Malformed> {
                match self {
                    $( Self::$name => {
                        let layer = Layer::<S, $name>::parse(before, frame)?;
                        Ok((layer.end(), layer.limit(frame.len()), layer.next()))
                    } )*
                }
            }
            /// Writes into `header`, under construction, the number that announces the next header.
            pub(crate) fn announce(self, header: &mut [u8], number: u16) {
                match self {
                    $( Self::$name => {
                        let facts = table!(@ facts header $($facts)?);
                        <$name as Header>::announce(<$name as Header>::view_mut(header, facts), number);
                    } )*
                }
            }
            /// Writes into `header`, under construction, the length from its first byte to its payload's
            /// last.
            pub(crate) fn set_total(self, header: &mut [u8], total: usize) {
                match self {
                    $( Self::$name => {
                        let facts = table!(@ facts header $($facts)?);
                        <$name as Header>::set_total(<$name as Header>::view_mut(header, facts), total);
                    } )*
                }
            }
            /// Bytes from the start of `header` that its length field does not count, if it has one.
            pub(crate) fn uncounted(self, header: &[u8]) -> Option<usize> {
                match self { $( Self::$name => table!(@ length header $($uncounted)? $($counts)?), )* }
            }
            /// The options that it may hold.
            pub(crate) const fn options(self) -> Option<Options> {
                match self { $( Self::$name => table!(@ options $name $($format $most)?), )* }
            }
        }
    };
    (@ facts $header:ident) => { () };
    (@ facts $header:ident $facts:path) => { $facts($header) };
    (@ length $header:ident) => { { let _ = $header; None } };
    (@ length $header:ident $uncounted:literal) => { Some($uncounted) };
    (@ length $header:ident $counts:path) => { $counts($header) };
    (@ options $name:ident) => { None };
    (@ options $name:ident $format:ident $most:literal) => {
        Some(Options { format: OptionFormat::$format, fixed: $name::SIZE, most: $most })
    };
}

table! {
    protocols {
        /// Ethernet.
        Ethernet {
            after Wire: [0];
            after Gre, Vxlan, Geneve: [ethertype::TRANSPARENT_ETHERNET];
        }
        /// An 802.1Q or 802.1ad tag.
        Vlan {
            after Ethernet, Vlan: [ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ];
        }
        /// An MPLS label.
        Mpls {
            after Ethernet, Vlan, Gre: [ethertype::MPLS, ethertype::MPLS_MULTICAST];
            after Mpls: [ethertype::MPLS];
        }
        /// PPP over Ethernet.
        Pppoe {
            after Ethernet, Vlan: [ethertype::PPPOE_SESSION, ethertype::PPPOE_DISCOVERY];
            length behind 6;
        }
        /// PPP's protocol field.
        Ppp {
            after Pppoe, Gre: [Pppoe::PPP];
            facts PppShape::of_built;
        }
        /// ARP.
        Arp {
            after Ethernet, Vlan / Link: [ethertype::ARP];
        }
        /// IPv4.
        Ipv4 {
            after Ethernet, Vlan, Mpls, Ppp, Gre, Geneve, Gtpu / Link: [ethertype::IPV4];
            after Ipv4, Ipv6 / Ip: [4];
            length behind 0;
            options KindLengthData up to 40;
        }
        /// IPv6 and its extension headers.
        Ipv6 {
            after Ethernet, Vlan, Mpls, Ppp, Gre, Geneve, Gtpu / Link: [ethertype::IPV6];
            after Ipv4, Ipv6 / Ip: [41];
            length behind 40;
            options Extensions up to 65_535;
            facts Ipv6::facts_of_built;
        }
        /// TCP.
        Tcp {
            after Ipv4, Ipv6 / Ip: [6, FIRST_FRAGMENT | 6];
            options KindLengthData up to 40;
        }
        /// UDP.
        Udp {
            after Ipv4, Ipv6 / Ip: [17, FIRST_FRAGMENT | 17];
            length behind 0;
        }
        /// ICMP.
        Icmpv4 {
            after Ipv4 / Ip: [1, FIRST_FRAGMENT | 1];
        }
        /// ICMPv6.
        Icmpv6 {
            after Ipv6 / Ip: [58, FIRST_FRAGMENT | 58];
        }
        /// GRE.
        Gre {
            after Ipv4, Ipv6 / Ip: [47];
            length by Gre::uncounted;
            options GreWords up to 16;
        }
        /// VXLAN.
        Vxlan {
            after Udp: [Vxlan::PORT];
        }
        /// Geneve.
        Geneve {
            after Udp: [Geneve::PORT];
            options Geneve up to 252;
        }
        /// GTP-U.
        Gtpu {
            after Udp: [Gtpu::PORT];
            length behind 8;
            options Gtpu up to 65_535;
        }
    }
    families {
        Link {
            after Wire: [0];
            after Gre, Vxlan, Geneve: [ethertype::TRANSPARENT_ETHERNET];
        }
        Ip {
            after Wire: [0];
            after Ethernet, Vlan, Link, Mpls, Ppp, Gre, Geneve, Gtpu: [ethertype::IPV4, ethertype::IPV6];
            after Ipv4, Ipv6, Ip: [4, 41];
        }
    }
}

impl Protocol {
    /// The header that a header of this kind announces by `number`, if the table has it.
    pub(crate) fn follower(self, number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|inner| inner.numbers_after(self).contains(&number))
    }
    /// The number by which IP announces it, if it has an Internet checksum over itself and its payload.
    pub(crate) fn checksummed_number(self) -> Option<u8> {
        let after_ip = [Self::Ipv4, Self::Ipv6].map(|ip| self.numbers_after(ip).first().copied());
        let number = after_ip.into_iter().flatten().next()? as u8;
        checksum::field_offset(number).map(|_| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_followed_by_the_announced_protocol() {
        for (outer, number, inner) in [
            (Protocol::Ethernet, 0x0800, Some(Protocol::Ipv4)),
            (Protocol::Vlan, 0x88a8, Some(Protocol::Vlan)),
            (Protocol::Ipv6, 6, Some(Protocol::Tcp)),
            (Protocol::Ipv4, FIRST_FRAGMENT | 6, Some(Protocol::Tcp)),
            (Protocol::Ipv6, 1, None),
            (Protocol::Udp, 4789, Some(Protocol::Vxlan)),
            (Protocol::Tcp, 4789, None),
            (Protocol::Gre, 0x6558, Some(Protocol::Ethernet)),
            (Protocol::Mpls, 0x8848, None),
        ] {
            assert_eq!(outer.follower(number), inner, "{outer:?} {number:#x}");
        }
    }

    #[test]
    fn no_number_announces_two_headers() {
        for outer in Protocol::ALL {
            for number in 0..=u16::MAX {
                let found =
                    Protocol::ALL.iter().filter(|inner| inner.numbers_after(*outer).contains(&number));
                assert!(found.count() <= 1, "{outer:?} {number:#x}");
            }
        }
    }

    #[test]
    fn transports_have_the_numbers_of_their_checksums() {
        let numbers =
            Protocol::ALL.iter().filter_map(|protocol| Some((*protocol, protocol.checksummed_number()?)));
        assert!(numbers.eq([
            (Protocol::Tcp, 6),
            (Protocol::Udp, 17),
            (Protocol::Icmpv4, 1),
            (Protocol::Icmpv6, 58),
        ]));
    }
}
