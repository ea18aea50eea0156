//! The director over a dataplane without packets.

mod late_writes;
mod rollbacks;

use super::*;
use crate::ChangeAsker;
use crate::api::{ApplyOptions, Change as PlannedChange, ChangeKind, Count, Handler, HandlerAnswer, Plan};
use crate::records::Subject;

/// A dataplane that does what it is told at once.
struct Plane {
    source: Source,
    /// When the last change was done.
    done: Option<Instant>,
    /// Calls of the handler `later`, as by a worker that has not answered.
    held: Vec<(Call, Answer<Answers>)>,
    /// Functions that go on in a change, and those that it takes out.
    kept: Vec<String>,
    removed: Vec<String>,
    /// Writes of handlers, as function and argument.
    called: Vec<String>,
    /// Answers of other threads before each call of the function `host`.
    answers_before: Vec<usize>,
    /// Whether changes are held while they are prepared, and those that are.
    holds: bool,
    held_changes: Vec<(Wanted, Answer<Prepared>)>,
    /// Whether writes of `fails later` are refused.
    fails_later: bool,
    /// Calls of the handler `elsewhere` that another thread has answered.
    answered: Arc<std::sync::atomic::AtomicUsize>,
    /// Whether plans change nothing.
    unchanged: bool,
}

fn file(text: &str) -> Source {
    Source { text: text.into(), name: "test.toml".into(), directory: "/".into() }
}

impl Plane {
    fn new() -> Self {
        let (called, held_changes) = (Vec::new(), Vec::new());
        let kept = vec!["kept".into()];
        Self {
            source: file("one"),
            done: None,
            held: Vec::new(),
            kept,
            removed: Vec::new(),
            called,
            holds: false,
            held_changes,
            fails_later: false,
            answered: Arc::default(),
            answers_before: Vec::new(),
            unchanged: false,
        }
    }

    /// Prepares the changes that are held.
    fn prepare_held(&mut self) {
        for (wanted, done) in std::mem::take(&mut self.held_changes) {
            done(self.prepare(&wanted));
        }
    }

    /// Answers the calls that are held.
    fn answer(&mut self) {
        self.held.drain(..).for_each(|(call, answer)| answer(Ok(answers(call))));
    }
}

fn answers(call: Call) -> Answers {
    let Call { function, handler, argument, .. } = call;
    let one = HandlerAnswer { worker: None, node: function.clone(), value: argument };
    Answers { function, handler, answers: vec![one] }
}

