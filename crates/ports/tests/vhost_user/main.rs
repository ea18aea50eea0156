//! vhost-user: DPDK's `net_virtio_user` as the guest, by `dpdk-testpmd`, which sends back what it receives.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "../memif/fixture.rs"]
mod fixture;

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netbricks_ports::Link;

use fixture::{Directory, Ends, eventually, frame, open, pool};

/// A running `dpdk-testpmd`, which ends with the test.
struct Testpmd(Child);

impl Testpmd {
    /// `None`, with a printed line, if it is not installed.
    fn start(directory: &Directory, more: &str) -> Option<Self> {
        let device = format!("--vdev=net_virtio_user0,path={}{more}", directory.0.join("s").display());
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

/// Frames go to DPDK and come back unchanged, in both modes. DPDK comes again after `kill -9`.
#[test]
fn dpdk_echoes_in_both_modes() {
    for (number, (mode, more)) in
        [("server", ",server=0"), ("server", ",server=0,mrg_rxbuf=0,queue_size=64"), ("client", ",server=1")]
            .into_iter()
            .enumerate()
    {
        let directory = Directory::new(&format!("vhost-user-dpdk-{number}"));
        let pool = pool();
        // DPDK does not seal its memory.
        let keys = format!("mode = \"{mode}\"\nsealed_memory = false");
        let mut port = open(&directory.0, "vhost-user", &keys, &pool);
        let mut ends = Ends::new(&mut *port, &pool);
        for round in 0..2 {
            if mode == "client" {
                // DPDK does not listen where its last process has left a socket.
                let _ = std::fs::remove_file(directory.0.join("s"));
            }
            let Some(testpmd) = Testpmd::start(&directory, more) else { return };
            let log = || std::fs::read_to_string(directory.0.join("testpmd.log")).unwrap_or_default();
            eventually("DPDK", || port.link() == Link::Up);
            // It forwards a moment after it has connected: until then nothing comes back.
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
                    std::thread::sleep(Duration::from_millis(1));
                }
                ends.arrived.len() == before
            });
            assert!(ends.arrived.drain(..).all(|frame| frame == probe), "{mode}{more}");
            let frames: Vec<_> = (60..1_514).map(|len| frame(len, len)).collect();
            assert!(ends.echo(&frames, 32) == frames, "{mode}{more} {round}: {}", log());
            let totals = ends.turn();
            assert_eq!(port.link(), Link::Up, "{totals:?} {:?}", port.warnings());
            assert_eq!(port.returned(), round);
            drop(testpmd);
            eventually("the end", || port.link() == Link::Down);
        }
    }
}

/// Memory that its owner can shrink is refused, unless the port is told to take it.
#[test]
fn memory_of_dpdk_is_taken_only_if_the_port_is_told_to() {
    let directory = Directory::new("vhost-user-dpdk-sealed");
    let pool = pool();
    let port = open(&directory.0, "vhost-user", "", &pool);
    let Some(_testpmd) = Testpmd::start(&directory, ",server=0") else { return };
    eventually("the reason", || port.warnings().iter().any(|said| said.contains("`sealed_memory = false`")));
    assert_eq!(port.link(), Link::Down);
}
