//! Pools whose frames lie in modules' memories (the mode `mapped`), and the copies of packets in them.
//!
//! A module writes to all frames of its pool whenever it runs. So no packet of such a pool leaves this file. A batch is
//! copied into the pool before the module runs, and what the module wrote is copied out of it afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::{Rc, Weak};

use netbricks_core::buffer::{BATCH, Batch, NoRoom, Pool};
use wasmtime::{AsContext, Memory};

use super::memory::{map_frames, mapped_bytes};

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
        Ok(Self { pool, base })
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
        // bytes to functions of this crate that run no instance meanwhile, and is empty when its module does not run.
        unsafe { map_frames(memory, store, &self.pool, at) }
    }
}

/// Copies of a batch's packets in mapped frames.
///
/// It stays on its thread, as [`Frames`] does, and gives no packet away.
pub(crate) struct Copies {
    frames: Rc<Frames>,
    batch: Batch,
}

impl Copies {
    /// No copies yet, in frames of this pool.
    pub(crate) fn of(frames: Rc<Frames>) -> Self {
        Self { frames, batch: Batch::new() }
    }

    pub(crate) fn frames(&self) -> &Rc<Frames> {
        &self.frames
    }

    /// Copies each packet of a batch into a frame, in place of the copies before.
    ///
    /// Answers how many have a copy where some found no frame: those are the last of the batch, marked with the reason.
    #[inline]
    pub(crate) fn take_in(&mut self, batch: &mut Batch) -> Option<usize> {
        let Self { frames, batch: copies } = self;
        copies.clear();
        batch.warm();
        let mut all = frames.pool.allocate_into(copies, batch.len()) == batch.len();
        copies.warm();
        copies.each_packet(|slot, copy| {
            all &= batch.get(slot).is_some_and(|packet| copy.extend_from(packet.data()).is_ok());
        });
        if all { None } else { Some(self.take_in_some(batch)) }
    }

    /// Copies those packets that find a frame, and brings the others to the end of the batch.
    #[cold]
    fn take_in_some(&mut self, batch: &mut Batch) -> usize {
        let Self { frames, batch: copies } = self;
        copies.clear();
        let pool = &frames.pool;
        let mut marks = [0; BATCH];
        for (packet, mark) in batch.iter().zip(&mut marks) {
            let copy = packet.try_copy_into(pool);
            if copy.is_none_or(|copy| copies.push(copy).is_err()) {
                *mark = if packet.len() > pool.small_packet() { TOO_BIG } else { NONE_FREE };
            }
        }
        batch.compact(|slot, _| marks.get(slot).copied().unwrap_or_default())
    }

    /// Where each copy lies, from the first frame on, and its length.
    #[inline]
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.batch.iter().map(|packet| self.place_of(packet.data()))
    }

    /// Where the copy of a slot lies, and its length.
    pub(crate) fn place(&self, slot: usize) -> Option<(usize, usize)> {
        self.batch.get(slot).map(|packet| self.place_of(packet.data()))
    }

    #[inline(always)]
    fn place_of(&self, bytes: &[u8]) -> (usize, usize) {
        ((bytes.as_ptr() as usize).wrapping_sub(self.frames.base), bytes.len())
    }

    /// The bytes of a copy, as the module left them.
    #[inline(always)]
    pub(crate) fn data(&self, slot: usize) -> &[u8] {
        self.batch.get(slot).map_or(&[], |packet| packet.data())
    }

    /// Room before a copy's first byte and behind its last, in its own frame.
    pub(crate) fn room(&self, slot: usize) -> Option<(usize, usize)> {
        self.batch.get(slot).map(|packet| (packet.headroom(), packet.tailroom()))
    }

    /// Adds zero bytes before a copy's first, or takes bytes off where `bytes` is below 0.
    ///
    /// # Errors
    /// Where its frame has no room.
    pub(crate) fn push_front(&mut self, slot: usize, bytes: i32) -> Result<(), NoRoom> {
        let count = bytes.unsigned_abs() as usize;
        match self.batch.packet(slot) {
            Some(mut copy) if bytes < 0 => copy.pull_front(count),
            Some(mut copy) => copy.push_front(count).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Cuts a copy to `len` bytes, or adds zero bytes behind its last.
    ///
    /// # Errors
    /// Where its frame has no room.
    pub(crate) fn resize(&mut self, slot: usize, len: usize) -> Result<(), NoRoom> {
        self.batch.packet(slot).map_or(Ok(()), |mut copy| copy.resize(len))
    }

    /// Frees the copies.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
    }
}
