//! Calls of handlers: posted with a deadline, answered later by a worker or the control side.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{App, Asker, Failure, Known};
use super::request::{self, Expected, Form, IfMatch, Names, Parameters, flag, form, upload};
use super::tenants::Caller;
use crate::api::{Answers, CallArgument, Code, Function, Handler, HandlerAnswer, Problem};
use crate::metrics::{self, Family};
use crate::{Call, Director};

/// The time that a handler has where the request gives none.
const DEADLINE: f64 = 1.0;
/// The least and the longest time that a request may give (s).
const DEADLINES: (f64, f64) = (0.001, 60.0);
/// The time after the deadline in which the answer of a handler that had begun may still come.
const GRACE: Duration = Duration::from_secs(2);

/// The path of a function.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct FunctionPath {
    /// The function's name in the file.
    pub(super) function: String,
}

/// The path of a handler.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct HandlerPath {
    /// The function's name in the file.
    function: String,
    /// The handler's name.
    handler: String,
}

/// Parameters of a handler that is read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadQuery {
    /// The handler's argument.
    #[serde(default)]
    argument: String,
    /// The worker to ask; all where none is given.
    worker: Option<usize>,
    /// Seconds in which workers must begin (0.001 to 60); 1 where none is given.
    deadline: Option<f64>,
}

/// Parameters of a handler that is written.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WriteQuery {
    /// The worker to call where the body is plain text; all where none is given.
    worker: Option<usize>,
    /// Seconds in which workers must begin (0.001 to 60); 1 where none is given.
    deadline: Option<f64>,
    /// Only checks that there is such a handler and worker.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
}

/// Reads a handler.
#[utoipa::path(
    get, path = "/v1/functions/{function}/handlers/{handler}", tag = "functions",
    params(HandlerPath, ReadQuery),
    responses((status = 200, body = Answers), Failure),
)]
pub(super) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Names(HandlerPath { function, handler }): Names<HandlerPath>,
    Parameters(query): Parameters<ReadQuery>,
) -> Result<Known<Answers>, Failure> {
    let (time, deadline) = deadline(query.deadline)?;
    let ReadQuery { argument, worker, .. } = query;
    let call = Call { function, handler, argument, write: false, worker, deadline };
    let answers = app.post(time, move |director, asker: Asker<Answers>| {
        let generation = director.generation();
        match caller.call(director, call).and_then(|call| check(director, &call).map(|()| call)) {
            Err(problem) => asker.answer(generation, Err(problem)),
            Ok(call) => director.call(call, Box::new(move |result| asker.answer(generation, result))),
        }
    });
    Ok(answers.await?)
}

/// Families of samples that functions tell by their handler [`metrics::HANDLER`].
///
/// A function that does not answer in time, or not in that form, has none in this scrape.
pub(super) async fn metrics(app: &App) -> Result<Vec<(String, Vec<Family>)>, Problem> {
    let tells = |function: &Function| {
        function.handlers.iter().any(|handler| handler.name == metrics::HANDLER && !handler.writes)
    };
    let functions = app.ask(|director| Ok(director.functions())).await?.value;
    let mut own = Vec::new();
    for function in functions.into_iter().filter(tells) {
        let (time, deadline) = deadline(None)?;
        let (name, handler) = (function.name.clone(), metrics::HANDLER.to_owned());
        let call =
            Call { function: name, handler, argument: String::new(), write: false, worker: None, deadline };
        let answers = app.post(time, move |director, asker: Asker<Answers>| {
            let generation = director.generation();
            director.call(call, Box::new(move |result| asker.answer(generation, result)));
        });
        let Ok(Known { value: answers, .. }) = answers.await else { continue };
        let read = |answer: &HandlerAnswer| Family::read(&answer.value).unwrap_or_default();
        own.push((function.name, Family::joined(answers.answers.iter().flat_map(read))));
    }
    Ok(own)
}

