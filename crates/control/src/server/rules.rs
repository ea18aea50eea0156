//! The rules of a function: a list that is changed by commands, all of them or none.
//!
//! The function's own handlers do the work, with the rights, the journal and the generations of handlers: `list`,
//! `lines`, `run`, `replace`, `check`, `check-replace` and `ask`.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{App, Asker, Failure, Known, tagged};
use super::calls::{self, FunctionPath};
use super::request::{self, Expected, Form, IfMatch, Memory, Names, Parameters, flag, form, upload};
use super::resources::accepts;
use super::tenants::Caller;
use crate::api::{Answers, CallArgument, Code, Problem, RuleAnswer, RuleList};
use crate::{Call, Director};

/// The time in which a handler must begin.
const DEADLINE: Duration = Duration::from_secs(5);

/// The path of a rule.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct RulePath {
    /// The function's name in the file.
    function: String,
    /// The rule's place from 1, or its name.
    rule: String,
}

/// Parameters of a change of rules.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeQuery {
    /// Only says what would change, with all errors and warnings.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
}

/// Parameters of `explain`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExplainQuery {
    /// The packet: fields with their values, as `ip-saddr 10.0.0.1 tcp-dport 80`, or `hex` and the bytes of a frame.
    packet: String,
}

/// Parameters of `test`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TestQuery {
    /// One expectation a line: a packet as `explain` takes it, and `accept` or `drop`.
    expect: String,
}

/// The rules of a function with their counts; or the commands that make them, where `Accept` asks for `text/plain`.
#[utoipa::path(
    get, path = "/v1/functions/{function}/rules", tag = "rules", operation_id = "list_rules",
    params(FunctionPath),
    responses((status = 200, content((RuleList = "application/json"), (String = "text/plain"))), Failure),
)]
pub(super) async fn list(
    State(app): State<App>,
    Names(FunctionPath { function }): Names<FunctionPath>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if accepts(&headers, "text/plain") {
        let Known { generation, value } = ask(&app, function, "lines", String::new()).await?;
        return Ok(tagged(generation, "text/plain", Body::from(value)));
    }
    let Known { generation, value } = ask(&app, function, "list", String::new()).await?;
    let value: RuleList = serde_json::from_str(&value).map_err(|error| {
        Problem::new(Code::Internal, format!("the handler `list` answers no list of rules: {error}"))
    })?;
    Ok(Known { generation, value }.into_response())
}

/// Runs commands, one a line: all of them, or none. The body is JSON, or the commands as `text/plain`.
#[utoipa::path(
    post, path = "/v1/functions/{function}/rules", tag = "rules", operation_id = "change_rules",
    params(FunctionPath, ChangeQuery, IfMatch),
    request_body(content((CallArgument = "application/json"), (String = "text/plain"))),
    responses((status = 200, body = RuleAnswer), Failure),
)]
pub(super) async fn change(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Names(FunctionPath { function }): Names<FunctionPath>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
    headers: HeaderMap,
    body: Body,
) -> Result<Known<RuleAnswer>, Failure> {
    let (commands, memory) = commands(&app, &caller, &headers, body).await?;
    let change = Change { function, handlers: ["run", "check"], commands, memory, expected, caller };
    Ok(change.make(&app, query.dry_run).await?)
}

/// Replaces all rules and sets by those that commands make. The body is JSON, or the commands as `text/plain`.
#[utoipa::path(
    put, path = "/v1/functions/{function}/rules", tag = "rules", operation_id = "replace_rules",
    params(FunctionPath, ChangeQuery, IfMatch),
    request_body(content((CallArgument = "application/json"), (String = "text/plain"))),
    responses((status = 200, body = RuleAnswer), Failure),
)]
pub(super) async fn replace(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Names(FunctionPath { function }): Names<FunctionPath>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
    headers: HeaderMap,
    body: Body,
) -> Result<Known<RuleAnswer>, Failure> {
    let (commands, memory) = commands(&app, &caller, &headers, body).await?;
    let handlers = ["replace", "check-replace"];
    let change = Change { function, handlers, commands, memory, expected, caller };
    Ok(change.make(&app, query.dry_run).await?)
}

/// Deletes a rule, and ends its connections.
#[utoipa::path(
    delete, path = "/v1/functions/{function}/rules/{rule}", tag = "rules", operation_id = "delete_rule",
    params(RulePath, ChangeQuery, IfMatch),
    responses((status = 200, body = RuleAnswer), Failure),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Names(RulePath { function, rule }): Names<RulePath>,
    Parameters(query): Parameters<ChangeQuery>,
    Expected(expected): Expected,
) -> Result<Known<RuleAnswer>, Failure> {
    let commands = format!("delete {}", word("rule", &rule)?);
    let memory = Memory::of(&app, &caller);
    let change = Change { function, handlers: ["run", "check"], commands, memory, expected, caller };
    Ok(change.make(&app, query.dry_run).await?)
}

/// The rules that a packet matches, those that it nearly matches, and the verdict.
#[utoipa::path(
    get, path = "/v1/functions/{function}/rules/explain", tag = "rules", operation_id = "explain_rules",
    params(FunctionPath, ExplainQuery),
    responses((status = 200, body = RuleAnswer), Failure),
)]
pub(super) async fn explain(
    State(app): State<App>,
    Names(FunctionPath { function }): Names<FunctionPath>,
    Parameters(ExplainQuery { packet }): Parameters<ExplainQuery>,
) -> Result<Known<RuleAnswer>, Failure> {
    let command = format!("explain {}", one_line("packet", &packet)?);
    Ok(ask(&app, function, "ask", command).await?.map(|answer| RuleAnswer { answer }))
}

