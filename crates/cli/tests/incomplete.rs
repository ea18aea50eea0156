//! Captures that do not have all bytes that were on the wire.
//!
//! They were cut by a snap length, taken before a device cut segments, or have damaged lengths or times.

use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_core::packet::build::ethernet;
use serde_json::Value;

/// A record of a classic capture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// Seconds and nanoseconds.
    time: (u32, u32),
    /// Bytes that it had on the wire.
    original: u32,
    data: Vec<u8>,
}

/// A record of which the first `kept` bytes were captured.
fn cut(data: &[u8], kept: usize) -> Record {
    Record { time: (1_700_000_000, 5), original: data.len() as u32, data: data[..kept].to_vec() }
}

/// Writes a classic capture in nanoseconds (magic 0xa1b23c4d).
fn write(file: &Path, link: u32, records: &[Record]) {
    let mut bytes = Vec::new();
    bytes.extend(0xa1b2_3c4du32.to_le_bytes());
    bytes.extend([2u16, 4].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0u32, 0, 262_144, link].map(u32::to_le_bytes).as_flattened());
    for Record { time: (seconds, fraction), original, data } in records {
        let words = [*seconds, *fraction, data.len() as u32, *original];
        bytes.extend(words.map(u32::to_le_bytes).as_flattened());
        bytes.extend(data);
    }
    std::fs::write(file, bytes).expect("the directory can be written");
}

/// The records of a classic capture in nanoseconds.
fn read(file: &Path) -> Vec<Record> {
    let bytes = std::fs::read(file).expect("it was written");
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    assert_eq!(word(0), Some(0xa1b2_3c4d));
    let (mut at, mut records) = (24, Vec::new());
    while let (Some(seconds), Some(fraction), Some(length), Some(original)) =
        (word(at), word(at + 4), word(at + 8), word(at + 12))
    {
        let data = bytes[at + 16..at + 16 + length as usize].to_vec();
        at += 16 + data.len();
        records.push(Record { time: (seconds, fraction), original, data });
    }
    assert_eq!(at, bytes.len());
    records
}

fn folder(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Runs `through` from in.pcap to out.pcap; returns the report, with the standard error under `said`.
fn run(directory: &Path, functions: &str, through: &str, workers: &str, burst: &str) -> Value {
    let file = format!(
        "[port.lan]\ndriver = \"pcap\"\nread = \"in.pcap\"\n[port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n\
         {functions}\n[[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"wan\"\n"
    );
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json", "--workers", workers, "--burst", burst])
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["conserved"], true, "{report}");
    report["said"] = said.into();
    report
}

/// Frames whose headers end at byte 54 at the latest, and which have 1,042 bytes.
fn long_frames() -> Vec<(&'static str, Vec<u8>, usize)> {
    let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).payload(&[7; 988]).build();
    let udp = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1_000, 53).payload(&[7; 1_000]).build();
    let tagged = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1_000, 53).payload(&[7; 996]).build();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1_000, 53).payload(&[7; 980]).build();
    [("tcp", tcp, 54), ("udp", udp, 42), ("tagged", tagged, 46), ("v6", v6, 62)]
        .map(|(name, frame, headers)| (name, frame.expect("a frame of usual size"), headers))
        .into()
}

/// The packets of all flows and the rows of the first section that has some.
fn rows(report: &Value) -> Vec<Vec<String>> {
    let sections = report["sections"].as_array().expect("a list");
    let rows = sections.iter().flat_map(|section| section["rows"].as_array().cloned().unwrap_or_default());
    rows.map(|row| serde_json::from_value(row).expect("texts")).collect()
}

const MONITOR: &str = "[function.flows]\nuse = \"monitor\"\ntop = 1_000\n";

