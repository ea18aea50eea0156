use std::time::Duration;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, DetachedContext, DropReason, HandlerKind, Node, Registry, Settings, Worker, read_settings,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, kinds, run_node};
use proptest::prelude::*;

use super::*;
use crate::tokens::{Counted, TokenRate};

/// The RFCs' text taken literally: each ns brings its tokens, one bucket after the other.
struct Naive {
    meter: Meter,
    committed: u64,
    other: u64,
    now: u64,
}

impl Naive {
    fn new(meter: Meter, now: u64) -> Self {
        let counted = meter.cir.counted();
        let [committed, other] = [meter.cbs, meter.other_size].map(|size| counted.full(size));
        Self { meter, committed, other, now }
    }

    fn colour(&mut self, now: u64, bytes: u64, given: Colour) -> Colour {
        let counted = self.meter.cir.counted();
        let [most, most_other] = [self.meter.cbs, self.meter.other_size].map(|size| counted.full(size));
        while self.now < now {
            self.now += 1;
            let came = self.meter.cir.per_second();
            let spilt = (self.committed + came).saturating_sub(most);
            self.committed += came - spilt;
            let more = match self.meter.algorithm {
                Algorithm::SingleRate => spilt,
                _ => self.meter.other_rate.per_second(),
            };
            self.other = (self.other + more).min(most_other);
        }
        let b = match counted {
            Counted::Bits => bytes * 8_000_000_000,
            Counted::Packets => 1_000_000_000,
        };
        match self.meter.algorithm {
            // RFC 2698, section 3.
            Algorithm::TwoRate => {
                if given == Colour::Red || self.other < b {
                    Colour::Red
                } else if given == Colour::Yellow || self.committed < b {
                    self.other -= b;
                    Colour::Yellow
                } else {
                    self.other -= b;
                    self.committed -= b;
                    Colour::Green
                }
            }
            // RFC 2697, section 3, and RFC 4115, section 3.
            Algorithm::SingleRate | Algorithm::Excess => {
                if given == Colour::Green && self.committed >= b {
                    self.committed -= b;
                    Colour::Green
                } else if given != Colour::Red && self.other >= b {
                    self.other -= b;
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
        }
    }
}

fn colours() -> impl Strategy<Value = Colour> {
    prop_oneof![4 => Just(Colour::Green), 1 => Just(Colour::Yellow), 1 => Just(Colour::Red)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn colours_are_those_of_the_rfcs_taken_literally(
        algorithm in prop_oneof![Just(Algorithm::SingleRate), Just(Algorithm::TwoRate), Just(Algorithm::Excess)],
        rates in (1_000_000_000u64..20_000_000_000, 0u64..20_000_000_000),
        (cbs, other_size) in (1u64..4_000, 1u64..4_000),
        counts_packets in proptest::bool::weighted(0.2),
        packets in proptest::collection::vec((0u64..2_000, 1u64..2_000, colours()), 1..150),
    ) {
        let of = if counts_packets { TokenRate::packets } else { TokenRate::bits };
        let cir = of(rates.0);
        let other_rate = if algorithm == Algorithm::SingleRate { cir } else { of(rates.0 + rates.1) };
        let meter = Meter { algorithm, cir, cbs: cbs.min(if counts_packets { 9 } else { cbs }), other_rate, other_size };
        let mut now = 5_000;
        let (mut buckets, mut naive) = (meter.full(now), Naive::new(meter, now));
        for (wait, bytes, given) in packets {
            now += wait;
            let colour = meter.colour(&mut buckets, now, bytes, given);
            prop_assert_eq!(colour, naive.colour(now, bytes, given), "at {} ns", now);
            prop_assert_eq!((buckets.committed, buckets.other), (naive.committed, naive.other));
        }
    }

    /// The bounds that the RFCs promise over every interval.
    #[test]
    fn no_interval_has_more_than_its_rate_and_burst(
        packets in proptest::collection::vec((0u64..3_000_000, 40u64..1_500), 1..200),
    ) {
        let (cir, other_rate) = (TokenRate::bits(3_333_333), TokenRate::bits(7_777_777));
        let meter = Meter { algorithm: Algorithm::TwoRate, cir, cbs: 5_000, other_rate, other_size: 9_000 };
        let (mut now, mut buckets) = (0, meter.full(0));
        let mut seen = Vec::new();
        for (wait, bytes) in packets {
            now += wait;
            seen.push((now, bytes, meter.colour(&mut buckets, now, bytes, Colour::Green)));
        }
        for first in 0..seen.len() {
            let (mut green, mut conforming) = (0, 0);
            for (time, bytes, colour) in &seen[first..] {
                green += if *colour == Colour::Green { *bytes } else { 0 };
                conforming += if *colour == Colour::Red { 0 } else { *bytes };
                let came = |rate: TokenRate| u128::from(rate.per_second()) * u128::from(time - seen[first].0);
                let within = |bytes: u64, rate, size: u128| u128::from(bytes) * 8_000_000_000 <= came(rate) + size * 8_000_000_000;
                prop_assert!(within(green, cir, 5_000) && within(conforming, other_rate, 9_000));
            }
        }
    }
}

#[test]
fn silent_buckets_are_full_again_after_their_refill_time_and_not_before() {
    for algorithm in [Algorithm::SingleRate, Algorithm::TwoRate, Algorithm::Excess] {
        let (cir, rate) = (TokenRate::bits(777_777), TokenRate::bits(1_234_567));
        let other_rate = if algorithm == Algorithm::SingleRate { cir } else { rate };
        let meter = Meter { algorithm, cir, cbs: 5_001, other_rate, other_size: 9_003 };
        let empty = Buckets { committed: 0, other: 0, filled: 50 };
        for (wait, is_full) in [(meter.refill(), true), (meter.refill() - 3, false)] {
            let mut buckets = empty;
            meter.colour(&mut buckets, 50 + wait, 0, Colour::Red);
            let full = meter.full(50 + wait);
            assert_eq!(buckets == full, is_full, "{algorithm:?} after {wait} ns");
        }
    }
}

fn settings(text: &str) -> PolicerConfig {
    let table = toml::de::DeTable::parse(text).unwrap();
    read_settings(table, None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn make(
    text: &str,
) -> impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + use<> + 'static {
    let config = settings(text);
    move |worker| node(&config, worker)
}

/// A UDP packet of 1,000 bytes of IP, 1,014 with Ethernet.
fn packet(source: &str, destination: &str, dscp: u8) -> Vec<u8> {
    ethernet().ipv4(source, destination).dscp(dscp).udp(1_000, 53).payload(&[0; 972]).build().unwrap()
}

fn dscp(frame: &[u8]) -> u8 {
    Ip::in_frame(frame).unwrap().0.dscp()
}

#[test]
fn a_packet_is_dropped_passed_or_marked_by_its_colour() {
    let mut test = Clocked::of_node(make(
        "cir = \"8 Mbit/s\"\ncbs = 3_000\nebs = 2_000\ngreen = \"mark\"\nyellow = \"mark\"\nclass = 2",
    ));
    let sent: Vec<_> =
        (0..8).map(|n| packet("10.0.0.1", "10.0.0.2", if n % 2 == 0 { 34 } else { 46 })).collect();
    let report = test.send(sent);
    let marks: Vec<u8> = report.out.iter().map(|frame| dscp(frame)).collect();
    // Three green: AF41, AF21, AF41. Two yellow: AF22, AF42. Then three red.
    assert_eq!(marks, [34, 18, 34, 20, 36]);
    assert_eq!(report.dropped(DropReason::RateLimited), 3);
    for frame in &report.out {
        assert_eq!(netbricks_testkit::checksums::wrong(frame), Vec::<String>::new());
    }
    // 8 Mbit/s are a packet of 1,000 bytes in each ms.
    test.advance(Duration::from_nanos(999_999));
    assert_eq!(test.send([packet("10.0.0.1", "10.0.0.2", 34)]).out.len(), 0);
    test.advance(Duration::from_nanos(1));
    assert_eq!(
        test.send([packet("10.0.0.1", "10.0.0.2", 34), packet("10.0.0.9", "10.0.0.2", 34)]).out.len(),
        1
    );
    assert_eq!(
        (test.call("green.occupancy", ""), test.call("red.occupancy", "")),
        (format!("4 {}", u64::MAX), format!("5 {}", u64::MAX))
    );
    let report = test.finish();
    let rows: Vec<Vec<&str>> =
        report.sections[0].rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    assert_eq!(rows[..3], [["green", "4", "4000"], ["yellow", "2", "2000"], ["red", "5", "5000"]]);
}

#[test]
fn each_flow_address_or_subscriber_has_a_meter_of_its_own() {
    let one = "cir = \"8 kbit/s\"\ncbs = 1_000\n";
    let of = |by: &str| make(&format!("{one}by = {by}"));
    let pairs = [
        ("10.0.0.1", "10.0.9.1"),
        ("10.0.0.1", "10.0.9.2"),
        ("10.0.0.2", "10.0.9.1"),
        ("10.0.9.1", "10.0.0.1"),
    ];
    let passed = |by: &str| {
        let frames = pairs.into_iter().flat_map(|(from, to)| [packet(from, to, 0), packet(from, to, 0)]);
        run_node(of(by), frames).out.len()
    };
    let plain = ["\"all\"", "\"flow\"", "\"source\"", "\"destination\""];
    assert_eq!(plain.map(passed), [1, 4, 3, 3]);
    assert_eq!(passed("\"source\"\nprefix_v4 = 24"), 2);
    let subscribers = "\"subscriber\"\nsubscribers = [\"10.0.0.0/24\"]";
    assert_eq!(passed(subscribers), 2, "both directions of a subscriber share its meter");
    let others = "\"subscriber\"\nsubscribers = [\"192.0.2.0/24\"]";
    assert_eq!(passed(others), 8, "what no subscriber sends is not metered");
}

#[test]
fn ipv6_addresses_share_a_meter_by_their_network() {
    let frame = |last: u16, net: u16| {
        let source = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, last);
        ethernet().vlan(7).ipv6(source, "2001:db8::9").udp(1, 2).payload(&[0; 952]).build().unwrap()
    };
    let make = make("cir = \"8 kbit/s\"\ncbs = 1_000\nby = \"source\"");
    let report = run_node(make, [frame(1, 1), frame(2, 1), frame(1, 2)]);
    assert_eq!(report.out, [frame(1, 1), frame(1, 2)], "1,000 bytes of IPv6, tags and Ethernet not counted");
}

#[test]
fn a_colour_aware_meter_never_improves_a_packets_colour() {
    let text =
        "cir = \"8 Mbit/s\"\ncbs = 5_000\nebs = 5_000\ncolour_aware = true\nyellow = \"cs1\"\nred = \"cs2\"";
    // AF11, AF12, AF13, and AF12 again.
    let report = run_node(make(text), [10, 12, 14, 12].map(|dscp| packet("10.0.0.1", "10.0.0.2", dscp)));
    let marks: Vec<u8> = report.out.iter().map(|frame| dscp(frame)).collect();
    assert_eq!(marks, [10, 8, 16, 8]);
    for class in 1..=4 {
        for colour in Colour::ALL {
            assert_eq!(Colour::of_dscp(colour.dscp_of_class(class)), colour);
        }
    }
}

#[test]
fn rates_change_while_packets_flow_and_wrong_changes_are_explained() {
    let mut test = Clocked::of_node(make("cir = \"8 kbit/s\"\ncbs = 1_000\nebs = 0"));
    let frames = |count: usize| vec![packet("10.0.0.1", "10.0.0.2", 0); count];
    assert_eq!(test.send(frames(3)).out.len(), 1);
    // The control side's copy is not in this graph: a worker's handler does the same.
    for change in ["cbs 5000", "cir 80 Mbit/s"] {
        assert_eq!(test.call("set", change), "done");
    }
    test.advance(Duration::from_millis(1));
    assert_eq!(test.send(frames(9)).out.len(), 5);
    assert_eq!(test.call("parameters", ""), "CIR 80 Mbit/s, CBS 5000 B, EBS 0 B");
    assert_eq!(test.call("set", "cbs 2000"), "done");
    test.advance(Duration::from_millis(100));
    assert_eq!(test.send(frames(9)).out.len(), 2, "tokens beyond a smaller size are lost");
    test.finish();

    let pool = Pool::builder().frames(16).build().unwrap();
    let mut node = make("cir = \"1 Mbit/s\"")(&Worker::new(0, 1, pool)).unwrap();
    let mut refused = |change: &str| node.call_as(HandlerKind::Write, "set", change).unwrap_err().to_string();
    assert_eq!(
        refused("pir 1 Mbit/s"),
        "handler `set`: expected one of cir, cbs, ebs and its value, as in `cir 10 Mbit/s`, found `pir`; did you mean `cir`?"
    );
    for wrong in ["", "cir", "cir fast", "cir 5 kpps", "cbs -1", "cbs 1 GiB"] {
        refused(wrong);
    }
}

#[test]
fn a_full_table_evicts_passes_or_drops() {
    let frames = || (0..100u8).map(|n| packet(&format!("10.0.0.{n}"), "10.0.9.1", 0));
    let text = |full: &str| {
        format!("cir = \"8 Mbit/s\"\ncbs = 1_000\nby = \"source\"\ncapacity = 10\nfull = \"{full}\"")
    };
    let passed = run_node(make(&text("pass")), frames());
    assert_eq!((passed.out.len(), passed.sections[0].rows[3][1].as_str()), (100, "90"));
    let dropped = run_node(make(&text("drop")), frames());
    assert_eq!((dropped.out.len(), dropped.dropped(DropReason::TableFull)), (10, 90));
    let evicted = run_node(make(&text("evict")), frames());
    assert_eq!((evicted.out.len(), evicted.sections[0].rows[0][1].as_str()), (100, "100"));
}

#[test]
fn a_meter_is_forgotten_when_its_buckets_are_full_again() {
    let mut test = Clocked::of_node(make("cir = \"8 Mbit/s\"\ncbs = 10_000\nby = \"source\""));
    test.send(vec![packet("10.0.0.1", "10.0.0.2", 0); 10]);
    assert_eq!(test.call("meters.occupancy", ""), "1 65536");
    test.advance(Duration::from_millis(9));
    test.send([packet("10.0.0.2", "10.0.0.2", 0)]);
    assert_eq!(test.call("meters.occupancy", ""), "2 65536");
    test.advance(Duration::from_millis(5));
    test.send([packet("10.0.0.3", "10.0.0.2", 0)]);
    assert_eq!(test.call("meters.occupancy", ""), "2 65536");
    test.finish();
}

#[test]
fn all_workers_share_one_rate_and_their_meters_move_to_another_node() {
    for by in ["all", "source"] {
        let text = format!("cir = \"8 kbit/s\"\ncbs = 10_000\nby = \"{by}\"");
        let pool = Pool::builder().frames(64).build().unwrap();
        let blueprint = Blueprint::new(make(&text));
        let mut nodes: Vec<_> =
            (0..2).map(|index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap()).collect();
        let mut cx = DetachedContext::new(pool.clone());
        cx.advance(1_000_000_000);
        let mut send = |node: &mut Box<dyn Node>, count: usize| {
            let mut batch = Batch::new();
            for _ in 0..count {
                assert!(batch.push(pool.packet(&packet("10.0.0.1", "10.0.0.2", 0)).unwrap()).is_ok());
            }
            node.process(0, &mut batch, &mut cx);
            batch.len()
        };
        assert_eq!([0, 1, 0, 1].map(|node: usize| send(&mut nodes[node], 3)), [3, 3, 3, 1], "{by}");
        // Another run goes on with the empty meters.
        let mut other = Blueprint::new(make(&text)).build(&Worker::new(0, 1, pool.clone())).unwrap();
        for (name, bytes) in nodes[0].export() {
            for at in (0..bytes.len()).filter(|_| name == "meters" || name == "parameters") {
                let mut broken = bytes.clone();
                broken[at] ^= 0x10;
                assert!(other.import(&name, &broken, 0).is_err(), "{name}, byte {at}");
            }
            other.import(&name, &bytes, 1_000_000_000).unwrap();
        }
        assert_eq!(send(&mut other, 3), 0, "{by}");
    }
}

#[test]
fn every_kind_passes_where_the_rate_allows_it() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    for by in ["all", "flow"] {
        let text = format!("cir = \"1 Gbit/s\"\ncbs = \"100 MB\"\nby = \"{by}\"");
        assert_eq!(run_node(make(&text), frames.clone()).out, frames);
    }
}

#[test]
fn settings_that_do_not_go_together_are_named() {
    let refused = |text: &str| {
        let config: PolicerConfig = toml::from_str(&format!("cir = \"1 Mbit/s\"\n{text}")).unwrap();
        config.check().unwrap_err().to_string()
    };
    assert_eq!(refused("meter = \"rfc2698\""), "`meter` is \"rfc2698\", which needs `pir`");
    assert_eq!(
        refused("meter = \"rfc2698\"\npir = \"1 kbit/s\""),
        "`pir` cannot be: PIR is 1 kbit/s, less than CIR, 1 Mbit/s: the peak rate is the higher one"
    );
    assert!(refused("pir = \"2 Mbit/s\"").contains("parameter of `meter = \"rfc2698\"`"));
    assert!(refused("by = \"subscriber\"").contains("needs the networks"));
    assert!(refused("subscribers = [\"10.0.0.0/8\"]").contains("only with"));
    assert!(refused("cbs = 0").contains("CBS and EBS are 0"));
    assert!(refused("class = 5").contains("1 to 4"));
    for wrong in
        ["red = \"af44\"", "red = \"64\"", "by = \"port\"", "subscribers = [\"10.0.0.1/8\"]", "cir = 5"]
    {
        let text =
            if wrong.starts_with("cir") { wrong.into() } else { format!("cir = \"1 Mbit/s\"\n{wrong}") };
        assert!(toml::from_str::<PolicerConfig>(&text).is_err(), "{wrong}");
    }
    let small = settings("cir = \"1 Mbit/s\"\ncbs = 500");
    assert!(small.warnings()[0].problem.contains("never green"), "{:?}", small.warnings());
    assert_eq!(
        ["af43", "ef", "cs6", "63", "be"].map(|text| text.parse()),
        [38, 46, 48, 63, 0].map(|d| Ok(Action::Dscp(d)))
    );
    // Every default can be read, and the registry's examples too.
    let mut registry = Registry::new();
    crate::register(&mut registry);
    assert_eq!(registry.get("policer").map(|definition| definition.examples.len()), Some(3));
}
