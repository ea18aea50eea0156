//! From lines to changes of the rules.

mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netbricks_core::sealed::hash_text;
use netbricks_core::tables::Secret;

use self::sets::{kinds, sets_of};
use crate::action::{Choices, actions};
use crate::compile::{Names, compile, intervals};
use crate::field::{FieldId, Kind};
use crate::hidden::{Row, shadowed};
use crate::key::KeyLayout;
use crate::language::{Context, LONGEST_LINE};
use crate::rule::{Command, MapTo, Match, Mode, Rule, Selector, Value};
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

impl Planned {
    /// The changes that a user sees: a layout of key vectors is none.
    pub(crate) fn changes(&self) -> usize {
        self.edits.iter().filter(|edit| !matches!(edit, Edit::Layout(_))).count()
    }
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
    /// The places of all fields that rules test by now.
    layout: Arc<KeyLayout>,
    edits: Vec<Edit>,
    added: Vec<usize>,
    /// The line at hand.
    line: usize,
    /// Rules that lines put behind all others, until `rows` has all rules.
    behind: Vec<Row>,
    /// Sets that lines gave other values, and those that name such a set, each with the last such line.
    redefined: BTreeMap<String, usize>,
    /// Sets that rules name, with their `@`, once a line redefines one. Rules that went may be counted.
    named: Option<BTreeSet<String>>,
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
    fn unknown_out(&self) -> Option<String> {
        self.rules.unknown_out()
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
    let kinds = match over {
        Over::Present => kinds(rules),
        Over::Nothing => BTreeMap::new(),
    };
    let ports: Vec<String> = rules.setup.ports.names.iter().map(|(name, _)| name.clone()).collect();
    let unknown_out = rules.unknown_out();
    let context = Context {
        outputs: Some(rules.setup.outputs),
        interfaces: (!ports.is_empty()).then_some(&ports[..]),
        unknown_out: unknown_out.as_deref(),
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
        layout: rules.layout.clone(),
        edits: Vec::new(),
        added: Vec::new(),
        line: 0,
        behind: Vec::new(),
        redefined: BTreeMap::new(),
        named: None,
    };
    let mut planned = Planned {
        warnings: file.warnings.into_iter().map(|(line, warning)| (line, warning.to_string())).collect(),
        ..Planned::default()
    };
    if over == Over::Nothing {
        after.clear();
    }
    let several = text.contains('\n');
    let fault =
        |line: usize, problem: String| if several { format!("line {line}: {problem}") } else { problem };
    let (commands, forgotten) = batches(file.commands).map_err(|(line, problem)| fault(line, problem))?;
    planned.warnings.retain(|(line, _)| !forgotten.iter().any(|lines| lines.contains(line)));
    for (line, command) in commands {
        match command {
            Command::List
            | Command::Show(..)
            | Command::Explain(_)
            | Command::Test(_)
            | Command::Expect(..) => planned.questions.push((line, command)),
            change => {
                // Lines that change sets come to one new condition of a rule.
                if !matches!(change, Command::Define(..) | Command::Extend(..) | Command::Shrink(..)) {
                    after.recompile().map_err(|(line, problem)| fault(line, problem))?;
                }
                after.line = line;
                after.change(change).map_err(|problem| fault(line, problem))?;
            }
        }
    }
    after.recompile().map_err(|(line, problem)| fault(line, problem))?;
    let may_grow = |edit: &Edit| !matches!(edit, Edit::Remove(_) | Edit::Move(..) | Edit::Flush);
    let may_grow = after.edits.iter().all(may_grow);
    let mut modes =
        after.edits.iter().filter_map(|edit| if let Edit::Mode(mode) = edit { Some(*mode) } else { None });
    // Where all rules apply, none hides another.
    if modes.next_back().unwrap_or(rules.mode) == Mode::Ordered {
        planned.warnings.extend(shadowed(rules, after.rows.as_deref(), &after.behind, may_grow));
    }
    planned.edits = after.edits;
    planned.added = after.added;
    Ok(planned)
}

/// A command with the number of its line.
type Numbered = (usize, Command);
/// The first and the last line of a batch.
type Lines = std::ops::RangeInclusive<usize>;

/// The commands that count, and the lines that an `abort` forgets.
///
/// # Errors
/// The line of a batch without a beginning or an end, or within another one, and the fault.
fn batches(commands: Vec<Numbered>) -> Result<(Vec<Numbered>, Vec<Lines>), (usize, String)> {
    let (mut done, mut forgotten) = (Vec::with_capacity(commands.len()), Vec::new());
    let mut begun: Option<(usize, usize)> = None;
    for (line, command) in commands {
        match (command, begun) {
            (Command::Begin, None) => begun = Some((line, done.len())),
            (Command::Begin, Some((first, _))) => {
                return Err((
                    line,
                    format!("a batch began in line {first} already: end it by `commit` or `abort`"),
                ));
            }
            (Command::Commit, Some(_)) => begun = None,
            (Command::Abort, Some((first, len))) => {
                done.truncate(len);
                forgotten.push(first..=line);
                begun = None;
            }
            (end @ (Command::Commit | Command::Abort), None) => {
                return Err((line, format!("no batch has begun: write `begin` before `{end}`")));
            }
            (command, _) => done.push((line, command)),
        }
    }
    match begun {
        None => Ok((done, forgotten)),
        Some((line, _)) => {
            let problem = "the batch has no end: write `commit` into the same text, or type the lines into \
                           `netbricks shell`, which holds them until then";
            Err((line, problem.into()))
        }
    }
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
                self.add(place, name, rule)?;
            }
            Command::Delete(selector) => {
                let place = self.find(&selector)?;
                self.remove(place);
            }
            Command::Replace(selector, rule) => {
                let place = self.find(&selector)?;
                let name = self.name_at(place);
                self.remove(place);
                self.add(place, name.map(Into::into), rule)?;
            }
            Command::Move(selector, is_before, other) => self.move_rule(&selector, is_before, &other)?,
            Command::Define(name, values) => {
                are_short(&values)?;
                self.define(name, values)?;
            }
            Command::Extend(name, values) => {
                are_short(&values)?;
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
                self.behind.clear();
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
        let behind = &mut self.behind;
        self.rows.get_or_insert_with(|| {
            // Until now rules were added behind the others alone.
            rules.iter().map(Row::of).chain(behind.drain(..)).collect()
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

    fn add(&mut self, place: usize, name: Option<String>, rule: Rule) -> Result<(), String> {
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
        self.lay_out(&rule.matches);
        let prepared = Arc::new(prepare(&self.rules.setup, self, &rule, name, &self.layout)?);
        is_short("the rule", prepared.data.text.len())?;
        if prepared.data.translates() && !self.rules.may_translate {
            return Err(format!(
                "a translation needs both directions of its connections on one worker, and {} workers share these \
                 rules: put the rule into the file, so that they get them there, or run it with `workers = 1`",
                self.rules.setup.workers
            ));
        }
        let data = prepared.data.clone();
        if let Some(named) = &mut self.named {
            named.extend(sets_of(&data.text));
        }
        let row = Row { line: self.line, rule: Some(Arc::new(rule)), ..Row::of(&data) };
        if self.rows.is_none() && place == self.len {
            self.behind.push(row);
        } else {
            let rows = self.rows();
            rows.insert(place.min(rows.len()), row);
        }
        self.edits.push(Edit::Insert(place, prepared));
        self.len += 1;
        self.added.push(place + 1);
        Ok(())
    }

    /// Gives the fields that matches test places in key vectors.
    fn lay_out(&mut self, matches: &[Match]) {
        if let Some(wider) = self.layout.with(matches) {
            self.layout = Arc::new(wider);
            self.edits.push(Edit::Layout(self.layout.clone()));
        }
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
        let line = self.line;
        let rows = self.rows();
        let row = Row { line, ..rows.remove(from) };
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

/// Bytes of a line that stand before a rule or a value: the command, a name and their like.
const BEFORE: usize = 1 << 10;

/// As [`is_short`], of each value of a set.
fn are_short(values: &[Value]) -> Result<(), String> {
    values.iter().try_for_each(|value| is_short("a value of the set", value.to_string().len()))
}

/// Refuses a part of a line that is too long to be read again, as it is written in full.
fn is_short(part: &str, len: usize) -> Result<(), String> {
    let most = LONGEST_LINE - BEFORE;
    if len <= most {
        return Ok(());
    }
    Err(format!(
        "{part} takes {len} bytes as it is written in full, and {most} are possible: split it, or `define` a set in \
         several lines"
    ))
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
    layout: &KeyLayout,
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
        // Numbers of stateful rules are made of it.
        key: if rule.is_stateful { hash_text(&without_comment(rule), &Secret::from_seed(0)) } else { 0 },
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
    use crate::hidden::FEW;
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

    /// No packet of the new rule meets the one that hides it.
    #[test]
    fn a_rule_is_hidden_by_one_that_others_hide() {
        for others in [3, 40, 2_000] {
            let mut lines = String::from("add ip-saddr 10.3.0.0/17 drop\nadd ip-saddr 10.3.128.0/17 drop\n");
            lines += &(0..others).map(|at| format!("add udp-dport {} accept\n", 1 + at)).collect::<String>();
            lines += "add name all ip-saddr 10.3.0.0/16 drop\n";
            let rules = rules(1, &lines);
            let warnings = plan(&rules, "add ip-saddr 10.3.0.0/16 tcp-dport 80 accept").unwrap().warnings;
            let [(1, said)] = &warnings[..] else { panic!("{others}: {warnings:?}") };
            assert!(said.contains("rule all"), "{others}: {said}");
            let wider = plan(&rules, "add ip-saddr 10.2.0.0/15 tcp-dport 5000 accept").unwrap().warnings;
            assert!(wider.is_empty(), "{others}: {wider:?}");
        }
    }

    /// The lines that are warned about, each with its warning.
    fn warned(rules: &Rules, text: &str) -> Vec<(usize, String)> {
        plan(rules, text).unwrap_or_else(|error| panic!("{text}: {error}")).warnings
    }

    #[test]
    fn each_rule_of_a_text_is_compared_with_the_rules_after_it() {
        let few = rules(1, "add tcp-dport 80 drop\nadd udp-dport 53 accept\nadd all accept\n");
        let many: String =
            (0..2_000).map(|at| format!("add ip-saddr 10.9.{}.{} drop\n", at / 250, at % 250)).collect();
        let many =
            rules(1, &format!("add tcp-dport 80 drop\nadd udp-dport 53 accept\nadd all accept\n{many}"));
        assert!(many.len() > FEW);
        for rules in [&few, &many] {
            let hidden = "the rule never applies: rule 3";
            for (text, lines) in [
                ("add udp-dport 7 drop\nadd udp-dport 8 drop\n", vec![1, 2]),
                ("add at 1 udp-dport 7 drop\nadd udp-dport 8 drop\n", vec![2]),
                ("move 1 after 3", vec![1]),
                ("delete 3\nadd udp-dport 8 drop\n", vec![]),
                ("add at 4 udp-dport 8 drop\nmove 4 before 1\n", vec![]),
                ("begin\nadd udp-dport 7 drop\nabort\nadd at 1 udp-dport 8 drop\n", vec![]),
            ] {
                let found = warned(rules, text);
                assert_eq!(
                    found.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
                    lines,
                    "{text}: {found:?}"
                );
                let is_hidden =
                    |warning: &String| warning.contains("never applies") && warning.contains("rule ");
                assert!(found.iter().all(|(_, warning)| is_hidden(warning)), "{text}: {found:?}");
                if text.starts_with("add udp") {
                    assert!(found.iter().all(|(_, warning)| warning.starts_with(hidden)), "{found:?}");
                }
            }
        }
        let replaced = warned(&few, "add udp-dport 9 accept\nreplace 4 udp-dport 7 drop");
        assert_eq!(replaced.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2], "{replaced:?}");
        let twice = warned(&rules(1, "add all accept\n"), "add udp-dport 7 drop\nadd udp-dport 7 accept\n");
        assert_eq!(twice.len(), 2, "{twice:?}");
    }

    #[test]
    fn a_rule_that_comes_to_hide_others_is_told() {
        let rules = rules(1, "add tcp-dport 80 drop\nadd name dns udp-dport 53 accept\nadd all accept\n");
        for (line, told) in [
            ("move 3 before 1", "rule 2 and 1 more never apply any more"),
            ("add at 2 udp-dport {53, 54} drop", "rule dns never applies any more"),
            ("replace 1 ip-proto udp accept", ""),
        ] {
            let all: String =
                warned(&rules, line).iter().map(|(_, warning)| format!("{warning}\n")).collect();
            assert!(all.starts_with(told) && all.is_empty() == told.is_empty(), "{line}: {all}");
        }
    }

    #[test]
    fn a_batch_begins_and_ends_within_a_text() {
        let rules = rules(1, "add all accept\n");
        let edits = |text: &str| plan(&rules, text).map(|planned| planned.changes());
        assert_eq!(edits("begin\nadd at 1 tcp-dport 80 drop\ncommit\n"), Ok(1));
        assert_eq!(edits("begin\nadd at 1 tcp-dport 80 drop\nabort\n"), Ok(0));
        assert_eq!(
            edits("add at 1 tcp-dport 80 drop\nbegin\nflush\nabort\nadd at 1 tcp-dport 81 drop\n"),
            Ok(2)
        );
        for (text, told) in [
            ("begin", "the batch has no end: write `commit` into the same text"),
            ("begin\nflush\n", "line 1: the batch has no end"),
            ("commit", "no batch has begun: write `begin` before `commit`"),
            ("flush\nabort\n", "line 2: no batch has begun: write `begin` before `abort`"),
            ("begin\nbegin\ncommit\n", "line 2: a batch began in line 1 already"),
        ] {
            let refused = edits(text).unwrap_err();
            assert!(refused.starts_with(told), "{text}: {refused}");
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
        assert_eq!(plan(&rules(2, "add all accept\n"), shuffle).unwrap().changes(), 1);
        assert_eq!(plan(&rules(1, "add all accept\n"), map).unwrap().changes(), 1);
        let of_the_file = rules(2, &format!("{map}\n"));
        assert_eq!(
            plan(&of_the_file, "add-stateful tcp-dport 53 map tcp-sport random").unwrap().changes(),
            1
        );
    }
}
