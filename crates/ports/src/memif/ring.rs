//! A ring of descriptors in shared memory, and its two ends: a consumer and a producer.
//!
//! The client makes the ring and its buffers, and moves the head. The server moves the tail. Where packets go to
//! the server, the client fills buffers and moves the head over them. Where they come from the server, the head
//! offers empty buffers, which the server fills and moves the tail over.
//!
//! The other side is not trusted. Each of its numbers is read once and compared with what is possible. An
//! impossible one ends the connection: see [`Lie`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{Context, DropReason};
use rustix::event::{EventfdFlags, eventfd};

use crate::peer::bells::Bells;
use crate::peer::interrupt::Interrupt;
use crate::sys::shared::SharedMemory;

/// The first word of every ring.
const COOKIE: u32 = 0x03e3_1f20;
/// The places of a ring's numbers, in bytes from its beginning: each side writes to cache lines of its own.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;
/// Bytes of a descriptor: flags, region, length, offset, and 4 bytes of metadata.
const DESCRIPTOR: usize = 16;
/// The flag of a ring whose receiver wants no events.
const MASK_INTERRUPT: u16 = 1;
/// The flag of a descriptor whose packet goes on in the next one.
const NEXT: u16 = 1;
/// The most descriptors of a packet.
pub(super) const MOST_PIECES: usize = 64;

/// Bytes of a ring with this many descriptors.
pub(super) const fn ring_bytes(size: usize) -> usize {
    DESCRIPTORS + DESCRIPTOR * size
}

/// Something that no honest peer writes into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lie {
    /// An index is further on than the ring has descriptors.
    Index = 1,
    /// A packet's descriptors go on around the whole ring.
    Endless = 2,
    /// An empty buffer is not in its region.
    Buffer = 3,
}

impl Lie {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Index => "a ring's head or tail is further on than the ring has descriptors",
            Self::Endless => "a packet's chain of descriptors has no end",
            Self::Buffer => "a descriptor offers a buffer outside of its region",
        }
    }
}

/// Where a connection's queues report a lie. The first one stays.
#[derive(Debug)]
pub(super) struct Fault {
    lie: AtomicU8,
    /// Wakes the port's thread. It is of this process alone, and so never blocks.
    wake: Arc<OwnedFd>,
}

impl Fault {
    pub(super) fn new(wake: Arc<OwnedFd>) -> Self {
        Self { lie: AtomicU8::new(0), wake }
    }
    pub(super) fn get(&self) -> Option<Lie> {
        match self.lie.load(Ordering::Acquire) {
            1 => Some(Lie::Index),
            2 => Some(Lie::Endless),
            3 => Some(Lie::Buffer),
            _ => None,
        }
    }
    #[cold]
    fn report(&self, lie: Lie) {
        if self.lie.compare_exchange(0, lie as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // It can only fail because the thread is awake already.
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// A ring, whose whole extent is in its region.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    regions: Arc<Vec<SharedMemory>>,
    region: usize,
    at: usize,
    size: u16,
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) flags: u16,
    pub(super) region: u16,
    pub(super) length: u32,
    pub(super) offset: u32,
}

impl Ring {
    /// The ring of `1 << log2` descriptors at `at` of a region. `None` if it is not inside, or misaligned.
    pub(super) fn new(regions: Arc<Vec<SharedMemory>>, region: u16, at: u32, log2: u8) -> Option<Self> {
        let size = 1_u16.checked_shl(log2.into()).filter(|size| *size <= 1 << super::message::MOST_LOG2)?;
        let (region, at) = (usize::from(region), at as usize);
        let is_inside = regions.get(region)?.holds(at, ring_bytes(size.into()));
        (is_inside && at.is_multiple_of(DESCRIPTOR)).then_some(Self { regions, region, at, size })
    }

    /// The number of its descriptors.
    pub(super) fn size(&self) -> u16 {
        self.size
    }
    #[inline(always)]
    pub(super) fn memory(&self) -> &SharedMemory {
        // The region was there when the ring was made, and the list does not change.
        &self.regions[self.region]
    }
    #[inline(always)]
    fn place(&self, position: u16) -> usize {
        self.at + DESCRIPTORS + DESCRIPTOR * usize::from(self.slot(position))
    }
    /// The number of the descriptor at a position.
    #[inline(always)]
    fn slot(&self, position: u16) -> u16 {
        position & (self.size - 1)
    }

