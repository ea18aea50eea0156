//! The two directions of an `af_xdp` queue.
//!
//! Arrivals are the pool's own frames, which the kernel filled. Departures are lent to the kernel until it
//! has sent them. We copy no packet that fits a frame.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netbricks_buffer::{Batch, Packet};
use netbricks_core::{Context, DropReason, Poll};

use crate::interface::is_gone;
use crate::port::{Counters, ReceiveQueue, TransmitQueue};
use crate::sys::xdp::{ReceiveRing, TransmitRing};

/// The number of frames that are lent at a time.
const STOCK: usize = 64;
/// An idle queue checks for the socket's error, and calls the driver, once in this many turns.
const LOOK: u32 = 64;
/// Bytes of an Ethernet header, the least of any frame.
const ETHERNET: usize = 14;
/// Packets that the kernel takes a call in copy mode, if it cannot be asked for more.
const KERNEL_BATCH: u32 = 32;

/// One socket's receiving side.
pub(super) struct Arrivals {
    ring: ReceiveRing,
    /// The number of frames to keep with the kernel.
    target: usize,
    /// Frames that are missing before more are lent.
    least: usize,
    /// Pieces of a packet that has not arrived completely.
    pieces: Vec<Packet>,
    pieces_len: usize,
    /// The rest of the current packet is discarded.
    spoiled: bool,
    busy_poll: bool,
}

/// The frames that must be missing before more are lent: a few at a time would cost a publication each.
///
/// Packets that wait at other sockets have frames, too, as many as their [rings](super::arrivals_ring) hold. The rest must
/// be more than this.
fn least_missing(target: usize, sockets: usize) -> usize {
    let share = if sockets > 1 { target / (2 * (sockets + 1)) } else { target };
    STOCK.min(share).max(1)
}

/// More pieces than any driver makes of a packet (MAX_SKB_FRAGS and its head).
const PIECES: usize = 24;

impl Arrivals {
    /// The side of one of `sockets` that share frames.
    pub(super) fn new(ring: ReceiveRing, target: usize, sockets: usize, busy_poll: bool) -> Self {
        let (least, pieces) = (least_missing(target, sockets), Vec::with_capacity(PIECES));
        Self { ring, target, least, pieces, pieces_len: 0, spoiled: false, busy_poll }
    }

    /// Lends the kernel frames for arrivals, as many as are missing.
    ///
    /// Where sockets share a fill ring, it must be [borrowed](ReceiveRing::borrow_filling).
    pub(super) fn stock(&mut self, scratch: &mut Batch) {
        let mut missing = self.target.saturating_sub(self.ring.stocked());
        if missing < self.least {
            return;
        }
        let pool = self.ring.socket().pool().clone();
        while missing > 0 && self.ring.room(missing.min(STOCK)) > 0 {
            let got = pool.allocate_into(scratch, missing.min(STOCK));
            while let Some(packet) = scratch.pop() {
                if let Err(packet) = self.ring.stock(packet) {
                    drop(packet);
                    scratch.clear();
                    missing = 0;
                    break;
                }
            }
            if got == 0 {
                break;
            }
            missing = missing.saturating_sub(got);
        }
        self.ring.publish();
    }

    /// As [`stock`](Self::stock), before a worker has the socket.
    pub(super) fn stock_alone(&mut self, scratch: &mut Batch) {
        if self.ring.borrow_filling() {
            self.stock(scratch);
            self.ring.put_back();
        }
    }

    /// Moves up to `room` packets into the batch, and counts them and their bytes.
    fn take(&mut self, batch: &mut Batch, room: usize, cx: &mut Context, counts: &mut Counts) {
        let waiting = self.ring.waiting();
        let mut taken = 0;
        while taken < room && taken < waiting {
            let Some(arrival) = self.ring.next() else { break };
            taken += 1;
            let Ok(arrival) = arrival else {
                // The kernel named bytes outside the lent frames: the frame is not ours to use, and nothing
                // is known of the packet.
                counts.packets += 1;
                cx.receiving().lost_on_arrival(DropReason::Malformed, 1, 0);
                continue;
            };
            if arrival.continues || !self.pieces.is_empty() || self.spoiled {
                self.piece(arrival.packet, arrival.continues, batch, cx, counts);
                continue;
            }
            counts.packets += 1;
            counts.bytes += arrival.packet.len() as u64;
            if let Err(packet) = batch.push(arrival.packet) {
                // Not reached: `room` is the space in the batch.
                cx.receiving().drop_arrival(packet, DropReason::QueueFull);
            }
        }
        if taken > 0 {
            self.ring.release();
        }
    }

