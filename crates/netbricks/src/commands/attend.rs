//! Attends to a run until it ends: tasks of the control API, events, links, signals and the live line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use netbricks_control::api::{Applied, ApplyOptions, Code, EventLevel, Problem, RunState};
use netbricks_control::{Change, Director, Events, Records, Tasks, Waiting};
use netbricks_core::tables::stock;
use netbricks_core::tenants::TenantEvent;
use netbricks_ports::{Link, Port};
use netbricks_runtime::{
    Event, EventSink, FinalReport, ReportRequests, Runtime, Stuck, stop_on_signals,
    stop_or_reload_on_signals, stopping_signals,
};
use sd_notify::NotifyState;

use super::file::File;
use super::log;
use super::progress::LiveLine;
use super::run::Begun;
use super::session::{FunctionEvents, Session};
use super::shared_watchdog::notify;
use super::{Console, Failure, RunLimits};
use crate::chain::OpenPorts;
use crate::diagnostic::Level;
use crate::report;

/// How often a run updates the live line and looks for changed links and new warnings.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often a run looks for workers that do not come back from a function.
const WATCH: Duration = Duration::from_millis(50);
/// Unread events beyond which new ones are lost.
const EVENTS: usize = 256;

/// The requests that signals have made so far.
pub(super) struct Interrupts {
    stop: Arc<AtomicBool>,
    report: ReportRequests,
}

/// Listens to the process's signals from now on.
///
/// Ctrl-C while ports are being opened leaves none of them half open: the run ends, in order, as soon as it
/// has begun. SIGUSR1 no longer ends the process.
pub(super) fn interruptible() -> Result<Interrupts, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in stopping_signals() {
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| deaf(&error))?;
    }
    Ok(Interrupts { stop, report: report_requests()? })
}

/// Listens to SIGUSR1 from now on.
pub(super) fn report_requests() -> Result<ReportRequests, Failure> {
    ReportRequests::listen().map_err(|error| deaf(&error))
}

fn deaf(error: &std::io::Error) -> Failure {
    Failure::Failed(format!("signals cannot be listened to: {error}"))
}

/// The runtime's events, each of which also wakes the director.
pub(super) fn heard_events(tasks: &Tasks) -> (EventSink, mpsc::Receiver<Event>) {
    let (sender, heard) = mpsc::sync_channel(EVENTS);
    let tasks = tasks.clone();
    let sink = EventSink::new(move |event| {
        // Where too many are unread, new ones are lost.
        let _lost = sender.try_send(event);
        let _busy = tasks.post(|_| ());
    });
    (sink, heard)
}

/// Nanoseconds since 1970 (UTC).
pub(super) fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A file that SIGHUP applies again.
#[derive(Clone, Debug)]
pub(super) struct Reloaded {
    path: PathBuf,
    /// Values of a Click configuration's parameters.
    parameters: Vec<String>,
    /// Its name in the history and in messages.
    name: String,
}

impl Reloaded {
    /// The file of the command line, or else the one that the restored configuration was read from.
    pub(super) fn of(given: Option<&Path>, parameters: &[String], file: &File) -> Self {
        let restored = || file.directory.join(Path::new(&file.name).file_name().unwrap_or_default());
        let parameters = if given.is_some() { parameters.to_vec() } else { parameters_of(&file.text) };
        let path = given.map_or_else(restored, Path::to_owned);
        Self { path, parameters, name: file.name.clone() }
    }
}

/// The values of a Click configuration's parameters, in the chain file that was made of it.
fn parameters_of(text: &str) -> Vec<String> {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let values = || table.get("function")?.get("click")?.get("parameters")?.as_array();
    values().into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect()
}

