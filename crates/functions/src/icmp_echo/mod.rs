//! An address that answers pings, ARP requests and neighbour solicitations.

mod config;
#[cfg(test)]
mod tests;

pub use config::EchoConfig;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::build::ipv6;
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::icmpv6::Icmpv6;
use netbricks_core::packet::neighbor::{Neighbor, NeighborOption, NeighborOptions};
use netbricks_core::packet::stack::{Holds, Stack};
use netbricks_core::packet::{Arp, Icmpv4, Ip, IpRef, Link, MacAddress, protocol};
use netbricks_core::view::{Enclosing, IpRewrite, View};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict, Worker};

/// Answers ARP requests, neighbour solicitations and echo requests for the configured addresses.
///
/// Answers leave on [`Edge::REPLY`]. Other packets for these addresses are consumed as `local-delivery`, and
/// all other packets pass unchanged.
pub fn icmp_echo(input: Input, config: &EchoConfig, worker: &Worker) -> impl Function {
    let (mac, v4, v6) = (config.mac(), config.v4, config.v6);
    let answered = worker.counter("answered");
    let [arp, neighbor, echo_v4, echo_v6] = std::array::from_fn(|_| answered.clone());
    answer_arp(input, v4, mac, move || arp.add(1))
        .then(|input| answer_neighbor(input, v6, mac, move || neighbor.add(1)))
        .then(|input| answer_v4(input, v4, mac, move || echo_v4.add(1)))
        .then(|input| answer_v6(input, v6, mac, move || echo_v6.add(1)))
}

/// Answers ARP (RFC 826, "Packet reception"): the request itself becomes the reply.
fn answer_arp(
    input: Input,
    us: Option<Ipv4Addr>,
    mac: MacAddress,
    answered: impl Fn() + 'static,
) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Arp>()
        .or(Verdict::PASS)
        .decide(move |packet| {
            let request = *packet.header();
            if !request.is_request() || Some(request.target_ip()) != us {
                return Err(Verdict::PASS);
            }
            *packet.header_mut() = request.reply(mac);
            let mut link = packet.outer_mut::<Link>();
            link.ethernet_mut().set_destination(request.sender_mac());
            link.ethernet_mut().set_source(mac);
            answered();
            Err(Verdict::REPLY)
        })
        .done()
}

/// Answers a neighbour solicitation (RFC 4861, sections 7.2.3 and 7.2.4).
///
/// A new advertisement is made, and the solicitation is consumed.
fn answer_neighbor(
    input: Input,
    us: Option<Ipv6Addr>,
    mac: MacAddress,
    answered: impl Fn() + 'static,
) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Icmpv6>()
        .or(Verdict::PASS)
        .decide(move |packet| {
            let (target, options) = match packet.header().neighbor(packet.payload()) {
                Ok(Some(Neighbor::NeighborSolicitation { target, options })) if Some(target) == us => {
                    (target, options)
                }
                _ => return Err(Verdict::PASS),
            };
            // Section 7.1.1. With a hop limit below 255, the packet came from another link.
            let (ip, code) = (packet.outer::<Ip>(), packet.header().code());
            let (IpAddr::V6(source), IpAddr::V6(destination), 255) =
                (ip.source(), ip.destination(), ip.ttl())
            else {
                return Err(Verdict::drop(DropReason::Malformed));
            };
            if code != 0 || !may_come(source, destination, target, options) {
                return Err(Verdict::drop(DropReason::Malformed));
            }
            if icmpv6_checksum(packet.outer::<Ip>(), packet.header(), packet.payload()) != 0 {
                return Err(Verdict::drop(unverified(packet.missing())));
            }
            if source.is_multicast() {
                return Err(Verdict::drop(DropReason::Malformed));
            }
            let detecting_duplicates = source.is_unspecified();
            let to = if detecting_duplicates { ALL_NODES } else { source };
            let mut advertisement = [0; 24];
            advertisement[..16].copy_from_slice(&target.octets());
            advertisement[16..18].copy_from_slice(&[2, 1]);
            advertisement[18..].copy_from_slice(&mac.octets());
            let flags = if detecting_duplicates { OVERRIDE } else { SOLICITED | OVERRIDE };
            let message = ipv6(target, to)
                .hop_limit(255)
                .icmpv6(netbricks_core::packet::icmpv6::kind::NEIGHBOR_ADVERTISEMENT, 0, [flags, 0, 0, 0])
                .payload(&advertisement);
            let link = packet.outer::<Link>().len();
            let link_to =
                if detecting_duplicates { ALL_NODES_MAC } else { packet.outer::<Link>().ethernet().source() };
            let sent = packet.reply(Edge::REPLY, link + message.size(), |bytes, packet| {
                let (front, rest) = bytes.split_at_mut(link);
                front.copy_from_slice(&packet.frame()[..link]);
                front[..6].copy_from_slice(&link_to.octets());
                front[6..12].copy_from_slice(&mac.octets());
                // The room has the message's exact size, and all values fit, so this cannot fail.
                let _ = message.write(rest);
            });
            if sent {
                answered();
            }
            Err(Verdict::drop(if sent { DropReason::Answered } else { DropReason::PoolExhausted }))
        })
        .done()
}

