//! Completion and colours.

use std::collections::BTreeMap;

use netbricks_mmb::complete::{Class, complete, highlight};
use netbricks_mmb::language::{Context, SetKind};

/// The words that may stand at the `|` of a line.
fn words(line: &str) -> Vec<String> {
    let interfaces = ["eth0".to_owned(), "eth1".to_owned()];
    let sets = BTreeMap::from([("pool".to_owned(), SetKind::Ipv4), ("web".to_owned(), SetKind::Number)]);
    let rules = ["first".to_owned()];
    let context = Context {
        outputs: Some(2),
        interfaces: Some(&interfaces),
        sets: Some(&sets),
        rules: &rules,
        ..Context::default()
    };
    let cursor = line.find('|').unwrap();
    let found = complete(&line.replace('|', ""), cursor, &context);
    found.into_iter().map(|candidate| candidate.text).collect()
}

#[track_caller]
fn has(line: &str, expected: &[&str], others: &[&str]) {
    let found = words(line);
    for word in expected {
        assert!(found.iter().any(|found| found == word), "{line}: {word} is not in {found:?}");
    }
    for word in others {
        assert!(!found.iter().any(|found| found == word), "{line}: {word} is in {found:?}");
    }
}

#[test]
fn words_that_may_stand_at_the_cursor_are_offered() {
    has("|", &["add", "mmb", "list", "abort"], &["tcp-dport"]);
    has("mmb |", &["add", "list"], &["tcp-dport"]);
    has("ad|", &["add", "add-stateful"], &["list"]);
    has("add |", &["at", "name", "tcp-dport", "!", "all"], &["drop", "list"]);
    has("add tcp-dp|", &["tcp-dport"], &["tcp-sport"]);
    has("add tcp-dport |", &["==", "<=", "http", "@web", "tcp-syn", "drop"], &["@pool", "list"]);
    has("add tcp-dport<=|", &["https"], &["tcp-syn"]);
    has("add ip-proto |", &["tcp", "udp", "drop"], &["@pool"]);
    has("add ip-saddr @|", &["@pool"], &["@web"]);
    has("add ip-saddr {10.0.0.1, @|", &["@pool"], &["@web"]);
    has("add in |", &["eth0", "eth1"], &["drop"]);
    has("add tcp-dport 80 m|", &["mod", "map"], &["drop"]);
    has("add tcp-dport 80 mod |", &["tcp-dport", "ip-ttl"], &["ip-len", "all"]);
    has("add tcp-dport 80 drop |", &["comment", "mod"], &["tcp-dport"]);
    has("add tcp-syn strip |", &["!", "all", "tcp-opt-mss", "tcp-opt"], &["tcp-dport"]);
    has("add-stateful all map tcp-sport |", &["random", "@web"], &["@pool"]);
    has("add-stateful all map |", &["tcp-sport"], &["tcp-opt-mss", "tcp-payload"]);
    has("delete |", &["first", "="], &[]);
    has("move 1 |", &["before", "after"], &[]);
    has("extend |", &["@pool", "@web"], &[]);
    has("show |", &["tables", "fields"], &[]);
    has("show tables |", &["verbose"], &[]);
    has("explain |", &["hex", "tcp-dport"], &[]);
    has("expect tcp-dport 80 |", &["accept", "drop", "tcp-syn"], &[]);
    has("policy |", &["accept", "drop"], &[]);
}

#[test]
fn words_behind_the_cursor_and_errors_before_it_do_not_hinder() {
    has("add tcp-d| drop", &["tcp-dport"], &[]);
    has("add tcp-dprt 80 tcp-dport 70000 |", &["drop", "tcp-syn"], &[]);
    has("add tcp-syn udp-dport 53 dr|", &["drop"], &[]);
    assert_eq!(words("add tcp-syn # ad|"), Vec::<String>::new());
    assert_eq!(words("add tcp-syn comment \"ad|"), Vec::<String>::new());
    assert_eq!(words("list |"), Vec::<String>::new());
}

#[test]
fn each_piece_of_a_line_has_its_class() {
    let line = "add at 1 tcp-dport <= 80 ip-saddr @a mod ip-ttl 3 comment \"x\" # end";
    let found: Vec<(&str, Class)> =
        highlight(line).into_iter().map(|(range, class)| (&line[range], class)).collect();
    assert_eq!(
        found,
        [
            ("add", Class::Command),
            ("at", Class::Keyword),
            ("1", Class::Value),
            ("tcp-dport", Class::Field),
            ("<=", Class::Operator),
            ("80", Class::Value),
            ("ip-saddr", Class::Field),
            ("@a", Class::Name),
            ("mod", Class::Target),
            ("ip-ttl", Class::Field),
            ("3", Class::Value),
            ("comment", Class::Keyword),
            ("\"x\"", Class::Text),
            ("# end", Class::Comment),
        ]
    );
    let classes = |line| highlight(line).into_iter().map(|(_, class)| class).collect::<Vec<_>>();
    use Class::{Command, Error, Field, Target, Value};
    assert_eq!(classes("add tcp-dprt 80 drop"), [Command, Error, Value, Target]);
    assert_eq!(classes("add tcp-dport 70000 drop"), [Command, Field, Error, Target]);
    assert_eq!(classes("ad tcp-dport 80 drop"), [Error, Field, Value, Target]);
}
