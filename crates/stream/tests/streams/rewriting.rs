//! Rewritten connections where memory or places run out, and with segments at unusual positions.
//!
//! The output is the rewritten input, or nothing.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{BLOCK, Output, PacketizeConfig, Packetizer, Passage, Replace, Rewriter, Source};

use super::exercise::flow;

const ACK: u8 = flags::ACK;
const SECOND: u64 = 1_000_000_000;

/// Clients' bytes begin at 100, servers' at 500.
const FIRST: [u32; 2] = [100, 500];

struct Middle<R: Rewriter> {
    packetizer: Packetizer<R>,
    now: u64,
}

/// The output for a segment: number, flags and bytes of each segment.
type Out = Vec<(u32, u8, Vec<u8>)>;

impl<R: Rewriter> Middle<R> {
    fn new(flows: usize, blocks: usize, rewriter: R) -> Self {
        let memory = blocks * BLOCK;
        let config = PacketizeConfig { flows, flow_memory: memory, memory, ..PacketizeConfig::default() };
        Self { packetizer: Packetizer::new(config, rewriter).expect("so little memory is there"), now: 0 }
    }

    fn pass(&mut self, flow: FlowKey, numbers: [u32; 2], flag: u8, bytes: &[u8]) -> (Passage, Out) {
        self.with_options(flow, numbers, flag, &[], bytes)
    }

    fn with_options(
        &mut self,
        flow: FlowKey,
        numbers: [u32; 2],
        flag: u8,
        options: &[u8],
        bytes: &[u8],
    ) -> (Passage, Out) {
        let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flag);
        header.set_window(u16::MAX);
        header.set_options_len(options.len());
        let mut out = Vec::new();
        let header = [&header.octets(), options].concat();
        let passage = self.packetizer.push(flow, Tcp::view(&header, ()), bytes, self.now, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out.push((emit.number, emit.flags, bytes));
            true
        });
        if passage == Passage::Unchanged {
            out.push((numbers[0], flag, bytes.to_vec()));
        }
        (passage, out)
    }

    fn client(&mut self, number: u32, [at, has]: [u32; 2], flag: u8, bytes: &[u8]) -> (Passage, Out) {
        self.pass(flow(number), [FIRST[0].wrapping_add(at), FIRST[1] + has], flag, bytes)
    }
    fn server(&mut self, number: u32, [at, has]: [u32; 2], flag: u8, bytes: &[u8]) -> (Passage, Out) {
        self.pass(flow(number).reversed(), [FIRST[1].wrapping_add(at), FIRST[0] + has], flag, bytes)
    }

    fn shake_hands(&mut self, number: u32) {
        self.pass(flow(number), [FIRST[0] - 1, 0], flags::SYN, b"");
        self.pass(flow(number).reversed(), [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK, b"");
        self.client(number, [0, 0], ACK, b"");
    }

    /// A short connection in which the server sends "cat". Answers the bytes that the client got.
    fn short(&mut self, number: u32, reset: bool) -> Vec<u8> {
        self.shake_hands(number);
        let (_, out) = self.server(number, [0, 0], ACK, b"cat");
        let has = out.iter().map(|(.., bytes)| bytes.len() as u32).sum::<u32>();
        self.client(number, [0, has], ACK, b"");
        if reset {
            self.server(number, [3, 0], flags::RST, b"");
        } else {
            self.server(number, [3, 0], flags::FIN | ACK, b"");
            self.client(number, [0, has + 1], flags::FIN | ACK, b"");
            self.server(number, [4, 1], ACK, b"");
        }
        out.into_iter().flat_map(|(.., bytes)| bytes).collect()
    }

    fn connections(&self) -> usize {
        self.packetizer.occupancy().0
    }
}

fn cats() -> Replace {
    Replace::new(b"cat", b"elephant", None).expect("both are short")
}

