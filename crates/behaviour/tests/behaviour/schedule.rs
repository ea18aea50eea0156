//! The order of turns: sources rotate, idle ones are asked seldom, timers are on time, ended ones get none.

use netbricks_core::Turn;

use crate::harness::{Feed, Rig, Sink, check, counters, numbered, run_out};

fn rig(feeds: &[Feed]) -> (netbricks_core::Graph, Sink) {
    let sink = Sink::default();
    let mut rig = Rig::new();
    let end = rig.add("end", Box::new(sink.clone()));
    for (i, feed) in feeds.iter().enumerate() {
        let source = rig.add(&format!("source {i}"), Box::new(feed.clone()));
        rig.connect(source, 0, end);
    }
    let (graph, _) = rig.build();
    (graph, sink)
}

#[test]
fn busy_sources_take_turns() {
    let feeds: Vec<Feed> = (0..3).map(|i| Feed::of((0..100).map(|n| numbered(i * 1000 + n)))).collect();
    let (mut graph, sink) = rig(&feeds);
    graph.set_burst(10);
    for turn in 0..30 {
        assert_eq!(graph.turn(turn), Turn::Moved(10));
    }
    let order: Vec<u32> = sink.numbers().chunks(10).map(|batch| batch[0] / 1000).collect();
    assert_eq!(order, (0..30).map(|i| i % 3).collect::<Vec<_>>());
    assert_eq!(graph.turn(30), Turn::Done);
}

#[test]
fn idle_sources_are_asked_now_and_then_while_others_are_busy() {
    let busy = Feed::of((0..200).map(numbered));
    let idle = [Feed::default(), Feed::default()];
    let (mut graph, sink) = rig(&[busy, idle[0].clone(), idle[1].clone()]);
    graph.set_burst(1);
    for turn in 0..180 {
        let _ = graph.turn(turn);
        if turn == 100 {
            idle[1].add([numbered(9_999)]);
        }
    }
    for feed in &idle {
        let polls = feed.polls();
        assert!(polls.len() > 5 && polls.len() < 60, "{} polls", polls.len());
        assert!(polls.windows(2).all(|pair| pair[1] - pair[0] < 40), "{polls:?}");
    }
    assert!(sink.numbers().contains(&9_999));
}

#[test]
fn turns_at_once_are_the_same_as_turns_one_by_one() {
    const TURNS: u32 = 180;
    let run = |busy: usize, most: u32| {
        let mut feeds: Vec<Feed> =
            (0..busy as u32).map(|i| Feed::of((0..900).map(|n| numbered(i * 1_000 + n)))).collect();
        feeds.extend([Feed::default(), Feed::default()]);
        let (mut graph, sink) = rig(&feeds);
        graph.set_burst(3);
        let (mut left, mut moved, mut calls) = (TURNS, 0, 0);
        while left > 0 {
            let (turn, taken) = graph.turns(0, most.min(left));
            check(&graph);
            assert!((1..=most.min(left)).contains(&taken), "{taken} of {left}");
            left -= taken;
            calls += 1;
            if let Turn::Moved(packets) = turn {
                moved += packets;
            }
        }
        let polls: Vec<usize> = feeds.iter().map(|feed| feed.polls().len()).collect();
        (calls, (sink.numbers(), polls, moved))
    };
    for busy in [1, 2] {
        let (_, one_by_one) = run(busy, 1);
        for most in [2, 7, 64, 1_000] {
            let (calls, at_once) = run(busy, most);
            assert_eq!(at_once, one_by_one, "{busy} busy, {most} at once");
            // Two busy sources take turns, so that none has two in a row.
            assert!(if busy == 1 { calls < TURNS } else { calls == TURNS }, "{calls} calls");
        }
    }
}

#[test]
fn a_source_that_ends_or_rests_takes_no_turn_more() {
    for until in [None, Some(1_000)] {
        let feed = Feed::default();
        feed.add((0..10).map(numbered));
        feed.until(until);
        let (mut graph, sink) = rig(std::slice::from_ref(&feed));
        graph.set_burst(4);
        assert_eq!(graph.turns(0, 100), (Turn::Moved(10), 3));
        assert_eq!(graph.turns(0, 100), (Turn::Idle(until), 1));
        assert_eq!(sink.numbers(), (0..10).collect::<Vec<_>>());
    }
    let (mut graph, _) = rig(&[Feed::of((0..10).map(numbered))]);
    graph.set_burst(4);
    assert_eq!(graph.turns(0, 100), (Turn::Moved(10), 3));
    assert_eq!(graph.turns(0, 100), (Turn::Done, 1));
}

