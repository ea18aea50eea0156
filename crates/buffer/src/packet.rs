//! An owned packet: the one handle to a frame and its metadata.
//!
//! It is not `Clone`; sending it consumes it; dropping it returns the frame to its pool. This is the packet isolation
//! of the NetBricks paper, section 3.2. It protects from mistakes, not from malice: open compiler bugs
//! (rust-lang/rust 84591, 57893) give hostile safe code the memory of others.

use std::hint::cold_path;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::HEADROOM;
use crate::annotations::Annotations;
use crate::depot::{self, Shared};
use crate::meta::{
    CUT, DETAILED, FAR, Fresh, Lines, Meta, NEAR, Offload, Second, TRACED, UNSTATED, VLAN, VLAN_AD, VlanTag,
};
use crate::poison;
use crate::pool::Pool;

/// A packet. Its bytes lie in one piece.
#[repr(transparent)]
pub struct Packet(NonNull<Meta>);

// SAFETY: a packet is the only handle to its metadata line and frame.
unsafe impl Send for Packet {}
// SAFETY: through a shared reference a packet is only read.
unsafe impl Sync for Packet {}

impl Drop for Packet {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this is the only handle, and it ends.
        unsafe { depot::free(&[Some(self.0)]) };
    }
}

/// Copies `from` into a place of the same length.
///
/// Lengths of usual short frames are copied inline, in a third of the time of a call that has to find the length.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    const HALF: usize = 32;
    debug_assert_eq!(to.len(), from.len());
    if from.len() <= 2 * HALF
        && let (Some(first), Some(last)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
        && let Some(place) = to.first_chunk_mut()
    {
        *place = *first;
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
    } else {
        to.copy_from_slice(from);
    }
}

/// There is no room in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room in the frame: {needed} bytes needed, {available} there")]
pub struct NoRoom {
    /// Bytes asked for.
    pub needed: usize,
    /// Bytes there.
    pub available: usize,
}

/// A frame whose packet was given to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// The frame's number in its pool.
    pub index: u32,
}

impl Packet {
    /// Makes a new packet of a frame.
    ///
    /// # Safety
    /// The frame was free or came back from a device, so that nothing else uses its line.
    #[inline(always)]
    pub(crate) unsafe fn claim(mut meta: NonNull<Meta>) -> Self {
        // SAFETY: no other code has the line.
        let line = unsafe { meta.as_mut() };
        line.start = HEADROOM as u32;
        line.len = 0;
        line.fresh = Fresh::NEW;
        poison::claimed(line.frame, line.capacity as usize);
        Self(meta)
    }

    /// Makes a packet again of a line.
    ///
    /// # Safety
    /// The line came from [`into_line`](Packet::into_line) or out of a batch's place, and no other packet is made of
    /// it.
    #[inline(always)]
    pub(crate) unsafe fn adopt(line: NonNull<Meta>) -> Self {
        Self(line)
    }

    #[inline(always)]
    pub(crate) fn line(&self) -> &Meta {
        // SAFETY: the handle is unique, and the line lives as long as its pool, which the packet keeps.
        unsafe { self.0.as_ref() }
    }
    #[inline(always)]
    pub(crate) fn line_mut(&mut self) -> &mut Meta {
        // SAFETY: as in `line`.
        unsafe { self.0.as_mut() }
    }
    /// The second metadata line, which few packets use.
    #[inline(always)]
    pub(crate) fn second(&self) -> &Second {
        // SAFETY: a packet's pointer was made from its pool's memory.
        let second = unsafe { Lines::second(self.0) };
        // SAFETY: the line belongs to this packet's frame, and was zeroed when the pool was made.
        unsafe { second.as_ref() }
    }
    #[inline(always)]
    pub(crate) fn into_line(self) -> NonNull<Meta> {
        ManuallyDrop::new(self).0
    }
    pub(crate) fn is_of(&self, pool: NonNull<Shared>) -> bool {
        self.line().pool == pool
    }

