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
fn a_module_is_looked_at_with_the_limits_that_it_will_have() {
    let directory = scratch("limits");
    // 32 MiB, as a table of routes takes; and it has the whole of each packet copied.
    let large = MACSWAP.replacen("(memory (export \"memory\") 1)", "(memory (export \"memory\") 512)", 1);
    let large = large.replacen("(i32.const 64)", "(i32.const -1)", 1);
    module(&directory, "large.wasm", &large);
    let check = |arguments: &[&str]| {
        let output = netbricks(&directory, &[&["sandbox", "check", "large.wasm"], arguments].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = check(&[]);
    assert!(code == Some(2) && said.contains("more than the 16777216 that `memory` allows"), "{said}");
    for limits in [&["--memory", "64 MiB"][..], &["--set", "memory=64 MiB"], &["--set", "memory = 67108864"]]
    {
        let (code, said) = check(limits);
        assert!(code == Some(0) && said.contains("\n  taken "), "{said}");
        assert!(
            said.contains("\n  note     `nb_reads` returned 4294967295: each packet is copied"),
            "{said}"
        );
    }
    let (code, said) = check(&["--memory", "64 MiB", "--set", "mode=mapped", "--set", "frames=512"]);
    assert!(code == Some(0) && !said.contains("  note "), "{said}");
    for (word, problem) in [
        ("memory", "expected KEY=VALUE"),
        ("memroy=1", "there is no key `memroy`; did you mean `memory`?"),
        ("module=other.wasm", "there is no key `module`"),
        ("memory=80 MiB", "must be 1 byte to 64 MiB"),
        ("mode=fast", "`copy` or `mapped`"),
    ] {
        let (code, said) = check(&["--set", word]);
        assert!(code == Some(2) && said.contains(problem), "{word}: {said}");
    }
    assert_eq!(check(&["--set", "slice=1 ms", "--set", "slice=2 ms"]).0, Some(2));
}

#[test]
fn a_modules_names_do_nothing_to_a_terminal() {
    let directory = scratch("names");
    // Each could hide its refusal behind a line that says that it is taken.
    let evil = "\\1b[2K\\0d  taken\\0a\\e2\\80\\ae";
    let exported = MACSWAP.replacen("(memory", &format!("(func (export \"{evil}\")) (memory"), 1);
    let imported = MACSWAP.replacen("(memory", &format!("(import \"env\" \"{evil}\" (func)) (memory"), 1);
    let twice = format!("(module (func (export \"{evil}\")) (func (export \"{evil}\")))");
    for (wrong, taken) in [(exported, true), (imported, false), (twice, false)] {
        module(&directory, "evil.wasm", &wrong);
        let output = netbricks(&directory, &["sandbox", "check", "evil.wasm"]);
        let said = text(&output.stdout);
        assert!(
            said.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
            "{said:?} has what a terminal acts on"
        );
        assert!(said.contains("\\u{1b}[2K\\r  taken\\n\\u{202e}"), "{said}");
        let claims = said.lines().filter(|line| line.starts_with("  taken")).count();
        assert_eq!((output.status.code(), claims), if taken { (Some(0), 1) } else { (Some(2), 0) }, "{said}");
        chain(&directory, "module = \"evil.wasm\"");
        let output = netbricks(&directory, &["check", "f.toml", "--color", "never"]);
        assert!(
            text(&output.stderr).chars().all(|c| c == '\n' || !c.is_control()),
            "{:?}",
            text(&output.stderr)
        );
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
