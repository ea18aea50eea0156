//! Rewrites are byte for byte what scapy builds, where it is installed.
//!
//! scapy dissects each frame, changes its fields and options by the same words, and computes lengths, padding and
//! checksums from nothing.

use std::io::Write;
use std::process::{Command, Stdio};

use netbricks_core::packet::tcp::flags;
use netbricks_mmb::language::parse_command;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

use crate::run;

/// Rules, each with the frames that go through it.
const RULES: usize = 120;
const FRAMES: usize = 32;

/// Reads `{"targets": [[WORD, …], …], "frames": [HEX, …]}` a line, and answers the frames as they should leave.
const SCRIPT: &str = r#"
import json, sys
from scapy.config import conf
conf.verb = 0
from scapy.layers.l2 import Ether
from scapy.layers.inet import IP, TCP, UDP, ICMP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

# What ports say about payloads changes no byte of them.
TCP.payload_guess = UDP.payload_guess = []
V4 = {'ip-ttl': 'ttl', 'ip-id': 'id', 'ip-saddr': 'src', 'ip-daddr': 'dst'}
V6 = {'ip6-hop-limit': 'hlim', 'ip6-flow-label': 'fl', 'ip6-traffic-class': 'tc', 'ip6-saddr': 'src', 'ip6-daddr': 'dst'}
PORTS = {'tcp-sport': (TCP, 'sport'), 'tcp-dport': (TCP, 'dport'), 'udp-sport': (UDP, 'sport'),
         'udp-dport': (UDP, 'dport'), 'tcp-seq-num': (TCP, 'seq'), 'tcp-ack-num': (TCP, 'ack'),
         'tcp-win': (TCP, 'window'), 'tcp-urg-ptr': (TCP, 'urgptr')}
FLAGS = {'tcp-fin': 'F', 'tcp-psh': 'P', 'tcp-urg': 'U', 'tcp-ece': 'E', 'tcp-cwr': 'C'}
NAMES = {'tcp-opt-mss': 2, 'tcp-opt-wscale': 3, 'tcp-opt-sackp': 4, 'tcp-opt-timestamp': 8}
SIZES = {2: 2, 3: 1}

def number(text):
    return text if ':' in text or '.' in text else int(text, 0)

def options(raw):
    # Kinds with their data, without padding; from the bytes, so that each kind is kept as it is.
    found = []
    while raw and raw[0]:
        if raw[0] == 1:
            raw = raw[1:]
            continue
        found.append((raw[0], raw[2:raw[1]]))
        raw = raw[raw[1]:]
    return found

def change(frame, targets):
    p = Ether(frame)
    raw = bytes(p[TCP])[20:p[TCP].dataofs * 4] if TCP in p else b''
    known, rewritten, kept_done = options(raw), False, False
    kept = {kind(t[2:]) for t in targets if t[:2] == ['strip', '!']}
    for t in targets:
        if t[0] == 'mod' and t[1].startswith('tcp-opt'):
            if TCP in p and any(k == NAMES[t[1]] for k, _ in known):
                value = int(t[2]).to_bytes(SIZES[NAMES[t[1]]], 'big')
                first = next(i for i, (k, _) in enumerate(known) if k == NAMES[t[1]])
                if rewritten:
                    known[first] = (NAMES[t[1]], value)
                else:
                    # In its place, with the padding around it.
                    at, left = 0, first
                    while True:
                        if raw[at] == 1:
                            at += 1
                        elif left:
                            at += raw[at + 1]
                            left -= 1
                        else:
                            break
                    raw = raw[:at + 2] + value + raw[at + 2 + len(value):]
                    known = options(raw)
        elif t[0] == 'mod':
            write(p, t[1], number(t[2]))
        elif t[0] == 'strip' and TCP in p:
            if t[1] == '!':
                # All of a rule are one target, where the first one stands.
                out = known if kept_done else [o for o in known if o[0] in kept]
                kept_done = True
            elif t[1] == 'all':
                out = []
            else:
                out = [o for o in known if o[0] != kind(t[1:])]
            rewritten |= out != known
            known = out
        elif t[0] == 'add' and TCP in p:
            k = kind(t[1:])
            value = t[-1] if t[1].startswith('tcp-opt-') else t[3]
            data = bytes.fromhex(value[1:]) if value.startswith('x') else int(value).to_bytes(SIZES[k], 'big')
            if sum(2 + len(d) for _, d in known) + 2 + len(data) <= 40:
                known, rewritten = known + [(k, data)], True
    if TCP in p:
        if rewritten:
            raw = b''.join(bytes([k, len(d) + 2]) + d for k, d in known)
            raw += bytes(-len(raw) % 4)
        # As payload of a header without options: scapy has opinions of its own about some of them.
        tail = raw + bytes(p[TCP].payload)
        p[TCP].options = []
        p[TCP].dataofs = 5 + len(raw) // 4
        p[TCP].remove_payload()
        p[TCP].add_payload(Raw(tail)) if tail else None
        p[TCP].chksum = None
    if IP in p:
        p[IP].len = p[IP].chksum = None
    if IPv6 in p:
        p[IPv6].plen = None
    if UDP in p:
        p[UDP].chksum = None
    return bytes(p)

