//! Puts in shuffles that the file does not name, where a function keeps state by flow.
//!
//! A shuffle is needed where the queues of a port may bring the two directions of a flow to different
//! workers. It is also needed where one port's packets come to that state by a shuffle and another port's
//! packets do not.

use std::collections::BTreeSet;

use netbricks_core::{Blueprint, Shuffle, ShuffleConfig, ShuffleKey};
use netbricks_ports::steer::Rules;

use super::{Network, Place};
use crate::config::{Origin, Plan, PlannedFunction, Written};
use crate::diagnostic::Diagnostic;

/// How a port's receive queues divide its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Number of receive queues.
    pub(crate) queues: usize,
    /// Whether both directions of a flow come by the same queue.
    pub(crate) symmetric: bool,
    /// Steering rules, which have precedence over the division.
    pub(crate) rules: Rules,
    /// Whether filters of the graph bring every flow that reaches state by flow to its worker.
    pub(crate) steered: bool,
}

/// A port whose packets need a shuffle.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Parted {
    /// The port's number in the plan.
    #[serde(skip)]
    pub(crate) number: usize,
    /// The port.
    pub(crate) port: String,
    /// The name of the shuffle's node, if one is put in.
    pub(crate) node: String,
    /// The reason, for the report.
    pub(crate) why: String,
}

/// A function with state by flow that one port's packets reach directly and another port's packets by a
/// shuffle.
struct Mixed {
    function: usize,
    received: usize,
    shuffled: usize,
    /// The last shuffle on the way from `shuffled`.
    by: usize,
}

impl Network {
    /// The receive queues of each worker, as pairs of port number and queue number.
    ///
    /// Queues of one port go to workers in turn, or to the workers that the file places them on. Ports whose
    /// packets meet in declared state have their queues of the same number on the same worker.
    pub(crate) fn deal(&self, plan: &Plan<'_>, queues: &[usize], workers: usize) -> Vec<Vec<(usize, usize)>> {
        let mut firsts: Vec<usize> = Vec::new();
        let mut shares: Vec<Vec<(usize, usize)>> = vec![Vec::new(); workers.max(1)];
        let count = shares.len();
        for number in (0..queues.len()).filter(|number| self.has(Place::Receive(*number))) {
            let group = self.groups[number];
            let first = firsts.iter().position(|known| *known == group).unwrap_or_else(|| {
                firsts.push(group);
                firsts.len() - 1
            });
            for queue in 0..queues[number] {
                let placed = &plan.ports[number].workers;
                let worker = match placed.len() {
                    0 => (first + queue) % count,
                    queues => placed[queue % queues].get_ref() % count,
                };
                shares[worker].push((number, queue));
            }
        }
        shares
    }

    /// As [`deal`](Self::deal), where queues of ports that run already stay with their workers.
    ///
    /// `running` has the ports' names and queues by worker.
    pub(crate) fn deal_beside(
        &self,
        plan: &Plan<'_>,
        queues: &[usize],
        running: &[Vec<(String, usize)>],
    ) -> Vec<Vec<(usize, usize)>> {
        let mut shares = self.deal(plan, queues, running.len());
        let runs = |number: usize| {
            let name = &plan.ports[number].name;
            running.iter().any(|share| share.iter().any(|(port, _)| port == name))
        };
        shares.iter_mut().for_each(|share| share.retain(|(number, _)| !runs(*number)));
        for (share, running) in shares.iter_mut().zip(running) {
            for (port, queue) in running {
                let number = plan.ports.iter().position(|planned| planned.name == *port);
                share.extend(
                    number.filter(|number| self.has(Place::Receive(*number))).map(|number| (number, *queue)),
                );
            }
        }
        shares
    }

    /// The ports whose flows would be split between workers, with state by flow behind them.
    pub(crate) fn parted(&self, plan: &Plan<'_>, ports: &[Division], workers: usize) -> Vec<Parted> {
        let queues: Vec<usize> = ports.iter().map(|port| port.queues).collect();
        self.parted_among(plan, ports, &self.deal(plan, &queues, workers))
    }

