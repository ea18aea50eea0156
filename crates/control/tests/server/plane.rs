//! A dataplane without packets, driven by a director on its own thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_control::api::{
    Answers, Applied, Change, ChangeKind, Code, Count, Function, Graph, Handler, HandlerAnswer, Node,
    NodeStats, ObserveRequest, Plan, Port, PortStats, Problem, RunState, Source, Stats, Status, Worker,
};
use netbricks_control::server::Limits;
use netbricks_control::{
    Address, Answer, Call, Client, Dataplane, Director, Encode, Events, Files, Grants, ListenConfig,
    Listener, Observing, Prepared, Records, Tasks, Tokens, Waiting, Wanted, Written,
};
use netbricks_core::GraphBuilder;
use netbricks_core::buffer::Pool;
use netbricks_core::filter::Filter;
use netbricks_core::observer::{Allowance, Sightings, Watch, WatchPoint};
use netbricks_runtime::{Config, Factory, Runtime};

pub(crate) struct Plane {
    source: Source,
    state: RunState,
    /// Values that handlers wrote.
    routes: Vec<String>,
    /// Commands of the function with rules.
    rules: Vec<String>,
    /// Answers that never come.
    stuck: Vec<Answer<Answers>>,
    /// Workers for those who look at packets.
    runtime: Option<Runtime>,
}

pub(crate) fn file(text: &str) -> Source {
    Source { text: text.into(), name: "test.toml".into(), directory: "/".into() }
}

fn handler(name: &str, writes: bool) -> Handler {
    Handler { name: name.into(), summary: format!("The {name}."), writes, ..Handler::default() }
}

impl Plane {
    /// A function of the operator's, some of whose handlers tenants may call.
    fn guests() -> Function {
        let for_tenants = |name, writes| Handler { tenants: true, ..handler(name, writes) };
        let handlers = vec![
            for_tenants("list", false),
            for_tenants("install", true),
            handler("create", true),
            handler("tenant-read", false),
            handler("tenant-write", true),
        ];
        Function { name: "guests".into(), nodes: vec!["guests".into()], handlers, ..Function::default() }
    }

    /// A handler of the function with rules: `wrong` is no command, and commands are rules.
    fn of_rules(&mut self, call: &Call) -> Result<String, Problem> {
        let commands = || call.argument.lines().map(str::to_owned);
        if commands().any(|line| line == "wrong") {
            return Err(Problem::new(Code::BadRequest, format!("handler `{}`: line 1: wrong", call.handler)));
        }
        Ok(match &*call.handler {
            "run" => {
                self.rules.extend(commands());
                format!("{} rules\n", self.rules.len())
            }
            "replace" => {
                self.rules = commands().collect();
                format!("{} rules\n", self.rules.len())
            }
            "lines" => self.rules.join("\n"),
            "list" => {
                let rule = |(at, rule): (usize, &String)| {
                    serde_json::json!({
                        "number": at + 1, "name": null, "rule": rule, "stateful": false, "packets": 7, "bytes": 448,
                        "replies": 0, "not_applied": 0, "last_ns": null,
                    })
                };
                let rules: Vec<serde_json::Value> = self.rules.iter().enumerate().map(rule).collect();
                serde_json::json!({ "mode": "ordered", "policy": "accept", "rules": rules }).to_string()
            }
            _ => format!("{}: {}", call.handler, call.argument),
        })
    }
}

