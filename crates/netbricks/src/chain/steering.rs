//! Filters from the graph: rules for ports with `steer = "graph"`, from the guards of a plan's functions.
//!
//! The rules bring the packets of each path to one receive queue. They are hints: the graph classifies every packet
//! all the same.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_core::guards::Certainty;
use netbricks_core::guards::queues::{Fate, PathPort, RuleLimits, derive};
use netbricks_core::guards::walk::{Path, WalkNode, Way, walk};
use netbricks_ports::PortError;
use netbricks_ports::steer::{Filtering, Rules};

use super::{Division, Network, OpenPorts, Place, transmit_name};
use crate::config::Plan;
use crate::diagnostic::Diagnostic;
use crate::report::counted;

/// The most rules of a port that are printed.
const MOST_PRINTED: usize = 16;

/// The filters of all ports that steer by the graph.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Filters {
    pub(crate) ports: Vec<PortFilters>,
    /// The ports of which every path with state by flow has rules, by number.
    #[serde(skip)]
    steered: BTreeSet<usize>,
}

/// The filters of a port.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct PortFilters {
    /// The port's number in the plan.
    #[serde(skip)]
    number: usize,
    pub(crate) port: String,
    /// The mechanism that applies them.
    pub(crate) by: String,
    /// The most rules that it takes.
    most: usize,
    rules: Vec<RuleText>,
    pub(crate) paths: Vec<PathFilters>,
    #[serde(skip)]
    pub(crate) installed: Rules,
}

/// A rule for people.
#[derive(Clone, Debug, serde::Serialize)]
struct RuleText {
    packets: String,
    queue: u16,
}

/// A path from a port, and its queue.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct PathFilters {
    /// The node behind the last branch.
    pub(crate) path: String,
    /// The queue to which rules bring its packets.
    pub(crate) queue: Option<u16>,
    /// The worker of that queue.
    pub(crate) worker: Option<usize>,
    /// Packets that took it so far.
    packets: u64,
    /// Whether the port has no room for its rules.
    #[serde(skip)]
    without_room: bool,
    /// Why its packets go by the port's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The circumstances in which filters are derived.
pub(crate) struct Circumstances<'a> {
    /// The packets that a node has processed so far.
    pub(crate) packets: &'a dyn Fn(&str) -> u64,
    /// The mechanism of a port that is open.
    pub(crate) open: &'a dyn Fn(&str) -> Option<Filtering>,
    /// The filters that these replace. A path that had a queue stays with its worker.
    pub(crate) before: &'a Filters,
}

impl Network {
    /// The filters of each port that is to steer by the graph.
    ///
    /// `shares` has the receive queues of each worker.
    pub(crate) fn filters(
        &self,
        plan: &Plan<'_>,
        divisions: &[Division],
        shares: &[Vec<(usize, usize)>],
        Circumstances { packets, open, before }: &Circumstances<'_>,
    ) -> Filters {
        let support: Vec<_> = plan
            .ports
            .iter()
            .map(|port| port.configured.as_ref().and_then(|configured| configured.filters()))
            .collect();
        if support.iter().all(Option::is_none) {
            return Filters::default();
        }
        let nodes = self.walk_nodes(plan, packets);
        let open: Vec<Option<Filtering>> = plan.ports.iter().map(|port| open(&port.name)).collect();
        let limits = support.iter().zip(&open).map(|(support, open)| {
            let limits = (*support)?.limits;
            Some(RuleLimits { most: open.as_ref().map_or(limits.most, |open| open.most), ..limits })
        });
        let limits: Vec<Option<RuleLimits>> = limits.collect();
        let ports: Vec<PathPort> = (0..plan.ports.len())
            .map(|port| {
                let worker_of = |queue| shares.iter().position(|share| share.contains(&(port, queue)));
                let workers: Vec<usize> = (0..divisions[port].queues).filter_map(worker_of).collect();
                let receives = self.has(Place::Receive(port)) && !workers.is_empty();
                PathPort {
                    paths: if receives { walk(&nodes, port) } else { Vec::new() },
                    workers,
                    limits: limits[port].filter(|_| receives),
                }
            })
            .collect();
        let name = |path: &Path| {
            path.last().and_then(|node| nodes.get(node)).map_or_else(String::new, |node| node.name.clone())
        };
        let kept = |port: usize, path: usize| {
            let known = before.ports.iter().find(|known| known.port == plan.ports[port].name)?;
            let name = name(&ports[port].paths[path]);
            known.paths.iter().find(|known| known.path == name)?.worker
        };
        let derived = derive(&ports, &kept);
        let mut filters = Filters::default();
        for (number, (port, of)) in ports.iter().zip(&derived).enumerate() {
            let kept = open[number].as_ref().and_then(|open| open.kept.as_ref());
            let kept = kept.filter(|kept| !kept.iter().eq(&of.rules));
            if port.limits.is_some() && kept.is_none() && !port.paths.iter().zip(&of.fates).any(by_hash) {
                filters.steered.insert(number);
            }
            if let Some(support) = support[number] {
                let named = plan.ports[number].name.clone();
                let by = open[number].as_ref().map_or(support.by, |open| &open.by);
                let rules = kept.cloned().unwrap_or_else(|| Rules::derived(of.rules.clone()));
                filters.ports.push(PortFilters::of((number, named), by, port, (rules, &of.fates), &name));
            }
        }
        filters
    }

