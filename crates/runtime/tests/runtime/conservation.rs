//! All received packets leave for a counted reason.
//!
//! This holds for everything that nodes do, and for every end of a run.

use std::time::Duration;

use netbricks_core::{DropReason, Edge, GraphBuilder, GraphError};
use netbricks_runtime::{Clock, Config, Event, EventSink, Factory, FinalReport, Runtime, WorkerContext};

use crate::nodes::{Counting, HOUR, Hourly, Keeper, Mixed, PANICS_AT, Sink, Source, chain, config, pool};

const PACKETS: u64 = 40_000;

/// source → mixed → keeper → sink, and mixed's answers to a second sink.
fn everything(context: &WorkerContext) -> Result<netbricks_core::Graph, GraphError> {
    let mut graph = chain(
        "everything",
        vec![
            ("in", Box::new(Source::new(PACKETS))),
            ("mixed", Box::new(Mixed)),
            ("keeper", Box::new(Keeper::new(100))),
            ("out", Box::new(Sink)),
        ],
    )?;
    let answers = graph.add("answers", Box::new(Sink))?;
    let mixed = graph.find("mixed").unwrap();
    graph.connect(mixed, Edge::REPLY, answers, 0)?;
    graph.build(context.pool().clone())
}

fn run(config: Config) -> FinalReport {
    Runtime::start(config, |_| Factory::new(everything)).unwrap().wait()
}

fn check(report: &FinalReport) {
    assert!(report.conserved, "{:?}", report.unbalanced);
    assert!(report.pool_whole, "{} of {} frames", report.pool_available, report.pool_capacity);
    assert_eq!(report.totals.held, 0);
    for worker in &report.workers {
        assert_eq!(worker.failure, None);
    }
}

/// The expected counts of one worker's `Mixed`, calculated packet by packet.
#[derive(Default)]
struct Expected {
    denied: u64,
    answered: u64,
    panicked: u64,
    panics: u64,
    created: u64,
    sent: u64,
}

fn expected(burst: u64) -> Expected {
    let mut all = Expected::default();
    for first in (0..PACKETS).step_by(burst as usize) {
        let batch = first..(first + burst).min(PACKETS);
        // A panic loses the packets of its batch that had not left: earlier drops stay counted, but packets
        // that were passed on or created in this batch are lost.
        let panic = batch.clone().find(|number| number % PANICS_AT == PANICS_AT - 1);
        for number in batch {
            if panic.is_some_and(|panic| number >= panic) {
                all.panicked += 1;
            } else if number % 7 == 0 {
                all.denied += 1;
            } else if number % 11 == 0 {
                all.answered += 1;
            } else if panic.is_some() {
                all.panicked += 1;
            } else {
                all.sent += 1;
                all.created += u64::from(number % 13 != 0 && number % 5 == 0);
            }
        }
        all.panics += u64::from(panic.is_some());
    }
    all
}

#[test]
fn one_two_and_four_workers_conserve_every_packet() {
    for workers in [1, 2, 4] {
        for burst in [1, 32] {
            let mut config = config(pool(), workers);
            config.burst = burst;
            let report = run(config);
            check(&report);
            assert_eq!(report.totals.received.packets, PACKETS * workers as u64);
            let expected = expected(burst as u64);
            let all = |packets: u64| packets * workers as u64;
            assert_eq!(report.panics.iter().map(|panic| panic.count).sum::<u64>(), all(expected.panics));
            assert_eq!(report.totals.drops.of(DropReason::Denied).packets, all(expected.denied));
            assert_eq!(report.totals.drops.of(DropReason::Answered).packets, all(expected.answered));
            assert_eq!(report.totals.drops.of(DropReason::Panicked).packets, all(expected.panicked));
            assert_eq!(
                report.totals.drops.total().packets,
                all(expected.denied + expected.answered + expected.panicked)
            );
            assert_eq!(report.totals.created.packets, all(expected.created));
            assert_eq!(report.totals.sent.packets, all(expected.sent + expected.created));
            // The merged nodes are the sums over workers.
            let node = report.nodes.iter().find(|node| node.node == "in").unwrap();
            assert_eq!(node.counters.received, report.totals.received);
            let by_worker: u64 = report
                .workers
                .iter()
                .flat_map(|worker| &worker.graphs)
                .map(|graph| graph.totals.sent.packets)
                .sum();
            assert_eq!(by_worker, report.totals.sent.packets);
        }
    }
}

