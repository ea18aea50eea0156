//! NAT64 (RFC 6146), NPTv6 (RFC 6296), and packets that do not fit the link on the other side.

use std::net::IpAddr;

use netbricks_core::buffer::{Bytes, GsoKind};
use netbricks_core::icmp::IcmpError;
use netbricks_core::packet::{IpRef, ethertype};
use netbricks_core::{Context, DropReason, Edge, Verdict};

use super::config::is_in;
use super::engine::{Engine, Outcome, Rules, Side, dropped, is_of_the_link};
use super::errors::ErrorPlan;
use super::fragments::Known;
use super::identification;
use super::packet::{Message, Place, Seen, rewrite};
use super::spec::{Endpoint, Prefix};
use super::state::Translated;
use super::version::{self, LEAST_V6_MTU};

/// Room for an ICMPv6 error of the minimum MTU.
const ERROR: usize = LEAST_V6_MTU;

impl Rules {
    /// The IPv4 endpoint that a destination stands for; an IPv4 destination stands for itself.
    pub(super) fn outside_of(&self, destination: Endpoint) -> Option<Endpoint> {
        match destination.address {
            IpAddr::V4(_) => Some(destination),
            IpAddr::V6(address) => {
                let address = self.embedding?.extract(address)?;
                (!is_of_the_link(address) && !address.is_unspecified())
                    .then(|| Endpoint { address: address.into(), port: destination.port })
            }
        }
    }

    /// An address as hosts of the version of `like` see it.
    fn seen_by(&self, address: IpAddr, like: IpAddr) -> Option<IpAddr> {
        match (address, like) {
            (IpAddr::V4(address), IpAddr::V6(_)) => Some(self.embedding?.embed(address).into()),
            (address, _) => Some(address),
        }
    }
}

impl Engine {
    /// A packet of IPv6: a solicitation, of NPTv6, of NAT64, or none of ours.
    pub(super) fn v6(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        side: Side,
        cx: &mut Context,
    ) -> Outcome {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (seen.flow.source(), seen.flow.destination())
        else {
            return Err(Verdict::PASS);
        };
        if let Some(mac) = self.rules.mac {
            let pairs = &self.rules.pairs;
            let ours =
                |target: std::net::Ipv6Addr| pairs.iter().any(|pair| pair.outside.holds(target.into()));
            if let Some(verdict) = super::answers::solicitation(frame, seen, mac, ours, (cx, slot)) {
                return Err(verdict);
            }
        }
        let local = |address: std::net::Ipv6Addr| {
            address.is_multicast()
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_loopback()
        };
        if local(source) || local(destination) {
            return Err(Verdict::PASS);
        }
        if self
            .rules
            .pairs
            .iter()
            .any(|pair| pair.inside.holds(source.into()) || pair.outside.holds(destination.into()))
        {
            return self.prefixes(frame, seen, side);
        }
        let embedded = self.rules.embedding.and_then(|embedding| embedding.extract(destination));
        if embedded.is_none() || side == Side::Outside || !self.is_inside_v6(source.into()) {
            return Err(Verdict::PASS);
        }
        self.sized(slot, frame, seen, true, cx)?;
        if seen.is_fragment {
            return self.fragment(slot, frame, seen, true, cx);
        }
        let known = self.whole_packet(frame, seen, true);
        self.finish(slot, frame, seen, known, cx)
    }

    /// Where `inside` has no prefix of IPv6, every source is inside.
    fn is_inside_v6(&self, source: IpAddr) -> bool {
        let mut v6 = self.rules.inside.iter().filter(|prefix: &&Prefix| prefix.address.is_ipv6()).peekable();
        v6.peek().is_none() || is_in(&self.rules.inside, source)
    }

