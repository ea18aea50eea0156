//! Up to 256 owned packets, in order. What the operators' loops run over; compaction happens in place.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::depot::{self, Place, Shared};
use crate::meta::Meta;
use crate::packet::{Bytes, Packet};
use crate::prefetch::prefetch_address;

/// Packets that a batch holds at most.
pub const BATCH: usize = 256;

/// A bounded batch. Dropping it frees its packets.
///
/// The order of the fields matters: `len` and `bytes` are written one by one and counted together at every node. Side by
/// side they would be read in one go, which waits a dozen cycles for the two writes to leave the store buffer.
#[repr(C)]
pub struct Batch {
    len: usize,
    /// The first `len` places hold packets that the batch owns; the rest is stale.
    places: Box<[Place; BATCH]>,
    bytes: u64,
    /// Whether the packets' lines and first bytes were asked for since they came. A hint.
    warm: bool,
}

// SAFETY: a batch owns its packets, and a packet is `Send`.
unsafe impl Send for Batch {}

impl Default for Batch {
    fn default() -> Self {
        Self { len: 0, places: Box::new([None; BATCH]), bytes: 0, warm: false }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Batch {
    /// An empty batch: the only allocation of its life.
    pub fn new() -> Self {
        Self::default()
    }
    /// Packets in it.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether no more fit.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len == BATCH
    }
    /// Bytes of all its packets, kept with every change.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The line of the packet in a slot.
    ///
    /// # Safety
    /// `slot` is below `len`.
    #[inline(always)]
    unsafe fn line(&self, slot: usize) -> NonNull<Meta> {
        debug_assert!(slot < self.len, "no packet in that slot");
        // SAFETY: `len` is at most the number of places.
        let place = unsafe { self.places.get_unchecked(slot) };
        // SAFETY: the first `len` places hold packets.
        unsafe { place.unwrap_unchecked() }
    }

    /// The places of the batch's packets.
    #[inline(always)]
    fn owned(&self) -> &[Place] {
        // SAFETY: `len` is at most the number of places.
        unsafe { self.places.get_unchecked(..self.len) }
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Gives it back when the batch is full.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let Some(place) = self.places.get_mut(self.len) else { return Err(packet) };
        self.bytes = self.bytes.wrapping_add(packet.len() as u64);
        *place = Some(packet.into_line());
        self.len += 1;
        self.warm = false;
        Ok(())
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let slot = self.len.checked_sub(1)?;
        // SAFETY: the slot is the last with a packet.
        let line = unsafe { self.line(slot) };
        self.len = slot;
        // SAFETY: the batch owned the packet, and has just given it up.
        let packet = unsafe { Packet::adopt(line) };
        self.bytes = self.bytes.wrapping_sub(packet.len() as u64);
        Some(packet)
    }

    /// The packet in a slot.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> Option<&Packet> {
        if slot >= self.len {
            return None;
        }
        let place = std::ptr::from_ref(&self.places[slot]).cast::<Packet>();
        // SAFETY: the place holds a packet, which is a transparent non-null pointer as the place is, and lives as long
        // as the borrow of the batch.
        Some(unsafe { &*place })
    }

