//! Rules as conditions on a key vector, for the classifier and for the linear scan.
//!
//! The key is mmb's, cut down to the fields that the list's rules test. The firewall adds three words of its own: the
//! transport protocol, its two ports, and facts such as the connection's state.

use std::collections::BTreeSet;
use std::sync::Arc;

use netbricks_core::PortNames;
use netbricks_core::packet::protocol;
use netbricks_core::tables::classifier::{Condition, Field, Test, ValueSet};
use netbricks_mmb::compile::{CompileError, MOST_ENTRIES, Names, compile, unknown_out};
use netbricks_mmb::field::FieldId;
use netbricks_mmb::key::{Filling, KeyLayout, Located};
use netbricks_mmb::rule::{Atom, Comparison, Match, Value};

use super::rule::{Choice, Rule, RuleList, Sets, Tracking, Version, states};
use super::values;

/// The fact that the packet has ports, beside the bits of [`states`].
pub(super) const HAS_PORTS: u8 = 1 << 5;
/// Intervals of a set of numbers that are written out; more are one test.
const FEW: usize = 4;
/// The most values that one call of mmb's compiler gets.
const MOST_VALUES: usize = MOST_ENTRIES / 2;

/// The names that rules use: sets, and ports of the chain file.
pub(super) struct Known<'l> {
    pub(super) sets: &'l Sets,
    pub(super) ports: &'l PortNames,
}

impl Names for Known<'_> {
    fn set(&self, name: &str) -> Option<&[Value]> {
        self.sets.get(name).map(Vec::as_slice)
    }
    /// Where no ports are known, as in a file that is only checked, every name is that of some port.
    fn port(&self, name: &str) -> Option<u16> {
        if self.ports.names.is_empty() {
            return Some(u16::MAX);
        }
        self.ports.number(name).map(|number| number + 1)
    }
    fn unknown_out(&self) -> Option<String> {
        unknown_out(self.ports)
    }
}

/// The places of a key vector's values.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) keys: KeyLayout,
    protocol: Field,
    ports: [Field; 2],
    facts: Field,
}

/// The values of a packet that the firewall itself puts into the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The transport protocol; 0xff where there is none.
    pub(super) protocol: u8,
    /// Source and destination port, where there are any.
    pub(super) ports: Option<(u16, u16)>,
    /// The state, as one of the bits of [`states`].
    pub(super) state: u8,
}

impl Facts {
    /// The facts of a packet whose headers are found; the state is not among them.
    pub(super) fn of(located: &Located, frame: &[u8]) -> Self {
        let number = located.transport().unwrap_or(0xff);
        let carried = located.carried().and_then(|range| frame.get(range));
        let ports = carried
            .filter(|_| protocol::has_ports(number))
            .and_then(<[u8]>::first_chunk)
            .map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
        Self { protocol: number, ports, state: 0 }
    }
}

impl Layout {
    /// The layout for the fields that these rules test, and no others.
    pub(super) fn of(list: &RuleList) -> Self {
        let mut wanted = BTreeSet::new();
        let mut want = |names: &[&str]| wanted.extend(names.iter().filter_map(|name| FieldId::named(name)));
        for (_, rule) in &list.rules {
            if rule.from.addresses.is_some() || rule.to.addresses.is_some() {
                want(&["ip-saddr", "ip-daddr", "ip6-saddr", "ip6-daddr"]);
            }
            if rule.input.is_some() || rule.output.is_some() {
                want(&["in", "out"]);
            }
            if rule.icmp_type.is_some() {
                want(&["icmp-type", "icmp-code", "icmp6-type", "icmp6-code"]);
            }
            if rule.flags.is_some() {
                want(&["tcp-flags"]);
            }
        }
        for one in list.rules.iter().flat_map(|(_, rule)| &rule.matches) {
            wanted.insert(one.field);
            // A name for a value of another field is a test of that one.
            if let netbricks_mmb::field::Kind::Code { bit, bits, .. } = one.field.info().kind {
                wanted.extend(FieldId::all().find(|id| {
                    let info = id.info();
                    info.layer == one.field.info().layer
                        && info.kind == netbricks_mmb::field::Kind::Bits { bit, bits }
                }));
            }
        }
        let mut keys = KeyLayout::only(|id| wanted.contains(&id));
        let protocol = keys.add(8);
        let ports = [keys.add(16), keys.add(16)];
        let facts = keys.add(8);
        Self { keys, protocol, ports, facts }
    }

    /// Words of a key vector.
    pub(super) fn words(&self) -> usize {
        self.keys.layout().words()
    }

