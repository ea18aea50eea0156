//! Answers that come one after the other, until the operator has seen enough; and filters of packets.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use netbricks_control::api::Problem;
use netbricks_core::filter::Filter;

use super::{Failure, Output, Trouble, USAGE};
use crate::diagnostic::{Diagnostic, Source};

/// The time between two looks at whether the operator pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// Answers that may wait to be printed.
const WAITING: usize = 64;

/// Calls `show` with each answer as it comes, until there are no more or the operator presses Ctrl-C.
pub(super) fn each<T: Send + 'static>(
    output: &mut Output<'_>,
    answers: Box<dyn Iterator<Item = Result<T, Problem>> + Send>,
    mut show: impl FnMut(&mut Output<'_>, T) -> Result<(), Failure>,
) -> Result<(), Trouble> {
    // Only a thread of its own can wait for the dataplane while this one looks for Ctrl-C. It ends with the
    // connection, or at the first answer after the receiver has gone.
    let (sender, received) = sync_channel(WAITING);
    std::thread::spawn(move || {
        for answer in answers {
            if sender.send(answer).is_err() {
                break;
            }
        }
    });
    while !output.is_interrupted() {
        match received.recv_timeout(LOOK) {
            Ok(answer) => show(output, answer?)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

/// The filter that these words make. A wrong one is shown with carets under its fault.
pub(super) fn filter(output: &mut Output<'_>, words: &[String]) -> Result<String, Failure> {
    let text = words.join(" ");
    let Err(error) = Filter::parse(&text) else { return Ok(text) };
    let mut diagnostic = Diagnostic::error(format!("expected {}, found {}", error.expected, error.found));
    diagnostic = match error.nearest {
        Some(nearest) => diagnostic.at(error.range, format!("did you mean `{nearest}`?")),
        None => diagnostic.at(error.range, ""),
    };
    diagnostic = diagnostic.help(error.help);
    let shown = Source::new("filter", &text).render(&diagnostic, output.colored_errors());
    output.tell(&shown);
    Err(Failure::Told(USAGE))
}
