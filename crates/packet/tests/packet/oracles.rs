//! The crate's walks compared with naive ones, which share no code with them.
//!
//! They cover options, extension headers, flow keys, and usual frames. Fuzz targets and tests call these with
//! untrusted bytes; none of these may panic.

use std::fmt::Debug;

use netbricks_packet::ip::FIRST_FRAGMENT;
use netbricks_packet::print::{self, Protocol};
use netbricks_packet::stack::{Header, Layer, NOTHING, Root, Stack, Usual, shape};
use netbricks_packet::tcp_options::{TcpOption, TcpOptions};
use netbricks_packet::{Ethernet, FlowKey, HashKey, Icmpv4, Ip, Ipv4, Ipv6, Link, Tcp, Udp, Vlan, protocol};

/// Kind and data of every option of an IPv4 or TCP header.
///
/// Also whether the walk ended at a wrong length. See RFC 791, section 3.1, and RFC 9293, section 3.2.
fn options(bytes: &[u8]) -> (Vec<(u8, &[u8])>, bool) {
    let (mut at, mut options) = (0, Vec::new());
    while at < bytes.len() && bytes[at] != 0 {
        if bytes[at] == 1 {
            at += 1;
            continue;
        }
        let length = bytes.get(at + 1).map_or(0, |length| usize::from(*length));
        if length < 2 || at + length > bytes.len() {
            return (options, true);
        }
        options.push((bytes[at], &bytes[at + 2..at + length]));
        at += length;
    }
    (options, false)
}

/// The options that an iterator yields, and whether an error came last.
///
/// Panics if the iterator goes on after an error or its end, or yields more than fits.
fn collect<T, E>(mut iterator: impl Iterator<Item = Result<T, E>>, bytes: &[u8]) -> (Vec<T>, bool) {
    let (mut found, mut lies) = (Vec::new(), false);
    for option in iterator.by_ref() {
        assert!(!lies, "an option after the error");
        match option {
            Ok(option) => found.push(option),
            Err(_) => lies = true,
        }
        assert!(found.len() * 2 <= bytes.len(), "more options than fit");
    }
    assert!(iterator.next().is_none(), "it goes on after its end");
    (found, lies)
}

/// TCP options with any lengths are found at the same places as in a naive walk.
///
/// Each has the value of its bytes.
pub fn tcp_options(bytes: &[u8]) {
    let (found, lies) = collect(TcpOptions::new(bytes), bytes);
    for option in &found {
        let known = !matches!(option, TcpOption::Unknown { .. });
        let (kind, data) = written(*option);
        let fits = match kind {
            2 => data.len() == 2,
            3 => data.len() == 1,
            4 => data.is_empty(),
            5 => !data.is_empty() && data.len().is_multiple_of(8),
            8 => data.len() == 8,
            19 => data.len() == 16,
            29 => data.len() >= 2,
            30 => !data.is_empty(),
            34 => true,
            _ => false,
        };
        assert_eq!(known, fits, "kind {kind} with {} bytes", data.len());
    }
    let found: Vec<_> = found.into_iter().map(written).collect();
    let (expected, expected_lies) = options(bytes);
    let expected: Vec<_> = expected.into_iter().map(|(kind, data)| (kind, data.to_vec())).collect();
    assert_eq!((found, lies), (expected, expected_lies));
}

/// Kind and data as they stand on the wire.
fn written(option: TcpOption<'_>) -> (u8, Vec<u8>) {
    match option {
        TcpOption::MaximumSegmentSize(size) => (2, size.to_be_bytes().to_vec()),
        TcpOption::WindowScale(shift) => (3, vec![shift]),
        TcpOption::SackPermitted => (4, Vec::new()),
        TcpOption::Sack(blocks) => {
            let ends = blocks.iter().flat_map(|(first, next)| [first, next]);
            (5, ends.flat_map(u32::to_be_bytes).collect())
        }
        TcpOption::Timestamps { value, echo_reply } => {
            (8, [value, echo_reply].into_iter().flat_map(u32::to_be_bytes).collect())
        }
        TcpOption::FastOpen(cookie) => (34, cookie.to_vec()),
        TcpOption::Mptcp { subtype, data } => {
            assert_eq!(Some(subtype), data.first().map(|first| first >> 4));
            (30, data.to_vec())
        }
        TcpOption::Md5(digest) => (19, digest.to_vec()),
        TcpOption::Authentication { key_id, next_key_id, code } => {
            (29, [&[key_id, next_key_id], code].concat())
        }
        TcpOption::Unknown { kind, data } => (kind, data.to_vec()),
    }
}

