//! From lines to changes of the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netbricks_core::sealed::hash_text;
use netbricks_core::tables::Secret;
use netbricks_core::tables::classifier::{Condition, Matches, Test};

use crate::action::{Choices, actions};
use crate::compile::{Names, compile, intervals};
use crate::field::{FieldId, Kind};
use crate::language::{Context, SetKind, parse_rule};
use crate::lint::{Lint, lint, lint_all};
use crate::random::Random;
use crate::rule::{Command, MapTo, Mode, Rule, Selector, Value};
use crate::rules::{Edit, Prepared, RuleData, Rules, Setup, port};
use crate::shared::shared_actions;

/// Changes that lines ask for, and what there is to say about them.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// The changes, in order.
    pub(crate) edits: Vec<Edit>,
    /// Warnings about the lines, each with its line's number.
    pub(crate) warnings: Vec<(usize, String)>,
    /// Commands that change nothing, in order, each with its line's number.
    pub(crate) questions: Vec<(usize, Command)>,
    /// The places from 1 of the rules that were added, while no other change moves them.
    pub(crate) added: Vec<usize>,
}

/// A rule as later lines of a text see it.
#[derive(Clone, Debug)]
struct Row {
    name: Option<Box<str>>,
    data: Arc<RuleData>,
}

/// Rules as they are after the changes so far.
struct After<'r> {
    rules: &'r Rules,
    /// All rules, once a line needs them.
    rows: Option<Vec<Row>>,
    len: usize,
    /// Names that lines gave (`true`) or took away.
    names: BTreeMap<Box<str>, bool>,
    sets: BTreeMap<String, Option<Arc<[Value]>>>,
    edits: Vec<Edit>,
    added: Vec<usize>,
}

impl Names for After<'_> {
    fn set(&self, name: &str) -> Option<&[Value]> {
        match self.sets.get(name) {
            Some(changed) => changed.as_deref(),
            None => self.rules.sets().get(name).map(|values| &values[..]),
        }
    }
    fn port(&self, name: &str) -> Option<u16> {
        port(&self.rules.setup.ports, name)
    }
}

/// Reads lines and plans their changes against the rules, or refuses all of them.
///
/// # Errors
/// Each wrong line with its number and its fault, as a text.
pub(crate) fn plan(rules: &Rules, text: &str) -> Result<Planned, String> {
    plan_over(rules, text, Over::Present)
}

/// The rules that lines are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The present ones.
    Present,
    /// None: those that there are go, with sets, mode and policy.
    Nothing,
}

/// As [`plan`]; the lines change the present rules, or replace them.
///
/// # Errors
/// As [`plan`].
pub(crate) fn plan_over(rules: &Rules, text: &str, over: Over) -> Result<Planned, String> {
    let kinds: BTreeMap<String, SetKind> = rules
        .sets()
        .iter()
        .filter(|_| over == Over::Present)
        .map(|(name, values)| {
            let kind = values.first().and_then(|value| Context::default().kind(value));
            (name.clone(), kind.unwrap_or(SetKind::Number))
        })
        .collect();
    let ports: Vec<String> = rules.setup.ports.names.iter().map(|(name, _)| name.clone()).collect();
    let context = Context {
        outputs: Some(rules.setup.outputs),
        interfaces: (!ports.is_empty()).then_some(&ports[..]),
        sets: Some(&kinds),
        rules: &[],
    };
    let file = match text.contains('\n') {
        true => context.parse_file(text).map_err(|errors| errors.to_string())?,
        // A single line is shown with its fault.
        false => {
            let mut file = crate::language::ParsedFile::default();
            if let Some(parsed) = context.parse(text).map_err(|error| error.render(text))? {
                file.warnings.extend(parsed.warnings.into_iter().map(|warning| (1, warning)));
                file.commands.push((1, parsed.command));
            }
            file
        }
    };
    let mut after = After {
        rules,
        rows: None,
        len: rules.len(),
        names: BTreeMap::new(),
        sets: BTreeMap::new(),
        edits: Vec::new(),
        added: Vec::new(),
    };
    let mut planned = Planned {
        warnings: file.warnings.into_iter().map(|(line, warning)| (line, warning.to_string())).collect(),
        ..Planned::default()
    };
    if over == Over::Nothing {
        after.clear();
    }
    let mut begun = None;
    let mut new = Vec::new();
    let several = text.contains('\n');
    for (line, command) in file.commands {
        let fault = |problem: String| if several { format!("line {line}: {problem}") } else { problem };
        match command {
            Command::Begin => begun = Some((after.edits.len(), after.len)),
            Command::Commit => begun = None,
            Command::Abort => {
                let (edits, _) = begun.take().unwrap_or((0, 0));
                if edits < after.edits.len() {
                    return Err(fault("`abort` forgets lines before it: leave them out of the text".into()));
                }
            }
            Command::List
            | Command::Show(..)
            | Command::Explain(_)
            | Command::Test(_)
            | Command::Expect(..) => planned.questions.push((line, command)),
            change => {
                if let Command::Add { at, name, rule } = &change {
                    let place = at.map_or(after.len, |at| at.saturating_sub(1));
                    new.push(New { line, place, name: name.clone().unwrap_or_default(), rule: rule.clone() });
                }
                after.change(change).map_err(fault)?;
            }
        }
    }
    planned.warnings.extend(shadowed(rules, over, &new));
    planned.edits = after.edits;
    planned.added = after.added;
    Ok(planned)
}

