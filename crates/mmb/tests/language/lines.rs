//! Each form of the language, and what it is understood as.

use netbricks_mmb::field::FieldId;
use netbricks_mmb::language::{parse_command, parse_rule};
use netbricks_mmb::rule::*;

fn field(name: &str) -> FieldId {
    FieldId::named(name).unwrap_or_else(|| panic!("{name}"))
}
fn number(number: u128) -> Atom {
    Atom::Number(number)
}
fn flag(name: &str) -> Match {
    Match { is_negated: false, field: field(name), test: None, span: 0..0 }
}
fn not(condition: Match) -> Match {
    Match { is_negated: true, ..condition }
}
fn compared(name: &str, comparison: Comparison, value: Value) -> Match {
    Match { test: Some((comparison, value)), ..flag(name) }
}
fn is(name: &str, value: u128) -> Match {
    compared(name, Comparison::Equal, Value::Atom(number(value)))
}
fn write(name: &str, value: u128) -> Target {
    Target::Mod(field(name), number(value))
}
fn strip(option: u8) -> Target {
    Target::Strip { is_kept: false, option: Some(option) }
}
fn keep(option: u8) -> Target {
    Target::Strip { is_kept: true, option: Some(option) }
}
fn add_option(option: u8, value: u128) -> Target {
    Target::Add { option, value: Some(number(value)) }
}
fn v4(text: &str) -> Atom {
    Atom::Ipv4(text.parse().unwrap())
}
fn rule(is_stateful: bool, matches: Vec<Match>, targets: Vec<Target>) -> Rule {
    Rule { is_stateful, matches, targets, comment: None }
}

#[track_caller]
fn command(line: &str) -> Command {
    match parse_command(line) {
        Ok(Some(command)) => command,
        Ok(None) => panic!("no command: {line}"),
        Err(error) => panic!("{}", error.render(line)),
    }
}

/// The line adds this rule, and its canonical form is `shown`.
#[track_caller]
fn adds(line: &str, shown: &str, expected: Rule) {
    let found = command(line);
    assert_eq!(found, Command::Add { at: None, name: None, rule: expected }, "{line}");
    assert_eq!(found.to_string(), shown);
    assert_eq!(command(shown), found);
}

#[test]
fn the_lines_of_the_paper_and_the_issue_mean_their_rules() {
    let same = |line: &str, expected: Rule| adds(line, line, expected);
    same("add all mod ip-ecn 0", rule(false, vec![flag("all")], vec![write("ip-ecn", 0)]));
    same(
        "add tcp-dport 80 mod tcp-dport 443",
        rule(false, vec![is("tcp-dport", 80)], vec![write("tcp-dport", 443)]),
    );
    let mss = |comparison, value| compared("tcp-opt-mss", comparison, Value::Atom(number(value)));
    same(
        "add tcp-opt-mss > 1500 mod tcp-opt-mss 1460",
        rule(false, vec![mss(Comparison::Greater, 1500)], vec![write("tcp-opt-mss", 1460)]),
    );
    same(
        "add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460",
        rule(false, vec![flag("tcp-syn"), not(flag("tcp-opt-mss"))], vec![add_option(2, 1460)]),
    );
    same(
        "add tcp-syn tcp-opt-mss strip tcp-opt-mss add tcp-opt-mss 1452",
        rule(false, vec![flag("tcp-syn"), flag("tcp-opt-mss")], vec![strip(2), add_option(2, 1452)]),
    );
    same(
        "add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale",
        rule(false, vec![flag("tcp-opt-timestamp")], vec![keep(2), keep(3)]),
    );
    same("add tcp-opt 22 drop", rule(false, vec![is("tcp-opt", 22)], vec![Target::Drop(None)]));
    same(
        "add ! tcp-opt-mss ! tcp-opt-wscale drop",
        rule(false, vec![not(flag("tcp-opt-mss")), not(flag("tcp-opt-wscale"))], vec![Target::Drop(None)]),
    );
    same(
        "add tcp-cwr tcp-syn tcp-ece drop",
        rule(false, vec![flag("tcp-cwr"), flag("tcp-syn"), flag("tcp-ece")], vec![Target::Drop(None)]),
    );
    same("add all drop 0.1", rule(false, vec![flag("all")], vec![Target::Drop(Some(0.1))]));
    same(
        "add ip-ecn 1 mod ip-ecn 3 mod ip-dscp 2",
        rule(false, vec![is("ip-ecn", 1)], vec![write("ip-ecn", 3), write("ip-dscp", 2)]),
    );
    let shuffle = |name: &str| Target::Shuffle(field(name));
    same(
        "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num",
        rule(true, vec![flag("tcp-syn")], vec![shuffle("tcp-seq-num"), shuffle("tcp-ack-num")]),
    );
    let prefix = Value::Prefix(v4("10.0.0.0"), 24);
    same(
        "add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept",
        rule(
            true,
            vec![is("ip-proto", 6), compared("ip-saddr", Comparison::Equal, prefix)],
            vec![Target::Accept],
        ),
    );
    same("add ip-proto tcp drop", rule(false, vec![is("ip-proto", 6)], vec![Target::Drop(None)]));
    let to = MapTo::Value(Value::Atom(v4("30.30.30.30")));
    same(
        "add-stateful ip-proto tcp map ip-saddr 30.30.30.30 shuffle tcp-sport",
        rule(true, vec![is("ip-proto", 6)], vec![Target::Map(field("ip-saddr"), to), shuffle("tcp-sport")]),
    );
    adds(
        "add tcp-syn 1 tcp-dport 80 tcp-opt-mss <= 1480 ip-ect0 tcp-seq-num == x89abcdef mod tcp-ack 1 mod tcp-dport 321 \
         strip tcp-opt-mss",
        "add tcp-syn 1 tcp-dport 80 tcp-opt-mss <= 1480 ip-ect0 tcp-seq-num 2309737967 mod tcp-ack 1 mod tcp-dport 321 \
         strip tcp-opt-mss",
        rule(
            false,
            vec![
                is("tcp-syn", 1),
                is("tcp-dport", 80),
                mss(Comparison::AtMost, 1480),
                flag("ip-ect0"),
                is("tcp-seq-num", 0x89ab_cdef),
            ],
            vec![write("tcp-ack", 1), write("tcp-dport", 321), strip(2)],
        ),
    );
    let not_tcp = compared("ip-proto", Comparison::NotEqual, Value::Atom(number(6)));
    same("add ip-proto != tcp drop", rule(false, vec![not_tcp], vec![Target::Drop(None)]));
    same("add all lb 0 1", rule(false, vec![flag("all")], vec![Target::Balance(vec![0, 1])]));
}

