//! Commands for a running dataplane, with one and without.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The command in an environment without dataplanes. Its standard input is `typed`.
fn netbricks(arguments: &[&str], typed: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(arguments)
        .env("NETBRICKS_SOCKET", "no-such-directory/edge.sock")
        .env("XDG_RUNTIME_DIR", "no-such-directory")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built");
    let mut input = child.stdin.take().expect("it is piped");
    // A command that does not read its input may have ended already.
    let _ = input.write_all(typed.as_bytes());
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

#[test]
fn without_a_dataplane_every_command_fails_and_says_where_it_looked() {
    for arguments in [
        &["status"][..],
        &["show", "ports"],
        &["get", "flows.top"],
        &["set", "flows.clear"],
        &["stats", "--watch"],
        &["events", "--follow"],
        &["confirm"],
        &["rollback"],
        &["history"],
        &["config"],
        &["suspend"],
        &["resume"],
        &["stop"],
        &["graph", "--live"],
        &["shell", "-c", "status"],
    ] {
        let output = netbricks(arguments, "");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("no-such-directory/edge.sock"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let output = netbricks(&["status", "--json"], "");
    let problem: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(problem["code"], "unreachable");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for arguments in [
        &["show", "hosts"][..],
        &["get", "flows"],
        &["apply", "no-such-file.toml"],
        &["apply", "edge.toml", "--confirm", "soon"],
        &["stats", "--count", "2"],
        &["top"],
        &["graph"],
        &["graph", "edge.toml", "--live"],
        &["graph", "edge.toml", "--socket", "x.sock"],
        &["shell", "-c", "get flows"],
    ] {
        let output = netbricks(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_script_ends_at_its_first_failure() {
    let script = "# what runs?\n\nreasons ttl-expired\nget flows\nreasons malformed\n";
    let output = netbricks(&["shell"], script);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    assert!(out.starts_with("ttl-expired ") && !out.contains("malformed"), "{out}");
    let output = netbricks(&["shell"], "reasons ttl-expired\nexit\nget flows\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn completion_without_a_dataplane_offers_nothing_and_says_nothing() {
    for words in [&["get", ""][..], &["show", "ports", "l"], &["apply", ""], &[]] {
        let arguments: Vec<&str> = ["complete-live", "--"].iter().chain(words).copied().collect();
        let output = netbricks(&arguments, "");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn bash_offers_the_names_of_what_runs() {
    let directory = scratch("completion");
    let script = text(&netbricks(&["completions", "bash"], "").stdout);
    std::fs::write(directory.join("netbricks.bash"), script).expect("the directory can be written");
    // Bash asks this function in place of the command.
    let asking = "source netbricks.bash\n\
         netbricks() { printf '%s|' \"$@\" >&2; printf 'flows.top\\tThe largest flows.\\nflows.occupancy\\t\\n'; }\n\
         COMP_WORDS=(netbricks get fl); COMP_CWORD=2\n\
         _netbricks_live netbricks fl get 2>asked; printf '%s\\n' \"${COMPREPLY[@]}\"\n\
         netbricks() { :; }\n\
         COMP_WORDS=(netbricks stat); COMP_CWORD=1\n\
         _netbricks_live netbricks stat netbricks; printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    let output = Command::new("bash").args(["-c", asking]).current_dir(&directory).output();
    let Ok(output) = output else {
        eprintln!("skipped: completion in bash, which is not installed");
        return;
    };
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "flows.top\nflows.occupancy\nstatus\nstats\n");
    let complete = Command::new("bash")
        .args(["-c", "source netbricks.bash; complete -p netbricks"])
        .current_dir(&directory)
        .output()
        .expect("bash ran before");
    assert!(text(&complete.stdout).contains("-F _netbricks_live"), "{}", text(&complete.stdout));
}

const FILE: &str = r#"
[port.lan]
driver = "generator"
rate = "1 kpps"
flows = 50
clock = "real"

[port.wan]
driver = "null"

[function.flows]
use = "monitor"
capacity = 1024

[[chain]]
from = "lan"
through = ["ttl", "flows"]
to = "wan"

[runtime]
idle = "quiet"
frames = 512
"#;

/// A run that listens on a socket of its own.
struct Run {
    child: Child,
    directory: PathBuf,
}

impl Run {
    /// Starts it, and waits until it listens.
    fn start(name: &str) -> Self {
        let directory = scratch(name);
        std::fs::write(directory.join("edge.toml"), FILE).expect("the directory can be written");
        let more = FILE.replace("[\"ttl\", \"flows\"]", "[\"ttl\", \"macswap\", \"flows\"]");
        std::fs::write(directory.join("more.toml"), more).expect("the directory can be written");
        let wrong = FILE.replace("\"flows\"]", "\"flow\"]");
        std::fs::write(directory.join("wrong.toml"), wrong).expect("the directory can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["run", "edge.toml", "--socket", "edge.sock", "--duration", "600s"])
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command was built");
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut lines = errors.lines().map_while(Result::ok);
        let listens = lines.any(|line| line.contains("listens on"));
        assert!(listens, "it ended before it listened");
        // What it says later must have a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, directory }
    }

    /// A command for it. Answers its exit code and outputs.
    fn ask(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(arguments)
            .env("NETBRICKS_SOCKET", "edge.sock")
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output()
            .expect("the command was built");
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// The output of a command that succeeds.
    fn told(&self, line: &str) -> String {
        let (code, out, err) = self.ask(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        out
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.told(&format!("{line} --json"))).expect("one JSON value")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It has ended already if the test has succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_is_asked_while_packets_move() {
    let run = Run::start("live-asked");
    assert_eq!(run.json("status")["file"], "edge.toml");
    assert!(run.told("status").starts_with("graph          edge\nstate          running, up "));
    assert_eq!(run.json("show ports")[0]["name"], "lan");
    assert_eq!(run.json("show workers")[0]["receives"][0], "lan.0");
    assert_eq!(run.json("show functions")[1]["definition"], "monitor");
    let tables = run.json("show tables flows");
    assert_eq!((&tables[0]["table"], &tables[0]["capacity"]), (&"flows".into(), &1024.into()));
    assert!(run.told("show handlers flows").contains("flows.flows.occupancy  get"));
    assert!(run.told("show drops ttl").ends_with('\n'));
    assert!(run.told("get flows.flows.occupancy").ends_with(" 1024\n"));
    assert_eq!(run.told("graph --live"), "lan (generator) ──▶ ttl ──▶ flows ──▶ wan.send\n");
    assert_eq!(run.told("config"), FILE);
    let watched = run.told("stats --watch --interval 50ms --count 3 --json");
    let times: Vec<u64> = watched
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("one JSON value a line"))
        .map(|stats| stats["time_ns"].as_u64().expect("a number"))
        .collect();
    assert!(times.len() == 3 && times.is_sorted(), "{times:?}");
    assert_eq!(
        run.told("complete-live -- get flows.flows.o").split('\t').next(),
        Some("flows.flows.occupancy")
    );
    assert_eq!(run.told("complete-live -- show ports w"), "wan\tnull\n");
    let (code, _, err) = run.ask(&["get", "flow.flows.occupancy"]);
    assert_eq!((code, err.contains("did you mean `flows`?")), (1, true), "{err}");
    // A socket of the command line comes before that of the environment.
    let (code, _, err) = run.ask(&["status", "--socket", "none.sock"]);
    assert_eq!((code, err.contains("none.sock")), (1, true), "{err}");
}

#[test]
fn a_run_is_changed_confirmed_rolled_back_and_stopped() {
    let mut run = Run::start("live-changed");
    assert!(run.told("plan edge.toml").contains("nothing changes"));
    let plan = run.told("plan more.toml");
    assert!(plan.contains("\n  + function macswap  added ") && plan.contains("\n1 added, "), "{plan}");
    let wrong = run.ask(&["plan", "wrong.toml"]);
    let checked = run.ask(&["check", "wrong.toml"]);
    assert_eq!(wrong, checked, "a faulty file is shown as `check` shows it");
    assert_eq!(wrong.0, 2);
    assert_eq!(run.ask(&["apply", "wrong.toml"]), checked);

    assert!(run.told("apply more.toml --dry-run").ends_with("a dry run: nothing has changed\n"));
    let applied = run.told("apply more.toml --confirm 10min --note swap");
    let status = run.json("status");
    assert_eq!(status["confirmed"], false);
    let number = &status["configuration"];
    assert!(applied.contains(&format!("\nconfiguration {number} runs, generation ")), "{applied}");
    assert_eq!(run.told("confirm"), format!("configuration {number} is confirmed\n"));
    let history = run.json("history");
    assert_eq!((&history[0]["note"], &history[0]["running"]), (&"swap".into(), &true.into()));
    assert!(run.told("config --history 1") == FILE && run.told("config") != FILE);
    assert!(run.told("rollback --to 1").contains("\n  - function macswap  removed"));
    assert_eq!(run.told("config"), FILE);

    assert!(run.told("suspend").starts_with("suspended: "));
    assert_eq!(run.json("status")["state"], "suspended");
    assert!(run.told("resume").starts_with("running: "));
    let events = run.told("events --json");
    let kinds: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("one JSON value a line"))
        .map(|event| event["kind"].as_str().expect("a text").to_owned())
        .collect();
    for kind in ["applied", "confirmed", "rolled-back", "suspended", "resumed"] {
        assert!(kinds.iter().any(|seen| seen == kind), "{kind}: {kinds:?}");
    }
    let (code, out, err) =
        run.ask(&["shell", "-c", "get flows.flows.occupancy", "-c", "confirm", "-c", "stop"]);
    assert_eq!((code, out.ends_with(" 1024\n")), (1, true), "{out}");
    assert!(err.contains("nothing waits to be confirmed"), "{err}");
    assert_eq!(run.told("stop"), "stopping: the run drains and ends\n");
    assert!(run.child.wait().expect("it ends").success());
}
