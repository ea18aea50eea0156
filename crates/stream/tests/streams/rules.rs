//! The deliveries for each kind of segment.

use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    AdvertisedWindow, Arrival, BLOCK, End, Full, Overlap, Reassembler, Segment, Side, StreamConfig,
    StreamError, What,
};

use super::exercise::{flow, segment};

/// Records deliveries as text: bytes as they are, `<3>` for a gap, `.finished` for an end; the server's in
/// brackets.
pub(crate) struct Heard {
    pub(crate) streams: Reassembler<Tcp>,
    now: u64,
}

impl Heard {
    pub(crate) fn new(config: StreamConfig) -> Self {
        Self { streams: Reassembler::new(config).expect("these bounds are possible"), now: 0 }
    }
    pub(crate) fn push(&mut self, flow: FlowKey, segment: Segment<'_>) -> (Arrival, String) {
        let mut text = String::new();
        let arrival = self.streams.push(flow, segment, self.now, |told| {
            let what = match told.what {
                What::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                What::Gap(missing) => format!("<{missing}>"),
                What::Urgent(byte) => format!("({})", char::from(byte)),
                What::End(end) => format!(".{}", end.name()),
            };
            text += &if told.side == Side::Server { format!("[{what}]") } else { what };
        });
        (arrival, text)
    }
    pub(crate) fn told(&mut self, flow: FlowKey, segment: Segment<'_>) -> String {
        self.push(flow, segment).1
    }
}

pub(crate) fn syn(number: u32) -> Segment<'static> {
    Segment { opens: true, ..segment(number, b"") }
}
pub(crate) fn fin(number: u32, bytes: &[u8]) -> Segment<'_> {
    Segment { ends: true, ..segment(number, bytes) }
}
pub(crate) fn rst(number: u32) -> Segment<'static> {
    Segment { aborts: true, ..segment(number, b"") }
}
pub(crate) fn ack(number: u32, acknowledged: u32) -> Segment<'static> {
    Segment { acknowledges: Some(u64::from(acknowledged)), ..segment(number, b"") }
}

#[test]
fn a_connection_from_its_beginning_to_its_end() {
    let (client, server) = (flow(1), flow(1).reversed());
    let mut heard = Heard::new(StreamConfig::default());
    assert_eq!(heard.told(client, syn(u32::MAX)), "");
    assert_eq!(heard.told(server, Segment { answers: true, ..syn(500) }), "");
    assert_eq!(heard.streams.side(server), Some((0, Side::Server)));
    assert_eq!(heard.told(client, segment(u32::MAX, b"ask")), "ask");
    assert_eq!(heard.push(client, syn(u32::MAX)), (Arrival::InOrder, String::new()), "its SYN again");
    assert_eq!(heard.told(server, segment(500, b"answer")), "[answer]");
    assert_eq!(
        heard.push(client, segment(1, b"k")),
        (Arrival::Old, String::new()),
        "a keep-alive's old byte"
    );
    assert_eq!(heard.told(client, segment(1, b"")), "", "a keep-alive without one");
    assert_eq!(heard.told(server, fin(508, b"!")), "", "before it something is missing");
    assert_eq!(heard.told(server, segment(510, b"beyond")), "", "behind the end is nothing");
    assert_eq!(heard.told(server, segment(506, b"ed")), "[ed][!][.finished]");
    assert_eq!(heard.told(client, fin(2, b"")), ".finished");
    assert_eq!(heard.push(client, fin(2, b"")), (Arrival::Ignored, String::new()));
    // An end that comes with known bytes still counts.
    heard.told(flow(9), segment(5, b"known"));
    assert_eq!(heard.push(flow(9), fin(6, b"nown")), (Arrival::Old, ".finished".into()));
    // The same ports again.
    assert_eq!(heard.told(client, syn(77)), "");
    assert_eq!(heard.told(client, segment(77, b"new")), "new");
    assert_eq!(heard.streams.counters().connections, 3);
}

