//! Traces and captures of runs whose packets move, and of runs that are changed meanwhile.

use std::process::{Command, Stdio};
use std::time::Instant;

use netbricks_control::Observing;
use netbricks_control::api::{Code, ObserveKind, ObserveRequest, Problem, TraceEnd, TraceRecord};
use netbricks_ports::pcap::{Reader, Step};

use super::super::tests::{Asking, FLOWS, chain, lost_nothing, while_running};

fn request(kind: ObserveKind, filter: &str, at: Option<&str>, count: Option<u64>) -> ObserveRequest {
    ObserveRequest { kind, filter: filter.into(), at: at.map(Into::into), count, snaplen: 262_144 }
}

impl Asking {
    fn observe(&self, request: ObserveRequest) -> Result<Observing, Problem> {
        self.ask(move |director| director.observe(&request))
    }
}

/// The whole stream of a watch that ends by itself.
fn stream(observing: Observing) -> Vec<u8> {
    let Observing { observation, mut encode } = observing;
    let mut bytes = encode.begin();
    while !encode.is_complete() {
        encode.before();
        let seen = observation.take().unwrap();
        bytes.extend(encode.add(&seen, Instant::now()));
    }
    bytes.extend(encode.end());
    bytes
}

/// The records in a stream of server-sent events.
fn records(stream: &[u8]) -> Vec<TraceRecord> {
    let text = std::str::from_utf8(stream).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn packets_of_all_workers_are_traced_and_a_change_keeps_the_trace() {
    let with = chain("\"ttl\", \"flows\"", FLOWS) + "workers = 2\n";
    let without = chain("\"flows\"", FLOWS) + "workers = 2\n";
    let summary = while_running(&without.clone(), move |asking| {
        asking.let_packets_pass();
        let traced =
            records(&stream(asking.observe(request(ObserveKind::Trace, "ip", None, Some(3))).unwrap()));
        assert_eq!(traced.len(), 3);
        for record in &traced {
            assert_eq!((record.end, record.port.as_str()), (TraceEnd::Sent, "lan"), "{record:?}");
            assert_eq!(record.steps[0].node, "flows", "{record:?}");
            assert!(record.summary.contains(" > "), "{record:?}");
        }
        // Armed before a change, and read after it.
        let observing = asking.observe(request(ObserveKind::Trace, "ip", Some("lan"), None)).unwrap();
        let Observing { observation, mut encode } = observing;
        asking.apply(&with).unwrap();
        let mut bytes = Vec::new();
        let is_through = |record: &TraceRecord| record.steps.first().is_some_and(|step| step.node == "ttl");
        while !records(&bytes).iter().any(is_through) {
            let seen = observation.take().unwrap();
            bytes.extend(encode.add(&seen, Instant::now()));
        }
        let through = records(&bytes).into_iter().find(is_through).unwrap();
        let changes = &through.steps[0].changes;
        assert!(changes[0].starts_with("ipv4.time_to_live"), "{changes:?}");
    });
    lost_nothing(&summary);
}

#[test]
fn a_capture_has_interfaces_comments_and_statistics() {
    let summary = while_running(&chain("\"ttl\"", ""), |asking| {
        let capture = |at: &str, count| {
            stream(asking.observe(request(ObserveKind::Capture, "ip", Some(at), Some(count))).unwrap())
        };
        // A batch arrives as a whole before it leaves.
        let bytes = capture("ttl", 600);
        let mut reader = Reader::new(std::io::Cursor::new(bytes.clone())).unwrap();
        let (mut packets, mut last) = (0, 0);
        while reader
            .next(|record| {
                assert!(record.time > 0 && record.data.len() == record.original_len);
                last = record.interface;
                true
            })
            .unwrap()
            == Step::Taken
        {
            packets += 1;
        }
        assert_eq!((packets, last), (600, 0));
        assert_eq!(reader.interfaces().collect::<Vec<_>>(), [Some("ttl")]);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("arrives at ttl") && text.contains("leaves ttl"));
        let out = capture("out", 4);
        assert!(String::from_utf8_lossy(&out).contains("leaves out.send"));
        for (program, arguments) in [
            ("tshark", &["-r", "-", "-T", "fields", "-e", "frame.comment"][..]),
            ("tcpdump", &["-r", "-", "-n"][..]),
        ] {
            if let Some(told) = read_by(program, arguments, &bytes) {
                // The packet inside a tunnel has a line of its own, without a time.
                let packets = told.lines().filter(|line| {
                    program == "tshark" || line.starts_with(|first: char| first.is_ascii_digit())
                });
                assert_eq!(packets.count(), 600, "{program}: {told}");
                assert!(program != "tshark" || told.starts_with("arrives at ttl\n"), "{told}");
            }
        }
    });
    lost_nothing(&summary);
}

