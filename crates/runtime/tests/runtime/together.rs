//! Moves of flows among three workers that get their turns in any order.
//!
//! The flows pass several shuffles that lead to one function, shuffles with packets that are rewritten in
//! between, and transmit queues of which one is slow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Context, Departed, DropReason, Edge, Function, Graph, GraphBuilder, Input, Node, NodeQueue, Operator,
    Poll, Shape, Shuffle, ShuffleConfig, ShuffleKey, Turn, Worker, WorkerGroup, compose,
};

use crate::shuffle::{Declared, Flows, NUMBER, SMALL, Seen, Witness, check_order, in_turn, pool};

const WORKERS: usize = 3;
const FLOWS: u16 = 24;
const EACH: u64 = 15_000;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// Three workers' graphs, each from `build`.
fn graphs(pool: &Pool, mut build: impl FnMut(&Worker, &mut GraphBuilder)) -> Vec<Graph> {
    let group = WorkerGroup::new(WORKERS);
    let made = (0..WORKERS).map(|index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        build(&worker, &mut graph);
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(16);
        graph
    });
    made.collect()
}

/// Gives the workers turns in any order, and moves random buckets to random workers, until all is done.
///
/// The moves are behind any of these shuffles. Answers the number of moves.
fn run(graphs: &mut [Graph], shuffles: &[&str], seed: u64) -> usize {
    let (mut dice, mut moves) = (Dice(seed), 0);
    // For a while, a worker gets many turns in a row, or hardly any.
    let mut weights = [1; WORKERS];
    for round in 0..4_000_000 {
        if round % 512 == 0 {
            weights = [(); WORKERS].map(|()| 1 + dice.below(12));
        }
        let mut place = dice.below(weights.iter().sum());
        let worker = weights.iter().position(|weight| {
            let here = place < *weight;
            place = place.saturating_sub(*weight);
            here
        });
        graphs[worker.unwrap()].turn(round);
        if dice.below(8) == 0 {
            let (first, count) = (dice.below(4_096), dice.below(4_096));
            let (last, to) = ((first + count).min(4_095), dice.below(WORKERS));
            let shuffle = shuffles[dice.below(shuffles.len())];
            let asked = graphs[dice.below(WORKERS)].call(shuffle, "move", &format!("{first}-{last} {to}"));
            moves += usize::from(asked.is_ok_and(|pairs| pairs != "0"));
        }
        if round % 1_024 == 0 && graphs.iter_mut().all(|graph| graph.turn(round) == Turn::Done) {
            return moves;
        }
    }
    panic!("they do not come to an end after {moves} moves");
}

fn lost(graphs: &[Graph]) -> u64 {
    graphs.iter().map(|graph| graph.totals().drops.total().packets).sum()
}

/// Counts both directions of a connection in one entry, and drops the packet whose number is not its
/// direction's count.
fn both_in_turn(input: Input, worker: &Worker) -> impl Function + use<> {
    let flows = worker.flow_table::<FlowKey, [u64; 2]>("connections", FlowTableConfig::new(4_096));
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |packet| packet.flow_key().canonical(),
            |packet, entry| {
                let number = u64::from_be_bytes(packet.frame()[NUMBER].try_into().unwrap());
                let flow = packet.flow_key();
                let direction = usize::from(flow != flow.canonical());
                match entry {
                    Entry::Found(mut next) => {
                        let next = &mut next.get_mut()[direction];
                        std::mem::replace(next, number + 1) == number
                    }
                    Entry::Vacant(place) => {
                        let mut next = [0; 2];
                        next[direction] = number + 1;
                        place.insert(next);
                        number == 0
                    }
                    Entry::Full => false,
                }
            },
        )
        .filter(DropReason::Denied, |packet| *netbricks_core::Metadata::get::<bool>(packet))
        .done()
}

/// One shuffle for each port, as in a chain file.
///
/// State that both directions share is behind both shuffles, and moves with them.
#[test]
fn state_behind_two_shuffles_moves_with_both() {
    for seed in 0..6 {
        let (pool, seen) = (pool(), Seen::default());
        let shuffles = [(); 2].map(|()| Shuffle::new(SMALL));
        let mut graphs = graphs(&pool, |worker, graph| {
            let index = worker.index();
            let count = compose(worker, |input| both_in_turn(input, worker)).unwrap();
            let count = graph.add("count", count).unwrap();
            let out = Witness { worker: index, seen: seen.clone() };
            let out = graph.add("out", Box::new(out)).unwrap();
            graph.connect(count, Edge::OUT, out, 0).unwrap();
            // The other direction of the packets that arrive here at one port arrives at another worker at
            // the other port.
            let sources = [2 * index, 2 * ((index + 1) % WORKERS) + 1];
            for ((number, shuffle), flows) in shuffles.iter().enumerate().zip(sources) {
                let source = Flows::new(flows, FLOWS, EACH);
                let source = graph.add(format!("in {number}"), Box::new(source)).unwrap();
                let shuffle = graph.add(format!("shuffle {number}"), shuffle.node(worker).unwrap()).unwrap();
                graph.connect(source, Edge::OUT, shuffle, 0).unwrap();
                graph.connect(shuffle, Edge::OUT, count, 0).unwrap();
            }
        });
        let moves = run(&mut graphs, &["shuffle 0", "shuffle 1"], seed);
        assert!(moves > 20, "{moves} moves");
        assert_eq!(lost(&graphs), 0, "a packet came before its connection's state, seed {seed}");
        let all = 2 * WORKERS as u64 * EACH;
        let on = check_order(&seen, 2 * WORKERS * usize::from(FLOWS), all);
        assert!(on.iter().any(|workers| *workers > 1), "flows have moved");
    }
}