    /// Fills a key vector.
    pub(super) fn fill(
        &self,
        filling: &Filling,
        frame: &[u8],
        located: &Located,
        facts: &Facts,
        interfaces: (u16, u16),
        key: &mut [u32],
    ) {
        filling.fill(&self.keys, frame, located, interfaces, key);
        self.protocol.put(key, facts.protocol.into());
        let (from, to) = facts.ports.unwrap_or((0, 0));
        self.ports[0].put(key, from.into());
        self.ports[1].put(key, to.into());
        self.set_state(key, facts, facts.state);
    }

    /// Writes another state into a key vector that is filled.
    pub(super) fn set_state(&self, key: &mut [u32], facts: &Facts, state: u8) {
        let bits = if facts.ports.is_some() { state | HAS_PORTS } else { state };
        self.facts.put(key, bits.into());
    }
}

/// A rule's conditions: conjunctions, of which one holds for its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Compiled {
    pub(super) entries: Vec<Vec<Condition>>,
    pub(super) fields: BTreeSet<FieldId>,
    pub(super) options: bool,
    pub(super) extensions: bool,
}

/// Compiles a rule. `asks_state` where some rule of the list asks for states, so that all have to say theirs.
///
/// # Errors
/// When a name is not known, or there are too many combinations of values.
pub(super) fn compile_rule(
    layout: &Layout,
    rule: &Rule,
    tracking: Tracking,
    asks_state: bool,
    names: &Known<'_>,
) -> Result<Compiled, CompileError> {
    let mut always: Vec<Vec<Condition>> = vec![Vec::new()];
    if let Some(choice) = &rule.protocol {
        let numbers = intervals(choice, names)?;
        always = product(&always, &tests(layout.protocol, &numbers, choice.is_negated, 0xff))?;
    }
    for (place, end) in layout.ports.into_iter().zip([&rule.from, &rule.to]) {
        let Some(choice) = &end.ports else { continue };
        let numbers = intervals(choice, names)?;
        always = product(&always, &tests(place, &numbers, choice.is_negated, 0xffff))?;
        // A packet without ports has zeros there.
        if choice.is_negated || numbers.iter().any(|(low, _)| *low == 0) {
            let there = u128::from(HAS_PORTS);
            always = product(&always, &[vec![masked(layout.facts, there, there)]])?;
        }
    }
    if asks_state && let Some(bits) = asked_states(rule, tracking) {
        // Any of these bits: not none of them.
        let none = masked(layout.facts, 0, bits.into());
        always = product(&always, &[vec![Condition { negated: true, ..none }]])?;
    }
    let mut compiled = Compiled::default();
    let others = other_matches(rule);
    for addresses in by_version(rule, names)? {
        let matches: Vec<Match> = others.iter().cloned().chain(addresses).collect();
        let conditions = compile(&layout.keys, &matches, names)?;
        compiled.fields.extend(conditions.fields);
        compiled.options |= conditions.options;
        compiled.extensions |= conditions.extensions;
        let entries = product(&conditions.entries, &always)?;
        compiled.entries.extend(entries);
    }
    Ok(compiled)
}

/// The states that a rule is about; `None` where it is about all.
pub(super) fn asked_states(rule: &Rule, tracking: Tracking) -> Option<u8> {
    match (rule.states, tracking) {
        (_, Tracking::Off) | (0, Tracking::Explicit) => None,
        (0, Tracking::Automatic) => Some(states::NEW | states::UNTRACKED),
        (bits, _) => Some(bits),
    }
}

/// The matches of a rule beside its addresses, in mmb's language.
fn other_matches(rule: &Rule) -> Vec<Match> {
    let mut matches = rule.matches.clone();
    let mut of = |field: &str, choice: &Choice| matches.extend(matching(field, choice));
    if let Some(choice) = &rule.input {
        of("in", choice);
    }
    if let Some(choice) = &rule.output {
        of("out", choice);
    }
    let is_v6 = rule.protocol.as_ref().is_some_and(|choice| {
        choice.values.first().and_then(values::as_number) == Some(protocol::ICMPV6.into())
    });
    let [kind, code] = if is_v6 { ["icmp6-type", "icmp6-code"] } else { ["icmp-type", "icmp-code"] };
    if let Some(choice) = &rule.icmp_type {
        of(kind, choice);
    }
    if let Some(choice) = &rule.icmp_code {
        of(code, choice);
    }
    if let (Some(test), Some(field)) = (rule.flags, FieldId::named("tcp-flags")) {
        let value = Value::Masked(Atom::Number(test.set.into()), Atom::Number(test.mask.into()));
        matches.push(Match {
            is_negated: test.is_negated,
            field,
            test: Some((Comparison::Equal, value)),
            span: 0..0,
        });
    }
    matches
}

