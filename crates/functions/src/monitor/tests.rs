use std::collections::HashMap;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::FlowKey;
use netbricks_core::units::Duration;
use netbricks_core::{DetachedContext, ImportError, Node, Settings, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, kinds, run_configured};
use proptest::prelude::*;

mod conversations;

use super::{MonitorConfig, monitor};

fn frame(flow: u16, size: usize) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    match flow % 3 {
        0 => ethernet().ipv4([10, 0, high, low], "10.9.9.9").udp(flow, 53).payload(&[0; 999][..size]).build(),
        1 => ethernet()
            .vlan(7)
            .ipv4([10, 0, high, low], "10.9.9.9")
            .tcp(flow, 80)
            .payload(&[0; 999][..size])
            .build(),
        _ => ethernet()
            .ipv6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, flow), "2001:db8::9")
            .udp(flow, 53)
            .payload(&[0; 999][..size])
            .build(),
    }
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn counts_agree_with_a_map(
        packets in proptest::collection::vec((0u16..60, prop_oneof![Just(100usize), 0..900usize]), 0..500),
        top in prop_oneof![Just(1_000usize), 1..20usize],
    ) {
        let frames: Vec<_> = packets.iter().map(|(flow, size)| frame(*flow, *size)).collect();
        let config = MonitorConfig { top, ..MonitorConfig::default() };
        let report = run_configured(monitor, config, frames.clone());
        prop_assert_eq!(&report.out, &frames);
        let mut map: HashMap<FlowKey, (u64, u64)> = HashMap::new();
        for frame in &frames {
            let usage = map.entry(FlowKey::from_frame(frame).unwrap()).or_default();
            *usage = (usage.0 + 1, usage.1 + frame.len() as u64);
        }
        let section = &report.sections[0];
        prop_assert_eq!(section.of, Some(map.len() as u64));
        prop_assert_eq!(section.counts["refused_packets"], 0);
        let mut expected: Vec<_> = map.into_iter().collect();
        expected.sort_by_key(|(key, (_, bytes))| (std::cmp::Reverse(*bytes), key.to_string()));
        expected.truncate(top);
        let rows: Vec<_> = expected.iter().map(|(key, (packets, bytes))| vec![key.to_string(), packets.to_string(), bytes.to_string()]).collect();
        prop_assert_eq!(&section.rows, &rows);
    }
}

#[test]
fn the_report_has_no_flow_that_has_expired() {
    let idle = "1 s".parse::<Duration>().unwrap();
    let config = MonitorConfig { idle, ..MonitorConfig::default() };
    let mut test = Clocked::configured(monitor, config);
    test.send((0..500).map(|flow| frame(flow, 100)));
    test.advance(std::time::Duration::from_secs(5));
    // A lookup of one flow ends only a few others.
    let report = test.send([frame(9, 100)]);
    assert_eq!((report.sections[0].of, report.sections[0].rows.len()), (Some(1), 1));
}

#[test]
fn every_kind_passes_unchanged() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    let report = run_configured(monitor, MonitorConfig::default(), frames.clone());
    assert_eq!(report.out, frames);
}

#[test]
fn only_so_many_flows_are_remembered_and_only_the_largest_are_shown() {
    let config = MonitorConfig { capacity: 10, top: 3, ..MonitorConfig::default() };
    let report = run_configured(monitor, config, (0..100).map(|flow| frame(3 * flow, usize::from(flow))));
    assert_eq!(report.out.len(), 100, "who is not counted passes all the same");
    assert_eq!((report.sections[0].of, report.sections[0].rows.len()), (Some(10), 3));
    assert_eq!(report.sections[0].counts["refused_packets"], 90);
}

/// The node alone, with a clock that the test sets.
struct Bench {
    node: Box<dyn Node>,
    cx: DetachedContext,
    pool: Pool,
}

impl Bench {
    fn new(config: MonitorConfig) -> Self {
        let pool = Pool::builder().frames(256).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let node = compose(&worker, |input| monitor(input, &config, &worker)).unwrap();
        Self { node, cx: DetachedContext::new(pool.clone()), pool }
    }
    fn send(&mut self, now: u64, flows: impl IntoIterator<Item = u16>) {
        self.cx.advance(now);
        let mut batch = Batch::new();
        for flow in flows {
            assert!(batch.push(self.pool.packet(&frame(flow, 10)).unwrap()).is_ok());
        }
        self.node.process(0, &mut batch, &mut self.cx);
    }
    fn occupancy(&mut self) -> String {
        self.node.call("flows.occupancy", "").unwrap()
    }
    fn rows(&mut self) -> Vec<Vec<String>> {
        self.node.report().remove(0).rows
    }
}

#[test]
fn idle_flows_are_forgotten_by_the_clock() {
    let second = 1_000_000_000;
    let mut bench = Bench::new(MonitorConfig {
        capacity: 100,
        idle: Duration::from_nanoseconds(10 * second),
        top: 9,
        ..MonitorConfig::default()
    });
    bench.send(0, [1, 2, 3]);
    bench.send(9 * second, [1]);
    assert_eq!(bench.occupancy(), "3 100");
    bench.send(18 * second, [1]);
    bench.send(19 * second, [1]);
    assert_eq!(bench.occupancy(), "1 100");
    assert_eq!(bench.rows()[0][1], "4");
    bench.send(60 * second, [1]);
    assert_eq!(bench.rows()[0][1], "1", "it came back as a new flow");
}

#[test]
fn counts_go_to_another_node_and_broken_ones_do_not() {
    let config = || MonitorConfig { top: 100, ..MonitorConfig::default() };
    let (mut from, mut to) = (Bench::new(config()), Bench::new(config()));
    from.send(0, (0..50).chain(0..25));
    to.send(0, [99]);
    let (name, bytes) = from.node.export().remove(0);
    assert_eq!(name, "flows");
    let before = to.rows();
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0x10;
        let error = to.node.import("flows", &broken, 0).unwrap_err();
        assert!(matches!(error, ImportError::Refused { .. }));
        assert_eq!(to.rows(), before, "byte {at}");
    }
    to.node.import("flows", &bytes, 0).unwrap();
    // Present flows stay when others are handed over.
    let known = |bench: &mut Bench| {
        let mut rows = bench.rows();
        rows.sort();
        rows
    };
    from.send(0, [99]);
    assert_eq!(known(&mut to), known(&mut from));
    // They go on counting.
    to.send(1, [0]);
    from.send(1, [0]);
    assert_eq!(to.rows(), from.rows());
}

#[test]
fn settings_that_do_not_do_are_named() {
    let config: MonitorConfig = toml::from_str("idle = \"90 s\"\ncapacity = 100").unwrap();
    assert_eq!((config.idle.nanoseconds(), config.capacity, config.top), (90_000_000_000, 100, 10));
    let refused =
        |text: &str| toml::from_str::<MonitorConfig>(text).unwrap().check().unwrap_err().to_string();
    assert_eq!(refused("idle = \"1 us\""), "`idle` must be \"1 ms\" to \"1 d\", found \"1 us\"");
    assert_eq!(refused("capacity = 0"), "`capacity` must be 1 to 16,777,216 flows, found 0");
    assert!(toml::from_str::<MonitorConfig>("idle = 60").unwrap_err().to_string().contains("needs a unit"));
    let default: MonitorConfig = toml::from_str("").unwrap();
    assert_eq!(default.idle.nanoseconds(), 60_000_000_000);
}
