//! Flows: their fields, how long they stay, and how handlers show them.

use super::*;

const NAT: &str = "pattern 1.0.0.1 1024-65535# - - 0 1, drop";

#[test]
fn flows_go_out_and_their_answers_come_back() {
    for class in ["IPRewriter", "UDPRewriter"] {
        let rig = rig(&format!("{class}({NAT})"), 2, 2, "");
        rig.push(0, &udp((HOST, 30), (SERVER, 53), b"question"));
        assert_eq!(rig.came(0), "1.0.0.1:1024 > 20.0.0.9:53");
        rig.push(0, &tcp((OTHER, 30), (SERVER, 53), 2, [5, 6], &[], b"question"));
        assert_eq!(rig.came(0), "1.0.0.1:1025 > 20.0.0.9:53");
        rig.push(1, &udp((SERVER, 53), (OUTSIDE, 1024), b"answer"));
        assert_eq!(rig.came(1), "20.0.0.9:53 > 10.0.0.1:30");
        rig.push(1, &tcp((SERVER, 53), (OUTSIDE, 1025), 18, [5, 6], &[], b""));
        assert_eq!(rig.came(1), "20.0.0.9:53 > 10.0.0.2:30");
        rig.push(1, &udp((SERVER, 53), (OUTSIDE, 1026), b"nobody asked"));
        assert_eq!((rig.came(0), rig.came(1)), ("0 packets".into(), "0 packets".into()));
        assert_eq!((rig.read("rw.size"), rig.read("rw.table_size")), ("2".into(), "2".into()));
    }
}

#[test]
fn handlers_show_flows_as_click_does() {
    let rig = rig("IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, keep 1 0, pass 1, drop)", 4, 2, "");
    rig.push(0, &tcp((HOST, 30), (SERVER, 80), 2, [0, 0], &[], b""));
    rig.push(1, &udp((OTHER, 7), (SERVER, 9), b""));
    rig.push(2, &udp((OTHER, 8), (SERVER, 9), b""));
    rig.wait(1000);
    assert_eq!(
        rig.read("rw.tcp_table"),
        "(10.0.0.1, 30, 20.0.0.9, 80) => (1.0.0.1, 1024, 20.0.0.9, 80) [*0 1] i0 exp299\n\
         (20.0.0.9, 80, 1.0.0.1, 1024) => (20.0.0.9, 80, 10.0.0.1, 30) [0 *1] i0 exp299\n"
    );
    assert_eq!(
        rig.read("rw.udp_table"),
        "(10.0.0.2, 7, 20.0.0.9, 9) => (10.0.0.2, 7, 20.0.0.9, 9) [*1 0] i1 exp299\n\
         (20.0.0.9, 9, 10.0.0.2, 7) => (20.0.0.9, 9, 10.0.0.2, 7) [1 *0] i1 exp299\n"
    );
    assert_eq!(rig.read("rw.patterns"), "1.0.0.1 1024-65535 - - [1]\n<keep> [1]\n<nochange>\n<drop>\n");
    assert_eq!(rig.read("rw.pattern2"), "<nochange>\n");
    assert_eq!(rig.read("rw.tcp_lookup 10.0.0.1 30 20.0.0.9 80"), "1.0.0.1 1024 20.0.0.9 80");
    assert_eq!(rig.read("rw.tcp_lookup 10.0.0.1 31 20.0.0.9 80"), "");
    assert_eq!(
        rig.read("rw.tcp_lookup 10.0.0.1 x 20.0.0.9 99999"),
        "SPORT: parse error\nDPORT: overflow, range 0-65535"
    );
    assert_eq!(rig.read("rw.capacity"), "2147483647");
    assert_eq!(rig.write("rw.pattern0 foo"), "input spec 0: unknown specification");
    assert_eq!(rig.write("rw.pattern0 pattern 1.0.0.7 - - 5 0 1"), "");
    assert_eq!((rig.read("rw.tcp_table"), rig.read("rw.size")), (String::new(), "1".into()));
    assert_eq!(rig.read("rw.pattern0"), "1.0.0.7 - - 5\n");
    assert_eq!(rig.write("rw.clear"), "");
    assert_eq!((rig.read("rw.size"), rig.read("rw.nmappings")), ("0".into(), "0".into()));
}

