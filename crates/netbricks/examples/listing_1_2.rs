//! Listings 1 and 2 of the NetBricks paper (OSDI 2016): the TTL function, and an operator's program around it.
//!
//!     cargo run --release -p netbricks --example listing_1_2 -- PORTS.toml
//!
//! where PORTS.toml has `[port.NAME]` tables and `[runtime]` as a chain file has them, and no chains.

use netbricks::prelude::*;
use netbricks::{ContextError, NetBricksContext, Pipeline};

/// Listing 1: decrements the TTL and drops packets that have none left. Where the paper writes the field and leaves the
/// checksum, `decrement_ttl` does both; what is dropped has a reason.
pub fn ttl_nf(input: Pipeline) -> Pipeline {
    input.function("ttl_nf", |input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .transform(|pkt| pkt.header_mut().decrement_ttl())
            .filter(Drop::TtlExpired, |pkt| pkt.header().ttl() != 0)
            .done()
    })
}

/// Ports for a run without any device.
const MADE_UP: &str = "[port.lan]\ndriver = \"generator\"\npackets = 100_000\n";

fn main() -> Result<(), ContextError> {
    // Listing 2: cfg is configuration including the set of ports to use.
    let ctx = match std::env::args_os().nth(1) {
        Some(cfg) => NetBricksContext::from_file(cfg)?,
        None => NetBricksContext::from_text(MADE_UP)?,
    };
    let pipelines: Vec<_> = ctx.queues().iter().map(|p| ttl_nf(p.receive()).send(p)).collect();
    let summary = ctx.run(pipelines)?;
    println!("{}", summary.text());
    Ok(())
}
