//! Tests of shuffles that a file does not name.
//!
//! Where the queues of a port separate the directions of a flow, state by flow is the same as on one worker.

use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Context, Function, Input, NoSettings, Operator, Poll, Section, TableKey, Worker, compose,
};
use netbricks_ports::{
    Capabilities, Counters, Drivers, OpenContext, Port, PortDriver, PortError, QueueDivision, ReceiveQueue,
    TransmitQueue,
};

use super::file::{self, Checked, File};
use super::run::{How, execute};
use super::{Application, Console, RunLimits};
use crate::chain::Division;
use crate::report::Summary;

const FLOWS: u16 = 60;
/// Packets of a flow in each direction.
const EACH_WAY: u16 = 20;

/// Brings flows of which one direction comes by the first queue and the other by the last queue.
struct Parting(String, usize, Vec<Arc<Counters>>);

impl Port for Parting {
    fn driver(&self) -> &'static str {
        "parting"
    }
    fn name(&self) -> &str {
        &self.0
    }
    fn mtu(&self) -> usize {
        1_500
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { receive_queues: self.1, symmetric_rss: self.1 == 1, ..Capabilities::default() }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.2.clone()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        Ok(Box::new(Way::of(queue == 0, queue == self.1 - 1)))
    }
    fn take_transmit(&mut self, _: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        panic!("nothing is sent here")
    }
}

struct Way(std::vec::IntoIter<Vec<u8>>);

impl Way {
    /// Frames of one direction of all flows, of the other, or of both.
    fn of(there: bool, back: bool) -> Self {
        let mut frames = Vec::new();
        for _ in 0..EACH_WAY {
            for flow in 0..FLOWS {
                let (client, server) = (format!("10.0.0.{flow}"), "192.0.2.1");
                let one = ethernet().ipv4(client.as_str(), server).udp(1_000 + flow, 53).payload(b"?");
                let other = ethernet().ipv4(server, client.as_str()).udp(53, 1_000 + flow).payload(b"!");
                let ways = [(there, one.build().unwrap()), (back, other.build().unwrap())];
                frames.extend(ways.into_iter().filter(|(is_here, _)| *is_here).map(|(_, frame)| frame));
            }
        }
        Self(frames.into_iter())
    }
}

/// Brings one direction of all flows by one queue: `lan` that of the clients, `wan` that of the servers.
struct OneWay(String, Arc<Counters>);

impl Port for OneWay {
    fn driver(&self) -> &'static str {
        "one-way"
    }
    fn name(&self) -> &str {
        &self.0
    }
    fn mtu(&self) -> usize {
        1_500
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { receive_queues: 1, symmetric_rss: true, ..Capabilities::default() }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        vec![self.1.clone()]
    }
    fn take_receive(&mut self, _: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        Ok(Box::new(Way::of(self.0 == "lan", self.0 == "wan")))
    }
    fn take_transmit(&mut self, _: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        panic!("nothing is sent here")
    }
}

impl ReceiveQueue for Way {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for _ in 0..cx.burst() {
            let Some(frame) = self.0.next() else { return Poll::Done };
            assert!(batch.push(cx.pool().packet(&frame).unwrap()).is_ok());
        }
        Poll::Busy
    }
}

/// Counts the packets of each connection, both directions together.
fn connections(input: Input, worker: &Worker) -> impl Function + use<> {
    let connections = worker.flow_table::<FlowKey, u64>("connections", FlowTableConfig::new(1_024));
    let told = connections.clone();
    worker.report(move || Section {
        title: "connections".into(),
        columns: vec!["connection".into(), "packets".into()],
        rows: told.with(|table| {
            table
                .iter()
                .map(|(key, seen)| vec![FlowKey::restore(key).to_string(), seen.to_string()])
                .collect()
        }),
        ..Section::default()
    });
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &connections,
            |p| {
                let flow = p.flow_key();
                flow.min(flow.reversed())
            },
            |_, entry| entry.or_insert_with(|| 0).map(|seen| *seen += 1).is_some(),
        )
        .done()
}

struct PartingDriver;

impl PortDriver for PartingDriver {
    type Settings = NoSettings;
    const NAME: &'static str = "parting";
    const SUMMARY: &'static str = "Parts the directions of flows.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    fn open(&self, name: &str, _: &NoSettings, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        let queues = cx.queues.max(1);
        Ok(Box::new(Parting(name.into(), queues, (0..queues).map(|_| Arc::default()).collect())))
    }
}

