//! Compares windows with a naive cutter, and checks their memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use netbricks_core::Declared;
use netbricks_core::packet::{FlowKey, Tcp, checksum};
use netbricks_stream::{
    BLOCK, Delivery, End, Reassembler, Segment, Side, StreamConfig, What, Why, Window, WindowConfig,
    WindowError, Windows,
};
use netbricks_testkit::mutate::Random;

use super::exercise::{flow, segment};

/// A window as it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    offset: u64,
    bytes: Vec<u8>,
    seen: usize,
    gap: u64,
    why: Why,
}

impl Shown {
    fn of(window: &Window<'_>) -> Self {
        let Window { offset, bytes, seen, gap, why, .. } = *window;
        Self { offset, bytes: bytes.to_vec(), seen, gap, why }
    }
}

type Directions = BTreeMap<(u32, Side), Vec<Shown>>;

/// Cuts byte by byte.
#[derive(Default)]
struct Cutter {
    bytes: Vec<u8>,
    offset: u64,
    seen: usize,
    gap: u64,
}

impl Cutter {
    fn take(&mut self, delivery: &Delivery<'_>, size: usize, slide: usize, shown: &mut Vec<Shown>) {
        let mut show = |cutter: &Self, why| {
            let Self { bytes, offset, seen, gap } = cutter;
            shown.push(Shown { offset: *offset, bytes: bytes.clone(), seen: *seen, gap: *gap, why });
        };
        match delivery.what {
            What::Bytes(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if self.bytes.is_empty() {
                        self.offset = delivery.offset + at as u64;
                    }
                    self.bytes.push(*byte);
                    if self.bytes.len() == size {
                        show(self, Why::Full);
                        self.bytes.drain(..slide);
                        self.offset += slide as u64;
                        (self.seen, self.gap) = (size - slide, 0);
                    }
                }
            }
            What::Gap(missing) => {
                if self.bytes.len() > self.seen {
                    show(self, Why::Gap);
                    self.gap = 0;
                }
                *self = Self { gap: self.gap + missing, ..Self::default() };
            }
            What::Urgent(_) => {}
            What::End(end) => {
                if self.bytes.len() <= self.seen {
                    *self = Self { gap: self.gap, offset: delivery.offset, ..Self::default() };
                }
                show(self, Why::End(end));
                *self = Self::default();
            }
        }
    }
}

/// Segments of a few connections, with losses and reordering, for both sides of the comparison.
fn traffic(random: &mut Random) -> Vec<(u32, bool, u32, Vec<u8>, bool)> {
    let mut segments = Vec::new();
    for connection in 0..4 {
        for reversed in [false, true] {
            let first = random.next() as u32;
            let mut at = 0;
            let length = random.below(300);
            while at < length {
                let count = 1 + random.below(40);
                let bytes: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
                let place = segments.len() + random.below(8);
                let ends = at + count >= length && random.below(2) == 0;
                if random.below(8) > 0 {
                    segments
                        .push((place, (connection, reversed, first.wrapping_add(at as u32), bytes, ends)));
                }
                at += count;
            }
        }
    }
    segments.sort_by_key(|(place, _)| *place);
    segments.into_iter().map(|(_, segment)| segment).collect()
}

fn config(size: usize, slide: usize) -> WindowConfig {
    let streams =
        StreamConfig { flows: 16, flow_memory: 8 * BLOCK, memory: 64 * BLOCK, ..StreamConfig::default() };
    WindowConfig { streams, memory: 1 << 16, ..WindowConfig::new(size, slide, 1_000_000) }
}

/// The windows that were shown, for the test.
type Log = Rc<RefCell<Directions>>;

fn windows(config: WindowConfig) -> (Log, Windows<Tcp, impl FnMut(&Window<'_>)>) {
    let shown = Rc::new(RefCell::new(Directions::new()));
    let seen = shown.clone();
    let windows = Windows::new(config, move |window: &Window<'_>| {
        seen.borrow_mut().entry((window.connection, window.side)).or_default().push(Shown::of(window));
    });
    (shown, windows.expect("these bounds are possible"))
}

