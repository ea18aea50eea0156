//! Settings of `bras`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{Secret, hash_words};
use netbricks_core::units::{Duration, from_text, list_from_text};
use netbricks_core::{InvalidSetting, Settings, read_private_text};
use serde::de::{Deserialize, Deserializer};

use super::pool::{AddressRange, MOST, Prefix, Reserved, is_of_host, mask, upper};
use super::users::Users;

/// A protocol by which a subscriber proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// The password authentication protocol (RFC 1334).
    Pap,
    /// The challenge handshake with MD5 (RFC 1994).
    Chap,
}

/// The next hop on the core side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// Its Ethernet address.
    Mac(MacAddress),
    /// Its IPv4 address, which is asked for by ARP.
    Address(Ipv4Addr),
}

impl std::str::FromStr for Gateway {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse().ok().map(Self::Address);
        address
            .or_else(|| text.parse().ok().map(Self::Mac))
            .ok_or_else(|| format!("expected an IPv4 or Ethernet address, found `{text}`"))
    }
}

impl<'de> Deserialize<'de> for Gateway {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

netbricks_core::settings! {
    /// Settings of `bras`.
    #[derive(Clone, Debug)]
    pub struct BrasConfig {
        /// The port of the subscribers, with PPPoE.
        pub access: String = required, "name of a port";
        /// The port of the network behind, with IP.
        pub core: String = required, "name of a port";
        /// The concentrator's own IPv4 address on both sides.
        pub address: Ipv4Addr = required, "IPv4 address";
        /// The next hop on the core side.
        pub gateway: Gateway = required, "IPv4 or Ethernet address";
        /// The source of ICMPv6 errors.
        pub address_v6: Option<Ipv6Addr> = unset, "IPv6 address";
        /// The concentrator's Ethernet address on both sides.
        pub mac: Option<MacAddress> = unset "one that follows from the name", "Ethernet address", read by station;
        /// The name that discovery shows to subscribers (AC-Name).
        pub name: String = "netbricks", "text";
        /// Services that are offered; without any, every service is accepted.
        pub services: Vec<String> = [], "list of texts";
        /// Addresses of subscribers that have none of their own.
        pub pool: Vec<AddressRange> = [], "list of \"FIRST-LAST\" or \"ADDRESS/LENGTH\"", read by ranges;
        /// DNS servers that subscribers are told: up to two of each version.
        pub dns: Vec<IpAddr> = [], "list of IP addresses";
        /// Prefixes of subscribers that have none of their own.
        pub prefixes: Option<Prefix> = unset "no IPv6 beyond link-local addresses", "\"ADDRESS/LENGTH\"", read by prefix;
        /// The length of each subscriber's prefix.
        pub prefix_length: u8 = 64, "whole number, bits";
        /// How subscribers prove who they are, the first being asked for first; `[]`: they need not.
        pub authentication: Vec<Authentication> = ["chap", "pap"], "list of \"chap\" and \"pap\"";
        /// A file of users, which only its owner may read.
        pub users: Option<PathBuf> = unset, "path of a file with NAME PASSWORD [ADDRESS] [PREFIX] on each line";
        /// RADIUS servers, the first being asked first.
        pub radius: Vec<SocketAddr> = [], "list of \"ADDRESS[:PORT]\"", read by servers;
        /// A file with the secret of the RADIUS servers, which only its owner may read.
        pub secret: Option<PathBuf> = unset, "path of a file";
        /// The port to which sessions are reported; 0: they are not.
        pub accounting_port: u16 = 1_813, "port number";
        /// The time between two reports of a session.
        pub interim: Duration = "10 min", "duration: a number and ns, us, ms, s, min, h or d";
        /// How long a RADIUS server has for its answer.
        pub radius_timeout: Duration = "2 s", "duration";
        /// How often each RADIUS server is asked.
        pub radius_tries: u32 = 3, "whole number";
        /// Whether answers without a Message-Authenticator are believed, which others on the way can forge.
        pub unsigned_answers: bool = false, "true or false";
        /// Sessions at a time.
        pub sessions: usize = 4_096, "whole number, sessions";
        /// Sessions at a time of one Ethernet address on one line.
        pub per_mac: u32 = 1, "whole number, sessions";
        /// Sessions at a time of one line: a VLAN or pair of VLANs.
        pub per_line: Option<u32> = unset "no limit", "whole number, sessions";
        /// Discovery packets that are answered.
        pub discovery_rate: u64 = 1_000, "whole number, packets a second";
        /// Discovery packets of one Ethernet address on one line that are answered.
        pub discovery_rate_each: u64 = 10, "whole number, packets a second";
        /// The longest PPP payload; more than 1492 only for subscribers that ask for it (RFC 4638).
        pub mru: u16 = 1_492, "whole number, bytes";
        /// The time between two LCP echo requests.
        pub keepalive: Duration = "10 s", "duration";
        /// Echo requests without an answer after which a session ends.
        pub misses: u32 = 3, "whole number";
        /// After this time a negotiation must have ended.
        pub setup_timeout: Duration = "30 s", "duration";
        /// After this time a session ends.
        pub session_timeout: Option<Duration> = unset "no limit", "duration";
        /// After this time without a packet from the subscriber a session ends.
        pub idle_timeout: Option<Duration> = unset "no limit", "duration";
        /// ICMP errors of a worker.
        pub error_rate: u64 = 1_000, "whole number, packets a second";
        /// The users of the file, after it was read.
        known: OnceLock<Arc<Users>> = skipped;
        /// The secret, after it was read.
        shared: OnceLock<SharedSecret> = skipped;
    }
}

/// The secret that RADIUS servers know. It is never printed.
#[derive(Clone)]
pub struct SharedSecret(Arc<[u8]>);

impl SharedSecret {
    /// A secret of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret")
    }
}