/// Applies the file again, because a signal asked for it.
fn reload(director: &mut Director<'_>, reloaded: &Reloaded, console: Console, tasks: &Tasks) {
    let Reloaded { path, parameters, name } = reloaded;
    let (events, shown) = (director.events(), path.display().to_string());
    let refused = move |problem: Problem| {
        let told = format!("SIGHUP: the file was not applied: {}", problem.detail);
        // In a log of JSON, the event has it.
        if !log::is_json() {
            console.complain(Level::Error, &told);
            console.tell(&problem.rendered.unwrap_or_default());
        }
        events.tell(EventLevel::Error, "not-applied", shown, told);
    };
    // The director would wait for the writer of a pipe.
    if let Err(error) = netbricks_core::open_file(path).map(drop)
        && error.kind() == std::io::ErrorKind::InvalidInput
    {
        return refused(Problem::new(
            Code::NotFound,
            format!("`{}` cannot be read: {error}", path.display()),
        ));
    }
    let file = match File::read_with(path, parameters).map(|file| File { name: name.clone(), ..file }) {
        Ok(file) => file,
        Err(Failure::Usage(text) | Failure::Failed(text)) => {
            return refused(Problem::new(Code::NotFound, text));
        }
        Err(_) => {
            let text = format!("`{}` cannot be read", path.display());
            return refused(Problem::new(Code::NotFound, text));
        }
    };
    let (source, options) = (file.source(), ApplyOptions::default());
    let change = Change::Apply { source, options, expected: None, time_ns: now_ns() };
    let answer = move |_: u64, applied: Result<Applied, Problem>| {
        if let Err(problem) = applied {
            refused(problem);
        }
    };
    director.change(change, tasks, Box::new(answer));
}

/// Where a run is shown, and what it hears of.
pub(super) struct Attending<'a> {
    /// The file that SIGHUP applies again; without one the signal ends the run.
    pub(super) reloads: Option<Reloaded>,
    pub(super) console: Console,
    pub(super) limits: &'a RunLimits,
    pub(super) json: bool,
    pub(super) interrupts: &'a Interrupts,
    pub(super) heard: &'a mpsc::Receiver<Event>,
}

/// Attends to a run until it ends; returns the events that it showed, for the final report.
///
/// It does the tasks of the control API, updates the live line, and looks for changed links and events. It stops
/// the run on signals, and writes the reports that SIGUSR1 asks for.
pub(super) fn attend(
    attending: &Attending<'_>,
    runtime: Runtime,
    session: &mut Session<'_>,
    waiting: &Waiting,
    records: &mut Records,
) -> Result<(FinalReport, Vec<String>), Failure> {
    let Attending { console, limits, json, interrupts, .. } = *attending;
    let (stopped, told) = mpsc::channel();
    let tasks = session.tasks.clone();
    let first = move |line: &str| {
        // The receiver is gone when the run has already ended by itself.
        let _ = stopped.send(line.to_owned());
        let _busy = tasks.post(|_| ());
    };
    let signals = match &attending.reloads {
        None => stop_on_signals(runtime.stop_handle(), first),
        Some(reloaded) => {
            let (reloaded, tasks) = (reloaded.clone(), session.tasks.clone());
            let reload = move || {
                let reloaded = reloaded.clone();
                let (again, tasks) = (tasks.clone(), tasks.clone());
                // This thread hears signals: it waits for no room in the director's queue.
                std::thread::spawn(move || {
                    tasks.post_patiently(move |director| reload(director, &reloaded, console, &again));
                });
            };
            stop_or_reload_on_signals(runtime.stop_handle(), first, reload)
        }
    }
    .map_err(|error| deaf(&error))?;
    if interrupts.stop.load(Ordering::Relaxed) {
        runtime.stop_handle().stop();
    }
    let stopping = |line: &str| {
        if !limits.quiet && !json {
            console.tell(&format!("{line}\n"));
        }
    };
    // Where no service manager waits for it, this does nothing.
    notify(&[NotifyState::Ready]);
    let queue = session.tasks.clone();
    let mut live = LiveLine::new(console, !limits.quiet && !json);
    let mut watched = Watched::new(session);
    let mut function_events = FunctionEvents::default();
    let mut told_of: Vec<String> = Vec::new();
    let mut is_stopping = false;
    loop {
        let look_at = Instant::now() + INTERVAL;
        let mut ended = runtime.wait_timeout(Duration::ZERO);
        while !ended && Instant::now() < look_at {
            watched.look_for_stuck(session);
            let until = (Instant::now() + WATCH).min(look_at);
            let until = records.deadline().map_or(until, |deadline| deadline.min(until));
            let task = waiting.next(until);
            let was_task = task.is_some();
            let mut director = Director::new(session, records);
            task.into_iter().for_each(|task| task(&mut director));
            director.tick(Instant::now(), &queue);
            ended = runtime.wait_timeout(Duration::ZERO);
            if was_task && watched.has_news(attending, session) {
                break;
            }
        }
        if !records.is_preparing() {
            // A change may have put memory there for its tables.
            stock::give_back();
        }
        notify(&[NotifyState::Watchdog]);
        // Also what came since the last task: the run may have ended with it.
        watched.has_news(attending, session);
        let (shown, lines) = watched.news(session);
        function_events.look(session);
        told_of.extend(shown.into_iter().take(EVENTS.saturating_sub(told_of.len())));
        // In a log of JSON, the events have them.
        if !lines.is_empty() && !log::is_json() {
            live.clear();
            lines.iter().for_each(|line| console.complain(Level::Warning, line));
        }
        if let Ok(line) = told.try_recv() {
            session.state = RunState::Stopping;
            live.clear();
            stopping(&line);
        }
        // A client may have asked to stop, or the sources have ended.
        if !is_stopping && (ended || session.is_stopping()) {
            is_stopping = true;
            notify(&[NotifyState::Stopping]);
        }
        if ended {
            break;
        }
        if interrupts.report.take() {
            live.clear();
            tell_so_far(console, &runtime, &session.ports, json, &session.begun);
        }
        live.update(runtime.progress(), runtime.elapsed());
    }
    live.clear();
    // After the listening thread has ended, all its lines are in the channel, even if the run ended quickly.
    drop(signals);
    told.try_iter().for_each(|line| stopping(&line));
    Ok((runtime.wait(), told_of))
}

