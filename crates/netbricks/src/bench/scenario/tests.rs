//! What the check of a benchmark's packets finds, and that every benchmark passes it.

use netbricks_buffer::Batch;
use netbricks_core::{Context, NoSettings};

use super::*;

/// Overwrites one byte of a packet in each burst, where it was told to.
struct Corrupting(Option<usize>);

impl Node for Corrupting {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        if let (Some(at), Some(mut packet)) = (self.0, batch.packet(7)) {
            packet.data_mut()[at] = 0x5a;
        }
    }
}

/// Feeds a function for one round, and looks at what came out.
fn checked(scenario: &Scenario, registry: &Registry) -> Result<(), String> {
    let pool = Pool::builder().frames(2 * PACKETS).build().unwrap();
    let said = |error| match error {
        BenchError::Usage(said) | BenchError::Failed(said) => said,
    };
    let mut bench = scenario.build_of(registry, &pool, 0).map_err(said)?;
    bench.round(Duration::from_nanos(1)).map_err(said)?;
    let sent = bench.sent();
    bench.check(sent).map_err(said)
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

#[test]
fn every_benchmark_on_one_worker_passes() {
    for scenario in Scenario::all().iter().filter(|scenario| scenario.workers == 1) {
        let (mut registry, shares) = (crate::standard(), Shares::default());
        register(&mut registry, &shares);
        assert_eq!(checked(scenario, &registry), Ok(()), "{}", scenario.name);
    }
}
