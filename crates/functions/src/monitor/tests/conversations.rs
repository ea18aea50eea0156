//! Conversations: both directions, times, flags, round trips, and the records of a collector.

use std::collections::BTreeMap;
use std::time::Duration;

use netbricks_core::packet::FlowKey;
use netbricks_core::packet::tcp::flags;
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::tables::Encode;
use netbricks_core::{Node, Section, Settings, TableKey, Worker, read_settings};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, kinds, run_node};
use proptest::prelude::*;

use super::super::ipfix::{EndReason, Exporter, FlowRecord, line, read_line, records};
use super::super::{Conversation, ConversationKey, MonitorConfig, Seen, node};

fn make(
    text: &str,
) -> impl Fn(&Worker) -> Result<Box<dyn Node>, netbricks_core::BuildError> + Clone + Send + Sync + use<> + 'static
{
    let table = toml::de::DeTable::parse(text).unwrap();
    let config: MonitorConfig = read_settings(table, None).unwrap_or_else(|error| panic!("{text}: {error}"));
    move |worker| node(&config, worker)
}

fn tcp(is_back: bool, flag: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to, ports) = match is_back {
        false => ("10.0.0.1", "10.0.0.2", (4_000, 80)),
        true => ("10.0.0.2", "10.0.0.1", (80, 4_000)),
    };
    ethernet().ipv4(from, to).tcp(ports.0, ports.1).flags(flag).payload(payload).build().unwrap()
}

fn rows(sections: &[Section]) -> Vec<Vec<String>> {
    sections[0].rows.clone()
}

const US: fn(u64) -> Duration = Duration::from_micros;

#[test]
fn both_directions_share_a_record_with_times_flags_and_round_trips() {
    let mut test = Clocked::of_node(make("details = true"));
    test.send([tcp(false, flags::SYN, b"")]);
    test.advance(US(30));
    test.send([tcp(true, flags::SYN | flags::ACK, b"")]);
    test.advance(US(7));
    test.send([tcp(false, flags::ACK, b"")]);
    test.advance(US(3));
    test.send([tcp(false, flags::ACK | flags::PSH, b"GET /"), tcp(true, flags::ACK, b"")]);
    test.advance(US(10));
    test.send([tcp(true, flags::ACK | flags::FIN, b"bye"), tcp(false, flags::ACK | flags::FIN, b"")]);
    let expected =
        ["10.0.0.1:4000 > 10.0.0.2:80 TCP", "4", "221", "3", "165", "FSPA", "FSA", "50", "30", "7"];
    let answer = test.call("top", "1");
    let row: Vec<&str> = answer.lines().nth(1).unwrap().split('\t').collect();
    assert_eq!(row[1..], expected[1..], "{answer}");
    assert!(row[0].contains("10.0.0.1") && row[0].contains("4000"), "the first packet's direction: {answer}");
    assert_eq!(rows(&test.send::<Vec<u8>>([]).sections)[0][1..], expected[1..]);
    // A connection that follows it on the same ports is another one.
    test.advance(Duration::from_millis(1));
    let report = test.send([tcp(true, flags::SYN, b"")]);
    assert_eq!(rows(&report.sections)[0][1..8], ["1", "54", "0", "0", "S", "", "0"]);
    assert_eq!(test.finish().totals.drops.total().packets, 0);
}

#[test]
fn a_syn_that_was_sent_twice_measures_nothing() {
    let mut test = Clocked::of_node(make("details = true"));
    test.send([tcp(false, flags::SYN, b""), tcp(false, flags::SYN, b"")]);
    test.advance(US(30));
    test.send([tcp(true, flags::SYN | flags::ACK, b""), tcp(false, flags::ACK, b"")]);
    assert_eq!(rows(&test.finish().sections)[0][8..], ["0", "0"]);
}