#[test]
fn patterns_are_shown_as_click_does() {
    for (pattern, shown) in [
        ("1.0.0.1 1 - -", "1.0.0.1 1 - -"),
        ("1.0.0.1 1-65535 - -", "1.0.0.1 1-65535 - -"),
        ("1.0.0.1 5-9? 2.0.0.1 8", "1.0.0.1 5-9 2.0.0.1 8"),
        ("- - - -", "- - - -"),
        ("1.0.0.1 - 7", "1.0.0.1 7 - -"),
        ("1.0.0.1 -", "1.0.0.1 -"),
        ("1.0.0.1-1.0.255.255 -", "1.0.0.1-1.0.255.255 -"),
        ("1.0.0.1/24 -", "1.0.0.1-1.0.0.254 -"),
        ("1.0.0.1/8 2.0.0.1", "1.0.0.1-1.255.255.254 2.0.0.1"),
        ("1.0.0.5/31 -", "1.0.0.4-1.0.0.5 -"),
    ] {
        let rig = rig(&format!("IPRewriter(pattern {pattern} 0 0)"), 1, 1, "");
        assert_eq!(rig.read("rw.patterns"), format!("{shown}\n"), "{pattern}");
    }
}

#[test]
fn ports_of_their_own_are_kept_and_others_come_by_chance() {
    let rig = rig("UDPRewriter(pattern 1.0.0.1 1024-65534 - - 0 1, drop)", 2, 2, "");
    rig.push(0, &udp((HOST, 2000), (SERVER, 53), b""));
    assert_eq!(rig.came(0), "1.0.0.1:2000 > 20.0.0.9:53");
    rig.push(0, &udp((OTHER, 2000), (SERVER, 53), b""));
    let other = rig.came(0);
    assert!(other.starts_with("1.0.0.1:") && other != "1.0.0.1:2000 > 20.0.0.9:53", "{other}");
    // Another destination: the port is free there.
    rig.push(0, &udp((OTHER, 2000), (SERVER, 54), b""));
    assert_eq!(rig.came(0), "1.0.0.1:2000 > 20.0.0.9:54");
}

#[test]
fn a_range_without_free_ports_drops_until_a_flow_ends() {
    let rig =
        rig("UDPRewriter(pattern 1.0.0.1 1024-1026# - - 0 1, drop, TIMEOUT 5, REAP_INTERVAL 1)", 2, 2, "");
    for port in 1..=5 {
        rig.push(0, &udp((HOST, port), (SERVER, 53), b""));
    }
    assert_eq!((rig.take(0).len(), rig.read("rw.mapping_failures")), (3, "2".into()));
    rig.wait(7000);
    assert_eq!(rig.read("rw.size"), "0");
    rig.push(0, &udp((HOST, 9), (SERVER, 53), b""));
    assert_eq!(rig.came(0), "1.0.0.1:1024 > 20.0.0.9:53");
}