    /// The network as a walk reads it: ports first, then uses, then ports where packets leave.
    fn walk_nodes(&self, plan: &Plan<'_>, packets: &dyn Fn(&str) -> u64) -> Vec<WalkNode> {
        let (ports, uses) = (plan.ports.len(), self.uses.len());
        let number = |place: Place| match place {
            Place::Receive(port) => port,
            Place::Use(number) => ports + number,
            Place::Transmit(port) => ports + uses + port,
        };
        let mut targets: BTreeMap<(Place, u8), usize> = BTreeMap::new();
        for wire in &self.wires {
            targets.insert((wire.from, wire.edge.0), number(wire.to));
        }
        let mut nodes = Vec::with_capacity(2 * ports + uses);
        for port in 0..ports {
            let to = targets.get(&(Place::Receive(port), netbricks_core::Edge::OUT.0)).copied();
            let way = to.map(|to| Way { guards: netbricks_core::guards::Guards::Any, to: Some(to) });
            nodes.push(WalkNode {
                name: plan.ports[port].name.clone(),
                ways: way.into_iter().collect(),
                ..WalkNode::default()
            });
        }
        for (place, of) in self.uses.iter().enumerate() {
            let function = of.function;
            // Behind a shuffle, the owner of a flow has its state, whichever queue it came by.
            let guards = if self.crosses[function] { &[][..] } else { &self.guards[function] };
            let ways = guards.iter().map(|(edge, guards)| Way {
                guards: guards.clone(),
                to: targets.get(&(Place::Use(place), edge.0)).copied(),
            });
            nodes.push(WalkNode {
                name: of.name.clone(),
                // State that belongs to no key, as counters, does not matter: packets may meet it at any worker.
                ends: self.by_flow[function]
                    || self.partitions[function].is_some()
                    || self.crosses[function]
                    || self.inputs[function] > 1,
                states: if self.by_flow[function] { vec![function] } else { Vec::new() },
                ways: ways.collect(),
                packets: packets(&of.name),
            });
        }
        nodes.extend(
            plan.ports.iter().map(|port| WalkNode { name: transmit_name(&port.name), ..WalkNode::default() }),
        );
        nodes
    }
}

/// Whether packets of a path that belong to a flow, and need its state, may go by the port's hash.
fn by_hash((path, fate): (&Path, &Fate)) -> bool {
    let uncertain = || path.guards.iter().any(|guard| guard.certainty == Certainty::Possible);
    !path.is_dropped() && !path.states.is_empty() && (!matches!(fate, Fate::Queue(_)) || uncertain())
}

impl PortFilters {
    fn of(
        (number, port): (usize, String),
        by: &str,
        of: &PathPort,
        (installed, fates): (Rules, &[Fate]),
        name: &dyn Fn(&Path) -> String,
    ) -> Self {
        let paths = of.paths.iter().zip(fates).filter(|(path, _)| !path.is_dropped());
        let most = of.limits.map_or(0, |limits| limits.most);
        let paths = paths.map(|(path, fate)| {
            let queue = if let Fate::Queue(queue) = fate { Some(*queue) } else { None };
            PathFilters {
                path: if path.branches.is_empty() { "all packets".to_owned() } else { name(path) },
                queue,
                worker: queue.and_then(|queue| of.workers.get(usize::from(queue)).copied()),
                packets: path.packets,
                without_room: matches!(fate, Fate::NoRoom(_)),
                why: why(fate, most),
            }
        });
        Self {
            number,
            port,
            by: by.to_owned(),
            most,
            rules: installed
                .iter()
                .map(|rule| RuleText { packets: rule.filter.to_string(), queue: rule.queue })
                .collect(),
            paths: paths.collect(),
            installed,
        }
    }

    /// A path that the port has no room for, and why, where it has room for none.
    fn without_room(&self) -> Option<(&str, &str)> {
        if self.paths.iter().any(|path| path.queue.is_some()) {
            return None;
        }
        let without = self.paths.iter().find(|path| path.without_room)?;
        Some((&without.path, without.why.as_deref()?))
    }
}

