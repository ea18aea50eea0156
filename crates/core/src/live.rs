//! Settings that change while packets move: the function's own handlers write the difference.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

use crate::control_copy::ControlCopy;
use crate::node::HandlerKind;
use crate::settings::Settings;

/// Entries of settings, such as routes: for each its name, and the line by which a handler sets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The lines, each with its place in the order of the file.
    by_name: BTreeMap<String, (usize, String)>,
    next: usize,
}

impl Entries {
    /// Puts an entry in, behind all others or in the place of one of the same name.
    pub fn set(&mut self, name: String, line: String) {
        match self.by_name.get_mut(&name) {
            Some((_, known)) => *known = line,
            None => drop(self.by_name.insert(name, (self.next, line))),
        }
        self.next += 1;
    }
    /// The line of an entry.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|(_, line)| line.as_str())
    }
    /// Takes an entry out.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }
    /// All lines, in the order of the file.
    pub fn into_lines(self) -> Vec<String> {
        let mut lines: Vec<(usize, String)> = self.by_name.into_values().collect();
        lines.sort_unstable();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

impl FromIterator<(String, String)> for Entries {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        let mut all = Self::default();
        entries.into_iter().for_each(|(name, line)| all.set(name, line));
        all
    }
}

/// A write of a handler: its name and its argument.
pub type Written<'w> = (&'w str, &'w str);

/// Settings some keys of which list entries, such as routes, that the function's handlers add and remove, too.
///
/// [`Registry::live`](crate::Registry::live) takes note of them. Where a file is applied in which only such keys differ,
/// the node goes on as it is, and [`LiveChange`] writes the difference.
///
/// The handlers belong to [state that workers share](crate::consistency), and take several lines, all or none.
pub trait LiveSettings: Settings {
    /// The keys that list the entries; the first is a list of lines as the handler [`ADD`](Self::ADD) takes them.
    const LIVE: &'static [&'static str];
    /// The name of several entries, for the operator: `"routes"`.
    const ENTRIES: &'static str;
    /// The handler that adds entries, or gives them another value; one a line.
    const ADD: &'static str;
    /// The handler that removes entries, by their names; one a line.
    const REMOVE: &'static str;

    /// All entries. It is asked of settings that passed their checks.
    fn entries(&self) -> Entries;

    /// The name of an entry that stands first in a line of an argument, in the form that [`entries`](Self::entries) has.
    fn entry(word: &str) -> String {
        word.to_owned()
    }

    /// Makes the change that a write of a handler has made, where it is of entries alone.
    fn follow(entries: &mut Entries, written: Written<'_>) -> bool {
        follow_lines::<Self>(entries, written)
    }
}

/// Follows a write that adds or removes entries, and no other one.
pub fn follow_lines<S: LiveSettings>(entries: &mut Entries, (handler, argument): Written<'_>) -> bool {
    if handler != S::ADD && handler != S::REMOVE {
        return false;
    }
    let lines = argument.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    for line in lines {
        let Some(word) = line.split_whitespace().next() else { continue };
        match handler == S::ADD {
            true => entries.set(S::entry(word), line.to_owned()),
            false => entries.remove(&S::entry(word)),
        }
    }
    true
}

/// Follows such writes, and those of the handlers `weight` and `drain`: an entry that drains is one of weight 0.
pub fn follow_weights<S: LiveSettings, E: FromStr + Display>(
    entries: &mut Entries,
    (handler, argument): Written<'_>,
    weigh: fn(E, u32) -> E,
) -> bool {
    let mut words = argument.split_whitespace();
    let (name, weight) = (words.next().unwrap_or_default(), words.next());
    let weight = match handler {
        "weight" => weight.and_then(|weight| weight.parse().ok()),
        "drain" => Some(0),
        _ => return follow_lines::<S>(entries, (handler, argument)),
    };
    // Of one that is gone it changes nothing.
    let Some(line) = entries.get(name) else { return true };
    let Some((entry, weight)) = line.parse::<E>().ok().zip(weight) else { return false };
    entries.set(name.to_owned(), weigh(entry, weight).to_string());
    true
}

/// The entries of settings whose type is not known.
type EntriesOf = fn(&(dyn Any + Send + Sync)) -> Option<Entries>;

