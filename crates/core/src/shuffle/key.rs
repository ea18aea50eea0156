//! Shuffle keys, and the buckets that they give packets.

use std::net::IpAddr;
use std::sync::Arc;

use netbricks_buffer::Packet;
use netbricks_packet::stack::LengthSlack;
use netbricks_packet::{FlowKey, HashKey};

use crate::state::TableKey;

/// Buckets between packets and workers.
pub const BUCKETS: usize = 4_096;

/// The property that the packets of one worker share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShuffleKey {
    /// Addresses, ports and protocol, alike for both directions of a connection.
    #[default]
    SymmetricFlow,
    /// Addresses, ports and protocol in one direction.
    Flow,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The port of arrival.
    Port,
    /// The outer VLAN identifier, or its absence.
    Vlan,
    /// The owner, which is the tenant.
    Owner,
    /// A user function's answer.
    ///
    /// State by flow behind such a shuffle does not move, since an answer does not tell its flows. State moves
    /// whose function [names the part](crate::Worker::parted_by) that a packet needs.
    #[serde(skip_deserializing)]
    Own,
}

/// The part of a function's state that a packet needs, by a number.
///
/// All packets with one number must come to one worker. See [`Worker::parted_by`](crate::Worker::parted_by).
#[derive(Clone)]
pub struct PacketPart(Arc<dyn Fn(&Packet) -> u64 + Send + Sync>);

impl PacketPart {
    /// The part that this function tells.
    pub fn new(part: impl Fn(&Packet) -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(part))
    }
    /// The number of the part that a packet needs.
    pub fn of(&self, packet: &Packet) -> u64 {
        (self.0)(packet)
    }
}

impl PartialEq for PacketPart {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for PacketPart {}

impl std::fmt::Debug for PacketPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketPart(..)")
    }
}

/// Separates the hashes of different properties that are the same number.
const NUMBER: u64 = 1 << 8;
const LINK: u64 = 2 << 8;

impl ShuffleKey {
    /// Whether both directions of each flow come to one worker, one direction by this key and the other by
    /// `other`.
    ///
    /// For keys that do not depend on flows, both directions are assumed to have the same key.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Source, Self::Destination) | (Self::Destination, Self::Source) => true,
            (Self::Flow | Self::Source | Self::Destination | Self::Port, _) => false,
            _ => self == other,
        }
    }

    /// Whether the two directions of a flow that arrive at one port may go to different workers by this key.
    #[must_use]
    pub fn parts_directions(self) -> bool {
        matches!(self, Self::Flow | Self::Source | Self::Destination)
    }

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

    /// The name in configuration.
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

    /// The hash of a packet.
    ///
    /// An ICMP error belongs to the flow that it reports on, in the error's direction. Fragments, the first
    /// included, are hashed by addresses and protocol under keys of flows, so that they meet. Without an IP
    /// header, a key of addresses or flows takes the pair of Ethernet addresses.
    pub(crate) fn spread(self, packet: &Packet, hash: &HashKey) -> u64 {
        let frame = packet.data();
        match self {
            Self::Port => number(u64::from(packet.ingress()), hash),
            Self::Owner => number(u64::from(packet.owner()), hash),
            Self::Vlan => number(vlan(packet), hash),
            _ => FlowKey::related_from_frame(frame)
                .or_else(|| related_with_slack(packet))
                .and_then(|flow| self.spread_flow(&flow, hash))
                .unwrap_or_else(|| link(frame, hash)),
        }
    }

    /// The hash of a flow; `None` where the flow does not decide.
    pub(crate) fn spread_flow(self, flow: &FlowKey, hash: &HashKey) -> Option<u64> {
        let portless;
        let flow = if flow.is_fragment() {
            portless = flow.portless();
            &portless
        } else {
            flow
        };
        match self {
            // A user function that answers a flow means one direction of it.
            Self::Flow | Self::Own => Some(hash.hash(flow)),
            Self::SymmetricFlow => Some(hash.symmetric(flow)),
            Self::Source => Some(address(flow.source(), hash)),
            Self::Destination => Some(address(flow.destination(), hash)),
            Self::Port | Self::Vlan | Self::Owner => None,
        }
    }

    /// Whether packets are sorted by an address.
    pub(crate) const fn is_address(self) -> bool {
        matches!(self, Self::Source | Self::Destination)
    }
    /// As [`is_address`](Self::is_address), for a number.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Port | Self::Vlan | Self::Owner)
    }

    /// The hash of an address under which state is kept, which equals that by which packets were shuffled.
    pub(crate) fn spread_address(self, ip: IpAddr, hash: &HashKey) -> Option<u64> {
        (self.is_address() || self == Self::Own).then(|| address(ip, hash))
    }

    /// As [`spread_address`](Self::spread_address), for a number.
    pub(crate) fn spread_number(self, value: u64, hash: &HashKey) -> Option<u64> {
        (self.is_number() || self == Self::Own).then(|| number(value, hash))
    }
}