/// A rule that a line adds.
struct New {
    line: usize,
    place: usize,
    name: String,
    rule: Rule,
}

/// Rules among which a single new one is compared with all.
const FEW: usize = 1_000;
/// Packets of a new rule for which the classifier is asked where there are more.
const SAMPLES: usize = 32;

/// Warnings about new rules that earlier ones hide: of a whole file, or of one rule among others.
fn shadowed(rules: &Rules, over: Over, new: &[New]) -> Vec<(usize, String)> {
    // The parser warns of one-way writes itself.
    let is_other = |lint: &Lint| !matches!(lint, Lint::OneWay { .. });
    let called = |name: &str, place: usize| match name {
        "" => format!("rule {}", place + 1),
        name => format!("rule {name}"),
    };
    if rules.is_empty() || over == Over::Nothing {
        let names: Vec<String> = new.iter().enumerate().map(|(at, new)| called(&new.name, at)).collect();
        let all: Vec<(&str, &Rule)> =
            names.iter().map(String::as_str).zip(new.iter().map(|new| &new.rule)).collect();
        let lints = lint_all(&all).into_iter().filter(|(_, lint)| is_other(lint));
        return lints.filter_map(|(at, lint)| Some((new.get(at)?.line, lint.to_string()))).collect();
    }
    let [New { line, place, name, rule }] = new else { return Vec::new() };
    let earlier: BTreeSet<usize> =
        if rules.len() <= FEW { (0..rules.len()).collect() } else { overlapping(rules, rule) };
    let known = earlier.into_iter().take_while(|at| at < place).filter_map(|at| {
        let data = rules.at(at)?;
        Some((called(data.name.as_deref().unwrap_or_default(), at), parse_rule(&data.text).ok()?))
    });
    let known: Vec<(String, Rule)> = known.collect();
    let mut all: Vec<(&str, &Rule)> = known.iter().map(|(name, rule)| (name.as_str(), rule)).collect();
    all.push((name, rule));
    lint(&all, all.len() - 1).into_iter().filter(is_other).map(|lint| (*line, lint.to_string())).collect()
}

