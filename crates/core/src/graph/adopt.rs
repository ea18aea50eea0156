//! A graph that replaces another goes on with what workers share.

use super::Graph;
use crate::node::ImportError;

impl Graph {
    /// Takes over state that `old`, which this graph replaces on this worker, shares with other workers.
    ///
    /// Answers the name of each node and state, and whether the takeover succeeded. `old` no longer exports
    /// such state.
    ///
    /// Workers need not do this at the same time. Those that still run the old graph go on with the same
    /// state, and lose nothing that they wrote.
    pub fn adopt(&mut self, old: &Self) -> Vec<(String, String, Result<(), ImportError>)> {
        let mut inherited = Vec::new();
        for slot in &old.slots {
            let of = slot.ask_state(&old.panics, old.now(), |state| state.shared_state()).unwrap_or_default();
            let Some(place) = self.successor_place(&slot.name).filter(|_| !of.is_empty()) else { continue };
            for (state, shared) in of {
                let now = self.cx.now();
                let done = self.guarded(place, |node| node.adopt(&state, &shared, now));
                let done = done.unwrap_or_else(|caught| {
                    Some(Err(ImportError::Panicked { name: state.clone(), message: caught.message }))
                });
                inherited.extend(done.map(|done| (slot.name.clone(), state, done)));
            }
        }
        inherited
    }
}
