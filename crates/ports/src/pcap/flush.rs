//! A capture that several queues write, and that is written out twice a second also while nothing is sent: a process that is
//! killed loses what came since.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::Writer;
use crate::port::PortError;

/// Time between two looks at whether something is to be written out.
const PERIOD: Duration = Duration::from_millis(500);

/// A writer, unless it is gone.
type Place = Mutex<Option<Writer>>;

/// A capture that several queues write.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Place>);

impl SharedWriter {
    /// Shares a writer, and starts the thread that flushes it. A thread, since no queue is asked for anything while its worker
    /// waits or is busy elsewhere; it ends when the writer is gone.
    pub(crate) fn new(writer: Writer) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Some(writer)));
        let flushed = Arc::downgrade(&shared);
        thread::Builder::new().name("capture-flush".into()).spawn(move || {
            while flush(&flushed) {
                thread::sleep(PERIOD);
            }
        })?;
        Ok(Self(shared))
    }
    /// Runs `f` over the writer, unless it is gone.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Writer) -> R) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }
    /// Takes the writer away.
    pub(crate) fn take(&self) -> Option<Writer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
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
