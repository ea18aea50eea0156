//! The rewriting of a packet: addresses, ports and identifiers, with checksums that follow (RFC 1624).

use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum::{self, Sum};

use super::flow_id::{Difference, FlowId};
use super::flows::Flows;
use super::rewriter::{Annotations, Rewrites};
use super::sequence::{Shift, Shifts};
use crate::packet::Annotated as _;

/// Numbers of IP protocols.
pub(super) mod protocol {
    /// Internet control messages.
    pub(crate) const ICMP: u8 = 1;
    /// Streams.
    pub(crate) const TCP: u8 = 6;
    /// Datagrams.
    pub(crate) const UDP: u8 = 17;
    /// Datagrams with congestion control.
    pub(crate) const DCCP: u8 = 33;
}

/// Bytes of a TCP header up to and with its checksum.
pub(super) const TCP_CHECKED: usize = 18;

/// Where a packet's headers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// The IP header, which lies in the packet.
    pub(super) network: usize,
    /// The bytes behind it, which may lie behind the packet.
    pub(super) transport: usize,
}

impl Headers {
    /// Those of a packet. `None` where no IP header is known.
    #[inline]
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let network = usize::try_from(packet.network_place()?).ok()?;
        let transport = usize::try_from(packet.transport_place()?).ok()?;
        (network.checked_add(20)? <= packet.len()).then_some(Self { network, transport })
    }
}