    /// Writes the state of a new ring: its receiver wants events.
    pub(super) fn begin(&self) {
        self.memory().store_u32(self.at, COOKIE);
        self.memory().store_release(self.at + FLAGS, 0);
        self.set_head(0);
        self.set_tail(0);
    }
    pub(super) fn has_cookie(&self) -> bool {
        self.memory().load_u32(self.at) == COOKIE
    }
    #[inline(always)]
    pub(super) fn head(&self) -> u16 {
        self.memory().load_acquire(self.at + HEAD)
    }
    #[inline(always)]
    pub(super) fn set_head(&self, head: u16) {
        self.memory().store_release(self.at + HEAD, head);
    }
    #[inline(always)]
    pub(super) fn tail(&self) -> u16 {
        self.memory().load_acquire(self.at + TAIL)
    }
    #[inline(always)]
    pub(super) fn set_tail(&self, tail: u16) {
        self.memory().store_release(self.at + TAIL, tail);
    }
    /// Says whether the receiver wants events.
    pub(super) fn set_masked(&self, masked: bool) {
        self.memory().store_release(self.at + FLAGS, if masked { MASK_INTERRUPT } else { 0 });
    }
    #[inline(always)]
    fn is_masked(&self) -> bool {
        self.memory().load_relaxed(self.at + FLAGS) & MASK_INTERRUPT != 0
    }

    /// Reads a descriptor, each byte once.
    #[inline(always)]
    pub(super) fn descriptor(&self, position: u16) -> Descriptor {
        let place = self.place(position);
        let [f0, f1, r0, r1, l0, l1, l2, l3] = self.memory().load_word(place);
        let [o0, o1, o2, o3, ..] = self.memory().load_word(place + 8);
        Descriptor {
            flags: u16::from_ne_bytes([f0, f1]),
            region: u16::from_ne_bytes([r0, r1]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }
    #[inline(always)]
    pub(super) fn set_descriptor(&self, position: u16, descriptor: Descriptor) {
        let place = self.place(position);
        let ([f0, f1], [r0, r1]) = (descriptor.flags.to_ne_bytes(), descriptor.region.to_ne_bytes());
        let [l0, l1, l2, l3] = descriptor.length.to_ne_bytes();
        let [o0, o1, o2, o3] = descriptor.offset.to_ne_bytes();
        self.memory().store_word(place, [f0, f1, r0, r1, l0, l1, l2, l3]);
        self.memory().store_word(place + 8, [o0, o1, o2, o3, 0, 0, 0, 0]);
    }
}

/// The buffers of a ring that this process made: one a descriptor, in region 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// The place of the first one, in bytes.
    pub(super) first: usize,
    /// Bytes of each.
    pub(super) size: usize,
}

impl Buffers {
    #[inline(always)]
    fn place(&self, slot: u16) -> usize {
        self.first + self.size * usize::from(slot)
    }
}

/// A part of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    region: u16,
    at: usize,
    len: usize,
}

impl Piece {
    fn memory<'r>(&self, ring: &'r Ring) -> Option<&'r SharedMemory> {
        ring.regions.get(usize::from(self.region))
    }
}

/// The packets that a turn received.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Packets that arrived, lost ones included.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) no_buffer: u64,
    pub(super) too_big: u64,
    pub(super) linearised: u64,
}

/// A packet's descriptors.
enum Chain {
    Whole {
        slots: u16,
        pieces: usize,
        bytes: usize,
        lost: Option<DropReason>,
    },
    /// The other side has not made all of them available.
    Unfinished,
}

/// The receiving end of a ring.
pub(super) struct Consumer {
    ring: Ring,
    /// The buffers, where this process made the ring.
    own: Option<Buffers>,
    /// The position of the next descriptor to take.
    next: u16,
    /// The position up to which buffers were offered, where this process made the ring.
    offered: u16,
    /// The position up to which descriptors are taken, after the peer has gone.
    last: Option<u16>,
    /// The position up to which there is only the beginning of a packet.
    unfinished: Option<u16>,
    is_lost: bool,
    /// The worker may sleep, and the other side was asked for events.
    sleeps: AtomicBool,
    interrupt: Interrupt,
    /// A descriptor that is always readable.
    ready: OwnedFd,
    fault: Arc<Fault>,
    pieces: [Piece; MOST_PIECES],
}

