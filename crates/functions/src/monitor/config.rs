//! Settings of `monitor`.

use std::net::SocketAddr;

use netbricks_core::units::{Duration, from_text};
use netbricks_core::{InvalidSetting, Settings};
use serde::de::Deserializer;

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
        /// Whether both directions of a flow share a record, with times, TCP flags and round trips.
        pub details: bool = false, "true or false";
        /// The collector that gets the records by IPFIX over UDP, from the host; implies `details`.
        pub collector: Option<SocketAddr> = unset "none", "address and port, as \"192.0.2.1:4739\"", read by collector;
        /// After this time a flow that goes on is reported to the collector.
        pub active: Duration = "60 s", "duration, as `idle`";
        /// The observation domain that the collector reads in each message.
        pub domain: u32 = 1, "whole number";
        /// How often the templates are sent again.
        pub templates: Duration = "60 s", "duration, as `idle`";
        /// Records that wait on each worker for the control side; more are lost, and counted.
        pub export_queue: usize = 16_384, "whole number, flows";
    }
}

/// Reads the address of a collector.
fn collector<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    struct Collector(SocketAddr);
    impl std::str::FromStr for Collector {
        type Err = String;
        fn from_str(text: &str) -> Result<Self, String> {
            let address: SocketAddr = text.parse().map_err(|_| {
                format!("expected an address and a port as \"192.0.2.1:4739\" or \"[2001:db8::1]:4739\", found \"{text}\"")
            })?;
            match address.port() {
                0 => Err(format!("the collector's port is 0 in \"{text}\": IPFIX has 4739")),
                _ => Ok(Self(address)),
            }
        }
    }
    from_text::<Collector, D>(deserializer).map(|Collector(address)| Some(address))
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
        for (key, time) in [("idle", self.idle), ("active", self.active), ("templates", self.templates)] {
            if !IDLE.contains(&time) {
                let problem = format!("must be \"1 ms\" to \"1 d\", found \"{time}\"");
                return Err(InvalidSetting { key, problem });
            }
        }
        if self.export_queue == 0 || self.export_queue > 1 << 20 {
            let problem = format!("must be 1 to 1,048,576 flows, found {}", self.export_queue);
            return Err(InvalidSetting { key: "export_queue", problem });
        }
        Ok(())
    }
}
