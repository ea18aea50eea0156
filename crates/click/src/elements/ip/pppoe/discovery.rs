//! `PPPoEDiscovery`: how hosts find an access concentrator and get a session (RFC 2516, section 5).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::super::header::{get16, put, set16};
use super::{DISCOVERY, HEADERS, VERSION};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::text;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, SECOND, Span};

pub(super) const CLASSES: &[Class] =
    &[Class::new("PPPoEDiscovery", pppoe_discovery).ports("1/1-2").processing("h/h")];

mod code {
    pub(super) const PADO: u8 = 0x07;
    pub(super) const PADI: u8 = 0x09;
    pub(super) const PADR: u8 = 0x19;
    pub(super) const PADS: u8 = 0x65;
    pub(super) const PADT: u8 = 0xA7;
}

mod tag {
    pub(super) const END: u16 = 0;
    pub(super) const SERVICE_NAME: u16 = 0x0101;
    pub(super) const AC_NAME: u16 = 0x0102;
    pub(super) const HOST_UNIQ: u16 = 0x0103;
    pub(super) const AC_COOKIE: u16 = 0x0104;
    pub(super) const RELAY_SESSION_ID: u16 = 0x0110;
    pub(super) const SERVICE_NAME_ERROR: u16 = 0x0201;
    pub(super) const AC_SYSTEM_ERROR: u16 = 0x0202;
}

/// The most bytes that tags of an answer have.
const MOST: usize = 1484;

/// A session of a host.
#[derive(Clone, Copy)]
struct Session {
    host: [u8; 6],
    /// When it was last used (steady time, ns).
    used: u64,
}

/// `PPPoEDiscovery(ETHER, NAME [, SERVICES, CAPACITY, PER_HOST, TIMEOUT])`: an access concentrator.
///
/// It takes Ethernet frames and answers PADI with PADO, and PADR with PADS, which opens a session. Frames that are not
/// of the discovery stage go to output 1. `SERVICES` are the names that hosts may ask for beside the empty one.
/// A cookie in PADO, which a host must repeat, keeps forged addresses out of the table of sessions. Sessions end by
/// PADT. When the table has `CAPACITY`, the one that was unused for longest ends, if that was for `TIMEOUT`.
pub(super) struct PppoeDiscovery {
    address: Ether,
    name: String,
    services: Vec<Vec<u8>>,
    capacity: usize,
    per_host: usize,
    timeout: u64,
    secret: RandomState,
    sessions: RefCell<BTreeMap<u16, Session>>,
    latest: Cell<u16>,
    refused: Cell<u64>,
    bad: Cell<u64>,
}

fn pppoe_discovery(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ether> = arguments.required("ETHER");
    let name: Option<String> = arguments.required("NAME");
    let services = arguments.keyword_with("SERVICES", |words, _| {
        Ok(text::split_words(words).iter().map(|word| text::unquote(word)).collect())
    });
    let capacity: u16 = arguments.keyword("CAPACITY").unwrap_or(1024);
    let per_host: u16 = arguments.keyword("PER_HOST").unwrap_or(4);
    let timeout: Span = arguments.keyword("TIMEOUT").unwrap_or(Span(3600 * SECOND));
    arguments.complete()?;
    let services: Vec<Vec<u8>> = services.unwrap_or_default();
    let name = name?;
    if name.len() + services.iter().map(|service| service.len() + 4).sum::<usize>() > MOST / 2 {
        arguments.error("names too long");
        return None;
    }
    Some(Rc::new(PppoeDiscovery {
        address: address?,
        name,
        services,
        // Sessions have numbers from 1 to 0xFFFE.
        capacity: usize::from(capacity.min(0xFFFE)),
        per_host: usize::from(per_host.max(1)),
        timeout: timeout.0,
        secret: RandomState::new(),
        sessions: RefCell::default(),
        latest: Cell::default(),
        refused: Cell::default(),
        bad: Cell::default(),
    }))
}

