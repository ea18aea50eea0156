//! A NAT between real hosts: `curl`, `iperf3`, a STUN client and coturn's discovery see what a NAT should be.
//!
//! The server's namespace is the router of the hosts inside and has the outside network on the same link.

use netbricks_testkit::namespace::{Process, eventually};

use super::fixture::{Driver, Run, Segment};

/// The server's second outside address, which NAT discovery needs.
const SECOND: &str = "203.0.113.2";

/// The client inside, the server outside, and the NAT between them; `more` are settings of the NAT.
fn between(test: &str, commands: &[&str], more: &str) -> Option<(Segment, Run)> {
    Some(start(Segment::new(test, Driver::AfPacket, commands)?, more))
}

/// As [`between`], in a segment.
fn start(segment: Segment, more: &str) -> (Segment, Run) {
    let spaces = &segment.namespaces;
    spaces.run("client", "ip address flush dev c0 scope global");
    spaces.run("server", "ip address flush dev s0 scope global");
    spaces.run("client", "ip address add 10.1.0.2/24 dev c0");
    spaces.run("client", "ip address add 10.1.0.3/24 dev c0");
    spaces.run("client", "ip route add default via 10.1.0.1");
    spaces.run("server", "ip address add 10.1.0.1/24 dev s0");
    spaces.run("server", "ip address add 203.0.113.1/24 dev s0");
    spaces.run("server", &format!("ip address add {SECOND}/24 dev s0"));
    let configuration = format!(
        "{}[function.nat]\nuse = \"nat\"\ninside = [\"10.1.0.0/24\"]\ninside_ports = [\"left\"]\n\
         pool = [\"203.0.113.8/31\"]\n{more}\
         [[chain]]\nfrom = \"left\"\nthrough = [\"nat\"]\nto = \"right\"\n\
         [[chain]]\nfrom = \"right\"\nthrough = [\"nat\"]\nto = \"left\"\n",
        segment.ports()
    );
    let run = segment.start(&configuration, &[]);
    eventually("the first answer", || {
        segment.namespaces.attempt("client", "ping -q -c 1 -W 1 203.0.113.1").status.success()
    });
    (segment, run)
}

fn counts(report: &serde_json::Value) -> serde_json::Value {
    let sections = report["sections"].as_array().cloned().unwrap_or_default();
    sections
        .iter()
        .find(|section| section["title"] == "outside addresses")
        .map_or_else(|| panic!("{report}"), |section| section["counts"].clone())
}

