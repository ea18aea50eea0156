//! Neighbours on the packet's way: known, asked for, waited for, and learnt from what comes.

use std::net::IpAddr;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::consistency::Access;
use netbricks_core::icmp::{IcmpError, Unreachable};
use netbricks_core::packet::MacAddress;
use netbricks_core::{Context, DropReason, Poll};

use super::discovery::{self, Kind, Message, learnt};
use super::edge_of;
use super::faces::Face;
use super::forward::Forwarding;
use super::neighbours::{Neighbour, NeighbourKey};
use super::resolver::{Cause, Due, Held, Question, Waiting};
use super::route::Hop;
use super::table::RouteTable;

/// Work that goes on from one call to the next.
pub(super) struct Work {
    /// Knowledge that could not be written yet, because another worker wrote.
    unwritten: Vec<(NeighbourKey, Option<Neighbour>)>,
    /// Whether other workers may hear answers.
    has_others: bool,
    /// When entries are next looked at for their end (ns).
    expires: u64,
    /// When the node's next turn is (ns).
    turn: u64,
    /// The version of shared state in which answers to questions were looked for.
    looked: u64,
    /// A next hop that was silent, and to which a packet would go.
    pub(super) silent: Option<Hop>,
}

impl Work {
    pub(super) fn of(workers: usize) -> Self {
        let unwritten = Vec::with_capacity(UNWRITTEN);
        Self { unwritten, has_others: workers > 1, expires: 0, turn: 0, looked: 0, silent: None }
    }
}

/// Questions that are asked in one turn, so that a scan of a network keeps no packet waiting.
const QUESTIONS_A_TURN: usize = 64;
/// Time between two looks at what other workers heard, while packets wait (ns).
const LOOK: u64 = 1_000_000;
/// Time between two looks at entries that may be over (ns).
const EXPIRE: u64 = 1_000_000_000;
/// Time for which an old entry's address is taken without another look (ns).
const OLD: u64 = 100_000_000;
/// Most knowledge that waits to be written; more is learnt again from the next message.
const UNWRITTEN: usize = 256;

/// MAC addresses that the worker used last, so that most packets need no look at shared state.
pub(super) struct Cache {
    entries: Vec<Option<(NeighbourKey, MacAddress, u64)>>,
    /// The version of the shared state that they are of.
    version: u64,
    /// Time after an answer in which a neighbour is not asked again (ns).
    reachable: u64,
}

const CACHED: usize = 1_024;

impl Cache {
    pub(super) fn new(reachable: u64) -> Self {
        Self { entries: vec![None; CACHED], version: 0, reachable }
    }
    #[inline(always)]
    fn place(key: NeighbourKey) -> usize {
        let bits = match key.address {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
        };
        let mixed = (bits ^ u64::from(key.interface) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize % CACHED
    }
    #[inline(always)]
    fn get(&self, key: NeighbourKey, now: u64) -> Option<MacAddress> {
        match self.entries.get(Self::place(key)) {
            Some(Some((known, mac, until))) if *known == key && now < *until => Some(*mac),
            _ => None,
        }
    }
    fn put(&mut self, key: NeighbourKey, mac: MacAddress, until: u64) {
        self.entries[Self::place(key)] = Some((key, mac, until));
    }
    fn forget(&mut self, key: NeighbourKey) {
        self.entries[Self::place(key)] = None;
    }
    /// Forgets all where the shared state has changed.
    fn follow(&mut self, version: u64) {
        if self.version != version {
            self.version = version;
            self.entries.fill(None);
        }
    }
}

/// The time of a batch (ns), in whole ms.
///
/// A batch holds arrivals of one ms, so that what is due does not depend on its size.
pub(super) fn time(cx: &Context) -> u64 {
    cx.now() - cx.now() % 1_000_000
}

impl Forwarding {
    /// Takes up what other workers have changed.
    pub(super) fn look_around(&mut self, cx: &mut Context) {
        self.cache.follow(self.neighbours.version());
        let now = time(cx);
        if !self.work.unwritten.is_empty() {
            self.write_learnt(now);
        }
        if now >= self.work.expires {
            self.neighbours.expire(now);
            self.work.expires = now.saturating_add(EXPIRE);
        }
    }

    /// The MAC address of a neighbour, where it is known. One that is old is asked for.
    #[inline]
    pub(super) fn mac(&mut self, key: NeighbourKey, cx: &mut Context) -> Option<MacAddress> {
        self.cache.get(key, time(cx)).or_else(|| self.look_up(key, cx))
    }

