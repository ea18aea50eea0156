//! The traffic of the figures: routes, flows and frames, which follow from fixed seeds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::sync::Arc;

use netbricks::packet::checksum;
use netbricks::tables::HugeArray;
use netbricks_buffer::Packet;

/// Bytes of a frame, without its FCS: the smallest of Ethernet.
pub(crate) const FRAME: usize = 60;
/// Flows of the traffic.
const FLOWS: usize = 65_536;
/// Packets until the traffic repeats.
const TRACE: usize = 10 * FLOWS;

/// Numbers that look random (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(2_685_821_657_736_338_717)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A route: its prefix, its length and its next hop, 1 to 127.
pub(crate) type Route = (Ipv4Addr, u8, u8);

/// So many routes, shortest first: most of 16 to 24 bits, one in twenty longer.
pub(crate) fn routes(count: usize) -> Vec<Route> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut known = BTreeSet::new();
    while known.len() < count {
        let length = match random.below(20) {
            0 => 25 + random.below(8) as u8,
            1..9 => 24,
            _ => 16 + random.below(8) as u8,
        };
        let address = Ipv4Addr::from_bits((20 << 24) + (random.next() as u32) % (160 << 24));
        let network = Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - u32::from(length))));
        known.insert((length, network));
    }
    known.into_iter().map(|(length, network)| (network, length, 1 + random.below(127) as u8)).collect()
}

/// Routes as the module in C reads them, a line each.
pub(crate) fn lines(routes: &[Route]) -> String {
    let mut text = String::new();
    for (network, length, hop) in routes {
        // Writing into text never fails.
        let _ = writeln!(text, "{network}/{length} {hop}");
    }
    text
}

/// Addresses and ports of the packets of a trace, on huge pages, for several sources.
#[derive(Clone)]
pub(crate) struct Tuples(Arc<HugeArray<[u8; 12]>>);

impl Deref for Tuples {
    type Target = [[u8; 12]];
    fn deref(&self) -> &[[u8; 12]] {
        &self.0
    }
}

/// The traffic: sources in 10.0.0.0/8, destinations in the routes, 65,536 flows in a random order.
pub(crate) fn tuples(routes: &[Route]) -> Result<Tuples, String> {
    let mut random = Random(88_172_645_463_325_252);
    let flow = |random: &mut Random| {
        let mut tuple = [0; 12];
        let source = 0x0a00_0000 | random.next() as u32 & 0xff_ffff;
        tuple[..4].copy_from_slice(&source.to_be_bytes());
        let (network, length, _) = routes[random.below(routes.len())];
        let host = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        let destination = network.to_bits() | (random.next() as u32 & host);
        tuple[4..8].copy_from_slice(&destination.to_be_bytes());
        tuple[8..].copy_from_slice(&(random.next() as u32).to_be_bytes());
        tuple
    };
    let flows: Vec<[u8; 12]> = (0..FLOWS).map(|_| flow(&mut random)).collect();
    let mut held = HugeArray::zeroed(TRACE).map_err(|error| error.to_string())?;
    for tuple in held.iter_mut() {
        *tuple = flows[random.below(FLOWS)];
    }
    Ok(Tuples(Arc::new(held)))
}

/// A frame of Ethernet, IPv4 with TTL 255, UDP and 18 bytes.
pub(crate) fn frame() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15]);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[17] = (FRAME - 14) as u8;
    frame[22] = 255;
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[39] = (FRAME - 34) as u8;
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Writes [`frame`] into a packet.
pub(crate) fn write(packet: &mut Packet) {
    if packet.len() == FRAME {
        packet.data_mut().copy_from_slice(&frame());
    }
}