    /// The packet in a slot, for changing. `None` where there is none.
    #[inline(always)]
    pub fn packet(&mut self, slot: usize) -> Option<PacketMut<'_>> {
        if slot >= self.len {
            return None;
        }
        let place = std::ptr::from_mut(&mut self.places[slot]).cast::<Packet>();
        // SAFETY: as in `get`, and the batch is borrowed for changing.
        let packet = unsafe { &mut *place };
        let before = packet.len() as u64;
        Some(PacketMut { packet, before, bytes: &mut self.bytes })
    }

    /// The packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        (0..self.len).filter_map(|slot| self.get(slot))
    }

    /// Bytes of the packets from slot `first` on, added up.
    #[inline(always)]
    fn bytes_of(&self, first: usize) -> u64 {
        let places = self.owned().get(first..).unwrap_or_default();
        // SAFETY: the batch owns the packets of these places.
        places.iter().flatten().map(|line| u64::from(unsafe { line.as_ref() }.len)).sum()
    }

    /// Takes the packets from slot `kept` on, in order. Those that the iterator does not give out are freed.
    ///
    /// To free all of them [`truncate`](Batch::truncate) is faster, and to move them [`split_into`](Batch::split_into).
    #[inline(always)]
    pub fn drain_from(&mut self, kept: usize) -> Drain {
        let kept = kept.min(self.len);
        let end = self.len - kept;
        let mut drained = Drain { places: [const { MaybeUninit::uninit() }; BATCH], next: 0, end };
        drained.places[..end].write_copy_of_slice(&self.places[kept..self.len]);
        let gone = if kept == 0 { self.bytes } else { self.bytes_of(kept) };
        self.bytes = self.bytes.wrapping_sub(gone);
        self.len = kept;
        drained
    }

    /// Frees the packets from slot `kept` on, those of one pool in one go.
    #[inline]
    pub fn truncate(&mut self, kept: usize) {
        if kept >= self.len {
            return;
        }
        let gone = if kept == 0 { self.bytes } else { self.bytes_of(kept) };
        self.bytes = self.bytes.wrapping_sub(gone);
        let len = std::mem::replace(&mut self.len, kept);
        // SAFETY: the batch owned these packets, and has just given them up.
        unsafe { depot::free(&self.places[kept..len]) };
    }

    /// Moves the packets from slot `kept` on behind the last of `to`, in order; answers how many. Those that do not fit
    /// stay, behind the first `kept`.
    #[inline]
    pub fn split_into(&mut self, kept: usize, to: &mut Self) -> usize {
        let kept = kept.min(self.len);
        let count = (self.len - kept).min(BATCH - to.len);
        let end = to.len + count;
        to.places[to.len..end].copy_from_slice(&self.places[kept..kept + count]);
        let first = std::mem::replace(&mut to.len, end);
        to.warm = false;
        let moved = to.bytes_of(first);
        self.places.copy_within(kept + count..self.len, kept);
        self.len -= count;
        to.bytes = to.bytes.wrapping_add(moved);
        self.bytes = self.bytes.wrapping_sub(moved);
        count
    }

    /// Hands the first `count` packets to `f`, in order. If `f` panics those that it did not get are leaked.
    #[inline(always)]
    pub(crate) fn give_front(&mut self, count: usize, mut f: impl FnMut(Packet)) {
        let count = count.min(self.len);
        let len = std::mem::take(&mut self.len);
        for place in self.places[..count].iter().flatten() {
            // SAFETY: the batch owned the packet, and counts it no longer.
            let packet = unsafe { Packet::adopt(*place) };
            self.bytes = self.bytes.wrapping_sub(packet.len() as u64);
            f(packet);
        }
        self.places.copy_within(count..len, 0);
        self.len = len - count;
    }

    /// Takes all packets, in order.
    pub fn drain(&mut self) -> Drain {
        self.drain_from(0)
    }

    /// Moves as many packets as fit from the front of `other` behind the last, in order; answers how many.
    #[inline]
    pub fn append(&mut self, other: &mut Self) -> usize {
        if self.len == 0 {
            // The usual case of a hand-over: the whole batch changes hands.
            std::mem::swap(&mut self.places, &mut other.places);
            self.len = std::mem::take(&mut other.len);
            self.bytes = std::mem::take(&mut other.bytes);
            self.warm = false;
            return self.len;
        }
        let count = other.len.min(BATCH - self.len);
        other.take_front(count, self)
    }

    /// Moves up to `count` packets from the front behind the last of `to`, as many as fit, in order; answers how many.
    pub fn take_front(&mut self, count: usize, to: &mut Self) -> usize {
        let count = count.min(self.len).min(BATCH - to.len);
        let end = to.len + count;
        to.places[to.len..end].copy_from_slice(&self.places[..count]);
        self.places.copy_within(count..self.len, 0);
        self.len -= count;
        let first = std::mem::replace(&mut to.len, end);
        to.warm = false;
        let moved = if self.len == 0 { self.bytes } else { to.bytes_of(first) };
        to.bytes = to.bytes.wrapping_add(moved);
        self.bytes = self.bytes.wrapping_sub(moved);
        count
    }

    /// Frees all packets, those of one pool in one go.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes = 0;
        let len = std::mem::take(&mut self.len);
        // SAFETY: the batch owned these packets, and has just given them up.
        unsafe { depot::free(&self.places[..len]) };
    }

    /// Adds up to `count` packets of `bytes`, which fit a small frame of the pool; answers how many.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, pool: &Shared, count: usize, bytes: &[u8]) -> usize {
        let end = (self.len + count.min(BATCH)).min(BATCH);
        let taken = pool.take(&mut self.places[self.len..end]);
        let new = &self.places[self.len..self.len + taken];
        for place in new.iter().flatten() {
            // SAFETY: the frame has just left the free ones. The handle's drop is the batch's business.
            let mut packet = ManuallyDrop::new(unsafe { Packet::claim(*place) });
            if !bytes.is_empty() && packet.extend_from(bytes).is_ok() {
                self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
            }
        }
        self.len += taken;
        self.warm = false;
        taken
    }

    /// Asks for the first bytes of every packet, and so looks at every metadata line; does nothing where that was done
    /// since the packets came. A loop of its own: its loads wait together, and the loop that does the work has no bounds
    /// to watch for packets ahead of it.
    #[inline(always)]
    pub fn warm(&mut self) {
        if std::mem::replace(&mut self.warm, true) {
            return;
        }
        for slot in 0..self.len {
            // SAFETY: `slot` is below `len`.
            let line = unsafe { self.line(slot) };
            // SAFETY: the batch owns the packet.
            let line = unsafe { line.as_ref() };
            prefetch_address(line.frame.as_ptr().wrapping_add(line.start as usize));
        }
    }

    /// Runs `f` over the packets in order and keeps, at the front and in order, those for which it answers 0; any other
    /// number is stored as the packet's verdict, and its packet goes behind them, in order too. Answers how many stay:
    /// `truncate` of that frees the others, `drain_from` and `split_into` give them.
    ///
    /// If `f` panics the batch still owns every packet once, in whatever order.
    #[inline(always)]
    pub fn compact(&mut self, f: impl FnMut(usize, &mut Bytes<'_>) -> u16) -> usize {
        self.compact_with(Calling(f))
    }

    /// As [`compact`](Batch::compact), for a loop that must be inlined whatever its size.
    #[inline(always)]
    pub fn compact_with(&mut self, mut f: impl Visit) -> usize {
        let len = self.len;
        let mut parting = Parting {
            places: &mut self.places,
            bytes: &mut self.bytes,
            change: 0,
            gone: [const { MaybeUninit::uninit() }; BATCH],
            kept: 0,
            left: 0,
        };
        for slot in 0..len {
            let place = parting.places[slot & (BATCH - 1)];
            // SAFETY: the first `len` places held packets; from `slot` on nothing was written yet.
            let mut line = unsafe { place.unwrap_unchecked() };
            // SAFETY: the batch owns the packet and is borrowed for changing; no other reference to the line exists.
            let meta = unsafe { line.as_mut() };
            let (mut bytes, bounds) = lend(meta);
            let verdict = f.visit(slot, &mut bytes);
            let now = bytes.bounds();
            take_over(meta, &mut parting.change, bounds, now);
            if verdict == 0 {
                parting.places[parting.kept & (BATCH - 1)] = place;
                parting.kept += 1;
            } else {
                meta.fresh.verdict = verdict;
                meta.fresh.slot = slot as u16;
                parting.gone[parting.left & (BATCH - 1)].write(place);
                parting.left += 1;
            }
        }
        parting.kept
    }

    /// Runs `f` over the packets in order.
    #[inline(always)]
    pub fn each(&mut self, mut f: impl FnMut(usize, &mut Bytes<'_>)) {
        let mut counting = Counting { bytes: &mut self.bytes, change: 0 };
        for slot in 0..self.len {
            let place = self.places[slot & (BATCH - 1)];
            // SAFETY: the first `len` places hold packets.
            let mut line = unsafe { place.unwrap_unchecked() };
            // SAFETY: as in `compact`.
            let meta = unsafe { line.as_mut() };
            let (mut bytes, bounds) = lend(meta);
            f(slot, &mut bytes);
            let now = bytes.bounds();
            take_over(meta, &mut counting.change, bounds, now);
        }
    }
}

/// A batch that is being parted: those that stay are written to the front as they come, those that leave wait in
/// `gone`, and dropping this puts them behind. As many have left as there are stale places behind the kept ones, so
/// whenever that happens, also in the middle, every packet is owned once.
struct Parting<'b> {
    places: &'b mut [Place; BATCH],
    bytes: &'b mut u64,
    /// What the packets have become longer by, wrapping; held here so that it stays in a register.
    change: u64,
    gone: [MaybeUninit<Place>; BATCH],
    kept: usize,
    left: usize,
}

