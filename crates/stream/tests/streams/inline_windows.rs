//! Windows in the packets' path: two models of TCP talk through them, and no undecided byte reaches an end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    BLOCK, Cut, End, Fate, InlineWindow, InlineWindowConfig, MidstreamPolicy, OverflowPolicy,
    PacketizeConfig, Packetizer, Passage, Replacing, Rewriter, Side, Why, Window, WindowError,
};
use netbricks_testkit::mutate::Random;

use super::endpoints::{CONFIG, conversation, replaced};
use super::exercise::flow;

fn config(size: usize, slide: usize, timeout: u64) -> InlineWindowConfig {
    let packets = PacketizeConfig { flow_memory: 1 << 18, memory: 1 << 22, ..CONFIG };
    InlineWindowConfig {
        memory: 8 * size,
        longer: 20,
        packets,
        ..InlineWindowConfig::new(size, slide, timeout)
    }
}

/// Checks that both directions were shown completely, once and in order, and that no window is too large.
#[derive(Default)]
struct Seen(BTreeMap<Side, Vec<u8>>);

impl Seen {
    fn see(&mut self, window: &Window<'_>, size: usize) {
        let seen = self.0.entry(window.side).or_default();
        assert_eq!(window.offset + window.seen as u64, seen.len() as u64, "{window:?}");
        assert!(window.seen <= window.bytes.len() && window.bytes.len() <= size, "{window:?}");
        assert_eq!(window.why == Why::Full, window.bytes.len() == size && !matches!(window.why, Why::End(_)));
        seen.extend_from_slice(window.fresh());
    }
}

/// A string is replaced wherever it lies, even where a window ends in the middle of it.
///
/// Windows share as many bytes as that takes, and a window that is not full is held.
fn censored(seed: u64, trouble: usize) -> u64 {
    let mut random = Random::new(seed);
    let find: &'static [u8] = [&b"aab"[..], b"abcab", b"a", b"bbbb"][random.below(4)];
    let put: &'static [u8] = [&b"<longer than that>"[..], b"x", b"", b"aab"][random.below(4)];
    let size = find.len() + random.below(90);
    let slide = 1 + random.below(size - find.len() + 1);
    let timeout = [0, 10, 1_000, u64::MAX][random.below(4)];
    let config = config(size, slide, timeout);
    let seen = Rc::new(RefCell::new(Seen::default()));
    let saw = seen.clone();
    let inline = InlineWindow::new(config, move |window: &Window<'_>, replacing: &mut Replacing<'_, '_>| {
        saw.borrow_mut().see(window, size);
        let mut at = 0;
        while let Some(next) = window.bytes[at..].windows(find.len()).position(|bytes| bytes == find) {
            at += next + find.len();
            assert!(replacing.replace(at - find.len()..at, put));
            assert!(!replacing.replace(at - 1..at, put), "it is replaced already");
        }
        // Another occurrence may begin here.
        if window.why == Why::Due { Fate::Hold } else { Fate::Pass }
    });
    let inline = inline.expect("these bounds are possible");
    let (mut packetizer, sent) =
        conversation(random, trouble, config.packets, inline, |data| replaced(data, find, put));
    packetizer.finish();
    for (side, sent) in [Side::Client, Side::Server].into_iter().zip(sent) {
        assert_eq!(seen.borrow().0.get(&side).cloned().unwrap_or_default(), sent, "{side:?}");
    }
    assert_eq!(packetizer.rewriter().holding(), 0, "all memory was given back");
    packetizer.counters().replaced
}

/// Each byte becomes 18, so the output is more than the receiver takes at once.
///
/// The sender was told that held bytes arrived. When output is lost, the sender has a window of 0 and nothing
/// to send again. It can only probe.
#[test]
fn a_sender_that_can_only_probe_gets_the_rest_sent() {
    for seed in 50..240 {
        let config = config(88, 70, 10);
        let inline = InlineWindow::new(config, |window: &Window<'_>, replacing: &mut Replacing<'_, '_>| {
            for (at, _) in window.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'a') {
                assert!(replacing.replace(at..at + 1, b"<longer than that>"));
            }
            if window.why == Why::Due { Fate::Hold } else { Fate::Pass }
        });
        let inline = inline.expect("these bounds are possible");
        let expected = |data: &[u8]| replaced(data, b"a", b"<longer than that>");
        conversation(Random::new(seed), 12, config.packets, inline, expected);
    }
}

