//! One segment, which a run of the command in the middle joins: `client` – c0 ═ b0 – `middle` – b1 ═ s0 –
//! `server`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_testkit::namespace::{Namespaces, Process, eventually};
use serde_json::Value;

/// The port drivers for live traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    AfPacket,
    AfXdp,
    /// TAPs, each bridged to a veth by the kernel.
    Tap,
}

impl Driver {
    pub(crate) const ALL: [Self; 3] = [Self::AfPacket, Self::AfXdp, Self::Tap];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
        }
    }
    /// The devices that its two ports open.
    pub(crate) fn devices(self) -> [&'static str; 2] {
        if self == Self::Tap { ["t0", "t1"] } else { ["b0", "b1"] }
    }
}

/// The namespaces and files of one test.
pub(crate) struct Segment {
    pub(crate) namespaces: Namespaces,
    pub(crate) directory: PathBuf,
    driver: Driver,
}

impl Segment {
    /// `None` if the test cannot run. `test` names a folder for its files.
    pub(crate) fn new(test: &str, driver: Driver, commands: &[&str]) -> Option<Self> {
        Self::with(&[], test, driver, commands)
    }

    /// A segment, and namespaces of further roles, which nothing joins yet.
    pub(crate) fn with(roles: &[&str], test: &str, driver: Driver, commands: &[&str]) -> Option<Self> {
        let roles = [&["client", "middle", "server"], roles].concat();
        let namespaces = Namespaces::new(&roles, commands)?;
        // The middle sends nothing by itself.
        namespaces.run(
            "middle",
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
        );
        namespaces.veth(("middle", "b0"), ("client", "c0"));
        namespaces.veth(("middle", "b1"), ("server", "s0"));
        for (role, device, number) in [("client", "c0", 1), ("server", "s0", 2)] {
            namespaces.run(role, &format!("ip address add 10.0.0.{number}/24 dev {device}"));
            namespaces.run(role, &format!("ip address add fd00::{number}/64 dev {device} nodad"));
            if driver == Driver::AfXdp {
                // XDP does not see work that the kernel leaves to an interface, so leave it none: checksums
                // are complete, segments cut.
                namespaces.run(role, &format!("ethtool -K {device} tx off rx off tso off gso off gro off"));
            }
        }
        if driver == Driver::Tap {
            for (bridge, device) in [("br0", "b0"), ("br1", "b1")] {
                namespaces.run("middle", &format!("ip link add {bridge} type bridge mcast_snooping 0"));
                namespaces.run("middle", &format!("ip link set {device} master {bridge}"));
                namespaces.run("middle", &format!("ip link set {bridge} up"));
            }
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("veth-{test}-{}", driver.name()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        Some(Self { namespaces, directory, driver })
    }

    /// The configuration of both ports.
    pub(crate) fn ports(&self) -> String {
        let [left, right] = self.driver.devices();
        let driver = self.driver.name();
        // Segments that the kernel has not cut take large frames.
        let large = if self.driver == Driver::AfXdp { 0 } else { 512 };
        format!(
            "[port.left]\ndriver = \"{driver}\"\ndevice = \"{left}\"\n[port.right]\ndriver = \"{driver}\"\n\
             device = \"{right}\"\n[runtime]\nframes = 8192\nlarge_frames = {large}\n"
        )
    }

    /// Chains with `ttl` and `monitor` in both directions; `ttl` is the table of `ttl`, without `use`.
    pub(crate) fn chains(&self, ttl: &str) -> String {
        format!(
            "{}[function.hops]\nuse = \"ttl\"\n{ttl}[function.flows]\nuse = \"monitor\"\n\
             [[chain]]\nfrom = \"left\"\nthrough = [\"hops\", \"flows\"]\nto = \"right\"\n\
             [[chain]]\nfrom = \"right\"\nthrough = [\"hops\", \"flows\"]\nto = \"left\"\n",
            self.ports()
        )
    }

    /// Starts `netbricks run` in the middle; returns it when its ports are open.
    pub(crate) fn start(&self, configuration: &str, arguments: &[&str]) -> Run {
        std::fs::write(self.directory.join("run.toml"), configuration).expect("the directory can be written");
        let file = self.directory.join("run.toml").display().to_string();
        let mut words = vec!["run", &file, "--json"];
        words.extend_from_slice(arguments);
        let mut run = Run {
            process: self.namespaces.start(
                "middle",
                env!("CARGO_BIN_EXE_netbricks"),
                &words,
                self.file("report"),
                self.file("said"),
            ),
            directory: self.directory.clone(),
        };
        for device in self.driver.devices().iter().filter(|device| configuration.contains(*device)) {
            eventually("the ports' opening", || {
                assert!(run.process.is_running(), "{}", run.said());
                self.holds(device)
            });
        }
        if self.driver == Driver::Tap {
            for (device, bridge) in [("t0", "br0"), ("t1", "br1")] {
                self.namespaces.run("middle", &format!("ip link set {device} master {bridge}"));
                self.namespaces.run("middle", &format!("ip link set {device} up"));
            }
        }
        run
    }

    /// As [`start`](Self::start), with a control socket for [`Run::command`].
    pub(crate) fn start_with_socket(&self, configuration: &str, arguments: &[&str]) -> Run {
        let socket = self.directory.join("socket");
        let socket_words = ["--socket", &socket.display().to_string()];
        let run = self.start(configuration, &[&socket_words[..], arguments].concat());
        eventually("the control socket", || socket.exists());
        run
    }

    /// Whether a run holds this device: by its XDP program, its promiscuous mode, or the TAP itself.
    pub(crate) fn holds(&self, device: &str) -> bool {
        let shown = self.namespaces.attempt("middle", &format!("ip -d link show {device}"));
        let shown = String::from_utf8_lossy(&shown.stdout);
        match self.driver {
            Driver::AfPacket => shown.contains("promiscuity 1"),
            Driver::AfXdp => shown.contains("xdp") && shown.contains("promiscuity 1"),
            Driver::Tap => shown.contains(device),
        }
    }

    /// Whether nothing of a run is left on this device.
    pub(crate) fn is_clean(&self, device: &str) -> bool {
        let shown = self.namespaces.attempt("middle", &format!("ip -d link show {device}"));
        let there = shown.status.success();
        let shown = String::from_utf8_lossy(&shown.stdout);
        match self.driver {
            Driver::Tap => !there,
            _ => there && shown.contains("promiscuity 0") && !shown.contains("xdp"),
        }
    }

    /// Waits until the segment is joined, because packets that are sent before may be lost.
    pub(crate) fn settle(&self) {
        self.answered(&["10.0.0.2", "fd00::2"]);
    }

    /// Waits until these addresses answer the client.
    pub(crate) fn answered(&self, addresses: &[&str]) {
        for address in addresses {
            eventually("the first answer", || {
                self.namespaces.attempt("client", &format!("ping -q -c 1 -W 1 {address}")).status.success()
            });
        }
    }

    /// Starts a server in the namespace of this role.
    pub(crate) fn serve(&self, role: &str, words: &[&str]) -> Process {
        let name = words[0].replace('/', "_");
        let files = (self.file(&format!("{name}-{role}")), self.file(&format!("{name}-{role}-errors")));
        self.namespaces.start(role, words[0], &words[1..], files.0, files.1)
    }

    /// A fresh file of this test.
    pub(crate) fn file(&self, name: &str) -> File {
        File::create(self.directory.join(name)).expect("the directory can be written")
    }
}

/// A command that pings until ten pings were answered.
///
/// With `-c` alone, `ping` waits for the last answer only twice as long as for the slowest before it. For
/// tiny pings, which carry no time, it does not wait at all.
pub(crate) fn ten_pings(to: &str) -> String {
    format!("ping -n -c 10 -i 0.02 -w 120 {to}")
}

/// Checks that the first nine of [`ten_pings`] were all answered, with this TTL left.
///
/// On a busy machine, an eleventh ping may go out before the tenth answer arrives. No earlier one may be
/// lost.
pub(crate) fn assert_all_answered(said: &str, ttl: u8) {
    for sequence in 1..10 {
        let answer = |line: &&str| {
            line.contains(&format!("icmp_seq={sequence} ")) && line.contains(&format!("ttl={ttl}"))
        };
        assert_eq!(said.lines().filter(answer).count(), 1, "ping {sequence}: {said}");
    }
}

/// A run of the command.
pub(crate) struct Run {
    pub(crate) process: Process,
    directory: PathBuf,
}

impl Run {
    /// Its standard error so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.directory.join("said")).unwrap_or_default()
    }

    /// The output of a command that asks the run through its control socket.
    pub(crate) fn command(&self, verb: &str, words: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .arg(verb)
            .args(words)
            .args(["--socket".as_ref(), self.directory.join("socket").as_os_str()])
            .output()
            .expect("the command starts");
        assert!(output.status.success(), "{verb} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Interrupts the run, which must end well, with every packet accounted for. Returns its report.
    pub(crate) fn finish(mut self) -> Value {
        assert!(self.process.is_running(), "it ended before its time: {}", self.said());
        self.process.signal("INT");
        let status = self.process.wait();
        let said = self.said();
        assert_eq!(status.code(), Some(0), "{said}");
        let report = std::fs::read(self.directory.join("report")).expect("it was made when the run started");
        let report: Value = serde_json::from_slice(&report).expect("one JSON object");
        assert_eq!(report["conserved"], true, "{report}");
        assert_eq!(report["held"], 0, "{report}");
        assert_eq!(report["panics"], Value::Array(Vec::new()), "{report}");
        let sum = |key: &str| -> u64 {
            match &report[key] {
                Value::Object(reasons) => reasons.values().filter_map(Value::as_u64).sum(),
                number => number.as_u64().expect("a number"),
            }
        };
        assert_eq!(
            sum("received") + sum("created"),
            sum("sent") + sum("consumed") + sum("held") + sum("dropped"),
            "{report}"
        );
        report
    }
}