impl Drop for Parting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.bytes = self.bytes.wrapping_add(self.change);
        if self.left > 0 {
            let gone = &self.gone[..self.left];
            // SAFETY: as many as have left were written.
            let gone = unsafe { gone.assume_init_ref() };
            self.places[self.kept..self.kept + self.left].copy_from_slice(gone);
        }
    }
}

/// The bytes of a batch while its packets are visited, as in [`Parting`].
struct Counting<'b> {
    bytes: &'b mut u64,
    change: u64,
}

impl Drop for Counting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.bytes = self.bytes.wrapping_add(self.change);
    }
}

/// What [`Batch::compact_with`] does with each packet. A method can be inlined whatever its size; with a closure that is
/// up to the compiler.
pub trait Visit {
    /// Looks at the packet in a slot and answers 0 if it stays, else the verdict under which it leaves.
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16;
}

struct Calling<F>(F);

impl<F: FnMut(usize, &mut Bytes<'_>) -> u16> Visit for Calling<F> {
    #[inline(always)]
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        self.0(slot, bytes)
    }
}

/// Start and length of a packet in its frame, in bytes.
type Bounds = (usize, usize);

/// Lends a packet's bytes; [`take_over`] wants the bounds that they had.
#[inline(always)]
fn lend(meta: &mut Meta) -> (Bytes<'_>, Bounds) {
    let bounds = (meta.start as usize, meta.len as usize);
    (Bytes::of(meta), bounds)
}

