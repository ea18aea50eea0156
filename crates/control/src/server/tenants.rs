//! Tenants as callers: each sees its own counters, functions, traces and captures, and nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use netbricks_core::node::{TENANT_READ, TENANT_WRITE};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::access::{Access, check_token};
use super::answer::{App, Failure, Known};
use super::socket::ListenError;
use crate::api::{Code, Function, Graph, Handler, Problem, Stats, TenantStats};
use crate::{Call, Director};

/// A tenant's credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// The tenant.
    pub tenant: String,
    /// Users of this machine who are the tenant on the Unix socket.
    pub users: Vec<u32>,
    /// The bearer token of the tenant over TCP.
    pub token: Option<String>,
}

// A token must not reach a log.
impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tenant, users, token } = self;
        f.debug_struct("Grant")
            .field("tenant", tenant)
            .field("users", users)
            .field("token", &token.is_some())
            .finish()
    }
}

impl Grant {
    /// Whether its token can be one.
    ///
    /// # Errors
    /// [`ListenError::Token`] for a token that is too short, too long, or has other characters than visible ASCII.
    pub fn check(&self) -> Result<(), ListenError> {
        self.token.as_ref().map_or(Ok(()), |token| check_token("tenant's", token))
    }
}

/// The credentials of all tenants, which change with the configuration.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    grants: Arc<RwLock<Vec<Grant>>>,
    /// Tells of each change.
    changes: Arc<Changes>,
    /// Users of this machine have been tenants: others than the operator are strangers from then on.
    had_users: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Changes(watch::Sender<()>);

impl Default for Changes {
    fn default() -> Self {
        Self(watch::channel(()).0)
    }
}

impl Grants {
    /// Replaces all of them. Streams end whose credentials are none any more.
    pub fn set(&self, grants: Vec<Grant>) {
        if grants.iter().any(|grant| !grant.users.is_empty()) {
            self.had_users.store(true, Ordering::Relaxed);
        }
        *self.grants.write().unwrap_or_else(PoisonError::into_inner) = grants;
        self.changes.0.send_replace(());
    }

    /// Changes from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.0.subscribe()
    }

    /// Whether a user without a grant may be the operator.
    ///
    /// Once users have been tenants, one of them who is none any more must not become the operator.
    pub(super) fn trusts_others(&self) -> bool {
        !self.had_users.load(Ordering::Relaxed)
    }

    /// Whether some tenant has credentials.
    pub(super) fn is_used(&self) -> bool {
        let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        grants.iter().any(|grant| grant.token.is_some() || !grant.users.is_empty())
    }

    fn find(&self, is: impl Fn(&Grant) -> bool) -> Option<Caller> {
        let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        grants.iter().find(|grant| is(grant)).map(|grant| Caller::Tenant(grant.tenant.as_str().into()))
    }

    /// The tenant of a user of this machine.
    pub(super) fn of_user(&self, user: u32) -> Option<Caller> {
        self.find(|grant| grant.users.contains(&user))
    }

    /// The tenant of a token.
    pub(super) fn of_token(&self, token: &[u8]) -> Option<Caller> {
        self.find(|grant| grant.token.as_ref().is_some_and(|known| known.as_bytes().ct_eq(token).into()))
    }
}

/// The user at the other end of a Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) Option<u32>);

impl Peer {
    /// Whether it is the operator, or the process itself.
    pub(super) fn is_operator(self) -> bool {
        self.0.is_some_and(|user| user == 0 || user == rustix::process::geteuid().as_raw())
    }
}

/// The one who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The operator, whose permissions are checked already.
    Operator,
    /// A tenant.
    Tenant(Arc<str>),
}

impl Caller {
    /// Whether a name is the caller's to see.
    pub(super) fn sees(&self, name: &str) -> bool {
        match self {
            Self::Operator => true,
            Self::Tenant(tenant) => {
                name.strip_prefix(tenant.as_ref()).is_some_and(|rest| rest.starts_with(':'))
            }
        }
    }

