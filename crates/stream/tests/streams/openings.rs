//! The opening of connections: which of several openings counts, and which segments end an older connection.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{Arrival, Overlap, Protocol, Segment, StreamConfig};

use super::exercise::{flow, segment};
use super::rules::{Heard, ack, fin, rst, syn};

fn client() -> FlowKey {
    flow(1)
}
fn server() -> FlowKey {
    flow(1).reversed()
}
/// The answer to a SYN. Its sender's bytes begin at `number`.
fn answer(number: u32, acknowledged: u32) -> Segment<'static> {
    Segment { answers: true, opens: true, ..ack(number, acknowledged) }
}
fn says(number: u32, acknowledged: u32, bytes: &[u8]) -> Segment<'_> {
    Segment { bytes, ..ack(number, acknowledged) }
}
fn heard() -> Heard {
    Heard::new(StreamConfig::default())
}
const IGNORED: (Arrival, String) = (Arrival::Ignored, String::new());

/// A connection that continues with these numbers.
fn goes_on(heard: &mut Heard, client_at: u32, server_at: u32, what: &str) {
    assert_eq!(heard.told(client(), says(client_at, server_at, b"ask")), "ask", "{what}");
    assert_eq!(heard.told(server(), says(server_at, client_at + 3, b"answer")), "[answer]", "{what}");
    assert_eq!(heard.told(client(), says(client_at + 3, server_at + 6, b"!")), "!", "{what}");
}

/// RFC 9293, section 3.10.7.3: an answer acknowledges the opening, and so do all other segments of the
/// server.
#[test]
fn a_segment_that_acknowledges_no_opening_is_no_answer() {
    let forged: [Segment<'_>; 5] = [
        answer(9_000, 77),
        answer(9_000, 999),
        answer(9_000, 90_000),
        says(9_000, 77, b"x"),
        ack(9_000, 3 << 30),
    ];
    for segment in forged {
        let mut heard = heard();
        heard.told(client(), syn(1_000));
        assert_eq!(heard.push(server(), segment), IGNORED, "{segment:?}");
        heard.told(server(), answer(500, 1_000));
        goes_on(&mut heard, 1_000, 500, "the real one counts");
    }
    // An opening without an acknowledgment is a SYN of its own, as where both ends open at once. The answer
    // still counts.
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(server(), syn(9_000));
    heard.told(client(), syn(1_000));
    heard.told(server(), answer(500, 1_000));
    goes_on(&mut heard, 1_000, 500, "a forged SYN of the server");
}

#[test]
fn an_answer_that_was_not_seen_may_acknowledge_what_was_not() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    assert_eq!(heard.told(server(), says(500, 900_000, b"later")), "[later]");
    assert_eq!(heard.told(client(), says(900_000, 505, b"on")), "", "what is missing may still come");
    assert_eq!(heard.told(server(), ack(505, 900_002)), "<899000>on");
}

/// A receiver answers a second SYN with another number, and goes on as before.
///
/// A receiver that uses SYN cookies, or that forgot the first SYN, takes the second. The ends' next segments
/// show which one it was.
#[test]
fn of_two_openings_that_counts_which_the_ends_go_on_from() {
    for (first, second) in [(1_000, 9_000), (9_000, 1_000), (1_000, 1_002)] {
        for counts in [first, second] {
            let what = format!("{first} {second} {counts}");
            // Before the answer.
            let mut before = heard();
            before.told(client(), syn(first));
            before.told(client(), syn(second));
            before.told(server(), answer(500, counts));
            goes_on(&mut before, counts, 500, &what);
            // Behind the answer, which acknowledged the first.
            let mut behind = heard();
            behind.told(client(), syn(first));
            behind.told(server(), answer(500, first));
            behind.told(client(), syn(second));
            let at = if counts == second {
                behind.told(server(), answer(600, second));
                600
            } else {
                500
            };
            behind.told(client(), ack(counts, at));
            goes_on(&mut behind, counts, at, &what);
            // Where the other direction is not seen.
            let mut alone = heard();
            alone.told(client(), syn(first));
            alone.told(client(), syn(second));
            assert_eq!(alone.told(client(), says(counts, 77, b"ask")), "ask", "{what}");
            for heard in [&before, &behind, &alone] {
                assert_eq!(heard.streams.counters().connections, 1, "{what}");
                assert_eq!(heard.streams.counters().gaps, 0, "{what}");
            }
        }
    }
    // An answer that comes again with another number.
    for counts in [500, 600] {
        let mut heard = heard();
        heard.told(client(), syn(1_000));
        heard.told(server(), answer(500, 1_000));
        heard.told(server(), answer(600, 1_000));
        heard.told(client(), ack(1_000, counts));
        goes_on(&mut heard, 1_000, counts, "of two answers that which is acknowledged");
    }
}

