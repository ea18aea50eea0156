//! State that is divided by a key other than a flow, such as a table by source address.
//!
//! It needs a shuffle by that key before it.
//!
//! Such a shuffle is put in, or a warning says that the state is split.

use std::collections::BTreeSet;

use netbricks_core::{Blueprint, PacketPart, Shuffle, ShuffleConfig, ShuffleKey};

use super::{Division, Network, Place};
use crate::config::{Plan, PlannedFunction, Written};
use crate::diagnostic::Diagnostic;

/// The shuffles that bring all packets for an entry of a function's state to one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Each of these keys suffices. The list is empty if no single key does.
    keys: Vec<ShuffleKey>,
    /// The function's own rule.
    part: Option<PacketPart>,
}

impl Partition {
    /// The partition of a node's state that no shuffle by flow divides.
    ///
    /// Also returns whether some of that state has no known key at all. `follows` has the names of the state
    /// that moves with each key, and `not_by_flow` has the names of the state that no shuffle by flow
    /// divides.
    pub(super) fn of(follows: &[(ShuffleKey, Vec<String>)], not_by_flow: &[String]) -> (Option<Self>, bool) {
        let keys = |name: &String| -> Vec<ShuffleKey> {
            follows.iter().filter(|(_, names)| names.contains(name)).map(|(by, _)| *by).collect()
        };
        let (mut partition, mut unknown): (Option<Self>, bool) = (None, false);
        for name in not_by_flow {
            let own = keys(name);
            unknown |= own.is_empty();
            match &mut partition {
                _ if own.is_empty() => {}
                Some(partition) => partition.keys.retain(|key| own.contains(key)),
                None => partition = Some(Self { keys: own, part: None }),
            }
        }
        (partition, unknown)
    }

    /// The partition by a function's own rule.
    pub(super) fn by_part(part: PacketPart) -> Self {
        Self { keys: Vec::new(), part: Some(part) }
    }

    /// Whether the function's own rule divides it.
    pub(crate) fn is_own(&self) -> bool {
        self.part.is_some()
    }

    /// Whether a shuffle by this key brings the packets of each entry to one worker.
    ///
    /// A user function's own key is assumed to be right.
    fn is_kept_by(&self, key: ShuffleKey) -> bool {
        key == ShuffleKey::Own || self.keys.contains(&key)
    }

    /// The key that suffices, if there is exactly one.
    fn key(&self) -> Option<ShuffleKey> {
        match self.keys[..] {
            [] if self.part.is_some() => Some(ShuffleKey::Own),
            [key] => Some(key),
            _ => None,
        }
    }

    fn words(&self) -> String {
        match self.keys[..] {
            [] if self.part.is_some() => "parts of its own".into(),
            [ShuffleKey::Source] => "source address".into(),
            [ShuffleKey::Destination] => "destination address".into(),
            [ShuffleKey::Source, ShuffleKey::Destination] => "address".into(),
            [key] => key.name().into(),
            [] => "keys that no one shuffle divides by".into(),
            _ => "number".into(),
        }
    }

    /// How to mend the file.
    fn help(&self) -> String {
        let named: Vec<_> = self.keys.iter().map(|key| format!("`key = \"{}\"`", key.name())).collect();
        match named.len() {
            0 => "run it with `workers = 1`, or keep each part of the state in a function of its own".into(),
            1 => format!("let a `shuffle` with {} come before it", named[0]),
            _ => format!(
                "let a `shuffle` with {} come before it, whichever it is keyed by, or run it with `workers = 1`",
                named.join(" or ")
            ),
        }
    }
}

/// A function whose state would be split between several workers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Split {
    /// The function's number in the plan.
    #[serde(skip)]
    function: usize,
    /// The function.
    pub(crate) before: String,
    /// The name of the shuffle's node, if one is put in.
    pub(crate) node: String,
    /// The key of that shuffle; `None` if none can be put in.
    pub(crate) key: Option<ShuffleKey>,
    /// The reason, for the report.
    pub(crate) why: String,
    #[serde(skip)]
    part: Option<PacketPart>,
    #[serde(skip)]
    help: String,
}

impl Split {
    /// A warning at the function's first use.
    pub(crate) fn warning(&self, plan: &Plan<'_>) -> Diagnostic {
        let place = plan.functions[self.function].place.clone();
        Diagnostic::warning(self.why.clone()).at(place, "").help(self.help.clone())
    }

