//! A hierarchical timer wheel over indices, for things in numbered places that fall due.
//!
//! Filing, cancelling and each step of advancing cost a bounded amount, however many timers there are.

use std::hint::cold_path;

use crate::memory::{HugeArray, MemoryError, Zeroable};

/// Timers numbered `0..timers`, each filed at most once, with deadlines in ticks of the caller's choosing.
///
/// Levels have 64 slots each (Varghese and Lauck, SOSP 1987). A slot of level 0 is one tick, a slot of level `n` is
/// `64ⁿ` ticks, and 11 levels cover every `u64`. A timer starts as high as its distance asks and moves down as its time
/// comes near. Timers move one at a time, so [`advance`](Self::advance) can stop after any number of them and continue
/// later.
///
/// Costs 16 bytes a timer and 11 KiB.
///
/// ```
/// use netbricks_tables::TimerWheel;
///
/// let mut wheel = TimerWheel::new(3)?;
/// wheel.insert(0, 10);
/// wheel.insert(2, 1_000);
/// let mut due = Vec::new();
/// wheel.advance(500, 64, |timer| { due.push(timer); None });
/// assert_eq!(due, [0]);
/// # Ok::<(), netbricks_tables::MemoryError>(())
/// ```
pub struct TimerWheel {
    /// Heads of the slots' circular lists first (node 0 unused), then the timers.
    nodes: HugeArray<Node>,
    /// By level, one bit for each slot that isn't empty.
    occupied: [u64; LEVELS],
    /// One bit for each level that isn't empty.
    levels: u32,
    /// No timer was left behind before this tick.
    elapsed: u64,
    /// Before this tick there is nothing to do: at most the start of the first slot that isn't empty.
    idle_until: u64,
    len: usize,
    recent: RingLog,
}

/// Where the last timer was linked: many new ones have the deadline of the one before.
#[derive(Clone, Copy, Default)]
struct RingLog {
    deadline: u64,
    elapsed: u64,
    /// The slot's head, which is not empty; 0 for none.
    head: usize,
}

const LEVELS: usize = 11;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The node of timer 0: after the unused one and the heads.
const FIRST: usize = 1 + LEVELS * SLOTS;
const UNFILED: u32 = 0;

#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    next: u32,
    previous: u32,
    deadline: u64,
}
// SAFETY: integers, without drop.
unsafe impl Zeroable for Node {}

impl TimerWheel {
    /// The most timers that a wheel can hold.
    pub const MAXIMUM: usize = u32::MAX as usize - FIRST;

    /// A wheel for `timers` timers, none of them filed, at tick 0.
    ///
    /// # Errors
    /// When the memory (16 bytes a timer) can't be had, or there are more than [`Self::MAXIMUM`] timers.
    pub fn new(timers: usize) -> Result<Self, MemoryError> {
        let nodes = if timers > Self::MAXIMUM { usize::MAX } else { timers + FIRST };
        let mut wheel = Self {
            nodes: HugeArray::zeroed(nodes)?,
            occupied: [0; LEVELS],
            levels: 0,
            elapsed: 0,
            idle_until: u64::MAX,
            len: 0,
            recent: RingLog::default(),
        };
        wheel.clear_heads();
        Ok(wheel)
    }

    /// How many timers are filed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is filed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }

    /// Bytes of memory that a wheel of so many timers takes.
    #[must_use]
    pub const fn bytes_for(timers: usize) -> usize {
        timers.saturating_add(FIRST).saturating_mul(size_of::<Node>())
    }

