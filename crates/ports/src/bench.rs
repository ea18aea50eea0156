//! Packets for benchmarks: the same packets again and again, burst after burst.
//!
//! So a source and a sink cost what they cost the C yardstick, a copy of handles. For one thread; the nodes
//! of one graph share the store.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{Context, Node, Poll, Shape};

type Hook = Box<dyn FnMut(&mut Batch)>;

struct Inner {
    /// A ring of bursts: one leaves at `out`, one returns at `home`.
    bursts: Vec<Batch>,
    out: usize,
    home: usize,
    hook: Option<Hook>,
}

/// Packets that circulate: [`source`](Store::source) hands them out, [`sink`](Store::sink) takes them back.
#[derive(Clone)]
pub struct Store(Rc<RefCell<Inner>>);

impl Store {
    /// A store of `packets` packets of `len` zero bytes in bursts of `burst`.
    ///
    /// `None` when the pool does not have so many, or `burst` is 0 or larger than a batch.
    pub fn new(pool: &Pool, packets: usize, len: usize, burst: usize) -> Option<Self> {
        if burst == 0 || burst > netbricks_buffer::BATCH || packets == 0 {
            return None;
        }
        let mut bursts = Vec::with_capacity(packets.div_ceil(burst));
        for first in (0..packets).step_by(burst) {
            let mut batch = Batch::new();
            for _ in first..packets.min(first + burst) {
                batch.push(pool.allocate(len)?).ok()?;
            }
            bursts.push(batch);
        }
        Some(Self(Rc::new(RefCell::new(Inner { bursts, out: 0, home: 0, hook: None }))))
    }

    /// Runs `hook` over every burst before it is handed out, as a NIC writes arrivals.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.0.borrow_mut().hook = hook;
    }

    /// Rewrites every packet in the store, in the order in which they leave.
    ///
    /// `write` gets the packet's number, counted from 0. The first of these bursts leaves next.
    pub fn reset(&self, mut write: impl FnMut(usize, &mut Packet)) {
        let inner = &mut *self.0.borrow_mut();
        let mut number = 0;
        inner.bursts.rotate_left(inner.out);
        (inner.out, inner.home) = (0, 0);
        for burst in &mut inner.bursts {
            for slot in 0..burst.len() {
                if let Some(mut packet) = burst.packet(slot) {
                    write(number, &mut packet);
                    number += 1;
                }
            }
        }
    }

    /// Shows every packet in the store, in the order in which they leave.
    pub fn for_each(&self, mut see: impl FnMut(usize, &Packet)) {
        let inner = self.0.borrow();
        let (later, first) = inner.bursts.split_at(inner.out);
        first.iter().chain(later).flat_map(Batch::iter).enumerate().for_each(|(i, packet)| see(i, packet));
    }

    /// The number of packets in the store: the first number, without packets that were dropped or are in the
    /// graph.
    pub fn packets(&self) -> usize {
        self.0.borrow().bursts.iter().map(Batch::len).sum()
    }

    /// The node that hands out a burst a turn.
    pub fn source(&self) -> Box<dyn Node> {
        Box::new(Source(self.clone()))
    }
    /// The node that takes packets back; they count as sent.
    pub fn sink(&self) -> Box<dyn Node> {
        Box::new(Sink(self.clone()))
    }
}

/// A hook that writes 12-byte tuples of `trace` into the frames, one each, and repeats the trace.
///
/// A tuple has addresses and ports as in an IPv4 header without options behind Ethernet, in network order.
/// Frames shorter than 38 bytes are not changed.
pub fn write_tuples(trace: impl Deref<Target = [[u8; 12]]> + 'static) -> Box<dyn FnMut(&mut Batch)> {
    write_at::<26, 12>(trace)
}

/// A hook that writes `N` bytes of `trace` at byte `AT` of each frame, and repeats the trace.
///
/// Shorter frames are not changed.
pub fn write_at<const AT: usize, const N: usize>(
    trace: impl Deref<Target = [[u8; N]]> + 'static,
) -> Box<dyn FnMut(&mut Batch)> {
    let mut next = 0;
    Box::new(move |batch| {
        if trace.len() - next < batch.len() {
            next = 0;
        }
        let tuples = &trace[next..];
        next += batch.len();
        batch.each(|slot, bytes| {
            if let (Some(place), Some(tuple)) = (bytes.data_mut().get_mut(AT..AT + N), tuples.get(slot)) {
                place.copy_from_slice(tuple);
            }
        });
    })
}

