//! The numbers for which a condition holds, as intervals.

use super::values::{Domain, largest, number_of};
use crate::field::{FieldId, Kind};
use crate::rule::{Comparison, Match, Value};

/// Numbers from one to another, both included; in order, and without neighbours that touch.
pub(crate) type Intervals = Vec<(u128, u128)>;

/// The bits behind a prefix.
pub(crate) const fn host_mask(length: u8, bits: u16) -> u128 {
    largest(bits) & !prefix_mask(length, bits)
}

/// Whether a field's values are numbers or addresses.
pub(crate) fn is_number(field: FieldId) -> bool {
    Domain::of(field).is_some_and(|domain| domain.bits() > 0)
}

/// The mask of a prefix in the low `bits` bits.
pub(crate) const fn prefix_mask(length: u8, bits: u16) -> u128 {
    let host = bits.saturating_sub(length as u16);
    if host >= 128 { 0 } else { largest(bits) >> host << host }
}

/// The length of a prefix with this mask, if the mask is one of a prefix.
pub(crate) fn prefix_length(mask: u128, bits: u16) -> Option<u8> {
    let length = mask.count_ones() as u8;
    (prefix_mask(length, bits) == mask).then_some(length)
}

/// The numbers for which a match holds; `None` where they are no intervals, or not known.
///
/// The answer is about packets that have the field's layer. For TCP options it is about packets that have the
/// option, and a negation has no answer.
pub(crate) fn of(condition: &Match) -> Option<Intervals> {
    let info = condition.field.info();
    let bits = Domain::of(condition.field)?.bits();
    if bits == 0 {
        return None;
    }
    let Some((comparison, value)) = &condition.test else {
        let is_set = info.kind.is_flag() || matches!(info.kind, Kind::ExtensionHeader(_));
        return is_set.then(|| if condition.is_negated { vec![(0, 0)] } else { vec![(1, 1)] });
    };
    let is_negated = condition.is_negated != (*comparison == Comparison::NotEqual);
    if info.kind.is_option() && (is_negated || info.kind == Kind::AnyOption) {
        return None;
    }
    let last = largest(bits);
    let intervals = match (comparison, value) {
        (Comparison::Equal | Comparison::NotEqual, value) => of_value(value, bits)?,
        (Comparison::Less, Value::Atom(atom)) => match number_of(atom)? {
            0 => Vec::new(),
            number => vec![(0, number - 1)],
        },
        (Comparison::AtMost, Value::Atom(atom)) => vec![(0, number_of(atom)?)],
        (Comparison::Greater, Value::Atom(atom)) => match number_of(atom)? {
            number if number >= last => Vec::new(),
            number => vec![(number + 1, last)],
        },
        (Comparison::AtLeast, Value::Atom(atom)) => vec![(number_of(atom)?, last)],
        _ => return None,
    };
    Some(if is_negated { complement(&intervals, last) } else { intervals })
}

/// The numbers that a value stands for.
fn of_value(value: &Value, bits: u16) -> Option<Intervals> {
    Some(match value {
        Value::Atom(atom) => {
            let number = number_of(atom)?;
            vec![(number, number)]
        }
        Value::Range(low, high) => vec![(number_of(low)?, number_of(high)?)],
        Value::Prefix(atom, length) => {
            let mask = prefix_mask(*length, bits);
            let first = number_of(atom)? & mask;
            vec![(first, first | host_mask(*length, bits))]
        }
        Value::Masked(..) | Value::Named(_) => return None,
        Value::Set(values) => {
            let mut all = Vec::with_capacity(values.len());
            for value in values {
                all.extend(of_value(value, bits)?);
            }
            merged(all)
        }
    })
}

fn merged(mut intervals: Intervals) -> Intervals {
    intervals.sort_unstable();
    let mut merged: Intervals = Vec::with_capacity(intervals.len());
    for (low, high) in intervals {
        match merged.last_mut() {
            Some((_, end)) if low <= end.saturating_add(1) => *end = high.max(*end),
            _ => merged.push((low, high)),
        }
    }
    merged
}

fn complement(intervals: &[(u128, u128)], last: u128) -> Intervals {
    let mut rest = Vec::with_capacity(intervals.len() + 1);
    let mut next = Some(0);
    for &(low, high) in intervals {
        if let Some(first) = next.filter(|&first| first < low) {
            rest.push((first, low - 1));
        }
        next = high.checked_add(1).filter(|&next| next <= last);
    }
    rest.extend(next.map(|first| (first, last)));
    rest
}

/// The numbers of both.
pub(crate) fn intersection(a: &[(u128, u128)], b: &[(u128, u128)]) -> Intervals {
    let mut both = Vec::new();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(&&(a_low, a_high)), Some(&&(b_low, b_high))) = (a.peek(), b.peek()) {
        let (low, high) = (a_low.max(b_low), a_high.min(b_high));
        if low <= high {
            both.push((low, high));
        }
        if a_high < b_high {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

/// Whether all numbers of `inner` are in `outer`.
pub(crate) fn contains(outer: &[(u128, u128)], inner: &[(u128, u128)]) -> bool {
    inner.iter().all(|&(low, high)| {
        let at = outer.partition_point(|&(_, end)| end < low);
        outer.get(at).is_some_and(|&(first, last)| first <= low && high <= last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_of_small_numbers_agree_with_their_intervals(
            a in prop::collection::vec((0u128..32, 0u128..32), 0..6),
            b in prop::collection::vec((0u128..32, 0u128..32), 0..6),
        ) {
            let ordered = |all: Vec<(u128, u128)>| all.into_iter().map(|(x, y)| (x.min(y), x.max(y))).collect();
            let (a, b) = (merged(ordered(a)), merged(ordered(b)));
            let has = |all: &[(u128, u128)], n: u128| all.iter().any(|&(low, high)| low <= n && n <= high);
            let (both, not) = (intersection(&a, &b), complement(&a, 31));
            for n in 0..32 {
                prop_assert_eq!(has(&both, n), has(&a, n) && has(&b, n));
                prop_assert_eq!(has(&not, n), !has(&a, n));
            }
            prop_assert_eq!(contains(&a, &b), (0..32).all(|n| has(&a, n) || !has(&b, n)));
        }
    }

    #[test]
    fn masks_of_prefixes_have_their_lengths() {
        for (length, bits) in [(0, 32), (1, 32), (31, 32), (32, 32), (0, 128), (64, 128), (128, 128)] {
            assert_eq!(prefix_length(prefix_mask(length, bits), bits), Some(length));
        }
        assert_eq!(prefix_mask(8, 32), 0xff00_0000);
        assert_eq!(prefix_length(0xff00_00ff, 32), None);
    }
}