    /// Exchanges the prefixes of a packet's addresses (NPTv6). No checksum changes.
    fn prefixes(&mut self, frame: &mut Bytes<'_>, seen: &Seen, side: Side) -> Outcome {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (seen.flow.source(), seen.flow.destination())
        else {
            return Err(Verdict::PASS);
        };
        let outward = self.rules.pairs.iter().find(|pair| pair.inside.holds(source.into()));
        let inward = self.rules.pairs.iter().find(|pair| pair.outside.holds(destination.into()));
        if outward.is_some() && side == Side::Outside {
            return Err(dropped(DropReason::Martian));
        }
        // Between hosts inside, packets need no translation.
        if outward.is_some_and(|pair| pair.inside.holds(destination.into())) {
            return Err(Verdict::PASS);
        }
        let refused = dropped(DropReason::NoMapping);
        let new_source = outward.map(|pair| pair.outward(source).ok_or(refused)).transpose()?;
        let new_destination = inward.map(|pair| pair.inward(destination).ok_or(refused)).transpose()?;
        let quoted = match seen.message {
            Message::Error => seen.place.payload + 8,
            _ => seen.place.end,
        };
        let (ip, end) = (seen.place.ip, seen.place.end);
        let data = frame.data_mut();
        // The packet that an error quotes went the other way.
        if let Some(quote) = data.get_mut(quoted..end).and_then(<[u8]>::first_chunk_mut::<40>)
            && quote[0] >> 4 == 6
        {
            let address = |at: usize, quote: &[u8; 40]| {
                quote[at..].first_chunk::<16>().map(|octets| std::net::Ipv6Addr::from(*octets))
            };
            let (from, to) = (address(8, quote), address(24, quote));
            let to_outside = outward.and_then(|pair| to.and_then(|to| pair.outward(to)));
            let from_inside = inward.and_then(|pair| from.and_then(|from| pair.inward(from)));
            if let Some(to) = to_outside {
                quote[24..40].copy_from_slice(&to.octets());
            }
            if let Some(from) = from_inside {
                quote[8..24].copy_from_slice(&from.octets());
            }
        }
        if let Some(source) = new_source {
            data[ip + 8..ip + 24].copy_from_slice(&source.octets());
        }
        if let Some(destination) = new_destination {
            data[ip + 24..ip + 40].copy_from_slice(&destination.octets());
        }
        let hairpin = new_source.is_some() && new_destination.is_some();
        let known = Known {
            source: new_source.unwrap_or(source).into(),
            destination: new_destination.unwrap_or(destination).into(),
            neighbor: None,
            hairpin,
            identification: None,
        };
        self.leave(frame, &known)
    }

    /// Writes a packet's translation, in the version of its destination.
    pub(super) fn write(
        &mut self,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        to: Translated,
        identifier: u16,
        hairpin: bool,
    ) -> Result<Known, Verdict> {
        let no_mapping = dropped(DropReason::NoMapping);
        let source = self.rules.seen_by(to.source.address, to.destination.address).ok_or(no_mapping)?;
        let to = Translated { source: Endpoint { address: source, ..to.source }, ..to };
        if to.destination.address.is_ipv6() == seen.flow.is_v6() {
            rewrite(frame, seen, &to, Some(identifier)).map_err(dropped)?;
        } else {
            let identification = self.next_identification();
            let ends = (to.source, to.destination);
            version::translate(frame, seen, ends, identifier, identification as u16).map_err(dropped)?;
        }
        let destination = to.destination.address;
        Ok(Known { source, destination, neighbor: to.neighbor, hairpin, identification: None })
    }

    /// Writes the addresses of a later fragment.
    pub(super) fn write_later(
        &mut self,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        known: &Known,
    ) -> Result<(), DropReason> {
        let [source, destination] =
            [known.source, known.destination].map(|address| Endpoint { address, port: 0 });
        if destination.address.is_ipv6() == seen.flow.is_v6() {
            let to = Translated { source, destination, neighbor: known.neighbor };
            rewrite(frame, seen, &to, None)?;
            let header = frame.data_mut().get_mut(seen.place.ip..).and_then(|ip| ip.first_chunk_mut::<20>());
            if let (Some(identification), Some(header)) = (known.identification, header) {
                identification::set(header, identification);
            }
            return Ok(());
        }
        let identification = self.next_identification();
        version::translate(frame, seen, (source, destination), 0, identification as u16)
    }

