//! Devices without a link header: a real TUN, whose packets begin with IP.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use netbricks_buffer::Pool;
use netbricks_core::DropReason;

use super::fixture::{Forwarder, Lab, open};
use super::forwarding::{AF_PACKET, between, transfer};

/// Makes a TUN device in each of two namespaces and carries packets from one to the other.
const RELAY: &str = "
import ctypes, fcntl, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
files = []
for namespace, name in ((sys.argv[1], sys.argv[2]), (sys.argv[3], sys.argv[4])):
    with open('/var/run/netns/' + namespace) as there:
        if libc.setns(there.fileno(), 0) != 0:
            sys.exit('setns')
    tun = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1001))
    files.append(tun)
print('ready', flush=True)
while True:
    for ready in select.select(files, [], [])[0]:
        other = files[1 - files.index(ready)]
        try:
            os.write(other, os.read(ready, 70000))
        except OSError:
            pass
";

/// A process that ends with the test.
struct Relay(Child);

impl std::ops::Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None`, with a printed line, if there is no Python.
fn relay(lab: &Lab, (role, device): (&str, &str), (other_role, other): (&str, &str)) -> Option<Relay> {
    let relay = Command::new("python3")
        .args(["-c", RELAY, &lab.name(role), device, &lab.name(other_role), other])
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut relay) = relay else {
        let _ = writeln!(std::io::stderr(), "skipped: needs python3");
        return None;
    };
    let mut line = String::new();
    BufReader::new(relay.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for (role, device) in [(role, device), (other_role, other)] {
        lab.run(role, &format!("ip link set {device} up"));
    }
    Some(Relay(relay))
}

/// `left` – t0 ═ n0 – box – n1 ═ t1 – `right`. None of the devices has a MAC address.
#[test]
fn af_packet_carries_ip_between_tun_devices() {
    let Some(lab) = Lab::new(&["left", "box", "right"]) else { return };
    let Some(_left) = relay(&lab, ("left", "t0"), ("box", "n0")) else { return };
    let Some(_right) = relay(&lab, ("right", "t1"), ("box", "n1")) else { return };
    for (role, device, number, other) in [("left", "t0", 1, 2), ("right", "t1", 2, 1)] {
        lab.run(role, &format!("ip address add 10.0.0.{number} peer 10.0.0.{other} dev {device}"));
        lab.run(role, &format!("ip address add fd00::{number} peer fd00::{other} dev {device} nodad"));
    }
    let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["n0", "n1"], ""), 1, 64);
    for address in ["10.0.0.2", "fd00::2"] {
        lab.run("left", &format!("ping -q -c 5 -i 0.05 -W 5 {address}"));
    }
    transfer(&lab, 4 << 20);
    let outcome = forwarder.finish();
    outcome.check();
    // The process behind a TUN device may be late on a busy machine, and TCP then sends again.
    let drops = outcome.totals.drops.iter();
    let other = drops.filter(|(reason, _)| *reason != netbricks_core::DropReason::TransmitFull);
    assert_eq!(other.map(|(_, count)| count.packets).sum::<u64>(), 0, "{outcome:?}");
    assert!(outcome.totals.received.bytes > 8 << 20, "{outcome:?}");
}

/// A packet that is not IP cannot be sent on such a device, and is counted.
#[test]
fn arp_does_not_leave_by_a_tun() {
    let Some(lab) = Lab::new(&["left", "box", "right"]) else { return };
    let Some(_relay) = relay(&lab, ("right", "t1"), ("box", "n1")) else { return };
    lab.veth(("box", "n0"), ("left", "l0"));
    lab.run("left", "ip address add 10.0.0.1/24 dev l0");
    let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["n0", "n1"], ""), 1, 64);
    assert!(!lab.try_run("left", "ping -q -c 1 -W 1 10.0.0.2").status.success());
    let outcome = forwarder.finish();
    outcome.check();
    assert!(outcome.totals.drops.of(DropReason::Unmatched).packets > 0, "{outcome:?}");
}

/// Drivers that need Ethernet headers refuse the device and do not read IP as Ethernet.
#[test]
fn other_drivers_refuse_a_tun() {
    let Some(lab) = Lab::new(&["left", "box"]) else { return };
    let Some(_relay) = relay(&lab, ("left", "t0"), ("box", "n0")) else { return };
    let said = lab.inside("box", || {
        let pool = Pool::builder().frames(1024).for_device(true).build().unwrap();
        let refused = |driver: &str| {
            open("lan", &format!("driver = \"{driver}\"\ndevice = \"n0\""), &pool, 1)
                .err()
                .unwrap()
                .to_string()
        };
        ["af_xdp", "tap"].map(refused)
    });
    for said in said.join().unwrap() {
        assert!(said.contains("no Ethernet header") && said.contains("af_packet"), "{said}");
    }
}
