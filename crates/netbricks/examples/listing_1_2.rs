//! Listings 1 and 2 of the NetBricks paper (OSDI 2016): the TTL function, and an operator's program around it.
//!
//!     cargo run --example listing_1_2
//!     cargo run --release --example listing_1_2 -- PORTS.toml
//!
//! from the root of the repository. Without a file it makes its own packets. PORTS.toml has `[port.NAME]`
//! tables and `[runtime]` as a chain file has them, and no chains. Its ports both receive and send: `pcap`
//! with `read` and `write`, or a device.

use netbricks::prelude::*;
use netbricks::{ContextError, NetBricksContext, Pipeline};

/// Listing 1: decrements the TTL and drops packets that have none left.
///
/// The paper writes the field and leaves the checksum; `decrement_ttl` does both. Each dropped packet has a
/// reason.
pub fn ttl_nf(input: Pipeline) -> Pipeline {
    input.function("ttl_nf", |input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .transform(|pkt| pkt.header_mut().decrement_ttl())
            .filter(DropReason::TtlExpired, |pkt| pkt.header().ttl() != 0)
            .done()
    })
}

/// Ports for a run without any device: a generator only receives, so its packets leave by another port.
const MADE_UP: &str =
    "[port.lan]\ndriver = \"generator\"\npackets = 100_000\n[port.wan]\ndriver = \"null\"\n";

fn main() -> Result<(), ContextError> {
    let (ctx, pipelines): (_, Vec<_>) = match std::env::args_os().nth(1) {
        // Listing 2: cfg is configuration including the set of ports to use.
        Some(cfg) => {
            let ctx = NetBricksContext::from_file(cfg)?;
            let pipelines = ctx.queues().iter().map(|p| ttl_nf(p.receive()).send(p)).collect();
            (ctx, pipelines)
        }
        None => {
            let ctx = NetBricksContext::from_text(MADE_UP)?;
            let (lan, wan) = (ctx.queues_of("lan"), ctx.queues_of("wan"));
            let pipelines = lan.iter().zip(&wan).map(|(p, q)| ttl_nf(p.receive()).send(q)).collect();
            (ctx, pipelines)
        }
    };
    // Runs until the ports' packets end, or until Ctrl-C.
    let summary = ctx.run(pipelines)?;
    println!("{}", summary.text());
    Ok(())
}
