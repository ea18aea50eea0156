//! Settings of `shuffle`.

use std::sync::OnceLock;

use netbricks_core::{InvalidSetting, Settings, Shuffle, ShuffleConfig, ShuffleKey, WhenFull};

netbricks_core::settings! {
    /// Settings of `shuffle`.
    #[derive(Clone, Debug)]
    pub struct ShuffleSettings {
        /// The property that the packets of one worker share.
        ///
        /// `"port"` is the port that they arrived at, not a TCP or UDP port. By an address or a flow, packets
        /// that are not IP go by their pair of Ethernet addresses.
        pub key: ShuffleKey = "symmetric-flow",
            "\"symmetric-flow\", \"flow\", \"source\", \"destination\", \"port\", \"vlan\" or \"owner\"";
        /// When the ring to a worker is full: receive nothing until there is room, or drop as `ring-full`.
        pub full: WhenFull = "wait", "\"wait\" or \"drop\"";
        /// Packets that the ring from each worker to each other holds; rounded up to a power of two.
        pub ring: usize = 1024, "whole number, packets";
        /// The shuffle that all workers' nodes share; it is made for the first of them.
        pub(super) place: OnceLock<Shuffle> = skipped;
    }
}

impl ShuffleSettings {
    pub(super) fn config(&self) -> ShuffleConfig {
        ShuffleConfig { key: self.key, full: self.full, ring: self.ring }
    }
}

impl Settings for ShuffleSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        if ShuffleConfig::RING.contains(&self.ring) {
            return Ok(());
        }
        Err(InvalidSetting {
            key: "ring",
            problem: format!("must be 1 to 1,048,576 packets, found {}", self.ring),
        })
    }
}
