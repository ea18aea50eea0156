//! Buckets move behind all shuffles by one key, in the order in which packets pass them, during other
//! activity.

use netbricks_core::packet::FlowKey;
use netbricks_core::{
    Edge, Graph, GraphBuilder, Shuffle, ShuffleConfig, ShuffleKey, Turn, Worker, WorkerGroup, compose,
};
use netbricks_runtime::Control;

use crate::shuffle::{
    Declared, Flows, MOST, RUN, Run, SMALL, Seen, Witness, by_hand, check_order, fed, in_turn, in_turn_of,
    move_back_and_forth_by, pool, staged,
};

/// Behind all shuffles by its key, a flow is on one worker, with its state and its order.
#[test]
fn shuffles_by_one_key_move_together() {
    // Rings with much room: packets of a flow could pass others of the flow there.
    let run = Run { packets: MOST, stages: 2, config: ShuffleConfig { ring: 2_048, ..SMALL }, ..RUN };
    let same = |control: &Control, owner: usize| {
        for (worker, node) in [(0, "shuffle"), (0, "shuffle 1"), (1, "shuffle"), (1, "shuffle 1")] {
            let routes = control.call(worker, "test", node, "routes", "").unwrap();
            assert_eq!(routes, format!("0-4095 {owner}"), "`{node}` of worker {worker}");
        }
    };
    move_back_and_forth_by(&run, ["shuffle", "shuffle 1"], same);
}

/// Packets on their way to the second shuffle are not overtaken by packets from the first shuffle's new
/// owner.
///
/// This holds however slowly the new owner takes them.
#[test]
fn packets_between_two_shuffles_that_move_are_not_overtaken() {
    for slow in [2, 20, 60] {
        let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
        let shuffles = [(); 2].map(|()| Shuffle::new(ShuffleConfig { ring: 2_048, ..SMALL }));
        let mut graphs = [0, 1].map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let source = Flows::new(0, 16, if index == 0 { 40_000 } else { 0 });
            let graph = staged(&worker, source, &shuffles, Declared::FlowTable, seen.clone()).unwrap();
            let mut graph = graph.build(pool.clone()).unwrap();
            graph.set_burst(32);
            graph
        });
        let (mut moves, mut to) = (0, 1);
        for turn in 0..100_000 {
            graphs[0].turn(0);
            if turn % slow == 0 {
                graphs[1].turn(0);
            }
            let asked = graphs[0].call("shuffle", "move", &format!("0-4095 {to}"));
            if asked.is_ok_and(|pairs| pairs != "0") {
                (moves, to) = (moves + 1, 1 - to);
            }
        }
        let ended = graphs.each_mut().map(|graph| graph.turn(0));
        assert_eq!(ended, [Turn::Done; 2], "{moves} moves, one turn in {slow}");
        assert!(moves > 4, "{moves} moves");
        for graph in &graphs {
            assert_eq!(
                graph.totals().drops.total().packets,
                0,
                "a packet came out of turn, one turn in {slow}"
            );
        }
        check_order(&seen, 16, 40_000);
    }
}

/// A shuffle that is made after buckets have moved has the same owners. With another key it does not.
#[test]
fn a_shuffle_that_comes_later_has_the_same_owners() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let make = |key| {
        let shuffle = Shuffle::new(ShuffleConfig { key, ..SMALL });
        [0, 1].map(|index| by_hand(&group, index, &pool, &shuffle, &seen).0)
    };
    let owners = |graphs: &mut [Graph; 2]| graphs[0].call("shuffle", "owners", "").unwrap();
    let mut first = make(ShuffleKey::SymmetricFlow);
    assert_eq!(first[0].call("shuffle", "move", "0-4095 1").unwrap(), "1");
    let mut later = make(ShuffleKey::SymmetricFlow);
    assert_eq!((owners(&mut first), owners(&mut later)), ("0-4095 1".into(), "0-4095 1".into()));
    let mut other = make(ShuffleKey::Source);
    assert!(owners(&mut other).starts_with("0-0 0, 1-1 1"));
    // A graph that was taken down does not keep others from moving.
    for graph in &mut first {
        graph.drain(0);
    }
    drop(first);
    assert_eq!(later[1].call("shuffle", "move", "7 0").unwrap(), "1");
}

