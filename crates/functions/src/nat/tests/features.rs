//! Settings, handlers and reports beside the RFCs' requirements.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::SYN;
use netbricks_testkit::kinds;

use super::*;

#[test]
fn a_static_mapping_leads_inside_and_back() {
    let mut test = nat("static = [\"udp 203.0.113.7:53 -> 10.0.0.5:5353\"]");
    let asked = through(&mut test, udp(SERVER, 9, POOL, 53));
    assert_eq!(shown(&asked), "198.51.100.1:9 > 10.0.0.5:5353");
    let answer = through(&mut test, udp("10.0.0.5", 5_353, SERVER, 9));
    assert_eq!(shown(&answer), "203.0.113.7:53 > 198.51.100.1:9");
    // Another host gets another port, also with the mapping's number.
    for port in 4_000..4_100 {
        assert_ne!(open(&mut test, INSIDE, port, SERVER, 53), 53);
    }
}

#[test]
fn a_whole_address_is_mapped_for_all_protocols() {
    let mut test = nat("static = [\"203.0.113.8 -> 10.0.0.6\"]");
    let host = "10.0.0.6";
    let out = through(&mut test, udp(host, 4_000, SERVER, 53));
    assert_eq!(shown(&out), "203.0.113.8:4000 > 198.51.100.1:53");
    assert_eq!(shown(&through(&mut test, udp(SERVER, 9, "203.0.113.8", 77))), "198.51.100.1:9 > 10.0.0.6:77");
    let gre = ethernet().ipv4(host, SERVER).gre().ipv4("10.1.0.1", "10.1.0.2").udp(1, 2).build().unwrap();
    assert_eq!(through(&mut test, gre)[26..30], [203, 0, 113, 8]);
    // Errors, both ways.
    let quote = udp("203.0.113.8", 4_000, SERVER, 53)[14..].to_vec();
    let error = ethernet().ipv4("192.0.2.99", "203.0.113.8").icmp_time_exceeded(&quote).build().unwrap();
    let out = through(&mut test, error);
    assert_eq!(checksums::wrong(&out), Vec::<String>::new());
    assert_eq!(out[54..58], [10, 0, 0, 6], "the quoted source");
    assert_eq!(count(&mut test, "sessions"), 0, "it needs no state");
    // From another host inside, to it and back.
    let report = test.send([udp(INSIDE, 4_000, "203.0.113.8", 77)]);
    assert_eq!(report.replies.len(), 1, "{:?}", report.drops);
    let client = source_port(&report.replies[0]);
    assert_eq!(shown(&report.replies[0]), format!("{POOL}:{client} > 10.0.0.6:77"));
}

#[test]
fn a_redirect_gives_packets_another_destination() {
    let mut test = nat("redirect = [\"udp 198.51.100.1:53 -> 198.51.100.2:5353\"]");
    let out = through(&mut test, udp(INSIDE, 4_000, SERVER, 53));
    let port = source_port(&out);
    assert_eq!(shown(&out), format!("{POOL}:{port} > {SERVER_2}:5353"));
    let answer = through(&mut test, udp(SERVER_2, 5_353, POOL, port));
    assert_eq!(shown(&answer), format!("{SERVER}:53 > {INSIDE}:4000"));
    // An error about it is about what the host sent.
    let quote = udp(POOL, port, SERVER_2, 5_353)[14..].to_vec();
    let error = ethernet().ipv4(SERVER_2, POOL).icmp_unreachable(3, &quote).build().unwrap();
    let out = through(&mut test, error);
    assert_eq!(checksums::wrong(&out), Vec::<String>::new());
    assert_eq!((&out[26..30], &out[58..62]), (&[198, 51, 100, 1][..], &[198, 51, 100, 1][..]));
    // Other ports are not touched.
    assert_eq!(
        shown(&through(&mut test, udp(INSIDE, 4_000, SERVER, 54))),
        format!("{POOL}:{port} > {SERVER}:54")
    );
}

