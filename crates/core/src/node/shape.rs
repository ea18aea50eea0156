//! The properties of a node, asked for once, when its graph is built.

use std::borrow::Cow;

use crate::reason::Edge;

/// The kind of work of a node, which decides how the graph counts its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It brings packets in from outside. The graph counts packets that its `poll` yields as received.
    Receive,
    /// It works on packets.
    #[default]
    Function,
    /// It gives packets to the outside. The graph counts packets that it reports through
    /// [`Context::transmitting`](crate::Context::transmitting) as sent.
    Transmit,
}

/// An edge by which packets may leave a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The edge's number.
    pub edge: Edge,
    /// The edge's name in configuration and drawings: `"out"`, `"reply"`.
    pub name: String,
    /// Whether the graph may leave the edge unconnected.
    ///
    /// Packets on it are then dropped as [`Unconnected`](crate::DropReason::Unconnected).
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
    /// How the graph counts the node's packets.
    pub role: Role,
    /// The kind of node, for drawings and reports: `"function"`, `"af_xdp receive"`.
    pub kind: Cow<'static, str>,
    /// The number of inputs.
    pub inputs: usize,
    /// The port of each input, and of the way out of the same number, where inputs are ports.
    ///
    /// A chain from such a port takes its input. Without names, chains take the inputs in their order.
    pub ports: Vec<String>,
    /// The edges by which packets may leave.
    pub outputs: Vec<Output>,
    /// Whether the node wants turns ([`Node::poll`](crate::Node::poll)).
    ///
    /// A node whose state has a [schedule](crate::NodeState::schedule) gets turns for its events in any case.
    pub schedulable: bool,
    /// Whether the node may keep packets between calls. It then has a [queue](crate::Node::as_queue) that
    /// counts them.
    pub keeps_packets: bool,
    /// The most packets that the node holds between calls, copies of others included; `None` where it knows no bound.
    ///
    /// A node that [keeps](Self::keeps_packets) no packets and copies none needs no bound. The node itself keeps to the
    /// bound, also where a handler asks for more. A tenant's function needs one.
    pub holds: Option<usize>,
    /// The capacity in packets of a node that queues packets until its turn; `None` for other nodes.
    ///
    /// A source that leads to the queue never gets a longer burst, so the packets of one turn have room.
    pub queue: Option<usize>,
    /// Whether the node takes packets one by one, by [`NodeQueue::offer`](crate::NodeQueue::offer).
    ///
    /// So packets of one batch that go to many such nodes need no batch each.
    pub takes_packets: bool,
    /// Whether the graph calls [`NodeState::end`](crate::NodeState::end) when it is taken down.
    ///
    /// A node sets this where its state waits for more packets and must learn that there are none. No node
    /// has both this and [`keeps_packets`](Self::keeps_packets).
    pub has_end: bool,
    /// A number that is equal for nodes of one graph that use the same state.
    ///
    /// Such nodes are, for example, the places of a function that stands in several chains. For exports,
    /// reports, events and the end of the state, the graph turns only to the first of them.
    pub shares_state: Option<usize>,
    /// Bytes of memory that the node may take beside its tables, such as a module's linear memory.
    pub memory: u64,
    /// Frames of pools of the node's own.
    pub frames: usize,
    /// Whether it may keep state of connections that it does not declare.
    ///
    /// Both directions of a flow then have to come to one worker.
    pub by_flow: bool,
    /// Whether each worker of a run needs a copy of the node, also where no packets come to it.
    ///
    /// Its copies then [exchange packets](crate::Context::exchanging).
    pub spans_workers: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            role: Role::Function,
            kind: "function".into(),
            inputs: 1,
            ports: Vec::new(),
            outputs: vec![Output::out()],
            schedulable: false,
            keeps_packets: false,
            holds: None,
            queue: None,
            takes_packets: false,
            has_end: false,
            shares_state: None,
            memory: 0,
            frames: 0,
            by_flow: false,
            spans_workers: false,
        }
    }
}

impl Shape {
    /// The shape of a node that brings packets in: no input, one way out, and its own turns.
    pub fn receive() -> Self {
        Self { role: Role::Receive, inputs: 0, schedulable: true, ..Self::default() }
    }
    /// The shape of a node that gives packets to the outside: one input and no way out.
    pub fn transmit() -> Self {
        Self { role: Role::Transmit, outputs: Vec::new(), ..Self::default() }
    }
}
