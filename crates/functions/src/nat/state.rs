//! The translations of a worker: sessions, mappings, subscribers, and the time at which each ends.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Table, TableError, TimerWheel};
use netbricks_core::{DropReason, StoredFlow, TableKey};

use super::config::{Filtering, NatConfig, Pooling};
use super::identification::Identifications;
use super::log::Log;
use super::neighbors::Neighbors;
use super::pcp_mappings::{Pcp, Suggested};
use super::ports::Ports;
use super::purge::Purge;
use super::session::{
    Direction, Mapping, Phase, Route, Session, Subscriber, Way, contact_key, inside_key, outside_key, tag_of,
};
use super::slab::Slab;
use super::spec::{Endpoint, Prefix, Transport};
use super::succession::Ground;
use super::timeouts::Timeouts;

/// A tick of the timers: 2²⁴ ns, 17 ms.
const TICK: u32 = 24;
/// The flow table's clock may be so far behind (ns).
const SLACK: u64 = 1 << 21;

/// Hosts inside whose Ethernet addresses are known at most.
const MOST_HOSTS: usize = 1 << 16;

/// The limits of a subscriber; 0 is none.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    ports: u32,
    sessions: u32,
    pub(super) rate: u32,
    pub(super) blocks: u8,
    v6_bits: u8,
}

/// A packet's addresses and ports behind the translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    /// The Ethernet address of the host inside, where it is known.
    pub(super) neighbor: Option<MacAddress>,
}

/// Events that are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sessions_made: u64,
    pub(super) mappings_made: u64,
    pub(super) expired: u64,
    pub(super) exhausted: u64,
    pub(super) limited: u64,
    /// Sessions that answers could not be told from those of another, because of a redirect.
    pub(super) conflicting: u64,
    /// Sessions of another worker or configuration that found no place here.
    pub(super) not_admitted: u64,
}

pub(super) struct State {
    /// The route of each direction of each session.
    pub(super) flows: FlowTable<StoredFlow, u64>,
    /// Mappings by their endpoint inside, and by that outside.
    pub(super) index: FlowTable<StoredFlow, u32>,
    pub(super) by_address: FlowTable<IpAddr, u32>,
    /// With address-dependent filtering: the sessions of each mapping with each remote address.
    contacts: Option<FlowTable<StoredFlow, u32>>,
    pub(super) sessions: Slab<Session>,
    pub(super) mappings: Slab<Mapping>,
    pub(super) subscribers: Slab<Subscriber>,
    /// Taken out while timers fire.
    wheel: Option<TimerWheel>,
    pub(super) ports: Ports,
    /// Whole addresses, inside and outside, sorted by the first.
    pub(super) whole_inside: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) whole_outside: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) neighbors: Neighbors,
    /// The Ethernet addresses of hosts inside, as they were last seen.
    hosts: FlowTable<IpAddr, MacAddress>,
    pub(super) timeouts: Timeouts,
    pub(super) limits: Limits,
    pub(super) filtering: Filtering,
    pub(super) pooling: Pooling,
    /// The prefixes inside.
    pub(super) inside: Vec<Prefix>,
    /// The first address of each prefix inside and its addresses, where blocks are deterministic.
    pub(super) deterministic: Option<Vec<(u32, u32)>>,
    pub(super) capacity: usize,
    /// Static mappings of ports.
    pub(super) fixed: usize,
    pub(super) now: u64,
    pub(super) tally: Tally,
    pub(super) log: Log,
    pub(super) identifications: Option<Identifications>,
    /// Mappings that hosts asked for.
    pub(super) pcp: Pcp,
    /// Sessions that the operator ends.
    pub(super) purges: VecDeque<Purge>,
    pub(super) ground: Arc<Ground>,
    /// Whether handlers have changed the pool or static mappings.
    pub(super) is_altered: bool,
    /// The next session whose timer is set again by other timeouts.
    pub(super) next_timer: Option<usize>,
}

