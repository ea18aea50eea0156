//! The thread of a vhost-user port, which finds front ends and serves their requests.

use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::Shared;
use super::device::Device;
use super::ring::Fault;
use crate::peer::bells::Bells;
use crate::peer::listener::{Listener, address, socket};
use crate::peer::wait;
use crate::seat::lock;

/// Time between two attempts to find the front end, and after one that went away.
const RETRY: Duration = Duration::from_millis(100);
/// The longest wait for a request before the thread looks whether the port is closed.
const LOOK: Duration = Duration::from_millis(250);
/// Further peers that are refused before the thread looks after its own again.
const MOST_REFUSED: usize = 16;

/// The end of a connection, or of the attempt to make one.
#[derive(Debug)]
enum Trouble {
    /// The port is closed.
    Stopped,
    /// There is no peer now, which is no fault.
    Absent,
    /// A fault, to show.
    Fault(String),
}

impl Trouble {
    fn failed(action: &str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Fault(format!("{action}: {error}"))
    }
}

/// Runs until the port is closed.
pub(super) fn run(shared: &Arc<Shared>, listener: Option<&Listener>) {
    loop {
        // A panic counts as a fault of the connection: it is shown, and the next peer is served.
        let ended = catch_unwind(AssertUnwindSafe(|| next_connection(shared, listener)))
            .unwrap_or_else(|_| Trouble::Fault("a panic in the port's thread".into()));
        // Before the port is seen to be down.
        if let Trouble::Fault(text) = &ended {
            *lock(&shared.trouble) = Some(text.clone());
        }
        shared.detach();
        if matches!(ended, Trouble::Stopped) || shared.is_stopped() {
            return;
        }
        // A peer that fails again and again does not keep the thread busy.
        if wait([shared.wake.as_fd()], RETRY) == [true] {
            shared.hear();
        }
    }
}

/// Waits for a front end.
fn accept(shared: &Shared, listener: &Listener) -> Result<OwnedFd, Trouble> {
    loop {
        if shared.is_stopped() {
            return Err(Trouble::Stopped);
        }
        // The library waits for each message, so the socket may block.
        if let Some(peer) = listener.accept(SocketFlags::empty()) {
            return Ok(peer);
        }
        if let [_, true] = wait([listener.as_fd(), shared.wake.as_fd()], LOOK) {
            shared.hear();
        }
    }
}

/// Connects to a front end that listens.
fn connect(shared: &Shared) -> Result<OwnedFd, Trouble> {
    let path = &shared.path;
    let socket = socket(SocketType::STREAM).map_err(Trouble::failed("making a socket"))?;
    let address = address(path).map_err(Trouble::failed("its path"))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN) => Err(Trouble::Absent),
        Err(Errno::PROTOTYPE) => Err(Trouble::Fault(format!(
            "connecting to {}: the socket there is of another type than vhost-user's (SOCK_STREAM)",
            path.display()
        ))),
        Err(error) => Err(Trouble::Fault(format!("connecting to {}: {error}", path.display()))),
    }
}

/// Serves one front end. Answers how that ended.
fn next_connection(shared: &Arc<Shared>, listener: Option<&Listener>) -> Trouble {
    let found = match listener {
        Some(listener) => accept(shared, listener),
        None => connect(shared),
    };
    match found.and_then(|peer| serve(shared, UnixStream::from(peer), listener)) {
        Ok(ended) => ended,
        Err(trouble) => trouble,
    }
}

fn serve(shared: &Arc<Shared>, stream: UnixStream, listener: Option<&Listener>) -> Result<Trouble, Trouble> {
    let failed = Trouble::failed("preparing a connection");
    stream.set_nonblocking(false).map_err(&failed)?;
    // A front end that stops in the middle of a message holds the thread up. The end of the port, and a lie that a
    // worker found, shut the connection down.
    let fault = Arc::new(Fault::new(stream.try_clone().map_err(&failed)?));
    if !shared.connect(stream.try_clone().map_err(&failed)?) {
        return Err(Trouble::Stopped);
    }
    let bells = shared.places.iter().map(|_| None).collect();
    let bells = Bells::start(&shared.name, bells, &shared.writers).map_err(&failed)?;
    let device = Device::new(Arc::clone(shared), Arc::clone(&fault), bells);
    let device = Arc::new(Mutex::new(device));
    let mut requests = BackendReqHandler::from_stream(stream.try_clone().map_err(&failed)?, device);
    let ended = loop {
        if shared.is_stopped() {
            break Trouble::Stopped;
        }
        if let Some(lie) = fault.get() {
            break Trouble::Fault(lie.text().into());
        }
        let listening = listener.map_or_else(|| stream.as_fd(), AsFd::as_fd);
        let [asked, others, woken] = wait([stream.as_fd(), listening, shared.wake.as_fd()], LOOK);
        if woken {
            shared.hear();
        }
        if let Some(listener) = listener.filter(|_| others) {
            // One peer at a time: others see their connections end, and may come again.
            std::iter::from_fn(|| listener.accept(SocketFlags::empty())).take(MOST_REFUSED).for_each(drop);
        }
        if asked && let Err(error) = requests.handle_request() {
            break match fault.get() {
                Some(lie) => Trouble::Fault(lie.text().into()),
                None if shared.is_stopped() => Trouble::Stopped,
                None => trouble(error),
            };
        }
    };
    // The copies that workers may still have of it end as well.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(ended)
}

/// The end of a connection by an error of the protocol.
fn trouble(error: Error) -> Trouble {
    match error {
        Error::Disconnected | Error::SocketBroken(_) => Trouble::Absent,
        Error::ReqHandlerError(error) => Trouble::Fault(error.to_string()),
        error => Trouble::Fault(format!("a request of the peer cannot be served: {error}")),
    }
}

impl Shared {
    /// Notes the connection, which the end of the port shuts down. `false` if the port has ended.
    fn connect(&self, stream: UnixStream) -> bool {
        *lock(&self.current) = Some(stream);
        !self.is_stopped()
    }
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
    /// Takes note of a wake-up.
    fn hear(&self) {
        // It can only fail because it was heard already.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }
    /// Says whether packets can flow, and whether that is so for the first time with this peer.
    pub(super) fn set_up(&self, up: bool, first: bool) {
        if first {
            *lock(&self.trouble) = None;
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
        self.is_up.store(up, Ordering::Release);
    }
    /// Takes all virtqueues back.
    pub(super) fn clear(&self) {
        for place in &self.places {
            drop(place.change(Option::take));
            // It can only fail because nothing is watched.
            let _ = place.kick.watch(None);
        }
    }
    /// Ends what belongs to a peer that has gone.
    fn detach(&self) {
        self.clear();
        *lock(&self.current) = None;
        self.writers.stop();
        self.is_up.store(false, Ordering::Release);
    }
}
