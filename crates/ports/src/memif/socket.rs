//! The control channel: messages with descriptors over a Unix socket that keeps datagrams apart.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::message::{LEN, Message, text};
use crate::peer::listener::{self, address, socket};
use crate::port::PortError;

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

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener(listener::Listener);

impl Listener {
    /// As [`listener::Listener::open`].
    pub(super) fn open(port: &str, path: &Path) -> Result<Self, PortError> {
        listener::Listener::open(port, path, SocketType::SEQPACKET).map(Self)
    }

    /// The next peer, if one waits.
    pub(super) fn accept(&self) -> Option<Channel> {
        self.0.accept(SocketFlags::NONBLOCK).map(Channel)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        let socket = socket(SocketType::SEQPACKET).map_err(Trouble::failed("making a socket"))?;
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

/// The time until a moment.
pub(super) fn until(moment: Instant) -> Duration {
    moment.saturating_duration_since(Instant::now())
}
