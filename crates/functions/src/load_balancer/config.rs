//! Settings of `load-balancer`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::live::{Entries, Written, follow_weights};
use netbricks_core::units::{Duration, list_from_text};
use netbricks_core::{InvalidSetting, LiveSettings, Settings};
use serde::de::Deserializer;

use super::server::Server;
use super::servers::{First, Pool};

/// The choice of a server for a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// By Maglev's table, alike on every worker and node.
    #[default]
    Maglev,
    /// One after the other, by weight.
    RoundRobin,
    /// The one with the fewest connections, by weight.
    LeastConnections,
}

/// The way in which packets reach their server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By the server's Ethernet address; the server answers the client itself.
    #[default]
    Dsr,
    /// By the server's address in place of the service's; its answers come back here.
    Nat,
    /// In a tunnel of IP in IP (RFC 2003, RFC 2473); the server answers the client itself.
    Ipip,
    /// In a tunnel of generic UDP encapsulation; the server answers the client itself.
    Gue,
}

impl Mode {
    /// Whether a server can be reached this way.
    pub(super) fn admits(self, server: &Server) -> Result<(), String> {
        let name = &server.name;
        match self {
            Self::Dsr if server.mac.is_none() => {
                Err(format!("server `{name}` needs an Ethernet address with `mode = \"dsr\"`"))
            }
            Self::Nat | Self::Ipip | Self::Gue if server.address.is_none() => {
                Err(format!("server `{name}` needs an IP address with this mode"))
            }
            Self::Ipip | Self::Gue | Self::Dsr if server.port.is_some() && self != Self::Dsr => {
                Err(format!("server `{name}` has a port, which only `mode = \"nat\"` can change"))
            }
            _ => Ok(()),
        }
    }
}

/// The kind of health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// A connection is opened.
    Tcp,
    /// A page is asked for, and the answer's status is 2xx or 3xx.
    Http,
    /// An echo request is answered.
    Icmp,
}

netbricks_core::settings! {
    /// Settings of `load-balancer`.
    #[derive(Clone, Debug)]
    pub struct LoadBalancerConfig {
        /// The servers that get the packets.
        pub servers: Vec<Server> = required,
            "list of \"NAME [ADDRESS[:PORT]] [ETHERNET-ADDRESS] [WEIGHT]\"", read by servers;
        /// The addresses of the service; with address translation, one of each IP version.
        pub addresses: Vec<IpAddr> = required, "list of IP addresses";
        /// The port of the service; packets to other ports pass.
        pub port: Option<u16> = unset "all ports", "port number";
        /// The choice of a server for a new connection.
        pub policy: Policy = "maglev", "\"maglev\", \"round-robin\" or \"least-connections\"";
        /// The way in which packets reach their server.
        pub mode: Mode = "dsr", "\"dsr\", \"nat\", \"ipip\" or \"gue\"";
        /// The source of IPv4 tunnels.
        pub tunnel_v4: Option<Ipv4Addr> = unset, "IPv4 address";
        /// The source of IPv6 tunnels.
        pub tunnel_v6: Option<Ipv6Addr> = unset, "IPv6 address";
        /// The UDP port of generic UDP encapsulation.
        pub gue_port: u16 = 6_080, "port number";
        /// Connections that each worker remembers.
        pub capacity: usize = 65_536, "whole number, connections";
        /// After this time without a packet, a connection is forgotten.
        pub idle: Duration = "5 min", "duration: a number and ns, us, ms, s, min, h or d";
        /// Slots of Maglev's table.
        pub slots: usize = 65_537, "prime number, up to 131_101";
        /// A secret that is the same on all nodes.
        pub key: String = "", "text";
        /// How the health of servers is checked, from the host, by their IP addresses.
        pub health: Option<Health> = unset "servers count as well", "\"tcp\", \"http\" or \"icmp\"";
        /// The port that is checked; else the server's, or that of the service.
        pub health_port: Option<u16> = unset, "port number";
        /// The path that is asked for.
        pub health_path: String = "/", "text";
        /// The time between two checks of a server.
        pub health_interval: Duration = "2 s", "duration, as `idle`";
        /// A check without an answer fails after this time.
        pub health_timeout: Duration = "1 s", "duration, as `idle`";
        /// Checks in a row that fail before a server counts as down.
        pub fall: u32 = 3, "whole number, checks";
        /// Checks in a row that succeed before a server counts as well again.
        pub rise: u32 = 2, "whole number, checks";
    }
}

fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Server>, D::Error> {
    list_from_text(deserializer, str::parse::<Server>)
}

/// From a millisecond to a day: less is no connection, and more is no timeout.
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);
/// Addresses are compared one by one.
const MOST_ADDRESSES: usize = 64;

impl LoadBalancerConfig {
    pub(super) fn state(&self) -> First {
        let checked = self.health.is_some();
        First {
            servers: self.servers.clone(),
            mode: self.mode,
            slots: self.slots,
            key: self.key.clone(),
            checked,
        }
    }

