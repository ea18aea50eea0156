//! The 5-tuple of a packet, its two directions, and keyed hashes of it.

use core::cmp::Ordering;
use core::fmt;
use core::hint::cold_path;
use core::net::{IpAddr, Ipv6Addr};

use crate::ip::{Ip, IpFacts, IpRef};
use crate::protocol;

/// Addresses, ports and protocol of a flow in one direction: equal if and only if all of it is.
///
/// An ICMP echo has its identifier in both ports. A later fragment has no ports: it has zeros there, and a
/// flag.
///
/// Keys are in the order of their [words](FlowKey::words). The internal form is five words of bytes as a
/// frame has them, the first byte lowest. So a key is read from a frame without any byte swap.
///
/// IPv4 needs two words: bytes 8 to 23 of a packet without options, without time to live and checksum. They
/// hold a zero byte, the protocol, flags, a zero byte, the addresses, the ports. The other words are 0. IPv6
/// has the addresses in the first four words. Its last word holds a zero byte, the protocol, flags, a zero
/// byte, and the ports, and is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey([u64; 5]);

const V6: u64 = 1 << 16;
const FRAGMENT: u64 = 2 << 16;
const MAPPED: u64 = 0xffff << 32;
/// A mask for IPv4's bytes 8 to 15.
///
/// A key has the protocol and the source of them (RFC 791, section 3.1).
const IN_KEY: u64 = 0xffff_ffff_0000_ff00;
/// The bits of IPv4's flags and fragment offset (RFC 791, section 3.1) that a later fragment has.
const LATER_FRAGMENT: u16 = 0x1fff;

/// The upper half of a word of bytes.
#[inline(always)]
const fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}
#[inline(always)]
const fn joined(lower: u32, upper: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}
/// An address in two words of bytes.
#[inline(always)]
const fn halves(address: u128) -> (u64, u64) {
    (((address >> 64) as u64).swap_bytes(), (address as u64).swap_bytes())
}

