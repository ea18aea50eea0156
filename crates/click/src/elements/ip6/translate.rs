//! Translation between the versions of IP (RFC 7915): `ProtocolTranslator46`, `ProtocolTranslator64`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::header::{
    self, Fields, ICMP6, Ip6, TCP, UDP, annotate, get_address, get16, put, set_transport_checksum, set16,
};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("ProtocolTranslator46", |arguments, setup| translator(arguments, setup, Direction::Up))
        .processing("h/h"),
    Class::new("ProtocolTranslator64", |arguments, setup| translator(arguments, setup, Direction::Down))
        .processing("h/h"),
];

const IPV4_LENGTH: usize = 20;
const ICMP: u8 = 1;
/// A field that says that a packet must not be fragmented.
const DONT_FRAGMENT: u16 = 0x4000;
/// The bits of a fragment.
const FRAGMENT: u16 = 0x3FFF;
/// How much longer IPv6 headers are.
const GROWTH: u16 = (header::LENGTH - IPV4_LENGTH) as u16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From IPv4 to IPv6.
    Up,
    /// From IPv6 to IPv4.
    Down,
}

/// `ProtocolTranslator46`, `ProtocolTranslator64`: make IPv6 packets of IPv4 packets, and the reverse.
///
/// An IPv4 address `a.b.c.d` is the IPv6 address `::a.b.c.d`. ICMP messages are translated with their types, codes,
/// and the header of a packet that they quote. TCP, UDP and ICMP pass; fragments and all else is dropped.
struct Translator {
    direction: Direction,
}

fn translator(arguments: &mut Arguments<'_>, _: &Setup<'_>, direction: Direction) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Translator { direction }))
}

fn up(address: &[u8]) -> Ipv6Addr {
    let low = address.first_chunk::<4>().copied().unwrap_or_default();
    Ipv6Addr::from_bits(u128::from(u32::from_be_bytes(low)))
}

/// The IPv4 address in an IPv6 address: of `::a.b.c.d`, and of `::ffff:a.b.c.d`.
fn down(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(address) = address.to_ipv4_mapped() {
        return Some(address);
    }
    u32::try_from(address.to_bits()).ok().filter(|low| *low != 0).map(Ipv4Addr::from)
}

/// An IPv4 packet in parts: header, what follows it, and whether all of it is there.
fn split_ipv4(bytes: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let header_length = bytes.first().map(|first| usize::from(first & 15) * 4)?;
    let length = usize::from(get16(bytes, 2));
    if bytes[0] >> 4 != 4 || header_length < IPV4_LENGTH || length < header_length {
        return None;
    }
    let (header, rest) = bytes.split_at_checked(header_length)?;
    let payload = rest.get(..length - header_length);
    Some((header, payload.unwrap_or(rest), payload.is_some()))
}

/// The IPv6 header for an IPv4 header and so many bytes behind it.
fn header_up(ip: &[u8], length: u16) -> [u8; header::LENGTH] {
    let mut to = [0; header::LENGTH];
    let next = if ip[9] == ICMP { ICMP6 } else { ip[9] };
    let fields = Fields { next, hop_limit: ip[8], source: up(&ip[12..]), destination: up(&ip[16..]) };
    fields.write(&mut to);
    put(&mut to, 0, &[0x60 | ip[1] >> 4, ip[1] << 4]);
    set16(&mut to, 4, length);
    to
}

/// The IPv4 header for an IPv6 header and so many bytes behind it.
fn header_down(ip: Ip6<'_>, length: u16) -> Option<[u8; IPV4_LENGTH]> {
    let (source, destination) = (down(ip.source())?, down(ip.destination())?);
    let mut to = [0; IPV4_LENGTH];
    to[0] = 0x45;
    to[1] = ip.0[0] << 4 | ip.0[1] >> 4;
    set16(&mut to, 2, length.checked_add(IPV4_LENGTH as u16)?);
    set16(&mut to, 6, DONT_FRAGMENT);
    to[8] = ip.hop_limit();
    to[9] = if ip.next() == ICMP6 { ICMP } else { ip.next() };
    put(&mut to, 12, &source.octets());
    put(&mut to, 16, &destination.octets());
    let sum = checksum::internet(&to);
    set16(&mut to, 10, sum);
    Some(to)
}

/// A translated ICMP message: its first 8 bytes, and whether it quotes a packet.
type Message = ([u8; 8], bool);

/// An ICMPv6 message for an ICMP message (RFC 7915 section 4.2).
fn icmp_up(icmp: &[u8]) -> Option<Message> {
    let mut to = [0; 8];
    let from = icmp.first_chunk::<8>()?;
    let (kind, code) = (from[0], from[1]);
    let (kind, code) = match (kind, code) {
        (8, _) | (0, _) => {
            to[4..].copy_from_slice(&from[4..]);
            to[0] = if kind == 8 { 128 } else { 129 };
            return Some((to, false));
        }
        (3, 2) => {
            to[7] = 6;
            (4, 1)
        }
        (3, 4) => {
            let mtu = get16(from, 6);
            // Routers that do not tell the MTU leave it at the least that IPv6 has.
            let mtu = if mtu == 0 { 1280 } else { mtu.saturating_add(GROWTH).max(1280) };
            set16(&mut to, 6, mtu);
            (2, 0)
        }
        (3, 0 | 1 | 5..=8 | 11 | 12) => (1, 0),
        (3, 3) => (1, 4),
        (3, 9 | 10 | 13 | 15) => (1, 1),
        (11, code) => (3, code),
        (12, 0 | 2) => {
            to[7] = match from[4] {
                0 => 0,
                1 => 1,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0)
        }
        _ => return None,
    };
    (to[0], to[1]) = (kind, code);
    Some((to, true))
}