/// The live settings of a function, without their type.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    pub(crate) keys: &'static [&'static str],
    of: &'static str,
    add: &'static str,
    remove: &'static str,
    entry: fn(&str) -> String,
    follow: fn(&mut Entries, Written<'_>) -> bool,
    entries: EntriesOf,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Live {
    pub(crate) fn of<S: LiveSettings>() -> Self {
        Self {
            keys: S::LIVE,
            of: S::ENTRIES,
            add: S::ADD,
            remove: S::REMOVE,
            entry: S::entry,
            follow: S::follow,
            entries: |settings| settings.downcast_ref().map(S::entries),
        }
    }

    /// The change from these settings to those, where handlers have written these since and stand before the settings.
    ///
    /// `None` where the settings are of another type, or where it is not known what a write about a changed entry does.
    pub(crate) fn change(
        self,
        before: &(dyn Any + Send + Sync),
        after: &(dyn Any + Send + Sync),
        written: &[Written<'_>],
    ) -> Option<LiveChange> {
        let (before, after) = ((self.entries)(before)?, (self.entries)(after)?);
        if let (Some(before), Some(after)) =
            (self.following(before.clone(), written), self.following(after.clone(), written))
        {
            return Some(self.between(&before, &after));
        }
        let change = self.between(&before, &after);
        let contradicts = written.iter().any(|(_, argument)| change.touches(argument));
        (!contradicts).then_some(change)
    }

    /// The entries after these writes; `None` where one is of something else.
    fn following(self, mut entries: Entries, written: &[Written<'_>]) -> Option<Entries> {
        written.iter().all(|written| (self.follow)(&mut entries, *written)).then_some(entries)
    }

    /// The first key, and its list after these writes; `None` where one is of something else.
    pub(crate) fn list(
        self,
        settings: &(dyn Any + Send + Sync),
        written: &[Written<'_>],
    ) -> Option<(&'static str, Vec<String>)> {
        let entries = self.following((self.entries)(settings)?, written)?;
        Some((self.keys.first()?, entries.into_lines()))
    }

    fn between(self, before: &Entries, after: &Entries) -> LiveChange {
        let mut change = LiveChange { live: self, added: 0, changed: 0, removed: 0, steps: Vec::new() };
        let set: Vec<(&String, &String)> = after
            .by_name
            .iter()
            .filter(|(name, (_, line))| before.get(name) != Some(line))
            .map(|(name, (_, line))| (name, line))
            .collect();
        let gone: Vec<&String> =
            before.by_name.keys().filter(|name| !after.by_name.contains_key(*name)).collect();
        // Additions come first: packets always find an entry that both settings have, and never none at all.
        for part in set.chunks(STEP) {
            let (mut new, mut old) = (Vec::new(), Vec::new());
            for (name, _) in part {
                match before.get(name) {
                    None => new.push((*name).clone()),
                    Some(line) => old.push(line.to_owned()),
                }
            }
            change.added += new.len();
            change.changed += old.len();
            change.steps.push(Step {
                names: part.iter().map(|(name, _)| (*name).clone()).collect(),
                write: Write::new(self.add, part.iter().map(|(_, line)| line.as_str())),
                back: vec![
                    Write::new(self.add, old.iter().map(String::as_str)),
                    Write::new(self.remove, new.iter().map(String::as_str)),
                ],
            });
        }
        for part in gone.chunks(STEP) {
            change.removed += part.len();
            let lines = part.iter().filter_map(|name| before.get(name));
            change.steps.push(Step {
                names: part.iter().map(|name| (*name).clone()).collect(),
                write: Write::new(self.remove, part.iter().map(|name| name.as_str())),
                back: vec![Write::new(self.add, lines)],
            });
        }
        change
    }
}

/// The most entries of one call: a larger change is written by several.
const STEP: usize = 1_000;

/// The change of entries between two settings, as writes of handlers.
#[derive(Clone, Debug)]
pub struct LiveChange {
    live: Live,
    /// Entries that are new.
    pub added: usize,
    /// Entries that have another value.
    pub changed: usize,
    /// Entries that go.
    pub removed: usize,
    steps: Vec<Step>,
}

/// One call of a handler, and the calls that undo it.
#[derive(Clone, Debug)]
struct Step {
    /// The entries that it changes.
    names: BTreeSet<String>,
    write: Write,
    back: Vec<Write>,
}

#[derive(Clone, Debug)]
struct Write {
    handler: &'static str,
    /// Empty where there is nothing to write.
    lines: String,
}

impl Write {
    fn new<'a>(handler: &'static str, lines: impl Iterator<Item = &'a str>) -> Self {
        Self { handler, lines: lines.collect::<Vec<_>>().join("\n") }
    }

    fn make(&self, copy: &mut ControlCopy) -> Result<(), String> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let made = copy.call_as(HandlerKind::Write, self.handler, &self.lines);
        made.map(drop).map_err(|error| error.to_string())
    }
}

impl LiveChange {
    /// Whether a write of a handler is about one of the entries that change.
    pub fn touches(&self, argument: &str) -> bool {
        let mut names = argument.lines().filter_map(|line| line.split_whitespace().next());
        names.any(|word| {
            let name = (self.live.entry)(word);
            self.steps.iter().any(|step| step.names.contains(&name))
        })
    }

    /// Writes the change, in steps of at most 1,000 entries, by the control side's copy of the node.
    ///
    /// # Errors
    /// The refusal of a handler. All entries are then as before.
    pub fn write(&self, copy: &mut ControlCopy) -> Result<(), String> {
        for (done, step) in self.steps.iter().enumerate() {
            if let Err(problem) = step.write.make(copy) {
                let undone = Self::undo_steps(&self.steps[..done], copy);
                return Err(match undone {
                    Ok(()) => problem,
                    Err(again) => format!("{problem}; and what was written could not be undone: {again}"),
                });
            }
        }
        Ok(())
    }

    /// Undoes a change that was [written](Self::write).
    ///
    /// # Errors
    /// The first refusal of a handler; all other entries are as before the change.
    pub fn undo(&self, copy: &mut ControlCopy) -> Result<(), String> {
        Self::undo_steps(&self.steps, copy)
    }

    fn undo_steps(steps: &[Step], copy: &mut ControlCopy) -> Result<(), String> {
        let writes = steps.iter().rev().flat_map(|step| &step.back);
        // One that is refused stops none of the others.
        let mut undone = Ok(());
        for write in writes {
            undone = undone.and(write.make(copy));
        }
        undone
    }
}

/// One line for the operator: `3 routes added, 1 changed, 2 removed`.
impl fmt::Display for LiveChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [(self.added, "added"), (self.changed, "changed"), (self.removed, "removed")];
        let mut counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let Some((count, what)) = counts.next() else { return write!(f, "the same {}", self.live.of) };
        let of = if count == 1 { self.live.of.trim_end_matches('s') } else { self.live.of };
        write!(f, "{count} {of} {what}")?;
        counts.try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}
