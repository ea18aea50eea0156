//! Pools whose frames lie in modules' memories (the mode `mapped`), and the copies of packets in them.
//!
//! A module writes to all frames of its pool whenever it runs. So no packet of such a pool leaves this file. A batch is
//! copied into the pool before the module runs, and what the module wrote is copied out of it afterwards. The frames for that
//! stay allocated: a batch costs no allocation of a frame.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::{Rc, Weak};

use netbricks_core::buffer::{BATCH, Batch, NoRoom, Packet, Pool};
use wasmtime::{AsContext, Memory};

use super::memory::{ALIGNMENT, map_frames, mapped_bytes};

thread_local! {
    /// Pools of this thread by their names and frames, as long as a function has them.
    static NAMED: RefCell<BTreeMap<(String, usize), Weak<Frames>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Bytes of a frame, headroom included.
const FRAME: usize = 2_048;

/// The marks of packets that are too big for a frame of the pool, and that found none free.
pub(crate) const TOO_BIG: u16 = 1;
const NONE_FREE: u16 = 2;

/// A pool of one thread, which the modules of that thread have mapped.
///
/// Nothing but the [`Copies`] of its functions has packets of it, and it never leaves its thread.
pub(crate) struct Frames {
    pool: Pool,
    /// The address of the first frame.
    base: usize,
    /// Frames for a batch, which stay allocated. The functions of the pool have them one after another.
    slots: RefCell<Vec<Packet>>,
    /// Room before the first byte of an empty frame.
    headroom: usize,
}

impl Frames {
    /// A pool of so many frames: that of this name and size on this thread, or a new one.
    ///
    /// Functions whose `frames` change get a pool of their own, while the functions that they replace still have the old one.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn of(name: Option<&str>, frames: usize) -> Result<Rc<Self>, String> {
        let Some(name) = name else { return Self::new(frames).map(Rc::new) };
        NAMED.with_borrow_mut(|named| {
            named.retain(|_, frames| frames.strong_count() > 0);
            let key = (name.to_owned(), frames);
            if let Some(known) = named.get(&key).and_then(Weak::upgrade) {
                return Ok(known);
            }
            let new = Rc::new(Self::new(frames)?);
            named.insert(key, Rc::downgrade(&new));
            Ok(new)
        })
    }

    fn new(frames: usize) -> Result<Self, String> {
        let pool = Pool::builder().frames(frames).frame_size(FRAME).workers(1).build();
        let pool = pool.map_err(|error| format!("a pool for mapped frames: {error}"))?;
        let base = pool.region().base.as_ptr() as usize;
        let slots: Option<Vec<Packet>> = (0..BATCH).map(|_| pool.empty(0)).collect();
        let slots =
            slots.ok_or_else(|| format!("a pool of {frames} mapped frames, expected {BATCH} or more"))?;
        let headroom = slots.first().map_or(0, Packet::headroom);
        Ok(Self { pool, base, slots: RefCell::new(slots), headroom })
    }

    /// Copies bytes into a slot, in place of those before. `false` where they are too many for a frame.
    #[inline(always)]
    fn refill(&self, slot: &mut Packet, data: &[u8]) -> bool {
        slot.truncate(0);
        if slot.headroom() != self.headroom {
            self.straighten(slot);
        }
        data.len() <= slot.tailroom() && slot.extend_from(data).is_ok()
    }

    /// Gives an empty slot the room before its first byte again, of which a module took or left some.
    #[cold]
    fn straighten(&self, slot: &mut Packet) {
        match slot.headroom().checked_sub(self.headroom) {
            Some(more) => _ = slot.push_front(more),
            None => {
                let less = self.headroom - slot.headroom();
                let _ = slot.extend(less);
                let _ = slot.pull_front(less);
            }
        }
        slot.truncate(0);
    }

    /// Bytes that so many frames take of a module's memory.
    pub(crate) fn bytes_of(frames: usize) -> usize {
        (frames * FRAME).next_multiple_of(ALIGNMENT)
    }

    /// Bytes that the frames take of a module's memory.
    pub(crate) fn bytes(&self) -> usize {
        mapped_bytes(&self.pool)
    }

    /// Maps the frames into a memory at `at`, over pages that the memory has grown by for them.
    ///
    /// # Errors
    /// Where the place does not fit, or the system refuses.
    pub(crate) fn map_into(&self, memory: &Memory, store: impl AsContext, at: usize) -> io::Result<()> {
        // SAFETY: neither the pool nor a packet of it leaves this file, whose types never leave their thread. `Copies` lends
        // bytes to functions of this crate that run no instance meanwhile; a packet alone refers to no bytes.
        unsafe { map_frames(memory, store, &self.pool, at) }
    }
}

/// Copies of a batch's packets in mapped frames.
///
/// It stays on its thread, as [`Frames`] does, and gives no packet away.
pub(crate) struct Copies {
    frames: Rc<Frames>,
    /// The frames' slots, as long as there are copies; the first `count` have one.
    slots: Vec<Packet>,
    count: usize,
}

impl Copies {
    /// No copies yet, in frames of this pool.
    pub(crate) fn of(frames: Rc<Frames>) -> Self {
        Self { frames, slots: Vec::new(), count: 0 }
    }

    pub(crate) fn frames(&self) -> &Rc<Frames> {
        &self.frames
    }

