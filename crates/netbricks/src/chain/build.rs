//! Builds one worker's copy of the network as a graph.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_buffer::Batch;
use netbricks_core::tenants::TenantPolicy;
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, GraphError, Node, NodeId, Poll, PortNames,
    Role, Shape, Worker,
};

use super::shared::Shared;
use super::{Network, Place, Wire, receive_name, transmit_name};

/// The ends of a worker's graph: its receive and transmit nodes.
#[derive(Default)]
pub(crate) struct WorkerPorts {
    /// Receive nodes, each with its port's number in the plan. A port may have several.
    pub(crate) receive: Vec<(usize, Box<dyn Node + Send>)>,
    /// Transmit nodes, by their port's number in the plan.
    pub(crate) transmit: BTreeMap<usize, Box<dyn Node + Send>>,
    /// Its receive queues: the number of the port in the plan, and that of the queue.
    pub(crate) queues: Vec<(usize, usize)>,
    /// Whether all ports that it receives from drive the clock.
    pub(crate) drives_clock: bool,
}

impl std::fmt::Debug for WorkerPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let receive: Vec<_> = self.receive.iter().map(|(port, _)| port).collect();
        f.debug_struct("WorkerPorts").field("receive", &receive).finish_non_exhaustive()
    }
}

/// As [`WorkerPorts`], for a graph that is built on the thread where it runs.
#[derive(Default)]
pub(crate) struct LocalPorts {
    pub(crate) receive: Vec<(usize, Box<dyn Node>)>,
    pub(crate) transmit: BTreeMap<usize, Box<dyn Node>>,
}

/// A queue of a port that is not open, in a graph that is only checked or drawn.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) driver: String,
    pub(crate) role: Role,
}

impl Node for Stand {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::LinkDown);
    }
    fn poll(&mut self, _batch: &mut Batch, _cx: &mut Context) -> Poll {
        Poll::Done
    }
    fn shape(&self) -> Shape {
        let shape = if self.role == Role::Receive { Shape::receive() } else { Shape::transmit() };
        Shape { kind: self.driver.clone().into(), ..shape }
    }
}

/// The parts of a network that any thread needs to build it, without places in the file or borrowed text.
#[derive(Clone)]
pub(crate) struct Design {
    pub(crate) name: String,
    pub(crate) ports: Vec<String>,
    /// The number that the packets of each port have.
    pub(crate) labels: Vec<u16>,
    pub(crate) functions: Vec<Blueprint>,
    /// Uses: the node's name, and the function's number.
    pub(crate) uses: Vec<(String, usize)>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) stateful: Vec<bool>,
    /// Inputs of functions: each use of a function with several is another input of its one node.
    pub(crate) inputs: Vec<usize>,
    pub(crate) crosses: Vec<bool>,
    /// The owner of each function; functions without an entry are the operator's.
    pub(crate) owners: Vec<u16>,
    /// The tenants, in the order of their owners' numbers.
    pub(crate) policies: Vec<TenantPolicy>,
}

impl std::fmt::Debug for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Design").field("name", &self.name).field("uses", &self.uses).finish_non_exhaustive()
    }
}

/// The parts that go on as they are when a graph takes over from another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Ports whose receive nodes go on.
    pub(crate) receives: BTreeSet<String>,
    /// Ports whose transmit nodes go on.
    pub(crate) transmits: BTreeSet<String>,
    /// Uses of functions, by the names of their nodes.
    pub(crate) nodes: BTreeSet<String>,
    /// Nodes of functions that stand in other places now: the new node, and the one whose state it takes.
    pub(crate) successions: BTreeMap<String, String>,
    /// New nodes that begin without what handlers changed of the ones before.
    pub(crate) undone: BTreeSet<String>,
}

impl Kept {
    /// The receive nodes of a port in the running graph that go on.
    fn receive_nodes(&self, port: &str, running: &Graph) -> Vec<String> {
        let kept = self.receives.contains(port);
        let names = (0..).map(|number| numbered(port, number));
        names.take_while(|name| kept && running.has(name)).collect()
    }
    fn transmits(&self, port: &str, running: &Graph) -> bool {
        self.transmits.contains(port) && running.has(&transmit_name(port))
    }
}

