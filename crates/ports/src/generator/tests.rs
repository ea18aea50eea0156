use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netbricks_buffer::Pool;
use netbricks_core::{DetachedContext, KeyFault};
use netbricks_packet::FlowKey;
use proptest::prelude::*;

use super::*;
use crate::OpenError;
use crate::testing::*;

mod contents;

/// Frames and times of a generator with these settings.
fn generate(settings: &str, burst: usize) -> Vec<(u64, Vec<u8>)> {
    let (pool, directory) = (pool(), Directory::new("generator"));
    let mut from = open("generator", settings, &context(&pool, &directory)).unwrap();
    let (mut to, far) = collector(&pool);
    forward(from.as_mut(), &mut to, &pool, burst);
    let frames = collected(&far);
    assert_eq!(pool.available(), pool.capacity());
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_frame_is_valid_and_no_batch_size_changes_one(
        sizes in prop::sample::select(vec!["60", "[60, 300, 1514]", "'imix'", "42", "9000"]),
        ip in prop::sample::select(vec!["v4", "v6", "mix"]),
        shape in prop::sample::select(vec![
            "protocol = 'udp'", "protocol = 'tcp'", "protocol = 'icmp'", "protocol = 'mix'", "payload = 'pattern'",
            "payload = 'random'\nprotocol = 'mix'", "payload = 'dns'", "payload = 'http'", "conversation = true",
            "conversation = true\npayload = 'http'", "conversation = true\npayload = 'random'",
        ]),
        distribution in prop::sample::select(vec!["uniform", "zipf"]),
        flows in 1usize..50,
        rate in prop::sample::select(vec!["", "rate = '20 kpps'", "rate = '10 Mbit/s'"]),
        seed in 0u64..1000,
    ) {
        let settings = format!(
            "frame_sizes = {sizes}\nip = '{ip}'\n{shape}\ndistribution = '{distribution}'\nflows = {flows}\n{rate}\nseed = {seed}\npackets = 400"
        );
        let frames = generate(&settings, 32);
        prop_assert_eq!(frames.len(), 400);
        prop_assert!(frames.is_sorted_by_key(|(time, _)| *time));
        for (_, frame) in &frames {
            prop_assert!(crate::checksum::is_valid(frame), "{:02x?}", frame);
            prop_assert!(FlowKey::from_frame(frame).is_some(), "{:02x?}", frame);
        }
        for burst in [1, 256] {
            prop_assert!(generate(&settings, burst) == frames, "burst {}", burst);
        }
    }
}

#[test]
fn sizes_flows_and_times_are_as_asked() {
    let frames = generate("frame_sizes = [60, 1514]\nflows = 10\nrate = '1 kpps'\npackets = 1000", 32);
    assert!(frames.iter().all(|(_, frame)| matches!(frame.len(), 60 | 1514)));
    assert_eq!(frames[999].0, 999_000_000);
    let flows: BTreeSet<_> =
        frames.iter().filter_map(|(_, frame)| FlowKey::from_frame(frame)).map(|k| k.words()).collect();
    assert_eq!(flows.len(), 10);
    let frames = generate("rate = '480 kbit/s'\nduration = '1 s'", 32);
    assert_eq!(frames.len(), 1_000, "frames of 480 bits");
}

/// A receiver that checks a conversation: an oracle that knows RFC 9293 and not the generator.
#[derive(Default, Debug)]
struct Side {
    next: Option<u32>,
    finished: bool,
    data: Vec<u8>,
}

