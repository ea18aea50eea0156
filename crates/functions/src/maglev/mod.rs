//! Spreads flows over backends by Maglev's table (NetBricks, Listing 3; Eisenbud et al., NSDI 2016).
//!
//! Every node that knows the same backends decides alike, and established flows stay with their backend.

mod backend;
mod backends;
mod config;
mod handlers;
#[cfg(test)]
mod live;
mod lookup;
mod seats;
mod tally;
#[cfg(test)]
mod tests;
mod why;

pub use backend::{Backend, BackendError};
pub use config::MaglevConfig;
pub use lookup::LookupTable;

use std::net::IpAddr;

use netbricks_core::consistency::{Bounded, BoundedInconsistency};
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, protocol};
use netbricks_core::tables::{Entry, FlowTableConfig, Full};
use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
use netbricks_core::{
    DropReason, Function, Input, LookupHooks, Operator, StoredFlow, TableKey, Verdict, Worker,
};

use backends::Backends;
pub(crate) use backends::{id, secret};
use seats::{Seat, Seats};
use tally::Tally;

use crate::snapshot::Current;

/// Sends every packet for a virtual address to the backend of its flow, by the backend's Ethernet address.
///
/// Addresses and ports stay. So the backend, which has the virtual address too, answers the client itself
/// (direct server return). Packets for other addresses pass unchanged, and so does IPv6 neighbour discovery.
/// While no backend takes new flows, packets of new flows are dropped as `no-route`.
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
    why::declare(addresses.clone(), &backends, &connections, worker);
    let current = Current::of(backends.clone());
    let (seats, tally) = (Seats::new(current.seen()), Tally::new(worker));
    tally.clone().report(seats.ledger(), &backends, &connections, worker);
    let balancer = Balancer { current, seats, tally };
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(Verdict::PASS, move |packet| {
            addresses.is_empty() || is_one_of(&addresses, packet.header().destination())
        })
        .lookup_or(
            &connections,
            |packet| packet.related_flow(),
            balancer,
            |balancer, packet, chosen| {
                let seat = balancer.seats.live(*chosen)?;
                seat.count();
                packet.outer_mut::<Link>().ethernet_mut().set_destination(seat.mac());
                Some(Some(()))
            },
            |balancer, packet, entry| {
                if is_discovery(packet.header(), packet.payload()) {
                    return Some(());
                }
                let seat = balancer.decide(entry, packet.header(), packet.payload())?;
                seat.count();
                packet.outer_mut::<Link>().ethernet_mut().set_destination(seat.mac());
                Some(())
            },
        )
        .filter(DropReason::NoRoute, |packet| packet.get::<Option<()>>().is_some())
        .done()
}

/// Whether a packet is about the owner of an address on this link (ICMPv6 types 133 to 137, RFC 4861).
///
/// Such packets are not for a backend: its answer would bring it all packets of the virtual address. A flow
/// with the same key makes no [connection](connects).
fn is_discovery(header: IpRef<'_>, payload: &[u8]) -> bool {
    matches!(header, IpRef::V6(header) if header.protocol() == protocol::ICMPV6 && !header.is_later_fragment())
        && matches!(payload.first(), Some(133..=137))
}

/// Whether packets of this flow make a connection.
///
/// ICMPv6 with an identifier does. Neighbour discovery between the same addresses has none, and would share the
/// connection of other ICMPv6 without one.
fn connects(flow: &StoredFlow) -> bool {
    let flow = FlowKey::restore(*flow);
    flow.protocol() != protocol::ICMPV6 || flow.source_port() != 0
}

/// Whether `address` is one of `addresses`.
///
/// Not inlined: the number of addresses is known only to the configuration, and the loop over a batch has no
/// room for another loop.
#[inline(never)]
fn is_one_of(addresses: &[IpAddr], address: IpAddr) -> bool {
    addresses.contains(&address)
}

/// Knows the backends, and decides for flows that are unknown or whose backend is gone.
struct Balancer {
    current: Current<Backends>,
    seats: Seats,
    tally: Tally,
}

impl LookupHooks<StoredFlow> for Balancer {
    fn begin(&mut self) {
        if self.current.renew() {
            self.seats.follow(self.current.seen());
        }
    }
    fn expect(&mut self, flow: &StoredFlow) {
        self.current.seen().prefetch(flow);
    }
}

impl Balancer {
    /// The backend of a packet with this IP header and the payload behind it.
    fn decide(
        &mut self,
        entry: Entry<'_, StoredFlow, u64>,
        header: IpRef<'_>,
        payload: &[u8],
    ) -> Option<&Seat> {
        let Self { current, seats, tally } = self;
        // A known flow whose frames have a rarer shape, or that an earlier packet of this batch inserted.
        if let Entry::Found(found) = &entry
            && let Some(seat) = seats.live(*found.get())
        {
            return Some(seat);
        }
        let backends = current.seen();
        let flow = match entry.key() {
            Some(stored) => stored,
            None => FlowKey::related(header, payload).store(),
        };
        match entry {
            Entry::Found(mut found) => {
                let seat = seats.of(backends.elsewhere(*found.get(), &flow)?)?;
                tally.moved.add(1);
                *found.get_mut() = seat.chosen();
                Some(seat)
            }
            // An error makes no connection: anyone may have sent it.
            Entry::Vacant(vacant) if connects(&flow) && !FlowKey::is_error(header, payload) => {
                let seat = seats.of(backends.choose(&flow)?)?;
                tally.assigned.add(1);
                vacant.insert_entry(seat.chosen());
                Some(seat)
            }
            // If there is no room, the packet still passes: the table of backends alone decides.
            Entry::Vacant(_) | Entry::Full => {
                let seat = seats.of(backends.choose(&flow)?)?;
                tally.strangers.add(1);
                Some(seat)
            }
        }
    }
}
