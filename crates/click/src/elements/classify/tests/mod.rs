//! Tests of classifiers and lookups. What is expected is what Click's own program answers.

mod messages;

use crate::testing::{self, Run};

/// Runs a configuration, and reads the counts of the counters `c0`, `c1` and so on.
fn counts(text: &str, counters: usize) -> Vec<String> {
    let run = testing::run(text);
    assert_eq!(run.errors, Vec::<String>::new(), "{text}");
    (0..counters).map(|number| run.read(&format!("c{number}.count"))).collect()
}

fn program(class: &str, patterns: &str, outputs: usize) -> String {
    let more: String = (1..outputs).map(|output| format!("; c[{output}] -> i")).collect();
    let run = testing::build(&format!("i :: Idle -> c :: {class}({patterns}) -> i{more}"));
    run.read("c.program")
}

/// An IPv4 header without options, and what is behind, in hexadecimal.
fn packet(protocol: u8, source: &str, destination: &str, behind: &str) -> String {
    let length = 20 + behind.len() / 2;
    format!("4500{length:04x}00000000ff{protocol:02x}0000{source}{destination}{behind}")
}

#[test]
fn programs_are_those_that_click_shows() {
    let ports =
        program("IPClassifier", "dst port 7777, dst port 8888, dst port 7000, icmp type echo, icmp, -", 6);
    assert_eq!(
        ports,
        " 0 264/00060000%00ff0000  yes->step 2  no->step 1\n \
          1 264/00110000%00ff0000  yes->step 2  no->step 6\n \
          2 260/00000000%00001fff  yes->step 3  no->[5]\n \
          3 512/00001e61%0000ffff  yes->[0]  no->step 4\n \
          4 512/000022b8%0000ffff  yes->[1]  no->step 5\n \
          5 512/00001b58%0000ffff  yes->[2]  no->[5]\n \
          6 264/00010000%00ff0000  yes->step 7  no->[5]\n \
          7 260/00000000%00001fff  yes->step 8  no->[4]\n \
          8 512/08000000%ff000000  yes->[3]  no->[4]\n\
         safe length 516\nalignment offset 0\n"
    );
    assert_eq!(
        program("IPFilter", "allow (tcp and !(syn and !ack)) or (tcpudp port >= 1024)", 1),
        " 0 264/00060000%00ff0000  yes->step 1  no->step 3\n \
          1 260/00000000%00001fff  yes->step 2  no->[0]\n \
          2 524/00020000%00120000  yes->step 5  no->[0]\n \
          3 264/00110000%00ff0000  yes->step 4  no->[X]\n \
          4 260/00000000%00001fff  yes->step 5  no->[X]\n \
          5 512/00000000%fc00fc00  yes->[X]  no->[0]  short->yes\n\
         safe length 526\nalignment offset 0\n"
    );
    assert_eq!(
        program("IPFilter", "allow true, allow tcp", 1),
        "all->[0]\nsafe length 0\nalignment offset 0\n"
    );
    assert_eq!(
        program("Classifier", "1/01, -", 2),
        " 0   0/00010000%00ff0000  yes->[0]  no->[1]\nsafe length 2\nalignment offset 0\n"
    );
}

#[test]
fn filters_choose_by_headers() {
    let (here, there) = ("0a000001", "c0a80107");
    let packets = [
        (packet(6, here, there, "04000050000000000000000050020000"), "tcp to 80, syn"),
        (packet(6, there, here, "00500400000000000000000050100000"), "tcp from 80, ack"),
        (packet(17, here, there, "0035c00000080000"), "udp from 53"),
        (packet(17, here, there, "00"), "udp, cut"),
        (packet(1, here, there, "0800000000000000"), "echo"),
    ];
    let cases = [
        ("dst tcp port 80", [1, 0, 0, 0, 0]),
        ("port 80", [1, 1, 0, 0, 0]),
        ("src 10/8", [1, 0, 1, 1, 1]),
        ("host 192.168.1.7 and not tcp", [0, 0, 1, 1, 1]),
        ("udp port != 53", [0, 0, 0, 0, 0]),
        ("udp src port != 54", [0, 0, 1, 0, 0]),
        ("not (udp src port 53)", [1, 1, 0, 1, 1]),
        ("icmp type echo", [0, 0, 0, 0, 1]),
        ("syn or icmp", [1, 0, 0, 0, 1]),
        ("tcp ? ack : udp ? src port 53 : true", [0, 1, 1, 0, 1]),
        ("src port > 1023", [1, 0, 0, 0, 0]),
        ("transp[1] & 0x10 = 0x10", [0, 1, 1, 0, 0]),
        ("ip[12:4] = 0x0a000001", [1, 0, 1, 1, 1]),
        ("ip ttl >= 255 and ip hl 5 and unfrag", [1, 1, 1, 1, 1]),
    ];
    for (filter, expected) in cases {
        for ((bytes, shown), expected) in packets.iter().zip(expected) {
            let text = format!(
                "InfiniteSource(DATA \\<{bytes}>, LIMIT 1) -> MarkIPHeader -> f :: IPFilter(0 {filter}, 1 -)
                 -> c0 :: Counter -> d :: Discard; f[1] -> c1 :: Counter -> d"
            );
            let other = 1 - expected;
            assert_eq!(counts(&text, 2), [expected.to_string(), other.to_string()], "{filter} {shown}");
        }
    }
}

