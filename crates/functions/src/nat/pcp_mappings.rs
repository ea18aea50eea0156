//! Mappings and sessions that hosts inside asked for by the Port Control Protocol (RFC 6887, sections 11 and 12).

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::DropReason;
use netbricks_core::packet::MacAddress;

use super::config::NatConfig;
use super::pcp_message::{Filters, MOST_FILTERS, Map, Nonce, PeerFilter, Request, ResultCode};
use super::ports::Status;
use super::session::{Direction, Phase, flow};
use super::slab::Slab;
use super::spec::{Endpoint, Transport};
use super::state::{NewSession, State, whole};

const SECOND: u64 = 1_000_000_000;

/// The mapping or session to which a request gave a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A mapping (MAP).
    Mapping(u32),
    /// A session (PEER).
    Session(u32),
}

/// A mapping or session with a lifetime of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcpMapping {
    pub(super) target: Target,
    pub(super) subscriber: u32,
    /// Another one of its subscriber.
    next: Option<u32>,
    pub(super) nonce: Nonce,
    /// The time (ns) at which its lifetime is over.
    pub(super) until: u64,
    pub(super) filters: [PeerFilter; MOST_FILTERS],
    /// The first so many filters count.
    pub(super) filtered: u8,
}

impl PcpMapping {
    pub(super) fn new(target: Target, subscriber: u32, nonce: Nonce, until: u64) -> Self {
        let filters = [PeerFilter::NONE; MOST_FILTERS];
        Self { target, subscriber, next: None, nonce, until, filters, filtered: 0 }
    }

    pub(super) fn filters(&self) -> &[PeerFilter] {
        self.filters.get(..usize::from(self.filtered)).unwrap_or_default()
    }

    /// Whether its filters let in a remote endpoint (section 13.3).
    pub(super) fn admits(&self, remote: Endpoint) -> bool {
        self.filtered == 0 || self.filters().iter().any(|filter| filter.admits(remote))
    }

    /// Changes its filters; answers `false`, and leaves them, where they are too many.
    ///
    /// A renewal repeats the filters that it has.
    fn filter(&mut self, by: &Filters) -> bool {
        let (mut filters, mut end) = (self.filters, if by.replaces { 0 } else { usize::from(self.filtered) });
        for added in by.added() {
            if filters[..end].contains(added) {
                continue;
            }
            let Some(place) = filters.get_mut(end) else { return false };
            *place = *added;
            end += 1;
        }
        (self.filters, self.filtered) = (filters, end as u8);
        true
    }
}

/// Events of the protocol that are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PcpTally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) ignored: u64,
}

/// All of a worker.
pub(super) struct Pcp {
    pub(super) mappings: Slab<PcpMapping>,
    /// The time (ns) at which the state began, from which the epoch counts (section 8.5).
    pub(super) started: u64,
    shortest: u64,
    longest: u64,
    /// Those of one subscriber at most.
    each: usize,
    pub(super) tally: PcpTally,
}

impl Pcp {
    pub(super) fn new(config: &NatConfig, small: bool) -> Self {
        Self {
            mappings: Slab::new(Self::capacity(config, small)),
            started: u64::MAX,
            shortest: config.pcp_min_lifetime.nanoseconds(),
            longest: config.pcp_max_lifetime.nanoseconds(),
            each: config.pcp_subscriber,
            tally: PcpTally::default(),
        }
    }

    /// Gives lifetimes within the bounds that the other has, and as many to a subscriber.
    pub(super) fn give_like(&mut self, other: &Self) {
        (self.shortest, self.longest, self.each) = (other.shortest, other.longest, other.each);
    }

    /// Those of a subscriber, of which the first is given.
    fn list(&self, first: Option<u32>) -> impl Iterator<Item = (u32, &PcpMapping)> {
        std::iter::successors(first, |number| self.mappings.get(*number)?.next)
            .map_while(|number| Some((number, self.mappings.get(number)?)))
    }

    /// Mappings that there is room for.
    pub(super) fn capacity(config: &NatConfig, small: bool) -> usize {
        if small || config.pcp.is_none() { 0 } else { config.pcp_mappings }
    }

    /// A lifetime (ns) within the bounds, of one that was asked for (s).
    fn bounded(&self, lifetime: u32) -> u64 {
        (u64::from(lifetime) * SECOND).clamp(self.shortest, self.longest)
    }
}

