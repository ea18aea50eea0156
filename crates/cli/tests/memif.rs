//! Runs that are joined by memif: in one process, and in two.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// A run in a directory: relative, because a socket's path has at most 107 bytes.
fn run(directory: &Path, file: &str, seconds: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", file, "--json", "--no-control", "--duration", &format!("{seconds} s")])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test")
}

fn report(child: Child) -> Value {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&said).expect("one JSON object");
    assert_eq!(report["conserved"], true, "{report}");
    report
}

fn count(report: &Value, port: &str, key: &str) -> u64 {
    let ports = report["ports"].as_array().expect("a list");
    let port = ports.iter().find(|found| found["name"] == port).expect("the port");
    port[key].as_u64().expect("a number")
}

#[test]
fn the_example_joins_two_ports() {
    let directory = scratch("memif-example");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/memif.toml");
    std::fs::copy(example, directory.join("memif.toml")).expect("the example is there");
    let report = report(run(&directory, "memif.toml", 5));
    let (sent, received) = (count(&report, "host", "sent"), count(&report, "guest", "received"));
    // What is in the ring at the end is received by no one.
    assert!(received > 0 && (received..=received + 1024).contains(&sent), "{report}");
    assert_eq!(count(&report, "wan", "sent"), received, "{report}");
}

#[test]
fn two_runs_are_joined() {
    let directory = scratch("memif-two");
    let port = |role: &str| format!("driver = \"memif\"\nrole = \"{role}\"\nsocket = \"s\"\nid = 5");
    let chain = "[[chain]]\nfrom = \"a\"\nto = \"b\"\n[runtime]\nworkers = 1\nframes = 4096";
    let server = format!("[port.a]\n{}\n[port.b]\ndriver = \"null\"\n{chain}", port("server"));
    let client = format!(
        "[port.a]\ndriver = \"generator\"\nclock = \"real\"\nrate = \"5 kpps\"\n[port.b]\n{}\n{chain}",
        port("client")
    );
    std::fs::write(directory.join("server.toml"), server).expect("the directory can be written");
    std::fs::write(directory.join("client.toml"), client).expect("the directory can be written");
    let server = run(&directory, "server.toml", 20);
    let start = Instant::now();
    while !directory.join("s").exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "the server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = report(run(&directory, "client.toml", 5));
    let server = report(server);
    let (sent, received) = (count(&client, "b", "sent"), count(&server, "a", "received"));
    assert!(received > 0 && received <= sent, "{client}{server}");
    assert_eq!(count(&server, "b", "sent"), received, "{server}");
    assert!(!directory.join("s").exists(), "the socket goes with its run");
}
