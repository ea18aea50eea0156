//! Cost of the packet classifier: ns a lookup by rule set, of changes, and bytes a rule.
//!
//! `cargo bench -p netbricks-tables --bench classifier -- [ROUNDS]`, pinned to a quiet core. `bench/classbench.sh` has
//! DPDK's `rte_acl` beside it. Each figure is the least of
//! the rounds, which alternate over all kinds, so that other load on the machine hits them alike.

#[path = "../tests/classifier/classbench.rs"]
mod classbench;

use std::hint::black_box;
use std::time::Instant;

use classbench::{FiveTuple, rules};
use netbricks_tables::classifier::{
    Classifier, ClassifierConfig, Condition, Entry, Field, Keys, Layout, MatchCache, Matches, Test,
};

/// Keys of a batch, as of one burst of packets.
const BATCH: usize = 64;
/// Keys of a run.
const RUN: usize = 65_536;

fn random(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as u32
}

fn masked(field: Field, value: u32, len: u32) -> Condition {
    let all = u32::MAX >> (32 - u32::from(field.bits()));
    let mask = all & !all.checked_shr(len).unwrap_or(0);
    let test = Test::Masked { value: (value & mask).into(), mask: mask.into() };
    Condition { field, test, negated: false }
}

fn entry(rule: u32, last: bool, conditions: Vec<Condition>) -> Entry {
    Entry { rule, order: rule.into(), last, conditions }
}

/// A classifier, and batches of keys to look up in it.
struct Case {
    name: String,
    classifier: Classifier,
    batches: Vec<Keys>,
    cache: Option<MatchCache>,
    /// Of one key after the other, by `first`.
    single: bool,
    least: f64,
    matched: usize,
}

impl Case {
    fn new(name: impl Into<String>, classifier: &Classifier, keys: &[Vec<u32>]) -> Self {
        let batches = keys.chunks(BATCH).map(|chunk| {
            let mut batch = Keys::new(classifier.layout().words());
            chunk.iter().for_each(|key| batch.push().copy_from_slice(key));
            batch
        });
        Self {
            name: name.into(),
            classifier: classifier.clone(),
            batches: batches.collect(),
            cache: None,
            single: false,
            least: f64::MAX,
            matched: 0,
        }
    }

    fn cached(mut self) -> Self {
        self.cache = Some(MatchCache::new(1 << 17, 7));
        self
    }

    fn single(mut self) -> Self {
        self.single = true;
        self
    }

    fn round(&mut self) {
        let mut found = vec![Matches::with_capacity(64); BATCH];
        let (mut matched, mut keys) = (0, 0);
        let start = Instant::now();
        for batch in &self.batches {
            match &mut self.cache {
                Some(cache) => cache.matches_batch(&self.classifier, batch, &mut found),
                None if self.single => {
                    for at in 0..batch.len() {
                        matched +=
                            usize::from(self.classifier.first(batch.get(at).unwrap_or_default()).is_some());
                    }
                }
                None => self.classifier.matches_batch(batch, &mut found),
            }
            if !self.single {
                matched += found.iter().map(|found| black_box(found).len()).sum::<usize>();
            }
            keys += batch.len();
        }
        self.least = self.least.min(start.elapsed().as_nanos() as f64 / keys as f64);
        self.matched = matched * 100 / keys;
    }

    fn print(&self) {
        let (entries, tables) = (self.classifier.len(), self.classifier.tables().count());
        let bytes = self.classifier.bytes() / entries.max(1);
        println!(
            "{:44} {entries:7} rules {tables:4} tables {bytes:8} bytes a rule {:7.2} matches {:8.1} ns",
            self.name,
            self.matched as f64 / 100.0,
            self.least
        );
    }
}

fn filled(layout: &Layout, entries: impl Iterator<Item = Entry>) -> Classifier {
    let mut classifier =
        Classifier::new(layout.clone(), ClassifierConfig { seed: 9, ..ClassifierConfig::default() });
    for entry in entries {
        classifier.insert(entry).expect("room for a million rules");
    }
    while classifier.maintain(1_000) {}
    classifier
}

