//! Writes of handlers that later ones stand for.

use std::collections::{BTreeMap, BTreeSet};

use super::Written;

/// The function, the subject's name, its first word, and the worker.
pub(super) type Key = (String, &'static str, String, Option<usize>);

/// The journal form of a handler's writes: by it, a later write stands for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name of the state that a write is about; with the argument's first word it says which entry.
    pub name: &'static str,
    /// Whether a write gives the entry its whole value, so that earlier writes about it need not be kept.
    pub sets: bool,
    /// Whether the argument may have several lines, each of which is as a write of its own.
    pub by_lines: bool,
}

impl Subject {
    /// The entry that this write is about. Several lines have several, and so none.
    pub(super) fn key(self, written: &Written) -> Option<Key> {
        Some((written.function.clone(), self.name, written.entry()?.to_owned(), written.worker))
    }
}

/// The entries that the writes of a journal are about.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    known: BTreeSet<Key>,
    /// Writes that a later one stands for.
    pub(super) superseded: usize,
}

impl Subjects {
    pub(super) fn add(&mut self, key: Option<Key>) {
        self.superseded += usize::from(key.is_some_and(|key| !self.known.insert(key)));
    }
}

/// The writes without those that a later one stands for, in their order.
pub(crate) fn without_superseded(
    written: &[Written],
    subject: impl Fn(&str, &str) -> Option<Subject>,
) -> Vec<Written> {
    // By function, subject and worker: the entries to which a later write gives a whole value.
    let mut set: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    let mut kept: Vec<&Written> = Vec::new();
    for written in written.iter().rev() {
        kept.push(written);
        let Some(subject) = subject(&written.function, &written.handler) else { continue };
        let entries = set.entry((&written.function, subject.name, written.worker)).or_default();
        match written.entry() {
            // Several entries at once may need what came before.
            None => entries.clear(),
            Some(entry) if entries.contains(entry) => drop(kept.pop()),
            Some(entry) if subject.sets => _ = entries.insert(entry),
            Some(_) => {}
        }
    }
    kept.into_iter().rev().cloned().collect()
}

impl Written {
    /// The entry that it is about; several lines have none.
    fn entry(&self) -> Option<&str> {
        let argument = self.argument.trim();
        argument.split_whitespace().next().filter(|_| !argument.contains('\n'))
    }
}