    #[inline(never)]
    fn look_up(&mut self, key: NeighbourKey, cx: &mut Context) -> Option<MacAddress> {
        let now = time(cx);
        if let Ok(place) = self.fixed.binary_search_by_key(&key, |(known, _)| *known) {
            let (_, mac) = self.fixed[place];
            self.cache.put(key, mac, u64::MAX);
            return Some(mac);
        }
        let neighbour = self.known(key, now).filter(Neighbour::is_known)?;
        let fresh_until = match neighbour.confirmed {
            _ if neighbour.is_static => u64::MAX,
            0 => 0,
            confirmed => confirmed.saturating_add(self.cache.reachable),
        };
        if fresh_until > now {
            self.cache.put(key, neighbour.mac, fresh_until);
            return Some(neighbour.mac);
        }
        if self.resolver.begin(key, Cause::Old(neighbour.mac), now) {
            self.wake(cx);
        }
        self.cache.put(key, neighbour.mac, now.saturating_add(OLD));
        Some(neighbour.mac)
    }

    /// The knowledge about a neighbour, also where this worker has not written it yet.
    fn known(&self, key: NeighbourKey, now: u64) -> Option<Neighbour> {
        match self.work.unwritten.iter().rev().find(|(known, _)| *known == key) {
            Some((_, neighbour)) => *neighbour,
            None => self.neighbours.get(key, now),
        }
    }

    /// Whether a next hop was asked for and did not answer.
    pub(super) fn is_dead(&self, hop: &Hop, now: u64) -> bool {
        let Some(address) = hop.gateway else { return false };
        let key = NeighbourKey { interface: hop.interface, address };
        self.cache.get(key, now).is_none() && self.known(key, now).is_some_and(|known| known.is_dead)
    }

    /// Asks again for a next hop that was silent, at most as often as a question takes.
    pub(super) fn ask_again(&mut self, hop: Hop, table: &RouteTable, cx: &mut Context) {
        let Some(address) = hop.gateway else { return };
        let key = NeighbourKey { interface: hop.interface, address };
        if self.resolver.question(key).is_none() && self.resolver.begin(key, Cause::Gateway, time(cx)) {
            self.ask_due(table, cx);
            self.wake(cx);
        }
    }

    pub(super) fn wake(&mut self, cx: &mut Context) {
        let mut next = self.next_due();
        if self.work.has_others {
            // Another worker may hear the answer.
            next = next.min(cx.now().saturating_add(LOOK));
        }
        if next < self.work.turn {
            self.work.turn = next;
            cx.wake();
        }
    }

    /// Lets a packet wait until its next hop is known.
    pub(super) fn wait(
        &mut self,
        waiting: Waiting,
        to: NeighbourKey,
        is_gateway: bool,
        table: &RouteTable,
        cx: &mut Context,
    ) {
        let cause = if is_gateway { Cause::Gateway } else { Cause::Host };
        let is_new = self.resolver.question(to).is_none();
        if !self.resolver.begin(to, cause, time(cx)) {
            // More are asked for than there is room for.
            self.counts.unresolved.add(1);
            return cx.drop_packet(waiting.packet, DropReason::Unresolved);
        }
        match self.resolver.hold(to, waiting) {
            Held::Waits => {}
            Held::Instead(oldest) | Held::Full(oldest) => cx.drop_packet(oldest, DropReason::QueueFull),
        }
        if is_new {
            if self.work.has_others && self.known(to, time(cx)).is_none() {
                // Another worker may hear the answer.
                self.learn(to, Some(Neighbour { is_asked: true, ..Neighbour::default() }));
            }
            // The first question leaves at once.
            self.ask_due(table, cx);
        }
        self.wake(cx);
    }

    /// Does what was due before the packets of this time, as the node's own turn does.
    pub(super) fn catch_up(&mut self, table: &RouteTable, cx: &mut Context) {
        if self.next_due() > time(cx) {
            return;
        }
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.expire(false, cx);
        }
        while self.resolver.next().is_some_and(|next| next <= time(cx)) {
            self.ask_due(table, cx);
        }
    }

    /// Asks what is due, and ends questions without an answer.
    fn ask_due(&mut self, table: &RouteTable, cx: &mut Context) {
        for _ in 0..QUESTIONS_A_TURN {
            match self.resolver.due(time(cx)) {
                None => return,
                Some(Due::Ask(key, cause)) => self.ask(key, cause, cx),
                Some(Due::Silent(question)) => self.silent(question, table, cx),
            }
        }
    }

