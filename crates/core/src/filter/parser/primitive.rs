//! Primitives: keywords with their qualifiers, identifiers and numbers.

use super::{Context, Parsed, Parser, Part, Result};
use crate::filter::arithmetic::Relation;
use crate::filter::generator::Decided;
use crate::filter::layers::LlcType;
use crate::filter::lexer::{Kind, Symbol};
use crate::filter::names::Keyword;
use crate::filter::program::{Is, Width};
use crate::filter::protocol::Protocol;
use crate::filter::qualifier::{Address, Direction, Identifier, Qualifiers};

impl<'a> Parser<'a> {
    /// A primitive that starts with a keyword.
    pub(super) fn primitive(&mut self) -> Result<Part> {
        let start = self.range().start;
        let Kind::Keyword(keyword) = self.peek() else {
            return Err(self.unexpected("a keyword", "write one"));
        };
        let decided = match keyword {
            Keyword::Protocol(protocol) => {
                self.advance();
                return self.qualified(start, Some(protocol));
            }
            Keyword::Source
            | Keyword::Destination
            | Keyword::Host
            | Keyword::Net
            | Keyword::Port
            | Keyword::PortRange
            | Keyword::Proto
            | Keyword::ProtoChain
            | Keyword::Gateway
            | Keyword::Broadcast
            | Keyword::Multicast => return self.qualified(start, None),
            Keyword::Less | Keyword::Greater => {
                self.advance();
                let number = self.number()?;
                Ok(match keyword {
                    Keyword::Less => self.generator.wire_length(Is::Greater, number).negated(),
                    _ => self.generator.wire_length(Is::GreaterOrEqual, number),
                })
            }
            Keyword::Byte => {
                self.advance();
                self.byte()?
            }
            Keyword::Vlan | Keyword::Mpls | Keyword::Pppoes | Keyword::Geneve => {
                self.advance();
                let number = self.optional_number()?;
                match keyword {
                    Keyword::Vlan => self.generator.vlan(number),
                    Keyword::Mpls => self.generator.mpls(number),
                    Keyword::Pppoes => self.generator.pppoe_session(number),
                    _ => self.generator.geneve(number),
                }
            }
            Keyword::Pppoed => {
                self.advance();
                self.generator.pppoe_discovery()
            }
            Keyword::Llc => {
                self.advance();
                self.llc()
            }
            _ => return Err(self.unexpected("a primitive or a comparison", "write a condition here")),
        };
        self.part(start, decided).map(Part::closed)
    }

    /// A primitive after its protocol, if it has one.
    pub(super) fn qualified(&mut self, start: usize, protocol: Option<Protocol>) -> Result<Part> {
        let direction = self.direction();
        let decided = match self.peek() {
            Kind::Keyword(Keyword::Broadcast) if direction.is_none() => {
                self.advance();
                self.generator.broadcast(protocol)
            }
            Kind::Keyword(Keyword::Multicast) if direction.is_none() => {
                self.advance();
                self.generator.multicast(protocol)
            }
            Kind::Keyword(Keyword::Gateway) => {
                return Err(self.unexpected(
                    "another primitive",
                    "`gateway` needs names in DNS and in /etc/ethers; use `ether host` and `not host`",
                ));
            }
            Kind::Keyword(keyword) => match Address::of(keyword) {
                Some(Address::Proto | Address::ProtoChain) if direction.is_some() => {
                    return Err(self.unexpected(
                        "`host`, `net`, `port`, `portrange` or an address",
                        "a protocol has no direction; remove `src` or `dst`",
                    ));
                }
                Some(address) => {
                    self.advance();
                    return self.first_identifier(Qualifiers { protocol, direction, address });
                }
                None => self.alone(protocol, direction)?,
            },
            _ if direction.is_some() => {
                return self.first_identifier(Qualifiers { protocol, direction, address: Address::Host });
            }
            _ => self.alone(protocol, direction)?,
        };
        self.part(start, decided).map(Part::closed)
    }

