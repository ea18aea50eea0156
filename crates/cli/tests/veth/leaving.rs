//! Unexpected ends: a killed process, and an interface that is removed during a run.

use netbricks_testkit::namespace::{eventually, has};

use super::fixture::{Driver, Segment};

/// A run killed in a flood leaves no XDP program, promiscuous interface or TAP; the next one starts cleanly.
#[test]
fn kill_9_leaves_nothing() {
    for driver in Driver::ALL {
        let Some(segment) = Segment::new("kill", driver, &["ping"]) else { return };
        let mut run = segment.start(&segment.chains(""), &[]);
        segment.settle();
        if driver == Driver::AfXdp && has("bpftool") {
            let programs = segment.namespaces.run("middle", "bpftool net show");
            assert!(programs.contains("b0") && programs.contains("b1"), "{programs}");
        } else if driver == Driver::AfXdp {
            eprintln!(
                "skipped: what bpftool, which is not installed, says of XDP programs; `ip link` is asked all the same"
            );
        }
        let flood = segment.namespaces.start(
            "client",
            "ping",
            &["-q", "-f", "-c", "1000000", "10.0.0.2"],
            segment.file("flood"),
            segment.file("flood-errors"),
        );
        std::thread::sleep(std::time::Duration::from_millis(300));
        run.process.signal("KILL");
        assert!(!run.process.wait().success());
        drop(flood);
        for device in driver.devices() {
            eventually(&format!("the end of what the run had on {device}"), || segment.is_clean(device));
        }
        if driver == Driver::AfXdp && has("bpftool") {
            let programs = segment.namespaces.run("middle", "bpftool net show");
            assert!(!programs.contains("b0") && !programs.contains("b1"), "{programs}");
        }
        let run = segment.start(&segment.chains(""), &[]);
        segment.settle();
        run.finish();
    }
}

/// The port is down; the process goes on, counts the packets that it cannot send, and ends as it should.
#[test]
fn a_deleted_interface_is_a_port_that_is_down() {
    for driver in Driver::ALL {
        let Some(segment) = Segment::new("deleted", driver, &["ping"]) else { return };
        let mut run = segment.start(&segment.chains(""), &[]);
        segment.settle();
        let [_, right] = driver.devices();
        segment.namespaces.run("middle", &format!("ip link delete {right}"));
        let lost = segment.namespaces.attempt("client", "ping -q -c 5 -i 0.05 -W 1 10.0.0.2");
        assert!(!lost.status.success(), "{driver:?}");
        eventually("word of the port", || run.said().contains("port `right` is down"));
        assert!(run.process.is_running(), "{driver:?}: {}", run.said());
        let report = run.finish();
        assert_eq!(report["ports"][0]["link"], "up", "{driver:?}: {report}");
        assert_eq!(report["ports"][1]["link"], "gone", "{driver:?}: {report}");
        assert!(report["dropped"]["link-down"].as_u64() > Some(0), "{driver:?}: {report}");
    }
}
