//! A panic in an event, or in a function with events: state starts empty, the schedule goes on.

use netbricks_core::graph::observe_panics;
use netbricks_core::{Edge, Function, Input, Operator, Worker};

use crate::events::{log, take_log, timed};
use crate::harness::{counters, number, numbered};

/// Panics in its second and third tick with a packet on its way, and in a packet for that purpose.
///
/// Other events tick beside it.
fn fragile(input: Input, worker: &'static Worker) -> impl Function + use<> {
    let (ticks, seen) = (worker.counter("ticks"), worker.counter("seen"));
    worker.invoke_at("once", 1_050, |event| {
        log("once", event);
        panic!("once is enough");
    });
    worker.invoke_every("first", 100, |event| {
        event.inject(Edge::OUT, 60, |frame| frame[..4].copy_from_slice(&6_000u32.to_be_bytes()));
    });
    worker.invoke_every("tick", 100, move |event| {
        log("tick", event);
        ticks.add(1);
        event.inject(Edge::OUT, 60, |frame| frame[..4].copy_from_slice(&7_000u32.to_be_bytes()));
        assert!(!(1_200..1_400).contains(&event.now()), "tick at {}", event.now());
    });
    worker.invoke_every("beside", 100, |event| log("beside", event));
    input
        .inspect(move |p| {
            seen.add(1);
            assert_ne!(number(p.frame()), 13, "unlucky");
        })
        .done()
}

#[test]
fn a_panic_in_an_event_undoes_what_it_sent_and_keeps_the_schedule() {
    observe_panics();
    let mut rig = timed(fragile);
    rig.feed.add((0..5).map(numbered));
    rig.at(1_000);
    for now in [1_060, 1_100, 1_200, 1_350, 1_400] {
        // It has lost nothing by then that the clock did not pass.
        assert_eq!(rig.at(now), Some(now / 100 * 100 + 100));
    }
    let ran: Vec<_> = take_log().into_iter().map(|(name, now, ..)| (name, now)).collect();
    let mut expected = vec![("once", 1_060)];
    for now in [1_100, 1_200, 1_350, 1_400] {
        expected.extend([("tick", now), ("beside", now)]);
    }
    assert_eq!(ran, expected, "none is left out and none runs twice");
    let panics: Vec<_> = rig
        .graph
        .take_panics()
        .into_iter()
        .map(|panic| {
            (panic.message, panic.packets, panic.rebuilt, panic.place.unwrap().contains("event_panics.rs"))
        })
        .collect();
    assert_eq!(
        panics,
        [("once is enough", 0), ("tick at 1200", 0), ("tick at 1350", 0)].map(|(message, lost)| (
            message.to_owned(),
            lost,
            true,
            true
        ))
    );
    // The packets of the first and the fourth tick, and those of other events that ran before it at the same
    // times.
    assert_eq!(rig.out.numbers(), [0, 1, 2, 3, 4, 6_000, 7_000, 6_000, 6_000, 6_000, 7_000]);
    assert_eq!(counters(&rig.graph, "timed").created.packets, 6);
    // State started empty, the schedule's counts did not.
    assert_eq!((rig.call("ticks.occupancy"), rig.call("tick.runs")), (format!("1 {}", u64::MAX), "4".into()));
    rig.finish(1_400);
}

#[test]
fn a_panic_in_a_packet_keeps_the_schedule_as_well() {
    let mut rig = timed(fragile);
    rig.at(1_000);
    rig.at(1_051);
    rig.feed.add([numbered(13)]);
    assert_eq!(rig.at(1_077), Some(1_100));
    assert_eq!(rig.graph.take_panics().len(), 2);
    assert_eq!(rig.at(1_100), Some(1_200));
    let ran: Vec<_> = take_log().into_iter().map(|(name, now, ..)| (name, now)).collect();
    assert_eq!(ran, [("once", 1_051), ("tick", 1_100), ("beside", 1_100)]);
    rig.finish(1_100);
}

#[test]
fn an_event_that_only_panics_gets_no_more_turns_and_packets_still_pass() {
    let mut rig = timed(|input, worker| {
        worker.invoke_every("tick", 1, |_| panic!("always"));
        input.done()
    });
    for now in 1..=200 {
        rig.at(now);
    }
    assert_eq!(counters(&rig.graph, "timed").panics, 64);
    rig.feed.add([numbered(1)]);
    assert_eq!(rig.at(201), None);
    assert_eq!(rig.out.numbers(), [1]);
    rig.finish(201);
}
