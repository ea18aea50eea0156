//! Filters of the graph that follow `apply`: tenants come and go, and the others keep their worker.

use serde_json::Value;

use super::segment::{Segment, finish};

/// Pings of the busy tenant before and after the change, each; the others have a tenth.
const PINGS: usize = 100;

fn file(driver: &str, tenants: &[(&str, u8)]) -> String {
    let mut file = String::from("[runtime]\nframes = 8192\nlarge_frames = 0\nworkers = 2\n");
    for (port, device) in [("left", "b0"), ("right", "b1")] {
        file += &format!("[port.{port}]\ndriver = \"{driver}\"\ndevice = \"{device}\"\nsteer = \"graph\"\n");
    }
    file += "[[chain]]\nfrom = \"left\"\nto = \"right\"\n[[chain]]\nfrom = \"right\"\nto = \"left\"\n";
    for (name, number) in tenants {
        file += &format!(
            "[tenant.{name}]\naddresses = [\"10.0.{number}.0/24\"]\n\
             [tenant.{name}.function.flows]\nuse = \"monitor\"\n\
             [[tenant.{name}.chain]]\nfrom = \"left\"\nthrough = [\"flows\"]\nto = \"right\"\n\
             [[tenant.{name}.chain]]\nfrom = \"right\"\nthrough = [\"flows\"]\nto = \"left\"\n"
        );
    }
    file
}

fn tenants_keep_their_worker(driver: &str) {
    let Some(segment) = Segment::new(&format!("filters-{driver}"), &["ping"]) else { return };
    for number in [1, 2, 3] {
        segment.namespaces.run("client", &format!("ip address add 10.0.{number}.1/24 dev c0"));
        segment.namespaces.run("server", &format!("ip address add 10.0.{number}.2/24 dev s0"));
    }
    let ping = |number: u8, count: usize| {
        segment.reach(&format!("10.0.{number}.2"));
        let line = format!("ping -q -n -c {count} -i 0.005 -w 300 10.0.{number}.2");
        segment.namespaces.run("client", &line);
    };
    segment.directory.write("two.toml", &file(driver, &[("acme", 1), ("corp", 2)]));
    // The new tenant is the first of the file, and would have the first queue.
    segment.directory.write("three.toml", &file(driver, &[("young", 3), ("acme", 1), ("corp", 2)]));
    segment.directory.write("left.toml", &file(driver, &[("young", 3), ("acme", 1)]));
    let mut run = segment.run(&["two.toml"]);
    ping(1, PINGS);
    ping(2, PINGS / 10);
    segment.directory.ask(&["apply", "three.toml"]).well();
    ping(3, PINGS / 10);
    ping(1, PINGS);
    segment.directory.ask(&["apply", "left.toml"]).well();
    ping(3, PINGS / 10);
    ping(1, PINGS);
    let report = finish(&mut run);
    let ports = report["ports"].as_array().expect("a list");
    for port in ports {
        let queues: Vec<u64> =
            port["queues"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
        let (busy, others) = (3 * PINGS as u64, 3 * PINGS as u64 / 10);
        assert!(queues[0] >= busy, "the busy tenant stays at its queue: {queues:?}, {report}");
        assert!(
            (others..busy / 2).contains(&queues[1]),
            "the others have the other queue: {queues:?}, {report}"
        );
    }
    let nodes = report["nodes"].as_array().expect("a list");
    assert!(nodes.iter().all(|node| node["kind"] != "shuffle"), "{report}");
    for device in ["b0", "b1"] {
        assert!(segment.is_clean(device), "nothing of the filters is left on {device}");
    }
}

#[test]
fn tenants_keep_their_worker_where_classic_bpf_changes() {
    tenants_keep_their_worker("af_packet");
}

#[test]
fn tenants_keep_their_worker_where_xdp_maps_change() {
    tenants_keep_their_worker("af_xdp");
}