struct OneWayDriver;

impl PortDriver for OneWayDriver {
    type Settings = NoSettings;
    const NAME: &'static str = "one-way";
    const SUMMARY: &'static str = "Brings one direction of flows.";
    fn open(&self, name: &str, _: &NoSettings, _: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(OneWay(name.into(), Arc::default())))
    }
}

fn application() -> Application {
    let mut registry = crate::standard();
    registry.add("connections", "Counts the packets of connections.", |_: &NoSettings, worker| {
        compose(worker, |input| connections(input, worker))
    });
    let mut drivers = Drivers::standard();
    drivers.add(PartingDriver).add(OneWayDriver);
    Application::new(registry, drivers)
}

fn file(text: &str) -> File {
    File {
        name: "f.toml".into(),
        text: text.into(),
        directory: std::path::PathBuf::new(),
        files: Default::default(),
    }
}

fn chain(through: &str, runtime: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"parting\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"wan\"\n[runtime]\n{runtime}\n"
    )
}

fn run(text: &str) -> Summary {
    let (app, file) = (application(), file(text));
    let console = Console { color: false, live: false };
    let checked = file::check(&app, &file).ok().unwrap();
    let limits = RunLimits { duration: None, quiet: true, unannounced: true };
    let summary = execute(&app, console, &file, checked, &How::plain(&limits, true), None).ok().unwrap();
    let packets = u64::from(2 * FLOWS * EACH_WAY);
    assert_eq!((summary.received, summary.sent), (packets, packets));
    assert!(summary.succeeded() && summary.held == 0, "{summary:?}");
    summary
}

fn rows(summary: &Summary) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = summary.sections.iter().flat_map(|section| section.section.rows.clone()).collect();
    rows.sort();
    rows
}

#[test]
fn both_directions_meet_at_one_workers_state_whatever_the_queues_do() {
    let alone = rows(&run(&chain("\"connections\"", "workers = 1")));
    assert_eq!(alone.len(), usize::from(FLOWS));
    assert!(alone.iter().all(|row| row[1] == (2 * EACH_WAY).to_string()), "{alone:?}");
    for burst in [1, 32, 256] {
        for workers in [2, 3] {
            let summary = run(&chain("\"connections\"", &format!("workers = {workers}\nburst = {burst}")));
            assert_eq!(rows(&summary), alone, "{workers} workers, bursts of {burst}");
            let node = summary.nodes.iter().find(|node| node.name == "lan.shuffle").unwrap();
            assert!(node.kind == "shuffle" && node.handoff_out > 0, "{node:?}");
            assert!(summary.warnings.iter().all(|warning| !warning.contains("directions")));
        }
    }
}

#[test]
fn switched_off_it_is_missed_and_a_warning_says_so() {
    let summary = run(&chain("\"connections\"", "workers = 2\nshuffles = false"));
    assert_eq!(rows(&summary).len(), usize::from(2 * FLOWS), "each worker knows half of each connection");
    assert!(summary.nodes.iter().all(|node| node.kind != "shuffle"));
    let expected = "the queues of port `lan` may bring the two directions of a flow to different workers, and \
                    `connections` keeps state by flow; let a `shuffle` come first in the chain";
    assert!(summary.warnings.iter().any(|warning| warning.contains(expected)), "{:?}", summary.warnings);
    // `check` warns at the port.
    let (app, file) = (application(), file(&chain("\"connections\"", "workers = 2\nshuffles = false")));
    let checked = checked(&app, &file);
    let shown = checked.diagnostics.render(&checked.source, false);
    for part in
        ["the two directions of a flow to different workers", "[port.lan]", "take `shuffles = false` out of"]
    {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn none_is_put_in_where_it_would_do_nothing() {
    for (through, runtime) in [
        ("\"connections\"", "workers = 1"),
        // The file's own shuffle suffices.
        ("\"shuffle\", \"connections\"", "workers = 2"),
        // These functions keep no state by flow.
        ("\"ttl\", \"macswap\"", "workers = 2"),
    ] {
        let summary = run(&chain(through, runtime));
        assert!(summary.nodes.iter().all(|node| !node.name.ends_with(".shuffle")), "{through}, {runtime}");
    }
}

fn checked<'t>(app: &Application, file: &'t File) -> Checked<'t> {
    file::check_spread(app, file).ok().unwrap()
}

