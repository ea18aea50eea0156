//! Conditions on packets: tests of words, combined by and, or and choice.

/// A test of up to four bytes of a packet: those under the mask have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Test {
    /// Where the four bytes begin, as the [view](super::view::View) of the packet numbers places.
    pub(crate) place: u16,
    /// The bits that count; the first byte's are the most significant.
    pub(crate) mask: u32,
    /// The bits' values; bits outside of the mask are 0.
    pub(crate) value: u32,
}

impl Test {
    /// The test that every packet passes.
    pub(crate) const ALWAYS: Self = Self { place: 0, mask: 0, value: 0 };

    /// A test; bits of the value outside of the mask do not count.
    pub(crate) const fn new(place: u16, mask: u32, value: u32) -> Self {
        Self { place, mask, value: value & mask }
    }
    /// The length that a packet must have, so that the test can look at all its bytes.
    pub(crate) fn need(&self) -> u32 {
        if self.mask == 0 { 0 } else { u32::from(self.place) + 4 - self.mask.trailing_zeros() / 8 }
    }
}

/// A condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A test, or its opposite.
    Word {
        /// The test.
        test: Test,
        /// Whether packets pass that do not have the value.
        negated: bool,
        /// Whether packets pass that are too short for the test.
        short: bool,
    },
    /// A comparison of a field in a word, which stands for [some tests](Expression::expanded).
    Compare(Compare),
    /// All hold.
    All(Vec<Expression>),
    /// Any holds.
    Any(Vec<Expression>),
    /// Of each pair the second is asked where the first holds; the last where none does.
    ///
    /// [`choice`](Expression::choice) makes it, so that there is a last.
    Choice(Vec<Expression>),
}

/// A field is above a bound, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Compare {
    /// Where the word begins.
    pub(crate) place: u16,
    /// Bits of the word behind the field.
    pub(crate) shift: u32,
    /// The field's bits that count, shifted to the right.
    pub(crate) mask: u32,
    /// The bound, below the mask.
    pub(crate) bound: u32,
    /// Whether the field is to be above the bound, instead of at most as large.
    pub(crate) above: bool,
    /// Whether packets pass that are too short.
    pub(crate) short: bool,
}

impl Expression {
    /// The condition that every packet fulfils, or none.
    pub(crate) const fn constant(holds: bool) -> Self {
        Self::Word { test: Test::ALWAYS, negated: !holds, short: holds }
    }
    /// A test that short packets do not pass.
    pub(crate) const fn word(place: u16, mask: u32, value: u32) -> Self {
        Self::Word { test: Test::new(place, mask, value), negated: false, short: false }
    }

    /// A choice. A pair at the end is one condition, as both must hold.
    pub(crate) fn choice(mut parts: Vec<Self>) -> Self {
        if parts.len().is_multiple_of(2) {
            let pair = parts.split_off(parts.len().saturating_sub(2));
            parts.push(Self::All(pair));
        }
        Self::Choice(parts)
    }

    /// The opposite.
    #[must_use]
    pub(crate) fn not(self) -> Self {
        self.turned(true)
    }
    /// The opposite for packets that are long enough. A test for which a packet is too short answers as before.
    #[must_use]
    pub(crate) fn not_of_long(self) -> Self {
        self.turned(false)
    }
    fn turned(self, short_too: bool) -> Self {
        let all = |parts: Vec<Self>| parts.into_iter().map(|part| part.turned(short_too)).collect();
        match self {
            Self::Word { test, negated, short } => {
                Self::Word { test, negated: !negated, short: short != short_too }
            }
            Self::Compare(compare) => {
                Self::Compare(Compare { above: !compare.above, short: compare.short != short_too, ..compare })
            }
            Self::All(parts) => Self::Any(all(parts)),
            Self::Any(parts) => Self::All(all(parts)),
            Self::Choice(parts) => {
                let last = parts.len().saturating_sub(1);
                let turn = |(at, part): (usize, Self)| {
                    if at % 2 == 1 || at == last { part.turned(short_too) } else { part }
                };
                Self::Choice(parts.into_iter().enumerate().map(turn).collect())
            }
        }
    }

