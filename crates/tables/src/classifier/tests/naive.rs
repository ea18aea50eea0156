//! The definition of a classifier, without a thought for speed.

use std::collections::BTreeMap;

use super::{Condition, Entry, EntryId, Field, Test};

#[derive(Default)]
pub(super) struct Naive {
    entries: BTreeMap<EntryId, Entry>,
}

fn value(field: Field, key: &[u32]) -> u128 {
    let words = &key[field.word()..field.word() + usize::from(field.bits()).div_ceil(32)];
    words.iter().fold(0, |value, word| (value << 32) + u128::from(*word))
}

fn passes(condition: &Condition, key: &[u32]) -> bool {
    let at = value(condition.field, key);
    let passed = match &condition.test {
        Test::Masked { value, mask } => at & mask == value & mask,
        Test::Range { low, high } => at >= *low && at <= *high,
        Test::Within(set) => set.intervals().iter().any(|(low, high)| at >= *low && at <= *high),
    };
    if condition.negated { !passed } else { passed }
}

impl Naive {
    pub(super) fn insert(&mut self, id: EntryId, entry: Entry) {
        assert!(self.entries.insert(id, entry).is_none(), "no number is given twice");
    }

    pub(super) fn remove(&mut self, id: EntryId) {
        self.entries.remove(&id);
    }

    pub(super) fn set_order(&mut self, id: EntryId, order: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.order = order;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The rules that match, up to the first of which an entry is the last.
    pub(super) fn matches(&self, key: &[u32]) -> Vec<u32> {
        self.found(key, true)
    }

    /// All rules that match.
    pub(super) fn every(&self, key: &[u32]) -> Vec<u32> {
        self.found(key, false)
    }

    fn found(&self, key: &[u32], ends: bool) -> Vec<u32> {
        let matching = self.entries.values().filter(|entry| entry.conditions.iter().all(|c| passes(c, key)));
        let mut by_rank: BTreeMap<(u64, u32), bool> = BTreeMap::new();
        for entry in matching {
            *by_rank.entry((entry.order, entry.rule)).or_default() |= entry.last;
        }
        let mut rules = vec![];
        for ((_, rule), last) in by_rank {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
            if last && ends {
                break;
            }
        }
        rules
    }
}
