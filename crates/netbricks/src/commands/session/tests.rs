//! Runs that are changed while packets move: nothing is lost, and state goes on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use netbricks_control::api::{self, Applied, ApplyOptions, Code, Problem, Source};
use netbricks_control::{Call, Change, Director, Tasks};
use netbricks_core::packet::Link;
use netbricks_core::{Function, Input, NoSettings, Operator, Registry, Worker, compose};

use super::super::arguments::ControlArguments;
use super::super::run::{How, execute};
use super::super::{Application, Console, RunLimits, file};
use crate::report::Summary;

/// An endless generator through these functions into nothing, on `workers` workers.
pub(crate) fn chain(through: &str, tables: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\nflows = 64\n[port.out]\ndriver = \"null\"\n{tables}\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"out\"\n[runtime]\nframes = 4096\nseed = 1\n"
    )
}

pub(super) fn source(text: &str) -> Source {
    Source { text: text.into(), name: "edge.toml".into(), directory: "/nowhere".into() }
}

/// A test's way to the director: it asks, and waits for the answer.
pub(crate) struct Asking(Tasks);

impl Asking {
    pub(super) fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Director<'_>) -> T + Send + 'static,
    ) -> T {
        let (sender, answer) = channel();
        self.0.post(move |director| drop(sender.send(task(director)))).unwrap();
        answer.recv().unwrap()
    }
    pub(super) fn tasks(&self) -> Tasks {
        self.0.clone()
    }
    pub(super) fn apply(&self, text: &str) -> Result<Applied, Problem> {
        let source = source(text);
        self.ask(move |director| director.apply(source, ApplyOptions::default(), None, 0))
    }
    pub(super) fn stats(&self) -> api::Stats {
        let (sender, answer) = channel();
        self.ask(move |director| director.stats(Box::new(move |stats| drop(sender.send(stats)))));
        answer.recv().unwrap().unwrap()
    }
    pub(super) fn call(
        &self,
        function: &str,
        handler: &str,
        argument: &str,
        write: bool,
    ) -> Result<api::Answers, Problem> {
        let (function, handler, argument) = (function.into(), handler.into(), argument.into());
        let deadline = Instant::now() + Duration::from_secs(60);
        let call = Call { function, handler, argument, write, worker: None, deadline };
        let (sender, answer) = channel();
        self.ask(move |director| director.call(call, Box::new(move |answers| drop(sender.send(answers)))));
        answer.recv().unwrap()
    }
    /// As [`call`](Self::call) of a handler that writes, for the journal too.
    pub(super) fn write(&self, function: &str, handler: &str, argument: &str) {
        let (function, handler, argument) = (function.into(), handler.into(), argument.into());
        let deadline = Instant::now() + Duration::from_secs(60);
        let call = Call { function, handler, argument, write: true, worker: None, deadline };
        let ((sender, answer), tasks) = (channel(), self.0.clone());
        let answered = move |_: u64, answers: Result<api::Answers, Problem>| drop(sender.send(answers));
        self.ask(move |director| director.write(call, None, None, &tasks, Box::new(answered)));
        answer.recv().unwrap().unwrap();
    }
    /// Has a file applied, which may be prepared long after this returns.
    pub(super) fn begin_to_apply(&self, text: &str) -> Receiver<Result<Applied, Problem>> {
        let ((sender, answer), tasks) = (channel(), self.0.clone());
        let (source, options) = (source(text), ApplyOptions::default());
        let change = Change::Apply { source, options, expected: None, time_ns: 0 };
        let answered = move |_: u64, applied: Result<Applied, Problem>| drop(sender.send(applied));
        self.ask(move |director| director.change(change, &tasks, Box::new(answered)));
        answer
    }
    /// Waits until more packets have come.
    pub(crate) fn let_packets_pass(&self) {
        let received = |asking: &Self| asking.ask(|director| director.status().received.packets);
        let before = received(self);
        while received(self) < before + 1_000 {
            std::thread::yield_now();
        }
    }
}

