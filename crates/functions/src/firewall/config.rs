//! Settings of `firewall`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::icmp::IcmpErrors;
use netbricks_core::units::Duration;
use netbricks_core::{InvalidSetting, PortNames, RenamedKey, Settings, Worker, read_text};

use super::connection::Timeouts;
use super::rules::{Engine, Rules, Setup};

/// The treatment of packets that are not IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonIp {
    /// They pass: ARP has to, where the firewall stands between hosts.
    #[default]
    Pass,
    /// They are dropped as `unmatched`.
    Drop,
}

/// The treatment of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FragmentPolicy {
    /// A packet's first fragment is judged by the rules, and the later ones share its fate.
    #[default]
    FirstDecides,
    /// All are dropped.
    Drop,
}

/// The policy of the table of open connections when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// A connection that opens stays among those that begin, and gives its place away when that table is full, too.
    #[default]
    Refuse,
    /// The connection that was silent for longest gives its place.
    Oldest,
}

netbricks_core::settings! {
    /// Settings of `firewall`.
    #[derive(Clone, Debug)]
    pub struct FirewallConfig {
        /// A file of rules, one a line; `#` begins a remark.
        pub rules: Option<PathBuf> = unset, "path of a file with one rule a line, from the chain file's directory";
        /// Rules, after those of the file.
        pub lines: Vec<String> = [], "list of rules, as \"allow tcp to any port 443\"";
        /// How rules are searched: by the classifier, or one after the other.
        pub engine: Engine = "compiled", "\"compiled\" or \"linear\"";
        /// Conjunctions of conditions that there is room for: a rule has one, or one for each value.
        pub capacity: usize = 262_144, "whole number, conjunctions";
        /// Open connections that each worker remembers.
        pub connections: usize = 65_536, "whole number, connections";
        /// Connections that only began, beside them; the oldest gives its place to a new one.
        pub opening: usize = 16_384, "whole number, connections";
        /// The policy when there is no room for an open connection.
        pub full: WhenFull = "refuse", "\"refuse\" or \"oldest\"";
        /// After this time without a packet, a TCP connection that opens is forgotten.
        pub tcp_opening: Duration = "60 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for an established TCP connection.
        pub tcp: Duration = "4 h", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for a TCP connection of which one end has sent a FIN.
        pub tcp_closing: Duration = "120 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for a TCP connection that is over.
        pub tcp_closed: Duration = "10 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for UDP without an answer.
        pub udp_opening: Duration = "30 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for UDP with answers.
        pub udp: Duration = "120 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for ICMP queries.
        pub icmp: Duration = "30 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for all other protocols.
        pub other: Duration = "600 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// Whether TCP connections are followed that are met in their middle, as after a restart.
        pub pick_up: bool = false, "true or false";
        /// Whether packets with a wrong transport checksum fit no connection.
        pub verify: bool = true, "true or false";
        /// Passes or drops packets that are not IP.
        pub non_ip: NonIp = "pass", "\"pass\" or \"drop\"";
        /// Whether a packet's first fragment decides for the later ones, or all are dropped.
        pub fragments: FragmentPolicy = "first-decides", "\"first-decides\" or \"drop\"";
        /// Fragmented packets that each worker remembers.
        pub fragment_table: usize = 4_096, "whole number, packets";
        /// Rejected IPv4 packets that are not TCP are answered from this address.
        pub answer_v4: Option<Ipv4Addr> = unset, "IPv4 address";
        /// Rejected IPv6 packets that are not TCP are answered from this address.
        pub answer_v6: Option<Ipv6Addr> = unset, "IPv6 address";
        /// The most answers a second, resets among them, in bursts of up to 32.
        pub answer_rate: u64 = 100, "whole number, answers a second";
        /// Packets that each worker's log keeps.
        pub log: usize = 1_024, "whole number, packets";
        /// Flows whose rule each worker remembers, where rules test addresses, ports and protocols alone; 0 for none.
        pub flow_cache: usize = 65_536, "whole number, flows";
        /// Rules that the report lists.
        pub top: usize = 10, "whole number, rules";
        /// The file's text, after it has been read.
        pub(super) read: OnceLock<Arc<str>> = skipped;
    }
}

/// The most bytes of a file of rules.
const LARGEST: u64 = 256 << 20;
/// The most conjunctions that there can be room for.
const MOST_CAPACITY: usize = 1 << 24;
/// The most connections, fragments or packets in the log.
const MOST: usize = 1 << 26;
/// From a millisecond to a week.
const TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(604_800_000_000_000);
/// Wrong lines of a file that are shown; after mending twenty a user checks again anyway.
const SHOWN: usize = 20;
/// Time after which the first fragment of a packet is forgotten.
///
/// Reassembly ends after 60 s by RFC 8200, section 4.5, and after 30 s in Linux.
pub(super) const FRAGMENT_TIME: u64 = 30_000_000_000;

