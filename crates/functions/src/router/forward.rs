//! The way of a packet through the router: checks, route, next hop, and the frame on the next link.

use std::net::IpAddr;
use std::rc::Rc;

use netbricks_core::buffer::{BATCH, Batch, GsoKind, Packet};
use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::icmp::{IcmpError, IcmpErrors, Unreachable};
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{HashKey, Ip, IpRef, MacAddress, ethertype, protocol};
use netbricks_core::tables::{LpmTicket, Missed, Table};
use netbricks_core::{BuildError, Context, Counter, DropReason, Edge, Worker};

use super::config::RouterConfig;
use super::discovery::{self, Broken};
use super::echo;
use super::edge_of;
use super::faces::{Face, Faces};
use super::fragment;
use super::look::{self, Parsed, Seen, look};
use super::neighbours::{NeighbourKey, Neighbours};
use super::reassemble::Reassembly;
use super::resolve::{Cache, time};
use super::resolver::{Resolver, Waiting};
use super::route::{Action, Hop};
use super::table::{RouteTable, Target};

/// Fragments for which there is room from the beginning: those of 64 KiB on links of 576 bytes.
const MOST_CUT: usize = 128;

/// One worker's part of the router.
pub(super) struct Forwarding {
    pub(super) faces: Rc<Faces>,
    pub(super) routes: Bounded<RouteTable>,
    pub(super) neighbours: Neighbours,
    pub(super) resolver: Resolver,
    pub(super) cache: Cache,
    /// Neighbours of the configuration, in the order of their keys.
    pub(super) fixed: Vec<(NeighbourKey, MacAddress)>,
    /// The errors that each interface sends.
    errors: Vec<IcmpErrors>,
    pub(super) counts: Counts,
    key: HashKey,
    /// The fragments that wait for others, where they are put together.
    pub(super) reassembly: Option<Reassembly>,
    /// Room for fragments of one packet.
    fragments: Vec<Packet>,
    /// Packets for the main way out.
    main: Vec<Packet>,
    seen: Vec<Seen>,
    tickets: Vec<LpmTicket<std::net::Ipv6Addr>>,
    missed: Missed,
    pub(super) work: super::resolve::Work,
}

/// Counters of packets, and of messages that the router heard.
pub(super) struct Counts {
    pub(super) forwarded: Counter,
    pub(super) delivered: Counter,
    pub(super) from_host: Counter,
    pub(super) answered: Counter,
    pub(super) fragmented: Counter,
    pub(super) errors_sent: Counter,
    pub(super) questions: Counter,
    pub(super) resolved: Counter,
    pub(super) unresolved: Counter,
    pub(super) moved: Counter,
    pub(super) duplicates: Counter,
}

impl Counts {
    fn new(worker: &Worker) -> Self {
        Self {
            forwarded: worker.counter("forwarded"),
            delivered: worker.counter("delivered"),
            from_host: worker.counter("from-host"),
            answered: worker.counter("answered"),
            fragmented: worker.counter("fragmented"),
            errors_sent: worker.counter("errors-sent"),
            questions: worker.counter("questions"),
            resolved: worker.counter("resolved"),
            unresolved: worker.counter("unresolved"),
            moved: worker.counter("moved"),
            duplicates: worker.counter("duplicate-addresses"),
        }
    }
}

/// The end of a packet in the router.
enum Fate {
    /// Dropped for a reason.
    Lost(DropReason),
    /// Dropped for a reason, and its sender is told.
    Refused(DropReason, IcmpError),
    /// It goes to this neighbour.
    Goes { to: NeighbourKey, is_gateway: bool },
    /// It is a ping to the router, and becomes the answer.
    Echo,
}

impl Forwarding {
    pub(super) fn new(
        config: &RouterConfig,
        faces: Rc<Faces>,
        routes: Bounded<RouteTable>,
        neighbours: Neighbours,
        worker: &Worker,
    ) -> Result<Self, BuildError> {
        let sizes = if worker.is_control() {
            super::resolver::Sizes { questions: 1, packets: 1, packets_each: 1 }
        } else {
            config.sizes()
        };
        let reassembling = if worker.is_control() { 1 } else { config.reassembling };
        let reassembly = config.reassemble.then(|| Reassembly::new(reassembling, worker.seed()));
        let mut fixed = config.static_neighbours(&faces);
        fixed.sort_by_key(|(key, _)| *key);
        let errors = (0..faces.all.len() as u16)
            .map(|face| IcmpErrors::new(faces.source_v4(face), faces.source_v6(face), config.error_rate));
        Ok(Self {
            errors: errors.collect(),
            fixed,
            resolver: Resolver::new(sizes, worker.seed()).map_err(BuildError::new)?,
            cache: Cache::new(config.reachable.nanoseconds()),
            counts: Counts::new(worker),
            key: HashKey::new([worker.seed(), ECMP]),
            reassembly: reassembly.transpose().map_err(BuildError::new)?,
            fragments: Vec::with_capacity(MOST_CUT),
            main: Vec::with_capacity(BATCH + MOST_CUT),
            seen: Vec::with_capacity(BATCH),
            tickets: vec![LpmTicket::default(); BATCH],
            missed: Missed::none(),
            work: super::resolve::Work::of(worker.group().workers()),
            faces,
            routes,
            neighbours,
        })
    }