    /// How many timers there can be.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.nodes.len() - FIRST
    }

    /// The tick that [`advance`](Self::advance) has reached: at most its `now`, and less while timers are left over.
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// The deadline that `timer` is filed for, in ticks; `None` when it isn't filed.
    ///
    /// # Panics
    /// When there is no such timer.
    #[must_use]
    pub fn deadline(&self, timer: usize) -> Option<u64> {
        let node = &self.nodes[timer + FIRST];
        (node.next != UNFILED).then_some(node.deadline)
    }

    /// Files `timer` for `deadline` (ticks); a timer that is filed already moves.
    ///
    /// A deadline in the past is due at the next [`advance`](Self::advance).
    ///
    /// # Panics
    /// When there is no such timer.
    pub fn insert(&mut self, timer: usize, deadline: u64) {
        self.remove(timer);
        self.len += 1;
        self.link(timer + FIRST, deadline);
    }

    /// Files `timer` for `deadline` (ticks), unless it is filed already for that tick or an earlier one.
    ///
    /// # Panics
    /// When there is no such timer.
    #[inline(always)]
    pub(crate) fn insert_earlier(&mut self, timer: usize, deadline: u64) {
        let node = &self.nodes[timer + FIRST];
        if node.next == UNFILED || node.deadline > deadline {
            cold_path();
            self.refile(timer, deadline);
        }
    }

    #[inline(never)]
    fn refile(&mut self, timer: usize, deadline: u64) {
        self.insert(timer, deadline);
    }

    /// Where `timer` is kept, for asking for that memory.
    #[inline(always)]
    pub(crate) fn address(&self, timer: usize) -> *const u8 {
        self.nodes.start().as_ptr().cast_const().wrapping_add(timer.wrapping_add(FIRST)).cast()
    }

    /// Takes `timer` off the wheel; whether it was on it.
    ///
    /// # Panics
    /// When there is no such timer.
    pub fn remove(&mut self, timer: usize) -> bool {
        let filed = self.nodes[timer + FIRST].next != UNFILED;
        if filed {
            self.unlink(timer + FIRST);
            self.len -= 1;
        }
        filed
    }

    /// Advances to tick `now`, visiting at most `budget` timers; returns how many were visited.
    ///
    /// It calls `fire` with each timer whose deadline has come, in no promised order. `fire` may file its timer again
    /// by returning the next deadline. A timer that was put off many times thus costs one visit a period.
    ///
    /// A visited timer moved nearer or fired. When fewer than `budget` were visited, none is left that is due at `now`.
    /// Time that goes backwards is ignored.
    #[inline(always)]
    pub fn advance(&mut self, now: u64, budget: usize, fire: impl FnMut(usize) -> Option<u64>) -> usize {
        if now < self.idle_until && budget > 0 {
            self.elapsed = self.elapsed.max(now);
            return 0;
        }
        self.visit(now, budget, fire)
    }

    /// Whether [`advance`](Self::advance) to tick `now` may have anything to do.
    #[inline(always)]
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.idle_until
    }

    /// As [`advance`](Self::advance), where something may be due.
    fn visit(&mut self, now: u64, budget: usize, mut fire: impl FnMut(usize) -> Option<u64>) -> usize {
        let mut visited = 0;
        while visited < budget {
            let earliest = self.earliest();
            let Some((head, start)) = earliest.filter(|(_, start)| *start <= now) else {
                self.elapsed = self.elapsed.max(now);
                self.idle_until = earliest.map_or(u64::MAX, |(_, start)| start);
                break;
            };
            // Timers that stay in a half-drained slot of a higher level keep it the earliest until it is empty, since
            // its start is not after `elapsed`.
            self.elapsed = self.elapsed.max(start);
            visited += 1;
            let id = self.nodes[head].next as usize;
            let deadline = self.nodes[id].deadline;
            self.unlink(id);
            if deadline > now {
                self.link(id, deadline);
                continue;
            }
            self.len -= 1;
            if let Some(again) = fire(id - FIRST) {
                self.len += 1;
                self.link(id, again);
            }
        }
        visited
    }

    /// The first tick at which [`advance`](Self::advance) has anything to do; `None` when no timer is filed.
    ///
    /// It is never later than the earliest deadline, and earlier only when a timer has to move nearer first.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.earliest().map(|(_, start)| start)
    }

    /// The timer with the first deadline, and that deadline; `None` when no timer is filed.
    ///
    /// It looks at up to `budget` of those in the first slot of each level. It is the first of all timers where there
    /// are no more than that.
    pub(crate) fn first(&self, mut budget: usize) -> Option<(usize, u64)> {
        let mut first: Option<(usize, u64)> = None;
        // From below: what is filed there is near, and in a slot of level 0 hardly two deadlines differ.
        for level in (0..LEVELS).filter(|level| self.levels >> level & 1 == 1) {
            let head = 1 + level * SLOTS + self.occupied[level].trailing_zeros() as usize;
            let mut id = self.nodes[head].next as usize;
            while id != head && budget > 0 {
                budget -= 1;
                let Node { next, deadline, .. } = self.nodes[id];
                if first.is_none_or(|(_, earliest)| deadline < earliest) {
                    first = Some((id - FIRST, deadline));
                }
                id = next as usize;
            }
        }
        first
    }

    /// Takes all timers off. Work: all timers.
    pub fn clear(&mut self) {
        self.nodes[FIRST..].fill(Node { next: UNFILED, previous: UNFILED, deadline: 0 });
        self.occupied = [0; LEVELS];
        self.levels = 0;
        self.idle_until = u64::MAX;
        self.len = 0;
        self.recent = RingLog::default();
        self.clear_heads();
    }

    fn clear_heads(&mut self) {
        for head in 1..FIRST {
            self.nodes[head] = Node { next: head as u32, previous: head as u32, deadline: 0 };
        }
    }

    /// The head of the slot that has to be seen to first, and the tick at which its time begins.
    #[inline]
    fn earliest(&self) -> Option<(usize, u64)> {
        let mut earliest: Option<(usize, u64)> = None;
        let mut levels = self.levels;
        while levels != 0 {
            let level = levels.trailing_zeros();
            levels &= levels - 1;
            // All slots of a level lie in the same turn of the level above as `elapsed`, none before it, so that the
            // first bit is the first slot.
            let slot = self.occupied[level as usize].trailing_zeros();
            let shift = SLOT_BITS * level;
            let above = shift + SLOT_BITS;
            let turn = if above >= u64::BITS { 0 } else { self.elapsed >> above << above };
            let start = turn | u64::from(slot) << shift;
            // Of two slots that begin together the higher level comes first: its timers may belong before the
            // other's.
            if earliest.is_none_or(|(_, other)| start <= other) {
                earliest = Some((1 + level as usize * SLOTS + slot as usize, start));
            }
        }
        earliest
    }

    #[inline(always)]
    fn link(&mut self, id: usize, deadline: u64) {
        let RingLog { head, .. } = self.recent;
        let same = self.recent.deadline == deadline && self.recent.elapsed == self.elapsed;
        let head = if same && head != 0 { head } else { self.head(deadline) };
        let last = self.nodes[head].previous;
        self.nodes[id] = Node { next: head as u32, previous: last, deadline };
        self.nodes[last as usize].next = id as u32;
        self.nodes[head].previous = id as u32;
    }

    /// The head of the slot for a deadline, which is about to get a timer.
    #[inline(never)]
    fn head(&mut self, deadline: u64) -> usize {
        let place = deadline.max(self.elapsed);
        let level = (place ^ self.elapsed).checked_ilog2().unwrap_or(0) / SLOT_BITS;
        let shift = SLOT_BITS * level;
        let slot = (place >> shift) as usize % SLOTS;
        self.idle_until = self.idle_until.min(place >> shift << shift);
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
        let head = 1 + level as usize * SLOTS + slot;
        self.recent = RingLog { deadline, elapsed: self.elapsed, head };
        head
    }

    fn unlink(&mut self, id: usize) {
        let Node { next, previous, .. } = self.nodes[id];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        self.nodes[id].next = UNFILED;
        // A list whose two neighbours are one node has only its head left.
        if next == previous && (next as usize) < FIRST {
            let (level, slot) = ((next as usize - 1) / SLOTS, (next as usize - 1) % SLOTS);
            self.recent.head = 0;
            self.occupied[level] &= !(1 << slot);
            self.levels &= !(u32::from(self.occupied[level] == 0) << level);
        }
    }
}

