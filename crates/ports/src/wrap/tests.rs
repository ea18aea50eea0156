use std::sync::atomic::Ordering::Relaxed;

use netbricks_buffer::Pool;
use netbricks_core::{DropReason, Turn};
use proptest::prelude::*;

use crate::pcap::{Format, Precision, Reader, Step, Writer};
use crate::testing::*;

mod odds;

const TRAFFIC: &str = "packets = 2000\nrate = '10 kpps'\npayload = 'pattern'\nframe_sizes = [60, 90]\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// On either side, with any faults of the line: every loss is counted, and all buffers return.
    ///
    /// No batch size changes the output.
    #[test]
    fn lines_keep_the_law_at_every_batch_size(
        loss in 0.0..0.5f64,
        duplicate in 0.0..0.5f64,
        reorder in 0.0..0.3f64,
        corrupt in 0.0..0.3f64,
        delay in 0u64..20,
        jitter in 0u64..20,
        limit in prop::sample::select(vec![4usize, 1_000]),
        receive in any::<bool>(),
        seed in 0u64..100,
    ) {
        let jitter = jitter.min(delay);
        let line = format!(
            "loss = {loss}\nduplicate = {duplicate}\nreorder = {reorder}\ncorrupt = {corrupt}\ndelay = '{delay} ms'\njitter = '{jitter} ms'\nlimit = {limit}\nseed = {seed}\n"
        );
        let mut first = None;
        for burst in BURSTS {
            let (pool, directory) = (pool(), Directory::new("wrap"));
            let cx = context(&pool, &directory);
            let (at_source, at_sink) = if receive { (line.as_str(), "") } else { ("", line.as_str()) };
            let mut from = open("generator", &format!("{TRAFFIC}{at_source}"), &cx).unwrap();
            let mut to = open("pcap", &format!("write = 'out.pcap'\n{at_sink}"), &cx).unwrap();
            let totals = forward(from.as_mut(), to.as_mut(), &pool, burst);
            to.close().unwrap();
            let counters = if receive { from.counters() } else { to.counters() };
            let duplicated = counters[0].duplicated.load(Relaxed);
            let written = frames(&directory);
            let lost = totals.drops.of(DropReason::Impaired).packets;
            prop_assert_eq!(lost, counters[0].impaired.load(Relaxed));
            let full = totals.drops.of(DropReason::QueueFull).packets;
            prop_assert_eq!((totals.received.packets, totals.created.packets), (2_000, duplicated));
            prop_assert_eq!(written.len() as u64, 2_000 - lost - full + duplicated);
            prop_assert_eq!(totals.sent.packets, written.len() as u64);
            prop_assert!(limit != 1_000 || full == 0);
            if receive {
                let bytes: u64 = written.iter().map(|frame| frame.len() as u64).sum();
                let gone = totals.drops.total().bytes;
                prop_assert_eq!(totals.received.bytes + totals.created.bytes, bytes + gone);
            }
            prop_assert_eq!(pool.available(), pool.capacity());
            prop_assert!(first.get_or_insert_with(|| written.clone()) == &written, "burst {}", burst);
        }
    }
}

fn frames(directory: &Directory) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(std::fs::File::open(directory.0.join("out.pcap")).unwrap()).unwrap();
    let mut frames = Vec::new();
    while reader
        .next(|record| {
            frames.push(record.data.to_vec());
            true
        })
        .unwrap()
        != Step::End
    {}
    frames
}

#[test]
fn a_delay_on_receive_shifts_every_packet_by_it() {
    let (pool, directory) = (pool(), Directory::new("delay"));
    let cx = context(&pool, &directory);
    let arrivals = |line: &str, burst| {
        let mut from =
            open("generator", &format!("packets = 500\nrate = '300 pps'\nseed = 5\n{line}"), &cx).unwrap();
        let (mut to, far) = collector(&pool);
        forward(from.as_mut(), &mut to, &pool, burst);
        collected(&far)
    };
    let straight = arrivals("", 32);
    let shifted: Vec<_> = straight.iter().map(|(time, frame)| (time + 7_500_000, frame.clone())).collect();
    for burst in BURSTS {
        assert!(arrivals("delay = '7500 us'", burst) == shifted, "burst {burst}");
    }
}

#[test]
fn a_reordered_packet_is_overtaken_by_the_gap() {
    let (pool, directory) = (pool(), Directory::new("reorder"));
    let cx = context(&pool, &directory);
    let mut from =
        open("generator", "packets = 1000\nreorder = 0.05\nreorder_gap = 2\nrate = '1 kpps'", &cx).unwrap();
    let (mut to, far) = collector(&pool);
    forward(from.as_mut(), &mut to, &pool, 32);
    let times: Vec<_> = collected(&far).iter().map(|(time, _)| *time / 1_000_000).collect();
    let late: Vec<_> = (1..times.len()).filter(|i| times[i - 1] > times[*i]).collect();
    assert_eq!(times.len(), 1_000);
    assert!((20..100).contains(&late.len()), "{}", late.len());
    for at in late {
        let overtook = times[..at].iter().filter(|time| **time > times[at]).count();
        assert!((2..=12).contains(&overtook), "{overtook} overtook packet {}", times[at]);
    }
}