/// Rules on all of five fields, at random, and keys that each match one.
fn five_tuples(cases: &mut Vec<Case>) {
    let fields = FiveTuple::new();
    for count in [1, 100, 10_000, 100_000] {
        let mut state = 88_172_645_463_325_252;
        let tuples: Vec<[u32; 5]> = (0..count)
            .map(|_| {
                let protocol = if random(&mut state).is_multiple_of(2) { 6 } else { 17 };
                let (source, destination) = (random(&mut state), random(&mut state));
                [source, destination, random(&mut state) & 0xffff, random(&mut state) & 0xffff, protocol]
            })
            .collect();
        let all =
            [fields.source, fields.destination, fields.source_port, fields.destination_port, fields.protocol];
        let rule = |(number, tuple): (u32, &[u32; 5])| {
            entry(
                number,
                true,
                all.iter().zip(tuple).map(|(field, value)| masked(*field, *value, 32)).collect(),
            )
        };
        let classifier = filled(&fields.layout, (0..).zip(&tuples).map(rule));
        let mut key = || {
            let mut key = tuples[random(&mut state) as usize % tuples.len()].to_vec();
            key.push(random(&mut state) & 0xff);
            key
        };
        let keys: Vec<Vec<u32>> = (0..RUN).map(|_| key()).collect();
        cases.push(Case::new(format!("five-tuples {count}"), &classifier, &keys));
        cases.push(Case::new(format!("five-tuples {count}, one by one"), &classifier, &keys).single());
    }
}

/// Prefixes of both addresses, of some pairs of lengths.
fn masks(cases: &mut Vec<Case>) {
    let fields = FiveTuple::new();
    for (count, masks) in
        [(1_000, 26), (1_000, 1_000), (10_000, 26), (10_000, 1_000), (100_000, 26), (100_000, 1_000)]
    {
        let mut state = 88_172_645_463_325_252;
        let mut pairs: Vec<(u32, u32)> = (1..=32).flat_map(|a| (1..=32).map(move |b| (a, b))).collect();
        for at in (1..pairs.len()).rev() {
            pairs.swap(at, random(&mut state) as usize % (at + 1));
        }
        // Not those so short that most keys match them.
        pairs.retain(|(a, b)| a + b >= 12);
        let mut prefixes: Vec<[(u32, u32); 2]> = vec![];
        for number in 0..count {
            let (a, b) = pairs[number % masks % pairs.len()];
            prefixes.push([(random(&mut state), a), (random(&mut state), b)]);
        }
        let rule = |(number, [source, destination]): (u32, &[(u32, u32); 2])| {
            let conditions = vec![
                masked(fields.source, source.0, source.1),
                masked(fields.destination, destination.0, destination.1),
            ];
            entry(number, true, conditions)
        };
        let classifier = filled(&fields.layout, (0..).zip(&prefixes).map(rule));
        let mut keys = vec![];
        for _ in 0..RUN {
            let [source, destination] = prefixes[random(&mut state) as usize % count];
            let inside =
                |(value, len): (u32, u32), other: u32| value ^ u32::MAX.checked_shr(len).unwrap_or(0) & other;
            let (source, destination) =
                (inside(source, random(&mut state)), inside(destination, random(&mut state)));
            keys.push(vec![source, destination, random(&mut state) & 0xffff, 80, 6, 0]);
        }
        cases.push(Case::new(format!("{masks} masks"), &classifier, &keys));
    }
}

/// Rules on one TCP option each: its presence, and its value of 16 to 32 bits.
fn options(cases: &mut Vec<Case>) {
    let mut layout = Layout::new();
    let presence = layout.field(64);
    let values = [16, 24, 32, 32, 16, 32].map(|bits| layout.field(bits));
    for count in [1, 100_000] {
        let mut state = 88_172_645_463_325_252;
        let drawn: Vec<(usize, u32)> =
            (0..count).map(|number| (number % values.len(), random(&mut state))).collect();
        let rule = |(number, (option, value)): (u32, &(usize, u32))| {
            let mask = 1 << (option * 9 + 2);
            let present =
                Condition { field: presence, test: Test::Masked { value: mask, mask }, negated: false };
            entry(number, true, vec![present, masked(values[*option], *value, 32)])
        };
        let classifier = filled(&layout, (0..).zip(&drawn).map(rule));
        let mut keys = vec![];
        for _ in 0..RUN {
            let (option, value) = drawn[random(&mut state) as usize % count];
            let mut key = vec![0; layout.words()];
            presence.put(&mut key, 1 << (option * 9 + 2));
            values[option].put(&mut key, value.into());
            keys.push(key);
        }
        cases.push(Case::new(format!("TCP options {count}"), &classifier, &keys));
    }
}