/// Tags of a discovery packet: type and value. `None`: they do not fit their lengths.
fn tags(payload: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut tags = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let (kind, length) = (get16(rest, 0), usize::from(get16(rest, 2)));
        if kind == tag::END && rest.len() >= 4 {
            break;
        }
        tags.push((kind, rest.get(4..4 + length)?));
        rest = rest.get(4 + length..)?;
    }
    Some(tags)
}

/// A request of a host.
struct Request<'p> {
    host: [u8; 6],
    to: [u8; 6],
    code: u8,
    session: u16,
    tags: Vec<(u16, &'p [u8])>,
}

impl<'p> Request<'p> {
    fn of(data: &'p [u8]) -> Option<Self> {
        let length = usize::from(get16(data, 18));
        let payload = data.get(HEADERS..)?.get(..length)?;
        let host: [u8; 6] = data.get(6..12)?.try_into().ok()?;
        if data[14] != VERSION || host[0] & 1 != 0 {
            return None;
        }
        Some(Self {
            host,
            to: data.get(..6)?.try_into().ok()?,
            code: data[15],
            session: get16(data, 16),
            tags: tags(payload)?,
        })
    }
    fn tag(&self, kind: u16) -> Option<&'p [u8]> {
        self.tags.iter().find(|(known, _)| *known == kind).map(|(_, value)| *value)
    }
}

/// Tags of an answer under construction.
#[derive(Default)]
struct Tags(Vec<u8>);

impl Tags {
    fn add(&mut self, kind: u16, value: &[u8]) {
        let Ok(length) = u16::try_from(value.len()) else { return };
        if self.0.len() + 4 + value.len() <= MOST {
            self.0.extend_from_slice(&kind.to_be_bytes());
            self.0.extend_from_slice(&length.to_be_bytes());
            self.0.extend_from_slice(value);
        }
    }
    /// Repeats what the host and relays on the way want back.
    fn repeat(&mut self, request: &Request<'_>) {
        for (kind, value) in &request.tags {
            if matches!(*kind, tag::HOST_UNIQ | tag::RELAY_SESSION_ID) {
                self.add(*kind, value);
            }
        }
    }
}

impl PppoeDiscovery {
    fn cookie(&self, host: [u8; 6]) -> [u8; 8] {
        self.secret.hash_one(host).to_be_bytes()
    }
    fn offers(&self, service: &[u8]) -> bool {
        service.is_empty() || self.services.iter().any(|known| known == service)
    }
    /// The host of a session.
    pub(super) fn host(&self, session: u16) -> Option<[u8; 6]> {
        self.sessions.borrow().get(&session).map(|session| session.host)
    }
    /// Notes that a host used its session. `false`: it has no such session.
    pub(super) fn touch(&self, session: u16, host: [u8; 6], now: u64) -> bool {
        match self.sessions.borrow_mut().get_mut(&session) {
            Some(known) if known.host == host => {
                known.used = now;
                true
            }
            _ => false,
        }
    }
    pub(super) fn address(&self) -> Ether {
        self.address
    }

    fn frame(&self, at: At<'_>, host: [u8; 6], code: u8, session: u16, tags: &Tags) -> Option<Packet> {
        let mut packet = at.allocate(HEADERS + tags.0.len())?;
        let data = packet.data_mut();
        put(data, 0, &host);
        put(data, 6, &self.address.0);
        set16(data, 12, DISCOVERY);
        put(data, 14, &[VERSION, code]);
        set16(data, 16, session);
        set16(data, 18, tags.0.len() as u16);
        put(data, HEADERS, &tags.0);
        packet.set_mac_place(Some(0));
        packet.set_timestamp(at.now());
        Some(packet)
    }

    /// Ends the session that was unused for longest, if that was long enough, and says so to its host.
    fn make_room(&self, at: At<'_>, now: u64) {
        let oldest = self
            .sessions
            .borrow()
            .iter()
            .min_by_key(|(_, session)| session.used)
            .map(|(id, one)| (*id, *one));
        let Some((id, session)) = oldest else { return };
        if session.used.saturating_add(self.timeout) < now {
            self.sessions.borrow_mut().remove(&id);
            if let Some(packet) = self.frame(at, session.host, code::PADT, id, &Tags::default()) {
                at.push(0, packet);
            }
        }
    }