#[test]
fn a_string_is_replaced_across_windows_and_all_is_shown_once() {
    let mut all = 0;
    for seed in 1..400 {
        all += censored(seed, 0);
    }
    assert!(all > 1_000, "{all}");
}

#[test]
fn loss_and_reordering_change_nothing_of_it() {
    for seed in 1..400 {
        censored(seed, [1, 5, 12][seed as usize % 3]);
    }
}

/// Whichever bytes are held and for how long, both ends get the other's bytes at last: none waits for ever.
#[test]
fn bytes_held_at_random_go_on_unchanged() {
    for seed in 1..600 {
        let mut random = Random::new(seed);
        let size = 1 + random.below(200);
        let config = config(size, 1 + random.below(size), [0, 5, 150, 2_000][random.below(4)]);
        let config = InlineWindowConfig { memory: size * (2 + random.below(3)), ..config };
        let (mut chance, seen) = (Random::new(seed), Rc::new(RefCell::new(Seen::default())));
        let saw = seen.clone();
        let inline = InlineWindow::new(config, move |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            saw.borrow_mut().see(window, size);
            if chance.below(3) == 0 { Fate::Pass } else { Fate::Hold }
        });
        let inline = inline.expect("these bounds are possible");
        let trouble = [0, 3, 10][seed as usize % 3];
        let (_, sent) = conversation(random, trouble, config.packets, inline, <[u8]>::to_vec);
        for (side, sent) in [Side::Client, Side::Server].into_iter().zip(sent) {
            assert_eq!(seen.borrow().0.get(&side).cloned().unwrap_or_default(), sent, "{side:?}");
        }
    }
}

/// An inline window and its output, driven by hand. Clients' bytes begin at 100, servers' at 500.
pub(crate) struct Way<R: Rewriter> {
    pub(crate) packetizer: Packetizer<R>,
    pub(crate) now: u64,
}

/// Segments that went out: direction (back or on), number, acknowledgment, flags, bytes.
pub(crate) type Out = Vec<(bool, u32, u32, u8, Vec<u8>)>;

pub(crate) fn through<F>(config: InlineWindowConfig, f: F) -> Way<InlineWindow<F>>
where
    F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static,
{
    let inline = InlineWindow::new(config, f).expect("these bounds are possible");
    Way { packetizer: Packetizer::new(config.packets, inline).expect("so little memory is there"), now: 0 }
}

impl<R: Rewriter> Way<R> {
    pub(crate) fn push(
        &mut self,
        flow: FlowKey,
        numbers: [u32; 2],
        flags: u8,
        bytes: &[u8],
    ) -> (Passage, Out) {
        let mut out = Vec::new();
        let header = Tcp::new(0, 0, numbers[0], numbers[1], flags).octets();
        let passage = self.packetizer.push(flow, Tcp::view(header.as_ref(), ()), bytes, self.now, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out.push((emit.back, emit.number, emit.acknowledgment, emit.flags, bytes));
            true
        });
        (passage, out)
    }
    pub(crate) fn open(&mut self, number: u32) {
        self.push(flow(number), [99, 0], flags::SYN, b"");
        self.push(flow(number).reversed(), [499, 100], flags::SYN | flags::ACK, b"");
        self.push(flow(number), [100, 500], flags::ACK, b"");
    }
    pub(crate) fn says(&mut self, number: u32, at: u32, bytes: &[u8]) -> (Passage, Out) {
        self.push(flow(number), [at, 500], flags::ACK, bytes)
    }
}

