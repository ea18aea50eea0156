//! A hundred thousand schedules of reordering, loss, duplicates, overlaps and wrapping numbers.

use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{Delivery, End, Overlap, Protocol, Reassembler, Segment, Side, StreamConfig};
use netbricks_testkit::mutate::Random;

use super::exercise::{Told, flow, segment};
use super::model::Model;

/// A transport whose segments are prepared for a reassembler in its own way.
pub(crate) trait Transport: Protocol {
    fn push(
        streams: &mut Reassembler<Self>,
        flow: FlowKey,
        segment: Segment<'_>,
        deliver: &mut dyn FnMut(Delivery<'_>),
    ) {
        streams.push(flow, segment, 0, deliver);
    }
}

impl Transport for Tcp {}

/// Runs the schedule of this number. Answers how often the numbers of its bytes wrapped.
pub(crate) fn run<P: Transport>(streams: &mut Reassembler<P>, number: u32, overlap: Overlap) -> u64 {
    let mut random = Random::new(u64::from(number) + 1);
    // Most streams are short; some take several blocks a segment.
    let (length, longest) = match random.below(8) {
        0 => (1 + random.below(6_000), 1_460),
        1 => (1 + random.below(400), 100),
        _ => (1 + random.below(40), 12),
    };
    follow(streams, number, random, (length, longest), overlap)
}

/// As [`run`], for a stream of `length` bytes in segments of at most `longest` bytes.
pub(crate) fn follow<P: Transport>(
    streams: &mut Reassembler<P>,
    number: u32,
    mut random: Random,
    (length, longest): (usize, usize),
    overlap: Overlap,
) -> u64 {
    let flow = flow(number);
    // A segment further ahead of the next byte than this looks as if it were behind it.
    let reach = 1 << (P::BITS - 1).min(30);
    let is_long = length > reach;
    let agrees = random.below(2) == 0;
    let (mask, size) = ((1 << P::BITS) - 1, length as u64);
    let first = match random.below(3) {
        0 => (random.next() % (2 * size)).wrapping_sub(size) & mask,
        _ => random.next() & mask,
    };
    let numbered = |at: usize| first.wrapping_add(at as u64) & mask;
    let stream: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    // Segments of the whole stream, each perhaps lost, repeated or displaced; and others cut anywhere.
    let mut segments: Vec<(usize, usize, usize)> = Vec::new();
    let mut at = 0;
    while at < length {
        let end = length.min(at + 1 + random.below(longest));
        for _ in 0..[0, 1, 1, 1, 1, 1, 2, 3][random.below(8)] {
            segments.push((segments.len() + random.below(6), at, end));
        }
        at = end;
    }
    let planned = segments.len();
    for _ in 0..random.below(4) * (1 + length / 6_000) {
        let from = random.below(length);
        let place = if is_long { from * planned / length } else { 0 };
        segments.push((place + random.below(12), from, length.min(from + 1 + random.below(longest))));
    }
    segments.sort();
    let fins = random.below(3) > 0;
    let mut model = Model::new(overlap);
    let mut told = Told::default();
    let mut deliver = |delivery: Delivery<'_>| {
        if delivery.side == Side::Client {
            told.take(delivery);
        }
    };
    P::push(streams, flow, Segment { number: first, opens: true, ..segment(0, &[]) }, &mut deliver);
    for (_, from, to) in segments {
        let mut bytes = stream[from..to].to_vec();
        if !agrees && random.below(3) == 0 {
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        let ends = fins && to == length;
        P::push(streams, flow, Segment { number: numbered(from), ends, ..segment(0, &bytes) }, &mut deliver);
        model.push(from as u64, &bytes, ends);
        let far = is_long && to > model.next as usize + reach / 2;
        if far || random.below(12) == 0 {
            // The other side has more bytes than were seen.
            let acknowledged = match is_long {
                true if far => to,
                true => length.min(model.next as usize + random.below(reach / 4)),
                false => random.below(length + 2),
            };
            let answer = Segment { acknowledges: Some(numbered(acknowledged)), ..segment(7, &[]) };
            P::push(streams, flow.reversed(), answer, &mut deliver);
            if !model.ended() {
                model.acknowledged(acknowledged as u64);
            }
        }
        if random.below(16) == 0 {
            // A keep-alive: a meaningless byte before the next.
            if model.next > 0 {
                let number = numbered(model.next as usize - 1);
                P::push(streams, flow, Segment { number, ..segment(0, b"?") }, &mut deliver);
            }
        }
    }
    streams.expire(u64::from(u32::MAX), 2, &mut deliver);
    model.flush();
    assert_eq!(told.stream, model.told, "schedule {number}, {overlap:?}");
    assert_eq!(
        told.end,
        Some(if model.end.is_some() { End::Finished } else { End::Idle }),
        "schedule {number}"
    );
    if agrees {
        // The deliveries are the stream, and nothing else.
        let mut at = 0;
        for piece in &told.stream {
            match piece {
                Ok(byte) => {
                    assert_eq!(*byte, stream[at], "schedule {number} at {at}");
                    at += 1;
                }
                Err(missing) => at += *missing as usize,
            }
        }
    }
    (first + size - 1) >> P::BITS
}

#[test]
fn a_hundred_thousand_schedules_agree_with_the_model() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let config = StreamConfig { overlap, idle: 1_000_000_000, ..StreamConfig::default() };
        let mut streams = Reassembler::<Tcp>::new(config).unwrap();
        for number in 0..100_000 {
            run(&mut streams, number, overlap);
        }
        assert_eq!(streams.memory().0, 0, "everything was given back");
        assert!(streams.is_empty());
        let counters = streams.counters();
        assert!(
            counters.out_of_order > 50_000 && counters.old > 50_000 && counters.gaps > 20_000,
            "{counters:?}"
        );
    }
}

