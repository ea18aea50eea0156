//! Replaces a string in TCP streams by another of any length (NetBricks, section 3.1, packetize).

mod config;
#[cfg(test)]
mod tests;

pub use config::{From, RewriteStreamConfig};

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::tcp::is_cut_off;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::view::IpRewrite;
use netbricks_core::{BuildError, DropReason, Edge, Function, Handler, Input, Operator, Section, Worker};
use netbricks_stream::{BLOCK, PacketizeConfig, PacketizeCounters, StreamOperator, StreamWorker};

use config::FLOW_MEMORY;

/// Replaces a string in the streams of connections to the configured ports; all other packets pass unchanged.
pub fn rewrite_stream(input: Input, config: &RewriteStreamConfig, worker: &Worker) -> impl Function + use<> {
    let rewriter = config.rewriter().or_else(|error| {
        worker.fail(BuildError::new(error));
        RewriteStreamConfig::new("-", "-").rewriter()
    });
    let streams = PacketizeConfig {
        flows: config.flows,
        flow_memory: FLOW_MEMORY,
        memory: config.memory,
        // One edit for each block of memory, so that a direction may have as many edits as it has blocks.
        edits: config.memory / BLOCK,
        idle: config.idle.nanoseconds(),
        ..PacketizeConfig::default()
    };
    let rewriter = rewriter.expect("a string of one byte can be replaced");
    let streams = worker.packetizer("streams", streams, rewriter);
    let counted = streams.clone();
    worker.handler(Handler::read("replaced", "How many occurrences were replaced."), move |_| {
        Ok(counted.borrow().counters().replaced.to_string())
    });
    let counted = streams.clone();
    worker.handler(
        Handler::read(
            "unchanged",
            "How many packets passed unchanged, whose connection's beginning was not seen or found no place.",
        ),
        move |_| Ok(counted.borrow().counters().unchanged.to_string()),
    );
    let counted = streams.clone();
    worker
        .handler(Handler::read("no-room", "How many packets found no room and count as lost."), move |_| {
            Ok(counted.borrow().counters().no_room.to_string())
        });
    let counted = streams.clone();
    worker.handler(
        Handler::read("homeless", "How many connections moved here and found no room."),
        move |_| Ok(counted.borrow().counters().homeless.to_string()),
    );
    let counted = streams.clone();
    worker.report(move || {
        let counted = counted.borrow();
        let PacketizeCounters { replaced, unchanged, no_room, homeless, .. } = counted.counters();
        let rows = [
            ("occurrences replaced", replaced),
            ("packets unchanged", unchanged),
            ("packets without room", no_room),
            ("connections without room here", homeless),
            // Bytes that wait behind a gap are seen nowhere else, because their packets were consumed.
            ("bytes of memory, out of order or unacknowledged", counted.memory() as u64),
        ];
        Section {
            title: "rewritten".into(),
            columns: ["what", "count"].map(Into::into).into(),
            rows: rows.map(|(what, count)| vec![what.into(), count.to_string()]).into(),
            merge: SectionMerge::Sum,
            ..Section::default()
        }
    });
    let ports: Box<[u16]> = config.ports.as_slice().into();
    let served = move |port: u16| ports.contains(&port);
    let rewritten = streams.clone();
    let concerns = served.clone();
    // Packets made here leave on this edge, too, so all packets of a connection keep their order.
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .filter(DropReason::Fragment, move |packet| {
            // Without its first fragment, the segment reaches no application. Its numbers are not those of
            // the other side.
            let flow = packet.flow_key();
            !is_cut_off(&packet.header(), packet.payload())
                || !concerns(flow.source_port()) && !concerns(flow.destination_port())
                || !rewritten.borrow().takes(flow)
        })
        .parse::<Tcp>()
        .or(Edge::OUT)
        .divert(Edge::OUT, move |packet| {
            let header = packet.header();
            !served(header.destination_port()) && !served(header.source_port())
        })
        .packetize(&streams)
        .done()
}
