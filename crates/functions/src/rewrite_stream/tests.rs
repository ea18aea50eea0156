use netbricks_core::buffer::Batch;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp, TcpOption, checksum};
use netbricks_core::{Context, DropReason, Node, NodeState, Poll, Settings, Shape, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{kinds, run_configured, run_node};

use super::{From, RewriteStreamConfig, rewrite_stream};

/// A TCP segment as it left: from the server or not, number, acknowledgment, flags, bytes.
#[derive(Debug, PartialEq, Eq)]
struct Left(bool, u32, u32, u8, String);

/// Reads a frame, and checks everything that a receiver would check.
fn read(frame: &[u8]) -> Left {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).unwrap(), frame).unwrap();
    let tcp = Layer::<_, Tcp>::parse(ip, frame).unwrap();
    let (at, facts) = ip.top();
    let header = Ip::view(&frame[at..ip.end()], facts);
    let (source, destination) = (header.source(), header.destination());
    assert_eq!(ip.limit(frame.len()), frame.len(), "its length field says what it has");
    if source.is_ipv4() {
        assert_eq!(checksum::internet(&frame[at..ip.end()]), 0);
    }
    assert_eq!(checksum::is_valid(source, destination, 6, &frame[ip.end()..]), Some(true));
    let header = Tcp::view(&frame[ip.end()..tcp.end()], ());
    let text = String::from_utf8_lossy(&frame[tcp.end()..]).into_owned();
    Left(
        header.source_port() == 80,
        header.sequence_number(),
        header.acknowledgment_number(),
        header.flags(),
        text,
    )
}

fn client(sequence: u32, acknowledged: u32, flag: u8, text: &str) -> Vec<u8> {
    let tcp = ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(sequence);
    let tcp = tcp.ack(acknowledged).flags(flag).timestamps(7, 8);
    let tcp = if flag & flags::SYN != 0 { tcp.maximum_segment_size(32).sack_permitted() } else { tcp };
    tcp.payload(text.as_bytes()).build().unwrap()
}
fn server(sequence: u32, acknowledged: u32, flag: u8, text: &str) -> Vec<u8> {
    let tcp = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(sequence);
    let tcp = tcp.ack(acknowledged).flags(flag);
    let tcp = if flag & flags::SYN != 0 { tcp.maximum_segment_size(1_400).sack_permitted() } else { tcp };
    tcp.payload(text.as_bytes()).build().unwrap()
}

/// The blocks of a frame's selective acknowledgment.
fn blocks(frame: &[u8]) -> Vec<(u32, u32)> {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).unwrap(), frame).unwrap();
    let tcp = Layer::<_, Tcp>::parse(ip, frame).unwrap();
    let header = Tcp::view(&frame[ip.end()..tcp.end()], ());
    let mut all = header.options().flatten();
    all.find_map(|option| match option {
        TcpOption::Sack(blocks) => Some(blocks.iter().collect()),
        _ => None,
    })
    .unwrap_or_default()
}

const ACK: u8 = flags::ACK;
const PUSH: u8 = flags::ACK | flags::PSH;

#[test]
fn a_string_is_replaced_wherever_segments_cut_it_and_numbers_follow() {
    let frames = [
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        client(100, 500, ACK, "GET cat"),
        server(500, 107, ACK, "one c"),
        server(505, 107, PUSH, "at, two cats"),
        // The client has "one ", then a part of an elephant, then bytes that were never sent, then all bytes.
        client(107, 504, ACK, ""),
        client(107, 507, ACK, ""),
        client(107, 999, ACK, ""),
        client(107, 527, ACK, ""),
        server(517, 107, flags::FIN | ACK, "!"),
        client(107, 529, ACK, ""),
        client(107, 529, flags::FIN | ACK, ""),
        server(519, 108, ACK, ""),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "elephant"), frames);
    let left: Vec<Left> = report.out.iter().map(|frame| read(frame)).collect();
    let said = |server, number, acknowledged, flag, text: &str| {
        Left(server, number, acknowledged, flag, text.into())
    };
    assert_eq!(
        left,
        [
            said(false, 99, 0, flags::SYN, ""),
            said(true, 499, 100, flags::SYN | ACK, ""),
            said(false, 100, 500, ACK, "GET cat"),
            said(true, 500, 107, ACK, "one "),
            // No larger than the client accepts.
            said(true, 504, 107, PUSH, "elephant, two elephants"),
            said(false, 107, 504, ACK, ""),
            said(false, 107, 504, ACK, ""),
            said(false, 107, 504, ACK, ""),
            said(false, 107, 517, ACK, ""),
            said(true, 527, 107, flags::FIN | ACK, "!"),
            said(false, 107, 519, ACK, ""),
            said(false, 107, 519, flags::FIN | ACK, ""),
            said(true, 529, 108, ACK, ""),
        ]
    );
    assert_eq!(report.dropped(DropReason::Replaced), 13);
}

