//! The facts about a packet that decide its way.

use std::net::IpAddr;

use netbricks_core::buffer::Bytes;
use netbricks_core::length_slack;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, protocol};

use super::balance::Kind;
use super::send::Place;
use crate::closing::believed_flags;
use crate::fragment::Fragment;

/// The facts about a packet that decide its way.
pub(super) struct Parsed {
    pub(super) place: Place,
    /// Its flow, as [`flow_of`] tells it.
    pub(super) flow: FlowKey,
    /// Whether it is an error that quotes this flow.
    pub(super) quotes: bool,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) is_discovery: bool,
    /// Its effect on its connection.
    pub(super) kind: Kind,
    pub(super) fragment: Option<Fragment>,
    /// Its type, where it is an ICMP message.
    pub(super) message: Option<u8>,
}

impl Parsed {
    /// The fragment that it is, unless it is the packet's first or the packet is whole.
    pub(super) fn later(&self) -> Option<&Fragment> {
        self.fragment.as_ref().filter(|fragment| !fragment.is_first)
    }
    /// The fragment that it is, where that is the packet's first.
    pub(super) fn first(&self) -> Option<&Fragment> {
        self.fragment.as_ref().filter(|fragment| fragment.is_first)
    }
}

/// The flow that a packet goes with; an error's is the one that it is about.
///
/// Later fragments have no ports.
pub(super) fn flow_of(header: IpRef<'_>, payload: &[u8]) -> FlowKey {
    let own = FlowKey::of(header, payload);
    if header.is_later_fragment() {
        return own.portless();
    }
    FlowKey::quoted(header, payload).unwrap_or(own)
}

pub(super) fn has_ports(flow: FlowKey) -> bool {
    protocol::has_ports(flow.protocol())
}

/// Parses a frame; `None` where it is not IP.
pub(super) fn parsed(frame: &Bytes<'_>) -> Option<Parsed> {
    let (data, slack) = (frame.data(), length_slack(frame));
    let link = Layer::<Root, Link>::parse_with(Root, data, slack).ok()?;
    let ip = Layer::<_, Ip>::parse_with(link, data, slack).ok()?;
    let ((at, facts), end) = (ip.top(), ip.end());
    let limit = ip.limit(data.len()).min(data.len());
    let (header, payload) = (Ip::view(&data[at..end], facts), &data[end..limit]);
    let ((link_at, link_facts), link_end) = (link.top(), link.end());
    let view = Link::view(&data[link_at..link_end], link_facts);
    let place = Place {
        ip: at,
        end: limit,
        is_typed: view.labels().is_empty() && view.pppoe().is_none(),
        is_v6: matches!(header, IpRef::V6(_)),
        tos: header.dscp() << 2 | header.ecn(),
    };
    let is_later = header.is_later_fragment();
    let number = header.protocol();
    let is_icmp = number == if place.is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
    let message = payload.first().copied().filter(|_| is_icmp && !is_later);
    let is_error = message.is_some() && FlowKey::is_error(header, payload);
    let kind = match number {
        _ if is_error || is_later => Kind::Stray,
        // One that would close its connection, and that no server takes, has no effect on it.
        protocol::TCP => match payload.get(13) {
            Some(found) if *found != believed_flags(header, payload, frame) => Kind::Stray,
            Some(found) => Kind::of(*found),
            None => Kind::Data,
        },
        _ => Kind::Data,
    };
    Some(Parsed {
        place,
        flow: flow_of(header, payload),
        quotes: is_error && FlowKey::quoted(header, payload).is_some(),
        source: header.source(),
        destination: header.destination(),
        is_discovery: place.is_v6 && matches!(message, Some(133..=137)),
        kind,
        fragment: Fragment::of(header, payload),
        message,
    })
}

impl Kind {
    /// The kind of a segment with these flags.
    fn of(found: u8) -> Self {
        if found & flags::RST != 0 {
            Self::Reset
        } else if found & flags::FIN != 0 {
            Self::Fin
        } else if found & (flags::SYN | flags::ACK) == flags::SYN {
            Self::Opens
        } else {
            Self::Data
        }
    }
}
