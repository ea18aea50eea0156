//! Tests of the family: small configurations, with what Click itself makes of them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::router::Capabilities;
use crate::testing::{self, Run};

/// A folder of its own for a test, which ends with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("netbricks-click-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn write(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).expect("a file for the test");
        self.path(name)
    }
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_default()
    }
    /// The lines of a file that are not comments.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.read(name)).into_owned();
        text.lines().filter(|line| !line.starts_with('!')).map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds a configuration that may use files.
fn build(text: &str) -> Run {
    let capabilities = Capabilities { files: true, ..Capabilities::default() };
    testing::build_with(text, capabilities)
}

/// Runs a configuration that may use files, and ends it, so that they are written out.
fn run(text: &str) -> Run {
    let run = build(text);
    run.go();
    if let Some(router) = &run.router {
        router.cleanup();
    }
    run
}

/// Makes packets of a dump and gives fields of them, a line each.
fn fields(dump: &str, options: &str, fields: &str) -> Vec<String> {
    let folder = Folder::new();
    let (from, to) = (folder.write("in", dump.as_bytes()), folder.path("out"));
    let run = run(&format!(
        "FromIPSummaryDump({from}, STOP true, CHECKSUM true) -> ToIPSummaryDump({to}, FIELDS {fields}{options})"
    ));
    assert_eq!(run.errors, Vec::<String>::new());
    folder.lines("out")
}

fn errors(text: &str) -> Vec<String> {
    let run = build(text);
    run.errors.iter().map(|line| line.split_once(":1: ").map_or(&line[..], |two| two.1).to_owned()).collect()
}

#[test]
fn fields_of_ip_and_tcp_pass_through_packets() {
    let dump = "!data timestamp ip_src sport ip_dst dport ip_proto tcp_seq tcp_flags ip_tos ip_id ip_fragoff\n\
                1.5 1.2.3.4 5 6.7.8.9 10 T 77 SA 3 9 0!\n\
                2.000000001 1.2.3.4 5 6.7.8.9 10 U - - 255 65535 8+\n";
    let lines = fields(
        dump,
        "",
        "timestamp src sport dst dport proto tcp_seq tcp_flags ip_dscp ip_ecn ip_id ip_frag ip_fragoff ip_len ip_hl",
    );
    assert_eq!(
        lines,
        [
            "1.500000 1.2.3.4 5 6.7.8.9 10 T 77 SA 0 ce 9 ! 0! 40 20",
            "2.000000001 1.2.3.4 - 6.7.8.9 - U - - 63 ce 65535 f 8+ 20 20",
        ]
    );
}

#[test]
fn options_are_read_and_written() {
    let dump = "!data ip_opt tcp_opt\n\
                rr{2.3.4.5}+3 mss1400;wscale3\n\
                ts{1.0.0.1=!8320,1.0.0.2=8321}++5 sack1-2,sack3-4\n\
                ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4=?} ts1:2\n\
                ssrr{1.0.0.1^2.0.0.2};148=0:0 99=1:2\n\
                rr{1.2.3} mss70000\n";
    let lines = fields(dump, "", "ip_opt tcp_opt tcp_ntopt tcp_sack");
    assert_eq!(
        lines,
        [
            "rr{2.3.4.5}+3 mss1400;wscale3 mss1400;wscale3 .",
            "ts.ip{1.0.0.1=!8320,1.0.0.2=8321^}++5 sack1-2;sack3-4 sack1-2;sack3-4 sack1-2;sack3-4",
            "ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4} ts1:2 . .",
            "ssrr{1.0.0.1^2.0.0.2};148=0:0 99=1:2 99=1:2 .",
        ]
    );
}

#[test]
fn icmp_and_payload_have_names_and_digests() {
    let dump = "!data icmp_type icmp_code icmp_seq\n!proto I\necho - 7\nunreachable needfrag -\n";
    let lines = fields(dump, "", "icmp_type_name icmp_code_name icmp_type icmp_seq payload_len");
    assert_eq!(lines, ["echo 0 8 7 8", "unreachable needfrag 3 - 8"]);
    let dump = "!data payload\n\"hi there\\n\"\n-\n";
    let lines = fields(dump, "", "payload payload_len payload_md5 payload_md5_hex");
    assert_eq!(lines, ["\"hi there\\n\" 9 sy@Uze03MHB84qQruJ_zma 12f6bb1941df66b8f138a446d4e8670c",]);
}