impl Dataplane for Plane {
    fn status(&self) -> Status {
        Status {
            version: String::new(),
            pid: 0,
            file: String::new(),
            graph: String::new(),
            state: RunState::Running,
            uptime_seconds: 0.0,
            generation: 0,
            configuration: 0,
            confirmed: true,
            confirm_within_seconds: None,
            journal: 0,
            workers: 1,
            received: Count::default(),
            sent: Count::default(),
            created: 0,
            dropped: 0,
            consumed: 0,
            held: 0,
        }
    }
    fn state(&self) -> RunState {
        RunState::Running
    }
    fn stats(&mut self, answer: Answer<Stats>) {
        answer(Ok(Stats::default()));
    }
    fn graph(&self) -> Graph {
        Graph { name: String::new(), nodes: Vec::new(), edges: Vec::new() }
    }
    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }
    fn functions(&self) -> Vec<Function> {
        let writes = |name: &str, by_worker| Handler {
            name: name.into(),
            writes: true,
            by_worker,
            ..Handler::default()
        };
        // One worker answers for all, or each for itself.
        let handlers = vec![writes("elsewhere", false), writes("now", true)];
        vec![Function { name: "host".into(), handlers, ..Function::default() }]
    }
    fn call(&mut self, call: Call, answer: Answer<Answers>) {
        if call.function == "host" {
            self.answers_before.push(self.answered.load(std::sync::atomic::Ordering::SeqCst));
        }
        self.called.push(format!("{} {}", call.function, call.argument));
        match &*call.argument {
            "fails later" if self.fails_later => answer(Err(Problem::new(Code::BadRequest, "it fails"))),
            "bad" => answer(Err(Problem::new(Code::BadRequest, "it is bad"))),
            _ if call.handler == "later" => self.held.push((call, answer)),
            _ if call.handler == "elsewhere" => {
                let answered = self.answered.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    answer(Ok(answers(call)));
                });
            }
            _ => answer(Ok(answers(call))),
        }
    }
    fn subject(&self, _: &str, handler: &str) -> Option<Subject> {
        let by_lines = handler == "add" || handler == "withdraw";
        (by_lines || handler == "weight").then_some(Subject {
            name: if by_lines { "route" } else { "weight" },
            sets: handler != "withdraw",
            by_lines,
        })
    }
    fn said_by(&mut self, source: &Source, written: &[Written]) -> Vec<Written> {
        let is_said = |of: &&Written| source.text.contains(&format!("{} {}", of.function, of.argument));
        written.iter().filter(is_said).cloned().collect()
    }
    fn prepare(&mut self, wanted: &Wanted) -> Result<Prepared, Problem> {
        let kept = self.kept.iter().filter(|kept| !wanted.undone.contains(*kept)).cloned().collect();
        let removed = |name: &String| PlannedChange {
            kind: ChangeKind::Removed,
            part: "function".into(),
            name: name.clone(),
            detail: String::new(),
            states: Vec::new(),
            copied_bytes: None,
        };
        let changes = self.removed.iter().map(removed).collect();
        Ok(Prepared::new(
            wanted.clone(),
            Plan { kept, changes, unchanged: self.unchanged, ..Plan::default() },
            (),
        ))
    }
    fn prepare_beside(&mut self, wanted: Wanted, done: Answer<Prepared>) {
        if self.holds {
            self.held_changes.push((wanted, done));
        } else {
            done(self.prepare(&wanted));
        }
    }
    fn apply(&mut self, prepared: Prepared) -> Result<Applied, Problem> {
        let Prepared { wanted, plan, .. } = prepared;
        if wanted.source.text.starts_with("bad") {
            return Err(Problem::new(Code::Machine, "there is no such device"));
        }
        self.source = wanted.source;
        self.done = Some(Instant::now());
        Ok(Applied { plan, ..Applied::default() })
    }
    fn named_files(&self, _: &Source, files: &Files) -> Files {
        files.clone()
    }
    fn source(&self) -> Source {
        self.source.clone()
    }
    fn stop(&mut self) {}
    fn suspend(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn resume(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn observe(&mut self, _: &ObserveRequest) -> Result<Observing, Problem> {
        Err(Problem::new(Code::BadRequest, "no packets"))
    }
}

fn records() -> Records {
    Records::new(file("one"), 1, Events::new(), None).unwrap()
}

#[test]
fn the_time_to_confirm_begins_when_the_change_is_done() {
    let (mut plane, mut records) = (Plane::new(), records());
    let options = ApplyOptions { confirm: Some(60.0), ..ApplyOptions::default() };
    Director::new(&mut plane, &mut records).apply(file("two"), options, None, 2).unwrap();
    let (until, done) = (records.deadline().unwrap(), plane.done.unwrap());
    assert!(until >= done + Duration::from_secs(60));
}

/// A director's parts, and its queue.
struct Run {
    plane: Plane,
    records: Records,
    tasks: Tasks,
    waiting: Waiting,
    /// The time that writes have.
    patience: Duration,
}

type Changed = std::sync::mpsc::Receiver<(u64, Result<Applied, Problem>)>;
type Answered = std::sync::mpsc::Receiver<(u64, Result<Answers, Problem>)>;

impl Run {
    fn new() -> Self {
        let (tasks, waiting) = Waiting::new();
        Self { plane: Plane::new(), records: records(), tasks, waiting, patience: Duration::from_secs(3_600) }
    }
    fn director(&mut self) -> Director<'_> {
        Director::new(&mut self.plane, &mut self.records)
    }
    fn write(&mut self, function: &str, handler: &str, argument: &str, expected: Option<u64>) -> Answered {
        self.write_as(None, function, handler, argument, expected)
    }
    fn write_as(
        &mut self,
        tenant: Option<&str>,
        function: &str,
        handler: &str,
        argument: &str,
        expected: Option<u64>,
    ) -> Answered {
        let deadline = Instant::now() + self.patience;
        let (function, handler, argument) = (function.into(), handler.into(), argument.into());
        let call = Call { function, handler, argument, write: true, worker: None, deadline };
        let (sender, answered) = std::sync::mpsc::channel();
        let answer = move |generation, result| drop(sender.send((generation, result)));
        let tasks = self.tasks.clone();
        self.director().write(call, expected, tenant.map(Into::into), &tasks, Box::new(answer));
        if self.records.is_any_unwritten() {
            self.work();
        }
        answered
    }
    fn change(&mut self, text: &str, expected: Option<u64>) -> Changed {
        let (sender, answered) = std::sync::mpsc::channel();
        let answer = move |generation, applied| drop(sender.send((generation, applied)));
        let (source, options) = (file(text), ApplyOptions::default());
        let change = Change::Apply { source, options, expected, time_ns: 2 };
        let tasks = self.tasks.clone();
        self.director().change(change, &tasks, Box::new(answer));
        answered
    }
    fn apply(&mut self, text: &str, options: ApplyOptions) -> Applied {
        self.director().apply(file(text), options, None, 2).unwrap()
    }
    /// Lets so many seconds pass.
    fn tick(&mut self, seconds: u64) {
        let tasks = self.tasks.clone();
        self.director().tick(Instant::now() + Duration::from_secs(seconds), &tasks);
    }
    /// Does the tasks that wait.
    fn work(&mut self) {
        while let Some(task) = self.waiting.next(Instant::now()) {
            task(&mut self.director());
        }
    }
    fn journal(&self) -> Vec<String> {
        self.records
            .written()
            .iter()
            .map(|written| format!("{} {}", written.function, written.argument))
            .collect()
    }
}

