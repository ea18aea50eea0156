//! Scheduled events: on time, coalesced when late, between packets, with the function's state, contained and conserved.

use std::cell::RefCell;

use netbricks_core::buffer::Pool;
use netbricks_core::context::CREATED_LIMIT;
use netbricks_core::tables::{Entry, FlowTableConfig};
use netbricks_core::{
    Counter, DropReason, Edge, Event, Function, Graph, Input, Operator, Turn, Worker, compose,
};

use crate::harness::{Feed, Rig, Sink, blueprint, check, counters, number, numbered, pool, worker};

/// A log of events: the event, the time, the time for which it ran, and how many it missed.
pub(crate) type Log = Vec<(&'static str, u64, u64, u64)>;

thread_local! {
    static LOG: RefCell<Log> = const { RefCell::new(Log::new()) };
}

pub(crate) fn log(name: &'static str, event: &Event<'_>) {
    LOG.with_borrow_mut(|log| log.push((name, event.now(), event.due(), event.missed())));
}

pub(crate) fn take_log() -> Log {
    LOG.take()
}

/// A graph of a source, a function with events, and a sink for each of its ways out.
pub(crate) struct Timed {
    pub(crate) graph: Graph,
    pool: Pool,
    pub(crate) feed: Feed,
    pub(crate) out: Sink,
    replies: Sink,
}

pub(crate) fn timed<F: Function>(function: fn(Input, &'static Worker) -> F) -> Timed {
    timed_in(Rig::new(), function)
}

pub(crate) fn timed_in<F: Function>(mut rig: Rig, function: fn(Input, &'static Worker) -> F) -> Timed {
    let (feed, out, replies) = (Feed::default(), Sink::default(), Sink::default());
    let source = rig.add("source", Box::new(feed.clone()));
    let node = rig.function("timed", &node_of(function));
    let (end, aside) = (rig.add("end", Box::new(out.clone())), rig.add("aside", Box::new(replies.clone())));
    rig.chain(&[source, node, end]);
    rig.connect(node, 1, aside);
    let (graph, pool) = rig.build();
    Timed { graph, pool, feed, out, replies }
}

pub(crate) fn node_of<F: Function>(function: fn(Input, &'static Worker) -> F) -> netbricks_core::Blueprint {
    blueprint(move |worker| {
        let worker: &'static Worker = Box::leak(Box::new(worker.clone()));
        compose(worker, |input| function(input, worker))
    })
}

impl Timed {
    /// Turns at this time until there is nothing to do; answers the time that the graph names.
    pub(crate) fn at(&mut self, now: u64) -> Option<u64> {
        self.graph.wake();
        for _ in 0..1_000 {
            let turn = self.graph.turn(now);
            check(&self.graph);
            match turn {
                Turn::Moved(_) => {}
                Turn::Idle(next) => return next,
                Turn::Done => return None,
            }
        }
        panic!("the graph does not come to rest");
    }
    pub(crate) fn call(&mut self, handler: &str) -> String {
        self.graph.call("timed", handler, "").unwrap()
    }
    pub(crate) fn finish(mut self, now: u64) {
        assert_eq!(self.graph.drain(now), 0);
        check(&self.graph);
        drop(self.graph);
        assert_eq!(self.pool.available(), self.pool.capacity(), "packets leaked");
    }
}

#[test]
fn periods_begin_with_the_clock_and_late_runs_are_one() {
    let mut rig = timed(|input, worker| {
        worker.invoke_every("tick", 100, |event| log("tick", event));
        input.done()
    });
    assert_eq!(rig.at(1_000), Some(1_100));
    assert_eq!(take_log(), []);
    assert_eq!(rig.at(1_099), Some(1_100));
    assert_eq!(rig.at(1_100), Some(1_200));
    assert_eq!(rig.at(1_250), Some(1_300));
    // 1,300, 1,400 and 1,500 in one; the phase stays.
    assert_eq!(rig.at(1_599), Some(1_600));
    assert_eq!(rig.at(1_600), Some(1_700));
    assert_eq!(
        take_log(),
        [
            ("tick", 1_100, 1_100, 0),
            ("tick", 1_250, 1_200, 0),
            ("tick", 1_599, 1_500, 2),
            ("tick", 1_600, 1_600, 0)
        ]
    );
    assert_eq!((rig.call("tick.runs"), rig.call("tick.missed")), ("4".into(), "2".into()));
    rig.finish(1_650);
    assert_eq!(take_log(), [], "what is not due when the graph is taken down does not run");
}

#[test]
fn counts_are_handlers_like_any_other() {
    let pool = pool();
    let worker = worker(&pool);
    let mut node = compose(&worker, |input| {
        worker.invoke_every("tick", 5, |_| ());
        worker.invoke_every("tick", 7, |_| ());
        input.done()
    })
    .unwrap();
    let names: Vec<_> = node.handlers().into_iter().map(|handler| handler.name).collect();
    assert_eq!(names, ["tick.runs", "tick.missed", "tick.2.runs", "tick.2.missed"]);
    let error = node.call("tick", "").unwrap_err().to_string();
    assert!(error.contains("there are: tick.runs, tick.missed"), "{error}");
}

#[test]
fn an_event_runs_once_at_its_time_or_at_the_next_turn() {
    let mut rig = timed(|input, worker| {
        worker.invoke_at("past", 10, |event| log("past", event));
        worker.invoke_at("later", 2_000, |event| log("later", event));
        input.done()
    });
    assert_eq!(rig.graph.turn(1_000), Turn::Idle(Some(2_000)));
    assert_eq!(take_log(), [("past", 1_000, 10, 0)]);
    assert_eq!(rig.at(1_999), Some(2_000));
    assert_eq!(rig.at(5_000), None);
    assert_eq!(rig.at(9_000), None);
    assert_eq!(take_log(), [("later", 5_000, 2_000, 0)]);
    rig.finish(9_000);
}

#[test]
fn a_period_of_zero_is_refused_with_what_to_give() {
    let pool = pool();
    let worker = worker(&pool);
    let error = compose(&worker, |input| {
        worker.invoke_every("tick", 0, |_| ());
        input.done()
    })
    .err()
    .unwrap()
    .to_string();
    assert_eq!(
        error,
        "event `tick`: its period is 0 ns; give how many ns lie between two runs, 1 at least: 1_000_000 is every millisecond"
    );
    // Nothing of it is left for the next that is built.
    assert!(compose(&worker, |input: Input| input.done()).unwrap().schedule().is_none());
}

/// Counts packets by number, forgets all of them on an event, and tells how many there were.
fn sweeping(input: Input, worker: &'static Worker) -> impl Function + use<> {
    let seen = worker.flow_table::<u32, u64>("seen", FlowTableConfig::new(100));
    let (swept, packets): (Counter, _) = (worker.counter("swept"), seen.clone());
    worker.invoke_every("sweep", 100, move |event| {
        let found = packets.with(|table| table.len() as u32);
        packets.with(|table| table.clear());
        swept.add(u64::from(found));
        assert!(
            event.inject(Edge::OUT, 60, |frame| frame[..4].copy_from_slice(&(1_000 + found).to_be_bytes()))
        );
        assert!(event.inject(Edge::REPLY, 64, |frame| assert_eq!(frame, [0; 64])));
    });
    input
        .lookup(
            &seen,
            |p| number(p.frame()),
            |_, entry| {
                if let Entry::Vacant(vacant) = entry {
                    vacant.insert(1);
                }
            },
        )
        .done()
}

#[test]
fn events_share_the_state_of_their_function_and_send_packets_of_their_own() {
    let mut rig = timed(sweeping);
    rig.feed.add([1, 2, 2, 3].map(numbered));
    assert_eq!(rig.at(1_000), Some(1_100));
    assert_eq!(rig.call("seen.occupancy"), "3 100");
    assert_eq!(rig.at(1_100), Some(1_200));
    assert_eq!(
        (rig.call("seen.occupancy"), rig.call("swept.occupancy")),
        ("0 100".into(), format!("3 {}", u64::MAX))
    );
    rig.feed.add([numbered(9)]);
    rig.at(1_101);
    rig.at(1_200);
    assert_eq!(rig.out.numbers(), [1, 2, 2, 3, 1_003, 9, 1_001]);
    assert_eq!(rig.replies.frames(), vec![vec![0; 64]; 2]);
    let counters = counters(&rig.graph, "timed");
    assert_eq!((counters.created.packets, counters.created.bytes), (4, 2 * 124));
    assert_eq!(rig.graph.totals().sent.packets, 9);
    rig.finish(1_201);
}

#[test]
fn packets_that_cannot_be_made_are_counted() {
    let mut small = Rig::new();
    small.pool = Pool::builder().frames(16).build().unwrap();
    let mut rig = timed_in(small, |input, worker| {
        worker.invoke_at("storm", 5, |event| while event.inject(Edge::REPLY, 60, |_| ()) {});
        worker.invoke_at("large", 6, |event| assert!(!event.inject(Edge::OUT, 1 << 20, |_| unreachable!())));
        input.done()
    });
    rig.at(10);
    let node = counters(&rig.graph, "timed");
    let made = rig.replies.frames().len() as u64;
    assert!((16..CREATED_LIMIT as u64).contains(&made), "{made}");
    assert_eq!(node.created.packets, made + 2);
    assert_eq!(
        [DropReason::PoolExhausted, DropReason::TooBig].map(|reason| node.drops.of(reason).packets),
        [1, 1]
    );
    assert_eq!(node.drops.of(DropReason::TooBig).bytes, 1 << 20);
    rig.finish(10);

    let mut rig = timed(|input, worker| {
        worker.invoke_at("storm", 5, |event| while event.inject(Edge::REPLY, 60, |_| ()) {});
        worker.invoke_at("nowhere", 6, |event| assert!(event.inject(Edge(9), 60, |_| ())));
        input.done()
    });
    rig.at(10);
    let node = counters(&rig.graph, "timed");
    assert_eq!((rig.replies.frames().len(), node.created.packets), (CREATED_LIMIT, CREATED_LIMIT as u64 + 2));
    assert_eq!(
        [DropReason::RateLimited, DropReason::Unconnected].map(|reason| node.drops.of(reason).packets),
        [1, 1]
    );
    rig.finish(10);
}

#[test]
fn events_that_wait_do_not_keep_a_graph_alive_whose_sources_have_ended() {
    let mut rig = timed(sweeping);
    rig.feed.add([numbered(1)]);
    rig.at(1_000);
    rig.feed.end();
    rig.graph.wake();
    assert!((0..100).any(|_| rig.graph.turn(1_050) == Turn::Done));
    assert_eq!((rig.out.numbers(), rig.replies.frames().len()), (vec![1], 0));
    rig.finish(5_000);
}

#[test]
fn a_period_shorter_than_a_turn_starves_no_source() {
    let mut rig = timed(|input, worker| {
        worker.invoke_every("tick", 1, |_| ());
        input.done()
    });
    rig.feed.add((0..100).map(numbered));
    rig.graph.set_burst(1);
    for turn in 1..=101 {
        let _ = rig.graph.turn(turn * 10);
    }
    assert_eq!(rig.out.numbers(), (0..100).collect::<Vec<_>>());
    assert_eq!((rig.call("tick.runs"), rig.call("tick.missed")), ("100".into(), "900".into()));
    rig.finish(2_000);
}

#[test]
fn a_graph_of_events_alone_needs_no_source() {
    let mut rig = Rig::new();
    let (sink, mut times) = (Sink::default(), Vec::new());
    let node = rig.function(
        "beacon",
        &node_of(|input, worker| {
            worker.invoke_every("send", 100, |event| {
                event.inject(Edge::OUT, 60, |_| ());
            });
            input.done()
        }),
    );
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[node, end]);
    let (mut graph, pool) = rig.build();
    // As a driven clock does it: to the next timer at once, from 0.
    let mut now = 0;
    for _ in 0..100 {
        if times.len() == 5 {
            break;
        }
        match graph.turn(now) {
            Turn::Idle(Some(next)) => {
                times.push(next);
                now = next;
            }
            turn => assert_ne!(turn, Turn::Done),
        }
        check(&graph);
    }
    assert_eq!((times, sink.frames().len()), (vec![100, 200, 300, 400, 500], 4));
    graph.drain(now);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn events_of_several_functions_run_in_the_order_of_their_times() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::default()));
    let late = rig.function(
        "late",
        &node_of(|input, worker| {
            worker.invoke_at("c", 30, |event| log("c", event));
            worker.invoke_at("a", 10, |event| log("a", event));
            input.done()
        }),
    );
    let early = rig.function(
        "early",
        &node_of(|input, worker| {
            worker.invoke_at("d", 40, |event| log("d", event));
            worker.invoke_at("b", 20, |event| log("b", event));
            input.done()
        }),
    );
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, late, early, end]);
    let (mut graph, _) = rig.build();
    assert_eq!(graph.turn(100), Turn::Idle(None));
    assert_eq!(take_log().into_iter().map(|(name, ..)| name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
}

#[test]
fn a_schedule_moves_with_the_state_of_its_function() {
    fn function(input: Input, worker: &'static Worker) -> impl Function + use<> {
        worker.invoke_every("tick", 100, |event| log("tick", event));
        worker.invoke_at("once", 1_010, |event| log("once", event));
        input.done()
    }
    let (mut old, mut new) = (timed(function), timed(function));
    old.at(1_000);
    old.at(1_250);
    take_log();
    old.graph.drain(1_260);
    let images = old.graph.export();
    new.graph.advance(1_260);
    for (node, (state, bytes)) in &images {
        new.graph.import(node, state, bytes).unwrap();
        let error = new.graph.import(node, state, &bytes[1..]).unwrap_err();
        assert!(error.to_string().contains("an exported event is 36 bytes, found 35"), "{error}");
    }
    assert_eq!(new.at(1_260), Some(1_300), "the phase of the old one");
    new.at(1_300);
    assert_eq!(take_log(), [("tick", 1_300, 1_300, 0)], "and what ran does not run again");
    assert_eq!((new.call("tick.runs"), new.call("tick.missed")), ("2".into(), "1".into()));

    // Into a graph that has been running: the next run is where it was over there.
    let mut running = timed(function);
    running.at(1_050);
    assert_eq!(running.at(1_280), Some(1_350));
    running.graph.import("timed", "tick", &images[0].1.1).unwrap();
    assert_eq!(running.at(1_290), Some(1_300));
}
