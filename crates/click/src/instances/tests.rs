//! Instances in a graph: created, configured, suspended and destroyed while packets move, and all are accounted for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{CallError, Context, Edge, Graph, GraphBuilder, Node, Poll, Role, Shape, Worker};

use super::{InstanceSettings, InstancesSettings, node};

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// Brings in frames that a test puts there.
struct Source(Frames);

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < 32
            && let Some(frame) = self.0.borrow_mut().pop_front()
        {
            let packet = cx.pool().packet(&frame).expect("a frame is free");
            assert!(batch.push(packet).is_ok());
        }
        if batch.is_empty() { Poll::Idle } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Keeps the frames that leave.
struct Sink(Frames);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let (packets, bytes) = (batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.iter().map(|packet| packet.data().to_vec()));
        cx.transmitting().sent(packets, bytes);
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape { role: Role::Transmit, ..Shape::transmit() }
    }
}

/// A graph with the function between two devices.
pub(super) struct Rig {
    graph: Graph,
    pool: Pool,
    to: [Frames; 2],
    from: [Frames; 2],
    now: u64,
}

const DEVICES: [&str; 2] = ["left", "right"];

impl Rig {
    pub(super) fn new(settings: &str) -> Self {
        Self::with(settings_of(settings))
    }
    pub(super) fn with(mut settings: InstancesSettings) -> Self {
        settings.devices = DEVICES.map(str::to_owned).to_vec();
        let pool = Pool::builder().frames(4_096).build().expect("memory");
        let worker = Worker::new(0, 1, pool.clone());
        let (to, from): ([Frames; 2], [Frames; 2]) = Default::default();
        let mut builder = GraphBuilder::new("rig");
        let host = builder.add("host", node(&settings, &worker).expect("a node")).expect("a name");
        for (device, edge) in [(0, Edge::OUT), (1, Edge(2))] {
            let source =
                builder.add(format!("in{device}"), Box::new(Source(Rc::clone(&to[device])))).expect("a name");
            let sink = builder
                .add(format!("out{device}"), Box::new(Sink(Rc::clone(&from[device]))))
                .expect("a name");
            builder.connect(source, Edge::OUT, host, device).expect("an input");
            builder.connect(host, edge, sink, 0).expect("a way out");
        }
        let graph = builder.build(pool.clone()).expect("a graph");
        Self { graph, pool, to, from, now: 1_000 }
    }

    pub(super) fn call(&mut self, handler: &str, argument: &str) -> String {
        self.graph.call("host", handler, argument).expect("a good call")
    }
    pub(super) fn refused(&mut self, handler: &str, argument: &str) -> String {
        match self.graph.call("host", handler, argument) {
            Err(CallError::Argument { problem, .. }) => problem,
            other => panic!("{handler} {argument}: {other:?}"),
        }
    }
    pub(super) fn run(&mut self) {
        for _ in 0..400 {
            self.now += 1_000;
            self.graph.turn(self.now);
        }
    }
    /// Sends frames into a device, and returns those that left by each.
    pub(super) fn pass(&mut self, device: usize, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
        self.to[device].borrow_mut().extend(frames.iter().cloned());
        self.run();
        self.from.each_ref().map(|frames| frames.borrow_mut().drain(..).collect())
    }
    /// Takes the graph down: all packets are accounted for, and the pool is full again.
    pub(super) fn end(mut self) {
        assert_eq!(self.graph.drain(self.now), 0, "packets are held");
        assert!(self.graph.totals().is_conserved(), "{:?}", self.graph.totals());
        assert_eq!(self.graph.unbalanced(), Vec::<String>::new());
        drop(self.graph);
        assert_eq!(self.pool.available(), self.pool.capacity());
    }
}

pub(super) fn settings_of(text: &str) -> InstancesSettings {
    InstancesSettings { learning: text.contains("learning"), ..InstancesSettings::default() }
}

/// A frame to an address, from another, with one byte of its own.
pub(super) fn frame(to: u8, from: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame[59] = mark;
    frame
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    let mut swapped = frame.to_vec();
    swapped[..6].copy_from_slice(&frame[6..12]);
    swapped[6..12].copy_from_slice(&frame[..6]);
    swapped
}

const MIRROR: &str = "FromDevice(0) -> c :: Counter -> EtherMirror -> ToDevice(0);";

