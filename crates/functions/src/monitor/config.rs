//! Settings of `monitor`.

use netbricks_core::units::Duration;
use netbricks_core::{InvalidSetting, Settings};

netbricks_core::settings! {
    /// Settings of `monitor`.
    #[derive(Clone, Debug)]
    pub struct MonitorConfig {
        /// Flows that each worker remembers.
        pub capacity: usize = 65_536, "whole number, flows";
        /// After this time without a packet, a flow is forgotten.
        pub idle: Duration = "60 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// How many of the largest flows the report shows.
        pub top: usize = 10, "whole number, flows";
    }
}

/// From a millisecond to a day: less is no flow, and more is no timeout.
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);

impl Settings for MonitorConfig {
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
