//! Counters of instances for monitoring systems: the handler `metrics`.

use super::host::Host;
use super::instance::Instance;

/// Instances that have series of their own, so that their number is bounded.
const MOST: usize = 1_000;

/// One family of samples.
#[derive(serde::Serialize)]
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    label: &'static str,
    samples: Vec<(String, serde_json::Number)>,
}

/// Name, kind and help of a family, and an instance's number in it.
type Of = (&'static str, &'static str, &'static str, fn(&Host, &Instance) -> serde_json::Number);

const FAMILIES: [Of; 9] = [
    ("instance_received_packets", "counter", "Packets that came to the instance's ports.", |host, one| {
        host.counts(one).received.into()
    }),
    ("instance_sent_packets", "counter", "Packets that the instance sent by its ports.", |host, one| {
        host.counts(one).sent.into()
    }),
    ("instance_lost_packets", "counter", "Packets that found a ring of the instance full.", |host, one| {
        host.counts(one).lost.into()
    }),
    ("instance_dropped_packets", "counter", "Packets that ended in the instance.", |_, one| {
        one.dropped().into()
    }),
    ("instance_created_packets", "counter", "Packets that the instance's elements made.", |_, one| {
        one.created().into()
    }),
    (
        "instance_refused_packets",
        "counter",
        "Packets that elements could not make because of a quota.",
        |_, one| one.router.as_ref().map_or(0, |router| router.refused()).into(),
    ),
    ("instance_used_seconds", "counter", "Time that the instance used.", |_, one| seconds(one.used)),
    ("instance_held_packets", "gauge", "Packets that the instance's elements hold.", |_, one| {
        one.router.as_ref().map_or(0, |router| router.held()).into()
    }),
    ("instance_memory_bytes", "gauge", "Bytes of the instance's elements, tables and packets.", |_, one| {
        one.memory().into()
    }),
];

/// The states of instances, as the family of their number has them.
const STATES: [&str; 8] =
    ["empty", "starting", "running", "suspended", "stopped", "failed", "refused", "over-quota"];

fn seconds(nanoseconds: u64) -> serde_json::Number {
    serde_json::Number::from_f64(nanoseconds as f64 / 1e9).unwrap_or_else(|| 0.into())
}

impl Host {
    /// All families as JSON. The first 1,000 instances have samples of their own.
    pub(super) fn metrics(&self) -> Result<String, String> {
        let all = || self.instances.iter().flatten();
        let mut families: Vec<Family> = FAMILIES
            .iter()
            .map(|(name, kind, help, of)| Family {
                name,
                kind,
                help,
                label: "instance",
                samples: all().take(MOST).map(|one| (one.name.clone(), of(self, one))).collect(),
            })
            .collect();
        let state = |state: &&str| {
            let count = all().filter(|one| one.state.name() == *state).count();
            ((*state).to_owned(), count.into())
        };
        families.push(Family {
            name: "instances",
            kind: "gauge",
            help: "Instances, by state.",
            label: "state",
            samples: STATES.iter().map(state).collect(),
        });
        serde_json::to_string(&families).map_err(|error| error.to_string())
    }
}
