//! Frames of flows without conversations: a template for each kind and size, copied and patched.
//!
//! The template's checksums are those of a flow of zeros, so a flow's own checksums need two additions.

use netbricks_packet::build::{DESTINATION, SOURCE, ethernet};
use netbricks_packet::checksum::transport;
use netbricks_packet::protocol;
use netbricks_packet::tcp::flags::{ACK, PSH};
use rand_xoshiro::rand_core::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::flow::{Flow, Kind};
use super::payload::{self, HEAD, Payload};

/// A frame whose addresses and ports are zero.
struct Template {
    frame: Vec<u8>,
    /// The one's complement sums behind its IP and transport checksums.
    ip: u16,
    transport: u16,
}

/// The places of fields in a frame of a kind.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The first address.
    pub(super) addresses: usize,
    /// The transport header, its ports (or identifier and sequence number), its checksum.
    pub(super) transport: usize,
    ports: usize,
    pub(super) checksum: usize,
    /// The payload.
    pub(super) payload: usize,
}

impl Layout {
    pub(super) const fn of(kind: Kind) -> Self {
        let (addresses, transport) = if kind.v6 { (22, 54) } else { (26, 34) };
        match kind.protocol {
            protocol::UDP => Self::new(addresses, transport, 0, 6, 8),
            protocol::TCP => Self::new(addresses, transport, 0, 16, 20),
            _ => Self::new(addresses, transport, 4, 2, 8),
        }
    }
    const fn new(addresses: usize, transport: usize, ports: usize, checksum: usize, header: usize) -> Self {
        Self {
            addresses,
            transport,
            ports: transport + ports,
            checksum: transport + checksum,
            payload: transport + header,
        }
    }
}

pub(super) struct Templates {
    /// By kind, then size.
    frames: Vec<Vec<Template>>,
    payload: Payload,
}

/// The place of the checksum of an IPv4 header behind Ethernet.
const IP_CHECKSUM: usize = 24;

impl Templates {
    pub(super) fn new(sizes: &[usize], payload: Payload) -> Self {
        let of_kind = |kind: &Kind| sizes.iter().map(|size| Template::new(*kind, *size, payload)).collect();
        Self { frames: Kind::ALL.iter().map(of_kind).collect(), payload }
    }

    /// Writes the flow's next frame; answers its length.
    #[inline(always)]
    pub(super) fn write(
        &self,
        room: &mut [u8],
        flow: &mut Flow,
        size: usize,
        random: &mut impl Rng,
    ) -> usize {
        let message = flow.packets;
        flow.packets += 1;
        match self.payload {
            Payload::Dns => return write_dns(room, flow, message),
            Payload::Http => return self.write_http(room, flow, size, message, random),
            Payload::Random => return self.write_random(room, flow, size, random),
            Payload::Zero | Payload::Pattern => {}
        }
        self.patch(room, flow, size)
    }

    /// Copies the template with the flow's addresses, ports and checksums.
    #[inline(always)]
    fn patch(&self, room: &mut [u8], flow: &Flow, size: usize) -> usize {
        let template = &self.frames[flow.kind.index()][size];
        let layout = Layout::of(flow.kind);
        let len = template.frame.len();
        let Some(frame) = room.get_mut(..len) else { return 0 };
        frame.copy_from_slice(&template.frame);
        match (flow.client, flow.server) {
            (IpAddr::V4(client), IpAddr::V4(server)) => {
                frame[26..30].copy_from_slice(&client.octets());
                frame[30..34].copy_from_slice(&server.octets());
                put(frame, IP_CHECKSUM, !fold(template.ip, flow.addresses, 0));
            }
            (client, server) => put_addresses(frame, layout.addresses, client, server),
        }
        put(frame, layout.ports, flow.client_port);
        put(frame, layout.ports + 2, flow.server_port);
        // ICMP for IPv4 has no pseudo-header (RFC 792).
        let addresses = if flow.kind == Kind::ALL[2] { 0 } else { flow.addresses };
        let checksum = !fold(template.transport, addresses, flow.ports);
        let checksum = if checksum == 0 && flow.kind.protocol == protocol::UDP { 0xffff } else { checksum };
        put(frame, layout.checksum, checksum);
        len
    }

