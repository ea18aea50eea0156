//! Figure 1: chains of 1 to 4 LPM, run to completion or with a thread or process for each function.
//!
//! Two setups are graphs of this library: `run-to-completion`, and `threads`, where each function is a graph of its own and
//! rings lead from one to the next. The other three are `chain.c`, whose processes share packets and rings without a copy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::Instant;

use netbricks_buffer::{Batch, Consumer, Pool, Producer, Ring, WorkerSlot};
use netbricks_core::{
    Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Totals, Turn, Worker,
};
use netbricks_ports::bench;

use crate::modes::{median, pin};
use crate::rust;
use crate::traffic::{self, Route, Tuples};

/// Packets in a batch.
const BURST: usize = 32;
/// Packets that a ring holds.
const RING: usize = 512;
/// Packet buffers.
const FRAMES: usize = 4_096;

/// The setups and sizes to measure.
pub(crate) struct Plan {
    /// The folder with `chain` and `lpm.so`; without it only the setups in Rust run.
    pub(crate) modules: Option<PathBuf>,
    /// The cores, which threads and processes take in turn.
    pub(crate) cores: Vec<usize>,
    /// Functions of a chain.
    pub(crate) lengths: Vec<usize>,
    pub(crate) routes: usize,
    pub(crate) rounds: usize,
    /// Packets of a round.
    pub(crate) packets: u64,
}

/// How a chain runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    RunToCompletion,
    Threads,
    /// `chain.c`, with the name of its setup.
    C(&'static str),
}

impl Setup {
    const ALL: [Self; 5] =
        [Self::RunToCompletion, Self::Threads, Self::C("one"), Self::C("threads"), Self::C("processes")];

    fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Threads => "threads",
            Self::C("one") => "c-run-to-completion",
            Self::C("threads") => "c-threads",
            Self::C(_) => "c-processes",
        }
    }
}

/// A line of the result.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) setup: Setup,
    pub(crate) length: usize,
    /// Millions of packets a second, by round.
    pub(crate) rates: Vec<f64>,
    /// Packets that came through in all rounds.
    pub(crate) packets: u64,
}

/// Brings a number of packets, each with the addresses that the traffic gives it.
struct Generator {
    left: u64,
    next: usize,
    frame: [u8; traffic::FRAME],
    tuples: Tuples,
}

impl Generator {
    fn new(packets: u64, first: usize, tuples: &Tuples) -> Self {
        Self { left: packets, next: first % tuples.len(), frame: traffic::frame(), tuples: tuples.clone() }
    }
}

