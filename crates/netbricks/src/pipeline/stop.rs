//! Ends a program's run before its sources end: a handle, and the signals of the process.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netbricks_runtime::{FinalReport, ReportRequests, RunSignals, Runtime, SignalGuard, stop_on_signals};

use crate::chain::OpenPorts;
use crate::commands::Begun;

/// How often a run looks whether a report was asked for.
const INTERVAL: Duration = Duration::from_millis(500);

/// Stops the run of one context, from any thread. Its clones stop the same run.
///
/// ```
/// use netbricks::NetBricksContext;
///
/// # fn main() -> Result<(), netbricks::ContextError> {
/// // It would go on for ever.
/// let context = NetBricksContext::from_text(
///     "[port.lan]\ndriver = \"generator\"\nrate = \"10 kpps\"\nclock = \"real\"\n[port.wan]\ndriver = \"null\"\n",
/// )?;
/// let stop = context.stop_handle();
/// std::thread::spawn(move || {
///     // … until the program has seen enough.
///     stop.stop();
/// });
/// let end = context.queues_of("lan")[0].receive().send(&context.queues_of("wan")[0]);
/// let summary = context.run([end])?;
/// assert!(summary.conserved);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<Mutex<Stop>>);

#[derive(Debug, Default)]
struct Stop {
    asked: bool,
    /// Set once the run has begun.
    runtime: Option<netbricks_runtime::StopHandle>,
}

impl StopHandle {
    /// Stops the run: every worker stops receiving and drains, and [`run`](crate::NetBricksContext::run)
    /// returns.
    ///
    /// This call returns at once. If the run has not begun, it ends as soon as it begins.
    pub fn stop(&self) {
        let mut stop = self.lock();
        stop.asked = true;
        if let Some(runtime) = &stop.runtime {
            runtime.stop();
        }
    }

    /// Sets the run that this handle stops.
    pub(super) fn begin(&self, runtime: netbricks_runtime::StopHandle) {
        let mut stop = self.lock();
        if stop.asked {
            runtime.stop();
        }
        stop.runtime = Some(runtime);
    }

    /// The state is consistent even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Stop> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signals of the process, as far as this run uses them.
pub(super) struct Signals {
    _stop: SignalGuard,
    requests: ReportRequests,
    /// Dropped last: until then, no signal ends the process unless it is meant to.
    _run: RunSignals,
}

impl Signals {
    pub(super) fn listen(runtime: &Runtime) -> io::Result<Self> {
        let run = RunSignals::begin()?;
        let requests = ReportRequests::listen()?;
        let stop = stop_on_signals(runtime.stop_handle(), |line| eprintln!("{line}"))?;
        Ok(Self { _stop: stop, requests, _run: run })
    }
}

/// Waits for a run's end, and meanwhile prints reports that are asked for to standard error.
pub(super) fn attend(
    runtime: Runtime,
    signals: Option<Signals>,
    ports: &OpenPorts,
    begun: &Begun<'_>,
) -> FinalReport {
    if let Some(signals) = signals {
        while !runtime.wait_timeout(INTERVAL) {
            if signals.requests.take() {
                match begun.so_far(&runtime, ports) {
                    Ok(summary) => eprint!("{}", summary.text()),
                    Err(error) => eprintln!("there is no report so far: {error}"),
                }
            }
        }
    }
    runtime.wait()
}