#[test]
fn a_full_set_keeps_guaranteed_flows_and_gives_up_others() {
    let others = "other :: UDPRewriter(pattern 1.0.0.3 5000-6000# - - 0 0, MAPPING_CAPACITY rw); Idle -> other -> Idle";
    let rig = rig(&format!("UDPRewriter({NAT}, MAPPING_CAPACITY 2, GUARANTEE 3)"), 2, 2, others);
    for port in 1..=3 {
        rig.push(0, &udp((HOST, port), (SERVER, 53), b""));
        rig.wait(100);
    }
    // The third found no place.
    assert_eq!(
        (rig.take(0).len(), rig.read("rw.size"), rig.read("rw.mapping_failures")),
        (2, "2".into(), "1".into())
    );
    assert_eq!(
        (rig.read("other.capacity"), rig.read("other.size"), rig.read("other.table_size")),
        ("2".into(), "2".into(), "0".into())
    );
    rig.wait(2850);
    rig.push(0, &udp((HOST, 4), (SERVER, 53), b""));
    assert_eq!(rig.came(0), "1.0.0.1:1027 > 20.0.0.9:53");
    rig.push(1, &udp((SERVER, 53), (OUTSIDE, 1024), b""));
    assert_eq!(rig.came(1), "0 packets");
    rig.push(1, &udp((SERVER, 53), (OUTSIDE, 1025), b""));
    assert_eq!(rig.came(1), "20.0.0.9:53 > 10.0.0.1:2");
    assert_eq!(rig.write("rw.capacity 1"), "");
    assert_eq!((rig.read("rw.size"), rig.read("rw.capacity")), ("1".into(), "1".into()));
    assert_eq!(rig.write("rw.capacity -1"), "");
    assert_eq!(rig.read("rw.size"), "0");
}

#[test]
fn connections_that_ended_expire_sooner() {
    let rig = rig(
        &format!("TCPRewriter({NAT}, TCP_DONE_TIMEOUT 2, TCP_NODATA_TIMEOUT 10, TIMEOUT 100, GUARANTEE 0)"),
        2,
        2,
        "",
    );
    let expiry =
        || rig.read("rw.table").lines().next().and_then(|line| line.rsplit("exp").next().map(str::to_owned));
    let out = |flags, data: &[u8]| rig.push(0, &tcp((HOST, 30), (SERVER, 80), flags, [0, 0], &[], data));
    let back =
        |flags, data: &[u8]| rig.push(1, &tcp((SERVER, 80), (OUTSIDE, 1024), flags, [0, 0], &[], data));
    out(2, b"");
    assert_eq!(expiry().as_deref(), Some("10"));
    out(16, b"data");
    assert_eq!(expiry().as_deref(), Some("10"));
    back(16, b"data");
    assert_eq!(expiry().as_deref(), Some("100"));
    out(17, b"");
    back(17, b"");
    assert_eq!(expiry().as_deref(), Some("2"));
    out(2, b"");
    assert_eq!(expiry().as_deref(), Some("100"));
    back(4, b"");
    assert_eq!(expiry().as_deref(), Some("2"));
}

#[test]
fn addresses_alone_are_rewritten_with_all_that_follows() {
    let source = rig("IPAddrRewriter(pattern 3.0.0.1-3.0.0.255# - 0 1)", 1, 2, "");
    source.push(0, &tcp((HOST, 30), (SERVER, 80), 2, [0, 0], &[], b"x"));
    assert_eq!(source.came(0), "3.0.0.1:30 > 20.0.0.9:80");
    source.push(0, &udp((HOST, 30), (OTHER, 80), b"x"));
    assert_eq!(source.came(0), "3.0.0.1:30 > 10.0.0.2:80");
    source.push(0, &udp((SERVER, 80), ([3, 0, 0, 1], 30), b"x"));
    assert_eq!(source.came(1), "20.0.0.9:80 > 10.0.0.1:30");
    assert_eq!(
        source.read("rw.table"),
        "10.0.0.1 => 3.0.0.1 [*0 1] i0 exp7200\n0.0.0.0 => 0.0.0.0 [0 *1] i0 exp7200\n"
    );
    let both = rig("IPAddrPairRewriter(pattern 3.0.0.1-3.0.0.255# - 0 1)", 1, 2, "");
    both.push(0, &echo(HOST, SERVER, true, 5));
    both.push(0, &echo(HOST, OTHER, true, 5));
    both.push(0, &echo(SERVER, [3, 0, 0, 1], false, 5));
    let came: Vec<String> = both.take(0).iter().map(|packet| show(packet)).collect();
    assert_eq!(came, ["3.0.0.1 > 20.0.0.9 echo 5", "3.0.0.2 > 10.0.0.2 echo 5"]);
    assert_eq!(both.came(1), "20.0.0.9 > 10.0.0.1 echo 5");
    assert!(
        both.read("rw.table").starts_with("(10.0.0.1, 20.0.0.9) => (3.0.0.1, 20.0.0.9) [*0 1] i0 exp7200\n")
    );
}