/// The name of a port's receive node, after `before` others on the same worker.
fn numbered(port: &str, before: usize) -> String {
    let name = receive_name(port);
    if before == 0 { name } else { format!("{name}.{}", before + 1) }
}

/// Connects the nodes of a graph along these wires.
fn connect(
    graph: &mut GraphBuilder,
    wires: &[&Wire],
    nodes: &BTreeMap<Place, Vec<NodeId>>,
) -> Result<(), GraphError> {
    for wire in wires {
        let Some(to) = nodes.get(&wire.to).and_then(|ids| ids.first()) else { continue };
        for from in nodes.get(&wire.from).into_iter().flatten() {
            graph.connect(*from, wire.edge, *to, wire.input)?;
        }
    }
    Ok(())
}

impl Network {
    /// The network without the text of its file.
    pub(crate) fn design(&self, name: impl Into<String>, plan: &crate::config::Plan<'_>) -> Design {
        Design {
            name: name.into(),
            ports: plan.ports.iter().map(|port| port.name.clone()).collect(),
            labels: (0..plan.ports.len()).map(|number| number as u16).collect(),
            functions: plan.functions.iter().map(|function| function.blueprint.clone()).collect(),
            uses: self.uses.iter().map(|use_| (use_.name.clone(), use_.function)).collect(),
            wires: self.wires.clone(),
            stateful: self.stateful.clone(),
            inputs: self.inputs.clone(),
            crosses: self.crosses.clone(),
            owners: plan.functions.iter().map(|function| function.owner).collect(),
            policies: plan.tenants.iter().map(|tenant| tenant.policy.clone()).collect(),
        }
    }
}

impl Design {
    /// A graph over these ports: it has only the nodes that packets of this worker can reach.
    pub(crate) fn builder(&self, ports: WorkerPorts, worker: &Worker) -> Result<GraphBuilder, GraphError> {
        self.builder_over(
            LocalPorts {
                receive: ports
                    .receive
                    .into_iter()
                    .map(|(port, node)| (port, node as Box<dyn Node>))
                    .collect(),
                transmit: ports
                    .transmit
                    .into_iter()
                    .map(|(port, node)| (port, node as Box<dyn Node>))
                    .collect(),
            },
            worker,
        )
    }

    /// As [`builder`](Self::builder), over nodes made on this thread.
    pub(crate) fn builder_over(
        &self,
        ports: LocalPorts,
        worker: &Worker,
    ) -> Result<GraphBuilder, GraphError> {
        let LocalPorts { receive, mut transmit } = ports;
        let mut graph = GraphBuilder::new(self.name.clone());
        let mut nodes: BTreeMap<Place, Vec<NodeId>> = BTreeMap::new();
        for (port, node) in receive {
            let known = nodes.entry(Place::Receive(port)).or_default();
            known.push(graph.add(numbered(&self.ports[port], known.len()), node)?);
        }
        let live: Vec<&Wire> = self.live(&nodes, |port| transmit.contains_key(&port));
        let reached = |place: Place| {
            live.iter().any(|wire| wire.to == place || wire.from == place && matches!(place, Place::Use(_)))
        };

        let mut shared: BTreeMap<usize, Shared> = BTreeMap::new();
        for number in 0..self.uses.len() {
            if !reached(Place::Use(number)) {
                continue;
            }
            let id = self.add_use(&mut graph, number, &mut shared, worker)?;
            graph.own(id, self.owner_of(number));
            nodes.insert(Place::Use(number), vec![id]);
        }
        for (port, name) in self.ports.iter().enumerate() {
            // Also where no packet of this worker reaches it yet: a change may lead one there.
            if let Some(node) = transmit.remove(&port) {
                nodes.insert(Place::Transmit(port), vec![graph.add(transmit_name(name), node)?]);
            }
        }
        connect(&mut graph, &live, &nodes)?;
        graph.share_among(self.policies.clone());
        Ok(graph)
    }

    /// The owner of a use's function.
    fn owner_of(&self, number: usize) -> u16 {
        self.owners.get(self.uses[number].1).copied().unwrap_or_default()
    }

