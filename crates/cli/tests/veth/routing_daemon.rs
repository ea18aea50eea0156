//! The kernel's routes beside a router, and FRR with a BGP session whose routes arrive and go.
//!
//! `client` – 192.0.2/24 – `edge` – 198.51.100/24 – `peer`. FRR runs in `edge`, on the TAP of the host.

use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_testkit::namespace::{Namespaces, eventually};

use super::routing::{Router, configuration, folder};

/// FRR's daemons, which Debian keeps outside of the directories for commands.
const DAEMONS: &str = "/usr/lib/frr";

/// A folder that FRR's user may use, which is removed at the end.
struct Daemons(PathBuf);

impl Daemons {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("netbricks-bgp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the directory can be written");
        Self(folder)
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("the directory can be written");
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a daemon of FRR.
fn start(namespaces: &Namespaces, daemons: &Daemons, name: &str, configuration: &str) {
    daemons.write(&format!("{name}.conf"), configuration);
    let owned = Command::new("chown").args(["-R", "frr:frr"]).arg(&daemons.0).status();
    assert!(owned.is_ok_and(|status| status.success()), "FRR has a user of its own");
    let [conf, pid, api, folder] =
        [&format!("{name}.conf"), &format!("{name}.pid"), "zserv.api", "."].map(|name| daemons.path(name));
    let line = format!(
        "{DAEMONS}/{name} -d -u frr -g frr -f {conf} -i {pid} -z {api} --vty_socket {folder} -A 127.0.0.1 -P 0"
    );
    namespaces.run("edge", &line);
}

/// The kernel does not tell which routes go with a link or with their source address.
#[test]
fn routes_go_with_their_link_and_with_their_address() {
    let Some(namespaces) = Namespaces::new(&["client", "edge", "peer"], &["ping"]) else { return };
    let directory = folder("links");
    namespaces.veth(("client", "c0"), ("edge", "a0"));
    namespaces.veth(("edge", "b0"), ("peer", "p0"));
    let host = "host = \"tap\"\nkernel = \"main\"\n[port.tap]\ndriver = \"tap\"\ndevice = \"router0\"\n\
                [[chain]]\nfrom = \"tap\"\nthrough = [\"router\"]\nto = \"tap\"\n";
    let file = configuration(["192.0.2.1/24", "198.51.100.1/24"], "", host);
    let router = Router::start(&namespaces, &directory, "edge", &file);
    let listed = || router.get("router.routes 100");
    let up = || {
        namespaces.run("edge", "ip link set dev router0 up");
        namespaces.run("edge", "ip address replace 198.51.100.1/24 dev router0");
    };
    up();
    namespaces.run("edge", "ip address add 203.0.113.1/32 dev router0");
    // One that the router cannot use is beside them all the time.
    let add = |route: &str| namespaces.run("edge", &format!("ip route add {route}"));
    add("224.0.0.0/4 via 198.51.100.9");
    add("10.50.0.0/16 via 198.51.100.9");
    add("10.51.0.0/16 via 198.51.100.9 src 203.0.113.1");
    let [first, second] =
        ["10.50.0.0/16", "10.51.0.0/16"].map(|net| format!("{net} via 198.51.100.9 dev b kernel"));
    eventually("the routes", || listed().contains(&first) && listed().contains(&second));
    namespaces.run("edge", "ip address delete 203.0.113.1/32 dev router0");
    eventually("the end of the route with this source", || !listed().contains(&second));
    assert!(listed().contains(&first), "{}", listed());
    namespaces.run("edge", "ip link set dev router0 down");
    eventually("the end of the link's route", || !listed().contains(&first));
    up();
    add("10.50.0.0/16 via 198.51.100.9");
    eventually("the route's return", || listed().contains(&first));
    router.finish();
}

#[test]
fn routes_of_a_bgp_session_arrive_and_go() {
    if !Path::new(DAEMONS).join("bgpd").exists() {
        eprintln!("skipped: needs FRR, which is not installed");
        return;
    }
    let Some(namespaces) = Namespaces::new(&["client", "edge", "peer"], &["ping", "bird", "birdc"]) else {
        return;
    };
    let (directory, daemons) = (folder("bgp"), Daemons::new());
    namespaces
        .run("edge", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    // The addresses are the router's on each link, so that the kernel itself does not answer there.
    namespaces.run("edge", "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.default.arp_ignore=1");
    namespaces.veth(("client", "c0"), ("edge", "a0"));
    namespaces.veth(("edge", "b0"), ("peer", "p0"));
    namespaces.run("client", "ip address add 192.0.2.9/24 dev c0");
    namespaces.run("client", "ip route add default via 192.0.2.1");
    namespaces.run("peer", "ip address add 198.51.100.9/24 dev p0");
    namespaces.run("peer", "ip address add 10.50.0.1/32 dev lo");
    namespaces.run("peer", "ip route add 192.0.2.0/24 via 198.51.100.1");

    let host = "host = \"tap\"\nkernel = \"main\"\n[port.tap]\ndriver = \"tap\"\ndevice = \"router0\"\n\
                [[chain]]\nfrom = \"tap\"\nthrough = [\"router\"]\nto = \"tap\"\n";
    let file = configuration(["192.0.2.1/24", "198.51.100.1/24"], "", host);
    let router = Router::start(&namespaces, &directory, "edge", &file);
    namespaces.run("edge", "ip link set dev router0 up");
    namespaces.run("edge", "ip address add 198.51.100.1/24 dev router0");
    namespaces.run("edge", "ip address add 192.0.2.1/24 dev router0");
    // The host's packets go out, and answers come in.
    namespaces.run("edge", "ping -n -q -c 1 -W 60 198.51.100.9");
    namespaces.run("client", "ping -n -q -c 1 -W 60 192.0.2.1");

    let reaches = |address: &str| {
        let ping = namespaces.attempt("client", &format!("ping -n -c 1 -W 5 {address}"));
        (ping.status.success(), String::from_utf8_lossy(&ping.stdout).into_owned())
    };
    let (arrived, said) = reaches("10.50.0.1");
    assert!(!arrived && said.contains("Destination Net Unreachable"), "{said}");

    start(&namespaces, &daemons, "zebra", "hostname edge\n");
    eventually("zebra's socket", || daemons.0.join("zserv.api").exists());
    let bgp = "router bgp 65001\n bgp router-id 198.51.100.1\n no bgp ebgp-requires-policy\n \
               neighbor 198.51.100.9 remote-as 65002\n neighbor 198.51.100.9 timers 1 3\n \
               neighbor 198.51.100.9 timers connect 1\n";
    start(&namespaces, &daemons, "bgpd", bgp);
    let bird = "router id 198.51.100.9;\nprotocol device {}\n\
                protocol static feed { ipv4; route 10.50.0.0/16 blackhole; route 10.51.0.0/16 blackhole; }\n\
                protocol bgp up { local 198.51.100.9 as 65002; neighbor 198.51.100.1 as 65001; hold time 3; \
                connect retry time 1; connect delay time 1; ipv4 { import none; export all; next hop self; }; }\n";
    daemons.write("bird.conf", bird);
    let [conf, control, pid] = ["bird.conf", "bird.ctl", "bird.pid"].map(|name| daemons.path(name));
    namespaces.run("peer", &format!("bird -c {conf} -s {control} -P {pid}"));

    let listed = || router.get("router.routes 100");
    let learnt = "10.50.0.0/16 via 198.51.100.9 dev b kernel";
    eventually("the route's arrival", || listed().contains(learnt));
    assert!(listed().contains("10.51.0.0/16 via 198.51.100.9 dev b kernel"), "{}", listed());
    eventually("an answer by the route", || reaches("10.50.0.1").0);

    // One route is withdrawn, and then the session ends.
    daemons.write("bird.conf", &bird.replace("route 10.51.0.0/16 blackhole;", ""));
    namespaces.run("peer", &format!("birdc -s {control} configure"));
    eventually("the withdrawal", || !listed().contains("10.51.0.0/16"));
    assert!(listed().contains(learnt), "{}", listed());
    namespaces.run("peer", &format!("birdc -s {control} down"));
    eventually("the end of all routes", || !listed().contains(learnt));
    let (arrived, said) = reaches("10.50.0.1");
    assert!(!arrived && said.contains("Destination Net Unreachable"), "{said}");
    let report = router.finish();
    assert!(report["dropped"]["no-route"].as_u64().is_some_and(|count| count >= 2), "{report}");
}
