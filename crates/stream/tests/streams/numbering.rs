//! Streams of a transport other than TCP, with numbers of another width and another meaning.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::Declared;
use netbricks_core::packet::FlowKey;
use netbricks_core::packet::field::Field;
use netbricks_core::packet::stack::{Found, Header, Malformed, NOTHING};
use netbricks_stream::{
    Arrival, Delivery, Overlap, Protocol, Reassembler, Segment, StreamConfig, Window, WindowConfig, Windows,
};
use netbricks_testkit::mutate::Random;

use super::exercise::{Told, flow, segment};
use super::schedules::{Transport, follow, run};

/// A transport with numbers of `BITS` bits.
///
/// A segment states the number of its last byte, and of the last byte that came. Opening and ending take no
/// number.
struct Counted<const BITS: u32>;

/// Flags, the number of the last byte, and the number of the last byte that came.
const HEADER: usize = 1 + 8 + 8;

const OPENS: u8 = 1;
const ANSWERS: u8 = 2;
const ENDS: u8 = 4;
const ABORTS: u8 = 8;
const ACKNOWLEDGES: u8 = 16;

impl<const BITS: u32> Counted<BITS> {
    const MASK: u64 = (1 << BITS) - 1;

    fn write(segment: &Segment<'_>) -> Vec<u8> {
        let Segment { number, opens, answers, ends, aborts, acknowledges, bytes, .. } = *segment;
        let flags = [
            (opens, OPENS),
            (answers, ANSWERS),
            (ends, ENDS),
            (aborts, ABORTS),
            (acknowledges.is_some(), ACKNOWLEDGES),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum();
        let last = number.wrapping_add(bytes.len() as u64).wrapping_sub(1) & Self::MASK;
        let came = acknowledges.unwrap_or_default().wrapping_sub(1) & Self::MASK;
        [&[flags], &last.to_le_bytes()[..], &came.to_le_bytes(), bytes].concat()
    }
}

impl<const BITS: u32> Header for Counted<BITS> {
    type Facts = ();
    type Ref<'a> = &'a [u8];
    type Mut<'a> = &'a mut [u8];
    const NAME: &'static str = "counted";
    const FIELDS: &'static [Field] = &[];

    fn find(bytes: &[u8], _announced: u16) -> Result<Found<()>, Malformed> {
        if bytes.len() < HEADER {
            let (needed, found) = (HEADER as u32, bytes.len() as u32);
            return Err(Malformed { header: Self::NAME, rule: "its header is longer", needed, found });
        }
        Ok(Found { facts: (), len: HEADER, total: None, next: NOTHING })
    }
    fn view(bytes: &[u8], (): ()) -> &[u8] {
        bytes
    }
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut [u8] {
        bytes
    }
}

impl<const BITS: u32> Protocol for Counted<BITS> {
    const BITS: u32 = BITS;

    fn segment<'a>(header: &[u8], payload: &'a [u8]) -> Segment<'a> {
        let set = |flag| header[0] & flag != 0;
        let behind = |at: usize| {
            let last = header[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            last.wrapping_add(1)
        };
        Segment {
            number: behind(1).wrapping_sub(payload.len() as u64) & Self::MASK,
            opens: set(OPENS),
            answers: set(ANSWERS),
            ends: set(ENDS),
            aborts: set(ABORTS),
            acknowledges: set(ACKNOWLEDGES).then(|| behind(9) & Self::MASK),
            bytes: payload,
            ..Segment::default()
        }
    }
}

/// Segments are written, and read again.
impl<const BITS: u32> Transport for Counted<BITS> {
    fn push(
        streams: &mut Reassembler<Self>,
        flow: FlowKey,
        segment: Segment<'_>,
        deliver: &mut dyn FnMut(Delivery<'_>),
    ) {
        let written = Self::write(&segment);
        let Found { facts, len, .. } = Self::find(&written, NOTHING).expect("it is long enough");
        let (header, payload) = written.split_at(len);
        let read = <Self as Protocol>::segment(Self::view(header, facts), payload);
        assert_eq!(read, segment);
        streams.push(flow, read, 0, deliver);
    }
}

/// A segment whose first byte is this far behind the number 0, or before it.
fn at<const BITS: u32>(place: i64, bytes: &[u8]) -> Segment<'_> {
    Segment { number: place.cast_unsigned() & Counted::<BITS>::MASK, ..segment(0, bytes) }
}

fn opening<const BITS: u32>(place: i64) -> Segment<'static> {
    Segment { opens: true, ..at::<BITS>(place, b"") }
}

