//! The identification of IPv4 packets that leave with another source (RFC 7857, section 10; RFC 6864, section 5.3.1).

use netbricks_core::Random;
use netbricks_core::packet::checksum::Sum;

/// Counters, each of which serves some tuples of source, destination and protocol.
const COUNTERS: usize = 2_048;

/// The next identifications of packets with one outside source, destination and protocol.
///
/// Hosts inside choose theirs without regard to each other. Behind one address they would repeat too soon.
pub(super) struct Identifications {
    next: Box<[u16; COUNTERS]>,
    secret: u64,
}

impl Identifications {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::of(&[b"identifications of a NAT", &seed.to_le_bytes()]);
        let mut next = Box::new([0; COUNTERS]);
        next.iter_mut().for_each(|place| *place = random.draw() as u16);
        let secret = random.draw();
        Self { next, secret }
    }

    /// The identification of one more packet.
    #[inline(always)]
    pub(super) fn next(&mut self, source: u32, destination: u32, protocol: u8) -> u16 {
        let tuple = u64::from(source) << 32 | u64::from(destination ^ u32::from(protocol).rotate_right(8));
        // Fibonacci hashing (Knuth, volume 3, section 6.4) of a tuple that no one outside can choose for.
        let mixed = (tuple ^ self.secret).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (mixed >> (u64::BITS - COUNTERS.ilog2())) as usize;
        let Some(place) = self.next.get_mut(at) else { return 0 };
        *place = place.wrapping_add(1);
        *place
    }
}

/// Whether an IPv4 packet is one that cannot be cut and is no fragment, whose identification means nothing.
#[inline(always)]
fn is_atomic(header: &[u8; 20]) -> bool {
    let [high, low] = [header[6], header[7]];
    // DF alone: no more fragments, offset 0 (RFC 6864, section 4).
    high & 0x7f == 0x40 && low == 0
}

/// Gives an IPv4 packet that may be cut a new identification, by its addresses; answers that.
#[inline(always)]
pub(super) fn renew(ip: &mut [u8], own: &mut Identifications) -> Option<u16> {
    let header = ip.first_chunk_mut::<20>()?;
    if is_atomic(header) {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let identification = own.next(word(12), word(16), header[9]);
    set(header, identification);
    Some(identification)
}

/// Writes an identification, and carries it into the header's checksum (RFC 1624).
#[inline(always)]
pub(super) fn set(header: &mut [u8; 20], identification: u16) {
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let sum = Sum::ZERO.add16(!field(10)).add16(!field(4)).add16(identification).finish();
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn first_identifications_are_no_multiples_of_one_secret() {
        let own = Identifications::new(7);
        let steps: std::collections::BTreeSet<u16> =
            own.next.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        // Multiples of a number differ by two values.
        assert!(steps.len() > 1_000, "{}", steps.len());
    }

    #[test]
    fn a_tuple_gets_each_identification_once_before_any_comes_again() {
        let mut own = Identifications::new(7);
        let all: BTreeSet<u16> = (0..=u16::MAX).map(|_| own.next(1, 2, 17)).collect();
        assert_eq!(all.len(), 1 << 16);
    }

    #[test]
    fn other_tuples_have_mostly_other_counters() {
        let mut own = Identifications::new(7);
        let before = own.next.clone();
        for host in 0..512 {
            own.next(0xcb00_7107, 0xc633_6400 + host, 17);
        }
        let touched = own.next.iter().zip(before.iter()).filter(|(now, before)| now != before).count();
        assert!(touched > 300, "{touched} counters for 512 destinations");
    }
}
