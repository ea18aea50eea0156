//! The window operator in a graph: beside the packets' path, by the clock, at its end, and in a panic.

use netbricks_core::graph::observe_panics;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::stream::{
    Cut, Fate, InlineWindowConfig, PacketizeConfig, StreamConfig, StreamOperator, Why, WindowConfig,
};
use std::cell::RefCell;

use crate::harness::{Feed, Rig, Sink, blueprint, counters, run_out};

thread_local! {
    static SHOWN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn config() -> WindowConfig {
    let streams = StreamConfig { flows: 100, idle: 1_000_000_000, ..StreamConfig::default() };
    WindowConfig { streams, memory: 4_096, ..WindowConfig::new(4, 4, 1_000_000_000) }
}

/// Remembers every window, and panics at one that begins with an exclamation mark.
fn watch(input: Input, worker: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Tcp>()
        .or(Verdict::PASS)
        .window(worker, "streams", config(), |window| {
            let text = String::from_utf8_lossy(window.bytes).into_owned();
            assert!(!text.starts_with('!'), "a window of {text}");
            SHOWN.with_borrow_mut(|shown| shown.push(format!("{text} {:?}", window.why)));
        })
        .done()
}

fn shown() -> Vec<String> {
    SHOWN.take()
}

fn tcp(port: u16, sequence: u32, text: &str) -> Vec<u8> {
    ethernet()
        .vlan(7)
        .ipv4("10.0.0.1", "10.0.0.2")
        .tcp(port, 80)
        .sequence(sequence)
        .ack(7)
        .payload(text.as_bytes())
        .build()
        .unwrap()
}

#[test]
fn packets_pass_unchanged_and_windows_are_shown_in_order() {
    let other = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"abcdefgh").build().unwrap();
    let frames =
        [tcp(1, 0, "ab"), tcp(1, 6, "gh"), other, tcp(2, 0, "wxyz"), tcp(1, 2, "cdef"), tcp(1, 9, "j")];
    let report = netbricks_testkit::run_with(watch, frames.clone());
    assert_eq!(report.out, frames);
    // Once for each batch size; a window that was not full is shown when the graph is taken down.
    let once = ["wxyz Full", "abcd Full", "efgh Full", " End(Drained)", "j End(Drained)"];
    let all = shown();
    let (first, rest) = all.split_at(all.len() / 3);
    assert_eq!(rest, [first, first].concat(), "they don't depend on the batch size");
    assert_eq!(first, once);
}

#[test]
fn silence_shows_what_there_is_by_the_clock() {
    let (feed, sink) = (Feed::default(), Sink::default());
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(feed.clone()));
    let node = rig.function("watch", &blueprint(|worker| compose(worker, |input| watch(input, worker))));
    let end = rig.add("end", Box::new(sink));
    rig.chain(&[source, node, end]);
    let (mut graph, _pool) = rig.build();
    shown();
    let mut at = |now| {
        for _ in 0..10 {
            graph.turn(now);
        }
        shown()
    };
    const SECOND: u64 = 1_000_000_000;
    feed.add([tcp(1, 0, "ab")]);
    assert_eq!(at(10 * SECOND), [""; 0]);
    feed.add([tcp(1, 2, "c")]);
    assert_eq!(at(10 * SECOND + SECOND / 2), [""; 0]);
    assert_eq!(at(11 * SECOND + SECOND / 4), [""; 0], "its second begins with the last packet");
    // Late by no more than a run of the event, which runs eight times in a timeout.
    assert_eq!(at(11 * SECOND + SECOND / 2 + SECOND / 8), ["abc End(Idle)"]);
    assert_eq!(graph.call("watch", "streams.occupancy", "").unwrap(), "0 100");
}

#[test]
fn a_panic_in_a_window_costs_its_batch_and_resets_its_streams() {
    observe_panics();
    shown();
    let sink = Sink::default();
    let mut rig = Rig::new();
    let frames =
        [tcp(1, 0, "abc"), tcp(2, 0, "abcdef"), tcp(3, 0, "!bang"), tcp(1, 3, "defg"), tcp(2, 6, "gh")];
    let source = rig.add("source", Box::new(Feed::of(frames.clone())));
    let node = rig.function("watch", &blueprint(|worker| compose(worker, |input| watch(input, worker))));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(1);
    run_out(&mut graph);
    let panics = graph.take_panics();
    assert_eq!((panics.len(), panics[0].node.as_str(), panics[0].packets), (1, "watch", 1));
    assert!(panics[0].rebuilt && panics[0].message.contains("a window of !ban"), "{}", panics[0].message);
    assert_eq!(counters(&graph, "watch").drops.of(DropReason::Panicked).packets, 1);
    assert_eq!(sink.frames().len(), 4, "the others were none of its business");
    assert!(graph.totals().is_conserved());
    assert_eq!(shown(), ["abcd Full", "defg Full"], "half a window was thrown away with the rest");
    assert_eq!(graph.call("watch", "streams.occupancy", "").unwrap(), "2 100");
    graph.drain(0);
    assert_eq!(shown(), [" End(Drained)", "gh End(Drained)"]);
    drop(graph);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn windows_that_cannot_be_fail_the_building_of_their_node() {
    let worker = crate::harness::worker(&crate::harness::pool());
    let built = |config: WindowConfig| {
        compose(&worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Tcp>()
                .window(&worker, "streams", config, |_| ())
                .done()
        })
        .err()
        .map(|error| error.to_string())
    };
    assert_eq!(built(config()), None);
    let error = built(WindowConfig { slide: 5, ..config() }).unwrap();
    assert!(error.starts_with("windows `streams`: its size is 4 bytes but it slides by 5"), "{error}");
    assert!(built(WindowConfig { size: 0, ..config() }).unwrap().contains("size is 0 bytes"));
    let none = StreamConfig { flows: 0, ..StreamConfig::default() };
    assert!(built(WindowConfig { streams: none, ..config() }).unwrap().contains("capacity is 0 flows"));
}

