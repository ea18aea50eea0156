//! `shell`: takes commands line by line, from a terminal, a script, or the command line.

mod editor;
mod highlight;
mod words;

use std::cell::RefCell;
use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::FromArgMatches;
use netbricks_control::api::Status;

use super::arguments::{Color, Command, CommandLine};
use super::live::mmb::Batch;
use super::live::{self, Api, LiveCommand, Output, ShellArguments, connect, shell_words};
use super::{Application, Console, FAILURE, Failure, USAGE, dispatch, graph, without_hidden};
use crate::diagnostic::{Diagnostic, Source};
use editor::Editor;

/// Commands that make no sense within a shell, with the reason.
const OUTSIDE: &[(&str, &str)] = &[
    ("run", "it would take over this terminal"),
    ("bench", "it measures a machine that nothing else uses"),
    ("generate", "it is about files"),
    ("completions", "it prints a script for another shell"),
    ("complete-live", "it is for scripts"),
    ("shell", "this is one already"),
];

const HELP: &str = "exit, quit or Ctrl-D ends the shell, Tab completes, Ctrl-R searches the history.";

pub(super) fn shell(
    app: &Application,
    console: Console,
    color: Color,
    arguments: &ShellArguments,
) -> Result<(), Failure> {
    let client = connect(&arguments.connection)?;
    let session = Session::new(app, &client, console, color);
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let output = Output::new(&mut out, &mut err, console, color);
    if !arguments.commands.is_empty() {
        return session.script(output, arguments.commands.iter().map(|line| Ok(line.clone())));
    }
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return session.converse(output);
    }
    session.script(output, std::io::stdin().lock().lines())
}

/// Whether the shell goes on behind a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

/// A dataplane, and the commands for it.
struct Session<'s> {
    app: &'s Application,
    api: &'s dyn Api,
    console: Console,
    color: Color,
    tree: clap::Command,
    /// Commands of mmb that wait for their `commit`.
    batch: RefCell<Batch>,
}

impl<'s> Session<'s> {
    fn new(app: &'s Application, api: &'s dyn Api, console: Console, color: Color) -> Self {
        Self { app, api, console, color, tree: tree(app), batch: RefCell::default() }
    }

    /// Runs lines until one fails.
    fn script(
        &self,
        mut output: Output<'_>,
        lines: impl Iterator<Item = std::io::Result<String>>,
    ) -> Result<(), Failure> {
        for line in lines {
            let line =
                line.map_err(|error| Failure::Usage(format!("the commands cannot be read: {error}")))?;
            if self.run(&line, &mut output)? == Next::End {
                break;
            }
        }
        match self.batch.borrow().left() {
            None => Ok(()),
            Some(left) => Err(Failure::Failed(left)),
        }
    }

    /// Takes lines from a terminal until the operator ends it. A line that fails does not end it.
    fn converse(&self, output: Output<'_>) -> Result<(), Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))
            .map_err(|error| Failure::Failed(format!("Ctrl-C cannot be caught: {error}")))?;
        let mut output = output.until(Arc::clone(&interrupted));
        let mut editor = Editor::new(&self.tree, self.color.wanted(true));
        if let Some(warning) = editor.warning() {
            self.console.complain(crate::diagnostic::Level::Warning, warning);
        }
        loop {
            let prompt = self.prompt(&mut editor);
            let Some(line) = editor.read(prompt)? else { break };
            interrupted.store(false, Ordering::Relaxed);
            match self.run(&line, &mut output) {
                Ok(Next::Line) => {}
                Ok(Next::End) => break,
                Err(failure) => _ = self.told(&mut output, failure),
            }
        }
        if let Some(left) = self.batch.borrow().left() {
            self.console.complain(crate::diagnostic::Level::Warning, &left);
        }
        Ok(())
    }

    /// The prompt. It also asks for the names of what runs, if there is another generation.
    fn prompt(&self, editor: &mut Editor) -> String {
        match self.api.status() {
            Ok(status) => {
                editor.know(self.api, status.generation);
                prompt(&status)
            }
            Err(_) => "(no answer)".into(),
        }
    }

    /// Runs a line.
    fn run(&self, line: &str, output: &mut Output<'_>) -> Result<Next, Failure> {
        let Some(mut words) = shell_words(line) else {
            return Err(Failure::Usage("a quote or a backslash is not closed".into()));
        };
        if words.first().is_some_and(|word| word == "netbricks") {
            words.remove(0);
        }
        match words.first().map(String::as_str) {
            None => return Ok(Next::Line),
            Some("exit" | "quit") => return Ok(Next::End),
            Some(first) => {
                if let Some((name, reason)) = OUTSIDE.iter().find(|(name, _)| *name == first) {
                    return Err(Failure::Usage(format!("`{name}` is no command of the shell: {reason}")));
                }
            }
        }
        let matches = self.tree.clone().try_get_matches_from(&words);
        let parsed = matches.map_err(|error| without_hidden(error, &self.tree)).and_then(|matches| {
            let line = CommandLine::from_arg_matches(&matches)?;
            Ok((matches, line))
        });
        let (matches, mut line) = match parsed {
            Ok(parsed) => parsed,
            Err(error) if error.use_stderr() => {
                output.tell(&error.to_string());
                return Err(Failure::Told(USAGE));
            }
            Err(help) => {
                output.print(&help.to_string())?;
                return Ok(Next::Line);
            }
        };
        if line.color == Color::Auto {
            line.color = self.color;
        }
        match &line.command {
            // A line may name another dataplane than the shell's.
            Command::Live(command) if command.connection().is_given() => {
                let client = connect(command.connection())?;
                live::execute(&client, output, command)?;
            }
            Command::Live(LiveCommand::Mmb(arguments)) => {
                let done = self.batch.borrow_mut().mmb(self.api, output, arguments);
                live::finished(output, arguments.plain.json, done)?;
            }
            Command::Live(command) => live::execute(self.api, output, command)?,
            Command::Graph(arguments) if arguments.live && !arguments.connection.is_given() => {
                graph::running(self.api, self.console, arguments)?;
            }
            _ => dispatch(self.app, self.console, line, &matches)?,
        }
        Ok(Next::Line)
    }

