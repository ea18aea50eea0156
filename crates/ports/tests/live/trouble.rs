//! Failures and bad input on live ports.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pages, Pool};
use netbricks_core::{DetachedContext, DropReason};
use netbricks_ports::{Counters, Link, ReceiveQueue};

use super::fixture::{Forwarder, Lab, enter, eventually, open};
use super::leaving::start;

fn pair(driver: &str) -> [super::fixture::Place; 2] {
    ["b0", "b1"].map(|device| ("box", format!("driver = \"{driver}\"\ndevice = \"{device}\"")))
}

fn wire() -> Option<Lab> {
    let lab = Lab::new(&["left", "box", "right"])?;
    connect(&lab);
    Some(lab)
}

/// The same laboratory with only the packets that a test sends.
///
/// There is no IPv6, and no discovery of the neighbour that does not exist.
fn quiet() -> Option<Lab> {
    let lab = Lab::new(&["left", "box", "right"])?;
    for role in ["left", "box", "right"] {
        lab.run(role, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    connect(&lab);
    lab.run("left", "ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev l0");
    Some(lab)
}

fn connect(lab: &Lab) {
    lab.veth(("box", "b0"), ("left", "l0"));
    lab.veth(("box", "b1"), ("right", "r0"));
    lab.run("left", "ip address add 10.0.0.1/24 dev l0");
    lab.run("right", "ip address add 10.0.0.2/24 dev r0");
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("right", "ethtool -K r0 tx off");
}

/// Packets that have arrived at an interface, by the kernel's count.
fn arrived(lab: &Lab, device: &str) -> u64 {
    lab.run("box", &format!("cat /sys/class/net/{device}/statistics/rx_packets")).trim().parse().unwrap()
}

/// The number of these packets that a queue received or knows that it missed.
fn seen(counters: &Counters) -> u64 {
    counters.received.load(Ordering::Relaxed) + counters.missed.load(Ordering::Relaxed)
}

/// Sends this many packets from the left, as fast as possible.
fn flood(lab: &Lab, packets: u64, payload: &'static [u8]) {
    let sending = lab.inside("left", move || {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        let (mut sent, start) = (0, Instant::now());
        while sent < packets {
            assert!(start.elapsed() < Duration::from_secs(180), "{sent} of {packets} packets could be sent");
            sent += u64::from(socket.send_to(payload, "10.0.0.2:9").is_ok());
        }
    });
    sending.join().unwrap();
}

#[test]
fn a_deleted_interface_is_a_port_that_is_down() {
    for driver in ["af_packet", "af_xdp"] {
        let Some(lab) = wire() else { return };
        let forwarder = Forwarder::start(&lab, pair(driver), 1, 64);
        lab.run("left", "ping -q -c 3 -i 0.05 -W 60 10.0.0.2");
        lab.run("box", "ip link delete b1");
        // Arrivals have no way out now.
        assert!(!lab.try_run("left", "ping -q -c 3 -i 0.05 -W 1 10.0.0.2").status.success());
        let outcome = forwarder.finish();
        outcome.check();
        assert_eq!(outcome.links, [Link::Up, Link::Gone], "{driver}");
        assert!(outcome.totals.drops.of(DropReason::LinkDown).packets > 0, "{driver}: {outcome:?}");
    }
}

#[test]
fn a_deleted_tap_is_a_port_that_is_down() {
    let Some(lab) = Lab::new(&["left", "right"]) else { return };
    let places = [("left", 1), ("right", 2)].map(|(role, number)| {
        (role, format!("driver = \"tap\"\ndevice = \"t0\"\naddress = \"10.0.0.{number}/24\""))
    });
    let forwarder = Forwarder::start(&lab, places, 1, 128);
    lab.run("left", "ping -q -c 3 -i 0.05 -W 60 10.0.0.2");
    lab.run("right", "ip link delete t0");
    assert!(!lab.try_run("left", "ping -q -c 3 -i 0.05 -W 1 10.0.0.2").status.success());
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!(outcome.links, [Link::Up, Link::Gone]);
    assert!(outcome.totals.drops.of(DropReason::LinkDown).packets > 0, "{outcome:?}");
}

/// Makes the pair of devices again, with the same names and addresses.
fn make_again(lab: &Lab) {
    lab.veth(("box", "b1"), ("right", "r0"));
    lab.run("right", "ip address add 10.0.0.2/24 dev r0");
    lab.run("right", "ethtool -K r0 tx off");
    // The other end has a different MAC address now.
    lab.run("left", "ip neigh flush dev l0");
}

fn answers(lab: &Lab) -> bool {
    lab.try_run("left", "ping -q -c 1 -W 1 -w 2 10.0.0.2").status.success()
}

/// Twice, with one queue and with two, a device is deleted and made again.
///
/// Lost packets are counted, the counters continue, and the new device carries the traffic of the old one.
#[test]
fn an_interface_that_is_made_again_under_its_name_works_again() {
    for (driver, queues) in [("af_packet", 1), ("af_packet", 2), ("af_xdp", 1)] {
        let Some(lab) = wire() else { return };
        let forwarder = Forwarder::start(&lab, pair(driver), queues, 64);
        lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -w 120 10.0.0.2");
        for _ in 0..2 {
            lab.run("box", "ip link delete b1");
            assert!(!lab.try_run("left", "ping -q -c 2 -i 0.05 -W 1 -w 5 10.0.0.2").status.success());
            make_again(&lab);
            // Both directions, through sockets that did not exist when the forwarder began.
            eventually("an answer through the new device", || answers(&lab));
            lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -w 120 10.0.0.2");
        }
        let before = forwarder.turns();
        eventually("the forwarder's next turn", || forwarder.turns() > before);
        let outcome = forwarder.finish();
        outcome.check();
        assert_eq!(outcome.links, [Link::Up, Link::Up], "{driver}");
        assert_eq!(outcome.returned, [0, 2], "{driver}");
        assert!(outcome.totals.drops.of(DropReason::LinkDown).packets > 0, "{driver}: {outcome:?}");
        assert!(outcome.totals.sent.packets >= 18, "{driver}: {outcome:?}");
    }
}

/// An interface of the port's name that is not a TAP device is not touched; a TAP device is taken.
#[test]
fn a_tap_that_is_made_again_under_its_name_is_taken() {
    let Some(lab) = Lab::new(&["left", "right"]) else { return };
    let places = [("left", 1), ("right", 2)].map(|(role, number)| {
        (role, format!("driver = \"tap\"\ndevice = \"t0\"\naddress = \"10.0.0.{number}/24\""))
    });
    let forwarder = Forwarder::start(&lab, places, 1, 128);
    lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -w 120 10.0.0.2");
    lab.run("right", "ip link delete t0");
    lab.run("right", "ip link add t0 type veth peer name t1");
    assert!(!lab.try_run("left", "ping -q -c 3 -i 0.05 -W 1 -w 5 10.0.0.2").status.success());
    assert!(lab.run("right", "ip -d link show t0").contains("veth"));
    lab.run("right", "ip link delete t0");
    lab.run("right", "ip tuntap add dev t0 mode tap multi_queue vnet_hdr");
    lab.run("left", "ip neigh flush dev t0");
    eventually("an answer through the new device", || answers(&lab));
    // The kernel checks carriers once a second, and packets pass before that.
    eventually("a device that is said to run", || {
        !lab.run("right", "ip link show t0").contains("state DOWN")
    });
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!((outcome.links, outcome.returned), (vec![Link::Up, Link::Up], vec![0, 1]));
}

#[test]
fn an_interface_that_was_switched_off_works_again() {
    for driver in ["af_packet", "af_xdp"] {
        let Some(lab) = wire() else { return };
        let forwarder = Forwarder::start(&lab, pair(driver), 1, 64);
        lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -w 120 10.0.0.2");
        lab.run("box", "ip link set b1 down");
        assert!(!lab.try_run("left", "ping -q -c 2 -i 0.05 -W 1 -w 5 10.0.0.2").status.success());
        lab.run("box", "ip link set b1 up");
        // With -w, ping goes on until an answer comes: neighbours may have to be found again.
        lab.run("left", "ping -q -c 1 -i 0.2 -w 120 10.0.0.2");
        let outcome = forwarder.finish();
        outcome.check();
        assert_eq!(outcome.links, [Link::Up, Link::Up], "{driver}");
    }
}

#[test]
fn packets_without_a_frame_to_fit_are_counted() {
    let Some(lab) = quiet() else { return };
    for (role, device) in [("left", "l0"), ("right", "r0"), ("box", "b0"), ("box", "b1")] {
        lab.run(role, &format!("ip link set {device} mtu 9000"));
    }
    // No large frames.
    let forwarder = Forwarder::start(&lab, pair("af_packet"), 1, 0);
    flood(&lab, 1, b"small");
    flood(&lab, 20, &[0; 8000]);
    eventually("the arrival of all packets", || seen(&forwarder.counters()[0]) >= 21);
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!(outcome.totals.drops.of(DropReason::TooBig).packets, 20, "{outcome:?}");
    assert_eq!(outcome.totals.sent.packets, 1, "{outcome:?}");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("large_frames")), "{outcome:?}");
}

