//! `AddressTranslator`: other addresses and ports for IPv6 hosts, fixed or on demand.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{self, ICMP6, Ip6, TCP, UDP, get16, put, set_transport_checksum, set16};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::{SECOND, boolean, integer};

pub(super) const CLASSES: &[Class] =
    &[Class::new("AddressTranslator", address_translator).ports("2/2").processing("h/h")];

/// A mapping that no packet used for so long may be given to another flow (ns).
const IDLE: u64 = 300 * SECOND;

/// Ports that a packet of a new flow looks at, for one that is free.
const LOOKS: usize = 64;

/// An end of a flow.
type End = (Ipv6Addr, u16);

/// A mapping of hosts' addresses: of all their ports, or of one.
struct Fixed {
    inner: End,
    outer: End,
}

/// Addresses that are given to hosts as they come.
#[derive(Default)]
struct Addresses {
    free: VecDeque<Ipv6Addr>,
    /// By host, and the hosts by the address that they got.
    given: HashMap<Ipv6Addr, Ipv6Addr>,
    hosts: HashMap<Ipv6Addr, Ipv6Addr>,
}

/// A flow's mapping: the end that was there, the end that it got, and the other side.
struct Flow {
    protocol: u8,
    own: End,
    peer: End,
    used: u64,
}

/// Ports of one address that are given to flows as they come.
struct Ports {
    address: Ipv6Addr,
    first: u16,
    /// By the place of the port.
    flows: Vec<Option<Flow>>,
    /// Places of ports, by protocol, own end and peer.
    known: HashMap<(u8, End, End), usize>,
    next: usize,
}

/// Addresses for those that no fixed mapping names.
enum Dynamic {
    No,
    Addresses(Addresses),
    Ports(Ports),
}

/// `AddressTranslator(N, [PORTS, MAPPING x N,] DYNAMIC [, DYNAMIC_PORTS, DIRECTION, ADDRESS ...])`: translates
/// addresses and ports of TCP, UDP and ICMPv6 packets over IPv6.
///
/// Packets on input 0 go outward to output 0 with another source, those on input 1 inward to output 1 with another
/// destination. A mapping is `INNER OUTER`, or with ports `INNER PORT OUTER PORT`. Dynamic mappings are made of the
/// addresses, or of the ports `ADDRESS FIRST LAST`, for flows that begin outward (direction 0) or inward (1). A
/// dynamic port that no packet used for five minutes goes to the next flow that needs one.
struct AddressTranslator {
    fixed: Vec<Fixed>,
    with_ports: bool,
    dynamic: RefCell<Dynamic>,
    /// Whether dynamic mappings begin with packets that go inward.
    inward: bool,
}

fn address_translator(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let list = arguments.rest();
    match configure(&list, setup) {
        Ok(element) => Some(Rc::new(element)),
        Err((_, "")) => None,
        Err((number, expected)) => {
            setup.errors.error(&format!("argument {number} should be : {expected}"));
            None
        }
    }
}

