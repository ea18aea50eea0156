//! Errors of configurations, in Click's words.

use crate::testing::build;

fn errors(declaration: &str, inputs: usize) -> Vec<String> {
    let mut text = format!("i :: Idle; x :: {declaration};");
    for input in 0..inputs {
        text += &format!("Idle -> [{input}]x;");
    }
    text += "x -> i;";
    build(&text)
        .errors
        .into_iter()
        .filter(|line| line.starts_with("  "))
        .map(|line| line[2..].to_owned())
        .collect()
}

fn alone(declaration: &str) -> Vec<String> {
    let lines = build(declaration).errors;
    lines.into_iter().filter(|line| line.starts_with("  ")).map(|line| line[2..].to_owned()).collect()
}

#[test]
fn specifications_of_inputs_have_clicks_faults() {
    for (spec, fault) in [
        ("pass 3", "output port out of range"),
        ("pass x", "syntax error, expected 'nochange [OUTPUT]'"),
        ("keep", "bad forward port"),
        ("keep 0", "bad forward port"),
        ("keep 0 7", "output port out of range"),
        ("keep 0 -1", "output port out of range"),
        ("drop 3", "syntax error, expected 'drop'"),
        ("i", "element is not an IPMapper"),
        ("i 3", "syntax error, expected element name"),
        ("foo", "unknown specification"),
        ("\"\"", "empty argument"),
        ("pattern 1", "syntax error"),
        ("pattern xx 0 0", "no such pattern 'xx'"),
        ("pattern 1 2 3 4 5 0 0", "syntax error"),
        ("pattern - - - - 0 3", "output port out of range"),
        ("pattern - - - - a 3", "bad forward port"),
        ("pattern - - - - 1 a", "bad reply port"),
        ("pattern 1.0.0.x - 0 0", "bad source address"),
        ("pattern 1.255.0.0-1.0.255.255 - 0 0", "bad source address"),
        ("pattern 1.0.0.1 1x - - 0 0", "bad source port"),
        ("pattern 1.0.0.0 456-19 - - 0 0", "bad source port"),
        ("pattern 1.0.0.0 456-65536 - - 0 0", "bad source port"),
        ("pattern - - 1.2.3.4/3 - 0 0", "bad destination address"),
        ("pattern - - - x 0 0", "bad destination port"),
    ] {
        for class in ["IPRewriter", "TCPRewriter", "UDPRewriter", "IPAddrRewriter"] {
            assert_eq!(errors(&format!("{class}({spec})"), 1), [format!("input spec 0: {fault}")], "{spec}");
        }
    }
}

#[test]
fn arguments_have_clicks_faults() {
    for (declaration, fault) in [
        ("TCPRewriter(pass, pass)", "need 1 arguments, one per input port"),
        ("TCPRewriter(drop, FOO 3)", "need 1 arguments, one per input port"),
        ("TCPRewriter(drop, MAPPING_CAPACITY xx)", "bad MAPPING_CAPACITY"),
        ("TCPRewriter(drop, MAPPING_CAPACITY i)", "bad MAPPING_CAPACITY"),
        ("TCPRewriter(drop, TIMEOUT -3, CAPACITY u)", "TIMEOUT: parse error"),
        ("TCPRewriter(drop, TCP_DONE_TIMEOUT 10000000000)", "TCP_DONE_TIMEOUT: out of range"),
        ("IPRewriter(drop, REPLY_ANNO XX, GUARANTEE a)", "REPLY_ANNO: parse error"),
        ("IPAddrRewriter(drop, DST_ANNO false)", "need 1 arguments, one per input port"),
        ("FTPPortMapper(i, i, 0)", "CONTROL_REWRITER: element type mismatch, expected TCPRewriter"),
        ("FTPPortMapper(y, y, 0)", "CONTROL_REWRITER: does not name an element"),
        ("ICMPRewriter()", "MAPS: required argument missing"),
    ] {
        let faults = errors(declaration, 1);
        assert_eq!(faults.first().map(String::as_str), Some(fault), "{declaration}");
    }
    assert_eq!(errors("ICMPRewriter(foo)", 1), ["foo not an IP rewriter", "no IP rewriters supplied"]);
    let maps = "ICMPRewriter(i q q:x q:3); q :: TCPRewriter(drop); Idle -> q -> Idle";
    assert_eq!(
        errors(maps, 1),
        ["i not an IP rewriter", "q:x not an IP rewriter", "q:3 port offset requires more than 1 output"]
    );
    let input = "FTPPortMapper(q, q, 99); q :: TCPRewriter(drop); Idle -> q -> Idle";
    assert_eq!(errors(input, 1), ["DATA_REWRITER_INPUT out of range"]);
    assert!(errors("TCPRewriter(drop, TIMEOUT 3.6, CAPACITY 8)", 1).is_empty());
    assert_eq!(errors("TCPRewriter(pass, REAP_TIME 3)", 1), ["REAP_TIME: warning: argument deprecated"]);
}

#[test]
fn patterns_and_mappers_have_clicks_faults() {
    for (declaration, faults) in [
        ("IPRewriterPatterns(a - - - -, a - - - -)", &["pattern 'a' already defined"][..]),
        ("IPRewriterPatterns(b, c 1.2.3.4 - x)", &["syntax error", "bad source port"]),
        ("RoundRobinIPMapper()", &["no patterns given"]),
        ("RoundRobinIPMapper(- - - - 0 0, 1 2)", &["syntax error"]),
        ("RoundRobinIPMapper(- - - - 0 9)", &["warning: only one pattern given"]),
        ("SourceIPHashMapper()", &["no hash seed given"]),
        ("SourceIPHashMapper(1 2)", &["no patterns given"]),
        ("SourceIPHashMapper(0 2, - - - - 0 9 1, - - - - 0 9 2)", &["number of nodes must be an integer"]),
        ("SourceIPHashMapper(1 x, - - - - 0 9 1, - - - - 0 9 2)", &["hash seed must be an integer"]),
        ("SourceIPHashMapper(1, - - - - 0 9 1, - - - - 0 9 2)", &["requires 2 config params: numnodes seed"]),
        ("SourceIPHashMapper(1 2, - - - - 0 9, 1)", &["bad forward port", "bad server ID in pattern spec"]),
    ] {
        assert_eq!(alone(declaration), faults, "{declaration}");
    }
    let text = "r :: RoundRobinIPMapper(- - - - 0 9, - - - - 7 0); q :: TCPRewriter(r); Idle -> q -> Idle;";
    assert_eq!(
        alone(text),
        [
            "input spec 0: output port out of range in r :: RoundRobinIPMapper pattern 0",
            "input spec 0: output port out of range in r :: RoundRobinIPMapper pattern 1"
        ]
    );
}

#[test]
fn control_packets_are_to_come_to_their_rewriter() {
    let text = |middle: &str| {
        format!(
            "q :: TCPRewriter(drop); q2 :: TCPRewriter(drop); Idle -> FTPPortMapper(q, q, 0) -> {middle};
             Idle -> q2 -> Idle;"
        )
    };
    assert!(alone(&text("Null -> q -> Idle")).is_empty());
    let warnings = alone(&text("i :: Idle; Idle -> q -> i"));
    assert_eq!(warnings, ["warning: control packet rewriter 'q :: TCPRewriter' is not downstream"]);
}
