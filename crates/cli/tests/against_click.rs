//! Click configurations against the original, packet for packet, where that is there.
//!
//! `NETBRICKS_CLICK` names a folder with the programs `click` and `click-flatten` of kohler/click, built with
//! `./configure --disable-linuxmodule && make`. `NETBRICKS_CLICK_CONF` names its folder `conf`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Captures that are compared.
const CAPTURES: usize = 20;
/// Packets that are made up.
const PACKETS: u32 = 100_000;

/// The folder of the original's programs; `None` where there is none, which is said.
fn original() -> Option<PathBuf> {
    let folder = std::env::var_os("NETBRICKS_CLICK").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: set NETBRICKS_CLICK to a folder with the programs of kohler/click");
    }
    folder
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Numbers without a pattern, the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0))).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// An Ethernet frame of a few addresses and ports, so that rules and tables meet it.
fn frame(random: &mut Random, number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let protocol = random.one_of(&[6_u8, 6, 6, 17, 17, 1, 47]);
    let payload = random.one_of(&[0_usize, 1, 8, 26, 200, 700, 1_400]);
    let header = match protocol {
        6 => 20,
        17 | 1 => 8,
        _ => 4,
    };
    let options = if random.below(40) == 0 { 4 } else { 0 };
    let length = 20 + options + header + payload;
    let mut ip = vec![0_u8; 20 + options];
    ip[0] = 0x40 | (5 + options as u8 / 4);
    ip[1] = random.one_of(&[0, 0, 0, 4, 0xB8]);
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&(number as u16).to_be_bytes());
    if random.below(8) == 0 {
        ip[6] = 0x40;
    }
    if random.below(50) == 0 {
        ip[7] = 3;
    }
    ip[8] = random.one_of(&[64, 64, 64, 128, 2, 1]);
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&[10, random.below(4) as u8, random.below(3) as u8, random.below(6) as u8]);
    ip[16..20].copy_from_slice(&[
        random.one_of(&[10, 18, 192]),
        random.below(4) as u8,
        0,
        random.below(6) as u8,
    ]);
    if options > 0 {
        ip[20..24].copy_from_slice(&[1, 1, 1, 0]);
    }
    let check = sum(&ip).wrapping_add(u16::from(random.below(100) == 0));
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let mut rest = vec![0_u8; header + payload];
    rest.iter_mut().skip(header).zip(0_u8..=255).for_each(|(byte, value)| *byte = value);
    let ports = [20, 21, 22, 53, 80, 443, 1_024, 5_000];
    rest[..2].copy_from_slice(&(random.one_of(&ports) as u16).to_be_bytes());
    rest[2..4].copy_from_slice(&(random.one_of(&ports) as u16).to_be_bytes());
    match protocol {
        6 => {
            rest[4..8].copy_from_slice(&number.to_be_bytes());
            (rest[12], rest[13]) = (0x50, random.one_of(&[2, 16, 16, 24, 17, 4]));
        }
        17 => rest[4..6].copy_from_slice(&((header + payload) as u16).to_be_bytes()),
        1 => (rest[0], rest[1]) = (random.one_of(&[0, 8, 8, 3, 11]), 0),
        _ => (),
    }
    if matches!(protocol, 6 | 17) {
        let mut pseudo = ip[12..20].to_vec();
        pseudo.extend_from_slice(&[0, protocol]);
        pseudo.extend_from_slice(&((header + payload) as u16).to_be_bytes());
        pseudo.extend_from_slice(&rest);
        let at = if protocol == 6 { 16 } else { 6 };
        rest[at..at + 2].copy_from_slice(&sum(&pseudo).to_be_bytes());
    } else if protocol == 1 {
        let check = sum(&rest);
        rest[2..4].copy_from_slice(&check.to_be_bytes());
    }
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&rest);
    frame
}

/// A capture (pcap, microseconds) of made-up packets, 10 µs apart.
fn generated(packets: u32) -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let mut random = Random(7);
    for number in 0..packets {
        let frame = frame(&mut random, number);
        let time = u64::from(number) * 10;
        for word in [
            1_000 + (time / 1_000_000) as u32,
            (time % 1_000_000) as u32,
            frame.len() as u32,
            frame.len() as u32,
        ] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&frame);
    }
    file
}

