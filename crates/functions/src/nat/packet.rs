//! A packet's headers, addresses and ports, looked up once, and the rewriting of them.

use std::net::IpAddr;

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::ip::IpFacts;
use netbricks_core::packet::rewrite::{QuotedChange, RewriteError, Shape, change_quoted};
use netbricks_core::packet::stack::{Header, Layer, LengthSlack, Root, Stack};
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, protocol};
use netbricks_core::{DropReason, length_slack};

use super::spec::{Endpoint, Transport};
use super::state::Translated;
use crate::closing::believed_flags;

/// Where a frame's IP packet lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The offset of the IP header, of the bytes behind it, and of the packet's end.
    pub(super) ip: usize,
    pub(super) payload: usize,
    pub(super) end: usize,
    pub(super) facts: IpFacts,
    pub(super) slack: LengthSlack,
}

impl Place {
    /// The IP packet of a frame; `None` where there is none that is well-formed.
    pub(super) fn of(frame: &Bytes<'_>) -> Option<Self> {
        let data = frame.data();
        let whole = LengthSlack { missing: 0, unstated: false };
        Self::with(data, whole).or_else(|| {
            let slack = length_slack(frame);
            if slack.is_none() { None } else { Self::with(data, slack) }
        })
    }

    fn with(data: &[u8], slack: LengthSlack) -> Option<Self> {
        let link = Layer::<Root, Link>::parse_with(Root, data, slack).ok()?;
        let layer = Layer::<_, Ip>::parse_with(link, data, slack).ok()?;
        let (ip, facts) = layer.top();
        Some(Self { ip, payload: layer.end(), end: layer.limit(data.len()).min(data.len()), facts, slack })
    }

    pub(super) fn header<'f>(&self, data: &'f [u8]) -> IpRef<'f> {
        Ip::view(&data[self.ip..self.payload], self.facts)
    }

    pub(super) fn payload<'f>(&self, data: &'f [u8]) -> &'f [u8] {
        &data[self.payload..self.end]
    }

    /// The places that a rewrite changes, and the IP packet.
    fn shape<'f>(&self, frame: &'f mut Bytes<'_>) -> (Shape, &'f mut [u8]) {
        let offload = frame.offload();
        let (ip, payload, end) = (self.ip, self.payload, self.end);
        let data = &mut frame.data_mut()[ip..end];
        let shape = Shape::known(data, self.facts, payload - ip, end - ip);
        let start = usize::from(offload.checksum_start).checked_sub(ip).filter(|_| offload.needs_checksum);
        let shape = start.map_or(shape, |start| shape.left_to_device(start, offload.checksum_offset.into()));
        (shape, data)
    }
}

/// A message of ICMP or ICMPv6, as far as a translator tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// No such message, or none that has an identifier.
    None,
    Request,
    Reply,
    Error,
}

/// A packet's addresses and ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) place: Place,
    pub(super) flow: FlowKey,
    pub(super) protocol: u8,
    /// `None` for protocols without ports that can be translated.
    pub(super) transport: Option<Transport>,
    pub(super) message: Message,
    pub(super) tcp_flags: u8,
    pub(super) is_fragment: bool,
    pub(super) is_later_fragment: bool,
}

impl Seen {
    pub(super) fn of(place: Place, frame: &Bytes<'_>) -> Self {
        let data = frame.data();
        let (header, payload) = (place.header(data), place.payload(data));
        let flow = FlowKey::of(header, payload);
        let protocol = header.protocol();
        let is_later_fragment = header.is_later_fragment();
        let message = match (protocol, payload.first()) {
            _ if is_later_fragment => Message::None,
            (protocol::ICMP, Some(8)) | (protocol::ICMPV6, Some(128)) if payload.len() >= 8 => {
                Message::Request
            }
            (protocol::ICMP, Some(0)) | (protocol::ICMPV6, Some(129)) if payload.len() >= 8 => Message::Reply,
            (protocol::ICMP | protocol::ICMPV6, _) if FlowKey::is_error(header, payload) => Message::Error,
            _ => Message::None,
        };
        let transport = Transport::of(protocol).filter(|transport| match transport {
            Transport::Icmp => matches!(message, Message::Request | Message::Reply),
            _ => payload.len() >= 4 || is_later_fragment,
        });
        let tcp_flags = match transport {
            Some(Transport::Tcp) if !is_later_fragment => believed_flags(header, payload, frame),
            _ => 0,
        };
        Self {
            place,
            flow,
            protocol,
            transport,
            message,
            tcp_flags,
            is_fragment: header.is_fragment(),
            is_later_fragment,
        }
    }

    pub(super) fn source(&self) -> Endpoint {
        Endpoint { address: self.flow.source(), port: self.flow.source_port() }
    }