/// A mapping or session that a host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// Seconds.
    pub(super) lifetime: u32,
    /// `None` where there was nothing to end.
    pub(super) external: Option<Endpoint>,
}

/// A request that is refused; the lifetime (s) is that of its code where none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: ResultCode,
    pub(super) lifetime: Option<u32>,
}

impl From<ResultCode> for Refused {
    fn from(code: ResultCode) -> Self {
        Self { code, lifetime: None }
    }
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self::from(match reason {
            DropReason::SubscriberLimit => ResultCode::UserExQuota,
            DropReason::TableFull | DropReason::PortsExhausted => ResultCode::NoResources,
            _ => ResultCode::NotAuthorized,
        })
    }
}

/// The external endpoint that a host would like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suggested {
    pub(super) address: Option<Ipv4Addr>,
    /// 0 is any.
    pub(super) port: u16,
}

impl Suggested {
    fn of(map: &Map) -> Self {
        let address = match map.suggested.address {
            IpAddr::V4(address) if !address.is_unspecified() => Some(address),
            _ => None,
        };
        Self { address, port: map.suggested.port }
    }

    /// Whether an endpoint is one that the host would like.
    fn is_met(&self, external: Endpoint) -> bool {
        self.address.is_none_or(|address| external.address == address)
            && (self.port == 0 || self.port == external.port)
    }
}

fn transport_of(protocol: u8) -> Result<Transport, Refused> {
    match Transport::of(protocol) {
        Some(transport @ (Transport::Tcp | Transport::Udp)) => Ok(transport),
        _ => Err(ResultCode::UnsuppProtocol.into()),
    }
}

impl State {
    /// Seconds since the state began (section 8.5).
    pub(super) fn epoch(&self) -> u32 {
        (self.now.saturating_sub(self.pcp.started) / SECOND) as u32
    }

    /// Seconds until a time, at least 1.
    fn seconds_until(&self, until: u64) -> u32 {
        (until.saturating_sub(self.now).div_ceil(SECOND)).clamp(1, u32::MAX.into()) as u32
    }

    /// Makes, prolongs or ends the mapping of a host's port (section 11.3).
    ///
    /// # Errors
    /// The result code of the response.
    pub(super) fn pcp_map(
        &mut self,
        client: Ipv4Addr,
        map: &Map,
        request: &Request,
        neighbor: Option<MacAddress>,
    ) -> Result<Granted, Refused> {
        if map.protocol == 0 && map.internal_port != 0 {
            return Err(ResultCode::MalformedRequest.into());
        }
        if request.lifetime == 0 && (request.filters.replaces || !request.filters.added().is_empty()) {
            // What ends has no filters (section 13.3).
            return Err(ResultCode::MalformedOption.into());
        }
        if map.internal_port == 0 {
            // All ports of a protocol, or of all: they may be ended, but not mapped.
            let of = if map.protocol == 0 { None } else { Some(transport_of(map.protocol)?) };
            return match request.lifetime {
                0 => self.pcp_end_all(client, of, &map.nonce),
                _ => Err(ResultCode::UnsuppProtocol.into()),
            };
        }
        let transport = transport_of(map.protocol)?;
        let inside = Endpoint { address: client.into(), port: map.internal_port };
        if request.lifetime == 0 {
            return self.pcp_end_one(inside, transport, &map.nonce);
        }
        let (lifetime, suggested) = (self.pcp.bounded(request.lifetime), Suggested::of(map));
        let number = match self.fixed_for(inside, transport) {
            Some(external) => return self.pcp_fixed(external, lifetime, request, &suggested),
            None => self.mapping_inside(inside, transport),
        };
        let known = number.and_then(|number| self.mappings.get(number)).and_then(|found| found.pcp);
        match known {
            Some(known) => self.is_its_owner(known, &map.nonce)?,
            None => self.has_pcp_room(client)?,
        }
        let mapping = match number {
            Some(number) => number,
            None => self.map(inside, transport, Some(suggested))?,
        };
        let granted = self.pcp_grant((mapping, known), map, request, &suggested, lifetime);
        match &granted {
            Ok(_) => self.learn_client(client, neighbor),
            Err(_) if number.is_none() => self.unmap(mapping, true),
            Err(_) => {}
        }
        granted
    }

