//! The text of `trace`, of packets that went through the real functions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use netbricks_control::api::TraceRecord;
use netbricks_control::{Assembler, Places};
use netbricks_core::buffer::{Batch, Packet, Pool};
use netbricks_core::filter::Filter;
use netbricks_core::observer::{Allowance, Numbers, Sightings, Watch, WatchPoint};
use netbricks_core::packet::build::ethernet;
use netbricks_core::{Context, Edge, Graph, GraphBuilder, Node, Poll, Shape, Worker, compose};
use netbricks_functions::lpm::LpmSettings;
use netbricks_functions::maglev::{MaglevConfig, maglev};
use netbricks_functions::mss::{MssConfig, mss};
use netbricks_functions::ttl::{TtlConfig, ttl};

use super::super::canned::{Canned, ran};
use super::text;

/// Brings in these frames, a microsecond apart.
struct Feed(VecDeque<Vec<u8>>, u64);

impl Node for Feed {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let Some(frame) = self.0.pop_front() else { return Poll::Done };
        cx.receiving().advance(self.1);
        self.1 += 1_000;
        let mut packet: Packet = cx.pool().packet(&frame).unwrap();
        packet.set_ingress(0, 0);
        batch.push(packet).unwrap();
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

struct Sent;

impl Node for Sent {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// `lan → ttl → vip → mss → routes → wan`, with these frames from `lan`.
fn graph(frames: Vec<Vec<u8>>) -> Graph {
    let pool = Pool::builder().frames(256).build().unwrap();
    let worker = Worker::new(0, 1, pool.clone());
    let expired = TtlConfig { answer_v4: Some([10, 1, 0, 1].into()), ..TtlConfig::default() };
    let backends = ["web1 02:00:00:00:01:01", "web2 02:00:00:00:01:02"];
    let balanced = MaglevConfig {
        backends: backends.map(|backend| backend.parse().unwrap()).into(),
        addresses: vec!["203.0.113.10".parse().unwrap()],
        ..MaglevConfig::default()
    };
    let clamped = MssConfig { mtu: Some(1_400), ..MssConfig::default() };
    let routes = LpmSettings::of(["0.0.0.0/0 1", "203.0.113.0/24 7"].map(|route| route.parse().unwrap()));
    let nodes: [(&str, Box<dyn Node>); 4] = [
        ("ttl", compose(&worker, |input| ttl(input, &expired, &worker)).unwrap()),
        ("vip", compose(&worker, |input| maglev(input, &balanced, &worker)).unwrap()),
        ("mss", compose(&worker, |input| mss(input, &clamped, &worker)).unwrap()),
        ("routes", netbricks_functions::lpm::node(&routes, &worker).unwrap()),
    ];
    let mut graph = GraphBuilder::new("edge");
    let back = graph.add("lan.send", Box::new(Sent)).unwrap();
    let mut last = graph.add("lan", Box::new(Feed(frames.into(), 1_024_099_260_000))).unwrap();
    for (name, node) in nodes {
        let node = graph.add(name, node).unwrap();
        graph.connect(last, Edge::OUT, node, 0).unwrap();
        graph.connect(node, Edge::REPLY, back, 0).unwrap();
        last = node;
    }
    let wan = graph.add("wan.send", Box::new(Sent)).unwrap();
    graph.connect(last, Edge::OUT, wan, 0).unwrap();
    graph.build(pool).unwrap()
}

/// The records of the packets that match a filter.
fn traced(filter: &str, frames: Vec<Vec<u8>>) -> Vec<TraceRecord> {
    let mut graph = graph(frames);
    let filter = Filter::parse(filter).unwrap();
    let watch = Watch::trace(WatchPoint::Arrivals, filter, Allowance::default(), Numbers::default());
    graph.watch(watch);
    for _ in 0..64 {
        graph.turn(0);
    }
    let places = Places { ports: vec!["lan".into()], cores: vec![Some(1)] };
    let mut assembler = Assembler::new(places, Duration::from_secs(2));
    let seen = graph.take_sightings(0, Sightings::default()).unwrap();
    assembler.add(&[(0, seen)], Instant::now())
}

fn told(records: &[TraceRecord]) -> String {
    records.iter().map(|record| text(record, |_, text| text.to_owned())).collect()
}

#[test]
fn an_expired_packet_a_known_connection_and_a_clamped_segment_read_as_people_ask() {
    let expired = ethernet().ipv4("10.1.2.3", "93.184.216.34").ttl(1).udp(51_514, 33_435).payload(b"probe");
    let syn =
        || ethernet().ipv4("10.1.2.3", "203.0.113.10").tcp(51_514, 443).syn().maximum_segment_size(1_460);
    let data = ethernet().ipv4("10.1.2.3", "203.0.113.10").tcp(51_514, 443).ack(9).payload(b"GET / HTTP/1.1");
    let frames = || {
        let frames = [expired.clone().build(), syn().build(), data.clone().build()];
        frames.map(Result::unwrap).to_vec()
    };
    let golden = |name: &str, records: &[TraceRecord]| {
        let file =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/live/golden").join(name);
        let told = told(records);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &told).unwrap();
        }
        assert_eq!(told, std::fs::read_to_string(&file).unwrap_or_default(), "{name}");
    };
    golden("ttl-expired.txt", &traced("udp", frames()));
    golden("maglev-hit.txt", &traced("tcp port 443 and tcp[tcpflags] & tcp-syn == 0", frames()));
    golden("mss-clamped.txt", &traced("tcp[tcpflags] & tcp-syn != 0", frames()));
}

#[test]
fn the_command_shows_records_as_text_or_json_and_faults_of_filters_at_their_place() {
    let frame = ethernet().ipv4("10.1.2.3", "203.0.113.10").tcp(51_514, 443).syn().build().unwrap();
    let traces = traced("tcp", vec![frame]);
    let api = Canned { traces: traces.clone(), ..Canned::default() };
    let shown = ran(&api, &["trace", "host", "10.1.2.3", "--count", "1"]);
    assert_eq!((shown.code, shown.out, shown.err.as_str()), (0, told(&traces), ""));
    let shown = ran(&api, &["trace", "tcp", "--at", "ttl", "--json"]);
    assert_eq!(serde_json::from_str::<TraceRecord>(&shown.out).unwrap(), traces[0]);
    assert_eq!(api.asked(), ["trace \"host 10.1.2.3\" None Some(1)", "trace \"tcp\" Some(\"ttl\") None"]);
    let wrong = ran(&api, &["trace", "tcp prot 80"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("^^^^ did you mean `port`?"), "{}", wrong.err);
    let lost = vec![TraceRecord { lost: 3, ..traces[0].clone() }];
    let told = ran(&Canned { traces: lost, ..Canned::default() }, &["trace"]);
    assert!(told.err.starts_with("3 more packets or steps were not traced"), "{}", told.err);
}
