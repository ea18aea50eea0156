//! Answers to ARP requests and neighbour solicitations for outside addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::buffer::{Bytes, Packet};
use netbricks_core::packet::build::ipv6;
use netbricks_core::packet::icmpv6::{Icmpv6, kind};
use netbricks_core::packet::neighbor::{Neighbor, NeighborOption, NeighborOptions};
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{Arp, Link, MacAddress, ethertype, protocol};
use netbricks_core::{Context, DropReason, Edge, Verdict};

use super::packet::Seen;

/// The ARP packet in a frame.
pub(super) fn read_arp(data: &[u8]) -> Option<Arp> {
    let link = Layer::<Root, Link>::parse(Root, data).ok()?;
    let layer = Layer::<_, Arp>::parse(link, data).ok()?;
    Some(*Arp::view(data.get(layer.top().0..layer.end())?, ()))
}

/// A request for the Ethernet address of a host, behind the same tags as a frame for it.
///
/// It has no sender address, as a probe (RFC 5227), since the inside need not know any of ours.
pub(super) fn request(frame: &Bytes<'_>, mac: MacAddress, host: Ipv4Addr, cx: &Context) -> Option<Packet> {
    let data = frame.data();
    let link = Layer::<Root, Link>::parse(Root, data).ok()?;
    let end = link.end();
    let request = Arp::request(mac, Ipv4Addr::UNSPECIFIED, host).octets();
    let mut packet = cx.pool().allocate((end + request.len()).max(60))?;
    let room = packet.data_mut();
    room[..end].copy_from_slice(&data[..end]);
    room[..6].fill(0xff);
    room[6..12].copy_from_slice(&mac.octets());
    room[end - 2..end].copy_from_slice(&ethertype::ARP.to_be_bytes());
    room[end..end + request.len()].copy_from_slice(&request);
    Some(packet)
}

/// Answers an ARP request for one of our addresses (RFC 826): the request becomes the reply.
///
/// `None` where the frame is no request for one of them.
pub(super) fn arp(
    frame: &mut Bytes<'_>,
    mac: MacAddress,
    ours: impl Fn(Ipv4Addr) -> bool,
) -> Option<Verdict> {
    let data = frame.data_mut();
    let link = Layer::<Root, Link>::parse(Root, data).ok()?;
    let layer = Layer::<_, Arp>::parse(link, data).ok()?;
    let (at, _) = layer.top();
    let request = *Arp::view(data.get(at..layer.end())?, ());
    if !request.is_request() || !ours(request.target_ip()) {
        return None;
    }
    data[at..layer.end()].copy_from_slice(&request.reply(mac).octets());
    data[..6].copy_from_slice(&request.sender_mac().octets());
    data[6..12].copy_from_slice(&mac.octets());
    Some(Verdict::REPLY)
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddress = MacAddress::new([0x33, 0x33, 0, 0, 0, 1]);
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Answers a neighbour solicitation for one of our addresses (RFC 4861, sections 7.1.1 and 7.2.4).
///
/// `None` where the packet is no solicitation for one of them.
pub(super) fn solicitation(
    frame: &mut Bytes<'_>,
    seen: &Seen,
    mac: MacAddress,
    ours: impl Fn(Ipv6Addr) -> bool,
    (cx, slot): (&mut Context, usize),
) -> Option<Verdict> {
    let (data, annotations) = frame.parts();
    let data = &*data;
    let (header, payload) = (seen.place.header(data), seen.place.payload(data));
    if seen.protocol != protocol::ICMPV6 || seen.is_fragment {
        return None;
    }
    let (icmp, rest) = payload.split_at_checked(Icmpv6::SIZE)?;
    let Ok(Some(Neighbor::NeighborSolicitation { target, options })) = Icmpv6::view(icmp, ()).neighbor(rest)
    else {
        return None;
    };
    if !ours(target) {
        return None;
    }
    let (IpAddr::V6(source), IpAddr::V6(destination), 255) =
        (header.source(), header.destination(), header.ttl())
    else {
        return Some(Verdict::drop(DropReason::Malformed));
    };
    let detecting = source.is_unspecified();
    let is_valid = icmp[1] == 0 && !source.is_multicast() && may_come(source, destination, target, options);
    if !is_valid {
        return Some(Verdict::drop(DropReason::Malformed));
    }
    let sum = header.pseudo_header().sum(protocol::ICMPV6, payload.len() as u32).add_bytes(payload);
    if sum.finish() != 0 {
        let cut = !seen.place.slack.is_none();
        return Some(Verdict::drop(if cut { DropReason::Truncated } else { DropReason::BadChecksum }));
    }
    let (to, flags) = if detecting { (ALL_NODES, OVERRIDE) } else { (source, SOLICITED | OVERRIDE) };
    let mut advertisement = [0; 24];
    advertisement[..16].copy_from_slice(&target.octets());
    advertisement[16..18].copy_from_slice(&[2, 1]);
    advertisement[18..].copy_from_slice(&mac.octets());
    let message = ipv6(target, to)
        .hop_limit(255)
        .icmpv6(kind::NEIGHBOR_ADVERTISEMENT, 0, [flags, 0, 0, 0])
        .payload(&advertisement);
    let link = seen.place.ip;
    let mut answer = cx.pool().allocate(link + message.size())?;
    let (front, room) = answer.data_mut().split_at_mut(link);
    front.copy_from_slice(&data[..link]);
    let link_to = if detecting { ALL_NODES_MAC.octets() } else { data[6..12].try_into().ok()? };
    front[..6].copy_from_slice(&link_to);
    front[6..12].copy_from_slice(&mac.octets());
    // The room has the message's exact size, and all values fit.
    message.write(room).ok()?;
    answer.set_received_at(annotations.received_at());
    cx.answer(slot, Edge::REPLY, answer);
    Some(Verdict::drop(DropReason::Answered))
}

/// Whether a solicitation is valid.
///
/// Its options must be complete. One that looks for duplicates must be sent to the group of the target.
fn may_come(source: Ipv6Addr, destination: Ipv6Addr, target: Ipv6Addr, options: NeighborOptions<'_>) -> bool {
    let detecting = source.is_unspecified();
    let [.., a, b, c] = target.octets();
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c];
    if detecting && destination.octets() != group {
        return false;
    }
    options.into_iter().all(|option| match option {
        Ok(NeighborOption::SourceLinkLayerAddress(_)) => !detecting,
        Ok(_) => true,
        Err(_) => false,
    })
}
