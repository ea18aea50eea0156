//! The behaviour of a worker without work: it spins, yields, or sleeps in the kernel.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A trade of an idle worker's core time for latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdlePolicy {
    /// Polls again at once, always: a packet never waits, and the core is never free.
    Latency,
    /// Spins for some microseconds, then yields, then sleeps in the kernel for at most 100 µs at a time.
    #[default]
    Balanced,
    /// Sleeps in the kernel at once, until a descriptor, a timer or the control side wakes it.
    ///
    /// Sources without a descriptor are polled after 0.25 to 4 ms.
    Quiet,
}

impl IdlePolicy {
    /// All policies, for messages and completion.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Balanced, Self::Quiet];
    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Balanced => "balanced",
            Self::Quiet => "quiet",
        }
    }
}

/// Rounds without a packet after which a balanced worker takes the next step back.
const SPINS: u32 = 128;
const PAUSES: u32 = 256;
const YIELDS: u32 = 320;
/// `pause` instructions of a step: some 1–2 µs on current processors.
const PAUSE: u32 = 32;
/// A balanced worker's sleep, which is the longest wait of a packet.
const SHORT: Duration = Duration::from_micros(100);
/// A nearer timer does not justify a sleep, which costs about as much.
const NEAR: Duration = Duration::from_micros(20);
/// A quiet worker's sleeps over sources without a descriptor.
///
/// The last one bounds its load (a turn of some 10 µs).
const FIRST_NAP: Duration = Duration::from_micros(250);
const LAST_NAP: Duration = Duration::from_millis(4);
/// The number of false wake-ups in a row after which descriptors are not watched any more.
///
/// A wake-up is false when the descriptor then has no packet. A descriptor that is closed or in error is
/// readable for ever.
const FALSE_ALARMS: u32 = 16;

/// The next action of an idle worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// This many `pause` instructions.
    Pause(u32),
    /// Let other threads run.
    Yield,
    /// Sleep for at most this long, on the descriptors too or on the bell alone.
    Sleep { timeout: Option<Duration>, descriptors: bool },
}

/// The cause that ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Bell,
    Descriptor,
    Time,
}

/// The idle state of a worker.
#[derive(Debug)]
pub(crate) struct Idler {
    policy: IdlePolicy,
    rounds: u32,
    nap: Duration,
    false_alarms: u32,
    /// Sleeps so far.
    pub(crate) sleeps: u64,
}

impl Idler {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self { policy, rounds: 0, nap: FIRST_NAP, false_alarms: 0, sleeps: 0 }
    }

    /// Records that there were packets.
    #[inline(always)]
    pub(crate) fn busy(&mut self) {
        self.rounds = 0;
        self.nap = FIRST_NAP;
        self.false_alarms = 0;
    }

    /// Whether this is the first idle round after packets.
    pub(crate) fn is_fresh(&self) -> bool {
        self.rounds == 0
    }

    /// The next action after a round without packets.
    ///
    /// `watched` says that every source has a descriptor. `limit` is the time to the next timer or to the end
    /// of the run.
    pub(crate) fn rest(&mut self, watched: bool, limit: Option<Duration>) -> Rest {
        self.rounds = self.rounds.saturating_add(1);
        let descriptors = self.false_alarms < FALSE_ALARMS;
        let bounded = |nap: Duration| Some(limit.map_or(nap, |limit| limit.min(nap)));
        match self.policy {
            IdlePolicy::Latency => Rest::Pause(1),
            IdlePolicy::Balanced => match self.rounds {
                _ if limit.is_some_and(|limit| limit < NEAR) => Rest::Pause(1),
                rounds if rounds <= SPINS => Rest::Pause(1),
                rounds if rounds <= PAUSES => Rest::Pause(PAUSE),
                rounds if rounds <= YIELDS => Rest::Yield,
                _ => Rest::Sleep { timeout: bounded(SHORT), descriptors },
            },
            IdlePolicy::Quiet if !descriptors => Rest::Sleep { timeout: bounded(LAST_NAP), descriptors },
            IdlePolicy::Quiet if watched => Rest::Sleep { timeout: limit, descriptors },
            IdlePolicy::Quiet => {
                let nap = self.nap;
                self.nap = (nap * 2).min(LAST_NAP);
                Rest::Sleep { timeout: bounded(nap), descriptors }
            }
        }
    }

    /// Counts a sleep and its cause of ending.
    pub(crate) fn slept(&mut self, woken: Woken) {
        self.sleeps += 1;
        if woken == Woken::Descriptor {
            self.false_alarms = self.false_alarms.saturating_add(1);
        }
    }
}

