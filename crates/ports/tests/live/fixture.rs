//! A laboratory of network namespaces, made for one test and removed with it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_buffer::{Pool, WorkerSlot};
use netbricks_core::{Edge, GraphBuilder, Totals, Turn};
use netbricks_ports::{Counters, Drivers, Link, OpenContext, OpenError, Port, ReceiveNode, TransmitNode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use toml::de::DeTable;

/// Whether this process can make namespaces and TAP devices. Prints a line if it cannot.
pub(crate) fn is_possible() -> bool {
    let possible = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    if !possible {
        // Written past the test harness, which would hide the output of a passing test.
        let _ = writeln!(std::io::stderr(), "skipped: needs root and /dev/net/tun");
    }
    possible
}

/// Namespaces with unique names.
pub(crate) struct Lab {
    prefix: String,
    names: Vec<String>,
}

impl Lab {
    /// `None`, with a printed line, if the test cannot run.
    pub(crate) fn new(roles: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_possible() {
            return None;
        }
        let prefix = format!("nb{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut lab = Self { prefix, names: Vec::new() };
        for role in roles {
            let name = lab.name(role);
            run("ip", ["netns", "add", &name]);
            lab.names.push(name);
            // No router solicitations and no duplicate address detection beside the test's own traffic.
            lab.run(
                role,
                "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0",
            );
            lab.run(role, "ip link set lo up");
        }
        Some(lab)
    }
    /// The namespace of a role.
    pub(crate) fn name(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }
    /// Runs a command in a namespace; it must succeed.
    pub(crate) fn run(&self, role: &str, command: &str) -> String {
        let output = self.try_run(role, command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{role}: {command}: {errors}{text}");
        text
    }
    /// Runs a command in a namespace.
    pub(crate) fn try_run(&self, role: &str, command: &str) -> Output {
        let name = self.name(role);
        let output = bounded("ip").args(["netns", "exec", &name]).args(command.split(' ')).output().unwrap();
        assert_ne!(output.status.code(), Some(TIMED_OUT), "{role}: {command}: not within {PATIENCE:?}");
        output
    }
    /// A pair of interfaces, each in its namespace, up.
    pub(crate) fn veth(&self, (role, device): (&str, &str), (other_role, other): (&str, &str)) {
        let other_name = self.name(other_role);
        self.run(role, &format!("ip link add {device} type veth peer name {other} netns {other_name}"));
        self.run(role, &format!("ip link set {device} up"));
        self.run(other_role, &format!("ip link set {other} up"));
    }
    /// Runs a closure on a thread of its own inside a namespace.
    pub(crate) fn inside<R: Send + 'static>(
        &self,
        role: &str,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let name = self.name(role);
        std::thread::spawn(move || {
            enter(&name);
            f()
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = bounded("ip").args(["netns", "del", name]).output();
        }
    }
}

/// The longest time for any action, however busy the machine is.
///
/// An action that takes longer never ends, and the test names it.
const PATIENCE: Duration = Duration::from_secs(180);
/// The exit code of timeout(1) when it has ended its command.
const TIMED_OUT: i32 = 124;

/// A command that is ended if it does not end by itself.
fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &PATIENCE.as_secs().to_string(), program]);
    command
}

fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) {
    let output = bounded(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves this thread into a namespace.
pub(crate) fn enter(name: &str) {
    let file = File::open(format!("/var/run/netns/{name}")).unwrap();
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Opens a port from text as in a configuration file, in this thread's namespace.
pub(crate) fn open(name: &str, text: &str, pool: &Pool, queues: usize) -> Result<Box<dyn Port>, OpenError> {
    let mut table = DeTable::parse(text).unwrap();
    let driver = table.get_mut().remove("driver").unwrap();
    let drivers = Drivers::standard();
    let driver = drivers.get(driver.get_ref().as_str().unwrap()).unwrap();
    let cx =
        OpenContext { pool: pool.clone(), queues, seed: 1, directory: PathBuf::from("."), filters: false };
    driver.open(name, table, &cx)
}

/// A port's place: the namespace's role and its configuration.
pub(crate) type Place = (&'static str, String);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) totals: Totals,
    pub(crate) unbalanced: Vec<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) returned: Vec<u64>,
    pub(crate) warnings: Vec<String>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) available: usize,
    pub(crate) capacity: usize,
}

impl Outcome {
    /// Checks that hold for every run: every packet is accounted for, and no frame is lost.
    pub(crate) fn check(&self) {
        assert!(self.totals.is_conserved(), "{self:?}");
        assert!(self.unbalanced.is_empty(), "{self:?}");
        assert_eq!(self.available, self.capacity, "{self:?}");
        let received: u64 = self.counters.iter().map(|c| c.received.load(Ordering::Relaxed)).sum();
        let sent: u64 = self.counters.iter().map(|c| c.sent.load(Ordering::Relaxed)).sum();
        assert_eq!((received, sent), (self.totals.received.packets, self.totals.sent.packets), "{self:?}");
    }
}

/// Two ports with a wire between them, on their own thread.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    counters: Vec<Arc<Counters>>,
    outcome: mpsc::Receiver<Outcome>,
    thread: JoinHandle<()>,
}

