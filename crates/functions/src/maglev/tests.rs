use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::{Blueprint, DetachedContext, DropReason, Node, Settings, TableKey, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, kinds, run_configured};
use proptest::prelude::*;

use super::backends::{First, Snapshot};
use super::seats::Seats;
use super::{Backend, MaglevConfig, maglev};

const VIP: &str = "192.0.2.1";
const VIP6: &str = "2001:db8::1";

fn backend(number: u8, weight: u32) -> Backend {
    Backend { name: format!("web-{number}"), mac: MacAddress::new([2, 0, 0, 0, 1, number]), weight }
}

fn config(backends: impl IntoIterator<Item = Backend>) -> MaglevConfig {
    MaglevConfig {
        backends: backends.into_iter().collect(),
        addresses: vec![VIP.parse().unwrap(), VIP6.parse().unwrap()],
        slots: 251,
        ..MaglevConfig::default()
    }
}

fn client(flow: u16) -> String {
    format!("10.0.{}.{}", flow >> 8, flow & 0xff)
}

/// A client's packet of this flow, and its key.
fn packet(flow: u16) -> Vec<u8> {
    ethernet().ipv4(client(flow).as_str(), VIP).tcp(1_000 + flow, 80).payload(b"hello").build().unwrap()
}

fn packet6(flow: u16) -> Vec<u8> {
    ethernet().vlan(7).ipv6("2001:db8:1::9", VIP6).udp(1_000 + flow, 443).payload(b"hello").build().unwrap()
}

/// The number of the backend that a frame was sent to.
fn to(frame: &[u8]) -> u8 {
    assert_eq!(frame[..5], [2, 0, 0, 0, 1], "no backend's address: {:02x?}", &frame[..6]);
    frame[5]
}

/// A node and the worker that it runs on.
struct Rig {
    node: Box<dyn Node>,
    pool: Pool,
    now: u64,
}

impl Rig {
    fn of(blueprint: &Blueprint, index: usize) -> Self {
        let pool = Pool::builder().frames(512).build().unwrap();
        let node = blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
        Self { node, pool, now: 1 }
    }
    fn alone(config: MaglevConfig) -> Self {
        Self::of(&blueprint(config), 0)
    }
    fn send(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (mut cx, mut batch) = (DetachedContext::new(self.pool.clone()), Batch::new());
        cx.advance(self.now);
        for frame in frames {
            batch.push(self.pool.packet(frame).unwrap()).unwrap();
        }
        self.node.process(0, &mut batch, &mut cx);
        batch.iter().map(|packet| packet.data().to_vec()).collect()
    }
    /// The backend of a flow's next packet; `None` if it is dropped.
    fn ask(&mut self, flow: u16) -> Option<u8> {
        self.send(&[packet(flow)]).first().map(|frame| to(frame))
    }
    fn call(&mut self, name: &str, argument: &str) -> String {
        self.node.call(name, argument).unwrap_or_else(|error| panic!("{name} {argument}: {error}"))
    }
    fn refused(&mut self, name: &str, argument: &str) -> String {
        self.node.call(name, argument).unwrap_err().to_string()
    }
}

fn blueprint(config: MaglevConfig) -> Blueprint {
    Blueprint::new(move |worker| compose(worker, |input| maglev(input, &config, worker)))
}

/// The backend of the flow on a node that has only ever known these backends.
fn by_the_table(backends: &BTreeMap<u8, u32>, flow: u16) -> Option<u8> {
    let first = First {
        backends: backends.iter().map(|(number, weight)| backend(*number, *weight)).collect(),
        slots: 251,
        key: String::new(),
    };
    let (source, vip): (IpAddr, IpAddr) = (client(flow).parse().unwrap(), VIP.parse().unwrap());
    let key = FlowKey::new(source, vip, 1_000 + flow, 80, 6);
    chosen(&Snapshot::first(&first).unwrap(), &key)
}

/// The last byte of the address of the backend that a new flow goes to.
fn chosen(snapshot: &Snapshot, key: &FlowKey) -> Option<u8> {
    let (_, mac) = snapshot.places().nth(snapshot.choose(&key.store())?)??;
    Some(mac.octets()[5])
}

