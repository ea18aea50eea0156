//! Settings of `busy`.

use netbricks_core::{InvalidSetting, Key, Settings};

/// Settings of `busy`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusyConfig {
    /// Cycles to spin for each packet.
    pub cycles: u64,
}

impl Settings for BusyConfig {
    const KEYS: &'static [Key] = &[Key {
        name: "cycles",
        kind: "whole number, cycles of the time stamp counter a packet",
        default: None,
        summary: "For how long every packet keeps the processor busy.",
    }];

    fn check(&self) -> Result<(), InvalidSetting> {
        if self.cycles <= 1_000_000 {
            return Ok(());
        }
        let problem = format!("must be 0 to 1,000,000 cycles a packet, found {}", self.cycles);
        Err(InvalidSetting { key: "cycles", problem })
    }
}