    /// Whether a tenant may make this request.
    pub(super) fn check(&self, request: &Request) -> Result<(), Problem> {
        let Self::Tenant(tenant) = self else { return Ok(()) };
        let path = request.uri().path().strip_prefix("/v1/").unwrap_or_default();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let allowed = match path.split_once('/') {
            None => match path {
                "tenants" | "functions" | "graph" => reads,
                // The stream of counters is the operator's.
                "stats" => reads && request.uri().query().is_none(),
                "trace" | "capture" => reads && self.sees(&place(request)),
                "openapi.json" => reads,
                _ => false,
            },
            Some(("functions", rest)) => {
                let (function, part) = rest.split_once('/').unwrap_or((rest, ""));
                let function = percent_encoding::percent_decode_str(function).decode_utf8_lossy();
                // Of a function of the operator's, `call` decides by the handler.
                self.sees(&function) || (part.starts_with("handlers/") && !function.contains(':'))
            }
            Some(_) => false,
        };
        if allowed { Ok(()) } else { Err(Self::refused(tenant)) }
    }

    /// The call that a caller makes: a tenant's of a function of the operator's says whose it is.
    ///
    /// # Errors
    /// [`Code::Forbidden`] where a tenant may not call the handler.
    pub(super) fn call(&self, director: &Director<'_>, call: Call) -> Result<Call, Problem> {
        let Self::Tenant(tenant) = self else { return Ok(call) };
        if self.sees(&call.function) {
            return Ok(call);
        }
        let functions = director.functions();
        let function = functions.iter().find(|function| function.name == call.function);
        // What another tenant has is never its own.
        let is_operators = !call.function.contains(':');
        let may = |handler: &Handler| {
            is_operators && handler.tenants && handler.name == call.handler && handler.writes == call.write
        };
        if !function.is_some_and(|function| function.handlers.iter().any(may)) {
            return Err(Self::refused(tenant));
        }
        let handler = if call.write { TENANT_WRITE } else { TENANT_READ };
        let argument = format!("{tenant} {} {}", call.handler, call.argument);
        Ok(Call { handler: handler.into(), argument, ..call })
    }

    fn refused(tenant: &str) -> Problem {
        let detail = format!("tenant `{tenant}` may not ask for this");
        Problem::new(Code::Forbidden, detail).help(
            "a tenant sees `tenants`, `stats`, `graph`, its `functions` with their handlers, handlers that say so of others, and \
             `trace` and `capture` with `at` one of its functions",
        )
    }
}

/// The parameter `at` of a request.
fn place(request: &Request) -> String {
    let query = request.uri().query().unwrap_or_default();
    let mut places = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "at");
    // Of several, one might be another's.
    let place = places.next().filter(|_| places.next().is_none());
    place.map(|(_, place)| place.into_owned()).unwrap_or_default()
}

/// The connections, or the memory, that each tenant has, which are bounded.
#[derive(Clone, Debug)]
pub(super) struct Seats {
    most: usize,
    /// By tenant. Users who may ask for nothing are counted as well.
    left: Arc<Mutex<BTreeMap<Box<str>, Arc<Semaphore>>>>,
}

/// A connection's part of what its tenant may have; none until it is known who asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat(Arc<Mutex<Option<Taken>>>);

/// A tenant, and one of the connections that it may have.
type Taken = (Box<str>, OwnedSemaphorePermit);

impl Seats {
    pub(super) fn new(most: usize) -> Self {
        Self { most, left: Arc::default() }
    }