/// Turns of both, one after the other.
fn turn(graphs: &mut [Graph; 2], count: usize) {
    for _ in 0..count {
        for graph in &mut *graphs {
            graph.turn(0);
        }
    }
}

/// One of the shuffles gets no more packets on both workers; the other continues.
#[test]
fn a_shuffle_that_has_ended_keeps_no_other_by_its_key_from_moving() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let make = |packets| {
        let shuffle = Shuffle::new(SMALL);
        [0, 1].map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            fed(&worker, [Flows::new(index, 16, packets)], &shuffle, &seen)
        })
    };
    let (mut ended, mut going) = (make(0), make(1_000));
    turn(&mut ended, 100);
    assert_eq!(ended.each_mut().map(|graph| graph.turn(0)), [Turn::Done; 2]);
    for to in [1, 0] {
        assert_ne!(going[0].call("shuffle", "move", &format!("0-4095 {to}")).unwrap(), "0");
        turn(&mut going, 20);
        assert_eq!(going[1].call("shuffle", "routes", "").unwrap(), format!("0-4095 {to}"));
    }
    turn(&mut going, 100_000);
    assert_eq!(going.each_mut().map(|graph| graph.turn(0)), [Turn::Done; 2]);
    check_order(&seen, 32, 2_000);
    let problem = going[0].call("shuffle", "move", "0-4095 1").unwrap_err().to_string();
    assert!(problem.contains("the run is ending: no bucket moves any more"), "{problem}");
}

/// Its graphs are dropped before the move is done.
///
/// The next shuffle by its key moves, and so do later moves.
#[test]
fn a_shuffle_that_dies_in_the_middle_of_a_move_does_not_block_the_others() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let make = || {
        let shuffle = Shuffle::new(SMALL);
        [0, 1].map(|index| by_hand(&group, index, &pool, &shuffle, &seen).0)
    };
    // The shuffle that was made last moves first.
    let (mut going, dies) = (make(), make());
    assert_eq!(going[0].call("shuffle", "move", "0-4095 1").unwrap(), "2");
    drop(dies);
    assert_eq!(going[0].call("shuffle", "moving", "").unwrap(), "1");
    turn(&mut going, 20);
    let owners = |graph: &mut Graph| ["moving", "routes"].map(|ask| graph.call("shuffle", ask, "").unwrap());
    assert_eq!(owners(&mut going[0]), ["0", "0-4095 1"]);
    assert_eq!(going[0].call("shuffle", "move", "0-4095 0").unwrap(), "1");
}

/// The two shuffles do not finish a move at the same time.
///
/// So there is no right time for the state behind both.
#[test]
fn state_behind_shuffles_by_different_keys_does_not_move() {
    let (pool, group) = (pool(), WorkerGroup::new(2));
    let keys = [ShuffleKey::SymmetricFlow, ShuffleKey::Flow];
    let shuffles = keys.map(|key| Shuffle::new(ShuffleConfig { key, ..SMALL }));
    let mut graphs = [0, 1].map(|index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        let count = compose(&worker, |input| in_turn(input, &worker, Declared::FlowTable)).unwrap();
        let count = graph.add("count", count).unwrap();
        let out = graph.add("out", Box::new(Witness { worker: index, seen: Seen::default() })).unwrap();
        graph.connect(count, Edge::OUT, out, 0).unwrap();
        for (number, shuffle) in shuffles.iter().enumerate() {
            let source = graph.add(format!("in {number}"), Box::new(Flows::new(index, 1, 0))).unwrap();
            let shuffle = graph.add(format!("shuffle {number}"), shuffle.node(&worker).unwrap()).unwrap();
            graph.connect(source, Edge::OUT, shuffle, 0).unwrap();
            graph.connect(shuffle, Edge::OUT, count, 0).unwrap();
        }
        graph.build(pool.clone()).unwrap()
    });
    let problem = graphs[0].call("shuffle 1", "move", "1 0").unwrap_err().to_string();
    assert!(problem.contains("state `flows` of function `count` on worker 0 cannot move"), "{problem}");
}

