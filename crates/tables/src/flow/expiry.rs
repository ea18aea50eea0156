//! Expiry of flows: time in ticks, lazily re-armed timers, and a bounded share of the work with each operation.

use super::slots::{NEVER, Slot};
use super::{Cursor, FlowTable, MAXIMUM_WORK};
use crate::group::{FREE, Group, WIDTH};
use crate::hash::Key;
use crate::wheel::TimerWheel;

/// Neighbouring slots that share a timer, which is filed for the first of their ends or an earlier tick.
///
/// A new flow nearly always finds a suitable timer filed, and all timers together take little memory. It is half a
/// group, since the bound on a lookup's work has no room for a whole one.
pub(super) const TIMED: usize = WIDTH / 2;

/// A shortest idle timeout is this many (binary) ticks: late by at most 2⁻¹⁵ of it.
const TICK_BITS: u32 = 16;
/// A tick is never longer than 2²⁰ ns, about a millisecond.
const LONGEST_TICK_BITS: u32 = 20;
/// No timeout is longer, so that 32 bits tell ages apart.
const LONGEST_TIMEOUT: u32 = (1 << 31) - 1;

/// The table's time.
pub(super) struct Clock {
    /// The time, in ns, from which on `tick` is no more.
    pub(super) next_tick_at: u64,
    pub(super) tick: u64,
    /// Ticks of silences that it left out.
    skipped: u64,
    /// The longest timeout that there was, in ticks.
    longest: u32,
    /// A tick is two to this many ns.
    shift: u32,
}

impl Clock {
    pub(super) fn new(idle_timeout: Option<u64>) -> Self {
        let shift = idle_timeout.map_or(LONGEST_TICK_BITS, |timeout| {
            timeout.max(1).ilog2().saturating_sub(TICK_BITS).min(LONGEST_TICK_BITS)
        });
        Self { next_tick_at: 1 << shift, tick: 0, skipped: 0, longest: 1, shift }
    }

    /// The longest timeout that there was, in ticks.
    pub(super) fn longest(&self) -> u32 {
        self.longest
    }

    /// The length of a tick, as a power of two in ns.
    pub(super) fn pace(&self) -> u32 {
        self.shift
    }

    /// A timeout in ticks: never shorter than `timeout` ns, however the last hit and the tick fell.
    pub(super) fn ticks(&mut self, timeout: u64) -> u32 {
        let whole = timeout.div_ceil(1 << self.shift).saturating_add(u64::from(self.shift > 0));
        let ticks = u32::try_from(whole).unwrap_or(u32::MAX).clamp(1, LONGEST_TIMEOUT);
        self.longest = self.longest.max(ticks);
        ticks
    }

    /// The longest timeout (ns) of which [`ticks`](Self::ticks) would make `ticks`.
    ///
    /// A timeout that is exported and imported at the same tick length therefore stays the same.
    pub(super) fn exact_timeout(&self, ticks: u32) -> u64 {
        self.nanoseconds(u64::from(ticks - u32::from(self.shift > 0 && ticks > 1)))
    }

    /// Ticks in nanoseconds.
    pub(super) fn nanoseconds(&self, ticks: u64) -> u64 {
        if ticks.leading_zeros() < self.shift { u64::MAX } else { ticks << self.shift }
    }

    /// Nanoseconds in whole ticks.
    pub(super) fn whole_ticks(&self, nanoseconds: u64) -> u64 {
        nanoseconds >> self.shift
    }

    /// The tick of a time in ns.
    fn tick_at(&self, now: u64) -> u64 {
        self.whole_ticks(now).saturating_sub(self.skipped)
    }

    /// When a tick begins, in ns.
    pub(super) fn begins_at(&self, tick: u64) -> u64 {
        self.nanoseconds(tick.saturating_add(self.skipped))
    }

    /// Ticks since the slot's last hit (modulo 2³² for flows that never expire).
    #[inline(always)]
    pub(super) fn age<K: Key, V>(&self, slot: &Slot<K, V>) -> u32 {
        (self.tick as u32).wrapping_sub(slot.seen)
    }

    /// Whether the flow in `slot` is expired.
    #[inline(always)]
    pub(super) fn is_over<K: Key, V>(&self, slot: &Slot<K, V>) -> bool {
        self.age(slot) >= slot.timeout() && slot.timeout() != NEVER
    }

