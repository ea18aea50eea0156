//! Frames of every layer that the language knows, whole and cut.

/// A frame as a capture has it, with its bytes on the wire.
pub(crate) struct Captured {
    pub(crate) bytes: Vec<u8>,
    pub(crate) wire_len: usize,
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 1], &[2, 0, 0, 0, 0, 2], &kind.to_be_bytes(), payload])
}

fn to_group(mut frame: Vec<u8>, address: [u8; 6]) -> Vec<u8> {
    frame[..6].copy_from_slice(&address);
    frame
}

fn tag(id: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&id.to_be_bytes(), &kind.to_be_bytes(), payload])
}

fn label(label: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    join(&[&(label << 12 | u32::from(last) << 8 | 64).to_be_bytes(), payload])
}

fn pppoe(session: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 2) as u16;
    join(&[&[0x11, 0], &session.to_be_bytes(), &length.to_be_bytes(), &protocol.to_be_bytes(), payload])
}

/// An IPv4 packet with options of four bytes each and a fragment field.
fn ipv4(protocol: u8, options: usize, fragment: u16, destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (20 + 4 * options + payload.len()) as u16;
    join(&[
        &[0x45 + options as u8, 0],
        &length.to_be_bytes(),
        &[0, 1],
        &fragment.to_be_bytes(),
        &[64, protocol, 0, 0, 10, 1, 0, 1],
        &destination,
        &[1].repeat(4 * options),
        payload,
    ])
}

fn ipv6(next: u8, destination: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let source = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let length = (payload.len() as u16).to_be_bytes();
    join(&[&[0x60, 0, 0, 0], &length, &[next, 64], &source, &destination, payload])
}

const V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const V6_GROUP: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let head = join(&[&source.to_be_bytes(), &destination.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 2]]);
    join(&[&head, &[0x50, flags, 1, 0, 0, 0, 0, 0], b"data"])
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    join(&[&source.to_be_bytes(), &destination.to_be_bytes(), &length.to_be_bytes(), &[0, 0], payload])
}

/// A Geneve header with options of four bytes each.
fn geneve(version: u8, options: u8, protocol: u16, network: u32, payload: &[u8]) -> Vec<u8> {
    join(&[
        &[version << 6 | options, 0],
        &protocol.to_be_bytes(),
        &(network << 8).to_be_bytes(),
        &[0xab].repeat(4 * usize::from(options)),
        payload,
    ])
}

fn llc(payload: &[u8]) -> Vec<u8> {
    ethernet(payload.len() as u16, payload)
}

fn over_ipv4() -> Vec<Vec<u8>> {
    let to = [10, 2, 0, 2];
    vec![
        ipv4(6, 0, 0x4000, to, &tcp(1000, 80, 0x02)),
        ipv4(6, 2, 0, to, &tcp(443, 2000, 0x12)),
        ipv4(6, 10, 0, to, &tcp(22, 23, 0x11)),
        ipv4(6, 0, 0x2000, to, &tcp(80, 80, 0x18)),
        ipv4(6, 0, 0x0010, to, &tcp(80, 80, 0x18)),
        ipv4(17, 0, 0, [224, 0, 0, 5], &udp(53, 53, b"dns")),
        ipv4(17, 1, 0, [255, 255, 255, 255], &udp(68, 67, b"dhcp")),
        ipv4(17, 0, 0x2010, to, &udp(123, 123, b"ntp")),
        ipv4(132, 0, 0, to, &udp(80, 5060, b"sctp")),
        ipv4(1, 0, 0, to, &[8, 0, 0, 0, 0, 1, 0, 1]),
        ipv4(1, 3, 0, to, &[3, 1, 0, 0, 0, 0, 0, 0]),
        ipv4(2, 1, 0, [224, 0, 0, 1], &[0x11, 0, 0, 0, 0, 0, 0, 0]),
        ipv4(51, 0, 0, to, &join(&[&[6, 4, 0, 0], &[0; 20], &tcp(1, 80, 2)])),
        // Two authentication headers: the second is 32 bytes behind the start, as the length of the first says.
        ipv4(51, 0, 0, to, &[51, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 1, 2, 3]),
        ipv4(50, 0, 0, to, &[0; 8]),
        ipv4(103, 0, 0, to, &[0x20, 0, 0, 0]),
        ipv4(112, 0, 0, to, &[0x21, 1, 2, 3]),
        ipv4(89, 0, 0, [0; 4], &[2, 1, 0, 44]),
        ipv4(9, 0, 0, to, &[0x11, 1, 0, 44]),
    ]
}

