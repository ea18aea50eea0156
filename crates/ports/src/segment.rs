//! Segmentation in software: a TCP or UDP packet that its sender left uncut becomes packets that fit.
//!
//! It has two uses. On transmit, it serves ports whose device does not cut, and segments inside a tunnel,
//! which a virtio-net header cannot describe (virtio 1.2, section 5.1.6.2). On receive, it serves packets
//! that no buffer holds: BIG TCP (up to 512 KiB) becomes packets of at most 64 KiB, which are cut further
//! later.
//!
//! All statements of the offload and of the packet are first compared with the bytes.

mod tunnel;

use std::net::IpAddr;

use netbricks_buffer::{GsoKind, Offload, Packet, Pool};
use netbricks_packet::checksum::internet;
use netbricks_packet::stack::{Header, Layer, Root, Stack};
use netbricks_packet::tcp::flags::{CWR, FIN, PSH};
use netbricks_packet::{IpRef, Ipv6, Link, PseudoHeader, protocol};

use self::tunnel::Tunnel;

/// The most segments of one packet: the longest IP packet in segments of 48 bytes.
///
/// No reasonable peer announces less.
const MOST_SEGMENTS: usize = 1_366;
/// The largest value of a length field of 16 bits, in bytes.
const LONGEST: usize = 65_535;
/// Bytes of a hop-by-hop header with only a jumbo payload option (RFC 2675, section 2).
const JUMBO: usize = 8;

/// The plan for cutting a packet. Places are in bytes from the frame's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The place where a PPPoE header states its length.
    pppoe: Option<usize>,
    /// The headers around the IP packet that is cut.
    tunnel: Option<Tunnel>,
    /// The IP header, the transport header, the payload, and its end.
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    /// Bytes of a jumbo payload option that is removed, behind the fixed IPv6 header.
    jumbo: usize,
    /// Payload bytes of a segment.
    size: usize,
    number: u8,
    pseudo: PseudoHeader,
    /// Whether the transport header has a checksum: UDP over IPv4 may have none.
    summed: bool,
    /// The offload of packets that still hold several segments.
    rest: Option<Offload>,
}

