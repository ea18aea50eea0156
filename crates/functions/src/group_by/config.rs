//! Settings of `group-by`.

use netbricks_core::{GroupConfig, InvalidSetting, Settings, ShuffleKey};

netbricks_core::settings! {
    /// Settings of `group-by`.
    #[derive(Clone, Debug)]
    pub struct GroupSettings {
        /// The number of groups.
        ///
        /// The first goes on with the chain; the others begin chains at `NAME.1` and so on.
        pub groups: usize = required, "whole number, 1 to 128";
        /// The property that the packets of one group share.
        ///
        /// `"port"` is the port that they arrived at, not a TCP or UDP port.
        pub key: ShuffleKey = "symmetric-flow",
            "\"symmetric-flow\", \"flow\", \"source\", \"destination\", \"port\", \"vlan\" or \"owner\"";
        /// Packets that each group's queue holds; queues get their turns one after the other. 0: no queues.
        pub queue: usize = 0, "whole number, packets";
    }
}

impl Settings for GroupSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        if !(1..=GroupConfig::MOST).contains(&self.groups) {
            let problem = format!("must be 1 to {}, found {}", GroupConfig::MOST, self.groups);
            return Err(InvalidSetting { key: "groups", problem });
        }
        if self.queue > GroupConfig::LONGEST {
            let problem = format!("must be 0 to 1,048,576 packets, found {}", self.queue);
            return Err(InvalidSetting { key: "queue", problem });
        }
        Ok(())
    }
}
