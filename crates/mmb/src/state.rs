//! The rules as declared state: made from a file's lines, changed by handlers, exported as lines.

use std::collections::HashSet;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::sealed::{damaged, hash_text, open, seal};
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::state::Mobility;
use netbricks_core::tables::{Changing, Secret};
use netbricks_core::{Declared, PortNames};

use crate::action::Action;
use crate::change::{Over, Planned, plan, plan_over};
use crate::compile::{Names, compile, unknown_out};
use crate::connection::RuleId;
use crate::language::{LONGEST_LINE, parse_rule};
use crate::rule::{Command, Mode, Value};
use crate::rules::{Edit, Edits, Prepared, Refused, Rules, Setup, port};
use crate::shared::Shared;
use crate::shown;

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;

/// The rules of the configuration, and what they need.
#[derive(Clone, Debug)]
pub(crate) struct First {
    /// The facts that rules need beside their lines.
    pub(crate) setup: Setup,
    /// The lines of the configuration.
    pub(crate) lines: Arc<str>,
}

/// Workers and the seed do not make other rules.
impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        (self.setup.capacity, self.setup.outputs, &self.setup.ports, &self.lines)
            == (other.setup.capacity, other.setup.outputs, &other.setup.ports, &other.lines)
    }
}

impl Contents for Rules {
    type Config = First;
    /// Other rules in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;

    /// Room, ways out and ports leave the rules as they are.
    fn gives_way(old: &First, new: &First) -> bool {
        old.lines != new.lines
    }

    fn fit(&self, First { setup, .. }: &First) -> Result<Option<Edits>, String> {
        self.fitted(setup).map(Some)
    }

    fn make(first: &First) -> Result<Self, String> {
        let mut rules = Self::new(first.setup.clone());
        load(&mut rules, &first.lines)?;
        rules.origin = hash(&first.lines);
        rules.may_translate = first.setup.workers == 1 || rules.translates();
        Ok(rules)
    }
    /// Both copies count in the same counters.
    fn copy(&self) -> Option<Self> {
        Some(self.clone())
    }
    fn least() -> Self {
        let setup = Setup {
            capacity: 1,
            workers: 1,
            ports: PortNames::default(),
            outputs: 1,
            seed: 0,
            shared: Shared::default(),
        };
        Self::new(setup)
    }
}

/// Names as they are with other ports.
struct Among<'r> {
    rules: &'r Rules,
    ports: &'r PortNames,
}

impl Names for Among<'_> {
    fn set(&self, name: &str) -> Option<&[Value]> {
        self.rules.set(name)
    }
    fn port(&self, name: &str) -> Option<u16> {
        port(self.ports, name)
    }
    fn unknown_out(&self) -> Option<String> {
        unknown_out(self.ports)
    }
}

impl Rules {
    /// The changes that fit the rules to other room, ways out or ports.
    ///
    /// # Errors
    /// The first rule that does not fit.
    fn fitted(&self, setup: &Setup) -> Result<Edits, String> {
        // The number of workers stays while a process runs, and counts are by worker.
        let setup = Setup {
            workers: self.setup.workers,
            seed: self.setup.seed,
            shared: self.setup.shared.clone(),
            ..setup.clone()
        };
        let names = Among { rules: self, ports: &setup.ports };
        if self.classifier.len() > setup.capacity {
            return Err(format!(
                "the rules have {} conditions, and `capacity` is {}",
                self.classifier.len(),
                setup.capacity
            ));
        }
        let mut edits = vec![Edit::Setup(Arc::new(setup.clone()))];
        for (place, data) in self.iter().enumerate() {
            let balances = |action: &Action| matches!(action, Action::Balance(outputs) if outputs.iter().any(|output| usize::from(*output) >= setup.outputs));
            if data.actions.iter().any(balances) {
                return Err(format!("rule {} names a way out that is not there: {}", place + 1, data.text));
            }
            // Conditions name ports by their numbers.
            if self.setup.ports == setup.ports || !self.tests_ports(place) {
                continue;
            }
            let rule = parse_rule(&data.text).map_err(|error| error.to_string())?;
            let conditions = compile(&self.layout, &rule.matches, &names)
                .map_err(|error| format!("rule {}: {error}", place + 1))?;
            edits.push(Edit::Recompile(place, Arc::new(Prepared { data: data.clone(), conditions })));
        }
        for number in &self.disabled {
            let after = self.setup.ports.name(number - 1).and_then(|name| names.port(name));
            if after != Some(*number) {
                edits.push(Edit::Enable(*number, true));
                edits.extend(after.map(|number| Edit::Enable(number, false)));
            }
        }
        Ok(Edits { base: self.version, edits: edits.into() })
    }
}

