//! Up to 256 owned packets, in order. What the operators' loops run over; compaction happens in place.

use std::hint::{assert_unchecked, black_box, cold_path};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::class::{Class, Place};
use crate::depot::{self, Shared};
use crate::packet::{Bytes, Packet, Span};
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
    /// The first `len` hold packets that the batch owns; the rest is stale.
    slots: Box<Slots>,
    bytes: u64,
    /// Whether the packets' first bytes were asked for since they came. A hint.
    warm: bool,
    /// Whether bytes may be missing at the end of some packet.
    ///
    /// The sum of bytes counts missing bytes; the spans do not.
    cut: bool,
}

/// Packets and their byte ranges, in separate arrays.
///
/// Moving or freeing packets copies handles only. A loop over the bytes does not read the metadata, which is a second
/// cache line of each packet.
struct Slots {
    places: [Place; BATCH],
    /// For a packet in `places`, what its metadata says, kept with every change.
    spans: [Span; BATCH],
}

impl Slots {
    /// Copies `count` packets from `first` of another's on to `at` on.
    #[inline(always)]
    fn copy_from(&mut self, at: usize, from: &Self, first: usize, count: usize) {
        self.places[at..at + count].copy_from_slice(&from.places[first..first + count]);
        self.spans[at..at + count].copy_from_slice(&from.spans[first..first + count]);
    }
    /// The first place and the first span of [`BATCH`] each, writable as far as the borrow allows.
    #[inline(always)]
    fn starts(&mut self) -> (NonNull<Place>, NonNull<Span>) {
        let Self { places, spans } = self;
        (NonNull::from(places).cast(), NonNull::from(spans).cast())
    }
    /// Moves the packets of a range to `at` on.
    #[inline(always)]
    fn close_up(&mut self, from: std::ops::Range<usize>, at: usize) {
        self.places.copy_within(from.clone(), at);
        self.spans.copy_within(from, at);
    }
}

// SAFETY: a batch owns its packets, and a packet is `Send`.
unsafe impl Send for Batch {}

impl Default for Batch {
    fn default() -> Self {
        let slots = Slots { places: [None; BATCH], spans: [Span::NONE; BATCH] };
        Self { len: 0, slots: Box::new(slots), bytes: 0, warm: false, cut: false }
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
    /// Bytes that all its packets had on the wire, kept with every change.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether bytes may be [missing](Packet::missing) of some of its packets.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Gives it back when the batch is full.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let Slots { places, spans } = &mut *self.slots;
        let (Some(place), Some(span)) = (places.get_mut(self.len), spans.get_mut(self.len)) else {
            return Err(packet);
        };
        let missing = packet.missing();
        self.cut |= missing > 0;
        self.bytes = self.bytes.wrapping_add((packet.len() + missing) as u64);
        *span = Span::of(packet.line());
        *place = Some(packet.into_line());
        self.len += 1;
        self.warm = false;
        Ok(())
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let slot = self.len.checked_sub(1)?;
        let line = self.slots.places[slot]?;
        self.len = slot;
        // SAFETY: the batch owned the packet, and has just given it up.
        let packet = unsafe { Packet::adopt(line) };
        self.bytes = self.bytes.wrapping_sub(packet.wire_len() as u64);
        Some(packet)
    }

