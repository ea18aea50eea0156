//! Warnings about rules.

use netbricks_mmb::language::{Context, parse_rule};
use netbricks_mmb::lint::{Lint, Linter, covers, lint, lint_all};
use netbricks_mmb::rule::Rule;
use proptest::prelude::*;

fn rules(lines: &[&str]) -> Vec<Rule> {
    lines
        .iter()
        .map(|line| parse_rule(line).unwrap_or_else(|error| panic!("{}", error.render(line))))
        .collect()
}

/// The warnings about the last of these rules; all ways to ask give the same.
#[track_caller]
fn last(lines: &[&str]) -> Vec<String> {
    let rules = rules(lines);
    let named: Vec<(&str, &Rule)> = ["r1", "r2", "r3", "r4"].into_iter().zip(&rules).collect();
    let at = named.len() - 1;
    let one = lint(&named, at);
    let of_all: Vec<Lint> =
        lint_all(&named).into_iter().filter(|(index, _)| *index == at).map(|(_, lint)| lint).collect();
    assert_eq!(one, of_all, "{lines:?}");
    one.iter().map(ToString::to_string).collect()
}

fn is_shadowed(earlier: &str, later: &str) -> bool {
    let rules = rules(&[earlier, later]);
    let found = covers(&rules[0], &rules[1]);
    assert_eq!(!last(&[earlier, later]).is_empty(), found, "{earlier} / {later}");
    found
}

#[test]
fn a_rule_behind_a_wider_one_is_shadowed() {
    for (earlier, later) in [
        ("all drop", "tcp-dport 80 drop"),
        ("ip-saddr 10.0.0.0/8 drop", "ip-saddr 10.1.0.0/16 tcp-dport 80 accept"),
        ("ip-saddr 10.0.0.0/8 drop", "ip-saddr 10.1.2.3 drop"),
        ("ip6-saddr 2001:db8::/32 drop", "ip6-saddr 2001:db8::1 drop"),
        ("ip-saddr 10.0.0.1/255.0.0.255 drop", "ip-saddr 10.9.9.1 drop"),
        ("ip-saddr 10.0.0.1/255.0.0.255 drop", "ip-saddr 10.0.3.1/255.0.255.255 drop"),
        ("tcp-dport 1-1024 drop", "tcp-dport 80 drop"),
        ("tcp-dport <= 1024 drop", "tcp-dport {80, 443} drop"),
        ("tcp-dport != 80 drop", "tcp-dport 443 drop"),
        ("! tcp-dport 80 drop", "tcp-dport 81-90 drop"),
        ("tcp-dport drop", "tcp-sport 80 drop"),
        ("ip-saddr drop", "icmp-id 3 drop"),
        ("tcp-opt drop", "tcp-opt-mss 1460 drop"),
        ("tcp-opt-mss drop", "tcp-opt-mss > 1000 drop"),
        ("tcp-opt-mss > 1000 drop", "tcp-opt-mss 1460 drop"),
        ("! tcp-opt-mss drop", "tcp-syn ! tcp-opt-mss drop"),
        ("tcp-syn drop", "tcp-syn 1 tcp-ack 0 drop"),
        ("! tcp-syn drop", "tcp-syn 0 drop"),
        ("tcp-payload x47 drop", "tcp-payload x47 drop"),
        ("in eth0 drop", "in eth0 tcp-syn drop"),
        ("tcp-dport @web drop", "tcp-dport @web tcp-syn drop"),
    ] {
        assert!(is_shadowed(earlier, later), "{earlier} / {later}");
    }
}