fn code(answered: &Answered) -> Option<Code> {
    answered.try_recv().unwrap().1.err().map(|problem| problem.code)
}

#[test]
fn of_writes_that_expect_the_same_generation_one_is_made() {
    for handler in ["now", "later"] {
        let mut run = Run::new();
        let first = run.write("f", handler, "one", Some(1));
        let second = run.write("f", handler, "two", Some(1));
        assert_eq!(code(&second), Some(Code::Stale), "{handler}");
        run.plane.answer();
        // Its record waits.
        let third = run.write("f", handler, "three", Some(1));
        assert_eq!(code(&third), Some(Code::Stale), "{handler}");
        run.work();
        let (generation, result) = first.try_recv().unwrap();
        assert!(generation == 2 && result.is_ok(), "{handler}: {generation} {result:?}");
        assert_eq!(run.journal(), ["f one"]);
        let fourth = run.write("f", handler, "four", Some(2));
        run.plane.answer();
        run.work();
        assert_eq!((code(&fourth), run.records.generation), (None, 3), "{handler}");
    }
}

#[test]
fn a_write_that_is_refused_changes_no_generation_and_one_that_is_lost_does() {
    let mut run = Run::new();
    assert_eq!(code(&run.write("f", "now", "bad", Some(1))), Some(Code::BadRequest));
    assert_eq!(run.records.generation, 1);
    let _lost = run.write("f", "later", "one", Some(1));
    // The worker ends before it answers.
    run.plane.held.clear();
    assert_eq!(code(&run.write("f", "now", "two", Some(1))), Some(Code::Stale));
    assert_eq!(code(&run.write("f", "now", "two", Some(2))), None);
}

#[test]
fn a_write_belongs_to_the_configuration_that_it_changed() {
    let mut run = Run::new();
    let _answers = [run.write("kept", "later", "a", None), run.write("replaced", "later", "b", None)];
    run.apply("two", ApplyOptions::default());
    run.plane.answer();
    run.work();
    assert_eq!(run.journal(), ["kept a"]);
    let (_, before) = run.records.configuration(1).unwrap();
    assert_eq!(before.len(), 2, "{before:?}");
}

