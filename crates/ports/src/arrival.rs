//! How arrival times drive the clock: a batch holds arrivals of one millisecond only, and the graph's time is that
//! millisecond, so that no result depends on the batch size. Nor does a batch span the deadline of an event, which has its
//! turn between the two.

use netbricks_buffer::Batch;
use netbricks_core::{Context, Poll};

const MILLISECOND: u64 = 1_000_000;
/// How long a source whose pool is empty waits before it asks again (ns). It asks for a time rather than for its next
/// turn: whoever keeps the buffers may wait for a time as well, and only this source moves the clock.
const STALLED: u64 = 100_000;
/// How often a wait in a row may be twice as long as the one before: up to 0.1 s, and never longer than all before it.
const DOUBLINGS: u32 = 10;

/// The clock of a source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Start of the millisecond that the batch in hand belongs to (ns).
    current: u64,
    /// What arrives from here on needs another batch, or another look (ns).
    edge: u64,
}

impl Arrivals {
    /// Begins a poll: events may have other deadlines by now.
    #[inline(always)]
    pub(crate) fn begin(&mut self, cx: &Context) {
        self.edge = self.current.saturating_add(MILLISECOND).min(cx.deadline());
    }

    /// Whether an arrival at `time` (ns) may join the batch; advances the graph's clock where it starts a new one. Time
    /// that goes back counts as standing still. Where even an empty batch may not have it, an event comes first: the
    /// source answers [`Poll::Busy`].
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

    /// What a source answers that found no buffer for its first packet.
    pub(crate) fn stalled(cx: &Context) -> Poll {
        Self::stalled_again(cx, 0)
    }

    /// As [`stalled`](Self::stalled), of a source that has been so `times` before in a row and will not give up: whoever
    /// keeps buffers for hours of the graph's time gives them back after some thousand turns.
    pub(crate) fn stalled_again(cx: &Context, times: u32) -> Poll {
        Poll::Until(cx.now().saturating_add(STALLED << times.min(DOUBLINGS)))
    }
}

#[cfg(test)]
mod tests;
