//! `events`: what happened, and with `--follow` what happens.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use netbricks_control::api::{Event, EventLevel};

use super::arguments::EventsArguments;
use super::units::date_time;
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::visible;

/// The time between two looks at whether the operator pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// Events that may wait to be printed.
const WAITING: usize = 64;

pub(super) fn events(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &EventsArguments,
) -> Result<(), Trouble> {
    let from = arguments.from.unwrap_or(0);
    if !arguments.follow {
        return Ok(api
            .events_so_far(from)?
            .iter()
            .try_for_each(|event| show(output, event, arguments.plain.json))?);
    }
    let events = api.events(from)?;
    // Only a thread of its own can wait for the dataplane while this one looks for Ctrl-C. It ends with the
    // connection, or at the first event after the receiver has gone.
    let (sender, received) = sync_channel(WAITING);
    std::thread::spawn(move || {
        for event in events {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    while !output.is_interrupted() {
        match received.recv_timeout(LOOK) {
            Ok(event) => show(output, &event?, arguments.plain.json)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn show(output: &mut Output<'_>, event: &Event, json: bool) -> Result<(), Failure> {
    if json {
        return output.json(event);
    }
    let (level, style) = match event.level {
        EventLevel::Info => ("info   ", Style::new()),
        EventLevel::Warning => ("warning", AnsiColor::Yellow.on_default()),
        EventLevel::Error => ("error  ", AnsiColor::Red.on_default().bold()),
    };
    let subject = match event.subject.as_str() {
        "" => String::new(),
        subject => format!("{}: ", visible(subject)),
    };
    let level = output.paint(style, level);
    output.print(&format!(
        "{}  {level}  {}  {subject}{}\n",
        date_time(event.time_ns),
        visible(&event.kind),
        visible(&event.message)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    #[test]
    fn events_are_lines() {
        let lines = "2026-02-03T04:05:06.007Z  info     applied  configuration 3 runs: `edge.toml`\n\
                     2026-02-03T04:05:07.007Z  warning  port-down  lan: the link is down\n";
        let api = Canned::default();
        assert_eq!(ran(&api, &["events"]).out, lines);
        assert_eq!(ran(&api, &["events", "--follow"]).out, lines);
        assert_eq!(ran(&api, &["events", "--from", "8"]).out.lines().count(), 1);
        let told = ran(&api, &["events", "--json"]);
        let read: Vec<Event> = told.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, api.events);
    }
}
