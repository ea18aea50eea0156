//! The instances and ports that there are, and the workers that they are on. All workers share it.
//!
//! A command changes it under a lock and leaves word for each worker, which learns of it before its next batch. No
//! packet takes the lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::value::Ether;

use super::declared::{Awaited, Creation};

/// A port of a new instance.
pub(super) struct PortMade {
    pub number: usize,
    /// Tells the port from one that had its number before.
    pub generation: u64,
    pub name: String,
    pub mac: Option<Ether>,
    /// Packets for the port that found no room on their way from another worker.
    pub lost: Arc<AtomicU64>,
}

/// A new instance, as workers learn of it.
pub(super) struct Made {
    pub number: usize,
    pub worker: usize,
    pub creation: Creation,
    pub ports: Vec<PortMade>,
    /// The configuration that a file gives it at the start.
    pub awaited: Option<Awaited>,
}

/// News for workers.
#[derive(Clone)]
pub(super) enum Change {
    Created(Arc<Made>),
    /// The instance of this number is gone, with its ports.
    Destroyed(usize, Vec<usize>),
    Mapped(Ether, usize),
    Learning(bool),
}

/// A port of the switch, with its addresses.
struct Port {
    name: String,
    macs: Vec<Ether>,
}

/// Instances on a worker, and the sum of their weights.
#[derive(Clone, Copy, Default)]
struct Load {
    weight: u64,
    instances: usize,
}

pub(super) struct Directory {
    most: usize,
    names: BTreeMap<String, usize>,
    made: Vec<Option<Arc<Made>>>,
    free: BTreeSet<usize>,
    port_names: HashMap<String, usize>,
    ports: Vec<Option<Port>>,
    free_ports: Vec<usize>,
    /// Ports of static addresses.
    addresses: HashMap<Ether, usize>,
    learning: bool,
    generations: u64,
    loads: Vec<Load>,
    /// By worker: the news that it has not learnt yet.
    news: Vec<Vec<Change>>,
}

impl Directory {
    /// A directory for this many workers, with ports to these devices.
    pub(super) fn new(workers: usize, most: usize, devices: &[String], learning: bool) -> Self {
        let port = |name: &String| Some(Port { name: name.clone(), macs: Vec::new() });
        Self {
            most,
            names: BTreeMap::new(),
            made: Vec::new(),
            free: BTreeSet::new(),
            port_names: devices.iter().cloned().enumerate().map(|(number, name)| (name, number)).collect(),
            ports: devices.iter().map(port).collect(),
            free_ports: Vec::new(),
            addresses: HashMap::new(),
            learning,
            generations: 0,
            loads: vec![Load::default(); workers],
            news: vec![Vec::new(); workers],
        }
    }

    /// The number of an instance, and its worker.
    pub(super) fn find(&self, name: &str) -> Option<(usize, usize)> {
        let number = *self.names.get(name)?;
        self.made.get(number)?.as_ref().map(|made| (number, made.worker))
    }

    /// Whether there is an instance of this name that the tenant owns.
    pub(super) fn is_owned(&self, name: &str, tenant: &str) -> bool {
        let made = self.names.get(name).and_then(|number| self.made.get(*number)?.as_ref());
        made.is_some_and(|made| made.creation.owner.as_deref() == Some(tenant))
    }

    /// The names of all instances.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Creates an instance, on the worker with the least weight where none is named.
    ///
    /// # Errors
    /// A name or an address is taken, there are too many, or there is no such worker.
    pub(super) fn create(&mut self, creation: Creation, awaited: Option<Awaited>) -> Result<(), String> {
        let name = &creation.name;
        if self.names.contains_key(name) {
            return Err(format!("there is an instance `{name}` already"));
        }
        if self.names.len() >= self.most {
            return Err(format!("there are {} instances, the most that `most` allows", self.most));
        }
        let worker = match creation.worker {
            Some(worker) if worker < self.loads.len() => worker,
            Some(worker) => return Err(no_worker(worker, self.loads.len())),
            None => {
                let load = |worker: &usize| (self.loads[*worker].weight, self.loads[*worker].instances);
                (0..self.loads.len()).min_by_key(load).unwrap_or(0)
            }
        };
        let number = self.free.first().copied().unwrap_or(self.made.len());
        let mut wanted: Vec<(String, Option<Ether>)> = Vec::new();
        for port in 0..creation.ports {
            let mac = match creation.mac {
                Some(mac) => Some(following(mac, port)),
                None => self.free_mac(number, port),
            };
            if let Some(mac) = mac {
                self.check_free(mac)?;
            }
            let name = format!("{name}.{port}");
            if self.port_names.contains_key(&name) {
                return Err(format!("there is a port `{name}` already"));
            }
            wanted.push((name, mac));
        }
        // Nothing fails from here on.
        let ports = wanted.into_iter().map(|(name, mac)| self.add_port(name, mac)).collect();
        self.free.remove(&number);
        if number == self.made.len() {
            self.made.push(None);
        }
        self.loads[worker].weight += u64::from(creation.quotas.weight);
        self.loads[worker].instances += 1;
        self.names.insert(creation.name.clone(), number);
        let made = Arc::new(Made { number, worker, creation, ports, awaited });
        self.made[number] = Some(Arc::clone(&made));
        self.tell(&Change::Created(made));
        Ok(())
    }

