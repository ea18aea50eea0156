//! Settings of `icmp-echo`.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::MacAddress;
use netbricks_core::{InvalidSetting, Settings};

netbricks_core::settings! {
    /// Settings of `icmp-echo`.
    #[derive(Clone, Debug)]
    pub struct EchoConfig {
        /// The address that answers ARP and echo requests.
        pub v4: Option<Ipv4Addr> = unset, "IPv4 address";
        /// The address that answers neighbour solicitations and echo requests.
        pub v6: Option<Ipv6Addr> = unset, "IPv6 address";
        /// The link address that it answers with.
        pub mac: Option<String> = "02:4e:42:00:00:01", "MAC address";
    }
}

impl EchoConfig {
    /// The MAC address that it answers with.
    pub fn mac(&self) -> MacAddress {
        let written = |config: &Self| config.mac.as_deref().and_then(|text| text.parse().ok());
        written(self).or_else(|| written(&Self::default())).expect("the declared default is an address")
    }
}

impl Settings for EchoConfig {
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
