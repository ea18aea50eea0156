//! The counters and the state of the run as text for Prometheus.
//!
//! The names of ports, nodes, reasons and workers are the labels, so the configuration bounds their number. Functions tell
//! further families by a handler, of which each has a bounded number of samples.

use std::fmt::Write;

use serde::Deserialize;

use crate::api::{Count, NodeStats, PortStats, RunState, Stats, Status, TableStats, TenantStats, Worker};

/// The two forms of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus's text format, version 0.0.4.
    Prometheus,
    /// The `OpenMetrics` format, version 1.0.0, which has units and an end.
    OpenMetrics,
}

impl Form {
    /// The type of the text in HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The name of the read handler by which a function tells families of its own.
pub const HANDLER: &str = "metrics";
/// Families of one function, and samples of one family, at most: their number is bounded.
const MOST_FAMILIES: usize = 32;
const MOST_SAMPLES: usize = 1_000;

/// A family of samples that a function tells by its handler [`HANDLER`], as JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct Family {
    /// Its name, without the prefix `netbricks_` and without `_total`: small letters, digits and `_`.
    name: String,
    kind: Kind,
    /// One sentence about it.
    help: String,
    /// The name of the label beside `function`.
    label: String,
    /// Values of the label, and of the sample.
    samples: Vec<(String, serde_json::Number)>,
}

impl Family {
    /// The families in a handler's answer. Those beyond the 32nd and samples beyond the 1,000th are left out.
    ///
    /// # Errors
    /// The answer is not JSON of this form, or a name is not one of Prometheus's.
    pub fn read(answer: &str) -> Result<Vec<Self>, serde_json::Error> {
        use serde::de::Error;
        let mut families: Vec<Self> = serde_json::from_str(answer)?;
        families.truncate(MOST_FAMILIES);
        for family in &mut families {
            if !is_name(&family.name) || !is_name(&family.label) || family.help.contains(['\n', '\\']) {
                return Err(serde_json::Error::custom(format!("`{}` is no family", family.name)));
            }
            family.samples.truncate(MOST_SAMPLES);
        }
        Ok(families)
    }
}

impl Family {
    /// Makes the families of several workers one each: their samples follow each other, equal labels are added up.
    ///
    /// Samples beyond the 1,000th of a family are left out.
    #[must_use]
    pub fn joined(parts: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for part in parts {
            let Some(family) = joined.iter_mut().find(|known| known.name == part.name) else {
                joined.push(part);
                continue;
            };
            let mut places: std::collections::HashMap<String, usize> =
                family.samples.iter().enumerate().map(|(place, (label, _))| (label.clone(), place)).collect();
            for (label, number) in part.samples {
                match places.get(&label) {
                    Some(place) => family.samples[*place].1 = sum(&family.samples[*place].1, &number),
                    None if family.samples.len() < MOST_SAMPLES => {
                        places.insert(label.clone(), family.samples.len());
                        family.samples.push((label, number));
                    }
                    None => {}
                }
            }
        }
        joined
    }
}

fn sum(one: &serde_json::Number, other: &serde_json::Number) -> serde_json::Number {
    let whole = one.as_u64().zip(other.as_u64()).map(|(one, other)| one.saturating_add(other).into());
    let broken = || serde_json::Number::from_f64(one.as_f64()? + other.as_f64()?);
    whole.or_else(broken).unwrap_or_else(|| one.clone())
}

fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=64).contains(&name.len())
        && name.bytes().all(inner)
        && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The text of one scrape. `own` are families that functions tell, by the functions' names.
pub fn text(status: &Status, stats: &Stats, own: &[(String, Vec<Family>)], form: Form) -> String {
    let mut page = Page { text: String::new(), form };
    page.run(status, stats);
    page.ports(&stats.ports);
    // The sum of nodes that are gone falls when one of them comes back, so that it is no counter. The totals have them.
    let nodes: Vec<&NodeStats> = stats.nodes.iter().filter(|node| node.role != GONE).collect();
    page.nodes(&nodes);
    page.tables(&stats.tables);
    page.workers(&stats.workers);
    if !stats.tenants.is_empty() {
        page.tenants(&stats.tenants);
    }
    page.functions(own);
    if form == Form::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

/// The role of the sum of all nodes that changes took out.
const GONE: &str = "gone";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Counter,
    Gauge,
}

struct Page {
    text: String,
    form: Form,
}