    /// As [`parted`](Self::parted), for queues that are already shared out: pairs of port and queue number,
    /// by worker.
    pub(crate) fn parted_among(
        &self,
        plan: &Plan<'_>,
        ports: &[Division],
        shares: &[Vec<(usize, usize)>],
    ) -> Vec<Parted> {
        // The worker of each queue of a port.
        let on = |port: usize| -> Vec<usize> {
            let worker_of = |queue| shares.iter().position(|share| share.contains(&(port, queue)));
            (0..ports[port].queues).filter_map(worker_of).collect()
        };
        // Shuffles that the file names have owners on all workers.
        let mixed = if shares.len() > 1 { self.mixed(ports.len()) } else { Vec::new() };
        let mut parted = Vec::new();
        for group in self.groups.iter().copied().collect::<BTreeSet<_>>() {
            let members: Vec<(usize, usize)> = (0..ports.len())
                .filter(|port| self.groups[*port] == group && self.has(Place::Receive(*port)))
                .filter_map(|port| Some((port, self.first_with_flows(port)?)))
                .collect();
            let Some((first, _)) = members.first().copied() else { continue };
            let mixed = mixed.iter().find(|mixed| {
                self.groups[mixed.received] == group
                    && self.sorts[mixed.by] == Some(ShuffleKey::SymmetricFlow)
            });
            // Filters know nothing of the workers that a shuffle of the file chooses.
            if mixed.is_none() && members.iter().all(|(port, _)| ports[*port].steered) {
                continue;
            }
            let workers: BTreeSet<usize> = members.iter().flat_map(|(port, _)| on(*port)).collect();
            if workers.len() < 2 && mixed.is_none() {
                continue;
            }
            let odd = members.iter().find(|(port, _)| ports[*port].queues > 1 && !ports[*port].symmetric);
            let alike = |port: usize| {
                ports[port].symmetric
                    && on(port) == on(first)
                    && ports[port].rules == ports[first].rules
                    && plan.ports[port].driver == plan.ports[first].driver
            };
            if odd.is_none() && mixed.is_none() && members.iter().all(|(port, _)| alike(*port)) {
                continue;
            }
            let cause = match (odd, mixed) {
                (Some((port, _)), _) => format!(
                    "the queues of port `{}` may bring the two directions of a flow to different workers",
                    plan.ports[*port].name
                ),
                (None, Some(Mixed { shuffled, by, .. })) => format!(
                    "`{}` gives flows of port `{}` to workers that do not receive them",
                    plan.functions[*by].name, plan.ports[*shuffled].name
                ),
                (None, None) => {
                    let names: Vec<_> =
                        members.iter().map(|(port, _)| format!("`{}`", plan.ports[*port].name)).collect();
                    format!(
                        "the queues of ports {} may bring the two directions of a flow to different workers",
                        names.join(" and ")
                    )
                }
            };
            parted.extend(members.iter().map(|(port, function)| {
                let name = &plan.ports[*port].name;
                let function = &plan.functions[*function];
                let taken = match function.definition.as_str() {
                    "sandbox" => ", as a module does unless it has `state = \"none\"`",
                    _ => "",
                };
                let why = format!("{cause}, and `{}` keeps state by flow{taken}", function.name);
                Parted { number: *port, port: name.clone(), node: format!("{name}.shuffle"), why }
            }));
        }
        parted
    }

    /// Warnings about the file's own shuffles, where they do not bring both directions of a flow to one
    /// worker.
    ///
    /// There are three cases:
    /// - One port's flows are shuffled, by another key than `symmetric-flow`, and another port's flows reach
    ///   the same state without a shuffle.
    /// - Both ports' flows are shuffled, by keys that do not bring them together.
    /// - One port brings both directions, and its shuffle's key separates them.
    pub(crate) fn unmet(&self, plan: &Plan<'_>, workers: usize) -> Vec<Diagnostic> {
        let mut unmet = self.half_shuffled(plan, workers);
        unmet.extend(self.at_odds(plan, workers));
        unmet.extend(self.parted_alone(plan, workers));
        unmet
    }

