//! Signals: the first SIGINT, SIGTERM or SIGHUP drains and stops, and SIGUSR1 asks for a report.
//!
//! A later SIGINT or SIGTERM exits at once.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

use crate::control::StopHandle;

/// Signals this soon after the first are the same request.
///
/// `timeout -s INT` signals the process and then its group, to which the process belongs. A terminal that
/// closes sends SIGHUP and SIGTERM.
pub const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Listens to signals until it is dropped.
#[derive(Debug)]
pub struct SignalGuard {
    handle: Handle,
    /// Dropped to end the thread's wait for signals of the same request.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The signals that stop a process in an orderly way: SIGINT, SIGTERM, and SIGHUP.
///
/// SIGHUP is left out where the process was started to ignore it, as `nohup` does.
#[must_use]
pub fn stopping_signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_in_mask("SigIgn:", SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether this process ignores (`SigIgn:`) or handles (`SigCgt:`) the signal (proc(5)).
fn is_in_mask(mask: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(mask)?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Stops the runtime gracefully on SIGINT (Ctrl-C), SIGTERM or [SIGHUP](stopping_signals).
///
/// It then calls `first` with a line for the operator. Within [300 ms](SAME_SIGNAL) further signals change
/// nothing. After that, SIGINT or SIGTERM ends the process at once with a message and exit code 128 + the
/// signal's number; SIGHUP changes nothing.
///
/// # Errors
/// The system's error when the handlers or the thread cannot be made.
pub fn stop_on_signals(
    stop: StopHandle,
    first: impl FnOnce(&str) + Send + 'static,
) -> io::Result<SignalGuard> {
    listen_to(&stopping_signals(), stop, first, |_| false)
}

/// As [`stop_on_signals`], but a SIGHUP calls `reload` instead, unless the terminal has hung up.
///
/// A process that was started to ignore SIGHUP, as by `nohup`, reloads too, and ignores only the terminal's end.
///
/// # Errors
/// As [`stop_on_signals`].
pub fn stop_or_reload_on_signals(
    stop: StopHandle,
    first: impl FnOnce(&str) + Send + 'static,
    reload: impl Fn() + Send + 'static,
) -> io::Result<SignalGuard> {
    let on_terminal = io::stderr().is_terminal();
    let ignores = !stopping_signals().contains(&SIGHUP);
    listen_to(&[SIGINT, SIGTERM, SIGHUP], stop, first, move |signal| {
        let hung_up = on_terminal && !io::stderr().is_terminal();
        if signal == SIGHUP && !hung_up {
            reload();
        }
        signal == SIGHUP && (!hung_up || ignores)
    })
}

fn listen_to(
    signals: &[i32],
    stop: StopHandle,
    first: impl FnOnce(&str) + Send + 'static,
    reloads: impl Fn(i32) -> bool + Send + 'static,
) -> io::Result<SignalGuard> {
    let mut signals = Signals::new(signals)?;
    let handle = signals.handle();
    let (running, ended) = channel();
    let thread = std::thread::Builder::new()
        .name("netbricks-signals".into())
        .spawn(move || listen(&mut signals, &ended, &stop, first, reloads))?;
    Ok(SignalGuard { handle, running: Some(running), thread: Some(thread) })
}

fn listen(
    signals: &mut Signals,
    ended: &Receiver<()>,
    stop: &StopHandle,
    first: impl FnOnce(&str) + Send + 'static,
    reloads: impl Fn(i32) -> bool,
) {
    let Some(signal) = signals.forever().find(|signal| !reloads(*signal)) else { return };
    let name = name(signal);
    stop.stop();
    let again = if signal == SIGHUP { "SIGTERM" } else { "once more" };
    first(&format!("{name}: draining and stopping; {again} to leave at once"));
    // Only this thread's own wait makes the result independent of when it gets a core: all signals until its
    // end are the same request.
    if ended.recv_timeout(SAME_SIGNAL) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    signals.pending().for_each(drop);
    // A shell that ends and then its terminal both send SIGHUP.
    let Some(signal) = signals.forever().find(|signal| *signal != SIGHUP) else { return };
    // The terminal may be gone.
    let _ = writeln!(
        io::stderr(),
        "{} again: leaving at once; packets in flight and the report are lost",
        self::name(signal)
    );
    std::process::exit(128 + signal);
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "SIGTERM",
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.handle.close();
        self.running = None;
        if let Some(thread) = self.thread.take() {
            // It only panics if the caller's closure did, and that was printed.
            let _panicked = thread.join();
        }
    }
}

/// While a value of this type lives, SIGUSR1 asks for the report so far, instead of ending the process.
#[derive(Debug)]
pub struct ReportRequests {
    asked: Arc<AtomicBool>,
    id: signal_hook::SigId,
}

impl ReportRequests {
    /// Listens to SIGUSR1.
    ///
    /// # Errors
    /// The system's error when the handler cannot be made.
    pub fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let id = signal_hook::flag::register(SIGUSR1, asked.clone())?;
        Ok(Self { asked, id })
    }

    /// Whether a report was asked for since the last call; several requests are one.
    pub fn take(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }
}

impl Drop for ReportRequests {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

/// While a value of this type lives, runs listen to the signals that stop them or ask for reports.
///
/// When the last one is dropped, these signals end the process again. The exceptions are signals that the
/// process ignored or handled in its own way before the first run.
///
/// signal-hook leaves its handlers in place when no run listens any more. The program would then not react to
/// Ctrl-C.
#[derive(Debug)]
pub struct RunSignals {
    defaults: &'static Defaults,
}

/// State that the runs of this process share.
#[derive(Debug)]
struct Defaults {
    runs: Mutex<usize>,
    /// Whether the default actions hold, because there is no run.
    hold: Arc<AtomicBool>,
}

impl RunSignals {
    /// Begins one run.
    ///
    /// # Errors
    /// The system's error when the handlers cannot be made.
    pub fn begin() -> io::Result<Self> {
        static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
        let mut registered = Ok(());
        let defaults = DEFAULTS.get_or_init(|| {
            let hold = Arc::new(AtomicBool::new(false));
            registered = [SIGINT, SIGTERM, SIGHUP, SIGUSR1]
                .into_iter()
                .filter(|signal| !is_in_mask("SigIgn:", *signal) && !is_in_mask("SigCgt:", *signal))
                .try_for_each(|signal| {
                    signal_hook::flag::register_conditional_default(signal, hold.clone()).map(|_| ())
                });
            Defaults { runs: Mutex::new(0), hold }
        });
        registered?;
        let mut runs = defaults.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs += 1;
        defaults.hold.store(false, Ordering::SeqCst);
        drop(runs);
        Ok(Self { defaults })
    }
}

impl Drop for RunSignals {
    fn drop(&mut self) {
        let mut runs = self.defaults.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs -= 1;
        self.defaults.hold.store(*runs == 0, Ordering::SeqCst);
    }
}
