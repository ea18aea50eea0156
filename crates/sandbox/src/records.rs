//! Counters, lines and faults of a module, kept for reports and handlers.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use netbricks_core::node::SectionMerge;
use netbricks_core::{EventLog, Section, write_json_text};

/// Counters that a module may have.
const MOST_COUNTERS: usize = 64;
/// Lines that are kept, and as many faults.
const KEPT_LINES: usize = 32;
/// Events that are kept until the run has read them.
pub(crate) const KEPT_EVENTS: usize = 2 * KEPT_LINES;
/// Lines that a module may write at once, and the time (ns) after which it may write one more.
const LINES_AT_ONCE: u64 = 10;
const LINE_EVERY: u64 = 100_000_000;

/// A module's counters and lines, and the faults that ended its instances.
#[derive(Default)]
pub(crate) struct Records {
    counters: Vec<(Vec<u8>, u64)>,
    lines: VecDeque<(u64, String)>,
    suppressed: u64,
    /// The time (ns) at which all lines at once are allowed again.
    refilled: u64,
    faults: VecDeque<(u64, String)>,
    /// The events of the run, once they are declared.
    events: Option<EventLog<Told>>,
}

/// An event for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A line of the module.
    Line(String),
    /// A fault that ended the module's instance, and the strikes then.
    Strike { fault: String, state: String },
}

impl Told {
    /// Writes it as a JSON object. What a module wrote is text within it.
    pub(crate) fn write(&self, to: &mut dyn Write) -> fmt::Result {
        match self {
            Self::Line(line) => {
                to.write_str("{\"event\":\"log\",\"line\":\"")?;
                write_json_text(to, line.as_bytes())?;
            }
            Self::Strike { fault, state } => {
                to.write_str("{\"event\":\"strike\",\"level\":\"warning\",\"fault\":\"")?;
                write_json_text(to, fault.as_bytes())?;
                to.write_str("\",\"state\":\"")?;
                write_json_text(to, state.as_bytes())?;
            }
        }
        to.write_str("\"}")
    }
}

impl Records {
    /// Adds to a counter; `false` where the name is none or there are too many.
    pub(crate) fn count(&mut self, name: &[u8], add: u64) -> bool {
        if let Some((_, count)) = self.counters.iter_mut().find(|(known, _)| known == name) {
            *count = count.wrapping_add(add);
            return true;
        }
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        if self.counters.len() == MOST_COUNTERS || name.is_empty() || !name.iter().all(fits) {
            return false;
        }
        self.counters.push((name.to_vec(), add));
        true
    }

    /// Keeps a line at time `now` (ns), where the rate allows it.
    pub(crate) fn log(&mut self, now: u64, line: &[u8]) {
        let window = LINES_AT_ONCE * LINE_EVERY;
        let refilled = self.refilled.max(now);
        if refilled - now > window - LINE_EVERY {
            self.suppressed += 1;
            return;
        }
        self.refilled = refilled.saturating_add(LINE_EVERY);
        let line = printable(line);
        if let Some(events) = &self.events {
            events.push(Told::Line(line.clone()));
        }
        keep(&mut self.lines, now, line);
    }

    /// Keeps a fault, after which the module's state is this.
    pub(crate) fn fault(&mut self, now: u64, fault: String, state: String) {
        if let Some(events) = &self.events {
            events.push(Told::Strike { fault: fault.clone(), state });
        }
        keep(&mut self.faults, now, fault);
    }

    /// Makes lines and faults events from now on, and the lines that the module wrote as it was set up.
    pub(crate) fn tell(&mut self, events: EventLog<Told>) {
        self.lines.iter().for_each(|(_, line)| events.push(Told::Line(line.clone())));
        self.events = Some(events);
    }

    /// Lines that were suppressed.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// The counters, as `NAME VALUE`, one a line.
    pub(crate) fn counters(&self) -> String {
        let line = |(name, count): &(Vec<u8>, u64)| format!("{} {count}\n", String::from_utf8_lossy(name));
        self.counters.iter().map(line).collect()
    }

    /// The last lines, as `TIME TEXT`.
    pub(crate) fn lines(&self) -> String {
        lines(&self.lines)
    }

    /// The last faults, as `TIME TEXT`.
    pub(crate) fn faults(&self) -> String {
        lines(&self.faults)
    }

    /// The last fault.
    pub(crate) fn last_fault(&self) -> Option<&str> {
        self.faults.back().map(|(_, text)| text.as_str())
    }

    /// The counters, for a report.
    pub(crate) fn counter_section(&self) -> Section {
        let row =
            |(name, count): &(Vec<u8>, u64)| vec![String::from_utf8_lossy(name).into(), count.to_string()];
        Section {
            title: "counters of the module".into(),
            columns: vec!["counter".into(), "value".into()],
            rows: self.counters.iter().map(row).collect(),
            merge: SectionMerge::Sum,
            ..Section::default()
        }
    }

    /// Faults and lines, for a report.
    pub(crate) fn text_section(&self) -> Section {
        let rows = |kind: &str, of: &VecDeque<(u64, String)>| {
            of.iter()
                .map(|(time, text)| vec![kind.into(), time.to_string(), text.clone()])
                .collect::<Vec<_>>()
        };
        Section {
            title: "events of the module".into(),
            columns: ["kind", "time (ns)", "text"].map(Into::into).into(),
            rows: [rows("fault", &self.faults), rows("log", &self.lines)].concat(),
            ..Section::default()
        }
    }
}

fn keep(kept: &mut VecDeque<(u64, String)>, now: u64, text: String) {
    if kept.len() == KEPT_LINES {
        kept.pop_front();
    }
    kept.push_back((now, text));
}

fn lines(kept: &VecDeque<(u64, String)>) -> String {
    kept.iter().map(|(time, text)| format!("{time} {text}\n")).collect()
}

/// The text of bytes from a module, without what a terminal would act on.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_rate_are_counted_and_not_kept() {
        let mut records = Records::default();
        for _ in 0..25 {
            records.log(5, b"line\x1b[2J\n");
        }
        assert_eq!((records.lines.len(), records.suppressed()), (10, 15));
        records.log(5 + LINE_EVERY, b"later");
        records.log(5 + LINE_EVERY, b"too much");
        assert_eq!((records.lines.len(), records.suppressed()), (11, 16));
        assert!(records.lines().starts_with("5 line [2J \n"));
        // A clock near its end neither wraps nor panics.
        records.log(u64::MAX - LINES_AT_ONCE * LINE_EVERY * 2, b"late");
    }

    #[test]
    fn a_module_has_a_bounded_number_of_counters() {
        let mut records = Records::default();
        for number in 0..100u32 {
            assert_eq!(records.count(format!("c{number}").as_bytes(), 1), number < 64);
        }
        assert!(records.count(b"c3", 4) && !records.count(b"", 1) && !records.count(b"a b", 1));
        assert!(records.counters().contains("c3 5\n"));
    }
}
