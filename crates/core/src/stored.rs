//! The form in which tables keep flows.

use netbricks_packet::{FlowKey, HashKey};
use netbricks_tables::{Encode, Key, Parts, Secret, hash_pair, hash_words};

use crate::shuffle::ShuffleKey;
use crate::state::TableKey;

/// A [`FlowKey`] in a table.
///
/// ```
/// use netbricks_core::TableKey;
/// use netbricks_core::packet::FlowKey;
///
/// let flow = FlowKey::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into(), 5_353, 53, 17);
/// assert_eq!(FlowKey::restore(flow.store()), flow);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredFlow([u64; 5]);

/// A hash of an IPv4 flow costs two multiplications, one of an IPv6 flow four.
///
/// An IPv4 flow and an IPv6 flow collide with a probability of at most 2⁻⁶³. The sum in the hash of the
/// longer key has one more product, which takes any given value no more often. `maglev` uses this hash, with
/// a constant in place of a secret, for decisions that must be the same on all machines. A change of the hash
/// changes where their flows go.
impl Key for StoredFlow {
    type Parts = ByVersion;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        // One word decides, so that the test disappears in compiled code where that word is known.
        match self.0 {
            [first, second, .., 0] => hash_pair(first, second, secret),
            words => hash_words(&words, secret),
        }
    }
}

/// Flows of IPv4 have two words; those of IPv6 three more.
#[derive(Clone, Copy, Debug)]
pub struct ByVersion;

impl Parts<StoredFlow> for ByVersion {
    // Not arrays: these are put together in memory for a comparison, which costs 10 ns a packet.
    type Near = (u64, u64);
    type Far = (u64, u64, u64);
    #[inline(always)]
    fn split(StoredFlow(words): &StoredFlow) -> ((u64, u64), Option<(u64, u64, u64)>) {
        match *words {
            [first, second, .., 0] => ((first, second), None),
            // As with IPv4, the word with the flags comes first, since it tells the versions apart.
            [a, b, c, d, last] => ((last, a), Some((b, c, d))),
        }
    }
    #[inline(always)]
    fn join((first, second): (u64, u64), far: impl FnOnce() -> (u64, u64, u64)) -> StoredFlow {
        if FlowKey::is_of_v6(first) {
            let (b, c, d) = far();
            StoredFlow([second, b, c, d, first])
        } else {
            StoredFlow([first, second, 0, 0, 0])
        }
    }
}

impl Encode for StoredFlow {
    const SIZE: usize = <[u64; 5]>::SIZE;
    const VERSION: u16 = 2;
    /// The [words](FlowKey::words) of a flow, on which all machines agree.
    fn encode(&self, to: &mut [u8]) {
        FlowKey::restore(*self).words().encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        FlowKey::try_from_words(<[u64; 5]>::decode(from)?).map(FlowKey::store)
    }
}

