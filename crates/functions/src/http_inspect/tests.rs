use std::collections::BTreeMap;
use std::process::Command;

use netbricks_core::buffer::Pool;
use netbricks_core::packet::tcp::flags;
use netbricks_core::{Settings, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{Report, captures, kinds, run_configured};
use proptest::prelude::*;

use super::parse::{Found, Parser};
use super::{HttpInspectConfig, http_inspect};

/// A request, and the line and host that must be found in it.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    line: String,
    pub(super) host: String,
    pub(super) text: Vec<u8>,
}

pub(super) fn request(random: &mut Random) -> Sent {
    let method = ["GET", "POST", "HEAD", "OPTIONS", "M-SEARCH"][random.below(5)];
    let line = format!("{method} /{}?q={} HTTP/1.{}", random.below(1000), random.next(), random.below(2));
    let host = ["example.org", "[2001:db8::1]:8080", "b.test", ""][random.below(4)].to_owned();
    let end = ["\r\n", "\n"][random.below(2)];
    let mut text = format!("{line}{end}Accept: */*{end}");
    if !host.is_empty() {
        text += &format!(
            "{}:{}{host}{end}",
            ["Host", "host", "HOST"][random.below(3)],
            ["", " ", "  "][random.below(3)]
        );
    }
    // Bodies that look like requests, but are none.
    let body = "GET /in/a/body HTTP/1.1\r\nHost: nowhere\r\n\r\n".repeat(random.below(4));
    match random.below(3) {
        0 => text += end,
        1 => text += &format!("Content-Length: {}{end}{end}{body}", body.len()),
        _ => {
            text += &format!("Transfer-Encoding: gzip, chunked{end}{end}");
            let mut rest = body.as_str();
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(rest.len().min(1 + random.below(60)));
                text += &format!("{:x};why=not{end}{chunk}\r\n", chunk.len());
                rest = more;
            }
            text += &format!("0{end}Trailer: GET / HTTP/1.1{end}{end}");
        }
    }
    Sent { line, host, text: text.into_bytes() }
}

fn tcp(client: u16, sequence: u32, bytes: &[u8]) -> Vec<u8> {
    ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .tcp(client, 80)
        .sequence(sequence)
        .flags(flags::ACK | flags::PSH)
        .payload(bytes)
        .build()
        .unwrap()
}

/// Rows of a report's section.
fn rows<'r>(report: &'r Report, title: &str) -> &'r [Vec<String>] {
    &report.sections.iter().find(|section| section.title == title).unwrap().rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn requests_are_found_however_they_are_cut(seed: u64) {
        let mut random = Random::new(seed);
        let (mut frames, mut sent) = (Vec::new(), Vec::new());
        for client in 0..3u16 {
            let requests: Vec<Sent> = (0..random.below(6)).map(|_| request(&mut random)).collect();
            let text: Vec<u8> = requests.iter().flat_map(|request| request.text.clone()).collect();
            // Mostly in order: each segment may be sent twice, and changes places with others near it.
            let first = random.next() as u32;
            let mut segments = Vec::new();
            let mut at = 0;
            while at < text.len() {
                let end = text.len().min(at + 1 + random.below(90));
                for _ in 0..1 + random.below(5) / 4 {
                    segments.push((segments.len() + random.below(5), at, end));
                }
                at = end;
            }
            segments.sort();
            frames.push(
                ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(client, 80).flags(flags::SYN)
                    .sequence(first.wrapping_sub(1)).build().unwrap(),
            );
            frames.extend(segments.iter().map(|(_, from, to)| tcp(client, first.wrapping_add(*from as u32), &text[*from..*to])));
            sent.extend(requests.into_iter().map(|request| (client, request)));
        }
        let report = run_configured(http_inspect, HttpInspectConfig::default(), frames.clone());
        prop_assert_eq!(&report.out, &frames, "packets are never changed");
        let found: Vec<_> = rows(&report, "latest requests").to_vec();
        let expected: Vec<_> = sent
            .iter()
            .map(|(client, request)| {
                vec![format!("10.0.0.1:{client} > 10.0.0.2:80 TCP"), request.host.clone(), request.line.clone()]
            })
            .collect();
        prop_assert_eq!(found, expected);
        let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
        sent.iter().for_each(|(_, request)| *hosts.entry(request.host.clone()).or_default() += 1);
        let counted: BTreeMap<String, u64> =
            rows(&report, "requests by host").iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect();
        prop_assert_eq!(counted, hosts);
    }

    #[test]
    fn no_bytes_break_the_parser(pieces in proptest::collection::vec((any::<Vec<u8>>(), 0u64..3), 0..40)) {
        let mut parser = Parser::NEW;
        for (bytes, gap) in pieces {
            if gap > 0 {
                parser.gap(gap, |_| ());
            }
            parser.feed(&bytes, |_| ());
        }
        parser.end(|_| ());
    }
}