/// The labels of a sample, as names and values.
type Labels<'l> = &'l [(&'l str, &'l str)];

impl Page {
    /// A family of samples. `name` has no `_total`; its last part is the unit where that is one.
    fn family(&mut self, kind: Kind, name: &str, help: &str, samples: impl FnOnce(&mut Samples<'_>)) {
        let sample = if kind == Kind::Counter { format!("{name}_total") } else { name.to_owned() };
        let family = if self.form == Form::OpenMetrics { name } else { &sample };
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let unit = ["bytes", "packets", "seconds", "cycles"].into_iter().find(|unit| name.ends_with(unit));
        let start = self.text.len();
        let _never =
            writeln!(self.text, "# HELP netbricks_{family} {help}\n# TYPE netbricks_{family} {kind}");
        if let Some(unit) = unit.filter(|_| self.form == Form::OpenMetrics) {
            let _never = writeln!(self.text, "# UNIT netbricks_{family} {unit}");
        }
        let head = self.text.len();
        samples(&mut Samples { text: &mut self.text, name: &sample });
        if self.text.len() == head {
            self.text.truncate(start);
        }
    }

    /// Families of packets and of bytes.
    fn counts<'s, T>(
        &mut self,
        name: &str,
        what: &str,
        items: &'s [T],
        labels: impl Fn(&'s T) -> [(&'static str, &'s str); 1],
        count: impl Fn(&'s T) -> Count,
    ) {
        self.family(Kind::Counter, &format!("{name}_packets"), &format!("Packets {what}."), |samples| {
            items.iter().for_each(|item| samples.add(&labels(item), count(item).packets));
        });
        self.family(
            Kind::Counter,
            &format!("{name}_bytes"),
            &format!("Bytes of packets {what}."),
            |samples| {
                items.iter().for_each(|item| samples.add(&labels(item), count(item).bytes));
            },
        );
    }

    fn run(&mut self, status: &Status, stats: &Stats) {
        self.family(Kind::Gauge, "build_info", "The program's version; always 1.", |samples| {
            samples.add(&[("version", &status.version)], 1);
        });
        let mut one = |name: &str, help: &str, value: f64| {
            self.family(Kind::Gauge, name, help, |samples| samples.add(&[], value));
        };
        one("uptime_seconds", "Seconds since the first turn.", status.uptime_seconds);
        one("generation", "A number that grows with every change.", whole(status.generation));
        one("configuration", "The number of the running configuration.", whole(status.configuration));
        one(
            "configuration_confirmed",
            "Whether a restart would run this configuration.",
            if status.confirmed { 1.0 } else { 0.0 },
        );
        one(
            "journal_writes",
            "Writes of handlers since the configuration was applied.",
            whole(status.journal),
        );
        one("buffers", "Packet buffers.", whole(stats.buffers));
        one("buffers_free", "Packet buffers that are free.", whole(stats.free_buffers));
        let totals = [
            ("run_received_packets", "received", status.received.packets),
            ("run_created_packets", "created", status.created),
            ("run_sent_packets", "sent", status.sent.packets),
            ("run_dropped_packets", "dropped", status.dropped),
            ("run_consumed_packets", "consumed", status.consumed),
        ];
        for (name, what, total) in totals {
            let help = format!("Packets {what} by all nodes, those that are gone too.");
            self.family(Kind::Counter, name, &help, |samples| samples.add(&[], total));
        }
        self.family(Kind::Gauge, "run_held_packets", "Packets that all nodes hold.", |samples| {
            samples.add(&[], status.held);
        });
        let states = [
            ("running", RunState::Running),
            ("suspended", RunState::Suspended),
            ("stopping", RunState::Stopping),
        ];
        self.family(Kind::Gauge, "state", "1 for the state of the run, 0 for the others.", |samples| {
            for (name, state) in states {
                samples.add(&[("state", name)], u64::from(state == status.state));
            }
        });
    }

    fn ports(&mut self, ports: &[PortStats]) {
        self.family(Kind::Gauge, "port_up", "Whether the port's link is up.", |samples| {
            for port in ports {
                let labels = [("port", &*port.port), ("driver", &*port.driver)];
                samples.add(&labels, u64::from(port.link == "up"));
            }
        });
        self.counts("port_received", "received", ports, |port| [("port", &*port.port)], |port| port.received);
        self.counts("port_sent", "sent", ports, |port| [("port", &*port.port)], |port| port.sent);
        let help = "Packets that the kernel or the device dropped before they reached the port.";
        self.family(Kind::Counter, "port_missed_packets", help, |samples| {
            ports.iter().for_each(|port| samples.add(&[("port", &port.port)], port.missed));
        });
        self.family(Kind::Counter, "port_events", "Other events that the port counts, by name.", |samples| {
            for port in ports {
                for (name, value) in &port.counters {
                    samples.add(&[("port", &port.port), ("event", name)], *value);
                }
            }
        });
    }

    fn nodes(&mut self, nodes: &[&NodeStats]) {
        type Of = fn(&NodeStats) -> Count;
        let counts: [(&str, &str, Of); 7] = [
            ("node_arrived", "that arrived from other nodes", |node| node.arrived),
            ("node_left", "that left to other nodes", |node| node.left),
            ("node_received", "brought in from outside", |node| node.received),
            ("node_sent", "given to the outside", |node| node.sent),
            ("node_created", "made by the node", |node| node.created),
            ("node_handoff_out", "given to other workers", |node| node.handoff_out),
            ("node_handoff_in", "taken over from other workers", |node| node.handoff_in),
        ];
        for (name, what, count) in counts {
            self.counts(name, what, nodes, |node| [("node", &*node.node)], |node| count(node));
        }
        for (name, what, dropped) in [("node_dropped", "dropped", true), ("node_consumed", "consumed", false)]
        {
            let reasons: Vec<(&str, &str, Count)> = nodes
                .iter()
                .flat_map(|node| {
                    let reasons = if dropped { &node.dropped } else { &node.consumed };
                    reasons.iter().map(|(reason, count)| (&*node.node, &**reason, *count))
                })
                .collect();
            for (unit, of) in [("packets", "Packets"), ("bytes", "Bytes of packets")] {
                let help = format!("{of} {what}, by reason.");
                self.family(Kind::Counter, &format!("{name}_{unit}"), &help, |samples| {
                    for (node, reason, count) in &reasons {
                        let value = if unit == "packets" { count.packets } else { count.bytes };
                        samples.add(&[("node", node), ("reason", reason)], value);
                    }
                });
            }
        }
        self.family(Kind::Gauge, "node_held_packets", "Packets that the node holds.", |samples| {
            nodes.iter().for_each(|node| samples.add(&[("node", &node.node)], node.held));
        });
        type Number = fn(&NodeStats) -> u64;
        let numbers: [(&str, &str, Number); 4] = [
            ("node_batches", "Batches.", |node| node.batches),
            ("node_panics", "Contained panics.", |node| node.panics),
            ("node_sampled_cycles", "Cycles of the time stamp counter in sampled batches.", |node| {
                node.sampled_cycles
            }),
            ("node_sampled_packets", "Packets in sampled batches.", |node| node.sampled_packets),
        ];
        for (name, help, number) in numbers {
            self.family(Kind::Counter, name, help, |samples| {
                nodes.iter().for_each(|node| samples.add(&[("node", &node.node)], number(node)));
            });
        }
    }

    fn tables(&mut self, tables: &[TableStats]) {
        type Number = fn(&TableStats) -> u64;
        let numbers: [(Kind, &str, &str, Number); 5] = [
            (Kind::Gauge, "table_entries", "Entries of the function's table.", |table| table.entries),
            (Kind::Gauge, "table_capacity", "The most entries that the table holds.", |table| table.capacity),
            (
                Kind::Counter,
                "table_evicted_entries",
                "Entries that gave their place to a new one before their timeout.",
                |table| table.evicted,
            ),
            (Kind::Counter, "table_expired_entries", "Entries that ended by their timeout.", |table| {
                table.expired
            }),
            (Kind::Counter, "table_refused_entries", "New entries that found no place.", |table| {
                table.refused
            }),
        ];
        for (kind, name, help, number) in numbers {
            self.family(kind, name, help, |samples| {
                for table in tables {
                    let labels = [("function", &*table.function), ("table", &*table.table)];
                    samples.add(&labels, number(table));
                }
            });
        }
    }

    fn tenants(&mut self, tenants: &[TenantStats]) {
        let label = |tenant: &TenantStats| -> String { tenant.tenant.clone() };
        self.family(
            Kind::Counter,
            "tenant_used_seconds",
            "Time that the tenant used on all workers.",
            |samples| {
                for tenant in tenants {
                    samples.add(&[("tenant", &label(tenant))], whole(tenant.used_ns) / 1e9);
                }
            },
        );
        type Number = fn(&TenantStats) -> u64;
        let counters: [(&str, &str, Number); 4] = [
            ("tenant_arrived_packets", "Packets that came to the tenant's queues.", |of| of.arrived.packets),
            ("tenant_slices", "Slices that the tenant had.", |of| of.slices),
            ("tenant_overruns", "Slices that took several times as long as slices are.", |of| of.overruns),
            ("tenant_throttled", "Times that the tenant waited because of its ceiling.", |of| of.throttled),
        ];
        for (name, help, number) in counters {
            self.family(Kind::Counter, name, help, |samples| {
                tenants.iter().for_each(|of| samples.add(&[("tenant", &label(of))], number(of)));
            });
        }
        let help = "Packets that the tenant's nodes dropped, by reason.";
        self.family(Kind::Counter, "tenant_dropped_packets", help, |samples| {
            for tenant in tenants {
                for (reason, count) in &tenant.dropped {
                    samples.add(&[("tenant", &label(tenant)), ("reason", reason)], count.packets);
                }
            }
        });
        let gauges: [(&str, &str, Number); 2] = [
            ("tenant_held_packets", "Packets that the tenant's nodes hold.", |of| of.held),
            ("tenant_demoted", "Whether the tenant comes last for a while.", |of| u64::from(of.demoted)),
        ];
        for (name, help, number) in gauges {
            self.family(Kind::Gauge, name, help, |samples| {
                tenants.iter().for_each(|of| samples.add(&[("tenant", &label(of))], number(of)));
            });
        }
    }

    /// Families of functions: those of one name are one family, which the label `function` divides.
    fn functions(&mut self, own: &[(String, Vec<Family>)]) {
        let all = || own.iter().flat_map(|(of, families)| families.iter().map(move |family| (of, family)));
        let mut done: Vec<&str> = Vec::new();
        for (_, first) in all() {
            if done.contains(&&*first.name) {
                continue;
            }
            done.push(&first.name);
            self.family(first.kind, &first.name, &first.help, |samples| {
                for (of, family) in all().filter(|(_, family)| family.name == first.name) {
                    for (value, number) in &family.samples {
                        samples.add(&[("function", of), (&family.label, value)], number);
                    }
                }
            });
        }
    }

    fn workers(&mut self, workers: &[Worker]) {
        let workers: Vec<(String, &Worker)> =
            workers.iter().map(|worker| (worker.worker.to_string(), worker)).collect();
        self.counts(
            "worker_received",
            "received",
            &workers,
            |(name, _)| [("worker", name)],
            |(_, of)| of.received,
        );
        self.counts("worker_sent", "sent", &workers, |(name, _)| [("worker", name)], |(_, of)| of.sent);
        type Number = fn(&Worker) -> u64;
        let numbers: [(&str, &str, Number); 4] = [
            (
                "worker_long_pauses",
                "Times of more than 500 µs between two batches for a command of the control side.",
                |worker| worker.long_pauses,
            ),
            ("worker_dropped_packets", "Packets dropped.", |worker| worker.dropped),
            ("worker_turns", "Turns of the worker's graphs.", |worker| worker.turns),
            ("worker_sleeps", "Times that the worker slept in the kernel.", |worker| worker.sleeps),
        ];
        for (name, help, number) in numbers {
            self.family(Kind::Counter, name, help, |samples| {
                workers.iter().for_each(|(name, worker)| samples.add(&[("worker", name)], number(worker)));
            });
        }
        self.family(Kind::Gauge, "worker_running", "Whether the worker has not ended.", |samples| {
            workers.iter().for_each(|(name, of)| samples.add(&[("worker", name)], u64::from(!of.ended)));
        });
        let help =
            "The longest time between two batches for a command of the control side, since the run began.";
        self.family(Kind::Gauge, "worker_longest_pause_seconds", help, |samples| {
            for (name, worker) in &workers {
                samples.add(&[("worker", name)], whole(worker.longest_pause_ns) / 1e9);
            }
        });
    }
}

/// A number as Prometheus has them all; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "Prometheus stores every sample as a 64-bit float")]
fn whole(number: u64) -> f64 {
    number as f64
}

/// The samples of one family.
struct Samples<'p> {
    text: &'p mut String,
    name: &'p str,
}

impl Samples<'_> {
    fn add(&mut self, labels: Labels<'_>, value: impl std::fmt::Display) {
        let Self { text, name } = self;
        let _never = write!(text, "netbricks_{name}");
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _never = write!(text, "{before}{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    c => text.push(c),
                }
            }
            text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _never = writeln!(text, "{end} {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> (Status, Stats) {
        let status = r#"{"version":"0.1.0","pid":1,"file":"a.toml","graph":"a","state":"suspended",
            "uptime_seconds":1.5,"generation":7,"configuration":2,"confirmed":true,"journal":3,"workers":2,
            "received":{"packets":9,"bytes":2},"sent":{"packets":1,"bytes":2},
            "created":0,"dropped":4,"consumed":2,"held":2}"#;
        let status = serde_json::from_str(status).expect("a status");
        let count = Count { packets: 3, bytes: 1 << 60 };
        let by_reason = BTreeMap::from([("ttl-expired".to_owned(), count), ("no-route".to_owned(), count)]);
        let node = |name: &str| NodeStats {
            node: name.into(),
            received: count,
            dropped: by_reason.clone(),
            consumed: by_reason.clone(),
            ..NodeStats::default()
        };
        let counters = BTreeMap::from([("bad_checksum".to_owned(), 1), ("no_buffer".to_owned(), 2)]);
        let port =
            PortStats { port: "l\"a\\n\n".into(), link: "up".into(), counters, ..PortStats::default() };
        let stats = Stats {
            nodes: vec![node("one"), node("two")],
            ports: vec![port, PortStats { port: "wan".into(), ..PortStats::default() }],
            workers: vec![
                Worker::default(),
                Worker { worker: 1, longest_pause_ns: 1_500, long_pauses: 4, ..Worker::default() },
            ],
            tables: vec![TableStats {
                function: "flows".into(),
                table: "connections".into(),
                entries: 5,
                capacity: 8,
                evicted: 3,
                expired: 2,
                refused: 1,
                ..TableStats::default()
            }],
            free_buffers: 10,
            buffers: 20,
            ..Stats::default()
        };
        (status, stats)
    }

    const TOLD: &str = r#"[
        {"name":"instance_sent_packets","kind":"counter","help":"Packets sent.","label":"instance",
         "samples":[["echo",18446744073709551615]]},
        {"name":"instance_held_packets","kind":"gauge","help":"Packets held.","label":"instance",
         "samples":[["a\"b",1.5]]}]"#;

    /// The metrics of two functions.
    fn told() -> Vec<(String, Vec<Family>)> {
        let families = Family::read(TOLD).expect("two families");
        vec![("host".into(), families.clone()), ("other".into(), families)]
    }

    #[test]
    fn families_of_workers_become_one() {
        let family = |samples: &str| {
            format!(r#"[{{"name":"n","kind":"gauge","help":"h","label":"state","samples":{samples}}}]"#)
        };
        let read = |samples: &str| Family::read(&family(samples)).expect("a family");
        let parts = read(r#"[["running",2],["failed",1]]"#).into_iter();
        let joined = Family::joined(parts.chain(read(r#"[["running",3],["empty",0.5]]"#)));
        assert_eq!(joined.len(), 1);
        let samples = serde_json::to_string(&joined[0].samples).expect("JSON");
        assert_eq!(samples, r#"[["running",5],["failed",1],["empty",0.5]]"#);
        let many = (0..900).map(|number| format!("[\"i{number}\",1]")).collect::<Vec<_>>().join(",");
        let more = many.replace('i', "j");
        let joined = Family::joined(read(&format!("[{many}]")).into_iter().chain(read(&format!("[{more}]"))));
        assert_eq!(joined[0].samples.len(), MOST_SAMPLES);
    }

    #[test]
    fn families_of_functions_are_bounded_and_have_names_of_prometheus() {
        for wrong in
            ["x", "{}", &TOLD.replace("instance_sent", "Instance{x}"), &TOLD.replace("sent.", "se\\nnt.")]
        {
            assert!(Family::read(wrong).is_err(), "{wrong}");
        }
        let many = |samples: usize, families: usize| {
            let samples = vec![r#"["n",1]"#; samples].join(",");
            let family =
                format!(r#"{{"name":"a","kind":"gauge","help":"A.","label":"b","samples":[{samples}]}}"#);
            Family::read(&format!("[{}]", vec![family; families].join(","))).expect("families")
        };
        assert_eq!(many(1_001, 1)[0].samples.len(), 1_000);
        assert_eq!(many(1, 40).len(), 32);
    }

    #[test]
    fn each_sample_stands_once_below_its_own_head() {
        let (status, stats) = sample();
        for form in [Form::Prometheus, Form::OpenMetrics] {
            let text = text(&status, &stats, &told(), form);
            let (mut family, mut families, mut samples) = ("", BTreeSet::new(), BTreeSet::new());
            for line in text.lines().filter(|line| *line != "# EOF") {
                if let Some(head) = line.strip_prefix("# HELP ") {
                    let (name, help) = head.split_once(' ').expect("a text");
                    assert!(families.insert(name), "{name} comes twice");
                    assert!(help.ends_with('.'), "{line}");
                    family = name;
                } else if let Some(head) = line.strip_prefix("# ") {
                    assert_eq!(head.split(' ').nth(1), Some(family), "{line}");
                } else {
                    let (name, value) = line.rsplit_once(' ').expect("a value");
                    assert!(samples.insert(name), "{name} comes twice");
                    value.parse::<f64>().expect("a number");
                    let name = name.split('{').next().unwrap_or_default();
                    let expected = match form {
                        Form::Prometheus => name,
                        Form::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
                    };
                    assert_eq!(expected, family, "{line}");
                }
            }
            assert!(families.len() > 40);
        }
    }

    #[test]
    fn values_and_labels_are_those_of_the_counters() {
        let (status, stats) = sample();
        let text = text(&status, &stats, &told(), Form::Prometheus);
        for line in [
            r#"netbricks_build_info{version="0.1.0"} 1"#,
            "netbricks_generation 7",
            "netbricks_configuration_confirmed 1",
            "netbricks_uptime_seconds 1.5",
            "netbricks_buffers_free 10",
            r#"netbricks_state{state="suspended"} 1"#,
            r#"netbricks_state{state="running"} 0"#,
            r#"netbricks_port_up{port="wan",driver=""} 0"#,
            r#"netbricks_port_events_total{port="l\"a\\n\n",event="no_buffer"} 2"#,
            r#"netbricks_node_received_bytes_total{node="one"} 1152921504606846976"#,
            r#"netbricks_node_dropped_packets_total{node="two",reason="no-route"} 3"#,
            r#"netbricks_table_entries{function="flows",table="connections"} 5"#,
            r#"netbricks_table_capacity{function="flows",table="connections"} 8"#,
            r#"netbricks_table_evicted_entries_total{function="flows",table="connections"} 3"#,
            r#"netbricks_table_expired_entries_total{function="flows",table="connections"} 2"#,
            r#"netbricks_table_refused_entries_total{function="flows",table="connections"} 1"#,
            r#"netbricks_worker_longest_pause_seconds{worker="1"} 0.0000015"#,
            r#"netbricks_worker_long_pauses_total{worker="1"} 4"#,
            "netbricks_run_received_packets_total 9",
            "netbricks_run_dropped_packets_total 4",
            "netbricks_run_held_packets 2",
            r#"netbricks_instance_sent_packets_total{function="host",instance="echo"} 18446744073709551615"#,
            r#"netbricks_instance_sent_packets_total{function="other",instance="echo"} 18446744073709551615"#,
            r#"netbricks_instance_held_packets{function="host",instance="a\"b"} 1.5"#,
        ] {
            assert!(text.lines().any(|found| found == line), "`{line}` is missing in\n{text}");
        }
    }

    #[test]
    fn the_sum_of_nodes_that_are_gone_is_no_series() {
        let (status, mut stats) = sample();
        stats.nodes.push(NodeStats { node: "(gone)".into(), role: "gone".into(), ..NodeStats::default() });
        assert!(!text(&status, &stats, &[], Form::Prometheus).contains("(gone)"));
    }

    #[test]
    fn prometheus_own_checker_finds_nothing() {
        let (status, stats) = sample();
        let checker = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut checker) = checker else {
            println!("skipped: promtool is not installed");
            return;
        };
        let mut input = checker.stdin.take().expect("piped");
        input.write_all(text(&status, &stats, &told(), Form::Prometheus).as_bytes()).expect("it reads");
        drop(input);
        let found = checker.wait_with_output().expect("it ends");
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    }
}
