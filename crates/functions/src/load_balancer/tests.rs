use std::collections::BTreeMap;
use std::time::Duration;

use netbricks_core::buffer::Pool as Buffers;
use netbricks_core::packet::tcp::flags;
use netbricks_core::{HandlerKind, Settings, read_settings};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, checksums, kinds, run_configured, run_node};

use super::*;

mod nat;

use crate::maglev::{MaglevConfig, maglev};

fn settings(text: &str) -> LoadBalancerConfig {
    let table = toml::de::DeTable::parse(text).unwrap();
    read_settings(table, None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn make(
    text: &str,
) -> impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + use<> + 'static {
    let config = settings(text);
    move |worker| node(&config, worker)
}

const DSR: &str = "servers = [\"a 02:00:00:00:01:01\", \"b 02:00:00:00:01:02\", \"c 02:00:00:00:01:03 2\"]\n\
                   addresses = [\"192.0.2.1\", \"2001:db8::1\"]\nslots = 251\n";

fn v4(flow: u16) -> Vec<u8> {
    ethernet().vlan(7).ipv4("10.0.0.9", "192.0.2.1").tcp(1_000 + flow, 80).flags(flags::SYN).build().unwrap()
}
fn v6(flow: u16) -> Vec<u8> {
    ethernet().ipv6("2001:db8::9", "2001:db8::1").udp(1_000 + flow, 80).payload(b"hello").build().unwrap()
}

/// The servers of frames by the last byte of their Ethernet destination.
fn chosen(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[5]).collect()
}

fn tally(frames: &[Vec<u8>]) -> BTreeMap<u8, usize> {
    chosen(frames).into_iter().fold(BTreeMap::new(), |mut tally, server| {
        *tally.entry(server).or_default() += 1;
        tally
    })
}

#[test]
fn by_maglevs_table_it_decides_as_maglev_does() {
    let frames: Vec<_> = (0..200).flat_map(|flow| [v4(flow), v6(flow)]).collect();
    let ours = run_node(make(&format!("{DSR}key = \"k\"")), frames.clone()).out;
    let backends = ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02", "c 02:00:00:00:01:03 2"];
    let config = MaglevConfig {
        backends: backends.map(|backend| backend.parse().unwrap()).into(),
        slots: 251,
        key: "k".into(),
        ..MaglevConfig::default()
    };
    assert_eq!(ours, run_configured(maglev, config, frames).out);
}

#[test]
fn round_robin_and_least_connections_follow_weights_and_keep_connections() {
    let text = |policy: &str| format!("{DSR}policy = \"{policy}\"");
    let mut test = Clocked::of_node(make(&text("round-robin")));
    let first = test.send((0..8).map(v4)).out;
    assert_eq!(tally(&first), [(1, 2), (2, 2), (3, 4)].into());
    assert_ne!(chosen(&first)[..2], [3, 3], "smoothly, one after the other");
    assert_eq!(chosen(&test.send((0..8).map(v4)).out), chosen(&first), "known connections stay");
    assert_eq!(test.call("assigned.occupancy", ""), format!("8 {}", u64::MAX));
    test.finish();

    let mut test = Clocked::of_node(make(&format!("{}\nidle = \"1 s\"", text("least-connections"))));
    assert_eq!(tally(&test.send((0..40).map(v4)).out), [(1, 10), (2, 10), (3, 20)].into());
    // Connections end, and their servers get the next ones.
    test.advance(Duration::from_millis(600));
    let kept: Vec<_> = test.send((0..40).map(v4).filter(|_| true)).out;
    let of_first = (0..40u16).zip(chosen(&kept)).filter(|(_, server)| *server != 1).map(|(flow, _)| flow);
    let of_first: Vec<u16> = of_first.collect();
    test.advance(Duration::from_millis(600));
    test.send(of_first.iter().map(|flow| v4(*flow)));
    test.advance(Duration::from_millis(600));
    // Those of the first server are silent for longer than a second now.
    let new = test.send((100..110).map(v4)).out;
    assert_eq!(tally(&new), [(1, 10)].into());
    test.finish();
}

