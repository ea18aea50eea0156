//! The paper's listings run, and do what the library's functions of the same purpose do.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use netbricks::prelude::*;
use netbricks::{NetBricksContext, Pipeline, Queue, Sent, Summary};
use netbricks_functions::maglev::{Backend, MaglevConfig, maglev};
use netbricks_functions::ttl::{TtlConfig, ttl};

#[path = "../examples/listing_1_2.rs"]
#[expect(dead_code, unreachable_pub, reason = "an example is a program, of which this calls the public part")]
mod listing_1_2;
#[path = "../examples/listing_3.rs"]
#[expect(dead_code, unreachable_pub, reason = "an example is a program, of which this calls the public part")]
mod listing_3;

const PACKETS: u64 = 20_000;

fn backends() -> Vec<Backend> {
    (1..=5).map(|number| format!("web-{number} 02:00:00:00:00:0{number} {number}").parse().unwrap()).collect()
}

/// Runs what `chain` makes of the arriving queues; what left, by flow, each flow's frames in order.
fn run(
    name: &str,
    workers: usize,
    chain: impl FnOnce(Pipeline, &Queue) -> Vec<Sent>,
) -> (Summary, BTreeMap<Option<FlowKey>, Vec<Vec<u8>>>) {
    let file: PathBuf =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("listings-{name}-{workers}.pcap"));
    let ctx = NetBricksContext::from_text(&format!(
        "[port.lan]\ndriver = \"generator\"\npackets = {PACKETS}\nflows = 300\n\
         [port.wan]\ndriver = \"pcap\"\nwrite = \"{}\"\n[runtime]\nworkers = {workers}\n",
        file.display()
    ))
    .unwrap();
    let queues = ctx.queues_of("lan");
    assert_eq!(queues.len(), workers);
    let ends = chain(Pipeline::merge(queues.iter().map(Queue::receive)).unwrap(), &ctx.queues_of("wan")[0]);
    let summary = ctx.run(ends).unwrap();
    assert!(summary.conserved && summary.held == 0 && summary.failures.is_empty(), "{summary:?}");
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for frame in netbricks_testkit::captures::frames(&file) {
        flows.entry(FlowKey::from_frame(&frame)).or_default().push(frame);
    }
    (summary, flows)
}

#[test]
fn listing_3_sends_every_flow_where_maglev_does() {
    for workers in [1, 2] {
        // The generator gives every flow a queue, so that this finds whole flows on any number of workers.
        let (_, expected) = run("maglev", workers, |input, wan| {
            let config = MaglevConfig { backends: backends(), slots: 1_009, ..MaglevConfig::default() };
            let node =
                input.node("maglev", move |worker| compose(worker, |input| maglev(input, &config, worker)));
            vec![node.send(wan)]
        });
        assert!(expected.len() > 200);
        let macs: std::collections::BTreeSet<_> =
            expected.values().map(|frames| frames[0][..6].to_vec()).collect();
        assert_eq!(macs.len(), 5, "every backend has flows");
        let (summary, flows) = run("listing", workers, |input, wan| {
            let groups = listing_3::maglev_nf(input, &backends(), 1_009).unwrap();
            assert_eq!(groups.len(), 5);
            listing_3::forward(groups, &backends(), wan)
        });
        assert_eq!((summary.received, summary.sent), (PACKETS, PACKETS));
        assert!(flows == expected, "{workers} workers");
        let handed: u64 = summary.nodes.iter().map(|node| node.handed).sum();
        assert_eq!(handed > 1_000, workers > 1, "{handed} packets crossed");
    }
}

#[test]
fn listing_3_says_what_of_its_backends_cannot_be() {
    let twice: Vec<Backend> =
        [1, 2].map(|number| format!("web 02:00:00:00:00:0{number}").parse().unwrap()).into();
    let ctx =
        NetBricksContext::from_text("[port.lan]\ndriver = \"generator\"\n[port.wan]\ndriver = \"null\"\n")
            .unwrap();
    let groups = listing_3::maglev_nf(ctx.queues_of("lan")[0].receive(), &twice, 251).unwrap();
    let ends = listing_3::forward(groups, &twice, &ctx.queues_of("wan")[0]);
    let problem = ctx.run(ends).unwrap_err().to_string();
    assert!(problem.contains("backend `web` is given twice"), "{problem}");
}

#[test]
fn listing_1_decrements_as_the_ttl_function_does() {
    let (_, expected) = run("ttl", 1, |input, wan| {
        let config = TtlConfig::default();
        let node = input.node("ttl", move |worker| compose(worker, |input| ttl(input, &config, worker)));
        vec![node.send(wan)]
    });
    let (summary, flows) = run("ttl-listing", 1, |input, wan| vec![listing_1_2::ttl_nf(input).send(wan)]);
    assert_eq!(summary.sent, PACKETS);
    assert!(flows == expected);
}