pub(crate) fn bytes_on(out: &Out) -> Vec<u8> {
    out.iter().filter(|(back, ..)| !back).flat_map(|(.., bytes)| bytes.clone()).collect()
}

/// Cuts where a client sends "bad", wherever segments cut it; holds a possible beginning of it.
fn strict(cut: Cut) -> impl FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate {
    move |window, _| {
        let bad = |bytes: &[u8]| bytes.windows(3).any(|three| three == b"bad");
        match window.bytes {
            bytes if bad(bytes) => Fate::Cut(cut),
            [.., b'b', b'a'] | [.., b'b'] => Fate::Hold,
            _ => Fate::Pass,
        }
    }
}

#[test]
fn a_connection_that_is_cut_is_reset_at_both_ends() {
    let mut way = through(config(20, 18, 0), strict(Cut::Reset));
    way.open(1);
    assert_eq!(bytes_on(&way.says(1, 100, b"good ").1), b"good ");
    assert_eq!(bytes_on(&way.says(1, 105, b"b").1), b"");
    let (passage, out) = way.says(1, 106, b"ad things");
    assert_eq!(passage, Passage::Refused);
    // The server expects 105, the client 500.
    let both =
        [(false, 105, 500, flags::RST | flags::ACK, Vec::new()), (true, 500, 0, flags::RST, Vec::new())];
    assert_eq!(out, both);
    // An end that still sends a segment is reset again, in its own numbers.
    let (passage, out) = way.push(flow(1).reversed(), [500, 103], flags::ACK, b"hello");
    assert_eq!((passage, out), (Passage::Refused, vec![(true, 103, 0, flags::RST, Vec::new())]));
    let (passage, out) = way.push(flow(1), [115, 501], flags::RST | flags::ACK, b"");
    assert_eq!((passage, out), (Passage::Refused, Vec::new()), "never a reset for a reset");
    assert_eq!((way.packetizer.counters().cut, way.packetizer.rewriter().holding()), (1, 0));
    // The same ends may open another connection.
    way.push(flow(1), [899, 0], flags::SYN, b"");
    way.push(flow(1).reversed(), [499, 900], flags::SYN | flags::ACK, b"");
    assert_eq!(bytes_on(&way.says(1, 900, b"good").1), b"good");
}

#[test]
fn a_connection_that_is_silenced_says_nothing_for_as_long_as_it_is_spoken_of() {
    let config = config(20, 18, 0);
    let mut way = through(config, strict(Cut::Silence));
    way.open(1);
    assert_eq!(way.says(1, 100, b"bad").1, Vec::new());
    for _ in 0..10 {
        // Longer than any other connection that is over stays known.
        way.now += 100_000_000_000;
        way.packetizer.expire(way.now, 10);
        assert_eq!(way.says(1, 100, b"good"), (Passage::Refused, Vec::new()));
        assert_eq!(
            way.push(flow(1).reversed(), [500, 100], flags::ACK, b"?"),
            (Passage::Refused, Vec::new())
        );
    }
}

#[test]
fn an_end_is_told_once_and_at_last_to_everybody() {
    let told = Rc::new(RefCell::new(Vec::new()));
    let tells = told.clone();
    let config = InlineWindowConfig {
        packets: PacketizeConfig { idle: 1_000, ..CONFIG },
        longer: 1,
        ..InlineWindowConfig::new(8, 8, u64::MAX)
    };
    let mut way = through(config, move |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
        if let Why::End(end) = window.why {
            let text = String::from_utf8_lossy(window.bytes).into_owned();
            tells.borrow_mut().push((window.connection, window.side, end, text));
        }
        Fate::Pass
    });
    let told = |way: &mut Way<_>, number: u32, what: &dyn Fn(&mut Way<_>)| {
        way.open(number);
        way.says(number, 100, b"abc");
        what(way);
        let mut all = told.take();
        all.sort_by_key(|(_, side, ..)| *side);
        all.into_iter().map(|(_, _, end, text)| (end, text)).collect::<Vec<_>>()
    };
    let both = |end| vec![(end, "abc".to_owned()), (end, String::new())];
    let finished = told(&mut way, 1, &|way| {
        assert_eq!(bytes_on(&way.push(flow(1), [103, 500], flags::FIN | flags::ACK, b"").1), b"abc");
        way.push(flow(1).reversed(), [500, 104], flags::FIN | flags::ACK, b"");
    });
    assert_eq!(finished, both(End::Finished));
    let reset = told(&mut way, 2, &|way| {
        way.push(flow(2), [103, 500], flags::RST, b"");
    });
    assert_eq!(reset, both(End::Reset), "what is held goes nowhere");
    let silent = told(&mut way, 3, &|way| {
        way.now += 2_000;
        way.packetizer.expire(way.now, 10);
    });
    assert_eq!(silent, both(End::Idle));
    let drained = told(&mut way, 4, &|way| way.packetizer.finish());
    assert_eq!(drained, both(End::Drained));
    assert_eq!((way.packetizer.rewriter().holding(), way.packetizer.memory()), (0, 0));
}