    /// Collects a piece of a packet in several frames. The last piece completes the packet in one frame.
    #[cold]
    fn piece(
        &mut self,
        packet: Packet,
        more: bool,
        batch: &mut Batch,
        cx: &mut Context,
        counts: &mut Counts,
    ) {
        self.pieces_len += packet.len();
        if self.pieces.len() < PIECES {
            self.pieces.push(packet);
        } else {
            self.spoiled = true;
        }
        if more {
            return;
        }
        let len = std::mem::take(&mut self.pieces_len);
        let spoiled = std::mem::take(&mut self.spoiled);
        counts.packets += 1;
        counts.bytes += len as u64;
        let whole = if spoiled { None } else { cx.pool().empty(len) };
        let whole = whole.and_then(|mut whole| {
            self.pieces.iter().try_for_each(|piece| whole.extend_from(piece.data())).ok()?;
            Some(whole)
        });
        self.pieces.clear();
        match whole {
            Some(whole) => {
                counts.linearised += 1;
                if let Err(packet) = batch.push(whole) {
                    cx.receiving().drop_arrival(packet, DropReason::QueueFull);
                }
            }
            None => {
                let too_big = spoiled || len > cx.pool().largest_packet();
                counts.no_buffer += u64::from(!too_big);
                counts.too_big += u64::from(too_big);
                let reason = if too_big { DropReason::TooBig } else { DropReason::PoolExhausted };
                cx.receiving().lost_on_arrival(reason, 1, len as u64);
            }
        }
    }
}

/// The counts of one turn.
#[derive(Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    linearised: u64,
    no_buffer: u64,
    too_big: u64,
}

/// A receive queue over one or more queues of the device.
pub(super) struct Receiver {
    arrivals: Vec<Arrivals>,
    /// The socket whose turn is first.
    first: usize,
    scratch: Batch,
    idle: u32,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(arrivals: Vec<Arrivals>, scratch: Batch, counters: Arc<Counters>) -> Self {
        Self { arrivals, first: 0, scratch, idle: 0, counters }
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let mut counts = Counts::default();
        let mut busy = false;
        let sockets = self.arrivals.len();
        for turn in 0..sockets {
            let arrivals = &mut self.arrivals[(self.first + turn) % sockets];
            let room = cx.burst().saturating_sub(batch.len());
            if room == 0 {
                break;
            }
            if !arrivals.ring.borrow_filling() {
                // Another worker has the fill ring for the time of a batch.
                busy = true;
                continue;
            }
            arrivals.take(batch, room, cx, &mut counts);
            arrivals.stock(&mut self.scratch);
            if arrivals.busy_poll || arrivals.ring.needs_wakeup() {
                // Only an idle driver sleeps, or one that had no frames: there is no call for each packet.
                arrivals.ring.wake();
            }
            arrivals.ring.put_back();
        }
        self.first = if self.first + 1 >= sockets { 0 } else { self.first + 1 };
        if counts.packets == 0 && busy {
            return Poll::Busy;
        }
        if counts.packets == 0 {
            if self.idle.is_multiple_of(LOOK) {
                for arrivals in &self.arrivals {
                    // A device that is gone says so once; until the socket is asked, it counts as readable.
                    let _ = arrivals.ring.socket().take_error();
                }
            }
            self.idle = self.idle.wrapping_add(1);
            return Poll::Idle;
        }
        self.idle = 0;
        Counters::add(&self.counters.received, counts.packets);
        Counters::add(&self.counters.received_bytes, counts.bytes);
        if counts.linearised > 0 {
            Counters::add(&self.counters.linearised, counts.linearised);
        }
        if counts.no_buffer > 0 {
            Counters::add_shared(&self.counters.no_buffer, counts.no_buffer);
        }
        if counts.too_big > 0 {
            Counters::add(&self.counters.too_big_to_receive, counts.too_big);
        }
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        // Without frames to fill, the kernel wakes no worker: a worker that sleeps on such a socket would not
        // see that frames are free again.
        if self.arrivals.iter().all(|arrivals| arrivals.ring.stocked() > 0) {
            self.arrivals.iter().for_each(|arrivals| watch(arrivals.ring.socket().as_fd()));
        }
    }
}

fn is_down(error: &std::io::Error) -> bool {
    is_gone(error) || error.raw_os_error() == Some(libc::ENETDOWN)
}

/// A transmit queue.
pub(super) struct Sender {
    ring: TransmitRing,
    counters: Arc<Counters>,
    /// Frames that came back, before they return to the pool.
    done: Batch,
    /// Packets that go back into the batch, in order.
    hand: Batch,
    /// Frames of a packet that needs several.
    pieces: Vec<Packet>,
    /// The device was gone or down at the last call.
    down: bool,
    /// The most frames of a packet: one if the socket takes no packets in several frames.
    most: usize,
}

impl Sender {
    pub(super) fn new(ring: TransmitRing, fragments: bool, counters: Arc<Counters>) -> Self {
        let most = if fragments { PIECES } else { 1 };
        let pieces = Vec::with_capacity(PIECES);
        Self { ring, counters, done: Batch::new(), hand: Batch::new(), pieces, down: false, most }
    }

    /// Takes back frames that were sent.
    fn reclaim(&mut self) {
        let mut any = false;
        while let Some(packet) = self.ring.reclaim() {
            any = true;
            if let Err(packet) = self.done.push(packet) {
                self.done.clear();
                drop(packet);
            }
        }
        if any {
            self.ring.release();
            self.done.clear();
        }
    }

