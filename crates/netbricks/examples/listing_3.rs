//! Listing 3 of the NetBricks paper (OSDI 2016): Maglev as a program's own function.
//!
//! The function returns a pipeline for each backend, and the operator's program sends each pipeline's packets
//! to its backend.
//!
//!     cargo run --example listing_3
//!     cargo run --release --example listing_3 -- PORTS.toml
//!
//! from the root of the repository. PORTS.toml is as for `listing_1_2`; packets leave by its last port. The
//! registered function `maglev` does more than this listing: it handles flows whose backend has gone, ICMP
//! errors, fragments and idle connections.

use netbricks::functions::maglev::{Backend, LookupTable, MaglevConfig};
use netbricks::prelude::*;
use netbricks::{NetBricksContext, Pipeline, Queue, Sent};

/// Listing 3: one pipeline for each backend.
///
/// The lookup table is state of bounded inconsistency; the cache of flows belongs to each worker. State is
/// declared by name, where the paper captures it. The flow itself is the key, where the paper takes a hash,
/// so that no two flows share an entry.
pub fn maglev_nf(
    input: Pipeline,
    backends: &[Backend],
    lut_size: usize,
) -> Result<Vec<Pipeline>, BuildError> {
    let backend_ct = backends.len();
    let lut = MaglevConfig { backends: backends.to_vec(), slots: lut_size, ..MaglevConfig::default() };
    input.shuffle(ShuffleConfig { key: ShuffleKey::Flow, ..ShuffleConfig::default() }).group_by_own(
        GroupConfig { groups: backend_ct, queue: 0 },
        move |groups, worker| {
            groups.node_by(
                worker,
                |input| {
                    let mut lookup_table = LookupTable::new(worker, &lut);
                    let flow_cache =
                        worker.flow_table::<FlowKey, u64>("flow_cache", FlowTableConfig::new(65_536));
                    input
                        .parse::<Link>()
                        .parse::<Ip>()
                        .lookup(
                            &flow_cache,
                            |pkt| pkt.flow_key(),
                            move |pkt, entry| {
                                let mut choose =
                                    || lookup_table.lookup(&pkt.flow_key()).map(|group| group as u64);
                                match entry {
                                    Entry::Found(group) => Some(*group.get()),
                                    Entry::Vacant(place) => choose().map(|group| *place.insert(group)),
                                    Entry::Full => choose(),
                                }
                            },
                        )
                        .filter(DropReason::NoRoute, |pkt| pkt.get::<Option<u64>>().is_some())
                },
                |pkt| pkt.get::<Option<u64>>().map_or(0, |backend_group| backend_group as usize),
            )
        },
    )
}

/// The operator's part: each backend's packets go on with its Ethernet address.
pub fn forward(groups: Vec<Pipeline>, backends: &[Backend], to: &Queue) -> Vec<Sent> {
    let to_backend = |(group, backend): (Pipeline, &Backend)| {
        let mac = backend.mac;
        let rewritten = group.function(&backend.name, move |input| {
            input
                .parse::<Link>()
                .transform(move |pkt| pkt.header_mut().ethernet_mut().set_destination(mac))
                .done()
        });
        rewritten.send(to)
    };
    groups.into_iter().zip(backends).map(to_backend).collect()
}

/// Ports for a run without any device.
const MADE_UP: &str =
    "[port.lan]\ndriver = \"generator\"\npackets = 100_000\nflows = 1_000\n[port.wan]\ndriver = \"null\"\n";

/// The backends of this program.
const BACKENDS: [&str; 3] = ["web-1 02:00:00:00:00:01", "web-2 02:00:00:00:00:02", "web-3 02:00:00:00:00:03"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ctx = match std::env::args_os().nth(1) {
        Some(cfg) => NetBricksContext::from_file(cfg)?,
        None => NetBricksContext::from_text(MADE_UP)?,
    };
    let backends = BACKENDS.iter().map(|backend| backend.parse()).collect::<Result<Vec<Backend>, _>>()?;
    let queues = ctx.queues();
    let last = queues.last().ok_or(BuildError::new("the configuration has no port"))?;
    // Packets that come in at any other port leave by the last port.
    let arriving = queues.iter().filter(|queue| queue.port() != last.port()).map(Queue::receive);
    let groups = maglev_nf(Pipeline::merge(arriving)?, &backends, 65_537)?;
    let summary = ctx.run(forward(groups, &backends, last))?;
    println!("{}", summary.text());
    Ok(())
}