#[test]
fn a_capture_has_what_passed_with_its_direction() {
    let (pool, directory) = (pool(), Directory::new("capture"));
    let cx = context(&pool, &directory);
    let mut from = open("generator", "packets = 100\ncapture = 'in.pcapng'", &cx).unwrap();
    let mut to = open("null", "capture = 'out.pcap'\nmtu = 100", &cx).unwrap();
    forward(from.as_mut(), to.as_mut(), &pool, 32);
    from.close().unwrap();
    to.close().unwrap();
    let seen = |name: &str| {
        let mut reader = Reader::new(std::fs::File::open(directory.0.join(name)).unwrap()).unwrap();
        let mut records = Vec::new();
        while reader
            .next(|record| {
                records.push((record.time, record.data.to_vec()));
                true
            })
            .unwrap()
            != Step::End
        {}
        records
    };
    assert_eq!(seen("in.pcapng").len(), 100);
    assert!(seen("in.pcapng") == seen("out.pcap"));
}

#[test]
fn limits_of_a_port_are_enforced_and_checked() {
    let (pool, directory) = (pool(), Directory::new("mtu"));
    let cx = context(&pool, &directory);
    let mut from = open("generator", "packets = 300\nframe_sizes = [60, 1514]\nseed = 3", &cx).unwrap();
    let mut to = open("null", "mtu = 1000", &cx).unwrap();
    let totals = forward(from.as_mut(), to.as_mut(), &pool, 32);
    let too_big = totals.drops.of(DropReason::TooBig).packets;
    assert!(too_big > 50 && too_big + totals.sent.packets == 300, "{too_big}");
    for (settings, expected) in [
        ("mtu = 9", "`mtu` must be 68"),
        ("jitter = '5 ms'", "`jitter` must be at most"),
        ("loss = 2", "a probability"),
        ("limit = 0", "`limit` must be"),
        ("hold = 9", "`hold` is called `limit` now"),
        ("impair = 'receive'", "`impair` is called `impair_direction` now"),
    ] {
        let error = open("null", settings, &cx).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// All keys at once.
const BAD: &str = "loss = 0.1\nduplicate = 0.2\nreorder = 0.1\ncorrupt = 0.1\ndelay = '4 ms'\njitter = '3 ms'\nlimit = 200\nchecksum = 'drop'\n";

/// A run is stopped at any point, with lines on both sides.
///
/// The packets on the lines are held, and come out when the graph is taken down. All counts agree.
#[test]
fn a_run_that_is_stopped_gives_up_what_its_lines_keep() {
    for burst in BURSTS {
        for after in [1u64, 40, 333, 1_500] {
            let (pool, directory) = (pool(), Directory::new("stopped"));
            let cx = context(&pool, &directory);
            let mut from = open("generator", &format!("{TRAFFIC}{BAD}capture = 'in.pcapng'"), &cx).unwrap();
            let mut to =
                open("pcap", &format!("write = 'out.pcap'\n{BAD}capture = 'out.pcapng'"), &cx).unwrap();
            let mut graph = joined(from.as_mut(), to.as_mut(), &pool, burst);
            let mut held = 0;
            let now = run(&mut graph, |totals| {
                held = totals.held;
                totals.received.packets >= after && held > 0
            });
            let totals = finish(graph, now);
            assert!(held > 0 && totals.held == 0);
            to.close().unwrap();
            assert_eq!(frames(&directory).len() as u64, totals.sent.packets, "burst {burst}, after {after}");
            let duplicated: u64 =
                [&from, &to].iter().map(|port| port.counters()[0].duplicated.load(Relaxed)).sum();
            assert_eq!(totals.created.packets, duplicated);
            let bad = from.counters()[0].bad_checksum.load(Relaxed);
            assert_eq!(totals.drops.of(DropReason::BadChecksum).packets, bad);
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

/// Packets on the line use up the pool: no copies are made.
///
/// Every loss is counted, and the run ends.
#[test]
fn an_exhausted_pool_makes_no_copies_and_loses_nothing_uncounted() {
    for burst in BURSTS {
        for (at_source, at_sink) in [(BAD, ""), ("", BAD), (BAD, BAD)] {
            let pool = Pool::builder().frames(64).build().unwrap();
            let directory = Directory::new("exhausted");
            let cx = context(&pool, &directory);
            let lines = |line: &str| line.replace("duplicate = 0.2", "duplicate = 1");
            let mut from = open("generator", &format!("{TRAFFIC}{}", lines(at_source)), &cx).unwrap();
            let mut to = open("null", &lines(at_sink), &cx).unwrap();
            let totals = forward(from.as_mut(), to.as_mut(), &pool, burst);
            assert_eq!(totals.received.packets, 2_000);
            assert!(totals.created.packets > 0);
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

/// A run on a clock that the source does not drive.
#[test]
fn delayed_packets_are_held_until_they_are_due_on_real_time() {
    let (pool, directory) = (pool(), Directory::new("real"));
    let cx = context(&pool, &directory);
    for (at_source, at_sink) in [("delay = '5 ms'", ""), ("", "delay = '5 ms'")] {
        let mut from = open("generator", &format!("packets = 10\nclock = 'real'\n{at_source}"), &cx).unwrap();
        let mut to = open("null", at_sink, &cx).unwrap();
        let mut graph = joined(from.as_mut(), to.as_mut(), &pool, 32);
        let until = |graph: &mut netbricks_core::Graph, now| {
            while !matches!(graph.turn(now), Turn::Idle(_) | Turn::Done) {}
            graph.totals()
        };
        let totals = until(&mut graph, 1_000_000);
        assert_eq!((totals.received.packets, totals.held, totals.sent.packets), (10, 10, 0));
        let totals = until(&mut graph, 5_999_999);
        assert_eq!((totals.held, totals.sent.packets), (10, 0));
        let totals = until(&mut graph, 6_000_000);
        assert_eq!((totals.held, totals.sent.packets), (0, 10));
        assert_eq!(graph.turn(6_000_000), Turn::Done);
    }
}

/// The sink is taken down before the source, whose line then gives up its packets.
#[test]
fn the_order_in_which_nodes_are_taken_down_does_not_matter() {
    let (pool, directory) = (pool(), Directory::new("order"));
    let cx = context(&pool, &directory);
    let mut from = open("generator", "rate = '10 kpps'\ndelay = '5 ms'", &cx).unwrap();
    let mut to = open("null", "delay = '5 ms'", &cx).unwrap();
    let mut builder = netbricks_core::GraphBuilder::new("test");
    let sink = builder.add("out", Box::new(crate::TransmitNode::take(to.as_mut(), 0).unwrap())).unwrap();
    let source = builder.add("in", Box::new(crate::ReceiveNode::take(from.as_mut(), 0, 0).unwrap())).unwrap();
    builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool.clone()).unwrap();
    let now = run(&mut graph, |totals| totals.received.packets > 500);
    let totals = finish(graph, now);
    assert_eq!(totals.sent.packets, totals.received.packets);
}

/// Nearly the longest delay that a setting can express, and all of it jitter.
const LONGEST: &str = "delay = '5000000 h'\njitter = '5000000 h'\n";

/// A capture may state any time.
///
/// Packets of the last milliseconds that a clock can express come out of every line too, at every batch size.
#[test]
fn lines_let_go_of_packets_at_the_end_of_time() {
    for (at_source, at_sink) in [
        ("delay = '5 ms'", ""),
        ("", "delay = '5 ms'"),
        (BAD, ""),
        ("", BAD),
        (BAD, BAD),
        (LONGEST, ""),
        ("", LONGEST),
    ] {
        let mut first = None;
        for burst in BURSTS {
            let (pool, directory) = (pool(), Directory::new("end"));
            let cx = context(&pool, &directory);
            let path = directory.0.join("in.pcapng");
            let mut writer =
                Writer::create(&path, Format::of(&path), Precision::Nanoseconds, 65_535, "lan").unwrap();
            let frame = netbricks_packet::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2);
            let frame = frame.payload(&[7; 20]).build().unwrap();
            for i in (0..300u64).rev() {
                writer.write(u64::MAX - i * 50_000, &frame, None).unwrap();
            }
            writer.finish().unwrap();
            let mut from = open("pcap", &format!("read = 'in.pcapng'\n{at_source}"), &cx).unwrap();
            let mut to =
                open("pcap", &format!("write = 'out.pcap'\nformat = 'pcapng'\n{at_sink}"), &cx).unwrap();
            let totals = forward(from.as_mut(), to.as_mut(), &pool, burst);
            to.close().unwrap();
            assert_eq!(totals.received.packets, 300);
            let written = frames(&directory);
            assert_eq!(written.len() as u64, totals.sent.packets);
            assert!(written.len() > 150, "{} left", written.len());
            assert!(first.get_or_insert_with(|| written.clone()) == &written, "burst {burst}");
            std::mem::drop(from);
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}
