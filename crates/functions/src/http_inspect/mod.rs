//! Reports HTTP requests: their lines and hosts, out of the byte streams of the connections to port 80 (a window beside
//! the packets' way: NetBricks, section 3.1).

mod config;
mod parse;
mod state;
#[cfg(test)]
mod tests;

pub use config::HttpInspectConfig;

use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::stream::{StreamConfig, WindowConfig};
use netbricks_core::{Function, Input, Operator, Worker};

use config::FLOW_MEMORY;
use state::{Counts, Requests};

/// Bytes that are looked at in one go.
const WINDOW: usize = 4_096;

/// Reports request lines and hosts of connections to the configured ports. Packets are never changed.
pub fn http_inspect(input: Input, config: &HttpInspectConfig, worker: &Worker) -> impl Function + use<> {
    let requests = worker.declare("requests", Requests::new(config));
    state::report(&requests, worker);
    let counts = Counts {
        requests: worker.counter("seen"),
        no_requests: worker.counter("not-http"),
        gaps: worker.counter("gaps"),
    };
    // Nothing is kept until a window is full: a request is known as soon as it is there.
    let windows = WindowConfig {
        memory: 0,
        streams: StreamConfig {
            flows: config.flows,
            flow_memory: FLOW_MEMORY,
            memory: config.memory,
            idle: config.idle.nanoseconds(),
            ..StreamConfig::default()
        },
        ..WindowConfig::new(WINDOW, WINDOW, config.idle.nanoseconds())
    };
    let ports: Box<[u16]> = config.ports.as_slice().into();
    let servers = ports.clone();
    let http = move |port: u16| ports.contains(&port);
    input
        .parse_or_pass::<Link>()
        .parse_or_pass::<Ip>()
        .parse_or_pass::<Tcp>()
        .branch(
            move |packet| {
                let header = packet.header();
                http(header.destination_port()) || http(header.source_port())
            },
            |both_ways| {
                both_ways.window(worker, "streams", windows, move |window| {
                    if servers.contains(&window.flow.destination_port()) {
                        requests.borrow_mut().take(window, &counts);
                    }
                })
            },
            |other| other,
        )
        .done()
}
