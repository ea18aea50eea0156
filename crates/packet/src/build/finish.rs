//! What is known only of the whole packet: lengths, next-header numbers and checksums, from the inside out.

use zerocopy::FromBytes;

use super::{BuildError, Kind, Placed};
use crate::checksum;
use crate::gre::Gre;
use crate::ip::IpRef;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::mpls::Mpls;
use crate::pppoe::Ppp;
use crate::protocol;
use crate::pseudo::PseudoHeader;
use crate::stack::Header;

/// Writes the number of the header that comes after `outer`.
pub(super) fn announce(headers: &mut [u8], outer: Option<&Placed>, number: u16) {
    let Some(outer) = outer else { return };
    let at = outer.at;
    let two = number.to_be_bytes();
    match outer.kind {
        Kind::Ethernet => headers[at + 12..at + 14].copy_from_slice(&two),
        Kind::Vlan | Kind::Gre | Kind::Geneve => headers[at + 2..at + 4].copy_from_slice(&two),
        Kind::Udp => headers[at + 2..at + 4].copy_from_slice(&two),
        Kind::Ppp => headers[at..at + 2].copy_from_slice(&Ppp::number(number).to_be_bytes()),
        Kind::Ipv4 => headers[at + 9] = number as u8,
        Kind::Ipv6 => headers[at + outer.next_at] = number as u8,
        Kind::Mpls if number == Mpls::ETHER_TYPE => headers[at + 2] &= !1,
        // These announce nothing by a number of their own.
        Kind::Mpls | Kind::Pppoe | Kind::Vxlan | Kind::Gtpu => {}
        Kind::Arp | Kind::Tcp | Kind::Icmpv4 | Kind::Icmpv6 => {}
    }
}

/// Fills in every length and checksum of a packet that ends where `frame` does.
pub(super) fn finish(frame: &mut [u8], layers: &[Placed]) -> Result<(), BuildError> {
    for (i, layer) in layers.iter().enumerate().rev() {
        let (outside, packet) = frame.split_at_mut(layer.at);
        // Lengths that their fields cannot state are an error, so the casts below lose nothing.
        let bytes = packet.len();
        let stated = |header, bytes: usize| match u16::try_from(bytes) {
            Ok(bytes) => Ok(bytes.to_be_bytes()),
            Err(_) => Err(BuildError::TooLong { header, bytes, most: usize::from(u16::MAX) }),
        };
        let pseudo = layers[..i].last().and_then(|outer| pseudo_header(outside.get(outer.at..)?, outer));
        match layer.kind {
            Kind::Pppoe => packet[4..6].copy_from_slice(&stated("pppoe", bytes - 6)?),
            Kind::Gtpu => packet[2..4].copy_from_slice(&stated("gtpu", bytes - 8)?),
            Kind::Ipv4 => {
                packet[2..4].copy_from_slice(&stated("ipv4", bytes)?);
                let header = 4 * usize::from(packet[0] & 15);
                let sum = checksum::internet(&packet[..header]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Kind::Ipv6 => packet[4..6].copy_from_slice(&stated("ipv6", bytes - 40)?),
            Kind::Udp => {
                packet[4..6].copy_from_slice(&stated("udp", bytes)?);
                if !layer.unchecked {
                    transport(packet, pseudo, protocol::UDP);
                }
            }
            Kind::Tcp => transport(packet, pseudo, protocol::TCP),
            Kind::Icmpv4 => transport(packet, pseudo, protocol::ICMP),
            Kind::Icmpv6 => transport(packet, pseudo, protocol::ICMPV6),
            Kind::Gre => {
                let (pptp, header) = match Gre::ref_from_prefix(packet) {
                    Ok((gre, _)) => (gre.is_pptp(), gre.header_length()),
                    Err(_) => (false, 0),
                };
                // RFC 2637's GRE has a length where RFC 2784's may have a checksum.
                if pptp {
                    packet[4..6].copy_from_slice(&stated("gre", bytes - header)?);
                } else if packet[0] & 0x80 != 0 {
                    let sum = checksum::internet(packet);
                    packet[4..6].copy_from_slice(&sum.to_be_bytes());
                }
            }
            Kind::Ethernet | Kind::Vlan | Kind::Mpls | Kind::Ppp | Kind::Arp | Kind::Vxlan | Kind::Geneve => {
            }
        }
    }
    Ok(())
}

/// The pseudo-header of a packet with this header, if that is IP. All of the header's bytes are there, though lengths
/// are not yet.
fn pseudo_header(header: &[u8], outer: &Placed) -> Option<PseudoHeader> {
    let ip = match outer.kind {
        Kind::Ipv4 => IpRef::V4(Ipv4::view(header, ())),
        Kind::Ipv6 => IpRef::V6(Ipv6::whole_header(header)),
        _ => return None,
    };
    Some(ip.pseudo_header())
}

/// Writes the checksum of a transport segment, whose checksum field is still zero.
fn transport(segment: &mut [u8], pseudo: Option<PseudoHeader>, number: u8) {
    if let (Some(pseudo), Some(at)) = (pseudo, checksum::field_offset(number)) {
        let sum = pseudo.checksum(number, segment);
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}