    /// Bytes that it has.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet of no bytes is no collection without items")]
    pub fn len(&self) -> usize {
        self.line().len as usize
    }
    /// Bytes that it had on the wire: more than [`len`](Packet::len) where a capture holds only its beginning.
    #[inline(always)]
    pub fn wire_len(&self) -> usize {
        self.len() + self.missing()
    }
    /// Bytes that were on the wire behind its last, and are not here: a capture did not keep them.
    #[inline(always)]
    pub fn missing(&self) -> usize {
        if self.line().fresh.flags & CUT == 0 {
            return 0;
        }
        cold_path();
        self.second().missing as usize
    }
    /// Sets how many bytes were on the wire behind its last.
    pub fn set_missing(&mut self, missing: u32) {
        let flags = &mut self.line_mut().fresh.flags;
        if missing == 0 {
            *flags &= !CUT;
        } else {
            *flags |= CUT;
            self.annotations_mut().second_mut().missing = missing;
        }
    }
    /// Whether a length of 0 in its IP header stands for the frame's length.
    ///
    /// This is so for segments that a device is to cut, and for frames captured before a device did.
    #[inline]
    pub fn is_length_unstated(&self) -> bool {
        self.line().fresh.is_length_unstated()
    }
    /// Sets whether a length of 0 in its IP header stands for the frame's length.
    pub fn set_length_unstated(&mut self, unstated: bool) {
        let flags = &mut self.line_mut().fresh.flags;
        *flags = if unstated { *flags | UNSTATED } else { *flags & !UNSTATED };
    }
    /// Bytes before its first that `push_front` can take.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.line().start as usize
    }
    /// Bytes behind its last that its frame can take; for more than that [`extend`](Packet::extend) takes a larger one.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        let line = self.line();
        (line.capacity - line.start - line.len) as usize
    }
    /// Its bytes.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        let line = self.line();
        // SAFETY: start is at most the frame's size.
        let first = unsafe { line.frame.as_ptr().add(line.start as usize) };
        // SAFETY: start + len lies within the frame (kept by every method that moves them), all of which was zeroed
        // when the pool was made, and this packet alone has the frame.
        unsafe { std::slice::from_raw_parts(first, line.len as usize) }
    }
    /// Its bytes, for writing.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let line = self.line_mut();
        // SAFETY: start is at most the frame's size.
        let first = unsafe { line.frame.as_ptr().add(line.start as usize) };
        // SAFETY: as in `data`.
        unsafe { std::slice::from_raw_parts_mut(first, line.len as usize) }
    }

    /// Lends the bytes with their bounds in registers.
    ///
    /// A write through [`Bytes`] cannot alias the metadata line, so nothing is loaded or checked again after it.
    #[inline(always)]
    pub fn open<R>(&mut self, f: impl FnOnce(&mut Bytes<'_>) -> R) -> R {
        let mut span = Span::of(self.line());
        let mut total = 0;
        let place = NonNull::from(&mut self.0);
        // SAFETY: the packet is borrowed for changing, and these are its handle and span.
        f(&mut unsafe { Bytes::within(place, NonNull::from(&mut span), NonNull::from(&mut total)) })
    }

    /// Adds `count` zero bytes before the first.
    ///
    /// # Errors
    /// [`NoRoom`] when the headroom is smaller; nothing is changed then.
    pub fn push_front(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        self.open(|bytes| bytes.push_front(count).map(|_| ()))?;
        Ok(&mut self.data_mut()[..count])
    }
    /// Takes `count` bytes off the front.
    ///
    /// # Errors
    /// [`NoRoom`] when there are fewer; nothing is changed then.
    pub fn pull_front(&mut self, count: usize) -> Result<(), NoRoom> {
        self.open(|bytes| bytes.pull_front(count))
    }
    /// Adds `count` zero bytes at the end and lends them.
    ///
    /// Where the tailroom is smaller, the packet moves into a larger frame with all that belongs to it. The pool counts
    /// this copy.
    ///
    /// # Errors
    /// [`NoRoom`] when no frame is that large, or none that is is free, or bytes are [missing](Packet::missing) behind the
    /// last; nothing is changed then.
    pub fn extend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let before = self.len();
        self.open(|bytes| bytes.extend(count).map(|_| ()))?;
        Ok(&mut self.data_mut()[before..])
    }
    /// Adds these bytes behind the last.
    ///
    /// # Errors
    /// As [`extend`](Packet::extend).
    #[inline]
    pub fn extend_from(&mut self, more: &[u8]) -> Result<(), NoRoom> {
        if !self.append(more) {
            cold_path();
            self.outgrow(more.len())?;
            self.append(more);
        }
        Ok(())
    }
    /// Adds bytes at the end if the frame has room; a part of [`extend_from`](Packet::extend_from).
    ///
    /// It makes no call, around which the bounds would be written and read back.
    #[inline(always)]
    pub(crate) fn append(&mut self, more: &[u8]) -> bool {
        if self.line().fresh.flags & CUT != 0 {
            return false;
        }
        let write = |room: &mut [u8]| match room.get_mut(..more.len()) {
            Some(place) => {
                copy_short(place, more);
                more.len()
            }
            None => 0,
        };
        // SAFETY: exactly the bytes that are counted are written, and none is read.
        let copied = unsafe { self.fill(write) };
        copied == more.len()
    }
    /// Cuts the packet to `len` bytes; no effect when it had fewer on the wire.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.open(|bytes| bytes.truncate(len));
    }
    /// Makes the packet `len` bytes long, cutting or adding zeros behind the last.
    ///
    /// # Errors
    /// As [`extend`](Packet::extend).
    pub fn resize(&mut self, len: usize) -> Result<(), NoRoom> {
        match len.checked_sub(self.len()) {
            Some(more) => self.extend(more).map(|_| ()),
            None => {
                self.truncate(len);
                Ok(())
            }
        }
    }

    /// Lends the whole tailroom to `f` and appends as many of its first bytes as `f` returns.
    ///
    /// For drivers that have bytes written straight into the frame. A number larger than the tailroom counts as all of
    /// it.
    ///
    /// # Safety
    /// The room shows bytes of earlier packets. `f` lets no other code see them, and has written every byte that it
    /// counts.
    #[inline(always)]
    pub unsafe fn fill(&mut self, f: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let room = self.tailroom();
        let line = self.line_mut();
        let end = (line.start + line.len) as usize;
        // SAFETY: end is within the frame.
        let first = unsafe { line.frame.as_ptr().add(end) };
        // SAFETY: end + room is the frame's size, and this packet alone has the frame.
        let written = f(unsafe { std::slice::from_raw_parts_mut(first, room) }).min(room);
        line.len += written as u32;
        written
    }

    /// Another packet with the same bytes and metadata, counted by the pool. `None` when no frame is free.
    pub fn try_copy(&self) -> Option<Self> {
        self.copy_with_room(0)
    }

    /// Another packet with the same bytes and metadata, in a frame of `pool`, which counts it.
    ///
    /// `None` when no frame that is large enough is free.
    pub fn try_copy_into(&self, pool: &Pool) -> Option<Self> {
        self.copy_from(pool.shared(), 0)
    }

    /// Moves into a frame with room for `more` bytes behind the last.
    #[cold]
    #[inline(never)]
    fn outgrow(&mut self, more: usize) -> Result<(), NoRoom> {
        if self.line().fresh.flags & CUT != 0 {
            return Err(NoRoom { needed: more, available: 0 });
        }
        let none = NoRoom { needed: more, available: self.tailroom() };
        *self = self.copy_with_room(more).ok_or(none)?;
        Ok(())
    }

    /// As [`try_copy`](Packet::try_copy), with room for `more` bytes behind the last.
    fn copy_with_room(&self, more: usize) -> Option<Self> {
        // SAFETY: a pool lives as long as one of its frames is out.
        self.copy_from(unsafe { self.line().pool.as_ref() }, more)
    }

    /// As [`copy_with_room`](Self::copy_with_room), in a frame of this pool.
    fn copy_from(&self, shared: &Shared, more: usize) -> Option<Self> {
        let line = self.line();
        let mut copy = shared.frame_for(self.len().checked_add(more)?, Some(line.start as usize))?;
        copy.extend_from(self.data()).ok()?;
        copy.line_mut().fresh = line.fresh;
        copy.line_mut().fresh.annotated = false;
        if line.fresh.annotated {
            *copy.annotations_mut().far_mut() = *self.far_annotations();
        }
        if line.fresh.flags & (DETAILED | VLAN) != 0 {
            copy.annotations_mut().second_mut().details = self.second().details;
        }
        if line.fresh.flags & CUT != 0 {
            copy.annotations_mut().second_mut().missing = self.second().missing;
        }
        if line.fresh.flags & TRACED != 0 {
            copy.annotations_mut().second_mut().trace = self.second().trace;
        }
        copy.keep_pulled(self);
        shared.count_copy();
        Some(copy)
    }

    /// Port on which it arrived.
    #[inline(always)]
    pub fn ingress(&self) -> u16 {
        self.line().fresh.ingress
    }
    /// Receive queue on which it arrived.
    #[inline(always)]
    pub fn queue(&self) -> u16 {
        self.line().fresh.queue
    }
    /// Sets port and queue of arrival.
    #[inline(always)]
    pub fn set_ingress(&mut self, port: u16, queue: u16) {
        let fresh = &mut self.line_mut().fresh;
        fresh.ingress = port;
        fresh.queue = queue;
    }
    /// Time of arrival (ns), 0 where it was not set.
    ///
    /// A packet that a function made has the time of the packet or event that caused it.
    #[inline(always)]
    pub fn received_at(&self) -> u64 {
        self.line().fresh.received_at
    }
    /// Sets when it arrived (ns).
    #[inline(always)]
    pub fn set_received_at(&mut self, time: u64) {
        self.line_mut().fresh.received_at = time;
    }
    /// The flow hash that a device or operator set; 0 where none did.
    #[inline(always)]
    pub fn flow_hash(&self) -> u32 {
        self.line().fresh.flow_hash
    }
    /// Sets the flow hash.
    #[inline(always)]
    pub fn set_flow_hash(&mut self, hash: u32) {
        self.line_mut().fresh.flow_hash = hash;
    }
    /// The owner that it is accounted to (a tenant; 0 is the operator).
    #[inline(always)]
    pub fn owner(&self) -> u16 {
        self.line().fresh.owner
    }
    /// Sets the owner that it is accounted to.
    #[inline(always)]
    pub fn set_owner(&mut self, owner: u16) {
        self.line_mut().fresh.owner = owner;
    }
    /// The slot that it had in the batch that a loop gave it its verdict in.
    #[inline(always)]
    pub fn slot(&self) -> u16 {
        u16::from(self.line().fresh.slot)
    }
    /// Why it left its batch, as [`Batch::compact`](crate::Batch::compact) stored it.
    #[inline(always)]
    pub fn verdict(&self) -> u16 {
        self.line().fresh.verdict
    }
    /// Sets the verdict.
    #[inline(always)]
    pub fn set_verdict(&mut self, verdict: u16) {
        self.line_mut().fresh.verdict = verdict;
    }
    /// Work that the sender left to the device.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.line().fresh.offload(|| &self.second().details)
    }
    /// Sets the work left to the device.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        self.annotations_mut().set_offload(offload);
    }
    /// Whether a device has to compute a checksum or cut the packet before it is whole.
    #[inline(always)]
    pub fn needs_device(&self) -> bool {
        self.line().fresh.needs_device()
    }
    /// The VLAN tag that the device took off and that is not in the bytes.
    #[inline]
    pub fn vlan(&self) -> Option<VlanTag> {
        let fresh = &self.line().fresh;
        let protocol = if fresh.flags & VLAN_AD != 0 { 0x88a8 } else { 0x8100 };
        (fresh.flags & VLAN != 0).then_some(VlanTag { protocol, control: self.second().details.vlan })
    }
    /// Sets the tag that is not in the bytes. Protocols other than 0x88a8 count as 0x8100.
    pub fn set_vlan(&mut self, tag: Option<VlanTag>) {
        let fresh = &mut self.line_mut().fresh;
        fresh.flags &= !(VLAN | VLAN_AD);
        if let Some(tag) = tag {
            fresh.flags |= if tag.protocol == 0x88a8 { VLAN | VLAN_AD } else { VLAN };
            self.annotations_mut().second_mut().details.vlan = tag.control;
        }
    }
    /// The number by which its way through the graph is traced; `None` where it is not.
    #[inline(always)]
    pub fn trace(&self) -> Option<u32> {
        if self.line().fresh.flags & TRACED == 0 {
            return None;
        }
        cold_path();
        Some(self.second().trace)
    }
    /// Has its way traced under a number, or no longer.
    pub fn set_trace(&mut self, number: Option<u32>) {
        let flags = &mut self.line_mut().fresh.flags;
        match number {
            None => *flags &= !TRACED,
            Some(number) => {
                *flags |= TRACED;
                self.annotations_mut().second_mut().trace = number;
            }
        }
    }
    /// Bytes for slots that a graph allocates, beside the packet's other metadata; zero in a new packet.
    #[inline]
    pub fn near_annotations(&self) -> &[u8; NEAR] {
        &self.line().fresh.near
    }
    /// More bytes for slots, in a cache line of their own; zero in a new packet.
    #[inline]
    pub fn far_annotations(&self) -> &[u8; FAR] {
        &self.second().far
    }
    /// The same, for writing.
    #[inline]
    pub fn far_annotations_mut(&mut self) -> &mut [u8; FAR] {
        self.line_mut().fresh.annotated = true;
        // SAFETY: a packet's pointer was made from its pool's memory.
        let mut second = unsafe { Lines::second(self.0) };
        // SAFETY: as in `second`, and the packet is borrowed for changing.
        &mut unsafe { second.as_mut() }.far
    }
    /// All of them, for writing.
    #[inline]
    pub fn annotations_mut(&mut self) -> Annotations<'_> {
        // SAFETY: the packet is borrowed for changing, and its pointer was made from its pool's memory.
        unsafe { Annotations::of(NonNull::from(&mut self.0)) }
    }

    /// The frame's number in its pool.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.line().index
    }
    /// Gives the frame to a device; [`Pool::from_raw`](crate::Pool::from_raw) takes it back.
    ///
    /// A frame that is never taken back is missing from its pool. Annotations and all other metadata end here.
    #[inline(always)]
    pub fn into_raw(self) -> RawFrame {
        let packet = ManuallyDrop::new(self);
        if packet.line().fresh.annotated {
            // SAFETY: a packet's pointer was made from its pool's memory.
            let second = unsafe { Lines::second(packet.0) };
            // SAFETY: this is the packet's only handle.
            unsafe { depot::wipe(second) };
        }
        RawFrame { index: packet.index() }
    }

    /// Sets where the bytes lie; `false` and no change where that is not inside the frame.
    pub(crate) fn set_bounds(&mut self, start: usize, len: usize) -> bool {
        let line = self.line_mut();
        let inside = start.checked_add(len).is_some_and(|end| end <= line.capacity as usize);
        if inside {
            line.start = start as u32;
            line.len = len as u32;
        }
        inside
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packet({} bytes)", self.len())
    }
}