    /// Gives a mapping a lifetime.
    fn pcp_grant(
        &mut self,
        (mapping, known): (u32, Option<u32>),
        map: &Map,
        request: &Request,
        suggested: &Suggested,
        lifetime: u64,
    ) -> Result<Granted, Refused> {
        let external = self.external(mapping).ok_or(ResultCode::NoResources)?;
        let subscriber = self.mappings.get(mapping).and_then(|found| found.subscriber);
        let subscriber = subscriber.filter(|_| !self.is_ending(mapping)).ok_or(ResultCode::NoResources)?;
        if request.prefer_failure && !suggested.is_met(external) {
            return Err(ResultCode::CannotProvideExternal.into());
        }
        let fresh = PcpMapping::new(Target::Mapping(mapping), subscriber, map.nonce, 0);
        // One whose lifetime is over, and that has not ended yet, is no one's: its filters are forgotten.
        let before = known.and_then(|known| self.pcp.mappings.get(known));
        let before = before.filter(|found| found.until > self.now);
        let mut made = before.copied().unwrap_or(fresh);
        if !made.filter(&request.filters) {
            return Err(ResultCode::ExcessiveRemotePeers.into());
        }
        (made.nonce, made.until) = (map.nonce, self.now.saturating_add(lifetime));
        self.pcp_set(made, known).ok_or(ResultCode::NoResources)?;
        Ok(Granted { lifetime: self.seconds_until(made.until), external: Some(external) })
    }

    /// Makes or prolongs the session of a host's port with a peer (section 12.3).
    ///
    /// `ends` are the peer as the host sees it, and where its packets go.
    ///
    /// # Errors
    /// The result code of the response.
    pub(super) fn pcp_peer(
        &mut self,
        inside: Endpoint,
        (seen, remote): (Endpoint, Endpoint),
        map: &Map,
        lifetime: u32,
        neighbor: Option<MacAddress>,
    ) -> Result<Granted, Refused> {
        let transport = transport_of(map.protocol)?;
        let suggested = Suggested::of(map);
        if let Some(external) = self.fixed_for(inside, transport) {
            let until = self.now.saturating_add(self.pcp.bounded(lifetime));
            return Ok(Granted { lifetime: self.seconds_until(until), external: Some(external) });
        }
        let found = self.peek(&flow(inside, seen, transport, inside.port));
        let session = found.and_then(|(direction, number)| (direction == Direction::Out).then_some(number));
        let known = session.and_then(|number| self.sessions.get(number)).and_then(|found| found.pcp);
        if let Some(known) = known {
            self.is_its_owner(known, &map.nonce)?;
        }
        if lifetime == 0 {
            // The session lives on as its packets keep it.
            known.into_iter().for_each(|known| self.pcp_end(known, false));
            let external = session.and_then(|number| self.translated(number, Direction::Out));
            return Ok(Granted { lifetime: 0, external: external.map(|out| out.source) });
        }
        if known.is_none() {
            self.has_pcp_room(inside.address)?;
        }
        let number = match session {
            Some(number) => number,
            None => self.pcp_open(NewPeer { inside, seen, remote, transport }, suggested, neighbor)?,
        };
        let external = self.translated(number, Direction::Out).ok_or(ResultCode::NoResources)?.source;
        if !suggested.is_met(external) {
            return Err(ResultCode::CannotProvideExternal.into());
        }
        let until = self.now.saturating_add(self.pcp.bounded(lifetime));
        // It cannot be made shorter.
        let before = known.and_then(|known| self.pcp.mappings.get(known));
        let until = before.map_or(until, |own| own.until.max(until));
        let mapping = self.sessions.get(number).and_then(|session| self.mappings.get(session.mapping));
        let subscriber = mapping.and_then(|found| found.subscriber).ok_or(ResultCode::NoResources)?;
        let made = PcpMapping::new(Target::Session(number), subscriber, map.nonce, until);
        self.pcp_set(made, known).ok_or(ResultCode::NoResources)?;
        Ok(Granted { lifetime: self.seconds_until(until), external: Some(external) })
    }