#[test]
fn a_graph_with_nothing_to_do_is_idle_until_it_is_woken() {
    let feed = Feed::default();
    let (mut graph, sink) = rig(std::slice::from_ref(&feed));
    assert_eq!(graph.turn(0), Turn::Idle(None));
    assert!(!graph.can_sleep(), "the feed has no descriptor to sleep on");
    feed.add([numbered(1)]);
    graph.wake();
    assert_eq!(graph.turn(1), Turn::Moved(1));
    assert_eq!(sink.numbers(), [1]);
    feed.end();
    let _ = graph.turn(2);
    assert_eq!(graph.turn(3), Turn::Done);
    let polls = feed.polls().len();
    feed.add([numbered(2)]);
    graph.wake();
    assert_eq!(graph.turn(4), Turn::Done);
    assert_eq!(feed.polls().len(), polls, "what has ended is asked no more");
}

#[test]
fn a_timer_runs_when_it_is_due_and_not_before() {
    let (early, late) = (Feed::default(), Feed::default());
    early.until(Some(1_000));
    late.until(Some(5_000));
    let (mut graph, _) = rig(&[late.clone(), early.clone()]);
    while graph.turn(0) != Turn::Idle(Some(1_000)) {}
    assert_eq!(graph.turn(999), Turn::Idle(Some(1_000)));
    assert_eq!((early.polls().len(), late.polls().len()), (1, 1));
    early.add([numbered(1)]);
    early.until(Some(9_000));
    assert_eq!(graph.turn(1_000), Turn::Moved(1));
    assert_eq!(early.polls(), [0, 1_000]);
    while graph.turn(4_999) != Turn::Idle(Some(5_000)) {}
    late.end();
    while graph.turn(5_000) != Turn::Idle(Some(9_000)) {}
    assert_eq!(late.polls(), [0, 5_000]);
    early.end();
    while graph.turn(9_000) != Turn::Done {}
}

#[test]
fn the_burst_is_a_bound() {
    for (asked, most) in [(0, 1), (7, 7), (256, 256), (10_000, 256)] {
        let (mut graph, _) = rig(&[Feed::of((0..300).map(numbered))]);
        graph.set_burst(asked);
        assert_eq!(graph.turn(0), Turn::Moved(most));
    }
}

#[test]
fn time_never_goes_back() {
    let feed = Feed::of((0..3).map(numbered));
    feed.limit(1);
    let (mut graph, _) = rig(std::slice::from_ref(&feed));
    for now in [10, 5, 20] {
        let _ = graph.turn(now);
        check(&graph);
    }
    assert_eq!(feed.polls(), [10, 10, 20]);
}

#[test]
fn an_empty_pool_is_a_counted_event() {
    let mut rig = Rig::new();
    rig.pool = netbricks_core::buffer::Pool::builder().frames(16).build().unwrap();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, end]);
    let (mut graph, pool) = rig.build();
    crate::harness::run_out(&mut graph);
    let totals = graph.totals();
    assert_eq!(totals.received.packets, 100);
    assert_eq!(totals.drops.of(netbricks_core::DropReason::PoolExhausted).packets, 100 - totals.sent.packets);
    assert!(totals.sent.packets >= 16);
    assert_eq!(pool.available(), 16);
}

/// Checks that timed turns do not always belong to the same node, however many nodes take turns.
#[test]
fn every_source_is_timed_however_many_take_turns() {
    for sources in [1, 2, 3, 4, 8, 16, 32] {
        let feeds: Vec<Feed> = (0..sources).map(|_| Feed::of((0..100).map(numbered))).collect();
        let (mut graph, _) = rig(&feeds);
        graph.set_burst(1);
        run_out(&mut graph);
        for source in 0..sources {
            let timed = counters(&graph, &format!("source {source}")).cycles_a_packet();
            assert!(timed.is_some(), "{source} of {sources}");
        }
    }
}
