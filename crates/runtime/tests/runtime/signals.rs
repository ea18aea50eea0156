//! SIGINT, SIGTERM and SIGHUP, in a child process: this test's own binary, asked for one test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use netbricks_runtime::{Factory, Runtime, stop_on_signals};
use rustix::process::{Pid, Signal, kill_process};

use crate::nodes::{Keeper, Sink, Source, Stuck, chain, config, pool};

const ROLE: &str = "NETBRICKS_TEST_SIGNALS";

/// Not a test of its own: what the child does.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let stuck = role == "stuck";
    let runtime = Runtime::start(config(pool(), 2), |_| {
        Factory::new(move |context| {
            let middle: Box<dyn netbricks_core::Node> =
                if stuck { Box::new(Stuck) } else { Box::new(Keeper::new(64)) };
            chain(
                "g",
                vec![("in", Box::new(Source::new(u64::MAX))), ("middle", middle), ("out", Box::new(Sink))],
            )?
            .build(context.pool().clone())
        })
    })
    .unwrap();
    let guard = stop_on_signals(runtime.stop_handle(), |line| eprintln!("{line}")).unwrap();
    eprintln!("ready");
    let report = runtime.wait();
    drop(guard);
    eprintln!("{}", serde_json::to_string(&report).unwrap());
}

fn start(role: &str) -> (Child, BufReader<impl Read>) {
    begin(Command::new(std::env::current_exe().unwrap()), role)
}

fn begin(mut command: Command, role: &str) -> (Child, BufReader<impl Read>) {
    let mut child = command
        .args(["--exact", "signals::child", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    assert_eq!(line(&mut lines), "ready");
    (child, lines)
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn the_first_signal_drains_and_reports() {
    for (sent, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        // Whoever runs the tests may be deaf to hangups.
        let mut hearing = Command::new("env");
        hearing.arg("--default-signal=HUP").arg(std::env::current_exe().unwrap());
        let (mut child, mut lines) = begin(hearing, "drain");
        signal(&child, sent);
        let again = if name == "SIGHUP" { "SIGTERM" } else { "once more" };
        assert_eq!(line(&mut lines), format!("{name}: draining and stopping; {again} to leave at once"));
        let report: serde_json::Value = serde_json::from_str(&line(&mut lines)).unwrap();
        assert_eq!(report["conserved"], true);
        assert_eq!(report["pool_whole"], true);
        assert_eq!(report["totals"]["held"], 0);
        assert_eq!(report["totals"]["received"], report["totals"]["sent"]);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn the_second_signal_leaves_at_once() {
    let (mut child, mut lines) = start("stuck");
    signal(&child, Signal::INT);
    assert!(line(&mut lines).starts_with("SIGINT: draining"));
    signal(&child, Signal::TERM);
    assert!(line(&mut lines).starts_with("SIGTERM again: leaving at once"));
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

/// A shell that ends sends one, and its terminal another.
#[test]
fn a_second_hangup_is_no_hurry() {
    let mut hearing = Command::new("env");
    hearing.arg("--default-signal=HUP").arg(std::env::current_exe().unwrap());
    let (mut child, mut lines) = begin(hearing, "stuck");
    signal(&child, Signal::HUP);
    assert!(line(&mut lines).starts_with("SIGHUP: draining"));
    signal(&child, Signal::HUP);
    signal(&child, Signal::TERM);
    assert!(line(&mut lines).starts_with("SIGTERM again: leaving at once"));
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

/// As under `nohup`.
#[test]
fn who_was_started_to_ignore_hangups_does() {
    let mut deaf = Command::new("sh");
    deaf.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let (mut child, mut lines) = begin(deaf, "drain");
    signal(&child, Signal::HUP);
    signal(&child, Signal::TERM);
    assert!(line(&mut lines).starts_with("SIGTERM: draining"));
    assert!(line(&mut lines).contains("\"conserved\":true"));
    assert!(child.wait().unwrap().success());
}