/// Whether a solicitation is valid (RFC 4861, section 7.1.1).
///
/// Its options must be complete. If it looks for duplicates, it must be sent to the group of the target, from
/// the unspecified address.
fn may_come(source: Ipv6Addr, destination: Ipv6Addr, target: Ipv6Addr, options: NeighborOptions<'_>) -> bool {
    let detecting_duplicates = source.is_unspecified();
    let [.., a, b, c] = target.octets();
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c];
    if detecting_duplicates && destination.octets() != group {
        return false;
    }
    options.into_iter().all(|option| match option {
        Ok(NeighborOption::SourceLinkLayerAddress(_)) => !detecting_duplicates,
        Ok(_) => true,
        Err(_) => false,
    })
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddress = MacAddress::new([0x33, 0x33, 0, 0, 0, 1]);
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The reason to drop a request whose checksum is not that of its bytes.
///
/// If some of its bytes are `missing`, it is unknown whether the checksum is right.
fn unverified(missing: usize) -> DropReason {
    if missing > 0 { DropReason::Truncated } else { DropReason::BadChecksum }
}

/// Answers an echo request (RFC 792): the request itself becomes the reply.
fn answer_v4(
    input: Input,
    us: Option<Ipv4Addr>,
    mac: MacAddress,
    answered: impl Fn() + 'static,
) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .decide(move |packet| is_for(packet.header(), us.map(IpAddr::V4)))
        .parse::<Icmpv4>()
        .or(Verdict::drop(DropReason::LocalDelivery))
        .decide(move |packet| {
            let sum = Sum::ZERO.add_bytes(&packet.header().octets()).add_bytes(packet.payload());
            if sum.finish() != 0 {
                return Err(Verdict::drop(unverified(packet.missing())));
            }
            if !packet.header_mut().become_reply() {
                return Err(Verdict::drop(DropReason::LocalDelivery));
            }
            turn_round(packet, mac)?;
            answered();
            Err(Verdict::REPLY)
        })
        .done()
}

/// Answers an echo request (RFC 4443, section 4.2): the request itself becomes the reply.
fn answer_v6(
    input: Input,
    us: Option<Ipv6Addr>,
    mac: MacAddress,
    answered: impl Fn() + 'static,
) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .decide(move |packet| is_for(packet.header(), us.map(IpAddr::V6)))
        .parse::<Icmpv6>()
        .or(Verdict::drop(DropReason::LocalDelivery))
        .decide(move |packet| {
            if icmpv6_checksum(packet.outer::<Ip>(), packet.header(), packet.payload()) != 0 {
                return Err(Verdict::drop(unverified(packet.missing())));
            }
            if !packet.header_mut().become_reply() {
                return Err(Verdict::drop(DropReason::LocalDelivery));
            }
            turn_round(packet, mac)?;
            answered();
            Err(Verdict::REPLY)
        })
        .done()
}

/// The initial TTL or hop limit of replies (RFC 1700).
const HOPS: u8 = 64;

/// Whether a packet is for us and may be answered; packets for others pass.
///
/// Fragments are not put together here. A source that is no single host (RFC 1122 section 3.2.1.3, RFC 4291
/// section 2.7) is not answered.
fn is_for(header: IpRef<'_>, us: Option<IpAddr>) -> Result<(), Verdict> {
    if Some(header.destination()) != us {
        return Err(Verdict::PASS);
    }
    let source = header.source();
    let fields = header.pseudo_header();
    // On a source route we are a stop, not the receiver (RFC 8200, section 4.4). A sender with a home address
    // is answered there, by a binding that we do not have (RFC 6275, section 9.3.1).
    if !fields.covers_source_field() || !fields.covers_destination_field() {
        return Err(Verdict::drop(DropReason::LocalDelivery));
    }
    let no_host = source.is_multicast()
        || source.is_unspecified()
        || matches!(source, IpAddr::V4(a) if a.is_broadcast() || a.octets()[0] == 0 || a.octets()[0] >= 240);
    if no_host || header.is_fragment() { Err(Verdict::drop(DropReason::LocalDelivery)) } else { Ok(()) }
}

/// The result is 0 if the checksum is right (RFC 4443, section 2.3).
fn icmpv6_checksum(ip: IpRef<'_>, header: &Icmpv6, payload: &[u8]) -> u16 {
    ip.pseudo_header()
        .sum(protocol::ICMPV6, (Icmpv6::SIZE + payload.len()) as u32)
        .add_bytes(&header.octets())
        .add_bytes(payload)
        .finish()
}

/// Turns a packet back to its sender; drops a packet whose addresses an authentication header covers.
fn turn_round<S, I, J>(packet: &mut View<'_, S>, mac: MacAddress) -> Result<(), Verdict>
where
    S: Stack + Holds<Link, I> + Holds<Ip, J>,
{
    packet.exchange_addresses().map_err(|_| Verdict::drop(DropReason::LocalDelivery))?;
    Enclosing::<J>::outer_mut::<Ip>(packet).set_ttl(HOPS);
    let mut link = Enclosing::<I>::outer_mut::<Link>(packet);
    let from = link.ethernet().source();
    link.ethernet_mut().set_destination(from);
    link.ethernet_mut().set_source(mac);
    Ok(())
}
