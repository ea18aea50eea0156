//! Warnings about rules that are allowed and probably not meant.
//!
//! A rule is shadowed where an earlier rule drops or accepts every packet that it means. The test of two rules,
//! [`covers`], compares field by field; it never errs when it answers yes. [`Linter`] finds the earlier rules by
//! the masked values of their fields, so that a rule costs a bounded number of comparisons.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::field::{Kind, Layer};
use crate::language::{extent, number_of};
use crate::rule::{Atom, Comparison, Match, Rule, Target, Value};

/// A warning about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lint {
    /// Bits behind a prefix or outside of a mask were set. They are not compared.
    HostBits {
        /// The byte of the line behind the value.
        end: usize,
        /// The value as it was written.
        written: String,
        /// The value without those bits.
        cleared: String,
    },
    /// An earlier rule drops or accepts all packets of this one.
    Shadowed {
        /// The earlier rule.
        by: String,
    },
    /// An earlier rule means the same packets and decides otherwise.
    Contradictory {
        /// The earlier rule.
        with: String,
    },
    /// A stateless rule writes an address or a port, and answers stay as they are.
    OneWay {
        /// The field's name.
        field: String,
    },
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostBits { written, cleared, .. } => {
                write!(f, "`{written}` has bits that its mask leaves out: it is read as `{cleared}`")
            }
            Self::Shadowed { by } => {
                write!(
                    f,
                    "the rule never applies: {by} decides about all its packets; move it before, or remove it"
                )
            }
            Self::Contradictory { with } => {
                write!(f, "the rule never applies: {with} has the same matches and the opposite verdict")
            }
            Self::OneWay { field } => {
                write!(
                    f,
                    "`mod {field}` changes one direction only: for answers, write `map {field}` by `add-stateful`"
                )
            }
        }
    }
}

/// The warning about a stateless rule that writes an address or a port.
pub fn one_way(rule: &Rule) -> Option<Lint> {
    if rule.is_stateful {
        return None;
    }
    let written = rule.targets.iter().find_map(|target| match target {
        Target::Mod(field, _) if is_end_of_flow(&field.info().name) => Some(field),
        _ => None,
    })?;
    Some(Lint::OneWay { field: written.info().name.clone() })
}

fn is_end_of_flow(name: &str) -> bool {
    let name = name.strip_prefix("ip6-").or_else(|| name.strip_prefix("ip-")).map_or(name, |rest| rest);
    matches!(name, "saddr" | "daddr" | "tcp-sport" | "tcp-dport" | "udp-sport" | "udp-dport")
}

/// The warnings about one of many rules. Rules that apply before it stand before it.
///
/// It looks at all of those. For many rules, [`lint_all`] and [`Linter`] are quicker.
pub fn lint(rules: &[(&str, &Rule)], new: usize) -> Vec<Lint> {
    let Some((_, rule)) = rules.get(new) else { return Vec::new() };
    let mut lints: Vec<Lint> = one_way(rule).into_iter().collect();
    let facts = Constraints::of(rule);
    let mut earlier = rules.get(..new).unwrap_or_default().iter();
    let found = earlier.find(|(_, earlier)| verdict(earlier).is_some() && covers_with(earlier, rule, &facts));
    if let Some((name, earlier)) = found {
        lints.push(shadow(rule, earlier, name));
    }
    lints
}

/// The warnings about all of these rules, in the order in which they apply, each with the rule's index.
///
/// A rule costs at most [`Linter::MOST_PROBES`] look-ups, and [`Linter::MOST_IN_BUCKET`] comparisons for each.
pub fn lint_all(rules: &[(&str, &Rule)]) -> Vec<(usize, Lint)> {
    let mut linter = Linter::default();
    let mut lints = Vec::new();
    for (at, (_, rule)) in rules.iter().enumerate() {
        let earlier = |id: u32| rules.get(id as usize).map(|(name, rule)| (*name, *rule));
        lints.extend(linter.lint(rule, earlier).into_iter().map(|lint| (at, lint)));
        linter.insert(at as u32, rule);
    }
    lints
}