/// Makes the changes of these lines.
///
/// # Errors
/// Every wrong line, the want of room, or an `expect` that does not hold.
pub(crate) fn load(rules: &mut Rules, lines: &str) -> Result<Planned, String> {
    // A text is shown by its lines' numbers, also when it has one line.
    let planned = plan(rules, &format!("{lines}\n"))?;
    let edits = Edits { base: rules.version, edits: planned.edits.clone().into() };
    match rules.apply(&edits) {
        Ok(()) => shown::expected(rules, &planned).map(|()| planned),
        Err(Refused::Full(problem)) => Err(problem),
        Err(Refused::Changed) => Err("the rules changed meanwhile".into()),
    }
}

/// Makes the changes of these lines while packets flow, or replaces all rules by theirs: all of them or none.
///
/// # Errors
/// Every wrong line, or the want of room.
pub(crate) fn change(rules: &Bounded<Rules>, lines: &str, over: Over) -> Result<Planned, String> {
    for _ in 0..TRIES {
        let (version, planned) = rules.read(|rules| {
            let planned = plan_over(rules, lines, over);
            (rules.version, planned.and_then(|planned| tried(rules, &planned).map(|()| planned)))
        });
        let planned = planned?;
        if planned.edits.is_empty() {
            return Ok(planned);
        }
        let edits = Edits { base: version, edits: planned.edits.clone().into() };
        match rules.update(edits).map_err(|cannot| cannot.to_string())? {
            Ok(()) => return Ok(planned),
            Err(Refused::Full(problem)) => return Err(problem),
            Err(Refused::Changed) => {}
        }
    }
    Err("others change the rules all the time: try again".into())
}

/// Checks that there is room for changes, and that the questions behind them have answers, before anything changes.
///
/// # Errors
/// The want of room, an `expect` that would not hold, or another question that has no answer.
pub(crate) fn tried(rules: &Rules, planned: &Planned) -> Result<(), String> {
    rules.has_room(&planned.edits)?;
    if planned.edits.is_empty() || planned.questions.is_empty() {
        return Ok(());
    }
    // Conditions have the places of these rules' fields. Questions count nothing at rules that both have.
    let mut after = rules.clone();
    let edits = Edits { base: after.version, edits: planned.edits.clone().into() };
    match after.apply(&edits) {
        Ok(()) => shown::answer(&after, planned).map(drop),
        Err(Refused::Full(problem)) => Err(problem),
        Err(Refused::Changed) => Err("the rules changed meanwhile".into()),
    }
}

/// Values of a set in one line, so that no line is too long to be read.
const VALUES: usize = 256;

/// Values in parts, each of which a line takes.
fn in_lines(values: &[Value]) -> Vec<&[Value]> {
    // The command, the name and the brace take the rest of a line.
    const MOST: usize = LONGEST_LINE - 1_024;
    let (mut parts, mut first, mut len) = (Vec::new(), 0, 0);
    for (at, value) in values.iter().enumerate() {
        // A comma and a space stand between two.
        let own = value.to_string().len() + 2;
        if at > first && (at - first == VALUES || len + own > MOST) {
            parts.push(&values[first..at]);
            (first, len) = (at, 0);
        }
        len += own;
    }
    parts.push(&values[first..]);
    parts
}

/// The sets, each behind those that it names.
pub(crate) fn in_order(rules: &Rules) -> Vec<(&str, &[Value])> {
    let sets = rules.sets();
    let mut done: Vec<(&str, &[Value])> = Vec::with_capacity(sets.len());
    let mut placed: HashSet<&str> = HashSet::with_capacity(sets.len());
    for first in sets.keys() {
        // A set is placed when it comes up a second time: those that it names are above it until then.
        let mut waiting = vec![(first.as_str(), false)];
        while let Some((name, is_second)) = waiting.pop() {
            let Some((name, values)) = sets.get_key_value(name).filter(|_| !placed.contains(name)) else {
                continue;
            };
            if is_second {
                placed.insert(name);
                done.push((name, values));
                continue;
            }
            waiting.push((name, true));
            let mut named = Vec::new();
            values.iter().for_each(|value| sets_of(value, &mut named));
            waiting.extend(named.into_iter().map(|name| (name, false)));
        }
    }
    done
}

/// The names of the sets that a value consists of.
fn sets_of<'v>(value: &'v Value, names: &mut Vec<&'v str>) {
    match value {
        Value::Named(name) => names.push(name),
        Value::Set(values) => values.iter().for_each(|value| sets_of(value, names)),
        _ => {}
    }
}

