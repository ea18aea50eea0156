//! A dataplane for tests that answers fixed values, and a command line that runs against it.

use std::sync::{Arc, Mutex};

use clap::{CommandFactory, FromArgMatches};
use netbricks_control::api::{
    Answers, Applied, ApplyOptions, CarriedState, Change, ChangeKind, ChangeOptions, ConfigurationState,
    Count, Edge, Event, EventLevel, Function, Graph, Handler, HandlerAnswer, HistoryEntry, Node, NodeStats,
    Plan, Port, PortStats, Problem, RunState, Source, StateWay, Stats, Status, TenantStats, TraceRecord,
    Worker,
};

use super::super::arguments::{Command, CommandLine};
use super::{Api, CaptureList, EventList, Failure, Output, TraceList, execute, problem_text};

/// Fixed answers. A clone notes the requests in the same list.
#[derive(Clone)]
pub(crate) struct Canned {
    /// The answer to every request that is to change something, where it is refused.
    pub(crate) refusal: Option<Problem>,
    pub(crate) status: Status,
    /// Answers to one look after the other; the last one again and again.
    pub(crate) stats: Vec<Stats>,
    pub(crate) ports: Vec<Port>,
    pub(crate) functions: Vec<Function>,
    pub(crate) events: Vec<Event>,
    pub(crate) traces: Vec<TraceRecord>,
    pub(crate) capture: Vec<Vec<u8>>,
    pub(crate) plan: Plan,
    pub(crate) applied: Applied,
    pub(crate) history: Vec<HistoryEntry>,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) looks: Arc<Mutex<usize>>,
}

fn count(packets: u64) -> Count {
    Count { packets, bytes: 60 * packets }
}

/// The counters after so many seconds.
pub(crate) fn stats_after(seconds: u64) -> Stats {
    let n = seconds;
    let node = |node: &str, role: &str| NodeStats {
        node: node.into(),
        of: node.split('.').next().unwrap_or_default().into(),
        role: role.into(),
        ..NodeStats::default()
    };
    let port = |name: &str, driver: &str| PortStats {
        port: name.into(),
        driver: driver.into(),
        link: "up".into(),
        ..PortStats::default()
    };
    Stats {
        tenants: Vec::new(),
        tables: Vec::new(),
        time_ns: n * 1_000_000_000,
        generation: 12,
        nodes: vec![
            NodeStats {
                received: count(3_000 * n),
                left: count(3_000 * n),
                batches: 50 * n,
                ..node("lan.receive", "receive")
            },
            NodeStats {
                arrived: count(3_000 * n),
                left: count(2_700 * n),
                dropped: [("ttl-expired", 290 * n), ("malformed", 10 * n)]
                    .map(|(reason, packets)| (reason.to_owned(), count(packets)))
                    .into(),
                batches: 50 * n,
                sampled_cycles: 480 * n,
                sampled_packets: 60 * n,
                ..node("ttl", "function")
            },
            NodeStats {
                arrived: count(2_700 * n),
                left: count(2_700 * n),
                batches: 50 * n,
                sampled_cycles: 810 * n,
                sampled_packets: 54 * n,
                ..node("flows", "function")
            },
            NodeStats {
                arrived: count(2_700 * n),
                sent: count(2_700 * n),
                batches: 50 * n,
                ..node("wan.send", "transmit")
            },
        ],
        ports: vec![
            PortStats {
                received: count(3_000 * n),
                missed: 12 * n,
                counters: [("bad_checksum".to_owned(), 0), ("no_buffer".to_owned(), 3)].into(),
                ..port("lan", "generator")
            },
            PortStats { sent: count(2_700 * n), ..port("wan", "null") },
        ],
        workers: vec![
            Worker {
                worker: 0,
                core: Some(1),
                receives: vec!["lan.0".into()],
                received: count(3_000 * n),
                sent: count(2_700 * n),
                dropped: 300 * n,
                turns: 12_345 * n,
                sleeps: 6,
                longest_pause_ns: 43_000,
                long_pauses: 0,
                ended: false,
            },
            Worker {
                worker: 1,
                core: Some(2),
                receives: vec!["lan.1".into()],
                turns: 9_000 * n,
                sleeps: 800,
                longest_pause_ns: 1_200_000,
                ended: true,
                ..Worker::default()
            },
        ],
        free_buffers: 4_000,
        buffers: 4_096,
    }
}

