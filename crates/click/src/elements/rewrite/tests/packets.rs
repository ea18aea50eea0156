//! Single packets: echoes, errors, FTP's commands, sequence numbers, annotations.

use super::*;

#[test]
fn echoes_get_other_identifiers_and_replies_come_back() {
    let rig = rig("ICMPPingRewriter(pattern 2.0.0.2 - 0-65535# 0 1, drop)", 2, 2, "");
    rig.push(0, &echo(HOST, SERVER, true, 10_230));
    rig.push(0, &echo(OTHER, SERVER, true, 0));
    let came: Vec<String> = rig.take(0).iter().map(|packet| show(packet)).collect();
    assert_eq!(came, ["2.0.0.2 > 20.0.0.9 echo 0", "2.0.0.2 > 20.0.0.9 echo 1"]);
    rig.push(1, &echo(SERVER, [2, 0, 0, 2], false, 1));
    assert_eq!(rig.came(1), "20.0.0.9 > 10.0.0.2 echo 0");
    // Nobody asked for this one.
    rig.push(1, &echo(SERVER, [2, 0, 0, 2], false, 2));
    rig.push(0, &echo(SERVER, [2, 0, 0, 2], false, 2));
    assert_eq!((rig.came(0), rig.came(1)), ("0 packets".into(), "0 packets".into()));
    assert!(
        rig.read("rw.table")
            .starts_with("(10.0.0.1, 20.0.0.9, 10230) => (2.0.0.2, 20.0.0.9, 0) [*0 1] i0 exp300\n")
    );
}

#[test]
fn echoes_of_several_hosts_never_share_an_identifier() {
    let rig = rig("ICMPPingRewriter(pattern 2.0.0.2 - 5-8# 0 1, drop)", 2, 2, "");
    for identifier in [100, 200, 300, 400] {
        rig.push(0, &echo(HOST, SERVER, true, identifier));
    }
    let came: Vec<String> = rig.take(0).iter().map(|packet| show(packet)).collect();
    assert_eq!(came, [5, 6, 7, 8].map(|identifier| format!("2.0.0.2 > 20.0.0.9 echo {identifier}")));
    rig.push(0, &echo(OTHER, SERVER, true, 5));
    assert_eq!((rig.came(0), rig.read("rw.mapping_failures")), ("0 packets".into(), "1".into()));
}

#[test]
fn other_packets_pass_only_where_the_input_says_so() {
    let rig = rig("IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, pass 1)", 2, 2, "");
    let mut fragment = udp((HOST, 1), (SERVER, 53), b"data");
    fragment[7] = 9;
    for packet in [echo(HOST, SERVER, true, 1), fragment] {
        rig.push(0, &packet);
        assert_eq!((rig.take(0).len(), rig.take(1).len()), (0, 0));
        rig.push(1, &packet);
        assert_eq!((rig.take(0).len(), rig.take(1)), (0, vec![packet]));
    }
}

#[test]
fn no_udp_checksum_stays_none() {
    let rig = rig("UDPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)", 2, 2, "");
    let mut packet = udp((HOST, 1), (SERVER, 53), b"data");
    packet[26..28].fill(0);
    rig.push(0, &packet);
    let came = rig.take(0);
    assert_eq!(came[0][26..28], [0, 0]);
    assert_eq!(show(&came[0]), "1.0.0.1:1024 > 20.0.0.9:53");
}

#[test]
fn annotations_follow() {
    let rig = rig("IPRewriter(pattern 1.0.0.1 1024-65535# 5.0.0.5 - 0 1, drop, REPLY_ANNO PAINT)", 2, 2, "");
    let mut packet = rig.packet(&udp((HOST, 1), (SERVER, 53), b""));
    packet.set_anno_u8(crate::packet::place::PAINT, 7);
    rig.push_packet(0, packet);
    let came = rig.take_packet(0).expect("it came");
    assert_eq!((came.dst_ip(), came.paint()), ([5, 0, 0, 5].into(), 7));
    rig.push(1, &udp(([5, 0, 0, 5], 53), (OUTSIDE, 1024), b""));
    let came = rig.take_packet(1).expect("it came");
    assert_eq!((came.dst_ip(), came.paint()), (HOST.into(), 7));
}

