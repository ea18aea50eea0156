//! Lines that a subscriber gets of events and changes.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::Events;
use crate::api::{ApplyOptions, Plan, Source};

/// Lines that a subscriber has written.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines of what `does` does, as JSON, without their time.
fn lines(filter: &str, does: impl FnOnce()) -> Vec<Value> {
    let written = Output::default();
    let to = written.clone();
    let layer = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .without_time()
        .with_writer(move || to.clone());
    let subscriber = tracing_subscriber::registry().with(EnvFilter::new(filter)).with(layer);
    tracing::subscriber::with_default(subscriber, does);
    let bytes = written.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn an_event_is_one_line_with_its_fields_and_text_of_others_stays_in_them() {
    let tell = || {
        let events = Events::new();
        events.tell(EventLevel::Info, "applied", "", "configuration 2 runs: `new.toml`");
        events.tell(EventLevel::Warning, "port-down", "lan", "lan: no link");
        events.tell(EventLevel::Error, "panic", "ids", "first\n\x1b[2J{\"level\":\"INFO\"}");
    };
    let line = |level: &str, number: u64, kind: &str, subject: &str, reason: &str| json!({"level": level, "target": EVENTS, "number": number, "kind": kind, "subject": subject, "reason": reason});
    let expected = [
        line("INFO", 0, "applied", "", "configuration 2 runs: `new.toml`"),
        line("WARN", 1, "port-down", "lan", "lan: no link"),
        line("ERROR", 2, "panic", "ids", "first\n\u{1b}[2J{\"level\":\"INFO\"}"),
    ];
    assert_eq!(lines("info", tell), expected);
    assert_eq!(lines("netbricks::events=warn", tell), expected[1..]);
    assert_eq!(lines("netbricks::requests=debug", tell), Vec::<Value>::new());
}

#[test]
fn the_lines_of_one_cause_are_bounded_and_those_of_others_are_not() {
    let written = lines("info", || {
        let events = Events::new();
        for number in 0..1_000 {
            events.tell(EventLevel::Info, "function", "guest", number.to_string());
        }
        events.tell(EventLevel::Error, "panic", "guest", "it panicked");
        for _ in 0..30 {
            events.tell(EventLevel::Info, "suspended", "", "sources are no longer asked");
        }
        // All are kept for the API.
        assert_eq!(events.since(0).len(), 1_024);
        assert_eq!(events.next(), 1_031);
    });
    let count = |kind: &str| written.iter().filter(|line| line["kind"] == kind).count();
    // A busy machine may take some tenths of a second over it, and then there is room for a few more.
    assert!((BURST as usize..500).contains(&count("function")), "{}", count("function"));
    assert_eq!((count("panic"), count("suspended")), (1, 30));
}

#[test]
fn an_allowance_fills_again_and_tells_what_was_left_out() {
    let (mut limit, start) = (RateLimit::default(), Instant::now());
    let admitted = (0..100).filter(|_| limit.admit("guest", start).is_some()).count();
    assert_eq!(admitted, BURST as usize);
    assert_eq!(limit.admit("other", start), Some(0));
    assert_eq!(limit.admit("guest", start + EVERY), Some(80));
    assert_eq!(limit.admit("guest", start + EVERY), None);
    assert_eq!(limit.admit("guest", start + EVERY * 2 * BURST), Some(1));
    // A clock that stands, and one that goes back, admit no more than that.
    assert!((0..100).filter(|_| limit.admit("guest", start).is_some()).count() < BURST as usize);
}

#[test]
fn causes_are_bounded() {
    let (mut limit, start) = (RateLimit::default(), Instant::now());
    let admitted = (0..3 * CAUSES).filter(|cause| limit.admit(&cause.to_string(), start).is_some()).count();
    // Those beyond share one allowance.
    assert_eq!((admitted, limit.causes.len()), (CAUSES + BURST as usize, CAUSES));
    // Later, causes that are silent give their room to others.
    assert_eq!(limit.admit("new", start + EVERY * 2 * BURST), Some(0));
    assert_eq!(limit.causes.len(), 1);
}

fn source(name: &str) -> Source {
    Source { text: "secret = \"text\"".into(), name: name.into(), directory: "/".into() }
}

fn plan(kinds: &[(ChangeKind, &str)]) -> Plan {
    let change = |(kind, part): &(ChangeKind, &str)| {
        let (part, name, detail) = ((*part).to_owned(), "a".to_owned(), String::new());
        api::Change { kind: *kind, part, name, detail, states: Vec::new(), copied_bytes: None }
    };
    Plan { changes: kinds.iter().map(change).collect(), ..Plan::default() }
}

#[test]
fn a_change_is_a_span_with_a_line_at_its_end() {
    use ChangeKind::{Added, Removed, Replaced, Updated};
    let options = ApplyOptions { confirm: Some(60.0), ..ApplyOptions::default() };
    let apply = Change::Apply { source: source("new.toml"), options, expected: None, time_ns: 0 };
    let back = Change::Rollback { to: Some(1), dry_run: false, expected: None };
    let parts = [
        (Added, "function"),
        (Added, "function"),
        (Added, "port"),
        (Removed, "function"),
        (Replaced, "function"),
        (Updated, "chain"),
    ];
    let applied = Applied {
        configuration: 2,
        generation: 7,
        plan: plan(&parts),
        longest_pause_ns: 123_456,
        ..Applied::default()
    };
    let does = || {
        let log = ChangeLog::of(&apply);
        let events = Events::new();
        log.within(|| events.tell(EventLevel::Info, "applied", "", "it runs"));
        log.end(&Ok(applied.clone()));
        ChangeLog::of(&back).end(&Err(Problem::new(Code::NeedsRestart, "`workers` differs")));
        ChangeLog::of(&Change::Plan(source("plan.toml"))).end(&Ok(Applied::default()));
    };
    let span = json!({"name": "apply", "file": "new.toml", "confirm": 60.0});
    let written = lines("info", does);
    assert_eq!(written.len(), 3, "{written:?}");
    assert_eq!((&written[0]["kind"], &written[0]["span"]), (&"applied".into(), &span));
    assert_eq!(
        written[1],
        json!({
            "level": "INFO", "target": CHANGES, "message": "changed", "change": "apply", "configuration": 2,
            "generation": 7, "functions_added": 2, "functions_removed": 1, "functions_replaced": 1,
            "longest_pause_microseconds": 123, "span": span,
        })
    );
    assert_eq!(
        written[2],
        json!({
            "level": "WARN", "target": CHANGES, "message": "refused", "change": "rollback", "code": "needs-restart",
            "reason": "`workers` differs", "span": {"name": "rollback", "to": 1},
        })
    );
    // A refusal shows also where the span does not.
    let warnings = lines("warn", does);
    assert_eq!((warnings.len(), &warnings[0]["change"]), (1, &"rollback".into()), "{warnings:?}");
    let all = lines("debug", does);
    assert_eq!(
        (all.len(), &all[3]["message"], &all[3]["span"]["file"]),
        (4, &"planned".into(), &"plan.toml".into())
    );
    assert!(!format!("{all:?}").contains("secret"));
}

#[test]
fn a_write_of_a_handler_shows_at_debug_without_its_argument() {
    let write = || {
        let (function, handler, argument) = ("nat".into(), "pool-add".into(), "192.0.2.1".into());
        written(&crate::Written { function, handler, argument, worker: Some(1), tenant: None });
    };
    let line = json!({
        "level": "DEBUG", "target": CHANGES, "message": "written", "function": "nat", "handler": "pool-add",
        "bytes": 9, "worker": 1,
    });
    assert_eq!((lines("debug", write), lines("info", write)), (vec![line], Vec::new()));
}

#[test]
fn texts_of_clients_are_cut_at_a_character() {
    assert_eq!(shortened("short"), "short");
    let long = "ä".repeat(TEXT);
    assert_eq!(shortened(&long).len(), TEXT);
    assert_eq!(shortened(&format!("a{long}")).len(), TEXT - 1);
}
