//! Changes of rules and sets while packets flow, and what they may cost.

use netbricks_core::DropReason;
use netbricks_core::buffer::Pool;
use netbricks_core::{Node, Worker};
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::Clocked;
use netbricks_testkit::build::ethernet;

fn built(lines: &[&str]) -> Result<Box<dyn Node>, String> {
    let pool = Pool::builder().frames(16).build().map_err(|error| error.to_string())?;
    node(&MmbSettings::of(lines.iter().copied()), &Worker::new(0, 1, pool)).map_err(|error| error.to_string())
}

#[test]
fn a_set_within_sets_changes_the_rules_that_name_any_of_them() {
    let lines = ["define @a {80}", "define @b {@a, 443}", "define @c {@b}", "add tcp-dport @c drop"];
    let settings = MmbSettings::of(lines);
    let mut bench = Clocked::of_node(move |worker: &Worker| node(&settings, worker));
    let to = |port| ethernet().ipv4("10.0.0.1", "192.0.2.7").tcp(1, port).build().unwrap();
    assert_eq!(bench.send([to(80), to(443), to(8_080)]).dropped(DropReason::Denied), 2);
    bench.call("run", "extend @a {8080}");
    assert_eq!(bench.send([to(8_080)]).dropped(DropReason::Denied), 3);
    bench.call("run", "shrink @a {80}");
    assert_eq!(bench.send([to(80)]).out.len(), 1);
    bench.finish();
}