#[test]
fn it_is_in_the_drawing_with_its_reason() {
    let app = application();
    let named = |text: &str| {
        let file = file(text);
        let checked = checked(&app, &file);
        let edges: Vec<_> =
            checked.graph.describe().edges.into_iter().map(|edge| (edge.from, edge.to)).collect();
        (edges, checked.told_shuffles().collect::<Vec<_>>())
    };
    let (edges, told) = named(&chain("\"connections\"", "workers = 2"));
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert!(
        edges.contains(&edge("lan", "lan.shuffle")) && edges.contains(&edge("lan.shuffle", "connections"))
    );
    assert_eq!(told.len(), 1);
    assert!(
        told[0].contains("port `lan`") && told[0].contains("`connections` keeps state by flow"),
        "{told:?}"
    );
    for runtime in ["workers = 1", "workers = 2\nshuffles = false"] {
        let (edges, told) = named(&chain("\"connections\"", runtime));
        assert!(edges.contains(&edge("lan", "connections")) && told.is_empty(), "{runtime}");
    }
}

/// Two ports bring the directions of a flow to one function's state.
#[test]
fn ports_whose_flows_meet_are_judged_together() {
    let app = application();
    let text = "[port.lan]\ndriver = \"af_packet\"\ndevice = \"a\"\n[port.wan]\ndriver = \"af_packet\"\n\
                device = \"b\"\n[[chain]]\nfrom = \"lan\"\nthrough = [\"connections\"]\nto = \"wan\"\n\
                [[chain]]\nfrom = \"wan\"\nthrough = [\"connections\"]\nto = \"lan\"\n[runtime]\nworkers = 2\n";
    let file = file(text);
    let checked = file::check(&app, &file).ok().unwrap();
    let parted = |divisions: [(usize, bool); 2], workers| {
        let divisions = divisions.map(|(queues, symmetric)| {
            let rules = netbricks_ports::steer::Rules::default();
            Division { queues, symmetric, rules, steered: false }
        });
        let parted = checked.network.parted(&checked.plan, &divisions, workers);
        parted.into_iter().map(|parted| parted.node).collect::<Vec<_>>()
    };
    let both = ["lan.shuffle", "wan.shuffle"];
    assert!(parted([(2, true), (2, true)], 2).is_empty(), "one hash, the same queues, the same workers");
    assert!(parted([(1, false), (1, false)], 2).is_empty(), "one queue each, side by side");
    assert!(parted([(2, false), (2, false)], 1).is_empty(), "one worker");
    assert_eq!(parted([(2, true), (2, false)], 2), both);
    assert_eq!(parted([(2, true), (1, true)], 2), both, "a queue that the other port has not");
}

/// Nothing shows the state of a module: it is taken to be state of connections.
#[test]
fn a_module_is_state_by_flow_unless_it_says_that_it_keeps_none() {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/macswap.wasm");
    let app = application();
    for (state, kept) in [("", true), ("state = \"flow\"", true), ("state = \"none\"", false)] {
        let text = format!(
            "[port.lan]\ndriver = \"af_packet\"\ndevice = \"a\"\n[port.wan]\ndriver = \"af_packet\"\ndevice = \"b\"\n\
             [function.guest]\nuse = \"sandbox\"\nmodule = {module:?}\n{state}\n\
             [[chain]]\nfrom = \"lan\"\nthrough = [\"guest\"]\nto = \"wan\"\n\
             [[chain]]\nfrom = \"wan\"\nthrough = [\"guest\"]\nto = \"lan\"\n[runtime]\nworkers = 2\n"
        );
        let file = file(&text);
        let checked = file::check(&app, &file).ok().unwrap();
        assert_eq!((&checked.network.by_flow[..], &checked.network.of_both[..]), (&[kept][..], &[kept][..]));
        let divisions = [true, false].map(|symmetric| {
            let rules = netbricks_ports::steer::Rules::default();
            Division { queues: 2, symmetric, rules, steered: false }
        });
        let parted = checked.network.parted(&checked.plan, &divisions, 2);
        assert_eq!(parted.len(), if kept { 2 } else { 0 }, "{state}");
        let way_out = "`guest` keeps state by flow, as a module does unless it has `state = \"none\"`";
        assert!(parted.iter().all(|parted| parted.why.ends_with(way_out)), "{parted:?}");
    }
}

