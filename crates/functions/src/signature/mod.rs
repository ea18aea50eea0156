//! Looks for signatures in packets and in TCP streams: literals and regular expressions, as Suricata's rules say.
//!
//! It raises alerts, and drops packets and connections. A literal of each rule is looked for first, all of them at
//! once; a rule is evaluated only where it was found.

mod alert;
mod config;
mod engine;
mod evaluate;
mod filter;
mod group;
mod language;
mod library;
mod live;
mod regex;
mod set;
mod simulation;
mod stream;
#[cfg(test)]
mod tests;
mod thresholds;
mod work;

pub use config::{HISTORY, SearchEngine, SignatureConfig};

use netbricks_core::consistency::{Bounded, BoundedInconsistency};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::tcp::is_cut_off;
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, Tcp, protocol};
use netbricks_core::tables::{FlowTableConfig, Full};
use netbricks_core::view::{Enclosing, IpRewrite};
use netbricks_core::{
    BuildError, DropReason, EVENTS, Edge, EventLog, Function, Handler, Input, Node, Operator, Section, State,
    Verdict, Worker, compose,
};
use netbricks_stream::{
    Cut, Fate, InlineWindowConfig, MidstreamPolicy, PacketizeConfig, Protocol, StreamConfig, StreamOperator,
    StreamWorker, Window, WindowConfig,
};

use alert::Alert;
use config::{FLOW_MEMORY, LITTLE, MUCH, PATH_MEMORY};
use engine::{Counts, Engine, Fields, Remembered, Ruling};
use live::{Current, First, Rules};
use stream::Reading;
use thresholds::Thresholds;

/// Bytes that one window shows.
const WINDOW: usize = 4_096;
/// Counts of thresholds that each worker keeps.
const THRESHOLDS: usize = 16_384;

/// The function that the settings ask for: [`signature`] or [`signature_inline`], with their `history`.
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &SignatureConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    match config.history {
        LITTLE => node_with::<LITTLE>(config, worker),
        HISTORY => node_with::<HISTORY>(config, worker),
        _ => node_with::<MUCH>(config, worker),
    }
}

fn node_with<const N: usize>(config: &SignatureConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    if config.inline {
        compose(worker, |input| signature_inline::<N>(input, config, worker))
    } else {
        compose(worker, |input| signature::<N>(input, config, worker))
    }
}

/// Raises alerts for packets and streams in which rules match, and drops those that rules say.
///
/// Packets are never changed. The bytes of one match lie within the last `N` of a direction, such as [`HISTORY`].
pub fn signature<const N: usize>(
    input: Input,
    config: &SignatureConfig,
    worker: &Worker,
) -> impl Function + use<N> {
    let engine = declare(config, N, worker);
    let streams = {
        let (engine, idle) = (engine.clone(), config.idle.nanoseconds());
        // A match counts as soon as it is there, so windows need not be full and no bytes are kept.
        let windows = WindowConfig {
            memory: 0,
            streams: StreamConfig {
                flows: config.flows,
                flow_memory: FLOW_MEMORY,
                memory: config.memory,
                idle,
                ..StreamConfig::default()
            },
            ..WindowConfig::new(WINDOW, WINDOW, idle)
        };
        let see = move |window: &Window<'_>, reading: &mut Reading<N>| {
            engine.borrow_mut().stream(window, reading);
        };
        worker.windows_keeping::<Tcp, Reading<N>, _>("streams", windows, see)
    };
    let other_engine = engine.clone();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .branch(
            |packet| is_first(packet.header(), protocol::TCP),
            move |tcp| {
                tcp.parse::<Tcp>()
                    .or(Verdict::PASS)
                    .decide(move |packet| {
                        let (header, now) = (packet.header(), packet.now());
                        let (flow, ip) = (packet.flow_key(), packet.outer::<Ip>());
                        let fields = Fields::of(ip, flow, now).with_tcp(header);
                        let known = engine.borrow_mut().begin(&fields);
                        if known.is_none() {
                            // A fragment's payload is not a segment's payload, so its bytes count as lost.
                            if !ip.is_fragment() {
                                let mut segment = Tcp::segment(header, packet.payload());
                                segment.ends &= !packet.is_cut_off();
                                streams.borrow_mut().push(flow, segment, now);
                            }
                            engine.borrow_mut().packet(&fields, packet.payload());
                        }
                        verdict(engine.borrow_mut().end(known, now))
                    })
                    .forget()
            },
            move |other| {
                other
                    .decide(move |packet| {
                        let (ip, payload) = (packet.header(), packet.payload());
                        let (fields, payload) =
                            Fields::of(ip, packet.flow_key(), packet.now()).with_data(ip, payload);
                        verdict(other_engine.borrow_mut().alone(&fields, payload))
                    })
                    .forget()
            },
        )
        .done()
}

