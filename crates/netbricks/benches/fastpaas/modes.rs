//! Figures 5 and 6: each function natively, in Rust and in the sandbox's modes, receive and send included.
//!
//! Each row is a graph of a source, the function and a sink. The source hands out the same 4,096 packets again and again, and
//! writes addresses and ports into each. The sink takes them back. The rows of one function and burst have their rounds in turn.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use netbricks::sandbox::{Mode as Packets, SandboxSettings, native, node};
use netbricks::units::{Bytes, Duration};
use netbricks_buffer::{Pool, WorkerSlot};
use netbricks_core::{Blueprint, BuildError, Edge, Graph, GraphBuilder, Turn, Worker};
use netbricks_ports::bench::{Store, write_tuples};

use crate::rust;
use crate::traffic::{self, FRAME, Route, Tuples};

/// The functions.
pub(crate) const FUNCTIONS: [&str; 5] = ["macswap", "ttl", "checksum", "policer", "lpm"];
/// The bursts.
pub(crate) const BURSTS: [usize; 3] = [8, 32, 128];
/// Packets that go round.
const PACKETS: usize = 4_096;
/// Turns between two looks at the clock.
const TURNS: u32 = 64;

/// How a function's code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The module's source in C as native code, without protection.
    Native,
    Rust,
    /// WebAssembly, with each frame copied into the module's memory as a whole, and out where it writes.
    Mapped,
    /// WebAssembly, with the first bytes of each frame copied in and out.
    Copy,
    /// The source in C with each read and write checked against coarse bounds, in software.
    Checked,
    /// The same, with writes alone checked.
    WriteOnly,
}

impl Mode {
    pub(crate) const ALL: [Self; 6] =
        [Self::Native, Self::Rust, Self::Mapped, Self::Copy, Self::Checked, Self::WriteOnly];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Rust => "rust",
            Self::Mapped => "mapped",
            Self::Copy => "copy",
            Self::Checked => "checked",
            Self::WriteOnly => "write-only",
        }
    }

    /// The end of the name of the file with its code.
    fn ending(self) -> &'static str {
        match self {
            Self::Native | Self::Rust => ".so",
            Self::Mapped | Self::Copy => ".wasm",
            Self::Checked => ".rw.so",
            Self::WriteOnly => ".w.so",
        }
    }
}

/// The functions, bursts and sizes to measure.
pub(crate) struct Plan {
    /// The folder with the compiled modules.
    pub(crate) modules: PathBuf,
    pub(crate) functions: Vec<&'static str>,
    pub(crate) bursts: Vec<usize>,
    /// Routes of `lpm`.
    pub(crate) routes: usize,
    pub(crate) rounds: usize,
    /// Times that all packets go round in a round, at most 250.
    pub(crate) passes: usize,
    /// The core to run on.
    pub(crate) core: Option<usize>,
}

/// A line of the result.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) function: &'static str,
    pub(crate) mode: Mode,
    pub(crate) burst: usize,
    /// ns a packet, by round.
    pub(crate) times: Vec<f64>,
    /// The time of native code divided by this row's: the median of the rounds.
    pub(crate) ratio: f64,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
    /// The frames after the last round, in order.
    pub(crate) frames: Vec<Vec<u8>>,
}

/// A function's blueprint.
pub(crate) fn blueprint(
    modules: &Path,
    function: &str,
    mode: Mode,
    routes: &[Route],
) -> Result<Blueprint, String> {
    if mode == Mode::Rust {
        let blueprint = rust::function(function, routes);
        return blueprint.ok_or_else(|| format!("there is no `{function}` in Rust"));
    }
    let config = match function {
        "policer" => "rate 10000000000 burst 1000000000".to_owned(),
        "lpm" => traffic::lines(routes),
        _ => String::new(),
    };
    let file = modules.join(format!("{function}{}", mode.ending()));
    let named = |error| format!("{}: {error}", file.display());
    if matches!(mode, Mode::Mapped | Mode::Copy) {
        let module = std::fs::read(&file).map_err(named)?;
        let mut settings = SandboxSettings::of(&module);
        settings.config = Some(config);
        if function == "lpm" {
            settings.memory = Bytes::new(48 << 20);
        }
        settings.setup_time = Duration::from_nanoseconds(20_000_000);
        // What is measured is the module, and not how the machine preempts this thread.
        settings.slice = Duration::from_nanoseconds(10_000_000);
        if mode == Mode::Mapped {
            settings.mode = Packets::Mapped;
        }
        return Ok(Blueprint::new(move |worker| node(&settings, worker)));
    }
    // Each node has a library of its own, as each module has a memory of its own.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let copy = std::env::temp_dir().join(format!("fastpaas-{}-{number}.so", std::process::id()));
    let blueprint = Blueprint::new(move |worker| {
        std::fs::copy(&file, &copy)
            .map_err(|error| BuildError::new(format_args!("{}: {error}", file.display())))?;
        let node = native(&copy, &config, worker);
        // What stays in the system's temporary folder does no harm.
        let _ = std::fs::remove_file(&copy);
        node
    });
    Ok(blueprint)
}

/// A row in the making.
struct Lane {
    graph: Graph,
    store: Store,
    pool: Pool,
    row: Row,
}

