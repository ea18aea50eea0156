//! Where a graph's time comes from. Nodes never ask the system: a run with a driven or manual clock repeats exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What drives a graph's time (ns).
#[derive(Clone, Debug)]
pub enum Clock {
    /// Time goes on by itself: for live ports.
    Real(Epoch),
    /// The graph's own sources say what time it is through [`Context::advance`](netbricks_core::Context::advance):
    /// for captures and seeded generators, whose timeouts and meters then replay exactly. Where only timers are left,
    /// time jumps from one to the next without waiting. What other workers give it by a shuffle brings its time of arrival
    /// along, so that such workers have driven clocks together, or none of them has.
    Driven,
    /// Somebody else moves it, never backwards: for tests.
    Manual(Arc<AtomicU64>),
}

/// Where real time is anchored. All workers of a runtime share one, so that their times compare.
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

/// A duration in ns; 584 years are enough for a run.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Monotonic time in ns, anchored at now's Unix time: it reads like a time stamp, and never jumps when the
    /// system's clock is set.
    pub fn real() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds);
        Self::Real(Epoch { instant: Instant::now(), unix })
    }

    /// A clock that stands at `start` (ns) until the other half is moved.
    pub fn manual(start: u64) -> (Self, Arc<AtomicU64>) {
        let time = Arc::new(AtomicU64::new(start));
        (Self::Manual(time.clone()), time)
    }

    /// The time (ns) to hand to a graph at the instant `instant`; 0 leaves it to the graph's sources.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        match self {
            Self::Real(epoch) => epoch.at(instant),
            Self::Driven => 0,
            Self::Manual(time) => time.load(Ordering::Relaxed),
        }
    }

    /// How long to sleep at most at `instant` so as to be in time for `timer` (ns).
    pub(crate) fn until(&self, timer: u64, instant: Instant) -> Option<Duration> {
        match self {
            Self::Real(epoch) => Some(Duration::from_nanos(timer.saturating_sub(epoch.at(instant)))),
            // Its sources bring the time with them.
            Self::Driven => None,
            // Nobody says when the time was moved: it is looked at now and then.
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
