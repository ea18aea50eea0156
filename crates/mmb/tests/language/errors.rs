//! The errors of bad lines, with their places and remedies, in `errors.txt`.

use std::collections::BTreeMap;

use netbricks_mmb::language::{Context, SetKind, parse_command};

/// A line for each fault, in the order of `errors.txt`.
#[rustfmt::skip]
const BAD: &[&str] = &[
    // Unknown words.
    "ad tcp-dport 80 drop",
    "tcp-dport 80 drop",
    "frobnicate",
    "add tcp-dprt 80 drop",
    "add tcp-syn tcp-dprt 80 drop",
    "add xyzzy drop",
    "add tcp-dport 80 dorp",
    "show tabels",
    "mode order",
    // Values that do not fit.
    "add tcp-dport 70000 drop",
    "add tcp-dport htps drop",
    "add ip-ttl 256 drop",
    "add tcp-syn 2 drop",
    "add ip-saddr 10.0.0.0/33 drop",
    "add ip6-saddr 2001:db8::/129 drop",
    "add ip-saddr 2001:db8::1 drop",
    "add ip6-saddr 10.0.0.1 drop",
    "add ip-saddr 10.0.0.256 drop",
    "add tcp-seq-num 340282366920938463463374607431768211456 drop",
    "add tcp-dport 2000-1000 drop",
    "add tcp-dport 80-70000 drop",
    "add tcp-payload x123 drop",
    "add tcp-payload 12 drop",
    "add tcp-dport \"80\" drop",
    "add tcp-dport == drop",
    "add all 1 drop",
    "add tcp-payload xff&xffff drop",
    // Comparisons.
    "add tcp-payload < x12 drop",
    "add tcp-opt-sack > x12 drop",
    "add tcp-syn > 0 drop",
    "add tcp-opt < 3 drop",
    "add ip6-eh-ah < 1 drop",
    "add in < eth0 drop",
    "add tcp-dport < 80-90 drop",
    "add tcp-dport = 80 drop",
    "add tcp-dport < 0 drop",
    "add ! tcp-dport 0-65535 drop",
    // Layers.
    "add ip-saddr 10.0.0.1 ip6-daddr ::1 drop",
    "add icmp-type 8 ip6-hop-limit 3 drop",
    "add tcp-syn udp-dport 53 drop",
    "add ip-proto udp tcp-dport 80 drop",
    "add udp-dport 53 strip tcp-opt-mss",
    "add ip-ttl 3 mod ip6-hop-limit 3",
    // Matches.
    "add drop",
    "add tcp-dport 80",
    "add ! all drop",
    "add ! tcp-dport drop",
    "add tcp-dport 80 tcp-dport 443 drop",
    "add tcp-syn ! tcp-syn drop",
    "add in eth9 drop",
    "add in drop",
    // Sets.
    "add ip-saddr @poll drop",
    "add ip-saddr @web drop",
    "add tcp-dport {80, 443 drop",
    "add tcp-dport {80,",
    "add tcp-dport {} drop",
    "define @mixed {10.0.0.1, 2001:db8::1}",
    "define @mixed {@pool, 80}",
    "define mixed {10.0.0.1}",
    "define @mixed 10.0.0.1",
    // Targets.
    "add all map ip-saddr 10.0.0.1",
    "add all shuffle tcp-seq-num",
    "add-stateful all map tcp-opt-mss 3",
    "add tcp-syn strip tcp-opt-mss strip ! tcp-opt-sack",
    "add tcp-syn strip ! all",
    "add tcp-syn strip tcp-dport",
    "add tcp-syn strip tcp-opt-ms",
    "add tcp-syn add tcp-opt-mss",
    "add tcp-syn add tcp-opt-mss 70000",
    "add tcp-syn add tcp-opt-sackp x12",
    "add tcp-syn add tcp-opt 1",
    "add all drop drop",
    "add all accept accept",
    "add all drop accept",
    "add all lb 0 lb 1",
    "add all mod ip-ttl 1 mod ip-ttl 2",
    "add all drop mod ip-ttl 1",
    "add all drop 0",
    "add all drop 101",
    "add all lb 2",
    "add all lb",
    "add all mod ip-proto 6",
    "add all mod tcp-opt 6",
    "add all mod in eth0",
    "add all mod ip6-eh-ah 1",
    "add all mod ip-ect0 0",
    "add tcp-syn mod tcp-opt-fast-open \"012345678901234567890123456789012345678\"",
    "add tcp-syn accept tcp-dport 80",
    // The line itself.
    "add tcp-syn accept comment \"no end",
    "add tcp-syn accept comment \"\\q\"",
    "add tcp-syn accept comment text",
    "add tcp-syn; accept",
    "add at 0 tcp-syn accept",
    "add name 1st tcp-syn accept",
    "delete",
    "move 1 befor 2",
    "list all",
    "enable eth9",
    "explain",
    "explain tcp-dport",
    "explain tcp-dport 80 tcp-dport 443",
    "expect tcp-dport 80",
    "explain hex 123",
    "explain hex 12g4",
    "test",
    "add tcp-dport é drop",
    // Bytes and values that rules do not compare or remember.
    "add tcp-payload \"0123456789012345678901234567890123456789012345678901234567890123\" drop",
    "add tcp-payload x4700&xff drop",
    "add tcp-payload {\"a\", x47-x48} drop",
    "add-stateful all map eth-saddr 02:00:00:00:00:01",
    "add-stateful ip-proto tcp map ip-ttl 5 map ip-dscp 3 map tcp-win 100",
];

