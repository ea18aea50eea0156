//! Firewall, IDS, IPS and DDoS prevention.

use netbricks_testkit::build::ethernet;

use crate::harness::{Middlebox, each, frame, with};

fn tcp(from: &'static str, to: &'static str, ports: (u16, u16), flags: u8) -> Vec<u8> {
    frame(ethernet().ipv4(from, to).tcp(ports.0, ports.1).flags(flags))
}

fn udp(from: &'static str, to: &'static str, ports: (u16, u16)) -> Vec<u8> {
    frame(ethernet().ipv4(from, to).udp(ports.0, ports.1).payload(b"data"))
}

fn ping(from: &'static str, to: &'static str) -> Vec<u8> {
    frame(ethernet().ipv4(from, to).icmp_echo_request(1, 1))
}

fn request(port: u16, payload: &[u8]) -> Vec<u8> {
    frame(ethernet().ipv4("1.2.3.4", "10.0.0.80").tcp(5000, port).flags(0x18).payload(payload))
}

/// Sends frames one by one: each passes unchanged by the other port, or ends.
#[track_caller]
fn passes(middlebox: &mut Middlebox, port: usize, sent: Vec<u8>, expected: bool) {
    let ended = middlebox.ended();
    let mut out = middlebox.send(port, [sent.clone()]);
    let passed = std::mem::take(&mut out[1 - port]);
    assert_eq!(
        (passed, out[port].len()),
        (if expected { vec![sent.clone()] } else { vec![] }, 0),
        "{sent:02x?}"
    );
    assert_eq!(middlebox.ended() - ended, u64::from(!expected));
}

const SYN: u8 = 2;
const ACK: u8 = 0x10;
const HOST: &str = "1.2.3.4";

#[test]
fn a_firewall_follows_its_rules() {
    each("firewall.click", |wall| {
        let mut inward = |frame, expected| passes(wall, 0, frame, expected);
        inward(tcp("10.9.9.9", "10.0.0.80", (1, 80), SYN), false);
        inward(udp("127.0.0.1", "10.0.0.53", (1, 53)), false);
        inward(udp("224.0.0.5", "10.0.0.53", (1, 53)), false);
        inward(
            frame(ethernet().ipv4(HOST, "10.0.0.80").fragment(0, true).protocol(6).payload(&[0; 24])),
            false,
        );
        inward(tcp(HOST, "10.0.0.80", (1, 80), SYN), true);
        inward(tcp(HOST, "10.0.0.80", (1, 443), SYN), true);
        inward(tcp(HOST, "10.0.0.81", (1, 80), SYN), false);
        inward(udp(HOST, "10.0.0.53", (1, 53)), true);
        inward(udp(HOST, "10.0.0.54", (1, 53)), false);
        inward(tcp(HOST, "10.0.0.7", (80, 5000), SYN | ACK), true);
        inward(tcp(HOST, "10.0.0.7", (80, 5000), SYN), false);
        inward(udp(HOST, "10.0.0.7", (53, 5000)), true);
        inward(ping(HOST, "10.0.0.7"), true);
        inward(udp(HOST, "10.0.0.7", (99, 99)), false);
        inward(frame(ethernet().arp_request("10.0.0.1", "10.0.0.2")), true);
        inward(frame(ethernet().ethertype(0x1234).payload(&[0; 50])), false);
        passes(wall, 1, tcp("10.0.0.7", HOST, (5000, 80), SYN), true);
        passes(wall, 1, tcp("11.0.0.7", HOST, (5000, 80), SYN), false);
        // A broken header ends before the rules.
        let mut broken = tcp(HOST, "10.0.0.80", (1, 80), SYN);
        broken[24] ^= 0xFF;
        passes(wall, 0, broken, false);
        assert_eq!([wall.read("refused_in.count"), wall.read("refused_out.count")], ["8", "1"]);
    });
    with("firewall.click", &["WEB=10.0.0.81"], |wall| {
        // Other values of parameters, and other rules while it runs.
        passes(wall, 0, tcp(HOST, "10.0.0.81", (1, 80), SYN), true);
        passes(wall, 0, tcp(HOST, "10.0.0.80", (1, 80), SYN), false);
        wall.call("inward.config", "allow dst port 80, 1 all");
        passes(wall, 0, tcp(HOST, "10.0.0.80", (1, 80), SYN), true);
        passes(wall, 0, tcp(HOST, "10.0.0.81", (1, 443), SYN), false);
    });
}