#[test]
fn an_instance_answers_what_the_switch_brings_it() {
    let mut rig = Rig::new("learning");
    assert_eq!(rig.call("create", "echo mac=02:00:00:00:00:01 ring=64"), "created echo");
    assert_eq!(rig.call("install", &format!("echo\n{MIRROR}")), "echo runs 4 elements");
    let frames: Vec<Vec<u8>> = (0..200).map(|mark| frame(1, 9, mark)).collect();
    let [left, right] = rig.pass(0, &frames);
    assert_eq!(left, frames.iter().map(|frame| swapped(frame)).collect::<Vec<_>>());
    assert_eq!(right.len(), 0, "the address was learnt");
    assert_eq!(rig.call("read", "echo c.count"), "200");
    assert!(rig.call("list", "").contains("\"state\":\"running\""));
    rig.end();
}

#[test]
fn unknown_addresses_are_flooded_and_static_ones_are_not() {
    let mut rig = Rig::new("");
    let [left, right] = rig.pass(0, &[frame(5, 6, 1)]);
    assert_eq!((left.len(), right.len()), (0, 1));
    rig.call("map", "02:00:00:00:00:05 left");
    let [left, right] = rig.pass(0, &[frame(5, 6, 1)]);
    assert_eq!((left.len(), right.len()), (0, 0), "it is where it came from");
    let [left, right] = rig.pass(1, &[frame(5, 6, 1)]);
    assert_eq!((left.len(), right.len()), (1, 0));
    assert_eq!(rig.refused("map", "02:00:00:00:00:05 right"), "02-00-00-00-00-05 leads to a port already");
    assert_eq!(rig.refused("map", "02:00:00:00:00:06 up"), "the switch has no port `up`");
    rig.end();
}

#[test]
fn another_configuration_takes_over_and_a_bad_one_changes_nothing() {
    let mut rig = Rig::new("learning");
    rig.call("create", "box mac=02:00:00:00:00:01");
    rig.call("install", &format!("box\n{MIRROR}"));
    rig.pass(0, &[frame(1, 9, 0)]);
    let problem = rig.refused("install", "box\nFromDevice(0) -> Nonsense -> ToDevice(0);");
    assert!(problem.contains("box:1: undeclared element 'Nonsense'"), "{problem}");
    let problem = rig.refused("install", "box\nFromDevice(0) -> ToDevice(3);");
    assert_eq!(problem, "device `3`: instance `box` has ports 0 to 0");
    let problem = rig.refused("install", "box\nFromDevice(0) -> Discard; FromDevice(eth0) -> Discard;");
    assert_eq!(problem, "two elements take the packets of port 0");
    assert_eq!(rig.pass(0, &[frame(1, 9, 0)])[0].len(), 1);
    // What a queue holds goes over to the one of its name.
    rig.call("install", "box\nFromDevice(0) -> q :: Queue -> Idle;");
    rig.pass(0, &[frame(1, 9, 0), frame(1, 9, 1)]);
    assert_eq!(rig.call("read", "box q.length"), "2");
    rig.call("install", "box\nFromDevice(0) -> q :: Queue -> Unqueue -> EtherMirror -> ToDevice(0);");
    assert_eq!(rig.pass(0, &[frame(1, 9, 2)])[0].len(), 3);
    rig.call("install", "box\n");
    assert_eq!(rig.refused("read", "box c.count"), "`box` is empty: it has no elements");
    rig.end();
}

#[test]
fn parameters_have_values() {
    let mut rig = Rig::new("");
    rig.call("create", "box");
    rig.call("install", "box LIMIT=7\ni :: InfiniteSource(LIMIT $LIMIT) -> c :: Counter -> Discard;");
    rig.run();
    assert_eq!(rig.call("read", "box c.count"), "7");
    assert_eq!(rig.call("write", "box c.reset"), "");
    assert_eq!(rig.call("read", "box c.count"), "0");
    rig.end();
}

#[test]
fn a_suspended_instance_waits_and_its_losses_are_counted() {
    let mut rig = Rig::new("learning");
    rig.call("create", "box mac=02:00:00:00:00:01 ring=64");
    rig.call("install", &format!("box\n{MIRROR}"));
    rig.call("suspend", "box");
    let frames: Vec<Vec<u8>> = (0..100).map(|mark| frame(1, 9, mark)).collect();
    assert_eq!(rig.pass(0, &frames)[0].len(), 0);
    assert!(rig.call("switch", "").contains("\"waiting\":64"), "{}", rig.call("switch", ""));
    assert!(rig.call("list", "").contains("\"lost\":36"));
    rig.call("resume", "box");
    assert_eq!(rig.pass(0, &[])[0].len(), 64);
    assert_eq!(rig.refused("resume", "box"), "`box` is running, not suspended");
    rig.end();
}

