//! Which next hop each flow takes: rendezvous hashing, so that a next hop that goes moves only its own flows.

use netbricks_core::tables::{Secret, hash_words};

use super::route::Hop;

/// Buckets of flows for each set of next hops.
const BUCKETS: usize = 256;

/// The next hop of each bucket of flows; nothing where there is only one.
///
/// Each bucket goes to the next hop with the largest score for it (weighted rendezvous hashing). The score of a next hop
/// does not depend on the others. So one that comes takes its share from all others, and one that goes leaves
/// its own flows to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets(Vec<u8>);

impl Buckets {
    pub(super) fn of(hops: &[Hop]) -> Self {
        if hops.len() < 2 {
            return Self::default();
        }
        Self((0..BUCKETS).map(|bucket| best(bucket, hops, |_| true).unwrap_or(0) as u8).collect())
    }

    /// The next hop for a flow with this hash, by its place.
    #[inline(always)]
    pub(super) fn hop(&self, hash: u64) -> usize {
        self.0.get(hash as usize % BUCKETS).map_or(0, |hop| usize::from(*hop))
    }
}

/// The next hop for a flow with this hash among those that are `alive`.
pub(super) fn alive(hash: u64, hops: &[Hop], alive: impl Fn(&Hop) -> bool) -> Option<usize> {
    best(hash as usize % BUCKETS, hops, alive)
}

fn best(bucket: usize, hops: &[Hop], among: impl Fn(&Hop) -> bool) -> Option<usize> {
    let scored = hops.iter().enumerate().filter(|(_, hop)| among(hop));
    let scored = scored.map(|(place, hop)| (place, score(bucket, hop)));
    scored.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place)
}

/// `-weight / ln(u)` of a number `u` between 0 and 1 that bucket and next hop decide.
fn score(bucket: usize, hop: &Hop) -> f64 {
    let (version, bits) = match hop.gateway {
        Some(std::net::IpAddr::V4(address)) => (4, u128::from(address.to_bits())),
        Some(std::net::IpAddr::V6(address)) => (6, address.to_bits()),
        None => (0, 0),
    };
    let words = [bucket as u64, u64::from(hop.interface) << 8 | version, (bits >> 64) as u64, bits as u64];
    let hash = hash_words(&words, &Secret::from_seed(SEED));
    let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -f64::from(hop.weight) / unit.ln()
}

const SEED: u64 = 0x6563_6d70_6861_7368;

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(weights: &[u16]) -> Vec<Hop> {
        let hop = |(number, weight): (usize, &u16)| Hop {
            gateway: Some([192, 0, 2, number as u8 + 1].into()),
            interface: 0,
            weight: *weight,
        };
        weights.iter().enumerate().map(hop).collect()
    }

    #[test]
    fn a_next_hop_that_goes_moves_only_its_flows() {
        for gone in 0..5 {
            let all = hops(&[1, 1, 2, 1, 3]);
            let without: Vec<Hop> = all.iter().copied().filter(|hop| *hop != all[gone]).collect();
            let (before, after) = (Buckets::of(&all), Buckets::of(&without));
            for hash in 0..BUCKETS as u64 {
                let (was, is) = (all[before.hop(hash)], without[after.hop(hash)]);
                assert!(was == is || was == all[gone], "bucket {hash}: {was:?} to {is:?}");
                // A next hop that only does not answer is passed over in the same way.
                let passed = alive(hash, &all, |hop| *hop != all[gone]).unwrap();
                assert_eq!(all[passed], is);
            }
        }
    }

    #[test]
    fn shares_are_as_the_weights() {
        let all = hops(&[1, 3]);
        let buckets = Buckets::of(&all);
        let second = (0..BUCKETS as u64).filter(|hash| buckets.hop(*hash) == 1).count();
        assert!((160..224).contains(&second), "{second} of 256, expected some 192");
        let even = hops(&[1; 8]);
        let buckets = Buckets::of(&even);
        for place in 0..8 {
            let share = (0..BUCKETS as u64).filter(|hash| buckets.hop(*hash) == place).count();
            assert!((16..52).contains(&share), "{share} of 256, expected some 32");
        }
    }
}
