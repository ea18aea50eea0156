//! A worker keeps the times of events.
//!
//! It wakes for them, and jumps to them when only timers move the clock.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use netbricks_core::{Blueprint, Edge, Function, GraphBuilder, GraphError, Input, Operator, Worker, compose};
use netbricks_runtime::{Clock, Factory, Runtime};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::nodes::{PipeSource, Sink, config, pool};

/// Sends a packet every millisecond.
fn beacon(input: Input, worker: &Worker) -> impl Function + use<> {
    worker.invoke_every("send", 1_000_000, |event| {
        event.inject(Edge::OUT, 60, |_| ());
    });
    input.done()
}

/// A beacon into a sink, in a graph that has no source yet.
fn beacons(worker: &Worker) -> Result<GraphBuilder, GraphError> {
    let mut graph = GraphBuilder::new("g");
    let blueprint = Blueprint::new(|worker| compose(worker, |input| beacon(input, worker)));
    let node = graph.add_function("beacon", &blueprint, worker)?;
    let sink = graph.add("out", Box::new(Sink))?;
    graph.connect(node, Edge::OUT, sink, 0)?;
    Ok(graph)
}

#[test]
fn a_quiet_worker_sleeps_until_the_next_event_and_wakes_for_it() {
    let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    let mut source = Some((read, polls));
    let runtime = Runtime::start(config(pool(), 1).clock(Clock::real()), |_| {
        let (pipe, polls) = source.take().unwrap();
        Factory::new(move |context| {
            let mut graph = beacons(context.worker())?;
            let source = graph.add("in", Box::new(PipeSource { pipe, polls, watched: true, other: None }))?;
            let beacon = graph.find("beacon").unwrap();
            graph.connect(source, Edge::OUT, beacon, 0)?;
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    // No packet ever arrives: without its events the worker would sleep for ever.
    while runtime.progress().sent.packets < 20 {
        std::thread::yield_now();
    }
    let report = runtime.stop();
    drop(write);
    assert!(report.workers[0].sleeps >= 10, "{} sleeps", report.workers[0].sleeps);
    assert_eq!(report.totals.created.packets, report.totals.sent.packets);
    assert!(report.conserved && report.pool_whole);
}

#[test]
fn a_driven_clock_goes_from_event_to_event() {
    let runtime = Runtime::start(config(pool(), 1).clock(Clock::Driven), |_| {
        Factory::new(|context| beacons(context.worker())?.build(context.pool().clone()))
    })
    .unwrap();
    while runtime.progress().sent.packets < 1_000 {
        std::thread::yield_now();
    }
    assert_eq!(runtime.control().call(0, "g", "beacon", "send.missed", "").unwrap(), "0");
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole);
}
