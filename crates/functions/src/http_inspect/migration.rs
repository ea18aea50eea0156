//! Tests of requests that move between two workers while they are incomplete.
//!
//! The requests that are found and the bytes that reach servers are the same as without moves. State from
//! elsewhere is accepted only if it can be true.

use std::collections::BTreeMap;

use netbricks_core::packet::tcp::flags;
use netbricks_stream::Kept;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use super::parse::Found;
use super::reading::Reading;
use super::tests::{Sent, request};
use crate::shuffle::two_workers::{Two, by_name};

/// The items that a parser finds in these pieces.
///
/// When `moves` returns true, the parser is packed and replaced by the one that is unpacked from its image.
fn found<const WARY: bool>(pieces: &[&[u8]], mut moves: impl FnMut() -> bool) -> Vec<String> {
    let (mut reading, mut all) = (Reading::<WARY>::default(), Vec::new());
    let mut note = |found: Found<'_>| all.push(format!("{found:?}"));
    for piece in pieces {
        if moves() {
            let mut image = Vec::new();
            reading.pack(&mut image);
            let held = reading.parser().is_in_head();
            reading = Reading::unpack(&image).expect("it was packed like that");
            assert_eq!(reading.parser().is_in_head(), held);
        }
        match piece.strip_prefix(b"~") {
            Some(lost) if !WARY => reading.parser().gap(lost.len() as u64 + 1, &mut note),
            _ => reading.parser().feed(piece, &mut note),
        }
    }
    reading.parser().end(&mut note);
    all
}

/// Valid requests, and all sorts of invalid lines.
fn text(random: &mut Random) -> Vec<u8> {
    const LINES: [&str; 15] = [
        "GET / HTTP/1.1\r\n",
        "CONNECT a:443 HTTP/1.1\r\n",
        "Host: example.org\r\n",
        "HOST :  b.test\r",
        "Content-Length: 9\r\n",
        "Content-Length: 7\n",
        "Transfer-Encoding: chunked\r\n",
        "Upgrade: x\r\n",
        "\r\n",
        "\n",
        "a\r\n0123456789\r\n",
        "0\r\n",
        "~~~\r\n",
        "   \t",
        "\r",
    ];
    let mut text = Vec::new();
    for _ in 0..random.below(24) {
        match random.below(8) {
            0 => text.extend(request(random).text),
            1 => text.extend([b'x'; 300]),
            _ => text.extend(LINES[random.below(LINES.len())].as_bytes()),
        }
    }
    text
}

fn compare<const WARY: bool>(seed: u64) -> Result<(), TestCaseError> {
    let mut random = Random::new(seed);
    let text = text(&mut random);
    let (mut pieces, mut rest) = (Vec::new(), &text[..]);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(1 + random.below(40)));
        pieces.push(piece);
        rest = more;
    }
    let alone = found::<WARY>(&pieces, || false);
    prop_assert_eq!(found::<WARY>(&pieces, || random.below(3) == 0), alone);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_move_does_not_change_the_findings(seed: u64) {
        compare::<false>(seed)?;
        compare::<true>(seed)?;
    }

    /// An image that is accepted is a possible parser: it packs to the same bytes, and reads on.
    #[test]
    fn images_that_none_can_be_are_refused(seed: u64) {
        hostile::<false>(seed)?;
        hostile::<true>(seed)?;
    }
}

fn hostile<const WARY: bool>(seed: u64) -> Result<(), TestCaseError> {
    let mut random = Random::new(seed);
    let (mut reading, mut image) = (Reading::<WARY>::default(), Vec::new());
    reading.parser().feed(&text(&mut random), |_| ());
    reading.pack(&mut image);
    prop_assert!(Reading::<WARY>::unpack(&image).is_some());
    // A parser is wary or not by its configuration, never by an image.
    match WARY {
        true => prop_assert!(Reading::<false>::unpack(&image).is_none()),
        false => prop_assert!(Reading::<true>::unpack(&image).is_none()),
    }
    prop_assert!(Reading::<WARY>::unpack(&[&image[..], b"\0"].concat()).is_none());
    for at in 0..image.len() {
        prop_assert!(Reading::<WARY>::unpack(&image[..at]).is_none(), "{} bytes", at);
        for bit in 0..8 {
            let mut broken = image.clone();
            broken[at] ^= 1 << bit;
            let Some(mut other) = Reading::<WARY>::unpack(&broken) else { continue };
            let mut again = Vec::new();
            other.pack(&mut again);
            prop_assert_eq!(&again, &broken);
            other.parser().gap(1 << 40, |_| ());
            other.parser().feed(b"x\r\n\r\nGET / HTTP/1.1\r\n\r\n", |_| ());
            other.parser().end(|_| ());
        }
    }
    Ok(())
}

