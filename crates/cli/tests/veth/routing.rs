//! Three routers in a row, each a run of the command, between a client and a server.
//!
//! `client` – 10.1.0/24 – `one` – 10.12.0/24 – `two` – 10.23.0/24 (MTU 1400) – `three` – 10.3.0/24 – `server`, and the same
//! in IPv6 with `fd01::/64` and so on.

use std::path::{Path, PathBuf};

use netbricks_testkit::namespace::{Namespaces, Process, eventually};
use serde_json::Value;

const ROUTERS: [(&str, [&str; 2], &str); 3] = [
    (
        "one",
        ["10.1.0.1/24 fd01::1/64", "10.12.0.1/24 fd12::1/64"],
        "\"default via 10.12.0.2\", \"default6 via fd12::2\"",
    ),
    (
        "two",
        ["10.12.0.2/24 fd12::2/64", "10.23.0.2/24 fd23::2/64 mtu 1400"],
        "\"10.1.0.0/24 via 10.12.0.1\", \"fd01::/64 via fd12::1\", \"default via 10.23.0.3\", \"default6 via fd23::3\"",
    ),
    (
        "three",
        ["10.23.0.3/24 fd23::3/64 mtu 1400", "10.3.0.1/24 fd03::1/64"],
        "\"default via 10.23.0.2\", \"default6 via fd23::2\"",
    ),
];

/// The configuration of a router between `a0` and `b0`.
pub(super) fn configuration(interfaces: [&str; 2], routes: &str, more: &str) -> String {
    let [a, b] = interfaces;
    format!(
        "[runtime]\nframes = 8192\nlarge_frames = 256\n\
         [port.a]\ndriver = \"af_packet\"\ndevice = \"a0\"\n[port.b]\ndriver = \"af_packet\"\ndevice = \"b0\"\n\
         [function.router]\nuse = \"router\"\ninterfaces = [\"a {a}\", \"b {b}\"]\nroutes = [{routes}]\n{more}\
         [[chain]]\nfrom = \"a\"\nthrough = [\"router\"]\nto = \"a\"\n\
         [[chain]]\nfrom = \"b\"\nthrough = [\"router\"]\nto = \"b\"\n"
    )
}

/// A run of a router in a namespace.
pub(super) struct Router {
    process: Process,
    directory: PathBuf,
    name: &'static str,
}