fn lane(plan: &Plan, row: Row, routes: &[Route], tuples: &Tuples) -> Result<Lane, String> {
    let text = |error: &dyn std::fmt::Display| format!("{} {}: {error}", row.function, row.mode.name());
    let blueprint = blueprint(&plan.modules, row.function, row.mode, routes)?;
    let pool = Pool::builder().frames(2 * PACKETS).build().map_err(|error| text(&error))?;
    let worker = Worker::new(0, 1, pool.clone());
    let mut graph = GraphBuilder::new("figure");
    let function = graph.add_function("function", &blueprint, &worker).map_err(|error| text(&error))?;
    let store = Store::new(&pool, PACKETS, FRAME, row.burst).ok_or_else(|| text(&"too few frames"))?;
    store.set_hook(Some(write_tuples(tuples.clone())));
    let source = graph.add("source", store.source()).map_err(|error| text(&error))?;
    let sink = graph.add("sink", store.sink()).map_err(|error| text(&error))?;
    graph.connect(source, Edge::OUT, function, 0).map_err(|error| text(&error))?;
    let ways: Vec<Edge> = graph.outputs(function).iter().map(|output| output.edge).collect();
    for edge in ways {
        graph.connect(function, edge, sink, 0).map_err(|error| text(&error))?;
    }
    let mut graph = graph.build(pool.clone()).map_err(|error| text(&error))?;
    graph.set_burst(row.burst);
    Ok(Lane { graph, store, pool, row })
}

impl Lane {
    fn name(&self) -> String {
        format!("{} {} at bursts of {}", self.row.function, self.row.mode.name(), self.row.burst)
    }

    /// All packets go round so many times.
    fn round(&mut self, passes: usize, began: Instant) -> Result<(), String> {
        self.store.reset(|_, packet| traffic::write(packet));
        let mut left = (passes * PACKETS / self.row.burst) as u32;
        let start = Instant::now();
        while left > 0 {
            let now = 1_000_000_000 + began.elapsed().as_nanos() as u64;
            let (turn, taken) = self.graph.turns(now, left.min(TURNS));
            if !matches!(turn, Turn::Moved(_)) {
                return Err(format!("{}: a turn moved nothing", self.name()));
            }
            left -= taken.min(left);
        }
        self.row.times.push(start.elapsed().as_nanos() as f64 / (passes * PACKETS) as f64);
        Ok(())
    }

    /// Checks that no packet is missing.
    fn end(mut self) -> Result<Row, String> {
        let totals = self.graph.totals();
        let (received, sent) = (totals.received.packets, totals.sent.packets);
        self.row.packets = received;
        self.row.dropped = totals.drops.total().packets;
        let unbalanced = self.graph.unbalanced();
        if !totals.is_conserved() || !unbalanced.is_empty() || received != sent + self.row.dropped {
            return Err(format!("{}: packets are missing: {totals:?} {unbalanced:?}", self.name()));
        }
        let mut frames = Vec::new();
        self.store.for_each(|_, packet| frames.push(packet.data().to_vec()));
        self.row.frames = frames;
        let name = self.name();
        let Self { graph, store, pool, row } = self;
        drop((graph, store));
        if pool.available() != pool.capacity() {
            return Err(format!("{name}: {} frames leaked", pool.capacity() - pool.available()));
        }
        Ok(row)
    }
}

/// The middle of some numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Pins this thread.
pub(crate) fn pin(core: Option<usize>) -> Result<(), String> {
    core.map_or(Ok(()), |core| {
        netbricks_runtime::pin_this_thread(core).map_err(|error| format!("pinning to core {core}: {error}"))
    })
}

/// Measures all rows of the plan.
///
/// # Errors
/// A module is missing or refused, or packets are.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    pin(plan.core)?;
    let _slot = WorkerSlot::claim().map_err(|error| error.to_string())?;
    let routes = traffic::routes(plan.routes);
    let tuples = traffic::tuples(&routes)?;
    let began = Instant::now();
    let mut rows = Vec::new();
    for function in &plan.functions {
        for burst in &plan.bursts {
            eprintln!("{function} at bursts of {burst}");
            let new = |mode| {
                let row = Row {
                    function,
                    mode,
                    burst: *burst,
                    times: Vec::new(),
                    ratio: f64::NAN,
                    packets: 0,
                    dropped: 0,
                    frames: Vec::new(),
                };
                lane(plan, row, &routes, &tuples)
            };
            let mut lanes = Mode::ALL.into_iter().map(new).collect::<Result<Vec<_>, _>>()?;
            // The first round warms caches up and counts for nothing.
            for round in 0..=plan.rounds {
                for lane in &mut lanes {
                    lane.round(plan.passes, began)?;
                    if round == 0 {
                        lane.row.times.clear();
                    }
                }
            }
            let mut done = lanes.into_iter().map(Lane::end).collect::<Result<Vec<_>, _>>()?;
            let native = done[0].times.clone();
            for row in &mut done {
                let ratios: Vec<f64> = native.iter().zip(&row.times).map(|(of, this)| of / this).collect();
                row.ratio = median(&ratios);
            }
            rows.append(&mut done);
        }
    }
    Ok(rows)
}

/// The rows as CSV.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text =
        String::from("function,mode,burst,ns_per_packet,min,max,mpps,ratio_to_native,packets,dropped\n");
    for row in rows {
        let [min, max] = [f64::min, f64::max].map(|of| row.times.iter().copied().fold(f64::NAN, of));
        let time = median(&row.times);
        // Writing into text never fails.
        let _ = writeln!(
            text,
            "{},{},{},{time:.2},{min:.2},{max:.2},{:.2},{:.3},{},{}",
            row.function,
            row.mode.name(),
            row.burst,
            1e3 / time,
            row.ratio,
            row.packets,
            row.dropped
        );
    }
    text
}
