//! Options and link types of a pcapng file, and their effect on its records (draft-ietf-opsawg-pcapng,
//! sections 4.2 to 4.4).
//!
//! Also padding behind a gzip member.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// Bytes in one byte order.
#[derive(Clone, Copy)]
struct Order(bool);

impl Order {
    const BOTH: [Self; 2] = [Self(false), Self(true)];
    fn word(self, value: u32) -> [u8; 4] {
        if self.0 { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    fn half(self, value: u16) -> [u8; 2] {
        if self.0 { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    fn section(self) -> Vec<u8> {
        let body = [&self.word(0x1a2b_3c4d)[..], &self.half(1), &self.half(0), &[0xff; 8]].concat();
        block(self.0, 0x0a0d_0d0a, &body)
    }
    /// An option with its padding.
    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [&self.half(code)[..], &self.half(value.len() as u16), value].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }
    fn interface(self, link: u16, snap_length: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let body = [&self.half(link)[..], &self.half(0), &self.word(snap_length), &options.concat()].concat();
        block(self.0, 1, &body)
    }
    fn packet(self, interface: u32, time: u64, original: u32, data: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
        let numbers = [interface, (time >> 32) as u32, time as u32, data.len() as u32, original];
        let mut body = numbers.map(|number| self.word(number)).concat();
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(options.concat());
        block(self.0, 6, &body)
    }
}

/// The read parts of a record: time, data, bytes on the wire.
type Seen = (u64, Vec<u8>, usize);

fn seen(file: Vec<u8>) -> (Vec<Seen>, Option<ReadError>) {
    let mut reader = match Reader::new(Cursor::new(file)) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    loop {
        match reader.next(|record| {
            records.push((record.time, record.data.to_vec(), record.original_len));
            true
        }) {
            Ok(Step::End) => return (records, None),
            Ok(_) => {}
            Err(error) => return (records, Some(error)),
        }
    }
}

#[test]
fn times_are_read_in_every_resolution() {
    const SECOND: u64 = 1_000_000_000;
    let half = |power: u32| (1_494_433_000u64 << power) + (1 << (power - 1));
    for order in Order::BOTH {
        for (resolution, time, expected) in [
            (0x9e, half(30), 1_494_433_000 * SECOND + SECOND / 2),
            (0x81, half(1), 1_494_433_000 * SECOND + SECOND / 2),
            (0x80, 1_494_433_000, 1_494_433_000 * SECOND),
            (0xa0, half(32), 1_494_433_000 * SECOND + SECOND / 2),
            // Units so small that 64 bits of them are half a second, or almost nothing.
            (0xc0, 1 << 63, SECOND / 2),
            (0xff, u64::MAX, 0),
            (0, 1_494_433_000, 1_494_433_000 * SECOND),
            (3, 1_494_433_000_001, 1_494_433_000 * SECOND + 1_000_000),
            (9, 1_494_433_000_000_000_001, 1_494_433_000 * SECOND + 1),
            (12, 5_000_000_001_999, 5 * SECOND + 1),
            (19, u64::MAX, 1_844_674_407),
            (20, u64::MAX, 184_467_440),
            (38, u64::MAX, 0),
            (127, u64::MAX, 0),
            // A time outside the range becomes the last time.
            (0, u64::MAX, u64::MAX),
        ] {
            let options = [order.option(9, &[resolution]), order.option(0, &[])];
            let file =
                [order.section(), order.interface(1, 0, &options), order.packet(0, time, 3, b"abc", &[])]
                    .concat();
            let (records, error) = seen(file);
            assert_eq!(error, None);
            assert_eq!(records, [(expected, b"abc".to_vec(), 3)], "resolution {resolution:#x}");
        }
        // An offset in seconds, forwards and backwards.
        for offset in [1_000_000_000i64, -3, i64::MIN, i64::MAX] {
            let bytes = if order.0 { offset.to_be_bytes() } else { offset.to_le_bytes() };
            let options = [order.option(14, &bytes), order.option(9, &[0x8a])];
            let file =
                [order.section(), order.interface(1, 0, &options), order.packet(0, 5 << 10, 3, b"abc", &[])]
                    .concat();
            let expected = (i128::from(offset) + 5) * i128::from(SECOND);
            let expected = u64::try_from(expected.max(0)).unwrap_or(u64::MAX);
            assert_eq!(seen(file).0[0].0, expected);
        }
    }
}

/// An option with a wrong length is ignored: the interface is read without it.
#[test]
fn options_whose_lengths_lie_are_passed_over() {
    for order in Order::BOTH {
        let no_value = order.option(9, &[]);
        let beyond = [&order.half(9)[..], &order.half(400), &[9, 0, 0, 0]].concat();
        let behind_the_end = [order.option(0, &[]), order.option(9, &[9])].concat();
        for (options, name) in
            [(no_value, "no value"), (beyond, "beyond"), (behind_the_end, "behind the end")]
        {
            let file = [
                order.section(),
                order.interface(1, 0, &[options]),
                order.packet(0, 2_000_007, 3, b"abc", &[[order.half(2), order.half(9)].concat()]),
            ];
            let (records, error) = seen(file.concat());
            assert_eq!((records, error), (vec![(2_000_007_000, b"abc".to_vec(), 3)], None), "{name}");
        }
    }
}

/// Frame check sequences are removed as far as they were captured.
///
/// The interface (if_fcslen), the packet (epb_flags) or the header of a pcap file states them.
#[test]
fn check_sequences_are_taken_off_wherever_a_file_speaks_of_them() {
    for order in Order::BOTH {
        let flags = |length: u32| order.option(2, &order.word(length << 5 | 1));
        let whole = b"a frame and its FCS!";
        let file = [
            order.section(),
            order.interface(1, 0, &[order.option(13, &[4])]),
            // In bits, as in an early draft.
            order.interface(1, 0, &[order.option(13, &[32])]),
            order.interface(1, 12, &[]),
            order.packet(0, 0, 20, whole, &[]),
            order.packet(1, 0, 20, whole, &[]),
            order.packet(2, 0, 20, whole, &[]),
            order.packet(2, 0, 20, whole, &[flags(4)]),
            order.packet(0, 0, 20, whole, &[flags(2)]),
            order.packet(0, 0, 20, whole, &[flags(0)]),
            // The snap length left a part of the check sequence, or none.
            order.packet(0, 0, 20, &whole[..18], &[]),
            order.packet(0, 0, 20, &whole[..16], &[]),
            order.packet(0, 0, 20, &whole[..10], &[flags(4)]),
            order.packet(0, 0, 3, &whole[..3], &[]),
            // A simple packet belongs to the first interface, with its snap length and its check sequence.
            block(order.0, 3, &[&order.word(20)[..], whole].concat()),
        ];
        let (records, error) = seen(file.concat());
        assert_eq!(error, None);
        let lengths: Vec<_> = records.iter().map(|(_, data, original)| (data.len(), *original)).collect();
        let expected = [
            (16, 16),
            (16, 16),
            (20, 20),
            (16, 16),
            (18, 18),
            (16, 16),
            (16, 16),
            (16, 16),
            (10, 16),
            (0, 0),
            (16, 16),
        ];
        assert_eq!(lengths, expected);
        assert!(records.iter().all(|(_, data, _)| whole.starts_with(data)));
        // 2 words of 16 bits, and the bit that says that they are valid.
        for (captured, expected) in [(20, 16), (18, 16), (16, 16), (10, 10)] {
            let mut file = legacy(order.0, false, 2 << 28 | 1 << 26 | 1, &[(1, 0, &whole[..captured])]);
            file[24 + 12..24 + 16].copy_from_slice(&order.word(20));
            assert_eq!(seen(file).0, [(1_000_000_000, whole[..expected].to_vec(), 16)]);
        }
    }
}

/// The obsolete Packet Block has the same flags among its options (appendix A).
#[test]
fn check_sequences_are_taken_off_by_the_flags_of_obsolete_packet_blocks() {
    for order in Order::BOTH {
        let whole = b"a frame, and its FCS";
        let packet = |options: &[Vec<u8>]| {
            let head = [order.half(0), order.half(0)].concat();
            let words = [0, 0, 18, 18].map(|value| order.word(value)).concat();
            // 18 bytes and 2 of padding.
            block(order.0, 2, &[&head[..], &words, &whole[..18], &[0, 0], &options.concat()].concat())
        };
        let flags = |length: u32| order.option(2, &order.word(length << 5 | 1));
        let beyond = [order.half(2), order.half(400)].concat();
        let file = [
            order.section(),
            order.interface(1, 0, &[]),
            packet(&[]),
            packet(&[flags(4)]),
            packet(&[order.option(1, b"a comment"), flags(4), order.option(0, &[])]),
            packet(&[order.option(0, &[]), flags(4)]),
            packet(&[beyond, flags(4)]),
        ];
        let (records, error) = seen(file.concat());
        assert_eq!(error, None);
        let lengths: Vec<_> = records.iter().map(|(_, data, original)| (data.len(), *original)).collect();
        assert_eq!(lengths, [(18, 18), (14, 14), (14, 14), (18, 18), (18, 18)]);
    }
}

/// Section 4.4: a simple packet's captured length is the lesser of its original length and the snap length.
///
/// Padding follows.
#[test]
fn simple_packets_are_as_long_as_the_snap_length_lets_them_be() {
    for order in Order::BOTH {
        for (snap_length, original, expected) in [(0, 7, 7), (5, 7, 5), (5, 3, 3), (7, 7, 7), (65_535, 7, 7)]
        {
            let simple = [&order.word(original)[..], b"exactly"].concat();
            let file =
                [order.section(), order.interface(1, snap_length, &[]), block(order.0, 3, &simple)].concat();
            let (records, _) = seen(file);
            assert_eq!(records, [(0, b"exactly"[..expected].to_vec(), original as usize)]);
        }
    }
}

/// Each section has its own byte order and interfaces.
///
/// Units and link types of one section have no effect in another.
#[test]
fn sections_of_either_byte_order_follow_each_other() {
    for [first, second] in
        [[Order(false), Order(true)], [Order(true), Order(false)], [Order(true), Order(true)]]
    {
        let file = [
            first.section(),
            first.interface(1, 0, &[first.option(9, &[9])]),
            first.packet(0, 7, 3, b"one", &[]),
            second.section(),
            second.interface(101, 0, &[]),
            second.packet(0, 7, 3, b"two", &[]),
        ];
        let (records, error) = seen(file.concat());
        assert_eq!(error, None);
        assert_eq!(records, [(7, b"one".to_vec(), 3), (7_000, b"two".to_vec(), 3)]);
        let stale = [&file.concat()[..], &second.section(), &second.packet(0, 7, 3, b"two", &[])].concat();
        let (records, error) = seen(stale);
        assert_eq!(records.len(), 2);
        assert!(error.unwrap().to_string().contains("its section describes 0"));
    }
}

/// An interface with an unsupported link type affects only the records that use it.
#[test]
fn only_records_of_an_unsupported_link_type_are_dropped() {
    let (pool, directory) = (pool(), Directory::new("unsupported"));
    let cx = context(&pool, &directory);
    for order in Order::BOTH {
        let head = [
            order.section(),
            order.interface(105, 0, &[]),
            order.interface(1, 0, &[]),
            order.interface(227, 0, &[]),
        ]
        .concat();
        let ethernet = order.packet(1, 0, 60, &[7; 60], &[]);
        let others = [order.packet(0, 0, 30, &[8; 30], &[]), order.packet(2, 0, 16, &[9; 16], &[])].concat();
        for (name, file, dropped) in [
            ("unused", [&head[..], &ethernet].concat(), 0),
            ("used", [&head[..], &ethernet, &others, &ethernet].concat(), 2),
            ("used first", [&head[..], &others, &ethernet].concat(), 2),
        ] {
            std::fs::write(directory.0.join("in.pcapng"), &file).unwrap();
            for burst in BURSTS {
                let mut from = open("pcap", "read = 'in.pcapng'", &cx).unwrap();
                let (mut to, far) = collector(&pool);
                let totals = forward(from.as_mut(), &mut to, &pool, burst);
                assert_eq!(totals.drops.of(DropReason::NotEthernet).packets, dropped, "{name}");
                assert!(from.failure().is_none());
                assert!(collected(&far).iter().all(|(_, frame)| frame == &[7; 60]), "{name}");
                assert_eq!(totals.received.packets, totals.sent.packets + dropped, "{name}");
            }
        }
        // Also where no usable interface is described before the first record, or in the first section.
        let late = [
            order.section(),
            order.interface(105, 0, &[]),
            order.packet(0, 0, 30, &[8; 30], &[]),
            order.interface(1, 0, &[]),
            ethernet.clone(),
        ];
        let sections = [
            order.section(),
            order.interface(105, 0, &[]),
            order.packet(0, 0, 30, &[8; 30], &[]),
            order.section(),
            order.interface(1, 0, &[]),
            order.packet(0, 0, 60, &[7; 60], &[]),
        ];
        for file in [late.concat(), sections.concat()] {
            let (records, error) = seen(file);
            assert_eq!((records.len(), error), (2, None));
        }
        // A file without any usable record is refused at its end, unless it has no records.
        let alone = [order.section(), order.interface(105, 0, &[])].concat();
        assert_eq!(seen(alone.clone()), (Vec::new(), None));
        let (_, error) = seen([&alone[..], &order.packet(0, 0, 30, &[8; 30], &[])].concat());
        assert!(error.unwrap().to_string().contains("link type 105 (IEEE 802.11)"));
    }
}

#[test]
fn zeros_behind_a_compressed_capture_are_padding() {
    let member = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let file = legacy(false, false, 1, &[(5, 0, b"frame one"), (6, 7, b"two")]);
    let (first, second) = file.split_at(40);
    for padding in [0, 1, 511, 20_000] {
        let zeros = vec![0; padding];
        for parts in [
            vec![member(&file), zeros.clone()],
            vec![member(first), member(second), zeros.clone()],
            vec![member(first), zeros.clone(), member(second), zeros.clone()],
            vec![member(first), member(b""), member(second)],
        ] {
            let (records, error) = seen(parts.concat());
            assert_eq!((records.len(), error), (2, None), "{padding}");
        }
    }
    // Any other bytes behind a member are damage.
    for garbage in [&b"x"[..], &[0, 0, 7], &[0x1f]] {
        let (records, error) = seen([&member(&file)[..], garbage].concat());
        assert_eq!(records.len(), 2);
        assert!(error.is_some(), "{garbage:?}");
    }
}