#[test]
fn windows_are_what_a_naive_cutter_cuts() {
    for seed in 1..3_000 {
        let mut random = Random::new(seed);
        let size = 1 + random.below(90);
        let slide = 1 + random.below(size);
        let config = config(size, slide);
        let (shown, mut windows) = windows(config);
        let mut streams = Reassembler::<Tcp>::new(config.streams).unwrap();
        let mut cutters: BTreeMap<(u32, Side), Cutter> = BTreeMap::new();
        let mut expected = Directions::new();
        let mut cut = |delivery: Delivery<'_>| {
            let key = (delivery.connection, delivery.side);
            let to = expected.entry(key).or_default();
            cutters.entry(key).or_default().take(&delivery, size, slide, to);
        };
        for (number, (connection, reversed, at, bytes, ends)) in traffic(&mut random).into_iter().enumerate()
        {
            let flow = if reversed { flow(connection).reversed() } else { flow(connection) };
            let segment = Segment { ends, ..segment(at, &bytes) };
            streams.push(flow, segment, number as u64, &mut cut);
            windows.push(flow, segment, number as u64);
        }
        streams.finish(&mut cut);
        windows.finish();
        expected.retain(|_, shown| !shown.is_empty());
        assert_eq!(*shown.borrow(), expected, "seed {seed}: {size} by {slide}");
        assert_eq!(windows.filling(), 0, "all memory was given back");
    }
}

/// Memory for two windows: no byte is lost, and windows are shown before they are full.
#[test]
fn without_memory_windows_are_short_and_no_byte_is_lost() {
    for (size, slide, memory) in [(20, 20, 50), (20, 7, 50), (20, 20, 0)] {
        let config = WindowConfig { memory, ..config(size, slide) };
        let (shown, mut windows) = windows(config);
        let mut random = Random::new(5);
        let mut sent = BTreeMap::new();
        for round in 0..2_000u32 {
            let connection = random.below(10) as u32;
            let bytes: Vec<u8> = (0..1 + random.below(30)).map(|_| random.next() as u8).collect();
            let stream: &mut Vec<u8> = sent.entry(connection).or_default();
            windows.push(flow(connection), segment(stream.len() as u32, &bytes), u64::from(round));
            stream.extend(bytes);
            assert!(windows.filling() <= 2);
        }
        windows.finish();
        assert_eq!(windows.filling(), 0);
        let shown = shown.borrow();
        let early = shown.values().flatten().filter(|window| window.why == Why::NoRoom).count();
        assert!(early > 100, "{early}");
        let mut streams: Vec<Vec<u8>> = shown
            .values()
            .map(|all| all.iter().flat_map(|window| window.bytes[window.seen..].to_vec()).collect())
            .collect();
        let mut sent: Vec<Vec<u8>> = sent.into_values().collect();
        streams.sort();
        sent.sort();
        assert_eq!(streams, sent);
    }
}

#[test]
fn streams_go_on_where_they_were_exported_and_broken_exports_are_refused() {
    let (_, mut from) = windows(config(4, 4));
    for connection in 0..5 {
        from.push(flow(connection), segment(100, b"abcdef"), 0);
        from.push(flow(connection).reversed(), segment(7, b"x"), 0);
    }
    from.push(flow(3), Segment { ends: true, ..segment(106, b"") }, 0);
    let image = from.export();
    assert_eq!(from.occupancy(), (5, 16));
    let (shown, mut to) = windows(config(4, 4));
    for at in 0..image.len() {
        let mut broken = image.clone();
        broken[at] ^= 0x10;
        assert!(to.import(&broken, 0).is_err(), "byte {at}");
        assert!(to.import(&image[..at], 0).is_err(), "{at} bytes");
        assert_eq!(to.occupancy(), (0, 16));
    }
    // A connection that is already known stays as it is.
    to.push(flow(4), segment(500, b"here"), 0);
    to.import(&image, 5).unwrap();
    assert_eq!(to.occupancy(), (5, 16));
    shown.borrow_mut().clear();
    to.push(flow(1), segment(102, b"cdefghij"), 6);
    to.push(flow(3), segment(106, b"behind the end"), 6);
    to.push(flow(4), segment(504, b"goes"), 6);
    let shown: Vec<_> =
        shown.borrow().values().flatten().map(|window| (window.offset, window.bytes.clone())).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown.contains(&(6, b"ghij".to_vec())) && shown.contains(&(4, b"goes".to_vec())), "{shown:?}");
    let mut ends = Vec::new();
    let mut streams = Reassembler::<Tcp>::new(config(4, 4).streams).unwrap();
    streams.decode(&image, 0).unwrap();
    streams.finish(|delivery| ends.push(format!("{:?}", delivery.what)));
    assert_eq!(ends.len(), 9, "five connections, one direction of which had ended");
    assert!(ends.iter().all(|end| end == "End(Drained)"), "{ends:?}");
}