/// 100 rules of `IPFilter`, of all kinds of conditions.
///
/// No rule contradicts itself: the optimiser of the original ends the program over many such rules.
fn rules(seed: u64) -> String {
    let mut random = Random(seed);
    let mut all = String::new();
    let ports = [20, 21, 22, 53, 80, 443, 1_024, 5_000];
    for _ in 0..100 {
        let action = random.one_of(&["allow", "deny", "1", "2"]);
        let mut parts = Vec::new();
        let kind = random.below(5);
        if kind < 2 {
            let protocol = ["tcp", "udp"][kind as usize];
            let (side, port) = (random.one_of(&["src", "dst"]), random.one_of(&ports));
            parts.push(match random.below(3) {
                0 => protocol.to_owned(),
                1 => format!("{side} {protocol} port {port}"),
                _ => format!("{protocol} && {side} port > {port}"),
            });
        } else if kind == 2 {
            let others = ["icmp", "icmp type echo", "ip proto 47", "tcp opt syn", "tcp opt ack"];
            parts.push(random.one_of(&others).to_owned());
        }
        let (b, c, d) = (random.below(4), random.below(3), random.below(6));
        match random.below(6) {
            0 => parts.push(format!("src host 10.{b}.{c}.{d}")),
            1 => parts.push(format!("src net 10.{b}.0.0/16")),
            2 => parts.push(format!("src net 10.{b}.{c}.0/24")),
            _ => (),
        }
        let (b, d) = (random.below(4), random.below(6));
        match random.below(8) {
            0 => parts.push(format!("dst host 10.{b}.0.{d}")),
            1 => parts.push(format!("dst net 10.{b}.0.0/16")),
            2 => parts.push(format!("dst net 18.{b}.0.0/16")),
            3 => parts.push(format!("dst host 192.{b}.0.{d}")),
            _ => (),
        }
        if parts.is_empty() || random.below(4) == 0 {
            let others = ["ip ttl < 3", "ip frag", "ip unfrag", "ip tos 4", "ip dscp 46", "ip hl > 5"];
            parts.push(random.one_of(&others).to_owned());
        }
        let _ = write!(all, "{action} {}, ", parts.join(" && "));
    }
    all + "deny all"
}

/// When simulated time begins (s): captures are older.
const BEGIN: u32 = 1_000_000_000;

/// The packets of a capture: time, length and bytes.
///
/// Times of the simulated clock are left out: the two differ by the steps of their schedulers, some microseconds.
fn packets(file: &[u8]) -> Vec<(u32, u32, u32, &[u8])> {
    let word =
        |at: usize| file.get(at..at + 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let mut all = Vec::new();
    let mut at = 24;
    while let (Some(seconds), Some(part), Some(length), Some(wire)) =
        (word(at), word(at + 4), word(at + 8), word(at + 12))
    {
        let Some(bytes) = file.get(at + 16..at + 16 + length as usize) else { break };
        let simulated = (BEGIN..BEGIN + 1_000).contains(&seconds);
        all.push(if simulated { (0, 0, wire, bytes) } else { (seconds, part, wire, bytes) });
        at += 16 + length as usize;
    }
    all
}

fn call(program: &Path, arguments: &[&str], directory: &Path) -> Output {
    std::fs::create_dir_all(directory).expect("a folder");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).output().expect("the program is there")
}

