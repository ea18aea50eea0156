//! Sandboxed functions by the command line: in a chain file, refused with a reason, and looked at.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netbricks_testkit::captures;

fn netbricks(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sandbox-{name}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

const MACSWAP: &str = include_str!("../../sandbox/tests/modules/macswap.wat");

/// A file with the module of this text.
fn module(directory: &Path, name: &str, text: &str) {
    let module = wat::parse_str(text).expect("the text is a module");
    std::fs::write(directory.join(name), module).expect("the target directory can be written");
}

/// A file with a chain over a capture, through a function with these settings.
fn chain(directory: &Path, settings: &str) {
    let text = format!(
        "[port.lan]\ndriver = \"pcap\"\nread = \"in.pcap\"\n[port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n\
         [function.guest]\nuse = \"sandbox\"\n{settings}\n[[chain]]\nfrom = \"lan\"\nthrough = [\"guest\"]\nto = \"wan\"\n"
    );
    std::fs::write(directory.join("f.toml"), text).expect("the target directory can be written");
}

#[test]
fn a_chain_file_runs_a_module_in_both_modes_and_keeps_its_code() {
    let directory = scratch("chain");
    module(&directory, "macswap.wasm", MACSWAP);
    let output = netbricks(&directory, &["generate", "in.pcap", "--packets", "500"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let sent = captures::frames(&directory.join("in.pcap"));
    let swapped = |frame: &Vec<u8>| [&frame[6..12], &frame[..6], &frame[12..]].concat();
    let expected: Vec<Vec<u8>> = sent.iter().map(swapped).collect();
    for settings in ["cache = \"cache\"", "cache = \"cache\"", "mode = \"mapped\""] {
        chain(&directory, &format!("slice = \"10 ms\"\nmodule = \"macswap.wasm\"\n{settings}"));
        let output = netbricks(&directory, &["run", "f.toml", "--json", "--workers", "1"]);
        assert!(output.status.success(), "{settings}: {}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!((&report["conserved"], report["sent"].as_u64()), (&true.into(), Some(500)), "{report}");
        assert!(captures::frames(&directory.join("out.pcap")) == expected, "{settings}");
    }
    let kept = std::fs::read_dir(directory.join("cache")).expect("the folder was made").count();
    assert_eq!(kept, 2, "a key and the native code");
}

#[test]
fn modules_are_refused_at_their_place_in_the_file() {
    let directory = scratch("refused");
    netbricks(&directory, &["generate", "in.pcap", "--packets", "5"]);
    let cases = [
        (MACSWAP.replace("nb_process", "process"), "", "it does not export the function `nb_process`"),
        (
            MACSWAP.replace(
                "(result i32) (i32.const 1))\n  (func (export \"nb_reads",
                "(result i32) (i32.const 9))\n  (func (export \"nb_reads",
            ),
            "",
            "its interface has version 9, expected 1",
        ),
        (
            MACSWAP.replace("(memory", "(import \"env\" \"open\" (func)) (memory"),
            "",
            "it imports `env.open`, which is unknown",
        ),
        (
            MACSWAP.to_owned(),
            "memory = \"1 KiB\"",
            "it begins with 65536 bytes of memory, more than the 1024",
        ),
    ];
    for (wrong, settings, problem) in cases {
        module(&directory, "guest.wasm", &wrong);
        chain(&directory, &format!("module = \"guest.wasm\"\n{settings}"));
        for command in ["check", "run"] {
            let output = netbricks(&directory, &[command, "f.toml", "--color", "never"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(problem) && said.contains("f.toml:9:10"), "{problem}: {said}");
        }
    }
}

#[test]
fn a_module_is_looked_at_before_it_is_installed() {
    let directory = scratch("looked-at");
    module(&directory, "good.wasm", MACSWAP);
    let output = netbricks(&directory, &["sandbox", "check", "good.wasm"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("nb_process (i32)") && said.contains("reads the first 64 bytes of frames"),
        "{said}"
    );
    module(
        &directory,
        "bad.wasm",
        "(module (import \"env\" \"nb_exit\" (func)) (memory (export \"memory\") 3))",
    );
    let output = netbricks(&directory, &["sandbox", "check", "bad.wasm", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&found["ok"], found["contents"]["memory"].as_u64()), (&false.into(), Some(196_608)));
    let problems = found["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 6, "one import, five exports: {problems:?}");
}
