//! Turns a plan into graphs: a node for each use of a function, edges along the chains, edges for answers.
//!
//! Answers go back to the port that their packets came from. The same network is checked and drawn without
//! open ports, and built on every worker.

mod build;
mod layout;
mod named;
mod partition;
mod ports;
mod room;
mod shared;
mod spread;
mod steering;

use std::collections::BTreeSet;

use netbricks_buffer::Pool;
use netbricks_core::guards::Guards;
use netbricks_core::tables::stock;
use netbricks_core::{Blueprint, BuildError, Edge, GraphError, Node, NodeState, Output, ShuffleKey, Worker};

pub(crate) use build::{Design, Kept, LocalPorts, WorkerPorts};
pub(crate) use layout::Layout;
pub(crate) use partition::{Partition, Split};
pub(crate) use ports::{OpenPorts, Opening, transmit_nodes};
pub(crate) use room::overcommitted;
pub(crate) use spread::{Division, Parted};
pub(crate) use steering::{Circumstances, Filters};

use crate::config::{Origin, Plan, PlannedFunction, PlannedTenant};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::report;

/// A node of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Where a port's packets come in, by the port's number in the plan.
    Receive(usize),
    /// A use of a function, by its number in the network.
    Use(usize),
    /// Where a port's packets go out.
    Transmit(usize),
}

/// One use of a function in one chain.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// The node's name.
    ///
    /// It is the function's name if the function is used once, `ttl@lan-wan` if several chains use it, and
    /// `ttl#2` for the second use in one chain.
    pub(crate) name: String,
    /// The function, by its number in the plan.
    pub(crate) function: usize,
    /// The chain, by its number in the plan.
    pub(crate) chain: usize,
    /// The input that it takes, where the function names its inputs after ports.
    pub(crate) input: Option<usize>,
}

/// An edge of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// The place where it begins.
    pub(crate) from: Place,
    /// The way out that it leaves by.
    pub(crate) edge: Edge,
    /// The place where it ends.
    pub(crate) to: Place,
    /// The input there.
    pub(crate) input: usize,
    /// Whether it is left out if the port at its end cannot transmit; this is the way back for answers.
    pub(crate) if_possible: bool,
}

/// Properties of a function's node.
struct Shape {
    inputs: usize,
    /// The port of each input, where they are named after ports.
    ports: Vec<String>,
    outputs: Vec<Output>,
    /// Whether it declares state, so that all its uses on a worker are one node.
    stateful: bool,
    /// Whether some of its state is by flow.
    by_flow: bool,
    /// Whether some of its state is of connections, which both directions must reach.
    of_both: bool,
    /// The partition of its state, if some of it is by a key other than a flow.
    partition: Option<Partition>,
    /// The key by which it gives packets to other workers and takes theirs, if it does.
    sorts: Option<ShuffleKey>,
    /// Whether it keeps packets, or needs turns of its own beyond those for its events.
    independent: bool,
    /// The bytes of its tables, and of memory that it declares beside them.
    memory: u64,
    /// The entries that its declared state has room for.
    entries: u64,
    /// Packets that it may hold between calls; `None` where that has no bound.
    holds: Option<usize>,
    /// Frames of pools of its own.
    frames: usize,
    /// The packets that may leave by each of its ways out.
    guards: Vec<Guards>,
    /// Whether it asked for the ports of its network.
    asks_ports: bool,
}