#[test]
fn a_binary_dump_says_what_a_text_dump_says() {
    let dump = "!data ntimestamp link ip_src sport proto ip_opt tcp_opt eth_src\n\
                1.000000007 3 1.0.0.1 99 T rr{}+1 mss9 0:1:2:3:4:5\n\
                - 4 1.0.0.2 98 U . . -\n";
    let names = "ntimestamp link eth_src ip_src sport proto ip_opt tcp_opt ip_len";
    let plain = fields(dump, "", names);
    let folder = Folder::new();
    let (from, binary, text) =
        (folder.write("in", dump.as_bytes()), folder.path("binary"), folder.path("text"));
    run(&format!(
        "FromIPSummaryDump({from}, STOP true, CHECKSUM true)
         -> ToIPSummaryDump({binary}, BINARY true, FIELDS {names})"
    ));
    run(&format!(
        "FromIPSummaryDump({binary}, STOP true, CHECKSUM true) -> ToIPSummaryDump({text}, FIELDS {names})"
    ));
    let again = folder.lines("text");
    assert_eq!(plain.len(), 2);
    assert_eq!(again[0], plain[0]);
    // A binary record has zeros for the addresses that the second packet does not have.
    assert_eq!(again[1], plain[1].replacen(" - ", " 00-00-00-00-00-00 ", 1));
}

#[test]
fn commands_of_a_dump_set_what_lines_do_not_tell() {
    let dump =
        "!flowid 1.1.1.1 2 3.3.3.3 4 U\n!aggregate 9\n!data ip_id\n5\n!data src aggregate\n7.7.7.7 8\n";
    let lines = fields(dump, "", "src sport dst dport proto ip_id aggregate");
    assert_eq!(lines, ["1.1.1.1 2 3.3.3.3 4 U 5 9", "7.7.7.7 2 3.3.3.3 4 U 0 8"]);
}

#[test]
fn packets_that_stand_for_several_are_spread() {
    let dump = "!data timestamp first_timestamp count ip_len\n5 1 3 120\n";
    let lines = fields(dump, ", MULTIPACKET true", "timestamp ip_len");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], "1.000000 120");
    let run = testing::run(
        "FromIPSummaryDump(DATA \"!data count\n3\n\", MULTIPACKET true, STOP true) -> c :: Counter -> Discard",
    );
    assert_eq!(run.read("c.count"), "3");
}

#[test]
fn bad_lines_are_told_once() {
    let run = testing::run(
        "FromIPSummaryDump(STOP true, DATA \"!data foo ip_src payload_md5\nyy\n- 1.2.3\n!data\n!proto FF\n!flowid 1
!aggregate x\n\") -> Discard",
    );
    assert_eq!(
        run.said(),
        [
            "<data>:1: warning: unknown content type 'foo'",
            "<data>:1: warning: unknown content type 'payload_md5'",
            "<data>:2: packet parse error",
            "<data>:4: no contents specified",
            "<data>:5: bad protocol in !proto",
            "<data>:6: bad !flowid specification",
            "<data>:7: bad !aggregate specification",
        ]
    );
}