#[test]
fn a_packet_cut_to_its_headers_counts_with_its_length_on_the_wire() {
    let directory = folder("cut-to-headers");
    for (name, frame, headers) in long_frames() {
        assert_eq!(frame.len(), 1_042, "{name}");
        for kept in [headers, headers + 1, 700, 1_041] {
            let record = cut(&frame, kept);
            write(&directory.join("in.pcap"), 1, std::slice::from_ref(&record));
            for (workers, burst) in [("1", "1"), ("1", "32"), ("2", "32")] {
                let report = run(&directory, MONITOR, "\"shuffle\", \"flows\"", workers, burst);
                let flows = rows(&report);
                assert_eq!(flows.len(), 1, "{name} of {kept}: {report}");
                assert_eq!(flows[0][1..], ["1", "1042"], "{name} of {kept}");
                assert_eq!(report["ports"][0]["received_bytes"], 1_042, "{report}");
                assert_eq!(report["ports"][0]["cut"], 1);
                assert_eq!(report["ports"][1]["sent_bytes"], 1_042);
                let written = read(&directory.join("out.pcap"));
                assert_eq!(written, std::slice::from_ref(&record), "{name} of {kept}");
            }
        }
    }
}

/// The packets of one flow meet on one worker, whether cut or whole.
#[test]
fn cut_and_whole_packets_of_a_flow_are_one_flow_on_several_workers() {
    let directory = folder("cut-and-whole");
    let frame = |flow: u16| {
        let built = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(flow, 53).payload(&[7; 500]).build();
        built.expect("a frame of usual size")
    };
    let records: Vec<_> = (0..400u16)
        .map(|number| {
            cut(&frame(number % 40), if number % 3 == 0 { 542 } else { 42 + usize::from(number % 9) })
        })
        .collect();
    write(&directory.join("in.pcap"), 1, &records);
    for workers in ["1", "2", "3"] {
        let report = run(&directory, MONITOR, "\"shuffle\", \"flows\"", workers, "32");
        let flows = rows(&report);
        assert_eq!(flows.len(), 40, "{workers} workers: {report}");
        assert!(flows.iter().all(|row| row[1..] == ["10", "5420"]), "{workers} workers: {flows:?}");
    }
}

/// A cut does not excuse a wrong length, beyond the wire's or in a record that was not cut.
#[test]
fn a_length_beyond_the_wire_is_malformed() {
    let directory = folder("cut-and-lying");
    let (_, frame, _) = long_frames().remove(0);
    let lies = |record: Record, change: fn(&mut Vec<u8>)| {
        let mut record = record;
        change(&mut record.data);
        record
    };
    let all_here = Record { original: 54, ..cut(&frame, 54) };
    let records = [
        all_here,
        lies(cut(&frame, 54), |data| data[16..18].copy_from_slice(&1_029u16.to_be_bytes())),
        lies(cut(&frame, 54), |data| data[16..18].copy_from_slice(&19u16.to_be_bytes())),
        lies(cut(&frame, 54), |data| data[14] = 0x4f),
        cut(&frame, 30),
        cut(&frame, 13),
    ];
    write(&directory.join("in.pcap"), 1, &records);
    let strict = "[function.hops]\nuse = \"ttl\"\n";
    let report = run(&directory, strict, "\"hops\"", "1", "32");
    assert_eq!(report["dropped"]["malformed"], 6, "{report}");
    assert_eq!(report["sent"], 0);
}

/// Functions change headers of a cut packet as those of a whole one.
#[test]
fn headers_of_a_cut_packet_are_changed_as_those_of_a_whole_one() {
    let directory = folder("cut-and-changed");
    let functions = "[function.hops]\nuse = \"ttl\"\n";
    for (name, frame, headers) in long_frames() {
        let [whole, cut] = [frame.len(), headers].map(|kept| {
            write(&directory.join("in.pcap"), 1, &[cut(&frame, kept)]);
            run(&directory, functions, "\"hops\", \"macswap\"", "1", "32");
            read(&directory.join("out.pcap")).remove(0)
        });
        assert_ne!(whole.data, frame, "{name}");
        assert_eq!(cut.data, whole.data[..headers], "{name}");
        assert_eq!(cut.original, whole.original, "{name}");
    }
}