fn rendered() -> String {
    let interfaces = ["eth0".to_owned(), "eth1".to_owned()];
    let sets = BTreeMap::from([("pool".to_owned(), SetKind::Ipv4), ("web".to_owned(), SetKind::Number)]);
    let context =
        Context { outputs: Some(2), interfaces: Some(&interfaces), sets: Some(&sets), ..Context::default() };
    let show = |line: &&str| match context.parse(line) {
        Err(error) => error.render(line) + "\n\n",
        Ok(found) => panic!("{line} is taken: {found:?}"),
    };
    BAD.iter().map(show).collect()
}

#[test]
fn every_bad_line_has_its_error() {
    let found = rendered();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/language/errors.txt");
    if std::env::var_os("NETBRICKS_BLESS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (found, expected) in found.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
}

#[test]
fn long_lines_and_deep_and_large_sets_are_refused() {
    let error = |line: &str| parse_command(line).unwrap_err().to_string();
    let long = format!("list #{}", " ".repeat(70_000));
    assert_eq!(
        error(&long),
        "column 1: the line has 70006 bytes, more than 65536: write several rules, or a set with `define` and `extend`"
    );
    let deep = format!("add tcp-dport {}80{} drop", "{".repeat(20), "}".repeat(20));
    assert_eq!(error(&deep), "column 31: sets stand too deep in sets: write the values in one set");
    let many = format!("add {} drop", "tcp-syn ".repeat(300));
    assert!(error(&many).contains("a rule has at most 256 matches"));
    let many = format!("add all {}", "strip tcp-opt-mss ".repeat(300));
    assert!(error(&many).contains("a rule has at most 256 targets"));
    let set = format!("define @a {{{}1}}", "1,".repeat(32_000));
    assert!(parse_command(&set).is_ok());
    assert_eq!(error("list\nlist"), "column 5: a line break within a line: write one command a line");
}

#[test]
fn a_long_line_is_shown_around_its_fault() {
    let line = format!("add {}tcp-dprt 80 drop", "tcp-syn ".repeat(40));
    let shown = parse_command(&line).unwrap_err().render(&line);
    assert!(shown.lines().all(|line| line.len() < 120), "{shown}");
}