/// The nodes and edges of a plan's chains, before ports are opened.
#[derive(Debug)]
pub(crate) struct Network {
    /// Uses of functions, chain by chain.
    pub(crate) uses: Vec<Use>,
    /// Edges.
    pub(crate) wires: Vec<Wire>,
    /// Whether a function declares state, by its number in the plan.
    pub(crate) stateful: Vec<bool>,
    /// Inputs of functions that have several, by the function's number in the plan.
    ///
    /// Such a function is one node. Each use of it is another input, and goes on by the way out of that number.
    pub(crate) inputs: Vec<usize>,
    /// Whether some of that state is by flow, by the function's number in the plan.
    pub(crate) by_flow: Vec<bool>,
    /// Whether some of it is of connections, which both directions must reach, by the function's number in
    /// the plan.
    pub(crate) of_both: Vec<bool>,
    /// The partition of state by a key other than a flow, by the function's number in the plan.
    pub(crate) partitions: Vec<Option<Partition>>,
    /// Whether a function gives packets to other workers, by its number in the plan.
    pub(crate) crosses: Vec<bool>,
    /// The key by which it sorts them, by the function's number in the plan.
    pub(crate) sorts: Vec<Option<ShuffleKey>>,
    /// Each way out of a function with the packets that may take it, by the function's number in the plan.
    pub(crate) guards: Vec<Vec<(Edge, Guards)>>,
    /// Whether a function asks for the ports of its network, by its number in the plan.
    pub(crate) asks_ports: Vec<bool>,
    /// The group of each port.
    ///
    /// Ports whose packets meet in declared state are in one group, and one worker must process their
    /// packets.
    pub(crate) groups: Vec<usize>,
    /// Uses whose answers, if they give any, have nowhere to go.
    ///
    /// Their packets come from several ports, or from a port that cannot send.
    pub(crate) unanswered: Vec<usize>,
    /// Packets that each tenant's queues and functions may hold on a worker.
    pub(crate) rooms: Vec<usize>,
}

/// The name of a port's receive node.
pub(crate) fn receive_name(port: &str) -> String {
    port.to_owned()
}
/// The name of a port's transmit node.
pub(crate) fn transmit_name(port: &str) -> String {
    format!("{port}.send")
}

impl Network {
    /// Connects the names of a plan. It makes each function once, on a small pool, to learn its ways out.
    pub(crate) fn of(plan: &Plan<'_>, pool: &Pool, diagnostics: &mut Diagnostics) -> Self {
        let shapes: Vec<Option<Shape>> = plan
            .functions
            .iter()
            .map(|function| {
                let worker = Worker::new(0, plan.runtime.seed.unwrap_or(0), pool.clone()).on_trial();
                let shape = Shape::of(&function.blueprint, &worker).map_err(|error| {
                    diagnostics.push(
                        Diagnostic::error(format!("function `{}` cannot be made: {error}", function.name))
                            .at(function.place.clone(), ""),
                    );
                });
                shape.ok()
            })
            .collect();
        let inputs: Vec<usize> =
            shapes.iter().map(|shape| shape.as_ref().map_or(1, |shape| shape.inputs)).collect();
        let uses = uses(plan, &inputs);
        let roots = roots(plan);
        let mut network = Self {
            wires: Vec::new(),
            stateful: shapes.iter().map(|shape| shape.as_ref().is_some_and(|shape| shape.stateful)).collect(),
            inputs,
            by_flow: shapes.iter().map(|shape| shape.as_ref().is_some_and(|shape| shape.by_flow)).collect(),
            of_both: shapes.iter().map(|shape| shape.as_ref().is_some_and(|shape| shape.of_both)).collect(),
            partitions: shapes
                .iter()
                .map(|shape| shape.as_ref().and_then(|shape| shape.partition.clone()))
                .collect(),
            sorts: shapes.iter().map(|shape| shape.as_ref().and_then(|shape| shape.sorts)).collect(),
            crosses: shapes
                .iter()
                .map(|shape| shape.as_ref().is_some_and(|shape| shape.sorts.is_some()))
                .collect(),
            guards: shapes
                .iter()
                .map(|shape| shape.as_ref().map(Shape::guarded).unwrap_or_default())
                .collect(),
            asks_ports: shapes
                .iter()
                .map(|shape| shape.as_ref().is_some_and(|shape| shape.asks_ports))
                .collect(),
            groups: Vec::new(),
            unanswered: Vec::new(),
            rooms: Vec::new(),
            uses,
        };
        let Some(shapes) = shapes.into_iter().collect::<Option<Vec<_>>>() else { return network };
        network.groups = network.group(plan, &roots);
        network.name_inputs(plan, &shapes, diagnostics);
        network.along_chains(plan, &shapes, diagnostics);
        network.between_chains(plan, &shapes, &roots, diagnostics);
        network.uses_of_keepers(plan, &shapes, diagnostics);
        quotas(plan, &shapes, diagnostics);
        network.rooms = rooms(plan, &shapes);
        network
    }