fn ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AddressRange>, D::Error> {
    let mut known: Vec<AddressRange> = Vec::new();
    list_from_text(deserializer, |text| {
        let range: AddressRange = text.parse()?;
        if let Some(other) = known.iter().find(|other| other.first <= range.last && range.first <= other.last)
        {
            return Err(format!("{range} overlaps {other}"));
        }
        known.push(range);
        Ok(range)
    })
}

fn station<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MacAddress>, D::Error> {
    from_text::<MacAddress, D>(deserializer).map(Some)
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Prefix>, D::Error> {
    from_text::<Prefix, D>(deserializer).map(Some)
}

fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    list_from_text(deserializer, |text| {
        let server = text.parse::<SocketAddr>().ok();
        let server = server.or_else(|| text.parse::<IpAddr>().ok().map(|address| (address, 1_812).into()));
        server
            .filter(|server| server.port() > 0)
            .ok_or_else(|| format!("expected ADDRESS or ADDRESS:PORT, found `{text}`"))
    })
}

/// Lines of a wrong file that are shown.
const SHOWN: usize = 20;
/// The most bytes of a file of users.
const LARGEST: u64 = 64 << 20;
/// The most bytes of a secret's file.
const LARGEST_SECRET: u64 = 4_096;
/// Periods that timers can keep.
const PERIOD: RangeInclusive<Duration> =
    Duration::from_nanoseconds(100_000_000)..=Duration::from_nanoseconds(30 * 86_400_000_000_000);

fn refused<T>(key: &'static str, problem: impl Into<String>) -> Result<T, InvalidSetting> {
    Err(InvalidSetting { key, problem: problem.into() })
}

impl BrasConfig {
    /// The concentrator's Ethernet address.
    pub fn station(&self) -> MacAddress {
        self.mac.unwrap_or_else(|| {
            let words: Vec<u64> = self.name.bytes().map(u64::from).collect();
            let [a, b, c, d, e, ..] = hash_words(&words, &Secret::from_seed(0)).to_be_bytes();
            MacAddress::new([0x02, a, b, c, d, e])
        })
    }

