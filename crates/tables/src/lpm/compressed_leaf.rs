//! Compressed leaves: cells of the first stride with one value but for one run of addresses, in four bytes.
//!
//! The run shares its first bits. A compressed leaf answers without a look at a group.

use crate::memory::Zeroable;

/// How many bits of an address are behind the first stride.
pub(super) const REST: u8 = 12;

/// Two values' numbers, and the prefix in which one of them decides. All zero: nothing is known here.
///
/// From the highest bit on: the prefix in 12 bits, 13 less its length, and the numbers of the value in it and of that around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct CompressedLeaf(u32);
// SAFETY: an integer, without drop.
unsafe impl Zeroable for CompressedLeaf {}

impl CompressedLeaf {
    pub(super) const NONE: Self = Self(0);

    /// A compressed leaf in `prefix`, whose bits behind its first `len` are 0.
    ///
    /// `None` where a number is beyond a byte.
    fn new(prefix: u32, len: u8, within: u32, around: u32) -> Option<Self> {
        let (within, around) = (u8::try_from(within).ok()?, u8::try_from(around).ok()?);
        Some(Self(
            prefix << 20 | u32::from(REST + 1 - len) << 16 | u32::from(within) << 8 | u32::from(around),
        ))
    }

    /// The number that decides for these last bits of an address, if it is known.
    #[inline(always)]
    pub(super) fn number(self, rest: u32) -> Option<usize> {
        let behind = self.0 >> 16 & 0xf;
        let differs = (self.0 >> 20 ^ rest) << 1 >> behind;
        let number = if differs == 0 { self.0 >> 8 } else { self.0 } & 0xff;
        (behind > 0).then_some(number as usize)
    }
}

/// Finds the compressed leaf among runs of equal numbers that are told in order, if there is one.
#[derive(Default)]
pub(super) struct Runs {
    /// Groups that were looked into.
    groups: u8,
    /// Their numbers and where they begin.
    runs: [(u32, u32); 3],
    len: usize,
    /// Where the next one begins.
    end: u32,
}

impl Runs {
    /// Notes that the next run is in another group; returns `false` where there can be no compressed leaf.
    ///
    /// One prefix needs the group behind the cell, and one more at most.
    pub(super) fn enter(&mut self) -> bool {
        self.groups += 1;
        self.groups <= 2
    }

    /// Notes that the next `count` addresses have this number; `false` where there can be no compressed leaf.
    pub(super) fn add(&mut self, number: u32, count: u32) -> bool {
        let goes_on = self.len > 0 && self.runs[self.len - 1].0 == number;
        if !goes_on {
            let Some(run) = self.runs.get_mut(self.len) else { return false };
            *run = (number, self.end);
            self.len += 1;
        }
        self.end += count;
        true
    }

    /// The compressed leaf, once all [4,096](REST) addresses were told.
    pub(super) fn leaf(&self) -> Option<CompressedLeaf> {
        let number = |run: usize| self.runs[run].0;
        let start = |run: usize| if run == self.len { self.end } else { self.runs[run].1 };
        let prefix = |run: usize| {
            let (from, size) = (start(run), start(run + 1) - start(run));
            let is_prefix = size.is_power_of_two() && from.is_multiple_of(size);
            is_prefix.then(|| (from, REST - size.ilog2() as u8))
        };
        let (within, around) = match self.len {
            1 => (0, 0),
            2 if prefix(0).is_some() => (0, 1),
            2 => (1, 0),
            3 if number(0) == number(2) => (1, 0),
            _ => return None,
        };
        let (from, len) = prefix(within)?;
        CompressedLeaf::new(from, len, number(within), number(around))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All possible compressed leaves are found. Cells with more runs or other bounds have none.
    #[test]
    fn compressed_leaves_are_found_and_answer() {
        for len in 0..=REST {
            let size = 1 << (REST - len);
            for from in (0..1 << REST).step_by(size) {
                let at = |rest: u32| if (from..from + size as u32).contains(&rest) { 7 } else { 255 };
                let mut runs = Runs::default();
                assert!((0..1 << REST).step_by(size).all(|rest| runs.add(at(rest), size as u32)));
                let leaf = runs.leaf().unwrap();
                let last = from + size as u32 - 1;
                for rest in [0, from.saturating_sub(1), from, last, (last + 1) % (1 << REST), (1 << REST) - 1]
                {
                    assert_eq!(leaf.number(rest), Some(at(rest) as usize), "{rest} of {from}/{len}");
                }
            }
        }
        let told = |all: &[(u32, u32)]| {
            let mut runs = Runs::default();
            all.iter().all(|(number, count)| runs.add(*number, *count)).then(|| runs.leaf()).flatten()
        };
        assert!(told(&[(1, 64), (2, 64), (1, 3_968)]).is_some());
        assert!(told(&[(1, 32), (2, 64), (1, 4_000)]).is_none(), "not where a prefix may be");
        assert!(told(&[(1, 96), (2, 4_000)]).is_none(), "neither is as large as a prefix");
        assert!(told(&[(1, 64), (2, 64), (3, 3_968)]).is_none());
        assert!(told(&[(1, 64), (2, 64), (1, 64), (2, 3_904)]).is_none());
        assert!(told(&[(1, 2_048), (256, 2_048)]).is_none(), "beyond a byte");
        assert_eq!(CompressedLeaf::NONE.number(0), None);
    }
}
