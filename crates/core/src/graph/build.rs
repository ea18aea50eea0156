//! Building a graph: nodes by name, edges, and every check that can be made before a packet moves.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use netbricks_buffer::Pool;

use super::contain::{Caught, contain};
use super::{Graph, Slot, Target};
use crate::node::{Node, Role};
use crate::reason::Edge;
use crate::registry::Blueprint;
use crate::tenants::TenantPolicy;
use crate::worker::{BuildError, Worker};

/// A node's number in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) usize);

impl NodeId {
    /// The number, from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A reason why a graph cannot be built. Each names both ends of the edge concerned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Two nodes have the same name.
    #[error("two nodes are named `{name}`: rename one")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The graph that runs has no such node.
    #[error("the graph that runs has no node `{name}` that could go on")]
    NotRunning {
        /// The name.
        name: String,
    },
    /// The node has no such way out.
    #[error("`{from}` has no way out {edge} (to `{to}`); it has {known}")]
    NoOutput {
        /// The edge's first end.
        from: String,
        /// The way out that was asked for.
        edge: String,
        /// The edge's other end.
        to: String,
        /// The node's ways out.
        known: String,
    },
    /// The node has no such input.
    #[error("`{to}` has no input {input} (from `{from}`): it has {inputs}")]
    NoInput {
        /// The edge's first end.
        from: String,
        /// The edge's other end.
        to: String,
        /// The input that was asked for.
        input: usize,
        /// The number of inputs of the node.
        inputs: usize,
    },
    /// One way out is connected twice.
    #[error("`{from}` {edge} is connected twice: to `{first}` and to `{second}`; insert a node that splits")]
    ConnectedTwice {
        /// The edge's first end.
        from: String,
        /// The way out.
        edge: String,
        /// The connected target.
        first: String,
        /// The second target.
        second: String,
    },
    /// A way out that must be connected is not.
    #[error("`{from}` {edge} is not connected: packets would have nowhere to go")]
    Unconnected {
        /// The node.
        from: String,
        /// The way out.
        edge: String,
    },
    /// No edge leads to a node that only processes packets it is given.
    #[error("nothing leads to `{node}`: connect an edge to it, or take it out")]
    Unreachable {
        /// The node.
        node: String,
    },
    /// More shuffles than a graph can have.
    #[error("{found} shuffles in one graph: at most {most}; let chains share one", most = super::handoff::MOST)]
    TooManyShuffles {
        /// The number of shuffles.
        found: usize,
    },
    /// Packets come back to a shuffle that they have passed.
    #[error(
        "packets come back to a shuffle by {way}: with full rings it would wait for itself; cut one of these edges, or \
         lead it to another shuffle"
    )]
    ShuffledInCycle {
        /// The nodes on the way from the shuffle back to it.
        way: String,
    },
    /// A node could not be made.
    #[error("`{name}`: {error}")]
    Node {
        /// The node.
        name: String,
        /// The error.
        error: BuildError,
    },
}

/// A graph under construction.
pub struct GraphBuilder {
    pub(super) name: String,
    pub(super) slots: Vec<Slot>,
    names: BTreeMap<String, NodeId>,
    pub(super) policies: Vec<TenantPolicy>,
}