impl FlowKey {
    /// The key of these. Addresses of two versions, which no packet has, count as IPv6's.
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        source_port: u16,
        destination_port: u16,
        protocol: u8,
    ) -> Self {
        let ports = (u32::from(source_port) << 16 | u32::from(destination_port)).swap_bytes();
        let kind = u32::from(protocol) << 8;
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [source, destination] =
                    [source, destination].map(|address| address.to_bits().swap_bytes());
                Self::v4(joined(kind, source), joined(destination, ports))
            }
            _ => Self::v6(joined(kind, ports), bits(source), bits(destination)),
        }
    }

    #[inline(always)]
    pub(crate) const fn v4(first: u64, second: u64) -> Self {
        Self([first, second, 0, 0, 0])
    }
    #[inline(always)]
    const fn v6(last: u64, source: u128, destination: u128) -> Self {
        let ((a, b), (c, d)) = (halves(source), halves(destination));
        Self([a, b, c, d, last | V6])
    }

    /// The key that was [`packed`](Self::packed) so.
    #[inline(always)]
    pub const fn unpacked(packed: [u64; 5]) -> Self {
        Self(packed)
    }
    /// The internal words, for tables: their hashes leave out the words that are 0 with IPv4.
    ///
    /// The last word tells the versions apart.
    #[inline(always)]
    pub const fn packed(&self) -> [u64; 5] {
        self.0
    }

    /// The key with these words, as [`words`](Self::words) gave them.
    ///
    /// If no key has these words, some of their bits are ignored.
    #[inline(always)]
    pub const fn from_words([a, b, c, d, last]: [u64; 5]) -> Self {
        let kind = (last >> 24 & 0xff) << 8 | last & (V6 | FRAGMENT);
        let ports = upper(last).swap_bytes();
        if last & V6 == 0 {
            let (source, destination) = ((b as u32).swap_bytes(), (d as u32).swap_bytes());
            Self::v4(joined(kind as u32, source), joined(destination, ports))
        } else {
            let last = joined(kind as u32, ports);
            Self([a.swap_bytes(), b.swap_bytes(), c.swap_bytes(), d.swap_bytes(), last])
        }
    }
    /// As [`from_words`](Self::from_words); `None` if no key has these words, as words from outside may be.
    pub fn try_from_words(words: [u64; 5]) -> Option<Self> {
        let key = Self::from_words(words);
        (key.words() == words).then_some(key)
    }

    /// The key of a packet with header `ip`. `payload` has the bytes from there to the packet's end.
    #[inline]
    pub fn of(ip: IpRef<'_>, payload: &[u8]) -> Self {
        match ip {
            IpRef::V4(header) => {
                let (kind, ports) = kind_and_ports(header.protocol(), header.is_later_fragment(), payload);
                let [source, destination] =
                    [header.source(), header.destination()].map(|address| address.to_bits().swap_bytes());
                Self::v4(joined(kind, source), joined(destination, ports))
            }
            IpRef::V6(header) => {
                let (kind, ports) = kind_and_ports(header.protocol(), header.is_later_fragment(), payload);
                Self::v6(joined(kind, ports), header.source().to_bits(), header.destination().to_bits())
            }
        }
    }

    /// The key of the IP packet in `frame`, as a parse found it.
    ///
    /// Its header, of which `facts` are known, takes the bytes `at..end`, and its payload ends at `limit`.
    ///
    /// Most packets are IPv4 without options and with ports. The code for them is small enough to be inlined
    /// into every loop that needs a key; other packets cost a call.
    ///
    /// # Panics
    /// When no such header lies there; one that a parse of this frame found always does.
    #[inline(always)]
    pub fn at(frame: &[u8], at: usize, end: usize, limit: usize, facts: IpFacts) -> Self {
        if let Some(key) = Self::plain_at::<LATER_FRAGMENT>(frame, at, end, limit, facts) {
            return key;
        }
        match facts {
            IpFacts::V4 => {
                let (first, second) = Self::v4_at_any(frame, at, end, limit);
                Self::v4(first, second)
            }
            IpFacts::V6(_) => Self::at_any(frame, at, end, limit, facts),
        }
    }

    /// As [`at`](Self::at), if the packet is IPv6 with ports directly behind its fixed header.
    #[inline(always)]
    pub(crate) fn plain_v6_at(
        frame: &[u8],
        at: usize,
        end: usize,
        limit: usize,
        facts: IpFacts,
    ) -> Option<Self> {
        const FIXED: usize = 40;
        if let IpFacts::V6(facts) = facts
            && end == at + FIXED
            && limit >= end + 4
            && let Some(bytes) = frame.get(at..end + 4).and_then(<[u8]>::first_chunk::<{ FIXED + 4 }>)
            && protocol::has_ports(facts.protocol())
        {
            let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let kind = u32::from(facts.protocol()) << 8;
            // The last word ends with the ports.
            let last = word(FIXED - 4) & !u64::from(u32::MAX) | u64::from(kind) | V6;
            return Some(Self([word(8), word(16), word(24), word(32), last]));
        }
        None
    }

    /// As [`at`](Self::at), if the packet is IPv4 without options and with ports.
    ///
    /// It then has none of the bits of `FRAGMENT` in its flags and fragment offset.
    #[inline(always)]
    pub(crate) fn plain_at<const FRAGMENT: u16>(
        frame: &[u8],
        at: usize,
        end: usize,
        limit: usize,
        facts: IpFacts,
    ) -> Option<Self> {
        const FIXED: usize = 20;
        if matches!(facts, IpFacts::V4)
            && end == at + FIXED
            && limit >= end + 4
            && let Some(bytes) = frame.get(at..end + 4).and_then(<[u8]>::first_chunk::<{ FIXED + 4 }>)
            && protocol::has_ports(bytes[9])
            // Both bytes at once, in the machine's byte order.
            && let Some(fragment) = bytes[6..].first_chunk()
            && u16::from_ne_bytes(*fragment) & FRAGMENT.to_be() == 0
        {
            let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            return Some(Self::v4(word(8) & IN_KEY, word(16)));
        }
        cold_path();
        None
    }

    /// The words of an IPv4 flow's key that are not 0.
    ///
    /// A rare packet is a call, which answers only these words. So the compiler knows that the others are 0,
    /// and the usual packet's key stays in registers.
    #[inline(always)]
    pub(crate) fn v4_words(self) -> (u64, u64) {
        debug_assert!(!self.is_v6());
        (self.0[0], self.0[1])
    }
    #[inline(never)]
    fn v4_at_any(frame: &[u8], at: usize, end: usize, limit: usize) -> (u64, u64) {
        let (header, payload) = Ip::found_at(frame, at, end, limit, IpFacts::V4);
        Self::of(header, payload).v4_words()
    }

    #[inline(never)]
    fn at_any(frame: &[u8], at: usize, end: usize, limit: usize, facts: IpFacts) -> Self {
        Self::plain_v6_at(frame, at, end, limit, facts).unwrap_or_else(|| {
            let (header, payload) = Ip::found_at(frame, at, end, limit, facts);
            Self::of(header, payload)
        })
    }

    /// The key of an Ethernet frame, behind any VLAN tags, MPLS labels or PPPoE session.
    ///
    /// `None` if it holds no well-formed IP packet.
    #[inline]
    pub fn from_frame(frame: &[u8]) -> Option<Self> {
        let (header, payload) = Ip::in_frame(frame)?;
        Some(Self::of(header, payload))
    }

    /// As [`from_frame`](Self::from_frame), for whole IPv4 packets without options that have ports, directly behind Ethernet.
    ///
    /// `None` for all other frames. This takes few instructions, so that loops over a batch ask here first.
    #[inline(always)]
    pub fn plain_from_frame(frame: &[u8]) -> Option<Self> {
        const LINK: usize = 14;
        const FIXED: usize = 20;
        /// More fragments, and the fragment offset.
        const FRAGMENT: u16 = 0x3fff;
        let head = frame.first_chunk::<{ LINK + FIXED + 4 }>()?;
        let [.., high, low] = *head.first_chunk::<{ LINK + 4 }>()?;
        let limit = LINK + usize::from(u16::from_be_bytes([high, low]));
        if head[12..15] != [8, 0, 0x45] || limit > frame.len() {
            return None;
        }
        Self::plain_at::<FRAGMENT>(frame, LINK, LINK + FIXED, limit, IpFacts::V4)
    }

    /// Five words, on which machines that share flows agree.
    ///
    /// Words 0 and 1 are the source address, 2 and 3 the destination (IPv4 addresses as ::ffff:a.b.c.d), each
    /// read big-endian. The last is, from its most significant bit on: source port (16 bits), destination port
    /// (16), protocol (8), flags (8), zero (16).
    #[inline(always)]
    pub const fn words(&self) -> [u64; 5] {
        let [first, second, c, d, _] = self.0;
        let kind = self.kind() as u64;
        let last = (self.ports().swap_bytes() as u64) << 32 | (kind >> 8 & 0xff) << 24 | kind & 0xff_0000;
        if self.is_v6() {
            [first.swap_bytes(), second.swap_bytes(), c.swap_bytes(), d.swap_bytes(), last]
        } else {
            let (source, destination) = (upper(first).swap_bytes(), (second as u32).swap_bytes());
            [0, MAPPED | source as u64, 0, MAPPED | destination as u64, last]
        }
    }
    /// Whether a key with this word is of IPv6.
    ///
    /// It is the first word of an IPv4 flow's [packed](Self::packed) form, or the last of an IPv6 flow's.
    #[inline(always)]
    pub const fn is_of_v6(word: u64) -> bool {
        word & V6 != 0
    }
    /// Protocol and flags, as bytes.
    #[inline(always)]
    const fn kind(&self) -> u32 {
        (if self.is_v6() { self.0[4] } else { self.0[0] }) as u32
    }
    /// The ports, as bytes.
    #[inline(always)]
    const fn ports(&self) -> u32 {
        upper(if self.is_v6() { self.0[4] } else { self.0[1] })
    }
    /// Whether the packet is IPv6.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        self.0[4] != 0
    }
    /// Whether it is a later fragment, whose ports are not known.
    #[inline(always)]
    pub const fn is_fragment(&self) -> bool {
        self.kind() as u64 & FRAGMENT != 0
    }
    /// The addresses, IPv4's in the lower 32 bits.
    #[inline(always)]
    const fn ends(&self) -> (u128, u128) {
        let [a, b, c, d, _] = self.words();
        if self.is_v6() {
            ((a as u128) << 64 | b as u128, (c as u128) << 64 | d as u128)
        } else {
            (b as u32 as u128, d as u32 as u128)
        }
    }
    const fn address(&self, bits: u128) -> IpAddr {
        if self.is_v6() {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        } else {
            IpAddr::V4(core::net::Ipv4Addr::from_bits(bits as u32))
        }
    }
    /// The sender's address.
    #[inline(always)]
    pub const fn source(&self) -> IpAddr {
        self.address(self.ends().0)
    }
    /// The receiver's address.
    #[inline(always)]
    pub const fn destination(&self) -> IpAddr {
        self.address(self.ends().1)
    }
    /// The sender's port, an ICMP echo's identifier, or 0.
    #[inline(always)]
    pub const fn source_port(&self) -> u16 {
        (self.ports() as u16).swap_bytes()
    }
    /// The receiver's port, an ICMP echo's identifier, or 0.
    #[inline(always)]
    pub const fn destination_port(&self) -> u16 {
        ((self.ports() >> 16) as u16).swap_bytes()
    }
    /// The transport protocol.
    #[inline(always)]
    pub const fn protocol(&self) -> u8 {
        (self.kind() >> 8) as u8
    }

    /// The key of the answers.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let [a, b, c, d, last] = self.0;
        let ports = self.ports().rotate_left(16);
        if self.is_v6() {
            Self([c, d, a, b, joined(last as u32, ports)])
        } else {
            Self::v4(joined(a as u32, b as u32), joined(upper(a), ports))
        }
    }
    /// One key for both directions: the lesser of this one and its reverse, addresses first.
    #[inline(always)]
    #[must_use]
    pub fn canonical(&self) -> Self {
        if self.is_canonical() { *self } else { self.reversed() }
    }
    /// Whether this is the [canonical](Self::canonical) one of both directions.
    #[inline(always)]
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        if self.is_v6() {
            let (source, destination) = self.ends();
            return (source, self.source_port()) <= (destination, self.destination_port());
        }
        let [first, second, ..] = self.0;
        let ports = u64::from(self.ports().swap_bytes());
        // An address above its port, each in the order of numbers.
        let source = u64::from(upper(first).swap_bytes()) << 16 | ports >> 16;
        let destination = u64::from((second as u32).swap_bytes()) << 16 | ports & 0xffff;
        source <= destination
    }
}

