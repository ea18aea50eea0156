//! Warnings about rules that never apply, among those that there are after the lines of a text.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use netbricks_core::tables::classifier::{Condition, Matches, Test};

use crate::compile::compile;
use crate::language::parse_rule;
use crate::lint::{Lint, lint, lint_all};
use crate::random::Random;
use crate::rule::Rule;
use crate::rules::{RuleData, Rules};

/// A rule as later lines of a text see it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: Option<Box<str>>,
    /// The rule as it is compiled.
    pub(crate) data: Arc<RuleData>,
    /// The line of the text that put it here; 0 where none did.
    pub(crate) line: usize,
    /// The rule, where a line of the text has it.
    pub(crate) rule: Option<Arc<Rule>>,
}

/// Rules among which a single new one is compared with all.
pub(crate) const FEW: usize = 1_000;
/// The same of one behind all others, which hides none of them.
const NEXT_TO_NONE: usize = 16;
/// Packets of a new rule for which the classifier is asked where there are more.
const SAMPLES: usize = 32;

/// New rules of a text that are each compared with those that may hide them; more are compared all together.
const SEVERAL: usize = 16;

/// A rule among others, for the warnings.
struct Listed {
    name: String,
    rule: Arc<Rule>,
    /// The line that put it there; 0 where none did.
    line: usize,
}

impl Listed {
    fn of(row: &Row, place: usize) -> Option<Self> {
        let rule = match &row.rule {
            Some(rule) => rule.clone(),
            None => Arc::new(parse_rule(&row.data.text).ok()?),
        };
        let name = match row.name.as_deref() {
            None => format!("rule {}", place + 1),
            Some(name) => format!("rule {name}"),
        };
        Some(Self { name, rule, line: row.line })
    }
    fn old(rules: &Rules, place: usize) -> Option<Self> {
        Self::of(&Row::of(rules.at(place)?), place)
    }
}

impl Row {
    /// A rule that was there before the text.
    pub(crate) fn of(data: &Arc<RuleData>) -> Self {
        Self { name: data.name.clone(), data: data.clone(), line: 0, rule: None }
    }
}

/// Warnings about rules that lines added, replaced or moved, among the rules as they are after all lines.
///
/// `rows` are all rules then; without them, `behind` are new ones behind the old ones. `may_grow` says that no rule was
/// taken out or moved.
pub(crate) fn shadowed(
    old: &Rules,
    rows: Option<&[Row]>,
    behind: &[Row],
    may_grow: bool,
) -> Vec<(usize, String)> {
    let Some(rows) = rows else {
        // All new rules stand behind those that there were.
        let new = behind.iter().enumerate().filter_map(|(at, row)| Listed::of(row, old.len() + at));
        let new: Vec<Listed> = new.collect();
        if new.is_empty() {
            return Vec::new();
        }
        if old.len() <= NEXT_TO_NONE || new.len() > SEVERAL {
            return of_all((0..old.len()).filter_map(|at| Listed::old(old, at)).chain(new).collect());
        }
        let warned = (0..new.len()).flat_map(|at| {
            let near = overlapping(old, &new[at].rule).into_iter().filter_map(|at| Listed::old(old, at));
            of_last(near.collect(), &new[..=at])
        });
        return warned.collect();
    };
    let changed: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].line > 0).collect();
    let listed = |at: usize| Listed::of(&rows[at], at);
    if changed.is_empty() {
        return Vec::new();
    }
    // A rule that went may have ended the rules before those that hide another now.
    if rows.len() <= FEW || changed.len() > SEVERAL || !may_grow {
        return of_all((0..rows.len()).filter_map(listed).collect());
    }
    let warned = changed.iter().flat_map(|at| {
        let Some(new) = listed(*at) else { return Vec::new() };
        let near = overlapping(old, &new.rule).into_iter().filter_map(|at| old.at(at));
        let near: HashSet<*const RuleData> = near.map(Arc::as_ptr).collect();
        let is_near = |row: &Row| row.line > 0 || near.contains(&Arc::as_ptr(&row.data));
        let earlier = (0..*at).filter(|at| is_near(&rows[*at])).filter_map(listed);
        of_last(earlier.collect(), &[new])
    });
    warned.collect()
}