    /// The destination; an ICMP query has port 0 there.
    pub(super) fn destination(&self) -> Endpoint {
        let port = if self.transport == Some(Transport::Icmp) { 0 } else { self.flow.destination_port() };
        Endpoint { address: self.flow.destination(), port }
    }
}

/// The reason to drop a packet that could not be rewritten.
fn refused(error: RewriteError, is_fragment: bool) -> DropReason {
    match error {
        RewriteError::Truncated { .. } if is_fragment => DropReason::Fragment,
        RewriteError::Malformed(_) => DropReason::Malformed,
        RewriteError::Truncated { .. } => DropReason::Truncated,
        RewriteError::NoQuote => DropReason::Malformed,
        _ => DropReason::NoMapping,
    }
}

/// Gives a packet other addresses and ports; `identifier` is that of an ICMP query.
///
/// # Errors
/// The reason to drop it; its addresses may have changed.
pub(super) fn rewrite(
    frame: &mut Bytes<'_>,
    seen: &Seen,
    to: &Translated,
    identifier: Option<u16>,
) -> Result<(), DropReason> {
    let (shape, ip) = seen.place.shape(frame);
    let why = |error| refused(error, seen.is_fragment);
    let (source, destination) = (seen.source(), seen.destination());
    if source.address != to.source.address {
        shape.set_source(ip, to.source.address).map_err(why)?;
    }
    if destination.address != to.destination.address {
        shape.set_destination(ip, to.destination.address).map_err(why)?;
    }
    if seen.is_later_fragment {
        return Ok(());
    }
    match seen.transport {
        Some(Transport::Icmp) => match identifier {
            Some(identifier) if identifier != source.port => {
                shape.set_echo_identifier(ip, identifier).map_err(why)?;
            }
            _ => {}
        },
        Some(_) => {
            if source.port != to.source.port {
                shape.set_source_port(ip, to.source.port).map_err(why)?;
            }
            if destination.port != to.destination.port {
                shape.set_destination_port(ip, to.destination.port).map_err(why)?;
            }
        }
        None => {}
    }
    Ok(())
}

/// Gives a packet another source or destination address; its protocol does not matter.
///
/// # Errors
/// The reason to drop it.
pub(super) fn set_address(
    frame: &mut Bytes<'_>,
    seen: &Seen,
    address: IpAddr,
    is_source: bool,
) -> Result<(), DropReason> {
    let (shape, ip) = seen.place.shape(frame);
    let set = if is_source { shape.set_source(ip, address) } else { shape.set_destination(ip, address) };
    set.map_err(|error| refused(error, seen.is_fragment))
}

/// Changes the packet that an ICMP error quotes.
///
/// # Errors
/// The reason to drop the error.
pub(super) fn change_quote(
    frame: &mut Bytes<'_>,
    seen: &Seen,
    change: QuotedChange,
) -> Result<(), DropReason> {
    let (at, end) = (seen.place.ip, seen.place.end);
    let ip = &mut frame.data_mut()[at..end];
    change_quoted(ip, change).map_err(|error| refused(error, false))
}

/// Checks an ICMP error (RFC 5508, REQ-3): its checksum, and that of the quoted IPv4 header.
///
/// # Errors
/// The reason to drop it.
pub(super) fn check_error(frame: &Bytes<'_>, seen: &Seen) -> Result<(), DropReason> {
    let data = frame.data();
    let (header, payload) = (seen.place.header(data), seen.place.payload(data));
    let is_whole = seen.place.slack.is_none() && !seen.is_fragment && !frame.offload().needs_checksum;
    if is_whole {
        let sum = match header {
            IpRef::V4(_) => Sum::ZERO,
            IpRef::V6(_) => header.pseudo_header().sum(protocol::ICMPV6, payload.len() as u32),
        };
        if sum.add_bytes(payload).finish() != 0 {
            return Err(DropReason::BadChecksum);
        }
    }
    let quoted = payload.get(8..).unwrap_or_default();
    match quoted.first().map(|first| (first >> 4, usize::from(first & 0xf) * 4)) {
        Some((4, length)) if length >= 20 => match quoted.get(..length) {
            Some(header) if Sum::ZERO.add_bytes(header).finish() != 0 => Err(DropReason::BadChecksum),
            Some(_) => Ok(()),
            None => Err(DropReason::Malformed),
        },
        Some((6, _)) => Ok(()),
        _ => Err(DropReason::Malformed),
    }
}

/// The frame's Ethernet source.
pub(super) fn ethernet_source(data: &[u8]) -> Option<[u8; 6]> {
    data.get(6..12)?.try_into().ok()
}
