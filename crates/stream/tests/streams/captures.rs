//! Compares every TCP flow of the available captures with Wireshark's (`tshark -z follow,tcp,raw`), byte for
//! byte.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{FlowKey, Geneve, Gre, Ip, Link, Tcp, Udp};
use netbricks_stream::{Protocol, Reassembler, Segment, Side, StreamConfig, What};
use netbricks_testkit::captures;

/// Both directions of one connection: the sender's address and the bytes.
type Streams = [(SocketAddr, Vec<u8>); 2];
/// Connections by their ends, in the order in which they began.
type Flows = BTreeMap<BTreeSet<SocketAddr>, Vec<Streams>>;

/// The flows where Wireshark follows other bytes than the test expects.
///
/// Each entry has the capture, the sender, how many of Wireshark's bytes are expected (no others), and the
/// reason.
const EXCEPTIONS: &[(&str, &str, usize, &str)] = &[
    (
        "tls-211-flows.pcap",
        "93.191.156.41:443",
        16_570,
        "the client reset the connection before the rest came: no receiver ever had it (RFC 9293, section 3.5.3)",
    ),
    (
        "bgp_mp_reach_nlri-oobr.pcap",
        "241.0.128.39:179",
        0,
        "cut off by the capture: its IP header is malformed",
    ),
    (
        "of10_7050sx_bsn-oobr.pcap",
        "109.74.202.168:6653",
        0,
        "cut off by the capture: its IP header is malformed",
    ),
    (
        "tcp4.pcap",
        "10.0.0.1:1025",
        0,
        "bytes of a SYN without an answer: no receiver is known to have taken them",
    ),
    (
        "tfo-5c1fa7f9ae91.pcap",
        "192.168.0.100:13048",
        0,
        "bytes of a SYN whose answer was not seen: they are told at the end of the connection, and none is shown",
    ),
];

/// The least number of connections and bytes that each available capture must compare; else the test would
/// show nothing.
const LEAST: &[(&str, usize, usize)] = &[
    ("http-ipv6.pcap", 1, 1_700_000),
    ("isp-sample-4k.pcap", 690, 1_600_000),
    ("mixed-with-llc-arp-v6.pcap", 26, 490_000),
    ("tls-211-flows.pcap", 68, 1_300_000),
];

/// The output of tshark for a capture; `None` if tshark does not know frames of that kind.
fn tshark(file: &Path, arguments: &[String]) -> Option<String> {
    let output = Command::new("tshark").arg("-n").arg("-r").arg(file).args(arguments).output();
    let output = output.expect("it told its version");
    let says = String::from_utf8_lossy(&output.stderr);
    if says.contains("contains record data that TShark doesn't support") {
        return None;
    }
    // A capture that is cut off is followed up to its end.
    let is_read = output.status.success() || says.contains("appears to have been cut short");
    assert!(is_read, "{}: tshark failed ({}): {says}", file.display(), output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Wireshark's flows of a capture; `None` if it can't read it.
fn expected(file: &Path) -> Option<Flows> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let numbers = tshark(file, &words("-Y tcp -T fields -e tcp.stream"))?;
    let numbers: BTreeSet<u32> =
        numbers.split(['\n', ',']).filter_map(|number| number.trim().parse().ok()).collect();
    let mut flows = Flows::new();
    if numbers.is_empty() {
        return Some(flows);
    }
    let mut arguments = words("-q");
    for number in &numbers {
        arguments.extend(["-z".to_owned(), format!("follow,tcp,raw,{number}")]);
    }
    let text = tshark(file, &arguments)?;
    let mut followed: BTreeMap<u32, Streams> = BTreeMap::new();
    // Streams without a segment that Wireshark could read (`beep-oobr.pcap` has one).
    let mut of_nobody = 0;
    for section in text.split("Follow: tcp,raw\n").skip(1) {
        let not_rewritten = || format!("{}: tshark said something unexpected: {section}", file.display());
        let mut lines = section.lines();
        let mut after = |word: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(word));
            line.unwrap_or_else(|| panic!("{}", not_rewritten())).to_owned()
        };
        let number =
            after("Filter: tcp.stream eq ").parse().unwrap_or_else(|_| panic!("{}", not_rewritten()));
        let nodes = ["Node 0: ", "Node 1: "].map(|word| {
            let text = after(word);
            let (address, port) = text.rsplit_once(':')?;
            let address = address.trim_matches(['[', ']']);
            Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
        });
        let [Some(one), Some(other)] = nodes else {
            assert!(lines.all(|line| line.starts_with('=')), "{}", not_rewritten());
            of_nobody += 1;
            continue;
        };
        let mut streams = [one, other].map(|node| (node, Vec::new()));
        for line in lines.take_while(|line| !line.starts_with('=')) {
            let hex = line.trim_start_matches('\t').as_bytes();
            let (pairs, rest) = hex.as_chunks::<2>();
            assert!(rest.is_empty(), "{}", not_rewritten());
            let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let bytes = pairs.iter().map(|pair| byte(pair).unwrap_or_else(|| panic!("{}", not_rewritten())));
            streams[usize::from(line.starts_with('\t'))].1.extend(bytes);
        }
        followed.insert(number, streams);
    }
    assert_eq!(followed.len() + of_nobody, numbers.len(), "{}: a stream was not followed", file.display());
    for streams in followed.into_values() {
        flows.entry(streams.iter().map(|(end, _)| *end).collect()).or_default().push(streams);
    }
    Some(flows)
}

