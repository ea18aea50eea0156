//! Rates: a bucket of tokens that fills up, gaps between packets of a rate, and averages of rates.
//!
//! The numbers are kept as Click keeps them, rounding included, so that packets pass at the same times.

use std::cell::Cell;

use crate::router::At;

/// Ticks (ms) in a second.
const TICKS: u32 = 1000;

/// The present tick.
fn tick(at: At<'_>) -> u32 {
    (at.now() / 1_000_000) as u32
}

/// A bucket of tokens: it fills up with so many a second, up to a capacity.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    /// Parts of tokens that come each tick; 0: none ever.
    each_tick: Cell<u32>,
    /// Parts of a token: as many as fit, so that the capacity is just below 2^32 parts.
    parts: Cell<u32>,
    ticks_to_fill: Cell<u32>,
    level: Cell<u32>,
    filled_at: Cell<u32>,
}

impl TokenBucket {
    /// An empty bucket.
    pub(super) fn new(rate: u32, capacity: u32) -> Self {
        let bucket = Self {
            each_tick: Cell::new(0),
            parts: Cell::new(1),
            ticks_to_fill: Cell::new(u32::MAX),
            level: Cell::new(0),
            filled_at: Cell::new(0),
        };
        bucket.assign(rate, capacity);
        bucket
    }

    /// Sets the rate and the capacity.
    pub(super) fn assign(&self, rate: u32, capacity: u32) {
        let (rate, capacity) = if capacity == 0 { (0, u32::MAX) } else { (rate, capacity) };
        // A tick's tokens fit into the bucket.
        let least = if rate == 0 { 1 } else { (rate - 1) / TICKS + 1 };
        let parts = u32::MAX / capacity.max(least);
        self.parts.set(parts);
        if rate == 0 {
            self.each_tick.set(0);
            self.ticks_to_fill.set(u32::MAX);
        } else {
            let each = (u64::from(rate) * u64::from(parts) / u64::from(TICKS)) as u32;
            let each = each.max(1);
            self.each_tick.set(each);
            self.ticks_to_fill.set((u32::MAX - 1) / each + 1);
        }
    }

    /// Sets the rate and the capacity; tokens in the bucket stay.
    pub(super) fn adjust(&self, rate: u32, capacity: u32) {
        let before = self.parts.get();
        self.assign(rate, capacity);
        if self.parts.get() != before {
            let level = u64::from(self.level.get()) * u64::from(self.parts.get()) / u64::from(before);
            self.level.set(u32::try_from(level).unwrap_or(u32::MAX));
        }
    }

    /// Takes over another bucket's rate and capacity.
    pub(super) fn assign_from(&self, other: &Self) {
        self.each_tick.set(other.each_tick.get());
        self.parts.set(other.parts.get());
        self.ticks_to_fill.set(other.ticks_to_fill.get());
    }

    /// Tokens a second.
    pub(super) fn rate(&self) -> u32 {
        let each = u64::from(self.each_tick.get());
        let rate = (each / 2 + each * u64::from(TICKS)) / u64::from(self.parts.get());
        u32::try_from(rate).unwrap_or(u32::MAX)
    }

    fn parts_of(&self, tokens: u32) -> Option<u32> {
        tokens.checked_mul(self.parts.get())
    }

    /// Adds the tokens that came since the last time.
    pub(super) fn refill(&self, at: At<'_>) {
        let now = tick(at);
        let passed = now.saturating_sub(self.filled_at.get());
        if passed >= self.ticks_to_fill.get() {
            self.level.set(u32::MAX);
        } else if passed > 0 {
            self.level.set(self.level.get().saturating_add(passed.saturating_mul(self.each_tick.get())));
        }
        self.filled_at.set(now);
    }

    /// Has the bucket hold so many tokens.
    pub(super) fn set(&self, tokens: u32) {
        self.level.set(self.parts_of(tokens).unwrap_or(u32::MAX));
    }
    /// Whether it holds so many tokens.
    pub(super) fn contains(&self, tokens: u32) -> bool {
        self.parts_of(tokens).is_some_and(|parts| parts <= self.level.get())
    }
    /// Takes so many tokens out, or all.
    pub(super) fn remove(&self, tokens: u32) {
        self.level.set(self.level.get().saturating_sub(self.parts_of(tokens).unwrap_or(u32::MAX)));
    }
    /// Time until it holds so many tokens (ns).
    pub(super) fn time_until_contains(&self, tokens: u32) -> u64 {
        let ticks = match self.parts_of(tokens) {
            None => u32::MAX,
            Some(parts) if parts <= self.level.get() => 0,
            Some(_) if self.each_tick.get() == 0 => u32::MAX,
            Some(parts) => (parts - self.level.get() - 1) / self.each_tick.get() + 1,
        };
        u64::from(ticks) * 1_000_000
    }
}

/// Gaps between packets of a rate: the seconds of the clock are cut into that many.
#[derive(Clone, Debug)]
pub(super) struct GapRate {
    rate: Cell<u32>,
    /// A gap (us), with some bits behind the binary point.
    gap: Cell<u32>,
    /// Gaps used up in the present second.
    used: Cell<i64>,
    second: Cell<Option<u64>>,
}

impl GapRate {
    /// Bits behind the binary point.
    const BITS: u32 = 12;
    /// The highest rate.
    pub(super) const MAX: u32 = 1_000_000 << Self::BITS;

