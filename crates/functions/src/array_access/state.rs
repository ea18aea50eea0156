//! The array, as declared state.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::tables::CounterArray;
use netbricks_core::{Declared, Handler, Mobility, StateTerms, Succession, Worker};

/// The number of cells, of 8 bytes each: 512 KiB, as in the paper's section 5.2.1.
pub const CELLS: usize = 1 << 16;

/// A handle to the cells.
#[derive(Clone)]
pub(super) struct Cells(Rc<[Cell<u64>; CELLS]>);

/// The cell behind this one: a walk through all 65,536 in an order that looks random.
#[inline(always)]
pub fn next_cell(cell: u16) -> u16 {
    cell.wrapping_mul(25_173).wrapping_add(13_849)
}

impl Cells {
    /// Adds 1 to `accesses` cells, the first of them that behind the cell of this port.
    #[inline(always)]
    pub(super) fn update(&self, port: u16, accesses: u32) {
        let mut cell = port;
        for _ in 0..accesses {
            cell = next_cell(cell);
            let value = &self.0[usize::from(cell)];
            value.set(value.get().wrapping_add(1));
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, cell| sum.wrapping_add(cell.get()))
    }
}

/// The state behind the handles. Its bytes are those of a [`CounterArray`], with their version and checksum.
struct CellsState(Cells);

impl Declared for CellsState {
    fn export(&self) -> Vec<u8> {
        let mut counters = CounterArray::new(CELLS);
        for (place, cell) in self.0.0.iter().enumerate().filter(|(_, cell)| cell.get() > 0) {
            counters.add(place, cell.get());
        }
        counters.encode()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let mut counters = CounterArray::new(CELLS);
        counters.decode(bytes).map_err(|error| error.to_string())?;
        self.0.0.iter().zip(counters.all()).for_each(|(cell, value)| cell.set(*value));
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        let used = self.0.0.iter().filter(|cell| cell.get() > 0).count();
        (used as u64, CELLS as u64)
    }
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(CELLS as u64)
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        if before.is_of::<Self>() { Succession::whole() } else { Succession::unlike() }
    }
    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        let Some(old) = old.downcast_ref::<Self>() else { return false };
        self.0.0.iter().zip(old.0.0.iter()).for_each(|(cell, before)| cell.set(before.get()));
        true
    }
    /// Cells belong to no flow.
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
}

/// Declares the cells, and the handlers that read them.
pub(super) fn declare(worker: &Worker) -> Cells {
    let cells: Rc<[Cell<u64>]> = (0..CELLS).map(|_| Cell::new(0)).collect();
    let cells = Cells(cells.try_into().expect("there are as many cells as the array has"));
    worker.declare("cells", CellsState(cells.clone()));
    let all = cells.clone();
    worker.handler(Handler::read("sum", "The sum of all cells."), move |_| Ok(all.sum().to_string()));
    let one = cells.clone();
    let cell = Handler::read("cell", "One cell.").argument("NUMBER");
    worker.handler(cell, move |argument| {
        let place: Option<u16> = argument.trim().parse().ok();
        let place = place.ok_or_else(|| format!("expected a number from 0 to 65535, found `{argument}`"))?;
        Ok(one.0[usize::from(place)].get().to_string())
    });
    cells
}
