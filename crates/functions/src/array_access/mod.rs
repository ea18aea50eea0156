//! Updates cells of an array that a packet's UDP source port names: the cost of memory accesses (NetBricks, Figure 1).

mod config;
mod state;
#[cfg(test)]
mod tests;

pub use config::ArrayAccessConfig;
pub use state::{CELLS, next_cell};

use netbricks_core::packet::{Ip, Link, Udp};
use netbricks_core::{Function, Input, Operator, Verdict, Worker};

/// Adds 1 to `accesses` cells of an array of 512 KiB for every UDP packet; other packets pass.
///
/// The first cell follows from the source port, and each other one from the cell before it, so that no
/// compiler can know the places. The places are 16-bit numbers, of which the array has as many cells: no access
/// needs a check of its bounds.
pub fn array_access(input: Input, config: &ArrayAccessConfig, worker: &Worker) -> impl Function + use<> {
    let cells = state::declare(worker);
    let accesses = config.accesses;
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Udp>()
        .or(Verdict::PASS)
        .inspect(move |packet| cells.update(packet.header().source_port(), accesses))
        .done()
}