    fn ask(&mut self, key: NeighbourKey, cause: Cause, cx: &mut Context) {
        let faces = self.faces.clone();
        let Some(face) = faces.get(key.interface) else { return };
        let at = if let Cause::Old(mac) = cause { Some(mac) } else { None };
        if let Some(question) = discovery::question(cx.pool(), face, key.address, at) {
            self.counts.questions.add(1);
            self.made(question, edge_of(face.port), cx);
        }
    }

    /// Ends a question without an answer: packets that waited are dropped, and their senders told.
    fn silent(&mut self, mut question: Question, table: &RouteTable, cx: &mut Context) {
        let (key, now) = (question.key, time(cx));
        self.cache.forget(key);
        let reachable = self.cache.reachable;
        let is_fresh =
            |known: &Neighbour| known.is_known() && now < known.confirmed.saturating_add(reachable);
        if let Some(Neighbour { mac, .. }) = self.known(key, now).filter(is_fresh) {
            // Another worker heard it, at the last moment.
            while let Some(Waiting { packet, ingress }) = self.resolver.take(&mut question) {
                self.send(packet, ingress, key.interface, mac, cx);
            }
            return;
        }
        let dead = Neighbour { is_dead: true, ..Neighbour::default() };
        let is_gateway = table.is_gateway(key.interface, key.address);
        self.learn(key, is_gateway.then_some(dead));
        while let Some(Waiting { packet, ingress }) = self.resolver.take(&mut question) {
            self.counts.unresolved.add(1);
            let error = IcmpError::DestinationUnreachable(Unreachable::Host);
            self.refuse(packet, ingress, DropReason::Unresolved, error, cx);
        }
    }

    /// Takes note of a neighbour, for all workers; `None` forgets it.
    fn learn(&mut self, key: NeighbourKey, neighbour: Option<Neighbour>) {
        self.cache.forget(key);
        self.work.unwritten.retain(|(known, _)| *known != key);
        if self.work.unwritten.len() < UNWRITTEN {
            self.work.unwritten.push((key, neighbour));
        }
    }

    /// Writes what was learnt, outside of all reads.
    pub(super) fn write_learnt(&mut self, now: u64) {
        let neighbours = &self.neighbours;
        self.work.unwritten.retain(|(key, neighbour)| match neighbour {
            Some(neighbour) => !neighbours.put(*key, *neighbour, now),
            None => neighbours.remove(*key, now).is_none(),
        });
    }

    /// Hears an ARP packet, and answers it where it asks for an address of the interface.
    pub(super) fn hear_arp(&mut self, packet: Packet, face: u16, at: usize, cx: &mut Context) {
        let faces = self.faces.clone();
        let (Some(interface), Some((arp, message))) = (faces.get(face), discovery::of_arp(packet.data(), at))
        else {
            return cx.drop_packet(packet, DropReason::Malformed);
        };
        let is_ours = self.is_asked_for(interface, &message);
        self.hear(interface, face, &message, is_ours, cx);
        if is_ours && let Some(reply) = discovery::arp_reply(cx.pool(), interface, &arp) {
            self.counts.answered.add(1);
            self.made(reply, edge_of(interface.port), cx);
            return cx.drop_packet(packet, DropReason::Answered);
        }
        cx.drop_packet(packet, DropReason::LocalDelivery);
    }

    /// Hears a message of neighbour discovery, and answers it where it asks for an address of the interface.
    pub(super) fn hear_neighbour(&mut self, packet: Packet, face: u16, message: Message, cx: &mut Context) {
        let faces = self.faces.clone();
        let Some(interface) = faces.get(face) else { return cx.drop_packet(packet, DropReason::Unmatched) };
        let is_ours = self.is_asked_for(interface, &message);
        self.hear(interface, face, &message, is_ours, cx);
        let from =
            packet.data().get(6..12).and_then(|mac| mac.first_chunk::<6>()).map(|mac| MacAddress::new(*mac));
        if let (true, Some(from), Kind::Asks { target: IpAddr::V6(target) }, IpAddr::V6(asker)) =
            (is_ours, from, message.kind, message.address)
            && let Some(answer) = discovery::advertisement(cx.pool(), interface, target, asker, from)
        {
            self.counts.answered.add(1);
            self.made(answer, edge_of(interface.port), cx);
            return cx.drop_packet(packet, DropReason::Answered);
        }
        cx.drop_packet(packet, DropReason::LocalDelivery);
    }