/// A worker must not sleep on a socket whose frames are all elsewhere.
///
/// It would sleep for ever, because frames return without waking it.
#[test]
fn an_af_xdp_queue_that_has_no_frames_is_not_watched() {
    let Some(lab) = wire() else { return };
    lab.run("left", "ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev l0");
    let pool = Pool::builder().frames(256).for_device(true).build().unwrap();
    let opened = lab.inside("box", {
        let pool = pool.clone();
        move || open("port", "driver = \"af_xdp\"\ndevice = \"b0\"", &pool, 1).unwrap()
    });
    let mut port = opened.join().unwrap();
    let mut queue = port.take_receive(0).unwrap();
    let watched = |queue: &dyn ReceiveQueue| {
        let mut count = 0;
        queue.descriptors(&mut |_| count += 1);
        count
    };
    assert!(watched(queue.as_ref()) > 0);
    // All frames that the kernel does not have, and the arrivals in those that it has.
    let mut held: Vec<_> = std::iter::from_fn(|| pool.empty(0)).collect();
    assert!(held.len() < 256);
    let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
    eventually("the end of the kernel's frames", || {
        let sending = lab.inside("left", || {
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            (0..8).for_each(|_| drop(socket.send_to(b"one more", "10.0.0.2:9")));
        });
        sending.join().unwrap();
        queue.receive(&mut batch, &mut cx);
        held.extend(batch.drain());
        watched(queue.as_ref()) == 0
    });
    assert_eq!(held.len(), 256);
    drop(held);
    queue.receive(&mut batch, &mut cx);
    assert!(watched(queue.as_ref()) > 0);
}

