//! State of functions that moves with its flows between two workers, one row for each table.
//!
//! Frames are sent once without a move and once with buckets that move in between. What comes out is the same.

use netbricks_core::Registry;
use netbricks_core::packet::tcp::flags::{ACK, SYN};
use netbricks_testkit::build::ethernet;

use super::two_workers::{Two, by_name};

const SERVICE: &str = "192.0.2.1";
const FLOWS: std::ops::Range<u16> = 0..48;

type Make = fn(u16) -> Vec<u8>;

/// One kind of state, frames that make it, and frames whose fate depends on it.
struct Row {
    function: &'static str,
    state: &'static str,
    settings: &'static str,
    before: &'static [Make],
    behind: &'static [Make],
}

fn client(flow: u16) -> String {
    format!("10.0.{}.9", flow % 7)
}

fn tcp(flow: u16, bits: u8, number: u32, acknowledged: u32) -> Vec<u8> {
    let packet = ethernet().ipv4(client(flow).as_str(), SERVICE).tcp(1_000 + flow, 80).sequence(number);
    packet.ack(acknowledged).flags(bits).window(8_000).build().unwrap()
}
fn syn(flow: u16) -> Vec<u8> {
    tcp(flow, SYN, 100, 0)
}
fn data(flow: u16) -> Vec<u8> {
    tcp(flow, ACK, 101, 501)
}
fn answer(flow: u16) -> Vec<u8> {
    let packet = ethernet().ipv4(SERVICE, client(flow).as_str()).tcp(80, 1_000 + flow).sequence(500);
    packet.ack(101).flags(SYN | ACK).window(8_000).build().unwrap()
}
/// An answer of the server that address translation gave the connection.
fn answer_of_a(flow: u16) -> Vec<u8> {
    ethernet().ipv4("10.1.0.1", client(flow).as_str()).tcp(80, 1_000 + flow).flags(ACK).build().unwrap()
}
fn udp6(flow: u16) -> Vec<u8> {
    ethernet().ipv6("2001:db8::9", "2001:db8::1").udp(1_000 + flow, 80).payload(&[0; 64]).build().unwrap()
}
fn first(flow: u16) -> Vec<u8> {
    let packet = ethernet().ipv4(client(flow).as_str(), SERVICE).identification(flow).fragment(0, true);
    packet.udp(1_000 + flow, 80 + flow % 2).payload(&[1; 32]).build().unwrap()
}
fn later(flow: u16) -> Vec<u8> {
    let packet = ethernet().ipv4(client(flow).as_str(), SERVICE).identification(flow).fragment(5, false);
    packet.protocol(17).payload(&[2; 40]).build().unwrap()
}
fn first6(flow: u16) -> Vec<u8> {
    let packet = ethernet().ipv6(format!("2001:db8::{flow:x}").as_str(), "2001:db8::1:1").fragment(
        0,
        true,
        flow.into(),
    );
    packet.udp(1_000 + flow, 80 + flow % 2).payload(&[1; 32]).build().unwrap()
}
fn later6(flow: u16) -> Vec<u8> {
    let packet = ethernet().ipv6(format!("2001:db8::{flow:x}").as_str(), "2001:db8::1:1").fragment(
        5,
        false,
        flow.into(),
    );
    packet.protocol(17).payload(&[2; 40]).build().unwrap()
}

const WALL: &str = "lines = [\"allow tcp to any port 80\", \"allow udp to any port 80\"]";
const SERVERS: &str = "servers = [\"a 10.1.0.1 02:00:00:00:01:01\", \"b 10.1.0.2 02:00:00:00:01:02\", \"c 10.1.0.3 02:00:00:00:01:03\"]\n\
                       addresses = [\"192.0.2.1\", \"2001:db8::1\"]\nslots = 251\npolicy = \"round-robin\"\n";
const WEB: &str = "servers = [\"a 10.1.0.1 02:00:00:00:01:01\", \"b 10.1.0.2 02:00:00:00:01:02\", \"c 10.1.0.3 02:00:00:00:01:03\"]\n\
                   addresses = [\"192.0.2.1\", \"2001:db8::1:1\"]\nport = 80\nslots = 251\npolicy = \"round-robin\"\n";
/// Three packets, and practically no more.
const METER: &str = "cir = \"8 bit/s\"\ncbs = 240\nebs = 0\nby = \"flow\"\ncount = \"frame\"";

const ROWS: [Row; 8] = [
    Row {
        function: "firewall",
        state: "connections",
        settings: WALL,
        before: &[syn, answer, data],
        behind: &[data, answer, data],
    },
    Row { function: "firewall", state: "opening", settings: WALL, before: &[syn], behind: &[answer, data] },
    Row {
        function: "firewall",
        state: "fragments",
        settings: WALL,
        before: &[first, first6],
        behind: &[later, later6],
    },
    Row {
        function: "load-balancer",
        state: "connections",
        settings: SERVERS,
        before: &[syn, udp6],
        behind: &[data, udp6],
    },
    Row {
        function: "load-balancer",
        state: "fragments",
        settings: WEB,
        before: &[first, first6],
        behind: &[later, later6],
    },
    Row {
        function: "policer",
        state: "meters",
        settings: METER,
        before: &[data, udp6, data],
        behind: &[data, udp6, data],
    },
    Row {
        function: "maglev",
        state: "connections",
        settings: "backends = [\"a 02:00:00:00:01:01\", \"b 02:00:00:00:01:02\", \"c 02:00:00:00:01:03\"]\nslots = 251",
        before: &[syn, udp6],
        behind: &[data, udp6],
    },
    Row { function: "monitor", state: "flows", settings: "", before: &[syn, udp6], behind: &[data, udp6] },
];

