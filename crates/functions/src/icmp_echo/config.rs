//! Settings of `icmp-echo`.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::MacAddress;
use netbricks_core::{InvalidSetting, Key, Settings};

/// Settings of `icmp-echo`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoConfig {
    /// The MAC address that it answers with.
    #[serde(default)]
    pub mac: Option<String>,
    /// The IPv4 address that answers.
    #[serde(default)]
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address that answers.
    #[serde(default)]
    pub v6: Option<Ipv6Addr>,
}

/// The default, a locally administered address.
const DEFAULT_MAC: MacAddress = MacAddress::new([0x02, 0x4e, 0x42, 0, 0, 1]);

impl EchoConfig {
    /// The MAC address that it answers with.
    pub fn mac(&self) -> MacAddress {
        self.mac.as_deref().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_MAC)
    }
}

impl Settings for EchoConfig {
    const KEYS: &'static [Key] = &[
        Key {
            name: "v4",
            kind: "IPv4 address",
            default: Some("none"),
            summary: "The address that answers ARP and echo requests.",
        },
        Key {
            name: "v6",
            kind: "IPv6 address",
            default: Some("none"),
            summary: "The address that answers neighbour solicitations and echo requests.",
        },
        Key {
            name: "mac",
            kind: "MAC address",
            default: Some("\"02:4e:42:00:00:01\""),
            summary: "The link address that it answers with.",
        },
    ];

    fn check(&self) -> Result<(), InvalidSetting> {
        if let Some(v4) = self.v4.filter(|a| a.is_unspecified() || a.is_multicast() || a.is_broadcast()) {
            return Err(InvalidSetting {
                key: "v4",
                problem: format!("must be one host's address, found `{v4}`"),
            });
        }
        if let Some(v6) = self.v6.filter(|a| a.is_unspecified() || a.is_multicast()) {
            return Err(InvalidSetting {
                key: "v6",
                problem: format!("must be one host's address, found `{v6}`"),
            });
        }
        match self.mac.as_deref().map(str::parse::<MacAddress>) {
            Some(Err(error)) => Err(InvalidSetting { key: "mac", problem: error.to_string() }),
            Some(Ok(mac)) if mac.is_multicast() => Err(InvalidSetting {
                key: "mac",
                problem: format!("must be one host's address, found a group's, `{mac}`"),
            }),
            _ if self.v4.is_none() && self.v6.is_none() => Err(InvalidSetting {
                key: "v4",
                problem: "or `v6` must be given: there is no address to answer".into(),
            }),
            _ => Ok(()),
        }
    }
}
