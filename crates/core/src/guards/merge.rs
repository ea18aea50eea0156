//! Merges rules: fewer of them, with the same effect.

use std::collections::HashMap;

use super::queues::QueueRule;
use super::{Filter, Prefix};

/// A rule before it is merged: ranks, filter, queue.
pub(super) type Ranked = (Vec<u16>, Filter, u16);

/// The most rules of other queues between two that are compared before these count as apart.
const MOST_BETWEEN: usize = 1_024;

/// The fewest rules with the same effect that merging finds.
///
/// Rules that an earlier one covers go, and those that a later one of the same queue covers, and two halves of a
/// prefix become one.
pub(super) fn merged(mut rules: Vec<Ranked>) -> Vec<QueueRule> {
    rules.sort_by(|one, other| one.0.cmp(&other.0));
    let mut list: Vec<QueueRule> =
        rules.into_iter().map(|(_, filter, queue)| QueueRule { filter, queue }).collect();
    list = without_covered(&list);
    loop {
        let before = list.len();
        list = without_covered(&joined(&list));
        if list.len() == before {
            return list;
        }
    }
}

/// Filters by the fields that they have, so that those that cover another one are found by lookups.
///
/// There are about as many kinds of filters as lengths of prefixes.
#[derive(Default)]
pub(super) struct Covers<V> {
    /// A filter of each kind: its values do not matter.
    kinds: Vec<(Filter, HashMap<Filter, V>)>,
    places: HashMap<Filter, usize>,
}

/// The fields of `filter` that `kind` has, with prefixes of its lengths; `None` where it lacks one of them.
fn projected(filter: &Filter, kind: &Filter) -> Option<Filter> {
    fn field<T>(of: Option<T>, kind: bool) -> Option<Option<T>> {
        match (of, kind) {
            (_, false) => Some(None),
            (Some(value), true) => Some(Some(value)),
            (None, true) => None,
        }
    }
    let prefix = |of: Option<Prefix>, kind: Option<Prefix>| match (of, kind) {
        (_, None) => Some(None),
        (Some(of), Some(kind)) if of.version() == kind.version() && kind.bits() <= of.bits() => {
            Some(Some(Prefix::around(of.address(), kind.bits())))
        }
        _ => None,
    };
    Some(Filter {
        ethertype: field(filter.ethertype, kind.ethertype.is_some())?,
        vlan: field(filter.vlan, kind.vlan.is_some())?,
        version: field(filter.version, kind.version.is_some())?,
        protocol: field(filter.protocol, kind.protocol.is_some())?,
        source: prefix(filter.source, kind.source)?,
        destination: prefix(filter.destination, kind.destination)?,
        source_port: field(filter.source_port, kind.source_port.is_some())?,
        destination_port: field(filter.destination_port, kind.destination_port.is_some())?,
    })
}

/// The kind of a filter: it with values that all filters of the kind share.
fn kind(filter: &Filter) -> Filter {
    let zero = |prefix: Prefix| {
        let zero: std::net::IpAddr =
            if prefix.address().is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        Prefix::around(zero, prefix.bits())
    };
    Filter {
        ethertype: filter.ethertype.map(|_| 0),
        vlan: filter.vlan.map(|_| 0),
        version: filter.version.map(|_| netbricks_packet::ip::Version::V4),
        protocol: filter.protocol.map(|_| 0),
        source: filter.source.map(zero),
        destination: filter.destination.map(zero),
        source_port: filter.source_port.map(|_| 0),
        destination_port: filter.destination_port.map(|_| 0),
    }
}

impl<V: Default> Covers<V> {
    /// The value of a filter.
    pub(super) fn entry(&mut self, filter: &Filter) -> &mut V {
        let kind = kind(filter);
        let next = self.kinds.len();
        let place = *self.places.entry(kind).or_insert(next);
        if place == next {
            self.kinds.push((kind, HashMap::new()));
        }
        self.kinds[place].1.entry(*filter).or_default()
    }

    /// The values of the filters that cover this one.
    pub(super) fn of(&self, filter: &Filter) -> impl Iterator<Item = &V> {
        let filter = *filter;
        self.kinds.iter().filter_map(move |(kind, filters)| {
            work::count();
            filters.get(&projected(&filter, kind)?)
        })
    }
}