    /// The reason and the remedy in one line.
    pub(crate) fn line(&self) -> String {
        format!("{}; {}", self.why, self.help)
    }
}

impl Network {
    /// The functions whose state would be split, if `workers` workers receive from the queues that
    /// [`deal`](Self::deal) gives them.
    pub(crate) fn split(&self, plan: &Plan<'_>, ports: &[Division], workers: usize) -> Vec<Split> {
        let queues: Vec<usize> = ports.iter().map(|port| port.queues).collect();
        self.split_among(plan, &self.deal(plan, &queues, workers))
    }

    /// As [`split`](Self::split), for queues that are already shared out: pairs of port and queue number, by
    /// worker.
    pub(crate) fn split_among(&self, plan: &Plan<'_>, shares: &[Vec<(usize, usize)>]) -> Vec<Split> {
        if shares.len() < 2 {
            return Vec::new();
        }
        let on = |port: usize| {
            let receives = move |share: &Vec<(usize, usize)>| share.iter().any(|(of, _)| *of == port);
            shares.iter().enumerate().filter(move |(_, share)| receives(share)).map(|(worker, _)| worker)
        };
        let ports = (0..plan.ports.len()).filter(|port| self.has(Place::Receive(*port)));
        let ports: Vec<usize> = ports.collect();
        let mut split = Vec::new();
        for (function, partition) in self.partitions.iter().enumerate() {
            let Some(partition) = partition else { continue };
            let ways = ports.iter().flat_map(|port| {
                self.met(*port, |other| other == function).into_iter().map(move |(_, by)| (*port, by))
            });
            let ways: Vec<(usize, Option<usize>)> = ways.collect();
            let received = ways.iter().filter(|(_, by)| by.is_none()).flat_map(|(port, _)| on(*port));
            let received: BTreeSet<usize> = received.collect();
            let wrong = ways.iter().find_map(|(_, by)| {
                let by = (*by)?;
                self.sorts[by].filter(|key| !partition.is_kept_by(*key)).map(|key| (by, key))
            });
            let shuffled = ways.iter().any(|(_, by)| by.is_some());
            if received.len() < 2 && wrong.is_none() && (!shuffled || received.is_empty()) {
                continue;
            }
            let (name, words) = (&plan.functions[function].name, partition.words());
            let apart =
                format!("`{name}` keeps state by {words}, and several workers would each have a part of it");
            let why = match wrong {
                Some((by, key)) => {
                    format!("{apart}: `{}` sorts its packets by `{}`", plan.functions[by].name, key.name())
                }
                None => format!("{apart}: its packets come to whichever worker receives them"),
            };
            split.push(Split {
                function,
                before: name.clone(),
                node: format!("{name}.shuffle"),
                key: partition.key(),
                part: partition.part.clone(),
                why,
                help: partition.help(),
            });
        }
        split
    }
}

impl Plan<'_> {
    /// Puts a shuffle before each use of these functions, by the key of the function's state.
    ///
    /// Functions without such a key are left alone. All uses of a function have one owner table.
    pub(crate) fn put_before(&mut self, split: &[Split]) {
        for Split { function, node, key, part, .. } in split {
            let Some(key) = *key else { continue };
            let shuffle = Shuffle::new(ShuffleConfig { key, ..ShuffleConfig::default() });
            let number = self.functions.len();
            for chain in &mut self.chains {
                let through = std::mem::take(&mut chain.through);
                chain.through = through
                    .into_iter()
                    .flat_map(|(used, place)| {
                        let before = (used == *function).then(|| (number, place.clone()));
                        before.into_iter().chain([(used, place)])
                    })
                    .collect();
            }
            let blueprint = Blueprint::new({
                let part = part.clone();
                move |worker| match &part {
                    Some(part) => shuffle.node_parted(worker, part),
                    None => shuffle.node(worker),
                }
            });
            let owner = self.functions[*function].owner;
            let tenant = owner.checked_sub(1).and_then(|tenant| self.tenants.get(usize::from(tenant)));
            let blueprint = match tenant {
                Some(tenant) => blueprint.of_tenant(&tenant.name),
                None => blueprint,
            };
            self.functions.push(PlannedFunction {
                name: node.clone(),
                definition: "shuffle".into(),
                blueprint,
                settings: Written::from([("key".into(), key.name().into())]),
                place: self.functions[*function].place.clone(),
                owner,
            });
        }
    }
}