    /// The network of functions that are each used once, along these wires.
    ///
    /// It makes each function once, on `worker`, to learn which functions keep state.
    pub(crate) fn along(
        wires: Vec<Wire>,
        functions: &[PlannedFunction],
        ports: usize,
        worker: &Worker,
    ) -> Result<Self, GraphError> {
        let shape = |PlannedFunction { name, blueprint, .. }: &PlannedFunction| {
            Shape::of(blueprint, worker).map_err(|error| GraphError::Node { name: name.clone(), error })
        };
        let shapes = functions.iter().map(shape).collect::<Result<Vec<Shape>, _>>()?;
        let says = |of: fn(&Shape) -> bool| shapes.iter().map(of).collect();
        let named = |(number, function): (usize, &PlannedFunction)| Use {
            name: function.name.clone(),
            function: number,
            chain: 0,
            input: None,
        };
        let mut network = Self {
            uses: functions.iter().enumerate().map(named).collect(),
            wires,
            stateful: says(|shape| shape.stateful),
            inputs: shapes.iter().map(|shape| shape.inputs).collect(),
            by_flow: says(|shape| shape.by_flow),
            of_both: says(|shape| shape.of_both),
            partitions: shapes.iter().map(|shape| shape.partition.clone()).collect(),
            crosses: says(|shape| shape.sorts.is_some()),
            sorts: shapes.iter().map(|shape| shape.sorts).collect(),
            guards: shapes.iter().map(Shape::guarded).collect(),
            asks_ports: says(|shape| shape.asks_ports),
            groups: Vec::new(),
            unanswered: Vec::new(),
            rooms: Vec::new(),
        };
        let reached: Vec<BTreeSet<Place>> =
            (0..ports).map(|port| network.reached(Place::Receive(port))).collect();
        network.groups = network.grouped(ports, |function| {
            (0..ports).filter(|port| reached[*port].contains(&Place::Use(function))).collect()
        });
        Ok(network)
    }