    /// The graph that takes over from `running`, with these new nodes of ports.
    ///
    /// Nodes that `kept` names go on as they are, where `running` has them.
    pub(crate) fn change(
        &self,
        ports: WorkerPorts,
        kept: &Kept,
        running: &Graph,
        worker: &Worker,
    ) -> Result<GraphBuilder, GraphError> {
        let WorkerPorts { receive, mut transmit, .. } = ports;
        let mut graph = GraphBuilder::new(self.name.clone());
        let mut nodes: BTreeMap<Place, Vec<NodeId>> = BTreeMap::new();
        for (port, name) in self.ports.iter().enumerate() {
            let known = nodes.entry(Place::Receive(port)).or_default();
            for name in kept.receive_nodes(name, running) {
                known.push(graph.keep(&name, running)?);
            }
        }
        for (port, node) in receive {
            let known = nodes.entry(Place::Receive(port)).or_default();
            known.push(graph.add(numbered(&self.ports[port], known.len()), node)?);
        }
        nodes.retain(|_, known| !known.is_empty());
        let transmits =
            |port: usize| transmit.contains_key(&port) || kept.transmits(&self.ports[port], running);
        let live: Vec<&Wire> = self.live(&nodes, transmits);
        let reached = |place: Place| live.iter().any(|wire| wire.to == place || wire.from == place);
        let mut shared: BTreeMap<usize, Shared> = BTreeMap::new();
        for (number, (name, function)) in self.uses.iter().enumerate() {
            if !reached(Place::Use(number)) {
                continue;
            }
            let id = if kept.nodes.contains(name) && running.has(name) && !running.is_quarantined(name) {
                graph.keep(name, running)?
            } else {
                let id = self.add_use(&mut graph, number, &mut shared, worker)?;
                let first = self.uses.iter().position(|(_, other)| other == function) == Some(number);
                if let Some(before) = kept.successions.get(name).filter(|_| first) {
                    graph.succeed(id, before.clone());
                }
                if kept.undone.contains(name) {
                    graph.undo_writes(id);
                }
                id
            };
            // The number of a tenant changes where others come or go.
            graph.own(id, self.owner_of(number));
            nodes.insert(Place::Use(number), vec![id]);
        }
        for (port, name) in self.ports.iter().enumerate() {
            let node = transmit_name(name);
            if kept.transmits(name, running) {
                nodes.insert(Place::Transmit(port), vec![graph.keep(&node, running)?]);
            } else if let Some(queue) = transmit.remove(&port) {
                nodes.insert(Place::Transmit(port), vec![graph.add(node, queue)?]);
            }
        }
        connect(&mut graph, &live, &nodes)?;
        graph.share_among(self.policies.clone());
        Ok(graph)
    }

    /// Adds the node of a use.
    fn add_use(
        &self,
        graph: &mut GraphBuilder,
        number: usize,
        shared: &mut BTreeMap<usize, Shared>,
        worker: &Worker,
    ) -> Result<NodeId, GraphError> {
        let (name, function) = &self.uses[number];
        let blueprint = &self.functions[*function];
        if self.is_shared(*function) {
            let worker = &worker.clone().among(self.ports_of(*function));
            // By its number among all uses: a worker may have only some of them.
            let place = self.uses_of(*function).take_while(|other| *other < number).count();
            let place = shared.entry(*function).or_default().place(blueprint, place);
            graph.add_function(name.clone(), &place, worker)
        } else {
            let uses =
                if self.inputs[*function] > 1 { self.uses_of(*function).collect() } else { vec![number] };
            let worker = &worker.clone().among(self.ports_from([uses]));
            graph.add_function(name.clone(), blueprint, worker)
        }
    }

