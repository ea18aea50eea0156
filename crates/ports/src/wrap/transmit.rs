//! A transmit queue with a line behind it.
//!
//! The transmit node holds the packets on the line; they are not sent yet. Copies that the line makes are
//! packets that the node created.

use std::collections::VecDeque;

use netbricks_buffer::{Batch, Packet};
use netbricks_core::{Context, DropReason};

use super::Tap;
use super::line::{Exit, Line};
use crate::node::{LiveLimits, offer};
use crate::pcap::Direction;
use crate::port::{Counters, TransmitQueue};

pub(super) struct Wrapped {
    inner: Box<dyn TransmitQueue>,
    line: Option<Line>,
    tap: Option<Tap>,
    /// The largest MTU allowed, also if the port supports a larger one.
    mtu: Option<usize>,
    /// Packets that left the line, on the way to the queue: empty between calls, except after a panic.
    ready: VecDeque<Packet>,
    out: Batch,
}

/// The line's exit; it counts at the node that sends.
struct Out<'x> {
    ready: &'x mut VecDeque<Packet>,
    cx: &'x mut Context,
}

impl Exit for Out<'_> {
    fn leave(&mut self, mut packet: Packet) {
        packet.set_verdict(0);
        self.ready.push_back(packet);
    }
    fn lose(&mut self, packet: Packet, reason: DropReason) {
        self.cx.drop_packet(packet, reason);
    }
    fn copied(&mut self, bytes: usize) {
        self.cx.transmitting().created(1, bytes as u64);
    }
}

impl Wrapped {
    pub(super) fn new(
        inner: Box<dyn TransmitQueue>,
        line: Option<Line>,
        tap: Option<Tap>,
        mtu: Option<usize>,
    ) -> Self {
        let ready = VecDeque::with_capacity(4 * netbricks_buffer::BATCH);
        Self { inner, line, tap, mtu, ready, out: Batch::new() }
    }

    /// Frees packets that a queue did not reach when it panicked: they were counted as lost then.
    fn clear_up(&mut self) {
        self.ready.clear();
        self.out.clear();
    }

    /// Gives the queue the packets that left the line. Each is sent or counted as lost before this returns.
    fn send(&mut self, cx: &mut Context) {
        while !self.ready.is_empty() {
            while !self.out.is_full()
                && let Some(packet) = self.ready.pop_front()
            {
                if let Err(packet) = self.out.push(packet) {
                    // Not reached: there was room.
                    self.ready.push_front(packet);
                    break;
                }
            }
            offer(&mut *self.inner, &mut self.out, cx);
            if let Some(line) = &self.line
                && !self.out.is_empty()
            {
                Counters::add_shared(&line.counters().not_sent, self.out.len() as u64);
                cx.drop_batch(&mut self.out, DropReason::TransmitFull);
            }
        }
    }
}

impl TransmitQueue for Wrapped {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.clear_up();
        let now = cx.now();
        if let Some(tap) = &self.tap {
            tap.see(now, Direction::Outbound, batch.iter());
        }
        let Some(line) = &mut self.line else {
            return self.inner.transmit(batch, cx);
        };
        let mut exit = Out { ready: &mut self.ready, cx };
        line.advance(now, &mut exit);
        for packet in batch.drain() {
            line.enter(packet, now, &mut exit);
        }
        self.send(cx);
    }
    fn is_patient(&self) -> bool {
        self.inner.is_patient()
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn flush(&mut self, cx: &mut Context) {
        self.clear_up();
        if let Some(line) = &mut self.line {
            let now = cx.now();
            line.advance(now, &mut Out { ready: &mut self.ready, cx });
            self.send(cx);
        }
        self.inner.flush(cx);
    }
    fn needs_flush(&self) -> bool {
        self.inner.needs_flush() || self.line.as_ref().is_some_and(Line::keeps)
    }
    fn keeps_packets(&self) -> bool {
        self.line.as_ref().is_some_and(Line::keeps) || self.inner.keeps_packets()
    }
    fn held(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.held() as u64) + self.inner.held()
    }
    fn due(&self) -> Option<u64> {
        let line = self.line.as_ref().and_then(Line::due);
        line.into_iter().chain(self.inner.due()).min()
    }
    fn limits(&self) -> Option<LiveLimits> {
        let limits = self.inner.limits();
        match self.mtu {
            Some(mtu) => limits.map(|limits| limits.at_most(mtu)),
            None => limits,
        }
    }
    fn release(&mut self, cx: &mut Context) {
        self.clear_up();
        if let Some(line) = &mut self.line {
            line.empty(&mut Out { ready: &mut self.ready, cx });
            self.send(cx);
        }
        self.inner.release(cx);
    }
}