#[test]
fn a_rule_with_packets_of_its_own_is_not_shadowed() {
    for (earlier, later) in [
        ("tcp-dport 80 drop", "all drop"),
        ("ip-saddr 10.0.0.0/16 drop", "ip-saddr 10.0.0.0/8 drop"),
        ("ip-saddr 10.0.0.1/255.0.0.255 drop", "ip-saddr 10.0.0.0/24 drop"),
        ("tcp-dport 80 drop", "tcp-dport {80, 443} drop"),
        ("udp-dport drop", "tcp-dport 80 drop"),
        ("! tcp-opt-mss drop", "! tcp-opt-mss 1460 drop"),
        ("tcp-opt-mss drop", "! tcp-opt-mss 1460 drop"),
        ("! tcp-opt-mss 1460 drop", "tcp-opt-mss 1461 drop"),
        ("tcp-opt 3 drop", "tcp-opt 2 drop"),
        ("tcp-payload x47 drop", "tcp-payload x4748 drop"),
        ("tcp-payload x47 drop", "tcp-payload x48 drop"),
        ("in eth0 drop", "in eth1 drop"),
        ("tcp-dport @web drop", "tcp-dport 80 drop"),
    ] {
        assert!(!is_shadowed(earlier, later), "{earlier} / {later}");
    }
}

#[test]
fn warnings_say_which_rule_and_what_to_do() {
    assert_eq!(
        last(&["ip-ttl 1 drop", "tcp-dport 1-1024 drop", "tcp-dport 80 drop"]),
        ["the rule never applies: r2 decides about all its packets; move it before, or remove it"]
    );
    assert_eq!(
        last(&["tcp-dport 80 tcp-syn drop", "tcp-syn 1 tcp-dport 80 accept"]),
        ["the rule never applies: r1 has the same matches and the opposite verdict"]
    );
    assert_eq!(
        last(&["tcp-dport 80 mod tcp-dport 443"]),
        ["`mod tcp-dport` changes one direction only: for answers, write `map tcp-dport` by `add-stateful`"]
    );
    assert!(last(&["stateful tcp-dport 80 mod tcp-dport 443"]).is_empty());
    assert!(last(&["tcp-dport 80 mod ip-ttl 3"]).is_empty());
    assert!(last(&["all drop 50", "tcp-dport 80 drop"]).is_empty());
    assert!(last(&["all mod ip-ttl 3", "tcp-dport 80 drop"]).is_empty());
    let parsed = Context::default().parse("add ip-saddr 10.0.0.1/24 ip-daddr 10.1.2.3/255.0.0.255 drop");
    let warnings: Vec<String> = parsed.unwrap().unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "`10.0.0.1/24` has bits that its mask leaves out: it is read as `10.0.0.0/24`",
            "`10.1.2.3` has bits that its mask leaves out: it is read as `10.0.0.3`",
        ]
    );
}

#[test]
fn a_rule_that_is_gone_shadows_none() {
    let rules = rules(&["all drop", "tcp-dport 80 drop"]);
    let mut linter = Linter::default();
    linter.insert(7, &rules[0]);
    let earlier = |id: u32| (id == 7).then_some(("first", &rules[0]));
    assert_eq!(linter.lint(&rules[1], earlier), [Lint::Shadowed { by: "first".into() }]);
    assert_eq!(linter.lint(&rules[1], |_| None), []);
    linter.remove(7, &rules[0]);
    assert_eq!(linter.lint(&rules[1], earlier), []);
}

/// A match over small numbers, and whether it holds for values of `tcp-dport`, `ip-ttl`, `tcp-syn` and `tcp-opt-mss`.
type Case = (String, Holds, u16, u16);

type Holds = fn(&Packet, u16, u16) -> bool;

/// The last is no number where the packet has no such option.
struct Packet {
    port: u16,
    ttl: u16,
    is_syn: bool,
    mss: Option<u16>,
}

