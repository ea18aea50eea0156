//! A capture that several queues write, and that is written out twice a second also while nothing is sent: a process that is
//! killed loses what came since.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Writer;
use crate::port::PortError;

/// Time between two looks at whether something is to be written out.
const PERIOD: Duration = Duration::from_millis(500);

/// A writer, unless it is gone.
type Place = Mutex<Option<Writer>>;

/// A capture that several queues write.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Place>, Arc<Flusher>);

/// The thread that flushes a writer. It is over when this is gone: nothing of a capture outlives its port.
struct Flusher {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    fn start(writer: Weak<Place>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("capture-flush".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) && flush(&writer) {
                thread::park_timeout(PERIOD);
            }
        })?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }
    /// Ends the thread, and waits until it has.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // A panic of it was shown when it happened, and the capture is whole without it.
            let _ = thread.join();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

impl SharedWriter {
    /// Shares a writer, and starts the thread that flushes it. A thread, since no queue is asked for anything while its worker
    /// waits or is busy elsewhere; it ends when the writer is gone.
    pub(crate) fn new(writer: Writer) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Some(writer)));
        let flusher = Flusher::start(Arc::downgrade(&shared))?;
        Ok(Self(shared, Arc::new(flusher)))
    }
    /// Runs `f` over the writer, unless it is gone.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Writer) -> R) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }
    /// Takes the writer away.
    pub(crate) fn take(&self) -> Option<Writer> {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.1.end();
        writer
    }
    /// What earlier processes left of captures of the same name.
    pub(crate) fn warnings(&self, port: &str) -> Vec<String> {
        let warning = |left: &std::path::PathBuf| {
            format!(
                "port `{port}`: {} is a capture that was begun and not finished: its process was killed, or writes it still; it \
                 can be read as far as it goes, and is left as it is",
                left.display()
            )
        };
        self.with(|writer| writer.left().iter().map(warning).collect()).unwrap_or_default()
    }
    /// Gives the file its name.
    pub(crate) fn close(&self, port: &str) -> Result<(), PortError> {
        let Some(writer) = self.take() else { return Ok(()) };
        let partial = writer.partial().map(|path| path.display().to_string());
        let path = writer.path().display().to_string();
        writer.finish().map_err(|error| PortError::File {
            port: port.into(),
            path,
            problem: problem(partial.as_deref(), &error),
        })
    }
}

/// Writes out what is buffered; `false` where there is no writer any more.
fn flush(writer: &Weak<Place>) -> bool {
    let Some(writer) = writer.upgrade() else { return false };
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(writer) = writer.as_mut() else { return false };
    // What could not be written stays in the buffer: who writes or finishes is told.
    let _ = writer.flush();
    true
}

/// Why a capture cannot be written on.
pub(super) fn failed(port: &str, writer: &Writer, error: &io::Error) -> PortError {
    let partial = writer.partial().map(|path| path.display().to_string());
    PortError::File {
        port: port.into(),
        path: writer.path().display().to_string(),
        problem: problem(partial.as_deref(), error),
    }
}

fn problem(partial: Option<&str>, error: &io::Error) -> String {
    match partial {
        Some(partial) => {
            format!("cannot be written: {error}; what could be written before is in {partial}")
        }
        None => format!("cannot be written: {error}"),
    }
}