#[test]
fn deep_filters_are_refused() {
    for (depth, good) in [(100, true), (5_000, false)] {
        for (open, close) in [("(", ")"), ("not (", ")"), ("tcp ? (", ") : udp")] {
            let text = format!("{}tcp{}", open.repeat(depth), close.repeat(depth));
            let run = testing::build(&format!("i :: Idle -> c :: IPFilter(allow {text}) -> i"));
            let refused = run.errors.iter().any(|line| line.contains("nested too deeply"));
            assert_eq!((run.errors.is_empty(), refused), (good, !good), "{open} {:?}", run.errors);
        }
    }
}

#[test]
fn patterns_change_while_packets_pass() {
    let run = testing::build(
        "i :: Idle -> c :: IPClassifier(tcp, udp) -> i; c[1] -> i; s :: Idle -> d :: IPFilter(allow tcp) -> i",
    );
    assert_eq!(run.read("c.pattern1"), "udp");
    assert_eq!(run.write("c.pattern1 icmp type 8"), "");
    assert_eq!(run.read("c.config").trim(), "tcp, icmp type 8");
    let problem = run.write("c.pattern0 foo");
    assert!(problem.contains("pattern 0: empty term near 'foo'"), "{problem}");
    assert_eq!(run.read("c.pattern0"), "tcp");
    assert_eq!(run.write("d.config deny all"), "");
    assert_eq!(run.read("d.program"), "all->[2147483647]\nsafe length 0\nalignment offset 0\n");
}

#[test]
fn classifiers_need_a_pattern_for_each_output() {
    for class in ["Classifier", "IPClassifier"] {
        let run = testing::build(&format!("i :: Idle -> c :: {class}(-) -> i; c[1] -> i"));
        assert!(run.errors.iter().any(|line| line.ends_with("need 2 arguments, one per output port")));
        let run = testing::build(&format!("i :: Idle -> c :: {class}(-, -) -> i; c[1] -> i"));
        assert!(run.errors.iter().any(|line| line.ends_with("warning: output 1 matches no packets")));
    }
}

#[test]
fn classifiers_read_bytes_and_masks() {
    let cases = [
        ("0/4500", true),
        ("0/45 9/06", true),
        ("0/45 !9/06", false),
        ("0/4?", true),
        ("0/f5%0f", true),
        ("0/f5%0fff", false),
        ("9/11", false),
        ("!9/11", true),
        ("30/00", false),
        ("!30/00", true),
    ];
    let bytes = packet(6, "0a000001", "0a000002", "");
    for (pattern, expected) in cases {
        let text = format!(
            "InfiniteSource(DATA \\<{bytes}>, LIMIT 2) -> f :: Classifier({pattern}, -)
             -> c0 :: Counter -> d :: Discard; f[1] -> c1 :: Counter -> d"
        );
        if pattern == "0/f5%0fff" {
            let errors = testing::build(&text).errors;
            assert!(errors.iter().any(|line| line.ends_with("pattern 0: mask has too many hex digits")));
            continue;
        }
        let expected = if expected { ["2", "0"] } else { ["0", "2"] };
        assert_eq!(counts(&text, 2), expected, "{pattern}");
    }
    for (pattern, message) in [
        ("a", "expected a digit"),
        ("1", "expected '/'"),
        ("1/0", "value has less than 2 hex digits"),
        ("1/012%fff", "value has odd number of hex digits"),
        ("1/01%f", "mask has too few hex digits"),
    ] {
        let run = testing::build(&format!("i :: Idle -> Classifier({pattern}) -> i"));
        assert!(run.errors.iter().any(|line| line.trim() == format!("pattern 0: {message}")), "{pattern}");
    }
}

