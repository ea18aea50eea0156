//! All sessions of a worker: their places, the tables that find them, their timers and limits.

use netbricks_core::Context;
use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{FlowTable, FlowTableConfig, Table, TimerWheel};

use super::access::Access;
use super::discovery::{code, discovery_frame};
use super::limits::{Bucket, DiscoveryLimits};
use super::pool::Pools;
use super::ppp::{Env, Reply, Shared};
use super::random::Random;
use super::session::{Line, NEVER, Session, Which};

/// Nanoseconds of a tick of the timers.
const MS: u64 = 1_000_000;
/// Timers that one call may run.
const DUE: usize = 256;
/// Bits of a session's number for its place, and for what tells it from earlier ones there.
const INDEX_BITS: u32 = 20;
const SERIAL_BITS: u32 = 36;

impl Session {
    /// Tells the subscriber by a PADT that its session is over, unless it said so or was told.
    fn say_end(&mut self, env: &mut Env<'_>) {
        if std::mem::replace(&mut self.heard_padt, true) {
            return;
        }
        let mut link = self.link;
        let len = usize::from(self.link_len);
        link[len - 2..len].copy_from_slice(&netbricks_core::packet::Pppoe::DISCOVERY.to_be_bytes());
        let padt = discovery_frame((&link[..len], code::PADT, self.id), b"", env.cx);
        env.shared.to_access.extend(padt);
    }
}

/// Why a session is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There are as many sessions as there may be.
    Full,
    /// The host has as many as it may have.
    Host,
    /// The line has as many as it may have.
    Line,
}

/// The sessions of one host.
#[derive(Clone, Copy, Debug)]
struct Host {
    count: u32,
    /// The place of the last one.
    last: u32,
}

/// The terms on which sessions go on with what they have.
pub(super) struct Settled {
    capacity: usize,
    mac: MacAddress,
    pools: Pools,
}

impl Settled {
    /// Whether sessions of these terms before surely go on as they are.
    pub(super) fn surely_continues(&self, before: &Self) -> bool {
        (self.capacity, self.mac) == (before.capacity, before.mac) && self.pools.surely_serve(&before.pools)
    }
}

/// The sessions of a worker.
pub(super) struct Sessions {
    pub(super) shared: Shared,
    all: Vec<Option<Session>>,
    free: Vec<u32>,
    /// By line, Ethernet address and SESSION_ID.
    by_key: FlowTable<[u64; 2], u32>,
    hosts: FlowTable<[u64; 2], Host>,
    lines: FlowTable<u64, u32>,
    wheel: TimerWheel,
    due: Vec<u32>,
    /// The worker's number and a count, of which session numbers are made.
    worker: u64,
    serial: u64,
    pub(super) limits: DiscoveryLimits,
    pub(super) stray: Bucket,
    pub(super) cookies: Random,
    capacity: usize,
    /// The time of the last call (ns).
    pub(super) now: u64,
}

