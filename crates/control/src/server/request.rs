//! Reading requests: parameters, `If-Match`, and bodies within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use utoipa::IntoParams;

use super::answer::{App, Failure};
use super::tenants::Caller;
use crate::api::{self, Code, Problem, Source};

/// Memory is counted in units of this many bytes.
pub(super) const UNIT: usize = 1_024;

/// The parameters of a request. A name that is not known is refused.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Query(parameters) = Query::from_request_parts(parts, state).await.map_err(|error| {
            Problem::new(Code::BadRequest, format!("the parameters do not fit: {}", error.body_text()))
        })?;
        Ok(Self(parameters))
    }
}

/// The names in a request's path.
pub(super) struct Names<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(names) = Path::from_request_parts(parts, state).await.map_err(|error| {
            Problem::new(Code::BadRequest, format!("the path does not fit: {}", error.body_text()))
        })?;
        Ok(Self(names))
    }
}

/// The generation that the request expects, by `If-Match`.
pub(super) struct Expected(pub(super) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for Expected {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self(if_match(&parts.headers)?))
    }
}

/// Headers of a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes what `Expected` reads")]
pub(super) struct IfMatch {
    /// The generation that must still be the current one, as an `ETag` gives it.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}

fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return match headers.contains_key(header::IF_MATCH) {
            false => Ok(None),
            true => Err(Problem::new(Code::BadRequest, "there is more than one `If-Match`")),
        };
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    number.parse().map(Some).map_err(|_| {
        Problem::new(
            Code::BadRequest,
            format!("`If-Match` is `{text}`: expected a generation, such as `\"7\"`"),
        )
        .help("take it from the `ETag` of an answer")
    })
}

/// A parameter that is true where it stands without a value.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        other => Err(serde::de::Error::custom(format_args!("`{other}`: expected `true` or `false`"))),
    }
}

/// A time that a parameter gives, within bounds.
pub(super) fn seconds(name: &str, value: f64, least: f64, most: f64) -> Result<Duration, Problem> {
    if (least..=most).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(Problem::new(Code::BadRequest, format!("`{name}` is {value} s: expected {least} s to {most} s")))
}

/// Memory that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    /// The pools that it counts in: a tenant's own, and that of all tenants.
    pools: Vec<Arc<Semaphore>>,
    taken: Vec<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Memory {
    /// The memory of the operator, of which tenants take none.
    pub(super) fn new(app: &App) -> Self {
        Self { pools: vec![app.memory.clone()], taken: Vec::new(), bytes: 0 }
    }

    /// The memory of the one who asks.
    pub(super) fn of(app: &App, caller: &Caller) -> Self {
        match caller {
            Caller::Operator => Self::new(app),
            Caller::Tenant(tenant) => {
                let pools = vec![app.shares.of(tenant), app.tenant_memory.clone()];
                Self { pools, taken: Vec::new(), bytes: 0 }
            }
        }
    }

    /// Counts `bytes` in all. Never waits: two bodies that wait for each other's memory would never end.
    pub(super) fn reach(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes.div_ceil(UNIT).saturating_sub(self.bytes.div_ceil(UNIT));
        let units = u32::try_from(more).unwrap_or(u32::MAX);
        let taken = self.pools.iter().map(|pool| pool.clone().try_acquire_many_owned(units));
        let taken: Result<Vec<_>, TryAcquireError> = taken.collect();
        let busy = |_| {
            Problem::new(Code::Busy, "other requests take all memory that there is for bodies")
                .help("try again in a moment")
        };
        self.taken.extend(taken.map_err(busy)?);
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

/// A request's body, and the memory that it takes.
pub(super) struct Upload {
    pub(super) bytes: Vec<u8>,
    pub(super) memory: Memory,
}

/// Reads a body of at most `most` bytes; a tenant's has its own bound, too.
///
/// Memory is counted as bytes arrive: what a client announces and does not send takes none.
pub(super) async fn upload(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Upload, Problem> {
    let most = match caller {
        Caller::Operator => most,
        Caller::Tenant(_) => most.min(app.limits.tenant_body),
    };
    let too_large =
        || Problem::new(Code::TooLarge, format!("the body is too large: at most {most} bytes are read"));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut memory = Memory::of(app, caller);
    let mut bytes: Vec<u8> = Vec::new();
    if length.is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    let mut body = body;
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Problem::new(Code::BadRequest, format!("the body did not arrive whole: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > most - bytes.len() {
                return Err(too_large());
            }
            if data.len() > bytes.capacity() - bytes.len() {
                // It grows to twice what is in it, and not beyond what may come.
                let rest = length.unwrap_or(most).saturating_sub(bytes.len());
                let more = bytes.len().min(rest).max(data.len());
                // A text that is taken out of JSON is a copy.
                memory.reach(2 * (bytes.len() + more))?;
                bytes.reserve_exact(more);
            }
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    let time = app.limits.upload;
    match tokio::time::timeout(time, read).await {
        Ok(result) => result?,
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", time.as_secs_f64());
            return Err(Problem::new(Code::BadRequest, detail));
        }
    }
    Ok(Upload { bytes, memory })
}

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Text,
}

/// The form of a body, by its `Content-Type`.
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Problem> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(Form::Json) };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(Form::Json),
        "application/toml" | "text/plain" | "application/octet-stream" => Ok(Form::Text),
        _ => Err(Problem::new(Code::BadRequest, format!("the `Content-Type` of the body is `{kind}`"))
            .help("expected `application/json`, or `text/plain` for the text itself")),
    }
}

/// A body that is text itself.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::new(Code::BadRequest, format!("the body is no UTF-8: byte {at} is wrong"))
    })
}

/// A file in a body, with the name and directory from the parameters where it is not JSON.
pub(super) fn source(
    form: Form,
    bytes: Vec<u8>,
    name: Option<String>,
    directory: Option<String>,
) -> Result<Source, Problem> {
    let mut source = match form {
        Form::Json => api::read(&bytes)?,
        Form::Text => Source { text: text(bytes)?, name: "request".into(), directory: "/".into() },
    };
    if let Some(name) = name {
        source.name = name;
    }
    if let Some(directory) = directory {
        source.directory = directory;
    }
    if !source.directory.starts_with('/') {
        return Err(Problem::new(
            Code::BadRequest,
            format!("`directory` is `{}`: expected an absolute path", source.directory),
        ));
    }
    Ok(source)
}

/// Bytes of a response, which count their memory until they are sent.
struct Counted {
    bytes: Vec<u8>,
    _memory: Memory,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A response's body that counts its memory until it is sent.
pub(super) fn counted(bytes: Vec<u8>, memory: Memory) -> Body {
    Body::from(Bytes::from_owner(Counted { bytes, _memory: memory }))
}
