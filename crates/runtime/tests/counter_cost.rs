//! Counts instructions with callgrind in the optimised build, where the numbers are the same every time.
//!
//! With counters on and bursts of 32, the limit is 4 instructions a packet and node. It is 7 at a node that
//! drops an eighth of each burst.

use std::process::Command;

#[test]
fn a_node_boundary_costs_at_most_four_instructions_a_packet_and_seven_with_drops() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/counter-cost.sh");
    let output = Command::new(script).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["burst"], 32);
    let cost = result["instructions_per_packet"].as_f64().unwrap();
    assert!(cost > 0.0 && cost <= 4.0, "{cost}");
    let with_drops = result["with_drops"]["instructions_per_packet"].as_f64().unwrap();
    assert!(with_drops > cost && with_drops <= 7.0, "{with_drops}");
}