/// Several connections hold a beginning of the string, and all end while another connection has the memory.
///
/// The string has 2,001 bytes. No byte goes out that no end sent.
#[test]
fn an_end_without_room_for_what_is_held_back_counts_as_lost() {
    let find = [&[b'a'; 2_000][..], b"b"].concat();
    let mut middle = Middle::new(16, 48, Replace::new(&find, b"-", None).expect("not too long"));
    let holding = 1..9;
    for number in holding.clone() {
        middle.shake_hands(number);
        let (_, out) = middle.server(number, [0, 0], ACK, &find[..2_000]);
        assert_eq!(out.iter().map(|(.., bytes)| bytes.len()).sum::<usize>(), 0);
    }
    middle.shake_hands(9);
    let mut at = 0;
    while middle.server(9, [at, 0], ACK, &[b'y'; 100]).0 == Passage::Replaced {
        at += 100;
    }
    let mut got = vec![Vec::new(); 9];
    let mut lost = 0;
    let mut end = |middle: &mut Middle<Replace>, number: u32, got: &mut Vec<u8>| {
        let (passage, out) = middle.server(number, [2_000, 0], flags::FIN | ACK, b"");
        for (_, _, bytes) in &out {
            assert!(bytes.iter().all(|byte| *byte == b'a'), "{number}: a byte that was not sent");
            got.extend(bytes);
        }
        assert_eq!(out.is_empty(), passage == Passage::NoRoom);
        lost += usize::from(passage == Passage::NoRoom);
    };
    for number in holding.clone() {
        end(&mut middle, number, &mut got[number as usize]);
    }
    // Memory becomes free when other bytes are acknowledged, and the senders repeat theirs.
    middle.client(9, [0, at], ACK, b"");
    for _ in 0..8 {
        for number in holding.clone() {
            let got = &mut got[number as usize];
            if got.is_empty() {
                end(&mut middle, number, got);
            }
            middle.client(number, [0, got.len() as u32], ACK, b"");
        }
    }
    assert!(lost > 0, "there was room for all: the test shows nothing");
    assert_eq!(middle.packetizer.counters().no_room, lost as u64 + 1);
    for number in holding {
        assert_eq!(got[number as usize], &find[..2_000], "{number}");
    }
}

/// Passes everything on, and states that the output takes no memory.
struct Understates;

