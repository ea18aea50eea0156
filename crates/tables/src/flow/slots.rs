//! The slots of a flow table: key, value and times of one flow together.
//!
//! A hit then reads and writes one cache line. Slots never move, which keeps timers, iteration and removal simple.
//!
//! The far part of a key in two parts follows the slot, unless slots without it are smaller. Then far parts have an
//! array of their own, of which a long key takes a line or two more.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::hash::Key;
use crate::memory::{HugeArray, MemoryError};
use crate::parts::Parts;
use crate::prefetch::{CACHE_LINE, prefetch};

/// The key's part in the slot.
pub(super) type Near<K> = <<K as Key>::Parts as Parts<K>>::Near;
/// The key's part behind the slot or in an array of its own.
pub(super) type Far<K> = <<K as Key>::Parts as Parts<K>>::Far;

/// One flow, or room for one.
///
/// A slot is live when `timeout` is not 0; only then are `near` and `value` initialised.
#[repr(C)]
pub(super) struct Slot<K: Key, V> {
    near: MaybeUninit<Near<K>>,
    /// The tick of the last hit, modulo 2³².
    pub(super) seen: u32,
    /// Ticks without a hit after which the flow expires.
    ///
    /// 0 in an empty slot, [`NEVER`] for a flow that stays.
    timeout: u32,
    /// Behind the times: the first fields of a long value lie in the line that every hit writes.
    value: MaybeUninit<V>,
}

/// The timeout of a flow that does not expire.
pub(super) const NEVER: u32 = u32::MAX;

impl<K: Key, V> Slot<K, V> {
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
    fn near(&self) -> Option<&Near<K>> {
        // SAFETY: a live slot's near part was written by `fill`.
        self.is_live().then(|| unsafe { self.near.assume_init_ref() })
    }

    #[inline(always)]
    pub(super) fn value(&self) -> Option<&V> {
        // SAFETY: a live slot's value was written by `fill` and not yet taken.
        self.is_live().then(|| unsafe { self.value.assume_init_ref() })
    }

    #[inline(always)]
    pub(super) fn value_mut(&mut self) -> Option<&mut V> {
        // SAFETY: a live slot's value was written by `fill` and not yet taken.
        self.is_live().then(|| unsafe { self.value.assume_init_mut() })
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

    /// Puts a flow into a slot that holds none; a live one would be forgotten without being dropped.
    #[inline(always)]
    fn fill(&mut self, near: Near<K>, value: V, seen: u32, timeout: u32) {
        self.near.write(near);
        self.value.write(value);
        self.seen = seen;
        self.timeout = timeout.max(1);
    }

    /// Takes the flow out.
    #[inline]
    fn take(&mut self) -> Option<V> {
        if !self.is_live() {
            return None;
        }
        self.timeout = 0;
        // SAFETY: the slot was live, and isn't any more, so that the value is read out only once.
        Some(unsafe { self.value.assume_init_read() })
    }
}

/// A fixed number of slots, none straddling more cache lines than it must, and the far parts of their keys.
pub(super) struct Slots<K: Key, V> {
    bytes: HugeArray<u8>,
    /// Far parts, where they do not lie in `bytes`.
    far: HugeArray<u8>,
    len: usize,
    slots: PhantomData<Slot<K, V>>,
}

/// Bytes from slot to slot, for slots of `size` bytes.
///
/// A power of two up to a cache line, whole lines beyond.
const fn stride(size: usize) -> usize {
    if size <= CACHE_LINE { size.next_power_of_two() } else { size.next_multiple_of(CACHE_LINE) }
}

impl<K: Key, V> Slots<K, V> {
    /// Where in a slot a far part would lie.
    const BEHIND: usize = size_of::<Slot<K, V>>().next_multiple_of(align_of::<Far<K>>());
    /// Whether far parts lie apart from the slots.
    pub(super) const APART: bool = size_of::<Far<K>>() > 0
        && stride(size_of::<Slot<K, V>>()) < stride(Self::BEHIND + size_of::<Far<K>>());
    /// Bytes from slot to slot.
    pub(super) const STRIDE: usize = if Self::APART {
        stride(size_of::<Slot<K, V>>())
    } else {
        stride(Self::BEHIND + size_of::<Far<K>>())
    };
    /// Bytes of a slot, wherever they lie.
    pub(super) const BYTES: usize = Self::STRIDE + if Self::APART { size_of::<Far<K>>() } else { 0 };

    pub(super) fn empty(len: usize) -> Result<Self, MemoryError> {
        // The mapping's alignment is 4 KiB; a stride is a multiple of the alignments as every size is.
        const {
            assert!(
                align_of::<Slot<K, V>>() <= 4096 && Self::STRIDE.is_multiple_of(align_of::<Slot<K, V>>())
            );
            assert!(align_of::<Far<K>>() <= 4096);
            assert!(Self::APART || Self::STRIDE.is_multiple_of(align_of::<Far<K>>()));
        };
        let bytes = HugeArray::zeroed(len.saturating_mul(Self::STRIDE))?;
        let far = if Self::APART {
            HugeArray::zeroed(len.saturating_mul(size_of::<Far<K>>()))?
        } else {
            HugeArray::empty()
        };
        Ok(Self { bytes, far, len, slots: PhantomData })
    }

