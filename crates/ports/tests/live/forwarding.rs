//! Real traffic through two ports with a wire between them: ping, TCP and UDP.
//!
//! The traffic comes from the host's own stacks at both ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use netbricks_buffer::{Batch, Pool};
use netbricks_core::DetachedContext;

use super::fixture::{Forwarder, Lab, Outcome, eventually, open};

pub(crate) const AF_PACKET: &str = "driver = \"af_packet\"";
const AF_XDP: &str = "driver = \"af_xdp\"";

/// `left` – l0 ═ b0 – box – b1 ═ r0 – `right`, with addresses at both ends.
pub(crate) fn wire() -> Option<Lab> {
    let lab = Lab::new(&["left", "box", "right"])?;
    lab.veth(("box", "b0"), ("left", "l0"));
    lab.veth(("box", "b1"), ("right", "r0"));
    address(&lab, "l0", "r0");
    Some(lab)
}

fn address(lab: &Lab, left: &str, right: &str) {
    for (role, device, number) in [("left", left, 1), ("right", right, 2)] {
        lab.run(role, &format!("ip address add 10.0.0.{number}/24 dev {device}"));
        lab.run(role, &format!("ip address add fd00::{number}/64 dev {device} nodad"));
    }
}

pub(crate) fn between(driver: &str, devices: [&str; 2], more: &str) -> [super::fixture::Place; 2] {
    devices.map(|device| ("box", format!("{driver}\ndevice = \"{device}\"\n{more}")))
}

pub(crate) fn ping(lab: &Lab) {
    lab.run("left", "ping -q -c 5 -i 0.05 -W 60 10.0.0.2");
    lab.run("right", "ping -q -c 5 -i 0.05 -W 60 fd00::1");
    // Fragments, and packets as long as the link allows.
    lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -s 1472 10.0.0.2");
    lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -s 4000 10.0.0.2");
}

/// Sends `len` bytes over TCP from left to right and back, and compares them.
pub(crate) fn transfer(lab: &Lab, len: usize) {
    transfer_to(lab, "10.0.0.2", len);
}

/// As [`transfer`], to this address of the right namespace.
pub(crate) fn transfer_to(lab: &Lab, address: &'static str, len: usize) {
    // Any port: for a moment, a command that another test starts also has the last listener.
    let listening = lab.inside("right", || TcpListener::bind("[::]:0").unwrap());
    let listener = listening.join().unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = vec![0; len];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let client = lab.inside("left", move || {
        let data: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut stream = TcpStream::connect((address, port)).unwrap();
        let sent = data.clone();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        let mut back = vec![0; len];
        stream.read_exact(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == data, "what came back is not what was sent");
    });
    client.join().unwrap();
    server.join().unwrap();
}

fn finish(forwarder: Forwarder) -> Outcome {
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!(outcome.totals.drops.total().packets, 0, "{outcome:?}");
    outcome
}

#[test]
fn af_packet_carries_streams_with_the_hosts_offloads_on() {
    let Some(lab) = wire() else { return };
    let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["b0", "b1"], ""), 1, 512);
    ping(&lab);
    transfer(&lab, 20 << 20);
    let outcome = finish(forwarder);
    // 40 MB in fewer packets than 1,500 bytes each would need: large packets passed uncut.
    let packets = outcome.totals.sent.packets;
    assert!(packets < (40 << 20) / 1448 && outcome.totals.sent.bytes > 40 << 20, "{outcome:?}");
}

/// Frames with no, one and two tags, of different lengths.
fn tagged_frames() -> Vec<Vec<u8>> {
    let tags: [&[u8]; 4] = [
        &[],
        &[0x81, 0x00, 0x60, 0x64],
        &[0x88, 0xa8, 0x00, 0x0a],
        &[0x88, 0xa8, 0x30, 0x0a, 0x81, 0x00, 0xf0, 0x14],
    ];
    let mut frames = Vec::new();
    for tags in tags {
        for len in [46, 300, 1492] {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            frame.extend_from_slice(tags);
            // An EtherType for local experiments, which no host's stack reads.
            frame.extend_from_slice(&[0x88, 0xb5]);
            frame.extend((0..len).map(|byte| byte as u8));
            frames.push(frame);
        }
    }
    frames
}