/// Runs a file while `test` asks and changes it; then it is stopped.
pub(crate) fn while_running(text: &str, test: impl FnOnce(&Asking) + Send + 'static) -> Summary {
    while_running_with(crate::standard(), text, test)
}

/// As [`while_running`], with these functions.
pub(super) fn while_running_with(
    registry: Registry,
    text: &str,
    test: impl FnOnce(&Asking) + Send + 'static,
) -> Summary {
    while_controlled(registry, text, None, test)
}

/// As [`while_running_with`], with a socket for clients.
pub(super) fn while_controlled(
    registry: Registry,
    text: &str,
    control: Option<&ControlArguments>,
    test: impl FnOnce(&Asking) + Send + 'static,
) -> Summary {
    let app = Application::new(registry, crate::Drivers::standard());
    let console = Console { color: false, live: false };
    let file = file::File {
        name: "edge.toml".into(),
        text: text.into(),
        directory: PathBuf::from("/nowhere"),
        files: Default::default(),
    };
    let checked = file::check(&app, &file).ok().unwrap();
    let limits = RunLimits { quiet: true, ..RunLimits::default() };
    let test = std::sync::Mutex::new(Some(test));
    let threads = std::sync::Mutex::new(Vec::new());
    let begun = |tasks: &Tasks| {
        let test = test.lock().unwrap().take().unwrap();
        let asking = Asking(tasks.clone());
        let thread = std::thread::spawn(move || {
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&asking)));
            asking.ask(|director| director.stop());
            tested
        });
        threads.lock().unwrap().push(thread);
    };
    let how = How { begun: Some(&begun), control, ..How::plain(&limits, true) };
    let summary = execute(&app, console, &file, checked, &how, None).ok().unwrap();
    for thread in threads.into_inner().unwrap() {
        if let Err(panic) = thread.join().unwrap() {
            std::panic::resume_unwind(panic);
        }
    }
    summary
}

pub(super) fn lost_nothing(summary: &Summary) {
    assert!(summary.conserved, "{:?}", summary.unbalanced);
    assert!(summary.dropped.is_empty(), "{:?}", summary.dropped);
    assert_eq!(summary.received, summary.sent);
    assert_eq!(summary.failures, Vec::<String>::new());
}

pub(super) const FLOWS: &str = "[function.flows]\nuse = \"monitor\"\ncapacity = 1_000";

#[test]
fn functions_come_and_go_without_loss_and_state_goes_on() {
    let with = chain("\"ttl\", \"flows\"", FLOWS);
    let summary = while_running(&chain("\"flows\"", FLOWS), move |asking| {
        asking.let_packets_pass();
        for round in 0..20 {
            let applied = asking.apply(&with).unwrap();
            assert_eq!(applied.plan.kept, ["lan", "out", "flows"], "round {round}");
            assert_eq!(applied.refused, Vec::<String>::new());
            asking.let_packets_pass();
            asking.apply(&chain("\"flows\"", FLOWS)).unwrap();
            asking.let_packets_pass();
        }
    });
    lost_nothing(&summary);
    // All packets of the run are in the flows' counters: they were never begun anew.
    let flows = summary.nodes.iter().find(|node| node.name == "flows").unwrap();
    assert_eq!(flows.arrived, summary.received);
    let section = summary.sections.iter().find(|section| section.node == "flows").unwrap();
    assert_eq!(section.section.of, Some(64), "{section:?}");
    let packets = section.section.columns.iter().position(|column| column == "packets").unwrap();
    let rows = section.section.rows.iter().map(|row| row[packets].parse::<u64>().unwrap()).sum::<u64>();
    assert!(rows > 0 && rows <= summary.received);
}

