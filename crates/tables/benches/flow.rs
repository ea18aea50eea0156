//! Cost of the flow table's operations, in nanoseconds for each of a thousand, by table size.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use netbricks_tables::{FlowTable, FlowTableConfig, Full, Key, Secret, Table, TimerWheel};

type Flows = FlowTable<[u64; 5], (u64, u64)>;

const LOOKUPS: usize = 4_096;

fn main() {
    divan::main();
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn key(flow: u64) -> [u64; 5] {
    [flow << 32 | 17, (0x0a00_0000 | flow) << 32 | 0xc0a8_0001, 0, 0, 0]
}

fn filled(flows: usize, full: Full) -> (Flows, Vec<[u64; 5]>) {
    let config = FlowTableConfig { capacity: flows, idle_timeout: Some(30_000_000_000), full, seed: 1 };
    let mut table = Flows::new(config).expect("memory for the table");
    let keys: Vec<_> = (0..flows as u64).map(key).collect();
    table.lookup_bulk(&keys, 0, |_, entry| {
        entry.or_insert_with(|| (0, 0));
    });
    let mut state = 88_172_645_463_325_252;
    (table, (0..LOOKUPS * 16).map(|_| keys[random(&mut state) as usize % flows]).collect())
}

#[divan::bench(args = [1_000, 65_536, 1_000_000])]
fn hit_bulk(bencher: Bencher<'_, '_>, flows: usize) {
    let (mut table, keys) = filled(flows, Full::Refuse);
    let mut at = 0;
    bencher.counter(ItemsCount::new(LOOKUPS)).bench_local(|| {
        at = (at + LOOKUPS) % keys.len();
        table.lookup_bulk(&keys[at..at + LOOKUPS], 1, |_, entry| {
            if let Some((packets, bytes)) = entry.found() {
                *packets += 1;
                *bytes += 64;
            }
        });
    });
}

#[divan::bench(args = [1_000, 65_536, 1_000_000])]
fn hit_one_by_one(bencher: Bencher<'_, '_>, flows: usize) {
    let (mut table, keys) = filled(flows, Full::Refuse);
    let mut at = 0;
    bencher.counter(ItemsCount::new(LOOKUPS)).bench_local(|| {
        at = (at + LOOKUPS) % keys.len();
        for key in &keys[at..at + LOOKUPS] {
            if let Some((packets, _)) = table.lookup(*key, 1).found() {
                *packets += 1;
            }
        }
    });
}

/// Every lookup is a new flow that takes an old one's place in a full table.
#[divan::bench(args = [1_000, 65_536])]
fn evict_and_insert(bencher: Bencher<'_, '_>, flows: usize) {
    let (mut table, _) = filled(flows, Full::EvictOldest);
    // Above every flow that is there, and below the 32 bits that a key keeps.
    let mut next = 1u64 << 24;
    bencher.counter(ItemsCount::new(LOOKUPS)).bench_local(|| {
        for _ in 0..LOOKUPS {
            next += 1;
            black_box(table.lookup(key(next & 0xffff_ffff), 1).or_insert_with(|| (0, 0)).is_some());
        }
    });
}

#[divan::bench]
fn hash_five_words(bencher: Bencher<'_, '_>) {
    let secret = Secret::from_seed(1);
    bencher
        .counter(ItemsCount::new(LOOKUPS))
        .bench_local(|| (0..LOOKUPS as u64).fold(0, |sum, flow| sum ^ black_box(key(flow)).hash(&secret)));
}

/// Filing a timer and having it fire, with time going on.
#[divan::bench]
fn timer_file_and_fire(bencher: Bencher<'_, '_>) {
    let mut wheel = TimerWheel::new(LOOKUPS).expect("memory for the wheel");
    let mut now = 0;
    bencher.counter(ItemsCount::new(LOOKUPS)).bench_local(|| {
        for timer in 0..LOOKUPS {
            wheel.insert(timer, now + 1_000 + timer as u64);
        }
        now += 10_000;
        while wheel.advance(now, 64, |_| None) > 0 {}
    });
}
