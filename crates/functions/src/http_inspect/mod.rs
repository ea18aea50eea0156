//! Reports HTTP requests: their lines and hosts, out of the byte streams of the connections to port 80 (a window beside
//! the packets' way: NetBricks, section 3.1). Or stands in their way, and cuts connections to named hosts.

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

/// Bytes that are looked at in one go.
const WINDOW: usize = 4_096;

/// Nanoseconds for which a head may be held: 20 s.
const LONGEST_HEAD: u64 = 20_000_000_000;

/// The function that the settings ask for: [`http_inspect`], or [`http_block`] where hosts are blocked.
///
/// # Errors
/// Whatever keeps it from being built.
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

/// As [`http_inspect`], in the packets' way: the head of a request is held until its host is known, and a connection to one
/// that is blocked is reset.
pub fn http_block(input: Input, config: &HttpInspectConfig, worker: &Worker) -> impl Function + use<> {
    let (requests, counts) = declare(config, worker);
    let windows = InlineWindowConfig {
        // A window for each of them: nobody can take another one's, nor any by saying nothing more.
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
            // Else whoever fills its table speaks to whomever.
            midstream: MidstreamPolicy::Refuse,
            ..PacketizeConfig::default()
        },
        ..InlineWindowConfig::new(WINDOW, WINDOW, 0)
    };
    let (http, to_server) = (served(config), to_server(config));
    let concerns = http.clone();
    // All leave on the edge on which packets leave that are made here: so they keep their order.
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .filter(DropReason::Fragment, move |packet| {
            // Its server would put a request together that was never seen here.
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
        // Where both ports are served, it is the one that was opened that serves.
        let may_answer = http(window.flow.source_port());
        http(window.flow.destination_port()) && (!may_answer || window.side == Side::Client)
    }
}
