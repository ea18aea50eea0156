//! A panic in each call that a graph makes into an author's code ([`AuthorCall`]).
//!
//! The worker goes on, a neighbour loses nothing, and every packet is accounted for. This holds where more
//! panics follow, too.
#![forbid(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;

use netbricks_core::buffer::{Batch, Packet, Pool};
use netbricks_core::consistency::{SharedStateRef, Shares, Strict};
use netbricks_core::filter::Filter;
use netbricks_core::graph::{AuthorCall, observe_panics};
use netbricks_core::observer::{Allowance, At, Numbers, Watch};
use netbricks_core::shuffle::{Handoff, Part, PartStep};
use netbricks_core::tables::{FlowTable, FlowTableConfig};
use netbricks_core::{
    Blueprint, BuildError, CallError, Context, Departed, Edge, Graph, GraphBuilder, GraphError, ImportError,
    Node, NodeQueue, NodeState, Operator, Poll, Schedule, Section, Shape, Shuffle, ShuffleConfig, ShuffleKey,
    StateImage, Turn, Worker, WorkerGroup, compose,
};

thread_local! {
    /// The calls that panic, and how many of their first occurrences pass.
    static BROKEN: RefCell<Vec<AuthorCall>> = const { RefCell::new(Vec::new()) };
    static SPARED: Cell<u32> = const { Cell::new(0) };
    /// The calls that panicked.
    static REACHED: RefCell<Vec<AuthorCall>> = const { RefCell::new(Vec::new()) };
}

/// A panic's payload in place of a text; its drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        reach(AuthorCall::DropPayload);
    }
}

/// Notes that this call is made, and panics if it is to panic.
fn reach(call: AuthorCall) {
    if !BROKEN.with_borrow(|broken| broken.contains(&call)) {
        return;
    }
    if SPARED.get() > 0 && BROKEN.with_borrow(|broken| broken[0] == call) {
        SPARED.set(SPARED.get() - 1);
        return;
    }
    REACHED.with_borrow_mut(|reached| reached.push(call));
    if call == AuthorCall::Process && BROKEN.with_borrow(|broken| broken.contains(&AuthorCall::DropPayload)) {
        std::panic::panic_any(Bomb);
    }
    panic!("{call:?}");
}

/// A node that can panic in every call.
///
/// It keeps one packet, and has state by flow and state that workers share.
struct Fragile {
    kept: Vec<Packet>,
    shared: RefCell<Box<dyn Node>>,
}

fn fragile(worker: &Worker, shares: &Shares) -> Result<Box<dyn Node>, BuildError> {
    reach(AuthorCall::Build);
    let worker = worker.clone().sharing(shares);
    let shared = compose(&worker, |input| {
        worker.state::<FlowTable<u64, u64>, Strict>("shared", Strict, FlowTableConfig::new(8));
        input.done()
    })?;
    Ok(Box::new(Fragile { kept: Vec::new(), shared: RefCell::new(shared) }))
}

impl Drop for Fragile {
    fn drop(&mut self) {
        reach(AuthorCall::DropNode);
    }
}

impl Fragile {
    fn let_go(&mut self, batch: &mut Batch) {
        while let Some(packet) = self.kept.pop() {
            if let Err(packet) = batch.push(packet) {
                return self.kept.push(packet);
            }
        }
    }
}

impl Node for Fragile {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        reach(AuthorCall::Process);
        if self.kept.is_empty() {
            self.kept.extend(batch.pop());
        }
    }
    fn poll(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        reach(AuthorCall::Poll);
        Poll::Idle
    }
    fn descriptors<'n>(&'n self, _: &mut dyn FnMut(BorrowedFd<'n>)) {
        reach(AuthorCall::Descriptors);
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        reach(AuthorCall::Handoff);
        None
    }
    fn shape(&self) -> Shape {
        reach(AuthorCall::Describe);
        Shape { kind: "fragile".into(), schedulable: true, keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        reach(AuthorCall::Queue);
        Some(self)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        reach(AuthorCall::State);
        ask(self);
    }
}