#[test]
fn a_destroyed_instance_leaves_nothing() {
    let mut rig = Rig::new("");
    rig.call("create", "box mac=02:00:00:00:00:01");
    rig.call("install", "box\nFromDevice(0) -> Queue(1000) -> u :: Unqueue(ACTIVE false) -> ToDevice(0);");
    let frames: Vec<Vec<u8>> = (0..100).map(|mark| frame(1, 9, mark)).collect();
    rig.pass(0, &frames);
    rig.call("destroy", "box");
    assert_eq!(rig.refused("destroy", "box"), "there is no instance `box`");
    assert_eq!(rig.call("list", ""), "[]");
    // Its address is free again.
    rig.call("create", "other mac=02:00:00:00:00:01");
    rig.run();
    rig.end();
}

#[test]
fn bad_creations_say_why() {
    let mut rig = Rig::new("");
    rig.call("create", "box mac=02:00:00:00:00:01 ports=2");
    for (line, problem) in [
        ("box", "there is an instance `box` already"),
        ("b/x", "`b/x` is no name: use 1 to 64 letters, digits, `-`, `_` and `.`"),
        ("two mac=02:00:00:00:00:02", "02-00-00-00-00-02 is the address of port `box.1`"),
        ("two mac=03:00:00:00:00:02", "03-00-00-00-00-02 is the address of a group"),
        ("two ring=63", "`ring` must be 64 to 2048, found `63`"),
        ("two ports=0", "`ports` must be 1 to 64, found `0`"),
        (
            "two colour=red",
            "there is no `colour`; there are: ports, mac, ring, frames, memory, weight, worker, owner",
        ),
        ("two red", "expected KEY=VALUE, found `red`"),
        (
            "two memory=",
            "`memory` must be bytes, such as 4MB: expected a size in bytes: a whole number, or a number and one of B, kB, KiB, MB, MiB, GB or GiB, as in \"64 KiB\", found ``",
        ),
        ("", "expected NAME"),
    ] {
        assert_eq!(rig.refused("create", line), problem, "{line}");
    }
    assert_eq!(rig.refused("install", "bux\n"), "there is no instance `bux`; did you mean `box`?");
    rig.end();
}

#[test]
fn capabilities_that_are_not_granted_are_refused() {
    let mut rig = Rig::new("");
    rig.call("create", "box");
    for configuration in [
        "ControlSocket(TCP, 7777)",
        "FromIPSummaryDump(/etc/hostname) -> Discard",
        "FromDump(/etc/hostname) -> Discard",
        "Script(TYPE SIGNAL USR1, stop)",
        "Socket(TCP, 127.0.0.1, 80)",
    ] {
        let problem = rig.refused("install", &format!("box\n{configuration}"));
        assert!(problem.contains("capability"), "{configuration}: {problem}");
    }
    rig.call("install", "box\ns :: Script(TYPE PASSIVE, return $(cat /etc/hostname))");
    let said = rig.graph.call("host", "read", "box s.run");
    assert!(format!("{said:?}").contains("capability files"), "{said:?}");
    rig.end();
}

#[test]
fn an_instance_that_asks_for_too_many_frames_gets_no_more() {
    let mut rig = Rig::new("");
    rig.call("create", "greedy frames=50");
    rig.call("install", "greedy\nInfiniteSource -> q :: Queue(1000) -> Idle;");
    rig.run();
    assert_eq!(rig.call("read", "greedy q.length"), "50");
    assert!(!rig.call("list", "").contains("\"refused\":0"));
    rig.call("install", "greedy\n");
    rig.run();
    rig.end();
}

