//! The qualifiers before an identifier, and the primitive that both make.

use std::net::Ipv6Addr;

use super::error::Fault;
use super::generator::{Condition, Decided, Generator};
use super::names::{self, Keyword};
use super::program::{Load, Width};
use super::protocol::Protocol;

/// `src`, `dst` and their combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Source,
    Destination,
    Either,
    Both,
}

impl Direction {
    /// The condition for the directions that are asked for, the source first.
    pub(super) fn combine<T: Copy>(
        self,
        to: &mut Generator,
        source: T,
        destination: T,
        make: impl Fn(&mut Generator, T) -> Decided,
    ) -> Decided {
        match self {
            Self::Source => make(to, source),
            Self::Destination => make(to, destination),
            Self::Either => {
                let first = make(to, source)?;
                to.or(first, |to| make(to, destination))
            }
            Self::Both => {
                let first = make(to, source)?;
                to.and(first, |to| make(to, destination))
            }
        }
    }
}

/// The meaning of the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
    ProtoChain,
}

impl Address {
    pub(super) fn of(keyword: Keyword) -> Option<Self> {
        match keyword {
            Keyword::Host => Some(Self::Host),
            Keyword::Net => Some(Self::Net),
            Keyword::Port => Some(Self::Port),
            Keyword::PortRange => Some(Self::PortRange),
            Keyword::Proto => Some(Self::Proto),
            Keyword::ProtoChain => Some(Self::ProtoChain),
            _ => None,
        }
    }

