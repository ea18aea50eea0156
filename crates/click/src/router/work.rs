//! Work of one turn, in pushes, pulls and calls of handlers, and its limits.

use std::cell::Cell;

use super::{At, Router};

/// Pushes and pulls that one packet, task or timer may cause.
///
/// A cycle that doubles packets ends here.
const MAX_CASCADE: u64 = 1 << 20;
/// Work after which a burst of one task ends, until the task's next turn.
const MAX_BURST: u64 = 1 << 20;
/// This part of a turn's work, one in so many, is for bursts.
const BURSTS: u64 = 64;
/// A call of a handler is as much work as so many pushes.
pub(super) const HANDLER: u64 = 8;
/// An instruction of a script is as much work as so many pushes.
pub(crate) const INSTRUCTION: u64 = 4;
/// Bytes of a text whose handling is as much work as a push.
const TEXT: usize = 64;

/// The work of a turn.
pub(super) struct Work {
    /// Since the turn began.
    spent: Cell<u64>,
    /// Where the outermost call ends.
    cascade: Cell<u64>,
    /// Where bursts end.
    burst: Cell<u64>,
    /// Where the turn ends.
    most: u64,
}

impl Work {
    pub(super) fn new(most: u64) -> Self {
        let work = Self { spent: Cell::new(0), cascade: Cell::new(most), burst: Cell::new(0), most };
        work.begin_task();
        work
    }
    fn begin_task(&self) {
        self.burst.set(self.spent.get().saturating_add(MAX_BURST).min(self.most / BURSTS));
    }
    /// Counts work. `false` where none is left.
    #[inline]
    pub(super) fn step(&self, work: u64, is_outermost: bool) -> bool {
        let spent = self.spent.get().saturating_add(work);
        self.spent.set(spent);
        if is_outermost {
            self.cascade.set(spent.saturating_add(MAX_CASCADE).min(self.most));
        }
        spent < self.cascade.get()
    }
}

impl Router {
    /// Begins a turn: its elements may do [`most_work`](super::Surroundings::most_work) until the next one.
    pub(crate) fn begin_turn(&self) {
        self.work.spent.set(0);
        self.work.begin_task();
    }
    /// Begins the turn of a task.
    pub(crate) fn begin_task(&self) {
        self.work.begin_task();
    }
    /// Counts work beside pushes, pulls and calls of handlers: so much, and that of so many bytes of text.
    pub(crate) fn spend(&self, work: u64, bytes: usize) {
        let text = (bytes / TEXT) as u64;
        self.work.spent.set(self.work.spent.get().saturating_add(work).saturating_add(text));
    }
    /// Whether the turn has done all the work that it may: pushes, pulls and handlers fail until the next one.
    pub(crate) fn is_spent(&self) -> bool {
        self.work.spent.get() >= self.work.most
    }
    /// Whether bursts may go on.
    pub(crate) fn may_burst(&self) -> bool {
        self.work.spent.get() < self.work.burst.get()
    }
}

impl At<'_> {
    /// Whether a burst that has moved so many packets may move another. Otherwise the task waits for its next turn.
    ///
    /// A loop whose length a configuration or other elements decide asks here before each packet.
    #[inline]
    pub fn may_go_on(self, moved: impl Into<u64>) -> bool {
        moved.into() == 0 || self.router.may_burst()
    }
}
