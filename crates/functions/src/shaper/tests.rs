use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::buffer::Pool;
use netbricks_core::{
    Blueprint, DropReason, Graph, GraphBuilder, HandlerKind, Role, Settings, Shape, Turn, read_settings,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{BURSTS, Clocked, kinds, run_node};
use proptest::prelude::*;

use super::*;
use crate::policer::{Algorithm, Colour, Meter};
use crate::tokens::TokenRate;

const MS: u64 = 1_000_000;

fn settings(text: &str) -> ShaperConfig {
    let table = toml::de::DeTable::parse(text).unwrap();
    read_settings(table, None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn make(
    text: &str,
) -> impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + use<> + 'static {
    let config = settings(text);
    move |worker| node(&config, worker)
}

/// A frame of `bytes` bytes of a flow, with a number.
fn frame(flow: u8, bytes: usize, number: u32) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &[0; 1_600]].concat();
    let udp = ethernet().ipv4(format!("10.0.0.{flow}").as_str(), "10.9.9.9").ecn(flow % 2).udp(1_000, 53);
    udp.payload(&payload[..bytes - 42]).build().unwrap()
}

/// Frames with their times of arrival (ns), as a replayed capture brings them: in batches of one ms.
struct Replay(std::vec::IntoIter<(u64, Vec<u8>)>, Option<(u64, Vec<u8>)>);