    /// The places that packets from a place may reach, and that place itself.
    fn reached(&self, from: Place) -> BTreeSet<Place> {
        let (mut reached, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(place) = next.pop() {
            let wires = self.wires.iter().filter(|wire| wire.from == place);
            next.extend(wires.map(|wire| wire.to).filter(|to| reached.insert(*to)));
        }
        reached
    }

    fn uses_in(&self, chain: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.uses.len()).filter(move |number| self.uses[*number].chain == chain)
    }
    fn uses_of(&self, function: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.uses.len()).filter(move |number| self.uses[*number].function == function)
    }

    /// The place that a chain's packets go to first.
    fn head(&self, plan: &Plan<'_>, chain: usize) -> (Place, usize) {
        let first = self.uses_in(chain).next();
        // A chain without functions has a port that it sends to.
        let to = plan.chains[chain].to.unwrap_or_default();
        first.map_or((Place::Transmit(to), 0), |number| self.entry(number))
    }

    /// Where packets of a use come in: its node, and the input there.
    fn entry(&self, number: usize) -> (Place, usize) {
        let function = self.uses[number].function;
        if self.inputs[function] <= 1 {
            return (Place::Use(number), 0);
        }
        let before = self.uses_of(function).take_while(|other| *other < number).count();
        let before = self.uses[number].input.unwrap_or(before);
        (Place::Use(self.uses_of(function).next().unwrap_or(number)), before)
    }

    fn along_chains(&mut self, plan: &Plan<'_>, shapes: &[Shape], diagnostics: &mut Diagnostics) {
        for (number, chain) in plan.chains.iter().enumerate() {
            if let Origin::Port(port) = chain.origin {
                let (to, input) = self.head(plan, number);
                self.wires.push(Wire { input, ..Wire::out(Place::Receive(port), to) });
            }
            let inside: Vec<usize> = self.uses_in(number).collect();
            for (i, here) in inside.iter().enumerate() {
                let (function, place) = &chain.through[i];
                let (from, place_of_use) = self.entry(*here);
                // A function with several inputs goes on by the way out of the input's number.
                let edge = shapes[*function].outputs.get(place_of_use).map(|output| output.edge);
                let edge = if place_of_use == 0 { Some(Edge::OUT) } else { edge };
                if !shapes[*function].outputs.iter().any(|output| Some(output.edge) == edge) {
                    diagnostics.push(
                        Diagnostic::error(format!(
                            "nothing goes on from `{}`: it has no way out `out`",
                            plan.functions[*function].name
                        ))
                        .at(place.clone(), "the chain cannot pass through it"),
                    );
                    continue;
                }
                let next = inside.get(i + 1);
                let next = next.map(|next| self.entry(*next));
                // Where the chain sends to no port, no packet goes on from its last function.
                let Some((to, input)) = next.or_else(|| Some((Place::Transmit(chain.to?), 0))) else {
                    continue;
                };
                self.wires.push(Wire { edge: edge.unwrap_or(Edge::OUT), input, ..Wire::out(from, to) });
            }
        }
    }

    /// Connects ways out other than `out`: chains that begin there, answers, and errors for missing
    /// connections.
    fn between_chains(
        &mut self,
        plan: &Plan<'_>,
        shapes: &[Shape],
        roots: &[BTreeSet<usize>],
        diagnostics: &mut Diagnostics,
    ) {
        for (number, chain) in plan.chains.iter().enumerate() {
            let Origin::Output { function, output } = &chain.origin else { continue };
            let known = || shapes[*function].outputs.iter().filter(|known| known.edge != Edge::OUT);
            let name = &plan.functions[*function].name;
            match known().find(|known| known.name == *output) {
                Some(found) => {
                    let (to, input) = self.head(plan, number);
                    let mut from: Vec<usize> = self.uses_of(*function).collect();
                    if self.inputs[*function] > 1 {
                        from.truncate(1);
                    }
                    self.wires.extend(from.into_iter().map(|from| Wire {
                        edge: found.edge,
                        input,
                        ..Wire::out(Place::Use(from), to)
                    }));
                }
                None if output == "out" => diagnostics.push(
                    Diagnostic::error(format!("`{name}.out` goes on with its own chain"))
                        .at(chain.from_place.clone(), "connected a second time"),
                ),
                None => {
                    let names: Vec<&str> = known().map(|known| known.name.as_str()).collect();
                    let error = Diagnostic::error(format!("`{name}` has no way out `{output}`"));
                    diagnostics.push(match names.is_empty() {
                        true => error
                            .at(chain.from_place.clone(), "it has `out` only, which its chain goes on with"),
                        false => error.meant(chain.from_place.clone(), output, names),
                    });
                }
            }
        }
        for number in 0..self.uses.len() {
            let Use { function, chain, .. } = self.uses[number];
            if self.entry(number).0 != Place::Use(number) {
                continue;
            }
            for output in shapes[function].outputs.iter().filter(|output| output.edge != Edge::OUT) {
                let connected =
                    self.wires.iter().any(|wire| wire.from == Place::Use(number) && wire.edge == output.edge);
                if connected {
                    continue;
                }
                let mut back = roots[chain].iter();
                if output.edge == Edge::REPLY
                    && let (Some(port), None) = (back.next(), back.next())
                    && (plan.ports[*port].can_transmit || !output.optional)
                {
                    self.wires.push(Wire {
                        edge: output.edge,
                        if_possible: output.optional,
                        ..Wire::out(Place::Use(number), Place::Transmit(*port))
                    });
                } else if output.optional {
                    self.unanswered.push(number);
                } else {
                    let name = &plan.functions[function].name;
                    diagnostics.push(
                        Diagnostic::error(format!("`{name}`'s way out `{}` is not connected", output.name))
                            .at(plan.functions[function].place.clone(), "packets would have nowhere to go")
                            .help(format!(
                                "add `[[chain]]` with `from = \"{name}.{}\"` and `to`",
                                output.name
                            )),
                    );
                }
            }
        }
    }

    /// Reports functions that hold packets and are used twice: such a node cannot tell which chain its
    /// packets came by.
    fn uses_of_keepers(&self, plan: &Plan<'_>, shapes: &[Shape], diagnostics: &mut Diagnostics) {
        for function in (0..shapes.len()).filter(|function| shapes[*function].independent) {
            let room = shapes[function].inputs.max(1);
            let places: Vec<_> = plan
                .chains
                .iter()
                .flat_map(|chain| &chain.through)
                .filter(|(number, _)| *number == function)
                .map(|(_, place)| place.clone())
                .collect();
            let (Some(first), Some(second)) = (places.first(), places.get(room)) else { continue };
            let PlannedFunction { name, definition, .. } = &plan.functions[function];
            let message = match room {
                1 => format!("`{name}` holds packets, and so can stand in one place only"),
                _ => format!("`{name}` has {room} inputs, and stands in {} places", places.len()),
            };
            diagnostics.push(
                Diagnostic::error(message)
                    .at(second.clone(), "used again here")
                    .at(first.clone(), "used here already")
                    .help(format!("add a second `[function.NAME]` with `use = \"{definition}\"`")),
            );
        }
    }

    /// The group of each port: ports whose packets meet in one function's state share a worker.
    fn group(&self, plan: &Plan<'_>, roots: &[BTreeSet<usize>]) -> Vec<usize> {
        self.grouped(plan.ports.len(), |function| {
            self.uses_of(function).flat_map(|number| &roots[self.uses[number].chain]).copied().collect()
        })
    }

    /// The group of each port: ports that reach one function's state have one group.
    ///
    /// `of` gives the ports that reach a function.
    fn grouped(&self, ports: usize, of: impl Fn(usize) -> BTreeSet<usize>) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..ports).collect();
        for function in (0..self.stateful.len()).filter(|function| self.stateful[*function]) {
            let ports = of(function);
            let Some(first) = ports.first().map(|port| groups[*port]) else { continue };
            let joined: Vec<usize> = ports.iter().map(|port| groups[*port]).collect();
            for group in &mut groups {
                if joined.contains(group) {
                    *group = first;
                }
            }
        }
        groups
    }

    /// Whether workers give each other packets, so that a worker without receive queues has work too.
    pub(crate) fn crosses(&self) -> bool {
        self.crosses.contains(&true)
    }

    /// Whether a port receives or transmits somewhere in the network.
    pub(crate) fn has(&self, place: Place) -> bool {
        self.wires.iter().any(|wire| wire.from == place || (wire.to == place && !wire.if_possible))
    }
}