#[test]
fn a_server_that_is_down_gets_nothing_and_its_connections_move() {
    for policy in ["maglev", "round-robin", "least-connections"] {
        let mut test = Clocked::of_node(make(&format!("{DSR}policy = \"{policy}\"")));
        let before = chosen(&test.send((0..60).map(v4)).out);
        test.call("health", "b down");
        let after = chosen(&test.send((0..120).map(v4)).out);
        assert!(after.iter().all(|server| *server != 2), "{policy}");
        for (before, after) in before.iter().zip(&after).filter(|(before, _)| **before != 2) {
            assert_eq!(before, after, "{policy}: others stay");
        }
        assert!(test.call("servers", "").contains("b 02:00:00:00:01:02 1 down"));
        test.call("drain", "a");
        test.call("health", "b up");
        let drained = chosen(&test.send((0..300).map(v4)).out);
        assert_eq!(drained[..120], after, "{policy}: a draining server keeps its connections");
        assert!(drained[120..].iter().all(|server| *server != 1), "{policy}");
        assert!(drained[120..].contains(&2), "{policy}");
        for name in ["a", "b", "c"] {
            test.call("health", &format!("{name} down"));
        }
        let report = test.send((0..10).map(v4));
        assert_eq!((report.out.len(), report.dropped(DropReason::NoBackend)), (0, 10), "{policy}");
        test.call("add", "d 02:00:00:00:01:04");
        assert_eq!(tally(&test.send((0..10).map(v4)).out), [(4, 10)].into());
        test.call("remove", "d");
        assert_eq!(test.send([v4(1)]).out.len(), 0);
        test.finish();
    }
}

#[test]
fn tunnels_have_the_packet_inside_and_right_lengths_and_checksums() {
    let tunnels = "tunnel_v4 = \"192.0.2.100\"\ntunnel_v6 = \"2001:db8:ff::1\"\nslots = 251\n\
                   addresses = [\"192.0.2.1\", \"2001:db8::1\"]\n";
    for (mode, server, outer, header) in [
        ("ipip", "10.1.0.1", 20, 20),
        ("gue", "10.1.0.1", 20, 32),
        ("ipip", "2001:db8:1::1", 40, 40),
        ("gue", "2001:db8:1::1", 40, 52),
    ] {
        let text = format!("servers = [\"a {server} 02:00:00:00:01:01\"]\nmode = \"{mode}\"\n{tunnels}");
        for (frame, at, inner) in [(v4(1), 18, 4u8), (v6(1), 14, 41)] {
            let report = run_node(make(&text), [frame.clone()]);
            let out = &report.out[0];
            assert_eq!(out.len(), frame.len() + header, "{mode} {server}");
            assert_eq!(out[at + header..], frame[at..], "the packet is inside");
            assert_eq!(out[..6], [2, 0, 0, 0, 1, 1]);
            assert_eq!(checksums::wrong(out), Vec::<String>::new(), "{mode} {server}");
            let (ip, _) = Ip::in_frame(out).expect("an outer header");
            assert_eq!(
                (ip.destination(), ip.stated_len()),
                (server.parse().unwrap(), frame.len() - at + header)
            );
            assert_eq!(ip.protocol(), if mode == "gue" { 17 } else { inner });
            if mode == "gue" {
                let udp = &out[at + outer..];
                assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), 6_080);
                assert!(udp[0] >= 0xc0, "entropy in the source port");
                assert_eq!(udp[8..12], [0, inner, 0, 0]);
            }
        }
    }
}

#[test]
fn discovery_and_packets_for_others_pass() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    assert_eq!(run_node(make(DSR), frames.clone()).out, frames);
}