    /// Bytes of its parts, beside its own.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Word { .. } | Self::Compare(_) => 0,
            Self::All(parts) | Self::Any(parts) | Self::Choice(parts) => {
                parts.capacity() * size_of::<Self>() + parts.iter().map(Self::bytes).sum::<usize>()
            }
        }
    }

    /// The same, of tests only.
    pub(crate) fn expanded(&self) -> Self {
        let all = |parts: &[Self]| parts.iter().map(Self::expanded).collect();
        match self {
            Self::Word { .. } => self.clone(),
            Self::Compare(compare) => compare.expanded(),
            Self::All(parts) => Self::All(all(parts)),
            Self::Any(parts) => Self::Any(all(parts)),
            Self::Choice(parts) => Self::Choice(all(parts)),
        }
    }

    /// Whether a packet fulfils it: each test's answer comes from `holds`, `None` where the packet is too short.
    #[cfg(test)]
    pub(crate) fn holds(&self, holds: &impl Fn(&Test) -> Option<bool>) -> bool {
        match self {
            Self::Word { test, negated, short } => holds(test).map_or(*short, |passes| passes != *negated),
            Self::Compare(compare) => compare.expanded().holds(holds),
            Self::All(parts) => parts.iter().all(|part| part.holds(holds)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(holds)),
            Self::Choice(parts) => match &parts[..] {
                [condition, then, rest @ ..] => {
                    if condition.holds(holds) {
                        then.holds(holds)
                    } else {
                        Self::Choice(rest.to_vec()).holds(holds)
                    }
                }
                last => last.iter().all(|one| one.holds(holds)),
            },
        }
    }
}

impl Compare {
    /// Tests that come to the same.
    pub(crate) fn expanded(self) -> Expression {
        // `above` has the answer `false` for short packets. The three others follow by its opposites.
        let above = self.above_tests(self.mask, self.bound & self.mask);
        match (self.above, self.short) {
            (true, false) => above,
            (false, false) => above.not_of_long(),
            (true, true) => above.not_of_long().not(),
            (false, true) => above.not(),
        }
    }

    /// Tests for a field above a bound: of some leading bits, then of the others by the same means.
    ///
    /// Where the bound's first bit is 0, any of the leading bits makes the field greater, up to the first that the bound
    /// has. Where it is 1 all of them must be set, as far as the number behind the bound has them.
    fn above_tests(&self, mask: u32, bound: u32) -> Expression {
        let high = bound > mask >> 1;
        let differs = if high { !bound.wrapping_add(1) & mask } else { bound };
        // Bits above the first that differs.
        let leading = match differs {
            0 => mask,
            _ => mask & !(u32::MAX >> differs.leading_zeros()),
        };
        let value = if high { leading } else { 0 };
        let first = Expression::word(self.place, leading << self.shift, value << self.shift);
        let first = if high { first } else { first.not_of_long() };
        let rest = mask & !leading;
        let mut parts = vec![first];
        if bound & rest < rest {
            parts.push(self.above_tests(rest, bound & rest));
        }
        if high { Expression::All(parts) } else { Expression::Any(parts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_those_of_numbers() {
        for mask in [0xFF_u32, 0x0F, 0xF0, 0x55, 0x81] {
            for bound in (0..mask).filter(|bound| bound & !mask == 0) {
                for above in [true, false] {
                    let compare = Compare { place: 0, shift: 8, mask, bound, above, short: false };
                    let tests = compare.expanded();
                    for value in 0..=0xFF_u32 {
                        let word = 0xABCD_00EF | value << 8;
                        let holds = tests.holds(&|test| Some(word & test.mask == test.value));
                        assert_eq!(holds, (value & mask > bound) == above, "{value} {compare:?}");
                    }
                    assert!(!tests.holds(&|_| None), "{compare:?}");
                    assert!(tests.clone().not().holds(&|_| None), "{compare:?}");
                }
            }
        }
    }
}