impl Cut {
    /// Finds how to cut `packet` into packets that need no device.
    ///
    /// `None` if it does not ask to be cut, or if its bytes do not fit the request: another protocol, a
    /// fragment, a header behind its end, too many segments. `None` also if no segment could get a checksum,
    /// since its final destination cannot be read.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let cut = Self::find(packet.data(), &packet.offload())?;
        cut.is_sane().then_some(cut)
    }

    /// Finds how an arrival that no buffer takes whole becomes packets of at most `largest` bytes.
    ///
    /// They are cut further when they are sent. `None` as for [`of`](Self::of), and if not even a segment
    /// fits.
    pub(crate) fn of_arrival(frame: &[u8], offload: &Offload, largest: usize) -> Option<Self> {
        let cut = Self::find(frame, offload)?;
        let headers = cut.payload - cut.jumbo;
        let room = largest.min(cut.network + cut.longest_packet()).checked_sub(headers)?;
        let segments = match cut.tunnel {
            // Only the kernel can complete the checksum of a tunnel that still has several segments: cut it
            // completely.
            Some(_) => 1.min(room / cut.size),
            None => room / cut.size,
        };
        let several = segments > 1 && offload.needs_checksum;
        let rest = several.then_some(Offload { checksum_valid: false, ..*offload });
        let cut = Self { size: if several { segments * cut.size } else { cut.size }, rest, ..cut };
        (segments > 0 && cut.is_sane()).then_some(cut)
    }

    fn find(frame: &[u8], offload: &Offload) -> Option<Self> {
        let number = match offload.gso {
            GsoKind::None => return None,
            GsoKind::TcpV4 | GsoKind::TcpV6 => protocol::TCP,
            GsoKind::Udp => protocol::UDP,
        };
        let link = Layer::<Root, Link>::parse(Root, frame).ok()?;
        let network = link.end();
        let view = Link::view(frame.get(..network)?, link.top().1);
        // The length is the last two of a PPPoE header's six bytes.
        let pppoe = view.pppoe().map(|header| place(frame, header) + 4);
        let outer = Ends::of(frame.get(..link.limit(frame.len()))?, network, number)?;
        let is_inside = offload.needs_checksum && usize::from(offload.checksum_start) != outer.transport;
        let (tunnel, ends) = if is_inside {
            let (tunnel, inner) = tunnel::find(frame, &outer, usize::from(offload.checksum_start), number)?;
            (Some(tunnel), inner)
        } else {
            (None, outer)
        };
        let is_of_version = match offload.gso {
            GsoKind::TcpV4 => ends.is_v4(),
            GsoKind::TcpV6 => !ends.is_v4(),
            _ => true,
        };
        if !is_of_version || ends.number != number || ends.is_fragment {
            return None;
        }
        if !ends.pseudo.is_known() {
            return None;
        }
        let segment = frame.get(ends.transport..ends.end)?;
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
            pppoe,
            tunnel,
            network: ends.network,
            transport: ends.transport,
            payload: ends.transport + header,
            end: ends.end,
            jumbo: ends.jumbo,
            size: usize::from(offload.gso_size),
            number,
            pseudo: ends.pseudo,
            summed,
            rest: None,
        };
        (cut.size > 0).then_some(cut)
    }

    fn is_sane(&self) -> bool {
        self.segments() <= MOST_SEGMENTS && self.longest() - self.network <= self.longest_packet()
    }

    /// Bytes of the longest IP packet whose length field can express it. IPv6's leaves out the fixed header.
    fn longest_packet(&self) -> usize {
        if self.pseudo.source().is_ipv4() { LONGEST } else { LONGEST + Ipv6::SIZE }
    }

    /// Whether the packet to cut is inside a tunnel, which no virtio-net header can describe.
    pub(crate) fn is_inside(&self) -> bool {
        self.tunnel.is_some()
    }

    /// The number of segments, at least 1.
    pub(crate) fn segments(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size).max(1)
    }

    /// Bytes of the longest segment, as a frame.
    pub(crate) fn longest(&self) -> usize {
        self.payload - self.jumbo + self.size.min(self.end - self.payload)
    }

    /// Makes segment `index` of the packet that this plan is for. `None` when no buffer is free.
    pub(crate) fn segment(&self, packet: &Packet, index: usize, pool: &Pool) -> Option<Packet> {
        let mut segment = self.part(packet.data(), index, pool)?;
        segment.set_ingress(packet.ingress(), packet.queue());
        segment.set_received_at(packet.received_at());
        segment.set_flow_hash(packet.flow_hash());
        segment.set_owner(packet.owner());
        segment.set_vlan(packet.vlan());
        segment.set_trace(packet.trace());
        Some(segment)
    }

    /// Makes segment `index` of the frame that this plan is for. `None` when no buffer is free.
    pub(crate) fn part(&self, whole: &[u8], index: usize, pool: &Pool) -> Option<Packet> {
        let from = self.payload.saturating_add(index.saturating_mul(self.size)).min(self.end);
        let to = (from + self.size).min(self.end);
        let mut segment = pool.empty(self.payload - self.jumbo + (to - from))?;
        // If no option is removed, the first piece ends where the second begins.
        let kept = if self.jumbo > 0 { self.network + Ipv6::SIZE } else { self.payload };
        segment.extend_from(whole.get(..kept)?).ok()?;
        segment.extend_from(whole.get(kept + self.jumbo..self.payload).unwrap_or_default()).ok()?;
        segment.extend_from(whole.get(from..to)?).ok()?;
        let offload = self.finish(segment.data_mut(), index, from - self.payload, to == self.end);
        segment.set_offload(offload);
        Some(segment)
    }

    /// Makes the headers those of a segment whose payload starts `offset` bytes into the whole's.
    ///
    /// Answers the offload that is left.
    fn finish(&self, frame: &mut [u8], index: usize, offset: usize, is_last: bool) -> Offload {
        let transport_at = self.transport - self.jumbo;
        if let Some(at) = self.pppoe {
            // The number of bytes after the length field and its two bytes (RFC 2516, section 4).
            put(frame, at, (frame.len() - at - 2) as u16);
        }
        if self.jumbo > 0 {
            frame[self.network + 6] = self.number;
        }
        state_length(frame, self.network, transport_at, self.pseudo.source().is_ipv4(), index * self.steps());
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
        let offload = self.rest.map(|rest| {
            // The sum of the pseudo-header, as senders leave it to a device.
            let len = (frame.len() - transport_at) as u32;
            put(frame, field, self.pseudo.sum(self.number, len).fold());
            let is_one = frame.len() - (self.payload - self.jumbo) <= usize::from(rest.gso_size);
            let (gso, gso_size) = if is_one { (GsoKind::None, 0) } else { (rest.gso, rest.gso_size) };
            let gso_ecn = rest.gso_ecn && !is_one;
            // Headers are far shorter than 64 KiB: the transport header begins where the offload said, or
            // before.
            Offload { gso, gso_size, gso_ecn, checksum_start: transport_at as u16, ..rest }
        });
        if offload.is_none() && self.summed {
            let checksum = self.pseudo.checksum(self.number, &frame[transport_at..]);
            put(frame, field, checksum);
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.finish(frame, index);
        }
        offload.unwrap_or(Offload { checksum_valid: true, ..Offload::default() })
    }

    /// The number of final segments that one of these segments contains: each takes its own identification.
    fn steps(&self) -> usize {
        self.rest.map_or(1, |rest| self.size / usize::from(rest.gso_size).max(1))
    }
}

