//! `Socket`: packets over TCP, UDP and Unix sockets.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_nodelay, socket_error,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    acceptfrom_with, bind, connect, listen, recvfrom, send, sendto, socket_with,
};

use super::datagram::{A_TURN, Reception, Sent, Waiting};
use super::listen as control;
use crate::arguments::Arguments;
use crate::command::system_message;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::names::Named;
use crate::notifier::Signal;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{ElementNumber, SECOND};

pub(super) const CLASSES: &[Class] =
    &[Class::new("Socket", configure).ports("0-1/0-1").processing("a/h").flow("x/y")];

/// How long an element waits for its connection when it is initialised.
const CONNECT: Duration = Duration::from_secs(10);
const MAIN: usize = 0;
const PEER: usize = 1;
const WRITER: usize = 2;
/// The length of a Unix socket's path that the system takes (bytes).
const MOST_PATH: usize = 107;

/// Which socket, and where.
struct Ends {
    family: AddressFamily,
    kind: SocketType,
    is_tcp: bool,
    remote: SocketAddrAny,
    local: Option<SocketAddrAny>,
    /// The path of a Unix socket that it makes.
    path: Option<String>,
}

/// `Socket(TCP, IP, PORT [, LOCALIP, LOCALPORT, ...])`, `Socket(UDP, ...)`, `Socket(UNIX, FILENAME [, LOCALFILENAME,
/// ...])`, `Socket(UNIX_DGRAM, ...)`: sends packets by a socket, and receives packets.
///
/// A server binds the first address and takes one connection at a time; with `CLIENT true`, or without outputs, it
/// connects to it. Keywords: SNAPLEN, NODELAY, CLIENT, SNDBUF, RCVBUF, TIMESTAMP, ALLOW, DENY, VERBOSE.
struct Socket {
    ends: Ends,
    client: bool,
    nodelay: bool,
    verbose: bool,
    allow: Option<usize>,
    deny: Option<usize>,
    reception: Reception,
    /// The socket that listens, or that packets pass.
    main: RefCell<Option<Rc<OwnedFd>>>,
    /// The socket that packets pass.
    active: RefCell<Option<Rc<OwnedFd>>>,
    /// Where datagrams are sent.
    peer: RefCell<Option<SocketAddrAny>>,
    waiting: Waiting,
    /// Whether it made a path, which it removes in the end.
    bound: Cell<bool>,
    /// Bytes of the first waiting packet that were sent.
    sent: Cell<usize>,
    signal: RefCell<Signal>,
}

fn unix_address(arguments: &mut Arguments<'_>, which: &str, path: &str) -> Option<SocketAddrAny> {
    let abstract_name = path.strip_prefix('\0');
    let length = abstract_name.map_or(path.len(), str::len);
    let address = match abstract_name {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    };
    match address {
        Ok(address) if length <= MOST_PATH => Some(address.into()),
        _ => {
            arguments.error(&format!("{which} filename '{}' too long", path.escape_default()));
            None
        }
    }
}

