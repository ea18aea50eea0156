//! Random values, the same from the same seed.

/// A generator of numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
///
/// An observer of its values can learn the next ones, so nothing that must stay secret comes from it.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    /// A number below `bound`, which is not 0; numbers are equally likely to within 2⁻⁶⁴ of the bound.
    pub(crate) fn below(&mut self, bound: u128) -> u128 {
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        wide % bound.max(1)
    }
}