/// Writes a handler. The body is JSON, or the value itself as `text/plain`.
#[utoipa::path(
    put, path = "/v1/functions/{function}/handlers/{handler}", tag = "functions",
    params(HandlerPath, WriteQuery, IfMatch),
    request_body(content((CallArgument = "application/json"), (String = "text/plain"))),
    responses((status = 200, body = Answers), Failure),
)]
pub(super) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Names(HandlerPath { function, handler }): Names<HandlerPath>,
    Parameters(query): Parameters<WriteQuery>,
    Expected(expected): Expected,
    headers: HeaderMap,
    body: Body,
) -> Result<Known<Answers>, Failure> {
    let form = form(&headers)?;
    let most = if form == Form::Text { app.limits.file } else { app.limits.body };
    let upload = upload(&app, &caller, &headers, body, most).await?;
    let argument = match form {
        Form::Text => CallArgument { value: request::text(upload.bytes)?, worker: None },
        // A handler such as `reset` has no value.
        Form::Json if upload.bytes.is_empty() => CallArgument::default(),
        Form::Json => crate::api::read(&upload.bytes)?,
    };
    // The call, its copy in the journal's task, and the copies of the workers.
    let memory = upload.memory;
    let (time, deadline) = deadline(query.deadline)?;
    let worker = argument.worker.or(query.worker);
    let call = Call { function, handler, argument: argument.value, write: true, worker, deadline };
    let tenant = match &caller {
        Caller::Operator => None,
        Caller::Tenant(tenant) => Some(tenant.clone()),
    };
    let tasks = app.tasks.clone();
    let answers = app.post(time, move |director, asker: Asker<Answers>| {
        let checked = caller.call(director, call).and_then(|call| check(director, &call).map(|()| call));
        let call = match checked {
            Ok(call) => call,
            Err(problem) => return asker.answer(director.generation(), Err(problem)),
        };
        if query.dry_run {
            let may = director.may_write(&call, expected, tenant.as_deref());
            let Call { function, handler, .. } = call;
            let answers = Answers { function, handler, answers: Vec::new() };
            return asker.answer(director.generation(), may.map(|()| answers));
        }
        let answer = move |generation, result| {
            asker.answer(generation, result);
            drop(memory);
        };
        director.write(call, expected, tenant, &tasks, Box::new(answer));
    });
    Ok(answers.await?)
}

/// The time to wait for a call, and its deadline.
fn deadline(given: Option<f64>) -> Result<(Duration, Instant), Problem> {
    let time = request::seconds("deadline", given.unwrap_or(DEADLINE), DEADLINES.0, DEADLINES.1)?;
    Ok((time + GRACE, Instant::now() + time))
}

/// The function of this name.
pub(super) fn function(functions: Vec<Function>, name: &str) -> Result<Function, Problem> {
    match functions.iter().position(|function| function.name == name) {
        Some(place) => functions.into_iter().nth(place),
        None => return Err(Problem::unknown("function", name, functions.iter().map(|known| &*known.name))),
    }
    .ok_or_else(|| Problem::unknown("function", name, []))
}

/// Whether there is such a handler, of this kind, and such a worker.
fn check(director: &Director<'_>, call: &Call) -> Result<(), Problem> {
    let function = function(director.functions(), &call.function)?;
    let known = |handler: &&Handler| handler.name == call.handler;
    // Some are read and written by one name.
    let wanted = |handler: &&Handler| known(handler) && handler.writes == call.write;
    let found = function.handlers.iter().find(wanted).or_else(|| function.handlers.iter().find(known));
    let Some(handler) = found else {
        let kind = format!("handler of `{}` named", function.name);
        return Err(Problem::unknown(
            &kind,
            &call.handler,
            function.handlers.iter().map(|handler| &*handler.name),
        ));
    };
    if handler.writes != call.write {
        let (is, with) = if handler.writes { ("written", "`set` (PUT)") } else { ("read", "`get` (GET)") };
        let detail = format!("the handler `{}` of `{}` is {is}", handler.name, function.name);
        return Err(Problem::new(Code::WrongKind, detail).help(format!("it is called by {with}")));
    }
    let workers = director.status().workers;
    match call.worker {
        Some(worker) if worker >= workers => {
            let detail = format!("there is no worker {worker}: there are {workers}, from 0");
            Err(Problem::new(Code::NotFound, detail))
        }
        _ => Ok(()),
    }
}
