//! Settings of `shuffle`.

use std::sync::OnceLock;

use netbricks_core::{InvalidSetting, Key, Settings, Shuffle, ShuffleConfig, ShuffleKey, WhenFull};

/// Settings of `shuffle`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShuffleSettings {
    /// The property that the packets of one worker share.
    pub key: ShuffleKey,
    /// The fate of a packet when the ring to its owner is full.
    pub full: WhenFull,
    /// Packets that each ring holds.
    pub ring: usize,
    /// The shuffle that all workers' nodes share; it is made for the first of them.
    #[serde(skip)]
    pub(super) place: OnceLock<Shuffle>,
}

impl Default for ShuffleSettings {
    fn default() -> Self {
        let ShuffleConfig { key, full, ring } = ShuffleConfig::default();
        Self { key, full, ring, place: OnceLock::new() }
    }
}

impl ShuffleSettings {
    pub(super) fn config(&self) -> ShuffleConfig {
        ShuffleConfig { key: self.key, full: self.full, ring: self.ring }
    }
}

impl Settings for ShuffleSettings {
    const KEYS: &'static [Key] = &[
        Key {
            name: "key",
            kind: "\"symmetric-flow\", \"flow\", \"source\", \"destination\", \"port\", \"vlan\" or \"owner\"",
            default: Some("\"symmetric-flow\""),
            summary: "What the packets that come to one worker have in common; `port` is the one that they arrived at.",
        },
        Key {
            name: "full",
            kind: "\"wait\" or \"drop\"",
            default: Some("\"wait\""),
            summary: "When the ring to a worker is full: receive nothing until there is room, or drop as `ring-full`.",
        },
        Key {
            name: "ring",
            kind: "whole number, packets",
            default: Some("1024"),
            summary: "Packets that the ring from each worker to each other holds; rounded up to a power of two.",
        },
    ];

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
