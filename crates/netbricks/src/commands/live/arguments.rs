//! The arguments of the commands that ask and change a running dataplane.

use std::path::PathBuf;

use netbricks_control::api::ChangeOptions;
use netbricks_core::units;

/// The dataplane that a command talks to.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connection {
    /// The dataplane's socket or URL, else that of $NETBRICKS_SOCKET
    #[arg(long, global = true, value_name = "PATH|URL", help_heading = "Connection", value_hint = clap::ValueHint::FilePath)]
    pub(crate) socket: Option<String>,
    /// A file with the token, else $NETBRICKS_TOKEN is it
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connection {
    /// Whether the command line names a dataplane.
    pub(crate) fn is_given(&self) -> bool {
        self.socket.is_some() || self.token_file.is_some()
    }
}

/// A command for a running dataplane.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LiveCommand {
    /// Show what runs: its state, configuration and totals
    #[command(after_help = "Examples:\n  netbricks status\n  netbricks status --json | jq .generation\n  \
                            netbricks status --socket http://10.0.0.1:9090 --token-file token")]
    Status(Plain),
    /// List ports, workers, functions, tables, drops or handlers of what runs
    #[command(after_help = "Examples:\n  netbricks show ports\n  netbricks show drops\n  \
                            netbricks show handlers nat\n  netbricks show tables --json")]
    Show(ShowArguments),
    /// Read a handler of a function
    #[command(after_help = "Examples:\n  netbricks get flows.flows.occupancy\n  \
                            netbricks get routes.lookup 10.1.2.3\n  netbricks get flows.top 10 --worker 1 --json\n\n\
                            `netbricks show handlers` lists what can be read.")]
    Get(GetArguments),
    /// Call a handler of a function that changes its state
    #[command(
        after_help = "Examples:\n  netbricks set rate.rate '20 Mb/s' --dry-run\n  netbricks set routes.add 10.0.0.0/8 3\n  \
                            netbricks set routes.add @routes.txt\n  generate-routes | netbricks set routes.add -\n\n\
                            `netbricks show handlers` lists what can be set."
    )]
    Set(SetArguments),
    /// Type a command of mmb's rule language to a running function
    #[command(
        after_help = "Examples:\n  netbricks mmb add tcp-dport 80 mod tcp-dport 443\n  netbricks mmb list\n  \
                            netbricks mmb explain ip-saddr 10.0.0.1 tcp-dport 80\n  netbricks mmb @edge.mmb\n  \
                            netbricks mmb test trace.pcap --rules edge.mmb\n  \
                            iptables-save | netbricks mmb import iptables - > edge.mmb\n  \
                            nft list ruleset | netbricks mmb import nft - firewall > edge.rules\n\n\
                            `netbricks mmb show fields` lists what rules can match. Quote < and > for the shell."
    )]
    Mmb(MmbArguments),
    /// Create, configure and watch Click instances, and the switch that joins them
    #[command(after_help = "Examples:\n  netbricks instances create web --count 100\n  \
                            netbricks instances install web-1 firewall.click ADDRESS=10.0.0.1\n  \
                            netbricks instances read web-1 counter.count\n  \
                            netbricks instances switch show\n\n\
                            FromDevice(0) and ToDevice(0) are an instance's first port.")]
    Instances(super::instances::InstancesArguments),
    /// Show tenants: their shares of the workers' time, and their packets
    #[command(after_help = "Examples:\n  netbricks tenants\n  netbricks tenants --interval 10s --json")]
    Tenants(super::tenants::TenantsArguments),
    /// Show the counters of ports and functions, or their rates
    #[command(after_help = "Examples:\n  netbricks stats\n  netbricks stats --watch\n  \
                            netbricks stats --watch --interval 10s --count 6 --json")]
    Stats(StatsArguments),
    /// Show rates, cycles, drops and tables on the full screen
    #[command(
        after_help = "Examples:\n  netbricks top --interval 500ms\n\nKeys: Tab and arrows move, s sorts, / filters, \
                            space pauses, ? lists all, q quits."
    )]
    Top(TopArguments),
    /// List what happened, such as a port that went down
    #[command(after_help = "Examples:\n  netbricks events\n  netbricks events --follow\n  \
                            netbricks events --follow --json | jq -r .message\n\n\
                            With --json each event is one line.")]
    Events(EventsArguments),
    /// Follow the next packets that match from node to node, to their end
    #[command(after_help = "Examples:\n  netbricks trace 'host 10.1.2.3 and tcp port 443' --count 1\n  \
                            netbricks trace icmp --at ttl\n  netbricks trace 'vlan 7 and udp' --json\n\n\
                            Filters are tcpdump's (man pcap-filter). Packets that come too fast are not traced, and never lost.")]
    Trace(TraceArguments),
    /// Copy the next packets that match to a pcapng file or a pipe
    #[command(after_help = "Examples:\n  netbricks capture tcp port 443 -w https.pcapng --count 100\n  \
                            netbricks capture --at ttl-expired -w expired.pcapng --json\n  \
                            netbricks capture --at lan icmp -w - | tshark -r -\n\n\
                            Filters are tcpdump's (man pcap-filter). Packets that come too fast are left out, and never lost.")]
    Capture(CaptureArguments),
    /// Show what a file would change, and change nothing
    #[command(
        after_help = "Examples:\n  netbricks plan edge.toml\n  netbricks plan edge.toml --json | jq '.changes[].name'\n\n\
                            Exit codes: 0 the file can run, 1 it cannot now, 2 the file is wrong."
    )]
    Plan(PlanArguments),
    /// Make a file run in place of what runs, without losing packets
    #[command(after_help = "Examples:\n  netbricks apply edge.toml --note 'more backends'\n  \
                            netbricks apply edge.toml --confirm 60s && netbricks confirm\n\n\
                            A file that cannot run changes nothing.\n\
                            Exit codes: 0 it runs, 1 it cannot run now, 2 the file is wrong.")]
    Apply(ApplyArguments),
    /// Keep the configuration that waits to be confirmed
    #[command(
        after_help = "Examples:\n  netbricks confirm\n  netbricks apply edge.toml --confirm 60s && netbricks confirm"
    )]
    Confirm(ChangeArguments),
    /// Go back to an earlier configuration
    #[command(after_help = "Examples:\n  netbricks rollback --dry-run\n  netbricks rollback --to 3\n\n\
                            `netbricks history` lists the configurations.")]
    Rollback(RollbackArguments),
    /// List the configurations that ran, newest first
    #[command(after_help = "Examples:\n  netbricks history\n  netbricks history --json | jq '.[0].number'")]
    History(Plain),
    /// Print the file that runs, or an earlier one
    #[command(after_help = "Examples:\n  netbricks config > running.toml\n  \
                            netbricks config --history 3 | diff - edge.toml")]
    Config(ConfigArguments),
    /// Ask the sources for no more packets until `resume`
    #[command(
        after_help = "Examples:\n  netbricks suspend && netbricks set routes.add @routes.txt && netbricks resume"
    )]
    Suspend(ChangeArguments),
    /// Ask the sources for packets again
    #[command(after_help = "Examples:\n  netbricks resume")]
    Resume(ChangeArguments),
    /// Let the run drain and end
    #[command(after_help = "Examples:\n  netbricks stop")]
    Stop(ChangeArguments),
    /// Take these commands one after the other, with history and completion
    #[command(after_help = "Examples:\n  netbricks shell\n  netbricks shell -c 'show drops'\n  \
                            netbricks shell < commands.txt\n\n\
                            Without a terminal it ends at the first command that fails, with its exit code.")]
    Shell(ShellArguments),
}

