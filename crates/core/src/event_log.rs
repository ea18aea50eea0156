//! A bounded log of what a function noticed, which the control side reads as lines of JSON.
//!
//! The packet path stores a plain value; text is made only when a handler is called.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Write};

use crate::node::Handler;
use crate::shuffle::ShuffleKey;
use crate::state::{Declared, Mobility, State, StateTerms, Succession};
use crate::worker::Worker;

/// The name of a log that a run follows by itself: its events are among those of `netbricks events`.
pub const EVENTS: &str = "events";

/// Bytes after which an answer ends; the next call goes on.
const ANSWER: usize = 1 << 20;

/// A handle to a log of this worker's events. [`Worker::event_log`] declares it.
///
/// The newest event takes the place of the oldest one. Each event has a number, so that a reader sees how many it
/// missed.
pub struct EventLog<T: 'static>(State<Ring<T>>);

impl<T> Clone for EventLog<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> EventLog<T> {
    /// Adds an event. It allocates nothing.
    #[inline]
    pub fn push(&self, event: T) {
        let mut ring = self.0.borrow_mut();
        if ring.kept.len() == ring.capacity {
            ring.kept.pop_front();
        }
        ring.kept.push_back(event);
        ring.next += 1;
    }
    /// The number of the next event, which is also how many there were.
    pub fn next(&self) -> u64 {
        self.0.borrow().next
    }
    /// Shows the kept events to `see`, oldest first, with their numbers.
    pub fn each(&self, mut see: impl FnMut(u64, &T)) {
        let ring = self.0.borrow();
        (ring.first()..).zip(&ring.kept).for_each(|(number, event)| see(number, event));
    }
}

/// The latest events.
struct Ring<T> {
    kept: VecDeque<T>,
    capacity: usize,
    next: u64,
}

impl<T> Ring<T> {
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }
}

/// Events are not exported: a function that replaces another on the same worker takes the log over as it is.
impl<T: 'static> Declared for Ring<T> {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(format!("events come without bytes, found {}", bytes.len()))
        }
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.kept.len() as u64, self.capacity as u64)
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(self.kept.len() as u64).with(self.capacity)
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        match before.get::<usize>() {
            _ if !before.is_of::<Self>() => Succession::unlike(),
            Some(room) if *room != self.capacity => {
                Succession::anew(format!("there is room for {} instead of {room} events", self.capacity))
            }
            _ => Succession::whole(),
        }
    }
    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        let Some(old) = old.downcast_mut::<Self>() else { return false };
        std::mem::swap(self, old);
        true
    }
}

impl Worker {
    /// Declares a log of the latest `capacity` events, with a read handler of its name.
    ///
    /// The handler takes the number of the first wanted event (`0` without one). Its answer begins with a line
    /// `{"next":N,"missed":M}`: the argument for the next call, and how many of the wanted events are gone. One JSON
    /// object a line follows, as `write` writes it. An answer of more than a MiB ends early. A run follows the log that is
    /// named [`EVENTS`], so that its events are among those of the control API.
    ///
    /// ```
    /// use netbricks_core::packet::Link;
    /// use netbricks_core::{Function, Input, Operator, Worker, compose};
    ///
    /// fn sizes(input: Input, worker: &Worker) -> impl Function {
    ///     let seen = worker.event_log("sizes", 2, |bytes: &usize, to| write!(to, "{{\"bytes\":{bytes}}}"));
    ///     input.parse::<Link>().inspect(move |packet| seen.push(packet.frame_len())).done()
    /// }
    ///
    /// # let pool = netbricks_core::buffer::Pool::builder().frames(16).build()?;
    /// # let worker = Worker::new(0, 1, pool);
    /// let mut node = compose(&worker, |input| sizes(input, &worker))?;
    /// assert_eq!(node.call("sizes", "0")?, "{\"next\":0,\"missed\":0}\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn event_log<T: 'static>(
        &self,
        name: &str,
        capacity: usize,
        write: impl Fn(&T, &mut dyn Write) -> fmt::Result + 'static,
    ) -> EventLog<T> {
        let capacity = if self.is_control() { 1 } else { capacity.max(1) };
        let ring = Ring { kept: VecDeque::with_capacity(capacity), capacity, next: 0 };
        let log = EventLog(self.declare(name, ring));
        let summary = format!("This worker's {name} from a number on, one JSON object a line.");
        let told = log.clone();
        self.handler(Handler::read(name, summary).argument("[FROM]"), move |argument| {
            let from = match argument.trim() {
                "" => 0,
                text => {
                    text.parse().map_err(|_| format!("expected the number of an event, found `{text}`"))?
                }
            };
            Ok(answer(&told, from, &write))
        });
        log
    }
}

/// The lines of the events from number `from` on.
fn answer<T>(log: &EventLog<T>, from: u64, write: impl Fn(&T, &mut dyn Write) -> fmt::Result) -> String {
    let (mut lines, next) = (String::new(), Cell::new(log.next()));
    let first = log.next() - log.0.borrow().kept.len() as u64;
    log.each(|number, event| {
        if number >= from && number < next.get() {
            // Text takes any text.
            let _ = write(event, &mut lines).and_then(|()| lines.write_char('\n'));
            if lines.len() > ANSWER {
                next.set(number + 1);
            }
        }
    });
    format!(
        "{{\"next\":{},\"missed\":{}}}\n{lines}",
        next.get().max(from.min(log.next())),
        first.saturating_sub(from)
    )
}

/// Writes bytes as the inside of a JSON string: printable ASCII as it is, all else escaped.
///
/// A byte that is no ASCII is written as the character of that number.
///
/// # Errors
/// Those of the writer.
pub fn write_json_text(to: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        match byte {
            b'"' => to.write_str("\\\"")?,
            b'\\' => to.write_str("\\\\")?,
            b' '..=b'~' => to.write_char(char::from(*byte))?,
            _ => write!(to, "\\u{byte:04x}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;

    use super::*;
    use crate::operator::Operator;
    use crate::{Input, compose};

    #[test]
    fn a_reader_sees_each_event_once_and_how_many_it_missed() {
        let pool = Pool::builder().frames(16).build().unwrap();
        let worker = Worker::new(0, 1, pool);
        let log = Cell::new(None);
        let mut node = compose(&worker, |input: Input| {
            log.set(Some(worker.event_log("seen", 3, |event: &u32, to| write!(to, "{{\"event\":{event}}}"))));
            input.done()
        })
        .unwrap();
        let log = log.take().unwrap();
        let mut ask = |from: &str| node.call("seen", from).unwrap();
        (0..2).for_each(|event| log.push(event));
        assert_eq!(ask(""), "{\"next\":2,\"missed\":0}\n{\"event\":0}\n{\"event\":1}\n");
        assert_eq!(ask("2"), "{\"next\":2,\"missed\":0}\n");
        (2..7).for_each(|event| log.push(event));
        assert_eq!(ask("2"), "{\"next\":7,\"missed\":2}\n{\"event\":4}\n{\"event\":5}\n{\"event\":6}\n");
        assert_eq!(ask("99"), "{\"next\":7,\"missed\":0}\n");
        assert!(node.call("seen", "x").unwrap_err().to_string().contains("number of an event"));
    }

    #[test]
    fn text_in_json_is_escaped() {
        let mut text = String::new();
        write_json_text(&mut text, b"a\"\\\n\xff").unwrap();
        assert_eq!(text, "a\\\"\\\\\\u000a\\u00ff");
    }
}
