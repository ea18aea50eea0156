//! Wire, mirror, flow monitor, load balancer, DPI and monitoring.

use netbricks_testkit::build::ethernet;

use crate::harness::{each, frame, ip, only, with};

fn udp(source: u16, destination: u16) -> Vec<u8> {
    frame(ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(source, destination).payload(b"payload"))
}

fn tcp(source: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    frame(
        ethernet()
            .ipv4("10.0.0.1", "10.0.0.2")
            .tcp(source, 80)
            .sequence(sequence)
            .flags(0x10)
            .payload(payload),
    )
}

#[test]
fn a_wire_passes_everything_both_ways() {
    each("wire.click", |wire| {
        let frames = vec![udp(1, 2), frame(ethernet().arp_request("10.0.0.1", "10.0.0.2")), vec![0; 14]];
        assert_eq!(wire.send(0, frames.clone()), [vec![], frames.clone()]);
        assert_eq!(wire.send(1, frames.clone()), [frames, vec![]]);
        assert_eq!([wire.read("up.count"), wire.read("down.count")], ["3", "3"]);
        assert_eq!(wire.ended(), 0);
    });
}

#[test]
fn a_mirror_swaps_ethernet_addresses() {
    each("mirror.click", |mirror| {
        let sent = udp(1, 2);
        let [back, _] = mirror.send(0, [sent.clone()]);
        let swapped = [&sent[6..12], &sent[..6], &sent[12..]].concat();
        assert_eq!(only(&back), swapped);
        assert_eq!(mirror.read("in.count"), "1");
    });
}

#[test]
fn a_flow_monitor_keeps_a_line_for_each_flow() {
    with("flow-monitor.click", &["FLOWS=3"], |monitor| {
        let arp = frame(ethernet().arp_request("10.0.0.1", "10.0.0.2"));
        let frames = vec![udp(1, 53), udp(1, 53), tcp(9, 0, b"x"), udp(2, 53), arp, udp(3, 53), udp(1, 53)];
        assert_eq!(monitor.send(0, frames.clone()), [vec![], frames]);
        assert_eq!(
            monitor.read("up.table"),
            "10.0.0.1 1 10.0.0.2 53 17 3 105\n10.0.0.1 9 10.0.0.2 80 6 1 41\n10.0.0.1 2 10.0.0.2 53 17 1 35\n"
        );
        let counts = ["up.flows", "up.count", "up.byte_count", "up.missed", "up.strangers", "down.flows"];
        assert_eq!(counts.map(|name| monitor.read(name)), ["3", "6", "216", "1", "1", "0"]);
        monitor.advance(std::time::Duration::from_secs(310));
        // The box's clock moves with its packets.
        monitor.send(0, [udp(4, 53)]);
        assert_eq!(monitor.read("up.table"), "10.0.0.1 4 10.0.0.2 53 17 1 35\n");
        monitor.call("up.reset", "x");
        assert_eq!(monitor.read("up.count"), "0");
    });
}

#[test]
fn a_load_balancer_keeps_flows_on_their_path() {
    const PATHS: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
    each("load-balancer.click", |balancer| {
        let mut used = [0; 2];
        for port in 1000..1100 {
            let [_, out] = balancer.send(0, [tcp(port, 0, b"a"), tcp(port, 1, b"bc"), udp(port, 80)]);
            let sources: Vec<&[u8]> = out.iter().map(|frame| &frame[6..12]).collect();
            let path = PATHS.iter().position(|path| sources[0] == path).expect("a path");
            used[path] += 1;
            // The same flow keeps its path; UDP with the same ports is another flow and takes the other one.
            assert_eq!(sources, [PATHS[path], PATHS[path], PATHS[1 - path]]);
            assert!(out.iter().all(|frame| frame[..6] == [2, 0, 0, 0, 0, 0xFE]));
            assert_eq!(out[1][14..], tcp(port, 1, b"bc")[14..]);
        }
        assert!(used.iter().all(|used| *used > 30), "flows are spread: {used:?}");
        // All fragments of a packet take one path.
        let fragment = |offset, more| {
            let packet = ethernet().ipv4("10.0.0.9", "10.0.0.2").fragment(offset, more).protocol(17);
            frame(packet.payload(&[offset as u8; 16]))
        };
        let [_, out] = balancer.send(0, [fragment(0, true), fragment(2, true), fragment(4, false)]);
        assert!(out.iter().all(|frame| frame[6..12] == out[0][6..12]), "{out:02x?}");
        let counts = ["path0/sent.count", "path1/sent.count", "spare.count"].map(|name| balancer.read(name));
        assert_eq!(counts[0].parse::<u32>().unwrap() + counts[1].parse::<u32>().unwrap(), 303);
        assert_eq!(counts[2], "0");
        assert_eq!(balancer.send(1, [udp(1, 2)]), [vec![udp(1, 2)], vec![]]);
    });
    with("load-balancer.click", &["CAPACITY=100"], |balancer| {
        let [_, out] = balancer.send(0, vec![tcp(1, 0, b""); 200]);
        let spare = out.iter().filter(|frame| frame[6..12] == PATHS[2]).count();
        assert_eq!((out.len(), spare.to_string()), (200, balancer.read("spare.count")));
        assert!((50..200).contains(&spare), "what a path cannot take goes by the spare one: {spare}");
    });
}

