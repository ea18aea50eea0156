//! A count by flow under each consistency: measures the cost of sharing state between workers.

use netbricks_core::consistency::{
    Access, BoundedInconsistency, Consistency, Lookable, NoExternalAccess, Shares, Strict,
};
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, MapChange};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Function, Handler, Input, NoSettings, Operator, Registry, StoredFlow, TableKey, Verdict, Worker, compose,
};

use super::feed::FLOWS;

type Flows = FlowTable<StoredFlow, (u64, u64)>;

fn config(worker: &Worker) -> FlowTableConfig {
    FlowTableConfig {
        capacity: 2 * FLOWS,
        idle_timeout: Some(60_000_000_000),
        full: Full::EvictExpired,
        seed: worker.seed(),
    }
}

/// Packets and bytes by flow, as `monitor` counts them.
fn counting<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Flows>: for<'e> Lookable<Table = Flows, Entry<'e> = Entry<'e, StoredFlow, (u64, u64)>>,
{
    let flows = worker.state::<Flows, C>("flows", consistency, config(worker));
    tell(&flows, worker);
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &flows,
            |packet| packet.flow_key(),
            |packet, entry| {
                let bytes = packet.frame_len() as u64;
                match entry {
                    Entry::Found(mut flow) => {
                        let count = flow.get_mut();
                        *count = (count.0 + 1, count.1 + bytes);
                    }
                    Entry::Vacant(vacant) => drop(vacant.insert((1, bytes))),
                    Entry::Full => {}
                }
            },
        )
        .done()
}

/// Adds a handler that tells the state at the end.
///
/// It returns the number of flows, and the sum of each half of their values.
fn tell(flows: &impl Access<Flows>, worker: &Worker) {
    let flows = flows.clone();
    worker.handler(Handler::read("sums", "Flows, and the sums of their values."), move |_| {
        let (count, first, second) = flows.read(|flows| {
            flows.iter().fold((0u64, 0u64, 0u64), |(count, first, second), (_, value)| {
                (count + 1, first + value.0, second + value.1)
            })
        });
        Ok(format!("{count} {first} {second}"))
    });
}

/// Worker 0 writes a mark and the packet's length into each packet's flow; the others read it.
fn cached(input: Input, worker: &Worker) -> impl Function + use<> {
    let bounded = BoundedInconsistency { updates: 64 };
    let flows = worker.state::<Flows, _>("flows", bounded, config(worker));
    tell(&flows, worker);
    let writes = worker.index() == 0;
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .inspect(move |packet| {
            let key: FlowKey = packet.flow_key();
            let key = key.store();
            if writes {
                let value = (1, packet.frame_len() as u64);
                // No other worker writes, so the update cannot fail.
                let _ = flows.update(MapChange::Put { key, value, timeout: None, now: packet.now() });
            } else {
                std::hint::black_box(flows.read(|flows| flows.get(&key).copied()));
            }
        })
        .done()
}

/// Adds `state-own`, `state-strict` and `state-bounded`, which share state through `shares`.
pub(super) fn register(registry: &mut Registry, shares: &Shares) {
    let summary = "Counts by flow, to be measured.";
    registry.add("state-own", summary, |_: &NoSettings, worker| {
        compose(worker, |input| counting(input, worker, NoExternalAccess))
    });
    let strict = shares.clone();
    registry.add("state-strict", summary, move |_: &NoSettings, worker| {
        let worker = worker.sharing(&strict);
        compose(&worker, |input| counting(input, &worker, Strict))
    });
    let bounded = shares.clone();
    registry.add("state-bounded", summary, move |_: &NoSettings, worker| {
        let worker = worker.sharing(&bounded);
        compose(&worker, |input| cached(input, &worker))
    });
}