    /// The connections, or the memory, that this tenant has left.
    pub(super) fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        // Tenants come and go.
        left.retain(|_, left| Arc::strong_count(left) > 1 || left.available_permits() < self.most);
        left.entry(tenant.into()).or_insert_with(|| Arc::new(Semaphore::new(self.most))).clone()
    }

    /// A connection of this tenant; `None` where it has as many as it may.
    pub(super) fn take(&self, tenant: &str) -> Option<Seat> {
        let permit = self.of(tenant).try_acquire_owned().ok()?;
        Some(Seat(Arc::new(Mutex::new(Some((tenant.into(), permit))))))
    }

    /// Counts the connection of a request that this caller made.
    ///
    /// # Errors
    /// [`Code::Busy`] where the caller is a tenant that has as many as it may.
    pub(super) fn check(&self, caller: &Caller, request: &Request) -> Result<(), Problem> {
        let (Caller::Tenant(tenant), Some(seat)) = (caller, request.extensions().get::<Seat>()) else {
            return Ok(());
        };
        let mut seat = seat.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seat.as_ref().is_some_and(|(known, _)| **known == **tenant) {
            return Ok(());
        }
        let Some(Seat(new)) = self.take(tenant) else {
            let detail = format!("tenant `{tenant}` has {} connections already", self.most);
            return Err(Problem::new(Code::Busy, detail).help("end one of them, or try again in a moment"));
        };
        *seat = new.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    }
}

/// The right to a stream, which ends when the credentials of its request are no longer good for it.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    head: Parts,
    caller: Caller,
    access: Arc<Access>,
    grants: Grants,
    /// The grants may have changed since `caller` was known.
    changes: watch::Receiver<()>,
}

impl Standing {
    /// The right of this request, whose maker was found after `changes` began.
    pub(super) fn of(request: &Request, caller: &Caller, app: &App, changes: watch::Receiver<()>) -> Self {
        let mut head = Request::new(()).into_parts().0;
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        if let Some(peer) = request.extensions().get::<Peer>() {
            head.extensions.insert(*peer);
        }
        let (access, grants) = (app.access.clone(), app.grants.clone());
        Self { head, caller: caller.clone(), access, grants, changes }
    }

    /// Waits until the request would be refused, or would be another tenant's.
    pub(super) async fn lost(&mut self) {
        loop {
            if self.changes.changed().await.is_err() {
                // No grant changes any more.
                return std::future::pending::<()>().await;
            }
            let request = Request::from_parts(self.head.clone(), Body::empty());
            if self.access.check(&request, &self.grants).ok().as_ref() != Some(&self.caller) {
                return;
            }
        }
    }
}

/// The part of the counters that the caller may see.
pub(super) fn stats(caller: &Caller, mut stats: Stats) -> Stats {
    if let Caller::Tenant(tenant) = caller {
        stats.nodes.retain(|node| node.tenant.as_deref() == Some(tenant.as_ref()));
        stats.tables.retain(|table| table.tenant.as_deref() == Some(tenant.as_ref()));
        stats.tenants.retain(|known| known.tenant == **tenant);
        stats.ports.retain(|port| caller.sees(&port.port));
        stats.workers.clear();
        (stats.free_buffers, stats.buffers) = (0, 0);
    }
    stats
}

/// The part of the graph that the caller may see.
pub(super) fn graph(caller: &Caller, mut graph: Graph) -> Graph {
    graph.nodes.retain(|node| caller.sees(&node.name));
    graph.edges.retain(|edge| caller.sees(&edge.from) && caller.sees(&edge.to));
    graph
}

/// The functions that the caller may see.
pub(super) fn functions(caller: &Caller, mut functions: Vec<Function>) -> Vec<Function> {
    if let Caller::Tenant(_) = caller {
        for function in functions.iter_mut().filter(|function| !caller.sees(&function.name)) {
            function.nodes.clear();
            function.handlers.retain(|handler| handler.tenants && !function.name.contains(':'));
        }
        functions.retain(|function| caller.sees(&function.name) || !function.handlers.is_empty());
    }
    functions
}

/// The tenants with their shares, their use of the workers and their packets.
///
/// A tenant sees itself alone.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "state",
    responses((status = 200, body = Vec<TenantStats>), Failure),
)]
pub(super) async fn tenants(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Known<Vec<TenantStats>>, Failure> {
    Ok(app.stats().await?.map(|(_, all)| stats(&caller, all).tenants))
}
