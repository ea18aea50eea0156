//! `bench control`: round trips of handlers under load, the cost of requests, and the pauses of changes.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_control::api::{ApplyOptions, Code, Problem, Source};
use netbricks_control::{Address, Client, Files, Tasks};
use serde::Serialize;

use super::arguments::ControlArguments;
use super::file::File;
use super::run::{How, execute};
use super::{Application, BenchArguments, Console, Failure, RunLimits, file};

/// Requests a second whose cost is measured, and the clients that share them.
const REQUESTS: u32 = 1_000;
const CLIENTS: u32 = 4;
/// Routes of a request that adds many.
const LINES: usize = 100;

/// How much is measured.
struct Extent {
    /// Round trips of each kind.
    calls: usize,
    /// The time of a window in which packets are counted, with requests or without, and windows of each kind.
    window: Duration,
    windows: usize,
    /// Changes of each kind.
    changes: usize,
    /// Swaps of the large table, and its routes.
    swaps: usize,
    table: usize,
    /// Routes that each client adds and withdraws.
    routes: usize,
}

const WHOLE: Extent = Extent {
    calls: 5_000,
    window: Duration::from_secs(1),
    windows: 5,
    changes: 200,
    swaps: 10,
    table: 100_000,
    routes: 2_000,
};

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
    /// Packets a second beside requests, and the requests a second that were reached.
    mpps_beside_requests: f64,
    requests_per_second: f64,
    /// The share of the packet rate that these requests cost, in percent.
    requests_cost_percent: f64,
    /// Changes of the file, by their kind.
    changes: Vec<Changes>,
    /// Routes that are added or withdrawn in a second, by several clients: one in a request, and many.
    routes_per_second: f64,
    routes_by_lines_per_second: f64,
}

/// Changes of one kind.
#[derive(Debug, Serialize)]
struct Changes {
    kind: &'static str,
    changes: usize,
    /// The time of a change, from the request to its answer (ms).
    median_ms: f64,
    /// The longest time for which a worker moved no packet for a change (µs): median and maximum.
    pause_median_us: f64,
    pause_max_us: f64,
}

pub(super) fn bench_control(console: Console, arguments: &BenchArguments) -> Result<(), Failure> {
    let figures = measured(console, &WHOLE)?;
    if arguments.json { console.json(&figures) } else { console.print(&figures.text()) }
}

fn measured(console: Console, extent: &'static Extent) -> Result<Figures, Failure> {
    let app = Application::new(crate::standard(), crate::Drivers::standard());
    beside_a_run(&app, console, CONFIGURATION, move |run: &Asked| {
        write_tables(&run.directory, extent.table)?;
        measure(&run.client, &run.address, &run.directory, extent)
    })
}

/// A run that is measured, as the thread that measures sees it.
pub(super) struct Asked {
    pub(super) client: Client,
    pub(super) address: Address,
    /// The way to the director within the process.
    pub(super) tasks: Tasks,
    /// A directory for files.
    pub(super) directory: PathBuf,
}

