//! `load-balancer` before two real web servers, of which one stops and comes back.
//!
//! Both servers are on the link behind the balancer: `server` has 10.0.0.2, `second` 10.0.0.3. The client sends what is for
//! the service to 10.0.0.2, as to a router. The checks of health reach each server by a link of their own.

use std::collections::BTreeMap;
use std::path::Path;

use netbricks_testkit::namespace::{Process, eventually};

use super::fixture::{Driver, Run, Segment};

/// The address of the service.
const SERVICE: &str = "198.51.100.1";
/// Of each server: its name, its namespace, its device, its address and its Ethernet address.
const SERVERS: [(&str, &str, &str, &str, &str); 2] = [
    ("web-1", "server", "s0", "10.0.0.2", "02:00:00:00:00:02"),
    ("web-2", "second", "m0", "10.0.0.3", "02:00:00:00:00:03"),
];

/// The client, both servers, and the links for checks. `None` if the test cannot run.
fn servers(test: &str) -> Option<Segment> {
    let commands = ["ping", "curl", "nginx", "python3"];
    let segment = Segment::with(&["second"], test, Driver::AfPacket, &commands)?;
    let spaces = &segment.namespaces;
    // The second server is on the first one's link, with an Ethernet address of its own.
    let second = spaces.name("second");
    spaces.run("server", &format!("ip link add link s0 name m0 netns {second} type macvlan mode bridge"));
    for (number, (_, role, device, address, station)) in SERVERS.iter().enumerate() {
        spaces.run(role, &format!("ip link set dev {device} address {station}"));
        spaces.run(role, &format!("ip link set dev {device} up"));
        if *role == "second" {
            spaces.run(role, &format!("ip address add {address}/24 dev {device}"));
        }
        spaces.run(role, "ip link set dev lo up");
        let (here, there) = (format!("h{number}"), format!("g{number}"));
        spaces.veth(("middle", &here), (role, &there));
        spaces.run("middle", &format!("ip address add 10.9.{number}.1/24 dev {here}"));
        spaces.run(role, &format!("ip address add 10.9.{number}.2/24 dev {there}"));
        spaces.run("middle", &format!("ip route add {address}/32 via 10.9.{number}.2"));
    }
    spaces.run("client", &format!("ip route add {SERVICE}/32 via 10.0.0.2"));
    Some(segment)
}

/// A web server that tells its name, its own address and the client's.
fn serve(segment: &Segment, (name, role, ..): (&str, &str, &str, &str, &str)) -> Process {
    let folder = segment.directory.join(name);
    std::fs::create_dir_all(&folder).expect("the directory can be written");
    let shown = folder.display();
    let configuration = format!(
        "user root;\nworker_processes 1;\ndaemon off;\npid {shown}/nginx.pid;\nerror_log {shown}/nginx.log;\n\
         events {{ worker_connections 64; }}\nhttp {{ access_log off;\n\
         server {{ listen 8080; location / {{ return 200 \"{name} $server_addr $remote_addr\\n\"; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration).expect("the directory can be written");
    let (file, log, shown) =
        (file.display().to_string(), folder.join("nginx.log").display().to_string(), shown.to_string());
    let words = ["-p", &shown, "-e", &log, "-c", &file];
    let (stdout, stderr) = (format!("{name}-web"), format!("{name}-errors"));
    segment.namespaces.start(role, "nginx", &words, segment.file(&stdout), segment.file(&stderr))
}

/// A run of the balancer.
struct Balancer {
    run: Run,
}

impl Balancer {
    /// Starts it; both servers count as well when this returns.
    fn start(segment: &Segment, settings: &str) -> Self {
        let servers = SERVERS.map(|(name, _, _, address, station)| {
            let port = if settings.contains("\"nat\"") { ":8080" } else { "" };
            format!("\"{name} {address}{port} {station}\"")
        });
        // A check that takes long on a busy machine is no failure; one that is refused is one at once.
        let configuration = format!(
            "{}[function.balance]\nuse = \"load-balancer\"\nservers = [{}]\naddresses = [\"{SERVICE}\"]\n{settings}\
             health_interval = \"100 ms\"\nhealth_timeout = \"60 s\"\nfall = 2\nrise = 2\n\
             [[chain]]\nfrom = \"left\"\nthrough = [\"balance\"]\nto = \"right\"\n\
             [[chain]]\nfrom = \"right\"\nthrough = [\"balance\"]\nto = \"left\"\n",
            segment.ports(),
            servers.join(", "),
        );
        let run = segment.start_with_socket(&configuration, &[]);
        segment.answered(&SERVERS.map(|(_, _, _, address, _)| address));
        Self { run }
    }

    /// Waits until the checks say this of a server.
    fn wait(&self, name: &str, state: &str) {
        eventually(&format!("{name} to be {state}"), || {
            let servers = self.run.command("get", &["balance.servers"]);
            servers.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.contains(&name) && words.last() == Some(&state)
            })
        });
    }

    /// Ends it: the counts of its report.
    fn finish(self) -> serde_json::Value {
        let report = self.run.finish();
        assert_eq!(report["dropped"], serde_json::json!({}), "{report}");
        let sections = report["sections"].as_array().cloned().unwrap_or_default();
        let of = sections.iter().find(|section| section["title"] == "servers");
        of.map_or_else(|| panic!("{report}"), |section| section["counts"].clone())
    }
}

