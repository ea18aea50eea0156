//! Settings of `monitor`.

use netbricks_core::units::Duration;
use netbricks_core::{InvalidSetting, Key, Settings};

/// Settings of `monitor`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MonitorConfig {
    /// Flows that it remembers.
    pub capacity: usize,
    /// Time without a packet after which a flow is forgotten.
    pub idle: Duration,
    /// How many of the largest flows the report shows.
    pub top: usize,
}

/// From a millisecond to a day: less is no flow, and more is no timeout.
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);

impl Default for MonitorConfig {
    fn default() -> Self {
        Self { capacity: 65_536, idle: Duration::from_nanoseconds(60_000_000_000), top: 10 }
    }
}

impl Settings for MonitorConfig {
    const KEYS: &'static [Key] = &[
        Key {
            name: "capacity",
            kind: "whole number, flows",
            default: Some("65_536"),
            summary: "Flows that it remembers a worker.",
        },
        Key {
            name: "idle",
            kind: "duration: a number and ns, us, ms, s, min, h or d",
            default: Some("\"60 s\""),
            summary: "Without a packet for so long, a flow is forgotten.",
        },
        Key {
            name: "top",
            kind: "whole number, flows",
            default: Some("10"),
            summary: "How many of the largest flows the report shows.",
        },
    ];

    fn check(&self) -> Result<(), InvalidSetting> {
        if self.capacity == 0 || self.capacity > 1 << 24 {
            return Err(InvalidSetting {
                key: "capacity",
                problem: format!("must be 1 to 16,777,216 flows, found {}", self.capacity),
            });
        }
        if !IDLE.contains(&self.idle) {
            return Err(InvalidSetting {
                key: "idle",
                problem: format!("must be \"1 ms\" to \"1 d\", found \"{}\"", self.idle),
            });
        }
        Ok(())
    }
}