/// The first `map` gathers the packets of all workers on one, which has not the connections of the others.
#[test]
fn a_change_of_the_workers_that_have_connections_is_told() {
    let file = |rule: &str, workers: usize| {
        let edge = format!("[function.edge]\nuse = \"mmb\"\nlines = [\"{rule}\"]");
        chain("\"edge\"", &edge) + &format!("workers = {workers}\n")
    };
    let (plain, map) = (
        "add-stateful ip-proto udp accept",
        "add-stateful ip-proto udp map ip-saddr 192.0.2.0/24 shuffle udp-sport",
    );
    for workers in [1, 2] {
        let (other, translated, back) =
            (file("add-stateful all accept", workers), file(map, workers), file(plain, workers));
        while_running(&file(plain, workers), move |asking| {
            asking.let_packets_pass();
            let told = [other, translated, back].map(|text| asking.apply(&text).unwrap().plan.warnings);
            let about = |words: &str| -> Vec<usize> {
                told.iter().map(|said| said.iter().filter(|line| line.contains(words)).count()).collect()
            };
            let expected = if workers == 1 { [[0; 3]; 2] } else { [[0, 1, 0], [0, 0, 1]] };
            assert_eq!(
                about("`edge` brings both directions of translated connections to one worker"),
                expected[0]
            );
            assert_eq!(about("`edge` translates no more"), expected[1]);
        });
    }
}

