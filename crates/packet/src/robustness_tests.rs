//! Every parser and every accessor over random and damaged bytes: an answer or an error, never a panic.

extern crate std;
use std::vec::Vec;

use crate::ip::IpMut;
use crate::oracle::{self, Random};
use crate::stack::{Found, Header, Layer, NOTHING, Root, Stack};
use crate::{Arp, Ethernet, FlowKey, Icmpv4, Icmpv6, Ip, IpRef, Ipv4, Ipv6, Link, Tcp, Udp, Vlan};

/// The header found and its payload.
type Parsed<'a, H> = Option<(Found<<H as Header>::Facts>, &'a [u8], &'a [u8])>;

/// Parses, checks the guarantees of a parse, and returns header and payload.
fn parse<H: Header>(bytes: &[u8], announced: u16) -> Parsed<'_, H> {
    let found = H::find(bytes, announced).ok()?;
    let end = found.total.unwrap_or(bytes.len());
    assert!(found.len <= end && end <= bytes.len(), "{}: {} <= {end} <= {}", H::NAME, found.len, bytes.len());
    Some((found, &bytes[..found.len], &bytes[found.len..end]))
}

fn read_all(table: &[crate::field::Field], bytes: &[u8]) {
    assert!(table.iter().all(|field| field.read(bytes).is_some()));
}

fn transport(number: u16, bytes: &[u8]) {
    if let Some((_, header, _)) = parse::<Tcp>(bytes, number) {
        let view = Tcp::view(header, ());
        read_all(Tcp::TABLE, header);
        assert!(view.options().count() <= 40);
        let mut copy = Vec::from(header);
        Tcp::view_mut(&mut copy, ()).clamp_maximum_segment_size(500);
    }
    if let Some((_, header, _)) = parse::<Udp>(bytes, number) {
        read_all(Udp::TABLE, header);
        let mut copy = Vec::from(header);
        Udp::set_total(Udp::view_mut(&mut copy, ()), bytes.len());
    }
    if let Some((_, header, payload)) = parse::<Icmpv4>(bytes, number) {
        read_all(Icmpv4::TABLE, header);
        if let Some(quoted) = Icmpv4::view(header, ()).quoted(payload) {
            assert!(quoted.header_len() + quoted.transport().len() <= payload.len());
            let _ = (quoted.flow(), quoted.extensions().count(), quoted.ip().ttl());
        }
    }
    if let Some((_, header, payload)) = parse::<Icmpv6>(bytes, number) {
        let view = Icmpv6::view(header, ());
        if let Some(quoted) = view.quoted(payload) {
            let _ = (quoted.flow(), quoted.extensions().count(), quoted.ip().ttl());
        }
        if let Ok(Some(message)) = view.neighbor(payload) {
            assert!(message.options().count() <= payload.len());
        }
    }
}

fn network(announced: u16, bytes: &[u8]) {
    let Some((found, header, payload)) = parse::<Ip>(bytes, announced) else { return };
    let view = Ip::view(header, found.facts);
    let _ = (view.ttl(), view.protocol(), view.source(), view.destination(), view.dscp(), view.ecn());
    assert!(view.is_fragment() || !view.is_later_fragment());
    match view {
        IpRef::V4(view) => {
            read_all(Ipv4::TABLE, header);
            assert!(view.options().count() <= 40);
            let _ = view.checksum_is_valid();
        }
        IpRef::V6(view) => {
            read_all(Ipv6::TABLE, header);
            let walked: usize = view.extensions().map(|extension| extension.bytes.len()).sum();
            assert_eq!(walked + 40, header.len());
            let _ = (view.fragment_offset(), view.more_fragments(), view.identification());
        }
    }
    let key = FlowKey::of(view, payload);
    assert_eq!(key.is_fragment(), view.is_later_fragment());
    if found.next != NOTHING {
        transport(found.next, payload);
    }
    let mut copy = Vec::from(header);
    let mut writing: IpMut<'_> = Ip::view_mut(&mut copy, found.facts);
    writing.decrement_ttl();
    writing.set_dscp(9);
    writing.set_ttl(7);
    assert_eq!((writing.ttl(), writing.as_ref().dscp()), (7, 9));
    Ip::announce(Ip::view_mut(&mut copy, found.facts), 99);
    Ip::set_total(Ip::view_mut(&mut copy, found.facts), header.len() + 3);
    // The bytes that were written move no boundary: views read the same places as before.
    let _ = Ip::view(&copy, found.facts).protocol();
}

fn frame(bytes: &[u8]) {
    let _ = FlowKey::from_frame(bytes);
    parse::<Ethernet>(bytes, 0);
    parse::<Vlan>(bytes, 0x8100);
    parse::<Arp>(bytes, 0x0806);
    let Some((found, header, payload)) = parse::<Link>(bytes, 0) else { return };
    let view = Link::view(header, found.facts);
    let facts = (view.vlans().len(), view.labels().len(), view.pppoe().is_some());
    assert!(facts.0 + facts.1 <= 8);
    let mut copy = Vec::from(header);
    let mut writing = Link::view_mut(&mut copy, found.facts);
    writing.ethernet_mut().swap_addresses();
    writing.vlans_mut().iter_mut().for_each(|tag| tag.set_vid(1));
    writing.labels_mut().iter_mut().for_each(|label| label.set_label(1));
    Link::announce(Link::view_mut(&mut copy, found.facts), 0x86dd);
    Link::set_total(Link::view_mut(&mut copy, found.facts), bytes.len());
    if found.next != NOTHING {
        network(found.next, payload);
    }
    if let Ok(link) = Layer::<Root, Link>::parse(Root, bytes)
        && let Ok(ip) = Layer::<_, Ip>::parse(link, bytes)
    {
        assert!(
            link.end() <= ip.end()
                && ip.end() <= ip.limit(bytes.len())
                && ip.limit(bytes.len()) <= bytes.len()
        );
        ip.restate(&mut Vec::from(bytes));
    }
}

#[test]
fn damaged_packets_are_parsed_or_refused() {
    let mut random = Random(90);
    for _ in 0..150_000 {
        let sample = oracle::packet(&mut random);
        let link: &[u8] = match random.below(5) {
            0 => &[0x81, 0, 0, 1],
            1 => &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1],
            2 => &[0x88, 0x47, 0, 0, 1, 9],
            3 => &[0x88, 0x64, 0x11, 0, 0, 1, 0, 60, 0, 0x21],
            _ => &[],
        };
        let ethertype: &[u8] = if sample.v6 { &[0x86, 0xdd] } else { &[8, 0] };
        let mut bytes = [&[2; 12], link, ethertype, &sample.bytes].concat();
        oracle::mutate(&mut random, &mut bytes);
        frame(&bytes);
        let mut bytes = sample.bytes;
        oracle::mutate(&mut random, &mut bytes);
        network(0, &bytes);
    }
}

#[test]
fn noise_is_parsed_or_refused() {
    let mut random = Random(91);
    for _ in 0..150_000 {
        let size = random.below(120);
        let mut bytes = random.edgy(size);
        frame(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = [0x45, 0x4f, 0x60][random.below(3)];
        }
        network(0, &bytes);
        transport(0, &bytes);
    }
}