/// Rules that differ in one range.
fn ranges(cases: &mut Vec<Case>) {
    let fields = FiveTuple::new();
    let kinds = [
        "random ports",
        "narrow ports",
        "addresses in a row",
        "random address ranges",
        "ports of both sides",
    ];
    for kind in kinds {
        for count in [1u32, 10_000, 100_000] {
            let mut state = 88_172_645_463_325_252;
            let rule = |number: u32| {
                let (a, b) = (random(&mut state), random(&mut state));
                let range = |field, low: u32, high: u32| {
                    let test = Test::Range { low: low.min(high).into(), high: low.max(high).into() };
                    Condition { field, test, negated: false }
                };
                let (low, high) = (a & 0xffff, b & 0xffff);
                let mut conditions = vec![masked(fields.protocol, 6, 32)];
                match kind {
                    "random ports" => conditions.push(range(fields.destination_port, low, high)),
                    "narrow ports" => {
                        conditions.push(range(fields.destination_port, low, (low + high % 16).min(0xffff)))
                    }
                    "addresses in a row" => {
                        let start = number.wrapping_mul(40_000);
                        conditions.push(range(fields.destination, start, start.saturating_add(30_000)));
                    }
                    "random address ranges" => {
                        conditions.push(range(fields.destination, a, a.saturating_add(b >> 8)))
                    }
                    _ => {
                        conditions.push(range(fields.source_port, low, (low + 500).min(0xffff)));
                        conditions.push(range(fields.destination_port, high, (high + 500).min(0xffff)));
                    }
                }
                entry(number, true, conditions)
            };
            let classifier = filled(&fields.layout, (0..count).map(rule));
            let keys: Vec<Vec<u32>> = (0..RUN / 4)
                .map(|_| {
                    vec![
                        0,
                        random(&mut state),
                        random(&mut state) & 0xffff,
                        random(&mut state) & 0xffff,
                        6,
                        0,
                    ]
                })
                .collect();
            cases.push(Case::new(format!("{kind} {count}"), &classifier, &keys));
            if count == 100_000 {
                cases.push(Case::new(format!("{kind} {count}, one by one"), &classifier, &keys).single());
            }
        }
    }
}

/// Writes headers for `bench/classbench.sh`, where it asks for them: six numbers each, in the machine's byte order.
fn write_headers(name: &str, kind: &str, headers: &[Vec<u32>]) {
    let Some(folder) = std::env::var_os("NETBRICKS_CLASSBENCH_HEADERS") else { return };
    let bytes = headers.iter().flatten().flat_map(|word| word.to_ne_bytes());
    let path = std::path::Path::new(&folder).join(format!("{name}.{kind}"));
    std::fs::write(path, bytes.collect::<Vec<u8>>()).expect("the folder takes files");
}

fn classbench_sets(cases: &mut Vec<Case>) {
    let fields = FiveTuple::new();
    for name in ["acl1_10k", "acl4_10k", "fw1_10k", "fw3_10k", "ipc1_10k"] {
        let Some(rules) = rules(name) else { continue };
        for last in [true, false] {
            let mut state = 88_172_645_463_325_252;
            let all = (0..).zip(&rules).map(|(number, rule)| Entry { last, ..rule.entry(number, &fields) });
            let classifier = filled(&fields.layout, all);
            let mut header = || {
                rules[random(&mut state) as usize % rules.len()].header(&mut || random(&mut state)).to_vec()
            };
            let flows: Vec<Vec<u32>> = (0..RUN).map(|_| header()).collect();
            let ends = if last { "first" } else { "all" };
            write_headers(name, "new", &flows);
            cases.push(Case::new(format!("{name} {ends}, new headers"), &classifier, &flows));
            if last {
                cases
                    .push(Case::new(format!("{name} {ends}, new, one by one"), &classifier, &flows).single());
            }
            let known: Vec<Vec<u32>> =
                (0..RUN).map(|_| flows[random(&mut state) as usize % flows.len()].clone()).collect();
            write_headers(name, "known", &known);
            cases.push(
                Case::new(format!("{name} {ends}, 64k known flows, cache"), &classifier, &known).cached(),
            );
            let mut other = || -> Vec<u32> {
                vec![
                    random(&mut state),
                    random(&mut state),
                    random(&mut state) & 0xffff,
                    random(&mut state) & 0xffff,
                    6,
                    0,
                ]
            };
            let strangers: Vec<Vec<u32>> = (0..RUN).map(|_| other()).collect();
            cases.push(Case::new(format!("{name} {ends}, random headers"), &classifier, &strangers));
        }
    }
}

