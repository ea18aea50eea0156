//! Opens a state directory. Damaged files become warnings, and the store has all that can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::contents::is_content;
use super::disk::{Directory, Disk};
use super::marks::{self, Marks};
use super::place;
use super::{
    About, CONFIGURATION, DAMAGED, Damage, FILES, HIGHEST, JOURNAL, LIMITS, Limits, Number, Saved, State,
    Store, StoreError, TEMPORARY, Warning, configuration_name, journal_name,
};

impl Store {
    /// Opens a state directory and locks it; creates it (mode 0750) where it is missing.
    ///
    /// Temporary files are removed, and the confirmed configuration's journal is repaired. Damaged files are skipped,
    /// each with a [warning](Store::warnings). Configurations newer than the last confirmed one were cut off by the end
    /// of a process, so they count as rolled back.
    ///
    /// # Errors
    /// [`StoreError::Held`] when another process uses it, [`StoreError::Denied`] when the user may not write to it, and
    /// [`StoreError::File`] when it is no directory or cannot be read.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        let directory = std::path::absolute(directory);
        let directory =
            &directory.map_err(|error| StoreError::of_file("find", "".into(), "".as_ref(), error))?;
        let disk = Directory::open(directory)?;
        let exposed = disk.exposed();
        let mut store = Store::read(Box::new(disk), directory, LIMITS)?;
        if let Some(mode) = exposed {
            store.warn(Warning::Exposed { path: directory.clone(), mode });
        }
        Ok(store)
    }

    pub(super) fn read(disk: Box<dyn Disk>, path: &Path, limits: Limits) -> Result<Store, StoreError> {
        let names = disk.names();
        let names = names.map_err(|error| StoreError::of_file("list", path.into(), path, error))?;
        let mut store = Store {
            disk,
            path: path.into(),
            limits,
            marks: Marks::default(),
            configurations: BTreeMap::new(),
            numbers: names.iter().filter_map(|name| number_of(name)).collect(),
            tails: BTreeMap::new(),
            unreported: BTreeMap::new(),
            confirmed: None,
            running: None,
            place: None,
            contents: super::contents::Contents::default(),
            warnings: Vec::new(),
        };
        store.sweep(&names);
        store.read_place();
        store.read_files(&names);
        let confirmations_lost = store.read_marks();
        let listed: BTreeSet<_> = names.iter().filter_map(|name| numbered(name, CONFIGURATION)).collect();
        store.read_configurations(listed);
        store.choose_restored(confirmations_lost);
        store.give_up_unconfirmed();
        if let Some(number) = store.confirmed.as_ref().map(|saved| saved.number)
            && let Err(error) = store.records(number)
        {
            let damage = Damage::Unreadable { problem: error.to_string() };
            store.skip(&journal_name(number), damage);
        }
        Ok(store)
    }

    /// Removes files that a crash left half-written.
    fn sweep(&mut self, names: &[String]) {
        for name in names {
            let ours = |stem: &str| {
                marks::NAMES.contains(&stem)
                    || stem == place::NAME
                    || is_content(stem)
                    || number_of(stem).is_some()
            };
            if name.strip_suffix(TEMPORARY).is_some_and(ours)
                && let Err(error) = self.disk.remove(name)
            {
                self.postpone("remove", name, &error);
            }
        }
    }

    /// Takes the first copy that can be read. Returns whether there was one and none could be.
    fn read_marks(&mut self) -> bool {
        let (mut damaged, mut found) = (Vec::new(), false);
        for name in marks::NAMES {
            let read = match self.disk.read(name, marks::MOST_BYTES) {
                Ok(bytes) => Marks::read(&bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(Damage::Unreadable { problem: error.to_string() }),
            };
            match read {
                Ok(marks) => {
                    (self.marks, found) = (marks, true);
                    break;
                }
                Err(damage) => damaged.push((name, damage)),
            }
        }
        let lost = !damaged.is_empty() && !found;
        for (name, damage) in damaged {
            self.skip(name, damage);
        }
        lost
    }

    fn read_configurations(&mut self, numbers: BTreeSet<Number>) {
        for number in numbers {
            match self.read_configuration(number) {
                Ok(saved) => {
                    self.configurations.insert(number, About::of(&saved));
                }
                Err(damage) => self.skip(&configuration_name(number), damage),
            }
        }
    }

    fn read_configuration(&self, number: Number) -> Result<Saved, Damage> {
        let bytes = self.disk.read(&configuration_name(number), self.limits.text);
        let bytes = bytes.map_err(|error| Damage::Unreadable { problem: error.to_string() })?;
        Saved::read(number, &bytes)
    }

    /// Finds the configuration that was confirmed last, or the next best.
    fn choose_restored(&mut self, confirmations_lost: bool) {
        let wanted = self.marks.confirmed.first().copied();
        if wanted.is_none() && !confirmations_lost {
            return;
        }
        let confirmed = self.marks.confirmed.iter().copied();
        // With no confirmed one left, any that was not given up is better than none.
        let others = self.configurations.keys().rev().copied();
        let others = others.filter(|&number| self.marks.state(number) == State::Applied);
        let found = confirmed.chain(others).find_map(|number| self.read_configuration(number).ok());
        let Some(saved) = found else { return };
        match wanted {
            Some(wanted) if wanted != saved.number => {
                self.warn(Warning::OlderRestored { wanted, restored: saved.number });
            }
            Some(_) => {}
            None => self.warn(Warning::NewestRestored { restored: saved.number }),
        }
        self.confirmed = Some(saved);
    }

    /// Marks configurations that a process had not confirmed when it ended; the next change writes it.
    fn give_up_unconfirmed(&mut self) {
        let last =
            self.marks.confirmed.first().copied().max(self.confirmed.as_ref().map(|saved| saved.number));
        let newer =
            self.configurations.keys().copied().filter(|&number| last.is_some_and(|last| number > last));
        for number in newer.filter(|&number| self.marks.state(number) == State::Applied).collect::<Vec<_>>() {
            self.marks.set(number, State::RolledBack);
        }
    }

    pub(super) fn skip(&mut self, name: &str, damage: Damage) {
        let path = self.path.join(name);
        self.warn(Warning::Skipped { path, damage });
    }
}

/// The number in a file's name, where it is one that the store gives.
pub(super) fn numbered(name: &str, ending: &str) -> Option<Number> {
    let digits = name.strip_suffix(ending)?;
    let number = digits.parse().ok().map(Number).filter(|&number| number <= HIGHEST)?;
    (digits == format!("{:06}", number.0)).then_some(number)
}

/// The number in the name of a configuration, its journal, a damaged journal, or its list of files.
fn number_of(name: &str) -> Option<Number> {
    let journal = name.strip_suffix(DAMAGED).unwrap_or(name);
    let files = || numbered(name, FILES);
    numbered(name, CONFIGURATION).or_else(|| numbered(journal, JOURNAL)).or_else(files)
}