#[test]
fn any_bytes_are_a_schedule() {
    let mut random = Random::new(11);
    for _ in 0..3_000 {
        let length = random.below(120);
        let bytes: Vec<u8> = (0..length).map(|_| (random.next() >> random.below(8)) as u8).collect();
        super::exercise::streams(&bytes);
    }
}

#[test]
fn any_bytes_are_connections() {
    let mut random = Random::new(17);
    let mut sums = [0; 6];
    for _ in 0..20_000 {
        let length = random.below(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| (random.next() >> random.below(8)) as u8).collect();
        // Most segments have an acknowledgment, and neither reset nor open anything.
        for operation in bytes.chunks_exact_mut(6) {
            if random.below(5) > 0 {
                operation[1] = 0x10 | operation[1] & 0x09;
            }
        }
        for counters in super::exercise::connections(&bytes) {
            let happened = [
                counters.out_of_order,
                counters.gaps,
                counters.evicted,
                counters.refused + counters.refused_connections,
                counters.ignored,
                counters.connections,
            ];
            sums.iter_mut().zip(happened).for_each(|(sum, count)| *sum += count);
        }
    }
    assert!(sums.iter().all(|sum| *sum > 5_000), "{sums:?}");
}

#[test]
fn any_bytes_are_connections_that_are_rewritten() {
    let mut random = Random::new(13);
    let mut sums = [0; 4];
    for _ in 0..20_000 {
        let length = random.below(400);
        let mut bytes: Vec<u8> = (0..length).map(|_| (random.next() >> random.below(8)) as u8).collect();
        // Most segments belong to connections that were opened, and few of them reset.
        for (place, operation) in bytes.chunks_exact_mut(8).enumerate() {
            match (place, random.below(8)) {
                (0, _) => (operation[0], operation[1], operation[2]) = (0, 0x02, 1),
                (1, _) => (operation[0], operation[1], operation[2], operation[3]) = (4, 0x12, 1, 2),
                (_, 0) => {}
                _ => {
                    (operation[0], operation[1]) = (operation[0] & 4, 0x10 | operation[1] & 0x08);
                    // Segments that come first are early in the stream.
                    let within = (place * 8).min(200) as u8;
                    (operation[2], operation[3]) = (2 + operation[2] % within, 2 + operation[3] % within);
                }
            }
        }
        let counters = super::rewritten::rewritten(&bytes);
        let happened = [counters.replaced, counters.resent, counters.no_room, counters.refused];
        sums.iter_mut().zip(happened).for_each(|(sum, count)| *sum += count);
    }
    assert!(sums.iter().all(|sum| *sum > 1_000), "replaced, resent, no room, refused: {sums:?}");
}

/// A case that fuzzing found.
#[test]
fn the_client_stays_the_same_after_the_first_delivery() {
    let hex = "b2b2b2b2b2b2b2d8b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2a2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2aab2b2b2b2b2b2b2880232da32dad2dada20da302edada8dda95959595620100b2b2b24e4db20000b2b2b2b2b2b2b2b2b2b2b2b2b24e4db20000000000000095dae3fac2c2c2c2c2c2c2d1d15c0100025050503a505050505050505050505050505050500000";
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    super::exercise::connections(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>());
}