#[test]
fn errors_come_to_the_sender_and_quote_what_it_sent() {
    let others = "ip :: IPRewriter(pattern 21.0.0.1 1024-65535# - - 0 0); Idle -> ip -> o :: Queue -> Idle;
        ping :: ICMPPingRewriter(pattern 21.0.0.1 - 7-65535# 0 0); Idle -> ping -> o;
        addr :: IPAddrRewriter(pattern 21.0.0.3 - 0 0); Idle -> addr -> o";
    let rig = rig("ICMPRewriter(ip ping addr)", 1, 1, others);
    let nat = [21, 0, 0, 1];
    let router = rig.run.router.clone().expect("built");
    let send = |name: &str, bytes: &[u8]| {
        let id = router.exactly(name).expect("it is there");
        router.element(id).push(router.at(id), 0, rig.packet(bytes));
    };
    send("ip", &tcp((HOST, 20), (SERVER, 80), 2, [1, 2], &[], b"abc"));
    send("ip", &udp((HOST, 20), (SERVER, 80), b"abc"));
    send("ping", &echo(HOST, SERVER, true, 99));
    send("addr", &ip(50, OTHER, SERVER, &[1, 2, 3]));
    for (about, quoted) in [
        (tcp((nat, 1024), (SERVER, 80), 2, [1, 2], &[], b"abc"), "10.0.0.1:20 > 20.0.0.9:80"),
        (udp((nat, 1025), (SERVER, 80), b"abc"), "10.0.0.1:20 > 20.0.0.9:80"),
        (echo(nat, SERVER, true, 7), "10.0.0.1 > 20.0.0.9 echo 99"),
    ] {
        rig.push(0, &error([19, 19, 19, 19], nat, &about));
        assert_eq!(rig.came(0), format!("19.19.19.19 > 10.0.0.1 error ({quoted})"));
        // Eight bytes of what was quoted are enough.
        let short = error([19, 19, 19, 19], nat, &about[..28]);
        rig.push(0, &short);
        let came = rig.take(0);
        assert_eq!((came.len(), &came[0][16..20]), (1, &HOST[..]));
        assert_eq!(checksum::internet(&came[0][20..]), 0);
    }
    rig.push(0, &error([19, 19, 19, 19], [21, 0, 0, 3], &ip(50, [21, 0, 0, 3], SERVER, &[1, 2, 3])));
    let came = rig.take(0);
    assert_eq!((&came[0][16..20], checksum::internet(&came[0][20..])), (&OTHER[..], 0));
    // About flows that nobody knows, and no errors at all.
    rig.push(0, &error([19, 19, 19, 19], nat, &udp((nat, 5), (SERVER, 80), b"abc")));
    rig.push(0, &echo(SERVER, nat, true, 7));
    assert_eq!(rig.came(0), "0 packets");
}

/// Options that acknowledge blocks selectively.
fn sack(blocks: &[[u32; 2]]) -> Vec<u8> {
    let mut options = vec![1, 1, 5, (2 + 8 * blocks.len()) as u8];
    options.extend(blocks.iter().flatten().flat_map(|number| number.to_be_bytes()));
    options
}

#[test]
fn a_command_of_ftp_shifts_what_follows() {
    let others =
        "IPRewriterPatterns(pat 1.0.0.1 1024-65535# - -); f :: FTPPortMapper(rw, rw, 0); Idle -> f -> [2]rw";
    let rig = rig("TCPRewriter(pattern pat 0 1, drop, pattern pat 0 1)", 2, 2, others);
    let router = rig.run.router.clone().expect("built");
    let id = router.exactly("f").expect("it is there");
    let host = [200, 200, 200, 200];
    let out = |sequence: u32, data: &[u8]| {
        let bytes = tcp((host, 30), (SERVER, 21), 16, [sequence, 0], &[], data);
        router.element(id).push(router.at(id), 0, rig.packet(&bytes));
        let came = rig.take(0);
        assert_eq!(show(&came[0]), "1.0.0.1:1024 > 20.0.0.9:21");
        assert_eq!(usize::from(u16::from_be_bytes([came[0][2], came[0][3]])), came[0].len());
        let sequence = u32::from_be_bytes([came[0][24], came[0][25], came[0][26], came[0][27]]);
        (sequence, String::from_utf8_lossy(&came[0][40..]).into_owned())
    };
    let back = |acknowledged: u32, options: &[u8]| {
        rig.push(1, &tcp((SERVER, 21), (OUTSIDE, 1024), 16, [0, acknowledged], options, b""));
        let came = rig.take(1);
        assert_eq!(show(&came[0]), "20.0.0.9:21 > 200.200.200.200:30");
        let acknowledged = u32::from_be_bytes([came[0][28], came[0][29], came[0][30], came[0][31]]);
        (acknowledged, came[0][40..].to_vec())
    };
    assert_eq!(out(0, b"x"), (0, "x".into()));
    assert_eq!(out(1, b"PORT 200,200,200,200,200,200\n"), (1, "PORT 1,0,0,1,4,1\n".into()));
    assert_eq!(out(30, b"fubar\n"), (18, "fubar\n".into()));
    assert_eq!(out(0, b"x"), (0, "x".into()));
    assert_eq!([0, 1, 18].map(|number| back(number, &[]).0), [0, 1, 30]);
    assert_eq!(back(0, &sack(&[[1, 10], [1, 18], [18, 20]])).1, sack(&[[1, 10], [1, 30], [30, 32]]));
    assert!(rig.read("rw.table").contains("(1.0.0.1, 1024, 20.0.0.9, 21) seq -12 [*0 1]"));
    assert_eq!(rig.read("rw.lookup 200.200.200.200 51400 20.0.0.9 20"), "1.0.0.1 1025 20.0.0.9 20");
    // What is no command, or is cut off, passes as it is.
    for other in ["PORT 1,2,3,4,5,256\n", "PORT 1,2,3,4,5\n", "PORT 1,2,3,4,5,6", "PORT ", "PASV\r\n"] {
        assert_eq!(out(100, other.as_bytes()).1, other);
    }
}

#[test]
fn a_command_of_ftp_may_grow() {
    let others = "f :: FTPPortMapper(rw, rw, 0); Idle -> f -> [2]rw";
    let rig = rig(
        "TCPRewriter(pattern 100.100.100.100 60000-65535# - - 0 1, drop, pattern 100.100.100.100 60000-65535# - - 0 1)",
        2,
        2,
        others,
    );
    let router = rig.run.router.clone().expect("built");
    let id = router.exactly("f").expect("it is there");
    for (data, came) in [("x", "x"), ("port   1,2,3,4,5,6\r\n", "port   100,100,100,100,234,96\r\n")] {
        let bytes = tcp((HOST, 30), (SERVER, 21), 16, [0, 0], &[], data.as_bytes());
        router.element(id).push(router.at(id), 0, rig.packet(&bytes));
        let packets = rig.take(0);
        assert_eq!(String::from_utf8_lossy(&packets[0][40..]), came);
        assert_eq!(show(&packets[0]), "100.100.100.100:60000 > 20.0.0.9:21");
    }
}
