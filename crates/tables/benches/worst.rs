//! The worst time of one operation of a [`FlowTable`] or of [routes](Lpm) at a million entries.
//!
//! It prints microseconds by kind of operation, with the median in nanoseconds. Every operation runs several times on
//! identical tables, and its shortest time counts. Interrupts hit another operation each time; work of the table hits
//! the same one. `cargo bench -p netbricks-tables --bench worst -- [ROUNDS]`, pinned to a quiet core.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use netbricks_tables::{
    Cursor, FlowTable, FlowTableConfig, Full, Lpm, LpmConfig, MAXIMUM_WORK, RouteLifetime, Table,
};

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
    // `cargo bench` adds an option of its own.
    let rounds = std::env::args().find_map(|rounds| rounds.parse().ok()).unwrap_or(5);
    println!("{:44} {:>9} {:>10} {:>12}", "", "times", "median", "worst");
    flows(rounds);
    routes(rounds);
}

/// Networks of 256 addresses, a million in a row, which all end at once.
fn routes(rounds: usize) {
    let mut insert = Times::new("put in a route");
    let mut find = Times::new("look up an address");
    let mut replace = Times::new("give a route another next hop");
    let mut remove = Times::new("take a route out");
    let mut expire = Times::new("expire up to 8 of all routes that are due");
    // Such routes decide for many cells each. No packet's path inserts them.
    let mut short = [8, 0].map(|len| {
        (len, Times::new(if len == 8 { "put in a /8 above them" } else { "put in a /0 above them" }))
    });
    for _ in 0..rounds {
        for times in [&mut insert, &mut find, &mut replace, &mut remove, &mut expire] {
            times.at = 0;
        }
        let config = LpmConfig { prefixes: ENTRIES + 1, groups: ENTRIES / 16 + 1 };
        let mut routes: Lpm<Ipv4Addr, u32> = Lpm::new(config).expect("there is memory for a million routes");
        let network = |number: u32| Ipv4Addr::from_bits(number << 8);
        let far = |number: u32| network((u64::from(number) * 7_919 % ENTRIES as u64) as u32);
        let lifetime = RouteLifetime { now: 0, end: Some(IDLE), ..RouteLifetime::default() };
        let put = |routes: &mut Lpm<Ipv4Addr, u32>, times: &mut Times, number, hop| {
            let put = times.time(|| routes.insert_with_lifetime(far(number), 24, hop, lifetime));
            put.expect("there is room for a million");
        };
        // The first one has memory mapped for the ends of all.
        put(&mut routes, &mut Times::new(""), 0, 0);
        (0..ENTRIES as u32).for_each(|number| put(&mut routes, &mut insert, number, number % 200));
        assert_eq!(routes.len(), ENTRIES);
        for number in 0..ENTRIES as u32 {
            assert!(find.time(|| routes.longest(far(number)).is_some()));
        }
        for (len, times) in &mut short {
            times.at = 0;
            for _ in 0..8 {
                assert!(times.time(|| routes.insert(network(0), *len, 1)).is_ok());
                routes.remove(network(0), *len);
            }
        }
        (0..ENTRIES as u32 / 4).for_each(|number| put(&mut routes, &mut replace, number, 201 + number % 50));
        for number in 0..ENTRIES as u32 / 4 {
            remove.time(|| routes.remove(far(number), 24));
        }
        while routes.is_due(2 * IDLE) {
            expire.time(|| routes.expire(2 * IDLE, MAXIMUM_WORK));
        }
        assert!(routes.is_empty(), "{} routes are left", routes.len());
    }
    let short = short.into_iter().map(|(_, times)| times);
    [insert, find, replace, remove, expire].into_iter().chain(short).for_each(Times::print);
}

fn flows(rounds: usize) {
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
    [grow, hit, evict, walk, first, expire].into_iter().for_each(Times::print);
}
