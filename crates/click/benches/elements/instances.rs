//! Instances and their switch: creation, memory, sharing of a core, chains, and changes under load.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Instant;

use netbricks_click::instances::{InstancesSettings, node};
use netbricks_core::Worker;
use netbricks_core::buffer::Pool;
use stats_alloc::Region;

use super::{ALLOCATOR, Bench, Frame, Report, beside, frame, host, median};

/// All scenarios.
pub(super) fn all(report: &mut Report) {
    created(report);
    idle(report);
    sharing(report);
    chained(report);
    installs(report);
    answering(report);
}

/// The configuration of an instance: a middlebox that answers.
const MIRROR: &str = "FromDevice(0) -> Counter -> EtherMirror -> ToDevice(0);";

fn mac(number: usize) -> String {
    format!("02:01:00:00:{:02x}:{:02x}", number >> 8, number & 0xFF)
}

/// A frame to an instance.
fn frame_to(number: usize) -> Frame {
    let mut frame = frame((host(1), 1), (host(2), 2));
    frame[..6].copy_from_slice(&[2, 1, 0, 0, (number >> 8) as u8, number as u8]);
    frame
}

fn create(bench: &mut Bench, number: usize, options: &str, text: &str) {
    bench.call("create", &format!("i{number} mac={} {options}", mac(number)));
    bench.call("install", &format!("i{number}\n{text}"));
}