#[test]
fn a_script_without_end_is_stopped_and_said() {
    let mut rig = Rig::new("");
    rig.call("create", "spin");
    rig.call("install", "spin\ns0 :: Script(label a, goto a);");
    rig.run();
    assert!(rig.call("list", "").contains("too many jumps, giving up"));
    // Scripts that call each other have no more jumps together.
    rig.call("create", "pair");
    let (one, other) = ("label l, write b.run, goto l", "label l, goto l");
    rig.call(
        "install",
        &format!(
            "pair\na :: Script(TYPE PASSIVE, {one}); b :: Script(TYPE PASSIVE, {other}); Script(write a.run);"
        ),
    );
    rig.run();
    assert!(rig.call("list", "").matches("too many jumps, giving up").count() > 1);
    rig.end();
}

#[test]
fn many_sources_all_get_turns_by_their_weights() {
    let mut rig = Rig::new("");
    for (name, weight) in [("one", 1024), ("two", 2048), ("four", 4096)] {
        rig.call("create", &format!("{name} weight={weight}"));
        rig.call("install", &format!("{name}\nInfiniteSource -> c :: Counter -> Discard;"));
    }
    for _ in 0..10 {
        rig.run();
    }
    // Times are not asserted: that each had turns, and that none waited for another's end.
    for name in ["one", "two", "four"] {
        let count: u64 = rig.call("read", &format!("{name} c.count")).parse().expect("a number");
        assert!(count > 0, "{name}");
    }
    rig.end();
}

#[test]
fn a_thousand_instances_exist_and_idle() {
    let mut rig = Rig::new("learning");
    for number in 0..1_000 {
        rig.call("create", &format!("n{number} ring=64"));
        rig.call("install", &format!("n{number}\n{MIRROR}"));
    }
    assert!(rig.refused("create", "n0").contains("already"));
    rig.run();
    for number in 0..1_000 {
        rig.call("destroy", &format!("n{number}"));
    }
    rig.run();
    rig.end();
}

#[test]
fn installs_under_load_lose_nothing() {
    let mut rig = Rig::new("learning");
    rig.call("create", "box mac=02:00:00:00:00:01 ring=2048");
    rig.call("install", &format!("box\n{MIRROR}"));
    let mut came = 0;
    for _ in 0..200 {
        let frames: Vec<Vec<u8>> = (0..40).map(|mark| frame(1, 9, mark)).collect();
        rig.to[0].borrow_mut().extend(frames);
        rig.now += 1_000;
        rig.graph.turn(rig.now);
        rig.call("install", &format!("box\n{MIRROR}"));
        came += rig.from[0].borrow_mut().drain(..).count();
    }
    rig.run();
    came += rig.from[0].borrow_mut().drain(..).count();
    assert_eq!(came, 8_000);
    rig.end();
}

#[test]
fn no_instance_takes_what_is_others() {
    let mut rig = Rig::new("learning");
    rig.call("create", "tee mac=02:00:00:00:00:01 frames=64 ring=2048");
    rig.call("install", "tee\nFromDevice(0) -> t :: Tee(8) -> q :: Queue(4000000) -> Idle; t[1] -> q; t[2] -> q; t[3] -> q; t[4] -> q; t[5] -> q; t[6] -> q; t[7] -> q;");
    let frames: Vec<Vec<u8>> = (0..200).map(|mark| frame(1, 9, mark)).collect();
    rig.pass(0, &frames);
    let held: u64 = rig.call("read", "tee q.length").parse().expect("a number");
    assert!(held <= 64 + 32, "{held} frames are held");
    rig.call("create", "flood frames=64");
    rig.call("install", "flood\nInfiniteSource(BURST 1000000) -> Discard;");
    rig.run();
    assert!(rig.pool.available() > 3_000);
    rig.end();
}

#[test]
fn a_cycle_that_doubles_packets_ends() {
    let mut rig = Rig::new("");
    rig.call("create", "tee");
    rig.call("install", "tee\nInfiniteSource(LIMIT 1) -> t :: Tee(2); t[0] -> t; t[1] -> t;");
    rig.run();
    rig.end();
}

#[test]
fn scripts_that_call_each_other_deeply_are_stopped() {
    let mut rig = Rig::new("");
    rig.call("create", "deep");
    let scripts: String = (0..3_000)
        .map(|number| format!("s{number} :: Script(TYPE PASSIVE, write s{}.run, end);\n", number + 1))
        .collect();
    rig.call("install", &format!("deep\n{scripts}s3000 :: Script(TYPE PASSIVE, end);"));
    let said = rig.graph.call("host", "write", "deep s0.run");
    assert!(format!("{said:?}").contains("nested too deeply"), "{said:?}");
    // Each of these calls the next one twice.
    let scripts: String = (0..60)
        .map(|number| {
            format!("s{number} :: Script(TYPE PASSIVE, write s{0}.run, write s{0}.run, end);\n", number + 1)
        })
        .collect();
    rig.call("install", &format!("deep\n{scripts}s60 :: Script(TYPE PASSIVE, end);"));
    let _ = rig.graph.call("host", "write", "deep s0.run");
    let _ = rig.graph.call("host", "write", "deep s0.step 9223372036854775807");
    let _ = rig.graph.call("host", "write", "deep s0.step 9223372036854775807");
    assert!(rig.call("list", "").contains("\"name\":\"deep\""));
    rig.end();
}