#[test]
fn half_a_connection_is_followed_from_what_is_seen_first() {
    let mut heard = Heard::new(StreamConfig::default());
    assert_eq!(heard.told(flow(1), segment(1_000, b"in the middle")), "in the middle");
    assert_eq!(heard.told(flow(1), segment(990, b"before: old, in")), "", "what came before is not known");
    assert_eq!(heard.told(flow(1), segment(1_013, b", on")), ", on");
    // The answer to a SYN that was not seen comes from the server.
    assert_eq!(heard.told(flow(2).reversed(), Segment { answers: true, ..syn(5) }), "");
    assert_eq!(heard.told(flow(2).reversed(), segment(5, b"hello")), "[hello]");
}

#[test]
fn a_gap_is_told_when_it_is_for_good_and_not_before() {
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(flow(1), segment(0, b"one "));
    assert_eq!(heard.told(flow(1), segment(8, b"three")), "");
    assert_eq!(heard.told(flow(1).reversed(), ack(0, 8)), "", "the receiver has no more than is missing");
    assert_eq!(heard.told(flow(1).reversed(), ack(0, 13)), "<4>three");
    assert_eq!(heard.push(flow(1), segment(4, b"two ")), (Arrival::Old, String::new()), "too late");
    // A function in the packets' path does not get such a gap.
    let mut heard = Heard::new(StreamConfig { gaps_by_acknowledgment: false, ..StreamConfig::default() });
    heard.told(flow(1), segment(0, b"one "));
    heard.told(flow(1), segment(8, b"three"));
    assert_eq!(heard.told(flow(1).reversed(), ack(0, 13)), "");
    assert_eq!(heard.told(flow(1), segment(4, b"two ")), "two three");
}

#[test]
fn acknowledgments_of_out_of_window_segments_do_not_count() {
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(flow(1), segment(0, b"one "));
    heard.told(flow(1), segment(8, b"three"));
    heard.told(flow(1).reversed(), segment(100, b"x"));
    let back = flow(1).reversed();
    let reset = Segment { acknowledges: Some(13), ..rst(50) };
    for forged in [ack(100 + (1 << 31), 13), reset, ack(101, 8 + (3 << 29))] {
        assert_eq!(heard.told(back, forged), "", "{forged:?}");
    }
    assert_eq!(heard.told(flow(1), segment(4, b"two ")), "two three");
}

#[test]
fn resets_count_only_where_they_can_be_meant() {
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(flow(1), segment(1_000, b"abc"));
    heard.told(flow(1).reversed(), segment(7, b"de"));
    heard.told(flow(1), segment(1_005, b"gap before"));
    assert_eq!(heard.push(flow(1), rst(1_002)), (Arrival::Ignored, String::new()), "an old number");
    assert_eq!(heard.push(flow(1), rst(1_003 | 1 << 31)), (Arrival::Ignored, String::new()), "a wild one");
    assert_eq!(
        heard.push(flow(1), rst(1_004)),
        (Arrival::Ignored, String::new()),
        "one ahead: it is asked back"
    );
    assert_eq!(heard.push(flow(1), syn(3)), (Arrival::Ignored, String::new()), "nor does a SYN end it");
    assert_eq!(
        heard.told(flow(1), rst(1_003)),
        ".reset[.reset]",
        "what lay behind the gap was never received"
    );
    assert_eq!(heard.push(flow(1), segment(1_003, b"late")), (Arrival::Ignored, String::new()));
    // It is opened again, with any number.
    assert_eq!(heard.told(flow(1), syn(1_000)), "");
    assert_eq!(heard.told(flow(1), segment(1_000, b"again")), "again");
    assert_eq!(heard.told(flow(3), rst(0)), "", "of an unknown connection");
    assert_eq!(heard.streams.len(), 1, "it is none that is followed");
    // A refusal answers a SYN, and acknowledges it.
    heard.told(flow(4), syn(9));
    let refusal = |acknowledged| Segment { acknowledges: Some(acknowledged), ..rst(0) };
    for forged in [rst(0), refusal(8), refusal(77)] {
        assert_eq!(heard.push(flow(4).reversed(), forged), (Arrival::Ignored, String::new()), "{forged:?}");
    }
    assert_eq!(heard.told(flow(4).reversed(), refusal(9)), ".reset");
}