/// An ICMP message for an ICMPv6 message (RFC 7915 section 5.2).
fn icmp_down(icmp: &[u8]) -> Option<Message> {
    let mut to = [0; 8];
    let from = icmp.first_chunk::<8>()?;
    let (kind, code) = (from[0], from[1]);
    let (kind, code) = match (kind, code) {
        (128 | 129, _) => {
            to[4..].copy_from_slice(&from[4..]);
            to[0] = if kind == 128 { 8 } else { 0 };
            return Some((to, false));
        }
        (1, 1) => (3, 10),
        (1, 4) => (3, 3),
        (1, 0 | 2 | 3) => (3, 1),
        (2, _) => {
            let mtu = u32::from_be_bytes([from[4], from[5], from[6], from[7]]);
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).saturating_sub(GROWTH);
            set16(&mut to, 6, mtu);
            (3, 4)
        }
        (3, code) => (11, code),
        (4, 0) => {
            to[4] = match u32::from_be_bytes([from[4], from[5], from[6], from[7]]) {
                0 => 0,
                1 => 1,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0)
        }
        (4, 1) => (3, 2),
        _ => return None,
    };
    (to[0], to[1]) = (kind, code);
    Some((to, true))
}

/// A quoted IPv4 packet as an IPv6 packet. Its transport header stays as it was.
fn quote_up(quoted: &[u8]) -> Vec<u8> {
    match split_ipv4(quoted) {
        Some((ip, payload, _)) => {
            let length = get16(ip, 2).saturating_sub(ip.len() as u16);
            [&header_up(ip, length)[..], payload].concat()
        }
        None => quoted.to_vec(),
    }
}

/// A quoted IPv6 packet as an IPv4 packet.
fn quote_down(quoted: &[u8]) -> Vec<u8> {
    let translated = Ip6::read(quoted)
        .filter(|ip| ip.version() == 6)
        .and_then(|ip| Some([&header_down(ip, get16(ip.0, 4))?[..], ip.payload()].concat()));
    translated.unwrap_or_else(|| quoted.to_vec())
}

/// The IPv6 packet for an IPv4 packet.
fn translate_up(bytes: &[u8]) -> Option<Vec<u8>> {
    let (ip, payload, whole) = split_ipv4(bytes)?;
    if !whole || get16(ip, 6) & FRAGMENT != 0 {
        return None;
    }
    let payload = match ip[9] {
        ICMP => {
            let (first, quotes) = icmp_up(payload)?;
            let rest = &payload[8..];
            [&first[..], &if quotes { quote_up(rest) } else { rest.to_vec() }].concat()
        }
        TCP | UDP => payload.to_vec(),
        _ => return None,
    };
    let mut to = [&header_up(ip, u16::try_from(payload.len()).ok()?)[..], &payload].concat();
    set_transport_checksum(&mut to);
    Some(to)
}

/// The IPv4 packet for an IPv6 packet.
fn translate_down(bytes: &[u8]) -> Option<Vec<u8>> {
    let ip = Ip6::read(bytes).filter(|ip| ip.version() == 6)?;
    if bytes.len() < header::LENGTH + ip.payload_length() {
        return None;
    }
    let payload = ip.payload();
    let mut payload = match ip.next() {
        ICMP6 => {
            let (first, quotes) = icmp_down(payload)?;
            let rest = &payload[8..];
            [&first[..], &if quotes { quote_down(rest) } else { rest.to_vec() }].concat()
        }
        TCP | UDP => payload.to_vec(),
        _ => return None,
    };
    let header = header_down(ip, u16::try_from(payload.len()).ok()?)?;
    let number = header[9];
    if let Some(field) = checksum::field_offset(number).filter(|field| field + 2 <= payload.len()) {
        set16(&mut payload, field, 0);
        let (source, destination) = (ipv4(&header[12..]), ipv4(&header[16..]));
        let sum = checksum::transport(source.into(), destination.into(), number, &payload);
        set16(&mut payload, field, sum);
    }
    Some([&header[..], &payload].concat())
}

fn ipv4(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::from(bytes.first_chunk::<4>().copied().unwrap_or_default())
}

impl Element for Translator {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let translated = match self.direction {
            Direction::Up => translate_up(packet.data()),
            Direction::Down => translate_down(packet.data()),
        };
        let Some(bytes) = translated else {
            at.drop_packet(packet, DropReason::Unmatched);
            return None;
        };
        let Some(mut to) = at.packet(&bytes) else {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        };
        to.set_timestamp(packet.timestamp());
        to.set_kind(packet.kind());
        match self.direction {
            Direction::Up => {
                annotate(&mut to, get_address(&bytes, header::DESTINATION));
                to.set_network(0, header::LENGTH);
            }
            Direction::Down => {
                to.set_dst_ip(ipv4(&bytes[16..]));
                to.set_network(0, IPV4_LENGTH);
            }
        }
        at.drop_packet(packet, DropReason::Replaced);
        Some(to)
    }
}