    /// The users of the file; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or lines are wrong.
    pub(super) fn known_users(&self) -> Result<Arc<Users>, InvalidSetting> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let Some(path) = &self.users else { return Ok(Arc::default()) };
        let shown = path.display();
        let text = read_private_text(path, LARGEST)
            .or_else(|error| refused("users", format!("names {shown}, which cannot be used: {error}")))?;
        let users = Users::read(&text, self.prefix_length, &self.reserved()).or_else(|wrong| {
            let lines =
                if wrong.len() == 1 { "a wrong line".into() } else { format!("{} wrong lines", wrong.len()) };
            let mut text = format!("names a file with {lines}");
            for (line, problem) in wrong.iter().take(SHOWN) {
                text += &format!("\n{shown}:{line}: {problem}");
            }
            if wrong.len() > SHOWN {
                text += &format!("\n… and {} more", wrong.len() - SHOWN);
            }
            refused("users", text)
        })?;
        Ok(self.known.get_or_init(|| Arc::new(users)).clone())
    }

    /// The secret of the RADIUS servers; `None` where there are no servers.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or it is empty.
    pub fn radius_secret(&self) -> Result<Option<SharedSecret>, InvalidSetting> {
        if let Some(secret) = self.shared.get() {
            return Ok(Some(secret.clone()));
        }
        let Some(path) = self.secret.as_ref().filter(|_| !self.radius.is_empty()) else { return Ok(None) };
        let shown = path.display();
        let text = read_private_text(path, LARGEST_SECRET)
            .or_else(|error| refused("secret", format!("names {shown}, which cannot be used: {error}")))?;
        // The end of the line is not part of it.
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return refused("secret", format!("names {shown}, which is empty: write the secret into it"));
        }
        let secret = SharedSecret::new(secret.as_bytes());
        Ok(Some(self.shared.get_or_init(|| secret).clone()))
    }

    /// The addresses that no subscriber may have.
    pub(super) fn reserved(&self) -> Reserved {
        let gateway = match self.gateway {
            Gateway::Address(address) => Some(IpAddr::V4(address)),
            Gateway::Mac(_) => None,
        };
        let all = [Some(IpAddr::V4(self.address)), gateway, self.address_v6.map(IpAddr::V6)];
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in all.into_iter().flatten().chain(self.dns.iter().copied()) {
            match address {
                IpAddr::V4(address) if !v4.contains(&address) => v4.push(address),
                IpAddr::V6(address) if !v6.contains(&address) => v6.push(address),
                _ => {}
            }
        }
        Reserved { v4, v6 }
    }

    /// How long a subscriber waits for the RADIUS servers.
    ///
    /// Each server is asked several times, one after the other, and the task needs a moment.
    pub fn proof_wait(&self) -> Duration {
        let asked = u64::from(self.radius_tries).saturating_mul(self.radius.len().max(1) as u64);
        let asked = asked.saturating_mul(self.radius_timeout.nanoseconds());
        Duration::from_nanoseconds(asked.saturating_add(5_000_000_000))
    }

    fn check_authentication(&self) -> Result<(), InvalidSetting> {
        let (by_file, by_radius) = (self.users.is_some(), !self.radius.is_empty());
        match self.authentication.as_slice() {
            [one, other, ..] if one == other => return refused("authentication", "names a protocol twice"),
            [_, _, _, ..] => return refused("authentication", "names a protocol twice"),
            [] if by_file => {
                return refused("users", "is not used without `authentication`: give one of them");
            }
            [] if by_radius => {
                return refused("radius", "is not used without `authentication`: give one of them");
            }
            [_, ..] if !by_file && !by_radius => {
                let problem = "needs `users` or `radius`, where passwords are known; write `authentication = []` where none is needed";
                return refused("authentication", problem);
            }
            _ => {}
        }
        if by_file && by_radius {
            return refused("users", "and `radius` cannot both know the passwords: take one out");
        }
        if by_radius && self.secret.is_none() {
            return refused("radius", "needs `secret`, a file with the secret of the servers");
        }
        if !by_radius && self.secret.is_some() {
            return refused("secret", "is not used without `radius`");
        }
        if self.radius.len() > 8 {
            return refused("radius", format!("must hold at most 8 servers, found {}", self.radius.len()));
        }
        self.radius_secret()?;
        let users = self.known_users()?;
        if by_file && users.len() == 0 {
            return refused("users", "names a file without users: no subscriber could open a session");
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), InvalidSetting> {
        let addresses: u64 = self.pool.iter().map(AddressRange::len).sum();
        if addresses > MOST {
            return refused("pool", format!("must hold at most {MOST} addresses, found {addresses}"));
        }
        let is_bad = |range: &&AddressRange| !is_of_host(range.first) || !is_of_host(range.last);
        if let Some(range) = self.pool.iter().find(is_bad) {
            return refused("pool", format!("holds {range}, which hosts cannot have"));
        }
        if !is_of_host(self.address) {
            return refused("address", format!("must be an address of a host, found {}", self.address));
        }
        if let Gateway::Address(gateway) = self.gateway
            && (!is_of_host(gateway) || gateway == self.address)
        {
            return refused("gateway", format!("must be the address of another host, found {gateway}"));
        }
        let reserved = self.reserved();
        let is_in_pool = |address: &&Ipv4Addr| self.pool.iter().any(|range| range.holds(**address));
        let usable = addresses - reserved.v4.iter().filter(is_in_pool).count() as u64;
        if !self.pool.is_empty() && usable == 0 {
            let problem = "has no address beside those of the concentrator, `gateway` and `dns`: add others";
            return refused("pool", problem);
        }
        let all_have_one = self.authentication.is_empty();
        if all_have_one && !self.pool.is_empty() && usable < self.sessions as u64 {
            let problem = format!(
                "has {usable} addresses for {} sessions: lower `sessions`, or add addresses",
                self.sessions
            );
            return refused("pool", problem);
        }
        if !(16..=64).contains(&self.prefix_length) {
            return refused("prefix_length", format!("must be 16 to 64 bits, found {}", self.prefix_length));
        }
        if let Some(pool) = self.prefixes {
            let bits = self.prefix_length.checked_sub(pool.len);
            let Some(bits) = bits else {
                let problem =
                    format!("has {} bits, more than `prefix_length` = {}", pool.len, self.prefix_length);
                return refused("prefixes", problem);
            };
            if !pool.is_of_hosts() {
                return refused("prefixes", format!("holds {pool}, which hosts cannot have"));
            }
            let inside = reserved.v6.iter().filter(|address| pool.holds(**address));
            let mut taken: Vec<u64> =
                inside.map(|address| upper(*address) & mask(self.prefix_length)).collect();
            taken.sort_unstable();
            taken.dedup();
            let count = (1_u64 << bits.min(63)) - taken.len() as u64;
            if count == 0 {
                let problem = "has no prefix beside those of `address_v6` and `dns`: add others";
                return refused("prefixes", problem);
            }
            if all_have_one && count < self.sessions as u64 {
                let problem = format!(
                    "has {count} prefixes of {} bits for {} sessions",
                    self.prefix_length, self.sessions
                );
                return refused("prefixes", problem);
            }
        }
        let of_version = |v4: bool| self.dns.iter().filter(|address| address.is_ipv4() == v4).count();
        if of_version(true) > 2 || of_version(false) > 2 {
            return refused("dns", "must hold at most two addresses of each IP version");
        }
        Ok(())
    }
}

