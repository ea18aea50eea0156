//! Cost of a fused function, for an instruction counter.
//!
//! It runs `ttl`, fused FUNCTIONS times with itself into one node, for TURNS batches of 32. `bench/fused-cost.sh` runs
//! it under callgrind and takes differences.

use std::error::Error;
use std::path::Path;

use netbricks_core::buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::{
    Context, DropReason, Edge, GraphBuilder, Input, NoSettings, Node, Operator, Poll, Registry, Shape,
    Worker, compose,
};
use netbricks_testkit::build::ethernet;
use toml::Spanned;
use toml::de::DeTable;

// The function and the benchmark's own code: this counts instructions of what `netbricks bench chain-ttl-N-fused` times,
// without a build of all other functions.
extern crate self as netbricks_functions;
#[path = "../../netbricks/src/bench/fused.rs"]
mod fused;
#[path = "../../functions/src/ttl/mod.rs"]
pub mod ttl;

/// Packets in a burst.
const BURST: usize = 32;
/// The TTL with which packets come: more than any chain here takes off.
const FIRST: u8 = 255;
/// Where the TTL stands in an untagged frame (RFC 791 §3.1).
const TTL: usize = 14 + 8;

/// Full bursts of one frame.
struct Source(Vec<u8>);

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        cx.pool().allocate_written_into(batch, cx.burst(), &self.0);
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Takes packets that have this TTL, and no others.
struct Sink(u8);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let done = batch.get(0).is_some_and(|packet| packet.data().get(TTL) == Some(&self.0));
        cx.drop_batch(batch, if done { DropReason::Discarded } else { DropReason::Malformed });
    }
    fn shape(&self) -> Shape {
        Shape { outputs: Vec::new(), ..Shape::default() }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(functions), Some(turns), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: fused_cost FUNCTIONS TURNS (FUNCTIONS is 0, 1, 2, 4, 8, 16 or 64)".into());
    };
    let (functions, turns) = (u8::try_from(functions?)?, turns?);
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(4_096).build()?;
    let mut registry = Registry::new();
    registry.add("wire", "Passes every packet on unchanged.", |_: &NoSettings, worker| {
        compose(worker, |input: Input| input.done())
    });
    fused::register(&mut registry);
    let name = if functions == 0 { "wire".to_owned() } else { format!("ttl-fused-{functions}") };
    let function = registry.get(&name).ok_or_else(|| format!("there is no `{name}`"))?;
    let blueprint = function.configure(Spanned::new(0..0, DeTable::new()), Path::new(""))?;
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(FIRST).udp(1, 2).payload(&[0; 22]).build()?;

    let mut graph = GraphBuilder::new("fused");
    let source = graph.add("source", Box::new(Source(frame)))?;
    let node = graph.add_function("node", &blueprint, &Worker::new(0, 1, pool.clone()))?;
    let sink = graph.add("sink", Box::new(Sink(FIRST - functions)))?;
    graph.connect(source, Edge::OUT, node, 0)?;
    graph.connect(node, Edge::OUT, sink, 0)?;
    let mut graph = graph.build(pool)?;
    graph.set_burst(BURST);
    for _ in 0..turns {
        graph.turn(0);
    }
    let packets = graph.totals().drops.of(DropReason::Discarded).packets;
    if packets != turns * BURST as u64 || !graph.unbalanced().is_empty() {
        return Err(format!(
            "expected {} packets with {functions} hops taken off, found {packets}",
            turns * BURST as u64
        )
        .into());
    }
    println!("{packets}");
    Ok(())
}