/// Runs a configuration, and has another thread measure it, at whose end the run ends.
///
/// # Errors
/// When it does not start, the thread fails, or packets were lost.
pub(super) fn beside_a_run<F: Send + 'static>(
    app: &Application,
    console: Console,
    configuration: &str,
    measure: impl FnOnce(&Asked) -> Result<F, Problem> + Send + 'static,
) -> Result<F, Failure> {
    let file = File {
        name: "bench.toml".into(),
        text: configuration.into(),
        directory: PathBuf::from("/"),
        files: Files::new(),
    };
    let checked = file::check(app, &file).map_err(|faults| faults.told(console))?;
    let temporary = tempfile::Builder::new().prefix("netbricks-bench-").tempdir();
    let temporary =
        temporary.map_err(|error| Failure::Failed(format!("there is no directory to work in: {error}")))?;
    let directory = temporary.path().to_owned();
    let socket = directory.join("control.sock");
    let control = ControlArguments { socket: Some(socket.clone()), state: None, no_control: false };
    let limits = RunLimits { quiet: true, unannounced: true, ..RunLimits::default() };
    let waiting = Mutex::new(Some(measure));
    let measuring: Mutex<Option<JoinHandle<Result<F, Problem>>>> = Mutex::new(None);
    let begun = |tasks: &Tasks| {
        let address = Address::Unix(socket.clone());
        let client = Client::new(address.clone());
        let run = Asked { client, address, tasks: tasks.clone(), directory: directory.clone() };
        let Some(measure) = waiting.lock().ok().and_then(|mut waiting| waiting.take()) else { return };
        let thread = std::thread::spawn(move || {
            let figures = measure(&run);
            run.client.stop()?;
            figures
        });
        if let Ok(mut measuring) = measuring.lock() {
            *measuring = Some(thread);
        }
    };
    let how = How { control: Some(&control), begun: Some(&begun), ..How::plain(&limits, true) };
    let summary = execute(app, console, &file, checked, &how, None).map_err(|_| {
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
    Ok(figures)
}

fn measure(client: &Client, address: &Address, tables: &Path, extent: &Extent) -> Result<Figures, Problem> {
    let mut figures = Figures::default();
    let read = || client.read("flows", "flows.occupancy", "", None).map(|_| ());
    (figures.read_median_us, figures.read_p99_us) = round_trips(extent.calls, read)?;
    let weight = Cell::new(1u32);
    let write = || {
        weight.set(weight.get() % 2 + 1);
        client.write("lb", "weight", &format!("b {}", weight.get()), None).map(|_| ())
    };
    (figures.write_median_us, figures.write_p99_us) = round_trips(extent.calls, write)?;
    let (mut without, mut with, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let pause = || {
        std::thread::sleep(extent.window);
        Ok(())
    };
    for _ in 0..extent.windows {
        without.push(packets(client, pause)?.0);
        let (packets, seconds) = packets(client, || asked(address, extent.window))?;
        with.push(packets);
        requests.push(f64::from(REQUESTS) * extent.window.as_secs_f64() / seconds);
    }
    let (without, with) = (middle(without), middle(with));
    (figures.mpps, figures.mpps_beside_requests) = (without / 1e6, with / 1e6);
    figures.requests_per_second = middle(requests);
    figures.requests_cost_percent = 100.0 * (1.0 - with / without);
    let through = |functions: &str, rest: &str| {
        format!("{}{rest}", CONFIGURATION.replace("\"flows\", \"lb\"", functions))
    };
    let easy = |number: usize| match number % 3 {
        0 => through("\"ttl\", \"flows\", \"lb\"", ""),
        1 => through("\"flows\", \"lb\"", ""),
        _ => through("\"flows\", \"lb\", \"macswap\"", ""),
    };
    figures.changes.push(changes(client, "functions that come and go", extent.changes, &easy)?);
    let state = |number: usize| {
        CONFIGURATION.replace("\"monitor\"", &format!("\"monitor\"\ncapacity = {}", 65_536 - number % 2))
    };
    figures.changes.push(changes(client, "a table of flows copied", extent.changes, &state)?);
    let backends = |number: usize| {
        CONFIGURATION.replace("00:02\"", &format!("00:02 {}\", \"c 02:00:00:00:00:03\"", 1 + number % 2))
    };
    figures.changes.push(changes(client, "a list of backends changed", extent.changes, &backends)?);
    let routes = |number: usize| {
        let table = tables.join(format!("routes-{}", number % 2));
        let fib = format!("[function.fib]\nuse = \"lpm\"\ntable = {:?}\n", table.display().to_string());
        through("\"fib\", \"flows\", \"lb\"", &fib)
    };
    figures.changes.push(changes(client, "100,000 routes swapped", extent.swaps, &routes)?);
    figures.routes_per_second = routed(address, extent.routes, 1)?;
    figures.routes_by_lines_per_second = routed(address, extent.routes * LINES / 10, LINES)?;
    Ok(figures)
}

/// Writes two tables of routes.
fn write_tables(directory: &Path, routes: usize) -> Result<(), Problem> {
    for table in 0..2 {
        let route = |n: usize| format!("{}.{}.{}.0/24 {table}\n", 1 + n / 65_536, n / 256 % 256, n % 256);
        let text: String = (0..routes).map(route).collect();
        let path = directory.join(format!("routes-{table}"));
        std::fs::write(&path, text).map_err(|error| {
            let detail = format!("a table of routes cannot be written to {}: {error}", path.display());
            Problem::new(Code::Machine, detail)
        })?;
    }
    Ok(())
}

/// The median and the 99th percentile of many calls in a row (µs).
fn round_trips(calls: usize, call: impl Fn() -> Result<(), Problem>) -> Result<(f64, f64), Problem> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[calls / 2], times[calls * 99 / 100]))
}

/// Packets a second while something goes on, and how long that took (s).
fn packets(client: &Client, meanwhile: impl FnOnce() -> Result<(), Problem>) -> Result<(f64, f64), Problem> {
    let (begun, before) = (Instant::now(), client.status()?.received.packets);
    meanwhile()?;
    let packets = client.status()?.received.packets - before;
    let seconds = begun.elapsed().as_secs_f64();
    Ok((packets as f64 / seconds, seconds))
}

/// Asks at [`REQUESTS`] a second for a window, or for longer where the answers take longer.
fn asked(address: &Address, window: Duration) -> Result<(), Problem> {
    let share = REQUESTS / CLIENTS;
    let begun = Instant::now();
    by_clients(|_| {
        let client = Client::new(address.clone());
        for number in 0..share {
            let due = begun + window * number / share;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            client.read("flows", "flows.occupancy", "", None)?;
        }
        std::thread::sleep((begun + window).saturating_duration_since(Instant::now()));
        Ok(())
    })
}

