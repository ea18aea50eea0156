//! Tests of drivers that panic. An author may write a driver.
//!
//! A queue that panics loses the packets that its call had in hand. Port, line and law of conservation go on
//! as before.

use std::sync::{Arc, Mutex};

use netbricks_buffer::Batch;
use netbricks_core::graph::observe_panics;
use netbricks_core::{Context, DropReason, Graph, NoSettings, Poll, Totals};
use toml::de::DeTable;

use crate::port::{Capabilities, Counters, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::testing::*;
use crate::{Drivers, OpenContext, PortDriver};

/// A port whose queues panic halfway through every n-th call.
struct Shaky {
    port: Box<dyn Port>,
    every: u32,
}

struct Queue<Q: ?Sized> {
    every: u32,
    calls: u32,
    inner: Box<Q>,
}

impl<Q: ?Sized> Queue<Q> {
    fn breaks(&mut self) -> bool {
        self.calls += 1;
        self.calls.is_multiple_of(self.every)
    }
}

impl Port for Shaky {
    fn driver(&self) -> &'static str {
        "shaky"
    }
    fn name(&self) -> &str {
        self.port.name()
    }
    fn mtu(&self) -> usize {
        self.port.mtu()
    }
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.port.counters()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        Ok(Box::new(Queue { every: self.every, calls: 0, inner: self.port.take_receive(queue)? }))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        Ok(Box::new(Queue { every: self.every, calls: 0, inner: self.port.take_transmit(queue)? }))
    }
}

impl ReceiveQueue for Queue<dyn ReceiveQueue> {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        assert!(batch.is_empty(), "as the trait promises");
        let poll = self.inner.receive(batch, cx);
        assert!(!self.breaks(), "shaky receive");
        poll
    }
}

impl TransmitQueue for Queue<dyn TransmitQueue> {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        if self.breaks() {
            let mut half = Batch::new();
            batch.take_front(batch.len() / 2, &mut half);
            self.inner.transmit(&mut half, cx);
            panic!("shaky transmit");
        }
        self.inner.transmit(batch, cx);
    }
}

/// Hands out one port that is open already.
struct ShakyDriver(Mutex<Option<Box<dyn Port>>>, u32);

impl PortDriver for ShakyDriver {
    type Settings = NoSettings;
    const NAME: &'static str = "shaky";
    const SUMMARY: &'static str = "Panics.";
    fn open(&self, _: &str, _: &NoSettings, _: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Shaky { port: self.0.lock().unwrap().take().unwrap(), every: self.1 }))
    }
}

/// A shaky port, with the wrappers of its common settings.
fn shaky(port: Box<dyn Port>, every: u32, settings: &str, cx: &OpenContext) -> Box<dyn Port> {
    observe_panics();
    let mut drivers = Drivers::new();
    drivers.add(ShakyDriver(Mutex::new(Some(port)), every));
    drivers.get("shaky").unwrap().open("under-test", DeTable::parse(settings).unwrap(), cx).unwrap()
}

/// Takes a graph down; answers its totals and the number of panics.
fn down(mut graph: Graph, now: u64) -> (Totals, u64) {
    assert_eq!(graph.drain(now), 0);
    let totals = graph.totals();
    assert!(totals.is_conserved() && graph.unbalanced().is_empty(), "{totals:?}");
    (totals, graph.nodes().map(|node| node.counters.panics).sum())
}

const TRAFFIC: &str =
    "packets = 2000\nrate = '32 kpps'\npayload = 'pattern'\nframe_sizes = [60, 900]\nseed = 3";
const LINES: [&str; 4] = [
    "",
    "delay = '5 ms'",
    "duplicate = 0.3\nreorder = 0.2",
    "loss = 0.1\nduplicate = 0.2\nreorder = 0.1\ncorrupt = 0.1\ndelay = '4 ms'\njitter = '3 ms'\nlimit = 200",
];