impl FirewallConfig {
    /// These rules, and usual sizes.
    pub fn of<'l>(lines: impl IntoIterator<Item = &'l str>) -> Self {
        Self { lines: lines.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// The lines of the file and of the settings.
    pub(super) fn text(&self) -> Result<Arc<str>, InvalidSetting> {
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

    pub(super) fn setup(&self, worker: &Worker) -> Setup {
        Setup {
            capacity: self.capacity,
            engine: self.engine,
            workers: worker.group().workers(),
            ports: worker.ports().clone(),
            seed: worker.seed(),
        }
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts {
            tcp_opening: self.tcp_opening.nanoseconds(),
            tcp: self.tcp.nanoseconds(),
            tcp_closing: self.tcp_closing.nanoseconds(),
            tcp_closed: self.tcp_closed.nanoseconds(),
            udp_opening: self.udp_opening.nanoseconds(),
            udp: self.udp.nanoseconds(),
            icmp: self.icmp.nanoseconds(),
            other: self.other.nanoseconds(),
        }
    }

    pub(super) fn errors(&self) -> IcmpErrors {
        IcmpErrors::new(self.answer_v4, self.answer_v6, self.answer_rate)
    }

    /// Checks the rules: every wrong line is named, with its file, line and column.
    fn check_rules(&self) -> Result<(), InvalidSetting> {
        let text = self.text()?;
        // Ports are known when the file's chains are.
        let setup = Setup {
            capacity: self.capacity,
            engine: self.engine,
            workers: 1,
            ports: PortNames::default(),
            seed: 1,
        };
        let Err(wrong) = Rules::load(setup, &text) else { return Ok(()) };
        // Lines of the settings stand behind those of the file.
        let of_file =
            text.lines().count().saturating_sub(self.lines.iter().map(|line| line.lines().count()).sum());
        let is_of_file = |line: usize| line <= of_file;
        let key = if wrong.errors.iter().any(|(line, _)| is_of_file(*line)) { "rules" } else { "lines" };
        let count = match wrong.total {
            1 => "a wrong line".to_owned(),
            total => format!("{total} wrong lines"),
        };
        let mut problem = match &self.rules {
            Some(_) if key == "rules" => format!("names a file with {count}"),
            _ => format!("have {count}"),
        };
        for (line, error) in wrong.errors.iter().take(SHOWN) {
            let column = error.span.start + 1;
            let place = match &self.rules {
                Some(path) if is_of_file(*line) => format!("{}:{line}:{column}", path.display()),
                _ => format!("line {}, column {column}", line - of_file),
            };
            problem += &format!("\n{place}: {}: {}", error.message, error.hint);
        }
        if wrong.total > SHOWN {
            problem += &format!("\n… and {} more", wrong.total - SHOWN);
        }
        Err(InvalidSetting { key, problem })
    }
}

impl Settings for FirewallConfig {
    const RENAMED: &'static [RenamedKey] = &[];

    fn start_from(&mut self, directory: &Path) {
        self.rules = self.rules.take().map(|rules| directory.join(rules));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let ranges = [
            ("capacity", self.capacity, MOST_CAPACITY),
            ("connections", self.connections, MOST),
            ("opening", self.opening, MOST),
            ("fragment_table", self.fragment_table, MOST),
            ("log", self.log, MOST),
        ];
        for (key, found, most) in ranges {
            if !(1..=most).contains(&found) {
                return refused(key, format!("must be 1 to {most}, found {found}"));
            }
        }
        if self.flow_cache > MOST {
            return refused("flow_cache", format!("must be 0 to {MOST}, found {}", self.flow_cache));
        }
        if !(1..=1_000_000).contains(&self.answer_rate) {
            let problem = format!("must be 1 to 1,000,000 answers a second, found {}", self.answer_rate);
            return refused("answer_rate", problem);
        }
        let times = [
            ("tcp_opening", self.tcp_opening),
            ("tcp", self.tcp),
            ("tcp_closing", self.tcp_closing),
            ("tcp_closed", self.tcp_closed),
            ("udp_opening", self.udp_opening),
            ("udp", self.udp),
            ("icmp", self.icmp),
            ("other", self.other),
        ];
        for (key, found) in times {
            if !TIMEOUT.contains(&found) {
                return refused(key, format!("must be \"1 ms\" to \"7 d\", found \"{found}\""));
            }
        }
        self.check_rules()
    }
}
