//! Structured log lines of the control side, by `tracing`.
//!
//! Each event of a run is a line of the target [`EVENTS`], and each change a span of [`CHANGES`]. Requests are spans of
//! [`REQUESTS`], and what else the control side does has [`CONTROL`]. Where no subscriber is installed, nothing is written.
//! Text from others is always the value of a field, which a subscriber can escape, and never the message.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::{Level, Span, debug, debug_span, error, info, info_span, warn};

use crate::api::{self, Applied, ChangeKind, Code, Event, EventLevel, Problem};
use crate::director::Change;
use crate::records::Written;

/// The target of events: number, `kind`, `subject` and `reason`.
pub const EVENTS: &str = "netbricks::events";
/// The target of changes: plans, files that are applied, and rollbacks.
pub const CHANGES: &str = "netbricks::changes";
/// The target of requests to the listener.
pub const REQUESTS: &str = "netbricks::requests";
/// The target of the listener itself and of the state directory.
pub const CONTROL: &str = "netbricks::control";

/// Lines of one cause at once, and the time after which there is room for one more.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);
/// Causes that are told apart; the others share one allowance.
const CAUSES: usize = 1_024;
/// Bytes of a text that a client chose: a path, the name of a file.
const TEXT: usize = 256;

/// Bounds the lines of each cause, such as a function that runs a tenant's code.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    causes: BTreeMap<String, Allowance>,
    /// The allowance of all causes for which there is no room.
    others: Allowance,
}

#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// When all lines at once are allowed again; none where they are.
    full: Option<Instant>,
    /// Lines that were left out since the last one.
    suppressed: u64,
}

impl Allowance {
    fn is_full(&self, now: Instant) -> bool {
        self.full.is_none_or(|full| full <= now)
    }

    fn admit(&mut self, now: Instant) -> Option<u64> {
        let full = self.full.unwrap_or(now).max(now);
        if full - now > EVERY * (BURST - 1) {
            self.suppressed += 1;
            return None;
        }
        self.full = Some(full + EVERY);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl RateLimit {
    /// Whether a line of this cause may be written now; answers how many were left out before it.
    pub(crate) fn admit(&mut self, cause: &str, now: Instant) -> Option<u64> {
        if let Some(known) = self.causes.get_mut(cause) {
            return known.admit(now);
        }
        if self.causes.len() == CAUSES {
            self.causes.retain(|_, known| !known.is_full(now) || known.suppressed > 0);
        }
        if self.causes.len() == CAUSES {
            return self.others.admit(now);
        }
        self.causes.entry(cause.to_owned()).or_default().admit(now)
    }
}

/// The number of lines that were left out, where there were any.
pub(crate) fn some(suppressed: u64) -> Option<u64> {
    (suppressed > 0).then_some(suppressed)
}

/// The beginning of a text that a client chose.
pub(crate) fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether an event of this level would be written.
pub(crate) fn hears(level: EventLevel) -> bool {
    match level {
        EventLevel::Info => tracing::enabled!(target: EVENTS, Level::INFO),
        EventLevel::Warning => tracing::enabled!(target: EVENTS, Level::WARN),
        EventLevel::Error => tracing::enabled!(target: EVENTS, Level::ERROR),
    }
}

/// The cause of an event, for its rate: events without a subject are the operator's own and have none.
pub(crate) fn cause(event: &Event) -> Option<String> {
    (!event.subject.is_empty()).then(|| format!("{} {}", event.kind, event.subject))
}

/// Writes the line of an event, before which so many of its cause were left out.
pub(crate) fn event(event: &Event, suppressed: u64) {
    let (number, kind, subject, reason) = (event.number, &*event.kind, &*event.subject, &*event.message);
    let suppressed = some(suppressed);
    match event.level {
        EventLevel::Info => info!(target: EVENTS, number, kind, subject, reason, suppressed),
        EventLevel::Warning => warn!(target: EVENTS, number, kind, subject, reason, suppressed),
        EventLevel::Error => error!(target: EVENTS, number, kind, subject, reason, suppressed),
    }
}

/// The lines of a change, from its beginning to its end.
#[derive(Clone, Debug)]
pub(crate) struct ChangeLog {
    name: &'static str,
    span: Span,
}

impl ChangeLog {
    /// The span of a change that begins. Plans change nothing, and have theirs at debug.
    pub(crate) fn of(change: &Change) -> Self {
        let plan = |file| Self { name: "plan", span: debug_span!(target: CHANGES, "plan", file) };
        match change {
            Change::Plan(source) => plan(shortened(&source.name)),
            Change::Apply { source, options, .. } if options.dry_run => plan(shortened(&source.name)),
            Change::Rollback { dry_run: true, .. } => plan("an earlier configuration"),
            Change::Apply { source, options, .. } => {
                let (file, confirm) = (shortened(&source.name), options.confirm);
                Self { name: "apply", span: info_span!(target: CHANGES, "apply", file, confirm) }
            }
            Change::Rollback { to, .. } => {
                Self { name: "rollback", span: info_span!(target: CHANGES, "rollback", to) }
            }
        }
    }

    /// Does a part of the change: the lines of what happens have its span.
    pub(crate) fn within<T>(&self, part: impl FnOnce() -> T) -> T {
        self.span.in_scope(part)
    }

    /// Writes the end of the change.
    pub(crate) fn end(&self, result: &Result<Applied, Problem>) {
        let Self { name, span } = self;
        let is_plan = *name == "plan";
        match result {
            Ok(applied) => {
                let (configuration, generation) = (applied.configuration, applied.generation);
                let functions = |kind: ChangeKind| {
                    let of = |change: &&api::Change| change.part == "function" && change.kind == kind;
                    applied.plan.changes.iter().filter(of).count()
                };
                let functions_added = functions(ChangeKind::Added);
                let functions_removed = functions(ChangeKind::Removed);
                let functions_replaced = functions(ChangeKind::Replaced);
                if is_plan {
                    debug!(
                        target: CHANGES, parent: span, change = name, generation, functions_added, functions_removed,
                        functions_replaced, "planned"
                    );
                    return;
                }
                let longest_pause_microseconds = applied.longest_pause_ns / 1_000;
                info!(
                    target: CHANGES, parent: span, change = name, configuration, generation, functions_added,
                    functions_removed, functions_replaced, longest_pause_microseconds, "changed"
                );
            }
            Err(problem) => {
                let (code, reason) = (code(problem.code), &*problem.detail);
                if is_plan {
                    debug!(target: CHANGES, parent: span, change = name, code, reason, "refused");
                } else {
                    warn!(target: CHANGES, parent: span, change = name, code, reason, "refused");
                }
            }
        }
    }
}

/// Writes that a handler was written. Its argument may hold a secret.
pub(crate) fn written(written: &Written) {
    let Written { function, handler, argument, worker, tenant } = written;
    let (function, handler, bytes) = (&**function, &**handler, argument.len());
    let (worker, tenant) = (worker.map(|worker| worker as u64), tenant.as_deref());
    debug!(target: CHANGES, function, handler, bytes, worker, tenant, "written");
}

/// The code of a problem as the API writes it.
pub(crate) fn code(code: Code) -> String {
    let value = serde_json::to_value(code).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
