//! Builds, tests and runs the crate in `examples/own-nf` as a vendor would, outside the workspace.

use std::path::Path;
use std::process::Command;

/// The profile `dev` of the workspace, for crates that are no members of it.
const PROFILE: [&str; 9] = [
    "profile.dev.opt-level = 1",
    "profile.dev.package.netbricks.opt-level = 0",
    "profile.dev.package.netbricks-click.opt-level = 0",
    "profile.dev.package.netbricks-control.opt-level = 0",
    "profile.dev.package.netbricks-functions.opt-level = 0",
    "profile.dev.package.netbricks-mmb.opt-level = 0",
    "profile.dev.package.netbricks-runtime.opt-level = 0",
    "profile.dev.package.netbricks-stream.opt-level = 0",
    "profile.dev.package.own-nf.opt-level = 0",
];

#[test]
fn a_vendors_function_runs_beside_ours() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/own-nf");
    // The target directory and the profile of this workspace: what others wrote is built already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the folder for tests is in the target directory");
    let debug = std::env::var("CARGO_PROFILE_DEV_DEBUG").unwrap_or("line-tables-only".to_owned());
    let cargo = |arguments: &[&str]| {
        let (command, arguments) = arguments.split_first().expect("a command");
        let output = Command::new(env!("CARGO"))
            .arg(command)
            .args(PROFILE.iter().flat_map(|line| ["--config", line]))
            .args(arguments)
            .current_dir(&own)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_PROFILE_DEV_DEBUG", &debug)
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
