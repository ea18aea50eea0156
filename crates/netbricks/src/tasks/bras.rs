//! Asks RADIUS servers for `bras` whether subscribers may in, and reports sessions to them (RFC 2865, RFC 2866).
//!
//! The function makes the packets; this task signs and sends them, again where no answer comes, and to the next server.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netbricks_core::control_task::News;
use netbricks_core::{ControlTask, HandlerCaller};
use netbricks_functions::bras::radius::{Answer, from_hex, read_answer, renew, sign};
use netbricks_functions::bras::{BrasConfig, SharedSecret};

/// The time between two looks while answers are waited for, and while none are.
const LOOK: Duration = Duration::from_millis(10);
const REST: Duration = Duration::from_millis(50);
/// Requests that wait for a free identifier, and how many reports of sessions may wait before no more are taken.
const BACKLOG: usize = 4_096;
const ENOUGH: usize = BACKLOG / 2;
/// How long a server that did not answer is passed over, where another is left.
///
/// Then one request tries it again.
const DEAD: Duration = Duration::from_secs(30);
/// The most bytes of an answer (RFC 2865, section 3).
const LONGEST: usize = 4_096;

/// The client of one function.
pub(super) struct RadiusClient {
    secret: SharedSecret,
    timeout: Duration,
    tries: u32,
    /// How long a subscriber waits.
    wait: Duration,
    takes_unsigned: bool,
    /// By purpose: the servers that say who may in, and those that sessions are reported to.
    servers: [Vec<Server>; 2],
    backlog: [VecDeque<Pending>; 2],
    /// Lines for the handler `answer`.
    answers: String,
    /// Reports that no server took.
    lost: u64,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Access,
    Accounting,
}

/// A request on its way.
struct Pending {
    /// The session's number and the token of the answer, as the function shows them.
    session: String,
    packet: Vec<u8>,
    taken: Instant,
    /// When it was first sent to its server, and last.
    begun: Instant,
    sent: Instant,
    tries: u32,
    /// The servers that it was sent to, a bit for each.
    asked: u32,
}

/// Why a request was not sent, with the request.
enum Unsent {
    /// The servers that are left wait for as many answers as they can.
    Full(Pending),
    /// It was sent to all servers.
    Over(Pending),
}

/// A server under one of its ports.
struct Server {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    /// The requests that wait for this server's answer, by identifier.
    pending: Vec<Option<Pending>>,
    next: u8,
    /// Whether the operator was told that it does not answer.
    told: bool,
    /// When an answer of it came last.
    heard: Option<Instant>,
    /// Until when it is passed over, if it does not answer.
    dead_until: Option<Instant>,
}

impl Server {
    fn new(address: SocketAddr) -> Self {
        let pending = (0..256).map(|_| None).collect();
        Self { address, socket: None, pending, next: 0, told: false, heard: None, dead_until: None }
    }

    fn is_dead(&self, now: Instant) -> bool {
        self.dead_until.is_some_and(|until| now < until)
    }

    /// Opens the socket. So only this server's answers reach it.
    fn open(&mut self) -> std::io::Result<&UdpSocket> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let here: SocketAddr = match self.address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(here)?;
                socket.connect(self.address)?;
                socket.set_nonblocking(true)?;
                socket
            }
        };
        Ok(self.socket.insert(socket))
    }

    /// A free identifier.
    fn free(&mut self) -> Option<u8> {
        let free = (0..=255_u8).map(|step| self.next.wrapping_add(step));
        let found =
            free.into_iter().find(|id| self.pending.get(usize::from(*id)).is_some_and(Option::is_none))?;
        self.next = found.wrapping_add(1);
        Some(found)
    }

    fn send(&mut self, id: u8) {
        let Some(packet) =
            self.pending.get(usize::from(id)).and_then(Option::as_ref).map(|it| it.packet.clone())
        else {
            return;
        };
        if let Ok(socket) = self.open() {
            // A datagram that was refused on its way back is sent again: the error was about the one before.
            let _lost = socket.send(&packet).or_else(|_| socket.send(&packet));
        }
    }
}

impl RadiusClient {
    pub(super) fn new(config: &BrasConfig, secret: SharedSecret) -> Self {
        let access = config.radius.iter().map(|address| Server::new(*address)).collect();
        let accounting = config.radius.iter().filter(|_| config.accounting_port != 0);
        let accounting = accounting.map(|address| Server::new((address.ip(), config.accounting_port).into()));
        Self {
            secret,
            timeout: Duration::from_nanos(config.radius_timeout.nanoseconds()),
            tries: config.radius_tries,
            wait: Duration::from_nanos(config.proof_wait().nanoseconds()),
            takes_unsigned: config.unsigned_answers,
            servers: [access, accounting.collect()],
            backlog: Default::default(),
            answers: String::new(),
            lost: 0,
        }
    }

