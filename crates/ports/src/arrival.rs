//! How arrival times drive the clock.
//!
//! A batch holds arrivals of one millisecond only, and the graph's time is that millisecond, so that no
//! result depends on the batch size. A batch also does not span the deadline of an event: the event has its
//! turn between two batches.

use netbricks_buffer::Batch;
use netbricks_core::{Context, Poll};

const MILLISECOND: u64 = 1_000_000;
/// How long a source whose pool is empty waits before it asks again (ns).
///
/// It asks for a time and not for its next turn. The node that keeps the buffers may wait for a time as well,
/// and only this source moves the clock.
const STALLED: u64 = 100_000;
/// How often a wait doubles in a row.
///
/// The longest wait is 0.1 s, and no wait is longer than all those before it.
const DOUBLINGS: u32 = 10;

/// The clock of a source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Start of the millisecond that the current batch belongs to (ns).
    current: u64,
    /// An arrival from this time on needs another batch, or another check (ns).
    edge: u64,
}

impl Arrivals {
    /// Begins a poll: the deadline of the next event may have changed.
    #[inline(always)]
    pub(crate) fn begin(&mut self, cx: &Context) {
        self.edge = self.current.saturating_add(MILLISECOND).min(cx.deadline());
    }

    /// Whether an arrival at `time` (ns) may join the batch. Advances the graph's clock if the arrival starts
    /// a batch.
    ///
    /// A time that goes back counts as unchanged. If even an empty batch may not have the arrival, an event
    /// comes first: the source answers [`Poll::Busy`].
    #[inline(always)]
    pub(crate) fn admit(&mut self, time: u64, batch: &Batch, cx: &mut Context) -> bool {
        // The usual case, and the first arrival of a capture that starts at the epoch.
        time < self.edge || batch.is_empty() && self.start(time, cx)
    }

    fn start(&mut self, time: u64, cx: &mut Context) -> bool {
        if !cx.receiving().approach(time) {
            return false;
        }
        self.current = time - time % MILLISECOND;
        cx.receiving().advance(self.current);
        self.begin(cx);
        true
    }

    /// The answer of a source that found no buffer for its first packet.
    pub(crate) fn stalled(cx: &Context) -> Poll {
        Self::stalled_again(cx, 0)
    }

    /// As [`stalled`](Self::stalled), for a source that has stalled `times` times before in a row and will
    /// not give up.
    ///
    /// A node that keeps buffers for hours of the graph's time gives them back after some thousand turns.
    pub(crate) fn stalled_again(cx: &Context, times: u32) -> Poll {
        Poll::Until(cx.now().saturating_add(STALLED << times.min(DOUBLINGS)))
    }
}

#[cfg(test)]
mod tests;
