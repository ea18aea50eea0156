use netbricks_core::tables::cycles;
use netbricks_testkit::{build::ethernet, run};

use super::{BusyConfig, busy};

#[test]
fn it_takes_its_cycles_and_changes_nothing() {
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"x").build().unwrap();
    let start = cycles::now();
    let report = run(|input| busy(input, &BusyConfig { cycles: 10_000 }), vec![frame.clone(); 8]);
    // The counter only rises, so this cannot fail on a slow machine: three runs of eight packets of 10,000 cycles.
    assert!(cycles::now().wrapping_sub(start) >= 240_000);
    assert_eq!(report.out, vec![frame; 8]);
}
