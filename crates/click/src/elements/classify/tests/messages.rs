//! Messages on filters, as Click's own program tells them.

use crate::testing;

/// Filters, and what Click says of them.
const MESSAGES: &[(&str, &[&str])] = &[
    ("allow ip ttl > 300", &["pattern 0: warning: relation '> 300' is always false (range 0-255)"]),
    (
        "allow echo",
        &["pattern 0: '<none>  echo' is ambiguous; try 'port  echo', 'port  echo', 'icmp type  echo'"],
    ),
    ("allow src", &["pattern 0: partial directive"]),
    (
        "foo bar",
        &[
            "pattern 0: unknown slot ID 'foo'",
            "pattern 0: empty term near 'bar'",
            "pattern 0: missing expression",
            "pattern 0: garbage after expression at 'bar'",
        ],
    ),
    ("allow tcp ? udp", &["pattern 0: missing ':' in ternary expression"]),
    ("allow host 10", &["pattern 0: 'ip host': address missing"]),
    (
        "allow ip[2:9] 3",
        &[
            "pattern 0: LEN in '[POS:LEN]' out of range, should be between 1 and 4",
            "pattern 0: specify header field or 'port'",
        ],
    ),
    (
        "allow ip[2:3] 3",
        &[
            "pattern 0: field [2:3] does not fit in a single word",
            "pattern 0: specify header field or 'port'",
        ],
    ),
    ("7 tcp", &["pattern 0: slot '7' out of range"]),
    ("allow ip vers > 16", &["pattern 0: warning: relation '> 16' is always false (range 0-15)"]),
    ("allow src tcp", &["pattern 0: warning: 'src proto': 'src' or 'dst' ignored"]),
    (",allow -", &["empty pattern 0"]),
    ("allow icmp type syn", &["pattern 0: 'icmp type icmp syn' is meaningless; try 'tcp opt icmp syn'"]),
    ("allow not", &["pattern 0: missing expression after 'not'"]),
    ("allow tcp and", &["pattern 0: missing expression"]),
    (
        "allow ip[12:4] 0xffffffff",
        &[
            "pattern 0: 'ip[...]': value missing",
            "pattern 0: empty term near '0xffffffff'",
            "pattern 0: garbage after expression at '0xffffffff'",
        ],
    ),
    (
        "allow port > 80 mask 10.0.0.0",
        &["pattern 0: empty term near 'mask'", "pattern 0: garbage after expression at 'mask'"],
    ),
    ("allow src ip vers 4", &["pattern 0: warning: 'src ip vers': 'src' or 'dst' ignored"]),
    ("allow icmp type 300", &["pattern 0: 'icmp type': out of range, bound 255"]),
    (
        "allow src port 80 or dst 81 or 82",
        &["pattern 0: specify header field or 'port'", "pattern 0: specify header field or 'port'"],
    ),
    (
        "allow port =",
        &[
            "pattern 0: 'port': value missing",
            "pattern 0: empty term near '='",
            "pattern 0: garbage after expression at '='",
        ],
    ),
    (
        "allow port > foo",
        &[
            "pattern 0: dangling operator near 'foo'",
            "pattern 0: 'port': value missing",
            "pattern 0: empty term near 'foo'",
            "pattern 0: garbage after expression at 'foo'",
        ],
    ),
    ("allow not frag 3", &["pattern 0: 'ip frag': value not supported"]),
    ("allow ttl >= 0", &["pattern 0: warning: relation '>= 0' is always true (range 0-255)"]),
    ("allow ttl < 256", &["pattern 0: warning: relation '< 256' is always true (range 0-255)"]),
    ("allow ether host 1:2:3:4:5:6 & ff:ff:ff:0:0:0", &["pattern 0: partial directive"]),
    ("allow ether 10.0.0.1", &["pattern 0: partial directive"]),
    ("allow ip 1:2:3:4:5:6", &["pattern 0: partial directive"]),
    ("allow tcp opt 300", &["pattern 0: 'tcp opt': value 300 out of range"]),
    ("allow udp syn", &["pattern 0: '<none> udp syn' is meaningless; try 'tcp opt udp syn'"]),
    ("allow tcp opt syn != 3", &["pattern 0: specify header field or 'port'"]),
    ("allow tcp udp", &["pattern 0: transport protocol specified twice"]),
    ("allow tcp host port 3", &["pattern 0: type specified twice"]),
    ("-1 tcp", &["pattern 0: slot '-1' out of range"]),
    ("allow ip", &["pattern 0: partial directive"]),
    ("allow ip ip", &["pattern 0: partial directive", "pattern 0: partial directive"]),
    ("allow src dst port 80", &["pattern 0: 'src' or 'dst' specified twice"]),
    ("allow port & 0 = 3", &["pattern 0: zero mask ignored"]),
    ("allow host & 0.0.0.0 = 3", &["pattern 0: zero mask ignored", "pattern 0: 'ip host': address missing"]),
    ("allow port & 0x1ffff = 3", &["pattern 0: 'port': mask out of range, bound 0xFFFF"]),
    ("allow tcp[0", &["pattern 0: missing ']'", "pattern 0: specify header field or 'port'"]),
    ("allow tcp[x]", &["pattern 0: syntax error after '[', expected '[POS]' or '[POS:LEN]'"]),
    ("allow tcp[1:]", &["pattern 0: syntax error after '[', expected '[POS]' or '[POS:LEN]'"]),
    (
        "allow tcp[0,1] 4",
        &[
            "pattern 0: missing ']'",
            "pattern 0: specify header field or 'port'",
            "pattern 1: empty term near ']'",
            "pattern 1: missing expression",
            "pattern 1: garbage after expression at ']'",
        ],
    ),
    (
        "allow tcp[3:2] 4",
        &[
            "pattern 0: field [3:2] does not fit in a single word",
            "pattern 0: specify header field or 'port'",
        ],
    ),
    ("allow 80", &["pattern 0: specify header field or 'port'"]),
    ("allow tcp 80", &["pattern 0: specify header field or 'port'"]),
    ("allow & 3 4", &["pattern 0: specify header field or 'port'"]),
    ("allow igmp port 80", &["pattern 0: 'port': bad protocol 2"]),
    ("allow icmp port 80", &["pattern 0: 'port': bad protocol 1"]),
    ("allow tcp or", &["pattern 0: missing expression"]),
    ("allow or tcp", &["pattern 0: missing expression"]),
    ("allow ()", &["pattern 0: missing expression", "pattern 0: missing expression after '('"]),
    (
        "allow tcp opt syn|ack",
        &["pattern 0: empty term near '|'", "pattern 0: garbage after expression at '|'"],
    ),
    ("allow vers 4 & 3", &["pattern 0: partial directive"]),
];

#[test]
fn filters_have_clicks_messages() {
    for (filter, expected) in MESSAGES {
        let run = testing::build(&format!("i :: Idle -> c :: IPFilter({filter}) -> i; c[1] -> i"));
        let lines: Vec<&str> =
            run.errors.iter().filter(|line| line.starts_with("  ")).map(|line| line.trim()).collect();
        assert_eq!(&lines[..], *expected, "{filter}");
    }
}
