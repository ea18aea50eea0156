//! The durable state of a dataplane: numbered configurations, and the changes made to them while they ran.
//!
//! A [`Store`] is a directory. After `kill -9` or a loss of power it has all that a call reported as done, and at most
//! the one call more that was under way.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | the process that uses the directory; the kernel releases its lock when the process ends |
//! | `000042.toml` | configuration 42: a line about it with a checksum, then its text |
//! | `000042.journal` | the handler writes that changed it: a line each, with a checksum |
//! | `confirmed`, `confirmed.copy` | the numbers that were confirmed, rolled back, or failed |
//! | `000042.files` | the files that configuration 42 names, with hashes of their contents |
//! | `content-HASH` | a content of such a file |
//! | `place` | the graph's name, and the socket on which the last process listened |
//! | `000042.journal.damaged` | a journal that could not be read to its end, as it was found |
//! | `*.tmp` | a file that is being written; the next [`Store::open`] removes it |
//!
//! A file is written under a temporary name, made durable and renamed, and then its name is made durable. Only a journal
//! grows in place; a line that is incomplete at its end is cut off.
//!
//! A configuration with a confirm window is saved and not confirmed. A process that starts within the window finds the
//! last confirmed one, with its journal.
//!
//! ```no_run
//! use netbricks_control::store::{Base, Record, Store};
//!
//! # fn apply(text: &str) {}
//! # fn main() -> Result<(), netbricks_control::store::StoreError> {
//! # let now = 1_700_000_000_000_000_000;
//! let mut store = Store::open("/var/lib/netbricks".as_ref())?;
//! for warning in store.warnings() {
//!     eprintln!("{warning}");
//! }
//! if let Some(saved) = store.confirmed() {
//!     apply(&saved.text);
//! }
//! let base = Base { origin: "edge.toml".into(), directory: "/etc/netbricks".into() };
//! let number = store.save("[port.wan]\n", &base, "first", now)?;
//! store.confirm(number)?;
//! let argument = "10.0.0.9".to_owned();
//! let (function, handler) = ("balance".to_owned(), "add".to_owned());
//! store.append(number, &Record { function, handler, argument, time: now, tenant: None })?;
//! # Ok(())
//! # }
//! ```

mod changes;
mod checksum;
mod contents;
mod damage;
mod disk;
mod error;
mod journal;
mod lock;
mod marks;
mod open;
mod place;
mod saved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::contents::Files;
use self::contents::list_name;
pub use self::damage::{Damage, Warning};
use self::disk::Disk;
pub use self::error::{Holder, StoreError};
use self::journal::Tail;
pub use self::journal::{Record, Replay, replay};
use self::marks::Marks;
use self::open::numbered;
pub use self::place::Place;
pub use self::saved::{Base, Saved};

/// The version of all files.
const FORMAT: u32 = 1;
/// Twelve digits: names stay readable, and no number overflows.
const HIGHEST: Number = Number(999_999_999_999);

/// A configuration's number. Numbers grow and are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Number(pub u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fate of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was confirmed: now or earlier, a start without a file restored it.
    Confirmed,
    /// It was saved, and neither confirmed nor given up.
    Applied,
    /// It was given up: by a user, by the end of its confirm window, or by a restart within it.
    RolledBack,
    /// It could not be applied.
    Failed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Confirmed => "confirmed",
            State::Applied => "applied",
            State::RolledBack => "rolled back",
            State::Failed => "failed",
        })
    }
}

/// The reason why a configuration was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A user, or the end of the confirm window, brought back another configuration.
    RolledBack,
    /// It could not be applied.
    Failed,
}

/// A configuration in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub number: Number,
    /// Nanoseconds since the Unix epoch at which it was saved.
    pub time: u64,
    /// Its file's name, or another origin.
    pub origin: String,
    /// A comment on it.
    pub note: String,
    /// Its fate.
    pub state: State,
}

/// Bounds of what a store keeps.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Configurations.
    kept: usize,
    /// Bytes of a configuration's file.
    text: usize,
    /// Records of one journal.
    records: usize,
    /// Bytes of one journal.
    journal: usize,
    /// Bytes of all contents of files that configurations name.
    contents: usize,
}

const LIMITS: Limits =
    Limits { kept: 50, text: 64 << 20, records: 100_000, journal: 64 << 20, contents: 64 << 20 };

/// All that is known of a configuration without its text.
#[derive(Clone, Debug)]
struct About {
    time: u64,
    origin: String,
    note: String,
    checksum: String,
}

