//! Opens the ports of a run, and shares out their queues among workers.

use std::path::Path;

use netbricks_buffer::Pool;
use netbricks_core::Node;
use netbricks_ports::steer::Rules;
use netbricks_ports::{
    Capabilities, OpenContext, Port, PortError, ReceiveNode, SharedTransmit, TransmitLimits, TransmitNode,
};

use super::{Division, Network, Place, WorkerPorts};
use crate::config::{Plan, refusal};
use crate::diagnostic::Diagnostics;

/// The ports of a run, in the order of the plan.
pub(crate) struct OpenPorts {
    ports: Vec<OpenPort>,
}

/// An open port, with the number by which its packets name it.
struct OpenPort {
    number: u16,
    port: Box<dyn Port>,
}

/// How the ports of a run are opened.
pub(crate) struct Opening<'a> {
    pub(crate) pool: &'a Pool,
    /// Queues for each port that can have that many.
    pub(crate) queues: usize,
    /// The directory from which relative file names start.
    pub(crate) directory: &'a Path,
}

impl OpenPorts {
    /// Opens all ports of a plan, each with `queues` queues if it can have that many.
    ///
    /// Every fault is reported at its place. If one port fails, all open ports are closed again.
    pub(crate) fn open(
        plan: &Plan<'_>,
        pool: &Pool,
        queues: usize,
        directory: &Path,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        Self::open_beside(0, plan, |_| true, &Opening { pool, queues, directory }, diagnostics)
    }

    /// No ports.
    pub(crate) fn none() -> Self {
        Self { ports: Vec::new() }
    }

    /// Opens the ports of a plan that are `wanted`, beside those that are open here.
    ///
    /// Every fault is reported at its place. If one port fails, all that were opened are closed again.
    pub(crate) fn open_beside(
        first: u16,
        plan: &Plan<'_>,
        wanted: impl Fn(&str) -> bool,
        opening: &Opening<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let cx = OpenContext {
            pool: opening.pool.clone(),
            queues: opening.queues,
            // Generators make the same traffic everywhere.
            seed: plan.runtime.seed.unwrap_or(0),
            directory: opening.directory.to_owned(),
            filters: false,
        };
        let mut next = first;
        let mut ports = Vec::with_capacity(plan.ports.len());
        for planned in plan.ports.iter().filter(|planned| wanted(&planned.name)) {
            // A plan of which a port is wrong is not run.
            let Some(configured) = &planned.configured else { continue };
            match configured.open(&cx) {
                Ok(port) => {
                    let Capabilities { receive_queues, transmit_queues, .. } = port.capabilities();
                    if let Some(diagnostic) = planned.one_way(receive_queues > 0, transmit_queues > 0) {
                        diagnostics.push(diagnostic);
                    }
                    ports.push(OpenPort { number: next, port });
                    next += 1;
                }
                Err(error) => diagnostics.push(refusal(&error, &planned.settings)),
            }
        }
        (!diagnostics.has_errors()).then_some(Self { ports })
    }

    /// The number of the next port.
    pub(crate) fn next_number(&self) -> u16 {
        self.ports.iter().map(|open| open.number + 1).max().unwrap_or(0)
    }

