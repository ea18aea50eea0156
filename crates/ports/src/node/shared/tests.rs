use std::sync::atomic::Ordering;

use netbricks_core::Totals;

use super::*;
use crate::testing::*;
use crate::{ReceiveNode, TransmitLimits, TransmitNode};

/// Two graphs in two threads send through one queue.
///
/// All packets arrive, each flow in order, and both graphs count exactly.
#[test]
fn two_graphs_share_a_transmit_queue() {
    let (pool, directory) = (pool(), Directory::new("shared"));
    let cx = crate::OpenContext { queues: 2, ..context(&pool, &directory) };
    let settings = "packets = 60000\nflows = 64\npayload = 'pattern'";
    let mut from = open("generator", settings, &cx).unwrap();
    let mut to = open("null", "", &crate::OpenContext { queues: 1, ..cx.clone() }).unwrap();
    let limits = TransmitLimits::of(to.as_ref());
    let counters = to.counters()[0].clone();
    let shared = SharedTransmit::new(to.take_transmit(0).unwrap(), Arc::default());
    let start = std::sync::Barrier::new(2);
    let totals: Vec<Totals> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|number| {
                let source = ReceiveNode::take(from.as_mut(), 0, number).unwrap();
                let sink = TransmitNode::new(Box::new(shared.clone()), "null", limits, counters.clone());
                let (pool, start) = (pool.clone(), &start);
                scope.spawn(move || {
                    let mut builder = netbricks_core::GraphBuilder::new("test");
                    let source = builder.add("in", Box::new(source)).unwrap();
                    let sink = builder.add("out", Box::new(sink)).unwrap();
                    builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
                    let mut graph = builder.build(pool).unwrap();
                    start.wait();
                    let now = run(&mut graph, |_| false);
                    finish(graph, now)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut all = Totals::default();
    for totals in &totals {
        // The other graph sent the packets that this one left.
        let sent = totals.sent.packets + totals.handoff_out.packets - totals.handoff_in.packets;
        assert_eq!((totals.received.packets, sent), (30_000, 30_000));
        all.merge(totals);
    }
    assert_eq!((all.sent.packets, all.handoff_out), (60_000, all.handoff_in));
    assert_eq!(counters.sent.load(Ordering::Relaxed), 60_000);
    assert_eq!(pool.available(), pool.capacity());
}

/// A line behind a shared queue.
///
/// Neither graph knows which of its packets the other let out, but the sums of both are exact once both are
/// taken down, in either order.
#[test]
fn packets_in_a_shared_line_are_counted_once() {
    for first in [0, 1] {
        let (pool, directory) = (pool(), Directory::new("shared-line"));
        let cx = crate::OpenContext { queues: 2, ..context(&pool, &directory) };
        let mut from = open("generator", "rate = '10 kpps'", &cx).unwrap();
        let one = crate::OpenContext { queues: 1, ..cx };
        let mut to = open("null", "delay = '3 ms'\nreorder = 0.1\nduplicate = 0.1", &one).unwrap();
        let limits = TransmitLimits::of(to.as_ref());
        let counters = to.counters()[0].clone();
        let shared = SharedTransmit::new(to.take_transmit(0).unwrap(), Arc::default());
        let handles = [shared.clone(), shared];
        let mut graphs: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(number, handle)| {
                let mut builder = netbricks_core::GraphBuilder::new("test");
                let source = ReceiveNode::take(from.as_mut(), 0, number).unwrap();
                let source = builder.add("in", Box::new(source)).unwrap();
                let sink = TransmitNode::new(Box::new(handle), "null", limits, counters.clone());
                let sink = builder.add("out", Box::new(sink)).unwrap();
                builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
                builder.build(pool.clone()).unwrap()
            })
            .collect();
        let sum = |graphs: &[netbricks_core::Graph]| {
            let mut totals = Totals::default();
            graphs.iter().for_each(|graph| totals.merge(&graph.totals()));
            totals
        };
        for _ in 0..500 {
            graphs.iter_mut().for_each(|graph| {
                graph.turn(0);
            });
            assert!(sum(&graphs).is_conserved(), "{:?}", sum(&graphs));
        }
        assert!(sum(&graphs).held > 0);
        graphs[first].drain(0);
        graphs[1 - first].drain(0);
        let totals = sum(&graphs);
        assert!(totals.is_conserved() && totals.held == 0, "{totals:?}");
        assert_eq!(totals.created.packets, counters.duplicated.load(Ordering::Relaxed));
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// A queue that does not return from its first call until it is told to. It keeps its packets.
struct Slow {
    entered: std::sync::mpsc::Sender<()>,
    go_on: std::sync::mpsc::Receiver<()>,
    waited: bool,
    sent: std::sync::Arc<std::sync::Mutex<Vec<Vec<u8>>>>,
}

impl TransmitQueue for Slow {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        if !std::mem::replace(&mut self.waited, true) {
            self.entered.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.sent.lock().unwrap().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
}

/// While one worker is in a system call, another goes on: its packets wait in order, up to a bound.
///
/// All of them go out when the call returns, without another call.
#[test]
fn no_worker_waits_for_a_call_of_another() {
    const PACKETS: usize = 2 * WAITING;
    let (pool, directory) = (pool(), Directory::new("slow"));
    let cx = context(&pool, &directory);
    let (entered, inside) = std::sync::mpsc::channel();
    let (release, go_on) = std::sync::mpsc::channel();
    let sent = std::sync::Arc::<std::sync::Mutex<Vec<Vec<u8>>>>::default();
    let queue = Slow { entered, go_on, waited: false, sent: sent.clone() };
    let limits = TransmitLimits { mtu: 1500, checksum_offload: false, segmentation_offload: false };
    let shared = SharedTransmit::new(Box::new(queue), Arc::default());
    let graph = |handle: SharedTransmit, packets: usize| {
        let text = format!("packets = {packets}\nflows = 1\npayload = 'pattern'");
        let mut from = open("generator", &text, &cx).unwrap();
        let source = ReceiveNode::take(from.as_mut(), 0, 0).unwrap();
        let sink = TransmitNode::new(Box::new(handle), "slow", limits, Arc::default());
        let mut builder = netbricks_core::GraphBuilder::new("test");
        let source = builder.add("in", Box::new(source)).unwrap();
        let sink = builder.add("out", Box::new(sink)).unwrap();
        builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
        builder.build(pool.clone()).unwrap()
    };
    let (one, other) = (shared.clone(), shared);
    let (first, second) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut graph = graph(one, 1);
            run(&mut graph, |_| false);
            graph.totals()
        });
        inside.recv().unwrap();
        // If the worker waited here, the test would not end.
        let mut graph = graph(other, PACKETS);
        let now = run(&mut graph, |_| false);
        let before = graph.totals();
        assert_eq!((before.sent.packets, before.handoff_out.packets), (0, WAITING as u64));
        let lost = before.drops.of(netbricks_core::DropReason::TransmitFull).packets;
        assert_eq!(lost, (PACKETS - WAITING) as u64, "what finds no room is counted");
        release.send(()).unwrap();
        let first = caller.join().unwrap();
        (first, finish(graph, now))
    });
    // The worker that was called last has sent them.
    assert_eq!((first.sent.packets, first.handoff_in), (1 + WAITING as u64, second.handoff_out));
    let expected = collected_from(PACKETS, &cx, &pool);
    assert_eq!(sent.lock().unwrap()[1..], expected[..WAITING], "the first of them, in order");
    assert_eq!(pool.available(), pool.capacity());
}

/// The packets that the generator makes.
fn collected_from(packets: usize, cx: &crate::OpenContext, pool: &netbricks_buffer::Pool) -> Vec<Vec<u8>> {
    let text = format!("packets = {packets}\nflows = 1\npayload = 'pattern'");
    let mut from = open("generator", &text, cx).unwrap();
    let (mut port, far) = collector(pool);
    forward(from.as_mut(), &mut port, pool, 32);
    collected(&far).into_iter().map(|(_, frame)| frame).collect()
}
