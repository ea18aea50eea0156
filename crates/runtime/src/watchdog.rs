//! Finds workers that do not come back from a function, and the function.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::control::Control;

/// The time without a sign of life after which a worker counts as stuck.
pub const STUCK: Duration = Duration::from_millis(100);

/// Something that the watchdog found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// A worker has not come back from a node.
    Began {
        /// The worker.
        worker: usize,
        /// The node that it is in; `None` for a command of the control side.
        node: Option<String>,
        /// How long it has been there.
        time: Duration,
    },
    /// The worker goes on.
    Ended {
        /// The worker.
        worker: usize,
        /// How long it was there.
        time: Duration,
    },
}

/// Looks at workers from time to time, from another thread.
#[derive(Debug)]
pub struct Watchdog {
    control: Control,
    seen: Vec<Seen>,
}

/// A worker's last sign of life.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: u64,
    since: Instant,
    /// The processor time of its thread then (ns).
    used: u64,
    told: bool,
}

impl Watchdog {
    /// A watchdog over all workers.
    pub fn new(control: &Control, now: Instant) -> Self {
        let seen = Seen { beat: 0, since: now, used: 0, told: false };
        Self { control: control.clone(), seen: vec![seen; control.workers()] }
    }

    /// Whether a worker is stuck, as of the last look.
    pub fn is_stuck(&self, worker: usize) -> bool {
        self.seen.get(worker).is_some_and(|seen| seen.told)
    }

    /// Looks at all workers, and answers what is new.
    ///
    /// A worker that only waits for a core is not stuck.
    pub fn look(&mut self, now: Instant) -> Vec<Stuck> {
        let mut found = Vec::new();
        for (worker, (published, seen)) in self.control.0.published.iter().zip(&mut self.seen).enumerate() {
            let beat = published.beat.load(Ordering::Relaxed);
            let rests = published.resting.load(Ordering::Relaxed) || published.has_ended();
            let time = now.saturating_duration_since(seen.since);
            if beat != seen.beat || rests {
                found.extend(seen.told.then_some(Stuck::Ended { worker, time }));
                let used = thread_time(published.thread.load(Ordering::Relaxed)).map_or(0, |(used, _)| used);
                *seen = Seen { beat, since: now, used, told: false };
                continue;
            }
            if seen.told || time < STUCK {
                continue;
            }
            let Some((used, runnable)) = thread_time(published.thread.load(Ordering::Relaxed)) else {
                continue;
            };
            // The kernel gave it no core for so long: that is no function's fault.
            let worked = Duration::from_nanos(used.saturating_sub(seen.used));
            if runnable && worked < STUCK {
                continue;
            }
            seen.told = true;
            found.push(Stuck::Began { worker, node: published.node(), time });
        }
        found
    }
}

/// A thread's processor time (ns), and whether it runs or waits for a core (`proc(5)`).
fn thread_time(thread: u32) -> Option<(u64, bool)> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
    let used = file("schedstat")?.split(' ').next()?.parse().ok()?;
    let stat = file("stat")?;
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    Some((used, state == 'R'))
}
