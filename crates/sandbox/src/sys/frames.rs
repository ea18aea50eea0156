//! Pools whose frames lie in modules' memories (the mode `mapped`).
//!
//! A packet comes into such a pool by one copy, and goes on in its frame there. Packets that are in the pool already, since a
//! source or a function before this one has put them there, are not copied again. The workers' shared pool is never mapped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use netbricks_core::buffer::{BATCH, Batch, Pool};

thread_local! {
    /// Pools of this thread by their names, as long as a function has them.
    static NAMED: RefCell<BTreeMap<String, Weak<Frames>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Bytes of a frame, headroom included.
const FRAME: usize = 2_048;

/// The marks of packets that are too big for a frame of the pool, and that found none free.
pub(crate) const TOO_BIG: u16 = 1;
const NONE_FREE: u16 = 2;

/// A pool of one thread, which the modules of that thread have mapped.
pub struct Frames {
    pool: Pool,
    /// The address of the first frame.
    base: usize,
}

impl Frames {
    /// A pool of so many frames: that of this name on this thread, or a new one.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn of(name: Option<&str>, frames: usize) -> Result<Rc<Self>, String> {
        let Some(name) = name else { return Self::new(frames).map(Rc::new) };
        NAMED.with_borrow_mut(|named| {
            named.retain(|_, frames| frames.strong_count() > 0);
            if let Some(frames) = named.get(name).and_then(Weak::upgrade) {
                return Ok(frames);
            }
            let new = Rc::new(Self::new(frames)?);
            named.insert(name.to_owned(), Rc::downgrade(&new));
            Ok(new)
        })
    }

    fn new(frames: usize) -> Result<Self, String> {
        let pool = Pool::builder().frames(frames).frame_size(FRAME).workers(1).build();
        let pool = pool.map_err(|error| format!("a pool for mapped frames: {error}"))?;
        let base = pool.region().base.as_ptr() as usize;
        Ok(Self { pool, base })
    }

    /// The pool of this name on this thread, for a source that puts packets straight into it.
    ///
    /// The pool and its packets must stay on this thread: the modules that have mapped them write to them at any time.
    ///
    /// ```
    /// assert!(netbricks_sandbox::frames::Frames::named("a").is_none(), "no function has it");
    /// ```
    pub fn named(name: &str) -> Option<Pool> {
        NAMED.with_borrow(|named| named.get(name).and_then(Weak::upgrade)).map(|frames| frames.pool.clone())
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where bytes of one of its frames lie, from the first frame on.
    #[inline(always)]
    pub(crate) fn offset(&self, bytes: &[u8]) -> usize {
        (bytes.as_ptr() as usize).wrapping_sub(self.base)
    }

    /// Puts each packet of a batch into a frame of this pool, unless it is in one.
    ///
    /// Answers how many stay where some found no frame: those are the last of the batch, marked with the reason.
    #[inline]
    pub(crate) fn take_in(&self, batch: &mut Batch) -> Option<usize> {
        let mut marks = [0; BATCH];
        let mut lost = false;
        batch.each_packet(|slot, packet| {
            if self.pool.owns_small(packet) {
                return;
            }
            if let Some(copy) = packet.try_copy_into(&self.pool) {
                *packet = copy;
            } else if let Some(mark) = marks.get_mut(slot) {
                *mark = if packet.len() > self.pool.small_packet() { TOO_BIG } else { NONE_FREE };
                lost = true;
            }
        });
        lost.then(|| batch.compact(|slot, _| marks.get(slot).copied().unwrap_or_default()))
    }
}
