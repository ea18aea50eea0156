//! Measures graphs that are built exactly as `run` builds them, with the traffic of the C yardstick.

mod cores;
mod counting;
mod feed;
pub(crate) mod filters;
mod fused;
pub(crate) mod gaps;
mod payloads;
mod sandboxed;
mod scenario;
mod segments;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use netbricks_buffer::{Pool, WorkerSlot};
use netbricks_core::consistency::Shares;
use serde::Serialize;

use crate::commands::{BenchArguments, Console, Failure};
use crate::frames::{self, Writer};
use cores::Cores;
use scenario::Scenario;

/// The reason why there is no measurement.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// The arguments cannot be met.
    Usage(String),
    /// The measurement failed.
    Failed(String),
}

/// A benchmark to run.
enum Wanted<'a> {
    /// A graph on one worker, or on several workers that each have their own packets.
    Scenario(&'a Scenario),
    /// A runtime whose workers give each other packets.
    Cores(&'a Cores),
}

/// The settings of a measurement.
#[derive(Clone, Copy, Debug)]
struct How {
    rounds: usize,
    writer: Writer,
    length: Length,
}

/// The length of a round.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// Of a [`Scenario`]: the least time that a worker works in a round, and before the first.
    time: Duration,
    warm_up: Duration,
    /// Of [`Cores`]: packets that each worker brings in a round, and before the first.
    packets: u64,
    warm_up_packets: u64,
}

impl Length {
    /// The length that published figures need.
    const FULL: Self = Self {
        time: Duration::from_millis(250),
        warm_up: Duration::from_millis(50),
        packets: 7_500_000,
        warm_up_packets: 500_000,
    };
}

impl How {
    fn pool(self, frames: usize) -> Result<Pool, BenchError> {
        frames::pool(frames, 0, self.writer, 2).map_err(|error| BenchError::Failed(error.to_string()))
    }
}

/// The result of one benchmark.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    name: String,
    /// Median of the rounds.
    ns_per_packet: f64,
    min: f64,
    max: f64,
    mpps: f64,
    /// Packets in all timed rounds.
    packets: u64,
    burst: usize,
    /// Workers that ran at the same time; `ns_per_packet` is the mean of all, `mpps` their sum.
    workers: usize,
    /// The median of each worker (ns a packet), if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_worker: Vec<f64>,
    /// Bytes of memory a flow of capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_flow: Option<f64>,
    /// Figures that were measured right before this one (ns a packet), by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    beside: BTreeMap<String, f64>,
    /// Ratio of the time a packet with shared state to that with private state, by number of workers.
    /// of workers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    over_private: BTreeMap<usize, f64>,
    /// A reservation about comparing this figure with those beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Reservation>,
}

/// The reason why a figure does not simply compare with those beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Reservation {
    /// Whether the figures beside it are of the same work.
    same_work: bool,
    /// One sentence.
    text: &'static str,
}

/// The benchmark of the control API, which runs a whole dataplane.
pub(crate) const CONTROL: &str = "control";
/// The benchmark of rules that are typed and loaded while packets flow, which runs a whole dataplane too.
pub(crate) const MMB_LIVE: &str = "mmb-live";
/// The benchmarks that run a whole dataplane, with what each measures.
const WHOLE: [Listed<'_>; 2] = [
    Listed { name: CONTROL, summary: "Round trips of handlers under load, and changes of the file" },
    Listed { name: MMB_LIVE, summary: "Rules of mmb that are typed, and 100,000 loaded, beside 1 Mpps" },
];

/// Packets in a burst, as in the C yardstick.
const BURST: usize = 32;
/// Buffers in circulation, as in the C yardstick.
const PACKETS: usize = 4096;
/// Least number of rounds; their median is the figure.
const ROUNDS: usize = 7;

/// Does the work that the arguments ask for.
///
/// # Errors
/// [`BenchError`], or an error of writing the figures.
pub(crate) fn command(console: Console, arguments: &BenchArguments) -> Result<(), Failure> {
    let scenarios = Scenario::all();
    if arguments.list {
        let listed = listed(&scenarios);
        if arguments.json {
            return console.json(&listed);
        }
        let lines = listed.iter().map(|Listed { name, summary }| format!("{name:20} {summary}\n"));
        return console.print(&lines.collect::<String>());
    }
    let mut wanted = Vec::new();
    for name in &arguments.names {
        if let Some(cores) = Cores::ALL.iter().find(|cores| cores.name == *name) {
            wanted.push(Wanted::Cores(cores));
            continue;
        }
        match scenarios.iter().find(|scenario| scenario.name == *name) {
            Some(scenario) => wanted.push(Wanted::Scenario(scenario)),
            None => {
                let hint = netbricks_core::nearest(name, known_names(&scenarios))
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_else(|| "; `netbricks bench --list` names them".into());
                return Err(BenchError::Usage(format!("there is no benchmark `{name}`{hint}")).into());
            }
        }
    }
    let rounds = arguments.rounds.unwrap_or(ROUNDS);
    if rounds < ROUNDS {
        return Err(BenchError::Usage(format!("`--rounds` must be at least {ROUNDS}, found {rounds}")).into());
    }
    let writer = if arguments.short_frames { Writer::Us } else { Writer::Device };
    let packets = arguments.packets.unwrap_or(Length::FULL.packets);
    let least = Length::FULL.warm_up_packets;
    if packets < least {
        return Err(
            BenchError::Usage(format!("`--packets` must be at least {least}, found {packets}")).into()
        );
    }
    let how = How { rounds, writer, length: Length { packets, ..Length::FULL } };
    let cores = cores(arguments.core)?;
    for (number, wanted) in wanted.into_iter().enumerate() {
        let figure = match wanted {
            Wanted::Scenario(scenario) => measure(scenario, how, &cores)?,
            Wanted::Cores(workers) => workers.measure(how, &cores)?,
        };
        if arguments.json {
            console.json(&figure)?;
        } else {
            if number == 0 {
                let [ns, min, max, mpps] = ["ns/packet", "min", "max", "Mpps"];
                console.print(&format!("{:20} {ns:>10} {min:>10} {max:>10} {mpps:>10}\n", ""))?;
            }
            console.print(&format!("{}\n", figure.lines().join("\n")))?;
        }
    }
    Ok(())
}

