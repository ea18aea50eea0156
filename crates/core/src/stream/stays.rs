//! For how long each window's memory has been in use, longest first.

use super::rewriter::Source;
use super::window::NONE;

/// Since when (ns), by whom, and its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) since: u64,
    pub(super) connection: u32,
    older: u32,
    newer: u32,
}

/// One for each window there is memory for.
pub(super) struct Stays {
    all: Vec<Stay>,
    oldest: u32,
    newest: u32,
}

impl Stays {
    pub(super) fn new(count: usize) -> Self {
        let none = Stay { since: 0, connection: NONE, older: NONE, newer: NONE };
        Self { all: vec![none; count], oldest: NONE, newest: NONE }
    }

    /// The one that began first of those that have not ended.
    pub(super) fn longest(&self) -> Option<&Stay> {
        self.all.get(self.oldest as usize)
    }

    /// One begins that has not.
    pub(super) fn begin(&mut self, buffer: u32, source: &Source) {
        let older = std::mem::replace(&mut self.newest, buffer);
        let Some(place) = self.all.get_mut(buffer as usize) else { return };
        *place = Stay { since: source.now, connection: source.connection, older, newer: NONE };
        match self.all.get_mut(older as usize) {
            Some(older) => older.newer = buffer,
            None => self.oldest = buffer,
        }
    }

    /// One ends that has begun.
    pub(super) fn end(&mut self, buffer: u32) {
        let Some(Stay { older, newer, .. }) = self.all.get(buffer as usize).copied() else { return };
        match self.all.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.all.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}
