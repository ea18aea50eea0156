//! Rewritten streams that find no room where they move to, and held bytes that reach their time limit there.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::packet::Tcp;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::{Declared, Mobility, ShuffleKey};
use netbricks_stream::{
    BLOCK, End, Fate, InlineWindowConfig, MidstreamPolicy, OPENING, Output, PacketizeConfig, Packetizer,
    Passage, Replace, Replacing, Rewriter, Side, Source, Why, Window,
};

use super::endpoints::CONFIG;
use super::exercise::flow;
use super::inline_windows::{Out, Way, bytes_on, through};

pub(crate) const RESET: u8 = flags::RST;

pub(crate) fn cats(config: PacketizeConfig) -> Way<Replace> {
    let replace = Replace::new(b"cat", b"<tiger>", None).expect("both strings are short");
    Way { packetizer: Packetizer::new(config, replace).expect("so little memory is there"), now: 0 }
}

/// Moves all connections.
fn moves<R: Rewriter>(from: &mut Way<R>, to: &mut Way<R>) {
    let image = from.packetizer.take_where(|_| true);
    assert_eq!((from.packetizer.occupancy().0, from.packetizer.memory()), (0, 0));
    to.packetizer.import(&image, to.now).expect("nothing is wrong with it");
}

/// How many connections found no room, and how many were cut.
fn lost<R: Rewriter>(way: &Way<R>) -> (u64, u64) {
    let counters = way.packetizer.counters();
    (counters.homeless, counters.cut)
}

/// Each end sends a segment, and is reset in its own numbers.
fn is_cut<R: Rewriter>(way: &mut Way<R>, number: u32) {
    assert!(way.packetizer.takes(flow(number)), "nor does a fragment go on");
    let reset = |number| (Passage::Refused, vec![(true, number, 0, RESET, Vec::new())]);
    assert_eq!(way.says(number, 103, b"and more"), reset(500));
    assert_eq!(way.push(flow(number).reversed(), [500, 107], flags::ACK, b"an answer"), reset(107));
    let quiet = (Passage::Refused, Out::new());
    assert_eq!(way.push(flow(number), [111, 500], RESET | flags::ACK, b""), quiet);
}

#[test]
fn without_a_place_what_was_changed_is_cut_and_the_rest_passes() {
    let one = PacketizeConfig { flows: 1, ..CONFIG };
    let (mut here, mut there) = (cats(CONFIG), cats(one));
    (1..=3).for_each(|number| here.open(number));
    there.open(9);
    assert_eq!(bytes_on(&here.says(1, 100, b"cat").1), b"<tiger>");
    assert_eq!(bytes_on(&here.says(2, 100, b"dog").1), b"dog");
    // The beginning of the string is held, and its sender still has it.
    assert_eq!(bytes_on(&here.says(3, 100, b"dog ca").1), b"dog ");
    moves(&mut here, &mut there);
    assert_eq!(lost(&there), (3, 1));
    is_cut(&mut there, 1);
    for number in [2, 3] {
        assert!(!there.packetizer.takes(flow(number)));
        assert_eq!(there.says(number, 103, b"cat").0, Passage::Unchanged);
    }
    assert_eq!(bytes_on(&there.says(9, 100, b"cat").1), b"<tiger>", "who was there goes on");
    // The cut is known on the worker to which it moves next, as long as the ends send segments.
    let mut next = cats(one);
    there.now = 50_000_000_000;
    is_cut(&mut there, 1);
    there.now = 100_000_000_000;
    there.packetizer.expire(there.now, 10);
    next.now = there.now;
    moves(&mut there, &mut next);
    is_cut(&mut next, 1);
    // The same ends may open another connection.
    next.push(flow(9), [103, 507], RESET, b"");
    next.push(flow(1), [899, 0], flags::SYN, b"");
    next.push(flow(1).reversed(), [499, 900], flags::SYN | flags::ACK, b"");
    assert_eq!(bytes_on(&next.says(1, 900, b"cat").1), b"<tiger>");
    next.packetizer.finish();
    assert_eq!(next.packetizer.memory(), 0);
}

#[test]
fn connections_without_a_place_are_reset_under_the_refuse_policy() {
    let config = PacketizeConfig { midstream: MidstreamPolicy::Refuse, ..CONFIG };
    let (mut here, mut there) = (cats(config), cats(PacketizeConfig { flows: 1, ..config }));
    there.open(9);
    here.open(1);
    moves(&mut here, &mut there);
    assert_eq!(lost(&there), (1, 1));
    is_cut(&mut there, 1);
}