#[test]
fn retransmissions_are_answered_with_the_same_bytes_in_small_enough_segments() {
    let frames = [
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        server(500, 100, PUSH, "cat cat cat cat cat "),
        server(500, 100, PUSH, "dog dog dog dog dog "),
        client(100, 509, ACK, ""),
        server(504, 100, PUSH, "cat cat cat cat "),
    ];
    let config = RewriteStreamConfig { from: From::Both, ..RewriteStreamConfig::new("cat", "elephant") };
    let report = run_configured(rewrite_stream, config, frames);
    let left: Vec<Left> = report.out.iter().map(|frame| read(frame)).collect();
    // A client can ask for segments of as little as 32 bytes, but 48 bytes are sent at least.
    let texts: Vec<&str> = left.iter().map(|left| left.4.as_str()).collect();
    let (all, rest) =
        ("elephant elephant elephant elephant elephant ", "elephant elephant elephant elephant ");
    assert_eq!(texts, ["", "", all, all, "", rest]);
    assert_eq!((left[4].2, left[5].1), (504, 509));
}

#[test]
fn selective_acknowledgments_are_of_what_was_sent() {
    let has = |acknowledged, blocks: &[(u32, u32)]| {
        let tcp = ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(100);
        let tcp = tcp.ack(acknowledged).timestamps(7, 8).selective_acknowledgment(blocks);
        tcp.build().unwrap()
    };
    let frames = [
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        server(500, 100, ACK, "dog cat dog cat dog "),
        // Of the output it has "dog" and all but the first byte of an elephant and "dog"; then all; then
        // bytes that were never sent.
        has(500, &[(505, 517)]),
        has(500, &[(504, 517), (521, 530)]),
        has(500, &[(504, 600), (520, 510), (499, 500)]),
        // A block that came twice, and one of one byte, which may have been requested.
        has(504, &[(500, 504), (513, 517)]),
        has(504, &[(503, 504)]),
        // Bytes of the server that wait here for bytes before them.
        server(523, 100, ACK, "fox"),
        client(100, 504, ACK, ""),
        has(504, &[(503, 504), (513, 517)]),
        server(530, 100, ACK, "hen"),
        client(100, 504, ACK, ""),
        // It has the first elephant. For the bytes before that, it is no longer known which input they came
        // from.
        has(517, &[(505, 512)]),
        has(517, &[(513, 517)]),
        // This acknowledgment is late; its blocks were reported before.
        has(504, &[(512, 517)]),
        // It has all bytes, and the server sends them again.
        client(100, 530, ACK, ""),
        server(500, 100, ACK, "dog cat dog "),
        client(100, 530, ACK, ""),
        client(100, 530, ACK, ""),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "elephant"), frames);
    let left: Vec<_> = report.out.iter().filter(|frame| !read(frame).0).map(|frame| blocks(frame)).collect();
    assert_eq!(
        left,
        [
            vec![],
            vec![(507, 512)],
            vec![(504, 512), (515, 520)],
            vec![],
            vec![(500, 504), (508, 512)],
            vec![],
            vec![(523, 526)],
            vec![(523, 526), (508, 512)],
            vec![(530, 533), (523, 526)],
            vec![(530, 533), (523, 526)],
            vec![(508, 512), (530, 533), (523, 526)],
            vec![(530, 533), (523, 526)],
            vec![(530, 533), (523, 526)],
            vec![(500, 512), (530, 533), (523, 526)],
            vec![(530, 533), (523, 526)],
        ]
    );
}

#[test]
fn other_traffic_passes_unchanged() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("a", "b"), frames.clone());
    assert_eq!(report.out, frames);
    // A connection whose beginning it has not seen is not rewritten, either.
    let frames = [server(500, 100, PUSH, "cat"), client(100, 503, ACK, "cat")];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "b"), frames.clone());
    assert_eq!(report.out, frames);
}

/// More bytes than a batch may make, at 1, 32 and 256 packets a batch: the run compares the output.
#[test]
fn all_replaced_bytes_go_on_at_every_batch_size() {
    const LONGER: usize = 128;
    let mut frames = vec![client(99, 0, flags::SYN, ""), server(499, 100, flags::SYN | ACK, "")];
    for segment in 0..8 {
        frames.push(server(500 + 40 * segment, 100, PUSH, &"a".repeat(40)));
    }
    // The sender sends its last segment again and again until all is acknowledged.
    frames.extend((0..700).map(|_| server(500 + 280, 100, PUSH, &"a".repeat(40))));
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("a", &"x".repeat(LONGER)), frames);
    let mut known = 0;
    for Left(from_server, number, .., text) in report.out.iter().map(|frame| read(frame)) {
        if from_server && !text.is_empty() {
            let at = number.wrapping_sub(500) as usize;
            assert!(at <= known, "a hole before {at}");
            known = known.max(at + text.len());
        }
    }
    assert_eq!(known, 8 * 40 * LONGER);
    assert_eq!(report.dropped(DropReason::RateLimited) + report.dropped(DropReason::PoolExhausted), 0);
}

