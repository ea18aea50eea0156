//! State of one worker alone.

use super::{Access, CannotWrite, Consistency, Contents, NoExternalAccess};
use crate::node::HandlerSide;
use crate::state::State;
use crate::worker::Worker;

impl Consistency for NoExternalAccess {
    type Handle<T: Contents> = State<T>;

    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> State<T> {
        // No packet comes to the control side's copy.
        let made = if worker.is_control() { Ok(T::least()) } else { T::make(&config) };
        worker.declare(name, worker.made(name, made, T::least))
    }
}

impl<T: Contents> Access<T> for State<T> {
    const SIDE: HandlerSide = HandlerSide::Worker;

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
