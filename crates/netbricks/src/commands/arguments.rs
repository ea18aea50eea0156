//! The arguments of the command line.

use std::path::PathBuf;

use super::bench::BenchArguments;
use super::live::{Connection, LiveCommand};
use super::vet::VetArguments;
use crate::config::Idle;

#[derive(Debug, clap::Parser)]
#[command(
    name = "netbricks",
    version,
    about = "Network functions in safe Rust, at C's speed",
    long_about = "Runs chains of network functions between ports, as a TOML file describes them.",
    after_help = "Start with:\n  netbricks run examples/edge.toml\n  netbricks functions\n  netbricks ports pcap\n\n\
                  A run that goes on, and what to ask it on another terminal:\n  netbricks run examples/live.toml\n  \
                  netbricks status\n  netbricks top\n  netbricks shell\n\n\
                  Exit codes: 0 fine, 1 failed, 2 the command line or the file is wrong.",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(super) struct CommandLine {
    /// Whether to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(super) color: Color,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether output gets colours that goes to a terminal, or does not.
    pub(super) fn wanted(self, terminal: bool) -> bool {
        let unwanted = || {
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
                || std::env::var_os("TERM").is_some_and(|value| value == "dumb")
        };
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => terminal && !unwanted(),
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
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
    /// Draw the graph that a file's chains make, or the one that runs
    #[command(
        after_help = "Examples:\n  netbricks graph edge.toml\n  netbricks graph edge.toml --format svg > edge.svg\n  \
                            netbricks graph edge.toml --format dot | dot -Tpng > edge.png\n  netbricks graph --live"
    )]
    Graph(GraphArguments),
    /// Measure functions, chains, and what workers share
    #[command(after_help = "Examples:\n  netbricks bench --list\n  netbricks bench ttl macswap --json\n  \
                            netbricks bench chain-wire-16 --core 1 --rounds 11")]
    Bench(BenchArguments),
    /// Refuse a function crate that reaches more than packets and state
    #[command(
        after_help = "Examples:\n  netbricks vet ../acme-nf --list vet.toml\n  netbricks vet ../acme-nf --json | jq '.crates[].findings'\n  \
                      netbricks vet ../acme-nf --attest acme-nf.attestation.json\n  netbricks vet ../acme-nf --missing >> vet.toml\n\n\
                      Exit codes: 0 clean, 1 refused or failed, 2 the command line or the list is wrong."
    )]
    Vet(VetArguments),
    /// Look at modules for the function `sandbox`
    #[command(after_help = "Examples:\n  netbricks sandbox check macswap.wasm\n  \
                            netbricks sandbox check router.wasm --config-file routes.txt --json")]
    Sandbox(SandboxArguments),
    /// Runs a Click configuration, with the options of Click's own command.
    #[command(disable_help_flag = true)]
    Click(ClickArguments),
    /// Flattens a Click configuration, with the options of Click's own command.
    #[command(disable_help_flag = true)]
    ClickFlatten(ClickArguments),
    /// Print a shell's completion script
    #[command(after_help = "Examples:\n  netbricks completions bash > /etc/bash_completion.d/netbricks\n  \
                            netbricks completions zsh > ~/.zfunc/_netbricks")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Live(LiveCommand),
    /// Print the names of the running dataplane with which the last word can go on, for completion scripts
    #[command(hide = true)]
    CompleteLive {
        /// The words after `netbricks`, with the one that is being typed last
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct SandboxArguments {
    #[command(subcommand)]
    pub(super) command: SandboxCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum SandboxCommand {
    /// Say what a module exports and needs, and what it would be refused for
    #[command(after_help = "Examples:\n  netbricks sandbox check macswap.wasm\n  \
                            netbricks sandbox check policer.wasm --config 'rate 1000000 burst 64'\n  \
                            netbricks sandbox check lpm.wasm --memory '64 MiB' --set mode=mapped\n\n\
                            Exit codes: 0 it would be taken, 2 it would be refused.")]
    Check(ModuleArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ModuleArguments {
    /// The module
    #[arg(value_name = "FILE.wasm", value_hint = clap::ValueHint::FilePath)]
    pub(super) module: PathBuf,
    /// Its configuration, as the key `config` gives it
    #[arg(long, value_name = "TEXT", conflicts_with = "config_file")]
    pub(super) config: Option<String>,
    /// A file with its configuration
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) config_file: Option<PathBuf>,
    /// Memory that it may have, as the key `memory` gives it
    #[arg(long, value_name = "BYTES")]
    pub(super) memory: Option<String>,
    /// Another key of the function `sandbox`, as often as needed; `netbricks functions sandbox` lists them
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct FileArguments {
    /// The configuration file
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Values of the parameters of a Click configuration, FILE.click
    #[arg(value_name = "NAME=VALUE")]
    pub(super) parameters: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Default, clap::Args)]
pub(super) struct RunArguments {
    /// The configuration file; without one, the last confirmed configuration of `--state`
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    pub(super) file: Option<PathBuf>,
    /// Values of the parameters of a Click configuration, FILE.click
    #[arg(value_name = "NAME=VALUE")]
    pub(super) parameters: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) limits: RunLimits,
    #[command(flatten)]
    pub(super) control: ControlArguments,
    #[command(flatten)]
    pub(super) log: LogArguments,
    /// Threads that move packets
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) workers: Option<u16>,
    /// Where everything random starts
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// How an idle worker waits
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(super) idle: Option<Idle>,
    /// Packets that a source is asked for at a time
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) burst: Option<u16>,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ControlArguments {
    /// The Unix socket on which the run can be asked and changed
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(super) socket: Option<PathBuf>,
    /// The directory that keeps configurations and live changes for the next start
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(super) state: Option<PathBuf>,
    /// Listen on no socket
    #[arg(long, conflicts_with = "socket")]
    pub(super) no_control: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct LogArguments {
    /// Log what this filter takes to standard error, such as `info` or `netbricks::requests=debug`; also NETBRICKS_LOG
    #[arg(long, value_name = "FILTER")]
    pub(super) log: Option<String>,
    /// How lines of the log are written; json makes each line on standard error a JSON object
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Default, clap::Args)]
pub(super) struct RunLimits {
    /// Stop after this time, such as 10s or "1.5 min"
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) duration: Option<netbricks_core::units::Duration>,
    /// Print nothing but the report, errors and warnings
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Leaves out the line about ports and chains, because the operator did not write them.
    #[arg(skip)]
    pub(super) unannounced: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct GenerateArguments {
    /// The capture file to write: its name ends in .pcap or .pcapng, and .gz to compress it
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Print nothing but the result, errors and warnings
    #[arg(long, short)]
    pub(super) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Show the keys of this one
    pub(super) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReasonArguments {
    /// Explain this one
    pub(super) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct GraphArguments {
    /// The configuration file
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath, required_unless_present = "live")]
    pub(super) file: Option<PathBuf>,
    /// Draw the graph that runs; no file is needed
    #[arg(long, conflicts_with = "file")]
    pub(super) live: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// How to draw it; svg needs Graphviz
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Dot,
    Svg,
    Json,
}

/// Arguments that Click's commands read themselves.
#[derive(Debug, clap::Args)]
pub(super) struct ClickArguments {
    /// Options and files: `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(super) words: Vec<std::ffi::OsString>,
}
