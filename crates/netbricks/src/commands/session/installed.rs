//! The configuration that runs, and what another one would change of it.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_control::{Written as HandlerWrite, api};
use netbricks_core::LiveChange;

use super::super::file::{Checked, File};
use super::said::{Read, Said};
use super::tenants::{self, InstalledTenant};
use crate::chain::{Design, Filters, Kept, Layout, Partition, Place};
use crate::config::{
    ControlSettings, Origin, Plan, PlannedPort, RuntimeSettings, Written, difference, with_list, without,
};

/// A configuration without the text that its plan borrows.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) source: api::Source,
    pub(crate) design: Design,
    pub(crate) layout: Layout,
    /// In the order of the design.
    pub(crate) functions: Vec<InstalledFunction>,
    pub(crate) ports: Vec<InstalledPort>,
    pub(crate) chains: Vec<InstalledChain>,
    pub(crate) tenants: Vec<InstalledTenant>,
    pub(crate) runtime: RuntimeSettings,
    control: ControlSettings,
    pub(crate) graph: api::Graph,
    /// The filters of ports that steer by the graph.
    pub(crate) filters: Filters,
    /// The receive queues of each worker, by the port's name.
    pub(crate) shares: Vec<Vec<(String, usize)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledFunction {
    pub(crate) name: String,
    pub(crate) definition: String,
    settings: Written,
    /// Its nodes, in the order of the chains.
    pub(crate) nodes: Vec<String>,
    /// Whether all its nodes on a worker are one, because it declares state.
    stateful: bool,
    /// Whether it asks for the ports of its network.
    asks_ports: bool,
    /// Whether a rule of its own divides its packets among workers, as a translation needs.
    is_parted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledPort {
    pub(crate) name: String,
    driver: String,
    settings: Written,
    workers: Vec<usize>,
    receives: bool,
    /// Whether its transmit queues were taken.
    transmits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledChain {
    name: String,
    from: String,
    through: Vec<String>,
    to: String,
}

impl InstalledFunction {
    /// Whether all its nodes on a worker are one, so that the first answers for all.
    pub(super) fn is_one_node(&self) -> bool {
        self.stateful && !self.nodes.is_empty()
    }
}

impl InstalledPort {
    /// Whether a port of a file is the same, with its queues where they are.
    pub(crate) fn is_like(&self, planned: &PlannedPort<'_>) -> bool {
        self.driver == planned.driver
            && self.settings == planned.written
            && self.workers.iter().eq(planned.workers.iter().map(|worker| worker.get_ref()))
    }
}

impl Installed {
    /// The parts of a checked file, with the receive queues of each worker by port number.
    pub(crate) fn new(checked: &Checked<'_>, file: &File, shares: &[Vec<(usize, usize)>]) -> Self {
        let Checked { plan, network, design, graph, .. } = checked;
        let named = |shares: &Vec<(usize, usize)>| {
            shares.iter().map(|(port, queue)| (plan.ports[*port].name.clone(), *queue)).collect()
        };
        let functions = plan.functions.iter().enumerate().map(|(number, function)| InstalledFunction {
            name: function.name.clone(),
            definition: function.definition.clone(),
            settings: function.settings.clone(),
            nodes: network
                .uses
                .iter()
                .filter(|use_| use_.function == number)
                .map(|use_| use_.name.clone())
                .collect(),
            stateful: network.stateful[number],
            asks_ports: network.asks_ports[number],
            is_parted: network.partitions[number].as_ref().is_some_and(Partition::is_own),
        });
        Self {
            source: file.source(),
            design: design.clone(),
            layout: network.layout(plan),
            functions: functions.collect(),
            ports: plan
                .ports
                .iter()
                .enumerate()
                .map(|(number, port)| InstalledPort {
                    name: port.name.clone(),
                    driver: port.driver.clone(),
                    settings: port.written.clone(),
                    workers: port.workers.iter().map(|worker| *worker.get_ref()).collect(),
                    receives: network.has(Place::Receive(number)),
                    transmits: network.wires.iter().any(|wire| wire.to == Place::Transmit(number)),
                })
                .collect(),
            chains: chains(plan),
            tenants: plan.tenants.iter().map(|tenant| InstalledTenant::of(tenant, &file.directory)).collect(),
            runtime: plan.runtime.clone(),
            control: plan.control.clone(),
            graph: described(&graph.describe()),
            filters: checked.filters.clone(),
            shares: shares.iter().map(named).collect(),
        }
    }

    /// The ports that are opened where `after` takes over from this.
    pub(crate) fn opened_by(&self, after: &Self) -> BTreeSet<String> {
        let mut difference = Difference::default();
        self.ports_to(after, &mut difference);
        difference.opened
    }

    /// The changes where `after` takes over from this.
    pub(crate) fn changes_to(&self, after: &Self, undo: &Undo<'_>) -> Difference {
        let mut difference = Difference::default();
        self.ports_to(after, &mut difference);
        self.functions_to(after, undo, &mut difference);
        tenants::changes(&self.tenants, &after.tenants, |kind, name, detail| {
            difference.add(kind, "tenant", name, detail);
        });
        for chain in &after.chains {
            match self.chains.iter().find(|known| known.name == chain.name) {
                None => difference.add(api::ChangeKind::Added, "chain", &chain.name, chain.way()),
                Some(known) if known != chain => difference.add(
                    api::ChangeKind::Updated,
                    "chain",
                    &chain.name,
                    format!("{} instead of {}", chain.way(), known.way()),
                ),
                Some(_) => {}
            }
        }
        for chain in &self.chains {
            if !after.chains.iter().any(|known| known.name == chain.name) {
                difference.add(api::ChangeKind::Removed, "chain", &chain.name, chain.way());
            }
        }
        difference
    }

    fn ports_to(&self, after: &Self, difference: &mut Difference) {
        for port in &after.ports {
            let Some(known) = self.ports.iter().find(|known| known.name == port.name) else {
                difference.add(api::ChangeKind::Added, "port", &port.name, format!("`{}`", port.driver));
                difference.opened.insert(port.name.clone());
                continue;
            };
            // A transmit node without packets costs nothing and goes on; a receive node's packets go somewhere.
            let lost = known.receives && !port.receives;
            if known.driver == port.driver
                && known.settings == port.settings
                && known.workers == port.workers
                && !lost
            {
                difference.kept_names.push(port.name.clone());
                difference.kept_ports.insert(port.name.clone());
                if known.receives {
                    difference.kept.receives.insert(port.name.clone());
                }
                if known.transmits {
                    difference.kept.transmits.insert(port.name.clone());
                }
                continue;
            }
            let detail = if known.driver != port.driver {
                format!("`{}` instead of `{}`: it is opened again", port.driver, known.driver)
            } else if known.settings != port.settings {
                format!("{}: it is opened again", self::difference(&known.settings, &port.settings))
            } else if lost {
                "no chain begins at it any more: it is opened again".into()
            } else {
                "its queues go to other workers: it is opened again".into()
            };
            difference.add(api::ChangeKind::Replaced, "port", &port.name, detail);
            difference.opened.insert(port.name.clone());
        }
        for port in &self.ports {
            if !after.ports.iter().any(|known| known.name == port.name) {
                difference.add(
                    api::ChangeKind::Removed,
                    "port",
                    &port.name,
                    "it is drained and closed".into(),
                );
            }
        }
    }

    /// Takes note of transmit nodes that go on though no packet goes there any more.
    pub(crate) fn keep_transmits(&mut self, kept: &Kept) {
        for port in self.ports.iter_mut().filter(|port| kept.transmits.contains(&port.name)) {
            port.transmits = true;
        }
    }

    fn functions_to(&self, after: &Self, undo: &Undo<'_>, difference: &mut Difference) {
        for (number, function) in after.functions.iter().enumerate() {
            let Some(before) = self.functions.iter().position(|known| known.name == function.name) else {
                let detail = format!("`{}`, in {}", function.definition, listed(&function.nodes));
                difference.add(api::ChangeKind::Added, "function", &function.name, detail);
                continue;
            };
            let known = &self.functions[before];
            // A port that is opened again has another number.
            let other_ports = function.asks_ports
                && (!difference.opened.is_empty()
                    || self.design.named_ports_of(before) != after.design.named_ports_of(number));
            let same = known.definition == function.definition && known.settings == function.settings;
            let undoes = undo.undoes(&function.name);
            let is_quarantined = undo.is_quarantined(&known.nodes);
            let live = if same || undoes || other_ports || is_quarantined {
                None
            } else {
                self.live_change(before, after, number, undo.written)
            };
            if let Some(change) = live {
                let kept = function.nodes.iter().filter(|node| known.nodes.contains(node)).cloned();
                difference.kept.nodes.extend(kept);
                difference.kept_names.push(function.name.clone());
                difference.kept_functions.insert(function.name.clone());
                let detail = format!("in place: {change}");
                difference.add(api::ChangeKind::Updated, "function", &function.name, detail);
                difference.live.insert(function.name.clone(), change);
                continue;
            }
            let goes_on = same && !undoes && !other_ports && !is_quarantined;
            if goes_on && (known.nodes == function.nodes || !function.stateful) {
                let kept = function.nodes.iter().filter(|node| known.nodes.contains(node)).cloned();
                difference.kept.nodes.extend(kept);
                difference.kept_names.push(function.name.clone());
                difference.kept_functions.insert(function.name.clone());
                if known.nodes != function.nodes {
                    let detail = format!("it stands in {} now", listed(&function.nodes));
                    difference.add(api::ChangeKind::Updated, "function", &function.name, detail);
                }
                continue;
            }
            if undoes || undo.rewrites(&function.name) {
                difference.kept.undone.extend(function.nodes.iter().cloned());
            }
            let (first, before) = (function.nodes.first(), known.nodes.first());
            if let (Some(first), Some(before)) = (first, before.filter(|before| Some(*before) != first)) {
                difference.kept.successions.insert(first.clone(), before.clone());
            }
            let what = if known.definition != function.definition {
                format!("`{}` instead of `{}`", function.definition, known.definition)
            } else if known.settings != function.settings {
                self::difference(&known.settings, &function.settings)
            } else if known.nodes != function.nodes {
                format!("it stands in {} now", listed(&function.nodes))
            } else if !undoes && other_ports {
                "the ports around it are others".into()
            } else if !undoes && is_quarantined {
                "it is in quarantine".into()
            } else {
                "what handlers changed of it since is undone".into()
            };
            difference.add(api::ChangeKind::Replaced, "function", &function.name, what);
        }
        for function in &self.functions {
            if !after.functions.iter().any(|known| known.name == function.name) {
                let state = if function.stateful { "its packets leave first; its state goes" } else { "" };
                difference.add(api::ChangeKind::Removed, "function", &function.name, state.into());
            }
        }
    }

    /// The writes of handlers that bring a function that goes on to its other settings.
    ///
    /// `None` where more than live keys differs. Of what handlers have written since, nothing is lost.
    fn live_change(
        &self,
        before: usize,
        after: &Self,
        number: usize,
        written: &[HandlerWrite],
    ) -> Option<LiveChange> {
        let (known, function) = (&self.functions[before], &after.functions[number]);
        let (running, next) = (&self.design.functions[before], &after.design.functions[number]);
        let is_live = |key: &str| running.live_keys().contains(&key);
        let rest = |of: &InstalledFunction| -> Written {
            let rest = of.settings.iter().filter(|(key, _)| !is_live(key));
            rest.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let alike = known.definition == function.definition
            && (known.nodes == function.nodes || !function.stateful)
            && rest(known) == rest(function);
        if alike { running.live_change_to(next, &writes_of(written, &function.name)) } else { None }
    }

    /// The file with what these writes of handlers changed as keys, and the writes that no key can say.
    ///
    /// `read` answers a function's read handlers.
    pub(crate) fn with_written(
        &self,
        written: &[HandlerWrite],
        read: &mut Read<'_>,
    ) -> (api::Source, Vec<HandlerWrite>) {
        let mut source = self.source.clone();
        // By function the handlers whose writes are said; all of them where there is no list.
        let mut said: BTreeMap<&String, Option<&[&str]>> = BTreeMap::new();
        for (function, blueprint) in self.functions.iter().zip(&self.design.functions) {
            let writes = writes_of(written, &function.name);
            if writes.is_empty() {
                continue;
            }
            let Some((key, list)) = blueprint.live_list(&writes) else {
                let writes: Vec<&HandlerWrite> =
                    written.iter().filter(|written| written.function == function.name).collect();
                let name = &function.name;
                if let Some(Said { key, list, handlers, instead_of }) =
                    Said::of(&function.definition, name, &source.text, &writes, read)
                    && let Some(text) = with_list(&source.text, name, key, &list)
                    && let Some(text) = instead_of.map_or(Some(text.clone()), |key| without(&text, name, key))
                {
                    source.text = text;
                    said.insert(name, Some(handlers));
                }
                continue;
            };
            // A file that another key names has entries, too.
            let others = blueprint.live_keys().iter().filter(|other| **other != key);
            if others.into_iter().any(|other| function.settings.contains_key(*other)) {
                continue;
            }
            if let Some(text) = with_list(&source.text, &function.name, key, &list) {
                source.text = text;
                said.insert(&function.name, None);
            }
        }
        let is_said = |written: &HandlerWrite| match said.get(&written.function) {
            None => false,
            Some(handlers) => handlers.is_none_or(|handlers| handlers.contains(&&*written.handler)),
        };
        let rest = written.iter().filter(|written| !is_said(written));
        (source, rest.cloned().collect())
    }

    /// The warnings about settings that the next start takes up, and about state that packets no longer come to.
    pub(crate) fn later(&self, after: &Self) -> Vec<String> {
        let control = (self.control != after.control)
            .then(|| "`[control]` differs: the next start takes it up".to_owned());
        control.into_iter().chain(self.stranded(after)).collect()
    }

    /// The functions whose packets several workers divide otherwise from now on.
    fn stranded(&self, after: &Self) -> Vec<String> {
        if self.shares.len() < 2 {
            return Vec::new();
        }
        let of = |new: &InstalledFunction| {
            let is_same = |known: &&InstalledFunction| {
                known.name == new.name
                    && known.definition == new.definition
                    && known.is_parted != new.is_parted
            };
            self.functions.iter().find(is_same)?;
            let now = match new.is_parted {
                true => "brings both directions of translated connections to one worker from now on",
                false => "translates no more, and lets workers share its packets by flow from now on",
            };
            Some(format!(
                "`{}` {now}: connections that began on another worker are not known there, and begin again",
                new.name
            ))
        };
        after.functions.iter().filter_map(of).collect()
    }

    /// Names of settings in `[runtime]` that cannot change while it runs, and differ.
    pub(crate) fn fixed_settings(&self, after: &RuntimeSettings) -> Vec<&'static str> {
        let before = &self.runtime;
        let differs = [
            ("workers", before.workers != after.workers),
            (
                "cores",
                before.cores.as_ref().map(|of| of.get_ref().numbers())
                    != after.cores.as_ref().map(|of| of.get_ref().numbers()),
            ),
            ("idle", before.idle != after.idle),
            ("frames", before.frames != after.frames),
            ("large_frames", before.large_frames != after.large_frames),
            ("burst", before.burst != after.burst),
            ("seed", before.seed != after.seed),
            (
                "attestation_list",
                before.attestation_list.as_ref().map(toml::Spanned::get_ref)
                    != after.attestation_list.as_ref().map(toml::Spanned::get_ref),
            ),
            (
                "attestation",
                before.attestation.as_ref().map(toml::Spanned::get_ref)
                    != after.attestation.as_ref().map(toml::Spanned::get_ref),
            ),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// The functions of which handlers' changes are undone by a change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo<'a> {
    /// Functions that begin as the file says.
    pub(crate) undone: Option<&'a BTreeSet<String>>,
    /// Functions whose journal is written again where they are made again.
    pub(crate) rewritten: Option<&'a BTreeSet<String>>,
    /// The journal, whose writes stay with functions that go on.
    pub(crate) written: &'a [HandlerWrite],
    /// Nodes of functions in quarantine, which are made again.
    pub(crate) quarantined: Option<&'a BTreeSet<String>>,
}

impl Undo<'_> {
    fn is_quarantined(&self, nodes: &[String]) -> bool {
        self.quarantined.is_some_and(|quarantined| nodes.iter().any(|node| quarantined.contains(node)))
    }
    fn undoes(&self, function: &str) -> bool {
        self.undone.is_some_and(|undone| undone.contains(function))
    }
    fn rewrites(&self, function: &str) -> bool {
        self.rewritten.is_some_and(|rewritten| rewritten.contains(function))
    }
}

/// The writes of one function's handlers: handler and argument.
pub(super) fn writes_of<'w>(written: &'w [HandlerWrite], function: &str) -> Vec<(&'w str, &'w str)> {
    let of = written.iter().filter(|written| written.function == function);
    of.map(|written| (&written.handler[..], &written.argument[..])).collect()
}

/// The changes between two configurations.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) changes: Vec<api::Change>,
    /// Ports and functions that go on as they are, for the operator.
    pub(crate) kept_names: Vec<String>,
    /// Parts of the running graph that go on.
    pub(crate) kept: Kept,
    /// Functions that go on with the blueprint that they have.
    pub(crate) kept_functions: BTreeSet<String>,
    pub(crate) kept_ports: BTreeSet<String>,
    /// Functions that go on, and what handlers write of them.
    pub(crate) live: BTreeMap<String, LiveChange>,
    /// Ports to open.
    pub(crate) opened: BTreeSet<String>,
}

impl Difference {
    fn add(&mut self, kind: api::ChangeKind, part: &str, name: &str, detail: String) {
        let (part, name) = (part.to_owned(), name.to_owned());
        let (states, copied_bytes) = (Vec::new(), None);
        self.changes.push(api::Change { kind, part, name, detail, states, copied_bytes });
    }
}

impl InstalledChain {
    /// `lan → ttl → wan`
    fn way(&self) -> String {
        let names = std::iter::once(&self.from).chain(&self.through).chain([&self.to]);
        names.map(String::as_str).collect::<Vec<_>>().join(" → ")
    }
}

fn chains(plan: &Plan<'_>) -> Vec<InstalledChain> {
    let of = |chain: &crate::config::PlannedChain| InstalledChain {
        name: chain.name.clone(),
        from: match &chain.origin {
            Origin::Port(port) => plan.ports[*port].name.clone(),
            Origin::Output { function, output } => format!("{}.{output}", plan.functions[*function].name),
        },
        through: chain.through.iter().map(|(function, _)| plan.functions[*function].name.clone()).collect(),
        to: chain.to.map_or_else(|| "nowhere".to_owned(), |to| plan.ports[to].name.clone()),
    };
    plan.chains.iter().map(of).collect()
}

fn described(graph: &netbricks_core::graph::Description) -> api::Graph {
    let node = |node: &netbricks_core::graph::DescribedNode| api::Node {
        name: node.name.clone(),
        kind: node.kind.clone(),
        role: node.role.clone(),
    };
    let edge = |edge: &netbricks_core::graph::DescribedEdge| api::Edge {
        from: edge.from.clone(),
        output: edge.output.clone(),
        to: edge.to.clone(),
    };
    api::Graph {
        name: graph.name.clone(),
        nodes: graph.nodes.iter().map(node).collect(),
        edges: graph.edges.iter().map(edge).collect(),
    }
}

fn listed(nodes: &[String]) -> String {
    nodes.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ")
}
