//! Settings of `ttl`.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::icmp::IcmpErrors;
use netbricks_core::{InvalidSetting, RenamedKey, Settings};

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

netbricks_core::settings! {
    /// Settings of `ttl`.
    #[derive(Clone, Debug)]
    pub struct TtlConfig {
        /// Passes or drops packets that are not IP (ARP, LLC); "pass" also leaves link-local packets unchanged.
        pub non_ip: NonIp = "pass", "\"pass\" or \"drop\"";
        /// Expired IPv4 packets are answered with ICMP Time Exceeded from this address.
        pub answer_v4: Option<Ipv4Addr> = unset, "IPv4 address";
        /// Expired IPv6 packets are answered with ICMPv6 Time Exceeded from this address.
        pub answer_v6: Option<Ipv6Addr> = unset, "IPv6 address";
        /// The most answers a second, in bursts of up to 32.
        pub answer_rate: u64 = 100, "whole number, answers a second";
    }
}

impl TtlConfig {
    pub(super) fn errors(&self) -> IcmpErrors {
        IcmpErrors::new(self.answer_v4, self.answer_v6, self.answer_rate)
    }
}

impl Settings for TtlConfig {
    const RENAMED: &'static [RenamedKey] = &[RenamedKey { old: "other", new: "non_ip" }];

    fn check(&self) -> Result<(), InvalidSetting> {
        if (1..=1_000_000).contains(&self.answer_rate) {
            return Ok(());
        }
        let problem = format!("must be 1 to 1,000,000 answers a second, found {}", self.answer_rate);
        Err(InvalidSetting { key: "answer_rate", problem })
    }
}