/// Its end counts as a byte. A sender that was told that the end arrived must not lose it.
#[test]
fn without_a_place_one_that_ended_unchanged_passes() {
    let (mut here, mut there) = (cats(CONFIG), cats(PacketizeConfig { flows: 1, ..CONFIG }));
    there.open(9);
    here.open(1);
    here.push(flow(1), [100, 500], flags::FIN | flags::ACK, b"dog");
    here.push(flow(1).reversed(), [500, 104], flags::ACK, b"");
    moves(&mut here, &mut there);
    assert_eq!(lost(&there), (1, 0));
    assert_eq!(there.push(flow(1).reversed(), [500, 104], flags::ACK, b"a dog").0, Passage::Unchanged);
}

#[test]
fn one_that_is_over_gives_its_place_to_one_that_comes() {
    let (mut here, mut there) = (cats(CONFIG), cats(PacketizeConfig { flows: 1, ..CONFIG }));
    there.open(9);
    there.push(flow(9), [100, 500], RESET, b"");
    here.open(1);
    here.says(1, 100, b"cat");
    moves(&mut here, &mut there);
    assert_eq!(lost(&there), (0, 0));
    assert_eq!(bytes_on(&there.says(1, 100, b"cat").1), b"<tiger>");
}

/// No memory for unacknowledged bytes, and none for waiting ones. There is always some for replacements.
#[test]
fn without_memory_a_connection_is_cut_and_what_waits_is_lost() {
    let cat = b"cat and dog";
    for (config, expected) in [
        (PacketizeConfig { edits: 0, ..CONFIG }, 0),
        (PacketizeConfig { flow_memory: 2 * BLOCK, memory: 4 * BLOCK, ..CONFIG }, 1),
        (PacketizeConfig { flow_memory: 3 * BLOCK, memory: 3 * BLOCK, ..CONFIG }, 1),
        (PacketizeConfig { flow_memory: 3 * BLOCK, memory: 4 * BLOCK, ..CONFIG }, 0),
    ] {
        let (mut here, mut there) = (cats(CONFIG), cats(config));
        here.open(1);
        let long = [&cat[..], &[b'.'; 2 * BLOCK - 11][..]].concat();
        assert_eq!(bytes_on(&here.says(1, 100, &long).1).len(), 2 * BLOCK + 4);
        here.push(flow(1).reversed(), [500, 100], flags::ACK, cat);
        moves(&mut here, &mut there);
        assert_eq!(lost(&there), (expected, expected), "{config:?}");
        if expected == 1 {
            assert_eq!((there.packetizer.occupancy().0, there.packetizer.memory()), (0, 0));
            is_cut(&mut there, 1);
        } else {
            let again = there.says(1, 100, &long).1;
            assert_eq!(bytes_on(&again)[..11], *b"<tiger> and");
        }
    }
    let small = PacketizeConfig { flow_memory: 2 * BLOCK, memory: 2 * BLOCK, ..CONFIG };
    let (mut here, mut there) = (cats(CONFIG), cats(small));
    here.open(1);
    for at in [110, 120, 130] {
        assert_eq!(here.says(1, at, b"cat").0, Passage::Replaced);
    }
    moves(&mut here, &mut there);
    assert_eq!((lost(&there), there.packetizer.memory()), ((0, 0), 2 * BLOCK));
    // The third sender still has its bytes.
    assert_eq!(bytes_on(&there.says(1, 100, b"a dog or a").1), b"a dog or a<tiger>");
    let has = |way: &mut Way<_>, number: u32| way.push(flow(1).reversed(), [500, number], flags::ACK, b"");
    has(&mut there, 117);
    assert_eq!(bytes_on(&there.says(1, 113, b", or a ").1), b", or a <tiger>");
    has(&mut there, 131);
    assert_eq!(bytes_on(&there.says(1, 123, b", or a ").1), b", or a ");
    has(&mut there, 138);
    assert_eq!(bytes_on(&there.says(1, 130, b"cat").1), b"<tiger>");
}

fn held(bytes: &[u8]) -> Fate {
    if bytes.len() < 8 { Fate::Hold } else { Fate::Pass }
}

#[test]
fn without_memory_for_what_is_held_its_connection_ends_or_passes() {
    let config =
        InlineWindowConfig { memory: 16, longer: 1, packets: CONFIG, ..InlineWindowConfig::new(16, 16, 0) };
    let new = |midstream| {
        let packets = PacketizeConfig { midstream, ..CONFIG };
        through(InlineWindowConfig { packets, ..config }, |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            held(window.bytes)
        })
    };
    for (midstream, again, cut) in [
        (MidstreamPolicy::Pass, false, 0),
        (MidstreamPolicy::Pass, true, 1),
        (MidstreamPolicy::Refuse, false, 1),
    ] {
        let (mut here, mut there) = (new(midstream), new(midstream));
        here.open(1);
        here.says(1, 100, b"abc");
        if again {
            // Its sender is told that the bytes arrived, and forgets all but the last one.
            here.says(1, 100, b"abc");
        }
        there.open(2);
        there.says(2, 100, b"def");
        moves(&mut here, &mut there);
        assert_eq!((lost(&there), there.packetizer.rewriter().holding()), ((1, cut), 1));
        assert_eq!(here.packetizer.rewriter().holding(), 0);
        if cut == 1 {
            is_cut(&mut there, 1);
        } else {
            assert_eq!(there.says(1, 100, b"abc").0, Passage::Unchanged);
        }
        assert_eq!(bytes_on(&there.says(2, 103, b"ghijk").1), b"defghijk");
    }
}

