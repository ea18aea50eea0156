//! Shuffles one after the other by different keys, and beside other chains.
//!
//! Packets cross at both shuffles. None is lost however small rings are, and no worker waits for ever.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::packet::build::ethernet;
use netbricks_core::{
    Edge, Graph, GraphBuilder, GraphError, Shuffle, ShuffleConfig, ShuffleKey, Turn, Worker, WorkerGroup,
};
use netbricks_runtime::{Clock, Config, Factory, IdlePolicy, Placement, Runtime};

use crate::shuffle::{Declared, Flows, SMALL, Seen, Witness, check_order, pool, staged};

/// The keys of the shuffles, one behind the other: both spread packets, in different ways.
const KEYS: [ShuffleKey; 2] = [ShuffleKey::SymmetricFlow, ShuffleKey::Source];
/// Hosts from which each worker receives, and the flows of all of them.
const HOSTS: u8 = 32;
const FLOWS: u16 = 128;
/// Far more than a run takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Packets of many hosts.
fn hosts(worker: usize, packets: u64) -> Flows {
    let frame = |flow: u16| {
        let source = Ipv4Addr::new(10, 0, worker as u8, flow as u8 % HOSTS);
        ethernet().ipv4(source, "10.9.8.7").udp(1_000 + flow, 53).payload(&[0; 8]).build().unwrap()
    };
    Flows::of(worker, (0..FLOWS).map(frame).collect(), packets)
}

fn shuffles(ring: usize) -> Vec<Shuffle> {
    KEYS.iter().map(|key| Shuffle::new(ShuffleConfig { key: *key, ring, ..SMALL })).collect()
}

/// Every flow is complete and in order, and every host's flows are on one worker.
fn check_hosts(seen: &Seen, workers: usize, packets: u64) {
    let on = check_order(seen, workers * usize::from(FLOWS), packets);
    assert!(on.iter().all(|workers| *workers == 1), "a flow is on several workers");
    let mut owners = BTreeMap::new();
    for (flow, packets) in seen.lock().unwrap().iter() {
        let owner = *owners.entry(flow.source()).or_insert(packets[0].1);
        assert_eq!(owner, packets[0].1, "the flows of {} do not meet", flow.source());
    }
    assert_eq!(owners.len(), workers * usize::from(HOSTS));
}

#[test]
fn packets_cross_at_both_of_two_shuffles_and_none_is_lost_however_small_rings_are() {
    for (ring, each) in [(1, 5_000), (8, 14_000), (32, 21_000)] {
        for workers in [2, 3] {
            let (seen, shuffles) = (Seen::default(), shuffles(ring));
            let config = Config::new(pool())
                .workers(workers)
                .placement(Placement::Unpinned)
                .clock(Clock::Driven)
                .idle(IdlePolicy::Balanced);
            let runtime = Runtime::start(config, |worker| {
                let (shuffles, seen) = (shuffles.clone(), seen.clone());
                Factory::new(move |context| -> Result<_, GraphError> {
                    let source = hosts(worker, each);
                    let graph = staged(context.worker(), source, &shuffles, Declared::FlowTable, seen)?;
                    graph.build(context.pool().clone())
                })
            })
            .unwrap();
            let at = format!("{workers} workers, rings of {ring}");
            let ended = runtime.wait_timeout(PATIENCE);
            let report = runtime.stop();
            assert!(ended, "{at}: stands still at {:?}", report.totals);
            assert!(report.conserved && report.pool_whole, "{at}: {:?}", report.unbalanced);
            // The counts behind each shuffle drop packets that are out of order.
            assert_eq!((report.totals.drops.total().packets, report.totals.held), (0, 0), "{at}");
            let packets = each * workers as u64;
            assert_eq!(report.totals.received.packets, packets, "{at}");
            for shuffle in ["shuffle", "shuffle 1"] {
                let node = report.nodes.iter().find(|node| node.node == shuffle).unwrap();
                let (handed, taken) = (node.counters.handoff_out, node.counters.handoff_in);
                assert!(handed.packets > packets / 4, "{at}: `{shuffle}` gave away {handed:?}");
                assert_eq!(handed, taken, "{at}");
            }
            check_hosts(&seen, workers, packets);
        }
    }
}

