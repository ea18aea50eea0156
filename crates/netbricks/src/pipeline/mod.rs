//! The operator's interface in Rust (NetBricks, section 4.2): a context, its queues, and pipelines from queue
//! to queue.
//!
//! A pipeline becomes the same graph as the chains of a file.

mod context;
mod halves;
mod stop;

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::packet::stack::Root;
use netbricks_core::{
    Blueprint, BuildError, Edge, Function, GroupConfig, Groups, Input, Node, Operator, Shuffle,
    ShuffleConfig, ShuffleKey, View, Worker, compose,
};

pub use context::{ContextError, NetBricksContext};
pub use stop::StopHandle;

use crate::chain::{Place, Wire};

/// The nodes and edges of one context's pipelines, before any worker builds its own copy.
#[derive(Default)]
struct Draft {
    blueprints: Vec<Blueprint>,
    /// Node names; each has the index of its blueprint.
    names: Vec<String>,
    wires: Vec<Wire>,
}

impl Draft {
    fn add(&mut self, name: &str, blueprint: Blueprint) -> Place {
        let taken = |wanted: &str| self.names.iter().any(|name| name == wanted);
        let mut unique = name.to_owned();
        let mut number = 2;
        while taken(&unique) {
            unique = format!("{name}#{number}");
            number += 1;
        }
        self.names.push(unique);
        self.blueprints.push(blueprint);
        Place::Use(self.names.len() - 1)
    }
    fn connect(&mut self, from: Place, edge: Edge, to: Place) {
        self.wires.push(Wire { from, edge, to, input: 0, if_possible: false });
    }
}

/// A receive queue of an open port, and the port's way out.
#[derive(Clone)]
pub struct Queue {
    port: usize,
    name: String,
    number: usize,
    worker: usize,
    /// The place where its packets come in.
    place: Place,
    draft: Rc<RefCell<Draft>>,
}

impl Queue {
    /// The name of its port.
    pub fn port(&self) -> &str {
        &self.name
    }
    /// Its number among the port's queues, from 0.
    pub fn number(&self) -> usize {
        self.number
    }
    /// The worker that it is bound to, from 0: pipelines that begin here run there.
    pub fn worker(&self) -> usize {
        self.worker
    }
    /// The beginning of a pipeline: the packets that this queue receives.
    pub fn receive(&self) -> Pipeline {
        Pipeline { draft: self.draft.clone(), from: self.place, edge: Edge::OUT }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({}.{} on worker {})", self.name, self.number, self.worker)
    }
}

/// Packets on their way through the graph: the point where the next function is added.
///
/// A pipeline without an end is an error of [`NetBricksContext::run`].
///
/// Only shuffles that the program adds are in the graph. The queues of a port may bring the two directions of
/// a flow to different workers, or to different functions if each queue has its own pipeline. If these
/// functions keep state by flow, each sees only half of the flow. Then
/// [`Summary::warnings`](crate::Summary::warnings) names the functions and the remedy: [`merge`](Self::merge)
/// the queues' packets, and put a [`shuffle`](Self::shuffle) before the function:
///
/// ```
/// # use netbricks::prelude::*;
/// # use netbricks::{NetBricksContext, Pipeline};
/// # fn nat(worker: &Worker) -> Result<Box<dyn Node>, BuildError> { compose(worker, |input| input.parse::<Link>().done()) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = NetBricksContext::from_text(
/// #     "[port.lan]\ndriver = \"generator\"\npackets = 1000\n[port.wan]\ndriver = \"null\"\n[runtime]\nworkers = 2\n",
/// # )?;
/// let (lan, wan) = (context.queues_of("lan"), context.queues_of("wan"));
/// let received = Pipeline::merge(lan.iter().map(|queue| queue.receive()))?;
/// let end = received.shuffle(ShuffleConfig::default()).node("nat", nat).send(&wan[0]);
/// # assert!(context.run([end])?.warnings.is_empty());
/// # Ok(())
/// # }
/// ```
#[must_use = "packets must go somewhere: end with `send`"]
pub struct Pipeline {
    draft: Rc<RefCell<Draft>>,
    from: Place,
    edge: Edge,
}

/// A pipeline that ends in a queue.
#[derive(Debug)]
pub struct Sent(());

