//! By what packets are shuffled, and into which bucket that puts them.

use std::net::IpAddr;

use netbricks_buffer::Packet;
use netbricks_packet::{FlowKey, HashKey};

use crate::state::TableKey;

/// Buckets between packets and workers.
pub const BUCKETS: usize = 4_096;

/// What the packets that come to one worker have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShuffleKey {
    /// Addresses, ports and protocol in either direction: a connection's both sides.
    #[default]
    SymmetricFlow,
    /// Addresses, ports and protocol in one direction.
    Flow,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The port that it arrived at.
    Port,
    /// The outer VLAN identifier, or that there is none.
    Vlan,
    /// Whose it is: the tenant.
    Owner,
    /// What a user function says.
    #[serde(skip)]
    Own,
}

/// Keeps hashes of different things apart that are the same number.
const NUMBER: u64 = 1 << 8;
const LINK: u64 = 2 << 8;

impl ShuffleKey {
    /// The keys that configuration can name.
    pub const ALL: [Self; 7] = [
        Self::SymmetricFlow,
        Self::Flow,
        Self::Source,
        Self::Destination,
        Self::Port,
        Self::Vlan,
        Self::Owner,
    ];

    /// As it is written in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SymmetricFlow => "symmetric-flow",
            Self::Flow => "flow",
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Port => "port",
            Self::Vlan => "vlan",
            Self::Owner => "owner",
            Self::Own => "own",
        }
    }

    /// The hash of a packet. Without an IP header, what asks for one goes by the pair of Ethernet addresses.
    pub(crate) fn spread(self, packet: &Packet, hash: &HashKey) -> u64 {
        let frame = packet.data();
        match self {
            Self::Port => number(u64::from(packet.ingress()), hash),
            Self::Owner => number(u64::from(packet.owner()), hash),
            Self::Vlan => number(vlan(packet), hash),
            _ => FlowKey::from_frame(frame)
                .and_then(|flow| self.spread_flow(&flow, hash))
                .unwrap_or_else(|| link(frame, hash)),
        }
    }

    /// The hash of a flow; `None` where the flow does not decide.
    pub(crate) fn spread_flow(self, flow: &FlowKey, hash: &HashKey) -> Option<u64> {
        match self {
            // A function of one's own that answers a flow means one direction of it.
            Self::Flow | Self::Own => Some(hash.hash(flow)),
            Self::SymmetricFlow => Some(hash.symmetric(flow)),
            Self::Source => Some(address(flow.source(), hash)),
            Self::Destination => Some(address(flow.destination(), hash)),
            Self::Port | Self::Vlan | Self::Owner => None,
        }
    }

    /// The hash of an address that somebody keeps state by: it is that by which packets were shuffled.
    pub(crate) fn spread_address(self, ip: IpAddr, hash: &HashKey) -> Option<u64> {
        matches!(self, Self::Source | Self::Destination | Self::Own).then(|| address(ip, hash))
    }

    /// As [`spread_address`](Self::spread_address), of a number.
    pub(crate) fn spread_number(self, value: u64, hash: &HashKey) -> Option<u64> {
        matches!(self, Self::Port | Self::Vlan | Self::Owner | Self::Own).then(|| number(value, hash))
    }
}

fn address(ip: IpAddr, hash: &HashKey) -> u64 {
    hash.hash(&FlowKey::new(ip, ip, 0, 0, 0))
}

fn number(value: u64, hash: &HashKey) -> u64 {
    hash.hash(&FlowKey::from_words([value, 0, 0, 0, NUMBER]))
}

/// Both directions between two Ethernet stations alike.
fn link(frame: &[u8], hash: &HashKey) -> u64 {
    let Some([a, b, c, d, e, f, rest @ ..]) = frame.first_chunk::<12>() else { return 0 };
    let number = |bytes: [u8; 6]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (one, other) = (number([*a, *b, *c, *d, *e, *f]), number(*rest));
    hash.hash(&FlowKey::from_words([one.min(other), one.max(other), 0, 0, LINK]))
}

/// The outer VLAN identifier, on the wire or taken off by the device; 4096 where there is none.
fn vlan(packet: &Packet) -> u64 {
    let control = match (packet.vlan(), packet.data().get(12..16)) {
        (Some(tag), _) => Some(tag.control),
        (None, Some([0x81, 0x00, high, low] | [0x88, 0xa8, high, low])) => {
            Some(u16::from_be_bytes([*high, *low]))
        }
        _ => None,
    };
    control.map_or(4_096, |control| u64::from(control & 0xfff))
}

/// From packets to buckets.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    pub(crate) by: ShuffleKey,
    pub(crate) hash: HashKey,
}

impl Buckets {
    pub(crate) fn new(by: ShuffleKey, seed: u64) -> Self {
        // Any constant: the seed is 64 bits of a 128-bit key.
        Self { by, hash: HashKey::new([seed, 0x5348_5546_464c_4521]) }
    }
    /// The bucket of a packet.
    #[inline]
    pub(crate) fn of(&self, packet: &Packet) -> u16 {
        bucket(self.by.spread(packet, &self.hash))
    }
    /// The bucket of what a user function answered.
    #[inline]
    pub(crate) fn of_key(&self, key: impl TableKey) -> u16 {
        key.spread(ShuffleKey::Own, &self.hash).map_or(0, bucket)
    }
    /// The bucket of an entry of declared state.
    pub(crate) fn of_entry(&self, key: impl TableKey) -> Option<u16> {
        key.spread(self.by, &self.hash).map(bucket)
    }
}

fn bucket(hash: u64) -> u16 {
    hash as u16 & (BUCKETS as u16 - 1)
}
