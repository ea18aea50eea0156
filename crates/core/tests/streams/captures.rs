//! Every TCP flow of the captures at hand against Wireshark's: `tshark -z follow,tcp,raw`, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{FlowKey, Geneve, Gre, Ip, Link, Tcp, Udp};
use netbricks_core::stream::{Protocol, Reassembler, Segment, Side, StreamConfig, What};
use netbricks_testkit::captures;

/// Both directions of one connection: from whom, and what.
type Streams = [(SocketAddr, Vec<u8>); 2];
/// Connections by their ends, in the order in which they began.
type Flows = BTreeMap<BTreeSet<SocketAddr>, Vec<Streams>>;

/// Where Wireshark follows something else than is said here: the capture, the sender, how many of the bytes that
/// Wireshark shows are expected (no others), and why.
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
];

fn tshark(file: &Path, arguments: &[String]) -> Option<String> {
    let output = Command::new("tshark").arg("-n").arg("-r").arg(file).args(arguments).output().ok()?;
    // A capture that is cut off is followed as far as it goes.
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What Wireshark makes of a capture.
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
    let mut unread = 0;
    for section in text.split("Follow: tcp,raw\n").skip(1) {
        let mut lines = section.lines();
        let mut after = |word: &str| lines.next().and_then(|line| line.strip_prefix(word)).map(str::to_owned);
        let number = after("Filter: tcp.stream eq ")?.parse().ok()?;
        let mut node = |word| -> Option<SocketAddr> {
            let text = after(word)?;
            let (address, port) = text.rsplit_once(':')?;
            let address = address.trim_matches(['[', ']']);
            Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
        };
        let (Some(one), Some(other)) = (node("Node 0: "), node("Node 1: ")) else {
            // It saw TCP but no segment that it could read: nobody, and nothing said.
            assert!(lines.all(|line| line.starts_with('=')), "{}: bytes from nobody", file.display());
            unread += 1;
            continue;
        };
        let nodes = [one, other];
        let mut streams = nodes.map(|node| (node, Vec::new()));
        for line in lines.take_while(|line| !line.starts_with('=')) {
            let hex = line.trim_start_matches('\t');
            let bytes =
                (0..hex.len() / 2).filter_map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok());
            streams[usize::from(line.starts_with('\t'))].1.extend(bytes);
        }
        followed.insert(number, streams);
    }
    assert_eq!(followed.len() + unread, numbers.len(), "{}: a stream was not followed", file.display());
    for streams in followed.into_values() {
        flows.entry(streams.iter().map(|(end, _)| *end).collect()).or_default().push(streams);
    }
    Some(flows)
}

/// The TCP segment of a frame, behind any tags, and inside a GRE or Geneve tunnel.
fn segment(frame: &[u8]) -> Option<(FlowKey, Segment<'_>)> {
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

/// More than any flow of a capture needs: bounds have tests of their own.
fn roomy() -> StreamConfig {
    StreamConfig { flow_memory: 4 << 20, ..StreamConfig::default() }
}

/// What the reassembler makes of it.
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
                What::End(_) => {}
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
    let (mut followed, mut bytes, mut wrong) = (0, 0, Vec::new());
    let mut excepted = BTreeSet::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(expected) = expected(&file) else { panic!("{name}: tshark said something unexpected") };
        let actual = actual(&file);
        for (ends, expected) in expected {
            let nothing = Vec::new();
            let actual = actual.get(&ends).unwrap_or(&nothing);
            for (number, expected) in expected.iter().enumerate() {
                followed += 1;
                for (from, stream) in expected {
                    bytes += stream.len();
                    let actual = actual
                        .get(number)
                        .and_then(|streams| streams.iter().find(|(end, _)| end == from))
                        .map(|(_, stream)| stream.as_slice());
                    let exception = EXCEPTIONS.iter().position(|(file, sender, ..)| {
                        *file == name && *sender == from.to_string() && number == 0 && excepted.len() < 10
                    });
                    let stream = match exception {
                        Some(place) if stream.len() > EXCEPTIONS[place].2 => {
                            excepted.insert(place);
                            &stream[..EXCEPTIONS[place].2]
                        }
                        _ => stream.as_slice(),
                    };
                    if actual.unwrap_or_default() != stream {
                        wrong.push(format!(
                            "{name}: {ends:?} {number}, from {from}: {} bytes, found {:?}, equal up to {}",
                            stream.len(),
                            actual.map(<[u8]>::len),
                            stream.iter().zip(actual.unwrap_or_default()).take_while(|(a, b)| a == b).count()
                        ));
                    }
                }
            }
        }
    }
    eprintln!(
        "{followed} flows, {bytes} bytes, {} exceptions, {} directions differ",
        excepted.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
