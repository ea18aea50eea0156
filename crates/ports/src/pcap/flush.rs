//! A capture that several queues write.
//!
//! It is flushed twice a second, also while nothing is sent: a killed process loses only the packets after
//! the last flush.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Writer;
use crate::port::PortError;

/// Time between two checks for data to write out.
const PERIOD: Duration = Duration::from_millis(500);

/// A writer, until it is taken.
type Place = Mutex<Option<Writer>>;

/// A capture that several queues write.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Place>, Arc<Flusher>);

/// The thread that flushes a writer. It ends when this is dropped: no part of a capture outlives its port.
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
    /// Ends the thread, and waits until it has ended.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // A panic in the thread was shown when it happened, and the capture is complete without the
            // thread.
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
    /// Shares a writer, and starts the thread that flushes it.
    ///
    /// A thread is needed because a queue gets no calls while its worker waits or is busy elsewhere. It ends
    /// when the writer is gone.
    pub(crate) fn new(writer: Writer) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Some(writer)));
        let flusher = Flusher::start(Arc::downgrade(&shared))?;
        Ok(Self(shared, Arc::new(flusher)))
    }
    /// Runs `f` over the writer, unless it was taken.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Writer) -> R) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }
    /// Takes the writer out and ends the thread.
    pub(crate) fn take(&self) -> Option<Writer> {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.1.end();
        writer
    }
    /// Warnings about captures of the same name that earlier processes left.
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

/// Writes out buffered data; `false` if there is no writer any more.
fn flush(writer: &Weak<Place>) -> bool {
    let Some(writer) = writer.upgrade() else { return false };
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(writer) = writer.as_mut() else { return false };
    // Data that could not be written stays in the buffer: the next write or the finish reports the error.
    let _ = writer.flush();
    true
}

/// The error for a capture that cannot be written further.
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
