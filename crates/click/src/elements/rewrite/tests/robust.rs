//! Batches are as single packets, and no packet is too odd.

use proptest::prelude::*;

use super::*;

const CLASSES: [&str; 6] =
    ["IPRewriter", "TCPRewriter", "UDPRewriter", "IPAddrRewriter", "IPAddrPairRewriter", "ICMPPingRewriter"];

fn pattern(class: &str) -> &'static str {
    if class.starts_with("IPAddr") {
        "pattern 1.0.0.1-1.0.0.9# - 0 1, pass 1, MAPPING_CAPACITY 6, GUARANTEE 0"
    } else {
        "pattern 1.0.0.1 1024-1034# - - 0 1, pass 1, MAPPING_CAPACITY 6, GUARANTEE 0"
    }
}

/// A packet of one of few flows.
fn some_packet() -> impl Strategy<Value = Vec<u8>> {
    (0..4_u8, 0..6_u8, 0..4_u16, 0..3_u8, any::<bool>(), any::<u8>()).prop_map(
        |(kind, host, port, server, out, flags)| {
            let inside = ([10, 0, 0, host], 20 + port);
            let outside = (OUTSIDE, 1024 + port + u16::from(host));
            let server = ([20, 0, 0, server], 80);
            let (from, to) = if out { (inside, server) } else { (server, outside) };
            match kind {
                0 => udp(from, to, b"data"),
                1 => tcp(from, to, flags, [1, 2], &[], b"data"),
                2 => echo(from.0, to.0, out, from.1.max(to.1)),
                _ => ip(50, from.0, to.0, b"data"),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn batches_are_as_single_packets(
        class in prop::sample::select(&CLASSES[..]),
        packets in prop::collection::vec((some_packet(), 0..2_usize), 1..120),
    ) {
        let declaration = format!("{class}({})", pattern(class));
        let (single, batches) = (rig(&declaration, 2, 2, ""), rig(&declaration, 2, 2, ""));
        let mut rest = &packets[..];
        while let Some((_, input)) = rest.first() {
            let count = rest.iter().take_while(|(_, other)| other == input).count().max(1);
            let (run, others) = rest.split_at(count);
            for (bytes, input) in run {
                single.push(*input, bytes);
            }
            let run: Vec<Vec<u8>> = run.iter().map(|(bytes, _)| bytes.clone()).collect();
            batches.push_all(*input, &run);
            rest = others;
        }
        for output in 0..2 {
            prop_assert_eq!(single.take(output), batches.take(output));
        }
        for handler in ["rw.table", "rw.tcp_table", "rw.udp_table", "rw.patterns", "rw.mapping_failures"] {
            prop_assert_eq!(single.read(handler), batches.read(handler));
        }
    }

    #[test]
    fn odd_packets_do_no_harm(
        class in prop::sample::select(&CLASSES[..]),
        packets in prop::collection::vec(
            (some_packet(), prop::collection::vec((0..60_usize, any::<u8>()), 0..4), 0..80_usize, any::<bool>()),
            1..40,
        ),
    ) {
        let others = "f :: FTPPortMapper(t, t, 0); Idle -> f -> t :: TCPRewriter(pattern 1.0.0.1 5-9 - - 0 0) -> Idle;
            i :: ICMPRewriter(rw t); Idle -> i -> Idle";
        let rig = rig(&format!("{class}({})", pattern(class)), 2, 2, others);
        let router = rig.run.router.clone().expect("built");
        for (mut bytes, changes, length, command) in packets {
            if command {
                bytes.extend(b"PORT 1,2,3,4,5,6\r\n");
            }
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            let about = error(SERVER, OUTSIDE, &bytes);
            rig.push(0, &bytes);
            rig.push_all(1, &[bytes.clone(), about.clone()]);
            for name in ["f", "i"] {
                let id = router.exactly(name).expect("it is there");
                for bytes in [&bytes, &about] {
                    router.element(id).push(router.at(id), 0, rig.packet(bytes));
                }
            }
        }
    }
}
