//! A reader may close the output at any time (`| head -1`): this is no failure, and hides no failure.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("closed-{name}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn netbricks(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netbricks"));
    command.current_dir(directory);
    command
}

/// Runs a command whose output is closed before it begins.
fn unread(command: &mut Command) -> Output {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it can be started");
    child.wait_with_output().expect("it ends")
}

#[track_caller]
fn ends_with(code: i32, directory: &Path, arguments: &[&str]) -> String {
    let output = unread(netbricks(directory).args(arguments));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(!said.contains("pipe"), "{said}");
    said
}

const CHAIN: &str = "[port.wan]\ndriver = \"null\"\n[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n";
const GOOD: &str = "[port.lan]\ndriver = \"generator\"\npackets = 100\n";

/// Writes a valid file, an invalid one, and one that reads a capture cut off in its last packet.
fn with_files(name: &str) -> PathBuf {
    let directory = scratch(name);
    let write = |file: &str, text: &str| {
        std::fs::write(directory.join(file), text).expect("the directory can be written");
    };
    write("good.toml", &format!("{GOOD}{CHAIN}"));
    write("bad.toml", &format!("{GOOD}speed = 1\n{CHAIN}"));
    write("cut.toml", &format!("[port.lan]\ndriver = \"pcap\"\nread = \"t.pcap\"\n{CHAIN}"));
    let made = netbricks(&directory).args(["generate", "t.pcap", "--packets", "100"]).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let capture = File::options().write(true).open(directory.join("t.pcap")).expect("it was made");
    let whole = capture.metadata().expect("it is open").len();
    capture.set_len(whole - 1).expect("it can be made shorter");
    directory
}

#[test]
fn a_success_is_quiet_when_its_output_is_closed() {
    let directory = with_files("success");
    for arguments in [
        &["check", "good.toml"][..],
        &["check", "good.toml", "--json"],
        &["run", "good.toml", "--json"],
        &["graph", "good.toml"],
        &["functions"],
        &["ports", "pcap", "--json"],
        &["completions", "bash"],
        &["bench", "--list"],
        &["bench", "--list", "--json"],
    ] {
        let said = ends_with(0, &directory, arguments);
        // Small pages cause a warning, and nothing else here causes any output.
        assert!(!said.contains("error"), "{arguments:?}: {said}");
    }
    ends_with(0, &directory, &["run", "good.toml"]);
    ends_with(0, &directory, &["generate", "u.pcap", "--packets", "100"]);
}

/// A benchmark ends with the first figure that it cannot write.
#[test]
fn a_benchmark_does_not_fail_when_its_output_is_closed() {
    let directory = scratch("bench");
    let said = ends_with(0, &directory, &["bench", "macswap", "--json"]);
    assert!(!said.contains("error"), "{said}");
    let said = ends_with(2, &directory, &["bench", "macswa"]);
    assert!(said.contains("did you mean `macswap`?"), "{said}");
}

#[test]
fn a_failure_stays_a_failure_when_its_output_is_closed() {
    let directory = with_files("failure");
    for more in [&[][..], &["--json"]] {
        ends_with(2, &directory, &[&["check", "bad.toml"], more].concat());
        ends_with(2, &directory, &[&["run", "bad.toml"], more].concat());
        ends_with(1, &directory, &[&["run", "cut.toml"], more].concat());
    }
}

/// The report and the failure go to different outputs: the failure is shown even if the report is not read.
#[test]
fn a_capture_that_found_no_room_is_a_failure_that_is_told() {
    let directory = scratch("room");
    for (more, told) in [("", true), ("--json", false)] {
        // A failed run leaves its capture under this name, and the next run warns of it.
        if directory.join("t.pcap.partial").exists() {
            std::fs::remove_file(directory.join("t.pcap.partial")).expect("it is ours");
        }
        // 64 MiB hold the packet buffers, which are a file as well, but not the capture.
        let limited = format!(
            "trap '' XFSZ; ulimit -f 131072; exec \"$0\" generate t.pcap --packets 100000 --frame-sizes 1500 {more}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_netbricks")]).current_dir(&directory);
        let output = unread(&mut shell);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.contains("error: `t.pcap`: "), told, "{said}");
        assert!(!said.contains("port `file`") && !said.contains("no memory"), "{said}");
    }
}

/// Any other failure to write is an error.
#[test]
fn a_report_that_finds_no_room_is_a_failure() {
    let directory = with_files("full");
    for arguments in [["check", "good.toml"], ["check", "bad.toml"], ["run", "good.toml"]] {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = netbricks(&directory).args(arguments).arg("--json").stdout(full).output();
        let output = output.expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("the output cannot be written"), "{arguments:?}: {said}");
    }
}
