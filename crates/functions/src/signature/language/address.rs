//! Sets of addresses: `any`, `10.0.0.0/8`, `[10.0.0.0/8,!10.1.0.0/16]`, `$HOME_NET`, ranges `10.0.0.1-10.0.0.9`.

use std::net::IpAddr;

use super::variables::{Kind, Term, Variables};
use super::{Reading, shown, wrong};

/// A set of addresses, as ranges in order that do not touch; `None` is every address.
///
/// An IPv4 address is a number of its own kind, and is in no range of IPv6 addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(in super::super) struct Addresses(Option<Box<[Range]>>);

/// Whether its addresses are IPv6, and the first and the last one.
type Range = (bool, u128, u128);

/// All addresses of both kinds.
const ALL: [Range; 2] = [(false, 0, u32::MAX as u128), (true, 0, u128::MAX)];

fn number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u128::from(address.to_bits())),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

impl Addresses {
    pub(super) fn read(text: &str, at: usize, variables: &Variables) -> Reading<Self> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        variables.terms(text, at, Kind::Addresses, &mut |Term { at, negated, text }| {
            let ranges = if negated { &mut without } else { &mut with };
            if text == "any" {
                ranges.extend(ALL);
            } else {
                ranges.push(range(text, at)?);
            }
            Ok(())
        })?;
        if with.is_empty() {
            with.extend(ALL);
        }
        let left = subtract(merged(with), &merged(without));
        match &left[..] {
            [] => wrong(at, "holds no address: nothing is left of it"),
            all if *all == ALL => Ok(Self(None)),
            _ => Ok(Self(Some(left.into()))),
        }
    }

    #[inline]
    pub(in super::super) fn holds(&self, address: IpAddr) -> bool {
        let Some(ranges) = &self.0 else { return true };
        let (is_v6, number) = number(address);
        let at = ranges.partition_point(|(v6, _, last)| (*v6, *last) < (is_v6, number));
        ranges.get(at).is_some_and(|(v6, first, _)| *v6 == is_v6 && *first <= number)
    }
}

fn range(text: &str, at: usize) -> Reading<Range> {
    let expected = || {
        let example = "an address, a prefix `10.0.0.0/8` or a range `10.0.0.1-10.0.0.9`";
        wrong(at, format!("expected {example}, found `{}`", shown(text)))
    };
    if let Some((first, last)) = text.split_once('-') {
        let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse()) else { return expected() };
        let ((v6, first), (also, last)) = (number(first), number(last));
        if v6 != also || first > last {
            return wrong(at, format!("a range that ends before it begins: `{}`", shown(text)));
        }
        return Ok((v6, first, last));
    }
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let Ok(address) = address.parse::<IpAddr>() else { return expected() };
    let (v6, value) = number(address);
    let bits = if v6 { 128 } else { 32 };
    let Some(len) = len.map_or(Some(bits), |len| len.parse::<u32>().ok().filter(|len| *len <= bits)) else {
        return wrong(at, format!("expected a prefix length of 0 to {bits} in `{}`", shown(text)));
    };
    let host = if len == bits { 0 } else { u128::MAX >> (128 - (bits - len)) };
    Ok((v6, value & !host, value | host))
}

fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut all: Vec<Range> = Vec::with_capacity(ranges.len());
    for (v6, first, last) in ranges {
        match all.last_mut() {
            Some(before) if before.0 == v6 && first <= before.2.saturating_add(1) => {
                before.2 = before.2.max(last)
            }
            _ => all.push((v6, first, last)),
        }
    }
    all
}

fn subtract(from: Vec<Range>, what: &[Range]) -> Vec<Range> {
    let mut left = from;
    for (v6, first, last) in what {
        left = left
            .into_iter()
            .flat_map(|(kind, begin, end)| {
                if kind != *v6 || end < *first || begin > *last {
                    return [Some((kind, begin, end)), None];
                }
                let before = (begin < *first).then(|| (kind, begin, *first - 1));
                let behind = (end > *last).then(|| (kind, *last + 1, end));
                [before, behind]
            })
            .flatten()
            .collect();
    }
    left
}
