//! Exports in steps, for tables that others use meanwhile: between two steps flows may come, go and change.

use super::{Encode, FlowTable};
use crate::hash::Key;

/// Slots that one step looks at.
const STEP: usize = 512;

impl<K: Key + Encode, V: Encode + 'static> FlowTable<K, V> {
    /// The most bytes that a [step](Self::encode_step) appends, for callers that reserve before they take a lock.
    pub const STEP_BYTES: usize = Self::HEADER + STEP * Self::RECORD;

    /// Appends the unexpired flows of 512 slots from `slot` on to `to`; returns where the next step begins.
    ///
    /// The first step begins at slot 0, with `to` empty; `None` comes after the last. [`encode_end`](Self::encode_end)
    /// then makes an export of it.
    ///
    /// Flows never move. A flow that is there during all steps is in the export once, as it was at its step. One that
    /// comes or goes meanwhile may be in it or not. One that leaves and comes again may be in it twice; an import keeps
    /// the one that was hit last. No export holds more flows than the table may: where others come for those that went
    /// after their step, the last of them are left out.
    ///
    /// ```
    /// use netbricks_tables::{FlowTable, FlowTableConfig, Table};
    ///
    /// let mut flows: FlowTable<u32, u32> = FlowTable::new(FlowTableConfig::new(10_000))?;
    /// flows.lookup_bulk(&[1, 2, 3], 0, |at, entry| { entry.or_insert_with(|| at as u32); });
    /// let (mut bytes, mut next) = (Vec::new(), Some(0));
    /// while let Some(slot) = next {
    ///     next = flows.encode_step(slot, &mut bytes);
    ///     // Packets may be looked up here.
    /// }
    /// FlowTable::<u32, u32>::encode_end(&mut bytes);
    /// let mut whole = Vec::new();
    /// flows.encode(&mut whole);
    /// assert_eq!(bytes, whole);
    /// # Ok::<(), netbricks_tables::TableError>(())
    /// ```
    pub fn encode_step(&self, slot: usize, to: &mut Vec<u8>) -> Option<usize> {
        if to.is_empty() {
            Self::begin_image(to);
        }
        // While flows move in from another table, a step has all of them: a flow might move to a slot that was passed.
        let step = if self.before.is_some() { usize::MAX } else { STEP };
        let end = self.slots.len().min(slot.saturating_add(step));
        for index in slot..end {
            if (to.len() - Self::HEADER) / Self::RECORD == self.capacity() {
                return None;
            }
            if self.slots.get(index).is_some_and(|slot| slot.is_live() && !self.clock.is_over(slot)) {
                self.export_slot(index, &mut |_| true, &mut |key, value, age, timeout| {
                    Self::record(to, key, value, age, timeout);
                });
            }
        }
        if let Some(before) = &self.before {
            before.export(&mut |key, value, age, timeout| Self::record(to, key, value, age, timeout));
        }
        (end < self.slots.len()).then_some(end)
    }

    /// Takes flows out as [`take_where`](Self::take_where), of 512 slots from `slot` on.
    ///
    /// Each step makes an image of its own, or none where no flow leaves. The first begins at slot 0. Returns where the
    /// next step begins, or `None` after the last.
    pub fn take_step(
        &mut self,
        slot: usize,
        to: &mut Vec<u8>,
        chosen: impl FnMut(&K) -> bool,
    ) -> Option<usize> {
        if self.move_on(STEP) {
            return Some(slot);
        }
        let end = self.slots.len().min(slot.saturating_add(STEP));
        let start = to.len();
        if self.take_between(slot.min(end)..end, to, chosen) == 0 {
            to.truncate(start);
        }
        (end < self.slots.len()).then_some(end)
    }

    /// Ends what steps have written.
    pub fn encode_end(to: &mut Vec<u8>) {
        Self::end_image(to, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::flow::FlowTableConfig;
    use crate::table::Table;

    type Flows = FlowTable<u64, u64>;

    fn put(flows: &mut Flows, key: u64, value: u64) {
        if let Some(place) = flows.lookup(key, 0).or_insert_with(|| value) {
            *place = value;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Keys below 1,000 stay; all others come, go and change between the steps.
        #[test]
        fn staying_flows_are_exported_once_and_whole_despite_changes(
            changes in prop::collection::vec((0u64..4_000, any::<bool>()), 0..400),
            each in 1usize..40,
        ) {
            let mut flows = Flows::new(FlowTableConfig::new(4_096)).unwrap();
            (0..2_000).for_each(|key| put(&mut flows, key, key));
            let mut possible: BTreeMap<u64, Vec<u64>> = (0..2_000).map(|key| (key, vec![key])).collect();
            let (mut bytes, mut next, mut steps) = (Vec::new(), Some(0), 0);
            let mut changes = changes.chunks(each);
            while let Some(slot) = next {
                next = flows.encode_step(slot, &mut bytes);
                steps += 1;
                for (number, (key, stays)) in changes.next().unwrap_or_default().iter().enumerate() {
                    match key {
                        0..1_000 => {}
                        _ if *stays => {
                            let value = key + 10_000 * (steps + number as u64);
                            put(&mut flows, *key, value);
                            possible.entry(*key).or_default().push(value);
                        }
                        _ => drop(flows.remove(key)),
                    }
                }
            }
            Flows::encode_end(&mut bytes);
            prop_assert!(steps > 4);
            let mut taken = Flows::new(FlowTableConfig::new(8_192)).unwrap();
            let count = taken.decode(&bytes, 0).unwrap();
            prop_assert!(count >= taken.len());
            let mut times = [0; 1_000];
            for (key, ..) in Flows::records(&bytes).unwrap() {
                times.get_mut(key as usize).into_iter().for_each(|times| *times += 1);
            }
            prop_assert!(times.iter().all(|times| *times == 1));
            for key in 0..1_000 {
                prop_assert_eq!(taken.get(&key), Some(&key));
            }
            for (key, value) in &taken {
                prop_assert!(possible.get(&key).is_some_and(|values| values.contains(value)), "{} {}", key, value);
            }
        }
    }

    impl Flows {
        /// Keys of what steps have written so far.
        fn written(bytes: &[u8]) -> Vec<u64> {
            let mut whole = bytes.to_vec();
            Self::encode_end(&mut whole);
            Self::records(&whole).unwrap().into_iter().map(|(key, ..)| key).collect()
        }
    }

    #[test]
    fn a_full_table_whose_flows_change_between_steps_is_taken_in_again() {
        let mut flows = Flows::new(FlowTableConfig::new(4_096)).unwrap();
        (0..4_096).for_each(|key| put(&mut flows, key, key));
        let (mut bytes, mut next, mut new) = (Vec::new(), Some(0), 10_000);
        while let Some(slot) = next {
            next = flows.encode_step(slot, &mut bytes);
            // Some flows that are written already are removed, and others are added, wherever there is room.
            let gone: Vec<u64> = Flows::written(&bytes).into_iter().rev().take(200).collect();
            for key in gone {
                if flows.remove(&key).is_some() {
                    put(&mut flows, new, new);
                    new += 1;
                }
            }
        }
        Flows::encode_end(&mut bytes);
        let mut taken = Flows::new(FlowTableConfig::new(4_096)).unwrap();
        assert_eq!(taken.decode(&bytes, 0).unwrap(), 4_096);
    }

    #[test]
    fn a_step_takes_no_more_room_than_it_says() {
        let mut flows = Flows::new(FlowTableConfig::new(4_096)).unwrap();
        (0..4_096).for_each(|key| put(&mut flows, key, key));
        let (mut bytes, mut next) = (Vec::new(), Some(0));
        while let Some(slot) = next {
            let before = bytes.len();
            next = flows.encode_step(slot, &mut bytes);
            assert!(bytes.len() - before <= Flows::STEP_BYTES);
        }
        Flows::encode_end(&mut bytes);
        let mut whole = Vec::new();
        flows.encode(&mut whole);
        assert_eq!(bytes, whole);
    }

    /// Flows that leave in steps are those that leave at once, each once, and the others stay.
    #[test]
    fn flows_leave_in_steps_as_they_leave_at_once() {
        let filled = || {
            let mut flows = Flows::new(FlowTableConfig::new(5_000)).unwrap();
            (0..4_000).for_each(|key| put(&mut flows, key, key * 3));
            flows
        };
        let chosen = |key: &u64| key.is_multiple_of(7);
        let (mut steps, mut whole) = (filled(), filled());
        let mut all = Vec::new();
        assert_eq!(whole.take_where(&mut all, chosen), 572);
        let (mut here, mut there) = (Vec::new(), Flows::new(FlowTableConfig::new(5_000)).unwrap());
        let (mut next, mut count) = (Some(0), 0);
        while let Some(slot) = next {
            here.clear();
            next = steps.take_step(slot, &mut here, chosen);
            if !here.is_empty() {
                count += there.admit(&here, 0).unwrap();
            }
        }
        assert_eq!((count, there.len(), steps.len()), (572, 572, whole.len()));
        let mut expected = Flows::new(FlowTableConfig::new(5_000)).unwrap();
        expected.admit(&all, 0).unwrap();
        let sorted =
            |flows: &Flows| flows.iter().map(|(key, value)| (key, *value)).collect::<BTreeMap<_, _>>();
        assert_eq!((sorted(&there), sorted(&steps)), (sorted(&expected), sorted(&whole)));
        here.clear();
        assert_eq!(steps.take_step(1 << 20, &mut here, chosen), None, "beyond the end");
        assert!(here.is_empty());
    }
}
