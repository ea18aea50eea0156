//! Requests that read: what runs, and what ran.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{App, Failure, Known, json, tagged};
use super::calls::FunctionPath;
use super::request::{self, Memory, Names, Parameters};
use super::tenants::{Caller, Standing};
use super::{access, calls, changes, live, logged, observe, openapi, rules, tenants};
use crate::api::{Code, Function, Graph, Handler, HistoryEntry, Port, Problem, Source, Stats, Status};
use crate::metrics;

/// The paths below `/v1/`, for the message about one that is not there.
const PATHS: [&str; 20] = [
    "status",
    "stats",
    "tenants",
    "graph",
    "ports",
    "functions",
    "config",
    "plan",
    "apply",
    "confirm",
    "rollback",
    "history",
    "stop",
    "suspend",
    "resume",
    "events",
    "trace",
    "capture",
    "metrics",
    "openapi.json",
];

/// All requests there are.
pub(super) fn router(app: App) -> Router {
    let version = Router::new()
        .route("/status", get(status))
        .route("/stats", get(stats))
        .route("/tenants", get(tenants::tenants))
        .route("/graph", get(graph))
        .route("/ports", get(ports))
        .route("/functions", get(functions))
        .route("/functions/{function}", get(function))
        .route("/functions/{function}/handlers", get(handlers))
        .route("/functions/{function}/handlers/{handler}", get(calls::read))
        .route("/functions/{function}/handlers/{handler}", put(calls::write))
        .route("/functions/{function}/rules", get(rules::list).post(rules::change).put(rules::replace))
        .route("/functions/{function}/rules/explain", get(rules::explain))
        .route("/functions/{function}/rules/test", get(rules::test))
        .route("/functions/{function}/rules/{rule}", delete(rules::delete))
        .route("/config", get(config))
        .route("/plan", post(changes::plan))
        .route("/apply", post(changes::apply))
        .route("/confirm", post(changes::confirm))
        .route("/rollback", post(changes::rollback))
        .route("/history", get(history))
        .route("/history/{number}", get(configuration))
        .route("/stop", post(changes::stop))
        .route("/suspend", post(changes::suspend))
        .route("/resume", post(changes::resume))
        .route("/events", get(live::events))
        .route("/trace", get(observe::trace))
        .route("/capture", get(observe::capture))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi::get));
    Router::new()
        .nest("/v1", version)
        .route("/metrics", get(metrics))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), access::gate))
        .layer(axum::middleware::from_fn_with_state(app.clone(), logged::logged))
        .with_state(app)
}

async fn no_path(uri: axum::http::Uri) -> Failure {
    let path = uri.path();
    Failure(Problem::unknown("path", path.strip_prefix("/v1/").unwrap_or(path), PATHS))
}

async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> Failure {
    Failure(
        Problem::new(Code::WrongKind, format!("`{}` does not take {method}", uri.path()))
            .help("the header `Allow` says which methods it takes"),
    )
}

/// The state of the run.
#[utoipa::path(
    get, path = "/v1/status", tag = "state",
    responses((status = 200, body = Status), Failure),
)]
pub(super) async fn status(State(app): State<App>) -> Result<Known<Status>, Failure> {
    Ok(app.ask(|director| Ok(director.status())).await?)
}

/// Parameters of `stats`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsQuery {
    /// Sends the counters again and again as server-sent events, every so many seconds (0.1 to 3600).
    every: Option<f64>,
}

/// The counters, once or as a stream.
#[utoipa::path(
    get, path = "/v1/stats", tag = "state",
    params(StatsQuery),
    responses((status = 200, body = Stats), Failure),
)]
pub(super) async fn stats(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(standing): Extension<Standing>,
    Parameters(query): Parameters<StatsQuery>,
) -> Result<Response, Failure> {
    match query.every {
        Some(every) => Ok(live::stats(&app, standing, request::seconds("every", every, 0.1, 3_600.0)?)?),
        None => Ok(app.stats().await?.map(|(_, stats)| tenants::stats(&caller, stats)).into_response()),
    }
}

/// The graph.
#[utoipa::path(
    get, path = "/v1/graph", tag = "state",
    responses((status = 200, body = Graph), Failure),
)]
pub(super) async fn graph(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Known<Graph>, Failure> {
    Ok(app.ask(|director| Ok(director.graph())).await?.map(|graph| tenants::graph(&caller, graph)))
}

/// The ports.
#[utoipa::path(
    get, path = "/v1/ports", tag = "state",
    responses((status = 200, body = Vec<Port>), Failure),
)]
pub(super) async fn ports(State(app): State<App>) -> Result<Known<Vec<Port>>, Failure> {
    Ok(app.ask(|director| Ok(director.ports())).await?)
}

