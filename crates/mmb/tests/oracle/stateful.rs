//! Stateful rules: connections begin, answer, are quoted, expire and end as in the oracle's list.

use netbricks_mmb::language::parse_command;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

use crate::generate::{SETS, change, set};
use crate::packets::{frame, one, rarely};
use crate::stateless::Both;
use crate::verdict::Rules;

const CLIENTS: [&str; 2] = ["10.0.0.1", "10.0.0.9"];
const SERVERS: [&str; 2] = ["192.0.2.7", "203.0.113.130"];

/// A packet of one of few flows, in one of two directions.
pub(crate) fn of_flow(random: &mut Random) -> Vec<u8> {
    let (mut from, mut to) = (one(random, &CLIENTS), one(random, &SERVERS));
    let mut ports = (one(random, &[4000, 4001]), one(random, &[80, 443]));
    if rarely(random, 2) {
        (from, to) = (to, from);
        ports = (ports.1, ports.0);
    }
    let bits = one(random, &[0x02, 0x12, 0x10, 0x10, 0x18, 0x11, 0x04, 0x14]);
    // Few numbers, so that a RST often has one that its receiver takes, and often not.
    let (sequence, acknowledgment) =
        (one(random, &[0, 100, 101, 105, 110]), one(random, &[0, 101, 105, 106]));
    let (offset, identification) = (one(random, &[0, 8]), one(random, &[1, 2]));
    let v4 = || ethernet().ipv4(from, to).ttl(64);
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    let built = match random.below(12) {
        0..5 => {
            let segment = v4().tcp(ports.0, ports.1).sequence(sequence).ack(acknowledgment).flags(bits);
            segment.maximum_segment_size(1_460).payload(b"GET ").build()
        }
        5 => v6()
            .tcp(ports.0, ports.1)
            .sequence(sequence)
            .ack(acknowledgment)
            .flags(bits)
            .payload(b"x")
            .build(),
        6 => {
            let back = ethernet().ipv6("2001:db8::2", "2001:db8::1").tcp(ports.1, ports.0);
            back.sequence(sequence).ack(acknowledgment).flags(bits).build()
        }
        7..9 => v4().udp(ports.0, ports.1).payload(b"hello").build(),
        9 => match rarely(random, 2) {
            true => v4().icmp_echo_request(7, 1).payload(b"ping").build(),
            false => v4().icmp_echo_reply(7, 1).payload(b"ping").build(),
        },
        10 => {
            let udp = [ports.0.to_be_bytes(), ports.1.to_be_bytes(), 24u16.to_be_bytes(), [0; 2]].concat();
            let bytes = if offset == 0 { [&udp[..], &[1; 8]].concat() } else { vec![ports.0 as u8; 16] };
            v4().identification(identification).fragment(offset, true).protocol(17).payload(&bytes).build()
        }
        _ => return frame(random),
    };
    built.expect("a packet")
}

/// An error about a packet, from a router.
pub(crate) fn error_about(random: &mut Random, packet: &[u8]) -> Vec<u8> {
    let quote = &packet[14..packet.len().min(14 + 60)];
    let address = |at: usize| std::net::Ipv4Addr::new(quote[at], quote[at + 1], quote[at + 2], quote[at + 3]);
    let built = match quote[0] >> 4 {
        4 => {
            let ip = ethernet().ipv4("198.51.100.1", address(12));
            match rarely(random, 2) {
                true => ip.icmp_fragmentation_needed(1_200, quote).build(),
                false => ip.icmp_time_exceeded(quote).build(),
            }
        }
        _ => {
            let to = <[u8; 16]>::try_from(&quote[8..24]).expect("an address");
            ethernet()
                .ipv6("2001:db8::99", std::net::Ipv6Addr::from(to))
                .icmpv6_packet_too_big(1_280, quote)
                .build()
        }
    };
    built.expect("an error")
}

/// A change of rules, of which this is the number.
type Change = fn(&mut Random, &Rules, &[u8], u64) -> String;

