//! How a packet is sent to its server: by Ethernet address, by address translation, or in a tunnel.

use std::net::IpAddr;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Bytes, GsoKind};
use netbricks_core::packet::checksum;
use netbricks_core::packet::rewrite::{QuotedChange, Shape, change_quoted};
use netbricks_core::packet::{FlowKey, Ipv4, Ipv6, MacAddress, protocol};

use super::packet::has_ports;

/// Where the headers of a frame are, as its parse found them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where the IP header begins.
    pub(super) ip: usize,
    /// Where the IP packet ends; padding may follow.
    pub(super) end: usize,
    /// Whether the two bytes before the IP header are its EtherType.
    pub(super) is_typed: bool,
    pub(super) is_v6: bool,
    /// DSCP and ECN.
    pub(super) tos: u8,
}

/// Sets the Ethernet destination.
pub(super) fn to_station(frame: &mut Bytes<'_>, mac: Option<MacAddress>) {
    if let (Some(mac), Some(destination)) = (mac, frame.data_mut().first_chunk_mut::<6>()) {
        *destination = mac.octets();
    }
}

/// The IP packet and its shape, for a rewrite.
fn shape(frame: &Bytes<'_>, place: Place) -> Result<Shape, DropReason> {
    let offload = frame.offload();
    let shape = Shape::of(&frame.data()[place.ip..place.end]).map_err(|_| DropReason::Malformed)?;
    let start = usize::from(offload.checksum_start).checked_sub(place.ip).filter(|_| offload.needs_checksum);
    Ok(start.map_or(shape, |start| shape.left_to_device(start, offload.checksum_offset.into())))
}

/// Rewrites the destination to a server's address and port.
pub(super) fn to_address(
    frame: &mut Bytes<'_>,
    place: Place,
    address: IpAddr,
    port: Option<u16>,
) -> Result<(), DropReason> {
    let shape = shape(frame, place)?;
    let ip = &mut frame.data_mut()[place.ip..place.end];
    if let Some(port) = port {
        // A later fragment has no port; its first fragment had.
        let _later = shape.set_destination_port(ip, port);
    }
    shape.set_destination(ip, address).map_err(|_| DropReason::Denied)
}

/// Rewrites the source of an answer to the address and port of the service.
pub(super) fn from_service(
    frame: &mut Bytes<'_>,
    place: Place,
    address: IpAddr,
    port: Option<u16>,
) -> Result<(), DropReason> {
    let shape = shape(frame, place)?;
    let ip = &mut frame.data_mut()[place.ip..place.end];
    if let Some(port) = port {
        let _later = shape.set_source_port(ip, port);
    }
    shape.set_source(ip, address).map_err(|_| DropReason::Denied)
}

/// Changes the packet that an error quotes (RFC 5508, section 4.2).
fn quote(frame: &mut Bytes<'_>, place: Place, change: QuotedChange) -> Result<(), DropReason> {
    let ip = &mut frame.data_mut()[place.ip..place.end];
    change_quoted(ip, change).map_err(|_| DropReason::Denied)
}

/// Whether a quoted packet shows its ports: a later fragment does not.
fn shows_ports(quoted: FlowKey) -> bool {
    has_ports(quoted) && (quoted.source_port(), quoted.destination_port()) != (0, 0)
}

/// Rewrites an error about an answer, so that its server finds its own address and port in the quote.
pub(super) fn error_to_server(
    frame: &mut Bytes<'_>,
    place: Place,
    quoted: FlowKey,
    address: IpAddr,
    port: Option<u16>,
) -> Result<(), DropReason> {
    quote(frame, place, QuotedChange::Source(address))?;
    if let Some(port) = port.filter(|_| shows_ports(quoted)) {
        quote(frame, place, QuotedChange::SourcePort(port))?;
    }
    to_address(frame, place, address, None)
}