    /// Opens the session of a peer, by the external endpoint that is suggested or by none.
    fn pcp_open(
        &mut self,
        new: NewPeer,
        suggested: Suggested,
        neighbor: Option<MacAddress>,
    ) -> Result<u32, Refused> {
        let NewPeer { inside, seen, remote, transport } = new;
        let (mapping, is_new) = match self.mapping_inside(inside, transport) {
            Some(mapping) => (mapping, false),
            None => (self.map(inside, transport, Some(suggested))?, true),
        };
        let is_met = self.external(mapping).is_some_and(|external| suggested.is_met(external));
        let phase = if transport == Transport::Tcp { Phase::OpenedInside } else { Phase::Plain };
        let opened = match is_met {
            true => self
                .open(NewSession { inside, seen, remote, transport, phase }, neighbor)
                .map_err(Refused::from),
            false => Err(ResultCode::CannotProvideExternal.into()),
        };
        if opened.is_err() && is_new {
            self.unmap(mapping, true);
        }
        opened
    }

    /// The external endpoint that a host's port has for ever.
    fn fixed_for(&self, inside: Endpoint, transport: Transport) -> Option<Endpoint> {
        let IpAddr::V4(client) = inside.address else { return None };
        if let Some(own) = whole(&self.whole_inside, client) {
            return Some(Endpoint { address: own.into(), ..inside });
        }
        let number = self.mapping_inside(inside, transport)?;
        self.mappings.get(number)?.subscriber.is_none().then(|| self.external(number))?
    }

    /// The answer of a mapping that is there for ever (section 11.3): it has no filters.
    fn pcp_fixed(
        &self,
        external: Endpoint,
        lifetime: u64,
        request: &Request,
        suggested: &Suggested,
    ) -> Result<Granted, Refused> {
        if request.prefer_failure && !suggested.is_met(external) {
            return Err(ResultCode::CannotProvideExternal.into());
        }
        if !request.filters.added().is_empty() {
            return Err(ResultCode::ExcessiveRemotePeers.into());
        }
        let lifetime = self.seconds_until(self.now.saturating_add(lifetime));
        Ok(Granted { lifetime, external: Some(external) })
    }

    /// Whether a host may have one more.
    fn has_pcp_room(&self, client: impl Into<IpAddr>) -> Result<(), Refused> {
        if self.pcp.mappings.is_full() {
            return Err(ResultCode::NoResources.into());
        }
        if self.pcp.list(self.pcp_of(client.into())).count() >= self.pcp.each {
            return Err(ResultCode::UserExQuota.into());
        }
        Ok(())
    }

    /// The first one of a host's subscriber.
    fn pcp_of(&self, client: IpAddr) -> Option<u32> {
        self.subscribers.get(self.subscriber(client)?)?.pcp
    }

    /// Whether a request has the nonce of the mapping that it is about (section 11.3).
    fn is_its_owner(&self, known: u32, nonce: &Nonce) -> Result<(), Refused> {
        match self.pcp.mappings.get(known) {
            Some(found) if found.nonce != *nonce && found.until > self.now => {
                let lifetime = Some(self.seconds_until(found.until));
                Err(Refused { code: ResultCode::NotAuthorized, lifetime })
            }
            _ => Ok(()),
        }
    }

    fn pcp_end_one(
        &mut self,
        inside: Endpoint,
        transport: Transport,
        nonce: &Nonce,
    ) -> Result<Granted, Refused> {
        if self.fixed_for(inside, transport).is_some() {
            return Err(ResultCode::NotAuthorized.into());
        }
        let number = self.mapping_inside(inside, transport);
        let known = number.and_then(|number| self.mappings.get(number)).and_then(|found| found.pcp);
        let external = number.and_then(|number| self.external(number));
        if let Some(known) = known {
            self.is_its_owner(known, nonce)?;
            self.pcp_end(known, false);
        }
        Ok(Granted { lifetime: 0, external })
    }

    /// Ends the mappings of a host that have this nonce; static ones stay.
    fn pcp_end_all(
        &mut self,
        client: Ipv4Addr,
        of: Option<Transport>,
        nonce: &Nonce,
    ) -> Result<Granted, Refused> {
        let (mut ended, mut left) = (false, None);
        let mut next = self.pcp_of(client.into());
        while let Some((number, found)) =
            next.and_then(|number| Some((number, *self.pcp.mappings.get(number)?)))
        {
            next = found.next;
            let Target::Mapping(mapping) = found.target else { continue };
            let is_its = self.mappings.get(mapping).is_some_and(|mapping| {
                mapping.inside.address == client && of.is_none_or(|of| of == mapping.transport)
            });
            if !is_its {
                continue;
            }
            if found.nonce == *nonce {
                self.pcp_end(number, false);
                ended = true;
            } else {
                left = Some(self.seconds_until(found.until));
            }
        }
        match (ended, left) {
            (false, Some(_)) => Err(Refused { code: ResultCode::NotAuthorized, lifetime: left }),
            _ => Ok(Granted { lifetime: 0, external: None }),
        }
    }