/// Runs a configuration by both, and compares the files that it writes. Returns the number of packets in them.
fn compare(original: &Path, directory: &Path, name: &str, configuration: &str, outputs: usize) -> usize {
    let file = directory.join(format!("{name}.click"));
    std::fs::write(&file, configuration).expect("a file");
    let file = file.to_str().expect("a path of ASCII");
    let (theirs, ours) = (directory.join(format!("{name}-theirs")), directory.join(format!("{name}-ours")));
    let output = call(&original.join("click"), &["--simtime", file], &theirs);
    assert!(output.status.success(), "{name}: the original: {output:?}");
    let output = call(Path::new(env!("CARGO_BIN_EXE_netbricks")), &["click", "--simtime", file], &ours);
    assert!(output.status.success(), "{name}: {output:?}");
    let mut count = 0;
    for number in 0..outputs {
        let read = |folder: &Path| std::fs::read(folder.join(format!("{number}.pcap"))).expect("a capture");
        let (theirs, ours) = (read(&theirs), read(&ours));
        let (theirs, ours) = (packets(&theirs), packets(&ours));
        let differs = theirs.iter().zip(&ours).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("{name}, output {number}, packet {at}:\n{:02x?}\n{:02x?}", theirs[at], ours[at]);
        }
        assert_eq!(theirs.len(), ours.len(), "{name}, output {number}: packets");
        count += ours.len();
    }
    count
}