impl Router {
    /// Starts it; its ports are open when this returns.
    pub(super) fn start(
        namespaces: &Namespaces,
        directory: &Path,
        name: &'static str,
        configuration: &str,
    ) -> Self {
        let path = |extension: &str| directory.join(format!("{name}.{extension}"));
        std::fs::write(path("toml"), configuration).expect("the directory can be written");
        let file =
            |extension: &str| std::fs::File::create(path(extension)).expect("the directory can be written");
        let (toml, socket) = (path("toml").display().to_string(), path("socket").display().to_string());
        let words = ["run", &toml, "--json", "--socket", &socket];
        let mut process =
            namespaces.start(name, env!("CARGO_BIN_EXE_netbricks"), &words, file("report"), file("said"));
        let said = || std::fs::read_to_string(path("said")).unwrap_or_default();
        for device in ["a0", "b0"] {
            eventually("the ports' opening", || {
                assert!(process.is_running(), "{}", said());
                let shown = namespaces.attempt(name, &format!("ip -d link show {device}"));
                String::from_utf8_lossy(&shown.stdout).contains("promiscuity 1")
            });
        }
        eventually("the control socket", || path("socket").exists());
        Self { process, directory: directory.to_owned(), name }
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.name))
    }

    /// The answer of a handler of the router.
    pub(super) fn get(&self, handler: &str) -> String {
        let socket = self.path("socket").display().to_string();
        let words: Vec<&str> = handler.split(' ').collect();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .arg("get")
            .args(words)
            .args(["--socket", &socket])
            .output()
            .expect("the command starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends it well, with every packet accounted for; its report.
    pub(super) fn finish(mut self) -> Value {
        let said = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let is_running = self.process.is_running();
        assert!(is_running, "{}: it ended before its time: {}", self.name, said(self.path("said")));
        self.process.signal("INT");
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{}: {}", self.name, said(self.path("said")));
        let report = std::fs::read(self.path("report")).expect("it was made when the run started");
        let report: Value = serde_json::from_slice(&report).expect("one JSON object");
        assert_eq!(report["conserved"], true, "{report}");
        assert_eq!(
            (&report["held"], &report["panics"]),
            (&Value::from(0), &Value::Array(Vec::new())),
            "{report}"
        );
        report
    }
}

/// An empty folder for a test's files.
pub(super) fn folder(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("veth-{test}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Gives a host an address of each version, and its default routes.
pub(super) fn host(namespaces: &Namespaces, role: &str, device: &str, network: &str) {
    namespaces.run(role, &format!("ip address add 10.{network}.0.9/24 dev {device}"));
    namespaces.run(role, &format!("ip address add fd0{network}::9/64 dev {device} nodad"));
    namespaces.run(role, &format!("ip route add default via 10.{network}.0.1"));
    namespaces.run(role, &format!("ip -6 route add default via fd0{network}::1"));
}

#[test]
fn traces_path_mtus_and_downloads_work_through_three_routers() {
    let commands = ["ping", "traceroute", "curl", "python3"];
    let roles = ["client", "one", "two", "three", "server"];
    let Some(namespaces) = Namespaces::new(&roles, &commands) else { return };
    let directory = folder("three-routers");
    for router in ["one", "two", "three"] {
        // The router's interfaces are its own: the kernel has none.
        namespaces
            .run(router, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    namespaces.veth(("client", "c0"), ("one", "a0"));
    namespaces.veth(("one", "b0"), ("two", "a0"));
    namespaces.veth(("two", "b0"), ("three", "a0"));
    namespaces.veth(("three", "b0"), ("server", "s0"));
    host(&namespaces, "client", "c0", "1");
    host(&namespaces, "server", "s0", "3");
    let routers = ROUTERS.map(|(name, interfaces, routes)| {
        Router::start(&namespaces, &directory, name, &configuration(interfaces, routes, ""))
    });
    for address in ["10.3.0.9", "fd03::9"] {
        namespaces.run("client", &format!("ping -q -c 1 -W 60 {address}"));
    }
    for (version, to, hops) in [
        ("-4", "10.3.0.9", ["10.1.0.1", "10.12.0.2", "10.23.0.3", "10.3.0.9"]),
        ("-6", "fd03::9", ["fd01::1", "fd12::2", "fd23::3", "fd03::9"]),
    ] {
        let said = namespaces.run("client", &format!("traceroute -n {version} -q 1 -w 60 -m 8 {to}"));
        let found: Vec<&str> =
            said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(found, hops, "{said}");
    }
    // The link in the middle takes 1400 bytes: the sender learns of it, and cuts or shortens.
    let big = namespaces.attempt("client", "ping -n -c 1 -W 60 -M do -s 1400 10.3.0.9");
    let said = String::from_utf8_lossy(&big.stdout).into_owned() + &String::from_utf8_lossy(&big.stderr);
    assert!(said.contains("From 10.12.0.2") && said.contains("mtu = 1400"), "{said}");
    let known = namespaces.run("client", "ip route get 10.3.0.9");
    assert!(known.contains("mtu 1400"), "{known}");
    let big = namespaces.attempt("client", "ping -n -c 1 -W 60 -M do -s 1400 fd03::9");
    let said = String::from_utf8_lossy(&big.stdout).into_owned() + &String::from_utf8_lossy(&big.stderr);
    let said = said.replace(' ', "").to_lowercase();
    assert!(said.contains("fromfd12::2") && said.contains("mtu=1400"), "{said}");
    // Without the prohibition, the router itself cuts.
    namespaces.run("server", "ping -n -q -c 3 -i 0.05 -W 60 -M dont -s 1472 10.1.0.9");

    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(directory.join("content"), &content).expect("the directory can be written");
    let folder = directory.display().to_string();
    let files =
        |name: &str| std::fs::File::create(directory.join(name)).expect("the directory can be written");
    let words = ["-m", "http.server", "--bind", "::", "-d", &folder, "8080"];
    let _server = namespaces.start("server", "python3", &words, files("server"), files("server-said"));
    for to in ["10.3.0.9", "[fd03::9]"] {
        let into = directory.join("got").display().to_string();
        let line = format!(
            "curl -sS --retry 20 --retry-connrefused --retry-delay 1 -m 300 -o {into} http://{to}:8080/content"
        );
        namespaces.run("client", &line);
        assert!(std::fs::read(&into).expect("it was written") == content, "{to}: other bytes");
    }
    let [one, two, three] = routers;
    assert!(two.get("router.neighbours").contains("b 10.23.0.3 "), "{}", two.get("router.neighbours"));
    let reports = [one.finish(), two.finish(), three.finish()];
    let dropped = |report: &Value, reason: &str| report["dropped"][reason].as_u64().unwrap_or(0);
    assert_eq!(dropped(&reports[0], "ttl-expired"), 2, "{}", reports[0]);
    assert!(dropped(&reports[1], "too-big") >= 2, "{}", reports[1]);
    assert_eq!(dropped(&reports[1], "ttl-expired"), 2, "{}", reports[1]);
}