/// The state directory of this process, locked against others.
pub struct Store {
    disk: Box<dyn Disk>,
    path: PathBuf,
    limits: Limits,
    marks: Marks,
    /// All that could be read.
    configurations: BTreeMap<Number, About>,
    /// All numbers with a file, also a damaged one.
    numbers: BTreeSet<Number>,
    /// Ends of journals that can be written on.
    tails: BTreeMap<Number, Tail>,
    /// Journals that a failed write left longer than these bytes.
    unreported: BTreeMap<Number, usize>,
    confirmed: Option<Saved>,
    running: Option<Number>,
    place: Option<Place>,
    contents: contents::Contents,
    warnings: Vec<Warning>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let confirmed = self.confirmed.as_ref().map(|saved| saved.number);
        let mut shown = f.debug_struct("Store");
        shown.field("path", &self.path).field("confirmed", &confirmed).field("running", &self.running);
        shown.finish_non_exhaustive()
    }
}

impl Store {
    /// The state directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Faults that the store got over so far, in the order in which it found them.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The configuration that a start without a file restores.
    ///
    /// This is the one that was confirmed last, or, where that cannot be read, the one confirmed before it. A
    /// [warning](Store::warnings) then says so.
    pub fn confirmed(&self) -> Option<&Saved> {
        self.confirmed.as_ref()
    }

    /// All configurations that can be read, newest first.
    pub fn history(&self) -> Vec<Entry> {
        let entry = |(&number, about): (&Number, &About)| Entry {
            number,
            time: about.time,
            origin: about.origin.clone(),
            note: about.note.clone(),
            state: self.marks.state(number),
        };
        self.configurations.iter().rev().map(entry).collect()
    }

    /// Saves a configuration durably under a new number. It is applied then, not confirmed.
    ///
    /// At most 50 configurations are kept: the last confirmed, the [running](Store::set_running) one, and the newest.
    /// Those that were given up make room first.
    /// `time` is in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`StoreError`] when the text is too long or cannot be written. Nothing is saved then.
    pub fn save(&mut self, text: &str, base: &Base, note: &str, time: u64) -> Result<Number, StoreError> {
        let number = match self.numbers.last().copied().max(self.marks.highest()) {
            Some(last) if last >= HIGHEST => {
                return Err(StoreError::NoNumberLeft { path: self.path.clone(), number: HIGHEST });
            }
            Some(last) => Number(last.0 + 1),
            None => Number(1),
        };
        let (saved, bytes) = Saved::new(number, text, base, note, time);
        if bytes.len() > self.limits.text {
            return Err(StoreError::TooLong { bytes: bytes.len(), limit: self.limits.text });
        }
        // Before, not after: a crash between the two leaves one too few, not one too many.
        self.make_room();
        let name = configuration_name(number);
        if let Err(error) = self.replace(&name, &bytes) {
            // Its name may be there, and only not durable.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        self.configurations.insert(number, About::of(&saved));
        self.numbers.insert(number);
        Ok(number)
    }

    /// Reads a saved configuration.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when there is no such number, and others when its file cannot be read any more.
    pub fn load(&self, number: Number) -> Result<Saved, StoreError> {
        self.about(number)?;
        let name = configuration_name(number);
        let bytes = self.disk.read(&name, self.limits.text);
        let bytes = bytes.map_err(|error| self.failed("read", &name, error))?;
        let damaged = |damage| StoreError::Damaged { path: self.path.join(&name), damage };
        Saved::read(number, &bytes).map_err(damaged)
    }

    /// Makes a configuration the last confirmed one, durably.
    ///
    /// # Errors
    /// [`StoreError`] when there is no such configuration, its file is damaged, or the confirmation cannot be written.
    /// The one confirmed before stays then, but for one case: the operating system fails to make a new name durable. A
    /// restart may then find either.
    pub fn confirm(&mut self, number: Number) -> Result<(), StoreError> {
        let saved = self.load(number)?;
        let mut marks = self.marks.clone();
        marks.set(number, State::Confirmed);
        self.write_marks(marks)?;
        self.confirmed = Some(saved);
        Ok(())
    }

    /// Records durably that a configuration was given up.
    ///
    /// # Errors
    /// [`StoreError::LastConfirmed`] for the configuration that a start restores. Others when there is no such
    /// configuration, or its state cannot be written.
    pub fn give_up(&mut self, number: Number, outcome: Outcome) -> Result<(), StoreError> {
        self.about(number)?;
        if self.confirmed.as_ref().is_some_and(|saved| saved.number == number) {
            return Err(StoreError::LastConfirmed { number });
        }
        let mut marks = self.marks.clone();
        marks.set(
            number,
            match outcome {
                Outcome::RolledBack => State::RolledBack,
                Outcome::Failed => State::Failed,
            },
        );
        self.write_marks(marks)
    }

    /// Names the configuration that runs, so that it is kept. This is not written: nothing runs after a restart.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when there is no such configuration.
    pub fn set_running(&mut self, number: Number) -> Result<(), StoreError> {
        self.about(number)?;
        self.running = Some(number);
        Ok(())
    }

    fn about(&self, number: Number) -> Result<&About, StoreError> {
        self.configurations.get(&number).ok_or_else(|| {
            let ends = (self.configurations.first_key_value(), self.configurations.last_key_value());
            let expected = match ends {
                (Some((first, _)), Some((last, _))) => format!("one of {first} to {last}"),
                _ => "none, for nothing was saved yet".into(),
            };
            StoreError::Unknown { number, path: self.path.clone(), expected }
        })
    }

    /// Writes both copies; the first one counts.
    fn write_marks(&mut self, marks: Marks) -> Result<(), StoreError> {
        let [first, copy] = marks::NAMES;
        self.replace(first, &marks.bytes())?;
        if let Err(error) = self.replace(copy, &marks.bytes()) {
            self.postpone("write", copy, &error);
        }
        self.marks = marks;
        Ok(())
    }

    /// Removes configurations, but for the confirmed, the running and the newest one, until one more can be kept.
    ///
    /// First go those that were given up, then those that came by a rollback, and of each kind the oldest. So changes
    /// that fail leave the configurations to go back to.
    fn make_room(&mut self) {
        let confirmed = self.confirmed.as_ref().map(|saved| saved.number);
        // The newest stays until there is a newer one: its number must not be used again after a crash.
        let newest = self.numbers.last().copied();
        let mut kept: BTreeSet<_> = [confirmed, self.running, newest].into_iter().flatten().collect();
        let worth = |number: &Number| {
            let note = self.configurations.get(number).map_or("", |about| &about.note);
            (worth(self.marks.state(*number), note), *number)
        };
        let mut numbers: Vec<Number> = self.numbers.iter().copied().collect();
        numbers.sort_by_key(|number| std::cmp::Reverse(worth(number)));
        for number in numbers {
            if kept.len() + 1 < self.limits.kept {
                kept.insert(number);
            }
        }
        let past: Vec<_> = self.numbers.difference(&kept).copied().collect();
        for &number in &past {
            let journal = journal_name(number);
            // The configuration last: a journal without one would be in nobody's way and stay.
            for name in [damaged_name(&journal), journal, list_name(number), configuration_name(number)] {
                match self.disk.remove(&name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        self.postpone("remove", &name, &error);
                    }
                    _ => {}
                }
            }
            self.configurations.remove(&number);
            self.tails.remove(&number);
            self.unreported.remove(&number);
            self.numbers.remove(&number);
        }
        self.forget_files(&past);
        if !past.is_empty() {
            self.marks.retain(|number| kept.contains(&number));
        }
    }

