//! Packets that functions make, received by the kernel's stack at the other end.

use super::fixture::{Driver, Segment, assert_all_answered, ten_pings};

/// A host's stack finds the address by ARP and by neighbour discovery, and gets its pings answered.
#[test]
fn icmp_echo_is_a_pingable_host() {
    let Some(segment) = Segment::new("echo", Driver::AfPacket, &["ping"]) else { return };
    let configuration = "[port.left]\ndriver = \"af_packet\"\ndevice = \"b0\"\n[port.sink]\ndriver = \"null\"\n\
        [function.host]\nuse = \"icmp-echo\"\nv4 = \"10.0.0.9\"\nv6 = \"fd00::9\"\n\
        [[chain]]\nfrom = \"left\"\nthrough = [\"host\"]\nto = \"sink\"\n";
    let run = segment.start(configuration, &[]);
    for address in ["10.0.0.9", "fd00::9"] {
        for bytes in [0, 56, 1400] {
            let line = ten_pings(&format!("-s {bytes} {address}"));
            assert_all_answered(&segment.namespaces.run("client", &line), 64);
        }
    }
    let neighbours = segment.namespaces.run("client", "ip neigh show dev c0");
    assert_eq!(neighbours.matches("02:4e:42:00:00:01").count(), 2, "{neighbours}");
    // No other address answers.
    assert!(!segment.namespaces.attempt("client", "ping -q -c 1 -W 1 10.0.0.8").status.success());
    let report = run.finish();
    assert_eq!(report["dropped"], serde_json::json!({}), "{report}");
}

/// `ttl` answers expired packets, so that a route can be traced through it.
#[test]
fn ttl_is_a_hop_that_shows() {
    let Some(segment) = Segment::new("hop", Driver::AfPacket, &["ping"]) else { return };
    let run = segment.start(&segment.chains("answer_v4 = \"10.0.0.254\"\nanswer_v6 = \"fd00::fe\"\n"), &[]);
    segment.settle();
    for (role, address, hop) in [
        ("client", "10.0.0.2", "10.0.0.254"),
        ("client", "fd00::2", "fd00::fe"),
        ("server", "10.0.0.1", "10.0.0.254"),
        ("server", "fd00::1", "fd00::fe"),
    ] {
        let line = format!("ping -n -c 3 -i 0.02 -W 60 -t 1 {address}");
        let said = segment.namespaces.attempt(role, &line);
        let said = String::from_utf8_lossy(&said.stdout).to_lowercase();
        let exceeded = said
            .lines()
            .filter(|line| line.contains(&format!("from {hop}")) && line.contains("exceeded"))
            .count();
        assert_eq!(exceeded, 3, "{line}: {said}");
        // With one hop more, the packet arrives.
        segment.namespaces.run(role, &format!("ping -n -q -c 1 -W 60 -t 2 {address}"));
    }
    let report = run.finish();
    assert_eq!(report["created"], 12, "{report}");
    assert_eq!(report["dropped"], serde_json::json!({"ttl-expired": 12}), "{report}");
}
