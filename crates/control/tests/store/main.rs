//! The store on a real directory: journals of any bytes, bad directories, and processes that are killed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod kill;
mod refusals;

use exercise::{Outcome, journal};
use proptest::prelude::*;

/// JSON of a record, or almost.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let text = || prop_oneof![Just("f".to_owned()), any::<String>()];
    let record = (text(), text(), any::<u64>()).prop_map(|(handler, argument, time)| {
        let record =
            serde_json::json!({ "function": "f", "handler": handler, "argument": argument, "time": time });
        record.to_string().into_bytes()
    });
    prop_oneof![4 => record, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_lines_under_right_checksums(lines in prop::collection::vec(line(), 0..8), choice in any::<[u8; 3]>()) {
        journal(&[&[choice[0] | 1], &choice[1..], &lines.join(&b'\n')].concat());
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        journal(&bytes);
    }
}

/// The inputs of the other tests must reach every outcome, or those tests would check nothing.
#[test]
fn each_outcome_comes_about() {
    let record = br#"{"function":"f","handler":"h","argument":"a","time":1}"#;
    let two = [&record[..], record].join(&b'\n');
    assert_eq!(journal(&[&[0, 0, 0], &two[..]].concat()), Outcome::Refused);
    assert_eq!(journal(&[&[1, 0, 0], &two[..]].concat()), Outcome::Read { records: 2, lost: 0 });
    // The last line is cut, or one of its bits is flipped.
    assert_eq!(journal(&[&[3, 0, 9], &two[..]].concat()), Outcome::Read { records: 1, lost: 0 });
    assert_eq!(journal(&[&[5, 0, 9], &two[..]].concat()), Outcome::Read { records: 1, lost: 1 });
    assert_eq!(journal(&[&[1, 0, 0], &b"{}"[..]].concat()), Outcome::Read { records: 0, lost: 1 });
}
