//! Connections and counters while rules are edited, and while a function with other lines takes over.

use netbricks_core::Worker;
use netbricks_core::packet::tcp::flags;
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::Clocked;
use netbricks_testkit::build::ethernet;

use crate::tracked::{clocked, segment};

fn replaced(bench: &mut Clocked, lines: &[&str]) {
    let settings = MmbSettings::of(lines.iter().copied());
    bench.replace_by(move |worker: &Worker| node(&settings, worker));
}

/// The packets of each rule.
#[expect(clippy::unwrap_used, reason = "a test's list has them")]
fn packets(bench: &mut Clocked) -> Vec<u64> {
    let list: serde_json::Value = serde_json::from_str(&bench.call("list", "")).unwrap();
    list["rules"].as_array().unwrap().iter().map(|rule| rule["packets"].as_u64().unwrap()).collect()
}

const INSIDE: &str = "add-stateful name inside ip-proto tcp ip-saddr 10.0.0.0/8 accept";
const REST: &str = "add ip-proto tcp drop";

#[test]
fn connections_go_on_under_the_same_rule_of_other_lines() {
    let mut bench = clocked(&[INSIDE, REST]);
    for port in [4_000, 4_001] {
        assert_eq!(bench.send([segment(true, port, flags::SYN, 1, 0)]).out.len(), 1);
    }
    // The rule has another place and slot, another name, and rules with its former slot before it.
    let other = "add-stateful name clients ip-proto tcp ip-saddr 10.0.0.0/8 accept comment \"as before\"";
    replaced(&mut bench, &["add name telnet ip-ttl 3 drop", "add-stateful udp-dport 53 accept", other, REST]);
    let answer = segment(false, 4_000, flags::SYN | flags::ACK, 1, 2);
    assert_eq!(bench.send([answer.clone()]).out, [answer]);
    assert_eq!(packets(&mut bench), [0, 0, 1, 0], "it is of the rule that made it, and of no other");
    // Without the rule its connections end, and do not come back with it.
    replaced(&mut bench, &["add-stateful ip-proto tcp ip-saddr 10.1.0.0/16 accept", REST]);
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 2, 2)]).out.len(), 0);
    replaced(&mut bench, &[INSIDE, REST]);
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 2, 2)]).out.len(), 0);
    assert_eq!(
        bench.send([segment(false, 4_001, flags::ACK, 2, 2)]).out.len(),
        1,
        "no packet came meanwhile"
    );
    bench.finish();
}

#[test]
fn a_rule_that_was_typed_keeps_its_connections_when_it_comes_into_the_file() {
    let mut bench = clocked(&[REST]);
    bench.call("run", &INSIDE.replace("add-stateful", "add-stateful at 1"));
    assert_eq!(bench.send([segment(true, 4_000, flags::SYN, 1, 0)]).out.len(), 1);
    replaced(&mut bench, &["add tcp-dport 23 drop", INSIDE, REST]);
    assert_eq!(bench.send([segment(false, 4_000, flags::SYN | flags::ACK, 1, 2)]).out.len(), 1);
    bench.finish();
}

#[test]
fn a_rule_that_is_typed_again_has_none_of_the_connections_of_the_one_before() {
    let mut bench = clocked(&[INSIDE, REST]);
    let answer = || segment(false, 4_000, flags::SYN | flags::ACK, 1, 2);
    let typed = INSIDE.replace("add-stateful", "add-stateful at 1");
    for _ in 0..3 {
        assert_eq!(bench.send([segment(true, 4_000, flags::SYN, 1, 0)]).out.len(), 1);
        assert_eq!(bench.send([answer()]).out.len(), 1);
        bench.call("run", "delete 1");
        bench.call("run", &typed);
        assert_eq!(bench.send([answer()]).out.len(), 0);
    }
    bench.finish();
}

#[test]
fn an_export_has_the_numbers_of_rules_by_which_connections_know_them() {
    let pool = netbricks_core::buffer::Pool::builder().frames(16).build().unwrap();
    let made = || {
        let settings = MmbSettings::of([INSIDE, REST]);
        node(&settings, &Worker::new(0, 1, pool.clone())).unwrap()
    };
    let rules = |node: &mut dyn netbricks_core::Node| {
        let images = node.export();
        let (_, bytes) = images.into_iter().find(|(name, _)| name == "rules").unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let numbers = |text: &str| text.lines().nth(1).unwrap().to_owned();
    let mut node = made();
    assert_eq!(numbers(&rules(&mut *node)), numbers(&rules(&mut *made())), "equal lines have equal numbers");
    let [first, again] = [(); 2].map(|()| {
        node.call("run", "delete inside").unwrap();
        node.call("run", &INSIDE.replace("add-stateful", "add-stateful at 1")).unwrap();
        rules(&mut *node)
    });
    assert_ne!(numbers(&first), numbers(&again), "a rule that was deleted has a number of its own");
    let mut other = made();
    other.import("rules", again.as_bytes(), 1).unwrap();
    let ids = |text: &str| numbers(text).split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(ids(&rules(&mut *other)), ids(&again));
    // What the other process deleted before is not remembered, but its numbers do not come back.
    other.call("run", "delete inside").unwrap();
    other.call("run", &INSIDE.replace("add-stateful", "add-stateful at 1")).unwrap();
    for before in [&first, &again, &rules(&mut *made())] {
        assert_ne!(ids(&rules(&mut *other)), ids(before));
    }
    assert!(other.import("rules", again.replacen(' ', "  ", 2).as_bytes(), 1).is_err());
}

#[test]
fn counters_of_a_rule_survive_edits_of_others() {
    let mut bench = clocked(&["add name all4 ip-proto udp accept"]);
    let packet = || ethernet().ipv4("10.0.0.9", "192.0.2.7").udp(4_000, 53).build().unwrap();
    let mut sent = 0;
    for round in 0..6 {
        bench.send((0..round + 1).map(|_| packet()));
        sent += round + 1;
        assert_eq!(packets(&mut bench)[0], sent, "round {round}");
        bench.call("run", &format!("add tcp-dport {} drop", 1_000 + round));
        assert_eq!(packets(&mut bench)[0], sent, "after edit {round}");
    }
    bench.finish();
}