/// A benchmark in the list that `--list` prints.
#[derive(Clone, Copy, Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    summary: &'a str,
}

fn listed(scenarios: &[Scenario]) -> Vec<Listed<'_>> {
    let cores = Cores::ALL.iter().map(|cores| Listed { name: cores.name, summary: cores.summary });
    scenarios
        .iter()
        .map(|scenario| Listed { name: &scenario.name, summary: &scenario.summary })
        .chain(cores)
        .chain(WHOLE)
        .collect()
}

fn known_names(scenarios: &[Scenario]) -> impl Iterator<Item = &str> {
    scenarios
        .iter()
        .map(|scenario| scenario.name.as_str())
        .chain(Cores::ALL.iter().map(|cores| cores.name))
        .chain(WHOLE.iter().map(|whole| whole.name))
}

/// The cores to measure on: the wanted core, or else the last allowed one, followed by the other allowed
/// cores.
fn cores(wanted: Option<usize>) -> Result<Vec<usize>, BenchError> {
    let allowed = netbricks_runtime::allowed_cores();
    match wanted.or(allowed.last().copied()) {
        Some(first) if allowed.contains(&first) => {
            let others = allowed.iter().rev().copied().filter(|core| *core != first);
            Ok(std::iter::once(first).chain(others).collect())
        }
        other => {
            let other = other.map_or("none".into(), |core| core.to_string());
            Err(BenchError::Usage(format!("`--core` must be one of {allowed:?}, found {other}")))
        }
    }
}

/// The measurements of one worker.
struct Measured {
    /// ns a packet, by round.
    times: Vec<f64>,
    packets: u64,
    bytes_per_flow: Option<f64>,
}

/// Measures a scenario, after the scenarios whose figures stand beside it.
fn measure(scenario: &Scenario, how: How, cores: &[usize]) -> Result<Figure, BenchError> {
    let mut beside = BTreeMap::new();
    for other in &scenario.beside {
        beside.insert(other.name.clone(), measure(other, how, cores)?.ns_per_packet);
    }
    let mut workers = alone_or_together(scenario, how, cores)?;
    let count = workers.len();
    let by_worker = workers.iter().map(|worker| median(worker.times.clone())).collect();
    let rounds =
        (0..how.rounds).map(|round| workers.iter().map(|w| w.times[round]).sum::<f64>() / count as f64);
    let figure = Figure::of(scenario.name.clone(), rounds.collect(), workers.iter().map(|w| w.packets).sum());
    let over_private = over_private(scenario, figure.ns_per_packet, &beside);
    Ok(Figure {
        mpps: figure.mpps * count as f64,
        workers: count,
        by_worker: if count == 1 { Vec::new() } else { by_worker },
        bytes_per_flow: workers.pop().and_then(|worker| worker.bytes_per_flow),
        beside,
        over_private,
        reservation: scenario.reservation(),
        ..figure
    })
}

impl Figure {
    /// The figure of one or more rounds that took `times` (ns a packet), over `packets` in all.
    fn of(name: String, times: Vec<f64>, packets: u64) -> Self {
        let [min, max] = [f64::min, f64::max].map(|of| times.iter().copied().fold(times[0], of));
        let median = median(times);
        Self {
            name,
            ns_per_packet: median,
            min,
            max,
            mpps: 1e3 / median,
            packets,
            burst: BURST,
            workers: 1,
            by_worker: Vec::new(),
            bytes_per_flow: None,
            beside: BTreeMap::new(),
            over_private: BTreeMap::new(),
            reservation: None,
        }
    }