fn matching(field: &str, choice: &Choice) -> Option<Match> {
    let test = Some((Comparison::Equal, Value::Set(choice.values.clone())));
    Some(Match { is_negated: choice.is_negated, field: FieldId::named(field)?, test, span: 0..0 })
}

/// The matches of a rule's addresses, by version of IP: of the lists, one holds.
///
/// A rule that says nothing of addresses or versions has one list without a match.
fn by_version(rule: &Rule, names: &Known<'_>) -> Result<Vec<Vec<Match>>, CompileError> {
    let ends = [&rule.from, &rule.to].map(|end| end.addresses.as_ref());
    if ends == [None, None] && rule.version.is_none() {
        return Ok(vec![Vec::new()]);
    }
    let mut lists = Vec::new();
    for (version, fields) in
        [(Version::V4, ["ip-saddr", "ip-daddr"]), (Version::V6, ["ip6-saddr", "ip6-daddr"])]
    {
        if rule.version.is_some_and(|wanted| wanted != version) {
            continue;
        }
        let mut of_version: Vec<Vec<Match>> = vec![version_match(version).into_iter().collect()];
        for (field, choice) in fields.into_iter().zip(ends) {
            let Some(choice) = choice else { continue };
            let all = resolved(choice, names)?;
            let own: Vec<Value> =
                all.into_iter().filter(|value| values::version_of(value) == Some(version)).collect();
            let parts: Vec<Vec<Value>> = match (own.is_empty(), choice.is_negated) {
                // None of the addresses is of this version, so that none of its packets has one.
                (true, true) => continue,
                (true, false) => Vec::new(),
                (false, true) => vec![own],
                (false, false) => own.chunks(MOST_VALUES).map(<[Value]>::to_vec).collect(),
            };
            of_version = of_version
                .iter()
                .flat_map(|list| {
                    parts.iter().map(move |part| {
                        let choice = Choice { values: part.clone(), ..choice.clone() };
                        list.iter().cloned().chain(matching(field, &choice)).collect()
                    })
                })
                .collect();
        }
        lists.extend(of_version);
    }
    Ok(lists)
}

/// A match for all packets of a version.
///
/// Without a value, a field of a header means that the header is there.
fn version_match(version: Version) -> Option<Match> {
    let field = if version == Version::V4 { "ip-ttl" } else { "ip6-hop-limit" };
    Some(Match { is_negated: false, field: FieldId::named(field)?, test: None, span: 0..0 })
}

/// A choice's values, with those of the sets that it names.
fn resolved(choice: &Choice, names: &Known<'_>) -> Result<Vec<Value>, CompileError> {
    let mut all = Vec::with_capacity(choice.values.len());
    for value in &choice.values {
        match value {
            Value::Named(name) => {
                all.extend_from_slice(names.set(name).ok_or_else(|| CompileError::NoSet(name.clone()))?);
            }
            value => all.push(value.clone()),
        }
    }
    Ok(all)
}

/// A choice's numbers as intervals that neither overlap nor touch.
fn intervals(choice: &Choice, names: &Known<'_>) -> Result<Vec<(u128, u128)>, CompileError> {
    let all = resolved(choice, names)?;
    let set = ValueSet::new(all.iter().filter_map(values::as_interval));
    Ok(set.intervals().to_vec())
}

/// Tests of which one holds where the field is in one of these intervals, or in none of them.
fn tests(place: Field, intervals: &[(u128, u128)], is_negated: bool, most: u128) -> Vec<Vec<Condition>> {
    let one = |&(low, high): &(u128, u128)| {
        if low == high {
            masked(place, low, most)
        } else {
            Condition { field: place, test: Test::Range { low, high }, negated: false }
        }
    };
    if intervals.len() > FEW {
        let set = Arc::new(ValueSet::new(intervals.iter().copied()));
        return vec![vec![Condition { field: place, test: Test::Within(set), negated: is_negated }]];
    }
    let all = intervals.iter().map(one);
    if is_negated {
        vec![all.map(|condition| Condition { negated: true, ..condition }).collect()]
    } else {
        all.map(|condition| vec![condition]).collect()
    }
}

fn masked(field: Field, value: u128, mask: u128) -> Condition {
    Condition { field, test: Test::Masked { value, mask }, negated: false }
}

fn product(left: &[Vec<Condition>], right: &[Vec<Condition>]) -> Result<Vec<Vec<Condition>>, CompileError> {
    let count = left.len().saturating_mul(right.len());
    if count > MOST_ENTRIES * 4 {
        return Err(CompileError::TooMany(count));
    }
    let both = |one: &Vec<Condition>, other: &Vec<Condition>| one.iter().chain(other).cloned().collect();
    Ok(left.iter().flat_map(|one| right.iter().map(move |other| both(one, other))).collect())
}