#[test]
fn conversations_are_what_two_tcps_would_say() {
    let frames =
        generate("conversation = true\npayload = 'http'\nframe_sizes = 600\nflows = 7\npackets = 5000", 32);
    let mut conversations: BTreeMap<_, BTreeMap<(IpAddr, u16), Side>> = BTreeMap::new();
    let mut whole = 0;
    for (_, frame) in &frames {
        assert!(frame.len() <= 600);
        let key = FlowKey::from_frame(frame).unwrap();
        let tcp = &frame[34..];
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let (sequence, ack, flags, data) = (word(4), word(8), tcp[13], &tcp[20..]);
        let sides = conversations.entry(key.canonical().words()).or_default();
        let peer = sides.get(&(key.destination(), key.destination_port())).and_then(|side| side.next);
        let own = (key.source(), key.source_port());
        assert_eq!(flags & 0x02 != 0, !sides.contains_key(&own), "each side begins with a SYN, once");
        if flags & 0x10 != 0 {
            assert_eq!(Some(ack), peer, "everything that the peer sent is acknowledged, and nothing more");
        }
        let side = sides.entry(own).or_default();
        assert!(side.next.is_none_or(|next| next == sequence), "no gap, no repetition");
        assert!(!side.finished || data.is_empty());
        side.finished |= flags & 0x01 != 0;
        side.data.extend(data);
        let counted = data.len() as u32 + u32::from(flags & 0x02 != 0) + u32::from(flags & 0x01 != 0);
        side.next = Some(sequence.wrapping_add(counted));
        if sides.len() == 2 && sides.values().all(|side| side.finished) && counted == 0 {
            whole += 1;
            let sides = conversations.remove(&key.canonical().words()).unwrap();
            for side in sides.into_values() {
                let text = String::from_utf8_lossy(&side.data).into_owned();
                if text.starts_with("GET /objects/") {
                    assert!(text.ends_with("\r\n\r\n"));
                } else {
                    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
                    let (head, _) = text.split_once("\r\n\r\n").unwrap();
                    let length: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
                    assert_eq!(side.data.len(), head.len() + 4 + length);
                }
            }
        }
    }
    assert!(whole > 100, "{whole}");
}

#[test]
fn queues_share_flows_and_packets_and_repeat_together() {
    let (pool, directory) = (pool(), Directory::new("queues"));
    let cx = OpenContext { queues: 3, ..context(&pool, &directory) };
    let mut keys = BTreeSet::new();
    let mut total = 0;
    let mut port = open("generator", "flows = 30\npackets = 1000", &cx).unwrap();
    assert_eq!(port.capabilities().receive_queues, 3);
    for queue in 0..3 {
        let mut queue = port.take_receive(queue).unwrap();
        let (mut batch, mut graph) = (Batch::new(), DetachedContext::new(pool.clone()));
        let mut own = BTreeSet::new();
        while queue.receive(&mut batch, &mut graph) != Poll::Done || !batch.is_empty() {
            total += batch.len();
            own.extend(
                batch.iter().filter_map(|packet| FlowKey::from_frame(packet.data())).map(|key| key.words()),
            );
            batch.clear();
        }
        assert_eq!(own.len(), 10);
        assert!(own.is_disjoint(&keys));
        keys.append(&mut own);
    }
    assert_eq!((total, keys.len()), (1_000, 30));
    assert!(port.take_receive(0).map(|_| ()).unwrap_err().to_string().contains("taken already"));
}

#[test]
fn bad_settings_are_refused_with_their_key() {
    let (pool, directory) = (pool(), Directory::new("refused"));
    let cx = context(&pool, &directory);
    for (settings, expected) in [
        ("flows = 0", "`flows` must be"),
        ("frame_sizes = 41", "`frame_sizes` must be 42"),
        ("payload = 'dns'\nprotocol = 'tcp'", "`protocol` must be udp"),
        ("payload = 'dns'\nconversation = true", "`payload` dns goes over UDP"),
        ("packets = 0", "`packets` must be"),
        ("rate = '5'", "needs a unit"),
        ("flovs = 3", "there is no key `flovs`"),
    ] {
        let error = open("generator", settings, &cx).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(expected), "{settings}: {error}");
        if let OpenError::Settings(error) = error {
            assert!(error.span.is_some());
            let unknown = KeyFault::Unknown { suggestion: Some("flows") };
            assert_eq!(error.key, (settings == "flovs = 3").then_some(unknown));
        }
    }
}

/// A run on the machine's clock, which the test sets.
#[test]
fn on_real_time_packets_come_when_they_are_due() {
    let (pool, directory) = (pool(), Directory::new("generator-real"));
    let cx = context(&pool, &directory);
    const START: u64 = 5_000_000_000;
    let mut from = open("generator", "clock = 'real'\nrate = '1 Mpps'\nduration = '1 ms'", &cx).unwrap();
    assert!(!from.capabilities().drives_clock);
    let mut queue = from.take_receive(0).unwrap();
    let (mut batch, mut graph) = (Batch::new(), DetachedContext::new(pool.clone()));
    let mut made = 0u64;
    for step in 0..=100 {
        // Ten packets are due in each step.
        let now = START + step * 10_000;
        graph.advance(now);
        let poll = loop {
            let poll = queue.receive(&mut batch, &mut graph);
            for packet in batch.drain() {
                assert_eq!(packet.received_at(), START + made * 1_000);
                made += 1;
            }
            if poll != Poll::Busy {
                break poll;
            }
        };
        assert_eq!(graph.now(), now, "it does not move the clock");
        if step < 100 {
            assert_eq!((made, poll), (step * 10 + 1, Poll::Until(now + 1_000)));
        } else {
            assert_eq!((made, poll), (1_000, Poll::Done));
        }
    }
    // Without a rate: as fast as the queue is asked, with the time of the request.
    let mut from = open("generator", "clock = 'real'\npackets = 1000", &cx).unwrap();
    let mut queue = from.take_receive(0).unwrap();
    assert_eq!(queue.receive(&mut batch, &mut graph), Poll::Busy);
    assert_eq!(batch.len(), 256);
    assert!(batch.iter().all(|packet| packet.received_at() == graph.now()));
}

