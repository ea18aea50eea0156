//! Signals that a shell may send to a run.
//!
//! SIGUSR1 asks for the report so far; two signals within 300 ms are one request.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A run that ends only when it is stopped, in its own directory.
fn start(name: &str, arguments: &[&str]) -> Child {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run"])
        .arg(file_in(&directory))
        .args(["--color", "never", "--workers", "1"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    // It listens before it opens ports, so wait until its unfinished capture is there.
    while std::fs::read_dir(&directory).expect("it is there").count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn file_in(directory: &Path) -> PathBuf {
    let file = directory.join("f.toml");
    std::fs::write(
        &file,
        "[port.lan]\ndriver = \"generator\"\nrate = \"10 kpps\"\nclock = \"real\"\n\
         [port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\nsnap_length = 60\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\"]\nto = \"wan\"\n",
    )
    .expect("the directory can be written");
    file
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal}");
}

fn object(lines: &mut impl BufRead) -> Value {
    let mut line = String::new();
    lines.read_line(&mut line).expect("text");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn sigusr1_prints_one_json_object_a_line_and_the_run_goes_on() {
    let mut child = start("usr1-json", &["--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut received = 0;
    for _ in 0..2 {
        send(&child, "USR1");
        let so_far = object(&mut lines);
        assert_eq!((&so_far["running"], &so_far["conserved"]), (&true.into(), &true.into()), "{so_far}");
        let now = so_far["received"].as_u64().expect("a number");
        assert!(now >= received, "{so_far}");
        assert_eq!(so_far["nodes"].as_array().map(Vec::len), Some(3), "{so_far}");
        received = now;
    }
    send(&child, "INT");
    let last = object(&mut lines);
    assert_eq!((&last["running"], &last["conserved"]), (&false.into(), &true.into()), "{last}");
    assert!(last["received"].as_u64() >= Some(received), "{last}");
    assert!(child.wait().expect("it ends").success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "");
}

/// Standard output has only the final report.
#[test]
fn sigusr1_prints_the_report_so_far_to_standard_error() {
    for arguments in [&[][..], &["--quiet"]] {
        let mut child = start("usr1-text", arguments);
        let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
        send(&child, "USR1");
        let (mut text, mut last) = (String::new(), 0);
        while !text[last..].trim_end().ends_with("so far") {
            last = text.len();
            assert!(said.read_line(&mut text).expect("text") > 0, "it ended: {text}");
        }
        assert!(text.contains("function"), "{text}");
        assert!(text[last..].contains(" received + 0 created "), "{text}");
        send(&child, "INT");
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("text");
        assert!(
            arguments.is_empty() == rest.contains("SIGINT: draining and stopping"),
            "{arguments:?}: {rest}"
        );
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(report.trim_end().ends_with("every packet accounted for"), "{report}");
        assert!(!report.contains("so far"), "{report}");
    }
}

/// The file is a pipe, so that the run waits in the middle of its start.
#[test]
fn sigusr1_during_the_start_does_not_end_the_run() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("usr1-start");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let pipe = directory.join("f.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "--color", "never", "--workers", "1"])
        .arg(&pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    // This waits until the run reads the file.
    let mut file = std::fs::OpenOptions::new().write(true).open(&pipe).expect("the run opens it");
    send(&child, "USR1");
    // A process that the signal ends closes the pipe.
    let text = "[port.lan]\ndriver = \"generator\"\npackets = 5\n[port.wan]\ndriver = \"null\"\n\
                [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n";
    let _closed = file.write_all(text.as_bytes());
    drop(file);
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

/// A stopped process gets both signals at once when it goes on, however busy the machine is.
#[test]
fn two_signals_at_once_lose_no_report() {
    let mut child = start("two-signals", &["--json"]);
    send(&child, "STOP");
    let state = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        status.lines().find(|line| line.starts_with("State:")).map(str::to_owned).unwrap_or_default()
    };
    while !state().contains("T (stopped)") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    send(&child, "INT");
    send(&child, "TERM");
    send(&child, "CONT");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let report = object(&mut lines);
    assert_eq!((&report["running"], &report["conserved"]), (&false.into(), &true.into()), "{report}");
    assert!(child.wait().expect("it ends").success());
}
