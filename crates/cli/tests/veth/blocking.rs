//! `curl` through `http-inspect` inline.
//!
//! Connections to blocked hosts are reset before their server sees anything; answers of other hosts arrive
//! whole.

use netbricks_testkit::namespace::eventually;

use super::fixture::{Driver, Segment};

/// A server that answers every request with two million bytes, and writes down the requested hosts.
const SERVER: &str = "
import sys, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(sys.argv[1], 'a') as asked:
            asked.write(self.headers['Host'] + '\\n')
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'0123456789' * 200000)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(('10.0.0.2', 8080), Handler).serve_forever()
";

/// Asks for a host in two writes.
///
/// Between them, the first one is retransmitted, because it is not acknowledged.
const SLOWLY: &str = "
import socket, sys, time
client = socket.create_connection(('10.0.0.2', 8080), timeout=120)
client.sendall(b'GET / HTTP/1.1\\r\\nConnection: close\\r\\nHost: ')
time.sleep(1.5)
client.sendall(sys.argv[1].encode() + b'\\r\\n\\r\\n')
count = 0
while True:
    some = client.recv(65536)
    if not some:
        break
    count += len(some)
print(count)
";

#[test]
fn curl_is_cut_off_from_blocked_hosts_alone() {
    let Some(segment) = Segment::new("blocking", Driver::AfPacket, &["ping", "curl", "python3", "ethtool"])
    else {
        return;
    };
    for (role, device) in [("client", "c0"), ("server", "s0")] {
        segment.namespaces.run(role, &format!("ethtool -K {device} tso off gso off gro off"));
    }
    let run = segment.start(
        &format!(
            "{}[function.web]\nuse = \"http-inspect\"\nports = [8080]\nblock = [\"bad.example\"]\n\
             [[chain]]\nfrom = \"left\"\nthrough = [\"web\"]\nto = \"right\"\n\
             [[chain]]\nfrom = \"right\"\nthrough = [\"web\"]\nto = \"left\"\n",
            segment.ports()
        ),
        &[],
    );
    segment.settle();
    let asked = segment.directory.join("asked");
    let path = asked.display().to_string();
    let _server = segment.namespaces.start(
        "server",
        "python3",
        &["-c", SERVER, &path],
        segment.file("web"),
        segment.file("web-errors"),
    );
    eventually("the web server's start", || {
        segment.namespaces.attempt("server", "curl -sf -o /dev/null http://10.0.0.2:8080/").status.success()
    });
    let ask = |host: &str| {
        let line = "curl -s -o /dev/null --max-time 120 -w %{size_download} http://HOST:8080/ --resolve HOST:8080:10.0.0.2";
        let output = segment.namespaces.attempt("client", &line.replace("HOST", host));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for _ in 0..3 {
        assert_eq!(ask("good.example"), (Some(0), "2000000".into()));
        // Its connection was reset (curl's code 56).
        assert_eq!(ask("www.bad.example"), (Some(56), "0".into()));
    }
    let slowly = segment.directory.join("slowly.py");
    std::fs::write(&slowly, SLOWLY).expect("the directory can be written");
    let output = segment.namespaces.attempt("client", &format!("python3 {} good.example", slowly.display()));
    let count: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_default();
    assert!(count > 2_000_000, "{count} bytes: {}", String::from_utf8_lossy(&output.stderr));
    let asked = std::fs::read_to_string(&asked).expect("the server wrote it");
    assert!(!asked.contains("bad.example"), "{asked}");
    assert_eq!(asked.matches("good.example").count(), 4);
    let report = run.finish();
    assert!(report["dropped"].to_string().contains("denied"), "{report}");
}
