//! The worker that a node is built for: its number, seed and pool, and where its functions declare their state.

use std::cell::{Cell, RefCell};
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
    /// The ports to which the packets of each [place](crate::Context::place) of the node may go, by their numbers.
    pub egress: Arc<[Vec<u16>]>,
}

impl PortNames {
    /// The number of the port with this name.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }
    /// The name of the port with this number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.names.iter().find(|(_, known)| *known == number).map(|(name, _)| name.as_str())
    }
    /// The one port to which packets of each place go; `None` where they may go to several, or to none.
    pub fn only_egress(&self) -> impl Iterator<Item = Option<u16>> {
        self.egress.iter().map(|ports| match ports[..] {
            [port] => Some(port),
            _ => None,
        })
    }
    /// The ports of the first place whose packets may go to several, by their names.
    ///
    /// A function whose rules name the port of departure refuses such rules there.
    pub fn several_egress(&self) -> Option<Vec<&str>> {
        let several = self.egress.iter().find(|ports| ports.len() > 1)?;
        Some(several.iter().filter_map(|port| self.name(*port)).collect())
    }
}

/// A worker as a function sees it: its number, its group, and the function's declared state.
#[derive(Clone)]
pub struct Worker {
    index: usize,
    seed: u64,
    node: Rc<str>,
    tenant: Arc<str>,
    pool: Pool,
    group: WorkerGroup,
    control: bool,
    trial: bool,
    ports: PortNames,
    /// Whether a function has asked for the ports.
    asks_ports: Rc<Cell<bool>>,
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
            tenant: Arc::default(),
            pool,
            group: WorkerGroup::new(1),
            control: false,
            trial: false,
            ports: PortNames::default(),
            asks_ports: Rc::default(),
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
    /// The same worker, for nodes that are only asked what they are and never run.
    ///
    /// Its group does not tell how many workers there will be.
    #[must_use]
    pub fn on_trial(self) -> Self {
        Self { trial: true, ..self }
    }
    /// Whether its nodes [never run](Self::on_trial).
    pub fn is_on_trial(&self) -> bool {
        self.trial
    }
    /// The same worker, with the shared state of all workers that were given `shares`.
    ///
    /// A blueprint calls this for the workers for which it makes nodes.
    #[must_use]
    pub fn sharing(&self, shares: &Shares) -> Self {
        Self { shares: shares.clone(), ..self.clone() }
    }
    /// The same worker, for a node of this tenant. A blueprint calls this.
    pub(crate) fn of_tenant(self, tenant: Arc<str>) -> Self {
        Self { tenant, ..self }
    }
    /// The tenant whose node it makes; empty for the operator's.
    ///
    /// What tenants share with each other by a key, such as owners of flows, has the tenant in that key.
    pub fn tenant(&self) -> &str {
        &self.tenant
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
    ///
    /// A function that asks is made again where they change.
    pub fn ports(&self) -> &PortNames {
        self.asks_ports.set(true);
        &self.ports
    }
    /// Whether a function that was made for this worker has asked for the [ports](Self::ports).
    pub fn asks_ports(&self) -> bool {
        self.asks_ports.get()
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