/// RFC 9293, section 3.5.1: the server still has an older connection and answers from it.
///
/// It is then told that this connection is over.
#[test]
fn a_half_open_connection_is_discovered() {
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(flow(1), syn(9_000));
    assert_eq!(heard.told(flow(1).reversed(), ack(4_000_000_000, 77)), "", "a number of the older one");
    assert_eq!(
        heard.push(flow(1), rst(77)),
        (Arrival::Ignored, String::new()),
        "which is no number of this one"
    );
    heard.told(flow(1), syn(9_000));
    heard.told(flow(1).reversed(), Segment { answers: true, acknowledges: Some(9_000), ..syn(500) });
    assert_eq!(heard.told(flow(1), segment(9_000, b"ask")), "ask");
    assert_eq!(heard.told(flow(1).reversed(), segment(500, b"answer")), "[answer]");
    // A server that has sent bytes does not begin again.
    let again = Segment { answers: true, ..syn(600) };
    assert_eq!(heard.push(flow(1).reversed(), again), (Arrival::Ignored, String::new()));
    assert_eq!(heard.streams.counters().connections, 1);
}

#[test]
fn silence_ends_a_connection_by_the_clock() {
    let config = StreamConfig { idle: 1_000, ..StreamConfig::default() };
    let mut heard = Heard::new(config);
    heard.told(flow(1), segment(0, b"a"));
    heard.told(flow(1), segment(2, b"c"));
    assert_eq!(heard.streams.next_expiry(), Some(1_000));
    assert_eq!(heard.streams.expire(999, 9, |told| panic!("{told:?}")), 0);
    heard.now = 500;
    heard.told(flow(2), segment(0, b"x"));
    let mut told = Vec::new();
    assert_eq!(heard.streams.expire(1_000, 9, |delivery| told.push(format!("{:?}", delivery.what))), 1);
    assert_eq!(told, ["Gap(1)", "Bytes([99])", "End(Idle)"]);
    assert_eq!(heard.streams.len(), 1);
    // A connection that comes back after a silence is new, whether or not another segment came in between.
    heard.now = 1_500;
    assert_eq!(heard.told(flow(2), segment(50, b"y")), ".idley");
    assert_eq!(heard.streams.counters().expired, 2);
}

#[test]
fn there_are_no_more_connections_than_may_be() {
    let config = StreamConfig { flows: 2, full: Full::Refuse, ..StreamConfig::default() };
    let mut heard = Heard::new(config);
    heard.told(flow(1), segment(0, b"a"));
    heard.told(flow(2), segment(0, b"b"));
    assert_eq!(heard.push(flow(3), segment(0, b"c")), (Arrival::Refused, String::new()));
    assert_eq!(heard.streams.counters().refused_connections, 1);
    let mut heard = Heard::new(StreamConfig { full: Full::SkipGap, ..config });
    heard.told(flow(1), segment(0, b"a"));
    heard.told(flow(2), segment(0, b"b"));
    heard.told(flow(1), segment(1, b"a"));
    assert_eq!(heard.told(flow(3), segment(0, b"c")), ".evictedc", "the second was silent longest");
    assert_eq!(heard.told(flow(1), segment(2, b"a")), "a");
}

#[test]
fn a_segment_larger_than_a_share_goes_past_its_gap() {
    let config = StreamConfig { flow_memory: BLOCK, memory: BLOCK, ..StreamConfig::default() };
    let mut heard = Heard::new(config);
    heard.told(flow(1), segment(0, b"a"));
    heard.told(flow(1), segment(3, b"d"));
    let large = [b'x'; BLOCK + 1];
    let told = heard.told(flow(1), segment(5, &large));
    assert_eq!(told, format!("<2>d<1>{}", String::from_utf8_lossy(&large)));
}

