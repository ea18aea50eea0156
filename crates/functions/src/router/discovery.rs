//! ARP (RFC 826) and neighbour discovery (RFC 4861): the messages that the router sends, and what it learns from others'.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::buffer::{Packet, Pool};
use netbricks_core::packet::build::ipv6;
use netbricks_core::packet::icmpv6::kind;
use netbricks_core::packet::neighbor::{Neighbor, NeighborOption, NeighborOptions};
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{Arp, Icmpv6, IpRef, MacAddress, ethertype, protocol};

use super::faces::Face;
use super::neighbours::Neighbour;

/// A message about a neighbour, once its form was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The neighbour that it is about.
    pub(crate) address: IpAddr,
    /// Its link-layer address, where it is stated.
    pub(crate) mac: Option<MacAddress>,
    pub(crate) kind: Kind,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The neighbour asks for this address; `0.0.0.0` and `::` ask whether it is taken.
    Asks { target: IpAddr },
    /// The neighbour answers or announces itself.
    Answers {
        /// In answer to a question to it.
        solicited: bool,
        /// It replaces what is known.
        replaces: bool,
    },
}

/// The knowledge about a neighbour after a message; `None` where nothing changes.
///
/// `known` is what was known, and `asked` whether a question about it is under way. `to_us` says whether the message asks
/// for the router.
pub(super) fn learnt(
    message: &Message,
    known: Option<Neighbour>,
    asked: bool,
    to_us: bool,
    now: u64,
) -> Option<Neighbour> {
    // Any worker may have asked; a next hop that was silent is asked again and again.
    let asked = asked || known.is_some_and(|known| !known.is_known());
    let known = known.filter(Neighbour::is_known);
    if known.is_some_and(|known| known.is_static) {
        return None;
    }
    let fresh = |mac, confirmed| Neighbour { mac, confirmed, ..Neighbour::default() };
    match (message.kind, known, message.mac) {
        // Neither creates nor changes anything without an address (RFC 4861 §7.2.3 and §7.2.5).
        (Kind::Asks { .. }, _, None) => None,
        // The one who asks is on the link; whether it hears the router is not known (§7.2.3, RFC 826).
        (Kind::Asks { .. }, None, Some(mac)) => (to_us || asked).then(|| fresh(mac, 0)),
        (Kind::Asks { .. }, Some(known), Some(mac)) => (known.mac != mac).then(|| fresh(mac, 0)),
        (Kind::Answers { solicited, .. }, None, Some(mac)) => {
            asked.then(|| fresh(mac, if solicited { now } else { 0 }))
        }
        (Kind::Answers { .. }, None, None) => None,
        (Kind::Answers { solicited, replaces }, Some(known), mac) => {
            let mac = mac.unwrap_or(known.mac);
            match (mac == known.mac, replaces, solicited) {
                (true, _, true) => Some(fresh(mac, now)),
                (true, _, false) => None,
                // Another one claims the address: it is asked for at the next use.
                (false, false, _) => (known.confirmed > 0).then(|| fresh(known.mac, 0)),
                (false, true, solicited) => Some(fresh(mac, if solicited { now } else { 0 })),
            }
        }
    }
}

/// The message of an ARP packet behind a link header, with the packet; `None` where it is malformed.
pub(crate) fn of_arp(frame: &[u8], at: usize) -> Option<(Arp, Message)> {
    let bytes = frame.get(at..)?;
    let found = Arp::find(bytes, ethertype::ARP).ok()?;
    let arp = *Arp::view(bytes.get(..found.len)?, ());
    let mac = arp.sender_mac();
    if mac.is_multicast()
        || mac == MacAddress::new([0; 6])
        || !matches!(arp.operation(), Arp::REQUEST | Arp::REPLY)
    {
        return None;
    }
    let kind = if arp.is_request() {
        Kind::Asks { target: arp.target_ip().into() }
    } else {
        // A reply to all is an announcement, a reply to one an answer.
        let solicited = arp.target_ip() != arp.sender_ip();
        Kind::Answers { solicited, replaces: true }
    };
    Some((arp, Message { address: arp.sender_ip().into(), mac: Some(mac), kind }))
}

