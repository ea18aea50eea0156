//! The policy after a fault: a new instance at once, later, or never.

/// The longest time without an instance (ns).
const LONGEST: u64 = 10_000_000_000;

/// How a node goes on after faults of its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Strikes after which the node stops; 0 for never.
    pub(crate) strikes: u32,
    /// The first time without an instance (ns). It doubles with each strike.
    pub(crate) backoff: u64,
    /// The time without a fault (ns) after which strikes are forgotten.
    pub(crate) forgive: u64,
}

/// Whether a node's module runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It gets its first instance with its first packets.
    New,
    /// It has an instance.
    Running,
    /// It gets an instance at this time (ns).
    Waiting(u64),
    /// It gets none until an operator says so.
    Stopped,
}

/// The strikes of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strikes {
    policy: Policy,
    count: u32,
    last: u64,
    pub(crate) status: Status,
}

impl Strikes {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, count: 0, last: 0, status: Status::Running }
    }

    /// Counts a fault at time `now` (ns), and decides how the node goes on.
    pub(crate) fn strike(&mut self, now: u64) {
        if now.saturating_sub(self.last) >= self.policy.forgive {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = now;
        self.status = match self.policy.strikes {
            most @ 1.. if self.count >= most => Status::Stopped,
            _ => self.waiting(),
        };
    }

    /// Waiting, from the last strike on, as long as the strikes so far ask for.
    fn waiting(&self) -> Status {
        let doublings = self.count.saturating_sub(1).min(40);
        let Policy { backoff, .. } = self.policy;
        let wait = backoff.saturating_mul(1 << doublings).min(LONGEST.max(backoff));
        Status::Waiting(self.last.saturating_add(wait))
    }

    /// Strikes that count.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether the node gets a new instance at time `now` (ns).
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        match self.status {
            Status::New => true,
            Status::Waiting(until) => now >= until,
            Status::Running | Status::Stopped => false,
        }
    }

    /// Has a node that stopped try once more, after the time that its strikes ask for.
    ///
    /// The strikes go on to count. It answers whether the node had stopped; otherwise nothing changes. So no caller can
    /// shorten the time.
    pub(crate) fn try_again(&mut self) -> bool {
        let stopped = self.status == Status::Stopped;
        if stopped {
            self.status = self.waiting();
        }
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { strikes: 4, backoff: 10, forgive: 1_000 };

    #[test]
    fn the_time_doubles_until_the_node_stops() {
        let mut strikes = Strikes::new(POLICY);
        let mut waits = Vec::new();
        for now in [100, 200, 300, 400] {
            strikes.strike(now);
            match strikes.status {
                Status::Waiting(until) => waits.push(until - now),
                status => assert_eq!((status, now), (Status::Stopped, 400)),
            }
        }
        assert_eq!(waits, [10, 20, 40]);
        assert!(!strikes.is_due(u64::MAX));
    }

    #[test]
    fn a_restart_shortens_no_wait_and_forgets_no_strike() {
        let mut strikes = Strikes::new(POLICY);
        assert!(!strikes.try_again(), "it runs");
        for now in [100, 200, 300] {
            strikes.strike(now);
            let waits = strikes.status;
            assert!(!strikes.try_again());
            assert_eq!(strikes.status, waits, "{now}");
        }
        strikes.strike(400);
        assert_eq!(strikes.status, Status::Stopped);
        assert!(strikes.try_again());
        assert_eq!((strikes.status, strikes.count()), (Status::Waiting(480), 4));
        assert!(!strikes.is_due(479) && strikes.is_due(480));
        strikes.status = Status::Running;
        // One more fault stops it again, until a quiet time has passed.
        strikes.strike(500);
        assert_eq!((strikes.status, strikes.count()), (Status::Stopped, 5));
        assert!(strikes.try_again());
        assert_eq!(strikes.status, Status::Waiting(660));
        strikes.strike(1_600);
        assert_eq!((strikes.status, strikes.count()), (Status::Waiting(1_610), 1));
    }

    #[test]
    fn strikes_are_forgotten_after_a_quiet_time() {
        let mut strikes = Strikes::new(POLICY);
        for now in [0, 1_000, 2_500, 4_000, 5_001] {
            strikes.strike(now);
            assert_eq!(strikes.count(), 1, "{now}");
        }
        strikes.strike(5_500);
        assert_eq!((strikes.count(), strikes.status), (2, Status::Waiting(5_520)));
    }

    #[test]
    fn without_a_limit_the_time_grows_to_a_bound() {
        let mut strikes = Strikes::new(Policy { strikes: 0, backoff: 1_000_000, forgive: u64::MAX });
        for now in 0..200 {
            strikes.strike(now);
        }
        assert_eq!(strikes.status, Status::Waiting(199 + LONGEST));
    }
}