    /// The packet in a slot.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> Option<&Packet> {
        if slot >= self.len {
            return None;
        }
        let place = std::ptr::from_ref(&self.slots.places[slot]).cast::<Packet>();
        // SAFETY: the place holds a packet, which is a transparent non-null pointer as the place is, and lives as long
        // as the borrow of the batch.
        Some(unsafe { &*place })
    }

    /// The packet in a slot, for changing. `None` where there is none.
    ///
    /// Where the loan's end is forgotten ([`std::mem::forget`]), the batch has lost the packets from this slot on, and their
    /// bytes. To change all packets [`each_packet`](Self::each_packet) is faster.
    #[inline]
    pub fn packet(&mut self, slot: usize) -> Option<PacketMut<'_>> {
        if slot >= self.len {
            return None;
        }
        let bytes = self.bytes_of(slot);
        let mut lent = self.lend(slot)?;
        *lent.bytes = lent.bytes.wrapping_sub(bytes);
        lent.owed = lent.owed.wrapping_add(bytes);
        Some(lent)
    }

    /// Runs `f` over the packets in order, each with its slot.
    #[inline(always)]
    pub fn each_packet(&mut self, mut f: impl FnMut(usize, &mut Packet)) {
        for slot in 0..self.len {
            if let Some(mut packet) = self.lend(slot) {
                f(slot, &mut packet);
            }
        }
    }

    /// As [`packet`](Self::packet), of a loan that ends for certain.
    #[inline(always)]
    fn lend(&mut self, slot: usize) -> Option<PacketMut<'_>> {
        if slot >= self.len {
            return None;
        }
        let Slots { places, spans } = &mut *self.slots;
        let place = std::ptr::from_mut(&mut places[slot]).cast::<Packet>();
        // SAFETY: as in `get`, and the batch is borrowed for changing.
        let packet = unsafe { &mut *place };
        let owed = 0u64.wrapping_sub(packet.wire_len() as u64);
        // Until the loan ends the batch counts no packet from here on: what is lent may be exchanged for another, and if
        // the end is forgotten those packets leak, where a span would be wrong otherwise.
        let len = std::mem::replace(&mut self.len, slot);
        Some(PacketMut {
            packet,
            owed,
            span: &mut spans[slot],
            count: (&mut self.len, len),
            bytes: &mut self.bytes,
            cut: &mut self.cut,
        })
    }

    /// The packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        (0..self.len).filter_map(|slot| self.get(slot))
    }

    /// Bytes of the packets from slot `first` on, added up.
    #[inline(always)]
    fn bytes_of(&self, first: usize) -> u64 {
        let here: u64 = self.slots.spans[first..self.len].iter().map(|span| u64::from(span.len)).sum();
        if self.cut {
            cold_path();
            return here + self.missing_of(first);
        }
        here
    }
    /// Bytes that are missing of the packets from slot `first` on.
    #[cold]
    fn missing_of(&self, first: usize) -> u64 {
        self.iter().skip(first).map(|packet| packet.missing() as u64).sum()
    }

    /// Takes the packets from slot `kept` on, in order. Those that the iterator does not give out are freed.
    ///
    /// To free all of them [`truncate`](Batch::truncate) is faster, and to move them [`split_into`](Batch::split_into).
    #[inline(always)]
    pub fn drain_from(&mut self, kept: usize) -> Drain {
        let kept = kept.min(self.len);
        let end = self.len - kept;
        let mut drained = Drain { places: [const { MaybeUninit::uninit() }; BATCH], next: 0, end };
        drained.places[..end].write_copy_of_slice(&self.slots.places[kept..self.len]);
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
        unsafe { depot::free(&self.slots.places[kept..len]) };
    }

    /// Moves the packets from slot `kept` on to the end of `to`, in order; returns how many.
    ///
    /// Packets that do not fit stay, behind the first `kept`.
    #[inline]
    pub fn split_into(&mut self, kept: usize, to: &mut Self) -> usize {
        let kept = kept.min(self.len);
        let count = (self.len - kept).min(BATCH - to.len);
        let end = to.len + count;
        to.slots.copy_from(to.len, &self.slots, kept, count);
        to.cut |= self.cut;
        let first = std::mem::replace(&mut to.len, end);
        to.warm = false;
        let moved = to.bytes_of(first);
        self.slots.close_up(kept + count..self.len, kept);
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
        for place in self.slots.places[..count].iter().flatten() {
            // SAFETY: the batch owned the packet, and counts it no longer.
            let packet = unsafe { Packet::adopt(*place) };
            self.bytes = self.bytes.wrapping_sub(packet.wire_len() as u64);
            f(packet);
        }
        self.slots.close_up(count..len, 0);
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
            std::mem::swap(&mut self.slots, &mut other.slots);
            self.len = std::mem::take(&mut other.len);
            self.bytes = std::mem::take(&mut other.bytes);
            self.cut = std::mem::take(&mut other.cut);
            self.warm = false;
            return self.len;
        }
        let count = other.len.min(BATCH - self.len);
        other.take_front(count, self)
    }

    /// Moves up to `count` packets from the front to the end of `to`, in order; returns how many.
    ///
    /// It moves as many as fit.
    pub fn take_front(&mut self, count: usize, to: &mut Self) -> usize {
        let count = count.min(self.len).min(BATCH - to.len);
        let end = to.len + count;
        to.slots.copy_from(to.len, &self.slots, 0, count);
        to.cut |= self.cut;
        self.slots.close_up(count..self.len, 0);
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
        self.cut = false;
        let len = std::mem::take(&mut self.len);
        // SAFETY: the batch owned these packets, and has just given them up.
        unsafe { depot::free(&self.slots.places[..len]) };
    }

    /// Adds up to `count` packets of `bytes` in frames of a class, which must be that large; answers how many.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, pool: &Shared, class: &Class, count: usize, bytes: &[u8]) -> usize {
        let end = (self.len + count.min(BATCH)).min(BATCH);
        let Slots { places, spans } = &mut *self.slots;
        let taken = pool.take(class, &mut places[self.len..end]);
        let end = self.len + taken;
        for (place, span) in places[self.len..end].iter().zip(&mut spans[self.len..end]) {
            let Some(line) = *place else { continue };
            // SAFETY: the frame has just left the free ones. The handle's drop is the batch's business.
            let mut packet = ManuallyDrop::new(unsafe { Packet::claim(line) });
            if !bytes.is_empty() && packet.append(bytes) {
                self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
            }
            *span = Span::of(packet.line());
        }
        self.len += taken;
        self.warm = false;
        taken
    }

    /// Prefetches the first bytes of every packet, unless this was done since the packets came.
    ///
    /// It is a loop of its own, so that the loop that does the work has no bounds to watch for packets ahead of it.
    #[inline(always)]
    pub fn warm(&mut self) {
        if std::mem::replace(&mut self.warm, true) {
            return;
        }
        for span in self.slots.spans.iter().take(self.len) {
            prefetch_address(span.first.as_ptr());
        }
    }

    /// Runs `f` over the packets in order and keeps those for which it returns 0; returns how many stay.
    ///
    /// Packets that stay move to the front, in order. Any other number is stored as the packet's verdict, and its
    /// packet goes behind them, in order too. `truncate` of the result then frees the others; `drain_from` and
    /// `split_into` take them.
    ///
    /// If `f` panics the batch still owns every packet once, in any order.
    #[inline(always)]
    pub fn compact(&mut self, f: impl FnMut(usize, &mut Bytes<'_>) -> u16) -> usize {
        self.compact_with(Calling(f))
    }

    /// As [`compact`](Batch::compact), for a loop of any size that must be inlined.
    #[inline(always)]
    pub fn compact_with<F: Visit>(&mut self, mut f: F) -> usize {
        let len = self.len;
        let bytes = NonNull::from(&mut self.bytes);
        let (places, spans) = self.slots.starts();
        let mut parting = Parting {
            places,
            spans,
            gone: [const { MaybeUninit::uninit() }; BATCH],
            done: 0,
            left: 0,
            lent: PhantomData,
        };
        // In memory the usual packet does not see it; in registers it would be carried from each packet to the next.
        black_box(&mut parting);
        let lend = |slot: usize| {
            // SAFETY: no batch has more packets than places.
            let place = unsafe { places.add(slot) };
            // SAFETY: as above, and there are as many spans.
            let span = unsafe { spans.add(slot) };
            // SAFETY: the first `len` places held packets, and from `slot` on nothing was written yet, so that this one
            // does; the batch owns that packet and is borrowed for changing; the span is that packet's, and neither it
            // nor the count of bytes is looked at before the loan ends.
            unsafe { Bytes::within(place.cast(), span, bytes) }
        };
        if len == 0 {
            return 0;
        }
        let mut slot = 0;
        // The end of the loop over packets that stay. It is behind the last packet while none has left, and
        // behind each packet once one has, since later packets must move up. So the usual packet costs one
        // comparison, and the values for other packets take no registers.
        let mut stop = len;
        loop {
            let verdict = loop {
                // SAFETY: `slot` is below `len`, and no batch has more packets than places.
                unsafe { assert_unchecked(slot < BATCH) };
                let verdict = f.visit(slot, &mut lend(slot));
                if verdict != 0 {
                    break verdict;
                }
                slot += 1;
                if slot == stop {
                    if parting.left > 0 {
                        cold_path();
                        parting.close_up(slot - 1);
                    }
                    if slot == len {
                        return len - parting.left;
                    }
                    stop += 1;
                }
            };
            let verdict = if F::is_unfinished(verdict) { f.finish(slot, &mut lend(slot)) } else { verdict };
            if verdict != 0 {
                parting.leave(slot, verdict);
            } else if parting.left > 0 {
                parting.close_up(slot);
            }
            slot += 1;
            if slot == len {
                return len - parting.left;
            }
            if parting.left > 0 {
                stop = slot + 1;
            }
        }
    }

    /// Runs `f` over the packets in order.
    #[inline(always)]
    pub fn each(&mut self, mut f: impl FnMut(usize, &mut Bytes<'_>)) {
        self.each_beside(std::iter::repeat(()), |slot, bytes, ()| f(slot, bytes));
    }

    /// Runs as [`each`](Batch::each), with the item beside each packet, for as many items as there are.
    ///
    /// No slot number has to become a place for the items.
    #[inline(always)]
    pub fn each_beside<T>(
        &mut self,
        beside: impl IntoIterator<Item = T>,
        mut f: impl FnMut(usize, &mut Bytes<'_>, T),
    ) {
        self.each_beside_while(0, beside, |slot, bytes, beside| {
            f(slot, bytes, beside);
            true
        });
    }

    /// Runs as [`each_beside`](Batch::each_beside) from slot `from` on, until `f` returns false.
    ///
    /// The first item belongs to slot `from`. Returns the slot of the packet for which `f` returned false, else the
    /// batch's length.
    #[inline(always)]
    pub fn each_beside_while<T>(
        &mut self,
        from: usize,
        beside: impl IntoIterator<Item = T>,
        mut f: impl FnMut(usize, &mut Bytes<'_>, T) -> bool,
    ) -> usize {
        let bytes = NonNull::from(&mut self.bytes);
        let (places, spans) = self.slots.starts();
        for (slot, beside) in (from..self.len).zip(beside) {
            // SAFETY: no batch has more packets than places.
            let place = unsafe { places.add(slot) };
            // SAFETY: as above, and there are as many spans.
            let span = unsafe { spans.add(slot) };
            // SAFETY: the first `len` places hold packets; else as in `compact_with`.
            let mut lent = unsafe { Bytes::within(place.cast(), span, bytes) };
            if !f(slot, &mut lent, beside) {
                return slot;
            }
        }
        self.len
    }
}

const _: () = assert!(BATCH <= 1 << 8, "a packet's metadata keep its slot in a byte");

/// A batch while it is being divided into packets that stay and packets that leave.
///
/// Packets that stay move to the front at once. Packets that leave wait in `gone`, and dropping this puts them behind.
/// As many have left as there are stale places behind the kept ones. So every packet is owned once whenever the drop
/// happens, also in the middle.
struct Parting<'b> {
    /// [`BATCH`] of each, which are lent to this.
    places: NonNull<Place>,
    spans: NonNull<Span>,
    gone: [MaybeUninit<Place>; BATCH],
    /// Since one has left: packets that have stayed or left.
    done: usize,
    left: usize,
    lent: PhantomData<&'b mut Slots>,
}

impl Parting<'_> {
    /// The packet in `slot` leaves.
    #[inline(always)]
    fn leave(&mut self, slot: usize, verdict: u16) {
        // SAFETY: there are as many places as a batch has slots.
        let place = unsafe { self.places.add(slot) };
        // SAFETY: the places are lent to us.
        let place = unsafe { place.read() };
        // SAFETY: the place of a packet that has neither left nor moved holds it.
        let mut line = unsafe { place.unwrap_unchecked() };
        // SAFETY: the batch owns the packet, and no other code has it on loan.
        let meta = unsafe { line.as_mut() };
        meta.fresh.verdict = verdict;
        meta.fresh.slot = slot as u8;
        self.gone[self.left & (BATCH - 1)].write(place);
        self.left += 1;
        self.done = slot + 1;
    }

    /// The packet in `slot` stays, and moves up to those that did.
    #[inline(always)]
    fn close_up(&mut self, slot: usize) {
        let kept = slot - self.left;
        // SAFETY: there are as many places as a batch has slots.
        let from = unsafe { self.places.add(slot) };
        // SAFETY: as above, and `kept` is at most `slot`.
        let to = unsafe { self.places.add(kept) };
        // SAFETY: the places are lent to us.
        let place = unsafe { from.read() };
        // SAFETY: as above.
        unsafe { to.write(place) };
        // SAFETY: there are as many spans as places.
        let from = unsafe { self.spans.add(slot) };
        // SAFETY: as above.
        let to = unsafe { self.spans.add(kept) };
        // SAFETY: the spans are lent to us.
        let span = unsafe { from.read() };
        // SAFETY: as above.
        unsafe { to.write(span) };
        self.done = slot + 1;
    }
}

impl Drop for Parting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.left > 0 {
            let gone = &self.gone[..self.left];
            // SAFETY: as many as have left were written.
            let gone = unsafe { gone.assume_init_ref() };
            for (slot, line) in (self.done - self.left..).zip(gone.iter().flatten()) {
                // SAFETY: `slot` is less than `done`, which is at most the number of places.
                let place = unsafe { self.places.add(slot) };
                // SAFETY: the places are lent to us.
                unsafe { place.write(Some(*line)) };
                // SAFETY: as above, and there are as many spans.
                let span = unsafe { self.spans.add(slot) };
                // SAFETY: the batch owns the packet.
                let of = Span::of(unsafe { line.as_ref() });
                // SAFETY: the spans are lent to us.
                unsafe { span.write(of) };
            }
        }
    }
}

