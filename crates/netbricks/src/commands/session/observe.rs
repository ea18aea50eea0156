//! Watches over the packets of a run: where they look, and captures as pcapng.

use std::collections::BTreeMap;
use std::time::Instant;

use netbricks_control::api::{Code, ObserveKind, ObserveRequest, Place, Problem};
use netbricks_control::{Encode, Observing, Places, TraceEvents};
use netbricks_core::DropReason;
use netbricks_core::filter::Filter;
use netbricks_core::observer::{Allowance, Sight, Sighting, Sightings, Watch, WatchPoint};
use netbricks_ports::pcap::{CapturedPacket, Direction, Packets};

use super::{Session, calls};
use crate::chain::{receive_name, transmit_name};

impl Session<'_> {
    pub(super) fn observed(&self, request: &ObserveRequest) -> Result<Observing, Problem> {
        let filter = Filter::parse(&request.filter).map_err(|error| wrong_filter(&error))?;
        let at = self.place_of(request)?;
        let left = Allowance::of(request.count);
        let numbers = self.control.numbers();
        let encode: Box<dyn Encode>;
        let watch = match request.kind {
            ObserveKind::Trace => {
                let cores = self.places.iter().map(|place| place.core).collect();
                encode =
                    Box::new(TraceEvents::new(Places { ports: self.ports.names(), cores }, left.clone()));
                Watch::trace(at, filter, left, numbers)
            }
            ObserveKind::Capture => {
                encode = Box::new(CaptureBlocks::new(request.snaplen, left.clone())?);
                Watch::capture(at, filter, left, request.snaplen, numbers)
            }
        };
        let observation = self.control.observe(watch).map_err(|error| calls::problem_of(&error))?;
        Ok(Observing { observation, encode })
    }

    /// The nodes at which a request looks.
    fn place_of(&self, request: &ObserveRequest) -> Result<WatchPoint, Problem> {
        let nodes = &self.installed.graph.nodes;
        let of_port = |port: &str, sends: bool| {
            let receives = receive_name(port);
            let numbered = |node: &str| {
                node.rsplit_once('.')
                    .is_some_and(|(name, tail)| name == receives && tail.parse::<usize>().is_ok())
            };
            let named = nodes
                .iter()
                .map(|node| node.name.as_str())
                .filter(|node| *node == receives || numbered(node) || sends && *node == transmit_name(port));
            // On a worker with several queues of a port, its nodes after the first are numbered.
            let more = (2..=self.control.workers().max(64)).map(|number| format!("{receives}.{number}"));
            named.map(str::to_owned).chain(more).collect::<Vec<_>>()
        };
        let captures = request.kind == ObserveKind::Capture;
        let Some(at) = &request.at else {
            return Ok(match captures {
                false => WatchPoint::Arrivals,
                true => {
                    WatchPoint::Nodes(self.ports.iter().flat_map(|port| of_port(port.name(), true)).collect())
                }
            });
        };
        if self.ports.iter().any(|port| port.name() == at) {
            return Ok(WatchPoint::Nodes(of_port(at, captures)));
        }
        if nodes.iter().any(|node| node.name == *at) {
            return Ok(WatchPoint::Nodes(vec![at.clone()]));
        }
        if let Some(function) = self.installed.functions.iter().find(|function| function.name == *at) {
            return Ok(WatchPoint::Nodes(function.nodes.clone()));
        }
        let reasons = || DropReason::ALL.iter().map(|reason| reason.name()).filter(|_| captures);
        if let Some(reason) = DropReason::ALL.iter().find(|reason| captures && reason.name() == at) {
            return Ok(WatchPoint::Drops(*reason));
        }
        let what = if captures { "node, port or drop reason" } else { "node or port" };
        let functions = self.installed.functions.iter().map(|function| function.name.as_str());
        let ports = self.ports.iter().map(netbricks_ports::Port::name);
        let known = nodes.iter().map(|node| node.name.as_str()).chain(functions).chain(ports);
        Err(Problem::unknown(what, at, known.chain(reasons())))
    }
}

