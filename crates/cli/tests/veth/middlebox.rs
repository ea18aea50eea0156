//! mmb between real hosts: transfers through every kind of rewrite on a bad line.
//!
//! `ping` and path MTU discovery go through `map`.

use std::fmt::Write;

use netbricks_testkit::namespace::{Process, eventually};
use serde_json::Value;

use super::fixture::{Driver, Run, Segment};

/// The address by which the client is known outside.
const MAPPED: [&str; 2] = ["10.0.0.9", "fd00::9"];

/// Bytes of a download, and of an upload.
const SIZE: usize = 50_000_000;

/// A web server with a file of pseudorandom bytes.
///
/// It answers an upload's hash, and what it knows of its client.
///
/// Python has no other name for the sixth byte of `tcp_info`: the options that both ends agreed on.
const SERVER: &str = "
import hashlib, http.server, random, socket, sys
SIZE = int(sys.argv[1])
BYTES = random.Random(31).randbytes(SIZE)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self, body):
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == '/file':
            return self.answer(BYTES)
        if self.path == '/hash':
            return self.answer(hashlib.sha256(BYTES).hexdigest().encode())
        size = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        options = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
        self.answer(('%s %d %d' % (self.client_address[0].removeprefix('::ffff:'), size, options)).encode())
    def do_PUT(self):
        left, found = int(self.headers['Content-Length']), hashlib.sha256()
        while left:
            part = self.rfile.read(min(left, 65536))
            if not part:
                return
            found.update(part)
            left -= len(part)
        self.answer(found.hexdigest().encode())
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server(('::', 8080), Handler).serve_forever()
";

/// A run with these rules between client and server; `port` is settings of both ports.
fn start(segment: &Segment, port: &str, rules: &[&str]) -> Run {
    let mut configuration = segment.ports();
    for name in ["left", "right"] {
        let head = format!("[port.{name}]\n");
        configuration = configuration.replace(&head, &format!("{head}{port}"));
    }
    let lines: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
    write!(
        configuration,
        "[function.edge]\nuse = \"mmb\"\nlines = [{}]\n\
         [[chain]]\nfrom = \"left\"\nthrough = [\"edge\"]\nto = \"right\"\n\
         [[chain]]\nfrom = \"right\"\nthrough = [\"edge\"]\nto = \"left\"\n",
        lines.join(", ")
    )
    .expect("a string takes all");
    // Answers to the client's other address go to the client.
    let shown = segment.namespaces.run("client", "cat /sys/class/net/c0/address");
    for address in MAPPED {
        let line = format!("ip neighbour add {address} lladdr {} dev s0 nud permanent", shown.trim());
        segment.namespaces.run("server", &line);
    }
    segment.start(&configuration, &[])
}

/// Starts the web server of this role, with a file of so many bytes.
fn serve(segment: &Segment, role: &str, size: usize) -> Process {
    let server = segment.serve(role, &["python3", "-c", SERVER, &size.to_string()]);
    eventually("the web server's start", || {
        segment.namespaces.attempt(role, "curl -sf -o /dev/null http://127.0.0.1:8080/hash").status.success()
    });
    server
}

/// The counts of a rule by its name: packets, and those to which it was not applied.
fn counts(report: &Value, name: &str) -> (u64, u64) {
    let sections = report["sections"].as_array().expect("a list");
    let rows = sections.iter().filter(|section| section["title"] == "rules");
    let mut rows = rows.filter_map(|section| section["rows"].as_array()).flatten();
    let row = rows.find(|row| row[0] == name).unwrap_or_else(|| panic!("no rule {name}: {report}"));
    let count = |cell: &Value| cell.as_str().and_then(|text| text.parse().ok()).expect("a number");
    (count(&row[1]), count(&row[3]))
}

