//! The command line: its arguments, and the code that runs each command.

mod arguments;
mod attend;
mod bench;
mod bench_control;
mod bench_rules;
mod check;
mod click;
#[cfg(test)]
mod containment_tests;
mod control;
mod file;
#[cfg(test)]
mod filters_tests;
mod generate;
mod graph;
mod list;
mod live;
mod log;
mod mmb_offline;
#[cfg(test)]
mod panics_tests;
#[cfg(test)]
mod partition_tests;
mod progress;
mod run;
mod sandbox;
mod session;
mod shared_watchdog;
mod shell;
#[cfg(test)]
mod shuffles_tests;
mod top;
mod vet;
pub(crate) use run::{Begun, placement, places, pool_for, runtime_config};
#[cfg(test)]
pub(crate) use session::{chain, while_running};

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use netbricks_core::Registry;
use netbricks_ports::Drivers;

use arguments::{
    Color, Command, CommandLine, FileArguments, Format, GenerateArguments, GraphArguments, ListArguments,
    ReasonArguments, RunArguments, RunLimits,
};
pub(crate) use bench::BenchArguments;
use live::LiveCommand;

/// Exit code for a command line or a configuration that is wrong.
const USAGE: u8 = 2;
/// Exit code for a correct request that failed.
const FAILURE: u8 = 1;

/// The functions and drivers that commands use; a copy has the same ones.
#[derive(Clone)]
pub(crate) struct Application {
    pub(crate) registry: Arc<Registry>,
    pub(crate) drivers: Arc<Drivers>,
}

impl Application {
    pub(crate) fn new(registry: Registry, drivers: Drivers) -> Self {
        Self { registry: Arc::new(registry), drivers: Arc::new(drivers) }
    }
}

/// A command that did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the file is wrong. The text ends the standard error output.
    Usage(String),
    /// It failed.
    Failed(String),
    /// Everything has been shown. The number is the exit code.
    Told(u8),
    /// The reader of our output has closed it.
    Closed,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(format!("the output cannot be written: {error}")),
        }
    }
}

/// The result of a command: `outcome`, unless its text could not be written.
///
/// A reader that closes the output early does not change the outcome. Any other error of writing is a
/// failure.
fn concluded(outcome: Result<(), Failure>, written: Result<(), Failure>) -> Result<(), Failure> {
    match written {
        Ok(()) | Err(Failure::Closed) => outcome,
        unwritten => unwritten,
    }
}

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    /// Colours on standard error.
    pub(crate) color: bool,
    /// Standard error is a terminal.
    pub(crate) live: bool,
}

impl Console {
    fn new(color: Color) -> Self {
        let live = std::io::stderr().is_terminal();
        Self { color: color.wanted(live), live }
    }

    /// Writes to standard output.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Writes a value to standard output as JSON, in one line.
    pub(crate) fn json(self, value: &impl serde::Serialize) -> Result<(), Failure> {
        match serde_json::to_string(value) {
            Ok(text) => self.print(&format!("{text}\n")),
            Err(error) => Err(Failure::Failed(format!("the report cannot be written as JSON: {error}"))),
        }
    }

    /// Writes to standard error. An error of writing is ignored: there is nowhere left to report it.
    pub(crate) fn tell(self, text: &str) {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    /// Writes an error or a warning of one line to standard error.
    ///
    /// Where the log is JSON, it is a line of the log.
    pub(crate) fn complain(self, level: crate::diagnostic::Level, text: &str) {
        if log::is_json() {
            return log::complain(level, text);
        }
        let source = crate::diagnostic::Source::new("", "");
        let diagnostic =
            crate::diagnostic::Diagnostic { level, ..crate::diagnostic::Diagnostic::error(text) };
        self.tell(&source.render(&diagnostic, self.color));
    }

    /// Shows the errors and warnings of a file.
    ///
    /// Where the log is JSON, each is a line of the log.
    pub(crate) fn show(
        self,
        diagnostics: &crate::diagnostic::Diagnostics,
        source: &crate::diagnostic::Source<'_>,
    ) {
        if !log::is_json() {
            return self.tell(&diagnostics.render(source, self.color));
        }
        for diagnostic in diagnostics.sorted() {
            log::complain(diagnostic.level, &source.line_of(diagnostic));
        }
    }
}

/// The command line of this program, with the generator's keys as flags of `generate`.
fn command(app: &Application) -> clap::Command {
    CommandLine::command().mut_subcommand("generate", |command| generate::with_keys(command, &app.drivers))
}

/// Runs the command that the arguments name.
pub(crate) fn main(app: &Application, arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = arguments.into_iter().collect();
    if let Some(code) = click::by_name(&arguments).or_else(|| netbricks_vet::by_name(&arguments)) {
        return code;
    }
    let mut tree = command(app);
    let matches = match tree.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let error = without_hidden(error, &tree);
            // Help goes to standard output and is no failure.
            let code = if error.use_stderr() { USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let line = match CommandLine::from_arg_matches(&matches) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(USAGE);
        }
    };
    let console = Console::new(line.color);
    // A panic in a function is reported at its place in the output, not when it happens.
    netbricks_core::graph::observe_panics();
    let outcome = dispatch(app, console, line, &matches);
    let code = exit_code(console, outcome);
    log::flush();
    ExitCode::from(code)
}

