//! The operator's interface in Rust: contexts from configuration, queues, pipelines.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;

use netbricks::prelude::*;
use netbricks::{ContextError, NetBricksContext, Pipeline, Summary};
use netbricks_core::{GroupConfig, ShuffleConfig, ShuffleKey};
use netbricks_functions::monitor::{MonitorConfig, monitor};

const GENERATOR: &str = "[port.lan]\ndriver = \"generator\"\npackets = 20_000\nflows = 200\n\
                         [port.wan]\ndriver = \"null\"\n";

fn ttl_nf(input: Pipeline) -> Pipeline {
    input.function("ttl_nf", |input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .transform(|pkt| pkt.header_mut().decrement_ttl())
            .filter(DropReason::TtlExpired, |pkt| pkt.header().ttl() != 0)
            .done()
    })
}

fn count(input: Pipeline) -> Pipeline {
    input.node("count", |worker| {
        let config = MonitorConfig { top: 100_000, ..MonitorConfig::default() };
        compose(worker, |input| monitor(input, &config, worker))
    })
}

/// Each flow with its packets and bytes.
fn flows(summary: &Summary) -> BTreeSet<Vec<String>> {
    summary.sections.iter().flat_map(|section| section.section.rows.clone()).collect()
}

fn context(runtime: &str) -> NetBricksContext {
    NetBricksContext::from_text(&format!("{GENERATOR}[runtime]\n{runtime}")).unwrap()
}

#[test]
fn queues_go_through_pipelines_on_their_workers() {
    for workers in 1..4 {
        let ctx = context(&format!("workers = {workers}\n"));
        let wan = ctx.queues_of("wan");
        let on: Vec<usize> = ctx.queues_of("lan").iter().map(|queue| queue.worker()).collect();
        assert_eq!(on, (0..workers).collect::<Vec<_>>(), "a queue for each worker");
        let ends: Vec<_> = ctx.queues_of("lan").iter().map(|p| ttl_nf(p.receive()).send(&wan[0])).collect();
        let summary = ctx.run(ends).unwrap();
        assert!(summary.conserved && summary.failures.is_empty(), "{summary:?}");
        assert_eq!((summary.received, summary.sent), (20_000, 20_000));
        let through: u64 =
            summary.nodes.iter().filter(|node| node.name.starts_with("ttl_nf")).map(|node| node.left).sum();
        assert_eq!(through, 20_000);
        assert_eq!(summary.workers, workers);
        let receives: Vec<_> = summary.placement.iter().flat_map(|place| place.receives.clone()).collect();
        assert_eq!(receives, (0..workers).map(|queue| format!("lan.{queue}")).collect::<Vec<_>>());
    }
}

#[test]
fn a_shuffle_by_ones_own_key_brings_the_same_flows_to_state_as_one_worker_has() {
    let run = |workers: usize, shuffles: bool| {
        let ctx = context(&format!("workers = {workers}\n"));
        let wan = ctx.queues_of("wan");
        let lan = &ctx.queues_of("lan")[..];
        let ends: Vec<_> = lan
            .iter()
            .map(|p| {
                if !shuffles {
                    // The generator gives every flow its own queue, so this count is the expected one.
                    return count(p.receive()).send(&wan[0]);
                }
                let shuffled = p.receive().shuffle_by(
                    ShuffleConfig { ring: 64, ..ShuffleConfig::default() },
                    |input| input.parse::<Link>().parse::<Ip>(),
                    |pkt| pkt.flow_key(),
                );
                count(shuffled).send(&wan[0])
            })
            .collect();
        ctx.run(ends).unwrap()
    };
    for workers in [1, 2, 3] {
        let (expected, summary) = (run(workers, false), run(workers, true));
        assert!(summary.conserved && summary.held == 0);
        assert_eq!(summary.sent, 20_000);
        assert!(flows(&expected).len() > 100 && flows(&summary) == flows(&expected), "{workers} workers");
        assert!(
            workers == 1
                || summary.nodes.iter().any(|node| node.kind == "shuffle" && node.handoff_out > 1_000)
        );
    }
}