/// The number of a wrong argument, and what it should be: empty where the error has been told.
type Wrong = (usize, &'static str);

fn truth(list: &[String], number: usize) -> Result<bool, Wrong> {
    list.get(number).and_then(|text| boolean(text)).ok_or((number, "bool"))
}

fn port(text: Option<&String>) -> Option<u16> {
    u16::try_from(integer(text?)?).ok()
}

fn fixed(text: &str, with_ports: bool, at: At<'_>) -> Option<Fixed> {
    let words = text::split_words(text);
    let address = |number: usize| Ipv6Addr::parse(words.get(number)?, at).ok();
    if with_ports {
        let inner = (address(0)?, port(words.get(1))?);
        return Some(Fixed { inner, outer: (address(2)?, port(words.get(3))?) });
    }
    Some(Fixed { inner: (address(0)?, 0), outer: (address(1)?, 0) })
}

fn configure(list: &[String], setup: &Setup<'_>) -> Result<AddressTranslator, Wrong> {
    let at = setup.at;
    let count = list.first().and_then(|text| integer(text)).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or((0, "integer"))?;
    let mut translator = AddressTranslator {
        fixed: Vec::new(),
        with_ports: false,
        dynamic: RefCell::new(Dynamic::No),
        inward: false,
    };
    let mut place = 1;
    if count > 0 {
        translator.with_ports = truth(list, 1)?;
        for number in 2..count.saturating_add(2) {
            let text = list.get(number).ok_or((number, "<mapping>"))?;
            let mapping = fixed(text, translator.with_ports, at).ok_or((number, "<mapping>"))?;
            translator.fixed.push(mapping);
        }
        place = count + 2;
    }
    if !truth(list, place)? {
        return Ok(translator);
    }
    let with_ports = truth(list, place + 1)?;
    translator.inward = truth(list, place + 2)?;
    let rest = list.get(place + 3..).unwrap_or_default();
    let dynamic = if with_ports {
        let ports =
            ports(rest.first(), at).ok_or((place + 3, "<IP6Address> <unsigned char> <unsigned char>"))?;
        if !setup.has_room("DYNAMIC_PORTS", ports.most_memory()) {
            return Err((place + 3, ""));
        }
        Dynamic::Ports(ports)
    } else {
        let mut addresses = Addresses::default();
        for (number, text) in rest.iter().enumerate() {
            let address = Ipv6Addr::parse(text, at).map_err(|_| (place + 3 + number, "<IP6Address>"))?;
            addresses.free.push_back(address);
        }
        Dynamic::Addresses(addresses)
    };
    translator.dynamic = RefCell::new(dynamic);
    Ok(translator)
}

fn ports(text: Option<&String>, at: At<'_>) -> Option<Ports> {
    let words = text::split_words(text?);
    let address = Ipv6Addr::parse(words.first()?, at).ok()?;
    let (first, last) = (port(words.get(1))?, port(words.get(2))?);
    let count = usize::from(last.checked_sub(first)?) + 1;
    let flows = std::iter::repeat_with(|| None).take(count).collect();
    // The table has its size from the start: to grow takes long where it is large.
    Some(Ports { address, first, flows, known: HashMap::with_capacity(count), next: 0 })
}

/// Why a packet has no mapping.
enum Miss {
    Unknown,
    Full,
}

impl Ports {
    /// Bytes that it takes with a flow for each port.
    fn most_memory(&self) -> usize {
        let known = size_of::<((u8, End, End), usize)>() + 1;
        self.flows.capacity() * size_of::<Option<Flow>>() + self.known.capacity() * known
    }
    fn port(&self, place: usize) -> u16 {
        self.first.saturating_add(u16::try_from(place).unwrap_or(u16::MAX))
    }
    /// The end that a flow gets; made where it has none.
    fn give(&mut self, protocol: u8, own: End, peer: End, now: u64) -> Result<End, Miss> {
        if let Some(&place) = self.known.get(&(protocol, own, peer)) {
            if let Some(Some(flow)) = self.flows.get_mut(place) {
                flow.used = now;
            }
            return Ok((self.address, self.port(place)));
        }
        let count = self.flows.len();
        let is_free = |flow: &Option<Flow>| match flow {
            None => true,
            Some(flow) => now.saturating_sub(flow.used) > IDLE,
        };
        let mut places = (0..count.min(LOOKS)).map(|step| (self.next + step) % count);
        let Some(place) = places.find(|place| is_free(&self.flows[*place])) else {
            // The next packet looks further, so that each costs little where all ports are taken.
            self.next = (self.next + count.min(LOOKS)) % count;
            return Err(Miss::Full);
        };
        self.next = (place + 1) % count;
        let flow = Flow { protocol, own, peer, used: now };
        if let Some(before) = self.flows[place].replace(flow) {
            self.known.remove(&(before.protocol, before.own, before.peer));
        }
        self.known.insert((protocol, own, peer), place);
        Ok((self.address, self.port(place)))
    }
    /// The end that got a port, for a packet that comes back from the peer.
    fn back(&mut self, protocol: u8, got: End, peer: End, now: u64) -> Option<End> {
        let place = usize::from(got.1.checked_sub(self.first)?);
        let flow = self.flows.get_mut(place)?.as_mut()?;
        let same = got.0 == self.address && flow.peer == peer && flow.protocol == protocol;
        if same {
            flow.used = now;
        }
        same.then_some(flow.own)
    }
}

impl Addresses {
    fn give(&mut self, own: Ipv6Addr) -> Result<Ipv6Addr, Miss> {
        if let Some(got) = self.given.get(&own) {
            return Ok(*got);
        }
        let got = self.free.pop_front().ok_or(Miss::Full)?;
        self.given.insert(own, got);
        // An address that is there twice leads back to the host that had it first.
        self.hosts.entry(got).or_insert(own);
        Ok(got)
    }
    fn back(&self, got: Ipv6Addr) -> Option<Ipv6Addr> {
        self.hosts.get(&got).copied()
    }
}

impl AddressTranslator {
    /// The end that a packet gets in the place of its own.
    fn map(&self, inward: bool, protocol: u8, own: End, peer: End, now: u64) -> Result<End, Miss> {
        for Fixed { inner, outer } in &self.fixed {
            let (from, to) = if inward { (outer, inner) } else { (inner, outer) };
            if from.0 == own.0 && (!self.with_ports || from.1 == own.1) {
                return Ok((to.0, if self.with_ports { to.1 } else { own.1 }));
            }
        }
        let begins = inward == self.inward;
        match &mut *self.dynamic.borrow_mut() {
            Dynamic::No => Err(Miss::Unknown),
            Dynamic::Addresses(addresses) => {
                let address = if begins {
                    addresses.give(own.0)?
                } else {
                    addresses.back(own.0).ok_or(Miss::Unknown)?
                };
                Ok((address, own.1))
            }
            Dynamic::Ports(ports) if begins => ports.give(protocol, own, peer, now),
            Dynamic::Ports(ports) => ports.back(protocol, own, peer, now).ok_or(Miss::Unknown),
        }
    }
}

/// Places of a packet's ports: source and destination. ICMPv6 echoes have one identifier for both.
fn places(protocol: u8, segment: &[u8]) -> Option<Option<[usize; 2]>> {
    match protocol {
        TCP if segment.len() >= 20 => Some(Some([0, 2])),
        UDP if segment.len() >= 8 => Some(Some([0, 2])),
        ICMP6 if segment.len() >= 8 => Some(matches!(segment[0], 128 | 129).then_some([4, 4])),
        _ => None,
    }
}

impl Element for AddressTranslator {
    fn memory(&self) -> usize {
        let of_dynamic = match &*self.dynamic.borrow() {
            Dynamic::No => 0,
            Dynamic::Addresses(addresses) => {
                let given = addresses.given.capacity() + addresses.hosts.capacity();
                addresses.free.capacity() * size_of::<Ipv6Addr>() + given * size_of::<[Ipv6Addr; 2]>()
            }
            Dynamic::Ports(ports) => ports.most_memory(),
        };
        self.fixed.capacity() * size_of::<Fixed>() + of_dynamic
    }
    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        let inward = input == 1;
        let Some(ip) = Ip6::read(packet.data()).filter(|ip| ip.version() == 6) else {
            at.drop_packet(packet, DropReason::Malformed);
            return;
        };
        let (protocol, segment) = (ip.next(), ip.payload());
        let Some(places) = places(protocol, segment) else {
            at.complain(|| " discard the packet, protocol unrecognized".into());
            at.drop_packet(packet, DropReason::Unmatched);
            return;
        };
        let ports = places.map_or([0, 0], |places| places.map(|place| get16(segment, place)));
        let (source, destination) = ((ip.source(), ports[0]), (ip.destination(), ports[1]));
        let (own, mut peer) = if inward { (destination, source) } else { (source, destination) };
        if protocol == ICMP6 {
            peer.1 = 0;
        }
        let (address, port) = match self.map(inward, protocol, own, peer, at.steady()) {
            Ok(end) => end,
            Err(miss) => {
                let reason = match miss {
                    Miss::Unknown => DropReason::Denied,
                    Miss::Full => {
                        at.complain(|| "AddressTranslator ran out of ports".into());
                        DropReason::TableFull
                    }
                };
                at.drop_packet(packet, reason);
                return;
            }
        };
        let data = packet.data_mut();
        put(data, if inward { header::DESTINATION } else { header::SOURCE }, &address.octets());
        if let Some(places) = places {
            set16(data, header::LENGTH + places[usize::from(inward)], port);
        }
        set_transport_checksum(data);
        at.push(usize::from(inward), packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_are_given_and_a_full_range_is_searched_in_steps() {
        const COUNT: u16 = 500;
        let address = Ipv6Addr::LOCALHOST;
        let flows = std::iter::repeat_with(|| None).take(COUNT.into()).collect();
        let mut ports = Ports { address, first: 1_000, flows, known: HashMap::new(), next: 0 };
        let own = |port: u16| (Ipv6Addr::UNSPECIFIED, port);
        let mut give = |port: u16, now: u64| ports.give(TCP, own(port), own(0), now).ok().map(|end| end.1);
        for port in 0..COUNT {
            assert_eq!(give(port, 0), Some(1_000 + port));
        }
        assert_eq!(give(COUNT, 1), None);
        // All but one are used again later.
        for port in (0..COUNT).filter(|port| *port != 300) {
            assert_eq!(give(port, IDLE), Some(1_000 + port));
        }
        let tries = usize::from(COUNT).div_ceil(LOOKS);
        let found: Vec<u16> = (0..tries).filter_map(|_| give(COUNT, IDLE + 1)).collect();
        assert_eq!(found.first(), Some(&1_300));
        // Each of those that found none looked at few.
        assert!(found.len() < tries);
    }
}
