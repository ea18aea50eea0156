//! The rules language: what is read, refused with its place, and skipped with the reason.

use std::collections::BTreeMap;

use netbricks_core::Settings;

use crate::signature::language::{Read, Variables, read};
use crate::signature::set::RuleSet;
use crate::signature::{SearchEngine, SignatureConfig};

fn variables() -> Variables {
    let mut variables = Variables::default();
    variables.set("HOME_NET", "[10.0.0.0/8,!10.1.0.0/16]");
    variables.set("EXTERNAL_NET", "!$HOME_NET");
    variables.set("PORTS", "[80,8000:8080]");
    variables.set("LOOP", "[$LOOP]");
    variables
}

fn of(text: &str) -> Read {
    read(text, &variables(), &mut BTreeMap::new(), "")
}

const HEADER: &str = "alert tcp any any -> any any ";

#[test]
fn wrong_rules_are_told_with_their_place() {
    let rule = |options: &str| format!("{HEADER}({options} sid:1;)");
    let mut wrong = Vec::new();
    for (text, column, part) in [
        (rule("byte_test:2,>,1;"), 41, "expected `COUNT,OPERATOR,VALUE,OFFSET`"),
        (rule("byte_test:9,>,1,0;"), 41, "a number has at most 8"),
        (rule("byte_test:2,~,1,0;"), 41, "expected the operator"),
        (rule("byte_test:2,>,1x,0;"), 41, "found `1x`"),
        (rule("byte_test:2,>,1,-1;"), 41, "a number from 0 to 65535, found `-1`"),
        (rule("byte_test:2,>,1,0,hex;"), 41, "go with `string`"),
        ("alrt tcp any any -> any any (sid:1;)".into(), 1, "expected an action"),
        ("alert tpc any any -> any any (sid:1;)".into(), 7, "expected a protocol"),
        ("alert tcp any any => any any (sid:1;)".into(), 19, "expected `->` or `<>`"),
        ("alert tcp 10.0.0.0/33 any -> any any (sid:1;)".into(), 11, "prefix length of 0 to 32"),
        ("alert tcp [10.0.0.1,house] any -> any any (sid:1;)".into(), 21, "expected an address"),
        ("alert tcp [10.0.0.1 any -> any any (sid:1;)".into(), 11, "no `]`"),
        ("alert tcp $NOWHERE any -> any any (sid:1;)".into(), 11, "`$NOWHERE` is not set"),
        ("alert tcp $LOOP any -> any any (sid:1;)".into(), 11, "does a variable name itself"),
        ("alert tcp !any any -> any any (sid:1;)".into(), 11, "holds no address"),
        ("alert tcp any 80000 -> any any (sid:1;)".into(), 15, "expected a port"),
        ("alert tcp any 90:80 -> any any (sid:1;)".into(), 15, "ends before it begins"),
        ("alert tcp any any -> any any".into(), 29, "expected `(` and the options"),
        (rule(r#"content:"a"#), 47, "a `;` inside quotes"),
        (rule(r#"content:"a;b";"#), 41, "a `;` inside quotes"),
        (format!("{HEADER}(content:\"a sid:1"), 39, "no closing"),
        (rule(r#"content:"";"#), 40, "without bytes"),
        (rule(r#"content:"|4|";"#), 42, "second hexadecimal digit"),
        (rule(r#"content:"|4x|";"#), 42, "hexadecimal digits, found `x`"),
        (rule(r#"content:"|41";"#), 40, "no second `|`"),
        (rule(r#"content:"a\n";"#), 41, "behind `\\`"),
        (rule("content:a;"), 39, "text in quotes"),
        (rule("nocase;"), 31, "follows no `content`"),
        (rule(r#"content:"abc"; depth:2;"#), 46, "can never fit"),
        (rule(r#"content:"abc"; offset:1; within:5;"#), 56, "use one kind"),
        (rule(r#"content:"abc"; offset:-1;"#), 53, "from 0 to 65535"),
        (rule(r#"content:"abc"; offset:1; startswith;"#), 56, "take one out"),
        (rule(r#"content:!"abc"; fast_pattern;"#), 47, "cannot be looked for"),
        (rule(r#"content:"a"; fast_pattern; content:"b"; fast_pattern;"#), 71, "a second `fast_pattern`"),
        (rule(r#"content:"abc"; fast_pattern:2,2;"#), 59, "within 3 bytes"),
        (rule(r#"pcre:"abc";"#), 37, "expected `/pattern/flags`"),
        (rule(r#"pcre:"/a(b/";"#), 39, "unclosed group"),
        (rule(r#"pcre:"/[a/";"#), 38, "no `]`"),
        (rule(r#"pcre:"/a/j";"#), 40, "no flag `j`"),
        (rule(r#"pcre:"/a*/";"#), 38, "matches everywhere"),
        (rule(r#"pcre:"/a[^z]{600}b.{600}c/";"#), 38, "explodes"),
        (rule("flow:to_server,to_client;"), 46, "two directions"),
        (rule("flow:sideways;"), 36, "expected to_server"),
        (rule("dsize:4<>5;"), 37, "no number lies between"),
        (rule("flags:X;"), 37, "letters of"),
        (rule("flowbits:set;"), 40, "an operation and a name"),
        (rule("threshold:type limit, count 1;"), 41, "needs its type, track, count and seconds"),
        (rule("itype:8;"), 40, "are about ICMP"),
        (rule("nocase:1;"), 31, "follows no `content`"),
        (format!("{HEADER}(msg:\"x\";)"), 1, "has no `sid`"),
        (format!("{HEADER}(sid:0;)"), 35, "from 1 to 4294967295"),
        (format!("{HEADER}(sid:1;) x"), 39, "the end of the rule behind `)`"),
        (format!("{HEADER}(sid:1;"), 37, "found the end of the rule"),
        (format!("{HEADER}(content:\"a\"; sid:1;"), 50, "found the end of the rule"),
    ] {
        let Read { rules, faults, skipped } = of(&format!("\n# comment\n{text}\n"));
        assert_eq!((rules.len(), skipped.len()), (0, 0), "{text}");
        let [fault] = &faults[..] else { panic!("{text}: {faults:?}") };
        if (fault.line, fault.column) != (3, column) || !fault.problem.contains(part) {
            wrong.push(format!("{text}: {fault}, expected column {column}, {part}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_that_need_more_are_skipped_with_the_reason() {
    let rule = |options: &str| format!("{HEADER}({options} sid:1;)");
    for (text, column, part) in [
        ("alert http any any -> any any (sid:1;)".into(), 7, "application layer"),
        (rule(r#"http.uri; content:"a";"#), 31, "the keyword `http.uri` is not supported"),
        (rule(r#"contnt:"a";"#), 31, "did you mean `content`?"),
        (rule("byte_jump:1,0;"), 31, "the keyword `byte_jump`"),
        (rule("byte_test:2,>,len,3;"), 41, "a variable of `byte_extract`"),
        (rule("byte_test:2,>,1,3,relative,dce;"), 41, "`dce` of `byte_test`"),
        (rule(r#"pcre:"/(a)\1/";"#), 41, "backreferences"),
        (rule(r#"pcre:"/a(?=b)/";"#), 39, "look-around"),
        (rule(r#"pcre:"/a++b/";"#), 40, "possessive"),
        (rule(r#"pcre:"/(?>a)b/";"#), 38, "groups of this kind"),
        (rule(r#"pcre:"/abc/U";"#), 42, "part of an HTTP message"),
        (rule("flow:no_frag;"), 36, "fragments"),
    ] {
        let Read { rules, faults, skipped } = of(&text);
        assert_eq!((rules.len(), faults.len()), (0, 0), "{text}: {faults:?}");
        assert_eq!((skipped[0].line, skipped[0].column), (1, column), "{text}: {}", skipped[0]);
        assert!(skipped[0].problem.contains(part), "{text}: {}", skipped[0]);
    }
    // What is wrong counts before what is not supported.
    assert_eq!(of(&rule(r#"http.uri; content:"|4";"#)).faults.len(), 1);
}

#[test]
fn every_wrong_line_is_named_and_lines_may_be_continued() {
    let mut text = String::new();
    for sid in 1..=10_000 {
        text += &match sid {
            77 => format!("alert tcp any any -> any any (content:\"a\"; sid:{sid}\n"),
            5_000 => "alert tcp any any -> any any (content:\"a\"; sid:12;)\n".to_owned(),
            9_999 => "allert\n".to_owned(),
            _ => format!("alert tcp any any -> any any \\\n  (content:\"a{sid}\"; sid:{sid};)\n"),
        };
    }
    let Read { rules, faults, .. } = of(&text);
    assert_eq!(rules.len(), 9_997);
    let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 3);
    assert!(shown[0].starts_with("line 153, column 48: the value of `sid` has no `;`"), "{}", shown[0]);
    assert!(shown[1].starts_with("line 9998, column 44: sid 12 stands in line 23 already"), "{}", shown[1]);
    assert!(shown[2].starts_with("line 19995, column 1: expected an action"), "{}", shown[2]);
}

#[test]
fn a_rule_that_no_stream_can_decide_is_told() {
    let only = |options: &str| of(&format!("{HEADER}(flow:only_stream; {options} sid:1;)")).rules;
    for options in [r#"content:"a"; endswith;"#, r#"content:"a"; content:!"b";"#, r#"pcre:"/a$/";"#] {
        let wrong = RuleSet::new(&only(options), SearchEngine::Default).err().unwrap();
        assert!(wrong[0].1.contains("depends on where the stream ends"), "{wrong:?}");
    }
    assert!(RuleSet::new(&only(r#"content:"a"; content:!"b"; within:5;"#), SearchEngine::Default).is_ok());
}

#[test]
fn settings_tell_of_wrong_rules_and_of_skipped_ones() {
    let problem = |config: SignatureConfig| config.check().unwrap_err().to_string();
    assert!(problem(SignatureConfig::default()).contains("must hold at least one rule"));
    let wrong = problem(SignatureConfig::of(["alert tcp any any -> any any (sid:1;)", "alert x"]));
    assert!(wrong.contains("holds a wrong rule\nitem 2, line 1, column 7: expected a protocol"), "{wrong}");
    let mut config = SignatureConfig::of(["alert tcp any any -> any any (http.uri; sid:1;)"]);
    assert_eq!(config.check(), Ok(()));
    let warning = config.warnings().remove(0).problem;
    assert!(
        warning.contains("left out a rule\nitem 1, line 1, column 31: the keyword `http.uri`"),
        "{warning}"
    );
    config.variables = vec!["HOME_NET 10.0.0.300".into()];
    assert!(
        problem(config.clone()).contains("variable `HOME_NET`: expected an address"),
        "{}",
        problem(config.clone())
    );
    config.variables = vec!["HOME_NET 10.0.0.3".into(), "HOME_NET any".into()];
    assert!(problem(config.clone()).contains("sets `HOME_NET` twice"));
    config.variables = vec!["HOME_NET".into()];
    assert!(problem(config).contains("must be a name and a value"));
    let twice = problem(SignatureConfig::of([r#"alert udp any any -> any any (sid:7;)"#; 2]));
    assert!(twice.contains("sid 7 stands in item 1 of `rules`:1 already"), "{twice}");
}
