//! Random frames from small pools of values: tags, both versions of IP, options, fragments, cut and odd ones.

use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

/// One of these.
pub(crate) fn one<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())].clone()
}

/// True once in `of` times.
pub(crate) fn rarely(random: &mut Random, of: usize) -> bool {
    random.below(of) == 0
}

pub(crate) const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 9], [192, 0, 2, 7], [203, 0, 113, 130]];
pub(crate) const V6_LAST: [u8; 3] = [1, 2, 9];
const PORTS: [u16; 6] = [80, 443, 4000, 4001, 4789, 2152];

/// The sum of 16-bit words (RFC 1071), of pieces of even length but for the last.
fn checksum(pieces: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0u64;
    for piece in pieces {
        for pair in piece.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

/// TCP options, padded; some are not well-formed.
pub(crate) fn options(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(5) {
        match random.below(14) {
            0..3 => bytes.extend([2, 4, one(random, &[2, 5]), one(random, &[24, 180, 220])]),
            3 => bytes.extend([3, 3, one(random, &[1, 7])]),
            4 => bytes.extend([4, 2]),
            5 => bytes.extend([5, 10, 0, 0, 0, 1, 0, 0, 0, one(random, &[9, 20])]),
            6..8 => bytes.extend([8, 10, 0, 0, 0, one(random, &[1, 2]), 0, 0, 0, 3]),
            8 => bytes.extend([22, 3, one(random, &[7, 8])]),
            9 => bytes.extend([34, 6, 1, 2, 3, 4]),
            10 => bytes.extend([30, 4, 0x10, 1]),
            11 => bytes.push(1),
            12 => bytes.extend([200, 2]),
            _ if rarely(random, 4) => bytes.extend(one(random, &[[2, 0], [3, 1], [8, 99], [2, 3], [5, 255]])),
            _ => bytes.extend([1, 1]),
        }
    }
    let fill = if rarely(random, 4) { 1 } else { 0 };
    bytes.resize(bytes.len().next_multiple_of(4).min(40), fill);
    bytes
}

fn payload(random: &mut Random) -> Vec<u8> {
    let length = one(random, &[0, 0, 1, 2, 5, 20, 63]);
    let start = one(random, &[&b"GET /index"[..], b"GET ", b"PUT x", b"\0\0\0\0"]);
    start.iter().copied().cycle().take(length).collect()
}

fn segment(random: &mut Random) -> Vec<u8> {
    let mut bytes = [one(random, &PORTS).to_be_bytes(), one(random, &PORTS).to_be_bytes()].concat();
    bytes.extend(one(random, &[0u32, 1, 0x89ab_cdef, 0xffff_ffff]).to_be_bytes());
    bytes.extend(one(random, &[0u32, 1, 0x7fff_0000]).to_be_bytes());
    let options = options(random);
    let flags = one(random, &[0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0xc2, 0xff, 0x00]);
    bytes.extend([((5 + options.len() / 4) << 4) as u8 | one(random, &[0, 0, 0, 1, 14]), flags]);
    bytes.extend([0xff, one(random, &[0, 0xff]), 0, 0, 0, one(random, &[0, 1])]);
    bytes.extend(options);
    bytes.extend(payload(random));
    bytes
}

fn datagram(random: &mut Random) -> Vec<u8> {
    let to = one(random, &[53, 80, 443, 4000, 4789, 6081, 2152]);
    let mut bytes = [one(random, &PORTS).to_be_bytes(), u16::to_be_bytes(to)].concat();
    let mut data = payload(random);
    if to > 2000 && rarely(random, 2) {
        data.splice(0..0, [one(random, &[8, 0x30, 0x34]), 255, 8, 0, 0, 0, one(random, &[1, 2]), 0]);
    }
    let length = match random.below(12) {
        0 => one(random, &[0, 7, 8, 9, 2000]),
        _ => 8 + data.len() as u16,
    };
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(data);
    bytes
}

fn message(random: &mut Random, is_v6: bool) -> Vec<u8> {
    let kinds: &[[u8; 2]] = match is_v6 {
        true => &[[128, 0], [129, 0], [2, 0], [1, 4], [135, 0]],
        false => &[[8, 0], [0, 0], [3, 4], [3, 1], [11, 0], [13, 0]],
    };
    let mut bytes = one(random, kinds).to_vec();
    bytes.extend([0, 0, 0, one(random, &[7, 8]), one(random, &[2, 5]), one(random, &[1, 220])]);
    bytes.extend(payload(random));
    bytes
}

/// GRE, with a checksum where its flag says so.
fn tunnel(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![one(random, &[0, 0x20, 0x80, 0xb0]), 0, 8, 0];
    if bytes[0] & 0x80 != 0 && !rarely(random, 4) {
        bytes.extend([0; 4]);
        bytes.extend(payload(random));
        let sum = checksum(&[&bytes]);
        bytes[4..6].copy_from_slice(&sum);
        return bytes;
    }
    let few = random.below(6);
    bytes.extend(payload(random).into_iter().take(few));
    bytes
}

/// The transport's bytes with its checksum, which is now and then wrong or left out.
fn checked(
    random: &mut Random,
    protocol: u8,
    mut bytes: Vec<u8>,
    source: &[u8],
    destination: &[u8],
) -> Vec<u8> {
    let offset = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return bytes,
    };
    if protocol == 17 && rarely(random, 5) {
        return bytes;
    }
    // Where UDP's length is less, it bounds what is covered.
    let stated = if protocol == 17 { usize::from(bytes[4]) << 8 | usize::from(bytes[5]) } else { 0 };
    let length = if (8..bytes.len()).contains(&stated) { stated } else { bytes.len() };
    let pseudo = [source, destination, &(length as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let mut sum = match protocol {
        1 => checksum(&[&bytes]),
        _ => checksum(&[&pseudo, &bytes[..length]]),
    };
    if protocol == 17 && sum == [0, 0] {
        sum = [0xff, 0xff];
    }
    if rarely(random, 8) {
        sum[random.below(2)] ^= one(random, &[0xff, 1, 0x80]);
    }
    bytes[offset..offset + 2].copy_from_slice(&sum);
    bytes
}

/// A protocol's number and bytes, without a checksum.
fn transport(random: &mut Random, is_v6: bool) -> (u8, Vec<u8>) {
    match random.below(20) {
        0..11 => (6, segment(random)),
        11..16 => (17, datagram(random)),
        16..18 => (if is_v6 { 58 } else { 1 }, message(random, is_v6)),
        18 => (47, tunnel(random)),
        _ => (one(random, &[50, 132, 59, 255]), payload(random)),
    }
}

fn v4(random: &mut Random) -> Vec<u8> {
    let (source, destination) = (one(random, &V4), one(random, &V4));
    let (mut protocol, bytes) = transport(random, false);
    let mut bytes = checked(random, protocol, bytes, &source, &destination);
    let options: &[u8] = match random.below(16) {
        0 => &[148, 4, 0, 0],
        1 => &[131, 7, 4, 10, 0, 0, 7, 0],
        2 => &[1, 137, 7, 8, 10, 0, 0, 7],
        _ => &[],
    };
    if rarely(random, 40) {
        bytes
            .splice(0..0, [protocol, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        protocol = 51;
    }
    let fragment: u16 = match random.below(14) {
        0 => 0x2000,
        1 => one(random, &[0x2001, 0x0002, 0x1fff]),
        _ => one(random, &[0, 0x4000, 0x8000]),
    };
    if fragment & 0x2000 != 0 && rarely(random, 3) {
        bytes.truncate(one(random, &[8, 16, 24]));
    }
    let mut header = vec![0x45 + (options.len() / 4) as u8, one(random, &[0, 1, 2, 3, 0xb8, 0xb9])];
    header.extend(((20 + options.len() + bytes.len()) as u16).to_be_bytes());
    header.extend([0, one(random, &[0, 7])]);
    header.extend(fragment.to_be_bytes());
    header.extend([one(random, &[1, 4, 64, 255]), protocol, 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.extend(options);
    let mut sum = checksum(&[&header]);
    if rarely(random, 12) {
        sum[1] ^= 0x11;
    }
    header[10..12].copy_from_slice(&sum);
    [header, bytes].concat()
}

/// Extension headers: kind, and bytes of which the first is written later.
fn extension(random: &mut Random) -> (u8, Vec<u8>) {
    match random.below(9) {
        0 => (0, vec![0, 0, 5, 2, 0, 0, 1, 0]),
        1 => (60, vec![0, 0, 1, 4, 0, 0, 0, 0]),
        2 => {
            let home = [&[0, 2, 1, 2, 0, 0, 201, 16][..], &[9; 16]].concat();
            (60, home)
        }
        3 => (43, [&[0, 2, one(random, &[0, 2]), one(random, &[0, 1]), 0, 0, 0, 0][..], &[8; 16]].concat()),
        4 => (44, vec![0, 0, 0, one(random, &[0, 1]), 0, 0, 0, 7]),
        5 => (44, vec![0, 0, 0, one(random, &[8, 9]), 0, 0, 0, 7]),
        6 => (51, [&[0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &[3; 12]].concat()),
        _ => (one(random, &[135, 139, 140]), vec![0; 8]),
    }
}

fn v6(random: &mut Random) -> Vec<u8> {
    let address = |random: &mut Random| {
        let mut address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        address[7] = one(random, &[0, 1]);
        address[15] = one(random, &V6_LAST);
        address
    };
    let (source, destination) = (address(random), address(random));
    let (protocol, bytes) = transport(random, true);
    let bytes = checked(random, protocol, bytes, &source, &destination);
    let count = match random.below(60) {
        0 => one(random, &[16, 17]),
        1..20 => 1,
        20..26 => 2,
        _ => 0,
    };
    let extensions: Vec<(u8, Vec<u8>)> = (0..count).map(|_| extension(random)).collect();
    let mut header = vec![0x60, one(random, &[0, 0x10, 0x30, 0xb0]), 0, one(random, &[0, 5]), 0, 0, 0];
    header.push(one(random, &[1, 64]));
    header.extend(source);
    header.extend(destination);
    let mut announcer = 6;
    for (kind, extension) in extensions {
        header[announcer] = kind;
        announcer = header.len();
        header.extend(extension);
    }
    header[announcer] = protocol;
    header.extend(bytes);
    let length = (header.len() - 40) as u16;
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header
}

/// A random frame.
pub(crate) fn frame(random: &mut Random) -> Vec<u8> {
    if rarely(random, 16) {
        let kinds = kinds::every();
        return kinds[random.below(kinds.len())].1.clone();
    }
    let is_v6 = rarely(random, 3);
    let packet = if is_v6 { v6(random) } else { v4(random) };
    let number: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
    let mut frame = vec![2, 0, 0, 0, 0, one(random, &[1, 2]), 2, 0, 0, 0, 0, one(random, &[3, 4])];
    match random.below(12) {
        0 => frame.extend([0x81, 0, one(random, &[0, 0x30]), one(random, &[7, 8])]),
        1 => frame.extend([0x88, 0xa8, 0, 7, 0x81, 0, 0x20, one(random, &[8, 9])]),
        2 => {
            frame.extend([0x88, 0x47, 0, 1, 0, 64, 0, 1, 1, 64]);
            frame.extend(&packet);
        }
        3 => {
            frame.extend([0x88, 0x64, 0x11, 0, 0, one(random, &[5, 6])]);
            frame.extend((2 + packet.len() as u16).to_be_bytes());
            frame.extend([0, if is_v6 { 0x57 } else { 0x21 }]);
            frame.extend(&packet);
        }
        _ => {}
    }
    if frame.len() <= 20 {
        frame.extend(number);
        frame.extend(packet);
    }
    if rarely(random, 4) {
        frame.resize(frame.len().max(60), 0);
    }
    match random.below(20) {
        0 => mutate(&mut frame, random),
        1 => {
            let length = random.below(frame.len());
            frame.truncate(length);
        }
        _ => {}
    }
    frame
}
