//! Packets that a function makes have the time of their cause.
//!
//! So a capture of the output is in order, as the input was.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::icmp::IcmpErrors;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Function, GraphBuilder, Input, Node, Operator, Poll, Shape, Turn,
    Verdict, Worker, compose,
};
use netbricks_stream::{PacketizeConfig, Replace, StreamOperator, StreamWorker};
use netbricks_testkit::build::ethernet;

const MILLISECOND: u64 = 1_000_000;

/// Frames and the times at which they arrive, as in a capture.
///
/// A batch holds the frames of one millisecond, and the graph's clock is at the beginning of that.
struct Capture(VecDeque<(u64, Vec<u8>)>);

impl Node for Capture {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let Some((first, _)) = self.0.front() else { return Poll::Done };
        if !cx.receiving().approach(*first) {
            return Poll::Busy;
        }
        let begin = first / MILLISECOND * MILLISECOND;
        cx.receiving().advance(begin);
        let edge = (begin + MILLISECOND).min(cx.deadline());
        while batch.len() < cx.burst()
            && let Some((time, frame)) = self.0.pop_front_if(|(time, _)| *time < edge)
        {
            let mut packet = cx.pool().packet(&frame).expect("there are enough");
            packet.set_received_at(time);
            assert!(batch.push(packet).is_ok());
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape { kind: "capture".into(), ..Shape::receive() }
    }
}

/// Times and bytes.
type Frames = Vec<(u64, Vec<u8>)>;

/// A capture of the output: times and frames.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<Frames>>);

impl Node for Written {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let now = cx.now();
        let packets = batch.drain().map(|packet| (now.max(packet.received_at()), packet.data().to_vec()));
        self.0.borrow_mut().extend(packets);
    }
    fn shape(&self) -> Shape {
        Shape { kind: "written".into(), ..Shape::transmit() }
    }
}

/// The output on [`Edge::OUT`] and on [`Edge::REPLY`], with batches of at most `burst` packets.
fn run(frames: &[(u64, Vec<u8>)], burst: usize, blueprint: &Blueprint) -> [Vec<(u64, Vec<u8>)>; 2] {
    let pool = Pool::builder().frames(2_048).build().expect("so little memory is there");
    let worker = Worker::new(0, 1, pool.clone());
    let mut builder = GraphBuilder::new("test");
    let written = [Written::default(), Written::default()];
    let mut add = |name, node| builder.add(name, node).expect("it has a name of its own");
    let capture = add("capture", Box::new(Capture(frames.iter().cloned().collect())) as Box<dyn Node>);
    let [out, replies] =
        [("out", 0), ("replies", 1)].map(|(name, at)| add(name, Box::new(written[at].clone())));
    let node = builder.add_function("function", blueprint, &worker).expect("it is built");
    for (from, edge, to) in [(capture, Edge::OUT, node), (node, Edge::OUT, out), (node, Edge::REPLY, replies)]
    {
        builder.connect(from, edge, to, 0).expect("both are there");
    }
    let mut graph = builder.build(pool).expect("all is connected");
    graph.set_burst(burst);
    while !matches!(graph.turns(0, 1).0, Turn::Done) {}
    assert!(graph.totals().is_conserved());
    written.map(|written| written.0.take())
}

fn in_order(written: &[(u64, Vec<u8>)]) -> bool {
    written.is_sorted_by_key(|(time, _)| *time)
}

fn rewritten(input: Input, worker: &Worker) -> impl Function {
    let replace = Replace::new(b"cat", b"a very long elephant", None).expect("both strings are short");
    let streams = worker.packetizer("streams", PacketizeConfig::default(), replace);
    worker.invoke_every("beacon", 700_000, |event| {
        assert!(event.inject(Edge::OUT, 60, |frame| frame.fill(0xee)));
    });
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .parse::<Tcp>()
        .or(Edge::OUT)
        .packetize(&streams)
        .done()
}

/// Segments of a stream with other packets between them, several a millisecond, and events between those.
#[test]
fn segments_have_the_time_of_what_came_and_events_their_own() {
    let tcp = |back: bool| {
        let addresses = if back { ["10.0.0.2", "10.0.0.1"] } else { ["10.0.0.1", "10.0.0.2"] };
        let ports = if back { (80, 1_000) } else { (1_000, 80) };
        ethernet().ipv4(addresses[0], addresses[1]).tcp(ports.0, ports.1).window(60_000)
    };
    let mut frames = vec![
        tcp(false).sequence(99).flags(flags::SYN).build(),
        tcp(true).sequence(499).ack(100).flags(flags::SYN | flags::ACK).build(),
        tcp(false).sequence(100).ack(500).build(),
    ];
    let bytes = b"cat and cat, ".repeat(20);
    for turn in 0..40 {
        let data = tcp(true).sequence(500 + turn * bytes.len() as u32).ack(100);
        frames.push(data.payload(&bytes).build());
    }
    let mut frames: Vec<Vec<u8>> = frames.into_iter().map(|frame| frame.expect("it fits")).collect();
    for at in (3..frames.len()).step_by(3) {
        frames.insert(at, ethernet().ipv4("10.0.0.3", "10.0.0.4").udp(1, 2).build().expect("it fits"));
    }
    let time = |at: usize| 5 * MILLISECOND + 1 + at as u64 * 130_007;
    let frames: Vec<(u64, Vec<u8>)> = (0..).map(time).zip(frames).collect();
    for burst in [1, 7, 32] {
        let blueprint = Blueprint::new(|worker| compose(worker, |input| rewritten(input, worker)));
        let [out, _] = run(&frames, burst, &blueprint);
        assert!(in_order(&out), "at {burst} a batch");
        assert!(out.len() > frames.len() + 5, "{}", out.len());
        for (written, frame) in &out {
            let is_beacon = frame.iter().all(|byte| *byte == 0xee);
            let came = frames.iter().any(|(time, _)| time == written);
            assert_eq!(came, !is_beacon, "{written} at {burst} a batch");
        }
    }
}

fn answered(input: Input) -> impl Function {
    let mut errors = IcmpErrors::new(Some([10, 0, 0, 9].into()), None, 1_000_000);
    input
        .parse::<Link>()
        .parse::<Ip>()
        .decide(move |p| {
            let ttl = p.header().ttl();
            if ttl == 1 {
                assert!(errors.answer(p, netbricks_core::icmp::IcmpError::TimeExceeded));
                return Err(Verdict::drop(DropReason::TtlExpired));
            }
            assert!(ttl > 2 || p.reply(Edge::REPLY, 60, |frame, p| frame[22] = p.header().ttl()));
            Ok(())
        })
        .done()
}

#[test]
fn answers_have_the_time_of_what_they_answer() {
    let frames: Vec<(u64, Vec<u8>)> = (0..60u64)
        .map(|at| {
            let ttl = 1 + (at % 3) as u8;
            let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(ttl).udp(1, 2);
            (MILLISECOND * 2 + at * 90_001, packet.build().expect("it fits"))
        })
        .collect();
    let expected: Vec<u64> = (0..60).filter(|at| at % 3 < 2).map(|at| frames[at].0).collect();
    for burst in [1, 7, 32] {
        let [_, replies] = run(&frames, burst, &Blueprint::new(|worker| compose(worker, answered)));
        let times: Vec<u64> = replies.iter().map(|(time, _)| *time).collect();
        assert_eq!(times, expected, "at {burst} a batch");
    }
}
