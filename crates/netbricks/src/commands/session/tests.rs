//! Runs that are changed while packets move: nothing is lost, and state goes on.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use netbricks_control::api::{self, Applied, ApplyOptions, Code, Problem, Source};
use netbricks_control::{Call, Director, Tasks};

use super::super::run::{How, execute};
use super::super::{Application, Console, RunLimits, file};
use crate::report::Summary;

/// An endless generator through these functions into nothing, on `workers` workers.
pub(super) fn chain(through: &str, tables: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\nflows = 64\n[port.out]\ndriver = \"null\"\n{tables}\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"out\"\n[runtime]\nframes = 4096\nseed = 1\n"
    )
}

fn source(text: &str) -> Source {
    Source { text: text.into(), name: "edge.toml".into(), directory: "/nowhere".into() }
}

/// What a test asks the director, and waits for.
pub(super) struct Asking(Tasks);

impl Asking {
    pub(super) fn ask<T: Send + 'static>(&self, task: impl FnOnce(&mut Director<'_>) -> T + Send + 'static) -> T {
        let (sender, answer) = channel();
        self.0.post(move |director| drop(sender.send(task(director)))).unwrap();
        answer.recv().unwrap()
    }
    pub(super) fn apply(&self, text: &str) -> Result<Applied, Problem> {
        let source = source(text);
        self.ask(move |director| director.apply(source, ApplyOptions::default(), None, 0))
    }
    fn stats(&self) -> api::Stats {
        let (sender, answer) = channel();
        self.ask(move |director| director.stats(Box::new(move |stats| drop(sender.send(stats)))));
        answer.recv().unwrap().unwrap()
    }
    fn call(
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
    /// Waits until more packets have come.
    pub(super) fn let_packets_pass(&self) {
        let received = |asking: &Self| asking.ask(|director| director.status().received.packets);
        let before = received(self);
        while received(self) < before + 1_000 {
            std::thread::yield_now();
        }
    }
}

/// Runs a file while `test` asks and changes it; then it is stopped.
pub(super) fn while_running(text: &str, test: impl FnOnce(&Asking) + Send + 'static) -> Summary {
    let app = Application { registry: crate::standard(), drivers: crate::Drivers::standard() };
    let console = Console { color: false, live: false };
    let file =
        file::File { name: "edge.toml".into(), text: text.into(), directory: PathBuf::from("/nowhere") };
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
    let how = How { begun: Some(&begun), ..How::plain(&limits, true) };
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

#[test]
fn a_changed_function_takes_its_state_over_without_a_copy() {
    let other = FLOWS.replace("use = \"monitor\"", "use = \"monitor\"\ntop = 5");
    let summary = while_running(&chain("\"flows\"", FLOWS), move |asking| {
        asking.let_packets_pass();
        let applied = asking.apply(&chain("\"flows\"", &other)).unwrap();
        assert_eq!(applied.moved, ["flows: flows"]);
        let change = &applied.plan.changes[0];
        assert_eq!((change.kind, change.name.as_str()), (api::ChangeKind::Replaced, "flows"));
        assert!(change.detail.contains("`top` is 5 now"), "{}", change.detail);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let section = summary.sections.iter().find(|section| section.node == "flows").unwrap();
    assert_eq!((section.section.of, section.section.rows.len()), (Some(64), 5));
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
        assert_eq!(asking.ask(|director| (director.generation(), director.history().len())), (1, 1));
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
        asking.ask(|director| director.tick(Instant::now() + Duration::from_secs(3_601)));
        let status = asking.ask(|director| director.status());
        assert_eq!((status.configuration, status.confirmed), (1, true));
        assert_eq!(asking.ask(|director| director.functions()), []);
        let applied = asking.apply(&chain("\"ttl\"", "")).unwrap();
        assert_eq!(applied.configuration, 3);
        let problem = asking.ask(|director| director.confirm()).unwrap_err();
        assert_eq!(problem.code, Code::Conflict);
        asking.ask(|director| director.rollback(None)).unwrap();
        let states: Vec<_> = asking
            .ask(|director| director.history())
            .iter()
            .map(|entry| (entry.number, entry.running))
            .collect();
        assert_eq!(states, [(3, false), (2, false), (1, true)]);
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
