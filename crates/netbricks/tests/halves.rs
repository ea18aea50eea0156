//! Pipelines in which a function with state by flow would see only half of its flows.
//!
//! The summary says so, and the remedy that it names works.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;

use netbricks::prelude::*;
use netbricks::{NetBricksContext, Pipeline, Queue, Sent, Summary};
use netbricks_core::packet::FlowKey;
use netbricks_core::{Section, TableKey};

const PACKETS: u64 = 20_000;
/// One direction comes by the second queue, the other by the first.
const PARTING: &str = "steer = [{ protocol = \"tcp\", destination_port = 80, queue = 1 }, { queue = 0 }]\n";

/// Conversations from a port whose queues separate the directions of their flows, on `workers` workers.
fn context(workers: usize, lan: &str) -> NetBricksContext {
    NetBricksContext::from_text(&format!(
        "[port.lan]\ndriver = \"generator\"\nconversation = true\npayload = \"http\"\nflows = 40\npackets = {PACKETS}\n{lan}\
         [port.wan]\ndriver = \"null\"\n[runtime]\nworkers = {workers}\n"
    ))
    .unwrap()
}

/// Counts the packets of each connection, both directions together.
fn connections(input: Pipeline) -> Pipeline {
    input.node("connections", |worker| {
        compose(worker, |input| {
            let connections = worker.flow_table::<FlowKey, u64>("connections", FlowTableConfig::new(1_024));
            let told = connections.clone();
            worker.report(move || Section {
                title: "connections".into(),
                columns: vec!["connection".into(), "packets".into()],
                rows: told.with(|table| {
                    let row =
                        |(key, seen): (_, &u64)| vec![FlowKey::restore(key).to_string(), seen.to_string()];
                    table.iter().map(row).collect()
                }),
                ..Section::default()
            });
            input
                .parse::<Link>()
                .parse::<Ip>()
                .lookup(
                    &connections,
                    |packet| {
                        let flow = packet.flow_key();
                        flow.min(flow.reversed())
                    },
                    |_, entry| entry.or_insert_with(|| 0).map(|seen| *seen += 1).is_some(),
                )
                .done()
        })
    })
}

/// Runs the pipelines that `make` makes of the queues; returns the warnings about halves, too.
fn run(ctx: NetBricksContext, make: impl FnOnce(&[Queue], &Queue) -> Vec<Sent>) -> (Summary, Vec<String>) {
    let (lan, wan) = (ctx.queues_of("lan"), ctx.queues_of("wan"));
    let ends = make(&lan, &wan[0]);
    let summary = ctx.run(ends).unwrap();
    assert!(summary.conserved && summary.failures.is_empty(), "{summary:?}");
    assert_eq!((summary.received, summary.sent), (PACKETS, PACKETS));
    let halves = summary.warnings.iter().filter(|warning| warning.contains("directions")).cloned().collect();
    (summary, halves)
}

fn rows(summary: &Summary) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = summary.sections.iter().flat_map(|section| section.section.rows.clone()).collect();
    rows.sort();
    rows
}

fn merged(lan: &[Queue]) -> Pipeline {
    Pipeline::merge(lan.iter().map(Queue::receive)).unwrap()
}

#[test]
fn state_that_knows_half_of_its_flows_is_told_and_mended_as_it_says() {
    let (alone, said) = run(context(1, ""), |lan, wan| vec![connections(lan[0].receive()).send(wan)]);
    let alone = rows(&alone);
    assert!(alone.len() > 100 && said.is_empty(), "{said:?}");

    // One function behind both queues, on two workers.
    let (halved, said) = run(context(2, PARTING), |lan, wan| vec![connections(merged(lan)).send(wan)]);
    assert_ne!(rows(&halved), alone);
    assert_eq!(
        said,
        [
            "the queues of port `lan` may bring the two directions of a flow to different workers, and `connections` keeps state \
          by flow; `merge` what comes to it, and let a `shuffle` come before it"
        ]
    );

    // The same pipeline for each queue: neither a shuffle in each pipeline nor a single worker helps.
    for shuffled in [false, true] {
        let (halved, said) = run(context(2, PARTING), |lan, wan| {
            let pipeline = |queue: &Queue| match shuffled {
                false => connections(queue.receive()).send(wan),
                true => connections(queue.receive().shuffle(ShuffleConfig::default())).send(wan),
            };
            lan.iter().map(pipeline).collect()
        });
        assert_ne!(rows(&halved), alone);
        assert_eq!(
            said,
            [
                "the queues of port `lan` may bring the two directions of a flow to `connections` and to `connections#2`, which \
              keep state by flow each for itself; `merge` what the queues receive, and let a `shuffle` come before one \
              `connections`"
            ]
        );
    }

    // The remedy that the warning names.
    let (mended, said) = run(context(2, PARTING), |lan, wan| {
        vec![connections(merged(lan).shuffle(ShuffleConfig::default())).send(wan)]
    });
    assert_eq!((rows(&mended), said.len()), (alone, 0));
}

#[test]
fn nothing_is_said_where_every_flow_is_whole() {
    // The generator gives every flow its own queue, so any pipeline sees whole flows.
    let each = |lan: &[Queue], wan: &Queue| {
        lan.iter().map(|queue| connections(queue.receive()).send(wan)).collect::<Vec<_>>()
    };
    assert_eq!(run(context(2, ""), each).1, [""; 0]);
    // Queues that separate directions, but no state by flow.
    let plain = |lan: &[Queue], wan: &Queue| {
        let ttl = |queue: &Queue| queue.receive().function("plain", |input| input.parse::<Link>().done());
        lan.iter().map(|queue| ttl(queue).send(wan)).collect::<Vec<_>>()
    };
    assert_eq!(run(context(2, PARTING), plain).1, [""; 0]);
}

/// A shuffle node made by hand: every worker has its part of it, also a worker that receives nothing.
#[test]
fn a_shuffle_that_is_made_by_hand_is_one_all_the_same() {
    let shuffle = netbricks_core::Shuffle::new(ShuffleConfig {
        key: ShuffleKey::SymmetricFlow,
        ..ShuffleConfig::default()
    });
    let (summary, said) = run(context(2, PARTING), |lan, wan| {
        let shuffled = merged(lan).node("own", move |worker| shuffle.node(worker));
        vec![connections(shuffled).send(wan)]
    });
    assert_eq!(said, [""; 0]);
    let connections: BTreeSet<String> = rows(&summary).into_iter().map(|row| row[0].clone()).collect();
    assert!(
        connections.len() > 100 && connections.len() == rows(&summary).len(),
        "one that is in two places"
    );
}