#[test]
fn connections_and_servers_move_to_another_node() {
    let pool = Buffers::builder().frames(64).build().unwrap();
    let worker = || Worker::new(0, 1, pool.clone());
    let text = format!("{DSR}policy = \"round-robin\"");
    let (mut from, mut to) = (make(&text)(&worker()).unwrap(), make(&text)(&worker()).unwrap());
    let mut cx = netbricks_core::DetachedContext::new(pool.clone());
    let mut send = |node: &mut Box<dyn Node>, flows: std::ops::Range<u16>| {
        let mut batch = netbricks_core::buffer::Batch::new();
        flows.for_each(|flow| assert!(batch.push(pool.packet(&v4(flow)).unwrap()).is_ok()));
        node.process(0, &mut batch, &mut cx);
        batch.iter().map(|packet| packet.data()[5]).collect::<Vec<_>>()
    };
    from.call_as(HandlerKind::Write, "weight", "c 9").unwrap();
    let before = send(&mut from, 0..20);
    for (name, bytes) in from.export() {
        for at in (0..bytes.len()).filter(|_| ["servers", "connections"].contains(&name.as_str())) {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert!(to.import(&name, &broken, 0).is_err(), "{name}, byte {at}");
        }
        to.import(&name, &bytes, 0).unwrap();
    }
    assert_eq!(send(&mut to, 0..20), before);
    assert!(to.call("servers", "").unwrap().contains("c 02:00:00:00:01:03 9 up"));
    for wrong in ["", "x up", "a", "a sideways"] {
        assert!(to.call("health", wrong).is_err(), "{wrong}");
    }
    assert!(to.call("drain", "aa").unwrap_err().to_string().contains("did you mean `a`?"));
    for wrong in
        ["", "d", "d 10.0.0.300", "d 02:00:00:00:01:01 02:00:00:00:01:02", "d 02:00:00:00:01:01 1000001"]
    {
        assert!(to.call("add", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn settings_that_do_not_go_together_are_named() {
    let refused = |text: &str| {
        let config: LoadBalancerConfig = toml::from_str(text).unwrap();
        config.check().unwrap_err().to_string()
    };
    let ours = "addresses = [\"192.0.2.1\"]\n";
    let dsr = format!("{ours}servers = [\"a 10.0.0.1\"]\n");
    assert_eq!(
        refused(&dsr),
        "`servers` cannot be: server `a` needs an Ethernet address with `mode = \"dsr\"`"
    );
    assert!(refused(&format!("{dsr}mode = \"ipip\"")).contains("needs `tunnel_v4`"));
    assert!(
        refused(&format!("{ours}mode = \"nat\"\nservers = [\"a 10.0.0.1:80\"]")).contains("give that, too")
    );
    assert!(refused(&format!("{ours}mode = \"gue\"\nservers = [\"a 10.0.0.1:80\"]")).contains("has a port"));
    assert!(
        refused(&format!("{dsr}mode = \"nat\"\nhealth = \"http\"")).contains("give `port` or `health_port`")
    );
    assert!(refused("servers = [\"a 10.0.0.1\"]\naddresses = []").contains("must hold 1 to 64"));
    let twice = "servers = [\"a 02:00:00:00:01:01\", \"a 02:00:00:00:01:02\"]\n";
    assert!(refused(&format!("{ours}{twice}")).contains("given twice"));
    assert!(refused(&format!("{ours}{twice}slots = 250")).contains("prime"));
    let two = "servers = [\"a 10.0.0.1\"]\nmode = \"nat\"\naddresses = [\"192.0.2.1\", \"192.0.2.2\"]";
    assert!(refused(two).contains("2 IPv4 addresses"));
    for (text, server) in [
        ("web 10.0.0.1:8080 02:00:00:00:00:01 3", "web 10.0.0.1:8080 02:00:00:00:00:01 3"),
        ("web 3 02:00:00:00:00:01 [2001:db8::1]:80", "web [2001:db8::1]:80 02:00:00:00:00:01 3"),
        ("web 2001:db8::1", "web 2001:db8::1 1"),
    ] {
        assert_eq!(text.parse::<Server>().unwrap().to_string(), server);
    }
}

/// A segment of a client; of the server, with `back`.
fn segment(flow: u16, flags: u8, back: bool) -> Vec<u8> {
    let (client, port) = ("10.0.0.9", 1_000 + flow);
    match back {
        false => ethernet().ipv4(client, "192.0.2.1").tcp(port, 80).flags(flags).build().unwrap(),
        true => ethernet().ipv4("10.1.0.1", client).tcp(80, port).flags(flags).build().unwrap(),
    }
}

#[test]
fn closed_connections_do_not_count() {
    const FIN: u8 = flags::FIN | flags::ACK;
    let dsr = format!("{DSR}policy = \"least-connections\"\n");
    let nat = "servers = [\"a 10.1.0.1\"]\naddresses = [\"192.0.2.1\"]\nport = 80\nmode = \"nat\"\nslots = 251\n\
               policy = \"least-connections\"\n";
    let open = |test: &mut Clocked| {
        let report = test.send(Vec::<Vec<u8>>::new());
        let rows = report.sections[0].rows.iter().map(|row| row[2].parse::<usize>().unwrap());
        rows.collect::<Vec<_>>()
    };
    // What is sent for each of the first connections, whether it ends them, and after which seconds they are forgotten.
    type Sent = &'static [(u8, bool)];
    let cases: [(&str, &str, Sent, bool, u64); 11] = [
        ("a reset of the client", &dsr, &[(flags::RST, false)], true, 10),
        ("its FIN, where answers go another way", &dsr, &[(FIN, false)], true, 120),
        ("a reset of the server", nat, &[(flags::RST, true)], true, 10),
        ("one FIN", nat, &[(FIN, true)], false, 120),
        ("both FINs", nat, &[(FIN, true), (flags::ACK, false), (FIN, false), (flags::ACK, true)], true, 10),
        ("data", nat, &[(flags::ACK, false), (flags::ACK, true)], false, 300),
        (
            "a reset that the client's data follows",
            &dsr,
            &[(flags::RST, false), (flags::ACK, false)],
            false,
            300,
        ),
        ("a reset that an answer follows", nat, &[(flags::RST, false), (flags::ACK, true)], false, 300),
        (
            "one FIN and a reset that data follows",
            nat,
            &[(FIN, false), (flags::RST, true), (flags::ACK, true)],
            false,
            120,
        ),
        (
            "both FINs, and a reset",
            nat,
            &[(FIN, true), (FIN, false), (flags::RST, false), (flags::ACK, true)],
            true,
            10,
        ),
        (
            "data, and another reset",
            nat,
            &[(flags::RST, true), (flags::ACK, false), (flags::RST, false)],
            true,
            10,
        ),
    ];
    for (name, text, sent, ends, seconds) in cases {
        let mut test = Clocked::of_node(make(text));
        test.send((0..40).map(|flow| segment(flow, flags::SYN, false)));
        assert_eq!(open(&mut test).iter().sum::<usize>(), 40, "{name}");
        for (flags, back) in sent {
            test.send((0..20).map(|flow| segment(flow, *flags, *back)));
        }
        let left = if ends { 20 } else { 40 };
        assert_eq!(open(&mut test).iter().sum::<usize>(), left, "{name}");
        assert_eq!(test.call("connections.occupancy", ""), "40 65536", "{name}: they keep their servers");
        let other = || [segment(500, flags::SYN, false)];
        test.advance(Duration::from_secs(seconds) - Duration::from_millis(50));
        test.send(other());
        assert_eq!(test.call("connections.occupancy", ""), "41 65536", "{name}");
        test.advance(Duration::from_millis(100));
        test.send(other());
        let kept = if seconds < 300 { 21 } else { 1 };
        assert_eq!(test.call("connections.occupancy", ""), format!("{kept} 65536"), "{name}");
        test.finish();
    }
}

#[test]
fn a_segment_that_no_server_takes_closes_no_connection() {
    let mut test = Clocked::of_node(make(&format!("{DSR}policy = \"least-connections\"")));
    test.send((0..4).map(|flow| segment(flow, flags::SYN, false)));
    let signed = |flags| {
        let tcp = ethernet().ipv4("10.0.0.9", "192.0.2.1").tcp(1_000, 80).flags(flags);
        tcp.option(19, &[7; 16]).build().unwrap()
    };
    let wrong = |flags| {
        let mut frame = segment(1, flags, false);
        frame[14 + 20 + 4] ^= 1;
        frame
    };
    for flags in [flags::RST, flags::FIN | flags::ACK] {
        test.send([signed(flags), wrong(flags)]);
    }
    let open = |test: &mut Clocked| {
        let report = test.send(Vec::<Vec<u8>>::new());
        report.sections[0].rows.iter().map(|row| row[2].parse::<usize>().unwrap()).sum::<usize>()
    };
    assert_eq!(open(&mut test), 4);
    test.send([segment(2, flags::RST, false)]);
    assert_eq!(open(&mut test), 3);
    test.finish();
}

#[test]
fn least_connections_goes_by_open_ones() {
    let mut test = Clocked::of_node(make(&format!("{DSR}policy = \"least-connections\"")));
    let before = chosen(&test.send((0..40).map(|flow| segment(flow, flags::SYN, false))).out);
    // Those of the first server end, and it gets the next ones.
    let closed: Vec<u16> = (0..40).filter(|flow| before[usize::from(*flow)] == 1).collect();
    assert_eq!(closed.len(), 10);
    test.send(closed.iter().map(|flow| segment(*flow, flags::FIN | flags::ACK, false)));
    let next = test.send((100..110).map(|flow| segment(flow, flags::SYN, false)));
    assert_eq!(tally(&next.out), [(1, 10)].into());
    // A SYN begins another connection with the same ports; an acknowledgment of the old one does not.
    test.send(closed.iter().map(|flow| segment(*flow, flags::ACK, false)));
    assert_eq!(test.call("assigned.occupancy", ""), format!("50 {}", u64::MAX));
    let again = test.send(closed.iter().map(|flow| segment(*flow, flags::SYN, false)));
    assert_eq!(tally(&again.out), [(1, 3), (2, 2), (3, 5)].into());
    assert_eq!(test.call("assigned.occupancy", ""), format!("60 {}", u64::MAX));
    // The last segments of forgotten connections begin none.
    test.send([segment(900, flags::FIN | flags::ACK, false), segment(901, flags::RST, false)]);
    assert_eq!(test.call("connections.occupancy", ""), "50 65536");
    test.finish();
}
