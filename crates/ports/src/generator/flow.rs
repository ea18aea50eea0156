//! Flows with addresses and ports, and the choice of the next flow.
//!
//! Clients are in 10.0.0.0/8 and 2001:db8:c::/96, servers in 198.18.0.0/16 and 2001:db8:5::/112 (RFC 2544, RFC 3849).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_packet::checksum::Sum;
use netbricks_packet::protocol;
use rand_xoshiro::rand_core::Rng;

use super::below;
use super::payload::Payload;

/// The distribution of packets over flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Evenly.
    #[default]
    Uniform,
    /// The n-th flow in proportion to 1 / n^exponent.
    Zipf,
}

/// Transport protocols of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocols {
    /// The protocol that the payload needs.
    #[default]
    #[serde(skip)]
    Unsaid,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP and ICMPv6 echo requests.
    Icmp,
    /// One of the three for each flow.
    Mix,
}

/// IP versions of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersions {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
    /// One of the two for each flow.
    Mix,
}

/// The IP version and protocol of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) v6: bool,
    /// UDP, TCP or ICMP. ICMP over IPv6 is written as ICMPv6.
    pub(super) protocol: u8,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self { v6: false, protocol: protocol::UDP },
        Self { v6: false, protocol: protocol::TCP },
        Self { v6: false, protocol: protocol::ICMP },
        Self { v6: true, protocol: protocol::UDP },
        Self { v6: true, protocol: protocol::TCP },
        Self { v6: true, protocol: protocol::ICMP },
    ];
    pub(super) fn index(self) -> usize {
        let transport = match self.protocol {
            protocol::UDP => 0,
            protocol::TCP => 1,
            _ => 2,
        };
        transport + if self.v6 { 3 } else { 0 }
    }
}

/// A flow, in one cache line: each packet may be of another flow.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
    pub(super) client_port: u16,
    pub(super) server_port: u16,
    /// The Internet checksum's sum of the addresses, and that of the ports.
    pub(super) addresses: u16,
    pub(super) ports: u16,
    /// The number of packets so far.
    pub(super) packets: u64,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// SplitMix64's finaliser: a flow depends only on its number and the seed, not on the order of requests.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Flow {
    pub(super) fn new(
        number: usize,
        seed: u64,
        protocols: Protocols,
        versions: IpVersions,
        payload: Payload,
    ) -> Self {
        let chosen = mix(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let protocol = match protocols {
            Protocols::Udp | Protocols::Unsaid => protocol::UDP,
            Protocols::Tcp => protocol::TCP,
            Protocols::Icmp => protocol::ICMP,
            Protocols::Mix => [protocol::UDP, protocol::TCP, protocol::ICMP][(chosen >> 40) as usize % 3],
        };
        let v6 = match versions {
            IpVersions::V4 => false,
            IpVersions::V6 => true,
            IpVersions::Mix => chosen >> 50 & 1 == 1,
        };
        // The number is in the client's address, so no two flows are the same.
        let (client, server) = (number as u32 + 1, chosen as u16);
        let (client, server): (IpAddr, IpAddr) = if v6 {
            let client = 0x2001_0db8_000c_u128 << 80 | u128::from(client);
            let server = 0x2001_0db8_0005_u128 << 80 | u128::from(server);
            (Ipv6Addr::from_bits(client).into(), Ipv6Addr::from_bits(server).into())
        } else {
            (
                Ipv4Addr::from_bits(0x0a00_0000 | client).into(),
                Ipv4Addr::from_bits(0xc612_0000 | u32::from(server)).into(),
            )
        };
        let client_port = 1024 + (chosen >> 16) as u16 % 64_512;
        let server_port = match (payload, protocol) {
            (Payload::Dns, _) => 53,
            (Payload::Http, _) => 80,
            // Echo requests have a sequence number here.
            (_, protocol::ICMP) => 1,
            _ => [443, 80, 4_789, 5_060, 8_080, 3_478, 9_000, 123][(chosen >> 34) as usize % 8],
        };
        let mut flow = Self {
            number: number as u64,
            kind: Kind { v6, protocol },
            client,
            server,
            client_port,
            server_port,
            addresses: Sum::ZERO.add_address(client).add_address(server).fold(),
            ports: 0,
            packets: 0,
        };
        flow.sum_ports();
        flow
    }

    fn sum_ports(&mut self) {
        self.ports = Sum::ZERO.add16(self.client_port).add16(self.server_port).fold();
    }

    /// Takes another client port, for the next conversation in the flow.
    pub(super) fn next_port(&mut self) {
        self.client_port = if self.client_port == u16::MAX { 1024 } else { self.client_port + 1 };
        self.sum_ports();
    }
}

/// The choice of the next flow.
pub(super) enum Chooser {
    Uniform(usize),
    /// Walker's alias method (Vose 1991): one look-up for any number of flows.
    ///
    /// A place has its own flow below the threshold, of 2^32, and another flow above it.
    Weighted(Vec<(u32, u32)>),
}

impl Chooser {
    /// A chooser over the flows of one queue: each `queues`-th of all from `queue` on.
    pub(super) fn new(
        distribution: Distribution,
        exponent: f64,
        queue: usize,
        queues: usize,
        count: usize,
    ) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform(count),
            Distribution::Zipf => {
                let rank = |place: usize| (queue + place * queues + 1) as f64;
                Self::weighted(&(0..count).map(|place| rank(place).powf(-exponent)).collect::<Vec<_>>())
            }
        }
    }

    fn weighted(weights: &[f64]) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut rest: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..rest.len()).partition(|place| rest[*place] < 1.0);
        let mut places: Vec<(u32, u32)> = (0..rest.len()).map(|place| (u32::MAX, place as u32)).collect();
        while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
            places[poor] = ((rest[poor] * 2f64.powi(32)) as u32, rich as u32);
            rest[rich] -= 1.0 - rest[poor];
            if rest[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Self::Weighted(places)
    }

    #[inline(always)]
    pub(super) fn choose(&self, random: &mut impl Rng) -> usize {
        match self {
            Self::Uniform(1) => 0,
            Self::Uniform(count) => below(random, *count),
            Self::Weighted(places) => {
                let place = below(random, places.len());
                let (threshold, other) = places[place];
                if random.next_u32() <= threshold { place } else { other as usize }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn the_alias_method_gives_each_flow_its_share() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let chooser = Chooser::new(Distribution::Zipf, 1.0, 0, 1, 50);
        let mut counts = [0u32; 50];
        const DRAWS: u32 = 1_000_000;
        for _ in 0..DRAWS {
            counts[chooser.choose(&mut random)] += 1;
        }
        let harmonic: f64 = (1..=50).map(|n| 1.0 / f64::from(n)).sum();
        for (place, count) in counts.iter().enumerate() {
            let share = 1.0 / (place + 1) as f64 / harmonic;
            let (expected, sigma) = (share * f64::from(DRAWS), (share * f64::from(DRAWS)).sqrt());
            assert!(
                (f64::from(*count) - expected).abs() < 6.0 * sigma,
                "{place}: {count}, expected {expected}"
            );
        }
    }

    #[test]
    fn no_two_flows_are_the_same_and_ports_are_right() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..10_000 {
            let flow = Flow::new(number, 7, Protocols::Mix, IpVersions::Mix, Payload::Zero);
            assert!(flow.client_port >= 1024);
            assert!(seen.insert((
                flow.client,
                flow.server,
                flow.client_port,
                flow.server_port,
                flow.kind.protocol
            )));
        }
    }
}