/// RFC 5961, section 4.
#[test]
fn an_agreed_connection_is_not_opened_by_forged_segments() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(server(), answer(500, 1_000));
    heard.told(client(), ack(1_000, 500));
    for (from, forged) in [
        (client(), syn(9_000)),
        (client(), syn(1_001)),
        (server(), syn(9_000)),
        (server(), answer(9_000, 1_000)),
        (client(), answer(9_000, 500)),
    ] {
        assert_eq!(heard.push(from, forged), IGNORED, "{forged:?}");
    }
    goes_on(&mut heard, 1_000, 500, "as before");
    assert_eq!(heard.streams.counters().connections, 1);
}

#[test]
fn bytes_of_an_opening_that_was_given_up_are_gone() {
    let mut heard = heard();
    heard.told(client(), Segment { bytes: b"decoy", ..syn(1_000) });
    assert!(heard.streams.memory().0 > 0);
    heard.told(client(), Segment { bytes: b"ask", ..syn(9_000) });
    assert_eq!(heard.told(server(), answer(500, 9_003)), "ask");
    assert_eq!(heard.told(client(), says(9_003, 500, b"!")), "!");
    assert_eq!(heard.streams.memory().0, 0);
}

/// The ports are used again, and the other direction is not seen.
#[test]
fn one_direction_that_ended_may_begin_again() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    assert_eq!(heard.told(client(), fin(1_000, b"one")), "one.finished");
    assert_eq!(heard.push(client(), syn(1_000)), (Arrival::Ignored, String::new()), "its SYN, late");
    assert_eq!(heard.told(client(), syn(9_000)), "");
    assert_eq!(heard.told(client(), fin(9_000, b"two")), "two.finished");
    assert_eq!(heard.streams.counters().connections, 2);
}

/// A segment that the server never got, or the rest of a connection whose end was not seen.
#[test]
fn a_midstream_connection_gives_way_to_one_that_both_ends_open() {
    for opened in [500, 80, 3 << 30] {
        let mut heard = heard();
        assert_eq!(heard.told(client(), segment(77, b"stray")), "stray");
        assert_eq!(heard.push(client(), syn(opened)), IGNORED, "it may be forged");
        assert_eq!(heard.told(server(), answer(7_000, opened)), ".replaced");
        goes_on(&mut heard, opened, 7_000, "the new one");
        // Where the other direction is not seen, the segments that continue from the opening decide.
        let mut heard = self::heard();
        heard.told(client(), segment(77, b"stray"));
        heard.told(client(), syn(opened));
        assert_eq!(heard.told(client(), says(opened, 3, b"ask")), ".replacedask");
        // A segment that does not know the number does not decide.
        let mut heard = self::heard();
        heard.told(client(), segment(77, b"stray"));
        heard.told(client(), syn(opened));
        assert_eq!(heard.told(server(), answer(7_000, opened + 1)), "");
        assert_eq!(heard.told(client(), segment(82, b" goes on")), " goes on");
    }
}

/// Linux takes a reset there and answers others; RFC 5961 wants all of them answered.
#[test]
fn a_reset_behind_what_waits_ends_it_for_whatever_opens_next() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(server(), answer(500, 1_000));
    heard.told(client(), says(1_000, 500, b"abc"));
    heard.told(client(), says(1_005, 500, b"x"));
    assert_eq!(heard.push(client(), rst(1_005)), IGNORED);
    assert_eq!(heard.push(client(), syn(9_000)), IGNORED, "no reset was there");
    assert_eq!(heard.push(client(), rst(1_006)), IGNORED);
    assert_eq!(
        heard.push(client(), syn(1_000)),
        (Arrival::InOrder, String::new()),
        "the same again is no other"
    );
    assert_eq!(heard.told(client(), syn(9_000)), "<2>x.replaced[.replaced]");
    heard.told(server(), answer(700, 9_000));
    goes_on(&mut heard, 9_000, 700, "the next one");
    // Where no segment opens it again, the connection goes on.
    let mut heard = self::heard();
    heard.told(client(), segment(1_000, b"abc"));
    heard.told(client(), segment(1_005, b"x"));
    heard.told(client(), rst(1_006));
    assert_eq!(heard.told(client(), segment(1_003, b"de")), "dex");
}