/// The first 40 bytes as the options of an IPv4 header, the others as its payload.
pub fn ipv4_options(bytes: &[u8]) {
    let (front, payload) = bytes.split_at(bytes.len().min(40));
    let mut packet = [&[0; 20][..], front].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    let end = packet.len();
    packet.extend(payload.iter().take(1_500));
    packet[0] = 0x40 | (end / 4) as u8;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let layer = Layer::<Root, Ipv4>::parse(Root, &packet).unwrap();
    assert_eq!((layer.end(), layer.limit(packet.len())), (end, packet.len()));
    let view = Ipv4::view(&packet[..end], ());
    assert_eq!(view.options_bytes(), &packet[20..end]);
    let (found, lies) = collect(view.options(), view.options_bytes());
    let found: Vec<_> = found.into_iter().map(|option| (option.kind, option.data)).collect();
    assert_eq!((found, lies), options(view.options_bytes()));
}

/// The results of a naive walk over extension headers (RFC 8200 section 4, RFC 4302 section 2.2).
struct Extensions<'a> {
    headers: Vec<(u8, &'a [u8])>,
    /// The number after the last.
    protocol: u8,
    /// Offset (units of 8 bytes) and whether more follow, by the last fragment header.
    fragment: Option<(u16, bool)>,
}

/// `None` where a header ends beyond the bytes. Behind 16 of them it looks no further.
fn extensions(kind: u8, bytes: &[u8]) -> Option<Extensions<'_>> {
    let mut walk = Extensions { headers: Vec::new(), protocol: kind, fragment: None };
    let mut at = 0;
    while matches!(walk.protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
        if walk.headers.len() == 16 {
            return Some(walk);
        }
        let length = usize::from(*bytes.get(at + 1)?);
        let size = match walk.protocol {
            44 => 8,
            51 => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        let header = bytes.get(at..at + size)?;
        walk.headers.push((walk.protocol, header));
        let is_fragment = walk.protocol == 44;
        walk.protocol = header[0];
        at += size;
        if is_fragment {
            let offset = u16::from_be_bytes([header[2], header[3]]) >> 3;
            walk.fragment = Some((offset, header[3] & 1 == 1));
            if offset != 0 {
                break;
            }
        }
    }
    Some(walk)
}

/// The first byte as an IPv6 header's "next header", the others as its payload.
pub fn ipv6_extensions(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let rest = &rest[..rest.len().min(65_535)];
    let mut packet = [&[0; 40][..], rest].concat();
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    packet[6] = kind;
    let expected = extensions(kind, rest);
    let Ok(layer) = Layer::<Root, Ipv6>::parse(Root, &packet) else {
        // A jumbo payload length beside this payload length is refused too (RFC 2675 section 3).
        let jumbo = kind == 0 && rest.windows(2).any(|bytes| bytes == [0xc2, 4]);
        assert!(expected.is_none() || jumbo, "refused, and nothing is wrong with it");
        return;
    };
    let expected = expected.unwrap();
    let view = Ipv6::view(&packet[..layer.end()], layer.top().1);
    let found: Vec<_> = view.extensions().map(|extension| (extension.kind, extension.bytes)).collect();
    assert_eq!(found, expected.headers);
    assert!(view.extensions().all(|extension| extension.next == extension.bytes[0]));
    let size: usize = expected.headers.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((layer.end(), layer.limit(packet.len())), (40 + size, packet.len()));
    assert_eq!(view.protocol(), expected.protocol);
    let (offset, more) = expected.fragment.unwrap_or_default();
    assert_eq!((view.fragment_offset(), view.more_fragments()), (offset, more));
    assert_eq!((view.is_later_fragment(), view.is_fragment()), (offset != 0, offset != 0 || more));
    let next = match expected.protocol {
        _ if offset != 0 => NOTHING,
        // More extension headers come, and are not looked at.
        0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => NOTHING,
        50 | 59 => NOTHING,
        protocol if more && cuts_its_header(protocol, &rest[size..]) => NOTHING,
        protocol if more => FIRST_FRAGMENT | u16::from(protocol),
        protocol => u16::from(protocol),
    };
    assert_eq!(layer.next(), next);
}

/// Whether a transport header goes on behind these bytes (RFC 9293, RFC 768, RFC 4443).
fn cuts_its_header(protocol: u8, bytes: &[u8]) -> bool {
    match protocol {
        6 => bytes.len() < 20 || bytes.len() < usize::from(bytes[12] >> 4) * 4,
        1 | 17 | 58 => bytes.len() < 8,
        _ => false,
    }
}

