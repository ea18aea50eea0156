//! Answers to packets that are refused: resets of TCP, and ICMP errors. One rate limit holds for both.

use std::net::IpAddr;

use netbricks_core::buffer::Bytes;
use netbricks_core::icmp::{IcmpError, IcmpErrors, Unreachable, is_group, is_single_host};
use netbricks_core::packet::build::{ipv4, ipv6};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{IpRef, protocol};
use netbricks_core::{Context, Edge, length_slack};
use netbricks_mmb::field::Layer;
use netbricks_mmb::key::Located;

use super::rule::Answer;
use super::tcp::Segment;

/// The most bytes of a reset: IPv6 and TCP without options.
const LARGEST: usize = 60;

/// Tells the sender of a packet that it is refused; whether an answer was sent.
#[cold]
pub(super) fn reject(
    errors: &mut IcmpErrors,
    answer: Answer,
    slot: usize,
    frame: &mut Bytes<'_>,
    located: &Located,
    cx: &mut Context,
) -> bool {
    let is_tcp = located.transport() == Some(protocol::TCP);
    let reason = match answer {
        Answer::Usual if is_tcp => return reset(errors, slot, frame, located, cx),
        Answer::Reset => return is_tcp && reset(errors, slot, frame, located, cx),
        Answer::Usual | Answer::Prohibited => Unreachable::Prohibited,
        Answer::Port => Unreachable::Port,
        Answer::Host => Unreachable::Host,
        Answer::Route => Unreachable::NoRoute,
    };
    errors.answer_frame(slot, frame, IcmpError::DestinationUnreachable(reason), cx)
}

/// Sends a reset as the receiver of a segment would (RFC 9293, section 3.10.7.1).
///
/// Nothing answers a reset, a segment to or from many hosts, or one with a wrong checksum.
fn reset(
    errors: &mut IcmpErrors,
    slot: usize,
    frame: &mut Bytes<'_>,
    located: &Located,
    cx: &mut Context,
) -> bool {
    let slack = length_slack(frame);
    let is_left_to_device = frame.offload().needs_checksum;
    let missing = frame.missing();
    let (data, annotations) = frame.parts();
    let time = annotations.received_at();
    let data: &[u8] = data;
    let Some((header, payload)) = netbricks_core::packet::Ip::in_frame_with(data, slack) else {
        return false;
    };
    let (Some(at), Some(ip_at)) = (located.at(Layer::Tcp), located.ip_at()) else { return false };
    let Some(options) = located.payload(Layer::Tcp) else { return false };
    let tcp = data.get(at..options.start).unwrap_or_default();
    let Some(segment) = Segment::read(tcp, options.len() + missing) else { return false };
    let is_wrong = match header {
        IpRef::V4(header) if !header.checksum_is_valid() => true,
        _ if is_left_to_device || missing > 0 => false,
        _ => header.transport_checksum_is_valid(payload) == Some(false),
    };
    let to_many = data.first().is_some_and(|first| first & 1 != 0) || is_group(header.destination());
    let may_answer = segment.flags & flags::RST == 0
        && !is_wrong
        && !to_many
        && !header.is_fragment()
        && is_single_host(header.source());
    // Behind labels or in a session the way back differs from the way here.
    let is_plain = !located.has(Layer::Mpls) && !located.has(Layer::Pppoe);
    if !may_answer || !is_plain || !errors.take_token(cx.now()) {
        return false;
    }
    let Some(mut packet) = cx.pool().allocate(ip_at + LARGEST) else {
        cx.lost_without_buffer(ip_at + LARGEST);
        return false;
    };
    let Some((link, room)) = packet.data_mut().split_at_mut_checked(ip_at) else { return false };
    let Some(before) = data.get(..ip_at) else { return false };
    link.copy_from_slice(before);
    let Some(addresses) = link.get_mut(..12) else { return false };
    addresses.rotate_left(6);
    let (from, to) = (header.destination(), header.source());
    let Some(written) = write(from, to, tcp, &segment, room) else { return false };
    packet.truncate(ip_at + written);
    packet.set_received_at(time);
    cx.answer(slot, Edge::REPLY, packet)
}

/// Writes the IP packet of a reset.
fn write(from: IpAddr, to: IpAddr, tcp: &[u8], segment: &Segment<'_>, room: &mut [u8]) -> Option<usize> {
    let [a, b, c, d, ..] = *tcp else { return None };
    let (to_port, from_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let has_ack = segment.flags & flags::ACK != 0;
    let (number, acknowledged, bits) = if has_ack {
        (segment.acknowledgment, 0, flags::RST)
    } else {
        let more = u32::from(segment.flags & flags::SYN != 0) + u32::from(segment.flags & flags::FIN != 0);
        let end = segment.number.wrapping_add(segment.len).wrapping_add(more);
        (0, end, flags::RST | flags::ACK)
    };
    let written = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to)
            .ttl(64)
            .dont_fragment()
            .tcp(from_port, to_port)
            .sequence(number)
            .ack(acknowledged)
            .flags(bits)
            .window(0)
            .write(room),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to)
            .hop_limit(64)
            .tcp(from_port, to_port)
            .sequence(number)
            .ack(acknowledged)
            .flags(bits)
            .window(0)
            .write(room),
        _ => return None,
    };
    written.ok()
}