/// Streams: missing bytes are neither invented nor rewritten, and checksums over them are neither right nor
/// wrong.
#[test]
fn functions_that_need_the_whole_packet_count_it_as_truncated() {
    let directory = folder("cut-streams");
    let client = |sequence: u32, flags: u8, payload: &[u8]| {
        let tcp =
            ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(sequence).ack(1).flags(flags);
        tcp.payload(payload).build().expect("a frame of usual size")
    };
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let request = b"GET /secret HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let syn = client(99, SYN, b"");
    let answer = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(0).ack(100).flags(SYN | ACK);
    let answer = answer.build().expect("a frame of usual size");
    let data = client(100, ACK, request);
    // Cut within the name of the host.
    let records = [cut(&syn, syn.len()), cut(&answer, answer.len()), cut(&data, data.len() - 9)];
    write(&directory.join("in.pcap"), 1, &records);
    let rewrite = "[function.rewrite]\nuse = \"rewrite-stream\"\nfind = \"secret\"\nreplace = \"public\"\n";
    let report = run(&directory, rewrite, "\"rewrite\"", "1", "32");
    assert_eq!(report["dropped"]["truncated"], 1, "{report}");
    let inspect = "[function.web]\nuse = \"http-inspect\"\n";
    let report = run(&directory, inspect, "\"web\"", "1", "32");
    assert_eq!(report["dropped"].as_object().map(serde_json::Map::len), Some(0), "{report}");
    assert_eq!(read(&directory.join("out.pcap")).len(), 3);
    assert!(!report["sections"].to_string().contains("exam"), "{report}");

    let echo = ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(1, 1).payload(&[9; 200]).build();
    let echo = echo.expect("a frame of usual size");
    let echo_v6 =
        ethernet().ipv6("2001:db8::1", "2001:db8::2").icmpv6_echo_request(1, 1).payload(&[9; 200]).build();
    let echo_v6 = echo_v6.expect("a frame of usual size");
    write(&directory.join("in.pcap"), 1, &[cut(&echo, 60), cut(&echo_v6, 80)]);
    let host = "[function.host]\nuse = \"icmp-echo\"\nv4 = \"10.0.0.2\"\nv6 = \"2001:db8::2\"\n";
    let report = run(&directory, host, "\"host\"", "1", "32");
    assert_eq!(report["dropped"]["truncated"], 2, "{report}");

    // A port that drops wrong checksums does not drop those that it cannot verify, but it verifies IPv4
    // headers.
    let (_, frame, headers) = long_frames().remove(0);
    let mut wrong = cut(&frame, headers);
    wrong.data[24] ^= 1;
    write(&directory.join("in.pcap"), 1, &[cut(&frame, headers), wrong]);
    let file = "[port.lan]\ndriver = \"pcap\"\nread = \"in.pcap\"\nchecksum = \"drop\"\n[port.wan]\ndriver = \"null\"\n\
                [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n";
    std::fs::write(directory.join("g.toml"), file).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "g.toml", "--json"])
        .current_dir(&directory)
        .output()
        .expect("the binary was built for this test");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["dropped"]["bad-checksum"], 1, "{report}");
    assert_eq!(report["received"], 2);
}

/// A segment that was captured before a device cut it has the length 0; then the frame's length counts.
///
/// In short frames, and with protocols that no device cuts, the length 0 is wrong.
#[test]
fn a_length_of_zero_in_an_offloaded_segment_is_the_frames() {
    let directory = folder("unstated");
    let mut request = b"GET /offloaded HTTP/1.1\r\nHost: example.org\r\nCookie: ".to_vec();
    request.resize(1_700 - 54 - 4, b'c');
    request.extend(b"\r\n\r\n");
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(100).ack(1).flags(24);
    let mut v4 = v4.payload(&request).build().expect("it fits");
    assert_eq!(v4.len(), 1_700);
    v4[16..18].fill(0);
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1_000, 80).sequence(100).ack(1).flags(24);
    let mut v6 = v6.payload(&request).build().expect("it fits");
    v6[18..20].fill(0);
    for (frame, name) in [(&v4, "v4"), (&v6, "v6")] {
        write(&directory.join("in.pcap"), 1, &[cut(frame, frame.len())]);
        let report = run(&directory, MONITOR, "\"flows\"", "1", "32");
        assert_eq!(rows(&report)[0][1..], ["1".to_owned(), frame.len().to_string()], "{name}: {report}");
        let inspect = "[function.web]\nuse = \"http-inspect\"\n";
        let report = run(&directory, inspect, "\"web\"", "1", "32");
        assert!(report["sections"].to_string().contains("/offloaded"), "{name}: {report}");
        assert_eq!(read(&directory.join("out.pcap"))[0].data, *frame, "{name}");
    }
    // It is also cut.
    write(&directory.join("in.pcap"), 1, &[cut(&v4, 54)]);
    let report = run(&directory, MONITOR, "\"flows\"", "1", "32");
    assert_eq!(rows(&report)[0][1..], ["1", "1700"], "{report}");
    // None of these is a segment for a device to cut.
    let mut short = v4[..60].to_vec();
    short[24..26].fill(0);
    let mut fragment = v4.clone();
    fragment[20] = 0x20;
    let mut other = v4.clone();
    other[23] = 47;
    let records = [short, fragment, other].map(|frame| cut(&frame, frame.len()));
    write(&directory.join("in.pcap"), 1, &records);
    let report = run(&directory, "[function.hops]\nuse = \"ttl\"\n", "\"hops\"", "1", "32");
    assert_eq!(report["dropped"]["malformed"], 3, "{report}");
}

