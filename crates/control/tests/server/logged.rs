//! Log lines of requests: what they have, what they never have, and how many refusals there are.

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use netbricks_control::Tokens;
use netbricks_control::server::Limits;
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::plane::Running;
use super::{ask, exchange, request};

/// The lines of this process. Listeners have threads of their own, so that one subscriber hears all tests.
static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        // Other tests make many thousand requests.
        if String::from_utf8_lossy(line).contains("/v1/functions/logged") {
            WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
        }
        Ok(line.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn listen() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false);
        let filter = EnvFilter::new("netbricks::requests=debug");
        tracing_subscriber::registry().with(filter).with(layer.with_writer(|| Lines)).init();
    });
}

/// The lines about requests for this function, with the message.
fn lines(function: &str, message: &str) -> Vec<Value> {
    let written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = String::from_utf8(written).expect("JSON is UTF-8");
    let path = format!("/v1/functions/{function}/");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("each line is JSON"));
    let is_wanted = |line: &Value| {
        let of = line["span"]["path"].as_str().or(line["path"].as_str()).unwrap_or_default();
        of.starts_with(&path) && line["message"] == message
    };
    lines.filter(is_wanted).collect()
}

#[test]
fn a_request_is_a_span_without_its_parameters_headers_and_body() {
    listen();
    let running = Running::new("logged");
    let path = "/v1/functions/logged-one/handlers/secret?worker=1&argument=hidden";
    let headers = [("content-type", "text/plain"), ("x-other", "hidden")];
    let reply = ask(running.socket(), "PUT", path, &headers, b"hidden");
    assert!(reply.status >= 400, "{reply:?}");
    let told = lines("logged-one", "answered");
    let user = rustix::process::geteuid().as_raw();
    let line = &told[0];
    assert_eq!(
        (told.len(), &line["level"], &line["status"]),
        (1, &"DEBUG".into(), &reply.status.into()),
        "{told:?}"
    );
    assert!(line["microseconds"].is_u64() && line["code"].is_string(), "{line}");
    let span = json!({
        "name": "request", "method": "PUT", "path": "/v1/functions/logged-one/handlers/secret", "user": user,
        "client": "unix",
    });
    assert_eq!(line["span"], span);
    let all = String::from_utf8(WRITTEN.lock().expect("no panic").clone()).expect("JSON is UTF-8");
    assert!(!all.contains("hidden"), "{all}");
}

#[test]
fn refused_tokens_are_warnings_without_the_token_and_a_flood_of_them_is_bounded() {
    listen();
    let tokens = Tokens { admin: Some("admin-token-0123456789".into()), read_only: None, open: false };
    let running = Running::with("logged-token", Limits::default(), Some(tokens));
    let path = "/v1/functions/logged-two/handlers/any";
    let asks = |token: &str| {
        let stream = std::net::TcpStream::connect(running.tcp()).expect("it listens");
        exchange(stream, &request("GET", path, &[("authorization", &format!("Bearer {token}"))], b"")).status
    };
    for _ in 0..200 {
        assert_eq!(asks("not-the-token-0123456789"), 401);
    }
    let refused = lines("logged-two", "refused");
    let line = &refused[0];
    assert_eq!(
        (&line["level"], &line["status"], &line["code"]),
        (&"WARN".into(), &401.into(), &"unauthorized".into())
    );
    assert_eq!((&line["method"], &line["path"]), (&"GET".into(), &path.into()));
    // The right token is no refusal, and has its kind.
    assert_ne!(asks("admin-token-0123456789"), 401);
    let answered = lines("logged-two", "answered");
    assert_eq!(answered.len(), 201);
    assert_eq!(
        (&answered[0]["span"]["client"], &answered[200]["span"]["client"]),
        (&Value::Null, &"token".into())
    );
    let written = String::from_utf8(WRITTEN.lock().expect("no panic").clone()).expect("JSON is UTF-8");
    assert!(!written.contains("0123456789"), "a token reached the log");
    // Each warning tells how many were left out before it, so that all are accounted for. A slow machine has more.
    let suppressed: u64 = refused.iter().filter_map(|line| line["suppressed"].as_u64()).sum();
    assert!(refused.len() >= 20 && refused.len() as u64 + suppressed <= 200, "{}", refused.len());
}
