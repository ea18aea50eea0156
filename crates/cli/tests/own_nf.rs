//! Builds, tests and runs the crate in `examples/own-nf` as a vendor would, outside the workspace.

use std::path::Path;
use std::process::Command;

/// Crates whose code is run a few times here only, so that to optimise them takes longer than it saves.
const NOT_OPTIMISED: [&str; 16] = [
    "netbricks",
    "netbricks-buffer",
    "netbricks-click",
    "netbricks-control",
    "netbricks-core",
    "netbricks-functions",
    "netbricks-mmb",
    "netbricks-packet",
    "netbricks-ports",
    "netbricks-runtime",
    "netbricks-sandbox",
    "netbricks-stream",
    "netbricks-tables",
    "netbricks-testkit",
    "netbricks-vet",
    "own-nf",
];

#[test]
fn a_vendors_function_runs_beside_ours() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/own-nf");
    // The target directory and the profile of this workspace: what others wrote is built already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the folder for tests is in the target directory");
    let debug = std::env::var("CARGO_PROFILE_DEV_DEBUG").unwrap_or("line-tables-only".to_owned());
    // So are the features: of libhs's binding too.
    let features = if cfg!(feature = "hyperscan") { "netbricks/hyperscan" } else { "" };
    let cargo = |arguments: &[&str]| {
        let (command, arguments) = arguments.split_first().expect("a command");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([command, "--config", "profile.dev.opt-level = 1", "--features", features]);
        for name in NOT_OPTIMISED {
            cargo.arg("--config").arg(format!("profile.dev.package.{name}.opt-level = 0"));
        }
        let output = cargo
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
