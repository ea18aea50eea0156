//! IP packets of sessions: out of PPPoE towards the core, and into it towards subscribers.

use std::net::IpAddr;

use netbricks_core::buffer::Packet;
use netbricks_core::icmp::{IcmpError, Unreachable};
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::tcp_options::clamp_maximum_segment_size;
use netbricks_core::packet::{IpRef, ethertype, protocol as ip_protocol};
use netbricks_core::{Context, DropReason, length_slack};

use super::access::{Access, PPPOE, forget_session};
use super::concentrator::Concentrator;
use super::control::protocol;
use super::session::Session;
use crate::router::forward::{largest, may_be_cut, relink};
use crate::router::look::{Parsed, Seen, is_intact, is_martian, is_source_routed, look};
use crate::router::{echo, fragment};

/// Bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// Bytes of PPP's protocol field.
const PPP: usize = 2;

impl Concentrator {
    /// Takes a frame of the access port.
    pub(super) fn hear_access(&mut self, mut packet: Packet, now: u64, cx: &mut Context) {
        let access = match Access::read(&packet) {
            Ok(access) => access,
            Err(reason) => return drop_early(packet, reason, cx),
        };
        let sessions = self.sessions.clone();
        let mut sessions = sessions.borrow_mut();
        if !access.is_session {
            let reason = sessions.discover(&packet, &access, now, cx);
            return cx.drop_packet(packet, reason);
        }
        let frame = packet.data();
        if frame.first_chunk() != Some(&self.fixed.mac.octets()) {
            return drop_early(packet, DropReason::Martian, cx);
        }
        let [high, low] = match access.payload(frame) {
            [high, low, ..] if access.code == 0 => [*high, *low],
            _ => return drop_early(packet, DropReason::Malformed, cx),
        };
        let number = u16::from_be_bytes([high, low]);
        // A compressed field was not agreed on, and an odd first byte would be one.
        if number & 0x0101 != 1 {
            return drop_early(packet, DropReason::Malformed, cx);
        }
        let Some(index) = sessions.find(&access.line, access.id) else {
            sessions.disown(&access, now, cx);
            forget_password(&mut packet, &access, number);
            return cx.drop_packet(packet, DropReason::NoSession);
        };
        if let protocol::IPV4 | protocol::IPV6 = number {
            let Some(session) = sessions.get_mut(index) else {
                return cx.drop_packet(packet, DropReason::NoSession);
            };
            let is_open = if number == protocol::IPV4 { session.is_open_v4 } else { session.is_open_v6 };
            if !is_open {
                return cx.drop_packet(packet, DropReason::InvalidState);
            }
            session.heard_at = now;
            drop(sessions);
            return self.upstream(packet, &access, number == protocol::IPV4, index, cx);
        }
        let payload = access.payload(frame).get(PPP..).unwrap_or_default();
        let heard = sessions.with(index, now, cx, |session, env| session.hear(number, payload, env));
        let reason = match heard {
            Some(Err(reason)) => reason,
            Some(Ok(())) | None => DropReason::LocalDelivery,
        };
        forget_password(&mut packet, &access, number);
        cx.drop_packet(packet, reason);
    }