#[test]
fn a_reset_from_a_silent_end_comes_where_the_other_expects_it() {
    let mut heard = heard();
    assert_eq!(heard.told(client(), says(1_000, 500, b"abc")), "abc");
    for forged in [rst(0), rst(501), rst(499)] {
        assert_eq!(heard.push(server(), forged), IGNORED, "{forged:?}");
    }
    assert_eq!(heard.told(server(), rst(500)), ".reset");
}

/// The gap before the end will not be filled: the receiver acknowledged the end's number too.
#[test]
fn an_end_that_was_acknowledged_is_told() {
    let mut heard = heard();
    heard.told(client(), segment(70, b"x"));
    heard.told(server(), segment(500, b"abc"));
    assert_eq!(heard.told(server(), fin(506, b"")), "");
    assert_eq!(heard.told(client(), ack(71, 506)), "", "all before the end; it may still come");
    assert_eq!(heard.told(client(), ack(71, 507)), "[<3>][.finished]");
}

/// Receivers drop a segment that lies before all acknowledged bytes, with its acknowledgment.
///
/// Else a quarter of all numbers that an attacker may guess would count.
#[test]
fn acknowledgments_of_old_segments_do_not_count() {
    let mut heard = heard();
    heard.told(client(), says(1_000, 500, b"ask"));
    heard.told(server(), says(500, 1_003, b"one "));
    heard.told(server(), says(508, 1_003, b"three"));
    for forged in
        [ack(1_002, 513), ack(900, 513), says(990, 513, b"old"), ack(1_003u32.wrapping_sub(1 << 29), 513)]
    {
        assert_eq!(heard.told(client(), forged), "", "{forged:?}");
    }
    assert_eq!(heard.told(server(), says(504, 1_003, b"two ")), "[two ][three]");
    assert_eq!(heard.streams.counters().gaps, 0);
}

/// The reset of a connection states the bytes that its sender has, except for a refusal.
#[test]
fn a_reset_acknowledges_what_its_sender_has() {
    let mut heard = heard();
    heard.told(client(), says(1_000, 500, b"ask"));
    heard.told(server(), says(500, 1_003, b"abc"));
    heard.told(server(), says(506, 1_003, b"ghi"));
    let reset = Segment { acknowledges: Some(509), ..rst(1_003) };
    assert_eq!(heard.told(client(), reset), "[<3>][ghi].reset[.reset]");
}

#[test]
fn a_stream_that_begins_at_a_keep_alive_and_whose_end_came_first_is_whole() {
    let mut heard = heard();
    heard.told(client(), ack(999, 70));
    heard.told(client(), Segment { acknowledges: Some(70), ..fin(1_003, b"def") });
    assert_eq!(heard.told(client(), says(1_000, 70, b"abc")), "abcdef.finished");
    assert_eq!(heard.streams.counters().gaps, 0);
}

/// Only the bytes that wait for the acknowledgment are dropped.
#[test]
fn bytes_out_of_order_behind_the_bytes_of_an_opening_stay() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let opening = Segment { bytes: b"decoy", ..syn(100) };
        for told in ["remore more", "retry"] {
            let mut heard = Heard::new(StreamConfig { overlap, ..StreamConfig::default() });
            heard.told(client(), opening);
            heard.told(client(), says(105, 1, b" more"));
            assert_eq!(heard.told(client(), says(100, 1, b"re")), "re", "{overlap:?}");
            let rest = &told.as_bytes()[2..5];
            assert_eq!(
                heard.told(client(), says(102, 1, rest)),
                format!("{} more", &told[2..5]),
                "{overlap:?}"
            );
            assert_eq!(heard.streams.memory().0, 0);
        }
        // Bytes within them, out of order: their repetition was not seen.
        let mut heard = Heard::new(StreamConfig { overlap, ..StreamConfig::default() });
        heard.told(client(), opening);
        heard.told(client(), says(102, 1, b"al"));
        assert_eq!(heard.told(client(), says(100, 1, b"re")), "real", "{overlap:?}");
    }
    // The segment opens a connection that was followed from its middle, and its bytes wait too: no keep-alive
    // shifts them.
    let mut heard = heard();
    heard.told(client(), ack(100, 70));
    heard.told(client(), Segment { bytes: b"ask", ..syn(100) });
    assert_eq!(heard.told(client(), says(101, 70, b"nothing")), "");
    assert_eq!(heard.told(client(), says(100, 70, b"ab")), "abothing");
}