    /// Takes the function's requests over. Reports of sessions stay there while too many wait here.
    fn take(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) {
        let is_full = self.backlog[Purpose::Accounting as usize].len() >= ENOUGH;
        // Where no answer came, the requests still wait there, or this task is to end.
        let Ok(taken) = handlers.write("take-requests", if is_full { "access" } else { "" }) else { return };
        for line in taken.iter().flat_map(|lines| lines.lines()) {
            let Some((kind, (session, packet))) =
                line.split_once(' ').and_then(|(kind, rest)| Some((kind, rest.rsplit_once(' ')?)))
            else {
                continue;
            };
            let purpose = if kind == "access" { Purpose::Access } else { Purpose::Accounting };
            let Some(packet) = from_hex(packet) else { continue };
            let session = session.to_owned();
            let pending = Pending { session, packet, taken: now, begun: now, sent: now, tries: 0, asked: 0 };
            if self.backlog[purpose as usize].len() >= BACKLOG {
                handlers.tell(News::Warning, "RADIUS servers are too slow: a request was given up");
                self.give_up(purpose, &pending, handlers);
            } else {
                self.backlog[purpose as usize].push_back(pending);
            }
        }
    }

    /// Sends a request to the first server that it was not sent to yet.
    ///
    /// A server without a free identifier is passed over, and so is one that does not answer while another is left.
    fn begin(&mut self, purpose: Purpose, mut pending: Pending, now: Instant) -> Result<(), Unsent> {
        let servers = &mut self.servers[purpose as usize];
        let is_left = |place: usize| pending.asked >> place & 1 == 0;
        let count = servers.iter().enumerate().filter(|(place, _)| is_left(*place)).count();
        let alive = servers.iter().enumerate().any(|(place, server)| is_left(place) && !server.is_dead(now));
        let candidates = servers.iter_mut().enumerate().filter(|(place, _)| is_left(*place));
        let found = candidates
            .filter(|(_, server)| !alive || !server.is_dead(now))
            .find_map(|(place, server)| server.free().map(|id| (place, server, id)));
        let Some((place, server, id)) = found else {
            return Err(if count > 0 { Unsent::Full(pending) } else { Unsent::Over(pending) });
        };
        let mut authenticator = [0; 16];
        // Without numbers of the system, the function's own serve.
        if getrandom::fill(&mut authenticator).is_ok() {
            renew(&mut pending.packet, authenticator, self.secret.bytes());
        }
        sign(&mut pending.packet, id, self.secret.bytes());
        (pending.begun, pending.sent, pending.tries) = (now, now, 1);
        pending.asked |= 1 << place;
        if let Some(slot) = server.pending.get_mut(usize::from(id)) {
            *slot = Some(pending);
        }
        // It tries a server that did not answer; others need not wait for what comes of it.
        if let Some(until) = &mut server.dead_until {
            *until = now + DEAD;
        }
        server.send(id);
        Ok(())
    }

    /// Gives up a request that no server answers: the function counts it.
    fn give_up(&mut self, purpose: Purpose, pending: &Pending, handlers: &mut dyn HandlerCaller) {
        if purpose == Purpose::Access {
            self.answers += &format!("{} unanswered\n", pending.session);
            return;
        }
        let number = pending.session.split(' ').next().unwrap_or_default();
        self.answers += &format!("lost {number}\n");
        self.lost += 1;
        if self.lost.is_power_of_two() {
            let news = format!("no RADIUS server took reports of sessions: {} are lost", self.lost);
            handlers.tell(News::Warning, &news);
        }
    }

    /// Sends what waits for a free identifier, as far as there is one.
    fn send_backlog(&mut self, purpose: Purpose, handlers: &mut dyn HandlerCaller, now: Instant) {
        for _ in 0..self.backlog[purpose as usize].len() {
            let Some(pending) = self.backlog[purpose as usize].pop_front() else { return };
            if purpose == Purpose::Access && now.duration_since(pending.taken) >= self.wait {
                // Its subscriber has given up.
                self.give_up(purpose, &pending, handlers);
                continue;
            }
            match self.begin(purpose, pending, now) {
                Ok(()) => {}
                Err(Unsent::Full(pending)) => self.backlog[purpose as usize].push_back(pending),
                Err(Unsent::Over(pending)) => self.give_up(purpose, &pending, handlers),
            }
        }
    }