/// The TCP segment of a frame, behind any tags, and inside a GRE or Geneve tunnel.
pub(crate) fn segment(frame: &[u8]) -> Option<(FlowKey, Segment<'_>)> {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).ok()?, frame).ok()?;
    match ip.next() {
        6 => of(frame, ip),
        47 => of(frame, Layer::<_, Ip>::parse(Layer::<_, Gre>::parse(ip, frame).ok()?, frame).ok()?),
        17 => {
            let geneve = Layer::<_, Geneve>::parse(Layer::<_, Udp>::parse(ip, frame).ok()?, frame).ok()?;
            let link = Layer::<_, Link>::parse(geneve, frame).ok()?;
            of(frame, Layer::<_, Ip>::parse(link, frame).ok()?)
        }
        _ => None,
    }
}

fn of<P: Stack>(frame: &[u8], ip: Layer<P, Ip>) -> Option<(FlowKey, Segment<'_>)> {
    let (at, facts) = ip.top();
    let key = FlowKey::at(frame, at, ip.end(), ip.limit(frame.len()), facts);
    if ip.next() != 6 {
        return None;
    }
    let tcp = Layer::<_, Tcp>::parse(ip, frame).ok()?;
    let header = Tcp::view(&frame[tcp.top().0..tcp.end()], ());
    Some((key, Tcp::segment(header, &frame[tcp.end()..tcp.limit(frame.len())])))
}

/// More than any flow of a capture needs. Other tests cover the bounds.
fn roomy() -> StreamConfig {
    StreamConfig { flow_memory: 4 << 20, ..StreamConfig::default() }
}

/// The reassembler's flows of a capture.
fn actual(file: &Path) -> Flows {
    let mut streams = Reassembler::<Tcp>::new(roomy()).expect("so much is possible");
    let mut open: BTreeMap<u32, (BTreeSet<SocketAddr>, usize)> = BTreeMap::new();
    let mut flows = Flows::new();
    let mut connections = 0;
    for frame in captures::frames(file) {
        let Some((flow, segment)) = segment(&frame) else { continue };
        let ends = [
            SocketAddr::new(flow.source(), flow.source_port()),
            SocketAddr::new(flow.destination(), flow.destination_port()),
        ];
        let key: BTreeSet<SocketAddr> = ends.into();
        let mut told: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        streams.push(flow, segment, 0, |delivery| {
            let from = SocketAddr::new(delivery.flow.source(), delivery.flow.source_port());
            match delivery.what {
                What::Bytes(bytes) => told.push((from, bytes.to_vec())),
                What::Gap(missing) => {
                    told.push((from, format!("[{missing} bytes missing in capture file]\0").into_bytes()));
                }
                What::End(_) | What::Urgent(_) => {}
            }
        });
        let Some((number, side)) = streams.side(flow) else { continue };
        let began = streams.counters().connections > connections;
        connections = streams.counters().connections;
        if began {
            let all = flows.entry(key.clone()).or_default();
            let client = if side == Side::Client { ends } else { [ends[1], ends[0]] };
            all.push(client.map(|end| (end, Vec::new())));
            open.insert(number, (key.clone(), all.len() - 1));
        }
        let (key, place) = &open[&number];
        for (from, bytes) in told {
            for (end, stream) in &mut flows.get_mut(key).expect("it began")[*place] {
                if *end == from {
                    stream.extend(&bytes);
                }
            }
        }
    }
    flows
}

