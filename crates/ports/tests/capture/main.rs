//! Untrusted captures: all ways of reading one give the same result, for all contents.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's function")]
mod exercise;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Numbers of a file in one byte order.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

impl Order {
    fn word(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    fn half(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    /// A pcap file with that first word and link type; `more` bytes end each record's header.
    fn pcap(self, magic: u32, link: u32, more: usize) -> Vec<u8> {
        let mut file = self.word(magic).to_vec();
        file.extend([self.half(2), self.half(4)].concat());
        file.extend([0, 0, 65_535, link].map(|word| self.word(word)).concat());
        for number in 0..6 {
            let data = [number as u8; 20];
            let captured = 20 - number;
            file.extend([number, 900 + number, captured, 60].map(|word| self.word(word)).concat());
            file.resize(file.len() + more, 7);
            file.extend(&data[..captured as usize]);
        }
        file
    }
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.word(body.len() as u32 + 12);
        [&self.word(kind)[..], &len, &body, &len].concat()
    }
    /// A pcapng file of two sections: interfaces of two resolutions, and packets in blocks of each kind.
    fn pcapng(self) -> Vec<u8> {
        let section = [&self.word(0x1a2b_3c4d)[..], &self.half(1), &self.half(0), &[0xff; 8]].concat();
        let head = [&self.half(1)[..], &self.half(0), &self.word(0)].concat();
        // if_tsresol (9) and if_tsoffset (14).
        let resolution = [&self.half(9)[..], &self.half(1), &[9, 0, 0, 0]].concat();
        let offset = [&self.half(14)[..], &self.half(8), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        let fine = [&head[..], &resolution, &offset, &[0; 4]].concat();
        let flags = [&self.half(2)[..], &self.half(4), &self.word(1), &[0; 4]].concat();
        let enhanced = |interface: u32| {
            let numbers = [interface, 3, 141_592, 7, 90].map(|word| self.word(word)).concat();
            [&numbers[..], b"enhance\0", &flags].concat()
        };
        let simple = [&self.word(5)[..], b"plain"].concat();
        let numbers = [0, 3_000_000, 5, 70].map(|word| self.word(word)).concat();
        let obsolete = [&self.half(1)[..], &self.half(9), &numbers, b"older"].concat();
        let one = [
            self.block(0x0a0d_0d0a, &section),
            self.block(1, &head),
            self.block(1, &fine),
            self.block(6, &enhanced(1)),
            self.block(0x0bad, b"of no known kind"),
            self.block(3, &simple),
            self.block(2, &obsolete),
            self.block(6, &enhanced(0)),
        ]
        .concat();
        [&one[..], &one].concat()
    }
}

/// Files of every kind, each with its number of records.
fn files() -> Vec<(Vec<u8>, usize)> {
    let [little, big] = [false, true].map(|big| Order { big });
    let mut files = vec![
        (little.pcap(0xa1b2_c3d4, 1, 0), 6),
        (big.pcap(0xa1b2_c3d4, 113, 0), 6),
        (little.pcap(0xa1b2_3c4d, 101, 0), 6),
        (big.pcap(0xa1b2_3c4d, 276, 0), 6),
        // With a check sequence of four bytes.
        (little.pcap(0xa1b2_c3d4, 0x2400_0001, 0), 6),
        (little.pcap(0xa1b2_cd34, 1, 8), 6),
        (little.pcapng(), 8),
        (big.pcapng(), 8),
    ];
    let compressed: Vec<_> = files.iter().map(|(file, records)| (compress(file), *records)).collect();
    files.extend(compressed);
    files
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn whole_files_are_read_to_the_end() {
    for (number, (file, records)) in files().into_iter().enumerate() {
        assert_eq!(exercise::capture(&file), (records, false), "file {number}");
    }
}

#[test]
fn cut_files_tell_what_came_before() {
    let mut longest = 0;
    for (file, records) in files() {
        for len in 0..file.len() {
            let (found, _) = exercise::capture(&file[..len]);
            assert!(found <= records);
            longest = longest.max(found);
        }
    }
    assert_eq!(longest, 8);
}

#[test]
fn damaged_files_tell_the_same_in_every_way() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
    let files = files();
    // Files read to the end; files that end with an error after some records; files that cannot be read.
    let mut counts = [0; 3];
    for round in 0..6_000 {
        let mut bytes = files[round % files.len()].0.clone();
        for _ in 0..1 + random.next_u32() % 3 {
            let at = random.next_u32() as usize % bytes.len();
            match random.next_u32() % 5 {
                0 => bytes[at] ^= 1 << (random.next_u32() % 8),
                1 => bytes[at] = [0, 1, 0xff, 0x7f, 0x80][random.next_u32() as usize % 5],
                2 => bytes.truncate(at.max(1)),
                3 => {
                    let end = (at + 4).min(bytes.len());
                    bytes[at..end].fill(0xff);
                }
                _ => {
                    let again = bytes[at..(at + 40).min(bytes.len())].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
        match exercise::capture(&bytes) {
            (_, false) => counts[0] += 1,
            (1.., true) => counts[1] += 1,
            (0, true) => counts[2] += 1,
        }
    }
    assert!(counts.iter().all(|count| *count > 300), "too few of a kind to prove anything: {counts:?}");
}