/// The rules that shadow others, found by their masked values.
///
/// Rules whose fields have the same masks make a table, as in tuple space search (Srinivasan, Suri and Varghese,
/// SIGCOMM 1999).
#[derive(Debug, Default)]
pub struct Linter {
    tables: Vec<Table>,
    places: HashMap<Masks, u32, BuildHasherDefault<DefaultHasher>>,
    /// The rules of each bucket, by the hash of its table and values.
    buckets: HashMap<u64, Vec<u32>, BuildHasherDefault<Hashed>>,
    /// Bits for the hashes of `buckets`: most look-ups end here, in the processor's cache.
    filter: Vec<u64>,
}

/// Keys that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mixed(self.0, (*byte).into()));
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Both numbers in one hash: the two halves of a product, as in wyhash.
const fn mixed(hash: u64, value: u64) -> u64 {
    let product = (hash ^ 0x9e37_79b9_7f4a_7c15) as u128 * (value ^ 0xa076_1d64_78bd_642f) as u128;
    (product >> 64) as u64 ^ product as u64
}

const fn mixed_wide(hash: u64, value: u128) -> u64 {
    let hash = mixed(hash, value as u64);
    if value >> 64 == 0 { hash } else { mixed(hash, (value >> 64) as u64) }
}

/// Fields with the masks of their bits that are compared, in the order of fields.
type Masks = Vec<(u16, u128)>;

#[derive(Debug)]
struct Table {
    masks: Masks,
    /// The tables with rules that may cover rules of this one: they compare no bits that this one does not.
    wider: Vec<u32>,
}

impl Linter {
    /// Tables that there are at most. Rules that would need another table are not found.
    pub const MOST_TABLES: usize = 4096;
    /// Tables that are asked for a rule's values, beside its own.
    pub const MOST_PROBES: usize = 64;
    /// Rules with the same masked values that are compared.
    pub const MOST_IN_BUCKET: usize = 8;

    /// Notes a rule by a number of its own. Rules that neither drop nor accept all their packets shadow none.
    pub fn insert(&mut self, id: u32, rule: &Rule) {
        if verdict(rule).is_none() {
            return;
        }
        let facts = Constraints::of(rule);
        let Some(at) = self.table(facts.masks()) else { return };
        let key = facts.key(at, None);
        self.buckets.entry(key).or_default().push(id);
        if self.buckets.len() * 16 > self.filter.len() * 64 {
            self.filter = vec![0; (self.filter.len() * 4).max(64)];
            for key in self.buckets.keys() {
                set(&mut self.filter, *key);
            }
        } else {
            set(&mut self.filter, key);
        }
    }

    /// The table of these masks, which is made where there is none.
    fn table(&mut self, masks: Masks) -> Option<u32> {
        if let Some(at) = self.places.get(&masks) {
            return Some(*at);
        }
        let at = self.tables.len() as u32;
        if self.tables.len() == Self::MOST_TABLES {
            return None;
        }
        for table in &mut self.tables {
            if table.wider.len() < Self::MOST_PROBES && is_wider(&masks, &table.masks) {
                table.wider.push(at);
            }
        }
        let wider = self.wider(&masks);
        self.tables.push(Table { masks: masks.clone(), wider });
        self.places.insert(masks, at);
        Some(at)
    }

    fn wider(&self, masks: &Masks) -> Vec<u32> {
        let all = (0..).zip(&self.tables).filter(|(_, table)| is_wider(&table.masks, masks));
        all.map(|(at, _)| at).take(Self::MOST_PROBES).collect()
    }

    fn may_have(&self, key: u64) -> bool {
        let place = place(&self.filter, key);
        self.filter.get(place).is_some_and(|word| word >> (key % 64) & 1 == 1)
    }

    /// Forgets a rule.
    pub fn remove(&mut self, id: u32, rule: &Rule) {
        if verdict(rule).is_none() {
            return;
        }
        let facts = Constraints::of(rule);
        let Some(&at) = self.places.get(&facts.masks()) else { return };
        let key = facts.key(at, None);
        let Some(bucket) = self.buckets.get_mut(&key) else { return };
        let Some(place) = bucket.iter().position(|other| *other == id) else { return };
        bucket.remove(place);
        if bucket.is_empty() {
            self.buckets.remove(&key);
        }
    }

