//! Settings of `ttl`.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::icmp::IcmpErrors;
use netbricks_core::{DropReason, InvalidSetting, Key, RenamedKey, Settings, Verdict};

/// The treatment of packets without a time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonIp {
    /// They pass unchanged, and so do IP packets that never leave their link.
    #[default]
    Pass,
    /// They are dropped as `unmatched`, as in the paper's Listing 1.
    Drop,
}

impl NonIp {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Drop => Verdict::drop(DropReason::Unmatched),
            Self::Pass => Verdict::PASS,
        }
    }
}

/// Settings of `ttl`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TtlConfig {
    /// The treatment of packets that are not IP.
    pub non_ip: NonIp,
    /// Answers expired IPv4 packets with Time Exceeded from this address.
    pub answer_v4: Option<Ipv4Addr>,
    /// Answers expired IPv6 packets with Time Exceeded from this address.
    pub answer_v6: Option<Ipv6Addr>,
    /// Answers a second at most.
    pub answer_rate: u64,
}

impl Default for TtlConfig {
    fn default() -> Self {
        Self { non_ip: NonIp::Pass, answer_v4: None, answer_v6: None, answer_rate: 100 }
    }
}

impl TtlConfig {
    pub(super) fn errors(&self) -> IcmpErrors {
        IcmpErrors::new(self.answer_v4, self.answer_v6, self.answer_rate)
    }
}

impl Settings for TtlConfig {
    const KEYS: &'static [Key] = &[
        Key {
            name: "non_ip",
            kind: "\"pass\" or \"drop\"",
            default: Some("\"pass\""),
            summary: "Passes or drops packets that are not IP (ARP, LLC); \"pass\" also leaves link-local packets unchanged.",
        },
        Key {
            name: "answer_v4",
            kind: "IPv4 address",
            default: Some("none"),
            summary: "Expired IPv4 packets are answered with ICMP Time Exceeded from this address.",
        },
        Key {
            name: "answer_v6",
            kind: "IPv6 address",
            default: Some("none"),
            summary: "Expired IPv6 packets are answered with ICMPv6 Time Exceeded from this address.",
        },
        Key {
            name: "answer_rate",
            kind: "whole number, answers a second",
            default: Some("100"),
            summary: "At most so many answers go out, in bursts of up to 32.",
        },
    ];
    const RENAMED: &'static [RenamedKey] = &[RenamedKey { old: "other", new: "non_ip" }];

    fn check(&self) -> Result<(), InvalidSetting> {
        if (1..=1_000_000).contains(&self.answer_rate) {
            return Ok(());
        }
        let problem = format!("must be 1 to 1,000,000 answers a second, found {}", self.answer_rate);
        Err(InvalidSetting { key: "answer_rate", problem })
    }
}