/// The first fragment of a segment, with more to come.
fn fragment(mut frame: Vec<u8>) -> Vec<u8> {
    frame[20..22].copy_from_slice(&0x2000u16.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_fragment_of_a_rewritten_connection_does_not_pass_with_old_numbers() {
    let cut = fragment(server(503, 100, PUSH, "cats and dogs"));
    let frames = [
        cut.clone(),
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        server(500, 100, PUSH, "cat"),
        cut.clone(),
        server(503, 100, PUSH, "cats and dogs"),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "elephant"), frames);
    assert_eq!(report.out[0], cut, "its connection is not known");
    let left: Vec<_> = report.out[1..].iter().map(|frame| read(frame)).map(|left| (left.1, left.4)).collect();
    let said = |number, text: &str| (number, text.to_string());
    assert_eq!(left, [said(99, ""), said(499, ""), said(500, "elephant"), said(508, "elephants and dogs")]);
    assert_eq!((report.dropped(DropReason::Fragment), report.dropped(DropReason::Replaced)), (1, 4));
}

/// The end of a frame's urgent data, if it has any.
fn urgent(frame: &[u8]) -> Option<u16> {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).unwrap(), frame).unwrap();
    let tcp = Layer::<_, Tcp>::parse(ip, frame).unwrap();
    let header = Tcp::view(&frame[ip.end()..tcp.end()], ());
    let says = header.flags() & flags::URG != 0;
    assert!(says || header.urgent_pointer() == 0);
    says.then(|| header.urgent_pointer())
}

#[test]
fn an_urgent_byte_is_taken_out_and_no_segment_says_any_more_where_one_is() {
    let points = |sequence: u32, pointer: u16, text: &str| {
        let tcp = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(sequence).ack(100).psh();
        tcp.urgent_pointer(pointer).payload(text.as_bytes()).build().unwrap()
    };
    let stranger = points(500, 2, "a!cat");
    let frames = [
        // A connection that is not rewritten.
        stranger.clone(),
        client(99, 0, flags::SYN | flags::URG, ""),
        server(499, 100, flags::SYN | ACK, ""),
        // Nothing to replace; a byte before an occurrence, in the middle of it, and behind it.
        points(500, 1, "!"),
        points(501, 3, "dog"),
        points(504, 1, "!cat"),
        points(508, 2, "cX"),
        server(510, 100, ACK, "at"),
        // More than a segment may have, and the same bytes again.
        points(512, 1, "!cat cat cat cat cat cat"),
        points(512, 1, "!cat cat cat cat cat cat"),
        // The urgent byte is announced, but never comes.
        points(536, 9, ""),
        client(100, 500, ACK | flags::URG, "GET"),
        server(536, 103, flags::FIN | PUSH | flags::URG, "!"),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "elephant"), frames);
    assert_eq!((&report.out[0], urgent(&report.out[0])), (&stranger, Some(2)));
    for frame in &report.out[1..] {
        assert_eq!(urgent(frame), None, "{:?}", read(frame));
    }
    let (mut stream, mut again) = (String::new(), 0);
    for Left(from_server, number, _, flag, text) in report.out[1..].iter().map(|frame| read(frame)) {
        if from_server && flag & flags::SYN == 0 {
            let at = number.wrapping_sub(500) as usize;
            if at == u32::MAX as usize {
                // An old byte, where nothing is left of a segment, only asks for an acknowledgment.
                continue;
            }
            assert!(at <= stream.len(), "a hole before {at}");
            let known = (stream.len() - at).min(text.len());
            assert_eq!(text[..known], stream[at..at + known], "it says the same again");
            again += known;
            stream += &text[known..];
        }
    }
    let long = ["elephant"; 6].join(" ");
    assert_eq!(stream, format!("doelephantelephant{long}!"));
    assert_eq!(again, long.len());
}