#[test]
fn sets_within_sets_cannot_take_all_memory() {
    // Ten values of ten values, sixteen times over.
    let mut lines = vec!["define @s0 {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}".to_owned()];
    for at in 1..16 {
        let inner = vec![format!("@s{}", at - 1); 10].join(", ");
        lines.push(format!("define @s{at} {{{inner}}}"));
    }
    lines.push("add tcp-dport @s15 drop".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let refused = built(&lines).err().unwrap();
    assert!(refused.contains("combinations"), "{refused}");
}

#[test]
fn the_opposite_of_many_payloads_cannot_take_all_memory() {
    let payloads: Vec<String> = (0..40).map(|number| format!("\"{number:02}\"")).collect();
    let line = format!("add tcp-dport 80 ! tcp-payload {{{}}} drop", payloads.join(", "));
    let refused = built(&[&line]).err().unwrap();
    assert!(refused.contains("combinations"), "{refused}");
    let few = format!("add tcp-dport 80 ! tcp-payload {{{}}} drop", payloads[..4].join(", "));
    assert!(built(&[&few]).is_ok());
}

#[test]
fn what_a_file_expects_must_hold() {
    assert!(
        built(&["add tcp-dport 23 drop", "expect tcp-dport 23 drop", "expect tcp-dport 22 accept"]).is_ok()
    );
    let refused = built(&["add tcp-dport 23 drop", "expect tcp-dport 23 accept"]).err().unwrap();
    assert!(refused.contains("line 2: expected accept, found drop"), "{refused}");
}

#[test]
fn names_are_free_again_behind_a_flush() {
    let mut node = built(&["add name web tcp-dport 80 drop"]).unwrap();
    node.call(
        "run",
        "add name mail tcp-dport 25 drop\nflush\nadd name mail udp-dport 25 drop\nadd name web all accept",
    )
    .unwrap();
    assert_eq!(node.call("lines", "").unwrap(), "add name mail udp-dport 25 drop\nadd name web all accept\n");
}

#[test]
fn what_commands_expect_must_hold_before_any_of_them_changes_rules() {
    let mut node = built(&["add tcp-dport 23 drop"]).unwrap();
    for handler in ["run", "check", "replace", "check-replace"] {
        let said = node.call(handler, "add all drop\nexpect tcp-dport 22 accept").unwrap_err().to_string();
        assert!(said.contains("expected accept, found drop"), "{handler}: {said}");
        assert_eq!(node.call("lines", "").unwrap(), "add tcp-dport 23 drop\n");
    }
    node.call("run", "add all drop\nexpect tcp-dport 22 drop").unwrap();
    assert_eq!(node.call("lines", "").unwrap(), "add tcp-dport 23 drop\nadd all drop\n");
}

#[test]
fn the_cache_of_flows_changes_nothing() {
    let lines = [
        "add name a tcp-dport 80 ip-saddr 10.0.0.0/28 drop",
        "add name b ip-daddr 192.0.2.0/29 tcp-sport < 2000 mod ip-ttl 9",
        "add name c tcp-syn ip-saddr 10.0.0.8/29 mod tcp-window 77",
        "add name d tcp-dport {81, 83} drop",
        "add name e ip-saddr 10.0.0.3 ip-daddr 192.0.2.9 accept",
    ];
    let bench = |flow_cache| {
        let mut settings = MmbSettings::of(lines);
        settings.flow_cache = flow_cache;
        Clocked::of_node(move |worker: &Worker| node(&settings, worker))
    };
    let frame = |at: usize| {
        let (source, destination) = (format!("10.0.0.{}", at % 32), format!("192.0.2.{}", at % 11));
        let tcp = ethernet()
            .ipv4(source.as_str(), destination.as_str())
            .tcp((at % 7 * 500) as u16, 80 + (at % 5) as u16);
        tcp.build().unwrap()
    };
    let (mut with, mut without) = (bench(65_536), bench(0));
    let edits =
        ["", "add at 1 ip-saddr 10.0.0.1 drop", "move c before a", "replace d tcp-dport 82 drop", "delete b"];
    for (round, edit) in edits.into_iter().enumerate() {
        if !edit.is_empty() {
            assert_eq!(with.call("run", edit), without.call("run", edit));
        }
        // Each flow comes several times, so that the cache answers.
        let frames = || (0..600).map(|at| frame((at * 7 + round) % 150));
        let (cached, searched) = (with.send(frames()), without.send(frames()));
        assert_eq!(cached.out, searched.out, "{edit}");
        assert!(!cached.out.is_empty());
        let denied = cached.dropped(DropReason::Denied);
        assert!(denied > 0);
        assert_eq!(denied, searched.dropped(DropReason::Denied), "{edit}");
    }
    assert_eq!(with.call("list", ""), without.call("list", ""));
    with.finish();
    without.finish();
}

#[test]
fn connections_are_shown_in_steps() {
    let mut settings = MmbSettings::of(["add-stateful udp-dport 53 accept"]);
    settings.connections = 8_192;
    let mut bench = Clocked::of_node(move |worker: &Worker| node(&settings, worker));
    let frame = |at: usize| {
        let source = format!("10.0.{}.{}", at / 200, at % 200);
        ethernet().ipv4(source.as_str(), "192.0.2.7").udp(1_000, 53).build().unwrap()
    };
    bench.send((0..2_500).map(frame));
    assert_eq!(bench.call("connections", ""), "2500 connections\n");
    let few = bench.call("connections", "3");
    assert!(few.starts_with("2500 connections\n10.0.") && few.lines().count() == 5, "{few}");
    let (mut found, mut from) = (std::collections::BTreeSet::new(), 0);
    for step in 0..10 {
        let told = bench.call("connections", &format!("5000 {from}"));
        let (lines, more): (Vec<&str>, Vec<&str>) = told
            .lines()
            .filter(|line| !line.ends_with(" connections"))
            .partition(|line| !line.starts_with("more from "));
        assert!(lines.len() <= 1_000, "step {step}: {}", lines.len());
        found.extend(lines.into_iter().map(str::to_owned));
        let Some(next) = more.first().and_then(|line| line.strip_prefix("more from ")) else { break };
        from = next.parse().unwrap();
    }
    assert_eq!(found.len(), 2_500);
    bench.finish();
}
