//! Devices without a graph: what is refused, and what ends.

use crate::router::Capabilities;
use crate::testing::{build_with, run};

#[test]
fn kernel_devices_are_read() {
    let devices = Capabilities { devices: true, ..Capabilities::default() };
    for (element, error) in [
        ("KernelTun", "ADDR: required argument missing"),
        ("KernelTun(1.0.0.1/8, 2.0.0.1)", "bad GATEWAY"),
        ("KernelTap(1.0.0.1/8, BURST 0)", "BURST must be >= 1"),
    ] {
        let errors = build_with(&format!("{element} -> Discard"), devices).errors;
        assert!(errors.iter().any(|line| line.ends_with(error)), "{element}: {errors:?}");
    }
    let run = build_with("t::KernelTun(1.0.0.1/8, DEVNAME tun0) -> Queue -> t", devices);
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.read("t.dev_name"), "tun0");
    let without = build_with("t::KernelTap(1.0.0.1/8) -> Discard", Capabilities::default());
    assert!(without.errors.iter().any(|line| line.contains("capability devices")), "{:?}", without.errors);
}

#[test]
fn sniffers_end_packets() {
    let run = run("InfiniteSource(LIMIT 3, STOP true) -> c::Counter -> ToHostSniffers(eth0)");
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.read("c.count"), "3");
}
