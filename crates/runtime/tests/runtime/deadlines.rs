//! No batch spans the deadline of an event, on the receiving worker and on the worker that gets the packets.
//!
//! Deadlines and arrivals are compared to the nanosecond.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_buffer::Batch;
use netbricks_core::packet::build::ethernet;
use netbricks_core::{
    Context, Edge, Graph, GraphBuilder, Node, Operator, Poll, Shape, Shuffle, ShuffleConfig, Turn, Worker,
    WorkerGroup, compose,
};

use crate::shuffle::{NUMBER, SMALL, pool};

const MILLISECOND: u64 = 1_000_000;
const PERIOD: u64 = 333_333;
const FLOWS: u16 = 16;
const PACKETS: u64 = 2_000;

/// Packets of all flows in turn, a step apart, in batches as a port makes them from a capture.
///
/// They are numbered within their flows.
pub(crate) struct Capture {
    frames: Vec<Vec<u8>>,
    begin: u64,
    step: u64,
    packets: u64,
    next: u64,
    current: u64,
}

impl Capture {
    pub(crate) fn new(flows: u16, packets: u64, (begin, step): (u64, u64)) -> Self {
        let frame = |flow: u16| {
            let ip = ethernet().ipv4("10.0.0.1", "10.9.8.7");
            ip.udp(1_000 + flow, 53).payload(&[0; 8]).build().unwrap()
        };
        Self { frames: (0..flows).map(frame).collect(), begin, step, packets, next: 0, current: 0 }
    }
}

impl Node for Capture {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while self.next < self.packets && batch.len() < cx.burst() {
            let time = self.begin + self.next * self.step;
            if time >= cx.deadline().min(self.current + MILLISECOND) {
                if !batch.is_empty() || !cx.receiving().approach(time) {
                    return Poll::Busy;
                }
                self.current = time - time % MILLISECOND;
                cx.receiving().advance(self.current);
            }
            let (number, flow) =
                (self.next / self.frames.len() as u64, self.next as usize % self.frames.len());
            let mut packet = cx.pool().packet(&self.frames[flow]).unwrap();
            packet.data_mut()[NUMBER].copy_from_slice(&number.to_be_bytes());
            packet.set_received_at(time);
            batch.push(packet).unwrap();
            self.next += 1;
        }
        if self.next == self.packets { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The events of a worker, in order: packets by their arrival, timed events by their deadline, at which they
/// ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saw {
    Packet(u64),
    Event(u64),
}

type Log = Rc<RefCell<Vec<Saw>>>;

struct Witness(Log);

impl Node for Witness {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| Saw::Packet(packet.received_at())));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// A worker's graph: the first worker replays, and all have a function behind a shuffle.
///
/// The function is called every period, and once in addition.
fn part(worker: &Worker, shuffle: &Shuffle, (begin, step, once): (u64, u64, u64), log: &Log) -> GraphBuilder {
    let mut graph = GraphBuilder::new("test");
    let shuffle = graph.add("shuffle", shuffle.node(worker).unwrap()).unwrap();
    let ticking = compose(worker, |input| {
        let (every, at) = (log.clone(), log.clone());
        worker.invoke_every("every", PERIOD, move |event| {
            assert_eq!(event.due(), event.now(), "it runs on time");
            every.borrow_mut().push(Saw::Event(event.due()));
        });
        worker.invoke_at("at", once, move |event| at.borrow_mut().push(Saw::Event(event.due())));
        input.done()
    });
    let ticking = graph.add("ticking", ticking.unwrap()).unwrap();
    let out = graph.add("out", Box::new(Witness(log.clone()))).unwrap();
    graph.connect(shuffle, Edge::OUT, ticking, 0).unwrap();
    graph.connect(ticking, Edge::OUT, out, 0).unwrap();
    if worker.index() == 0 {
        let capture = Capture::new(FLOWS, PACKETS, (begin, step));
        let capture = graph.add("capture", Box::new(capture)).unwrap();
        graph.connect(capture, Edge::OUT, shuffle, 0).unwrap();
    }
    graph
}

fn run(workers: usize, burst: usize, times: (u64, u64, u64)) -> Vec<Vec<Saw>> {
    let (pool, group) = (pool(), WorkerGroup::new(workers));
    let shuffle = Shuffle::new(ShuffleConfig { ring: 256, ..SMALL });
    let logs: Vec<Log> = (0..workers).map(|_| Log::default()).collect();
    let mut graphs: Vec<Graph> = (0..workers)
        .map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let mut graph = part(&worker, &shuffle, times, &logs[index]).build(pool.clone()).unwrap();
            graph.set_burst(burst);
            graph.follow_arrivals(true);
            graph
        })
        .collect();
    let mut done = vec![false; workers];
    for turn in 0..1_000_000 {
        // The others are delayed, so that there is more than one time in their rings.
        let at = if turn % 64 < 32 { 0 } else { turn % workers };
        done[at] = done[at] || graphs[at].turn(0) == Turn::Done;
        if done.iter().all(|done| *done) {
            break;
        }
    }
    assert!(done.iter().all(|done| *done), "they come to an end");
    for graph in &graphs {
        assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
        assert_eq!(graph.totals().drops.total().packets, 0);
    }
    logs.iter().map(|log| log.borrow().clone()).collect()
}

#[test]
fn events_come_between_the_same_packets_behind_a_ring_as_before_it() {
    // The second and third of all packets on either side of `once`, within a millisecond; arrivals at the
    // same nanosecond as events; holes of several milliseconds; and time that begins at 0.
    let long_ago = 1_700_000_000_123_456_789;
    for (begin, step) in [(long_ago, 97_531), (long_ago, PERIOD), (long_ago, 7_100_003), (0, 97_531)] {
        let once = begin + step + step / 2;
        for workers in [1, 2] {
            for burst in [1, 32, 256] {
                let at = format!("{workers} workers, bursts of {burst}, from {begin} in steps of {step}");
                let mut arrivals = Vec::new();
                for (worker, saw) in run(workers, burst, (begin, step, once)).into_iter().enumerate() {
                    let packets = saw.iter().filter_map(|saw| match saw {
                        Saw::Packet(arrived) => Some(*arrived),
                        Saw::Event(_) => None,
                    });
                    let packets: Vec<u64> = packets.collect();
                    assert!(packets.len() > 100, "{at}: both have work");
                    // Periods begin with the first packet, handed over or not.
                    let mut due = PERIOD + if worker == 0 { begin } else { packets[0] };
                    let mut at_once = Some(once);
                    let mut expected = Vec::new();
                    for arrived in packets.iter().copied() {
                        loop {
                            let event = due.min(at_once.unwrap_or(due));
                            if event > arrived {
                                break;
                            }
                            expected.push(Saw::Event(event));
                            match event == due {
                                true => due += PERIOD,
                                false => at_once = None,
                            }
                        }
                        expected.push(Saw::Packet(arrived));
                    }
                    let differs = saw.iter().zip(&expected).position(|(saw, expected)| saw != expected);
                    assert_eq!(
                        differs,
                        None,
                        "{at}: {:?}",
                        differs.map(|place| (saw[place], expected[place]))
                    );
                    // The first worker's time moves on with the packets that it hands over.
                    let rest = &saw[expected.len()..];
                    assert!(rest.iter().all(|saw| matches!(saw, Saw::Event(_))), "{at}: {rest:?}");
                    arrivals.extend(packets);
                }
                arrivals.sort_unstable();
                let expected: Vec<u64> = (0..PACKETS).map(|number| begin + number * step).collect();
                assert_eq!(arrivals, expected, "{at}");
            }
        }
    }
}
