//! The ends of a flow: two addresses and two ports, as a packet has them.

use std::fmt;
use std::net::Ipv4Addr;

use netbricks_core::packet::checksum;

/// Addresses and ports of a packet, which name its flow and direction.
///
/// Rewriters that know no ports leave them 0, and those that know one address leave the other 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FlowId {
    /// Source address.
    pub(super) source: u32,
    /// Destination address.
    pub(super) destination: u32,
    /// Source port, or an ICMP echo's identifier.
    pub(super) source_port: u16,
    /// Destination port.
    pub(super) destination_port: u16,
}

impl FlowId {
    /// The same flow's packets in the other direction.
    pub(super) fn reverse(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// A key of the table of mappings: the flow in one of the maps.
    #[inline(always)]
    pub(super) fn key(self, map: u32) -> [u64; 2] {
        [
            u64::from(self.source) << 32 | u64::from(self.destination),
            u64::from(map) << 32 | u64::from(self.source_port) << 16 | u64::from(self.destination_port),
        ]
    }

    /// Source and destination addresses.
    pub(super) fn addresses(self) -> (Ipv4Addr, Ipv4Addr) {
        (self.source.into(), self.destination.into())
    }
}

impl fmt::Display for FlowId {
    /// `(1.0.0.1, 20, 2.0.0.2, 80)`, as Click writes it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = self.addresses();
        write!(to, "({source}, {}, {destination}, {})", self.source_port, self.destination_port)
    }
}

/// The difference that a rewriting makes to checksums, as a checksum over what was and is (RFC 1624).
///
/// 0 stands for no difference: no other rewriting has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference(u16);

impl Difference {
    /// The sum with one 16-bit word more.
    pub(super) fn word(self, old: u16, new: u16) -> Self {
        Self(checksum::update16(self.0, old, new))
    }
    /// The sum with one 32-bit word more.
    pub(super) fn long(self, old: u32, new: u32) -> Self {
        self.word((old >> 16) as u16, (new >> 16) as u16).word(old as u16, new as u16)
    }
    /// The checksum after the rewriting, or after it was taken back.
    #[inline(always)]
    pub(super) fn apply(self, checksum: u16, back: bool) -> u16 {
        if self.0 == 0 {
            return checksum;
        }
        checksum::update16(checksum, 0, if back { self.0 } else { !self.0 })
    }
}
