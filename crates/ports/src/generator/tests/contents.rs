//! The contents of packets, read by code that knows the RFCs and not the generator.
//!
//! Wireshark reads them too, if it is installed.

use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

use super::*;

/// The addresses, ports and payload of a frame without options or extension headers.
struct Carried<'f> {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    payload: &'f [u8],
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn carried(frame: &[u8]) -> Carried<'_> {
    let (addresses, protocol, transport): ([IpAddr; 2], u8, usize) = match word(frame, 12) {
        0x0800 => {
            assert_eq!(frame[14], 0x45);
            let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into();
            ([address(26), address(30)], frame[23], 34)
        }
        0x86dd => {
            let address = |at: usize| <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap().into();
            ([address(22), address(38)], frame[20], 54)
        }
        other => panic!("EtherType {other:#06x}"),
    };
    let payload = match protocol {
        6 => transport + 4 * usize::from(frame[transport + 12] >> 4),
        17 => {
            assert_eq!(usize::from(word(frame, transport + 4)), frame.len() - transport);
            transport + 8
        }
        other => panic!("protocol {other}"),
    };
    let ports = [word(frame, transport), word(frame, transport + 2)];
    Carried { from: (addresses[0], ports[0]), to: (addresses[1], ports[1]), payload: &frame[payload..] }
}

/// A DNS message (RFC 1035, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    id: u16,
    flags: u16,
    /// Name, type and class of the only question.
    question: (String, u16, u16),
    answers: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    name: String,
    kind: u16,
    class: u16,
    ttl: u32,
    data: Vec<u8>,
}

/// Reads a name from `at` on, and answers the place behind it too.
///
/// A pointer ends the name (section 4.1.4) and must point backwards.
fn name(message: &[u8], mut at: usize) -> (String, usize) {
    let (mut labels, mut end, mut before) = (Vec::new(), None, at);
    loop {
        match message[at] {
            0 => return (labels.join("."), end.unwrap_or(at + 1)),
            len @ 1..=63 => {
                let label = &message[at + 1..at + 1 + usize::from(len)];
                assert!(label.iter().all(u8::is_ascii_alphanumeric));
                labels.push(String::from_utf8(label.to_vec()).unwrap());
                at += 1 + usize::from(len);
            }
            high if high >= 0xc0 => {
                end.get_or_insert(at + 2);
                at = usize::from(word(message, at) & 0x3fff);
                assert!((12..before).contains(&at), "a pointer to {at}");
                before = at;
            }
            other => panic!("a label of type {other:#04x}"),
        }
    }
}

fn message(bytes: &[u8]) -> Message {
    let counts: Vec<u16> = (4..12).step_by(2).map(|at| word(bytes, at)).collect();
    assert_eq!(
        (counts[0], counts[2], counts[3]),
        (1, 0, 0),
        "one question, no authority, nothing additional"
    );
    let (asked, mut at) = name(bytes, 12);
    let question = (asked, word(bytes, at), word(bytes, at + 2));
    at += 4;
    let mut answers = Vec::new();
    for _ in 0..counts[1] {
        let (name, next) = name(bytes, at);
        let len = usize::from(word(bytes, next + 8));
        at = next + 10 + len;
        let ttl = u32::from_be_bytes(bytes[next + 4..next + 8].try_into().unwrap());
        let (kind, class) = (word(bytes, next), word(bytes, next + 2));
        answers.push(Answer { name, kind, class, ttl, data: bytes[next + 10..at].to_vec() });
    }
    assert_eq!(at, bytes.len(), "nothing behind the last record");
    Message { id: word(bytes, 0), flags: word(bytes, 2), question, answers }
}

/// The number of a flow, by its client's address.
fn number(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(client) => u64::from(u32::from(client) - 0x0a00_0001),
        IpAddr::V6(client) => client.to_bits() as u64 - 1,
    }
}

