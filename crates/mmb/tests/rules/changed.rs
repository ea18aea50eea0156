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

fn clocked(lines: &[&str]) -> Clocked {
    let settings = MmbSettings::of(lines.iter().copied());
    Clocked::of_node(move |worker: &Worker| node(&settings, worker))
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
    // A byte of 0 at the end is told from the padding by the length, which is a second condition.
    let payloads: Vec<String> = (0..40).map(|number| format!("\"{number:02}\\x00\"")).collect();
    let line = format!("add tcp-dport 80 ! tcp-payload {{{}}} drop", payloads.join(", "));
    let refused = built(&[&line]).err().unwrap();
    assert!(refused.contains("combinations"), "{refused}");
    let few = format!("add tcp-dport 80 ! tcp-payload {{{}}} drop", payloads[..4].join(", "));
    assert!(built(&[&few]).is_ok());
    let plain: Vec<String> = (0..40).map(|number| format!("\"{number:02}\"")).collect();
    assert!(built(&[&format!("add ! tcp-payload {{{}}} drop", plain.join(", "))]).is_ok());
}

#[test]
fn a_set_of_sets_has_the_kind_of_their_values() {
    let mut bench = clocked(&["define @servers {192.0.2.1}", "define @all {@servers, 10.0.0.0/8}"]);
    bench.call("run", "add ip-daddr @all drop");
    bench.call("run", "extend @all {198.51.100.0/24}");
    let to = |host: &str| ethernet().ipv4("203.0.113.1", host).tcp(1, 80).build().unwrap();
    let sent = bench.send([to("192.0.2.1"), to("10.9.9.9"), to("198.51.100.7"), to("192.0.2.2")]);
    assert_eq!((sent.dropped(DropReason::Denied), sent.out.len()), (3, 1));
    bench.finish();
    let mut node = built(&["define @servers {192.0.2.1}", "define @all {@servers}"]).unwrap();
    let refused = node.call("run", "add tcp-dport @all drop").unwrap_err().to_string();
    assert!(refused.contains("a set of IPv4 addresses"), "{refused}");
}

#[test]
fn a_set_that_rules_name_keeps_its_kind() {
    let lines = ["define @inner {10.0.0.0/8}", "define @s {@inner}", "add ip-saddr @s drop"];
    let mut node = built(&lines).unwrap();
    for line in ["define @s {80}", "define @inner {80, 443}"] {
        let refused = node.call("run", line).unwrap_err().to_string();
        assert!(refused.contains("has IPv4 addresses, as rule 1 needs"), "{line}: {refused}");
    }
    assert!(built(&[&lines[..], &["define @s {80}"]].concat()).is_err());
    // What names it goes first.
    node.call("run", "delete 1\ndefine @s {80}\nadd tcp-dport @s drop").unwrap();
}

#[test]
fn a_rule_that_could_not_be_read_again_is_refused() {
    let ports: Vec<String> = (1..12_500).map(|port| port.to_string()).collect();
    let line = format!("add tcp-dport {{{}}} drop", ports.join(","));
    assert!(line.len() < 64 << 10, "{}", line.len());
    let mut node = built(&[]).unwrap();
    let refused = node.call("run", &line).unwrap_err().to_string();
    assert!(refused.contains("as it is written in full"), "{refused}");
    // In lines of sets there is room for all of them.
    let sets: Vec<String> =
        ports.chunks(200).map(|part| format!("extend @many {{{}}}\n", part.join(", "))).collect();
    node.call("run", &format!("define @many {{1}}\n{}add tcp-dport @many drop", sets.concat())).unwrap();
    let lines = node.call("lines", "").unwrap();
    node.call("replace", &lines).unwrap();
    node.call("run", "mode all-match").unwrap();
    assert_eq!(node.call("lines", "").unwrap(), format!("mode all-match\n{lines}"));
}

#[test]
fn questions_behind_a_change_know_the_rules_that_were_typed_in_another_order() {
    let mut node = built(&[]).unwrap();
    for line in [
        "add udp-dport 53 drop",
        "add at 1 tcp-dport 80 drop",
        "add udp-dport 54 drop\nexpect udp-dport 54 drop\nexpect tcp-dport 54 accept",
        "delete 2\nadd tcp-dport 81 drop\nexpect tcp-dport 81 drop",
    ] {
        node.call("run", line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let all = "add udp-dport 53 drop\nadd tcp-dport 80 drop\nexpect udp-dport 53 drop";
    for _ in 0..2 {
        node.call("replace", all).unwrap();
    }
    let refused = node.call("run", "add ip-ttl 1 drop\nexpect ip-ttl 1 accept").unwrap_err().to_string();
    assert!(refused.contains("expected accept, found drop"), "{refused}");
}

#[test]
fn a_set_among_others_of_a_set_keeps_its_kind() {
    let lines = ["define @inner {192.0.2.1}", "define @outer {@inner, 10.0.0.0/8}"];
    let mut node = built(&lines).unwrap();
    let refused = node.call("run", "define @inner {80}").unwrap_err().to_string();
    assert!(refused.contains("as `@outer` needs"), "{refused}");
    // A set that has those values alone goes with them. Words of a comment name no set.
    let lines =
        ["define @inner {192.0.2.1}", "define @outer {@inner}", "add all drop comment \"see @inner\""];
    let mut node = built(&lines).unwrap();
    node.call("run", "define @inner {80}").unwrap();
    node.call("run", "add tcp-dport @outer drop").unwrap();
    let lines = node.call("lines", "").unwrap();
    node.call("replace", &lines).unwrap();
}

#[test]
fn a_set_of_long_bytes_comes_back() {
    let zeros = "00".repeat(1_024);
    let values: Vec<String> = (0..20).map(|number| format!("x{number:02x}{}", &zeros[2..])).collect();
    let mut node = built(&[]).unwrap();
    node.call("run", &format!("define @p {{\"a\", {}}}", values.join(", "))).unwrap();
    let lines = node.call("lines", "").unwrap();
    assert!(lines.lines().count() > 1 && lines.lines().all(|line| line.len() < 64 << 10));
    node.call("replace", &lines).unwrap();
    assert_eq!(node.call("lines", "").unwrap(), lines);
}

#[test]
fn no_rule_hides_another_where_all_apply() {
    let lines = "mode all-match\nadd udp-dport 53 drop\nadd at 1 all drop\nadd udp-dport 53 accept";
    let mut node = built(&[]).unwrap();
    assert!(!node.call("run", lines).unwrap().contains("line"));
    let warned = node.call("run", "mode ordered\nadd udp-dport 99 accept").unwrap();
    assert!(warned.contains("line 2: "), "{warned}");
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