    /// Takes a batch that came by a port.
    pub(super) fn process(&mut self, port: usize, batch: &mut Batch, cx: &mut Context) {
        self.look_around(cx);
        let routes = self.routes.clone();
        routes.read(|table| {
            self.catch_up(table, cx);
            let mut seen = std::mem::take(&mut self.seen);
            seen.clear();
            seen.extend(batch.iter().map(look));
            self.prefetch(table, &seen);
            for (slot, packet) in batch.drain().enumerate() {
                match seen.get(slot).copied().unwrap_or(Seen::Lost(DropReason::Malformed)) {
                    Seen::Lost(reason) => cx.drop_packet(packet, reason),
                    Seen::Arp { at, vlan } => match self.faces.entered(port, vlan) {
                        Some(face) => self.hear_arp(packet, face, at.into(), cx),
                        None => cx.drop_packet(packet, DropReason::Unmatched),
                    },
                    Seen::Ip(parsed) => match self.faces.entered(port, parsed.vlan) {
                        Some(face) => self.route(packet, face, &parsed, slot, table, cx),
                        None => cx.drop_packet(packet, DropReason::Unmatched),
                    },
                }
            }
            self.seen = seen;
        });
        self.write_learnt(time(cx));
        self.leave_together(batch, cx);
    }

    /// Asks for the memory of all routes at once, so that a batch waits once.
    fn prefetch(&mut self, table: &RouteTable, seen: &[Seen]) {
        let prefixes = table.prefixes();
        let hasher = prefixes.hasher();
        let address = |seen: &Seen| match seen {
            Seen::Ip(parsed) => Some(parsed.destination),
            _ => None,
        };
        for (seen, ticket) in seen.iter().zip(&mut self.tickets) {
            *ticket = address(seen).map_or_else(LpmTicket::default, |address| {
                <netbricks_core::tables::Routes<u32> as Table>::hash(&hasher, &address)
            });
        }
        let keys: [Option<IpAddr>; BATCH] = std::array::from_fn(|slot| seen.get(slot).and_then(address));
        let keys = keys.iter().take(seen.len()).map(Option::as_ref).zip(&mut self.tickets);
        prefixes.prefetch_all(keys, &mut self.missed);
    }

    fn route(
        &mut self,
        packet: Packet,
        face: u16,
        parsed: &Parsed,
        slot: usize,
        table: &RouteTable,
        cx: &mut Context,
    ) {
        let faces = self.faces.clone();
        let Some(ingress) = faces.get(face) else { return cx.drop_packet(packet, DropReason::Unmatched) };
        let (ip, payload) = parsed.header(packet.data());
        match discovery::of_icmpv6(ip, payload) {
            Ok(Some(message)) if is_for_link(ip, ingress) => {
                return self.hear_neighbour(packet, face, message, cx);
            }
            Err(broken) if is_for_link(ip, ingress) => {
                let reason = match broken {
                    Broken::Checksum if packet.missing() > 0 => DropReason::Truncated,
                    Broken::Checksum => DropReason::BadChecksum,
                    Broken::Form => DropReason::Malformed,
                };
                return cx.drop_packet(packet, reason);
            }
            _ => {}
        }
        if let (IpRef::V4(_), true, Some(reassembly)) = (ip, ip.is_fragment(), &mut self.reassembly)
            && is_to(packet.data(), ingress)
            && look::is_intact(packet.data(), parsed)
        {
            let whole = reassembly.take(packet, parsed, face, cx);
            // The first fragment of a packet gives the node another turn: its time may be the next that is over.
            self.wake(cx);
            let Some(whole) = whole else { return };
            let Seen::Ip(parsed) = look(&whole) else { return cx.drop_packet(whole, DropReason::Malformed) };
            // It goes to the same address as its last fragment.
            return self.forward(whole, face, &parsed, slot, table, cx);
        }
        self.forward(packet, face, parsed, slot, table, cx);
    }

