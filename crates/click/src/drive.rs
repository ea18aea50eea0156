//! The driver: turns of tasks, timers that expire, descriptors that are ready, until the configuration stops.

use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::router::Router;

/// Turns of tasks between looks at timers.
const TASKS_A_ROUND: usize = 128;
/// Rounds between looks at descriptors while tasks have work.
const ROUNDS_A_POLL: u32 = 64;
/// Timers that are run at once, before tasks get turns again.
const TIMERS_A_ROUND: usize = 64;
/// The longest sleep: signals that came just before it wait no longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Signals of the process, as the driver's caller provides them.
pub trait Signals {
    /// Has the process collect a signal instead of acting on it.
    fn collect(&mut self, signal: i32);
    /// A signal that came since the last call.
    fn take(&mut self) -> Option<i32>;
    /// Does what the process would do with a signal that it does not collect. Whether the configuration goes on.
    fn act(&mut self, signal: i32) -> bool;
}

/// No signals.
pub struct NoSignals;
impl Signals for NoSignals {
    fn collect(&mut self, _signal: i32) {}
    fn take(&mut self) -> Option<i32> {
        None
    }
    fn act(&mut self, _signal: i32) -> bool {
        true
    }
}

/// The result of one round of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Tasks have more to do.
    Busy,
    /// Nothing is to be done until this steady time (ns).
    Until(u64),
    /// Nothing is to be done until a descriptor is ready or a handler is called.
    Idle,
    /// The configuration has stopped.
    Stopped,
}

/// Time that passes while tasks ask for turns and do no work in them (ns).
const STEP: u64 = 1000;
/// A step is at least this share of the wait so far, so that a long wait takes few steps.
const SHARE_OF_A_WAIT: u64 = 128;

/// Gives tasks their turns, and runs timers that have expired.
///
/// Tasks that find nothing to do, and ask for another turn all the same, wait for time to pass, as those behind a
/// `Shaper` do. Simulated time then moves on by a step. A graph's time is the graph's to move: the answer is the time of
/// the next step, or of the first timer where that comes before.
pub fn round(router: &Router, tasks: usize) -> Round {
    router.begin_task();
    while router.run_count() <= 0 {
        let goes_on = router
            .driver_manager()
            .is_some_and(|element| router.element(element).driver_stopped(router.at(element)));
        if !goes_on {
            return Round::Stopped;
        }
        // A configuration can ask to stop very often.
        router.spend(1, 0);
        if router.run_count() <= 0 && !router.may_burst() {
            return Round::Busy;
        }
    }
    let (mut useful, mut idle) = (false, router.idle_turns.get());
    for _ in 0..tasks {
        if router.run_count() <= 0 {
            return Round::Busy;
        }
        let Some((element, task)) = router.tasks.begin() else { break };
        router.begin_task();
        let worked = router.element(element).run_task(router.at(element), task);
        useful |= worked;
        idle = if worked { 0 } else { idle.saturating_add(1) };
        if !router.tasks.end(worked) {
            break;
        }
    }
    if router.run_count() > 0 {
        useful |= run_timers(router);
    }
    router.idle_turns.set(if useful { 0 } else { idle });
    if router.run_count() <= 0 || !router.tasks.is_empty() {
        let clock = &router.surroundings().clock;
        if useful || router.run_count() <= 0 {
            router.waits_since.set(None);
        } else if clock.is_simulated() {
            let next = (clock.steady() / STEP + 1) * STEP;
            clock.jump(router.timers.first().map_or(next, |timer| timer.min(next)));
        } else if clock.is_set_from_outside() && idle >= router.tasks.len() {
            // Every task had a turn, and none had anything to do.
            return Round::Until(next_step(router, clock.steady()));
        }
        return Round::Busy;
    }
    router.waits_since.set(None);
    match router.timers.first() {
        Some(time) if time <= router.steady() => Round::Busy,
        Some(time) => Round::Until(time),
        None => Round::Idle,
    }
}

/// When tasks that wait for a graph's time to pass get turns again (ns).
fn next_step(router: &Router, now: u64) -> u64 {
    let since = router.waits_since.get().unwrap_or(now);
    router.waits_since.set(Some(since));
    let step = (now.saturating_sub(since) / SHARE_OF_A_WAIT).max(STEP);
    let next = now.saturating_add(step);
    router.timers.first().map_or(next, |timer| timer.min(next))
}

/// Runs timers that have expired. Whether there were any.
fn run_timers(router: &Router) -> bool {
    let now = router.steady();
    let mut useful = false;
    for _ in 0..TIMERS_A_ROUND {
        let Some(((element, timer), _)) = router.timers.expired(now) else { break };
        router.begin_task();
        router.element(element).run_timer(router.at(element), timer);
        useful = true;
        if router.run_count() <= 0 {
            break;
        }
    }
    useful
}

/// Tells elements whose descriptors are ready, and waits for one at most that long.
pub fn look_at_descriptors(router: &Router, wait: Duration) {
    let watched: Vec<(usize, usize, Rc<std::os::fd::OwnedFd>, bool)> = router
        .watched()
        .iter()
        .map(|one| (one.element, one.number, Rc::clone(&one.descriptor), one.write))
        .collect();
    let mut asked: Vec<PollFd<'_>> = watched
        .iter()
        .map(|(_, _, descriptor, write)| {
            PollFd::new(&**descriptor, if *write { PollFlags::OUT } else { PollFlags::IN })
        })
        .collect();
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    // An interrupted wait is a signal: the caller looks at signals next.
    let Ok(count) = poll(&mut asked, Some(&timeout)) else { return };
    if count == 0 {
        return;
    }
    let ready: Vec<(usize, usize)> = asked
        .iter()
        .zip(&watched)
        .filter(|(one, _)| !one.revents().is_empty())
        .map(|(_, (element, number, _, _))| (*element, *number))
        .collect();
    for (element, number) in ready {
        router.element(element).ready(router.at(element), number);
    }
}

/// Runs a configuration until it stops, and those that replace it. Returns the last.
pub fn run(mut router: Rc<Router>, signals: &mut dyn Signals) -> Rc<Router> {
    let mut rounds = 0_u32;
    loop {
        for signal in router.signals() {
            signals.collect(signal);
        }
        router.begin_turn();
        let round = round(&router, TASKS_A_ROUND);
        if let Some(next) = router.take_replacement() {
            next.take_state(&router);
            router.cleanup();
            router = next;
            continue;
        }
        rounds = rounds.wrapping_add(1);
        match round {
            Round::Stopped => return router,
            Round::Busy => {
                if rounds.is_multiple_of(ROUNDS_A_POLL) && !router.watched().is_empty() {
                    look_at_descriptors(&router, Duration::ZERO);
                }
            }
            Round::Until(time) if router.surroundings().clock.jumps() => {
                look_at_descriptors(&router, Duration::ZERO);
                if router.tasks.is_empty() && router.run_count() > 0 {
                    router.surroundings().clock.jump(router.timers.first().unwrap_or(time));
                }
            }
            Round::Until(time) => {
                let wait = Duration::from_nanos(router.surroundings().clock.wait_until(time));
                look_at_descriptors(&router, wait.min(LONGEST_SLEEP));
            }
            Round::Idle => look_at_descriptors(&router, LONGEST_SLEEP),
        }
        while let Some(signal) = signals.take() {
            if !router.signalled(signal) && !signals.act(signal) {
                return router;
            }
        }
    }
}
