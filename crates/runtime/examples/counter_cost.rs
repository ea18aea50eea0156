//! What a node boundary with its counters costs, for an instruction counter: runs NODES nodes that do nothing between
//! a source and a sink for TURNS batches of 32. `bench/counter-cost.sh` runs it under callgrind and takes differences.

use std::error::Error;

use netbricks_buffer::{BATCH, Batch, Pool, WorkerSlot};
use netbricks_core::{Context, Drop, Edge, GraphBuilder, Node, Output, Poll, Role};

struct Source;

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn inputs(&self) -> usize {
        0
    }
    fn is_schedulable(&self) -> bool {
        true
    }
    fn role(&self) -> Role {
        Role::Receive
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        cx.pool().allocate_into(batch, BATCH);
        Poll::Busy
    }
}

struct Wire;

impl Node for Wire {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
}

struct Sink;

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, Drop::Discarded);
    }
    fn outputs(&self) -> Vec<Output> {
        Vec::new()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(nodes), Some(turns), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: counter_cost NODES TURNS".into());
    };
    let (nodes, turns) = (nodes?, turns?);
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(4_096).build()?;
    let mut graph = GraphBuilder::new("chain");
    let mut last = graph.add("source", Box::new(Source))?;
    for i in 0..nodes {
        let wire = graph.add(format!("wire-{i}"), Box::new(Wire))?;
        graph.connect(last, Edge::OUT, wire, 0)?;
        last = wire;
    }
    let sink = graph.add("sink", Box::new(Sink))?;
    graph.connect(last, Edge::OUT, sink, 0)?;
    let mut graph = graph.build(pool)?;
    for _ in 0..turns {
        graph.turn(0);
    }
    let packets = graph.totals().received.packets;
    if packets != turns * BATCH as u64 || !graph.unbalanced().is_empty() {
        return Err(format!("expected {} packets, counted {packets}", turns * BATCH as u64).into());
    }
    println!("{packets}");
    Ok(())
}
