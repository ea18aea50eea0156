//! Looks at the dataplane, at equal intervals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use netbricks_control::api::{Problem, Stats, Status};

use super::super::live::Api;
use super::super::live::show::{self, tables};

/// The state and the counters at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) status: Status,
    pub(super) stats: Stats,
    /// The functions' tables; none while another tab is open, because every worker is asked for each.
    pub(super) tables: Option<Vec<show::Table>>,
}

/// A sample, or the reason why there is none.
pub(super) type Look = Result<Sample, Problem>;

impl Sample {
    /// Looks now.
    pub(super) fn take(api: &dyn Api, with_tables: bool) -> Look {
        let (status, stats) = (api.status()?, api.stats()?);
        let tables = if with_tables { Some(tables(api, &api.functions()?)?) } else { None };
        Ok(Self { status, stats, tables })
    }
}

/// Looks every `interval` until the receiver of looks or the sender of `stopped` has gone.
pub(super) fn look_often(
    api: &dyn Api,
    interval: Duration,
    wants_tables: &AtomicBool,
    looks: &SyncSender<Look>,
    stopped: &Receiver<()>,
) {
    let mut due = Instant::now();
    loop {
        if looks.send(Sample::take(api, wants_tables.load(Ordering::Relaxed))).is_err() {
            return;
        }
        // A late look does not make the following ones come sooner.
        due = (due + interval).max(Instant::now());
        match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}