    /// Takes an IP packet of a subscriber.
    fn upstream(&mut self, mut packet: Packet, access: &Access, is_v4: bool, index: u32, cx: &mut Context) {
        let at = access.at + PPPOE + PPP;
        // Padding of the frame would be taken for a part of the packet.
        packet.truncate(access.end);
        if !relink(&mut packet, at, ETHERNET) {
            return cx.drop_packet(packet, DropReason::Malformed);
        }
        let kind = if is_v4 { ethertype::IPV4 } else { ethertype::IPV6 };
        self.write_core_link(&mut packet, kind);
        let Seen::Ip(parsed) = look(&packet) else { return cx.drop_packet(packet, DropReason::Malformed) };
        if let Err(reason) = self.check_source(&packet, &parsed, index) {
            return cx.drop_packet(packet, reason);
        }
        let (ip, payload) = parsed.header(packet.data());
        if let IpAddr::V6(to) = ip.destination()
            && (to.is_multicast() || to.is_unicast_link_local())
        {
            let is_solicitation =
                ip.protocol() == ip_protocol::ICMPV6 && payload.first() == Some(&133) && ip.ttl() == 255;
            return self.deliver_to_link(packet, is_solicitation, index, cx);
        }
        let is_local = matches!(ip.source(), IpAddr::V6(from) if from.is_unicast_link_local());
        if is_martian(ip) || is_source_routed(ip) || is_local {
            return cx.drop_packet(packet, DropReason::Martian);
        }
        let to = ip.destination();
        if self.is_own(to) {
            return self.deliver(packet, &parsed, Some(index), cx);
        }
        if ip.ttl() <= 1 {
            return self.refuse_subscriber(
                packet,
                index,
                DropReason::TtlExpired,
                IcmpError::TimeExceeded,
                cx,
            );
        }
        match self.owner(to) {
            Some(other) if other == index => {
                // The subscriber has no such host. The packet must not go back to its link (RFC 4443, section 3.1).
                let error = IcmpError::DestinationUnreachable(Unreachable::Host);
                return self.refuse_subscriber(packet, index, DropReason::NoRoute, error, cx);
            }
            Some(other) => return self.downstream(packet, &parsed, other, Some(index), cx),
            None => {}
        }
        packet.truncate(parsed.limit as usize);
        if !self.gate.is_known() {
            self.ask_gateway(cx);
            return cx.drop_packet(packet, DropReason::Unresolved);
        }
        self.one_hop_less(&mut packet, &parsed);
        self.clamp(&mut packet, &parsed, index);
        {
            let mut sessions = self.sessions.borrow_mut();
            if let Some(session) = sessions.get_mut(index) {
                session.from_subscriber.add(parsed.len());
            }
            sessions.shared.counts.upstream.add(1);
        }
        cx.emit(super::CORE, packet);
    }

    /// Whether the source address of a packet is the subscriber's.
    fn check_source(&self, packet: &Packet, parsed: &Parsed, index: u32) -> Result<(), DropReason> {
        if !is_intact(packet.data(), parsed) {
            return Err(DropReason::BadChecksum);
        }
        let (ip, _) = parsed.header(packet.data());
        let sessions = self.sessions.borrow();
        let session = sessions.get(index).ok_or(DropReason::NoSession)?;
        let is_its = match ip.source() {
            IpAddr::V4(from) => session.address == Some(from),
            IpAddr::V6(from) => {
                from.is_unicast_link_local() || session.prefix.is_some_and(|prefix| prefix.holds(from))
            }
        };
        if is_its {
            return Ok(());
        }
        sessions.shared.counts.spoofed.add(1);
        Err(DropReason::Martian)
    }

    /// Takes a packet for the link between subscriber and concentrator.
    fn deliver_to_link(&mut self, packet: Packet, is_solicitation: bool, index: u32, cx: &mut Context) {
        /// Time between two advertisements (RFC 4861, section 6.2.6).
        const BETWEEN: u64 = 3_000_000_000;
        let now = super::time(cx);
        if is_solicitation {
            self.sessions.borrow_mut().with(index, now, cx, |session, _| {
                if session.prefix.is_some() {
                    session.advertise_due = now.max(session.advertised_at.saturating_add(BETWEEN));
                }
            });
        }
        cx.drop_packet(packet, DropReason::LocalDelivery);
    }

    /// Takes a packet for the concentrator itself: it answers pings, of a subscriber or of the core.
    pub(super) fn deliver(
        &mut self,
        mut packet: Packet,
        parsed: &Parsed,
        index: Option<u32>,
        cx: &mut Context,
    ) {
        let (ip, payload) = parsed.header(packet.data());
        if !echo::is_request(ip, payload) {
            return cx.drop_packet(packet, DropReason::LocalDelivery);
        }
        if let Err(reason) = echo::answer(&mut packet, parsed, self.fixed.mac) {
            return cx.drop_packet(packet, reason);
        }
        match index {
            Some(index) => {
                self.encapsulate(packet, index, cx);
            }
            None => cx.emit(super::CORE, packet),
        }
    }