    /// Whether a message asks for an address for which the router answers on this interface.
    ///
    /// Towards the host these are all addresses but its own, which are the router's too.
    fn is_asked_for(&self, face: &Face, message: &Message) -> bool {
        let Kind::Asks { target } = message.kind else { return false };
        if face.is_host {
            return !message.address.is_unspecified()
                && self.faces.owner(target).is_none()
                && target != message.address
                && !matches!(target, IpAddr::V6(v6) if v6.is_unicast_link_local());
        }
        face.has(target)
    }

    /// Learns from a message what the RFCs allow, and lets packets go that waited for it.
    fn hear(&mut self, face: &Face, interface: u16, message: &Message, to_us: bool, cx: &mut Context) {
        let (address, now) = (message.address, time(cx));
        if !face.is_host && face.has(address) {
            self.counts.duplicates.add(1);
            return;
        }
        if address.is_unspecified() || !(face.is_host || face.is_on_link(address)) {
            return;
        }
        let key = NeighbourKey { interface, address };
        let asked = self.resolver.question(key).is_some();
        let known = self.known(key, now);
        let Some(neighbour) = learnt(message, known, asked, to_us, now) else { return };
        self.learn(key, Some(neighbour));
        self.resolved(key, neighbour.mac, neighbour.confirmed > 0, cx);
    }

    /// Ends the question about a neighbour, and sends the packets that waited for the answer.
    fn resolved(&mut self, key: NeighbourKey, mac: MacAddress, is_confirmed: bool, cx: &mut Context) {
        let is_old =
            self.resolver.question(key).is_some_and(|question| matches!(question.cause, Cause::Old(_)));
        if is_old && !is_confirmed {
            return;
        }
        let Some(mut question) = self.resolver.end(key) else { return };
        self.counts.resolved.add(1);
        while let Some(Waiting { packet, ingress }) = self.resolver.take(&mut question) {
            self.send(packet, ingress, key.interface, mac, cx);
        }
    }

    /// Ends the questions to which another worker heard the answer.
    fn take_answers(&mut self, cx: &mut Context) {
        for place in 0..self.resolver.places() {
            let Some(key) = self.resolver.key_at(place) else { continue };
            if let Some(Neighbour { mac, confirmed, .. }) = self.answered(key, time(cx)) {
                self.resolved(key, mac, confirmed > 0, cx);
            }
        }
    }

    /// The knowledge about a neighbour that is asked for, where that ends the question.
    fn answered(&self, key: NeighbourKey, now: u64) -> Option<Neighbour> {
        let known = self.known(key, now).filter(Neighbour::is_known)?;
        let is_old = matches!(self.resolver.question(key)?.cause, Cause::Old(_));
        let is_fresh = now < known.confirmed.saturating_add(self.cache.reachable);
        (!is_old || known.is_static || is_fresh && known.confirmed > 0).then_some(known)
    }

    /// The node's own turn: questions that are due, and answers that other workers heard.
    pub(super) fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.look_around(cx);
        let is_new = std::mem::replace(&mut self.work.looked, self.cache.version) != self.cache.version;
        let routes = self.routes.clone();
        routes.read(|table| {
            if is_new {
                self.take_answers(cx);
            }
            self.catch_up(table, cx);
        });
        self.write_learnt(time(cx));
        self.leave_together(batch, cx);
        let now = time(cx);
        let mut turn = self.next_due().max(cx.now() + 1);
        if !self.work.unwritten.is_empty() || self.work.has_others && self.resolver.asked() > 0 {
            turn = turn.min(now.saturating_add(LOOK));
        }
        // A turn now and then, in which old entries end.
        self.work.turn = turn.min(now.saturating_add(EXPIRE));
        Poll::Until(self.work.turn)
    }

    /// When the next question is due, or fragments are given up (ns).
    fn next_due(&self) -> u64 {
        let fragments = self.reassembly.as_ref().and_then(super::reassemble::Reassembly::next);
        self.resolver.next().into_iter().chain(fragments).min().unwrap_or(u64::MAX)
    }

    /// Packets that wait for MAC addresses or for other fragments.
    pub(super) fn held(&self) -> u64 {
        let fragments = self.reassembly.as_ref().map_or(0, super::reassemble::Reassembly::held);
        (self.resolver.held() + fragments) as u64
    }

    /// Gives up the packets that wait, because the graph is taken down.
    pub(super) fn give_up(&mut self, cx: &mut Context) {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.expire(true, cx);
        }
        while let Some(mut question) = self.resolver.take_any() {
            while let Some(Waiting { packet, .. }) = self.resolver.take(&mut question) {
                cx.drop_packet(packet, DropReason::Unresolved);
            }
        }
    }
}