/// Gives each flow another source address, which for most of them is another bucket.
struct Translate;

impl Node for Translate {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        for slot in 0..batch.len() {
            let mut packet = batch.packet(slot).unwrap();
            let port = packet.data()[35];
            packet.data_mut()[29] ^= port | 0x80;
        }
    }
}

/// Packets of the old owner through the second shuffle to a third worker are not overtaken by the new
/// owner's.
///
/// The second shuffle has another key, or the same key over rewritten packets.
#[test]
fn a_third_worker_gets_packets_in_order_from_old_and_new_owners() {
    for (second, translates) in
        [(ShuffleKey::SymmetricFlow, true), (ShuffleKey::Source, false), (ShuffleKey::Flow, true)]
    {
        for seed in 0..4 {
            let (pool, seen) = (pool(), Seen::default());
            let config = ShuffleConfig { ring: 512, ..SMALL };
            let shuffles =
                [ShuffleKey::SymmetricFlow, second].map(|key| Shuffle::new(ShuffleConfig { key, ..config }));
            let mut graphs = graphs(&pool, |worker, graph| {
                let index = worker.index();
                let count = || compose(worker, |input| in_turn(input, worker, Declared::FlowTable)).unwrap();
                let mut nodes = vec![
                    graph.add("in", Box::new(Flows::new(2 * index, FLOWS, EACH))).unwrap(),
                    graph.add("shuffle 0", shuffles[0].node(worker).unwrap()).unwrap(),
                    graph.add("count 0", count()).unwrap(),
                ];
                if translates {
                    nodes.push(graph.add("translate", Box::new(Translate)).unwrap());
                }
                let out = Witness { worker: index, seen: seen.clone() };
                nodes.push(graph.add("shuffle 1", shuffles[1].node(worker).unwrap()).unwrap());
                nodes.push(graph.add("count 1", count()).unwrap());
                nodes.push(graph.add("out", Box::new(out)).unwrap());
                for pair in nodes.windows(2) {
                    graph.connect(pair[0], Edge::OUT, pair[1], 0).unwrap();
                }
            });
            let moves = run(&mut graphs, &["shuffle 0", "shuffle 1"], seed);
            assert!(moves > 5, "{moves} moves");
            assert_eq!(lost(&graphs), 0, "a packet came out of turn: {second:?}, seed {seed}");
            check_order(&seen, WORKERS * usize::from(FLOWS), WORKERS as u64 * EACH);
        }
    }
}

/// The output of the device, in order: flow and number.
type Wire = Arc<Mutex<Vec<(FlowKey, u64)>>>;

/// A worker's own queue of a device, which sends a packet once in several turns.
struct Queue {
    there: VecDeque<Packet>,
    given: u64,
    wire: Wire,
    /// Turns between two packets, and turns so far.
    slow: u64,
    turns: u64,
}

impl Queue {
    fn new(slow: u64, wire: Wire) -> Self {
        Self { there: VecDeque::new(), given: 0, wire, slow, turns: 0 }
    }
    fn send(&mut self) {
        if let Some(packet) = self.there.pop_front() {
            let number = u64::from_be_bytes(packet.data()[NUMBER].try_into().unwrap());
            let flow = FlowKey::from_frame(packet.data()).unwrap();
            self.wire.lock().unwrap().push((flow, number));
        }
    }
}

impl Node for Queue {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.given += batch.len() as u64;
        self.there.extend(batch.drain());
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        self.turns += 1;
        if self.turns.is_multiple_of(self.slow) {
            self.send();
        }
        if self.there.is_empty() { Poll::Idle } else { Poll::Until(cx.now() + 1) }
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, ..Shape::transmit() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Queue {
    fn held(&self) -> u64 {
        0
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
    fn departed(&self) -> Vec<Departed> {
        vec![Departed { given: self.given, left: self.given - self.there.len() as u64 }]
    }
}

/// Each worker has its own transmit queue, and packets in it are not sent yet.
#[test]
fn the_new_owner_overtakes_nothing_in_the_old_one_s_transmit_queue() {
    // Also where only packets move the time on.
    for (slow, led) in
        [[1, 1, 8], [8, 1, 1], [3, 8, 2]].into_iter().flat_map(|slow| [(slow, false), (slow, true)])
    {
        let (pool, wire) = (Pool::builder().frames(65_536).build().unwrap(), Wire::default());
        let shuffle = Shuffle::new(SMALL);
        let mut graphs = graphs(&pool, |worker, graph| {
            let index = worker.index();
            let nodes = [
                graph.add("in", Box::new(Flows::new(2 * index, FLOWS, EACH))).unwrap(),
                graph.add("shuffle", shuffle.node(worker).unwrap()).unwrap(),
                graph.add("out", Box::new(Queue::new(slow[index], wire.clone()))).unwrap(),
            ];
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0).unwrap();
            }
        });
        graphs.iter_mut().for_each(|graph| graph.follow_arrivals(led));
        let moves = run(&mut graphs, &["shuffle"], 7);
        assert!(moves > 5, "{moves} moves");
        assert_eq!(lost(&graphs), 0);
        let mut next = std::collections::BTreeMap::new();
        for (flow, number) in wire.lock().unwrap().iter() {
            let next = next.entry(*flow).or_insert(0);
            assert_eq!(*number, *next, "{flow} is out of order on the wire, {slow:?}");
            *next += 1;
        }
        assert!(next.values().sum::<u64>() > EACH, "much has left");
    }
}
