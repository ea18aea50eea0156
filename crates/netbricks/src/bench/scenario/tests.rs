//! Tests that the check of a benchmark's packets finds faults, and that every benchmark passes it.

use netbricks_buffer::Batch;
use netbricks_core::{Context, NoSettings, NodeState, Shape, compose};

use super::super::measure;
use super::super::tests::{enough_cores, said, short};
use super::*;

/// Overwrites a byte of one packet in each burst, at the given place if there is one.
struct Corrupting(Option<usize>);

impl Node for Corrupting {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        if let (Some(at), Some(mut packet)) = (self.0, batch.packet(7)) {
            packet.data_mut()[at] = 0x5a;
        }
    }
}

/// Feeds a function for one round and checks its output.
fn checked(scenario: &Scenario, registry: &Registry) -> Result<(), String> {
    let pool = Pool::builder().frames(2 * PACKETS).build().unwrap();
    let mut bench = said(scenario.build_of(registry, &pool, 0))?;
    said(bench.round(Duration::from_nanos(1)))?;
    let sent = bench.sent();
    said(bench.check(sent))
}

#[test]
fn a_function_that_corrupts_an_address_or_a_port_is_caught() {
    for feed in [Feed::Fixed, Feed::Trace, Feed::Scattered, Feed::Trace6] {
        let scenario = Scenario::new("corrupting", "", "corrupt", 1, feed, Effect::None);
        for at in [None, Some(FLOW.start), Some(30), Some(34), Some(FLOW.end - 1), Some(CHECKSUM.start)] {
            let mut registry = Registry::new();
            registry
                .add("corrupt", "Overwrites a byte.", move |_: &NoSettings, _| Ok(Box::new(Corrupting(at))));
            let found = checked(&scenario, &registry);
            match at {
                None => assert_eq!(found, Ok(()), "{feed:?}"),
                Some(at) => {
                    let said = found.expect_err("it is caught");
                    assert!(
                        said.ends_with(" packets are not as they should be"),
                        "byte {at} of {feed:?}: {said}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_function_that_does_nothing_is_no_macswap() {
    let scenario = Scenario::new("idle", "", "wire", 1, Feed::Fixed, Effect::Swapped);
    let found = checked(&scenario, &crate::standard());
    assert_eq!(found, Err(format!("`idle`: {PACKETS} packets are not as they should be")));
}

/// Every packet goes to a backend, but all to the same one and not to the one of its flow.
#[test]
fn a_balancer_that_takes_another_backend_is_caught() {
    struct AllToOne(Box<dyn Node>);
    impl Node for AllToOne {
        fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
            self.0.process(input, batch, cx);
            for at in 0..batch.len() {
                batch.packet(at).unwrap().data_mut()[5] = 0;
            }
        }
        fn shape(&self) -> Shape {
            self.0.shape()
        }
        fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
            self.0.with_state(ask);
        }
    }
    let all = Scenario::all();
    let scenario = all.iter().find(|scenario| scenario.name == "maglev-100").unwrap();
    let mut registry = Registry::new();
    registry.add("maglev", "All to one.", |config: &MaglevConfig, worker| {
        let balances = compose(worker, |input| netbricks_functions::maglev::maglev(input, config, worker))?;
        Ok(Box::new(AllToOne(balances)))
    });
    let said = checked(scenario, &registry).expect_err("it is caught");
    assert!(said.ends_with(" packets are not as they should be"), "{said}");
}

#[test]
fn every_benchmark_on_one_worker_passes() {
    // Those of mmb have many rules, and a test of their own.
    let is_small = |scenario: &&Scenario| !scenario.name.starts_with("mmb-");
    for scenario in Scenario::all().iter().filter(|scenario| scenario.workers == 1).filter(is_small) {
        let (mut registry, shares) = (crate::standard(), Shares::default());
        register(&mut registry, &shares);
        assert_eq!(checked(scenario, &registry), Ok(()), "{}", scenario.name);
    }
}

#[test]
fn the_benchmarks_of_mmb_pass_with_few_rules() {
    let all = middlebox::scenarios(300);
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "mmb-1",
            "mmb-64",
            "mmb-1000",
            "mmb-10000",
            "mmb-100000",
            "mmb-masks-26",
            "mmb-masks-1000",
            "mmb-options-1",
            "mmb-options-100000",
            "mmb-acl-64",
            "mmb-acl-1000",
            "mmb-connections",
        ]
    );
    for scenario in &all {
        assert_eq!(checked(scenario, &crate::standard()), Ok(()), "{}", scenario.name);
    }
    let figure = said(measure(&all[1], short(), &enough_cores(1))).unwrap();
    let [beside] = figure.beside.keys().collect::<Vec<_>>()[..] else { panic!("{:?}", figure.beside) };
    assert_eq!(beside, "mmb-1");
}

/// Rules that match other packets, or none, are no benchmark.
#[test]
fn rules_of_mmb_meet_packets_of_the_trace() {
    for (rules, feed) in [
        (middlebox::Rules::FiveTuples(64), Feed::Trace),
        (middlebox::Rules::Masks(64, 64), Feed::Trace),
        (middlebox::Rules::Options(64), Feed::Options),
    ] {
        let scenario = Scenario::new("meets", "", "mmb", 1, feed, Effect::Filtered(rules));
        let pool = Pool::builder().frames(2 * PACKETS).build().unwrap();
        let mut bench = said(scenario.build_of(&crate::standard(), &pool, 0)).unwrap();
        said(bench.round(Duration::from_nanos(1))).unwrap();
        let list: serde_json::Value = serde_json::from_str(&said(bench.ask("list", "")).unwrap()).unwrap();
        let met = |rule: &&serde_json::Value| rule["packets"].as_u64() > Some(0);
        let met = list["rules"].as_array().unwrap().iter().filter(met).count();
        assert!(met > 16, "{met} of {rules:?} were met");
    }
}

#[test]
fn every_benchmark_on_two_workers_passes_and_says_what_stands_beside_it() {
    let all = Scenario::all();
    let scenarios: Vec<_> = all.iter().filter(|scenario| scenario.workers > 1).collect();
    let names: Vec<_> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names, ["state-strict-2", "state-bounded-2"]);
    for scenario in scenarios {
        let figure = said(measure(scenario, short(), &enough_cores(2))).unwrap();
        let name = scenario.name.as_str();
        assert_eq!((figure.workers, figure.by_worker.len()), (2, 2), "{name}");
        assert_eq!(figure.packets, 2 * TRACE as u64, "{name}");
        let one = name.replace("-2", "-1");
        let mut beside = ["state-own-1", "state-own-2", one.as_str()];
        beside.sort_unstable();
        assert!(figure.beside.keys().eq(beside), "{name}: {:?}", figure.beside);
        let expected = [
            (1, figure.beside[&one] / figure.beside["state-own-1"]),
            (2, figure.ns_per_packet / figure.beside["state-own-2"]),
        ];
        assert_eq!(figure.over_private, BTreeMap::from(expected), "{name}");
        assert_eq!(figure.reservation.is_none(), name == "state-strict-2");
    }
}

/// Each of two workers counts alone what both should count together.
#[test]
fn workers_whose_counts_do_not_add_up_are_caught() {
    for effect in [Effect::Summed { all: true }, Effect::Cached] {
        let apart = Scenario::new("apart", "", "state-own", 1, Feed::Trace, effect);
        let apart = Scenario { workers: 2, ..apart };
        let failed = said(measure(&apart, short(), &enough_cores(2))).err().unwrap();
        let flows = Trace::new().distinct();
        let found = format!("found {flows} {TRACE} {}", TRACE * FRAME);
        assert!(failed.starts_with("`apart`: flows and sums of the state should be "), "{failed}");
        assert!(failed.ends_with(&found), "{failed}");
    }
}
