//! Settings of `mss`.

use netbricks_core::{InvalidSetting, Key, Settings};

/// Settings of `mss`: either `size` or `mtu`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MssConfig {
    /// The largest segment (bytes of payload), whatever the IP version.
    pub size: Option<u16>,
    /// The largest IP packet (bytes), from which the size follows for each version.
    pub mtu: Option<u16>,
    /// Whether segments without a size get one.
    pub add: bool,
}

/// Bytes of the headers without options, of IPv4 and of IPv6, each with TCP's.
const HEADERS: [u16; 2] = [40, 60];
/// The least that Linux accepts (`tcp_min_snd_mss`): with less, the overhead of packets is too large.
const LEAST: u16 = 48;
/// The least MTU, so that IPv6 segments have the least size, too.
const LEAST_MTU: u16 = LEAST + HEADERS[1];

impl MssConfig {
    /// The largest segments of IPv4 and of IPv6.
    pub(super) fn sizes(&self) -> [u16; 2] {
        HEADERS.map(|headers| match (self.size, self.mtu) {
            (Some(size), _) => size,
            (None, Some(mtu)) => mtu.saturating_sub(headers),
            (None, None) => u16::MAX,
        })
    }
}

impl Settings for MssConfig {
    const KEYS: &'static [Key] = &[
        Key {
            name: "size",
            kind: "whole number, bytes of payload",
            default: Some("none"),
            summary: "Larger segment sizes are lowered to this; either it or `mtu` must be given.",
        },
        Key {
            name: "mtu",
            kind: "whole number, bytes of an IP packet",
            default: Some("none"),
            summary: "As `size`, less the headers: 40 bytes with IPv4, 60 with IPv6.",
        },
        Key {
            name: "add",
            kind: "true or false",
            default: Some("false"),
            summary: "Whether segments that state no size are given one: 536 bytes with IPv4, 1220 with IPv6, or less.",
        },
    ];

    fn check(&self) -> Result<(), InvalidSetting> {
        let (key, problem) = match (self.size, self.mtu) {
            (Some(size), None) if size < LEAST => {
                ("size", format!("must be {LEAST} to 65,535 bytes, found {size}"))
            }
            (None, Some(mtu)) if mtu < LEAST_MTU => {
                ("mtu", format!("must be {LEAST_MTU} to 65,535 bytes, found {mtu}"))
            }
            (Some(_), Some(_)) => ("mtu", "says what `size` says already: leave one of them out".into()),
            (None, None) => ("size", "must be given, or `mtu` in its place, found neither".into()),
            _ => return Ok(()),
        };
        Err(InvalidSetting { key, problem })
    }
}
