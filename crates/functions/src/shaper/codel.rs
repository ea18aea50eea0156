//! CoDel (RFC 8289): when a queue's packets wait too long for too long, some are dropped or marked.

/// The parameters of CoDel, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParameters {
    /// The delay that a queue may always have (`TARGET`).
    pub target: u64,
    /// How long it may have more before packets are dropped (`INTERVAL`).
    pub interval: u64,
}

/// The decision about a packet that has come to the head of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves.
    Keep,
    /// It is to be dropped; the next packet is asked about then. Or it is marked and leaves.
    Drop,
}

/// The state of one queue, with the names of RFC 8289, section 5.
///
/// The RFC's `dequeue` takes packets in a loop. Here its caller has the loop, and asks about one packet at a
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codel {
    /// When the delay will have been above the target for an interval (ns); 0 while it is below.
    first_above_time: u64,
    /// When the next packet is dropped while dropping (ns).
    drop_next: u64,
    /// Packets dropped since it began to drop.
    count: u32,
    /// The count when it began to drop the last time.
    lastcount: u32,
    /// Whether it drops.
    dropping: bool,
    /// Whether the packet before was dropped, so that the time of the next drop is to be set.
    dropped: bool,
}

impl Codel {
    /// The state of a new queue.
    pub const NEW: Self =
        Self { first_above_time: 0, drop_next: 0, count: 0, lastcount: 0, dropping: false, dropped: false };

    /// Decides about the packet at the head of a queue at `now` (ns).
    ///
    /// The packet has waited for `sojourn` ns. `alone` says that the queue behind it has no more bytes than the
    /// largest packet: then nothing would get better.
    pub fn head(&mut self, now: u64, sojourn: u64, alone: bool, parameters: &CodelParameters) -> Verdict {
        let ok_to_drop = self.ok_to_drop(now, sojourn, alone, parameters);
        if self.dropping {
            let dropped = std::mem::take(&mut self.dropped);
            if !ok_to_drop {
                self.dropping = false;
                return Verdict::Keep;
            }
            if dropped {
                self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
            }
            if now < self.drop_next {
                return Verdict::Keep;
            }
            self.count += 1;
            self.dropped = true;
            return Verdict::Drop;
        }
        if !ok_to_drop {
            return Verdict::Keep;
        }
        self.dropping = true;
        // Where it dropped a short time ago, it goes on near that rate, which then controlled the queue.
        let delta = self.count.saturating_sub(self.lastcount);
        let recent = now.saturating_sub(self.drop_next) < 16 * parameters.interval;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(now, parameters.interval, self.count);
        self.lastcount = self.count;
        Verdict::Drop
    }

    /// Says that the queue became empty: a delay of nothing is below the target.
    pub fn emptied(&mut self) {
        (self.first_above_time, self.dropping, self.dropped) = (0, false, false);
    }

    fn ok_to_drop(&mut self, now: u64, sojourn: u64, alone: bool, parameters: &CodelParameters) -> bool {
        if sojourn < parameters.target || alone {
            self.first_above_time = 0;
            return false;
        }
        if self.first_above_time == 0 {
            self.first_above_time = now.saturating_add(parameters.interval);
            return false;
        }
        now >= self.first_above_time
    }
}

/// The time of the next drop: an interval over the square root of the count later.
fn control_law(time: u64, interval: u64, count: u32) -> u64 {
    // Square roots of whole numbers are rounded alike on every machine (IEEE 754).
    time.saturating_add((interval as f64 / f64::from(count).sqrt()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PARAMETERS: CodelParameters = CodelParameters { target: 5 * MS, interval: 100 * MS };

    #[test]
    fn nothing_is_dropped_below_the_target_or_before_an_interval_is_over() {
        let mut codel = Codel::default();
        for time in 1..1_000 {
            assert_eq!(codel.head(time * MS, 5 * MS - 1, false, &PARAMETERS), Verdict::Keep);
            assert_eq!(codel.head(time * MS, 50 * MS, true, &PARAMETERS), Verdict::Keep);
        }
        for time in 1_000..1_100 {
            assert_eq!(codel.head(time * MS, 5 * MS, false, &PARAMETERS), Verdict::Keep, "{time} ms");
        }
        assert_eq!(codel.head(1_100 * MS, 5 * MS, false, &PARAMETERS), Verdict::Drop);
    }

    #[test]
    fn drops_follow_the_inverse_square_root_and_go_on_near_their_rate() {
        let mut codel = Codel::default();
        let mut drops = Vec::new();
        // A packet every 1 ms, always too late.
        for time in 1..2_000u64 {
            if codel.head(time * MS, 10 * MS, false, &PARAMETERS) == Verdict::Drop {
                drops.push(time);
            }
        }
        // The sums of 100 / sqrt(n), from the first drop at 101 ms on.
        let mut expected = vec![101.0f64];
        let mut next = 101.0;
        for n in 1.. {
            next += 100.0 / f64::from(n).sqrt();
            if next >= 1_999.0 {
                break;
            }
            expected.push(next);
        }
        assert_eq!(drops.len(), expected.len());
        for (drop, expected) in drops.iter().zip(&expected) {
            assert!((*drop as f64 - expected).abs() <= 1.0, "{drop} ms, expected {expected}");
        }
        // The delay falls below the target for a moment: it begins again where it was.
        codel.head(2_000 * MS, MS, false, &PARAMETERS);
        for time in 2_001..2_101 {
            assert_eq!(codel.head(time * MS, 10 * MS, false, &PARAMETERS), Verdict::Keep);
        }
        assert_eq!(codel.head(2_101 * MS, 10 * MS, false, &PARAMETERS), Verdict::Drop);
        assert_eq!(codel.count as usize, drops.len() - 1, "the drops since it last began");
        // After a long time without drops it begins anew.
        codel.head(9_000 * MS, 0, false, &PARAMETERS);
        codel.head(9_001 * MS, 10 * MS, false, &PARAMETERS);
        assert_eq!(codel.head(9_101 * MS, 10 * MS, false, &PARAMETERS), Verdict::Drop);
        assert_eq!(codel.count, 1);
    }
}
