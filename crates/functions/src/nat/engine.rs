//! The way of a packet that the loop over a batch does not translate by itself.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::buffer::{Bytes, Packet};
use netbricks_core::icmp::{IcmpError, IcmpErrors, Unreachable};
use netbricks_core::packet::rewrite::QuotedChange;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, IpRef, MacAddress};
use netbricks_core::{Context, DropReason, Edge, State, Verdict};

use super::config::{Others, Refusal, is_in};
use super::embedded::Embedding;
use super::errors;
use super::fragments::{Fragments, Known, key};
use super::identification;
use super::nptv6::Pair;
use super::packet::{Message, Place, Seen, change_quote, check_error, ethernet_source, set_address};
use super::session::{Direction, Phase};
use super::spec::{Endpoint, Exempt, Prefix, Redirect, Transport};
use super::state::{NewSession, State as Translations, Translated, whole};

/// The side from which a packet came, where its port tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Unknown,
    Inside,
    Outside,
}

/// The rules of a function that do not change.
pub(super) struct Rules {
    pub(super) inside: Vec<Prefix>,
    pub(super) redirects: Vec<Redirect>,
    pub(super) exempt: Vec<Exempt>,
    pub(super) others: Others,
    pub(super) refusal: Refusal,
    pub(super) mac: Option<MacAddress>,
    pub(super) pairs: Vec<Pair>,
    pub(super) embedding: Option<Embedding>,
    /// The largest IP packets that go outside and inside; 0 is no limit.
    pub(super) mtu: usize,
    pub(super) inside_mtu: usize,
    /// The address at which PCP requests are answered.
    pub(super) pcp: Option<Ipv4Addr>,
}

/// The time (ns) between two ARP requests of our own for one host (RFC 1122, section 2.3.2.1).
const BETWEEN_REQUESTS: u64 = 1_000_000_000;
/// Hosts that it asks for at most in that time.
const MOST_ASKED: usize = 128;

/// The last hosts for whose Ethernet addresses it has asked, and when (ns): only their answers make new entries.
pub(super) struct Asked([Option<(Ipv4Addr, u64)>; MOST_ASKED]);

impl Default for Asked {
    fn default() -> Self {
        Self([None; MOST_ASKED])
    }
}

impl Asked {
    /// Whether it may ask for a host now, which is then noted.
    ///
    /// Each has its own time, so that one which does not answer does not keep it from asking for others.
    fn may_ask(&mut self, host: Ipv4Addr, now: u64) -> bool {
        let place = match self.0.iter().position(|asked| asked.is_some_and(|(other, _)| other == host)) {
            Some(at) => self.0.get_mut(at),
            // One without a question comes first, and then the oldest.
            None => self.0.iter_mut().min_by_key(|asked| asked.map(|(_, at)| at)),
        };
        let Some(place) = place else { return false };
        if place.is_some_and(|(_, at)| now.saturating_sub(at) < BETWEEN_REQUESTS) {
            return false;
        }
        *place = Some((host, now));
        true
    }

    /// Whether a host was asked for, which then has answered.
    fn answered(&mut self, host: Ipv4Addr) -> bool {
        let asked = self.0.iter_mut().find(|asked| asked.is_some_and(|(other, _)| other == host));
        asked.is_some_and(|asked| asked.take().is_some())
    }
}

/// A worker's translator.
pub(super) struct Engine {
    pub(super) rules: Rules,
    pub(super) state: State<Translations>,
    pub(super) fragments: State<Fragments>,
    pub(super) errors: IcmpErrors,
    /// Whether this batch's packets leave in order, since some of them may make new ones for the main way out.
    pub(super) behind: bool,
    /// The identification of the next packet that needs one (RFC 6864, section 5.3.1).
    pub(super) identification: u32,
    /// The hosts for whose Ethernet addresses it has asked.
    pub(super) asked: Asked,
    /// Whether the present packet may be cut into fragments.
    pub(super) may_cut: bool,
}

/// The verdict on a packet, if it does not stay on the main way out.
pub(super) type Outcome = Result<(), Verdict>;