    fn learn_client(&mut self, client: Ipv4Addr, neighbor: Option<MacAddress>) {
        let Some(mac) = neighbor else { return };
        self.learn_host(client.into(), mac);
        let subscriber = self.subscriber(client.into());
        if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number)) {
            subscriber.neighbor = Some(mac);
        }
    }

    /// Enters a mapping, or changes the one that is known; answers its number.
    pub(super) fn pcp_set(&mut self, made: PcpMapping, known: Option<u32>) -> Option<u32> {
        let number = match known {
            Some(known) => {
                let place = self.pcp.mappings.get_mut(known)?;
                *place = PcpMapping { next: place.next, ..made };
                known
            }
            None => {
                let subscriber = self.subscribers.get_mut(made.subscriber)?;
                let number = self.pcp.mappings.insert(PcpMapping { next: subscriber.pcp, ..made })?;
                subscriber.pcp = Some(number);
                number
            }
        };
        self.set_pcp_timer(number, made.until);
        match made.target {
            Target::Mapping(mapping) => {
                if let Some(mapping) = self.mappings.get_mut(mapping) {
                    mapping.pcp = Some(number);
                }
            }
            Target::Session(session) => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.pcp = Some(number);
                }
            }
        }
        Some(number)
    }

    /// The timer of a mapping came: it ends, or its timer is set again.
    pub(super) fn pcp_due(&mut self, number: u32) -> Option<u64> {
        let until = self.pcp.mappings.get(number)?.until;
        if until > self.now {
            return Some(until);
        }
        self.pcp_end(number, false);
        None
    }

    /// Takes one out of all lists; its mapping or session stays.
    pub(super) fn pcp_remove(&mut self, number: u32) -> Option<PcpMapping> {
        let gone = self.pcp.mappings.remove(number)?;
        self.remove_pcp_timer(number);
        let subscriber = self.subscribers.get_mut(gone.subscriber)?;
        if subscriber.pcp == Some(number) {
            subscriber.pcp = gone.next;
            return Some(gone);
        }
        let mut before = subscriber.pcp;
        while let Some(found) = before.and_then(|before| self.pcp.mappings.get_mut(before)) {
            if found.next == Some(number) {
                found.next = gone.next;
                break;
            }
            before = found.next;
        }
        Some(gone)
    }

    /// Ends the lifetime of a mapping or session: without sessions, the mapping ends and its port is held down.
    pub(super) fn pcp_end(&mut self, number: u32, at_once: bool) {
        let Some(gone) = self.pcp_remove(number) else { return };
        match gone.target {
            Target::Mapping(mapping) => {
                let Some(found) = self.mappings.get_mut(mapping) else { return };
                found.pcp = None;
                if found.is_idle() {
                    self.unmap(mapping, at_once);
                }
            }
            Target::Session(session) => {
                if let Some(found) = self.sessions.get_mut(session) {
                    found.pcp = None;
                }
                self.reset_timer(session);
            }
        }
    }

    /// The suggested port of a subscriber's outside address, if it is free and one that the subscriber may have.
    pub(super) fn take_suggested(
        &mut self,
        number: u32,
        transport: Transport,
        suggested: Suggested,
    ) -> Option<(u16, u16)> {
        let subscriber = self.subscribers.get(number)?;
        let (index, port) = (subscriber.index, suggested.port);
        if port == 0 || self.ports.get(index)?.status != Status::Active {
            return None;
        }
        let block = self.ports.block_of(port);
        let may = match (self.place_of(subscriber.address), block) {
            (Some((_, own)), block) => block == Some(own),
            (None, Some(block)) => subscriber.blocks().contains(&block),
            (None, None) => self.ports.part_of_port(port) == subscriber.part,
        };
        (may && self.ports.claim(index, transport, port)).then_some((index, port))
    }
}

/// A session to be made for a peer.
#[derive(Clone, Copy)]
struct NewPeer {
    inside: Endpoint,
    seen: Endpoint,
    remote: Endpoint,
    transport: Transport,
}
