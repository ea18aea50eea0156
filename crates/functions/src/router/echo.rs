//! Pings to the router's own addresses, which it answers where no host does (RFC 1122 §3.2.2.6, RFC 4443 §4.2).

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::ip::IpFacts;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{Icmpv4, Icmpv6, Ip, IpRef, MacAddress, protocol};

use super::look::Parsed;

/// The initial TTL and hop limit of answers (RFC 1700).
const HOPS: u8 = 64;

/// Whether a packet is an echo request that can be answered. Fragments and packets with extension headers are not.
pub(crate) fn is_request(ip: IpRef<'_>, payload: &[u8]) -> bool {
    if ip.is_fragment() || ip.source().is_unspecified() {
        return false;
    }
    match (ip, payload.first()) {
        (IpRef::V4(header), Some(8)) => {
            header.protocol() == protocol::ICMP && header.options_bytes().is_empty()
        }
        (IpRef::V6(header), Some(128)) => {
            header.protocol() == protocol::ICMPV6 && header.extensions_bytes().is_empty()
        }
        _ => false,
    }
}

/// Turns an echo request into its answer.
///
/// # Errors
/// The checksum is not right, or it is unknown, because bytes are missing.
pub(crate) fn answer(packet: &mut Packet, parsed: &Parsed, mac: MacAddress) -> Result<(), DropReason> {
    let (ip, payload) = parsed.header(packet.data());
    let sum = match parsed.facts {
        IpFacts::V4 => Sum::ZERO.add_bytes(payload),
        IpFacts::V6(_) => ip.pseudo_header().sum(protocol::ICMPV6, payload.len() as u32).add_bytes(payload),
    };
    if packet.missing() > 0 {
        return Err(DropReason::Truncated);
    }
    if sum.finish() != 0 {
        return Err(DropReason::BadChecksum);
    }
    let (at, end) = (usize::from(parsed.at), parsed.end as usize);
    let frame = packet.data_mut();
    let Some((headers, message)) = frame.split_at_mut_checked(end) else { return Err(DropReason::Malformed) };
    let turned = match parsed.facts {
        IpFacts::V4 => {
            message.get_mut(..Icmpv4::SIZE).map(|bytes| Icmpv4::view_mut(bytes, ()).become_reply())
        }
        IpFacts::V6(_) => {
            message.get_mut(..Icmpv6::SIZE).map(|bytes| Icmpv6::view_mut(bytes, ()).become_reply())
        }
    };
    if turned != Some(true) {
        return Err(DropReason::LocalDelivery);
    }
    // Exchanged addresses leave every checksum as it is.
    let (first, width) = if matches!(parsed.facts, IpFacts::V4) { (at + 12, 4) } else { (at + 8, 16) };
    if let Some(addresses) = headers.get_mut(first..first + 2 * width) {
        addresses.rotate_left(width);
    }
    if let Some(header) = headers.get_mut(at..end) {
        Ip::view_mut(header, parsed.facts).set_ttl(HOPS);
    }
    if let Some(link) = headers.get_mut(..12) {
        link.rotate_left(6);
        link[6..].copy_from_slice(&mac.octets());
    }
    Ok(())
}