    fn write_random(&self, room: &mut [u8], flow: &Flow, size: usize, random: &mut impl Rng) -> usize {
        let len = self.patch(room, flow, size);
        let payload = Layout::of(flow.kind).payload;
        if let Some(frame) = room.get_mut(..len) {
            payload::fill(&mut frame[payload..], Payload::Random, 0, random);
            finish(frame, flow.kind, flow.client, flow.server);
        }
        len
    }

    /// Writes a request or an answer, each in one segment, filled to the frame's size.
    fn write_http(
        &self,
        room: &mut [u8],
        flow: &Flow,
        size: usize,
        message: u64,
        random: &mut impl Rng,
    ) -> usize {
        let layout = Layout::of(flow.kind);
        let wanted = self.frames[flow.kind.index()][size].frame.len();
        let mut head = [0; HEAD];
        let (head_len, body) = if message.is_multiple_of(2) {
            (payload::http_request(&mut head, message / 2), 0)
        } else {
            // Twice, because the number of digits is part of the head.
            let space = wanted.saturating_sub(layout.payload) as u64;
            let head_len = payload::http_answer(&mut head, space) as u64;
            let body = space.saturating_sub(head_len);
            (payload::http_answer(&mut head, body), body as usize)
        };
        let direction =
            Segment { from_client: message.is_multiple_of(2), sequence: 1, ack: 1, flags: PSH | ACK };
        write_segment(room, flow, &direction, head_len + body, |room| {
            let (place, rest) = room.split_at_mut(head_len.min(room.len()));
            place.copy_from_slice(&head[..place.len()]);
            payload::fill(rest, Payload::Pattern, 0, random);
        })
    }
}

impl Template {
    fn new(kind: Kind, size: usize, payload: Payload) -> Self {
        let layout = Layout::of(kind);
        let mut bytes = vec![0; size.saturating_sub(layout.payload)];
        if payload == Payload::Pattern {
            bytes.iter_mut().enumerate().for_each(|(place, byte)| *byte = place as u8);
        }
        let v4 = || ethernet().ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED).ttl(64).dont_fragment();
        let v6 = || ethernet().ipv6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED).ttl(64);
        let built = match (kind.v6, kind.protocol) {
            (false, protocol::UDP) => v4().udp(0, 0).payload(&bytes).build(),
            (false, protocol::TCP) => {
                v4().tcp(0, 0).flags(PSH | ACK).sequence(1).ack(1).payload(&bytes).build()
            }
            (false, _) => v4().icmp_echo_request(0, 0).payload(&bytes).build(),
            (true, protocol::UDP) => v6().udp(0, 0).payload(&bytes).build(),
            (true, protocol::TCP) => {
                v6().tcp(0, 0).flags(PSH | ACK).sequence(1).ack(1).payload(&bytes).build()
            }
            (true, _) => v6().icmpv6_echo_request(0, 0).payload(&bytes).build(),
        };
        // Settings limit the size far below the maximum of a length field.
        let frame = built.unwrap_or_default();
        let read = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let (ip, transport) = (!read(IP_CHECKSUM), !read(layout.checksum));
        Self { frame, ip, transport }
    }
}

/// The varying fields of a TCP segment's header.
pub(super) struct Segment {
    pub(super) from_client: bool,
    pub(super) sequence: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
}