impl std::fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerWheel")
            .field("len", &self.len)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize, u64),
        InsertEarlier(usize, u64),
        Remove(usize),
        Clear,
        /// By how far, budget, and whether timers divisible by the number file themselves again by how much.
        Advance(u64, usize, Option<(usize, u64)>),
    }

    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..5, 0u64..200, 0u64..100_000, any::<u64>().prop_map(|x| x >> 20), any::<u64>()]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0usize..40, span()).prop_map(|(timer, after)| Step::Insert(timer, after)),
            2 => (0usize..40, span()).prop_map(|(timer, after)| Step::InsertEarlier(timer, after)),
            4 => (0usize..40).prop_map(Step::Remove),
            1 => Just(Step::Clear),
            3 => (span(), 0usize..20, prop::option::of((1usize..4, 1u64..300)))
                .prop_map(|(by, budget, again)| Step::Advance(by, budget, again)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Against the obvious map from timer to deadline: never early, never forgotten, never more than the budget.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..80)) {
            let mut wheel = TimerWheel::new(40).unwrap();
            let mut map: BTreeMap<usize, u64> = BTreeMap::new();
            let mut now = 0u64;
            for step in steps {
                match step {
                    Step::Insert(timer, after) => {
                        wheel.insert(timer, now.saturating_add(after));
                        map.insert(timer, now.saturating_add(after));
                    }
                    Step::InsertEarlier(timer, after) => {
                        let deadline = now.saturating_add(after);
                        wheel.insert_earlier(timer, deadline);
                        map.entry(timer).and_modify(|filed| *filed = deadline.min(*filed)).or_insert(deadline);
                    }
                    Step::Clear => {
                        wheel.clear();
                        map.clear();
                    }
                    Step::Remove(timer) => prop_assert_eq!(wheel.remove(timer), map.remove(&timer).is_some()),
                    Step::Advance(by, budget, again) => {
                        now = now.saturating_add(by);
                        let mut early = None;
                        let visited = wheel.advance(now, budget, |timer| {
                            if map.remove(&timer).is_none_or(|deadline| deadline > now) {
                                early = Some(timer);
                            }
                            let next = again.filter(|(of, _)| timer % of == 0).map(|(_, by)| now.saturating_add(by));
                            if let Some(next) = next { map.insert(timer, next); }
                            next
                        });
                        prop_assert_eq!(early, None, "fired early or twice");
                        prop_assert!(visited <= budget);
                        if visited < budget {
                            prop_assert!(map.values().all(|deadline| *deadline > now), "forgotten: {map:?} at {now}");
                        }
                    }
                }
                prop_assert_eq!(wheel.len(), map.len());
                prop_assert!(wheel.next_deadline().is_none_or(|start| wheel.idle_until <= start));
                for timer in 0..40 {
                    prop_assert_eq!(wheel.deadline(timer), map.get(&timer).copied());
                }
                prop_assert_eq!(wheel.first(40).map(|(_, deadline)| deadline), map.values().min().copied());
                prop_assert!(wheel.first(40).is_none_or(|(timer, deadline)| map[&timer] == deadline));
                let some = wheel.first(1);
                prop_assert_eq!(some.is_some(), !map.is_empty());
                prop_assert!(some.is_none_or(|(timer, deadline)| map[&timer] == deadline));
                match (wheel.next_deadline(), map.values().min()) {
                    (Some(next), Some(earliest)) => prop_assert!(next <= *earliest),
                    (next, earliest) => prop_assert_eq!(next.is_none(), earliest.is_none()),
                }
            }
            // All timers that are left fire in the end, each once.
            let mut left: BTreeSet<usize> = map.keys().copied().collect();
            while wheel.advance(u64::MAX, 7, |timer| { assert!(left.remove(&timer)); None }) > 0 {}
            prop_assert!(left.is_empty() && wheel.is_empty());
        }
    }

    #[test]
    fn a_million_due_at_once_are_taken_64_at_a_time() {
        const TIMERS: usize = 1_000_000;
        let mut wheel = TimerWheel::new(TIMERS).unwrap();
        for timer in 0..TIMERS {
            wheel.insert(timer, 5_000_000);
        }
        let mut fired = vec![false; TIMERS];
        let mut calls = 0;
        let mut now = 4_999_000;
        loop {
            let early = now < 5_000_000;
            let visited = wheel.advance(now, 64, |timer| {
                assert!(!early && !std::mem::replace(&mut fired[timer], true));
                None
            });
            assert!(visited <= 64);
            calls += 1;
            now += 1;
            if wheel.is_empty() {
                break;
            }
        }
        assert!(fired.iter().all(|fired| *fired));
        // Each timer is moved at most once a level.
        assert!(calls <= TIMERS * LEVELS / 64, "{calls}");
    }

    #[test]
    fn clearing_leaves_a_usable_wheel() {
        let mut wheel = TimerWheel::new(10).unwrap();
        (0..10).for_each(|timer| wheel.insert(timer, 3));
        wheel.clear();
        assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
        wheel.insert(4, 1);
        let mut due = vec![];
        wheel.advance(9, 9, |timer| {
            due.push(timer);
            None
        });
        assert_eq!(due, [4]);
    }

    #[test]
    fn too_many_timers_are_an_error() {
        assert!(TimerWheel::new(usize::MAX).is_err());
        assert!(TimerWheel::new(TimerWheel::MAXIMUM + 1).is_err());
    }
}
