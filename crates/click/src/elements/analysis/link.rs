//! Link types of packet files: their names, and where in a packet of each the IP header begins.

use netbricks_core::buffer::Packet;

use crate::packet::Annotated;

/// Raw IP packets.
pub(super) const RAW: u32 = 101;
/// Another number for raw IP packets, which some systems use.
const HOST_RAW: u32 = 12;
const NULL: u32 = 0;
/// Ethernet.
pub(super) const ETHERNET: u32 = 1;
const PPP: u32 = 9;
const FDDI: u32 = 10;
const PPP_HDLC: u32 = 50;
const ATM: u32 = 100;
const CISCO_HDLC: u32 = 104;
const WIFI: u32 = 105;
const LINUX_COOKED: u32 = 113;
const PRISM: u32 = 119;
const AIRONET: u32 = 120;
const SUN_ATM: u32 = 123;
const WIFI_RADIO: u32 = 127;

const NAMES: &[(&str, u32)] = &[
    ("NULL", NULL),
    ("IP", RAW),
    ("ETHER", ETHERNET),
    ("FDDI", FDDI),
    ("ATM", ATM),
    ("RFC1483", ATM),
    ("ATM_RFC1483", ATM),
    ("802_11", WIFI),
    ("802.11", WIFI),
    ("802_11_RADIO", WIFI_RADIO),
    ("802.11_RADIO", WIFI_RADIO),
    ("SLL", LINUX_COOKED),
    ("AIRONET", AIRONET),
    ("HDLC", CISCO_HDLC),
    ("PPP_HDLC", PPP_HDLC),
    ("PPP", PPP),
    ("SUNATM", SUN_ATM),
    ("PRISM", PRISM),
];

/// The link type of a name, or of `#` and its number.
pub(super) fn parse(name: &str) -> Option<u32> {
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Some(*number);
    }
    let number = crate::value::integer(name.strip_prefix('#')?)?;
    u32::try_from(number).ok().filter(|number| *number < 0x7FFF_FFFF)
}

/// The name of a link type, or `#` and its number.
pub(super) fn name(link: u32) -> String {
    match NAMES.iter().find(|(_, number)| *number == link) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("#{link}"),
    }
}

/// The link type by its one number, where it has several.
pub(super) fn canonical(link: u32) -> u32 {
    if link == HOST_RAW { RAW } else { link }
}

/// Whether it is known where packets of a link type have IP headers.
pub(super) fn has_ip(link: u32) -> bool {
    link != AIRONET && NAMES.iter().any(|(_, number)| *number == link)
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn is_ip(bytes: &[u8], at: usize) -> bool {
    matches!(number(bytes, at), Some(0x0800 | 0x86DD))
}

/// The place of the IP header behind an Ethernet header, whose addresses may lie before the packet.
fn ethernet(bytes: &[u8], kind: usize) -> Option<usize> {
    if is_ip(bytes, kind) {
        Some(kind + 2)
    } else if number(bytes, kind) == Some(0x8100) && is_ip(bytes, kind + 4) {
        Some(kind + 6)
    } else {
        None
    }
}

fn fddi(bytes: &[u8], at: usize) -> Option<usize> {
    let control = bytes.get(at)?;
    if control & 0xF0 == 0x50 && bytes.len() >= at + 21 { llc(bytes, at + 13) } else { None }
}

/// Where the IP header begins behind a header of logical link control (RFC 2684).
fn llc(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..)?;
    if header.starts_with(&[0xAA, 0xAA, 3, 0, 0, 0]) && is_ip(header, 6) {
        return Some(at + 8);
    }
    if header.len() >= 4 && header.starts_with(&[6, 6]) {
        return Some(at + 4);
    }
    if header.len() < 8 || !header.starts_with(&[0xAA, 0xAA]) {
        return None;
    }
    match (&header[3..6], number(header, 6)?) {
        ([0, 0, 0] | [0, 0, 0xF8], _) => ethernet(bytes, at + 6),
        ([0, 0x80, 0xC2], 1 | 7) => ethernet(bytes, at + 8 + 12),
        ([0, 0x80, 0xC2], 4 | 0x0A) => fddi(bytes, at + 9),
        _ => None,
    }
}

fn wifi(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..at + 24)?;
    if header[0] & 0x0C != 0x08 {
        return None;
    }
    llc(bytes, at + if header[1] & 3 == 3 { 30 } else { 24 })
}

/// Where the IP header of a packet begins.
fn ip_place(bytes: &[u8], link: u32) -> Option<usize> {
    match link {
        RAW | HOST_RAW => Some(0),
        ETHERNET => ethernet(bytes, 12),
        FDDI => fddi(bytes, 0),
        SUN_ATM => llc(bytes, 4),
        ATM => llc(bytes, 0),
        LINUX_COOKED => is_ip(bytes, 14).then_some(16),
        CISCO_HDLC => is_ip(bytes, 2).then_some(4),
        PPP_HDLC => match bytes.get(..4)? {
            [0xFF, _, 0, 0x21 | 0x57] => Some(4),
            [0x0F | 0x8F, ..] => is_ip(bytes, 2).then_some(4),
            _ => None,
        },
        PPP => {
            let at = if bytes.starts_with(&[0xFF, 3]) { 2 } else { 0 };
            match bytes.get(at..at + 2)? {
                [0x21 | 0x57, _] => Some(at + 1),
                [0, 0x21 | 0x57] => Some(at + 2),
                _ => None,
            }
        }
        PRISM => wifi(bytes, 144),
        WIFI => wifi(bytes, 0),
        WIFI_RADIO => {
            let head = bytes.get(..4)?;
            let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
            if length >= 8 { wifi(bytes, length) } else { None }
        }
        NULL => {
            let head = bytes.get(..4)?;
            let family = match u16::from_le_bytes([head[0], head[1]]) {
                0 => u16::from_be_bytes([head[2], head[3]]),
                family => family,
            };
            matches!(family, 2 | 24 | 28 | 30).then_some(4)
        }
        _ => None,
    }
}

/// Notes where a packet's IP header is. `false` for a packet that has none, which stays as it is.
pub(super) fn find_ip(packet: &mut Packet, link: u32) -> bool {
    let Some(place) = ip_place(packet.data(), link) else { return false };
    let Some(header) = packet.data().get(place..) else { return false };
    match header.first().map(|first| (first >> 4, usize::from(first & 15) * 4)) {
        Some((4, length)) if length >= 20 && header.len() >= length => {
            let destination = [header[16], header[17], header[18], header[19]];
            packet.set_network(place, length);
            packet.set_dst_ip(destination.into());
            true
        }
        Some((6, _)) if header.len() >= 40 => {
            packet.set_network(place, 40);
            true
        }
        _ => false,
    }
}
