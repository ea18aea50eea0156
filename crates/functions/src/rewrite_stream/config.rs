//! Settings of `rewrite-stream`.

use netbricks_core::units::{Duration, port_numbers};
use netbricks_core::{InvalidSetting, Key, Settings};
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

/// Settings of `rewrite-stream`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewriteStreamConfig {
    /// The string to look for.
    pub find: String,
    /// The string to put in its place.
    pub replace: String,
    /// The direction in which it is replaced.
    #[serde(default)]
    pub from: From,
    /// Ports of servers whose connections are rewritten.
    #[serde(default = "ports", deserialize_with = "port_numbers")]
    pub ports: Vec<u16>,
    /// Connections at a time.
    #[serde(default = "flows")]
    pub flows: usize,
    /// Bytes that may wait for their acknowledgment, of all connections.
    #[serde(default = "memory")]
    pub memory: usize,
    /// Time of silence after which a connection is forgotten.
    #[serde(default = "idle")]
    pub idle: Duration,
}

fn ports() -> Vec<u16> {
    vec![80]
}
fn flows() -> usize {
    1_024
}
fn memory() -> usize {
    32 << 20
}
fn idle() -> Duration {
    Duration::from_nanoseconds(3_600_000_000_000)
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
        Self {
            find: find.into(),
            replace: replace.into(),
            from: From::default(),
            ports: ports(),
            flows: flows(),
            memory: memory(),
            idle: idle(),
        }
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
    const KEYS: &'static [Key] = &[
        Key {
            name: "find",
            kind: "string, 1 to 4,096 bytes",
            default: None,
            summary: "What is looked for in streams.",
        },
        Key {
            name: "replace",
            kind: "string, at most 4,096 bytes and 128 times as long as `find`",
            default: None,
            summary: "What is put in its place.",
        },
        Key {
            name: "from",
            kind: "\"client\", \"server\" or \"both\"",
            default: Some("\"server\""),
            summary: "In what which side sends.",
        },
        Key {
            name: "ports",
            kind: "list of port numbers from 1 to 65535, 1 to 16 of them",
            default: Some("[80]"),
            summary: "Ports of servers whose connections are rewritten.",
        },
        Key {
            name: "flows",
            kind: "whole number, connections",
            default: Some("1_024"),
            summary: "Connections at a time, a worker; more pass unchanged, unless some are over or half open.",
        },
        Key {
            name: "memory",
            kind: "whole number, bytes",
            default: Some("33_554_432"),
            summary: "Memory for bytes that are not acknowledged, and as much for those out of order, a worker.",
        },
        Key {
            name: "idle",
            kind: "duration: a number and ns, us, ms, s, min, h or d",
            default: Some("\"1 h\""),
            summary: "After so long a silence a connection is forgotten, and can't go on; half open after 30 s, over after 60 s.",
        },
    ];

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