    /// The port at which a server is checked; `None` where there is none to check.
    pub fn checked_port(&self, server: &Server) -> Option<u16> {
        self.health_port.or(server.port).or(self.port)
    }

    fn check_mode(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem: String| Err(InvalidSetting { key, problem });
        let has =
            |v4: bool| self.servers.iter().any(|server| server.address.is_some_and(|at| at.is_ipv4() == v4));
        let tunnels = matches!(self.mode, Mode::Ipip | Mode::Gue);
        if tunnels && has(true) && self.tunnel_v4.is_none() {
            return refused("mode", "needs `tunnel_v4`, the source of tunnels to IPv4 servers".into());
        }
        if tunnels && has(false) && self.tunnel_v6.is_none() {
            return refused("mode", "needs `tunnel_v6`, the source of tunnels to IPv6 servers".into());
        }
        if self.mode == Mode::Nat {
            for v4 in [true, false] {
                let count = self.addresses.iter().filter(|address| address.is_ipv4() == v4).count();
                let name = if v4 { "IPv4" } else { "IPv6" };
                if count > 1 {
                    let problem = format!(
                        "holds {count} {name} addresses: with `mode = \"nat\"` one, so that answers have a source"
                    );
                    return refused("addresses", problem);
                }
                if count == 0 && has(v4) {
                    return refused("addresses", format!("needs an {name} address for the {name} servers"));
                }
                if count == 1 && !has(v4) {
                    return refused("servers", format!("needs an {name} server for the {name} address"));
                }
            }
            if self.port.is_none() && self.servers.iter().any(|server| server.port.is_some()) {
                return refused(
                    "servers",
                    "have ports, which stand for the service's `port`: give that, too".into(),
                );
            }
        }
        Ok(())
    }
}

impl Settings for LoadBalancerConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem: String| Err(InvalidSetting { key, problem });
        if self.addresses.is_empty() || self.addresses.len() > MOST_ADDRESSES {
            return refused(
                "addresses",
                format!("must hold 1 to {MOST_ADDRESSES} addresses, found {}", self.addresses.len()),
            );
        }
        if let Some(group) = self.addresses.iter().find(|address| address.is_multicast()) {
            return refused("addresses", format!("holds {group}, which is a group's: take it out"));
        }
        if self.port == Some(0) || self.health_port == Some(0) || self.gue_port == 0 {
            let key = if self.port == Some(0) {
                "port"
            } else if self.gue_port == 0 {
                "gue_port"
            } else {
                "health_port"
            };
            return refused(key, "must be 1 to 65535, found 0".into());
        }
        if self.capacity == 0 || self.capacity > 1 << 24 {
            return refused(
                "capacity",
                format!("must be 1 to 16,777,216 connections, found {}", self.capacity),
            );
        }
        for (key, time) in [
            ("idle", self.idle),
            ("health_interval", self.health_interval),
            ("health_timeout", self.health_timeout),
        ] {
            if !IDLE.contains(&time) {
                return refused(key, format!("must be \"1 ms\" to \"1 d\", found \"{time}\""));
            }
        }
        if self.fall == 0 || self.rise == 0 {
            return refused(
                if self.fall == 0 { "fall" } else { "rise" },
                "must be 1 check or more, found 0".into(),
            );
        }
        if self.slots > 131_101 {
            return refused("slots", format!("must be a prime up to 131101, found {}", self.slots));
        }
        if self.servers.is_empty() {
            return refused("servers", "must hold at least one server, found []".into());
        }
        if let Err(problem) = Pool::first(&self.state()) {
            let key = if problem.contains("slots") { "slots" } else { "servers" };
            return refused(key, format!("cannot be: {problem}"));
        }
        if self.health.is_some() {
            if let Some(server) = self.servers.iter().find(|server| server.address.is_none()) {
                return refused("health", format!("needs the IP address of server `{}`", server.name));
            }
            let portless = self.servers.iter().find(|server| self.checked_port(server).is_none());
            if let Some(server) = portless.filter(|_| self.health != Some(Health::Icmp)) {
                return refused(
                    "health",
                    format!("needs a port of server `{}`: give `port` or `health_port`", server.name),
                );
            }
        }
        self.check_mode()
    }
}

impl LiveSettings for LoadBalancerConfig {
    const LIVE: &'static [&'static str] = &["servers"];
    const ENTRIES: &'static str = "servers";
    const ADD: &'static str = "add";
    const REMOVE: &'static str = "remove";

    fn entries(&self) -> Entries {
        self.servers.iter().map(|server| (server.name.clone(), server.to_string())).collect()
    }

    fn follow(entries: &mut Entries, written: Written<'_>) -> bool {
        follow_weights::<Self, _>(entries, written, |server, weight| Server { weight, ..server })
    }
}
