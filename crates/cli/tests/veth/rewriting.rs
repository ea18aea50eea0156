//! `curl` through `rewrite-stream`: the download is the server's file, rewritten, also over a line that loses
//! and reorders packets.

use netbricks_testkit::mutate::Random;
use netbricks_testkit::namespace::eventually;

use super::fixture::{Driver, Segment};

/// Size of the download (bytes, before rewriting).
const DOWNLOAD: usize = 50_000_000;
/// A line that, in both directions, loses one packet in a hundred and delays another one.
const LOSSY: &str = "loss = 0.01\nreorder = 0.01\n";
const FIND: &str = "a needle in a haystack";
const REPLACE: &str = "many needles, each of which is longer than the one that was there before";

/// A server that sends a file without a stated length to all clients, and prints its connections' congestion
/// control.
const SERVER: &str = "
import socket, sys, threading
content = open(sys.argv[1], 'rb').read()
listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('::', 8080))
listener.listen()
def serve(connection):
    control = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    print(control.rstrip(b'\\0').decode(), flush=True)
    asked = b''
    while b'\\r\\n\\r\\n' not in asked:
        more = connection.recv(65536)
        if not more:
            return
        asked += more
    connection.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n' + content)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass
    connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Text with the wanted string at random places, some hundred bytes apart, and with beginnings of it.
fn content() -> String {
    let mut random = Random::new(7);
    let mut content = String::with_capacity(DOWNLOAD + 1_000);
    while content.len() < DOWNLOAD {
        for _ in 0..random.below(60) {
            content += &format!("{:x} ", random.next());
        }
        content += &FIND[..random.below(FIND.len())];
        content += FIND;
    }
    content
}

/// Downloads over these lines to the client and to the server; the server uses the given congestion control.
fn downloads(test: &str, control: Option<&str>, lines: [&str; 2], addresses: &[&str]) {
    let length = DOWNLOAD;
    let Some(segment) = Segment::new(test, Driver::AfPacket, &["ping", "curl", "python3", "ethtool"]) else {
        return;
    };
    for (role, device) in [("client", "c0"), ("server", "s0")] {
        // Segments as a wire has them, not larger ones.
        segment.namespaces.run(role, &format!("ethtool -K {device} tso off gso off gro off"));
    }
    if let Some(control) = control {
        // This sets it for this namespace only.
        segment.namespaces.run("server", &format!("sysctl -qw net.ipv4.tcp_congestion_control={control}"));
    }
    let content = &content()[..length];
    let file = segment.directory.join("file");
    std::fs::write(&file, content).expect("the directory can be written");
    let expected = content.replace(FIND, REPLACE);
    assert!(expected.len() > content.len() + length / 100, "there is something to replace");
    let mut ports = segment.ports();
    for (name, line) in ["[port.left]\n", "[port.right]\n"].into_iter().zip(lines) {
        assert!(ports.contains(name));
        ports = ports.replace(name, &format!("{name}{line}"));
    }
    let run = segment.start(
        &format!(
            "{ports}[function.rewrite]\nuse = \"rewrite-stream\"\nfind = \"{FIND}\"\nreplace = \"{REPLACE}\"\n\
             ports = [8080]\n\
             [[chain]]\nfrom = \"left\"\nthrough = [\"rewrite\"]\nto = \"right\"\n\
             [[chain]]\nfrom = \"right\"\nthrough = [\"rewrite\"]\nto = \"left\"\n"
        ),
        &[],
    );
    segment.settle();
    let path = file.display().to_string();
    let _server = segment.namespaces.start(
        "server",
        "python3",
        &["-c", SERVER, &path],
        segment.file("web"),
        segment.file("web-errors"),
    );
    eventually("the web server's start", || {
        segment.namespaces.attempt("server", "curl -sf -o /dev/null http://127.0.0.1:8080/").status.success()
    });
    let copy = segment.directory.join("copy");
    for address in addresses {
        let rate = segment.namespaces.run(
            "client",
            &format!(
                "curl -sSf --max-time 600 -w %{{speed_download}} -o {} http://{address}:8080/",
                copy.display()
            ),
        );
        let received = std::fs::read(&copy).expect("curl wrote it");
        assert_eq!(received.len(), expected.len(), "{address}");
        assert!(received == expected.as_bytes(), "{address}: it is not what was to come");
        eprintln!("{test}, {address}: {:.1} MB/s", rate.trim().parse::<f64>().unwrap_or_default() / 1e6);
    }
    let controls = std::fs::read_to_string(segment.directory.join("web")).unwrap_or_default();
    assert!(control.is_none_or(|control| controls.lines().all(|line| line == control)), "{controls}");
    assert!(controls.lines().count() > addresses.len(), "one for each connection: {controls}");
    let report = run.finish();
    let consumed = report["consumed"].as_u64().unwrap_or_default();
    assert!(consumed > length as u64 / 1_500, "{report}");
    let lost = report["dropped"]["impaired"].as_u64().unwrap_or_default();
    assert!(lost > 100 || lines.iter().all(|line| line.is_empty()), "{report}");
    eprintln!("{test}: dropped {}", report["dropped"]);
}

#[test]
fn curl_sees_what_was_rewritten() {
    downloads("rewriting", None, ["", ""], &["10.0.0.2", "[fd00::2]"]);
}

#[test]
fn curl_sees_it_also_with_loss_and_reordering() {
    downloads("rewriting-lossy", None, ["", LOSSY], &["10.0.0.2"]);
}

/// Rewritten segments are lost on their way to the client.
///
/// The client asks for them again, also by selective acknowledgments.
#[test]
fn curl_sees_it_also_where_what_was_rewritten_is_lost() {
    downloads("rewriting-lost", None, [LOSSY, ""], &["10.0.0.2", "[fd00::2]"]);
}

/// Lines on both sides lose packets, so the holes before the function and behind it differ.
#[test]
fn curl_sees_it_also_over_two_bad_lines() {
    downloads("rewriting-twice", None, [LOSSY, LOSSY], &["10.0.0.2"]);
}

/// BBR sends by its measurements of the line, not by losses.
///
/// It must see acknowledgments and time stamps of a plausible line.
#[test]
fn curl_sees_it_also_with_loss_from_a_server_that_uses_bbr() {
    let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let controls = std::fs::read_to_string(available).unwrap_or_default();
    if !controls.split_whitespace().any(|control| control == "bbr") {
        eprintln!(
            "skipped: needs congestion control by bbr (`modprobe tcp_bbr`); the kernel has {}",
            controls.trim()
        );
        return;
    }
    downloads("rewriting-bbr", Some("bbr"), ["", "loss = 0.01\n"], &["10.0.0.2"]);
}