#[test]
fn deep_inspection_marks_applications() {
    each("dpi.click", |dpi| {
        let torrent = b"\x13BitTorrent protocol";
        let payloads: [&[u8]; 6] =
            [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"SSH-2.0-x", torrent, b"GE", b""];
        let frames: Vec<_> =
            payloads.iter().map(|payload| tcp(9, 0, payload)).chain([udp(9, 53), udp(9, 54)]).collect();
        let arp = frame(ethernet().arp_request("10.0.0.1", "10.0.0.2"));
        let [_, out] = dpi.send(0, frames.iter().cloned().chain([arp.clone()]));
        assert_eq!((out.len(), out.contains(&arp)), (9, true));
        let class = |sent: &[u8]| {
            // The bytes behind the header are the same.
            let mut same = out.iter().filter(|out| out[34..] == sent[34..] && out[12] == 8 && out[13] == 0);
            let found = ip(same.next().expect("it passes"));
            assert_eq!((found.source.as_str(), found.ttl), ("10.0.0.1", 64));
            found.tos >> 2
        };
        let classes: Vec<u8> = frames.iter().map(|frame| class(frame)).collect();
        assert_eq!(classes, [10, 18, 26, 8, 0, 0, 46, 0]);
        let counts = ["web", "tls", "ssh", "torrent", "dns", "other"]
            .map(|name| dpi.read(&format!("up/{name}.count")));
        assert_eq!(counts, ["1", "1", "1", "1", "1", "3"]);
        let [out, _] = dpi.send(1, [tcp(9, 0, b"HTTP/1.1 200 OK")]);
        assert_eq!((ip(only(&out)).tos >> 2, dpi.read("down/web.count")), (10, "1".into()));
    });
}

#[test]
fn monitoring_measures_rates_and_follows_streams() {
    each("monitor.click", |monitor| {
        let parts = [tcp(9, 100, b"one"), tcp(9, 106, b"three"), tcp(9, 103, b"two"), tcp(9, 103, b"two")];
        let [_, out] = monitor.send(0, parts.clone());
        assert_eq!(out, parts, "packets pass in the order in which they came");
        // Each byte of the stream once: 11 bytes in 3 packets with headers of 40 bytes.
        let counts = ["stream.count", "stream.byte_count", "tcp.duplicates", "tcp.flows", "late.count"];
        assert_eq!(counts.map(|name| monitor.read(name)), ["3", "131", "1", "1", "0"]);
        for _ in 0..50 {
            let [out, _] = monitor.send(1, vec![udp(1, 2); 20]);
            assert_eq!(out.len(), 20);
            monitor.advance(std::time::Duration::from_millis(10));
        }
        let rates = monitor.read("rates.look");
        let rate = |prefix: &str| {
            let line = rates.lines().find(|line| line.trim_start().starts_with(prefix)).unwrap_or_default();
            line.split('\t').filter_map(|word| word.parse::<f64>().ok()).fold(0.0, f64::max)
        };
        // 2000 packets of 35 bytes a second.
        assert!((35_000.0..100_000.0).contains(&rate("10.0.0.2")), "{rates}");
    });
}
