//! Replayed packets carry their time to the worker that they are given to.
//!
//! The packets that this worker receives itself do not change that time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use netbricks_buffer::Batch;
use netbricks_core::packet::build::ethernet;
use netbricks_core::{
    Context, Edge, GraphBuilder, GraphError, Node, Poll, Shape, Shuffle, ShuffleConfig, compose,
};
use netbricks_runtime::{Clock, Factory, Runtime};

use crate::nodes::{Sink, config, pool};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// The beginning of the captures.
const BEGIN: u64 = 1_700_000_000 * SECOND;
const FLOWS: u16 = 64;
/// The length of the longer capture, and its ticks a second.
///
/// At each tick every flow has a packet.
const SECONDS: u64 = 60;
const TICKS: u64 = 5;
/// Packets of the shorter capture, all at its beginning.
const SHORTER: u64 = 500;

/// Replays packets of all flows at every tick.
struct Replay {
    frames: Vec<Vec<u8>>,
    next: u64,
    packets: u64,
    /// ns between two rounds of the flows.
    step: u64,
    /// It begins when the first flag is set.
    ///
    /// When it has sent everything, it waits for the second and sets the third.
    begins: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Node for Replay {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        if !self.begins.load(Ordering::Acquire) {
            return Poll::Idle;
        }
        let flows = self.frames.len() as u64;
        while self.next < self.packets && batch.len() < cx.burst() {
            let time = BEGIN + self.next / flows * self.step;
            if batch.is_empty() && !cx.receiving().approach(time)
                || batch.get(0).is_some_and(|p| p.received_at() < time)
            {
                return Poll::Busy;
            }
            cx.receiving().advance(time);
            let Some(mut packet) = cx.pool().packet(&self.frames[(self.next % flows) as usize]) else {
                return Poll::Busy;
            };
            packet.set_received_at(time);
            self.next += 1;
            batch.push(packet).unwrap();
        }
        match self.ends.load(Ordering::Acquire) {
            _ if self.next < self.packets => Poll::Busy,
            false => Poll::Idle,
            true => {
                self.ended.store(true, Ordering::Release);
                Poll::Done
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The events of a worker, in order.
///
/// A packet has its time of arrival and the time at which it was processed; an event has its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saw {
    Packet { arrived: u64, now: u64 },
    Event { due: u64, now: u64 },
}

type Log = Arc<Mutex<Vec<Saw>>>;

/// Sends everything, and records the times.
struct Witness {
    log: Log,
    left: Arc<Mutex<u64>>,
    all: Arc<AtomicBool>,
}

impl Node for Witness {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut left = self.left.lock().unwrap();
        let mut log = self.log.lock().unwrap();
        for packet in batch.drain() {
            log.push(Saw::Packet { arrived: packet.received_at(), now: cx.now() });
            *left -= 1;
        }
        self.all.store(*left == 0, Ordering::Release);
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The end of the shorter capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Before the longer one begins.
    Before,
    /// After all packets of the longer one have been processed.
    After,
}

/// Runs both captures, and answers the records of each worker for the longer one.
///
/// The longer capture goes through a shuffle, on the first worker. The shorter one does not, on the last
/// worker.
fn run(workers: usize, ends: Ends) -> Vec<Vec<Saw>> {
    let logs: Vec<Log> = (0..workers).map(|_| Log::default()).collect();
    let packets = u64::from(FLOWS) * SECONDS * TICKS;
    let (left, all) = (Arc::new(Mutex::new(packets)), Arc::new(AtomicBool::new(false)));
    let (set, ended) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let shuffle = Shuffle::new(ShuffleConfig { ring: 256, ..ShuffleConfig::default() });
    let runtime = Runtime::start(config(pool(), workers).clock(Clock::Driven), |worker| {
        let (shuffle, log) = (shuffle.clone(), logs[worker].clone());
        let (left, all, set, ended) = (left.clone(), all.clone(), set.clone(), ended.clone());
        Factory::new(move |context| -> Result<_, GraphError> {
            let failed = |error| GraphError::Node { name: "node".into(), error };
            let mut graph = GraphBuilder::new("test");
            let frame = |flow: u16| {
                ethernet()
                    .ipv4("10.0.0.1", "10.9.8.7")
                    .udp(1_000 + flow, 53)
                    .payload(&[0; 18])
                    .build()
                    .unwrap()
            };
            let shuffled = graph.add("shuffle", shuffle.node(context.worker()).map_err(failed)?)?;
            let ticking = compose(context.worker(), |input| {
                let log = log.clone();
                context.worker().invoke_every("tick", SECOND, move |event| {
                    log.lock().unwrap().push(Saw::Event { due: event.due(), now: event.now() });
                });
                netbricks_core::Operator::done(input)
            });
            let ticking = graph.add("ticking", ticking.map_err(failed)?)?;
            let out = graph.add("out", Box::new(Witness { log, left, all: all.clone() }))?;
            graph.connect(shuffled, Edge::OUT, ticking, 0)?;
            graph.connect(ticking, Edge::OUT, out, 0)?;
            if worker == 0 {
                let longer = graph.add(
                    "longer",
                    Box::new(Replay {
                        frames: (0..FLOWS).map(frame).collect(),
                        next: 0,
                        packets,
                        step: SECOND / TICKS,
                        begins: if ends == Ends::Before { ended.clone() } else { set.clone() },
                        ends: set.clone(),
                        ended: Arc::default(),
                    }),
                )?;
                graph.connect(longer, Edge::OUT, shuffled, 0)?;
            }
            if worker + 1 == workers {
                let shorter = graph.add(
                    "shorter",
                    Box::new(Replay {
                        frames: vec![frame(0)],
                        next: 0,
                        packets: SHORTER,
                        step: 0,
                        begins: set.clone(),
                        ends: if ends == Ends::Before { set } else { all },
                        ended,
                    }),
                )?;
                let away = graph.add("away", Box::new(Sink))?;
                graph.connect(shorter, Edge::OUT, away, 0)?;
            }
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    let report = runtime.wait();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!(report.totals.received.packets, packets + SHORTER);
    assert_eq!(report.totals.sent.packets, packets + SHORTER);
    logs.iter().map(|log| log.lock().unwrap().clone()).collect()
}

#[test]
fn a_worker_with_a_source_of_its_own_lives_in_the_time_of_what_others_give_it() {
    let events = |saw: &[Saw]| saw.iter().filter(|saw| matches!(saw, Saw::Event { .. })).count();
    let expected = run(1, Ends::Before);
    assert_eq!(events(&expected[0]) as u64, SECONDS - 1, "one a second after the first packet");
    for ends in [Ends::Before, Ends::After] {
        for workers in [1, 2, 3] {
            let at = format!("{workers} workers, the shorter one ends {ends:?}");
            let mut times: BTreeMap<u64, u64> = BTreeMap::new();
            for saw in run(workers, ends) {
                assert!(events(&saw) == events(&expected[0]), "{at}: {} events", events(&saw));
                let mut last = BEGIN;
                for saw in &saw {
                    match *saw {
                        Saw::Packet { arrived, now } => {
                            assert_eq!(now, arrived / MILLISECOND * MILLISECOND, "{at}");
                            assert!(
                                arrived < last + SECOND,
                                "{at}: worked on before the event that comes first"
                            );
                            *times.entry(arrived).or_default() += 1;
                        }
                        Saw::Event { due, now } => {
                            assert_eq!((due, now), (last + SECOND, last + SECOND), "{at}");
                            last = due;
                        }
                    }
                }
            }
            assert!(
                times.len() as u64 == SECONDS * TICKS
                    && times.values().all(|packets| *packets == u64::from(FLOWS)),
                "{at}"
            );
        }
    }
}