#[test]
fn bounds_that_do_not_do_are_named() {
    let refused = |config| Reassembler::<Tcp>::new(config).unwrap_err();
    let usual = StreamConfig::default();
    assert!(matches!(refused(StreamConfig { flows: 0, ..usual }), StreamError::Connections(_)));
    assert!(matches!(refused(StreamConfig { flow_memory: 511, ..usual }), StreamError::FlowMemory { .. }));
    assert!(matches!(refused(StreamConfig { memory: 1_000, ..usual }), StreamError::Memory { .. }));
    assert!(matches!(refused(StreamConfig { idle: 0, ..usual }), StreamError::Idle));
    assert!(matches!(refused(StreamConfig { memory: usize::MAX, ..usual }), StreamError::TooMuch { .. }));
    let error = refused(StreamConfig { memory: 1_000, ..usual }).to_string();
    assert!(error.contains("1000 bytes for all") && error.contains("262144"), "{error}");
    assert_eq!(End::Finished.name(), "finished");
}

pub(crate) fn takes(window: u32, shift: Option<u8>, segment: Segment<'_>) -> Segment<'_> {
    Segment { advertised: Some(AdvertisedWindow { window, shift }), ..segment }
}

/// Else an end or bytes that no receiver would take could hide the following bytes from an observer.
#[test]
fn segments_behind_the_receivers_window_do_not_count() {
    let (client, server) = (flow(1), flow(1).reversed());
    let ignored = (Arrival::Ignored, String::new());
    // Both offers, the window field, and the number of bytes.
    for (offers, window, bytes) in [
        ([None, None], 100, 100),
        ([Some(3), Some(2)], 25, 100),
        ([None, Some(7)], 100, 100),
        ([Some(7), None], 100, 100),
    ] {
        let mut heard = Heard::new(StreamConfig { gaps_by_acknowledgment: false, ..StreamConfig::default() });
        heard.told(client, takes(10, offers[0], syn(1_000)));
        let answer = Segment { answers: true, ..syn(500) };
        heard.told(server, takes(40, offers[1], Segment { acknowledges: Some(1_000), ..answer }));
        // The window of a segment that opens is never shifted.
        assert_eq!(heard.push(client, fin(1_041, b"")), ignored);
        assert_eq!(heard.told(client, segment(1_000, b"go")), "go");
        assert_eq!(heard.push(client, segment(1_040, b"x")), ignored);
        heard.told(server, takes(window, None, ack(500, 1_002)));
        assert_eq!(heard.push(client, segment(1_002 + bytes, b"x")), ignored);
        assert_eq!(heard.push(client, fin(1_002 + bytes + 1, b"")), ignored);
        assert_eq!(heard.push(client, segment(1_001 + bytes, b"x")).0, Arrival::Waits, "{offers:?}");
        // A smaller window takes nothing back.
        heard.told(server, takes(1, None, ack(500, 1_002)));
        assert_eq!(heard.push(client, segment(1_000 + bytes, b"x")).0, Arrival::Waits);
        // The next bytes count: the window that permits them may not have been seen.
        let rest = vec![b'y'; bytes as usize - 2];
        assert_eq!(heard.told(client, segment(1_002, &rest)).len(), bytes as usize);
        assert_eq!(heard.told(client, segment(1_002 + bytes, b"more")), "more");
    }
    // An edge before the next byte does not count: the other direction is not seen any more.
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, takes(65_535, None, syn(1_000)));
    let answer = Segment { answers: true, acknowledges: Some(1_000), ..syn(500) };
    heard.told(server, takes(65_535, None, answer));
    for at in (0..70_000).step_by(1_000) {
        assert_eq!(heard.told(client, segment(1_000 + at, &[b'z'; 1_000])).len(), 1_000, "{at}");
    }
    assert_eq!(heard.push(client, segment(71_003, b"def")), (Arrival::Waits, String::new()), "swapped");
    assert_eq!(heard.told(client, segment(71_000, b"abc")), "abcdef");
    // Without both ends' offers no window is known.
    let mut heard = Heard::new(StreamConfig { gaps_by_acknowledgment: false, ..StreamConfig::default() });
    heard.told(client, segment(1_000, b"middle"));
    heard.told(server, takes(10, None, ack(500, 1_006)));
    assert_eq!(heard.push(client, segment(9_000, b"far")).0, Arrival::Waits);
}