/// Reads the addresses of a kind of socket. An error was told otherwise.
fn ends(arguments: &mut Arguments<'_>, kind: &str, client: bool) -> Option<Ends> {
    let stream = matches!(kind, "TCP" | "UNIX");
    let socket_type = if stream { SocketType::STREAM } else { SocketType::DGRAM };
    match kind {
        "TCP" | "UDP" => {
            let named = if stream { Named::TcpPort } else { Named::UdpPort };
            let read_port = |text: &str, at: At<'_>| control::port(text, at, named);
            let address: Option<Ipv4Addr> = arguments.required("ADDR");
            let port = arguments.required_with("PORT", read_port);
            let local: Option<Ipv4Addr> = arguments.positional("LOCAL_ADDR");
            let local_port = arguments.positional_with("LOCAL_PORT", read_port).filter(|port| *port != 0);
            let remote = SocketAddrV4::new(address?, port?);
            let local =
                local_port.map(|port| SocketAddrV4::new(local.unwrap_or(Ipv4Addr::UNSPECIFIED), port).into());
            Some(Ends {
                family: AddressFamily::INET,
                kind: socket_type,
                is_tcp: stream,
                remote: remote.into(),
                local,
                path: None,
            })
        }
        "UNIX" | "UNIX_DGRAM" => {
            let remote: Option<String> = arguments.required("FILENAME");
            let local: Option<String> = arguments.positional("LOCAL_FILENAME");
            let (remote, local) = (remote?, local.filter(|local| !local.is_empty()));
            let remote_address = unix_address(arguments, "remote", &remote);
            let local_address = local.as_ref().and_then(|local| unix_address(arguments, "local", local));
            let path = if client { local } else { Some(remote) };
            Some(Ends {
                family: AddressFamily::UNIX,
                kind: socket_type,
                is_tcp: false,
                remote: remote_address?,
                local: local_address,
                path: path.filter(|path| !path.starts_with('\0')),
            })
        }
        _ => {
            arguments.error(&format!("unknown socket type `{kind}'"));
            None
        }
    }
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let reception = Reception::read(arguments);
    let nodelay: i32 = arguments.keyword_with("NODELAY", flag).unwrap_or(1);
    let client = arguments.keyword("CLIENT").unwrap_or(setup.outputs() == 0);
    let _: Option<bool> = arguments.keyword("PROPER");
    let allow: Option<ElementNumber> = arguments.keyword("ALLOW");
    let deny: Option<ElementNumber> = arguments.keyword("DENY");
    if !control::may_open(arguments) {
        return None;
    }
    let kind: Option<String> = arguments.required("TYPE");
    let ends = ends(arguments, &kind?.to_ascii_uppercase(), client);
    arguments.complete()?;
    Some(Rc::new(Socket {
        ends: ends?,
        client,
        nodelay: nodelay != 0,
        verbose,
        allow: allow.map(|element| element.0),
        deny: deny.map(|element| element.0),
        reception,
        main: RefCell::default(),
        active: RefCell::default(),
        peer: RefCell::default(),
        waiting: Waiting::default(),
        bound: Cell::default(),
        sent: Cell::default(),
        signal: RefCell::default(),
    }))
}

/// A truth value, or a number that is one.
fn flag(text: &str, _: At<'_>) -> crate::arguments::Parsed<i32> {
    let number = crate::value::integer(text).and_then(|number| i32::try_from(number).ok());
    number.or_else(|| crate::value::boolean(text).map(i32::from)).ok_or(crate::arguments::Problem::Syntax)
}

/// An address as messages have it.
fn show(address: Option<&SocketAddrAny>) -> String {
    match address.map(|address| SocketAddrV4::try_from(address.clone())) {
        Some(Ok(address)) => format!("{}:{}", address.ip(), address.port()),
        _ => String::new(),
    }
}

/// Connects a socket that does not block, within [`CONNECT`].
fn connect_within(socket: &OwnedFd, to: &SocketAddrAny) -> Result<(), Errno> {
    match connect(socket, to) {
        Err(Errno::INPROGRESS | Errno::AGAIN) => (),
        other => return other,
    }
    let timeout = Timespec { tv_sec: CONNECT.as_secs() as i64, tv_nsec: 0 };
    let mut waits = [PollFd::new(socket, PollFlags::OUT)];
    if poll(&mut waits, Some(&timeout))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    socket_error(socket)?
}

impl Socket {
    fn is_stream(&self) -> bool {
        self.ends.kind == SocketType::STREAM
    }

    fn open(&self) -> Result<OwnedFd, (&'static str, Errno)> {
        let step = |name: &'static str| move |error| (name, error);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(self.ends.family, self.ends.kind, flags, None).map_err(step("socket"))?;
        if self.ends.is_tcp && self.nodelay {
            set_tcp_nodelay(&socket, true).map_err(step("setsockopt(TCP_NODELAY)"))?;
        }
        if let Some(size) = self.reception.send_buffer {
            set_socket_send_buffer_size(&socket, size).map_err(step("setsockopt(SO_SNDBUF)"))?;
        }
        if let Some(size) = self.reception.receive_buffer {
            set_socket_recv_buffer_size(&socket, size).map_err(step("setsockopt(SO_RCVBUF)"))?;
        }
        let own = if self.client { self.ends.local.as_ref() } else { Some(&self.ends.remote) };
        if let Some(own) = own {
            bind(&socket, own).map_err(step("bind"))?;
            self.bound.set(true);
        }
        match (self.client, self.is_stream()) {
            (true, true) => connect_within(&socket, &self.ends.remote).map_err(step("connect"))?,
            (false, true) => listen(&socket, 2).map_err(step("listen"))?,
            _ => (),
        }
        Ok(socket)
    }