/// Memory for two windows, and three directions that need some.
#[test]
fn bytes_that_cannot_be_held_are_refused_or_shown_at_once() {
    for overflow in [OverflowPolicy::Refuse, OverflowPolicy::Show] {
        let shown = Rc::new(RefCell::new(Vec::new()));
        let shows = shown.clone();
        let config = InlineWindowConfig {
            memory: 20,
            overflow,
            longer: 1,
            packets: CONFIG,
            ..InlineWindowConfig::new(8, 8, 0)
        };
        let mut way = through(config, move |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            shows.borrow_mut().push(window.why);
            Fate::Hold
        });
        for number in 1..=3 {
            way.open(number);
        }
        for number in 1..=2 {
            let (passage, out) = way.says(number, 100, b"abc");
            assert_eq!((passage, bytes_on(&out)), (Passage::Replaced, Vec::new()));
        }
        shown.take();
        let (passage, out) = way.says(3, 100, b"abc");
        if overflow == OverflowPolicy::Refuse {
            assert_eq!((passage, out, shown.take()), (Passage::NoRoom, Vec::new(), Vec::new()));
            // A direction that has memory goes on, and gives it back.
            assert_eq!(bytes_on(&way.says(1, 103, b"defgh").1), b"abcdefgh");
            assert_eq!(way.says(3, 100, b"abc").0, Passage::Replaced);
        } else {
            assert_eq!(bytes_on(&out), b"abc", "it is not refused");
            assert_eq!(shown.take(), [Why::Due, Why::NoRoom]);
        }
        assert_eq!(way.packetizer.rewriter().holding(), 2);
    }
}

/// A direction with a part of a window takes memory from others only for a limited time.
///
/// The direction that is not shown takes none.
#[test]
fn one_who_says_nothing_more_takes_no_memory_for_ever() {
    let config = InlineWindowConfig {
        memory: 16,
        only: Some(Side::Client),
        longest: 1_000,
        longer: 1,
        packets: CONFIG,
        ..InlineWindowConfig::new(8, 4, 0)
    };
    let mut way = through(config, |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
        assert_eq!(window.side, Side::Client);
        Fate::Hold
    });
    for number in 1..=3 {
        way.open(number);
    }
    assert_eq!(way.says(1, 100, b"abc").0, Passage::Replaced);
    way.now = 500;
    assert_eq!(way.says(2, 100, b"abc").0, Passage::Replaced);
    assert_eq!(way.says(3, 100, b"abc").0, Passage::NoRoom);
    let answer = way.push(flow(3).reversed(), [500, 100], flags::ACK, b"an answer");
    assert_eq!(bytes_on(&answer.1), b"an answer", "of what is not shown nothing is held");
    // The second connection goes on: its time begins again.
    way.now = 900;
    assert_eq!(bytes_on(&way.says(2, 103, b"defgh").1), b"abcd");
    way.now = 999;
    way.packetizer.expire(way.now, 10);
    assert_eq!((way.packetizer.counters().cut, way.packetizer.rewriter().holding()), (0, 2));
    way.now = 1_600;
    way.packetizer.expire(way.now, 10);
    assert_eq!((way.packetizer.counters().cut, way.packetizer.rewriter().holding()), (1, 1));
    let reset = (true, 500, 0, flags::RST, Vec::new());
    assert_eq!(way.says(1, 103, b"late"), (Passage::Refused, vec![reset]));
    assert_eq!(way.says(3, 100, b"abc").0, Passage::Replaced);
    way.now = 2_600;
    way.packetizer.expire(way.now, 10);
    assert_eq!((way.packetizer.counters().cut, way.packetizer.rewriter().holding()), (3, 0));
}

