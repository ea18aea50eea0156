use netbricks_buffer::Pool;
use netbricks_core::{
    Blueprint, DetachedContext, Edge, Function, Graph, GraphBuilder, Input, Operator, Turn, Worker, compose,
};

use super::*;
use crate::memory::Memory;
use crate::pcap::{Format, Precision, Writer};
use crate::testing::*;
use crate::{Port, ReceiveNode, TransmitNode};

#[test]
fn a_batch_never_spans_a_millisecond_and_time_never_goes_back() {
    let pool = Pool::builder().frames(8).build().unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    let (mut arrivals, mut batch) = (Arrivals::default(), Batch::new());
    arrivals.begin(&cx);
    assert!(arrivals.admit(5_999_999, &batch, &mut cx));
    assert_eq!(cx.now(), 5_000_000);
    batch.push(pool.packet(&[0; 60]).unwrap()).unwrap();
    assert!(arrivals.admit(5_000_001, &batch, &mut cx), "earlier, but within the millisecond");
    assert!(!arrivals.admit(6_000_000, &batch, &mut cx));
    assert_eq!(cx.now(), 5_000_000, "refused: the clock stands");
    batch.clear();
    assert!(arrivals.admit(6_000_000, &batch, &mut cx));
    batch.push(pool.packet(&[0; 60]).unwrap()).unwrap();
    assert!(arrivals.admit(1_000, &batch, &mut cx), "a capture out of order");
    assert_eq!(cx.now(), 6_000_000);
    batch.clear();
    assert!(arrivals.admit(u64::MAX, &batch, &mut cx), "the end of time is no deadline");
}

/// A function that inserts a frame every `PERIOD` ns, with the number of packets so far and the time.
fn tally(input: Input, worker: &Worker) -> impl Function + use<> {
    let seen = worker.counter("seen");
    let told = seen.clone();
    worker.invoke_every("tell", PERIOD, move |event| {
        assert_eq!((event.due(), event.missed()), (event.now(), 0), "on time to the nanosecond");
        let now = event.now();
        assert!(event.inject(Edge::OUT, 60, |frame| {
            frame[..8].copy_from_slice(b"tell-you");
            frame[8..16].copy_from_slice(&told.get().to_be_bytes());
            frame[16..24].copy_from_slice(&now.to_be_bytes());
        }));
    });
    input.inspect(move |_| seen.add(1)).done()
}

/// Several periods a millisecond; the period does not divide it.
const PERIOD: u64 = 333_333;

/// The frames that leave the function, in order, when this port is its source.
///
/// Frames of the port are given by their arrival, the function's own by their contents.
fn told(driver: &str, settings: &str, directory: &Directory, burst: usize) -> Vec<Vec<u8>> {
    let pool = pool();
    let mut from = open(driver, settings, &context(&pool, directory)).unwrap();
    tallied(from.as_mut(), &pool, burst)
}

fn tallied(from: &mut dyn Port, pool: &Pool, burst: usize) -> Vec<Vec<u8>> {
    let (mut to, far) = collector(pool);
    let mut graph = tallying(from, &mut to, pool, burst);
    let now = run(&mut graph, |_| false);
    finish(graph, now);
    let frames = collected(&far).into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(pool.available(), pool.capacity());
    frames
}

fn tallying(from: &mut dyn Port, to: &mut dyn Port, pool: &Pool, burst: usize) -> Graph {
    let blueprint = Blueprint::new(|worker| compose(worker, |input| tally(input, worker)));
    let mut builder = GraphBuilder::new("test");
    let source = builder.add("in", Box::new(ReceiveNode::take(from, 0, 0).unwrap())).unwrap();
    let node = builder.add_function("tally", &blueprint, &Worker::new(0, 1, pool.clone())).unwrap();
    let sink = builder.add("out", Box::new(TransmitNode::take(to, 0).unwrap())).unwrap();
    builder.connect(source, Edge::OUT, node, 0).unwrap();
    builder.connect(node, Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool.clone()).unwrap();
    graph.set_burst(burst);
    graph
}