#[test]
fn deterministic_blocks_are_known_without_a_log() {
    let text = "pool = [\"203.0.113.0/30\"]\nblock = 1000\ndeterministic = true\n";
    let config: NatConfig =
        toml::from_str(&format!("inside = [\"10.0.0.0/26\", \"10.9.0.0/27\"]\n{text}")).unwrap();
    config.check().unwrap();
    let mut test = Clocked::of_node(move |worker| node(&config, worker));
    // 64 blocks an address: host number 64 + 3 of all has block 3 of the second address.
    for (host, address, first) in [
        ("10.0.0.0", "203.0.113.0", 1_024),
        ("10.0.0.63", "203.0.113.0", 64_024),
        ("10.9.0.3", "203.0.113.1", 4_024),
    ] {
        for port in 0..20 {
            let out = through(&mut test, udp(host, 4_000 + port, SERVER, 53));
            let flow = FlowKey::from_frame(&out).unwrap();
            assert_eq!(flow.source().to_string(), address, "{host}");
            assert!((first..first + 1_000).contains(&flow.source_port()), "{host}: {}", flow.source_port());
        }
    }
    assert_eq!(test.call("log", ""), "");
    let report = test.send((0..1_100).map(|port| udp("10.0.0.9", 2_000 + port, SERVER, 53)));
    assert_eq!((report.out.len(), report.dropped(DropReason::PortsExhausted)), (1_000, 100));
}

#[test]
fn requests_for_outside_addresses_are_answered() {
    let mut test = nat("mac = \"02:00:00:00:00:99\"");
    let report = test.send([ethernet().arp_request("203.0.113.1", POOL).pad_to(60).build().unwrap()]);
    let reply = ethernet()
        .source([2, 0, 0, 0, 0, 0x99])
        .destination([2, 0, 0, 0, 0, 1])
        .arp_reply(POOL, "203.0.113.1")
        .pad_to(60)
        .build()
        .unwrap();
    assert_eq!((report.out.len(), report.replies), (0, vec![reply]));
    let others = [
        ethernet().arp_request("203.0.113.1", "203.0.113.9").build().unwrap(),
        ethernet().arp_reply("203.0.113.1", POOL).build().unwrap(),
    ];
    assert_eq!(test.send(others.clone()).out, others);
    let mut silent = nat("answer = false");
    let request = ethernet().arp_request("203.0.113.1", POOL).build().unwrap();
    assert_eq!(silent.send([request.clone()]).out, [request]);
}

#[test]
fn packets_to_our_link_address_go_to_their_host() {
    let mut test = nat("mac = \"02:00:00:00:00:99\"");
    let host = [2, 0, 0, 0, 7, 7];
    let packet = ethernet().source(host).ipv4(INSIDE, SERVER).udp(4_000, 53).payload(b"x").build().unwrap();
    let port = source_port(&through(&mut test, packet));
    let to = |mac: [u8; 6]| {
        ethernet().destination(mac).ipv4(SERVER, POOL).udp(53, port).payload(b"x").build().unwrap()
    };
    assert_eq!(through(&mut test, to([2, 0, 0, 0, 0, 0x99]))[..6], host);
    assert_eq!(through(&mut test, to([2, 0, 0, 0, 0, 3]))[..6], [2, 0, 0, 0, 0, 3], "to others it stays");
    // Also where no session has it.
    let stranger =
        ethernet().destination([2, 0, 0, 0, 0, 0x99]).ipv4(SERVER_2, POOL).udp(1, port).build().unwrap();
    assert_eq!(through(&mut test, stranger)[..6], host);
    // Between hosts inside, it goes back to the other host.
    let packet = ethernet().source([2, 0, 0, 0, 7, 8]).destination([2, 0, 0, 0, 0, 0x55]).ipv4(OTHER, POOL);
    let report = test.send([packet.udp(9, port).build().unwrap()]);
    assert_eq!(report.replies[0][..12], [2, 0, 0, 0, 7, 7, 2, 0, 0, 0, 0, 0x55]);
}

#[test]
fn the_host_of_a_static_mapping_is_asked_for_its_link_address() {
    let ours = [2, 0, 0, 0, 0, 0x99];
    let mut test = nat("mac = \"02:00:00:00:00:99\"\nstatic = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]");
    let syn = || ethernet().destination(ours).ipv4(SERVER, POOL).tcp(9, 80).syn().build().unwrap();
    let report = test.send([syn()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Unresolved)), (1, 1));
    assert_eq!((&report.out[0][..6], &report.out[0][38..42]), (&[0xff; 6][..], &[10, 0, 0, 5][..]));
    // Its answer is ours, and the next segment goes to it.
    let host = [2, 0, 0, 0, 7, 5];
    let answer = ethernet().source(host).destination(ours).arp_reply("10.0.0.5", "0.0.0.0").build().unwrap();
    assert_eq!(test.send([answer]).dropped(DropReason::LocalDelivery), 1);
    assert_eq!(through(&mut test, syn())[..6], host);
    // Requests of a host that is known tell its address, too, and pass.
    let asked = ethernet().source([2, 0, 0, 0, 7, 6]).arp_request("10.0.0.5", "10.0.0.254").build().unwrap();
    assert_eq!(test.send([asked.clone()]).out, [asked]);
    assert_eq!(through(&mut test, syn())[..6], [2, 0, 0, 0, 7, 6]);
}