#[test]
fn the_report_reads_as_the_json_that_is_promised() {
    let report = run(config(pool(), 2));
    let json = serde_json::to_value(&report).unwrap();
    let packets = |value: &serde_json::Value| value["packets"].as_u64().unwrap();
    let totals = &json["totals"];
    let dropped: u64 = totals["dropped"].as_object().unwrap().values().map(packets).sum();
    assert_eq!(
        packets(&totals["received"]) + packets(&totals["created"]),
        packets(&totals["sent"]) + packets(&totals["consumed"]) + dropped + totals["held"].as_u64().unwrap()
    );
    assert_eq!(json["conserved"], true);
    assert_eq!(json["pool_whole"], true);
    assert_eq!(json["nodes"][1]["node"], "mixed");
    assert_eq!(json["nodes"][1]["role"], "function");
    assert!(packets(&json["nodes"][1]["dropped"]["denied"]) > 0);
    assert!(packets(&json["nodes"][1]["consumed"]["answered"]) > 0);
    assert_eq!(json["workers"].as_array().unwrap().len(), 2);
    let header = &json["workers"][0]["graphs"][0]["dropped_headers"][0];
    assert_eq!(header["bytes"].as_str().unwrap().len(), 2 * 60);
}

#[test]
fn packets_held_at_the_end_are_drained_in_order() {
    let report = Runtime::start(config(pool(), 2), |_| {
        Factory::new(|context| {
            chain(
                "g",
                vec![
                    ("in", Box::new(Source::new(1_000))),
                    ("keeper", Box::new(Keeper::new(700))),
                    ("count", Box::new(Counting::new())),
                    ("out", Box::new(Sink)),
                ],
            )?
            .build(context.pool().clone())
        })
    })
    .unwrap()
    .wait();
    check(&report);
    assert_eq!(report.totals.sent.packets, 2_000);
    let seen: Vec<_> = report.sections.iter().flat_map(|section| &section.section.rows).collect();
    assert_eq!(seen, [&["1000"], &["1000"]], "one section, a row a worker");
    assert_eq!(report.sections.len(), 1);
}

#[test]
fn a_panic_is_reported_with_its_place_and_the_state_is_reset() {
    let (sink, events) = EventSink::channel(100);
    let config = config(pool(), 1).events(sink);
    let report = Runtime::start(config, |_| {
        Factory::new(|context| {
            let mut graph = GraphBuilder::new("g");
            let source = graph.add("in", Box::new(Source::new(10_000)))?;
            let count = graph.add_function("count", &Counting::blueprint(6_399), context.worker())?;
            let sink = graph.add("out", Box::new(Sink))?;
            graph.connect(source, Edge::OUT, count, 0)?;
            graph.connect(count, Edge::OUT, sink, 0)?;
            graph.build(context.pool().clone())
        })
    })
    .unwrap()
    .wait();
    check(&report);
    let panics: Vec<_> = events.try_iter().filter(|event| matches!(event, Event::Panic { .. })).collect();
    let [Event::Panic { worker: 0, graph, panic, untold: 0 }] = &panics[..] else {
        panic!("one panic, found {panics:?}")
    };
    assert_eq!((graph.as_str(), panic.node.as_str(), panic.packets), ("g", "count", 32));
    assert!(panic.message.contains("the planted panic") && panic.rebuilt);
    assert!(panic.place.as_ref().unwrap().contains("nodes.rs:"));
    assert_eq!(report.nodes[1].counters.panics, 1);
    assert_eq!(report.totals.sent.packets, 10_000 - 32);
    // 6,400 packets came before the new node was built.
    assert_eq!(report.sections[0].section.rows, [["3600"]]);
}

#[test]
fn timers_of_a_driven_graph_cost_no_waiting() {
    let report = Runtime::start(config(pool(), 1), |_| {
        Factory::new(|context| {
            chain(
                "g",
                vec![
                    ("in", Box::new(Source::new(100))),
                    ("hourly", Box::new(Hourly::default())),
                    ("out", Box::new(Sink)),
                ],
            )?
            .build(context.pool().clone())
        })
    })
    .unwrap()
    .wait();
    check(&report);
    assert_eq!(report.totals.sent.packets, 100);
    let due: u64 = report.sections[0].section.rows[0][0].parse().unwrap();
    assert!(due >= 100 * HOUR);
}

#[test]
fn a_packet_limit_is_exact_over_all_workers() {
    for (workers, limit) in [(1, 1), (1, 1_000), (4, 12_345), (3, 100)] {
        let mut config = config(pool(), workers);
        config.packets = Some(limit);
        let report = Runtime::start(config, |_| {
            Factory::new(|context| {
                chain("g", vec![("in", Box::new(Source::new(u64::MAX))), ("out", Box::new(Sink))])?
                    .build(context.pool().clone())
            })
        })
        .unwrap()
        .wait();
        check(&report);
        assert_eq!(report.totals.received.packets, limit);
    }
}

#[test]
fn a_time_limit_ends_an_endless_run() {
    for clock in [Clock::Driven, Clock::real()] {
        let mut config = config(pool(), 2).clock(clock);
        config.duration = Some(Duration::from_millis(20));
        let report = Runtime::start(config, |_| {
            Factory::new(|context| {
                chain("g", vec![("in", Box::new(Source::new(u64::MAX))), ("out", Box::new(Sink))])?
                    .build(context.pool().clone())
            })
        })
        .unwrap()
        .wait();
        check(&report);
        assert!(report.seconds >= 0.02);
    }
}