    /// Forwards a packet that is no fragment that waits for others.
    fn forward(
        &mut self,
        packet: Packet,
        face: u16,
        parsed: &Parsed,
        slot: usize,
        table: &RouteTable,
        cx: &mut Context,
    ) {
        let faces = self.faces.clone();
        let Some(ingress) = faces.get(face) else { return cx.drop_packet(packet, DropReason::Unmatched) };
        let fate = self.fate(&packet, ingress, parsed, slot, table, time(cx));
        if let Some(silent) = self.work.silent.take() {
            self.ask_again(silent, table, cx);
        }
        if let Fate::Echo = fate {
            return self.echo(packet, ingress, parsed, cx);
        }
        self.follow(packet, face, fate, table, cx);
    }

    /// Does what was decided about a packet.
    fn follow(&mut self, packet: Packet, face: u16, fate: Fate, table: &RouteTable, cx: &mut Context) {
        match fate {
            Fate::Lost(reason) => cx.drop_packet(packet, reason),
            Fate::Refused(reason, error) => self.refuse(packet, face, reason, error, cx),
            Fate::Goes { to, is_gateway } => match self.mac(to, cx) {
                Some(mac) => self.send(packet, face, to.interface, mac, cx),
                None => self.wait(Waiting { packet, ingress: face }, to, is_gateway, table, cx),
            },
            Fate::Echo => cx.drop_packet(packet, DropReason::LocalDelivery),
        }
    }

    /// Decides about a packet, which stays as it came.
    fn fate(
        &mut self,
        packet: &Packet,
        ingress: &Face,
        parsed: &Parsed,
        slot: usize,
        table: &RouteTable,
        now: u64,
    ) -> Fate {
        let frame = packet.data();
        let Some(to) = frame.first_chunk::<6>().map(|mac| MacAddress::new(*mac)) else {
            return Fate::Lost(DropReason::Malformed);
        };
        let (ip, payload) = parsed.header(frame);
        if to != ingress.mac && !to.is_multicast() {
            // A port in promiscuous mode shows what is for others.
            return Fate::Lost(DropReason::Martian);
        }
        if !look::is_intact(frame, parsed) {
            return Fate::Lost(DropReason::BadChecksum);
        }
        if look::is_no_source(ip.source()) || look::is_source_routed(ip) {
            return Fate::Lost(DropReason::Martian);
        }
        let ticket = self.tickets.get(slot).copied().unwrap_or_default();
        let target = table.known(parsed.destination, ticket);
        if let Some(Target { action: Action::Local, .. }) = target {
            return self.to_the_router(ip, payload, ingress);
        }
        // Neither frames for all of a link are forwarded (RFC 1812 §5.3.4), nor directed broadcasts (RFC 2644).
        let is_broadcast = matches!(target, Some(Target { action: Action::Broadcast, .. }));
        let is_own = !ingress.is_host && self.faces.owner(ip.source()).is_some();
        if to.is_multicast() || is_broadcast || is_own || look::is_martian(ip) {
            return Fate::Lost(DropReason::Martian);
        }
        if !ingress.is_host && ip.ttl() <= 1 {
            return Fate::Refused(DropReason::TtlExpired, IcmpError::TimeExceeded);
        }
        let hops = match target.map(|target| (&target.action, target)) {
            Some((Action::Via(hops), target)) => self.hop(hops, target, frame, parsed, now),
            None => return Fate::Refused(DropReason::NoRoute, unreachable(Unreachable::NoRoute)),
            Some((Action::Unreachable, _)) => {
                return Fate::Refused(DropReason::NoRoute, unreachable(Unreachable::Host));
            }
            Some((Action::Prohibit, _)) => {
                return Fate::Refused(DropReason::Denied, unreachable(Unreachable::Prohibited));
            }
            Some((Action::Local | Action::Broadcast | Action::Blackhole, _)) => {
                return Fate::Lost(DropReason::Denied);
            }
        };
        let Some(hop) = hops else {
            return Fate::Refused(DropReason::NoRoute, unreachable(Unreachable::NoRoute));
        };
        let mtu = self.faces.get(hop.interface).map_or(0, |face| face.mtu);
        if largest(packet, parsed) > mtu && !may_be_cut(ip, packet) {
            return Fate::Refused(DropReason::TooBig, IcmpError::PacketTooBig { mtu: mtu as u32 });
        }
        let to =
            NeighbourKey { interface: hop.interface, address: hop.gateway.unwrap_or(parsed.destination) };
        Fate::Goes { to, is_gateway: hop.gateway.is_some() }
    }