/// The things to look at while a run goes on: events of workers, links, packets that are too big.
struct Watched {
    links: BTreeMap<String, Link>,
    sizes: BTreeMap<String, Oversized>,
    heard: Vec<Event>,
}

impl Watched {
    fn new(session: &Session<'_>) -> Self {
        let links = session.ports.iter().map(|port| (port.name().to_owned(), port.link())).collect();
        Self { links, sizes: BTreeMap::new(), heard: Vec::new() }
    }

    /// Records workers that do not come back from a function, and those that do again.
    fn look_for_stuck(&mut self, session: &mut Session<'_>) {
        for stuck in session.watchdog.look() {
            let event = match stuck {
                Stuck::Began { worker, node, time } => {
                    let place = node
                        .map_or_else(|| "a command of the control side".into(), |node| format!("`{node}`"));
                    let told =
                        format!("worker {worker} has not come back from {place} for {} ms", time.as_millis());
                    (EventLevel::Error, "stuck", worker, told)
                }
                Stuck::Ended { worker, time } => {
                    let told = format!("worker {worker} goes on after {} ms", time.as_millis());
                    (EventLevel::Warning, "goes-on", worker, told)
                }
            };
            let (level, kind, worker, told) = event;
            session.events.tell(level, kind, worker.to_string(), told.clone());
            self.heard.push(Event::Warning(told));
        }
    }

    /// Whether workers have told something since.
    fn has_news(&mut self, attending: &Attending<'_>, session: &Session<'_>) -> bool {
        let before = self.heard.len();
        self.heard.extend(attending.heard.try_iter());
        self.heard[before..].iter().for_each(|event| record_event(&session.events, event));
        self.heard.len() > before
    }

    /// The lines for the final report, and those to show now.
    fn news(&mut self, session: &Session<'_>) -> (Vec<String>, Vec<String>) {
        let events = std::mem::take(&mut self.heard).into_iter();
        let events = events.filter(|event| !matches!(event, Event::WorkerEnded { .. }));
        // The report lists panics by their place, and nodes that failed among the failures.
        let (panics, events): (Vec<_>, Vec<_>) =
            events.partition(|event| matches!(event, Event::Panic { .. } | Event::NodeFailed { .. }));
        let mut shown: Vec<String> = events.iter().map(Event::to_string).collect();
        for port in session.ports.iter() {
            let name = port.name();
            for oversized in self.sizes.entry(name.to_owned()).or_default().look(port) {
                session.events.tell(EventLevel::Warning, "warning", name, oversized.clone());
                shown.push(oversized);
            }
            let link = port.link();
            let known = self.links.insert(name.to_owned(), link);
            if known.is_some_and(|known| known != link) {
                let event = link_event(name, link);
                record_event(&session.events, &event);
                shown.push(event.to_string());
            }
        }
        let mut lines = shown.clone();
        lines.extend(panics.iter().map(Event::to_string));
        (shown, lines)
    }
}