/// Why a path has no rules.
fn why(fate: &Fate, most: usize) -> Option<String> {
    Some(match fate {
        Fate::Queue(_) => return None,
        Fate::Unasked => "its port does not steer by the graph".into(),
        Fate::Unspecific => "no header says which packets take it".into(),
        Fate::Alone => {
            "all packets of its ports meet in one state, so that filters would leave one worker all work"
                .into()
        }
        Fate::Rest => "it has the packets that take no other path".into(),
        Fate::NoRoom(rules) => {
            format!("it needs {} beside heavier paths, and the port takes {most}", counted(*rules, "rule"))
        }
        Fate::NotAccepted(filter) => format!("the port takes no rule such as `{filter}`"),
        Fate::Parted => "the other direction of its flows would come to another worker".into(),
    })
}

impl Filters {
    /// The divisions of ports where these filters apply.
    pub(crate) fn divisions(&self, ports: &[Division]) -> Vec<Division> {
        let steered = |number| self.steered.contains(&number);
        let ports = ports.iter().cloned().enumerate();
        ports.map(|(number, port)| Division { steered: steered(number), ..port }).collect()
    }

    /// Gives the rules to those of the ports that are open here.
    ///
    /// A port gets them also where it had them, as a change may have failed. Answers the faults, each with the port's number in the plan.
    pub(crate) fn install(&self, ports: &mut OpenPorts) -> Vec<(usize, PortError)> {
        self.give(ports, |filters, _, _| Some(filters.installed.clone()))
    }

    /// As [`install`](Self::install), with the rules that the ports have now behind the new ones, where there is room.
    ///
    /// So both the graph that runs and the next one have their packets where they need them. `wanted` chooses ports by
    /// name.
    pub(crate) fn install_beside(
        &self,
        ports: &mut OpenPorts,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<(usize, PortError)> {
        self.give(ports, |filters, had, most| {
            wanted(&filters.port).then(|| filters.installed.before(had, most))
        })
    }

    /// Gives ports the rules that `choose` makes.
    ///
    /// It gets the filters of a port, the rules that the port has, and the most that it takes.
    fn give(
        &self,
        ports: &mut OpenPorts,
        choose: impl Fn(&PortFilters, &Rules, usize) -> Option<Rules>,
    ) -> Vec<(usize, PortError)> {
        let mut failed = Vec::new();
        for filters in &self.ports {
            let Some(port) = ports.find_mut(&filters.port) else { continue };
            let Some(Filtering { most, kept: None, .. }) = port.filtered_by() else { continue };
            let Some(rules) = choose(filters, &port.rules(), most) else { continue };
            if let Err(reason) = port.steer(&rules) {
                failed.push((filters.number, PortError::Steer { port: filters.port.clone(), reason }));
            }
        }
        failed
    }

    /// Errors about ports that have no room for any path, and warnings about paths without rules.
    pub(crate) fn faults(&self, plan: &Plan<'_>) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for filters in &self.ports {
            let settings = &plan.ports[filters.number].settings;
            let place = settings.get_ref().get("steer").map_or_else(|| settings.span(), |value| value.span());
            if let Some((path, why)) = filters.without_room().filter(|_| filters.most > 0) {
                let error = Diagnostic::error(format!(
                    "port `{}` cannot steer by the graph: `{path}`: {why}",
                    filters.port
                ));
                found.push(error.at(place, "").help(
                    "give tenants fewer and wider networks, take a driver with more rules, or leave `steer` out",
                ));
                continue;
            }
            if filters.rules.is_empty() {
                let why = filters.paths.iter().find_map(|path| path.why.clone()).unwrap_or_default();
                let why = if filters.most > 0 { why } else { filters.by.clone() };
                let warning = Diagnostic::warning(format!("port `{}` has no filters: {why}", filters.port));
                found.push(warning.at(place, "its packets go by the port's hash"));
            }
        }
        found
    }

    /// Lines about the filters of each port.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for PortFilters { port, by, rules, paths, .. } in &self.ports {
            let with_queue = paths.iter().filter(|path| path.queue.is_some()).count();
            lines.push(format!(
                "  {port}  filters by {by}: {} for {with_queue} of {}; the graph still classifies\n",
                counted(rules.len(), "rule"),
                counted(paths.len(), "path"),
            ));
            for RuleText { packets, queue } in rules.iter().take(MOST_PRINTED) {
                lines.push(format!("    {packets} ──▶ queue {queue}\n"));
            }
            if rules.len() > MOST_PRINTED {
                lines.push(format!(
                    "    … and {} more (`check --json` has all)\n",
                    rules.len() - MOST_PRINTED
                ));
            }
            let without = paths.iter().filter_map(|path| Some((&path.path, path.why.as_ref()?)));
            for (path, why) in without.take(MOST_PRINTED) {
                lines.push(format!("    {path} by the port's hash: {why}\n"));
            }
        }
        lines
    }
}
