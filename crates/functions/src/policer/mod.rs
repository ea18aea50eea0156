//! Meters packets by RFC 2697, RFC 2698 or RFC 4115, and drops or marks them by their colour.

mod config;
mod meter;
mod parameters;
mod tally;
#[cfg(test)]
mod tests;

pub use config::{Action, By, Count, Network, PolicerConfig, WhenFull};
pub use meter::{Algorithm, Buckets, Colour, Meter};

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::consistency::{Access, Bounded, BoundedInconsistency, Lookable, Strict};
use netbricks_core::guards::Guards;
use netbricks_core::packet::stack::{Layer, Root};
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Key};
use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
use netbricks_core::{
    BuildError, DropReason, Function, Input, Node, Operator, TableKey, Verdict, View, Worker, compose_guarded,
};

use config::prefix;
use parameters::{Current, First, Parameters};
use tally::Tally;

/// A packet whose IP header is known.
type Packet<'v> = View<'v, Layer<Layer<Root, Link>, Ip>>;

/// The policer that `by` asks for: [`policer_by_flow`] or [`policer_by_address`].
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &PolicerConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    match config.by {
        By::Flow => {
            compose_guarded(worker, Guards::of_passing, |input| policer_by_flow(input, config, worker))
        }
        _ => compose_guarded(worker, Guards::of_passing, |input| policer_by_address(input, config, worker)),
    }
}

/// Meters each flow on its own.
///
/// The meters belong to the worker of the flow, and move with it behind a shuffle.
pub fn policer_by_flow(input: Input, config: &PolicerConfig, worker: &Worker) -> impl Function + use<> {
    let policer = Policer::new(config, worker);
    let meters = worker.flow_table::<FlowKey, Buckets>("meters", policer.table(config, worker));
    explain(&meters, |frame| FlowKey::from_frame(frame).map(FlowKey::store), &policer, worker);
    police(input, &meters, |_| true, |packet| packet.flow_key(), policer)
}

/// Meters what comes from or goes to an address, a network or a subscriber, or all packets together.
///
/// All workers share the meters, so that a rate is that of the whole machine.
pub fn policer_by_address(input: Input, config: &PolicerConfig, worker: &Worker) -> impl Function + use<> {
    let policer = Policer::new(config, worker);
    let table = policer.table(config, worker);
    let capacity = if config.by == By::All { 1 } else { table.capacity };
    let meters = worker.state::<FlowTable<IpAddr, Buckets>, _>(
        "meters",
        Strict,
        FlowTableConfig { capacity, ..table },
    );
    let scope = Scope::of(config);
    let (first, key) = (scope.clone(), scope.clone());
    let of_frame = move |frame: &[u8]| scope.key(Ip::in_frame(frame)?.0);
    explain(&meters, of_frame, &policer, worker);
    let is_metered = move |packet: &Packet<'_>| first.key(packet.header()).is_some();
    // The filter before has seen that there is a key.
    let key = move |packet: &Packet<'_>| key.key(packet.header()).unwrap_or(ALL);
    police(input, &meters, is_metered, key, policer)
}

/// The key of all packets.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The address whose packets share a meter.
#[derive(Clone)]
struct Scope {
    by: By,
    subscribers: Vec<Network>,
    v4: u8,
    v6: u8,
}

impl Scope {
    fn of(config: &PolicerConfig) -> Self {
        let PolicerConfig { by, prefix_v4: v4, prefix_v6: v6, .. } = *config;
        Self { by, subscribers: config.subscribers.clone(), v4, v6 }
    }

    /// The key of a packet with this header; `None` for packets of no subscriber.
    #[inline(always)]
    fn key(&self, header: IpRef<'_>) -> Option<IpAddr> {
        let address = match self.by {
            By::All | By::Flow => return Some(ALL),
            By::Source => header.source(),
            By::Destination => header.destination(),
            By::Subscriber => self.subscriber(header.source(), header.destination())?,
        };
        Some(prefix(address, self.v4, self.v6))
    }

    /// The one of a packet's addresses that is a subscriber's. Not inlined, since it has a loop.
    #[inline(never)]
    fn subscriber(&self, source: IpAddr, destination: IpAddr) -> Option<IpAddr> {
        let is_one = |address: &IpAddr| self.subscribers.iter().any(|network| network.contains(*address));
        [source, destination].into_iter().find(is_one)
    }
}

/// An entry of the table of meters, whichever table it is.
trait MeterEntry {
    /// Gives `f` the buckets, new ones where there are none; `None` where there is no room for them.
    ///
    /// They are forgotten after `refill` ns without a packet.
    fn meter<R>(self, full: Buckets, refill: u64, f: impl FnOnce(&mut Buckets) -> R) -> Option<R>;
}

impl<K: Key> MeterEntry for Entry<'_, K, Buckets> {
    #[inline(always)]
    fn meter<R>(self, full: Buckets, refill: u64, f: impl FnOnce(&mut Buckets) -> R) -> Option<R> {
        let mut entry = match self {
            Entry::Found(found) => found,
            Entry::Vacant(vacant) => vacant.insert_entry(full),
            Entry::Full => return None,
        };
        entry.set_timeout(refill);
        Some(f(entry.get_mut()))
    }
}

