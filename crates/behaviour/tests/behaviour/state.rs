//! Declared state is found by name: handlers, export and import, reports; also drops and owners.

use netbricks_core::buffer::Batch;
use netbricks_core::consistency::{
    BoundedInconsistency, Consistency, Lookable, MapEntry, NoExternalAccess, Strict,
};
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{FlowTableConfig, Full};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    CallError, DetachedContext, Function, Graph, Handler, ImportError, Input, Operator, Section, Worker,
    compose,
};
use netbricks_core::{DropReason, recorder::KEPT_BYTES};
use netbricks_testkit::build::ethernet;

use crate::consistency::{Flows, frame};
use crate::harness::{Feed, Rig, Sink, act, blueprint, nothing, numbered, pool, run_out, worker};

fn counting(input: Input, worker: &Worker) -> impl Function {
    let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(100));
    let packets = worker.counter("packets");
    let (size, reported, counted) = (flows.clone(), flows.clone(), packets.clone());
    worker.handler(
        Handler::write("add", "Adds to the count of packets.").argument("NUMBER"),
        move |argument| {
            let by: u64 =
                argument.parse().map_err(|_| format!("expected a whole number, found `{argument}`"))?;
            counted.add(by);
            Ok(format!("{} packets of {} flows", counted.get(), size.with(|table| table.len())))
        },
    );
    worker.report(move || Section {
        title: "flows".into(),
        columns: vec!["flows".into()],
        rows: vec![vec![reported.with(|table| table.len()).to_string()]],
        ..Section::default()
    });
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |p| p.flow_key(),
            |_, entry| {
                if let Some(seen) = entry.or_insert_with(|| 0) {
                    *seen += 1;
                }
            },
        )
        .inspect(move |_| packets.add(1))
        .done()
}

fn graph(flows: u16) -> Graph {
    let frames =
        (0..flows).map(|port| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).build().unwrap());
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of(frames)));
    let node = rig.function("count", &blueprint(|worker| compose(worker, |input| counting(input, worker))));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    graph
}

#[test]
fn handlers_are_called_by_name() {
    let mut graph = graph(7);
    assert_eq!(graph.call("count", "add", "5"), Ok("12 packets of 7 flows".into()));
    assert_eq!(graph.call("count", "flows.occupancy", ""), Ok("7 100".into()));
    let error = graph.call("count", "add", "five").unwrap_err();
    assert_eq!(error.to_string(), "handler `add`: expected a whole number, found `five`");
    let error = graph.call("count", "size", "").unwrap_err();
    let known =
        "add, flows.occupancy, flows.evicted, flows.expired, flows.refused, packets.occupancy".to_owned();
    assert_eq!(error.to_string(), format!("no handler `size`; there are: {known}"));
    // A counter is no table.
    assert!(matches!(graph.call("count", "packets.evicted", ""), Err(CallError::Unknown { .. })));
    assert!(matches!(graph.call("count", "flows.hits", ""), Err(CallError::Unknown { .. })));
    let known = "source, count, end".to_owned();
    assert_eq!(graph.call("absent", "add", ""), Err(CallError::Unknown { name: "absent.add".into(), known }));
    assert!(matches!(graph.call("end", "add", ""), Err(CallError::Unknown { .. })));
    assert_eq!(graph.reports()[0].1[0].rows, [["7"]]);
}

/// Remembers every flow for which there is room.
fn remembering<C>(input: Input, worker: &Worker, consistency: C, config: FlowTableConfig) -> impl Function
where
    C: Consistency,
    C::Handle<Flows>: Lookable<Table = Flows>,
    for<'e> <C::Handle<Flows> as Lookable>::Entry<'e>: MapEntry<Value = u64>,
{
    let flows = worker.state::<Flows, C>("flows", consistency, config);
    let input = input.parse::<Link>().parse::<Ip>();
    // No other worker writes.
    input.lookup(&flows, |p| p.flow_key(), |_, entry| entry.put(1).is_ok()).done()
}

/// The counts of flows evicted, expired and refused.
///
/// Packets of 20 flows, and much later some of one of them, pass a table of 16.
fn counted<C>(consistency: C, full: Full) -> [String; 3]
where
    C: Consistency,
    C::Handle<Flows>: Lookable<Table = Flows>,
    for<'e> <C::Handle<Flows> as Lookable>::Entry<'e>: MapEntry<Value = u64>,
{
    const IDLE: u64 = 1_000_000_000;
    let pool = pool();
    let worker = worker(&pool);
    let config = FlowTableConfig { full, idle_timeout: Some(IDLE), ..FlowTableConfig::new(16) };
    let mut node = compose(&worker, |input| remembering(input, &worker, consistency, config)).unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    // Entries that are due end in parts.
    let later = (0..8).map(|part| (10 * IDLE + part * IDLE / 16, 19..20));
    for (now, ports) in std::iter::once((0, 0..20)).chain(later) {
        cx.advance(now);
        let mut batch = Batch::new();
        ports.for_each(|port| batch.push(pool.packet(&frame(port)).unwrap()).unwrap());
        node.process(0, &mut batch, &mut cx);
    }
    ["evicted", "expired", "refused"].map(|count| node.call(&format!("flows.{count}"), "").unwrap())
}