    /// Drops a packet of a subscriber, and tells it why.
    fn refuse_subscriber(
        &mut self,
        mut packet: Packet,
        index: u32,
        reason: DropReason,
        error: IcmpError,
        cx: &mut Context,
    ) {
        let slack = packet.open(|bytes| length_slack(bytes));
        let time = packet.received_at();
        if let Some(answer) = self.errors.about(packet.data(), slack, error, cx, time) {
            cx.created(&answer);
            if self.encapsulate(answer, index, cx) {
                self.sessions.borrow().shared.counts.errors_sent.add(1);
            }
        }
        cx.drop_packet(packet, reason);
    }

    /// Drops a packet of the core, and tells its sender why.
    fn refuse_core(&mut self, mut packet: Packet, reason: DropReason, error: IcmpError, cx: &mut Context) {
        let slack = packet.open(|bytes| length_slack(bytes));
        let time = packet.received_at();
        if let Some(answer) = self.errors.about(packet.data(), slack, error, cx, time) {
            cx.created(&answer);
            self.sessions.borrow().shared.counts.errors_sent.add(1);
            cx.emit(super::CORE, answer);
        }
        cx.drop_packet(packet, reason);
    }

    /// Sends a packet to a subscriber; `from` is the session of its sender, if that is a subscriber too.
    pub(super) fn downstream(
        &mut self,
        mut packet: Packet,
        parsed: &Parsed,
        index: u32,
        from: Option<u32>,
        cx: &mut Context,
    ) {
        let (ip, _) = parsed.header(packet.data());
        let is_v4 = matches!(ip, IpRef::V4(_));
        let (is_open, mtu) = {
            let sessions = self.sessions.borrow();
            let open = |session: &Session| if is_v4 { session.is_open_v4 } else { session.is_open_v6 };
            sessions.get(index).map_or((false, 0), |session| (open(session), session.mtu()))
        };
        if !is_open {
            return cx.drop_packet(packet, DropReason::NoSession);
        }
        let fault = if ip.ttl() <= 1 {
            Some((DropReason::TtlExpired, IcmpError::TimeExceeded))
        } else if largest(&packet, parsed) > mtu && !may_be_cut(ip, &packet) {
            Some((DropReason::TooBig, IcmpError::PacketTooBig { mtu: mtu as u32 }))
        } else {
            None
        };
        if let Some((reason, error)) = fault {
            return match from {
                Some(from) => self.refuse_subscriber(packet, from, reason, error, cx),
                None => self.refuse_core(packet, reason, error, cx),
            };
        }
        packet.truncate(parsed.limit as usize);
        self.one_hop_less(&mut packet, parsed);
        self.clamp(&mut packet, parsed, index);
        let is_sent = if largest(&packet, parsed) <= mtu {
            self.encapsulate(packet, index, cx)
        } else {
            self.send_fragments(packet, parsed, (mtu, index), cx)
        };
        if !is_sent {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        if let Some(session) = sessions.get_mut(index) {
            session.to_subscriber.add(parsed.len());
        }
        if let Some(sender) = from.and_then(|from| sessions.get_mut(from)) {
            sender.from_subscriber.add(parsed.len());
        }
        sessions.shared.counts.downstream.add(1);
    }

    /// Sends a packet to a subscriber in fragments; `false` where it was dropped.
    #[cold]
    fn send_fragments(
        &mut self,
        mut packet: Packet,
        parsed: &Parsed,
        (mtu, index): (usize, u32),
        cx: &mut Context,
    ) -> bool {
        if packet.missing() > 0 {
            cx.drop_packet(packet, DropReason::TooBig);
            return false;
        }
        if fragment::reaches_too_far(packet.data(), parsed.at.into()) {
            cx.drop_packet(packet, DropReason::Malformed);
            return false;
        }
        fragment::complete_checksum(&mut packet, parsed.limit as usize);
        let mut made = std::mem::take(&mut self.fragments);
        made.clear();
        if fragment::cut(&mut packet, parsed.at.into(), mtu, cx.pool(), &mut made).is_none() {
            made.clear();
            self.fragments = made;
            cx.drop_packet(packet, DropReason::PoolExhausted);
            return false;
        }
        let is_sent = self.encapsulate(packet, index, cx);
        if is_sent {
            self.sessions.borrow().shared.counts.fragmented.add(1);
        }
        for fragment in made.drain(..) {
            cx.created(&fragment);
            self.encapsulate(fragment, index, cx);
        }
        // Its room is for the next packet's.
        self.fragments = made;
        is_sent
    }

    /// Puts a packet behind an Ethernet header into the session's frame, and sends it; `false` where it was dropped.
    fn encapsulate(&mut self, mut packet: Packet, index: u32, cx: &mut Context) -> bool {
        let sessions = self.sessions.clone();
        let mut sessions = sessions.borrow_mut();
        let Some(session) = sessions.get(index) else {
            cx.drop_packet(packet, DropReason::NoSession);
            return false;
        };
        let kind = match packet.data().get(12..ETHERNET) {
            Some([0x86, 0xdd]) => protocol::IPV6,
            _ => protocol::IPV4,
        };
        let (link, len) = (session.link, usize::from(session.link_len));
        let ip_len = packet.len().saturating_sub(ETHERNET);
        let whole = len + PPPOE + PPP;
        if ip_len + PPP > usize::from(u16::MAX) || !relink(&mut packet, ETHERNET, whole) {
            cx.drop_packet(packet, DropReason::TooBig);
            return false;
        }
        let framing = session.framing(kind, ip_len);
        let header = &mut packet.data_mut()[..whole];
        header[..len].copy_from_slice(&link[..len]);
        header[len..].copy_from_slice(&framing);
        sessions.shared.to_access.push(packet);
        true
    }

    fn one_hop_less(&self, packet: &mut Packet, parsed: &Parsed) {
        use netbricks_core::packet::Ip;
        use netbricks_core::packet::stack::Header as _;
        let (at, end) = (usize::from(parsed.at), parsed.end as usize);
        if let Some(header) = packet.data_mut().get_mut(at..end) {
            fragment::one_hop_less(Ip::view_mut(header, parsed.facts));
        }
    }

    /// Lowers the maximum segment size of a SYN to what the session carries (RFC 4459, section 3.2).
    fn clamp(&mut self, packet: &mut Packet, parsed: &Parsed, index: u32) {
        let (ip, payload) = parsed.header(packet.data());
        let is_syn = ip.protocol() == ip_protocol::TCP
            && !ip.is_later_fragment()
            && payload.get(13).is_some_and(|flags| flags & 2 != 0);
        if !is_syn {
            return;
        }
        let headers: u16 = if matches!(ip, IpRef::V4(_)) { 40 } else { 60 };
        let offset = payload.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        let sessions = self.sessions.borrow();
        let Some(session) = sessions.get(index) else { return };
        let most = (session.mtu() as u16).saturating_sub(headers);
        let is_complete = !packet.offload().needs_checksum;
        let (at, limit) = (parsed.end as usize, parsed.limit as usize);
        let Some(segment) = packet.data_mut().get_mut(at..limit) else { return };
        let Some((head, _)) = segment.split_at_mut_checked(offset).filter(|_| offset > 20) else { return };
        let before = Sum::ZERO.add_bytes(&head[20..]).finish();
        if !clamp_maximum_segment_size(&mut head[20..], most) {
            return;
        }
        sessions.shared.counts.clamped.add(1);
        if is_complete {
            // The sum without the old options and with the new ones (RFC 1624). `before` is the old ones' complement.
            let old = u16::from_be_bytes([head[16], head[17]]);
            let sum = Sum::ZERO.add16(!old).add16(before).add_bytes(&head[20..]).finish();
            head[16..18].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Drops a packet whose session and protocol were not looked at.
pub(super) fn drop_early(mut packet: Packet, reason: DropReason, cx: &mut Context) {
    forget_session(packet.data_mut());
    cx.drop_packet(packet, reason);
}

/// Takes the password out of a packet of PAP that ends: what ends is recorded.
fn forget_password(packet: &mut Packet, access: &Access, number: u16) {
    if number == protocol::PAP
        && let Some(bytes) = packet.data_mut().get_mut(access.at + PPPOE + PPP + 4..)
    {
        bytes.fill(0);
    }
}
