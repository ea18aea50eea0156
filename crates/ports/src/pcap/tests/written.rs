//! The bytes of written captures.

use super::*;

/// One file of each format and precision, compared with bytes that the test assembles.
///
/// They come from draft-ietf-opsawg-pcap, sections 4 and 5, and draft-ietf-opsawg-pcapng, sections 4.1 to
/// 4.3. The test covers precision, the interface's name, directions, and the cut at the snap length.
#[test]
fn written_files_match_the_drafts() {
    const TIME: u64 = 1_700_000_000_123_456_789;
    let directory = Directory::new("bytes");
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let frames: [(&[u8], _); 3] = [
        (b"exactly sixteen!", None),
        (b"eighteen bytes in.", Some(Direction::Inbound)),
        (b"and out", Some(Direction::Outbound)),
    ];
    for (precision, magic, digits, unit) in
        [(Precision::Nanoseconds, 0xa1b2_3c4d, 9, 1), (Precision::Microseconds, 0xa1b2_c3d4, 6, 1_000)]
    {
        let mut pcap = words(&[magic, 4 << 16 | 2, 0, 0, 16, 1]);
        let section = words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        // Link type, snap length, if_name, if_tsresol, end.
        let interface = [&words(&[1, 16, 4 << 16 | 2])[..], b"port", &words(&[1 << 16 | 9, digits, 0])];
        let mut pcapng = [block(false, 0x0a0d_0d0a, &section), block(false, 1, &interface.concat())].concat();
        for (number, (frame, direction)) in frames.iter().enumerate() {
            let time = TIME + number as u64 * 2_000_000_000;
            let captured = &frame[..frame.len().min(16)];
            let lengths = [captured.len() as u32, frame.len() as u32];
            let fraction = (time % 1_000_000_000 / unit) as u32;
            pcap.extend(
                [&words(&[(time / 1_000_000_000) as u32, fraction]), &words(&lengths), captured].concat(),
            );
            let units = time / unit;
            let mut body =
                [&words(&[0, (units >> 32) as u32, units as u32]), &words(&lengths), captured].concat();
            body.resize(body.len().next_multiple_of(4), 0);
            // epb_flags, end.
            let flags = direction.map(|direction| if direction == Direction::Inbound { 1 } else { 2 });
            body.extend(flags.map_or(Vec::new(), |flags| words(&[4 << 16 | 2, flags, 0])));
            pcapng.extend(block(false, 6, &body));
        }
        for (name, expected) in [("a.pcap", pcap), ("a.pcapng", pcapng)] {
            let path = directory.0.join(name);
            let mut writer = Writer::create(&path, Format::of(&path), precision, 16, "port").unwrap();
            for (number, (frame, direction)) in frames.iter().enumerate() {
                writer.write(TIME + number as u64 * 2_000_000_000, frame, *direction).unwrap();
            }
            writer.finish().unwrap();
            let written = std::fs::read(&path).unwrap();
            assert!(written == expected, "{name}, {precision:?}:\n{written:02x?}\n{expected:02x?}");
        }
    }
}

/// Values that no file can hold become the nearest possible: seconds in pcap, and names of interfaces.
///
/// Names are cut between two letters.
#[test]
fn the_last_times_and_the_longest_names_are_written() {
    let directory = Directory::new("extremes");
    let last_in_pcap = u64::from(u32::MAX) * 1_000_000_000;
    for (name, expected) in [
        ("a.pcap", [last_in_pcap + 999_999_999, last_in_pcap + u64::MAX % 1_000_000_000]),
        ("a.pcapng", [last_in_pcap + 999_999_999, u64::MAX]),
    ] {
        let path = directory.0.join(name);
        let interface = "ü".repeat(200);
        let mut writer =
            Writer::create(&path, Format::of(&path), Precision::Nanoseconds, usize::MAX, &interface).unwrap();
        writer.write(last_in_pcap + 999_999_999, &[1; 60], None).unwrap();
        writer.write(u64::MAX, &[2; 60], Some(Direction::Outbound)).unwrap();
        writer.finish().unwrap();
        let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
        let mut times = Vec::new();
        while reader
            .next(|record| {
                times.push(record.time);
                true
            })
            .unwrap()
            != Step::End
        {}
        assert_eq!(times, expected, "{name}");
        if name == "a.pcapng" {
            assert_eq!(reader.interfaces().collect::<Vec<_>>(), [Some(&interface[..254])]);
        }
    }
}

/// Compared with Wireshark, if it is installed: times in nanoseconds, lengths, the interface's name,
/// directions.
#[test]
fn wireshark_reads_what_is_written() {
    let directory = Directory::new("wireshark");
    let path = directory.0.join("out.pcapng");
    let mut writer = Writer::create(&path, Format::Pcapng, Precision::Nanoseconds, 64, "lan").unwrap();
    for (number, direction) in
        [None, Some(Direction::Inbound), Some(Direction::Outbound)].into_iter().enumerate()
    {
        writer.write(1_700_000_000_123_456_789 + number as u64, &[7; 90], direction).unwrap();
    }
    writer.finish().unwrap();
    let fields = [
        "frame.time_epoch",
        "frame.cap_len",
        "frame.len",
        "frame.interface_name",
        "frame.packet_flags_direction",
    ];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let Ok(output) = std::process::Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields"])
        .args(fields)
        .output()
    else {
        eprintln!("skipped: tshark is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let time = |number: u32| format!("1700000000.{}", 123_456_789 + number);
    let [first, second, third] = [time(0), time(1), time(2)];
    let row = |time, direction| vec![time, "64", "90", "lan", direction];
    let expected = [row(&first, ""), row(&second, "0x00000001"), row(&third, "0x00000002")];
    assert_eq!(rows, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
