//! Memory of elements and their tables, and its limit.

use std::cell::Cell;
use std::rc::Rc;

use super::{Instance, Router, Setup};
use crate::language::errors::Errors;

impl Router {
    /// Bytes that the elements and their tables take now, without packets.
    pub fn memory(&self) -> usize {
        (0..self.len()).map(|id| self.memory_of(id)).sum()
    }
    /// Bytes that an element and its tables take now, without packets.
    pub(crate) fn memory_of(&self, id: usize) -> usize {
        let text = self.instances.get(id).map_or(0, |instance| {
            size_of::<Instance>() + instance.name.len() + instance.configuration.borrow().len()
        });
        let element = self.element(id);
        text + size_of_val(element.as_ref()) + element.memory()
    }
    /// Bytes that tables may still grow by. What grows in large steps asks first, and takes them.
    pub(crate) fn room(&self) -> &Rc<Cell<usize>> {
        &self.room
    }

    /// Counts what an element takes. `false` after an error was told: there is no memory for it.
    pub(super) fn takes_memory(&self, id: usize, taken: &mut usize, errors: &Errors) -> bool {
        let most = self.surroundings.most_memory;
        let own = self.memory_of(id);
        *taken = taken.saturating_add(own);
        self.room.set(most.saturating_sub(*taken));
        let fits = *taken <= most;
        if !fits {
            errors.error(&format!(
                "the elements up to here take {taken} bytes, this one {own}: `memory` allows {most}. Take fewer or \
                 smaller elements, or more `memory`"
            ));
        }
        fits
    }
}

impl Setup<'_> {
    /// Whether there is memory for so many bytes, which an argument asks for. Tells an error otherwise.
    ///
    /// Elements whose arguments ask for much ask here before they take it.
    pub fn has_room(&self, argument: &str, bytes: usize) -> bool {
        let left = self.at.router.room.get();
        if bytes > left {
            let most = self.at.router.surroundings.most_memory;
            self.errors.error(&format!(
                "{argument} asks for {bytes} bytes, and {left} are left of the {most} that `memory` allows. Ask for \
                 less, or take more `memory`"
            ));
        }
        bytes <= left
    }
}