#[test]
fn settings_that_do_not_do_are_named() {
    let refused = |text: &str| {
        let text = format!("{text}\n");
        toml::from_str::<RewriteStreamConfig>(&text).unwrap().check().unwrap_err().to_string()
    };
    assert!(
        refused("find = \"\"\nreplace = \"a\"")
            .starts_with("`find` cannot be: the string to look for is empty")
    );
    let long =
        format!("find = \"abcdefghijklmnopqrstuvwxyz0123456789\"\nreplace = \"{}\"", "x".repeat(4_097));
    assert!(refused(&long).starts_with("`replace` cannot be: 4097 bytes are too many"), "{}", refused(&long));
    let longer = format!("find = \"a\"\nreplace = \"{}\"", "x".repeat(129));
    assert!(refused(&longer).starts_with("`replace` must be at most 128 times as long as `find`"));
    let with = |more: &str| refused(&format!("find = \"a\"\nreplace = \"b\"\n{more}"));
    assert_eq!(with("ports = []"), "`ports` must be 1 to 16 ports from 1 to 65535, found []");
    assert_eq!(with("flows = 0"), "`flows` must be 1 to 1,048,576 connections, found 0");
    assert_eq!(with("memory = 5"), "`memory` must be 1,048,576 to 17,179,869,184 bytes, found 5");
    assert_eq!(with("idle = \"1 ms\""), "`idle` must be \"1 s\" to \"7 d\", found \"1 ms\"");
    assert!(toml::from_str::<RewriteStreamConfig>("find = \"a\"").is_err(), "`replace` must be given");
    assert!(
        toml::from_str::<RewriteStreamConfig>("find = \"a\"\nreplace = \"\"\nfrom = \"middle\"").is_err()
    );
}

/// A frame whose TCP payload was changed after its sender's checksum was made.
fn corrupted(mut frame: Vec<u8>) -> Vec<u8> {
    let last = frame.len() - 1;
    frame[last] ^= 0x20;
    frame
}

#[test]
fn a_corrupted_segment_is_dropped_and_its_retransmission_goes_on() {
    let frames = [
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        corrupted(server(500, 100, PUSH, "one cat")),
        server(500, 100, PUSH, "one cat"),
        // The wrong bytes may also be the sequence numbers.
        corrupted(client(100, 507, ACK, "x")),
        corrupted(server(507, 100, flags::RST | ACK, "gone")),
        server(507, 100, PUSH, "!"),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "dog"), frames);
    let left: String = report.out.iter().map(|frame| read(frame).4).collect();
    assert_eq!((left.as_str(), report.dropped(DropReason::BadChecksum)), ("one dog!", 3));
}

#[test]
fn a_corrupted_segment_of_a_connection_that_is_not_rewritten_goes_on_as_it_came() {
    let frames =
        [corrupted(client(100, 500, ACK, "in the middle")), corrupted(client(99, 0, flags::SYN, "x"))];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "dog"), frames.clone());
    assert_eq!(report.out, frames);
}

#[test]
fn a_checksum_that_was_left_to_a_device_when_the_frame_was_captured_counts_as_right() {
    let mut offloaded = server(500, 100, PUSH, "one cat");
    let pseudo = checksum::Sum::ZERO.add_pseudo([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 6, 27).fold();
    offloaded[14 + 20 + 16..][..2].copy_from_slice(&pseudo.to_be_bytes());
    let frames = [client(99, 0, flags::SYN, ""), server(499, 100, flags::SYN | ACK, ""), offloaded];
    let config = RewriteStreamConfig::new("cat", "dog");
    let replayed = run_node(
        |worker| {
            let config = RewriteStreamConfig::new("cat", "dog");
            let node = compose(worker, |input| rewrite_stream(input, &config, worker))?;
            Ok(Box::new(Replayed(node)))
        },
        frames.clone(),
    );
    assert_eq!(read(&replayed.out[2]).4, "one dog");
    // A live port says which checksums were left to a device: on its wire this one is wrong.
    let live = run_configured(rewrite_stream, config, frames);
    assert_eq!((live.out.len(), live.dropped(DropReason::BadChecksum)), (2, 1));
}

/// A node whose packets come from a capture.
struct Replayed(Box<dyn Node>);

impl Node for Replayed {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        batch.each_packet(|_, packet| packet.set_captured());
        self.0.process(input, batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.0.poll(batch, cx)
    }
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        self.0.with_state(ask);
    }
}

#[test]
fn a_fragment_with_a_part_of_the_header_of_a_rewritten_connection_does_not_pass() {
    let cut = |frame: Vec<u8>| {
        let mut frame = fragment(frame);
        frame.truncate(14 + 20 + 16);
        frame[16..18].copy_from_slice(&36u16.to_be_bytes());
        frame
    };
    let frames = [
        cut(server(503, 100, PUSH, "before it opens")),
        client(99, 0, flags::SYN, ""),
        server(499, 100, flags::SYN | ACK, ""),
        cut(server(500, 100, PUSH, "cats and dogs")),
    ];
    let report = run_configured(rewrite_stream, RewriteStreamConfig::new("cat", "dog"), frames.clone());
    assert_eq!((report.out.len(), report.dropped(DropReason::Fragment)), (3, 1));
    assert_eq!(report.out[0], frames[0]);
}