/// A download and an upload, whole, through all rewrites on a line that loses and reorders.
fn transfers_are_whole(version: usize) {
    let commands = ["ping", "curl", "python3", "sha256sum", "ethtool"];
    let Some(segment) = Segment::new(&format!("mmb-curl-v{version}"), Driver::AfPacket, &commands) else {
        return;
    };
    // Losses are of packets, and not of what the kernel would cut into packets.
    for (role, device) in [("client", "c0"), ("server", "s0")] {
        segment.namespaces.run(role, &format!("ethtool -K {device} tso off gso off gro off"));
    }
    let (client, server, mapped, modified) = match version {
        4 => ("ip-saddr 10.0.0.1", "10.0.0.2", "map ip-saddr 10.0.0.9 shuffle tcp-sport", "mod ip-dscp 10"),
        _ => (
            "ip6-saddr fd00::1",
            "[fd00::2]",
            "map ip6-saddr fd00::9 map tcp-sport 20000-29999",
            "mod ip6-traffic-class 40",
        ),
    };
    let rules = [
        &format!(
            "add name modified {} tcp-dport 8080 {modified}",
            client.split(' ').next().expect("a field")
        ),
        "add name least tcp-syn tcp-opt-mss > 1300 strip tcp-opt-mss add tcp-opt-mss 1300",
        "add name stripped tcp-opt-timestamp strip tcp-opt-timestamp",
        // RFC 4727: a kind for experiments.
        "add name added tcp-syn add tcp-opt 253 xcafe",
        &format!(
            "add-stateful name mapped tcp-dport 8080 {client} {mapped} shuffle tcp-seq-num shuffle tcp-ack-num"
        ),
    ];
    let bad = "loss = \"1 %\"\nreorder = \"1 %\"\nimpair_direction = \"receive\"\nseed = 31\n";
    let _server = serve(&segment, "server", SIZE);
    let run = start(&segment, bad, &rules);
    let curl = |arguments: &str| {
        let line = format!("curl -sSf -g --retry 5 --retry-all-errors --max-time 500 {arguments}");
        segment.namespaces.run("client", &line)
    };
    let url = format!("http://{server}:8080");
    let told = curl(&format!("{url}/who"));
    // SACK and window scales (bits 1 and 2) stay, timestamps (bit 0) were taken out.
    assert_eq!(told, format!("{} 1300 6", MAPPED[usize::from(version == 6)]));
    let file = segment.directory.join("file");
    let hash = segment.namespaces.run("server", "curl -sf http://127.0.0.1:8080/hash");
    curl(&format!("-o {} {url}/file", file.display()));
    let found = segment.namespaces.run("client", &format!("sha256sum {}", file.display()));
    assert_eq!(found.split(' ').next(), Some(&*hash), "the download differs");
    assert_eq!(std::fs::metadata(&file).expect("the download").len(), SIZE as u64);
    let found = curl(&format!("-T {} {url}/upload", file.display()));
    assert_eq!(found, hash, "the upload differs");
    std::fs::remove_file(&file).expect("it was there");
    let report = run.finish();
    let (lost, least) = (report["dropped"]["impaired"].as_u64().unwrap_or(0), SIZE as u64 / 1_500 / 100);
    assert!(lost > least, "{lost} packets were lost: {report}");
    for name in ["modified", "least", "stripped", "added", "mapped"] {
        let (packets, not_applied) = counts(&report, name);
        assert!(packets > 0 && not_applied == 0, "{name}: {packets}, {not_applied} not applied: {report}");
    }
}

#[test]
fn transfers_over_ipv4_are_whole_through_all_rewrites_on_a_bad_line() {
    transfers_are_whole(4);
}

#[test]
fn transfers_over_ipv6_are_whole_through_all_rewrites_on_a_bad_line() {
    transfers_are_whole(6);
}