#[test]
fn a_changed_function_takes_its_state_over_without_a_copy() {
    let other = FLOWS.replace("use = \"monitor\"", "use = \"monitor\"\ntop = 5");
    let summary = while_running(&chain("\"flows\"", FLOWS), move |asking| {
        asking.let_packets_pass();
        let applied = asking.apply(&chain("\"flows\"", &other)).unwrap();
        assert_eq!(applied.moved, ["flows: flows"]);
        let change = &applied.plan.changes[0];
        assert_eq!(change.copied_bytes, None);
        assert_eq!((change.kind, change.name.as_str()), (api::ChangeKind::Replaced, "flows"));
        assert!(change.detail.contains("`top` is 5 now"), "{}", change.detail);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let section = summary.sections.iter().find(|section| section.node == "flows").unwrap();
    assert_eq!((section.section.of, section.section.rows.len()), (Some(64), 5));
}

#[test]
fn tables_tell_their_entries_and_move_to_another_size_without_a_copy() {
    let small = FLOWS.replace("1_000", "16");
    let larger = FLOWS.replace("1_000", "2_000");
    let summary = while_running(&chain("\"flows\"", FLOWS), move |asking| {
        asking.let_packets_pass();
        let tables = |asking: &Asking| {
            let tables = asking.stats().tables;
            assert_eq!(tables.len(), 1, "{tables:?}");
            assert_eq!((tables[0].function.as_str(), tables[0].table.as_str()), ("flows", "flows"));
            tables[0].clone()
        };
        let full = tables(asking);
        assert_eq!((full.entries, full.capacity, full.evicted, full.refused), (64, 1_000, 0, 0));
        let applied = asking.apply(&chain("\"flows\"", &larger)).unwrap();
        assert_eq!(applied.moved, ["flows: flows"]);
        assert_eq!(applied.plan.changes[0].copied_bytes, None);
        assert_eq!((tables(asking).entries, tables(asking).capacity), (64, 2_000));
        // A table that is too small for all flows, begins empty and refuses the rest.
        asking.apply(&chain("", "")).unwrap();
        assert_eq!(asking.stats().tables, []);
        asking.apply(&chain("\"flows\"", &small)).unwrap();
        while tables(asking).refused < 100 {
            asking.let_packets_pass();
        }
        assert_eq!((tables(asking).entries, tables(asking).capacity), (16, 16));
    });
    lost_nothing(&summary);
}

#[test]
fn ports_come_and_go_and_their_packets_stay_in_the_report() {
    let two = chain(
        "\"ttl\"",
        "[port.more]\ndriver = \"generator\"\nclock = \"real\"\nflows = 8\n\
         [[chain]]\nfrom = \"more\"\nto = \"out\"",
    );
    let summary = while_running(&chain("\"ttl\"", ""), move |asking| {
        asking.let_packets_pass();
        asking.apply(&two).unwrap();
        let more =
            || asking.stats().ports.iter().find(|port| port.port == "more").map(|port| port.received.packets);
        while more().unwrap() == 0 {}
        asking.apply(&chain("\"ttl\"", "")).unwrap();
        assert_eq!(more(), None);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let more = summary.ports.iter().find(|port| port.name == "more").unwrap();
    assert!(
        more.received > 0 && summary.ports.iter().map(|port| port.received).sum::<u64>() == summary.received
    );
}

#[test]
fn a_faulty_file_changes_nothing_and_is_told_with_its_place() {
    let summary = while_running(&chain("\"ttl\"", ""), |asking| {
        let problem = asking.apply(&chain("\"tll\"", "")).unwrap_err();
        assert_eq!(problem.code, Code::Faulty);
        assert_eq!((problem.places[0].line, problem.places[0].column), (10, 12), "{problem:?}");
        assert!(problem.rendered.unwrap().contains("did you mean `ttl`?"));
        let problem = asking.apply(&chain("\"ttl\"", "").replace("4096", "8192")).unwrap_err();
        assert_eq!(problem.code, Code::NeedsRestart);
        assert!(problem.detail.contains("`frames`"), "{problem}");
        let missing =
            "[port.nic]\ndriver = \"af_packet\"\ndevice = \"none0\"\n[[chain]]\nfrom = \"nic\"\nto = \"out\"";
        let problem = asking.apply(&chain("\"ttl\"", missing)).unwrap_err();
        assert_eq!(problem.code, Code::Machine, "{problem:?}");
        assert_eq!(asking.ask(|director| (director.generation(), director.history().len())), (1, 2));
        // The file was right, and the machine was not.
        let state = asking.ask(|director| director.history()[0].state);
        assert_eq!(state, api::ConfigurationState::Failed);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

#[test]
fn a_change_is_rolled_back_unless_it_is_confirmed() {
    let summary = while_running(&chain("", ""), |asking| {
        let options = ApplyOptions { confirm: Some(3_600.0), ..ApplyOptions::default() };
        let text = source(&chain("\"ttl\"", ""));
        let applied = asking.ask(move |director| director.apply(text, options, None, 0)).unwrap();
        assert_eq!(applied.confirm_within_seconds, Some(3_600.0));
        assert!(!asking.ask(|director| director.status().confirmed));
        // The time passes.
        let tasks = asking.0.clone();
        asking.ask(move |director| director.tick(Instant::now() + Duration::from_secs(3_601), &tasks));
        // It is prepared beside the director.
        while !asking.ask(|director| director.status().confirmed) {
            std::thread::yield_now();
        }
        let status = asking.ask(|director| director.status());
        assert_eq!((status.configuration, status.confirmed), (3, true));
        assert_eq!(asking.ask(|director| director.functions()), []);
        let applied = asking.apply(&chain("\"ttl\"", "")).unwrap();
        assert_eq!(applied.configuration, 4);
        let problem = asking.ask(|director| director.confirm()).unwrap_err();
        assert_eq!(problem.code, Code::Conflict);
        asking.ask(|director| director.rollback(None)).unwrap();
        let states: Vec<_> = asking
            .ask(|director| director.history())
            .iter()
            .map(|entry| (entry.number, entry.running))
            .collect();
        assert_eq!(states, [(5, true), (4, false), (3, false), (2, false), (1, false)]);
        // It is configuration 1 again, and nothing was before that.
        let problem = asking.ask(|director| director.rollback(None)).unwrap_err();
        assert_eq!(problem.code, Code::Conflict);
        let stale = source(&chain("\"ttl\"", ""));
        let problem = asking
            .ask(move |director| director.apply(stale, ApplyOptions::default(), Some(1), 0))
            .unwrap_err();
        assert_eq!(problem.code, Code::Stale);
    });
    lost_nothing(&summary);
}

#[test]
fn suspended_sources_bring_nothing_until_they_are_resumed() {
    let summary = while_running(&chain("\"ttl\"", ""), |asking| {
        asking.let_packets_pass();
        asking.ask(|director| director.suspend()).unwrap();
        let before = asking.stats().ports[0].received;
        // A change while it is suspended leaves it so.
        asking.apply(&chain("", "")).unwrap();
        assert_eq!(asking.stats().ports[0].received, before);
        asking.ask(|director| director.resume()).unwrap();
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

#[test]
fn handlers_answer_by_worker_and_unknown_names_get_the_nearest() {
    let summary = while_running(&chain("\"flows\"", FLOWS), |asking| {
        asking.let_packets_pass();
        let answers = asking.call("flows", "flows.occupancy", "", false).unwrap();
        assert_eq!(answers.answers[0].value, "64 1000");
        let problem = asking.call("flow", "flows.occupancy", "", false).unwrap_err();
        assert_eq!((problem.code, problem.help.as_deref()), (Code::NotFound, Some("did you mean `flows`?")));
        let problem = asking.call("flows", "flows.ocupancy", "", false).unwrap_err();
        assert_eq!(problem.help.as_deref(), Some("did you mean `flows.occupancy`?"));
        let problem = asking.call("flows", "flows.occupancy", "", true).unwrap_err();
        assert_eq!(problem.code, Code::WrongKind);
    });
    lost_nothing(&summary);
}

/// Numbers packets, in an annotation.
fn stamp(input: Input, worker: &Worker) -> impl Function + use<> {
    let (sequence, stamped) = (worker.annotation::<u64>("sequence"), worker.counter("stamped"));
    input
        .parse::<Link>()
        .transform(move |packet| {
            stamped.add(1);
            packet.annotate(sequence, stamped.get());
        })
        .done()
}

/// Counts packets whose number is not one more than that of the packet before.
fn check_order(input: Input, worker: &Worker) -> impl Function + use<> {
    let (sequence, seen) = (worker.annotation::<u64>("sequence"), worker.counter("seen"));
    let gaps = worker.counter("gaps");
    input
        .parse::<Link>()
        .transform(move |packet| {
            seen.add(1);
            gaps.add(u64::from(packet.annotation(sequence) != Some(seen.get())));
        })
        .done()
}

/// Routes of a table, every one with this next hop.
fn routes(number: usize, next_hop: u32) -> String {
    (0..number)
        .map(|i| format!("{}.{}.{}.0/24 {next_hop}\n", 1 + i / 65_536, i / 256 % 256, i % 256))
        .collect()
}

/// The sequence of packets is whole, and all state goes on, over two hundred changes under load.
#[test]
fn two_hundred_changes_lose_no_packet_and_no_state() {
    let directory = std::env::temp_dir().join(format!("netbricks-changes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for number in 1..=2 {
        std::fs::write(directory.join(format!("routes-{number}")), routes(100_000, number)).unwrap();
    }
    let backends = |weight: u32| {
        format!(
            "[function.lb]\nuse = \"maglev\"\nbackends = [\"a 02:00:00:00:00:01\", \"b 02:00:00:00:00:02 {weight}\"]"
        )
    };
    let text = |through: &str, weight: u32, top: u32, table: u32| {
        let fib =
            format!("[function.fib]\nuse = \"lpm\"\ntable = \"{}/routes-{table}\"", directory.display());
        let fib = if through.contains("fib") { fib.as_str() } else { "" };
        let tables = format!("{FLOWS}\ntop = {top}\n{}\n{fib}", backends(weight));
        chain(&format!("\"stamp\", {through}, \"check\""), &tables)
    };
    let changes: Vec<String> = (0..200u32)
        .map(|round| match round % 8 {
            0 => text("\"flows\", \"lb\"", 1, 10, 1),
            1 => text("\"ttl\", \"flows\", \"lb\"", 1, 10, 1),
            2 => text("\"ttl\", \"flows\", \"lb\"", 2, 10, 1),
            3 => text("\"flows\", \"lb\", \"macswap\"", 2, 5, 1),
            // The tables are large: in one round only.
            4 | 5 if round < 8 => text("\"flows\", \"fib\", \"lb\"", 1, 10, round % 2 + 1),
            4 | 5 => text("\"macswap\", \"flows\", \"lb\"", 3, 10, 1),
            6 => text("\"lb\", \"flows\"", 1, 10, 1),
            _ => text("\"flows\", \"ttl\", \"lb\"", 1, 7, 1),
        })
        .collect();
    let mut registry = crate::standard();
    registry.add::<NoSettings>("stamp", "Numbers packets.", |_, worker| {
        compose(worker, |input| stamp(input, worker))
    });
    registry.add::<NoSettings>("check", "Checks numbers.", |_, worker| {
        compose(worker, |input| check_order(input, worker))
    });
    let summary = while_running_with(registry, &text("\"flows\", \"lb\"", 1, 10, 1), move |asking| {
        asking.let_packets_pass();
        let mut longest = 0;
        for (round, change) in changes.iter().enumerate() {
            let applied = asking.apply(change).unwrap_or_else(|problem| panic!("{round}: {problem:?}"));
            assert_eq!(applied.refused, Vec::<String>::new(), "{round}");
            longest = longest.max(applied.longest_pause_ns);
            asking.let_packets_pass();
            let value = |function: &str, handler: &str| {
                asking.call(function, handler, "", false).unwrap().answers[0].value.clone()
            };
            assert_eq!(value("flows", "flows.occupancy"), "64 1000", "{round}");
            assert_eq!(value("lb", "connections.occupancy"), "64 65536", "{round}");
            assert!(value("check", "gaps.occupancy").starts_with("0 "), "{round}");
        }
        println!("200 changes; the longest time that a worker moved no packet: {} µs", longest / 1_000);
    });
    std::fs::remove_dir_all(&directory).unwrap();
    lost_nothing(&summary);
    let arrived = |name: &str| summary.nodes.iter().find(|node| node.name == name).unwrap().arrived;
    assert_eq!(arrived("check"), summary.received);
}

#[test]
fn a_rollback_undoes_what_handlers_changed_and_keeps_the_flows() {
    let balanced = |through: &str, idle: &str| {
        let lb = format!(
            "[function.lb]\nuse = \"maglev\"\nidle = \"{idle}\"\nbackends = [\"a 02:00:00:00:00:01\", \"b 02:00:00:00:00:02\"]"
        );
        let fib = "[function.fib]\nuse = \"lpm\"\nroutes = [\"0.0.0.0/0 1\"]";
        chain(&format!("{through}\"flows\", \"fib\", \"lb\""), &format!("{FLOWS}\n{lb}\n{fib}"))
    };
    // With the same settings a function would go on, and with others its state would.
    for idle in ["5 min", "6 min"] {
        let (first, second) = (balanced("", "5 min"), balanced("\"ttl\", ", idle));
        let summary = while_running(&first, move |asking| {
            asking.let_packets_pass();
            let value = |function: &str, handler: &str, argument: &str| {
                asking.call(function, handler, argument, false).unwrap().answers[0].value.clone()
            };
            asking.write("lb", "weight", "b 5");
            asking.apply(&second).unwrap();
            asking.write("lb", "drain", "a");
            asking.write("lb", "add", "c 02:00:00:00:00:03");
            asking.write("fib", "add", "10.0.0.0/8 9");
            asking.let_packets_pass();
            assert_eq!(
                (value("fib", "lookup", "10.1.1.1"), value("lb", "backends", "").lines().count()),
                ("9".into(), 3)
            );
            let back = asking.ask(|director| director.rollback(None)).unwrap();
            assert_eq!(
                (back.plan.kept.as_slice(), back.refused),
                (["lan", "out", "flows"].map(String::from).as_slice(), vec![])
            );
            assert_eq!(value("fib", "lookup", "10.1.1.1"), "1", "{idle}");
            let backends = value("lb", "backends", "");
            let weights: Vec<Vec<&str>> =
                backends.lines().map(|line| line.split(' ').take(4).collect()).collect();
            let (a, b) = (["a", "02:00:00:00:00:01", "1", "takes"], ["b", "02:00:00:00:00:02", "5", "takes"]);
            assert_eq!(weights, [a, b], "{idle}");
            assert_eq!(value("lb", "connections.occupancy", ""), "64 65536", "{idle}");
            assert_eq!(value("flows", "flows.occupancy", ""), "64 1000", "{idle}");
            let journal = asking.ask(|director| director.written().to_vec());
            assert_eq!(journal.iter().map(|written| written.argument.as_str()).collect::<Vec<_>>(), ["b 5"]);
            asking.let_packets_pass();
        });
        lost_nothing(&summary);
    }
}

#[test]
fn requests_are_answered_while_a_file_is_prepared() {
    static STOPPING: Stopping = Stopping::new();
    let mut registry = crate::standard();
    registry.add::<NoSettings>("long", "Takes long to make.", |_, worker| {
        STOPPING.wait();
        compose(worker, |input: Input| input.parse::<Link>().done())
    });
    let summary = while_running_with(registry, &chain("\"flows\"", FLOWS), |asking| {
        asking.let_packets_pass();
        STOPPING.stops.store(true, Ordering::Relaxed);
        let applied = asking.begin_to_apply(&chain("\"flows\", \"long\"", FLOWS));
        STOPPING.wait_until_inside();
        // All of these need the director.
        asking.let_packets_pass();
        assert_eq!(asking.call("flows", "flows.occupancy", "", false).unwrap().answers[0].value, "64 1000");
        assert!(asking.stats().nodes.iter().any(|node| node.node == "flows"));
        assert_eq!(asking.ask(|director| director.status().configuration), 1);
        assert!(applied.try_recv().is_err());
        STOPPING.go_on();
        assert_eq!(applied.recv().unwrap().unwrap().configuration, 2);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

#[test]
fn a_function_that_panics_follows_its_policy_until_it_is_applied_again() {
    fn breaking(input: Input) -> impl Function {
        input.parse::<Link>().transform(|_| panic!("planted")).done()
    }
    let mut registry = crate::standard();
    registry.add::<NoSettings>("breaks", "Panics.", |_, worker| compose(worker, breaking));
    let policy = |policy: &str| chain("\"breaks\"", &format!("[function.breaks]\nrestart = \"{policy}\""));
    let good = chain("\"ttl\"", "");
    let summary = while_running_with(registry, &policy("never"), move |asking| {
        let quarantined = |asking: &Asking| {
            let stats = asking.stats();
            let node = stats.nodes.iter().find(|node| node.node == "breaks")?;
            Some((node.panics, node.dropped.get("quarantined").map_or(0, |count| count.packets)))
        };
        while quarantined(asking).is_none_or(|(_, packets)| packets < 10_000) {}
        assert_eq!(quarantined(asking).unwrap().0, 1);
        asking.apply(&good).unwrap();
        asking.let_packets_pass();
        // Applied again it begins anew, and goes to quarantine again.
        asking.apply(&policy("back-off")).unwrap();
        while quarantined(asking).is_none_or(|(panics, _)| panics < 3) {}
        let problem = asking.apply(&policy("sometimes")).unwrap_err();
        assert!(problem.detail.contains("`restart` has no value `sometimes`"), "{problem}");
    });
    assert!(summary.conserved, "{:?}", summary.unbalanced);
    assert!(summary.dropped["quarantined"] > 10_000);
}

#[test]
fn a_worker_that_does_not_come_back_is_named_with_its_function() {
    fn slow(input: Input, worker: &Worker) -> impl Function + use<> {
        let seen = worker.counter("seen");
        let sleep = move || {
            seen.add(1);
            if seen.get() == 10_000 {
                std::thread::sleep(Duration::from_millis(700));
            }
        };
        input.parse::<Link>().transform(move |_| sleep()).done()
    }
    let mut registry = crate::standard();
    registry
        .add::<NoSettings>("slow", "Sleeps once.", |_, worker| compose(worker, |input| slow(input, worker)));
    let summary = while_running_with(registry, &chain("\"ttl\", \"slow\"", ""), |asking| {
        let events = asking.ask(|director| director.events());
        let told = |kind: &str| events.since(0).into_iter().find(|event| event.kind == kind);
        while told("goes-on").is_none() {
            std::thread::yield_now();
        }
        let stuck = told("stuck").unwrap();
        assert!(stuck.message.starts_with("worker 0 has not come back from `slow` for "), "{stuck:?}");
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// A function that holds its worker up while `STOPS` is set.
struct Stopping {
    stops: AtomicBool,
    inside: AtomicBool,
}

impl Stopping {
    const fn new() -> Self {
        Self { stops: AtomicBool::new(false), inside: AtomicBool::new(false) }
    }
    /// The registry with this function as `stopping`.
    fn registry(&'static self) -> Registry {
        let mut registry = crate::standard();
        registry.add::<NoSettings>("stopping", "Stops.", move |_, worker| {
            let stop = move || self.wait();
            compose(worker, move |input: Input| input.parse::<Link>().transform(move |_| stop()).done())
        });
        registry
    }
    /// Waits until it may go on.
    fn wait(&self) {
        while self.stops.load(Ordering::Relaxed) {
            self.inside.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    /// Holds the worker up.
    fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
        self.wait_until_inside();
    }
    fn wait_until_inside(&self) {
        while !self.inside.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
    fn go_on(&self) {
        self.stops.store(false, Ordering::Relaxed);
    }
}

fn wait_for_event(asking: &Asking, kind: &str) {
    let events = asking.ask(|director| director.events());
    while !events.since(0).into_iter().any(|event| event.kind == kind) {
        std::thread::yield_now();
    }
}

#[test]
fn the_counters_of_a_stuck_worker_are_those_that_it_told_last() {
    static STOPPING: Stopping = Stopping::new();
    let summary = while_running_with(STOPPING.registry(), &chain("\"stopping\"", ""), |asking| {
        asking.let_packets_pass();
        let sums = |asking: &Asking| {
            let stats = asking.stats();
            stats.nodes.into_iter().map(|node| (node.node, node.arrived.packets)).collect::<Vec<_>>()
        };
        let before = sums(asking);
        STOPPING.stop();
        wait_for_event(asking, "stuck");
        let stuck = sums(asking);
        STOPPING.go_on();
        assert_eq!(stuck, before);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// Without an answer of the worker, the run is neither suspended at once nor when the worker comes back.
#[test]
fn a_stuck_worker_holds_up_no_request_and_does_nothing_later_that_failed() {
    static STOPPING: Stopping = Stopping::new();
    let summary = while_running_with(STOPPING.registry(), &chain("\"stopping\"", ""), |asking| {
        asking.let_packets_pass();
        STOPPING.stop();
        // The watchdog may not have seen it yet, and finds out while the director waits.
        let problem = asking.ask(|director| director.suspend()).unwrap_err();
        assert_eq!(problem.code, Code::Timeout, "{problem:?}");
        wait_for_event(asking, "stuck");
        let problem = asking.ask(|director| director.suspend()).unwrap_err();
        assert!(problem.detail.contains("does not come back from a function"), "{problem:?}");
        let request = api::ObserveRequest {
            kind: api::ObserveKind::Capture,
            filter: String::new(),
            at: None,
            count: None,
            snaplen: 64,
        };
        let problem = asking.ask(move |director| director.observe(&request).map(|_| ())).unwrap_err();
        assert_eq!(problem.code, Code::Timeout, "{problem:?}");
        STOPPING.go_on();
        wait_for_event(asking, "goes-on");
        assert_eq!(asking.ask(|director| director.status().state), api::RunState::Running);
        asking.let_packets_pass();
        asking.ask(|director| director.suspend()).unwrap();
    });
    lost_nothing(&summary);
}