/// A worker's graph of a group, turned by hand.
fn by_hand(
    group: &WorkerGroup,
    index: usize,
    pool: &Pool,
    shuffles: &[Shuffle],
    packets: u64,
    seen: &Seen,
) -> Graph {
    let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
    let source = hosts(index, packets);
    let graph = staged(&worker, source, shuffles, Declared::FlowTable, seen.clone()).unwrap();
    let mut graph = graph.build(pool.clone()).unwrap();
    graph.set_burst(32);
    graph
}

/// Workers get their turns in random order: sometimes one is far ahead, sometimes the other.
#[test]
fn in_whatever_order_workers_get_their_turns_all_come_to_their_end() {
    const EACH: u64 = 1_000;
    for (ring, workers) in [(1, 2), (1, 3), (2, 3), (8, 2), (32, 3)] {
        for seed in 1..=8u64 {
            let (pool, group, seen) = (pool(), WorkerGroup::new(workers), Seen::default());
            let shuffles = shuffles(ring);
            let mut graphs: Vec<Graph> =
                (0..workers).map(|index| by_hand(&group, index, &pool, &shuffles, EACH, &seen)).collect();
            let at = format!("{workers} workers, rings of {ring}, seed {seed}");
            let (mut dice, mut done) = (seed, vec![false; workers]);
            for _ in 0..100_000 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let worker = (dice >> 33) as usize % workers;
                for _ in 0..1 << ((dice >> 48) % 6) {
                    done[worker] = graphs[worker].turn(0) == Turn::Done;
                }
                if done.iter().all(|done| *done) {
                    break;
                }
            }
            assert!(done.iter().all(|done| *done), "{at}: stands still");
            for graph in &graphs {
                assert_eq!(graph.totals().drops.total().packets, 0, "{at}");
                assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty(), "{at}");
            }
            check_hosts(&seen, workers, EACH * workers as u64);
            drop(graphs);
            assert_eq!(pool.available(), pool.capacity(), "{at}");
        }
    }
}

/// The worker's own port fills the second shuffle repeatedly.
///
/// Each time the graph does not poll the first shuffle, which leads there.
#[test]
fn a_worker_with_a_busy_port_still_takes_what_comes_to_its_first_shuffle() {
    for ring in [1, 8, 32] {
        let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
        let shuffles = shuffles(ring);
        let mut graphs = [u64::MAX, 1_000]
            .into_iter()
            .enumerate()
            .map(|(index, packets)| by_hand(&group, index, &pool, &shuffles, packets, &seen))
            .collect::<Vec<_>>();
        for _ in 0..100_000 {
            for graph in &mut graphs {
                graph.turn(0);
            }
        }
        let theirs =
            |source: std::net::IpAddr| matches!(source, std::net::IpAddr::V4(v4) if v4.octets()[2] == 1);
        let came: usize = {
            let seen = seen.lock().unwrap();
            seen.iter().filter(|(flow, _)| theirs(flow.source())).map(|(_, packets)| packets.len()).sum()
        };
        assert_eq!(came, 1_000, "rings of {ring}");
    }
}

/// Another chain's packets never end. The shuffle has room again, and no worker sends it anything.
#[test]
fn a_busy_chain_beside_it_keeps_no_shuffle_from_sending_what_waits() {
    const PACKETS: u64 = 1_000;
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 8, ..SMALL });
    let mut graphs = [(0, PACKETS), (1, 0)].map(|(index, packets)| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        let mut chain = |name: &str, source: Flows, seen: Seen| {
            let source = graph.add(format!("in {name}"), Box::new(source)).unwrap();
            let out = graph.add(format!("out {name}"), Box::new(Witness { worker: index, seen })).unwrap();
            (source, out)
        };
        let (source, out) = chain("shuffled", hosts(index, packets), seen.clone());
        let beside = chain("beside", hosts(2 + index, u64::MAX), Seen::default());
        let node = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
        for (from, to) in [(source, node), (node, out), beside] {
            graph.connect(from, Edge::OUT, to, 0).unwrap();
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(32);
        graph
    });
    for _ in 0..20_000 {
        for graph in &mut graphs {
            graph.turn(0);
        }
    }
    check_order(&seen, usize::from(FLOWS), PACKETS);
}