#[test]
fn a_value_that_grows_is_refused() {
    let mut rig = Rig::new("");
    rig.call("create", "grow");
    rig.call("install", "grow\nScript(set x ab, label l, set x $x$x, goto l);");
    rig.run();
    assert!(rig.call("list", "").contains("a value has more than 65536 bytes"), "{}", rig.call("list", ""));
    rig.end();
}

#[test]
fn a_script_of_an_instance_says_nothing_to_the_host() {
    let mut rig = Rig::new("");
    rig.call("create", "talk");
    rig.call("install", "talk\nScript(print \"hello $$.\");");
    rig.run();
    assert!(rig.call("list", "").contains("hello ."), "{}", rig.call("list", ""));
    assert!(rig.refused("install", "talk\nIdle -> EtherEncap(0x0800, lo, lo) -> Discard").contains("SRC"));
    rig.end();
}

#[test]
fn too_many_elements_and_bytes_are_refused() {
    let mut rig = Rig::new("");
    rig.call("create", "large");
    let nulls = " -> Null".repeat(20_000);
    let problem = rig.refused("install", &format!("large\nIdle{nulls} -> Discard"));
    assert!(problem.contains("the configuration has 20002 elements: there can be 4096"), "{problem}");
    let problem = rig.refused("install", &format!("large\n{}", " ".repeat((1 << 20) + 1)));
    assert!(problem.contains("bytes: there can be 1048576"), "{problem}");
    // Each of 60 compound elements has the one before twice.
    let doubled: String = (0..60)
        .map(|one| format!("elementclass A{} {{ input -> A{one} -> A{one} -> output }}\n", one + 1))
        .collect();
    let endless = format!("elementclass A0 {{ input -> Null -> output }}\n{doubled}Idle -> A60 -> Discard;");
    let problem = rig.refused("install", &format!("large\n{endless}"));
    assert!(problem.contains("compound elements expand to too many elements"), "{problem}");
    // No class knows itself in its own body.
    let problem =
        rig.refused("install", "large\nelementclass A { input -> A -> output }\nIdle -> A -> Discard;");
    assert!(problem.contains("large:1: undeclared element 'A'"), "{problem}");
    let problem = rig.refused("install", &format!("large\n{}", "Idle -> Nowhere -> Discard;\n".repeat(500)));
    assert!(problem.lines().count() <= 102, "{problem}");
    rig.end();
}

/// The instance of a name in the answer of `list`.
pub(super) fn listed(rig: &mut Rig, name: &str) -> serde_json::Value {
    let all: Vec<serde_json::Value> = serde_json::from_str(&rig.call("list", "")).expect("JSON");
    all.into_iter().find(|one| one["name"] == name).expect("there is one")
}

#[test]
fn tables_that_take_more_memory_than_the_quota_are_not_installed() {
    let mut rig = Rig::new("learning");
    rig.call("create", "small mac=02:00:00:00:00:01 memory=1MB");
    rig.call("install", &format!("small\n{MIRROR}"));
    let problem = rig.refused("install", "small\nFromDevice(0) -> flows :: FlowMonitor(1000000) -> Discard;");
    assert!(problem.contains("While configuring 'flows :: FlowMonitor':"), "{problem}");
    assert!(problem.contains("CAPACITY asks for ") && problem.contains(" of the 1000000 that"), "{problem}");
    // The configuration before goes on.
    assert_eq!(rig.pass(0, &[frame(1, 9, 0)])[0].len(), 1);
    rig.call("install", "small\nFromDevice(0) -> flows :: FlowMonitor(100) -> Discard;");
    let small = listed(&mut rig, "small");
    assert_eq!((small["state"].as_str(), small["memory"].as_u64()), (Some("running"), Some(1_000_000)));
    assert!(small["memory_used"].as_u64().expect("a number") < 1_000_000);
    rig.end();
}

