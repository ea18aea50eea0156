//! Instances: many small Click configurations in one node, joined by a switch (ClickOS, NSDI 2014).
//!
//! The function `instances` holds them. Each has a name, virtual ports with MAC addresses, quotas and a weight. They
//! are created, given configurations, suspended and destroyed by handlers, while others go on.

#[cfg(test)]
mod bounds_tests;
mod commands;
mod declared;
mod directory;
mod exchange;
mod host;
mod instance;
mod metrics;
mod shared;
mod switch;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod two_workers;

use std::collections::BTreeMap;
use std::path::Path;

use netbricks_core::{BuildError, InvalidSetting, Node, Registry, Settings, SharedSlot, Worker};

pub use declared::InstanceSettings;

use crate::router::Capabilities;

netbricks_core::settings! {
    /// Settings of `instances`.
    #[derive(Clone, Debug)]
    pub struct InstancesSettings {
        /// Names of the switch's ports to the outside: the node's inputs and ways out in this order.
        pub devices: Vec<String> = ["wire"], "list of names, 1 to 250";
        /// The most instances.
        pub most: usize = 1_024, "whole number, 1 to 65,536";
        /// Whether the switch learns where addresses are from the packets that it sees.
        pub learning: bool = false, "true or false";
        /// Addresses that the switch learns at most.
        pub addresses: usize = 4_096, "whole number, 1 to 1,000,000";
        /// Whether each packet goes all its way through an instance before the next one starts, as in Click.
        pub exact: Option<bool> = unset "true where captures drive the clock, else false", "true or false";
        /// Capabilities of instances beyond their ports.
        pub capabilities: Vec<String> = [], "list of files, sockets and process";
        /// Instances that exist from the start, by name.
        pub instance: BTreeMap<String, InstanceSettings> = unset "no instances", "tables [instance.NAME]";
        /// Where the workers' copies of the function meet.
        place: SharedSlot = skipped;
    }
}

impl InstancesSettings {
    fn granted(&self) -> Result<Capabilities, InvalidSetting> {
        crate::node::granted(&self.capabilities)
    }
}

impl Settings for InstancesSettings {
    fn start_from(&mut self, directory: &Path) {
        self.instance.values_mut().for_each(|one| one.start_from(directory));
    }
    fn check(&self) -> Result<(), InvalidSetting> {
        let granted = self.granted()?;
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if !(1..=250).contains(&self.devices.len()) {
            return refused("devices", format!("must be 1 to 250 names, found {}", self.devices.len()));
        }
        for (place, name) in self.devices.iter().enumerate() {
            if self.devices[..place].contains(name) || name.is_empty() {
                return refused("devices", format!("must be different names, found `{name}` again"));
            }
        }
        for (key, found, most) in [("most", self.most, 65_536), ("addresses", self.addresses, 1_000_000)] {
            if !(1..=most).contains(&found) {
                return refused(key, format!("must be 1 to {most}, found {found}"));
            }
        }
        for (name, one) in &self.instance {
            one.check(name, granted).map_err(|problem| InvalidSetting { key: "instance", problem })?;
        }
        if self.instance.len() > self.most {
            let problem = format!("has {} instances: `most` allows {}", self.instance.len(), self.most);
            return refused("instance", problem);
        }
        Ok(())
    }
}

/// Makes the node of the function.
///
/// # Errors
/// A declared instance is not possible beside the others, or on a worker that does not exist.
pub fn node(settings: &InstancesSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    Ok(Box::new(host::Host::new(settings, worker)?))
}

/// Adds the function `instances`.
pub fn register(registry: &mut Registry) {
    registry
        .add("instances", "Runs many small Click configurations, joined by a switch.", node)
        .examples("instances", &["devices = [\"wire\"]\nlearning = true"]);
}