#[test]
fn lengths_and_times_of_records_survive_a_run() {
    let directory = folder("kept-records");
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 30]).build();
    let frame = frame.expect("a frame of usual size");
    let at = |time, original, data: &[u8]| Record { time, original, data: data.to_vec() };
    let other: Vec<u8> = (0..22).collect();
    let mut records = vec![
        at((1_700_000_010, 1), 262_144, &other),
        at((1_700_000_009, 500_000_003), 72, &frame),
        at((1_700_000_010, 1_000_002), u32::MAX, &other[..14]),
        at((3, 7), 72, &frame),
        at((1_700_000_010, 999_999_999), 100, &frame),
        at((1_700_000_010, 999_999_998), 72, &frame),
    ];
    write(&directory.join("in.pcap"), 1, &records);
    for (workers, burst) in [("1", "1"), ("1", "32"), ("1", "256"), ("2", "32")] {
        let report = run(&directory, "", "\"shuffle\", \"wire\"", workers, burst);
        assert_eq!(report["sent"], 6, "{report}");
        let mut out = read(&directory.join("out.pcap"));
        if workers == "2" {
            // The order of flows is undefined.
            out.sort_by_key(|record| (record.time, record.original));
            records.sort_by_key(|record| (record.time, record.original));
        }
        assert_eq!(out, records, "{workers} workers, bursts of {burst}");
    }
}

#[test]
fn a_record_of_more_than_was_on_the_wire_is_counted_and_reported() {
    let directory = folder("overlong");
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 19]).build();
    let frame = frame.expect("a frame of usual size");
    assert_eq!(frame.len(), 61);
    write(&directory.join("in.pcap"), 1, &[Record { original: 45, ..cut(&frame, 61) }, cut(&frame, 61)]);
    let report = run(&directory, "", "\"wire\"", "1", "32");
    assert_eq!(report["ports"][0]["overlong"], 1, "{report}");
    assert_eq!(report["ports"][0]["received_bytes"], 122);
    assert!(read(&directory.join("out.pcap")).iter().all(|record| record.original == 61));
}

/// A CAN frame in a Linux cooked capture used to become an 802.3 frame.
#[test]
fn records_that_ethernet_does_not_carry_are_counted_as_such() {
    let directory = folder("not-ethernet");
    let ip =
        &ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 19]).build().expect("it fits")[14..];
    let cooked = |hardware: u16, protocol: u16, packet: &[u8]| {
        let head = [0, 0].into_iter().chain(hardware.to_be_bytes()).chain([0, 6, 2, 0, 0, 0, 0, 9, 0, 0]);
        let data: Vec<u8> = head.chain(protocol.to_be_bytes()).chain(packet.iter().copied()).collect();
        cut(&data, data.len())
    };
    let can = [0, 0, 1, 0x23, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let records = [cooked(280, 0x0c, &can), cooked(1, 0x0800, ip), cooked(824, 16, &[0; 40])];
    write(&directory.join("in.pcap"), 113, &records);
    let report = run(&directory, "", "\"wire\"", "1", "32");
    assert_eq!(report["dropped"]["not-ethernet"], 2, "{report}");
    let out = read(&directory.join("out.pcap"));
    assert_eq!((out.len(), &out[0].data[12..]), (1, [&[8, 0][..], ip].concat().as_slice()));
}
