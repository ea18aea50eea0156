//! A ring of recent items, and the form in which it and [counters](crate::CounterArray) are exported.

use std::collections::VecDeque;

use crate::flow::Encode;
use crate::memory::{MemoryError, reserved};
use crate::shared::Changing;

/// Why exported items or counters were refused; what was there is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no exported {what}: {problem}: export them with the same version of the function")]
pub struct ImageError {
    /// "items" or "counters".
    pub what: &'static str,
    /// The fault in the bytes.
    pub problem: String,
}

/// The latest items, each with the time of its coming; the oldest gives its place to the newest.
///
/// ```
/// use netbricks_tables::{Changing, RingLog, RecentItem};
///
/// let mut recent: RingLog<u32> = RingLog::new(2, Some(1_000));
/// for (now, item) in [(0, 7), (10, 8), (500, 9)] {
///     recent.apply(&RecentItem { now, lifetime: None, item });
/// }
/// assert_eq!(recent.iter(500).collect::<Vec<_>>(), [(500, 9), (10, 8)]); // newest first
/// assert_eq!(recent.iter(1_400).collect::<Vec<_>>(), [(500, 9)]); // the other one is 1,000 ns old
/// assert_eq!((recent.len(), recent.evicted()), (2, 1));
/// recent.apply(&RecentItem { now: 1_400, lifetime: Some(50), item: 1 });
/// assert_eq!(recent.iter(1_460).collect::<Vec<_>>(), [(500, 9)]); // its own time is over
/// ```
#[derive(Clone, Debug)]
pub struct RingLog<T> {
    /// Oldest first.
    items: VecDeque<Kept<T>>,
    capacity: usize,
    timeout: u64,
    evicted: u64,
    expired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kept<T> {
    came: u64,
    /// When it ends (ns); `u64::MAX` is never.
    ends: u64,
    item: T,
}

/// An item on its way into a [`RingLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentItem<T> {
    /// When it came (ns).
    pub now: u64,
    /// How long it stays (ns), where that is not the ring's timeout.
    pub lifetime: Option<u64>,
    /// The item.
    pub item: T,
}

impl<T: Copy> RingLog<T> {
    /// A ring for `capacity` items (1 at least).
    ///
    /// Items end `timeout` ns after they came (`None`: never), unless they have their own lifetime.
    #[must_use]
    pub fn new(capacity: usize, timeout: Option<u64>) -> Self {
        Self::over(Vec::with_capacity(capacity.max(1)), capacity, timeout)
    }

    /// As [`new`](Self::new), where there may be no memory for so many.
    ///
    /// # Errors
    /// When the machine has less than that, or the kernel refuses it.
    pub fn try_new(capacity: usize, timeout: Option<u64>) -> Result<Self, MemoryError> {
        Ok(Self::over(reserved(capacity.max(1))?, capacity, timeout))
    }

    fn over(items: Vec<Kept<T>>, capacity: usize, timeout: Option<u64>) -> Self {
        let (capacity, timeout) = (capacity.max(1), timeout.unwrap_or(u64::MAX));
        Self { items: items.into(), capacity, timeout, evicted: 0, expired: 0 }
    }

    /// The items that are not expired at `now` (ns), with their times, newest first.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = (u64, T)> {
        self.items.iter().rev().filter(move |kept| now < kept.ends).map(|kept| (kept.came, kept.item))
    }

    /// Items in the ring, including expired ones whose place is not yet taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The most items held at a time.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Items that gave their place to newer ones before they were expired.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Items that ended by age.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Inserts an item that came at `now` (ns) and stays for the ring's timeout; removes one or two old ones.
    ///
    /// Workers' clocks may differ. An item that came before the last one counts as if it had come with that, so that
    /// none hides behind an older one.
    pub fn push(&mut self, now: u64, item: T) {
        self.push_for(now, self.timeout, item);
    }

    /// Inserts as [`push`](Self::push), an item that stays for `lifetime` ns (`u64::MAX`: as long as there is room).
    ///
    /// Where it ends before an earlier item, its place is free when that one has gone.
    pub fn push_for(&mut self, now: u64, lifetime: u64, item: T) {
        let came = self.items.back().map_or(now, |last| now.max(last.came));
        // Two a push: expired ones leave faster than new ones come.
        for _ in 0..2 {
            if self.items.front().is_some_and(|oldest| oldest.ends <= came) {
                self.items.pop_front();
                self.expired += 1;
            }
        }
        if self.items.len() == self.capacity {
            self.items.pop_front();
            self.evicted += 1;
        }
        self.items.push_back(Kept { came, ends: came.saturating_add(lifetime), item });
    }
}

