//! Rate limits: token buckets for discovery packets of all hosts and of each, and for control packets of a session.

use netbricks_core::tables::{Secret, hash_words};

const SECOND: u64 = 1_000_000_000;

/// A token bucket that holds up to `burst` packets, and fills at `rate` packets a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// The time (ns) at which the bucket is full again.
    full_at: u64,
}

impl Bucket {
    /// Takes a token; `false` where there is none.
    pub(super) fn take(&mut self, now: u64, rate: u64, burst: u64) -> bool {
        let each = SECOND / rate.max(1);
        let full_at = self.full_at.max(now);
        if full_at.saturating_sub(now) > each.saturating_mul(burst.saturating_sub(1)) {
            return false;
        }
        self.full_at = full_at.saturating_add(each);
        true
    }
}

/// Buckets of hosts, which share one where their hashes are equal.
const HOSTS: usize = 4_096;

/// The limits of discovery packets: in all, and of each host.
pub(super) struct DiscoveryLimits {
    all: Bucket,
    hosts: Vec<Bucket>,
    secret: Secret,
    rate: u64,
    rate_each: u64,
}

impl DiscoveryLimits {
    pub(super) fn new(rate: u64, rate_each: u64, seed: u64) -> Self {
        let secret = Secret::from_seed(seed);
        Self { all: Bucket::default(), hosts: vec![Bucket::default(); HOSTS], secret, rate, rate_each }
    }

    /// Whether another packet of this host may be answered, which then counts.
    ///
    /// The host's own limit comes first: a host that asks too often takes nothing from others.
    pub(super) fn take(&mut self, host: [u64; 2], now: u64) -> bool {
        let place = hash_words(&host, &self.secret) as usize % HOSTS;
        let own =
            self.hosts.get_mut(place).is_some_and(|bucket| bucket.take(now, self.rate_each, self.rate_each));
        own && self.all.take(now, self.rate, self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_a_burst_and_then_its_rate() {
        let mut bucket = Bucket::default();
        let taken = |bucket: &mut Bucket, now| (0..100).filter(|_| bucket.take(now, 10, 4)).count();
        assert_eq!(taken(&mut bucket, SECOND), 4);
        assert_eq!(taken(&mut bucket, SECOND), 0);
        assert_eq!(taken(&mut bucket, SECOND + SECOND / 10), 1);
        assert_eq!(taken(&mut bucket, 9 * SECOND), 4);
    }

    #[test]
    fn a_host_that_asks_often_leaves_others_their_share() {
        let mut limits = DiscoveryLimits::new(100, 5, 1);
        let noisy = (0..1_000).filter(|_| limits.take([1, 0], SECOND)).count();
        assert_eq!(noisy, 5);
        let others = (2..1_000).filter(|host| limits.take([*host, 0], SECOND)).count();
        assert_eq!(others, 95, "and all together have a limit");
    }
}