#[test]
fn a_receive_queue_that_panics_now_and_then_loses_what_it_had_and_keeps_its_line() {
    for burst in BURSTS {
        for line in LINES {
            let (pool, directory) = (pool(), Directory::new("shaky-receive"));
            let cx = context(&pool, &directory);
            let mut from = shaky(open("generator", TRAFFIC, &cx).unwrap(), 7, line, &cx);
            let (mut to, far) = collector(&pool);
            let mut graph = joined(from.as_mut(), &mut to, &pool, burst);
            let now = run(&mut graph, |_| false);
            assert_eq!(graph.totals().held, 0, "it ends only when nothing is held");
            let (totals, panics) = down(graph, now);
            // Packets that came with a panic count as received too.
            assert_eq!(totals.received.packets, 2_000, "{line} at {burst}");
            let lost = totals.drops.of(DropReason::Panicked).packets;
            assert!(panics > 2 && lost >= panics, "{line} at {burst}: {lost} in {panics}");
            let arrived = collected(&far);
            assert_eq!(arrived.len() as u64, totals.sent.packets);
            if line == LINES[1] {
                // The generator's first packet comes at time 0: a packet earlier than the delay was not
                // delayed.
                assert!(arrived.iter().all(|(time, _)| *time >= 5_000_000), "burst {burst}");
            }
            std::mem::drop(from);
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

#[test]
fn a_transmit_queue_that_panics_now_and_then_sends_nothing_that_was_counted_as_lost() {
    for burst in BURSTS {
        // Half of the packets exceed this MTU: they are separated before the queue sees the others.
        for line in LINES.into_iter().chain(["mtu = 500"]) {
            let (pool, directory) = (pool(), Directory::new("shaky-transmit"));
            let cx = context(&pool, &directory);
            let mut from = open("generator", TRAFFIC, &cx).unwrap();
            let (port, far) = collector(&pool);
            let mut to = shaky(Box::new(port), 7, line, &cx);
            let mut graph = joined(from.as_mut(), to.as_mut(), &pool, burst);
            let now = run(&mut graph, |_| false);
            let (totals, panics) = down(graph, now);
            assert_eq!(totals.received.packets, 2_000);
            let lost = totals.drops.of(DropReason::Panicked).packets;
            assert!(panics > 2 && lost >= panics, "{line} at {burst}: {lost} in {panics}");
            assert_eq!(collected(&far).len() as u64, totals.sent.packets, "{line} at {burst}");
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

#[test]
fn a_receive_queue_that_always_panics_is_stopped_and_the_run_ends() {
    for line in LINES {
        let (pool, directory) = (pool(), Directory::new("shaky-always"));
        let cx = context(&pool, &directory);
        let mut from = shaky(open("generator", TRAFFIC, &cx).unwrap(), 1, line, &cx);
        let (mut to, far) = collector(&pool);
        let mut graph = joined(from.as_mut(), &mut to, &pool, 8);
        let now = run(&mut graph, |_| false);
        let (totals, panics) = down(graph, now);
        assert_eq!((panics, totals.drops.of(DropReason::Panicked)), (64, totals.received), "{line}");
        // A line asks its queue for whole batches, so many times a millisecond: there are no more packets.
        assert_eq!(totals.received.packets, if line.is_empty() { 64 * 8 } else { 2_000 });
        assert!(collected(&far).is_empty());
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// Two graphs over one queue: the panic belongs to the graph that called, and the lock stays usable.
#[test]
fn a_shared_queue_that_panics_serves_the_other_graph() {
    let (pool, directory) = (pool(), Directory::new("shaky-shared"));
    let cx = context(&pool, &directory);
    let (port, far) = collector(&pool);
    let mut to = shaky(Box::new(port), 2, "", &cx);
    let limits = crate::TransmitLimits::of(to.as_ref());
    let counters = to.counters()[0].clone();
    let queue = crate::SharedTransmit::new(to.take_transmit(0).unwrap(), Arc::default());
    let mut sent = 0;
    for handle in [queue.clone(), queue] {
        let mut from = open("generator", TRAFFIC, &cx).unwrap();
        let source = crate::ReceiveNode::take(from.as_mut(), 0, 0).unwrap();
        let sink = crate::TransmitNode::new(Box::new(handle), "shaky", limits, counters.clone());
        let mut builder = netbricks_core::GraphBuilder::new("test");
        let source = builder.add("in", Box::new(source)).unwrap();
        let sink = builder.add("out", Box::new(sink)).unwrap();
        builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
        let mut graph = builder.build(pool.clone()).unwrap();
        let now = run(&mut graph, |_| false);
        let (totals, panics) = down(graph, now);
        assert!(panics > 2 && totals.sent.packets > 500, "{panics} panics, {} sent", totals.sent.packets);
        sent += totals.sent.packets;
    }
    assert_eq!(collected(&far).len() as u64, sent);
    assert_eq!(pool.available(), pool.capacity());
}