impl Consumer {
    /// The receiving end of `ring`. Where it has buffers, all are offered.
    pub(super) fn new(
        ring: Ring,
        own: Option<Buffers>,
        interrupt: Interrupt,
        fault: Arc<Fault>,
    ) -> std::io::Result<Self> {
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut consumer = Self {
            ring,
            own,
            next: 0,
            offered: 0,
            last: None,
            unfinished: None,
            is_lost: false,
            sleeps: AtomicBool::new(false),
            interrupt,
            ready,
            fault,
            pieces: [Piece::default(); MOST_PIECES],
        };
        match consumer.own {
            Some(own) => consumer.offer(own, consumer.ring.size()),
            None => consumer.ring.set_tail(0),
        }
        consumer.ring.set_masked(true);
        Ok(consumer)
    }

    /// Offers this many empty buffers.
    fn offer(&mut self, own: Buffers, count: u16) {
        for _ in 0..count {
            let place = own.place(self.ring.slot(self.offered));
            let empty = Descriptor { flags: 0, region: 0, length: own.size as u32, offset: place as u32 };
            self.ring.set_descriptor(self.offered, empty);
            self.offered = self.offered.wrapping_add(1);
        }
        self.ring.set_head(self.offered);
    }

    /// The most descriptors that the other side can have filled.
    fn most(&self) -> u16 {
        if self.own.is_some() { self.offered.wrapping_sub(self.next) } else { self.ring.size() }
    }

    /// The number of descriptors that the other side has filled.
    #[inline]
    fn available(&self) -> Result<u16, Lie> {
        let end = if self.own.is_some() { self.ring.tail() } else { self.ring.head() };
        let filled = end.wrapping_sub(self.next);
        if filled > self.most() {
            return Err(Lie::Index);
        }
        Ok(self.last.map_or(filled, |last| filled.min(last.wrapping_sub(self.next))))
    }

    #[cold]
    fn lose(&mut self, lie: Lie) {
        self.is_lost = true;
        self.fault.report(lie);
    }

    /// The peer has gone: only packets that are there now are still taken.
    pub(super) fn end(&mut self) {
        if self.last.is_none() {
            self.last = Some(self.next.wrapping_add(self.available().unwrap_or(0)));
        }
    }
    /// Whether no packet is there, or none can be taken any more.
    pub(super) fn is_empty(&self) -> bool {
        self.is_lost || self.waiting() == 0
    }
    /// The number of descriptors with something new.
    fn waiting(&self) -> u16 {
        match self.available() {
            Ok(filled) if self.unfinished == Some(self.next.wrapping_add(filled)) => 0,
            Ok(filled) => filled,
            Err(_) => 1,
        }
    }

    /// Finds the descriptors of the next packet among the `filled` next ones.
    #[inline]
    fn chain(&mut self, filled: u16) -> Chain {
        let (mut pieces, mut bytes, mut lost) = (0, 0_usize, None);
        for slot in 0..filled {
            let position = self.next.wrapping_add(slot);
            let found = self.ring.descriptor(position);
            let len = found.length as usize;
            let piece = match self.own {
                // The other side may write its length and flags only.
                Some(own) => Piece { region: 0, at: own.place(self.ring.slot(position)), len },
                None => Piece { region: found.region, at: found.offset as usize, len },
            };
            let is_inside = self.own.is_none_or(|own| len <= own.size)
                && piece.memory(&self.ring).is_some_and(|memory| memory.holds(piece.at, len));
            if !is_inside {
                lost = Some(DropReason::Malformed);
            } else if let Some(place) = self.pieces.get_mut(pieces) {
                *place = piece;
                pieces += 1;
                bytes += len;
            } else {
                lost = lost.or(Some(DropReason::TooBig));
            }
            if found.flags & NEXT == 0 {
                let lost = if bytes == 0 { lost.or(Some(DropReason::Malformed)) } else { lost };
                return Chain::Whole { slots: slot + 1, pieces, bytes, lost };
            }
        }
        Chain::Unfinished
    }