/// The flow of a packet that is not complete, or whose length is not stated.
#[cold]
fn related_with_slack(packet: &Packet) -> Option<FlowKey> {
    let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
    if slack.is_none() { None } else { FlowKey::related_from_frame_with(packet.data(), slack) }
}

fn address(ip: IpAddr, hash: &HashKey) -> u64 {
    hash.hash(&FlowKey::new(ip, ip, 0, 0, 0))
}

fn number(value: u64, hash: &HashKey) -> u64 {
    hash.hash_words([value, 0, 0, 0, NUMBER])
}

/// The hash of two Ethernet stations, alike for both directions.
fn link(frame: &[u8], hash: &HashKey) -> u64 {
    let Some([a, b, c, d, e, f, rest @ ..]) = frame.first_chunk::<12>() else { return 0 };
    let number = |bytes: [u8; 6]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (one, other) = (number([*a, *b, *c, *d, *e, *f]), number(*rest));
    hash.hash_words([one.min(other), one.max(other), 0, 0, LINK])
}

/// The outer VLAN identifier, on the wire or removed by the device; 4096 where there is none.
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

/// The map from packets to buckets.
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
    /// The bucket of a user function's answer.
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use netbricks_buffer::Pool;
    use netbricks_testkit::build::ethernet;
    use netbricks_testkit::kinds;

    use super::*;

    fn bucket_of(by: ShuffleKey, frame: &[u8], change: impl FnOnce(&mut Packet)) -> u16 {
        let pool = Pool::builder().frames(8).large(8, 69_632).build().unwrap();
        let mut packet = pool.packet(frame).unwrap();
        change(&mut packet);
        Buckets::new(by, 7).of(&packet)
    }

    #[test]
    fn an_entry_of_a_flow_is_in_the_bucket_of_its_packets() {
        let (mut seen, mut related) = (0, 0);
        for (name, frame) in kinds::every() {
            let Some(flow) = FlowKey::related_from_frame(&frame) else { continue };
            seen += 1;
            related += usize::from(Some(flow) != FlowKey::from_frame(&frame));
            let entry = |by| Buckets::new(by, 7).of_entry(flow);
            let address = |by, address: IpAddr| Buckets::new(by, 7).of_entry(address);
            for by in ShuffleKey::ALL {
                let bucket = Some(bucket_of(by, &frame, |_| ()));
                match by {
                    ShuffleKey::Port | ShuffleKey::Vlan | ShuffleKey::Owner => assert_eq!(entry(by), None),
                    _ => assert_eq!(entry(by), bucket, "{name} by {}", by.name()),
                }
            }
            let (source, destination) = (ShuffleKey::Source, ShuffleKey::Destination);
            assert_eq!(address(source, flow.source()), entry(source), "{name}");
            assert_eq!(address(destination, flow.destination()), entry(destination), "{name}");
            let symmetric = Buckets::new(ShuffleKey::SymmetricFlow, 7);
            assert_eq!(symmetric.of_entry(flow.reversed()), entry(ShuffleKey::SymmetricFlow), "{name}");
        }
        assert!(seen > 10 && related > 2 && related < seen / 2, "{related} of {seen} go with another flow");
    }

    #[test]
    fn an_error_is_in_the_bucket_of_the_flow_it_is_about() {
        for flow in 0..200u16 {
            let (server, client) = ("192.0.2.1", format!("10.0.0.{}", flow % 250));
            let sent = ethernet().ipv4(server, client.as_str()).udp(53, 1_000 + flow).payload(b"x");
            let sent = sent.build().unwrap();
            let router = ethernet().ipv4("198.51.100.7", server);
            // Truncated after the eight bytes that a router must quote.
            let error = router.icmp_time_exceeded(&sent[14..42]).build().unwrap();
            // It goes the same way as the client's packets.
            let back = ethernet().ipv4(client.as_str(), server).udp(1_000 + flow, 53).payload(b"x");
            let back = back.build().unwrap();
            for by in
                [ShuffleKey::SymmetricFlow, ShuffleKey::Flow, ShuffleKey::Source, ShuffleKey::Destination]
            {
                assert_eq!(bucket_of(by, &error, |_| ()), bucket_of(by, &back, |_| ()), "{}", by.name());
            }
            // Where a fragmented packet is quoted, its first fragment has the flow's ports.
            let first = ethernet().ipv4(server, client.as_str()).fragment(0, true).udp(53, 1_000 + flow);
            let first = first.payload(b"eight by").build().unwrap();
            let about_first = ethernet().ipv4("198.51.100.7", server).icmp_time_exceeded(&first[14..42]);
            let about_first = about_first.build().unwrap();
            for by in [ShuffleKey::SymmetricFlow, ShuffleKey::Flow] {
                assert_eq!(
                    bucket_of(by, &about_first, |_| ()),
                    bucket_of(by, &back, |_| ()),
                    "{}",
                    by.name()
                );
            }
            let (there, here) = (&sent, &error);
            let by = ShuffleKey::SymmetricFlow;
            assert_eq!(bucket_of(by, here, |_| ()), bucket_of(by, there, |_| ()));
        }
    }

    #[test]
    fn all_fragments_of_a_flow_are_in_one_bucket_whatever_their_ports() {
        let fragment = |port: u16, field: u16| {
            let mut frame =
                ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).payload(&[0; 64]).build().unwrap();
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            frame[24..26].fill(0);
            let sum = netbricks_packet::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        // The first, one in the middle, the last; of packets from two ports.
        let fragments = [(1, 0x2000), (1, 0x2009), (1, 18), (2, 0x2000)];
        for by in [ShuffleKey::SymmetricFlow, ShuffleKey::Flow] {
            let buckets = fragments.map(|(port, field)| bucket_of(by, &fragment(port, field), |_| ()));
            assert_eq!(buckets, [buckets[0]; 4], "{}", by.name());
            // State kept by a flow without ports, marked as a later fragment's or not, moves along.
            let flow = FlowKey::from_frame(&fragment(1, 18)).unwrap();
            assert!(flow.is_fragment());
            for entry in [flow, flow.portless()] {
                assert_eq!(Buckets::new(by, 7).of_entry(entry), Some(buckets[0]));
            }
        }
    }

    #[test]
    fn each_key_looks_at_what_it_names_and_at_nothing_else() {
        let frame = |a: &str, b: &str, port, vlan| {
            ethernet().vlan(vlan).ipv4(a, b).udp(port, 53).payload(b"x").build().unwrap()
        };
        let base = frame("10.0.0.1", "10.0.0.2", 1, 9);
        let others = [
            frame("10.0.0.3", "10.0.0.2", 1, 9),
            frame("10.0.0.1", "10.0.0.3", 1, 9),
            frame("10.0.0.1", "10.0.0.2", 2, 9),
            frame("10.0.0.1", "10.0.0.2", 1, 8),
        ];
        // For source, destination, port of the flow and VLAN: which of them make a difference.
        for (by, differs) in [
            (ShuffleKey::SymmetricFlow, [true, true, true, false]),
            (ShuffleKey::Flow, [true, true, true, false]),
            (ShuffleKey::Source, [true, false, false, false]),
            (ShuffleKey::Destination, [false, true, false, false]),
            (ShuffleKey::Vlan, [false, false, false, true]),
            (ShuffleKey::Port, [false; 4]),
            (ShuffleKey::Owner, [false; 4]),
        ] {
            let here = bucket_of(by, &base, |_| ());
            let found = others.each_ref().map(|other| bucket_of(by, other, |_| ()) != here);
            assert_eq!(found, differs, "{}", by.name());
            let port = bucket_of(by, &base, |packet| packet.set_ingress(3, 1)) != here;
            let owner = bucket_of(by, &base, |packet| packet.set_owner(3)) != here;
            assert_eq!((port, owner), (by == ShuffleKey::Port, by == ShuffleKey::Owner), "{}", by.name());
        }
        let stripped = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 53).payload(b"x").build().unwrap();
        let tag = netbricks_buffer::VlanTag { protocol: 0x8100, control: 0x2009 };
        assert_eq!(
            bucket_of(ShuffleKey::Vlan, &stripped, |packet| packet.set_vlan(Some(tag))),
            bucket_of(ShuffleKey::Vlan, &base, |_| ()),
            "priority bits are no part of it, nor who took the tag off"
        );
    }

    #[test]
    fn frames_without_ip_go_by_their_pair_of_stations() {
        let arp = kinds::every().into_iter().find(|(name, _)| *name == "arp request").unwrap().1;
        let mut back = arp.clone();
        back[..12].rotate_left(6);
        let bucket = |frame: &[u8]| bucket_of(ShuffleKey::SymmetricFlow, frame, |_| ());
        assert_eq!(bucket(&arp), bucket(&back));
        back[0] ^= 2;
        assert_ne!(bucket(&arp), bucket(&back));
        assert_eq!(bucket(&[1; 5]), bucket(&[]), "no frame at all is in some bucket too");
    }

    #[test]
    fn flows_that_differ_in_little_fill_buckets_and_workers_evenly() {
        let mut buckets: BTreeMap<u16, u32> = BTreeMap::new();
        let by = Buckets::new(ShuffleKey::SymmetricFlow, 7);
        for i in 0..40_960u32 {
            let [_, a, b, c] = i.to_be_bytes();
            let flow = FlowKey::new([10, a, b, 1].into(), [10, 0, 0, 2].into(), u16::from(c), 80, 6);
            *buckets.entry(by.of_entry(flow).unwrap()).or_default() += 1;
        }
        let sizes: BTreeSet<u32> = buckets.values().copied().collect();
        // Ten packets are expected in each.
        assert!(buckets.len() > 4_080 && sizes.last() < Some(&32), "{} buckets, {sizes:?}", buckets.len());
        for workers in [2, 3, 7] {
            let share = |worker| {
                let owned = buckets.iter().filter(|(bucket, _)| usize::from(**bucket) % workers == worker);
                owned.map(|(_, flows)| flows).sum::<u32>()
            };
            let even = 40_960 / workers as u32;
            assert!((0..workers).all(|worker| share(worker).abs_diff(even) < even / 10), "{workers} workers");
        }
    }
}