fn schedules<const BITS: u32>() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let config = StreamConfig { overlap, idle: 1_000_000_000, ..StreamConfig::default() };
        let mut streams = Reassembler::<Counted<BITS>>::new(config).expect("memory for a few streams");
        let wraps: u64 = (0..5_000).map(|number| run(&mut streams, number, overlap)).sum();
        assert!(wraps > 500, "{wraps} of them wrapped at {BITS} bits");
        assert_eq!((streams.memory().0, streams.len()), (0, 0), "everything was given back");
        let counters = streams.counters();
        assert!(
            counters.out_of_order > 2_000 && counters.old > 2_000 && counters.gaps > 1_000,
            "{counters:?}"
        );
    }
}

#[test]
fn schedules_agree_with_the_model_however_wide_numbers_are() {
    schedules::<16>();
    schedules::<31>();
    schedules::<33>();
    schedules::<62>();
}

#[test]
fn a_stream_goes_round_its_numbers_many_times() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let config = StreamConfig { overlap, idle: 1_000_000_000, ..StreamConfig::default() };
        let mut streams = Reassembler::<Counted<16>>::new(config).expect("memory for a few streams");
        for number in 0..12 {
            let random = Random::new(u64::from(number) + 1);
            let rounds = follow(&mut streams, number, random, (250_000, 500), overlap);
            assert!(rounds >= 3, "{rounds}");
        }
        let counters = streams.counters();
        assert!(counters.out_of_order > 1_000 && counters.old > 1_000 && counters.gaps > 100, "{counters:?}");
        assert_eq!(streams.memory().0, 0);
    }
}

#[test]
fn half_of_all_numbers_lie_ahead() {
    let mut streams =
        Reassembler::<Counted<16>>::new(StreamConfig::default()).expect("memory for the default");
    let mut told = Told::default();
    let mut push = |segment| streams.push(flow(1), segment, 0, |delivery| told.take(delivery));
    push(opening::<16>(-4));
    assert_eq!(push(at::<16>(-4, b"first")), Arrival::InOrder);
    assert_eq!(push(at::<16>(1 + 0x7fff, b"z")), Arrival::Waits);
    assert_eq!(push(at::<16>(1 + 0x8000, b"z")), Arrival::Old);
    assert_eq!(push(at::<16>(1, &[b'.'; 0x7fff])), Arrival::InOrder);
    assert_eq!(told.offset, 5 + 0x7fff + 1, "the one behind them was waited for");
    // Where there are more numbers than the largest window has, only numbers within such a window count.
    let mut streams =
        Reassembler::<Counted<33>>::new(StreamConfig::default()).expect("memory for the default");
    let mut push = |segment| streams.push(flow(1), segment, 0, |_| ());
    push(opening::<33>(-4));
    assert_eq!(push(at::<33>(-4 + (1 << 30), b"z")), Arrival::Waits);
    assert_eq!(push(at::<33>(-3 + (1 << 30), b"z")), Arrival::Ignored);
}

/// An image contains positions, which do not wrap.
fn goes_on<const BITS: u32>() {
    let mut here =
        Reassembler::<Counted<BITS>>::new(StreamConfig::default()).expect("memory for the default");
    here.push(flow(1), opening::<BITS>(-3), 0, |_| ());
    here.push(flow(1), at::<BITS>(-3, b"abcdef"), 0, |_| ());
    let mut there =
        Reassembler::<Counted<BITS>>::new(StreamConfig::default()).expect("memory for the default");
    assert_eq!(there.decode(&here.encode(), 0), Ok(1), "at {BITS} bits");
    let mut told = Told { offset: 6, ..Told::default() };
    there.push(flow(1), at::<BITS>(3, b"ghi"), 0, |delivery| told.take(delivery));
    assert_eq!(told.stream, b"ghi".map(Ok), "at {BITS} bits");
    // Windows take waiting bytes along.
    let shown = Rc::new(RefCell::new(Vec::new()));
    let new = || {
        let shown = shown.clone();
        let config = WindowConfig::new(6, 6, 1_000);
        Windows::<Counted<BITS>, _>::new(config, move |window: &Window<'_>| {
            shown.borrow_mut().extend_from_slice(window.fresh());
        })
        .expect("windows as wide as their slide")
    };
    let (mut here, mut there) = (new(), new());
    for segment in [opening::<BITS>(-3), at::<BITS>(-3, b"abcd"), at::<BITS>(3, b"ghi")] {
        here.push(flow(1), segment, 0);
    }
    there.import(&here.take_where(|_| true), 0).expect("what was just exported");
    there.push(flow(1), at::<BITS>(1, b"ef"), 0);
    there.finish();
    assert_eq!(shown.take(), b"abcdefghi", "at {BITS} bits");
}

#[test]
fn a_stream_whose_numbers_wrapped_goes_on_elsewhere() {
    goes_on::<16>();
    goes_on::<33>();
    goes_on::<62>();
}
