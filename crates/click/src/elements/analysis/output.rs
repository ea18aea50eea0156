//! Files that elements write to.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::language::errors::Errors;
use crate::router::At;

use super::input::system_message;

enum Sink {
    Closed,
    Standard,
    File(BufWriter<File>),
}

/// A file or the standard output, which all writers share in the order of their lines.
pub(super) struct Output(Sink);

impl Output {
    /// Nothing yet.
    pub(super) fn closed() -> Self {
        Self(Sink::Closed)
    }
    /// Opens the file of a name; `-` is the standard output. `None` after an error was told.
    pub(super) fn open(name: &str, at: At<'_>, errors: &Errors) -> Option<Self> {
        if !at.capabilities().files {
            errors.error(&format!("{name}: this instance may not write files (capability files)"));
            return None;
        }
        if name == "-" {
            return Some(Self(Sink::Standard));
        }
        match File::create(name) {
            Ok(file) => Some(Self(Sink::File(BufWriter::new(file)))),
            Err(error) => {
                errors.error(&format!("{name}: {}", system_message(&error)));
                None
            }
        }
    }
    /// The same, with what the file holds, until [`empty`](Self::empty) is called.
    pub(super) fn open_without_emptying(name: &str, at: At<'_>, errors: &Errors) -> Option<Self> {
        if name == "-" || !at.capabilities().files {
            return Self::open(name, at, errors);
        }
        match File::options().write(true).create(true).truncate(false).open(name) {
            Ok(file) => Some(Self(Sink::File(BufWriter::new(file)))),
            Err(error) => {
                errors.error(&format!("{name}: {}", system_message(&error)));
                None
            }
        }
    }
    /// Takes away what the file held before.
    pub(super) fn empty(&mut self) -> std::io::Result<()> {
        match &self.0 {
            // A pipe or a device has no length to set.
            Sink::File(file) if file.get_ref().metadata()?.is_file() => file.get_ref().set_len(0),
            _ => Ok(()),
        }
    }
    /// Writes bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.0 {
            Sink::Closed => Ok(()),
            Sink::Standard => std::io::stdout().write_all(bytes),
            Sink::File(file) => file.write_all(bytes),
        }
    }
    /// Has the system take all that was written.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        match &mut self.0 {
            Sink::Closed => Ok(()),
            Sink::Standard => std::io::stdout().flush(),
            Sink::File(file) => file.flush(),
        }
    }
    /// Ends writing.
    pub(super) fn close(&mut self) -> std::io::Result<()> {
        let flushed = self.flush();
        self.0 = Sink::Closed;
        flushed
    }
}
