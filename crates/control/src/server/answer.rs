//! Passing a request on to the director, and the answer back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot, watch};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema, openapi};

use super::Limits;
use super::access::Access;
use super::tenants::{Grants, Seats};
use crate::api::{Code, Problem, Stats, Status};
use crate::log::RateLimit;
use crate::{Director, Events, Tasks};

/// The type of a problem's body (RFC 9457).
pub(super) const PROBLEM: &str = "application/problem+json";

/// All that answering a request needs.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) tasks: Tasks,
    pub(super) events: Events,
    /// Changes with each event.
    pub(super) woken: watch::Receiver<()>,
    /// Becomes true when the listener ends.
    pub(super) ends: watch::Receiver<bool>,
    /// Memory for bodies that is free, in [units](super::request::UNIT).
    pub(super) memory: Arc<Semaphore>,
    /// The same for the bodies of all tenants, and for those of each.
    pub(super) tenant_memory: Arc<Semaphore>,
    pub(super) shares: Seats,
    /// Streams that may still begin.
    pub(super) streams: Arc<Semaphore>,
    pub(super) access: Arc<Access>,
    pub(super) grants: Grants,
    /// The connections of tenants.
    pub(super) seats: Seats,
    /// Bounds the lines of the log about refusals.
    pub(super) lines: Arc<Mutex<RateLimit>>,
    pub(super) limits: Arc<Limits>,
}

/// A value and the generation that it belongs to.
#[derive(Debug)]
pub(super) struct Known<T> {
    pub(super) generation: u64,
    pub(super) value: T,
}

impl<T> Known<T> {
    /// Another value of the same generation.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        Known { generation: self.generation, value: change(self.value) }
    }
}

/// The end by which the director or a worker answers a request.
pub(super) struct Asker<T>(oneshot::Sender<Result<Known<T>, Problem>>);

impl<T> Asker<T> {
    /// Whether no request waits for the answer any more.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
    pub(super) fn answer(self, generation: u64, result: Result<T, Problem>) {
        // Who asked may have gone.
        let _gone = self.0.send(result.map(|value| Known { generation, value }));
    }
}

/// Waits until the listener ends.
pub(super) async fn ended(ends: &mut watch::Receiver<bool>) {
    // An error means that the listener was dropped.
    let _ended = ends.wait_for(|ends| *ends).await;
}

impl App {
    /// Has the director do something that changes nothing.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Director<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Known<T>, Problem> {
        self.ask_within(self.limits.answer, task).await
    }

    /// Has the director change something.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Director<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Known<T>, Problem> {
        self.ask_within(self.limits.change, task).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        time: Duration,
        task: impl FnOnce(&mut Director<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Known<T>, Problem> {
        self.post(time, move |director, asker| {
            let result = task(director);
            asker.answer(director.generation(), result);
        })
        .await
    }

    /// Has the director collect the counters, and says what the state was then.
    pub(super) async fn stats(&self) -> Result<Known<(Status, Stats)>, Problem> {
        self.post(self.limits.answer, |director, asker| {
            let (generation, status) = (director.generation(), director.status());
            let answer = move |stats: Result<Stats, Problem>| {
                asker.answer(generation, stats.map(|stats| (status, stats)));
            };
            director.stats(Box::new(answer));
        })
        .await
    }

    /// Posts a task that answers later. It is not begun where the time is over before.
    pub(super) async fn post<T: Send + 'static>(
        &self,
        time: Duration,
        task: impl FnOnce(&mut Director<'_>, Asker<T>) + Send + 'static,
    ) -> Result<Known<T>, Problem> {
        let (sender, receiver) = oneshot::channel();
        let asker = Asker(sender);
        self.tasks.post(move |director| {
            if !asker.is_gone() {
                task(director, asker);
            }
        })?;
        match tokio::time::timeout(time, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Problem::new(Code::Ending, "the dataplane is ending")),
            Err(_) => Err(Problem::new(Code::Timeout, format!("no answer within {} s", time.as_secs_f64()))
                .help("a change that had begun may still end: see the status")),
        }
    }
}

/// The body of a problem: RFC 9457's members before our own.
#[derive(Serialize, ToSchema)]
pub(super) struct ProblemDocument {
    /// The status of HTTP.
    status: u16,
    /// The status in words.
    title: String,
    #[serde(flatten)]
    problem: Problem,
}

impl From<Problem> for ProblemDocument {
    fn from(problem: Problem) -> Self {
        let status = problem.code.status();
        let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        Self { status, title: title.unwrap_or_default().to_owned(), problem }
    }
}

/// A problem as a response.
pub(super) struct Failure(pub(super) Problem);

impl IntoResponses for Failure {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let schema = Ref::from_schema_name(ProblemDocument::name());
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response =
            ResponseBuilder::new().description("The request could not be done.").content(PROBLEM, content);
        BTreeMap::from([("default".to_owned(), response.build().into())])
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let document = ProblemDocument::from(self.0);
        let status = StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM)], body).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        match code {
            Code::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Code::Busy => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl<T: Serialize> IntoResponse for Known<T> {
    fn into_response(self) -> Response {
        match json(&self.value) {
            Ok(json) => tagged(self.generation, "application/json", Body::from(json)),
            Err(problem) => Failure(problem).into_response(),
        }
    }
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value)
        .map_err(|error| Problem::new(Code::Internal, format!("the answer has no form in JSON: {error}")))
}

/// A response that belongs to a generation.
pub(super) fn tagged(generation: u64, kind: &'static str, body: Body) -> Response {
    ([(header::CONTENT_TYPE, kind.to_owned()), (header::ETAG, format!("\"{generation}\""))], body)
        .into_response()
}
