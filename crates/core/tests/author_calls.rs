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
use netbricks_core::guards::Guards;
use netbricks_core::observer::{Allowance, Numbers, Watch, WatchPoint};
use netbricks_core::shuffle::{BoundState, Handoff, MigrationRequest, PacketPart, Part, PartStep, ShuffleId};
use netbricks_core::state::Declarations;
use netbricks_core::tables::{FlowTable, FlowTableConfig};
use netbricks_core::{
    Blueprint, BuildError, CallError, Context, Departed, Edge, Graph, GraphBuilder, GraphError, Handler,
    ImportError, Node, NodeId, NodeQueue, NodeState, Operator, Output, Poll, Schedule, Section, Shape,
    Shuffle, ShuffleConfig, ShuffleKey, StateImage, StateSuccession, Steps, Turn, Worker, WorkerGroup,
    compose,
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
/// It keeps packets, and has state by flow and state that workers share.
struct Fragile {
    kept: Vec<Packet>,
    /// Whether it keeps its packet for a node in its place.
    stays: bool,
    shared: RefCell<Box<dyn Node>>,
}

fn fragile(worker: &Worker, shares: &Shares) -> Result<Box<dyn Node>, BuildError> {
    reach(AuthorCall::Build);
    let worker = worker.clone().sharing(shares);
    let shared = compose(&worker, |input| {
        worker.state::<FlowTable<u64, u64>, Strict>("shared", Strict, FlowTableConfig::new(8));
        input.done()
    })?;
    Ok(Box::new(Fragile { kept: Vec::new(), stays: false, shared: RefCell::new(shared) }))
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
    fn shape(&self) -> Shape {
        reach(AuthorCall::Describe);
        Shape {
            kind: "fragile".into(),
            schedulable: true,
            keeps_packets: true,
            takes_packets: true,
            ..Shape::default()
        }
    }
    fn guards(&self, _: Edge) -> Guards {
        reach(AuthorCall::Plan);
        Guards::Unknown
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
        if !self.stays {
            self.let_go(batch);
        }
    }
    fn offer(&mut self, packet: Packet, _: bool) -> Result<bool, Packet> {
        reach(AuthorCall::Offer);
        self.kept.push(packet);
        Ok(false)
    }
    fn keep_for_successor(&mut self, keep: bool) -> bool {
        reach(AuthorCall::KeepForSuccessor);
        self.stays = keep;
        keep
    }
    fn predecessor(&mut self) -> Option<&mut dyn Any> {
        reach(AuthorCall::Predecessor);
        Some(self)
    }
    fn succeed(&mut self, before: &mut dyn Any) -> u64 {
        if let Some(before) = before.downcast_mut::<Self>() {
            std::mem::swap(&mut self.kept, &mut before.kept);
        }
        reach(AuthorCall::Succeed);
        self.kept.len() as u64
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
    fn handlers(&self) -> Vec<Handler> {
        reach(AuthorCall::Handlers);
        Vec::new()
    }
    fn call_steps(&mut self, _: &str, _: &str) -> Option<Result<Steps<String>, CallError>> {
        reach(AuthorCall::CallSteps);
        Some(Ok(Box::new(|| {
            reach(AuthorCall::CallStep);
            Some(String::new())
        })))
    }
    fn declarations(&mut self) -> Option<&mut Declarations> {
        reach(AuthorCall::Declarations);
        None
    }
    fn take_over(&mut self, _: &mut dyn NodeState, _: u64) -> Vec<StateSuccession> {
        reach(AuthorCall::TakeOver);
        Vec::new()
    }
    fn packet_part(&self) -> Option<PacketPart> {
        reach(AuthorCall::Plan);
        None
    }
    fn expire(&mut self, _: u64) {
        reach(AuthorCall::Expire);
    }
    fn report_steps(&mut self, _: u64) -> Vec<Steps<Section>> {
        reach(AuthorCall::ReportSteps);
        vec![Box::new(|| {
            reach(AuthorCall::ReportStep);
            Some(Section::default())
        })]
    }
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

/// A shuffle whose part in the exchange between workers can panic in every call.
struct FragileShuffle(RefCell<Box<dyn Node>>);

impl Node for FragileShuffle {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        self.0.get_mut().process(input, batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.0.get_mut().poll(batch, cx)
    }
    fn shape(&self) -> Shape {
        self.0.borrow().shape()
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        self.0.get_mut().with_state(ask);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        self.0.get_mut().as_queue()
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        reach(AuthorCall::Handoff);
        Some(self)
    }
}

impl FragileShuffle {
    fn inner<T>(&self, call: impl FnOnce(&mut dyn Handoff) -> T) -> T {
        self.0.borrow_mut().as_handoff().map(call).expect("it is a shuffle")
    }
}

/// A call has its effect before it panics: workers wait some seconds for a shuffle that does not end.
impl Handoff for FragileShuffle {
    fn id(&self) -> ShuffleId {
        reach(AuthorCall::HandoffId);
        self.inner(|shuffle| shuffle.id())
    }
    fn key(&self) -> ShuffleKey {
        reach(AuthorCall::HandoffKey);
        self.inner(|shuffle| shuffle.key())
    }
    fn bound(&mut self, state: Vec<BoundState>, upstream: usize) {
        self.inner(|shuffle| shuffle.bound(state, upstream));
        reach(AuthorCall::HandoffBound);
    }
    fn close(&mut self) {
        self.inner(|shuffle| shuffle.close());
        reach(AuthorCall::HandoffClose);
    }
    fn migration_request(&mut self) -> Option<MigrationRequest> {
        // It is asked again.
        if !REACHED.with_borrow(|reached| reached.contains(&AuthorCall::HandoffRequest)) {
            reach(AuthorCall::HandoffRequest);
        }
        self.inner(|shuffle| shuffle.migration_request())
    }
    fn is_to_give(&self, to: usize) -> bool {
        reach(AuthorCall::HandoffWaits);
        self.inner(|shuffle| shuffle.is_to_give(to))
    }
    fn is_to_take(&self, from: usize) -> bool {
        reach(AuthorCall::HandoffWaits);
        self.inner(|shuffle| shuffle.is_to_take(from))
    }
    fn given(&mut self, to: usize, images: Vec<(String, StateImage)>) {
        self.inner(|shuffle| shuffle.given(to, images));
        reach(AuthorCall::HandoffGiven);
    }
    fn took(&mut self, from: usize, refused: usize) {
        self.inner(|shuffle| shuffle.took(from, refused));
        reach(AuthorCall::HandoffTook);
    }
}

/// A node that passes the first packet of each batch on by itself.
struct Divides;

impl Divides {
    const FIRST: Edge = Edge(2);
}

impl Node for Divides {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        if let Some(packet) = batch.pop() {
            cx.emit(Self::FIRST, packet);
        }
    }
    fn shape(&self) -> Shape {
        let first = Output { edge: Self::FIRST, name: "first".into(), optional: false };
        Shape { outputs: vec![Output::out(), first], ..Shape::default() }
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
    shuffles: [Shuffle; 2],
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
        let shuffles = [(); 2].map(|()| Shuffle::new(ShuffleConfig::default()));
        Self { pool, group: WorkerGroup::new(2), shuffles, fragile }
    }

    /// A worker's graph: paths through two shuffles and the fragile node, and a neighbour's path.
    fn graph(&self, index: usize) -> Result<Graph, GraphError> {
        self.builder(index, None)?.build(self.pool.clone())
    }

    /// The graph of a worker, with another fragile node in the place of that which runs.
    fn take_over(&self, index: usize, running: &mut Graph) -> Result<Graph, GraphError> {
        let builder = self.builder(index, Some(running))?;
        Graph::take_over(builder, self.pool.clone(), running, 4_000_000_000).map(|(graph, _)| graph)
    }

    fn worker(&self, index: usize) -> Worker {
        Worker::new(index, 1, self.pool.clone()).in_group(self.group.clone())
    }

    fn builder(&self, index: usize, running: Option<&Graph>) -> Result<GraphBuilder, GraphError> {
        let worker = self.worker(index);
        let mut graph = GraphBuilder::new("test");
        let sources = if index == 0 { 300 } else { 0 };
        let shuffle = |which: usize| {
            let node = self.shuffles[which].node(&worker).expect("both workers are there");
            Box::new(FragileShuffle(RefCell::new(node)))
        };
        let mut add = |name: &str, node: &dyn Fn() -> Box<dyn Node>| -> Result<NodeId, GraphError> {
            match running {
                Some(running) => graph.keep(name, running),
                None => graph.add(name, node()),
            }
        };
        let ways = [
            [add("source", &|| Box::new(Source(sources)))?, add("shuffle", &|| shuffle(0))?],
            [add("third source", &|| Box::new(Source(0)))?, add("other shuffle", &|| shuffle(1))?],
        ];
        let divides = add("divides", &|| Box::new(Divides))?;
        let behind = [add("waiting", &|| Box::new(Waiting))?, add("sink", &|| Box::new(Sink::default()))?];
        let neighbour = [
            add("other source", &|| Box::new(Source(300)))?,
            add("other sink", &|| Box::new(Sink::default()))?,
        ];
        let fragile = graph.add_function("fragile", &self.fragile, &worker)?;
        for [source, shuffle] in ways {
            graph.connect(source, Edge::OUT, shuffle, 0)?;
            graph.connect(shuffle, Edge::OUT, divides, 0)?;
        }
        graph.connect(divides, Edge::OUT, fragile, 0)?;
        graph.connect(divides, Divides::FIRST, fragile, 0)?;
        graph.connect(fragile, Edge::OUT, behind[0], 0)?;
        graph.connect(behind[0], Edge::OUT, behind[1], 0)?;
        graph.connect(neighbour[0], Edge::OUT, neighbour[1], 0)?;
        Ok(graph)
    }
}

fn every_packet() -> Watch {
    let all = Filter::parse("").expect("the empty filter");
    Watch::trace(WatchPoint::Arrivals, all, Allowance::default(), Numbers::default())
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
        // A shuffle that cannot tell its key never ends a move.
        if turn == 20 && !BROKEN.with_borrow(|broken| broken.contains(&AuthorCall::HandoffKey)) {
            // Where a node panicked when asked which of its state can move, no flow moves.
            let _moved = graphs[0].call("shuffle", "move", "0-4095 1");
        }
    }
    for graph in graphs.iter_mut() {
        graph.can_sleep();
        graph.descriptors(&mut |_| ());
        let _answer = graph.call("fragile", "any", "");
        if let Some(Ok(mut step)) = graph.call_steps("fragile", "any", "") {
            let _answer = graph.call_step("fragile", "any", &mut step);
        }
        for mut step in graph.report_steps("fragile") {
            graph.report_step("fragile", &mut step);
        }
        graph.tables();
        graph.shuffle_ends();
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
        // The plan for a graph asks a node, and the control side has a copy of one.
        let _asked = setting.fragile.ask(&setting.worker(0), |node| {
            node.guards(Edge::OUT);
            node.state(|state| state.packet_part());
        });
        drop(setting.fragile.control(setting.pool.clone(), 1));
        // Another node takes the place of the fragile one.
        let mut replaced = None;
        if let Ok(new) = setting.take_over(1, &mut graphs[1]) {
            replaced = Some(std::mem::replace(&mut graphs[1], new));
        }
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
        if let Some(before) = replaced {
            assert_eq!(before.unbalanced(), Vec::<String>::new(), "{what}: the graph before");
            totals.merge(&before.totals());
            drop(before.take_down());
        }
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
