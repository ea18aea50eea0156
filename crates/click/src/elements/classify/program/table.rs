//! Rules in a classifier of many rules: their number hardly counts for the time that a packet takes.

use netbricks_core::tables::classifier::{
    Classifier, ClassifierConfig, Condition, Entry, Field, Keys, Layout, Test as FieldTest,
};

use super::Jump;
use super::conjunctions::{Atom, Conjunction, alternatives};
use super::expression::{Compare, Expression, Test};
use super::matcher::DROP;
use super::view::View;

/// The most alternatives of one rule.
const ALTERNATIVES: usize = 64;
/// The most alternatives of all rules.
const ENTRIES: usize = 1 << 20;
/// The most words that rules may look at.
const WORDS: usize = 24;

/// Words of packets, and fields of words, side by side.
struct Keying {
    layout: Layout,
    /// Places of words, and their fields.
    words: Vec<(u16, Field)>,
    /// Fields of words that are compared: place, shift, mask.
    fields: Vec<((u16, u32, u32), Field)>,
    /// A bit for each word that a packet may lack: place, number.
    optional: Vec<(u16, u32)>,
    /// Which of those words are there.
    presence: Field,
    /// Words that end before are in all packets of the table.
    base: u16,
    /// The same by word, so that each is read once.
    reads: Vec<Read>,
}

/// A word of packets, and where it goes in a key.
struct Read {
    place: u16,
    /// Its bit among those that a packet may lack; 0 where all packets have it.
    bit: u32,
    whole: Option<Field>,
    /// Fields of it: shift, mask.
    parts: Vec<(u32, u32, Field)>,
}

/// Rules in a classifier.
pub(crate) struct RuleTable {
    keying: Keying,
    classifier: Classifier,
    /// The output of each rule.
    targets: Vec<u32>,
    /// The output for packets of which the classifier finds no rule, or [`DROP`].
    otherwise: u32,
}

impl RuleTable {
    /// The table of some rules, if they can be put in one.
    ///
    /// Words that end before the place `base` are in all packets that the table is asked for. `seed` keeps senders from
    /// choosing packets that collide.
    pub(crate) fn new(rules: &[(Option<Expression>, Jump)], base: u16, seed: u64) -> Option<Self> {
        let mut all: Vec<(u64, Conjunction)> = Vec::new();
        let mut last = None;
        for (order, (condition, _)) in rules.iter().enumerate() {
            let one = match condition {
                Some(condition) => alternatives(condition, ALTERNATIVES)?,
                None => vec![Vec::new()],
            };
            if one.iter().any(Vec::is_empty) {
                // All packets that come here fulfil it, so that it takes no probe, and no rule behind it counts.
                last = Some(order);
                break;
            }
            all.extend(one.into_iter().map(|conjunction| (order as u64, conjunction)));
            if all.len() > ENTRIES {
                return None;
            }
        }
        let keying = Keying::of(all.iter().flat_map(|(_, conjunction)| conjunction), base)?;
        let config = ClassifierConfig { capacity: ENTRIES, seed, ..ClassifierConfig::default() };
        let mut classifier = Classifier::new(keying.layout.clone(), config);
        for (order, conjunction) in &all {
            for conditions in keying.conditions(conjunction)? {
                let rule = u32::try_from(*order).ok()?;
                classifier.insert(Entry { rule, order: *order, last: true, conditions }).ok()?;
            }
        }
        let target = |(condition, target): &(Option<Expression>, Jump)| match (condition, target) {
            (Some(_), Jump::Output(output)) => *output,
            _ => DROP,
        };
        let targets = rules.iter().map(target).collect();
        let otherwise = last.and_then(|order| rules.get(order)).map_or(DROP, target);
        Some(Self { keying, classifier, targets, otherwise })
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.classifier.bytes() + self.targets.capacity() * size_of::<u32>()
    }

    /// Words of a key.
    pub(crate) fn width(&self) -> usize {
        self.keying.layout.words()
    }

    /// Writes a packet's key. `false` where the packet ends inside of a word that rules look at.
    #[inline(always)]
    pub(crate) fn key(&self, packet: &impl View, key: &mut [u32]) -> bool {
        self.keying.write(packet, key)
    }

    /// The output for a packet, or [`DROP`]. `None` where the packet ends inside of a word that rules look at.
    pub(crate) fn output(&self, packet: &impl View) -> Option<u32> {
        let mut key = [0; 1 + WORDS];
        let key = key.get_mut(..self.width())?;
        self.key(packet, key).then(|| self.target(self.classifier.first(key)))
    }

    /// The rules for many keys.
    pub(crate) fn find(&self, keys: &Keys, found: &mut [Option<u32>]) {
        self.classifier.first_batch(keys, found);
    }

    /// The output of a rule, or [`DROP`].
    #[inline]
    pub(crate) fn target(&self, rule: Option<u32>) -> u32 {
        rule.and_then(|rule| self.targets.get(rule as usize)).copied().unwrap_or(self.otherwise)
    }
}

