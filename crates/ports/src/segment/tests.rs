mod arrivals;
mod tunnels;

use std::collections::VecDeque;
use std::net::IpAddr;

use netbricks_core::{DropReason, Turn};
use netbricks_packet::build::ethernet;
use netbricks_packet::checksum;
use proptest::prelude::*;

use super::*;
use crate::memory::Memory;
use crate::testing::*;
use crate::{ReceiveNode, TransmitLimits, TransmitNode};

/// A packet that a sender leaves to the device: its checksum field holds the pseudo-header's sum.
#[derive(Clone, Debug)]
struct Sent {
    v6: bool,
    tcp: bool,
    flags: u8,
    sequence: u32,
    identification: u16,
    size: u16,
    payload: Vec<u8>,
    vlan: bool,
}

macro_rules! tcp {
    ($sent:expr, $ip:expr) => {
        $ip.tcp(1, 2).sequence($sent.sequence).ack(9).flags($sent.flags).payload(&$sent.payload).build()
    };
}

impl Sent {
    fn ends(&self) -> (IpAddr, IpAddr) {
        if self.v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            ("10.1.2.3".parse().unwrap(), "10.4.5.6".parse().unwrap())
        }
    }
    fn network(&self) -> usize {
        if self.vlan { 18 } else { 14 }
    }
    fn transport(&self) -> usize {
        self.network() + if self.v6 { 40 } else { 20 }
    }
    fn frame(&self) -> Vec<u8> {
        let (source, destination) = self.ends();
        let built = match (source, destination, self.tcp) {
            (IpAddr::V6(source), IpAddr::V6(destination), true) => {
                tcp!(self, ethernet().ipv6(source, destination))
            }
            (IpAddr::V4(source), IpAddr::V4(destination), true) => {
                tcp!(self, ethernet().ipv4(source, destination))
            }
            (IpAddr::V6(source), IpAddr::V6(destination), false) => {
                ethernet().ipv6(source, destination).udp(1, 2).payload(&self.payload).build()
            }
            (IpAddr::V4(source), IpAddr::V4(destination), false) => {
                ethernet().ipv4(source, destination).udp(1, 2).payload(&self.payload).build()
            }
            _ => unreachable!(),
        };
        let mut frame = built.unwrap();
        if self.vlan {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        if !self.v6 {
            let at = self.network();
            frame[at + 4..at + 6].copy_from_slice(&self.identification.to_be_bytes());
            frame[at + 10..at + 12].fill(0);
            let sum = checksum::internet(&frame[at..at + 20]);
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }
    fn offload(&self) -> Offload {
        Offload {
            needs_checksum: true,
            gso: match (self.tcp, self.v6) {
                (false, _) => GsoKind::Udp,
                (true, false) => GsoKind::TcpV4,
                (true, true) => GsoKind::TcpV6,
            },
            gso_size: self.size,
            checksum_start: self.transport() as u16,
            checksum_offset: if self.tcp { 16 } else { 6 },
            ..Offload::default()
        }
    }
    fn packet(&self, pool: &Pool) -> Packet {
        let mut frame = self.frame();
        let (source, destination) = self.ends();
        let number = if self.tcp { protocol::TCP } else { protocol::UDP };
        let len = (frame.len() - self.transport()) as u32;
        let pseudo = checksum::Sum::ZERO.add_pseudo(source, destination, number, len).fold();
        let field = self.transport() + usize::from(self.offload().checksum_offset);
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        let mut packet = pool.packet(&frame).unwrap();
        packet.set_offload(self.offload());
        packet
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let payload = prop_oneof![0..3usize, 1..3_000usize, 3_000..12_000usize];
    (any::<[bool; 3]>(), any::<(u8, u32, u16)>(), prop_oneof![48..100u16, 500..1_461u16], payload).prop_map(
        |([v6, tcp, vlan], (flags, sequence, identification), size, len)| Sent {
            v6,
            tcp,
            flags,
            sequence,
            identification,
            size: if v6 { size.min(1_440) } else { size },
            payload: (0..len).map(|i| (i * 7 + i / 256) as u8).collect(),
            vlan,
        },
    )
}

/// Sends packets through a node whose port cuts nothing. Answers the output and the counts.
fn through(packets: Vec<Packet>, pool: &Pool, burst: usize) -> (Vec<Vec<u8>>, netbricks_core::Totals) {
    let limits = TransmitLimits { mtu: 1_500, checksum_offload: false, segmentation_offload: false };
    through_limits(packets, pool, burst, limits)
}

/// As [`through`], for a port with these limits.
fn through_limits(
    packets: Vec<Packet>,
    pool: &Pool,
    burst: usize,
    limits: TransmitLimits,
) -> (Vec<Vec<u8>>, netbricks_core::Totals) {
    let (mut from, near) = Memory::new("in", 1, 64, pool);
    let (mut to, far) = Memory::new("out", 1, 8_192, pool);
    packets.into_iter().for_each(|packet| near.push_packet(0, packet).unwrap());
    near.end();
    let queue = crate::Port::take_transmit(&mut to, 0).unwrap();
    let node = TransmitNode::new(queue, "memory", limits, Default::default());
    let mut builder = netbricks_core::GraphBuilder::new("test");
    let source = builder.add("in", Box::new(ReceiveNode::take(&mut from, 0, 0).unwrap())).unwrap();
    let sink = builder.add("out", Box::new(node)).unwrap();
    builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool.clone()).unwrap();
    graph.set_burst(burst);
    while graph.turn(0) != Turn::Done {
        assert!(graph.unbalanced().is_empty(), "{:?}", graph.totals());
    }
    (far.frames(0), finish(graph, 0))
}

/// Checks a segment by the RFCs, with no code of the cutter; answers its payload.
fn check(sent: &Sent, frame: &[u8], index: usize, offset: usize, is_last: bool) -> Vec<u8> {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (network, transport) = (sent.network(), sent.transport());
    assert!(frame.len() <= network + 1_500);
    assert_eq!(frame[..network], sent.frame()[..network]);
    if sent.v6 {
        assert_eq!(usize::from(half(network + 4)), frame.len() - network - 40);
    } else {
        assert_eq!(usize::from(half(network + 2)), frame.len() - network);
        assert_eq!(half(network + 4), sent.identification.wrapping_add(index as u16));
        assert_eq!(checksum::internet(&frame[network..transport]), 0);
    }
    let (source, destination) = sent.ends();
    let number = if sent.tcp { protocol::TCP } else { protocol::UDP };
    assert_eq!(checksum::is_valid(source, destination, number, &frame[transport..]), Some(true));
    let header = if sent.tcp {
        let sequence = u32::from_be_bytes(frame[transport + 4..transport + 8].try_into().unwrap());
        assert_eq!(sequence, sent.sequence.wrapping_add(offset as u32));
        let mut flags = sent.flags;
        if index > 0 {
            flags &= 0x7f;
        }
        if !is_last {
            flags &= !0x09;
        }
        assert_eq!(frame[transport + 13], flags, "segment {index}");
        20
    } else {
        assert_eq!(usize::from(half(transport + 4)), frame.len() - transport);
        8
    };
    frame[transport + header..].to_vec()
}

/// The checksum of each segment also covers the final destination and the home address.
#[test]
fn segments_on_a_source_route_have_right_checksums() {
    let home = [&[1, 2, 0, 0, 201, 16][..], &[9; 16]].concat();
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").option(131, &[4, 10, 0, 0, 7, 10, 0, 0, 8]);
    let payload = [7; 3_000];
    let frames = [
        (GsoKind::TcpV6, v6().routing(2, 1, &[8; 20]).tcp(1, 2).ack(9).payload(&payload).build().unwrap()),
        (GsoKind::TcpV6, v6().destination_options(&home).tcp(1, 2).ack(9).payload(&payload).build().unwrap()),
        (GsoKind::TcpV4, v4.tcp(1, 2).ack(9).payload(&payload).build().unwrap()),
        // An unknown type: no segment can get a checksum.
        (GsoKind::TcpV6, v6().routing(253, 1, &[8; 20]).tcp(1, 2).ack(9).payload(&payload).build().unwrap()),
    ];
    let pool = pool();
    let sent = frames.map(|(gso, frame)| {
        let mut packet = pool.packet(&frame).unwrap();
        packet.set_offload(Offload { gso, gso_size: 1_000, ..Offload::default() });
        packet
    });
    let (segments, totals) = through(sent.into(), &pool, 32);
    assert_eq!(segments.len(), 9);
    for segment in segments {
        let (ip, payload) = IpRef::split(&segment[14..]).unwrap();
        assert_eq!(ip.transport_checksum_is_valid(payload), Some(true));
    }
    assert_eq!(totals.drops.of(DropReason::NoOffload).packets, 1, "{totals:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Segments have the whole packet's bytes in order, each in a valid packet that fits.
    ///
    /// They leave between the packets before and after. All are counted.
    #[test]
    fn segments_are_the_packet(batch in prop::collection::vec(sent(), 1..6), burst in prop::sample::select(&BURSTS[..])) {
        let pool = pool();
        let packets = batch.iter().map(|sent| sent.packet(&pool)).collect();
        let (frames, totals) = through(packets, &pool, burst);
        let mut frames = VecDeque::from(frames);
        let (mut created, mut cut) = (0, 0);
        for sent in &batch {
            let count = sent.payload.len().div_ceil(usize::from(sent.size)).max(1);
            let mut bytes = Vec::new();
            for index in 0..count {
                let frame = frames.pop_front().unwrap();
                let offset = bytes.len();
                let payload = check(sent, &frame, index, offset, index + 1 == count);
                prop_assert!(index + 1 == count || payload.len() == usize::from(sent.size));
                bytes.extend(payload);
            }
            prop_assert_eq!(&bytes, &sent.payload);
            if count > 1 {
                created += count as u64;
                cut += 1;
            }
        }
        prop_assert!(frames.is_empty());
        prop_assert_eq!(totals.created.packets, created);
        prop_assert_eq!(totals.drops.of(DropReason::Segmented).packets, cut);
        prop_assert_eq!(totals.drops.total().packets, cut);
        prop_assert_eq!(pool.available(), pool.capacity());
    }

    /// With any offload and any bytes, nothing panics, and all packets are counted.
    #[test]
    fn offloads_that_lie_are_refused(
        sent in sent(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
        gso in prop::sample::select(vec![GsoKind::None, GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp]),
        words in any::<[u16; 3]>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let pool = pool();
        let mut packet = sent.packet(&pool);
        for (at, value) in flips {
            let at = at.index(packet.len().min(80));
            packet.data_mut()[at] = value;
        }
        let len = keep.index(packet.len()) + 1;
        packet.truncate(len);
        let [gso_size, checksum_start, checksum_offset] = words;
        packet.set_offload(Offload {
            needs_checksum: words[0] % 2 == 0, gso, gso_size: gso_size % 2_000, checksum_start: checksum_start % 100,
            checksum_offset: checksum_offset % 100, ..Offload::default()
        });
        let (frames, totals) = through(vec![packet], &pool, 32);
        prop_assert_eq!(frames.len() as u64, totals.sent.packets);
        prop_assert!(frames.iter().all(|frame| frame.len() <= 1_500 + 14 + 32));
        prop_assert_eq!(pool.available(), pool.capacity());
    }
}

fn large(size: u16) -> Sent {
    Sent {
        v6: false,
        tcp: true,
        flags: 0x18,
        sequence: u32::MAX - 5,
        identification: 0xffff,
        size,
        payload: vec![1; 12_000],
        vlan: false,
    }
}

#[test]
fn uncuttable_packets_are_no_offload_and_oversized_ones_too_big() {
    let pool = pool();
    // MOST_SEGMENTS allows 48 bytes; fewer only for shorter packets.
    let reason = |sent: Sent| {
        let (frames, totals) = through(vec![sent.packet(&pool)], &pool, 32);
        assert!(frames.is_empty());
        let (reason, count) = totals.drops.iter().next().unwrap();
        assert_eq!(count.packets, 1);
        reason
    };
    assert_eq!(reason(large(8)), DropReason::NoOffload);
    assert_eq!(reason(large(1_461)), DropReason::TooBig);
    let mut packet = large(1_000).packet(&pool);
    packet.data_mut()[14 + 6] = 0x20;
    let (_, totals) = through(vec![packet], &pool, 32);
    assert_eq!(totals.drops.of(DropReason::NoOffload).packets, 1, "a fragment");
}

#[test]
fn a_pool_without_room_for_all_segments_is_counted() {
    let pool = Pool::builder().frames(4).large(2, 16_384).build().unwrap();
    let (frames, totals) = through(vec![large(1_000).packet(&pool)], &pool, 32);
    assert!(frames.len() < 12, "{}", frames.len());
    assert_eq!(totals.drops.of(DropReason::PoolExhausted).packets, 1);
    assert_eq!(totals.created.packets, frames.len() as u64);
}
