//! Packets that are lost as they arrive, before any function sees them: they are counted and recorded like
//! all drops.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs a generator through an impaired line into nothing; returns the report.
fn run(name: &str, line: &str) -> Value {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let file = format!(
        "[port.lan]\ndriver = \"generator\"\npackets = 20_000\n{line}\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n"
    );
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json"])
        .current_dir(&directory)
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

#[test]
fn packets_dropped_by_line_or_checksum_are_recorded_with_headers() {
    let lines = [
        ("lost", "loss = \"10 %\"", "impaired"),
        ("wrong", "corrupt = \"50 %\"\nchecksum = \"drop\"", "bad-checksum"),
    ];
    for (name, line, reason) in lines {
        let report = run(name, line);
        let lan = &report["nodes"][0];
        assert!(lan["dropped"][reason].as_u64().is_some_and(|dropped| dropped > 1_000), "{lan}");
        let recorded = lan["recorded"].as_array().expect("a list");
        // At most one is recorded a millisecond of the generator's own clock, which makes a packet a
        // microsecond.
        assert!((10..=21).contains(&recorded.len()), "{lan}");
        for packet in recorded {
            assert_eq!(packet["reason"], reason);
            assert!(packet["line"].as_str().is_some_and(|line| !line.is_empty()), "{packet}");
        }
    }
}