/// All nodes must choose these backends, because other machines and later builds take flows over.
///
/// They do not know the connections, so a change of this list separates flows from their backends.
#[test]
fn every_node_decides_alike() {
    let backends = (0..10).map(|number| backend(number, 1)).collect();
    let first = First { backends, slots: 65_537, key: "a key".into() };
    let snapshot = Snapshot::first(&first).unwrap();
    let choices = |source: [&str; 2], to: &str| -> Vec<u8> {
        let flow = |number: u16| {
            let source: IpAddr = source[usize::from(number % 2)].parse().unwrap();
            FlowKey::new(source, to.parse().unwrap(), 1_000 + number, 443, 6 + 11 * u8::from(number > 9))
        };
        let choice = |number| chosen(&snapshot, &flow(number)).unwrap();
        (0..20).map(choice).collect()
    };
    assert_eq!(
        choices(["10.0.0.1", "198.51.100.7"], VIP),
        [5, 2, 1, 8, 9, 7, 3, 5, 6, 5, 8, 5, 0, 9, 4, 9, 5, 7, 6, 7]
    );
    assert_eq!(
        choices(["2001:db8:1::9", "2001:db8:2::9"], VIP6),
        [0, 2, 6, 0, 0, 0, 7, 3, 0, 7, 2, 0, 9, 9, 7, 9, 9, 5, 5, 5]
    );
}

/// Each backend's packets count for it, with every number that it can have.
///
/// A number may be new, may have belonged to another backend, or may be larger than the room for seats.
#[test]
fn packets_count_for_the_backend_that_had_the_number() {
    let first = First { backends: vec![backend(1, 1)], slots: 251, key: String::new() };
    let one = Snapshot::first(&first).unwrap();
    let mut seats = Seats::new(&one);
    let ledger = seats.ledger();
    let chosen = |snapshot: &Snapshot, number: usize| snapshot.places().nth(number).unwrap().unwrap().0;
    let count = |seats: &Seats, snapshot: &Snapshot, number, times| {
        (0..times).for_each(|_| seats.live(chosen(snapshot, number)).unwrap().count());
    };
    count(&seats, &one, 0, 3);
    let many = (2..40).fold(one.clone(), |all, number| all.with([backend(number, 1)]).unwrap());
    assert!(seats.of(7).is_none() && seats.live(chosen(&many, 7)).is_none(), "not before it is followed");
    seats.follow(&many);
    count(&seats, &many, 0, 2);
    count(&seats, &many, 7, 5);
    count(&seats, &many, 38, 1);
    let packets = |snapshot: &Snapshot, number| ledger.packets(number, chosen(snapshot, number));
    assert_eq!([0, 7, 38].map(|number| packets(&many, number)), [5, 5, 1]);
    assert_eq!(ledger.all(), 11);
    // Number 7 belongs to another backend now, and the report may know this before the packets do.
    let name = many.all().nth(7).unwrap().1.backend.name.clone();
    let less = many.without(&[&name]).unwrap();
    seats.follow(&less);
    assert!(seats.of(7).is_none() && seats.live(chosen(&many, 7)).is_none());
    let other = less.with([backend(99, 1)]).unwrap();
    assert_ne!(chosen(&other, 7), chosen(&many, 7));
    assert_eq!((packets(&other, 7), ledger.all()), (0, 11));
    seats.follow(&other);
    count(&seats, &other, 7, 4);
    assert_eq!((packets(&other, 7), packets(&other, 0), ledger.all()), (4, 5, 15));
    assert_eq!(seats.of(7).unwrap().mac().octets()[5], 99);
    // A backend whose address changes keeps its count.
    let moved = other.with(["web-99 02:00:00:00:00:07".parse().unwrap()]).unwrap();
    seats.follow(&moved);
    assert_eq!((packets(&moved, 7), seats.of(7).unwrap().mac().octets()[5]), (4, 7));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(u16),
    Add(u8, u32),
    Drain(u8),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..60).prop_map(Step::Packet),
        1 => (0u8..6, 1u32..4).prop_map(|(number, weight)| Step::Add(number, weight)),
        1 => (0u8..6).prop_map(Step::Drain),
        1 => (0u8..6).prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The model is a list of each flow's backend, and a table made of the present backends.
    #[test]
    fn flows_stay_while_their_backend_does(steps in prop::collection::vec(step(), 1..200)) {
        let mut rig = Rig::alone(config([backend(0, 1), backend(1, 2)]));
        let mut takes = BTreeMap::from([(0u8, 1u32), (1, 2)]);
        let mut known: BTreeSet<u8> = takes.keys().copied().collect();
        let mut flows: BTreeMap<u16, u8> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Packet(flow) => {
                    let stays = flows.get(&flow).copied().filter(|number| known.contains(number));
                    let expected = stays.or_else(|| by_the_table(&takes, flow));
                    prop_assert_eq!(rig.ask(flow), expected, "flow {}", flow);
                    if let Some(expected) = expected {
                        flows.insert(flow, expected);
                    }
                }
                Step::Add(number, weight) => {
                    rig.call("add", &backend(number, weight).to_string());
                    takes.insert(number, weight);
                    known.insert(number);
                }
                Step::Drain(number) if known.contains(&number) => {
                    rig.call("drain", &format!("web-{number}"));
                    takes.remove(&number);
                }
                Step::Remove(number) if known.contains(&number) => {
                    rig.call("remove", &format!("web-{number}"));
                    takes.remove(&number);
                    known.remove(&number);
                }
                Step::Drain(number) => {
                    let refused = rig.refused("drain", &format!("web-{number}"));
                    prop_assert!(refused.contains("there is no backend"), "{}", refused);
                }
                Step::Remove(number) => drop(rig.refused("remove", &format!("web-{number}"))),
            }
        }
    }
}