impl Dataplane for Plane {
    fn status(&self) -> Status {
        Status {
            version: "0.1.0".into(),
            pid: std::process::id(),
            file: self.source.name.clone(),
            graph: "test".into(),
            state: self.state,
            uptime_seconds: 1.5,
            generation: 0,
            configuration: 0,
            confirmed: false,
            confirm_within_seconds: None,
            journal: 0,
            workers: 2,
            received: Count { packets: 10, bytes: 640 },
            sent: Count { packets: 9, bytes: 576 },
            created: 0,
            dropped: 1,
            consumed: 0,
            held: 0,
        }
    }
    fn state(&self) -> RunState {
        self.state
    }
    fn stats(&mut self, answer: Answer<Stats>) {
        let dropped = [("no-route".to_owned(), Count { packets: 1, bytes: 64 })].into();
        let counters = [("bad_checksum".to_owned(), 2)].into();
        answer(Ok(Stats {
            nodes: vec![NodeStats { node: "a \"quoted\" node\\".into(), dropped, ..NodeStats::default() }],
            ports: vec![PortStats {
                port: "lan".into(),
                link: "up".into(),
                counters,
                ..PortStats::default()
            }],
            workers: vec![Worker::default(), Worker { worker: 1, ..Worker::default() }],
            ..Stats::default()
        }));
    }
    fn graph(&self) -> Graph {
        let node = Node { name: "in".into(), kind: "port".into(), role: "receive".into() };
        Graph { name: "test".into(), nodes: vec![node], edges: Vec::new() }
    }
    fn ports(&self) -> Vec<Port> {
        vec![Port { name: "lan".into(), driver: "memory".into(), ..Port::default() }]
    }
    fn functions(&self) -> Vec<Function> {
        let handlers = vec![
            handler("table", false),
            handler("add", true),
            handler("stuck", false),
            handler("metrics", false),
        ];
        let routes = Function { name: "routes".into(), handlers, ..Function::default() };
        let of_rules = [
            ("run", true),
            ("replace", true),
            ("check", false),
            ("check-replace", false),
            ("ask", false),
            ("list", false),
            ("lines", false),
        ];
        let handlers = of_rules.map(|(name, writes)| handler(name, writes)).into();
        vec![
            routes,
            Function { name: "edge".into(), definition: "mmb".into(), handlers, ..Function::default() },
            Self::guests(),
        ]
    }
    fn call(&mut self, call: Call, answer: Answer<Answers>) {
        let value = match &*call.handler {
            "stuck" => return self.stuck.push(answer),
            _ if call.function == "edge" => match self.of_rules(&call) {
                Ok(value) => value,
                Err(problem) => return answer(Err(problem)),
            },
            _ if call.function == "guests" => format!("{}: {}", call.handler, call.argument),
            "add" if call.argument == "bad" => {
                return answer(Err(Problem::new(Code::BadRequest, "`bad` is no route")));
            }
            "add" => {
                self.routes.push(call.argument.clone());
                call.argument.len().to_string()
            }
            "metrics" => r#"[{"name":"routes","kind":"gauge","help":"Routes.","label":"table","samples":[["main",7]]}]"#.into(),
            _ => format!("{}{}", self.routes.join(","), call.argument),
        };
        let one = HandlerAnswer { worker: call.worker, node: "routes".into(), value };
        let answers = Answers { function: call.function, handler: call.handler, answers: vec![one] };
        // As from a worker.
        std::thread::spawn(move || answer(Ok(answers)));
    }
    fn prepare(&mut self, wanted: &Wanted) -> Result<Prepared, Problem> {
        if wanted.source.text.contains("fault") {
            return Err(Problem::new(Code::Faulty, "the file has 1 fault"));
        }
        let change = Change {
            kind: ChangeKind::Updated,
            part: "function".into(),
            name: "routes".into(),
            detail: String::new(),
            states: Vec::new(),
            copied_bytes: None,
        };
        Ok(Prepared::new(wanted.clone(), Plan { changes: vec![change], ..Plan::default() }, ()))
    }
    fn apply(&mut self, prepared: Prepared) -> Result<Applied, Problem> {
        let Prepared { wanted, plan, .. } = prepared;
        self.source = wanted.source;
        Ok(Applied { plan, ..Applied::default() })
    }
    fn named_files(&self, _: &Source, files: &Files) -> Files {
        files.clone()
    }
    fn source(&self) -> Source {
        self.source.clone()
    }
    fn stop(&mut self) {
        self.state = RunState::Stopping;
    }
    fn suspend(&mut self) -> Result<(), Problem> {
        self.state = RunState::Suspended;
        Ok(())
    }
    fn resume(&mut self) -> Result<(), Problem> {
        self.state = RunState::Running;
        Ok(())
    }
    fn observe(&mut self, request: &ObserveRequest) -> Result<Observing, Problem> {
        if request.at.as_deref() == Some("acme:captured") {
            let control = self.runtime.get_or_insert_with(rests).control();
            let at = WatchPoint::Nodes(vec!["acme:captured".into()]);
            let (all, left) = (Filter::parse("").expect("it matches all"), Allowance::of(None));
            let watch = Watch::capture(at, all, left, 64, control.numbers());
            let observation = control.observe(watch).expect("the worker answers");
            return Ok(Observing { observation, encode: Box::new(Silent) });
        }
        Err(Problem::new(Code::BadRequest, format!("no packets: {request:?}")))
    }
}

