//! The latency of a quiet tenant, alone and beside 7 tenants whose modules hog the worker.
//!
//! One worker and one port. A demultiplexer gives each tenant its packets in a queue; behind it a module of its own works in the
//! sandbox. The quiet tenant has 20,000 packets a second. The others always have packets. Their modules take most of a slice for
//! each batch (`busy`), or never end (`endless`: they are ended each time, and begin again at once).

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netbricks::sandbox::{SandboxSettings, node};
use netbricks::units;
use netbricks_buffer::{Batch, Pool};
use netbricks_core::tenants::{Demultiplexer, TenantFilter, TenantPolicy, TenantQueue};
use netbricks_core::{Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Worker};
use netbricks_runtime::{Clock, Config, Factory, IdlePolicy, Placement, Runtime};

use crate::endless;
use crate::modes::median;
use crate::traffic;

/// Tenants that hog.
const HOGS: u8 = 7;
/// The time (ns) between two packets of the quiet tenant.
const EVERY: u64 = 50_000;
/// The CPU time (ns) that a hog takes for a batch: most of a module's slice.
///
/// Soon the scheduler demotes it.
const BUSY: f64 = 200_000.0;
/// The same for one that is never demoted: three slices of a tenant, where more than four are an overrun.
const FAIR: f64 = 75_000.0;
/// The slice of a module's batch (ns): a tick, after which it is preempted.
///
/// The goal of two slices means these.
const MODULE_SLICE: f64 = 250_000.0;
/// The slice of a tenant's turns (ns), as the scheduler has it.
const TENANT_SLICE: f64 = 25_000.0;
/// Packets in a batch.
const BURST: usize = 32;
/// Packets that a tenant's queue holds.
const QUEUE: usize = 512;
/// The quiet tenant's last part of an address; the others follow.
const QUIET: u8 = 1;

/// The length of the measurement, and its core.
pub(crate) struct Plan {
    pub(crate) modules: PathBuf,
    /// Seconds of a round.
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) core: Option<usize>,
}

/// A line of the result.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) setup: &'static str,
    /// By round: the median, 99th and 99.9th percentile and the longest latency (µs).
    pub(crate) latencies: Vec<[f64; 4]>,
    /// Packets of the quiet tenant.
    pub(crate) packets: u64,
    /// Packets of the quiet tenant that were dropped.
    pub(crate) lost: u64,
    /// Packets of the others that went through their modules, and that were dropped.
    pub(crate) hogs: (u64, u64),
}

type Latencies = Arc<Mutex<Vec<u64>>>;

/// The time (ns) since it was first asked: the worker's first turn, after all modules are compiled.
#[derive(Clone, Default)]
struct Watch(Rc<OnceCell<Instant>>);