impl Wire {
    fn out(from: Place, to: Place) -> Self {
        Self { from, edge: Edge::OUT, to, input: 0, if_possible: false }
    }
}

impl Shape {
    /// Each way out with its guards.
    fn guarded(&self) -> Vec<(Edge, Guards)> {
        self.outputs.iter().map(|output| output.edge).zip(self.guards.iter().cloned()).collect()
    }

    /// Makes a function once, reads its properties, and drops it.
    ///
    /// All of this runs the author's code, so a panic becomes an error about the function.
    fn of(blueprint: &Blueprint, worker: &Worker) -> Result<Self, BuildError> {
        // Its shared state has not yet the seed of the run, so that no worker may have it.
        let (asked, sizes) = stock::sizes_of(|| blueprint.ask(worker, Self::asked));
        let mut shape = asked?;
        shape.memory += sizes.iter().map(|bytes| *bytes as u64).sum::<u64>();
        shape.asks_ports = worker.asks_ports();
        Ok(shape)
    }

    fn asked(node: &mut dyn Node) -> Self {
        let names = |node: &mut dyn Node, of: fn(&dyn NodeState, ShuffleKey) -> Vec<String>, by| {
            node.state(|state| of(state, by)).unwrap_or_default()
        };
        let bound = names(node, |state, by| state.bound(by), ShuffleKey::SymmetricFlow);
        let follows = ShuffleKey::ALL.map(|by| (by, names(node, |state, by| state.follows(by), by)));
        let (partition, unknown) = Partition::of(&follows, &bound);
        let part = node.state(|state| state.packet_part()).flatten();
        let by_flow = part.is_none();
        let (partition, unknown) = match part {
            // Its own rule takes the place of a flow.
            Some(part) => (Some(Partition::by_part(part)), false),
            None => (partition, unknown),
        };
        let shape = node.shape();
        Self {
            sorts: match node.as_handoff() {
                Some(handoff) => Some(handoff.key()),
                None => shape.spans_workers.then_some(ShuffleKey::Own),
            },
            stateful: shape.by_flow || !node.export().is_empty() || !node.report().is_empty(),
            // State of unknown key is taken to be by flow.
            by_flow: by_flow
                && (unknown
                    || shape.by_flow
                    || follows
                        .iter()
                        .any(|(by, names)| *by == ShuffleKey::SymmetricFlow && !names.is_empty())),
            partition,
            // State that holds for both directions and not for one.
            of_both: shape.by_flow
                || names(node, |state, by| state.bound(by), ShuffleKey::Flow)
                    .iter()
                    .any(|name| !bound.contains(name)),
            independent: shape.keeps_packets || shape.schedulable,
            memory: shape.memory,
            entries: node
                .state(|state| state.declarations().map(|own| own.capacity()))
                .flatten()
                .unwrap_or(0),
            holds: shape.holds.or((!shape.keeps_packets).then_some(0)),
            frames: shape.frames,
            guards: shape.outputs.iter().map(|output| node.guards(output.edge)).collect(),
            inputs: shape.inputs,
            asks_ports: false,
            ports: shape.ports,
            outputs: shape.outputs,
        }
    }
}