/// Protocol and flags but the version's, and the ports, of a packet with this protocol; as bytes.
fn kind_and_ports(number: u8, later_fragment: bool, payload: &[u8]) -> (u32, u32) {
    let kind = u32::from(number) << 8;
    if later_fragment {
        return (kind | FRAGMENT as u32, 0);
    }
    if protocol::has_ports(number) {
        return (kind, payload.first_chunk().map_or(0, |ports| u32::from_le_bytes(*ports)));
    }
    let ports = match (number, payload.first_chunk::<6>()) {
        (protocol::ICMP, Some([0 | 8, _, _, _, high, low]))
        | (protocol::ICMPV6, Some([128 | 129, _, _, _, high, low])) => {
            u32::from_le_bytes([*high, *low, *high, *low])
        }
        _ => 0,
    };
    (kind, ports)
}

impl PartialOrd for FlowKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FlowKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.words().cmp(&other.words())
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16| match address {
            IpAddr::V4(address) => write!(f, "{address}:{port}"),
            IpAddr::V6(address) => write!(f, "[{address}]:{port}"),
        };
        end(f, self.source(), self.source_port())?;
        f.write_str(" > ")?;
        end(f, self.destination(), self.destination_port())?;
        match self.protocol() {
            protocol::TCP => f.write_str(" TCP")?,
            protocol::UDP => f.write_str(" UDP")?,
            protocol::ICMP => f.write_str(" ICMP")?,
            protocol::ICMPV6 => f.write_str(" ICMPv6")?,
            protocol::SCTP => f.write_str(" SCTP")?,
            other => write!(f, " protocol {other}")?,
        }
        if self.is_fragment() { f.write_str(" fragment") } else { Ok(()) }
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A 128-bit key for hashing flows: secret against attackers, shared between machines that must agree.
#[derive(Clone, Copy)]
pub struct HashKey {
    keys: [u64; 8],
}

