//! Each of 64 functions fused into one node costs at most 6 % more than each of 8.
//!
//! Callgrind counts instructions of the optimised build, the same number every time.

use std::process::Command;

#[test]
fn one_of_sixty_four_fused_functions_costs_hardly_more_than_one_of_eight() {
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
    assert!(cost("8") > 5.0 && cost("64") > 5.0 && cost("64") <= 1.06 * cost("8"), "{stdout}");
}