    /// Takes the answers that have come.
    fn hear(&mut self, purpose: Purpose, handlers: &mut dyn HandlerCaller, now: Instant) {
        let (secret, takes_unsigned) = (self.secret.clone(), self.takes_unsigned);
        for server in &mut self.servers[purpose as usize] {
            let mut bytes = [0; LONGEST];
            // As many as there can be requests, so that a flood of others ends.
            for _ in 0..512 {
                let Some(Ok(len)) = server.socket.as_ref().map(|socket| socket.recv(&mut bytes)) else {
                    break;
                };
                let answer = &bytes[..len];
                let id = answer.get(1).map_or(0, |id| usize::from(*id));
                let Some(Some(pending)) = server.pending.get(id) else { continue };
                match read_answer(answer, &pending.packet, secret.bytes(), takes_unsigned) {
                    Ok(read) => {
                        match read {
                            Answer::Accept(words) => {
                                self.answers += &format!("{} {words}\n", pending.session)
                            }
                            Answer::Reject => self.answers += &format!("{} reject\n", pending.session),
                            Answer::Accounted => {}
                        }
                        server.pending[id] = None;
                        (server.heard, server.dead_until) = (Some(now), None);
                        if std::mem::take(&mut server.told) {
                            let news = format!("the RADIUS server {} answers again", server.address);
                            handlers.tell(News::Info, &news);
                        }
                    }
                    Err(wrong) if !server.told => {
                        server.told = true;
                        let news = format!(
                            "an answer of the RADIUS server {} is not believed: {wrong}",
                            server.address
                        );
                        handlers.tell(News::Warning, &news);
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Sends requests again that have no answer, to the same server or the next.
    fn again(&mut self, purpose: Purpose, handlers: &mut dyn HandlerCaller, now: Instant) {
        let (timeout, most, wait) = (self.timeout, self.tries, self.wait);
        let is_due = |pending: &Pending| now.duration_since(pending.sent) >= timeout;
        let mut moved = Vec::new();
        let alive: Vec<bool> =
            self.servers[purpose as usize].iter().map(|server| !server.is_dead(now)).collect();
        for server in &mut self.servers[purpose as usize] {
            for id in 0..=255_u8 {
                let slot = &mut server.pending[usize::from(id)];
                let Some(pending) = slot.as_mut().filter(|pending| is_due(pending)) else { continue };
                let has_other =
                    (0..).zip(&alive).any(|(place, alive)| *alive && pending.asked >> place & 1 == 0);
                let is_old = purpose == Purpose::Access && now.duration_since(pending.taken) >= wait;
                // Where another server is left, none waits for one that does not answer.
                if pending.tries < most && !is_old && !(has_other && server.dead_until.is_some()) {
                    pending.tries += 1;
                    pending.sent = now;
                    server.send(id);
                    continue;
                }
                // It answers nothing, not only not this.
                let is_silent = server.heard.is_none_or(|heard| heard < pending.begun);
                moved.extend(slot.take());
                if !is_silent {
                    continue;
                }
                server.dead_until = Some(now + DEAD);
                if !std::mem::replace(&mut server.told, true) {
                    let news = format!("the RADIUS server {} does not answer", server.address);
                    handlers.tell(News::Warning, &news);
                }
            }
        }
        self.backlog[purpose as usize].extend(moved);
        self.send_backlog(purpose, handlers, now);
    }

    fn is_waiting(&self) -> bool {
        let pending = self.servers.iter().flatten().flat_map(|server| &server.pending);
        pending.flatten().next().is_some() || self.backlog.iter().any(|backlog| !backlog.is_empty())
    }
}

impl ControlTask for RadiusClient {
    fn run(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) -> Option<Duration> {
        self.take(handlers, now);
        for purpose in [Purpose::Access, Purpose::Accounting] {
            self.send_backlog(purpose, handlers, now);
            self.hear(purpose, handlers, now);
            self.again(purpose, handlers, now);
        }
        if !self.answers.is_empty() {
            let answers = std::mem::take(&mut self.answers);
            // Where this fails, subscribers ask again.
            if let Err(problem) = handlers.write("answer", &answers) {
                handlers.tell(News::Warning, &format!("answers of RADIUS servers were not taken: {problem}"));
            }
        }
        Some(if self.is_waiting() { LOOK } else { REST })
    }
}

#[cfg(test)]
#[path = "bras_tests.rs"]
mod tests;
