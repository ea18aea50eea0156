//! The worker that a node is built for: its number, seed and pool, and where its functions declare their state.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_buffer::Pool;

use crate::annotation::Slots;
use crate::consistency::Shares;
use crate::random::Random;
use crate::state::Declarations;
use crate::worker_group::WorkerGroup;

/// The ports of a network, as the packets of a node tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortNames {
    /// The name of each port, with the number that its packets have as [ingress](netbricks_buffer::Packet::ingress).
    pub names: Arc<[(String, u16)]>,
    /// The number of the one port to which the packets of the node go, where it is one.
    pub egress: Option<u16>,
}

impl PortNames {
    /// The number of the port with this name.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }
}

/// A worker as a function sees it: its number, its group, and the function's declared state.
#[derive(Clone)]
pub struct Worker {
    index: usize,
    seed: u64,
    node: Rc<str>,
    pool: Pool,
    group: WorkerGroup,
    control: bool,
    ports: PortNames,
    pub(crate) declarations: Rc<RefCell<Declarations>>,
    pub(crate) annotations: Rc<RefCell<Slots>>,
    pub(crate) shares: Shares,
}

impl Worker {
    /// Worker number `index`. Its randomness starts from `seed` and its new packets come from `pool`.
    pub fn new(index: usize, seed: u64, pool: Pool) -> Self {
        Self {
            index,
            seed,
            node: "".into(),
            pool,
            group: WorkerGroup::new(1),
            control: false,
            ports: PortNames::default(),
            declarations: Rc::default(),
            annotations: Rc::default(),
            shares: Shares::default(),
        }
    }
    /// The control side, for which [`Blueprint::control`](crate::Blueprint::control) makes copies of nodes.
    ///
    /// It is no member of the workers' group, and no packet comes to its nodes. So the state that is a
    /// worker's own is as small as possible there. State that workers share is theirs.
    pub fn control(seed: u64, pool: Pool) -> Self {
        Self { control: true, ..Self::new(0, seed, pool) }
    }
    /// Whether it is the [control side](Self::control).
    ///
    /// A function whose own state takes much memory makes little of it there.
    pub fn is_control(&self) -> bool {
        self.control
    }
    /// The same worker, with the shared state of all workers that were given `shares`.
    ///
    /// A blueprint calls this for the workers for which it makes nodes.
    #[must_use]
    pub fn sharing(&self, shares: &Shares) -> Self {
        Self { shares: shares.clone(), ..self.clone() }
    }
    /// The same worker as a member of this group.
    #[must_use]
    pub fn in_group(self, group: WorkerGroup) -> Self {
        Self { group, ..self }
    }
    /// The group of workers that it belongs to.
    pub fn group(&self) -> &WorkerGroup {
        &self.group
    }
    /// The same worker, for a node among these ports.
    #[must_use]
    pub fn among(self, ports: PortNames) -> Self {
        Self { ports, ..self }
    }
    /// The ports of the node's network.
    pub fn ports(&self) -> &PortNames {
        &self.ports
    }
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }
    /// The seed of everything random in its nodes: a run with the same seed repeats exactly.
    ///
    /// It is a secret that keys hashes of flows. Numbers that others see come from [`random`](Self::random).
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// The same worker, for the node of this name.
    ///
    /// A graph calls this for the nodes that it makes.
    #[must_use]
    pub fn of_node(&self, name: &str) -> Self {
        Self { node: name.into(), ..self.clone() }
    }
    /// Random numbers of this node on this worker, for one purpose of its own.
    ///
    /// They do not betray the [seed](Self::seed): for values that leave the process, or that untrusted code sees.
    pub fn random(&self, purpose: &str) -> Random {
        let (seed, index) = (self.seed.to_le_bytes(), (self.index as u64).to_le_bytes());
        Random::of(&[&seed, self.node.as_bytes(), &index, purpose.as_bytes()])
    }
    /// The pool of its new packets.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A node that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BuildError {
    /// The error, with the expected value and a remedy.
    pub problem: String,
}

impl BuildError {
    /// An error with this text.
    pub fn new(problem: impl fmt::Display) -> Self {
        Self { problem: problem.to_string() }
    }
}
