//! Functions that panic: made again at once, after a while, or never, as their policy says.
//!
//! A function in quarantine gets no packets: they are dropped for that reason, and nothing else is affected.

use netbricks_buffer::Batch;

use super::contain::contain;
use super::run::make;
use super::{Graph, Slot};
use crate::context::Context;
use crate::node::{Node, Poll};
use crate::reason::DropReason;

/// The fate of a function that has panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It is made again at once, with empty state.
    #[default]
    AtOnce,
    /// As [`AtOnce`](Self::AtOnce); after repeated panics, only after a [`BackOff`](Self::BackOff).
    Always,
    /// It is made again after a time in quarantine, which doubles from 100 ms to a minute.
    ///
    /// The time starts from the first one again after a minute without a panic.
    BackOff,
    /// It stays in quarantine.
    Never,
}

/// The first time in quarantine (ns).
const FIRST: u64 = 100_000_000;
/// The longest time in quarantine (ns).
const LONGEST: u64 = 60_000_000_000;
/// The time without a panic after which earlier ones are forgotten (ns).
const CALM: u64 = 60_000_000_000;
/// The panics within [`REPEATED_IN`] after which a function that is always made again goes to quarantine.
const REPEATED: u32 = 100;
/// The time in which so many panics are repeated ones (ns).
const REPEATED_IN: u64 = 10_000_000_000;

/// A slot's panics, as far as its policy needs them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Panicked {
    /// Panics since `since`, and that time.
    count: u32,
    since: u64,
    last: u64,
    /// Times in quarantine in a row.
    rounds: u32,
}

impl Panicked {
    /// Notes a panic at `now`; answers the time of the end of quarantine, if that begins: `u64::MAX` for never.
    fn note(&mut self, policy: RestartPolicy, now: u64) -> Option<u64> {
        if now.saturating_sub(self.last) >= CALM {
            *self = Self::default();
        }
        if now.saturating_sub(self.since) >= REPEATED_IN || self.count == 0 {
            (self.count, self.since) = (0, now);
        }
        self.count += 1;
        self.last = now;
        match policy {
            RestartPolicy::AtOnce => return None,
            RestartPolicy::Never => return Some(u64::MAX),
            RestartPolicy::Always if self.count < REPEATED => return None,
            RestartPolicy::Always | RestartPolicy::BackOff => {}
        }
        self.count = 0;
        self.rounds = self.rounds.saturating_add(1);
        let wait = FIRST.checked_shl(self.rounds - 1).filter(|wait| *wait < LONGEST).unwrap_or(LONGEST);
        // The calm is counted from the end of the quarantine.
        self.last = now.saturating_add(wait);
        Some(self.last)
    }
}

/// Stands in the place of a function in quarantine.
struct InQuarantine;

impl Node for InQuarantine {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Quarantined);
    }
    fn poll(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        Poll::Idle
    }
}

impl Slot {
    /// Puts a function into quarantine where its policy says so, after it has panicked at `now`.
    ///
    /// Answers when the quarantine ends. A node that exchanges packets with other workers never goes there: they
    /// would wait for it.
    pub(super) fn quarantine(&mut self, now: u64) -> Option<u64> {
        let policy =
            self.origin.as_ref().filter(|_| self.handoff == 0).map(|(blueprint, _)| blueprint.restart())?;
        let until = self.panicked.note(policy, now)?;
        let node = std::mem::replace(self.node.get_mut(), Box::new(InQuarantine));
        self.quarantined = true;
        // Its drop runs the author's code.
        let _dropped = contain(|| drop(node));
        Some(until)
    }
}

impl Graph {
    /// Whether a node is a function in quarantine.
    pub fn is_quarantined(&self, node: &str) -> bool {
        self.place(node).is_some_and(|place| self.slots[place].quarantined)
    }

    /// The names of its functions in quarantine.
    pub fn in_quarantine(&self) -> impl Iterator<Item = &str> {
        self.quarantined.iter().map(|(node, _)| &*self.slots[*node].name)
    }

    /// Makes functions again whose time in quarantine is over.
    #[cold]
    pub(super) fn release_quarantined(&mut self) {
        let now = self.cx.now();
        let due: Vec<usize> =
            self.quarantined.extract_if(.., |(_, until)| *until <= now).map(|(node, _)| node).collect();
        for node in due {
            match make(&self.slots[node], None) {
                Some(made) => {
                    *self.slots[node].node.get_mut() = made;
                    self.slots[node].quarantined = false;
                    if self.slots[node].timed {
                        self.rearm(node);
                    }
                }
                // It cannot even be made: that counts as another panic.
                None => self.quarantined.extend(self.slots[node].quarantine(now).map(|until| (node, until))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_time_in_quarantine_doubles_and_begins_anew_after_a_calm() {
        let mut panicked = Panicked::default();
        let mut now = 1_000 * MS;
        let mut waits = Vec::new();
        for _ in 0..12 {
            let until = panicked.note(RestartPolicy::BackOff, now).unwrap();
            waits.push((until - now) / MS);
            now = until + 1;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        let until = panicked.note(RestartPolicy::BackOff, now + CALM).unwrap();
        assert_eq!(until - now - CALM, FIRST);
    }

    #[test]
    fn only_repeated_panics_end_in_quarantine_where_a_function_is_always_made_again() {
        let mut panicked = Panicked::default();
        let mut often = |count: u32, every: u64| {
            let begin = panicked.last + CALM;
            (1..=count).find(|number| {
                panicked.note(RestartPolicy::Always, begin + u64::from(*number) * every).is_some()
            })
        };
        assert_eq!(often(1_000, 200 * MS), None, "50 in ten seconds");
        assert_eq!(often(1_000, 50 * MS), Some(REPEATED));
        assert_eq!(Panicked::default().note(RestartPolicy::Never, 5), Some(u64::MAX));
        assert_eq!(Panicked::default().note(RestartPolicy::AtOnce, 5), None);
    }
}
