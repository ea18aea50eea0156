//! Packets of one IP version made packets of the other (RFC 7915): headers, checksums, ICMP and fragments.

use std::net::IpAddr;

use netbricks_core::buffer::{Bytes, Offload};
use netbricks_core::packet::checksum::{self, Sum};
use netbricks_core::packet::{IpRef, Ipv4, Ipv6, ethertype, protocol};
use netbricks_core::{DropReason, Edge};

use super::packet::{Message, Seen};
use super::spec::{Endpoint, Transport};

/// Bytes of an IPv6 fragment header.
const FRAGMENT: usize = 8;
/// The most bytes of a link header that can be translated: Ethernet and two tags.
const MOST_LINK: usize = 22;
/// The minimum MTU of IPv6.
pub(super) const LEAST_V6_MTU: usize = 1_280;

/// The fields of an IP header that the other version has too.
#[derive(Clone, Copy, Debug)]
struct Fields {
    class: u8,
    hops: u8,
    /// Offset in units of eight bytes, more fragments, and the identification, of a fragment.
    fragment: Option<(u16, bool, u32)>,
    identification: u16,
}

impl Fields {
    fn of(header: IpRef<'_>) -> Self {
        let class = header.dscp() << 2 | header.ecn();
        let hops = header.ttl();
        match header {
            IpRef::V4(header) => {
                let fixed = header.fixed();
                let identification = fixed.identification();
                let octets = fixed.octets();
                let field = u16::from_be_bytes([octets[6], octets[7]]);
                let fragment = header.is_fragment().then_some((
                    field & 0x1fff,
                    field & 0x2000 != 0,
                    u32::from(identification),
                ));
                Self { class, hops, fragment, identification }
            }
            IpRef::V6(header) => {
                let identification = header.identification().unwrap_or(0);
                let fragment = header
                    .is_fragment()
                    .then(|| (header.fragment_offset(), header.more_fragments(), identification));
                Self { class, hops, fragment, identification: identification as u16 }
            }
        }
    }
}

/// The protocol of a transport in the other version.
fn protocol_in(number: u8, v6: bool) -> u8 {
    match (number, v6) {
        (protocol::ICMP | protocol::ICMPV6, true) => protocol::ICMPV6,
        (protocol::ICMP | protocol::ICMPV6, false) => protocol::ICMP,
        (number, _) => number,
    }
}

/// The bytes of a packet's headers in the other version.
struct Head {
    bytes: [u8; 48],
    len: usize,
}

/// Writes the IP header of the other version, with a TTL that is one less.
///
/// An IPv6 packet of a whole IPv4 packet has no fragment header. `number` is the transport's in the new version.
fn head(
    fields: &Fields,
    from: IpAddr,
    to: IpAddr,
    number: u8,
    payload: usize,
    identification: u16,
) -> Option<Head> {
    let mut bytes = [0; 48];
    let hops = fields.hops.saturating_sub(1);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            if payload > 65_515 {
                return None;
            }
            let mut header = Ipv4::new(from, to, number, payload).octets();
            header[1] = fields.class;
            header[8] = hops;
            let (flags, id) = match fields.fragment {
                Some((offset, more, id)) => (offset | u16::from(more) << 13, id as u16),
                // RFC 7915, section 5.1: what a router may cut has an identification of its own.
                None if payload + 20 <= LEAST_V6_MTU - 20 => (0, identification),
                None => (0x4000, 0),
            };
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6..8].copy_from_slice(&flags.to_be_bytes());
            header[10..12].fill(0);
            let sum = checksum::internet(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes[..20].copy_from_slice(&header);
            Some(Head { bytes, len: 20 })
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let extra = if fields.fragment.is_some() { FRAGMENT } else { 0 };
            let next = if extra > 0 { FRAGMENT_HEADER } else { number };
            if payload + extra > 65_535 {
                return None;
            }
            let mut header = Ipv6::new(from, to, next, payload + extra).octets();
            header[0] = 0x60 | fields.class >> 4;
            header[1] = fields.class << 4;
            header[7] = hops;
            bytes[..40].copy_from_slice(&header);
            if let Some((offset, more, id)) = fields.fragment {
                bytes[40] = number;
                bytes[42..44].copy_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
                bytes[44..48].copy_from_slice(&id.to_be_bytes());
            }
            Some(Head { bytes, len: 40 + extra })
        }
        _ => None,
    }
}

