//! Segments that neither end of a rewritten connection sent, or that it sent long ago.
//!
//! They come no nearer to the numbers that count, and have no effect.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    BLOCK, Emit, MidstreamPolicy, PacketizeConfig, PacketizeCounters, Packetizer, Passage, Replace,
};
use netbricks_testkit::mutate::Random;

use super::exercise::flow;

const ACK: u8 = flags::ACK;
const FIN: u8 = flags::FIN;
const RST: u8 = flags::RST;
const SYN: u8 = flags::SYN;

/// Clients' bytes begin at 100, servers' at 500.
const FIRST: [u32; 2] = [100, 500];

/// A segment that went out.
#[derive(Debug, PartialEq)]
struct Sent {
    number: u32,
    acknowledgment: u32,
    flags: u8,
    options: Vec<u8>,
    bytes: Vec<u8>,
}

/// Replaces "cat" by "elephant" in both directions.
struct Path(Packetizer<Replace>);

impl Path {
    fn new(midstream: MidstreamPolicy) -> Self {
        let memory = 64 * BLOCK;
        let config = PacketizeConfig {
            flows: 4,
            flow_memory: memory,
            memory,
            midstream,
            ..PacketizeConfig::default()
        };
        let replace = Replace::new(b"cat", b"elephant", None).expect("both are short");
        Self(Packetizer::new(config, replace).expect("so little memory is there"))
    }

    fn push(
        &mut self,
        flow: FlowKey,
        numbers: [u32; 2],
        flag: u8,
        options: &[u8],
        bytes: &[u8],
    ) -> (Passage, Vec<Sent>) {
        let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flag);
        header.set_window(u16::MAX);
        header.set_options_len(options.len());
        let header = [&header.octets(), options].concat();
        let mut out = Vec::new();
        let passage = self.0.push(flow, Tcp::view(&header, ()), bytes, 0, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            let Emit { number, acknowledgment, flags, options, .. } = emit;
            assert!(!emit.back);
            out.push(Sent {
                number: *number,
                acknowledgment: *acknowledgment,
                flags: *flags,
                options: options.to_vec(),
                bytes,
            });
            true
        });
        (passage, out)
    }

    fn client(&mut self, numbers: [u32; 2], flag: u8, bytes: &[u8]) -> (Passage, Vec<Sent>) {
        self.push(flow(1), numbers, flag, &[], bytes)
    }
    fn server(&mut self, numbers: [u32; 2], flag: u8, bytes: &[u8]) -> (Passage, Vec<Sent>) {
        self.push(flow(1).reversed(), numbers, flag, &[], bytes)
    }

    fn shake_hands(&mut self) {
        self.client([FIRST[0] - 1, 0], SYN, b"");
        self.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
        self.client(FIRST, ACK, b"");
    }
    /// The server sends "cat" at its position; answers the bytes that are forwarded.
    fn says_cat(&mut self, at: u32) -> Vec<u8> {
        let (_, out) = self.server([at, FIRST[0]], ACK, b"cat");
        out.into_iter().flat_map(|sent| sent.bytes).collect()
    }

    fn counters(&self) -> PacketizeCounters {
        self.0.counters()
    }
}

/// Both ends sent "cat", and nothing is acknowledged: 3 bytes that became 8.
fn said() -> (Path, [u32; 2], [u32; 2]) {
    let mut path = Path::new(MidstreamPolicy::Pass);
    path.shake_hands();
    assert_eq!(path.says_cat(FIRST[1]), b"elephant");
    path.client(FIRST, ACK, b"cat");
    (path, FIRST.map(|first| first + 3), FIRST.map(|first| first + 8))
}