    /// Whether the flow in `slot` is expired at `now` (ns), if that is after the table's time.
    pub(super) fn is_over_at<K: Key, V>(&self, slot: &Slot<K, V>, now: u64) -> bool {
        let further = self.tick_at(now).saturating_sub(self.tick);
        let age = u64::from(self.age(slot)).saturating_add(further);
        age >= u64::from(slot.timeout()) && slot.timeout() != NEVER
    }

    /// The tick at which the flow in `slot` is over.
    #[inline(always)]
    fn end<K: Key, V>(&self, slot: &Slot<K, V>) -> Option<u64> {
        let left = slot.timeout().saturating_sub(self.age(slot));
        (slot.timeout() != NEVER).then(|| self.tick.saturating_add(u64::from(left)))
    }
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// Advances to `now` (ns) and ends flows that are due; returns how many.
    ///
    /// It looks at the slots of at most `budget` flows, rounded up to the 8 that share a timer, and never at more than
    /// [`MAXIMUM_WORK`]. A result of 0 does not mean that it is done: while [`is_due`](Self::is_due) returns true, call
    /// it again when there is time.
    ///
    /// A flow that was hit since its timer was set is not due any more. Its timer is set again here, not with each
    /// packet.
    pub fn expire(&mut self, now: u64, budget: usize) -> usize {
        self.expire_with(now, budget, |_, _| ())
    }

    /// As [`expire`](Self::expire), and gives each flow that ended to `ended`.
    #[inline]
    pub fn expire_with(&mut self, now: u64, budget: usize, mut ended: impl FnMut(K, V)) -> usize {
        self.expire_during(now, budget, Cursor::default(), |key, value, _| ended(key, value))
    }

    /// As [`expire_with`](Self::expire_with), during a walk: says whether the walk has been at the flow's place.
    #[inline]
    pub fn expire_during(
        &mut self,
        now: u64,
        budget: usize,
        walk: Cursor,
        mut ended: impl FnMut(K, V, bool),
    ) -> usize {
        self.turned = false;
        // Within a tick nothing becomes due: most batches come here.
        if now < self.clock.next_tick_at && !self.is_due() {
            return 0;
        }
        self.expire_due(now, budget, |slot, key, value| ended(key, value, walk.has_passed(slot)))
    }

    #[inline(never)]
    fn expire_due(&mut self, now: u64, budget: usize, ended: impl FnMut(usize, K, V)) -> usize {
        self.set_time(now);
        let count = self.visit_timers(budget.min(MAXIMUM_WORK).next_multiple_of(TIMED), ended);
        // Where it stood still because of timers that are gone now.
        self.set_time(now);
        count
    }

    /// Ends every flow that is over at time `now` (ns), however many there are.
    ///
    /// This is called before a table is listed. A table [without own expiry](Self::without_own_expiry) keeps
    /// its flows.
    pub fn expire_all(&mut self, now: u64) {
        if !self.expires_itself {
            return;
        }
        self.move_all();
        self.expire(now, MAXIMUM_WORK);
        while self.is_due() {
            self.expire(now, MAXIMUM_WORK);
        }
    }