#[test]
fn windows_that_cannot_be_say_why() {
    let refused = |size, slide, memory| {
        let config = WindowConfig { memory, ..config(size, slide) };
        Windows::<Tcp, _>::new(config, |_: &Window<'_>| ()).unwrap_err()
    };
    assert!(matches!(refused(0, 0, 100), WindowError::Size));
    assert!(matches!(refused(10, 0, 100), WindowError::Still { .. }));
    assert!(matches!(refused(10, 10, 9), WindowError::Memory { .. }));
    assert!(matches!(refused(1, 1, usize::MAX), WindowError::TooMuch { .. }));
    let error = refused(10, 11, 100).to_string();
    assert!(error.contains("size is 10 bytes but it slides by 11"), "{error}");
    let flows = StreamConfig { flows: 0, ..StreamConfig::default() };
    let config = WindowConfig { streams: flows, ..WindowConfig::new(1, 1, 1) };
    let error = Windows::<Tcp, _>::new(config, |_: &Window<'_>| ()).unwrap_err().to_string();
    assert!(error.contains("capacity is 0"), "{error}");
}

/// By the direction's key, since a connection has another number after a move.
type ByFlow = BTreeMap<String, Vec<Shown>>;
type SharedByFlow = Rc<RefCell<ByFlow>>;

fn watched(config: WindowConfig) -> (SharedByFlow, Windows<Tcp, impl FnMut(&Window<'_>)>) {
    let shown = Rc::new(RefCell::new(ByFlow::new()));
    let seen = shown.clone();
    let windows = Windows::new(config, move |window: &Window<'_>| {
        seen.borrow_mut().entry(window.flow.to_string()).or_default().push(Shown::of(window));
    });
    (shown, windows.expect("these bounds are possible"))
}

/// A window's part, and bytes that wait behind a hole.
fn leaving(bytes: &[u8], waits: &[u8]) -> (Windows<Tcp, impl FnMut(&Window<'_>)>, Vec<u8>) {
    let (_, mut windows) = watched(WindowConfig::new(40, 40, 1_000));
    windows.push(flow(1), segment(100, bytes), 0);
    if !waits.is_empty() {
        windows.push(flow(1), segment(200, waits), 0);
    }
    let moved = windows.take_where(|_| true);
    (windows, moved)
}

#[test]
fn moved_streams_are_no_gap_and_refused_ones_are_counted() {
    let (windows, moved) = leaving(b"abc", b"later");
    let counters = windows.streams().counters();
    assert_eq!((counters.gaps, counters.gap_bytes, counters.bytes), (0, 0, 3));
    assert_eq!(windows.streams().memory().0, 0);
    let streams = StreamConfig { flows: 1, flow_memory: BLOCK, memory: BLOCK, ..StreamConfig::default() };
    let (_, mut full) = watched(WindowConfig { memory: 0, streams, ..WindowConfig::new(40, 40, 1_000) });
    let refused = |full: &Windows<Tcp, _>| {
        let counters = full.streams().counters();
        (counters.refused_connections, counters.refused)
    };
    full.push(flow(2), segment(100, b"here"), 0);
    full.import(&moved, 0).unwrap();
    assert_eq!(refused(&full), (1, 0), "there is no place for it");
    full.take_where(|_| true);
    full.import(&moved, 0).unwrap();
    assert_eq!(refused(&full), (1, 1), "there is no memory for its part of a window");
}

#[test]
fn parts_of_windows_that_cannot_be_are_refused() {
    let even = leaving(b"abc", b"").1.len() == leaving(b"abcd", b"").1.len();
    let (_, moved) = leaving(if even { b"abcd" } else { b"abc" }, b"");
    let with = |seen: u8| {
        let mut bytes = moved.clone();
        let end = bytes.len() - 2;
        // The `seen` field of the last direction's part, which is empty.
        bytes[end - 24 + 3] = seen;
        bytes.truncate(end);
        let sum = checksum::internet(&bytes);
        bytes.extend(sum.to_be_bytes());
        watched(WindowConfig::new(40, 40, 1_000)).1.import(&bytes, 0)
    };
    assert_eq!(with(0), Ok(()));
    assert!(with(1).is_err(), "more was shown than there is");
}

/// Two that exchange connections show together what one alone shows.
#[test]
fn windows_go_on_where_their_connections_move_to() {
    let mut moves = 0;
    for seed in 1..2_000 {
        let mut random = Random::new(seed);
        let size = 1 + random.below(90);
        let config = config(size, 1 + random.below(size));
        let (alone, mut one) = watched(config);
        let (seen, mut two) = ([0; 2].map(|_| watched(config))).into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let mut owner = [0; 4];
        let mut all = ByFlow::new();
        let gather = |all: &mut ByFlow, at: usize| {
            for (flow, shown) in seen[at].take() {
                for shown in shown {
                    if shown.why == Why::End(End::Moved) {
                        assert_eq!((shown.bytes.len(), shown.gap), (0, 0), "all of it goes on elsewhere");
                    } else {
                        all.entry(flow.clone()).or_default().push(shown);
                    }
                }
            }
        };
        for (number, (connection, reversed, at, bytes, ends)) in traffic(&mut random).into_iter().enumerate()
        {
            if random.below(4) == 0 {
                let leaving = random.below(4);
                let (from, to) = (owner[leaving], 1 - owner[leaving]);
                let key = flow(leaving as u32).canonical();
                let bytes = two[from].take_where(|flow| flow == key);
                for broken in (0..bytes.len()).filter(|_| seed % 40 == 0) {
                    let mut broken_bytes = bytes.clone();
                    broken_bytes[broken] ^= 4;
                    assert!(two[to].import(&broken_bytes, 0).is_err(), "byte {broken}");
                }
                two[to].import(&bytes, number as u64).unwrap();
                owner[leaving] = to;
                moves += 1;
            }
            let flow = if reversed { flow(connection).reversed() } else { flow(connection) };
            let segment = Segment { ends, ..segment(at, &bytes) };
            one.push(flow, segment, number as u64);
            two[owner[connection as usize]].push(flow, segment, number as u64);
            gather(&mut all, owner[connection as usize]);
        }
        one.finish();
        for (at, windows) in two.iter_mut().enumerate() {
            windows.finish();
            gather(&mut all, at);
            assert_eq!((windows.filling(), windows.streams().memory().0), (0, 0));
        }
        assert_eq!(all, alone.take(), "seed {seed}: {size}");
    }
    assert!(moves > 10_000, "{moves}");
}

/// A connection that is never silent, and brings too few bytes for a window.
///
/// Its bytes are shown once the first has waited for the timeout, and the window continues to fill.
#[test]
fn bytes_that_wait_for_the_timeout_are_shown_before_their_window_is_full() {
    let (shown, mut windows) = watched(WindowConfig::new(10, 4, 1_000));
    let told = |shown: &SharedByFlow, flow: &FlowKey| -> Vec<(u64, String, usize, Why)> {
        let told = shown.borrow_mut().remove(&flow.to_string()).unwrap_or_default();
        let text = |window: Shown| String::from_utf8(window.bytes).unwrap();
        told.into_iter()
            .map(|window| (window.offset, text(window.clone()), window.seen, window.why))
            .collect()
    };
    let (there, back) = (flow(1), flow(1).reversed());
    windows.push(there, segment(100, b"abc"), 0);
    windows.push(there, segment(103, b"d"), 600);
    windows.push(there, segment(104, b"e"), 999);
    assert_eq!(told(&shown, &there), []);
    windows.push(there, segment(105, b"f"), 1_000);
    assert_eq!(told(&shown, &there), [(0, "abcdef".into(), 0, Why::Due)]);
    // No new bytes wait, so nothing is due.
    windows.push(back, segment(500, b"x"), 1_900);
    assert_eq!(told(&shown, &there), []);
    windows.push(there, segment(106, b"ghijkl"), 2_500);
    assert_eq!(told(&shown, &there), [(0, "abcdefghij".into(), 6, Why::Full)]);
    // The other direction's byte has waited since 1,900, and this one's two bytes since 2,500. A segment
    // without bytes makes them due.
    windows.push(back, segment(501, b""), 2_900);
    assert_eq!((told(&shown, &back), told(&shown, &there)), (vec![(0, "x".into(), 0, Why::Due)], vec![]));
    windows.push(back, segment(501, b""), 3_500);
    assert_eq!(told(&shown, &there), [(4, "efghijkl".into(), 6, Why::Due)]);
    // Bytes that were shown are not shown again at the end.
    windows.push(there, segment(112, b"m"), 3_600);
    windows.finish();
    assert_eq!(told(&shown, &there), [(4, "efghijklm".into(), 8, Why::End(End::Drained))]);
    assert_eq!(told(&shown, &back), [(1, String::new(), 0, Why::End(End::Drained))]);
    assert_eq!(windows.filling(), 0);
}
