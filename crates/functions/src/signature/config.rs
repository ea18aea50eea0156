//! Settings of `signature`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::units::Duration;
use netbricks_core::{ConfigWarning, InvalidSetting, Settings, read_text};

use super::language::{Read, Variables, read};
use super::library;
use super::live::{First, WRONG, listed, origin};
use super::set::RuleSet;

netbricks_core::settings! {
    /// Settings of `signature`.
    #[derive(Clone, Debug)]
    pub struct SignatureConfig {
        /// Rules in Suricata's language.
        pub rules: Vec<String> = [], "list of rules";
        /// Files with more rules, one a line.
        pub files: Vec<PathBuf> = [], "list of paths of files, from the chain file's directory";
        /// Variables for addresses and ports, with the names that rules use behind `$`.
        pub variables: Vec<String> = [], "list of \"NAME VALUE\" as \"HOME_NET [10.0.0.0/8,!10.1.0.0/16]\"";
        /// The engine that looks for literals.
        pub engine: SearchEngine = "default", "\"default\" or \"hyperscan\"";
        /// Connections and other flows that each worker follows at a time.
        ///
        /// With more, the one that was silent longest is given up.
        pub flows: usize = 4_096, "whole number, flows";
        /// After this time of silence a flow is over.
        pub idle: Duration = "120 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// Memory of each worker for segments that are out of order, with at most 65,536 for a connection.
        ///
        /// If it is full, gaps are given up.
        pub memory: usize = 4_194_304, "whole number, bytes";
        /// The last bytes of each direction of a connection, in which all parts of one match must lie.
        pub history: usize = 8_192, "2_048, 8_192 or 32_768 bytes";
        /// Whether TCP streams pass in packets of the function's own, so that receivers get exactly the bytes that it saw.
        ///
        /// Connections in which a rule with `drop` or `reject` matches are then reset.
        pub inline: bool = false, "true or false";
        /// How many of each worker's latest events it keeps.
        pub events: usize = 1_024, "whole number, events";
        /// How many of the rules that matched most, and of each worker's latest events, the report shows.
        pub top: usize = 20, "whole number, rules";
        /// The rules, after they have been read.
        made: OnceLock<Made> = skipped;
    }
}

/// The engine that looks for the literals of all rules at once.
///
/// Rules match alike with each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchEngine {
    /// A filter by blocks of four bytes, and an Aho–Corasick automaton for shorter literals.
    #[default]
    Default,
    /// Hyperscan or Vectorscan, in builds with the feature `hyperscan`.
    Hyperscan,
}

impl SearchEngine {
    /// The name in settings.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Hyperscan => "hyperscan",
        }
    }
}

/// The rules, and what they were read from.
#[derive(Clone)]
struct Made {
    first: First,
    from: Source,
}

/// Rules, files, variables and engine.
type Source = (Vec<String>, Vec<PathBuf>, Vec<String>, SearchEngine);

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("origin", &self.first.origin).finish_non_exhaustive()
    }
}

const MOST_FLOWS: usize = 1 << 20;
const MOST_EVENTS: usize = 1 << 16;
/// The most memory of one connection (bytes), and so the least in all.
pub(super) const FLOW_MEMORY: usize = 64 << 10;
/// The most memory (bytes) of one direction for unacknowledged data, where streams pass inline.
///
/// It must hold the bytes that are sent in one round trip.
pub(super) const PATH_MEMORY: usize = 1 << 20;
/// The sizes of `history` (bytes). Five segments of 1,460 bytes fit into the second one.
pub(super) const LITTLE: usize = 2_048;
/// The default of `history` (bytes).
pub const HISTORY: usize = 8_192;
pub(super) const MUCH: usize = 32_768;
const MEMORY: std::ops::RangeInclusive<usize> = FLOW_MEMORY..=1 << 32;
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);
/// The most bytes of a file of rules.
const LARGEST: u64 = 256 << 20;

