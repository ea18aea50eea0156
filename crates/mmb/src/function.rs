//! The function `mmb` of chain files: its settings, its node and its handlers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::consistency::{Access, Bounded, BoundedInconsistency};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{FlowTableConfig, Full};
use netbricks_core::units::Duration;
use netbricks_core::{
    BuildError, Flows, GroupConfig, Handler, InvalidSetting, Node, PacketPart, PortNames, Registry, Section,
    Settings, Worker, compose_frames, read_text,
};

use crate::arrival::Fragments;
use crate::change::Over;
use crate::connection::{Connection, Timeouts};
use crate::engine::{Engine, Parts};
use crate::rules::{Rules, Setup};
use crate::shared::Shared;
use crate::shown;
use crate::state::{First, change, load};

netbricks_core::settings! {
    /// Settings of `mmb`.
    #[derive(Clone, Debug)]
    pub struct MmbSettings {
        /// A file of rules, one command a line; `#` begins a comment.
        pub rules: Option<PathBuf> = unset, "path of a file with one command a line, from the chain file's directory";
        /// Commands, after those of the file.
        pub lines: Vec<String> = [], "list of commands, as \"add tcp-dport 80 drop\"";
        /// Ways out for `lb`: 0 is the next function, others are named by their number.
        pub outputs: usize = 1, "whole number, 1 to 128";
        /// Conditions that there is room for: a rule has one, or as many as its largest set has values.
        pub capacity: usize = 262_144, "whole number, conditions";
        /// Connections that each worker remembers.
        pub connections: usize = 65_536, "whole number, connections";
        /// Flows whose rules each worker remembers; 0 for none.
        pub flow_cache: usize = 65_536, "whole number, flows";
        /// After this time without a packet, an established TCP connection is forgotten.
        pub tcp: Duration = "4 h", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for a TCP connection that opens or closes.
        pub tcp_transitory: Duration = "120 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for all other connections.
        pub other: Duration = "600 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The file's text, after it has been read.
        read: OnceLock<Arc<str>> = skipped;
    }
}

/// The most bytes of a file of rules.
const LARGEST: u64 = 256 << 20;
/// The most flows whose rules are remembered.
const MOST_CACHED: usize = 1 << 24;
/// The most conditions that there can be room for.
const MOST_CAPACITY: usize = 1 << 22;
/// From a millisecond to a week.
const TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(604_800_000_000_000);