const FRAGMENT_HEADER: u8 = 44;

/// The change of a sum when addresses are exchanged for others.
fn addresses(old: (IpAddr, IpAddr), new: (IpAddr, IpAddr)) -> Sum {
    let minus = |sum: Sum, address: IpAddr| match address {
        IpAddr::V4(address) => sum.add32(!address.to_bits()),
        IpAddr::V6(address) => sum.add128(!address.to_bits()),
    };
    minus(minus(Sum::ZERO, old.0), old.1).add_address(new.0).add_address(new.1)
}

/// Translates a packet that is no ICMP error to the other version.
///
/// `identification` is for an IPv4 packet that a router may cut.
///
/// # Errors
/// The reason to drop it.
pub(super) fn translate(
    frame: &mut Bytes<'_>,
    seen: &Seen,
    (from, to): (Endpoint, Endpoint),
    identifier: u16,
    identification: u16,
) -> Result<(), DropReason> {
    let place = seen.place;
    let offload = frame.offload();
    let header = place.header(frame.data());
    let (fields, old) = (Fields::of(header), (header.source(), header.destination()));
    let pseudo = header.pseudo_header();
    if !pseudo.covers_destination_field() || !pseudo.covers_source_field() {
        // On a source route (RFC 7915, sections 4.1 and 5.1).
        return Err(DropReason::NoMapping);
    }
    if !place.slack.is_none() {
        return Err(DropReason::Truncated);
    }
    let new = (from.address, to.address);
    let v6 = to.address.is_ipv6();
    if !seen.is_later_fragment {
        let segment = &mut frame.data_mut()[place.payload..place.end];
        match seen.transport {
            Some(Transport::Icmp) => echo(segment, seen, old, new, identifier, v6)?,
            Some(_) => ports(segment, seen, &Change { old, new, from, to }, &offload)?,
            None => return Err(DropReason::NoMapping),
        }
    }
    let number = protocol_in(seen.protocol, v6);
    let head = head(&fields, new.0, new.1, number, place.end - place.payload, identification)
        .ok_or(DropReason::TooBig)?;
    replace_head(frame, seen, &head, v6)?;
    if !offload.is_none() {
        let transport = place.ip + head.len;
        frame.set_offload(moved(offload, transport, v6));
    }
    Ok(())
}

fn moved(offload: Offload, transport: usize, v6: bool) -> Offload {
    use netbricks_core::buffer::GsoKind;
    let gso = match (offload.gso, v6) {
        (GsoKind::TcpV4 | GsoKind::TcpV6, true) => GsoKind::TcpV6,
        (GsoKind::TcpV4 | GsoKind::TcpV6, false) => GsoKind::TcpV4,
        (other, _) => other,
    };
    Offload { gso, checksum_start: transport as u16, ..offload }
}

/// The addresses before and after, and the ports after.
struct Change {
    old: (IpAddr, IpAddr),
    new: (IpAddr, IpAddr),
    from: Endpoint,
    to: Endpoint,
}