#[test]
fn a_configuration_that_takes_more_memory_than_the_quota_is_not_made_first() {
    let mut rig = Rig::new("");
    rig.call("create", "small memory=1MB");
    // Those whose arguments ask for much are refused before they take it; behind another that does not fit, none is made.
    for (elements, expected, class) in [
        ("FlowMonitor(1000000)", 1..=5, "FlowMonitor"),
        ("Clipboard(0/600000)", 2..=5, "Clipboard"),
        ("ICMPPingSource(1.0.0.1, 1.0.0.2)", 2..=2, "ICMPPingSource"),
    ] {
        let one = |at: usize| match class {
            "ICMPPingSource" => format!("e{at} :: {elements} -> Discard; Idle -> e{at};"),
            "Clipboard" => format!("Idle -> e{at} :: {elements} -> Discard; Idle -> [1]e{at}[1] -> Discard;"),
            _ => format!("Idle -> e{at} :: {elements} -> Discard;"),
        };
        let text: String = (1..=5).map(one).collect();
        let problem = rig.refused("install", &format!("small\n{text}"));
        let told: Vec<usize> =
            (1..=5).filter(|at| problem.contains(&format!("While configuring 'e{at} :: "))).collect();
        assert_eq!(told, expected.collect::<Vec<usize>>(), "{problem}");
        assert!(problem.contains("`memory` allows") || problem.contains("that `memory` allows"), "{problem}");
    }
    rig.call(
        "install",
        "small\nIdle -> FlowMonitor(1000) -> c :: Clipboard(0/60000) -> Discard; Idle -> [1]c[1] -> Discard;",
    );
    rig.end();
}

#[test]
fn packets_that_elements_hold_count_for_the_quota_of_memory() {
    let mut rig = Rig::new("");
    rig.call("create", "greedy memory=200kB");
    rig.call("install", "greedy\nInfiniteSource -> q :: Queue(1000) -> Idle;");
    rig.run();
    let held: u64 = rig.call("read", "greedy q.length").parse().expect("a number");
    // A frame has 2,048 bytes.
    assert!((50..=97).contains(&held), "{held} packets are held");
    let greedy = listed(&mut rig, "greedy");
    // The queue has grown since the last look.
    assert!(greedy["memory_used"].as_u64().expect("a number") <= 200_000 + 2_048, "{greedy}");
    assert!(greedy["refused"].as_u64().expect("a number") > 0, "{greedy}");
    rig.end();
}

#[test]
fn a_table_that_grows_beyond_the_quota_ends_its_instance_alone() {
    let mut rig = Rig::new("learning");
    rig.call("create", "grows mac=02:00:00:00:00:01 memory=100kB");
    rig.call("create", "echo mac=02:00:00:00:00:02");
    rig.call("install", &format!("echo\n{MIRROR}"));
    rig.call("install", "grows\nFromDevice(0) -> s :: EtherSwitch -> Discard; Idle -> [1]s[1] -> Discard;");
    let frames: Vec<Vec<u8>> = (0..12_000_u16)
        .map(|number| {
            let mut frame = frame(1, 9, 0);
            frame[8..10].copy_from_slice(&number.to_be_bytes());
            frame
        })
        .collect();
    for frames in frames.chunks(200) {
        rig.pass(0, frames);
    }
    let grows = listed(&mut rig, "grows");
    assert_eq!(grows["state"], "over-quota", "{grows}");
    let error = grows["error"].as_str().expect("an error");
    assert!(error.contains("`memory` allows 100000."), "{error}");
    assert_eq!(rig.pass(0, &[frame(2, 9, 0)])[0].len(), 1, "the other goes on");
    // It has another chance.
    rig.call("install", &format!("grows\n{MIRROR}"));
    assert_eq!(rig.pass(0, &[frame(1, 9, 0)])[0].len(), 1);
    rig.end();
}