    /// Opens a session. `None`: there is no room.
    fn open(&self, at: At<'_>, host: [u8; 6]) -> Option<u16> {
        let now = at.steady();
        if self.sessions.borrow().len() >= self.capacity {
            self.make_room(at, now);
        }
        let mut sessions = self.sessions.borrow_mut();
        let own = sessions.values().filter(|session| session.host == host).count();
        if sessions.len() >= self.capacity || own >= self.per_host {
            return None;
        }
        let mut id = self.latest.get();
        loop {
            id = if id >= 0xFFFE { 1 } else { id + 1 };
            if !sessions.contains_key(&id) {
                break;
            }
        }
        self.latest.set(id);
        sessions.insert(id, Session { host, used: now });
        Some(id)
    }

    /// The answer to a request. `None`: it needs none.
    fn answer(&self, at: At<'_>, request: &Request<'_>) -> Option<Packet> {
        let mut answer = Tags::default();
        let broadcast = request.to == Ether::BROADCAST.0;
        match request.code {
            code::PADI if (broadcast || request.to == self.address.0) && request.session == 0 => {
                let service = request.tag(tag::SERVICE_NAME).filter(|service| self.offers(service))?;
                answer.add(tag::SERVICE_NAME, service);
                for other in self.services.iter().filter(|other| *other != service) {
                    answer.add(tag::SERVICE_NAME, other);
                }
                answer.add(tag::AC_NAME, self.name.as_bytes());
                answer.add(tag::AC_COOKIE, &self.cookie(request.host));
                answer.repeat(request);
                self.frame(at, request.host, code::PADO, 0, &answer)
            }
            code::PADR if request.to == self.address.0 && request.session == 0 => {
                if request.tag(tag::AC_COOKIE) != Some(&self.cookie(request.host)) {
                    return None;
                }
                let service = request.tag(tag::SERVICE_NAME)?;
                let session = if !self.offers(service) {
                    answer.add(tag::SERVICE_NAME_ERROR, b"no such service");
                    0
                } else if let Some(session) = self.open(at, request.host) {
                    answer.add(tag::SERVICE_NAME, service);
                    session
                } else {
                    self.refused.set(self.refused.get() + 1);
                    answer.add(tag::AC_SYSTEM_ERROR, b"no more sessions");
                    0
                };
                answer.add(tag::AC_NAME, self.name.as_bytes());
                answer.repeat(request);
                self.frame(at, request.host, code::PADS, session, &answer)
            }
            code::PADT if self.host(request.session) == Some(request.host) => {
                self.sessions.borrow_mut().remove(&request.session);
                None
            }
            _ => None,
        }
    }
}

impl Element for PppoeDiscovery {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        if get16(packet.data(), 12) != DISCOVERY {
            at.push_or_drop(1, packet, DropReason::Unmatched);
            return;
        }
        let (answer, reason) = match Request::of(packet.data()) {
            Some(request) => match self.answer(at, &request) {
                Some(answer) => (Some(answer), DropReason::Answered),
                None => (None, DropReason::LocalDelivery),
            },
            None => {
                self.bad.set(self.bad.get() + 1);
                (None, DropReason::Malformed)
            }
        };
        at.drop_packet(packet, reason);
        if let Some(answer) = answer {
            at.push(0, answer);
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("sessions", |this: &Self, _| {
            let mut text = String::new();
            for (id, session) in &*this.sessions.borrow() {
                let _ = writeln!(text, "{id}\t{}", Ether(session.host));
            }
            text
        });
        handlers.read("count", |this: &Self, _| this.sessions.borrow().len());
        handlers.read("refused", |this: &Self, _| this.refused.get());
        handlers.read("bad", |this: &Self, _| this.bad.get());
        handlers.write("end", |this: &Self, at, value| {
            let id: u16 = value.trim().parse().map_err(|_| "expected session")?;
            let session = this.sessions.borrow_mut().remove(&id).ok_or("no such session")?;
            if let Some(packet) = this.frame(at, session.host, code::PADT, id, &Tags::default()) {
                at.push(0, packet);
            }
            Ok(String::new())
        });
    }
}