    /// The next hop of a packet's flow: one that answers, where any does.
    #[inline]
    fn hop(&mut self, hops: &[Hop], target: &Target, frame: &[u8], parsed: &Parsed, now: u64) -> Option<Hop> {
        if let [only] = hops {
            return Some(*only);
        }
        let hash = parsed.hash(frame, &self.key);
        let first = hops.get(target.buckets.hop(hash)).copied()?;
        if !self.is_dead(&first, now) {
            return Some(first);
        }
        // Traffic asks again for a next hop that was silent, as it would for one that is new.
        self.work.silent = Some(first);
        let others = super::buckets::alive(hash, hops, |hop| !self.is_dead(hop, now));
        let Some(other) = others.and_then(|place| hops.get(place)) else { return Some(first) };
        self.counts.moved.add(1);
        Some(*other)
    }

    /// Decides about a packet for one of the router's addresses.
    fn to_the_router(&self, ip: IpRef<'_>, payload: &[u8], ingress: &Face) -> Fate {
        if ingress.is_host {
            // The host has these addresses itself.
            return Fate::Lost(DropReason::Martian);
        }
        match self.faces.host {
            Some(host) => Fate::Goes {
                to: NeighbourKey { interface: host, address: ip.destination() },
                is_gateway: false,
            },
            None if echo::is_request(ip, payload) => Fate::Echo,
            None if matches!(ip.protocol(), protocol::UDP | protocol::TCP) && !payload.is_empty() => {
                Fate::Refused(DropReason::LocalDelivery, unreachable(Unreachable::Port))
            }
            None => Fate::Lost(DropReason::LocalDelivery),
        }
    }

    /// Turns a ping into its answer, and sends it back.
    fn echo(&mut self, mut packet: Packet, face: &Face, parsed: &Parsed, cx: &mut Context) {
        match echo::answer(&mut packet, parsed, face.mac) {
            Ok(()) => {
                self.counts.answered.add(1);
                self.leave(edge_of(face.port), packet, cx);
            }
            Err(reason) => cx.drop_packet(packet, reason),
        }
    }

    /// Drops a packet, and tells its sender why.
    pub(super) fn refuse(
        &mut self,
        mut packet: Packet,
        face: u16,
        reason: DropReason,
        error: IcmpError,
        cx: &mut Context,
    ) {
        let slack = look::slack_of(&mut packet);
        let edge = self.faces.get(face).map_or(Edge::OUT, |face| edge_of(face.port));
        let answer = self
            .errors
            .get_mut(usize::from(face))
            .and_then(|errors| errors.about(packet.data(), slack, error, cx, packet.received_at()));
        if let Some(answer) = answer {
            self.counts.errors_sent.add(1);
            self.made(answer, edge, cx);
        }
        cx.drop_packet(packet, reason);
    }

    /// Sends a packet that the router made.
    pub(super) fn made(&mut self, packet: Packet, edge: Edge, cx: &mut Context) {
        cx.created(&packet);
        self.leave(edge, packet, cx);
    }

    /// Passes a packet on. Those for the main way out go together, at the end.
    fn leave(&mut self, edge: Edge, packet: Packet, cx: &mut Context) {
        if edge == Edge::OUT { self.main.push(packet) } else { cx.emit(edge, packet) }
    }

    /// Passes on the packets for the main way out, in `batch` where they fit.
    pub(super) fn leave_together(&mut self, batch: &mut Batch, cx: &mut Context) {
        let fits = self.main.len() <= BATCH && batch.is_empty();
        for packet in self.main.drain(..) {
            if !fits {
                cx.emit(Edge::OUT, packet);
            } else if let Err(packet) = batch.push(packet) {
                // Not reached: there is room for all.
                cx.drop_packet(packet, DropReason::QueueFull);
            }
        }
    }

