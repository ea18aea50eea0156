//! Measuring graphs that are built exactly as `run` builds them, fed as the C yardstick feeds its functions.

mod cores;
mod feed;
mod fused;
mod scenario;

use std::time::Duration;

use netbricks_buffer::{Pool, WorkerSlot};
use serde::Serialize;

use crate::commands::BenchArguments;
use cores::Cores;
use scenario::Scenario;

/// A measurement that did not come about.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// What was asked for cannot be.
    Usage(String),
    /// It failed.
    Failed(String),
}

/// What one benchmark came to.
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
}

/// Packets in a burst, as in the C yardstick.
const BURST: usize = 32;
/// Buffers that go round, as in the C yardstick.
const PACKETS: usize = 4096;
/// Fewest rounds: their median is the figure.
const ROUNDS: usize = 7;
/// How long a round takes at least.
const ROUND: Duration = Duration::from_millis(250);
const WARM_UP: Duration = Duration::from_millis(50);

/// Does what the arguments say.
///
/// # Errors
/// [`BenchError`].
pub(crate) fn command(arguments: &BenchArguments) -> Result<(), BenchError> {
    let scenarios = Scenario::all();
    if arguments.list {
        for scenario in &scenarios {
            print(&format!("{:20} {}", scenario.name, scenario.summary))?;
        }
        for cores in &Cores::ALL {
            print(&format!("{:20} {}", cores.name, cores.summary))?;
        }
        return Ok(());
    }
    let (mut wanted, mut on_several) = (Vec::new(), Vec::new());
    for name in &arguments.names {
        if let Some(cores) = Cores::ALL.iter().find(|cores| cores.name == *name) {
            on_several.push(cores);
            continue;
        }
        match scenarios.iter().find(|scenario| scenario.name == *name) {
            Some(scenario) => wanted.push(scenario),
            None => {
                let hint = netbricks_core::nearest(name, known_names(&scenarios))
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_else(|| "; `netbricks bench --list` names them".into());
                return Err(BenchError::Usage(format!("there is no benchmark `{name}`{hint}")));
            }
        }
    }
    let rounds = arguments.rounds.unwrap_or(ROUNDS);
    if rounds < ROUNDS {
        return Err(BenchError::Usage(format!("`--rounds` must be at least {ROUNDS}, found {rounds}")));
    }
    let mut first = true;
    let mut tell = |figure: Figure| {
        if arguments.json {
            return print(&json(&figure)?);
        }
        if std::mem::take(&mut first) {
            print(&format!("{:20} {:>10} {:>10} {:>10} {:>10}", "", "ns/packet", "min", "max", "Mpps"))?;
        }
        let Figure { name, ns_per_packet, min, max, mpps, .. } = &figure;
        print(&format!("{name:20} {ns_per_packet:10.2} {min:10.2} {max:10.2} {mpps:10.2}"))
    };
    // Before this thread is bound to one core: theirs inherit what it may use.
    for cores in on_several {
        tell(cores.measure(rounds)?)?;
    }
    pin(arguments.core)?;
    let _slot = WorkerSlot::claim().map_err(|error| BenchError::Failed(error.to_string()))?;
    for scenario in wanted {
        tell(measure(scenario, rounds)?)?;
    }
    Ok(())
}

fn known_names(scenarios: &[Scenario]) -> impl Iterator<Item = &str> {
    scenarios.iter().map(|scenario| scenario.name.as_str()).chain(Cores::ALL.iter().map(|cores| cores.name))
}

fn json(figure: &Figure) -> Result<String, BenchError> {
    serde_json::to_string(figure).map_err(|error| BenchError::Failed(error.to_string()))
}

fn print(line: &str) -> Result<(), BenchError> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}")
        .map_err(|error| BenchError::Failed(format!("writing the figures: {error}")))
}

/// Pins this thread to the core that is measured: the last of those allowed, unless one is named.
fn pin(core: Option<usize>) -> Result<(), BenchError> {
    let allowed = netbricks_runtime::allowed_cores();
    let core = match core.or(allowed.last().copied()) {
        Some(core) if allowed.contains(&core) => core,
        other => {
            let other = other.map_or("none".into(), |core| core.to_string());
            return Err(BenchError::Usage(format!("`--core` must be one of {allowed:?}, found {other}")));
        }
    };
    netbricks_runtime::pin_this_thread(core)
        .map_err(|error| BenchError::Failed(format!("pinning to core {core}: {error}")))
}

fn measure(scenario: &Scenario, rounds: usize) -> Result<Figure, BenchError> {
    let pool =
        Pool::builder().frames(2 * PACKETS).build().map_err(|error| BenchError::Failed(error.to_string()))?;
    let mut times = Vec::with_capacity(rounds);
    let mut packets = 0;
    {
        let mut bench = scenario.build(&pool)?;
        bench.round(WARM_UP)?;
        for _ in 0..rounds {
            let (time, moved) = bench.round(ROUND)?;
            times.push(time.as_secs_f64() * 1e9 / moved as f64);
            packets += moved;
        }
        bench.check()?;
    }
    if pool.available() != pool.capacity() {
        return Err(BenchError::Failed(format!(
            "`{}`: {} packets are missing from the pool",
            scenario.name,
            pool.capacity() - pool.available()
        )));
    }
    Ok(Figure::of(scenario.name.clone(), times, packets))
}

impl Figure {
    /// The figure of rounds that took `times` (ns a packet), 1 or more, over `packets` in all.
    fn of(name: String, mut times: Vec<f64>, packets: u64) -> Self {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        Self {
            name,
            ns_per_packet: median,
            min: times[0],
            max: times[times.len() - 1],
            mpps: 1e3 / median,
            packets,
            burst: BURST,
        }
    }
}
