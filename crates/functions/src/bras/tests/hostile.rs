//! Subscribers that break the rules: lying lengths, loops, mutated packets of every phase, floods.

use netbricks_core::DropReason;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::{Random, mutate};

use super::client::{ACCESS, CORE, Client, control, option, rig};
use super::negotiation::Users;

const OPEN: &str = "authentication = []\nprefixes = \"2001:db8:100::/56\"\n";

#[test]
fn lengths_that_lie_are_malformed_in_every_layer() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    let mut wrong = Vec::new();
    // PPPoE's length leads beyond the frame.
    let mut frame = client.session(0xc021, &control(9, 1, &[0; 4]));
    frame[18..20].copy_from_slice(&[0xff, 0xff]);
    wrong.push(frame);
    // The control packet's length leads beyond PPPoE's, or is shorter than its head.
    for len in [200_u16, 3] {
        let mut packet = control(9, 1, &[0; 4]);
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        wrong.push(client.session(0xc021, &packet));
    }
    // An option's length is 0, or leads beyond.
    for bad in [[1, 0, 5, 6], [1, 9, 5, 6]] {
        wrong.push(client.session(0xc021, &control(1, 1, &bad)));
        wrong.push(client.session(0x8021, &control(1, 1, &bad)));
    }
    // A tag's length leads beyond.
    wrong.push(client.discovery([0xff; 6], 9, 0, &[1, 1, 0, 9]));
    // No protocol field, and a compressed one.
    wrong.push(client.session(0x21, b""));
    let last = wrong.len() - 1;
    wrong[last][18..20].copy_from_slice(&[0, 1]);
    wrong.push(client.session(0x2145, &[0; 20]));
    // Version 2 of PPPoE.
    let mut version = client.session(0xc021, &control(9, 1, &[0; 4]));
    version[14] = 0x21;
    wrong.push(version);
    let count = wrong.len() as u64;
    assert!(rig.send(ACCESS, wrong).is_empty());
    assert_eq!(rig.dropped(DropReason::Malformed), count);
    assert!(client.is_open());
}

#[test]
fn a_subscriber_that_always_naks_ends_with_its_session() {
    for code in [3, 4] {
        let mut rig = rig(OPEN);
        let mut client = Client::new(1);
        let out = rig.send(ACCESS, [client.padi()]);
        let padr = client.hear(&out[0].1);
        let mut pending = rig.send(ACCESS, padr);
        let mut requests = 0;
        for _ in 0..200 {
            let mut answers = Vec::new();
            for (_, frame) in &pending {
                client.hear(frame);
            }
            for (protocol, packet) in client.heard.drain(..) {
                if protocol == 0xc021 && packet[0] == 1 {
                    requests += 1;
                    // Each magic number is bad.
                    let refused = option(5, &[0, 0, 0, requests]);
                    answers.push((packet[1], refused));
                }
            }
            let frames: Vec<_> = answers
                .into_iter()
                .map(|(id, refused)| client.session(0xc021, &control(code, id, &refused)))
                .collect();
            rig.now += 100_000_000;
            pending = rig.send(ACCESS, frames);
            if pending.is_empty() {
                break;
            }
        }
        rig.wait(60_000);
        assert!(requests <= 25, "{requests} requests");
        assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
    }
}

#[test]
fn a_subscriber_whose_wishes_are_never_right_is_rejected_in_the_end() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    client.heard.clear();
    for round in 0..12 {
        // Another's address, again and again.
        let frame = client.session(0x8021, &control(1, round, &option(3, &[192, 0, 2, round])));
        client.heard.clear();
        let out = rig.send(ACCESS, [frame]);
        out.iter().for_each(|(_, frame)| drop(client.hear(frame)));
        let answer =
            client.heard.iter().find(|(protocol, packet)| *protocol == 0x8021 && matches!(packet[0], 3 | 4));
        let code = answer.map(|(_, packet)| packet[0]);
        assert_eq!(code, Some(if round < 5 { 3 } else { 4 }), "round {round}");
        rig.wait(100);
    }
}

#[test]
fn a_flood_of_control_packets_is_limited() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    rig.wait(5_000);
    let echo = client.session(0xc021, &control(9, 1, &[0, 0, 0, 7]));
    let out = rig.send(ACCESS, (0..1_000).map(|_| echo.clone()));
    assert!(out.len() <= 60, "{}", out.len());
    assert!(rig.dropped(DropReason::RateLimited) >= 940);
    client.wait(&mut rig, 20_000);
    assert!(client.is_open(), "and the session goes on");
}

/// Packets of a whole life, before mutation.
fn life(client: &Client) -> Vec<Vec<u8>> {
    let ip = ethernet().ipv4(client.address, "192.0.2.1").udp(1, 2).payload(b"data").build().unwrap();
    let ip6 = ethernet().ipv6("2001:db8:100::7", "2001:db8:9::1").udp(1, 2).build().unwrap();
    let syn = ethernet()
        .ipv4(client.address, "192.0.2.1")
        .tcp(1, 2)
        .flags(2)
        .maximum_segment_size(1_460)
        .build()
        .unwrap();
    let mut packets = vec![client.padi(), client.padr(), client.ip(&ip), client.ip(&ip6), client.ip(&syn)];
    for protocol in [0xc021, 0xc023, 0xc223, 0x8021, 0x8057, 0x80fd] {
        for code in 1..=12 {
            let data = [option(1, &[5, 0xd4]), option(3, &[10, 0, 0, 9]), option(5, &[1, 2, 3, 4])].concat();
            packets.push(client.session(protocol, &control(code, 1, &data)));
            packets.push(
                client.session(protocol, &control(code, 2, &[5, b'a', b'l', b'i', b'c', b'e', 1, b'x'])),
            );
        }
    }
    packets
}

#[test]
fn mutated_packets_of_every_phase_break_nothing() {
    // The rig checks that packets are conserved, that nothing panics, and that batch sizes change nothing.
    let users = Users::new("mutated", "alice open-sesame\n");
    for (settings, seed) in [(OPEN.to_owned(), 1), (users.setting(), 2)] {
        let mut rig =
            rig(&format!("{settings}discovery_rate = 100000\ndiscovery_rate_each = 100000\nper_mac = 4\n"));
        let mut random = Random::new(seed);
        for round in 0..30 {
            let mut client = Client { wants_v6: true, ..Client::new(round % 4) };
            client.dial(&mut rig);
            let packets = life(&client);
            let frames: Vec<Vec<u8>> = (0..100)
                .map(|_| {
                    let mut frame = packets[random.below(packets.len())].clone();
                    if random.below(4) > 0 {
                        mutate(&mut frame, &mut random);
                    }
                    frame
                })
                .collect();
            rig.send(ACCESS, frames);
            let down: Vec<Vec<u8>> = (0..20)
                .map(|_| {
                    let mut frame = ethernet()
                        .source("02:00:00:00:00:fe")
                        .destination("02:00:00:00:ac:01")
                        .ipv4("192.0.2.1", client.address)
                        .udp(2, 1)
                        .payload(&[1; 300])
                        .build()
                        .unwrap();
                    mutate(&mut frame, &mut random);
                    frame
                })
                .collect();
            rig.send(CORE, down);
            rig.wait(2_000);
        }
        rig.wait(90_000);
        let listed = rig.ask("sessions", "").unwrap();
        assert_eq!(listed, "0 sessions\n", "a subscriber that does not answer is gone");
    }
}
