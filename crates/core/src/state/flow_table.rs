//! Flow tables as declared state.

use std::any::{Any, TypeId};
use std::net::IpAddr;

use netbricks_packet::FlowKey;
use netbricks_tables::{Counters, Encode, FlowSuccession, FlowTable, FlowTerms, Key, MAXIMUM_WORK};

use super::{Declared, Mobility, StateTerms, Succession, TableKey};
use crate::shuffle::{Part, ShuffleKey};
use crate::stored::StoredFlow;

/// Marks an export of moving flows, which exist nowhere else.
///
/// A table takes these in by its policy, while it takes all or none of a copy.
const MOVED: &[u8; 4] = b"NBMV";

/// Takes the flows for which `chosen` answers `true` out of a piece of a table, from slot `place` on.
pub(super) fn take_moved<K: Key + Encode, V: Encode + 'static>(
    table: &mut FlowTable<K, V>,
    place: usize,
    chosen: impl FnMut(&K) -> bool,
) -> (Vec<u8>, Option<usize>) {
    let mut bytes = MOVED.to_vec();
    let next = table.take_step(place, &mut bytes, chosen);
    if bytes.len() == MOVED.len() {
        bytes.clear();
    }
    (bytes, next)
}

/// Slots of a table from which flows move between two rounds of packets, in some ten microseconds.
const MOVED_SLOTS: usize = 512;

impl<K, V> Declared for FlowTable<K, V>
where
    K: Key + Encode,
    V: Encode + 'static,
{
    fn export(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        let taken = match bytes.strip_prefix(MOVED) {
            Some(moved) => self.admit(moved, now),
            None => self.decode(bytes, now),
        };
        taken.map(|_| ()).map_err(|error| error.to_string())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.len() as u64, self.capacity() as u64)
    }
    fn expire_all(&mut self, now: u64) {
        Self::expire_all(self, now);
    }
    fn advance(&mut self, now: u64) {
        self.expire(now, MAXIMUM_WORK);
    }
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(self.len() as u64).sized(Self::RECORD).with(Self::terms(self))
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        if !before.is_of::<Self>() {
            return Succession::unlike();
        }
        let room = self.capacity() as u64;
        let Some(terms) = before.get::<FlowTerms>().filter(|_| !before.is_shared()) else {
            return Succession::copied_into(room, before, "workers shared it, and each has its own now");
        };
        match Self::succession(self, terms) {
            FlowSuccession::Whole => Succession::whole(),
            FlowSuccession::NoRoom => Succession::no_room(room, before),
            FlowSuccession::Occupied => Succession::copied("the new table has entries already"),
            FlowSuccession::InSteps if terms.capacity as u64 == room => {
                Succession::in_steps("the table has another timeout")
            }
            FlowSuccession::InSteps => Succession::in_steps(format!(
                "there is room for {room} instead of {} entries",
                terms.capacity
            )),
        }
    }
    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        old.downcast_mut().is_some_and(|old| Self::succeed(self, old))
    }
    fn move_on(&mut self) -> bool {
        Self::move_on(self, MOVED_SLOTS)
    }
    fn flow_counters(&self) -> Option<Counters> {
        Some(self.counters())
    }
    fn mobility(&self, by: ShuffleKey) -> Mobility {
        Mobility::of(stored_follows::<K>(by))
    }
    fn take_part(&mut self, part: &Part, place: usize) -> (Vec<u8>, Option<usize>) {
        take_moved(self, place, |key| stored_in(key, part))
    }
}

/// Whether entries with this stored key type move under the shuffle key `by`.
///
/// These are the stored types of the keys below.
fn stored_follows<K: 'static>(by: ShuffleKey) -> bool {
    let stored = TypeId::of::<K>();
    if stored == TypeId::of::<StoredFlow>() {
        FlowKey::follows(by)
    } else if stored == TypeId::of::<IpAddr>() {
        IpAddr::follows(by)
    } else {
        [TypeId::of::<[u64; 1]>(), TypeId::of::<u64>(), TypeId::of::<u32>()].contains(&stored)
            && u64::follows(by)
    }
}

fn stored_in(key: &dyn Any, part: &Part) -> bool {
    if let Some(flow) = key.downcast_ref::<StoredFlow>() {
        part.holds(FlowKey::restore(*flow))
    } else if let Some(address) = key.downcast_ref::<IpAddr>() {
        part.holds(*address)
    } else if let Some([number]) = key.downcast_ref::<[u64; 1]>() {
        part.holds(*number)
    } else if let Some(number) = key.downcast_ref::<u64>() {
        part.holds(*number)
    } else {
        key.downcast_ref::<u32>().is_some_and(|number| part.holds(*number))
    }
}