#[test]
fn faults_of_configurations_have_clicks_words() {
    for (configuration, expected) in [
        ("FromIPSummaryDump -> Discard", "FILENAME: required argument missing"),
        ("FromIPSummaryDump(a, DATA b) -> Discard", "FILENAME and DATA conflict"),
        ("FromIPSummaryDump(/nonexistent/x) -> Discard", "/nonexistent/x: No such file or directory"),
        ("Idle -> ToIPSummaryDump(/nonexistent/x)", "/nonexistent/x: No such file or directory"),
        ("Idle -> ToIPSummaryDump(-, FIELDS a)", "unknown content type 'a'"),
        ("Idle -> ToIPSummaryDump(-, BINARY true, FIELDS payload)", "cannot use field payload with BINARY"),
        ("Idle -> TimeFilter(1, START_AFTER 3) -> Discard", "START, START_AFTER, and START_AFTER_INIT are"),
        ("Idle -> TimeFilter(-1) -> Discard", "START: parse error"),
        ("Idle -> SetTimestampDelta(TYPE FOO) -> Discard", "bad TYPE"),
        ("Idle -> AggregatePaint(9) -> Discard", "bad number of bits"),
        ("Idle -> AggregateCounter(AGGREGATE_CALL x) -> Discard", "AGGREGATE_CALL first word should be"),
        ("Idle -> AggregateIP(ip foo) -> Discard", "expected 'HEADER [NAME] [{OFFSET:LENGTH}]"),
        ("Idle -> AggregateIP(tcp[3:4]) -> Discard", "field specification does not fit within a single word"),
        ("Idle -> TimeSortedSched(BUFFER 0) -> Discard", "BUFFER must be at least 1"),
        ("Idle -> IPRateMonitor(FOO, 1, 1) -> Discard", "monitor type should be \"PACKETS\" or \"BYTES\""),
        ("Idle -> ToDump(x, ENCAP FOO)", "bad encapsulation type"),
        ("i :: Idle -> ToDump(/dev/null, USE_ENCAP_FROM i)", "'i :: Idle' has no 'encap' read handler"),
        ("FromDump(/dev/null) -> Discard", "empty file"),
        ("FromDump(x, STOP true, END_CALL stop) -> Discard", "END_CALL and STOP are mutually exclusive"),
    ] {
        let lines = errors(configuration);
        assert!(lines.iter().any(|line| line.contains(expected)), "{configuration}: {lines:?}");
    }
}

#[test]
fn files_are_refused_where_the_configuration_may_not_use_them() {
    for configuration in
        ["FromIPSummaryDump(/dev/null) -> Discard", "Idle -> ToDump(-)", "Idle -> ToIPSummaryDump(-)"]
    {
        let run = testing::build(configuration);
        assert!(run.errors.iter().any(|line| line.contains("may not")), "{configuration}: {:?}", run.errors);
    }
}

#[test]
fn timestamps_are_set_and_changed() {
    let run = testing::run(
        "FromIPSummaryDump(STOP true, DATA \"!data timestamp\n1\n2\n\")
         -> a :: AdjustTimestamp(1.5) -> r :: TimeRange -> d :: SetTimestampDelta -> e :: TimeRange -> Discard",
    );
    assert_eq!(run.read("a.time"), "1.500000s");
    assert_eq!(run.read("r.range"), "2.500000 3.500000");
    assert_eq!(run.read("d.first"), "2.500000\n");
    assert_eq!(run.read("e.last"), "1.000000");
    run.write("a.time 3ms");
    assert_eq!(run.read("a.time"), "3ms");
}

#[test]
fn a_filter_of_time_calls_at_its_end() {
    let run = testing::run(
        "FromIPSummaryDump(STOP true, DATA \"!data timestamp\n0.1\n0.2\n1.0\n1.2\n5.5\n\")
         -> t :: TimeFilter(0, 1, END_CALL t.extend_interval 1) -> c :: Counter -> Discard;
         t[1] -> late :: Counter -> Discard",
    );
    // The handler is called again until the end lies behind the packet.
    assert_eq!((run.read("c.count"), run.read("late.count")), ("5".into(), "0".into()));
    assert_eq!(run.read("t.end"), "6.000000");
    let run = testing::run(
        "FromIPSummaryDump(DATA \"!data timestamp\n0.5\n0.1\n1.0\n1.2\n5.5\n\")
         -> t :: TimeFilter(START_AFTER 0.1, INTERVAL 0.6, STOP true) -> c :: Counter -> Discard;
         t[1] -> late :: Counter -> Discard",
    );
    assert_eq!((run.read("t.start"), run.read("t.end")), ("0.600000".into(), "1.200000".into()));
    assert_eq!((run.read("c.count"), run.read("late.count")), ("1".into(), "3".into()));
}

