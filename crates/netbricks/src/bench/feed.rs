//! The traffic of benchmarks: the C yardstick's frames and its trace of 65,536 flows.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use netbricks_buffer::Packet;
use netbricks_core::tables::Address;

/// Flows of the trace.
pub(super) const FLOWS: usize = 65_536;
/// Packets of the trace.
pub(super) const TRACE: usize = FLOWS * 10;
/// Bytes of a frame, without FCS.
pub(super) const FRAME: usize = 64;

/// The yardstick's random numbers (xorshift64*).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(2_685_821_657_736_338_717)
    }
}

/// The flows, and which of them each packet of the trace belongs to.
pub(super) struct Trace {
    flows: Vec<[u8; 12]>,
    packets: Vec<u32>,
}

impl Trace {
    /// Makes flows as the yardstick does: sources in 10.0.0.0/8, everything else at random.
    pub(super) fn new() -> Self {
        let mut random = Random(88_172_645_463_325_252);
        let flows = (0..FLOWS)
            .map(|_| {
                let mut tuple = [0; 12];
                let source = 0x0a00_0000 | random.next() as u32 & 0xff_ffff;
                tuple[..4].copy_from_slice(&source.to_be_bytes());
                tuple[4..8].copy_from_slice(&(random.next() as u32).to_ne_bytes());
                tuple[8..10].copy_from_slice(&(random.next() as u16).to_ne_bytes());
                tuple[10..].copy_from_slice(&(random.next() as u16).to_ne_bytes());
                tuple
            })
            .collect();
        let packets = (0..TRACE).map(|_| (random.next() % FLOWS as u64) as u32).collect();
        Self { flows, packets }
    }

    /// One tuple a packet: addresses and ports as they stand in the frame.
    pub(super) fn tuples(&self) -> Vec<[u8; 12]> {
        self.packets.iter().map(|flow| self.flows[*flow as usize]).collect()
    }

    /// The flow of each packet.
    pub(super) fn packets(&self) -> impl Iterator<Item = usize> {
        self.packets.iter().map(|flow| *flow as usize)
    }

    /// A flow's addresses and ports.
    pub(super) fn flow(&self, number: usize) -> [u8; 12] {
        self.flows[number]
    }

    /// As [`tuples`](Self::tuples), but each packet has its own random destination.
    pub(super) fn scattered(&self) -> Vec<[u8; 12]> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut tuples = self.tuples();
        for tuple in &mut tuples {
            tuple[4..8].copy_from_slice(&(random.next() as u32).to_ne_bytes());
        }
        tuples
    }

    /// As [`tuples`](Self::tuples), with destinations in 20.0.0.0 to 83.255.255.255, to which hosts can send.
    pub(super) fn outside(&self) -> Vec<[u8; 12]> {
        let mut tuples = self.tuples();
        for tuple in &mut tuples {
            tuple[4] = 20 + (tuple[4] & 0x3f);
        }
        tuples
    }

    /// The number of flows that occur.
    pub(super) fn distinct(&self) -> usize {
        let mut tuples = self.tuples();
        tuples.sort_unstable();
        tuples.dedup();
        tuples.len()
    }

    /// The frame of packet `number`: Ethernet, IPv4 with TTL 255, UDP, 22 bytes.
    pub(super) fn frame(&self, number: usize) -> [u8; FRAME] {
        let mut frame = [0; FRAME];
        frame[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15]);
        frame[12] = 8;
        frame[14] = 0x45;
        frame[17] = (FRAME - 14) as u8;
        frame[22] = 255;
        frame[23] = 17;
        frame[39] = (FRAME - 34) as u8;
        frame[FLOW].copy_from_slice(&self.flows[number % FLOWS]);
        let checksum = netbricks_packet::checksum::internet(&frame[14..34]);
        frame[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// Writes [`frame`](Self::frame) into a packet.
    pub(super) fn write(&self, number: usize, packet: &mut Packet) {
        if packet.len() == FRAME {
            packet.data_mut().copy_from_slice(&self.frame(number));
        }
    }
}

