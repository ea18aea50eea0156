//! Settings of `rewrite-stream`.

use netbricks_core::declaration::Declared;
use netbricks_core::units::{Duration, port_numbers};
use netbricks_core::{InvalidSetting, Settings};
use netbricks_stream::{Replace, Side};

/// The direction in which a string is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// In the bytes of clients.
    Client,
    /// In the bytes of servers.
    #[default]
    Server,
    /// In both directions.
    Both,
}

netbricks_core::settings! {
    /// Settings of `rewrite-stream`.
    #[derive(Clone, Debug)]
    pub struct RewriteStreamConfig {
        /// The string to look for.
        pub find: String = required, "string, 1 to 4,096 bytes";
        /// The string to put in its place.
        pub replace: String = required, "string, at most 4,096 bytes and 128 times as long as `find`";
        /// The side whose bytes are rewritten.
        pub from: From = "server", "\"client\", \"server\" or \"both\"";
        /// Ports of servers whose connections are rewritten.
        pub ports: Vec<u16> = [80], "list of port numbers from 1 to 65535, 1 to 16 of them", read by port_numbers;
        /// Connections at a time, for each worker; more pass unchanged, unless some have ended or are half
        /// open.
        pub flows: usize = 1_024, "whole number, connections";
        /// Memory of each worker for bytes that are not acknowledged, and as much again for bytes out of
        /// order.
        ///
        /// A direction of a connection gets at most 1 MiB, and no more than is left for all others.
        /// Replacements get another tenth of it.
        pub memory: usize = 33_554_432, "whole number, bytes";
        /// After this time of silence a connection is forgotten and cannot go on.
        ///
        /// Half-open connections are forgotten after 30 s, ended ones after 60 s.
        pub idle: Duration = "1 h", "duration: a number and ns, us, ms, s, min, h or d";
    }
}

const MOST_FLOWS: usize = 1 << 20;
const MOST_PORTS: usize = 16;
/// The most memory of one direction (bytes), and so the least memory in all.
pub(super) const FLOW_MEMORY: usize = 1 << 20;
const MEMORY: std::ops::RangeInclusive<usize> = FLOW_MEMORY..=1 << 34;
/// The most times that a replacement may be longer.
///
/// With this, a full segment of occurrences still fits a quarter of one direction's memory.
const LONGER: usize = 128;
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000_000)..=Duration::from_nanoseconds(7 * 86_400_000_000_000);

impl RewriteStreamConfig {
    /// These strings, and the defaults.
    pub fn new(find: &str, replace: &str) -> Self {
        Self::with_defaults((find.into(), replace.into()))
    }

    pub(super) fn rewriter(&self) -> Result<Replace, netbricks_stream::ReplaceError> {
        let only = match self.from {
            From::Client => Some(Side::Client),
            From::Server => Some(Side::Server),
            From::Both => None,
        };
        Replace::new(self.find.as_bytes(), self.replace.as_bytes(), only)
    }
}

impl Settings for RewriteStreamConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if let Err(error) = self.rewriter() {
            let key = if self.find.is_empty() || self.find.len() > 4_096 { "find" } else { "replace" };
            return refused(key, format!("cannot be: {error}"));
        }
        if self.replace.len() > LONGER * self.find.len() {
            let (replace, find) = (self.replace.len(), self.find.len());
            return refused(
                "replace",
                format!(
                    "must be at most {LONGER} times as long as `find` ({find} bytes), found {replace} bytes"
                ),
            );
        }
        if self.ports.is_empty() || self.ports.len() > MOST_PORTS || self.ports.contains(&0) {
            let problem = format!("must be 1 to {MOST_PORTS} ports from 1 to 65535, found {:?}", self.ports);
            return refused("ports", problem);
        }
        if self.flows == 0 || self.flows > MOST_FLOWS {
            return refused("flows", format!("must be 1 to 1,048,576 connections, found {}", self.flows));
        }
        if !MEMORY.contains(&self.memory) {
            let problem = format!("must be 1,048,576 to 17,179,869,184 bytes, found {}", self.memory);
            return refused("memory", problem);
        }
        if !IDLE.contains(&self.idle) {
            return refused("idle", format!("must be \"1 s\" to \"7 d\", found \"{}\"", self.idle));
        }
        Ok(())
    }
}