#[test]
fn streams_are_merged_by_time() {
    let folder = Folder::new();
    let to = folder.path("out");
    let run = run(&format!(
        "FromIPSummaryDump(DATA \"!data timestamp\n0.1\n1.0\n0.2\n\") -> t :: TimeSortedSched(STOP true)
         -> ToIPSummaryDump({to}, FIELDS timestamp);
         FromIPSummaryDump(DATA \"!data timestamp\n0.3\n\") -> [1]t"
    ));
    assert_eq!(folder.lines("out"), ["0.100000", "0.300000", "1.000000", "0.200000"]);
    assert_eq!(run.read("t.well_ordered"), "false");
}

#[test]
fn aggregates_are_counted() {
    let folder = Folder::new();
    let run =
        run("FromIPSummaryDump(STOP true, DATA \"!data src ip_len\n1.0.0.1 50\n1.0.0.1 60\n2.0.0.1 70\n\")
         -> i :: AggregateIP(ip src/8) -> a :: AggregateCounter(AGGREGATE_CALL 1 b.freeze true)
         -> b :: AggregateCounter(BYTES true) -> Discard");
    assert_eq!(
        (run.read("a.nagg"), run.read("a.count"), run.read("b.count")),
        ("2".into(), "3".into(), "110".into())
    );
    assert_eq!(run.read("i.field"), "ip src/8");
    let file = folder.path("counts");
    assert_eq!(run.write(&format!("a.write_text_file {file}")), "");
    assert_eq!(
        String::from_utf8_lossy(&folder.read("counts")),
        "!IPAggregate 1.0\n!num_nonzero 2\n1 2\n2 1\n"
    );
    run.write("a.reaggregate_counts");
    run.write(&format!("a.write_pdf_file {file}"));
    assert_eq!(folder.lines("counts"), ["1 0.5", "2 0.5"]);
}

#[test]
fn flows_are_numbered_and_fragments_wait_for_their_ports() {
    let folder = Folder::new();
    let (to, trace) = (folder.path("out"), folder.path("trace"));
    run(&format!(
        "FromIPSummaryDump(STOP true, DATA \"!data timestamp src sport dst dport proto ip_id ip_fragoff tcp_flags
1 1.0.0.1 1 2.0.0.2 2 T 1 0 S
2 2.0.0.2 2 1.0.0.1 1 T 2 0 SA
3 1.0.0.1 1 2.0.0.2 2 U 3 24 .
4 1.0.0.1 1 2.0.0.2 2 U 3 0+ .
5 1.0.0.1 1 2.0.0.2 2 47 4 0 .
90 1.0.0.1 1 2.0.0.2 2 U 5 0 .
\") -> AggregateIPFlows(TRACEINFO {trace}) -> ToIPSummaryDump({to}, FIELDS timestamp aggregate link)"
    ));
    assert_eq!(
        folder.lines("out"),
        ["1.000000 1 0", "2.000000 1 1", "3.000000 2 0", "4.000000 2 0", "90.000000 3 0"]
    );
    let trace = String::from_utf8_lossy(&folder.read("trace")).into_owned();
    assert!(trace.contains(
        "<flow aggregate='1' src='1.0.0.1' sport='1' dst='2.0.0.2' dport='2' begin='1.000000000' \
         duration='1.000000000'>\n  <stream dir='0' packets='1' /><stream dir='1' packets='1' />\n</flow>\n"
    ));
    assert!(trace.ends_with("</trace>\n"));
}

#[test]
fn rates_are_measured_by_network() {
    let run = testing::run(
        "FromIPSummaryDump(DATA \"!data src ip_len\n18.26.4.1 60\n\") -> m :: IPRateMonitor(PACKETS, 1, 3) -> Discard",
    );
    assert_eq!((run.read("m.thresh"), run.read("m.mem")), ("3".into(), "2120".into()));
    assert_eq!(run.read("m.look"), "0\n");
    assert_eq!(run.write("m.anno_level 1.2.3.4"), "expecting 3 arguments");
}

#[test]
fn lines_of_tcpdump_become_packets() {
    let folder = Folder::new();
    let from = folder.write(
        "in",
        b"1.5 1.0.0.1.1040 > 2.0.0.2.80: S 100:100(0) win 5840 <mss 1460,nop,wscale 2> (DF) [tos 0x10]
1.6 2.0.0.2.80 > 1.0.0.1.1040: SWE 900:900(0) ack 101 win 99
1.7 1.0.0.1.1040 > 2.0.0.2.80: P 1:31(30) ack 1 win 5840 (ttl 64, id 7, len 70)
1.8 2.0.0.2.80 > 1.0.0.1.1040: . ack 31 win 99 <nop,nop,sack sack 1 {5:9} >
2 1.0.0.1.53 > 2.0.0.2.domain:  udp 90 [ttl 1]
foo
",
    );
    let to = folder.path("out");
    let run = run(&format!(
        "FromTcpdump({from}, STOP true, CHECKSUM true) -> ToIPSummaryDump({to}, FIELDS timestamp sport dport proto
         ip_len ip_tos ip_ttl ip_id ip_frag tcp_seq tcp_ack tcp_flags tcp_opt tcp_window payload_len)"
    ));
    assert_eq!(
        folder.lines("out"),
        [
            "1.500000 1040 80 T 48 16 2 0 ! 100 0 S mss1460;wscale2 5840 0",
            "1.600000 80 1040 T 40 0 2 0 . 900 101 SAEC . 99 0",
            "1.700000 1040 80 T 70 0 64 7 . 101 901 PA . 5840 30",
            "1.800000 80 1040 T 52 0 2 0 . 901 131 A sack105-109 99 0",
            "2.000000 53 53 U 118 0 1 0 . - - - - - 90",
        ]
    );
    assert_eq!(run.said(), [format!("{from}:6: packet parse error")]);
}

/// A pcap file of packets with their times (s and the parts that its magic number means).
fn pcap(big_endian: bool, magic: u32, link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let number = |number: u32| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let mut bytes = number(magic).to_vec();
    bytes.extend_from_slice(&if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
    for one in [0, 0, 65535, link] {
        bytes.extend_from_slice(&number(one));
    }
    for (seconds, parts, packet) in packets {
        for one in [*seconds, *parts, packet.len() as u32, packet.len() as u32 + 5] {
            bytes.extend_from_slice(&number(one));
        }
        bytes.extend_from_slice(packet);
    }
    bytes
}

/// An IP packet of UDP without payload from 1.0.0.1.
const UDP: [u8; 28] =
    [0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 1, 0, 0, 1, 2, 0, 0, 2, 0, 5, 0, 6, 0, 13, 0, 0];

#[test]
fn pcap_files_are_read_in_both_byte_orders() {
    let ethernet = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0][..], &UDP].concat();
    let arp = [&[0; 12][..], &[8, 6, 0, 0]].concat();
    for (big_endian, magic, parts) in [
        (false, 0xA1B2_C3D4, 7),
        (true, 0xA1B2_C3D4, 7),
        (false, 0xA1B2_3C4D, 7000),
        (true, 0xA1B2_3C4D, 7000),
    ] {
        let folder = Folder::new();
        let from =
            folder.write("in", &pcap(big_endian, magic, 1, &[(1, parts, &ethernet), (2, parts, &arp)]));
        let to = folder.path("out");
        let run = run(&format!(
            "d :: FromDump({from}, STOP true, FORCE_IP true)
             -> ToIPSummaryDump({to}, FIELDS ntimestamp eth_src src sport ip_len ip_capture_len wire_len);
             d[1] -> c :: Counter -> Discard"
        ));
        assert_eq!(folder.lines("out"), ["1.000007 07-08-09-0A-0B-0C 1.0.0.1 5 33 28 42"]);
        assert_eq!((run.read("d.count"), run.read("c.count")), ("1".into(), "1".into()));
        assert_eq!((run.read("d.encap"), run.read("d.packet_filepos")), ("ETHER".into(), "114".into()));
    }
}