/// A change of rules that ask for the 5-tuple, and seldom for more.
fn change_by_flow(random: &mut Random, rules: &Rules, is_stateful: bool) -> String {
    let count = rules.rows.len();
    if count > 0 && rarely(random, 3) {
        return match random.below(8) {
            0 => format!("policy {}", one(random, &["accept", "drop"])),
            1 if count > 1 => "move 1 after 2".to_owned(),
            _ => format!("delete {}", 1 + random.below(count)),
        };
    }
    let usual = [
        "ip-proto tcp",
        "ip-proto udp",
        "ip-saddr 10.0.0.1",
        "ip-daddr 192.0.2.0/24",
        "! ip-daddr 192.0.2.7",
        "tcp-dport 80",
        "tcp-sport 4000-4001",
        "udp-dport 443",
        "! udp-sport 4000",
        "ip-saddr @four",
        "all",
        "net-proto ip",
        "ip6-saddr 2001:db8::1",
        "! tcp-dport @ports",
    ];
    // Not all conditions can be in one rule.
    loop {
        let matches: Vec<&str> = match rarely(random, 100) {
            true => vec![one(
                random,
                &["tcp-syn", "in eth0", "ip-ttl 64", "tcp-opt-mss", "udp-payload \"hello\""],
            )],
            false => (0..1 + random.below(2)).map(|_| one(random, &usual)).collect(),
        };
        let target = match rarely(random, 12) {
            true => one(random, &["mod ip-ttl 9 accept", "lb 0", "lb 1", "drop 100", "mod ip-dscp 2"]),
            false => one(random, &["accept", "accept", "drop"]),
        };
        let command =
            one(random, &["add", "add-stateful", "add-stateful"][..if is_stateful { 3 } else { 1 }]);
        let line = format!("{command} at {} {} {target}", 1 + random.below(count + 1), matches.join(" "));
        if parse_command(&line).is_ok() {
            return line;
        }
    }
}

#[test]
fn connections_agree_with_the_oracle() {
    let (fates, most) =
        agree(5, 2, |random, rules, frame, serial| change(random, rules, frame, serial, true));
    assert!(fates.iter().all(|of| *of > 0.01) && most > 20, "every fate occurs: {fates:?}, {most}");
}

#[test]
fn connections_of_rules_that_ask_for_the_5_tuple_agree_with_the_oracle() {
    let (fates, most) = agree(6, 10, |random, rules, _, _| change_by_flow(random, rules, true));
    assert!(fates[..3].iter().all(|of| *of > 0.01) && most > 20, "{fates:?}, {most}");
}

#[test]
fn rules_without_state_that_ask_for_the_5_tuple_agree_with_the_oracle() {
    let (fates, _) = agree(7, 10, |random, rules, _, _| change_by_flow(random, rules, false));
    assert!(fates[..3].iter().all(|of| *of > 0.01), "{fates:?}");
}

/// Tells both the same changes and packets.
///
/// It answers the shares that were dropped, left alone, changed and stretched, and the most connections. The mode `all-match`
/// comes once in `mode` times.
fn agree(seed: u64, mode: usize, change: Change) -> ([f64; 4], usize) {
    let pairs: usize =
        std::env::var("NETBRICKS_MMB_PAIRS").map_or(30_000, |pairs| pairs.parse().expect("a number"));
    let seed = std::env::var("NETBRICKS_MMB_SEED").map_or(seed, |seed| seed.parse().expect("a number"));
    let mut random = Random::new(seed);
    let (mut done, mut serial, mut fates, mut most) = (0, 0, [0; 4], 0);
    while done < pairs {
        let mut both = Both::new();
        both.history = Some(Vec::new());
        let mut lines: Vec<String> =
            SETS.map(|name| format!("define @{name} {}", set(&mut random, name))).into();
        lines.extend(rarely(&mut random, mode).then(|| "mode all-match".to_owned()));
        both.tell(lines);
        for _ in 0..100 {
            let mut frames: Vec<Vec<u8>> = (0..32).map(|_| of_flow(&mut random)).collect();
            for frame in &mut frames {
                let is_plain = frame.len() > 41
                    && (frame[12..15] == [8, 0, 0x45] && frame[20..22] == [0, 0]
                        || frame[12..14] == [0x86, 0xdd] && matches!(frame[20], 6 | 17 | 58));
                if is_plain && rarely(&mut random, 8) {
                    *frame = error_about(&mut random, frame);
                }
            }
            for _ in 0..random.below(3) {
                serial += 1;
                let frame = one(&mut random, &frames);
                let line = change(&mut random, &both.rules, &frame, serial);
                both.tell(vec![line]);
            }
            both.check(&frames);
            done += frames.len();
            most = most.max(both.rules.connections.len());
            let mut seconds = one(&mut random, &[0, 0, 1, 20, 70, 300, 1_000]);
            while both.rules.connections.is_about_to_end(both.rules.now + seconds) {
                seconds += 61;
            }
            both.wait(seconds);
        }
        both.bench.finish();
        fates.iter_mut().zip(both.fates).for_each(|(all, of)| *all += of);
    }
    println!(
        "{fates:?} of {done} frames were dropped, left alone, changed, stretched; up to {most} connections"
    );
    (fates.map(|of| of as f64 / done as f64), most)
}