#[test]
fn midstream_connections_pass_or_are_refused() {
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        let packets = PacketizeConfig { midstream, flows: 2, ..CONFIG };
        let config = InlineWindowConfig { longer: 1, packets, ..InlineWindowConfig::new(8, 8, 0) };
        let mut way = through(config, |_: &Window<'_>, _: &mut Replacing<'_, '_>| Fate::Pass);
        let [middle, new] = match midstream {
            MidstreamPolicy::Pass => [Passage::Unchanged; 2],
            MidstreamPolicy::Refuse => [Passage::Refused, Passage::NoRoom],
        };
        assert_eq!(way.says(9, 100, b"in the middle").0, middle);
        way.open(1);
        way.open(2);
        assert_eq!(way.push(flow(3), [99, 0], flags::SYN, b"").0, new, "there is no place");
        assert_eq!(way.says(3, 100, b"all the same").0, middle);
        assert!(way.packetizer.takes(flow(1)));
        assert_eq!(way.packetizer.takes(flow(3)), midstream == MidstreamPolicy::Refuse);
    }
}

/// Its first bytes were held and sent again before the server sent more than its answer.
///
/// A window of 0 would stop their sender for ever. Its probe then has no byte (Linux), and is answered too.
#[test]
fn a_sender_whose_first_bytes_are_held_is_told_of_the_window_of_the_handshake() {
    let config = InlineWindowConfig { longer: 1, packets: CONFIG, ..InlineWindowConfig::new(64, 64, 0) };
    for (scales, expected) in [([None, None], 600), ([Some(3), Some(2)], 600 >> 2), ([None, Some(2)], 600)] {
        let held = |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            if window.bytes.len() < 5 { Fate::Hold } else { Fate::Pass }
        };
        let mut way = through(config, held);
        let mut push = |from: FlowKey, numbers: [u32; 2], flags: u8, options: Option<u8>, bytes: &[u8]| {
            let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flags);
            header.set_window(600);
            let mut octets = header.octets().to_vec();
            if let Some(shift) = options {
                octets[12] += 16;
                octets.extend([3, 3, shift, 0]);
            }
            let mut back = Vec::new();
            way.packetizer.push(from, Tcp::view(&octets, ()), bytes, 0, |emit| {
                if emit.back {
                    back.push((emit.number, emit.acknowledgment, emit.window));
                }
                true
            });
            back
        };
        push(flow(1), [99, 0], flags::SYN, scales[0], b"");
        push(flow(1).reversed(), [499, 100], flags::SYN | flags::ACK, scales[1], b"");
        push(flow(1), [100, 500], flags::ACK, None, b"");
        assert_eq!(push(flow(1), [100, 500], flags::ACK, None, b"ab"), []);
        let told = (500, 102, expected);
        assert_eq!(push(flow(1), [100, 500], flags::ACK, None, b"ab"), [told], "{scales:?}");
        assert_eq!(push(flow(1), [101, 500], flags::ACK, None, b""), [told], "a probe");
        assert_eq!(push(flow(1), [102, 500], flags::ACK, None, b""), [], "an acknowledgment");
    }
}