/// The flows behind the answers of a key function are not known, even if the answers are flows themselves.
///
/// State of that function stays where packets arrive.
#[test]
fn behind_a_key_of_one_s_own_only_what_has_no_state_moves() {
    for counts in [true, false] {
        let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
        let shuffle = Shuffle::new(SMALL);
        let mut graphs = [0, 1].map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let sorts = |input| in_turn_of(input, &worker);
            let sorts = shuffle
                .node_by(&worker, sorts, |packet| FlowKey::from_frame(packet.frame()).unwrap().canonical());
            let mut graph = GraphBuilder::new("test");
            let mut nodes = vec![
                graph.add("in", Box::new(Flows::new(index, 16, 5_000))).unwrap(),
                graph.add("shuffle", sorts.unwrap()).unwrap(),
            ];
            if counts {
                let count = compose(&worker, |input| in_turn(input, &worker, Declared::FlowTable)).unwrap();
                nodes.push(graph.add("count", count).unwrap());
            }
            let out = Witness { worker: index, seen: seen.clone() };
            nodes.push(graph.add("out", Box::new(out)).unwrap());
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0).unwrap();
            }
            graph.build(pool.clone()).unwrap()
        });
        turn(&mut graphs, 20);
        let asked = graphs[0].call("shuffle", "move", "0-2047 1");
        if counts {
            let problem = asked.unwrap_err().to_string();
            assert!(
                problem.contains("state `flows` of function `count` on worker 0 cannot move"),
                "{problem}"
            );
        } else {
            assert_eq!(asked.unwrap(), "1");
        }
        turn(&mut graphs, 5_000);
        assert_eq!(graphs.each_mut().map(|graph| graph.turn(0)), [Turn::Done; 2]);
        // The key function drops packets whose flow it does not know.
        check_order(&seen, 32, 10_000);
    }
}

/// Each worker waits for the other's state, which is only given away after all earlier packets were seen.
///
/// With many receive queues, more packets come in than leave the rings.
#[test]
fn two_workers_change_places_at_any_time_however_much_comes_in() {
    const SOURCES: usize = 8;
    const EACH: u64 = 2_000;
    for (ring, burst) in [(1, 256), (8, 1), (8, 32), (64, 4)] {
        for time in 0..40 {
            let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
            let shuffle = Shuffle::new(ShuffleConfig { ring, ..SMALL });
            let mut graphs = [0, 1].map(|index| {
                let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
                // Each source has its own flows.
                let sources = (0..SOURCES).map(|source| Flows::new(index + 2 * source, 16, EACH));
                let mut graph = fed(&worker, sources, &shuffle, &seen);
                graph.set_burst(burst);
                graph
            });
            // Both directions at once, and back again as soon as they have moved.
            turn(&mut graphs, time);
            for halves in ["0-2047 0, 2048-4095 1", "0-2047 1, 2048-4095 0"] {
                let moved = (0..5_000).any(|_| {
                    turn(&mut graphs, 1);
                    graphs[0].call("shuffle", "move", halves).is_ok_and(|pairs| pairs == "2")
                });
                assert!(
                    moved,
                    "rings of {ring}, bursts of {burst}, after {time} turns: the move before is not over"
                );
            }
            turn(&mut graphs, 100_000);
            let ended = graphs.each_mut().map(|graph| graph.turn(0));
            assert_eq!(
                ended,
                [Turn::Done; 2],
                "rings of {ring}, bursts of {burst}, moved after {time} turns"
            );
            check_order(&seen, 2 * SOURCES * 16, 2 * SOURCES as u64 * EACH);
        }
    }
}