impl MmbSettings {
    /// These commands, and usual sizes.
    pub fn of<'l>(lines: impl IntoIterator<Item = &'l str>) -> Self {
        Self { lines: lines.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// The commands of the file and of the settings.
    fn text(&self) -> Result<Arc<str>, InvalidSetting> {
        if let Some(read) = self.read.get() {
            return Ok(read.clone());
        }
        let mut text = match &self.rules {
            None => String::new(),
            Some(path) => read_text(path, LARGEST).map_err(|error| InvalidSetting {
                key: "rules",
                problem: format!("names {}, which cannot be read: {error}", path.display()),
            })?,
        };
        for line in &self.lines {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text += line;
            text.push('\n');
        }
        let text: Arc<str> = text.into();
        Ok(self.read.get_or_init(|| text).clone())
    }

    fn setup(&self, worker: &Worker) -> Setup {
        Setup {
            capacity: self.capacity,
            workers: worker.group().workers(),
            ports: worker.ports().clone(),
            outputs: self.outputs,
            seed: worker.seed(),
            shared: Shared::default(),
        }
    }
}

impl Settings for MmbSettings {
    fn start_from(&mut self, directory: &Path) {
        self.rules = self.rules.take().map(|rules| directory.join(rules));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let ranges = [
            ("outputs", self.outputs, GroupConfig::MOST),
            ("capacity", self.capacity, MOST_CAPACITY),
            ("connections", self.connections, 1 << 24),
        ];
        for (key, found, most) in ranges {
            if !(1..=most).contains(&found) {
                return refused(key, format!("must be 1 to {most}, found {found}"));
            }
        }
        if self.flow_cache > MOST_CACHED {
            return refused("flow_cache", format!("must be 0 to {MOST_CACHED}, found {}", self.flow_cache));
        }
        for (key, found) in
            [("tcp", self.tcp), ("tcp_transitory", self.tcp_transitory), ("other", self.other)]
        {
            if !TIMEOUT.contains(&found) {
                return refused(key, format!("must be \"1 ms\" to \"7 d\", found \"{found}\""));
            }
        }
        // Ports are known when the file's chains are.
        let setup = Setup {
            capacity: self.capacity,
            workers: 1,
            ports: PortNames::default(),
            outputs: self.outputs,
            seed: 1,
            shared: Shared::default(),
        };
        let text = self.text()?;
        if let Err(problem) = load(&mut Rules::new(setup), &text) {
            return match (&self.rules, self.lines.is_empty()) {
                (Some(path), true) => {
                    refused("rules", format!("names {}, which is wrong:\n{problem}", path.display()))
                }
                _ => refused("lines", format!("are wrong:\n{problem}")),
            };
        }
        Ok(())
    }
}

/// Makes the node of the function.
///
/// # Errors
/// When its tables do not fit into memory, or a rule names a port that is not there.
pub fn node(settings: &MmbSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_frames(worker, || {
        let setup = settings.setup(worker);
        let lines = settings.text().unwrap_or_else(|refused| {
            worker.fail(BuildError::new(refused));
            Arc::default()
        });
        let rules = worker.state("rules", BoundedInconsistency { updates: 0 }, First { setup, lines });
        let timeouts = Timeouts {
            tcp: settings.tcp.nanoseconds(),
            tcp_transitory: settings.tcp_transitory.nanoseconds(),
            other: settings.other.nanoseconds(),
        };
        let connections = worker.flow_table::<FlowKey, Connection>(
            "connections",
            FlowTableConfig {
                capacity: settings.connections,
                idle_timeout: Some(timeouts.tcp.max(timeouts.other).max(timeouts.tcp_transitory)),
                full: Full::EvictExpired,
                seed: worker.seed(),
            },
        );
        handlers(&rules, &connections, worker);
        if rules.read(Rules::translates) {
            // The two directions of its connections have no address in common by which workers could divide them.
            worker.parted_by(PacketPart::new(|_| 0));
        }
        report(&rules, worker);
        explain(&rules, worker);
        Engine::new(Parts {
            rules,
            connections,
            timeouts,
            worker: worker.index(),
            egress: worker.ports().only_egress().map(|port| port.map_or(0, |port| port + 1)).collect(),
            outputs: settings.outputs,
            flow_cache: if worker.is_control() { 0 } else { settings.flow_cache },
            seed: worker.seed(),
            fragments: Fragments::new(worker),
        })
    })
}

fn handlers(rules: &Bounded<Rules>, connections: &Flows<FlowKey, Connection>, worker: &Worker) {
    let run = "Runs commands, one a line: all their changes are made together, or none.";
    let replace = "Replaces all rules, sets, mode and policy by those that commands make.";
    for (name, summary, over) in [("run", run, Over::Present), ("replace", replace, Over::Nothing)] {
        let handler = Handler::write(name, summary).argument("COMMANDS");
        worker.handler_of(rules, handler, move |rules, text| {
            let planned = change(rules, text, over)?;
            rules.read(|rules| shown::answer(rules, &planned))
        });
    }
    let check = "Says what commands would change, as `run` does, and changes nothing.";
    let check_replace = "Says what commands would change, as `replace` does, and changes nothing.";
    for (name, summary, over) in
        [("check", check, Over::Present), ("check-replace", check_replace, Over::Nothing)]
    {
        let handler = Handler::read(name, summary).argument("COMMANDS");
        worker.handler_of(rules, handler, move |rules, text| {
            rules.read(|rules| shown::check(rules, text, over))
        });
    }
    let ask = Handler::read("ask", "Answers `list`, `show`, `explain` and `expect`, one a line.")
        .argument("COMMANDS");
    worker.handler_of(rules, ask, |rules, text| rules.read(|rules| shown::ask(rules, text)));
    let list = Handler::read("list", "The rules with their counts, as JSON.");
    worker.handler_of(rules, list, |rules, _| Ok(rules.read(shown::list_json)));
    let lines = Handler::read("lines", "The commands that make the present rules.");
    worker.handler_of(rules, lines, |rules, _| Ok(rules.read(crate::state::lines)));
    let connections = connections.clone();
    let live = rules.clone();
    let show = Handler::read("connections", "How many connections there are, and up to 1,000 of them.")
        .argument("[CONNECTIONS [FROM]]");
    worker.handler(show, move |argument| {
        let mut numbers = argument.split_whitespace().map(|text| {
            text.parse().map_err(|_| format!("expected a number of connections, found `{text}`"))
        });
        let (most, from) = (numbers.next().unwrap_or(Ok(0))?, numbers.next().unwrap_or(Ok(0))?);
        if numbers.next().is_some() {
            return Err("expected a number of connections, and an entry to begin from".into());
        }
        live.read(|rules| Ok(connections.with(|table| shown::connections(rules, table, most, from))))
    });
}

/// Declares the rows of the report: rules that packets met.
fn report(rules: &Bounded<Rules>, worker: &Worker) {
    let (rules, worker_index) = (rules.clone(), worker.index());
    worker.report(move || {
        let rows = rules.read(|rules| shown::report_rows(rules, worker_index));
        Section {
            title: "rules".into(),
            columns: ["rule", "packets", "bytes", "not applied"].map(Into::into).into(),
            rows,
            merge: SectionMerge::Sum,
            ..Section::default()
        }
    });
}

fn explain(rules: &Bounded<Rules>, worker: &Worker) {
    let rules = rules.clone();
    worker.explain(move |frame, why| rules.read(|rules| shown::why(rules, frame, why)));
}

/// Adds the function.
pub fn register(registry: &mut Registry) {
    registry
        .add("mmb", "Matches, tracks and rewrites packets by rules that are typed while it runs.", node)
        .examples(
            "mmb",
            &["lines = [\"add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460\", \"add-stateful ip-proto tcp ip-saddr 10.0.0.0/8 accept\"]\n"],
        );
}