fn udp(flow: u8, is_back: bool, bytes: usize) -> Vec<u8> {
    let (here, there) = (format!("10.0.0.{flow}"), "10.9.9.9".to_owned());
    let (from, to) = if is_back { (there, here) } else { (here, there) };
    let ports = if is_back { (53, 1_000) } else { (1_000, 53) };
    ethernet()
        .ipv4(from.as_str(), to.as_str())
        .udp(ports.0, ports.1)
        .payload(&vec![0; bytes])
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn counts_agree_with_a_map_of_both_directions(
        packets in proptest::collection::vec((0u8..20, any::<bool>(), 0usize..500), 1..300),
    ) {
        let frames: Vec<_> = packets.iter().map(|(flow, back, bytes)| udp(*flow, *back, *bytes)).collect();
        let report = run_node(make("details = true\ntop = 100"), frames.clone());
        prop_assert_eq!(&report.out, &frames);
        let mut map: BTreeMap<u8, (bool, [u64; 4])> = BTreeMap::new();
        for ((flow, back, _), frame) in packets.iter().zip(&frames) {
            let (first, counts) = map.entry(*flow).or_insert((*back, [0; 4]));
            let way = if back == first { 0 } else { 2 };
            counts[way] += 1;
            counts[way + 1] += frame.len() as u64;
        }
        let mut expected: Vec<_> = map.values().map(|(_, counts)| counts.map(|count| count.to_string()).to_vec()).collect();
        let mut found: Vec<_> = rows(&report.sections).iter().map(|row| row[1..5].to_vec()).collect();
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(report.sections[0].of, Some(map.len() as u64));
    }

    #[test]
    fn a_conversation_survives_its_bytes(numbers in any::<[u64; 7]>(), flags in any::<[u8; 2]>(), reversed: bool) {
        let mut conversation = Conversation::begin(reversed, &Seen { now: numbers[0], bytes: numbers[1], octets: numbers[2], flags: flags[0], tos: flags[1], icmp: 9 });
        conversation.back.first = numbers[3];
        conversation.reported = [(numbers[4], 1), (2, numbers[5])];
        conversation.initiator_rtt = numbers[6];
        let mut bytes = [0; Conversation::SIZE];
        conversation.encode(&mut bytes);
        prop_assert_eq!(Conversation::decode(&bytes), Some(conversation));
    }
}