/// RFC 5961: an attacker without the numbers must not affect a connection of which one direction has ended.
///
/// He can neither end nor replace it, nor acknowledge bytes.
#[test]
fn half_an_end_leaves_the_other_half_as_it_was() {
    let (client, server) = (flow(1), flow(1).reversed());
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, syn(1_000));
    heard.told(server, Segment { answers: true, acknowledges: Some(1_000), ..syn(5_000) });
    assert_eq!(heard.told(client, fin(1_000, b"ask")), "ask.finished");
    assert_eq!(heard.told(server, segment(5_000, b"one ")), "[one ]");
    assert_eq!(heard.told(server, segment(5_008, b"three")), "");
    let wild = Segment { acknowledges: Some(5_013), ..segment(1_005, b"") };
    let late = Segment { acknowledges: Some(5_013), ..segment(1_003 + (3 << 29), b"") };
    for forged in [rst(77), rst(1_005), rst(1_002), syn(9), wild, late] {
        assert_eq!(heard.push(client, forged), (Arrival::Ignored, String::new()), "{forged:?}");
    }
    assert_eq!(heard.told(server, segment(5_004, b"two ")), "[two ][three]");
    assert_eq!(heard.told(client, ack(1_004, 5_013)), "", "behind the end's number");
    assert_eq!(heard.told(client, rst(1_004)), "[.reset]");
    assert_eq!(heard.told(client, syn(9)), "", "now it is opened again");
    assert_eq!(heard.streams.counters().connections, 2);
}

/// Segments that do not count do not keep a connection from becoming idle.
#[test]
fn segments_that_do_not_count_do_not_keep_a_connection() {
    let mut heard = Heard::new(StreamConfig { idle: 1_000, ..StreamConfig::default() });
    heard.told(flow(1), segment(5, b"a"));
    heard.now = 900;
    assert_eq!(heard.push(flow(1), segment(3 << 30, b"z")).0, Arrival::Ignored);
    heard.now = 1_100;
    assert_eq!(heard.told(flow(1), segment(3 << 30, b"z")), ".idlez", "it goes on elsewhere");
}

/// Linux takes an end out of its queue that later bytes or bytes in order cover.
///
/// Else an end that is sent ahead would hide the stream from an observer.
#[test]
fn an_end_that_bytes_run_over_is_none() {
    let told = |overlap, segments: &[Segment<'_>]| {
        let mut heard = Heard::new(StreamConfig { overlap, ..StreamConfig::default() });
        heard.told(flow(1), syn(100));
        segments.iter().map(|segment| heard.told(flow(1), *segment)).collect::<String>()
    };
    let ahead = [fin(101, b""), segment(100, b"GET"), fin(103, b"!")];
    assert_eq!(told(Overlap::Linux, &ahead), "GET!.finished");
    assert_eq!(told(Overlap::Last, &ahead), "GET!.finished");
    assert_eq!(told(Overlap::First, &ahead), "G.finished");
    // Covered by bytes that wait, whichever came first.
    assert_eq!(told(Overlap::Linux, &[fin(102, b""), segment(101, b"ET"), segment(100, b"G")]), "GET");
    assert_eq!(told(Overlap::Linux, &[segment(101, b"ET"), fin(102, b""), segment(100, b"G")]), "GET");
    // Not covered by bytes that begin behind the beginning of its segment.
    assert_eq!(
        told(Overlap::Linux, &[fin(101, b"x"), segment(102, b"yz"), segment(100, b"G")]),
        "Gx.finished"
    );
    assert_eq!(
        told(Overlap::Linux, &[segment(102, b"yz"), fin(101, b"x"), segment(100, b"G")]),
        "Gx.finished"
    );
    // Bytes behind an end that is refuted were not lost.
    assert_eq!(told(Overlap::Linux, &[segment(104, b"ef"), fin(101, b""), segment(100, b"abcd")]), "abcdef");
    // The sooner of two ends.
    assert_eq!(told(Overlap::Linux, &[fin(103, b""), fin(101, b""), segment(100, b"G")]), "G.finished");
    assert_eq!(told(Overlap::Linux, &[fin(101, b""), fin(103, b""), segment(100, b"G")]), "G.finished");
}

