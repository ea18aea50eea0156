//! Keeps the processor busy for a number of cycles a packet: a network function of any cost (NetBricks,
//! Figure 9).

mod config;
#[cfg(test)]
mod tests;

pub use config::BusyConfig;

use netbricks_core::tables::cycles;
use netbricks_core::{Function, Input, Operator};

/// Spins `config.cycles` cycles of the time stamp counter for each packet and passes it on unchanged.
pub fn busy(input: Input, config: &BusyConfig) -> impl Function {
    let wanted = config.cycles;
    input
        .inspect(move |_| {
            let start = cycles::now();
            while cycles::now().wrapping_sub(start) < wanted {
                std::hint::spin_loop();
            }
        })
        .done()
}