    fn next_identification(&mut self) -> u32 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }

    /// Makes an ICMP error one of the other version.
    pub(super) fn other_error(
        &mut self,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        plan: &ErrorPlan,
    ) -> Result<Known, Verdict> {
        let no_mapping = dropped(DropReason::NoMapping);
        let to = self.rules.outside_or_same(plan.outer_destination, seen.flow.is_v6()).ok_or(no_mapping)?;
        let from = plan.outer_source.unwrap_or(seen.flow.source());
        let from = self.rules.seen_by(from, to).ok_or(no_mapping)?;
        let ends = [plan.quoted_source, plan.quoted_destination].map(|end| {
            let address = self
                .rules
                .seen_by(end.address, to)
                .and_then(|address| self.rules.outside_or_same(address, to.is_ipv4()));
            address.map(|address| Endpoint { address, ..end })
        });
        let [Some(quoted_from), Some(quoted_to)] = ends else { return Err(no_mapping) };
        let mut room = [0; ERROR + 48];
        let length = version::error(seen, frame.data(), (from, to), (quoted_from, quoted_to), &mut room);
        let length = length.ok_or(no_mapping)?;
        let link = seen.place.ip;
        let number = if to.is_ipv6() { ethertype::IPV6 } else { ethertype::IPV4 };
        let old = if to.is_ipv6() { ethertype::IPV4 } else { ethertype::IPV6 };
        if frame.data()[link - 2..link] != old.to_be_bytes() || !seen.place.slack.is_none() {
            return Err(no_mapping);
        }
        let size = link + length;
        frame.truncate(size);
        let more = size - frame.len();
        if more > 0 && frame.extend(more).is_err() {
            return Err(dropped(DropReason::TooBig));
        }
        let data = frame.data_mut();
        data[link - 2..link].copy_from_slice(&number.to_be_bytes());
        data[link..].copy_from_slice(&room[..length]);
        Ok(Known {
            source: from,
            destination: to,
            neighbor: plan.neighbor,
            hairpin: false,
            identification: None,
        })
    }

    /// Whether a packet has a hop left and will fit its way; its sender is told where it does not.
    ///
    /// # Errors
    /// The verdict on a packet that does not.
    pub(super) fn sized(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        is_inside: bool,
        cx: &mut Context,
    ) -> Outcome {
        let (header, v6) = (seen.place.header(frame.data()), seen.flow.is_v6());
        let to_v6 = !v6 && !is_inside && self.leads_to_v6(seen);
        let hops = header.ttl();
        let dont_fragment = match header {
            IpRef::V4(header) => header.fixed().octets()[6] & 0x40 != 0,
            IpRef::V6(_) => !seen.is_fragment,
        };
        self.may_cut = !dont_fragment;
        // A translator between versions is a router.
        if (v6 || to_v6) && hops <= 1 {
            self.errors.answer_frame(slot, frame, IcmpError::TimeExceeded, cx);
            return Err(dropped(DropReason::TtlExpired));
        }
        let limit = if is_inside { self.rules.mtu } else { self.rules.inside_mtu };
        if limit == 0 || !dont_fragment || frame.offload().gso != GsoKind::None {
            return Ok(());
        }
        let payload = seen.place.end - seen.place.payload;
        let length = match (v6, to_v6) {
            (true, _) => payload + 20,
            (false, true) => payload + 40,
            (false, false) => seen.place.end - seen.place.ip,
        };
        if length <= limit {
            return Ok(());
        }
        let mtu = match (v6, to_v6) {
            (true, _) => limit + 20,
            (false, true) => limit.saturating_sub(20),
            (false, false) => limit,
        };
        self.errors.answer_frame(slot, frame, IcmpError::PacketTooBig { mtu: mtu as u32 }, cx);
        Err(dropped(DropReason::TooBig))
    }

    /// Whether a packet from outside goes to a host of IPv6.
    fn leads_to_v6(&self, seen: &Seen) -> bool {
        let (Some(transport), IpAddr::V4(address)) = (seen.transport, seen.flow.destination()) else {
            return false;
        };
        let state = self.state.borrow();
        let mapping = state.mapping_outside(address, seen.flow.destination_port(), transport);
        mapping
            .and_then(|number| state.mappings.get(number))
            .is_some_and(|found| found.inside.address.is_ipv6())
    }

    /// Cuts a translated packet that is too long for its way into fragments (RFC 4787, REQ-13 (a); RFC 7915).
    pub(super) fn fit(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        known: &Known,
        outcome: Outcome,
        cx: &mut Context,
    ) -> Outcome {
        let edge = match outcome {
            Ok(()) => Edge::OUT,
            Err(Verdict::REPLY) => Edge::REPLY,
            Err(_) => return outcome,
        };
        let Some(place) = Place::of(frame) else { return outcome };
        let seen = Seen::of(place, frame);
        let length = place.end - place.ip;
        let to_inside = known.hairpin || is_in(&self.rules.inside, known.destination) || seen.flow.is_v6();
        let limit = if to_inside { self.rules.inside_mtu } else { self.rules.mtu };
        // A packet of IPv4 that may be cut becomes one of IPv6 that fits every link (RFC 7915, section 4).
        let from_v4 = seen.flow.is_v6()
            && self.rules.embedding.is_some_and(
                |own| matches!(known.source, IpAddr::V6(source) if own.extract(source).is_some()),
            );
        let limit = match limit {
            0 if from_v4 && self.may_cut => LEAST_V6_MTU,
            limit => limit,
        };
        if limit == 0 || length <= limit || frame.offload().gso != GsoKind::None {
            return outcome;
        }
        let identification = self.next_identification();
        let whole: &[u8] = frame.data();
        let made = version::cut(whole, &seen, limit, identification, edge, |edge, parts| {
            let length = parts.iter().map(|part| part.len()).sum();
            let Some(mut packet) = cx.pool().allocate(length) else { return false };
            let mut at = 0;
            for part in parts {
                packet.data_mut()[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            self.emit(slot, edge, packet, cx);
            true
        });
        if made { Err(dropped(DropReason::Segmented)) } else { Err(dropped(DropReason::TooBig)) }
    }
}

impl Rules {
    /// An address as the other version has it, where `other` asks for IPv4 of an embedded one.
    fn outside_or_same(&self, address: IpAddr, other: bool) -> Option<IpAddr> {
        match (address, other) {
            (IpAddr::V6(address), true) => Some(self.embedding?.extract(address)?.into()),
            (address, _) => Some(address),
        }
    }
}
