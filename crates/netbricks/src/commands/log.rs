//! The log of a run: structured lines of the control side on standard error, where the operator asks for them.
//!
//! A thread of its own writes them. A line that finds too many waiting is lost and counted, so that a slow reader of standard
//! error does not hold up the director.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::Failure;
use super::arguments::{LogArguments, LogFormat};
use crate::diagnostic::Level;

/// The environment variable that stands for `--log`.
const VARIABLE: &str = "NETBRICKS_LOG";
/// The filter where only the format is asked for.
const DEFAULT: &str = "warn";
/// Lines that may wait to be written; more are lost.
const WAITING: usize = 4_096;
/// The time that the last lines have at the end.
const LAST: Duration = Duration::from_secs(1);
/// The target of lines about this command and about the log itself.
const RUN: &str = "netbricks::run";

/// The log of this process, once there is one.
static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    format: LogFormat,
    lines: Lines,
}

/// Whether all lines on standard error are to be JSON.
pub(super) fn is_json() -> bool {
    LOG.get().is_some_and(|log| log.format == LogFormat::Json)
}

/// Begins to log, where the command line or the environment asks for it.
///
/// # Errors
/// [`Failure::Usage`] where the filter is none.
pub(super) fn begin(arguments: &LogArguments) -> Result<(), Failure> {
    let variable = std::env::var_os(VARIABLE).map(|filter| filter.to_string_lossy().into_owned());
    let variable = variable.filter(|filter| !filter.trim().is_empty());
    let (name, text) = match (&arguments.log, variable) {
        (Some(filter), _) => ("--log", filter.clone()),
        (None, Some(filter)) => (VARIABLE, filter),
        (None, None) if arguments.log_format.is_some() => ("--log", DEFAULT.to_owned()),
        (None, None) => return Ok(()),
    };
    let filter = filter(name, &text).map_err(Failure::Usage)?;
    let format = arguments.log_format.unwrap_or_default();
    let lines = Lines::begin(io::stderr())
        .map_err(|error| Failure::Failed(format!("there is no thread to write the log: {error}")))?;
    let log = LOG.get_or_init(|| Log { format, lines });
    let lines = log.lines.clone();
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || lines.clone());
    let begun = match format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => {
            let layer = layer.json().flatten_event(true).with_current_span(true).with_span_list(false);
            registry.with(layer).try_init()
        }
    };
    begun.map_err(|error| Failure::Failed(format!("the log cannot begin: {error}")))?;
    Ok(())
}

/// Waits until all lines so far are written, a second at most.
pub(super) fn flush() {
    if let Some(log) = LOG.get() {
        log.lines.flush(LAST);
    }
}

/// Writes an error or a warning of the command as a line of the log.
pub(super) fn complain(level: Level, reason: &str) {
    match level {
        Level::Error => tracing::error!(target: RUN, reason),
        Level::Warning => tracing::warn!(target: RUN, reason),
    }
}

/// Has the log's thread run on these cores only.
pub(super) fn run_on(cores: &[usize]) {
    if let Some(log) = LOG.get() {
        let _full = log.lines.sender.try_send(Work::RunOn(cores.to_vec()));
    }
}

/// Reads a filter, in the syntax of `EnvFilter`.
fn filter(name: &str, text: &str) -> Result<EnvFilter, String> {
    let wrong = |why: String| {
        format!(
            "{name} is `{text}`: {why}; expected `error`, `warn`, `info`, `debug`, `trace` or `off`, or targets with \
             levels, such as `netbricks::events=info,netbricks::requests=debug`"
        )
    };
    // A word alone would be the name of a target. That is not what a mistyped level means.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known = |word: &&str| {
        let is_level = levels.iter().any(|level| word.eq_ignore_ascii_case(level));
        is_level || word.is_empty() || word.contains('=') || word.starts_with("netbricks")
    };
    // The fields of a span have commas too.
    let words = text.split(',').map(str::trim).filter(|_| !text.contains('['));
    if let Some(word) = words.into_iter().find(|word| !is_known(word)) {
        return Err(wrong(format!("`{word}` is no level")));
    }
    EnvFilter::builder().parse(text).map_err(|error| wrong(error.to_string()))
}

/// The thread's work.
enum Work {
    Line(Vec<u8>),
    /// Answers once all lines before it are written.
    Flush(SyncSender<()>),
    RunOn(Vec<usize>),
}

/// The way of lines to the thread that writes them.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<Work>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    fn begin(to: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, work) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new().name("nb-log".into()).spawn(move || write_all(to, &work, &counted))?;
        Ok(Self { sender, lost })
    }

    /// Waits until all lines so far are written, at most so long.
    fn flush(&self, time: Duration) {
        let until = Instant::now() + time;
        let (answer, written) = sync_channel(1);
        let mut work = Work::Flush(answer);
        while let Err(TrySendError::Full(again)) = self.sender.try_send(work) {
            if Instant::now() >= until {
                return;
            }
            work = again;
            std::thread::sleep(Duration::from_millis(1));
        }
        let _late = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Each call has a whole line: the layer formats it first.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Work::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until the process ends.
fn write_all(mut to: impl Write, work: &Receiver<Work>, lost: &AtomicU64) {
    while let Ok(work) = work.recv() {
        match work {
            Work::Line(line) => {
                // There is nowhere else to tell of a reader that has gone.
                let _gone = to.write_all(&line).and_then(|()| to.flush());
            }
            Work::Flush(answer) => {
                let _late = answer.send(());
            }
            Work::RunOn(cores) => {
                // Without permission it goes where the kernel puts it.
                let _anywhere = netbricks_control::server::run_on(&cores);
            }
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(target: RUN, lost, "lines were lost: they came faster than standard error takes them");
        }
    }
}