#[test]
fn a_rollback_undoes_the_writes_since_and_leaves_functions_without_any() {
    let mut run = Run::new();
    run.plane.kept.push("other".into());
    run.write("other", "now", "before", None);
    run.apply("two", ApplyOptions { confirm: Some(1.0), ..ApplyOptions::default() });
    run.write("kept", "now", "within", None);
    let plan = run.director().plan_rollback(None).unwrap().plan;
    assert_eq!((plan.kept, plan.warnings), (vec!["other".to_owned()], Vec::new()));
    run.tick(2);
    run.work();
    assert_eq!(run.journal(), ["other before"]);
    // What was undone comes again with the configuration that had it.
    run.plane.called.clear();
    run.director().rollback(Some(2)).unwrap();
    assert_eq!(run.journal(), ["other before", "kept within"]);
    assert_eq!(run.plane.called, ["kept within"]);
}

#[test]
fn a_rollback_compares_journals_of_100_000_writes_in_one_pass() {
    let mut run = Run::new();
    run.plane.kept = vec!["same".into(), "more".into(), "swapped".into()];
    let write = |function: &str, argument: usize| Written {
        function: function.into(),
        handler: "now".into(),
        argument: argument.to_string(),
        worker: None,
        tenant: None,
    };
    let swapped = |one: usize| [write("swapped", one), write("swapped", 1 - one)];
    run.records.written = (0..99_990).map(|number| write("same", number)).chain(swapped(0)).collect();
    run.apply("two", ApplyOptions::default());
    run.records.written.truncate(99_990);
    run.records.written.extend(swapped(1));
    run.records.written.push(write("more", 1));
    let plan = run.director().plan_rollback(None).unwrap().plan;
    assert_eq!(plan.kept, ["same"]);
    run.director().rollback(None).unwrap();
    assert_eq!(run.plane.called, ["swapped 0", "swapped 1"]);
    assert_eq!(run.records.written.len(), 99_992);
}

/// A run with a state directory of this name.
fn stored(name: &str) -> (Run, std::path::PathBuf) {
    let directory = std::env::temp_dir().join(format!("nb-{name}-{}", std::process::id()));
    let mut run = Run::new();
    run.records = reopened(&directory);
    (run, directory)
}

fn reopened(directory: &std::path::Path) -> Records {
    let store = crate::store::Store::open(directory).unwrap();
    Records::new(file("one"), 1, Events::new(), Some(store)).unwrap()
}

#[test]
fn writes_that_wait_together_become_durable_together_and_are_answered_then() {
    let (mut run, directory) = stored("together");
    let (sender, answered) = std::sync::mpsc::channel();
    for number in 0..100 {
        let (sender, again) = (sender.clone(), run.tasks.clone());
        let task = move |director: &mut Director<'_>| {
            let (function, handler) = ("f".to_owned(), "now".to_owned());
            let (argument, deadline) = (number.to_string(), Instant::now());
            let call = Call { function, handler, argument, write: true, worker: None, deadline };
            let answer = move |generation, result: Result<Answers, Problem>| {
                let _gone = sender.send((number, generation, result.is_ok()));
            };
            director.write(call, None, None, &again, Box::new(answer));
        };
        run.tasks.post(task).unwrap();
    }
    for _ in 0..100 {
        let task = run.waiting.next(Instant::now()).unwrap();
        task(&mut run.director());
    }
    assert_eq!(run.plane.called.len(), 100, "the handlers have done it");
    assert!(answered.try_recv().is_err(), "none is durable");
    run.work();
    let answers: Vec<_> = answered.try_iter().collect();
    assert_eq!(answers, (0..100).map(|number| (number, number + 2, true)).collect::<Vec<_>>());
    drop(std::mem::replace(&mut run.records, records()));
    assert_eq!(reopened(&directory).written().len(), 100);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn writes_that_others_stand_for_leave_the_journal_and_the_rest_is_made_again_at_once() {
    let (mut run, directory) = stored("compact");
    run.records.limits.writes = 2_500;
    for number in 0..10_000 {
        let prefix = format!("10.0.{}.0/24", number % 10);
        let weight = run.write("lb", "weight", &format!("b{} {number}", number % 7), None);
        assert_eq!(code(&weight), None, "{number}");
        assert_eq!(code(&run.write("fib", "add", &format!("{prefix} {number}"), None)), None);
        if number % 10 == 9 {
            run.write("fib", "withdraw", &prefix, None);
        }
    }
    assert!(run.records.written().len() <= 2_500);
    drop(std::mem::replace(&mut run.records, records()));
    run.records = reopened(&directory);
    run.plane.called.clear();
    run.director().replay();
    assert_eq!(run.records.written().len(), 7 + 10 + 1);
    let mut weights: Vec<_> =
        run.plane.called.iter().filter(|call| call.starts_with("lb")).cloned().collect();
    weights.sort();
    let last = |of: usize| (0..10_000).rev().find(|number| number % 7 == of).unwrap();
    assert_eq!(weights, (0..7).map(|of| format!("lb b{of} {}", last(of))).collect::<Vec<_>>());
    assert_eq!(run.plane.called.last().unwrap(), "fib 10.0.9.0/24");
    // A row of routes is one call.
    let (mut run, routes) =
        (Run::new(), (0..1_000).map(|number| format!("10.0.0.0/24 {number}\n10.1.0.0/16 1")));
    for route in routes.collect::<Vec<_>>() {
        run.write("fib", "add", &route, None);
    }
    run.plane.called.clear();
    run.director().replay();
    assert_eq!((run.plane.called.len(), run.plane.called[0].lines().count()), (1, 2_000));
    std::fs::remove_dir_all(directory).unwrap();
}

