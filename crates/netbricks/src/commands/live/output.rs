//! Where the commands write, so that the shell and tests can give them another place.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anstyle::Style;

use super::super::arguments::Color;
use super::{Console, Failure};

/// The longest sleep between two looks at whether the operator pressed Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

/// Standard output and standard error of a command.
pub(crate) struct Output<'o> {
    out: &'o mut dyn Write,
    err: &'o mut dyn Write,
    painted: bool,
    colored_errors: bool,
    /// Set when the operator wants a command to end that would go on.
    interrupted: Option<Arc<AtomicBool>>,
}

impl<'o> Output<'o> {
    /// The standard streams of the process.
    pub(crate) fn new(
        out: &'o mut dyn Write,
        err: &'o mut dyn Write,
        console: Console,
        color: Color,
    ) -> Self {
        let painted = color.wanted(std::io::stdout().is_terminal());
        Self { out, err, painted, colored_errors: console.color, interrupted: None }
    }

    /// Other places, without colours.
    #[cfg(test)]
    pub(crate) fn plain(out: &'o mut dyn Write, err: &'o mut dyn Write) -> Self {
        Self { out, err, painted: false, colored_errors: false, interrupted: None }
    }

    /// The same; commands that would go on end once this is set.
    pub(crate) fn until(self, interrupted: Arc<AtomicBool>) -> Self {
        Self { interrupted: Some(interrupted), ..self }
    }

    /// Writes to standard output.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// Writes bytes to standard output.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes)?;
        Ok(self.out.flush()?)
    }

    /// Writes a value to standard output as JSON, in one line.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        match serde_json::to_string(value) {
            Ok(text) => self.print(&format!("{text}\n")),
            Err(error) => Err(Failure::Failed(format!("the answer cannot be written as JSON: {error}"))),
        }
    }

    /// Writes a value to standard output: as JSON, or as text for people.
    pub(crate) fn show<T: serde::Serialize>(
        &mut self,
        json: bool,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if json { self.json(value) } else { self.print(&text(value)) }
    }

    /// Writes to standard error. An error of writing is ignored: there is nowhere left to report it.
    pub(crate) fn tell(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
    }

    /// The text in this style, where standard output shows styles.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        if self.painted { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Whether errors are coloured.
    pub(crate) fn colored_errors(&self) -> bool {
        self.colored_errors
    }

    /// Whether the operator wants the command to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.as_ref().is_some_and(|interrupted| interrupted.load(Ordering::Relaxed))
    }

    /// Waits until `deadline`. Answers `false` at once where the operator wants the command to end.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        loop {
            if self.is_interrupted() {
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(if self.interrupted.is_some() { left.min(NAP) } else { left });
        }
    }
}
