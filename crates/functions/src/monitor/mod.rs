//! Counts packets and bytes by flow, in a table that forgets idle flows and refuses new ones when full.

mod config;
mod conversation;
mod details;
mod export;
pub mod ipfix;
mod state;
#[cfg(test)]
mod tests;

pub use config::MonitorConfig;
pub use conversation::{Conversation, ConversationKey, Direction, Seen};
pub use details::conversations;

use netbricks_core::guards::Guards;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig, Full};
use netbricks_core::view::IpRewrite;
use netbricks_core::{BuildError, Function, Input, Node, Operator, Verdict, Worker, compose_guarded};

pub use state::Usage;

/// The function that these settings ask for: [`monitor`], or [`conversations`] for details or a collector.
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &MonitorConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    if config.details || config.collector.is_some() {
        compose_guarded(worker, Guards::of_passing, |input| conversations(input, config, worker))
    } else {
        compose_guarded(worker, Guards::of_passing, |input| monitor(input, config, worker))
    }
}

/// Counts packets and bytes of every flow, each direction separately.
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
