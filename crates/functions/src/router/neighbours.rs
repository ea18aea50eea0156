//! The neighbours that all workers share: link-layer addresses by interface and IP address.

use std::net::IpAddr;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{FlowTable, MapChange};

/// A neighbour: its interface and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NeighbourKey {
    pub(super) interface: u16,
    pub(super) address: IpAddr,
}

/// The key and the value as the table has them.
type Words = [u64; 3];
type Value = (u64, u64);

impl NeighbourKey {
    #[inline(always)]
    pub(super) fn words(self) -> Words {
        let (version, bits) = match self.address {
            IpAddr::V4(address) => (4, u128::from(address.to_bits())),
            IpAddr::V6(address) => (6, address.to_bits()),
        };
        [u64::from(self.interface) << 8 | version, (bits >> 64) as u64, bits as u64]
    }

    fn of([head, high, low]: Words) -> Self {
        let address = match head & 0xff {
            4 => IpAddr::V4((low as u32).into()),
            _ => IpAddr::V6((u128::from(high) << 64 | u128::from(low)).into()),
        };
        Self { interface: (head >> 8) as u16, address }
    }
}

/// The knowledge about a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) mac: MacAddress,
    /// Given by the operator: it neither ages nor changes.
    pub(super) is_static: bool,
    /// It did not answer, though a route leads to it.
    pub(super) is_dead: bool,
    /// A worker asks for it, and any may hear the answer.
    pub(super) is_asked: bool,
    /// When it last answered (ns); 0 where it is known only from packets of its own.
    pub(super) confirmed: u64,
}

const STATIC: u64 = 1 << 48;
const DEAD: u64 = 1 << 49;
const ASKED: u64 = 1 << 50;

impl Neighbour {
    fn value(self) -> Value {
        let [a, b, c, d, e, f] = self.mac.octets();
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let flags = [(self.is_static, STATIC), (self.is_dead, DEAD), (self.is_asked, ASKED)];
        let flags = flags.into_iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag);
        (mac | flags, self.confirmed)
    }
    #[inline(always)]
    fn of((first, confirmed): Value) -> Self {
        let [.., a, b, c, d, e, f] = first.to_be_bytes();
        let mac = MacAddress::new([a, b, c, d, e, f]);
        let is = |flag| first & flag != 0;
        Self { mac, is_static: is(STATIC), is_dead: is(DEAD), is_asked: is(ASKED), confirmed }
    }
    /// Whether its link-layer address is known.
    #[inline(always)]
    pub(super) fn is_known(&self) -> bool {
        !self.is_dead && !self.is_asked
    }
}

/// The table, under bounded inconsistency.
#[derive(Clone)]
pub(super) struct Neighbours(pub(super) Bounded<FlowTable<Words, Value>>);

impl Neighbours {
    pub(super) fn get(&self, key: NeighbourKey, now: u64) -> Option<Neighbour> {
        self.0.read(|table| table.get_at(&key.words(), now).copied()).map(Neighbour::of)
    }
    /// A number that changes when another worker has changed something.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.0.published()
    }
    /// Puts a neighbour in; `false` where another worker writes at this moment.
    pub(super) fn put(&self, key: NeighbourKey, neighbour: Neighbour, now: u64) -> bool {
        let timeout = (!neighbour.is_static).then_some(FORGOTTEN);
        let change = MapChange::Put { key: key.words(), value: neighbour.value(), timeout, now };
        self.0.update(change).is_ok()
    }
    /// Takes a neighbour out; `None` where another worker writes at this moment, and else whether it was there.
    pub(super) fn remove(&self, key: NeighbourKey, now: u64) -> Option<bool> {
        let change = MapChange::Remove { key: key.words(), now };
        match self.0.update(change).ok()? {
            netbricks_core::tables::MapOutcome::Removed(had) => Some(had.is_some()),
            _ => Some(false),
        }
    }
    /// Ends entries that were not confirmed for long.
    pub(super) fn expire(&self, now: u64) {
        // Where another worker writes, it may do so.
        let _elsewhere = self.0.update(MapChange::Expire { now });
    }
    /// All neighbours.
    pub(super) fn all(&self) -> Vec<(NeighbourKey, Neighbour)> {
        let of = |(key, value): (Words, &Value)| (NeighbourKey::of(key), Neighbour::of(*value));
        self.0.read(|table| table.iter().map(of).collect())
    }
}

/// The time after which a neighbour without an answer is forgotten (ns); those of the operator stay.
const FORGOTTEN: u64 = 1_200_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_neighbours_survive_their_words() {
        for address in ["192.0.2.1", "255.255.255.255", "fe80::1:2", "::"] {
            let key = NeighbourKey { interface: 300, address: address.parse().unwrap() };
            assert_eq!(NeighbourKey::of(key.words()), key);
        }
        let mac = MacAddress::new([0xfe, 2, 3, 4, 5, 0xff]);
        for bits in 0..8 {
            let [is_static, is_dead, is_asked] = [1, 2, 4].map(|bit| bits & bit != 0);
            let neighbour = Neighbour { mac, is_static, is_dead, is_asked, confirmed: 7 };
            assert_eq!(Neighbour::of(neighbour.value()), neighbour);
        }
    }
}
