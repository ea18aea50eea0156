//! Routes IPv4 and IPv6 between interfaces: next hops with ARP and neighbour discovery, ICMP errors, several paths by flow.

mod buckets;
mod config;
pub(crate) mod discovery;
pub(crate) mod echo;
pub(crate) mod faces;
pub(crate) mod forward;
pub(crate) mod fragment;
mod handlers;
mod interface;
pub(crate) mod look;
mod neighbours;
mod reassemble;
mod resolve;
mod resolver;
mod route;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub use config::{HostPort, KernelTable, RouterConfig, StaticNeighbour};
pub use interface::{Interface, Network};
pub use route::{Route, Way, WrittenHop};
pub use words::Fault;

use std::rc::Rc;

use netbricks_core::buffer::Batch;
use netbricks_core::consistency::BoundedInconsistency;
use netbricks_core::state::Declarations;
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::{BuildError, Context, Edge, Node, NodeQueue, NodeState, Output, Poll, Shape, Worker};

use faces::Faces;
use forward::Forwarding;
use neighbours::Neighbours;

/// The router as a node: an input and a way out for each of its ports.
struct RouterNode {
    declarations: Declarations,
    forwarding: Forwarding,
    /// The names of the ports.
    ports: Vec<String>,
    /// The most packets that wait.
    holds: usize,
}

/// Makes the node of a router.
///
/// # Errors
/// A next hop is unreachable, or there is no memory for a table.
pub fn node(config: &RouterConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let first = config.first().map_err(BuildError::new)?;
    // Each worker has interfaces of its own: a count of shared references would go from core to core.
    let (faces, ports) = (Rc::new(Faces::clone(&first.faces)), first.faces.ports.clone());
    let (forwarding, declarations) = worker.declaring(|| {
        let consistency = BoundedInconsistency { updates: 0 };
        let routes = worker.state("routes", consistency, first.clone());
        let table = FlowTableConfig {
            full: netbricks_core::tables::Full::EvictOldest,
            ..FlowTableConfig::new(config.capacity)
        };
        let neighbours = Neighbours(worker.state("neighbours", consistency, table));
        let forwarding = Forwarding::new(config, faces, routes, neighbours, worker);
        if let Ok(forwarding) = &forwarding {
            handlers::declare(forwarding, worker);
        }
        forwarding
    })?;
    Ok(Box::new(RouterNode { declarations, forwarding: forwarding?, ports, holds: config.most_held() }))
}

/// The edge of a port by its place: answers of other functions have an edge of their own.
fn edge_of(port: usize) -> Edge {
    match u8::try_from(port) {
        Ok(0) | Err(_) => Edge::OUT,
        Ok(port) => Edge(port.saturating_add(Edge::REPLY.0)),
    }
}

impl Node for RouterNode {
    #[inline(never)]
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.forwarding.process(input, batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let _settling = self.declarations.settling();
        self.forwarding.poll(batch, cx)
    }
    fn shape(&self) -> Shape {
        let output = |(port, name): (usize, &String)| match port {
            0 => Output { optional: true, ..Output::out() },
            _ => Output { edge: edge_of(port), name: name.clone(), optional: true },
        };
        Shape {
            kind: "router".into(),
            inputs: self.ports.len(),
            ports: self.ports.clone(),
            outputs: self.ports.iter().enumerate().map(output).collect(),
            schedulable: true,
            keeps_packets: true,
            holds: Some(self.holds),
            ..Shape::default()
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for RouterNode {
    fn held(&self) -> u64 {
        self.forwarding.held()
    }
    fn drain(&mut self, _: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.forwarding.give_up(cx);
    }
}
