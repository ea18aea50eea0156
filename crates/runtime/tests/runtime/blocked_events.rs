//! Events run on time while their worker waits for room in a full ring. Their packets wait in order.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Pool;
use netbricks_core::packet::build::ethernet;
use netbricks_core::{
    DropReason, Edge, Function, Graph, GraphBuilder, Input, Operator, Shuffle, ShuffleConfig, Turn, Worker,
    WorkerGroup, compose,
};

use crate::shuffle::{Flows, NUMBER, SMALL, Seen, Witness, check_order, pool};

const PERIOD: u64 = 1_000_000;
/// Flows for which one packet each is sent at every time.
const SENT: u16 = 16;

/// Sends a packet of each of its flows every period, numbered within its flow.
fn beacon(input: Input, worker: &Worker) -> impl Function + use<> {
    let flow = |flow: u16| {
        let port = 20_000 + 100 * worker.index() as u16 + flow;
        ethernet().ipv4("10.0.0.1", "10.9.8.7").udp(port, 53).payload(&[0; 8]).build().unwrap()
    };
    let templates: Vec<Vec<u8>> = (0..SENT).map(flow).collect();
    let number = Cell::new(0u64);
    worker.invoke_every("send", PERIOD, move |event| {
        for template in &templates {
            let made = event.inject(Edge::OUT, template.len(), |frame| {
                frame.copy_from_slice(template);
                frame[NUMBER].copy_from_slice(&number.get().to_be_bytes());
            });
            assert!(made);
        }
        number.set(number.get() + 1);
    });
    input.done()
}

/// A worker whose source and whose events lead to one shuffle.
struct Side {
    graph: Graph,
    polls: Arc<AtomicU64>,
}

impl Side {
    fn new(
        (group, index): (&WorkerGroup, usize),
        packets: u64,
        pool: &Pool,
        shuffle: &Shuffle,
        seen: &Seen,
    ) -> Self {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let source = Flows::new(index, 64, packets);
        let polls = source.polls.clone();
        let mut graph = GraphBuilder::new("test");
        let source = graph.add("source", Box::new(source)).unwrap();
        let beacon = graph.add("beacon", compose(&worker, |input| beacon(input, &worker)).unwrap()).unwrap();
        let shuffle = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
        let out = graph.add("out", Box::new(Witness { worker: index, seen: seen.clone() })).unwrap();
        graph.connect(source, Edge::OUT, beacon, 0).unwrap();
        graph.connect(beacon, Edge::OUT, shuffle, 0).unwrap();
        graph.connect(shuffle, Edge::OUT, out, 0).unwrap();
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(32);
        Self { graph, polls }
    }

    fn turns(&mut self, count: usize, now: u64) {
        (0..count).for_each(|_| {
            self.graph.turn(now);
        });
    }

    fn ask(&mut self, handler: &str) -> u64 {
        self.graph.call("beacon", handler, "").unwrap().parse().unwrap()
    }
}

/// Two workers whose rings to each other are full, with packets that wait for them.
fn blocked(pool: &Pool, seen: &Seen) -> [Side; 2] {
    let (group, shuffle) = (WorkerGroup::new(2), Shuffle::new(ShuffleConfig { ring: 8, ..SMALL }));
    let mut sides = [0, 1].map(|index| Side::new((&group, index), 1_000, pool, &shuffle, seen));
    for side in &mut sides {
        side.turns(100, 1);
        assert_eq!(side.graph.totals().handoff_out.packets, 8, "the ring is full");
        assert!(side.graph.totals().held > 0, "and packets wait for it");
    }
    // The first worker took nothing yet: now both rings are full.
    sides[0].turns(1, 1);
    sides
}

#[test]
fn events_run_on_time_while_rings_are_full_both_ways() {
    let (pool, seen) = (pool(), Seen::default());
    let mut sides = blocked(&pool, &seen);
    const TIMES: u64 = 40;
    // One worker never gets its turn, so the other stays blocked.
    let [a, b] = &mut sides;
    let polls = a.polls.load(Ordering::Relaxed);
    for time in 1..=TIMES {
        a.turns(5, 1 + time * PERIOD);
        assert_eq!((a.ask("send.runs"), a.ask("send.missed")), (time, 0));
        assert!(a.graph.totals().is_conserved() && a.graph.unbalanced().is_empty());
    }
    assert_eq!(a.polls.load(Ordering::Relaxed), polls, "its source waits");
    b.turns(5, 1 + TIMES * PERIOD);
    assert_eq!((b.ask("send.runs"), b.ask("send.missed")), (1, TIMES - 1), "late, once, and counted");
    for _ in 0..10_000 {
        sides.iter_mut().for_each(|side| side.turns(1, 1 + TIMES * PERIOD));
    }
    for side in &mut sides {
        assert_eq!(side.graph.turn(1 + TIMES * PERIOD), Turn::Done);
        assert_eq!(side.graph.totals().drops.total().packets, 0);
    }
    let events = u64::from(SENT) * (TIMES + 1);
    let on = check_order(&seen, 128 + 2 * usize::from(SENT), 2_000 + events);
    assert!(on.iter().all(|workers| *workers == 1));
    drop(sides);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn packets_that_events_send_into_a_full_ring_are_bounded_and_counted() {
    let (pool, seen) = (pool(), Seen::default());
    let mut sides = blocked(&pool, &seen);
    let [a, _] = &mut sides;
    let times = 600;
    for time in 1..=times {
        a.turns(1, 1 + time * PERIOD);
        assert!(a.graph.totals().held <= 8 * 256 + 32, "{}", a.graph.totals().held);
    }
    let totals = a.graph.totals();
    assert_eq!((a.ask("send.runs"), totals.created.packets), (times, times * u64::from(SENT)));
    assert!(totals.drops.of(DropReason::RingFull).packets > 0);
    assert_eq!(totals.drops.of(DropReason::RingFull), totals.drops.total());
    assert!(totals.is_conserved() && a.graph.unbalanced().is_empty());
}

#[test]
fn packets_that_events_send_after_the_source_ended_are_handed_off() {
    let (pool, seen, group) = (pool(), Seen::default(), WorkerGroup::new(2));
    let shuffle = Shuffle::new(SMALL);
    const PACKETS: u64 = 20_000;
    let mut sides = [(0, 0), (1, PACKETS)]
        .map(|(index, packets)| Side::new((&group, index), packets, &pool, &shuffle, &seen));
    // Time stops at the end, so that no event comes between the end of the one source and the end of the run.
    let times = 100;
    for turn in 0..10_000 {
        sides.iter_mut().for_each(|side| side.turns(1, 1 + PERIOD * (turn / 4).min(times)));
    }
    let [a, b] = sides.each_mut().map(|side| (side.graph.turn(1 + times * PERIOD), side.graph.totals()));
    for (turn, totals) in [&a, &b] {
        assert_eq!((turn, totals.drops.total().packets), (&Turn::Done, 0), "{:?}", totals.drops);
        assert_eq!(totals.created.packets, times * u64::from(SENT));
    }
    assert!(a.1.received.packets == 0 && a.1.handoff_out.packets > 0);
    check_order(&seen, 64 + 2 * usize::from(SENT), PACKETS + 2 * times * u64::from(SENT));
}