fn over_ipv6() -> Vec<Vec<u8>> {
    let hop = |next: u8, payload: &[u8]| join(&[&[next, 0, 1, 4, 0, 0, 0, 0], payload]);
    let long = |next: u8, payload: &[u8]| join(&[&[next, 2], &[0; 22], payload]);
    let fragment = |next: u8, offset: u16, payload: &[u8]| {
        join(&[&[next, 0], &offset.to_be_bytes(), &[0, 0, 0, 1], payload])
    };
    let authentication = |next: u8, payload: &[u8]| join(&[&[next, 4], &[0; 22], payload]);
    vec![
        ipv6(6, V6, &tcp(1000, 80, 0x02)),
        ipv6(17, V6_GROUP, &udp(5353, 5353, b"mdns")),
        ipv6(132, V6, &udp(80, 5060, b"sctp")),
        ipv6(58, V6_GROUP, &[135, 0, 0, 0, 0, 0, 0, 0]),
        ipv6(58, V6, &[128, 0, 0, 0, 0, 1, 0, 1]),
        ipv6(0, V6, &hop(6, &tcp(1000, 80, 0x02))),
        ipv6(0, V6, &hop(43, &long(60, &hop(17, &udp(53, 53, b"dns"))))),
        ipv6(44, V6, &fragment(6, 1, &tcp(1000, 80, 0x02))),
        ipv6(44, V6, &fragment(58, 0x0100, &[0; 16])),
        ipv6(51, V6, &authentication(6, &tcp(1000, 80, 0x02))),
        ipv6(51, V6, &join(&[&[59, 10], &[0; 60]])),
        ipv6(59, V6, &[]),
        ipv6(103, V6, &[0x20, 0, 0, 0]),
        ipv6(50, V6, &[0; 12]),
    ]
}

fn over_llc() -> Vec<Vec<u8>> {
    let isis = |kind: u8| llc(&join(&[&[0xfe, 0xfe, 3, 0x83, 27, 1, 0, kind, 1, 0, 0], &[0; 20]]));
    let mut frames: Vec<Vec<u8>> = [15, 16, 17, 18, 20, 24, 25, 26, 27, 28].map(isis).into();
    frames.extend([
        llc(&[0xfe, 0xfe, 3, 0x81, 1, 2, 3, 4]),
        llc(&[0xfe, 0xfe, 3, 0x82, 1, 2, 3, 4]),
        llc(&[0x42, 0x42, 3, 0, 0, 0, 0, 0]),
        llc(&[0xe0, 0xe0, 3, 0xff, 0xff, 0, 0]),
        llc(&[0xff, 0xff, 0, 30, 0, 0, 0, 0]),
        llc(&[0xf0, 0xf0, 3, 0, 0]),
        llc(&[0x06, 0x06, 3, 0x45, 0]),
        llc(&[0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37, 1, 2]),
        llc(&[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b, 1, 2]),
        llc(&[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3, 1, 2]),
        llc(&[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 1, 2]),
    ]);
    for control in [0x00, 0x01, 0x05, 0x09, 0x03, 0x13, 0x63, 0x43, 0x6f, 0x7f, 0xe3, 0xaf, 0x87] {
        frames.push(llc(&[0x10, 0x10, control, 0, 0, 0]));
    }
    frames
}

fn decnet() -> Vec<Vec<u8>> {
    let short = [0x0b, 0, 0x02, 0x01, 0x28, 0x05, 0x28, 0, 0];
    let padded = [0x0c, 0, 0x81, 0x02, 0x01, 0x28, 0x05, 0x28, 0, 0];
    let long = |extra: &[u8]| {
        let source = [0xaa, 0, 4, 0, 0x05, 0x28];
        join(&[&[0x16, 0], extra, &[0x06, 0, 0, 0xaa, 0, 4, 0, 0x01, 0x28, 0, 0], &source, &[0, 0, 0, 0]])
    };
    [short.to_vec(), padded.to_vec(), long(&[]), long(&[0x81])].map(|body| ethernet(0x6003, &body)).into()
}

