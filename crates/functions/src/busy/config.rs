//! Settings of `busy`.

use netbricks_core::{InvalidSetting, Settings};

netbricks_core::settings! {
    /// Settings of `busy`.
    #[derive(Clone, Debug)]
    pub struct BusyConfig {
        /// The cycles to spend on each packet.
        pub cycles: u64 = required, "whole number, cycles of the time stamp counter a packet";
    }
}

impl Settings for BusyConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        if self.cycles <= 1_000_000 {
            return Ok(());
        }
        let problem = format!("must be 0 to 1,000,000 cycles a packet, found {}", self.cycles);
        Err(InvalidSetting { key: "cycles", problem })
    }
}
