//! The sentence of a trace: the backend of a packet, and whether its connection was known.

use std::net::IpAddr;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_core::{Flows, TableKey, Worker};

use crate::snapshot::Holds;

use super::backends::{Backends, Snapshot};
use super::{connects, is_discovery, is_one_of};

pub(super) fn declare(
    addresses: Vec<IpAddr>,
    backends: &Bounded<Backends>,
    connections: &Flows<FlowKey, u64>,
    worker: &Worker,
) {
    let (backends, connections) = (backends.clone(), connections.clone());
    worker.explain(move |frame, why| {
        let Some((header, payload)) = Ip::in_frame(frame) else { return Ok(()) };
        let address = header.destination();
        if is_discovery(header, payload) {
            return write!(why, "neighbour discovery goes to no backend");
        }
        if !addresses.is_empty() && !is_one_of(&addresses, address) {
            return write!(why, "{address} is no address of the balancer");
        }
        let flow = FlowKey::related(header, payload).store();
        let known = connections.with(|table| table.get(&flow).copied());
        backends.read(|backends| {
            let backends = backends.snapshot();
            let live =
                |chosen: u64| backends.all().find(|(number, known)| known.remembered(*number) == chosen);
            if let Some((_, known)) = known.and_then(live) {
                return write!(why, "known connection, backend {}", known.backend.name);
            }
            let number = match known {
                Some(chosen) => backends.elsewhere(chosen, &flow),
                None => backends.choose(&flow),
            };
            let Some(name) = number.and_then(|number| name(backends, number)) else {
                return write!(why, "no backend takes new connections");
            };
            match known {
                Some(_) => write!(why, "its backend is gone, so it moves to backend {name}"),
                None if connects(&flow) && !FlowKey::is_error(header, payload) => {
                    write!(why, "new connection, backend {name}")
                }
                None => write!(why, "no connection, backend {name}"),
            }
        })
    });
}

fn name(backends: &Snapshot, number: usize) -> Option<&str> {
    backends.all().find(|(known, _)| *known == number).map(|(_, known)| known.backend.name.as_str())
}