/// A list of rules, with the place of the next rule of another queue for each.
struct Runs<'r> {
    list: &'r [QueueRule],
    ends: Vec<usize>,
}

impl<'r> Runs<'r> {
    fn of(list: &'r [QueueRule]) -> Self {
        let mut ends = vec![list.len(); list.len()];
        for place in (0..list.len().saturating_sub(1)).rev() {
            let same = list[place].queue == list[place + 1].queue;
            ends[place] = if same { ends[place + 1] } else { place + 1 };
        }
        Self { list, ends }
    }

    /// Whether the rule at `place` may move to the later place `to`.
    ///
    /// That is so if no rule of another queue between them takes packets of it.
    fn may_move(&self, place: usize, to: usize) -> bool {
        let QueueRule { filter, queue } = self.list[place];
        let (mut next, mut compared) = (self.ends[place], 0);
        while next < to {
            if self.list[next].queue == queue {
                next = self.ends[next];
                continue;
            }
            work::count();
            compared += 1;
            if compared > MOST_BETWEEN || self.list[next].filter.and(&filter).is_some() {
                return false;
            }
            next += 1;
        }
        true
    }
}

fn without_covered(list: &[QueueRule]) -> Vec<QueueRule> {
    let runs = Runs::of(list);
    // The places of each filter, by queue.
    let mut places: Covers<Vec<(u16, usize)>> = Covers::default();
    for (place, rule) in list.iter().enumerate() {
        places.entry(&rule.filter).push((rule.queue, place));
    }
    let mut earlier: Covers<()> = Covers::default();
    let mut kept: Vec<QueueRule> = Vec::with_capacity(list.len());
    for (place, rule) in list.iter().enumerate() {
        // Behind the nearest one there are more rules in between.
        let later = || {
            let later = places.of(&rule.filter).flatten().filter(|(queue, _)| *queue == rule.queue);
            later.map(|(_, later)| *later).filter(|later| *later > place).min()
        };
        let is_covered = earlier.of(&rule.filter).next().is_some()
            || later().is_some_and(|later| runs.may_move(place, later));
        if !is_covered {
            earlier.entry(&rule.filter);
            kept.push(*rule);
        }
    }
    kept
}

/// Joins two halves of a prefix that go to one queue.
fn joined(list: &[QueueRule]) -> Vec<QueueRule> {
    let runs = Runs::of(list);
    // The place of a half of each whole, by the side that is halved.
    let mut halves: HashMap<(Filter, bool, u16), usize> = HashMap::new();
    let mut out: Vec<Option<QueueRule>> = list.iter().copied().map(Some).collect();
    for (place, rule) in list.iter().enumerate() {
        for (whole, is_source) in wholes(&rule.filter) {
            let key = (whole, is_source, rule.queue);
            // A half may have become a part of another whole.
            let other = halves.get(&key).copied().filter(|other| {
                out[*other] == Some(list[*other])
                    && list[*other].filter != rule.filter
                    && runs.may_move(*other, place)
            });
            if let Some(other) = other {
                out[other] = None;
                out[place] = Some(QueueRule { filter: whole, queue: rule.queue });
                break;
            }
            halves.insert(key, place);
        }
    }
    out.into_iter().flatten().collect()
}

/// The filters of which this one is a half, each with whether the source is halved.
fn wholes(filter: &Filter) -> impl Iterator<Item = (Filter, bool)> + use<> {
    let wider = |prefix: Option<Prefix>| {
        prefix
            .filter(|prefix| prefix.bits() > 0)
            .map(|prefix| Prefix::around(prefix.address(), prefix.bits() - 1))
    };
    let filter = *filter;
    let to = wider(filter.destination).map(|prefix| (Filter { destination: Some(prefix), ..filter }, false));
    let from = wider(filter.source).map(|prefix| (Filter { source: Some(prefix), ..filter }, true));
    to.into_iter().chain(from)
}

/// Counts comparisons and lookups, so that a test can say how many there are.
pub(super) mod work {
    #[cfg(test)]
    thread_local!(static WORK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

    #[inline(always)]
    pub(in super::super) fn count() {
        #[cfg(test)]
        WORK.set(WORK.get() + 1);
    }

    /// The comparisons and lookups of this thread so far.
    #[cfg(test)]
    pub(in super::super) fn counted() -> u64 {
        WORK.get()
    }
}