/// Takes over what became of the bytes' bounds.
#[inline(always)]
fn take_over(meta: &mut Meta, total: &mut u64, (start, len): Bounds, (new_start, new_len): Bounds) {
    // Both comparisons are folded away where nothing was resized.
    if new_start != start {
        meta.start = new_start as u32;
    }
    if new_len != len {
        meta.len = new_len as u32;
        *total = (*total).wrapping_add(new_len as u64).wrapping_sub(len as u64);
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} packets, {} bytes)", self.len, self.bytes)
    }
}

/// A packet of a batch, lent for changing; the batch's bytes follow when it ends.
pub struct PacketMut<'b> {
    packet: &'b mut Packet,
    before: u64,
    bytes: &'b mut u64,
}

impl Deref for PacketMut<'_> {
    type Target = Packet;
    #[inline(always)]
    fn deref(&self) -> &Packet {
        self.packet
    }
}
impl DerefMut for PacketMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Packet {
        self.packet
    }
}
impl Drop for PacketMut<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let after = self.packet.len() as u64;
        *self.bytes = (*self.bytes).wrapping_add(after).wrapping_sub(self.before);
    }
}

/// Packets on their way out of a batch.
pub struct Drain {
    /// Those from `next` to `end` are written, and owned.
    places: [MaybeUninit<Place>; BATCH],
    next: usize,
    end: usize,
}

// SAFETY: it owns its packets, and a packet is `Send`.
unsafe impl Send for Drain {}

impl Iterator for Drain {
    type Item = Packet;
    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        if self.next == self.end {
            return None;
        }
        let place = self.places[self.next];
        self.next += 1;
        // SAFETY: the place lies between `next` and `end`.
        let place = unsafe { place.assume_init() };
        // SAFETY: the iterator owned the packet, and has just given it up.
        place.map(|line| unsafe { Packet::adopt(line) })
    }
    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}
impl ExactSizeIterator for Drain {}
impl Drop for Drain {
    #[inline(always)]
    fn drop(&mut self) {
        if self.next == self.end {
            return;
        }
        let rest = &self.places[self.next..self.end];
        // SAFETY: the places lie between `next` and `end`.
        let rest = unsafe { rest.assume_init_ref() };
        // SAFETY: the iterator owned these packets, and ends.
        unsafe { depot::free(rest) };
    }
}
