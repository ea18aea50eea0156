//! Click instances between the stacks of two hosts: one answers pings, another routes them.

use super::fixture::{Driver, Segment, assert_all_answered, ten_pings};

/// A function whose switch joins both ports, and instances that the file declares.
fn configuration(segment: &Segment, instances: &str) -> String {
    format!(
        "{}workers = 1\n[function.host]\nuse = \"instances\"\ndevices = [\"left\", \"right\"]\nlearning = true\n\
         [[chain]]\nfrom = \"left\"\nthrough = [\"host\"]\nto = \"left\"\n\
         [[chain]]\nfrom = \"right\"\nthrough = [\"host\"]\nto = \"right\"\n{instances}",
        segment.ports()
    )
}

/// An instance is a host: it is found by ARP, and answers pings with the bytes that came.
#[test]
fn an_instance_answers_pings() {
    let Some(segment) = Segment::new("instance-echo", Driver::AfPacket, &["ping"]) else { return };
    let echo = "FromDevice(0) -> kinds :: Classifier(12/0806 20/0001, 12/0800, -);\n\
        kinds[0] -> ARPResponder(10.0.0.9 02:00:00:00:00:09) -> out :: Queue -> ToDevice(0);\n\
        kinds[1] -> CheckIPHeader(14) -> pings :: IPClassifier(icmp type echo and dst host 10.0.0.9, -);\n\
        pings[0] -> asked :: Counter -> ICMPPingResponder -> EtherMirror -> out;\n\
        pings[1] -> Discard; kinds[2] -> Discard;\n";
    std::fs::write(segment.directory.join("echo.click"), echo).expect("the directory can be written");
    let instances =
        "[instance.echo]\nfile = \"echo.click\"\nmac = \"02:00:00:00:00:09\"\nmemory = \"1 MB\"\n";
    let run = segment.start(&configuration(&segment, instances), &[]);
    for role in ["client", "server"] {
        for bytes in [0, 56, 1400] {
            let line = ten_pings(&format!("-s {bytes} 10.0.0.9"));
            assert_all_answered(&segment.namespaces.run(role, &line), 255);
        }
        let neighbours = segment.namespaces.run(role, "ip neigh show 10.0.0.9");
        assert!(neighbours.contains("02:00:00:00:00:09"), "{neighbours}");
    }
    // The switch alone is between both hosts.
    assert_all_answered(&segment.namespaces.run("client", &ten_pings("10.0.0.2")), 64);
    run.finish();
}

/// Pings pass an instance with two ports, the IP router of the examples, which is a hop for them.
#[test]
fn pings_pass_an_instance_that_routes() {
    let Some(segment) = Segment::new("instance-router", Driver::AfPacket, &["ping"]) else { return };
    let router = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/click/ip-router.click");
    let instances = format!(
        "[instance.router]\nfile = \"{router}\"\nports = 2\nmac = \"02:00:00:00:00:10\"\n\
         parameters = [\"NET0=10.0.0.254/24\", \"NET1=10.9.0.254/24\", \"GATEWAY=10.9.0.1\"]\n"
    );
    segment.namespaces.run("client", "ip route add 10.9.0.0/24 via 10.0.0.254");
    segment.namespaces.run("server", "ip address flush dev s0");
    segment.namespaces.run("server", "ip address add 10.9.0.2/24 dev s0");
    segment.namespaces.run("server", "ip route add 10.0.0.0/24 via 10.9.0.254");
    let run = segment.start(&configuration(&segment, &instances), &[]);
    assert_all_answered(&segment.namespaces.run("client", &ten_pings("10.9.0.2")), 63);
    assert_all_answered(&segment.namespaces.run("server", &ten_pings("10.0.0.1")), 63);
    // The router's own address, whose answers pass its element for the TTL, and an address beyond it that no one has.
    assert_all_answered(&segment.namespaces.run("client", &ten_pings("10.0.0.254")), 254);
    assert!(!segment.namespaces.attempt("client", "ping -q -c 1 -W 1 10.9.0.77").status.success());
    run.finish();
}
