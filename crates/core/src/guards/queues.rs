//! Receive queues for the paths of a graph, and the rules that bring each path's packets to its queue.
//!
//! Paths that need one state for both directions of a flow go to one worker. Rules are spent on the paths with the
//! most packets. Rules that would bring the two directions of a flow to different workers are refused.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_packet::ethernet::ethertype;

use super::merge::{Covers, Ranked, merged};
use super::walk::{Path, PathGuard};
use super::{Certainty, Filter};

/// A port whose packets go through the graph.
#[derive(Clone, Debug)]
pub struct PathPort {
    /// The paths from its receive node.
    pub paths: Vec<Path>,
    /// The worker of each of its receive queues.
    pub workers: Vec<usize>,
    /// The rules that it can have; none where it does not steer by the graph.
    pub limits: Option<RuleLimits>,
}

/// The rules that a port can have.
#[derive(Clone, Copy, Debug)]
pub struct RuleLimits {
    /// The most rules.
    pub most: usize,
    /// Whether the port can have this rule.
    pub accepts: fn(&Filter) -> bool,
}

/// A rule: packets that match its filter, and no earlier rule, go to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRule {
    /// The packets.
    pub filter: Filter,
    /// The receive queue, from 0.
    pub queue: u16,
}

/// The rules of a port, and the fates of its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRules {
    /// The rules, in order.
    pub rules: Vec<QueueRule>,
    /// The fate of each path of the port, by its number.
    pub fates: Vec<Fate>,
}

/// The fate of a path: its queue, or why it has no rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Rules bring its packets to this queue.
    Queue(u16),
    /// The port does not steer by the graph.
    Unasked,
    /// No header says which packets take it, or they are dropped.
    Unspecific,
    /// It has the packets that take no other path.
    Rest,
    /// All packets of its port, and of others that share state with it, would come to one worker.
    Alone,
    /// It needs this many rules, and there is room for fewer.
    NoRoom(usize),
    /// The port cannot have one of its rules.
    NotAccepted(Filter),
    /// The other direction of some of its flows would come to another worker.
    Parted,
}

/// The paths that go to one worker, because they meet in state that both directions of a flow need.
struct Unit {
    /// Port and path.
    members: Vec<(usize, usize)>,
    packets: u64,
    /// The reason why it has no rules, where that is known.
    refused: Option<Fate>,
    worker: Option<usize>,
    /// The rules that it needs on each port that steers.
    cost: BTreeMap<usize, usize>,
}

impl Unit {
    /// The most rules that it needs on a port.
    fn most(&self) -> usize {
        self.cost.values().copied().max().unwrap_or(0)
    }
}

/// Makes the rules of ports whose packets may meet in state.
///
/// `kept` gives the worker of a path, as port and path number, that had rules before and must stay there.
pub fn derive(ports: &[PathPort], kept: &dyn Fn(usize, usize) -> Option<usize>) -> Vec<PortRules> {
    let mut plan = Plan { ports, units: Vec::new(), of: BTreeMap::new() };
    plan.unite();
    plan.refuse_unfit();
    plan.count_rules();
    plan.choose_workers(kept);
    // Each round refuses at least one unit.
    while let Some(refused) = plan.parted() {
        for unit in refused {
            plan.units[unit].refused = Some(Fate::Parted);
            plan.units[unit].worker = None;
        }
    }
    // Rules of one unit may keep those of another from being merged.
    while let Some(unit) = plan.lightest_beyond_limits() {
        plan.units[unit].refused = Some(Fate::NoRoom(plan.units[unit].most()));
        plan.units[unit].worker = None;
    }
    (0..ports.len()).map(|port| PortRules { rules: plan.rules(port), fates: plan.fates(port) }).collect()
}

struct Plan<'p> {
    ports: &'p [PathPort],
    units: Vec<Unit>,
    /// The unit of each port and path.
    of: BTreeMap<(usize, usize), usize>,
}

