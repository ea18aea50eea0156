//! The operator's interface in Rust (NetBricks, section 4.2): a context from configuration, its queues, and pipelines that
//! lead from queues to queues. What a pipeline says becomes the same graph that a chain file's chains become.

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

/// What pipelines of one context come to: nodes and edges, before any worker makes its own.
#[derive(Default)]
struct Draft {
    blueprints: Vec<Blueprint>,
    /// Node names, each of the blueprint of its number.
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
        self.wires.push(Wire { from, edge, to, if_possible: false });
    }
}

/// A receive queue of an open port, and the port's way out.
#[derive(Clone)]
pub struct Queue {
    port: usize,
    name: String,
    number: usize,
    worker: usize,
    /// As a place where packets come in.
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
    /// The beginning of a pipeline: what this queue receives.
    pub fn receive(&self) -> Pipeline {
        Pipeline { draft: self.draft.clone(), from: self.place, edge: Edge::OUT }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({}.{} on worker {})", self.name, self.number, self.worker)
    }
}

/// Packets on their way through the graph: where the next function is put. A pipeline that ends nowhere is an error of
/// [`NetBricksContext::run`].
///
/// No shuffle is put in that is not written here. Where the queues of a port may bring the two directions of a flow to different
/// workers, or by pipelines of their own to different functions, and these keep state by flow, each knows half of it: then
/// [`Summary::warnings`](crate::Summary::warnings) says so, and how to mend it. That is to [`merge`](Self::merge) what the queues
/// receive, and to let a [`shuffle`](Self::shuffle) come before the function:
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
    /// Goes on through a node that every worker makes for itself: what [`compose`](fn@compose) makes of a function, or one
    /// written by hand. Where the name is taken a number is added. Before the run it is made once more, to see what state it
    /// declares.
    pub fn node(
        self,
        name: &str,
        make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.through(name, Blueprint::new(make))
    }

    /// Goes on through a function that asks its worker for nothing.
    pub fn function<F: Function>(
        self,
        name: &str,
        function: impl Fn(Input) -> F + Send + Sync + 'static,
    ) -> Self {
        self.node(name, move |worker| compose(worker, &function))
    }

    /// Goes on at the worker that owns each packet's flow, by a predefined key.
    pub fn shuffle(self, config: ShuffleConfig) -> Self {
        let shuffle = Shuffle::new(config);
        self.through("shuffle", Blueprint::new(move |worker| shuffle.node(worker)))
    }

    /// As [`shuffle`](Self::shuffle), by what `key` says of the headers that `function` parses.
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

    /// A pipeline for each group, by what a function of one's own says: `make` gets what groups, and the worker, whose
    /// state it may declare and whose [`Groups::node_by`] it ends in.
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

    /// Pipelines go on as one, whatever headers their functions knew: between nodes there are only packets.
    ///
    /// # Errors
    /// When there is none.
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

    /// Another way out of the node before this, beside the one that the pipeline goes on by.
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
