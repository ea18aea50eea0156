//! Fragments of IPv4 packets that are larger than their link (RFC 791 §3.2).

use netbricks_core::buffer::{Packet, Pool};
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{IpMut, Ipv4};

/// The bits of the flags and fragment offset field.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Computes the checksum that its sender left to the device, which cannot do so for fragments.
pub(crate) fn complete_checksum(packet: &mut Packet, limit: usize) {
    let offload = packet.offload();
    if !offload.needs_checksum {
        return;
    }
    let start = usize::from(offload.checksum_start);
    let place = start + usize::from(offload.checksum_offset);
    let bytes = packet.data_mut();
    let Some(sum) = bytes.get(start..limit).map(|bytes| Sum::ZERO.add_bytes(bytes).finish()) else { return };
    // Over UDP, 0 would say that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    if let Some(field) = bytes.get_mut(place..place + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
        packet.set_offload(netbricks_core::buffer::Offload { needs_checksum: false, ..offload });
    }
}

/// Whether an IPv4 fragment ends beyond the 65,535 bytes that a packet may have.
///
/// It is behind `at` bytes of link header.
pub(crate) fn reaches_too_far(frame: &[u8], at: usize) -> bool {
    let word = |place: usize| {
        let word = frame.get(place..place + 2).and_then(|word| word.first_chunk());
        word.map_or(0, |word| usize::from(u16::from_be_bytes(*word)))
    };
    (word(at + 6) & usize::from(OFFSET)) * 8 + word(at + 2) > usize::from(u16::MAX)
}

/// Cuts the IPv4 packet behind `at` bytes of link header into fragments of at most `mtu` bytes.
///
/// The packet becomes the first, and `made` gets the others in order. `None` where there is no buffer for all of
/// them, or it reaches too far: the packet is then as it was, and the caller drops what was made.
pub(crate) fn cut(
    packet: &mut Packet,
    at: usize,
    mtu: usize,
    pool: &Pool,
    made: &mut Vec<Packet>,
) -> Option<()> {
    let frame = packet.data();
    let header_len = usize::from(frame.get(at)? & 15) * 4;
    let word =
        |place: usize| frame.get(place..place + 2)?.first_chunk().map(|word| u16::from_be_bytes(*word));
    let total = usize::from(word(at + 2)?);
    let (end, flags) = (at + header_len, word(at + 6)?);
    let payload = frame.get(end..at + total)?;
    if reaches_too_far(frame, at) {
        return None;
    }
    let step = mtu.checked_sub(header_len)? & !7;
    if step == 0 || payload.len() <= step {
        return None;
    }
    let (copied, copied_len) = copied_options(frame.get(at + 20..end)?);
    let copied = &copied[..copied_len];
    let first_offset = flags & OFFSET;
    // Later fragments have a shorter header where options are not copied: they still take `step` bytes, so that all offsets
    // are multiples of it.
    for (number, piece) in payload.chunks(step).enumerate().skip(1) {
        let is_last = (number + 1) * step >= payload.len();
        let later_len = 20 + copied.len();
        let mut fragment = pool.allocate(at + later_len + piece.len())?;
        let bytes = fragment.data_mut();
        let (link, rest) = bytes.split_at_mut_checked(at)?;
        link.copy_from_slice(frame.get(..at)?);
        let (header, body) = rest.split_at_mut_checked(later_len)?;
        header[..20].copy_from_slice(frame.get(at..at + 20)?);
        header[20..].copy_from_slice(copied);
        header[0] = 0x40 | (later_len / 4) as u8;
        header[2..4].copy_from_slice(&((later_len + piece.len()) as u16).to_be_bytes());
        let offset = first_offset + (number * step / 8) as u16;
        let more = if is_last { flags & MORE } else { MORE };
        header[6..8].copy_from_slice(&(more | offset).to_be_bytes());
        refresh(header);
        body.copy_from_slice(piece);
        fragment.set_received_at(packet.received_at());
        fragment.set_ingress(packet.ingress(), packet.queue());
        fragment.set_owner(packet.owner());
        made.push(fragment);
    }
    packet.truncate(end + step);
    let header = packet.data_mut().get_mut(at..end)?;
    header[2..4].copy_from_slice(&((header_len + step) as u16).to_be_bytes());
    header[6..8].copy_from_slice(&(MORE | first_offset).to_be_bytes());
    refresh(header);
    Some(())
}

fn refresh(header: &mut [u8]) {
    Ipv4::view_mut(header, ()).refresh_checksum();
}

/// The options that every fragment has (those with the high bit set), padded to whole words, and their length.
fn copied_options(options: &[u8]) -> ([u8; 40], usize) {
    let (mut copied, mut len, mut rest) = ([0; 40], 0, options);
    while let [kind, more @ ..] = rest {
        match kind {
            0 => break,
            1 => rest = more,
            kind => {
                let size = more.first().map_or(0, |size| usize::from(*size));
                let Some((option, after)) = rest.split_at_checked(size).filter(|_| size >= 2) else { break };
                if kind & 0x80 != 0
                    && let Some(room) = copied.get_mut(len..len + size)
                {
                    room.copy_from_slice(option);
                    len += size;
                }
                rest = after;
            }
        }
    }
    (copied, len.next_multiple_of(4))
}

/// One hop less, in either version.
pub(crate) fn one_hop_less(mut header: IpMut<'_>) {
    header.decrement_ttl();
}