/// The message of an ICMPv6 packet, where it is one of neighbour discovery that a router hears.
///
/// # Errors
/// It is one, and breaks a rule of RFC 4861 §7.1.
pub(crate) fn of_icmpv6(ip: IpRef<'_>, payload: &[u8]) -> Result<Option<Message>, Broken> {
    if ip.protocol() != protocol::ICMPV6 || !payload.first().is_some_and(|kind| (133..=137).contains(kind)) {
        return Ok(None);
    }
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (ip.source(), ip.destination()) else {
        return Ok(None);
    };
    let found = Icmpv6::find(payload, 0).map_err(|_| Broken::Form)?;
    let header = Icmpv6::view(payload.get(..found.len).ok_or(Broken::Form)?, ());
    let body = payload.get(found.len..).ok_or(Broken::Form)?;
    // With a hop limit below 255, the packet came from another link.
    if ip.ttl() != 255 || header.code() != 0 || ip.is_fragment() {
        return Err(Broken::Form);
    }
    let sum = ip.pseudo_header().sum(protocol::ICMPV6, payload.len() as u32).add_bytes(payload);
    if sum.finish() != 0 {
        return Err(Broken::Checksum);
    }
    let message = match header.neighbor(body).map_err(|_| Broken::Form)? {
        Some(Neighbor::NeighborSolicitation { target, options }) => {
            let mac = stated(options, true).ok_or(Broken::Form)?;
            let is_probe = source.is_unspecified();
            if target.is_multicast() || source.is_multicast() {
                return Err(Broken::Form);
            }
            if is_probe && (mac.is_some() || destination != group_of(target)) {
                return Err(Broken::Form);
            }
            Message { address: source.into(), mac, kind: Kind::Asks { target: target.into() } }
        }
        Some(Neighbor::NeighborAdvertisement { target, solicited, replaces, options, .. }) => {
            let mac = stated(options, false).ok_or(Broken::Form)?;
            if target.is_multicast() || (destination.is_multicast() && solicited) {
                return Err(Broken::Form);
            }
            Message { address: target.into(), mac, kind: Kind::Answers { solicited, replaces } }
        }
        // Routers do not listen to routers here, nor to redirects; solicitations of routers are not answered.
        _ => return Ok(None),
    };
    Ok(Some(message))
}

/// Why a message is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Form,
    Checksum,
}

/// The link-layer address that options state, of the source or of the target; `None` where options are malformed.
fn stated(options: NeighborOptions<'_>, of_source: bool) -> Option<Option<MacAddress>> {
    let mut stated = None;
    for option in options {
        match option.ok()? {
            NeighborOption::SourceLinkLayerAddress(mac) if of_source => stated = Some(mac),
            NeighborOption::TargetLinkLayerAddress(mac) if !of_source => stated = Some(mac),
            _ => {}
        }
    }
    Some(stated.filter(|mac| !mac.is_multicast()))
}