impl Node for Generator {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let wanted = self.left.min(BURST as u64) as usize;
        let taken = cx.pool().allocate_written_into(batch, wanted, &self.frame);
        self.left -= taken as u64;
        let (tuples, mut next) = (&self.tuples, self.next);
        batch.each(|_, frame| {
            frame.data_mut()[26..38].copy_from_slice(&tuples[next]);
            next += 1;
            if next == tuples.len() {
                next = 0;
            }
        });
        self.next = next;
        match (self.left, taken) {
            (0, _) => Poll::Done,
            (_, 0) => Poll::Idle,
            _ => Poll::Busy,
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Takes packets from a ring until its other end is gone.
struct FromRing(Consumer);

impl Node for FromRing {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, _: &mut Context) -> Poll {
        // In this order: what was put in before the other end went is still there.
        let closed = self.0.is_closed();
        match (self.0.pop_up_to(batch, BURST), closed) {
            (0, true) => Poll::Done,
            (0, false) => Poll::Idle,
            _ => Poll::Busy,
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Puts packets into a ring, and waits where it is full.
struct ToRing(Producer);

impl Node for ToRing {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        while !batch.is_empty() {
            self.0.push(batch);
            if self.0.is_closed() {
                // The function behind it has failed, and the count at the end says so.
                batch.clear();
            }
            if !batch.is_empty() {
                std::thread::yield_now();
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// A graph from a source through so many LPM to a sink.
fn graph(
    source: Box<dyn Node>,
    functions: usize,
    routes: &[Route],
    sink: Box<dyn Node>,
    pool: &Pool,
) -> Result<Graph, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let worker = Worker::new(0, 1, pool.clone());
    let mut graph = GraphBuilder::new("chain");
    let mut last = graph.add("source", source).map_err(|error| text(&error))?;
    for place in 0..functions {
        let blueprint = rust::function("lpm", routes).ok_or("there is no lpm")?;
        let next = graph.add_function(format!("lpm{place}"), &blueprint, &worker);
        let next = next.map_err(|error| text(&error))?;
        graph.connect(last, Edge::OUT, next, 0).map_err(|error| text(&error))?;
        last = next;
    }
    let sink = graph.add("sink", sink).map_err(|error| text(&error))?;
    graph.connect(last, Edge::OUT, sink, 0).map_err(|error| text(&error))?;
    let mut graph = graph.build(pool.clone()).map_err(|error| text(&error))?;
    graph.set_burst(BURST);
    Ok(graph)
}

/// Runs a graph until its source has ended, then answers its totals.
fn to_the_end(mut graph: Graph) -> Result<Totals, String> {
    let began = Instant::now();
    loop {
        match graph.turns(1 + began.elapsed().as_nanos() as u64, 64).0 {
            Turn::Moved(_) => {}
            Turn::Idle(_) => {
                std::thread::yield_now();
                graph.wake();
            }
            Turn::Done => break,
        }
    }
    let (totals, unbalanced) = (graph.totals(), graph.unbalanced());
    let dropped = totals.drops.total().packets;
    if totals.is_conserved() && unbalanced.is_empty() && dropped == 0 {
        Ok(totals)
    } else {
        Err(format!("packets are missing: {totals:?} {unbalanced:?}"))
    }
}

/// A stage's source, the number of its functions, and its sink.
type Stage = (Box<dyn Node + Send>, usize, Box<dyn Node + Send>);

/// The data that all threads of a setup share.
struct Common<'a> {
    routes: &'a [Route],
    pool: Pool,
    start: Barrier,
}

/// Runs stages, each on a thread of its own; answers the packets that were sent, and the time (ns).
///
/// With `all` those of all stages count, else those of the last. The threads wait for each other once their graphs are made.
fn stages(common: &Common<'_>, cores: &[usize], stages: Vec<Stage>, all: bool) -> Result<(u64, u64), String> {
    let results: Vec<Result<(u64, u64), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = stages
            .into_iter()
            .enumerate()
            .map(|(place, (source, functions, sink))| {
                let core = cores.get(place % cores.len().max(1)).copied();
                scope.spawn(move || {
                    let prepared = pin(core).and_then(|()| {
                        let slot = WorkerSlot::claim().map_err(|error| error.to_string())?;
                        Ok((slot, graph(source, functions, common.routes, sink, &common.pool)?))
                    });
                    common.start.wait();
                    let (_slot, graph) = prepared?;
                    let began = Instant::now();
                    let totals = to_the_end(graph)?;
                    Ok((totals.sent.packets, began.elapsed().as_nanos() as u64))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let time = results.iter().map(|result| result.1).max().unwrap_or_default();
    let sent = if all {
        results.iter().map(|result| result.0).sum()
    } else {
        results.last().map(|result| result.0).unwrap_or_default()
    };
    Ok((sent, time))
}

/// The chain in Rust, run to completion on each core or with a thread for each function.
fn in_rust(
    plan: &Plan,
    setup: Setup,
    length: usize,
    routes: &[Route],
    tuples: &Tuples,
) -> Result<(u64, u64), String> {
    let frames = FRAMES * if setup == Setup::Threads { 2 } else { plan.cores.len().max(1) };
    let pool = Pool::builder().frames(frames).workers(plan.cores.len().max(length + 1)).build();
    let pool = pool.map_err(|error| error.to_string())?;
    let count = if setup == Setup::Threads { length + 1 } else { plan.cores.len().max(1) };
    let common = Common { routes, pool: pool.clone(), start: Barrier::new(count) };
    let mut all: Vec<Stage> = Vec::new();
    if setup == Setup::Threads {
        let mut source: Box<dyn Node + Send> = Box::new(Generator::new(plan.packets, 0, tuples));
        for functions in std::iter::once(0).chain(std::iter::repeat_n(1, length - 1)) {
            let (producer, consumer) = Ring::new(RING);
            all.push((source, functions, Box::new(ToRing(producer))));
            source = Box::new(FromRing(consumer));
        }
        all.push((source, 1, Box::new(Free)));
    } else {
        for core in 0..count {
            let share = plan.packets / count as u64 + if core == 0 { plan.packets % count as u64 } else { 0 };
            all.push((Box::new(Generator::new(share, core * 100_003, tuples)), length, Box::new(Free)));
        }
    }
    let result = stages(&common, &plan.cores, all, setup == Setup::RunToCompletion)?;
    drop(common);
    if pool.available() != pool.capacity() {
        return Err(format!("{} frames leaked", pool.capacity() - pool.available()));
    }
    Ok(result)
}

/// Frees packets.
struct Free;

impl Node for Free {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        bench::free().shape()
    }
}

/// The files that `chain` reads.
struct Files {
    chain: PathBuf,
    folder: PathBuf,
}

impl Files {
    fn write(modules: &Path, routes: &[Route], tuples: &Tuples, most: usize) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("fastpaas-chains-{}", std::process::id()));
        let write = || {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("routes"), traffic::lines(routes))?;
            std::fs::write(folder.join("tuples"), tuples.concat())?;
            for place in 0..most {
                std::fs::copy(modules.join("lpm.so"), folder.join(format!("{place}.so")))?;
            }
            Ok::<_, std::io::Error>(())
        };
        write().map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { chain: modules.join("chain"), folder })
    }

    fn run(&self, plan: &Plan, setup: &str, length: usize) -> Result<(u64, u64), String> {
        let cores: Vec<String> = plan.cores.iter().map(ToString::to_string).collect();
        let output = Command::new(&self.chain)
            .args([setup, &plan.packets.to_string()])
            .args([self.folder.join("routes"), self.folder.join("tuples")])
            .arg(cores.join(","))
            .args((0..length).map(|place| self.folder.join(format!("{place}.so"))))
            .output()
            .map_err(|error| format!("{}: {error}", self.chain.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [packets, time] if output.status.success() => Ok((packets, time)),
            _ => Err(format!("chain {setup}: {text}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What stays in the system's temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Measures all setups and lengths, in turn.
///
/// # Errors
/// A setup fails, or packets are missing.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let routes = traffic::routes(plan.routes);
    let tuples = traffic::tuples(&routes)?;
    let most = plan.lengths.iter().copied().max().unwrap_or_default();
    let files = plan.modules.as_deref().map(|modules| Files::write(modules, &routes, &tuples, most));
    let files = files.transpose()?;
    let setups = Setup::ALL.into_iter().filter(|setup| files.is_some() || !matches!(setup, Setup::C(_)));
    let mut rows: Vec<Row> = setups
        .flat_map(|setup| plan.lengths.iter().map(move |length| (setup, *length)))
        .map(|(setup, length)| Row { setup, length, rates: Vec::new(), packets: 0 })
        .collect();
    for round in 0..plan.rounds {
        eprintln!("chains: round {} of {}", round + 1, plan.rounds);
        for row in &mut rows {
            let result = match (row.setup, &files) {
                (Setup::C(setup), Some(files)) => files.run(plan, setup, row.length),
                (setup, _) => in_rust(plan, setup, row.length, &routes, &tuples),
            };
            let (name, length) = (row.setup.name(), row.length);
            let (packets, time) = result.map_err(|problem| format!("{name} of {length}: {problem}"))?;
            if packets != plan.packets {
                let wanted = plan.packets;
                return Err(format!("{name} of {length}: {wanted} packets went in, {packets} came out"));
            }
            row.packets += packets;
            row.rates.push(packets as f64 * 1e3 / time as f64);
        }
    }
    Ok(rows)
}

/// The rows as CSV.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = String::from("setup,length,mpps,min,max,packets\n");
    for Row { setup, length, rates, packets } in rows {
        let [min, max] = [f64::min, f64::max].map(|of| rates.iter().copied().fold(f64::NAN, of));
        // Writing into text never fails.
        let _ = writeln!(text, "{},{length},{:.3},{min:.3},{max:.3},{packets}", setup.name(), median(rates));
    }
    text
}