/// Linux drops a SYN with a FIN, and treats a SYN with a RST as a reset.
#[test]
fn flags_that_do_not_go_together_open_nothing() {
    let tcp = |flag: u8, payload: &'static [u8]| {
        let header = Tcp::new(1, 2, 999, 500, flag).octets();
        Tcp::segment(Tcp::view(&header, ()), payload)
    };
    let (syn, fin, rst, ack) = (flags::SYN, flags::FIN, flags::RST, flags::ACK);
    let reset = tcp(syn | rst, b"x");
    assert_eq!((reset.number, reset.opens, reset.aborts, reset.bytes), (999, false, true, &b""[..]));
    let nothing = tcp(syn | fin, b"x");
    assert_eq!(
        (nothing.opens, nothing.ends, nothing.acknowledges, nothing.advertised),
        (false, false, None, None)
    );
    assert_eq!(nothing.bytes, b"");
    let answer = tcp(syn | fin | ack, b"");
    assert_eq!((answer.number, answer.opens, answer.answers, answer.ends), (1_000, true, true, false));
    for flag in [syn | rst, syn | fin, syn | fin | rst] {
        let mut heard = heard();
        heard.told(client(), super::rules::syn(1_000));
        heard.told(client(), tcp(flag, b""));
        heard.told(server(), self::answer(500, 1_000));
        goes_on(&mut heard, 1_000, 500, "flags of none");
    }
}