impl NodeQueue for Fragile {
    fn held(&self) -> u64 {
        reach(AuthorCall::Held);
        self.kept.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        reach(AuthorCall::Drain);
        self.let_go(batch);
    }
    fn flush(&mut self, batch: &mut Batch, _: &mut Context) {
        reach(AuthorCall::Flush);
        self.let_go(batch);
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        reach(AuthorCall::Survivors);
        Some(self)
    }
    fn restore(&mut self, before: &mut dyn Any) {
        if let Some(before) = before.downcast_mut::<Self>() {
            std::mem::swap(&mut self.kept, &mut before.kept);
        }
        reach(AuthorCall::Restore);
    }
    fn restore_failed(&mut self) {
        reach(AuthorCall::RestoreFailed);
    }
}

impl NodeState for Fragile {
    fn schedule(&self) -> Option<Schedule> {
        reach(AuthorCall::Schedule);
        None
    }
    fn call(&mut self, _: &str, _: &str) -> Result<String, CallError> {
        reach(AuthorCall::Call);
        Ok(String::new())
    }
    fn export(&self) -> Vec<StateImage> {
        reach(AuthorCall::Export);
        Vec::new()
    }
    fn import(&mut self, _: &str, _: &[u8], _: u64) -> Result<(), ImportError> {
        reach(AuthorCall::Import);
        Ok(())
    }
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        reach(AuthorCall::SharedState);
        self.shared.borrow_mut().shared_state()
    }
    fn adopt(&mut self, name: &str, shared: &SharedStateRef, now: u64) -> Option<Result<(), ImportError>> {
        reach(AuthorCall::Adopt);
        self.shared.get_mut().adopt(name, shared, now)
    }
    fn take_part(&mut self, _: &Part, step: &mut PartStep) -> Option<StateImage> {
        reach(AuthorCall::TakePart);
        step.end();
        Some(("flows".into(), vec![1]))
    }
    fn bound(&self, _: ShuffleKey) -> Vec<String> {
        reach(AuthorCall::Bound);
        Vec::new()
    }
    fn follows(&self, _: ShuffleKey) -> Vec<String> {
        vec!["flows".into()]
    }
    fn explain(&self, _: &[u8], _: &mut dyn std::fmt::Write) -> std::fmt::Result {
        reach(AuthorCall::Explain);
        Ok(())
    }
    fn report(&self) -> Vec<Section> {
        reach(AuthorCall::Report);
        Vec::new()
    }
}

/// A node that keeps nothing, and waits for its end.
struct Waiting;