    fn active(&self) -> Option<Rc<OwnedFd>> {
        self.active.borrow().clone()
    }

    /// Whether a host may connect: ALLOW's routes are asked first, then DENY's.
    fn allows(&self, at: At<'_>, from: Option<&SocketAddrAny>) -> bool {
        let Some(Ok(address)) = from.map(|from| SocketAddrV4::try_from(from.clone())) else { return true };
        let has_route = |table: Option<usize>| {
            let answer =
                table.map(|table| at.router.read_handler(table, "lookup", &address.ip().to_string()));
            match answer {
                Some(Ok(route)) => {
                    let port = route.split_whitespace().next().and_then(|port| port.parse::<i64>().ok());
                    port.is_some_and(|port| port >= 0)
                }
                _ => false,
            }
        };
        has_route(self.allow) || !has_route(self.deny)
    }

    fn say(&self, at: At<'_>, text: &str) {
        if self.verbose {
            at.chatter(&format!("{}: {text}", at.declaration()));
        }
    }

    fn close_active(&self, at: At<'_>) {
        at.unwatch(WRITER);
        at.unwatch(PEER);
        let closed = self.active.borrow_mut().take();
        if let Some(closed) = closed {
            self.say(at, &format!("closed connection {}", closed.as_raw_fd()));
        }
        self.sent.set(0);
        self.waiting.clear(at);
        // The next connection may wait already.
        let main = self.main.borrow().clone();
        match main {
            Some(main) if self.is_stream() && !self.client => drop(at.watch(MAIN, &*main, false)),
            _ => {
                at.unwatch(MAIN);
                *self.main.borrow_mut() = None;
            }
        }
    }

    fn accept(&self, at: At<'_>, main: &OwnedFd) {
        let (socket, from) = match acceptfrom_with(main, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(error) => {
                at.chatter(&format!("{}: accept: {}", at.declaration(), system_message(&error.into())));
                at.unwatch(MAIN);
                at.timer_after(0, SECOND);
                return;
            }
        };
        let allowed = self.allows(at, from.as_ref());
        let verb = if allowed { "opened" } else { "denied" };
        self.say(at, &format!("{verb} connection {} from {}", socket.as_raw_fd(), show(from.as_ref())));
        if !allowed {
            return;
        }
        // One connection at a time: others wait.
        at.unwatch(MAIN);
        let _ = at.watch(PEER, &socket, false);
        *self.active.borrow_mut() = Some(Rc::new(socket));
        if at.inputs() > 0 && at.input_is_pull(0) {
            at.schedule(0);
        }
    }

    fn receive(&self, at: At<'_>) {
        let mut buffer = vec![0; self.reception.snaplen];
        let flags = if self.is_stream() { RecvFlags::empty() } else { RecvFlags::TRUNC };
        for _ in 0..A_TURN {
            let Some(active) = self.active() else { return };
            match recvfrom(&*active, &mut buffer[..], flags) {
                Ok((0, ..)) if self.is_stream() => {
                    self.close_active(at);
                    return;
                }
                Ok((kept, length, from)) => {
                    if !self.is_stream() && !self.client {
                        if !self.allows(at, from.as_ref()) {
                            self.say(at, &format!("dropped datagram from {}", show(from.as_ref())));
                            continue;
                        }
                        *self.peer.borrow_mut() = from;
                    }
                    if kept > 0 {
                        self.reception.push(at, &buffer[..kept], length);
                    }
                }
                Err(Errno::AGAIN) => return,
                // The answer to a datagram that nobody took says nothing about the next.
                Err(Errno::INTR | Errno::CONNREFUSED) if !self.is_stream() => (),
                Err(Errno::INTR) => (),
                Err(error) => {
                    self.say(at, &system_message(&error.into()));
                    self.close_active(at);
                    return;
                }
            }
        }
    }

    /// Where a datagram goes.
    fn destination(&self, packet: &Packet) -> Option<SocketAddrAny> {
        if !self.client {
            return self.peer.borrow().clone();
        }
        match SocketAddrV4::try_from(self.ends.remote.clone()) {
            Ok(remote) if remote.ip().is_unspecified() => {
                Some(SocketAddrV4::new(packet.dst_ip(), remote.port()).into())
            }
            _ => Some(self.ends.remote.clone()),
        }
    }