pub(super) const fn dropped(reason: DropReason) -> Verdict {
    Verdict::drop(reason)
}

impl Engine {
    /// The slow path: any frame.
    pub(super) fn handle(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        side: Side,
        cx: &mut Context,
    ) -> Outcome {
        let outcome = match Place::of(frame) {
            None => self.not_ip(frame, side),
            Some(place) => {
                let seen = Seen::of(place, frame);
                match seen.flow.is_v6() {
                    false => self.v4(slot, frame, &seen, side, cx),
                    true => self.v6(slot, frame, &seen, side, cx),
                }
            }
        };
        match outcome {
            Ok(()) | Err(Verdict::PASS) if self.behind => Err(Verdict::OUT),
            other => other,
        }
    }

    fn not_ip(&mut self, frame: &mut Bytes<'_>, side: Side) -> Outcome {
        let Some(mac) = self.rules.mac else { return Err(Verdict::PASS) };
        if let Some(arp) = super::answers::read_arp(frame.data())
            && side != Side::Outside
            && self.is_inside(arp.sender_ip())
            && !arp.sender_mac().is_multicast()
        {
            let is_answer = !arp.is_request() && frame.data().first_chunk::<6>() == Some(&mac.octets());
            let mut state = self.state.borrow_mut();
            if is_answer && self.asked.answered(arp.sender_ip()) {
                state.learn_host(arp.sender_ip().into(), arp.sender_mac());
            } else {
                state.merge_host(arp.sender_ip().into(), arp.sender_mac());
            }
            if is_answer {
                return Err(dropped(DropReason::LocalDelivery));
            }
        }
        let state = self.state.borrow();
        let answer = super::answers::arp(frame, mac, |address| state.is_outside(address.into()));
        Err(answer.unwrap_or(Verdict::PASS))
    }

    fn v4(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        side: Side,
        cx: &mut Context,
    ) -> Outcome {
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (seen.flow.source(), seen.flow.destination())
        else {
            return Err(Verdict::PASS);
        };
        if is_of_the_link(source) || is_of_the_link(destination) || source.is_unspecified() {
            return Err(Verdict::PASS);
        }
        let (is_inside, to_us) = (self.is_inside(source), self.state.borrow().is_outside(destination.into()));
        match (is_inside, side) {
            // RFC 2827: an inside address does not come from outside.
            (true, Side::Outside) => return Err(dropped(DropReason::Martian)),
            (false, _) if !to_us => return Err(Verdict::PASS),
            (false, Side::Inside) => return Err(Verdict::PASS),
            _ => {}
        }
        if is_inside && self.is_pcp(seen) {
            return self.pcp(slot, frame, seen, cx);
        }
        if is_inside && !to_us && self.is_exempt(seen) {
            return Err(Verdict::PASS);
        }
        self.sized(slot, frame, seen, is_inside, cx)?;
        if seen.is_fragment {
            return self.fragment(slot, frame, seen, is_inside, cx);
        }
        let known = self.whole_packet(frame, seen, is_inside);
        self.finish(slot, frame, seen, known, cx)
    }

    /// Gives a packet of IPv4 with another source an identification of our own (RFC 7857, section 10).
    fn identified(&self, frame: &mut Bytes<'_>, seen: &Seen, known: Known) -> Known {
        let (IpAddr::V4(before), IpAddr::V4(after)) = (seen.flow.source(), known.source) else {
            return known;
        };
        let state = &mut *self.state.borrow_mut();
        // The host of a whole address has it alone, and its own identifications.
        if before == after || whole(&state.whole_inside, before).is_some() {
            return known;
        }
        let (own, ip) = (state.identifications.as_mut(), frame.data_mut().get_mut(seen.place.ip..));
        let identification = own.zip(ip).and_then(|(own, ip)| identification::renew(ip, own));
        Known { identification, ..known }
    }

    /// Sends a packet that was translated on its way, or answers its sender.
    pub(super) fn finish(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        known: Result<Known, Verdict>,
        cx: &mut Context,
    ) -> Outcome {
        match known {
            Ok(known) => {
                let known = self.identified(frame, seen, known);
                self.deliver(slot, frame, &known, cx)
            }
            Err(verdict) => {
                self.refuse(slot, frame, verdict, cx);
                Err(verdict)
            }
        }
    }

