//! The source of a graph's time.
//!
//! Nodes never ask the system, so a run with a driven or manual clock repeats exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The kind of clock that sets a graph's time (ns).
#[derive(Clone, Debug)]
pub enum Clock {
    /// Time passes by itself: for live ports.
    Real(Epoch),
    /// The graph's own sources set the time through [`Context::advance`](netbricks_core::Context::advance).
    ///
    /// This is for captures and seeded generators, whose timeouts and meters then replay exactly. Where only
    /// timers are left, time jumps from one to the next without waiting. Packets that other workers hand over
    /// by a shuffle carry their time of arrival. So either all such workers have driven clocks, or none of
    /// them.
    Driven,
    /// The test moves the time, never backwards.
    Manual(Arc<AtomicU64>),
}

/// The anchor of real time. All workers of a runtime share one, so that their times are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    instant: Instant,
    /// ns since 1970-01-01 UTC at `instant`.
    unix: u64,
}

impl Epoch {
    fn at(self, instant: Instant) -> u64 {
        self.unix + nanoseconds(instant.saturating_duration_since(self.instant))
    }
}

/// A duration in ns, at most 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Monotonic time in ns, anchored at the Unix time of this call.
    ///
    /// It reads like a time stamp, and never jumps when the system's clock is set.
    pub fn real() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds);
        Self::Real(Epoch { instant: Instant::now(), unix })
    }

    /// A clock that stands at `start` (ns) until the other half is moved.
    pub fn manual(start: u64) -> (Self, Arc<AtomicU64>) {
        let time = Arc::new(AtomicU64::new(start));
        (Self::Manual(time.clone()), time)
    }

    /// The time (ns) for a graph at `instant`; 0 leaves it to the graph's sources.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        match self {
            Self::Real(epoch) => epoch.at(instant),
            Self::Driven => 0,
            Self::Manual(time) => time.load(Ordering::Relaxed),
        }
    }

    /// The longest sleep at `instant` that ends in time for `timer` (ns).
    pub(crate) fn until(&self, timer: u64, instant: Instant) -> Option<Duration> {
        match self {
            Self::Real(epoch) => Some(Duration::from_nanos(timer.saturating_sub(epoch.at(instant)))),
            // Its sources bring the time with them.
            Self::Driven => None,
            // No event tells that the time was moved, so the worker checks it periodically.
            Self::Manual(_) => Some(Duration::from_millis(1)),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_is_anchored_and_exact_in_between() {
        let instant = Instant::now();
        let clock = Clock::Real(Epoch { instant, unix: 1_000 });
        assert_eq!(clock.at(instant), 1_000);
        assert_eq!(clock.at(instant + Duration::from_nanos(7)), 1_007);
        assert_eq!(clock.until(1_005, instant), Some(Duration::from_nanos(5)));
        assert_eq!(clock.until(900, instant), Some(Duration::ZERO));
    }

    #[test]
    fn driven_time_is_the_sources_and_manual_time_the_testers() {
        assert_eq!(Clock::Driven.at(Instant::now()), 0);
        let (clock, hand) = Clock::manual(5);
        assert_eq!(clock.at(Instant::now()), 5);
        hand.store(9, Ordering::Relaxed);
        assert_eq!(clock.at(Instant::now()), 9);
    }
}
