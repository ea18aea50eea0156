//! The benchmarks of packets that change cores; they check every packet's place in its flow.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use netbricks_buffer::{Batch, Pool};
use netbricks_core::{Context, DropReason, GraphError, Node, Poll, Registry, Shape};
use netbricks_packet::build::ethernet;
use netbricks_ports::Drivers;
use netbricks_runtime::{Clock, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime};

use super::{BURST, BenchError, Figure, How, Length};
use crate::chain::{Design, Network, WorkerPorts};
use crate::config;
use crate::diagnostic::{Diagnostics, Source};

/// Workers.
const WORKERS: usize = 2;
/// Flows of each worker.
const FLOWS: usize = 4_096;
/// Packet buffers: rings, batches and stocks of free frames hold less than half of them.
const FRAMES: usize = 16_384;
/// Place of a packet's label, behind Ethernet, IPv4 and UDP.
///
/// The label is its flow (2 bytes), its worker (1 byte) and its number within the flow (8 bytes).
const LABEL: usize = 42;
/// Distance between the flows of successive packets, so that flows are mixed as a NIC brings them.
const STRIDE: usize = 1_597;

/// A benchmark of two workers.
pub(super) struct Cores {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Whether all buckets move back and forth during the run.
    moving: bool,
    /// Packets that a ring holds, if not the shuffle's default.
    ring: Option<usize>,
}

/// A quarter of a burst.
///
/// Every batch brings more packets to the other worker than its ring holds, so the workers wait for each
/// other again and again.
const TIGHT: usize = BURST / 4;

const TEXT: &str = "[port.store]\ndriver = \"null\"\n[function.cores]\nuse = \"shuffle\"\n\
                    [[chain]]\nfrom = \"store\"\nthrough = [\"cores\"]\nto = \"store\"\n";

impl Cores {
    /// All benchmarks of two workers.
    pub(super) const ALL: [Self; 3] = [
        Self {
            name: "shuffle-2",
            summary: "give packets to the worker of their flow, 2 workers",
            moving: false,
            ring: None,
        },
        Self {
            name: "shuffle-2-waiting",
            summary: "the same with rings for 8 packets, so that workers wait for each other all the time",
            moving: false,
            ring: Some(TIGHT),
        },
        Self {
            name: "shuffle-2-moving",
            summary: "as shuffle-2 while all 4,096 buckets move back and forth",
            moving: true,
            ring: None,
        },
    ];

    /// Runs the benchmark; the figure is the time of both workers together, per packet.
    pub(super) fn measure(&self, how: How, cores: &[usize]) -> Result<Figure, BenchError> {
        let failed = |problem: String| BenchError::Failed(format!("`{}`: {problem}", self.name));
        let Some(cores) = cores.first_chunk::<WORKERS>() else {
            return Err(failed(format!("needs {WORKERS} cores, this process may use {}", cores.len())));
        };
        self.measure_on(how, &Placement::Cores(cores.to_vec()))
    }

    fn text(&self) -> String {
        match self.ring {
            Some(ring) => TEXT.replace("\"shuffle\"", &format!("\"shuffle\"\nring = {ring}")),
            None => TEXT.to_owned(),
        }
    }

    fn measure_on(&self, how: How, placement: &Placement) -> Result<Figure, BenchError> {
        let pool = how.pool(FRAMES)?;
        let design = self.design(&pool, &self.text(), &crate::standard())?;
        self.round(&design, &pool, placement, how.length.warm_up_packets)?;
        let mut times = Vec::with_capacity(how.rounds);
        let (mut packets, mut fewest) = (0, u64::MAX);
        for _ in 0..how.rounds {
            let (report, moves) = self.round(&design, &pool, placement, how.length.packets)?;
            let moved = report.totals.sent.packets;
            times.push(report.seconds * 1e9 / moved as f64);
            packets += moved;
            fewest = fewest.min(moves);
        }
        // A short round may be over before buckets have moved.
        if self.moving && how.length.packets >= Length::FULL.packets && fewest < 3 {
            let problem = format!("`{}`: the buckets moved {fewest} times only", self.name);
            return Err(BenchError::Failed(problem));
        }
        Ok(Figure { workers: WORKERS, ..Figure::of(self.name.to_owned(), times, packets) })
    }

    /// The chain as an operator would write it, built by the same code as `run`'s.
    fn design(&self, pool: &Pool, text: &str, registry: &Registry) -> Result<Design, BenchError> {
        let mut diagnostics = Diagnostics::default();
        let plan = config::read(text, registry, &Drivers::standard(), Path::new("."), &mut diagnostics);
        let network = Network::of(&plan, pool, &mut diagnostics);
        if diagnostics.has_errors() {
            let source = Source::new(self.name.to_owned(), text);
            return Err(BenchError::Failed(diagnostics.render(&source, false)));
        }
        Ok(network.design(self.name, &plan))
    }