/// The group of hosts whose address ends as this one does.
pub(crate) fn group_of(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The MAC address of a group of IPv6 (RFC 2464 §7).
fn group_mac(address: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = address.octets();
    MacAddress::new([0x33, 0x33, a, b, c, d])
}

/// Writes a frame of an interface; `None` where no buffer is free.
pub(crate) fn frame(
    pool: &Pool,
    face: &Face,
    to: MacAddress,
    ethertype: u16,
    len: usize,
    write: impl FnOnce(&mut [u8]),
) -> Option<Packet> {
    let link = face.link_len();
    let mut packet = pool.allocate((link + len).max(SHORTEST))?;
    let bytes = packet.data_mut();
    write_link(bytes.get_mut(..link)?, face, to, ethertype);
    write(bytes.get_mut(link..link + len)?);
    Some(packet)
}

/// The shortest Ethernet frame, without its check sequence.
const SHORTEST: usize = 60;

/// Writes a link header of an interface.
pub(crate) fn write_link(header: &mut [u8], face: &Face, to: MacAddress, kind: u16) {
    let mut bytes = [0; 18];
    bytes[..6].copy_from_slice(&to.octets());
    bytes[6..12].copy_from_slice(&face.mac.octets());
    match face.vlan {
        None => bytes[12..14].copy_from_slice(&kind.to_be_bytes()),
        Some(vlan) => {
            bytes[12..14].copy_from_slice(&ethertype::VLAN.to_be_bytes());
            bytes[14..16].copy_from_slice(&vlan.to_be_bytes());
            bytes[16..18].copy_from_slice(&kind.to_be_bytes());
        }
    }
    let len = header.len().min(bytes.len());
    header[..len].copy_from_slice(&bytes[..len]);
}

/// Asks for a neighbour on an interface: all of its link, or one that was there (`at`).
pub(crate) fn question(pool: &Pool, face: &Face, address: IpAddr, at: Option<MacAddress>) -> Option<Packet> {
    match address {
        IpAddr::V4(target) => {
            // Towards the host the router has no address of its own: it asks as one that looks for duplicates.
            let from = if face.is_host { Ipv4Addr::UNSPECIFIED } else { face.asks_from(target) };
            let arp = Arp::request(face.mac, from, target);
            let to = at.unwrap_or(MacAddress::BROADCAST);
            frame(pool, face, to, ethertype::ARP, Arp::SIZE, |bytes| bytes.copy_from_slice(&arp.octets()))
        }
        IpAddr::V6(target) => {
            let group = group_of(target);
            let (to, to_mac) = at.map_or((group, group_mac(group)), |mac| (target, mac));
            let mut body = [0; 24];
            body[..16].copy_from_slice(&target.octets());
            body[16..18].copy_from_slice(&[1, 1]);
            body[18..].copy_from_slice(&face.mac.octets());
            let message = ipv6(face.link_local, to)
                .hop_limit(255)
                .icmpv6(kind::NEIGHBOR_SOLICITATION, 0, [0; 4])
                .payload(&body);
            frame(pool, face, to_mac, ethertype::IPV6, message.size(), |bytes| {
                // The room has the message's exact size.
                let _ = message.write(bytes);
            })
        }
    }
}

/// Answers an ARP request for an address of an interface.
pub(crate) fn arp_reply(pool: &Pool, face: &Face, request: &Arp) -> Option<Packet> {
    let reply = request.reply(face.mac);
    frame(pool, face, request.sender_mac(), ethertype::ARP, Arp::SIZE, |bytes| {
        bytes.copy_from_slice(&reply.octets());
    })
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Answers a neighbour solicitation (RFC 4861 §7.2.4) that came from this MAC address.
pub(crate) fn advertisement(
    pool: &Pool,
    face: &Face,
    target: Ipv6Addr,
    asker: Ipv6Addr,
    from: MacAddress,
) -> Option<Packet> {
    let is_probe = asker.is_unspecified();
    let (to, to_mac) = if is_probe { (ALL_NODES, group_mac(ALL_NODES)) } else { (asker, from) };
    let mut body = [0; 24];
    body[..16].copy_from_slice(&target.octets());
    body[16..18].copy_from_slice(&[2, 1]);
    body[18..].copy_from_slice(&face.mac.octets());
    // An answer on behalf of others (towards the host) replaces nothing better (§7.2.8).
    let replaces = if face.is_host { 0 } else { OVERRIDE };
    let flags = ROUTER | replaces | if is_probe { 0 } else { SOLICITED };
    let message = ipv6(target, to)
        .hop_limit(255)
        .icmpv6(kind::NEIGHBOR_ADVERTISEMENT, 0, [flags, 0, 0, 0])
        .payload(&body);
    frame(pool, face, to_mac, ethertype::IPV6, message.size(), |bytes| {
        // The room has the message's exact size.
        let _ = message.write(bytes);
    })
}
