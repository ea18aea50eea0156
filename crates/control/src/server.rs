//! The listener: one thread that answers HTTP requests on a Unix socket and on a TCP port.
//!
//! It holds no thread while a worker or the director works: each request is posted as a [task](crate::Task) and
//! answered later. Connections, bodies, streams and times are [bounded](Limits).

mod access;
mod answer;
mod calls;
mod changes;
mod connection;
mod live;
mod logged;
mod observe;
mod openapi;
mod request;
mod resources;
mod rules;
mod socket;
mod tenants;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};

use crate::{Events, Tasks, log};
use access::Access;
pub use access::Tokens;
use answer::App;
pub use openapi::document;
pub use socket::{ListenError, remove_dead_socket};
pub use tenants::{Grant, Grants};

/// Where a dataplane listens.
#[derive(Clone, Debug, Default)]
pub struct ListenConfig {
    /// The path of the Unix socket. Its file permissions say who may connect; who may connect may do everything.
    pub unix: Option<PathBuf>,
    /// Whether requests on the Unix socket may only read.
    pub unix_read_only: bool,
    /// The address and port for TCP, with its tokens.
    ///
    /// Without a token it must be a loopback address that is [open](Tokens::open), and requests may only read.
    pub tcp: Option<(SocketAddr, Tokens)>,
    /// The credentials of tenants, who see what is theirs alone.
    pub grants: Grants,
    /// Bounds on what clients may take.
    pub limits: Limits,
}

/// Bounds on what all clients together may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; further ones are answered 503 and closed.
    pub connections: usize,
    /// Connections at once over TCP, so that some are left for the Unix socket.
    pub tcp_connections: usize,
    /// Connections at once of one tenant; further ones are answered 503.
    pub tenant_connections: usize,
    /// Connections that the operator alone can have, as root or as the user of this process on the Unix socket.
    ///
    /// It is an eighth of all at most.
    pub operator_connections: usize,
    /// Streams of events and counters at once.
    pub streams: usize,
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a body with a whole file: of `plan`, `apply`, and a handler's value as plain text.
    pub file: usize,
    /// Bytes of all bodies and files of the operator's in memory at once.
    pub memory: usize,
    /// Bytes of a tenant's body.
    pub tenant_body: usize,
    /// Bytes of all tenants' bodies in memory at once, beside those of the operator.
    ///
    /// Each tenant has an eighth at most.
    pub tenant_memory: usize,
    /// The time in which a request's head must arrive; an idle connection is closed after it too.
    pub head: Duration,
    /// The time in which a request's body must arrive.
    pub upload: Duration,
    /// The time in which the director must answer a request that changes nothing.
    pub answer: Duration,
    /// The time in which the director must answer a change.
    pub change: Duration,
    /// The time after which a client that does not read is cut off.
    pub unread: Duration,
    /// The time between two signs of life on a stream.
    pub alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            tcp_connections: 48,
            tenant_connections: 8,
            operator_connections: 8,
            streams: 32,
            body: 1 << 20,
            file: 64 << 20,
            memory: 256 << 20,
            tenant_body: 1 << 20,
            tenant_memory: 64 << 20,
            head: Duration::from_secs(10),
            upload: Duration::from_secs(10),
            answer: Duration::from_secs(10),
            change: Duration::from_secs(60),
            unread: Duration::from_secs(10),
            alive: Duration::from_secs(15),
        }
    }
}

/// The time that requests have to end by themselves when the listener ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// The running listener. Dropping it ends its thread and removes its socket.
#[derive(Debug)]
pub struct Listener {
    ending: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    unix: Option<socket::Bound>,
    tcp: Option<SocketAddr>,
}

impl Listener {
    /// Starts to listen, on a thread that runs on these cores only.
    ///
    /// # Errors
    /// When an address is in use, or cannot be opened, or would be open to strangers.
    pub fn start(
        config: ListenConfig,
        tasks: Tasks,
        events: Events,
        cores: Option<Vec<usize>>,
    ) -> Result<Self, ListenError> {
        let limits = Arc::new(config.limits);
        let tcp = match config.tcp {
            None => None,
            Some((address, tokens)) => {
                let access = Access::for_tcp(address, tokens)?;
                Some((socket::bind_tcp(address)?, access))
            }
        };
        let unix = config.unix.map(|path| socket::bind_unix(&path)).transpose()?;
        let (unix, unix_listener) = unix.unzip();
        let tcp_address = tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok());