impl State {
    /// Empty translations; a `small` state has room for one session, and never sees a packet.
    pub(super) fn new(config: &NatConfig, seed: u64, small: bool) -> Result<Self, TableError> {
        let capacity = if small { 1 } else { config.capacity };
        let fixed = if small { 0 } else { config.fixed.len() + super::handlers::MOST_STATIC };
        let table = |capacity: usize, timeout| FlowTableConfig {
            capacity,
            idle_timeout: timeout,
            full: Full::Refuse,
            seed,
        };
        let adf = config.filtering == Filtering::AddressDependent;
        let contacts = if adf { Some(FlowTable::new(table(capacity, None))?) } else { None };
        // The timers of sessions come first, and then those of mappings by PCP.
        let asked = Pcp::capacity(config, small);
        let timers = capacity + asked;
        let wheel = TimerWheel::new(timers).map_err(|source| TableError::Memory { capacity, source })?;
        let deterministic = config
            .deterministic
            .then(|| config.inside_v4().map(|(low, high)| (low, high - low + 1)).collect());
        let mut state = Self {
            flows: FlowTable::new(table(2 * capacity, None))?,
            index: FlowTable::new(table(2 * (capacity + fixed + asked), None))?,
            by_address: FlowTable::new(table(capacity + asked, None))?,
            contacts,
            sessions: Slab::new(capacity),
            // Mappings by PCP need no session.
            mappings: Slab::new(capacity + fixed + asked),
            subscribers: Slab::new(capacity + asked),
            wheel: Some(wheel),
            ports: Ports::new(config, seed, small),
            whole_inside: Vec::new(),
            whole_outside: Vec::new(),
            neighbors: Neighbors::new(small, seed)?,
            hosts: FlowTable::new(FlowTableConfig {
                full: Full::EvictOldest,
                ..table(if small { 1 } else { capacity.min(MOST_HOSTS) }, None)
            })?,
            timeouts: Timeouts::new(config),
            limits: Limits {
                ports: config.subscriber_ports,
                sessions: config.subscriber_sessions,
                rate: config.subscriber_rate,
                blocks: config.blocks,
                v6_bits: config.subscriber_v6,
            },
            filtering: config.filtering,
            pooling: config.pooling,
            inside: config.inside.clone(),
            deterministic,
            capacity,
            fixed: 0,
            now: 0,
            tally: Tally::default(),
            log: Log::new(if small { 1 } else { config.log }),
            identifications: config.identification.then(|| Identifications::new(seed)),
            pcp: Pcp::new(config, small),
            purges: VecDeque::new(),
            ground: Arc::new(Ground::new(config)),
            is_altered: false,
            next_timer: None,
        };
        if !small {
            for mapping in &config.fixed {
                // Conflicts were refused with the settings.
                let _ = state.add_static(mapping);
            }
        }
        Ok(state)
    }

    /// Moves the time on, and ends sessions that are over, of at most `budget` timers.
    pub(super) fn advance(&mut self, now: u64, budget: usize) {
        self.now = self.now.max(now);
        self.pcp.started = self.pcp.started.min(self.now);
        self.flows.tell(self.now);
        let Some(mut wheel) = self.wheel.take() else { return };
        wheel.advance(self.now >> TICK, budget, |timer| self.due(timer as u32));
        self.wheel = Some(wheel);
        for _ in 0..budget {
            let Some((index, port)) = self.ports.free_one_held(self.now) else { break };
            self.freed(index, port);
        }
        self.purge_some(budget);
    }

    /// Ends everything that is over.
    pub(super) fn expire_all(&mut self, now: u64) {
        loop {
            self.advance(now, 1 << 12);
            let due = self.wheel.as_ref().is_some_and(|wheel| wheel.is_due(self.now >> TICK));
            // A timer that was put off is due later.
            if !due {
                break;
            }
        }
    }

    /// The timer of a session came: it ends, or its timer is set again.
    fn due(&mut self, number: u32) -> Option<u64> {
        if let Some(number) = number.checked_sub(self.capacity as u32) {
            return self.pcp_due(number).map(tick_after);
        }
        let session = *self.sessions.get(number)?;
        let ends = self.ends_at(&session);
        if ends <= self.now {
            self.tally.expired += 1;
            self.end(number);
            return None;
        }
        Some(tick_after(ends))
    }

