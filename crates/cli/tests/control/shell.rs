//! The shell and `top` without a terminal.

use std::io::Write;
use std::process::Stdio;

use super::dataplane::{Directory, Told};

/// Runs a script in a shell.
fn script(directory: &Directory, text: &str) -> Told {
    let mut command = directory.client(&["shell"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = command.spawn().expect("the binary was built for this test");
    let mut input = shell.stdin.take().expect("it is piped");
    // A shell that has ended at a line that failed reads no more.
    let _closed = input.write_all(text.as_bytes());
    drop(input);
    Told::from(shell.wait_with_output().expect("it is a child"))
}

#[test]
fn a_shell_runs_commands_of_its_command_line_and_of_scripts() {
    let directory = Directory::new("shell");
    let _run = directory.run(&["edge.toml"]);
    let said = directory.ask(&["shell", "-c", "status", "-c", "get routes.lookup 10.0.0.1"]).well();
    assert!(said.starts_with("graph          edge\n") && said.ends_with("\n1\n"), "{said}");
    let said =
        script(&directory, "# a comment\n\nset routes.add '10.0.0.0/8 7'\nget routes.lookup 10.0.0.1\n")
            .well();
    assert!(said.ends_with("7\n"), "{said}");
    assert!(script(&directory, "netbricks show ports\nexit\nstop\n").well().contains("\nlan "));
    assert_eq!(directory.json(&["status"])["state"], "running");
}

#[test]
fn a_script_ends_at_the_first_command_that_fails_with_its_code() {
    let directory = Directory::new("shell-fails");
    let _run = directory.run(&["edge.toml"]);
    for (line, code, expected) in [
        ("get routes.lokup 10.0.0.1", 1, "did you mean `lookup`?"),
        ("apply missing.toml", 2, "there is no file `missing.toml`"),
        ("statsu", 2, "statsu"),
        ("get 'routes", 2, "a quote or a backslash is not closed"),
        ("run edge.toml", 2, "`run` is no command of the shell"),
    ] {
        let said = script(&directory, &format!("suspend\n{line}\nresume\n")).failed(code);
        assert!(said.contains(expected), "{line}: {said}");
        assert_eq!(directory.json(&["status"])["state"], "suspended", "{line}");
    }
}

#[test]
fn top_says_that_it_needs_a_terminal() {
    let directory = Directory::new("top");
    let _run = directory.run(&["edge.toml"]);
    let said = directory.ask(&["top"]).failed(2);
    assert!(said.contains("draws on a terminal") && said.contains("netbricks stats --watch"), "{said}");
}