/// The places of an IP packet's parts, in bytes from the frame's first.
#[derive(Clone, Copy, Debug)]
struct Ends {
    network: usize,
    transport: usize,
    end: usize,
    jumbo: usize,
    number: u8,
    pseudo: PseudoHeader,
    is_fragment: bool,
}

impl Ends {
    fn is_v4(&self) -> bool {
        self.pseudo.source().is_ipv4()
    }

    /// The places in the packet at `network`, to be cut into segments of protocol `number`.
    fn of(frame: &[u8], network: usize, number: u8) -> Option<Self> {
        let bytes = frame.get(network..)?;
        if bytes.len() > LONGEST {
            return Self::of_big(frame, network, number);
        }
        let (ip, segment) = IpRef::split(bytes).ok()?;
        let transport = place(frame, segment);
        Some(Self {
            network,
            transport,
            end: transport + segment.len(),
            jumbo: 0,
            number: ip.protocol(),
            pseudo: ip.pseudo_header(),
            is_fragment: ip.is_fragment(),
        })
    }

    /// The places in a packet that is longer than its length field can express: Linux's BIG TCP.
    ///
    /// IPv4 states a length of 0. IPv6 states 0 too, with a jumbo payload option (RFC 2675) or, since Linux
    /// 6.19, without.
    fn of_big(frame: &[u8], network: usize, number: u8) -> Option<Self> {
        let bytes = frame.get(network..)?;
        let ends = |transport: usize, jumbo, [source, destination]: [IpAddr; 2], is_fragment| {
            let pseudo = PseudoHeader::between(source, destination);
            let transport = network + transport;
            Self { network, transport, end: frame.len(), jumbo, number, pseudo, is_fragment }
        };
        match bytes.first()? >> 4 {
            4 => {
                let header = usize::from(bytes[0] & 15) * 4;
                let is_fragment = get(bytes, 6) & 0x3fff != 0;
                let addresses =
                    [12, 16].map(|at| IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
                (header >= 20 && get(bytes, 2) == 0 && bytes[9] == number)
                    .then(|| ends(header, 0, addresses, is_fragment))
            }
            6 if get(bytes, 4) == 0 => {
                let addresses = [8, 24].map(|at| {
                    let mut address = [0; 16];
                    address.copy_from_slice(&bytes[at..at + 16]);
                    IpAddr::from(address)
                });
                let length = (bytes.len() - Ipv6::SIZE) as u32;
                let [a, b, c, d] = length.to_be_bytes();
                match bytes[6] {
                    0 if bytes[Ipv6::SIZE..Ipv6::SIZE + JUMBO] == [number, 0, 0xc2, 4, a, b, c, d] => {
                        Some(ends(Ipv6::SIZE + JUMBO, JUMBO, addresses, false))
                    }
                    next if next == number => Some(ends(Ipv6::SIZE, 0, addresses, false)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The place in `frame` where `part`, which was borrowed from it, begins.
fn place<T: ?Sized>(frame: &[u8], part: &T) -> usize {
    std::ptr::from_ref(part).addr() - frame.as_ptr().addr()
}

/// Makes the IP header at `network` state that its packet ends with the frame.
///
/// The header ends at `end`. An IPv4 identification increases by `steps`.
fn state_length(frame: &mut [u8], network: usize, end: usize, is_v4: bool, steps: usize) {
    // All lengths are below 65,536: the whole packet's own fields stated them, or it is cut so that fields
    // can state them.
    if is_v4 {
        put(frame, network + 2, (frame.len() - network) as u16);
        // Each segment is a separate datagram (RFC 791, section 3.2, "Identification").
        let identification = get(frame, network + 4).wrapping_add(steps as u16);
        put(frame, network + 4, identification);
        put(frame, network + 10, 0);
        // The checksum includes options: the header ends where the next header begins.
        let checksum = internet(&frame[network..end]);
        put(frame, network + 10, checksum);
    } else {
        put(frame, network + 4, (frame.len() - network - Ipv6::SIZE) as u16);
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
