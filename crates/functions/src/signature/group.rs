//! Groups of rules by ports, each with what finds the bytes by which its rules are looked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use aho_corasick::automaton::Automaton as _;
pub(super) use aho_corasick::automaton::StateID;
use aho_corasick::{Anchored, MatchKind, StartKind, dfa};

use super::filter::{BLOCK, Filter};
use super::language::Ports;
use super::set::Signature;

/// The rules that concern packets of some ports.
#[derive(Default)]
pub(super) struct Group {
    /// Find literals of [`LONG`] bytes or more, and of four or more.
    long: Option<Filter>,
    medium: Option<Filter>,
    /// Finds shorter ones.
    short: Option<Automaton>,
    /// Rules without bytes to look for: each packet is evaluated.
    pub(super) always: Box<[u32]>,
}

/// The fewest bytes of literals that are looked for at every few positions only.
const LONG: usize = 8;

/// An automaton of literals, with a table for every state.
struct Automaton {
    states: dfa::DFA,
    /// Of each literal, the rules that are looked for by it.
    rules: Vec<Box<[u32]>>,
}

impl Group {
    fn new(rules: &[(u32, &Signature)]) -> Self {
        let mut literals: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        let mut always = Vec::new();
        for (place, signature) in rules {
            if signature.fast.is_empty() {
                always.push(*place);
            } else {
                literals.entry(&signature.fast).or_default().push(*place);
            }
        }
        let (long, rest): (Vec<_>, Vec<_>) = literals.into_iter().partition(|(bytes, _)| bytes.len() >= LONG);
        let (medium, short): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(bytes, _)| bytes.len() >= BLOCK);
        let filter = |literals: Vec<(&[u8], Vec<u32>)>| {
            (!literals.is_empty()).then(|| Filter::new(literals.into_iter()))
        };
        let (long, medium) = (filter(long), filter(medium));
        let short = if short.is_empty() {
            None
        } else {
            let mut builder = dfa::Builder::new();
            builder
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(true)
                .start_kind(StartKind::Unanchored);
            let states = builder.prefilter(false).build(short.iter().map(|(bytes, _)| bytes)).ok();
            if states.is_none() {
                // Nothing is lost without an automaton but time.
                always.extend(short.iter().flat_map(|(_, rules)| rules));
            }
            states.map(|states| Automaton {
                states,
                rules: short.into_iter().map(|(_, rules)| rules.into()).collect(),
            })
        };
        Self { long, medium, short, always: always.into() }
    }

    /// Whether it has no rule.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.long.is_none() && self.medium.is_none() && self.short.is_none() && self.always.is_empty()
    }

    /// The automaton's state before the first byte.
    #[inline]
    pub(super) fn start(&self) -> StateID {
        let start = |short: &Automaton| short.states.start_state(Anchored::No).ok();
        self.short.as_ref().and_then(start).unwrap_or_default()
    }

    /// Bytes before others that literals in the others may begin in.
    pub(super) fn reach(&self) -> usize {
        [&self.long, &self.medium].into_iter().flatten().map(Filter::reach).max().unwrap_or(0)
    }

    /// Reads data behind its first `known` bytes, from a state of this group on; answers the state behind them.
    ///
    /// `hit` gets each rule whose literal ends there, the place behind it, and its length.
    #[inline]
    pub(super) fn scan(
        &self,
        state: StateID,
        data: &[u8],
        known: usize,
        mut hit: impl FnMut(u32, usize, usize),
    ) -> StateID {
        for filter in [&self.long, &self.medium].into_iter().flatten() {
            filter.scan(data, known, &mut hit);
        }
        match &self.short {
            Some(short) => short.run(state, data, known, hit),
            None => state,
        }
    }

    fn memory(&self) -> usize {
        [&self.long, &self.medium].into_iter().flatten().map(Filter::memory).sum::<usize>()
            + self.short.as_ref().map_or(0, |short| short.states.memory_usage())
    }
}

impl Automaton {
    #[inline]
    fn run(
        &self,
        mut state: StateID,
        data: &[u8],
        known: usize,
        mut hit: impl FnMut(u32, usize, usize),
    ) -> StateID {
        for (at, byte) in data.iter().enumerate().skip(known) {
            state = self.states.next_state(Anchored::No, state, *byte);
            if self.states.is_special(state) && self.states.is_match(state) {
                for number in 0..self.states.match_len(state) {
                    let literal = self.states.match_pattern(state, number);
                    let len = self.states.pattern_len(literal);
                    self.rules[literal.as_usize()].iter().for_each(|rule| hit(*rule, at + 1, len));
                }
            }
        }
        state
    }
}

/// Groups by the source and the destination port.
pub(super) struct Index {
    sources: Box<[u8]>,
    destinations: Box<[u8]>,
    /// By the class of the source port, then by that of the destination port.
    groups: Vec<Arc<Group>>,
    /// Classes of destination ports.
    columns: usize,
}

/// The most groups.
const MOST_GROUPS: usize = 64;
/// The most bytes of patterns in all groups, where there are several.
const MOST_BYTES: usize = 4 << 20;
const PORTS: usize = 1 << 16;

/// Ports that are alike to all rules have one class.
struct Classes {
    by_port: Box<[u8]>,
    count: usize,
    /// A port of each class.
    examples: Vec<u16>,
}