/// Writes ports, and the checksum of TCP or UDP over other addresses.
fn ports(segment: &mut [u8], seen: &Seen, change: &Change, offload: &Offload) -> Result<(), DropReason> {
    let field = if seen.transport == Some(Transport::Tcp) { 16 } else { 6 };
    let short = if seen.is_fragment { DropReason::Fragment } else { DropReason::Truncated };
    if segment.len() < field + 2 {
        return Err(short);
    }
    let word = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let (old_from, old_to, before) = (word(0), word(2), word(field));
    let moved = addresses(change.old, change.new);
    let is_udp = seen.transport == Some(Transport::Udp);
    segment[..2].copy_from_slice(&change.from.port.to_be_bytes());
    segment[2..4].copy_from_slice(&change.to.port.to_be_bytes());
    let sum = if offload.needs_checksum {
        // The field has the sum of the pseudo-header alone.
        moved.add16(before).fold()
    } else if is_udp && before == 0 {
        if !change.new.0.is_ipv6() {
            return Ok(());
        }
        if seen.is_fragment {
            // It cannot be computed of a part (RFC 7915, section 4.5).
            return Err(DropReason::Fragment);
        }
        checksum::transport(change.new.0, change.new.1, protocol::UDP, segment)
    } else {
        let moved = moved.add16(!old_from).add16(!old_to).add16(change.from.port).add16(change.to.port);
        match moved.add16(!before).finish() {
            0 if is_udp => 0xffff,
            sum => sum,
        }
    };
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Turns an echo into one of the other version.
fn echo(
    segment: &mut [u8],
    seen: &Seen,
    old: (IpAddr, IpAddr),
    new: (IpAddr, IpAddr),
    identifier: u16,
    v6: bool,
) -> Result<(), DropReason> {
    if seen.is_fragment {
        // The pseudo-header's length is not known (RFC 7915, section 4.2).
        return Err(DropReason::Fragment);
    }
    let length = segment.len() as u32;
    let Some(head) = segment.first_chunk_mut::<8>() else { return Err(DropReason::Truncated) };
    let kind = match (v6, seen.message) {
        (true, Message::Request) => 128,
        (true, _) => 129,
        (false, Message::Request) => 8,
        (false, _) => 0,
    };
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let sum = Sum::ZERO.add16(!word(2)).add16(!word(0)).add16(!word(4));
    let sum = sum.add16(u16::from_be_bytes([kind, 0])).add16(identifier);
    let sum = match v6 {
        true => sum.add_pseudo(new.0, new.1, protocol::ICMPV6, length),
        false => {
            let pseudo = Sum::ZERO.add_pseudo(old.0, old.1, protocol::ICMPV6, length).fold();
            sum.add16(!pseudo)
        }
    };
    [head[0], head[1]] = [kind, 0];
    [head[2], head[3]] = sum.finish().to_be_bytes();
    [head[4], head[5]] = identifier.to_be_bytes();
    Ok(())
}

/// Puts another IP header into a frame in place of that which it has, and another EtherType before it.
fn replace_head(frame: &mut Bytes<'_>, seen: &Seen, head: &Head, v6: bool) -> Result<(), DropReason> {
    let place = seen.place;
    let link = place.ip;
    let mut front = [0; MOST_LINK];
    let data = frame.data();
    let number = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
    let old = if v6 { ethertype::IPV4 } else { ethertype::IPV6 };
    // Behind labels or in a session another number tells the version.
    if link > MOST_LINK || data[link - 2..link] != old.to_be_bytes() {
        return Err(DropReason::NoMapping);
    }
    front[..link].copy_from_slice(&data[..link]);
    front[link - 2..link].copy_from_slice(&number.to_be_bytes());
    frame.truncate(place.end);
    let (before, after) = (place.payload, link + head.len);
    let resized = match before.checked_sub(after) {
        Some(less) => frame.pull_front(less).is_ok(),
        None => frame.push_front(after - before).is_ok(),
    };
    if !resized {
        return Err(DropReason::TooBig);
    }
    let data = frame.data_mut();
    data[..link].copy_from_slice(&front[..link]);
    data[link..after].copy_from_slice(&head.bytes[..head.len]);
    Ok(())
}

/// Writes an ICMP error of the other version into `room`, from its IP header on; answers its length.
///
/// `from` and `to` are the addresses of the error, and `quoted` the endpoints of the packet that it is about.
pub(super) fn error(
    seen: &Seen,
    data: &[u8],
    (from, to): (IpAddr, IpAddr),
    quoted: (Endpoint, Endpoint),
    room: &mut [u8],
) -> Option<usize> {
    let v6 = to.is_ipv6();
    let message = seen.place.payload(data);
    let (icmp, quote) = message.split_at_checked(8)?;
    let inner = netbricks_core::packet::IpRef::split(quote).ok().map(|(header, _)| header);
    let total = inner.map_or(0, |header| header.stated_len());
    let (kind, code, rest) = match v6 {
        true => to_icmpv6(icmp, total)?,
        false => to_icmp(icmp)?,
    };
    let most = if v6 { LEAST_V6_MTU - 48 } else { 548 };
    let (start, body) = room.split_at_mut_checked(if v6 { 48 } else { 28 })?;
    let length = requote(quote, quoted, v6, body.get_mut(..most)?)?;
    let number = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
    let fields = Fields::of(seen.place.header(data));
    let fields = Fields { fragment: None, ..fields };
    let head = head(&fields, from, to, number, 8 + length, 0)?;
    start[..head.len].copy_from_slice(&head.bytes[..head.len]);
    let message = &mut room[head.len..head.len + 8 + length];
    message[..2].copy_from_slice(&[kind, code]);
    message[2..4].fill(0);
    message[4..8].copy_from_slice(&rest);
    let sum = checksum::transport(from, to, number, message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(head.len + 8 + length)
}

/// Writes a quoted packet in the other version; answers its length.
fn requote(quote: &[u8], (from, to): (Endpoint, Endpoint), v6: bool, room: &mut [u8]) -> Option<usize> {
    let (header, len, total) = split_cut(quote)?;
    if header.is_later_fragment() {
        return None;
    }
    let fields = Fields::of(header);
    let fields = Fields { hops: fields.hops.saturating_add(1), ..fields };
    let number = protocol_in(header.protocol(), v6);
    let payload = total.checked_sub(len)?;
    let old = (header.source(), header.destination());
    let head = head(&fields, from.address, to.address, number, payload, fields.identification)?;
    let mut body = quote.get(len..)?.iter().copied();
    let (start, rest) = room.split_at_mut_checked(head.len)?;
    start.copy_from_slice(&head.bytes[..head.len]);
    let mut count = 0;
    for (place, byte) in rest.iter_mut().zip(&mut body) {
        *place = byte;
        count += 1;
    }
    let body = &mut rest[..count];
    match Transport::of(number) {
        Some(Transport::Icmp) => {
            let head = body.first_chunk_mut::<8>()?;
            head[0] = match (head[0], v6) {
                (8, true) => 128,
                (0, true) => 129,
                (128, false) => 8,
                (129, false) => 0,
                _ => return None,
            };
            // It cannot be right: the pseudo-header's length and the rest are not known.
            [head[4], head[5]] = from.port.to_be_bytes();
        }
        Some(transport) => {
            let head = body.first_chunk_mut::<4>()?;
            let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let moved = addresses(old, (from.address, to.address)).add16(!word(0)).add16(!word(2));
            let moved = moved.add16(from.port).add16(to.port);
            head[..2].copy_from_slice(&from.port.to_be_bytes());
            head[2..].copy_from_slice(&to.port.to_be_bytes());
            let field = if transport == Transport::Tcp { 16 } else { 6 };
            if let Some([high, low]) = body.get_mut(field..field + 2)
                && [*high, *low] != [0, 0]
            {
                [*high, *low] = moved.add16(!u16::from_be_bytes([*high, *low])).finish().to_be_bytes();
            }
        }
        None => return None,
    }
    Some(head.len + count)
}

/// The header of a packet whose end may be cut off, its length, and the packet's stated length.
fn split_cut(quote: &[u8]) -> Option<(IpRef<'_>, usize, usize)> {
    use netbricks_core::packet::Ip;
    use netbricks_core::packet::stack::Header;
    let stated = match quote.first()? >> 4 {
        4 => usize::from(u16::from_be_bytes([*quote.get(2)?, *quote.get(3)?])),
        6 => 40 + usize::from(u16::from_be_bytes([*quote.get(4)?, *quote.get(5)?])),
        _ => return None,
    };
    let missing = stated.saturating_sub(quote.len());
    let found =
        Ip::find_with(quote, 0, netbricks_core::packet::stack::LengthSlack { missing, unstated: false })
            .ok()?;
    Some((Ip::view(quote.get(..found.len)?, found.facts), found.len, stated))
}

/// The type, code and last word of an ICMPv6 error as ICMP has them (RFC 7915, section 5.2).
fn to_icmp(icmp: &[u8]) -> Option<(u8, u8, [u8; 4])> {
    let rest = u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]);
    Some(match (icmp[0], icmp[1]) {
        (1, 0 | 2 | 3) => (3, 1, [0; 4]),
        (1, 1) => (3, 10, [0; 4]),
        (1, 4) => (3, 3, [0; 4]),
        (2, _) => (3, 4, rest.saturating_sub(20).min(0xffff).to_be_bytes()),
        (3, code @ (0 | 1)) => (11, code, [0; 4]),
        (4, 0) => {
            let pointer = match rest {
                0 => 0,
                1 => 1,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0, [pointer, 0, 0, 0])
        }
        (4, 1) => (3, 2, [0; 4]),
        _ => return None,
    })
}