#[test]
fn pings_and_path_mtu_errors_come_back_through_map() {
    let commands = ["ping", "curl", "python3", "sha256sum"];
    let Some(segment) = Segment::with(&["far"], "mmb-ping", Driver::AfPacket, &commands) else { return };
    let spaces = &segment.namespaces;
    // The server is a router, to a link on which packets of 1,500 bytes do not fit.
    spaces.veth(("server", "s1"), ("far", "f0"));
    spaces.run("server", "ip link set dev s1 mtu 1300");
    spaces.run("server", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for (role, device, number) in [("server", "s1", 1), ("far", "f0", 2)] {
        spaces.run(role, &format!("ip address add 10.9.0.{number}/24 dev {device}"));
        spaces.run(role, &format!("ip address add fd09::{number}/64 dev {device} nodad"));
    }
    for (via4, via6, role) in [("10.0.0.2", "fd00::2", "client"), ("10.9.0.1", "fd09::1", "far")] {
        spaces.run(role, &format!("ip route add default via {via4}"));
        spaces.run(role, &format!("ip -6 route add default via {via6}"));
    }
    let rules = [
        "add-stateful name pings ip-saddr 10.0.0.1 icmp-type 8 map ip-saddr 10.0.0.9 shuffle icmp-id accept",
        "add-stateful name pings6 ip6-saddr fd00::1 icmp6-type 128 map ip6-saddr fd00::9 shuffle icmp6-id accept",
        "add-stateful name web ip-saddr 10.0.0.1 tcp-dport 8080 map ip-saddr 10.0.0.9 shuffle tcp-sport \
         shuffle tcp-seq-num accept",
        "add-stateful name web6 ip6-saddr fd00::1 tcp-dport 8080 map ip6-saddr fd00::9 shuffle tcp-sport \
         shuffle tcp-seq-num accept",
        // Without the connections, nothing is let back in.
        "add name rest ip-daddr 10.0.0.9 drop",
        "add name rest6 ip6-daddr fd00::9 drop",
    ];
    let _server = serve(&segment, "far", 1_000_000);
    let run = start(&segment, "", &rules);
    for address in ["10.9.0.2", "fd09::2"] {
        eventually("the first answer", || {
            spaces.attempt("client", &format!("ping -q -c 1 -W 1 {address}")).status.success()
        });
    }
    let file = segment.directory.join("file");
    let hash = spaces.run("far", "curl -sf http://127.0.0.1:8080/hash");
    for (address, url, ip) in [("10.9.0.2", "10.9.0.2", "ip"), ("fd09::2", "[fd09::2]", "ip -6")] {
        let said = spaces.run("client", &format!("ping -n -c 3 -i 0.02 -w 60 -s 1000 {address}"));
        assert!(said.contains("1008 bytes from") && said.contains(address), "{said}");
        let narrow = || spaces.run("client", &format!("{ip} route get {address}")).contains("mtu 1300");
        assert!(!narrow(), "the path's MTU is known too soon");
        let said = spaces.attempt("client", &format!("ping -n -c 2 -w 60 -M do -s 1400 {address}"));
        assert!(!said.status.success());
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert!(said.contains("1300"), "the error names the MTU: {said}");
        assert!(narrow(), "the host learnt the path's MTU");
        spaces.run("client", &format!("{ip} route flush cache"));
        assert!(!narrow(), "the path's MTU was forgotten");
        spaces.run(
            "client",
            &format!("curl -sSf -g --max-time 120 -o {} http://{url}:8080/file", file.display()),
        );
        let told = spaces.run("client", &format!("curl -sSf -g --max-time 120 http://{url}:8080/who"));
        assert!(MAPPED.iter().any(|mapped| told.starts_with(&format!("{mapped} "))), "{told}");
        let line = format!("curl -sSf -g --max-time 120 -T {} http://{url}:8080/upload", file.display());
        assert_eq!(spaces.run("client", &line), hash, "the upload differs");
        assert!(narrow(), "TCP learnt the path's MTU");
    }
    let report = run.finish();
    for name in ["pings", "pings6", "web", "web6"] {
        let (packets, not_applied) = counts(&report, name);
        assert!(packets > 0 && not_applied == 0, "{name}: {packets}, {not_applied} not applied: {report}");
    }
}