struct Source(Store);

impl Node for Source {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, netbricks_core::DropReason::Unconnected);
    }
    #[inline]
    fn poll(&mut self, batch: &mut Batch, _cx: &mut Context) -> Poll {
        let inner = &mut *self.0.0.borrow_mut();
        batch.append(&mut inner.bursts[inner.out]);
        inner.out += 1;
        if inner.out == inner.bursts.len() {
            inner.out = 0;
        }
        if let Some(hook) = &mut inner.hook {
            hook(batch);
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape { kind: "store receive".into(), ..Shape::receive() }
    }
}

struct Sink(Store);

impl Node for Sink {
    #[inline]
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let inner = &mut *self.0.0.borrow_mut();
        // A burst that returns in pieces fills further places. All places together hold all packets.
        while !batch.is_empty() {
            inner.bursts[inner.home].append(batch);
            inner.home += 1;
            if inner.home == inner.bursts.len() {
                inner.home = 0;
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape { kind: "store transmit".into(), ..Shape::transmit() }
    }
}

/// A node that allocates a burst of packets of `len` bytes a turn, with the bytes that the pool has.
pub fn allocate(burst: usize, len: usize) -> Box<dyn Node> {
    Box::new(Allocate { burst, bytes: vec![0; len] })
}
/// A node that frees its packets; they count as sent.
pub fn free() -> Box<dyn Node> {
    Box::new(Free)
}

struct Allocate {
    burst: usize,
    bytes: Vec<u8>,
}

impl Node for Allocate {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, netbricks_core::DropReason::Unconnected);
    }
    #[inline]
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let taken = cx.pool().allocate_written_into(batch, self.burst, &self.bytes);
        if taken == 0 { Poll::Idle } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape { kind: "allocate".into(), ..Shape::receive() }
    }
}

struct Free;

impl Node for Free {
    #[inline]
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape { kind: "free".into(), ..Shape::transmit() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netbricks_core::{Edge, GraphBuilder};

    #[test]
    fn the_same_packets_go_round_in_order_and_are_written_by_the_hook() {
        let pool = Pool::builder().frames(512).build().unwrap();
        let store = Store::new(&pool, 300, 60, 32).unwrap();
        store.reset(|number, packet| packet.data_mut()[..2].copy_from_slice(&(number as u16).to_be_bytes()));
        store.set_hook(Some(write_tuples((0..64u8).map(|i| [i; 12]).collect::<Vec<_>>())));
        let mut builder = GraphBuilder::new("bench");
        let source = builder.add("in", store.source()).unwrap();
        let sink = builder.add("out", store.sink()).unwrap();
        builder.connect(source, Edge::OUT, sink, 0).unwrap();
        let mut graph = builder.build(pool.clone()).unwrap();
        for turn in 1..=25u64 {
            graph.turn(0);
            assert_eq!(store.packets(), 300);
            assert!(graph.totals().sent.packets <= turn * 32 && graph.unbalanced().is_empty());
        }
        let mut tuples = std::collections::BTreeSet::new();
        let first = (25 % 10) * 32;
        store.for_each(|place, packet| {
            assert_eq!(packet.data()[..2], (((first + place) % 300) as u16).to_be_bytes());
            assert_eq!(packet.data()[26..38], [packet.data()[26]; 12]);
            tuples.insert(packet.data()[26]);
        });
        assert_eq!(tuples.len(), 64);
        drop((graph, store));
        assert_eq!(pool.available(), 512);
    }

    #[test]
    fn allocated_packets_come_home() {
        let pool = Pool::builder().frames(64).build().unwrap();
        let mut builder = GraphBuilder::new("bench");
        let source = builder.add("in", allocate(32, 60)).unwrap();
        let sink = builder.add("out", free()).unwrap();
        builder.connect(source, Edge::OUT, sink, 0).unwrap();
        let mut graph = builder.build(pool.clone()).unwrap();
        for _ in 0..100 {
            graph.turn(0);
        }
        assert_eq!((graph.totals().sent.packets, graph.totals().sent.bytes), (3_200, 192_000));
        assert_eq!(pool.available(), 64);
    }
}
