//! A counter as declared state.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use netbricks_tables::CounterArray;

use super::{Declared, Mobility, StateTerms, Succession};
use crate::shuffle::ShuffleKey;

/// A declared counter.
#[derive(Clone, Default)]
pub struct Counter(Rc<Cell<u64>>);

impl Counter {
    /// Adds to it.
    #[inline(always)]
    pub fn add(&self, by: u64) {
        self.0.set(self.0.get().wrapping_add(by));
    }
    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

pub(super) struct CounterState(pub(super) Counter);

/// A counter has the bytes of a [`CounterArray`] of one counter, with their version and checksum.
impl Declared for CounterState {
    fn export(&self) -> Vec<u8> {
        let mut tally = CounterArray::new(1);
        tally.add(0, self.0.get());
        tally.encode()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let mut tally = CounterArray::new(1);
        tally.decode(bytes).map_err(|error| error.to_string())?;
        self.0.0.set(tally.get(0).unwrap_or_default());
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0.get(), u64::MAX)
    }
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(1)
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        if before.is_of::<Self>() { Succession::whole() } else { Succession::unlike() }
    }
    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        let Some(old) = old.downcast_ref::<Self>() else { return false };
        self.0.0.set(old.0.get());
        true
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
}
