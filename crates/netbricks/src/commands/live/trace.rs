//! `trace`: the next packets that match, from node to node.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use netbricks_control::api::{TraceEnd, TraceRecord, TraceStep};

use super::arguments::{Plain, TraceArguments};
use super::waiting::{each, filter};
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::visible;

pub(super) fn trace(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &TraceArguments,
) -> Result<(), Trouble> {
    let TraceArguments { filter: words, at, count, plain: Plain { json, .. } } = arguments;
    let filter = filter(output, words)?;
    let records = api.trace(&filter, at.as_deref(), *count)?;
    let mut lost = 0;
    each(output, records, |output, record: TraceRecord| {
        lost += record.lost;
        if *json { output.json(&record) } else { show(output, &record) }
    })?;
    if lost > 0 {
        output.tell(&format!("{lost} more packets or steps were not traced: they came too fast\n"));
    }
    Ok(())
}

fn show(output: &mut Output<'_>, record: &TraceRecord) -> Result<(), Failure> {
    let text = text(record, |style, text| output.paint(style, text));
    output.print(&text)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;

/// A record as text: a head line, and a line for each step; `paint` gives styles.
pub(crate) fn text(record: &TraceRecord, paint: impl Fn(Style, &str) -> String) -> String {
    let mut text = format!("{}  ", time(record.time_ns));
    let core = match record.core {
        Some(core) => format!("core {core}"),
        None => format!("worker {}", record.worker),
    };
    let place = match (record.made_for, record.port.as_str()) {
        (Some(_), _) => format!("made by {} {core}", record.node),
        (None, "") => format!("{} {core}", record.node),
        (None, port) => format!("{port} queue {} {core}", record.queue),
    };
    let summary = paint(Style::new().bold(), &visible(&record.summary));
    let _written = writeln!(text, "{}   {summary}", visible(&place));
    let steps = steps(record);
    let (verb, what, style) = end(record);
    let widest = steps.iter().map(|(node, _)| node.chars().count()).chain([verb.len()]).max().unwrap_or(0);
    let width = widest.max(8);
    for (node, told) in steps {
        let _written = writeln!(
            text,
            "  {}{}  {}",
            visible(node),
            " ".repeat(width - node.chars().count()),
            visible(&told)
        );
    }
    let _written = writeln!(text, "  {}  {}", paint(style, &format!("{verb:width$}")), visible(&what));
    text
}

/// The lines of the steps: the node's name, and what it did.
fn steps(record: &TraceRecord) -> Vec<(&str, String)> {
    let last = record.steps.len().saturating_sub(1);
    let ended = !matches!(record.end, TraceEnd::Held | TraceEnd::Unknown);
    let mut lines = Vec::new();
    for (number, step) in record.steps.iter().enumerate() {
        let told = told(step);
        // The line of the end says what the last node did.
        if told.is_empty() && number == last && ended && record.end != TraceEnd::Sent {
            lines.push((&*step.node, "drops it".to_owned()));
            if record.end == TraceEnd::Absorbed {
                lines.pop();
            }
        } else if !told.is_empty() {
            lines.push((&*step.node, told));
        } else if number != last || record.end != TraceEnd::Sent {
            lines.push((&*step.node, "unchanged".to_owned()));
        }
    }
    lines
}

/// The line of a step: the work of a node on a packet.
fn told(step: &TraceStep) -> String {
    let mut parts = Vec::new();
    if !step.why.is_empty() {
        parts.push(step.why.clone());
    }
    if !step.changes.is_empty() {
        parts.push(step.changes.join(", "));
    }
    match step.made.len() {
        0 => {}
        1 => parts.push("makes 1 packet".into()),
        made => parts.push(format!("makes {made} packets")),
    }
    if !step.way.is_empty() {
        parts.push(format!("leaves by `{}`", step.way));
    }
    match (step.waited, step.worker) {
        (_, Some(worker)) => parts.push(format!("goes on with worker {worker}")),
        (true, None) => parts.push("waits".into()),
        (false, None) => {}
    }
    parts.join("; ")
}

fn end(record: &TraceRecord) -> (&'static str, String, Style) {
    let of = record.end_of.as_str();
    let reason = || match record.sentence.trim_end_matches('.') {
        "" => of.to_owned(),
        sentence => format!("{of}: {sentence}"),
    };
    match record.end {
        TraceEnd::Sent => {
            ("sent", of.strip_suffix(".send").unwrap_or(of).to_owned(), AnsiColor::Green.on_default())
        }
        TraceEnd::Dropped => ("dropped", reason(), AnsiColor::Red.on_default()),
        TraceEnd::Consumed => ("consumed", reason(), Style::new()),
        TraceEnd::Absorbed => {
            ("absorbed", format!("{of} keeps its bytes or sends them in other packets"), Style::new())
        }
        TraceEnd::Held => ("held", format!("{of} still has it"), AnsiColor::Yellow.on_default()),
        TraceEnd::Unknown => {
            ("unknown", format!("nothing was seen of it after {of}"), AnsiColor::Yellow.on_default())
        }
    }
}

/// The time of day (UTC) with microseconds: `00:17:04.099260`.
fn time(nanoseconds: u64) -> String {
    let (seconds, micros) = (nanoseconds / 1_000_000_000, nanoseconds / 1_000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
