//! `bench control`: round trips of handlers under load, the cost of requests, and the pauses of changes.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_control::api::{ApplyOptions, Problem, Source};
use netbricks_control::{Address, Client, Files, Tasks};
use serde::Serialize;

use super::arguments::ControlArguments;
use super::file::File;
use super::run::{How, execute};
use super::{Application, BenchArguments, Console, Failure, RunLimits, file};

/// Round trips that are measured of each kind.
const CALLS: usize = 5_000;
/// Requests a second whose cost is measured.
const REQUESTS: u32 = 1_000;
/// The time of a window in which packets are counted, with requests or without.
const WINDOW: Duration = Duration::from_secs(1);
/// Windows of each kind.
const WINDOWS: usize = 5;
/// Changes that are measured.
const CHANGES: usize = 200;

/// An endless generator through a monitor and a load balancer.
const CONFIGURATION: &str = "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\n[port.out]\ndriver = \"null\"\n\
    [function.flows]\nuse = \"monitor\"\n\
    [function.lb]\nuse = \"maglev\"\nbackends = [\"a 02:00:00:00:00:01\", \"b 02:00:00:00:00:02\"]\n\
    [[chain]]\nfrom = \"lan\"\nthrough = [\"flows\", \"lb\"]\nto = \"out\"\n[runtime]\nworkers = 1\n";

/// The figures.
#[derive(Debug, Default, Serialize)]
struct Figures {
    /// Packets a second without requests.
    mpps: f64,
    /// Round trips of a handler that a worker answers (µs): median and 99th percentile.
    read_median_us: f64,
    read_p99_us: f64,
    /// Round trips of a handler that the control side answers (µs).
    write_median_us: f64,
    write_p99_us: f64,
    /// The share of the packet rate that 1,000 requests a second cost, in percent.
    requests_cost_percent: f64,
    /// Changes of the file.
    changes: usize,
    /// The time of a change, from the request to its answer (ms).
    change_median_ms: f64,
    /// The longest time for which a worker moved no packet for a change (µs): median and maximum.
    pause_median_us: f64,
    pause_max_us: f64,
}

pub(super) fn bench_control(console: Console, arguments: &BenchArguments) -> Result<(), Failure> {
    let app = Application { registry: crate::standard(), drivers: crate::Drivers::standard() };
    let file = File {
        name: "bench.toml".into(),
        text: CONFIGURATION.into(),
        directory: PathBuf::from("/"),
        files: Files::new(),
    };
    let checked = file::check(&app, &file).map_err(|faults| faults.told(console))?;
    let socket = std::env::temp_dir().join(format!("netbricks-bench-{}.sock", std::process::id()));
    let control = ControlArguments { socket: Some(socket.clone()), state: None, no_control: false };
    let limits = RunLimits { quiet: true, unannounced: true, ..RunLimits::default() };
    let measuring: Mutex<Option<JoinHandle<Result<Figures, Problem>>>> = Mutex::new(None);
    let begun = |_: &Tasks| {
        let client = Client::new(Address::Unix(socket.clone()));
        let thread = std::thread::spawn(move || {
            let figures = measure(&client);
            client.stop()?;
            figures
        });
        if let Ok(mut measuring) = measuring.lock() {
            *measuring = Some(thread);
        }
    };
    let how = How { control: Some(&control), begun: Some(&begun), ..How::plain(&limits, true) };
    let summary = execute(&app, console, &file, checked, &how, None).map_err(|_| {
        Failure::Failed("the dataplane of the benchmark did not start: see the lines above".into())
    })?;
    let thread = measuring.into_inner().ok().flatten();
    let figures = thread.map(JoinHandle::join).transpose();
    let failed = || Failure::Failed("the thread that measures ended early".into());
    let figures = figures.map_err(|_| failed())?.ok_or_else(failed)?;
    let figures = figures.map_err(|problem| Failure::Failed(problem.detail))?;
    if !summary.conserved || !summary.dropped.is_empty() {
        return Err(Failure::Failed("packets were lost in the changes".into()));
    }
    if arguments.json { console.json(&figures) } else { console.print(&figures.text()) }
}

fn measure(client: &Client) -> Result<Figures, Problem> {
    let mut figures = Figures::default();
    let read = || client.read("flows", "flows.occupancy", "", None).map(|_| ());
    (figures.read_median_us, figures.read_p99_us) = round_trips(read)?;
    let weight = Cell::new(1u32);
    let write = || {
        weight.set(weight.get() % 2 + 1);
        client.write("lb", "weight", &format!("b {}", weight.get()), None).map(|_| ())
    };
    (figures.write_median_us, figures.write_p99_us) = round_trips(write)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        without.push(rate(client, None)?);
        with.push(rate(client, Some(REQUESTS))?);
    }
    let (without, with) = (middle(without), middle(with));
    figures.mpps = without / 1e6;
    figures.requests_cost_percent = 100.0 * (1.0 - with / without);
    changes(client, &mut figures)?;
    Ok(figures)
}

/// The median and the 99th percentile of many calls in a row (µs).
fn round_trips(call: impl Fn() -> Result<(), Problem>) -> Result<(f64, f64), Problem> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[CALLS / 2], times[CALLS * 99 / 100]))
}

/// Packets a second in a window, with so many requests a second.
fn rate(client: &Client, requests: Option<u32>) -> Result<f64, Problem> {
    let (begun, before) = (Instant::now(), client.status()?.received.packets);
    match requests {
        None => std::thread::sleep(WINDOW),
        Some(requests) => {
            for number in 0.. {
                let due = begun + Duration::from_secs(1) / requests * number;
                if due >= begun + WINDOW {
                    break;
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                client.read("flows", "flows.occupancy", "", None)?;
            }
        }
    }
    let packets = client.status()?.received.packets - before;
    Ok(packets as f64 / begun.elapsed().as_secs_f64())
}

/// Applies files that differ in their functions, in turn.
fn changes(client: &Client, figures: &mut Figures) -> Result<(), Problem> {
    let (mut times, mut pauses) = (Vec::new(), Vec::new());
    for number in 0..CHANGES {
        let through =
            ["\"ttl\", \"flows\", \"lb\"", "\"flows\", \"lb\"", "\"flows\", \"lb\", \"macswap\""][number % 3];
        let text = CONFIGURATION.replace("\"flows\", \"lb\"", through);
        let source = Source { text, name: "bench.toml".into(), directory: "/".into() };
        let begun = Instant::now();
        let applied = client.apply(&source, &ApplyOptions::default(), None)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        pauses.push(applied.longest_pause_ns as f64 / 1e3);
    }
    figures.changes = CHANGES;
    figures.pause_max_us = pauses.iter().copied().fold(0.0, f64::max);
    figures.change_median_ms = middle(times);
    figures.pause_median_us = middle(pauses);
    Ok(())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Figures {
    fn text(&self) -> String {
        format!(
            "packets               {:10.2} Mpps through two functions on one worker\n\
             handler read          {:10.1} µs median {:10.1} µs 99th percentile, answered by the worker\n\
             handler write         {:10.1} µs median {:10.1} µs 99th percentile, by the control side\n\
             1,000 requests/s      {:10.2} % of the packet rate\n\
             change of the file    {:10.2} ms median of {}, no packet lost\n\
             pause of the worker   {:10.1} µs median {:10.1} µs longest\n",
            self.mpps,
            self.read_median_us,
            self.read_p99_us,
            self.write_median_us,
            self.write_p99_us,
            self.requests_cost_percent,
            self.change_median_ms,
            self.changes,
            self.pause_median_us,
            self.pause_max_us
        )
    }
}
