//! `host`, `net`, and `ether host`: addresses of IP, ARP, RARP, Ethernet and DECnet.

use std::net::Ipv6Addr;

use super::error::Fault;
use super::generator::{Decided, Generator};
use super::program::{Is, Load, Width};
use super::protocol::Protocol;
use super::qualifier::{Address, Direction, Identifier, Qualifiers};

/// An IPv4 address with the mask of the bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ipv4Network {
    address: u32,
    mask: u32,
}

impl Qualifiers {
    pub(super) fn host(self, to: &mut Generator, identifier: Identifier<'_>) -> Decided {
        match identifier {
            Identifier::Ethernet(address) => self.ethernet_host(to, address),
            Identifier::Ipv6(address) => self.ipv6_host(to, address, 128),
            Identifier::Ipv6Prefix(address, length) => self.ipv6_host(to, address, length),
            Identifier::Name(name) => Err(self.no_names(name)),
            Identifier::Number(number) if self.protocol == Some(Protocol::Decnet) => {
                self.decnet_host(to, number)
            }
            Identifier::Dotted(text) if self.protocol == Some(Protocol::Decnet) => {
                let number = decnet_address(text)?;
                self.decnet_host(to, number)
            }
            Identifier::Number(number) => {
                let network = self.short_network(number);
                self.ipv4_host(to, network)
            }
            Identifier::Dotted(text) => {
                let (address, bits) = dotted(text)?;
                self.ipv4_host(to, Ipv4Network { address, mask: leading_ones(bits) })
            }
            Identifier::DottedPrefix(text, length) => {
                if length > 32 {
                    return Err(Fault::new("a prefix length from 0 to 32", "write a number up to 32"));
                }
                self.ipv4_network(to, text, leading_ones(length))
            }
            Identifier::DottedMask(text, mask) => {
                let (mask, _) = dotted(mask)?;
                self.ipv4_network(to, text, mask)
            }
        }
    }

    /// `net 10` is 10.0.0.0/8, while `host 10` is 0.0.0.10.
    fn short_network(self, number: u32) -> Ipv4Network {
        let shift = match self.address {
            Address::Net if number != 0 => number.leading_zeros() / 8 * 8,
            _ => 0,
        };
        Ipv4Network { address: number << shift, mask: u32::MAX << shift }
    }

    fn ipv4_network(self, to: &mut Generator, text: &str, mask: u32) -> Decided {
        let (address, _) = dotted(text)?;
        check_network_bits(address & !mask == 0)?;
        self.check_net()?;
        self.ipv4_host(to, Ipv4Network { address, mask })
    }

    fn check_net(self) -> Result<(), Fault> {
        match self.address {
            Address::Net => Ok(()),
            _ => Err(Fault::new("an address without a prefix length", "write `net` in the place of `host`")),
        }
    }

    fn ipv4_host(self, to: &mut Generator, network: Ipv4Network) -> Decided {
        match self.protocol {
            Some(protocol @ (Protocol::Ip | Protocol::Arp | Protocol::Rarp)) => {
                to.ipv4_address(protocol, self.direction(), network)
            }
            None if to.layers.has_labels() => to.ipv4_address(Protocol::Ip, self.direction(), network),
            None => to.any([Protocol::Ip, Protocol::Arp, Protocol::Rarp], |to, protocol| {
                to.ipv4_address(protocol, self.direction(), network)
            }),
            Some(Protocol::Link) => {
                Err(Fault::new("an Ethernet address", "write for example `ether host 02:00:00:00:00:01`"))
            }
            Some(_) => Err(Fault::new(
                "`ip`, `arp`, `rarp` or nothing before an IPv4 address",
                "write for example `tcp and host 10.0.0.1`",
            )),
        }
    }

