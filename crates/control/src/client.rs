//! The client of the control API: blocking, one connection for each request.

mod address;
mod exchange;
mod stream;
mod upload;

use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use hyper::{Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use address::{Address, default_socket, read_token};
use exchange::Exchange;
pub use stream::Stream;
use upload::Upload;

use crate::api::{
    self, Answers, Applied, ApplyOptions, CallArgument, ChangeOptions, Code, Event, Function, Graph,
    HistoryEntry, Plan, Port, Problem, Source, Stats, Status, TenantStats, TraceRecord,
};

/// Characters that stand for themselves in a part of a path (RFC 3986, section 2.3).
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Values of handlers that are longer than this many bytes are sent as they are, not as JSON.
const LONG: usize = 256 << 10;

/// A client of one running dataplane.
///
/// Every call waits for its answer, and must not be made on a thread that drives asynchronous tasks.
/// A [`Problem`] of [`Code::Unreachable`] means that no process answers there.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    change: ChangeOptions,
}

impl Client {
    /// The client of the dataplane that listens there. Nothing is opened before the first call.
    pub fn new(address: Address) -> Self {
        Self { address, change: ChangeOptions::default() }
    }

    /// The client of the only dataplane that listens on this machine in the default directories.
    ///
    /// # Errors
    /// [`Code::Unreachable`] where none listens, or several; the message names them.
    pub fn find() -> Result<Self, Problem> {
        address::only(&address::directories()).map(|path| Self::new(Address::Unix(path)))
    }

    /// The same client, each change of which has these conditions.
    ///
    /// Changes are [`write`](Self::write), [`confirm`](Self::confirm), [`rollback`](Self::rollback),
    /// [`suspend`](Self::suspend), [`resume`](Self::resume) and [`stop`](Self::stop). [`apply`](Self::apply) has
    /// conditions of its own.
    #[must_use]
    pub fn with_conditions(&self, change: ChangeOptions) -> Self {
        Self { address: self.address.clone(), change }
    }