    fn add_port(&mut self, name: String, mac: Option<Ether>) -> PortMade {
        let number = self.free_ports.pop().unwrap_or(self.ports.len());
        if number == self.ports.len() {
            self.ports.push(None);
        }
        self.port_names.insert(name.clone(), number);
        self.ports[number] = Some(Port { name: name.clone(), macs: mac.into_iter().collect() });
        if let Some(mac) = mac {
            self.addresses.insert(mac, number);
        }
        self.generations += 1;
        PortMade { number, generation: self.generations, name, mac, lost: Arc::default() }
    }

    /// Removes an instance.
    pub(super) fn destroy(&mut self, number: usize) {
        let Some(made) = self.made.get_mut(number).and_then(Option::take) else { return };
        self.names.remove(&made.creation.name);
        self.free.insert(number);
        let load = &mut self.loads[made.worker];
        load.weight -= u64::from(made.creation.quotas.weight);
        load.instances -= 1;
        let ports: Vec<usize> = made.ports.iter().map(|port| port.number).collect();
        for number in &ports {
            if let Some(port) = self.ports[*number].take() {
                self.port_names.remove(&port.name);
                for mac in &port.macs {
                    self.addresses.remove(mac);
                }
                self.free_ports.push(*number);
            }
        }
        self.tell(&Change::Destroyed(number, ports));
    }

    /// Makes an address lead to a port, by its name.
    ///
    /// # Errors
    /// There is no such port, or the address leads to one already.
    pub(super) fn map(&mut self, mac: Ether, port: &str) -> Result<(), String> {
        let number = *self.port_names.get(port).ok_or_else(|| format!("the switch has no port `{port}`"))?;
        if self.check_free(mac).is_err() {
            return Err(format!("{mac} leads to a port already"));
        }
        self.addresses.insert(mac, number);
        if let Some(port) = self.ports[number].as_mut() {
            port.macs.push(mac);
        }
        self.tell(&Change::Mapped(mac, number));
        Ok(())
    }

    pub(super) fn learn(&mut self, learning: bool) {
        self.learning = learning;
        self.tell(&Change::Learning(learning));
    }

    fn tell(&mut self, change: &Change) {
        self.news.iter_mut().for_each(|news| news.push(change.clone()));
    }

    /// The news that a worker has not learnt yet, in order.
    pub(super) fn news(&mut self, worker: usize) -> Vec<Change> {
        self.news.get_mut(worker).map(std::mem::take).unwrap_or_default()
    }

    /// All that there is, for a worker that knows nothing.
    pub(super) fn all(&mut self, worker: usize) -> Vec<Change> {
        drop(self.news(worker));
        let made = self.made.iter().flatten().map(|made| Change::Created(Arc::clone(made)));
        let mapped = self.addresses.iter().map(|(mac, port)| Change::Mapped(*mac, *port));
        made.chain(mapped).chain([Change::Learning(self.learning)]).collect()
    }

    fn check_free(&self, mac: Ether) -> Result<(), String> {
        if mac.is_group() {
            return Err(format!("{mac} is the address of a group"));
        }
        let port = self.addresses.get(&mac).and_then(|number| self.ports.get(*number)?.as_ref());
        match port {
            Some(port) => Err(format!("{mac} is the address of port `{}`", port.name)),
            None => Ok(()),
        }
    }

    /// A locally administered address that no port has.
    fn free_mac(&self, instance: usize, port: usize) -> Option<Ether> {
        let base = u32::try_from(instance).ok()?.to_be_bytes();
        let candidates = (0..=255_u8).map(|last| Ether([0x02, base[1], base[2], base[3], port as u8, last]));
        candidates.into_iter().find(|mac| !self.addresses.contains_key(mac))
    }
}

/// The message about a worker that does not exist.
fn no_worker(worker: usize, workers: usize) -> String {
    let there = if workers == 1 { "is 1".to_owned() } else { format!("are {workers}") };
    format!("worker {worker} does not exist: there {there}, from 0")
}

/// The address so many after another.
fn following(mac: Ether, count: usize) -> Ether {
    let bytes = mac.0;
    let number = u64::from_be_bytes([0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]);
    let [_, _, next @ ..] = number.wrapping_add(count as u64).to_be_bytes();
    Ether(next)
}
