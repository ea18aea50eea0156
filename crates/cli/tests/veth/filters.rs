//! Filters from the graph: two tenants share two ports, and each has a worker of its own.

use serde_json::Value;

use super::fixture::{Driver, Run, Segment, assert_all_answered, ten_pings};
use netbricks_testkit::namespace::eventually;

/// The addresses of the tenants' hosts at both ends: the third number is the tenant's.
const TENANTS: [(&str, u8); 2] = [("acme", 1), ("corp", 2)];

fn tenant(name: &str, number: u8) -> String {
    format!(
        "[tenant.{name}]\naddresses = [\"10.0.{number}.0/24\", \"fd00:{number}::/64\"]\n\
         [tenant.{name}.function.flows]\nuse = \"monitor\"\n\
         [[tenant.{name}.chain]]\nfrom = \"left\"\nthrough = [\"ttl\", \"flows\"]\nto = \"right\"\n\
         [[tenant.{name}.chain]]\nfrom = \"right\"\nthrough = [\"ttl\", \"flows\"]\nto = \"left\"\n"
    )
}

/// Both ports steer by the graph, for these tenants. Other packets, such as requests for addresses, pass.
fn file(segment: &Segment, driver: Driver, tenants: &[(&str, u8)]) -> String {
    let mut file = segment.ports().replace("[runtime]\n", "[runtime]\nworkers = 2\n");
    for device in driver.devices() {
        let line = format!("device = \"{device}\"\n");
        file = file.replace(&line, &format!("{line}steer = \"graph\"\n"));
    }
    file += "[[chain]]\nfrom = \"left\"\nto = \"right\"\n[[chain]]\nfrom = \"right\"\nto = \"left\"\n";
    tenants.iter().for_each(|(name, number)| file += &tenant(name, *number));
    file
}

fn segment(driver: Driver, test: &str) -> Option<Segment> {
    let segment = Segment::new(test, driver, &["ping"])?;
    for (role, device, host) in [("client", "c0", 1), ("server", "s0", 2)] {
        for number in [1, 2, 3] {
            segment.namespaces.run(role, &format!("ip address add 10.0.{number}.{host}/24 dev {device}"));
            segment
                .namespaces
                .run(role, &format!("ip address add fd00:{number}::{host}/64 dev {device} nodad"));
        }
    }
    Some(segment)
}

fn ping(segment: &Segment, number: u8) {
    for address in [format!("10.0.{number}.2"), format!("fd00:{number}::2")] {
        eventually("the first answer", || {
            segment.namespaces.attempt("client", &format!("ping -q -c 1 -W 1 {address}")).status.success()
        });
        assert_all_answered(&segment.namespaces.run("client", &ten_pings(&address)), 63);
    }
}

/// The pings that a tenant's function saw on each worker.
fn pings(report: &Value, node: &str) -> u64 {
    let sections = report["sections"].as_array().expect("a list");
    let rows = sections
        .iter()
        .filter(|section| section["node"].as_str().is_some_and(|of| of.starts_with(node)))
        .flat_map(|section| section["rows"].as_array().expect("rows").clone());
    let of_pings = rows.filter(|row| row[0].as_str().is_some_and(|flow| flow.contains("ICMP")));
    of_pings.map(|row| row[1].as_str().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)).sum()
}

fn queues(report: &Value) -> Vec<Vec<u64>> {
    let ports = report["ports"].as_array().expect("a list");
    ports
        .iter()
        .map(|port| port["queues"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect())
        .collect()
}

fn finish(run: Run) -> Value {
    let report = run.finish();
    assert!(
        report["nodes"].as_array().expect("a list").iter().all(|node| node["kind"] != "shuffle"),
        "filters bring both directions of a flow to one worker: {report}"
    );
    report
}

fn each_tenant_has_its_queue(driver: Driver) {
    let Some(segment) = segment(driver, "filters") else { return };
    for (number, alone) in [(1, 0), (2, 1)] {
        let run = segment.start(&file(&segment, driver, &TENANTS), &[]);
        ping(&segment, number);
        let report = finish(run);
        let arrived = queues(&report);
        let seen = pings(&report, ["acme:flows", "corp:flows"][alone]);
        assert!(seen >= 40, "{report}");
        // Every ping of the tenant came by its queue; requests for addresses may have come by any.
        let by_its_queue = arrived[0][alone] + arrived[1][alone];
        assert!(by_its_queue >= seen, "{arrived:?}, {seen} pings: {report}");
        let by_the_other = arrived[0][1 - alone] + arrived[1][1 - alone];
        assert!(by_the_other < 20, "{arrived:?}: {report}");
        let by = report["ports"][0]["filtered_by"].as_str().expect("a name");
        assert!(by.contains("BPF") || by.contains("XDP"), "{by}");
    }
}

#[test]
fn each_tenant_has_its_queue_by_classic_bpf() {
    each_tenant_has_its_queue(Driver::AfPacket);
}

#[test]
fn each_tenant_has_its_queue_at_a_tap() {
    each_tenant_has_its_queue(Driver::Tap);
}

#[test]
fn each_tenant_has_its_queue_by_xdp_maps() {
    each_tenant_has_its_queue(Driver::AfXdp);
}