/// Whether the rules decide about packets as expected; the first that they do not is the problem.
#[utoipa::path(
    get, path = "/v1/functions/{function}/rules/test", tag = "rules", operation_id = "test_rules",
    params(FunctionPath, TestQuery),
    responses((status = 200, body = RuleAnswer), Failure),
)]
pub(super) async fn test(
    State(app): State<App>,
    Names(FunctionPath { function }): Names<FunctionPath>,
    Parameters(TestQuery { expect }): Parameters<TestQuery>,
) -> Result<Known<RuleAnswer>, Failure> {
    let lines = expect.lines().map(str::trim);
    // An empty line stays, so that errors name the right one.
    let command = |line: &str| match line {
        "" => "\n".to_owned(),
        line => format!("expect {line}\n"),
    };
    let commands: String = lines.map(command).collect();
    Ok(ask(&app, function, "ask", commands).await?.map(|answer| RuleAnswer { answer }))
}

/// The commands in a body.
async fn commands(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
) -> Result<(String, Memory), Problem> {
    let form = form(headers)?;
    let most = if form == Form::Text { app.limits.file } else { app.limits.body };
    let upload = upload(app, caller, headers, body, most).await?;
    let commands = match form {
        Form::Text => request::text(upload.bytes)?,
        Form::Json => crate::api::read::<CallArgument>(&upload.bytes)?.value,
    };
    Ok((commands, upload.memory))
}

/// A text that is part of one command.
fn one_line<'t>(what: &str, text: &'t str) -> Result<&'t str, Problem> {
    let text = text.trim();
    if text.is_empty() || text.contains(['\n', '\r']) {
        return Err(Problem::new(
            Code::BadRequest,
            format!("`{what}` is no line of text: give one that is not empty"),
        ));
    }
    Ok(text)
}

/// A text that is one word of a command.
fn word<'t>(what: &str, text: &'t str) -> Result<&'t str, Problem> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || !text.chars().all(is_word) {
        let detail = format!("`{text}` is neither the number nor the name of a {what}");
        return Err(Problem::new(Code::BadRequest, detail).help("the list of rules has both"));
    }
    Ok(text)
}

/// Whether the function has rules, with this handler among others.
fn check(director: &Director<'_>, call: &Call) -> Result<(), Problem> {
    let function = calls::function(director.functions(), &call.function)?;
    let has = |name: &str| function.handlers.iter().any(|handler| handler.name == name);
    if has("run") && has("list") && has(&call.handler) {
        return Ok(());
    }
    let detail = format!("the function `{}` (`{}`) has no rules", function.name, function.definition);
    Err(Problem::new(Code::NotFound, detail).help("functions of the kind `mmb` have"))
}

/// The answer of the side that answered: rules are one state of all workers.
fn said(answers: Answers) -> String {
    answers.answers.into_iter().next().map(|answer| answer.value).unwrap_or_default()
}

/// Calls a handler that changes nothing.
async fn ask(app: &App, function: String, handler: &str, argument: String) -> Result<Known<String>, Problem> {
    let deadline = Instant::now() + DEADLINE;
    let call = Call { function, handler: handler.into(), argument, write: false, worker: None, deadline };
    let answers = app.post(app.limits.answer, move |director, asker: Asker<Answers>| {
        let generation = director.generation();
        match check(director, &call) {
            Err(problem) => asker.answer(generation, Err(problem)),
            Ok(()) => director.call(call, Box::new(move |result| asker.answer(generation, result))),
        }
    });
    Ok(answers.await?.map(said))
}

/// A change of rules.
struct Change {
    function: String,
    /// The handler that makes it, and the one that only says what it would change.
    handlers: [&'static str; 2],
    commands: String,
    /// The memory of the commands while they wait.
    memory: Memory,
    expected: Option<u64>,
    caller: Caller,
}

impl Change {
    async fn make(self, app: &App, dry_run: bool) -> Result<Known<RuleAnswer>, Problem> {
        let Self { function, handlers: [handler, checks], commands, memory, expected, caller } = self;
        let deadline = Instant::now() + DEADLINE;
        let call = Call {
            function,
            handler: handler.into(),
            argument: commands,
            write: true,
            worker: None,
            deadline,
        };
        let tenant = match caller {
            Caller::Operator => None,
            Caller::Tenant(tenant) => Some(tenant),
        };
        let tasks = app.tasks.clone();
        let answers = app.post(app.limits.change, move |director, asker: Asker<Answers>| {
            let generation = director.generation();
            if let Err(problem) = check(director, &call) {
                return asker.answer(generation, Err(problem));
            }
            if dry_run {
                if let Err(problem) = director.may_write(&call, expected, tenant.as_deref()) {
                    return asker.answer(generation, Err(problem));
                }
                let call = Call { handler: checks.into(), write: false, ..call };
                let answer = move |result| {
                    asker.answer(generation, result);
                    drop(memory);
                };
                return director.call(call, Box::new(answer));
            }
            let answer = move |generation, result| {
                asker.answer(generation, result);
                drop(memory);
            };
            director.write(call, expected, tenant, &tasks, Box::new(answer));
        });
        Ok(answers.await?.map(|answers| RuleAnswer { answer: said(answers) }))
    }
}