/// The arguments of a command that takes no others.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Plain {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The conditions of a change.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Conditions {
    /// Only check: nothing changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change it only if nothing else has changed since this generation
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
}

impl Conditions {
    pub(crate) fn is_given(self) -> bool {
        self.dry_run || self.generation.is_some()
    }

    pub(crate) fn options(self) -> ChangeOptions {
        ChangeOptions { dry_run: self.dry_run, generation: self.generation }
    }
}

/// The arguments of a change that takes no others.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ChangeArguments {
    #[command(flatten)]
    pub(crate) conditions: Conditions,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

/// The lists that `show` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shown {
    /// Ports with their links and counters
    Ports,
    /// Workers with their cores and queues
    Workers,
    /// Functions with their counters
    Functions,
    /// Tables with their entries and capacity
    Tables,
    /// Drops by node and reason
    Drops,
    /// Handlers that `get` and `set` call
    Handlers,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArguments {
    /// The list
    #[arg(value_enum, value_name = "LIST")]
    pub(crate) list: Shown,
    /// Show this port, worker, function or node only
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArguments {
    /// The function and its handler
    #[arg(value_name = "FUNCTION.HANDLER")]
    pub(crate) handler: String,
    /// The handler's argument
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub(crate) argument: Vec<String>,
    /// Ask this worker only
    #[arg(long, value_name = "N")]
    pub(crate) worker: Option<usize>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArguments {
    /// The function and its handler
    #[arg(value_name = "FUNCTION.HANDLER")]
    pub(crate) handler: String,
    /// The value; - is that of the standard input, @FILE that of a file
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) value: Vec<String>,
    /// Call it on this worker only
    #[arg(long, value_name = "N")]
    pub(crate) worker: Option<usize>,
    #[command(flatten)]
    pub(crate) conditions: Conditions,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MmbArguments {
    /// The function, where several have rules
    #[arg(long, value_name = "NAME")]
    pub(crate) function: Option<String>,
    /// The rules for `test`, else those of the running function
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// The port by which the packets of `test` come in, else `capture`
    #[arg(long = "in", value_name = "PORT")]
    pub(crate) arrival: Option<String>,
    /// The port by which the packets of `test` go out, else `nowhere`
    #[arg(long = "out", value_name = "PORT")]
    pub(crate) departure: Option<String>,
    /// The ways out of `test`, else as many as its rules name
    #[arg(long, value_name = "N")]
    pub(crate) outputs: Option<usize>,
    /// A command; - is lines of the standard input, @FILE those of a file
    #[arg(value_name = "WORD", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatsArguments {
    /// Show rates again and again
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// The time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "watch")]
    pub(crate) interval: units::Duration,
    /// End after this many looks
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    /// The time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: units::Duration,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArguments {
    /// Wait for more
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with the event of this number
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceArguments {
    /// The packets to follow, else all
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
    /// End after this many packets
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Begin at this node, function or port, else where packets arrive
    #[arg(long, value_name = "NODE|PORT")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CaptureArguments {
    /// The packets to copy, else all
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
    /// The file; - is the standard output
    #[arg(long, short, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    pub(crate) write: PathBuf,
    /// End after this many packets
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Look at this node, function or port, or at drops for this reason, else at all ports
    #[arg(long, value_name = "NODE|PORT|REASON")]
    pub(crate) at: Option<String>,
    /// Copy at most so many bytes of a packet
    #[arg(long, short, value_name = "BYTES")]
    pub(crate) snaplen: Option<usize>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    /// The file; - is the standard input
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArguments {
    /// The file; - is the standard input
    #[arg(value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Roll back unless `netbricks confirm` comes within this time
    #[arg(long, value_name = "TIME")]
    pub(crate) confirm: Option<units::Duration>,
    /// Only plan: nothing changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A note for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Begin as the file says: undo what handlers changed, and empty the journal
    #[arg(long)]
    pub(crate) forget: bool,
    /// Apply it only if nothing has changed since this generation
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RollbackArguments {
    /// The configuration's number, else the last confirmed one
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    #[command(flatten)]
    pub(crate) conditions: Conditions,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArguments {
    /// The configuration of this number
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<u64>,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArguments {
    /// Run this command and end; may be given several times
    #[arg(short = 'c', long = "command", value_name = "COMMAND")]
    pub(crate) commands: Vec<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

impl LiveCommand {
    /// The dataplane that the command line names.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Top(arguments) => &arguments.connection,
            Self::Shell(arguments) => &arguments.connection,
            other => other.plain().map_or(&NOWHERE, |plain| &plain.connection),
        }
    }

    /// Whether it prints JSON.
    pub(crate) fn json(&self) -> bool {
        self.plain().is_some_and(|plain| plain.json)
    }

    /// The conditions of the change that it asks for; none where it asks for none, or for a whole file.
    pub(crate) fn change(&self) -> Conditions {
        match self {
            Self::Set(arguments) => arguments.conditions,
            Self::Rollback(arguments) => arguments.conditions,
            Self::Confirm(arguments)
            | Self::Suspend(arguments)
            | Self::Resume(arguments)
            | Self::Stop(arguments) => arguments.conditions,
            _ => Conditions::default(),
        }
    }

    fn plain(&self) -> Option<&Plain> {
        match self {
            Self::Status(plain) | Self::History(plain) => Some(plain),
            Self::Confirm(arguments)
            | Self::Suspend(arguments)
            | Self::Resume(arguments)
            | Self::Stop(arguments) => Some(&arguments.plain),
            Self::Show(arguments) => Some(&arguments.plain),
            Self::Get(arguments) => Some(&arguments.plain),
            Self::Set(arguments) => Some(&arguments.plain),
            Self::Mmb(arguments) => Some(&arguments.plain),
            Self::Instances(arguments) => Some(&arguments.plain),
            Self::Tenants(arguments) => Some(&arguments.plain),
            Self::Stats(arguments) => Some(&arguments.plain),
            Self::Events(arguments) => Some(&arguments.plain),
            Self::Trace(arguments) => Some(&arguments.plain),
            Self::Capture(arguments) => Some(&arguments.plain),
            Self::Plan(arguments) => Some(&arguments.plain),
            Self::Apply(arguments) => Some(&arguments.plain),
            Self::Rollback(arguments) => Some(&arguments.plain),
            Self::Config(arguments) => Some(&arguments.plain),
            Self::Top(_) | Self::Shell(_) => None,
        }
    }
}

static NOWHERE: Connection = Connection { socket: None, token_file: None };