    /// Copies each packet of a batch into a frame, in place of the copies before.
    ///
    /// Answers how many have a copy where some found no frame: those are the last of the batch, marked with the reason.
    #[inline]
    pub(crate) fn take_in(&mut self, batch: &mut Batch) -> Option<usize> {
        self.clear();
        self.slots = self.frames.slots.take();
        batch.warm();
        let mut all = self.slots.len() >= batch.len();
        for (slot, packet) in self.slots.iter_mut().zip(batch.iter()) {
            all &= self.frames.refill(slot, packet.data());
        }
        self.count = batch.len();
        if all { None } else { Some(self.take_in_some(batch)) }
    }

    /// Copies those packets that find a frame, and brings the others to the end of the batch.
    #[cold]
    fn take_in_some(&mut self, batch: &mut Batch) -> usize {
        let Self { frames, slots, count } = self;
        let mut marks = [0; BATCH];
        *count = 0;
        for (packet, mark) in batch.iter().zip(&mut marks) {
            match slots.get_mut(*count).map(|slot| frames.refill(slot, packet.data())) {
                Some(true) => *count += 1,
                Some(false) => *mark = TOO_BIG,
                None => *mark = NONE_FREE,
            }
        }
        batch.compact(|slot, _| marks.get(slot).copied().unwrap_or_default())
    }

    /// Where each copy lies, from the first frame on, and its length.
    #[inline]
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.slots.iter().take(self.count).map(|packet| self.place_of(packet.data()))
    }

    #[inline(always)]
    fn get(&self, slot: usize) -> Option<&Packet> {
        self.slots.get(slot).filter(|_| slot < self.count)
    }

    /// Where the copy of a slot lies, and its length.
    pub(crate) fn place(&self, slot: usize) -> Option<(usize, usize)> {
        self.get(slot).map(|packet| self.place_of(packet.data()))
    }

    #[inline(always)]
    fn place_of(&self, bytes: &[u8]) -> (usize, usize) {
        ((bytes.as_ptr() as usize).wrapping_sub(self.frames.base), bytes.len())
    }

    /// The bytes of a copy, as the module left them.
    #[inline(always)]
    pub(crate) fn data(&self, slot: usize) -> &[u8] {
        self.get(slot).map_or(&[], |packet| packet.data())
    }

    /// Room before a copy's first byte and behind its last, in its own frame.
    pub(crate) fn room(&self, slot: usize) -> Option<(usize, usize)> {
        self.get(slot).map(|packet| (packet.headroom(), packet.tailroom()))
    }

    /// Adds zero bytes before a copy's first, or takes bytes off where `bytes` is below 0.
    ///
    /// # Errors
    /// Where its frame has no room.
    pub(crate) fn push_front(&mut self, slot: usize, bytes: i32) -> Result<(), NoRoom> {
        let count = bytes.unsigned_abs() as usize;
        match self.slots.get_mut(slot) {
            Some(copy) if bytes < 0 => copy.pull_front(count),
            Some(copy) => copy.push_front(count).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Cuts a copy to `len` bytes, or adds zero bytes behind its last.
    ///
    /// # Errors
    /// Where its frame has no room.
    pub(crate) fn resize(&mut self, slot: usize, len: usize) -> Result<(), NoRoom> {
        self.slots.get_mut(slot).map_or(Ok(()), |copy| copy.resize(len))
    }

    /// Gives the slots back to the pool's functions.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.slots.is_empty() {
            self.frames.slots.replace(std::mem::take(&mut self.slots));
        }
        self.count = 0;
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(pool: &Pool, packets: &[&[u8]]) -> Batch {
        let mut batch = Batch::new();
        packets.iter().for_each(|packet| assert!(batch.push(pool.packet(packet).unwrap()).is_ok()));
        batch
    }

    #[test]
    fn batches_take_no_frame_of_the_pool_and_find_whole_slots() {
        let pool = Pool::builder().frames(64).frame_size(4096).build().unwrap();
        let frames = Rc::new(Frames::new(512).unwrap());
        let (mut one, mut other) = (Copies::of(frames.clone()), Copies::of(frames.clone()));
        let free = frames.pool.available();
        let mut packets = batch(&pool, &[&[1; 60], &[2; 1_500]]);
        assert_eq!(one.take_in(&mut packets), None);
        let places: Vec<_> = one.places().collect();
        // As a module may leave them: one began earlier and one later, and both have another length.
        one.push_front(0, 14).unwrap();
        one.push_front(1, -20).unwrap();
        one.resize(1, 7).unwrap();
        assert_ne!(one.places().collect::<Vec<_>>(), places);
        one.clear();
        assert_eq!((one.place(0), one.data(0)), (None, &[][..]));
        // The next function of the pool has the same slots, as they were.
        assert_eq!(other.take_in(&mut packets), None);
        assert_eq!(other.places().collect::<Vec<_>>(), places);
        assert_eq!((other.data(0), other.data(1)), (&[1; 60][..], &[2; 1_500][..]));
        drop(other);
        let mut packets = batch(&pool, &[&[3; 1_900], &[4; 60]]);
        assert_eq!(one.take_in(&mut packets), Some(1), "the first is too big for a frame");
        assert_eq!((one.data(0), packets.get(1).map(Packet::verdict)), (&[4; 60][..], Some(TOO_BIG)));
        assert_eq!(frames.pool.available(), free);
    }
}
