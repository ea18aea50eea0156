//! Rules on real devices: packets come to the queues that the rules name, through the kernel itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::DetachedContext;
use netbricks_packet::build::{Builder, Payload, ethernet};
use netbricks_ports::steer::Rules;
use netbricks_ports::{Port, ReceiveQueue};

use super::fixture::{Lab, eventually, open};

const QUEUES: usize = 3;
const RULES: &str = "[
    { protocol = 'udp', destination_port = 4789, queue = 1 },
    { vlan = 10, ip = 'v6', queue = 2 },
    { vlan = 20, queue = 1 },
    { source = '10.9.0.0/16', queue = 2 },
    { destination = '2001:db8:7::/48', protocol = 'tcp', queue = 2 },
    { ethertype = 0x88b5, queue = 2 },
    { ethertype = 'arp', queue = 1 },
]";

/// A packet of each kind, with its name and the queue that a rule names for it.
fn told() -> Vec<(&'static str, usize, Vec<u8>)> {
    let v4 = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8:7::9");
    let made = |packet: Builder<'_, Payload>| packet.build().unwrap();
    let vxlan = |vlan: u16| ethernet().vlan(vlan).ipv4("10.9.0.1", "10.0.0.2").udp(1, 4789).payload(b"vxlan");
    let mut experimental = vec![2; 60];
    experimental[12..14].copy_from_slice(&[0x88, 0xb5]);
    vec![
        ("a UDP port", 1, made(v4().udp(7, 4789).payload(b"vxlan"))),
        ("one over IPv6", 1, made(v6().udp(7, 4789).payload(b"vxlan"))),
        (
            "one behind an extension header",
            1,
            made(v6().hop_by_hop(&[1, 4, 0, 0, 0, 0]).udp(7, 4789).payload(b"v")),
        ),
        ("one in a VLAN, before the rules by address", 1, made(vxlan(10))),
        (
            "one behind two tags",
            1,
            made(ethernet().qinq(5, 6).ipv4("10.0.0.1", "10.0.0.2").udp(7, 4789).payload(b"v")),
        ),
        (
            "a VLAN's IPv6",
            2,
            made(ethernet().vlan(10).ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(b"v")),
        ),
        ("a VLAN", 1, made(ethernet().vlan(20).ipv4("10.9.0.1", "10.0.0.2").tcp(1, 2).payload(b"v"))),
        (
            "the outer of two VLANs",
            1,
            made(ethernet().qinq(20, 6).ipv4("10.0.0.1", "10.0.0.2").udp(7, 7).payload(b"v")),
        ),
        ("a source", 2, made(ethernet().ipv4("10.9.255.255", "10.0.0.2").tcp(1, 2).payload(b"v"))),
        ("a fragment, which has no ports", 2, {
            made(ethernet().ipv4("10.9.0.1", "10.0.0.2").fragment(0, true).udp(1, 4789).payload(&[0; 64]))
        }),
        ("a destination and protocol", 2, made(v6().tcp(1, 2).payload(b"v"))),
        ("an EtherType", 2, experimental),
        ("ARP", 1, ethernet().arp_request("10.0.0.1", "10.0.0.2").build().unwrap()),
    ]
}

/// Flows that match no rule, each with its other direction.
pub(crate) fn untold() -> Vec<[Vec<u8>; 2]> {
    let flow = |number: u16| {
        let (one, other) = (format!("10.1.{}.{}", number >> 8, number & 0xff), "192.0.2.1");
        let there = ethernet().ipv4(one.as_str(), other).tcp(40_000 + number, 443).payload(b"there");
        let back = ethernet().ipv4(other, one.as_str()).tcp(443, 40_000 + number).payload(b"back");
        [there.build().unwrap(), back.build().unwrap()]
    };
    (0..64).map(flow).collect()
}

/// Sends frames from the other end, past the host's stack.
pub(crate) fn send(lab: &Lab, frames: Vec<Vec<u8>>) {
    let sent = lab.inside("left", move || {
        let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
        let mut port = open("left", "driver = \"af_packet\"\ndevice = \"l0\"", &pool, 1).unwrap();
        let mut queue = port.take_transmit(0).unwrap();
        let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
        for frame in frames {
            batch.push(pool.packet(&frame).unwrap()).unwrap();
        }
        eventually("room for all frames", || {
            queue.transmit(&mut batch, &mut cx);
            batch.is_empty()
        });
    });
    sent.join().unwrap();
}

