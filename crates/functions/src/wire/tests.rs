use netbricks_testkit::{kinds, run};

use super::wire;

#[test]
fn every_packet_passes_unchanged() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    let report = run(wire, frames.clone());
    assert_eq!((&report.out, report.drops.total().packets, report.replies.len()), (&frames, 0, 0));
}