/// The lines that make these rules.
pub(crate) fn lines(rules: &Rules) -> String {
    let mut text = String::new();
    if rules.mode == Mode::AllMatch {
        text += "mode all-match\n";
    }
    if rules.drops_by_default {
        text += "policy drop\n";
    }
    for port in &rules.disabled {
        let known = rules.setup.ports.names.iter().find(|(_, number)| number + 1 == *port);
        if let Some((name, _)) = known {
            text += &Command::Enable(name.clone(), false).to_string();
            text.push('\n');
        }
    }
    for (name, values) in in_order(rules) {
        for (at, part) in in_lines(values).into_iter().enumerate() {
            let (name, part) = (name.to_owned(), part.to_vec());
            let line = if at == 0 { Command::Define(name, part) } else { Command::Extend(name, part) };
            text += &line.to_string();
            text.push('\n');
        }
    }
    for rule in rules.iter() {
        let stateful = if rule.is_stateful { "add-stateful " } else { "add " };
        text += stateful;
        if let Some(name) = &rule.name {
            text += "name ";
            text += name;
            text.push(' ');
        }
        text += rule.text.strip_prefix("stateful ").unwrap_or(&rule.text);
        text.push('\n');
    }
    text
}

const FORMAT: &str = "mmb-rules-2";
const SEED: u64 = 0x006d_6d62_7275_6c65;

/// The hash of the configuration's lines.
fn hash(lines: &str) -> u64 {
    hash_text(lines, &Secret::from_seed(SEED))
}

/// The format is lines.
///
/// First is the hash of the configuration's lines, then the epoch with the numbers of stateful rules. The lines that make
/// the rules and the checksum follow.
impl Declared for Rules {
    fn export(&self) -> Vec<u8> {
        let mut numbers = format!("{:x}", self.epoch);
        for id in self.ids() {
            numbers += &format!(" {:x}", id.bits());
        }
        seal(format!("{FORMAT} {:016x}\n{numbers}\n{}", self.origin, lines(self)), SEED)
    }

    /// Takes over changes made by handlers, unless the configuration has other lines since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let (origin, rest) = open(bytes, SEED, FORMAT, "rules")?;
        if origin != format!("{:016x}", self.origin) {
            return Ok(());
        }
        let (numbers, lines) = rest.split_once('\n').ok_or_else(|| damaged("rules"))?;
        let mut numbers = numbers.split(' ').map(|number| u64::from_str_radix(number, 16));
        let mut number = || numbers.next().transpose().map_err(|_| damaged("rules"));
        let epoch = number()?.unwrap_or(0) as u32;
        let mut ids = Vec::new();
        while let Some(bits) = number()? {
            ids.push(RuleId::of(bits));
        }
        let mut fresh = Self::new(self.setup.clone());
        fresh.may_translate = self.may_translate;
        load(&mut fresh, lines)?;
        fresh.set_ids(&ids, epoch)?;
        fresh.origin = self.origin;
        fresh.version = self.version + 1;
        *self = fresh;
        Ok(())
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.classifier.len() as u64, self.setup.capacity as u64)
    }

    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }

    fn is_written(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &str) -> Rules {
        let setup = Setup {
            capacity: 1 << 18,
            workers: 1,
            ports: PortNames::default(),
            outputs: 4,
            seed: 7,
            shared: Shared::default(),
        };
        Rules::make(&First { setup, lines: lines.into() }).unwrap()
    }

    /// Rules come back from their lines and their export as they were.
    #[track_caller]
    fn comes_back(rules: &Rules) {
        let text = lines(rules);
        let again = self::rules(&text);
        assert_eq!(lines(&again), text);
        let mut imported = Rules::make(&First { setup: rules.setup.clone(), lines: "".into() }).unwrap();
        imported.origin = rules.origin;
        imported.import(&rules.export(), 0).unwrap();
        assert_eq!(lines(&imported), text);
    }

    #[test]
    fn sets_come_back_behind_those_that_they_name() {
        let rules = rules(
            "define @zz {80}\ndefine @m {@zz, 22}\ndefine @aa {@m, @zz, 443}\nadd tcp-dport @aa drop\n",
        );
        assert_eq!(
            lines(&rules),
            "define @zz {80}\ndefine @m {@zz, 22}\ndefine @aa {@m, @zz, 443}\nadd tcp-dport @aa drop\n"
        );
        comes_back(&rules);
    }

    #[test]
    fn a_set_that_is_longer_than_a_line_comes_back() {
        let mut text = String::from("define @large {10.0.0.0}\n");
        for high in 0..40 {
            let values: Vec<String> = (1..250).map(|low| format!("10.200.{high}.{low}/32")).collect();
            text += &format!("extend @large {{{}}}\n", values.join(", "));
        }
        text += "add ip-saddr @large drop\n";
        let rules = rules(&text);
        assert_eq!(rules.sets()["large"].len(), 1 + 40 * 249);
        comes_back(&rules);
    }

    #[test]
    fn a_set_does_not_contain_itself() {
        let mut rules = rules("define @a {80}\ndefine @b {@a, 443}\ndefine @c {@b}\n");
        for line in ["extend @a {@c}", "define @a {1, @b}", "extend @a {@a}"] {
            let refused = load(&mut rules, line).map(drop).unwrap_err();
            assert!(refused.contains("the set `@a` would contain itself"), "{line}: {refused}");
        }
        load(&mut rules, "define @b {443}\nextend @a {@c}").unwrap();
        comes_back(&rules);
    }
}
