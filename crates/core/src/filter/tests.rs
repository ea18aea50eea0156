//! The grammar, the errors and the bounds; decisions are compared with tcpdump in `tests/filter`.

use netbricks_packet::build::ethernet;

use super::{Filter, FilterError};

fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> FilterError {
    Filter::parse(text).expect_err(text)
}

fn accepts(text: &str, frame: &[u8]) -> bool {
    filter(text).matches(frame, frame.len())
}

fn dns() -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"question").build().unwrap()
}

#[test]
fn a_text_without_words_accepts_every_frame() {
    for text in ["", " ", "\t\r\n"] {
        assert!(accepts(text, &[]) && accepts(text, &dns()));
        assert_eq!(filter(text).to_string(), text);
    }
}

#[test]
fn an_identifier_alone_takes_the_qualifiers_before_it() {
    assert!(accepts("udp port 80 or 53", &dns()));
    assert!(!accepts("tcp port 80 or 53", &dns()));
    assert!(accepts("src 10.0.0.9 or 10.0.0.1", &dns()));
    assert!(!accepts("src 10.0.0.9 or 10.0.0.2", &dns()));
    assert!(accepts("port (80 or (443 or 53))", &dns()));
}

#[test]
fn and_and_or_bind_equally_from_left_to_right() {
    assert!(!accepts("udp or tcp and tcp", &dns()));
    assert!(accepts("udp or (tcp and tcp)", &dns()));
    assert!(accepts("not tcp or tcp", &dns()));
}

#[test]
fn the_length_is_that_on_the_wire() {
    let frame = dns();
    assert!(filter("len = 1000 and greater 1000 and less 1000").matches(&frame, 1000));
    assert!(!filter("less 999").matches(&frame, 1000));
}

#[test]
fn a_load_beyond_the_frame_rejects_it_wherever_it_stands() {
    let frame = dns();
    for text in ["ether[1000] = 0", "not ether[1000] = 0", "ether[1000] = 0 or ip", "ether[47:4] = 0 or ip"] {
        assert!(!accepts(text, &frame[..50]), "{text}");
    }
    assert!(accepts("ip or ether[1000] = 0", &frame));
    assert!(!accepts("1 / (len - 50) = 1 or ip", &frame[..50]));
}

#[test]
fn a_chain_of_headers_that_leads_back_to_itself_ends() {
    let mut frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[0; 40]).build().unwrap();
    // An authentication header whose length leads to its own place, 20 bytes behind the start.
    frame[23] = 51;
    frame[34..36].copy_from_slice(&[51, 3]);
    assert!(!accepts("ip protochain 6", &frame));
    assert!(accepts("ip protochain 51", &frame));
}

#[test]
fn an_error_names_the_place_and_the_remedy() {
    let cases = [
        ("tcp prot 80", 4..8, "`prot`", "join conditions"),
        ("host example.org", 5..16, "`example.org`", "write the address"),
        ("net localnet", 4..12, "`localnet`", "10.1/16"),
        ("gateway snup", 0..7, "`gateway`", "ether host"),
        ("port 70000", 5..10, "`70000`", "65535"),
        ("tcp and", 7..7, "the end of the filter", "condition"),
        ("(tcp", 4..4, "the end of the filter", "close"),
        ("ip[0:3] = 1", 5..6, "`3`", "1, 2 or 4"),
        ("vlan 5000", 0..9, "`vlan 5000`", "4095"),
        ("net 10.1.2.3/8", 4..14, "`10.1.2.3/8`", "host bits"),
        ("udp port http", 9..13, "`http`", "another protocol"),
        ("tcp src 10.0.0.1", 8..16, "`10.0.0.1`", "tcp and host"),
        ("type mgt", 0..4, "`type`", "802.11"),
        ("inbound", 0..7, "`inbound`", "at the port"),
        ("tcp ; udp", 4..5, "`;`", "remove"),
        ("tcp ü", 4..6, "`ü`", "remove"),
        ("len / 0 = 1", 4..7, "`/ 0`", "another number"),
        ("5", 0..1, "`5`", "keyword"),
        ("tcp[13] &", 9..9, "the end of the filter", "one of them"),
        ("host 300.1.1.1", 5..14, "`300.1.1.1`", "255"),
        ("pppoes and vlan", 11..15, "`vlan`", "before `pppoes`"),
    ];
    for (text, range, found, help) in cases {
        let error = error(text);
        assert_eq!((error.range.clone(), error.found.as_str()), (range, found), "{text}");
        let shown = error.to_string();
        assert!(format!("{} {}", error.expected, error.help).contains(help), "{text}: {shown}");
        assert!(shown.contains(&error.expected) && shown.contains(found), "{text}: {shown}");
    }
}

#[test]
fn an_error_has_the_nearest_word() {
    let cases = [
        ("tcp prot 80", "port"),
        ("TCP", "tcp"),
        ("tpc", "tcp"),
        ("vlna 5", "vlan"),
        ("tcp[tcp-sny] = 1", "tcp-syn"),
        ("port htttp", "http"),
        ("proto osfp", "ospf"),
        ("ether proto loopbak", "loopback"),
        ("llc sabm", "sabme"),
    ];
    for (text, word) in cases {
        assert_eq!(error(text).nearest, Some(word), "{text}: {}", error(text));
    }
    assert_eq!(error("port qqqqqqqqqq").nearest, None);
}

#[test]
fn the_depth_of_nesting_is_bounded() {
    let nested = |depth: usize| format!("{}tcp{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Filter::parse(&nested(60)).is_ok());
    assert!(error(&nested(100)).expected.contains("nesting"));
    for deep in [
        "(".repeat(4096),
        "not ".repeat(1000) + "tcp",
        "!".repeat(4000),
        "- ".repeat(2000) + "1 = 1",
        "1 ^ ".repeat(1000) + "1 = 1",
        "ip[".repeat(1300),
        "port ".to_owned() + &"(".repeat(4000),
        "vlan ".to_owned() + &"(".repeat(4000),
        "1 = ".to_owned() + &"(".repeat(4000),
    ] {
        assert!(Filter::parse(&deep).is_err());
    }
}

#[test]
fn the_length_of_text_and_program_is_bounded() {
    assert!(Filter::parse(&" ".repeat(4096)).is_ok());
    assert_eq!(error(&" ".repeat(4097)).found, "4097 bytes");
    assert!(Filter::parse(&("port 1".to_owned() + &" or 1".repeat(500))).is_ok());
    assert!(error(&("port 1".to_owned() + &" or 1".repeat(800))).expected.contains("16384 operations"));
    assert!(Filter::parse(&("1".to_owned() + &"+1".repeat(2000) + " = 2001")).is_ok());
    assert!(Filter::parse(&("len".to_owned() + &" +len".repeat(700) + " = 1")).is_ok());
    assert!(error(&"geneve and ".repeat(6)).expected.contains("five"));
    let right = "len + (".repeat(20) + "len" + &")".repeat(20) + " = 1";
    assert!(error(&right).expected.contains("16 numbers"));
}

#[test]
fn a_clone_is_the_same_filter() {
    let filter = filter("udp port 53");
    let clone = filter.clone();
    assert_eq!(filter.to_string(), clone.to_string());
    assert!(clone.matches(&dns(), 50));
    assert!(format!("{clone:?}").contains("udp port 53"));
    assert!("udp port 53".parse::<Filter>().is_ok());
}