impl Node for Waiting {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { has_end: true, ..Shape::default() }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Waiting {
    fn end(&mut self) {
        reach(AuthorCall::End);
    }
}

/// A node that brings this many packets in.
struct Source(u32);

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while self.0 > 0 && batch.len() < cx.burst() {
            self.0 -= 1;
            // A buffer is free: never as many packets are on their way as the pool has.
            assert!(batch.push(cx.pool().packet(&[self.0 as u8; 60]).expect("a buffer is free")).is_ok());
        }
        if self.0 == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// A node that sends all packets, and reports its progress.
#[derive(Default)]
struct Sink {
    sent: u64,
}

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        self.sent += batch.len() as u64;
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Sink {
    fn held(&self) -> u64 {
        0
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
    fn departed(&self) -> Vec<Departed> {
        reach(AuthorCall::Departed);
        vec![Departed { given: self.sent, left: self.sent }]
    }
}

/// The parts that all workers of a runtime share, in one thread.
struct Setting {
    pool: Pool,
    group: WorkerGroup,
    shuffle: Shuffle,
    fragile: Blueprint,
}

impl Setting {
    fn new() -> Self {
        let shares = Shares::default();
        let made = std::sync::atomic::AtomicU32::new(0);
        let fragile = Blueprint::new(move |worker| {
            // After a panic no other node can be made, where that is under test.
            let first = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
            if !first && BROKEN.with_borrow(|broken| broken.contains(&AuthorCall::RestoreFailed)) {
                return Err(BuildError::new("none left"));
            }
            fragile(worker, &shares)
        });
        let pool = Pool::builder().frames(512).build().expect("memory is there");
        let shuffle = Shuffle::new(ShuffleConfig::default());
        Self { pool, group: WorkerGroup::new(2), shuffle, fragile }
    }

    /// A worker's graph: one path through the fragile node, and a neighbour's path.
    fn graph(&self, index: usize) -> Result<Graph, GraphError> {
        let worker = Worker::new(index, 1, self.pool.clone()).in_group(self.group.clone());
        let mut graph = GraphBuilder::new("test");
        let sources = if index == 0 { 300 } else { 0 };
        let way = [
            graph.add("source", Box::new(Source(sources)))?,
            graph.add("shuffle", self.shuffle.node(&worker).expect("both workers are there"))?,
            graph.add_function("fragile", &self.fragile, &worker)?,
            graph.add("waiting", Box::new(Waiting))?,
            graph.add("sink", Box::new(Sink::default()))?,
        ];
        let neighbour = [
            graph.add("other source", Box::new(Source(300)))?,
            graph.add("other sink", Box::new(Sink::default()))?,
        ];
        for pair in way.windows(2).chain(neighbour.windows(2)) {
            graph.connect(pair[0], Edge::OUT, pair[1], 0)?;
        }
        graph.build(self.pool.clone())
    }
}

fn every_packet() -> Watch {
    let all = Filter::parse("").expect("the empty filter");
    Watch::trace(At::Arrivals, all, Allowance::default(), Numbers::default())
}

/// Runs the graphs of two workers from the first turn to the end, with every call that exists.
fn live(graphs: &mut [Graph]) {
    graphs.iter_mut().for_each(|graph| graph.set_burst(8));
    for turn in 0..4_000 {
        for graph in graphs.iter_mut() {
            match turn {
                5 => graph.watch(every_packet()),
                30 => graph.unwatch(0),
                _ => {}
            }
            let _turn: Turn = graph.turn(turn * 1_000_000);
        }
        if turn == 20 {
            // Where a node panicked when asked which of its state can move, no flow moves.
            let _moved = graphs[0].call("shuffle", "move", "0-4095 1");
        }
    }
    for graph in graphs.iter_mut() {
        graph.can_sleep();
        graph.descriptors(&mut |_| ());
        let _answer = graph.call("fragile", "any", "");
        graph.export();
        let _imported = graph.import("fragile", "flows", &[1]);
        graph.reports();
    }
}

/// Survives a panic in these calls, of which the first is under test.
///
/// That call passes `spared` times before it panics.
fn survive(broken: &[AuthorCall], spared: u32) {
    assert!(is_reached(broken, spared), "{broken:?}: it was not called");
}

/// As [`survive`], but answers whether the first call was made more than `spared` times.
fn is_reached(broken: &[AuthorCall], spared: u32) -> bool {
    let what = format!("{broken:?}");
    BROKEN.set(broken.to_vec());
    SPARED.set(spared);
    REACHED.take();
    let setting = Setting::new();
    let built = (setting.graph(0), setting.graph(1));
    if let (Ok(first), Ok(second)) = built {
        let mut graphs = [first, second];
        live(&mut graphs);
        // Graphs that replace these take over the shared state.
        let next = Setting::new();
        if let Ok(mut new) = next.graph(0) {
            new.adopt(&graphs[0]);
            new.take_down();
        }
        for graph in &mut graphs {
            graph.drain(5_000_000_000);
        }
        for graph in &graphs {
            assert_eq!(graph.unbalanced(), Vec::<String>::new(), "{what}");
            let sent =
                graph.nodes().find(|node| node.name == "other sink").map(|node| node.counters.sent.packets);
            assert_eq!(sent, Some(300), "{what}: the neighbour");
        }
        let mut totals = graphs[0].totals();
        totals.merge(&graphs[1].totals());
        assert!(totals.is_conserved(), "{what}: {totals:?}");
        assert_eq!(totals.received.packets, 900, "{what}");
        graphs.into_iter().for_each(|graph| drop(graph.take_down()));
    } else {
        let at_building = [
            AuthorCall::Build,
            AuthorCall::Describe,
            AuthorCall::State,
            AuthorCall::Queue,
            AuthorCall::Schedule,
            AuthorCall::Handoff,
        ];
        assert!(at_building.contains(&broken[0]), "{what}");
    }
    let reached = REACHED.take().contains(&broken[0]);
    BROKEN.take();
    let pool = setting.pool.clone();
    drop(setting);
    assert_eq!(pool.available(), pool.capacity(), "{what}");
    reached
}

/// The calls that must panic, so that this call is made and panics.
fn with(call: AuthorCall) -> Vec<AuthorCall> {
    match call {
        AuthorCall::Survivors | AuthorCall::Restore | AuthorCall::RestoreFailed | AuthorCall::DropPayload => {
            vec![call, AuthorCall::Process]
        }
        _ => vec![call],
    }
}

#[test]
fn a_panic_in_each_call_into_an_authors_code_is_contained() {
    observe_panics();
    for call in AuthorCall::ALL {
        survive(&with(call), 0);
    }
}

#[test]
fn a_node_that_panics_in_every_call_after_the_first_panic_is_contained() {
    observe_panics();
    for call in AuthorCall::ALL {
        let mut broken = with(call);
        let after = [
            AuthorCall::Process,
            AuthorCall::Survivors,
            AuthorCall::Report,
            AuthorCall::Export,
            AuthorCall::DropNode,
        ];
        if !matches!(call, AuthorCall::Restore | AuthorCall::RestoreFailed) {
            broken.extend(after.into_iter().filter(|other| *other != call));
        } else {
            broken.push(AuthorCall::DropNode);
        }
        // Calls that happen only in a node that survives until then.
        let late = [AuthorCall::Drain, AuthorCall::Flush, AuthorCall::Adopt];
        if !late.contains(&call) {
            survive(&broken, 0);
        } else {
            survive(&[call, AuthorCall::DropNode], 0);
        }
    }
}

#[test]
fn calls_that_panic_only_once_the_graph_runs_are_contained_too() {
    observe_panics();
    for (call, spared) in [(AuthorCall::Build, 2), (AuthorCall::Schedule, 2), (AuthorCall::Schedule, 4)] {
        survive(&[call, AuthorCall::Process, AuthorCall::DropNode], spared);
    }
    // At every call of the state or the queue.
    for call in [AuthorCall::State, AuthorCall::Queue] {
        let reached = (2..60).take_while(|spared| is_reached(&[call, AuthorCall::DropNode], *spared)).count();
        assert!(reached > 5, "{call:?}: {reached}");
    }
}

#[test]
fn two_graphs_of_one_thread_give_each_other_what_they_have() {
    // Without any panic, so that the other tests are about panics.
    let setting = Setting::new();
    let mut graphs = [setting.graph(0).unwrap(), setting.graph(1).unwrap()];
    live(&mut graphs);
    let mut totals = graphs[0].totals();
    totals.merge(&graphs[1].totals());
    assert_eq!((totals.received.packets, totals.sent.packets + totals.held), (900, 900));
    assert_eq!(graphs[0].call("shuffle", "moving", ""), Ok("0".into()), "the move is over");
    assert_eq!(graphs[0].call("shuffle", "refused", ""), Ok("0".into()));
}