    /// Whether an address is of the inside: one of its prefixes, or of a whole mapping (1:1).
    fn is_inside(&self, address: Ipv4Addr) -> bool {
        is_in(&self.rules.inside, address.into())
            || whole(&self.state.borrow().whole_inside, address).is_some()
    }

    /// Sends a packet with new addresses on its way.
    fn deliver(&mut self, slot: usize, frame: &mut Bytes<'_>, known: &Known, cx: &mut Context) -> Outcome {
        let known = self.reached(known);
        let outcome = self.leave(frame, &known);
        self.resolve(slot, frame, &known, cx)?;
        self.fit(slot, frame, &known, outcome, cx)
    }

    /// The way of a packet, with its host's Ethernet address if that has become known.
    fn reached(&self, known: &Known) -> Known {
        let IpAddr::V4(host) = known.destination else { return *known };
        if known.neighbor.is_some() || !self.is_inside(host) {
            return *known;
        }
        Known { neighbor: self.state.borrow().host(host.into()), ..*known }
    }

    /// Asks for the Ethernet address of a host inside that is not known, and drops the packet for it.
    ///
    /// Packets that come to our own address need another one. The sender sends again.
    fn resolve(&mut self, slot: usize, frame: &Bytes<'_>, known: &Known, cx: &mut Context) -> Outcome {
        let (Some(mac), IpAddr::V4(host)) = (self.rules.mac, known.destination) else { return Ok(()) };
        if known.hairpin {
            // It goes back to where it came from. If no host answers there, a router knows the way.
            if known.neighbor.is_none() {
                self.ask((slot, Edge::REPLY), frame, (mac, host), cx);
            }
            return Ok(());
        }
        let to_us = frame.data().first_chunk::<6>() == Some(&mac.octets());
        if !to_us || !self.is_inside(host) {
            return Ok(());
        }
        self.ask((slot, Edge::OUT), frame, (mac, host), cx);
        Err(dropped(DropReason::Unresolved))
    }

    /// Asks for the Ethernet address of a host inside, unless it has asked a moment ago.
    fn ask(
        &mut self,
        (slot, edge): (usize, Edge),
        frame: &Bytes<'_>,
        (mac, host): (MacAddress, Ipv4Addr),
        cx: &mut Context,
    ) {
        if self.asked.may_ask(host, cx.now())
            && let Some(request) = super::answers::request(frame, mac, host, cx)
        {
            self.emit(slot, edge, request, cx);
        }
    }

    /// Sets a packet's Ethernet destination where it is known, and its way.
    pub(super) fn leave(&self, frame: &mut Bytes<'_>, known: &Known) -> Outcome {
        let neighbor = known.neighbor;
        let data = frame.data_mut();
        let Some(head) = data.first_chunk_mut::<12>() else { return Ok(()) };
        if known.hairpin {
            // Back where it came from, by way of us.
            let (to, from) = (<[u8; 6]>::try_from(&head[6..12]), <[u8; 6]>::try_from(&head[..6]));
            if let (Ok(to), Ok(from)) = (to, from) {
                let to = neighbor.map_or(to, |mac| mac.octets());
                head[..6].copy_from_slice(&to);
                head[6..].copy_from_slice(&from);
            }
            return Err(Verdict::REPLY);
        }
        if let (Some(neighbor), Some(mac)) = (neighbor, self.rules.mac)
            && head[..6] == mac.octets()
        {
            head[..6].copy_from_slice(&neighbor.octets());
        }
        Ok(())
    }

    fn is_exempt(&self, seen: &Seen) -> bool {
        let destination = seen.destination();
        self.rules
            .exempt
            .iter()
            .any(|exempt| exempt.covers(destination.address, seen.transport, destination.port))
    }

