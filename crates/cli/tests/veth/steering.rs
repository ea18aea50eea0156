//! Rules of a file on real interfaces: one of two workers gets exactly the packets of the rules.

use serde_json::Value;

use super::fixture::{Driver, Segment, assert_all_answered, ten_pings};

#[test]
fn the_worker_of_a_steered_queue_has_what_the_rules_say() {
    let Some(segment) = Segment::new("steering", Driver::AfPacket, &["ping"]) else { return };
    let steer = "steer = [{ protocol = \"icmp\", queue = 1 }, { queue = 0 }]\nworkers = [0, 1]\n";
    let mut file = segment.chains("").replace("use = \"monitor\"", "use = \"monitor\"\ntop = 100_000");
    for device in Driver::AfPacket.devices() {
        file = file.replace(&format!("device = \"{device}\"\n"), &format!("device = \"{device}\"\n{steer}"));
    }
    let run = segment.start(&file, &[]);
    segment.settle();
    for (role, address) in
        [("client", "10.0.0.2"), ("client", "fd00::2"), ("server", "10.0.0.1"), ("server", "fd00::1")]
    {
        assert_all_answered(&segment.namespaces.run(role, &ten_pings(address)), 63);
    }
    let report = run.finish();

    let number = |value: &Value| value.as_u64().expect("a number");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let arrived: Vec<Vec<u64>> = list(&report["ports"])
        .iter()
        .map(|port| list(&port["queues"]).iter().map(number).collect())
        .collect();
    let pings: u64 = list(&report["sections"][0]["rows"])
        .iter()
        .filter(|row| row[0].as_str().expect("a flow").ends_with(" ICMP"))
        .map(|row| row[1].as_str().expect("packets").parse::<u64>().expect("a number"))
        .sum();
    assert!(pings >= 40, "{report}");
    assert_eq!(
        arrived[0][1] + arrived[1][1],
        pings,
        "queue 1 has every ping over IPv4 and nothing else: {report}"
    );
    // Pings over IPv6, and requests for addresses.
    assert!(arrived.iter().all(|queues| queues.len() == 2 && queues[0] >= 20), "{report}");
    // The rules are the same on both sides and keep directions together.
    assert!(list(&report["nodes"]).iter().all(|node| node["kind"] != "shuffle"), "{report}");
    let places: Vec<_> = list(&report["placement"]).iter().map(|place| place["receives"].clone()).collect();
    assert_eq!(places, [serde_json::json!(["left.0", "right.0"]), serde_json::json!(["left.1", "right.1"])]);
}
