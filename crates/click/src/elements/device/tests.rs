//! Devices without a graph: what is refused, and what ends.

use netbricks_core::buffer::Pool;
use netbricks_testkit::build::ethernet;

use super::{FromDevice, HostDevice, INLET};
use crate::handler_call::ROOT;
use crate::packet::Annotated;
use crate::router::Capabilities;
use crate::testing::{Run, build_with, run};

#[test]
fn kernel_devices_are_read() {
    let devices = Capabilities { devices: true, ..Capabilities::default() };
    for (element, error) in [
        ("KernelTun", "ADDR: required argument missing"),
        ("KernelTun(1.0.0.1/8, 2.0.0.1)", "bad GATEWAY"),
        ("KernelTap(1.0.0.1/8, BURST 0)", "BURST must be >= 1"),
    ] {
        let errors = build_with(&format!("{element} -> Discard"), devices).errors;
        assert!(errors.iter().any(|line| line.ends_with(error)), "{element}: {errors:?}");
    }
    let run = build_with("t::KernelTun(1.0.0.1/8, DEVNAME tun0) -> Queue -> t", devices);
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.read("t.dev_name"), "tun0");
    let without = build_with("t::KernelTap(1.0.0.1/8) -> Discard", Capabilities::default());
    assert!(without.errors.iter().any(|line| line.contains("capability devices")), "{:?}", without.errors);
}

#[test]
fn sniffers_end_packets() {
    let run = run("InfiniteSource(LIMIT 3, STOP true) -> c::Counter -> ToHostSniffers(eth0)");
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.read("c.count"), "3");
}

const DEVICES: Capabilities = Capabilities { devices: true, files: false, sockets: false, process: false };

/// Brings a frame in by the element `d`.
fn bring(run: &Run, frame: &[u8]) {
    let router = run.router.as_ref().expect("it was built");
    let id = router.find("d", ROOT).expect("the device");
    let packet = router.at(id).packet(frame).expect("a frame");
    router.element(id).push(router.at(id), INLET, packet);
}

#[test]
fn devices_bring_what_their_filters_choose() {
    let udp = ethernet().ipv4("1.1.1.1", "2.2.2.2").udp(1, 53).payload(b"x").build().expect("a frame");
    let tcp = ethernet().ipv4("1.1.1.1", "2.2.2.2").tcp(1, 53).build().expect("a frame");
    let arp = ethernet().arp_request("1.1.1.1", "2.2.2.2").build().expect("a frame");
    for (keywords, count, passed, other) in [
        ("", "3", "3", "0"),
        (", BPF_FILTER \"udp port 53\"", "1", "1", "0"),
        (", PROTOCOL 0x0806", "1", "1", "0"),
        (", FORCE_IP true", "3", "2", "1"),
        (", FORCE_IP true, BPF_FILTER \"not tcp\"", "2", "1", "1"),
        (", OUTBOUND false, PROMISC true, SNAPLEN 100", "3", "3", "0"),
    ] {
        let run = build_with(
            &format!(
                "d :: FromDevice(0{keywords}) -> c :: Counter -> Discard; d[1] -> o :: Counter -> Discard;"
            ),
            DEVICES,
        );
        assert_eq!(run.errors, Vec::<String>::new(), "{keywords}");
        [&udp, &tcp, &arp].into_iter().for_each(|frame| bring(&run, frame));
        let counts = ["d.count", "c.count", "o.count"].map(|name| run.read(name));
        assert_eq!(counts, [count, passed, other], "{keywords}");
    }
    for (keywords, expected) in
        [("OUTBOUND true", "OUTBOUND"), ("BPF_FILTER \"udp port nowhere\"", "BPF_FILTER")]
    {
        let errors = build_with(&format!("FromDevice(0, {keywords}) -> Discard"), DEVICES).errors;
        assert!(errors.iter().any(|line| line.contains(expected)), "{errors:?}");
    }
}

#[test]
fn force_ip_notes_where_the_header_is() {
    let pool = Pool::builder().frames(64).build().expect("memory");
    let plain = ethernet().ipv4("1.1.1.1", "2.2.2.2").udp(1, 2).build().expect("a frame");
    let tagged = ethernet().vlan(5).ipv4("1.1.1.1", "2.2.2.2").udp(1, 2).build().expect("a frame");
    for (frame, place) in [(&plain, 14), (&tagged, 18)] {
        let mut packet = pool.packet(frame).expect("a frame");
        assert!(super::Chosen::note_ip(&mut packet));
        assert_eq!((packet.network_place(), packet.network_length()), (Some(place), Some(20)));
    }
    for length in 0..34 {
        assert!(!super::Chosen::note_ip(&mut pool.packet(&plain[..length]).expect("a frame")));
    }
}

#[test]
fn devices_of_the_host_say_what_the_graph_is_to_make() {
    for (element, address, mac) in [
        ("FromHost(fake9, 10.78.0.1/24)", "10.78.0.1/24", "00:01:02:03:04:05"),
        ("FromHost(fake9, 10.78.0.1/24, ETHER 2:0:0:0:0:7)", "10.78.0.1/24", "02:00:00:00:00:07"),
        ("KernelTun(10.0.0.1/8, DEVNAME fake9)", "10.0.0.1/8", "00:01:02:03:04:05"),
        ("KernelTap(10.0.0.1/8, DEVNAME fake9)", "10.0.0.1/8", "00:01:02:03:04:05"),
    ] {
        let run = build_with(&format!("d :: {element} -> Discard"), DEVICES);
        assert_eq!(run.errors, Vec::<String>::new(), "{element}");
        let router = run.router.as_ref().expect("it was built");
        let from =
            router.find("d", ROOT).and_then(|id| router.element_as::<FromDevice>(id)).expect("it is there");
        let host = HostDevice { device: "fake9".into(), address: Some(address.into()), mac: mac.into() };
        assert_eq!(from.host, Some(host), "{element}");
    }
}

#[test]
fn a_kernel_tun_answers_questions_for_addresses_behind_it() {
    let run = build_with("d :: KernelTun(10.0.0.1/8) -> c :: Counter -> Discard", DEVICES);
    let request = ethernet().arp_request("10.0.0.1", "10.0.0.2").build().expect("a frame");
    bring(&run, &request);
    // Its own address is asked for before it is taken, and has no answer.
    bring(&run, &ethernet().arp_request("10.0.0.1", "10.0.0.1").build().expect("a frame"));
    let mut sent = Vec::new();
    let router = run.router.as_ref().expect("it was built");
    router.take_outbox(|_, packet| sent.push(packet.data().to_vec()));
    assert_eq!(sent.len(), 1);
    let answer = &sent[0];
    assert_eq!(answer[..6], request[6..12]);
    assert_eq!(answer[20..22], [0, 2]);
    assert_eq!((&answer[28..32], &answer[38..42]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
    assert_eq!(
        (answer[22..28].to_vec(), answer[32..38].to_vec()),
        (answer[6..12].to_vec(), request[6..12].to_vec())
    );
    assert_eq!(run.read("c.count"), "0");
}