/// Connects so many times, each time for one page; how often each line was answered.
fn pages(segment: &Segment, count: usize, url: &str) -> BTreeMap<String, usize> {
    let urls = vec![url; count].join(" ");
    let line = format!("curl -sSf --max-time 300 --no-keepalive -H Connection:close {urls}");
    let said = segment.namespaces.run("client", &line);
    let mut answers = BTreeMap::new();
    said.lines().for_each(|line| *answers.entry(line.to_owned()).or_default() += 1);
    assert_eq!(answers.values().sum::<usize>(), count, "{said}");
    answers
}

/// Waits until both web servers answer themselves.
fn await_web(segment: &Segment, role: &str) {
    eventually("the web server's start", || {
        let line = "curl -sf -o /dev/null http://127.0.0.1:8080/";
        segment.namespaces.attempt(role, line).status.success()
    });
}

/// A server that answers each datagram with a name.
const ECHO: &str = "
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(('0.0.0.0', 8080))
print('ready', flush=True)
while True:
    _, sender = end.recvfrom(99)
    end.sendto(sys.argv[1].encode(), sender)
";

/// Asks the service from one port, again and again until it answers; prints the answer.
const ASK: &str = "
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(('10.0.0.1', 5000))
end.connect((sys.argv[1], 80))
end.settimeout(60)
end.send(b'who')
print(end.recv(99).decode())
";

fn ask(segment: &Segment) -> String {
    let output = segment.namespaces.command("client", "python3").args(["-c", ASK, SERVICE]).output();
    let output = output.expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_ready(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains("ready"))
}

#[test]
fn connections_go_round_and_move_from_a_server_that_stops() {
    let Some(segment) = servers("balance-nat") else { return };
    let mut webs: Vec<Process> = SERVERS.iter().map(|server| serve(&segment, *server)).collect();
    let _echoes = SERVERS.map(|(name, role, ..)| {
        let (stdout, stderr) = (format!("{name}-echo"), format!("{name}-echo-errors"));
        let (stdout, stderr) = (segment.file(&stdout), segment.file(&stderr));
        segment.namespaces.start(role, "python3", &["-c", ECHO, name], stdout, stderr)
    });
    for (name, role, ..) in SERVERS {
        await_web(&segment, role);
        eventually("the echo's start", || is_ready(&segment.directory.join(format!("{name}-echo"))));
    }
    let settings = "mode = \"nat\"\nport = 80\npolicy = \"round-robin\"\nhealth = \"http\"\n";
    let balancer = Balancer::start(&segment, settings);
    let url = format!("http://{SERVICE}/");
    // Servers see their own address and the client's.
    let answer =
        |(name, _, _, address, _): (&str, &str, &str, &str, &str)| format!("{name} {address} 10.0.0.1");
    let round = SERVERS.map(|server| (answer(server), 10));
    assert_eq!(pages(&segment, 20, &url), BTreeMap::from(round));

    // A flow is at one of them. That one's web server stops, so that it counts as down, and the flow moves.
    let first = ask(&segment);
    assert_eq!(ask(&segment), first);
    let stopped = SERVERS.iter().position(|(name, ..)| *name == first).expect("it is one of them");
    let (down, other) = (SERVERS[stopped], SERVERS[1 - stopped]);
    webs[stopped].signal("TERM");
    webs[stopped].wait();
    balancer.wait(down.0, "down");
    assert_eq!(ask(&segment), other.0);
    assert_eq!(pages(&segment, 20, &url), BTreeMap::from([(answer(other), 20)]));

    // It comes back for new connections; the flow stays.
    webs[stopped] = serve(&segment, down);
    balancer.wait(down.0, "up");
    let again = pages(&segment, 20, &url);
    assert!(SERVERS.iter().all(|server| again[&answer(*server)] >= 9), "{again:?}");
    assert_eq!(ask(&segment), other.0);

    let counts = balancer.finish();
    assert_eq!(
        (counts["new_connection_packets"].as_u64(), counts["moved_connections"].as_u64()),
        (Some(61), Some(1)),
        "{counts}"
    );
    assert_eq!(counts["unremembered_packets"], 0, "{counts}");
}

/// Servers have the service's address themselves, and answer ARP only for their own.
#[test]
fn servers_that_have_the_address_themselves_are_chosen_by_their_ethernet_address() {
    let Some(segment) = servers("balance-dsr") else { return };
    for (_, role, ..) in SERVERS {
        segment
            .namespaces
            .run(role, "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
        segment.namespaces.run(role, &format!("ip address add {SERVICE}/32 dev lo"));
    }
    let _webs = SERVERS.map(|server| serve(&segment, server));
    SERVERS.iter().for_each(|(_, role, ..)| await_web(&segment, role));
    let settings = "mode = \"dsr\"\nport = 8080\nhealth = \"tcp\"\n";
    let balancer = Balancer::start(&segment, settings);
    let url = format!("http://{SERVICE}:8080/");
    let answer = |name: &str| format!("{name} {SERVICE} 10.0.0.1");
    let both = pages(&segment, 60, &url);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(SERVERS.iter().all(|(name, ..)| both.contains_key(&answer(name))), "{both:?}");
    balancer.run.command("set", &["balance.drain", "web-1"]);
    assert_eq!(pages(&segment, 20, &url), BTreeMap::from([(answer("web-2"), 20)]));
    let counts = balancer.finish();
    assert_eq!(
        (counts["new_connection_packets"].as_u64(), counts["moved_connections"].as_u64()),
        (Some(80), Some(0)),
        "{counts}"
    );
    assert_eq!(counts["answers"], 0, "{counts}");
}