/// A move does not reset the time for which bytes were held.
///
/// The longest held are cut first, wherever they came from.
#[test]
fn held_bytes_are_shown_or_cut_at_the_same_time_after_a_move() {
    let config = InlineWindowConfig {
        memory: 64,
        longest: 1_000,
        timeout: u64::MAX,
        longer: 1,
        packets: CONFIG,
        ..InlineWindowConfig::new(16, 16, 0)
    };
    let new = || {
        through(config, |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            assert!(!matches!(window.why, Why::Due));
            Fate::Pass
        })
    };
    let (mut here, mut there) = (new(), new());
    for (now, number) in [(0, 1), (100, 2), (200, 3), (300, 4)] {
        let way = if number % 2 == 1 { &mut here } else { &mut there };
        way.now = now;
        way.open(number);
        way.says(number, 100, b"abc");
    }
    (here.now, there.now) = (600, 600);
    moves(&mut here, &mut there);
    for number in 1..=4 {
        there.now = 900 + u64::from(number) * 100 - 1;
        there.packetizer.expire(there.now, 10);
        assert_eq!(lost(&there).1, u64::from(number - 1), "a nanosecond before its time");
        there.now += 1;
        there.packetizer.expire(there.now, 10);
        assert_eq!(lost(&there).1, u64::from(number));
        assert_eq!(there.says(number, 103, b"late").0, Passage::Refused);
    }
    assert_eq!((there.packetizer.rewriter().holding(), there.packetizer.memory()), (0, 0));
    // A part of a window is due at the same time as without the move.
    let config = InlineWindowConfig { timeout: 1_000, longest: u64::MAX, ..config };
    let new = || through(config, |_: &Window<'_>, _: &mut Replacing<'_, '_>| Fate::Pass);
    let (mut here, mut there) = (new(), new());
    here.open(1);
    here.says(1, 100, b"ab");
    (here.now, there.now) = (999, 999);
    moves(&mut here, &mut there);
    assert_eq!(bytes_on(&there.says(1, 100, b"ab").1), b"");
    moves(&mut there, &mut here);
    here.now = 1_000;
    assert_eq!(bytes_on(&here.says(1, 101, b"b").1), b"ab");
}

/// The time of silence moves along, and is shorter where the handshake is not complete.
#[test]
fn a_silent_connection_is_forgotten_when_it_would_have_been() {
    let config = PacketizeConfig { idle: 1_000, ..CONFIG };
    let (mut here, mut there) = (cats(config), cats(config));
    for (number, now) in [(1, 100), (2, 200), (3, 300)] {
        let way = if number == 2 { &mut there } else { &mut here };
        way.now = now;
        way.open(number);
    }
    there.now = 900;
    moves(&mut here, &mut there);
    for (now, left) in [(1_099, 3), (1_100, 2), (1_199, 2), (1_200, 1), (1_299, 1), (1_300, 0)] {
        there.packetizer.expire(now, 10);
        assert_eq!(there.packetizer.occupancy().0, left, "at {now}");
    }
    let (mut here, mut there) = (cats(CONFIG), cats(CONFIG));
    here.push(flow(1), [99, 0], flags::SYN, b"");
    here.open(2);
    moves(&mut here, &mut there);
    for (now, left) in [(OPENING - 1, 2), (OPENING, 1)] {
        there.packetizer.expire(now, 10);
        assert_eq!(there.packetizer.occupancy().0, left, "at {now}");
    }
}