/// Reports tenants whose functions would take more than they may.
fn quotas(plan: &Plan<'_>, shapes: &[Shape], diagnostics: &mut Diagnostics) {
    for (number, tenant) in plan.tenants.iter().enumerate() {
        let own = || {
            let functions = plan.functions.iter().zip(shapes);
            functions.filter(|(function, _)| usize::from(function.owner) == number + 1)
        };
        let memory: u64 = own().map(|(_, shape)| shape.memory).sum();
        if let Some(quota) = tenant.settings.memory.map(|bytes| bytes.bytes()).filter(|quota| memory > *quota)
        {
            let largest = own().max_by_key(|(_, shape)| shape.memory);
            let (name, most) =
                largest.map_or(("", 0), |(function, shape)| (function.name.as_str(), shape.memory));
            diagnostics.push(
                Diagnostic::error(format!(
                    "tenant `{}` would take {} of memory on each worker, and may take {}",
                    tenant.name,
                    report::memory(memory),
                    report::memory(quota)
                ))
                .at(tenant.place.clone(), format!("`{name}` takes {}", report::memory(most)))
                .help("make its tables or modules smaller, or raise the tenant's `memory`"),
            );
        }
        let entries = own().fold(0, |sum: u64, (_, shape)| sum.saturating_add(shape.entries));
        if let Some(quota) = tenant.settings.entries.filter(|quota| entries > *quota) {
            let largest = own().max_by_key(|(_, shape)| shape.entries);
            let (name, most) =
                largest.map_or(("", 0), |(function, shape)| (function.name.as_str(), shape.entries));
            diagnostics.push(
                Diagnostic::error(format!(
                    "the tables of tenant `{}` would have room for {entries} entries on each worker, and may have {quota}",
                    tenant.name
                ))
                .at(tenant.place.clone(), format!("`{name}` has room for {most}"))
                .help("make its tables smaller, or raise `entries`"),
            );
        }
        frames_quota(tenant, own, diagnostics);
    }
}