/// The certain guards of a path, which become its rules.
fn certain(path: &Path) -> impl Iterator<Item = &PathGuard> {
    path.guards.iter().filter(|guard| guard.certainty == Certainty::Certain)
}

/// Whether a path has a rule for all packets of its port that no other rule takes.
fn is_rest(path: &Path) -> bool {
    certain(path).any(|guard| guard.filter == Filter::ANY)
}

impl Plan<'_> {
    fn path(&self, (port, path): (usize, usize)) -> &Path {
        &self.ports[port].paths[path]
    }

    /// Unites paths that share states, or that are the same path by another receive queue.
    fn unite(&mut self) {
        let mut unit_of_state: BTreeMap<usize, usize> = BTreeMap::new();
        let places: Vec<(usize, usize)> = self
            .ports
            .iter()
            .enumerate()
            .flat_map(|(port, of)| (0..of.paths.len()).map(move |path| (port, path)))
            .collect();
        for place in places {
            let path = self.path(place);
            if path.is_dropped() {
                continue;
            }
            let (states, packets) = (path.states.clone(), path.packets);
            let number = self.units.len();
            let unit = |members, packets| Unit {
                members,
                packets,
                refused: None,
                worker: None,
                cost: BTreeMap::new(),
            };
            self.units.push(unit(vec![place], packets));
            let met: BTreeSet<usize> =
                states.iter().filter_map(|state| unit_of_state.get(state).copied()).collect();
            for other in met {
                let Unit { members, packets, .. } =
                    std::mem::replace(&mut self.units[other], unit(Vec::new(), 0));
                self.units[number].members.extend(members);
                self.units[number].packets += packets;
                unit_of_state.values_mut().filter(|unit| **unit == other).for_each(|unit| *unit = number);
            }
            unit_of_state.extend(states.into_iter().map(|state| (state, number)));
        }
        self.units.retain(|unit| !unit.members.is_empty());
        // In the order in which the file has them.
        self.units.iter_mut().for_each(|unit| unit.members.sort_unstable());
        self.units.sort_by_key(|unit| unit.members[0]);
        for (number, unit) in self.units.iter().enumerate() {
            self.of.extend(unit.members.iter().map(|place| (*place, number)));
        }
    }

    /// Refuses units that cannot have rules, whichever others have some.
    fn refuse_unfit(&mut self) {
        for number in 0..self.units.len() {
            let unit = &self.units[number];
            let steered = |place: &&(usize, usize)| self.ports[place.0].limits.is_some();
            let specific = |place: &(usize, usize)| {
                let path = self.path(*place);
                certain(path).next().is_some() && !is_rest(path)
            };
            let alone = unit.members.iter().all(|(port, _)| {
                self.ports[*port]
                    .paths
                    .iter()
                    .enumerate()
                    .all(|(path, of)| of.is_dropped() || self.of.get(&(*port, path)) == Some(&number))
            });
            let unaccepted = unit.members.iter().filter(steered).find_map(|place| {
                let limits = self.ports[place.0].limits?;
                certain(self.path(*place))
                    .find(|guard| !(limits.accepts)(&guard.filter))
                    .map(|guard| guard.filter)
            });
            let refused = if !unit.members.iter().any(|place| steered(&place)) {
                Some(Fate::Unasked)
            } else if alone {
                Some(Fate::Alone)
            } else if !unit.members.iter().filter(steered).any(specific) {
                let rest = unit.members.iter().any(|place| is_rest(self.path(*place)));
                Some(if rest { Fate::Rest } else { Fate::Unspecific })
            } else {
                unaccepted.map(Fate::NotAccepted)
            };
            self.units[number].refused = refused;
        }
    }

    /// Gives workers to units: first to those that are kept, then to those with the most packets.
    fn choose_workers(&mut self, kept: &dyn Fn(usize, usize) -> Option<usize>) {
        let mut load: BTreeMap<usize, u64> = BTreeMap::new();
        let mut order: Vec<(bool, u64, usize)> = Vec::new();
        for (number, unit) in self.units.iter().enumerate().filter(|(_, unit)| unit.refused.is_none()) {
            let before = unit.members.iter().find_map(|(port, path)| kept(*port, *path));
            order.push((before.is_none(), u64::MAX - unit.packets, number));
        }
        order.sort_unstable();
        let needed: Vec<usize> = (0..self.ports.len()).map(|port| self.needed(port, &order)).collect();
        let fits = self
            .ports
            .iter()
            .zip(&needed)
            .all(|(port, needed)| port.limits.is_none_or(|limits| *needed <= limits.most));
        let mut left: Vec<usize> =
            self.ports.iter().map(|port| port.limits.map_or(0, |limits| limits.most)).collect();
        for (_, _, number) in order {
            let unit = &self.units[number];
            if !fits && unit.cost.iter().any(|(port, rules)| *rules > left[*port]) {
                self.units[number].refused = Some(Fate::NoRoom(unit.most()));
                continue;
            }
            // A worker that receives from each port of the unit.
            let mut workers: Option<BTreeSet<usize>> = None;
            for (port, _) in &unit.members {
                let own: BTreeSet<usize> = self.ports[*port].workers.iter().copied().collect();
                workers = Some(workers.map_or(own.clone(), |all| all.intersection(&own).copied().collect()));
            }
            let workers = workers.unwrap_or_default();
            let before = unit.members.iter().find_map(|(port, path)| kept(*port, *path));
            let lightest = || {
                workers.iter().copied().min_by_key(|worker| (load.get(worker).copied().unwrap_or(0), *worker))
            };
            let Some(worker) = before.filter(|worker| workers.contains(worker)).or_else(lightest) else {
                self.units[number].refused = Some(Fate::Parted);
                continue;
            };
            *load.entry(worker).or_default() += unit.packets.max(1);
            unit.cost.iter().for_each(|(port, rules)| left[*port] = left[*port].saturating_sub(*rules));
            self.units[number].worker = Some(worker);
        }
    }

    /// Counts the rules of each unit on each port that steers.
    fn count_rules(&mut self) {
        for number in 0..self.units.len() {
            if self.units[number].refused.is_some() {
                continue;
            }
            let mut cost = BTreeMap::new();
            for place in &self.units[number].members {
                if self.ports[place.0].limits.is_some() {
                    let rules =
                        certain(self.path(*place)).map(|guard| (guard.ranks.clone(), guard.filter, 0));
                    *cost.entry(place.0).or_default() += merged(rules.collect()).len();
                }
            }
            self.units[number].cost = cost;
        }
    }

    /// The unit with the fewest packets on a port that has more rules than it can have.
    fn lightest_beyond_limits(&self) -> Option<usize> {
        let beyond = |port: &usize| {
            self.ports[*port].limits.is_some_and(|limits| self.rules(*port).len() > limits.most)
        };
        let port = (0..self.ports.len()).find(beyond)?;
        let has_rules = |unit: &usize| {
            let unit = &self.units[*unit];
            unit.worker.is_some() && unit.cost.get(&port).is_some_and(|rules| *rules > 0)
        };
        // Of equal ones the last goes.
        (0..self.units.len()).rev().filter(has_rules).min_by_key(|unit| self.units[*unit].packets)
    }

    /// The rules that a port needs for these units, at most.
    fn needed(&self, port: usize, units: &[(bool, u64, usize)]) -> usize {
        units.iter().filter_map(|(_, _, unit)| self.units[*unit].cost.get(&port).copied()).sum()
    }

    /// The queue of a port that a unit's packets come to.
    fn queue(&self, unit: usize, port: usize) -> Option<u16> {
        let worker = self.units[unit].worker?;
        self.ports[port].limits?;
        let queue = self.ports[port].workers.iter().position(|of| *of == worker)?;
        u16::try_from(queue).ok()
    }

    /// The paths of a port that have rules, each with its queue.
    fn ruled(&self, port: usize) -> impl Iterator<Item = (usize, u16)> {
        (0..self.ports[port].paths.len()).filter_map(move |path| {
            let queue = self.of.get(&(port, path)).and_then(|unit| self.queue(*unit, port))?;
            Some((path, queue))
        })
    }

    fn rules(&self, port: usize) -> Vec<QueueRule> {
        let rules = self.ruled(port).flat_map(|(path, queue)| {
            certain(self.path((port, path))).map(move |guard| (guard.ranks.clone(), guard.filter, queue))
        });
        merged(rules.collect::<Vec<Ranked>>())
    }

    fn fates(&self, port: usize) -> Vec<Fate> {
        let fate = |path: usize| {
            if self.ports[port].limits.is_none() {
                return Fate::Unasked;
            }
            let Some(unit) = self.of.get(&(port, path)) else { return Fate::Unspecific };
            match (self.queue(*unit, port), self.units[*unit].refused) {
                (Some(queue), _) if certain(self.path((port, path))).next().is_some() => Fate::Queue(queue),
                (_, Some(refused)) => refused,
                _ => Fate::Unspecific,
            }
        };
        (0..self.ports[port].paths.len()).map(fate).collect()
    }

    /// Units whose flows come to one worker in one direction and may come to another in the other direction.
    ///
    /// All rules of a unit lead to its worker, at every port. So only packets without a rule may go elsewhere.
    fn parted(&self) -> Option<BTreeSet<usize>> {
        let mut ruled: Vec<Covers<()>> = Vec::new();
        for port in 0..self.ports.len() {
            let mut covers = Covers::default();
            for (path, _) in self.ruled(port) {
                certain(self.path((port, path))).for_each(|guard| *covers.entry(&guard.filter) = ());
            }
            ruled.push(covers);
        }
        let is_parted = |number: &usize| {
            let unit = &self.units[*number];
            let Some(worker) = unit.worker else { return false };
            let loose = self.loose(unit, worker);
            let parts = |place: &(usize, usize)| {
                let path = self.path(*place);
                let has_rules = self.queue(*number, place.0).is_some() && !path.states.is_empty();
                has_rules
                    && certain(path).any(|guard| {
                        // A flow may return in another VLAN.
                        let back = Filter { vlan: None, ..guard.filter.mirrored() };
                        loose.iter().any(|(port, path, filter)| {
                            !self.path((*port, *path)).states.is_disjoint(&self.path(*place).states)
                                && filter.and(&back).is_some()
                                && ruled[*port].of(&back).next().is_none()
                        })
                    })
            };
            !loose.is_empty() && unit.members.iter().any(parts)
        };
        let found: BTreeSet<usize> = (0..self.units.len()).filter(is_parted).collect();
        (!found.is_empty()).then_some(found)
    }

    /// The packets of a unit that no rule brings to its worker, as port, path and filter.
    fn loose(&self, unit: &Unit, worker: usize) -> Vec<(usize, usize, Filter)> {
        let mut loose = Vec::new();
        for (port, path) in unit.members.iter().copied() {
            // What no rule takes comes to any queue.
            if self.ports[port].workers.iter().all(|of| *of == worker) {
                continue;
            }
            let has_rules = self.ports[port].limits.is_some() && self.ports[port].workers.contains(&worker);
            let guards = self.path((port, path)).guards.iter().filter(|guard| {
                let by_rule = has_rules && guard.certainty == Certainty::Certain;
                // Flows are taken to return behind no more tags than filters see.
                let behind_tags = guard.filter.ethertype.is_some_and(ethertype::is_vlan);
                !by_rule && guard.certainty != Certainty::NoFlow && !behind_tags
            });
            loose.extend(guards.map(|guard| (port, path, guard.filter)));
        }
        loose
    }
}