/// The functions with their handlers.
#[utoipa::path(
    get, path = "/v1/functions", tag = "functions",
    responses((status = 200, body = Vec<Function>), Failure),
)]
pub(super) async fn functions(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Known<Vec<Function>>, Failure> {
    let known = app.ask(|director| Ok(director.functions())).await?;
    Ok(known.map(|functions| tenants::functions(&caller, functions)))
}

/// One function with its handlers.
#[utoipa::path(
    get, path = "/v1/functions/{function}", tag = "functions",
    params(FunctionPath),
    responses((status = 200, body = Function), Failure),
)]
pub(super) async fn function(
    State(app): State<App>,
    Names(FunctionPath { function }): Names<FunctionPath>,
) -> Result<Known<Function>, Failure> {
    Ok(app.ask(move |director| calls::function(director.functions(), &function)).await?)
}

/// The handlers of a function.
#[utoipa::path(
    get, path = "/v1/functions/{function}/handlers", tag = "functions",
    params(FunctionPath),
    responses((status = 200, body = Vec<Handler>), Failure),
)]
pub(super) async fn handlers(
    State(app): State<App>,
    Names(FunctionPath { function }): Names<FunctionPath>,
) -> Result<Known<Vec<Handler>>, Failure> {
    Ok(app.ask(move |director| Ok(calls::function(director.functions(), &function)?.handlers)).await?)
}

/// The file that runs: as JSON, or its text where `Accept` asks for `application/toml` or `text/plain`.
#[utoipa::path(
    get, path = "/v1/config", tag = "configuration",
    responses((status = 200, content((Source = "application/json"), (String = "application/toml"))), Failure),
)]
pub(super) async fn config(State(app): State<App>, headers: HeaderMap) -> Result<Response, Failure> {
    let known = app.ask(|director| Ok(director.running_source())).await?;
    Ok(file(&app, known, &headers)?)
}

/// The configurations that ran, newest first.
#[utoipa::path(
    get, path = "/v1/history", tag = "configuration",
    responses((status = 200, body = Vec<HistoryEntry>), Failure),
)]
pub(super) async fn history(State(app): State<App>) -> Result<Known<Vec<HistoryEntry>>, Failure> {
    Ok(app.ask(|director| Ok(director.history())).await?)
}

/// The path of a configuration.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct NumberPath {
    /// Its number.
    number: u64,
}

/// The file of a configuration that ran.
#[utoipa::path(
    get, path = "/v1/history/{number}", tag = "configuration",
    params(NumberPath),
    responses((status = 200, content((Source = "application/json"), (String = "application/toml"))), Failure),
)]
pub(super) async fn configuration(
    State(app): State<App>,
    Names(NumberPath { number }): Names<NumberPath>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let known = app.ask(move |director| director.configuration(number)).await?;
    Ok(file(&app, known, &headers)?)
}

/// A file as a response, which counts as memory until it is sent.
fn file(app: &App, known: Known<Source>, headers: &HeaderMap) -> Result<Response, Problem> {
    let Known { generation, value } = known;
    let mut memory = Memory::new(app);
    memory.reach(2 * value.text.len())?;
    if ["application/toml", "text/plain"].iter().any(|kind| accepts(headers, kind)) {
        return Ok(tagged(generation, "application/toml", request::counted(value.text.into_bytes(), memory)));
    }
    Ok(tagged(generation, "application/json", request::counted(json(&value)?, memory)))
}

/// Whether the `Accept` header names a type.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|item| item.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(kind)))
}

/// The counters and the state for Prometheus; in the form of `OpenMetrics` where `Accept` asks for it.
#[utoipa::path(
    get, path = "/v1/metrics", tag = "state",
    responses((status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))), Failure),
)]
pub(super) async fn metrics(State(app): State<App>, headers: HeaderMap) -> Result<Response, Failure> {
    let Known { generation, value: (status, stats) } = app.stats().await?;
    let own = calls::metrics(&app).await?;
    let form = if accepts(&headers, "application/openmetrics-text") {
        metrics::Form::OpenMetrics
    } else {
        metrics::Form::Prometheus
    };
    Ok(tagged(generation, form.content_type(), Body::from(metrics::text(&status, &stats, &own, form))))
}