/// Cuts at a window that begins with a question mark, and panics at one that begins with an exclamation mark.
fn gated(input: Input, worker: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .parse::<Tcp>()
        .or(Edge::OUT)
        .window_in_path(worker, "streams", InlineWindowConfig::new(4, 4, 0), |window, replacing| {
            assert!(!window.bytes.starts_with(b"!"), "a window in the way");
            match window.bytes {
                [b'?', ..] => Fate::Cut(Cut::Reset),
                [b'x', ..] if replacing.replace(0..1, b"XXXX") => Fate::Pass,
                _ if window.why == Why::Due => Fate::Hold,
                _ => Fate::Pass,
            }
        })
        .done()
}

fn opening(port: u16) -> [Vec<u8>; 2] {
    let syn =
        ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).sequence(u32::MAX).flags(flags::SYN);
    let answer = ethernet().vlan(7).ipv4("10.0.0.2", "10.0.0.1").tcp(80, port).sequence(6).ack(0);
    [syn, answer.flags(flags::SYN | flags::ACK)].map(|tcp| tcp.build().unwrap())
}

/// At 1, 32 and 256 packets a batch: the run compares them.
#[test]
fn windows_in_the_packets_way_hold_and_cut_and_replace() {
    let said = |port, at, text| {
        let tcp = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).sequence(at).ack(7);
        tcp.payload(str::as_bytes(text)).build().unwrap()
    };
    let mut frames = [opening(1), opening(2), opening(3)].concat();
    frames.extend([
        said(1, 0, "ab"),
        said(2, 0, "?"),
        said(3, 4, "late"),
        said(1, 2, "cdefghi"),
        said(3, 0, "xyzw"),
    ]);
    frames.extend([said(2, 1, "again"), said(1, 9, "j")]);
    let report = netbricks_testkit::run_with(gated, frames);
    let text = |frame: &Vec<u8>| String::from_utf8_lossy(&frame[58..]).into_owned();
    let texts: Vec<String> = report.out[6..].iter().map(text).filter(|text| text.len() > 1).collect();
    assert_eq!(texts, ["abcdefgh", "XXXXyzwlate"]);
    assert_eq!(report.replies.len(), 2, "a reset for each");
    assert_eq!(report.dropped(DropReason::Denied), 2);
}

#[test]
fn a_panic_in_a_window_in_the_packets_way_costs_its_batch() {
    observe_panics();
    let frames = [opening(1), opening(2)].concat().into_iter();
    let frames = frames.chain([tcp(1, 0, "abcd"), tcp(2, 0, "!"), tcp(1, 4, "efgh"), tcp(3, 0, "no stream")]);
    let (sink, mut rig) = (Sink::default(), Rig::new());
    let source = rig.add("source", Box::new(Feed::of(frames)));
    let node = rig.function("gated", &blueprint(|worker| compose(worker, |input| gated(input, worker))));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(1);
    run_out(&mut graph);
    let panics = graph.take_panics();
    assert_eq!((panics.len(), panics[0].packets, panics[0].rebuilt), (1, 1, true));
    assert!(panics[0].message.contains("a window in the way"), "{}", panics[0].message);
    // Its streams start empty: other streams' segments belong to no known stream.
    assert_eq!(sink.frames().len(), 4 + 1 + 2);
    assert!(graph.totals().is_conserved());
    graph.drain(0);
    drop(graph);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn windows_in_the_packets_way_that_cannot_be_fail_the_building_of_their_node() {
    let worker = crate::harness::worker(&crate::harness::pool());
    let built = |config: InlineWindowConfig| {
        compose(&worker, |input| {
            let tcp = input.parse::<Link>().parse::<Ip>().parse::<Tcp>();
            tcp.window_in_path(&worker, "gate", config, |_, _| Fate::Pass).done()
        })
        .err()
        .map(|error| error.to_string())
    };
    let good = InlineWindowConfig::new(4, 4, 0);
    assert_eq!(built(good), None);
    let error = built(InlineWindowConfig { slide: 5, ..good }).unwrap();
    assert!(error.starts_with("windows `gate`: its size is 4 bytes but it slides by 5"), "{error}");
    let packets = PacketizeConfig { flows: 0, ..good.packets };
    let error = built(InlineWindowConfig { packets, ..good }).unwrap();
    assert!(error.starts_with("streams `gate`: connections: ") && error.contains("capacity is 0"), "{error}");
}