impl<T: Copy + Encode> RingLog<T> {
    /// The items in a form that [`decode`](Self::decode) reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let items = self.items.iter().map(|kept| {
            let mut record = vec![0; TIMES + T::SIZE];
            let (times, item) = record.split_at_mut(TIMES);
            (kept.came, kept.ends).encode(times);
            kept.item.encode(item);
            record
        });
        seal(*b"NBRI", T::VERSION, TIMES + T::SIZE, items)
    }

    /// Replaces all items by exported ones, the newest if there are more than it has room for.
    ///
    /// Times of a clock that is ahead of `now` (ns) are put back, so that the newest comes now.
    ///
    /// # Errors
    /// When the bytes are no whole export of such items.
    pub fn decode(&mut self, bytes: &[u8], now: u64) -> Result<usize, ImageError> {
        let refused = |problem: &str| ImageError { what: "items", problem: problem.into() };
        let records =
            open(*b"NBRI", T::VERSION, TIMES + T::SIZE, bytes).map_err(|problem| refused(&problem))?;
        let mut items = VecDeque::with_capacity(self.capacity);
        let surplus = records.len().saturating_sub(self.capacity);
        for record in records.into_iter().skip(surplus) {
            let (times, item) = record.split_at(TIMES);
            let parts = <(u64, u64)>::decode(times).zip(T::decode(item));
            let ((came, ends), item) = parts.ok_or_else(|| refused("one is none of this type"))?;
            if came > ends || items.back().is_some_and(|last: &Kept<T>| came < last.came) {
                return Err(refused("they are not in the order of their coming"));
            }
            items.push_back(Kept { came, ends, item });
        }
        let ahead = items.back().map_or(0, |newest| newest.came.saturating_sub(now));
        for kept in &mut items {
            // Items from before that clock began are as old as possible.
            kept.came = kept.came.saturating_sub(ahead);
            if kept.ends < u64::MAX {
                kept.ends = kept.ends.saturating_sub(ahead);
            }
        }
        self.items = items;
        Ok(self.items.len())
    }
}

impl<T: Copy + Send + 'static> Changing for RingLog<T> {
    type Change = RecentItem<T>;
    type Outcome = ();
    fn apply(&mut self, RecentItem { now, lifetime, item }: &RecentItem<T>) {
        self.push_for(*now, lifetime.unwrap_or(self.timeout), *item);
    }
}

/// Bytes of an exported item's times.
const TIMES: usize = 16;
/// Magic, version and bytes of a record, number of records; the records; the CRC-32 of all before it.
const HEADER: usize = 4 + 2 + 4 + 8;

pub(crate) fn seal(
    magic: [u8; 4],
    version: u16,
    size: usize,
    records: impl Iterator<Item = Vec<u8>>,
) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend((size as u32).to_be_bytes());
    bytes.extend([0; 8]);
    let mut count = 0u64;
    for record in records {
        bytes.extend(record);
        count += 1;
    }
    bytes[HEADER - 8..HEADER].copy_from_slice(&count.to_be_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_be_bytes());
    bytes
}

