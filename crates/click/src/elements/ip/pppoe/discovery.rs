//! `PPPoEDiscovery`: how hosts find an access concentrator and get a session (RFC 2516, section 5).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;

use netbricks_core::buffer::Packet;
use netbricks_core::{DropReason, Random};

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
    /// Its place in the order of use: the time of its last use, or of an earlier one.
    filed: u64,
}

/// Sessions that one request for another looks at, when it searches one that was unused for long.
const LOOKS: usize = 16;
/// For so long (ns) hosts may answer with a cookie, and at most twice as long.
const EPOCH: u64 = 60 * SECOND;
/// The last number of a session.
const LAST: u16 = 0xFFFE;

/// Sessions by number, by host and by use.
#[derive(Default)]
struct Sessions {
    by_number: BTreeMap<u16, Session>,
    /// How many each host has.
    of_host: HashMap<[u8; 6], usize>,
    /// When each was filed, and its number. A search moves it on, and not each use.
    by_use: BTreeSet<(u64, u16)>,
    /// The last number that was given for the first time, and numbers of sessions that have ended.
    latest: u16,
    free: VecDeque<u16>,
}

impl Sessions {
    fn len(&self) -> usize {
        self.by_number.len()
    }
    /// Opens a session. `None`: all numbers are in use.
    fn open(&mut self, host: [u8; 6], now: u64) -> Option<u16> {
        let id = if self.latest < LAST {
            self.latest += 1;
            self.latest
        } else {
            self.free.pop_front()?
        };
        self.by_number.insert(id, Session { host, used: now, filed: now });
        self.by_use.insert((now, id));
        *self.of_host.entry(host).or_default() += 1;
        Some(id)
    }
    fn end(&mut self, id: u16) -> Option<Session> {
        let session = self.by_number.remove(&id)?;
        self.by_use.remove(&(session.filed, id));
        if let Some(count) = self.of_host.get_mut(&session.host) {
            *count -= 1;
            if *count == 0 {
                self.of_host.remove(&session.host);
            }
        }
        self.free.push_back(id);
        Some(session)
    }
    /// The session that was unused for longest, if that is since before `limit`. It looks at few.
    fn unused_since(&mut self, limit: u64, looks: &mut usize) -> Option<u16> {
        while *looks > 0 {
            *looks -= 1;
            let (filed, id) = *self.by_use.first()?;
            if filed >= limit {
                return None;
            }
            let session = self.by_number.get_mut(&id)?;
            if session.used == filed {
                return Some(id);
            }
            session.filed = session.used;
            self.by_use.remove(&(filed, id));
            self.by_use.insert((session.used, id));
        }
        None
    }
}

/// `PPPoEDiscovery(ETHER, NAME [, SERVICES, CAPACITY, PER_HOST, TIMEOUT])`: an access concentrator.
///
/// It takes Ethernet frames and answers PADI with PADO, and PADR with PADS, which opens a session. Frames that are not
/// of the discovery stage go to output 1. `SERVICES` are the names that hosts may ask for beside the empty one.
/// A cookie in PADO, which a host must repeat within a minute, keeps forged addresses out of the table of sessions.
/// Sessions end by PADT. When the table has `CAPACITY`, the one that was unused for longest ends, if that was for `TIMEOUT`.
pub(super) struct PppoeDiscovery {
    address: Ether,
    name: String,
    services: Vec<Vec<u8>>,
    capacity: usize,
    per_host: usize,
    timeout: u64,
    secret: [u64; 2],
    sessions: RefCell<Sessions>,
    refused: Cell<u64>,
    bad: Cell<u64>,
}

fn pppoe_discovery(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
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
        capacity: usize::from(capacity.min(LAST)),
        per_host: usize::from(per_host.max(1)),
        timeout: timeout.0,
        secret: [(); 2].map(|()| setup.at.router.secret()),
        sessions: RefCell::default(),
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
    fn cookie(&self, host: [u8; 6], epoch: u64) -> [u8; 8] {
        let [one, other] = self.secret.map(u64::to_le_bytes);
        Random::of(&[b"PPPoE", &one, &other, &host, &epoch.to_le_bytes()]).draw().to_be_bytes()
    }
    /// Whether a host has a cookie that it got in this epoch or the one before.
    fn knows(&self, host: [u8; 6], cookie: Option<&[u8]>, now: u64) -> bool {
        let epoch = now / EPOCH;
        [epoch, epoch.wrapping_sub(1)].iter().any(|epoch| cookie == Some(&self.cookie(host, *epoch)))
    }
    fn offers(&self, service: &[u8]) -> bool {
        service.is_empty() || self.services.iter().any(|known| known == service)
    }
    /// The host of a session.
    pub(super) fn host(&self, session: u16) -> Option<[u8; 6]> {
        self.sessions.borrow().by_number.get(&session).map(|session| session.host)
    }
    /// Notes that a host used its session. `false`: it has no such session.
    pub(super) fn touch(&self, session: u16, host: [u8; 6], now: u64) -> bool {
        match self.sessions.borrow_mut().by_number.get_mut(&session) {
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
        let limit = now.saturating_sub(self.timeout);
        let mut sessions = self.sessions.borrow_mut();
        let Some(id) = sessions.unused_since(limit, &mut { LOOKS }) else { return };
        let ended = sessions.end(id);
        drop(sessions);
        if let Some(session) = ended
            && let Some(packet) = self.frame(at, session.host, code::PADT, id, &Tags::default())
        {
            at.push(0, packet);
        }
    }

    /// Opens a session. `None`: there is no room.
    fn open(&self, at: At<'_>, host: [u8; 6]) -> Option<u16> {
        let now = at.steady();
        if self.sessions.borrow().of_host.get(&host).is_some_and(|own| *own >= self.per_host) {
            return None;
        }
        if self.sessions.borrow().len() >= self.capacity {
            self.make_room(at, now);
        }
        let mut sessions = self.sessions.borrow_mut();
        if sessions.len() >= self.capacity { None } else { sessions.open(host, now) }
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
                answer.add(tag::AC_COOKIE, &self.cookie(request.host, at.steady() / EPOCH));
                answer.repeat(request);
                self.frame(at, request.host, code::PADO, 0, &answer)
            }
            code::PADR if request.to == self.address.0 && request.session == 0 => {
                if !self.knows(request.host, request.tag(tag::AC_COOKIE), at.steady()) {
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
                self.sessions.borrow_mut().end(request.session);
                None
            }
            _ => None,
        }
    }
}

