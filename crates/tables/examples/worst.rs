//! The worst time that one operation of a [`FlowTable`] takes at a million entries, by kind of operation: prints
//! microseconds, the median in nanoseconds beside them.
//!
//! Every operation is run several times, on tables that are alike to the bit, and its shortest time counts: what the
//! machine did in between (interrupts, other processes) falls on another operation each time, what the table does falls
//! on the same. `cargo run --release -p netbricks-tables --example worst [ROUNDS]`, pinned to a quiet core.

use std::hint::black_box;
use std::time::Instant;

use netbricks_tables::{Cursor, FlowTable, FlowTableConfig, Full, MAXIMUM_WORK, Table};

const ENTRIES: usize = 1_000_000;
const IDLE: u64 = 1_000_000_000;

type Flows = FlowTable<[u64; 5], (u64, u64)>;

/// Keys as a flood of one service has them: one field counts.
fn key(number: u64) -> [u64; 5] {
    [(number & 0xffff) << 48 | 80 << 32 | 6 << 24, (0x0a00_0000 | number >> 16) << 32 | 0xc000_0201, 0, 0, 0]
}

/// The shortest time of each operation of a kind, in ns, over the rounds so far.
struct Times {
    kind: &'static str,
    shortest: Vec<u32>,
    at: usize,
}

impl Times {
    fn new(kind: &'static str) -> Self {
        Self { kind, shortest: Vec::new(), at: 0 }
    }
    fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let answer = black_box(operation());
        let time = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        match self.shortest.get_mut(self.at) {
            Some(shortest) => *shortest = time.min(*shortest),
            None => self.shortest.push(time),
        }
        self.at += 1;
        answer
    }
    fn print(mut self) {
        self.shortest.sort_unstable();
        let (count, worst) = (self.shortest.len(), self.shortest.last().copied().unwrap_or_default());
        let median = self.shortest.get(count / 2).copied().unwrap_or_default();
        println!("{:44} {count:9} {median:7} ns {:9.2} us", self.kind, f64::from(worst) / 1e3);
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let mut grow = Times::new("insert, from empty to full");
    let mut hit = Times::new("look up what is there");
    let mut evict = Times::new("insert into a full table, the oldest leaves");
    let mut walk = Times::new("walk on by 64 slots, removing every other");
    let mut first = Times::new("first look-up after all were due");
    let mut expire = Times::new("expire 64 of a million that are due");
    for _ in 0..rounds {
        for times in [&mut grow, &mut hit, &mut evict, &mut walk, &mut first, &mut expire] {
            times.at = 0;
        }
        let config = FlowTableConfig {
            capacity: ENTRIES,
            idle_timeout: Some(IDLE),
            full: Full::EvictOldest,
            seed: 0x5eed,
        };
        let mut flows = Flows::new(config).expect("there is memory for a million flows");
        for number in 0..ENTRIES as u64 {
            grow.time(|| flows.lookup(key(number), number / 16).or_insert_with(|| (1, 60)).is_some());
        }
        assert_eq!(flows.len(), ENTRIES);
        let now = ENTRIES as u64 / 16;
        for number in 0..ENTRIES as u64 {
            // Far from the one before, so that no cache helps.
            let number = number.wrapping_mul(7_919) % ENTRIES as u64;
            hit.time(|| flows.lookup(key(number), now).found().is_some());
        }
        for number in 0..ENTRIES as u64 / 4 {
            let number = ENTRIES as u64 + number;
            evict.time(|| flows.lookup(key(number), now).or_insert_with(|| (1, 60)).is_some());
        }
        assert_eq!(flows.len(), ENTRIES);
        let mut cursor = Cursor::default();
        let mut odd = false;
        while walk.time(|| {
            flows.walk(&mut cursor, MAXIMUM_WORK, |_, _| {
                odd = !odd;
                odd
            })
        }) {}
        for number in 0..ENTRIES as u64 {
            flows.lookup(key(number), now).or_insert_with(|| (1, 60));
        }
        let due = now + 2 * IDLE;
        first.time(|| flows.lookup(key(0), due).found().is_some());
        while flows.next_deadline().is_some_and(|deadline| deadline <= due) {
            expire.time(|| flows.expire(due, MAXIMUM_WORK));
        }
        assert!(flows.is_empty(), "{} flows are left", flows.len());
    }
    println!("{:44} {:>9} {:>10} {:>12}", "", "times", "median", "worst");
    [grow, hit, evict, walk, first, expire].into_iter().for_each(Times::print);
}
