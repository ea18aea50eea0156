//! Groups in a graph: they share turns fairly, their packets meet again, and they work before and behind a
//! shuffle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{
    Context, DropReason, Edge, Graph, GraphBuilder, GroupConfig, Groups, Node, NodeId, Poll, Shape, Shuffle,
    ShuffleConfig, Turn, Worker, WorkerGroup, merge,
};

/// A source of packets of 60 bytes, distributed over groups by weights.
///
/// The first byte is the group, and the next eight are the number.
pub(crate) struct Weighted {
    weights: Vec<u64>,
    sent: Vec<u64>,
    left: u64,
    worker: u8,
}

impl Node for Weighted {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while self.left > 0 && batch.len() < cx.burst() {
            // The group that is furthest behind its weight.
            let behind = |group: usize| self.sent[group] as f64 / self.weights[group] as f64;
            let group = (0..self.weights.len()).min_by(|a, b| behind(*a).total_cmp(&behind(*b))).unwrap();
            let mut bytes = [0; 60];
            bytes[0] = group as u8;
            bytes[1..9].copy_from_slice(&self.sent[group].to_be_bytes());
            bytes[9] = self.worker;
            self.sent[group] += 1;
            self.left -= 1;
            batch.push(cx.pool().packet(&bytes).unwrap()).unwrap();
        }
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The packets that came, in order: input, sending worker, group, number.
pub(crate) type Seen = Arc<Mutex<Vec<(usize, u8, u8, u64)>>>;

fn label(packet: &Packet) -> (u8, u8, u64) {
    let data = packet.data();
    (data[9], data[0], u64::from_be_bytes(data[1..9].try_into().unwrap()))
}

/// Sends everything that comes by any of its inputs.
pub(crate) struct Ends(pub(crate) usize, pub(crate) Seen);

impl Node for Ends {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut seen = self.1.lock().unwrap();
        seen.extend(batch.drain().map(|packet| {
            let (worker, group, number) = label(&packet);
            (input, worker, group, number)
        }));
    }
    fn shape(&self) -> Shape {
        Shape { inputs: self.0, ..Shape::transmit() }
    }
}

pub(crate) fn by_first_byte(groups: usize, queue: usize, worker: &Worker) -> Box<dyn Node> {
    let groups = Groups::new(GroupConfig { groups, queue }).unwrap();
    groups.node_by(worker, |input| input, |packet| usize::from(packet.frame()[0])).unwrap()
}

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(16_384).build().unwrap()
}

pub(crate) fn source(weights: &[u64], packets: u64, worker: u8) -> Box<Weighted> {
    Box::new(Weighted { weights: weights.to_vec(), sent: vec![0; weights.len()], left: packets, worker })
}

/// Three sources of these weights for one grouping node, after 60,000 packets.
///
/// The node cannot keep up, so its queues decide.
fn overloaded(pool: &Pool, weights: &[u64; 3], burst: usize) -> (Graph, Seen) {
    let (worker, seen) = (Worker::new(0, 1, pool.clone()), Seen::default());
    let mut graph = GraphBuilder::new("test");
    let node = graph.add("groups", by_first_byte(3, 1_024, &worker)).unwrap();
    for from in 0..3 {
        let source = graph.add(format!("in {from}"), source(weights, u64::MAX, from)).unwrap();
        graph.connect(source, Edge::OUT, node, 0).unwrap();
    }
    let ends = graph.add("ends", Box::new(Ends(3, seen.clone()))).unwrap();
    (0..3).for_each(|group| graph.connect(node, Groups::edge(group), ends, group).unwrap());
    let mut graph = graph.build(pool.clone()).unwrap();
    graph.set_burst(burst);
    while seen.lock().unwrap().len() < 60_000 {
        graph.turn(0);
    }
    (graph, seen)
}

