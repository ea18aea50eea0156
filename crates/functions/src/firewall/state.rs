//! The rules as declared state: made from a file's lines, changed by handlers, exported as lines.

use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::sealed::{hash_text, open, seal};
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::state::Mobility;
use netbricks_core::tables::{Changing, Secret};
use netbricks_core::{Declared, PortNames};

use super::language::{SetChange, parse_set_change};
use super::rules::{Change, Engine, Refused, Rules, Setup};

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;
const FORMAT: &str = "firewall-rules-1";
const SEED: u64 = 0x6677_2d72_756c_6573;

/// The rules of the configuration, and what they need.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) setup: Setup,
    /// The lines of the configuration.
    pub(super) lines: Arc<str>,
}

/// Workers and the seed do not make other rules.
impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        (self.setup.capacity, self.setup.engine, &self.setup.ports, &self.lines)
            == (other.setup.capacity, other.setup.engine, &other.setup.ports, &other.lines)
    }
}

impl Contents for Rules {
    type Config = First;
    /// Other rules in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;

    /// Room, search and ports leave the rules as they are.
    fn gives_way(old: &First, new: &First) -> bool {
        old.lines != new.lines
    }

    fn fit(&self, First { setup, .. }: &First) -> Result<Option<Change>, String> {
        self.fitted(setup).map(Some).map_err(|wrong| wrong.to_string())
    }

    fn make(first: &First) -> Result<Self, String> {
        let mut rules = Self::load(first.setup.clone(), &first.lines).map_err(|wrong| wrong.to_string())?;
        rules.origin = hash(&first.lines);
        Ok(rules)
    }
    fn least() -> Self {
        let setup =
            Setup { capacity: 1, engine: Engine::Compiled, workers: 1, ports: PortNames::default(), seed: 0 };
        Self::load(setup, "").expect("a text without lines has no wrong one")
    }
}

/// Makes a change that is planned against the present list.
fn make<T>(
    rules: &Bounded<Rules>,
    plan: impl Fn(&Rules) -> Result<(Change, T), String>,
) -> Result<T, String> {
    for _ in 0..TRIES {
        let (change, told) = rules.read(&plan)?;
        match rules.update(change).map_err(|cannot| cannot.to_string())? {
            Ok(()) => return Ok(told),
            Err(Refused::Full(problem)) => return Err(problem),
            Err(Refused::Changed) => {}
        }
    }
    Err("others change the rules all the time: try again".into())
}

/// Puts the list of a text in the present one's place, all of it or nothing.
///
/// # Errors
/// Every wrong line, or the want of room.
pub(super) fn replace(rules: &Bounded<Rules>, text: &str) -> Result<String, String> {
    let plan =
        |rules: &Rules| rules.replacement(text).map(|change| (change, ())).map_err(|wrong| wrong.to_string());
    make(rules, plan)?;
    rules.read(|rules| Ok(format!("{} rules, {} sets", rules.built.data.len(), rules.list.sets.len())))
}

/// Changes sets as the lines say, all of them or none.
///
/// # Errors
/// Every wrong line, or the want of room.
pub(super) fn change_sets(rules: &Bounded<Rules>, text: &str) -> Result<String, String> {
    let mut changes: Vec<SetChange> = Vec::new();
    let mut wrong = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        match parse_set_change(line) {
            Ok(None) => {}
            Ok(Some(change)) => changes.push(change),
            Err(error) => wrong += &format!("line {number}, {error}\n"),
        }
    }
    if !wrong.is_empty() {
        return Err(format!("{wrong}nothing is changed"));
    }
    let [added, removed] = make(rules, |rules| rules.set_change(&changes))?;
    Ok(format!("{added} added, {removed} removed"))
}

/// The hash of the configuration's lines.
fn hash(lines: &str) -> u64 {
    hash_text(lines, &Secret::from_seed(SEED))
}

/// The format is lines: the hash of the configuration's lines, those that make the rules, and the checksum.
impl Declared for Rules {
    fn export(&self) -> Vec<u8> {
        seal(format!("{FORMAT} {:016x}\n{}", self.origin, self.list), SEED)
    }

    /// Takes over changes made by handlers, unless the configuration has other lines since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let (origin, lines) = open(bytes, SEED, FORMAT, "rules")?;
        if origin != format!("{:016x}", self.origin) {
            return Ok(());
        }
        let change = self.replacement(lines).map_err(|wrong| wrong.to_string())?;
        self.apply(&change).map_err(|refused| format!("{refused:?}"))
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.entries() as u64, self.setup.capacity as u64)
    }

    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }

    fn is_written(&self) -> bool {
        true
    }
}
