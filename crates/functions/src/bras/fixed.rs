//! The settings as the packet path needs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use netbricks_core::InvalidSetting;
use netbricks_core::packet::MacAddress;
use netbricks_core::units::Duration;

use super::config::{Authentication, BrasConfig, SharedSecret};
use super::session::NEVER;
use super::users::Users;

/// Settings that never change while the node lives. Times are in ns.
pub(super) struct Fixed {
    pub(super) mac: MacAddress,
    pub(super) address: Ipv4Addr,
    pub(super) address_v6: Option<Ipv6Addr>,
    /// The link-local address of the concentrator, from its Ethernet address.
    pub(super) link_local: Ipv6Addr,
    pub(super) name: Vec<u8>,
    pub(super) services: Vec<Vec<u8>>,
    /// Whether subscribers without an address of their own get one.
    pub(super) has_pool: bool,
    pub(super) dns_v4: [Option<Ipv4Addr>; 2],
    pub(super) dns_v6: [Option<Ipv6Addr>; 2],
    pub(super) methods: Vec<Authentication>,
    pub(super) users: Arc<Users>,
    /// The secret of RADIUS servers, where they know the passwords.
    pub(super) secret: Option<SharedSecret>,
    /// Whether sessions are reported.
    pub(super) accounts: bool,
    pub(super) interim: u64,
    pub(super) proof_wait: u64,
    pub(super) sessions: usize,
    pub(super) per_mac: u32,
    pub(super) per_line: u32,
    pub(super) mru: u16,
    pub(super) keepalive: u64,
    pub(super) misses: u32,
    pub(super) setup: u64,
    pub(super) longest: u64,
    pub(super) idle: u64,
    /// The name of the access port, for NAS-Port-Id.
    pub(super) access: String,
}

impl Fixed {
    /// # Errors
    /// A file that settings name cannot be used.
    pub(super) fn new(config: &BrasConfig) -> Result<Self, InvalidSetting> {
        let mac = config.station();
        let [a, b, c, d, e, f] = mac.octets();
        let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        let mut v4 = config.dns.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        let mut v6 = config.dns.iter().filter_map(|address| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        });
        let secret = config.radius_secret()?;
        let never = |limit: Option<Duration>| limit.map_or(NEVER, Duration::nanoseconds);
        let proof_wait = config.proof_wait().nanoseconds();
        Ok(Self {
            mac,
            address: config.address,
            address_v6: config.address_v6,
            link_local: Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(id)),
            name: config.name.clone().into_bytes(),
            services: config.services.iter().map(|name| name.clone().into_bytes()).collect(),
            has_pool: !config.pool.is_empty(),
            dns_v4: [v4.next(), v4.next()],
            dns_v6: [v6.next(), v6.next()],
            methods: config.authentication.clone(),
            users: config.known_users()?,
            accounts: secret.is_some() && config.accounting_port != 0,
            secret,
            interim: config.interim.nanoseconds(),
            proof_wait,
            sessions: config.sessions,
            per_mac: config.per_mac,
            per_line: config.per_line.unwrap_or(u32::MAX),
            mru: config.mru,
            keepalive: config.keepalive.nanoseconds(),
            misses: config.misses,
            setup: config.setup_timeout.nanoseconds().max(if config.radius.is_empty() {
                0
            } else {
                proof_wait
            }),
            longest: never(config.session_timeout),
            idle: never(config.idle_timeout),
            access: config.access.clone(),
        })
    }
}