    fn ipv6_host(self, to: &mut Generator, address: Ipv6Addr, length: u32) -> Decided {
        if length > 128 {
            return Err(Fault::new("a prefix length from 0 to 128", "write a number up to 128"));
        }
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        let address = address.to_bits();
        check_network_bits(address & !mask == 0)?;
        if length < 128 {
            self.check_net()?;
        }
        if !matches!(self.protocol, None | Some(Protocol::Ip6)) {
            return Err(Fault::new(
                "`ip6` or nothing before an IPv6 address",
                "write for example `tcp and host 2001:db8::1`",
            ));
        }
        self.direction().combine(to, 8, 24, |to, at| to.ipv6_address(at, address, mask))
    }

    fn ethernet_host(self, to: &mut Generator, address: [u8; 6]) -> Decided {
        if self.protocol != Some(Protocol::Link) || self.address != Address::Host {
            return Err(Fault::new(
                "`ether host`, `ether src` or `ether dst` before an Ethernet address",
                "put `ether host` before it",
            ));
        }
        to.ethernet_address(self.direction(), address)
    }

    fn decnet_host(self, to: &mut Generator, address: u32) -> Decided {
        // DECnet's numbers are little-endian.
        let address = u32::from((address as u16).swap_bytes());
        let (source, destination) = ([5, 6, 17, 18], [3, 4, 9, 10]);
        self.direction().combine(to, source, destination, |to, places| to.decnet_address(places, address))
    }

    fn no_names(self, name: &str) -> Fault {
        let help = match (self.protocol, self.address) {
            (Some(Protocol::Link), _) => "names are not looked up; write for example 02:00:00:00:00:01",
            (Some(Protocol::Decnet), _) => "names are not looked up; write for example 10.123",
            (_, Address::Net) => "names of networks are not looked up; write for example 10.1/16",
            _ => "names of hosts are not looked up in DNS; write the address",
        };
        let nearest = super::names::nearest_keyword(name);
        Fault { nearest, ..Fault::new(self.address.expects(), help) }
    }
}

/// A mask of `bits` ones, at most 32.
fn leading_ones(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0)
}

fn check_network_bits(fit: bool) -> Result<(), Fault> {
    match fit {
        true => Ok(()),
        false => Err(Fault::new(
            "a network whose host bits are 0",
            "set the bits outside the mask to 0, or write a longer prefix",
        )),
    }
}

/// An IPv4 address or its first parts, moved to the top, and the number of its bits.
fn dotted(text: &str) -> Result<(u32, u32), Fault> {
    let fault = || Fault::new("an IPv4 address", "write decimal numbers up to 255 with dots between them");
    let (mut address, mut bits) = (0_u32, 0);
    for part in text.split('.') {
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fault());
        }
        let part: u32 = part.parse().ok().filter(|&part| part <= 255).ok_or_else(fault)?;
        address = address << 8 | part;
        bits += 8;
    }
    Ok((address.checked_shl(32 - bits).unwrap_or(0), bits))
}

/// A DECnet address: an area of 6 bits, a dot and a node of 10 bits.
fn decnet_address(text: &str) -> Result<u32, Fault> {
    let parse = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u32>().ok());
    let parts = text.split_once('.').and_then(|(area, node)| Some((parse(area)??, parse(node)??)));
    match parts {
        Some((area @ 0..=63, node @ 0..=1023)) => Ok(area << 10 | node),
        _ => Err(Fault::new("a DECnet address", "write an area up to 63, a dot and a node up to 1023")),
    }
}

impl Generator {
    fn ipv4_address(&mut self, protocol: Protocol, direction: Direction, network: Ipv4Network) -> Decided {
        let (source, destination) = if protocol == Protocol::Ip { (12, 16) } else { (14, 24) };
        direction.combine(self, source, destination, |to, at| {
            let carried = to.selects(protocol.selects())?;
            let address = to.layers.in_network(at, Width::Four);
            to.and(carried, |to| Ok(to.test(address, network.mask, Is::Equal, network.address)))
        })
    }

    fn ipv6_address(&mut self, at: u32, address: u128, mask: u128) -> Decided {
        let mut condition = self.is_ipv6()?;
        for word in 0..4 {
            let shift = 96 - 32 * word;
            let part = self.layers.in_network(at + 4 * word, Width::Four);
            let (address, mask) = ((address >> shift) as u32, (mask >> shift) as u32);
            condition = self.and(condition, |to| Ok(to.test(part, mask, Is::Equal, address)))?;
        }
        Ok(condition)
    }