    /// The number by which packets know the port of this name.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|open| open.port.name() == name).map(|open| open.number)
    }

    /// The ports in the order of `names`, each from `opened` or else from here; answers those that are left.
    pub(crate) fn arrange(&mut self, names: &[String], opened: Self) -> Self {
        let mut known = std::mem::take(&mut self.ports);
        let mut new = opened.ports;
        for name in names {
            for from in [&mut new, &mut known] {
                if let Some(place) = from.iter().position(|open| open.port.name() == name) {
                    self.ports.push(from.remove(place));
                    break;
                }
            }
        }
        Self { ports: known }
    }

    /// The open port of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&dyn Port> {
        self.iter().find(|port| port.name() == name)
    }

    /// The open port of this name, to change it.
    pub(crate) fn find_mut(&mut self, name: &str) -> Option<&mut dyn Port> {
        match self.ports.iter_mut().find(|open| open.port.name() == name) {
            Some(open) => Some(open.port.as_mut()),
            None => None,
        }
    }

    /// A receive queue of the port of this name, as a node.
    pub(crate) fn take_receive(
        &mut self,
        name: &str,
        queue: usize,
    ) -> Result<Option<Box<dyn Node + Send>>, PortError> {
        let Some(open) = self.ports.iter_mut().find(|open| open.port.name() == name) else { return Ok(None) };
        Ok(Some(Box::new(ReceiveNode::take(open.port.as_mut(), open.number, queue)?)))
    }

    /// A transmit node of the port of this name for each of `workers` workers.
    pub(crate) fn take_transmits(
        &mut self,
        name: &str,
        workers: usize,
    ) -> Result<Vec<Box<dyn Node + Send>>, PortError> {
        match self.ports.iter_mut().find(|open| open.port.name() == name) {
            Some(open) if open.port.capabilities().transmit_queues > 0 => {
                transmit_nodes(open.port.as_mut(), workers)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Whether every port that packets come from drives the clock, so that a run repeats exactly on one worker.
    pub(crate) fn is_replay(&self, network: &Network) -> bool {
        self.ports
            .iter()
            .enumerate()
            .filter(|(number, _)| network.has(Place::Receive(*number)))
            .all(|(_, open)| open.port.capabilities().drives_clock)
    }

    /// Takes all queues that the network uses and shares them out among at most `workers` workers, as
    /// [`Network::deal`] does.
    ///
    /// Workers that would receive nothing are left out, unless others give them packets, or the file places
    /// queues on workers by number.
    ///
    /// If workers give each other packets, they all use real time, unless every port that any of them
    /// receives from is a replay. The same holds for one worker that receives from both kinds. Otherwise live
    /// packets would be processed at the time of a capture.
    pub(crate) fn share_out(
        &mut self,
        plan: &Plan<'_>,
        network: &Network,
        workers: usize,
    ) -> Result<Vec<WorkerPorts>, PortError> {
        let queues: Vec<usize> = self.divisions().iter().map(|port| port.queues).collect();
        let mut shares = network.deal(plan, &queues, workers);
        if !network.crosses() && plan.placed_workers() == 0 {
            shares.retain(|share| !share.is_empty());
        }
        // A worker that only takes packets from others, or receives nothing, uses the time of those that
        // receive.
        let (driven, crosses) = (self.is_replay(network), network.crosses());
        let mut taken: Vec<WorkerPorts> = Vec::with_capacity(shares.len());
        for share in &shares {
            let mut worker = WorkerPorts {
                drives_clock: driven || !crosses && !share.is_empty(),
                queues: share.clone(),
                ..WorkerPorts::default()
            };
            for (number, queue) in share {
                let OpenPort { number: label, port } = &mut self.ports[*number];
                worker.drives_clock &= port.capabilities().drives_clock;
                let node = ReceiveNode::take(port.as_mut(), *label, *queue)?;
                worker.receive.push((*number, Box::new(node)));
            }
            taken.push(worker);
        }
        for number in 0..self.ports.len() {
            let is_target = network.wires.iter().any(|wire| wire.to == Place::Transmit(number));
            if is_target && self.ports[number].port.capabilities().transmit_queues > 0 {
                let nodes = transmit_nodes(self.ports[number].port.as_mut(), taken.len())?;
                for (worker, node) in taken.iter_mut().zip(nodes) {
                    worker.transmit.insert(number, node);
                }
            }
        }
        Ok(taken)
    }

    /// How the ports' queues divide their flows.
    pub(crate) fn divisions(&self) -> Vec<Division> {
        self.iter().map(Division::of).collect()
    }

    /// A port, by its number in the plan.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut dyn Port> {
        match self.ports.get_mut(number) {
            Some(open) => Some(open.port.as_mut()),
            None => None,
        }
    }

    /// The names of the ports, each at the number by which its packets name it.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for OpenPort { number, port } in &self.ports {
            let place = usize::from(*number);
            if names.len() <= place {
                names.resize(place + 1, String::new());
            }
            port.name().clone_into(&mut names[place]);
        }
        names
    }

    /// The open ports.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Port> {
        self.ports.iter().map(|open| open.port.as_ref() as &dyn Port)
    }

    /// Closes the ports: captures get their final names. Returns the failures during the run or now.
    pub(crate) fn close(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for OpenPort { port, .. } in &mut self.ports {
            if let Some(failure) = port.failure() {
                failures.push(failure.to_string());
            }
            if let Err(error) = port.close() {
                let text = error.to_string();
                if !failures.contains(&text) {
                    failures.push(text);
                }
            }
        }
        failures
    }
}