    /// Warnings about a port that alone brings packets to state of connections, by a shuffle that separates
    /// the directions.
    fn parted_alone(&self, plan: &Plan<'_>, workers: usize) -> Vec<Diagnostic> {
        let ports = if workers > 1 { plan.ports.len() } else { 0 };
        let met: Vec<Vec<(usize, Option<usize>)>> = (0..ports).map(|port| self.flows_met(port)).collect();
        let mut found: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut unmet = Vec::new();
        for (port, (function, by)) in
            met.iter().enumerate().flat_map(|(port, met)| met.iter().map(move |way| (port, *way)))
        {
            let Some(by) = by else { continue };
            let Some(key) = self.sorts[by].filter(|key| key.parts_directions()) else { continue };
            let comes_to = |met: &[(usize, Option<usize>)]| met.iter().any(|(other, _)| *other == function);
            let alone = met.iter().filter(|met| comes_to(met)).count() == 1;
            if !alone || !self.of_both[function] || !found.insert((function, by)) {
                continue;
            }
            let [function, port] = [&plan.functions[function].name, &plan.ports[port].name];
            let by = &plan.functions[by];
            let warning = Diagnostic::warning(format!(
                "the two directions of a connection may come to `{function}` on different workers: `{}` sorts both by `{}`",
                by.name,
                key.name()
            ));
            unmet.push(
                warning
                    .at(by.place.clone(), format!("sorts what port `{port}` receives, whichever direction"))
                    .help("give it `key = \"symmetric-flow\"`, unless the port brings one direction alone"),
            );
        }
        unmet
    }

    fn at_odds(&self, plan: &Plan<'_>, workers: usize) -> Vec<Diagnostic> {
        let ports = if workers > 1 { plan.ports.len() } else { 0 };
        let met: Vec<Vec<(usize, Option<usize>)>> = (0..ports).map(|port| self.flows_met(port)).collect();
        let ways = met.iter().enumerate().flat_map(|(port, met)| {
            met.iter().filter_map(move |(function, by)| Some((*function, port, (*by)?)))
        });
        let ways: Vec<(usize, usize, usize)> = ways.collect();
        let mut found: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
        let mut unmet = Vec::new();
        for (place, (function, port, by)) in ways.iter().enumerate() {
            for (_, other_port, other) in
                ways[place + 1..].iter().filter(|way| way.0 == *function && way.1 != *port)
            {
                let (Some(key), Some(other_key)) = (self.sorts[*by], self.sorts[*other]) else { continue };
                if key.meets(other_key) || !found.insert((*function, *by, *other)) {
                    continue;
                }
                let function = &plan.functions[*function].name;
                let [port, other_port] = [port, other_port].map(|port| &plan.ports[*port].name);
                let [by, other] = [by, other].map(|shuffle| &plan.functions[*shuffle]);
                let sorts = |port: &str, key: ShuffleKey| {
                    format!("sorts what port `{port}` receives by `{}`", key.name())
                };
                let (first, second) = (sorts(port, key), sorts(other_port, other_key));
                let warning = Diagnostic::warning(format!(
                    "the two directions of a flow may come to `{function}` on different workers: `{}` and `{}` sort them by \
                     keys that don't bring them together",
                    by.name, other.name
                ));
                unmet.push(warning.at(by.place.clone(), first).at(other.place.clone(), second).help(
                    "give both `key = \"symmetric-flow\"`, or one `\"source\"` and the other `\"destination\"`",
                ));
            }
        }
        unmet
    }

