//! Random layouts, entries and keys, drawn so that many entries match and many nearly do.

use std::sync::Arc;

use super::{Condition, Entry, Field, Layout, Test, ValueSet};

/// A scene: fields, and the few values around which entries and keys are drawn.
pub(super) struct Scene {
    pub(super) state: u64,
    pub(super) layout: Layout,
    fields: Vec<Field>,
    /// Of each field the values that occur most.
    values: Vec<Vec<u128>>,
    orders: u64,
}

pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Scene {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut layout = Layout::new();
        let widths = [1, 3, 8, 8, 16, 16, 31, 32, 32, 33, 48, 64, 128];
        let fields: Vec<Field> = (0..1 + next(&mut state) % 6)
            .map(|_| layout.field(widths[next(&mut state) as usize % widths.len()]))
            .collect();
        let orders = [4, 100, u64::MAX][next(&mut state) as usize % 3];
        let mut scene = Self { state, layout, fields, values: vec![], orders };
        for field in scene.fields.clone() {
            let some = (0..3).map(|_| scene.wide() >> (128 - u32::from(field.bits()))).collect();
            scene.values.push(some);
        }
        scene
    }

    fn below(&mut self, bound: u64) -> u64 {
        next(&mut self.state) % bound
    }

    fn wide(&mut self) -> u128 {
        u128::from(next(&mut self.state)) << 64 | u128::from(next(&mut self.state))
    }

    /// A value near one of the usual ones of a field.
    fn value(&mut self, number: usize) -> u128 {
        let bits = u32::from(self.fields[number].bits());
        let all = u128::MAX >> (128 - bits);
        let pick = self.below(3) as usize;
        let usual = self.values[number][pick];
        match self.below(8) {
            0 => 0,
            1 => all,
            2 | 3 => usual,
            4 => usual.wrapping_add(self.below(3) as u128) & all,
            5 => usual ^ 1 << self.below(u64::from(bits)),
            6 => usual ^ self.wide() >> (128 - bits) >> self.below(u64::from(bits)),
            _ => self.wide() & all,
        }
    }

    pub(super) fn order(&mut self) -> u64 {
        match self.below(20) {
            0 => u64::MAX,
            _ => self.below(self.orders),
        }
    }

    fn test(&mut self, number: usize) -> Test {
        let bits = u64::from(self.fields[number].bits());
        let value = self.value(number);
        match self.below(16) {
            0..=4 => {
                let len = if self.below(2) == 0 { self.below(bits + 1) } else { bits.min(8) };
                let mask = if len == 0 { 0 } else { u128::MAX >> (128 - len) << (bits - len) };
                Test::Masked { value, mask }
            }
            5 | 6 => Test::Masked { value, mask: u128::MAX },
            7 => Test::Masked { value, mask: self.wide() & self.wide() },
            8 => Test::Masked { value, mask: 1 << self.below(bits) },
            9..=12 => {
                let other = self.value(number);
                let (low, high) =
                    if self.below(20) == 0 { (other, value) } else { (value.min(other), value.max(other)) };
                let high = if self.below(8) == 0 { u128::MAX } else { high };
                Test::Range { low, high }
            }
            13 => Test::Range { low: 0, high: value },
            _ => {
                let intervals: Vec<(u128, u128)> = (0..self.below(4))
                    .map(|_| {
                        let low = self.value(number);
                        (low, low.saturating_add(u128::from(self.below(9))))
                    })
                    .collect();
                Test::Within(Arc::new(ValueSet::new(intervals)))
            }
        }
    }

    pub(super) fn entry(&mut self) -> Entry {
        let mut conditions = vec![];
        for _ in 0..self.below(4) {
            let number = self.below(self.fields.len() as u64) as usize;
            let (field, test) = (self.fields[number], self.test(number));
            conditions.push(Condition { field, test, negated: self.below(5) == 0 });
        }
        Entry { rule: self.below(40) as u32, order: self.order(), last: self.below(6) == 0, conditions }
    }

    pub(super) fn key(&mut self, key: &mut [u32]) {
        for number in 0..self.fields.len() {
            let value = self.value(number);
            self.fields[number].put(key, value);
        }
    }
}