/// A worker could do the second write before another one has done the first.
#[test]
fn a_write_that_one_worker_answers_is_done_again_before_the_next() {
    let mut run = Run::new();
    for argument in ["create a", "install a", "create b"] {
        run.write("host", "now", argument, None);
    }
    for created in [0, 2] {
        run.records.written[created].handler = "elsewhere".into();
    }
    run.plane.answers_before.clear();
    run.director().replay();
    assert_eq!(run.plane.answers_before, [0, 1, 1]);
}

#[test]
fn a_file_that_is_applied_keeps_what_handlers_changed_of_functions_that_stay() {
    let mut run = Run::new();
    run.write("kept", "now", "a", None);
    run.write("replaced", "now", "b", None);
    run.write("replaced", "now", "fails later", None);
    run.write("gone", "now", "c", None);
    run.plane.removed.push("gone".into());
    run.plane.fails_later = true;
    run.plane.called.clear();
    let lost = "what handlers changed of `gone` is lost (1 in the journal): the file has no such function";
    let plan = run.director().plan(&file("two")).unwrap();
    assert_eq!(plan.warnings, [lost]);
    let applied = run.apply("two", ApplyOptions::default());
    assert_eq!(run.plane.called, ["replaced b", "replaced fails later"]);
    let refused = "`replaced.now fails later` does not apply any more, and is lost";
    assert_eq!(applied.plan.warnings, [lost, refused]);
    assert_eq!(run.journal(), ["kept a", "replaced b"]);
    let options = ApplyOptions { forget: true, ..ApplyOptions::default() };
    let applied = run.apply("two", options);
    assert_eq!((applied.plan.kept, applied.plan.warnings), (Vec::new(), Vec::new()));
    assert!(run.journal().is_empty());
}

#[test]
fn writes_that_the_file_says_leave_the_journal_of_all_functions() {
    let mut run = Run::new();
    for argument in ["a", "b"] {
        run.write("kept", "say", argument, None);
        run.write("replaced", "say", argument, None);
    }
    run.plane.called.clear();
    run.apply("kept a, replaced a", ApplyOptions::default());
    assert_eq!(run.journal(), ["kept b", "replaced b"]);
    assert_eq!(run.plane.called, ["replaced b"]);
    // A rollback brings the journal of then.
    run.director().rollback(None).unwrap();
    assert_eq!(run.journal(), ["kept a", "replaced a", "kept b", "replaced b"]);
}