/// As [`signature`], with TCP streams in packets of its own.
///
/// Receivers get exactly the bytes in which rules were looked for. Connections in which a rule drops are reset.
pub fn signature_inline<const N: usize>(
    input: Input,
    config: &SignatureConfig,
    worker: &Worker,
) -> impl Function + use<N> {
    let engine = declare(config, N, worker);
    let windows = InlineWindowConfig {
        // Bytes are decided as they come, and never held.
        memory: WINDOW,
        longer: 1,
        packets: PacketizeConfig {
            flows: config.flows,
            flow_memory: PATH_MEMORY.min(config.memory),
            memory: config.memory,
            edits: 1,
            idle: config.idle.nanoseconds(),
            // Else an attacker that fills the table could send anything.
            midstream: MidstreamPolicy::Refuse,
            ..PacketizeConfig::default()
        },
        ..InlineWindowConfig::new(WINDOW, WINDOW, 0)
    };
    let (other_engine, stream_engine) = (engine.clone(), engine.clone());
    // Packets made here leave on this edge, too, so all packets of a connection keep their order.
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .filter(DropReason::Fragment, |packet| {
            // The receiver would put together a segment that was never seen here.
            packet.header().protocol() != protocol::TCP || !is_cut_off(&packet.header(), packet.payload())
        })
        .decide(move |packet| {
            let (ip, payload) = (packet.header(), packet.payload());
            if is_first(ip, protocol::TCP) {
                return Ok(());
            }
            let (fields, payload) = Fields::of(ip, packet.flow_key(), packet.now()).with_data(ip, payload);
            verdict(other_engine.borrow_mut().alone(&fields, payload))?;
            Err(Verdict::OUT)
        })
        .parse::<Tcp>()
        .or(Edge::OUT)
        .decide(move |packet| {
            let fields =
                Fields::of(packet.outer::<Ip>(), packet.flow_key(), packet.now()).with_tcp(packet.header());
            let mut engine = engine.borrow_mut();
            if engine.begin(&fields).is_none() {
                engine.packet(&fields, packet.payload());
            }
            // Packets of a connection that was cut go on to where they are answered.
            verdict(engine.end(None, fields.now))
        })
        .window_in_path_keeping(worker, "streams", windows, move |window, _, reading: &mut Reading<N>| {
            match stream_engine.borrow_mut().stream(window, reading) {
                Ruling::Pass => Fate::Pass,
                Ruling::Drop => Fate::Cut(Cut::Reset),
            }
        })
        .done()
}

/// Whether a packet of this protocol has its header: it is whole, or a first fragment.
fn is_first(ip: IpRef<'_>, number: u8) -> bool {
    ip.protocol() == number && !ip.is_later_fragment()
}

fn verdict(ruling: Ruling) -> Result<(), Verdict> {
    match ruling {
        Ruling::Pass => Ok(()),
        Ruling::Drop => Err(Verdict::drop(DropReason::SignatureMatched)),
    }
}

