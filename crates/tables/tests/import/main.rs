//! Untrusted exports of flows: flows that are wrong under a right checksum.
#![forbid(unsafe_code)]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use exercise::{Outcome, RECORD, ROOM, flow_import};
use proptest::prelude::*;

/// A flow as an export has it.
fn record(key: u32, value: (u8, u16), age: u64, timeout: u64) -> Vec<u8> {
    let (valid, number) = value;
    let record =
        [&key.to_be_bytes()[..], &[valid], &number.to_be_bytes(), &age.to_be_bytes(), &timeout.to_be_bytes()]
            .concat();
    assert_eq!(record.len(), RECORD);
    record
}

/// Small numbers, and such as lie at an end of what there is.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..3_000_000, Just(0), (0u64..3).prop_map(|less| u64::MAX - less), any::<u64>()]
}

/// Times at which nothing, some and all of what a table has is over.
fn now() -> impl Strategy<Value = [u8; 2]> {
    prop_oneof![Just([0, 0]), (any::<u8>(), 0u8..12).prop_map(Into::into), any::<[u8; 2]>()]
}

fn records() -> impl Strategy<Value = Vec<u8>> {
    let valid = prop_oneof![60 => 0u8..2, 1 => any::<u8>()];
    let flow = (0u32..2 * ROOM as u32, (valid, any::<u16>()), time(), time());
    let flow = flow.prop_map(|(key, value, age, timeout)| record(key, value, age, timeout));
    prop::collection::vec(flow, 0..20).prop_map(|flows| flows.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_flows_under_a_right_checksum(choice in 0u8..16, now in now(), records in records()) {
        flow_import(&[&[choice | 0x80], &now[..], &records].concat());
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        flow_import(&bytes);
    }
}

/// If no bytes got past the first checks, the tests above could not find a fault behind these checks.
#[test]
fn each_outcome_comes_about() {
    let import =
        |choice: u8, flows: &[Vec<u8>]| flow_import(&[&[choice, 0, 0], &flows.concat()[..]].concat());
    let flows: Vec<_> = (100..112).map(|key| record(key, (1, 7), 5, u64::MAX)).collect();
    assert_eq!(import(0x80, &flows), Some(Outcome::Taken(ROOM)));
    assert_eq!(import(0x81, &flows), Some(Outcome::NoRoom));
    assert_eq!(import(0x81, &flows[1..]), Some(Outcome::Taken(ROOM - 1)));
    // Neither a flow that has expired on the way nor one that was hit before needs room.
    let over = record(99, (0, 0), 10_000_000, 10);
    assert_eq!(import(0x80, &[&flows[..], &[over]].concat()), Some(Outcome::Taken(ROOM)));
    let older = record(0, (0, 9), 5, u64::MAX);
    assert_eq!(import(0x81, &[&flows[1..], &[older]].concat()), Some(Outcome::Taken(ROOM - 1)));
    let wrong = record(1, (2, 0), 0, u64::MAX);
    assert_eq!(import(0x80, &[wrong]), Some(Outcome::Refused));
    assert_eq!(import(0, &flows), Some(Outcome::Refused));
    assert_eq!(import(0x80, &[]), Some(Outcome::Taken(0)));
    assert_eq!(flow_import(&[0x80]), None);
}
