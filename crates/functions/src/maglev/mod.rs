//! Spreads flows over backends by Maglev's table (NetBricks, Listing 3; Eisenbud et al., NSDI 2016): every node that knows
//! the same backends decides alike, and flows that are established stay where they are.

mod backend;
mod backends;
mod config;
mod handlers;
mod lookup;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendError};
pub use config::MaglevConfig;
pub use lookup::LookupTable;

use std::net::IpAddr;

use netbricks_core::consistency::{Bounded, BoundedInconsistency};
use netbricks_core::packet::stack::{Header, Holds, Stack};
use netbricks_core::packet::{FlowKey, Icmpv4, Icmpv6, Ip, IpRef, Link, MacAddress, protocol};
use netbricks_core::tables::{Entry, FlowTableConfig, Full};
use netbricks_core::view::{Enclosing, IpRewrite, Metadata, View};
use netbricks_core::{Counter, Drop, Function, Input, Operator, Worker};

use backends::{Backends, Current};

/// Sends every packet for a virtual address on to the backend of its flow, by the backend's Ethernet address; addresses and
/// ports stay, so that the backend, which has the virtual address too, answers the client itself (direct server return).
/// What is not for a virtual address passes unchanged. Without any backend that takes new flows, those are dropped as
/// `no-route`.
pub fn maglev(input: Input, config: &MaglevConfig, worker: &Worker) -> impl Function + use<> {
    let backends: Bounded<Backends> =
        worker.state("backends", BoundedInconsistency { updates: 0 }, config.state());
    let connections = worker.flow_table::<FlowKey, u64>(
        "connections",
        FlowTableConfig {
            capacity: config.capacity,
            idle_timeout: Some(config.idle.nanoseconds()),
            full: Full::EvictOldest,
            seed: worker.seed(),
        },
    );
    handlers::declare(&backends, &connections, worker);
    let addresses = config.addresses.clone();
    let mut balancer = Balancer {
        current: Current::of(backends),
        assigned: worker.counter("assigned"),
        moved: worker.counter("moved"),
    };
    input
        .parse_or_pass::<Link>()
        .parse_or_pass::<Ip>()
        .filter_or_pass(move |packet| {
            addresses.is_empty() || addresses.contains(&packet.header().destination())
        })
        .lookup(&connections, connection, move |packet, entry| {
            let mac = match entry {
                Entry::Found(mut flow) => match balancer.current.get().live(*flow.get()) {
                    Some(mac) => mac,
                    None => balancer.reassign(packet, flow.get_mut())?,
                },
                other => balancer.assign(packet, other)?,
            };
            packet.outer_mut::<Link>().ethernet_mut().set_destination(mac);
            Some(())
        })
        .filter(Drop::NoRoute, |packet| packet.get::<Option<()>>().is_some())
        .done()
}

/// Who decides for flows that are not known, or whose backend is gone: few, so that what is done for all others stays
/// small.
struct Balancer {
    current: Current,
    assigned: Counter,
    moved: Counter,
}

impl Balancer {
    #[inline(never)]
    fn assign<S, I>(&mut self, packet: &View<'_, S>, entry: Entry<'_, [u64; 5], u64>) -> Option<MacAddress>
    where
        S: Stack<Top = Ip> + Holds<Ip, I>,
    {
        let (chosen, mac) = self.current.get().choose(&connection(packet))?;
        // Where there is no room nobody is turned away: the table of backends alone decides. An error makes no
        // connection: who sends it may be anybody.
        if let Entry::Vacant(vacant) = entry
            && error(packet).is_none()
        {
            self.assigned.add(1);
            vacant.insert(chosen);
        }
        Some(mac)
    }

    #[cold]
    fn reassign<S, I>(&mut self, packet: &View<'_, S>, flow: &mut u64) -> Option<MacAddress>
    where
        S: Stack<Top = Ip> + Holds<Ip, I>,
    {
        let (chosen, mac) = self.current.get().elsewhere(*flow, &connection(packet))?;
        self.moved.add(1);
        *flow = chosen;
        Some(mac)
    }
}

/// What decides where a packet goes: the flow it belongs to, in the direction of the clients' packets.
#[inline(always)]
fn connection<S, I>(packet: &View<'_, S>) -> FlowKey
where
    S: Stack<Top = Ip> + Holds<Ip, I>,
{
    let header = packet.header();
    let plain = matches!(header.protocol(), protocol::TCP | protocol::UDP) && !header.is_fragment();
    if plain { packet.flow_key() } else { unusual(packet) }
}

#[inline(never)]
fn unusual<S, I>(packet: &View<'_, S>) -> FlowKey
where
    S: Stack<Top = Ip> + Holds<Ip, I>,
{
    if let Some(flow) = error(packet) {
        return flow;
    }
    let header = packet.header();
    if header.is_fragment() {
        return without_ports(header.source(), header.destination(), header.protocol());
    }
    packet.flow_key()
}

/// The flow that an ICMP error is about: what it quotes went from the virtual address to the client.
#[cold]
fn error<S: Stack<Top = Ip>>(packet: &View<'_, S>) -> Option<FlowKey> {
    let quoted = match packet.header() {
        IpRef::V4(header) if header.protocol() == protocol::ICMP && !header.is_later_fragment() => {
            let (icmp, rest) = header_of::<Icmpv4>(packet.payload())?;
            icmp.quoted(rest)?
        }
        IpRef::V6(header) if header.protocol() == protocol::ICMPV6 && !header.is_later_fragment() => {
            let (icmp, rest) = header_of::<Icmpv6>(packet.payload())?;
            icmp.quoted(rest)?
        }
        _ => return None,
    };
    let ip = quoted.ip();
    let plain = !ip.is_fragment();
    // Of what was answered, source and destination change places.
    let flow = if plain {
        quoted.flow().reversed()
    } else {
        without_ports(ip.destination(), ip.source(), ip.protocol())
    };
    Some(flow)
}

/// The header at the start of `bytes`, and what follows it.
fn header_of<H: Header<Facts = ()>>(bytes: &[u8]) -> Option<(H::Ref<'_>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(H::find(bytes, 0).ok()?.len)?;
    Some((H::view(header, ()), rest))
}

/// All fragments of a packet meet, though only the first of them has ports.
fn without_ports(source: IpAddr, destination: IpAddr, protocol: u8) -> FlowKey {
    FlowKey::new(source, destination, 0, 0, protocol)
}