fn case() -> impl Strategy<Value = Case> {
    (0usize..20, 0u16..8, 0u16..8).prop_map(|(form, a, b)| {
        let (a, b) = (a.min(b), a.max(b));
        let (text, holds): (String, Holds) = match form {
            0 => ("all".into(), |_, _, _| true),
            1 => ("tcp-sport".into(), |_, _, _| true),
            2 => (format!("tcp-dport {a}"), |p, a, _| p.port == a),
            3 => (format!("tcp-dport {a}-{b}"), |p, a, b| (a..=b).contains(&p.port)),
            4 => (format!("! tcp-dport {a}-{b}"), |p, a, b| !(a..=b).contains(&p.port)),
            5 => (format!("tcp-dport != {a}"), |p, a, _| p.port != a),
            6 => (format!("tcp-dport {{{a}, {b}}}"), |p, a, b| p.port == a || p.port == b),
            7 => (format!("tcp-dport {a:#x}&{b:#x}"), |p, a, b| p.port & b == a & b),
            8 => (format!("ip-ttl {a}"), |p, a, _| p.ttl == a),
            9 => (format!("ip-ttl <= {a}"), |p, a, _| p.ttl <= a),
            10 => (format!("ip-ttl >= {a}"), |p, a, _| p.ttl >= a),
            11 => (format!("! ip-ttl {a:#x}&{b:#x}"), |p, a, b| p.ttl & b != a & b),
            12 => ("tcp-syn".into(), |p, _, _| p.is_syn),
            13 => ("! tcp-syn".into(), |p, _, _| !p.is_syn),
            14 => ("tcp-syn 0".into(), |p, _, _| !p.is_syn),
            15 => ("tcp-opt-mss".into(), |p, _, _| p.mss.is_some()),
            16 => ("! tcp-opt-mss".into(), |p, _, _| p.mss.is_none()),
            17 => (format!("tcp-opt-mss {a}-{b}"), |p, a, b| p.mss.is_some_and(|mss| (a..=b).contains(&mss))),
            18 => (format!("! tcp-opt-mss {a}"), |p, a, _| p.mss != Some(a)),
            _ => (format!("tcp-opt-mss >= {a}"), |p, a, _| p.mss.is_some_and(|mss| mss >= a)),
        };
        (text, holds, a, b)
    })
}

fn cases() -> impl Strategy<Value = Vec<Case>> {
    prop::collection::vec(case(), 1..4)
}

fn text(cases: &[Case]) -> String {
    cases.iter().map(|(text, ..)| format!("{text} ")).collect::<String>() + "drop"
}

fn packets() -> impl Iterator<Item = Packet> {
    (0..9u16 * 9 * 2 * 9).map(|at| Packet {
        port: at % 9,
        ttl: at / 9 % 9,
        is_syn: at / 81 % 2 == 1,
        mss: Some(at / 162).filter(|mss| *mss < 8),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_rule_that_covers_another_matches_all_its_packets(outer in cases(), inner in cases()) {
        // Rules that match nothing are refused.
        let (Ok(wide), Ok(narrow)) = (parse_rule(&text(&outer)), parse_rule(&text(&inner))) else { return Ok(()) };
        let matches = |cases: &[Case], packet: &Packet| cases.iter().all(|(_, holds, a, b)| holds(packet, *a, *b));
        if covers(&wide, &narrow) {
            let missed = packets().any(|packet| matches(&inner, &packet) && !matches(&outer, &packet));
            prop_assert!(!missed, "{} / {}", wide, narrow);
        }
    }

    #[test]
    fn tables_find_only_rules_that_a_search_finds(all in prop::collection::vec(cases(), 1..6)) {
        let rules: Vec<Rule> = all.iter().filter_map(|cases| parse_rule(&text(cases)).ok()).collect();
        let named: Vec<(&str, &Rule)> = rules.iter().map(|rule| ("another", rule)).collect();
        let found = lint_all(&named);
        for (at, rule) in rules.iter().enumerate() {
            let of_table: Vec<&Lint> = found.iter().filter(|(index, _)| *index == at).map(|(_, lint)| lint).collect();
            let of_search = lint(&named, at);
            prop_assert!(of_table.is_empty() || of_search == [of_table[0].clone()], "{}", rule);
        }
    }
}
