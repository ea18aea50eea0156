use netbricks_core::DropReason;
use netbricks_core::packet::print::{Protocol, dissect};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Report, checksums, kinds, run_node};

use super::{NonIp, TtlConfig, node};

fn run(config: TtlConfig, frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
    run_node(move |worker| node(&config, worker), frames)
}
fn dropping() -> TtlConfig {
    TtlConfig { non_ip: NonIp::Drop, ..TtlConfig::default() }
}
fn passing() -> TtlConfig {
    TtlConfig::default()
}
fn answering() -> TtlConfig {
    TtlConfig {
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_v6: "2001:db8:ff::1".parse().ok(),
        answer_rate: 1_000,
        ..TtlConfig::default()
    }
}
fn v4(hops: u8) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(hops).udp(1000, 53).payload(b"hello").build().unwrap()
}
fn v6(hops: u8) -> Vec<u8> {
    ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .hop_limit(hops)
        .udp(1000, 53)
        .payload(b"hello")
        .build()
        .unwrap()
}
/// The place of the TTL or hop limit of the outermost IP header.
fn hops_at(frame: &[u8]) -> Option<usize> {
    dissect(frame).layers().find_map(|layer| match layer.protocol {
        Protocol::Ipv4 => Some(layer.offset + 8),
        Protocol::Ipv6 => Some(layer.offset + 7),
        _ => None,
    })
}

#[test]
fn every_number_of_hops() {
    for hops in 0..=255u8 {
        let report = run(dropping(), [v4(hops), v6(hops)]);
        if hops <= 1 {
            assert_eq!((report.out.len(), report.dropped(DropReason::TtlExpired)), (0, 2), "{hops} hops");
            continue;
        }
        assert_eq!((report.out[0][22], report.out[1][21]), (hops - 1, hops - 1));
        assert_eq!(checksums::wrong(&report.out[0]), Vec::<String>::new(), "{hops} hops");
        assert_eq!(&report.out[1][22..], &v6(hops)[22..]);
    }
}