/// Lines with their canonical forms.
#[rustfmt::skip]
pub(crate) const FORMS: &[(&str, &str)] = &[
    ("  mmb add tcp-dport<=1024 drop # remark", "add tcp-dport <= 1024 drop"),
    ("add !tcp-opt-mss!=1460 accept", "add ! tcp-opt-mss != 1460 accept"),
    ("add tcp-window x10 drop", "add tcp-win 16 drop"),
    ("add TCP-DPORT HTTPS drop", "add tcp-dport 443 drop"),
    ("add ip-saddr 10.0.0.1-10.0.0.9 drop", "add ip-saddr 10.0.0.1-10.0.0.9 drop"),
    ("add ip-saddr 10.0.0.1 - 10.0.0.9 drop", "add ip-saddr 10.0.0.1-10.0.0.9 drop"),
    ("add tcp-dport 1000-2000 drop", "add tcp-dport 1000-2000 drop"),
    ("add tcp-dport ftp-data-http drop", "add tcp-dport 20-80 drop"),
    ("add ip-saddr 10.0.0.1/255.0.0.255 drop", "add ip-saddr 10.0.0.1/255.0.0.255 drop"),
    ("add ip-saddr 10.1.2.3/255.255.0.0 drop", "add ip-saddr 10.1.0.0/16 drop"),
    ("add ip6-daddr 2001:db8::/32 drop", "add ip6-daddr 2001:db8::/32 drop"),
    ("add ip6-daddr 2001:db8::1-2001:db8::ff drop", "add ip6-daddr 2001:db8::1-2001:db8::ff drop"),
    ("add tcp-flags x12&x3f drop", "add tcp-flags 0x12&0x3f drop"),
    ("add tcp-dport { 80, 443, 1000-2000, {8080} } drop", "add tcp-dport {80, 443, 1000-2000, 8080} drop"),
    ("add ip-saddr @bad drop", "add ip-saddr @bad drop"),
    ("add ip-saddr { @bad, 10.0.0.0/8 } drop", "add ip-saddr {@bad, 10.0.0.0/8} drop"),
    ("add eth-saddr 02:00:00:00:00:01 drop", "add eth-saddr 02:00:00:00:00:01 drop"),
    ("add eth-saddr 02:00:00:00:00:00/ff:00:00:00:00:00 drop", "add eth-saddr 02:00:00:00:00:00/ff:00:00:00:00:00 drop"),
    ("add tcp-payload \"GET \" drop", "add tcp-payload x47455420 drop"),
    ("add tcp-payload x474554 drop", "add tcp-payload x474554 drop"),
    ("add net-proto ip6 drop", "add net-proto ipv6 drop"),
    ("add net-proto 0x1234 drop", "add net-proto 0x1234 drop"),
    ("add eth-type vlan drop", "add eth-type 802.1q drop"),
    ("add ip6-next icmp6 drop", "add ip6-next icmpv6 drop"),
    ("add icmp-type echo-request drop", "add icmp-type 8 drop"),
    ("add ip-dscp ef accept", "add ip-dscp 46 accept"),
    ("add in eth0 out \"drop\" drop", "add in eth0 out \"drop\" drop"),
    ("add tcp-opt x16 drop", "add tcp-opt 22 drop"),
    ("add tcp-opt strip tcp-opt 22 strip tcp-opt 2", "add tcp-opt strip tcp-opt 22 strip tcp-opt-mss"),
    ("add tcp-syn strip all", "add tcp-syn strip all"),
    ("add tcp-syn add tcp-opt 30 x0102", "add tcp-syn add tcp-opt-mptcp x0102"),
    ("add tcp-syn add tcp-opt 31 x0102", "add tcp-syn add tcp-opt 31 x0102"),
    ("add tcp-syn add tcp-opt-sackp", "add tcp-syn add tcp-opt-sackp"),
    ("add tcp-syn add tcp-opt-sackp drop 50%", "add tcp-syn add tcp-opt-sackp drop 50"),
    ("add-stateful all map ip-saddr 10.0.0.0/24", "add-stateful all map ip-saddr 10.0.0.0/24"),
    ("add-stateful all map tcp-sport 1024-65535", "add-stateful all map tcp-sport 1024-65535"),
    ("add-stateful all map tcp-sport random", "add-stateful all map tcp-sport random"),
    ("add-stateful all map ip-saddr @pool", "add-stateful all map ip-saddr @pool"),
    ("add-stateless at 3 name web tcp-dport 80 drop comment \"a \\\"b\\\" \\\\\"", "add at 3 name web tcp-dport 80 drop comment \"a \\\"b\\\" \\\\\""),
    ("enable eth0", "enable eth0"),
    ("disable \"a b\"", "disable \"a b\""),
    ("list", "list"),
    ("flush", "flush"),
    ("del 3", "delete 3"),
    ("delete web", "delete web"),
    ("delete = tcp-dport 80 drop", "delete = tcp-dport 80 drop"),
    ("show fields", "show fields"),
    ("show connections verbose", "show connections verbose"),
    ("replace 2 tcp-dport 80 accept", "replace 2 tcp-dport 80 accept"),
    ("replace 2 stateful tcp-dport 80 accept", "replace 2 stateful tcp-dport 80 accept"),
    ("replace = tcp-dport 80 drop tcp-dport 80 accept", "replace = tcp-dport 80 drop tcp-dport 80 accept"),
    ("move 2 before web", "move 2 before web"),
    ("move = tcp-syn add tcp-opt-sackp after = tcp-dport 1 drop", "move = tcp-syn add tcp-opt-sackp after = tcp-dport 1 drop"),
    ("define @web {http, https}", "define @web {80, 443}"),
    ("define @nets { 10.0.0.0/8, 192.168.0.1-192.168.0.9 }", "define @nets {10.0.0.0/8, 192.168.0.1-192.168.0.9}"),
    ("define @in { eth0, tap-1 }", "define @in {eth0, tap-1}"),
    ("define @sig { \"GET \", x01ff }", "define @sig {\"GET \", \"\\x01\\xff\"}"),
    ("extend @web { 8080 }", "extend @web {8080}"),
    ("shrink @web { 8080 }", "shrink @web {8080}"),
    ("mode ordered", "mode ordered"),
    ("mode all-match", "mode all-match"),
    ("policy accept", "policy accept"),
    ("policy drop", "policy drop"),
    ("explain ip-saddr 10.0.0.1 tcp-dport 80 tcp-syn tcp-opt-sackp", "explain ip-saddr 10.0.0.1 tcp-dport 80 tcp-syn 1 tcp-opt-sackp \"\""),
    ("explain hex 0200 0000:01", "explain hex 0200000001"),
    ("test /tmp/a-b.pcap # remark", "test /tmp/a-b.pcap"),
    ("test \"my file\"", "test \"my file\""),
    ("expect tcp-dport 80 drop", "expect tcp-dport 80 drop"),
    ("expect hex x0200 accept", "expect hex 0200 accept"),
    ("begin", "begin"),
    ("commit", "commit"),
    ("abort", "abort"),
];

#[test]
fn every_form_has_its_canonical_line() {
    for (line, shown) in FORMS {
        let found = command(line);
        assert_eq!(found.to_string(), *shown);
        assert_eq!(command(shown), found, "{shown}");
    }
}

#[test]
fn lines_without_a_command_are_none() {
    for line in ["", "  \t", "# add", "mmb", " mmb # nothing", "\r"] {
        assert_eq!(parse_command(line), Ok(None), "{line:?}");
    }
}

#[test]
fn a_rule_alone_says_whether_it_is_stateful() {
    for text in ["stateful tcp-syn accept", "add-stateful tcp-syn accept", "add stateful tcp-syn accept"] {
        let rule = parse_rule(text).unwrap();
        assert!(rule.is_stateful);
        assert_eq!(rule.to_string(), "stateful tcp-syn accept");
    }
    for text in ["tcp-syn accept", "add tcp-syn accept", "stateless tcp-syn accept"] {
        assert_eq!(parse_rule(text).unwrap().to_string(), "tcp-syn accept");
    }
}