/// The routes that [`CLIENTS`] clients add and withdraw in a second, each so many and `lines` in a request.
fn routed(address: &Address, routes: usize, lines: usize) -> Result<f64, Problem> {
    let begun = Instant::now();
    by_clients(|number| {
        let client = Client::new(address.clone());
        for first in (0..routes / 2).step_by(lines) {
            // Of a network of its own, so that no two clients change the same route.
            let prefix = |n: usize| format!("100.{}.{}.{}/32", 64 + number, n / 256 % 256, n % 256);
            let prefixes = (first..(first + lines).min(routes / 2)).map(prefix);
            let (added, withdrawn): (Vec<_>, Vec<_>) =
                prefixes.map(|prefix| (format!("{prefix} 7\n"), format!("{prefix}\n"))).unzip();
            client.write("fib", "add", added.concat().trim_end(), None)?;
            client.write("fib", "withdraw", withdrawn.concat().trim_end(), None)?;
        }
        Ok(())
    })?;
    Ok((routes / 2 * 2) as f64 * f64::from(CLIENTS) / begun.elapsed().as_secs_f64())
}

/// Has several clients do this at once, each with its number.
fn by_clients(work: impl Fn(u32) -> Result<(), Problem> + Sync) -> Result<(), Problem> {
    std::thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || work(number))).collect();
        let ended = || Problem::new(Code::Internal, "a client of the benchmark ended early");
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| ended())?)
    })
}

/// Applies files of this kind in turn.
fn changes(
    client: &Client,
    kind: &'static str,
    count: usize,
    text: &dyn Fn(usize) -> String,
) -> Result<Changes, Problem> {
    let (mut times, mut pauses) = (Vec::new(), Vec::new());
    // The first change comes from another kind.
    for number in 0..=count {
        let source = Source { text: text(number), name: "bench.toml".into(), directory: "/".into() };
        let begun = Instant::now();
        let applied = client.apply(&source, &ApplyOptions::default(), None)?;
        if number > 0 {
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            pauses.push(applied.longest_pause_ns as f64 / 1e3);
        }
    }
    let pause_max_us = pauses.iter().copied().fold(0.0, f64::max);
    Ok(Changes {
        kind,
        changes: count,
        median_ms: middle(times),
        pause_median_us: middle(pauses),
        pause_max_us,
    })
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Figures {
    fn text(&self) -> String {
        let mut text = format!(
            "packets           {:10.2} Mpps through two functions on one worker\n\
             handler read      {:10.1} µs median {:10.1} µs 99th percentile, answered by the worker\n\
             handler write     {:10.1} µs median {:10.1} µs 99th percentile, by the control side\n\
             {:7.0} requests/s {:10.2} Mpps beside them, which is {:.2} % less\n",
            self.mpps,
            self.read_median_us,
            self.read_p99_us,
            self.write_median_us,
            self.write_p99_us,
            self.requests_per_second,
            self.mpps_beside_requests,
            self.requests_cost_percent,
        );
        text += "changes, no packet lost             times  median ms   pause µs    longest\n";
        for Changes { kind, changes, median_ms, pause_median_us, pause_max_us } in &self.changes {
            text += &format!(
                "  {kind:<32} {changes:6} {median_ms:10.2} {pause_median_us:10.1} {pause_max_us:10.1}\n"
            );
        }
        text += &format!(
            "routes            {:10.0} a second by {CLIENTS} clients, {:.0} with {LINES} in a request\n",
            self.routes_per_second, self.routes_by_lines_per_second
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Extent = Extent {
        calls: 100,
        window: Duration::from_millis(20),
        windows: 1,
        changes: 3,
        swaps: 1,
        table: 1_000,
        routes: 200,
    };

    /// Also that packets are conserved, and that all four kinds of change are made: both are errors otherwise.
    #[test]
    fn the_benchmark_of_the_control_side_ends_well_and_has_all_its_figures() {
        let console = Console { color: false, live: false };
        let figures = measured(console, &SHORT).unwrap_or_else(|_| panic!("it fails"));
        let kinds: Vec<(&str, usize)> =
            figures.changes.iter().map(|changes| (changes.kind, changes.changes)).collect();
        let expected = [
            ("functions that come and go", 3),
            ("a table of flows copied", 3),
            ("a list of backends changed", 3),
            ("100,000 routes swapped", 1),
        ];
        assert_eq!(kinds, expected);
        assert!(figures.mpps > 0.0 && figures.read_median_us > 0.0 && figures.write_median_us > 0.0);
        assert!(figures.routes_per_second > 0.0 && figures.routes_by_lines_per_second > 0.0);
        let text = figures.text();
        assert!(text.lines().last().is_some_and(|line| line.starts_with("routes ")), "{text}");
    }
}