#[test]
fn events_come_between_the_packets_of_a_capture_by_time_whatever_the_batch_size() {
    let directory = Directory::new("events");
    let epoch = 1_700_000_000_123_456_789u64;
    // Dense times and gaps, equal times, an arrival exactly at a deadline, and one that goes back in time.
    let mut times: Vec<u64> = (0..3_000u64).map(|i| epoch + i / 3 * 7_001 + i / 400 * 5_000_000).collect();
    times.push(epoch + 500 * PERIOD);
    times.push(epoch + 10);
    times.push(epoch + 502 * PERIOD - 1);
    let packets: Vec<(u64, Vec<u8>)> =
        times.iter().zip(0u32..).map(|(time, i)| (*time, [i.to_be_bytes(); 15].concat())).collect();
    let path = directory.0.join("in.pcap");
    let mut writer = Writer::create(&path, Format::of(&path), Precision::Nanoseconds, 65_535, "lan").unwrap();
    for (time, frame) in &packets {
        writer.write(*time, frame, None).unwrap();
    }
    writer.finish().unwrap();

    let (mut expected, mut next) = (Vec::new(), epoch + PERIOD);
    for (seen, (time, frame)) in packets.iter().enumerate() {
        while next <= *time {
            let mut tells =
                [b"tell-you".as_slice(), &(seen as u64).to_be_bytes(), &next.to_be_bytes()].concat();
            tells.resize(60, 0);
            expected.push(tells);
            next += PERIOD;
        }
        expected.push(frame.clone());
    }
    assert!(expected.len() > packets.len() + 150);
    for burst in BURSTS {
        assert!(told("pcap", "read = 'in.pcap'", &directory, burst) == expected, "burst {burst}");
    }
}

#[test]
fn events_come_between_the_packets_of_every_source_that_drives_the_clock() {
    let directory = Directory::new("sources");
    for (driver, settings) in [
        ("generator", "packets = 3000\nrate = '100 kpps'\nseed = 5"),
        ("generator", "packets = 500\nrate = '1 kpps'\nseed = 5\ndelay = '7500 us'\njitter = '2 ms'"),
        ("generator", "packets = 3000\nseed = 5\nreorder = 0.1\nduplicate = 0.1\nloss = 0.1"),
    ] {
        let [first, others @ ..] = BURSTS.map(|burst| told(driver, settings, &directory, burst));
        assert!(first.iter().filter(|frame| frame.starts_with(b"tell-you")).count() > 5, "{settings}");
        assert!(others.iter().all(|other| *other == first), "{settings}");
    }
}

#[test]
fn a_memory_port_does_not_end_before_what_waits_for_an_event() {
    let results = BURSTS.map(|burst| {
        let pool = pool();
        let (mut port, far) = Memory::new("memory", 1, 64, &pool);
        for number in 0..20u8 {
            assert!(far.push_at(0, &[number; 60], 5_000_000 + u64::from(number) * PERIOD / 2));
        }
        far.end();
        tallied(&mut port, &pool, burst)
    });
    assert_eq!(results[0].iter().filter(|frame| !frame.starts_with(b"tell-you")).count(), 20);
    assert_eq!(results[0].len(), 20 + 9);
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn packets_in_a_line_are_drained_although_events_are_due_earlier() {
    let (pool, directory) = (pool(), Directory::new("drained"));
    let settings = "packets = 2000\nrate = '10 kpps'\nseed = 5\ndelay = '20 ms'";
    let mut from = open("generator", settings, &context(&pool, &directory)).unwrap();
    let (mut to, far) = collector(&pool);
    let mut graph = tallying(from.as_mut(), &mut to, &pool, 32);
    let now = run(&mut graph, |totals| totals.sent.packets > 300);
    let held = graph.totals().held;
    assert!(held > 100, "{held}");
    let totals = finish(graph, now);
    assert_eq!(totals.sent.packets, totals.received.packets + totals.created.packets);
    drop(far);
}

#[test]
fn a_deadline_that_comes_nearer_between_two_polls_is_kept() {
    let pool = pool();
    let graph_of = |first: u64| {
        let (mut port, far) = Memory::new("memory", 1, 64, &pool);
        for number in 0..20u8 {
            assert!(far.push_at(0, &[number; 60], first + u64::from(number) * 10_000));
        }
        far.end();
        let (mut to, far) = collector(&pool);
        (tallying(&mut port, &mut to, &pool, 1), far)
    };
    // All within one millisecond. This graph's event is due at 5,333,333, the other's at 5,038,333.
    let ((mut graph, far), (mut other, _)) = (graph_of(5_000_000), graph_of(4_705_000));
    for graph in [&mut graph, &mut other] {
        (0..3).for_each(|_| assert!(matches!(graph.turn(0), Turn::Moved(_))));
    }
    let (node, (state, image)) = other.export().into_iter().find(|(_, (state, _))| state == "tell").unwrap();
    graph.import(&node, &state, &image).unwrap();
    let now = run(&mut graph, |_| false);
    finish(graph, now);
    let order: Vec<u8> = collected(&far).iter().map(|(_, frame)| frame[0]).take(6).collect();
    assert_eq!(order, [0, 1, 2, 3, b't', 4]);
}
