//! Tests the text and JSON of figures, and that workers that wait for each other end.

use netbricks_runtime::allowed_cores;

use super::*;

/// One round, as short as possible: a worker with its own packets makes one run of its trace.
pub(super) fn short() -> How {
    let length = Length {
        time: Duration::from_nanos(1),
        warm_up: Duration::ZERO,
        packets: 20_000,
        warm_up_packets: 1_000,
    };
    How { rounds: 1, writer: Writer::Us, length }
}

/// `count` cores; the same cores repeat if there are fewer.
pub(super) fn enough_cores(count: usize) -> Vec<usize> {
    allowed_cores().into_iter().cycle().take(count).collect()
}

pub(super) fn said<T>(outcome: Result<T, BenchError>) -> Result<T, String> {
    outcome.map_err(|error| match error {
        BenchError::Usage(said) | BenchError::Failed(said) => said,
    })
}

fn scenario(name: &str) -> Scenario {
    Scenario::all().into_iter().find(|scenario| scenario.name == name).unwrap()
}

/// A figure of a scenario that took 50 ns on two workers, with other figures beside it.
fn figure(name: &str) -> Figure {
    let beside = [("state-own-1", 8.0), ("state-own-2", 10.0), ("state-strict-1", 20.0)];
    let beside: BTreeMap<_, _> = beside.map(|(other, ns)| (other.to_owned(), ns)).into();
    Figure {
        mpps: 40.0,
        workers: 2,
        by_worker: vec![45.0, 55.0],
        over_private: over_private(&scenario(name), 50.0, &beside),
        beside,
        reservation: scenario(name).reservation(),
        ..Figure::of(name.to_owned(), vec![60.0, 50.0, 40.0], 3_000)
    }
}

#[test]
fn shared_state_is_compared_with_private_state_on_as_many_workers() {
    assert_eq!(figure("state-strict-2").over_private, BTreeMap::from([(1, 2.5), (2, 5.0)]));
    // Only measured figures are compared.
    assert_eq!(figure("state-bounded-2").over_private, BTreeMap::from([(2, 5.0)]));
    assert_eq!(over_private(&scenario("state-strict-2"), 50.0, &BTreeMap::new()), BTreeMap::new());
    // Private state, and functions without state, are compared with nothing.
    let strict = scenario("state-strict-2");
    let own = strict.beside.iter().find(|other| other.name == "state-own-2").unwrap();
    let beside = figure("state-strict-2").beside;
    assert_eq!(over_private(own, 10.0, &beside), BTreeMap::new());
    assert_eq!(over_private(&scenario("ttl"), 10.0, &beside), BTreeMap::new());
}

#[test]
fn a_figure_of_shared_state_says_what_it_costs_over_private_state() {
    assert_eq!(
        figure("state-strict-2").lines(),
        [
            "state-strict-2            50.00      40.00      60.00      40.00",
            "  worker 0                45.00",
            "  worker 1                55.00",
            "  state-own-1              8.00 state-strict-2 costs 6.25 times as much",
            "  state-own-2             10.00 state-strict-2 costs 5.00 times as much",
            "  state-strict-1          20.00 state-strict-2 costs 2.50 times as much",
            "  on 1 core                2.50 times as much as with private state",
            "  on 2 cores               5.00 times as much as with private state",
        ]
    );
    let bounded = figure("state-bounded-2").lines();
    assert_eq!(
        bounded[bounded.len() - 2..],
        [
            "  on 2 cores               5.00 times as much as with private state",
            "  Its work is another: one worker writes and the others read, where `own` and `strict` count.",
        ]
    );
    let told = serde_json::to_value(figure("state-bounded-2")).unwrap();
    let reservation = told["reservation"].as_object().unwrap();
    assert_eq!(reservation["same_work"], false);
    assert!(reservation["text"].as_str().is_some_and(|text| text.ends_with('.')), "a whole sentence: {told}");
    let told = serde_json::to_value(figure("state-strict-2")).unwrap();
    assert_eq!(told.get("reservation"), None);
    assert_eq!(told["over_private"], serde_json::json!({ "1": 2.5, "2": 5.0 }));
    assert_eq!(told["beside"]["state-own-1"], 8.0);
    // A key that does not apply is left out.
    let plain = Figure { bytes_per_flow: Some(75.5), ..Figure::of("plain".into(), vec![4.0], 1) };
    let told = serde_json::to_value(&plain).unwrap();
    let mut keys: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["burst", "bytes_per_flow", "max", "min", "mpps", "name", "ns_per_packet", "packets", "workers"]
    );
    assert_eq!(plain.lines()[1], "                           75.5 bytes a flow");
}

/// An even number of rounds has two in the middle, and neither is the median alone.
#[test]
fn the_median_of_an_even_number_of_rounds_is_the_mean_of_the_middle_two() {
    for (times, expected) in [
        (vec![4.0], 4.0),
        (vec![1.0, 4.0], 2.5),
        (vec![9.0, 1.0, 4.0], 4.0),
        (vec![9.0, 1.0, 5.0, 4.0], 4.5),
        (vec![8.0, 1.0, 6.0, 5.0, 2.0, 7.0, 3.0, 4.0], 4.5),
    ] {
        let (min, max) =
            (times.iter().copied().fold(9.0, f64::min), times.iter().copied().fold(1.0, f64::max));
        assert_eq!(median(times.clone()), expected, "{times:?}");
        let figure = Figure::of("rounds".into(), times, 1);
        assert_eq!((figure.ns_per_packet, figure.min, figure.max), (expected, min, max));
        assert_eq!(figure.mpps, 1e3 / expected);
    }
}

#[test]
fn bytes_of_a_flow_are_told_where_the_function_says_them() {
    for name in ["maglev-90", "maglev-100"] {
        let figure = said(measure(&scenario(name), short(), &enough_cores(1))).unwrap();
        let bytes = figure.bytes_per_flow.unwrap_or_else(|| panic!("{name} does not say it"));
        // A slot is 32 bytes at least, and most tables have less than twice the slots that they need.
        assert!((32.0..128.0).contains(&bytes), "{name}: {bytes}");
    }
    assert_eq!(said(measure(&scenario("harness"), short(), &enough_cores(1))).unwrap().bytes_per_flow, None);
}

/// Else a benchmark of two workers would hang for ever after one of them failed.
#[test]
fn a_worker_that_waits_for_a_failed_one_ends() {
    for panics in [false, true] {
        let start = Start::new(2);
        let waited = std::thread::scope(|scope| {
            let waits = scope.spawn(|| start.guard(|| start.wait()));
            let fails = scope.spawn(|| {
                start.guard(|| -> Result<(), BenchError> {
                    assert!(!panics, "as a function does");
                    Err(BenchError::Failed("it failed".into()))
                })
            });
            assert_eq!(fails.join().is_err(), panics);
            waits.join().unwrap()
        });
        assert_eq!(said(waited), Err("another worker failed".to_owned()));
    }
}

#[test]
fn more_workers_than_cores_are_refused() {
    let refused = said(measure(&scenario("state-strict-2"), short(), &[])).unwrap_err();
    assert_eq!(
        refused,
        "`state-own-1` needs 1 cores, and this process may run on 0: allow it more with `taskset`"
    );
}