/// Reports a tenant whose queues and functions could hold more packets than it may, or any number of them.
fn frames_quota<'s, I>(tenant: &PlannedTenant, own: impl Fn() -> I, diagnostics: &mut Diagnostics)
where
    I: Iterator<Item = (&'s PlannedFunction, &'s Shape)>,
{
    if let Some((function, _)) = own().find(|(_, shape)| shape.holds.is_none()) {
        diagnostics.push(
            Diagnostic::error(format!(
                "function `{}` may hold any number of packets, so that others could be left without buffers",
                function.name
            ))
            .at(function.place.clone(), format!("tenant `{}` may have functions with a bound alone", tenant.name))
            .help("give `click` the setting `frames`; functions without a bound, such as `instances`, are the operator's"),
        );
    }
    let taken = |shape: &Shape| shape.holds.unwrap_or(0).saturating_add(shape.frames);
    let all = own().fold(0, |sum: usize, (_, shape)| sum.saturating_add(taken(shape)));
    if let Some(quota) = tenant.settings.frames.filter(|quota| all > *quota) {
        let largest = own().max_by_key(|(_, shape)| taken(shape));
        let (name, most) =
            largest.map_or(("", 0), |(function, shape)| (function.name.as_str(), taken(shape)));
        diagnostics.push(
            Diagnostic::error(format!(
                "the queues and functions of tenant `{}` have room for {all} packets on each worker, and it may hold {quota}",
                tenant.name
            ))
            .at(tenant.place.clone(), format!("`{name}` has room for {most}"))
            .help("make `queue`, or the functions' own `queue` or `frames`, smaller, or raise the tenant's `frames`"),
        );
    }
}

/// Packets of the shared pool that each tenant's queues and functions may hold on a worker.
fn rooms(plan: &Plan<'_>, shapes: &[Shape]) -> Vec<usize> {
    let of = |number: usize| {
        let functions = plan.functions.iter().zip(shapes);
        let own = functions.filter(|(function, _)| usize::from(function.owner) == number + 1);
        own.fold(0, |sum: usize, (_, shape)| sum.saturating_add(shape.holds.unwrap_or(0)))
    };
    (0..plan.tenants.len()).map(of).collect()
}

fn uses(plan: &Plan<'_>, inputs: &[usize]) -> Vec<Use> {
    let mut uses = Vec::new();
    for (number, chain) in plan.chains.iter().enumerate() {
        for (i, (function, _)) in chain.through.iter().enumerate() {
            let mut name = plan.functions[*function].name.clone();
            if inputs[*function] > 1 {
                uses.push(Use { name, function: *function, chain: number, input: None });
                continue;
            }
            let elsewhere =
                plan.chains.iter().enumerate().any(|(other, chain)| {
                    other != number && chain.through.iter().any(|(f, _)| f == function)
                });
            if elsewhere {
                name = format!("{name}@{}", chain.name);
            }
            let before = chain.through[..i].iter().filter(|(other, _)| other == function).count();
            if before > 0 {
                name = format!("{name}#{}", before + 1);
            }
            uses.push(Use { name, function: *function, chain: number, input: None });
        }
    }
    uses
}

/// For each chain, the ports from which its packets may come.
fn roots(plan: &Plan<'_>) -> Vec<BTreeSet<usize>> {
    let mut roots: Vec<BTreeSet<usize>> = plan
        .chains
        .iter()
        .map(|chain| match chain.origin {
            Origin::Port(port) => [port].into(),
            Origin::Output { .. } => BTreeSet::new(),
        })
        .collect();
    // A chain takes the ports of the chains it branches off; as many rounds as there are chains reach the
    // last one.
    for _ in 0..plan.chains.len() {
        for (number, chain) in plan.chains.iter().enumerate() {
            let Origin::Output { function, .. } = chain.origin else { continue };
            let learnt: BTreeSet<usize> = plan
                .chains
                .iter()
                .zip(&roots)
                .filter(|(other, _)| other.through.iter().any(|(f, _)| *f == function))
                .flat_map(|(_, roots)| roots.iter().copied())
                .collect();
            roots[number].extend(learnt);
        }
    }
    roots
}