    /// Tells a host inside that it gets no mapping (RFC 5508, REQ-8; RFC 6888, REQ-11).
    pub(super) fn refuse(&mut self, slot: usize, frame: &mut Bytes<'_>, verdict: Verdict, cx: &mut Context) {
        let full = [DropReason::PortsExhausted, DropReason::SubscriberLimit, DropReason::TableFull];
        if !full.into_iter().any(|reason| verdict == dropped(reason)) {
            return;
        }
        let unreachable = match self.rules.refusal {
            Refusal::HostUnreachable => Unreachable::Host,
            Refusal::Prohibited => Unreachable::Prohibited,
            Refusal::Silent => return,
        };
        self.errors.answer_frame(slot, frame, IcmpError::DestinationUnreachable(unreachable), cx);
    }

    /// Translates a packet that is no fragment, or the first.
    pub(super) fn whole_packet(
        &mut self,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        is_inside: bool,
    ) -> Result<Known, Verdict> {
        if let Some(known) = self.whole_address(frame, seen, is_inside)? {
            return Ok(known);
        }
        if seen.message == Message::Error {
            return self.error(frame, seen, is_inside);
        }
        let Some(transport) = seen.transport else {
            return Err(match self.rules.others {
                Others::Drop => dropped(DropReason::NoMapping),
                Others::Pass => Verdict::PASS,
            });
        };
        let neighbor = ethernet_source(frame.data()).map(MacAddress::new);
        let (to, hairpin) = self.translate(seen, transport, is_inside, neighbor).map_err(dropped)?;
        let identifier = if hairpin || !is_inside { to.destination.port } else { to.source.port };
        self.write(frame, seen, to, identifier, hairpin)
    }

    /// The translation of a packet, and whether it goes back inside.
    fn translate(
        &mut self,
        seen: &Seen,
        transport: Transport,
        is_inside: bool,
        neighbor: Option<MacAddress>,
    ) -> Result<(Translated, bool), DropReason> {
        let state = &mut *self.state.borrow_mut();
        if !is_inside {
            let found = inbound(state, &seen.flow, seen.source(), seen.tcp_flags, transport)?;
            return Ok((found, false));
        }
        let destination = self.rules.outside_of(seen.destination()).ok_or(DropReason::NoMapping)?;
        // A host with an address of its own (1:1) comes here when it sends to a mapping of ports.
        let own = match seen.flow.source() {
            IpAddr::V4(source) => whole(&state.whole_inside, source),
            IpAddr::V6(_) => None,
        };
        let remote = match own {
            Some(_) => destination,
            None => redirected(&self.rules.redirects, transport, destination),
        };
        let leads_back = state.is_outside(remote.address);
        let back_port = if transport == Transport::Icmp { seen.flow.source_port() } else { remote.port };
        if leads_back && !has_mapping(state, remote.address, back_port, transport) {
            return Err(DropReason::NoMapping);
        }
        let out = match own {
            Some(own) => {
                let source = Endpoint { address: own.into(), ..seen.source() };
                Translated { source, destination: remote, neighbor: None }
            }
            None => outbound(state, seen, transport, remote, neighbor)?,
        };
        if !leads_back {
            return Ok((out, false));
        }
        // All queries reach a whole address, and its answers are to the mapping's identifier.
        let back_port = match remote.address {
            IpAddr::V4(remote)
                if transport == Transport::Icmp && whole(&state.whole_outside, remote).is_some() =>
            {
                out.source.port
            }
            _ => back_port,
        };
        // RFC 4787, REQ-9 (a): the other host sees the outside endpoint.
        let back = match transport {
            Transport::Icmp => FlowKey::new(
                out.source.address,
                out.destination.address,
                back_port,
                back_port,
                transport.number(),
            ),
            _ => super::session::flow(out.source, out.destination, transport, 0),
        };
        let inside = inbound(state, &back, out.source, seen.tcp_flags, transport)?;
        Ok((Translated { source: out.source, ..inside }, true))
    }

