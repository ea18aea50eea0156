//! `McastSocket`: packets to and from a UDP multicast group.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ip_add_membership, set_ip_multicast_if, set_ip_multicast_loop, set_socket_recv_buffer_size,
    set_socket_reuseaddr, set_socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, recvfrom,
    sendto, socket_with,
};

use super::datagram::{A_TURN, Reception, Sent, Waiting};
use super::listen;
use crate::arguments::Arguments;
use crate::command::system_message;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::names::Named;
use crate::notifier::Signal;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("McastSocket", configure).ports("0-1/0-1").processing("a/h").flow("x/y")];

const RECEIVER: usize = 0;
const SENDER: usize = 1;

/// `McastSocket(MCASTIP, MCASTPORT [, SOURCEIP, SOURCEPORT, LOOP, SNAPLEN, SNDBUF, RCVBUF, TIMESTAMP, HEADROOM])`: sends
/// packets to a multicast group and receives those that others send to it.
///
/// With SOURCEIP it uses that address's interface, and does not receive what it sent itself.
struct McastSocket {
    group: SocketAddrV4,
    source: Cell<SocketAddrV4>,
    loops: bool,
    reception: Reception,
    sockets: RefCell<Option<Rc<Sockets>>>,
    waiting: Waiting,
    signal: RefCell<Signal>,
}

struct Sockets {
    receiver: OwnedFd,
    sender: OwnedFd,
}

fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let reception = Reception::read(arguments);
    let loops = arguments.keyword("LOOP").unwrap_or(true);
    let udp_port = |text: &str, at: At<'_>| listen::port(text, at, Named::UdpPort);
    let group: Option<Ipv4Addr> = arguments.required("MCASTIP");
    let port = arguments.required_with("MCASTPORT", udp_port);
    let source: Option<Ipv4Addr> = arguments.positional("SOURCEIP");
    let source_port = arguments.positional_with("SOURCEPORT", udp_port);
    if !listen::may_open(arguments) {
        return None;
    }
    arguments.complete()?;
    let source = SocketAddrV4::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED), source_port.unwrap_or(0));
    Some(Rc::new(McastSocket {
        group: SocketAddrV4::new(group?, port?),
        source: Cell::new(source),
        loops,
        reception,
        sockets: RefCell::default(),
        waiting: Waiting::default(),
        signal: RefCell::default(),
    }))
}

impl McastSocket {
    /// Opens both sockets; the error names the step.
    fn open(&self) -> Result<Sockets, (&'static str, Errno)> {
        let step = |name: &'static str| move |error| (name, error);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let open =
            || socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).map_err(step("socket"));
        let (receiver, sender) = (open()?, open()?);
        if let Some(size) = self.reception.send_buffer {
            set_socket_send_buffer_size(&sender, size).map_err(step("setsockopt(SO_SNDBUF)"))?;
        }
        if let Some(size) = self.reception.receive_buffer {
            set_socket_recv_buffer_size(&receiver, size).map_err(step("setsockopt(SO_RCVBUF)"))?;
        }
        set_socket_reuseaddr(&receiver, true).map_err(step("setsockopt(SO_REUSEADDR)"))?;
        bind(&receiver, &self.group).map_err(step("bind"))?;
        let source = self.source.get();
        if !source.ip().is_unspecified() {
            bind(&sender, &source).map_err(step("bind"))?;
            let bound = getsockname(&sender).map_err(step("getsockname"))?;
            self.source.set(SocketAddrV4::try_from(bound).unwrap_or(source));
            set_ip_multicast_if(&sender, source.ip()).map_err(step("setsockopt(IP_MULTICAST_IF)"))?;
        }
        set_ip_add_membership(&receiver, self.group.ip(), source.ip())
            .map_err(step("setsockopt(IP_ADD_MEMBERSHIP)"))?;
        set_ip_multicast_loop(&sender, self.loops).map_err(step("setsockopt(IP_MULTICAST_LOOP)"))?;
        Ok(Sockets { receiver, sender })
    }

    fn sockets(&self) -> Option<Rc<Sockets>> {
        self.sockets.borrow().clone()
    }

    fn close(&self, at: At<'_>, error: Errno) {
        at.chatter(&format!("{}: {}", at.declaration(), system_message(&error.into())));
        at.unwatch(RECEIVER);
        at.unwatch(SENDER);
        *self.sockets.borrow_mut() = None;
        self.waiting.clear(at);
    }

    fn is_own(&self, from: Option<SocketAddrAny>) -> bool {
        let source = self.source.get();
        !source.ip().is_unspecified()
            && from.and_then(|from| SocketAddrV4::try_from(from).ok()).is_some_and(|from| from == source)
    }

    fn receive(&self, at: At<'_>) {
        let mut buffer = vec![0; self.reception.snaplen];
        for _ in 0..A_TURN {
            let Some(sockets) = self.sockets() else { return };
            match recvfrom(&sockets.receiver, &mut buffer[..], RecvFlags::TRUNC) {
                Ok((kept, length, from)) => {
                    if !self.is_own(from) {
                        self.reception.push(at, &buffer[..kept], length);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => (),
                Err(error) => {
                    self.close(at, error);
                    return;
                }
            }
        }
    }

    fn send(&self, at: At<'_>, packet: &Packet) -> Sent {
        let Some(sockets) = self.sockets() else { return Sent::Failed };
        loop {
            match sendto(&sockets.sender, packet.data(), SendFlags::NOSIGNAL, &self.group) {
                Ok(_) => return Sent::Done,
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Sent::Later,
                // One packet is too long: the next may fit.
                Err(Errno::MSGSIZE) => return Sent::Failed,
                Err(error) => {
                    self.close(at, error);
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
                if let Some(sockets) = self.sockets() {
                    let _ = at.watch(SENDER, &sockets.sender, true);
                }
                return false;
            }
        }
        true
    }
}

impl Element for McastSocket {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let sockets = match self.open() {
            Ok(sockets) => Rc::new(sockets),
            Err((step, error)) => {
                errors.error(&format!("{step}: {}", system_message(&error.into())));
                return false;
            }
        };
        if at.outputs() > 0 {
            let _ = at.watch(RECEIVER, &sockets.receiver, false);
        }
        *self.sockets.borrow_mut() = Some(sockets);
        if at.inputs() > 0 && at.input_is_pull(0) {
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
            at.schedule(0);
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        if self.waiting.is_empty() {
            self.send_or_wait(at, packet);
        } else {
            self.waiting.put(at, packet, false);
        }
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let mut worked = false;
        for _ in 0..A_TURN {
            if !self.waiting.is_empty() || self.sockets.borrow().is_none() {
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
    fn ready(&self, at: At<'_>, number: usize) {
        if number == RECEIVER {
            self.receive(at);
            return;
        }
        at.unwatch(SENDER);
        while let Some(packet) = self.waiting.take() {
            if !self.send_or_wait(at, packet) {
                return;
            }
        }
        if at.inputs() > 0 && at.input_is_pull(0) {
            at.schedule(0);
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.task::<Self>(0);
    }
    fn cleanup(&self, at: At<'_>) {
        *self.sockets.borrow_mut() = None;
        self.waiting.clear(at);
    }
}