impl Settings for BrasConfig {
    fn start_from(&mut self, directory: &Path) {
        self.users = self.users.take().map(|path| directory.join(path));
        self.secret = self.secret.take().map(|path| directory.join(path));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        if self.access == self.core {
            return refused("core", format!("must be another port than `access`, found \"{}\"", self.core));
        }
        if self.name.is_empty() || self.name.len() > 64 {
            return refused("name", format!("must have 1 to 64 bytes, found {}", self.name.len()));
        }
        if self.services.len() > 16 || self.services.iter().any(|name| name.len() > 64) {
            return refused("services", "must hold at most 16 names of at most 64 bytes");
        }
        if self.station().is_multicast() {
            return refused("mac", "must be the address of one station, found a group's");
        }
        if !(576..=1_500).contains(&self.mru) {
            return refused("mru", format!("must be 576 to 1500 bytes, found {}", self.mru));
        }
        if !(1..=1 << 20).contains(&self.sessions) {
            return refused("sessions", format!("must be 1 to 1,048,576, found {}", self.sessions));
        }
        for (key, value) in [
            ("per_mac", u64::from(self.per_mac)),
            ("per_line", self.per_line.map_or(1, u64::from)),
            ("discovery_rate", self.discovery_rate),
            ("discovery_rate_each", self.discovery_rate_each),
            ("misses", self.misses.into()),
            ("radius_tries", self.radius_tries.into()),
        ] {
            if !(1..=1_000_000_000).contains(&value) {
                return refused(key, format!("must be 1 or more, found {value}"));
            }
        }
        let second = Some(Duration::from_nanoseconds(1_000_000_000));
        for (key, period) in [
            ("interim", Some(self.interim)),
            ("radius_timeout", Some(self.radius_timeout)),
            ("keepalive", Some(self.keepalive)),
            ("setup_timeout", Some(self.setup_timeout)),
            ("session_timeout", self.session_timeout.or(second)),
            ("idle_timeout", self.idle_timeout.or(second)),
        ] {
            if let Some(period) = period.filter(|period| !PERIOD.contains(period)) {
                return refused(key, format!("must be \"100 ms\" to \"30 d\", found \"{period}\""));
            }
        }
        self.check_authentication()?;
        self.check_addresses()
    }
}
