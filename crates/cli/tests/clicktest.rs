//! Click's own acceptance tests, where they and their runner are there: `NETBRICKS_CLICK_TESTS` names their folder.
//!
//! The runner is `../shared/clicktest/clicktest.py`. `clicktest-must.txt` beside it lists the tests that must pass.

use std::collections::BTreeSet;
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
    let (must, passed) = (runner.join("clicktest-must.txt"), binary.join("passed.txt"));
    let output = Command::new("python3")
        .arg(&script)
        .arg(&tests)
        .arg(&binary)
        .args(["-q", "--retry", "2", "--must"])
        .arg(&must)
        .arg("--save")
        .arg(&passed)
        .output();
    let saved = std::fs::read_to_string(&passed);
    let _ = std::fs::remove_dir_all(&binary);
    let said = String::from_utf8_lossy(&output.expect("python3 is there").stdout).into_owned();
    let (must, saved) = (std::fs::read_to_string(must).expect("a list"), saved.expect(&said));
    let missing = missing(&must, &saved);
    assert!(missing.is_empty(), "did not pass, or are not in the folder: {missing:?}\n{said}");
}

/// Tests that must pass and are not among those that did.
fn missing<'m>(must: &'m str, passed: &str) -> Vec<&'m str> {
    let passed: BTreeSet<&str> = passed.split_whitespace().collect();
    must.split_whitespace().filter(|name| !passed.contains(name)).collect()
}

#[test]
fn a_test_that_did_not_run_is_missing() {
    assert_eq!(missing("a-01\nb-02\n", "b-02\nc-03\na-01\n"), Vec::<&str>::new());
    assert_eq!(missing("a-01\nb-02\n", "a-01\n"), ["b-02"]);
    assert_eq!(missing("a-01\n", ""), ["a-01"]);
}
