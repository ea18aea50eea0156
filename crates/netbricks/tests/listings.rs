//! The paper's listings run, and they do the same as the library's functions of the same purpose.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Runs the pipelines that `chain` makes of the arriving queues; returns the frames that left, in order, by
/// flow.
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
        // The generator gives every flow its own queue, so this sees whole flows on any number of workers.
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
        let handed: u64 = summary.nodes.iter().map(|node| node.handoff_out).sum();
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

/// Ports of a run that ends only when it is stopped.
const ENDLESS: &str = "[port.lan]\ndriver = \"generator\"\nrate = \"10 kpps\"\nclock = \"real\"\n\
                       [port.wan]\ndriver = \"null\"\n";

/// Builds and runs an example from the root of the repository, where its documentation runs it; returns its output.
fn built_and_run(example: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(env!("CARGO"));
    // With the features of the tests: of one package alone, cargo would build most of the workspace again.
    build.args(["build", "--quiet", "--workspace", "--example", example]);
    if cfg!(feature = "hyperscan") {
        build.args(["--features", "netbricks/hyperscan"]);
    }
    let built = build.current_dir(&root).env("CARGO_TARGET_DIR", target()).output().unwrap();
    assert!(built.status.success(), "{example}: {}", String::from_utf8_lossy(&built.stderr));
    let output =
        Command::new(target().join("debug/examples").join(example)).current_dir(&root).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The directory that this test was built in.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

#[test]
fn the_examples_run_as_they_are_from_the_root_of_the_repository() {
    for example in ["listing_1_2", "listing_3"] {
        let report = built_and_run(example);
        assert!(report.contains("100,000 received + 0 created = "), "{example}: {report}");
        assert!(report.trim_end().ends_with("every packet accounted for"), "{example}: {report}");
    }
}

#[test]
fn a_listing_reports_at_sigusr1_and_drains_and_reports_at_ctrl_c() {
    built_and_run("listing_3");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless.toml");
    std::fs::write(&file, ENDLESS).unwrap();
    let mut child = Command::new(target().join("debug/examples/listing_3"))
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let send = |signal: &str| {
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    // The thread that listens to signals starts last. The kernel keeps 15 bytes of its name.
    let listens = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
        threads.filter_map(|thread| name(thread).ok()).any(|name| name.trim_end() == "netbricks-signa")
    };
    while !listens() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send("USR1");
    let mut line = String::new();
    while !line.trim_end().ends_with("so far") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(line.contains(" received + 0 created "), "{line}");
    send("INT");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.trim_end().ends_with("every packet accounted for"), "{report}");
}

#[test]
fn a_handle_stops_a_run_that_would_go_on_for_ever() {
    let endless = || NetBricksContext::from_text(ENDLESS).unwrap();
    // Stopped before it begins.
    let ctx = endless();
    let end = ctx.queues_of("lan")[0].receive().send(&ctx.queues_of("wan")[0]);
    ctx.stop_handle().stop();
    assert!(ctx.run([end]).unwrap().conserved);
    // Stopped while it runs, from the first packet that a function sees.
    let ctx = endless().without_signals();
    let (stop, wan) = (ctx.stop_handle(), ctx.queues_of("wan"));
    let seen = ctx.queues_of("lan")[0].receive().function("stop", move |input| {
        let stop = stop.clone();
        input.parse::<Link>().transform(move |_| stop.stop()).done()
    });
    let summary = ctx.run([seen.send(&wan[0])]).unwrap();
    assert!(summary.conserved && summary.received > 0 && !summary.running, "{summary:?}");
}