/// The work of [`Batch::compact_with`] on each packet.
///
/// A method of any size can be inlined. For a closure, the compiler decides.
pub trait Visit {
    /// Looks at the packet in a slot and answers 0 if it stays, else the verdict under which it leaves.
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16;
    /// Whether this verdict of [`visit`](Visit::visit) is none: then the packet comes to [`finish`](Visit::finish).
    #[inline(always)]
    fn is_unfinished(_verdict: u16) -> bool {
        false
    }
    /// Finishes a packet that `visit` put off; returns its verdict as `visit` does.
    ///
    /// It holds work that few packets need, so that the loop over all packets stays small.
    fn finish(&mut self, _slot: usize, _bytes: &mut Bytes<'_>) -> u16 {
        0
    }
}

struct Calling<F>(F);

impl<F: FnMut(usize, &mut Bytes<'_>) -> u16> Visit for Calling<F> {
    #[inline(always)]
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        self.0(slot, bytes)
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
    /// The bytes that the batch must add when the loan ends, without those of the packet itself.
    owed: u64,
    span: &'b mut Span,
    /// The place where the batch counts its packets, and their number.
    count: (&'b mut usize, usize),
    bytes: &'b mut u64,
    cut: &'b mut bool,
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
        let after = self.packet.wire_len() as u64;
        *self.cut |= after != self.packet.len() as u64;
        *self.bytes = (*self.bytes).wrapping_add(self.owed).wrapping_add(after);
        *self.span = Span::of(self.packet.line());
        *self.count.0 = self.count.1;
    }
}

/// Packets on their way out of a batch.
pub struct Drain {
    /// The places from `next` to `end` are written, and owned.
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
