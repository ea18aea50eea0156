//! A receive queue with a line before it.
//!
//! Packets that enter the line count as received. The receive node holds the packets that are on the line, or
//! that have left it but are not in the graph yet. Copies that the line makes are packets that the node
//! created.
//!
//! If the queue drives the clock, the line does so in its place: a delayed packet arrives when it is due,
//! before later packets, at every batch size.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{Context, DetachedContext, DropReason, Poll};

use super::Tap;
use super::line::{COPY, Exit, Line};
use crate::arrival::Arrivals;
use crate::checksum::ChecksumCheck;
use crate::pcap::Direction;
use crate::port::ReceiveQueue;

pub(super) struct Wrapped {
    inner: Box<dyn ReceiveQueue>,
    line: Option<Line>,
    tap: Option<Tap>,
    checksums: ChecksumCheck,
    drives_clock: bool,
    /// The queue's own clock.
    ///
    /// It may be ahead of the graph's while the line lets out packets that are due before.
    shadow: DetachedContext,
    /// Packets from the queue, on the way to the line: empty between calls, except after a panic.
    pending: Batch,
    /// Packets that left the line, in order.
    ready: VecDeque<Packet>,
    arrivals: Arrivals,
    last: Poll,
}

/// The line's exit: a packet that is lost on entry was received and dropped at once.
struct Out<'x> {
    ready: &'x mut VecDeque<Packet>,
    checksums: &'x ChecksumCheck,
    cx: &'x mut Context,
}

impl Exit for Out<'_> {
    fn leave(&mut self, packet: Packet) {
        self.ready.push_back(packet);
    }
    fn lose(&mut self, packet: Packet, reason: DropReason) {
        self.cx.receiving().drop_arrival(packet, reason);
    }
    fn copied(&mut self, _bytes: usize) {
        // Its bytes count when it enters the graph, like those of arrivals.
        self.cx.receiving().created(1, 0);
    }
    fn accepts(&mut self, packet: &Packet) -> bool {
        self.checksums.accepts(packet)
    }
}

impl Wrapped {
    pub(super) fn new(
        inner: Box<dyn ReceiveQueue>,
        line: Option<Line>,
        tap: Option<Tap>,
        checksums: ChecksumCheck,
        drives_clock: bool,
        pool: Pool,
    ) -> Self {
        Self {
            inner,
            line,
            tap,
            checksums,
            drives_clock,
            shadow: DetachedContext::new(pool),
            pending: Batch::new(),
            ready: VecDeque::with_capacity(4 * netbricks_buffer::BATCH),
            arrivals: Arrivals::default(),
            last: Poll::Busy,
        }
    }

    /// Moves packets that left the line into the batch, as many as may leave now.
    fn give(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.arrivals.begin(cx);
        while let Some(front) = self.ready.front() {
            let full = batch.len() >= cx.burst() || batch.is_full();
            if full || self.drives_clock && !self.arrivals.admit(front.received_at(), batch, cx) {
                return;
            }
            let Some(mut packet) = self.ready.pop_front() else { return };
            if packet.verdict() == COPY {
                packet.set_verdict(0);
                cx.receiving().created(0, packet.wire_len() as u64);
            }
            if let Err(packet) = batch.push(packet) {
                // Not reached: there was room.
                self.ready.push_front(packet);
                return;
            }
        }
    }

    /// Asks the queue for more packets and passes them through the line.
    ///
    /// The line stays in its place, so that a panic in the queue does not lose it.
    fn fetch(&mut self, cx: &mut Context) {
        self.give_up_pending(cx);
        let Self { inner, line: Some(line), checksums, drives_clock, shadow, pending, ready, last, .. } =
            self
        else {
            return;
        };
        shadow.advance(cx.now());
        if *last != Poll::Done {
            *last = inner.receive(pending, shadow);
        }
        for (reason, count) in shadow.take_drops().iter() {
            cx.receiving().lost_on_arrival(reason, count.packets, count.bytes);
        }
        let now = shadow.now();
        let mut exit = Out { ready, checksums, cx };
        line.advance(now, &mut exit);
        for packet in pending.drain() {
            line.enter(packet, now, &mut exit);
        }
        if *last == Poll::Done {
            line.end(now, &mut exit);
            if *drives_clock {
                // No source moves the clock any more: packets that are due later arrive then.
                line.empty(&mut exit);
            }
        }
    }

    /// Counts the packets that a queue had received before it panicked; they are not counted yet.
    fn give_up_pending(&mut self, cx: &mut Context) {
        cx.receiving().lost_on_arrival(DropReason::Panicked, self.pending.len() as u64, self.pending.bytes());
        self.pending.clear();
    }

    fn receive_by_line(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        if self.ready.is_empty() {
            self.fetch(cx);
        }
        self.give(batch, cx);
        if !batch.is_empty() || !self.ready.is_empty() {
            return Poll::Busy;
        }
        match (self.last, self.line.as_ref().and_then(Line::due)) {
            // The queue moves the clock to the time when packets on the line are due.
            (Poll::Idle, _) if self.drives_clock => Poll::Idle,
            (Poll::Done, None) => Poll::Done,
            (Poll::Done, Some(due)) => Poll::Until(due),
            (Poll::Until(time), Some(due)) => Poll::Until(time.min(due)),
            (Poll::Idle, Some(due)) if due <= cx.now().saturating_add(1) => Poll::Busy,
            (last, _) => last,
        }
    }
}

impl ReceiveQueue for Wrapped {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let poll =
            if self.line.is_some() { self.receive_by_line(batch, cx) } else { self.inner.receive(batch, cx) };
        if let Some(tap) = &self.tap {
            tap.see(cx.now(), Direction::Inbound, batch.iter());
        }
        poll
    }
    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        // A worker that slept on them would miss packets that leave the line.
        if !self.line.as_ref().is_some_and(|line| line.keeps()) {
            self.inner.descriptors(watch);
        }
    }
    fn has_descriptor(&self) -> bool {
        !self.line.as_ref().is_some_and(|line| line.keeps()) && self.inner.has_descriptor()
    }
    fn is_labelled(&self) -> bool {
        self.inner.is_labelled()
    }
    fn keeps_packets(&self) -> bool {
        // Also without a delay: one burst of the queue may be two of the graph.
        self.line.is_some()
    }
    fn held(&self) -> u64 {
        let line = self.line.as_ref().map_or(0, Line::held);
        (line + self.ready.len()) as u64
    }
    fn release(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.give_up_pending(cx);
        if let Some(line) = &mut self.line {
            line.empty(&mut Out { ready: &mut self.ready, checksums: &self.checksums, cx });
        }
        self.give(batch, cx);
        if let Some(tap) = &self.tap {
            tap.see(cx.now(), Direction::Inbound, batch.iter());
        }
    }
}