/// The amount that was compared, and the differences.
#[derive(Default)]
struct Comparison {
    flows: usize,
    bytes: usize,
    /// Indexes into the exceptions.
    excepted: BTreeSet<usize>,
    wrong: Vec<String>,
}

impl Comparison {
    /// Compares one connection between these ends, each side's the one with this number.
    fn compare(&mut self, name: &str, number: usize, expected: &Streams, actual: Option<&Streams>) {
        self.flows += 1;
        for (from, stream) in expected {
            let exception = EXCEPTIONS
                .iter()
                .position(|(file, sender, ..)| *file == name && *sender == from.to_string() && number == 0);
            let stream = match exception {
                Some(place) if stream.len() > EXCEPTIONS[place].2 => {
                    self.excepted.insert(place);
                    &stream[..EXCEPTIONS[place].2]
                }
                _ => stream.as_slice(),
            };
            self.bytes += stream.len();
            let actual = actual.and_then(|streams| streams.iter().find(|(end, _)| end == from));
            let actual = actual.map(|(_, stream)| stream.as_slice());
            if actual.unwrap_or_default() != stream {
                self.wrong.push(format!(
                    "{name}: number {number}, from {from}: {} bytes, found {:?}, equal up to {}",
                    stream.len(),
                    actual.map(<[u8]>::len),
                    stream.iter().zip(actual.unwrap_or_default()).take_while(|(a, b)| a == b).count()
                ));
            }
        }
    }
}

#[test]
fn every_flow_of_every_capture_is_what_wireshark_follows() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: there are no captures; NETBRICKS_CAPTURES names their folder");
        return;
    }
    if !Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: tshark is not installed (Debian package `tshark`)");
        return;
    }
    let mut all = Comparison::default();
    let mut compared: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let before = (all.flows, all.bytes);
        let Some(expected) = expected(&file) else {
            eprintln!("skipped: {name} has frames that tshark does not know");
            continue;
        };
        let actual = actual(&file);
        for (ends, expected) in &expected {
            for (number, expected) in expected.iter().enumerate() {
                all.compare(
                    &name,
                    number,
                    expected,
                    actual.get(ends).and_then(|streams| streams.get(number)),
                );
            }
        }
        // The reassembler also follows no connection that Wireshark does not have.
        for (ends, streams) in &actual {
            let known = expected.get(ends).map_or(0, Vec::len);
            for streams in streams.iter().skip(known) {
                let bytes: usize = streams.iter().map(|(_, stream)| stream.len()).sum();
                all.wrong.push(format!("{name}: {ends:?}: {bytes} bytes of a connection that is none"));
            }
        }
        compared.insert(name, (all.flows - before.0, all.bytes - before.1));
    }
    let Comparison { flows, bytes, excepted, wrong } = all;
    eprintln!("{flows} flows, {bytes} bytes, {} exceptions, {} differences", excepted.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(flows > 0 && bytes > 0, "nothing was compared: NETBRICKS_CAPTURES names a folder without TCP");
    for (name, flows, bytes) in LEAST {
        if let Some(found) = compared.get(*name) {
            assert!(found.0 >= *flows && found.1 >= *bytes, "{name}: only {found:?} flows and bytes");
        }
    }
    for (place, (name, sender, ..)) in EXCEPTIONS.iter().enumerate() {
        let is_used = !compared.contains_key(*name) || excepted.contains(&place);
        assert!(
            is_used,
            "{name}, from {sender}: Wireshark follows what is said here: no exception is needed"
        );
    }
}
