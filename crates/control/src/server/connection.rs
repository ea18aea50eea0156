//! Connections: how many there may be, and how long each may wait for its client.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};

use super::Limits;
use super::answer::{App, PROBLEM, ProblemDocument, ended};
use super::resources::router;
use super::tenants::{Caller, Grants, Peer, Seat, Seats};
use crate::api::{Code, Problem};

/// The most bytes of a request's head, and of a response that waits for the socket.
const BUFFER: usize = 64 << 10;
/// The time that a connection has to ask before it is refused.
const REFUSAL: Duration = Duration::from_millis(500);
/// The wait after an error of `accept`, such as for want of file descriptors.
const RECOVERY: Duration = Duration::from_millis(100);

/// The gate that lets connections in.
#[derive(Clone)]
pub(super) struct Gate {
    router: Router,
    limits: Arc<Limits>,
    ends: watch::Receiver<bool>,
    grants: Grants,
    seats: Seats,
    /// Connections that may still come.
    all: Arc<Semaphore>,
    /// Those of others than the operator.
    others: Arc<Semaphore>,
    /// Those that may still come over this socket.
    some: Option<Arc<Semaphore>>,
    /// Connections that may still be refused in words.
    refusals: Arc<Semaphore>,
    /// The response to those that may not come in.
    full: Arc<[u8]>,
}

type Permits = Vec<OwnedSemaphorePermit>;

impl Gate {
    /// A gate for so many connections of all, and of others than the operator.
    pub(super) fn new(app: &App, [all, others]: [&Arc<Semaphore>; 2], some: Option<Arc<Semaphore>>) -> Self {
        let problem = Problem::new(Code::Busy, "there are as many connections already as you may have")
            .help(format!("try again in a moment; all together have {}", app.limits.connections));
        let body = serde_json::to_string(&ProblemDocument::from(problem)).unwrap_or_default();
        let full = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM}\r\nretry-after: 1\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self {
            router: router(app.clone()),
            limits: app.limits.clone(),
            ends: app.ends.clone(),
            grants: app.grants.clone(),
            seats: app.seats.clone(),
            all: all.clone(),
            others: others.clone(),
            some,
            refusals: Arc::new(Semaphore::new(app.limits.connections)),
            full: full.into_bytes().into(),
        }
    }

    /// Lets a connection in that has a user where it comes over the Unix socket.
    fn enter(&self, peer: Peer) -> Option<(Permits, Seat)> {
        let is_unix = self.some.is_none();
        let trusts = is_unix && (peer.is_operator() || self.grants.trusts_others());
        let semaphores = [Some(&self.all), self.some.as_ref(), Some(&self.others).filter(|_| !trusts)];
        let permits: Option<Permits> =
            semaphores.into_iter().flatten().map(|some| some.clone().try_acquire_owned().ok()).collect();
        let permits = permits?;
        let seat = match peer.0.filter(|_| !trusts) {
            Some(user) => match self.grants.of_user(user) {
                Some(Caller::Tenant(tenant)) => self.seats.take(&tenant)?,
                // A name that no tenant has.
                _ => self.seats.take(&format!("user {user}"))?,
            },
            None => Seat::default(),
        };
        Some((permits, seat))
    }

    /// Answers a connection, or refuses it where there are too many, or closes it where too many are refused.
    fn admit(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        if let Some((permits, seat)) = self.enter(peer) {
            tokio::spawn(serve(stream, self.clone(), permits, (peer, seat)));
        } else if let Ok(permit) = self.refusals.clone().try_acquire_owned() {
            tokio::spawn(refuse(stream, self.full.clone(), permit));
        }
    }
}

pub(super) async fn accept_unix(listener: UnixListener, mut gate: Gate) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut gate.ends) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map(|credentials| credentials.uid());
                gate.admit(stream, Peer(user.ok()));
            }
            Err(_) => sleep(RECOVERY).await,
        }
    }
}

pub(super) async fn accept_tcp(listener: TcpListener, mut gate: Gate) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut gate.ends) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let _slower = stream.set_nodelay(true);
                gate.admit(stream, Peer(None));
            }
            Err(_) => sleep(RECOVERY).await,
        }
    }
}

/// Says that there are too many connections.
///
/// The request is read first, as far as it comes at once. Clients do not expect an answer before they have asked.
/// A socket that is closed with bytes unread may also break off its answer.
async fn refuse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    full: Arc<[u8]>,
    permit: OwnedSemaphorePermit,
) {
    let answer = async {
        let _asked = stream.read(&mut [0; 4_096]).await;
        let _gone = stream.write_all(&full).await;
    };
    let _late = timeout(REFUSAL, answer).await;
    drop(permit);
}

/// Answers the requests of one connection.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut gate: Gate,
    permits: Permits,
    (peer, seat): (Peer, Seat),
) {
    let io = TokioIo::new(Impatient { stream, limit: gate.limits.unread, waits: None });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(gate.limits.head).max_buf_size(BUFFER);
    let router = gate.router.clone().layer(axum::Extension(peer)).layer(axum::Extension(seat));
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder.serve_connection(io, service));
    // A client's fault ends its connection and is nobody else's concern.
    tokio::select! {
        _ = connection.as_mut() => return drop(permits),
        () = ended(&mut gate.ends) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _fault = connection.await;
    drop(permits);
}

/// A socket whose writes fail where the other side does not read for too long.
struct Impatient<S> {
    stream: S,
    limit: Duration,
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn within<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waits = None;
            return result;
        }
        let limit = self.limit;
        ready!(self.waits.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, result)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.within(context, result)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