impl Watch {
    fn elapsed(&self) -> u64 {
        self.0.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Brings packets of one tenant at a rate, each with the time (ns) at which it was due.
struct Clocked {
    watch: Watch,
    due: u64,
    end: u64,
}

/// The place of that time in a frame.
const DUE: std::ops::Range<usize> = 42..50;

impl Node for Clocked {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let now = self.watch.elapsed();
        while self.due <= now && self.due < self.end && batch.len() < BURST {
            let mut frame = traffic::frame();
            frame[33] = QUIET;
            frame[DUE].copy_from_slice(&self.due.to_be_bytes());
            let Some(packet) = cx.pool().packet(&frame) else { break };
            if batch.push(packet).is_err() {
                break;
            }
            self.due += EVERY;
        }
        if self.due >= self.end {
            Poll::Done
        } else if batch.is_empty() {
            Poll::Idle
        } else {
            Poll::Busy
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Brings packets of the others, a batch of each in turn, as many as it is asked for.
struct Flood {
    watch: Watch,
    end: u64,
    tenant: u8,
}

impl Node for Flood {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        if self.watch.elapsed() >= self.end {
            return Poll::Done;
        }
        let mut frame = traffic::frame();
        frame[33] = QUIET + 1 + self.tenant;
        self.tenant = (self.tenant + 1) % HOGS;
        cx.pool().allocate_written_into(batch, BURST, &frame);
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Sends packets; of the quiet tenant's it notes how late they are.
struct Ends {
    watch: Watch,
    latencies: Option<Latencies>,
}

impl Node for Ends {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        if let Some(latencies) = &self.latencies {
            let now = self.watch.elapsed();
            let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
            for packet in batch.iter() {
                let due = packet.data().get(DUE).and_then(|bytes| bytes.try_into().ok());
                latencies.push(now.saturating_sub(due.map_or(0, u64::from_be_bytes)));
            }
        }
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// How the others behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hogs {
    None,
    /// Their modules take a tenant's slice and stay below an overrun, so that the scheduler demotes none of them.
    Fair,
    Busy,
    Endless,
}

impl Hogs {
    const ALL: [Self; 4] = [Self::None, Self::Fair, Self::Busy, Self::Endless];

    /// The CPU time (ns) that a module takes for a batch.
    fn batch(self) -> f64 {
        if self == Self::Fair { FAIR } else { BUSY }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "alone",
            Self::Fair => "beside-7-not-demoted",
            Self::Busy => "beside-7-busy",
            Self::Endless => "beside-7-endless",
        }
    }
}

/// The modules of a graph.
#[derive(Clone)]
struct Modules {
    quiet: Vec<u8>,
    spin: Vec<u8>,
    /// Turns of a busy hog's loop for each batch.
    turns: u64,
}

impl Modules {
    fn function(&self, hogs: Option<Hogs>) -> Blueprint {
        let Some(hogs) = hogs else {
            let settings = SandboxSettings::of(&self.quiet);
            return Blueprint::new(move |worker| node(&settings, worker));
        };
        let mut settings = SandboxSettings::of(&self.spin);
        if hogs != Hogs::Endless {
            let turns = (self.turns as f64 * hogs.batch() / BUSY) as u64;
            settings.config = Some(turns.max(1).to_string());
        }
        // By default they would be stopped after 8 faults: the worst case is that they never are.
        (settings.strikes, settings.backoff) = (0, units::Duration::from_nanoseconds(0));
        Blueprint::new(move |worker| node(&settings, worker))
    }
}

fn graph(
    hogs: Hogs,
    modules: &Modules,
    end: u64,
    latencies: Latencies,
    worker: &Worker,
    pool: &Pool,
) -> Result<Graph, Box<dyn std::error::Error + Send + Sync>> {
    let watch = Watch::default();
    let tenants = if hogs == Hogs::None { 1 } else { 1 + HOGS };
    let mut graph = GraphBuilder::new("quiet");
    let filter = |tenant: u8| TenantFilter {
        tenant: format!("t{tenant}"),
        addresses: vec![([10, 0, 0, QUIET + tenant].into(), 32)],
        vlans: Vec::new(),
    };
    let split =
        graph.add("split", Box::new(Demultiplexer::new((0..tenants).map(filter).collect(), false)?))?;
    let quiet = graph.add("port", Box::new(Clocked { watch: watch.clone(), due: 0, end }))?;
    graph.connect(quiet, Edge::OUT, split, 0)?;
    if hogs != Hogs::None {
        let flood = graph.add("flood", Box::new(Flood { watch: watch.clone(), end, tenant: 0 }))?;
        graph.connect(flood, Edge::OUT, split, 0)?;
    }
    let (quiet_function, hog_function) = (modules.function(None), modules.function(Some(hogs)));
    for tenant in 0..tenants {
        let queue = graph.add(format!("queue{tenant}"), Box::new(TenantQueue::new(QUEUE)))?;
        let function = if tenant == 0 { &quiet_function } else { &hog_function };
        let function = graph.add_function(format!("function{tenant}"), function, worker)?;
        let latencies = (tenant == 0).then(|| latencies.clone());
        let sink = graph.add(format!("out{tenant}"), Box::new(Ends { watch: watch.clone(), latencies }))?;
        graph.connect(split, Demultiplexer::edge(usize::from(tenant)), queue, 0)?;
        graph.connect(queue, Edge::OUT, function, 0)?;
        graph.connect(function, Edge::OUT, sink, 0)?;
        graph.connect(function, Edge::REPLY, sink, 0)?;
        for node in [queue, function] {
            graph.own(node, u16::from(tenant) + 1);
        }
    }
    graph.share_among((0..tenants).map(|tenant| TenantPolicy::new(format!("t{tenant}"))).collect());
    Ok(graph.build(pool.clone())?)
}

/// One run of a setup.
fn round(plan: &Plan, hogs: Hogs, modules: &Modules, row: &mut Row) -> Result<(), String> {
    let pool = Pool::builder().frames(16_384).build().map_err(|error| error.to_string())?;
    let mut config = Config::new(pool).clock(Clock::real()).idle(IdlePolicy::Latency);
    if let Some(core) = plan.core {
        config = config.placement(Placement::Cores(vec![core]));
    }
    let end = Duration::from_secs_f64(plan.seconds).as_nanos() as u64;
    let latencies = Latencies::default();
    let (modules, shared) = (modules.clone(), latencies.clone());
    let factory = move |context: &netbricks_runtime::WorkerContext| {
        graph(hogs, &modules, end, shared, context.worker(), context.pool())
    };
    let mut factory = Some(Factory::new(factory));
    let runtime = Runtime::start(config, |_| factory.take().expect("there is one worker"));
    let report = runtime.map_err(|error| error.to_string())?.wait();
    if !report.conserved || !report.pool_whole {
        return Err(format!("packets are missing: {:?}", report.unbalanced));
    }
    let mut latencies = std::mem::take(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner));
    latencies.sort_unstable();
    let offered = end.div_ceil(EVERY);
    let (sent, dropped) = (report.totals.sent.packets, report.totals.drops.total().packets);
    let at = |share: f64| {
        let place = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(place).map_or(f64::NAN, |latency| *latency as f64 / 1e3)
    };
    row.latencies.push([at(0.5), at(0.99), at(0.999), at(1.0)]);
    row.packets += latencies.len() as u64;
    let lost = offered - latencies.len() as u64;
    row.lost += lost;
    row.hogs.0 += sent - latencies.len() as u64;
    row.hogs.1 += dropped - lost;
    Ok(())
}

/// Measures all setups in turn.
///
/// # Errors
/// A module is missing, or packets are.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let read = |name: &str| {
        let file = plan.modules.join(name);
        std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    // Nothing here is pinned but the workers: the measurement of the loop's speed has a thread of its own.
    let turns = 10_000;
    let of_turns = endless::of_turns(&plan.modules, turns, plan.core)?;
    let turns = (turns as f64 * BUSY / of_turns) as u64;
    let modules = Modules { quiet: read("macswap.wasm")?, spin: read("spin.wasm")?, turns: turns.max(1) };
    let new =
        |hogs: Hogs| Row { setup: hogs.name(), latencies: Vec::new(), packets: 0, lost: 0, hogs: (0, 0) };
    let mut rows: Vec<Row> = Hogs::ALL.map(new).into();
    for number in 0..plan.rounds {
        eprintln!("quiet: round {} of {}", number + 1, plan.rounds);
        for (hogs, row) in Hogs::ALL.into_iter().zip(&mut rows) {
            round(plan, hogs, &modules, row).map_err(|problem| format!("{}: {problem}", hogs.name()))?;
        }
    }
    Ok(rows)
}

/// The rows as CSV.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "setup,p50_us,p99_us,p999_us,longest_us,more_than_alone_us,more_in_module_slices,more_in_tenant_slices,packets,lost,hogs_sent,hogs_dropped\n",
    );
    let of =
        |row: &Row, place: usize| median(&row.latencies.iter().map(|round| round[place]).collect::<Vec<_>>());
    let alone = rows.first().map_or(f64::NAN, |row| of(row, 1));
    for row in rows {
        let more = of(row, 1) - alone;
        // Writing into text never fails.
        let _ = writeln!(
            text,
            "{},{:.1},{:.1},{:.1},{:.1},{more:.1},{:.2},{:.2},{},{},{},{}",
            row.setup,
            of(row, 0),
            of(row, 1),
            of(row, 2),
            of(row, 3),
            more * 1e3 / MODULE_SLICE,
            more * 1e3 / TENANT_SLICE,
            row.packets,
            row.lost,
            row.hogs.0,
            row.hogs.1
        );
    }
    text
}
