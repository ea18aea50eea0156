//! Sixteen 16-bit tags side by side, compared with one tag at once: what makes a probe of 16 slots cost as much as
//! a probe of one, and free of branches.

use crate::memory::Zeroable;

/// Slots in a group.
pub(crate) const WIDTH: usize = 16;
/// The tag of a slot that holds nothing; no key has it.
pub(crate) const FREE: u16 = 0;

/// The tags of 16 neighbouring slots: half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Group {
    pub(crate) tags: [u16; WIDTH],
}
// SAFETY: an array of integers, without drop.
unsafe impl Zeroable for Group {}

impl Group {
    pub(crate) const BYTES: usize = size_of::<Self>();

    /// One bit for each slot whose tag is `tag`, slot 0 lowest.
    #[inline(always)]
    pub(crate) fn matches(&self, tag: u16) -> u32 {
        matching(&self.tags, tag)
    }

    /// One bit for each free slot.
    #[inline(always)]
    pub(crate) fn free(&self) -> u32 {
        self.matches(FREE)
    }

    /// One bit for each occupied slot.
    #[inline(always)]
    pub(crate) fn occupied(&self) -> u32 {
        self.free() ^ 0xffff
    }
}

/// SSE2 by name, but the compiler joins the comparisons of two groups to AVX2's width where that is compiled in: two
/// comparisons, a pack and a mask for 32 slots. 512 bits do it in one comparison, but on a Cascade Lake all of a packet's
/// work, the parts without vectors too, then took some 10 to 14 % longer: presumably wide registers lower the clock.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn matching(tags: &[u16; WIDTH], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };
    let (low, high) = tags.split_at(WIDTH / 2);
    // SAFETY: 16 readable bytes; SSE2 is part of x86-64.
    let low = unsafe { _mm_loadu_si128(low.as_ptr().cast()) };
    // SAFETY: as above.
    let high = unsafe { _mm_loadu_si128(high.as_ptr().cast()) };
    // SAFETY: SSE2 is part of x86-64, here and in each line below.
    let tag = unsafe { _mm_set1_epi16(tag as i16) };
    // SAFETY: SSE2.
    let low = unsafe { _mm_cmpeq_epi16(low, tag) };
    // SAFETY: SSE2.
    let high = unsafe { _mm_cmpeq_epi16(high, tag) };
    // SAFETY: SSE2. Saturation keeps 0 and -1 as they are.
    let both = unsafe { _mm_packs_epi16(low, high) };
    // SAFETY: SSE2.
    let bits = unsafe { _mm_movemask_epi8(both) };
    bits as u32
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn matching(tags: &[u16; WIDTH], tag: u16) -> u32 {
    portable(tags, tag)
}

/// What every other form must equal; on machines without SIMD of ours, the compiler's own vectorisation of it.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn portable(tags: &[u16; WIDTH], tag: u16) -> u32 {
    tags.iter().enumerate().fold(0, |bits, (slot, other)| bits | u32::from(*other == tag) << slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few different tags, so that many match; the extremes of the sign bit among them.
        #[test]
        fn simd_equals_portable(tags in prop::array::uniform16(prop::sample::select(vec![0u16, 1, 0x7fff, 0x8000, 0x8001, 0xff00, 0xffff])),
                                tag in prop::sample::select(vec![0u16, 1, 0x7fff, 0x8000, 0x8001, 0xff00, 0xffff])) {
            let group = Group { tags };
            prop_assert_eq!(group.matches(tag), portable(&tags, tag));
            prop_assert_eq!(group.free() | group.occupied(), 0xffff);
            prop_assert_eq!(group.free() & group.occupied(), 0);
        }

        #[test]
        fn simd_equals_portable_on_any_tags(tags in any::<[u16; 16]>(), tag in any::<u16>(), at in 0usize..16) {
            prop_assert_eq!(Group { tags }.matches(tag), portable(&tags, tag));
            prop_assert_eq!(Group { tags }.matches(tags[at]), portable(&tags, tags[at]));
        }
    }
}
