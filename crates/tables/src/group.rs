//! Sixteen 16-bit tags side by side, compared with one tag at once.
//!
//! A probe of 16 slots then costs as much as a probe of one, without branches.

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

    /// One bit for each slot of two groups whose tag is `tag`.
    ///
    /// Slot 0 of the first group is the lowest bit; the second group's bits are above the first's.
    #[inline(always)]
    pub(crate) fn both_match(first: &Self, second: &Self, tag: u16) -> u32 {
        both_matching(&first.tags, &second.tags, tag)
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

/// Sixteen tags by SSE2, which every x86-64 has.
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

/// Compares two groups by masks, which have a bit a slot at once.
///
/// The compiler makes a comparison each, or one of 512 bits where that is better for its processor.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512bw", target_feature = "avx512vl"))]
#[inline(always)]
fn both_by_masks(first: &[u16; WIDTH], second: &[u16; WIDTH], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm256_cmpeq_epi16_mask, _mm256_loadu_si256, _mm256_set1_epi16, _mm512_kunpackw,
    };
    // SAFETY: 32 readable bytes; AVX2 is part of AVX-512, which is compiled in, here and in each line below.
    let first = unsafe { _mm256_loadu_si256(first.as_ptr().cast()) };
    // SAFETY: as above.
    let second = unsafe { _mm256_loadu_si256(second.as_ptr().cast()) };
    // SAFETY: AVX2.
    let tag = unsafe { _mm256_set1_epi16(tag as i16) };
    // SAFETY: AVX-512 BW and VL.
    let first = unsafe { _mm256_cmpeq_epi16_mask(first, tag) };
    // SAFETY: AVX-512 BW and VL.
    let second = unsafe { _mm256_cmpeq_epi16_mask(second, tag) };
    // SAFETY: AVX-512 BW.
    unsafe { _mm512_kunpackw(u32::from(second), u32::from(first)) }
}

/// Two groups by AVX2: a comparison each, straight from memory, a pack and a mask.
#[cfg(all(
    target_arch = "x86_64",
    target_feature = "avx2",
    any(test, not(all(target_feature = "avx512bw", target_feature = "avx512vl")))
))]
#[inline(always)]
fn both_by_pack(first: &[u16; WIDTH], second: &[u16; WIDTH], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm256_cmpeq_epi16, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_packs_epi16,
        _mm256_permute4x64_epi64, _mm256_set1_epi16,
    };
    // SAFETY: 32 readable bytes; AVX2 is compiled in, here and in each line below.
    let first = unsafe { _mm256_loadu_si256(first.as_ptr().cast()) };
    // SAFETY: as above.
    let second = unsafe { _mm256_loadu_si256(second.as_ptr().cast()) };
    // SAFETY: AVX2.
    let tag = unsafe { _mm256_set1_epi16(tag as i16) };
    // SAFETY: AVX2.
    let first = unsafe { _mm256_cmpeq_epi16(first, tag) };
    // SAFETY: AVX2.
    let second = unsafe { _mm256_cmpeq_epi16(second, tag) };
    // SAFETY: AVX2. Saturation keeps 0 and -1 as they are; each half holds a half of either group.
    let halves = unsafe { _mm256_packs_epi16(first, second) };
    // SAFETY: AVX2. The first group's halves before the second's.
    let both = unsafe { _mm256_permute4x64_epi64::<0b11_01_10_00>(halves) };
    // SAFETY: AVX2.
    let bits = unsafe { _mm256_movemask_epi8(both) };
    bits as u32
}

/// Two groups, one after the other.
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "avx2"))))]
#[inline(always)]
fn both_by_each(first: &[u16; WIDTH], second: &[u16; WIDTH], tag: u16) -> u32 {
    matching(first, tag) | matching(second, tag) << WIDTH
}

/// Two groups by the best that the compiler may use.
#[inline(always)]
fn both_matching(first: &[u16; WIDTH], second: &[u16; WIDTH], tag: u16) -> u32 {
    cfg_select! {
        all(target_arch = "x86_64", target_feature = "avx512bw", target_feature = "avx512vl") => {
            both_by_masks(first, second, tag)
        }
        all(target_arch = "x86_64", target_feature = "avx2") => { both_by_pack(first, second, tag) }
        _ => { both_by_each(first, second, tag) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn matching(tags: &[u16; WIDTH], tag: u16) -> u32 {
    portable(tags, tag)
}

/// The reference that every other form must equal.
///
/// On machines without SIMD of ours it is used, with the compiler's own vectorisation.
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

        #[test]
        fn two_groups_together_equal_each_alone(
            tags in any::<[[u16; 16]; 2]>(), same in any::<u32>(), tag in any::<u16>(),
        ) {
            // Both groups hold the tag in places of every kind.
            let [first, second] = [0, 1].map(|group| Group {
                tags: std::array::from_fn(|at| if same >> (16 * group + at) & 1 == 1 { tag } else { tags[group][at] }),
            });
            let alone = portable(&first.tags, tag) | portable(&second.tags, tag) << WIDTH;
            prop_assert_eq!(Group::both_match(&first, &second, tag), alone);
            prop_assert_eq!(both_by_each(&first.tags, &second.tags, tag), alone);
            #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
            prop_assert_eq!(both_by_pack(&first.tags, &second.tags, tag), alone);
            prop_assert_eq!(alone & same, same);
        }
    }
}