/// Receives until this many packets have arrived in all. Answers the queue of each frame, which must arrive
/// once.
pub(crate) fn receive(
    queues: &mut [Box<dyn ReceiveQueue>],
    pool: &Pool,
    wanted: usize,
) -> BTreeMap<Vec<u8>, usize> {
    let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
    let mut found = BTreeMap::new();
    eventually("the arrival of all frames", || {
        for (number, queue) in queues.iter_mut().enumerate() {
            queue.receive(&mut batch, &mut cx);
            for packet in batch.iter() {
                assert_eq!(found.insert(packet.data().to_vec(), number), None, "one packet came twice");
            }
            batch.clear();
        }
        found.len() >= wanted
    });
    found
}

pub(crate) fn lab() -> Option<Lab> {
    let lab = Lab::new(&["left", "box"])?;
    for role in ["left", "box"] {
        // Only the test's own frames.
        lab.run(role, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    lab.veth(("box", "b0"), ("left", "l0"));
    Some(lab)
}

fn check(lab: &Lab, queues: &mut [Box<dyn ReceiveQueue>], rules: &Rules, pool: &Pool, when: &str) {
    let (told, untold) = (told(), untold());
    let frames: Vec<Vec<u8>> =
        told.iter().map(|(_, _, frame)| frame.clone()).chain(untold.iter().flatten().cloned()).collect();
    let wanted = frames.len();
    send(lab, frames);
    let found = receive(queues, pool, wanted);
    for (what, queue, frame) in &told {
        assert_eq!(rules.queue_of(frame).map(usize::from), Some(*queue), "{what}");
        assert_eq!(found.get(frame), Some(queue), "{what}, {when}");
    }
    let mut counts = [0; QUEUES];
    for [there, back] in &untold {
        assert_eq!(rules.queue_of(there), None);
        assert_eq!(found.get(there), found.get(back), "both directions of a flow come to one queue, {when}");
        counts[found[there]] += 1;
    }
    assert!(
        counts.iter().all(|flows| *flows > 5),
        "other flows are spread over all queues: {counts:?}, {when}"
    );
}

#[test]
fn af_packet_brings_each_packet_to_the_queue_that_the_rules_say() {
    let Some(lab) = lab() else { return };
    let pool = Pool::builder().frames(4096).for_device(true).build().unwrap();
    let mut port: Box<dyn Port> = {
        let pool = pool.clone();
        let opened = lab.inside("box", move || {
            let text = format!("driver = \"af_packet\"\ndevice = \"b0\"\nqueues = {QUEUES}\nsteer = {RULES}");
            open("port", &text, &pool, 1).unwrap()
        });
        opened.join().unwrap()
    };
    let rules = port.rules();
    assert_eq!(rules.iter().count(), 7);
    assert!(!port.capabilities().symmetric_rss, "rules by destination part the directions of flows");
    let mut queues: Vec<_> = (0..QUEUES).map(|queue| port.take_receive(queue).unwrap()).collect();
    check(&lab, &mut queues, &rules, &pool, "at first");

    lab.run("box", "ip link set b0 down");
    lab.run("box", "ip link set b0 up");
    check(&lab, &mut queues, &rules, &pool, "after the interface was down");

    lab.run("box", "ip link delete b0");
    lab.veth(("box", "b0"), ("left", "l0"));
    let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
    eventually("the return of the interface", || {
        // A queue that was handed over is taken at the next call.
        for queue in &mut queues {
            queue.receive(&mut batch, &mut cx);
        }
        batch.clear();
        port.returned() == 1
    });
    check(&lab, &mut queues, &rules, &pool, "after another interface came under its name");
    let received: u64 = port.counters().iter().map(|queue| queue.received.load(Ordering::Relaxed)).sum();
    assert_eq!(received, 3 * (told().len() + 2 * untold().len()) as u64);
}

/// Sockets that join a group one after the other receive nothing before the group is complete.
///
/// No packet arrives twice, and none at the wrong queue.
#[test]
fn arrivals_while_a_port_opens_come_once_and_to_their_queue() {
    let Some(lab) = lab() else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let sending = lab.inside("left", {
        let stop = Arc::clone(&stop);
        move || {
            let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
            let mut port = open("left", "driver = \"af_packet\"\ndevice = \"l0\"", &pool, 1).unwrap();
            let mut queue = port.take_transmit(0).unwrap();
            let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
            for number in 0_u64.. {
                let frame = ethernet()
                    .ipv4("10.0.0.1", "10.0.0.2")
                    .udp(7, 4789)
                    .payload(&number.to_be_bytes())
                    .build();
                batch.push(pool.packet(&frame.unwrap()).unwrap()).unwrap();
                if batch.len() == 32 {
                    queue.transmit(&mut batch, &mut cx);
                    batch.clear();
                    std::thread::sleep(std::time::Duration::from_micros(500));
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let pool = Pool::builder().frames(4096).for_device(true).build().unwrap();
    for round in 0..8 {
        let opened = lab.inside("box", {
            let pool = pool.clone();
            move || {
                let rules = if round % 2 == 0 { format!("steer = {RULES}") } else { String::new() };
                let text = format!("driver = \"af_packet\"\ndevice = \"b0\"\nqueues = {QUEUES}\n{rules}");
                open("port", &text, &pool, 1).unwrap()
            }
        });
        let mut port = opened.join().unwrap();
        let mut queues: Vec<_> = (0..QUEUES).map(|queue| port.take_receive(queue).unwrap()).collect();
        let found = receive(&mut queues, &pool, 500);
        let first = found.values().next();
        assert!(found.values().all(|queue| Some(queue) == first), "one flow, one queue");
        assert!(round % 2 == 1 || first == Some(&1), "{first:?}");
    }
    stop.store(true, Ordering::Relaxed);
    sending.join().unwrap();
}

/// A group of sockets, like a single socket, does not receive packets that leave by its interface.
#[test]
fn packets_that_the_host_sends_are_no_arrivals() {
    for (queues, rules) in [(1, ""), (2, ""), (2, "steer = [{ protocol = 'udp', queue = 1 }]")] {
        let Some(lab) = lab() else { return };
        lab.run("box", "ip address add 10.0.0.2/24 dev b0");
        lab.run("box", "ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev b0");
        let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
        let opened = lab.inside("box", {
            let (pool, rules) = (pool.clone(), rules.to_owned());
            move || {
                let text = format!("driver = \"af_packet\"\ndevice = \"b0\"\nqueues = {queues}\n{rules}");
                open("port", &text, &pool, 1).unwrap()
            }
        });
        let mut port = opened.join().unwrap();
        let mut taken: Vec<_> = (0..queues).map(|queue| port.take_receive(queue).unwrap()).collect();
        let sent = lab.inside("box", || {
            let socket = std::net::UdpSocket::bind("10.0.0.2:0").unwrap();
            for _ in 0..100 {
                socket.send_to(b"from the host", "10.0.0.1:9").unwrap();
            }
        });
        sent.join().unwrap();
        // The last packet arrives after all packets that the host sent.
        let last = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).payload(b"last").build().unwrap();
        send(&lab, vec![last.clone()]);
        let found = receive(&mut taken, &pool, 1);
        assert!(found.contains_key(&last));
        assert_eq!(found.len() - 1, 0, "packets of the host's own came by {queues} queues, {rules}");
    }
}

/// Packets that the host sends by a TAP device come to the port's queues by the rules.
#[test]
fn a_tap_brings_each_packet_to_the_queue_that_the_rules_say() {
    let Some(lab) = lab() else { return };
    let pool = Pool::builder().frames(4096).for_device(true).build().unwrap();
    lab.run("left", "ip link delete l0");
    let opened = lab.inside("left", {
        let pool = pool.clone();
        move || {
            let text = format!("driver = \"tap\"\ndevice = \"l0\"\nqueues = {QUEUES}\nsteer = {RULES}");
            open("port", &text, &pool, 1).unwrap()
        }
    });
    let mut port = opened.join().unwrap();
    let rules = port.rules();
    let mut queues: Vec<_> = (0..QUEUES).map(|queue| port.take_receive(queue).unwrap()).collect();
    check(&lab, &mut queues, &rules, &pool, "by a TAP");
}