    /// Translates a packet from or to a whole address (1:1), of any protocol.
    fn whole_address(
        &mut self,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        is_inside: bool,
    ) -> Result<Option<Known>, Verdict> {
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (seen.flow.source(), seen.flow.destination())
        else {
            return Ok(None);
        };
        let (outside, inside) = {
            let state = self.state.borrow();
            let outside = if is_inside { whole(&state.whole_inside, source) } else { None };
            (outside, whole(&state.whole_outside, destination))
        };
        if outside.is_none() && inside.is_none() || is_inside && outside.is_none() {
            // A host with mappings of ports sends to a whole address: its source is translated first.
            return Ok(None);
        }
        if outside.is_some()
            && let Some(mac) = ethernet_source(frame.data()).map(MacAddress::new)
        {
            let mut state = self.state.borrow_mut();
            if state.host(source.into()) != Some(mac) {
                state.learn_host(source.into(), mac);
            }
        }
        if is_inside && inside.is_none() && self.state.borrow().is_outside(destination.into()) {
            // It sends to a mapping of ports.
            return match (seen.transport, seen.message) {
                (None, Message::None | Message::Request | Message::Reply) => {
                    Err(dropped(DropReason::NoMapping))
                }
                _ => Ok(None),
            };
        }
        if seen.message == Message::Error {
            check_error(frame, seen).map_err(dropped)?;
            if let Some(outside) = outside {
                change_quote(frame, seen, QuotedChange::Destination(outside.into())).map_err(dropped)?;
            }
            if let Some(inside) = inside {
                change_quote(frame, seen, QuotedChange::Source(inside.into())).map_err(dropped)?;
            }
        }
        if let Some(outside) = outside {
            set_address(frame, seen, outside.into(), true).map_err(dropped)?;
        }
        if let Some(inside) = inside {
            set_address(frame, seen, inside.into(), false).map_err(dropped)?;
        }
        let known = Known {
            source: outside.unwrap_or(source).into(),
            destination: inside.unwrap_or(destination).into(),
            neighbor: inside.and_then(|inside| self.state.borrow().host(inside.into())),
            hairpin: is_inside && inside.is_some(),
            identification: None,
        };
        Ok(Some(known))
    }

    /// Translates an ICMP error about a packet of a session or mapping (RFC 5508, section 4).
    fn error(&mut self, frame: &mut Bytes<'_>, seen: &Seen, is_inside: bool) -> Result<Known, Verdict> {
        check_error(frame, seen).map_err(dropped)?;
        let data = frame.data();
        let about = FlowKey::quoted(seen.place.header(data), seen.place.payload(data));
        let about = about.filter(|flow| !flow.is_fragment()).ok_or(dropped(DropReason::NoMapping))?;
        let transport = Transport::of(about.protocol()).ok_or(dropped(DropReason::NoMapping))?;
        let (plan, hairpin) = {
            let state = self.state.borrow();
            match is_inside {
                true => errors::from_inside(&state, &about, transport),
                false => {
                    let sender = seen.flow.source();
                    errors::from_outside(&state, &about, transport, sender).map(|plan| (plan, false))
                }
            }
        }
        .ok_or(dropped(DropReason::NoMapping))?;
        if plan.outer_destination.is_ipv6() || seen.flow.is_v6() {
            return if hairpin {
                Err(dropped(DropReason::NoMapping))
            } else {
                self.other_error(frame, seen, &plan)
            };
        }
        plan.apply(frame, seen).map_err(dropped)?;
        Ok(Known {
            source: plan.outer_source.unwrap_or(seen.flow.source()),
            destination: plan.outer_destination,
            neighbor: plan.neighbor,
            hairpin,
            identification: None,
        })
    }

