//! Commands for a running dataplane where none runs, and the names that completion scripts ask for.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
