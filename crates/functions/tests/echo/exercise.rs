//! `icmp-echo` with arbitrary ICMPv6 messages under a right checksum.
//!
//! A message that must be answered gets one sound answer, and no other message gets any. Tests and a fuzz
//! target call this.

use netbricks_core::packet::icmpv6::kind;
use netbricks_core::packet::neighbor::Neighbor;
use netbricks_core::packet::print::{Protocol, dissect};
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{Icmpv6, Ip, Link};
use netbricks_core::{BuildError, Node, Worker, compose};
use netbricks_functions::icmp_echo::{EchoConfig, icmp_echo};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Report, checksums, run_node};

const US: &str = "2001:db8::2";
const THEM: &str = "2001:db8::1";
const OUR_GROUP: &str = "ff02::1:ff00:2";

fn echo(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = EchoConfig { mac: None, v4: Some([10, 0, 0, 2].into()), v6: US.parse().ok() };
    compose(worker, |input| icmp_echo(input, &config, worker))
}

fn run(frame: &[u8]) -> Report {
    let report = run_node(echo, [frame]);
    assert_eq!(report.panics, []);
    assert!(report.out.iter().all(|out| out == frame), "what passes is unchanged");
    assert!(report.replies.len() <= 1, "one packet has at most one answer");
    report
}

/// The bytes as a whole frame.
pub fn frame(bytes: &[u8]) {
    run(&bytes[..bytes.len().min(65_535)]);
}

/// The expected answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An advertisement to the asking host.
    Advertisement,
    /// The echo.
    Echo,
    /// No answer.
    Silence,
}

/// Runs a message and returns the answer that it must have, if that is certain.
///
/// The first byte gives source and destination. The others are the message: type, code, the next four bytes and the
/// payload.
pub fn message(bytes: &[u8]) -> Option<Answer> {
    let [choice, message_type, code, a, b, c, d, payload @ ..] = bytes else { return None };
    let payload = &payload[..payload.len().min(1_400)];
    let hops = if choice & 1 == 0 { 255 } else { 64 };
    let to = if choice & 2 == 0 { US } else { OUR_GROUP };
    let from = match choice & 12 {
        0 => THEM,
        4 => "ff02::7",
        _ => "::",
    };
    let packet = ethernet().ipv6(from, to).hop_limit(hops);
    let frame = packet.icmpv6(*message_type, *code, [*a, *b, *c, *d]).payload(payload).build().unwrap();
    let report = run(&frame);
    for reply in &report.replies {
        assert_eq!(checksums::wrong(reply), Vec::<String>::new());
    }
    let expected = expected(*message_type, *code, payload, (from, to, hops));
    match expected {
        Answer::Silence => assert_eq!(report.replies, Vec::<Vec<u8>>::new()),
        Answer::Echo => {
            let back =
                ethernet().source([2, 0x4e, 0x42, 0, 0, 1]).destination([2, 0, 0, 0, 0, 1]).ipv6(US, THEM);
            let back = back.icmpv6(kind::ECHO_REPLY, 0, [*a, *b, *c, *d]).payload(payload);
            assert_eq!(report.replies, [back.build().unwrap()]);
        }
        Answer::Advertisement => advertises(&report.replies[0], from),
    }
    Some(expected)
}

/// RFC 4861 section 7.1.1 and RFC 4443 section 4.2, written independently of the function.
fn expected(kind: u8, code: u8, payload: &[u8], (from, to, hops): (&str, &str, u8)) -> Answer {
    let target: std::net::Ipv6Addr = US.parse().unwrap();
    if kind == kind::NEIGHBOR_SOLICITATION && payload.get(..16) == Some(&target.octets()[..]) {
        let mut options = &payload[16..];
        let mut says_address = false;
        while let [kind, units, ..] = *options
            && units > 0
            && let Some(rest) = options.get(usize::from(units) * 8..)
        {
            says_address |= (kind, units) == (1, 1);
            options = rest;
        }
        let from_one = from == THEM || from == "::" && to == OUR_GROUP && !says_address;
        let valid = hops == 255 && code == 0 && options.is_empty() && from_one;
        return if valid { Answer::Advertisement } else { Answer::Silence };
    }
    let is_echo = (kind, code) == (kind::ECHO_REQUEST, 0) && to == US && from == THEM;
    if is_echo { Answer::Echo } else { Answer::Silence }
}

/// RFC 4861, section 7.2.4.
fn advertises(reply: &[u8], asked_from: &str) {
    let looked_for_duplicates = asked_from == "::";
    let back_to = if looked_for_duplicates { "ff02::1" } else { asked_from };
    assert!(dissect(reply).malformed().is_none(), "{:?}", dissect(reply));
    assert!(dissect(reply).layers().any(|layer| layer.protocol == Protocol::Icmpv6));
    let link = Layer::<_, Link>::parse(Root, reply).unwrap();
    let ip = Layer::<_, Ip>::parse(link, reply).unwrap();
    let icmp = Layer::<_, Icmpv6>::parse(ip, reply).unwrap();
    let addresses = Ip::view(&reply[ip.top().0..ip.end()], ip.top().1);
    let (us, them): (std::net::IpAddr, std::net::IpAddr) = (US.parse().unwrap(), back_to.parse().unwrap());
    assert_eq!((addresses.source(), addresses.destination(), addresses.ttl()), (us, them, 255));
    let header = Icmpv6::view(&reply[icmp.top().0..icmp.end()], ());
    match header.neighbor(&reply[icmp.end()..]).unwrap().unwrap() {
        Neighbor::NeighborAdvertisement { target, router, solicited, replaces, options } => {
            assert_eq!(
                (target, router, solicited, replaces),
                (US.parse().unwrap(), false, !looked_for_duplicates, true)
            );
            assert!(options.clone().count() == 1 && options.into_iter().all(|option| option.is_ok()));
        }
        other => panic!("{other:?} is no advertisement"),
    }
}
