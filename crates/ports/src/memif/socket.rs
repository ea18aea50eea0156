//! The control channel: messages with descriptors over a Unix socket that keeps datagrams apart.

use std::fs::Permissions;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::message::{LEN, Message, text};

/// Peers that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Time until the next attempt to accept a peer, where the system lacks what that takes.
const PAUSE: Duration = Duration::from_millis(10);
/// The most bytes of a socket's path (unix(7)).
pub(super) const LONGEST_PATH: usize = 107;

/// The end of a connection, or of the attempt to make one.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The port is closed.
    Stopped,
    /// There is no peer now, which is no fault.
    Absent,
    /// A fault, to show.
    Fault(String),
}

impl Trouble {
    pub(super) fn fault(text: impl Into<String>) -> Self {
        Self::Fault(text.into())
    }
    /// A failed action of this process.
    pub(super) fn failed(action: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Fault(format!("{action}: {error}"))
    }
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket that listens. Its file goes away with it, if it is still this socket's.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    file: (u64, u64),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens at a path, for peers of the same user. The socket of a process that was killed is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let address = address(path)?;
        remove_stale(path, &address)?;
        let socket = socket()?;
        rustix::net::bind(&socket, &address)?;
        // No peer can connect before `listen`, so none connects before the mode is right.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let file = std::fs::symlink_metadata(path)?;
        let listener = Self { socket, path: path.to_owned(), file: (file.dev(), file.ino()) };
        rustix::net::listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// The next peer, if one waits.
    pub(super) fn accept(&self) -> Option<Channel> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.socket, flags) {
            Ok(socket) => Some(Channel(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
            Err(_) => {
                // Such as no descriptor left: the peer goes on waiting, and the socket stays readable.
                std::thread::sleep(PAUSE);
                None
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "a file that is no socket is there: remove it, or choose another path",
            ));
        }
        Ok(_) => {}
    }
    match rustix::net::connect(socket()?, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another port or process listens there: give each port a path of its own",
        )),
        Err(error) => Err(error.into()),
    }
}

/// A connected socket.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A message, and the descriptor that came with it.
pub(super) type Received = (Message, Option<OwnedFd>);

impl Channel {
    /// Connects to a listening socket.
    pub(super) fn connect(path: &Path) -> Result<Self, Trouble> {
        let socket = socket().map_err(Trouble::failed("making a socket"))?;
        let address = address(path).map_err(Trouble::failed("its path"))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Self(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN) => Err(Trouble::Absent),
            Err(Errno::PROTOTYPE) => Err(Trouble::fault(format!(
                "connecting to {}: the socket there is of another type than memif's (SOCK_SEQPACKET)",
                path.display()
            ))),
            Err(error) => Err(Trouble::fault(format!("connecting to {}: {error}", path.display()))),
        }
    }

    /// Sends a message, which must not wait: a peer reads each message before the next one.
    pub(super) fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), Trouble> {
        let bytes = message.encode();
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Trouble::Absent),
            Err(error) => Err(Trouble::fault(format!("sending {}: {error}", message.type_name()))),
        }
    }

    /// Ends the connection for a reason.
    pub(super) fn refuse(&self, reason: &str) {
        // The peer may have gone already.
        let _ = self.send(&Message::disconnect(reason), None);
    }

    /// Receives a message that is there. `None` if none is.
    pub(super) fn receive(&self) -> Result<Option<Received>, Trouble> {
        let mut bytes = [0; LEN];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(Trouble::Absent),
            Err(error) => return Err(Trouble::fault(format!("receiving a message: {error}"))),
        };
        // The kernel closes descriptors for which there is no room; there may be room for some more than one.
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        if received.bytes == 0 {
            return Err(Trouble::Absent);
        }
        if files.len() > 1 || received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(Trouble::fault(
                "the peer's message is longer than 128 bytes, or has several descriptors",
            ));
        }
        let message = Message::parse(&bytes[..received.bytes])
            .map_err(|error| Trouble::fault(format!("the peer's message is not understood: {error}")))?;
        if let Message::Disconnect { reason, .. } = &message {
            let reason = text(reason);
            let reason =
                if reason.is_empty() { "without a reason".to_owned() } else { format!("{reason:?}") };
            return Err(Trouble::fault(format!("the peer ended the connection: {reason}")));
        }
        Ok(Some((message, files.pop())))
    }
}

/// Waits until a file or `wake` is readable, or for `time`. Answers which of the files are.
pub(super) fn wait<const N: usize>(files: [BorrowedFd<'_>; N], time: Duration) -> [bool; N] {
    let mut watched = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let time = Timespec::try_from(time).ok();
    // After a signal no file counts as readable, and the caller looks again.
    let _ = poll(&mut watched, time.as_ref());
    watched.map(|file| !file.revents().is_empty())
}

/// The time until a moment.
pub(super) fn until(moment: Instant) -> Duration {
    moment.saturating_duration_since(Instant::now())
}