#[test]
fn groups_go_their_ways_and_merge() {
    for (workers, queue) in [(1, 0), (1, 4_096), (2, 0), (2, 4_096)] {
        let ctx = context(&format!("workers = {workers}\n"));
        let (lan, wan) = (ctx.queues_of("lan"), ctx.queues_of("wan"));
        let mut ends = Vec::new();
        for p in &lan {
            let input = p.receive().shuffle(ShuffleConfig::default());
            let groups = GroupConfig { groups: 3, queue };
            // As in Listing 3, the program's own function with state decides on the group.
            let branches = input
                .group_by_own(groups, |groups, worker| {
                    let chosen = worker.flow_table::<FlowKey, u64>("chosen", FlowTableConfig::new(4_096));
                    let next = std::rc::Rc::new(std::cell::Cell::new(0u64));
                    groups.node_by(
                        worker,
                        |input| {
                            input.parse::<Link>().parse::<Ip>().lookup(
                                &chosen,
                                |pkt| pkt.flow_key(),
                                move |_, entry| {
                                    let choose = || {
                                        next.set(next.get() + 1);
                                        next.get()
                                    };
                                    entry.or_insert_with(choose).map_or(0, |group| *group)
                                },
                            )
                        },
                        |pkt| *pkt.get::<u64>() as usize,
                    )
                })
                .unwrap();
            let names = ["first", "second", "third"];
            let merged = Pipeline::merge(
                branches
                    .into_iter()
                    .zip(names)
                    .map(|(branch, name)| branch.function(name, |input| input.done())),
            )
            .unwrap();
            ends.push(count(merged).send(&wan[0]));
        }
        let summary = ctx.run(ends).unwrap();
        assert!(summary.conserved, "{:?}", summary.unbalanced);
        assert_eq!(summary.sent, 20_000);
        let came = |name: &str| {
            let nodes = summary.nodes.iter().filter(|node| node.name.starts_with(name));
            nodes.map(|node| node.arrived).sum::<u64>()
        };
        let parts = ["first", "second", "third"].map(came);
        assert_eq!(parts.iter().sum::<u64>(), 20_000);
        assert!(parts.iter().all(|part| *part > 1_000), "{parts:?}");
    }
}

#[test]
fn merging_no_pipeline_at_all_is_an_error_that_says_so() {
    let problem = Pipeline::merge([]).err().map(|error| error.to_string());
    assert_eq!(
        problem.as_deref(),
        Some("no pipeline to merge: expected one or more, found an empty list of them")
    );
}

#[test]
fn pipelines_that_cannot_run_say_why() {
    let wrong = NetBricksContext::from_text("[port.lan]\ndriver = \"generater\"\nflows = 0\n");
    let Err(ContextError::Configuration(text)) = wrong else { panic!("{wrong:?}") };
    assert!(text.contains("configuration:2:10") && text.contains("did you mean `generator`?"), "{text}");
    let wrong = NetBricksContext::from_text(&format!("{GENERATOR}[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n"));
    let Err(ContextError::Configuration(text)) = wrong else { panic!("{wrong:?}") };
    assert!(text.contains("configuration:7:1") && text.contains("would never be used"), "{text}");

    let ctx = context("workers = 1\n");
    drop(ttl_nf(ctx.queues_of("lan")[0].receive()));
    let error = ctx.run([]).unwrap_err().to_string();
    assert!(error.contains("`ttl_nf` `out` is not connected"), "{error}");

    let ctx = context("workers = 1\n");
    let lan = ctx.queues_of("lan")[0].receive();
    let refused = lan.group_by(GroupConfig { groups: 129, queue: 0 }, ShuffleKey::Flow).err().unwrap();
    assert_eq!(refused.to_string(), "`groups` must be 1 to 128, found 129");
}
