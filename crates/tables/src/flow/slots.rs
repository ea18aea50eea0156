//! The slots of a flow table: key, value and times of one flow together, so that a hit reads and writes one cache
//! line. Slots never move, which keeps timers, iteration and removal simple.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::memory::{HugeArray, MemoryError};
use crate::prefetch::{CACHE_LINE, prefetch};

/// One flow, or room for one. A slot is live when `timeout` isn't 0; only then are `key` and `value` initialised.
#[repr(C)]
pub(super) struct Slot<K, V> {
    key: MaybeUninit<K>,
    value: MaybeUninit<V>,
    /// The tick of the last hit, modulo 2³².
    pub(super) seen: u32,
    /// Ticks without a hit after which the flow is over; 0 in a slot that holds none, [`NEVER`] for one that stays.
    timeout: u32,
}

/// The timeout of a flow that does not expire.
pub(super) const NEVER: u32 = u32::MAX;

impl<K: Copy, V> Slot<K, V> {
    #[inline(always)]
    pub(super) fn timeout(&self) -> u32 {
        self.timeout
    }

    #[inline(always)]
    pub(super) fn is_live(&self) -> bool {
        self.timeout != 0
    }

    /// Changes a live slot's timeout; at least one tick, so that it stays live.
    #[inline]
    pub(super) fn set_timeout(&mut self, ticks: u32) {
        if self.is_live() {
            self.timeout = ticks.max(1);
        }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> Option<&K> {
        // SAFETY: a live slot's key was written by `fill`.
        self.is_live().then(|| unsafe { self.key.assume_init_ref() })
    }

    #[inline(always)]
    pub(super) fn pair(&self) -> Option<(&K, &V)> {
        let key = self.key()?;
        // SAFETY: the slot is live (it has a key), so its value was written by `fill` and not yet taken.
        Some((key, unsafe { self.value.assume_init_ref() }))
    }

    #[inline(always)]
    pub(super) fn value_mut(&mut self) -> Option<&mut V> {
        // SAFETY: a live slot's value was written by `fill` and not yet taken.
        self.is_live().then(|| unsafe { self.value.assume_init_mut() })
    }

    /// The key of a slot that is known to be live.
    ///
    /// # Safety
    /// The slot must be live.
    #[inline(always)]
    pub(super) unsafe fn key_unchecked(&self) -> &K {
        // SAFETY: the caller says that the slot is live, so that its key was written.
        unsafe { self.key.assume_init_ref() }
    }

    /// The value of a slot that is known to be live.
    ///
    /// # Safety
    /// The slot must be live.
    #[inline(always)]
    pub(super) unsafe fn value_unchecked(&self) -> &V {
        // SAFETY: the caller says that the slot is live, so that its value was written.
        unsafe { self.value.assume_init_ref() }
    }

    /// As [`value_unchecked`](Self::value_unchecked), to change it.
    ///
    /// # Safety
    /// The slot must be live.
    #[inline(always)]
    pub(super) unsafe fn value_unchecked_mut(&mut self) -> &mut V {
        // SAFETY: as above.
        unsafe { self.value.assume_init_mut() }
    }

    #[inline]
    pub(super) fn pair_mut(&mut self) -> Option<(K, &mut V)> {
        let key = *self.key()?;
        Some((key, self.value_mut()?))
    }

    /// Puts a flow into a slot that holds none; a live one would be forgotten without being dropped.
    #[inline]
    pub(super) fn fill(&mut self, key: K, value: V, seen: u32, timeout: u32) {
        self.key.write(key);
        self.value.write(value);
        self.seen = seen;
        self.timeout = timeout.max(1);
    }

    /// Takes the flow out.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(K, V)> {
        let key = *self.key()?;
        self.timeout = 0;
        // SAFETY: the slot was live (it had a key), and isn't any more, so that the value is read out only once.
        Some((key, unsafe { self.value.assume_init_read() }))
    }
}

/// A fixed number of slots, none straddling more cache lines than it must.
pub(super) struct Slots<K, V> {
    bytes: HugeArray<u8>,
    len: usize,
    slots: PhantomData<Slot<K, V>>,
}

impl<K: Copy, V> Slots<K, V> {
    /// Bytes from slot to slot: a power of two up to a cache line, whole lines beyond.
    pub(super) const STRIDE: usize = {
        let size = size_of::<Slot<K, V>>();
        if size <= CACHE_LINE { size.next_power_of_two() } else { size.next_multiple_of(CACHE_LINE) }
    };

    pub(super) fn empty(len: usize) -> Result<Self, MemoryError> {
        // The mapping's alignment is 4 KiB; a stride is a multiple of the alignment as every size is.
        const {
            assert!(align_of::<Slot<K, V>>() <= 4096 && Self::STRIDE.is_multiple_of(align_of::<Slot<K, V>>()))
        };
        let bytes = HugeArray::zeroed(len.saturating_mul(Self::STRIDE))?;
        Ok(Self { bytes, len, slots: PhantomData })
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where slot `index` is, or would be.
    #[inline(always)]
    fn address(&self, index: usize) -> *mut Slot<K, V> {
        self.bytes.start().as_ptr().wrapping_add(index.wrapping_mul(Self::STRIDE)).cast()
    }

    /// Where slot `index` is, which must be there: not through a reference, so that it stays good to write by while others
    /// look at the slot through the table (under Tree Borrows a pointer that comes of a reference does not).
    #[inline(always)]
    pub(super) fn place(&self, index: usize) -> NonNull<Slot<K, V>> {
        debug_assert!(index < self.len);
        // SAFETY: the mapping does not begin at 0 and does not reach around the address space, so nothing in it is null.
        unsafe { NonNull::new_unchecked(self.address(index)) }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, index: usize) {
        Self::prefetch_from(self.start(), index);
    }

    /// Where slots begin, for asking for them.
    #[inline(always)]
    pub(super) fn start(&self) -> *const u8 {
        self.bytes.start().as_ptr()
    }

    /// As [`prefetch`](Self::prefetch), of slots that begin there.
    #[inline(always)]
    pub(super) fn prefetch_from(start: *const u8, index: usize) {
        let start = start.wrapping_add(index.wrapping_mul(Self::STRIDE));
        prefetch(start);
        // A long slot's times are in its last line, and every hit writes them.
        if Self::STRIDE > CACHE_LINE {
            prefetch(start.wrapping_add(Self::STRIDE - CACHE_LINE));
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&Slot<K, V>> {
        // SAFETY: `index` is inside the array, whose bytes are zero (a slot that holds nothing) or were written through
        // `get_mut`; shared access to `self` is shared access to them.
        (index < self.len).then(|| unsafe { &*self.address(index) })
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot<K, V>> {
        // SAFETY: as for `get`, and `&mut self` makes it unique.
        (index < self.len).then(|| unsafe { &mut *self.address(index) })
    }
}
