//! Sends packets separate ways by a key, at once or through queues that take turns.

mod config;
#[cfg(test)]
mod tests;

pub use config::GroupSettings;

use netbricks_core::{BuildError, GroupConfig, Groups, Node, Worker};

/// The node that these settings describe: group 0 goes on, group `n` leaves by the way out `n`.
///
/// # Errors
/// As [`Groups::new`].
pub fn group_by(settings: &GroupSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let groups = Groups::new(GroupConfig { groups: settings.groups, queue: settings.queue })?;
    Ok(groups.node(worker, settings.key))
}