#[test]
fn only_the_ethernet_destination_changes_and_other_traffic_passes() {
    let mut frames: Vec<Vec<u8>> = (0..40).flat_map(|flow| [packet(flow), packet6(flow)]).collect();
    frames.push(ethernet().ipv4("10.0.0.1", "192.0.2.2").udp(1, 2).build().unwrap());
    frames.push(ethernet().arp_request("10.0.0.1", VIP).build().unwrap());
    let report = run_configured(maglev, config([backend(1, 1), backend(2, 1)]), frames.clone());
    assert_eq!(report.out.len(), frames.len());
    let mut seen = BTreeSet::new();
    for (before, after) in frames.iter().zip(&report.out).take(80) {
        assert_eq!(before[6..], after[6..]);
        seen.insert(to(after));
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
    assert_eq!(report.out[80..], frames[80..]);
}

#[test]
fn without_addresses_every_ip_packet_is_balanced() {
    let config = MaglevConfig { addresses: Vec::new(), ..config([backend(1, 1)]) };
    let other = ethernet().arp_request("10.0.0.1", VIP).build().unwrap();
    let frames =
        [packet(1), ethernet().ipv4("10.0.0.1", "10.9.9.9").udp(1, 2).build().unwrap(), other.clone()];
    let report = run_configured(maglev, config, frames);
    assert_eq!((to(&report.out[0]), to(&report.out[1]), &report.out[2]), (1, 1, &other));
}

/// Results do not depend on the batch size for any kind of packet; `run_configured` checks this.
#[test]
fn every_kind_of_packet_at_every_batch_size() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    let config = MaglevConfig { addresses: Vec::new(), capacity: 4, ..config((0..5).map(|n| backend(n, 1))) };
    let report = run_configured(maglev, config, [frames.clone(), frames].concat());
    assert!(report.panics.is_empty());
}

/// If a backend answered a router's question for the virtual address, the router would send everything to it.
#[test]
fn neighbour_discovery_for_a_virtual_address_is_not_balanced() {
    for addresses in [Vec::new(), vec![VIP6.parse().unwrap()]] {
        let config = MaglevConfig { addresses, ..config([backend(1, 1), backend(2, 1)]) };
        let mut rig = Rig::alone(config);
        let router = || ethernet().ipv6("fe80::1", VIP6).hop_limit(255);
        let asks = router().neighbor_solicitation(VIP6, "02:00:00:00:00:99").build().unwrap();
        let passed = rig.send(std::slice::from_ref(&asks));
        assert_eq!(passed, [asks]);
        assert!(rig.call("connections.occupancy", "").starts_with("0 "));
        // The same holds after another message without an identifier was balanced between the same addresses.
        let mut other =
            ethernet().ipv6("fe80::1", VIP6).icmpv6_echo_request(1, 1).payload(b"hello").build().unwrap();
        other[54] = 200;
        assert_ne!(rig.send(std::slice::from_ref(&other)), [other], "balanced");
        let asks = router().neighbor_solicitation(VIP6, "02:00:00:00:00:99").build().unwrap();
        assert_eq!(rig.send(std::slice::from_ref(&asks)), [asks]);
        assert!(rig.call("connections.occupancy", "").starts_with("0 "));
        let echo = ethernet()
            .ipv6("2001:db8::77", VIP6)
            .icmpv6_echo_request(1, 1)
            .payload(b"hello")
            .build()
            .unwrap();
        assert_ne!(rig.send(std::slice::from_ref(&echo)), [echo], "others are");
    }
}

/// A weight of 1 beside large weights: its share of the slots is less than one.
#[test]
fn backends_without_a_slot_are_named() {
    let of = |weight| config([backend(1, weight), backend(2, 10_000)]);
    let warnings = of(1).warnings();
    assert!(warnings[0].problem.starts_with("`web-1` get none of the 251 slots"), "{warnings:?}");
    assert_eq!(of(1_000).warnings(), []);
    let mut rig = Rig::alone(of(1_000));
    let answer = rig.call("add", "web-3 02:00:00:00:00:03 1");
    assert!(answer.starts_with("done, but `web-3` get none"), "{answer}");
    assert_eq!(rig.call("add", "web-3 02:00:00:00:00:03 1000"), "done");
}

