//! Nodes for tests: sources, sinks, keepers, and functions that do everything a function may do to a batch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{
    Blueprint, CallError, Context, DropReason, Edge, GraphBuilder, GraphError, Handler, ImportError, Node,
    NodeQueue, NodeState, Output, Poll, Section, Shape, StateImage, Worker,
};
use netbricks_runtime::{Clock, Config, IdlePolicy, Placement};

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(8_192).build().unwrap()
}

/// Test machines are small and busy: workers run where the system puts them.
pub(crate) fn config(pool: Pool, workers: usize) -> Config {
    Config::new(pool)
        .workers(workers)
        .placement(Placement::Unpinned)
        .clock(Clock::Driven)
        .idle(IdlePolicy::Quiet)
}

pub(crate) fn sequence(packet: &Packet) -> u64 {
    u64::from_be_bytes(packet.data()[..8].try_into().unwrap())
}

/// The position of a source. It outlives a graph when it is kept.
#[derive(Default)]
pub(crate) struct Position {
    pub(crate) next: u64,
}

/// Numbered packets of 60 bytes, of a given number.
pub(crate) struct Source {
    position: Rc<RefCell<Position>>,
    count: u64,
}

impl Source {
    pub(crate) fn new(count: u64) -> Self {
        Self { position: Rc::default(), count }
    }
    pub(crate) fn at(position: Rc<RefCell<Position>>, count: u64) -> Self {
        Self { position, count }
    }
}

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let mut position = self.position.borrow_mut();
        while position.next < self.count && batch.len() < cx.burst() {
            let mut bytes = [0; 60];
            bytes[..8].copy_from_slice(&position.next.to_be_bytes());
            let Some(packet) = cx.pool().packet(&bytes) else { break };
            position.next += 1;
            batch.push(packet).unwrap();
        }
        if position.next == self.count { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape { kind: "source".into(), ..Shape::receive() }
    }
}

/// Yields a packet for each byte that waits in a pipe, and counts its polls.
pub(crate) struct PipeSource {
    pub(crate) pipe: OwnedFd,
    pub(crate) polls: Arc<AtomicU64>,
    pub(crate) watched: bool,
    /// A second pipe, which is read when the first is empty.
    pub(crate) other: Option<OwnedFd>,
}

