//! A run with too few reserved huge pages works, and one warning says how to mend it.

use std::path::Path;
use std::process::Command;

#[test]
fn one_warning_says_how_to_reserve_huge_pages() {
    let numbers = |name: &str| {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = memory.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let (free, available) = (numbers("HugePages_Free"), numbers("MemAvailable") / 1024);
    // More frames of 2 KiB than the free pages of 2 MiB hold. They must fit into memory, whether touched or
    // not. Each frame is 2,112 bytes with the cache line between frames. Beside it is a short frame of 576
    // bytes, and each of the two has 128 bytes of metadata: 2,944 bytes in all, so 3 MiB hold 1,024 of them.
    let frames = (free + 8) * 1024;
    if (free + 8) * 3 + 512 > available {
        eprintln!("skipped: {free} huge pages are free, and there is no memory for a larger pool");
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("few-huge-pages");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    std::fs::write(
        directory.join("f.toml"),
        format!(
            "[port.lan]\ndriver = \"generator\"\npackets = 1000\n[port.wan]\ndriver = \"null\"\n\
             [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n[runtime]\nframes = {frames}\n"
        ),
    )
    .expect("the directory can be written");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["run", "f.toml"])
            .args(arguments)
            .current_dir(&directory)
            .output()
            .expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (said, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (said, _) = run(&[]);
    assert_eq!(said.matches("warning: ").count(), 1, "{said}");
    assert!(said.contains("vm.nr_hugepages") && said.contains("small pages"), "{said}");
    assert_eq!(run(&["--quiet"]).0, "");
    // The JSON report has the warning all the same.
    let (said, report) = run(&["--quiet", "--json"]);
    assert_eq!(said, "");
    let report: serde_json::Value = serde_json::from_str(&report).expect("one JSON object");
    let warnings: Vec<_> =
        report["warnings"].as_array().into_iter().flatten().filter_map(|line| line.as_str()).collect();
    assert!(matches!(warnings[..], [line] if line.contains("vm.nr_hugepages")), "{report}");
    assert_eq!(report["pool"]["huge_pages"], false, "{report}");
}