#[test]
fn the_running_file_has_all_of_what_handlers_changed() {
    let mut run = Run::new();
    run.write("fib", "add", "10.0.0.0/8 1\n10.1.0.0/16 2\n", None);
    run.write("f", "say", "it's", None);
    run.write("lb", "weight", "b 5", None);
    let text = run.director().running_source().text;
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert_eq!(
        commands,
        [
            "netbricks set fib.add '10.0.0.0/8 1",
            "10.1.0.0/16 2'",
            r"netbricks set f.say 'it'\''s'",
            "netbricks set lb.weight b 5",
        ]
    );
}

#[test]
fn while_a_change_is_prepared_the_director_answers_and_other_changes_wait() {
    let mut run = Run::new();
    run.plane.holds = true;
    let (first, second) = (run.change("two", None), run.change("three", None));
    run.work();
    assert_eq!(run.director().status().configuration, 1);
    assert!(code(&run.write("kept", "now", "meanwhile", None)).is_none());
    assert_eq!((run.plane.held_changes.len(), first.try_recv().is_ok()), (1, false));
    run.plane.prepare_held();
    run.work();
    let numbers = |answered: &Changed| answered.try_recv().map(|(_, applied)| applied.unwrap().configuration);
    assert_eq!((numbers(&first), numbers(&second).is_ok()), (Ok(2), false));
    run.plane.prepare_held();
    run.work();
    assert_eq!(numbers(&second), Ok(3));
    assert_eq!((run.plane.source.text.as_str(), run.journal()), ("three", vec!["kept meanwhile".to_owned()]));
}

/// A client that has gone.
struct Gone;

impl ChangeAsker for Gone {
    fn is_gone(&self) -> bool {
        true
    }
    fn answer(self: Box<Self>, _: u64, _: Result<Applied, Problem>) {}
}

#[test]
fn a_change_whose_client_has_gone_is_not_begun_and_a_plan_of_another_state_is_refused() {
    let mut run = Run::new();
    run.plane.holds = true;
    let plan = Change::Plan(file("two"));
    let (sender, planned) = std::sync::mpsc::channel();
    let answer = move |_, applied: Result<Applied, Problem>| drop(sender.send(applied.map(drop)));
    let tasks = run.tasks.clone();
    run.director().change(plan, &tasks, Box::new(answer));
    let options = ApplyOptions::default();
    let change = Change::Apply { source: file("gone"), options, expected: None, time_ns: 2 };
    run.director().change(change, &tasks, Box::new(Gone));
    assert!(code(&run.write("kept", "now", "meanwhile", None)).is_none());
    run.plane.prepare_held();
    run.work();
    assert_eq!(planned.try_recv().unwrap().unwrap_err().code, Code::Stale);
    assert_eq!((run.plane.held_changes.len(), run.plane.source.text.as_str()), (0, "one"));
}

#[test]
fn a_change_that_another_writer_overtook_while_it_was_prepared_is_refused() {
    let mut run = Run::new();
    run.plane.holds = true;
    let overtaken = run.change("two", Some(1));
    run.write("kept", "now", "first", Some(1));
    run.plane.prepare_held();
    run.work();
    let (generation, refused) = overtaken.try_recv().unwrap();
    assert_eq!((generation, refused.unwrap_err().code), (2, Code::Stale));
    assert_eq!(run.director().history().len(), 1);
    assert_eq!(run.plane.source.text, "one");
    // Beyond a bound, changes are refused at once.
    let waiting: Vec<Changed> = (0..34).map(|_| run.change("two", None)).collect();
    let busy = waiting.last().unwrap().try_recv().unwrap().1.unwrap_err();
    assert_eq!((busy.code, waiting[32].try_recv().is_ok()), (Code::Busy, false));
}