/// Writes a TCP segment with `len` bytes of data, which `fill` writes.
///
/// Answers the frame's length, 0 if it does not fit.
pub(super) fn write_segment(
    room: &mut [u8],
    flow: &Flow,
    segment: &Segment,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> usize {
    let layout = Layout::of(flow.kind);
    let Some(frame) = room.get_mut(..layout.payload + len) else { return 0 };
    write_headers(frame, flow, segment.from_client);
    let tcp = layout.transport;
    frame[tcp + 4..tcp + 8].copy_from_slice(&segment.sequence.to_be_bytes());
    frame[tcp + 8..tcp + 12].copy_from_slice(&segment.ack.to_be_bytes());
    frame[tcp + 12..tcp + 20].copy_from_slice(&[0x50, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
    fill(&mut frame[layout.payload..]);
    finish_sides(frame, flow, segment.from_client);
    frame.len()
}

fn write_dns(room: &mut [u8], flow: &Flow, message: u64) -> usize {
    let layout = Layout::of(flow.kind);
    let Some(place) = room.get_mut(layout.payload..) else { return 0 };
    let len = layout.payload + payload::dns(place, flow, message);
    let Some(frame) = room.get_mut(..len) else { return 0 };
    let from_client = message.is_multiple_of(2);
    write_headers(frame, flow, from_client);
    let length = (len - layout.transport) as u16;
    put(frame, layout.transport + 4, length);
    finish_sides(frame, flow, from_client);
    len
}

/// Writes Ethernet, IP and ports of a frame with known length.
fn write_headers(frame: &mut [u8], flow: &Flow, from_client: bool) {
    let layout = Layout::of(flow.kind);
    let (client, server) = (SOURCE.octets(), DESTINATION.octets());
    let (from, to) = if from_client { (client, server) } else { (server, client) };
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    if flow.kind.v6 {
        put(frame, 12, 0x86dd);
        let length = (frame.len() - layout.transport) as u16;
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, flow.kind.protocol, 64]);
        put(frame, 18, length);
    } else {
        put(frame, 12, 0x0800);
        let length = (frame.len() - 14) as u16;
        frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, flow.kind.protocol, 0, 0]);
        put(frame, 16, length);
    }
    let (from, to) = if from_client { (flow.client, flow.server) } else { (flow.server, flow.client) };
    put_addresses(frame, layout.addresses, from, to);
    let ports = [flow.client_port, flow.server_port];
    let [from, to] = if from_client { ports } else { [ports[1], ports[0]] };
    put(frame, layout.transport, from);
    put(frame, layout.transport + 2, to);
    if !flow.kind.v6 {
        put(frame, IP_CHECKSUM, 0);
        let checksum = netbricks_packet::checksum::internet(&frame[14..34]);
        put(frame, IP_CHECKSUM, checksum);
    }
}

fn finish_sides(frame: &mut [u8], flow: &Flow, from_client: bool) {
    let (from, to) = if from_client { (flow.client, flow.server) } else { (flow.server, flow.client) };
    finish(frame, flow.kind, from, to);
}

/// Writes the transport checksum over the contents of the frame.
fn finish(frame: &mut [u8], kind: Kind, source: IpAddr, destination: IpAddr) {
    let layout = Layout::of(kind);
    let number = if kind.v6 && kind.protocol == protocol::ICMP { protocol::ICMPV6 } else { kind.protocol };
    put(frame, layout.checksum, 0);
    let checksum = transport(source, destination, number, &frame[layout.transport..]);
    put(frame, layout.checksum, checksum);
}

fn put_addresses(frame: &mut [u8], at: usize, source: IpAddr, destination: IpAddr) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame[at..at + 4].copy_from_slice(&source.octets());
            frame[at + 4..at + 8].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame[at..at + 16].copy_from_slice(&source.octets());
            frame[at + 16..at + 32].copy_from_slice(&destination.octets());
        }
        // A flow has one version.
        _ => {}
    }
}

#[inline(always)]
fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The one's complement sum of three values (RFC 1071).
#[inline(always)]
fn fold(a: u16, b: u16, c: u16) -> u16 {
    let sum = u32::from(a) + u32::from(b) + u32::from(c);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum + (sum >> 16)) as u16
}
