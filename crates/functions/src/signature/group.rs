//! Groups of rules by ports, each with what finds the bytes by which its rules are looked for.

use std::collections::BTreeMap;
use std::hint::cold_path;

use aho_corasick::automaton::Automaton as _;
pub(super) use aho_corasick::automaton::StateID;
use aho_corasick::{Anchored, MatchKind, StartKind, dfa};
use netbricks_core::Counter;

use super::config::SearchEngine;
use super::filter::{BLOCK, Filter};
use super::language::Ports;
use super::library::{Database, Scratch};
use super::set::{RuleSet, Signature};

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
    /// All these literals once more, where the settings choose the library.
    library: Option<Database>,
}

/// A worker's part in searches.
pub(super) struct Searcher {
    /// The library's memory for the present rules.
    scratch: Scratch,
    /// Searches that the library did not end, and the default engine did.
    unfinished: Counter,
}

impl Searcher {
    /// A part in searches by the default engine.
    pub(super) fn new(unfinished: Counter) -> Self {
        Self { scratch: Scratch::default(), unfinished }
    }

    /// Makes the memory fit a set of rules. Without memory the default engine searches.
    ///
    /// # Errors
    /// The library's reason for giving no memory.
    pub(super) fn fit(&mut self, set: &RuleSet) -> Result<(), String> {
        self.scratch = Scratch::default();
        self.scratch = Scratch::of(set.databases())?;
        Ok(())
    }
}

/// Rules in the order in which they count, each with its place.
type Rules<'s> = [(u32, &'s Signature)];
/// The rules of each group.
type Members<'s> = Vec<Vec<(u32, &'s Signature)>>;
/// Literals of rules that the library refused: the first rule, and the reason.
pub(super) type Refused = (u32, String);

/// The fewest bytes of literals that are looked for at every few positions only.
const LONG: usize = 8;

/// An automaton of literals, with a table for every state.
struct Automaton {
    states: dfa::DFA,
    /// Of each literal, the rules that are looked for by it.
    rules: Vec<Box<[u32]>>,
}

impl Group {
    fn new(rules: &Rules<'_>) -> Self {
        let literals = literals(rules);
        let without = rules.iter().filter(|(_, signature)| signature.fast.is_empty());
        let mut always: Vec<u32> = without.map(|(place, _)| *place).collect();
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
        Self { long, medium, short, always: always.into(), library: None }
    }

    /// Compiles the literals of these rules, which are this group's, for the library.
    fn compile(&mut self, rules: &Rules<'_>) -> Result<(), Refused> {
        let mut literals = literals(rules);
        // Without an automaton, rules of short literals are evaluated always.
        literals.retain(|bytes, _| bytes.len() >= BLOCK || self.short.is_some());
        let Some(first) = literals.values().flatten().min().copied() else { return Ok(()) };
        let compiled = Database::new(literals).map_err(|problem| (first, problem))?;
        self.library = Some(compiled);
        Ok(())
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

    /// The automaton's state behind these bytes.
    pub(super) fn state_behind(&self, bytes: &[u8]) -> StateID {
        match &self.short {
            Some(short) if self.library.is_none() => short.run(self.start(), bytes, 0, |_, _, _| ()),
            _ => self.start(),
        }
    }

    /// Bytes before others that literals in the others may begin in.
    pub(super) fn reach(&self) -> usize {
        // The automaton's state knows short literals that have begun; the library begins each search afresh.
        let short = if self.library.is_some() && self.short.is_some() { BLOCK - 2 } else { 0 };
        [&self.long, &self.medium].into_iter().flatten().map(Filter::reach).max().unwrap_or(0).max(short)
    }

    /// Reads data behind its first `known` bytes, from a state of this group on; answers the state behind them.
    ///
    /// `hit` gets each rule whose literal ends there, the place behind it, and its length. It must not panic, and may get
    /// a rule again.
    #[inline]
    pub(super) fn scan(
        &self,
        searcher: &Searcher,
        state: StateID,
        data: &[u8],
        known: usize,
        mut hit: impl FnMut(u32, usize, usize),
    ) -> StateID {
        let Some(database) = &self.library else { return self.search(state, data, known, hit) };
        if database.scan(&searcher.scratch, data, known, &mut hit).is_err() {
            cold_path();
            searcher.unfinished.add(1);
            // No state is kept beside the library, so that short literals are looked for from the first byte on.
            self.search(self.start(), data, 0, |rule, end, len| {
                if end > known {
                    hit(rule, end, len);
                }
            });
        }
        state
    }

    /// As [`scan`](Self::scan), by the default engine.
    #[inline]
    fn search(
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
            + self.library.as_ref().map_or(0, Database::memory)
    }
}

/// The literals by which rules are looked for, with the rules of each.
fn literals<'s>(rules: &Rules<'s>) -> BTreeMap<&'s [u8], Vec<u32>> {
    let mut literals: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
    for (place, signature) in rules.iter().filter(|(_, signature)| !signature.fast.is_empty()) {
        literals.entry(&signature.fast).or_default().push(*place);
    }
    literals
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
    /// By the class of the source port, then by that of the destination port: the place of the group.
    places: Vec<u8>,
    groups: Vec<Group>,
    /// Classes of destination ports.
    columns: usize,
}