/// The 16 bits at a place of bytes, 0 beyond them.
#[inline(always)]
pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// Writes 16 bits, where there is room.
#[inline(always)]
pub(super) fn set_half(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The 32 bits at a place of bytes, 0 beyond them.
#[inline(always)]
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Writes 32 bits, where there is room.
#[inline(always)]
pub(super) fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Applies a flow's rewriting to one of its packets.
#[inline]
pub(super) fn apply(
    packet: &mut Packet,
    headers: Headers,
    flows: &mut Flows,
    entry: u32,
    rewrites: Rewrites,
    annotations: Annotations,
) {
    let reply = entry & 1 != 0;
    let flow = flows.flow(entry);
    let (to, network, transport) = (flow.rewritten(reply), flow.network, flow.transport);
    let reply_annotation = flow.reply_annotation;
    let Some((before, behind)) =
        packet.data_mut().split_at_mut_checked(headers.transport.max(headers.network + 20))
    else {
        // The packet ends within the IP header's options.
        rewrite_addresses(packet.data_mut(), headers.network, rewrites, reply, to, network);
        annotate(packet, rewrites, reply, to, annotations, reply_annotation);
        return;
    };
    rewrite_addresses(before, headers.network, rewrites, reply, to, network);
    let first = half(before, headers.network + 6) & 0x1FFF == 0;
    if first {
        let protocol = before[headers.network + 9];
        match rewrites {
            Rewrites::Tcp => segment(before, headers.network, behind, flows, entry, to, transport),
            Rewrites::IpPorts if protocol == protocol::TCP => {
                segment(before, headers.network, behind, flows, entry, to, transport);
            }
            Rewrites::IpPorts | Rewrites::Udp => {
                set_half(behind, 0, to.source_port);
                set_half(behind, 2, to.destination_port);
                update(behind, protocol, transport, reply);
                flows.flow_mut(entry).note_packet(reply);
            }
            Rewrites::Source | Rewrites::Addresses => update(behind, protocol, transport, reply),
            Rewrites::Ping => ping(behind, reply, to, transport),
        }
    }
    annotate(packet, rewrites, reply, to, annotations, reply_annotation);
}

#[inline(always)]
fn rewrite_addresses(
    bytes: &mut [u8],
    at: usize,
    rewrites: Rewrites,
    reply: bool,
    to: FlowId,
    difference: Difference,
) {
    let Some(header) = bytes.get_mut(at..at + 20) else { return };
    if rewrites != Rewrites::Source || !reply {
        set_word(header, 12, to.source);
    }
    if rewrites != Rewrites::Source || reply {
        set_word(header, 16, to.destination);
    }
    let sum = half(header, 10);
    set_half(header, 10, difference.apply(sum, reply));
}

#[inline(always)]
fn annotate(
    packet: &mut Packet,
    rewrites: Rewrites,
    reply: bool,
    to: FlowId,
    annotations: Annotations,
    value: u8,
) {
    if annotations.destination && (reply || rewrites != Rewrites::Source) {
        packet.set_dst_ip(to.destination.into());
    }
    if let (true, Some(place)) = (reply, annotations.reply) {
        packet.set_anno_u8(place, value);
    }
}

/// Updates the checksum behind an IP header.
#[inline(always)]
fn update(behind: &mut [u8], protocol: u8, difference: Difference, reply: bool) {
    match protocol {
        protocol::TCP if behind.len() >= TCP_CHECKED => {
            let sum = half(behind, 16);
            set_half(behind, 16, difference.apply(sum, reply));
        }
        protocol::UDP if behind.len() >= 8 => {
            let sum = half(behind, 6);
            // 0 is no checksum, and none becomes 0.
            if sum != 0 {
                let sum = difference.apply(sum, reply);
                set_half(behind, 6, if sum == 0 { 0xFFFF } else { sum });
            }
        }
        _ => (),
    }
}

/// A TCP segment: ports, the state of its connection, and sequence numbers.
fn segment(
    ip: &[u8],
    network: usize,
    segment: &mut [u8],
    flows: &mut Flows,
    entry: u32,
    to: FlowId,
    difference: Difference,
) {
    if segment.len() < TCP_CHECKED {
        return;
    }
    let reply = entry & 1 != 0;
    set_half(segment, 0, to.source_port);
    set_half(segment, 2, to.destination_port);
    let sum = half(segment, 16);
    set_half(segment, 16, difference.apply(sum, reply));
    let offset = usize::from(segment[12] >> 4) * 4;
    let has_data = usize::from(ip[network] & 0xF) * 4 + offset < usize::from(half(ip, network + 2));
    let flow = flows.flow_mut(entry);
    flow.note_tcp(reply, segment[13], has_data);
    if flow.shifts
        && let Some(header) = segment.get_mut(..offset.max(TCP_CHECKED))
    {
        shift(header, offset, flows.shifts_mut(entry), reply);
    }
}

/// Shifts the sequence and acknowledgement numbers of a TCP header.
fn shift(header: &mut [u8], offset: usize, shifts: &mut Shifts, reply: bool) {
    let [forward, back] = shifts;
    let (own, other) = if reply { (back, &*forward) } else { (forward, &*back) };
    let mut sum = half(header, 16);
    let number = word(header, 4);
    own.pass(number);
    if !own.is_none() {
        let new = own.forward(number);
        set_word(header, 4, new);
        sum = checksum::update32(sum, number, new);
    }
    if !other.is_none() {
        let acknowledged = word(header, 8);
        let new = other.back(acknowledged);
        set_word(header, 8, new);
        sum = checksum::update32(sum, acknowledged, new);
        if offset > 20
            && let Some(options) = header.get_mut(20..offset)
        {
            let before = Sum::ZERO.add_bytes(options).fold();
            if shift_selective(options, other) {
                sum = checksum::update16(sum, before, Sum::ZERO.add_bytes(options).fold());
            }
        }
    }
    set_half(header, 16, sum);
}

/// Shifts the numbers of selective acknowledgements (RFC 2018). Whether there are any.
fn shift_selective(options: &mut [u8], other: &Shift) -> bool {
    let mut at = 0;
    let mut any = false;
    while let Some(kind) = options.get(at) {
        match (kind, options.get(at + 1).map(|length| usize::from(*length))) {
            (0, _) | (_, None) => break,
            (1, _) => at += 1,
            (5, Some(length)) => {
                if length % 8 != 2 || at + length > options.len() {
                    break;
                }
                for place in (at + 2..at + length).step_by(4) {
                    let number = word(options, place);
                    set_word(options, place, other.back(number));
                }
                any = true;
                at += length;
            }
            (_, Some(length)) => {
                if length < 2 {
                    break;
                }
                at += length;
            }
        }
    }
    any
}

/// An ICMP echo request or reply: its identifier.
fn ping(message: &mut [u8], reply: bool, to: FlowId, difference: Difference) {
    set_half(message, 4, if reply { to.destination_port } else { to.source_port });
    let sum = difference.apply(half(message, 2), reply);
    set_half(message, 2, sum);
    zero_sum(message, 2);
}

/// Where a checksum came out as 0 over bytes that are all zero, it is written in its other way.
pub(super) fn zero_sum(message: &mut [u8], at: usize) {
    if half(message, at) == 0 && message.iter().all(|byte| *byte == 0) {
        set_half(message, at, 0xFFFF);
    }
}