#[test]
fn tags_come_out_as_they_went_in() {
    for driver in [AF_PACKET, AF_XDP] {
        let Some(lab) = wire() else { return };
        for (role, device) in [("left", "l0"), ("right", "r0")] {
            // Only the test's own frames.
            lab.run(role, &format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        }
        let forwarder = Forwarder::start(&lab, between(driver, ["b0", "b1"], ""), 1, 64);
        let (ready, opened) = std::sync::mpsc::channel();
        // The far end is a port too: a tag that is lost on the wire or at this end makes the bytes differ.
        let receiving = lab.inside("right", move || {
            let pool = Pool::builder().frames(512).for_device(true).build().unwrap();
            let mut port = open("right", "driver = \"af_packet\"\ndevice = \"r0\"", &pool, 1).unwrap();
            let mut queue = port.take_receive(0).unwrap();
            let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
            ready.send(()).unwrap();
            let mut found: Vec<Vec<u8>> = Vec::new();
            let wanted = tagged_frames();
            eventually("all frames' arrival", || {
                queue.receive(&mut batch, &mut cx);
                found.extend(batch.iter().map(|packet| packet.data().to_vec()));
                found.retain(|frame| wanted.contains(frame) || frame[0] == 2);
                batch.clear();
                found.len() >= wanted.len()
            });
            found
        });
        opened.recv().unwrap();
        lab.inside("left", || {
            let pool = Pool::builder().frames(512).for_device(true).build().unwrap();
            let mut port = open("left", "driver = \"af_packet\"\ndevice = \"l0\"", &pool, 1).unwrap();
            let mut queue = port.take_transmit(0).unwrap();
            let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
            for frame in tagged_frames() {
                batch.push(pool.packet(&frame).unwrap()).unwrap();
            }
            queue.transmit(&mut batch, &mut cx);
            assert_eq!(batch.len(), 0);
        })
        .join()
        .unwrap();
        assert!(receiving.join().unwrap() == tagged_frames(), "{driver}");
        forwarder.finish().check();
    }
}

#[test]
fn af_xdp_carries_streams_with_the_far_ends_offloads_off() {
    let Some(lab) = wire() else { return };
    let forwarder = Forwarder::start(&lab, between(AF_XDP, ["b0", "b1"], ""), 1, 64);
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("right", "ethtool -K r0 tx off");
    ping(&lab);
    transfer(&lab, 10 << 20);
    let outcome = finish(forwarder);
    assert!(outcome.warnings.iter().any(|warning| warning.contains("ethtool -K")), "{outcome:?}");
}

#[test]
fn af_xdp_works_behind_the_driver_and_in_copy_mode_too() {
    let Some(lab) = wire() else { return };
    let more = "attach = \"generic\"\nmode = \"copy\"\nring = 256\nbusy_poll = \"20 us\"";
    let forwarder = Forwarder::start(&lab, between(AF_XDP, ["b0", "b1"], more), 1, 64);
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("right", "ethtool -K r0 tx off");
    ping(&lab);
    transfer(&lab, 1 << 20);
    finish(forwarder);
}

#[test]
fn af_xdp_puts_jumbo_packets_together_and_takes_them_apart() {
    let Some(lab) = wire() else { return };
    for (role, device) in [("left", "l0"), ("right", "r0"), ("box", "b0"), ("box", "b1")] {
        lab.run(role, &format!("ip link set {device} mtu 9000"));
    }
    let forwarder = Forwarder::start(&lab, between(AF_XDP, ["b0", "b1"], ""), 1, 64);
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("right", "ethtool -K r0 tx off");
    let said = lab.run("left", "ping -q -c 5 -i 0.05 -w 60 -M do -s 8972 10.0.0.2");
    let outcome = finish(forwarder);
    let linearised: u64 = outcome.counters.iter().map(|c| c.linearised.load(Ordering::Relaxed)).sum();
    // Where an answer is late, a further ping leaves, whose answer may come after the end.
    let count = |end: &str| -> u64 {
        let before = said.split(end).next().and_then(|text| text.split_whitespace().last());
        before.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let (sent, received) = (count(" packets transmitted"), count(" received"));
    assert!(received >= 5 && (2 * received..=2 * sent).contains(&linearised), "{said}{outcome:?}");
}

#[test]
fn af_xdp_leaves_to_the_kernel_what_it_is_told_to() {
    let Some(lab) = Lab::new(&["left", "box"]) else { return };
    lab.veth(("box", "b0"), ("left", "l0"));
    lab.veth(("box", "b1"), ("box", "b2"));
    lab.run("left", "ip address add 10.0.0.1/24 dev l0");
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("box", "ip address add 10.0.0.9/24 dev b0");
    let mut places = between(AF_XDP, ["b0", "b1"], "");
    places[0].1.push_str("kernel = [\"arp\", \"icmp\", \"tcp/7000\"]\n");
    let forwarder = Forwarder::start(&lab, places, 1, 64);
    // The host answers ARP, pings and connections to port 7000; port 7001 is ours, so it does not answer.
    lab.run("left", "ping -q -c 2 -i 0.05 -W 60 10.0.0.9");
    let refused = lab.inside("left", || TcpStream::connect("10.0.0.9:7000")).join().unwrap();
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let timeout = std::time::Duration::from_millis(300);
    let ours =
        lab.inside("left", move || TcpStream::connect_timeout(&"10.0.0.9:7001".parse().unwrap(), timeout));
    assert_eq!(ours.join().unwrap().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    let outcome = forwarder.finish();
    outcome.check();
    assert!(outcome.totals.received.packets > 0, "{outcome:?}");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("10.0.0.9")), "{outcome:?}");
}

#[test]
fn af_xdp_takes_only_what_it_is_told_to() {
    let Some(lab) = Lab::new(&["left", "box"]) else { return };
    lab.veth(("box", "b0"), ("left", "l0"));
    lab.veth(("box", "b1"), ("box", "b2"));
    lab.run("left", "ip address add 10.0.0.1/24 dev l0");
    lab.run("left", "ethtool -K l0 tx off");
    lab.run("box", "ip address add 10.0.0.9/24 dev b0");
    let mut places = between(AF_XDP, ["b0", "b1"], "");
    // The other interface takes all packets: without this, packets besides the test's would arrive.
    lab.run("box", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    places[0].1.push_str("only = [\"udp/53\"]\n");
    let forwarder = Forwarder::start(&lab, places, 1, 64);
    lab.run("left", "ping -q -c 2 -i 0.05 -W 60 10.0.0.9");
    lab.inside("left", || {
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        for port in [53, 54, 53, 55, 53] {
            let _ = socket.send_to(b"query", ("10.0.0.9", port));
        }
    })
    .join()
    .unwrap();
    // They arrive in order: no packet behind the last can still be taken.
    eventually("the arrival of what it takes", || {
        forwarder.counters()[0].received.load(Ordering::Relaxed) >= 3
    });
    let outcome = forwarder.finish();
    outcome.check();
    assert_eq!(outcome.totals.received.packets, 3, "{outcome:?}");
}

#[test]
fn tap_carries_streams_with_the_hosts_offloads_on() {
    let Some(lab) = Lab::new(&["left", "right"]) else { return };
    let places = ["left", "right"].map(|role| (role, "driver = \"tap\"\ndevice = \"t0\"".to_owned()));
    let forwarder = Forwarder::start(&lab, places, 1, 512);
    address(&lab, "t0", "t0");
    ping(&lab);
    transfer(&lab, 20 << 20);
    let outcome = finish(forwarder);
    let packets = outcome.totals.sent.packets;
    assert!(packets < (40 << 20) / 1448 && outcome.totals.sent.bytes > 40 << 20, "{outcome:?}");
    // The device is gone with the port.
    assert!(!lab.try_run("left", "ip link show t0").status.success());
}

#[test]
fn tap_has_queues_and_settings() {
    let Some(lab) = Lab::new(&["left", "right"]) else { return };
    let places = [("left", 1), ("right", 2)].map(|(role, number)| {
        let text = format!(
            "driver = \"tap\"\ndevice = \"t%d\"\nqueues = 3\ndevice_mtu = 9000\nmac = \"02:00:00:00:00:0{number}\"\naddress = \"10.0.0.{number}/24\"\noffload = false"
        );
        (role, text)
    });
    let forwarder = Forwarder::start(&lab, places, 3, 64);
    lab.run("right", "ip address add fd00::2/64 dev t0 nodad");
    lab.run("left", "ip address add fd00::1/64 dev t0 nodad");
    ping(&lab);
    lab.run("left", "ping -q -c 3 -i 0.05 -W 60 -M do -s 8900 10.0.0.2");
    assert!(lab.run("left", "ip link show t0").contains("02:00:00:00:00:01"));
    transfer(&lab, 1 << 20);
    finish(forwarder);
}

#[test]
fn a_tap_reaches_an_interface() {
    let Some(lab) = Lab::new(&["left", "box", "right"]) else { return };
    lab.veth(("box", "b1"), ("right", "r0"));
    let places = [
        ("left", "driver = \"tap\"\ndevice = \"t0\"".to_owned()),
        ("box", "driver = \"af_packet\"\ndevice = \"b1\"".to_owned()),
    ];
    let forwarder = Forwarder::start(&lab, places, 1, 512);
    address(&lab, "t0", "r0");
    ping(&lab);
    transfer(&lab, 5 << 20);
    finish(forwarder);
}

/// The program at the interface finds ports behind IPv4 options of any length.
#[test]
fn af_xdp_steers_by_ports_behind_ip_options() {
    let Some(lab) = wire() else { return };
    let only = "only = [\"udp/7777\"]";
    let forwarder = Forwarder::start(&lab, between(AF_XDP, ["b0", "b1"], only), 1, 64);
    lab.inside("left", || {
        let pool = Pool::builder().frames(512).build().unwrap();
        let mut port = open("left", "driver = \"af_packet\"\ndevice = \"l0\"", &pool, 1).unwrap();
        let mut queue = port.take_transmit(0).unwrap();
        let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
        for words in 0..=10_u8 {
            for port in [7777_u16, 7778] {
                let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
                let total = 20 + 4 * words + 8;
                frame.extend([0x45 + words, 0, 0, total, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
                frame.extend(std::iter::repeat_n(1, 4 * usize::from(words)));
                frame.extend([0x10, 0]);
                frame.extend(port.to_be_bytes());
                frame.extend([0, 8, 0, 0]);
                batch.push(pool.packet(&frame).unwrap()).unwrap();
            }
        }
        queue.transmit(&mut batch, &mut cx);
        assert_eq!(batch.len(), 0);
    })
    .join()
    .unwrap();
    let received = forwarder.counters()[0].clone();
    eventually("all that is ours", || received.received.load(Ordering::Relaxed) >= 11);
    let outcome = finish(forwarder);
    assert_eq!(outcome.totals.received.packets, 11, "{outcome:?}");
}