/// Everything that decides about a packet beside its meter.
struct Policer {
    current: Current,
    tally: Tally,
    actions: [Action; 3],
    class: Option<u8>,
    aware: bool,
    count: Count,
    full: WhenFull,
}

impl Policer {
    fn new(config: &PolicerConfig, worker: &Worker) -> Self {
        let meter = config.parameters().unwrap_or_else(|error| {
            worker.fail(BuildError::new(error.to_string()));
            let rate = config.cir;
            Meter { algorithm: Algorithm::SingleRate, cir: rate, cbs: 1, other_rate: rate, other_size: 0 }
        });
        let parameters: Bounded<Parameters> =
            worker.state("parameters", BoundedInconsistency { updates: 0 }, First(meter));
        parameters::declare(&parameters, worker);
        let PolicerConfig { class, colour_aware: aware, count, full, .. } = *config;
        let actions = Colour::ALL.map(|colour| config.action(colour));
        let tally = Tally::new(worker);
        tally.clone().report(worker);
        Self { current: Current::of(parameters), tally, actions, class, aware, count, full }
    }

    /// The configuration of the table of meters.
    ///
    /// A meter may be forgotten when its buckets are full again: a new one would be the same.
    fn table(&self, config: &PolicerConfig, worker: &Worker) -> FlowTableConfig {
        FlowTableConfig {
            capacity: config.capacity,
            idle_timeout: Some(self.current.refill().clamp(1_000_000, 86_400_000_000_000)),
            full: match config.full {
                WhenFull::Evict => Full::EvictOldest,
                WhenFull::Pass | WhenFull::Drop => Full::EvictExpired,
            },
            seed: worker.seed(),
        }
    }

    /// Meters a packet and does what its colour asks for.
    #[inline(always)]
    fn decide(&mut self, packet: &mut Packet<'_>, entry: impl MeterEntry) -> Result<(), Verdict> {
        let now = packet.arrived_at();
        let (bytes, dscp) = (counted(packet, self.count), packet.header().dscp());
        let given = if self.aware { Colour::of_dscp(dscp) } else { Colour::Green };
        let meter = *self.current.meter();
        let colour = entry.meter(meter.full(now), self.current.refill(), |buckets| {
            meter.colour(buckets, now, bytes, given)
        });
        let Some(colour) = colour else {
            self.tally.unmetered(bytes);
            return match self.full {
                WhenFull::Drop => Err(Verdict::drop(DropReason::TableFull)),
                WhenFull::Pass | WhenFull::Evict => Ok(()),
            };
        };
        self.tally.count(colour, bytes);
        let marked = match self.actions[colour as usize] {
            Action::Pass => return Ok(()),
            Action::Drop => return Err(Verdict::drop(DropReason::RateLimited)),
            Action::Dscp(dscp) => dscp,
            Action::Mark => match (dscp >> 3, dscp & 7, self.class) {
                (class @ 1..=4, 2 | 4 | 6, _) | (_, _, Some(class)) => colour.dscp_of_class(class),
                _ => return Ok(()),
            },
        };
        if marked != dscp {
            packet.header_mut().set_dscp(marked);
        }
        Ok(())
    }
}

/// The bytes of a packet that count towards its rate.
#[inline(always)]
fn counted(packet: &Packet<'_>, count: Count) -> u64 {
    let stated = packet.header().stated_len();
    // A packet that a device will segment, and a jumbogram, do not state their length.
    if count == Count::Frame {
        packet.frame_len() as u64
    } else if stated > 40 || stated > 0 && matches!(packet.header(), IpRef::V4(_)) {
        stated as u64
    } else {
        packet.frame_len().saturating_sub(packet.outer::<Link>().len()) as u64
    }
}

/// The function over a table of meters of any kind.
fn police<L, K, Q, P, F>(
    input: Input,
    meters: &L,
    is_metered: P,
    key: F,
    mut policer: Policer,
) -> impl Function + use<L, K, Q, P, F>
where
    P: Fn(&Packet<'_>) -> bool + 'static,
    F: Fn(&Packet<'_>) -> Q + 'static,
    L: Lookable<Table = FlowTable<K, Buckets>>,
    K: Key,
    Q: TableKey<Stored = K>,
    for<'e> L::Entry<'e>: MeterEntry,
{
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(Verdict::PASS, is_metered)
        .lookup(meters, key, move |packet, entry| policer.decide(packet, entry))
        .decide(|packet| *packet.get::<Result<(), Verdict>>())
        .done()
}

/// Declares the sentence of a trace: what the packet's meter held before.
fn explain<L, K>(meters: &L, key: impl Fn(&[u8]) -> Option<K> + 'static, policer: &Policer, worker: &Worker)
where
    L: Access<FlowTable<K, Buckets>>,
    FlowTable<K, Buckets>: netbricks_core::consistency::Contents,
    K: Key,
{
    let (meters, current) = (meters.clone(), policer.current.clone());
    worker.explain(move |frame, why| {
        let Some(key) = key(frame) else { return Ok(()) };
        let meter = *current.clone().meter();
        match meters.read(|meters| meters.get(&key).copied()) {
            Some(buckets) => write!(why, "after the packet before it, {}", meter.show(&buckets)),
            None => write!(why, "its meter is new: {}", meter.show(&meter.full(0))),
        }
    });
}