fn status() -> Status {
    Status {
        version: "0.1.0".into(),
        pid: 4711,
        file: "edge.toml".into(),
        graph: "edge".into(),
        state: RunState::Running,
        uptime_seconds: 7_385.5,
        generation: 12,
        configuration: 3,
        confirmed: true,
        confirm_within_seconds: None,
        journal: 4,
        workers: 2,
        received: Count { packets: 170_500_152, bytes: 12_412_000_000 },
        sent: Count { packets: 170_466_071, bytes: 12_409_000_000 },
        created: 0,
        dropped: 34_081,
        consumed: 0,
        held: 0,
    }
}

fn functions() -> Vec<Function> {
    let handler = |name: &str, writes: bool, argument: &str, by_worker: bool, summary: &str| Handler {
        name: name.into(),
        summary: summary.into(),
        writes,
        argument: argument.into(),
        by_worker,
        tenants: false,
    };
    let function = |name: &str, definition: &str, handlers: Vec<Handler>| Function {
        name: name.into(),
        definition: definition.into(),
        nodes: vec![name.into()],
        handlers,
    };
    vec![
        function("ttl", "ttl", Vec::new()),
        function(
            "flows",
            "monitor",
            vec![
                handler("flows.occupancy", false, "", true, "Entries and capacity of `flows`."),
                handler("flows.top", false, "[COUNT]", false, "The flows with the most bytes."),
                handler("clear", true, "", true, "Forgets all flows."),
            ],
        ),
    ]
}

/// State of a function that is replaced, in every way.
fn states() -> Vec<CarriedState> {
    let state = |name: &str, way, entries, bytes, reason: &str| CarriedState {
        name: name.into(),
        way,
        entries,
        bytes,
        reason: reason.into(),
    };
    let configured = "the file names another content than it began with";
    vec![
        state("hits", StateWay::Whole, 1, None, ""),
        state("sessions", StateWay::Copied, 120_000, Some(12_400_000), "the pool is another"),
        state("rules", StateWay::Anew, 3, None, configured),
        state("log", StateWay::Whole, 20, None, ""),
    ]
}