/// Variables that Suricata's rules expect, where the settings do not set them.
const DEFAULTS: [(&str, &str); 22] = [
    ("HOME_NET", "[10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("VXLAN_PORTS", "4789"),
];

impl SignatureConfig {
    /// These rules, one a text, with the rest as by default.
    pub fn of<T: Into<String>>(rules: impl IntoIterator<Item = T>) -> Self {
        Self { rules: rules.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    fn variables(&self) -> Result<Variables, InvalidSetting> {
        let mut variables = Variables::default();
        DEFAULTS.iter().for_each(|(name, value)| variables.set(name, value));
        let mut own = Vec::new();
        let refused = |problem| InvalidSetting { key: "variables", problem };
        for text in &self.variables {
            let Some((name, value)) = text.trim().split_once([' ', '=']) else {
                return Err(refused(format!(
                    "must be a name and a value as \"HOME_NET 10.0.0.0/8\", found \"{text}\""
                )));
            };
            let name = name.trim().trim_start_matches('$');
            if own.contains(&name) {
                return Err(refused(format!("sets `{name}` twice: take one out")));
            }
            own.push(name);
            variables.set(name, value.trim_start_matches(['=', ' ']).trim());
        }
        for name in own {
            variables.check(name).map_err(refused)?;
        }
        Ok(variables)
    }

    /// The rules, read once for all workers.
    ///
    /// # Errors
    /// Every wrong line.
    pub(super) fn first(&self) -> Result<First, InvalidSetting> {
        let from = || (self.rules.clone(), self.files.clone(), self.variables.clone(), self.engine);
        let make = || self.read().map(|first| Made { first, from: from() });
        let made = match self.made.get() {
            Some(made) => made,
            None => {
                let made = make()?;
                self.made.get_or_init(|| made)
            }
        };
        // The settings may be a copy that was changed since.
        if made.from == from() {
            return Ok(made.first.clone());
        }
        make().map(|made| made.first)
    }

    fn read(&self) -> Result<First, InvalidSetting> {
        let variables = self.variables()?;
        let mut sids = BTreeMap::new();
        let (mut rules, mut skipped, mut all) = (Vec::new(), Vec::new(), format!("{:?}", self.variables));
        let mut faults = Vec::new();
        for (number, text) in self.rules.iter().enumerate() {
            let Read { rules: here, faults: wrong, skipped: out } =
                read(text, &variables, &mut sids, &format!("item {} of `rules`", number + 1));
            let place = |fault: &super::language::Fault| format!("item {}, {fault}", number + 1);
            faults.extend(wrong.iter().map(place));
            skipped.extend(out.iter().map(place));
            rules.extend(here);
            all += text;
            all.push('\n');
        }
        if !faults.is_empty() {
            let problem = format!("holds {}", listed(WRONG.0, WRONG.1, faults.into_iter()));
            return Err(InvalidSetting { key: "rules", problem });
        }
        for path in &self.files {
            let shown = path.display();
            let refused = |problem| InvalidSetting { key: "files", problem };
            let text = read_text(path, LARGEST)
                .map_err(|error| refused(format!("names {shown}, which cannot be read: {error}")))?;
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let Read { rules: here, faults: wrong, skipped: out } = read(&text, &variables, &mut sids, &name);
            let place = |fault: &super::language::Fault| {
                format!("{shown}:{}:{}: {}", fault.line, fault.column, fault.problem)
            };
            faults.extend(wrong.iter().map(place));
            skipped.extend(out.iter().map(place));
            rules.extend(here);
            all += &text;
        }
        if !faults.is_empty() {
            let problem = format!("names files with {}", listed(WRONG.0, WRONG.1, faults.into_iter()));
            return Err(InvalidSetting { key: "files", problem });
        }
        let set = RuleSet::new(&rules, self.engine).map_err(|wrong| {
            let lines = wrong.iter().map(|(line, problem)| format!("line {line}: {problem}"));
            InvalidSetting { key: "rules", problem: format!("holds {}", listed(WRONG.0, WRONG.1, lines)) }
        })?;
        Ok(First {
            set: Some(Arc::new(set)),
            variables: Arc::new(variables),
            skipped: skipped.into(),
            engine: self.engine,
            origin: origin(&all),
        })
    }
}

impl Settings for SignatureConfig {
    fn start_from(&mut self, directory: &Path) {
        self.files = std::mem::take(&mut self.files).into_iter().map(|file| directory.join(file)).collect();
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.engine == SearchEngine::Hyperscan && !library::IS_BUILT {
            let problem = "is \"hyperscan\", which this build lacks: install libhyperscan-dev or libvectorscan-dev (Debian) and \
                           pkg-config, and build with `cargo build --release --features hyperscan`; or leave `engine` out";
            return refused("engine", problem.into());
        }
        if self.flows == 0 || self.flows > MOST_FLOWS {
            return refused("flows", format!("must be 1 to 1,048,576 flows, found {}", self.flows));
        }
        if !IDLE.contains(&self.idle) {
            return refused("idle", format!("must be \"1 ms\" to \"1 d\", found \"{}\"", self.idle));
        }
        if !MEMORY.contains(&self.memory) {
            return refused(
                "memory",
                format!("must be 65,536 to 4,294,967,296 bytes, found {}", self.memory),
            );
        }
        if ![LITTLE, HISTORY, MUCH].contains(&self.history) {
            let problem = format!("must be 2,048, 8,192 or 32,768 bytes, found {}", self.history);
            return refused("history", problem);
        }
        if self.events == 0 || self.events > MOST_EVENTS {
            return refused("events", format!("must be 1 to 65,536 events, found {}", self.events));
        }
        if self.top == 0 || self.top > MOST_EVENTS {
            return refused("top", format!("must be 1 to 65,536 rules, found {}", self.top));
        }
        if self.rules.is_empty() && self.files.is_empty() {
            let problem = "must hold at least one rule, or `files` name a file of them".into();
            return refused("rules", problem);
        }
        self.first().map(|_| ())
    }

    /// Tells of rules that were left out.
    fn warnings(&self) -> Vec<ConfigWarning> {
        let Ok(first) = self.first() else { return Vec::new() };
        if first.skipped.is_empty() {
            return Vec::new();
        }
        let key = if self.files.is_empty() { "rules" } else { "files" };
        let problem = format!("left out {}", listed("a rule", "rules", first.skipped.iter().cloned()));
        vec![ConfigWarning { key, item: None, problem }]
    }
}