/// Compares a frame's flow key with its dissection, and checks the guarantees of every key.
///
/// Answers whether the frame has a key.
pub fn flow(frame: &[u8]) -> bool {
    let Some(key) = FlowKey::from_frame(frame) else { return false };
    assert_eq!(FlowKey::from_words(key.words()), key);
    assert_eq!(key.reversed().reversed(), key);
    assert_eq!(key.canonical(), key.reversed().canonical());
    assert_eq!((key.reversed().source(), key.reversed().destination()), (key.destination(), key.source()));
    let hash = HashKey::new([1, 2]);
    assert_eq!(hash.symmetric(&key), hash.symmetric(&key.reversed()));
    let dissection = print::dissect(frame);
    let mut layers =
        dissection.layers().skip_while(|layer| !matches!(layer.protocol, Protocol::Ipv4 | Protocol::Ipv6));
    let ip = layers.next().unwrap();
    if ip.protocol == Protocol::Ipv4 {
        let address = |at: usize| <[u8; 4]>::try_from(&ip.bytes[at..at + 4]).unwrap();
        assert_eq!((key.source(), key.destination()), (address(12).into(), address(16).into()));
        assert_eq!((key.protocol(), key.is_v6()), (ip.bytes[9], false));
    } else {
        let address = |at: usize| <[u8; 16]>::try_from(&ip.bytes[at..at + 16]).unwrap();
        assert_eq!((key.source(), key.destination()), (address(8).into(), address(24).into()));
        let walk = extensions(ip.bytes[6], &ip.bytes[40..]).unwrap();
        assert_eq!((key.protocol(), key.is_v6()), (walk.protocol, true));
    }
    if let Some(transport) = layers.next().filter(|l| matches!(l.protocol, Protocol::Tcp | Protocol::Udp)) {
        let port = |at| u16::from_be_bytes([transport.bytes[at], transport.bytes[at + 1]]);
        assert_eq!((key.source_port(), key.destination_port(), key.is_fragment()), (port(0), port(2), false));
    }
    true
}

/// Of which shape a frame is, said naively.
fn expected_shape(frame: &[u8]) -> u8 {
    let number = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let (ip, tagged) = match number(12) {
        Some(0x8100 | 0x88a8 | 0x9100) => (18, true),
        _ => (14, false),
    };
    let room = frame.len().saturating_sub(ip);
    let stated = |at: usize, header: usize| number(ip + at).map_or(0, |length| usize::from(length) + header);
    let whole = |total: usize, header: usize| (header + 4..=room).contains(&total);
    match (number(ip - 2), frame.get(ip)) {
        (Some(0x0800), Some(0x45)) if whole(stated(2, 0), 20) => {
            if tagged {
                shape::TAGGED_V4
            } else {
                shape::V4
            }
        }
        (Some(0x86dd), Some(0x60..=0x6f)) if whole(stated(4, 40), 40) => {
            if [6, 17, 58].contains(&frame[ip + 6]) { shape::V6 } else { shape::ANY }
        }
        _ => shape::ANY,
    }
}

/// The shape of a frame, if it has a usual one.
///
/// Code that knows the shape finds every header at the same place as code that parses the frame.
pub fn usual(frame: &[u8]) -> Option<u8> {
    let shapes = [
        (shape::V4, usual_as::<{ shape::V4 }>(frame)),
        (shape::TAGGED_V4, usual_as::<{ shape::TAGGED_V4 }>(frame)),
        (shape::V6, usual_as::<{ shape::V6 }>(frame)),
    ];
    let found: Vec<u8> = shapes.iter().filter(|(_, usual)| *usual).map(|(shape, _)| *shape).collect();
    let expected = expected_shape(frame);
    assert_eq!(found, if expected == shape::ANY { vec![] } else { vec![expected] });
    assert_eq!(Usual::of::<{ shape::ANY }>(frame), None);
    found.first().copied()
}