impl Default for Canned {
    fn default() -> Self {
        let port = |name: &str, driver: &str, mtu: usize| Port {
            name: name.into(),
            driver: driver.into(),
            link: "up".into(),
            mtu,
            ..Port::default()
        };
        let event = |number: u64, level: EventLevel, kind: &str, subject: &str, message: &str| Event {
            number,
            time_ns: 1_770_091_499_007_000_000 + number * 1_000_000_000,
            level,
            kind: kind.into(),
            subject: subject.into(),
            message: message.into(),
        };
        let change = |kind: ChangeKind, part: &str, name: &str, detail: &str, copied_bytes: Option<u64>| {
            let states = if copied_bytes.is_some() { states() } else { Vec::new() };
            Change { kind, part: part.into(), name: name.into(), detail: detail.into(), states, copied_bytes }
        };
        let entry = |number: u64, state: ConfigurationState, note: &str| HistoryEntry {
            number,
            time_ns: 1_770_091_506_007_000_000 + number * 60_000_000_000,
            file: "edge.toml".into(),
            note: note.into(),
            state,
            running: number == 3,
        };
        let nat = "`capacity` is 200000 instead of 100000";
        let plan = Plan {
            generation: 12,
            unchanged: false,
            changes: vec![
                change(ChangeKind::Removed, "port", "spare", "no chain uses it", None),
                change(ChangeKind::Added, "function", "rate", "`policer`", None),
                change(ChangeKind::Replaced, "function", "nat", nat, Some(12_400_000)),
                change(ChangeKind::Updated, "chain", "lan-wan", "goes through `rate`, too", None),
            ],
            kept: vec!["lan".into(), "wan".into(), "ttl".into()],
            warnings: vec!["port `lan` has one queue for 2 workers".into()],
        };
        Self {
            refusal: None,
            status: status(),
            stats: vec![stats_after(1)],
            ports: vec![
                Port { receive_queues: 2, ..port("lan", "generator", 1_500) },
                Port {
                    transmit_queues: 2,
                    warnings: vec!["port `wan` has no receive queue".into()],
                    ..port("wan", "null", 9_000)
                },
            ],
            functions: functions(),
            traces: Vec::new(),
            capture: Vec::new(),
            events: vec![
                event(7, EventLevel::Info, "applied", "", "configuration 3 runs: `edge.toml`"),
                event(8, EventLevel::Warning, "port-down", "lan", "the link is down"),
            ],
            applied: Applied {
                configuration: 4,
                generation: 13,
                plan: plan.clone(),
                moved: vec!["nat: mappings".into()],
                refused: vec!["flows: flows (the capacity is smaller)".into()],
                confirm_within_seconds: None,
                longest_pause_ns: 1_240_000,
            },
            plan,
            history: vec![
                entry(4, ConfigurationState::RolledBack, "more backends"),
                entry(3, ConfigurationState::Confirmed, ""),
            ],
            asked: Arc::default(),
            looks: Arc::default(),
        }
    }
}

impl Canned {
    /// The requests so far that were to call or change something.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn note<T>(&self, request: String, answer: T) -> Result<T, Problem> {
        self.asked.lock().unwrap().push(request);
        self.refusal.clone().map_or(Ok(answer), Err)
    }
}