/// A router's error about an answer from the virtual address goes to the backend of the flow.
///
/// That backend is draining, so the table alone would choose another one.
#[test]
fn icmp_errors_follow_their_flow() {
    let mut rig = Rig::alone(config([backend(1, 1), backend(2, 1)]));
    let flows: Vec<u16> = (0..30).collect();
    let before: Vec<_> = flows.iter().map(|flow| rig.ask(*flow)).collect();
    let before6: Vec<u8> = flows.iter().map(|flow| to(&rig.send(&[packet6(*flow)])[0])).collect();
    rig.call("drain", "web-1");
    let quoted = |flow: u16| {
        let answer = ethernet().ipv4(VIP, client(flow).as_str()).tcp(80, 1_000 + flow).payload(b"answer");
        answer.build().unwrap()[14..].to_vec()
    };
    for (flow, before) in flows.iter().zip(&before) {
        // Cut after the eight bytes that a router must quote.
        let quote = &quoted(*flow)[..28];
        let error =
            ethernet().ipv4("198.51.100.7", VIP).icmp_fragmentation_needed(1_400, quote).build().unwrap();
        assert_eq!(rig.send(&[error]).first().map(|frame| to(frame)), *before, "flow {flow}");
    }
    for (flow, before) in flows.iter().zip(&before6) {
        let answer = ethernet().ipv6(VIP6, "2001:db8:1::9").udp(443, 1_000 + flow).payload(b"answer");
        let quote = answer.build().unwrap()[14..].to_vec();
        let error = ethernet().ipv6("2001:db8:9::9", VIP6).icmpv6_unreachable(1, &quote).build().unwrap();
        assert_eq!(to(&rig.send(&[error])[0]), *before, "flow {flow}");
    }
    // An error about an unknown flow goes to the backend that the flow would go to, and makes no connection.
    let count = rig.call("connections.occupancy", "");
    let error = ethernet().ipv4("198.51.100.7", VIP).icmp_time_exceeded(&quoted(99)[..28]).build().unwrap();
    let went = to(&rig.send(&[error])[0]);
    assert_eq!(rig.call("connections.occupancy", ""), count);
    assert_eq!(rig.ask(99), Some(went));
    // Nor does an error make a connection that quotes nothing of a flow.
    let count = rig.call("connections.occupancy", "");
    for quote in [&packet6(7)[14..], &[]] {
        let error = ethernet().ipv4("198.51.100.7", VIP).icmp_time_exceeded(quote).build().unwrap();
        assert_eq!(rig.send(&[error]).len(), 1);
        assert_eq!(rig.call("connections.occupancy", ""), count);
    }
}

/// The same for a router's error about a fragmented answer: the first fragment has the flow's ports.
#[test]
fn icmp_errors_about_a_first_fragment_follow_its_flow() {
    let mut rig = Rig::alone(config((0..6).map(|number| backend(number, 1))));
    let mut elsewhere = 0;
    for flow in 0..60u16 {
        let went = rig.ask(flow);
        let answer = ethernet().ipv4(VIP, client(flow).as_str()).fragment(0, true);
        let answer = answer.tcp(80, 1_000 + flow).payload(&[7; 64]).build().unwrap();
        let error = ethernet().ipv4("198.51.100.7", VIP).icmp_fragmentation_needed(1_400, &answer[14..42]);
        let error = error.build().unwrap();
        assert_eq!(rig.send(&[error]).first().map(|frame| to(frame)), went, "flow {flow}");
        // A later fragment has only the addresses.
        let later = ethernet().ipv4(VIP, client(flow).as_str()).fragment(9, false).protocol(6);
        let later = later.payload(&[7; 64]).build().unwrap();
        let error = ethernet().ipv4("198.51.100.7", VIP).icmp_time_exceeded(&later[14..42]).build().unwrap();
        elsewhere += usize::from(rig.send(&[error]).first().map(|frame| to(frame)) != went);
        let went = to(&rig.send(&[packet6(flow)])[0]);
        let answer = ethernet().ipv6(VIP6, "2001:db8:1::9").fragment(0, true, 7).udp(443, 1_000 + flow);
        let answer = answer.payload(&[7; 64]).build().unwrap();
        let error = ethernet().ipv6("2001:db8:9::9", VIP6).icmpv6_packet_too_big(1_280, &answer[14..]);
        assert_eq!(to(&rig.send(&[error.build().unwrap()])[0]), went, "flow {flow} of IPv6");
    }
    assert!(elsewhere > 0, "the table alone does not say it");
}