/// 400 instances in sequence, each until its first packet has passed; and the memory of each.
fn created(report: &mut Report) {
    const MANY: usize = 400;
    if !report.wants("instances-create") && !report.wants("instances-memory") {
        return;
    }
    let mut rounds = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..if report.short { 1 } else { 5 } {
        let frames: Rc<[Frame]> = (0..MANY).map(frame_to).collect();
        let mut bench = Bench::instances(&report.pool, frames, 0);
        let region = Region::new(ALLOCATOR);
        let mut times = Vec::with_capacity(MANY);
        for number in 0..MANY {
            let begin = Instant::now();
            create(&mut bench, number, "", MIRROR);
            bench.pass(1);
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let change = region.change();
        let bytes = change.bytes_allocated as isize - change.bytes_deallocated as isize;
        memory.push(bytes as f64 / MANY as f64 / 1e3);
        bench.check();
        rounds.push(times);
    }
    let nth = |place: usize| median(rounds.iter().map(|round| round[place]).collect());
    let all = median(rounds.iter().flatten().copied().collect());
    report.add("instances-create-first-packet", all, "ms", Some(2.0));
    report.add("instances-create-1st", nth(0), "ms", None);
    report.add("instances-create-400th", nth(MANY - 1), "ms", None);
    report.add("instances-create-400th-over-1st", nth(MANY - 1) / nth(0), "times", Some(2.0));
    report.add("instances-memory", median(memory), "KB each", Some(150.0));
}

/// The cost of 1,000 idle instances for a busy one.
fn idle(report: &mut Report) {
    if !report.wants("instances-idle-1000") {
        return;
    }
    let make = |idle: usize| {
        let mut bench = Bench::instances(&report.pool, Rc::from([frame_to(0)]), 0);
        for number in 0..=idle {
            create(&mut bench, number, "", MIRROR);
        }
        bench.rest();
        bench
    };
    let [alone, crowded] = beside(report, [&mut make(0), &mut make(1_000)]);
    report.add("instances-busy-alone", alone, "ns/packet", None);
    report.add("instances-idle-1000", (crowded / alone - 1.0) * 100.0, "% slower", Some(3.0));
}

/// How evenly 100 instances that make packets share a core.
fn sharing(report: &mut Report) {
    const MANY: usize = 100;
    if !report.wants("instances-sharing-100") {
        return;
    }
    let mut bench = Bench::instances(&report.pool, Rc::from([frame_to(0)]), 0);
    let mut text = String::from("InfiniteSource(DATA \\<");
    frame_to(0).iter().enumerate().for_each(|(place, byte)| match place {
        0..6 => write!(text, "{:02x}", [2, 0, 0, 0, 9, 9][place]).unwrap(),
        _ => write!(text, "{byte:02x}").unwrap(),
    });
    text += ">, LIMIT -1, BURST 32) -> ToDevice(0);";
    for number in 0..MANY {
        create(&mut bench, number, "", &text);
    }
    bench.pass_made(report.count(2_000_000));
    let before = used(&mut bench);
    let packets = report.count(40_000_000);
    let time = bench.pass_made(packets);
    let after = used(&mut bench);
    bench.check();
    let worst = |which: fn(&(u64, u64)) -> u64| {
        let shares: Vec<f64> =
            after.iter().map(|(name, now)| (which(now) - which(&before[name])) as f64).collect();
        let mean = shares.iter().sum::<f64>() / MANY as f64;
        100.0 * shares.iter().map(|share| (share / mean - 1.0).abs()).fold(0.0, f64::max)
    };
    report.add("instances-sharing-100", worst(|used| used.0), "% off, packets", Some(2.0));
    report.add("instances-sharing-100-time", worst(|used| used.1), "% off, time", Some(2.0));
    report.add("instances-sharing-100-each", time / packets as f64, "ns/packet", None);
}

impl Bench {
    /// The graph of the function `instances`; frames grow to a length.
    fn instances(pool: &Pool, frames: Rc<[Frame]>, length: usize) -> Self {
        let worker = Worker::new(0, 1, pool.clone());
        let mut settings = InstancesSettings::default();
        settings.most = 4_096;
        let mut bench = Self::new(pool, node(&settings, &worker).unwrap(), &[frames], length);
        bench.call("map", "02:00:00:00:09:09 wire");
        bench
    }

    /// Runs until instances have made packets.
    fn pass_made(&mut self, packets: u64) -> f64 {
        let end = self.passed.get() + packets;
        let begin = Instant::now();
        while self.passed.get() < end {
            self.turn();
        }
        begin.elapsed().as_nanos() as f64
    }
}

/// Packets that each instance has sent, and the time that it had (ns).
fn used(bench: &mut Bench) -> BTreeMap<String, (u64, u64)> {
    let list: serde_json::Value = serde_json::from_str(&bench.call("list", "")).unwrap();
    let one = |one: &serde_json::Value| {
        let used = (one["ports"][0]["sent"].as_u64().unwrap(), one["used_ns"].as_u64().unwrap());
        (one["name"].as_str().unwrap().to_owned(), used)
    };
    list.as_array().unwrap().iter().map(one).collect()
}

/// A chain of nine instances that pass large packets on.
fn chained(report: &mut Report) {
    const LONG: usize = 9;
    const LENGTH: usize = 1_472;
    if !report.wants("instances-chain-9") {
        return;
    }
    let mut bench = Bench::instances(&report.pool, Rc::from([frame_to(0)]), LENGTH);
    for number in 0..LONG {
        let next = if number + 1 < LONG { mac(number + 1) } else { "02:00:00:00:09:09".into() };
        let text = format!("FromDevice(0) -> EtherRewrite({}, {next}) -> ToDevice(0);", mac(number));
        create(&mut bench, number, "ring=2048", &text);
    }
    // So few at once that no ring is full.
    bench.pass(1_024);
    let times: Vec<f64> = (0..report.rounds()).map(|_| bench.pass(1_024) / 1_024.0).collect();
    bench.check();
    let time = median(times);
    report.add("instances-chain-9", time, "ns/packet", None);
    report.add("instances-chain-9-rate", LENGTH as f64 * 8.0 / time, "Gb/s", None);
}

/// 200 hot swaps of an instance's configuration while packets pass it. None is lost.
fn installs(report: &mut Report) {
    const INSTALLS: usize = 200;
    if !report.wants("instances-install-under-load") {
        return;
    }
    let mut bench = Bench::instances(&report.pool, Rc::from([frame_to(0)]), 0);
    create(&mut bench, 0, "ring=2048", MIRROR);
    let install = format!("i0\n{MIRROR}");
    let (mut times, before) = (Vec::with_capacity(INSTALLS), bench.passed.get());
    for _ in 0..INSTALLS {
        // Packets are in the instance's ring when its configuration changes.
        bench.wanted.set(256);
        while bench.wanted.get() > 0 {
            bench.graph.turns(bench.now, 1);
        }
        let begin = Instant::now();
        bench.call("install", &install);
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    bench.rest();
    bench.check();
    let lost = INSTALLS as u64 * 256 - (bench.passed.get() - before);
    assert_eq!(lost, 0, "packets are lost: {}", bench.lost());
    times.sort_by(f64::total_cmp);
    report.add("instances-install-under-load", times[INSTALLS / 2], "ms", Some(2.0));
    report.add("instances-install-under-load-worst", times[INSTALLS - 1], "ms", None);
    report.add("instances-install-under-load-lost", lost as f64, "packets", Some(0.0));
}

/// The time from a packet's arrival to its answer, alone and beside 11 instances that spin.
fn answering(report: &mut Report) {
    if !report.wants("instances-answer") {
        return;
    }
    for (name, spinning, goal) in
        [("instances-answer", 0, None), ("instances-answer-beside-11", 11, Some(100.0))]
    {
        let mut bench = Bench::instances(&report.pool, Rc::from([frame_to(0)]), 0);
        create(&mut bench, 0, "", MIRROR);
        for number in 1..=spinning {
            create(&mut bench, number, "", "InfiniteSource(LIMIT -1, BURST 32) -> Discard;");
        }
        bench.pass(1);
        let mut times: Vec<f64> = (0..report.count(20_000)).map(|_| bench.pass(1) / 1e3).collect();
        bench.check();
        times.sort_by(f64::total_cmp);
        report.add(name, times[times.len() / 2], "us", goal);
        report.add(&format!("{name}-p99"), times[times.len() * 99 / 100], "us", None);
    }
}