    /// Runs one round; also returns how often the buckets moved.
    fn round(
        &self,
        design: &Design,
        pool: &Pool,
        placement: &Placement,
        packets: u64,
    ) -> Result<(FinalReport, u64), BenchError> {
        let failed = |problem: String| BenchError::Failed(format!("`{}`: {problem}", self.name));
        let wrong = Arc::new(AtomicU64::new(0));
        // A moving flow's numbers are read by both workers. Else only its owner reads them, on cache lines of
        // its own.
        let both = last_numbers();
        let mut config = Config::new(pool.clone())
            .workers(WORKERS)
            .placement(placement.clone())
            .clock(Clock::Driven)
            .idle(IdlePolicy::Latency);
        config.burst = BURST;
        let runtime = Runtime::start(config, |worker| {
            let last = if self.moving { both.clone() } else { last_numbers() };
            let ports = WorkerPorts {
                receive: vec![(0, Box::new(Flows::new(worker, packets)))],
                transmit: [(0, Box::new(Order { last, wrong: wrong.clone() }) as Box<dyn Node + Send>)]
                    .into(),
                ..WorkerPorts::default()
            };
            // The workers of each round share a new group.
            let design = design.clone();
            Factory::new(move |context| -> Result<_, GraphError> {
                design.builder(ports, context.worker())?.build(context.pool().clone())
            })
        })
        .map_err(|error| failed(error.to_string()))?;
        let mut moves = 0u64;
        if self.moving {
            let control = runtime.control();
            let ask = |handler: &str, argument: &str| control.call(0, self.name, "cores", handler, argument);
            // Until the run is over and no worker answers any more.
            while ask("move", &format!("0-4095 {}", (moves + 1) % WORKERS as u64)).is_ok() {
                moves += 1;
                while ask("moving", "").is_ok_and(|pairs| pairs != "0") {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
        let report = runtime.wait();
        let expected = packets * WORKERS as u64;
        let handed = report.totals.handoff_out.packets;
        let problem = if !report.conserved || !report.pool_whole {
            format!("packets are missing: {:?}", report.unbalanced)
        } else if report.totals.sent.packets != expected || report.totals.drops.total().packets != 0 {
            format!("{expected} packets went in, {} came out", report.totals.sent.packets)
        } else if wrong.load(Ordering::Relaxed) != 0 {
            format!("{} packets were out of their flow's order", wrong.load(Ordering::Relaxed))
        } else if !self.moving && handed.abs_diff(expected / 2) > expected / 10 {
            format!("{handed} of {expected} packets changed workers, where about half should")
        } else {
            return Ok((report, moves));
        };
        Err(failed(problem))
    }
}

/// Brings packets of its worker's flows, mixed, each with its number within the flow.
struct Flows {
    worker: u8,
    frames: Vec<Vec<u8>>,
    numbers: Vec<u64>,
    next: usize,
    left: u64,
}

impl Flows {
    fn new(worker: usize, packets: u64) -> Self {
        let frames = (0..FLOWS)
            .map(|flow| {
                let (source, destination) = (format!("10.{worker}.0.1"), "10.9.8.7");
                let mut label = [0; 22];
                label[..2].copy_from_slice(&(flow as u16).to_be_bytes());
                label[2] = worker as u8;
                let port = 1_024 + flow as u16;
                // Addresses and lengths are fixed, so building never fails.
                ethernet()
                    .ipv4(source.as_str(), destination)
                    .udp(port, 53)
                    .payload(&label)
                    .build()
                    .unwrap_or_default()
            })
            .collect();
        Self { worker: worker as u8, frames, numbers: vec![0; FLOWS], next: 0, left: packets }
    }
}

impl Node for Flows {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let count = (cx.burst() as u64).min(self.left) as usize;
        for _ in 0..count {
            let flow = self.next;
            let Some(mut packet) = cx.pool().packet(&self.frames[flow]) else { break };
            if let Some(number) = packet.data_mut().get_mut(LABEL + 3..LABEL + 11) {
                number.copy_from_slice(&self.numbers[flow].to_be_bytes());
            }
            if batch.push(packet).is_err() {
                break;
            }
            self.numbers[flow] += 1;
            self.next = (flow + STRIDE + usize::from(self.worker)) % FLOWS;
            self.left -= 1;
        }
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The number of the last packet, from 1, by flow and by the worker that brings it.
type LastNumbers = Arc<Vec<AtomicU64>>;

fn last_numbers() -> LastNumbers {
    Arc::new((0..FLOWS * WORKERS).map(|_| AtomicU64::new(0)).collect())
}

/// Sends everything, and counts packets whose number does not follow the number before it in their flow.
struct Order {
    last: LastNumbers,
    wrong: Arc<AtomicU64>,
}

impl Node for Order {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut wrong = 0;
        for packet in batch.iter() {
            let label = packet.data().get(LABEL..LABEL + 11).and_then(<[u8]>::first_chunk::<11>);
            let Some([high, low, worker, number @ ..]) = label else { continue };
            let flow = usize::from(u16::from_be_bytes([*high, *low])) * WORKERS + usize::from(*worker);
            let number = u64::from_be_bytes(*number) + 1;
            if let Some(last) = self.last.get(flow) {
                wrong += u64::from(number != last.load(Ordering::Relaxed) + 1);
                last.store(number, Ordering::Relaxed);
            }
        }
        if wrong > 0 {
            self.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

#[cfg(test)]
mod tests;
