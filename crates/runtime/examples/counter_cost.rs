//! Runs a chain of nodes for an instruction counter, to measure the cost of a node boundary with its
//! counters.
//!
//! There are NODES nodes between a source and a sink, for TURNS bursts of 32. `bench/counter-cost.sh` runs it
//! under callgrind and takes differences.
//!
//! The nodes do nothing (`pass`), drop an eighth of the packets for two reasons (`drop`), or free as many
//! without counting (`free`). The difference between `drop` and `free` is the cost of counting drops.

use std::error::Error;

use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::{Context, DropReason, Edge, GraphBuilder, Node, Poll, Shape};

/// Packets in a burst.
const BURST: usize = 32;
/// The reasons for which a node drops packets: one packet of each batch for each.
const REASONS: [DropReason; 4] =
    [DropReason::Denied, DropReason::TtlExpired, DropReason::Denied, DropReason::TtlExpired];

/// A source of full bursts.
struct Source;

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        cx.pool().allocate_into(batch, cx.burst());
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Passes everything on.
struct Wire;

impl Node for Wire {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
}

/// Ends as many packets of each batch as there are [`REASONS`].
struct Sieve {
    counts: bool,
}

impl Node for Sieve {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        for reason in REASONS {
            match batch.pop() {
                Some(packet) if self.counts => cx.drop_packet(packet, reason),
                freed => std::mem::drop(freed),
            }
        }
    }
}

struct Sink;

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Discarded);
    }
    fn shape(&self) -> Shape {
        Shape { outputs: Vec::new(), ..Shape::default() }
    }
}

fn node(kind: &str) -> Result<Box<dyn Node>, String> {
    Ok(match kind {
        "pass" => Box::new(Wire),
        "drop" => Box::new(Sieve { counts: true }),
        "free" => Box::new(Sieve { counts: false }),
        _ => return Err(format!("`{kind}` is none of `pass`, `drop` and `free`")),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [kind, nodes, turns] = arguments.as_slice() else {
        return Err("usage: counter_cost pass|drop|free NODES TURNS".into());
    };
    let (nodes, turns): (u64, u64) = (nodes.parse()?, turns.parse()?);
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(4_096).build()?;
    let mut graph = GraphBuilder::new("chain");
    let mut last = graph.add("source", Box::new(Source))?;
    for i in 0..nodes {
        let next = graph.add(format!("{kind}-{i}"), node(kind)?)?;
        graph.connect(last, Edge::OUT, next, 0)?;
        last = next;
    }
    let sink = graph.add("sink", Box::new(Sink))?;
    graph.connect(last, Edge::OUT, sink, 0)?;
    let mut graph = graph.build(pool)?;
    graph.set_burst(BURST);
    for _ in 0..turns {
        graph.turn(0);
    }
    let totals = graph.totals();
    let burst = BURST as u64;
    let ended = if kind == "pass" { 0 } else { burst.min(nodes * REASONS.len() as u64) };
    let dropped = if kind == "drop" { ended } else { 0 };
    let expected = [burst, dropped, burst - ended].map(|packets| turns * packets);
    let of = |reason| totals.drops.of(reason).packets;
    let found = [totals.received.packets, of(REASONS[0]) + of(REASONS[1]), of(DropReason::Discarded)];
    if found != expected || graph.unbalanced().is_empty() != (kind != "free") {
        let of_what = "packets received, dropped on the way and taken by the sink";
        return Err(format!("expected {expected:?} {of_what}, counted {found:?}").into());
    }
    println!("{}", found[0]);
    Ok(())
}