/// The output of a program that reads a capture; `None` where it is not installed.
fn read_by(program: &str, arguments: &[&str], capture: &[u8]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, capture).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn watches_that_come_and_go_a_thousand_times_lose_no_packet() {
    let text = chain("\"ttl\", \"flows\"", FLOWS) + "workers = 2\n";
    let summary = while_running(&text, |asking| {
        for round in 0..1_000u32 {
            let (kind, at) = match round % 3 {
                0 => (ObserveKind::Trace, None),
                1 => (ObserveKind::Capture, Some("ttl")),
                _ => (ObserveKind::Trace, Some("flows")),
            };
            let observing = asking.observe(request(kind, "udp or tcp", at, None)).unwrap();
            if round % 50 == 0 {
                asking.let_packets_pass();
                assert!(observing.observation.take().unwrap().iter().any(|(_, seen)| !seen.is_empty()));
            }
        }
        asking.let_packets_pass();
    });
    // Nor does one stay away from the pool, which would be a failure.
    lost_nothing(&summary);
}

#[test]
fn a_reader_that_never_reads_costs_bounded_memory_and_no_packet() {
    let summary = while_running(&chain("\"ttl\"", ""), |asking| {
        let observings: Vec<Observing> = (0..8)
            .map(|place| {
                let kind = if place % 2 == 0 { ObserveKind::Trace } else { ObserveKind::Capture };
                asking.observe(request(kind, "", None, None)).unwrap()
            })
            .collect();
        let refused = asking.observe(request(ObserveKind::Trace, "", None, None)).unwrap_err();
        assert_eq!(refused.code, Code::Busy);
        for _ in 0..100 {
            asking.let_packets_pass();
        }
        for Observing { observation, .. } in &observings {
            for (_, seen) in observation.take().unwrap() {
                let bytes: usize = seen.iter().map(|sighting| seen.frame(sighting).len()).sum();
                let watch = observation.watch();
                assert!(!seen.is_empty() && seen.lost() > 0);
                assert!(seen.len() <= watch.sightings && bytes <= watch.bytes, "{} {bytes}", seen.len());
            }
        }
        drop(observings);
        // The places are free again.
        assert!(asking.observe(request(ObserveKind::Trace, "", None, None)).is_ok());
    });
    lost_nothing(&summary);
}

#[test]
fn wrong_filters_and_places_are_refused_with_their_place() {
    while_running(&chain("\"ttl\"", ""), |asking| {
        let refused = |kind, filter, at| asking.observe(request(kind, filter, at, None)).unwrap_err();
        let problem = refused(ObserveKind::Trace, "tcp prot 80", None);
        assert_eq!((problem.code, problem.places[0].column), (Code::BadRequest, 5), "{problem}");
        let problem = refused(ObserveKind::Trace, "", Some("tll"));
        assert_eq!((problem.code, problem.help.as_deref()), (Code::NotFound, Some("did you mean `ttl`?")));
        // Only a capture looks at drops.
        assert_eq!(refused(ObserveKind::Trace, "", Some("ttl-expired")).code, Code::NotFound);
        assert!(asking.observe(request(ObserveKind::Capture, "", Some("ttl-expired"), None)).is_ok());
    });
}
