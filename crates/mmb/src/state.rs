//! The rules as declared state: made from a file's lines, changed by handlers, exported as lines.

use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::sealed::{damaged, hash_text, open, seal};
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::state::Mobility;
use netbricks_core::tables::{Changing, Secret};
use netbricks_core::{Declared, PortNames};

use crate::change::{Over, Planned, plan, plan_over};
use crate::connection::RuleId;
use crate::rule::{Command, Mode};
use crate::rules::{Edits, Refused, Rules, Setup};
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

/// Workers, ports and the seed do not make other rules.
impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        (self.setup.capacity, self.setup.outputs, &self.lines)
            == (other.setup.capacity, other.setup.outputs, &other.lines)
    }
}

impl Contents for Rules {
    type Config = First;
    /// Other rules in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;

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
    let mut after = Rules::new(rules.setup.clone());
    after.may_translate = rules.may_translate;
    load(&mut after, &self::lines(rules))?;
    let edits = Edits { base: after.version, edits: planned.edits.clone().into() };
    match after.apply(&edits) {
        Ok(()) => shown::answer(&after, planned).map(drop),
        Err(Refused::Full(problem)) => Err(problem),
        Err(Refused::Changed) => Err("the rules changed meanwhile".into()),
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
    for (name, values) in rules.sets() {
        text += &Command::Define(name.clone(), values.to_vec()).to_string();
        text.push('\n');
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
