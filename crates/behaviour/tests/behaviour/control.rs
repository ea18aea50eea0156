//! The control side's copy of a node: it reads and writes what workers share, and is no worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_core::buffer::Pool;
use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, NoExternalAccess, Strict};
use netbricks_core::tables::{CounterArray, FlowTableConfig};
use netbricks_core::{
    Blueprint, CallError, Function, Handler, HandlerKind, HandlerSide, Input, Node, Operator, Shuffle,
    ShuffleConfig, Worker, WorkerGroup, compose,
};

use crate::consistency::{frame, through};
use crate::harness::pool;

const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 1_000 };

/// Counts packets in shared state, and in state of its own.
fn counting<C: Consistency>(
    input: Input,
    worker: &Worker,
    consistency: C,
    counters: usize,
) -> impl Function + use<C> {
    let seen = worker.state::<CounterArray, C>("seen", consistency, counters);
    worker.state::<CounterArray, _>("own", NoExternalAccess, 1_000_000);
    let packets = worker.counter("packets");
    worker.handler_of(&seen, Handler::read("first", "The first counter."), |seen, _| {
        Ok(seen.read(|seen| seen.get(0)).unwrap_or_default().to_string())
    });
    let add = Handler::write("add", "Adds to the first counter.").argument("NUMBER");
    worker.handler_of(&seen, add, |seen, argument| {
        let by = argument.parse().map_err(|_| format!("expected a number, found `{argument}`"))?;
        assert_ne!(by, 13, "unlucky");
        seen.update((0, by)).map_err(|cannot| cannot.to_string())?;
        Ok("done".into())
    });
    let told = packets.clone();
    worker.handler(Handler::read("here", "Packets of this worker."), move |_| Ok(told.get().to_string()));
    input
        .inspect(move |_| {
            packets.add(1);
            assert!(seen.update((0, 1)).is_ok());
        })
        .done()
}

fn blueprint<C: Consistency + Copy + Send + Sync + 'static>(consistency: C, counters: usize) -> Blueprint {
    Blueprint::new(move |worker| compose(worker, |input| counting(input, worker, consistency, counters)))
}

fn node(blueprint: &Blueprint, pool: &Pool, index: usize) -> Box<dyn Node> {
    blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap()
}

fn both_see_a_call<C: Consistency + Copy + Send + Sync + 'static>(consistency: C) {
    let (of, pool) = (blueprint(consistency, 4), pool());
    let mut control = of.control(pool.clone(), 1).unwrap();
    let (mut one, mut other) = (node(&of, &pool, 0), node(&of, &pool, 1));
    assert_eq!(control.call_as(HandlerKind::Write, "add", "40"), Ok("done".into()));
    assert_eq!([&mut one, &mut other].map(|node| node.call("first", "").unwrap()), ["40", "40"]);
    through(one.as_mut(), &pool, &[frame(1), frame(2)]);
    assert_eq!(control.call_as(HandlerKind::Read, "first", ""), Ok("42".into()));
    assert_eq!(control.call("seen.occupancy", ""), Ok("1 4".into()));
    // A worker may be asked as well.
    assert_eq!(other.call("add", "1"), Ok("done".into()));
    assert_eq!(control.call("first", ""), Ok("43".into()));
}

#[test]
fn a_call_on_the_control_side_is_seen_by_every_worker() {
    both_see_a_call(BOUNDED);
    both_see_a_call(Strict);
}

#[test]
fn handlers_say_their_kind_side_and_argument_and_calls_must_fit() {
    let (of, pool) = (blueprint(BOUNDED, 4), pool());
    let mut control = of.control(pool.clone(), 1).unwrap();
    let mut node = node(&of, &pool, 0);
    assert_eq!(control.handlers(), node.handlers());
    let handlers = node.handlers();
    let shown = |name: &str| {
        let handler = handlers.iter().find(|handler| handler.name == name).unwrap();
        (handler.kind, handler.side, handler.argument.clone())
    };
    assert_eq!(shown("add"), (HandlerKind::Write, HandlerSide::Control, Some("NUMBER".into())));
    assert_eq!(shown("seen.occupancy"), (HandlerKind::Read, HandlerSide::Control, None));
    for name in ["here", "own.occupancy", "packets.occupancy"] {
        assert_eq!(shown(name), (HandlerKind::Read, HandlerSide::Worker, None), "{name}");
        assert_eq!(control.call(name, ""), Err(CallError::OnWorker { name: name.into() }));
        assert!(node.call(name, "").is_ok());
    }
    let kind = |kind| Err(CallError::Kind { name: "add".into(), kind });
    assert_eq!(control.call_as(HandlerKind::Read, "add", "1"), kind(HandlerKind::Write));
    assert_eq!(node.call_as(HandlerKind::Read, "add", "1"), kind(HandlerKind::Write));
    assert!(matches!(node.call_as(HandlerKind::Write, "first", ""), Err(CallError::Kind { .. })));
    assert_eq!(node.call_as(HandlerKind::Read, "first", ""), Ok("0".into()), "nothing was added");
    for (name, argument) in [("first", "7"), ("seen.occupancy", "7"), ("add", "seven"), ("add", "")] {
        let refused = control.call(name, argument).unwrap_err();
        assert!(matches!(refused, CallError::Argument { .. }), "{refused}");
        assert_eq!(node.call(name, argument), Err(refused));
    }
    let unknown = control.call_as(HandlerKind::Read, "frist", "").unwrap_err().to_string();
    assert!(unknown.contains("no handler `frist`; there are: first, add, here"), "{unknown}");
}