    /// The warnings about a rule.
    ///
    /// `earlier` gives the name and the rule of a number, where that rule applies before this one.
    pub fn lint<'a>(&self, rule: &Rule, earlier: impl Fn(u32) -> Option<(&'a str, &'a Rule)>) -> Vec<Lint> {
        let mut lints: Vec<Lint> = one_way(rule).into_iter().collect();
        let facts = Constraints::of(rule);
        let masks = facts.masks();
        let own = self.places.get(&masks).copied();
        let made;
        let wider = match own.and_then(|at| self.tables.get(at as usize)) {
            Some(table) => &table.wider,
            None => {
                made = self.wider(&masks);
                &made
            }
        };
        let others = wider.iter().filter_map(|&at| {
            let table = self.tables.get(at as usize)?;
            Some(facts.key(at, Some(&table.masks)))
        });
        let keys = own.map(|at| facts.key(at, None)).into_iter().chain(others);
        for key in keys.filter(|key| self.may_have(*key)) {
            let bucket = self.buckets.get(&key).map(Vec::as_slice).unwrap_or_default();
            for id in bucket.iter().take(Self::MOST_IN_BUCKET) {
                if let Some((name, other)) = earlier(*id)
                    && covers_with(other, rule, &facts)
                {
                    lints.push(shadow(rule, other, name));
                    return lints;
                }
            }
        }
        lints
    }
}

/// The word of a filter in which a hash has its bit. The filter's length is a power of two.
fn place(filter: &[u64], key: u64) -> usize {
    (key >> 6) as usize & filter.len().wrapping_sub(1)
}

fn set(filter: &mut [u64], key: u64) {
    let place = place(filter, key);
    if let Some(word) = filter.get_mut(place) {
        *word |= 1 << (key % 64);
    }
}

/// The conditions of a rule that a hash finds.
struct Constraints {
    /// Each field with the bits that are compared and their values, in order; each field once.
    exact: Vec<(u16, u128, u128)>,
    /// The layers that its packets have.
    layers: u32,
}

impl Constraints {
    fn of(rule: &Rule) -> Self {
        let mut exact: Vec<(u16, u128, u128)> = rule.matches.iter().filter_map(masked).collect();
        // Of two conditions on one field, the one of more bits stays.
        exact.sort_unstable_by_key(|(field, mask, value)| (*field, !mask, *value));
        exact.dedup_by_key(|(field, ..)| *field);
        let layers = rule.matches.iter().fold(0, |all, one| all | one.field.info().layer.implied());
        Self { exact, layers }
    }

    fn masks(&self) -> Masks {
        self.exact.iter().map(|(field, mask, _)| (*field, *mask)).collect()
    }

    /// The bucket of a table in which its values are; `masks` are the table's where they are not its own.
    fn key(&self, table: u32, masks: Option<&[(u16, u128)]>) -> u64 {
        let start = u64::from(table);
        let Some(masks) = masks else {
            return self.exact.iter().fold(start, |hash, (_, _, value)| mixed_wide(hash, *value));
        };
        let mut own = self.exact.iter();
        masks.iter().fold(start, |hash, (field, mask)| {
            let value = own.find(|(other, ..)| other == field).map_or(0, |(_, _, value)| value & mask);
            mixed_wide(hash, value)
        })
    }
}

/// Whether masks compare no bits that others do not.
fn is_wider(wide: &Masks, narrow: &Masks) -> bool {
    let mut own = narrow.iter();
    wide.len() <= narrow.len()
        && wide.iter().all(|(field, mask)| own.any(|(other, bits)| other == field && bits & mask == *mask))
}

