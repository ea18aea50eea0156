//! Sockets that listen for clients, by TCP or at a path, and connections to them.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::arguments::{Arguments, Parsed, Problem};
use crate::command::system_message;
use crate::language::errors::Errors;
use crate::names::Named;
use crate::router::At;
use crate::value::{SECOND, Word, integer};

/// The length of a Unix socket's path that the system takes (bytes).
const MOST_PATH: usize = 107;
/// Ports that are tried behind the one that is asked for, where the configuration says `PORT+`.
const MORE_PORTS: u16 = 11;

/// A TCP or UDP port by number or name.
pub(super) fn port(text: &str, at: At<'_>, kind: Named) -> Parsed<u16> {
    if let Some(number) = integer(text) {
        return u16::try_from(number).map_err(|_| Problem::Said("overflow, range 0-65535".into()));
    }
    match at.names().find(at, kind, text).as_deref() {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => crate::names::port(text).ok_or(Problem::Syntax),
    }
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A port, or one of the next where it is taken and `more` says so.
    Tcp { port: u16, more: bool, localhost: bool },
    /// A path.
    Unix(String),
}

impl Place {
    /// Reads TYPE, and PORT or FILENAME. An error was told where there is none.
    pub(super) fn read(arguments: &mut Arguments<'_>, localhost: bool, more_allowed: bool) -> Option<Self> {
        let kind: String = arguments.required("TYPE")?;
        match kind.to_ascii_uppercase().as_str() {
            "TCP" => {
                let Word(word) = arguments.required("PORT")?;
                if let Ok(port) = port(&word, arguments.at(), Named::TcpPort) {
                    return Some(Self::Tcp { port, more: false, localhost });
                }
                let number = word.strip_suffix('+').filter(|_| more_allowed).and_then(integer);
                match number.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
                    Some(port) => Some(Self::Tcp { port, more: true, localhost }),
                    None => {
                        arguments.error("PORT requires TCP port");
                        None
                    }
                }
            }
            "UNIX" => {
                let path: String = arguments.required("FILENAME")?;
                if path.len() > MOST_PATH {
                    arguments.error("filename too long");
                    return None;
                }
                Some(Self::Unix(path))
            }
            _ => {
                arguments.error(&format!("unknown socket type '{kind}'"));
                None
            }
        }
    }

    /// The port, or the path.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Tcp { port, more, .. } => format!("{port}{}", if *more { "+" } else { "" }),
            Self::Unix(path) => path.clone(),
        }
    }

    /// Whether a socket that listens here can stand for one that is to listen there.
    pub(super) fn stands_for(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp { port, .. }, Self::Tcp { port: other, more, .. }) => *more || port == other,
            (one, other) => one == other,
        }
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that listens.
pub(super) struct Listener {
    socket: Socket,
    /// Where: a port that was found stands for `PORT+`.
    pub(super) place: Place,
}

/// A client, and its address as messages have it.
pub(super) struct Accepted {
    pub(super) stream: OwnedFd,
    pub(super) number: i32,
    pub(super) from: String,
}

/// `RETRIES` and `RETRY_WARNINGS`: a place that is taken is tried again each second.
pub(super) struct Retries {
    left: Cell<i32>,
    warns: bool,
}

