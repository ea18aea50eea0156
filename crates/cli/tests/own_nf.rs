//! Builds, tests and runs the crate in `examples/own-nf` as a vendor would, outside the workspace.

use std::path::Path;
use std::process::Command;

#[test]
fn a_vendors_function_runs_beside_ours() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/own-nf");
    // A separate target directory, so that the inner cargo needs no lock that the outer one holds.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-nf");
    let cargo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(&own)
            .env("CARGO_TARGET_DIR", &target)
            .output()
            .expect("cargo runs this test");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "cargo {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    cargo(&["test", "--quiet"]);
    let listed = cargo(&["run", "--quiet", "--", "functions", "dscp-marker"]);
    assert!(listed.starts_with("dscp-marker: ") && listed.contains("expedited forwarding"), "{listed}");
    let report = cargo(&["run", "--quiet", "--", "run", "marked.toml", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("one JSON object");
    assert_eq!(report["conserved"], true);
    assert_eq!(report["received"], 100_000);
    let nodes = report["nodes"].as_array().expect("a list");
    assert!(nodes.iter().any(|node| node["name"] == "voice" && node["in"].as_u64() > Some(0)), "{report}");
}