/// Functions without state that moves, or with tests of their own.
const OTHERS: [(&str, &str); 17] = [
    ("array-access", "all workers share its cells, or each has its own"),
    ("bras", "its sessions have tests of their own"),
    ("busy", "no state"),
    ("classify", "no state"),
    ("group-by", "queues that are empty between batches"),
    ("http-inspect", "`http_inspect::migration`"),
    ("icmp-echo", "no state"),
    ("lpm", "all workers share its routes"),
    ("macswap", "no state"),
    ("mss", "no state"),
    ("nat", "`nat::tests::moves`"),
    ("rewrite-stream", "`shuffle::rewritten`"),
    ("router", "all workers share its tables"),
    ("shaper", "queues, which do not move"),
    ("shuffle", "it moves the others"),
    ("signature", "`signature::tests::moving`"),
    ("ttl", "no state by flow"),
];

/// Takes turns until all that moves has moved.
fn settle(two: &mut Two) {
    while two.graphs[0].call("shuffle", "moving", "").unwrap() != "0" {
        two.exchange(Vec::new(), 1);
    }
}

/// The frames behind those that made the state, sorted, and each worker's count of them.
fn outcome(row: &Row, moves: &[&str]) -> (Vec<Vec<u8>>, [usize; 2]) {
    let mut two = Two::new(&by_name(row.function, row.settings));
    for make in row.before {
        two.exchange(FLOWS.map(make).collect(), 6);
    }
    if row.function == "load-balancer" || row.function == "maglev" {
        // Only a known connection still has the same server.
        for name in ["a", "b", "c"] {
            two.graphs[0].call("function", "drain", name).unwrap();
        }
    }
    let (mut out, mut shares) = (Vec::new(), [0; 2]);
    let mut moves = moves.iter();
    for make in row.behind {
        if let Some(buckets) = moves.next() {
            let moved = two.graphs[0].call("shuffle", "move", buckets);
            assert_eq!(moved.as_deref().map(|_| ()), Ok(()), "{} of {}", row.state, row.function);
            settle(&mut two);
            assert_eq!(two.graphs[0].call("shuffle", "refused", "").unwrap(), "0", "{}", row.state);
        }
        let came = two.exchange(FLOWS.map(make).collect(), 6);
        came.iter().for_each(|(worker, _)| shares[*worker] += 1);
        let mut frames: Vec<_> = came.into_iter().map(|(_, frame)| frame).collect();
        frames.sort();
        out.extend(frames);
    }
    (out, shares)
}

#[test]
fn what_comes_out_does_not_change_when_state_moves() {
    for row in &ROWS {
        let name = format!("{} of {}", row.state, row.function);
        let (stayed, _) = outcome(row, &[]);
        let all = row.behind.len() * FLOWS.len();
        let expected = match (row.function, row.state) {
            // Every other packet has a first fragment to a port that is closed.
            ("firewall", "fragments") => all / 2,
            // The third packet of a flow takes all that there is.
            ("policer", _) => stayed.len(),
            _ => all,
        };
        assert_eq!(stayed.len(), expected, "{name}");
        assert!(row.function != "policer" || stayed.len() < all, "{name}: some are dropped");
        for moves in [&["0-4095 1"][..], &["0-4095 0"], &["0-4095 1", "0-4095 0"], &["0-1023 1, 2048-4095 0"]]
        {
            let (moved, shares) = outcome(row, moves);
            assert!(moved == stayed, "{name}: {} frames and {} with {moves:?}", stayed.len(), moved.len());
            match moves {
                ["0-4095 1"] => assert_eq!(shares[0], 0, "{name}"),
                ["0-4095 0"] => assert_eq!(shares[1], 0, "{name}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_connection_moves_with_its_answers_where_translation_knows_them() {
    // The same service in mode `nat` with all ports: only a known connection tells an answer.
    let settings = "servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\"]\naddresses = [\"192.0.2.1\", \"2001:db8::1\"]\nmode = \"nat\"\nslots = 251";
    let mut two = Two::new(&by_name("load-balancer", settings));
    two.graphs[0].call("shuffle", "move", "0-4095 1").unwrap();
    settle(&mut two);
    two.exchange(FLOWS.map(syn).collect(), 6);
    let from_service =
        |out: Vec<(usize, Vec<u8>)>| out.iter().filter(|(_, frame)| frame[26..30] == [192, 0, 2, 1]).count();
    assert_eq!(from_service(two.exchange(FLOWS.map(answer_of_a).collect(), 6)), FLOWS.len());
    two.graphs[0].call("shuffle", "move", "0-4095 0").unwrap();
    settle(&mut two);
    assert_eq!(from_service(two.exchange(FLOWS.map(answer_of_a).collect(), 6)), FLOWS.len());
}

#[test]
fn every_function_has_a_row_or_a_reason() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let known: Vec<&str> = registry.iter().map(|definition| definition.name).collect();
    let rows = ROWS.iter().map(|row| row.function);
    let mut here: Vec<&str> = rows.chain(OTHERS.map(|(name, _)| name)).chain(["wire"]).collect();
    here.sort_unstable();
    here.dedup();
    assert_eq!(here, known);
}