#[test]
fn pcap_files_are_written_as_they_were_read() {
    let folder = Folder::new();
    let file = pcap(cfg!(target_endian = "big"), 0xA1B2_3C4D, 101, &[(1, 9, &UDP), (3, 0, &UDP)]);
    let (from, to) = (folder.write("in", &file), folder.path("out"));
    let run = run(&format!(
        "d :: FromDump({from}, STOP true) -> t :: ToDump({to}, SNAPLEN 65535, USE_ENCAP_FROM d)"
    ));
    // The packets' own IP length is that on the wire, and nothing looked at it.
    assert_eq!(folder.read("out"), file);
    assert_eq!(run.read("t.count"), "2");
}

#[test]
fn a_pcap_file_is_read_between_two_times() {
    let folder = Folder::new();
    let packets: Vec<(u32, u32, &[u8])> = (1..10).map(|second| (second, 0, &UDP[..])).collect();
    let from = folder.write("in", &pcap(false, 0xA1B2_C3D4, 101, &packets));
    let run = run(&format!("d :: FromDump({from}, START 3, INTERVAL 4) -> c :: Counter -> Discard"));
    assert_eq!((run.read("c.count"), run.read("d.active")), ("4".into(), "false".into()));
    for (bytes, message) in
        [(&b"abc"[..], "not a tcpdump file (too short)"), (&[7; 24], "not a tcpdump file (bad magic number)")]
    {
        let from = folder.write("bad", bytes);
        let lines = errors(&format!("FromDump({from}) -> Discard"));
        assert!(lines.iter().any(|line| line.contains(message)), "{lines:?}");
    }
}