def kind(words):
    return int(words[1], 0) if words[0] == 'tcp-opt' else NAMES[words[0]]

def write(p, field, value):
    if field in V4 and IP in p:
        setattr(p[IP], V4[field], value)
    elif field in V6 and IPv6 in p:
        setattr(p[IPv6], V6[field], value)
    elif field == 'ip-dscp' and IP in p:
        p[IP].tos = p[IP].tos & 3 | value << 2
    elif field == 'ip-ecn' and IP in p:
        p[IP].tos = p[IP].tos & 0xfc | value
    elif field == 'ip-df' and IP in p:
        p[IP].flags.DF = value
    elif field in PORTS and PORTS[field][0] in p:
        setattr(p[PORTS[field][0]], PORTS[field][1], value)
    elif field in FLAGS and TCP in p:
        setattr(p[TCP].flags, FLAGS[field], value)

for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps([change(bytes.fromhex(f), case['targets']).hex() for f in case['frames']]))
"#;

fn frame(random: &mut Random) -> Vec<u8> {
    let payload: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
    let (from, to) = (1_024 + random.below(60_000) as u16, [22, 53, 80, 443][random.below(4)]);
    let (sequence, number) = (random.next() as u32, random.next() as u32);
    let set = [flags::SYN, flags::ACK, flags::ACK | flags::PSH, flags::FIN | flags::ACK][random.below(4)];
    let choices: Vec<usize> = (0..random.below(5)).map(|_| random.below(6)).collect();
    macro_rules! segment {
        ($ip:expr) => {{
            let mut tcp = $ip.tcp(from, to).sequence(sequence).ack(number).flags(set).window(number as u16);
            let mut room = 40usize;
            for choice in &choices {
                let size = [4, 3, 2, 10, 8, 1][*choice];
                if room < size {
                    continue;
                }
                room -= size;
                tcp = match choice {
                    0 => tcp.maximum_segment_size(number as u16),
                    1 => tcp.window_scale(sequence as u8 % 15),
                    2 => tcp.sack_permitted(),
                    3 => tcp.timestamps(sequence, number),
                    4 => tcp.option(30, &sequence.to_be_bytes().repeat(2)[..6]),
                    _ => tcp.option(253, b""),
                };
            }
            tcp.payload(&payload).build()
        }};
    }
    let v4 = || ethernet().ipv4("10.0.0.1", "192.0.2.7").ttl(64).identification(number as u16);
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    match random.below(6) {
        0..3 => segment!(v4()),
        3 => segment!(v6()),
        4 => v4().udp(from, to).payload(&payload).build(),
        _ => v6().udp(from, to).payload(&payload).build(),
    }
    .expect("a packet")
}

