//! Segmentation in software: a TCP or UDP packet that its sender left to be cut becomes packets that fit the link, for
//! ports whose device does not cut (RFC 9293, RFC 768; virtio 1.2, section 5.1.6.2, says what is asked for).
//!
//! Nothing that the offload or the packet states is believed before it was compared with the bytes.

use netbricks_buffer::{GsoKind, Offload, Packet, Pool};
use netbricks_packet::checksum::internet;
use netbricks_packet::stack::{Layer, Root, Stack};
use netbricks_packet::{IpRef, Link, PseudoHeader, protocol};

/// Segments that one packet may become: the longest IP packet in segments of 48 bytes, than which no sane peer announces
/// less.
const MOST_SEGMENTS: usize = 1_366;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a packet is to be cut. Places are in bytes from the frame's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The IP header, the transport header, the payload, and its end.
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    /// Payload bytes of a segment.
    size: usize,
    number: u8,
    pseudo: PseudoHeader,
    /// Whether the transport header has a checksum: UDP over IPv4 may go without.
    summed: bool,
}

impl Cut {
    /// How `packet` is to be cut. `None` where it does not ask to be, or where what it asks for does not fit its bytes:
    /// another protocol, a fragment, a header that ends behind the packet, too many segments. Nor where no segment could
    /// get a checksum, since its final destination can't be read.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let (offload, frame) = (packet.offload(), packet.data());
        let number = match offload.gso {
            GsoKind::None => return None,
            GsoKind::TcpV4 | GsoKind::TcpV6 => protocol::TCP,
            GsoKind::Udp => protocol::UDP,
        };
        let link = Layer::<Root, Link>::parse(Root, frame).ok()?;
        let network = link.end();
        let (ip, segment) = IpRef::split(frame.get(network..link.limit(frame.len()))?).ok()?;
        let is_of_version = match offload.gso {
            GsoKind::TcpV4 => matches!(ip, IpRef::V4(_)),
            GsoKind::TcpV6 => matches!(ip, IpRef::V6(_)),
            _ => true,
        };
        if !is_of_version || ip.protocol() != number || ip.is_fragment() {
            return None;
        }
        let pseudo = ip.pseudo_header();
        if !pseudo.is_known() {
            return None;
        }
        let transport = segment.as_ptr().addr() - frame.as_ptr().addr();
        let header = match number {
            protocol::TCP => usize::from(segment.get(12)? >> 4) * 4,
            _ => 8,
        };
        let shortest = if number == protocol::TCP { 20 } else { 8 };
        if header < shortest || header > segment.len() {
            return None;
        }
        let summed = number == protocol::TCP || offload.needs_checksum || segment[6..8] != [0, 0];
        let cut = Self {
            network,
            transport,
            payload: transport + header,
            end: transport + segment.len(),
            size: usize::from(offload.gso_size),
            number,
            pseudo,
            summed,
        };
        (cut.size > 0 && cut.segments() <= MOST_SEGMENTS).then_some(cut)
    }

    /// How many segments there will be, 1 at least.
    pub(crate) fn segments(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size).max(1)
    }

    /// Bytes of the longest of them, as a frame.
    pub(crate) fn longest(&self) -> usize {
        self.payload + self.size.min(self.end - self.payload)
    }

    /// Makes segment `index` of the packet that this was made of. `None` when no buffer is free.
    pub(crate) fn segment(&self, packet: &Packet, index: usize, pool: &Pool) -> Option<Packet> {
        let whole = packet.data();
        let from = (self.payload + index * self.size).min(self.end);
        let to = (from + self.size).min(self.end);
        let mut segment = pool.empty(self.payload + (to - from))?;
        segment.extend_from(whole.get(..self.payload)?).ok()?;
        segment.extend_from(whole.get(from..to)?).ok()?;
        self.finish(segment.data_mut(), index, from - self.payload, to == self.end);
        segment.set_ingress(packet.ingress(), packet.queue());
        segment.set_received_at(packet.received_at());
        segment.set_flow_hash(packet.flow_hash());
        segment.set_owner(packet.owner());
        segment.set_vlan(packet.vlan());
        segment.set_traced(packet.traced());
        segment.set_offload(Offload { checksum_valid: true, ..Offload::default() });
        Some(segment)
    }

    /// Makes the headers those of a segment whose payload starts `offset` bytes into the whole's.
    fn finish(&self, frame: &mut [u8], index: usize, offset: usize, is_last: bool) {
        let (network, transport_at) = (self.network, self.transport);
        // All lengths are below 65,536: the whole packet's own fields stated them.
        if self.pseudo.source().is_ipv4() {
            let total = (frame.len() - network) as u16;
            put(frame, network + 2, total);
            // Each segment is a datagram of its own (RFC 791, section 3.2, "Identification").
            let identification = get(frame, network + 4).wrapping_add(index as u16);
            put(frame, network + 4, identification);
            put(frame, network + 10, 0);
            // Options included: the header ends where the transport's begins.
            let checksum = internet(&frame[network..transport_at]);
            put(frame, network + 10, checksum);
        } else {
            let payload = (frame.len() - network - 40) as u16;
            put(frame, network + 4, payload);
        }
        let field = if self.number == protocol::TCP {
            let at = transport_at + 4;
            let sequence = u32::from(get(frame, at)) << 16 | u32::from(get(frame, at + 2));
            let sequence = sequence.wrapping_add(offset as u32);
            frame[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut frame[transport_at + 13];
            if index > 0 {
                // RFC 3168, section 6.1.2: the window was reduced once.
                *flags &= !CWR;
            }
            if !is_last {
                *flags &= !(FIN | PSH);
            }
            transport_at + 16
        } else {
            let length = (frame.len() - transport_at) as u16;
            put(frame, transport_at + 4, length);
            transport_at + 6
        };
        put(frame, field, 0);
        if self.summed {
            let checksum = self.pseudo.checksum(self.number, &frame[transport_at..]);
            put(frame, field, checksum);
        }
    }
}

fn get(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
