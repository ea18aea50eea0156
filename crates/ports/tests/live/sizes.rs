//! Segments of sizes and kinds that a buffer, or a virtio-net header, cannot hold unchanged.

use std::sync::atomic::Ordering;

use netbricks_core::DropReason;

use super::fixture::{Forwarder, Lab, Outcome};
use super::forwarding::{AF_PACKET, between, transfer, transfer_to, wire};

/// Checks that no packet was lost. Whole packets may have become segments.
fn finish(forwarder: Forwarder) -> Outcome {
    let outcome = forwarder.finish();
    outcome.check();
    let (all, cut) =
        (outcome.totals.drops.total().packets, outcome.totals.drops.of(DropReason::Segmented).packets);
    assert_eq!(all, cut, "{outcome:?}");
    outcome
}

/// The mean number of bytes of the arrivals.
fn mean(outcome: &Outcome) -> u64 {
    outcome.totals.received.bytes / outcome.totals.received.packets
}

#[test]
fn without_large_buffers_segments_are_cut_on_arrival() {
    let Some(lab) = wire() else { return };
    let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["b0", "b1"], ""), 1, 0);
    transfer(&lab, 8 << 20);
    transfer_to(&lab, "fd00::2", 8 << 20);
    let outcome = finish(forwarder);
    assert!(outcome.totals.received.bytes > 32 << 20, "{outcome:?}");
    assert_eq!(
        outcome.warnings.iter().filter(|text| text.contains("large_frames")).count(),
        2,
        "{outcome:?}"
    );
}

/// BIG TCP over IPv6: `gso_max_size` beyond 64 KiB, whose packets have a jumbo payload option or no length.
#[test]
fn big_tcp_arrives_as_packets_of_64_kib() {
    let Some(lab) = wire() else { return };
    for (role, device) in [("left", "l0"), ("box", "b0"), ("box", "b1"), ("right", "r0")] {
        lab.run(role, &format!("ip link set {device} gso_max_size 200000 gro_max_size 200000"));
    }
    let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["b0", "b1"], ""), 1, 512);
    transfer_to(&lab, "fd00::2", 64 << 20);
    let counters: Vec<_> = forwarder.counters().to_vec();
    let outcome = finish(forwarder);
    let too_big: u64 = counters.iter().map(|c| c.too_big_to_receive.load(Ordering::Relaxed)).sum();
    assert_eq!(too_big, 0);
    assert!(mean(&outcome) > 1_500, "{outcome:?}");
}

/// The port warns when it is opened if such a packet does not fit a block.
#[test]
fn a_block_smaller_than_big_tcp_is_warned_of() {
    let Some(lab) = wire() else { return };
    for device in ["b0", "b1"] {
        lab.run("box", &format!("ip link set {device} gso_max_size 200000"));
    }
    let warnings = |block: &str| {
        let forwarder = Forwarder::start(&lab, between(AF_PACKET, ["b0", "b1"], block), 1, 512);
        let warnings = forwarder.finish().warnings;
        warnings.into_iter().filter(|text| text.contains("BIG TCP")).collect::<Vec<_>>()
    };
    assert_eq!(warnings(""), [""; 0]);
    let small = warnings("block = \"128 KiB\"");
    assert_eq!(small.len(), 2, "{small:?}");
    assert!(small[0].contains("write `block = \"196 KiB\"`"), "{small:?}");
    assert_eq!(warnings("block = \"196 KiB\""), [""; 0]);
}

/// Two hosts with a VXLAN between them, through the box: its segments cannot be described to a device.
fn through_vxlan(lab: &Lab, ends: [&str; 2], udp: &str) {
    for (role, device, number) in [("left", "l0", 0), ("right", "r0", 1)] {
        let (local, remote) = (ends[number], ends[1 - number]);
        lab.run(
            role,
            &format!("ip link add vx0 type vxlan id 5 local {local} remote {remote} dstport 4789 dev {device} {udp}"),
        );
        lab.run(role, &format!("ip address add 10.1.0.{}/24 dev vx0", number + 1));
        lab.run(role, &format!("ip address add fd01::{}/64 dev vx0 nodad", number + 1));
        lab.run(role, "ip link set vx0 up");
    }
    let forwarder = Forwarder::start(lab, between(AF_PACKET, ["b0", "b1"], ""), 1, 512);
    transfer_to(lab, "10.1.0.2", 8 << 20);
    transfer_to(lab, "fd01::2", 8 << 20);
    let outcome = finish(forwarder);
    assert!(outcome.totals.drops.of(DropReason::Segmented).packets > 100, "segments came whole: {outcome:?}");
    for role in ["left", "right"] {
        lab.run(role, "ip link del vx0");
        // A wrong checksum, outside or inside, would be counted here.
        let counted = lab.run(role, "cat /proc/net/snmp");
        let tcp = counted.lines().filter(|line| line.starts_with("Tcp:")).collect::<Vec<_>>();
        let column = tcp[0].split(' ').position(|name| name == "InCsumErrors").unwrap();
        assert_eq!(tcp[1].split(' ').nth(column), Some("0"), "{counted}");
        let udp = counted.lines().filter(|line| line.starts_with("Udp:")).collect::<Vec<_>>();
        let column = udp[0].split(' ').position(|name| name == "InCsumErrors").unwrap();
        assert_eq!(udp[1].split(' ').nth(column), Some("0"), "{counted}");
    }
}

#[test]
fn tcp_runs_inside_a_vxlan() {
    let Some(lab) = wire() else { return };
    // Segments that are cut here are merged again at the other end, checksums first.
    for udp in ["noudpcsum", "udpcsum"] {
        through_vxlan(&lab, ["10.0.0.1", "10.0.0.2"], udp);
    }
    through_vxlan(&lab, ["fd00::1", "fd00::2"], "noudpcsum");
}