    /// The words for what an identifier after the keyword is.
    pub(super) fn expects(self) -> &'static str {
        match self {
            Self::Host => "an address",
            Self::Net => "a network, such as `10.1/16` or `2001:db8::/32`",
            Self::Port => "a port",
            Self::PortRange => "a range of ports, such as `6000-6008`",
            Self::Proto | Self::ProtoChain => "a protocol, by number or name",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub(super) protocol: Option<Protocol>,
    pub(super) direction: Option<Direction>,
    pub(super) address: Address,
}

/// An address, a port or a protocol as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identifier<'a> {
    Number(u32),
    Name(&'a str),
    Dotted(&'a str),
    DottedPrefix(&'a str, u32),
    DottedMask(&'a str, &'a str),
    Ipv6(Ipv6Addr),
    Ipv6Prefix(Ipv6Addr, u32),
    Ethernet([u8; 6]),
}

impl Qualifiers {
    pub(super) fn direction(self) -> Direction {
        self.direction.unwrap_or(Direction::Either)
    }

    /// Emits the primitive of these qualifiers and an identifier.
    pub(super) fn apply(self, to: &mut Generator, identifier: Identifier<'_>) -> Decided {
        match self.address {
            Address::Host | Address::Net => self.host(to, identifier),
            Address::Port => self.port(to, identifier),
            Address::PortRange => self.port_range(to, identifier),
            Address::Proto => {
                let number = self.protocol_number(identifier)?;
                self.proto(to, number)
            }
            Address::ProtoChain => {
                let number = self.protocol_number(identifier)?;
                self.chain(to, number)
            }
        }
    }

    fn protocol_number(self, identifier: Identifier<'_>) -> Result<u32, Fault> {
        let name = match identifier {
            Identifier::Number(number) => return Ok(number),
            Identifier::Name(name) => name,
            _ => return Err(self.wrong_identifier()),
        };
        let (found, nearest) = match self.protocol {
            None | Some(Protocol::Ip | Protocol::Ip6) => {
                (names::ip_protocol(name), names::nearest_ip_protocol(name))
            }
            Some(Protocol::Link) => (names::link_protocol(name), names::nearest_link_protocol(name)),
            Some(Protocol::Iso) => {
                let number = match name {
                    "clnp" => Some(0x81),
                    "esis" => Some(0x82),
                    "isis" => Some(0x83),
                    _ => None,
                };
                (number, names::nearest(name, ["clnp", "esis", "isis"]))
            }
            _ => (None, None),
        };
        found.ok_or_else(|| Fault {
            nearest,
            ..Fault::new("the number or a known name of a protocol", "write the protocol's number")
        })
    }

    pub(super) fn wrong_identifier(self) -> Fault {
        Fault::new(self.address.expects(), "write the number, or use another keyword before it")
    }

    fn proto(self, to: &mut Generator, number: u32) -> Decided {
        match self.protocol {
            None => to.ip_protocol(number, super::protocol::Versions::Both),
            Some(Protocol::Ip) => to.ip_protocol(number, super::protocol::Versions::Four),
            Some(Protocol::Ip6) => to.ip_protocol(number, super::protocol::Versions::Six),
            Some(Protocol::Link) => to.link_type(number),
            Some(Protocol::Iso) => to.iso_protocol(number),
            Some(Protocol::Isis) => to.isis_type(number),
            Some(_) => Err(Fault::new(
                "`ip`, `ip6`, `ether`, `iso`, `isis` or nothing before `proto`",
                "this protocol has no field for what it carries",
            )),
        }
    }

    fn chain(self, to: &mut Generator, number: u32) -> Decided {
        use super::program::Version::{V4, V6};
        if to.layers.is_variable() {
            return Err(Fault::new(
                "`protochain` before `geneve`",
                "behind Geneve the chain's place varies; use `proto` there",
            ));
        }
        match self.protocol {
            Some(Protocol::Ip) => to.protocol_chain(V4, number),
            Some(Protocol::Ip6) => to.protocol_chain(V6, number),
            None => {
                let over_ipv4 = to.protocol_chain(V4, number)?;
                to.or(over_ipv4, |to| to.protocol_chain(V6, number))
            }
            Some(_) => Err(Fault::new(
                "`ip`, `ip6` or nothing before `protochain`",
                "only IP has a chain of headers",
            )),
        }
    }

    /// Whether a protocol before `port` or `portrange` has ports, and which number it has in IP.
    pub(super) fn transport(self) -> Result<Option<u32>, Fault> {
        match self.protocol {
            None => Ok(None),
            Some(Protocol::Tcp) => Ok(Some(super::ports::TCP)),
            Some(Protocol::Udp) => Ok(Some(super::ports::UDP)),
            Some(Protocol::Sctp) => Ok(Some(super::ports::SCTP)),
            Some(_) => Err(Fault::new(
                "`tcp`, `udp`, `sctp` or nothing before `port`",
                "no other protocol has ports; write for example `ip and port 80`",
            )),
        }
    }
}

impl Generator {
    /// IP with a protocol number, for IPv6 also behind one fragment header.
    pub(super) fn ip_protocol(&mut self, number: u32, versions: super::protocol::Versions) -> Decided {
        use super::protocol::Versions;
        match versions {
            Versions::Four => {
                let ip = self.is_ipv4()?;
                self.and(ip, |to| Ok(to.equal(to.layers.in_network(9, Width::One), number)))
            }
            Versions::Six => {
                let ip = self.is_ipv6()?;
                let next = self.layers.in_network(6, Width::One);
                let behind_fragment = self.layers.in_network(40, Width::One);
                self.and(ip, |to| {
                    let direct = to.equal(next, number);
                    to.or(direct, |to| {
                        let fragment = to.equal(next, 44);
                        to.and(fragment, |to| Ok(to.equal(behind_fragment, number)))
                    })
                })
            }
            Versions::Both => {
                let over_ipv4 = self.ip_protocol(number, Versions::Four)?;
                self.or(over_ipv4, |to| to.ip_protocol(number, Versions::Six))
            }
        }
    }

    pub(super) fn iso_protocol(&mut self, number: u32) -> Decided {
        let iso = self.selects(Protocol::Iso.selects())?;
        self.and(iso, |to| Ok(to.equal(to.layers.in_osi(0, Width::One), number)))
    }

    pub(super) fn isis_type(&mut self, kind: u32) -> Decided {
        let isis = self.iso_protocol(super::protocol::ISIS)?;
        self.and(isis, |to| Ok(to.equal(to.layers.in_osi(4, Width::One), kind)))
    }

    fn protocol_chain(&mut self, version: super::program::Version, value: u32) -> Decided {
        use super::program::{Operation, Version};
        let ip = match version {
            Version::V4 => self.is_ipv4()?,
            Version::V6 => self.is_ipv6()?,
        };
        let at = self.layers.in_network(0, Width::One);
        self.and(ip, |to| Ok(to.decide(|exits| Operation::Chain { at, version, value, exits })))
    }

    /// The condition that an IPv4 packet is whole or a first fragment.
    pub(super) fn is_first_fragment(&mut self) -> Condition {
        let field: Load = self.layers.in_network(6, Width::Two);
        self.any_bit(field, 0x1fff).negated()
    }
}
