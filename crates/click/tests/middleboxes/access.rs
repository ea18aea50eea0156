//! The software BRAS: hosts find it, open sessions and links, and reach the provider.

use netbricks_testkit::build::ethernet;

use crate::harness::{Middlebox, each, frame, ip, ip_at, only, u16_at, with};

const ACCESS: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
const CORE: &str = "02:00:00:00:00:11";

/// A host of the access network.
struct Host {
    mac: [u8; 6],
    session: u16,
}

/// A frame of PPPoE: discovery or session stage.
fn pppoe(to: &[u8], from: &[u8], stage: u16, code: u8, session: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(stage.to_be_bytes());
    frame.extend([0x11, code]);
    frame.extend(session.to_be_bytes());
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend(payload);
    frame
}

/// The value of a tag of a discovery packet.
fn tag(frame: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut at = 20;
    while at + 4 <= frame.len() {
        let length = usize::from(u16_at(frame, at + 2));
        if u16_at(frame, at) == kind {
            return Some(frame[at + 4..at + 4 + length].to_vec());
        }
        at += 4 + length;
    }
    None
}

impl Host {
    fn request(&self, bras: &mut Middlebox, to: &[u8], code: u8, tags: &[u8]) -> Vec<u8> {
        let [back, _] = bras.send(0, [pppoe(to, &self.mac, 0x8863, code, 0, tags)]);
        only(&back).to_vec()
    }

    /// Finds the concentrator and asks it for a session. The code of the answer is PADS.
    fn discover(bras: &mut Middlebox, number: u8) -> (Self, Vec<u8>) {
        let mut host = Self { mac: [2, 0, 0, 0, 1, number], session: 0 };
        let offer = host.request(bras, &[0xFF; 6], 0x09, &[1, 1, 0, 0, 1, 3, 0, 1, number]);
        assert_eq!((&offer[..6], &offer[6..12], offer[15]), (&host.mac[..], &ACCESS[..], 0x07));
        assert_eq!((tag(&offer, 0x0102), tag(&offer, 0x0103)), (Some(b"bras".to_vec()), Some(vec![number])));
        let cookie = tag(&offer, 0x0104).expect("a cookie");
        let mut tags = vec![1, 1, 0, 0, 1, 4, 0, cookie.len() as u8];
        tags.extend(cookie);
        let answer = host.request(bras, &ACCESS, 0x19, &tags);
        assert_eq!(answer[15], 0x65);
        host.session = u16_at(&answer, 16);
        (host, answer)
    }

    fn session_frame(&self, ppp: &[u8]) -> Vec<u8> {
        pppoe(&ACCESS, &self.mac, 0x8864, 0, self.session, ppp)
    }

    /// Sends a control message; the messages that come back, from PPP's protocol field on.
    fn control(
        &self,
        bras: &mut Middlebox,
        protocol: u16,
        code: u8,
        identifier: u8,
        body: &[u8],
    ) -> Vec<Vec<u8>> {
        let mut ppp = protocol.to_be_bytes().to_vec();
        ppp.extend([code, identifier]);
        ppp.extend((4 + body.len() as u16).to_be_bytes());
        ppp.extend(body);
        let [back, _] = bras.send(0, [self.session_frame(&ppp)]);
        back.iter()
            .map(|frame| {
                assert_eq!((&frame[..6], u16_at(frame, 16)), (&self.mac[..], self.session));
                frame[20..].to_vec()
            })
            .collect()
    }

    /// Agrees on the link, and on the address that the concentrator wants for us.
    fn connect(&self, bras: &mut Middlebox, address: [u8; 4]) {
        const LCP: u16 = 0xC021;
        const IPCP: u16 = 0x8021;
        let find = |messages: &[Vec<u8>], protocol: u16, code: u8| {
            let found = messages.iter().find(|one| u16_at(one, 0) == protocol && one[2] == code);
            found.unwrap_or_else(|| panic!("{protocol:#x} {code} in {messages:02x?}")).clone()
        };
        let answers = self.control(bras, LCP, 1, 1, &[5, 6, 1, 2, 3, 4]);
        find(&answers, LCP, 2);
        let request = find(&answers, LCP, 1);
        let answers = self.control(bras, LCP, 2, request[3], &request[6..]);
        let request = find(&answers, IPCP, 1);
        assert_eq!(request[6..], [3, 6, 100, 64, 0, 1]);
        self.control(bras, IPCP, 2, request[3], &request[6..]);
        let answers = self.control(bras, IPCP, 1, 1, &[3, 6, 0, 0, 0, 0]);
        let better = find(&answers, IPCP, 3);
        assert_eq!(better[6..], [&[3, 6][..], &address].concat());
        let answers = self.control(bras, IPCP, 1, 2, &better[6..]);
        find(&answers, IPCP, 2);
    }

    /// A packet in the session.
    fn packet(&self, from: &'static str, to: &'static str, size: usize) -> Vec<u8> {
        let whole = frame(ethernet().ipv4(from, to).udp(5000, 6000).payload(&vec![b'd'; size]));
        self.session_frame(&[&[0, 0x21], &whole[14..]].concat())
    }
}

const LINE1: &str = "100.64.0.11";
const LINE2: &str = "100.64.0.12";

/// Two hosts with links that are up.
fn connected(bras: &mut Middlebox) -> [Host; 2] {
    let (first, _) = Host::discover(bras, 1);
    let (second, _) = Host::discover(bras, 2);
    assert_eq!((first.session, second.session), (1, 2));
    first.connect(bras, [100, 64, 0, 11]);
    second.connect(bras, [100, 64, 0, 12]);
    assert_eq!([bras.read("line1/ppp.up"), bras.read("line2/ppp.up")], ["true", "true"]);
    [first, second]
}