/// The veth itself may drop a packet before it arrives at the interface. Of those that arrived, all are
/// counted.
#[test]
fn a_flood_is_counted_to_the_last_packet() {
    const PACKETS: u64 = 20_000;
    for driver in ["af_packet", "af_xdp"] {
        let Some(lab) = quiet() else { return };
        let forwarder = Forwarder::start(&lab, pair(driver), 1, 64);
        flood(&lab, PACKETS, b"flood");
        eventually("the counting of all that arrived", || {
            seen(&forwarder.counters()[0]) == arrived(&lab, "b0")
        });
        let outcome = forwarder.finish();
        outcome.check();
        let arrived = ["b0", "b1"].map(|device| arrived(&lab, device));
        let seen: Vec<u64> = outcome.counters.iter().map(|queue| seen(queue)).collect();
        assert_eq!(seen, arrived, "{driver}: {outcome:?}");
        assert!(outcome.totals.received.packets > 0 && arrived[0] <= PACKETS, "{driver}: {outcome:?}");
        assert_eq!(arrived[1], 0, "{driver}: no answer comes");
    }
}

/// While no queue takes the arrivals, a ring fills up and the kernel drops the rest.
#[test]
fn packets_that_a_full_ring_did_not_take_count_as_missed() {
    for text in
        ["driver = \"af_packet\"\nring = \"256 KiB\"\nblock = \"128 KiB\"", "driver = \"af_xdp\"\nring = 64"]
    {
        let Some(lab) = quiet() else { return };
        let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
        let opened = lab.inside("box", {
            let pool = pool.clone();
            move || open("port", &format!("{text}\ndevice = \"b0\""), &pool, 1).unwrap()
        });
        let mut port = opened.join().unwrap();
        let mut queue = port.take_receive(0).unwrap();
        let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
        let mut missed = 0;
        // A few packets at last: the ring continues when there is room again.
        for packets in [5_000, 10] {
            flood(&lab, packets, b"flood");
            let mut came = 0;
            eventually("the counting of all that arrived", || {
                queue.receive(&mut batch, &mut cx);
                came += batch.len();
                batch.clear();
                seen(&port.counters()[0]) == arrived(&lab, "b0")
            });
            assert!(came > 0, "{text}");
            let before = std::mem::replace(&mut missed, port.counters()[0].missed.load(Ordering::Relaxed));
            assert_eq!(missed > before, packets == 5_000, "{text}: {missed} missed, {before} before");
        }
    }
}