impl HashKey {
    /// Expands a 128-bit key.
    pub const fn new(key: [u64; 2]) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014) over one half, mixed into the other's.
        let mut keys = [0; 8];
        let mut i = 0;
        while i < 8 {
            let step = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            keys[i] = mix(key[0].wrapping_add(step) ^ mix(key[1].wrapping_add(step)));
            i += 1;
        }
        Self { keys }
    }

    /// The hash of a flow in one direction.
    ///
    /// k0 … k7 are the expanded key and w0 … w4 the words. Additions in brackets are modulo 2^64 and the rest modulo 2^128:
    ///
    /// ```text
    /// s = (w0+k0)(w1+k1) + (w2+k2)(w3+k3) + (w4+k4)k5
    /// p = ((s mod 2^64) ^ k6) × ((s div 2^64) ^ k7)
    /// hash = (p mod 2^64) ^ (p div 2^64)
    /// ```
    ///
    /// The first line is NH of UMAC (RFC 4418) on 64-bit words: two different flows have the same s for one key in 2^64.
    #[inline(always)]
    pub const fn hash(&self, flow: &FlowKey) -> u64 {
        self.hash_words(flow.words())
    }

    /// The same of five words that are no flow's.
    ///
    /// To hash other values beside flows, set some of the lower 16 bits of their last word, which are 0 in
    /// every flow's.
    #[inline(always)]
    pub const fn hash_words(&self, words: [u64; 5]) -> u64 {
        let [w0, w1, w2, w3, w4] = words;
        let [k0, k1, k2, k3, k4, k5, k6, k7] = self.keys;
        let sum = product(w0.wrapping_add(k0), w1.wrapping_add(k1))
            .wrapping_add(product(w2.wrapping_add(k2), w3.wrapping_add(k3)))
            .wrapping_add(product(w4.wrapping_add(k4), k5));
        let last = product(sum as u64 ^ k6, (sum >> 64) as u64 ^ k7);
        last as u64 ^ (last >> 64) as u64
    }

    /// The hash of a flow that is the same for both its directions: that of its
    /// [`canonical`](FlowKey::canonical) key.
    #[inline(always)]
    pub fn symmetric(&self, flow: &FlowKey) -> u64 {
        self.hash(&flow.canonical())
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

#[inline(always)]
const fn product(a: u64, b: u64) -> u128 {
    a as u128 * b as u128
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::HashSet;
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;
    use crate::oracle::{self, Random};

    /// Directly from the bytes, as the RFCs draw them.
    fn expected(sample: &oracle::Sample) -> FlowKey {
        let bytes = &sample.bytes;
        let octets = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().unwrap() };
        let quad = |at: usize| -> [u8; 4] { bytes[at..at + 4].try_into().unwrap() };
        let word =
            |at: usize| u16::from_be_bytes([bytes[sample.transport + at], bytes[sample.transport + at + 1]]);
        let (a, b) = match sample.protocol {
            protocol::TCP | protocol::UDP => (word(0), word(2)),
            _ => (word(4), word(4)),
        };
        let (source, destination) = if sample.v6 {
            (IpAddr::from(octets(8)), IpAddr::from(octets(24)))
        } else {
            (IpAddr::from(quad(12)), IpAddr::from(quad(16)))
        };
        FlowKey::new(source, destination, a, b, sample.protocol)
    }

    #[test]
    fn a_key_is_the_same_behind_any_link() {
        let mut random = Random(60);
        for _ in 0..20_000 {
            let sample = oracle::packet(&mut random);
            let key = expected(&sample);
            let ethertype: [u8; 2] = if sample.v6 { [0x86, 0xdd] } else { [8, 0] };
            let ppp: [u8; 2] = if sample.v6 { [0, 0x57] } else { [0, 0x21] };
            let [high, low] = (sample.bytes.len() as u16 + 2).to_be_bytes();
            let links: [Vec<u8>; 4] = [
                ethertype.into(),
                [&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2][..], &ethertype].concat(),
                [&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64][..]].concat(),
                [&[0x81, 0, 0, 1, 0x88, 0x64, 0x11, 0, 0, 1, high, low][..], &ppp].concat(),
            ];
            for link in links {
                let frame = [&[2; 12][..], &link, &sample.bytes].concat();
                assert_eq!(FlowKey::from_frame(&frame), Some(key));
                assert_eq!(FlowKey::from_frame(&frame[..frame.len() - 1]), None);
            }
            assert_eq!(
                FlowKey::new(
                    key.source(),
                    key.destination(),
                    key.source_port(),
                    key.destination_port(),
                    key.protocol()
                ),
                key
            );
            assert_eq!(FlowKey::unpacked(key.packed()), key);
            assert_eq!(FlowKey::try_from_words(key.words()), Some(key));
            // What stands before an IPv4 address is known, and of the last word the last 16 bits.
            for word in 0..5 {
                let mut words = key.words();
                words[word] ^= 1 << (random.word() % 16);
                let is_address = if sample.v6 { word < 4 } else { word == 1 || word == 3 };
                assert_eq!(FlowKey::try_from_words(words).is_some(), is_address, "word {word} of {key}");
            }
            let reversed = key.reversed();
            assert_eq!(
                (reversed.source(), reversed.source_port()),
                (key.destination(), key.destination_port())
            );
            assert_eq!((reversed.reversed(), reversed.protocol()), (key, key.protocol()));
            assert_eq!(key.canonical(), reversed.canonical());
            assert!([key, reversed].contains(&key.canonical()));
            let hash = HashKey::new([random.word(), random.word()]);
            assert_eq!(hash.symmetric(&key), hash.symmetric(&reversed));
            assert!(hash.hash(&key) != hash.hash(&reversed) || key == reversed);
        }
    }

    #[test]
    fn the_plain_key_of_a_frame_is_its_key_or_none() {
        let mut random = Random(61);
        let (mut plain, mut others) = (0, 0);
        for _ in 0..50_000 {
            let sample = oracle::packet(&mut random);
            let ethertype: [u8; 2] = if sample.v6 { [0x86, 0xdd] } else { [8, 0] };
            let mut frame = [&[2; 12][..], &ethertype, &sample.bytes].concat();
            let is_plain = !sample.v6 && sample.transport == 20 && protocol::has_ports(sample.protocol);
            assert_eq!(FlowKey::plain_from_frame(&frame), is_plain.then(|| expected(&sample)));
            // Any byte of the headers may lie.
            let at = 12 + random.word() as usize % 26;
            if let Some(byte) = frame.get_mut(at) {
                *byte = random.word() as u8;
            }
            frame.truncate(frame.len() - random.word() as usize % 4);
            match FlowKey::plain_from_frame(&frame) {
                Some(key) => {
                    assert_eq!(FlowKey::from_frame(&frame), Some(key));
                    plain += 1;
                }
                None => others += 1,
            }
        }
        assert!(plain > 100 && others > 1_000, "{plain} and {others}");
    }

    #[test]
    fn every_bit_of_the_key_counts() {
        let hash = HashKey::new([1, 2]);
        let words = [3, 4, 5, 6, 7];
        let mut hashes = HashSet::from([hash.hash_words(words)]);
        for bit in 0..320 {
            let mut other = words;
            other[bit / 64] ^= 1 << (bit % 64);
            assert!(hashes.insert(hash.hash_words(other)), "bit {bit}");
        }
        for bit in 0..128 {
            let mut key = [1, 2];
            key[bit / 64] ^= 1 << (bit % 64);
            assert!(hashes.insert(HashKey::new(key).hash_words(words)), "key bit {bit}");
        }
    }

    /// Machines that share flows must agree, so these numbers never change.
    #[test]
    fn hashes_are_the_same_everywhere() {
        let v4 = FlowKey::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1000, 53, 17);
        assert_eq!(v4.words(), [0, 0xffff_0a00_0001, 0, 0xffff_0a00_0002, 0x03e8_0035_1100_0000]);
        assert_eq!(v4.to_string(), "10.0.0.1:1000 > 10.0.0.2:53 UDP");
        let key = HashKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        // Computed from the definition by an independent program.
        assert_eq!(key.hash(&v4), HASH_V4);
        assert_eq!(key.hash(&v4.reversed()), HASH_V4_REVERSED);
        assert_eq!(key.symmetric(&v4.reversed()), HASH_V4);
    }
    const HASH_V4: u64 = 0xf2f6_7377_ee53_bbde;
    const HASH_V4_REVERSED: u64 = 0xb91b_e9c6_54da_53b8;

    #[test]
    fn keys_are_in_the_order_of_addresses_then_ports() {
        let key = |source: [u8; 4], destination: [u8; 4], ports: [u16; 2]| {
            FlowKey::new(source.into(), destination.into(), ports[0], ports[1], 17)
        };
        let ordered = [
            key([1, 0, 0, 2], [9, 9, 9, 9], [9, 9]),
            key([2, 0, 0, 1], [1, 0, 0, 2], [1, 2]),
            key([2, 0, 0, 1], [1, 0, 0, 2], [1, 256]),
            key([2, 0, 0, 1], [1, 0, 0, 2], [2, 1]),
            key([2, 0, 0, 1], [2, 0, 0, 1], [0, 0]),
            FlowKey::new([0x2001_u16, 0, 0, 0, 0, 0, 0, 1].into(), [0_u16; 8].into(), 0, 0, 6),
        ];
        assert!(ordered.is_sorted() && ordered.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Flows that differ in little, as an attacker's do, spread over buckets as evenly as chance.
    #[test]
    fn buckets_fill_evenly() {
        let key = HashKey::new([7, 8]);
        let mut counts = [0u32; 4096];
        for i in 0..1 << 18 {
            let flow =
                FlowKey::new([10, 0, (i >> 16) as u8, 1].into(), [10, 0, 0, 2].into(), i as u16, 80, 6);
            counts[(key.hash(&flow) % 4096) as usize] += 1;
        }
        // 64 a bucket are expected; the standard deviation is 8.
        let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 64.0).powi(2) / 64.0).sum();
        assert!((3700.0..4500.0).contains(&chi), "chi squared {chi}");
    }

    #[test]
    fn fragments_after_the_first_have_no_ports_and_say_so() {
        let mut bytes =
            Vec::from(crate::Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 8).octets());
        bytes.extend([0, 53, 0, 99, 0, 8, 0, 0]);
        let key = |bytes: &[u8]| {
            let (ip, payload) = IpRef::split(bytes).unwrap();
            FlowKey::of(ip, payload)
        };
        assert_eq!((key(&bytes).destination_port(), key(&bytes).is_fragment()), (99, false));
        bytes[6] = 0x20;
        assert_eq!((key(&bytes).destination_port(), key(&bytes).is_fragment()), (99, false));
        bytes[7] = 1;
        assert_eq!((key(&bytes).destination_port(), key(&bytes).is_fragment()), (0, true));
        assert_ne!(key(&bytes), FlowKey::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0, 0, 17));
        // A mapped IPv6 address is not the IPv4 address that it maps.
        let mapped = IpAddr::V6(core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        assert_ne!(
            FlowKey::new(mapped, mapped, 1, 2, 6),
            FlowKey::new([10, 0, 0, 1].into(), [10, 0, 0, 1].into(), 1, 2, 6)
        );
    }
}