impl Node for PipeSource {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 32];
        let mut count = rustix::io::read(&self.pipe, &mut bytes).unwrap_or(0);
        if let Some(other) = self.other.as_ref().filter(|_| count == 0) {
            count = rustix::io::read(other, &mut bytes).unwrap_or(0);
        }
        for byte in &bytes[..count] {
            batch.push(cx.pool().packet(&[*byte; 60]).unwrap()).unwrap();
        }
        Poll::Idle
    }
    fn descriptors<'n>(&'n self, watch: &mut dyn FnMut(BorrowedFd<'n>)) {
        if self.watched {
            watch(self.pipe.as_fd());
            self.other.iter().for_each(|other| watch(other.as_fd()));
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Sends everything.
pub(crate) struct Sink;

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// Keeps the last `room` packets and hands on older ones, in order.
pub(crate) struct Keeper {
    kept: VecDeque<Packet>,
    room: usize,
}

impl Keeper {
    pub(crate) fn new(room: usize) -> Self {
        Self { kept: VecDeque::new(), room }
    }
}

impl Node for Keeper {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.kept.extend(batch.drain());
        while self.kept.len() > self.room && !batch.is_full() {
            let Some(oldest) = self.kept.pop_front() else { break };
            batch.push(oldest).unwrap();
        }
    }
    fn shape(&self) -> Shape {
        Shape { keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Keeper {
    fn held(&self) -> u64 {
        self.kept.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        while !batch.is_full() {
            let Some(oldest) = self.kept.pop_front() else { break };
            batch.push(oldest).unwrap();
        }
    }
}

/// Holds each packet until an hour after the one before, by the graph's clock.
#[derive(Default)]
pub(crate) struct Hourly {
    kept: VecDeque<Packet>,
    due: u64,
}

pub(crate) const HOUR: u64 = 3_600_000_000_000;

impl Node for Hourly {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.kept.extend(batch.drain());
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        if cx.now() >= self.due {
            if let Some(packet) = self.kept.pop_front() {
                batch.push(packet).unwrap();
            }
            self.due = cx.now() + HOUR;
        }
        // Never done: it cannot know that no packet will come any more.
        Poll::Until(self.due)
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeQueue for Hourly {
    fn held(&self) -> u64 {
        self.kept.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        for packet in self.kept.drain(..) {
            cx.drop_packet(packet, DropReason::Drained);
        }
        batch.clear();
    }
}

impl NodeState for Hourly {
    fn report(&self) -> Vec<Section> {
        vec![Section {
            title: "time".into(),
            columns: vec!["due".into()],
            rows: vec![vec![self.due.to_string()]],
            ..Section::default()
        }]
    }
}

/// Drops, answers, copies, emits and panics by the packets' numbers.
#[derive(Default)]
pub(crate) struct Mixed;

pub(crate) const PANICS_AT: u64 = 5_003;

impl Node for Mixed {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let packets: Vec<Packet> = batch.drain().collect();
        for packet in packets {
            let number = sequence(&packet);
            if number % PANICS_AT == PANICS_AT - 1 {
                panic!("packet {number}");
            } else if number.is_multiple_of(7) {
                cx.drop_packet(packet, DropReason::Denied);
            } else if number.is_multiple_of(11) {
                cx.drop_packet(packet, DropReason::Answered);
            } else if number.is_multiple_of(13) {
                cx.emit(Edge::REPLY, packet);
            } else {
                if number.is_multiple_of(5)
                    && let Some(copy) = packet.try_copy()
                {
                    let _refused = cx.create(Edge::REPLY, copy);
                }
                batch.push(packet).unwrap();
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape {
            outputs: vec![Output::out(), Output { edge: Edge::REPLY, name: "reply".into(), optional: true }],
            ..Shape::default()
        }
    }
}

/// Counts packets in state that can be exported; its handlers answer `seen` and panic on `panic`.
pub(crate) struct Counting {
    state: &'static str,
    seen: u64,
    panic_at: Option<u64>,
}

impl Counting {
    pub(crate) fn new() -> Self {
        Self { state: "seen", seen: 0, panic_at: None }
    }
    /// The same with another name for the state.
    pub(crate) fn named(state: &'static str) -> Self {
        Self { state, ..Self::new() }
    }
    /// A node that panics when packet number `panic_at` comes.
    pub(crate) fn blueprint(panic_at: u64) -> Blueprint {
        Blueprint::new(move |_: &Worker| Ok(Box::new(Self { panic_at: Some(panic_at), ..Self::new() })))
    }
}

impl Node for Counting {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        for packet in batch.iter() {
            assert_ne!(Some(sequence(packet)), self.panic_at, "the planted panic");
            self.seen += 1;
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Counting {
    fn handlers(&self) -> Vec<Handler> {
        ["seen", "panic"].map(|name| Handler::read(name, "")).to_vec()
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        match name {
            "seen" => Ok(self.seen.to_string()),
            "panic" => panic!("asked to: {argument}"),
            _ => Err(CallError::Unknown { name: name.into(), known: "seen, panic".into() }),
        }
    }
    fn export(&self) -> Vec<StateImage> {
        vec![(self.state.into(), self.seen.to_be_bytes().to_vec())]
    }
    fn import(&mut self, name: &str, bytes: &[u8], _: u64) -> Result<(), ImportError> {
        if name != self.state {
            return Err(ImportError::Unknown { name: name.into() });
        }
        self.seen = u64::from_be_bytes(bytes.try_into().unwrap());
        Ok(())
    }
    fn report(&self) -> Vec<Section> {
        vec![Section {
            title: "seen".into(),
            columns: vec!["packets".into()],
            rows: vec![vec![self.seen.to_string()]],
            ..Section::default()
        }]
    }
}

/// A graph of these nodes one after the other.
pub(crate) fn chain(name: &str, nodes: Vec<(&str, Box<dyn Node>)>) -> Result<GraphBuilder, GraphError> {
    let mut graph = GraphBuilder::new(name);
    let mut last = None;
    for (name, node) in nodes {
        let id = graph.add(name, node)?;
        if let Some(last) = last {
            graph.connect(last, Edge::OUT, id, 0)?;
        }
        last = Some(id);
    }
    Ok(graph)
}