    /// The lines of text for this figure, with its details below it.
    fn lines(&self) -> Vec<String> {
        let Self { name, ns_per_packet, min, max, mpps, reservation, .. } = self;
        let mut lines = vec![format!("{name:20} {ns_per_packet:10.2} {min:10.2} {max:10.2} {mpps:10.2}")];
        lines.extend(self.bytes_per_flow.map(|bytes| format!("{:20} {bytes:10.1} bytes a flow", "")));
        let workers = self.by_worker.iter().enumerate();
        lines.extend(workers.map(|(worker, median)| format!("  worker {worker:<11} {median:10.2}")));
        lines.extend(self.beside.iter().map(|(other, beside)| {
            let times = ns_per_packet / beside;
            format!("  {other:18} {beside:10.2} {name} costs {times:.2} times as much")
        }));
        lines.extend(self.over_private.iter().map(|(workers, times)| {
            let on = format!("on {workers} core{}", if *workers == 1 { "" } else { "s" });
            format!("  {on:18} {times:10.2} times as much as with private state")
        }));
        lines.extend(reservation.map(|Reservation { text, .. }| format!("  {text}")));
        lines
    }
}

/// The cost of state that workers share, relative to private state, for each number of workers with both
/// figures.
fn over_private(
    scenario: &Scenario,
    ns_per_packet: f64,
    beside: &BTreeMap<String, f64>,
) -> BTreeMap<usize, f64> {
    let measured = scenario.beside.iter().filter_map(|other| Some((other, *beside.get(&other.name)?)));
    let measured = measured.chain([(scenario, ns_per_packet)]);
    measured.filter_map(|(shared, ns)| Some((shared.workers, ns / beside.get(&shared.private()?)?))).collect()
}

/// The middle one of one or more `times`; of an even number, the mean of the middle two.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let half = times.len() / 2;
    if times.len().is_multiple_of(2) { (times[half - 1] + times[half]) / 2.0 } else { times[half] }
}

/// Runs a scenario's workers, each on its core; the workers begin their rounds together.
fn alone_or_together(scenario: &Scenario, how: How, cores: &[usize]) -> Result<Vec<Measured>, BenchError> {
    if cores.len() < scenario.workers {
        return Err(BenchError::Failed(format!(
            "`{}` needs {} cores, and this process may run on {}: allow it more with `taskset`",
            scenario.name,
            scenario.workers,
            cores.len()
        )));
    }
    let (shares, start) = (Shares::default(), Start::new(scenario.workers));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..scenario.workers)
            .map(|index| {
                let (shares, start) = (&shares, &start);
                scope.spawn(move || start.guard(|| run(scenario, how, cores[index], index, shares, start)))
            })
            .collect();
        let panicked = |_| Err(BenchError::Failed(format!("`{}` panicked", scenario.name)));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    })
}

/// The point where workers wait for each other before a round; if one fails, the others stop waiting.
struct Start {
    workers: usize,
    waiting: AtomicUsize,
    /// Packets sent by the workers that have ended.
    sent: AtomicU64,
    failed: AtomicBool,
}

impl Start {
    fn new(workers: usize) -> Self {
        Self {
            workers,
            waiting: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }
    fn wait(&self) -> Result<(), BenchError> {
        let round = self.waiting.fetch_add(1, Ordering::AcqRel) / self.workers + 1;
        while self.waiting.load(Ordering::Acquire) < round * self.workers {
            if self.failed.load(Ordering::Acquire) {
                return Err(BenchError::Failed("another worker failed".into()));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
    /// Tells the other workers if this one fails, also by a panic.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
        let unless_done = Failing(self);
        let done = work()?;
        std::mem::forget(unless_done);
        Ok(done)
    }
}

struct Failing<'s>(&'s Start);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.failed.store(true, Ordering::Release);
    }
}

fn run(
    scenario: &Scenario,
    how: How,
    core: usize,
    index: usize,
    shares: &Shares,
    start: &Start,
) -> Result<Measured, BenchError> {
    netbricks_runtime::pin_this_thread(core)
        .map_err(|error| BenchError::Failed(format!("pinning to core {core}: {error}")))?;
    let _slot = WorkerSlot::claim().map_err(|error| BenchError::Failed(error.to_string()))?;
    let pool = how.pool(2 * PACKETS)?;
    let mut measured = Measured { times: Vec::with_capacity(how.rounds), packets: 0, bytes_per_flow: None };
    {
        let mut bench = scenario.build(&pool, index, shares)?;
        start.wait()?;
        bench.round(how.length.warm_up)?;
        for _ in 0..how.rounds {
            start.wait()?;
            let (time, moved) = bench.round(how.length.time)?;
            measured.times.push(time.as_secs_f64() * 1e9 / moved as f64);
            measured.packets += moved;
        }
        measured.bytes_per_flow = bench.bytes_per_flow()?;
        // Shared state is checked after all workers have stopped changing it.
        start.sent.fetch_add(bench.sent(), Ordering::AcqRel);
        start.wait()?;
        bench.check(start.sent.load(Ordering::Acquire))?;
    }
    if pool.available() != pool.capacity() {
        return Err(BenchError::Failed(format!(
            "`{}`: {} packets are missing from the pool",
            scenario.name,
            pool.capacity() - pool.available()
        )));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests;