    /// The time (ns) at which a session is over if no more packets come.
    fn ends_at(&self, session: &Session) -> u64 {
        let timeout = self.timeouts.of(session);
        // Both ends have closed it: late segments do not keep it (RFC 6146, section 3.5.2.2).
        if session.phase == Phase::Closed {
            return session.since.saturating_add(timeout);
        }
        let mut idle = self.flows.idle(&session.out_key().store());
        if self.timeouts.inbound_refresh || session.transport == Transport::Tcp {
            let inbound = self.external(session.mapping).map(|external| session.in_key(external).store());
            let inbound = inbound.and_then(|key| self.flows.idle(&key));
            idle = idle.into_iter().chain(inbound).min();
        }
        let last = self.now.saturating_sub(idle.unwrap_or(0));
        // No packet has come since the session moved here.
        let last = if last <= session.since.saturating_add(SLACK) { session.known_at } else { last };
        let until =
            session.pcp.and_then(|number| self.pcp.mappings.get(number)).map_or(0, |found| found.until);
        last.saturating_add(timeout).saturating_add(SLACK).max(until)
    }

    /// The endpoint outside of a mapping.
    pub(super) fn external(&self, mapping: u32) -> Option<Endpoint> {
        let mapping = self.mappings.get(mapping)?;
        Some(Endpoint { address: self.ports.address(mapping.index)?.into(), port: mapping.port })
    }

    /// Files the timer of a mapping by PCP.
    pub(super) fn set_pcp_timer(&mut self, number: u32, until: u64) {
        if let Some(wheel) = &mut self.wheel {
            wheel.insert(self.capacity + number as usize, tick_after(until));
        }
    }

    pub(super) fn remove_pcp_timer(&mut self, number: u32) {
        if let Some(wheel) = &mut self.wheel {
            wheel.remove(self.capacity + number as usize);
        }
    }

    /// Files the timer of a session whose last packet came at this time.
    fn set_timer(&mut self, number: u32, last: u64) {
        let Some(session) = self.sessions.get(number) else { return };
        let ends = last.saturating_add(self.timeouts.of(session)).saturating_add(SLACK);
        self.file_timer(number, ends);
    }

    /// Files the timer of a session again, for the time at which it ends by its last packet.
    pub(super) fn reset_timer(&mut self, number: u32) {
        let Some(session) = self.sessions.get(number) else { return };
        self.file_timer(number, self.ends_at(session));
    }

    fn file_timer(&mut self, number: u32, ends: u64) {
        let due = tick_after(ends.max(self.now));
        if let Some(wheel) = &mut self.wheel {
            wheel.insert(number as usize, due);
        }
    }

    /// The session of a flow, and the direction of the flow in it; refreshes it.
    pub(super) fn lookup(&mut self, flow: &FlowKey) -> Option<(Direction, u32)> {
        let route = Route(*self.flows.lookup(flow.store(), self.now).found()?);
        self.named(route, flow)
    }

    /// As [`lookup`](Self::lookup), without a change.
    pub(super) fn peek(&self, flow: &FlowKey) -> Option<(Direction, u32)> {
        let route = Route(*self.flows.get(&flow.store())?);
        self.named(route, flow)
    }

    fn named(&self, route: Route, flow: &FlowKey) -> Option<(Direction, u32)> {
        match route.session() {
            (direction, Some(session)) => Some((direction, session)),
            // The session is found by the key of its other direction.
            (direction, None) => {
                let super::session::Way::In { address, port, .. } = route.way() else { return None };
                let inside = Ipv4Addr::from_bits(address).into();
                let out = FlowKey::new(inside, flow.source(), port, flow.source_port(), flow.protocol());
                let route = Route(*self.flows.get(&out.store())?);
                Some((direction, route.session().1?))
            }
        }
    }

    /// The addresses and ports of a session's packets behind the translation.
    pub(super) fn translated(&self, number: u32, direction: Direction) -> Option<Translated> {
        let session = self.sessions.get(number)?;
        Some(match direction {
            Direction::Out => Translated {
                source: self.external(session.mapping)?,
                destination: session.remote,
                neighbor: None,
            },
            Direction::In => Translated {
                source: session.seen,
                destination: session.inside,
                neighbor: self.neighbor_of(session.mapping),
            },
        })
    }

    fn neighbor_of(&self, mapping: u32) -> Option<MacAddress> {
        self.mappings.get(mapping).and_then(|mapping| self.neighbor_behind(mapping))
    }

