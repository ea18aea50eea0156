//! A disk in memory that knows what `kill -9` and a loss of power would leave.

use std::sync::{Arc, Mutex, MutexGuard};

use super::*;

pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// The steps that a crash can come between.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Create(String),
    Write(String, usize, Vec<u8>),
    Sync(String),
    Cut(String, usize),
    Rename(String, String),
    Remove(String),
    SyncNames,
}

/// Bytes that were written and not made durable: their state after a loss of power.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unsynced {
    Lost,
    Half,
    /// The length is there, the bytes are not.
    Zeros,
    Kept,
}

#[derive(Clone, Debug, Default)]
struct Node {
    now: Vec<u8>,
    durable: Vec<u8>,
}

/// Names and contents, both as programs see them and as they are on the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    nodes: Vec<Node>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Names after each operation since they were durable. A journal of the file system keeps their order.
    since: Vec<BTreeMap<String, usize>>,
}

impl Machine {
    fn of(files: &Files) -> Machine {
        let nodes: Vec<_> =
            files.values().map(|bytes| Node { now: bytes.clone(), durable: bytes.clone() }).collect();
        let names: BTreeMap<_, _> = files.keys().cloned().zip(0..).collect();
        Machine { nodes, durable_names: names.clone(), names, since: Vec::new() }
    }

    fn node(&mut self, name: &str) -> io::Result<&mut Node> {
        let place = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.nodes[*place])
    }

    pub(super) fn apply(&mut self, operation: &Operation) -> io::Result<()> {
        match operation {
            Operation::Create(name) => match self.names.get(name) {
                Some(&place) => self.nodes[place].now.clear(),
                None => {
                    self.names.insert(name.clone(), self.nodes.len());
                    self.nodes.push(Node::default());
                }
            },
            Operation::Write(name, place, bytes) => {
                let now = &mut self.node(name)?.now;
                now.resize(now.len().max(place + bytes.len()), 0);
                now[*place..place + bytes.len()].copy_from_slice(bytes);
            }
            Operation::Sync(name) => {
                let node = self.node(name)?;
                node.durable = node.now.clone();
            }
            Operation::Cut(name, length) => self.node(name)?.now.resize(*length, 0),
            Operation::Rename(from, to) => {
                let place = self.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
                self.names.insert(to.clone(), place);
            }
            Operation::Remove(name) => {
                self.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
            }
            Operation::SyncNames => {
                self.durable_names = self.names.clone();
                self.since.clear();
            }
        }
        if matches!(operation, Operation::Create(_) | Operation::Rename(..) | Operation::Remove(_)) {
            self.since.push(self.names.clone());
        }
        Ok(())
    }

    /// The files that the next process finds.
    pub(super) fn killed(&self) -> Files {
        self.names.iter().map(|(name, &place)| (name.clone(), self.nodes[place].now.clone())).collect()
    }

    /// All that a loss of power can leave.
    ///
    /// Each prefix of the changes of names is combined with each fate of unsynced bytes.
    pub(super) fn powered_off(&self) -> Vec<Files> {
        let names = std::iter::once(&self.durable_names).chain(&self.since);
        let fates = [Unsynced::Lost, Unsynced::Half, Unsynced::Zeros, Unsynced::Kept];
        let left = |names: &BTreeMap<String, usize>, fate| {
            names.iter().map(|(name, &place)| (name.clone(), self.nodes[place].left(fate))).collect()
        };
        names.flat_map(|names| fates.map(|fate| left(names, fate))).collect()
    }
}

impl Node {
    fn left(&self, fate: Unsynced) -> Vec<u8> {
        let common = self.now.iter().zip(&self.durable).take_while(|(now, durable)| now == durable).count();
        let mut bytes = self.now.clone();
        match fate {
            Unsynced::Lost => return self.durable.clone(),
            Unsynced::Half => bytes.truncate(common + (self.now.len() - common) / 2),
            Unsynced::Zeros => bytes[common..].fill(0),
            Unsynced::Kept => {}
        }
        bytes
    }
}

#[derive(Debug, Default)]
struct Inside {
    start: Machine,
    machine: Machine,
    operations: Vec<Operation>,
    /// Operations that still succeed, where not all do.
    working: Option<usize>,
}

/// The disk that a store is given; its clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Simulated(Arc<Mutex<Inside>>);

impl Simulated {
    pub(super) fn of(files: &Files) -> Simulated {
        let machine = Machine::of(files);
        let inside = Inside { start: machine.clone(), machine, ..Inside::default() };
        Simulated(Arc::new(Mutex::new(inside)))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    /// How the disk was at the start, and all operations since.
    pub(super) fn recorded(&self) -> (Machine, Vec<Operation>) {
        let inside = self.inside();
        (inside.start.clone(), inside.operations.clone())
    }

    pub(super) fn files(&self) -> Files {
        self.inside().machine.killed()
    }

    pub(super) fn operations(&self) -> usize {
        self.inside().operations.len()
    }

    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inside = self.inside();
        let node = inside.machine.node(name).unwrap();
        change(&mut node.now);
        node.durable = node.now.clone();
    }

    /// Lets so many operations succeed, and the others fail as on a full disk; `None` ends that.
    pub(super) fn fail_after(&self, operations: Option<usize>) {
        self.inside().working = operations;
    }

    fn perform(&self, operation: Operation) -> io::Result<()> {
        let mut inside = self.inside();
        match &mut inside.working {
            Some(0) => {
                // A full disk takes part of the bytes.
                if let Operation::Write(name, place, bytes) = operation {
                    inside.machine.apply(&Operation::Write(
                        name,
                        place,
                        bytes[..bytes.len() / 2].to_vec(),
                    ))?;
                }
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        inside.machine.apply(&operation)?;
        inside.operations.push(operation);
        Ok(())
    }
}

impl Disk for Simulated {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files().into_keys().collect())
    }

    fn read(&self, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        let bytes = self.inside().machine.node(name)?.now.clone();
        if bytes.len() > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.perform(Operation::Create(name.into()))?;
        self.perform(Operation::Write(name.into(), 0, bytes.into()))?;
        self.perform(Operation::Sync(name.into()))
    }

    fn write_at(&mut self, name: &str, place: usize, bytes: &[u8]) -> io::Result<()> {
        self.perform(Operation::Write(name.into(), place, bytes.into()))?;
        self.perform(Operation::Sync(name.into()))
    }

    fn cut(&mut self, name: &str, length: usize) -> io::Result<()> {
        self.perform(Operation::Cut(name.into(), length))?;
        self.perform(Operation::Sync(name.into()))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.perform(Operation::Rename(from.into(), to.into()))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.perform(Operation::Remove(name.into()))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.perform(Operation::SyncNames)
    }
}