/// A move, a refusal or an eviction ends an opening, and the bytes that came with it.
#[test]
fn bytes_of_an_opening_end_with_it() {
    let opening = Segment { bytes: b"ask", ..syn(1_000) };
    let told = |segments: &[(FlowKey, Segment<'_>)]| {
        let mut heard = heard();
        heard.told(client(), opening);
        let text: String = segments.iter().map(|(from, segment)| heard.told(*from, *segment)).collect();
        assert_eq!(heard.streams.memory().0, 0);
        let image = heard.streams.encode();
        let mut other = Heard::new(StreamConfig::default());
        assert_eq!(other.streams.decode(&image, 0).unwrap(), 1, "{text}");
        text
    };
    assert_eq!(told(&[(server(), Segment { acknowledges: Some(1_003), ..rst(0) })]), ".reset");
    assert_eq!(told(&[(client(), fin(1_000, b""))]), ".finished");
}

/// RFC 7413: the answer acknowledges the bytes of the opening that counts.
#[test]
fn an_opening_with_bytes_is_confirmed_by_what_lies_behind_them() {
    for forged in [syn(9_000), Segment { bytes: b"forged", ..syn(9_000) }] {
        let mut heard = heard();
        heard.told(client(), Segment { bytes: b"ask", ..syn(1_000) });
        heard.told(client(), forged);
        heard.told(server(), answer(500, 1_003));
        assert_eq!(heard.told(client(), says(1_003, 500, b" more")), "", "they were given up for another");
        assert_eq!(heard.told(server(), says(500, 1_008, b"answer")), "<3> more[answer]");
        // An opening whose first number lies where another opening's bytes end does not decide which one
        // counts.
        let mut heard = self::heard();
        heard.told(client(), Segment { bytes: b"ask", ..syn(1_000) });
        heard.told(client(), syn(1_003));
        heard.told(server(), answer(500, 1_003));
        goes_on(&mut heard, 1_003, 500, "the latter");
    }
}

/// An opening that is refused, or that its sender gives up, may be forged.
#[test]
fn a_reset_of_one_opening_leaves_the_other() {
    // Both were answered, and the client does not know the first.
    let mut given_up = heard();
    given_up.told(client(), syn(1_000));
    given_up.told(client(), syn(9_000));
    given_up.told(server(), answer(500, 1_000));
    assert_eq!(given_up.told(client(), rst(1_000)), "");
    given_up.told(server(), answer(600, 9_000));
    goes_on(&mut given_up, 9_000, 600, "given up");
    // A forged opening with its reset.
    let mut forged = heard();
    forged.told(client(), syn(1_000));
    forged.told(client(), syn(9_000));
    assert_eq!(forged.told(client(), rst(9_000)), "");
    forged.told(server(), answer(500, 1_000));
    goes_on(&mut forged, 1_000, 500, "forged");
    // An opening that is refused.
    let mut refused = heard();
    refused.told(client(), syn(1_000));
    refused.told(client(), syn(9_000));
    assert_eq!(refused.told(server(), Segment { acknowledges: Some(9_000), ..rst(0) }), "");
    refused.told(server(), answer(500, 1_000));
    goes_on(&mut refused, 1_000, 500, "refused");
    // The last reset ends the connection.
    let mut over = heard();
    over.told(client(), syn(1_000));
    over.told(client(), syn(9_000));
    over.told(client(), rst(9_000));
    assert_eq!(over.told(client(), rst(1_000)), ".reset");
}

/// An attacker knows addresses and ports, and sends before the ends agree or while one of them is silent.
#[test]
fn a_forged_opening_hides_no_connection() {
    for forged in [9_000, 3_000_000_000] {
        // Each end begins with its own number.
        let mut both = heard();
        both.told(client(), syn(1_000));
        both.told(server(), answer(500, 1_000));
        both.told(client(), syn(forged));
        both.told(server(), answer(600, forged));
        both.told(client(), ack(1_000, 500));
        goes_on(&mut both, 1_000, 500, "both");
        // Followed from the middle, where the client only acknowledges.
        let mut silent = heard();
        silent.told(client(), ack(1_000, 500));
        assert_eq!(silent.told(server(), says(500, 1_000, b"data")), "[data]");
        assert_eq!(silent.push(client(), syn(forged)), IGNORED);
        assert_eq!(silent.told(client(), says(1_000, 504, b"ask")), "ask");
        // Both ends only acknowledge.
        let mut bare = heard();
        bare.told(client(), ack(1_000, 500));
        bare.told(server(), ack(500, 1_000));
        bare.told(client(), syn(forged));
        bare.told(server(), syn(forged));
        goes_on(&mut bare, 1_000, 500, "bare");
        // The answer was not seen, and the server sent first.
        let mut spoken = heard();
        spoken.told(client(), syn(1_000));
        assert_eq!(spoken.told(server(), says(500, 1_000, b"220 ")), "[220 ]");
        spoken.told(client(), syn(forged));
        assert_eq!(spoken.told(client(), ack(1_000, 504)), "");
        assert_eq!(spoken.told(server(), says(504, 1_000, b"ready")), "[ready]");
        assert_eq!(spoken.told(client(), says(1_000, 509, b"ask")), "ask");
        for heard in [both, silent, bare, spoken] {
            assert_eq!(heard.streams.counters().connections, 1);
        }
    }
}

/// Its windows count too.
#[test]
fn an_opening_that_counts_later_keeps_its_offers() {
    let mut heard = heard();
    let offers = |window, shift, segment| super::rules::takes(window, Some(shift), segment);
    heard.told(client(), offers(100, 3, syn(1_000)));
    heard.told(client(), offers(100, 9, syn(9_000)));
    heard.told(server(), offers(100, 2, answer(500, 1_000)));
    heard.told(client(), super::rules::takes(25, None, ack(1_000, 500)));
    assert_eq!(heard.push(server(), says(700, 1_000, b"beyond")), IGNORED, "25 << 3");
    assert_eq!(heard.push(server(), says(699, 1_000, b"within")).0, Arrival::Waits);
}

/// The end of one side was not seen, or a reset was not seen because the other direction is not.
#[test]
fn ports_are_used_again_after_ends_that_were_not_seen() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(server(), answer(500, 1_000));
    heard.told(client(), ack(1_000, 500));
    assert_eq!(heard.told(client(), Segment { acknowledges: Some(500), ..fin(1_000, b"") }), ".finished");
    assert_eq!(heard.push(client(), syn(9_000)), IGNORED);
    assert_eq!(heard.told(server(), answer(700, 9_000)), "[.replaced]");
    goes_on(&mut heard, 9_000, 700, "the next one");
    let mut heard = self::heard();
    heard.told(client(), syn(1_000));
    assert_eq!(heard.told(client(), segment(1_000, b"one")), "one");
    assert_eq!(heard.push(client(), syn(9_000)), IGNORED);
    assert_eq!(heard.told(client(), segment(1_003, b"more")), "more", "it was forged");
    assert_eq!(heard.push(client(), syn(9_000)), IGNORED);
    assert_eq!(heard.told(client(), segment(9_000, b"two")), ".replacedtwo");
}

