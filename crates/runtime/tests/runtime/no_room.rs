//! Flows move to a worker whose table has no room for all of them: its policy decides, flow by flow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Context, Edge, Function, Graph, GraphBuilder, Input, Node, Operator, Poll, Shape, Shuffle, StoredFlow,
    TableKey, Worker, WorkerGroup, compose,
};

use crate::shuffle::{NUMBER, SMALL, Seen, Witness, pool};

/// Flows of all workers together, and the room of each.
const FLOWS: usize = 600;
const ROOM: usize = 400;
/// Packets of each flow before the move, and in total.
const BEFORE: u64 = 3;
const ALL: u64 = 5;

/// One packet of each flow, as often as it is allowed.
struct Rounds {
    templates: Vec<Vec<u8>>,
    allowed: Arc<AtomicU64>,
    next: usize,
}

impl Node for Rounds {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let end = self.templates.len() * self.allowed.load(Ordering::Relaxed) as usize;
        while self.next < end && batch.len() < cx.burst() {
            let (round, flow) = (self.next / self.templates.len(), self.next % self.templates.len());
            let mut packet = cx.pool().packet(&self.templates[flow]).unwrap();
            packet.data_mut()[NUMBER].copy_from_slice(&(round as u64).to_be_bytes());
            batch.push(packet).unwrap();
            self.next += 1;
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Counts each flow's packets, and separately the packets for which the table has no room.
///
/// These are packets whose flow finds no place, and packets of a flow that gives its place to a new one.
fn counting(input: Input, worker: &Worker, full: Full, outside: Arc<AtomicU64>) -> impl Function + use<> {
    let config = FlowTableConfig { full, ..FlowTableConfig::new(ROOM) };
    let flows = worker.flow_table::<FlowKey, u64>("flows", config);
    let lost = move |packets: u64| {
        outside.fetch_add(packets, Ordering::Relaxed);
    };
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |packet| packet.flow_key(),
            move |_, entry| match entry {
                Entry::Found(mut packets) => *packets.get_mut() += 1,
                Entry::Vacant(place) => lost(place.replace(1).0.map_or(0, |(_, packets)| packets)),
                Entry::Full => lost(1),
            },
        )
        .done()
}

struct Two {
    graphs: [Graph; 2],
    seen: Seen,
    allowed: Arc<AtomicU64>,
    outside: Arc<AtomicU64>,
}

impl Two {
    /// All flows arrive at the first worker, which hands the second worker's flows over.
    fn new(pool: &Pool, full: Full) -> Self {
        let (group, shuffle, seen) = (WorkerGroup::new(2), Shuffle::new(SMALL), Seen::default());
        let (allowed, outside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let frame = |flow| ethernet().ipv4("10.0.0.1", "10.9.8.7").udp(1_000 + flow, 53).payload(&[0; 8]);
        let graphs = [FLOWS, 0].into_iter().enumerate().map(|(index, flows)| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let templates = (0..flows as u16).map(|flow| frame(flow).build().unwrap()).collect();
            let source = Rounds { templates, allowed: allowed.clone(), next: 0 };
            let count = compose(&worker, |input| counting(input, &worker, full, outside.clone()));
            let mut graph = GraphBuilder::new("test");
            let nodes = [
                graph.add("source", Box::new(source)).unwrap(),
                graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap(),
                graph.add("count", count.unwrap()).unwrap(),
                graph.add("out", Box::new(Witness { worker: index, seen: seen.clone() })).unwrap(),
            ];
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0).unwrap();
            }
            let mut graph = graph.build(pool.clone()).unwrap();
            graph.set_burst(32);
            graph
        });
        let graphs = graphs.collect::<Vec<_>>().try_into().ok().unwrap();
        Self { graphs, seen, allowed, outside }
    }

    fn turn(&mut self) {
        for graph in &mut self.graphs {
            graph.turn(0);
        }
    }

    /// Continues until this many packets of each flow were sent.
    fn send(&mut self, each: u64) {
        self.allowed.store(each, Ordering::Relaxed);
        let sent = |two: &Self| two.seen.lock().unwrap().values().map(Vec::len).sum::<usize>() as u64;
        for _ in 0..10_000 {
            if sent(self) == each * FLOWS as u64 {
                break;
            }
            self.turn();
        }
        assert_eq!(sent(self), each * FLOWS as u64);
    }

    fn ask(&mut self, worker: usize, node: &str, handler: &str) -> String {
        self.graphs[worker].call(node, handler, "").unwrap()
    }

    /// The flows of a worker, with the count of each.
    fn flows(&self, worker: usize) -> BTreeMap<FlowKey, u64> {
        let images = self.graphs[worker].export();
        let (_, (_, bytes)) = images.iter().find(|(_, (name, _))| name == "flows").unwrap();
        let mut table: FlowTable<StoredFlow, u64> = FlowTable::new(FlowTableConfig::new(FLOWS)).unwrap();
        table.decode(bytes, 0).unwrap();
        table.iter().map(|(key, packets)| (FlowKey::restore(key), *packets)).collect()
    }
}

#[test]
fn flows_that_move_to_a_table_without_room_for_all_are_dealt_with_by_its_policy() {
    for full in [Full::EvictOldest, Full::Refuse] {
        let pool = pool();
        let mut two = Two::new(&pool, full);
        two.send(BEFORE);
        let both = [two.flows(0), two.flows(1)];
        assert_eq!(both[0].len() + both[1].len(), FLOWS, "each has room for its own");
        assert!(both.iter().flat_map(BTreeMap::values).all(|packets| *packets == BEFORE));

        assert_eq!(two.graphs[0].call("shuffle", "move", "0-4095 1").unwrap(), "1");
        (0..100).for_each(|_| two.turn());
        assert_eq!(two.ask(1, "shuffle", "moving"), "0");
        assert_eq!(two.ask(1, "shuffle", "refused"), "0", "nothing was wrong with what moved");
        let left_out = (FLOWS - ROOM) as u64;
        let counts =
            |two: &mut Two| ["flows.evicted", "flows.refused"].map(|count| two.ask(1, "count", count));
        let evicts = full == Full::EvictOldest;
        let expected = if evicts { [left_out, 0] } else { [0, left_out] };
        assert_eq!(counts(&mut two), expected.map(|count| count.to_string()), "{full:?}");
        assert_eq!(two.outside.load(Ordering::Relaxed), 0);
        let moved = two.flows(1);
        assert_eq!((two.flows(0).len(), moved.len()), (0, ROOM), "{full:?}");
        assert!(moved.values().all(|packets| *packets == BEFORE));
        // The refused flows are those that came.
        let stayed = both[1].keys().filter(|key| moved.contains_key(key)).count();
        assert_eq!(stayed == both[1].len(), !evicts, "{full:?}: {stayed}");

        two.send(ALL);
        assert!(two.flows(0).is_empty());
        let inside: u64 = two.flows(1).values().sum();
        let outside = two.outside.load(Ordering::Relaxed);
        assert_eq!(inside + outside + left_out * BEFORE, ALL * FLOWS as u64, "{full:?}");
        if !evicts {
            assert!(two.flows(1).values().all(|packets| *packets == ALL));
            assert_eq!(outside, left_out * (ALL - BEFORE));
        }
        for packets in two.seen.lock().unwrap().values() {
            let numbers: Vec<u64> = packets.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (0..ALL).collect::<Vec<_>>(), "in order");
        }
    }
}
