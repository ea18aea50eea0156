//! Tunnels around a packet that is to be cut: tunnels in UDP, GRE, and IP in IP.
//!
//! The tunnels in UDP are VXLAN (RFC 7348), Geneve (RFC 8926) and any other. The others are GRE (RFC 2784,
//! RFC 2890) and IP in IP (RFC 2003, RFC 2473).
//!
//! As in the kernel, the bytes between the outer headers and the inner IP header are the same in all
//! segments. So a tunnel in UDP need not be known: the start of the inner checksum shows the inner header.

use netbricks_packet::checksum::internet;
use netbricks_packet::{Ipv6, PseudoHeader, protocol};

use super::{Ends, get, put, state_length};

const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;

/// The headers of a tunnel. Places are in bytes from the frame's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    network: usize,
    /// The place where the IP header ends and the tunnel's own begins.
    header: usize,
    kind: Kind,
    pseudo: PseudoHeader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The length, and the checksum if there is one.
    Udp {
        summed: bool,
    },
    Gre {
        summed: bool,
    },
    Ip,
}

/// The tunnel of `outer`, and the packet in it whose transport header, of protocol `number`, is at `inner`.
///
/// `None` if there is no such packet. `None` also for a tunnel whose packets are numbered (GRE with a
/// sequence number), and for one that is itself in a tunnel.
pub(super) fn find(frame: &[u8], outer: &Ends, inner: usize, number: u8) -> Option<(Tunnel, Ends)> {
    if outer.is_fragment || outer.jumbo > 0 || !outer.pseudo.is_known() {
        return None;
    }
    let header = outer.transport;
    let segment = frame.get(header..outer.end)?;
    let (kind, ends) = match outer.number {
        protocol::UDP if segment.len() >= 8 && usize::from(get(segment, 4)) == segment.len() => {
            (Kind::Udp { summed: get(segment, 6) != 0 }, header + 8)
        }
        protocol::GRE if segment.len() >= 4 => {
            let flags = get(segment, 0);
            if flags & !(GRE_CHECKSUM | GRE_KEY) != 0 {
                return None;
            }
            let summed = flags & GRE_CHECKSUM != 0;
            let words = 1 + usize::from(summed) + usize::from(flags & GRE_KEY != 0);
            (Kind::Gre { summed }, header + 4 * words)
        }
        protocol::IPV4 | protocol::IPV6 => (Kind::Ip, header),
        _ => return None,
    };
    let is_found = |ends: &Ends| ends.transport == inner && ends.number == number && !ends.is_fragment;
    let found = inner_headers(frame, ends, inner)
        .filter_map(|network| Ends::of(frame.get(..outer.end)?, network, number))
        .find(|found| is_found(found) && found.end == outer.end)?;
    let Ends { network, pseudo, .. } = *outer;
    Some((Tunnel { network, header, kind, pseudo }, found))
}

/// The places where IP headers without extension headers might begin that end at `inner`.
///
/// The first byte of such a header says so, and its checksum is right if it has one.
fn inner_headers(frame: &[u8], from: usize, inner: usize) -> impl Iterator<Item = usize> + '_ {
    let v6 = inner.checked_sub(Ipv6::SIZE).filter(|at| frame.get(*at).is_some_and(|first| first >> 4 == 6));
    let v4 = (5..=15).filter_map(move |words: usize| {
        let at = inner.checked_sub(4 * words)?;
        let header = frame.get(at..inner)?;
        (usize::from(header[0]) == 0x40 | words && internet(header) == 0).then_some(at)
    });
    v6.into_iter().chain(v4).filter(move |at| *at >= from)
}

impl Tunnel {
    /// Makes the tunnel's headers those of segment `index`, whose inner packet is finished.
    pub(super) fn finish(&self, frame: &mut [u8], index: usize) {
        let Self { network, header, kind, pseudo } = *self;
        state_length(frame, network, header, pseudo.source().is_ipv4(), index);
        match kind {
            Kind::Udp { summed } => {
                put(frame, header + 4, (frame.len() - header) as u16);
                if summed {
                    put(frame, header + 6, 0);
                    let checksum = pseudo.checksum(protocol::UDP, &frame[header..]);
                    put(frame, header + 6, checksum);
                }
            }
            Kind::Gre { summed: true } => {
                // Over the GRE header and the bytes after it (RFC 2784, section 2.3.2).
                put(frame, header + 4, 0);
                let checksum = internet(&frame[header..]);
                put(frame, header + 4, checksum);
            }
            Kind::Gre { summed: false } | Kind::Ip => {}
        }
    }
}
