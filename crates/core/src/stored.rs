//! How tables keep flows.

use netbricks_packet::{FlowKey, HashKey};
use netbricks_tables::{Encode, Key, Secret, hash_words};

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

/// A flow of IPv4 costs two multiplications of the four that one of IPv6 takes. The two collide with a probability of at most
/// 2⁻⁶³: the sum of the longer has a product more, which is any given number no more often.
impl Key for StoredFlow {
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        // One word tells, so that where it is known the question goes away when this is compiled.
        match self.0 {
            [first, second, .., 0] => hash_words(&[first, second], secret),
            words => hash_words(&words, secret),
        }
    }
}

impl Encode for StoredFlow {
    const SIZE: usize = <[u64; 5]>::SIZE;
    const VERSION: u16 = 1;
    fn encode(&self, to: &mut [u8]) {
        self.0.encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        <[u64; 5]>::decode(from).map(Self)
    }
}

impl TableKey for FlowKey {
    type Stored = StoredFlow;
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
        !matches!(by, ShuffleKey::Port | ShuffleKey::Vlan | ShuffleKey::Owner)
    }
}
