use netbricks_core::tables::cycles;
use netbricks_testkit::{build::ethernet, run};

use super::{BusyConfig, busy};

#[test]
fn it_takes_its_cycles_and_changes_nothing() {
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"x").build().unwrap();
    let start = cycles::now();
    let report = run(|input| busy(input, &BusyConfig { cycles: 10_000_000 }), vec![frame.clone(); 8]);
    // Three runs of eight packets, some 0.1 s in all: making the pools and graphs takes far less. As the
    // counter only rises, a slow machine cannot fail.
    assert!(cycles::now().wrapping_sub(start) >= 3 * 8 * 10_000_000);
    assert_eq!(report.out, vec![frame; 8]);
}