/// Place of the flow's addresses and ports in a frame.
pub(super) const FLOW: Range<usize> = 26..38;
/// The outside addresses of a NAT, and the first of them as a number.
pub(super) const OUTSIDE: &str = "198.18.0.0/26";
pub(super) const FIRST_OUTSIDE: u32 = 0xc612_0000;
/// Place of the UDP checksum in a frame.
pub(super) const UDP_CHECKSUM: Range<usize> = 40..42;
/// Place of the IPv4 checksum in a frame.
pub(super) const CHECKSUM: Range<usize> = 24..26;
/// Place of the destination in an IPv6 frame.
pub(super) const DESTINATION6: Range<usize> = 38..54;

/// So many rules as the yardstick makes them: by source, destination, destination port and protocol; the last allows all.
///
/// No flow of the trace has a source of theirs, so that each packet is compared with all rules.
pub(super) fn acl(rules: usize) -> Vec<String> {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut lines = vec!["tracking off".to_owned()];
    for _ in 1..rules {
        let length = 16 + (random.next() % 17) as u32;
        let source = Ipv4Addr::from_bits(0xc000_0000 | random.next() as u32 & 0x1fff_ffff);
        let source = source.truncated(length as u8);
        let destination = Ipv4Addr::from_bits(random.next() as u32).truncated(24);
        let port = random.next() % 1_000;
        let protocol = if random.next() & 1 == 1 { "udp" } else { "tcp" };
        let action = if random.next() & 1 == 1 { "allow" } else { "deny" };
        lines.push(format!(
            "{action} {protocol} from {source}/{length} to {destination}/24 port {port}-{}",
            port + 100
        ));
    }
    lines.push("allow".to_owned());
    lines
}

/// IPv6 destinations, one for each packet, out of 65,536 that lie in the routes of [`routes6`].
pub(super) fn destinations6() -> Vec<[u8; 16]> {
    let mut random = Random(0x6a09_e667_f3bc_c909);
    let prefixes: Vec<(Ipv6Addr, u8)> = prefixes6().into_keys().collect();
    let destinations: Vec<[u8; 16]> = (0..FLOWS)
        .map(|_| {
            let (prefix, len) = prefixes[random.next() as usize % prefixes.len()];
            let rest = u128::from(random.next()) << 64 | u128::from(random.next());
            let rest = rest & u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
            (prefix.to_bits() | rest).to_be_bytes()
        })
        .collect();
    (0..TRACE).map(|_| destinations[random.next() as usize % FLOWS]).collect()
}

/// The frame that IPv6 destinations are written into: Ethernet, IPv6 with hop limit 255, UDP, 2 bytes.
pub(super) fn frame6() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x86, 0xdd]);
    frame[14] = 0x60;
    frame[19] = (FRAME - 54) as u8;
    frame[20] = 17;
    frame[21] = 255;
    frame[22] = 0x20;
    frame[59] = (FRAME - 54) as u8;
    frame
}

/// Writes [`frame6`] into a packet.
pub(super) fn write6(packet: &mut Packet) {
    if packet.len() == FRAME {
        packet.data_mut().copy_from_slice(&frame6());
    }
}

/// Prefixes with lengths as in the Internet's table: nearly half /48, most others /32 to /47, few shorter.
///
/// They lie in some 2,000 allocations out of the registries' ranges.
fn prefixes6() -> BTreeMap<(Ipv6Addr, u8), u64> {
    let mut random = Random(0x3c6e_f372_fe94_f82b);
    let mut prefixes = BTreeMap::new();
    while prefixes.len() < 16_000 {
        let len = match random.next() % 20 {
            0..9 => 48,
            9 => 20 + (random.next() % 12) as u8,
            _ => 32 + (random.next() % 16) as u8,
        };
        let registry = [0x2001u64, 0x2400, 0x2600, 0x2800, 0x2a00, 0x2c0f][random.next() as usize % 6];
        let allocation = random.next() % 340 * 0xc1;
        let bits = u128::from(registry << 48 | allocation << 32 | random.next() >> 32) << 64;
        prefixes.insert((Ipv6Addr::from_bits(bits).truncated(len), len), 1 + random.next() % 200);
    }
    prefixes
}

/// 16,000 IPv6 routes.
pub(super) fn routes6() -> Vec<String> {
    prefixes6().into_iter().map(|((prefix, len), next_hop)| format!("{prefix}/{len} {next_hop}")).collect()
}