impl Element for PppoeDiscovery {
    fn memory(&self) -> usize {
        let sessions = self.sessions.borrow();
        // Trees have about as much again for their nodes.
        2 * sessions.len() * (size_of::<(u16, Session)>() + size_of::<(u64, u16)>())
            + sessions.of_host.capacity() * (size_of::<([u8; 6], usize)>() + 1)
            + sessions.free.capacity() * size_of::<u16>()
            + self.services.iter().map(|service| size_of::<Vec<u8>>() + service.len()).sum::<usize>()
    }
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
            for (id, session) in &this.sessions.borrow().by_number {
                let _ = writeln!(text, "{id}\t{}", Ether(session.host));
            }
            text
        });
        handlers.read("count", |this: &Self, _| this.sessions.borrow().len());
        handlers.read("refused", |this: &Self, _| this.refused.get());
        handlers.read("bad", |this: &Self, _| this.bad.get());
        handlers.write("end", |this: &Self, at, value| {
            let id: u16 = value.trim().parse().map_err(|_| "expected session")?;
            let session = this.sessions.borrow_mut().end(id).ok_or("no such session")?;
            if let Some(packet) = this.frame(at, session.host, code::PADT, id, &Tags::default()) {
                at.push(0, packet);
            }
            Ok(String::new())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_looks_at_few_sessions() {
        let mut sessions = Sessions::default();
        for number in 0..1_000_u64 {
            let id = sessions.open([2, 0, 0, 0, (number >> 8) as u8, number as u8], number);
            assert_eq!(id, Some(number as u16 + 1));
        }
        // All but number 700 were used since.
        for (id, session) in &mut sessions.by_number {
            session.used = if *id == 700 { session.used } else { 5_000 };
        }
        let mut found = None;
        let mut searches = 0;
        while found.is_none() {
            let mut looks = LOOKS;
            found = sessions.unused_since(4_000, &mut looks);
            searches += 1;
            assert!(searches <= 1_000 / LOOKS + 1, "each search goes on where the one before ended");
        }
        assert_eq!((found, searches), (Some(700), 700_usize.div_ceil(LOOKS)));
        // What is left was used: one look tells.
        sessions.end(700);
        let mut looks = LOOKS;
        for _ in 0..1_000 / LOOKS {
            assert_eq!(sessions.unused_since(4_000, &mut looks), None);
            looks = LOOKS;
        }
        assert_eq!((sessions.unused_since(4_000, &mut looks), looks), (None, LOOKS - 1));
    }

    #[test]
    fn numbers_and_hosts_are_kept_in_step() {
        let mut sessions = Sessions::default();
        let host = |number: u16| [2, 0, 0, 0, 0, number as u8];
        for round in 0..3 {
            while sessions.open(host(round), round.into()).is_some() {}
            assert_eq!(sessions.len(), usize::from(LAST));
            assert_eq!(sessions.of_host.values().sum::<usize>(), sessions.len());
            let all: Vec<u16> = sessions.by_number.keys().copied().collect();
            all.iter().for_each(|id| assert!(sessions.end(*id).is_some()));
            assert!(sessions.of_host.is_empty() && sessions.by_use.is_empty() && sessions.len() == 0);
        }
    }

    #[test]
    fn a_cookie_is_good_for_a_minute_or_two() {
        let run = crate::testing::build("Idle -> d :: PPPoEDiscovery(02:00:00:00:00:01, ac) -> Discard");
        let router = run.router.expect("a configuration");
        let ids = 0..router.len();
        let found = ids.into_iter().find_map(|id| router.element_as::<PppoeDiscovery>(id));
        let discovery = found.expect("the element");
        let (host, other) = ([2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]);
        let cookie = discovery.cookie(host, 5);
        for (time, good) in
            [(5 * EPOCH, true), (7 * EPOCH - 1, true), (7 * EPOCH, false), (5 * EPOCH - 1, false)]
        {
            assert_eq!(discovery.knows(host, Some(&cookie), time), good, "{time}");
            assert!(!discovery.knows(other, Some(&cookie), time) && !discovery.knows(host, None, time));
        }
    }
}