/// A worker's own state is as small as possible on the control side.
#[test]
fn a_copy_takes_little_memory() {
    let capacity = Arc::new(AtomicU64::new(0));
    let told = capacity.clone();
    let of = Blueprint::new(move |worker| {
        compose(worker, |input| {
            let flows = worker.flow_table::<u64, u64>("flows", FlowTableConfig::new(1 << 20));
            let own = worker.state::<CounterArray, _>("own", NoExternalAccess, 1 << 20);
            let entries = flows.borrow().capacity() + own.borrow().all().len();
            told.store(entries as u64, Ordering::Relaxed);
            input.done()
        })
    });
    let entries = || capacity.swap(0, Ordering::Relaxed);
    of.build(&Worker::new(0, 1, pool())).unwrap();
    assert!(entries() >= 2 << 20);
    let control = of.control(pool(), 1).unwrap();
    assert!(entries() < 256);
    assert!(control.handlers().iter().any(|handler| handler.name == "flows.occupancy"));
}

/// Lets a node of a new graph take over the state of an old one, as a graph does.
fn take_over(new: &mut dyn Node, old: &mut dyn Node) {
    for (name, shared) in old.shared_state() {
        assert_eq!(new.adopt(&name, &shared, 1), Some(Ok(())));
    }
}

fn a_copy_follows<C: Consistency + Copy + Send + Sync + 'static>(consistency: C) {
    let (before, after, pool) = (blueprint(consistency, 4), blueprint(consistency, 4), pool());
    let mut old = [0, 1].map(|index| node(&before, &pool, index));
    let mut ruling = before.control(pool.clone(), 1).unwrap();
    ruling.call("add", "7").unwrap();
    let mut early = after.control(pool.clone(), 1).unwrap();
    let mut new = [0, 1].map(|index| node(&after, &pool, index));
    assert_eq!(early.call("first", ""), Ok("0".into()), "nothing was taken over yet");
    take_over(new[0].as_mut(), old[0].as_mut());
    // The other worker still has its old graph, and all of them one state.
    let mut late = after.control(pool.clone(), 1).unwrap();
    for (copy, expected) in [(&mut early, 8), (&mut late, 9), (&mut ruling, 10)] {
        copy.call("add", "1").unwrap();
        let all = [&mut new[0], &mut old[1]].map(|node| node.call("first", "").unwrap());
        assert_eq!(all, [expected, expected].map(|count: u64| count.to_string()));
    }
    take_over(new[1].as_mut(), old[1].as_mut());
    drop((old, ruling));
    late.call("add", "1").unwrap();
    let all = new.each_mut().map(|node| node.call("first", "").unwrap());
    assert_eq!((all, early.call("first", "")), (["11", "11"].map(String::from), Ok("11".into())));
}

#[test]
fn a_copy_finds_state_that_a_new_graph_has_taken_over() {
    a_copy_follows(BOUNDED);
    a_copy_follows(Strict);
}

/// The copy of a shuffle is in no group, so that it takes no worker's place in it.
#[test]
fn a_copy_of_a_shuffle_takes_no_workers_place() {
    let shuffle = Shuffle::new(ShuffleConfig::default());
    let of = Blueprint::new(move |worker| shuffle.node(worker));
    let (group, pool) = (WorkerGroup::new(2), pool());
    let mut control = of.control(pool.clone(), 1).unwrap();
    let make = |index| of.build(&Worker::new(index, 1, pool.clone()).in_group(group.clone()));
    let mut nodes = [0, 1].map(|index| make(index).unwrap());
    assert_eq!(group.workers(), 2);
    assert!(nodes[0].call("owners", "").unwrap().ends_with(" 4095-4095 1"), "there are two workers");
    assert!(of.control(pool.clone(), 1).is_ok(), "any number of copies");
    let owners = control.handlers().iter().find(|handler| handler.name == "owners").unwrap();
    assert_eq!((owners.kind, owners.side), (HandlerKind::Read, HandlerSide::AnyWorker));
    assert_eq!(control.call("owners", ""), Err(CallError::OnWorker { name: "owners".into() }));
    assert_eq!(control.call("move", "0-9 1"), Err(CallError::OnWorker { name: "move".into() }));
}

#[test]
fn there_is_room_for_copies_beside_two_graphs_on_all_workers() {
    let (of, pool) = (blueprint(BOUNDED, 1), pool());
    let nodes: Vec<_> = (0..128).map(|index| node(&of, &pool, index % 64)).collect();
    let copies: Vec<_> = (0..8).map(|_| of.control(pool.clone(), 1).unwrap()).collect();
    let error = of.control(pool.clone(), 1).unwrap_err().to_string();
    assert!(error.contains("has 136 readers already"), "{error}");
    drop((nodes, copies));
    assert!(of.control(pool, 1).is_ok());
}

#[test]
fn a_panic_on_the_control_side_costs_an_answer() {
    let (of, pool) = (blueprint(BOUNDED, 4), pool());
    let mut control = of.control(pool.clone(), 1).unwrap();
    let mut node = node(&of, &pool, 0);
    control.call("add", "2").unwrap();
    let error = control.call("add", "13").unwrap_err();
    assert!(matches!(&error, CallError::Panicked { message, .. } if message.contains("unlucky")), "{error}");
    assert_eq!(control.call("first", ""), Ok("2".into()), "the copy was made again");
    assert_eq!(node.call("first", ""), Ok("2".into()));
    // A node that cannot even be made.
    let broken = Blueprint::new(|_| panic!("no such thing"));
    let error = broken.control(pool, 1).unwrap_err().to_string();
    assert!(error.contains("making it panicked: no such thing"), "{error}");
}
