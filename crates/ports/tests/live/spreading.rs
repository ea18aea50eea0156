//! Flows over the queues of a port: each queue has its share, and no flow is split.
//!
//! Where a port promises that, both directions of a flow come to queues of the same number.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netbricks_ports::Counters;

use super::fixture::{Forwarder, Lab, Place, eventually};
use super::forwarding::{ping, transfer};

const FLOWS: u16 = 64;
/// Packets of each flow in each direction.
const EACH: u64 = 10;

/// `left` – l0 ═ b0 – box – b1 ═ r0 – `right`, with only the test's own packets.
///
/// There is no neighbour discovery and no IPv6.
fn quiet(queues: usize) -> Option<Lab> {
    let lab = Lab::new(&["left", "box", "right"])?;
    for role in ["left", "box", "right"] {
        lab.run(role, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    for (role, device, end) in [("left", "l0", "b0"), ("right", "r0", "b1")] {
        let there = lab.name(role);
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        lab.run(
            "box",
            &format!("ip link add {end} {queues} type veth peer name {device} {queues} netns {there}"),
        );
        lab.run("box", &format!("ip link set {end} up"));
        lab.run(role, &format!("ip link set {device} up"));
    }
    let hardware =
        |role, device: &str| lab.run(role, &format!("cat /sys/class/net/{device}/address")).trim().to_owned();
    let [left, right] = [hardware("left", "l0"), hardware("right", "r0")];
    for (role, device, own, other, address) in [("left", "l0", 1, 2, &right), ("right", "r0", 2, 1, &left)] {
        lab.run(role, &format!("ip address add 10.0.0.{own}/24 dev {device}"));
        lab.run(role, &format!("ip neigh add 10.0.0.{other} lladdr {address} dev {device}"));
    }
    Some(lab)
}

/// Turns IPv6 on, with the packets that it sends by itself.
fn with_ipv6(lab: &Lab) {
    for (role, device, number) in [("left", "l0", 1), ("right", "r0", 2)] {
        lab.run(role, &format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=0"));
        lab.run(role, &format!("ip address add fd00::{number}/64 dev {device} nodad"));
    }
}

/// Sends [`FLOWS`] flows of UDP, one packet of each at a time, in both directions.
fn exchange(lab: &Lab) {
    let sockets = |role, own: &'static str, port: u16, other: &'static str, other_port: u16| {
        let opened = lab.inside(role, move || {
            let open = |flow| {
                let socket = UdpSocket::bind((own, port + flow)).unwrap();
                socket.connect((other, other_port + flow)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
                socket
            };
            (0..FLOWS).map(open).collect::<Vec<_>>()
        });
        opened.join().unwrap()
    };
    let left = sockets("left", "10.0.0.1", 40_000, "10.0.0.2", 7_000);
    let right = sockets("right", "10.0.0.2", 7_000, "10.0.0.1", 40_000);
    for _ in 0..EACH {
        for (from, to) in [(&left, &right), (&right, &left)] {
            from.iter().for_each(|socket| assert_eq!(socket.send(b"one packet").unwrap(), 10));
            to.iter().for_each(|socket| assert_eq!(socket.recv(&mut [0; 32]).unwrap(), 10));
        }
    }
}

/// The number of packets that each queue has received, by port.
fn received(forwarder: &Forwarder) -> [Vec<u64>; 2] {
    let of = |counters: &[Arc<Counters>]| {
        counters.iter().map(|queue| queue.received.load(Ordering::Relaxed)).collect::<Vec<_>>()
    };
    let (b0, b1) = forwarder.counters().split_at(forwarder.counters().len() / 2);
    [of(b0), of(b1)]
}

/// Counts the packets that an exchange brought to each queue: multiples of a flow's packets if no flow was
/// split.
///
/// The test allows no fewer than five of 64 flows at a queue that has a third or half of them. Chance gives
/// fewer less than once in a million times.
fn shares(lab: &Lab, forwarder: &Forwarder) -> [Vec<u64>; 2] {
    exchange(lab);
    let all = u64::from(FLOWS) * EACH;
    eventually("the counting of all packets", || {
        received(forwarder).iter().all(|queues| queues.iter().sum::<u64>() >= all)
    });
    let shares = received(forwarder);
    for queues in &shares {
        assert_eq!(queues.len(), 2);
        assert_eq!(queues.iter().sum::<u64>(), all, "each packet came to one queue: {shares:?}");
        assert!(queues.iter().all(|packets| packets % EACH == 0), "no flow was parted: {shares:?}");
        assert!(queues.iter().all(|packets| *packets >= 5 * EACH), "each queue has its share: {shares:?}");
    }
    shares
}

fn finish(lab: &Lab, forwarder: Forwarder) {
    with_ipv6(lab);
    ping(lab);
    for _ in 0..4 {
        transfer(lab, 100 << 10);
    }
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!(outcome.totals.drops.total().packets, 0, "{outcome:?}");
}

fn places(driver: &str) -> [Place; 2] {
    ["b0", "b1"].map(|device| ("box", format!("driver = \"{driver}\"\ndevice = \"{device}\"\nqueues = 2")))
}

#[test]
fn af_packet_spreads_flows_over_queues() {
    let Some(lab) = quiet(1) else { return };
    let forwarder = Forwarder::start(&lab, places("af_packet"), 2, 256);
    let [there, back] = shares(&lab, &forwarder);
    // Answers come by another port: one worker has the flow's state for both.
    assert_eq!(there, back, "both directions of each flow come to queues of one number");
    finish(&lab, forwarder);
}

/// Three queues of the device for two of the port. The device decides how it spreads flows.
#[test]
fn af_xdp_shares_out_the_queues_of_a_device() {
    let Some(lab) = quiet(3) else { return };
    for (role, device) in [("left", "l0"), ("right", "r0")] {
        lab.run(role, &format!("ethtool -K {device} tx off"));
    }
    let forwarder = Forwarder::start(&lab, places("af_xdp"), 2, 64);
    shares(&lab, &forwarder);
    finish(&lab, forwarder);
}
