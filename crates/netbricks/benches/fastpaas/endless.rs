//! How soon an endless loop is ended, and how long it holds its worker.
//!
//! Each turn sends a batch to a module that never ends. It lasts until the module was ended and the batch dropped. All turns
//! but the first also begin with a new instance, since the fault before has ended it. Before each turn the thread works for a
//! random part of a tick, so that loops begin anywhere between two ticks.

use std::path::Path;
use std::time::Instant;

use netbricks::sandbox::{SandboxSettings, node};
use netbricks::units::Duration;
use netbricks_buffer::{Pool, WorkerSlot};
use netbricks_core::{Blueprint, DropReason, Edge, GraphBuilder, Turn, Worker};
use netbricks_ports::bench;

use crate::modes::{median, pin};
use crate::traffic::{FRAME, Random};

/// Packets in a batch.
const BURST: usize = 32;
/// The time (ns) between two ticks.
const TICK: f64 = 250_000.0;

/// The measured times.
pub(crate) struct Times {
    /// Of each turn (ns).
    pub(crate) turns: Vec<f64>,
    pub(crate) received: u64,
    pub(crate) preempted: u64,
    /// Packets that were dropped while there was no instance.
    pub(crate) quarantined: u64,
}

impl Times {
    /// The times as CSV.
    pub(crate) fn csv(&self) -> String {
        let mut turns = self.turns.clone();
        turns.sort_by(f64::total_cmp);
        let (last, half) = (turns.len() - 1, median(&turns));
        format!(
            "loops,median_us,median_ticks,p99_us,longest_us,packets,preempted,quarantined\n{},{:.1},{:.2},{:.1},{:.1},{},{},{}\n",
            turns.len(),
            half / 1e3,
            half / TICK,
            turns[last * 99 / 100] / 1e3,
            turns[last] / 1e3,
            self.received,
            self.preempted,
            self.quarantined
        )
    }
}

/// Has so many batches go into an endless loop.
///
/// # Errors
/// The module is missing, or packets are.
pub(crate) fn run(modules: &Path, loops: usize, core: Option<usize>) -> Result<Times, String> {
    measured(modules, None, loops, core)
}

/// The time (ns) of a batch for which the module counts to `turns`, of which no tick ends it.
///
/// # Errors
/// As [`run`].
pub(crate) fn of_turns(modules: &Path, turns: u64, core: Option<usize>) -> Result<f64, String> {
    // On a thread of its own, so that this one is pinned to no core.
    let times = std::thread::scope(|scope| {
        let thread = scope.spawn(|| measured(modules, Some(turns), 101, core));
        thread.join().unwrap_or_else(|_| Err("the thread panicked".into()))
    })?;
    Ok(median(&times.turns))
}

fn measured(modules: &Path, turns: Option<u64>, loops: usize, core: Option<usize>) -> Result<Times, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    pin(core)?;
    let _slot = WorkerSlot::claim().map_err(|error| text(&error))?;
    let file = modules.join("spin.wasm");
    let module = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut settings = SandboxSettings::of(&module);
    settings.config = turns.map(|turns| turns.to_string());
    // Never stopped, and made anew for the next batch.
    (settings.strikes, settings.backoff) = (0, Duration::from_nanoseconds(0));
    let pool = Pool::builder().frames(1_024).build().map_err(|error| text(&error))?;
    let worker = Worker::new(0, 1, pool.clone());
    let mut graph = GraphBuilder::new("endless");
    let function = Blueprint::new(move |worker| node(&settings, worker));
    let function = graph.add_function("function", &function, &worker).map_err(|error| text(&error))?;
    let source = graph.add("source", bench::allocate(BURST, FRAME)).map_err(|error| text(&error))?;
    let sink = graph.add("sink", bench::free()).map_err(|error| text(&error))?;
    graph.connect(source, Edge::OUT, function, 0).map_err(|error| text(&error))?;
    for edge in [Edge::OUT, Edge::REPLY] {
        graph.connect(function, edge, sink, 0).map_err(|error| text(&error))?;
    }
    let mut graph = graph.build(pool.clone()).map_err(|error| text(&error))?;
    graph.set_burst(BURST);
    let (began, mut times) = (Instant::now(), Vec::with_capacity(loops));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    while times.len() < loops {
        let (wait, pause) = (random.below(TICK as usize), Instant::now());
        while turns.is_none() && (pause.elapsed().as_nanos() as usize) < wait {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        if !matches!(graph.turn(1 + began.elapsed().as_nanos() as u64), Turn::Moved(_)) {
            return Err("a turn moved nothing".into());
        }
        times.push(start.elapsed().as_nanos() as f64);
    }
    let (totals, unbalanced) = (graph.totals(), graph.unbalanced());
    let (received, sent) = (totals.received.packets, totals.sent.packets);
    let [preempted, quarantined] =
        [DropReason::Preempted, DropReason::Quarantined].map(|reason| totals.drops.of(reason).packets);
    if !totals.is_conserved() || !unbalanced.is_empty() || received != sent + preempted + quarantined {
        return Err(format!("packets are missing: {totals:?} {unbalanced:?}"));
    }
    drop(graph);
    if pool.available() != pool.capacity() {
        return Err("frames leaked".into());
    }
    Ok(Times { turns: times, received, preempted, quarantined })
}