#[test]
fn a_missing_interface_is_named_with_its_nearest() {
    let Some(lab) = wire() else { return };
    for driver in ["af_packet", "af_xdp"] {
        let name = lab.name("box");
        let text = format!("driver = \"{driver}\"\ndevice = \"bo\"");
        let error = lab
            .inside("box", move || {
                enter(&name);
                let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
                open("lan", &text, &pool, 1).err().unwrap().to_string()
            })
            .join()
            .unwrap();
        assert!(
            error.starts_with("port `lan`: there is no network interface `bo`; did you mean `"),
            "{error}"
        );
    }
}

#[test]
fn a_pool_that_a_device_cannot_divide_is_refused() {
    let Some(lab) = wire() else { return };
    let name = lab.name("box");
    let error = lab
        .inside("box", move || {
            enter(&name);
            let pool = Pool::builder().frames(1024).build().unwrap();
            if pool.pages() == Pages::Huge {
                return None;
            }
            let error = open("lan", "driver = \"af_xdp\"\ndevice = \"b0\"", &pool, 1).err().unwrap();
            assert_eq!(pool.available(), pool.capacity());
            Some(error.to_string())
        })
        .join()
        .unwrap();
    let Some(error) = error else {
        eprintln!("skipped: on huge pages a device takes frames at any distance");
        return;
    };
    assert!(error.contains("build it with `for_device(true)`"), "{error}");
}

#[test]
fn the_hosts_own_stack_is_warned_of() {
    let Some(lab) = wire() else { return };
    lab.run("box", "ip address add 10.0.0.77/24 dev b0");
    lab.run("box", "sysctl -qw net.ipv4.conf.b1.forwarding=1");
    let outcome = Forwarder::start(&lab, pair("af_packet"), 1, 64).finish();
    let warnings = outcome.warnings.join("\n");
    for part in ["10.0.0.77", "ip address flush dev b0", "net.ipv4.conf.b1.forwarding=0"] {
        assert!(warnings.contains(part), "{warnings}");
    }
}

#[test]
fn without_permission_the_capability_is_named_and_nothing_is_left() {
    let Some(lab) = wire() else { return };
    // Without capabilities, but still root to the file system, so that the child can be run from any build
    // folder. The child enters the namespace first, which needs a capability.
    for (driver, device, capability) in [
        ("af_packet", "b0", "CAP_NET_RAW"),
        ("af_xdp", "b0", "CAP_NET_RAW"),
        ("af_xdp\"\npromiscuous = false\nmode = \"copy", "b0", "CAP_BPF"),
        ("tap", "t0", "CAP_NET_ADMIN"),
    ] {
        let ports = format!("driver = \"{driver}\"\ndevice = \"{device}\"");
        let namespace = lab.name("box");
        let wrapper = [
            "ip",
            "netns",
            "exec",
            &namespace,
            "setpriv",
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--no-new-privs",
        ];
        let (mut child, said, output) = start(&lab, "here", &ports, &wrapper);
        assert_eq!(output.filter(|line| line.starts_with("ready")).count(), 0);
        child.wait().unwrap();
        assert!(said.starts_with("error") && said.contains(capability), "{driver}: {said}");
        assert!(said.contains("setcap"), "{said}");
    }
    assert!(!lab.run("box", "ip -d link show b0").contains("xdp"));
    assert!(lab.run("box", "ip -d link show b0").contains("promiscuity 0"));
    assert!(!lab.try_run("box", "ip link show t0").status.success());
}