/// The warnings about the last of some new rules, behind these old ones.
fn of_last(old: Vec<Listed>, new: &[Listed]) -> Vec<(usize, String)> {
    let all: Vec<(&str, &Rule)> = old.iter().chain(new).map(|one| (&one.name[..], &*one.rule)).collect();
    let Some(last) = new.last() else { return Vec::new() };
    let lints = lint(&all, all.len() - 1).into_iter().filter(is_told_here);
    lints.map(|lint| (last.line, lint.to_string())).collect()
}

/// The warnings about the new ones of these rules, and about others that a new one hides.
fn of_all(all: Vec<Listed>) -> Vec<(usize, String)> {
    let named: Vec<(&str, &Rule)> = all.iter().map(|one| (&one.name[..], &*one.rule)).collect();
    let is_few = all.len() <= FEW && all.iter().filter(|one| one.line > 0).count() <= SEVERAL;
    let mut warned: Vec<(usize, String)> = Vec::new();
    if is_few {
        // Each with all before it, of which the quicker way may miss some.
        for at in (0..all.len()).filter(|at| all[*at].line > 0) {
            let lints = lint(&named, at).into_iter().filter(is_told_here);
            warned.extend(lints.map(|lint| (all[at].line, lint.to_string())));
        }
    }
    let places: HashMap<&str, usize> = named.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut hidden: BTreeMap<usize, (&str, usize)> = BTreeMap::new();
    for (at, lint) in lint_all(&named).into_iter().filter(|(_, lint)| is_told_here(lint)) {
        let one = &all[at];
        if one.line > 0 {
            if !is_few {
                warned.push((one.line, lint.to_string()));
            }
        } else if let Some(by) = hidden_by(&lint).and_then(|by| places.get(by)).map(|by| all[*by].line)
            && by > 0
        {
            // The rule was there before, and the one that hides it was not.
            hidden.entry(by).or_insert((&one.name, 0)).1 += 1;
        }
    }
    for (line, (first, count)) in hidden {
        let rules = match count {
            1 => format!("{first} never applies"),
            count => format!("{first} and {} more never apply", count - 1),
        };
        warned.push((line, format!("{rules} any more: a rule of this line decides about all packets")));
    }
    warned.sort_by_key(|(line, _)| *line);
    warned
}

fn hidden_by(lint: &Lint) -> Option<&str> {
    match lint {
        Lint::Shadowed { by } | Lint::Contradictory { with: by } => Some(by),
        _ => None,
    }
}

/// The parser warns of one-way writes itself.
fn is_told_here(lint: &Lint) -> bool {
    !matches!(lint, Lint::OneWay { .. })
}

/// The places of rules that match most packets that a new rule means.
///
/// A rule that hides the new one matches all of its packets, and so those that are tried.
fn overlapping(rules: &Rules, rule: &Rule) -> BTreeSet<usize> {
    let wider = rules.layout.with(&rule.matches);
    let layout = wider.as_ref().unwrap_or(&rules.layout);
    let Ok(conditions) = compile(layout, &rule.matches, rules) else { return BTreeSet::new() };
    let (mut random, mut found) = (Random::new(1, 0), Matches::default());
    let (mut tried, mut matched) = (0, HashMap::<u32, usize>::new());
    for conjunction in conditions.entries.iter().cycle().take(SAMPLES) {
        let key = sample(layout.layout().words(), conjunction, &mut random);
        if conjunction.iter().all(|condition| condition.holds(&key)) {
            tried += 1;
            rules.classifier.every(&key, &mut found);
            found.rules().for_each(|slot| *matched.entry(slot).or_default() += 1);
        }
    }
    let near = matched.into_iter().filter(|(_, times)| times * 2 > tried);
    near.filter_map(|(slot, _)| rules.place(slot)).collect()
}

/// A key vector for which conditions hold, unless one excludes the values that were chosen for others.
fn sample(words: usize, conditions: &[Condition], random: &mut Random) -> Vec<u32> {
    let mut key: Vec<u32> = (0..words).map(|_| random.next() as u32).collect();
    for Condition { field, test, negated } in conditions {
        let value = match test {
            // Other values are likely, and looked at afterwards.
            _ if *negated => continue,
            Test::Masked { value, mask } => field.get(&key) & !mask | value & mask,
            Test::Range { low, high } => low + random.below(high.saturating_sub(*low).saturating_add(1)),
            Test::Within(set) => {
                let intervals = set.intervals();
                let Some((low, high)) = intervals.get(random.below(intervals.len() as u128) as usize) else {
                    continue;
                };
                low + random.below((high - low).saturating_add(1))
            }
        };
        field.put(&mut key, value);
    }
    key
}