impl GraphBuilder {
    /// An empty graph of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), slots: Vec::new(), names: BTreeMap::new(), policies: Vec::new() }
    }

    /// Adds a node that exists once (a port's queue). After a panic in it the same node goes on.
    ///
    /// # Errors
    /// [`GraphError::NameTaken`], or [`GraphError::Node`] when the node's properties do not fit each other.
    pub fn add(&mut self, name: impl Into<String>, node: Box<dyn Node>) -> Result<NodeId, GraphError> {
        self.insert(name.into(), node, None)
    }

    /// Adds a node made from its blueprint, which makes it again after a panic.
    ///
    /// # Errors
    /// [`GraphError::NameTaken`], or [`GraphError::Node`] when the blueprint fails or its node claims to be a
    /// port.
    pub fn add_function(
        &mut self,
        name: impl Into<String>,
        blueprint: &Blueprint,
        worker: &Worker,
    ) -> Result<NodeId, GraphError> {
        let name = name.into();
        let worker = worker.of_node(&name);
        let built =
            contain(|| blueprint.build(&worker)).unwrap_or_else(|caught| Err(panicked("making it", &caught)));
        let node = built.map_err(|error| GraphError::Node { name: name.clone(), error })?;
        self.insert(name, node, Some((blueprint.clone(), worker)))
    }

    fn insert(
        &mut self,
        name: String,
        node: Box<dyn Node>,
        origin: Option<(Blueprint, Worker)>,
    ) -> Result<NodeId, GraphError> {
        if self.names.contains_key(&name) {
            return Err(GraphError::NameTaken { name });
        }
        let mut slot = Slot::new(name.clone(), node, origin);
        let failed = |error| GraphError::Node { name: name.clone(), error };
        let fault = slot.describe().map_err(|caught| failed(panicked("asking what it is", &caught)))?;
        if let Some(fault) = fault {
            return Err(failed(BuildError::new(fault)));
        }
        if slot.origin.is_some() && slot.role != Role::Function {
            return Err(failed(BuildError::new(format_args!(
                "a function has the role `{:?}`, which gives a port's rights: make it `Function`, or add the node by `add`",
                slot.role
            ))));
        }
        self.place_slot(slot)
    }

    /// Adds a node whose properties are known.
    pub(super) fn place_slot(&mut self, mut slot: Slot) -> Result<NodeId, GraphError> {
        let id = NodeId(self.slots.len());
        match self.names.entry(slot.name.clone()) {
            Entry::Occupied(known) => return Err(GraphError::NameTaken { name: known.key().clone() }),
            Entry::Vacant(free) => free.insert(id),
        };
        slot.join(id.0, &self.slots);
        self.slots.push(slot);
        Ok(id)
    }

    /// The tenants among whom the graph shares out turns; the owner of tenant `n` is `n + 1`.
    ///
    /// Each policy must pass its [check](TenantPolicy::check). Without tenants all nodes have turns in order.
    pub fn share_among(&mut self, policies: Vec<TenantPolicy>) {
        self.policies = policies;
    }

    /// Sets the owner to whom a node's packets, drops and cycles are accounted (a tenant; 0 is the operator).
    pub fn own(&mut self, node: NodeId, owner: u16) {
        self.slots[node.0].owner = owner;
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Whether a way out is connected already.
    pub fn is_connected(&self, from: NodeId, edge: Edge) -> bool {
        self.slots[from.0].targets.get(edge.0 as usize).is_some_and(|target| target.is_some())
    }

    /// The ways out of a node.
    pub fn outputs(&self, node: NodeId) -> &[crate::node::Output] {
        &self.slots[node.0].outputs
    }

    /// Connects a way out of `from` to an input of `to`.
    ///
    /// # Errors
    /// [`GraphError::NoOutput`], [`GraphError::NoInput`], [`GraphError::ConnectedTwice`].
    pub fn connect(&mut self, from: NodeId, edge: Edge, to: NodeId, input: usize) -> Result<(), GraphError> {
        let (from_name, to_name) = (self.slots[from.0].name.clone(), self.slots[to.0].name.clone());
        let inputs = self.slots[to.0].inputs;
        if input >= inputs {
            return Err(GraphError::NoInput { from: from_name, to: to_name, input, inputs });
        }
        let Some(place) = self.slots[from.0].outputs.iter().position(|output| output.edge == edge) else {
            let outputs = &self.slots[from.0].outputs;
            let known = if outputs.is_empty() {
                "none".into()
            } else {
                outputs.iter().map(|o| format!("`{}`", o.name)).collect::<Vec<_>>().join(", ")
            };
            return Err(GraphError::NoOutput {
                from: from_name,
                edge: edge.0.to_string(),
                to: to_name,
                known,
            });
        };
        let edge_name = format!("`{}`", self.slots[from.0].outputs[place].name);
        let targets = &mut self.slots[from.0].targets;
        if targets.len() <= edge.0 as usize {
            targets.resize(edge.0 as usize + 1, None);
        }
        if let Some(first) = targets[edge.0 as usize] {
            let first = self.slots[first.node].name.clone();
            return Err(GraphError::ConnectedTwice {
                from: from_name,
                edge: edge_name,
                first,
                second: to_name,
            });
        }
        targets[edge.0 as usize] = Some(Target { node: to.0, input });
        Ok(())
    }

    /// Checks the edges of the graph.
    ///
    /// Every edge that must be connected is connected, some edge leads to every node but those that transmit,
    /// and no packet comes back to a shuffle.
    ///
    /// # Errors
    /// [`GraphError::Unconnected`], [`GraphError::Unreachable`], [`GraphError::TooManyShuffles`],
    /// [`GraphError::ShuffledInCycle`].
    pub fn check(&self) -> Result<(), GraphError> {
        let found = self.slots.iter().filter(|slot| slot.handoff != 0).count();
        if found > super::handoff::MOST {
            return Err(GraphError::TooManyShuffles { found });
        }
        if let Some(way) = super::handoff::way_back(&self.slots) {
            let names: Vec<_> = way.iter().map(|name| format!("`{name}`")).collect();
            return Err(GraphError::ShuffledInCycle { way: names.join(" to ") });
        }
        let mut reached = vec![false; self.slots.len()];
        for slot in &self.slots {
            for output in &slot.outputs {
                match slot.targets.get(output.edge.0 as usize).copied().flatten() {
                    Some(target) => reached[target.node] = true,
                    None if output.optional => {}
                    None => {
                        return Err(GraphError::Unconnected {
                            from: slot.name.clone(),
                            edge: format!("`{}`", output.name),
                        });
                    }
                }
            }
        }
        match self.slots.iter().zip(&reached).find(|(slot, reached)| {
            // A way out waits for the graph that will lead to it.
            let waits = slot.role == Role::Transmit;
            slot.inputs > 0 && !**reached && !slot.schedulable && !waits
        }) {
            Some((slot, _)) => Err(GraphError::Unreachable { node: slot.name.clone() }),
            None => Ok(()),
        }
    }

    /// The finished graph, which takes new packets from `pool`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn build(self, pool: Pool) -> Result<Graph, GraphError> {
        self.check()?;
        Ok(Graph::assemble(self.name, self.slots, self.policies, pool))
    }
}

fn panicked(action: &str, Caught { message, place }: &Caught) -> BuildError {
    let place = place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default();
    BuildError::new(format_args!("{action} panicked: {message}{place}"))
}