    /// Where the dataplane listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The state of the run.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn status(&self) -> Result<Status, Problem> {
        self.get("status")
    }

    /// The counters.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn stats(&self) -> Result<Stats, Problem> {
        self.get("stats")
    }

    /// The tenants, with their use of the workers and their packets.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn tenants(&self) -> Result<Vec<TenantStats>, Problem> {
        self.get("tenants")
    }

    /// The counters again and again, every so many seconds.
    ///
    /// # Errors
    /// When the dataplane does not answer, or `seconds` is out of range.
    pub fn stats_every(
        &self,
        seconds: f64,
    ) -> Result<impl Iterator<Item = Result<Stats, Problem>> + use<>, Problem> {
        Ok(self.stream(&format!("stats?every={seconds}"))?.map(|data| answer(data?.as_bytes())))
    }

    /// The graph.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn graph(&self) -> Result<Graph, Problem> {
        self.get("graph")
    }

    /// The ports.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn ports(&self) -> Result<Vec<Port>, Problem> {
        self.get("ports")
    }

    /// The functions with their handlers.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn functions(&self) -> Result<Vec<Function>, Problem> {
        self.get("functions")
    }

    /// One function with its handlers.
    ///
    /// # Errors
    /// [`Code::NotFound`], with the nearest name.
    pub fn function(&self, name: &str) -> Result<Function, Problem> {
        self.get(&format!("functions/{}", part(name)))
    }

    /// Reads a handler of a function, of one worker or of all.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::WrongKind`], [`Code::Timeout`], and what the handler itself refuses.
    pub fn read(
        &self,
        function: &str,
        handler: &str,
        argument: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        let mut query = Query::default();
        if !argument.is_empty() {
            query.add("argument", argument);
        }
        query.add_some("worker", worker);
        self.get(&query.after(&path_of(function, handler)))
    }

    /// Writes a handler of a function, of one worker or of all.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::WrongKind`], [`Code::Timeout`], and what the handler itself refuses.
    pub fn write(
        &self,
        function: &str,
        handler: &str,
        value: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        let path = path_of(function, handler);
        let mut query = self.conditions();
        let body = if value.len() <= LONG {
            json(&CallArgument { value: value.to_owned(), worker })?
        } else {
            query.add_some("worker", worker);
            ("text/plain; charset=utf-8", value.as_bytes().to_vec())
        };
        self.send(Method::PUT, &query.after(&path), Some(body), self.change.generation)
    }

    /// The file that runs.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn config(&self) -> Result<Source, Problem> {
        self.get("config")
    }

    /// The changes that a file would make. Nothing changes.
    ///
    /// # Errors
    /// [`Code::Faulty`] with the faults of the file, or [`Code::NeedsRestart`].
    pub fn plan(&self, source: &Source) -> Result<Plan, Problem> {
        self.send(Method::POST, "plan", Some(json(source)?), None)
    }

    /// Makes a file run; with `if_match`, only if that is still the generation.
    ///
    /// # Errors
    /// The faults of the file or the machine, or [`Code::Stale`]; what ran before then runs on untouched.
    pub fn apply(
        &self,
        source: &Source,
        options: &ApplyOptions,
        if_match: Option<u64>,
    ) -> Result<Applied, Problem> {
        let mut query = Query::default();
        query.add_some("dry-run", options.dry_run.then_some(true));
        query.add_some("confirm", options.confirm);
        query.add_some("note", options.note.as_ref());
        query.add_some("forget", options.forget.then_some(true));
        self.send(Method::POST, &query.after("apply"), Some(json(source)?), if_match)
    }

    /// Confirms the running configuration.
    ///
    /// # Errors
    /// [`Code::Conflict`] where nothing waits to be confirmed.
    pub fn confirm(&self) -> Result<Status, Problem> {
        self.post("confirm")
    }

    /// Goes back to this configuration, or to the confirmed one before the running one.
    ///
    /// # Errors
    /// [`Code::NotFound`] or [`Code::Conflict`] where there is none, and the errors of [`apply`](Self::apply).
    pub fn rollback(&self, to: Option<u64>) -> Result<Applied, Problem> {
        let mut query = self.conditions();
        query.add_some("to", to);
        self.send(Method::POST, &query.after("rollback"), None, self.change.generation)
    }

    /// The configurations that ran, newest first.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn history(&self) -> Result<Vec<HistoryEntry>, Problem> {
        self.get("history")
    }

    /// The file of a configuration in the history.
    ///
    /// # Errors
    /// [`Code::NotFound`] where the history does not have it.
    pub fn configuration(&self, number: u64) -> Result<Source, Problem> {
        self.get(&format!("history/{number}"))
    }

    /// Drains and ends the run.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn stop(&self) -> Result<Status, Problem> {
        self.post("stop")
    }

    /// Stops asking the sources for packets.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn suspend(&self) -> Result<Status, Problem> {
        self.post("suspend")
    }

    /// Asks the sources for packets again.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn resume(&self) -> Result<Status, Problem> {
        self.post("resume")
    }

    /// The events from number `from` on, and then each one as it comes; without `from`, only those to come.
    ///
    /// Where this reader is too slow, an event of kind `missed` says how many it lost.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn events(
        &self,
        from: Option<u64>,
    ) -> Result<impl Iterator<Item = Result<Event, Problem>> + use<>, Problem> {
        let mut query = Query::default();
        query.add("follow", true);
        query.add_some("from", from);
        Ok(self.stream(&query.after("events"))?.map(|data| answer(data?.as_bytes())))
    }

    /// The kept events from number `from` on.
    ///
    /// # Errors
    /// When the dataplane does not answer.
    pub fn events_so_far(&self, from: u64) -> Result<Vec<Event>, Problem> {
        self.get(&format!("events?from={from}"))
    }

    /// The next packets that match, from node to node, each as its end is seen.
    ///
    /// # Errors
    /// [`Code::BadRequest`] with the fault of the filter, [`Code::NotFound`] for the place, or when the dataplane
    /// does not answer.
    pub fn trace(
        &self,
        filter: &str,
        at: Option<&str>,
        count: Option<u64>,
    ) -> Result<impl Iterator<Item = Result<TraceRecord, Problem>> + use<>, Problem> {
        let mut query = Query::default();
        query.add("filter", filter);
        query.add_some("at", at);
        query.add_some("count", count);
        Ok(self.stream(&query.after("trace"))?.map(|data| answer(data?.as_bytes())))
    }

    /// The next packets that match, as pieces of a capture in the form of pcapng.
    ///
    /// # Errors
    /// As [`trace`](Self::trace).
    pub fn capture(
        &self,
        filter: &str,
        at: Option<&str>,
        count: Option<u64>,
        snaplen: Option<usize>,
    ) -> Result<impl Iterator<Item = Result<Bytes, Problem>> + use<>, Problem> {
        let mut query = Query::default();
        query.add("filter", filter);
        query.add_some("at", at);
        query.add_some("count", count);
        query.add_some("snaplen", snaplen);
        let request = self.request(Method::GET, &query.after("capture"), None, None)?;
        let mut exchange = Exchange::begin(&self.address, request)?;
        Ok(std::iter::from_fn(move || exchange.piece()))
    }

    /// The lines that a path below `/v1/` answers as they come; of server-sent events, the data of each.
    ///
    /// # Errors
    /// When the dataplane does not answer, or refuses.
    pub fn stream(&self, path: &str) -> Result<Stream, Problem> {
        let request = self.request(Method::GET, path, None, None)?;
        Exchange::begin(&self.address, request).map(Stream::new)
    }

    /// Copies what a path below `/v1/` answers to a file or pipe. Answers the number of bytes.
    ///
    /// # Errors
    /// When the dataplane does not answer, or refuses, or `to` cannot be written.
    pub fn download(&self, path: &str, mut to: impl Write) -> Result<u64, Problem> {
        let mut exchange = Exchange::begin(&self.address, self.request(Method::GET, path, None, None)?)?;
        let failed =
            |error| Problem::new(Code::Machine, format!("cannot write what was downloaded: {error}"));
        let mut bytes = 0;
        while let Some(piece) = exchange.piece() {
            let piece = piece?;
            to.write_all(&piece).map_err(failed)?;
            bytes += piece.len() as u64;
        }
        to.flush().map_err(failed)?;
        Ok(bytes)
    }

    /// Asks for a path below `/v1/`.
    ///
    /// # Errors
    /// When the dataplane does not answer, or refuses, or answers another type.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(Method::GET, path, None, None)
    }

    fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(Method::POST, &self.conditions().after(path), None, self.change.generation)
    }

    /// The conditions of a change that are parameters.
    fn conditions(&self) -> Query {
        let mut query = Query::default();
        query.add_some("dry-run", self.change.dry_run.then_some(true));
        query
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        if_match: Option<u64>,
    ) -> Result<T, Problem> {
        let request = self.request(method, path, body, if_match)?;
        answer(&Exchange::begin(&self.address, request)?.whole()?)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        if_match: Option<u64>,
    ) -> Result<Request<Upload>, Problem> {
        let mut request = Request::builder().method(method).uri(format!("/{}/{path}", api::VERSION));
        if let Some(generation) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{generation}\""));
        }
        let (kind, body) = body.unwrap_or_default();
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        request
            .body(Upload::new(body))
            .map_err(|error| Problem::new(Code::BadRequest, format!("`{path}` is no path: {error}")))
    }
}