#[test]
fn dns_answers_are_those_to_their_queries() {
    let mut answered = [0; 2];
    for (flows, packets) in [(20, 2_000), (12_345, 3_000)] {
        let frames = generate(
            &format!("payload = 'dns'\nip = 'mix'\nflows = {flows}\npackets = {packets}\nseed = 4"),
            32,
        );
        let mut open: BTreeMap<_, Message> = BTreeMap::new();
        let mut ids: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        for (_, frame) in &frames {
            let Carried { from, to, payload } = carried(frame);
            let said = message(payload);
            let asks = to.1 == 53;
            let (client, server) = if asks { (from, to) } else { (to, from) };
            assert_eq!(server.1, 53);
            let v6 = client.0.is_ipv6();
            let kind = if v6 { 28 } else { 1 };
            assert_eq!(said.question, (format!("h{}.example.net", number(client.0)), kind, 1));
            if asks {
                // A standard query that asks for recursion, and nothing else.
                assert_eq!((said.flags, &said.answers[..]), (0x0100, &[][..]));
                assert!(ids.entry(client).or_default().insert(said.id), "an id is not used again at once");
                assert_eq!(open.insert((client, server), said), None, "the query before was answered");
                continue;
            }
            let query = open.remove(&(client, server)).expect("an answer comes after its query");
            // A response without an error, from a server that supports recursion.
            assert_eq!((said.id, said.flags, &said.question), (query.id, 0x8180, &query.question));
            let [Answer { name, kind: found, class, ttl, data }] = &said.answers[..] else {
                panic!("{} answers", said.answers.len())
            };
            assert_eq!((name, *found, *class), (&query.question.0, kind, 1));
            assert!(*ttl > 0);
            // From TEST-NET-2 (RFC 5737), and from the prefix for documentation (RFC 3849).
            if v6 {
                let address = Ipv6Addr::from(<[u8; 16]>::try_from(&data[..]).unwrap());
                assert_eq!(address.to_bits() >> 96, 0x2001_0db8);
            } else {
                assert_eq!((data.len(), &data[..3]), (4, &[198, 51, 100][..]));
            }
            answered[usize::from(v6)] += 1;
        }
    }
    assert!(answered.iter().all(|answers| *answers > 300), "{answered:?}");
}

/// The first line, the fields and the body of an HTTP/1.1 message (RFC 9112, section 2).
fn http(bytes: &[u8]) -> (Vec<&str>, BTreeMap<String, &str>, &[u8]) {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an empty line ends the head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    assert!(head.is_ascii() && !head.replace("\r\n", "").contains(['\r', '\n']));
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap().splitn(3, ' ').collect();
    let mut fields = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').expect("a field has a name and a value");
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        assert_eq!(fields.insert(name.to_ascii_lowercase(), value.trim()), None, "a field comes once");
    }
    (first, fields, &bytes[end + 4..])
}

/// The object that a complete request asks for.
fn requested(bytes: &[u8]) -> u64 {
    let (line, fields, body) = http(bytes);
    let [method, target, version] = line[..] else { panic!("{line:?}") };
    assert_eq!((method, version), ("GET", "HTTP/1.1"));
    // Each request must name the host (RFC 9112, section 3.2).
    assert_eq!(fields.get("host"), Some(&"example.net"));
    assert_eq!(body, b"");
    target.strip_prefix("/objects/").expect("an absolute path").parse().unwrap()
}

/// The length of a complete answer's body.
fn body(bytes: &[u8]) -> usize {
    let (line, fields, body) = http(bytes);
    assert_eq!(line, ["HTTP/1.1", "200", "OK"]);
    assert_eq!(fields.get("content-type"), Some(&"application/octet-stream"));
    assert_eq!(fields["content-length"].parse(), Ok(body.len()));
    body.len()
}

#[test]
fn http_segments_are_whole_requests_and_answers_in_turn() {
    let settings =
        "payload = 'http'\nip = 'mix'\nflows = 20\nframe_sizes = [60, 300, 1514]\npackets = 2000\nseed = 4";
    let frames = generate(settings, 32);
    // The number of messages of each flow so far.
    let mut said: BTreeMap<_, u64> = BTreeMap::new();
    let mut longest = 0;
    for (_, frame) in &frames {
        let Carried { from, to, payload } = carried(frame);
        let asks = to.1 == 80;
        let (client, server) = if asks { (from, to) } else { (to, from) };
        assert_eq!(server.1, 80);
        let messages = said.entry(client).or_default();
        assert_eq!(*messages % 2 == 0, asks, "each request is answered before the next");
        if asks {
            assert_eq!(requested(payload), *messages / 2);
        } else {
            longest = longest.max(body(payload));
            // A frame that is long enough is filled completely, except for one digit that the length may have
            // had too many.
            assert!(frame.len() < 256 || matches!(frame.len(), 299 | 300 | 1513 | 1514), "{}", frame.len());
        }
        *messages += 1;
    }
    assert_eq!(said.len(), 20);
    assert!(longest > 1_300, "{longest}");
}

#[test]
fn http_conversations_carry_a_request_and_its_answer() {
    let frames =
        generate("payload = 'http'\nconversation = true\nframe_sizes = 600\nflows = 7\npackets = 5000", 32);
    let mut streams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    let (mut requests, mut answers, mut longest) = (0, 0, 0);
    for (_, frame) in &frames {
        let Carried { from, to, payload } = carried(frame);
        // In order and once, as another test checks.
        let stream = streams.entry((from, to)).or_default();
        stream.extend(payload);
        if frame[34 + 13] & 0x01 == 0 {
            continue;
        }
        if to.1 == 80 {
            assert!(requested(stream) < 1_000_000);
            requests += 1;
        } else {
            longest = longest.max(body(stream));
            answers += 1;
        }
    }
    assert!(requests > 200 && answers > 200 && longest > 3_000, "{requests}, {answers}, {longest}");
}