impl Rewriter for Understates {
    type Memory = ();
    fn rewrite(&mut self, _: &Source, (): &mut (), bytes: &[u8], output: &mut Output<'_>) {
        output.pass(bytes);
    }
    fn flush(&mut self, _: &Source, (): &mut (), _: &mut Output<'_>) {}
    fn most(&self, _: usize) -> usize {
        0
    }
}

#[test]
fn bytes_that_found_no_block_are_never_sent_as_others() {
    let mut middle = Middle::new(4, 4, Understates);
    middle.shake_hands(1);
    let data: Vec<u8> = (0..6 * BLOCK).map(|at| 1 + (at % 251) as u8).collect();
    for _ in 0..2 {
        let (passage, out) = middle.server(1, [0, 0], ACK, &data);
        assert_eq!((passage, out.len()), (Passage::NoRoom, 0));
    }
    assert_eq!(middle.packetizer.counters().no_room, 2);
}

/// Else connections whose receivers miss bytes would keep each other's memory until they are forgotten.
#[test]
fn a_retransmission_needs_no_room() {
    let mut middle = Middle::new(4, 8, cats());
    for number in [1, 2] {
        middle.shake_hands(number);
    }
    let mut at = 0;
    while middle.server(1, [at, 0], ACK, &[b'y'; 100]).0 == Passage::Replaced {
        at += 100;
    }
    let (passage, out) = middle.server(1, [0, 0], ACK, &[b'y'; 100]);
    assert_eq!(passage, Passage::Replaced);
    assert!(out.iter().flat_map(|(.., bytes)| bytes).count() >= 100);
}

#[test]
fn finished_and_reset_connections_give_their_places_back() {
    for reset in [false, true] {
        let mut middle = Middle::new(8, 64, cats());
        for number in 0..100 {
            middle.now += 1_000_000;
            assert_eq!(middle.short(number, reset), b"elephant", "{number}");
        }
        assert_eq!(middle.packetizer.counters().unchanged, 0);
        assert_eq!(middle.connections(), 8, "they stay for late segments while their place is not needed");
        middle.now += 61 * SECOND;
        middle.packetizer.expire(middle.now, 100);
        assert_eq!((middle.connections(), middle.packetizer.memory()), (0, 0));
    }
}

#[test]
fn a_flood_of_openings_takes_no_place_from_those_who_shook_hands() {
    let mut middle = Middle::new(8, 64, cats());
    for number in [1, 2] {
        middle.shake_hands(number);
    }
    for number in 1_000..3_000 {
        middle.now += 1_000;
        middle.pass(flow(number), [7, 0], flags::SYN, b"");
        if number % 2 == 0 {
            // The server answers, but a client with a forged address does not know the number.
            middle.pass(flow(number).reversed(), [FIRST[1] - 1, 8], flags::SYN | ACK, b"");
            middle.pass(flow(number), [8, 77], ACK, b"");
        }
        if number % 500 == 0 {
            assert_eq!(middle.short(number + 10_000, false), b"elephant");
        }
    }
    for number in [1, 2] {
        let (passage, out) = middle.server(number, [0, 0], ACK, b"cat");
        assert_eq!((passage, &out[0].2[..]), (Passage::Replaced, &b"elephant"[..]));
    }
    middle.now += 31 * SECOND;
    middle.packetizer.expire(middle.now, 100);
    assert!(middle.connections() <= 4, "half-open ones are forgotten soon: {}", middle.connections());
}

#[test]
fn those_who_shook_hands_are_not_replaced_by_others() {
    let mut middle = Middle::new(2, 64, cats());
    for number in [1, 2] {
        middle.shake_hands(number);
    }
    middle.now += 120 * SECOND;
    middle.packetizer.expire(middle.now, 100);
    assert_eq!(middle.short(3, false), b"cat", "it passes unchanged");
    assert_eq!(middle.server(1, [0, 0], ACK, b"cat").1[0].2, b"elephant");
}

#[test]
fn segments_that_open_nothing_take_no_place() {
    let mut middle = Middle::new(8, 64, cats());
    for number in 0..20 {
        assert_eq!(middle.client(number, [0, 0], ACK, b"cat").0, Passage::Unchanged);
        assert_eq!(middle.server(number, [0, 0], flags::SYN | ACK, b"").0, Passage::Unchanged);
    }
    assert_eq!((middle.connections(), middle.packetizer.counters().unchanged), (0, 40));
}

#[test]
fn a_keep_alive_of_a_stream_of_which_nothing_was_left_stays_one() {
    let mut middle = Middle::new(8, 64, Replace::new(b"a", b"", None).expect("both are short"));
    middle.shake_hands(1);
    middle.server(1, [0, 0], ACK, b"aa");
    let (passage, out) = middle.server(1, [1, 0], ACK, b"");
    assert_eq!((passage, out), (Passage::Replaced, vec![(FIRST[1] - 1, ACK, Vec::new())]));
}

/// RFC 7413: a receiver that does not see the bytes does not acknowledge them, and they come again.
#[test]
fn bytes_of_a_syn_are_rewritten_when_they_come_again() {
    let mut middle = Middle::new(8, 64, cats());
    for _ in 0..2 {
        let (_, out) = middle.pass(flow(1), [FIRST[0] - 1, 0], flags::SYN, b"cat");
        assert_eq!(out, [(FIRST[0] - 1, flags::SYN, Vec::new())]);
    }
    middle.pass(flow(1).reversed(), [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK, b"");
    assert_eq!(middle.client(1, [0, 0], ACK, b"cat").1[0].2, b"elephant");
}

/// One packet produces more segments than it may send, and then the line takes nothing for a while.
///
/// Nothing is lost: the rest goes out with the next packets, even if these bring nothing new.
#[test]
fn output_that_a_packet_cannot_send_goes_with_the_next() {
    let mut middle = Middle::new(4, 4_096, Replace::new(b"a", &[b'x'; 128], None).expect("both are short"));
    middle.shake_hands(1);
    let mut got = Vec::new();
    let mut take = |out: Out| {
        for (number, _, bytes) in out {
            assert_eq!(number.wrapping_sub(FIRST[1]) as usize, got.len(), "in order, and once");
            got.extend(bytes);
        }
        got.len()
    };
    let (_, out) = middle.server(1, [0, 0], ACK, &[b'a'; 500]);
    let first = take(out);
    assert!(first > 0 && first < 500 * 128);
    let header = Tcp::new(0, 0, FIRST[1] + 500, FIRST[0], ACK).octets();
    let passage =
        middle.packetizer.push(flow(1).reversed(), Tcp::view(header.as_ref(), ()), b"", 0, |_| false);
    assert_eq!(passage, Passage::Replaced);
    // Its end is behind all bytes.
    let mut ends = 0;
    for turn in 0..100 {
        let flag = if turn == 0 { flags::FIN | ACK } else { ACK };
        let (_, out) = middle.server(1, [if turn == 0 { 500 } else { 501 }, 0], flag, b"");
        let last = out.last().expect("each packet goes on").1;
        ends += usize::from(last & flags::FIN != 0);
        if take(out.into_iter().filter(|(.., bytes)| !bytes.is_empty()).collect()) == 500 * 128 {
            break;
        }
        assert_eq!(ends, 0, "not before all is said");
    }
    assert_eq!((got, ends), (vec![b'x'; 500 * 128], 1));
}

/// Else each loss would cost as many packets as came behind it.
#[test]
fn segments_that_waited_for_a_packet_go_on_with_it() {
    let mut middle = Middle::new(4, 256, cats());
    middle.shake_hands(1);
    for at in (500..20_000).step_by(500).rev() {
        let (_, out) = middle.server(1, [at, 0], ACK, &[b'y'; 500]);
        assert!(out.iter().all(|(.., bytes)| bytes.len() <= 1), "it waits");
    }
    let (_, out) = middle.server(1, [0, 0], ACK, &[b'y'; 500]);
    assert_eq!(out.iter().map(|(.., bytes)| bytes.len()).sum::<usize>(), 20_000 / 536 * 536 + 20_000 % 536);
}

/// A beginning of the string is not given up, however often its sender repeats it.
///
/// The bytes that wait behind it show that more follows.
#[test]
fn the_beginning_of_a_string_is_kept_while_what_follows_waits() {
    let mut middle = Middle::new(4, 64, cats());
    middle.shake_hands(1);
    middle.server(1, [0, 0], ACK | flags::PSH, b"a c");
    middle.server(1, [8, 0], ACK, b"!");
    for _ in 0..10 {
        let (_, out) = middle.server(1, [0, 0], ACK | flags::PSH, b"a c");
        assert!(out.iter().all(|(.., bytes)| bytes.len() <= 2), "{out:?}");
    }
    let (_, out) = middle.server(1, [3, 0], ACK, b"at it");
    assert_eq!(out.iter().flat_map(|(.., bytes)| bytes.clone()).collect::<Vec<_>>(), b"elephant it!");
}

/// RFC 5681, section 2: with another window it would be no duplicate, and its sender waits for three of them.
#[test]
fn duplicate_acknowledgments_stay_such_whatever_comes_between() {
    let mut middle = Middle::new(4, 256, cats());
    middle.shake_hands(1);
    let mut told = Vec::new();
    for turn in 0..5 {
        middle.server(1, [6 * turn, 0], ACK, b"a cat ");
        // The first of them was lost behind the rewriter.
        let header = {
            let mut header = Tcp::new(0, 0, FIRST[0], FIRST[1], ACK);
            header.set_window(2_000);
            header.octets()
        };
        let header = Tcp::view(header.as_ref(), ());
        middle.packetizer.push(flow(1), header, b"", 0, |emit| {
            told.push((emit.back, emit.number, emit.acknowledgment, emit.window));
            true
        });
    }
    assert_eq!(told.len(), 5);
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
}

/// A packet of the sender produces only a few segments beyond its own bytes.
///
/// If no more packets come from it, the rest goes out when its receiver sends a segment.
#[test]
fn the_rest_goes_when_its_receiver_sends_a_segment() {
    let mut middle = Middle::new(4, 4_096, Replace::new(b"a", &[b'x'; 128], None).expect("both are short"));
    middle.shake_hands(1);
    let (_, out) = middle.server(1, [0, 0], flags::FIN | ACK, &[b'a'; 500]);
    let mut got = out.iter().map(|(.., bytes)| bytes.len() as u32).sum::<u32>();
    assert!(got < 500 * 128);
    let mut ends = 0;
    while ends == 0 {
        let (_, out) = middle.client(1, [0, got], ACK, b"");
        assert!((2..=3).contains(&out.len()), "{out:?}");
        // The acknowledgment itself is forwarded.
        assert_eq!(out[0], (FIRST[0], ACK, Vec::new()));
        for (number, flag, bytes) in &out[1..] {
            assert_eq!(*number, FIRST[1] + got, "in order, and once");
            assert!(bytes.iter().all(|byte| *byte == b'x'));
            got += bytes.len() as u32;
            ends += u32::from(flag & flags::FIN != 0);
        }
    }
    assert_eq!((got, ends), (500 * 128, 1));
    assert_eq!(middle.client(1, [0, got + 1], ACK, b"").1.len(), 1);
}

/// Its sender has more, which was lost: else it would have set PSH.
///
/// Its timer sends nothing else before this is acknowledged.
#[test]
fn the_beginning_of_a_string_is_acknowledged_where_more_is_to_follow() {
    for flag in [ACK, ACK | flags::PSH] {
        let mut middle = Middle::new(4, 64, cats());
        middle.shake_hands(1);
        middle.server(1, [0, 0], flag, b"a c");
        middle.client(1, [0, 2], ACK, b"");
        let mut got = Vec::new();
        for _ in 0..5 {
            let (_, out) = middle.server(1, [2, 0], flag, b"c");
            let [(number, _, bytes)] = &out[..] else { panic!("{out:?}") };
            // A byte that its receiver has, so that it acknowledges; or the next one.
            match number - FIRST[1] {
                1 => assert_eq!((got.len(), bytes.len()), (0, 1)),
                2 if !bytes.is_empty() => got = bytes.clone(),
                _ => panic!("{out:?}"),
            }
        }
        let header = Tcp::new(0, 0, FIRST[0], FIRST[1] + 2 + got.len() as u32, ACK).octets();
        let mut told = 0;
        middle.packetizer.push(flow(1), Tcp::view(header.as_ref(), ()), b"", 0, |emit| {
            told = emit.acknowledgment;
            true
        });
        assert_eq!(told, FIRST[1] + 3);
        let (_, out) = middle.server(1, [3, 0], ACK, b"at");
        got.extend(out.into_iter().flat_map(|(.., bytes)| bytes));
        let expected: &[u8] = if flag == ACK { b"elephant" } else { b"cat" };
        assert_eq!(got, expected);
    }
}

/// Its sender was told that it arrived, and repeats it only when its timer expires.
#[test]
fn bytes_that_waited_and_were_lost_behind_are_sent_again() {
    let mut middle = Middle::new(4, 256, cats());
    for (flow, numbers, flag) in [
        (flow(1), [FIRST[0] - 1, 0], flags::SYN),
        (flow(1).reversed(), [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK),
        (flow(1), FIRST, ACK),
    ] {
        middle.with_options(flow, numbers, flag, &[2, 4, 0, 100, 1, 1, 4, 2], b"");
    }
    let data: Vec<u8> = (0..1_000u32).map(|at| b'p' + (at % 7) as u8).collect();
    for at in (100..1_000).step_by(100) {
        middle.server(1, [at, 0], ACK, &data[at as usize..at as usize + 100]);
    }
    let (_, out) = middle.server(1, [0, 0], ACK, &data[..100]);
    assert_eq!(out.iter().map(|(.., bytes)| bytes.len()).sum::<usize>(), 1_000);
    // Its receiver has the first 200 bytes, and those from 300 on.
    let has = |middle: &mut Middle<Replace>, behind: u32| {
        let mut options = vec![1, 1, 5, 10];
        options.extend((FIRST[1] + 300).to_be_bytes());
        options.extend((FIRST[1] + behind).to_be_bytes());
        let (_, out) = middle.with_options(flow(1), [FIRST[0], FIRST[1] + 200], ACK, &options, b"");
        let mut got: Vec<u8> = Vec::new();
        for (number, _, bytes) in &out[1..] {
            assert_eq!(*number, FIRST[1] + 200 + got.len() as u32);
            got.extend(bytes);
        }
        got
    };
    assert_eq!(has(&mut middle, 370), b"", "it may have been overtaken");
    assert_eq!(has(&mut middle, 1_000), &data[200..300]);
    assert_eq!(has(&mut middle, 1_000), b"", "once");
}

/// Connections that never acknowledge anything, as many as would use all memory together.
#[test]
fn those_who_acknowledge_nothing_leave_memory_for_others() {
    let (blocks, flows) = (1_024, 16);
    let memory = blocks * BLOCK;
    let config = PacketizeConfig { flows: 32, flow_memory: memory / 4, memory, ..PacketizeConfig::default() };
    let packetizer = Packetizer::new(config, cats()).expect("so little memory is there");
    let mut middle = Middle { packetizer, now: 0 };
    for greedy in 1..=flows {
        middle.shake_hands(greedy);
    }
    // All of them at once, as long as any of them makes progress.
    let mut at = vec![0; flows as usize];
    let mut going = true;
    while std::mem::take(&mut going) {
        for (greedy, at) in (1..=flows).zip(&mut at) {
            if middle.server(greedy, [*at, 0], ACK, &[b'y'; 500]).0 == Passage::Replaced {
                (*at, going) = (*at + 500, true);
            }
        }
    }
    let [least, most] = [at.iter().min(), at.iter().max()].map(|at| at.copied().unwrap_or_default());
    assert!(least * 10 > most * 8, "they share it: {least} to {most}");
    let left = memory - middle.packetizer.memory();
    assert!(left > memory / 20, "{left} bytes");
    // A connection that acknowledges is not affected by them.
    middle.shake_hands(100);
    for turn in 0..1_000 {
        let (passage, out) = middle.server(100, [500 * turn, 0], ACK, &[b'y'; 500]);
        assert_eq!((passage, out.len()), (Passage::Replaced, 1));
        middle.client(100, [0, 500 * (turn + 1)], ACK, b"");
    }
}

/// A connection whose ends both take segments of 1,460 bytes.
fn with_large_segments() -> Middle<Replace> {
    let mut middle = Middle::new(4, 256, cats());
    let large = &[2, 4, 5, 180];
    middle.with_options(flow(1), [FIRST[0] - 1, 0], flags::SYN, large, b"");
    middle.with_options(flow(1).reversed(), [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK, large, b"");
    middle.client(1, [0, 0], ACK, b"");
    middle
}

/// RFC 9293, section 3.9.1.2: bytes that their sender pushed are pushed at their end.
#[test]
fn the_last_of_several_segments_is_pushed_where_its_sender_pushes() {
    let mut middle = with_large_segments();
    for flag in [ACK, ACK | flags::PSH] {
        let cats = b"cat ".repeat(365);
        let at = if flag == ACK { 0 } else { 1_460 };
        let (_, out) = middle.server(1, [at, 0], flag, &cats);
        let sizes: Vec<usize> = out.iter().map(|(.., bytes)| bytes.len()).collect();
        assert_eq!(sizes, [1_460, 1_460, 365]);
        let pushed: Vec<bool> = out.iter().map(|(_, flags, _)| flags & flags::PSH != 0).collect();
        assert_eq!(pushed, [false, false, flag != ACK]);
    }
}

/// Its sender has learnt of a smaller MTU, and repeats its bytes in smaller segments.
///
/// The output is cut into segments of the same size.
#[test]
fn segments_are_no_longer_than_their_sender_s() {
    let mut middle = with_large_segments();
    let stream = [b"cat ".as_slice(), &[b'x'; 6_000]].concat();
    let (_, out) = middle.server(1, [0, 0], ACK, &stream[..1_460]);
    assert_eq!(out.iter().map(|(.., bytes)| bytes.len()).collect::<Vec<_>>(), [1_460, 5]);
    let mut got = vec![0; stream.len() + 5];
    for (from, again) in [(0, true), (1_348, true), (2_696, false), (4_044, false)] {
        let (_, out) = middle.server(1, [from, 0], ACK, &stream[from as usize..][..1_348]);
        assert!(!out.is_empty(), "{from}");
        for (number, _, bytes) in out {
            assert!(bytes.len() <= 1_348, "{} bytes at {from}, sent again: {again}", bytes.len());
            let at = (number - FIRST[1]) as usize;
            got[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    let rewritten = [b"elephant ".as_slice(), &[b'x'; 5_388]].concat();
    assert_eq!(got[..rewritten.len()], rewritten);
}