impl TableKey for FlowKey {
    type Stored = StoredFlow;
    const PORTS: bool = true;
    #[inline(always)]
    fn store(self) -> StoredFlow {
        StoredFlow(self.packed())
    }
    fn restore(StoredFlow(words): StoredFlow) -> Self {
        Self::unpacked(words)
    }
    fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
        by.spread_flow(&self, hash)
    }
    fn follows(by: ShuffleKey) -> bool {
        !matches!(by, ShuffleKey::Port | ShuffleKey::Vlan | ShuffleKey::Owner | ShuffleKey::Own)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use netbricks_tables::{FlowTable, FlowTableConfig, ImportError, Table};

    use proptest::prelude::*;

    use super::*;

    fn flows() -> [FlowKey; 2] {
        [
            FlowKey::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into(), 5_353, 53, 17),
            FlowKey::new([0x2001_u16, 0xdb8, 1, 2, 3, 4, 5, 6].into(), [9_u16; 8].into(), 5_353, 53, 17),
        ]
    }

    #[test]
    fn every_bit_of_a_flow_counts_in_its_hash() {
        let secret = Secret::from_seed(7);
        for flow in flows() {
            let mut hashes = HashSet::from([flow.store().hash(&secret)]);
            let mut bits = 0;
            for bit in 0..320 {
                let mut words = flow.words();
                words[bit / 64] ^= 1 << (bit % 64);
                let Some(other) = FlowKey::try_from_words(words) else { continue };
                assert!(hashes.insert(other.store().hash(&secret)), "bit {bit} of {flow}");
                bits += 1;
            }
            // Addresses; ports, protocol, and whether it is a later fragment. IPv4's words become IPv6's by one bit, a mapped
            // address.
            assert_eq!(bits, if flow.is_v6() { 256 } else { 64 + 1 } + 32 + 8 + 1, "{flow}");
        }
    }

    /// Two keys with one near part, which only their far parts tell from each other.
    #[test]
    fn flows_of_ipv6_differ_in_what_lies_apart() {
        let from = |last: u16| {
            let source = [0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, last];
            FlowKey::new(source.into(), [9_u16; 8].into(), 5_353, 53, 17).store()
        };
        let (first, second) = (ByVersion::split(&from(1)), ByVersion::split(&from(2)));
        assert_eq!(first.0, second.0);
        assert_ne!(first.1, second.1);
        let mut table: FlowTable<StoredFlow, u64> = FlowTable::new(FlowTableConfig::new(8)).unwrap();
        for last in [1, 2] {
            table.lookup(from(last), 0).or_insert_with(|| u64::from(last));
        }
        assert_eq!([1, 2, 3].map(|last| table.get(&from(last)).copied()), [Some(1), Some(2), None]);
        // Where the first one's ticket leads.
        let mut ticket = FlowTable::<StoredFlow, u64>::hash(&table.hasher(), &from(1));
        table.prefetch(&from(1), &mut ticket);
        assert_eq!(table.resolve(from(2), ticket).found().copied(), Some(2));
        assert!(table.resolve(from(3), ticket).found().is_none());
        let keys: HashSet<String> = table.iter().map(|(key, _)| FlowKey::restore(key).to_string()).collect();
        assert_eq!(keys, [1, 2].map(|last| FlowKey::restore(from(last)).to_string()).into());
    }

    proptest! {
        #[test]
        fn keys_in_two_parts_are_whole_again(
            addresses in any::<[u128; 2]>(), v6: bool, ports in any::<[u16; 2]>(), protocol: u8, fragment: bool,
        ) {
            let [source, destination] = addresses.map(|bits| match v6 {
                true => IpAddr::from(Ipv6Addr::from_bits(bits)),
                false => Ipv4Addr::from_bits(bits as u32).into(),
            });
            let mut words = FlowKey::new(source, destination, ports[0], ports[1], protocol).words();
            words[4] |= u64::from(fragment) << 17;
            let key = FlowKey::try_from_words(words).unwrap().store();
            let (near, far) = ByVersion::split(&key);
            prop_assert_eq!(far.is_some(), v6);
            prop_assert_eq!(ByVersion::join(near, || far.unwrap()), key);
            // The part of it that a batch keeps.
            type Flows = FlowTable<StoredFlow, ()>;
            let short = Flows::shorten(&key);
            prop_assert_eq!(short.map(Flows::lengthen), (!v6).then_some(key));
        }

        #[test]
        fn words_that_are_left_out_are_no_others(
            addresses in any::<[u32; 2]>(), ports in any::<[u16; 2]>(), rest in any::<[u64; 4]>(), seed in any::<u64>(),
        ) {
            let secret = Secret::from_seed(seed);
            let [source, destination] = addresses.map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
            let short = FlowKey::new(source, destination, ports[0], ports[1], 6);
            let [first, second, ..] = short.packed();
            prop_assert_eq!(short.store().hash(&secret), hash_pair(first, second, &secret));
            // IPv6 whose first two words are the same.
            let [a, b] = [[first, second], [rest[0], rest[1]]]
                .map(|[high, low]| u128::from(high.swap_bytes()) << 64 | u128::from(low.swap_bytes()));
            let long = FlowKey::new(Ipv6Addr::from_bits(a).into(), Ipv6Addr::from_bits(b).into(), ports[0], ports[1], 6);
            prop_assert_eq!(&long.packed()[..2], &[first, second][..]);
            prop_assert_eq!(long.store().hash(&secret), hash_words(&long.packed(), &secret));
            prop_assert_ne!(short.store().hash(&secret), long.store().hash(&secret));
            prop_assert_ne!(short, long);
            let back = short.reversed();
            prop_assert_eq!(back == short, back.store().hash(&secret) == short.store().hash(&secret));
        }
    }

    /// Checks the exported form, which other machines sent and which is on disks: a change of it needs
    /// another version.
    #[test]
    fn an_exported_flow_is_the_same_on_every_machine() {
        let [v4, v6] = flows().map(|flow| {
            let mut bytes = [0; StoredFlow::SIZE];
            flow.store().encode(&mut bytes);
            <[u64; 5]>::decode(&bytes).unwrap()
        });
        assert_eq!(v4, [0, 0xffff_c000_0201, 0, 0xffff_c633_6402, 0x14e9_0035_1100_0000]);
        let [nine, last] = [0x0009_0009_0009_0009, 0x14e9_0035_1101_0000];
        assert_eq!(v6, [0x2001_0db8_0001_0002, 0x0003_0004_0005_0006, nine, nine, last]);
        assert_eq!(StoredFlow::VERSION, 2);
    }

    #[test]
    fn exports_bring_flows_and_nothing_else() {
        let mut table: FlowTable<StoredFlow, u64> = FlowTable::new(FlowTableConfig::new(8)).unwrap();
        for (flow, value) in flows().into_iter().zip(1..) {
            table.lookup(flow.store(), 0).or_insert_with(|| value);
        }
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        let mut taken: FlowTable<StoredFlow, u64> = FlowTable::new(FlowTableConfig::new(8)).unwrap();
        assert_eq!(taken.decode(&bytes, 0), Ok(2));
        for (flow, value) in flows().into_iter().zip(1..) {
            assert_eq!(taken.get(&flow.store()), Some(&value));
            let mut to = [0; StoredFlow::SIZE];
            flow.store().encode(&mut to);
            assert_eq!(StoredFlow::decode(&to), Some(flow.store()));
            to[StoredFlow::SIZE - 1] ^= 1;
            assert_eq!(StoredFlow::decode(&to), None);
        }
        // As tables were exported that kept five words.
        let mut old: FlowTable<[u64; 5], u64> = FlowTable::new(FlowTableConfig::new(8)).unwrap();
        old.lookup(flows()[0].packed(), 0).or_insert_with(|| 1);
        let mut bytes = Vec::new();
        old.encode(&mut bytes);
        let refused = taken.decode(&bytes, 0).unwrap_err();
        assert!(matches!(refused, ImportError::Version { what: "key", .. }), "{refused}");
        assert_eq!(taken.len(), 2);
    }
}