#[test]
fn only_an_answer_to_our_own_request_makes_a_host_known() {
    let ours = [2, 0, 0, 0, 0, 0x99];
    let mut test = nat("mac = \"02:00:00:00:00:99\"\nstatic = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]");
    let syn = || ethernet().destination(ours).ipv4(SERVER, POOL).tcp(9, 80).syn().build().unwrap();
    // Neither a request nor an answer to no question makes an entry.
    let host = [2, 0, 0, 0, 7, 5];
    let request = ethernet().source(host).arp_request("10.0.0.5", "10.0.0.254").build().unwrap();
    let answer = ethernet().source(host).destination(ours).arp_reply("10.0.0.5", "0.0.0.0").build().unwrap();
    test.send([request]);
    assert_eq!(test.send([answer.clone()]).dropped(DropReason::LocalDelivery), 1);
    assert_eq!(test.send([syn()]).dropped(DropReason::Unresolved), 1);
    // An answer of another host is none to this question.
    let other = ethernet().source([2, 0, 0, 0, 7, 6]).destination(ours);
    test.send([other.arp_reply("10.0.0.6", "0.0.0.0").build().unwrap()]);
    assert_eq!(test.send([syn()]).dropped(DropReason::Unresolved), 2);
    test.send([answer]);
    assert_eq!(through(&mut test, syn())[..6], host);
}

#[test]
fn more_hosts_than_numbers_get_their_packets() {
    let mut test = nat("mac = \"02:00:00:00:00:99\"");
    // In each round there are more hosts than numbers; the sessions of the first end before the second.
    for round in 0..2u32 {
        let hosts = (0..4_500).map(|number| {
            let [a, b, c, d] = (round * 4_500 + number).to_be_bytes();
            ([2, 0, a, b, c, d], format!("10.1.{c}.{d}"))
        });
        let hosts: Vec<([u8; 6], String)> = hosts.collect();
        let out = hosts.iter().map(|(mac, address)| {
            let packet = ethernet().source(*mac).ipv4(address.as_str(), SERVER).udp(4_000, 53);
            packet.payload(b"x").build().unwrap()
        });
        let out = test.send(out.collect::<Vec<_>>()).out;
        let back = out.iter().map(|out| {
            let packet = ethernet().destination([2, 0, 0, 0, 0, 0x99]).ipv4(SERVER, POOL);
            packet.udp(53, source_port(out)).payload(b"x").build().unwrap()
        });
        let back = test.send(back.collect::<Vec<_>>()).out;
        assert_eq!(back.len(), hosts.len());
        for ((mac, address), packet) in hosts.iter().zip(&back) {
            assert_eq!((&packet[..6], shown(packet)), (&mac[..], format!("{SERVER}:53 > {address}:4000")));
        }
        test.advance(Duration::from_secs(1_000));
    }
}

#[test]
fn packets_of_others_pass_unchanged() {
    let mut test = nat("");
    let others: Vec<Vec<u8>> = vec![
        udp("192.0.2.1", 1, "192.0.2.2", 2),
        ethernet().ipv4(INSIDE, "224.0.0.251").udp(5_353, 5_353).build().unwrap(),
        ethernet().ipv4("0.0.0.0", "255.255.255.255").udp(68, 67).build().unwrap(),
        ethernet().ipv4(INSIDE, "255.255.255.255").udp(68, 67).build().unwrap(),
        ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).build().unwrap(),
    ];
    assert_eq!(test.send(others.clone()).out, others);
}

#[test]
fn tags_stay() {
    let mut test = nat("");
    let tagged = ethernet().vlan(7).ipv4(INSIDE, SERVER).udp(4_000, 53).payload(b"x").build().unwrap();
    let out = through(&mut test, tagged);
    assert_eq!(out[12..16], [0x81, 0, 0, 7]);
    let back = ethernet().vlan(7).ipv4(SERVER, POOL).udp(53, source_port(&out)).build().unwrap();
    assert_eq!(shown(&through(&mut test, back)), format!("{SERVER}:53 > {INSIDE}:4000"));
    let options =
        ethernet().ipv4(INSIDE, SERVER).router_alert().udp(4_000, 53).payload(b"x").build().unwrap();
    assert_eq!(shown(&through(&mut test, options)), shown(&out));
}

