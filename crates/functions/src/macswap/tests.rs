use netbricks_core::DropReason;
use netbricks_testkit::{kinds, run};

use super::macswap;

#[test]
fn addresses_change_places_and_nothing_else_changes() {
    for (name, frame) in kinds::every() {
        let report = run(macswap, [frame.clone()]);
        if frame.len() < 14 {
            assert_eq!(report.dropped(DropReason::Malformed), 1, "{name}: no Ethernet header");
            continue;
        }
        let out = &report.out[0];
        assert_eq!(
            (&out[..6], &out[6..12], &out[12..]),
            (&frame[6..12], &frame[..6], &frame[12..]),
            "{name}"
        );
        assert_eq!(run(macswap, [out.clone()]).out, [frame], "{name}: twice is nothing");
    }
}