/// RFC 7413: only some receivers take them, and acknowledge them.
#[test]
fn bytes_of_a_segment_that_opens_count_once_they_are_acknowledged() {
    let (client, server) = (flow(1), flow(1).reversed());
    let opening = Segment { bytes: b"decoy", ..syn(100) };
    let answer = |acknowledged| Segment { answers: true, acknowledges: Some(acknowledged), ..syn(500) };
    for gaps_by_acknowledgment in [true, false] {
        let config = StreamConfig { gaps_by_acknowledgment, ..StreamConfig::default() };
        let mut heard = Heard::new(config);
        assert_eq!(heard.push(client, opening), (Arrival::Waits, String::new()));
        assert_eq!(heard.push(client, opening), (Arrival::Old, String::new()), "again");
        assert_eq!(heard.told(server, answer(105)), "decoy");
        assert_eq!(heard.told(client, segment(105, b" and more")), " and more");
        // Not taken: they come again, perhaps with another content.
        let mut heard = Heard::new(config);
        heard.told(client, opening);
        assert_eq!(heard.told(server, answer(100)), "");
        assert_eq!(heard.told(client, segment(100, b"re")), "re");
        assert_eq!(heard.told(client, segment(102, b"al")), "al");
        // The same where the answer is not seen.
        let mut heard = Heard::new(config);
        heard.told(client, opening);
        assert_eq!(heard.told(client, segment(100, b"re")), "re");
        assert_eq!(heard.told(client, segment(102, b"al")), "al");
    }
    // The bytes are also dropped where a share is smaller than they are.
    let mut heard = Heard::new(StreamConfig { flow_memory: BLOCK, memory: BLOCK, ..StreamConfig::default() });
    assert_eq!(heard.told(client, Segment { bytes: &[0; BLOCK + 1], ..syn(100) }), "");
    assert_eq!(heard.told(client, segment(100, b"real")), "real");
    assert_eq!(heard.streams.memory().0, 0);
}

/// A keep-alive and a window probe without bytes lie one before the next byte (RFC 9293, section 3.8.4).
#[test]
fn a_stream_is_taken_up_at_a_keep_alive() {
    let (client, server) = (flow(1), flow(1).reversed());
    for answered in [false, true] {
        let mut heard = Heard::new(StreamConfig::default());
        assert_eq!(heard.told(client, ack(999, 70)), "");
        if answered {
            assert_eq!(heard.told(server, ack(70, 1_000)), "");
        }
        assert_eq!(heard.told(client, segment(1_003, b"def")), "", "swapped");
        assert_eq!(heard.told(client, segment(1_000, b"abc")), "abcdef");
        assert_eq!(heard.told(client, fin(1_006, b"")), ".finished");
        assert_eq!(heard.streams.counters().gaps, 0);
    }
    // This happens once: after that, a missing byte is missing.
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, ack(999, 70));
    heard.told(client, ack(1_000, 70));
    assert_eq!(heard.told(client, segment(1_001, b"b")), "");
    assert_eq!(heard.told(server, ack(70, 1_002)), "<1>b");
    // The number of a stream that was opened is known.
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, syn(1_000));
    assert_eq!(heard.told(client, segment(1_001, b"b")), "");
}