/// The bits that a match compares with one value, and the value.
fn masked(condition: &Match) -> Option<(u16, u128, u128)> {
    let field = condition.field.index() as u16;
    if condition.field.info().kind == Kind::AnyOption {
        return None;
    }
    let (mask, value) = match &condition.test {
        Some((Comparison::Equal, value)) if !condition.is_negated => match value {
            Value::Atom(atom) => (u128::MAX, number_of(atom).unwrap_or_else(|| hash_of(atom).into())),
            Value::Prefix(atom, length) => {
                let bits = if matches!(atom, Atom::Ipv4(_)) { 32 } else { 128 };
                // Bits above the address are compared, too, so that a whole address has all bits of any prefix.
                (!extent::host_mask(*length, bits), number_of(atom)?)
            }
            Value::Masked(atom, mask) => (number_of(mask)?, number_of(atom)?),
            Value::Range(..) | Value::Set(_) => (u128::MAX, only(condition)?),
            Value::Named(_) => return None,
        },
        _ => (u128::MAX, only(condition)?),
    };
    Some((field, mask, value & mask))
}

/// The one number for which a match holds, if it is one.
fn only(condition: &Match) -> Option<u128> {
    match extent::of(condition)?.as_slice() {
        [(low, high)] if low == high => Some(*low),
        _ => None,
    }
}

fn hash_of(atom: &Atom) -> u64 {
    let mut hasher = DefaultHasher::new();
    match atom {
        Atom::Bytes(bytes) => bytes.hash(&mut hasher),
        Atom::Interface(name) => name.hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

/// The decision of a rule about every packet that it means: whether it drops.
fn verdict(rule: &Rule) -> Option<bool> {
    rule.targets.iter().find_map(|target| match target {
        Target::Drop(None) => Some(true),
        Target::Accept => Some(false),
        _ => None,
    })
}

fn shadow(rule: &Rule, earlier: &Rule, name: &str) -> Lint {
    let is_opposite = verdict(rule).is_some() && verdict(rule) != verdict(earlier);
    if is_opposite && covers(rule, earlier) {
        return Lint::Contradictory { with: name.to_owned() };
    }
    Lint::Shadowed { by: name.to_owned() }
}

/// Whether `outer` means every packet that `inner` means. A `false` may be wrong, a `true` never is.
pub fn covers(outer: &Rule, inner: &Rule) -> bool {
    covers_with(outer, inner, &Constraints::of(inner))
}

fn covers_with(outer: &Rule, inner: &Rule, facts: &Constraints) -> bool {
    outer.matches.iter().all(|wide| {
        let info = wide.field.info();
        let is_layer = wide.test.is_none()
            && !wide.is_negated
            && !info.kind.is_flag()
            && !info.kind.is_option()
            && !matches!(info.kind, Kind::ExtensionHeader(_));
        if is_layer && (info.layer == Layer::Frame || facts.layers & info.layer.bit() != 0) {
            return true;
        }
        inner.matches.iter().any(|narrow| implies(narrow, wide))
    })
}

/// Whether a match holds wherever another does.
fn implies(narrow: &Match, wide: &Match) -> bool {
    let (narrow_kind, wide_kind) = (narrow.field.info().kind, wide.field.info().kind);
    if wide_kind.is_option() && wide.test.is_none() && !wide.is_negated {
        let is_there = !narrow.is_negated && !matches!(narrow.test, Some((Comparison::NotEqual, _)));
        return is_there
            && narrow_kind.is_option()
            && (narrow.field == wide.field || wide_kind == Kind::AnyOption);
    }
    if narrow.field != wide.field {
        return false;
    }
    if narrow == wide {
        return true;
    }
    let field = wide.field;
    match (extent::of(narrow), extent::of(wide)) {
        (Some(narrow), Some(wide)) => extent::contains(&wide, &narrow),
        (Some(narrow), None) => match masked(wide) {
            Some((_, mask, value)) => narrow.iter().all(|&(low, high)| low == high && low & mask == value),
            None => false,
        },
        (None, None) => match (masked(narrow), masked(wide)) {
            (Some((_, bits, narrow)), Some((_, mask, wide))) if extent::is_number(field) => {
                bits & mask == mask && narrow & mask == wide
            }
            _ => false,
        },
        (None, Some(_)) => false,
    }
}
