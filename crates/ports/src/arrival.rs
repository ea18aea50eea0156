//! How arrival times drive the clock: a batch holds arrivals of one millisecond only, and the graph's time is that
//! millisecond, so that no result depends on the batch size.

use netbricks_buffer::Batch;
use netbricks_core::{Context, Poll};

const MILLISECOND: u64 = 1_000_000;
/// How long a source whose pool is empty waits before it asks again (ns). It asks for a time rather than for its next
/// turn: whoever keeps the buffers may wait for a time as well, and only this source moves the clock.
const STALLED: u64 = 100_000;

/// The clock of a source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Start of the millisecond that the batch in hand belongs to (ns).
    current: u64,
}

impl Arrivals {
    /// Whether an arrival at `time` (ns) may join the batch; advances the graph's clock where it starts a new one. Time
    /// that goes back counts as standing still.
    #[inline(always)]
    pub(crate) fn admit(&mut self, time: u64, batch: &Batch, cx: &mut Context) -> bool {
        if time < self.current.saturating_add(MILLISECOND) {
            // The usual case, and the first arrival of a capture that starts at the epoch.
            return true;
        }
        if !batch.is_empty() {
            return false;
        }
        self.current = time - time % MILLISECOND;
        cx.advance(self.current);
        true
    }

    /// What a source answers that found no buffer for its first packet.
    pub(crate) fn stalled(cx: &Context) -> Poll {
        Poll::Until(cx.now().saturating_add(STALLED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netbricks_buffer::Pool;

    #[test]
    fn a_batch_never_spans_a_millisecond_and_time_never_goes_back() {
        let pool = Pool::builder().frames(8).build().unwrap();
        let mut cx = Context::new(pool.clone());
        let (mut arrivals, mut batch) = (Arrivals::default(), Batch::new());
        assert!(arrivals.admit(5_999_999, &batch, &mut cx));
        assert_eq!(cx.now(), 5_000_000);
        batch.push(pool.packet(&[0; 60]).unwrap()).unwrap();
        assert!(arrivals.admit(5_000_001, &batch, &mut cx), "earlier, but within the millisecond");
        assert!(!arrivals.admit(6_000_000, &batch, &mut cx));
        assert_eq!(cx.now(), 5_000_000, "refused: the clock stands");
        batch.clear();
        assert!(arrivals.admit(6_000_000, &batch, &mut cx));
        batch.push(pool.packet(&[0; 60]).unwrap()).unwrap();
        assert!(arrivals.admit(1_000, &batch, &mut cx), "a capture out of order");
        assert_eq!(cx.now(), 6_000_000);
    }
}