    /// Translates a fragment: the first as any packet, the others as the first.
    pub(super) fn fragment(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        is_inside: bool,
        cx: &mut Context,
    ) -> Outcome {
        let identification = match seen.place.header(frame.data()) {
            IpRef::V4(header) => u32::from(header.fixed().identification()),
            IpRef::V6(header) => header.identification().unwrap_or(0),
        };
        let key = key(seen.flow.source(), seen.flow.destination(), identification, seen.protocol);
        let now = cx.now();
        if seen.is_later_fragment {
            let known = self.fragments.borrow_mut().known(key, now);
            let Some(known) = known else { return self.hold(frame, key, cx) };
            self.write_later(frame, seen, &known).map_err(dropped)?;
            return self.deliver(slot, frame, &known, cx);
        }
        // What is behind it may be an ICMP error's or query's, whose checksum covers all fragments.
        let known = self.whole_packet(frame, seen, is_inside);
        let Ok(known) = known else { return self.finish(slot, frame, seen, known, cx) };
        let known = self.identified(frame, seen, known);
        let waiting = self.fragments.borrow_mut().learn(key, known, now);
        let outcome = self.deliver(slot, frame, &known, cx);
        match outcome {
            Err(verdict) if verdict == dropped(DropReason::Unresolved) => {
                self.fragments.borrow_mut().give_up(waiting);
            }
            _ => self.release(waiting, &known, (slot, cx)),
        }
        outcome
    }

    /// Keeps a copy of a fragment until the first of its packet comes.
    fn hold(&mut self, frame: &Bytes<'_>, key: FlowKey, cx: &mut Context) -> Outcome {
        let Some(copy) = cx.pool().packet(frame.data()) else {
            return Err(dropped(DropReason::PoolExhausted));
        };
        let held = self.fragments.borrow_mut().hold(key, copy, cx.now());
        Err(dropped(if held { DropReason::Replaced } else { DropReason::Fragment }))
    }

    /// Sends the fragments that waited for the first, behind it.
    fn release(&mut self, waiting: Option<u16>, known: &Known, (slot, cx): (usize, &mut Context)) {
        let known = &self.reached(known);
        let mut next = waiting;
        while let Some(place) = next {
            let taken = self.fragments.borrow_mut().take(place);
            let Some((mut packet, after)) = taken else { break };
            next = after;
            let edge = packet.open(|frame| self.translate_later(frame, known));
            if let Some(edge) = edge {
                self.emit(slot, edge, packet, cx);
            }
        }
    }

    fn translate_later(&mut self, frame: &mut Bytes<'_>, known: &Known) -> Option<Edge> {
        let place = Place::of(frame)?;
        let seen = Seen::of(place, frame);
        self.write_later(frame, &seen, known).ok()?;
        Some(if self.leave(frame, known).is_ok() { Edge::OUT } else { Edge::REPLY })
    }

    /// Sends a packet that was made of what arrived, behind the packet in a slot.
    pub(super) fn emit(&mut self, slot: usize, edge: Edge, packet: Packet, cx: &mut Context) {
        // A call makes at most eight for each packet of a full batch: more are lost.
        if let Err(packet) = cx.create_segment(slot, edge, packet) {
            cx.created(&packet);
            cx.drop_packet(packet, DropReason::RateLimited);
        }
    }
}

/// Whether an address is of one link alone: a group's, broadcast, link-local or loopback.
pub(super) fn is_of_the_link(address: Ipv4Addr) -> bool {
    address.is_multicast() || address.is_broadcast() || address.is_link_local() || address.is_loopback()
}

/// The destination of packets that a host inside sends to `seen`.
pub(super) fn redirected(redirects: &[Redirect], transport: Transport, seen: Endpoint) -> Endpoint {
    let found = redirects.iter().find(|redirect| redirect.transport == transport && redirect.seen == seen);
    found.map_or(seen, |redirect| redirect.real)
}

fn has_mapping(state: &Translations, address: IpAddr, port: u16, transport: Transport) -> bool {
    match address {
        IpAddr::V4(address) => {
            state.mapping_outside(address, port, transport).is_some()
                || whole(&state.whole_outside, address).is_some()
        }
        IpAddr::V6(_) => false,
    }
}