#[test]
fn named_patterns_and_mappers_choose() {
    let named = rig("TCPRewriter(pattern pat 0 0)", 1, 1, "IPRewriterPatterns(pat 1.0.0.1 1024-65535# - -)");
    assert_eq!(named.read("rw.patterns"), "1.0.0.1 1024-65535 - -\n");
    let mapped = |others: &str| {
        let rig = rig("IPRewriter(r)", 1, 3, others);
        let mut outputs = Vec::new();
        for round in 0..2 {
            for host in 1..=60 {
                rig.push(0, &udp(([10, 0, 0, host], 5 + round), (SERVER, 53), b""));
                outputs.extend((0..3).filter(|output| !rig.take(*output).is_empty()));
            }
        }
        outputs
    };
    let turns = mapped("r :: RoundRobinIPMapper(- - - - 0 0, - - - - 1 0, - - - - 2 0)");
    assert_eq!(turns[..6], [0, 1, 2, 0, 1, 2]);
    let hashed = mapped("r :: SourceIPHashMapper(50 1, - - - - 0 0 1, - - - - 1 0 2, - - - - 2 0 3)");
    assert_eq!(hashed[..60], hashed[60..]);
    let share = |output| hashed.iter().filter(|other| **other == output).count();
    assert!((0..3).all(|output| share(output) > 10), "{:?}", (share(0), share(1), share(2)));
    // Without the third server, flows of the others stay where they are.
    let fewer = mapped("r :: SourceIPHashMapper(50 1, - - - - 0 0 1, - - - - 1 0 2)");
    assert!(hashed.iter().zip(&fewer).all(|(before, now)| *before == 2 || before == now));
}

#[test]
fn a_flow_that_maps_to_itself_stays_one() {
    let rig = rig("UDPRewriter(pattern 1.0.0.2 1024-65534# - - 0 1, drop, MAPPING_CAPACITY 3)", 2, 2, "");
    let own = ([1, 0, 0, 2], 1024);
    rig.push(0, &udp(own, own, b""));
    assert_eq!(rig.came(0), "1.0.0.2:1024 > 1.0.0.2:1024");
    rig.push(0, &udp(([1, 0, 0, 2], 1), own, b""));
    assert_eq!(rig.came(0), "1.0.0.2:1025 > 1.0.0.2:1024");
    rig.push(0, &udp(own, own, b""));
    assert_eq!((rig.came(0), rig.came(1)), ("0 packets".into(), "1.0.0.2:1024 > 1.0.0.2:1024".into()));
    rig.wait(400_000);
    assert_eq!(rig.write("rw.clear"), "");
    assert_eq!((rig.read("rw.size"), rig.read("rw.table")), ("0".into(), String::new()));
}

#[test]
fn the_table_grows_with_its_flows() {
    let rig = rig("UDPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)", 2, 2, "");
    for port in 1..=5000 {
        rig.push(0, &udp((HOST, port), (SERVER, 53), b""));
        assert_eq!(rig.take(0).len(), 1);
    }
    for port in 1..=5000 {
        rig.push(1, &udp((SERVER, 53), (OUTSIDE, 1023 + port), b""));
        assert_eq!(rig.came(1), format!("20.0.0.9:53 > 10.0.0.1:{port}"));
    }
    assert_eq!(rig.read("rw.size"), "5000");
}