/// The targets of a rule, each as its words.
fn targets(random: &mut Random) -> Vec<Vec<String>> {
    let fields = [
        ("ip-ttl", 256),
        ("ip-id", 65_536),
        ("ip-dscp", 64),
        ("ip-ecn", 4),
        ("ip-df", 2),
        ("ip6-hop-limit", 256),
        ("ip6-flow-label", 1 << 20),
        ("ip6-traffic-class", 256),
        ("tcp-seq-num", 1 << 32),
        ("tcp-ack-num", 1 << 32),
        ("tcp-win", 65_536),
        ("tcp-urg-ptr", 65_536),
        ("tcp-opt-mss", 65_536),
        ("tcp-opt-wscale", 15),
        ("tcp-ece", 2),
        ("tcp-cwr", 2),
        ("tcp-urg", 2),
    ];
    let ports = ["tcp-sport", "tcp-dport", "udp-sport", "udp-dport"];
    let options = [
        &["tcp-opt-mss"][..],
        &["tcp-opt-wscale"],
        &["tcp-opt-sackp"],
        &["tcp-opt-timestamp"],
        &["tcp-opt", "30"],
    ];
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let keeps = random.below(4) == 0;
    let mut all = Vec::new();
    for _ in 0..1 + random.below(4) {
        all.push(match random.below(8) {
            0..3 => {
                let (field, bound) = fields[random.below(fields.len())];
                words(&["mod", field, &(random.next() % bound).to_string()])
            }
            3 => words(&["mod", ports[random.below(4)], &(random.next() as u16).to_string()]),
            4 => {
                let last = random.next() as u8;
                match random.below(4) {
                    0 => words(&["mod", "ip-saddr", &format!("198.51.100.{last}")]),
                    1 => words(&["mod", "ip-daddr", &format!("203.0.113.{last}")]),
                    2 => words(&["mod", "ip6-saddr", &format!("2001:db8::5:{last:x}")]),
                    _ => words(&["mod", "ip6-daddr", &format!("2001:db8::6:{last:x}")]),
                }
            }
            5 | 6 => {
                let option = options[random.below(options.len())];
                match (keeps, random.below(6)) {
                    (true, _) => [&words(&["strip", "!"])[..], &words(option)].concat(),
                    (false, 0) => words(&["strip", "all"]),
                    _ => [&words(&["strip"])[..], &words(option)].concat(),
                }
            }
            _ => match random.below(3) {
                0 => words(&["add", "tcp-opt-mss", &(random.next() as u16).to_string()]),
                1 => words(&["add", "tcp-opt-wscale", &random.below(15).to_string()]),
                _ => words(&["add", "tcp-opt", "253", &format!("x{:08x}", random.next() as u32)]),
            },
        });
    }
    all
}

fn line(targets: &[Vec<String>]) -> String {
    let words: Vec<String> = targets.iter().map(|target| target.join(" ")).collect();
    format!("add all {}", words.join(" "))
}

/// The frames that scapy makes of these cases; `None` without it.
fn rebuilt(cases: &[serde_json::Value]) -> Option<Vec<Vec<String>>> {
    let is_there =
        Command::new("python3").args(["-c", "import scapy.layers.inet6"]).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs python3 with scapy (Debian's python3-scapy), which is not installed");
        return None;
    }
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let mut input = python.stdin.take().expect("it is piped");
    // It answers while it reads.
    let writes = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("it ends");
    writes.join().expect("no panic").expect("python3 reads to the end");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("hexadecimal digits");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a list of frames")).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The targets of a rule, each in words, and frames that it matches.
type Case = (Vec<Vec<String>>, Vec<Vec<u8>>);

#[test]
fn rewrites_are_those_of_scapy() {
    let mut random = Random::new(31);
    let cases: Vec<Case> = (0..RULES)
        .map(|_| {
            let mut tried = targets(&mut random);
            // Such as both versions of IP in one rule.
            while parse_command(&line(&tried)).is_err() {
                tried = targets(&mut random);
            }
            (tried, (0..FRAMES).map(|_| frame(&mut random)).collect())
        })
        .collect();
    let asked: Vec<serde_json::Value> = cases
        .iter()
        .map(|(targets, frames)| {
            let frames: Vec<String> = frames.iter().map(|frame| hex(frame)).collect();
            serde_json::json!({ "targets": targets, "frames": frames })
        })
        .collect();
    let Some(expected) = rebuilt(&asked) else { return };
    assert_eq!(expected.len(), cases.len());
    let mut changed = 0;
    for ((targets, frames), expected) in cases.iter().zip(&expected) {
        let rule = line(targets);
        let found = run(&[&rule], frames.iter().cloned()).out;
        assert_eq!(found.len(), frames.len(), "{rule}");
        for ((frame, found), expected) in frames.iter().zip(&found).zip(expected) {
            assert_eq!(hex(found), *expected, "{rule}\nof {}", hex(frame));
            changed += usize::from(found != frame);
        }
    }
    assert!(changed > RULES * FRAMES / 3, "{changed} frames were changed");
}