    fn send(&self, at: At<'_>, packet: &Packet) -> Sent {
        let Some(active) = self.active() else { return Sent::Failed };
        loop {
            let rest = packet.data().get(self.sent.get()..).unwrap_or_default();
            let result = if self.is_stream() {
                if rest.is_empty() {
                    self.sent.set(0);
                    return Sent::Done;
                }
                send(&*active, rest, SendFlags::NOSIGNAL)
            } else {
                let Some(to) = self.destination(packet) else { return Sent::Failed };
                sendto(&*active, packet.data(), SendFlags::NOSIGNAL, &to)
            };
            match result {
                Ok(count) if self.is_stream() => self.sent.set(self.sent.get() + count),
                Ok(_) => return Sent::Done,
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Sent::Later,
                Err(error) if !self.is_stream() => {
                    self.say(at, &format!("{}, dropping packet", system_message(&error.into())));
                    return Sent::Failed;
                }
                Err(error) => {
                    self.say(at, &system_message(&error.into()));
                    self.close_active(at);
                    return Sent::Failed;
                }
            }
        }
    }

    /// Sends a packet, or has it wait. `false` when it waits.
    fn send_or_wait(&self, at: At<'_>, packet: Packet) -> bool {
        match self.send(at, &packet) {
            Sent::Done => at.discard(packet),
            Sent::Failed => at.drop_packet(packet, DropReason::LinkDown),
            Sent::Later => {
                self.waiting.put(at, packet, true);
                if let Some(active) = self.active() {
                    let _ = at.watch(WRITER, &*active, true);
                }
                return false;
            }
        }
        true
    }
}

impl Element for Socket {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let socket = match self.open() {
            Ok(socket) => Rc::new(socket),
            Err((step, error)) => {
                errors.error(&format!("{step}: {}", system_message(&error.into())));
                return false;
            }
        };
        let listens = self.is_stream() && !self.client;
        let number = socket.as_raw_fd();
        if listens {
            let own = show(Some(&self.ends.remote));
            self.say(at, &format!("listening for connections on {own} ({number})"));
        } else {
            if self.is_stream() {
                self.say(at, &format!("opened connection {number} to {}", show(Some(&self.ends.remote))));
            }
            *self.active.borrow_mut() = Some(Rc::clone(&socket));
        }
        if at.outputs() > 0 || listens {
            let _ = at.watch(MAIN, &*socket, false);
        }
        *self.main.borrow_mut() = Some(socket);
        if at.inputs() > 0 && at.input_is_pull(0) {
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
            at.schedule(0);
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        if self.active.borrow().is_none() {
            at.drop_packet(packet, DropReason::LinkDown);
        } else if self.waiting.is_empty() {
            self.send_or_wait(at, packet);
        } else {
            self.waiting.put(at, packet, false);
        }
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let mut worked = false;
        for _ in 0..A_TURN {
            if !self.waiting.is_empty() || self.active.borrow().is_none() {
                return worked;
            }
            let Some(packet) = at.pull(0) else {
                if self.signal.borrow().is_active() {
                    at.schedule(0);
                }
                return worked;
            };
            worked = true;
            if !self.send_or_wait(at, packet) {
                return true;
            }
        }
        at.schedule(0);
        worked
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let main = self.main.borrow().clone();
        if let Some(main) = main
            && self.active.borrow().is_none()
        {
            let _ = at.watch(MAIN, &*main, false);
        }
    }
    fn ready(&self, at: At<'_>, number: usize) {
        if number == WRITER {
            at.unwatch(WRITER);
            while let Some(packet) = self.waiting.take() {
                if !self.send_or_wait(at, packet) {
                    return;
                }
            }
            if at.inputs() > 0 && at.input_is_pull(0) {
                at.schedule(0);
            }
            return;
        }
        let main = self.main.borrow().clone();
        match main {
            Some(main) if number == MAIN && self.is_stream() && !self.client => self.accept(at, &main),
            _ => self.receive(at),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.task::<Self>(0);
    }
    fn cleanup(&self, at: At<'_>) {
        self.waiting.clear(at);
        *self.active.borrow_mut() = None;
        *self.main.borrow_mut() = None;
        if let Some(path) = self.ends.path.as_ref().filter(|_| self.bound.replace(false)) {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}
