//! Log lines of requests: each at debug, and refusals for want of a right as warnings.

use std::sync::PoisonError;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, Level, Span, debug, debug_span, field, warn};

use super::access::Access;
use super::answer::App;
use super::tenants::{Caller, Peer};
use crate::api::Code;
use crate::log::{REQUESTS, code, shortened, some};

/// Lets a request pass, and writes how it went.
///
/// Neither parameters, headers nor bodies are written: they may hold secrets.
pub(super) async fn logged(State(app): State<App>, request: Request, next: Next) -> Response {
    if !tracing::enabled!(target: REQUESTS, Level::WARN) {
        return next.run(request).await;
    }
    let begun = Instant::now();
    let method = shortened(request.method().as_str()).to_owned();
    let path = shortened(request.uri().path()).to_owned();
    let user = request.extensions().get::<Peer>().and_then(|peer| peer.0);
    let span = debug_span!(
        target: REQUESTS, "request", method, path, user, client = field::Empty, tenant = field::Empty
    );
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let refused = response.extensions().get::<Code>().copied();
    let microseconds = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    debug!(target: REQUESTS, parent: &span, status, code = refused.map(code), microseconds, "answered");
    if let Some(refused) = refused.filter(|code| matches!(code, Code::Unauthorized | Code::Forbidden)) {
        let cause = user.map_or_else(|| "tcp".to_owned(), |user| user.to_string());
        let mut lines = app.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = lines.admit(&cause, Instant::now());
        drop(lines);
        if let Some(suppressed) = admitted {
            let (code, suppressed) = (code(refused), some(suppressed));
            warn!(target: REQUESTS, method, path, user, status, code, suppressed, "refused");
        }
    }
    response
}

/// Notes in the request's span by which right it is made.
pub(super) fn came_from(access: &Access, caller: &Caller) {
    let span = Span::current();
    match (caller, access) {
        (Caller::Tenant(tenant), _) => {
            span.record("client", "tenant").record("tenant", tenant.as_ref());
        }
        (Caller::Operator, Access::Unix { .. }) => _ = span.record("client", "unix"),
        (Caller::Operator, Access::Tcp(_)) => _ = span.record("client", "token"),
        (Caller::Operator, Access::Loopback) => _ = span.record("client", "loopback"),
    }
}
