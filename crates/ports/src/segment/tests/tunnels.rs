//! Segments inside tunnels, checked by the RFCs of outer and inner headers.

use super::*;

/// A tunnel's header, as its sender writes it before a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    Vxlan,
    /// With eight bytes of options.
    Geneve,
    Gre {
        key: bool,
        summed: bool,
    },
    /// Ethernet in GRE.
    GreTap,
    Ip,
}

const ALL: [Around; 8] = [
    Around::Vxlan,
    Around::Geneve,
    Around::Gre { key: false, summed: false },
    Around::Gre { key: true, summed: false },
    Around::Gre { key: false, summed: true },
    Around::Gre { key: true, summed: true },
    Around::GreTap,
    Around::Ip,
];

#[derive(Clone, Debug)]
struct Tunnelled {
    around: Around,
    outer_v6: bool,
    /// Whether a tunnel in UDP has a checksum.
    summed: bool,
    inner: Sent,
}

const OUTER_ID: u16 = 0xfffe;

impl Tunnelled {
    fn ends(&self) -> (IpAddr, IpAddr) {
        if self.outer_v6 {
            ("2001:db8:1::1".parse().unwrap(), "2001:db8:1::2".parse().unwrap())
        } else {
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
        }
    }
    fn carries_ethernet(&self) -> bool {
        matches!(self.around, Around::Vxlan | Around::Geneve | Around::GreTap)
    }
    fn is_in_udp(&self) -> bool {
        matches!(self.around, Around::Vxlan | Around::Geneve)
    }
    /// The tunnel's own header, with a UDP header where it has one.
    fn header(&self, payload: usize) -> Vec<u8> {
        let inner = if self.inner.v6 { [0x86, 0xdd] } else { [8, 0] };
        let udp = |port: u16, rest: &[u8]| {
            let mut header = vec![0xc0, 0x01];
            header.extend(port.to_be_bytes());
            header.extend(((8 + rest.len() + payload) as u16).to_be_bytes());
            header.extend([0, 0]);
            header.extend_from_slice(rest);
            header
        };
        match self.around {
            Around::Vxlan => udp(4789, &[8, 0, 0, 0, 0, 0, 5, 0]),
            Around::Geneve => udp(6081, &[2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 1, 9, 9, 9, 9]),
            Around::Gre { key, summed } => {
                let mut header = vec![u8::from(summed) << 7 | u8::from(key) << 5, 0];
                header.extend(inner);
                header.extend(summed.then_some([0; 4]).into_iter().flatten());
                header.extend(key.then_some([0, 0, 0, 7]).into_iter().flatten());
                header
            }
            Around::GreTap => vec![0, 0, 0x65, 0x58],
            Around::Ip => Vec::new(),
        }
    }
    fn number(&self) -> u8 {
        match self.around {
            Around::Vxlan | Around::Geneve => protocol::UDP,
            Around::Ip if self.inner.v6 => 41,
            Around::Ip => 4,
            _ => 47,
        }
    }
    fn outer_len(&self) -> usize {
        14 + if self.outer_v6 { 40 } else { 20 }
    }
    /// The place where the inner frame, or the inner IP header, begins.
    fn inner_at(&self) -> usize {
        self.outer_len() + self.header(0).len()
    }
    /// The place where the inner frame would begin if the inner IP header had a link header.
    fn shift(&self) -> usize {
        self.inner_at() - if self.carries_ethernet() { 0 } else { self.inner.network() }
    }
    fn packet(&self, pool: &Pool) -> Packet {
        let inner = self.inner.packet(pool);
        let inner_bytes =
            if self.carries_ethernet() { inner.data() } else { &inner.data()[self.inner.network()..] };
        let tunnel = self.header(inner_bytes.len());
        let payload = tunnel.len() + inner_bytes.len();
        let (source, destination) = self.ends();
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [a, b] = ((20 + payload) as u16).to_be_bytes();
                let [c, d] = OUTER_ID.to_be_bytes();
                let mut ip = [0x45, 0, a, b, c, d, 0, 0, 64, self.number(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::internet(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let [a, b] = (payload as u16).to_be_bytes();
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, a, b, self.number(), 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => unreachable!(),
        }
        frame.extend(&tunnel);
        frame.extend(inner_bytes);
        if self.is_in_udp() && self.summed {
            // As Linux leaves it to a device that cuts: the sum of the pseudo-header.
            let sum =
                checksum::Sum::ZERO.add_pseudo(source, destination, protocol::UDP, payload as u32).fold();
            let at = self.outer_len() + 6;
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut packet = pool.packet(&frame).unwrap();
        let offload = inner.offload();
        let checksum_start = offload.checksum_start + self.shift() as u16;
        packet.set_offload(Offload { checksum_start, ..offload });
        packet
    }

    /// Checks the outer headers; answers the inner packet as a frame.
    fn check_outer(&self, frame: &[u8], index: usize) -> Vec<u8> {
        let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let at = self.outer_len();
        let (source, destination) = self.ends();
        if self.outer_v6 {
            assert_eq!(usize::from(half(14 + 4)), frame.len() - at);
        } else {
            assert_eq!(usize::from(half(14 + 2)), frame.len() - 14);
            assert_eq!(half(14 + 4), OUTER_ID.wrapping_add(index as u16));
            assert_eq!(checksum::internet(&frame[14..34]), 0);
        }
        let header = self.header(frame.len() - self.inner_at());
        let mut found = frame[at..self.inner_at()].to_vec();
        if self.is_in_udp() {
            assert_eq!(half(at + 6) != 0, self.summed);
            if self.summed {
                let valid = checksum::is_valid(source, destination, protocol::UDP, &frame[at..]);
                assert_eq!(valid, Some(true));
            }
            found[6..8].fill(0);
        }
        if matches!(self.around, Around::Gre { summed: true, .. }) {
            assert_eq!(checksum::internet(&frame[at..]), 0);
            found[4..6].fill(0);
        }
        assert_eq!(found, header, "the tunnel's header is that of the whole");
        let link = self.inner.frame()[..self.inner.network()].to_vec();
        let link = if self.carries_ethernet() { Vec::new() } else { link };
        [&link, &frame[self.inner_at()..]].concat()
    }
}

fn tunnelled() -> impl Strategy<Value = Tunnelled> {
    (prop::sample::select(&ALL[..]), any::<[bool; 2]>(), sent()).prop_map(
        |(around, [outer_v6, summed], inner)| {
            let size = inner.size.min(1_350);
            // A tunnel in UDP over IPv6 has a checksum (RFC 8200, section 8.1).
            Tunnelled { around, outer_v6, summed: summed || outer_v6, inner: Sent { size, ..inner } }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Also for a port that cuts segments itself: a tunnel's segments cannot be described to it.
    #[test]
    fn segments_in_a_tunnel_are_whole_packets_of_it(tunnelled in tunnelled(), device_cuts in any::<bool>()) {
        let pool = pool();
        let limits =
            TransmitLimits { mtu: 1_500, checksum_offload: device_cuts, segmentation_offload: device_cuts };
        let (frames, totals) = through_limits(vec![tunnelled.packet(&pool)], &pool, 32, limits);
        let sent = &tunnelled.inner;
        let count = sent.payload.len().div_ceil(usize::from(sent.size)).max(1);
        prop_assert_eq!(frames.len(), count, "{:?}", totals.drops.iter().collect::<Vec<_>>());
        let mut bytes = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let inner = tunnelled.check_outer(frame, index);
            let offset = bytes.len();
            bytes.extend(check(sent, &inner, index, offset, index + 1 == count));
        }
        prop_assert_eq!(&bytes, &sent.payload);
        prop_assert_eq!(pool.available(), pool.capacity());
    }

    /// With any bytes of the tunnel, and any stated start of the inner checksum.
    #[test]
    fn tunnels_that_lie_are_refused(
        tunnelled in tunnelled(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
        start in prop_oneof![Just(None), (0..200u16).prop_map(Some)],
        keep in any::<prop::sample::Index>(),
    ) {
        let pool = pool();
        let mut packet = tunnelled.packet(&pool);
        for (at, value) in flips {
            let at = at.index(packet.len().min(160));
            packet.data_mut()[at] = value;
        }
        let offload = packet.offload();
        packet.set_offload(Offload { checksum_start: start.unwrap_or(offload.checksum_start), ..offload });
        let len = keep.index(packet.len()) + 1;
        packet.truncate(len);
        let (frames, totals) = through(vec![packet], &pool, 32);
        prop_assert_eq!(frames.len() as u64, totals.sent.packets);
        prop_assert_eq!(pool.available(), pool.capacity());
    }
}

/// Every segment would have the same sequence number.
///
/// All but one would be dropped as late (RFC 2890, section 2.2).
#[test]
fn a_numbered_tunnel_is_not_cut() {
    let pool = pool();
    let around = Around::Gre { key: true, summed: false };
    let tunnelled = Tunnelled { around, outer_v6: false, summed: false, inner: large(1_000) };
    let mut packet = tunnelled.packet(&pool);
    // The key's bit becomes that of the sequence number.
    packet.data_mut()[tunnelled.outer_len()] = 0x10;
    let (frames, totals) = through(vec![packet], &pool, 32);
    assert!(frames.is_empty());
    assert_eq!(totals.drops.of(DropReason::NoOffload).packets, 1);
}