/// Records an event of the runtime for the control API.
fn record_event(events: &Events, event: &Event) {
    let (level, kind, subject) = match event {
        Event::Panic { panic, .. } => (EventLevel::Error, "panic", panic.node.clone()),
        Event::NodeFailed { node, .. } => (EventLevel::Error, "node-failed", node.clone()),
        Event::PortDown { port, .. } => (EventLevel::Warning, "port-down", port.clone()),
        Event::PortUp { port } => (EventLevel::Info, "port-up", port.clone()),
        Event::Tenant { event, .. } => match event {
            TenantEvent::Overran { tenant, .. } => (EventLevel::Warning, "tenant-overran", tenant.clone()),
            TenantEvent::Preempted { tenant } => (EventLevel::Warning, "tenant-preempted", tenant.clone()),
            TenantEvent::Demoted { tenant } => (EventLevel::Warning, "tenant-demoted", tenant.clone()),
            TenantEvent::Restored { tenant } => (EventLevel::Info, "tenant-restored", tenant.clone()),
        },
        Event::WorkerEnded { worker } => (EventLevel::Info, "worker-ended", worker.to_string()),
        _ => (EventLevel::Warning, "warning", String::new()),
    };
    events.tell(level, kind, subject, event.to_string());
}

/// Whether a port's packets that are too big were reported: once for each direction.
#[derive(Default)]
struct Oversized {
    arrivals: bool,
    departures: bool,
}

impl Oversized {
    /// The lines to print now, if any.
    fn look(&mut self, port: &dyn Port) -> Vec<String> {
        if self.arrivals && self.departures {
            return Vec::new();
        }
        let (mut arrivals, mut departures) = (0, 0);
        for counters in port.counters() {
            arrivals += counters.too_big_to_receive.load(Ordering::Relaxed);
            departures += counters.too_big_to_send.load(Ordering::Relaxed);
        }
        let mut lines = Vec::new();
        if arrivals > 0 && !std::mem::replace(&mut self.arrivals, true) {
            let why = report::too_big_to_receive();
            lines.push(format!("{}: arrivals are dropped as too-big, {why}", port.name()));
        }
        if departures > 0 && !std::mem::replace(&mut self.departures, true) {
            let why = report::too_big_to_send(port.mtu());
            lines.push(format!("{}: packets are dropped as too-big, {why}", port.name()));
        }
        lines
    }
}

/// The event for a port whose link has changed.
fn link_event(port: &str, link: Link) -> Event {
    let problem = match link {
        Link::Up => return Event::PortUp { port: port.into() },
        Link::Down => "its device has no link, or was set down; it goes on when the device does",
        Link::Gone => {
            "its device was removed; the rest of the run goes on, and it as well when there is one of that name again"
        }
    };
    Event::PortDown { port: port.into(), problem: problem.into() }
}

pub(super) fn link_name(link: Link) -> &'static str {
    match link {
        Link::Up => "up",
        Link::Down => "down",
        Link::Gone => "gone",
    }
}

/// Writes the report so far, in the format of the final one.
///
/// With `--json` it is one more line on standard output. Else it goes to standard error, so that it does not
/// get between the lines of the final report.
fn tell_so_far(console: Console, runtime: &Runtime, ports: &OpenPorts, json: bool, begun: &Begun<'_>) {
    let told = match begun.so_far(runtime, ports) {
        Ok(summary) if json => console.json(&summary),
        Ok(summary) => {
            console.tell(&summary.text());
            Ok(())
        }
        Err(error) => Err(Failure::Failed(error.to_string())),
    };
    // If standard output was closed, the final report will find out.
    if let Err(Failure::Failed(error)) = told {
        console.complain(Level::Warning, &format!("there is no report so far: {error}"));
    }
}