/// The error about a command line, without hidden commands among those that it suggests.
fn without_hidden(mut error: clap::Error, tree: &clap::Command) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let Some(ContextValue::Strings(names)) = error.get(kind) else { return error };
    let is_hidden = |name: &&String| {
        tree.get_subcommands().any(|command| command.is_hide_set() && command.get_name() == **name)
    };
    let left: Vec<String> = names.iter().filter(|name| !is_hidden(name)).cloned().collect();
    match left.is_empty() {
        true => drop(error.remove(kind)),
        false => drop(error.insert(kind, ContextValue::Strings(left))),
    }
    error
}

/// The exit code of a command with this outcome, after its failure has been told.
fn exit_code(console: Console, outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) | Err(Failure::Closed) => 0,
        Err(Failure::Told(code)) => code,
        Err(Failure::Usage(text)) => {
            console.complain(crate::diagnostic::Level::Error, &text);
            USAGE
        }
        Err(Failure::Failed(text)) => {
            console.complain(crate::diagnostic::Level::Error, &text);
            FAILURE
        }
    }
}

fn dispatch(
    app: &Application,
    console: Console,
    line: CommandLine,
    matches: &ArgMatches,
) -> Result<(), Failure> {
    match line.command {
        Command::Run(arguments) => run::run(app, console, &arguments),
        Command::Check(arguments) => check::check(app, console, &arguments),
        Command::Generate(arguments) => {
            // The command line was parsed as `generate`, so its matches exist.
            let flags = matches.subcommand_matches("generate");
            generate::generate(app, console, &arguments, flags)
        }
        Command::Functions(arguments) => list::functions(app, console, &arguments),
        Command::Ports(arguments) => list::ports(app, console, &arguments),
        Command::Reasons(arguments) => list::reasons(console, &arguments),
        Command::Graph(arguments) => graph::graph(app, console, &arguments),
        Command::Bench(arguments) => bench::bench(console, &arguments),
        Command::Vet(arguments) => vet::vet(console, &arguments),
        Command::Sandbox(arguments) => sandbox::sandbox(console, arguments),
        Command::Click(arguments) => click::run("netbricks click", arguments),
        Command::ClickFlatten(arguments) => click::run("netbricks click-flatten", arguments),
        Command::Completions { shell } => {
            let script = live::completion_script(shell, &mut self::command(app));
            console.print(&script)
        }
        Command::Live(LiveCommand::Shell(arguments)) => shell::shell(app, console, line.color, &arguments),
        Command::Live(LiveCommand::Mmb(arguments)) if mmb_offline::is_offline(&arguments) => {
            mmb_offline::run(app, console, &arguments)
        }
        Command::Live(command) => live::run(console, line.color, &command),
        Command::CompleteLive { words } => console.print(&live::completions(&self::command(app), &words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command(&Application::new(Registry::new(), Drivers::standard())).debug_assert();
    }

    #[test]
    fn an_error_about_a_command_suggests_no_hidden_one() {
        let mut tree = command(&Application::new(Registry::new(), Drivers::standard()));
        let told = ["complete-liv", "complet", "statu"].map(|word| {
            let error = tree.try_get_matches_from_mut(["netbricks", word]).unwrap_err();
            without_hidden(error, &tree).to_string()
        });
        assert!(!told[0].contains("`complete-live`") && !told[0].contains("'complete-live'"), "{}", told[0]);
        assert!(told[1].contains("'completions'") && !told[1].contains("'complete-live'"), "{}", told[1]);
        assert!(told[2].contains("'status'"), "{}", told[2]);
    }
}