#[test]
fn many_rules_answer_as_few_do() {
    // Enough rules for a table; each packet meets one of them.
    let rules: Vec<String> = (0..200)
        .map(|port| format!("{} udp dst port {} and src 10/8 and ip ttl 255", port % 2, 2 * port))
        .collect();
    for (port, expected) in [(2, ["0", "3"]), (4, ["3", "0"]), (5, ["0", "0"]), (398, ["0", "3"])] {
        let bytes = packet(17, "0a000001", "0a000002", &format!("0000{port:04x}00080000"));
        let text = format!(
            "InfiniteSource(DATA \\<{bytes}>, LIMIT 3, BURST 3) -> MarkIPHeader -> f :: IPFilter({})
             -> c0 :: Counter -> d :: Discard; f[1] -> c1 :: Counter -> d",
            rules.join(", ")
        );
        assert_eq!(counts(&text, 2), expected, "{port}");
    }
}

#[test]
fn hash_switch_sums_bytes() {
    for (outputs, bytes, expected) in
        [(2, "0102", 1), (3, "0102", 0), (3, "0202", 1), (4, "1300", 2), (3, "01", 0)]
    {
        let more: String =
            (0..outputs).map(|output| format!("; h[{output}] -> c{output} :: Counter -> d")).collect();
        let text =
            format!("d :: Discard; InfiniteSource(DATA \\<{bytes}>, LIMIT 1) -> h :: HashSwitch(0, 2){more}");
        let counts = counts(&text, outputs);
        assert_eq!(counts.iter().position(|count| count == "1"), Some(expected), "{bytes} {outputs}");
    }
    let run = testing::build("i :: Idle -> HashSwitch(0, 0) -> i");
    assert!(run.errors.iter().any(|line| line.trim() == "length must be > 0"));
}