/// Its receiver takes four bytes or five, and eight are needed before any is forwarded.
///
/// No end would send any more if the four held bytes took its window.
#[test]
fn held_bytes_do_not_shrink_a_smaller_window() {
    let config = InlineWindowConfig { longer: 1, packets: CONFIG, ..InlineWindowConfig::new(64, 64, 0) };
    let mut way = through(
        config,
        |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            if window.bytes.len() < 8 { Fate::Hold } else { Fate::Pass }
        },
    );
    way.open(1);
    let told = |way: &mut Way<_>, window: u16| {
        let mut header = Tcp::new(0, 0, 500, 100, flags::ACK);
        header.set_window(window);
        let header = header.octets();
        let mut told = Vec::new();
        way.packetizer.push(flow(1).reversed(), Tcp::view(&header, ()), b"", 0, |emit| {
            told.push((emit.acknowledgment, emit.window));
            true
        });
        told
    };
    assert_eq!(told(&mut way, 4), [(100, 4)]);
    way.says(1, 100, b"abcd");
    way.says(1, 100, b"abcd");
    assert_eq!(told(&mut way, 5), [(104, 5)]);
    assert_eq!(bytes_on(&way.says(1, 104, b"efgh").1), b"abcdefgh");
    assert_eq!(told(&mut way, 5), [(104, 1)], "now they take it");
}

/// A sender of small writes waits for the acknowledgment of each (RFC 896) before it sends the next.
#[test]
fn a_sender_that_repeats_held_bytes_is_told_to_go_on() {
    let config = InlineWindowConfig { longer: 1, packets: CONFIG, ..InlineWindowConfig::new(8, 8, 0) };
    let mut way = through(
        config,
        |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            if window.bytes.len() < 5 { Fate::Hold } else { Fate::Pass }
        },
    );
    way.open(1);
    assert_eq!(way.says(1, 100, b"ab").1.len(), 1);
    let (_, out) = way.says(1, 100, b"ab");
    assert!(out.contains(&(true, 500, 102, flags::ACK, Vec::new())), "{out:?}");
    assert_eq!(bytes_on(&way.says(1, 102, b"cde").1), b"abcde");
    // That segment was lost on the way. The sender still has only the last three bytes.
    assert_eq!(bytes_on(&way.says(1, 102, b"cde").1), b"abcde");
    // A part of a window that will be due is not acknowledged completely: else no further segment would come.
    let config = InlineWindowConfig { timeout: 1_000, ..config };
    let mut way = through(config, |_: &Window<'_>, _: &mut Replacing<'_, '_>| Fate::Pass);
    way.open(1);
    way.says(1, 100, b"ab");
    let (_, out) = way.says(1, 100, b"ab");
    assert!(out.contains(&(true, 500, 101, flags::ACK, Vec::new())), "{out:?}");
    way.now = 1_000;
    assert_eq!(bytes_on(&way.says(1, 101, b"b").1), b"ab");
}

#[test]
fn impossible_windows_are_refused() {
    let refused = |config: InlineWindowConfig| {
        InlineWindow::new(config, |_: &Window<'_>, _: &mut Replacing<'_, '_>| Fate::Pass)
            .err()
            .map(|error| error.to_string())
    };
    let good = InlineWindowConfig { longer: 1, packets: CONFIG, ..InlineWindowConfig::new(8, 8, 0) };
    assert_eq!(refused(good), None);
    assert!(refused(InlineWindowConfig { size: 0, ..good }).unwrap().contains("size is 0 bytes"));
    assert!(refused(InlineWindowConfig { slide: 0, ..good }).unwrap().contains("slides by 0"));
    assert!(refused(InlineWindowConfig { slide: 9, ..good }).unwrap().contains("slides by 9"));
    assert!(refused(InlineWindowConfig { memory: 7, ..good }).unwrap().contains("do not hold one window"));
    let error = InlineWindow::new(
        InlineWindowConfig { longer: 8 * BLOCK + 1, ..good },
        |_: &Window<'_>, _: &mut Replacing<'_, '_>| Fate::Pass,
    );
    assert!(matches!(error, Err(WindowError::Share { .. })));
}
