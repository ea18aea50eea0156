//! Tests of a function that panics while a run goes on.
//!
//! The run ends in order, every packet is accounted for, and the run has failed. The command runs in a child
//! process: this test's own binary, started for one test.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_core::packet::Link;
use netbricks_core::{NoSettings, Operator, compose};
use netbricks_ports::Drivers;
use serde_json::Value;

use super::{Application, FAILURE};

const ARGUMENT: &str = "NETBRICKS_TEST_CONTAINMENT";
const PACKETS: u64 = 3_000;
/// The packet at which the function panics, once.
const FATAL: u64 = 1_234;

const FILE: &str = "[port.lan]\ndriver = \"generator\"\npackets = 3_000\nseed = 1\n[port.wan]\ndriver = \"null\"\n\
                    [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\", \"fussy\"]\nto = \"wan\"\n";

/// Panics at one packet and names its line, so that the reported place can be compared with it.
fn look_at(number: u64) {
    assert!(number != FATAL, "packet {number} is one too many, says line {}", line!());
}

/// Not a test of its own: the child's part.
#[test]
fn child() {
    let Ok(argument) = std::env::var(ARGUMENT) else { return };
    let mut registry = crate::standard();
    // The counter outlives the panic, so there is only one panic.
    let seen = Arc::new(AtomicU64::new(0));
    registry.add("fussy", "Panics at a packet.", move |_: &NoSettings, worker| {
        let seen = seen.clone();
        compose(worker, |input| {
            input.parse::<Link>().transform(move |_| look_at(seen.fetch_add(1, Ordering::Relaxed) + 1)).done()
        })
    });
    let app = Application::new(registry, Drivers::standard());
    let line = ["netbricks", "run", "/dev/stdin", "--color", "never", argument.as_str()];
    let code = super::main(&app, line.map(Into::into));
    assert_eq!(code, ExitCode::from(FAILURE));
}

/// The standard output and standard error of a run.
fn run(argument: &str) -> (String, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "commands::containment_tests::child", "--nocapture", "--test-threads=1"])
        .env(ARGUMENT, argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(FILE.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [said, told] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "its exit code is another\n{said}{told}");
    (said, told)
}

/// The message of [`look_at`] about packet 1,234, and the beginning of its place.
fn message_and_place(said: &str) -> (String, String) {
    let (_, rest) = said.split_once("says line ").unwrap_or_else(|| panic!("no message: {said}"));
    let line: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (format!("packet {FATAL} is one too many, says line {line}"), format!("{}:{line}:", file!()))
}

#[test]
fn a_panic_fails_the_run_and_costs_its_batch() {
    let (said, told) = run("--json");
    let json = said.find('{').zip(said.rfind('}')).map(|(start, end)| &said[start..=end]);
    let report: Value = serde_json::from_str(json.unwrap_or_default()).unwrap();
    let (message, place) = message_and_place(&said);
    let panics = report["panics"].as_array().unwrap();
    assert_eq!(panics.len(), 1, "{report}");
    let panic = &panics[0];
    assert_eq!((&panic["node"], &panic["count"]), (&"fussy".into(), &1.into()), "{panic}");
    assert_eq!(panic["message"], message.as_str());
    assert!(panic["place"].as_str().is_some_and(|found| found.starts_with(&place)), "{panic}");

    let lost = panic["packets"].as_u64().unwrap();
    assert!((1..=32).contains(&lost), "one batch: {panic}");
    assert_eq!(report["dropped"], serde_json::json!({ "panicked": lost }));
    assert_eq!(report["received"], PACKETS);
    assert_eq!(report["sent"], PACKETS - lost, "the others never notice");
    assert_eq!((&report["conserved"], &report["held"]), (&true.into(), &0.into()), "{report}");
    for list in ["unbalanced", "failures"] {
        assert_eq!(report[list].as_array().map(Vec::len), Some(0), "{list}: {report}");
    }
    // The panic is shown when it happens, in one line and not as Rust would print it.
    let expected = format!("warning: `fussy` of `stdin` panicked on worker 0 at {place}");
    assert!(told.contains(&expected) && told.contains(&message) && !told.contains("thread '"), "{told}");
}

#[test]
fn a_panic_is_told_with_its_place_above_the_law() {
    let (said, _) = run("--quiet");
    let (message, place) = message_and_place(&said);
    let line = said.lines().find(|line| line.starts_with("panic: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with(&format!("panic: `fussy` at {place}")), "{line}");
    assert!(line.contains(&format!(": {message} (")) && line.contains(" packets lost"), "{line}");
    let law = said.lines().skip_while(|other| *other != line).find(|line| line.contains(" received + "));
    let law = law.unwrap_or_else(|| panic!("{said}"));
    assert!(law.starts_with("3,000 received + 0 created = "), "{law}");
    assert!(law.ends_with("+ 0 held   every packet accounted for"), "{law}");
}
