//! Builds one worker's copy of the network as a graph.

use std::collections::BTreeMap;

use netbricks_buffer::Batch;
use netbricks_core::{
    Blueprint, Context, DropReason, GraphBuilder, GraphError, Node, NodeId, Poll, Role, Shape, Worker,
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
    pub(crate) functions: Vec<Blueprint>,
    /// Uses: the node's name, and the function's number.
    pub(crate) uses: Vec<(String, usize)>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) stateful: Vec<bool>,
    pub(crate) crosses: Vec<bool>,
}

impl std::fmt::Debug for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Design").field("name", &self.name).field("uses", &self.uses).finish_non_exhaustive()
    }
}

impl Network {
    /// The network without the text of its file.
    pub(crate) fn design(&self, name: impl Into<String>, plan: &crate::config::Plan<'_>) -> Design {
        Design {
            name: name.into(),
            ports: plan.ports.iter().map(|port| port.name.clone()).collect(),
            functions: plan.functions.iter().map(|function| function.blueprint.clone()).collect(),
            uses: self.uses.iter().map(|use_| (use_.name.clone(), use_.function)).collect(),
            wires: self.wires.clone(),
            stateful: self.stateful.clone(),
            crosses: self.crosses.clone(),
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
            let mut name = receive_name(&self.ports[port]);
            if !known.is_empty() {
                name = format!("{name}.{}", known.len() + 1);
            }
            known.push(graph.add(name, node)?);
        }
        let live: Vec<&Wire> = self.live(&nodes, |port| transmit.contains_key(&port));
        let reached = |place: Place| {
            live.iter().any(|wire| wire.to == place || wire.from == place && matches!(place, Place::Use(_)))
        };

        let mut shared: BTreeMap<usize, Shared> = BTreeMap::new();
        for (number, (name, function)) in self.uses.iter().enumerate() {
            if !reached(Place::Use(number)) {
                continue;
            }
            let blueprint = &self.functions[*function];
            let places = self.uses.iter().filter(|(_, other)| other == function).count();
            let id = if self.stateful[*function] && places > 1 {
                let place = shared.entry(*function).or_default().place(blueprint);
                graph.add_function(name.clone(), &place, worker)?
            } else {
                graph.add_function(name.clone(), blueprint, worker)?
            };
            nodes.insert(Place::Use(number), vec![id]);
        }
        for (port, name) in self.ports.iter().enumerate() {
            if reached(Place::Transmit(port))
                && let Some(node) = transmit.remove(&port)
            {
                nodes.insert(Place::Transmit(port), vec![graph.add(transmit_name(name), node)?]);
            }
        }
        for wire in live {
            let Some(to) = nodes.get(&wire.to).and_then(|ids| ids.first()) else { continue };
            for from in nodes.get(&wire.from).into_iter().flatten() {
                graph.connect(*from, wire.edge, *to, 0)?;
            }
        }
        Ok(graph)
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
        self.builder(ports, worker)
    }
}
