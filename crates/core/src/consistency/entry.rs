//! The entry of a lookup, under each consistency.

use std::hash::Hash;

use netbricks_tables::{Encode, Entry, FlowTable, Key, MapChange, MapOutcome, ReadTable, Routes};

use super::{Access, Bounded, CannotWrite, Contents};

/// An entry of a map of any consistency, for a function that leaves the consistency open.
pub trait MapEntry {
    /// The value under a key.
    type Value;

    /// The value, if there is one.
    fn value(&self) -> Option<&Self::Value>;

    /// Puts a value under the entry's key, in place of any present one.
    ///
    /// `false` where the map is full, by its policy.
    ///
    /// # Errors
    /// When this worker cannot write now; nothing has changed. Private and strict state can always be written.
    fn put(self, value: Self::Value) -> Result<bool, CannotWrite>;
}

impl<K: Key, V: 'static> MapEntry for Entry<'_, K, V> {
    type Value = V;

    #[inline(always)]
    fn value(&self) -> Option<&V> {
        match self {
            Entry::Found(entry) => Some(entry.get()),
            Entry::Vacant(_) | Entry::Full => None,
        }
    }

    #[inline(always)]
    fn put(self, value: V) -> Result<bool, CannotWrite> {
        match self {
            Entry::Found(mut entry) => *entry.get_mut() = value,
            Entry::Vacant(vacant) => drop(vacant.insert(value)),
            Entry::Full => return Ok(false),
        }
        Ok(true)
    }
}

/// An entry of a map under [`BoundedInconsistency`](super::BoundedInconsistency), as this worker sees it.
///
/// A value that is put goes through the state's one writer. This worker is the writer until its batch ends, if no other
/// is.
pub struct BoundedEntry<'e, K: Key + Encode + Send + Sync, V: Encode + Copy + Send + Sync + 'static> {
    value: Option<&'e V>,
    key: K,
    map: &'e Bounded<FlowTable<K, V>>,
    now: u64,
}

impl<K, V> MapEntry for BoundedEntry<'_, K, V>
where
    K: Key + Encode + Send + Sync,
    V: Encode + Copy + Send + Sync + 'static,
{
    type Value = V;

    #[inline]
    fn value(&self) -> Option<&V> {
        self.value
    }

    fn put(self, value: V) -> Result<bool, CannotWrite> {
        let Self { key, map, now, .. } = self;
        let outcome = map.update(MapChange::Put { key, value, timeout: None, now })?;
        Ok(!matches!(outcome, MapOutcome::Full))
    }
}

/// Lookups in a table's published copy under bounded inconsistency.
#[doc(hidden)]
pub trait Shown: ReadTable + Contents {
    /// The entry.
    type Seen<'e>;
    /// The entry, from the value that was read from the table at `now` (ns).
    fn shown<'e>(
        value: Option<&'e Self::Value>,
        key: Self::Key,
        state: &'e Bounded<Self>,
        now: u64,
    ) -> Self::Seen<'e>;
}

impl<K, V> Shown for FlowTable<K, V>
where
    K: Key + Encode + Send + Sync,
    V: Encode + Copy + Send + Sync + 'static,
{
    type Seen<'e> = BoundedEntry<'e, K, V>;
    #[inline(always)]
    fn shown<'e>(value: Option<&'e V>, key: K, map: &'e Bounded<Self>, now: u64) -> BoundedEntry<'e, K, V> {
        BoundedEntry { value, key, map, now }
    }
}

/// As under the other consistencies, a lookup adds no route for an address.
impl<V: Copy + Eq + Hash + Encode + Send + Sync + 'static> Shown for Routes<V> {
    type Seen<'e> = Option<&'e V>;
    #[inline(always)]
    fn shown<'e>(value: Option<&'e V>, _: Self::Key, _: &'e Bounded<Self>, _: u64) -> Option<&'e V> {
        value
    }
}
