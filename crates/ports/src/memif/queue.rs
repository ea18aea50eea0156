//! The queues of a memif port: each has the end of a ring while a peer is there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::{Context, DropReason, Poll};

use super::ring::{Consumer, Producer, Refusal, Tally};
use crate::peer::TransmitCounts;
use crate::port::{Counters, ReceiveQueue, TransmitQueue};
use crate::seat::Seat;

/// The place where the port's thread hands over the end of a ring, or `None` when the peer has gone.
pub(super) type RingSeat<R> = Arc<Seat<Option<R>>>;

pub(super) struct Receiver {
    seat: RingSeat<Consumer>,
    ring: Box<Option<Consumer>>,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(seat: RingSeat<Consumer>, counters: Arc<Counters>) -> Self {
        Self { seat, ring: Box::new(None), counters }
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let ends = self.seat.waits();
        let Tally { packets, bytes, no_buffer, too_big, linearised } = match self.ring.as_mut() {
            Some(ring) => {
                if ends {
                    ring.end();
                }
                ring.receive(batch, cx)
            }
            None => Tally::default(),
        };
        if packets == 0 {
            // The packets that the last peer left come first.
            if ends && self.ring.as_ref().as_ref().is_none_or(Consumer::is_empty) {
                self.seat.swap(&mut self.ring);
                return Poll::Busy;
            }
            return Poll::Idle;
        }
        self.counters.arrived(packets, bytes, no_buffer, too_big);
        if linearised > 0 {
            Counters::add(&self.counters.linearised, linearised);
        }
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        if let Some(bell) = self.seat.bell() {
            watch(bell);
        }
        if let Some(ring) = self.ring.as_ref() {
            watch(ring.sleep());
        }
    }
    fn has_descriptor(&self) -> bool {
        true
    }
}

pub(super) struct Sender {
    seat: RingSeat<Producer>,
    ring: Box<Option<Producer>>,
    counts: TransmitCounts,
}

impl Sender {
    pub(super) fn new(seat: RingSeat<Producer>, counters: Arc<Counters>) -> Self {
        Self { seat, ring: Box::new(None), counts: TransmitCounts::new(counters) }
    }
}

/// Puts packets into a ring, from the first on. Answers how many, and why not the next one.
#[inline]
fn put(ring: &mut Producer, batch: &Batch) -> (usize, Option<Refusal>) {
    let mut free = match ring.free() {
        Ok(free) => free,
        Err(lie) => return (0, Some(Refusal::Lie(lie))),
    };
    for (count, packet) in batch.iter().enumerate() {
        match ring.put(packet.data(), free) {
            Ok(taken) => free -= taken,
            Err(refusal) => return (count, Some(refusal)),
        }
    }
    (batch.len(), None)
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        if self.seat.waits() {
            self.seat.swap(&mut self.ring);
        }
        while !batch.is_empty() {
            let Some(ring) = self.ring.as_mut().as_mut().filter(|ring| !ring.is_lost()) else {
                return self.counts.lose(batch.len(), DropReason::LinkDown, batch, cx);
            };
            let (sent, refusal) = put(ring, batch);
            if let Some(Refusal::Lie(lie)) = refusal {
                ring.lose(lie);
            }
            if sent > 0 {
                ring.publish();
                self.counts.sent(sent, batch, cx);
            }
            match refusal {
                None | Some(Refusal::Lie(_)) => {}
                Some(Refusal::Full) => return,
                Some(Refusal::TooBig) => self.counts.lose(1, DropReason::TooBig, batch, cx),
                Some(Refusal::Empty) => self.counts.lose(1, DropReason::Malformed, batch, cx),
            }
        }
    }
}