/// The items that a parser finds; `~` stands for a gap.
fn found(text: &str) -> Vec<String> {
    let (mut parser, mut all) = (Parser::NEW, Vec::new());
    let mut note = |found: Found<'_>| {
        all.push(match found {
            Found::Host { .. } => return,
            Found::NoRequest => "-".to_owned(),
            Found::Request { line, host } => {
                format!("{} @{}", String::from_utf8_lossy(line), String::from_utf8_lossy(host))
            }
        });
    };
    for (number, piece) in text.split('~').enumerate() {
        if number > 0 {
            parser.gap(1, &mut note);
        }
        parser.feed(piece.as_bytes(), &mut note);
    }
    parser.end(&mut note);
    all
}

#[test]
fn requests_as_rfc_9112_has_them() {
    assert_eq!(found("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), ["GET / HTTP/1.1 @a"], "section 2.2");
    assert_eq!(
        found("GET / HTTP/1.1\r\nHost: a\r\n"),
        ["GET / HTTP/1.1 @a"],
        "it ended before its fields did"
    );
    assert_eq!(
        found("CONNECT a:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        ["CONNECT a:443 HTTP/1.1 @a:443"]
    );
    let lengths = "POST / HTTP/1.1\nContent-Length: 5\nContent-Length: 5\n\n12345GET /b HTTP/1.0\n\n";
    assert_eq!(found(lengths), ["POST / HTTP/1.1 @", "GET /b HTTP/1.0 @"]);
    let both = "POST / HTTP/1.1\nContent-Length: 500\nTransfer-Encoding: chunked\n\n0\n\nGET /b HTTP/1.0\n\n";
    assert_eq!(found(both), ["POST / HTTP/1.1 @", "GET /b HTTP/1.0 @"], "section 6.3");
    assert_eq!(
        found("\x16\x03\x01\x02\nno\nGET /x HTTP/1.1\n\n"),
        ["-", "GET /x HTTP/1.1 @"],
        "TLS, and then not"
    );
    assert_eq!(
        found("GET /\x1b[31m\x01\x7f HTTP/1.1\nHost: a\n\n"),
        ["GET /\x1b[31m\x01\x7f HTTP/1.1 @a"],
        "no target of RFC 9112, section 3.2, but servers answer"
    );
    for line in
        ["GET /", "GET  HTTP/1.1", "G(T / HTTP/1.1", "GET / HTTP/2.0", "GET /a b HTTP/1.1", " / HTTP/1.1"]
    {
        assert_eq!(found(&format!("{line}\n\n")), ["-"], "{line}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1_000));
    let all = found(&long);
    assert!(all.len() == 1 && all[0].starts_with("GET /xxx") && all[0].ends_with("xx @a"), "{all:?}");
}

#[test]
fn the_host_of_an_absolute_target_counts_before_the_field() {
    let host_of = |target: &str, field: &str| {
        let all = found(&format!("GET {target} HTTP/1.1\r\nHost: {field}\r\n\r\n"));
        assert_eq!(all.len(), 1, "{target}");
        all[0].rsplit_once(" @").unwrap().1.to_owned()
    };
    // RFC 9112, section 3.2.2.
    assert_eq!(host_of("http://evil.example/x?y", "good.example"), "evil.example");
    assert_eq!(host_of("http://me@evil.example", "good.example"), "evil.example");
    assert_eq!(host_of("https://evil.example:443/", "good.example"), "evil.example");
    assert_eq!(host_of("HTTPS://evil.example:80/", "good.example"), "evil.example:80");
    assert_eq!(host_of("http://[2001:db8::1]:80/", "good.example"), "[2001:db8::1]");
    assert_eq!(host_of("http://evil.example:8080/", ""), "evil.example:8080");
    // A target that is not absolute, or has no host.
    assert_eq!(host_of("/http://evil.example/", "good.example"), "good.example");
    assert_eq!(host_of("http:///x", "good.example"), "good.example");
    assert_eq!(host_of("*", "good.example"), "good.example");
    // The target is cut anywhere, and the fields never end.
    let text = "GET http://evil.example./ HTTP/1.1\r\nHost: good.example\r\n";
    let (mut parser, mut hosts) = (Parser::NEW, Vec::new());
    let mut note = |found: Found<'_>| {
        if let Found::Request { host, .. } = found {
            hosts.push(String::from_utf8_lossy(host).into_owned());
        }
    };
    text.as_bytes().chunks(1).for_each(|byte| parser.feed(byte, &mut note));
    parser.end(&mut note);
    assert_eq!(hosts, ["evil.example"]);
}

#[test]
fn all_ways_to_write_one_host_are_counted_as_one() {
    let same = [
        "evil.example",
        "evil.example.",
        "EVIL.example",
        "evil.example:80",
        "Evil.Example.:80",
        "evil.example:",
        "evil.example:0080",
    ];
    let others = ["evil.example:8080", "evil.example:443", "www.evil.example"];
    let ask = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let asks = same.iter().chain(&others).map(|host| ask("/", host));
    let asks = asks.chain([ask("http://evil.example:80/", "good.example")]);
    let frames: Vec<_> = asks.zip(1..).map(|(ask, client)| tcp(client, 1, ask.as_bytes())).collect();
    let report = run_configured(http_inspect, HttpInspectConfig::default(), frames);
    let hosts = rows(&report, "requests by host");
    assert_eq!(hosts[0], ["evil.example", "8"]);
    assert_eq!(hosts.len(), 1 + others.len(), "{hosts:?}");
}

#[test]
fn only_bytes_that_are_not_printable_are_escaped() {
    let line = "GET /a\"b'c\\d\x1b[2J\x7f\u{e9} HTTP/1.1";
    let frames = [tcp(1, 1, format!("{line}\r\nHost: a\r\n\r\n").as_bytes())];
    let report = run_configured(http_inspect, HttpInspectConfig::default(), frames);
    assert_eq!(rows(&report, "latest requests")[0][2], r#"GET /a"b'c\d\x1b[2J\x7f\xc3\xa9 HTTP/1.1"#);
}

#[test]
fn a_gap_loses_what_it_is_in_and_no_more() {
    assert_eq!(
        found("GET / HTTP/1.1\nHost: a\n\n~lost\nGET /b HTTP/1.1\nHost: b\n\n"),
        ["GET / HTTP/1.1 @a", "GET /b HTTP/1.1 @b"]
    );
    assert_eq!(
        found("GET / HTTP/1.1\nHost: a\nX: ~\n\nGET /b HTTP/1.1\n\n"),
        ["GET / HTTP/1.1 @a", "GET /b HTTP/1.1 @"]
    );
    // Within a body, its length tells where it ends.
    let body = "POST / HTTP/1.1\nContent-Length: 9\n\nGET / ~TPGET /b HTTP/1.1\n\n";
    assert_eq!(found(body), ["POST / HTTP/1.1 @", "GET /b HTTP/1.1 @"]);
}

#[test]
fn reports_are_bounded_and_tell_of_the_rest() {
    let config = HttpInspectConfig { hosts: 2, latest: 3, ..HttpInspectConfig::default() };
    let frames: Vec<_> = (0..10u16)
        .map(|number| tcp(number, 0, format!("GET /{number} HTTP/1.1\nHost: h{}\n\n", number % 5).as_bytes()))
        .chain([tcp(99, 0, b"\xff\xfe\n")])
        .collect();
    let report = run_configured(http_inspect, config, frames);
    assert_eq!(rows(&report, "requests by host"), [["h0", "2"], ["h1", "2"], ["(others)", "6"]]);
    let latest: Vec<_> = rows(&report, "latest requests").iter().map(|row| row[2].as_str()).collect();
    assert_eq!(latest, ["GET /7 HTTP/1.1", "GET /8 HTTP/1.1", "GET /9 HTTP/1.1"]);
    let hosts = report.sections.iter().find(|section| section.title == "requests by host").unwrap();
    let counts = ["blocked_connections", "not_http", "gaps"].map(|name| hosts.counts[name]);
    assert_eq!(counts, [0, 1, 0]);
}

/// Each direction has its own parser, also if both ports are served.
#[test]
fn answers_between_served_ports_are_no_requests() {
    let segment = |from: u16, to: u16, sequence: u32, flags: u8, bytes: &[u8]| {
        let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(from, to).sequence(sequence).flags(flags);
        tcp.payload(bytes).build().unwrap()
    };
    let back = |sequence: u32, flags: u8, bytes: &[u8]| {
        let tcp = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 8080).sequence(sequence).flags(flags);
        tcp.payload(bytes).build().unwrap()
    };
    let frames = [
        segment(8080, 80, 99, flags::SYN, b""),
        back(499, flags::SYN | flags::ACK, b""),
        segment(8080, 80, 100, flags::ACK, b"GET / HTTP/1.1\r\nHo"),
        back(500, flags::ACK, b"HTTP/1.1 100 Continue\r\n\r\n"),
        segment(8080, 80, 118, flags::ACK, b"st: a\r\n\r\n"),
    ];
    let config = HttpInspectConfig { ports: vec![80, 8080], ..HttpInspectConfig::default() };
    let report = run_configured(http_inspect, config, frames);
    assert_eq!(rows(&report, "requests by host"), [["a", "1"]]);
}

#[test]
fn every_kind_passes_unchanged() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    let report = run_configured(http_inspect, HttpInspectConfig::default(), frames.clone());
    assert_eq!(report.out, frames);
}

/// The least number of requests to compare in captures that are present; else the test shows nothing.
const LEAST: &[(&str, usize)] =
    &[("ftp-224-flows-ip-options.pcap", 43), ("http-range.pcap", 15), ("tls-211-flows.pcap", 37)];

/// Port 80 of the captures at hand has the same requests as Wireshark finds.
#[test]
fn requests_of_the_captures_are_those_that_wireshark_finds() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: there are no captures; NETBRICKS_CAPTURES names their folder");
        return;
    }
    if !Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: tshark is not installed (Debian package `tshark`)");
        return;
    }
    let mut all = 0;
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let fields = ["http.request.method", "http.request.uri", "http.request.version", "http.host"];
        let mut command = Command::new("tshark");
        command.arg("-n").arg("-r").arg(&file).args([
            "-Y",
            "http.request.method and tcp.dstport==80",
            "-T",
            "fields",
        ]);
        command.args(["-E", "separator=|", "-E", "aggregator=^"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.output().expect("it told its version");
        let says = String::from_utf8_lossy(&output.stderr);
        if says.contains("contains record data that TShark doesn't support") {
            eprintln!("skipped: {name} has frames that tshark does not know");
            continue;
        }
        // A capture that is cut off is read up to its end.
        let is_read = output.status.success() || says.contains("appears to have been cut short");
        assert!(is_read, "{name}: tshark failed ({}): {says}", output.status);
        let mut expected = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let columns: Vec<Vec<&str>> = line.split('|').map(|column| column.split('^').collect()).collect();
            for (at, method) in columns[0].iter().enumerate() {
                let host = columns[3].get(at).copied().unwrap_or_default();
                expected.push((host.to_owned(), format!("{method} {} {}", columns[1][at], columns[2][at])));
            }
        }
        let config = HttpInspectConfig { latest: 1_024, ..HttpInspectConfig::default() };
        let report = run_configured(http_inspect, config, captures::frames(&file));
        let mut found: Vec<_> =
            rows(&report, "latest requests").iter().map(|row| (row[1].clone(), row[2].clone())).collect();
        // Longer lines are cut to the kept length.
        expected.iter_mut().for_each(|(_, line)| line.truncate(super::parse::LINE));
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{name}");
        if let Some((_, least)) = LEAST.iter().find(|(file, _)| *file == name) {
            assert!(found.len() >= *least, "{name}: only {} requests", found.len());
        }
        all += found.len();
    }
    eprintln!("{all} requests");
    assert!(all > 0, "nothing was compared: NETBRICKS_CAPTURES names a folder without HTTP");
}