#[test]
fn numbers_have_twelve_digits_at_most() {
    for (value, text) in [
        (0.0, "0"),
        (0.5, "0.5"),
        (1.0 / 3.0, "0.333333333333"),
        (123_456_789_012_345.0, "1.23456789012e+14"),
        (0.000_01, "1e-05"),
        (-2.5, "-2.5"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(super::general(value), text);
    }
}

#[test]
fn a_flow_monitor_counts_by_flow_in_bounded_memory() {
    let run = testing::run(
        "m :: FlowMonitor(CAPACITY 2, TIMEOUT 2s) -> Discard;
         FastUDPFlows(100000, 30, 60, 0:0:0:0:0:1, 10.0.0.1, 0:0:0:0:0:2, 10.0.0.2, 3, 100)
           -> Unqueue -> Strip(14) -> CheckIPHeader -> m;
         InfiniteSource(LIMIT 5) -> m;",
    );
    let counts =
        ["flows", "capacity", "count", "byte_count", "strangers"].map(|name| run.read(&format!("m.{name}")));
    assert_eq!(counts, ["2", "2", "30", "1380", "5"]);
    let table = run.read("m.table");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(' ').collect()).collect();
    let counted: u64 = lines.iter().map(|line| line[5].parse::<u64>().expect("packets")).sum();
    assert_eq!((lines.len(), run.read("m.missed")), (2, (30 - counted).to_string()), "{table}");
    for line in &lines {
        assert_eq!((line[0], line[2], line[4]), ("10.0.0.1", "10.0.0.2", "17"), "{table}");
        let packets: u64 = line[5].parse().expect("packets");
        assert_eq!(line[6], (packets * 46).to_string(), "{table}");
    }
    let router = run.router.as_ref().expect("it is built");
    router.surroundings().clock.jump(router.steady() + 5_000_000_000);
    assert_eq!([run.read("m.flows"), run.read("m.table")], ["0", ""]);
    run.write("m.reset");
    assert_eq!([run.read("m.count"), run.read("m.missed")], ["0", "0"]);
    let wrong = testing::build("Idle -> FlowMonitor(CAPACITY 0) -> Discard");
    assert_eq!(wrong.errors[1].trim(), "CAPACITY must be 1 to 4194304");
}

/// Packets of aggregates 1 (three), 3 (two) and 9 (one), into the element `x`.
const AGGREGATES: &str = "InfiniteSource(LIMIT 3, DATA abcd) -> Paint(1) -> a::AggregatePaint; \
     InfiniteSource(LIMIT 2, DATA abcd) -> Paint(3) -> a; InfiniteSource(LIMIT 1, DATA abcd) -> Paint(9) -> a; \
     a -> x; Script(wait 0.1, stop);";

#[test]
fn aggregates_are_filtered() {
    let run = run(&format!(
        "x::AggregateFilter(allow 1, 1 2-4 7, deny 8-); {AGGREGATES} x[0] -> c0::Counter -> Discard; \
         x[1] -> c1::Counter -> Discard;"
    ));
    assert!(
        run.errors[1].contains("filter 2: '8-' is no aggregate and no range of them"),
        "{:?}",
        run.errors
    );
    let run = testing::run(&format!(
        "x::AggregateFilter(allow 1, 1 2-4 7, deny all); {AGGREGATES} x[0] -> c0::Counter -> Discard; \
         x[1] -> c1::Counter -> Discard;"
    ));
    assert_eq!(["c0.count", "c1.count"].map(|name| run.read(name)), ["3", "2"]);
    let errors = build("Idle -> AggregateFilter(2 1) -> Discard").errors;
    assert!(
        errors[1].contains("'2' is no action: expected 'allow', 'drop', or an output below 1"),
        "{errors:?}"
    );
}