/// The most groups.
const MOST_GROUPS: usize = 64;
const _: () = assert!(MOST_GROUPS <= u8::MAX as usize);
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
    /// Groups these rules, and compiles them for the engine.
    ///
    /// # Errors
    /// Literals that the engine refuses.
    pub(super) fn new<'s>(
        rules: impl Iterator<Item = (u32, &'s Signature)>,
        engine: SearchEngine,
    ) -> Result<Self, Refused> {
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
        let (mut index, members) = made.unwrap_or_else(|| {
            let index = Self {
                sources: Box::new([]),
                destinations: Box::new([]),
                places: vec![0],
                groups: vec![Group::new(&rules)],
                columns: 1,
            };
            (index, vec![rules.clone()])
        });
        if engine == SearchEngine::Hyperscan {
            for (group, members) in index.groups.iter_mut().zip(&members) {
                group.compile(members)?;
            }
        }
        Ok(index)
    }

    /// Groups by these classes of ports, with the rules of each group; `None` where that is too much.
    fn grouped<'s>(
        rules: &Rules<'s>,
        sources: Classes,
        destinations: Classes,
    ) -> Option<(Self, Members<'s>)> {
        if sources.count * destinations.count > MOST_GROUPS {
            return None;
        }
        let several = sources.count * destinations.count > 1;
        let mut made: BTreeMap<Vec<u32>, u8> = BTreeMap::new();
        let (mut places, mut groups, mut members, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
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
                let place = made.entry(numbers).or_insert_with(|| {
                    bytes += here.iter().map(|(_, signature)| signature.fast.len()).sum::<usize>();
                    let group =
                        if several && bytes > MOST_BYTES { Group::default() } else { Group::new(&here) };
                    groups.push(group);
                    members.push(here);
                    groups.len() as u8 - 1
                });
                places.push(*place);
            }
        }
        if several && bytes > MOST_BYTES {
            return None;
        }
        let index = Self {
            sources: if sources.count == 1 { Box::new([]) } else { sources.by_port },
            columns: destinations.count,
            destinations: if destinations.count == 1 { Box::new([]) } else { destinations.by_port },
            places,
            groups,
        };
        Some((index, members))
    }

    /// The group for packets from and to these ports.
    #[inline]
    pub(super) fn get(&self, (source, destination): (u16, u16)) -> &Group {
        let class =
            |classes: &[u8], port: u16| usize::from(classes.get(usize::from(port)).copied().unwrap_or(0));
        let place =
            self.places[class(&self.sources, source) * self.columns + class(&self.destinations, destination)];
        &self.groups[usize::from(place)]
    }

    /// The number of different groups.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.groups.iter().map(Group::memory).sum()
    }

    /// The databases by which the library searches.
    pub(super) fn databases(&self) -> impl Iterator<Item = &Database> {
        self.groups.iter().filter_map(|group| group.library.as_ref())
    }

    /// As [`databases`](Self::databases), to be changed.
    pub(super) fn databases_mut(&mut self) -> impl Iterator<Item = &mut Database> {
        self.groups.iter_mut().filter_map(|group| group.library.as_mut())
    }
}
