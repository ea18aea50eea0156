//! Conditions as alternatives, each of which is a conjunction of tests: what a table of rules takes.

use super::expression::{Compare, Expression, Test};

/// A test in a conjunction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atom {
    /// Of a word.
    Word {
        /// The test.
        test: Test,
        /// Whether packets pass that do not have the value.
        negated: bool,
        /// Whether packets pass that are too short.
        short: bool,
    },
    /// A comparison of a field whose bits lie side by side.
    Compare(Compare),
}

/// Tests that must all hold.
pub(crate) type Conjunction = Vec<Atom>;

/// The most tests in an alternative.
const LONGEST: usize = 64;

/// The alternatives of a condition; `None` where there are more than `most`, or one has too many tests.
pub(crate) fn alternatives(expression: &Expression, most: usize) -> Option<Vec<Conjunction>> {
    match expression {
        Expression::Word { test, negated, .. } if test.mask == 0 => {
            Some(if *negated { Vec::new() } else { vec![Vec::new()] })
        }
        Expression::Word { test, negated, short } => {
            let atom = if *negated && test.mask.is_power_of_two() {
                // The other value of a single bit.
                Atom::Word {
                    test: Test { value: test.value ^ test.mask, ..*test },
                    negated: false,
                    short: *short,
                }
            } else {
                Atom::Word { test: *test, negated: *negated, short: *short }
            };
            Some(vec![vec![atom]])
        }
        Expression::Compare(compare) => {
            let bits = compare.mask >> compare.mask.trailing_zeros().min(31);
            if bits & bits.wrapping_add(1) == 0 && bits != 0 {
                Some(vec![vec![Atom::Compare(*compare)]])
            } else {
                alternatives(&compare.expanded(), most)
            }
        }
        Expression::Any(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(alternatives(part, most)?);
                if all.len() > most {
                    return None;
                }
            }
            Some(all)
        }
        Expression::All(parts) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                all = product(&all, &alternatives(part, most)?, most)?;
            }
            Some(all)
        }
        Expression::Choice(parts) => choice(parts, most),
    }
}

fn choice(parts: &[Expression], most: usize) -> Option<Vec<Conjunction>> {
    let mut all = Vec::new();
    let mut none_before = vec![Vec::new()];
    for pair in parts.chunks(2) {
        let mut here = product(&none_before, &alternatives(&pair[0], most)?, most)?;
        if let Some(then) = pair.get(1) {
            here = product(&here, &alternatives(then, most)?, most)?;
            let otherwise = alternatives(&pair[0].clone().not(), most)?;
            none_before = product(&none_before, &otherwise, most)?;
        }
        all.extend(here);
        if all.len() > most {
            return None;
        }
    }
    Some(all)
}

/// Each of some conjunctions together with each of others, without those that no packet fulfils.
fn product(some: &[Conjunction], others: &[Conjunction], most: usize) -> Option<Vec<Conjunction>> {
    let mut all: Vec<Conjunction> = Vec::new();
    for one in some {
        for other in others {
            if let Some(both) = joined(one, other) {
                if both.len() > LONGEST || all.len() >= most {
                    return None;
                }
                all.push(both);
            }
        }
    }
    Some(all)
}

/// Two conjunctions together; `None` where they contradict each other.
fn joined(one: &[Atom], other: &[Atom]) -> Option<Conjunction> {
    let mut all = one.to_vec();
    for atom in other {
        if all.contains(atom) {
            continue;
        }
        if all.iter().any(|before| contradict(before, atom)) {
            return None;
        }
        all.push(*atom);
    }
    Some(all)
}

/// Whether two tests are known to exclude each other.
fn contradict(one: &Atom, other: &Atom) -> bool {
    let (
        Atom::Word { test, negated, short: false },
        Atom::Word { test: other, negated: other_negated, short: false },
    ) = (one, other)
    else {
        return false;
    };
    let common = test.mask & other.mask;
    test.place == other.place
        && match (negated, other_negated) {
            (false, false) => (test.value ^ other.value) & common != 0,
            (false, true) => common == other.mask && test.value & common == other.value,
            (true, false) => common == test.mask && other.value & common == test.value,
            (true, true) => false,
        }
}
