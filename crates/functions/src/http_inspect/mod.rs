//! Reports the lines and hosts of HTTP requests, out of the byte streams of connections to port 80.
//!
//! It reads a copy of the stream through a window (NetBricks, section 3.1). With blocked hosts, it holds
//! packets back inline and cuts connections to these hosts.

#[cfg(test)]
mod blocking;
mod config;
#[cfg(test)]
mod migration;
mod names;
mod parse;
mod reading;
mod state;
#[cfg(test)]
mod tests;

pub use config::HttpInspectConfig;

use netbricks_core::packet::tcp::is_cut_off;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::view::IpRewrite;
use netbricks_core::{DropReason, Edge, Function, Input, Node, Operator, State, Verdict, Worker, compose};
use netbricks_stream::{
    Fate, InlineWindowConfig, MidstreamPolicy, PacketizeConfig, Side, StreamConfig, StreamOperator, Window,
    WindowConfig,
};

use config::{FLOW_MEMORY, PATH_MEMORY};
use reading::Reading;
use state::{Counts, Requests};

/// Bytes that one window shows.
const WINDOW: usize = 4_096;

/// Nanoseconds for which a head may be held: 20 s.
const LONGEST_HEAD: u64 = 20_000_000_000;

/// The function that the settings ask for: [`http_inspect`], or [`http_block`] where hosts are blocked.
///
/// # Errors
/// When the function cannot be built.
pub fn node(
    config: &HttpInspectConfig,
    worker: &Worker,
) -> Result<Box<dyn Node>, netbricks_core::BuildError> {
    if config.block.is_empty() {
        compose(worker, |input| http_inspect(input, config, worker))
    } else {
        compose(worker, |input| http_block(input, config, worker))
    }
}

/// Reports request lines and hosts of connections to the configured ports. Packets are never changed.
pub fn http_inspect(input: Input, config: &HttpInspectConfig, worker: &Worker) -> impl Function + use<> {
    let (requests, counts) = declare(config, worker);
    // A request is reported as soon as it is there, so windows need not be full and no bytes are kept.
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
    let (http, to_server) = (served(config), to_server(config));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Tcp>()
        .or(Verdict::PASS)
        .branch(
            move |packet| {
                let header = packet.header();
                http(header.destination_port()) || http(header.source_port())
            },
            |both_ways| {
                both_ways.window_keeping(
                    worker,
                    "streams",
                    windows,
                    move |window, reading: &mut Reading<false>| {
                        if to_server(window) {
                            requests.borrow_mut().take(window, reading.parser(), &counts);
                        }
                    },
                )
            },
            |other| other,
        )
        .done()
}

/// As [`http_inspect`], inline: the head of a request is held until its host is known.
///
/// A connection to a blocked host is reset.
pub fn http_block(input: Input, config: &HttpInspectConfig, worker: &Worker) -> impl Function + use<> {
    let (requests, counts) = declare(config, worker);
    let windows = InlineWindowConfig {
        // A window for each connection, so that no connection can take memory from another or keep it by
        // silence.
        memory: config.flows.saturating_mul(WINDOW),
        only: Some(Side::Client),
        longest: LONGEST_HEAD,
        longer: 1,
        packets: PacketizeConfig {
            flows: config.flows,
            flow_memory: PATH_MEMORY.min(config.memory),
            memory: config.memory,
            edits: 1,
            idle: config.idle.nanoseconds(),
            // Else a client that fills the table could speak to any host.
            midstream: MidstreamPolicy::Refuse,
            ..PacketizeConfig::default()
        },
        ..InlineWindowConfig::new(WINDOW, WINDOW, 0)
    };
    let (http, to_server) = (served(config), to_server(config));
    let concerns = http.clone();
    // Packets made here leave on this edge, too, so all packets of a connection keep their order.
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .filter(DropReason::Fragment, move |packet| {
            // The server would put together a request that was never seen here.
            let flow = packet.flow_key();
            let concerns = concerns(flow.source_port()) || concerns(flow.destination_port());
            !concerns || !is_cut_off(&packet.header(), packet.payload())
        })
        .parse::<Tcp>()
        .or(Edge::OUT)
        .divert(Edge::OUT, move |packet| {
            let header = packet.header();
            !http(header.destination_port()) && !http(header.source_port())
        })
        .window_in_path_keeping(worker, "streams", windows, move |window, _, reading: &mut Reading<true>| {
            if to_server(window) {
                requests.borrow_mut().decide(window, reading.parser(), &counts)
            } else {
                Fate::Pass
            }
        })
        .done()
}

fn declare(config: &HttpInspectConfig, worker: &Worker) -> (State<Requests>, Counts) {
    let requests = worker.declare("requests", Requests::new(config, worker.seed()));
    let counts = Counts {
        requests: worker.counter("seen"),
        no_requests: worker.counter("not-http"),
        gaps: worker.counter("gaps"),
        blocked: worker.counter("blocked"),
    };
    state::report(&requests, &counts, worker);
    (requests, counts)
}

fn served(config: &HttpInspectConfig) -> impl Fn(u16) -> bool + Clone + use<> {
    let ports: Box<[u16]> = config.ports.as_slice().into();
    move |port| ports.contains(&port)
}

fn to_server(config: &HttpInspectConfig) -> impl Fn(&Window<'_>) -> bool + use<> {
    let http = served(config);
    move |window| {
        // If both ports are served, the server is the end whose port was connected to.
        let may_answer = http(window.flow.source_port());
        http(window.flow.destination_port()) && (!may_answer || window.side == Side::Client)
    }
}