#[test]
fn a_datagram_without_a_checksum_still_has_none() {
    let mut test = nat("");
    let bare = |from: &str, port, to: &str, to_port| {
        ethernet().ipv4(from, to).udp(port, to_port).unchecked().payload(b"odd").build().unwrap()
    };
    for _ in 0..2 {
        let out = through(&mut test, bare(INSIDE, 4_000, SERVER, 53));
        assert_eq!(out[40..42], [0, 0]);
        let back = through(&mut test, bare(SERVER, 53, POOL, source_port(&out)));
        assert_eq!((&back[40..42], shown(&back)), (&[0, 0][..], format!("{SERVER}:53 > {INSIDE}:4000")));
    }
}

/// The loop for usual packets and the slow path translate alike.
#[test]
fn every_checksum_is_right_in_both_loops() {
    let mut test = nat("capacity = 1024");
    for round in 0..3 {
        for port in 0..300u16 {
            let payload: Vec<u8> = (0..port % 60).map(|byte| byte as u8 ^ port as u8).collect();
            let packet =
                ethernet().ipv4(INSIDE, SERVER).udp(4_000 + port, 53).payload(&payload).build().unwrap();
            let out = through(&mut test, packet);
            let outside = source_port(&out);
            assert_eq!(shown(&out), format!("{POOL}:{outside} > {SERVER}:53"), "round {round}");
            let back = ethernet().ipv4(SERVER, POOL).udp(53, outside).payload(&payload).build().unwrap();
            assert_eq!(shown(&through(&mut test, back)), format!("{SERVER}:53 > {INSIDE}:{}", 4_000 + port));
        }
    }
}

#[test]
fn static_mappings_come_and_go() {
    let mut test = nat("");
    assert_eq!(test.send([tcp(SERVER, 9, POOL, 80, SYN)]).out.len(), 0);
    test.call("static-add", "tcp 203.0.113.7:80 -> 10.0.0.5:8080");
    assert_eq!(shown(&through(&mut test, tcp(SERVER, 9, POOL, 80, SYN))), "198.51.100.1:9 > 10.0.0.5:8080");
    test.call("static-add", "203.0.113.9 -> 10.0.0.6");
    assert_eq!(shown(&through(&mut test, udp(SERVER, 9, "203.0.113.9", 1))), "198.51.100.1:9 > 10.0.0.6:1");
    assert_eq!(test.call("static", "").lines().count(), 2);
    test.call("static-remove", "tcp 203.0.113.7:80 -> 10.0.0.5:8080");
    test.call("static-remove", "203.0.113.9 -> 10.0.0.6");
    assert_eq!(test.call("static", ""), "");
    let report = test.send([tcp(SERVER, 9, POOL, 80, SYN), udp(SERVER, 9, "203.0.113.9", 1)]);
    assert_eq!(report.out, [udp(SERVER, 9, "203.0.113.9", 1)], "an address of nobody here passes");
}

#[test]
fn the_pool_changes_while_packets_flow() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    test.call("pool-add", "203.0.113.16/30");
    test.call("pool-drain", POOL);
    // What is there stays, and new hosts get another address.
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 53), port);
    let out = through(&mut test, udp(OTHER, 4_000, SERVER, 53));
    assert!(shown(&out).starts_with("203.0.113.1"), "{}", shown(&out));
    // A host whose address drains gets new mappings elsewhere.
    assert_ne!(
        FlowKey::from_frame(&through(&mut test, udp(INSIDE, 4_001, SERVER, 53)))
            .unwrap()
            .source()
            .to_string(),
        POOL
    );
    test.call("pool-remove", POOL);
    assert_eq!(test.call("pool", "").lines().count(), 4);
    let report = test.send([udp(SERVER, 53, POOL, port)]);
    assert_eq!(report.out, [udp(SERVER, 53, POOL, port)], "it is no address of ours");
    assert!(through(&mut test, udp(INSIDE, 4_000, SERVER, 53))[26..30] != [203, 0, 113, 7]);
    assert_eq!(test.call("flush", ""), "ended 3 sessions");
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (0, 0));
}

#[test]
fn the_report_shows_addresses_and_counts() {
    let mut test = nat("");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    let report = test.send([tcp(INSIDE, 4_000, SERVER, 80, SYN)]);
    let section = &report.sections[0];
    assert_eq!(section.rows, [[POOL, "active", "1", "2", "1", "1", "0"]]);
    assert_eq!((section.counts["sessions"], section.counts["mappings_made"]), (2, 2));
}

#[test]
fn whole_packets_of_every_kind_stay_whole() {
    let mut test = nat("pool = [\"203.0.113.0/30\"]\nothers = \"pass\"");
    let report = test.send(kinds::every().into_iter().map(|(_, frame)| frame));
    for frame in report.out.iter().chain(&report.replies) {
        assert_eq!(checksums::wrong(frame), Vec::<String>::new());
    }
}