#[test]
fn counts_by_host_are_handed_over_and_broken_ones_are_not() {
    let node = || {
        let pool = Pool::builder().frames(64).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let config = HttpInspectConfig { hosts: 3, ..HttpInspectConfig::default() };
        (compose(&worker, |input| http_inspect(input, &config, &worker)).unwrap(), pool)
    };
    let ((mut from, pool), (mut to, _other)) = (node(), node());
    let mut cx = netbricks_core::DetachedContext::new(pool.clone());
    let mut batch = netbricks_core::buffer::Batch::new();
    for number in 0..8u16 {
        let text = format!("GET / HTTP/1.1\nHost: host{}\n\n", "x".repeat(usize::from(number % 4)));
        batch.push(pool.packet(&tcp(number, 0, text.as_bytes())).unwrap()).unwrap();
    }
    from.process(0, &mut batch, &mut cx);
    let image = |node: &mut dyn netbricks_core::Node| {
        node.export().into_iter().find(|(name, _)| name == "requests").unwrap().1
    };
    let bytes = image(from.as_mut());
    let empty = image(to.as_mut());
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0x10;
        assert!(to.import("requests", &broken, 0).is_err(), "byte {at}");
        assert!(to.import("requests", &bytes[..at], 0).is_err(), "{at} bytes");
        assert_eq!(image(to.as_mut()), empty);
    }
    to.import("requests", &bytes, 0).unwrap();
    assert_eq!(image(to.as_mut()), bytes);
    assert_eq!(to.report()[0].rows, [["host", "2"], ["hostx", "2"], ["hostxx", "2"], ["(others)", "2"]]);
}