#[test]
fn groups_that_queue_share_turns_equally_however_unequal_their_traffic() {
    for burst in [1, 32, 256] {
        let pool = pool();
        let (mut graph, seen) = overloaded(&pool, &[16, 4, 4], burst);
        let (mut shares, mut next) = ([0u64; 3], BTreeMap::new());
        for (input, from, group, number) in seen.lock().unwrap().iter() {
            assert_eq!(*input, usize::from(*group));
            shares[*input] += 1;
            // A full queue leaves gaps, but no packet of a source passes an earlier one.
            let least = next.insert((*from, *group), number + 1).unwrap_or(0);
            assert!(*number >= least, "group {group} of source {from}: {number} behind {least}");
        }
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(most - least <= 1_024 + 2 * burst as u64, "{shares:?} at bursts of {burst}");
        assert!(graph.totals().drops.of(DropReason::QueueFull).packets > 10_000);
        graph.drain(0);
        assert!(graph.totals().is_conserved() && graph.totals().held == 0 && graph.unbalanced().is_empty());
        drop(graph);
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// One source for one grouping node, so that it keeps up. A group may use turns that the others leave.
#[test]
fn a_group_has_the_turns_that_the_others_leave() {
    for (burst, weights) in [(1, [90, 5, 5]), (32, [90, 5, 5]), (32, [1, 98, 1]), (256, [1, 90, 9])] {
        let (pool, seen) = (pool(), Seen::default());
        let worker = Worker::new(0, 1, pool.clone());
        let mut graph = GraphBuilder::new("test");
        let from = graph.add("in", source(&weights, 50_000, 0)).unwrap();
        let node = graph.add("groups", by_first_byte(3, 1_024, &worker)).unwrap();
        let ends = graph.add("ends", Box::new(Ends(3, seen.clone()))).unwrap();
        graph.connect(from, Edge::OUT, node, 0).unwrap();
        (0..3).for_each(|group| graph.connect(node, Groups::edge(group), ends, group).unwrap());
        let mut graph = graph.build(pool).unwrap();
        graph.set_burst(burst);
        while graph.turn(0) != Turn::Done {}
        assert_eq!(graph.totals().drops.total().packets, 0, "{weights:?} at bursts of {burst}");
        assert_eq!(seen.lock().unwrap().len(), 50_000);
    }
}

/// Three sources: more packets than a turn releases, so that queues overflow.
///
/// Queues of groups with less than an equal share do not.
#[test]
fn a_group_with_less_than_its_share_loses_nothing() {
    for burst in [1, 32, 256] {
        let pool = pool();
        let (mut graph, seen) = overloaded(&pool, &[20, 12, 1], burst);
        let (mut shares, mut next) = ([0u64; 3], BTreeMap::new());
        for (input, from, group, number) in seen.lock().unwrap().iter() {
            shares[*input] += 1;
            let expected = next.insert((*from, *group), number + 1).unwrap_or(0);
            assert!(*group != 2 || *number == expected, "one of {from} was dropped at bursts of {burst}");
        }
        assert!(shares[2] > 0 && shares[0].abs_diff(shares[1]) <= 1_024 + 2 * burst as u64, "{shares:?}");
        assert!(graph.totals().drops.of(DropReason::QueueFull).packets > 10_000);
        graph.drain(0);
        assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
    }
}

#[test]
fn groups_part_and_meet_again_in_order() {
    for (burst, queue) in [(1, 0), (32, 0), (256, 0), (1, 4_096), (32, 4_096), (256, 4_096)] {
        let (pool, seen) = (pool(), Seen::default());
        let worker = Worker::new(0, 1, pool.clone());
        let mut graph = GraphBuilder::new("test");
        let from = graph.add("in", source(&[5, 3, 2, 1], 3_000, 0)).unwrap();
        let node = graph.add("groups", by_first_byte(4, queue, &worker)).unwrap();
        let meet = graph.add("meet", merge(4)).unwrap();
        let ends = graph.add("ends", Box::new(Ends(1, seen.clone()))).unwrap();
        graph.connect(from, Edge::OUT, node, 0).unwrap();
        (0..4).for_each(|group| graph.connect(node, Groups::edge(group), meet, group).unwrap());
        graph.connect(meet, Edge::OUT, ends, 0).unwrap();
        let mut graph = graph.build(pool).unwrap();
        graph.set_burst(burst);
        while graph.turn(0) != Turn::Done {}
        let mut next = BTreeMap::new();
        for (_, _, group, number) in seen.lock().unwrap().iter() {
            let expected = next.entry(*group).or_insert(0);
            assert_eq!(number, expected, "group {group} at bursts of {burst}, queues of {queue}");
            *expected += 1;
        }
        assert_eq!(next.values().sum::<u64>(), 3_000);
    }
}

/// Shuffles by the packet's group, so that each group belongs to one worker.
fn shuffle_by_group(shuffle: &Shuffle, worker: &Worker) -> Box<dyn Node> {
    shuffle.node_by(worker, |input| input, |packet| u64::from(packet.frame()[0])).unwrap()
}

type Wire = fn(&mut GraphBuilder, &Worker, &[Shuffle], NodeId, NodeId);

/// Groups behind a shuffle: each worker groups the packets that it owns.
fn group_within_shuffle(
    graph: &mut GraphBuilder,
    worker: &Worker,
    shuffles: &[Shuffle],
    from: NodeId,
    to: NodeId,
) {
    let shuffle = graph.add("shuffle", shuffle_by_group(&shuffles[0], worker)).unwrap();
    let groups = graph.add("groups", by_first_byte(3, 8_192, worker)).unwrap();
    graph.connect(from, Edge::OUT, shuffle, 0).unwrap();
    graph.connect(shuffle, Edge::OUT, groups, 0).unwrap();
    (0..3).for_each(|group| graph.connect(groups, Groups::edge(group), to, group).unwrap());
}

/// Shuffles behind groups: each group has its own shuffle.
fn shuffle_within_group(
    graph: &mut GraphBuilder,
    worker: &Worker,
    shuffles: &[Shuffle],
    from: NodeId,
    to: NodeId,
) {
    let groups = graph.add("groups", by_first_byte(3, 8_192, worker)).unwrap();
    graph.connect(from, Edge::OUT, groups, 0).unwrap();
    for (group, shuffle) in shuffles.iter().enumerate() {
        let node = shuffle_by_group(shuffle, worker);
        let shuffle = graph.add(format!("shuffle {group}"), node).unwrap();
        graph.connect(groups, Groups::edge(group), shuffle, 0).unwrap();
        graph.connect(shuffle, Edge::OUT, to, group).unwrap();
    }
}

#[test]
fn groups_and_shuffles_nest_in_either_order() {
    let orders: [(&str, Wire); 2] =
        [("group within shuffle", group_within_shuffle), ("shuffle within group", shuffle_within_group)];
    for (name, wire) in orders {
        let (pool, group) = (pool(), WorkerGroup::new(2));
        let shuffles = [(); 3].map(|()| Shuffle::new(ShuffleConfig { ring: 16, ..ShuffleConfig::default() }));
        let mut workers: Vec<(Graph, Seen)> = (0..2)
            .map(|index| {
                let (worker, seen) =
                    (Worker::new(index, 1, pool.clone()).in_group(group.clone()), Seen::default());
                let mut graph = GraphBuilder::new("test");
                let from = graph.add("in", source(&[3, 2, 1], 3_000, index as u8)).unwrap();
                let to = graph.add("ends", Box::new(Ends(3, seen.clone()))).unwrap();
                wire(&mut graph, &worker, &shuffles, from, to);
                let mut graph = graph.build(pool.clone()).unwrap();
                graph.set_burst(8);
                (graph, seen)
            })
            .collect();
        let mut done = [false; 2];
        for turn in 0..1_000_000 {
            // Sometimes one is ahead, sometimes the other.
            let at = usize::from(turn % 7 > 2);
            done[at] = workers[at].0.turn(0) == Turn::Done;
            if done == [true; 2] {
                break;
            }
        }
        assert_eq!(done, [true; 2], "{name} comes to an end");
        let mut owners: BTreeMap<u8, usize> = BTreeMap::new();
        let mut next: BTreeMap<(u8, u8), u64> = BTreeMap::new();
        for (index, (graph, seen)) in workers.iter().enumerate() {
            assert_eq!(graph.totals().drops.total().packets, 0, "{name}: {:?}", graph.totals().drops);
            assert!(graph.unbalanced().is_empty());
            for (input, from, group, number) in seen.lock().unwrap().iter() {
                assert_eq!(*input, usize::from(*group), "{name}");
                assert_eq!(
                    *owners.entry(*group).or_insert(index),
                    index,
                    "{name}: group {group} has one owner"
                );
                let expected = next.entry((*from, *group)).or_default();
                assert_eq!(number, expected, "{name}: group {group} of worker {from} is in order");
                *expected += 1;
            }
        }
        assert_eq!(next.values().sum::<u64>(), 6_000, "{name}: none is lost");
        assert!(workers.iter().any(|(graph, _)| graph.totals().handoff_out.packets > 0), "{name}");
        drop(workers);
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// On each worker a long queue before a short one, added in either order. The first worker receives.
fn queues_in_a_row(workers: usize, short_first: bool) -> Vec<Graph> {
    let (pool, group) = (pool(), WorkerGroup::new(workers));
    let shuffle = Shuffle::new(ShuffleConfig { ring: 8_192, ..ShuffleConfig::default() });
    let graph = |index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        let mut queues = [("long", 4_096), ("short", 128)];
        if short_first {
            queues.reverse();
        }
        let mut queues = queues.map(|(name, room)| graph.add(name, by_first_byte(2, room, &worker)).unwrap());
        if short_first {
            queues.reverse();
        }
        let [long, short] = queues;
        let by_number = shuffle.node_by(&worker, |input| input, |packet| u64::from(packet.frame()[8]));
        let shuffled = graph.add("shuffle", by_number.unwrap()).unwrap();
        for from in 0..3 {
            let source = source(&[1, 1], if index == 0 { 2_000 } else { 0 }, from);
            let source = graph.add(format!("in {from}"), source).unwrap();
            graph.connect(source, Edge::OUT, shuffled, 0).unwrap();
        }
        let ends = graph.add("ends", Box::new(Ends(1, Seen::default()))).unwrap();
        graph.connect(shuffled, Edge::OUT, long, 0).unwrap();
        for group in 0..2 {
            graph.connect(long, Groups::edge(group), short, 0).unwrap();
            graph.connect(short, Groups::edge(group), ends, 0).unwrap();
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(32);
        // Three sources bring more than one turn of the queue takes.
        let waits = |graph: &mut Graph| {
            let queued = graph.call("long", "queued", "").unwrap();
            queued.split(' ').map(|length| length.parse::<u64>().unwrap()).sum::<u64>()
        };
        if index == 0 {
            (0..10_000).find(|turn| graph.turn(*turn) == Turn::Done || waits(&mut graph) > 300).unwrap();
            assert!(waits(&mut graph) > 300, "the queue has never filled");
        }
        graph
    };
    (0..workers).map(graph).collect()
}

/// Packets leave a queue for the next one no faster than the next one releases them.
#[test]
fn queues_in_a_row_lose_nothing_to_a_move_or_an_end() {
    for short_first in [false, true] {
        let mut graphs = queues_in_a_row(2, short_first);
        for to in [1, 0] {
            assert_ne!(graphs[0].call("shuffle", "move", &format!("0-4095 {to}")).unwrap(), "0");
            let ended = (0..10_000).find(|_| {
                for graph in &mut graphs {
                    graph.turn(0);
                }
                graphs[0].call("shuffle", "moving", "").unwrap() == "0"
            });
            assert!(ended.is_some(), "it moves for ever");
        }
        // Each reports the end once its idle nodes had their turns, and not necessarily at the same time.
        let mut done = [false; 2];
        let ended = (0..100_000).find(|_| {
            for (graph, done) in graphs.iter_mut().zip(&mut done) {
                match graph.turn(0) {
                    Turn::Done => *done = true,
                    Turn::Moved(0) => {}
                    _ => *done = false,
                }
            }
            done == [true; 2]
        });
        assert!(ended.is_some(), "they do not end");
        let mut alone = queues_in_a_row(1, short_first);
        assert_eq!(alone[0].drain(0), 0);
        for graph in graphs.iter().chain(&alone) {
            assert_eq!(graph.totals().drops.total().packets, 0, "short queue first: {short_first}");
            assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
        }
        let sent: u64 = graphs.iter().map(|graph| graph.totals().sent.packets).sum();
        assert_eq!(sent, 6_000);
    }
}