/// Each size of `imix` has its share.
#[test]
fn imix_is_seven_to_four_to_one() {
    const PACKETS: u32 = 12_000;
    let (pool, directory) = (pool(), Directory::new("generator-imix"));
    let cx = context(&pool, &directory);
    let settings = format!("frame_sizes = 'imix'\npackets = {PACKETS}\nseed = 6");
    let mut port = open("generator", &settings, &cx).unwrap();
    let mut queue = port.take_receive(0).unwrap();
    let (mut batch, mut graph) = (Batch::new(), DetachedContext::new(pool.clone()));
    let mut found: BTreeMap<usize, u32> = BTreeMap::new();
    while queue.receive(&mut batch, &mut graph) != Poll::Done || !batch.is_empty() {
        batch.drain().for_each(|packet| *found.entry(packet.len()).or_default() += 1);
    }
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [60, 566, 1_514]);
    for (size, share) in [(60, 7.0), (566, 4.0), (1_514, 1.0)] {
        let probability = share / 12.0;
        let (expected, count) = (f64::from(PACKETS) * probability, f64::from(found[&size]));
        let deviation = (expected * (1.0 - probability)).sqrt();
        assert!((count - expected).abs() < 6.0 * deviation, "{found:?}");
    }
}

/// Writes a generator's packets to a capture.
fn capture(settings: &str, directory: &Directory) {
    let pool = pool();
    let cx = context(&pool, directory);
    let mut from = open("generator", settings, &cx).unwrap();
    let mut to = open("pcap", "write = 'out.pcap'", &cx).unwrap();
    forward(from.as_mut(), to.as_mut(), &pool, 32);
    to.close().unwrap();
}

/// A row of these fields for each packet; `None` if Wireshark is not installed.
fn wireshark(capture: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(capture).args(["-T", "fields", "-E", "occurrence=f"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = command.output() else {
        eprintln!("skipped: tshark is not installed (Debian package `tshark`)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[test]
fn wireshark_reads_the_dns_that_is_made() {
    let directory = Directory::new("generator-dns");
    capture("payload = 'dns'\nip = 'mix'\nflows = 20\npackets = 1000\nseed = 4", &directory);
    let fields = [
        "_ws.malformed",
        "dns.flags.response",
        "dns.qry.name",
        "dns.resp.name",
        "dns.count.answers",
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "dns.response_to",
    ];
    let Some(rows) = wireshark(&directory.0.join("out.pcap"), &fields) else { return };
    assert_eq!(rows.len(), 1_000);
    let mut answers = 0;
    for row in &rows {
        let [malformed, response, asked, answered, count, v4_from, v6_from, v4_to, v6_to, request] =
            <&[String; 10]>::try_from(&row[..]).unwrap();
        assert_eq!(malformed, "");
        let is_answer = matches!(response.as_str(), "1" | "True");
        let client = if is_answer { format!("{v4_to}{v6_to}") } else { format!("{v4_from}{v6_from}") };
        assert_eq!(*asked, format!("h{}.example.net", number(client.parse().unwrap())), "{row:?}");
        assert_eq!((answered == asked, count == "1"), (is_answer, is_answer), "{row:?}");
        assert_eq!(request.is_empty(), !is_answer, "{row:?}");
        answers += u32::from(is_answer);
    }
    assert!(answers > 450, "{answers}");
}

#[test]
fn wireshark_reads_the_http_that_is_made() {
    let directory = Directory::new("generator-http");
    let settings =
        "payload = 'http'\nconversation = true\nip = 'mix'\nframe_sizes = 600\nflows = 7\npackets = 2000";
    capture(settings, &directory);
    let fields = [
        "_ws.malformed",
        "http.request.method",
        "http.request.uri",
        "http.host",
        "http.response.code",
        "http.content_length",
    ];
    let Some(rows) = wireshark(&directory.0.join("out.pcap"), &fields) else { return };
    assert_eq!(rows.len(), 2_000);
    let (mut requests, mut answers) = (0, 0);
    for row in &rows {
        let [malformed, method, uri, host, code, length] = <&[String; 6]>::try_from(&row[..]).unwrap();
        assert_eq!(malformed, "");
        if !method.is_empty() {
            assert_eq!((method.as_str(), host.as_str()), ("GET", "example.net"));
            assert!(uri.starts_with("/objects/"), "{row:?}");
            requests += 1;
        }
        if !code.is_empty() {
            assert_eq!(code, "200");
            assert!(!length.is_empty());
            answers += 1;
        }
    }
    // Conversations have some 17 segments on average, and the last ones are incomplete.
    assert!(requests > 80 && answers > 80 && requests - answers <= 7, "{requests}, {answers}");
}
