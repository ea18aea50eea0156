//! Tests of blocked hosts: no request for one reaches its server, and all other bytes do.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_core::DropReason;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp, checksum};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{Report, kinds, run_configured};
use proptest::prelude::*;

use super::tests::request;
use super::{HttpInspectConfig, http_block};

const ACK: u8 = flags::ACK;

fn blocking(hosts: &[&str]) -> HttpInspectConfig {
    let block = hosts.iter().map(|host| (*host).to_owned()).collect();
    HttpInspectConfig { block, flows: 8, ..HttpInspectConfig::default() }
}

fn client(port: u16, sequence: u32, acknowledged: u32, flag: u8, bytes: &[u8]) -> Vec<u8> {
    let tcp =
        ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).sequence(sequence).ack(acknowledged);
    tcp.flags(flag).timestamps(7, 8).payload(bytes).build().unwrap()
}
fn server(port: u16, sequence: u32, acknowledged: u32, flag: u8, bytes: &[u8]) -> Vec<u8> {
    let tcp =
        ethernet().vlan(3).ipv4("10.0.0.2", "10.0.0.1").tcp(80, port).sequence(sequence).ack(acknowledged);
    tcp.flags(flag).payload(bytes).build().unwrap()
}
fn open(port: u16, first: u32) -> [Vec<u8>; 3] {
    [
        client(port, first.wrapping_sub(1), 0, flags::SYN, b""),
        server(port, 499, first, flags::SYN | ACK, b""),
        client(port, first, 500, ACK, b""),
    ]
}

/// A segment as it left: to the server or not, the client's port, number, flags, bytes.
#[derive(Debug, PartialEq, Eq)]
struct Left(bool, u16, u32, u8, Vec<u8>);

fn read(frame: &[u8]) -> Left {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).unwrap(), frame).unwrap();
    let tcp = Layer::<_, Tcp>::parse(ip, frame).unwrap();
    let (at, facts) = ip.top();
    let header = Ip::view(&frame[at..ip.end()], facts);
    assert_eq!(checksum::internet(&frame[at..ip.end()]), 0);
    assert_eq!(checksum::is_valid(header.source(), header.destination(), 6, &frame[ip.end()..]), Some(true));
    let header = Tcp::view(&frame[ip.end()..tcp.end()], ());
    let [from, to] = [header.source_port(), header.destination_port()];
    let (up, port) = if to == 80 { (true, from) } else { (false, to) };
    Left(up, port, header.sequence_number(), header.flags(), frame[tcp.end()..].to_vec())
}