impl Division {
    /// How the queues of an open port divide its flows.
    pub(crate) fn of(port: &dyn Port) -> Self {
        let capabilities = port.capabilities();
        Self {
            queues: capabilities.receive_queues,
            symmetric: capabilities.symmetric_rss,
            // Filters of the graph never part directions in state that needs both.
            rules: if port.filtered_by().is_some() { Rules::default() } else { port.rules() },
            steered: false,
        }
    }
}

/// A transmit node for each of `workers` workers.
///
/// Each has its own queue, or shares one if there are fewer queues.
pub(crate) fn transmit_nodes(
    port: &mut dyn Port,
    workers: usize,
) -> Result<Vec<Box<dyn Node + Send>>, PortError> {
    let queues = port.capabilities().transmit_queues;
    let mut nodes: Vec<Box<dyn Node + Send>> = Vec::with_capacity(workers);
    if queues >= workers {
        for queue in 0..workers {
            nodes.push(Box::new(TransmitNode::take(port, queue)?));
        }
        return Ok(nodes);
    }
    let limits = TransmitLimits::of(port);
    let counters = port.counters();
    let mut shared = Vec::with_capacity(queues);
    for queue in 0..queues {
        let counters = counters.get(queue).cloned().unwrap_or_default();
        shared.push(Some(SharedTransmit::new(port.take_transmit(queue)?, counters)));
    }
    for worker in 0..workers {
        let queue = worker % queues;
        let Some(handle) = shared[queue].clone() else { continue };
        // The last user of a queue gets the handle that reports the packets that all of them hold.
        let is_last = worker + queues >= workers;
        let handle = if is_last { shared[queue].take().unwrap_or(handle) } else { handle };
        let counters = counters.get(queue).cloned().unwrap_or_default();
        nodes.push(Box::new(TransmitNode::new(Box::new(handle), port.driver(), limits, counters)));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use netbricks_ports::Drivers;

    use super::*;
    use crate::config;

    /// For each worker, whether its clock is driven by the packets that it receives.
    fn driven(through: &str, live: &str, workers: usize) -> Vec<bool> {
        let text = format!(
            "[port.live]\ndriver = \"generator\"\npackets = 10\n{live}\n[port.replayed]\ndriver = \"generator\"\n\
             packets = 10\n[port.out]\ndriver = \"null\"\n\
             [[chain]]\nfrom = \"live\"\nto = \"out\"\n\
             [[chain]]\nfrom = \"replayed\"\nthrough = [{through}]\nto = \"out\"\n[runtime]\nframes = 1024\n"
        );
        let (drivers, mut diagnostics, here) = (Drivers::standard(), Diagnostics::default(), Path::new("."));
        let plan = config::read(&text, &crate::standard(), &drivers, here, &mut diagnostics);
        let pool = Pool::builder().frames(1_024).build().unwrap();
        let network = Network::of(&plan, &pool, &mut diagnostics);
        let mut ports = OpenPorts::open(&plan, &pool, 1, here, &mut diagnostics).unwrap();
        let shares = ports.share_out(&plan, &network, workers).unwrap();
        shares.iter().map(|share| share.drives_clock).collect()
    }

    #[test]
    fn workers_that_give_each_other_packets_have_one_kind_of_clock() {
        let live = "clock = \"real\"\nrate = \"1 kpps\"";
        assert_eq!(driven("\"shuffle\"", "", 3), [true; 3]);
        assert_eq!(driven("\"shuffle\"", live, 3), [false; 3]);
        assert_eq!(driven("", live, 2), [false, true], "each to itself");
        assert_eq!(driven("", live, 1), [false]);
    }
}