/// Frames and times of each of a port's queues.
fn queues_of(from: &mut dyn Port, queues: usize, burst: usize, pool: &Pool) -> Vec<Vec<(u64, Vec<u8>)>> {
    let frames = (0..queues).map(|queue| {
        let (mut to, far) = collector(pool);
        let mut builder = netbricks_core::GraphBuilder::new("queue");
        let source = crate::ReceiveNode::take(from, 0, queue).unwrap();
        let source = builder.add("in", Box::new(source)).unwrap();
        let sink = builder.add("out", Box::new(crate::TransmitNode::take(&mut to, 0).unwrap())).unwrap();
        builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
        let mut graph = builder.build(pool.clone()).unwrap();
        graph.set_burst(burst);
        let now = run(&mut graph, |_| false);
        let totals = finish(graph, now);
        assert_eq!(
            from.counters()[queue].received.load(std::sync::atomic::Ordering::Relaxed),
            totals.sent.packets
        );
        collected(&far)
    });
    frames.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Together the queues have the packets of a generator with one queue, byte for byte and at the same
    /// times.
    ///
    /// Each queue has the packets that the rules choose, and whole flows of the rest.
    #[test]
    fn rules_deal_out_what_one_queue_would_make(
        shape in prop::sample::select(vec![
            "protocol = 'mix'\nip = 'mix'", "payload = 'dns'", "conversation = true\npayload = 'http'",
            "payload = 'random'\nframe_sizes = 'imix'\nrate = '20 kpps'",
        ]),
        rules in crate::steer::frames::rules(3),
        by_port in any::<bool>(),
        flows in 3usize..50,
        seed in 0u64..1000,
    ) {
        let (pool, directory) = (pool(), Directory::new("generator-rules"));
        let cx = OpenContext { queues: 3, ..context(&pool, &directory) };
        let text = "[{ protocol = 'udp', destination_port = 53, queue = 2 }, { protocol = 'tcp', source_port = 80, queue = 1 },
                     { source = '10.0.0.0/30', queue = 0 }, { destination = '2001:db8:5::/112', queue = 1 }]";
        let settings = format!("{shape}\nflows = {flows}\nseed = {seed}\npackets = 600");
        let rules = if by_port {
            let rules = open("generator", &format!("{settings}\nsteer = {text}"), &cx).unwrap().rules();
            prop_assert_eq!(rules.iter().count(), 4);
            rules
        } else {
            rules
        };
        let all = generate(&settings, 32);
        let steered = |burst| -> Vec<Vec<(u64, Vec<u8>)>> {
            let mut port = open("generator", &settings, &cx).unwrap();
            port.steer(&rules).unwrap();
            queues_of(port.as_mut(), 3, burst, &pool)
        };
        let found = steered(32);
        let mut expected = vec![Vec::new(); 3];
        let mut rest = BTreeMap::new();
        for (time, frame) in &all {
            match rules.queue_of(frame) {
                Some(queue) => expected[usize::from(queue)].push((*time, frame.clone())),
                None => {
                    let flow = FlowKey::from_frame(frame).unwrap().canonical().words();
                    // Every packet has a different time; conversations of one flow have different ports.
                    let flow = [flow[0], flow[1], flow[2], flow[3]];
                    let place = found.iter().position(|queue| queue.iter().any(|(at, bytes)| at == time && bytes == frame));
                    let place = place.expect("it is made by one of the queues");
                    prop_assert_eq!(*rest.entry(flow).or_insert(place), place, "a flow is whole");
                    expected[place].push((*time, frame.clone()));
                }
            }
        }
        prop_assert!(found == expected, "each queue has what the rules say");
        prop_assert!(steered(1) == found && steered(256) == found);
    }
}