    /// Makes the driver take the packets in the ring.
    fn wake(&mut self) {
        if !self.ring.needs_wakeup() {
            return;
        }
        // In copy mode the kernel sends inside the call, some packets at a time. Each round but the last
        // sends at least one packet, or we leave the rest for the next call.
        let mut before = u32::MAX;
        loop {
            let unsent = self.ring.unsent();
            if unsent == 0 || unsent >= before {
                return;
            }
            before = unsent;
            match self.ring.wake() {
                Err(error) if is_down(&error) => {
                    self.down = true;
                    return;
                }
                Ok(()) if unsent <= KERNEL_BATCH => return,
                _ => {}
            }
        }
    }

    /// The reason why a packet cannot be sent at all: the kernel would skip its descriptor silently.
    #[inline(always)]
    fn refuses(&self, packet: &Packet) -> Option<DropReason> {
        let len = packet.len();
        if len < ETHERNET {
            return Some(DropReason::Malformed);
        }
        let small = self.ring.socket().pool().small_packet();
        (len > small && len > self.most * small).then_some(DropReason::TooBig)
    }

    /// Copies a packet that is in no frame of the UMEM into frames of it, several if needed.
    ///
    /// Gives the packet back when there is no room, or no frame.
    #[inline(never)]
    fn send_copied(&mut self, packet: Packet) -> Result<(), Packet> {
        let pool = self.ring.socket().pool().clone();
        let size = pool.small_packet();
        let pieces = packet.len().div_ceil(size).max(1);
        if self.ring.room(pieces) < pieces {
            return Err(packet);
        }
        self.pieces.clear();
        for piece in packet.data().chunks(size) {
            match pool.packet(piece) {
                Some(frame) => self.pieces.push(frame),
                None => {
                    self.pieces.clear();
                    return Err(packet);
                }
            }
        }
        let last = self.pieces.len().saturating_sub(1);
        for (index, frame) in self.pieces.drain(..).enumerate() {
            // There is room, and the frames are the pool's small ones.
            let _ = self.ring.send(frame, index < last);
        }
        Ok(())
    }
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.reclaim();
        if self.down {
            // Ask before more packets are put into a ring that the device does not empty.
            self.down = self.ring.wake().is_err_and(|error| is_down(&error));
            if self.down {
                Counters::add_shared(&self.counters.not_sent, batch.len() as u64);
                cx.drop_batch(batch, DropReason::LinkDown);
                return;
            }
        }
        let room = self.ring.room(batch.len());
        if room == 0 {
            self.wake();
            self.reclaim();
        }
        let count = self.ring.room(batch.len()).min(batch.len());
        batch.take_front(count, &mut self.hand);
        let (mut packets, mut bytes) = (0, 0);
        let mut back = None;
        let mut rest = self.hand.drain();
        for packet in rest.by_ref() {
            let len = packet.len() as u64;
            if let Some(reason) = self.refuses(&packet) {
                Counters::add_shared(&self.counters.not_sent, 1);
                Counters::add_shared(&self.counters.too_big_to_send, u64::from(reason == DropReason::TooBig));
                cx.drop_packet(packet, reason);
                continue;
            }
            let sent = match self.ring.send(packet, false) {
                Ok(()) => Ok(()),
                Err(packet) => self.send_copied(packet),
            };
            match sent {
                Ok(()) => {
                    packets += 1;
                    bytes += len;
                }
                Err(packet) => {
                    back = Some(packet);
                    break;
                }
            }
        }
        if let Some(packet) = back {
            // Back to the front of the batch, in order.
            let _ = self.hand.push(packet);
            for packet in rest {
                let _ = self.hand.push(packet);
            }
            self.hand.append(batch);
            std::mem::swap(&mut self.hand, batch);
        }
        if packets > 0 {
            self.ring.publish();
            cx.transmitting().sent(packets, bytes);
            Counters::add(&self.counters.sent, packets);
            Counters::add(&self.counters.sent_bytes, bytes);
        }
        self.wake();
        self.reclaim();
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    fn flush(&mut self, _cx: &mut Context) {
        if self.ring.in_flight() > 0 {
            self.wake();
            self.reclaim();
        }
    }

    fn needs_flush(&self) -> bool {
        // Packets that the kernel could not take at once wait in the ring for another call.
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{arrivals_ring, fewest_frames};
    use super::*;

    /// While the rings of all other sockets are full, the one that works still gets frames.
    #[test]
    fn full_rings_leave_frames_to_lend() {
        for sockets in [1, 2, 3, 4, 8, 31, 32, 64, 256] {
            let fewest = fewest_frames(sockets);
            for target in [fewest, fewest + 1, 2 * fewest, 2048.max(fewest), 32_768] {
                let ring = arrivals_ring(32_768, target, sockets) as usize;
                assert!(ring >= 8, "a ring of {ring} for {sockets} sockets");
                let kept = if sockets > 1 { (sockets - 1) * ring } else { 0 };
                let least = least_missing(target, sockets);
                assert!(
                    least > 0 && kept + least <= target,
                    "{sockets} sockets, {target} frames: {kept}, {least}"
                );
            }
        }
    }
}
