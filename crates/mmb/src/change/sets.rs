//! Sets among the changes of a text: their kinds, and the rules that get other conditions by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{After, prepare};
use crate::compile::Names;
use crate::language::{Context, SetKind, parse_rule};
use crate::rule::Value;
use crate::rules::{Edit, Rules};
use crate::state::in_order;

/// Values that are looked at for a set's kind.
const MOST_NAMED: usize = 1 << 16;

impl After<'_> {
    /// This set, and all that name it or a set that does.
    fn naming(&self, name: &str) -> BTreeSet<String> {
        let known: BTreeSet<&String> = self.rules.sets().keys().chain(self.sets.keys()).collect();
        let mut found = BTreeSet::from([name.to_owned()]);
        loop {
            let names_one = |set: &&&String| {
                let values = self.set(set).unwrap_or_default();
                found.iter().any(|name| values.iter().any(|value| names_set(value, name)))
            };
            let more: Vec<String> = known
                .iter()
                .filter(|set| !found.contains(**set))
                .filter(names_one)
                .map(|set| (*set).clone())
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// Gives a set its values, and the rules that name it their new conditions.
    pub(super) fn define(&mut self, name: String, values: Vec<Value>) -> Result<(), String> {
        let naming = self.naming(&name);
        if let Some(inner) = naming.iter().find(|inner| values.iter().any(|value| names_set(value, inner))) {
            return Err(format!(
                "the set `@{name}` would contain itself, by its value `@{inner}`: leave that out"
            ));
        }
        if let Some(known) = self.set(&name).and_then(|known| self.kind(known))
            && let Some(kind) = self.kind(&values)
            && kind != known
            && let Some(user) = self.user(&name, &naming)
        {
            return Err(format!(
                "the set `@{name}` has {}, as {user} needs: give a set of {} another name",
                known.name(),
                kind.name()
            ));
        }
        let values: Arc<[Value]> = values.into();
        self.sets.insert(name.clone(), Some(values.clone()));
        self.edits.push(Edit::Set(name, Some(values)));
        let line = self.line;
        self.redefined.extend(naming.into_iter().map(|name| (name, line)));
        Ok(())
    }

    /// The kind of a set's values, also where they name other sets.
    fn kind(&self, values: &[Value]) -> Option<SetKind> {
        let mut waiting = vec![values.iter()];
        // Sets do not contain themselves, but many may name one.
        for _ in 0..MOST_NAMED {
            let Some(value) = waiting.last_mut()?.next() else {
                waiting.pop();
                continue;
            };
            match value {
                Value::Named(name) => waiting.push(self.set(name).unwrap_or_default().iter()),
                value => {
                    if let Some(kind) = Context::default().kind(value) {
                        return Some(kind);
                    }
                }
            }
        }
        None
    }

    /// The sets that rules name.
    fn named(&mut self) -> &BTreeSet<String> {
        let Self { rules, rows, behind, named, .. } = self;
        named.get_or_insert_with(|| {
            let old = rules.iter().filter(|_| rows.is_none());
            let new = rows.as_ref().unwrap_or(behind).iter().map(|row| &row.data);
            old.chain(new).flat_map(|data| sets_of(&data.text)).collect()
        })
    }

    /// A rule that names one of these sets, or a set that has other values beside those of this one.
    fn user(&mut self, name: &str, naming: &BTreeSet<String>) -> Option<String> {
        let has_others = |set: &&String| {
            let values = self.set(set).unwrap_or_default();
            set.as_str() != name
                && values.iter().any(|value| !naming.iter().any(|inner| names_set(value, inner)))
        };
        if let Some(other) = naming.iter().find(has_others) {
            return Some(format!("`@{other}`"));
        }
        let sets: Vec<String> = naming.iter().map(|name| format!("@{name}")).collect();
        if !sets.iter().any(|set| self.named().contains(set)) {
            return None;
        }
        let place = self.rows().iter().position(|row| sets.iter().any(|set| uses(&row.data.text, set)))?;
        Some(format!("rule {}", place + 1))
    }

    /// Gives the rules that name redefined sets their new conditions.
    ///
    /// # Errors
    /// A rule that the new values do not suit, with the line that gave them.
    pub(super) fn recompile(&mut self) -> Result<(), (usize, String)> {
        let redefined = std::mem::take(&mut self.redefined);
        if redefined.is_empty() {
            return Ok(());
        }
        let sets = redefined.into_iter().map(|(name, line)| (format!("@{name}"), line));
        let named = self.named();
        let sets: Vec<(String, usize)> = sets.filter(|(set, _)| named.contains(set)).collect();
        if sets.is_empty() {
            return Ok(());
        }
        for place in 0..self.rows().len() {
            let row = &self.rows()[place];
            if !row.data.text.contains('@') {
                continue;
            }
            let changed = sets.iter().filter(|(set, _)| uses(&row.data.text, set));
            let Some((_, line)) = changed.clone().max_by_key(|(_, line)| *line).cloned() else { continue };
            let names: Vec<&str> = changed.map(|(set, _)| set.as_str()).collect();
            let names = names.join(", ");
            let (data, name) = (row.data.clone(), row.name.clone());
            let at = |problem: String| (line, format!("rule {}, which names {names}: {problem}", place + 1));
            let rule = parse_rule(&data.text).map_err(|error| at(error.to_string()))?;
            let mut prepared = prepare(&self.rules.setup, self, &rule, name, &self.layout).map_err(at)?;
            if let Some(new) = Arc::get_mut(&mut prepared.data) {
                new.counts = data.counts.clone();
            }
            let prepared = Arc::new(prepared);
            self.rows()[place].data = prepared.data.clone();
            self.edits.push(Edit::Recompile(place, prepared));
        }
        Ok(())
    }
}

/// The sets that a rule's text names, with their `@`.
pub(super) fn sets_of(text: &str) -> impl Iterator<Item = String> {
    words(text).filter(|word| word.starts_with('@')).map(str::to_owned)
}

/// Whether a rule's text names a set, which is given with its `@`.
fn uses(text: &str, set: &str) -> bool {
    words(text).any(|word| word == set)
}

/// The words of a rule's text without texts in quotes; none where it names no set.
fn words(text: &str) -> impl Iterator<Item = &str> {
    // Every other part is in quotes. A quote within one is behind a backslash, and so is a backslash.
    let mut rest = if text.contains('@') { text } else { "" };
    let outside = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (before, behind) = rest.split_once('"').unwrap_or((rest, ""));
        let mut is_escaped = false;
        let end = behind.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        rest = end.and_then(|end| behind.get(end + 1..)).unwrap_or("");
        Some(before)
    });
    outside.flat_map(|part| part.split([' ', ',', '{', '}']))
}

/// The kinds of sets, also of those that name others.
pub(super) fn kinds(rules: &Rules) -> BTreeMap<String, SetKind> {
    let mut kinds = BTreeMap::new();
    for (name, values) in in_order(rules) {
        let context = Context { sets: Some(&kinds), ..Context::default() };
        if let Some(kind) = values.iter().find_map(|value| context.kind(value)) {
            kinds.insert(name.to_owned(), kind);
        }
    }
    kinds
}

fn names_set(value: &Value, name: &str) -> bool {
    match value {
        Value::Named(known) => known == name,
        Value::Set(values) => values.iter().any(|value| names_set(value, name)),
        _ => false,
    }
}