    fn uses_of(&self, function: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.uses.len()).filter(move |number| self.uses[*number].1 == function)
    }

    /// Whether all uses of a function on a worker are places of one node.
    fn is_shared(&self, function: usize) -> bool {
        self.stateful[function] && self.inputs[function] == 1 && self.uses_of(function).count() > 1
    }

    /// The ports, and those to which packets go from each place of a function.
    pub(crate) fn ports_of(&self, function: usize) -> PortNames {
        let uses = self.uses_of(function);
        match self.is_shared(function) {
            true => self.ports_from(uses.map(|number| vec![number])),
            false => self.ports_from([uses.collect()]),
        }
    }

    /// The ports, and those to which packets go from each of these places, as the uses that are one.
    fn ports_from(&self, places: impl IntoIterator<Item = Vec<usize>>) -> PortNames {
        let names = self.ports.iter().cloned().zip(self.labels.iter().copied()).collect();
        let egress = places.into_iter().map(|uses| {
            self.departures(uses).into_iter().filter_map(|port| self.labels.get(port).copied()).collect()
        });
        PortNames { names, egress: egress.collect() }
    }

    /// The ports to which packets of these uses may go, by their numbers in the plan.
    fn departures(&self, uses: Vec<usize>) -> BTreeSet<usize> {
        let mut places: Vec<Place> = uses.into_iter().map(Place::Use).collect();
        let mut next = 0;
        let mut reached = BTreeSet::new();
        while let Some(place) = places.get(next).copied() {
            next += 1;
            for wire in self.wires.iter().filter(|wire| wire.from == place) {
                match wire.to {
                    // Answers go back to where their cause came from.
                    Place::Transmit(port) if wire.edge != Edge::REPLY => {
                        reached.insert(port);
                    }
                    to if !places.contains(&to) => places.push(to),
                    _ => {}
                }
            }
        }
        reached
    }

    /// The names of the ports, and of those to which packets go from each place of a function.
    ///
    /// The numbers of ports may differ between two designs though the ports are the same.
    pub(crate) fn named_ports_of(&self, function: usize) -> (BTreeSet<&str>, Vec<Vec<&str>>) {
        let name = |port: usize| self.ports.get(port).map(String::as_str);
        let departures = |uses| self.departures(uses).into_iter().filter_map(name).collect();
        let uses = self.uses_of(function);
        let places = match self.is_shared(function) {
            true => uses.map(|number| departures(vec![number])).collect(),
            false => vec![departures(uses.collect())],
        };
        (self.ports.iter().map(String::as_str).collect(), places)
    }

    /// The wires that packets from these receive nodes and from other workers can take.
    fn live(
        &self,
        receive: &BTreeMap<Place, Vec<NodeId>>,
        can_transmit: impl Fn(usize) -> bool,
    ) -> Vec<&Wire> {
        let crossings = self.uses.iter().enumerate().filter(|(_, (_, function))| self.crosses[*function]);
        let mut reached: Vec<Place> =
            receive.keys().copied().chain(crossings.map(|(number, _)| Place::Use(number))).collect();
        let mut next = 0;
        let mut live = Vec::new();
        while let Some(place) = reached.get(next).copied() {
            next += 1;
            for wire in self.wires.iter().filter(|wire| wire.from == place) {
                if let Place::Transmit(port) = wire.to
                    && wire.if_possible
                    && !can_transmit(port)
                {
                    continue;
                }
                live.push(wire);
                if !reached.contains(&wire.to) {
                    reached.push(wire.to);
                }
            }
        }
        live
    }

    /// The graph for checking and drawing: no port is open, and a [`Stand`] is in the place of each queue.
    pub(crate) fn stand_in(&self, drivers: &[String], worker: &Worker) -> Result<GraphBuilder, GraphError> {
        // The shared state of these nodes is not that of the run.
        let functions = self.functions.iter().map(Blueprint::apart).collect();
        let design = Self { functions, ..self.clone() };
        let mut ports = WorkerPorts::default();
        for (number, driver) in drivers.iter().enumerate() {
            let stand = |role| Box::new(Stand { driver: driver.clone(), role });
            if self.wires.iter().any(|wire| wire.from == Place::Receive(number)) {
                ports.receive.push((number, stand(Role::Receive)));
            }
            if self.wires.iter().any(|wire| wire.to == Place::Transmit(number)) {
                ports.transmit.insert(number, stand(Role::Transmit));
            }
        }
        design.builder(ports, worker)
    }
}
