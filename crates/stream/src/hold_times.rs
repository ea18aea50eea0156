//! The time since which each window's memory has been in use, longest first.

use netbricks_core::tables::MemoryError;

use super::memory::filled;
use super::rewriter::Source;
use super::window::NONE;

/// The start of a use (ns), the connection, and the neighbours in order of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) since: u64,
    pub(super) connection: u32,
    older: u32,
    newer: u32,
}

/// An entry for each window that there is memory for.
pub(super) struct HoldTimes {
    all: Vec<Stay>,
    oldest: u32,
    newest: u32,
}

impl HoldTimes {
    pub(super) fn new(count: usize) -> Result<Self, MemoryError> {
        let none = Stay { since: 0, connection: NONE, older: NONE, newer: NONE };
        Ok(Self { all: filled(none, count)?, oldest: NONE, newest: NONE })
    }

    /// The use that began first among those that have not ended.
    pub(super) fn longest(&self) -> Option<&Stay> {
        self.all.get(self.oldest as usize)
    }

    /// Begins the use of a buffer that is not in use.
    pub(super) fn begin(&mut self, buffer: u32, source: &Source) {
        self.append(buffer, source.now, source.connection);
    }

    fn append(&mut self, buffer: u32, since: u64, connection: u32) {
        let older = std::mem::replace(&mut self.newest, buffer);
        let Some(place) = self.all.get_mut(buffer as usize) else { return };
        *place = Stay { since, connection, older, newer: NONE };
        match self.all.get_mut(older as usize) {
            Some(older) => older.newer = buffer,
            None => self.oldest = buffer,
        }
    }

    /// Ends the use of a buffer that is in use.
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

    /// The start (ns) of the use of a buffer that is in use.
    pub(super) fn since(&self, buffer: u32) -> u64 {
        self.all.get(buffer as usize).map_or(0, |stay| stay.since)
    }

    /// Sorts all uses that have not ended, longest first.
    ///
    /// This is needed after uses were added that began earlier than others already here.
    pub(super) fn sort(&mut self) {
        let known = |buffer: u32| self.all.get(buffer as usize).map(|stay| (stay.since, buffer, stay.newer));
        let mut begun: Vec<(u64, u32)> =
            std::iter::successors(known(self.oldest), |(.., newer)| known(*newer))
                .map(|(since, buffer, _)| (since, buffer))
                .collect();
        begun.sort();
        (self.oldest, self.newest) = (NONE, NONE);
        for (since, buffer) in begun {
            let connection = self.all[buffer as usize].connection;
            self.append(buffer, since, connection);
        }
    }
}
