//! Requests that change what runs. Each takes `If-Match` and `dry-run`.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{App, Asker, Failure, Known};
use super::request::{Expected, IfMatch, Memory, Parameters, flag, form, source, upload};
use super::tenants::Caller;
use crate::api::{Applied, ApplyOptions, Code, Plan, Problem, Source, Status};
use crate::{Change, ChangeAsker, Director};

/// Parameters of `plan`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanQuery {
    /// The file's name, where the body is the file's text.
    name: Option<String>,
    /// The directory from which relative names in the file start, where the body is the file's text.
    directory: Option<String>,
}

/// The changes that a file would make.
#[utoipa::path(
    post, path = "/v1/plan", tag = "configuration",
    params(PlanQuery),
    request_body(content((Source = "application/json"), (String = "application/toml"))),
    responses((status = 200, body = Plan), Failure),
)]
pub(super) async fn plan(
    State(app): State<App>,
    Parameters(query): Parameters<PlanQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Known<Plan>, Failure> {
    let form = form(&headers)?;
    let upload = upload(&app, &Caller::Operator, &headers, body, app.limits.file).await?;
    let source = source(form, upload.bytes, query.name, query.directory)?;
    let memory = upload.memory;
    let tasks = app.tasks.clone();
    let planned = app.post(app.limits.change, move |director, asker: Asker<Plan>| {
        let answer = move |generation, planned: Result<Applied, Problem>| {
            drop(memory);
            asker.answer(generation, planned.map(|planned| planned.plan));
        };
        director.change(Change::Plan(source), &tasks, Box::new(answer));
    });
    Ok(planned.await?)
}

/// Parameters of `apply`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyQuery {
    /// The file's name, where the body is the file's text.
    name: Option<String>,
    /// The directory from which relative names in the file start, where the body is the file's text.
    directory: Option<String>,
    /// Only plans: nothing changes.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
    /// Rolls back by itself unless the change is confirmed within this many seconds.
    confirm: Option<f64>,
    /// A note for the history.
    note: Option<String>,
    /// Begins as the file says: what handlers changed is undone, and leaves the journal.
    #[serde(default, deserialize_with = "flag")]
    forget: bool,
}

/// Makes a file run.
#[utoipa::path(
    post, path = "/v1/apply", tag = "configuration",
    params(ApplyQuery, IfMatch),
    request_body(content((Source = "application/json"), (String = "application/toml"))),
    responses((status = 200, body = Applied), Failure),
)]
pub(super) async fn apply(
    State(app): State<App>,
    Parameters(query): Parameters<ApplyQuery>,
    Expected(expected): Expected,
    headers: HeaderMap,
    body: Body,
) -> Result<Known<Applied>, Failure> {
    let form = form(&headers)?;
    let upload = upload(&app, &Caller::Operator, &headers, body, app.limits.file).await?;
    let source = source(form, upload.bytes, query.name, query.directory)?;
    let ApplyQuery { dry_run, confirm, note, forget, .. } = query;
    let options = ApplyOptions { dry_run, confirm, note, forget };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    changed(&app, Change::Apply { source, options, expected, time_ns }, Some(upload.memory)).await
}

/// Has the director make a change. `memory` is that of the request, until it is answered.
async fn changed(app: &App, change: Change, memory: Option<Memory>) -> Result<Known<Applied>, Failure> {
    let tasks = app.tasks.clone();
    let applied = app.post(app.limits.change, move |director, asker: Asker<Applied>| {
        director.change(change, &tasks, Box::new(Awaited { asker, memory }));
    });
    Ok(applied.await?)
}

/// A request for a change, and its memory.
struct Awaited {
    asker: Asker<Applied>,
    memory: Option<Memory>,
}

impl ChangeAsker for Awaited {
    fn is_gone(&self) -> bool {
        self.asker.is_gone()
    }
    fn answer(self: Box<Self>, generation: u64, result: Result<Applied, Problem>) {
        let Self { asker, memory } = *self;
        drop(memory);
        asker.answer(generation, result);
    }
}

/// Parameters of changes that have no others.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeQuery {
    /// Only checks: nothing changes.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
}

/// Confirms the running configuration.
#[utoipa::path(
    post, path = "/v1/confirm", tag = "configuration",
    params(ChangeQuery, IfMatch),
    responses((status = 200, body = Status), Failure),
)]
pub(super) async fn confirm(
    State(app): State<App>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
) -> Result<Known<Status>, Failure> {
    let confirmed = app.change(move |director| {
        director.is_current(expected)?;
        match director.status() {
            status if !query.dry_run || status.confirmed => director.confirm(),
            status => Ok(status),
        }
    });
    Ok(confirmed.await?)
}

/// Parameters of `rollback`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RollbackQuery {
    /// The number of the configuration; the confirmed one before the running one where none is given.
    to: Option<u64>,
    /// Only plans: nothing changes.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
}

/// Goes back to an earlier configuration.
#[utoipa::path(
    post, path = "/v1/rollback", tag = "configuration",
    params(RollbackQuery, IfMatch),
    responses((status = 200, body = Applied), Failure),
)]
pub(super) async fn rollback(
    State(app): State<App>,
    Parameters(query): Parameters<RollbackQuery>,
    Expected(expected): Expected,
) -> Result<Known<Applied>, Failure> {
    changed(&app, Change::Rollback { to: query.to, dry_run: query.dry_run, expected }, None).await
}

/// Drains and ends the run.
#[utoipa::path(
    post, path = "/v1/stop", tag = "run",
    params(ChangeQuery, IfMatch),
    responses((status = 200, body = Status), Failure),
)]
pub(super) async fn stop(
    State(app): State<App>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
) -> Result<Known<Status>, Failure> {
    let stop = |director: &mut Director<'_>| {
        director.stop();
        Ok(director.status())
    };
    Ok(run(&app, query, expected, stop).await?)
}

/// Stops asking the sources for packets.
#[utoipa::path(
    post, path = "/v1/suspend", tag = "run",
    params(ChangeQuery, IfMatch),
    responses((status = 200, body = Status), Failure),
)]
pub(super) async fn suspend(
    State(app): State<App>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
) -> Result<Known<Status>, Failure> {
    Ok(run(&app, query, expected, |director| director.suspend()).await?)
}

/// Asks the sources for packets again.
#[utoipa::path(
    post, path = "/v1/resume", tag = "run",
    params(ChangeQuery, IfMatch),
    responses((status = 200, body = Status), Failure),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
) -> Result<Known<Status>, Failure> {
    Ok(run(&app, query, expected, |director| director.resume()).await?)
}

/// Changes the run as a whole, unless this is only a check.
async fn run(
    app: &App,
    query: ChangeQuery,
    expected: Option<u64>,
    change: impl FnOnce(&mut Director<'_>) -> Result<Status, Problem> + Send + 'static,
) -> Result<Known<Status>, Problem> {
    let changed = app.change(move |director| {
        director.is_current(expected)?;
        match director.status() {
            status if query.dry_run => Ok(status),
            status if status.state == crate::api::RunState::Stopping => {
                Err(Problem::new(Code::Ending, "the run is ending already"))
            }
            _ => change(director),
        }
    });
    changed.await
}
