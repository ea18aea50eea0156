//! What a node says of itself, once, when its graph is built.

use std::borrow::Cow;

use crate::reason::Edge;

/// What a node does in the graph, which is how its packets are accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Brings packets in from outside: what its `poll` yields is counted as received.
    Receive,
    /// Works on packets.
    #[default]
    Function,
    /// Gives packets to the outside: what it reports through
    /// [`Context::transmitting`](crate::Context::transmitting) is counted as sent.
    Transmit,
}

/// A way out that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its number.
    pub edge: Edge,
    /// Its name in configuration and drawings: `"out"`, `"reply"`.
    pub name: String,
    /// Whether the graph may leave it unconnected; packets on it are then dropped as
    /// [`Unconnected`](crate::DropReason::Unconnected).
    pub optional: bool,
}

impl Output {
    /// [`Edge::OUT`], named `"out"`, which must be connected.
    pub fn out() -> Self {
        Self { edge: Edge::OUT, name: "out".into(), optional: false }
    }
}

/// The description of a node, by which the graph connects and runs it.
///
/// The default is a function with one input and one way out, without turns of its own. Name what differs:
///
/// ```
/// use netbricks_core::{Output, Role, Shape};
///
/// let merge = Shape { inputs: 3, kind: "merge".into(), ..Shape::default() };
/// assert_eq!(merge.outputs, [Output::out()]);
///
/// // A port's two ends.
/// let receive = Shape::receive();
/// assert_eq!((receive.role, receive.inputs, receive.schedulable), (Role::Receive, 0, true));
/// let transmit = Shape { keeps_packets: true, ..Shape::transmit() };
/// assert_eq!((transmit.role, transmit.outputs.len()), (Role::Transmit, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How its packets are accounted for.
    pub role: Role,
    /// The kind of node, for drawings and reports: `"function"`, `"af_xdp receive"`.
    pub kind: Cow<'static, str>,
    /// How many inputs it has.
    pub inputs: usize,
    /// Its ways out.
    pub outputs: Vec<Output>,
    /// Whether it wants turns of its own ([`Node::poll`](crate::Node::poll)).
    ///
    /// A node whose state has a [schedule](crate::NodeState::schedule) gets turns for its events without.
    pub schedulable: bool,
    /// Whether it may keep packets between calls: it then has a [queue](crate::Node::as_queue) that counts them.
    pub keeps_packets: bool,
    /// How many packets it queues until it gets its turn, where it is such a queue.
    ///
    /// No burst of a source that leads to it is longer, so that what that brings in a turn finds room.
    pub queue: Option<usize>,
    /// Whether its state is told when the graph is taken down ([`NodeState::end`](crate::NodeState::end)): it was
    /// waiting for more packets. No node has both this and [`keeps_packets`](Self::keeps_packets).
    pub has_end: bool,
    /// A number that nodes of one graph have in common whose state is one, such as the places of one function.
    ///
    /// The graph then asks only the first of them what the state is: exports, reports, events, its end.
    pub shares_state: Option<usize>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            role: Role::Function,
            kind: "function".into(),
            inputs: 1,
            outputs: vec![Output::out()],
            schedulable: false,
            keeps_packets: false,
            queue: None,
            has_end: false,
            shares_state: None,
        }
    }
}

impl Shape {
    /// Of what brings packets in: no input, one way out, and turns of its own.
    pub fn receive() -> Self {
        Self { role: Role::Receive, inputs: 0, schedulable: true, ..Self::default() }
    }
    /// Of what gives packets to the outside: one input and no way out.
    pub fn transmit() -> Self {
        Self { role: Role::Transmit, outputs: Vec::new(), ..Self::default() }
    }
}