    /// Copies the pieces of a packet into a frame.
    #[inline]
    fn copy(&self, pieces: usize, bytes: usize, pool: &Pool) -> Result<Packet, DropReason> {
        if bytes > crate::interface::LARGEST_ARRIVAL || bytes > pool.largest_packet() {
            return Err(DropReason::TooBig);
        }
        let mut packet = pool.empty(bytes).ok_or(DropReason::PoolExhausted)?;
        for piece in &self.pieces[..pieces] {
            let memory = piece.memory(&self.ring).ok_or(DropReason::Malformed)?;
            if !memory.append_to(piece.at, piece.len, &mut packet) {
                return Err(DropReason::Malformed);
            }
        }
        Ok(packet)
    }

    /// Puts up to a burst of packets into the batch.
    pub(super) fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Tally {
        let mut tally = Tally::default();
        self.wake();
        if self.is_lost {
            return tally;
        }
        let mut filled = match self.available() {
            Ok(filled) => filled,
            Err(lie) => {
                self.lose(lie);
                return tally;
            }
        };
        if self.unfinished == Some(self.next.wrapping_add(filled)) {
            return tally;
        }
        // Indexes come again: it is no longer the packet's end.
        self.unfinished = None;
        let first = self.next;
        while filled > 0 && tally.packets < cx.burst() as u64 {
            let Chain::Whole { slots, pieces, bytes, lost } = self.chain(filled) else {
                if filled >= self.ring.size() {
                    self.lose(Lie::Endless);
                }
                self.unfinished = Some(self.next.wrapping_add(filled));
                break;
            };
            tally.packets += 1;
            tally.bytes += bytes as u64;
            match lost.map_or_else(|| self.copy(pieces, bytes, cx.pool()), Err) {
                Ok(packet) => {
                    tally.linearised += u64::from(pieces > 1);
                    if batch.push(packet).is_err() {
                        // Not reached: a burst is at most a batch.
                        cx.receiving().lost_on_arrival(DropReason::QueueFull, 1, bytes as u64);
                    }
                }
                Err(reason) => {
                    tally.no_buffer += u64::from(reason == DropReason::PoolExhausted);
                    tally.too_big += u64::from(reason == DropReason::TooBig);
                    cx.receiving().lost_on_arrival(reason, 1, bytes as u64);
                }
            }
            self.next = self.next.wrapping_add(slots);
            filled -= slots;
        }
        let taken = self.next.wrapping_sub(first);
        match self.own {
            Some(own) => self.offer(own, taken),
            None => self.ring.set_tail(self.next),
        }
        tally
    }

    /// Wants no events while the worker polls.
    #[inline(always)]
    fn wake(&self) {
        if self.sleeps.load(Ordering::Relaxed) {
            self.sleeps.store(false, Ordering::Relaxed);
            self.ring.set_masked(true);
            self.interrupt.clear();
        }
    }

    /// Asks for events, and names the descriptor on which a worker sleeps.
    pub(super) fn sleep(&self) -> BorrowedFd<'_> {
        self.sleeps.store(true, Ordering::Relaxed);
        self.ring.set_masked(false);
        // The other side moves its index and then reads the flag, so one of the two sees the other's write.
        fence(Ordering::SeqCst);
        if self.is_empty() { self.interrupt.as_fd() } else { self.ready.as_fd() }
    }
}

/// The reason why a packet was not put into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no room now.
    Full,
    /// There is never room.
    TooBig,
    /// It has no bytes.
    Empty,
    Lie(Lie),
}

/// The sending end of a ring.
pub(super) struct Producer {
    ring: Ring,
    own: Option<Buffers>,
    /// The position of the next descriptor to fill.
    next: u16,
    is_lost: bool,
    bells: Arc<Bells>,
    /// The ring's number among the bells.
    bell: usize,
    fault: Arc<Fault>,
    pieces: [Piece; MOST_PIECES],
}