    pub(super) fn ethernet_address(&mut self, direction: Direction, address: [u8; 6]) -> Decided {
        if !self.layers.is_ethernet() {
            return Err(no_ethernet());
        }
        let address = |to: &mut Self| {
            direction.combine(to, 6, 0, |to, at| {
                let [a, b, c, d, e, f] = address;
                let start = to.layers.in_link(at, Width::Two);
                let end = to.equal(to.layers.in_link(at + 2, Width::Four), u32::from_be_bytes([c, d, e, f]));
                to.and(end, |to| Ok(to.equal(start, u32::from(u16::from_be_bytes([a, b])))))
            })
        };
        match self.has_link_header() {
            Some(present) => self.and(present, address),
            None => address(self),
        }
    }

    /// `multicast` with or without a protocol before it.
    pub(super) fn multicast(&mut self, protocol: Option<Protocol>) -> Decided {
        match protocol {
            None | Some(Protocol::Link) => {
                if !self.layers.is_ethernet() {
                    return Err(no_ethernet());
                }
                let first: Load = self.layers.in_link(0, Width::One);
                match self.has_link_header() {
                    Some(present) => self.and(present, |to| Ok(to.any_bit(first, 1))),
                    None => Ok(self.any_bit(first, 1)),
                }
            }
            Some(Protocol::Ip) => {
                let ip = self.is_ipv4()?;
                let destination = self.layers.in_network(16, Width::One);
                self.and(ip, |to| Ok(to.test(destination, u32::MAX, Is::GreaterOrEqual, 0xe0)))
            }
            Some(Protocol::Ip6) => {
                let ip = self.is_ipv6()?;
                let destination = self.layers.in_network(24, Width::One);
                self.and(ip, |to| Ok(to.equal(destination, 0xff)))
            }
            Some(_) => Err(Fault::new(
                "`ether`, `ip`, `ip6` or nothing before `multicast`",
                "write for example `arp and multicast`",
            )),
        }
    }

    /// `broadcast`; for IP the all-zeros and all-ones addresses, as for a capture whose netmask is unknown.
    pub(super) fn broadcast(&mut self, protocol: Option<Protocol>) -> Decided {
        match protocol {
            None | Some(Protocol::Link) => self.ethernet_address(Direction::Destination, [0xff; 6]),
            Some(Protocol::Ip) => {
                let ip = self.is_ipv4()?;
                let destination = self.layers.in_network(16, Width::Four);
                self.and(ip, |to| to.any([0, u32::MAX], |to, address| Ok(to.equal(destination, address))))
            }
            Some(_) => Err(Fault::new(
                "`ether`, `ip` or nothing before `broadcast`",
                "write for example `arp and broadcast`",
            )),
        }
    }

    /// DECnet phase IV: short and long headers, each with or without a byte of padding.
    fn decnet_address(&mut self, places: [u32; 4], address: u32) -> Decided {
        let [short, padded_short, long, padded_long] = places;
        let flags = self.layers.in_network(2, Width::One);
        let padded = self.layers.in_network(2, Width::Two);
        let forms = [
            (flags, 0x07, 0x02, short),
            (padded, 0xff07, 0x8102, padded_short),
            (flags, 0x07, 0x06, long),
            (padded, 0xff07, 0x8106, padded_long),
        ];
        let decnet = self.selects(Protocol::Decnet.selects())?;
        self.and(decnet, |to| {
            to.any(forms, |to, (field, mask, value, place)| {
                let form = to.test(field, mask, Is::Equal, value);
                to.and(form, |to| Ok(to.equal(to.layers.in_network(place, Width::Two), address)))
            })
        })
    }
}

fn no_ethernet() -> Fault {
    Fault::new("no Ethernet header after `pppoes`", "put this before `pppoes`")
}