/// Times of single changes at 100,000 rules, and of loading them.
fn changes(name: &str, entries: &[Entry], layout: &Layout) {
    let (held, spare) = entries.split_at(entries.len() * 10 / 11);
    let start = Instant::now();
    let mut classifier = Classifier::new(layout.clone(), ClassifierConfig::default());
    let mut ids: Vec<_> = held.iter().filter_map(|entry| classifier.insert(entry.clone()).ok()).collect();
    let load = start.elapsed();
    let (mut inserts, mut removes, mut moves) = (vec![], vec![], vec![]);
    let mut state = 88_172_645_463_325_252;
    for entry in spare {
        let entry = entry.clone();
        let start = Instant::now();
        let id = classifier.insert(entry);
        inserts.push(start.elapsed().as_nanos() as f64 / 1e3);
        let chosen = random(&mut state) as usize % ids.len();
        let start = Instant::now();
        classifier.set_order(ids[chosen], u64::from(random(&mut state)) % 100_000);
        moves.push(start.elapsed().as_nanos() as f64 / 1e3);
        let gone = ids.swap_remove(random(&mut state) as usize % ids.len());
        let start = Instant::now();
        classifier.remove(gone);
        removes.push(start.elapsed().as_nanos() as f64 / 1e3);
        ids.extend(id);
    }
    let start = Instant::now();
    while classifier.maintain(1_000) {}
    let swept = start.elapsed();
    println!(
        "{name}: {} rules in {:.0} ms, {} bytes a rule, maintained in {:.0} ms, {} tables",
        classifier.len(),
        load.as_secs_f64() * 1e3,
        classifier.bytes() / classifier.len(),
        swept.as_secs_f64() * 1e3,
        classifier.tables().count(),
    );
    for (kind, mut all) in [("insert", inserts), ("remove", removes), ("set_order", moves)] {
        all.sort_by(f64::total_cmp);
        let at = |share: usize| all[(all.len() - 1) * share / 1_000];
        println!(
            "  {kind:10} median {:6.2} us, 99 % {:6.2} us, 99.9 % {:6.2} us, worst {:7.2} us",
            at(500),
            at(990),
            at(999),
            at(1_000)
        );
    }
}

fn all_changes() {
    let fields = FiveTuple::new();
    let mut state = 88_172_645_463_325_252;
    let five =
        [fields.source, fields.destination, fields.source_port, fields.destination_port, fields.protocol];
    let tuples: Vec<Entry> = (0..110_000)
        .map(|number| entry(number, true, five.map(|field| masked(field, random(&mut state), 32)).into()))
        .collect();
    changes("five-tuples", &tuples, &fields.layout);
    let mut all = vec![];
    for name in ["acl1_10k", "acl4_10k", "fw1_10k", "fw3_10k", "ipc1_10k"] {
        let Some(rules) = rules(name) else { continue };
        // Ten copies in other networks.
        for shift in 0..3u32 {
            for rule in &rules {
                let mut rule = rule.clone();
                for (address, len) in &mut rule.prefixes {
                    let other =
                        shift.wrapping_mul(0x1357_9bdf) & u32::MAX.checked_shl(32 - *len).unwrap_or(0);
                    *address ^= other;
                }
                all.push(rule);
            }
        }
    }
    for at in (1..all.len()).rev() {
        all.swap(at, random(&mut state) as usize % (at + 1));
    }
    let all: Vec<Entry> = (0..110_000).zip(&all).map(|(number, rule)| rule.entry(number, &fields)).collect();
    if !all.is_empty() {
        changes("five ClassBench sets, shuffled", &all, &fields.layout);
    }
    let ranges: Vec<Entry> = (0..110_000)
        .map(|number| {
            let (low, high) = (random(&mut state) & 0xffff, random(&mut state) & 0xffff);
            let test = Test::Range { low: low.min(high).into(), high: low.max(high).into() };
            entry(number, true, vec![Condition { field: fields.destination_port, test, negated: false }])
        })
        .collect();
    changes("random ports", &ranges, &fields.layout);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = arguments.iter().find_map(|rounds| rounds.parse().ok()).unwrap_or(5);
    let wanted = arguments.iter().find(|argument| argument.parse::<u32>().is_err());
    type Make = fn(&mut Vec<Case>);
    let kinds: [(&str, Make); 5] = [
        ("tuples", five_tuples),
        ("masks", masks),
        ("options", options),
        ("ranges", ranges),
        ("sets", classbench_sets),
    ];
    for (name, make) in kinds {
        if wanted.is_none_or(|wanted| wanted == name) {
            let mut cases = vec![];
            make(&mut cases);
            (0..=rounds).for_each(|_| cases.iter_mut().for_each(Case::round));
            cases.iter().for_each(Case::print);
        }
    }
    if wanted.is_none_or(|wanted| wanted == "changes") {
        all_changes();
    }
}
