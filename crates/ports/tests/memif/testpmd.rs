//! DPDK's `net_memif` at the other end: `dpdk-testpmd` sends back what it receives.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use netbricks_ports::Link;

use super::fixture::{Directory, Ends, eventually, frame, pool};
use super::open;

/// A running `dpdk-testpmd`, which ends with the test.
struct Testpmd(Child);

impl Testpmd {
    /// `None`, with a printed line, if it is not installed.
    fn start(directory: &Directory, role: &str, more: &str) -> Option<Self> {
        let device = format!(
            "--vdev=net_memif0,role={role},id=3,socket={},socket-abstract=no,secret=testing{more}",
            directory.0.join("s").display()
        );
        let log = File::create(directory.0.join("testpmd.log")).unwrap();
        let child = Command::new("dpdk-testpmd")
            // Two threads, also where there is one core.
            .args(["--lcores", "0@0,1@0", "--no-huge", "-m", "128", "--no-pci", "--no-shconf"])
            .args(["--no-telemetry", &device, "--"])
            .args(["--port-topology=loop", "--total-num-mbufs=4096", "--auto-start"])
            // It ends at the first line or at the end of its input.
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                // Written past the test harness, which would hide the output of a passing test.
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: needs dpdk-testpmd (Debian's package dpdk-dev): {error}"
                );
                None
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Frames go to DPDK and come back unchanged, in both roles, also as chains of DPDK's smaller buffers.
#[test]
fn dpdk_echoes_in_both_roles() {
    for (ours, theirs, more, most) in [
        ("server", "client", "", 64),
        // Of packets in several buffers, DPDK 22.11 sends back only those that come a few at a time.
        ("server", "client", ",rsize=8,bsize=512", 8),
        ("client", "server", "", 64),
    ] {
        let directory = Directory::new(&format!("memif-dpdk-{ours}{}", more.len()));
        let pool = pool();
        let mut port = open(&directory.0, ours, "id = 3\nsecret = \"testing\"", &pool);
        let mut ends = Ends::new(&mut *port, &pool);
        let Some(_testpmd) = Testpmd::start(&directory, theirs, more) else { return };
        let log = || std::fs::read_to_string(directory.0.join("testpmd.log")).unwrap_or_default();
        eventually("DPDK", || port.link() == Link::Up);
        // It forwards a moment after it has connected: until then it drops.
        let probe = frame(0, 99);
        eventually("the first echo", || {
            assert!(ends.far.push(0, &probe), "{}", log());
            ends.turn();
            !ends.arrived.is_empty()
        });
        eventually("the last probe", || {
            let before = ends.arrived.len();
            for _ in 0..50 {
                ends.turn();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            ends.arrived.len() == before
        });
        assert!(ends.arrived.drain(..).all(|frame| frame == probe), "{ours}");
        let frames: Vec<_> = (60..1_514).map(|len| frame(len, len)).collect();
        assert!(ends.echo(&frames, most) == frames, "{ours} {more}: {}", log());
        let totals = ends.turn();
        assert_eq!(port.link(), Link::Up, "{totals:?} {:?}", port.warnings());
    }
}
