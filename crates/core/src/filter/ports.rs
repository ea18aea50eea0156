//! `port` and `portrange`.

use super::error::Fault;
use super::generator::{Decided, Generator};
use super::names::{self, Service};
use super::program::{Is, Load, Width};
use super::qualifier::{Direction, Identifier, Qualifiers};

pub(super) const TCP: u32 = 6;
pub(super) const UDP: u32 = 17;
pub(super) const SCTP: u32 = 132;

/// The transport protocols with ports, in the order of tcpdump's tests.
const TRANSPORTS: [u32; 3] = [SCTP, TCP, UDP];

/// A port or a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    One(u32),
    From(u32, u32),
}

impl Qualifiers {
    pub(super) fn port(self, to: &mut Generator, identifier: Identifier<'_>) -> Decided {
        let wanted = self.transport()?;
        let (port, named) = match identifier {
            Identifier::Number(number) => (check(number)?, None),
            Identifier::Name(name) => named_port(name)?,
            _ => return Err(self.wrong_identifier()),
        };
        let transport = reconcile(wanted, named)?;
        to.ports(transport, self.direction(), Ports::One(port))
    }

    pub(super) fn port_range(self, to: &mut Generator, identifier: Identifier<'_>) -> Decided {
        let wanted = self.transport()?;
        let ((first, first_named), (last, last_named)) = match identifier {
            Identifier::Number(number) => ((check(number)?, None), (number, None)),
            Identifier::Name(name) => match name.split_once('-') {
                Some((first, last)) => (named_port(first)?, named_port(last)?),
                None => return Err(self.wrong_identifier()),
            },
            _ => return Err(self.wrong_identifier()),
        };
        let named = first_named.filter(|_| first_named == last_named);
        let transport = reconcile(wanted, named)?;
        to.ports(transport, self.direction(), Ports::From(first.min(last), first.max(last)))
    }
}

fn check(port: u32) -> Result<u32, Fault> {
    match port {
        0..=0xffff => Ok(port),
        _ => Err(Fault::new("a port from 0 to 65535", "write a number up to 65535")),
    }
}

/// A port by name or decimal number, and the transport protocol if only one has the name.
fn named_port(name: &str) -> Result<(u32, Option<u32>), Fault> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((check(name.parse().unwrap_or(u32::MAX))?, None));
    }
    let Some((port, service)) = names::service(name) else {
        return Err(Fault {
            nearest: names::nearest_service(name),
            ..Fault::new("a port from 0 to 65535 or a known service", "write the port's number")
        });
    };
    let transport = match service {
        Service::Tcp => Some(TCP),
        Service::Udp => Some(UDP),
        Service::Both => None,
    };
    Ok((u32::from(port), transport))
}

/// The transport protocol of a qualifier and of a name, which must not contradict each other.
fn reconcile(wanted: Option<u32>, named: Option<u32>) -> Result<Option<u32>, Fault> {
    match (wanted, named) {
        (Some(wanted), Some(named)) if wanted != named => Err(Fault::new(
            "a service of the protocol before `port`",
            "the name belongs to another protocol; write the port's number",
        )),
        (wanted, named) => Ok(wanted.or(named)),
    }
}

impl Generator {
    /// Ports of a transport protocol, or of all; IPv6 comes first, without extension headers.
    fn ports(&mut self, transport: Option<u32>, direction: Direction, ports: Ports) -> Decided {
        let transports: Vec<u32> = TRANSPORTS
            .into_iter()
            .filter(|&number| transport.is_none_or(|transport| transport == number))
            .collect();
        let over_ipv6 = self.is_ipv6()?;
        let over_ipv6 = self.and(over_ipv6, |to| {
            to.any(&transports, |to, &number| {
                let layers = to.layers.clone();
                let transport = to.equal(layers.in_network(6, Width::One), number);
                to.and(transport, |to| {
                    direction
                        .combine(to, 0, 2, |to, at| to.port_at(layers.behind_ipv6(at, Width::Two), ports))
                })
            })
        })?;
        self.or(over_ipv6, |to| {
            let over_ipv4 = to.is_ipv4()?;
            to.and(over_ipv4, |to| {
                to.any(&transports, |to, &number| {
                    let layers = to.layers.clone();
                    let transport = to.equal(layers.in_network(9, Width::One), number);
                    let whole = to.and(transport, |to| Ok(to.is_first_fragment()))?;
                    to.and(whole, |to| {
                        direction
                            .combine(to, 0, 2, |to, at| to.port_at(layers.behind_ipv4(at, Width::Two), ports))
                    })
                })
            })
        })
    }

    fn port_at(&mut self, at: Load, ports: Ports) -> Decided {
        match ports {
            Ports::One(port) => Ok(self.equal(at, port)),
            Ports::From(first, last) => {
                let not_below = self.test(at, u32::MAX, Is::GreaterOrEqual, first);
                self.and(not_below, |to| Ok(to.test(at, u32::MAX, Is::Greater, last).negated()))
            }
        }
    }
}
