//! Click's own acceptance tests, where they and their runner are there: `NETBRICKS_CLICK_TESTS` names their folder.
//!
//! The runner is `../shared/clicktest/clicktest.py`. `clicktest-must.txt` beside it lists the tests that must pass.

use std::path::Path;
use std::process::Command;

#[test]
fn clicks_acceptance_tests_pass() {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/clicktest");
    let script = runner.join("clicktest.py");
    let Some(tests) = std::env::var_os("NETBRICKS_CLICK_TESTS").filter(|_| script.exists()) else {
        println!("skipped: Click's acceptance tests: set NETBRICKS_CLICK_TESTS to their folder");
        return;
    };
    // The runner's tests run as another user, who need not reach the build's folder.
    let binary = std::env::temp_dir().join(format!("netbricks-clicktest-{}", std::process::id()));
    std::fs::create_dir_all(&binary).expect("a temporary folder");
    let program = binary.join("netbricks");
    std::fs::copy(env!("CARGO_BIN_EXE_netbricks"), &program).expect("a copy");
    for name in ["click", "click-flatten", "click-buildtool"] {
        std::os::unix::fs::symlink(&program, binary.join(name)).expect("a link");
    }
    let output = Command::new("python3")
        .arg(&script)
        .arg(&tests)
        .arg(&binary)
        .args(["-q", "--retry", "2", "--must"])
        .arg(runner.join("clicktest-must.txt"))
        .output();
    let _ = std::fs::remove_dir_all(&binary);
    let output = output.expect("python3 is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" passed, ") && !said.contains("must pass and did not"), "{said}");
}
