//! The crate's walks held against naive ones, which share no code with them: options, extension headers, flow keys, and
//! usual frames. Fuzz targets and tests call these with bytes that nobody vouches for; none of these may panic.

use std::fmt::Debug;

use netbricks_packet::ip::FIRST_FRAGMENT;
use netbricks_packet::print::{self, Protocol};
use netbricks_packet::stack::{Header, Layer, NOTHING, Root, Stack, Usual};
use netbricks_packet::tcp_options::{TcpOption, TcpOptions};
use netbricks_packet::{Ethernet, FlowKey, HashKey, Icmpv4, Ip, Ipv4, Ipv6, Link, Tcp, Udp};

/// Kind and data of every option of an IPv4 or TCP header (RFC 791 section 3.1, RFC 9293 section 3.2), and whether the
/// walk ended at a length that lies.
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

/// What an iterator of options yields: the options, and whether an error came last. Panics where it goes on after an
/// error or its end, or yields more than fits.
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

/// TCP options, whatever their lengths claim: each is where a naive walk finds it, and says what its bytes say.
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

/// What a naive walk over extension headers finds (RFC 8200 section 4, RFC 4302 section 2.2).
struct Extensions<'a> {
    headers: Vec<(u8, &'a [u8])>,
    /// The number after the last.
    protocol: u8,
    /// Offset (units of 8 bytes) and whether more follow, by the last fragment header.
    fragment: Option<(u16, bool)>,
}

/// `None` where a header ends beyond the bytes, or there are more than 16.
fn extensions(kind: u8, bytes: &[u8]) -> Option<Extensions<'_>> {
    let mut walk = Extensions { headers: Vec::new(), protocol: kind, fragment: None };
    let mut at = 0;
    while matches!(walk.protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
        if walk.headers.len() == 16 {
            return None;
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
        50 | 59 => NOTHING,
        protocol if more => FIRST_FRAGMENT | u16::from(protocol),
        protocol => u16::from(protocol),
    };
    assert_eq!(layer.next(), next);
}

/// A frame's flow key against its dissection, and what every key promises. Answers whether the frame has one.
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

/// Whether a frame is usual. If so, whoever knows finds every header where whoever looks finds it.
pub fn usual(frame: &[u8]) -> bool {
    let Some(usual) = Usual::of(frame) else { return false };
    let mut other = frame.to_vec();
    other[Usual::BYTES..].iter_mut().for_each(|byte| *byte = !*byte);
    assert_eq!(Usual::of(&other), Some(usual), "it looks beyond the bytes that it names");
    let link = alike::<_, Link>(Root, Root, frame, usual).unwrap();
    let ethernet = alike::<_, Ethernet>(Root, Root, frame, usual).unwrap();
    assert!(alike::<_, Ipv4>(link.0, link.1, frame, usual).is_some());
    assert!(alike::<_, Ipv4>(ethernet.0, ethernet.1, frame, usual).is_some());
    assert!(alike::<_, Ip>(ethernet.0, ethernet.1, frame, usual).is_some());
    let (plain, known) = alike::<_, Ip>(link.0, link.1, frame, usual).unwrap();
    // Further in nothing is known, also not of IP within IP.
    alike::<_, Udp>(plain, known, frame, usual);
    alike::<_, Tcp>(plain, known, frame, usual);
    alike::<_, Icmpv4>(plain, known, frame, usual);
    alike::<_, Ip>(plain, known, frame, usual);
    true
}

/// Parses `H` by looking and by knowing; both must agree, also after they waited packed.
fn alike<P: Stack, H: Header<Facts: PartialEq + Debug>>(
    plain: P,
    known: P,
    frame: &[u8],
    usual: Usual,
) -> Option<(Layer<P, H>, Layer<P, H>)> {
    let plain = Layer::<P, H>::parse(plain, frame);
    let known = Layer::<P, H>::parse_in(known, frame, Some(usual));
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

/// Two ports are in a usual frame's packet, whatever padding follows it: totals of 24 bytes to the frame's end.
#[test]
fn a_usual_frame_has_room_for_ports_inside_its_packet() {
    let mut frame = [0; 60];
    (frame[12], frame[14]) = (8, 0x45);
    for total in 0..=u16::MAX {
        [frame[16], frame[17]] = total.to_be_bytes();
        assert_eq!(Usual::of(&frame).is_some(), (24..=46).contains(&total), "{total}");
    }
    let mut long = vec![0; 80_000];
    long[..60].copy_from_slice(&frame);
    for total in 0..=u16::MAX {
        [long[16], long[17]] = total.to_be_bytes();
        assert_eq!(Usual::of(&long).is_some(), total >= 24, "{total}");
    }
}