fn usual_as<const SHAPE: u8>(frame: &[u8]) -> bool {
    let Some(usual) = Usual::of::<SHAPE>(frame) else { return false };
    let mut other = frame.to_vec();
    other[Usual::BYTES..].iter_mut().for_each(|byte| *byte = !*byte);
    assert_eq!(Usual::of::<SHAPE>(&other), Some(usual), "it looks beyond the bytes that it names");
    if SHAPE == shape::V4 {
        let is_fragment = u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff != 0;
        assert_eq!(Usual::has_ports(frame), protocol::has_ports(frame[23]) && !is_fragment);
    }
    let link = alike::<SHAPE, _, Link>(Root, Root, frame, usual).unwrap();
    let ethernet = alike::<SHAPE, _, Ethernet>(Root, Root, frame, usual).unwrap();
    let (plain, known) = alike::<SHAPE, _, Ip>(link.0, link.1, frame, usual).unwrap();
    if SHAPE == shape::V6 {
        assert!(alike::<SHAPE, _, Ipv6>(link.0, link.1, frame, usual).is_some());
    } else {
        assert!(alike::<SHAPE, _, Ipv4>(link.0, link.1, frame, usual).is_some());
    }
    if ethernet.0.next() == link.0.next() {
        assert!(alike::<SHAPE, _, Ip>(ethernet.0, ethernet.1, frame, usual).is_some());
    } else {
        let tag = alike::<SHAPE, _, Vlan>(ethernet.0, ethernet.1, frame, usual).unwrap();
        assert!(alike::<SHAPE, _, Ip>(tag.0, tag.1, frame, usual).is_some());
    }
    let retraced = Layer::<_, Ip>::retrace::<SHAPE>(Layer::<_, Link>::retrace::<SHAPE>(Root, frame), frame);
    assert_eq!((retraced.top(), retraced.end()), (plain.top(), plain.end()));
    assert_eq!((retraced.limit(frame.len()), retraced.next()), (plain.limit(frame.len()), plain.next()));
    // Further in nothing is known, also not of IP within IP.
    alike::<SHAPE, _, Udp>(plain, known, frame, usual);
    alike::<SHAPE, _, Tcp>(plain, known, frame, usual);
    alike::<SHAPE, _, Icmpv4>(plain, known, frame, usual);
    alike::<SHAPE, _, Ip>(plain, known, frame, usual);
    true
}

/// Parses `H` by looking and by knowing; both must agree, also after they waited packed.
fn alike<const SHAPE: u8, P: Stack, H: Header<Facts: PartialEq + Debug>>(
    plain: P,
    known: P,
    frame: &[u8],
    usual: Usual,
) -> Option<(Layer<P, H>, Layer<P, H>)> {
    let plain = Layer::<P, H>::parse(plain, frame);
    let known = Layer::<P, H>::parse_in::<SHAPE>(known, frame, Some(usual));
    let shape = |layer: Layer<P, H>| {
        let outer = layer.outer();
        (
            layer.top(),
            layer.end(),
            layer.limit(frame.len()),
            layer.next(),
            outer.end(),
            outer.limit(frame.len()),
        )
    };
    assert_eq!(plain.map(shape), known.map(shape), "{}", H::NAME);
    let packed = known.map(|layer| shape(Stack::unpack(layer.pack())));
    assert_eq!(packed, known.map(shape), "{}, packed and unpacked", H::NAME);
    plain.ok().zip(known.ok())
}

/// A usual frame's packet has room for two ports, with any padding behind it.
///
/// The cases are lengths of 4 bytes behind the header, to the frame's end.
#[test]
fn a_usual_frame_has_room_for_ports_inside_its_packet() {
    let v4 = |ip: usize| {
        let mut frame = vec![0; ip + 46];
        frame[12..14].copy_from_slice(&[0x81, 0]);
        frame[ip - 2..ip + 1].copy_from_slice(&[8, 0, 0x45]);
        (frame, ip + 2, 24)
    };
    let v6 = |ip: usize| {
        let mut frame = vec![0; ip + 40 + 26];
        frame[12..14].copy_from_slice(&[0x81, 0]);
        frame[ip - 2..ip + 1].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[ip + 6] = 17;
        (frame, ip + 4, 4)
    };
    for (frame, length, least) in [v4(14), v4(18), v6(14), v6(18)] {
        let most = least + 22;
        for stated in 0..=u16::MAX {
            let mut frame = frame.clone();
            frame[length..length + 2].copy_from_slice(&stated.to_be_bytes());
            assert_eq!(usual(&frame).is_some(), (least..=most).contains(&stated), "{stated}");
        }
        let mut long = vec![0; 80_000];
        long[..frame.len()].copy_from_slice(&frame);
        for stated in (0..200).chain((200..=u16::MAX).step_by(997)).chain([u16::MAX]) {
            long[length..length + 2].copy_from_slice(&stated.to_be_bytes());
            assert_eq!(usual(&long).is_some(), stated >= least, "{stated}");
        }
    }
}