#[test]
fn settings_that_do_not_do_are_named() {
    let refused = |text: &str| match toml::from_str::<HttpInspectConfig>(text) {
        Ok(config) => config.check().unwrap_err().to_string(),
        Err(error) => error.message().to_owned(),
    };
    assert_eq!(refused("ports = []"), "`ports` must be 1 to 16 ports from 1 to 65535, found []");
    assert_eq!(refused("ports = [80, 0]"), "invalid value: integer `0`, expected a nonzero u16");
    assert_eq!(refused("flows = 0"), "`flows` must be 1 to 1,048,576 connections, found 0");
    assert_eq!(refused("idle = \"1 us\""), "`idle` must be \"1 ms\" to \"1 d\", found \"1 us\"");
    assert_eq!(refused("memory = 1"), "`memory` must be 65,536 to 4,294,967,296 bytes, found 1");
    assert_eq!(refused("hosts = 0"), "`hosts` must be 1 to 1,024, found 0");
    assert_eq!(refused("latest = 1025"), "`latest` must be 1 to 1,024, found 1025");
    for name in ["", ".", "a..b", "*.a", "a:80", "a/b", &"a".repeat(129)] {
        let refused = refused(&format!("block = [\"good.org\", {name:?}]"));
        assert!(refused.starts_with("expected the name of a host such as"), "{refused}");
    }
    let many = refused(&format!("block = {:?}", ["a"; 1_025]));
    assert_eq!(many, "`block` must be 0 to 1,024 hosts, found 1025");
    assert!(toml::from_str::<HttpInspectConfig>("").unwrap().check().is_ok());
    assert!(toml::from_str::<HttpInspectConfig>("port = 80").is_err());
}