/// A forged opening does not remove an end that came ahead.
#[test]
fn an_end_from_ahead_outlives_a_forged_opening() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(client(), fin(1_003, b""));
    heard.told(client(), syn(9_000));
    assert_eq!(heard.told(client(), segment(1_000, b"ask")), "ask.finished");
}

/// The client knows the segment only as one for another connection.
#[test]
fn a_stray_segment_of_the_server_does_not_hide_the_connection() {
    for stray in [says(9_000, 77, b"x"), fin(9_000, b""), segment(3 << 30, b"x")] {
        let mut heard = heard();
        heard.told(server(), stray);
        heard.told(client(), syn(1_000));
        heard.told(server(), answer(7_000, 1_000));
        heard.told(client(), ack(1_000, 7_000));
        goes_on(&mut heard, 1_000, 7_000, "the one that both opened");
    }
    // Of two ends that only acknowledged before, the one that opens is the client.
    let mut heard = heard();
    heard.told(server(), ack(500, 1_000));
    heard.told(client(), ack(1_000, 500));
    heard.told(client(), syn(9_000));
    heard.told(server(), answer(7_000, 9_000));
    heard.told(client(), ack(9_000, 7_000));
    goes_on(&mut heard, 9_000, 7_000, "the client that opened");
}

/// Its bytes are given up for other bytes, behind which it ends.
#[test]
fn an_end_before_where_an_opening_s_bytes_ended_is_sound() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let mut heard = Heard::new(StreamConfig { overlap, ..StreamConfig::default() });
        heard.told(client(), Segment { bytes: b"decoy", ..syn(1_000) });
        let ends = Segment { acknowledges: Some(1), ..fin(1_000, b"ab") };
        assert_eq!(heard.told(client(), ends), "ab.finished", "{overlap:?}");
        let mut other = Heard::new(StreamConfig::default());
        assert_eq!(other.streams.decode(&heard.streams.encode(), 0).unwrap(), 1, "{overlap:?}");
    }
}

/// A segment before the opening is no retransmission of it.
#[test]
fn an_old_segment_leaves_the_bytes_of_an_opening() {
    let mut heard = heard();
    heard.told(client(), Segment { bytes: b"ask", ..syn(1_000) });
    heard.told(client(), says(900, 1, b"x"));
    assert_eq!(heard.told(server(), answer(500, 1_003)), "ask");
}

/// Between a server's answer and its client's acknowledgment, from a host that knows neither number.
#[test]
fn a_forged_opening_with_bytes_behind_it_hides_no_connection() {
    for forged in [400, 9_000] {
        let mut heard = heard();
        heard.told(client(), syn(1_000));
        heard.told(server(), answer(500, 1_000));
        heard.told(client(), syn(forged));
        assert_eq!(heard.push(client(), says(forged + 5, 77, b"x")), IGNORED);
        heard.told(client(), ack(1_000, 500));
        goes_on(&mut heard, 1_000, 500, "the real one");
    }
}

#[test]
fn ports_are_used_again_after_the_end_of_the_client_was_not_seen() {
    let mut heard = heard();
    heard.told(client(), syn(1_000));
    heard.told(server(), answer(500, 1_000));
    heard.told(client(), ack(1_000, 500));
    assert_eq!(heard.told(server(), Segment { acknowledges: Some(1_000), ..fin(500, b"") }), "[.finished]");
    assert_eq!(heard.push(client(), syn(9_000)), IGNORED);
    assert_eq!(heard.told(server(), answer(700, 9_000)), ".replaced");
    goes_on(&mut heard, 9_000, 700, "the next one");
}