#[test]
fn intrusion_detection_tells_and_passes() {
    each("ids.click", |ids| {
        let forged = |mac: &'static str| frame(ethernet().source(mac).arp_reply("10.0.0.1", "10.0.0.9"));
        let frames = vec![
            forged("02:00:00:00:00:10"),
            forged("02:00:00:00:00:66"),
            frame(ethernet().ipv4(HOST, "10.0.0.80").fragment(0, true).protocol(6).payload(&[0; 24])),
            tcp(HOST, "10.0.0.80", (1, 80), 3),
            tcp(HOST, "10.0.0.80", (1, 80), 0x29),
            tcp(HOST, "10.0.0.80", (1, 80), 0),
            tcp(HOST, "10.0.0.80", (1, 80), SYN),
            request(80, b"GET /../../etc/passwd HTTP/1.1"),
            request(80, b"GET /a/b/c HTTP/1.1"),
            request(8080, b"x=1;/bin/bash -i"),
            request(80, b"id=1 UNION ALL  SELECT password"),
            udp(HOST, "10.0.0.53", (1, 53)),
            ping(HOST, "10.0.0.7"),
        ];
        for one in &frames {
            passes(ids, 0, one.clone(), true);
        }
        let counts = ["arp", "fragments", "scan", "traversal", "shell", "injection"];
        let read =
            |ids: &mut Middlebox, side: &str| counts.map(|name| ids.read(&format!("{side}/{name}.count")));
        assert_eq!(read(ids, "inward"), ["1", "1", "3", "1", "1", "1"]);
        ids.send(1, [request(80, b"/bin/sh")]);
        assert_eq!(read(ids, "outward"), ["0", "0", "0", "0", "1", "0"]);
        assert_eq!(ids.ended(), 0, "nothing is held back");
    });
}

#[test]
fn intrusion_prevention_stops_attacks() {
    each("ips.click", |ips| {
        let mut inward = |frame, expected| passes(ips, 0, frame, expected);
        inward(udp("198.51.100.9", "10.0.0.80", (1, 2)), false);
        inward(tcp(HOST, "10.0.0.80", (1, 80), 3), false);
        inward(tcp(HOST, "10.0.0.80", (1, 23), SYN), false);
        inward(tcp(HOST, "10.0.0.80", (1, 445), SYN), false);
        inward(tcp(HOST, "10.0.0.80", (1, 22), SYN), true);
        inward(request(80, b"GET /index.html HTTP/1.1"), true);
        inward(request(80, b"GET /%2E%2e/secret HTTP/1.1"), false);
        inward(request(8080, b"q=1+union++Select+name"), false);
        inward(request(80, b"User-Agent: ${jndi:ldap://x}"), false);
        // Other services are not searched for what only harms the web.
        inward(request(22, b"${jndi:ldap://x}"), true);
        let name = |label: &[u8]| frame(ethernet().ipv4(HOST, "10.0.0.53").udp(1, 53).payload(label));
        inward(name(b"\x07example\x03com"), true);
        inward(name(&[b"\x3F".as_slice(), &[b'a'; 63]].concat()), false);
        inward(frame(ethernet().arp_request("10.0.0.1", "10.0.0.2")), true);
        assert_eq!([ips.read("refused.count"), ips.read("attacks.count")], ["4", "4"]);
        passes(ips, 1, request(80, b"${jndi:"), true);
    });
}

#[test]
fn ddos_prevention_takes_floods_out() {
    with("ddos.click", &["SYNS=50"], |guard| {
        const SERVER: &str = "203.0.113.80";
        let mut inward = |frame, expected| passes(guard, 0, frame, expected);
        inward(tcp("10.1.1.1", SERVER, (1, 80), SYN), false);
        inward(tcp("172.20.1.1", SERVER, (1, 80), SYN), false);
        inward(tcp(SERVER, SERVER, (80, 80), SYN), false);
        inward(tcp(HOST, "203.0.113.81", (1, 80), SYN), false);
        inward(udp(HOST, SERVER, (123, 4000)), false);
        inward(udp(HOST, SERVER, (11211, 80)), false);
        inward(udp(HOST, SERVER, (5000, 80)), false);
        inward(tcp(HOST, SERVER, (1, 22), SYN), false);
        inward(tcp(HOST, SERVER, (1, 80), SYN), true);
        inward(ping(HOST, SERVER), true);
        assert_eq!(guard.read("refused.count"), "8");
        // A flood of new connections beside one that goes on, after a quiet second.
        guard.advance(std::time::Duration::from_secs(2));
        let mut flood = vec![tcp(HOST, SERVER, (9, 443), SYN); 500];
        flood.extend(vec![tcp(HOST, SERVER, (8, 443), ACK); 100]);
        flood.extend(vec![ping(HOST, SERVER); 100]);
        let [_, out] = guard.send(0, flood);
        let count =
            |place: usize, value: u8| out.iter().filter(|frame| frame.get(place) == Some(&value)).count();
        let (syns, acks, pings) = (count(47, SYN), count(47, ACK), count(23, 1));
        assert_eq!(acks, 100, "connections that are open are not harmed");
        assert!((45..=55).contains(&syns), "{syns}");
        assert!((9..=11).contains(&pings), "{pings}");
        assert_eq!(
            [guard.read("syns.count"), guard.read("pings.count")],
            [500 - syns, 100 - pings].map(|n| n.to_string())
        );
        guard.advance(std::time::Duration::from_secs(1));
        passes(guard, 0, tcp(HOST, SERVER, (1, 80), SYN), true);
        passes(guard, 1, tcp(SERVER, HOST, (80, 1), SYN | ACK), true);
    });
}
