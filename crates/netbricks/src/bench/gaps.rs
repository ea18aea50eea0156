//! The longest time between two batches of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netbricks_core::{Context, FrameFunction, Frames, NoSettings, Registry, compose_frames};

/// The longest time between two batches since it was taken last.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongestGap(Arc<AtomicU64>);

impl LongestGap {
    /// Takes it, and begins again.
    pub(crate) fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }

    /// Adds `longest-gap`, which takes note of it.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let longest = self.clone();
        let summary = "Takes note of the longest time between two batches.";
        registry.add("longest-gap", summary, move |_: &NoSettings, worker| {
            compose_frames(worker, || Gaps { last: None, longest: longest.clone() })
        });
    }
}

struct Gaps {
    last: Option<Instant>,
    longest: LongestGap,
}

impl FrameFunction for Gaps {
    fn process(&mut self, _: Frames<'_>, _: &mut Context) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let gap = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
            self.longest.0.fetch_max(gap, Ordering::Relaxed);
        }
    }
}
