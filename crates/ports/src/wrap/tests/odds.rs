//! The frequency and the exact effect of a line's faults, compared with the same packets on a good line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netbricks_buffer::Packet;

use super::super::line::{Exit, Line};
use super::super::{Counters, LineSettings};
use super::*;

const PACKETS: u64 = 20_000;

/// The packets that a pcap port writes of the same traffic behind a line, and the line's counters.
fn written(line: &str, packets: u64) -> (Vec<Vec<u8>>, Arc<Counters>) {
    let (pool, directory) = (pool(), Directory::new("odds"));
    let cx = context(&pool, &directory);
    // Random contents, so that no two packets are the same.
    let traffic =
        format!("packets = {packets}\nrate = '10 kpps'\npayload = 'random'\nframe_sizes = 60\nseed = 9");
    let mut from = open("generator", &traffic, &cx).unwrap();
    let mut to = open("pcap", &format!("write = 'out.pcap'\nlimit = 30000\n{line}"), &cx).unwrap();
    let counters = to.counters()[0].clone();
    forward(from.as_mut(), to.as_mut(), &pool, 256);
    to.close().unwrap();
    (frames(&directory), counters)
}

/// The bits in which two frames of the same length differ.
fn differing(one: &[u8], other: &[u8]) -> Vec<usize> {
    assert_eq!(one.len(), other.len());
    (0..8 * one.len()).filter(|bit| (one[bit / 8] ^ other[bit / 8]) >> (bit % 8) & 1 == 1).collect()
}

#[test]
fn corruption_flips_exactly_one_bit_anywhere_in_a_frame() {
    let (straight, _) = written("", 5_000);
    let (corrupted, counters) = written("corrupt = 1", 5_000);
    assert_eq!((straight.len(), corrupted.len()), (5_000, 5_000));
    let mut flipped = BTreeSet::new();
    for (before, after) in straight.iter().zip(&corrupted) {
        let bits = differing(before, after);
        assert_eq!(bits.len(), 1, "{before:02x?} {after:02x?}");
        flipped.extend(bits);
    }
    assert_eq!(counters.corrupted.load(Relaxed), 5_000);
    // Of 480 bits, 5,000 random choices miss ten in a million.
    assert!(flipped.len() > 470, "{} of 480 bits were ever flipped", flipped.len());
}

#[test]
fn a_chance_of_a_fifth_affects_a_fifth_of_the_packets() {
    let (straight, _) = written("", PACKETS);
    let known: BTreeSet<&Vec<u8>> = straight.iter().collect();
    assert_eq!((straight.len(), known.len()), (PACKETS as usize, PACKETS as usize));
    let near = |what: &str, found: u64| {
        let (expected, deviation) = (PACKETS as f64 * 0.2, (PACKETS as f64 * 0.2 * 0.8).sqrt());
        assert!((found as f64 - expected).abs() < 6.0 * deviation, "{found} of {PACKETS} {what}");
    };

    let (frames, counters) = written("loss = 0.2", PACKETS);
    let lost = counters.impaired.load(Relaxed);
    near("lost", lost);
    assert_eq!(frames.len() as u64, PACKETS - lost);

    let (frames, counters) = written("duplicate = 0.2", PACKETS);
    let duplicated = counters.duplicated.load(Relaxed);
    near("doubled", duplicated);
    assert_eq!(frames.len() as u64, PACKETS + duplicated);
    assert_eq!(frames.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64, duplicated);

    let (frames, counters) = written("corrupt = 0.2", PACKETS);
    let corrupted = counters.corrupted.load(Relaxed);
    near("corrupted", corrupted);
    assert_eq!(frames.iter().filter(|frame| !known.contains(frame)).count() as u64, corrupted);

    let (frames, counters) = written("reorder = 0.2\nreorder_gap = 1", PACKETS);
    let reordered = counters.reordered.load(Relaxed);
    near("reordered", reordered);
    assert_eq!(frames.iter().collect::<BTreeSet<_>>(), known);
    assert!(frames != straight);
}

#[test]
fn jitter_varies_the_delay_evenly_and_no_further_than_it_may() {
    const DELAY: u64 = 5_000_000;
    const JITTER: u64 = 2_000_000;
    let arrivals = |line: &str| {
        let (pool, directory) = (pool(), Directory::new("jitter"));
        let cx = context(&pool, &directory);
        let traffic = "packets = 5000\nrate = '3 kpps'\npayload = 'random'\nseed = 5";
        let mut from = open("generator", &format!("{traffic}\n{line}"), &cx).unwrap();
        let (mut to, far) = collector(&pool);
        forward(from.as_mut(), &mut to, &pool, 32);
        collected(&far)
    };
    let straight: BTreeMap<Vec<u8>, u64> =
        arrivals("").into_iter().map(|(time, frame)| (frame, time)).collect();
    let varied = arrivals("delay = '5 ms'\njitter = '2 ms'");
    assert_eq!((straight.len(), varied.len()), (5_000, 5_000));
    assert!(varied.is_sorted_by_key(|(time, _)| *time));
    let delays: Vec<u64> = varied.iter().map(|(time, frame)| time - straight[frame]).collect();
    let range = DELAY - JITTER..=DELAY + JITTER;
    assert!(delays.iter().all(|delay| range.contains(delay)));
    // In an even spread, a tenth lies in each tenth of the range.
    let mut tenths = [0_u64; 10];
    for delay in &delays {
        tenths[((delay - range.start()) * 10 / (2 * JITTER + 1)) as usize] += 1;
    }
    let deviation = (5_000.0_f64 * 0.1 * 0.9).sqrt();
    assert!(tenths.iter().all(|count| (*count as f64 - 500.0).abs() < 6.0 * deviation), "{tenths:?}");
    assert!(
        varied.windows(2).any(|pair| straight[&pair[0].1] > straight[&pair[1].1]),
        "some overtake others"
    );
}

#[test]
fn a_seed_repeats_and_another_does_otherwise() {
    for line in
        ["loss = 0.2", "duplicate = 0.2", "corrupt = 0.2", "reorder = 0.2", "delay = '4 ms'\njitter = '3 ms'"]
    {
        let of_seed = |seed: u64| written(&format!("{line}\nseed = {seed}"), 1_000).0;
        let first = of_seed(1);
        assert!(first == of_seed(1), "{line}: one seed does the same again");
        assert!(first != of_seed(2), "{line}: another seed does something else");
    }
}

/// Returns the packet that a line lost, to be lost again.
#[derive(Default)]
struct Again(Option<Packet>);

impl Exit for Again {
    fn leave(&mut self, packet: Packet) {
        self.0 = Some(packet);
    }
    fn lose(&mut self, packet: Packet, _reason: DropReason) {
        self.0 = Some(packet);
    }
    fn copied(&mut self, _bytes: usize) {}
}

/// The receive and the transmit queue of one number share their counters, and may be on two workers.
#[test]
fn lines_of_two_workers_count_together() {
    const TIMES: u64 = 100_000;
    let counters = Arc::new(Counters::default());
    let line = LineSettings {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_gap: 3,
        corrupt: 1.0,
        delay: 0,
        jitter: 0,
        limit: 4,
    };
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let mut line = Line::new(line, seed, counters.clone());
            scope.spawn(move || {
                let pool = Pool::builder().frames(64).build().unwrap();
                let mut exit = Again(pool.packet(&[0; 60]));
                for _ in 0..TIMES {
                    let packet = exit.0.take().unwrap();
                    line.enter(packet, 0, &mut exit);
                }
            });
        }
    });
    assert_eq!(counters.corrupted.load(Relaxed), 2 * TIMES);
}