/// A web server that tells each client the address and port from which it came.
const SERVER: &str = "
import http.server
class Teller(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ('%s %d\\n' % self.client_address[:2]).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
Server(('', 8080), Teller).serve_forever()
";

#[test]
fn a_hundred_downloads_at_once_come_from_one_address_and_a_hundred_ports() {
    let Some((segment, run)) = between("nat-curl", &["ping", "curl", "python3"], "") else { return };
    let _server = segment.serve("server", &["python3", "-c", SERVER]);
    eventually("the web server's start", || {
        segment.namespaces.attempt("server", "curl -sf -o /dev/null http://127.0.0.1:8080/").status.success()
    });
    let urls = vec!["http://203.0.113.1:8080/"; 100].join(" ");
    let said = segment.namespaces.run(
        "client",
        &format!("curl -sSf --max-time 300 --parallel --parallel-immediate --parallel-max 100 --no-keepalive -H Connection:close {urls}"),
    );
    let mut from: Vec<&str> = said.lines().collect();
    assert_eq!(from.len(), 100, "{said}");
    from.sort_unstable();
    from.dedup();
    let addresses: std::collections::BTreeSet<&str> =
        from.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(addresses.len(), 1, "paired pooling: {addresses:?}");
    assert!(addresses.iter().all(|address| address.starts_with("203.0.113.")), "{addresses:?}");
    let counts = counts(&run.finish());
    assert!(counts["sessions_made"].as_u64().unwrap_or(0) >= from.len() as u64, "{counts}");
}

#[test]
fn iperf3_runs_both_ways() {
    let Some((segment, run)) = between("nat-iperf3", &["ping", "iperf3"], "") else { return };
    let _server = segment.serve("server", &["iperf3", "-s", "-J"]);
    for options in ["", "-R", "-u -b 20M", "-u -b 20M -R"] {
        let mut said = String::new();
        eventually("a measurement", || {
            let line = format!("iperf3 -c 203.0.113.1 -n 1M -J {options}");
            let output = segment.namespaces.attempt("client", &line);
            said = String::from_utf8_lossy(&output.stdout).into_owned();
            // In JSON it tells errors, such as a busy server, and ends well.
            output.status.success() && !said.contains("\"error\"")
        });
        let result: serde_json::Value = serde_json::from_str(&said).expect("iperf3 prints JSON");
        let sums = &result["end"];
        let bytes =
            if options.contains("-u") { &sums["sum"]["bytes"] } else { &sums["sum_received"]["bytes"] };
        assert!(bytes.as_u64().unwrap_or(0) > 100_000, "`{options}`: {said}");
    }
    run.finish();
}

/// coturn's discovery finds the behaviour that RFC 5780 names.
#[test]
fn coturns_discovery_sees_endpoint_independence() {
    let commands = ["ping", "turnserver", "turnutils_natdiscovery"];
    for (filtering, expected) in [
        ("endpoint-independent", "NAT with Endpoint Independent Filtering!"),
        ("address-dependent", "NAT with Address Dependent Filtering!"),
        ("address-and-port-dependent", "NAT with Address and Port Dependent Filtering!"),
    ] {
        let more = format!("filtering = \"{filtering}\"\n");
        let Some((segment, run)) = between(&format!("nat-discovery-{}", filtering.len()), &commands, &more)
        else {
            return;
        };
        let _server = stun_server(&segment);
        let mut said = String::new();
        eventually("an answer of the STUN server", || {
            let output = segment.namespaces.attempt("client", "turnutils_natdiscovery -m -f 203.0.113.1");
            said = String::from_utf8_lossy(&output.stdout).into_owned();
            said.contains("Mapping!") && said.contains("Filtering!")
        });
        assert!(said.contains("NAT with Endpoint Independent Mapping!"), "{said}");
        assert!(said.contains(expected), "{filtering}: {said}");
        run.finish();
    }
}

/// A STUN server behind the NAT, on both addresses, which NAT discovery needs.
fn stun_server(segment: &Segment) -> Process {
    let directory = segment.directory.display().to_string();
    let pid = format!("{directory}/turn.pid");
    let users = format!("{directory}/turn.db");
    let only_stun = ["turnserver", "-n", "--no-auth", "--stun-only", "--no-tls", "--no-dtls", "--no-cli"];
    let rest =
        ["-L", "203.0.113.1", "-L", SECOND, "--log-file", "stdout", "--pidfile", &pid, "--userdb", &users];
    segment.serve("server", &[&only_stun[..], &rest].concat())
}

/// The STUN client of Debian's `stun-client` (RFC 3489) names a NAT by its kind.
#[test]
fn a_stun_client_sees_endpoint_independence() {
    let commands = ["ping", "turnserver", "stun"];
    let Some((segment, run)) = between("nat-stun", &commands, "") else { return };
    let _server = stun_server(&segment);
    let mut said = String::new();
    eventually("an answer of the STUN server", || {
        let output = segment.namespaces.attempt("client", "stun 203.0.113.1 -v");
        said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        said.contains("Primary:") && !said.contains("Blocked")
    });
    assert!(said.contains("Independent Mapping"), "{said}");
    assert!(said.contains("Independent Filter"), "{said}");
    run.finish();
}

/// A port leads inside: from outside, and from another host on the inside's link.
#[test]
fn a_forwarded_port_is_reached_from_both_sides() {
    let more = "static = [\"tcp 203.0.113.8:80 -> 10.1.0.3:8080\"]\n";
    let commands = ["ping", "curl", "python3"];
    let Some(segment) = Segment::with(&["second"], "nat-forward", Driver::AfPacket, &commands) else {
        return;
    };
    let (segment, run) = start(segment, more);
    // The second host is on the client's link, with an Ethernet address of its own.
    let second = segment.namespaces.name("second");
    let line = format!("ip link add link c0 name m0 netns {second} type macvlan mode bridge");
    segment.namespaces.run("client", &line);
    for line in ["link set dev m0 up", "address add 10.1.0.4/24 dev m0", "route add default via 10.1.0.1"] {
        segment.namespaces.run("second", &format!("ip {line}"));
    }
    let _server = segment.serve("client", &["python3", "-c", SERVER]);
    eventually("the web server's start", || {
        segment.namespaces.attempt("client", "curl -sf -o /dev/null http://127.0.0.1:8080/").status.success()
    });
    // The client is asked for its Ethernet address first.
    let said = segment.namespaces.run("second", "curl -sSf --max-time 60 http://203.0.113.8/");
    assert!(said.starts_with("203.0.113.8 ") || said.starts_with("203.0.113.9 "), "{said}");
    let said = segment
        .namespaces
        .run("server", "curl -sSf --max-time 60 --interface 203.0.113.1 http://203.0.113.8/");
    assert!(said.starts_with("203.0.113.1 "), "{said}");
    run.finish();
}

/// Asks the gateway by PCP (RFC 6887) for a mapping of port 8080 of TCP, and prints the answer's numbers.
const ASKING: &str = "
import socket, struct, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.bind(('10.1.0.2', 0))
asking.settimeout(60)
mapped = lambda address: b'\\0' * 10 + b'\\xff' * 2 + socket.inet_aton(address)
def ask(lifetime):
    header = struct.pack('!BBHI', 2, 1, 0, lifetime) + mapped('10.1.0.2')
    body = b'real-client!' + struct.pack('!B3xHH', 6, 8080, 0) + mapped('0.0.0.0')
    asking.sendto(header + body, ('10.1.0.1', 5351))
    answer, server = asking.recvfrom(2048)
    assert server == ('10.1.0.1', 5351), server
    code, seconds = struct.unpack('!3xBI', answer[:8])
    print(code, seconds, socket.inet_ntoa(answer[56:60]), struct.unpack('!H', answer[42:44])[0])
ask(int(sys.argv[1]))
";

/// A real socket's request is answered, and the world reaches the host until it ends the mapping.
#[test]
fn a_host_maps_a_port_by_pcp_and_is_reached_from_outside() {
    let more = "pcp = \"10.1.0.1\"\nhold_down = \"0 s\"\n";
    let Some((segment, run)) = between("nat-pcp", &["ping", "curl", "python3"], more) else { return };
    let _server = segment.serve("client", &["python3", "-c", SERVER]);
    eventually("the web server's start", || {
        segment.namespaces.attempt("client", "curl -sf -o /dev/null http://127.0.0.1:8080/").status.success()
    });
    let script = segment.directory.join("asking.py");
    std::fs::write(&script, ASKING).expect("a file in the test's directory");
    let ask = |seconds: u32| -> Vec<String> {
        let said = segment.namespaces.run("client", &format!("python3 {} {seconds}", script.display()));
        said.split_whitespace().map(str::to_owned).collect()
    };
    let answer = ask(3_600);
    let [code, seconds, address, port] = answer.as_slice() else { panic!("{answer:?}") };
    assert_eq!((code.as_str(), seconds.as_str()), ("0", "3600"));
    assert!(address.starts_with("203.0.113."), "{address}");
    let line = format!("curl -sSf --max-time 60 --interface 203.0.113.1 http://{address}:{port}/");
    let said = segment.namespaces.run("server", &line);
    assert!(said.starts_with("203.0.113.1 "), "{said}");
    assert_eq!(ask(0)[..2], ["0".to_owned(), "0".to_owned()]);
    let counts = counts(&run.finish());
    assert_eq!((&counts["pcp_requests"], &counts["pcp_refused"]), (&2.into(), &0.into()), "{counts}");
    assert_eq!(counts["pcp_mappings"], 0, "{counts}");
}