fn wrong_filter(error: &netbricks_core::filter::FilterError) -> Problem {
    let column = error.range.start + 1;
    let mut problem = Problem::new(Code::BadRequest, error.to_string());
    problem.places.push(Place { line: 1, column, message: format!("expected {}", error.expected) });
    problem
}

/// A capture as it grows: an interface for each node, and a comment on each packet.
struct CaptureBlocks {
    packets: Packets,
    snaplen: usize,
    /// The number of each node's interface.
    interfaces: BTreeMap<String, u32>,
    left: Allowance,
    used_up: bool,
    lost: u64,
    /// The last time of a packet (ns).
    time: u64,
}

impl CaptureBlocks {
    fn new(snaplen: usize, left: Allowance) -> Result<Self, Problem> {
        let packets = Packets::new().map_err(|error| unwritten(&error))?;
        let interfaces = BTreeMap::new();
        Ok(Self { packets, snaplen, interfaces, left, used_up: false, lost: 0, time: 0 })
    }

    fn interface(&mut self, node: &str) -> std::io::Result<u32> {
        if let Some(number) = self.interfaces.get(node) {
            return Ok(*number);
        }
        self.packets.add_interface(node, self.snaplen)?;
        let number = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        self.interfaces.insert(node.to_owned(), number);
        Ok(number)
    }

    fn write(&mut self, seen: &Sightings, sighting: &Sighting) -> std::io::Result<()> {
        let node = &*sighting.node;
        let interface = self.interface(node)?;
        let (direction, comment) = match sighting.sight {
            Sight::Arriving => (Direction::Inbound, format!("arrives at {node}")),
            Sight::Dropped(reason) => {
                (Direction::Inbound, format!("dropped by {node}: {}: {}", reason.name(), reason.sentence()))
            }
            _ => (Direction::Outbound, format!("leaves {node}")),
        };
        let comment = match sighting.vlan {
            Some(tag) => format!("{comment}; its VLAN tag {} is not in the bytes", tag.control & 0xfff),
            None => comment,
        };
        self.time = self.time.max(sighting.time);
        self.packets.add(&CapturedPacket {
            interface,
            time: sighting.time,
            frame: seen.frame(sighting),
            wire_len: sighting.wire_len,
            direction: Some(direction),
            comment: &comment,
        })
    }

    /// The number of lost packets, as statistics of the first interface.
    ///
    /// The nodes at which they were lost are not known.
    fn statistics(&mut self) -> Vec<u8> {
        // Memory takes all bytes.
        if self.interfaces.is_empty() {
            let _written = self.interface("netbricks");
        }
        let _written = self.packets.add_statistics(0, self.time, self.lost);
        self.packets.take()
    }
}

fn unwritten(error: &std::io::Error) -> Problem {
    Problem::new(Code::Internal, format!("a capture cannot be written to memory: {error}"))
}

impl Encode for CaptureBlocks {
    fn begin(&mut self) -> Vec<u8> {
        self.packets.take()
    }
    fn before(&mut self) {
        self.used_up = self.left.is_used_up();
    }
    fn add(&mut self, seen: &[(usize, Sightings)], _: Instant) -> Vec<u8> {
        let mut all: Vec<(&Sightings, &Sighting)> =
            seen.iter().flat_map(|(_, seen)| seen.iter().map(move |sighting| (seen, sighting))).collect();
        // Each worker's are in order.
        all.sort_by_key(|(_, sighting)| sighting.time);
        for (seen, sighting) in all {
            if self.write(seen, sighting).is_err() {
                self.lost += 1;
            }
        }
        self.lost += seen.iter().map(|(_, seen)| seen.lost()).sum::<u64>();
        self.packets.take()
    }
    fn is_complete(&self) -> bool {
        self.used_up
    }
    fn end(&mut self) -> Vec<u8> {
        self.statistics()
    }
    fn sign_of_life(&mut self) -> Vec<u8> {
        self.statistics()
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