/// A source of a file on this machine, as [`Client::apply`] takes it.
///
/// # Errors
/// [`Code::Machine`] where the file cannot be read.
pub fn source(file: &Path) -> Result<Source, Problem> {
    let failed =
        |error: std::io::Error| Problem::new(Code::Machine, format!("`{}`: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let directory = file.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    let directory = std::path::absolute(directory).map_err(failed)?;
    Ok(Source { text, name: file.display().to_string(), directory: directory.display().to_string() })
}

fn answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(Code::Internal, format!("the dataplane's answer is of another type: {error}"))
            .help("is it of this program's version?")
    })
}

fn json(value: &impl Serialize) -> Result<(&'static str, Vec<u8>), Problem> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Problem::new(Code::Internal, format!("the request has no form in JSON: {error}")))?;
    Ok(("application/json", bytes))
}

fn part(name: &str) -> String {
    utf8_percent_encode(name, PART).to_string()
}

fn path_of(function: &str, handler: &str) -> String {
    format!("functions/{}/handlers/{}", part(function), part(handler))
}

/// The parameters of a request.
struct Query(form_urlencoded::Serializer<'static, String>);

impl Default for Query {
    fn default() -> Self {
        Self(form_urlencoded::Serializer::new(String::new()))
    }
}

impl Query {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.append_pair(name, &value.to_string());
    }
    fn add_some(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
    fn after(mut self, path: &str) -> String {
        match self.0.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }
}