/// A receiver's window is shifted by the agreed scale after a move.
#[test]
fn windows_are_shifted_where_a_connection_moves_to() {
    let windows = |moved: bool| {
        let (mut here, mut there) = (cats(CONFIG), cats(CONFIG));
        let mut told = Vec::new();
        let mut push =
            |way: &mut Way<Replace>, from, numbers: [u32; 2], flags, shift: Option<u8>, bytes: &[u8]| {
                let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flags);
                header.set_window(1_000);
                let mut octets = header.octets().to_vec();
                if let Some(shift) = shift {
                    octets[12] += 16;
                    octets.extend([3, 3, shift, 0]);
                }
                way.packetizer.push(from, Tcp::view(&octets, ()), bytes, 0, |emit| {
                    told.push((emit.number, emit.acknowledgment, emit.window));
                    true
                });
            };
        let (client, server) = (flow(1), flow(1).reversed());
        push(&mut here, client, [99, 0], flags::SYN, Some(3), b"");
        push(&mut here, server, [499, 100], flags::SYN | flags::ACK, Some(2), b"");
        push(&mut here, client, [100, 500], flags::ACK, None, b"a cat");
        if moved {
            moves(&mut here, &mut there);
        }
        let way = if moved { &mut there } else { &mut here };
        push(way, server, [500, 104], flags::ACK, None, b"a cat");
        push(way, client, [105, 507], flags::ACK, None, b"");
        told
    };
    assert_eq!(windows(true), windows(false));
    assert!(windows(false).iter().any(|(.., window)| *window < 1_000), "shifted twice it would be more");
}

#[test]
fn a_gates_function_learns_that_a_connection_moved_before_anything_else() {
    let told = Rc::new(RefCell::new(Vec::new()));
    let config = InlineWindowConfig { longer: 1, packets: CONFIG, ..InlineWindowConfig::new(8, 8, u64::MAX) };
    let new = |place: usize| {
        let told = told.clone();
        through(config, move |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
            let Window { side, offset, why, .. } = *window;
            told.borrow_mut().push((place, side, offset, why, window.bytes.to_vec()));
            Fate::Pass
        })
    };
    let (mut here, mut there) = (new(0), new(1));
    here.open(1);
    here.says(1, 100, b"12345678abc");
    let full = (0, Side::Client, 0, Why::Full, b"12345678".to_vec());
    assert_eq!(told.take(), [full]);
    moves(&mut here, &mut there);
    assert_eq!(told.take(), [], "while it moves no function is called");
    there.says(1, 111, b"defgh");
    assert_eq!(told.take(), [(1, Side::Client, 8, Why::Full, b"abcdefgh".to_vec())]);
    here.open(2);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let sees = || {
        let seen = seen.clone();
        through(
            InlineWindowConfig { timeout: 0, ..config },
            move |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
                seen.borrow_mut().push((window.seen, window.bytes.len()));
                Fate::Hold
            },
        )
    };
    let (mut from, mut to) = (sees(), sees());
    from.open(1);
    from.says(1, 100, b"abc");
    moves(&mut from, &mut to);
    to.says(1, 103, b"de");
    assert_eq!(seen.take(), [(0, 3), (3, 5)], "what was shown is known to have been");
    let moved = Why::End(End::Moved);
    let ends = [(0, Side::Client, 11, moved, Vec::new()), (0, Side::Server, 0, moved, Vec::new())];
    assert_eq!(told.take(), ends);
}

/// A rewriter without support for moves.
struct Plain;

impl Rewriter for Plain {
    type Memory = ();
    fn rewrite(&mut self, _: &Source, (): &mut (), bytes: &[u8], output: &mut Output<'_>) {
        output.pass(bytes);
    }
    fn flush(&mut self, _: &Source, (): &mut (), _: &mut Output<'_>) {}
    fn most(&self, input: usize) -> usize {
        input
    }
}

#[test]
fn a_rewriter_that_does_not_say_how_it_moves_keeps_its_connections() {
    let plain = Packetizer::new(CONFIG, Plain).expect("so little memory is there");
    let mut way = Way { packetizer: plain, now: 0 };
    way.open(1);
    let by = ShuffleKey::SymmetricFlow;
    assert_eq!(way.packetizer.mobility(by), Mobility::Bound);
    assert_eq!((way.packetizer.take_where(|_| true), way.packetizer.occupancy().0), (Vec::new(), 1));
    let (mut cats, mut other) = (cats(CONFIG), cats(CONFIG));
    assert_eq!(cats.packetizer.mobility(by), Mobility::Moves);
    assert_eq!(cats.packetizer.mobility(ShuffleKey::Flow), Mobility::Bound, "its directions may part");
    cats.open(1);
    let image = cats.packetizer.take_where(|_| true);
    let problem = way.packetizer.import(&image, 0).unwrap_err();
    assert!(problem.contains("takes none over"), "{problem}");
    assert_eq!(other.packetizer.import(&[], 0), Ok(()), "nothing was exported");
    // The beginning of another string is not the beginning of this one.
    cats.open(2);
    cats.says(2, 100, b"cat ca");
    let dogs = Replace::new(b"dog", b"", None).expect("both strings are short");
    let mut dogs = Packetizer::new(CONFIG, dogs).expect("so little memory is there");
    dogs.import(&cats.packetizer.take_where(|_| true), 0).unwrap();
    assert_eq!((dogs.counters().homeless, dogs.counters().cut, dogs.memory()), (1, 1, 0));
}
