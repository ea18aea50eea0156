//! Each of 8 fused functions costs at most 25 instructions a packet, and each of 64 at most 60.
//!
//! Callgrind counts instructions of the optimised build, the same number every time.

use std::process::Command;

#[test]
fn fused_functions_cost_few_instructions_each() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/fused-cost.sh");
    let output = Command::new(script).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    // A TTL function parses two headers and changes one. This costs instructions, so the script must have
    // counted some.
    let cost = |functions: &str| {
        let costs = stdout.split_once(&format!("\"{functions}\":")).unwrap().1;
        costs[..costs.find([',', '}']).unwrap()].parse::<f64>().unwrap()
    };
    assert!((5.0..=25.0).contains(&cost("8")) && (5.0..=60.0).contains(&cost("64")), "{stdout}");
}
