//! A hundred thousand schedules of reordering, loss, duplicates, overlaps and wrapping numbers.

use netbricks_core::packet::Tcp;
use netbricks_core::stream::{Delivery, End, Overlap, Reassembler, Segment, Side, StreamConfig};
use netbricks_testkit::mutate::Random;

use super::exercise::{Told, flow, segment};
use super::model::Model;

fn run(streams: &mut Reassembler<Tcp>, number: u32, overlap: Overlap) {
    let mut random = Random::new(u64::from(number) + 1);
    let flow = flow(number);
    // Most streams are short; some take several blocks a segment.
    let (length, longest) = match random.below(8) {
        0 => (1 + random.below(6_000), 1_460),
        1 => (1 + random.below(400), 100),
        _ => (1 + random.below(40), 12),
    };
    let agrees = random.below(2) == 0;
    let first = match random.below(3) {
        0 => (random.next() as u32 % (2 * length as u32)).wrapping_sub(length as u32),
        _ => random.next() as u32,
    };
    let stream: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    // Segments of the whole stream, each perhaps lost, sent again, or displaced; and others cut anywhere.
    let mut segments: Vec<(usize, usize, usize)> = Vec::new();
    let mut at = 0;
    while at < length {
        let end = length.min(at + 1 + random.below(longest));
        for _ in 0..[0, 1, 1, 1, 1, 1, 2, 3][random.below(8)] {
            segments.push((segments.len() + random.below(6), at, end));
        }
        at = end;
    }
    for _ in 0..random.below(4) {
        let from = random.below(length);
        segments.push((random.below(12), from, length.min(from + 1 + random.below(longest))));
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
    streams.push(flow, Segment { opens: true, ..segment(first, &[]) }, 0, &mut deliver);
    for (_, from, to) in segments {
        let mut bytes = stream[from..to].to_vec();
        if !agrees && random.below(3) == 0 {
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        let ends = fins && to == length;
        let sent = Segment { ends, ..segment(first.wrapping_add(from as u32), &bytes) };
        streams.push(flow, sent, 0, &mut deliver);
        model.push(from as u64, &bytes, ends);
        if random.below(12) == 0 {
            // The other side has more than was seen.
            let acknowledged = random.below(length + 1);
            let number = u64::from(first.wrapping_add(acknowledged as u32));
            let answer = Segment { acknowledges: Some(number), ..segment(7, &[]) };
            streams.push(flow.reversed(), answer, 0, &mut deliver);
            if !model.ended() {
                model.acknowledged(acknowledged as u64);
            }
        }
        if random.below(16) == 0 {
            // A keep-alive: a byte of nothing before the next.
            let alive = segment(first.wrapping_add(model.next as u32).wrapping_sub(1), b"?");
            if model.next > 0 {
                streams.push(flow, alive, 0, &mut deliver);
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
        // What was told is the stream, and nothing else.
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
fn any_bytes_are_connections_that_are_rewritten() {
    let mut random = Random::new(13);
    let mut sums = [0; 4];
    for _ in 0..20_000 {
        let length = random.below(400);
        let mut bytes: Vec<u8> = (0..length).map(|_| (random.next() >> random.below(8)) as u8).collect();
        // Most of what comes belongs to connections that were opened, and little of it resets them.
        for (place, operation) in bytes.chunks_exact_mut(8).enumerate() {
            match (place, random.below(8)) {
                (0, _) => (operation[0], operation[1], operation[2]) = (0, 0x02, 1),
                (1, _) => (operation[0], operation[1], operation[2], operation[3]) = (4, 0x12, 1, 2),
                (_, 0) => {}
                _ => {
                    (operation[0], operation[1]) = (operation[0] & 4, 0x10 | operation[1] & 0x08);
                    // What comes first is early in the stream.
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
