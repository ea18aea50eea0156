//! Events: a bounded record of what happened, which any number of readers follow.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::{Event, EventLevel};
use crate::log::{self, RateLimit};

/// Events that are kept for readers that come later or are slow.
const KEPT: usize = 1_024;

/// The events of a run. Cloning it gives another handle to the same events.
///
/// A reader that is too slow misses the oldest events, and sees that from their numbers. No reader holds up
/// the writer.
#[derive(Clone, Default)]
pub struct Events(Arc<Shared>);

#[derive(Default)]
struct Shared {
    record: Mutex<Record>,
    came: Condvar,
}

#[derive(Default)]
struct Record {
    /// The number of the next event.
    next: u64,
    kept: VecDeque<Event>,
    /// Called after each event, such as to wake an asynchronous reader.
    wakers: Vec<Box<dyn Fn() -> bool + Send>>,
    /// Bounds the lines of the log.
    lines: RateLimit,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("next", &self.record().next).finish_non_exhaustive()
    }
}

impl Events {
    /// No events yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of now, and writes it to the log. Answers it with its number.
    ///
    /// Of each kind and subject, the log has 20 lines at once and 10 a second then. The record has all.
    pub fn tell(
        &self,
        level: EventLevel,
        kind: &str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Event {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let mut record = self.record();
        let event = Event {
            number: record.next,
            time_ns,
            level,
            kind: kind.to_owned(),
            subject: subject.into(),
            message: message.into(),
        };
        record.next += 1;
        if record.kept.len() == KEPT {
            record.kept.pop_front();
        }
        record.kept.push_back(event.clone());
        record.wakers.retain(|wake| wake());
        let line = match log::hears(level) {
            false => None,
            true => match log::cause(&event) {
                None => Some(0),
                Some(cause) => record.lines.admit(&cause, Instant::now()),
            },
        };
        drop(record);
        self.0.came.notify_all();
        if let Some(suppressed) = line {
            log::event(&event, suppressed);
        }
        event
    }

    /// The kept events from number `from` on, oldest first.
    pub fn since(&self, from: u64) -> Vec<Event> {
        let record = self.record();
        record.kept.iter().filter(|event| event.number >= from).cloned().collect()
    }

    /// The number of the next event.
    pub fn next(&self) -> u64 {
        self.record().next
    }

    /// Calls `wake` after each event until it answers `false`. It must neither wait nor record events.
    pub fn on_event(&self, wake: impl Fn() -> bool + Send + 'static) {
        self.record().wakers.push(Box::new(wake));
    }

    /// A reader of the events from number `from` on.
    pub fn subscribe(&self, from: u64) -> Subscription {
        Subscription { events: self.clone(), next: from }
    }
}

/// A reader of events, in their order.
#[derive(Debug)]
pub struct Subscription {
    events: Events,
    next: u64,
}

impl Subscription {
    /// The events since the last call, oldest first; waits at most `timeout` for one.
    pub fn wait(&mut self, timeout: Duration) -> Vec<Event> {
        let record = self.events.record();
        if record.next <= self.next {
            let (record, _late) =
                self.events.0.came.wait_timeout(record, timeout).unwrap_or_else(PoisonError::into_inner);
            drop(record);
        } else {
            drop(record);
        }
        self.take()
    }

    /// The events since the last call, oldest first.
    pub fn take(&mut self) -> Vec<Event> {
        let events = self.events.since(self.next);
        if let Some(last) = events.last() {
            self.next = last.number + 1;
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_readers_miss_the_oldest_events_and_hold_up_no_one() {
        let events = Events::new();
        let mut reader = events.subscribe(0);
        for number in 0..3 * KEPT {
            events.tell(EventLevel::Info, "test", "", number.to_string());
        }
        let seen = reader.take();
        assert_eq!(seen.len(), KEPT);
        assert_eq!(seen[0].number, 2 * KEPT as u64);
        assert!(reader.take().is_empty());
        events.tell(EventLevel::Warning, "test", "lan", "again");
        assert_eq!(reader.wait(Duration::ZERO)[0].subject, "lan");
    }

    #[test]
    fn wakers_that_are_done_are_forgotten() {
        let events = Events::new();
        let (sender, woken) = std::sync::mpsc::channel();
        events.on_event(move || {
            let _gone = sender.send(());
            false
        });
        events.tell(EventLevel::Info, "test", "", "one");
        events.tell(EventLevel::Info, "test", "", "two");
        assert_eq!(woken.try_iter().count(), 1);
    }
}