#[test]
fn every_kind_of_packet_behind_every_tag() {
    for (name, frame) in kinds::every() {
        let report = run(dropping(), [frame.clone()]);
        let Some(at) = hops_at(&frame) else {
            let reason = if frame.len() < 14 { DropReason::Malformed } else { DropReason::Unmatched };
            assert_eq!(report.dropped(reason), 1, "{name}");
            assert_eq!(run(passing(), [frame.clone()]).out.len(), usize::from(frame.len() >= 14), "{name}");
            continue;
        };
        if frame[at] <= 1 {
            assert_eq!(report.dropped(DropReason::TtlExpired), 1, "{name}");
            continue;
        }
        assert_eq!(report.out[0][at], frame[at] - 1, "{name}");
        assert_eq!(checksums::wrong(&report.out[0]), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn frames_without_ip_pass_unchanged_unless_configured_to_drop() {
    let others: Vec<_> = kinds::every()
        .into_iter()
        .filter(|(_, f)| f.len() >= 14 && hops_at(f).is_none())
        .map(|(_, f)| f)
        .collect();
    assert!(others.len() >= 3);
    assert_eq!(run(passing(), others.clone()).out, others);
    assert_eq!(run(dropping(), others.clone()).dropped(DropReason::Unmatched), others.len() as u64);
}

#[test]
fn link_local_ipv6_passes_unchanged() {
    let frame = |source: &str, destination: &str, hops| {
        ethernet().ipv6(source, destination).hop_limit(hops).udp(1, 2).build().unwrap()
    };
    for (source, destination) in [
        ("fe80::1", "fe80::2"),
        ("fe80::1", "ff02::1"),
        ("2001:db8::1", "ff02::1:ff00:2"),
        ("::", "ff02::16"),
        ("2001:db8::1", "fe80::2"),
        ("2001:db8::1", "ff01::1"),
    ] {
        for hops in [0, 1, 255] {
            let frame = frame(source, destination, hops);
            assert_eq!(
                run(passing(), [frame.clone()]).out,
                std::slice::from_ref(&frame),
                "{source} to {destination}"
            );
        }
        assert_eq!(run(dropping(), [frame(source, destination, 1)]).dropped(DropReason::TtlExpired), 1);
    }
    for destination in ["ff05::1", "ff0e::1", "2001:db8::2"] {
        let report = run(passing(), [frame("2001:db8::1", destination, 9)]);
        assert_eq!(report.out[0][21], 8, "{destination} is forwarded");
    }
}

#[test]
fn ipv4_that_never_leaves_its_link_passes_unchanged() {
    let frame = |destination: &str, protocol: u8, hops| {
        ethernet()
            .ipv4("10.0.0.1", destination)
            .ttl(hops)
            .protocol(protocol)
            .payload(&[0x16; 8])
            .build()
            .unwrap()
    };
    // IGMP to a group elsewhere, OSPF, VRRP (which is refused with a TTL below 255), mDNS, a DHCP client.
    for (destination, protocol) in [
        ("239.1.2.3", 2),
        ("224.0.0.22", 2),
        ("224.0.0.5", 89),
        ("224.0.0.18", 112),
        ("224.0.0.251", 17),
        ("255.255.255.255", 17),
    ] {
        for hops in [0, 1, 64, 255] {
            let frame = frame(destination, protocol, hops);
            assert_eq!(run(passing(), [frame.clone()]).out, std::slice::from_ref(&frame), "to {destination}");
            let report = run(dropping(), [frame]);
            assert_eq!(report.dropped(DropReason::TtlExpired), u64::from(hops < 2), "to {destination}");
        }
    }
    for (destination, protocol) in [("224.0.1.1", 17), ("239.1.2.3", 17), ("10.0.0.2", 2), ("240.0.0.1", 17)]
    {
        let report = run(passing(), [frame(destination, protocol, 9)]);
        assert_eq!(report.out[0][22], 8, "{destination} is forwarded");
    }
}

#[test]
fn expired_packets_are_answered_on_the_way_back() {
    let report = run(answering(), [v4(1), v4(9), v6(1), v4(0), v6(0)]);
    assert_eq!(
        (report.out.len(), report.dropped(DropReason::TtlExpired), report.totals.created.packets),
        (1, 4, 4)
    );
    for (answer, request) in report.replies.iter().zip([v4(1), v6(1), v4(0), v6(0)]) {
        assert_eq!(checksums::wrong(answer), Vec::<String>::new());
        assert!(dissect(answer).malformed().is_none());
        assert_eq!((&answer[..6], &answer[6..12]), (&request[6..12], &request[..6]));
        assert!(answer.ends_with(&request[14..]), "the whole packet is quoted as it came");
    }
    let names: Vec<_> = dissect(&report.replies[0]).layers().map(|layer| layer.name()).collect();
    assert_eq!(names, ["ethernet", "ipv4", "icmp", "ipv4", "udp"]);
    let one_version = TtlConfig { answer_v6: None, ..answering() };
    assert_eq!(run(one_version, [v4(1), v6(1)]).replies.len(), 1);
    assert_eq!(run(dropping(), [v4(1), v6(1)]).replies.len(), 0);
}

#[test]
fn some_packets_are_never_answered() {
    for (name, frame) in kinds::every() {
        let Some(at) = hops_at(&frame) else { continue };
        if ["time exceeded", "unreachable v6", "link-local"].contains(&name) && frame[at] <= 1 {
            let report = run(TtlConfig { non_ip: NonIp::Drop, ..answering() }, [frame.clone()]);
            assert_eq!((report.replies.len(), report.dropped(DropReason::TtlExpired)), (0, 1), "{name}");
        }
    }
}

#[test]
fn settings_that_do_not_do_are_named() {
    use netbricks_core::Settings;
    let refused = TtlConfig { answer_rate: 0, ..TtlConfig::default() }.check().unwrap_err();
    assert_eq!(refused.to_string(), "`answer_rate` must be 1 to 1,000,000 answers a second, found 0");
    assert!(toml::from_str::<TtlConfig>("non_ip = \"maybe\"").is_err());
    assert!(toml::from_str::<TtlConfig>("non_ips = \"drop\"").is_err());
    assert_eq!(toml::from_str::<TtlConfig>("").unwrap().non_ip, NonIp::Pass);
}
