//! Server-sent events (HTML standard, section 9.2): events and counters as they come.
//!
//! A reader that is too slow loses the oldest events and is told how many. One that does not read at all is cut off
//! with its connection. Neither takes more memory than a few pieces.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval};
use utoipa::IntoParams;

use super::answer::{App, Failure, Known, ProblemDocument, ended, json};
use super::request::{Parameters, flag};
use super::resources::accepts;
use super::tenants::Standing;
use crate::Events;
use crate::api::{Code, Event, EventLevel, Problem};

/// The type of server-sent events.
const EVENTS: &str = "text/event-stream";
/// Pieces that wait for a reader.
const PIECES: usize = 4;

/// A body whose pieces come as they are made.
struct Live {
    pieces: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Live {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

/// The end that feeds a stream.
pub(super) struct Feed(mpsc::Sender<Bytes>);

/// The reader has gone.
pub(super) struct Gone;

impl Feed {
    /// Begins a stream.
    pub(super) fn begin(app: &App, kind: &'static str) -> Result<(Self, Response), Problem> {
        let permit = app.streams.clone().try_acquire_owned().map_err(|_| {
            Problem::new(Code::Busy, format!("{} streams run already", app.limits.streams))
                .help("end one of them first")
        })?;
        let (sender, pieces) = mpsc::channel(PIECES);
        let body = Body::new(Live { pieces, _permit: permit });
        Ok((Self(sender), ([(header::CONTENT_TYPE, kind)], body).into_response()))
    }

    pub(super) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.send(piece.into()).await.map_err(|_| Gone)
    }

    /// Waits until the reader has gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    /// A sign of life, which readers skip.
    async fn alive(&self) -> Result<(), Gone> {
        self.send(":\n\n").await
    }
}

/// An event of the stream. JSON on one line has no line break in it.
fn piece(kind: &str, id: Option<u64>, value: &impl Serialize) -> String {
    let data = serde_json::to_string(value).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {kind}\n{id}data: {data}\n\n")
}

/// Parameters of `events`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// The number of the first event. A stream without it begins with the next event.
    from: Option<u64>,
    /// Sends each event as it comes, as server-sent events.
    #[serde(default, deserialize_with = "flag")]
    follow: bool,
}

/// The kept events; or a stream of them, with `follow` or where `Accept` asks for `text/event-stream`.
#[utoipa::path(
    get, path = "/v1/events", tag = "state",
    params(EventsQuery),
    responses((status = 200, content((Vec<Event> = "application/json"), (String = "text/event-stream"))), Failure),
)]
pub(super) async fn events(
    State(app): State<App>,
    Extension(standing): Extension<Standing>,
    Parameters(query): Parameters<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if !query.follow && !accepts(&headers, "text/event-stream") {
        let events = json(&app.events.since(query.from.unwrap_or(0)))?;
        return Ok(([(header::CONTENT_TYPE, "application/json")], events).into_response());
    }
    // After a broken connection, a browser says which event it saw last.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let next = app.events.next();
    let from = match last.map(|last| last.saturating_add(1)).or(query.from) {
        // Numbers begin anew with each process: the reader knows events of an earlier one.
        Some(from) if from > next => 0,
        Some(from) => from,
        None => next,
    };
    let (feed, response) = Feed::begin(&app, EVENTS)?;
    tokio::spawn(async move {
        // Whoever has gone needs no word.
        let _gone = follow(app, standing, feed, from).await;
    });
    Ok(response)
}

/// Sends events until the reader, its right or the listener has gone.
async fn follow(mut app: App, mut standing: Standing, feed: Feed, mut from: u64) -> Result<(), Gone> {
    // A reader learns at once that the stream has begun.
    feed.alive().await?;
    loop {
        app.woken.mark_unchanged();
        for event in take(&app.events, &mut from) {
            feed.send(piece(&event.kind, Some(event.number), &event)).await?;
        }
        tokio::select! {
            _ = app.woken.changed() => {}
            () = tokio::time::sleep(app.limits.alive) => feed.alive().await?,
            () = ended(&mut app.ends) => return Ok(()),
            () = feed.closed() => return Ok(()),
            () = standing.lost() => return Ok(()),
        }
    }
}

/// The events since the last call, with word of those that are kept no longer.
fn take(events: &Events, from: &mut u64) -> VecDeque<Event> {
    let mut new = VecDeque::from(events.since(*from));
    if let Some(first) = new.front()
        && first.number > *from
    {
        let lost = first.number - *from;
        let missed = Event {
            number: first.number - 1,
            time_ns: first.time_ns,
            level: EventLevel::Warning,
            kind: "missed".into(),
            subject: String::new(),
            message: format!("{lost} events before the next one are kept no longer"),
        };
        new.push_front(missed);
    }
    if let Some(last) = new.back() {
        *from = last.number + 1;
    }
    new
}

/// The counters again and again. A round that the reader or the director is too slow for is left out.
pub(super) fn stats(app: &App, standing: Standing, every: Duration) -> Result<Response, Problem> {
    let (feed, response) = Feed::begin(app, EVENTS)?;
    let app = app.clone();
    tokio::spawn(async move {
        let _gone = count(app, standing, feed, every).await;
    });
    Ok(response)
}

async fn count(mut app: App, mut standing: Standing, feed: Feed, every: Duration) -> Result<(), Gone> {
    let mut rounds = interval(every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            () = tokio::time::sleep(app.limits.alive) => {
                feed.alive().await?;
                continue;
            }
            () = ended(&mut app.ends) => return Ok(()),
            () = feed.closed() => return Ok(()),
            () = standing.lost() => return Ok(()),
        }
        match app.stats().await {
            Ok(Known { value: (_, stats), .. }) => feed.send(piece("stats", None, &stats)).await?,
            Err(problem) if problem.code == Code::Ending => return Ok(()),
            Err(problem) => feed.send(piece("problem", None, &ProblemDocument::from(problem))).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_readers_are_told_how_many_events_they_lost() {
        let events = Events::new();
        let mut from = 0;
        assert!(take(&events, &mut from).is_empty());
        for number in 0..1_030 {
            events.tell(EventLevel::Info, "test", "", number.to_string());
        }
        let seen = take(&events, &mut from);
        assert_eq!((seen.len(), &*seen[0].kind, seen[0].number), (1_025, "missed", 5));
        assert!(seen[0].message.starts_with("6 events"), "{}", seen[0].message);
        assert_eq!((seen[1].number, from), (6, 1_030));
        events.tell(EventLevel::Info, "test", "", "next");
        assert_eq!(take(&events, &mut from)[0].message, "next");
    }
}
