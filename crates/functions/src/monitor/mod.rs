//! Counts packets and bytes by flow, in a table that forgets idle flows and refuses new ones when full.

mod config;
mod state;
#[cfg(test)]
mod tests;

pub use config::MonitorConfig;

use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig, Full};
use netbricks_core::view::IpRewrite;
use netbricks_core::{Function, Input, Operator, Verdict, Worker};

pub use state::Usage;

/// Counts packets and bytes of every flow.
///
/// Packets are never dropped: one without a flow, or without room in the table, passes uncounted.
pub fn monitor(input: Input, config: &MonitorConfig, worker: &Worker) -> impl Function {
    let flows = worker.flow_table::<FlowKey, Usage>(
        "flows",
        FlowTableConfig {
            capacity: config.capacity,
            idle_timeout: Some(config.idle.nanoseconds()),
            full: Full::EvictExpired,
            seed: worker.seed(),
        },
    );
    state::report(&flows, config.top, worker);
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
                    Entry::Found(mut flow) => flow.get_mut().count(bytes),
                    Entry::Vacant(vacant) => vacant.insert(Usage::default()).count(bytes),
                    Entry::Full => {}
                }
            },
        )
        .done()
}