#[test]
fn without_a_state_directory_a_full_journal_drops_its_oldest_writes() {
    let mut run = Run::new();
    run.records.limits.writes = 20;
    for number in 0..50 {
        assert_eq!(code(&run.write("f", "now", &number.to_string(), None)), None);
        assert!((number < 20 || run.journal().len() >= 18) && run.journal().len() <= 20, "{number}");
        assert_eq!(run.journal().last(), Some(&format!("f {number}")));
    }
    // The last ones come back in order.
    let last = run.journal().len();
    assert_eq!(run.journal(), (50 - last..50).map(|number| format!("f {number}")).collect::<Vec<_>>());
    run.records.limits.bytes = 10_000;
    assert_eq!(code(&run.write("f", "now", &"x".repeat(9_500), None)), None);
    assert_eq!(run.journal().len(), 1, "nothing fits beside the newest");
    let events = run.director().events();
    assert_eq!(events.since(0).into_iter().filter(|event| event.kind == "warning").count(), 1);
}

#[test]
fn with_a_state_directory_a_full_journal_refuses_before_the_handler_does_it() {
    let directory = std::env::temp_dir().join(format!("nb-full-{}", std::process::id()));
    let store = crate::store::Store::open(&directory).unwrap();
    let mut run = Run::new();
    run.records = Records::new(file("one"), 1, Events::new(), Some(store)).unwrap();
    run.records.limits.bytes = 2_000;
    assert_eq!(code(&run.write("f", "now", &"x".repeat(1_500), None)), None);
    assert_eq!(code(&run.write("f", "later", &"x".repeat(1_500), None)), Some(Code::Conflict));
    assert!(run.plane.held.is_empty());
    assert_eq!(code(&run.write("f", "now", "small", None)), None);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn tenants_writes_hold_up_no_change_of_the_operators() {
    let mut run = Run::new();
    // One is under way, one is made, and one failed.
    let later = run.write_as(Some("acme"), "acme:f", "later", "one", None);
    assert_eq!(code(&run.write_as(Some("acme"), "acme:f", "now", "two", None)), None);
    run.write_as(Some("acme"), "acme:f", "now", "bad", None);
    assert_eq!(code(&run.write("f", "now", "mine", Some(1))), None);
    let lost = run.write_as(Some("acme"), "acme:f", "later", "lost", None);
    run.plane.held.truncate(1);
    assert!(lost.try_recv().is_err());
    assert_eq!(code(&run.write("f", "now", "mine", Some(2))), None);
    run.plane.answer();
    run.work();
    assert_eq!((code(&later), run.records.generation), (None, 3));
    assert_eq!(run.journal().iter().filter(|written| written.starts_with("acme:f")).count(), 2);
    // A tenant's own condition is about the operator's changes.
    assert_eq!(code(&run.write_as(Some("acme"), "acme:f", "now", "x", Some(2))), Some(Code::Stale));
    assert_eq!(code(&run.write_as(Some("acme"), "acme:f", "now", "x", Some(3))), None);
}

#[test]
fn a_tenant_has_its_part_of_a_journal_that_is_kept() {
    let directory = std::env::temp_dir().join(format!("nb-parts-{}", std::process::id()));
    let store = crate::store::Store::open(&directory).unwrap();
    let mut run = Run::new();
    run.records = Records::new(file("one"), 1, Events::new(), Some(store)).unwrap();
    (run.records.limits.writes, run.records.limits.of_tenant) = (40, (10, 10_000));
    let write = |run: &mut Run, tenant: &str, argument: &str| {
        run.write_as(Some(tenant), &format!("{tenant}:f"), "now", argument, None).try_recv().unwrap().1
    };
    for number in 0..10 {
        assert!(write(&mut run, "acme", &number.to_string()).is_ok());
    }
    let full = write(&mut run, "acme", "more").unwrap_err();
    assert_eq!(full.code, Code::Conflict);
    assert!(full.detail.starts_with("tenant `acme` has 10 writes"), "{}", full.detail);
    let large = write(&mut run, "corp", &"x".repeat(10_001)).unwrap_err();
    assert!(large.detail.starts_with("tenant `corp` has 0 writes"), "{}", large.detail);
    (0..10).for_each(|_| assert!(write(&mut run, "corp", "x").is_ok()));
    let half = write(&mut run, "third", "x").unwrap_err();
    assert!(half.detail.starts_with("the tenants' half"), "{}", half.detail);
    // The operator has the rest, for functions of tenants too, and the parts outlive a restart.
    (0..20).for_each(|_| assert_eq!(code(&run.write("acme:f", "now", "x", None)), None));
    assert_eq!(code(&run.write("f", "now", "x", None)), Some(Code::Conflict));
    drop(run.records);
    let store = crate::store::Store::open(&directory).unwrap();
    run.records = Records::new(file("one"), 1, Events::new(), Some(store)).unwrap();
    run.records.limits.of_tenant = (10, 10_000);
    run.records.limits.writes = 80;
    for tenant in ["acme", "corp"] {
        let full = write(&mut run, tenant, "more").unwrap_err();
        assert!(full.detail.starts_with(&format!("tenant `{tenant}` has 10 writes")), "{}", full.detail);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_tenant_drops_none_but_its_own_writes_from_a_journal_in_memory() {
    let mut run = Run::new();
    (run.records.limits.writes, run.records.limits.of_tenant) = (100, (10, 10_000));
    run.write("f", "now", "first", None);
    let write = |run: &mut Run, tenant: &str, argument: &str| {
        assert_eq!(code(&run.write_as(Some(tenant), &format!("{tenant}:f"), "now", argument, None)), None);
    };
    write(&mut run, "corp", "one");
    // The operator's writes to a tenant's function are no part of the tenant's.
    (0..20).for_each(|_| assert_eq!(code(&run.write("acme:f", "now", "mine", None)), None));
    for number in 0..1_000 {
        write(&mut run, "acme", &number.to_string());
        assert!(run.journal().len() <= 32, "{number}");
    }
    let journal = run.journal();
    assert_eq!(journal[..2], ["f first", "corp:f one"]);
    assert!(journal[2..22].iter().all(|written| written == "acme:f mine"), "{journal:?}");
    assert_eq!(journal.last().unwrap(), "acme:f 999");
    for number in 0..200 {
        write(&mut run, &format!("t{number}"), "x");
    }
    assert_eq!(run.journal()[0], "f first", "all tenants together have half");
    assert!(run.journal().len() <= 71);
    write(&mut run, "acme", &"x".repeat(20_000));
    assert!(run.journal().last().unwrap().starts_with("acme:f xxx"), "the newest one stays");
}

#[test]
fn changes_that_fail_or_are_rolled_back_leave_the_configurations_to_go_back_to() {
    let directory = std::env::temp_dir().join(format!("nb-failed-{}", std::process::id()));
    for is_stored in [false, true] {
        let mut run = Run::new();
        if is_stored {
            let store = crate::store::Store::open(&directory).unwrap();
            run.records = Records::new(file("one"), 1, Events::new(), Some(store)).unwrap();
        }
        run.apply("two", ApplyOptions::default());
        for number in 0..60 {
            let failed = file(&format!("bad {number}"));
            let failed = run.director().apply(failed, ApplyOptions::default(), None, 2).unwrap_err();
            assert_eq!(failed.code, Code::Machine);
        }
        assert_eq!(run.director().plan_rollback(None).unwrap().configuration, 1);
        for number in 0..60 {
            let options = ApplyOptions { confirm: Some(1.0), ..ApplyOptions::default() };
            run.apply(&format!("unconfirmed {number}"), options);
            run.director().rollback(None).unwrap();
        }
        assert_eq!(run.plane.source.text, "two");
        assert_eq!(run.director().plan_rollback(None).unwrap().configuration, 1, "{is_stored}");
        let history = run.director().history();
        assert_eq!(history.len(), 50);
        assert_eq!(history.iter().rev().take(2).map(|entry| entry.number).collect::<Vec<_>>(), [1, 2]);
        run.director().rollback(None).unwrap();
        assert_eq!(run.plane.source.text, "one");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_text_of_the_history_is_bounded() {
    let mut run = Run::new();
    run.records.limits.text = 10_000;
    for number in 0..20 {
        run.apply(&format!("# {number} {}", "x".repeat(2_990)), ApplyOptions::default());
    }
    let numbers: Vec<u64> = run.director().history().iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [21, 20, 19]);
}