/// A backend with weight 0 keeps the flows that it has and gets no new ones.
#[test]
fn weight_0_drains_by_handler_and_by_file() {
    let flows: Vec<u16> = (0..60).collect();
    let drains = |rig: &mut Rig, before: &[Option<u8>]| {
        for (flow, before) in flows.iter().zip(before) {
            assert_eq!(rig.ask(*flow), *before, "flow {flow} stays");
        }
        let new: BTreeSet<_> = (1_000..1_100).map(|flow| rig.ask(flow)).collect();
        assert_eq!(new, BTreeSet::from([Some(2)]), "no new flow");
        assert!(rig.call("backends", "").contains("web-1 02:00:00:00:01:01 0 draining 0 slots"));
    };
    let mut rig = Rig::alone(config([backend(1, 1), backend(2, 1)]));
    let before: Vec<_> = flows.iter().map(|flow| rig.ask(*flow)).collect();
    assert!([1, 2].iter().all(|number| before.contains(&Some(*number))));
    let exported = rig.node.export();
    assert_eq!(rig.call("add", &backend(1, 0).to_string()), "done");
    drains(&mut rig, &before);
    // A configuration with weight 0, read while connections are open.
    let file = "backends = [\"web-1 02:00:00:00:01:01 0\", \"web-2 02:00:00:00:01:02\"]\nslots = 251";
    let changed: MaglevConfig = toml::from_str(file).unwrap();
    assert_eq!((changed.check(), changed.warnings()), (Ok(()), vec![]));
    let mut other = Rig::alone(MaglevConfig { addresses: vec![VIP.parse().unwrap()], ..changed });
    for (name, bytes) in exported {
        other.node.import(&name, &bytes, 1).unwrap();
    }
    drains(&mut other, &before);
    // It takes flows again with a weight; the state that was exported while it drained keeps it draining.
    let mut third = Rig::alone(config([backend(1, 1), backend(2, 1)]));
    for (name, bytes) in rig.node.export() {
        third.node.import(&name, &bytes, 1).unwrap();
    }
    drains(&mut third, &before);
    rig.call("add", &backend(1, 1).to_string());
    let new: BTreeSet<_> = (2_000..2_100).map(|flow| rig.ask(flow)).collect();
    assert_eq!(new, BTreeSet::from([Some(1), Some(2)]));
    // If no backend takes flows, there is a warning.
    let none = config([backend(1, 0), backend(2, 0)]);
    assert_eq!(none.check(), Ok(()));
    assert!(none.warnings()[0].problem.starts_with("all backends have weight 0"));
    assert_eq!(Rig::alone(none).ask(1), None);
}