impl Api for Canned {
    fn status(&self) -> Result<Status, Problem> {
        Ok(self.status.clone())
    }
    fn stats(&self) -> Result<Stats, Problem> {
        let mut looks = self.looks.lock().unwrap();
        *looks += 1;
        Ok(self.stats[(*looks - 1).min(self.stats.len() - 1)].clone())
    }
    fn tenants(&self) -> Result<Vec<TenantStats>, Problem> {
        Ok(self.stats()?.tenants)
    }
    fn graph(&self) -> Result<Graph, Problem> {
        let node = |name: &str, role: &str| Node { name: name.into(), kind: role.into(), role: role.into() };
        let edge = |from: &str, to: &str| Edge { from: from.into(), output: "out".into(), to: to.into() };
        Ok(Graph {
            name: "edge".into(),
            nodes: vec![
                node("lan.receive", "receive"),
                node("ttl", "function"),
                node("flows", "function"),
                node("wan.send", "transmit"),
            ],
            edges: vec![edge("lan.receive", "ttl"), edge("ttl", "flows"), edge("flows", "wan.send")],
        })
    }
    fn ports(&self) -> Result<Vec<Port>, Problem> {
        Ok(self.ports.clone())
    }
    fn functions(&self) -> Result<Vec<Function>, Problem> {
        Ok(self.functions.clone())
    }
    fn read(
        &self,
        function: &str,
        handler: &str,
        argument: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        let answer = |worker: usize, value: &str| HandlerAnswer {
            worker: Some(worker),
            node: function.into(),
            value: value.into(),
        };
        let answers = Answers {
            function: function.into(),
            handler: handler.into(),
            answers: vec![answer(0, "3 100"), answer(1, "50 100")],
        };
        self.note(format!("read {function} {handler} {argument} {worker:?}"), answers)
    }
    fn write(
        &self,
        function: &str,
        handler: &str,
        value: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        let answers = Answers {
            function: function.into(),
            handler: handler.into(),
            answers: vec![HandlerAnswer { worker, node: function.into(), value: String::new() }],
        };
        self.note(format!("write {function} {handler} {value} {worker:?}"), answers)
    }
    fn config(&self) -> Result<Source, Problem> {
        Ok(Source { text: "# running\n".into(), name: "edge.toml".into(), directory: "/etc".into() })
    }
    fn configuration(&self, number: u64) -> Result<Source, Problem> {
        let text = format!("# configuration {number}");
        Ok(Source { text, name: "edge.toml".into(), directory: "/etc".into() })
    }
    fn plan(&self, source: &Source) -> Result<Plan, Problem> {
        self.note(format!("plan {}", source.text), self.plan.clone())
    }
    fn apply(
        &self,
        source: &Source,
        options: &ApplyOptions,
        expected: Option<u64>,
    ) -> Result<Applied, Problem> {
        let applied = Applied { confirm_within_seconds: options.confirm, ..self.applied.clone() };
        self.note(format!("apply {} {options:?} {expected:?}", source.text), applied)
    }
    fn with_conditions(&self, change: ChangeOptions) -> Box<dyn Api> {
        self.asked.lock().unwrap().push(format!("{change:?}"));
        Box::new(self.clone())
    }
    fn confirm(&self) -> Result<Status, Problem> {
        self.note("confirm".into(), self.status.clone())
    }
    fn rollback(&self, to: Option<u64>) -> Result<Applied, Problem> {
        self.note(format!("rollback {to:?}"), self.applied.clone())
    }
    fn history(&self) -> Result<Vec<HistoryEntry>, Problem> {
        Ok(self.history.clone())
    }
    fn suspend(&self) -> Result<Status, Problem> {
        self.note("suspend".into(), self.status.clone())
    }
    fn resume(&self) -> Result<Status, Problem> {
        self.note("resume".into(), self.status.clone())
    }
    fn stop(&self) -> Result<Status, Problem> {
        self.note("stop".into(), self.status.clone())
    }
    fn events_so_far(&self, from: u64) -> Result<Vec<Event>, Problem> {
        Ok(self.events.iter().filter(|event| event.number >= from).cloned().collect())
    }
    fn events(&self, from: u64) -> Result<EventList, Problem> {
        Ok(Box::new(self.events_so_far(from)?.into_iter().map(Ok)))
    }
    fn trace(&self, filter: &str, at: Option<&str>, count: Option<u64>) -> Result<TraceList, Problem> {
        self.note(format!("trace {filter:?} {at:?} {count:?}"), ())?;
        Ok(Box::new(self.traces.clone().into_iter().map(Ok)))
    }
    fn capture(
        &self,
        filter: &str,
        at: Option<&str>,
        count: Option<u64>,
        snaplen: Option<usize>,
    ) -> Result<CaptureList, Problem> {
        self.note(format!("capture {filter:?} {at:?} {count:?} {snaplen:?}"), ())?;
        Ok(Box::new(self.capture.clone().into_iter().map(Ok)))
    }
}

/// A command's output and exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command line against this dataplane.
pub(crate) fn ran(api: &dyn Api, words: &[&str]) -> Told {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = ["netbricks"].iter().chain(words);
    let line = CommandLine::command()
        .try_get_matches_from(words)
        .and_then(|matches| CommandLine::from_arg_matches(&matches));
    let outcome = match line {
        Err(error) => Err(Failure::Usage(error.to_string())),
        Ok(CommandLine { command: Command::Live(command), .. }) => {
            execute(api, &mut Output::plain(&mut out, &mut err), &command)
        }
        Ok(line) => panic!("{line:?} is no command for a dataplane"),
    };
    let mut told = |text: String| {
        err.extend(problem_text(&Problem::new(super::Code::BadRequest, text), false).into_bytes());
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(Failure::Told(code)) => code,
        Err(Failure::Usage(text)) => {
            told(text);
            2
        }
        Err(Failure::Failed(text)) => {
            told(text);
            1
        }
        Err(Failure::Closed) => panic!("a vector takes everything"),
    };
    Told { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}