    /// Sends a packet by an interface to a neighbour.
    pub(super) fn send(
        &mut self,
        mut packet: Packet,
        ingress: u16,
        egress: u16,
        mac: MacAddress,
        cx: &mut Context,
    ) {
        let faces = self.faces.clone();
        let (Some(from), Some(face)) = (faces.get(ingress), faces.get(egress)) else {
            return cx.drop_packet(packet, DropReason::Unmatched);
        };
        let Seen::Ip(parsed) = look(&packet) else { return cx.drop_packet(packet, DropReason::Malformed) };
        if from.is_host {
            self.counts.from_host.add(1);
        } else if face.is_host {
            self.counts.delivered.add(1);
        } else {
            let (at, end) = (usize::from(parsed.at), parsed.end as usize);
            fragment::one_hop_less(Ip::view_mut(&mut packet.data_mut()[at..end], parsed.facts));
            self.counts.forwarded.add(1);
        }
        let (ip, _) = parsed.header(packet.data());
        let kind = if ip.source().is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        let (before, after) = (usize::from(parsed.at), face.link_len());
        if before != after && !relink(&mut packet, before, after) {
            return cx.drop_packet(packet, DropReason::TooBig);
        }
        discovery::write_link(&mut packet.data_mut()[..after], face, mac, kind);
        let edge = edge_of(face.port);
        if largest(&packet, &parsed) > face.mtu && kind == ethertype::IPV4 {
            return self.send_fragments(packet, parsed.limit as usize + after - before, face, cx);
        }
        self.leave(edge, packet, cx);
    }

    /// Sends a packet in fragments.
    #[cold]
    fn send_fragments(&mut self, mut packet: Packet, limit: usize, face: &Face, cx: &mut Context) {
        if packet.missing() > 0 || packet.offload().gso != GsoKind::None {
            return cx.drop_packet(packet, DropReason::TooBig);
        }
        if fragment::reaches_too_far(packet.data(), face.link_len()) {
            return cx.drop_packet(packet, DropReason::Malformed);
        }
        fragment::complete_checksum(&mut packet, limit);
        self.fragments.clear();
        let cut = fragment::cut(&mut packet, face.link_len(), face.mtu, cx.pool(), &mut self.fragments);
        if cut.is_none() {
            self.fragments.clear();
            return cx.drop_packet(packet, DropReason::PoolExhausted);
        }
        self.counts.fragmented.add(1);
        let edge = edge_of(face.port);
        self.leave(edge, packet, cx);
        let mut fragments = std::mem::take(&mut self.fragments);
        for fragment in fragments.drain(..) {
            self.made(fragment, edge, cx);
        }
        // Its room is for the next packet's.
        self.fragments = fragments;
    }
}

/// The seed of the hash that chooses next hops, beside the worker's.
const ECMP: u64 = 0x6563_6d70_2d68_6173;

fn unreachable(reason: Unreachable) -> IcmpError {
    IcmpError::DestinationUnreachable(reason)
}

/// Whether a frame is to the router alone.
fn is_to(frame: &[u8], face: &Face) -> bool {
    frame.first_chunk::<6>() == Some(&face.mac.octets())
}

/// Whether an ICMPv6 packet is for this link alone: its groups, or the router's addresses there.
fn is_for_link(ip: IpRef<'_>, face: &Face) -> bool {
    match ip.destination() {
        IpAddr::V6(to) => {
            to.is_multicast() || to.is_unicast_link_local() || face.has(to.into()) || face.is_host
        }
        IpAddr::V4(_) => false,
    }
}

/// The bytes of the largest IP packet that this becomes on a wire: a device may cut it into segments.
pub(crate) fn largest(packet: &Packet, parsed: &Parsed) -> usize {
    let offload = packet.offload();
    if matches!(offload.gso, GsoKind::None) {
        return parsed.len();
    }
    let start = usize::from(offload.checksum_start);
    let transport = match offload.gso {
        GsoKind::TcpV4 | GsoKind::TcpV6 => {
            packet.data().get(start + 12).map_or(20, |offset| usize::from(offset >> 4) * 4)
        }
        GsoKind::Udp | GsoKind::None => 8,
    };
    (start + transport + usize::from(offload.gso_size))
        .saturating_sub(usize::from(parsed.at))
        .min(parsed.len())
}

/// Whether a packet that is too large may be cut into fragments.
pub(crate) fn may_be_cut(ip: IpRef<'_>, packet: &Packet) -> bool {
    match ip {
        IpRef::V4(header) => !header.dont_fragment() && packet.offload().gso == GsoKind::None,
        IpRef::V6(_) => false,
    }
}

/// Gives a frame a link header of another length; `false` where there is no room.
pub(crate) fn relink(packet: &mut Packet, before: usize, after: usize) -> bool {
    let moved = if after > before {
        packet.push_front(after - before).map(|_| ())
    } else {
        packet.pull_front(before - after)
    };
    let mut offload = packet.offload();
    if moved.is_ok() && offload.needs_checksum {
        let start = usize::from(offload.checksum_start) + after;
        offload.checksum_start = (start.saturating_sub(before)) as u16;
        packet.set_offload(offload);
    }
    moved.is_ok()
}