    /// The Ethernet address of a mapping's host, where it is known.
    ///
    /// A subscriber of IPv6 has many hosts: its own address is the last one's.
    pub(super) fn neighbor_behind(&self, mapping: &Mapping) -> Option<MacAddress> {
        let Some(subscriber) = mapping.subscriber.and_then(|number| self.subscribers.get(number)) else {
            return self.host(mapping.inside.address);
        };
        match mapping.inside.address {
            IpAddr::V4(_) => subscriber.neighbor,
            address @ IpAddr::V6(_) => self.host(address).or(subscriber.neighbor),
        }
    }

    /// Whether there are static mappings.
    pub(super) fn has_static(&self) -> bool {
        self.fixed > 0 || !self.whole_outside.is_empty()
    }

    /// The Ethernet address of a host inside, where it is known.
    pub(super) fn host(&self, address: IpAddr) -> Option<MacAddress> {
        self.hosts.get(&address).copied()
    }

    /// Notes the Ethernet address of a host inside.
    pub(super) fn learn_host(&mut self, address: IpAddr, mac: MacAddress) {
        match self.hosts.lookup(address, self.now) {
            Entry::Found(mut found) => *found.get_mut() = mac,
            Entry::Vacant(place) => drop(place.insert(mac)),
            Entry::Full => {}
        }
    }