/// The lines of records that wait, without the line of losses.
fn taken(test: &mut Clocked) -> (u64, Vec<FlowRecord>) {
    let text = test.call("take_records", "");
    let mut lines = text.lines();
    let lost = lines.next().unwrap().parse().unwrap();
    (lost, lines.map(|line| read_line(line).expect("a record's line")).collect())
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Source and destination port, end reason, octets, packets, first and last (ms), of an IPv4 record.
fn fields(record: &FlowRecord) -> [u64; 7] {
    let at = |from: usize, bytes: usize| number(&record.bytes[from..from + bytes]);
    [at(10, 2), at(12, 2), at(18, 1), at(19, 8), at(27, 8), at(35, 8), at(43, 8)]
}

#[test]
fn flows_are_reported_once_when_idle_when_active_for_long_and_when_they_end() {
    let text = "collector = \"192.0.2.1:4739\"\nidle = \"10 s\"\nactive = \"30 s\"";
    let mut test = Clocked::of_node(make(text));
    let seconds = Duration::from_secs;
    test.send([udp(1, false, 72), udp(1, true, 172), udp(1, true, 172)]);
    test.advance(seconds(9));
    assert_eq!(taken(&mut test), (0, vec![]));
    test.advance(seconds(2));
    let (_, records) = taken(&mut test);
    assert_eq!(
        records.iter().map(fields).collect::<Vec<_>>(),
        [[1_000, 53, 1, 100, 1, 1_000, 1_000], [53, 1_000, 1, 400, 2, 1_000, 1_000],]
    );
    // A flow that goes on is reported by what is new.
    for _ in 0..7 {
        test.send([udp(2, false, 72)]);
        test.advance(seconds(9));
    }
    let (_, records) = taken(&mut test);
    let reasons: Vec<_> = records.iter().map(|record| (fields(record)[2], fields(record)[4])).collect();
    assert_eq!(reasons, [(2, 4), (2, 3)], "packets at 0, 9, 18 and 27 s, then at 36, 45 and 54 s");
    test.advance(seconds(11));
    assert_eq!(taken(&mut test).1, [], "nothing new came before it was idle");
    // A connection is reported a second after its end.
    test.send([tcp(false, flags::SYN, b""), tcp(true, flags::RST | flags::ACK, b"")]);
    test.advance(Duration::from_millis(900));
    assert_eq!(taken(&mut test).1, []);
    // And at most a sweep later.
    test.advance(Duration::from_millis(700));
    let (_, records) = taken(&mut test);
    assert_eq!(records.iter().map(|record| fields(record)[2]).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(number(&records[1].bytes[16..18]), u64::from(flags::RST | flags::ACK));
    // Or when the next one follows, and when someone asks.
    test.send([tcp(false, flags::SYN, b""), tcp(true, flags::RST, b""), tcp(false, flags::SYN, b"")]);
    assert_eq!(taken(&mut test).1.len(), 2);
    assert_eq!(test.call("flush", ""), "done");
    let reasons = taken(&mut test).1.iter().map(|record| fields(record)[2]).collect::<Vec<_>>();
    assert_eq!(reasons, [4]);
    assert_eq!(test.call("conversations.occupancy", ""), "1 65536");
    let report = test.finish();
    let counts = &report.sections[0].counts;
    assert_eq!((counts["exported"], counts["lost"], counts["refused_packets"]), (6, 0, 0));
}

#[test]
fn a_flow_that_gives_way_is_reported_and_what_finds_no_room_is_counted_as_lost() {
    let text = "collector = \"192.0.2.1:4739\"\ncapacity = 16\nexport_queue = 10";
    let mut test = Clocked::of_node(make(text));
    test.send((0..40).map(|flow| udp(flow, false, 0)));
    let (lost, records) = taken(&mut test);
    assert_eq!((lost, records.len()), (14, 10));
    assert!(records.iter().all(|record| fields(record)[2] == 5));
    test.finish();
}

#[test]
fn conversations_move_with_symmetric_flows_alone() {
    let flow = FlowKey::new([10, 0, 0, 9].into(), [10, 0, 0, 1].into(), 9, 1, 6);
    let (key, is_reversed) = ConversationKey::of(flow);
    assert_eq!(ConversationKey::of(flow.reversed()), (key, !is_reversed));
    assert_eq!(ConversationKey::restore(key.store()), key);
    assert!(
        ConversationKey::follows(ShuffleKey::SymmetricFlow) && !ConversationKey::follows(ShuffleKey::Flow)
    );
    let mut test = Clocked::of_node(make("details = true"));
    test.send([udp(1, false, 5), udp(1, true, 5)]);
    let pool = netbricks_core::buffer::Pool::builder().frames(16).build().unwrap();
    let mut nodes = [(); 2].map(|()| make("details = true")(&Worker::new(0, 1, pool.clone())).unwrap());
    let mut cx = netbricks_core::DetachedContext::new(pool.clone());
    let mut batch = netbricks_core::buffer::Batch::new();
    assert!(batch.push(pool.packet(&udp(1, false, 5)).unwrap()).is_ok());
    nodes[0].process(0, &mut batch, &mut cx);
    let (name, image) = nodes[0].export().remove(0);
    for at in 0..image.len() {
        let mut broken = image.clone();
        broken[at] ^= 0x10;
        assert!(nodes[1].import(&name, &broken, 0).is_err(), "byte {at}");
    }
    nodes[1].import(&name, &image, 0).unwrap();
    assert_eq!(nodes[1].report()[0].rows, nodes[0].report()[0].rows);
}

#[test]
fn every_kind_passes_unchanged_and_is_recorded() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    for text in ["details = true", "collector = \"[::1]:4739\""] {
        assert_eq!(run_node(make(text), frames.clone()).out, frames);
    }
}

#[test]
fn messages_have_whole_records_of_their_templates_and_count_them() {
    let way = Seen { now: 5_000_000, bytes: 60, octets: 46, ..Seen::default() };
    let record = |last: u16, is_v6: bool| {
        let key = match is_v6 {
            false => FlowKey::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), last, 53, 17),
            true => FlowKey::new([1u16, 0, 0, 0, 0, 0, 0, last].into(), [9u16; 8].into(), last, 53, 17),
        };
        records(key, &Conversation::begin(false, &way), EndReason::Idle).next().unwrap()
    };
    let all: Vec<_> = (0..200).map(|number| record(number, number % 7 == 0)).collect();
    for one in &all {
        assert_eq!(read_line(&line(one)).as_ref(), Some(one));
    }
    for wrong in ["", "4", "4 00", "5 00", &line(&all[0])[1..], &format!("{}0", line(&all[1])), "6 zz"] {
        assert_eq!(read_line(wrong), None, "{wrong}");
    }
    let mut exporter = Exporter::new(3);
    let mut sequence = 0;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let templates = exporter.templates(1_000, 7);
        assert_eq!(
            (number(&templates[8..12]), number(&templates[2..4]) as usize),
            (sequence, templates.len())
        );
        sequence += 1;
        for message in exporter.messages(1_000, &all) {
            assert!(message.len() <= 1_400);
            assert_eq!(message[..2], [0, 10]);
            assert_eq!(
                (number(&message[4..8]), number(&message[8..12]), number(&message[12..16])),
                (1_000, sequence, 3)
            );
            let mut rest = &message[16..];
            while !rest.is_empty() {
                let (set, length) = (number(&rest[..2]), number(&rest[2..4]) as usize);
                let size = if set == 257 { 76 } else { 52 };
                assert!((256..=257).contains(&set) && (length - 4) % size == 0);
                for bytes in rest[4..length].chunks(size) {
                    seen.push(FlowRecord { is_v6: set == 257, bytes: bytes.to_vec() });
                    sequence += 1;
                }
                rest = &rest[length..];
            }
        }
    }
    assert_eq!(seen, [all.clone(), all].concat(), "in order, none lost");
}

#[test]
fn a_collector_is_an_address_and_a_port() {
    let refused = |text: &str| toml::from_str::<MonitorConfig>(text).unwrap_err().to_string();
    assert!(refused("collector = \"192.0.2.1\"").contains("an address and a port"));
    assert!(refused("collector = \"192.0.2.1:0\"").contains("IPFIX has 4739"));
    let config: MonitorConfig = toml::from_str("active = \"2 d\"").unwrap();
    assert_eq!(
        config.check().unwrap_err().to_string(),
        "`active` must be \"1 ms\" to \"1 d\", found \"48 h\""
    );
}