/// Plateaus of MTUs, for errors of routers that state none (RFC 1191, section 7).
const PLATEAUS: [u32; 9] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508];

/// The type, code and last word of an ICMP error as ICMPv6 has them (RFC 7915, section 4.2).
fn to_icmpv6(icmp: &[u8], total: usize) -> Option<(u8, u8, [u8; 4])> {
    Some(match (icmp[0], icmp[1]) {
        (3, 0 | 1 | 5..=8 | 11 | 12) => (1, 0, [0; 4]),
        (3, 2) => (4, 1, 6u32.to_be_bytes()),
        (3, 3) => (1, 4, [0; 4]),
        (3, 4) => {
            let stated = u32::from(u16::from_be_bytes([icmp[6], icmp[7]]));
            let guessed = || PLATEAUS.into_iter().find(|plateau| (*plateau as usize) < total).unwrap_or(508);
            let mtu = if stated == 0 { guessed() } else { stated };
            (2, 0, (mtu + 20).max(LEAST_V6_MTU as u32).to_be_bytes())
        }
        (3, 9 | 10 | 13 | 15) => (1, 1, [0; 4]),
        (11, code @ (0 | 1)) => (3, code, [0; 4]),
        (12, 0 | 2) => {
            let pointer: u32 = match icmp[4] {
                0 => 0,
                1 => 1,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0, pointer.to_be_bytes())
        }
        _ => return None,
    })
}