/// Where a packet's bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// The first.
    pub(crate) first: NonNull<u8>,
    /// Its place in the frame.
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    /// The span of no packet.
    pub(crate) const NONE: Self = Self { first: NonNull::dangling(), start: 0, len: 0 };

    #[inline(always)]
    pub(crate) fn of(line: &Meta) -> Self {
        let &Meta { frame, start, len, .. } = line;
        // SAFETY: start is at most the frame's size.
        Self { first: unsafe { frame.add(start as usize) }, start, len }
    }
}

/// A packet's bytes and room, lent to operators for one call.
///
/// A resize writes the new bounds to their place at once. So nothing is left to do at the end of the loan, which nearly
/// always ends without a resize.
pub struct Bytes<'b> {
    /// The owner's place of the packet's handle, for the few calls that need its line or another frame.
    place: NonNull<NonNull<Meta>>,
    /// The present bounds, as narrow as they are stored.
    ///
    /// The compiler would compute wider numbers in pairs on every packet, for the few that are resized.
    now: Span,
    /// Where the packet's owner keeps its span.
    span: NonNull<Span>,
    /// Where the owner adds up the bytes of all its packets.
    total: NonNull<u64>,
    lent: PhantomData<&'b mut [u8]>,
}

impl Bytes<'_> {
    /// The bytes of a packet, and the places of its bounds and of the sum of bytes.
    ///
    /// # Safety
    /// While the bytes live, the packet whose handle is in `place` is mutably borrowed, and so are `span` (its own) and
    /// `total`. So is `place` itself, which may hold the handle of another packet afterwards.
    #[inline(always)]
    pub(crate) unsafe fn within(
        place: NonNull<NonNull<Meta>>,
        span: NonNull<Span>,
        total: NonNull<u64>,
    ) -> Self {
        // SAFETY: the caller lends the span.
        let now = unsafe { span.read() };
        Self { place, now, span, total, lent: PhantomData }
    }

    /// The packet's metadata.
    #[inline(always)]
    pub(crate) fn line(&self) -> NonNull<Meta> {
        // SAFETY: the place holds the packet's handle for as long as the bytes live.
        unsafe { self.place.read() }
    }

    /// Moves the bounds, here and where they are kept: `start + len` is at most the capacity.
    #[inline]
    fn rebound(&mut self, start: usize, len: usize) {
        // SAFETY: the packet is lent to us, so that its line exists and is only ours.
        let line = unsafe { self.line().as_mut() };
        line.start = start as u32;
        // The length in the line and not in these bytes: a panic may have kept an earlier change from them.
        let before = std::mem::replace(&mut line.len, len as u32);
        let span = Span::of(line);
        // SAFETY: the span is lent to us.
        unsafe { self.span.write(span) };
        // SAFETY: the sum is lent to us.
        let total = unsafe { self.total.as_mut() };
        *total = total.wrapping_add(len as u64).wrapping_sub(u64::from(before));
        self.now = span;
    }

    /// Whether bytes are missing behind the last.
    #[inline]
    fn is_cut(&self) -> bool {
        // SAFETY: the packet is lent to us, so that its line exists, and no other code writes its flags
        // meanwhile.
        unsafe { self.line().as_ref() }.fresh.flags & CUT != 0
    }
    /// Bytes that were on the wire behind the last; see [`Packet::missing`].
    pub fn missing(&self) -> usize {
        // SAFETY: the packet is lent to us, no other code changes it while we are borrowed, and this only
        // reads.
        unsafe { Annotations::of(self.place) }.missing()
    }
    /// Whether a length of 0 in the IP header stands for the frame's; see [`Packet::is_length_unstated`].
    pub fn is_length_unstated(&self) -> bool {
        // SAFETY: the packet is lent to us, so that its line exists, and no other code writes its flags
        // meanwhile.
        unsafe { self.line().as_ref() }.fresh.is_length_unstated()
    }
    /// Reduces the number of missing bytes, so that the packet has at most `len` bytes on the wire.
    #[cold]
    fn forget_missing(&mut self, len: usize) {
        let missing = self.missing();
        let left = missing.min(len.saturating_sub(self.len()));
        // SAFETY: the place is lent to us, and a packet is no more than its handle.
        unsafe { self.place.cast::<Packet>().as_mut() }.set_missing(left as u32);
        // SAFETY: the sum is lent to us.
        let total = unsafe { self.total.as_mut() };
        *total = total.wrapping_sub((missing - left) as u64);
    }

    /// Lends a copy of the bounds with the same bytes to `f`, and takes over its changes.
    ///
    /// This is for a call that is not inlined: only the copy must then be in memory, and the original stays
    /// in registers. After a panic in `f` the original shows no bytes, though the packet has them until code
    /// resizes the original.
    #[inline(always)]
    pub fn apart<R>(&mut self, f: impl FnOnce(&mut Bytes<'_>) -> R) -> R {
        let Self { place, span, total, lent, .. } = *self;
        // Where `f` panics after the packet moved, these bytes must not go on with the frame that it had.
        let now = std::mem::replace(&mut self.now, Span::NONE);
        let mut copy = Bytes { place, now, span, total, lent };
        let result = f(&mut copy);
        self.now = copy.now;
        result
    }

    /// Moves into a frame with room for `more` bytes behind the last.
    #[cold]
    #[inline(never)]
    fn outgrow(&mut self, more: usize) -> Result<(), NoRoom> {
        // SAFETY: the place is lent to us, and a packet is no more than its handle.
        let packet = unsafe { self.place.cast::<Packet>().as_mut() };
        packet.outgrow(more)?;
        self.now = Span::of(packet.line());
        // SAFETY: the span is lent to us.
        unsafe { self.span.write(self.now) };
        Ok(())
    }

    /// Bytes of the whole frame.
    #[inline(always)]
    fn capacity(&self) -> usize {
        // SAFETY: the packet is lent to us, so that its line exists; no code writes its capacity.
        unsafe { self.line().as_ref() }.capacity as usize
    }

    /// How many bytes there are.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet of no bytes is no collection without items")]
    pub fn len(&self) -> usize {
        self.now.len as usize
    }
    /// Bytes that `push_front` can take.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.now.start as usize
    }
    /// Bytes behind the last that the frame can take; for more than that [`extend`](Bytes::extend) takes a larger one.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.headroom() - self.len()
    }
    /// The bytes.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        // SAFETY: start + len is at most the capacity, the frame was zeroed when the pool was made, and the packet
        // whose only handle is lent to us has it alone.
        unsafe { std::slice::from_raw_parts(self.now.first.as_ptr(), self.len()) }
    }
    /// The bytes, for writing.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`.
        unsafe { std::slice::from_raw_parts_mut(self.now.first.as_ptr(), self.len()) }
    }
    /// Work that the sender left to the device.
    pub fn offload(&self) -> Offload {
        // SAFETY: the packet is lent to us, no other code changes it while we are borrowed, and this only
        // reads.
        unsafe { Annotations::of(self.place) }.offload()
    }
    /// Sets the work that is left to the device. Code that moves headers sets their new places.
    pub fn set_offload(&mut self, offload: Offload) {
        self.parts().1.set_offload(offload);
    }
    /// The bytes and the annotations, for writing both.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut [u8], Annotations<'_>) {
        // SAFETY: the packet is lent to us for changing, which we are here for as long; its bytes are apart from its line.
        let annotations = unsafe { Annotations::of(self.place) };
        (self.data_mut(), annotations)
    }
    /// Adds `count` zero bytes before the first and lends them.
    ///
    /// # Errors
    /// [`NoRoom`] when the headroom is smaller; nothing is changed then.
    #[inline]
    pub fn push_front(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let Some(start) = self.headroom().checked_sub(count) else {
            return Err(NoRoom { needed: count, available: self.headroom() });
        };
        self.rebound(start, self.len() + count);
        let new = &mut self.data_mut()[..count];
        new.fill(0);
        Ok(new)
    }
    /// Takes `count` bytes off the front.
    ///
    /// # Errors
    /// [`NoRoom`] when there are fewer; nothing is changed then.
    #[inline]
    pub fn pull_front(&mut self, count: usize) -> Result<(), NoRoom> {
        let Some(len) = self.len().checked_sub(count) else {
            return Err(NoRoom { needed: count, available: self.len() });
        };
        self.rebound(self.headroom() + count, len);
        Ok(())
    }
    /// Adds `count` zero bytes at the end and lends them, as [`Packet::extend`] does.
    ///
    /// # Errors
    /// [`NoRoom`] when no frame is that large, or none of that size is free; nothing is changed then.
    #[inline]
    pub fn extend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        if self.is_cut() {
            cold_path();
            return Err(NoRoom { needed: count, available: 0 });
        }
        if count > self.tailroom() {
            cold_path();
            self.outgrow(count)?;
        }
        let before = self.len();
        self.rebound(self.headroom(), before + count);
        let new = &mut self.data_mut()[before..];
        new.fill(0);
        Ok(new)
    }
    /// Cuts to `len` bytes; no effect when there were fewer on the wire.
    #[inline(always)]
    pub fn truncate(&mut self, len: usize) {
        if self.is_cut() {
            cold_path();
            self.forget_missing(len);
        }
        if len < self.len() {
            self.rebound(self.headroom(), len);
        }
    }
}