impl Sessions {
    /// # Errors
    /// There is no memory.
    pub(super) fn new(
        shared: Shared,
        (limits, cookies): (DiscoveryLimits, Random),
        (worker, seed): (usize, u64),
        is_small: bool,
    ) -> Result<Self, String> {
        let capacity = if is_small { 1 } else { shared.fixed.sessions };
        let table = FlowTableConfig::new(capacity).seeded(seed);
        Ok(Self {
            all: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            by_key: FlowTable::new(table).map_err(|error| error.to_string())?,
            hosts: FlowTable::new(table).map_err(|error| error.to_string())?,
            lines: FlowTable::new(table).map_err(|error| error.to_string())?,
            wheel: TimerWheel::new(capacity).map_err(|error| error.to_string())?,
            due: Vec::with_capacity(DUE),
            worker: worker as u64 & 0xff,
            serial: 0,
            limits,
            stray: Bucket::default(),
            cookies,
            capacity,
            now: 0,
            shared,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.all.iter().flatten()
    }
    /// The place of a session.
    #[inline]
    pub(super) fn find(&self, line: &Line, id: u16) -> Option<u32> {
        self.by_key.get(&line.key(id)).copied()
    }
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Session> {
        self.all.get(index as usize)?.as_ref()
    }
    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.all.get_mut(index as usize)?.as_mut()
    }
    /// The place of the session with this number.
    pub(super) fn numbered(&self, number: u64) -> Option<u32> {
        let index = (number & ((1 << INDEX_BITS) - 1)) as u32;
        self.get(index).filter(|session| session.number == number).map(|_| index)
    }
    pub(super) fn id_of(&self, index: u32) -> u16 {
        self.get(index).map_or(0, |session| session.id)
    }

    /// Whether a session with this number is, or was, one of this worker.
    pub(super) fn is_own(&self, number: u64) -> bool {
        number >> (INDEX_BITS + SERIAL_BITS) == self.worker
    }

    /// The session that this very request of a host began, if its negotiation goes on still.
    pub(super) fn begun(&self, line: &Line, request: u64) -> Option<u32> {
        let last = self.hosts.get(&line.key(0))?.last;
        let is_it = |session: &&Session| {
            session.request == request
                && session.line.key(0) == line.key(0)
                && session.phase() == "establishing"
        };
        self.get(last).filter(is_it).map(|_| last)
    }

    /// Makes a session for a host whose cookie was right; answers its place.
    pub(super) fn begin(
        &mut self,
        access: &Access,
        (request, max_payload): (u64, u16),
        now: u64,
    ) -> Result<u32, Refusal> {
        let line = access.line;
        if self.is_full() {
            return Err(Refusal::Full);
        }
        let fixed = self.shared.fixed.clone();
        let of_host = self.hosts.get(&line.key(0)).map_or(0, |host| host.count);
        if of_host >= fixed.per_mac {
            return Err(Refusal::Host);
        }
        if self.lines.get(&line.vlans()).copied().unwrap_or(0) >= fixed.per_line {
            return Err(Refusal::Line);
        }
        let id = self.free_id(&line).ok_or(Refusal::Full)?;
        let magic = self.shared.random.magic();
        let index = self.place(line, id, now).ok_or(Refusal::Full)?;
        if let Some(session) = self.get_mut(index) {
            session.request = request;
            session.max_payload = max_payload;
            session.magic = magic;
        }
        Ok(index)
    }

    /// Makes a session that begins now; `None` where there is no place for it.
    pub(super) fn place(&mut self, line: Line, id: u16, now: u64) -> Option<u32> {
        if self.is_full() || self.find(&line, id).is_some() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.all.push(None);
                self.all.len() as u32 - 1
            }
        };
        let is_kept = self.by_key.lookup(line.key(id), now).or_insert_with(|| index).is_some()
            && self.hosts.lookup(line.key(0), now).or_insert_with(|| Host { count: 0, last: 0 }).is_some()
            && self.lines.lookup(line.vlans(), now).or_insert_with(|| 0).is_some();
        if !is_kept {
            // No place in one of the tables, which hardly ever happens.
            self.by_key.remove(&line.key(id));
            self.free.push(index);
            self.forget_empty(&line);
            return None;
        }
        if let Some(host) = self.hosts.get_mut(&line.key(0)) {
            *host = Host { count: host.count + 1, last: index };
        }
        if let Some(count) = self.lines.get_mut(&line.vlans()) {
            *count += 1;
        }
        self.serial = (self.serial + 1) & ((1 << SERIAL_BITS) - 1);
        let number = self.worker << (INDEX_BITS + SERIAL_BITS) | self.serial << INDEX_BITS | u64::from(index);
        let session = Session::new((index, number), (line, id), &self.shared.fixed, now);
        *self.all.get_mut(index as usize)? = Some(session);
        Some(index)
    }

    /// A SESSION_ID that the host does not have: neither 0 nor 0xffff (RFC 2516, section 4).
    fn free_id(&mut self, line: &Line) -> Option<u16> {
        (0..64).find_map(|_| {
            let id = self.shared.random.number() as u16;
            (id != 0 && id != u16::MAX && self.find(line, id).is_none()).then_some(id)
        })
    }

    fn forget_empty(&mut self, line: &Line) {
        if self.hosts.get(&line.key(0)).is_some_and(|host| host.count == 0) {
            self.hosts.remove(&line.key(0));
        }
        if self.lines.get(&line.vlans()) == Some(&0) {
            self.lines.remove(&line.vlans());
        }
    }

    /// Begins LCP of a new session.
    pub(super) fn start(&mut self, index: u32, now: u64, cx: &mut Context) {
        self.with(index, now, cx, |session, env| {
            session.step(Which::Lcp, super::automaton::Event::Open, Reply::default(), env);
            session.step(Which::Lcp, super::automaton::Event::Up, Reply::default(), env);
        });
    }

    /// Lends a session to `call`, and then does what became of it: sets its timer, or takes it away.
    pub(super) fn with<R>(
        &mut self,
        index: u32,
        now: u64,
        cx: &mut Context,
        call: impl FnOnce(&mut Session, &mut Env<'_>) -> R,
    ) -> Option<R> {
        let Self { all, shared, wheel, .. } = self;
        let session = all.get_mut(index as usize)?.as_mut()?;
        let env = &mut Env { now, shared, cx };
        let answer = call(session, env);
        if let Some(cause) = session.ended {
            session.withdraw(cause, env);
            session.say_end(env);
            if session.owed.is_none() {
                self.take_away(index);
                return Some(answer);
            }
        }
        match session.next_due() {
            NEVER => {
                wheel.remove(index as usize);
            }
            due => wheel.insert(index as usize, due.div_ceil(MS)),
        }
        Some(answer)
    }

    /// Sets the timer of a session that came from elsewhere.
    pub(super) fn file(&mut self, index: u32) {
        if let Some(due) = self.get(index).map(Session::next_due).filter(|due| *due != NEVER) {
            self.wheel.insert(index as usize, due.div_ceil(MS));
        }
    }

    /// Asks for a turn of a session as soon as possible.
    pub(super) fn call_on(&mut self, index: u32) {
        if self.get(index).is_some() {
            self.wheel.insert(index as usize, 0);
        }
    }

    fn take_away(&mut self, index: u32) {
        let Some(session) = self.all.get_mut(index as usize).and_then(Option::take) else { return };
        if session.up_since == 0 {
            self.shared.counts.failed.add(1);
        }
        let line = session.line;
        self.by_key.remove(&line.key(session.id));
        if let Some(host) = self.hosts.get_mut(&line.key(0)) {
            host.count = host.count.saturating_sub(1);
        }
        if let Some(count) = self.lines.get_mut(&line.vlans()) {
            *count = count.saturating_sub(1);
        }
        self.forget_empty(&line);
        self.wheel.remove(index as usize);
        self.free.push(index);
    }

    /// Runs timers that are due at `now` (ns), up to a bound.
    pub(super) fn run_timers(&mut self, now: u64, cx: &mut Context) {
        self.now = now;
        self.shared.random.stir(now);
        if !self.wheel.is_due(now / MS) {
            return;
        }
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.wheel.advance(now / MS, DUE, |index| {
            due.push(index as u32);
            None
        });
        // The wheel promises no order, and results must not depend on it.
        due.sort_unstable();
        for index in due.iter().copied() {
            self.with(index, now, cx, |session, env| session.turn(env));
        }
        self.due = due;
    }

    /// When the next timer is due (ns).
    pub(super) fn next_due(&self) -> Option<u64> {
        self.wheel.next_deadline().map(|tick| tick.saturating_mul(MS))
    }

    /// The terms on which its sessions go on.
    pub(super) fn settled(&self) -> Settled {
        let (mac, pools) = (self.shared.fixed.mac, self.shared.addresses.pools());
        Settled { capacity: self.capacity, mac, pools }
    }

    /// Goes on with the sessions of the node that this one replaces, where the same pools serve both.
    pub(super) fn continue_with(&mut self, old: &mut Self) -> bool {
        let (new, was) = (&self.shared.fixed, &old.shared.fixed);
        let is_same = self.capacity == old.capacity
            && new.mac == was.mac
            && self.shared.addresses.serves_like(&old.shared.addresses);
        if is_same {
            std::mem::swap(&mut self.by_key, &mut old.by_key);
            std::mem::swap(&mut self.all, &mut old.all);
            std::mem::swap(&mut self.free, &mut old.free);
            std::mem::swap(&mut self.hosts, &mut old.hosts);
            std::mem::swap(&mut self.lines, &mut old.lines);
            std::mem::swap(&mut self.wheel, &mut old.wheel);
            std::mem::swap(&mut self.cookies, &mut old.cookies);
            std::mem::swap(&mut self.shared.random, &mut old.shared.random);
            self.shared.addresses.continue_with(&mut old.shared.addresses);
            std::mem::swap(&mut self.shared.requests, &mut old.shared.requests);
            self.serial = self.serial.max(old.serial);
        }
        is_same
    }
}
