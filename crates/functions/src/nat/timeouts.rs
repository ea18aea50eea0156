//! How long sessions live without a packet.

use super::config::NatConfig;
use super::session::Session;
use super::spec::Transport;

/// How long sessions live without a packet (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) tcp: u64,
    pub(super) transitory: u64,
    pub(super) udp: u64,
    pub(super) icmp: u64,
    pub(super) inbound_refresh: bool,
}

impl Timeouts {
    pub(super) fn new(config: &NatConfig) -> Self {
        Self {
            tcp: config.tcp.nanoseconds(),
            transitory: config.tcp_transitory.nanoseconds(),
            udp: config.udp.nanoseconds(),
            icmp: config.icmp.nanoseconds(),
            inbound_refresh: config.inbound_refresh,
        }
    }

    /// The time (ns) without a packet after which a session is over.
    pub(super) fn of(&self, session: &Session) -> u64 {
        match session.transport {
            Transport::Udp => self.udp,
            Transport::Icmp => self.icmp,
            Transport::Tcp if session.phase.is_transitory() => self.transitory,
            Transport::Tcp => self.tcp,
        }
    }
}