/// The list of descriptors on which a worker sleeps. Its memory stays from one sleep to the next.
#[derive(Debug, Default)]
pub(crate) struct Sleeper(Vec<PollFd<'static>>);

impl Sleeper {
    /// Sleeps until `bell` or one of the descriptors that `name` names is readable, or until `timeout`.
    pub(crate) fn sleep<'a>(
        &mut self,
        bell: BorrowedFd<'a>,
        name: impl FnOnce(&mut dyn FnMut(BorrowedFd<'a>)),
        timeout: Option<Duration>,
    ) -> Woken {
        let mut watched: Vec<PollFd<'a>> = std::mem::take(&mut self.0);
        let mut watch = |descriptor| watched.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        watch(bell);
        name(&mut watch);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let woken = match poll(&mut watched, timeout.as_ref()) {
            Ok(_) if !watched[0].revents().is_empty() => Woken::Bell,
            Ok(1..) => Woken::Descriptor,
            // The timeout, or a signal: the caller checks everything in both cases.
            Ok(0) | Err(_) => Woken::Time,
        };
        // No borrow is left in the list. `collect` into a vector of the same layout reuses the memory.
        self.0 = watched.into_iter().map_while(|_| None).collect();
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn rests(policy: IdlePolicy, watched: bool, limit: Option<Duration>, rounds: usize) -> Vec<Rest> {
        let mut idler = Idler::new(policy);
        (0..rounds).map(|_| idler.rest(watched, limit)).collect()
    }

    #[test]
    fn latency_never_sleeps() {
        assert!(rests(IdlePolicy::Latency, true, None, 100_000).iter().all(|rest| *rest == Rest::Pause(1)));
    }

    #[test]
    fn balanced_steps_back_and_sleeps_briefly() {
        let rests = rests(IdlePolicy::Balanced, true, None, 1_000);
        assert_eq!(rests[0], Rest::Pause(1));
        let depth = |rest: &Rest| match rest {
            Rest::Pause(pauses) => *pauses,
            Rest::Yield => 1_000,
            Rest::Sleep { timeout, .. } => {
                assert!(timeout.is_some_and(|timeout| timeout <= Duration::from_micros(100)));
                2_000
            }
        };
        assert!(rests.is_sorted_by_key(depth));
        assert_eq!(rests[999], Rest::Sleep { timeout: Some(SHORT), descriptors: true });
    }

    #[test]
    fn quiet_sleeps_at_once_for_as_long_as_it_may() {
        let second = Duration::from_secs(1);
        assert_eq!(
            rests(IdlePolicy::Quiet, true, None, 1),
            [Rest::Sleep { timeout: None, descriptors: true }]
        );
        assert_eq!(
            rests(IdlePolicy::Quiet, true, Some(second), 1),
            [Rest::Sleep { timeout: Some(second), descriptors: true }]
        );
        let naps = rests(IdlePolicy::Quiet, false, Some(second), 20);
        assert_eq!(naps[0], Rest::Sleep { timeout: Some(FIRST_NAP), descriptors: true });
        assert_eq!(naps[19], Rest::Sleep { timeout: Some(LAST_NAP), descriptors: true });
    }

    #[test]
    fn a_descriptor_that_cries_wolf_is_no_longer_believed() {
        let mut idler = Idler::new(IdlePolicy::Quiet);
        for _ in 0..FALSE_ALARMS {
            assert!(matches!(idler.rest(true, None), Rest::Sleep { timeout: None, descriptors: true }));
            idler.slept(Woken::Descriptor);
        }
        assert_eq!(idler.rest(true, None), Rest::Sleep { timeout: Some(LAST_NAP), descriptors: false });
        idler.busy();
        assert_eq!(idler.rest(true, None), Rest::Sleep { timeout: None, descriptors: true });
    }
    #[test]
    fn a_sleeper_keeps_its_list() {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let rung = rustix::event::eventfd(1, rustix::event::EventfdFlags::empty()).unwrap();
        let mut sleeper = Sleeper::default();
        let mut sleep = |others: usize, rung: BorrowedFd<'_>| {
            let name = |watch: &mut dyn FnMut(_)| (0..others).for_each(|_| watch(rung));
            let woken = sleeper.sleep(bell.as_fd(), name, Some(Duration::ZERO));
            (woken, sleeper.0.as_ptr(), sleeper.0.capacity(), sleeper.0.len())
        };
        let (woken, memory, room, left) = sleep(40, rung.as_fd());
        assert_eq!((woken, left), (Woken::Descriptor, 0));
        assert!(room >= 41);
        assert_eq!(sleep(7, rung.as_fd()), (Woken::Descriptor, memory, room, 0));
        assert_eq!(sleep(0, rung.as_fd()), (Woken::Time, memory, room, 0));
    }
}