/// Ports that steer by equal rules, which keep directions together, need no more than ports without rules.
///
/// Other rules separate packets that meet at one state.
#[test]
fn rules_part_the_directions_of_flows_unless_they_are_symmetric_and_alike() {
    let app = application();
    let put_in = |[lan, wan]: [&str; 2]| {
        let port = |name: &str, steer: &str| {
            format!("[port.{name}]\ndriver = \"af_packet\"\ndevice = \"{name}\"\nsteer = [{steer}]\n")
        };
        let chains = "[[chain]]\nfrom = \"lan\"\nthrough = [\"connections\"]\nto = \"wan\"\n\
                      [[chain]]\nfrom = \"wan\"\nthrough = [\"connections\"]\nto = \"lan\"\n[runtime]\nworkers = 2\n";
        let file = file(&format!("{}{}{chains}", port("lan", lan), port("wan", wan)));
        checked(&app, &file).shuffles.len()
    };
    let udp = "{ protocol = \"udp\", queue = 1 }";
    let to_53 = "{ protocol = \"udp\", destination_port = 53, queue = 1 }";
    let from_53 = "{ protocol = \"udp\", source_port = 53, queue = 1 }";
    assert_eq!(put_in(["", ""]), 0);
    assert_eq!(put_in([udp, udp]), 0);
    assert_eq!(put_in([udp, ""]), 2, "what comes by queue 1 here comes by either there");
    assert_eq!(put_in([to_53, to_53]), 2);
    let both = format!("{to_53}, {from_53}");
    assert_eq!(put_in([&both, &both]), 0);
    let vlan = "{ vlan = 10, queue = 1 }";
    assert_eq!(put_in([vlan, vlan]), 2, "a flow may come back by another VLAN");
}

/// Two ports that each bring one direction; only the chain of `lan` names a shuffle.
fn one_shuffled(key: &str, workers: usize) -> String {
    format!(
        "[port.lan]\ndriver = \"one-way\"\n[port.wan]\ndriver = \"one-way\"\n[port.out]\ndriver = \"null\"\n\
         [function.named]\nuse = \"shuffle\"\nkey = \"{key}\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"named\", \"connections\"]\nto = \"out\"\n\
         [[chain]]\nfrom = \"wan\"\nthrough = [\"connections\"]\nto = \"out\"\n\
         [runtime]\nworkers = {workers}\n"
    )
}

#[test]
fn a_port_beside_one_with_a_shuffle_of_its_own_gets_one_too() {
    let alone = rows(&run(&one_shuffled("symmetric-flow", 1)));
    assert_eq!(alone.len(), usize::from(FLOWS));
    for workers in [2, 3] {
        let summary = run(&one_shuffled("symmetric-flow", workers));
        assert_eq!(rows(&summary), alone, "{workers} workers");
        let mut shuffles: Vec<_> = summary
            .nodes
            .iter()
            .filter(|node| node.kind == "shuffle")
            .map(|node| node.name.as_str())
            .collect();
        shuffles.sort_unstable();
        shuffles.dedup();
        assert_eq!(shuffles, ["named", "wan.shuffle"]);
    }
    let (app, file) = (application(), file(&one_shuffled("symmetric-flow", 2)));
    let told: Vec<String> = checked(&app, &file).told_shuffles().collect();
    let why = "`named` gives flows of port `lan` to workers that do not receive them, and `connections` keeps state by flow";
    assert!(told.len() == 1 && told[0].contains("put behind `wan`") && told[0].contains(why), "{told:?}");
}

/// Filters that bring each flow of a port to one worker do not know which worker a shuffle chooses.
#[test]
fn a_port_with_filters_beside_one_with_a_shuffle_of_its_own_gets_one_too() {
    let app = application();
    let parted = |text: &str| {
        let file = file(text);
        let checked = file::check(&app, &file).ok().unwrap();
        let division = |steered| {
            let rules = netbricks_ports::steer::Rules::default();
            Division { queues: 2, symmetric: true, rules, steered }
        };
        let divisions = [division(false), division(true), division(false)];
        let parted = checked.network.parted(&checked.plan, &divisions, 2);
        parted.into_iter().map(|parted| parted.node).collect::<Vec<_>>()
    };
    let shuffled = one_shuffled("symmetric-flow", 2);
    assert_eq!(parted(&shuffled), ["wan.shuffle"]);
    let both = shuffled.replace(
        "[[chain]]\nfrom = \"wan\"\nthrough = [",
        "[function.back]\nuse = \"shuffle\"\n[[chain]]\nfrom = \"wan\"\nthrough = [\"back\", ",
    );
    assert!(parted(&both).is_empty(), "shuffles have the packets of both ports");
}