/// RFC 5961, section 3.2: an attacker who does not know the numbers needs as many attempts as without the
/// rewriter.
#[test]
fn segments_ahead_stay_as_far_ahead_behind_the_rewriter() {
    let mut random = Random::new(1);
    let (mut path, next, goes_on) = said();
    let memory = path.0.memory();
    for turn in 0..20_000u32 {
        let way = turn as usize % 2;
        let flag = [RST, RST | ACK, ACK, ACK | flags::PSH, FIN | ACK][turn as usize % 5];
        let wild = random.next() as u32;
        // Anywhere, or within a window's reach.
        let distance = 1 + if random.below(2) == 0 { wild >> 1 } else { wild >> 16 };
        let bytes: &[u8] = if random.below(2) == 0 && flag & FIN != 0 { b"forged" } else { b"" };
        let near = distance < 1 << 20;
        if near && flag & FIN != 0 {
            // A receiver keeps that segment too.
            continue;
        }
        let from = if way == 0 { flow(1) } else { flow(1).reversed() };
        let numbers = [next[way].wrapping_add(distance), goes_on[1 - way]];
        // Near segments carry no acknowledgment, because it would count there.
        let flag = if near { flag & !ACK } else { flag };
        let (passage, out) = path.push(from, numbers, flag, &[], bytes);
        let [Sent { number, bytes, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((passage, &bytes[..]), (Passage::Replaced, &b""[..]));
        assert_eq!(number.wrapping_sub(goes_on[way]), distance, "{flag:#x} {numbers:?} in {turn}");
        assert_eq!(out[0].flags & (RST | FIN), flag & RST);
        assert_eq!(path.0.memory(), memory, "{flag:#x} {numbers:?}: something was freed, or kept");
    }
    // Bytes that are lost on their way are still kept here.
    assert_eq!(path.says_cat(FIRST[1]), b"elephant");
    let (_, out) = path.server([next[1], FIRST[0]], FIN | ACK, b"!");
    assert_eq!((out[0].number, out[0].flags & FIN, &out[0].bytes[..]), (goes_on[1], FIN, &b"!"[..]));
}

/// A segment behind the next byte stays behind it, and never moves to the next byte.
#[test]
fn segments_behind_the_next_byte_stay_behind() {
    let mut random = Random::new(2);
    let (mut path, next, goes_on) = said();
    let memory = path.0.memory();
    for turn in 0..20_000u32 {
        let way = turn as usize % 2;
        let from = if way == 0 { flow(1) } else { flow(1).reversed() };
        // Further than the windows that were let through.
        let distance = (1 << 20) + (random.next() as u32 >> 1).min(i32::MAX as u32 - (1 << 20));
        let flag = [RST | ACK, ACK, FIN | ACK][turn as usize % 3];
        let (_, out) =
            path.push(from, [next[way].wrapping_sub(distance), goes_on[1 - way]], flag, &[], b"old");
        assert_eq!(goes_on[way].wrapping_sub(out[0].number), distance);
        assert_eq!((out.len(), path.0.memory()), (1, memory));
    }
}

#[test]
fn a_reset_counts_at_the_very_next_byte_and_where_its_sender_was_told_to_be() {
    // The next number, and the number that the client acknowledged: a server that has forgotten the
    // connection may answer with it.
    for (at, goes_on) in [(3, 8), (0, 0)] {
        let (mut path, ..) = said();
        path.push(flow(1), [FIRST[0] + 3, FIRST[1]], ACK, &[], b"");
        assert!(path.0.memory() > 0);
        let (passage, out) = path.server([FIRST[1] + at, 0], RST, b"");
        let [Sent { number, flags, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((passage, *number, *flags), (Passage::Replaced, FIRST[1] + goes_on, RST));
        assert_eq!(path.0.memory(), 0, "nothing is kept for a connection that is over");
    }
    // The acknowledgment of a reset does not count.
    let (mut path, next, goes_on) = said();
    let memory = path.0.memory();
    path.client([next[0] + 9, goes_on[1]], RST | ACK, b"");
    assert_eq!(path.0.memory(), memory);
}

/// Else the real end would be lost, and both ends would wait for ever.
#[test]
fn an_end_that_was_forged_ahead_hides_no_other() {
    // Within a window's reach, and outside of it.
    for distance in [1, 1_000, 60_000, 1 << 20, 1 << 29] {
        let (mut path, next, goes_on) = said();
        path.server([next[1] + distance, FIRST[0]], FIN | ACK, b"");
        let (_, out) = path.server([next[1], FIRST[0]], FIN | ACK, b"");
        let ends: Vec<_> = out.iter().map(|sent| (sent.number, sent.flags & FIN)).collect();
        assert_eq!(ends, [(goes_on[1], FIN)], "{distance}");
        // The connection is over for both ends.
        path.client([next[0], goes_on[1] + 1], FIN | ACK, b"");
        path.server([next[1] + 1, FIRST[0] + 9], ACK, b"");
        assert_eq!(path.0.memory(), 0, "{distance}");
    }
}

#[test]
fn bytes_beyond_all_windows_are_not_kept() {
    let (mut path, next, _) = said();
    let memory = path.0.memory();
    for distance in [1 << 20, 1 << 25, (1 << 30) - 7, 1 << 30] {
        let (_, out) = path.server([next[1] + distance, FIRST[0]], ACK, &[b'x'; 500]);
        assert!(out.iter().all(|sent| sent.bytes.is_empty()), "{out:?}");
        assert_eq!(path.0.memory(), memory, "{distance}");
    }
}

/// Segments in the server's name before its answer: stale, or forged.
#[test]
fn segments_before_the_answer_do_not_hinder_rewriting() {
    let forgeries: [(u32, u32, u8, &[u8]); 8] = [
        (9_000, FIRST[0], ACK, b"forged"),
        (500, FIRST[0], ACK, b"forged"),
        (9_000, 77, ACK, b""),
        (9_000, FIRST[0], FIN | ACK, b""),
        (0, 0, RST, b""),
        (0, FIRST[0] + 1, RST | ACK, b""),
        (9_000, 77, SYN | ACK, b""),
        (9_000, FIRST[0] + 1, SYN | ACK, b""),
    ];
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        for (number, acknowledged, flag, bytes) in forgeries {
            let forge = |path: &mut Path| {
                let (_, out) = path.server([number, acknowledged], flag, bytes);
                assert!(out.iter().all(|sent| sent.bytes.is_empty()), "{out:?}");
            };
            let mut path = Path::new(midstream);
            path.client([FIRST[0] - 1, 0], SYN, b"");
            forge(&mut path);
            path.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
            if flag & SYN != 0 {
                forge(&mut path);
            }
            path.client(FIRST, ACK, b"");
            assert_eq!(
                path.says_cat(FIRST[1]),
                b"elephant",
                "{midstream:?} {number} {acknowledged} {flag:#x}"
            );
        }
    }
}

/// A refusal reaches the client at once, so it does not wait.
#[test]
fn a_refusal_goes_on_and_ends_it() {
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        let mut path = Path::new(midstream);
        path.client([FIRST[0] - 1, 0], SYN, b"");
        let (passage, out) = path.server([0, FIRST[0]], RST | ACK, b"");
        if midstream == MidstreamPolicy::Pass {
            assert_eq!(passage, Passage::Unchanged);
        } else {
            let [Sent { number, acknowledgment, flags, .. }] = &out[..] else { panic!("{out:?}") };
            assert_eq!(
                (passage, *number, *acknowledgment, *flags),
                (Passage::Replaced, 0, FIRST[0], RST | ACK)
            );
        }
        // A client that asks again is answered.
        path.shake_hands();
        assert_eq!(path.says_cat(FIRST[1]), b"elephant");
    }
}

const MULTIPATH: [&[u8]; 3] =
    [&[30, 4, 0x01, 0x01], &[30, 12, 0x01, 1, 1, 2, 3, 4, 5, 6, 7, 8], &[30, 2, 1, 1]];

/// RFC 8684: each end would map its bytes to the whole connection, by its own numbers and checksums.
#[test]
fn multipath_offers_are_removed() {
    for offer in MULTIPATH {
        let options = [&[2, 4, 5, 180, 1, 1, 1, 1], offer, &[4, 2, 1, 1]].concat();
        let mut path = Path::new(MidstreamPolicy::Pass);
        for (from, numbers, flag) in
            [(flow(1), [FIRST[0] - 1, 0], SYN), (flow(1).reversed(), [FIRST[1] - 1, FIRST[0]], SYN | ACK)]
        {
            let (_, out) = path.push(from, numbers, flag, &options, b"");
            let without = [&[2, 4, 5, 180, 1, 1, 1, 1], &vec![1; offer.len()][..], &[4, 2, 1, 1]].concat();
            assert_eq!(out[0].options, without);
        }
        path.client(FIRST, ACK, b"");
        assert_eq!(path.says_cat(FIRST[1]), b"elephant");
    }
    // The same bytes within another option, or behind a wrong length, are no such option.
    for options in [[8, 10, 30, 4, 0, 0, 0, 0, 0, 0, 1, 1], [1, 30, 77, 4, 0, 0, 0, 0, 0, 0, 1, 1]] {
        let (_, out) = Path::new(MidstreamPolicy::Pass).push(flow(1), [99, 0], SYN, &options, b"");
        assert_eq!(out[0].options, options);
    }
}

const SIGNED: [&[u8]; 2] =
    [&[1, 1, 19, 18, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], &[29, 8, 1, 1, 9, 9, 9, 9]];

/// RFC 2385, RFC 5925: its ends would drop all rewritten segments.
#[test]
fn a_connection_whose_segments_are_signed_is_not_rewritten() {
    for options in SIGNED {
        let mut path = Path::new(MidstreamPolicy::Pass);
        let mut unchanged = 0;
        let mut signed = |path: &mut Path| {
            for (from, numbers, flag, bytes) in [
                (flow(1), [FIRST[0] + 899, 0], SYN, &b""[..]),
                (flow(1).reversed(), [FIRST[1] + 899, FIRST[0] + 900], SYN | ACK, b""),
                (flow(1), [FIRST[0] + 900, FIRST[1] + 900], ACK, b"cat"),
            ] {
                assert_eq!(path.push(from, numbers, flag, options, bytes), (Passage::Unchanged, Vec::new()));
                unchanged += 1;
                assert_eq!(path.counters().unchanged, unchanged);
            }
        };
        signed(&mut path);
        // The same after a connection that was not signed. But a forged SYN does not end a connection that
        // goes on.
        path.shake_hands();
        path.push(flow(1), [FIRST[0] + 899, 0], SYN, options, b"");
        assert_eq!(path.says_cat(FIRST[1]), b"elephant");
        path.server([FIRST[1] + 3, 0], RST, b"");
        signed(&mut path);
        let mut path = Path::new(MidstreamPolicy::Refuse);
        assert_eq!(path.push(flow(1), [99, 0], SYN, options, b""), (Passage::Refused, Vec::new()));
        assert_eq!(path.client([100, 500], ACK, b"cat").0, Passage::Refused);
        assert_eq!(path.0.occupancy().0, 0);
    }
}

/// RFC 5961, section 4, applies to a connection as long as one end has more to send.
///
/// The other end answers a SYN only with an acknowledgment.
#[test]
fn half_an_end_is_no_beginning() {
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        let mut path = Path::new(midstream);
        path.shake_hands();
        assert_eq!(path.says_cat(FIRST[1]), b"elephant");
        // The client ends its direction, in fewer bytes than went on.
        let (_, out) = path.client([FIRST[0], FIRST[1] + 8], FIN | ACK, b"cat");
        assert_eq!((out[0].flags & FIN, &out[0].bytes[..]), (FIN, &b"elephant"[..]));
        for (number, flag) in
            [(77, SYN), (FIRST[0] - 1, SYN), (9_000, RST), (FIRST[0] + 5, RST), (3, RST | ACK)]
        {
            path.client([number, FIRST[1] + 8], flag, b"");
        }
        // The connection goes on with its numbers.
        let (_, out) = path.server([FIRST[1] + 3, FIRST[0] + 9], ACK, b"cat");
        let [Sent { number, acknowledgment, bytes, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((*number, *acknowledgment), (FIRST[1] + 8, FIRST[0] + 4), "{midstream:?}");
        assert_eq!(bytes, b"elephant");
        path.client([FIRST[0] + 4, FIRST[1] + 16], ACK, b"");
        let (_, out) = path.server([FIRST[1] + 6, FIRST[0] + 9], FIN | ACK, b"");
        assert_eq!((out[0].number, out[0].flags & FIN), (FIRST[1] + 16, FIN));
        assert_eq!(path.0.memory(), 0, "all of it was acknowledged");
        // After both directions ended, another connection begins.
        path.client([76, 0], SYN, b"");
        path.server([FIRST[1] - 1, 77], SYN | ACK, b"");
        let (_, out) = path.client([77, FIRST[1]], ACK, b"cat");
        assert_eq!((out[0].number, &out[0].bytes[..]), (77, &b"elephant"[..]));
    }
}

/// A forged SYN, or one of a client that gave up.
///
/// The ends' next segments show which opening counts, and which options it offered.
#[test]
fn of_two_openings_that_is_rewritten_which_the_ends_go_on_from() {
    let large = &[2, 4, 5, 180, 1, 3, 3, 7][..];
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        for answered in [false, true] {
            for (counts, other) in [(FIRST[0], 9_000), (9_000, 9_000), (FIRST[0], 3_000_000_000)] {
                let mut path = Path::new(midstream);
                path.push(flow(1), [FIRST[0] - 1, 0], SYN, large, b"");
                let mut server = FIRST[1];
                if answered {
                    path.push(flow(1).reversed(), [server - 1, FIRST[0]], SYN | ACK, large, b"");
                }
                path.push(flow(1), [other - 1, 0], SYN, large, b"");
                if !answered || counts == 9_000 {
                    server += 100;
                    let (passage, _) =
                        path.push(flow(1).reversed(), [server - 1, counts], SYN | ACK, large, b"");
                    assert_eq!(passage, Passage::Replaced, "{midstream:?} {answered} {counts}");
                }
                path.client([counts, server], ACK, b"");
                let (_, out) = path.client([counts, server], ACK, b"cat");
                assert_eq!(out[0].bytes, b"elephant", "{midstream:?} {answered} {counts}");
                let (_, out) = path.server([server, counts + 8], ACK, b"a cat");
                let [Sent { number, acknowledgment, bytes, .. }] = &out[..] else { panic!("{out:?}") };
                assert_eq!((*number, *acknowledgment, &bytes[..]), (server, counts + 3, &b"a elephant"[..]));
            }
        }
    }
}

/// The answer to a forged opening does not count either.
#[test]
fn both_ends_go_on_from_where_they_began() {
    for forged in [9_000, 3_000_000_000] {
        let mut path = Path::new(MidstreamPolicy::Refuse);
        path.client([FIRST[0] - 1, 0], SYN, b"");
        path.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
        path.client([forged - 1, 0], SYN, b"");
        path.server([forged + 77, forged], SYN | ACK, b"");
        path.client(FIRST, ACK, b"");
        assert_eq!(path.says_cat(FIRST[1]), b"elephant", "{forged}");
        let (_, out) = path.client([FIRST[0], FIRST[1] + 8], ACK, b"cat");
        assert_eq!((out[0].number, &out[0].bytes[..]), (FIRST[0], &b"elephant"[..]), "{forged}");
        // An opening that is given up again at once.
        let mut path = Path::new(MidstreamPolicy::Pass);
        path.client([FIRST[0] - 1, 0], SYN, b"");
        path.client([forged - 1, 0], SYN, b"");
        path.client([forged, 0], RST, b"");
        path.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
        path.client(FIRST, ACK, b"");
        assert_eq!(path.says_cat(FIRST[1]), b"elephant", "{forged}");
    }
}

/// A SYN with a FIN: no receiver takes it, unless its FIN is removed on the way.
#[test]
fn flags_that_do_not_go_together_stay_together() {
    for (midstream, passage) in
        [(MidstreamPolicy::Pass, Passage::Unchanged), (MidstreamPolicy::Refuse, Passage::Refused)]
    {
        let mut path = Path::new(midstream);
        assert_eq!(path.client([9, 0], SYN | FIN, b"x"), (passage, Vec::new()));
        path.shake_hands();
        assert_eq!(path.client([9, 0], SYN | FIN, b"x"), (passage, Vec::new()));
        let (_, out) = path.client([9_000, 0], SYN | RST, b"");
        assert_eq!((out.len(), out[0].flags, out[0].number), (1, SYN | RST, 9_000));
        assert_eq!(path.says_cat(FIRST[1]), b"elephant");
    }
}

/// The streams then know one connection in the place of another, and so do the sequence maps.
#[test]
fn an_opening_that_counts_after_bytes_came_behind_another_is_rewritten() {
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        let mut path = Path::new(midstream);
        path.client([FIRST[0] - 1, 0], SYN, b"");
        path.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
        path.client([399, 0], SYN, b"");
        // From a host that knows the server's number.
        path.client([405, FIRST[1]], ACK, b"x");
        path.server([FIRST[1] - 1, FIRST[0]], SYN | ACK, b"");
        path.client(FIRST, ACK, b"");
        assert_eq!(path.says_cat(FIRST[1]), b"elephant", "{midstream:?}");
    }
}