/// The records of what [`seal`] made.
pub(crate) fn open(magic: [u8; 4], version: u16, size: usize, bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    let (checked, checksum) = bytes.split_last_chunk::<4>().ok_or("the bytes are cut short")?;
    if crc32fast::hash(checked) != u32::from_be_bytes(*checksum) {
        return Err("the bytes were changed on their way: their checksum is wrong".into());
    }
    let (header, records) = checked.split_at_checked(HEADER).ok_or("the bytes are cut short")?;
    let form = <([u8; 4], u16, u32, u64)>::decode(header).ok_or("the bytes are cut short")?;
    let (found_magic, found_version, found_size, count) = form;
    if found_magic != magic {
        return Err(format!("they begin with {found_magic:02x?} and not {magic:02x?}"));
    }
    if (found_version, found_size as usize) != (version, size) {
        return Err(format!(
            "they are version {found_version} of {found_size} bytes each, here version {version} of {size}"
        ));
    }
    if count.checked_mul(size as u64) != Some(records.len() as u64) {
        return Err(format!("{count} of {size} bytes each are said to be in {} bytes", records.len()));
    }
    Ok(records.chunks_exact(size.max(1)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list that forgets nothing.
        #[test]
        fn a_ring_is_the_end_of_what_came(
            capacity in 1usize..20,
            timeout in prop_oneof![Just(None), (1u64..100).prop_map(Some)],
            steps in prop::collection::vec(0u64..30, 0..100),
        ) {
            let (mut recent, mut all, mut now) = (RingLog::new(capacity, timeout), Vec::new(), 0);
            for (item, step) in (0u32..).zip(steps) {
                now += step;
                recent.push(now, item);
                all.push((now, item));
                let fresh = all.iter().rev().take(capacity).filter(|(time, _)| timeout.is_none_or(|t| now - time < t));
                prop_assert_eq!(recent.iter(now).collect::<Vec<_>>(), fresh.copied().collect::<Vec<_>>());
                let gone = recent.evicted() + recent.expired();
                prop_assert_eq!(gone + recent.len() as u64, all.len() as u64);
            }
            let mut other = RingLog::new(capacity, timeout);
            prop_assert_eq!(other.decode(&recent.encode(), now), Ok(recent.len()));
            prop_assert!(other.iter(now).eq(recent.iter(now)));
            // At a clock that is behind they are as old as they were, or as old as the clock.
            let behind = now / 2;
            prop_assert_eq!(other.decode(&recent.encode(), behind), Ok(recent.len()));
            let latest = recent.items.back().map_or(0, |kept| kept.came);
            let back = latest.saturating_sub(behind);
            let expected = recent.iter(latest).map(|(time, item)| (time.saturating_sub(back), item));
            prop_assert!(other.iter(latest - back).eq(expected));
        }

        /// Items with times of their own, against a list that forgets nothing.
        #[test]
        fn each_item_stays_for_its_own_time(
            steps in prop::collection::vec((0u64..30, prop::option::of(1u64..100)), 0..60),
        ) {
            let (mut recent, mut all, mut now) = (RingLog::new(8, Some(50)), Vec::new(), 0);
            for (item, (step, lifetime)) in (0u32..).zip(steps) {
                now += step;
                recent.apply(&RecentItem { now, lifetime, item });
                all.push((now, lifetime.unwrap_or(50), item));
                let last = all.iter().rev().take(8);
                let fresh = last.filter(|(came, lifetime, _)| now - came < *lifetime).map(|(came, _, item)| (*came, *item));
                let there: Vec<_> = recent.iter(now).collect();
                prop_assert_eq!(there, fresh.collect::<Vec<_>>());
                prop_assert!(recent.len() <= 8);
                prop_assert_eq!(recent.evicted() + recent.expired() + recent.len() as u64, all.len() as u64);
            }
        }

        /// Where workers' clocks differ, an item stays for its time at least, independently of the items beside it.
        #[test]
        fn none_hides_behind_one_of_a_slower_clock(times in prop::collection::vec(0u64..300, 1..40)) {
            let mut recent = RingLog::new(64, Some(100));
            times.iter().zip(0u32..).for_each(|(time, item)| recent.push(*time, item));
            let latest = times.iter().copied().max().unwrap_or_default();
            let there: Vec<u32> = recent.iter(latest).map(|(_, item)| item).collect();
            for (time, item) in times.iter().zip(0u32..) {
                prop_assert!(latest - time >= 100 || there.contains(&item), "{} at {}", item, time);
            }
        }

        /// No byte can be changed, nor the end be cut off, without being noticed.
        #[test]
        fn a_changed_image_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
            let mut recent = RingLog::new(5, None);
            recent.push(2, 77u32);
            let mut bytes = recent.encode();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            prop_assert!(recent.decode(&bytes, 2).is_err());
            prop_assert_eq!(recent.iter(2).collect::<Vec<_>>(), [(2, 77)]);
        }
    }

    #[test]
    fn images_of_another_kind_are_refused() {
        let mut items = RingLog::<u64>::new(4, None);
        let counters = crate::CounterArray::new(5).encode();
        assert!(items.decode(&counters, 0).unwrap_err().problem.contains("begin with"));
        let mut short = RingLog::<u32>::new(4, None);
        short.push(1, 2);
        assert!(
            items
                .decode(&short.encode(), 1)
                .unwrap_err()
                .problem
                .contains("version 0 of 20 bytes each, here")
        );
        // Times that go back, under a right checksum.
        let record =
            |came: u64| [&came.to_be_bytes()[..], &u64::MAX.to_be_bytes(), &7u64.to_be_bytes()].concat();
        let unsorted = seal(*b"NBRI", u64::VERSION, TIMES + 8, [record(5), record(4)].into_iter());
        assert!(items.decode(&unsorted, 9).unwrap_err().problem.contains("order of their coming"));
        assert!(items.is_empty());
        assert!(items.decode(b"", 0).unwrap_err().problem.contains("cut short"));
    }
}