/// 100 backends, as the yardstick has them.
pub(super) fn backends() -> Vec<String> {
    (0..100).map(|number| format!("web-{number} 02:00:00:00:01:{number:02x}")).collect()
}

/// 16,000 routes as the yardstick draws them, and a next hop for all other addresses.
///
/// Lengths are 8 to 32, few of them below 16.
pub(super) fn routes() -> Vec<String> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut routes =
        BTreeMap::from([((Ipv4Addr::from_bits(0), 1), 7), ((Ipv4Addr::from_bits(1 << 31), 1), 8)]);
    while routes.len() < 16_002 {
        let len = 8 + (random.next() % 25) as u8;
        if len < 16 && !random.next().is_multiple_of(8) {
            continue;
        }
        let prefix = Ipv4Addr::from_bits(random.next() as u32).truncated(len);
        routes.insert((prefix, len), 1 + random.next() % 200);
    }
    routes.into_iter().map(|((prefix, len), next_hop)| format!("{prefix}/{len} {next_hop}")).collect()
}

/// The IPv4 and IPv6 routes of a full table; tests make do with a tenth.
const FULL: (usize, usize) = if cfg!(test) { (100_000, 20_000) } else { (1_000_000, 200_000) };
/// The bytes of a frame that a router changes or looks at: link header, IPv4 header and ports.
pub(super) const HEADERS: usize = 38;
/// The MAC address of the measured router.
pub(super) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Trace {
    /// The headers of each packet for a router, with addresses that it forwards.
    pub(super) fn routed(&self) -> Vec<[u8; HEADERS]> {
        let headers = |flow: [u8; 12]| {
            let mut frame = self.frame(0);
            frame[..6].copy_from_slice(&ROUTER);
            frame[FLOW].copy_from_slice(&forwarded(flow));
            frame[CHECKSUM].fill(0);
            let checksum = netbricks_packet::checksum::internet(&frame[14..34]);
            frame[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
            let mut headers = [0; HEADERS];
            headers.copy_from_slice(&frame[..HEADERS]);
            headers
        };
        self.tuples().into_iter().map(headers).collect()
    }

    /// 1,000,000 IPv4 routes, in which each destination has a /24 of its own, and 200,000 of IPv6.
    ///
    /// Lengths are as in the Internet's table: three of five /24, most others /19 to /23. They have 200 next
    /// hops.
    pub(super) fn full_table(&self) -> Vec<String> {
        let mut random = Random(0xbb67_ae85_84ca_a73b);
        let mut v4 = BTreeMap::new();
        for flow in &self.flows {
            let [_, _, _, _, a, b, c, ..] = forwarded(*flow);
            v4.insert((Ipv4Addr::new(a, b, c, 0), 24), 2 + random.next() % 200);
        }
        while v4.len() < FULL.0 {
            let len = match random.next() % 20 {
                0..12 => 24,
                12..19 => 19 + (random.next() % 5) as u8,
                _ => 12 + (random.next() % 7) as u8,
            };
            let first = 1 + (random.next() % 222) as u32;
            let prefix = Ipv4Addr::from_bits(first << 24 | random.next() as u32 >> 8).truncated(len);
            let is_other = !prefix.is_loopback() && prefix.octets()[..3] != [192, 0, 2];
            if is_other && !prefix.is_link_local() {
                v4.insert((prefix, len), 2 + random.next() % 200);
            }
        }
        let mut v6 = BTreeMap::new();
        while v6.len() < FULL.1 {
            let len = if random.next().is_multiple_of(2) { 48 } else { 32 + (random.next() % 16) as u8 };
            let bits = u128::from(0x2000 << 48 | random.next() >> 3) << 64;
            v6.insert((Ipv6Addr::from_bits(bits).truncated(len), len), 2 + random.next() % 200);
        }
        let v4 = v4.into_iter().map(|((prefix, len), hop)| format!("{prefix}/{len} via 192.0.2.{hop}"));
        v4.chain(v6.into_iter().map(|((prefix, len), hop)| format!("{prefix}/{len} via 192.0.2.{hop}")))
            .collect()
    }
}

/// A flow's addresses and ports, with addresses that a router forwards.
fn forwarded(flow: [u8; 12]) -> [u8; 12] {
    let mut forwarded = flow;
    forwarded[0] = 10;
    forwarded[4] = 1 + flow[4] % 99;
    forwarded
}
