//! Streams of packets: traces as server-sent events, captures as pcapng.
//!
//! A reader that is too slow holds up the stream and not the workers, which count what they could not keep. The
//! watch ends with the stream, and the stream with its reader.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use netbricks_core::observer::Sightings;
use netbricks_runtime::Observation;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::IntoParams;

use super::answer::{App, Failure, ended};
use super::live::{Feed, Gone};
use super::request::Parameters;
use super::tenants::Standing;
use crate::Observing;
use crate::api::{ObserveKind, ObserveRequest, TraceRecord};

/// The time between two looks at what workers saw.
const EVERY: Duration = Duration::from_millis(50);
/// Bytes of a piece of a stream.
const PIECE: usize = 64 << 10;
/// Bytes of a packet that a capture copies unless it is told otherwise: libpcap's limit.
const SNAPLEN: usize = 262_144;

/// Parameters of `trace`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TraceQuery {
    /// The packets to follow, in the language of pcap-filter(7); all where it is empty.
    filter: String,
    /// The node or port where they are found; where packets arrive if none is given.
    at: Option<String>,
    /// The number of packets after which the stream ends.
    count: Option<u64>,
}

/// The next packets that match, from node to node: each event is a packet whose end was seen.
#[utoipa::path(
    get, path = "/v1/trace", tag = "packets",
    params(TraceQuery),
    responses((status = 200, body = TraceRecord, content_type = "text/event-stream"), Failure),
)]
pub(super) async fn trace(
    State(app): State<App>,
    Extension(standing): Extension<Standing>,
    Parameters(TraceQuery { filter, at, count }): Parameters<TraceQuery>,
) -> Result<Response, Failure> {
    let request = ObserveRequest { kind: ObserveKind::Trace, filter, at, count, snaplen: 0 };
    observe((app, standing), request, "text/event-stream").await
}

/// Parameters of `capture`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CaptureQuery {
    /// The packets to copy, in the language of pcap-filter(7); all where it is empty.
    filter: String,
    /// The node, port or drop reason where they are found; all ports if none is given.
    at: Option<String>,
    /// The number of packets after which the stream ends.
    count: Option<u64>,
    /// The most bytes of a packet (262,144).
    snaplen: Option<usize>,
}

/// The next packets that match, as a capture in the form of pcapng.
#[utoipa::path(
    get, path = "/v1/capture", tag = "packets",
    params(CaptureQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Failure),
)]
pub(super) async fn capture(
    State(app): State<App>,
    Extension(standing): Extension<Standing>,
    Parameters(CaptureQuery { filter, at, count, snaplen }): Parameters<CaptureQuery>,
) -> Result<Response, Failure> {
    let snaplen = snaplen.unwrap_or(SNAPLEN).clamp(1, SNAPLEN);
    let request = ObserveRequest { kind: ObserveKind::Capture, filter, at, count, snaplen };
    observe((app, standing), request, "application/octet-stream").await
}

async fn observe(
    (app, standing): (App, Standing),
    request: ObserveRequest,
    kind: &'static str,
) -> Result<Response, Failure> {
    let observing = app.ask(move |director| director.observe(&request)).await?.value;
    let (feed, response) = Feed::begin(&app, kind)?;
    tokio::spawn(async move {
        // Whoever has gone needs no word.
        let _gone = stream(app, standing, feed, observing).await;
    });
    Ok(response)
}

/// Sends what workers see until all is seen, or the reader, its right or the dataplane has gone.
async fn stream(mut app: App, mut standing: Standing, feed: Feed, observing: Observing) -> Result<(), Gone> {
    let Observing { observation, mut encode } = observing;
    send(&feed, encode.begin()).await?;
    let mut sent = Instant::now();
    let mut ending = false;
    while !ending {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = ended(&mut app.ends) => ending = true,
            () = feed.closed() => return Ok(()),
            // What workers saw since the last look is not for this reader any more.
            () = standing.lost() => break,
        }
        encode.before();
        let seen = take(&observation, app.limits.answer).await;
        let bytes = encode.add(&seen.sightings, Instant::now());
        drop(seen.sightings);
        if !bytes.is_empty() {
            send(&feed, bytes).await?;
            sent = Instant::now();
        } else if sent.elapsed() >= app.limits.alive {
            send(&feed, encode.sign_of_life()).await?;
            sent = Instant::now();
        }
        ending |= encode.is_complete() || seen.ended;
    }
    drop(observation);
    send(&feed, encode.end()).await
}

/// Sends bytes in pieces, which share their memory.
async fn send(feed: &Feed, bytes: Vec<u8>) -> Result<(), Gone> {
    let mut rest = Bytes::from(bytes);
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(PIECE));
        feed.send(piece).await?;
    }
    Ok(())
}

/// The sightings of all workers.
struct Seen {
    sightings: Vec<(usize, Sightings)>,
    /// Whether all workers have ended.
    ended: bool,
}

/// Takes what workers saw. A worker that does not answer in time is asked again later.
async fn take(observation: &Observation, patience: Duration) -> Seen {
    let mut answers = Vec::new();
    for worker in 0..observation.workers() {
        let (sender, answer) = oneshot::channel();
        let posted = observation.post_take(worker, move |seen| {
            // Who asked may have gone.
            let _gone = sender.send(seen);
        });
        if posted.is_ok() {
            answers.push((worker, answer));
        }
    }
    let mut seen = Seen { sightings: Vec::new(), ended: true };
    for (worker, answer) in answers {
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(sightings)) => {
                seen.ended = false;
                seen.sightings.extend(sightings.into_iter().map(|sightings| (worker, sightings)));
            }
            Ok(Err(_)) => {}
            Err(_) => seen.ended = false,
        }
    }
    seen
}