/// A wary parser refuses an image that would make it pass bytes unread.
#[test]
fn a_wary_parser_refuses_images_that_skip_bytes() {
    let image = |said: &[u8]| {
        let (mut parser, mut image) = (Reading::<true>::default(), Vec::new());
        parser.parser().feed(said, |_| ());
        parser.pack(&mut image);
        image
    };
    let with = |at: usize, byte: u8, image: &[u8]| {
        let mut image = image.to_vec();
        image[at] = byte;
        Reading::<true>::unpack(&image).is_some()
    };
    let start = image(b"");
    assert!(with(2, 1, &start) && with(2, 7, &start));
    assert!(!with(2, 8, &start), "a tunnel");
    assert!(!with(2, 9, &start), "no phase");
    assert!(!with(2, 3, &start), "a body of which nothing is left");
    let body = image(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123");
    assert!(with(1, body[1], &body) && with(10, 200, &body));
    assert!(!with(1, body[1] | 2, &body), "in doubt");
    assert!(!with(3, 0x10, &body), "more than can be said");
    assert!(!with(1, body[1] | 32, &body), "no flag");
    assert!(!with(0, 2, &body), "another version");
}

const CLIENTS: u16 = 24;

fn segment(
    port: u16,
    from_server: bool,
    [number, acknowledged]: [u32; 2],
    flag: u8,
    bytes: &[u8],
) -> Vec<u8> {
    let tcp = match from_server {
        false => ethernet().ipv4("10.0.0.1", "10.9.8.7").tcp(port, 80),
        true => ethernet().ipv4("10.9.8.7", "10.0.0.1").tcp(80, port),
    };
    tcp.sequence(number).ack(acknowledged).flags(flag).window(60_000).payload(bytes).build().unwrap()
}

/// The output of two workers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    /// Frames of each connection, in order.
    frames: BTreeMap<u16, Vec<Vec<u8>>>,
    /// Counts by host, of both workers together.
    hosts: BTreeMap<String, u64>,
}

/// Sends all frames, round by round, through two workers with `settings`, while buckets move if `moving` is
/// given.
///
/// Returns the output, and how often buckets moved.
fn through(settings: &str, rounds: &[Vec<Vec<u8>>], mut moving: Option<Random>) -> (Came, usize) {
    let (mut two, mut came, mut moves) = (Two::new(&by_name("http-inspect", settings)), Came::default(), 0);
    let mut frames = Vec::new();
    for round in rounds {
        if let Some(random) = &mut moving
            && two.graphs[0].call("shuffle", "moving", "").unwrap() == "0"
        {
            let first = random.below(4_096);
            let last = first + random.below(4_096 - first);
            let moved = format!("{first}-{last} {}", random.below(2));
            moves += usize::from(two.graphs[0].call("shuffle", "move", &moved).unwrap() != "0");
        }
        frames.extend(two.exchange(round.clone(), 2));
    }
    frames.extend(two.exchange(Vec::new(), 20));
    for (_, frame) in frames {
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let client = if port(34) == 80 { port(36) } else { port(34) };
        came.frames.entry(client).or_default().push(frame);
    }
    for graph in &mut two.graphs {
        assert_eq!(graph.call("shuffle", "refused", "").unwrap(), "0");
        assert_eq!(graph.call("shuffle", "moving", "").unwrap(), "0");
        let sections = graph.reports().into_iter().flat_map(|(_, sections)| sections);
        for section in sections.filter(|section| section.title == "requests by host") {
            for row in section.rows {
                *came.hosts.entry(row[0].clone()).or_default() += row[1].parse::<u64>().unwrap();
            }
        }
    }
    (came, moves)
}