    /// Gives a file this content, so that a crash leaves the old or the new one.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let temporary = format!("{name}{TEMPORARY}");
        let written = self.disk.write(&temporary, bytes).map_err(|error| ("write", &*temporary, error));
        let renamed =
            written.and_then(|()| self.disk.rename(&temporary, name).map_err(|e| ("write", name, e)));
        let replaced = renamed.and_then(|()| self.disk.sync_names().map_err(|e| ("make durable", name, e)));
        replaced.map_err(|(operation, name, error)| {
            let error = self.failed(operation, name, error);
            let _ = self.disk.remove(&temporary);
            error
        })
    }

    fn failed(&self, operation: &'static str, name: &str, error: io::Error) -> StoreError {
        StoreError::of_file(operation, self.path.join(name), &self.path, error)
    }

    fn postpone(&mut self, operation: &'static str, name: &str, error: &dyn fmt::Display) {
        let path = self.path.join(name);
        self.warn(Warning::Postponed { operation, path, problem: error.to_string() });
    }

    /// Adds a warning once, however often its cause is met.
    fn warn(&mut self, warning: Warning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// The note of a configuration that came by a rollback, before the number of the one that it is again.
pub(crate) const ROLLBACK: &str = "rollback to ";

/// How long a configuration of this state and note is kept in a full history: the least goes first.
pub(crate) fn worth(state: State, note: &str) -> u8 {
    match state {
        State::RolledBack | State::Failed => 0,
        // The one that it is again is worth more: nothing older is reached from a copy.
        State::Confirmed | State::Applied if note.starts_with(ROLLBACK) => 1,
        State::Confirmed | State::Applied => 2,
    }
}

impl About {
    fn of(saved: &Saved) -> About {
        About {
            time: saved.time,
            origin: saved.base.origin.clone(),
            note: saved.note.clone(),
            checksum: saved.checksum.clone(),
        }
    }
}

const CONFIGURATION: &str = ".toml";
const JOURNAL: &str = ".journal";
const FILES: &str = ".files";
const DAMAGED: &str = ".damaged";
const TEMPORARY: &str = ".tmp";

fn configuration_name(number: Number) -> String {
    format!("{:06}{CONFIGURATION}", number.0)
}

fn journal_name(number: Number) -> String {
    format!("{:06}{JOURNAL}", number.0)
}

fn damaged_name(journal: &str) -> String {
    format!("{journal}{DAMAGED}")
}