/// The translation of a packet from inside, whose session is made where it has none.
///
/// # Errors
/// The reason to drop it.
pub(super) fn outbound(
    state: &mut Translations,
    seen: &Seen,
    transport: Transport,
    remote: Endpoint,
    neighbor: Option<MacAddress>,
) -> Result<Translated, DropReason> {
    if let Some((Direction::Out, number)) = state.lookup(&seen.flow) {
        neighbor.into_iter().for_each(|mac| state.hear(number, mac));
        state.track(number, Direction::Out, seen.tcp_flags);
        return state.translated(number, Direction::Out).ok_or(DropReason::NoMapping);
    }
    let inside = seen.source();
    let mapping = state.mapping_inside(inside, transport);
    let phase = match (transport, seen.message) {
        (Transport::Tcp, _) => match opening(seen.tcp_flags) {
            Opening::Inside => Phase::OpenedInside,
            Opening::Outside if mapping.is_some() => Phase::OpenedOutside,
            // It refuses a connection from outside, which has no session yet (RFC 7857, section 7.1).
            Opening::Refusal if let Some(mapping) = mapping => {
                let source = state.external(mapping).ok_or(DropReason::NoMapping)?;
                return Ok(Translated { source, destination: remote, neighbor: None });
            }
            _ => return Err(DropReason::InvalidState),
        },
        // A reply to a query from outside, which came by a mapping.
        (Transport::Icmp, Message::Reply) if mapping.is_none() => return Err(DropReason::NoMapping),
        _ => Phase::Plain,
    };
    let new = NewSession { inside, seen: seen.destination(), remote, transport, phase };
    let number = state.open(new, neighbor)?;
    state.translated(number, Direction::Out).ok_or(DropReason::NoMapping)
}

/// The translation of a packet from outside, or from another host inside whose source is translated already.
///
/// A packet that fits no session makes none: it goes by the mapping alone, if that lets it in.
///
/// # Errors
/// The reason to drop it.
pub(super) fn inbound(
    state: &mut Translations,
    flow: &FlowKey,
    source: Endpoint,
    tcp_flags: u8,
    transport: Transport,
) -> Result<Translated, DropReason> {
    if let Some((Direction::In, number)) = state.lookup(flow) {
        state.track(number, Direction::In, tcp_flags);
        return state.translated(number, Direction::In).ok_or(DropReason::NoMapping);
    }
    let IpAddr::V4(address) = flow.destination() else { return Err(DropReason::NoMapping) };
    if let Some(inside) = whole(&state.whole_outside, address) {
        let destination = Endpoint { address: inside.into(), port: flow.destination_port() };
        return Ok(Translated { source, destination, neighbor: state.host(inside.into()) });
    }
    let number = state.mapping_outside(address, flow.destination_port(), transport);
    let mapping = number.and_then(|number| state.mappings.get(number)).ok_or(DropReason::NoMapping)?;
    let remote = if transport == Transport::Icmp { Endpoint { port: 0, ..source } } else { source };
    if !state.lets_in(mapping, remote) {
        return Err(DropReason::Denied);
    }
    let neighbor = state.neighbor_behind(mapping);
    Ok(Translated { source, destination: mapping.inside, neighbor })
}

/// The part of a segment from inside in the beginning of a connection.
enum Opening {
    Inside,
    Outside,
    Refusal,
    None,
}

fn opening(seen: u8) -> Opening {
    match (seen & flags::SYN != 0, seen & flags::ACK != 0, seen & flags::RST != 0) {
        (_, _, true) => Opening::Refusal,
        (true, false, _) => Opening::Inside,
        (true, true, _) => Opening::Outside,
        _ => Opening::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_for_link_addresses_are_bounded_and_an_answer_makes_room() {
        let host = |number: usize| Ipv4Addr::from_bits(0x0a00_0000 + number as u32);
        let (mut asked, second) = (Asked::default(), BETWEEN_REQUESTS);
        for number in 0..MOST_ASKED {
            assert!(asked.may_ask(host(number), number as u64));
            assert!(!asked.may_ask(host(number), number as u64 + 1), "{number}: a moment ago");
        }
        assert!(!asked.may_ask(host(900), second / 2));
        assert!(asked.answered(host(5)) && !asked.answered(host(5)) && !asked.answered(host(900)));
        assert!(asked.may_ask(host(900), second / 2));
        // The oldest gives its place when its time is over.
        assert!(!asked.may_ask(host(901), second - 1));
        assert!(asked.may_ask(host(901), second));
        assert!(!asked.answered(host(0)) && asked.answered(host(1)) && asked.answered(host(901)));
    }
}