#[test]
fn a_bras_takes_subscribers_to_their_provider() {
    each("bras.click", |bras| {
        let [first, _] = connected(bras);
        assert_eq!(bras.read("discovery.sessions"), "1\t02-00-00-00-01-01\n2\t02-00-00-00-01-02\n");
        let [back, out] = bras.send(0, [first.packet(LINE1, "8.8.8.8", 50)]);
        let tunnelled = only(&out).to_vec();
        let outer = ip(&tunnelled);
        assert_eq!(
            (outer.source.as_str(), outer.destination.as_str(), outer.protocol),
            ("192.0.2.1", "192.0.2.2", 47)
        );
        assert_eq!((&tunnelled[34..42], back.len()), (&[0x20, 0, 8, 0, 0, 0, 0, 77][..], 0));
        assert_eq!(
            (&tunnelled[..6], &tunnelled[6..12]),
            (&[2, 0, 0, 0, 0, 0xFE][..], &[2, 0, 0, 0, 0, 0x11][..])
        );
        let inner = ip_at(&tunnelled, 42);
        assert_eq!((inner.source.as_str(), inner.destination.as_str(), inner.ttl), (LINE1, "8.8.8.8", 63));
        // The provider's answer comes back in the session.
        let tunnel = || ethernet().destination(CORE).ipv4("192.0.2.2", "192.0.2.1").gre().key(77);
        let [back, _] =
            bras.send(1, [frame(tunnel().ipv4("8.8.8.8", LINE1).udp(6000, 5000).payload(b"answer"))]);
        let answer = only(&back);
        assert_eq!((&answer[..6], u16_at(answer, 12), u16_at(answer, 16)), (&first.mac[..], 0x8864, 1));
        assert_eq!((u16_at(answer, 20), ip_at(answer, 22).destination.as_str()), (0x21, LINE1));
        assert!(answer.ends_with(b"answer"));
        // A near network is reached without the tunnel.
        let [_, out] = bras.send(0, [first.packet(LINE1, "198.51.100.9", 50)]);
        assert_eq!((ip(only(&out)).source.as_str(), ip(&out[0]).protocol), (LINE1, 17));
        let plain = frame(ethernet().destination(CORE).ipv4("198.51.100.9", LINE2).udp(1, 2));
        assert_eq!(u16_at(only(&bras.send(1, [plain])[0]), 16), 2);
        // One subscriber reaches the other, and the concentrator itself.
        let [back, _] = bras.send(0, [first.packet(LINE1, LINE2, 50)]);
        assert_eq!((&only(&back)[..6], u16_at(&back[0], 16)), (&[2, 0, 0, 0, 1, 2][..], 2));
        let ping = frame(ethernet().ipv4(LINE1, "100.64.0.1").icmp_echo_request(1, 1));
        let [back, _] = bras.send(0, [first.session_frame(&[&[0, 0x21], &ping[14..]].concat())]);
        assert_eq!(only(&back)[42], 0);
    });
}

#[test]
fn a_bras_checks_sessions_and_addresses() {
    each("bras.click", |bras| {
        let [first, second] = connected(bras);
        let strange = Host { mac: [2, 0, 0, 0, 1, 9], session: 1 };
        let unknown = Host { mac: first.mac, session: 7 };
        let frames = [
            first.packet("100.64.0.99", "8.8.8.8", 50),
            first.packet(LINE2, "8.8.8.8", 50),
            strange.packet(LINE1, "8.8.8.8", 50),
            unknown.packet(LINE1, "8.8.8.8", 50),
            frame(ethernet().ipv4(LINE1, "8.8.8.8").udp(1, 2)),
        ];
        for sent in frames {
            let before = bras.ended();
            assert_eq!(bras.send(0, [sent]).map(|out| out.len()), [0, 0]);
            assert_eq!(bras.ended() - before, 1);
        }
        let key = frame(
            ethernet()
                .destination(CORE)
                .ipv4("192.0.2.2", "192.0.2.1")
                .gre()
                .key(1)
                .ipv4("8.8.8.8", LINE1)
                .udp(1, 2),
        );
        assert_eq!(bras.send(1, [key]).map(|out| out.len()), [0, 0]);
        // A third host finds no room until one ends its session.
        let (third, refusal) = Host::discover(bras, 3);
        assert_eq!((third.session, tag(&refusal, 0x0202).is_some()), (0, true));
        bras.send(0, [pppoe(&ACCESS, &second.mac, 0x8863, 0xA7, 2, &[])]);
        assert_eq!(bras.send(0, [second.packet(LINE2, "8.8.8.8", 50)])[1].len(), 0);
        assert_eq!(bras.read("discovery.count"), "1");
    });
}

#[test]
fn a_bras_holds_lines_to_their_rate() {
    with("bras.click", &["RATE=10000"], |bras| {
        let [first, second] = connected(bras);
        // A line may use at once what it did not use in the last second.
        let [_, out] = bras.send(0, vec![first.packet(LINE1, "8.8.8.8", 972); 50]);
        let over: usize = bras.read("line1/over_up.count").parse().expect("a number");
        assert!((10..=11).contains(&out.len()), "{}", out.len());
        assert_eq!(out.len() + over, 50);
        // The other line has its own.
        assert_eq!(bras.send(0, [second.packet(LINE2, "8.8.8.8", 972)])[1].len(), 1);
        let down =
            || frame(ethernet().destination(CORE).ipv4("198.51.100.9", LINE1).udp(1, 2).payload(&[0; 972]));
        let [back, _] = bras.send(1, vec![down(); 50]);
        let over: usize = bras.read("line1/over_down.count").parse().expect("a number");
        assert!((10..=11).contains(&back.len()) && back.len() + over == 50, "{}", back.len());
    });
}