    /// Notes another Ethernet address of a host of which one is known (RFC 826: the entry is merged).
    pub(super) fn merge_host(&mut self, address: IpAddr, mac: MacAddress) {
        if let Some(known) = self.hosts.get_mut(&address) {
            *known = mac;
        }
        let subscriber = self.by_address.get(&address).copied();
        if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number))
            && subscriber.neighbor.is_some()
        {
            subscriber.neighbor = Some(mac);
        }
    }

    /// A packet of a session came from this Ethernet address inside: packets to the inside go there.
    pub(super) fn hear(&mut self, number: u32, mac: MacAddress) {
        let Some(session) = self.sessions.get(number).copied() else { return };
        let Some(mapping) = self.mappings.get(session.mapping).copied() else { return };
        let known = match session.inside.address {
            IpAddr::V4(_) => self.neighbor_behind(&mapping),
            address @ IpAddr::V6(_) => self.host(address),
        };
        if known != Some(mac) {
            self.learn_host(session.inside.address, mac);
            if let Some(subscriber) = mapping.subscriber.and_then(|number| self.subscribers.get_mut(number)) {
                subscriber.neighbor = Some(mac);
            }
        }
        // Other sessions of the host may have made the address known already.
        let route = self.flows.get(&session.out_key().store()).map(|route| Route(*route).way());
        if matches!(route, Some(Way::Out { tag, .. }) if tag != tag_of(mac.octets())) {
            self.set_routes(number);
        }
    }

    /// Takes notice of a TCP segment's flags; answers `false` where it does not fit.
    pub(super) fn track(&mut self, number: u32, direction: Direction, seen: u8) -> bool {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(number) else { return false };
        let before = session.phase;
        let after = before.after(seen, direction);
        if after != before {
            session.phase = after;
            (session.since, session.known_at) = (now, now);
            if before.is_settled() != after.is_settled() {
                self.set_routes(number);
            }
            self.set_timer(number, now);
        }
        true
    }

    /// Writes the routes of a session by its state.
    fn set_routes(&mut self, number: u32) {
        let Some(session) = self.sessions.get(number).copied() else { return };
        let Some(external) = self.external(session.mapping) else { return };
        let Some([out, inside]) = self.routes(number, &session) else { return };
        for (key, route) in [(session.out_key(), out), (session.in_key(external), inside)] {
            let gone = match self.flows.get_mut(&key.store()) {
                Some(place) => std::mem::replace(place, route.0),
                None => route.0,
            };
            self.give_back(Route(gone));
        }
    }

    /// A route has gone: its host's number may be free.
    fn give_back(&mut self, gone: Route) {
        if let Way::In { neighbor, .. } = gone.way() {
            self.neighbors.give(neighbor);
        }
    }

    fn remove_flow(&mut self, key: &StoredFlow) {
        if let Some(gone) = self.flows.remove(key) {
            self.give_back(Route(gone));
        }
    }

    /// The routes of a session. The second one's host has a number, until it is [given back](Self::give_back).
    fn routes(&mut self, number: u32, session: &Session) -> Option<[Route; 2]> {
        let Mapping { index, port, .. } = *self.mappings.get(session.mapping)?;
        if session.is_simple()
            && session.phase.is_settled()
            && let IpAddr::V4(inside) = session.inside.address
        {
            let known = self.neighbor_of(session.mapping);
            let tag = known.map_or(0, |mac| tag_of(mac.octets()));
            let neighbor = match known {
                Some(mac) => self.neighbors.take(mac),
                None => Some(0),
            };
            // Without a number, the session is asked for the address.
            let back = neighbor.map(|neighbor| Route::inside(inside, session.inside.port, neighbor));
            let back = back.unwrap_or(Route::ask(Direction::In, number));
            return Some([Route::out(index, port, number, tag), back]);
        }
        Some([Route::ask(Direction::Out, number), Route::ask(Direction::In, number)])
    }

    /// Makes a session, and a mapping where the endpoint inside has none.
    ///
    /// # Errors
    /// The reason to drop its packet; nothing has changed then.
    pub(super) fn open(&mut self, new: NewSession, neighbor: Option<MacAddress>) -> Result<u32, DropReason> {
        let NewSession { inside, seen, remote, transport, phase } = new;
        if let Some(mac) = neighbor {
            self.learn_host(inside.address, mac);
        }
        if self.sessions.is_full() {
            self.tally.exhausted += 1;
            return Err(DropReason::TableFull);
        }
        let (mapping, is_new) = match self.mapping_inside(inside, transport) {
            Some(mapping) => (mapping, false),
            None => (self.map(inside, transport, None)?, true),
        };
        if let Some(mac) = neighbor {
            let subscriber = self.mappings.get(mapping).and_then(|mapping| mapping.subscriber);
            if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number)) {
                subscriber.neighbor = Some(mac);
            }
        }
        let hairpin = self.is_outside(remote.address);
        let session = Session {
            inside,
            seen,
            remote,
            transport,
            phase,
            hairpin,
            mapping,
            pcp: None,
            made: 0,
            known_at: self.now,
            since: self.now,
        };
        let opened = self.enter(session);
        if opened.is_err() && is_new {
            self.unmap(mapping, true);
        }
        opened
    }

    /// Enters a session whose mapping is there.
    pub(super) fn enter(&mut self, mut session: Session) -> Result<u32, DropReason> {
        if self.is_ending(session.mapping) {
            return Err(DropReason::NoMapping);
        }
        session.made = self.tally.sessions_made;
        let subscriber = self.mappings.get(session.mapping).and_then(|mapping| mapping.subscriber);
        if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get(number))
            && self.limits.sessions > 0
            && subscriber.sessions >= self.limits.sessions
        {
            self.tally.limited += 1;
            return Err(DropReason::SubscriberLimit);
        }
        let external = self.external(session.mapping).ok_or(DropReason::NoMapping)?;
        let keys = [session.out_key().store(), session.in_key(external).store()];
        if self.flows.get(&keys[1]).is_some() {
            // A redirect: the host has this remote endpoint from the same port by its other address.
            self.tally.conflicting += 1;
            return Err(DropReason::NoMapping);
        }
        let number = self.sessions.insert(session).ok_or(DropReason::TableFull)?;
        let routes = self.routes(number, &session).ok_or(DropReason::NoMapping)?;
        let mut entered = 0;
        for (key, route) in keys.into_iter().zip(routes) {
            match self.flows.lookup(key, self.now) {
                Entry::Vacant(place) => {
                    place.insert(route.0);
                    entered += 1;
                }
                Entry::Found(_) | Entry::Full => break,
            }
        }
        if entered < keys.len() {
            for key in keys.iter().take(entered) {
                self.flows.remove(key);
            }
            // The second one gave the host its number, whether it was entered or not.
            self.give_back(routes[1]);
            self.sessions.remove(number);
            return Err(DropReason::TableFull);
        }
        self.touch_contact(&session, external, true);
        if let Some(mapping) = self.mappings.get_mut(session.mapping) {
            mapping.sessions += 1;
        }
        if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number)) {
            subscriber.sessions += 1;
        }
        self.tally.sessions_made += 1;
        self.set_timer(number, session.known_at);
        Ok(number)
    }

    /// Counts a session of a mapping with a remote address, where filtering asks for that.
    fn touch_contact(&mut self, session: &Session, external: Endpoint, more: bool) {
        let (Some(contacts), IpAddr::V4(address)) = (&mut self.contacts, external.address) else { return };
        let key = contact_key(session.remote.address, address, external.port, session.transport).store();
        match contacts.lookup(key, self.now) {
            Entry::Found(mut found) if more => *found.get_mut() += 1,
            Entry::Found(mut found) if *found.get() > 1 => *found.get_mut() -= 1,
            Entry::Found(found) => drop(found.remove()),
            Entry::Vacant(place) if more => drop(place.insert(1)),
            Entry::Vacant(_) | Entry::Full => {}
        }
    }

    /// Whether a mapping lets in a packet of a remote endpoint with which it has no session.
    pub(super) fn lets_in(&self, mapping: &Mapping, remote: Endpoint) -> bool {
        if mapping.subscriber.is_none() {
            return true;
        }
        if let Some(asked) = mapping.pcp.and_then(|number| self.pcp.mappings.get(number)) {
            return asked.admits(remote);
        }
        match (self.filtering, &self.contacts) {
            (Filtering::EndpointIndependent, _) => true,
            (Filtering::AddressDependent, Some(contacts)) => {
                self.ports.address(mapping.index).is_some_and(|address| {
                    let key = contact_key(remote.address, address, mapping.port, mapping.transport);
                    contacts.get(&key.store()).is_some()
                })
            }
            _ => false,
        }
    }

    /// Ends a session, and its mapping with the last.
    pub(super) fn end(&mut self, number: u32) {
        // RFC 6888, REQ-8 (A): the end of a TCP connection was seen.
        let closed = self.sessions.get(number).is_some_and(|session| session.phase == Phase::Closed);
        self.end_with(number, closed);
    }

    /// Ends a session; if it was the last of its mapping, the port is free `at_once`, or held down.
    pub(super) fn end_with(&mut self, number: u32, at_once: bool) {
        let Some(session) = self.sessions.remove(number) else { return };
        if let Some(number) = session.pcp {
            self.pcp_remove(number);
        }
        if let Some(wheel) = &mut self.wheel {
            wheel.remove(number as usize);
        }
        self.remove_flow(&session.out_key().store());
        if let Some(external) = self.external(session.mapping) {
            self.remove_flow(&session.in_key(external).store());
            self.touch_contact(&session, external, false);
        }
        let Some(mapping) = self.mappings.get_mut(session.mapping) else { return };
        mapping.sessions = mapping.sessions.saturating_sub(1);
        let (is_idle, subscriber) = (mapping.is_idle(), mapping.subscriber);
        if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number)) {
            subscriber.sessions = subscriber.sessions.saturating_sub(1);
        }
        if is_idle {
            self.unmap(session.mapping, at_once);
        }
    }

    pub(super) fn mapping_inside(&self, inside: Endpoint, transport: Transport) -> Option<u32> {
        self.index.get(&inside_key(inside, transport).store()).copied()
    }

    pub(super) fn mapping_outside(&self, address: Ipv4Addr, port: u16, transport: Transport) -> Option<u32> {
        self.index.get(&outside_key(address, port, transport).store()).copied()
    }

    /// Whether an address is one of the pool or of a static mapping.
    #[inline]
    pub(super) fn is_outside(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.ports.index(address).is_some(),
            IpAddr::V6(_) => false,
        }
    }

    /// The subscriber's address of an address inside.
    pub(super) fn subscriber_address(&self, inside: IpAddr) -> IpAddr {
        match inside {
            IpAddr::V4(_) => inside,
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.limits.v6_bits)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }

    /// Makes a mapping of an endpoint inside.
    pub(super) fn map(
        &mut self,
        inside: Endpoint,
        transport: Transport,
        suggested: Option<Suggested>,
    ) -> Result<u32, DropReason> {
        let address = self.subscriber_address(inside.address);
        let number = match self.by_address.get(&address) {
            Some(number) => *number,
            None => self.subscribe(address, transport, suggested)?,
        };
        let made = self.map_for(number, inside, transport, suggested);
        match made {
            Ok(_) => self.tally.mappings_made += 1,
            Err(_) => self.unsubscribe_idle(number),
        }
        made
    }

    fn map_for(
        &mut self,
        number: u32,
        inside: Endpoint,
        transport: Transport,
        suggested: Option<Suggested>,
    ) -> Result<u32, DropReason> {
        let limits = self.limits;
        let subscriber = self.subscribers.get_mut(number).ok_or(DropReason::TableFull)?;
        if limits.ports > 0 && subscriber.mappings[transport as usize] >= limits.ports {
            self.tally.limited += 1;
            return Err(DropReason::SubscriberLimit);
        }
        if limits.rate > 0 && !subscriber.may_map(limits.rate, self.now) {
            self.tally.limited += 1;
            return Err(DropReason::SubscriberLimit);
        }
        let liked = suggested.and_then(|suggested| self.take_suggested(number, transport, suggested));
        let Some((index, port)) = liked.or_else(|| self.take_port(number, inside.port, transport)) else {
            self.tally.exhausted += 1;
            self.log.exhausted(self.now, self.subscribers.get(number).map(|found| found.address));
            return Err(DropReason::PortsExhausted);
        };
        let mapping =
            Mapping { inside, index, port, transport, subscriber: Some(number), sessions: 0, pcp: None };
        match self.enter_mapping(mapping) {
            Some(mapping) => Ok(mapping),
            None => {
                self.release_port(index, transport, port, true);
                Err(DropReason::TableFull)
            }
        }
    }

    /// Enters a mapping whose port is taken.
    pub(super) fn enter_mapping(&mut self, mapping: Mapping) -> Option<u32> {
        let address = self.ports.address(mapping.index)?;
        let keys = [
            inside_key(mapping.inside, mapping.transport).store(),
            outside_key(address, mapping.port, mapping.transport).store(),
        ];
        let number = self.mappings.insert(mapping)?;
        let mut entered = 0;
        for key in keys {
            match self.index.lookup(key, self.now) {
                Entry::Vacant(place) => {
                    place.insert(number);
                    entered += 1;
                }
                Entry::Found(_) | Entry::Full => break,
            }
        }
        if entered < keys.len() {
            for key in keys.iter().take(entered) {
                self.index.remove(key);
            }
            self.mappings.remove(number);
            return None;
        }
        if let Some(place) = self.ports.get_mut(mapping.index) {
            place.mappings += 1;
        }
        if let Some(subscriber) = mapping.subscriber.and_then(|number| self.subscribers.get_mut(number)) {
            subscriber.mappings[mapping.transport as usize] += 1;
        }
        Some(number)
    }

    /// Ends a mapping without sessions; its port is free `at_once`, or held down.
    pub(super) fn unmap(&mut self, number: u32, at_once: bool) {
        let Some(mapping) = self.mappings.remove(number) else { return };
        self.unindex(number, &mapping);
        if let Some(place) = self.ports.get_mut(mapping.index) {
            place.mappings = place.mappings.saturating_sub(1);
        }
        if let Some(subscriber) = mapping.subscriber.and_then(|number| self.subscribers.get_mut(number)) {
            let count = &mut subscriber.mappings[mapping.transport as usize];
            *count = count.saturating_sub(1);
        }
        self.release_port(mapping.index, mapping.transport, mapping.port, at_once);
        if let Some(subscriber) = mapping.subscriber {
            self.unsubscribe_idle(subscriber);
        }
    }

    /// Forgets the endpoints by which a mapping is found.
    pub(super) fn unindex(&mut self, number: u32, mapping: &Mapping) {
        let outside = self.ports.address(mapping.index);
        let outside = outside.map(|address| outside_key(address, mapping.port, mapping.transport));
        for key in [Some(inside_key(mapping.inside, mapping.transport)), outside].into_iter().flatten() {
            let key = key.store();
            // Where the mapping was to end, another one may have the endpoint inside.
            if self.index.get(&key) == Some(&number) {
                self.index.remove(&key);
            }
        }
    }
}

/// A session to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSession {
    pub(super) inside: Endpoint,
    pub(super) seen: Endpoint,
    pub(super) remote: Endpoint,
    pub(super) transport: Transport,
    pub(super) phase: Phase,
}

/// The other address of a whole mapping.
pub(super) fn whole(list: &[(Ipv4Addr, Ipv4Addr)], address: Ipv4Addr) -> Option<Ipv4Addr> {
    let at = list.binary_search_by(|(first, _)| first.cmp(&address)).ok()?;
    Some(list[at].1)
}

fn tick_after(time: u64) -> u64 {
    (time >> TICK).saturating_add(1)
}