#[test]
fn regular_expressions_choose_outputs() {
    for (data, expected) in [
        ("GET /index", ["1", "0", "0"]),
        ("xx POST", ["0", "1", "0"]),
        ("xGET POST", ["0", "1", "0"]),
        ("", ["0", "0", "1"]),
    ] {
        let text = format!(
            "d :: Discard; InfiniteSource(DATA \"{data}\", LIMIT 1)
             -> r :: RegexClassifier(\"^GET\", \"(POST|PUT)\")
             -> c0 :: Counter -> d; r[1] -> c1 :: Counter -> d; r[2] -> c2 :: Counter -> d"
        );
        assert_eq!(counts(&text, 3), expected, "{data}");
    }
    let run = testing::build("i :: Idle -> RegexClassifier(\"(\") -> i");
    assert!(
        run.errors.iter().any(|line| line.contains("pattern 0: error: unclosed group")),
        "{:?}",
        run.errors
    );
}

const LOOKUPS: [&str; 5] =
    ["LinearIPLookup", "SortedIPLookup", "RadixIPLookup", "DirectIPLookup", "RangeIPLookup"];

fn lookup(class: &str, routes: &str) -> Run {
    testing::build(&format!("i :: Idle -> r :: {class}({routes}) -> i; r[1] -> i; r[2] -> i"))
}

#[test]
fn routes_come_and_go() {
    for class in LOOKUPS {
        let run = lookup(class, "18.26/16 1.0.0.1 0, 0/0 5.5.5.5 2");
        assert_eq!(run.read("r.lookup 18.26.4.9"), "0 1.0.0.1", "{class}");
        assert_eq!(run.read("r.lookup 1.1.1.1"), "2 5.5.5.5");
        assert_eq!(run.read("r.lookup foo"), "expected IP address");
        assert_eq!(run.write("r.add 18.26.0/17 1"), "");
        assert_eq!(run.read("r.lookup 18.26.4.9"), "1");
        for (command, answer) in [
            ("add 18.26.0/17 2.2.2.2 2", "conflict with existing route '18.26.0.0/17 - 1'"),
            ("add bad", "expected 'ADDR/MASK [GATEWAY] OUTPUT'"),
            ("remove bad", "expected 'ADDR/MASK [GATEWAY OUTPUT]'"),
            ("remove 14/8", "route '14.0.0.0/8 - -1' not found"),
            ("remove 18.26/16 9.9.9.9 0", "route '18.26.0.0/16 9.9.9.9 0' not found"),
            ("add 14/8 7", "bad OUTPUT"),
            ("set 18.26.0/17 3.3.3.3 2", ""),
            ("ctrl remove 18.26/16\nadd 20/8 1\nbogus", "bad command 'bogus'"),
        ] {
            assert_eq!(run.write(&format!("r.{command}")), answer, "{class} {command}");
        }
        assert_eq!(run.read("r.lookup 18.26.4.9"), "2 3.3.3.3");
        assert_eq!(run.read("r.lookup 18.26.200.9"), "0 1.0.0.1", "a transaction that failed left nothing");
        assert_eq!(run.read("r.lookup 20.0.0.1"), "2 5.5.5.5");
        assert_eq!(run.write("r.ctrl remove 18.26.0/17\nadd 20/8 1"), "");
        assert_eq!(run.read("r.lookup 18.26.4.9"), "0 1.0.0.1");
        assert_eq!(run.read("r.lookup 20.0.0.1"), "1");
        assert_eq!(run.read("r.table").lines().count(), 3);
    }
}

#[test]
fn tables_of_many_routes_answer_as_each_other() {
    let runs = LOOKUPS.map(|class| lookup(class, ""));
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for _ in 0..300 {
        let length = [8, 12, 16, 20, 24, 28, 32][random() as usize % 7];
        let octets = [10, random() % 4, random() % 4, random() % 8];
        let address = octets.map(|octet| octet.to_string()).join(".");
        let command = ["add", "set", "remove", "add"][random() as usize % 4];
        let port = if command == "remove" { String::new() } else { (random() % 3).to_string() };
        let answers = runs.each_ref().map(|run| run.write(&format!("r.{command} {address}/{length} {port}")));
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let asked = format!("r.lookup 10.{}.{}.{}", random() % 4, random() % 4, random() % 8);
        let answers = runs.each_ref().map(|run| run.read(&asked));
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{asked} {answers:?}");
    }
}

#[test]
fn tables_show_their_routes() {
    let run = lookup("RadixIPLookup", "10/8 9.9.9.9 1, 192.168.100.0/24 192.168.100.1 0, 10.0.0.1 2");
    assert_eq!(
        run.read("r.table"),
        "10.0.0.0/8\t\t9.9.9.9\t\t1\n192.168.100.0/24\t192.168.100.1\t0\n10.0.0.1/32\t\t-\t\t2\n"
    );
    assert_eq!(run.write("r.remove 10/8"), "");
    assert_eq!(run.write("r.add 11/8 0"), "");
    assert!(run.read("r.table").starts_with("11.0.0.0/8\t\t-\t\t0\n"));
    assert_eq!(run.write("r.flush"), "");
    assert_eq!(run.read("r.table"), "");
    let run = lookup("LinearIPLookup", "10.0.5.0/255.0.255.0 1");
    assert_eq!(run.read("r.lookup 10.77.5.9"), "1");
    assert_eq!(run.read("r.lookup 10.77.6.9"), "-1");
}

#[test]
fn routes_are_checked() {
    let cases = [
        ("RadixIPLookup", "foo", "argument 1 should be 'ADDR/MASK [GATEWAY] OUTPUT'"),
        ("RadixIPLookup", "10/8 7", "argument 1 bad OUTPUT"),
        ("LinearIPLookup", "10/8 1, 10/8 2", "warning: 1 route replaced by later versions"),
        (
            "SortedIPLookup",
            "10/8 1",
            "warning: SortedIPLookup is deprecated; use LinearIPLookup or RadixIPLookup instead",
        ),
    ];
    for (class, routes, message) in cases {
        let run = lookup(class, routes);
        assert!(run.errors.iter().any(|line| line.trim() == message), "{class} {:?}", run.errors);
    }
    assert!(lookup("StaticIPLookup", "10/8 1").write("r.add 11/8 1").contains("no 'r.add'"));
}

#[test]
fn packets_take_their_route() {
    let bytes = packet(17, "0a000001", "c0a80107", "");
    let text = |class: &str, routes: &str| {
        format!(
            "d :: Discard; InfiniteSource(DATA \\<{bytes}>, LIMIT 3) -> GetIPAddress(16) -> r :: {class}({routes})
             -> c0 :: Counter -> d; r[1] -> c1 :: Counter -> p :: Print(X, CONTENTS false) -> d"
        )
    };
    for class in LOOKUPS.iter().filter(|class| **class != "SortedIPLookup") {
        assert_eq!(counts(&text(class, "192.168/16 1.2.3.4 1, 0/0 0"), 2), ["0", "3"], "{class}");
    }
    for (class, message) in [
        ("RadixIPLookup", Some("IPRouteTable: no route for 192.168.1.7")),
        ("LinearIPLookup", Some("LinearIPLookup: no route for 192.168.1.7")),
        ("SortedIPLookup", Some("SortedIPLookup: no gw for 701a8c0")),
        ("DirectIPLookup", None),
    ] {
        let run = testing::run(&text(class, "10/8 1"));
        assert_eq!(run.said(), message.map_or(Vec::new(), |message| vec![message; 3]), "{class}");
    }
}