impl Producer {
    pub(super) fn new(
        ring: Ring,
        own: Option<Buffers>,
        (bells, bell): (Arc<Bells>, usize),
        fault: Arc<Fault>,
    ) -> Self {
        if own.is_none() {
            ring.set_tail(0);
        }
        Self {
            ring,
            own,
            next: 0,
            is_lost: false,
            bells,
            bell,
            fault,
            pieces: [Piece::default(); MOST_PIECES],
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
    #[cold]
    pub(super) fn lose(&mut self, lie: Lie) {
        self.is_lost = true;
        self.fault.report(lie);
    }

    /// The number of descriptors that can be filled now.
    #[inline]
    pub(super) fn free(&self) -> Result<u16, Lie> {
        let size = self.ring.size();
        let free = match self.own {
            Some(_) => size.checked_sub(self.next.wrapping_sub(self.ring.tail())),
            None => Some(self.ring.head().wrapping_sub(self.next)).filter(|free| *free <= size),
        };
        free.ok_or(Lie::Index)
    }

    /// Copies a packet behind those before it, where `free` descriptors can be filled. Answers how many it took.
    #[inline]
    pub(super) fn put(&mut self, data: &[u8], free: u16) -> Result<u16, Refusal> {
        if data.is_empty() {
            return Err(Refusal::Empty);
        }
        match self.own {
            Some(own) => self.put_into(own, data, free),
            None => self.put_there(data, free),
        }
    }

    /// Copies a packet into buffers of this process.
    #[inline]
    fn put_into(&mut self, own: Buffers, data: &[u8], free: u16) -> Result<u16, Refusal> {
        let count = data.len().div_ceil(own.size);
        if count > MOST_PIECES.min(self.ring.size().into()) {
            return Err(Refusal::TooBig);
        }
        if count > usize::from(free) {
            return Err(Refusal::Full);
        }
        for (number, part) in (1..).zip(data.chunks(own.size)) {
            let place = own.place(self.ring.slot(self.next));
            // The buffers are inside the region that was made for them.
            self.ring.regions[0].copy_in(place, part);
            let flags = if number < count { NEXT } else { 0 };
            let filled = Descriptor { flags, region: 0, length: part.len() as u32, offset: place as u32 };
            self.ring.set_descriptor(self.next, filled);
            self.next = self.next.wrapping_add(1);
        }
        Ok(count as u16)
    }

    /// Copies a packet into buffers that the other side offers.
    #[inline]
    fn put_there(&mut self, data: &[u8], free: u16) -> Result<u16, Refusal> {
        let (mut count, mut room) = (0_usize, 0);
        while room < data.len() {
            if count == usize::from(free) {
                return Err(if free == self.ring.size() { Refusal::TooBig } else { Refusal::Full });
            }
            let Some(place) = self.pieces.get_mut(count) else { return Err(Refusal::TooBig) };
            let found = self.ring.descriptor(self.next.wrapping_add(count as u16));
            *place = Piece { region: found.region, at: found.offset as usize, len: found.length as usize };
            if !place.memory(&self.ring).is_some_and(|memory| memory.holds(place.at, place.len)) {
                return Err(Refusal::Lie(Lie::Buffer));
            }
            room += place.len;
            count += 1;
        }
        let mut rest = data;
        for (number, piece) in (1..).zip(&self.pieces[..count]) {
            let (part, behind) = rest.split_at(piece.len.min(rest.len()));
            if let Some(memory) = piece.memory(&self.ring) {
                memory.copy_in(piece.at, part);
            }
            let flags = if number < count { NEXT } else { 0 };
            let filled = Descriptor {
                flags,
                region: piece.region,
                length: part.len() as u32,
                offset: piece.at as u32,
            };
            self.ring.set_descriptor(self.next, filled);
            self.next = self.next.wrapping_add(1);
            rest = behind;
        }
        Ok(count as u16)
    }

    /// Gives the other side all packets that were put, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&self) {
        if self.own.is_some() {
            self.ring.set_head(self.next)
        } else {
            self.ring.set_tail(self.next)
        }
        // As in `Consumer::sleep`.
        fence(Ordering::SeqCst);
        if !self.ring.is_masked() {
            self.bells.ring(self.bell);
        }
    }
}
