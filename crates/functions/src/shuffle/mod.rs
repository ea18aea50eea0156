//! Sends packets to the worker that owns their flow, by a key that the chain file names.

mod config;
#[cfg(test)]
mod moved_state;
#[cfg(test)]
mod rewritten;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod two_workers;

pub use config::ShuffleSettings;

use netbricks_core::{Node, Worker};

/// A worker's node of the shuffle that these settings describe.
///
/// # Errors
/// As [`netbricks_core::Shuffle::node`].
pub fn shuffle(
    settings: &ShuffleSettings,
    worker: &Worker,
) -> Result<Box<dyn Node>, netbricks_core::BuildError> {
    settings.place.get_or_init(|| netbricks_core::Shuffle::new(settings.config())).node(worker)
}