impl Classes {
    fn one() -> Self {
        Self { by_port: Box::new([]), count: 1, examples: vec![0] }
    }

    /// The classes that these sets of ports make; `None` where there are too many.
    fn of<'p>(sets: impl Iterator<Item = &'p Ports>) -> Option<Self> {
        let mut different: Vec<&Ports> = sets.filter(|ports| !ports.is_any()).collect();
        different.sort_unstable();
        different.dedup();
        // Where the sets' ranges begin and end, ports may differ; between these places they do not.
        let mut borders: Vec<u32> = vec![0];
        for (first, last) in different.iter().flat_map(|ports| ports.ranges()) {
            borders.extend([u32::from(*first), u32::from(*last) + 1]);
        }
        borders.sort_unstable();
        borders.dedup();
        let mut known: BTreeMap<Vec<bool>, u8> = BTreeMap::new();
        let mut by_port = vec![0; PORTS].into_boxed_slice();
        let mut examples = Vec::new();
        for (at, from) in borders.iter().enumerate().filter(|(_, from)| **from < PORTS as u32) {
            let until = borders.get(at + 1).map_or(PORTS, |until| *until as usize);
            let member: Vec<bool> = different.iter().map(|ports| ports.holds(*from as u16)).collect();
            let next = known.len();
            if next >= MOST_GROUPS && !known.contains_key(&member) {
                return None;
            }
            let class = *known.entry(member).or_insert(next as u8);
            if usize::from(class) == examples.len() {
                examples.push(*from as u16);
            }
            by_port[*from as usize..until].fill(class);
        }
        Some(Self { by_port, count: examples.len(), examples })
    }
}

impl Index {
    pub(super) fn new<'s>(rules: impl Iterator<Item = (u32, &'s Signature)>) -> Self {
        let rules: Vec<(u32, &Signature)> = rules.collect();
        // Rules about both directions are in all groups; addresses and ports are compared afterwards anyway.
        let one_way = || rules.iter().map(|(_, signature)| &signature.header).filter(|header| !header.both);
        let sources = Classes::of(one_way().map(|header| &header.source_ports));
        let destinations = Classes::of(one_way().map(|header| &header.destination_ports));
        let mut tries = Vec::new();
        if let (Some(sources), Some(destinations)) =
            (sources, Classes::of(one_way().map(|header| &header.destination_ports)))
        {
            tries.push((sources, destinations));
        }
        tries.extend(destinations.map(|destinations| (Classes::one(), destinations)));
        let made = tries
            .into_iter()
            .find_map(|(sources, destinations)| Self::grouped(&rules, sources, destinations));
        made.unwrap_or_else(|| Self {
            sources: Box::new([]),
            destinations: Box::new([]),
            groups: vec![Arc::new(Group::new(&rules))],
            columns: 1,
        })
    }

    fn grouped(rules: &[(u32, &Signature)], sources: Classes, destinations: Classes) -> Option<Self> {
        if sources.count * destinations.count > MOST_GROUPS {
            return None;
        }
        let mut made: BTreeMap<Vec<u32>, Arc<Group>> = BTreeMap::new();
        let (mut groups, mut bytes) = (Vec::new(), 0);
        for source in &sources.examples {
            for destination in &destinations.examples {
                let here: Vec<(u32, &Signature)> = rules
                    .iter()
                    .filter(|(_, Signature { header, .. })| {
                        let is_source = sources.count == 1 || header.source_ports.holds(*source);
                        let is_destination =
                            destinations.count == 1 || header.destination_ports.holds(*destination);
                        header.both || !header.protocol.has_ports() || is_source && is_destination
                    })
                    .copied()
                    .collect();
                let numbers: Vec<u32> = here.iter().map(|(place, _)| *place).collect();
                let group = made.entry(numbers).or_insert_with(|| {
                    bytes += here.iter().map(|(_, signature)| signature.fast.len()).sum::<usize>();
                    Arc::new(if bytes > MOST_BYTES { Group::default() } else { Group::new(&here) })
                });
                groups.push(group.clone());
            }
        }
        let fits = bytes <= MOST_BYTES || groups.len() == 1;
        fits.then(|| Self {
            sources: if sources.count == 1 { Box::new([]) } else { sources.by_port },
            columns: destinations.count,
            destinations: if destinations.count == 1 { Box::new([]) } else { destinations.by_port },
            groups,
        })
    }

    /// The group for packets from and to these ports.
    #[inline]
    pub(super) fn get(&self, (source, destination): (u16, u16)) -> &Group {
        let class =
            |classes: &[u8], port: u16| usize::from(classes.get(usize::from(port)).copied().unwrap_or(0));
        &self.groups[class(&self.sources, source) * self.columns + class(&self.destinations, destination)]
    }

    /// The number of different groups.
    pub(super) fn groups(&self) -> usize {
        let mut all: Vec<_> = self.groups.iter().map(Arc::as_ptr).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    pub(super) fn memory(&self) -> usize {
        let mut all: Vec<_> = self.groups.iter().collect();
        all.sort_unstable_by_key(|group| Arc::as_ptr(group));
        all.dedup_by_key(|group| Arc::as_ptr(group));
        all.iter().map(|group| group.memory()).sum()
    }
}
