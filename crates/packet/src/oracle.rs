//! The yardstick of the parsers: seeded random packets made byte by byte, and RFC 1071's checksum.

extern crate std;
use std::vec::Vec;

use crate::protocol;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word() as u8).collect()
    }
    /// Bytes that hit carries and zeros more often than chance.
    pub(crate) fn edgy(&mut self, count: usize) -> Vec<u8> {
        let mode = self.below(4);
        (0..count)
            .map(|_| match mode {
                0 => 0,
                1 => 0xff,
                2 => [0, 0xff][self.below(2)],
                _ => self.word() as u8,
            })
            .collect()
    }
    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// RFC 1071, section 4.1, word by word.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The contents of a random IP packet.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) v6: bool,
    /// Where the transport header begins.
    pub(crate) transport: usize,
    pub(crate) protocol: u8,
    /// Where a routing header or source route holds the destination that the checksum covers.
    pub(crate) final_at: Option<usize>,
    /// Where a home address option holds the source that the checksum covers.
    pub(crate) home_at: Option<usize>,
    pub(crate) extensions: usize,
}

impl Sample {
    /// Computes every checksum again by its RFC, without the crate's own arithmetic.
    pub(crate) fn refresh(&mut self) {
        if !self.v6 {
            self.bytes[10..12].fill(0);
            let sum = checksum(&self.bytes[..self.transport]);
            self.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let at = match self.protocol {
            protocol::TCP => 16,
            protocol::UDP => 6,
            _ => 2,
        } + self.transport;
        if self.protocol == protocol::UDP && self.bytes[at..at + 2] == [0, 0] {
            return;
        }
        self.bytes[at..at + 2].fill(0);
        let segment = &self.bytes[self.transport..];
        let mut covered = Vec::new();
        if self.protocol != protocol::ICMP {
            let (source, destination, size) = if self.v6 { (8, 24, 16) } else { (12, 16, 4) };
            for at in [self.home_at.unwrap_or(source), self.final_at.unwrap_or(destination)] {
                covered.extend_from_slice(&self.bytes[at..at + size]);
            }
            covered.extend_from_slice(&(segment.len() as u32).to_be_bytes());
            covered.extend_from_slice(&[0, 0, 0, self.protocol]);
        }
        covered.extend_from_slice(segment);
        let sum = match checksum(&covered) {
            0 if self.protocol == protocol::UDP => 0xffff,
            sum => sum,
        };
        self.bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A random, well-formed, unfragmented IP packet with options or extension headers.
pub(crate) fn packet(random: &mut Random) -> Sample {
    let v6 = random.chance(2);
    let protocol =
        [protocol::TCP, protocol::UDP, if v6 { protocol::ICMPV6 } else { protocol::ICMP }][random.below(3)];
    let mut segment = match protocol {
        protocol::TCP => {
            let words = random.below(11);
            let mut header = random.edgy(20);
            header[12] = ((5 + words) as u8) << 4;
            header.extend(tcp_options(random, words * 4));
            header
        }
        _ => random.edgy(8),
    };
    if matches!(protocol, protocol::ICMP | protocol::ICMPV6) {
        segment[0] = if v6 { 128 } else { 8 };
    }
    let payload = random.below(80);
    segment.extend(random.edgy(payload));
    if protocol == protocol::UDP {
        let length = segment.len() as u16;
        segment[4..6].copy_from_slice(&length.to_be_bytes());
        // Not "no checksum", except sometimes in IPv4.
        if v6 || !random.chance(4) {
            segment[6..8].fill(0xff);
        } else {
            segment[6..8].fill(0);
        }
    }
    let mut sample = if v6 {
        v6_header(random, protocol, segment.len())
    } else {
        v4_header(random, protocol, segment.len())
    };
    sample.bytes.extend(segment);
    sample.refresh();
    sample
}

fn v4_header(random: &mut Random, protocol: u8, payload: usize) -> Sample {
    let words = random.below(11);
    let mut bytes = random.edgy(20);
    bytes[0] = 0x45 + words as u8;
    bytes[2..4].copy_from_slice(&((20 + words * 4 + payload) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&[0x40, 0]);
    bytes[9] = protocol;
    // Options: record route over all of it, a source route behind one NOP, or NOPs.
    let mut options = std::vec![1; words * 4];
    let mut final_at = None;
    if words > 0 && random.chance(3) {
        options[0] = 7;
        options[1] = (words * 4) as u8;
    } else if words > 1 && random.chance(2) {
        // RFC 791, section 3.1: the pointer counts from 1. Beyond the length, it means that the route is
        // completed.
        let visited = random.below(words);
        options[1] = [131, 137][random.below(2)];
        options[2] = (words * 4 - 1) as u8;
        options[3] = (4 + 4 * visited) as u8;
        let addresses = random.edgy(words * 4 - 4);
        options[4..].copy_from_slice(&addresses);
        final_at = (visited < words - 1).then_some(20 + words * 4 - 4);
    }
    bytes.extend(options);
    Sample { transport: bytes.len(), bytes, v6: false, protocol, final_at, home_at: None, extensions: 0 }
}

fn v6_header(random: &mut Random, protocol: u8, payload: usize) -> Sample {
    let mut bytes = random.edgy(40);
    bytes[0] = 0x60 | bytes[0] & 15;
    let (mut announcer, extensions) = (6, random.below(5));
    let (mut final_at, mut home_at) = (None, None);
    for i in 0..extensions {
        let kind = match random.below(5) {
            0 if i == 0 => protocol::HOP_BY_HOP,
            1 if i == 0 => protocol::ROUTING,
            2 => protocol::FRAGMENT,
            3 => protocol::MOBILITY,
            _ => protocol::DESTINATION_OPTIONS,
        };
        bytes[announcer] = kind;
        announcer = bytes.len();
        match kind {
            // Offset 0 and no more fragments: an atomic fragment (RFC 6946).
            protocol::FRAGMENT => bytes.extend([0, 0, 0, 0, 1, 2, 3, 4]),
            protocol::ROUTING => {
                final_at = routing_header(random, &mut bytes);
            }
            protocol::DESTINATION_OPTIONS if random.chance(3) => {
                // RFC 6275, section 6.3: behind padding, at a multiple of 8, less 2.
                bytes.extend([0, 2, 1, 2, 0, 0, 201, 16]);
                home_at = home_at.or(Some(bytes.len()));
                bytes.extend(random.edgy(16));
            }
            _ => {
                let words = random.below(4);
                bytes.extend([0, words as u8]);
                // One padding option over all of it (RFC 8200, section 4.2).
                bytes.extend([1, (words * 8 + 4) as u8]);
                bytes.extend(std::vec![0; words * 8 + 4]);
            }
        }
    }
    bytes[announcer] = protocol;
    let length = (bytes.len() - 40 + payload) as u16;
    bytes[4..6].copy_from_slice(&length.to_be_bytes());
    Sample { transport: bytes.len(), bytes, v6: true, protocol, final_at, home_at, extensions }
}

/// Appends a routing header of type 0, 2 or 4.
///
/// Answers where it holds the final destination, if it has segments left.
fn routing_header(random: &mut Random, bytes: &mut Vec<u8>) -> Option<usize> {
    let kind = [0, 2, 4][random.below(3)];
    let count = if kind == 2 { 1 } else { 1 + random.below(3) };
    let left = random.below(count + 1) as u8;
    let last_entry = if kind == 4 { count as u8 - 1 } else { 0 };
    bytes.extend([0, 2 * count as u8, kind, left, last_entry, 0, 0, 0]);
    let list = bytes.len();
    bytes.extend(random.edgy(16 * count));
    // RFC 8754 lists the last segment first, RFC 2460 last.
    (left > 0).then_some(if kind == 0 { list + 16 * (count - 1) } else { list })
}

/// Well-formed TCP options of `size` bytes.
pub(crate) fn tcp_options(random: &mut Random, size: usize) -> Vec<u8> {
    let mut options = Vec::new();
    while options.len() < size {
        let rest = size - options.len();
        match random.below(4) {
            0 if rest >= 4 => {
                options.extend([2, 4]);
                options.extend(random.bytes(2));
            }
            1 if rest >= 10 => {
                options.extend([8, 10]);
                options.extend(random.bytes(8));
            }
            2 if rest >= 3 => options.extend([3, 3, 7]),
            _ => options.push(1),
        }
    }
    options
}

/// Changes a few random bytes, or cuts the end off.
pub(crate) fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] = [0, 0xff, bytes[at] ^ 1 << random.below(8), random.word() as u8][random.below(4)];
        }
    }
    if random.chance(3) {
        let length = random.below(bytes.len() + 1);
        bytes.truncate(length);
    }
}