    /// A protocol with nothing behind it.
    fn alone(&mut self, protocol: Option<Protocol>, direction: Option<Direction>) -> Result<Decided> {
        match (protocol, direction) {
            (Some(protocol), None) => Ok(self.generator.selects(protocol.selects())),
            _ => {
                Err(self.unexpected("an address, `host`, `net`, `port` or `portrange`", "write one of them"))
            }
        }
    }

    /// `src`, `dst`, or both with `or` or `and` between them.
    fn direction(&mut self) -> Option<Direction> {
        let (first, other) = match self.peek() {
            Kind::Keyword(Keyword::Source) => (Direction::Source, Keyword::Destination),
            Kind::Keyword(Keyword::Destination) => (Direction::Destination, Keyword::Source),
            _ => return None,
        };
        self.advance();
        let joined = match self.peek() {
            Kind::Keyword(Keyword::Or) => Direction::Either,
            Kind::Keyword(Keyword::And) => Direction::Both,
            _ => return Some(first),
        };
        if self.peek_at(1) != Kind::Keyword(other) {
            return Some(first);
        }
        self.advance();
        self.advance();
        Some(joined)
    }

    /// The identifiers after qualifiers: one, or several in parentheses.
    fn first_identifier(&mut self, qualifiers: Qualifiers) -> Result<Part> {
        let start = self.range().start;
        let context = Context { carried: Some(qualifiers), terms: false };
        let part = match self.term(context)? {
            Parsed::Number(number, _) => {
                self.identifier(start, Some(qualifiers), Identifier::Number(number))?
            }
            parsed => self.condition(parsed)?,
        };
        Ok(Part { bare: false, ..part })
    }

    /// An identifier that is no number alone.
    pub(super) fn read_identifier(&mut self) -> Result<Identifier<'a>> {
        let kind = self.peek();
        self.advance();
        let identifier = match kind {
            Kind::Name(name) => Identifier::Name(name),
            Kind::Ethernet(address) => Identifier::Ethernet(address),
            Kind::Ipv6(address) if self.take(Kind::Symbol(Symbol::Slash)) => {
                Identifier::Ipv6Prefix(address, self.number()?)
            }
            Kind::Ipv6(address) => Identifier::Ipv6(address),
            Kind::Dotted(text) if self.take(Kind::Symbol(Symbol::Slash)) => {
                Identifier::DottedPrefix(text, self.number()?)
            }
            Kind::Dotted(text) if self.take(Kind::Keyword(Keyword::Mask)) => match self.peek() {
                Kind::Dotted(mask) => {
                    self.advance();
                    Identifier::DottedMask(text, mask)
                }
                _ => return Err(self.unexpected("a mask", "write for example `mask 255.255.0.0`")),
            },
            Kind::Dotted(text) => Identifier::Dotted(text),
            Kind::Number(number) => Identifier::Number(number),
            _ => return Err(self.unexpected("an identifier", "write a name, a number or an address")),
        };
        Ok(identifier)
    }

    /// `byte 5 = 3`.
    fn byte(&mut self) -> Result<Decided> {
        let place = self.number()?;
        let symbol = self.peek();
        let relation = match symbol {
            Kind::Symbol(Symbol::Equal) => Relation { is: Is::Equal, negated: false },
            Kind::Symbol(Symbol::Greater) => Relation { is: Is::Greater, negated: false },
            Kind::Symbol(Symbol::Less) => Relation { is: Is::GreaterOrEqual, negated: true },
            _ => return Err(self.unexpected("`=`, `<` or `>`", "write for example `ether[5] & 3 != 0`")),
        };
        self.advance();
        let value = self.number()?;
        let load = self.generator.layers.in_link(place, Width::One);
        let condition = self.generator.test(load, u32::MAX, relation.is, value);
        Ok(Ok(if relation.negated { condition.negated() } else { condition }))
    }

    fn llc(&mut self) -> Decided {
        let name = match self.peek() {
            Kind::Name(name) => name,
            // `rnr` is a keyword for another link layer.
            Kind::Keyword(Keyword::Refused(_)) if self.text.get(self.range()) == Some("rnr") => "rnr",
            _ => return self.generator.llc(None),
        };
        self.advance();
        let kind = LlcType::named(name)?;
        self.generator.llc(Some(kind))
    }
}