/// The forwarder's position, for a test that waits for it.
#[derive(Default)]
struct Progress {
    turns: AtomicU64,
    /// The number of turns that it has begun. If this is larger, the last one has not ended.
    begun: AtomicU64,
    at: Mutex<&'static str>,
}

impl Progress {
    fn is_at(&self, place: &'static str) {
        *self.at.lock().unwrap() = place;
    }
}

impl Forwarder {
    pub(crate) fn start(lab: &Lab, places: [Place; 2], queues: usize, large: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Progress::default());
        let (ready, opened) = mpsc::channel();
        let (ends, outcome) = mpsc::channel();
        let thread = {
            let (stop, progress) = (Arc::clone(&stop), Arc::clone(&progress));
            let places = places.map(|(role, text)| (lab.name(role), text));
            std::thread::spawn(move || {
                let _ = ends.send(forward(&places, queues, large, &stop, &progress, &ready));
            })
        };
        let forwarder = Self { stop, progress, counters: Vec::new(), outcome, thread };
        match opened.recv_timeout(PATIENCE) {
            Ok(counters) => Self { counters, ..forwarder },
            Err(error) => forwarder.gives_up("start", error),
        }
    }
    pub(crate) fn finish(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        match self.outcome.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome,
            Err(error) => self.gives_up("stop", error),
        }
    }
    /// Reports the thread's own panic, or the place where it hangs.
    fn gives_up(self, what: &str, error: mpsc::RecvTimeoutError) -> ! {
        if error == mpsc::RecvTimeoutError::Disconnected {
            std::panic::resume_unwind(self.thread.join().unwrap_err());
        }
        let Progress { turns, begun, at } = &*self.progress;
        let (turns, begun) = (turns.load(Ordering::Relaxed), begun.load(Ordering::Relaxed));
        let at = *at.lock().unwrap();
        panic!(
            "the forwarder did not {what} within {PATIENCE:?}: it is {at}, {begun} turns begun, {turns} ended"
        );
    }
    /// The counters of the queues, those of the first port first.
    ///
    /// `missed` is counted after a while, the others at once.
    pub(crate) fn counters(&self) -> &[Arc<Counters>] {
        &self.counters
    }
    /// The number of turns so far, which shows that the forwarder is alive.
    pub(crate) fn turns(&self) -> u64 {
        self.progress.turns.load(Ordering::Relaxed)
    }
}

fn forward(
    places: &[(String, String); 2],
    queues: usize,
    large: usize,
    stop: &AtomicBool,
    progress: &Progress,
    ready: &mpsc::Sender<Vec<Arc<Counters>>>,
) -> Outcome {
    progress.is_at("opening its ports");
    let slot = WorkerSlot::claim().unwrap();
    let pool = Pool::builder().frames(8192).for_device(true).large(large, 69_632).build().unwrap();
    let mut ports = Vec::new();
    for (namespace, text) in places {
        enter(namespace);
        ports.push(open("port", text, &pool, queues).unwrap());
    }
    let mut builder = GraphBuilder::new("wire");
    let mut nodes = Vec::new();
    for (number, port) in ports.iter_mut().enumerate() {
        for queue in 0..port.capabilities().receive_queues {
            let receive = Box::new(ReceiveNode::take(&mut **port, number as u16, queue).unwrap());
            let transmit = Box::new(TransmitNode::take(&mut **port, queue).unwrap());
            let receive = builder.add(format!("{number}.{queue} in"), receive).unwrap();
            let transmit = builder.add(format!("{number}.{queue} out"), transmit).unwrap();
            nodes.push((number, queue, receive, transmit));
        }
    }
    for (number, queue, receive, _) in &nodes {
        let there = nodes.iter().find(|(to, at, ..)| to != number && at == queue).unwrap();
        builder.connect(*receive, Edge::OUT, there.3, 0).unwrap();
    }
    let mut graph = builder.build(pool.clone()).unwrap();
    ready.send(ports.iter().flat_map(|port| port.counters()).collect()).unwrap();
    progress.is_at("running");
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        progress.begun.fetch_add(1, Ordering::Relaxed);
        let turn = graph.turn(start.elapsed().as_nanos() as u64);
        progress.turns.fetch_add(1, Ordering::Relaxed);
        if matches!(turn, Turn::Idle(_)) {
            // Sleep as a worker does: until a port has packets, but check the clock.
            let mut descriptors = Vec::new();
            graph.descriptors(&mut |file| {
                descriptors.push(rustix::event::PollFd::from_borrowed_fd(file, rustix::event::PollFlags::IN));
            });
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut descriptors, Some(&timeout));
            drop(descriptors);
            graph.wake();
        }
    }
    progress.is_at("asking its ports");
    let outcome = Outcome {
        totals: graph.totals(),
        unbalanced: graph.unbalanced(),
        links: ports.iter().map(|port| port.link()).collect(),
        returned: ports.iter().map(|port| port.returned()).collect(),
        warnings: ports.iter().flat_map(|port| port.warnings()).collect(),
        counters: ports.iter().flat_map(|port| port.counters()).collect(),
        available: 0,
        capacity: pool.capacity(),
    };
    progress.is_at("letting its queues go");
    drop(graph);
    progress.is_at("letting its ports go");
    drop(ports);
    drop(slot);
    Outcome { available: pool.available(), ..outcome }
}

/// Waits until a condition holds, for at most two minutes.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}