impl Retries {
    /// Reads the two keywords.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Self {
        let left = Cell::new(arguments.keyword("RETRIES").unwrap_or(0));
        Self { left, warns: arguments.keyword("RETRY_WARNINGS").unwrap_or(true) }
    }

    /// Begins to listen, and has the element be told of clients.
    ///
    /// `Ok(None)` where the element's timer 0 tries again later.
    ///
    /// # Errors
    /// After the last try, which is told.
    pub(super) fn listen(
        &self,
        place: &Place,
        at: At<'_>,
        number: usize,
        errors: &Errors,
    ) -> Result<Option<Listener>, ()> {
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        match Listener::open(place) {
            Ok(listener) => {
                listener.watch(at, number);
                Ok(Some(listener))
            }
            Err(message) if left < 0 => {
                errors.error(&message);
                Err(())
            }
            Err(message) => {
                if self.warns {
                    let tries = if left == 0 { "try" } else { "tries" };
                    errors.warning(&format!("{message} ({} {tries} left)", left.saturating_add(1)));
                }
                at.timer_after(0, SECOND);
                Ok(None)
            }
        }
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn open(place: &Place) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("bind: {}", system_message(&error));
        let (socket, place) = match place {
            Place::Tcp { port, more, localhost } => {
                let host = if *localhost { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
                let tries = if *more { MORE_PORTS } else { 0 };
                let mut tried = *port;
                let listener = loop {
                    match TcpListener::bind((host, tried)) {
                        Ok(listener) => break listener,
                        Err(_) if tried - port < tries && tried < u16::MAX => tried += 1,
                        Err(error) => return Err(told(error)),
                    }
                };
                listener.set_nonblocking(true).map_err(told)?;
                let port = listener.local_addr().map_or(tried, |address| address.port());
                (Socket::Tcp(listener), Place::Tcp { port, more: false, localhost: *localhost })
            }
            Place::Unix(path) => {
                let listener = UnixListener::bind(path).map_err(told)?;
                listener.set_nonblocking(true).map_err(told)?;
                (Socket::Unix(listener), place.clone())
            }
        };
        Ok(Self { socket, place })
    }

    /// Has the element be told of clients.
    pub(super) fn watch(&self, at: At<'_>, number: usize) -> bool {
        let watched = match &self.socket {
            Socket::Tcp(socket) => at.watch(number, socket, false),
            Socket::Unix(socket) => at.watch(number, socket, false),
        };
        watched.is_ok()
    }

    /// The next client. `None` when there is none now.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn accept(&self) -> Option<Result<Accepted, String>> {
        let accepted = match &self.socket {
            Socket::Tcp(socket) => socket.accept().map(|(stream, address)| {
                let from = format!(" from {}.{}", address.ip(), address.port());
                (stream.set_nonblocking(true), OwnedFd::from(stream), from)
            }),
            Socket::Unix(socket) => socket
                .accept()
                .map(|(stream, _)| (stream.set_nonblocking(true), OwnedFd::from(stream), String::new())),
        };
        match accepted {
            Ok((Ok(()), stream, from)) => Some(Ok(Accepted { number: stream.as_raw_fd(), stream, from })),
            Ok((Err(error), ..)) => Some(Err(system_message(&error))),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // The client is gone again: the next may not be.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => self.accept(),
            Err(error) => Some(Err(system_message(&error))),
        }
    }

    /// Ends it, and removes its path.
    pub(super) fn end(self) {
        if let Place::Unix(path) = &self.place {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The result of an attempt to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Later,
    /// Nothing ever again.
    Closed,
}

fn moved(result: Result<usize, rustix::io::Errno>) -> Moved {
    match result {
        Ok(count) => Moved::Bytes(count),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Moved::Later,
        Err(_) => Moved::Closed,
    }
}

/// Reads what a client sent.
pub(super) fn receive(stream: &OwnedFd, into: &mut [u8]) -> Moved {
    match moved(recv(stream, into, RecvFlags::empty()).map(|(count, _)| count)) {
        Moved::Bytes(0) => Moved::Closed,
        other => other,
    }
}

/// Sends what fits to a client.
pub(super) fn transmit(stream: &OwnedFd, bytes: &[u8]) -> Moved {
    moved(send(stream, bytes, SendFlags::NOSIGNAL))
}

/// Whether an element may open sockets. An error was told otherwise.
pub(super) fn may_open(arguments: &mut Arguments<'_>) -> bool {
    let at = arguments.at();
    let may = at.capabilities().sockets;
    if !may {
        arguments.error(&format!("{}: this instance may not open sockets (capability sockets)", at.class()));
    }
    may
}
