//! One request and its answer, over one connection.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::address::{Address, listening};
use super::upload::Upload;
use crate::api::{self, Code, Problem};

/// The time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The time for the head of an answer: longer than the server takes for any change.
const ANSWER: Duration = Duration::from_secs(120);
/// The time for each further piece; the server sends one every 15 s even if there is nothing to say.
const PIECE: Duration = Duration::from_secs(60);
/// The most bytes of an answer that is read whole.
const MOST: usize = 512 << 20;

/// An answer whose body has still to be read. Dropping it ends the connection.
pub(super) struct Exchange {
    // Dropped before the runtime that drives its connection.
    body: Incoming,
    pub(super) headers: HeaderMap,
    runtime: Runtime,
}

impl Exchange {
    /// Sends a request and waits for the head of its answer.
    pub(super) fn begin(address: &Address, mut request: Request<Upload>) -> Result<Self, Problem> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Problem::new(Code::Machine, format!("cannot wait for sockets: {error}")))?;
        let host = match address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp { address, .. } => address.to_string(),
        };
        let mut headers = vec![(header::HOST, host)];
        if let Address::Tcp { token: Some(token), .. } = address {
            headers.push((header::AUTHORIZATION, format!("Bearer {token}")));
        }
        for (name, value) in headers {
            let value = value.parse().map_err(|_| {
                Problem::new(Code::BadRequest, "the token has characters that HTTP does not allow")
            })?;
            request.headers_mut().insert(name, value);
        }
        Upload::expect(&mut request);
        let response = runtime.block_on(async {
            match address {
                Address::Unix(path) => {
                    let stream = within(CONNECT, UnixStream::connect(path)).await;
                    send(stream.map_err(|error| no_socket(path, &error))?, request).await
                }
                Address::Tcp { address: place, .. } => {
                    let stream = within(CONNECT, TcpStream::connect(place)).await;
                    send(stream.map_err(|error| no_port(address, &error))?, request).await
                }
            }
        })?;
        let (head, body) = response.into_parts();
        let mut exchange = Self { body, headers: head.headers, runtime };
        if head.status.is_success() {
            return Ok(exchange);
        }
        let body = exchange.whole()?;
        Err(api::read(&body).unwrap_or_else(|_| {
            Problem::new(Code::Internal, format!("{address} answered `{}`", head.status))
                .help("is it a dataplane of this version?")
        }))
    }

    /// The next piece of the body; none at its end.
    pub(super) fn piece(&mut self) -> Option<Result<Bytes, Problem>> {
        loop {
            let frame = self.runtime.block_on(async { timeout(PIECE, self.body.frame()).await });
            return Some(match frame {
                Err(_) => Err(Problem::new(
                    Code::Timeout,
                    format!("the dataplane sent nothing for {} s", PIECE.as_secs()),
                )),
                Ok(None) => return None,
                Ok(Some(Err(error))) => Err(cut(&error)),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => Ok(data),
                    _ => continue,
                },
            });
        }
    }

    /// The whole body.
    pub(super) fn whole(&mut self) -> Result<Vec<u8>, Problem> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece() {
            whole.extend_from_slice(&piece?);
            if whole.len() > MOST {
                return Err(Problem::new(Code::TooLarge, format!("the answer has more than {MOST} bytes")));
            }
        }
        Ok(whole)
    }
}

async fn within<T>(
    time: Duration,
    operation: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    timeout(time, operation).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Upload>,
) -> Result<Response<Incoming>, Problem> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| cut(&error))?;
    tokio::spawn(connection);
    match timeout(ANSWER, sender.send_request(request)).await {
        Ok(answer) => answer.map_err(|error| cut(&error)),
        Err(_) => Err(Problem::new(
            Code::Timeout,
            format!("the dataplane did not answer within {} s", ANSWER.as_secs()),
        )
        .help("a change may have happened all the same: see the status")),
    }
}

fn cut(error: &hyper::Error) -> Problem {
    let mut reason = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(deeper) = source {
        reason = format!("{reason}: {deeper}");
        source = deeper.source();
    }
    Problem::new(Code::Unreachable, format!("the connection to the dataplane broke: {reason}"))
        .help("it may have ended: see its own output")
}

/// Why nothing answers on a socket, and which sockets beside it do.
fn no_socket(path: &Path, error: &std::io::Error) -> Problem {
    let shown = path.display();
    let problem = match error.kind() {
        ErrorKind::NotFound => Problem::new(Code::Unreachable, format!("there is no socket `{shown}`")),
        ErrorKind::ConnectionRefused => Problem::new(
            Code::Unreachable,
            format!("no process listens on `{shown}`: it is left from one that ended"),
        ),
        ErrorKind::PermissionDenied => {
            return Problem::new(Code::Forbidden, format!("this user may not open `{shown}`"))
                .help("become a member of the socket's group, or use sudo");
        }
        _ => Problem::new(Code::Unreachable, format!("cannot connect to `{shown}`: {error}")),
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    let others = listening(directory);
    if others.is_empty() {
        return problem.help("is it running? start it with `netbricks run FILE`");
    }
    let others: Vec<String> = others.iter().map(|other| other.display().to_string()).collect();
    problem.help(format!("is it running? sockets in the same directory: {}", others.join(", ")))
}

fn no_port(address: &Address, error: &std::io::Error) -> Problem {
    Problem::new(Code::Unreachable, format!("cannot connect to {address}: {error}"))
        .help("is it running, with `[control]` listening on TCP?")
}
