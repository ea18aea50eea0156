//! A broadband remote access server: PPPoE and PPP towards subscribers, IP towards the core.

mod access;
mod automaton;
mod concentrator;
mod config;
mod control;
mod core_side;
mod counts;
mod data;
mod discovery;
mod fixed;
mod handlers;
mod happening;
mod limits;
mod options;
mod pool;
mod ppp;
mod proof;
pub mod radius;
mod random;
mod requests;
mod session;
mod sessions;
mod tags;
#[cfg(test)]
mod tests;
mod transfer;
mod users;

pub use config::{Authentication, BrasConfig, Gateway, SharedSecret};
pub use pool::{AddressRange, Prefix};

use netbricks_core::buffer::Batch;
use netbricks_core::state::Declarations;
use netbricks_core::{BuildError, Context, Edge, Node, NodeState, Output, Poll, Shape, Worker};

use concentrator::Concentrator;

/// The input of the access port; its frames leave by [`Edge::OUT`].
const ACCESS_INPUT: usize = 0;
/// The way out to the core port. Answers of other functions have the edge before it.
const CORE: Edge = Edge(Edge::REPLY.0 + 1);
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// The time of a call (ns), in whole milliseconds: all packets of a batch arrive in the same one.
fn time(cx: &Context) -> u64 {
    cx.now() - cx.now() % MS
}

/// The concentrator as a node: an input and a way out for each of its two ports.
struct BrasNode {
    declarations: Declarations,
    concentrator: Concentrator,
    ports: [String; 2],
}

/// Makes the node of a concentrator.
///
/// # Errors
/// A file cannot be used, or there is no memory for a table.
pub fn node(config: &BrasConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let (concentrator, declarations) = worker.declaring(|| Concentrator::new(config, worker))?;
    let ports = [config.access.clone(), config.core.clone()];
    Ok(Box::new(BrasNode { declarations, concentrator: concentrator?, ports }))
}

impl Node for BrasNode {
    #[inline(never)]
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.concentrator.process(input, batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let _settling = self.declarations.settling();
        self.concentrator.poll(batch, cx)
    }
    fn shape(&self) -> Shape {
        let [_, core] = &self.ports;
        Shape {
            kind: "bras".into(),
            inputs: 2,
            ports: self.ports.to_vec(),
            outputs: vec![
                Output { optional: true, ..Output::out() },
                Output { edge: CORE, name: core.clone(), optional: true },
            ],
            schedulable: true,
            ..Shape::default()
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}