/// Declares the rules, the flows, the events, and what reports them.
fn declare(config: &SignatureConfig, history: usize, worker: &Worker) -> State<Engine> {
    let first = config.first().unwrap_or_else(|refused| {
        worker.fail(BuildError::new(refused));
        First::default()
    });
    let rules: Bounded<Rules> = worker.state("rules", BoundedInconsistency { updates: 0 }, first);
    live::declare(&rules, worker);
    let flows = worker.flow_table::<FlowKey, Remembered>(
        "flows",
        FlowTableConfig {
            capacity: config.flows,
            idle_timeout: Some(config.idle.nanoseconds()),
            full: Full::EvictOldest,
            seed: worker.seed(),
        },
    );
    let capacity = if worker.is_control() { 1 } else { THRESHOLDS };
    let thresholds = Thresholds::new(capacity, worker.seed()).or_else(|error| {
        worker.fail(BuildError::new(format_args!("counts of thresholds: {error}")));
        Thresholds::new(1, worker.seed())
    });
    let thresholds = match thresholds {
        Ok(thresholds) => worker.declare("thresholds", thresholds),
        // The build has failed already, and nothing can run without memory for 64 bytes.
        Err(error) => panic!("no memory for a table of one entry: {error}"),
    };
    let alerts = worker.event_log(EVENTS, config.events, alert::write);
    let counts = Counts {
        alerts: worker.counter("alerts"),
        drops: worker.counter("drops"),
        passes: worker.counter("passes"),
        suppressed: worker.counter("suppressed"),
        evaluations: worker.counter("evaluations"),
        unfinished: worker.counter("unfinished"),
    };
    latest(&alerts, config.top, worker);
    let mut engine = Engine::new(Current::of(rules), flows, thresholds, alerts, counts.clone(), history);
    if let Err(problem) = engine.fit() {
        worker.fail(BuildError::new(format_args!("memory for Hyperscan's searches: {problem}")));
    }
    let engine = worker.configured(engine);
    report(&engine, counts, config.top, worker);
    engine
}

/// Declares the report of the latest events.
fn latest(alerts: &EventLog<Alert>, most: usize, worker: &Worker) {
    let alerts = alerts.clone();
    worker.report(move || {
        let mut rows = Vec::new();
        let first = alerts.next().saturating_sub(most as u64);
        alerts.each(|number, Alert { rule, flow, .. }| {
            if number >= first {
                let ends =
                    [(flow.source(), flow.source_port()), (flow.destination(), flow.destination_port())];
                let [from, to] = ends.map(|(address, port)| format!("{address} {port}"));
                rows.push(vec![rule.sid.to_string(), from, to, rule.action.name().into(), rule.msg.clone()]);
            }
        });
        Section {
            title: "latest alerts".into(),
            columns: ["sid", "source", "destination", "action", "message"].map(Into::into).into(),
            rows,
            merge: SectionMerge::Concatenate,
            ..Section::default()
        }
    });
}

/// Declares the report, and the handler that tells matches by sid.
fn report(engine: &State<Engine>, counts: Counts, top: usize, worker: &Worker) {
    let told = engine.clone();
    let matches = Handler::read("matches", "This worker's matches by sid, most first.");
    worker.handler(matches, move |_| {
        let rows = most_first(&told.borrow());
        Ok(rows.iter().map(|(sid, count)| format!("{sid} {count}\n")).collect())
    });
    let engine = engine.clone();
    worker.report(move || {
        let engine = engine.borrow();
        let rows = most_first(&engine);
        let set = engine.rules();
        let message = |sid: u32| set.find(sid).map(|place| set.signatures[place].description.msg.clone());
        Section {
            title: "signatures".into(),
            columns: ["sid", "message", "matches"].map(Into::into).into(),
            of: Some(rows.len() as u64),
            rows: rows
                .into_iter()
                .take(top)
                .map(|(sid, count)| {
                    vec![
                        sid.to_string(),
                        message(sid).unwrap_or_else(|| "(no longer there)".into()),
                        count.to_string(),
                    ]
                })
                .collect(),
            counts: [
                ("alerts", &counts.alerts),
                ("dropped_packets", &counts.drops),
                ("passes", &counts.passes),
                ("suppressed_alerts", &counts.suppressed),
                ("evaluated_rules", &counts.evaluations),
                ("unfinished_searches", &counts.unfinished),
            ]
            .map(|(name, count)| (name.to_owned(), count.get()))
            .into(),
            merge: SectionMerge::Sum,
        }
    });
}

/// Sids with their matches, most first.
fn most_first(engine: &Engine) -> Vec<(u32, u64)> {
    let mut rows: Vec<_> = engine.matches().into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    rows
}