/// The places of rules that match some packet that a new rule means.
///
/// A rule that hides the new one matches all its packets, and so those that are tried. It is left out where each of
/// those meets another rule before it that ends the rules.
fn overlapping(rules: &Rules, rule: &Rule) -> BTreeSet<usize> {
    let Ok(conditions) = compile(&rules.layout, &rule.matches, rules) else { return BTreeSet::new() };
    let (mut random, mut found, mut places) = (Random::new(1, 0), Matches::default(), BTreeSet::new());
    for conjunction in conditions.entries.iter().cycle().take(SAMPLES) {
        let key = sample(rules.layout.layout().words(), conjunction, &mut random);
        if conjunction.iter().all(|condition| condition.holds(&key)) {
            rules.classifier.matches(&key, &mut found);
            places.extend(found.rules().filter_map(|slot| rules.place(slot)));
        }
    }
    places
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

impl After<'_> {
    fn change(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Add { at, name, rule } => {
                let place = match at {
                    None => self.len,
                    Some(at) if (1..=self.len + 1).contains(&at) => at - 1,
                    Some(at) => {
                        return Err(format!(
                            "there is no place {at}: rules have the places 1 to {}",
                            self.len
                        ));
                    }
                };
                self.add(place, name, &rule)?;
            }
            Command::Delete(selector) => {
                let place = self.find(&selector)?;
                self.remove(place);
            }
            Command::Replace(selector, rule) => {
                let place = self.find(&selector)?;
                let name = self.name_at(place);
                self.remove(place);
                self.add(place, name.map(Into::into), &rule)?;
            }
            Command::Move(selector, is_before, other) => self.move_rule(&selector, is_before, &other)?,
            Command::Define(name, values) => self.define(name, values)?,
            Command::Extend(name, values) => {
                let mut all = self.values(&name)?;
                all.extend(values);
                self.define(name, all)?;
            }
            Command::Shrink(name, values) => {
                let mut all = self.values(&name)?;
                for value in values {
                    let before = all.len();
                    all.retain(|known| *known != value);
                    if all.len() == before {
                        return Err(format!("the set `@{name}` has no value {value}: see `show sets`"));
                    }
                }
                if all.is_empty() {
                    return Err(format!(
                        "the set `@{name}` would be empty: leave a value in it, or `define` others"
                    ));
                }
                self.define(name, all)?;
            }
            Command::Mode(mode) => self.edits.push(Edit::Mode(mode)),
            Command::PolicyDrop(drops) => self.edits.push(Edit::PolicyDrop(drops)),
            Command::Enable(interface, is_enabled) => {
                let number = self.port(&interface).ok_or_else(|| {
                    let ports: Vec<&str> =
                        self.rules.setup.ports.names.iter().map(|(name, _)| &name[..]).collect();
                    let ports = ports.join(", ");
                    format!("there is no port `{interface}`: the ports are {ports}")
                })?;
                self.edits.push(Edit::Enable(number, is_enabled));
            }
            Command::Flush => {
                self.edits.push(Edit::Flush);
                self.names.clear();
                self.rows = Some(Vec::new());
                self.len = 0;
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes all rules and sets out, as where nothing was typed yet.
    fn clear(&mut self) {
        self.edits.extend([Edit::Flush, Edit::Mode(Mode::Ordered), Edit::PolicyDrop(false)]);
        for name in self.rules.sets().keys() {
            self.edits.push(Edit::Set(name.clone(), None));
            self.sets.insert(name.clone(), None);
        }
        self.rows = Some(Vec::new());
        self.len = 0;
    }

    /// All rules as they are now.
    fn rows(&mut self) -> &mut Vec<Row> {
        let rules = self.rules;
        let edits = &self.edits;
        self.rows.get_or_insert_with(|| {
            let row = |data: &Arc<RuleData>| Row { name: data.name.clone(), data: data.clone() };
            let mut rows: Vec<Row> = rules.iter().map(row).collect();
            // Until now there were additions alone.
            for edit in edits {
                if let Edit::Insert(place, prepared) = edit {
                    rows.insert((*place).min(rows.len()), row(&prepared.data));
                }
            }
            rows
        })
    }

    fn find(&mut self, selector: &Selector) -> Result<usize, String> {
        let len = self.len;
        match selector {
            Selector::Number(number) => match number.checked_sub(1).filter(|place| *place < len) {
                Some(place) => Ok(place),
                None if len == 0 => Err(format!("there is no rule {number}: there are no rules")),
                None => Err(format!("there is no rule {number}: rules have the numbers 1 to {len}")),
            },
            Selector::Name(name) => {
                let found = match &self.rows {
                    None if self.edits.is_empty() => self.rules.named(name),
                    _ => self.rows().iter().position(|row| row.name.as_deref() == Some(name)),
                };
                found.ok_or_else(|| self.no_name(name))
            }
            Selector::Same(rule) => {
                let text = without_comment(rule);
                let is_same = |row: &Row| same_text(&row.data.text, &text);
                self.rows()
                    .iter()
                    .position(is_same)
                    .ok_or_else(|| format!("there is no rule `{text}`: see `list`"))
            }
        }
    }

    fn no_name(&mut self, name: &str) -> String {
        let known: Vec<String> =
            self.rows().iter().filter_map(|row| Some(row.name.as_ref()?.to_string())).collect();
        match netbricks_core::nearest(name, known.iter().map(String::as_str)) {
            Some(nearest) => format!("there is no rule named `{name}`: did you mean `{nearest}`?"),
            None => format!("there is no rule named `{name}`: see `list`"),
        }
    }

    fn name_at(&mut self, place: usize) -> Option<Box<str>> {
        self.rows().get(place)?.name.clone()
    }

    fn add(&mut self, place: usize, name: Option<String>, rule: &Rule) -> Result<(), String> {
        let name: Option<Box<str>> = name.map(Into::into);
        if let Some(name) = &name {
            let is_taken = match self.names.get(name) {
                Some(is_there) => *is_there,
                None => {
                    self.rules.named(name).is_some()
                        && !self.edits.iter().any(|edit| matches!(edit, Edit::Flush))
                }
            };
            if is_taken {
                return Err(format!(
                    "a rule named `{name}` is there already: name this one otherwise, or `replace` it"
                ));
            }
            self.names.insert(name.clone(), true);
        }
        let prepared = Arc::new(prepare(&self.rules.setup, self, rule, name, &self.rules.layout)?);
        if prepared.data.translates() && !self.rules.may_translate {
            return Err(format!(
                "a translation needs both directions of its connections on one worker, and {} workers share these \
                 rules: put the rule into the file, so that they get them there, or run it with `workers = 1`",
                self.rules.setup.workers
            ));
        }
        if let Some(rows) = &mut self.rows {
            let data = prepared.data.clone();
            rows.insert(place.min(rows.len()), Row { name: data.name.clone(), data });
        } else if place != self.len {
            let data = prepared.data.clone();
            let rows = self.rows();
            rows.insert(place.min(rows.len()), Row { name: data.name.clone(), data });
        }
        self.edits.push(Edit::Insert(place, prepared));
        self.len += 1;
        self.added.push(place + 1);
        Ok(())
    }

    fn remove(&mut self, place: usize) {
        let row = self.rows().remove(place);
        if let Some(name) = row.name {
            self.names.insert(name, false);
        }
        self.edits.push(Edit::Remove(place));
        self.len -= 1;
    }

    fn move_rule(&mut self, selector: &Selector, is_before: bool, other: &Selector) -> Result<(), String> {
        let (from, other) = (self.find(selector)?, self.find(other)?);
        if from == other {
            return Err("a rule cannot be moved before or after itself".into());
        }
        // The place is counted without the rule itself.
        let target = if other > from { other - 1 } else { other };
        let to = if is_before { target } else { target + 1 };
        let rows = self.rows();
        let row = rows.remove(from);
        rows.insert(to.min(rows.len()), row);
        self.edits.push(Edit::Move(from, to));
        Ok(())
    }

    fn values(&self, name: &str) -> Result<Vec<Value>, String> {
        let values = self.set(name).map(<[Value]>::to_vec);
        values.ok_or_else(|| {
            format!("there is no set `@{name}`: define it first, as `define @{name} {{80, 443}}`")
        })
    }
}

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
    fn define(&mut self, name: String, values: Vec<Value>) -> Result<(), String> {
        self.sets.insert(name.clone(), Some(values.clone().into()));
        self.edits.push(Edit::Set(name.clone(), Some(values.into())));
        let affected: Vec<String> = self.naming(&name).into_iter().map(|name| format!("@{name}")).collect();
        let rows = self.rows().clone();
        for (place, row) in rows.iter().enumerate() {
            let uses = |set: &String| row.data.text.split([' ', ',', '{', '}']).any(|word| word == set);
            if !affected.iter().any(uses) {
                continue;
            }
            let rule = parse_rule(&row.data.text).map_err(|error| error.to_string())?;
            let mut prepared = prepare(&self.rules.setup, self, &rule, row.name.clone(), &self.rules.layout)
                .map_err(|problem| format!("rule {}: {problem}", place + 1))?;
            if let Some(data) = Arc::get_mut(&mut prepared.data) {
                data.counts = row.data.counts.clone();
            }
            let prepared = Arc::new(prepared);
            self.rows()[place].data = prepared.data.clone();
            self.edits.push(Edit::Recompile(place, prepared));
        }
        Ok(())
    }
}

fn names_set(value: &Value, name: &str) -> bool {
    match value {
        Value::Named(known) => known == name,
        Value::Set(values) => values.iter().any(|value| names_set(value, name)),
        _ => false,
    }
}

/// A rule's line without its comment, by which rules are the same.
fn without_comment(rule: &Rule) -> String {
    Rule { comment: None, ..rule.clone() }.to_string()
}

fn same_text(known: &str, text: &str) -> bool {
    known == text || known.strip_prefix(text).is_some_and(|rest| rest.starts_with(" comment \""))
}

/// Compiles a rule.
///
/// # Errors
/// The fault, as a sentence.
pub(crate) fn prepare(
    setup: &Setup,
    names: &dyn Names,
    rule: &Rule,
    name: Option<Box<str>>,
    layout: &crate::key::KeyLayout,
) -> Result<Prepared, String> {
    let conditions = compile(layout, &rule.matches, names).map_err(|error| error.to_string())?;
    let choices = |field: FieldId, to: &MapTo| match to {
        MapTo::Random => Ok(every(field)),
        MapTo::Value(value) => {
            intervals(field, value, names).map(Choices::new).map_err(|error| error.to_string())
        }
    };
    let data = RuleData {
        text: rule.to_string().into(),
        key: hash_text(&without_comment(rule), &Secret::from_seed(0)),
        name,
        is_stateful: rule.is_stateful,
        tests_kinds: [conditions.options, conditions.extensions],
        fields: setup.shared.fields(&conditions.fields),
        actions: shared_actions(actions(&rule.targets, &choices)?),
        counts: setup.shared.counts(setup.workers),
    };
    Ok(Prepared { data: Arc::new(data), conditions })
}

/// The values of a field of which a random one is taken.
///
/// Ports begin at 1024, since lower ones have a meaning.
fn every(field: FieldId) -> Choices {
    let info = field.info();
    let bits = info.kind.bits();
    let most = if bits == 0 { 0 } else { u128::MAX >> (128 - u32::from(bits)) };
    let is_port = matches!(info.kind, Kind::Bits { bits: 16, .. })
        && ["tcp-sport", "tcp-dport", "udp-sport", "udp-dport"].contains(&info.name.as_str());
    Choices::new([(if is_port { 1024 } else { 0 }, most)])
}

#[cfg(test)]
mod tests {
    use netbricks_core::PortNames;
    use netbricks_core::consistency::Contents;

    use super::*;
    use crate::state::First;

    fn rules(workers: usize, lines: &str) -> Rules {
        let shared = Default::default();
        let setup =
            Setup { capacity: 16_384, workers, ports: PortNames::default(), outputs: 1, seed: 7, shared };
        Rules::make(&First { setup, lines: lines.into() }).unwrap()
    }

    #[test]
    fn a_rule_that_is_typed_among_thousands_is_compared_with_those_that_hide_it() {
        let mut lines: String = (0..3_000)
            .map(|at| format!("add ip-saddr 10.{}.{}.0/24 tcp-dport 80 drop\n", at / 250, at % 250))
            .collect();
        lines += "add name web tcp-dport {80, 443} ip-daddr 192.0.2.0/24 accept\nadd name high udp-dport > 1023 drop\n";
        let rules = rules(1, &lines);
        assert!(rules.len() > FEW);
        let warned = |line: &str| plan(&rules, line).unwrap().warnings;
        for (line, by) in [
            ("add ip-saddr 10.3.7.9 tcp-dport 80 tcp-syn drop", "rule 758"),
            ("add ip-saddr 198.51.100.7 ip-daddr 192.0.2.1 tcp-dport {443, 80} accept", "rule web"),
            ("add udp-dport 5000-6000 ! udp-sport 53 accept", "rule high"),
        ] {
            let warnings = warned(line);
            let [(1, said)] = &warnings[..] else { panic!("{line}: {warnings:?}") };
            assert!(said.contains("never applies") && said.contains(by), "{line}: {said}");
        }
        for line in [
            "add ip-saddr 10.3.7.9 tcp-dport 81 drop",
            "add ip-saddr 10.3.0.0/16 tcp-dport 80 drop",
            "add tcp-dport {80, 443} accept",
            "add at 1 ip-saddr 10.3.7.9 tcp-dport 80 drop",
            "add udp-dport 1000-6000 accept",
        ] {
            assert!(warned(line).is_empty(), "{line}: {:?}", warned(line));
        }
    }

    #[test]
    fn a_translation_is_not_typed_where_workers_have_parts_of_the_connections() {
        let map = "add-stateful udp-dport 53 map ip-saddr 203.0.113.1";
        let refused = plan(&rules(2, "add all accept\n"), map).unwrap_err();
        assert!(
            refused.contains("2 workers share these rules") && refused.contains("workers = 1"),
            "{refused}"
        );
        // Sequence numbers do not change the worker of an answer.
        let shuffle = "add-stateful tcp-syn shuffle tcp-seq-num";
        assert_eq!(plan(&rules(2, "add all accept\n"), shuffle).unwrap().edits.len(), 1);
        assert_eq!(plan(&rules(1, "add all accept\n"), map).unwrap().edits.len(), 1);
        let of_the_file = rules(2, &format!("{map}\n"));
        assert_eq!(
            plan(&of_the_file, "add-stateful tcp-dport 53 map tcp-sport random").unwrap().edits.len(),
            1
        );
    }
}