/// Neither the first segments nor the other direction of the open connection are seen.
#[test]
fn a_window_without_later_acknowledgments_does_not_count() {
    let (client, server) = (flow(1), flow(1).reversed());
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, takes(65_535, None, syn(1_000)));
    let answer = Segment { answers: true, acknowledges: Some(1_000), ..syn(500) };
    heard.told(server, takes(65_535, None, answer));
    let (mut bytes, mut gaps) = (0, 0);
    // A segment every 10 ms; the first of them is lost.
    for place in 1..2_000 {
        heard.now = place * 10_000_000;
        let number = 1_000 + place as u32 * 1_000;
        let mut take = |told: netbricks_stream::Delivery<'_>| match told.what {
            What::Bytes(more) => bytes += more.len() as u64,
            What::Gap(missing) => gaps += missing,
            What::Urgent(byte) => panic!("{byte} is not urgent"),
            What::End(end) => panic!("{end:?}"),
        };
        heard.streams.push(client, segment(number, &[b'z'; 1_000]), heard.now, &mut take);
    }
    let mut last = String::new();
    heard.streams.expire(u64::MAX, 1, |told| match told.what {
        What::Bytes(more) => bytes += more.len() as u64,
        What::Gap(missing) => gaps += missing,
        What::Urgent(byte) => panic!("{byte} is not urgent"),
        What::End(end) => last += end.name(),
    });
    assert_eq!(bytes + gaps, 2_000_000, "all of it is known to have been");
    // The bytes that came within a second of the first one beyond the edge.
    assert!((1_000..200_000).contains(&gaps), "{gaps} bytes are missing");
    // As long as its receiver answers, its edge counts, however late bytes beyond it come again.
    let mut heard = Heard::new(StreamConfig::default());
    heard.told(client, takes(100, None, syn(1_000)));
    heard.told(server, takes(100, None, answer));
    for second in 0..10u64 {
        heard.now = second * 600_000_000;
        assert_eq!(heard.push(client, segment(1_200, b"decoy")).0, Arrival::Ignored);
        heard.told(server, takes(100, None, ack(500, 1_000)));
    }
}

/// A segment without the push flag whose only byte may be a keep-alive's.
fn probe(number: u32, byte: &[u8]) -> Segment<'_> {
    Segment { may_probe: true, ..segment(number, byte) }
}

#[test]
fn the_byte_of_a_keep_alive_is_no_data_where_it_is_the_first_that_is_seen() {
    let garbage = b"\0";
    let mut heard = Heard::new(StreamConfig::default());
    assert_eq!(heard.told(flow(1), probe(999, garbage)), "");
    assert_eq!(heard.told(flow(1), probe(999, garbage)), "", "it comes again");
    assert_eq!(heard.told(flow(1), segment(1_000, b"data")), "data");
    assert_eq!(heard.told(flow(1), probe(1_003, garbage)), "");
    // First a keep-alive without a byte, then one with a byte.
    assert_eq!(heard.told(flow(2), segment(999, b"")), "");
    assert_eq!(heard.told(flow(2), probe(999, garbage)), "");
    assert_eq!(heard.told(flow(2), segment(1_000, b"data")), "data");
    // A sender repeats all its bytes: that was a probe of a window of 0.
    assert_eq!(heard.told(flow(3), probe(1_000, b"d")), "");
    assert_eq!(heard.told(flow(3), segment(1_000, b"data")), "data");
    // The receiver has acknowledged this byte, so it is no data, with any flags.
    assert_eq!(heard.told(flow(4).reversed(), ack(500, 1_000)), "");
    assert_eq!(heard.told(flow(4), segment(999, garbage)), "");
    assert_eq!(heard.told(flow(4), segment(1_000, b"data")), "[data]");
    // A byte counts that is pushed, that ends the stream, or that comes behind a SYN.
    assert_eq!(heard.told(flow(5), segment(1_000, b"d")), "d");
    assert_eq!(heard.told(flow(6), Segment { may_probe: false, ..fin(1_000, b"d") }), "d.finished");
    heard.told(flow(7), syn(1_000));
    assert_eq!(heard.told(flow(7), probe(1_000, b"d")), "d");
}