fn arp(kind: u16) -> Vec<u8> {
    let from = [2, 0, 0, 0, 0, 2, 10, 1, 0, 1];
    let body = join(&[&[0, 1, 8, 0, 6, 4, 0, 1], &from, &[0, 0, 0, 0, 0, 0, 10, 2, 0, 2]]);
    to_group(ethernet(kind, &body), [0xff; 6])
}

fn encapsulated(ipv4s: &[Vec<u8>], ipv6s: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (kind, ppp, ip) in ipv4s
        .iter()
        .map(|ip| (0x0800, 0x21, ip))
        .take(8)
        .chain(ipv6s.iter().map(|ip| (0x86dd, 0x57, ip)).take(6))
    {
        frames.push(ethernet(0x8100, &tag(0x2005, kind, ip)));
        frames.push(ethernet(0x88a8, &tag(5, 0x8100, &tag(6, kind, ip))));
        frames.push(ethernet(0x9100, &tag(6, kind, ip)));
        frames.push(ethernet(0x8847, &label(1000, true, ip)));
        frames.push(ethernet(0x8847, &label(1000, false, &label(3, true, ip))));
        frames.push(ethernet(0x8100, &tag(5, 0x8847, &label(3, true, ip))));
        frames.push(ethernet(0x8864, &pppoe(7, ppp, ip)));
        frames.push(ethernet(0x8100, &tag(5, 0x8864, &pppoe(7, ppp, ip))));
        frames.push(ethernet(0x8864, &pppoe(7, 0x0281, &label(3, true, ip))));
        let inner = ethernet(kind, ip);
        let tagged = ethernet(0x8100, &tag(5, kind, ip));
        let labelled = ethernet(0x8847, &label(3, true, ip));
        let session = ethernet(0x8864, &pppoe(7, ppp, ip));
        for payload in [
            geneve(0, 0, 0x6558, 5, &inner),
            geneve(0, 3, 0x6558, 6, &inner),
            geneve(0, 1, kind, 5, ip),
            geneve(1, 0, 0x6558, 5, &inner),
            geneve(0, 2, 0x6558, 5, &tagged),
            geneve(0, 0, 0x6558, 5, &labelled),
            geneve(0, 0, 0x6558, 5, &session),
        ] {
            let outer = udp(40000, 6081, &payload);
            frames.push(ethernet(0x0800, &ipv4(17, 0, 0, [10, 2, 0, 2], &outer)));
            frames.push(ethernet(0x0800, &ipv4(17, 2, 0, [10, 2, 0, 2], &outer)));
            frames.push(ethernet(0x86dd, &ipv6(17, V6, &outer)));
        }
    }
    frames
}

fn whole() -> Vec<Vec<u8>> {
    let (ipv4s, ipv6s) = (over_ipv4(), over_ipv6());
    let mut frames: Vec<Vec<u8>> = ipv4s.iter().map(|ip| ethernet(0x0800, ip)).collect();
    frames.extend(ipv6s.iter().map(|ip| ethernet(0x86dd, ip)));
    frames.extend(encapsulated(&ipv4s, &ipv6s));
    frames.extend(over_llc());
    frames.extend(decnet());
    frames.extend([arp(0x0806), arp(0x8035), ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0])]);
    frames.extend(
        [0x6001, 0x6002, 0x6004, 0x6007, 0x809b, 0x80f3, 0x8137, 0x9000, 0x05dc, 0x05dd]
            .map(|kind| ethernet(kind, &[1, 2, 3, 4, 5, 6, 7, 8])),
    );
    frames.push(to_group(ethernet(0x0800, &ipv4s[5]), [1, 0, 0x5e, 0, 0, 5]));
    for (protocol, body) in
        [(0x23, [0x83, 0, 0, 0, 17]), (0x23, [0x81, 0, 0, 0, 0]), (0x27, [0; 5]), (0x31, [0; 5])]
    {
        frames.push(ethernet(0x8864, &pppoe(7, protocol, &body)));
    }
    frames
}

/// All frames: whole, cut at every length up to 100 bytes, and longer on the wire than captured.
pub(crate) fn generated() -> Vec<Captured> {
    let mut all = Vec::new();
    for bytes in whole() {
        let wire_len = bytes.len();
        for cut in 0..wire_len.min(100) {
            all.push(Captured { bytes: bytes[..cut].to_vec(), wire_len });
        }
        all.push(Captured { bytes, wire_len });
    }
    all
}
