//! Settings of `group-by`.

use netbricks_core::{GroupConfig, InvalidSetting, Key, Settings, ShuffleKey};

/// Settings of `group-by`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// The number of groups.
    pub groups: usize,
    /// The property that the packets of one group share.
    #[serde(default)]
    pub key: ShuffleKey,
    /// Packets that each group's queue holds.
    #[serde(default)]
    pub queue: usize,
}

impl Settings for GroupSettings {
    const KEYS: &'static [Key] = &[
        Key {
            name: "groups",
            kind: "whole number, 1 to 128",
            default: None,
            summary: "How many groups; the first goes on with the chain, the others begin chains at `NAME.1` and so on.",
        },
        Key {
            name: "key",
            kind: "\"symmetric-flow\", \"flow\", \"source\", \"destination\", \"port\", \"vlan\" or \"owner\"",
            default: Some("\"symmetric-flow\""),
            summary: "What the packets of one group have in common; `port` is the one that they arrived at.",
        },
        Key {
            name: "queue",
            kind: "whole number, packets",
            default: Some("0"),
            summary: "Packets that each group's queue holds; queues get their turns one after the other. 0: no queues.",
        },
    ];

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