        let (ending, ends) = watch::channel(false);
        let (wake, woken) = watch::channel(());
        events.on_event(move || wake.send(()).is_ok());
        let app = App {
            tasks,
            events,
            woken,
            ends: ends.clone(),
            memory: Arc::new(Semaphore::new(limits.memory / request::UNIT)),
            tenant_memory: Arc::new(Semaphore::new(limits.tenant_memory / request::UNIT)),
            shares: tenants::Seats::new(limits.tenant_memory / 8 / request::UNIT),
            streams: Arc::new(Semaphore::new(limits.streams)),
            access: Arc::new(Access::Unix { read_only: config.unix_read_only }),
            grants: config.grants,
            seats: tenants::Seats::new(limits.tenant_connections),
            lines: Arc::default(),
            limits,
        };
        let (tell, started) = sync_channel(1);
        let run = move || {
            let prepared = pin(cores.as_deref()).and_then(|()| {
                Builder::new_current_thread().enable_all().build().map_err(ListenError::Thread)
            });
            match prepared {
                Err(error) => {
                    let _asked = tell.send(Err(error));
                }
                Ok(runtime) => {
                    let served = runtime.block_on(serve(app, unix_listener, tcp, ends, &tell));
                    if let Err(error) = served {
                        let _asked = tell.send(Err(error));
                    }
                    runtime.shutdown_background();
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("nb-control".into()).spawn(run).map_err(ListenError::Thread)?;
        match started.recv() {
            Ok(Ok(())) => {
                let path = unix.as_ref().map(|unix| unix.path().display().to_string());
                let tcp = tcp_address.map(|address| address.to_string());
                tracing::info!(target: log::CONTROL, unix = path, tcp, "listens");
                Ok(Self { ending, thread: Some(thread), unix, tcp: tcp_address })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ListenError::Thread(std::io::Error::other("the thread ended at once"))),
        }
    }

    /// The Unix socket.
    pub fn unix(&self) -> Option<&Path> {
        self.unix.as_ref().map(socket::Bound::path)
    }

    /// The address and port for TCP; the port is the one that the kernel chose where 0 was configured.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file goes while this process still listens: another one would replace it afterwards.
        drop(self.unix.take());
        let _ended = self.ending.send(true);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn pin(cores: Option<&[usize]>) -> Result<(), ListenError> {
    cores.map_or(Ok(()), run_on)
}

/// Has this thread run on these cores only.
///
/// # Errors
/// [`ListenError::Cores`] where the kernel refuses.
pub fn run_on(cores: &[usize]) -> Result<(), ListenError> {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        if *core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(ListenError::Cores(cores.to_vec(), std::io::ErrorKind::InvalidInput.into()));
        }
        set.set(*core);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| ListenError::Cores(cores.to_vec(), error.into()))
}

/// Answers requests until the listener ends.
async fn serve(
    app: App,
    unix: Option<std::os::unix::net::UnixListener>,
    tcp: Option<(std::net::TcpListener, Access)>,
    mut ends: watch::Receiver<bool>,
    tell: &std::sync::mpsc::SyncSender<Result<(), ListenError>>,
) -> Result<(), ListenError> {
    let limits = app.limits.clone();
    let all = Arc::new(Semaphore::new(limits.connections));
    let others = limits.connections - limits.operator_connections.min(limits.connections / 8);
    let others = Arc::new(Semaphore::new(others));
    if let Some(listener) = unix {
        let listener = tokio::net::UnixListener::from_std(listener).map_err(ListenError::Thread)?;
        let gate = connection::Gate::new(&app, [&all, &others], None);
        tokio::spawn(connection::accept_unix(listener, gate));
    }
    if let Some((listener, access)) = tcp {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(ListenError::Thread)?;
        let app = App { access: Arc::new(access), ..app.clone() };
        let some = Arc::new(Semaphore::new(limits.tcp_connections.min(limits.connections)));
        let gate = connection::Gate::new(&app, [&all, &others], Some(some));
        tokio::spawn(connection::accept_tcp(listener, gate));
    }
    let _asked = tell.send(Ok(()));
    // An error means that the listener was dropped without a word.
    let _ended = ends.wait_for(|ends| *ends).await;
    let everyone = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _late = tokio::time::timeout(FAREWELL, all.acquire_many(everyone)).await;
    Ok(())
}