impl Keying {
    fn of<'a>(atoms: impl Iterator<Item = &'a Atom>, base: u16) -> Option<Self> {
        let mut layout = Layout::new();
        let presence = layout.field(32);
        let mut keying = Self {
            layout,
            words: Vec::new(),
            fields: Vec::new(),
            optional: Vec::new(),
            presence,
            base,
            reads: Vec::new(),
        };
        for atom in atoms {
            let place = match atom {
                Atom::Word { test, .. } => {
                    if !keying.words.iter().any(|(place, _)| *place == test.place) {
                        let field = keying.layout.field(32);
                        keying.words.push((test.place, field));
                    }
                    test.place
                }
                Atom::Compare(compare) => {
                    let bits = compare.mask.count_ones() as u16;
                    let which = (compare.place, compare.shift, compare.mask);
                    if !keying.fields.iter().any(|(known, _)| *known == which) {
                        let field = keying.layout.field(bits);
                        keying.fields.push((which, field));
                    }
                    compare.place
                }
            };
            let known = keying.optional.iter().any(|(known, _)| *known == place);
            if !keying.is_base(place) && !known {
                keying.optional.push((place, keying.optional.len() as u32));
            }
            if keying.words.len() + keying.fields.len() > WORDS || keying.optional.len() > WORDS {
                return None;
            }
        }
        keying.reads = keying.reads();
        Some(keying)
    }

    fn reads(&self) -> Vec<Read> {
        let places = self.words.iter().map(|(place, _)| *place).chain(self.fields.iter().map(|(of, _)| of.0));
        let mut places: Vec<u16> = places.collect();
        places.sort_unstable();
        places.dedup();
        let read = |place: u16| Read {
            place,
            bit: self.presence(place).unwrap_or(0),
            whole: self.words.iter().find(|(known, _)| *known == place).map(|(_, field)| *field),
            parts: self
                .fields
                .iter()
                .filter(|((known, ..), _)| *known == place)
                .map(|((_, shift, mask), field)| (*shift, *mask, *field))
                .collect(),
        };
        places.into_iter().map(read).collect()
    }

    /// Whether all packets of the table have a word.
    fn is_base(&self, place: u16) -> bool {
        place.saturating_add(4) <= self.base
    }

    fn presence(&self, place: u16) -> Option<u32> {
        self.optional.iter().find(|(known, _)| *known == place).map(|(_, number)| 1 << number)
    }

    #[inline(always)]
    fn write(&self, packet: &impl View, key: &mut [u32]) -> bool {
        let mut present = 0;
        for read in &self.reads {
            let word = match packet.word(read.place) {
                Some(word) => {
                    present |= read.bit;
                    u32::from_be_bytes(word.to_ne_bytes())
                }
                None if read.bit != 0 && packet.length() > u32::from(read.place) => return false,
                None => 0,
            };
            if let Some(field) = read.whole {
                put(key, field, word);
            }
            for (shift, mask, field) in &read.parts {
                put(key, *field, (word >> shift & mask) >> mask.trailing_zeros());
            }
        }
        put(key, self.presence, present);
        true
    }

    /// The conditions of a conjunction. They are more than one where packets may be too short.
    fn conditions(&self, conjunction: &[Atom]) -> Option<Vec<Vec<Condition>>> {
        let mut all = vec![Vec::new()];
        for atom in conjunction {
            let (place, short, condition) = match atom {
                Atom::Word { test, negated, short } => (test.place, *short, self.word(test, *negated)?),
                Atom::Compare(compare) => (compare.place, compare.short, self.compare(compare)?),
            };
            let Some(bit) = self.presence(place) else {
                all.iter_mut().for_each(|conditions| conditions.push(condition.clone()));
                continue;
            };
            let is_there = |value: u32| Condition {
                field: self.presence,
                test: FieldTest::Masked { value: value.into(), mask: bit.into() },
                negated: false,
            };
            let without: Vec<Vec<Condition>> = if short { all.clone() } else { Vec::new() };
            for conditions in &mut all {
                conditions.extend([is_there(bit), condition.clone()]);
            }
            all.extend(without.into_iter().map(|mut conditions| {
                conditions.push(is_there(0));
                conditions
            }));
            if all.len() > ALTERNATIVES {
                return None;
            }
        }
        Some(all)
    }

    fn word(&self, test: &Test, negated: bool) -> Option<Condition> {
        let field = self.words.iter().find(|(place, _)| *place == test.place)?.1;
        let test = FieldTest::Masked { value: test.value.into(), mask: test.mask.into() };
        Some(Condition { field, test, negated })
    }

    fn compare(&self, compare: &Compare) -> Option<Condition> {
        let which = (compare.place, compare.shift, compare.mask);
        let field = self.fields.iter().find(|(known, _)| *known == which)?.1;
        let behind = compare.mask.trailing_zeros();
        let greatest = compare.mask >> behind;
        // Bits of the bound behind the field do not count: the field is above them or not as it is above the rest.
        let bound = (compare.bound & compare.mask) >> behind;
        let (low, high) = if compare.above { (bound.saturating_add(1), greatest) } else { (0, bound) };
        let test = FieldTest::Range { low: low.into(), high: high.into() };
        Some(Condition { field, test, negated: false })
    }
}

#[inline(always)]
fn put(key: &mut [u32], field: Field, value: u32) {
    if let Some(word) = key.get_mut(field.word()) {
        *word = value;
    }
}