    /// Where the far part of slot `index` is, or would be.
    #[inline(always)]
    fn far_address(&self, index: usize) -> *mut Far<K> {
        if Self::APART {
            self.far.start().as_ptr().cast::<Far<K>>().wrapping_add(index)
        } else {
            self.address(index).wrapping_byte_add(Self::BEHIND).cast()
        }
    }

    /// The far part of a slot, in use or free.
    #[inline(always)]
    fn far(&self, index: usize) -> &Far<K> {
        assert!(index < self.len);
        // SAFETY: there are as many far parts as slots, each in the array of its own or behind its slot, which has room for
        // it by `STRIDE`; it is zero, which is a valid one, or was written by `fill`; shared access to `self` is shared
        // access to it.
        unsafe { &*self.far_address(index) }
    }

    /// The key of slot `index`, if that is live.
    #[inline]
    pub(super) fn key(&self, index: usize) -> Option<K> {
        let near = *self.get(index)?.near()?;
        Some(K::Parts::join(near, || *self.far(index)))
    }

    /// Whether `key` lives in slot `index`.
    #[inline(always)]
    pub(super) fn is(&self, index: usize, key: &K) -> bool {
        self.is_of(index, K::Parts::split(key))
    }

    /// Whether the key of these parts lives in slot `index`.
    #[inline(always)]
    pub(super) fn is_of(&self, index: usize, (near, far): (Near<K>, Option<Far<K>>)) -> bool {
        self.get(index).is_some_and(|slot| slot.near() == Some(&near))
            && far.is_none_or(|far| *self.far(index) == far)
    }

    /// The flow of slot `index`, if that is live.
    #[inline]
    pub(super) fn pair(&self, index: usize) -> Option<(K, &V)> {
        Some((self.key(index)?, self.get(index)?.value()?))
    }

    /// As [`pair`](Self::pair), to change the value.
    #[inline]
    pub(super) fn pair_mut(&mut self, index: usize) -> Option<(K, &mut V)> {
        Some((self.key(index)?, self.get_mut(index)?.value_mut()?))
    }

    /// Puts a flow into a slot that holds none; a live one would be forgotten without being dropped.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline(always)]
    pub(super) fn fill(&mut self, index: usize, key: &K, value: V, seen: u32, timeout: u32) {
        let (near, far) = K::Parts::split(key);
        self.get_mut(index).expect("a free tag stands for a slot").fill(near, value, seen, timeout);
        if let Some(far) = far {
            // SAFETY: as in `far`: the slot is there, and `&mut self` makes this the only access.
            unsafe { self.far_address(index).write(far) };
        }
    }

    /// Takes a flow out.
    #[inline]
    pub(super) fn take(&mut self, index: usize) -> Option<(K, V)> {
        // First what is the author's: should it panic, nothing has happened.
        let key = self.key(index)?;
        Some((key, self.get_mut(index)?.take()?))
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

    /// The address of slot `index`, which must exist.
    ///
    /// It is not made from a reference, so that it stays valid for writing while others read the slot through the
    /// table. Under Tree Borrows a pointer made from a reference does not.
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

    /// Asks for the far part of a slot, if it needs asking for.
    #[inline(always)]
    pub(super) fn prefetch_far(&self, index: usize) {
        if Self::APART {
            let start = self.far_address(index);
            prefetch(start);
            prefetch(start.wrapping_add(1).wrapping_byte_sub(1));
        }
    }

    /// As [`prefetch`](Self::prefetch), of slots that begin there: the line with the key, the times and the value's start.
    ///
    /// A slot of two lines is asked for whole. Of a longer one, most hits need no more than the first.
    #[inline(always)]
    pub(super) fn prefetch_from(start: *const u8, index: usize) {
        let start = start.wrapping_add(index.wrapping_mul(Self::STRIDE));
        prefetch(start);
        if Self::STRIDE == 2 * CACHE_LINE {
            prefetch(start.wrapping_add(CACHE_LINE));
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&Slot<K, V>> {
        // SAFETY: `index` is inside the array, whose bytes are zero (a slot that holds nothing) or were written through
        // `get_mut` and, behind the slot, by `fill`; shared access to `self` is shared access to them.
        (index < self.len).then(|| unsafe { &*self.address(index) })
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot<K, V>> {
        // SAFETY: as for `get`, and `&mut self` makes it unique.
        (index < self.len).then(|| unsafe { &mut *self.address(index) })
    }
}
