//! SIGINT, SIGTERM and SIGHUP: the first drains and stops, a second SIGINT or SIGTERM leaves at once.

use std::io::{self, Write as _};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::control::StopHandle;

/// Listens until it is dropped.
#[derive(Debug)]
pub struct SignalGuard {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// The signals that stop a process in order: SIGINT, SIGTERM, and SIGHUP, unless whoever started it wants it to be ignored, as
/// `nohup` does.
#[must_use]
pub fn stopping_signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether this process ignores the signal (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// From now on, SIGINT (Ctrl-C), SIGTERM or [SIGHUP](stopping_signals) stops the runtime gracefully, after which `first` is called
/// with a line for the operator. A second SIGINT or SIGTERM ends the process at once with a message and exit code 128 + the
/// signal's number; a second SIGHUP changes nothing.
///
/// # Errors
/// What the system says when the handlers or the thread cannot be had.
pub fn stop_on_signals(
    stop: StopHandle,
    first: impl FnOnce(&str) + Send + 'static,
) -> io::Result<SignalGuard> {
    let mut signals = Signals::new(stopping_signals())?;
    let handle = signals.handle();
    let thread = std::thread::Builder::new().name("netbricks-signals".into()).spawn(move || {
        let mut first = Some(first);
        for signal in signals.forever() {
            let name = match signal {
                SIGINT => "SIGINT",
                SIGHUP => "SIGHUP",
                _ => "SIGTERM",
            };
            match first.take() {
                Some(tell) => {
                    stop.stop();
                    let again = if signal == SIGHUP { "SIGTERM" } else { "once more" };
                    tell(&format!("{name}: draining and stopping; {again} to leave at once"));
                }
                // A shell that ends and then its terminal both send one.
                None if signal == SIGHUP => {}
                None => {
                    // The terminal may be gone.
                    let _ = writeln!(
                        io::stderr(),
                        "{name} again: leaving at once; packets in flight and the report are lost"
                    );
                    std::process::exit(128 + signal);
                }
            }
        }
    })?;
    Ok(SignalGuard { handle, thread: Some(thread) })
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It only panics if the caller's closure did, which was printed then.
            let _panicked = thread.join();
        }
    }
}