    /// The time (ns) from which on [`expire`](Self::expire) has something to do, or `None` while no flow can expire.
    ///
    /// It is at most the end of every flow. It is earlier where flows were hit, changed their timeout or left since.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.wheel.next_deadline().map(|tick| self.clock.begins_at(tick))
    }

    /// Leaves every expiry to [`expire_with`](Self::expire_with) and [`Vacant::replace`](super::Vacant::replace).
    ///
    /// For values that stand for something that has to be given back. Otherwise lookups end a few flows by themselves
    /// whenever time has moved on.
    #[must_use]
    pub fn without_own_expiry(mut self) -> Self {
        self.stop_own_expiry();
        self
    }

    /// As [`without_own_expiry`](Self::without_own_expiry), of a table that is in its place already.
    pub fn stop_own_expiry(&mut self) {
        self.expires_itself = false;
    }

    /// A new tick has come.
    #[cold]
    #[inline(never)]
    pub(super) fn turn(&mut self, now: u64) {
        self.set_time(now);
        self.turned = self.expires_itself;
        if self.turned {
            self.visit_timers(TIMED, |_, _, _| ());
            self.set_time(now);
        }
    }

    /// Sets the time.
    ///
    /// After a silence in which every flow with a timeout ends, time beyond the longest timeout is left out. So only
    /// very many silences bring the time so far ahead of the timers that 32 bits cannot compare ages. The time then
    /// stands still until timers were visited.
    pub(super) fn set_time(&mut self, now: u64) {
        let Self { wheel, clock, .. } = self;
        if wheel.is_empty() {
            wheel.advance(clock.tick_at(now), 1, |_| None);
        } else {
            let longest = u64::from(clock.longest);
            let apart = wheel.elapsed().saturating_add(u64::from(u32::MAX) - longest);
            let latest = clock.tick.saturating_add(longest + 1).min(apart).max(clock.tick);
            clock.skipped += clock.tick_at(now).saturating_sub(latest);
        }
        let tick = clock.tick_at(now);
        if tick > clock.tick {
            clock.tick = tick;
        }
        clock.next_tick_at = clock.begins_at(clock.tick.saturating_add(1));
    }

    /// Whether more is due at the time last told than was ended so far: [`expire`](Self::expire) again when there is time.
    #[inline(always)]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.wheel.is_due(self.clock.tick)
    }

    /// Visits timers that are due, and looks at the slots of those that fire, within a budget of slots.
    ///
    /// Moving a timer nearer costs one.
    pub(super) fn visit_timers(&mut self, mut budget: usize, mut ended: impl FnMut(usize, K, V)) -> usize {
        let before = self.len;
        while budget >= TIMED {
            let mut fired = None;
            let visited = self.wheel.advance(self.clock.tick, 1, |timer| {
                fired = Some(timer);
                None
            });
            if visited == 0 {
                break;
            }
            let cost = if fired.is_some() { TIMED } else { 1 };
            budget -= cost;
            self.worked(cost);
            fired.into_iter().for_each(|timer| self.end_due(timer, &mut ended));
        }
        before - self.len
    }

    /// Ends the flows of a timer that are over, and files it for the others.
    fn end_due(&mut self, timer: usize, ended: &mut impl FnMut(usize, K, V)) {
        let live = occupied(&self.groups, timer);
        let Self { wheel, slots, groups, clock, .. } = self;
        let (first, tick) = (timer * TIMED, clock.tick);
        let indices = (first..first + TIMED).filter(|index| live >> (index - first) & 1 == 1);
        indices.clone().for_each(|index| slots.prefetch(index));
        let mut again = Again { wheel, timer, at: Some(tick) };
        let mut next: Option<u64> = None;
        for index in indices {
            let Some(end) = slots.get(index).and_then(|slot| clock.end(slot)) else { continue };
            if end > tick {
                next = Some(next.map_or(end, |next| next.min(end)));
                continue;
            }
            let Some((key, value)) = slots.take(index) else { continue };
            groups[index / WIDTH].tags[index % WIDTH] = FREE;
            self.len -= 1;
            self.stashed -= usize::from(index / WIDTH == self.hashed);
            self.counters.expired += 1;
            again.at = (occupied(groups, timer) != 0).then_some(tick);
            // The caller's code comes last: if it panics, the table is whole.
            ended(index, key, value);
        }
        again.at = next;
    }

    /// Sets the timer of a live slot, unless one is set that will come in time and look again.
    #[inline(never)]
    pub(super) fn file_timer(&mut self, index: usize) {
        let Some(end) = self.slots.get(index).and_then(|slot| self.clock.end(slot)) else { return };
        self.wheel.insert_earlier(index / TIMED, end);
    }
}

/// One bit for each occupied slot of a timer.
#[inline(always)]
pub(super) fn occupied(groups: &[Group], timer: usize) -> u32 {
    let first = timer * TIMED;
    groups[first / WIDTH].occupied() >> (first % WIDTH) & ((1 << TIMED) - 1)
}

/// Files a timer that has fired, also when an author's function panics before all of its flows were looked at.
struct Again<'t> {
    wheel: &'t mut TimerWheel,
    timer: usize,
    /// The tick, if it is to be filed.
    at: Option<u64>,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.wheel.insert_earlier(self.timer, at);
        }
    }
}