/// A worker without packets.
fn rests() -> Runtime {
    let pool = Pool::builder().frames(64).build().expect("there is memory");
    let mut config = Config::new(pool).workers(1);
    config.linger = true;
    let rests = |_| Factory::new(|context| GraphBuilder::new("rests").build(context.pool().clone()));
    Runtime::start(config, rests).expect("it starts")
}

/// A stream in which nothing comes between its beginning and its end.
struct Silent;

impl Encode for Silent {
    fn begin(&mut self) -> Vec<u8> {
        b"begun ".to_vec()
    }
    fn add(&mut self, _: &[(usize, Sightings)], _: Instant) -> Vec<u8> {
        Vec::new()
    }
    fn is_complete(&self) -> bool {
        false
    }
    fn end(&mut self) -> Vec<u8> {
        b"ended".to_vec()
    }
    fn sign_of_life(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// A run with its listener. Dropping it ends both.
pub(crate) struct Running {
    pub(crate) listener: Option<Listener>,
    pub(crate) events: Events,
    pub(crate) written: Arc<Mutex<Vec<Written>>>,
    socket: PathBuf,
    tasks: Option<Tasks>,
    director: Option<JoinHandle<()>>,
}

impl Running {
    /// Listens on a Unix socket.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, Limits::default(), None)
    }

    pub(crate) fn limited(name: &str, change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        Self::with(name, limits, None)
    }

    pub(crate) fn with(name: &str, limits: Limits, tokens: Option<Tokens>) -> Self {
        Self::granting(name, limits, tokens, Grants::default())
    }

    /// As [`with`](Self::with), with these credentials of tenants.
    pub(crate) fn granting(name: &str, limits: Limits, tokens: Option<Tokens>, grants: Grants) -> Self {
        let socket = crate::place(name);
        let (tasks, waiting) = Waiting::new();
        let events = Events::new();
        let config = ListenConfig {
            unix: Some(socket.clone()),
            tcp: tokens.map(|tokens| (([127, 0, 0, 1], 0).into(), tokens)),
            grants,
            limits,
            ..ListenConfig::default()
        };
        let listener =
            Listener::start(config, tasks.clone(), events.clone(), Some(vec![0])).expect("it listens");
        let written = Arc::new(Mutex::new(Vec::new()));
        let (told, seen, queue) = (events.clone(), written.clone(), tasks.clone());
        let director = std::thread::spawn(move || direct(&queue, &waiting, told, &seen));
        let (listener, tasks, director) = (Some(listener), Some(tasks), Some(director));
        Self { listener, events, written, socket, tasks, director }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Address::Unix(self.socket.clone()))
    }

    pub(crate) fn tcp(&self) -> std::net::SocketAddr {
        self.listener.as_ref().and_then(Listener::tcp).expect("a TCP port")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(tasks) = self.tasks.take() {
            let _ended = tasks.post(|director| director.stop());
        }
        drop(self.listener.take());
        if let Some(director) = self.director.take() {
            director.join().expect("the director does not panic");
        }
    }
}

fn direct(tasks: &Tasks, waiting: &Waiting, events: Events, seen: &Mutex<Vec<Written>>) {
    let source = file("# one\n");
    let mut plane = Plane {
        source: source.clone(),
        state: RunState::Running,
        routes: Vec::new(),
        rules: Vec::new(),
        stuck: Vec::new(),
        runtime: None,
    };
    let mut records = Records::new(source, 1, events, None).expect("nothing is stored");
    while plane.state != RunState::Stopping {
        let task = waiting.next(Instant::now() + Duration::from_millis(50));
        let mut director = Director::new(&mut plane, &mut records);
        director.tick(Instant::now(), tasks);
        if let Some(task) = task {
            task(&mut director);
        }
        *seen.lock().expect("no panic") = director.written().to_vec();
    }
}
