//! The language: lines that are read back, and lines that are refused.

use netbricks_core::Settings;
use netbricks_testkit::mutate::Random;

use super::super::{FirewallConfig, RuleList, Tracking, parse_rule, parse_rules};
use super::{generate, with};

#[test]
fn a_printed_rule_is_the_same_rule() {
    let mut random = Random::new(7);
    for _ in 0..3_000 {
        let rule = generate::rule(&mut random);
        let line = rule.to_string();
        match parse_rule(&line) {
            Ok(read) => assert_eq!(read, rule, "{line}"),
            Err(error) => assert!(error.message.contains("both versions of IP"), "{line}: {error}"),
        }
    }
    for _ in 0..30 {
        let list = generate::list(&mut random, 20);
        let read = parse_rules(&list.to_string()).unwrap();
        let rules = |list: &RuleList| list.rules.iter().map(|(_, rule)| rule.clone()).collect::<Vec<_>>();
        assert_eq!((rules(&read), &read.sets), (rules(&list), &list.sets));
    }
}

/// Each line as an operator may write it, and as it is shown.
#[test]
fn lines_have_one_canonical_form() {
    for (line, shown) in [
        ("allow", "allow"),
        ("deny log from any to 192.0.2.0/24", "deny to 192.0.2.0/24 log"),
        ("allow tcp from 10.0.0.0/8 to any port https", "allow tcp from 10.0.0.0/8 to any port 443"),
        ("allow proto {tcp,udp} to port domain # DNS", "allow proto {6, 17} to any port 53"),
        ("reject with port udp to any port not 53", "reject with port udp to any port not 53"),
        ("allow icmp type {echo-request, 13} name ping", "allow icmp type {8, 13} name ping"),
        (
            "allow ip6 from not {2001:db8::/32} in lan out not {wan, dmz}",
            "allow ip6 from not 2001:db8::/32 in lan out not {wan, dmz}",
        ),
        ("deny state not new,established", "deny state related,invalid,untracked"),
        ("deny tcp flags not syn,fin/syn,fin,ack", "deny tcp flags not fin,syn/fin,syn,ack"),
        (
            "allow stateless log \"say \\\"so\\\"\" comment \"# is text\"",
            "allow stateless log \"say \\\"so\\\"\" comment \"# is text\"",
        ),
        ("deny where ip-ttl < 5 ! tcp-opt-mss", "deny where ip-ttl < 5 ! tcp-opt-mss"),
        ("count in \"not\"", "count in \"not\""),
        ("allow to 192.0.2.1/32", "allow to 192.0.2.1"),
    ] {
        let rule = parse_rule(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(rule.to_string(), shown);
        assert_eq!(parse_rule(shown).unwrap(), rule, "{shown}");
    }
}

#[test]
fn refused_lines_say_where_what_and_how_to_mend_it() {
    for (line, message) in [
        ("alow tcp", "column 1: `alow` begins no line: did you mean `allow`?"),
        ("allow tpc", "column 7: `tpc` is no part of a rule: did you mean `tcp`?"),
        (
            "allow from 10.0.0.1/8",
            "column 12: `10.0.0.1/8` has bits set behind its first 8: write `10.0.0.0/8`",
        ),
        (
            "allow from 10.0.0.0/33",
            "column 12: `10.0.0.0/33`: addresses like this have 32 bits: give a length of 0 to 32",
        ),
        (
            "allow from 10.0.0.300",
            "column 12: `10.0.0.300` is no address: write one as `192.0.2.1`, `192.0.2.0/24`, `2001:db8::/32` or `192.0.2.1-192.0.2.9`",
        ),
        (
            "allow to any port 70000",
            "column 19: `70000` is no port: write a number from 0 to 65535, a name as `https`, or a range as `1024-65535`",
        ),
        ("allow to any port 9-1", "column 19: `9-1` ends before it begins: write the lower number first"),
        ("allow tcp tcp", "column 11: a protocol stands twice: write it once, with several values in braces"),
        ("allow from {10.0.0.1 10.0.0.2}", "column 22: found `10.0.0.2`: expected `,` or `}`"),
        ("allow type 8", "column 7: `type` is of ICMP or ICMPv6: write `icmp` or `icmp6` before it"),
        (
            "allow icmp code 0",
            "column 12: `code` stands without `type`: write `type` before it: a code means something else in each type",
        ),
        (
            "allow ip4 to 2001:db8::1",
            "column 14: `2001:db8::1` is an address of the other version of IP: leave `ip4` or `ip6` out, or write other addresses",
        ),
        (
            "allow from 10.0.0.1 to 2001:db8::1",
            "column 7: no packet has addresses of both versions of IP: write two rules, or addresses of both versions at each end",
        ),
        (
            "deny stateless",
            "column 6: `stateless` stands in a rule that does not allow: only rules that allow make connections: leave it out",
        ),
        (
            "allow tcp flags syn",
            "column 17: `syn` says not which flags are looked at: write the flags that are set, and behind `/` those that are looked at: `syn/syn,ack`",
        ),
        (
            "allow tcp flags syn/ack",
            "column 17: `syn/ack` asks for a flag that is not looked at: write each flag before `/` behind it, too",
        ),
        (
            "allow state fresh",
            "column 13: found `fresh`: expected `new`, `established`, `related`, `invalid` or `untracked`",
        ),
        ("allow where tcp-dprt 80", "column 13: there is no field `tcp-dprt`: did you mean `tcp-dport`?"),
        (
            "allow where tcp-dport 80 drop",
            "column 13: `where` takes matches alone: write the action at the beginning of the line, and `comment` before `where`",
        ),
        (
            "allow name 7up",
            "column 12: `7up` is no name: a name has letters, digits, `-`, `_` and `.`, and begins with a letter",
        ),
        ("allow comment never", "column 15: found `never`: expected a text in quotes"),
        (
            "allow log \"open",
            "column 11: the text has no closing quote: expected a part of a rule, as `tcp`, `from 10.0.0.0/8` or `to any port 443`",
        ),
        (
            "reject with force",
            "column 13: found `force`: expected `reset`, `prohibited`, `port`, `host` or `route`",
        ),
        ("policy drop", "column 8: found `drop`: expected `allow`, `deny` or `reject`"),
        ("set web {10.0.0.1}", "column 5: found `web`: expected the name of a set, as `@web`"),
        (
            "allow from",
            "column 11: the line ends: expected address, as `any`, `192.0.2.0/24`, `2001:db8::1` or `@web`",
        ),
    ] {
        let wrong = parse_rules(line).unwrap_err();
        assert_eq!(wrong.errors[0].1.to_string(), message, "{line}");
    }
}

#[test]
fn faults_of_several_lines_are_found_together() {
    let text = "set @web {192.0.2.1}\nallow to @wbe name a\nallow to any port @web name a\npolicy allow\npolicy deny\nset @web {443}\n";
    let wrong = parse_rules(text).unwrap_err();
    assert_eq!(
        wrong.to_string().lines().collect::<Vec<_>>(),
        [
            "line 2, column 10: there is no set `@wbe`: did you mean `@web`?",
            "line 3, column 24: the name `a` stands in line 2 already: give each rule its own name",
            "line 5, column 1: `policy` stands in line 4 already: write it once",
            "line 6, column 5: the set `@web` stands in line 1 already: add to it by `add @web { … }`",
            "4 lines are wrong; nothing is loaded",
        ]
    );
    let list = parse_rules("set @web {192.0.2.1}\nadd @web 192.0.2.2\nallow to @web").unwrap();
    assert_eq!(list.sets["web"].len(), 2);
    let wrong = parse_rules("add @web 192.0.2.2").unwrap_err();
    assert!(wrong.to_string().starts_with("line 1, column 5: there is no set `@web`"), "{wrong}");
    let wrong = parse_rules("tracking off\nallow state new").unwrap_err();
    assert!(wrong.to_string().starts_with("line 2, column 7: `state` asks for connections"), "{wrong}");
    let wrong = parse_rules("set @p {80}\nallow from @p").unwrap_err();
    assert!(
        wrong.to_string().starts_with("line 2, column 12: the set `@p` has `80`, which is no address"),
        "{wrong}"
    );
}

#[test]
fn three_wrong_lines_of_ten_thousand_are_named_and_nothing_is_loaded() {
    let mut lines: Vec<String> = (0..10_000)
        .map(|at| format!("allow tcp from 10.{}.{}.0/24 to any port {}", at >> 8 & 255, at & 255, 1 + at))
        .collect();
    assert_eq!(parse_rules(&lines.join("\n")).unwrap().rules.len(), 10_000);
    lines[41] = "allow tcp from 10.0.0.0/8 to any prt 80".into();
    lines[4_999] = "alow tcp".into();
    lines[9_999] = "deny from @nobody".into();
    let config = FirewallConfig { lines, ..FirewallConfig::default() };
    let refused = config.check().unwrap_err();
    assert_eq!(
        refused.to_string().lines().collect::<Vec<_>>(),
        [
            "`lines` have 3 wrong lines",
            "line 42, column 34: `prt` is no part of a rule: did you mean `port`?",
            "line 5000, column 1: `alow` begins no line: did you mean `allow`?",
            "line 10000, column 11: there is no set `@nobody`: define it, as `set @nobody { 192.0.2.0/24 }`",
        ]
    );
}

#[test]
fn a_file_and_lines_are_one_list() {
    let folder = std::env::temp_dir().join(format!("firewall-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("edge.rules");
    std::fs::write(
        &path,
        "# the edge\nset @web {192.0.2.1}\nallow tcp to @web port 443\nallow to 192.0.2.0/33\n",
    )
    .unwrap();
    let mut config = with(&["deny name last", "denny"]);
    config.rules = Some("edge.rules".into());
    config.start_from(&folder);
    let refused = config.check().unwrap_err().to_string();
    let lines: Vec<&str> = refused.lines().collect();
    assert!(lines[0].starts_with("`rules` names a file with 2 wrong lines"), "{refused}");
    assert!(
        lines[1].ends_with(
            "edge.rules:4:10: `192.0.2.0/33`: addresses like this have 32 bits: give a length of 0 to 32"
        ),
        "{refused}"
    );
    assert_eq!(lines[2], "line 2, column 1: `denny` begins no line: did you mean `deny`?");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn settings_that_do_not_do_are_named() {
    for (config, message) in [
        (FirewallConfig { opening: 0, ..with(&[]) }, "`opening` must be 1 to 67108864, found 0"),
        (
            FirewallConfig { answer_rate: 0, ..with(&[]) },
            "`answer_rate` must be 1 to 1,000,000 answers a second, found 0",
        ),
    ] {
        assert_eq!(config.check().unwrap_err().to_string(), message);
    }
    let config = FirewallConfig { capacity: 2, ..with(&["allow to {10.0.0.1, 10.0.0.2, 10.0.0.3}"]) };
    let refused = config.check().unwrap_err().to_string();
    assert!(refused.contains("line 1, column 1: no room for another entry"), "{refused}");
    assert_eq!(parse_rules("").unwrap().tracking, Tracking::Automatic);
}

#[test]
fn no_text_panics_the_parser() {
    let mut random = Random::new(3);
    let words = [
        "allow",
        "deny",
        "set",
        "@a",
        "{",
        "}",
        ",",
        "from",
        "to",
        "port",
        "not",
        "10.0.0.0/8",
        "80-90",
        "\"",
        "\\",
        "#",
        "where",
        "tcp",
        "icmp",
        "type",
        "flags",
        "syn/syn",
        "é",
        "state",
        "new",
        "name",
        "log",
        "=",
        "\u{0}",
        "x",
        "in",
    ];
    for _ in 0..20_000 {
        let count = random.below(9);
        let mut text = String::from(if random.below(2) == 0 { "allow " } else { "" });
        for _ in 0..count {
            text += words[random.below(words.len())];
            if random.below(5) > 0 {
                text.push(' ');
            }
        }
        if let Err(wrong) = parse_rules(&text) {
            for (_, error) in &wrong.errors {
                assert!(text.get(error.span.clone()).is_some(), "{text:?}: {error:?}");
                assert!(!error.render(&text).is_empty());
            }
        }
    }
}