#[test]
fn the_first_and_the_last_packet_of_each_aggregate_pass() {
    let rest = "x[0] -> Print(p, CONTENTS NONE, PRINTANNO true) -> c0::Counter -> Discard; \
                x[1] -> c1::Counter -> Discard;";
    let first = testing::run(&format!("x::AggregateFirst; {AGGREGATES} {rest}"));
    assert_eq!(["c0.count", "c1.count"].map(|name| first.read(name)), ["3", "3"]);
    let last = testing::run(&format!("x::AggregateLast; {AGGREGATES} {rest}"));
    assert_eq!(["c0.count", "c1.count"].map(|name| last.read(name)), ["0", "3"]);
    assert_eq!(last.write("x.clear"), "");
    assert_eq!(["c0.count", "c1.count"].map(|name| last.read(name)), ["3", "3"]);
    // Aggregate, packets and bytes beside this one, in the machine's order.
    let numbers = [1_u32, 2, 8].map(|number| u32::from_ne_bytes(number.to_be_bytes()));
    let [aggregate, packets, bytes] = numbers.map(|number| format!("{number:08x}"));
    let expected = format!("{aggregate}{packets}{bytes}");
    assert!(last.said()[0].contains(&expected), "{:?}: {expected}", last.said());
}

#[test]
fn pairs_of_addresses_are_numbered_and_replies_painted() {
    let run = testing::run(
        "s1::TimedSource(0.1, LIMIT 2) -> IPEncap(17, 1.1.1.1, 2.2.2.2) -> p::AggregateIPAddrPair(TIMEOUT 5); \
         s2::TimedSource(0.15, LIMIT 1) -> IPEncap(17, 2.2.2.2, 1.1.1.1) -> p; \
         s3::TimedSource(0.3, LIMIT 1) -> IPEncap(17, 1.1.1.1, 3.3.3.3) -> p; \
         TimedSource(9, LIMIT 1) -> IPEncap(17, 2.2.2.2, 1.1.1.1) -> p; \
         Idle -> p; p[1] -> none::Counter -> Discard; InfiniteSource(LIMIT 1) -> p; \
         p -> n::AggregateCounter -> k::PaintSwitch; k[0] -> there::Counter -> Discard; \
         k[1] -> back::Counter -> Discard; Script(wait 10, stop)",
    );
    assert_eq!(run.errors, [""; 0]);
    let counts = ["there.count", "back.count", "none.count", "n.nagg"].map(|name| run.read(name));
    // The pair is another one after its timeout.
    assert_eq!(counts, ["4", "1", "1", "3"]);
}

#[test]
fn packets_that_were_lost_on_a_way_are_found() {
    let run = testing::run(
        "c::AggregatePacketCounter; InfiniteSource(LIMIT 2) -> Paint(1, 32) -> [0]c; \
         InfiniteSource(LIMIT 1) -> Paint(2, 32) -> [0]c; InfiniteSource(LIMIT 1) -> Paint(3, 32) -> [0]c; \
         InfiniteSource(LIMIT 1) -> Paint(2, 32) -> [1]c; c[0] -> Discard; c[1] -> Discard; \
         Script(wait 0.1, stop)",
    );
    assert_eq!(run.errors, [""; 0]);
    assert_eq!(run.read("c.count"), "5");
    assert_eq!(run.read("c.received 0"), "1\n2\n3\n");
    assert_eq!(run.read("c.undelivered 0"), "1\n3\n");
    assert_eq!(run.read("c.undelivered 5"), "");
    assert_eq!(run.read("c.undelivered x"), "expected aggregate number");
    assert_eq!(run.write("c.clear"), "");
    assert_eq!(run.read("c.received 0"), "");
}
