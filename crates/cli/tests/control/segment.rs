//! Segments that a run in the middle joins: `client` – c0 ═ b0 – `middle` – b1 ═ s0 – `server`.
//!
//! The pair c1 ═ b2 is spare.

use std::process::Command;

use netbricks_testkit::namespace::{Namespaces, eventually};
use serde_json::Value;

use super::dataplane::{Directory, Run, SOCKET};

/// The namespaces and files of one test.
pub(crate) struct Segment {
    pub(crate) namespaces: Namespaces,
    pub(crate) directory: Directory,
}

impl Segment {
    /// `None` if the test cannot run.
    pub(crate) fn new(test: &str, commands: &[&str]) -> Option<Self> {
        let namespaces = Namespaces::new(&["client", "middle", "server"], commands)?;
        for role in ["client", "middle", "server"] {
            // Nothing is sent that the test does not send.
            let off = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
            namespaces.run(role, off);
        }
        namespaces.veth(("middle", "b0"), ("client", "c0"));
        namespaces.veth(("middle", "b1"), ("server", "s0"));
        namespaces.veth(("middle", "b2"), ("client", "c1"));
        for (role, device, address) in
            [("client", "c0", "10.0.0.1"), ("server", "s0", "10.0.0.2"), ("client", "c1", "10.0.9.1")]
        {
            namespaces.run(role, &format!("ip address add {address}/24 dev {device}"));
            // XDP does not see work that the kernel leaves to an interface, so leave it none.
            namespaces.run(role, &format!("ethtool -K {device} tx off rx off tso off gso off gro off"));
        }
        Some(Self { namespaces, directory: Directory::new(test) })
    }

    /// The Ethernet address of the server's interface.
    pub(crate) fn server(&self) -> String {
        self.namespaces.run("server", "cat /sys/class/net/s0/address").trim().to_owned()
    }

    /// Starts a run in the middle; returns when it answers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let mut run = self.directory.begin(self.netbricks(arguments));
        run.answers();
        run
    }

    fn netbricks(&self, arguments: &[&str]) -> Command {
        let mut command = self.namespaces.command("middle", env!("CARGO_BIN_EXE_netbricks"));
        command
            .args(["run", "--socket", SOCKET, "--json"])
            .args(arguments)
            .current_dir(self.directory.path());
        command
    }

    /// Waits until the segment is joined, because packets that are sent before may be lost.
    pub(crate) fn settle(&self) {
        self.reach("10.0.0.2");
    }

    /// Waits for an answer of this address.
    pub(crate) fn reach(&self, address: &str) {
        eventually("an answer to a ping", || {
            self.namespaces.attempt("client", &format!("ping -q -c 1 -W 1 {address}")).status.success()
        });
    }

    /// Whether no run has anything on this device.
    pub(crate) fn is_clean(&self, device: &str) -> bool {
        let shown = self.namespaces.run("middle", &format!("ip -d link show {device}"));
        shown.contains("promiscuity 0") && !shown.contains("xdp")
    }
}

/// Ends a run, which must end well with every packet accounted for. Returns its report.
pub(crate) fn finish(run: &mut Run) -> Value {
    run.signal("INT");
    let report: Value = serde_json::from_str(&run.report()).expect("one JSON value");
    assert_eq!(report["conserved"], true, "{report}");
    assert_eq!(report["held"], 0, "{report}");
    assert_eq!(report["panics"], Value::Array(Vec::new()), "{report}");
    report
}
