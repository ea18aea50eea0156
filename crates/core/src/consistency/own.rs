//! State of one worker alone.

use super::{Access, CannotWrite, Consistency, Contents, NoExternalAccess};
use crate::state::State;
use crate::worker::Worker;

impl Consistency for NoExternalAccess {
    type Handle<T: Contents> = State<T>;

    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> State<T> {
        worker.declare(name, worker.made(name, T::make(&config), T::least))
    }
}

impl<T: Contents> Access<T> for State<T> {
    #[inline(always)]
    fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.borrow())
    }

    fn update_all(
        &self,
        changes: impl IntoIterator<Item = T::Change>,
        mut outcome: impl FnMut(T::Outcome),
    ) -> Result<(), CannotWrite> {
        let mut state = self.try_borrow_mut().ok_or(CannotWrite::Reading)?;
        for change in changes {
            outcome(state.apply(&change));
        }
        Ok(())
    }
}