/// Bytes that reached servers, by the client's port; retransmissions must repeat the same bytes.
fn reached(report: &Report) -> BTreeMap<u16, Vec<u8>> {
    let mut all: BTreeMap<u16, (u32, Vec<u8>)> = BTreeMap::new();
    for Left(up, port, number, flag, bytes) in report.out.iter().map(|frame| read(frame)) {
        if !up {
            continue;
        }
        let (first, known) = all.entry(port).or_default();
        if flag & flags::SYN != 0 {
            (*first, *known) = (number.wrapping_add(1), Vec::new());
        }
        let at = number.wrapping_sub(*first) as usize;
        // An old byte only asks for an acknowledgment, so it is skipped.
        if bytes.is_empty() || at == u32::MAX as usize {
            continue;
        }
        assert!(at <= known.len(), "a hole before {at}");
        let old = bytes.len().min(known.len() - at);
        assert_eq!(bytes[..old], known[at..at + old]);
        known.extend_from_slice(&bytes[old..]);
    }
    all.into_iter().map(|(port, (_, bytes))| (port, bytes)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_of_a_blocked_request_reaches_its_server_and_all_else_does(seed: u64) {
        let mut random = Random::new(seed);
        let (mut frames, mut expected, mut cut) = (Vec::new(), BTreeMap::new(), 0);
        for port in 1_000..1_004u16 {
            let requests: Vec<_> = (0..random.below(6)).map(|_| request(&mut random)).collect();
            let text: Vec<u8> = requests.iter().flat_map(|request| request.text.clone()).collect();
            let first = random.next() as u32;
            frames.extend(open(port, first));
            let mut segments = Vec::new();
            let mut at = 0;
            while at < text.len() {
                let end = text.len().min(at + 1 + random.below(90));
                for _ in 0..1 + random.below(5) / 4 {
                    segments.push((segments.len() + random.below(5), at, end));
                }
                at = end;
            }
            segments.sort();
            let pieces: Vec<_> = segments.iter().map(|(_, at, end)| (*at, *end)).collect();
            let segment = |at: usize, end: usize| client(port, first.wrapping_add(at as u32), 500, ACK, &text[at..end]);
            frames.extend(segments.into_iter().map(|(_, at, end)| segment(at, end)));
            let mut before = 0;
            let mut blocked = false;
            for request in &requests {
                blocked = ["example.org", "b.test"].contains(&request.host.as_str());
                if blocked {
                    break;
                }
                before += request.text.len();
            }
            cut += u64::from(blocked);
            let texts: Vec<_> = requests.iter().map(|request| request.text.clone()).collect();
            // Bytes that the last packet without bytes of the blocked request made decidable.
            let (mut here, mut have, mut least) = (BTreeSet::new(), 0, 0);
            for (at, end) in pieces {
                here.insert((at, end));
                while let Some((_, end)) = here.iter().find(|(at, _)| *at == have) {
                    have = *end;
                }
                if have > before {
                    break;
                }
                least = if undecided(&texts, have) { least } else { have };
            }
            expected.insert(port, (blocked, text[..before].to_vec(), least));
        }
        let report = run_configured(http_block, blocking(&["Example.org", "test"]), frames);
        let reached = reached(&report);
        for (port, (blocked, before, least)) in &expected {
            let reached = &reached[port];
            if *blocked {
                // Bytes in the same packet as the beginning of the blocked request are held with it.
                prop_assert!(before.starts_with(reached), "{port}");
                prop_assert!(reached.len() >= *least, "{port}: {} of {least}", reached.len());
            } else {
                prop_assert_eq!(reached, before, "{}", port);
            }
        }
        let resets = |frames: &[Vec<u8>]| {
            frames.iter().map(|frame| read(frame)).filter(|left| left.3 & flags::RST != 0).count() as u64
        };
        prop_assert_eq!(resets(&report.out), cut, "one to each server");
        prop_assert!(resets(&report.replies) >= cut, "one to each client, and more if it sends more");
    }
}

#[test]
fn a_blocked_connection_is_reset_at_both_ends_and_says_nothing_more() {
    let ask = b"GET / HTTP/1.1\r\nHost: www.bad.example:80\r\n\r\n";
    let mut frames = open(1_000, 100).to_vec();
    frames.extend([
        client(1_000, 100, 500, ACK, &ask[..20]),
        client(1_000, 120, 500, ACK, &ask[20..]),
        client(1_000, 120, 500, ACK, &ask[20..]),
        server(1_000, 500, 100, ACK, b"still there?"),
    ]);
    let report = run_configured(http_block, blocking(&["bad.example"]), frames.clone());
    let left: Vec<_> = report.out.iter().map(|frame| read(frame)).collect();
    let to_server = |number, flag| Left(true, 1_000, number, flag, Vec::new());
    assert_eq!(
        left,
        [
            to_server(99, flags::SYN),
            Left(false, 1_000, 499, flags::SYN | ACK, Vec::new()),
            to_server(100, ACK),
            to_server(100, ACK),
            to_server(100, flags::RST | ACK),
        ]
    );
    let replies: Vec<_> = report.replies.iter().map(|frame| read(frame)).collect();
    let to_client = Left(false, 1_000, 500, flags::RST, Vec::new());
    assert_eq!(
        replies,
        [to_client, Left(false, 1_000, 500, flags::RST, Vec::new()), to_server(100, flags::RST)]
    );
    assert_eq!(report.replies[0][..6], frames[3][6..12], "back to where it came from");
    assert_eq!(report.dropped(DropReason::Denied), 3);
    let by_host = report.sections.iter().find(|section| section.title == "requests by host").unwrap();
    assert_eq!(by_host.rows[0], ["www.bad.example", "1"]);
    assert_eq!(by_host.counts["blocked_connections"], 1);
}

/// Sends a request in one piece; returns the bytes that reach the server.
fn through(ask: &str) -> Vec<u8> {
    let frames = open(1_000, 100).into_iter().chain([client(1_000, 100, 500, ACK, ask.as_bytes())]);
    reached(&run_configured(http_block, blocking(&["bad.example"]), frames)).remove(&1_000).unwrap()
}

#[test]
fn however_a_host_is_named_it_is_the_same() {
    let blocked = |ask: String| assert_eq!(through(&ask), b"", "{ask}");
    let passes = |ask: String| assert_eq!(through(&ask), ask.as_bytes());
    for host in ["bad.example", "BAD.Example:8080", "a.b.bad.example.", "x.bad.example:1"] {
        blocked(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        blocked(format!("GET / HTTP/1.1\r\nhOST :\t{host} \r\n\r\n"));
        blocked(format!("GET / HTTP/1.1\r\nHost:\r\n {host}\r\n\r\n"));
        blocked(format!("GET / HTTP/1.1\r\nHost: good.example\r\nHost: {host}\r\n\r\n"));
        blocked(format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: good.example\r\n\r\n"));
        blocked(format!("GET http://me@{host}/x HTTP/1.1\r\nHost: good.example\r\n\r\n"));
        blocked(format!("CONNECT {host} HTTP/1.1\r\nHost: good.example\r\n\r\n"));
        blocked(format!("GET / HTTP/1.1\r\nHost: {}{host}\r\n\r\n", " ".repeat(300)));
        passes(format!("GET /http://{host}/ HTTP/1.1\r\nHost: good.example\r\nReferer: {host}\r\n\r\n"));
    }
    for host in ["worse-bad.example", "bad.example.org", "example", ""] {
        passes(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
}

/// Each of these is a request for a blocked host to some server that is in use.
#[test]
fn requests_that_lenient_servers_accept_are_found() {
    let host = "Host: bad.example\r\n\r\n";
    for line in [
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / HTTP/1.01",
        "GET / HTTP/2.0",
        "get / http/1.1",
        "GET /",
        "no HTTP at all",
        &format!("{} / HTTP/1.1", "M".repeat(40)),
    ] {
        assert_eq!(through(&format!("{line}\r\n{host}")), b"", "{line}");
        assert_eq!(through(&format!("\r\n{line}\nX: y\n{host}")), b"", "{line}");
    }
    for ask in [
        "GET  http://bad.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "GET / HTTP/1.1\rHost: bad.example\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\r\nHost: bad.example\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\rHost: bad.example\r\n\r\n",
        "Host: bad.example\r\n\r\n",
        "POST /\x0bx HTTP/1.1\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        "POST /\0 HTTP/1.1\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: bad.example\r\n\r\n",
    ] {
        assert_eq!(through(ask), b"", "{ask:?}");
    }
    let spaces = " ".repeat(300);
    assert_eq!(through(&format!("GET / HTTP/1.1\r\nHost:\r\n{spaces}bad.example\r\n\r\n")), b"");
}

/// A second request hides behind a first one, and servers may disagree about where the first one ends.
#[test]
fn a_request_that_hides_behind_another_is_found() {
    let ask = "GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n";
    let long = format!("GET /{} HTTP/1.1\r\nHost: bad.example\r\n\r\n", "x".repeat(300));
    for head in [
        "Content-Length: 0000000000000000\r\n\r\n",
        &format!("Content-Length: {}1000\r\n\r\n", "0".repeat(300)),
        "Content-Length : 1000\r\n\r\n",
        "Content-Length: 1000\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 1000\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n3e8\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3e8\r0\r\n\r\n",
        "Content-Length: 1000\r\n \r\n\r\n",
        "Content-Length: 1000\r\n\r\r\n\r\n",
        "Upgrade: none\r\n\r\n",
    ] {
        for ask in [ask, &long] {
            let all = format!("GET / HTTP/1.1\r\nHost: good.example\r\n{head}{ask}");
            let reached = through(&all);
            assert!(!reached.ends_with(b"bad.example\r\n\r\n"), "{all:?}");
            assert!(reached.is_empty(), "it came in one piece: {all:?}");
        }
    }
    let refused = format!("CONNECT good.example HTTP/1.1\r\n\r\n{ask}");
    assert_eq!(through(&refused), b"");
}

/// Whether `at` lies within a request's head.
fn undecided(requests: &[Vec<u8>], at: usize) -> bool {
    let mut start = 0;
    for text in requests {
        let end = |of: &[u8]| text.windows(of.len()).position(|some| some == of).map(|at| at + of.len());
        let head = [end(b"\r\n\r\n"), end(b"\n\n")].into_iter().flatten().min().expect("each head ends");
        if (start + 1..start + head).contains(&at) {
            return true;
        }
        start += text.len();
    }
    false
}

#[test]
fn a_body_goes_on_as_it_comes() {
    // Neither a line of the body nor the body itself ends.
    for head in ["Content-Length: 1000", "Upgrade: something", "Content-Length: x"] {
        let all = format!("POST / HTTP/1.1\r\nHost: good.example\r\n{head}\r\n\r\nso far");
        assert_eq!(through(&all), all.as_bytes());
    }
}

#[test]
fn a_request_that_never_ends_goes_nowhere() {
    assert_eq!(through("GET / HTTP/1.1\r\nHost: good.example\r\n"), b"");
    let long = format!("GET / HTTP/1.1\r\n{}Host: bad.example\r\n\r\n", "X: y\r\n".repeat(1_000));
    let mut frames = open(1_000, 100).to_vec();
    for (number, part) in long.as_bytes().chunks(1_000).enumerate() {
        frames.push(client(1_000, 100 + 1_000 * number as u32, 500, ACK, part));
    }
    let reached =
        reached(&run_configured(http_block, blocking(&["bad.example"]), frames)).remove(&1_000).unwrap();
    assert!(reached.len() < long.len() - 21, "its server never sees the host");
    assert_eq!(reached, long.as_bytes()[..reached.len()]);
}

#[test]
fn other_traffic_passes_and_midstream_connections_do_not() {
    let port = HttpInspectConfig { ports: vec![4_242], ..blocking(&["bad.example"]) };
    for (name, frame) in kinds::every().into_iter().filter(|(name, _)| *name != "runt") {
        let out = run_configured(http_block, port.clone(), [frame.clone()]).out;
        assert!(out == [frame], "{name} does not pass unchanged");
    }
    let ask = b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let report = run_configured(http_block, blocking(&["bad.example"]), [client(1_000, 100, 500, ACK, ask)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (0, 1));
    // The table is full of connections that were opened properly.
    let full = (0..9).flat_map(|number| open(1_000 + number, 100));
    let report = run_configured(http_block, blocking(&["bad.example"]), full);
    assert_eq!((report.out.len(), report.dropped(DropReason::TableFull)), (24, 1));
}