impl Pipeline {
    /// Goes on through a node that every worker makes for itself.
    ///
    /// The node is one that [`compose`](fn@compose) makes of a function, or one written by hand. If the name
    /// is taken, a number is added. Before the run, the node is made once more, to see which state it
    /// declares.
    pub fn node(
        self,
        name: &str,
        make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.through(name, Blueprint::new(make))
    }

    /// Goes on through a function that needs nothing from its worker.
    pub fn function<F: Function>(
        self,
        name: &str,
        function: impl Fn(Input) -> F + Send + Sync + 'static,
    ) -> Self {
        self.node(name, move |worker| compose(worker, &function))
    }

    /// Goes on at the worker that owns each packet's flow; a predefined key decides.
    pub fn shuffle(self, config: ShuffleConfig) -> Self {
        let shuffle = Shuffle::new(config);
        self.through("shuffle", Blueprint::new(move |worker| shuffle.node(worker)))
    }

    /// As [`shuffle`](Self::shuffle), by the key that `key` returns for the headers that `function` parses.
    pub fn shuffle_by<F, K, Q>(
        self,
        config: ShuffleConfig,
        function: impl Fn(Input) -> F + Send + Sync + 'static,
        key: K,
    ) -> Self
    where
        F: Operator<In = Root>,
        Q: netbricks_core::TableKey,
        K: FnMut(&View<'_, F::Out>) -> Q + Clone + Send + Sync + 'static,
    {
        let shuffle = Shuffle::new(config);
        let make = move |worker: &Worker| shuffle.node_by(worker, &function, key.clone());
        self.through("shuffle", Blueprint::new(make))
    }

    /// A pipeline for each group, by a predefined key.
    ///
    /// # Errors
    /// As [`Groups::new`].
    pub fn group_by(self, config: GroupConfig, key: ShuffleKey) -> Result<Vec<Self>, BuildError> {
        let groups = Groups::new(config)?;
        let node = self.through("group-by", Blueprint::new(move |worker| Ok(groups.node(worker, key))));
        Ok(node.branches(config.groups))
    }

    /// A pipeline for each group, chosen by the program's own function.
    ///
    /// `make` gets the groups and the worker. It may declare state of that worker, and it ends in
    /// [`Groups::node_by`].
    ///
    /// # Errors
    /// As [`Groups::new`].
    pub fn group_by_own(
        self,
        config: GroupConfig,
        make: impl Fn(&Groups, &Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static,
    ) -> Result<Vec<Self>, BuildError> {
        let groups = Groups::new(config)?;
        let node = self.through("group-by", Blueprint::new(move |worker| make(&groups, worker)));
        Ok(node.branches(config.groups))
    }

    /// Merges pipelines into one.
    ///
    /// Their functions may have parsed different headers: only packets go from node to node.
    ///
    /// # Errors
    /// When `pipelines` is empty.
    pub fn merge(pipelines: impl IntoIterator<Item = Self>) -> Result<Self, BuildError> {
        let mut pipelines = pipelines.into_iter();
        let first = pipelines.next().ok_or_else(|| {
            BuildError::new("no pipeline to merge: expected one or more, found an empty list of them")
        })?;
        let merged = first.through("merge", Blueprint::new(|_| Ok(netbricks_core::merge(1))));
        for other in pipelines {
            merged.draft.borrow_mut().connect(other.from, other.edge, merged.from);
        }
        Ok(merged)
    }

    /// Another way out of the node before this point, beside the one that the pipeline goes on by.
    pub fn on_edge(&self, edge: Edge) -> Self {
        Self { draft: self.draft.clone(), from: self.from, edge }
    }

    /// Ends: packets leave by the port of this queue.
    pub fn send(self, queue: &Queue) -> Sent {
        self.draft.borrow_mut().connect(self.from, self.edge, Place::Transmit(queue.port));
        Sent(())
    }

    fn through(self, name: &str, blueprint: Blueprint) -> Self {
        let mut draft = self.draft.borrow_mut();
        let here = draft.add(name, blueprint);
        draft.connect(self.from, self.edge, here);
        drop(draft);
        Self { from: here, edge: Edge::OUT, ..self }
    }

    fn branches(&self, groups: usize) -> Vec<Self> {
        (0..groups).map(|group| self.on_edge(Groups::edge(group))).collect()
    }
}