/// Rewrites an error about a packet to a server, so that the client finds the service in the quote.
///
/// `source` is the error's own source address, if that changes.
pub(super) fn error_from_server(
    frame: &mut Bytes<'_>,
    place: Place,
    quoted: FlowKey,
    (address, port): (IpAddr, Option<u16>),
    source: Option<IpAddr>,
) -> Result<(), DropReason> {
    quote(frame, place, QuotedChange::Destination(address))?;
    if let Some(port) = port.filter(|_| shows_ports(quoted)) {
        quote(frame, place, QuotedChange::DestinationPort(port))?;
    }
    source.map_or(Ok(()), |source| from_service(frame, place, source, None))
}

/// The header of generic UDP encapsulation: variant 0, no options, an IP packet inside.
const GUE: usize = 4;
const UDP: usize = 8;

/// Puts a packet into a tunnel from `source` to `server`, in UDP where `ports` are given.
///
/// The outer header has the inner one's DSCP and ECN (RFC 6040, section 4.1), and 64 hops.
pub(super) fn into_tunnel(
    frame: &mut Bytes<'_>,
    place: Place,
    (source, server): (IpAddr, IpAddr),
    ports: Option<(u16, u16)>,
) -> Result<(), DropReason> {
    let mut offload = frame.offload();
    if !place.is_typed {
        return Err(DropReason::Unmatched);
    }
    if offload.gso != GsoKind::None {
        return Err(DropReason::NoOffload);
    }
    let inner = place.end - place.ip;
    let udp = if ports.is_some() { UDP + GUE } else { 0 };
    let outer = if source.is_ipv4() { Ipv4::SIZE } else { Ipv6::SIZE };
    let grown = outer + udp;
    if inner + grown > 0xffff {
        return Err(DropReason::TooBig);
    }
    frame.push_front(grown).map_err(|_| DropReason::TooBig)?;
    if offload.needs_checksum {
        offload.checksum_start =
            u16::try_from(usize::from(offload.checksum_start) + grown).map_err(|_| DropReason::NoOffload)?;
        frame.set_offload(offload);
    }
    let data = frame.data_mut();
    data.copy_within(grown..grown + place.ip, 0);
    // Where the link header was before.
    data[place.ip..place.ip + grown].fill(0);
    let within = if place.is_v6 { protocol::IPV6 } else { protocol::IPV4 };
    let number = if ports.is_some() { protocol::UDP } else { within };
    let ether_type: u16 = if source.is_ipv4() { 0x0800 } else { 0x86dd };
    data[place.ip - 2..place.ip].copy_from_slice(&ether_type.to_be_bytes());
    let header = &mut data[place.ip..];
    match (source, server) {
        (IpAddr::V4(source), IpAddr::V4(server)) => {
            let mut ip = Ipv4::new(source, server, number, inner + udp);
            ip.set_dscp(place.tos >> 2);
            ip.set_ecn(place.tos & 3);
            header[..outer].copy_from_slice(&ip.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(server)) => {
            let mut ip = Ipv6::new(source, server, number, inner + udp);
            ip.set_dscp(place.tos >> 2);
            ip.set_ecn(place.tos & 3);
            header[..outer].copy_from_slice(&ip.octets());
        }
        // The configuration has a source for each version.
        _ => return Err(DropReason::Unmatched),
    }
    if let Some((from, to)) = ports {
        let segment = &mut header[outer..outer + udp + inner];
        segment[..2].copy_from_slice(&from.to_be_bytes());
        segment[2..4].copy_from_slice(&to.to_be_bytes());
        segment[4..6].copy_from_slice(&((udp + inner) as u16).to_be_bytes());
        segment[UDP + 1] = within;
        if !source.is_ipv4() {
            // A sum over bytes that a device still changes would be wrong; without one it is allowed in tunnels
            // (RFC 6935), and IPv4 needs none.
            if !offload.needs_checksum {
                let sum = checksum::transport(source, server, protocol::UDP, segment);
                segment[6..8].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
    Ok(())
}