#[test]
fn a_shuffle_by_another_key_before_state_that_another_port_comes_to_is_warned_of_in_its_place() {
    let (app, text) = (application(), one_shuffled("source", 2));
    let file = file(&text);
    let checked = checked(&app, &file);
    assert_eq!(checked.told_shuffles().count(), 0, "none that could be put in would do it");
    let shown = checked.diagnostics.render(&checked.source, false);
    for part in [
        "warning: the two directions of a flow may come to `connections` on different workers: by port `lan` where `named` \
         gives them to, by port `wan` where they are received",
        "f.toml:15:8",
        "from = \"wan\"",
        "no shuffle between here and `connections`",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let file = self::file(&one_shuffled("source", 1));
    assert!(self::checked(&app, &file).diagnostics.is_empty(), "one worker has all");
}

/// Each direction passes a shuffle, and the two keys together decide whether they meet.
#[test]
fn two_shuffles_that_part_the_directions_of_a_flow_are_warned_of() {
    let app = application();
    let shown = |key: &str, other: &str, workers: usize| {
        let text = one_shuffled(key, workers).replace(
            "[[chain]]\nfrom = \"wan\"\nthrough = [",
            &format!(
                "[function.back]\nuse = \"shuffle\"\nkey = \"{other}\"\n[[chain]]\nfrom = \"wan\"\nthrough = [\"back\", "
            ),
        );
        let file = file(&text);
        let checked = checked(&app, &file);
        checked.diagnostics.render(&checked.source, false)
    };
    for (key, other) in [
        ("source", "source"),
        ("flow", "flow"),
        ("symmetric-flow", "flow"),
        ("port", "port"),
        ("source", "vlan"),
    ] {
        let shown = shown(key, other, 2);
        for part in [
            "warning: the two directions of a flow may come to `connections` on different workers: `named` and `back` sort \
             them by keys that don't bring them together",
            &format!("sorts what port `lan` receives by `{key}`"),
            &format!("sorts what port `wan` receives by `{other}`"),
        ] {
            assert!(shown.contains(part), "{key} and {other}: {part} is not in {shown}");
        }
        assert_eq!(shown.matches("warning").count(), 1, "{shown}");
    }
    for (key, other) in [("source", "destination"), ("symmetric-flow", "symmetric-flow"), ("vlan", "vlan")] {
        assert_eq!(shown(key, other, 2), "", "{key} and {other}");
    }
    assert_eq!(shown("source", "source", 1), "", "one worker has all");
}

/// Behind one port that brings both directions, only functions of both directions need a symmetric key.
///
/// A function of one direction may be sorted by a key of that direction.
#[test]
fn one_port_whose_shuffle_parts_the_directions_of_connections_is_warned_of() {
    let app = application();
    let shown = |function: &str, key: &str, workers: usize| {
        let text = format!(
            "[runtime]\nworkers = {workers}\n[port.lan]\ndriver = \"null\"\n[function.sorted]\nuse = \"shuffle\"\n\
             key = \"{key}\"\n[function.behind]\n{function}\n[[chain]]\nfrom = \"lan\"\n\
             through = [\"sorted\", \"behind\"]\nto = \"lan\"\n"
        );
        let file = file(&text);
        let checked = checked(&app, &file);
        checked.diagnostics.render(&checked.source, false)
    };
    let (inspect, rewrite) =
        ("use = \"http-inspect\"", "use = \"rewrite-stream\"\nfind = \"a\"\nreplace = \"b\"");
    for function in [inspect, rewrite] {
        for key in ["flow", "source", "destination"] {
            let shown = shown(function, key, 2);
            for part in [
                &format!(
                    "the two directions of a connection may come to `behind` on different workers: `sorted` sorts both by \
                     `{key}`"
                ),
                "through = [\"sorted\", \"behind\"]",
                "key = \"symmetric-flow\"",
            ] {
                assert!(shown.contains(part), "{key}: {part} is not in {shown}");
            }
            assert_eq!(shown.matches("warning").count(), 1, "{shown}");
        }
        for key in ["symmetric-flow", "port", "vlan"] {
            assert_eq!(shown(function, key, 2), "", "{key}");
        }
        assert_eq!(shown(function, "source", 1), "", "one worker has all");
    }
    assert_eq!(shown("use = \"monitor\"", "source", 2), "", "a direction is a flow of its own there");
}