    fn half_shuffled(&self, plan: &Plan<'_>, workers: usize) -> Vec<Diagnostic> {
        let mixed = if workers > 1 { self.mixed(plan.ports.len()) } else { Vec::new() };
        let named = |mixed: &&Mixed| self.sorts[mixed.by] != Some(ShuffleKey::SymmetricFlow);
        mixed
            .iter()
            .filter(named)
            .map(|Mixed { function, received, shuffled, by }| {
                let function = &plan.functions[*function].name;
                let [received_name, shuffled_name] =
                    [received, shuffled].map(|port| &plan.ports[*port].name);
                let by = &plan.functions[*by];
                let warning = Diagnostic::warning(format!(
                    "the two directions of a flow may come to `{function}` on different workers: by port \
                     `{shuffled_name}` where `{}` gives them to, by port `{received_name}` where they are received",
                    by.name
                ));
                let chain = plan.chains.iter().find(|chain| chain.origin == Origin::Port(*received));
                let warning = match chain {
                    Some(chain) => warning
                        .at(chain.from_place.clone(), format!("no shuffle between here and `{function}`")),
                    None => warning,
                };
                warning.at(by.place.clone(), format!("sorts what port `{shuffled_name}` receives")).help(format!(
                    "let both go by a shuffle that brings a flow's directions to one worker, such as \
                     `key = \"symmetric-flow\"`, or put `{function}` before `{}`",
                    by.name
                ))
            })
            .collect()
    }

    /// Pairs of a port whose packets reach state by flow directly, and one whose packets are shuffled first.
    ///
    /// There is one pair for each such state and port.
    fn mixed(&self, ports: usize) -> Vec<Mixed> {
        let met: Vec<Vec<(usize, Option<usize>)>> = (0..ports).map(|port| self.flows_met(port)).collect();
        let mut mixed = Vec::new();
        for (received, own) in met.iter().enumerate() {
            for (function, _) in own.iter().filter(|(_, by)| by.is_none()) {
                let other = met.iter().enumerate().filter(|(shuffled, _)| *shuffled != received).find_map(
                    |(shuffled, met)| {
                        let by = met.iter().find(|(other, by)| other == function && by.is_some())?.1?;
                        Some(Mixed { function: *function, received, shuffled, by })
                    },
                );
                mixed.extend(other);
            }
        }
        mixed
    }

    /// The first function with state by flow that a port's packets reach without a shuffle.
    fn first_with_flows(&self, port: usize) -> Option<usize> {
        self.flows_met(port).into_iter().find(|(_, by)| by.is_none()).map(|(function, _)| function)
    }

    /// The functions with state by flow that a port's packets reach, nearest first.
    ///
    /// Each comes with the last shuffle before it on that way.
    fn flows_met(&self, port: usize) -> Vec<(usize, Option<usize>)> {
        self.met(port, |function| self.by_flow[function])
    }

    /// As [`flows_met`](Self::flows_met), for the functions that are `wanted`.
    pub(super) fn met(&self, port: usize, wanted: impl Fn(usize) -> bool) -> Vec<(usize, Option<usize>)> {
        let mut met = Vec::new();
        let mut reached = vec![(Place::Receive(port), None)];
        let mut next = 0;
        while let Some((place, mut by)) = reached.get(next).copied() {
            next += 1;
            if let Place::Use(number) = place {
                let function = self.uses[number].function;
                if self.crosses[function] {
                    by = Some(function);
                } else if wanted(function) && !met.contains(&(function, by)) {
                    met.push((function, by));
                }
            }
            for wire in self.wires.iter().filter(|wire| wire.from == place) {
                if !reached.contains(&(wire.to, by)) {
                    reached.push((wire.to, by));
                }
            }
        }
        met
    }
}

impl Plan<'_> {
    /// Puts a shuffle by symmetric flow first into the chains that receive from these ports.
    ///
    /// All these shuffles use one owner table, so that a flow's packets from all ports reach one worker.
    pub(crate) fn put_in(&mut self, parted: &[Parted]) {
        for Parted { number, node, .. } in parted {
            let shuffle = Shuffle::new(ShuffleConfig::default());
            let function = self.functions.len();
            for chain in self.chains.iter_mut().filter(|chain| chain.origin == Origin::Port(*number)) {
                let place = chain.from_place.clone();
                chain.through.insert(0, (function, place.clone()));
                self.functions.push(PlannedFunction {
                    name: node.clone(),
                    definition: "shuffle".into(),
                    blueprint: Blueprint::new({
                        let shuffle = shuffle.clone();
                        move |worker| shuffle.node(worker)
                    }),
                    settings: Written::new(),
                    place,
                    owner: 0,
                });
            }
        }
    }
}