    /// Gaps of a rate, at most [`MAX`](Self::MAX).
    pub(super) fn new(rate: u32) -> Self {
        let rate = rate.min(Self::MAX);
        let gap = Self::MAX.checked_div(rate).unwrap_or(Self::MAX + 1);
        Self { rate: Cell::new(rate), gap: Cell::new(gap), used: Cell::new(0), second: Cell::new(None) }
    }

    /// The rate.
    pub(super) fn rate(&self) -> u32 {
        self.rate.get()
    }

    /// Takes over another's rate.
    pub(super) fn assign_from(&self, other: &Self, now: u64) {
        if self.rate.get() == other.rate.get() {
            return;
        }
        self.rate.set(other.rate.get());
        self.gap.set(other.gap.get());
        if self.second.get().is_some() && self.rate.get() != 0 {
            self.used.set(i64::from(Self::place(now) / self.gap.get()));
        }
    }

    /// Where in its second a time lies (us, with bits behind the binary point).
    fn place(now: u64) -> u32 {
        ((now % 1_000_000_000 / 1000) as u32) << Self::BITS
    }

    /// Whether the next gap has begun.
    pub(super) fn is_due(&self, now: u64) -> bool {
        let (place, gap) = (Self::place(now), self.gap.get());
        let (due, second) = (place / gap, now / 1_000_000_000);
        match self.second.get() {
            None => {
                self.second.set(Some(second));
                self.used.set(i64::from(due) + i64::from(place - due * gap > gap / 2));
            }
            Some(last) if second > last => {
                self.second.set(Some(second));
                if self.used.get() > 0 {
                    self.used.set(self.used.get() - i64::from(self.rate.get()));
                }
            }
            Some(_) => (),
        }
        i64::from(due) >= self.used.get()
    }

    /// Uses gaps up.
    pub(super) fn take(&self, gaps: usize) {
        self.used.set(self.used.get().saturating_add(i64::try_from(gaps).unwrap_or(i64::MAX)));
    }

    /// Forgets the gaps that were used up.
    pub(super) fn reset(&self) {
        self.second.set(None);
    }
}

/// An average in which older values count less and less.
#[derive(Clone, Debug)]
pub(super) struct Average {
    /// The average, with bits behind the binary point.
    value: Cell<i64>,
    bits: u32,
    /// A new value counts 1 / 2^shift.
    shift: Cell<u32>,
}

impl Average {
    /// An average of 0.
    pub(super) fn new(shift: u32, bits: u32) -> Self {
        Self { value: Cell::new(0), bits, shift: Cell::new(shift) }
    }
    /// The average, with its bits behind the binary point.
    pub(super) fn scaled(&self) -> u64 {
        self.value.get().max(0).unsigned_abs()
    }
    /// The average as a whole number.
    pub(super) fn whole(&self) -> u64 {
        (self.scaled() + (1 << self.bits >> 1)) >> self.bits
    }
    /// How slowly it changes.
    pub(super) fn shift(&self) -> u32 {
        self.shift.get()
    }
    /// Sets how slowly it changes.
    pub(super) fn set_shift(&self, shift: u32) {
        self.shift.set(shift);
    }
    /// Sets the average, with its bits behind the binary point.
    pub(super) fn set_scaled(&self, value: u64) {
        self.value.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    /// A new value.
    pub(super) fn update(&self, value: u64) {
        let shift = self.shift.get();
        let scaled = i64::try_from(value).unwrap_or(i64::MAX >> self.bits).wrapping_shl(self.bits);
        let target = scaled.wrapping_add(1 << shift >> 1);
        self.value.set(self.value.get().wrapping_add(target.wrapping_sub(self.value.get()) >> shift));
    }
    /// So many new values that are all 0.
    pub(super) fn decay(&self, count: u32) {
        if count >= 100 {
            self.value.set(0);
        } else {
            (0..count).for_each(|_| self.update(0));
        }
    }
    /// Bits behind the binary point.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }
}

/// An average rate of events.
#[derive(Clone, Debug)]
pub(super) struct RateAverage {
    tick: Cell<u32>,
    events: Cell<u64>,
    average: Average,
}

impl RateAverage {
    /// A rate of 0 from now on.
    pub(super) fn new(at: At<'_>, shift: u32, bits: u32) -> Self {
        Self { tick: Cell::new(tick(at)), events: Cell::new(0), average: Average::new(shift, bits) }
    }
    /// Counts events.
    pub(super) fn update(&self, at: At<'_>, events: u64) {
        let now = tick(at);
        let last = self.tick.get();
        if now != last {
            self.average.update(self.events.replace(0));
            self.average.decay(now.wrapping_sub(last).wrapping_sub(1));
            self.tick.set(now);
        }
        self.events.set(self.events.get() + events);
    }
    /// Events a tick, with bits behind the binary point.
    pub(super) fn scaled(&self) -> u64 {
        self.average.scaled()
    }
    /// Bits behind the binary point.
    pub(super) fn bits(&self) -> u32 {
        self.average.bits()
    }
    /// Events a second, with bits behind the binary point.
    pub(super) fn scaled_rate(&self, at: At<'_>) -> u64 {
        self.update(at, 0);
        self.average.scaled().wrapping_mul(u64::from(TICKS))
    }
    /// Ticks in a second.
    pub(super) const fn frequency() -> u32 {
        TICKS
    }
}