/// Cuts a packet into fragments of up to `mtu` bytes of IP, each with its header.
///
/// IPv4 packets with options are not cut. `make` gets the link header, the IP header and the payload of each.
pub(super) fn cut(
    frame: &[u8],
    seen: &Seen,
    mtu: usize,
    identification: u32,
    edge: Edge,
    mut make: impl FnMut(Edge, [&[u8]; 3]) -> bool,
) -> bool {
    let place = seen.place;
    let (link, header, payload) =
        (&frame[..place.ip], &frame[place.ip..place.payload], &frame[place.payload..place.end]);
    let v6 = place.header(frame);
    let (fields, number) = (Fields::of(v6), v6.protocol());
    let is_v6 = matches!(v6, IpRef::V6(_));
    let length = if is_v6 { 40 + FRAGMENT } else { 20 };
    if is_v6 && header.len() != 40 && header.len() != 48 || !is_v6 && header.len() != 20 {
        return false;
    }
    let Some(each) = mtu.checked_sub(length).map(|room| room / 8 * 8).filter(|each| *each > 0) else {
        return false;
    };
    let (first, more_behind, id) = match fields.fragment {
        Some((offset, more, id)) => (offset, more, id),
        None if is_v6 => (0, false, identification),
        None => (0, false, fields.identification.into()),
    };
    for (at, piece) in payload.chunks(each).enumerate() {
        let is_last = (at + 1) * each >= payload.len();
        let offset = first + (at * each / 8) as u16;
        let fragment = Some((offset, !is_last || more_behind, id));
        let fields = Fields { fragment, hops: fields.hops.saturating_add(1), ..fields };
        let Some(head) = head(&fields, v6.source(), v6.destination(), number, piece.len(), 0) else {
            return false;
        };
        if !make(edge, [link, &head.bytes[..head.len], piece]) {
            return false;
        }
    }
    true
}
