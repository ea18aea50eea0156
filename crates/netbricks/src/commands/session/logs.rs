//! Events of functions: the run asks for them twice a second, and records them with its own.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use netbricks_control::api::EventLevel;
use netbricks_core::{ControlCopy, EVENTS, HandlerKind};
use netbricks_runtime::HandlerCall;
use serde_json::Value;

use super::Session;

/// Unread answers beyond which others are asked for later.
const ANSWERS: usize = 256;
/// The most events of one worker's function that are recorded of each answer.
const MOST: usize = 128;
/// After this time a worker that has not answered is asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A function's node on a worker.
type Place = (usize, String);

/// How far each function's events are read.
pub(crate) struct FunctionEvents {
    /// The next event of each node, and when it was asked for, while the answer is missing.
    places: BTreeMap<Place, (u64, Option<Instant>)>,
    sender: SyncSender<(Place, String, Option<String>)>,
    answers: Receiver<(Place, String, Option<String>)>,
}

impl Default for FunctionEvents {
    fn default() -> Self {
        let (sender, answers) = sync_channel(ANSWERS);
        Self { places: BTreeMap::new(), sender, answers }
    }
}

impl FunctionEvents {
    /// Records the answers that came, and asks each worker for what came since.
    pub(crate) fn look(&mut self, session: &Session<'_>) {
        while let Ok((place, function, answer)) = self.answers.try_recv() {
            let (next, asked) = self.places.entry(place).or_default();
            *asked = None;
            if let Some(answer) = answer {
                *next = record(session, &function, &answer).unwrap_or(*next);
            }
        }
        for function in &session.installed.functions {
            let handlers = session.copies.get(&function.name).map(ControlCopy::handlers).unwrap_or_default();
            if !handlers.iter().any(|handler| handler.name == EVENTS && handler.kind == HandlerKind::Read) {
                continue;
            }
            let nodes = if function.is_one_node() { &function.nodes[..1] } else { &function.nodes[..] };
            for worker in 0..session.control.workers() {
                for node in nodes {
                    self.ask(session, worker, &function.name, node);
                }
            }
        }
    }

    fn ask(&mut self, session: &Session<'_>, worker: usize, function: &str, node: &str) {
        let place = (worker, node.to_owned());
        let (next, asked) = self.places.entry(place.clone()).or_default();
        if asked.is_some_and(|asked| asked.elapsed() < PATIENCE) {
            return;
        }
        let call = HandlerCall {
            graph: session.graph_name().to_owned(),
            node: node.to_owned(),
            handler: EVENTS.to_owned(),
            argument: next.to_string(),
        };
        let (sender, function) = (self.sender.clone(), function.to_owned());
        // A worker must not wait: where too many answers are unread, it is asked again.
        let answer = move |result: Result<String, _>| drop(sender.try_send((place, function, result.ok())));
        if session.control.post_call(worker, call, Instant::now() + PATIENCE, answer).is_ok() {
            *asked = Some(Instant::now());
        }
    }
}

/// Records the events of an answer; answers the number of the next event.
fn record(session: &Session<'_>, function: &str, answer: &str) -> Option<u64> {
    let (head, lines) = answer.split_once('\n')?;
    let head: Value = serde_json::from_str(head).ok()?;
    let missed = head["missed"].as_u64().unwrap_or_default() + lines.lines().skip(MOST).count() as u64;
    for line in lines.lines().take(MOST) {
        session.events.tell(level_of(line), "function", function, line);
    }
    if missed > 0 {
        let told = format!("{missed} more events came than were kept; the handler `{EVENTS}` has the latest");
        session.events.tell(EventLevel::Warning, "function", function, told);
    }
    head["next"].as_u64()
}

/// The level of an event: info, unless the function says that it is a warning.
fn level_of(line: &str) -> EventLevel {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    if event["level"] == "warning" { EventLevel::Warning } else { EventLevel::Info }
}