impl Node for Replay {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let Some((time, _)) = &self.1 else { return Poll::Done };
        let begin = time - time % MS;
        cx.receiving().advance(begin);
        while batch.len() < cx.burst()
            && let Some((time, frame)) = self.1.take_if(|(time, _)| *time < begin + MS)
        {
            let mut packet = cx.pool().packet(&frame).unwrap();
            packet.set_received_at(time);
            assert!(batch.push(packet).is_ok());
            self.1 = self.0.next();
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Notes what leaves, and when.
#[derive(Clone, Default)]
struct Departures(Rc<RefCell<Timed>>);

/// Frames with their times (ns).
type Timed = Vec<(u64, Vec<u8>)>;

impl Node for Departures {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        assert_eq!(self.shape().role, Role::Transmit);
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let left = batch.drain().map(|packet| (packet.received_at(), packet.data().to_vec()));
        self.0.borrow_mut().extend(left);
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The departures of these arrivals, and the graph after them, at one batch size.
fn replayed_by(text: &str, arrivals: &[(u64, Vec<u8>)], burst: usize) -> (Timed, Graph) {
    let pool = Pool::builder().frames(4_096).build().unwrap();
    let worker = Worker::new(0, 1, pool.clone());
    let mut builder = GraphBuilder::new("test");
    let mut arrivals = Timed::from(arrivals).into_iter();
    let first = arrivals.next();
    let source = builder.add("source", Box::new(Replay(arrivals, first))).unwrap();
    let shaper = builder.add_function("shaper", &Blueprint::new(make(text)), &worker).unwrap();
    let left = Departures::default();
    let sink = builder.add("sink", Box::new(left.clone())).unwrap();
    builder.connect(source, Edge::OUT, shaper, 0).unwrap();
    builder.connect(shaper, Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool).unwrap();
    graph.set_burst(burst);
    let mut now = 0;
    loop {
        match graph.turn(now) {
            Turn::Done => break,
            Turn::Idle(Some(next)) => now = now.max(next),
            Turn::Idle(None) | Turn::Moved(_) => {}
        }
    }
    let totals = graph.totals();
    assert!(totals.is_conserved(), "{totals:?}");
    assert_eq!(graph.unbalanced(), Vec::<String>::new());
    assert!(graph.take_panics().is_empty());
    let left = left.0.take();
    (left, graph)
}

/// As [`replayed_by`], at every batch size, which must agree.
fn replayed(text: &str, arrivals: &[(u64, Vec<u8>)]) -> (Timed, Graph) {
    let [mut one, more @ ..] = BURSTS.map(|burst| replayed_by(text, arrivals, burst));
    for (other, burst) in more.into_iter().zip(&BURSTS[1..]) {
        assert!(one.0 == other.0, "departures depend on the batch size ({burst})");
        assert_eq!(one.1.totals().drops, { other.1 }.totals().drops);
    }
    one.0.sort_by_key(|(time, _)| *time);
    one
}

fn dropped(graph: &mut Graph, reason: DropReason) -> u64 {
    graph.totals().drops.of(reason).packets
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A meter of the same rate and burst checks the bound of a token bucket over every interval.
    ///
    /// And no packet waits longer than that bound demands.
    #[test]
    fn packets_leave_as_soon_as_the_rate_and_the_burst_allow_it(
        arrivals in proptest::collection::vec((0u64..1_500_000, 60usize..1_500), 1..200),
        rate in 1_000_000u64..20_000_000,
        burst in 1_600u64..20_000,
        discipline in prop_oneof![Just("fifo"), Just("fq")],
    ) {
        let mut time = 5 * MS + 17;
        let mut frames = Vec::new();
        for (place, (wait, bytes)) in arrivals.iter().enumerate() {
            // Bursts of packets at one time, and pauses.
            time += if wait % 3 == 0 { wait * 4 } else { wait / 100 };
            frames.push((time, frame((place % 5) as u8, *bytes, place as u32)));
        }
        let text = format!("rate = \"{rate} bit/s\"\nburst = {burst}\nqueue = 4_000\ndiscipline = \"{discipline}\"");
        let (left, _) = replayed(&text, &frames);
        prop_assert_eq!(left.len(), frames.len());
        let cir = TokenRate::bits(rate);
        let meter = Meter { algorithm: Algorithm::SingleRate, cir, cbs: burst, other_rate: cir, other_size: 0 };
        let mut buckets = meter.full(0);
        for (place, (time, packet)) in left.iter().enumerate() {
            let bytes = packet.len() as u64;
            let (came, _) = frames[number(packet) as usize];
            prop_assert!(*time >= came);
            if *time > came {
                let mut earlier = buckets;
                let colour = meter.colour(&mut earlier, time - 1, bytes, Colour::Green);
                prop_assert_eq!(colour, Colour::Red, "packet {} could have left at {}", place, time - 1);
            }
            prop_assert_eq!(meter.colour(&mut buckets, *time, bytes, Colour::Green), Colour::Green);
            if discipline == "fifo" {
                prop_assert_eq!(number(packet) as usize, place, "in the order of arrival");
            }
        }
    }
}

#[test]
fn a_full_queue_drops_its_tail_and_a_full_fair_queue_the_fattest_flows_head() {
    // 100 packets of 1,000 bytes at once, and one of each of three other flows. The burst has room for two.
    let mut arrivals: Vec<_> = (0..100).map(|place| (MS, frame(1, 1_000, place))).collect();
    arrivals.extend((2..5).map(|flow| (MS + 1, frame(flow, 1_000, 100 + u32::from(flow)))));
    let text = "rate = \"8 Mbit/s\"\nburst = 2_000\nqueue = 10\n";
    let (left, mut graph) = replayed(text, &arrivals);
    // Two at once, one whose tokens are reserved, and ten that wait.
    let numbers: Vec<u32> = left.iter().map(|(_, packet)| number(packet)).collect();
    assert_eq!(numbers, (0..13).collect::<Vec<_>>());
    assert_eq!(dropped(&mut graph, DropReason::QueueFull), 90);
    assert_eq!(left.iter().map(|(time, _)| *time).collect::<Vec<_>>()[..4], [MS, MS, 2 * MS, 3 * MS]);

    let (left, mut graph) = replayed(&format!("{text}discipline = \"fq\""), &arrivals);
    let numbers: Vec<u32> = left.iter().map(|(_, packet)| number(packet)).collect();
    for flow in [102, 103, 104] {
        let place = numbers.iter().position(|number| *number == flow).expect("a thin flow loses nothing");
        assert!(place <= 6, "and waits for one turn of the others at most: {numbers:?}");
    }
    assert!(numbers.contains(&99), "the newest of the fat flow stays: {numbers:?}");
    assert_eq!(left.len() as u64 + dropped(&mut graph, DropReason::QueueFull), 103);

    let (left, _) = replayed(&format!("{text}queue_bytes = 5_500"), &arrivals);
    assert_eq!(left.len(), 2 + 1 + 5);
}

#[test]
fn flows_get_equal_shares_of_bytes_whatever_they_send() {
    // For a second, flow 1 sends ten times as many bytes as flow 2, in large packets. Flow 3 sends little.
    let mut arrivals = Vec::new();
    for step in 0..1_000u64 {
        let at = MS + step * MS;
        arrivals.extend((0..10).map(|n| (at + n, frame(1, 1_500, step as u32))));
        arrivals.extend((0..10).map(|n| (at + 20 + n, frame(2, 150, step as u32))));
        if step % 100 == 0 {
            arrivals.push((at + 40, frame(3, 100, step as u32)));
        }
    }
    arrivals.sort_by_key(|(time, _)| *time);
    let share = |left: &[(u64, Vec<u8>)], flow: u8| -> usize {
        let until = 1_000 * MS;
        left.iter().filter(|(time, packet)| *time < until && packet[29] == flow).map(|(_, p)| p.len()).sum()
    };
    // 8 Mbit/s are 1,000 bytes in each ms; flow 2 sends 1,500.
    let text = "rate = \"8 Mbit/s\"\nburst = 3_000\nqueue = 500\n";
    let (left, _) = replayed(&format!("{text}discipline = \"fq\"\nflows = 4_096"), &arrivals);
    let (one, two) = (share(&left, 1) as f64, share(&left, 2) as f64);
    assert!((one / two - 1.0).abs() < 0.02, "{one} and {two} bytes");
    let waits: Vec<u64> = left
        .iter()
        .filter(|(_, packet)| packet[29] == 3)
        .map(|(time, packet)| time - (MS + u64::from(number(packet)) * MS + 40))
        .collect();
    // At first all three flows are new, and have a turn each. Then it waits for the packet that is on its way.
    assert!(
        waits.len() == 10 && waits[0] < 5 * MS && waits[1..].iter().all(|wait| *wait <= 2 * MS),
        "{waits:?}"
    );

    // A single queue shares by what is sent.
    let (left, _) = replayed(&format!("{text}discipline = \"fifo\""), &arrivals);
    let (one, two) = (share(&left, 1) as f64, share(&left, 2) as f64);
    assert!(one / two > 5.0, "{one} and {two} bytes");
}

#[test]
fn codel_drops_or_marks_when_packets_wait_too_long_for_too_long() {
    // Twice the rate for a second. Odd flows allow marks.
    let sent = |flow: u8| (0..2_000u64).map(move |n| (MS + n * MS / 2, frame(flow, 1_000, n as u32)));
    let text = "rate = \"8 Mbit/s\"\nburst = 3_000\nqueue = 3_000\n";
    for (discipline, flow) in [("codel", 2), ("codel", 1), ("fq-codel", 2), ("fq-codel", 1)] {
        let arrivals: Vec<_> = sent(flow).collect();
        let (left, mut graph) = replayed(&format!("{text}discipline = \"{discipline}\""), &arrivals);
        let marked = left.iter().filter(|(_, packet)| packet[15] & 3 == 3).count();
        let congested = dropped(&mut graph, DropReason::Congested) as usize;
        if flow == 1 {
            assert_eq!((left.len(), congested), (2_000, 0), "a mark takes the place of a drop");
            assert!(left.iter().all(|(_, packet)| netbricks_testkit::checksums::wrong(packet).is_empty()));
        } else {
            assert_eq!(left.len() + congested, 2_000);
            assert_eq!(marked, 0);
        }
        // The first packet that waits 5 ms leaves after some 10 ms; the first signal is 100 ms later. Within two
        // seconds (1.9 with drops) come the n for which the sum of 100 ms / sqrt(i) is no more, some 90.
        let signals = marked + congested;
        assert!((60..=120).contains(&signals), "{discipline}: {signals}");
        if flow == 1 {
            let first = left.iter().find(|(_, packet)| packet[15] & 3 == 3).unwrap().0;
            assert!((105 * MS..125 * MS).contains(&first), "{first}");
        }
    }
    let (left, mut graph) =
        replayed(&format!("{text}discipline = \"codel\"\necn = false"), &sent(1).collect::<Vec<_>>());
    assert_eq!(left.len() as u64 + dropped(&mut graph, DropReason::Congested), 2_000);
    assert!(left.len() < 2_000);
    // A load just below the rate has no standing queue: nothing is dropped.
    let calm: Vec<_> = (0..1_000u64).map(|n| (MS + n * MS * 101 / 100, frame(2, 1_000, n as u32))).collect();
    let (left, _) = replayed(&format!("{text}discipline = \"fq-codel\""), &calm);
    assert_eq!(left.len(), 1_000);
}

#[test]
fn packets_leave_by_the_clock_and_rates_change_live() {
    let mut test = Clocked::of_node(make("rate = \"8 Mbit/s\"\nburst = 1_000\nqueue = 50"));
    let frames = |count| (0..count).map(|n| frame(1, 1_000, n)).collect::<Vec<_>>();
    let report = test.send(frames(20));
    assert_eq!((report.out.len(), test.call("queued", "")), (1, "18 18000".into()));
    let ms = std::time::Duration::from_millis;
    assert_eq!(test.advance(ms(5)).out.len(), 5);
    assert_eq!(test.advance(std::time::Duration::from_nanos(999_999)).out.len(), 0);
    assert_eq!(test.advance(std::time::Duration::from_nanos(1)).out.len(), 1);
    assert_eq!(test.call("set", "rate 80 Mbit/s"), "done");
    assert_eq!(test.call("pace", ""), "rate 80 Mbit/s, burst 1000 B");
    // The packet whose tokens are reserved keeps its time, which then counts at the new rate: a second one leaves with
    // it. Ten more have their tokens in the next millisecond.
    assert_eq!(test.advance(ms(1)).out.len(), 2);
    assert_eq!(test.advance(ms(1)).out.len(), 10);
    assert_eq!(test.send(frames(3)).out.len(), 0);
    let report = test.finish();
    assert_eq!(report.totals.sent.packets, 23, "what waits leaves at the end");
    let mut test = Clocked::of_node(make("rate = \"1 kpps\"\nburst = 2\noverhead = 24"));
    assert_eq!(test.send(frames(10)).out.len(), 2);
    assert_eq!(test.advance(ms(3)).out.len(), 3);
    assert_eq!(test.call("left_bytes.occupancy", ""), format!("{} {}", 5 * 1_024, u64::MAX));
    test.finish();

    let pool = Pool::builder().frames(16).build().unwrap();
    let mut node = make("rate = \"1 Mbit/s\"")(&Worker::new(0, 1, pool)).unwrap();
    for wrong in ["", "rate", "rate 5 kpps", "rate 0 bit/s", "burst 0", "burst -1", "queue 5"] {
        assert!(node.call_as(HandlerKind::Write, "set", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn workers_share_the_rate_and_the_bucket_moves_to_another_node() {
    let text = "rate = \"8 Mbit/s\"\nburst = 3_000";
    let pool = Pool::builder().frames(64).build().unwrap();
    let blueprint = Blueprint::new(make(text));
    let mut nodes: Vec<_> =
        (0..2).map(|index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap()).collect();
    let mut cx = netbricks_core::DetachedContext::new(pool.clone());
    cx.advance(MS);
    let mut leaves = |node: &mut Box<dyn Node>, at: u64| {
        cx.advance(at);
        let mut batch = Batch::new();
        assert!(batch.push(pool.packet(&frame(1, 1_000, 0)).unwrap()).is_ok());
        node.process(0, &mut batch, &mut cx);
        let polled = node.poll(&mut Batch::new(), &mut cx);
        (batch.len(), polled)
    };
    for place in [0, 1, 0] {
        assert_eq!(leaves(&mut nodes[place], MS), (1, Poll::Idle));
    }
    assert_eq!(leaves(&mut nodes[1], MS), (0, Poll::Until(2 * MS)));
    assert_eq!(leaves(&mut nodes[0], MS), (0, Poll::Until(3 * MS)), "they reserve in order");
    let image = nodes[0].export().into_iter().find(|(name, _)| name == "bucket").unwrap().1;
    let mut other = make(text)(&Worker::new(0, 1, pool.clone())).unwrap();
    for at in 0..image.len() {
        let mut broken = image.clone();
        broken[at] ^= 0x10;
        assert!(other.import("bucket", &broken, 0).is_err(), "byte {at}");
    }
    other.import("bucket", &image, 0).unwrap();
    assert_eq!(leaves(&mut other, MS), (0, Poll::Until(4 * MS)));
}

#[test]
fn every_kind_leaves_as_it_came() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for discipline in ["fifo", "codel"] {
        let text = format!(
            "rate = \"1 Mbit/s\"\ndiscipline = \"{discipline}\"\ntarget = \"1 s\"\ninterval = \"10 s\""
        );
        assert_eq!(run_node(make(&text), frames.clone()).out, frames);
    }
    let mut left = run_node(make("rate = \"1 Mbit/s\"\ndiscipline = \"fq\"\nflows = 5"), frames.clone()).out;
    left.sort();
    let mut came = frames;
    came.sort();
    assert_eq!(left, came);
}

#[test]
fn settings_that_do_not_do_are_named() {
    let refused = |text: &str| {
        let config: ShaperConfig = toml::from_str(&format!("rate = \"1 Mbit/s\"\n{text}")).unwrap();
        config.check().unwrap_err().to_string()
    };
    assert_eq!(refused("queue = 0"), "`queue` must be 1 to 1,048,576 packets, found 0");
    assert_eq!(refused("flows = 70_000"), "`flows` must be 1 to 65,536 queues, found 70000");
    assert_eq!(
        refused("target = \"200 ms\""),
        "`target` must be shorter than `interval`, 100 ms, found \"200 ms\""
    );
    assert!(refused("burst = 0").starts_with("`burst` must be 1"));
    assert!(refused("quantum = 10").contains("256 B"));
    assert!(refused("queue_bytes = 0").contains("1 byte"));
    assert!(refused("interval = \"11 s\"").contains("10 s"));
    assert!(toml::from_str::<ShaperConfig>("rate = \"1 Mbit/s\"\ndiscipline = \"red\"").is_err());
    let small = settings("rate = \"1 Gbit/s\"\ndiscipline = \"codel\"\nqueue_bytes = \"64 KiB\"");
    assert!(small.warnings()[0].problem.contains("CoDel never drops"));
}