/// Rewriters: a name, their declarations, and the classifier of their four inputs.
const REWRITERS: [(&str, &str, &str); 6] = [
    (
        "patterns",
        "IPRewriterPatterns(one 1.0.0.1 1024-65535# - -, two - - 2.0.0.2 8080);
             map :: RoundRobinIPMapper(one 0 1, 7.0.0.1 5000-60000# 7.0.0.2 - 1 0, - - 7.0.0.3 81 0 1);
             rw :: IPRewriter(pattern one 0 1, pattern two 0 1, keep 1 0, map)",
        "dst net 10.0.0.0/8, dst net 18.0.0.0/8, src tcp port 80, -",
    ),
    (
        "given",
        "rw :: IPRewriter(pass 1, nochange 0, pattern 1.0.0.1 30000 - - 1 0,
               pattern 1.0.0.2 1024-9999# 3.0.0.3 22 0 1)",
        "dst net 10.0.0.0/8, dst net 18.0.0.0/8, src tcp port 80, -",
    ),
    (
        "tcp-rewriter",
        "rw :: TCPRewriter(pattern 1.0.0.1 20000-60000# - - 0 1, drop, keep 1 0, pass 0)",
        "tcp && src net 10.0.0.0/15, udp, tcp && dst net 18.0.0.0/8, tcp",
    ),
    (
        "udp-rewriter",
        "rw :: UDPRewriter(pattern 1.0.0.1 20000-60000# - - 0 1, drop, keep 1 0, pass 0)",
        "udp && src net 10.0.0.0/15, tcp, udp && dst net 18.0.0.0/8, udp",
    ),
    (
        "addresses",
        "rw :: IPAddrRewriter(pattern 1.0.0.1-1.0.0.200# - 0 1, drop, keep 1 0, pass 0)",
        "src net 10.0.0.0/15, tcp, dst net 18.0.0.0/8, -",
    ),
    (
        "pairs",
        "rw :: IPAddrPairRewriter(pattern 1.0.0.1-1.0.0.200# - 0 1, drop, keep 1 0, pattern - 9.9.9.9 1 0)",
        "src net 10.0.0.0/15, tcp, dst net 18.0.0.0/8, -",
    ),
];

/// Configurations, with the number of captures that they write. `IN` stands for the source.
fn configurations() -> Vec<(String, String, usize)> {
    let mut all: Vec<(String, String, usize)> = Vec::new();
    let mut add = |name: &str, text: String, outputs| all.push((name.to_owned(), text, outputs));
    for seed in 1..=3 {
        add(
            &format!("filter-{seed}"),
            format!(
                "IN -> Strip(14) -> CheckIPHeader -> f :: IPFilter({});
                 f[0] -> Unstrip(14) -> ToDump(0.pcap, ENCAP ETHER); f[1] -> Unstrip(14) -> ToDump(1.pcap, ENCAP ETHER);
                 f[2] -> Unstrip(14) -> ToDump(2.pcap, ENCAP ETHER)",
                rules(seed)
            ),
            3,
        );
    }
    add(
        "router",
        "IN -> c :: Classifier(12/0800, -) -> Paint(1) -> Strip(14) -> CheckIPHeader(INTERFACES 10.0.0.1/8 18.0.0.1/8)
           -> rt :: StaticIPLookup(10.0.0.1/32 0, 10.0.0.0/9 1, 18.0.0.0/8 2, 192.0.0.0/8 18.0.0.9 2, 10.2.0.0/16 10.9.9.9 1);
         c[1] -> Discard; rt[0] -> Discard;
         elementclass Way { $color, $address, $mtu | input -> DropBroadcasts -> cp :: PaintTee($color)
           -> gio :: IPGWOptions($address) -> FixIPSrc($address) -> dt :: DecIPTTL -> fr :: IPFragmenter($mtu) -> [0]output;
           cp[1] -> ICMPError($address, redirect, host) -> [1]output; gio[1] -> ICMPError($address, parameterproblem) -> [1]output;
           dt[1] -> ICMPError($address, timeexceeded) -> [1]output;
           fr[1] -> ICMPError($address, unreachable, needfrag) -> [1]output }
         rt[1] -> a :: Way(1, 10.0.0.1, 1500) -> ToDump(0.pcap, ENCAP IP); a[1] -> ToDump(2.pcap, ENCAP IP);
         rt[2] -> b :: Way(2, 18.0.0.1, 576) -> ToDump(1.pcap, ENCAP IP); b[1] -> ToDump(3.pcap, ENCAP IP);"
            .into(),
        4,
    );
    add(
        "rewriter",
        "IN -> Strip(14) -> CheckIPHeader -> f :: IPClassifier(tcp or udp, -); f[1] -> Discard;
         f[0] -> c :: IPClassifier(dst net 10.0.0.0/8, -);
         rw :: IPRewriter(pattern 1.0.0.1 20000-60000# - - 0 1, pattern 2.0.0.2 - 3.0.0.3 - 1 0, drop);
         c[1] -> [0]rw; c[0] -> [1]rw; rw[0] -> ToDump(0.pcap, ENCAP IP); rw[1] -> ToDump(1.pcap, ENCAP IP);
         Idle -> [2]rw"
            .into(),
        2,
    );
    for (name, patterns, ways) in REWRITERS {
        add(
            name,
            format!(
                "IN -> Strip(14) -> CheckIPHeader -> f :: IPClassifier(tcp or udp, -); f[1] -> Discard;
                 {patterns}; f[0] -> c :: IPClassifier({ways}); c => [0-3]rw;
                 rw[0] -> t :: Tee -> ToDump(0.pcap, ENCAP IP); rw[1] -> u :: Tee -> ToDump(1.pcap, ENCAP IP);
                 t[1] -> IPMirror -> [0]rw; u[1] -> Discard"
            ),
            2,
        );
    }
    add(
        "fragments",
        "IN -> Strip(14) -> CheckIPHeader -> f :: IPFragmenter(576) -> t :: Tee(2)
           -> ToDump(0.pcap, ENCAP IP); t[1] -> CheckIPHeader -> IPReassembler -> ToDump(1.pcap, ENCAP IP); f[1] -> Discard"
            .into(),
        2,
    );
    for (name, scheduler) in
        [("prio", "PrioSched"), ("round-robin", "RoundRobinSched"), ("stride", "StrideSched(1, 2)")]
    {
        add(
            name,
            format!(
                "IN -> Strip(14) -> CheckIPHeader -> c :: IPClassifier(tcp, -); c[0] -> Queue(50) -> [0]s :: {scheduler};
                 c[1] -> FrontDropQueue(20) -> [1]s; s -> RatedUnqueue(20000) -> ToDump(0.pcap, ENCAP IP)"
            ),
            1,
        );
    }
    for (name, text) in [
        (
            "queues",
            "IN -> t :: Tee(3) -> NotifierQueue(30) -> [0]s :: TimeSortedSched; t[1] -> Strip(14) -> CheckIPHeader
               -> c :: IPClassifier(tcp, -) -> m :: MixedQueue(40) -> RatedUnqueue(9000) -> ToDump(1.pcap, ENCAP IP);
             c[1] -> [1]m; t[2] -> Queue(25) -> DelayUnqueue(0.7ms) -> Queue -> [1]s;
             s -> Unqueue -> ToDump(0.pcap, ENCAP ETHER)",
        ),
        (
            "links",
            "IN -> s :: RatedSplitter(30000) -> Queue(60) -> LinkUnqueue(1ms, 200Mbps) -> ToDump(0.pcap, ENCAP ETHER);
             s[1] -> b :: BandwidthRatedSplitter(2MBps) -> Queue(20) -> BandwidthRatedUnqueue(1MBps)
               -> ToDump(1.pcap, ENCAP ETHER); b[1] -> Discard",
        ),
    ] {
        add(name, text.to_owned(), 2);
    }
    add(
        "shaping",
        "IN -> Queue(100) -> BandwidthShaper(500kBps) -> DelayShaper(2ms) -> Unqueue -> ToDump(0.pcap, ENCAP ETHER)".into(),
        1,
    );
    all
}

fn compare_all(directory: &Path, original: &Path, capture: &Path, timing: bool) -> usize {
    let mut count = 0;
    for (name, text, outputs) in configurations() {
        // Rates and delays are only comparable where packets come at their times.
        let needs = matches!(&name[..], "queues" | "links");
        if needs && !timing {
            continue;
        }
        let timing = timing && (needs || matches!(&name[..], "prio" | "round-robin" | "stride" | "shaping"));
        let source = format!("FromDump({}, STOP {}, TIMING {timing})", capture.display(), !timing);
        let mut text = text.replacen("IN ", &format!("{source} "), 1);
        if timing {
            // What is queued when the last packet has come, after a second, still leaves.
            text += ";\nDriverManager(wait_time 2s, stop)";
        }
        count += compare(original, directory, &name, &text, outputs);
    }
    count
}

#[test]
fn made_up_packets_leave_as_from_the_original() {
    let Some(original) = original() else { return };
    let directory = scratch("against-click");
    let capture = directory.join("in.pcap");
    std::fs::write(&capture, generated(PACKETS)).expect("a file");
    let compared = compare_all(&directory, &original, &capture, true);
    println!("{compared} packets of {PACKETS} made-up ones are as from the original");
    assert!(compared > PACKETS as usize, "{compared}");
}

#[test]
fn captures_leave_as_from_the_original() {
    let Some(original) = original() else { return };
    let is_plain = |file: &PathBuf| {
        // Classic captures of Ethernet, whose words are little-endian: the original reads no pcapng.
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.starts_with(&[0xD4, 0xC3, 0xB2, 0xA1]) && bytes.get(20..24) == Some(&[1, 0, 0, 0])
    };
    let files: Vec<PathBuf> = netbricks_testkit::captures::files().into_iter().filter(is_plain).collect();
    if files.is_empty() {
        println!("skipped: there are no captures: set NETBRICKS_CAPTURES to a folder of them");
        return;
    }
    let directory = scratch("against-click-captures");
    let mut compared = 0;
    for file in files.iter().take(CAPTURES) {
        compared += compare_all(&directory, &original, file, false);
    }
    println!("{compared} packets of {} captures are as from the original", files.len().min(CAPTURES));
    assert!(compared > 0 && files.len() >= CAPTURES, "{} captures, not {CAPTURES}", files.len());
}

#[test]
fn flat_configurations_are_the_originals() {
    let Some(original) = original() else { return };
    let Some(folder) = std::env::var_os("NETBRICKS_CLICK_CONF") else {
        println!("skipped: set NETBRICKS_CLICK_CONF to Click's folder `conf`");
        return;
    };
    let directory = scratch("against-click-flatten");
    let program = directory.join("click-flatten");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_netbricks"), &program).expect("a link");
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "click") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut compared = 0;
    for file in &files {
        let file = file.to_str().expect("a path of ASCII");
        for options in [&[][..], &["--expand-vars"], &["--classes"], &["--names"], &["--declarations"]] {
            let arguments = [options, &[file]].concat();
            let theirs = call(&original.join("click-flatten"), &arguments, &directory);
            if !theirs.status.success() {
                continue;
            }
            let ours = call(&program, &arguments, &directory);
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text(&ours), text(&theirs), "{arguments:?}: {ours:?}");
            compared += usize::from(options.is_empty());
        }
    }
    println!("{compared} of {} configurations are flattened as by the original", files.len());
    assert!(compared > 0);
}