#[test]
fn flows_that_find_no_memory_are_refused_and_the_rewriter_goes_on() {
    let mut rig = Rig::new("learning");
    rig.call("create", "nat mac=02:00:00:00:00:01 memory=400kB");
    rig.call(
        "install",
        "nat\nFromDevice(0) -> Strip(14) -> CheckIPHeader -> r :: UDPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0) \
         -> Unstrip(14) -> EtherMirror -> ToDevice(0);",
    );
    let mut came = 0;
    for chunk in 0..40_u16 {
        let frames: Vec<Vec<u8>> = (0..100_u16).map(|number| datagram(chunk * 100 + number)).collect();
        came += rig.pass(0, &frames)[0].len();
    }
    let nat = listed(&mut rig, "nat");
    assert_eq!(nat["state"], "running", "{nat}");
    assert!((500..4_000).contains(&came), "{came} packets found a place for their flow");
    assert!(nat["memory_used"].as_u64().expect("a number") <= 400_000, "{nat}");
    rig.end();
}

/// A datagram from a port of its own to `02:00:00:00:00:01`.
fn datagram(port: u16) -> Vec<u8> {
    let mut datagram = frame(1, 9, 0);
    datagram[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    datagram[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = netbricks_core::packet::checksum::internet(&datagram[14..34]);
    datagram[24..26].copy_from_slice(&sum.to_be_bytes());
    datagram[34..36].copy_from_slice(&port.to_be_bytes());
    datagram[36..40].copy_from_slice(&[0, 53, 0, 26]);
    datagram
}

#[test]
fn declared_instances_are_there_from_the_start() {
    let echo = InstanceSettings {
        text: Some(
            "FromDevice(0) -> c :: Counter -> EtherMirror -> ToDevice(0); t :: TimedSource($T) -> Discard;"
                .into(),
        ),
        parameters: vec!["T=1".into()],
        mac: Some("02:00:00:00:00:01".into()),
        ring: 64,
        ..InstanceSettings::default()
    };
    let mut settings = settings_of("learning");
    settings.instance.insert("echo".into(), echo);
    settings.instance.insert("empty".into(), InstanceSettings { ports: 2, ..InstanceSettings::default() });
    let mut rig = Rig::with(settings);
    rig.run();
    assert_eq!(rig.pass(0, &[frame(1, 9, 0)])[0].len(), 1);
    assert_eq!(rig.call("read", "echo c.count"), "1");
    assert_eq!(listed(&mut rig, "echo")["ports"][0]["ring"], 64);
    let empty = listed(&mut rig, "empty");
    assert_eq!((empty["state"].as_str(), empty["ports"].as_array().map(Vec::len)), (Some("empty"), Some(2)));
    rig.call("destroy", "echo");
    rig.run();
    rig.end();
}

#[test]
fn a_start_with_many_instances_installs_one_a_turn() {
    let mut settings = settings_of("learning");
    for number in 0..40 {
        let text = Some(MIRROR.into());
        settings
            .instance
            .insert(format!("n{number}"), InstanceSettings { text, ..InstanceSettings::default() });
    }
    let mut rig = Rig::with(settings);
    let starting = |rig: &mut Rig| rig.call("list", "").matches("\"state\":\"starting\"").count();
    assert_eq!(starting(&mut rig), 40);
    let mut before = 40;
    for _ in 0..200 {
        rig.now += 1_000;
        rig.graph.turn(rig.now);
        let now = starting(&mut rig);
        assert!(before - now <= 1, "{} instances in one turn", before - now);
        before = now;
    }
    assert_eq!(before, 0);
    rig.end();
}

#[test]
fn packets_for_an_instance_that_starts_wait() {
    let mut settings = settings_of("learning");
    let text = Some(MIRROR.into());
    for (name, mac) in [("a", "02:00:00:00:00:01"), ("z", "02:00:00:00:00:02")] {
        let one =
            InstanceSettings { text: text.clone(), mac: Some(mac.into()), ..InstanceSettings::default() };
        settings.instance.insert(name.into(), one);
    }
    let mut rig = Rig::with(settings);
    // A handler's call does not wait for the instance's turn.
    assert_eq!(rig.call("read", "z c.count"), "0");
    assert_eq!(
        (listed(&mut rig, "a")["state"].as_str(), listed(&mut rig, "z")["state"].as_str()),
        (Some("starting"), Some("running"))
    );
    let frames: Vec<Vec<u8>> = (0..100).map(|mark| frame(1, 9, mark)).collect();
    assert_eq!(rig.pass(0, &frames)[0].len(), 100);
    rig.end();
}

#[test]
fn bad_declarations_say_why() {
    use netbricks_core::Settings;
    let checked = |one: InstanceSettings| {
        let mut settings = settings_of("");
        settings.instance.insert("echo".into(), one);
        settings.check().expect_err("it is wrong").problem
    };
    let usual = InstanceSettings::default;
    let wrong = checked(InstanceSettings { text: Some("Idle -> Nonsense -> Discard".into()), ..usual() });
    assert!(wrong.starts_with("the configuration of `echo` is wrong:\n"), "{wrong}");
    assert!(wrong.contains("echo:1: undeclared element 'Nonsense'"), "{wrong}");
    assert_eq!(
        checked(InstanceSettings { ring: 63, ..usual() }),
        "ring of `echo` must be 64 to 2048, found 63"
    );
    assert_eq!(
        checked(InstanceSettings { mac: Some("x".into()), ..usual() }),
        "mac of `echo`: `x` is no MAC address"
    );
    let gone = checked(InstanceSettings { file: Some("/nowhere.click".into()), ..usual() });
    assert!(gone.starts_with("the file of `echo` is /nowhere.click, which cannot be read: "), "{gone}");
    let mut settings = settings_of("");
    for name in ["one", "two"] {
        let mac = Some("02:00:00:00:00:01".into());
        settings.instance.insert(name.into(), InstanceSettings { mac, ..usual() });
    }
    let pool = Pool::builder().frames(64).build().expect("memory");
    let Err(error) = node(&settings, &Worker::new(0, 1, pool)) else { panic!("a MAC address twice") };
    assert_eq!(error.to_string(), "instance `two`: 02-00-00-00-00-01 is the address of port `one.0`");
}

#[test]
fn a_declared_configuration_that_does_not_start_is_refused() {
    let mut settings = settings_of("");
    let text = Some("FromDump(/nowhere) -> Discard".into());
    settings.instance.insert("box".into(), InstanceSettings { text, ..InstanceSettings::default() });
    let mut rig = Rig::with(settings);
    rig.run();
    let refused = listed(&mut rig, "box");
    assert_eq!(refused["state"], "refused", "{refused}");
    assert!(refused["error"].as_str().expect("an error").contains("capability"), "{refused}");
    rig.end();
}

#[test]
fn metrics_have_a_bounded_number_of_instances() {
    let mut rig = Rig::new("learning");
    rig.call("create", "echo mac=02:00:00:00:00:01");
    rig.call("install", &format!("echo\n{MIRROR}"));
    for number in 0..1_005 {
        rig.call("create", &format!("n{number} ring=64"));
    }
    rig.pass(0, &[frame(1, 9, 0)]);
    let families: serde_json::Value = serde_json::from_str(&rig.call("metrics", "")).expect("JSON");
    let family = |name: &str| {
        let all = families.as_array().expect("a list");
        all.iter().find(|family| family["name"] == name).expect("a family").clone()
    };
    let sent = family("instance_sent_packets");
    assert_eq!(
        (sent["kind"].as_str(), sent["samples"][0].to_string()),
        (Some("counter"), r#"["echo",1]"#.into())
    );
    assert_eq!(sent["samples"].as_array().map(Vec::len), Some(1_000));
    assert!(
        family("instances")["samples"]
            .as_array()
            .expect("a list")
            .contains(&serde_json::json!(["empty", 1_005]))
    );
    rig.end();
}

#[test]
fn an_exact_instance_takes_packets_one_by_one() {
    let marks = |exact: Option<bool>| {
        let mut rig = Rig::with(InstancesSettings { exact, ..settings_of("") });
        rig.call("create", "box mac=02:00:00:00:00:01");
        rig.call(
            "install",
            "box\nFromDevice(0) -> c :: Classifier(59/00%01, -); c[0] -> join :: EtherMirror; \
            c[1] -> Queue -> Unqueue -> join -> ToDevice(0);",
        );
        let frames: Vec<Vec<u8>> = (0..8).map(|mark| frame(1, 9, mark)).collect();
        let left = rig.pass(0, &frames);
        let marks: Vec<u8> = left[1].iter().map(|frame| frame[59]).collect();
        rig.end();
        marks
    };
    assert_eq!(marks(Some(true)), [0, 1, 2, 3, 4, 5, 6, 7]);
    // The queue's task runs behind the burst.
    assert_eq!(marks(Some(false)), [0, 2, 4, 6, 1, 3, 5, 7]);
    // The rig's clock is not that of the packets.
    assert_eq!(marks(None), marks(Some(false)));
}