#[test]
fn fragments_of_one_packet_meet() {
    let mut rig = Rig::alone(config((0..6).map(|number| backend(number, 1))));
    for flow in 0..30 {
        let fragment = |offset: u16, more: bool| {
            let mut frame = ethernet()
                .ipv4(client(flow).as_str(), VIP)
                .udp(1_000 + flow, 53)
                .payload(&[0; 64])
                .build()
                .unwrap();
            let field = offset | u16::from(more) << 13;
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            frame[24..26].fill(0);
            let sum = netbricks_core::packet::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        let went: BTreeSet<u8> = rig
            .send(&[fragment(0, true), fragment(9, true), fragment(18, false)])
            .iter()
            .map(|f| to(f))
            .collect();
        assert_eq!(went.len(), 1, "flow {flow}: {went:?}");
    }
}

#[test]
fn a_change_on_one_worker_is_seen_by_the_next_batch_of_all() {
    let blueprint = blueprint(config([backend(1, 1)]));
    let (mut one, mut other) = (Rig::of(&blueprint, 0), Rig::of(&blueprint, 1));
    assert_eq!((one.ask(1), other.ask(2)), (Some(1), Some(1)));
    one.call("drain", "web-1");
    one.call("add", "web-2 02:00:00:00:01:02");
    assert_eq!((other.ask(2), other.ask(3)), (Some(1), Some(2)));
    other.call("remove", "web-1");
    assert_eq!((one.ask(1), other.ask(2)), (Some(2), Some(2)));
    assert_eq!(one.call("backends", ""), other.call("backends", ""));
    assert_eq!(
        (one.call("connections", ""), other.call("connections", "")),
        ("web-2 1\n".into(), "web-2 2\n".into())
    );
}

#[test]
fn only_flows_that_change_their_backend_are_counted_as_moved() {
    let mut rig = Rig::alone(config([backend(1, 1), backend(2, 1)]));
    // New flows with more than one packet in their first batch, some with a shape that is handled separately.
    let flows: Vec<_> =
        (0..20).flat_map(|flow| [packet(flow), packet(flow), packet6(flow), packet6(flow)]).collect();
    let went: Vec<u8> = rig.send(&flows).iter().map(|frame| to(frame)).collect();
    let counts = |rig: &mut Rig| {
        ["assigned.occupancy", "moved.occupancy"]
            .map(|name| rig.call(name, "").split(' ').next().unwrap_or_default().to_owned())
    };
    assert_eq!(counts(&mut rig), ["40", "0"]);
    // Changes that leave flows at their backends.
    rig.call("drain", "web-1");
    rig.call("add", "web-3 02:00:00:00:01:03");
    for _ in 0..2 {
        assert_eq!(rig.send(&flows).iter().map(|frame| to(frame)).collect::<Vec<_>>(), went);
        assert_eq!(counts(&mut rig), ["40", "0"]);
    }
    rig.call("remove", "web-1");
    let lost = went.iter().filter(|number| **number == 1).count() / 2;
    assert!(lost > 0);
    for _ in 0..2 {
        assert!(rig.send(&flows).iter().all(|frame| to(frame) != 1));
        assert_eq!(counts(&mut rig), ["40".to_owned(), lost.to_string()]);
    }
}

#[test]
fn an_idle_connection_is_forgotten_and_a_live_one_is_not() {
    let idle = "1 s".parse().unwrap();
    let mut rig = Rig::alone(MaglevConfig { idle, ..config([backend(1, 1)]) });
    assert_eq!((rig.ask(1), rig.ask(2)), (Some(1), Some(1)));
    rig.call("drain", "web-1");
    rig.call("add", "web-2 02:00:00:00:01:02");
    rig.now += 700_000_000;
    assert_eq!(rig.ask(1), Some(1));
    rig.now += 700_000_000;
    assert_eq!((rig.ask(1), rig.ask(2)), (Some(1), Some(2)));
}

#[test]
fn without_a_backend_new_flows_are_dropped_for_a_reason() {
    let mut rig = Rig::alone(config([backend(1, 1)]));
    rig.ask(1);
    rig.call("drain", "web-1");
    assert_eq!((rig.ask(1), rig.ask(2)), (Some(1), None));
    rig.call("remove", "web-1");
    assert_eq!(rig.ask(1), None);
    let (mut cx, mut batch) = (DetachedContext::new(rig.pool.clone()), Batch::new());
    batch.push(rig.pool.packet(&packet(5)).unwrap()).unwrap();
    rig.node.process(0, &mut batch, &mut cx);
    assert_eq!(cx.take_drops().of(DropReason::NoRoute).packets, 1);
    assert_eq!(rig.call("add", "web-1 02:00:00:00:01:01"), "done");
    assert_eq!(rig.ask(2), Some(1));
}

/// Another machine, whose backends are in another order, takes the flows over.
#[test]
fn flows_stay_when_another_node_takes_them_over() {
    let mut rig = Rig::alone(config((1..5).map(|number| backend(number, 1))));
    let before: Vec<_> = (0..50).map(|flow| rig.ask(flow)).collect();
    rig.call("drain", "web-2");
    let images = rig.node.export();
    let image = |wanted: &str| &images.iter().find(|(name, _)| name == wanted).unwrap().1;

    let mut other = Rig::alone(config((1..5).rev().map(|number| backend(number, 1))));
    other.node.import("connections", image("connections"), 1).unwrap();
    // The image names other backends than the configuration of this node, so the node's own stay.
    other.node.import("backends", image("backends"), 1).unwrap();
    assert_eq!((0..50).map(|flow| other.ask(flow)).collect::<Vec<_>>(), before);
    assert!(!other.call("backends", "").contains("draining"));

    let mut same = Rig::alone(config((1..5).map(|number| backend(number, 1))));
    same.node.import("backends", image("backends"), 1).unwrap();
    assert!(same.call("backends", "").contains("web-2 02:00:00:00:01:02 1 draining 0 slots"));
    let mut damaged = image("backends").clone();
    damaged[40] ^= 1;
    let refused = same.node.import("backends", &damaged, 1).unwrap_err().to_string();
    assert!(refused.contains("changed on their way"), "{refused}");
}

#[test]
fn shares_follow_weights() {
    let mut rig = Rig::alone(MaglevConfig { slots: 65_537, ..config([backend(1, 1), backend(2, 3)]) });
    assert_eq!(
        rig.call("backends", ""),
        "web-1 02:00:00:00:01:01 1 takes 16384 slots\nweb-2 02:00:00:00:01:02 3 takes 49153 slots\n"
    );
    let went: Vec<u8> = (0..4_000).filter_map(|flow| rig.ask(flow)).collect();
    let second = went.iter().filter(|number| **number == 2).count();
    assert!((2_850..3_150).contains(&second), "{second} of 4,000");
}

/// Rows of the report as text, and the counts that are not 0.
fn reported(rig: &mut Rig) -> (Vec<String>, BTreeMap<String, u64>) {
    let section = rig.node.report().remove(0);
    assert_eq!(section.columns, ["backend", "state", "slots", "connections", "packets"]);
    let counts = section.counts.into_iter().filter(|(_, count)| *count > 0).collect();
    (section.rows.iter().map(|row| row.join(" ")).collect(), counts)
}

fn counts<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

/// A successor's counters continue; its report counts only its own packets.
#[test]
fn a_successor_reports_its_own_packets() {
    let made = || Rig::alone(config([backend(1, 1), backend(2, 1)]));
    let (mut before, mut after) = (made(), made());
    assert!((0..30).all(|flow| before.ask(flow).is_some()));
    for (name, image) in before.node.export() {
        after.node.import(&name, &image, 1).unwrap();
    }
    assert!(after.call("assigned.occupancy", "").starts_with("30 "));
    assert!((0..31).all(|flow| after.ask(flow).is_some()));
    let known = counts([("known_connection_packets", 30), ("new_connection_packets", 1)]);
    assert_eq!(reported(&mut after).1, known);
}

#[test]
fn the_report_has_no_connection_that_has_expired() {
    let idle = "1 s".parse().unwrap();
    let config = MaglevConfig { idle, ..config([backend(1, 1), backend(2, 1)]) };
    let mut test = Clocked::configured(maglev, config);
    test.send((0..400).map(packet));
    test.advance(std::time::Duration::from_secs(5));
    let report = test.send([packet(9)]);
    let open = report.sections[0].rows.iter().map(|row| row[3].parse::<u64>().unwrap());
    assert_eq!(open.sum::<u64>(), 1, "{:?}", report.sections[0]);
}

#[test]
fn the_report_says_who_got_what_and_why() {
    let config = config([backend(1, 1), backend(2, 1)]);
    let mut rig = Rig::alone(MaglevConfig { slots: 65_537, ..config });
    let frames: Vec<_> = (0..30).flat_map(|flow| [packet(flow), packet6(flow)]).collect();
    let mut went = [0u64; 4];
    for _ in 0..3 {
        rig.send(&frames).iter().for_each(|frame| went[usize::from(to(frame))] += 1);
    }
    let [one, two] = [went[1], went[2]];
    assert!(one > 0 && two > 0 && one + two == 180);
    let row = |name: &str, state: &str, share: &str, flows: u64, packets: u64| {
        format!("{name} {state} {share} % {flows} {packets}")
    };
    let rows = [row("web-1", "active", "50.00", one / 3, one), row("web-2", "active", "50.00", two / 3, two)];
    let known = counts([("known_connection_packets", 120), ("new_connection_packets", 60)]);
    assert_eq!(reported(&mut rig), (rows.into(), known.clone()));

    // Errors about a known flow, and about none.
    let quote = ethernet().ipv4(VIP, client(0).as_str()).tcp(80, 1_000).build().unwrap()[14..].to_vec();
    let error =
        |quote: &[u8]| ethernet().ipv4("198.51.100.7", VIP).icmp_time_exceeded(quote).build().unwrap();
    let errors = rig.send(&[error(&quote), error(&[])]);
    went = [0; 4];
    errors.iter().for_each(|frame| went[usize::from(to(frame))] += 1);
    let with_errors = counts([
        ("known_connection_packets", 121),
        ("new_connection_packets", 60),
        ("unremembered_packets", 1),
    ]);
    assert_eq!(reported(&mut rig).1, with_errors);

    // A backend drains and still gets its packets; after its removal, another one takes its place.
    rig.call("drain", "web-1");
    let drained = one + went[1];
    assert_eq!(reported(&mut rig).0[0], row("web-1", "draining", "0.00", one / 3, drained));
    rig.call("remove", "web-1");
    rig.call("add", "web-3 02:00:00:00:01:03");
    let before = reported(&mut rig);
    assert_eq!(before.0[0], row("web-3", "active", "50.00", 0, 0));
    assert_eq!(before.1["removed_backends_packets"], drained);
    rig.send(&frames);
    let (rows, now) = reported(&mut rig);
    let moved = one / 3;
    assert_eq!(now["moved_connections"], moved);
    assert_eq!((now["removed_backends_packets"], now["known_connection_packets"]), (drained, 181));
    let packets: u64 = rows.iter().map(|row| row.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(packets + drained, 180 + 2 + 60, "none is counted twice or lost");
}

/// Workers' counts are added up; state that they share is not.
#[test]
fn workers_report_as_one() {
    let blueprint = blueprint(config([backend(1, 1), backend(2, 3)]));
    let mut rigs = [Rig::of(&blueprint, 0), Rig::of(&blueprint, 1)];
    for flow in 0..40 {
        rigs[usize::from(flow % 2)].ask(flow);
    }
    let [mut all, other] = rigs.each_mut().map(|rig| rig.node.report().remove(0));
    all.absorb(&other);
    assert_eq!((all.rows.len(), all.rows[0][1].as_str()), (2, "active"));
    assert_eq!([&all.rows[0][2], &all.rows[1][2]], ["25.10 %", "74.90 %"]);
    let sum = |column: usize| all.rows.iter().map(|row| row[column].parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!((sum(3), sum(4), all.counts["new_connection_packets"]), (40, 40, 40));
}

#[test]
fn two_names_of_one_address_are_a_warning() {
    let warnings = |backends: Vec<Backend>| config(backends).warnings();
    let same = |number: u8| Backend { mac: backend(1, 1).mac, ..backend(number, 1) };
    assert_eq!(warnings(vec![backend(1, 1), backend(2, 1)]), []);
    let found = warnings(vec![backend(1, 1), backend(2, 1), same(3), same(4)]);
    let items: Vec<_> = found.iter().map(|doubt| (doubt.key, doubt.item)).collect();
    assert_eq!(items, [("backends", Some(2)), ("backends", Some(3))]);
    assert!(found.iter().all(|doubt| doubt.problem.contains("the Ethernet address of `web-1`")), "{found:?}");
}

#[test]
fn the_key_decides() {
    let with = |key: &str| {
        let mut rig = Rig::alone(MaglevConfig { key: key.into(), ..config((0..5).map(|n| backend(n, 1))) });
        (0..40).map(|flow| rig.ask(flow)).collect::<Vec<_>>()
    };
    assert_eq!(with("a"), with("a"));
    assert_ne!(with("a"), with("b"));
}

#[test]
fn configuration_is_checked_before_anything_runs() {
    let check = |text: &str| {
        let read = toml::from_str::<MaglevConfig>(text).map_err(|error| error.to_string())?;
        read.check().map_err(|refused| refused.to_string())
    };
    let one = "backends = [\"a 02:00:00:00:00:01\"]\n";
    assert_eq!(check(one), Ok(()));
    assert_eq!(check(&format!("{one}slots = 131_101")), Ok(()));
    for (text, part) in [
        ("capacity = 1", "missing field `backends`"),
        ("backends = []", "`backends` must hold at least one backend as \"web-1 02:00:00:00:00:01\""),
        ("backends = [\"a\"]", "expected a backend as `web-1 02:00:00:00:00:01 3`, found `a`"),
        ("backends = [\"a 02:00:00:00:00:0g\"]", "expected the Ethernet address of backend `a`"),
        (
            "backends = [\"a 03:00:00:00:00:01\"]",
            "backend `a` has the address 03:00:00:00:00:01, which is a group's",
        ),
        (
            "backends = [\"a 02:00:00:00:00:01 -1\"]",
            "the weight of backend `a` must be 0 to 1000000, found `-1`",
        ),
        (
            "backends = [\"a 02:00:00:00:00:01 1 2\"]",
            "expected nothing behind the weight of backend `a`, found `2`",
        ),
        (
            "backends = [\"a 02:00:00:00:00:01\", \"a 02:00:00:00:00:02\"]",
            "backend `a` is given twice: take one out",
        ),
        (&format!("{one}capacity = 0"), "`capacity` must be 1 to 16,777,216 connections, found 0"),
        (&format!("{one}idle = \"1 us\""), "`idle` must be \"1 ms\" to \"1 d\""),
        (
            &format!("{one}slots = 65_536"),
            "`slots` cannot be 65536: a Maglev table of 65536 slots: the number must be prime, 65537 is",
        ),
        (
            &format!("{one}slots = 131_111"),
            "`slots` must be a prime up to 131101, found 131111: each change of the backends",
        ),
        (&format!("{one}slots = 16_777_213"), "`slots` must be a prime up to 131101, found 16777213"),
        (&format!("{one}addresses = [\"192.0.2.300\"]"), "192.0.2.300"),
        (&format!("{one}addresses = [\"224.0.0.1\"]"), "holds 224.0.0.1, which is a group's"),
        (
            &format!("{one}addresses = [\"10.0.0.1\", \"::1\", \"10.0.0.1\"]"),
            "holds 10.0.0.1 twice: take one out",
        ),
        (&format!("backends = [\"{} 02:00:00:00:00:01\"]", "x".repeat(65)), "has 65: shorten it"),
    ] {
        let refused = check(text).unwrap_err();
        assert!(refused.contains(part), "{text}: {refused}");
    }
    // A configuration made in Rust was not checked when it was read.
    let refused = |config: MaglevConfig| config.check().unwrap_err().to_string();
    let twice = refused(config([backend(1, 1), backend(1, 2)]));
    assert_eq!(twice, "`backends` cannot be: backend `web-1` is given twice: take one out");
    let addresses = vec!["ff02::1".parse().unwrap()];
    let group = refused(MaglevConfig { addresses, ..config([backend(1, 1)]) });
    assert_eq!(group, "`addresses` holds ff02::1, which is a group's: take it out");
}