/// The bytes of a connection that reached its server; each of them must come once.
fn reached(frames: &[Vec<u8>], first: u32) -> Vec<u8> {
    let mut all = Vec::new();
    for frame in frames.iter().filter(|frame| frame[36..38] == [0, 80]) {
        let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        let bytes = &frame[34 + usize::from(frame[46] >> 4) * 4..];
        // An old byte only asks for an acknowledgment, so it is skipped.
        if number == first.wrapping_add(all.len() as u32) {
            all.extend_from_slice(bytes);
        } else {
            assert!(bytes.len() <= 1, "all of it in order");
        }
    }
    all
}

/// The first sequence number of each client, and its requests.
type Asked = BTreeMap<u16, (u32, Vec<Sent>)>;

/// Requests of many clients, cut anywhere; some segments are out of order.
fn conversation(random: &mut Random) -> (Asked, Vec<Vec<Vec<u8>>>) {
    let (mut all, mut rounds) = (Asked::new(), vec![Vec::new(); 3]);
    let mut left = BTreeMap::new();
    for port in 1_000..1_000 + CLIENTS {
        let first = random.next() as u32;
        rounds[0].push(segment(port, false, [first.wrapping_sub(1), 0], flags::SYN, b""));
        rounds[1].push(segment(port, true, [499, first], flags::SYN | flags::ACK, b""));
        rounds[2].push(segment(port, false, [first, 500], flags::ACK, b""));
        let requests: Vec<Sent> = (0..1 + random.below(20)).map(|_| request(random)).collect();
        left.insert(port, (0, requests.iter().flat_map(|request| request.text.clone()).collect::<Vec<u8>>()));
        all.insert(port, (first, requests));
    }
    while !left.is_empty() {
        let mut round = Vec::new();
        left.retain(|port, (at, text)| {
            let from = *at;
            *at = text.len().min(from + 1 + random.below(60));
            let number = all[port].0.wrapping_add(from as u32);
            round.push(segment(*port, false, [number, 500], flags::ACK, &text[from..*at]));
            *at < text.len()
        });
        // One segment comes a round later.
        if let Some(last) = rounds.last_mut().filter(|_| random.below(3) == 0)
            && last.len() > 1
            && last[0].len() > 60
        {
            let late = last.swap_remove(random.below(last.len()));
            round.push(late);
        }
        rounds.push(round);
    }
    (all, rounds)
}

#[test]
fn requests_that_move_in_the_middle_are_found_once() {
    let mut all_moves = 0;
    for seed in 1..9 {
        let mut random = Random::new(seed);
        let (all, rounds) = conversation(&mut random);
        let settings = "flows = 64";
        let (alone, _) = through(settings, &rounds, None);
        let (came, moves) = through(settings, &rounds, Some(random));
        all_moves += moves;
        assert_eq!(came.frames, alone.frames);
        let mut hosts = BTreeMap::new();
        for (_, requests) in all.values() {
            requests.iter().for_each(|request| *hosts.entry(request.host.clone()).or_default() += 1);
        }
        assert_eq!(came.hosts, hosts);
        assert_eq!(alone.hosts, hosts);
    }
    assert!(all_moves > 200, "{all_moves}");
}

#[test]
fn nothing_of_a_blocked_request_reaches_its_server_by_a_move() {
    let mut all_moves = 0;
    for seed in 1..9 {
        let mut random = Random::new(seed);
        let (all, rounds) = conversation(&mut random);
        let settings = "flows = 64\nblock = [\"test\"]";
        let (alone, _) = through(settings, &rounds, None);
        let (came, moves) = through(settings, &rounds, Some(random));
        all_moves += moves;
        let mut cut = 0;
        for (port, (first, requests)) in &all {
            let blocked = requests.iter().position(|request| request.host == "b.test");
            cut += u64::from(blocked.is_some());
            let before: Vec<u8> = requests[..blocked.unwrap_or(requests.len())]
                .iter()
                .flat_map(|request| request.text.clone())
                .collect();
            let reached = reached(&came.frames[port], *first);
            match blocked {
                Some(_) => assert!(before.starts_with(&reached), "{port}"),
                None => assert!(before == reached, "{port}: {} of {}", reached.len(), before.len()),
            }
        }
        assert!(cut > 5 && cut < u64::from(CLIENTS), "{cut}");
        assert_eq!(came.hosts["b.test"], cut, "each once");
        assert_eq!(came.hosts, alone.hosts);
        assert_eq!(came.frames, alone.frames, "as if they had never moved");
    }
    assert!(all_moves > 200, "{all_moves}");
}