#[test]
fn a_table_says_how_many_flows_left_it_and_how_many_found_no_place() {
    // All earlier flows have expired when the last packets come, so these need no other flow's place.
    for (full, expected) in [(Full::Refuse, ["0", "16", "4"]), (Full::EvictOldest, ["4", "16", "0"])] {
        assert_eq!(counted(NoExternalAccess, full), expected, "{full:?}");
        assert_eq!(counted(Strict, full), expected, "{full:?}");
        assert_eq!(counted(BoundedInconsistency { updates: 3 }, full), expected, "{full:?}");
    }
}

#[test]
fn state_goes_from_one_graph_to_another() {
    let (from, mut to) = (graph(50), graph(3));
    let images = from.export();
    assert_eq!(
        images.iter().map(|(node, (name, _))| format!("{node}.{name}")).collect::<Vec<_>>(),
        ["count.flows", "count.packets"]
    );
    for (node, (name, bytes)) in &images {
        to.import(node, name, bytes).unwrap();
    }
    assert_eq!(to.call("count", "add", "0"), Ok("50 packets of 50 flows".into()));
    // The import equals the export: exported again it is the same.
    let sorted = |graph: &Graph| {
        graph.export().into_iter().map(|(_, (name, bytes))| (name, bytes.len())).collect::<Vec<_>>()
    };
    assert_eq!(sorted(&from), sorted(&to));
}

#[test]
fn bytes_that_are_no_export_are_refused_and_change_nothing() {
    let (from, mut to) = (graph(50), graph(3));
    let images = from.export();
    let (_, (name, flows)) = &images[0];
    let refused = |to: &mut Graph, name: &str, bytes: &[u8]| {
        let error = to.import("count", name, bytes).unwrap_err();
        assert!(matches!(&error, ImportError::Refused { name: found, .. } if found == name), "{error}");
        assert_eq!(to.call("count", "add", "0"), Ok("3 packets of 3 flows".into()));
    };
    for at in 0..flows.len() {
        let mut corrupt = flows.clone();
        corrupt[at] ^= 1 << (at % 8);
        refused(&mut to, name, &corrupt);
    }
    for cut in [0, 1, 7, flows.len() / 2, flows.len() - 1] {
        refused(&mut to, name, &flows[..cut]);
    }
    refused(&mut to, "packets", &[1, 2, 3]);
    assert_eq!(to.import("count", "nothing", &[]), Err(ImportError::Unknown { name: "nothing".into() }));
    assert_eq!(to.import("absent", "flows", &[]), Err(ImportError::Unknown { name: "absent.flows".into() }));
    assert_eq!(to.import("end", "flows", &[]), Err(ImportError::Unknown { name: "flows".into() }));
    to.import("count", name, flows).unwrap();
}

#[test]
fn the_last_dropped_headers_are_kept_by_node_and_reason() {
    let mut rig = Rig::new();
    let mut large = numbered(1);
    large.resize(1_000, 7);
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered).chain([large]))));
    let node = rig.add(
        "drops",
        act(|_, batch, cx| {
            for packet in batch.drain() {
                let reason = if packet.len() > 60 { DropReason::TooBig } else { DropReason::Denied };
                cx.drop_packet(packet, reason);
            }
        })
        .boxed(),
    );
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    let records: Vec<_> =
        graph.dropped_headers().map(|(node, r)| (node, r.reason, r.frame_len, r.bytes().len())).collect();
    assert_eq!(
        records,
        [("drops", DropReason::TooBig, 1_000, KEPT_BYTES), ("drops", DropReason::Denied, 60, 60)]
    );
}

#[test]
fn counters_know_their_owner() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let (a, b) = (rig.add("a", nothing().boxed()), rig.add("b", nothing().boxed()));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, a, b, end]);
    rig.builder.own(a, 3);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    let owners: Vec<_> =
        graph.nodes().map(|node| (node.name, node.owner, node.counters.left.packets)).collect();
    assert_eq!(
        owners,
        [("source".into(), 0, 10), ("a".into(), 3, 10), ("b".into(), 0, 10), ("end".into(), 0, 0)]
    );
    assert_eq!(graph.nodes().map(|node| node.counters.left.bytes).sum::<u64>(), 1_800);
}
