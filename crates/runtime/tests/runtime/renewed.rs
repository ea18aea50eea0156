//! A key function panics: it is built again like any function, and packets that wait at its node stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Pool;
use netbricks_core::packet::stack::Root;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Blueprint, BuildError, DropReason, Edge, Graph, GraphBuilder, GroupConfig, Groups, Input, Operator,
    Shuffle, ShuffleConfig, Turn, Verdict, Worker, WorkerGroup,
};

use crate::shuffle::{Flows, NUMBER, SMALL, Seen, Witness, pool};

const FLOWS: u16 = 16;
const EACH: u64 = 4_000;
/// The number within its flow of the packet at which the function panics.
const DEADLY: u64 = 100;

/// Counts flows' packets, and panics once at the hundredth packet of the first flow that has one.
fn counting(input: Input, worker: &Worker, left: Arc<AtomicU64>) -> impl Operator<In = Root> + use<> {
    let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(1_024));
    input.parse::<Link>().or(Verdict::PASS).parse::<Ip>().or(Verdict::PASS).lookup(
        &flows,
        |packet| packet.flow_key(),
        move |packet, entry| {
            if let Entry::Vacant(place) = entry {
                place.insert(1);
            }
            let number = u64::from_be_bytes(packet.frame()[NUMBER].try_into().unwrap());
            let spare = |left: u64| left.checked_sub(1);
            let dies =
                number == DEADLY && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spare).is_ok();
            assert!(!dies, "a packet that no worker survives");
        },
    )
}

fn graph(worker: &Worker, sources: usize, sorts: &Blueprint, groups: usize, seen: &Seen) -> Graph {
    let index = worker.index();
    let mut graph = GraphBuilder::new("test");
    let sorts = graph.add_function("sorts", sorts, worker).unwrap();
    let out = graph.add("out", Box::new(Witness { worker: index, seen: seen.clone() })).unwrap();
    for number in 0..sources {
        let flows = Flows::new(index + 2 * number, FLOWS, EACH);
        let source = graph.add(format!("in {number}"), Box::new(flows)).unwrap();
        graph.connect(source, Edge::OUT, sorts, 0).unwrap();
    }
    for group in 0..groups {
        graph.connect(sorts, Groups::edge(group), out, 0).unwrap();
    }
    let mut graph = graph.build(worker.pool().clone()).unwrap();
    graph.set_burst(32);
    graph
}

/// All packets came in order, except for a batch for each panic. Checks how often nodes were built again.
fn check(graphs: &mut [Graph], sources: u64, seen: &Seen, panics: u64) {
    let mut lost = 0;
    for graph in &mut *graphs {
        let drops = graph.totals().drops;
        assert_eq!(drops.total(), drops.of(DropReason::Panicked), "nothing else is lost");
        lost += drops.of(DropReason::Panicked).packets;
    }
    let all: Vec<_> = graphs.iter_mut().flat_map(Graph::take_panics).collect();
    assert_eq!(all.len() as u64, panics);
    assert!(all.iter().all(|panic| panic.rebuilt && panic.packets <= 32), "{all:?}");
    assert_eq!(lost, all.iter().map(|panic| panic.packets).sum::<u64>());
    let seen = seen.lock().unwrap();
    let sent: usize = seen.values().map(Vec::len).sum();
    assert_eq!(sent as u64 + lost, sources * EACH);
    for packets in seen.values() {
        assert!(packets.is_sorted_by_key(|(number, _)| *number), "order is kept");
    }
}

/// The rings are full, and packets wait for them that do not belong to its function.
#[test]
fn a_panic_in_what_a_shuffle_sorts_by_costs_its_batch() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 16, ..SMALL });
    let left = Arc::new(AtomicU64::new(3));
    let sorts = Blueprint::new(move |worker: &Worker| {
        let left = left.clone();
        shuffle.node_by(
            worker,
            |input| counting(input, worker, left),
            |packet| FlowKey::from_frame(packet.frame()).unwrap(),
        )
    });
    let mut graphs = [0, 1].map(|index| {
        graph(&Worker::new(index, 1, pool.clone()).in_group(group.clone()), 1, &sorts, 1, &seen)
    });
    for turn in 0..200_000 {
        graphs[0].turn(turn);
        // So packets for it wait.
        if turn % 5 == 0 {
            graphs[1].turn(turn);
        }
    }
    assert_eq!(graphs.each_mut().map(|graph| graph.turn(200_000)), [Turn::Done; 2]);
    check(&mut graphs, 2, &seen, 3);
}

/// Each group has a queue with many packets.
#[test]
fn a_panic_in_what_groups_are_by_costs_its_batch_and_no_queue() {
    let pool = Pool::builder().frames(16_384).build().unwrap();
    let (group, seen, left) = (WorkerGroup::new(1), Seen::default(), Arc::new(AtomicU64::new(3)));
    let groups = Groups::new(GroupConfig { groups: 3, queue: 4_096 }).unwrap();
    let sorts = Blueprint::new(move |worker: &Worker| {
        let left = left.clone();
        groups.node_by(
            worker,
            |input| counting(input, worker, left),
            |packet| usize::from(packet.frame()[35]) % 3,
        )
    });
    let worker = Worker::new(0, 1, pool).in_group(group);
    // Three sources bring more than a turn releases.
    let mut graphs = [graph(&worker, 3, &sorts, 3, &seen)];
    let mut most = 0;
    for turn in 0..100_000 {
        graphs[0].turn(turn);
        most = most.max(graphs[0].totals().held);
    }
    assert!(most > 1_000, "{most} packets waited at most");
    check(&mut graphs, 3, &seen, 3);
}

/// No other node took its place.
///
/// Its worker still has its end of the shuffle, and no other node gets it.
#[test]
fn a_shuffle_that_cannot_be_remade_keeps_its_end() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 16, ..SMALL });
    let left = Arc::new(AtomicU64::new(1));
    let (made, of) = (Arc::new(AtomicU64::new(0)), shuffle.clone());
    let sorts = Blueprint::new(move |worker: &Worker| {
        if made.fetch_add(1, Ordering::Relaxed) >= 2 {
            return Err(BuildError::new("it cannot be made a third time"));
        }
        let left = left.clone();
        of.node_by(
            worker,
            |input| counting(input, worker, left),
            |packet| FlowKey::from_frame(packet.frame()).unwrap(),
        )
    });
    let mut graphs = [0, 1].map(|index| {
        graph(&Worker::new(index, 1, pool.clone()).in_group(group.clone()), 1, &sorts, 1, &seen)
    });
    let mut panics = Vec::new();
    for turn in 0..200_000 {
        for graph in &mut graphs {
            graph.turn(turn);
            panics.extend(graph.take_panics());
        }
    }
    assert_eq!(panics.iter().map(|panic| panic.rebuilt).collect::<Vec<_>>(), [false]);
    for index in [0, 1] {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        assert!(shuffle.node(&worker).is_err(), "worker {index} has its end already");
    }
    assert_eq!(graphs.each_mut().map(|graph| graph.turn(200_000)), [Turn::Done; 2]);
    let sent: u64 = graphs.iter().map(|graph| graph.totals().sent.packets).sum();
    assert_eq!(sent + panics[0].packets, 2 * EACH);
}