    /// Tells a failure. Answers its exit code.
    fn told(&self, output: &mut Output<'_>, failure: Failure) -> u8 {
        let (text, code) = match failure {
            Failure::Closed => return 0,
            Failure::Told(code) => return code,
            Failure::Usage(text) => (text, USAGE),
            Failure::Failed(text) => (text, FAILURE),
        };
        output.tell(&Source::new("", "").render(&Diagnostic::error(text), self.console.color));
        code
    }
}

/// The graph's name and the generation; before them the time that is left to confirm.
fn prompt(status: &Status) -> String {
    let Status { graph, generation, confirm_within_seconds, .. } = status;
    let graph = crate::diagnostic::visible(graph);
    match confirm_within_seconds {
        None => format!("{graph} {generation}"),
        Some(seconds) => {
            format!("(confirm within {}) {graph} {generation}", live::units::running_for(*seconds))
        }
    }
}

/// The tree of commands without a name in front, and without those that make no sense here.
fn tree(app: &Application) -> clap::Command {
    let mut tree =
        super::command(app).no_binary_name(true).override_usage("COMMAND [ARGUMENT]...").after_help(HELP);
    for (name, _) in OUTSIDE {
        tree = tree.mut_subcommand(name, |command| command.hide(true));
    }
    tree
}

#[cfg(test)]
mod tests {
    use netbricks_core::Registry;
    use netbricks_ports::Drivers;

    use super::super::live::canned::Canned;
    use super::*;

    fn app() -> Application {
        Application::new(Registry::new(), Drivers::standard())
    }

    /// Runs a script. Answers its outcome as a code, and what it wrote.
    fn ran(api: &Canned, script: &str) -> (u8, String, String) {
        let app = app();
        let console = Console { color: false, live: false };
        let session = Session::new(&app, api, console, Color::Never);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome =
            session.script(Output::plain(&mut out, &mut err), script.lines().map(|line| Ok(line.to_owned())));
        let code = match outcome {
            Ok(()) => 0,
            Err(failure) => session.told(&mut Output::plain(&mut Vec::new(), &mut err), failure),
        };
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_script_runs_line_by_line() {
        let api = Canned::default();
        let script =
            "# a comment\n\nset routes.add '10.0.0.0/8 3' # why\nnetbricks suspend\nresume\nexit\nstop\n";
        let (code, out, err) = ran(&api, script);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with("suspended: "), "{out}");
        assert_eq!(api.asked(), ["write routes add 10.0.0.0/8 3 None", "suspend", "resume"]);
    }

    #[test]
    fn a_script_ends_at_the_first_failure_with_its_code() {
        let api = Canned::default();
        let (code, _, err) = ran(&api, "suspend\nshow handlers flow\nstop\n");
        assert_eq!(
            (code, err.as_str()),
            (1, "error: there is no function `flow`\n = did you mean `flows`?\n")
        );
        assert_eq!(api.asked(), ["suspend"]);
        for (line, told) in [
            ("statsu", "unrecognized subcommand 'statsu'"),
            ("apply", "required arguments"),
            ("get 'a", "a quote or a backslash is not closed"),
            ("run edge.toml", "`run` is no command of the shell"),
            ("shell", "this is one already"),
        ] {
            let (code, _, err) = ran(&api, line);
            assert_eq!(code, 2, "{line}");
            assert!(err.contains(told), "{err}");
        }
    }

    #[test]
    fn a_batch_of_mmb_that_a_script_leaves_fails_it() {
        let mut api = Canned::default();
        let function = netbricks_control::api::Function {
            name: "edge".into(),
            definition: "mmb".into(),
            ..Default::default()
        };
        api.functions.push(function);
        let (code, out, err) = ran(&api, "mmb begin\nmmb add tcp-dport 80 drop\n");
        assert_eq!(code, 1, "{out}{err}");
        assert!(err.contains("was not committed: nothing of its 1 line is done"), "{err}");
        let (code, _, err) = ran(&api, "mmb begin\nmmb flush\nmmb commit\n");
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(api.asked().last().map(String::as_str), Some("write edge run flush\n None"));
    }

    #[test]
    fn help_lists_the_commands_without_a_name_in_front() {
        let (code, out, err) = ran(&Canned::default(), "help\nhelp get\n");
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("\n  status ") && out.contains(HELP), "{out}");
        assert!(!out.contains("\n  run ") && !out.contains("complete-live"), "{out}");
        assert!(out.contains("Usage: get [OPTIONS] <FUNCTION.HANDLER>"), "{out}");
    }

    #[test]
    fn the_prompt_says_what_runs() {
        let mut status = Canned::default().status;
        assert_eq!(prompt(&status), "edge 12");
        status.confirm_within_seconds = Some(43.2);
        assert_eq!(prompt(&status), "(confirm within 43 s) edge 12");
    }

    #[test]
    fn the_tree_is_consistent() {
        tree(&app()).debug_assert();
    }
}
