//! Permissions: the socket's file permissions over Unix, a bearer token over TCP.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::answer::{App, Failure};
use super::logged;
use super::socket::ListenError;
use super::tenants::{Caller, Grants, Peer, Standing};
use crate::api::{Code, Problem};

/// How many characters a token may have.
pub(super) const TOKEN: RangeInclusive<usize> = 16..=512;

/// The bearer tokens of a TCP port.
#[derive(Clone, Default)]
pub struct Tokens {
    /// The token with which requests may only read.
    pub read_only: Option<String>,
    /// The token with which they may do everything.
    pub admin: Option<String>,
    /// Whether everyone on this machine may read where there is no token. The address must then be a loopback one.
    pub open: bool,
}

// A token must not reach a log.
impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { read_only, admin, open } = self;
        f.debug_struct("Tokens")
            .field("read_only", &read_only.is_some())
            .field("admin", &admin.is_some())
            .field("open", open)
            .finish()
    }
}

/// Whether a text can be a token.
pub(super) fn check_token(which: &'static str, token: &str) -> Result<(), ListenError> {
    if TOKEN.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(ListenError::Token { which, characters: token.chars().count() })
}

/// How requests on one socket prove what they may do.
#[derive(Debug)]
pub(super) enum Access {
    /// The kernel has checked the file permissions.
    Unix { read_only: bool },
    /// A token says it.
    Tcp(Tokens),
    /// Everyone on this machine may read.
    Loopback,
}

impl Access {
    pub(super) fn for_tcp(address: SocketAddr, tokens: Tokens) -> Result<Self, ListenError> {
        for (which, token) in [("read-only", &tokens.read_only), ("admin", &tokens.admin)] {
            let Some(token) = token else { continue };
            check_token(which, token)?;
        }
        match (&tokens.read_only, &tokens.admin) {
            (None, None) if tokens.open && address.ip().is_loopback() => Ok(Self::Loopback),
            (None, None) => Err(ListenError::NoToken(address)),
            (Some(read_only), Some(admin)) if read_only == admin => Err(ListenError::SameTokens),
            _ => Ok(Self::Tcp(tokens)),
        }
    }

    /// The maker of the request, where it may be done.
    pub(super) fn check(&self, request: &Request, grants: &Grants) -> Result<Caller, Problem> {
        let tenant = match self {
            Self::Unix { .. } => {
                let peer = request.extensions().get::<Peer>();
                // The operator and the process itself are never a tenant.
                let is_operator = peer.is_some_and(|peer| peer.is_operator());
                let tenant = peer
                    .and_then(|peer| peer.0)
                    .filter(|_| !is_operator)
                    .and_then(|user| grants.of_user(user));
                if tenant.is_none() && !is_operator && !grants.trusts_others() {
                    let detail = "you are neither a tenant nor the user of this dataplane";
                    return Err(Problem::new(Code::Forbidden, detail)
                        .help("ask the operator to put you into `users` of a tenant"));
                }
                tenant
            }
            // The operator's own token comes first, where a tenant has the same.
            Self::Tcp(tokens) => match tokens.check(request) {
                Ok(_) => None,
                Err(_) => bearer(request).ok().and_then(|token| grants.of_token(token)),
            },
            Self::Loopback => {
                let tenant = bearer(request).ok().and_then(|token| grants.of_token(token));
                if tenant.is_none() && grants.is_used() {
                    return Err(Problem::new(
                        Code::Unauthorized,
                        "there are tenants, so that a token is needed",
                    )
                    .help(
                        "configure `token_file` or `read_token_file` in `[control]`, or use the Unix socket",
                    ));
                }
                tenant
            }
        };
        if let Some(tenant) = tenant {
            return tenant.check(request).map(|()| tenant);
        }
        self.check_operator(request).map(|()| Caller::Operator)
    }

    /// Whether the operator may make the request.
    fn check_operator(&self, request: &Request) -> Result<(), Problem> {
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        // Who may read counters need not see what others send.
        let looks = matches!(request.uri().path(), "/v1/trace" | "/v1/capture");
        let may_write = match self {
            Self::Unix { read_only } => !read_only,
            Self::Loopback => {
                if !names_loopback(request) {
                    return Err(Problem::new(
                        Code::Forbidden,
                        "the `Host` of the request is not this machine",
                    )
                    .help("ask for 127.0.0.1, or configure a token"));
                }
                false
            }
            Self::Tcp(tokens) => tokens.check(request)?,
        };
        if !changes && !looks || may_write {
            return Ok(());
        }
        let what = if looks { "shows packets" } else { "changes something" };
        let problem = Problem::new(Code::Forbidden, format!("this request {what}, and you may only read"));
        Err(problem.help(match self {
            Self::Unix { .. } => "the socket is configured as read-only",
            Self::Loopback => "configure an admin token, or use the Unix socket",
            Self::Tcp(_) => "use the admin token",
        }))
    }
}

impl Tokens {
    /// Whether the request's token may write. Takes the same time for every wrong token of one length.
    fn check(&self, request: &Request) -> Result<bool, Problem> {
        let given = bearer(request)?;
        let is =
            |token: &Option<String>| token.as_ref().map_or(0.into(), |token| token.as_bytes().ct_eq(given));
        let (admin, read_only) = (is(&self.admin), is(&self.read_only));
        if (admin | read_only).into() { Ok(admin.into()) } else { Err(wrong("the token is wrong")) }
    }
}

fn wrong(detail: &str) -> Problem {
    Problem::new(Code::Unauthorized, detail).help("send the header `Authorization: Bearer TOKEN`")
}

/// The bearer token of a request.
fn bearer(request: &Request) -> Result<&[u8], Problem> {
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(|| wrong("there is no token"))?;
    match given.as_bytes().split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Ok(token),
        _ => Err(wrong("the `Authorization` header has no bearer token")),
    }
}

/// Whether the request was meant for a loopback address.
///
/// That of a page in a browser which was led here by DNS was not.
fn names_loopback(request: &Request) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Lets through only requests that may be done.
pub(super) async fn gate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let other = match *request.method() {
        Method::PUT => Some("GET,HEAD"),
        Method::GET | Method::HEAD => Some("PUT"),
        _ => None,
    };
    let other = other.filter(|_| request.uri().path().contains("/handlers/"));
    // Before the check, so that a change during it is noticed.
    let changes = app.grants.changes();
    let mut response = match app.access.check(&request, &app.grants) {
        // The operator keeps half of the streams.
        Ok(Caller::Tenant(_))
            if matches!(request.uri().path(), "/v1/trace" | "/v1/capture")
                && app.streams.available_permits() <= app.limits.streams / 2 =>
        {
            let problem = Problem::new(Code::Busy, "as many traces and captures run as tenants may have");
            Failure(problem.help("end one of them, or try again in a moment")).into_response()
        }
        Ok(caller) => match app.seats.check(&caller, &request) {
            Ok(()) => {
                logged::came_from(&app.access, &caller);
                let standing = Standing::of(&request, &caller, &app, changes);
                request.extensions_mut().insert(standing);
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(problem) => {
                let mut response = Failure(problem).into_response();
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                response
            }
        },
        Err(problem) => Failure(problem).into_response(),
    };
    // A handler that exists takes the other method (RFC 9110, section 15.5.6, asks for this header). For other paths
    // the router adds it.
    if let Some(other) = other.filter(|_| response.status() == StatusCode::METHOD_NOT_ALLOWED) {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(other));
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
