//! The command line: its arguments, and the code that runs each command.

mod bench;
mod check;
#[cfg(test)]
mod containment_tests;
mod file;
mod generate;
mod graph;
mod list;
#[cfg(test)]
mod panics_tests;
#[cfg(test)]
mod partition_tests;
mod progress;
mod run;
mod session;
#[cfg(test)]
mod shuffles_tests;
pub(crate) use run::{Begun, placement, places, pool_for, runtime_config};

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use netbricks_core::Registry;
use netbricks_ports::Drivers;

pub(crate) use bench::BenchArguments;

use crate::config::Idle;

/// Exit code for a command line or a configuration that is wrong.
const USAGE: u8 = 2;
/// Exit code for a correct request that failed.
const FAILURE: u8 = 1;

#[derive(Debug, clap::Parser)]
#[command(
    name = "netbricks",
    version,
    about = "Network functions in safe Rust, at C's speed",
    long_about = "Runs chains of network functions between ports, as a TOML file describes them.",
    after_help = "Start with:\n  netbricks run examples/edge.toml\n  netbricks functions\n  netbricks ports pcap\n\n\
                  Exit codes: 0 fine, 1 failed, 2 the command line or the file is wrong.",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct CommandLine {
    /// Whether to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the chains of a file until their sources end, time is up, or Ctrl-C
    #[command(
        after_help = "Examples:\n  netbricks run edge.toml\n  netbricks run edge.toml --duration 10s --workers 2\n  \
                            netbricks run edge.toml --json | jq .dropped"
    )]
    Run(RunArguments),
    /// Check all of a file that can be checked without running it
    #[command(after_help = "Examples:\n  netbricks check edge.toml\n  netbricks check edge.toml --json")]
    Check(FileArguments),
    /// Write a generator's traffic to a capture file
    #[command(after_help = "Examples:\n  netbricks generate out.pcapng --packets 100000 --seed 7\n  \
                            netbricks generate web.pcap.gz --duration 10s --conversation true --payload http\n\n\
                            The generator's own keys (`netbricks ports generator`) are flags, but for `clock`, and \
                            `steer` and `workers`, which are about queues.")]
    Generate(GenerateArguments),
    /// List functions, or the keys, ways out, handlers and state of one
    #[command(after_help = "Examples:\n  netbricks functions\n  netbricks functions monitor\n  \
                            netbricks functions --json")]
    Functions(ListArguments),
    /// List port drivers, or the keys of one
    #[command(
        after_help = "Examples:\n  netbricks ports\n  netbricks ports af_packet\n  netbricks ports --json"
    )]
    Ports(ListArguments),
    /// List the reasons for which packets are dropped or consumed
    #[command(after_help = "Examples:\n  netbricks reasons\n  netbricks reasons ttl-expired\n  \
                            netbricks reasons --json")]
    Reasons(ReasonArguments),
    /// Draw the graph that a file's chains make
    #[command(
        after_help = "Examples:\n  netbricks graph edge.toml\n  netbricks graph edge.toml --format svg > edge.svg\n  \
                            netbricks graph edge.toml --format dot | dot -Tpng > edge.png"
    )]
    Graph(GraphArguments),
    /// Measure functions, chains, and what workers share
    #[command(after_help = "Examples:\n  netbricks bench --list\n  netbricks bench ttl macswap --json\n  \
                            netbricks bench chain-wire-16 --core 1 --rounds 11")]
    Bench(BenchArguments),
    /// Print a shell's completion script
    #[command(after_help = "Examples:\n  netbricks completions bash > /etc/bash_completion.d/netbricks\n  \
                            netbricks completions zsh > ~/.zfunc/_netbricks")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, clap::Args)]
struct FileArguments {
    /// The configuration file
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    #[command(flatten)]
    file: FileArguments,
    #[command(flatten)]
    limits: RunLimits,
    /// Threads that move packets
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// Where everything random starts
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How an idle worker waits
    #[arg(long, value_enum, value_name = "POLICY")]
    idle: Option<Idle>,
    /// Packets that a source is asked for at a time
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: Option<u16>,
}

#[derive(Debug, Default, clap::Args)]
struct RunLimits {
    /// Stop after this time, such as 10s or "1.5 min"
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<netbricks_core::units::Duration>,
    /// Print nothing but the report, errors and warnings
    #[arg(long, short)]
    quiet: bool,
    /// Leaves out the line about ports and chains, because the operator did not write them.
    #[arg(skip)]
    unannounced: bool,
}

#[derive(Debug, clap::Args)]
struct GenerateArguments {
    /// The capture file to write: its name ends in .pcap or .pcapng, and .gz to compress it
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print nothing but the result, errors and warnings
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
struct ListArguments {
    /// Show the keys of this one
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ReasonArguments {
    /// Explain this one
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct GraphArguments {
    #[command(flatten)]
    file: FileArguments,
    /// How to draw it; svg needs Graphviz
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Dot,
    Svg,
    Json,
}

/// The functions and drivers that commands use.
pub(crate) struct Application {
    pub(crate) registry: Registry,
    pub(crate) drivers: Drivers,
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
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => live && !unwanted,
        };
        Self { color, live }
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
    pub(crate) fn complain(self, level: crate::diagnostic::Level, text: &str) {
        let source = crate::diagnostic::Source::new("", "");
        let diagnostic =
            crate::diagnostic::Diagnostic { level, ..crate::diagnostic::Diagnostic::error(text) };
        self.tell(&source.render(&diagnostic, self.color));
    }
}

/// The command line of this program, with the generator's keys as flags of `generate`.
fn command(app: &Application) -> clap::Command {
    CommandLine::command().mut_subcommand("generate", |command| generate::with_keys(command, &app.drivers))
}

/// Runs the command that the arguments name.
pub(crate) fn main(app: &Application, arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let matches = match command(app).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
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
    let code = match dispatch(app, console, line.command, &matches) {
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
    };
    ExitCode::from(code)
}

fn dispatch(
    app: &Application,
    console: Console,
    command: Command,
    matches: &ArgMatches,
) -> Result<(), Failure> {
    match command {
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
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut self::command(app), "netbricks", &mut script);
            console.print(&String::from_utf8_lossy(&script))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command(&Application { registry: Registry::new(), drivers: Drivers::standard() }).debug_assert();
    }
}
