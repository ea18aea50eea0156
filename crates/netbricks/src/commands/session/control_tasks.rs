//! Control tasks of functions: a thread for each, which begins and ends with its function.
//!
//! A task's calls are tasks of the director, which never waits for one. A call of a task that has ended is
//! refused on the director's thread, so that no task writes to the function that follows its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_control::api::{Answers, Code, EventLevel, Problem};
use netbricks_control::{Call, Events, Tasks};
use netbricks_core::control_task::News;
use netbricks_core::graph::contain;
use netbricks_core::{Blueprint, ControlTask, HandlerCaller};

use super::Installed;

/// The time that a call of a handler has.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at whether a waiting task is to end.
const SLICE: Duration = Duration::from_millis(50);
/// The time after which a task that panicked is made again.
const AGAIN: Duration = Duration::from_secs(1);
/// The time that tasks have to return when the run ends.
const LAST: Duration = Duration::from_secs(2);

/// The control tasks that run.
pub(crate) struct ControlTasks {
    running: BTreeMap<String, Running>,
    /// Threads that were told to end.
    ending: Vec<JoinHandle<()>>,
    tasks: Tasks,
    events: Events,
    /// The cores without a worker.
    cores: Option<Vec<usize>>,
}

struct Running {
    end: Arc<End>,
    thread: JoinHandle<()>,
}

/// The word to a task that it is to end.
#[derive(Default)]
struct End {
    is_told: AtomicBool,
    lock: Mutex<()>,
    told: Condvar,
}

impl End {
    fn tell(&self) {
        let _waiters = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_told.store(true, Ordering::SeqCst);
        self.told.notify_all();
    }
    fn is_told(&self) -> bool {
        self.is_told.load(Ordering::SeqCst)
    }
    /// Waits this long, or until the end. Answers whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(held, time, |()| !self.is_told());
        drop(waited);
        self.is_told()
    }
}

impl ControlTasks {
    /// No tasks yet.
    pub(crate) fn new(tasks: &Tasks, events: &Events, cores: Option<Vec<usize>>) -> Self {
        let (tasks, events) = (tasks.clone(), events.clone());
        Self { running: BTreeMap::new(), ending: Vec::new(), tasks, events, cores }
    }

    /// Ends the tasks of functions that are not `kept`, and begins those of functions that are new.
    pub(crate) fn follow(&mut self, installed: &Installed, kept: &BTreeSet<String>) {
        let (running, gone) =
            std::mem::take(&mut self.running).into_iter().partition(|(name, _)| kept.contains(name));
        self.running = running;
        self.end_all(gone);
        for (function, blueprint) in installed.functions.iter().zip(&installed.design.functions) {
            if !kept.contains(&function.name) {
                self.begin(&function.name, blueprint);
            }
        }
    }

    fn end_all(&mut self, gone: BTreeMap<String, Running>) {
        for Running { end, thread } in gone.into_values() {
            end.tell();
            self.ending.push(thread);
        }
        self.ending.retain(|thread| !thread.is_finished());
    }

    fn begin(&mut self, function: &str, blueprint: &Blueprint) {
        let end = Arc::new(End::default());
        let caller = Caller {
            function: function.to_owned(),
            tasks: self.tasks.clone(),
            events: self.events.clone(),
            end: end.clone(),
        };
        // Without a task there is no thread.
        let Some(task) = caller.made(blueprint) else { return };
        let (blueprint, cores) = (blueprint.clone(), self.cores.clone());
        let begun = std::thread::Builder::new().name(format!("task {function}")).spawn(move || {
            if let Some(cores) = &cores {
                // Without permission it goes where the kernel puts it.
                let _anywhere = netbricks_control::server::run_on(cores);
            }
            caller.run(task, &blueprint);
        });
        match begun {
            Ok(thread) => drop(self.running.insert(function.to_owned(), Running { end, thread })),
            Err(error) => {
                let told = format!("its control task has no thread: {error}");
                self.events.tell(EventLevel::Error, "control-task", function, told);
            }
        }
    }
}

/// Ends all tasks, and waits some time for them.
impl Drop for ControlTasks {
    fn drop(&mut self) {
        let gone = std::mem::take(&mut self.running);
        self.end_all(gone);
        let until = Instant::now() + LAST;
        while self.ending.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A task's way to the handlers of its function.
struct Caller {
    function: String,
    tasks: Tasks,
    events: Events,
    end: Arc<End>,
}

impl Caller {
    /// Runs the task until it is to end, or ends by itself.
    fn run(mut self, mut task: Box<dyn ControlTask>, blueprint: &Blueprint) {
        loop {
            let ran = contain(|| task.run(&mut self, Instant::now()));
            let next = match ran {
                Ok(None) => return,
                Ok(Some(time)) => time,
                Err(caught) => {
                    self.fault(&caught.message);
                    // Its drop is an author's code too.
                    let _ended = contain(|| drop(task));
                    if self.end.wait(AGAIN) {
                        return;
                    }
                    let Some(again) = self.made(blueprint) else { return };
                    task = again;
                    Duration::ZERO
                }
            };
            if self.end.wait(next) {
                break;
            }
        }
        let _ended = contain(|| drop(task));
    }

    fn made(&self, blueprint: &Blueprint) -> Option<Box<dyn ControlTask>> {
        contain(|| blueprint.control_task()).unwrap_or_else(|caught| {
            self.fault(&caught.message);
            None
        })
    }

    fn fault(&self, message: &str) {
        let told = format!("its control task panicked: {message}");
        self.events.tell(EventLevel::Error, "control-task", self.function.clone(), told);
    }

    fn call(&self, handler: &str, argument: &str, write: bool) -> Result<Vec<String>, String> {
        let deadline = Instant::now() + PATIENCE;
        let (function, handler, argument) = (self.function.clone(), handler.to_owned(), argument.to_owned());
        let call = Call { function, handler, argument, write, worker: None, deadline };
        let (sender, answer) = channel::<Result<Answers, Problem>>();
        loop {
            let (call, sender, end) = (call.clone(), sender.clone(), self.end.clone());
            let posted = self.tasks.post(move |director| {
                // Another function may have its name by now.
                if !end.is_told() {
                    director.call(call, Box::new(move |answers| drop(sender.send(answers))));
                }
            });
            match posted {
                Ok(()) => break,
                // Where many requests wait, this one comes in a moment.
                Err(Problem { code: Code::Busy, .. }) if Instant::now() < deadline => {
                    if self.end.wait(SLICE) {
                        return Err(ended());
                    }
                }
                Err(problem) => return Err(problem.detail),
            }
        }
        drop(sender);
        loop {
            match answer.recv_timeout(SLICE) {
                Ok(Ok(answers)) => {
                    return Ok(answers.answers.into_iter().map(|answer| answer.value).collect());
                }
                Ok(Err(problem)) => return Err(problem.detail),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) if self.end.is_told() => return Err(ended()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(format!("no answer came within {} s", PATIENCE.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn ended() -> String {
    "the task is to end".into()
}

impl HandlerCaller for Caller {
    fn read(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
        self.call(handler, argument, false)
    }
    fn write(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
        self.call(handler, argument, true)
    }
    fn tell(&mut self, news: News, message: &str) {
        let level = match news {
            News::Info => EventLevel::Info,
            News::Warning => EventLevel::Warning,
        };
        self.events.tell(level, "control-task", self.function.clone(), message);
    }
    fn is_ending(&self) -> bool {
        self.end.is_told()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use netbricks_core::{Handler, Input, NoSettings, Operator, Registry, compose};

    use super::super::tests::{Asking, chain, lost_nothing, while_running_with};
    use super::*;

    /// The numbers of what all tasks of a test did.
    #[derive(Default)]
    struct Seen {
        made: AtomicUsize,
        dropped: AtomicUsize,
        written: AtomicUsize,
        /// Set where the next run is to panic.
        panics: AtomicBool,
    }

    struct Ticks(&'static Seen);

    impl ControlTask for Ticks {
        fn run(&mut self, handlers: &mut dyn HandlerCaller, _: Instant) -> Option<Duration> {
            if self.0.panics.swap(false, Ordering::SeqCst) {
                panic!("planted");
            }
            let before: u64 = handlers.read("ticks", "").ok()?[0].parse().unwrap();
            handlers.write("tick", "3").ok()?;
            assert!(handlers.read("ticks", "").ok()?[0].parse::<u64>().unwrap() >= before + 3);
            let refused = handlers.write("tick", "many").unwrap_err();
            assert!(refused.contains("expected a number"), "{refused}");
            assert!(handlers.write("ticks", "").unwrap_err().contains("is read"));
            if self.0.written.fetch_add(1, Ordering::SeqCst) == 0 {
                handlers.tell(News::Info, "ticks");
            }
            Some(Duration::from_millis(1))
        }
    }
    impl Drop for Ticks {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A function whose task counts on a handler of it.
    fn registry(seen: &'static Seen) -> Registry {
        let mut registry = crate::standard();
        registry.add::<NoSettings>("ticking", "Ticks.", |_, worker| {
            compose(worker, |input: Input| {
                let ticks = worker.counter("ticks");
                let told = ticks.clone();
                worker.handler(Handler::read("ticks", "Ticks."), move |_| Ok(told.get().to_string()));
                worker.handler(Handler::write("tick", "Adds.").argument("NUMBER"), move |argument| {
                    let number =
                        argument.parse().map_err(|_| format!("expected a number, found {argument}"))?;
                    ticks.add(number);
                    Ok("added".into())
                });
                input.done()
            })
        });
        registry.control_task("ticking", move |_: &NoSettings| {
            seen.made.fetch_add(1, Ordering::SeqCst);
            Some(Box::new(Ticks(seen)))
        });
        registry
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    fn written(seen: &'static Seen, asking: &Asking) {
        asking.let_packets_pass();
        let before = seen.written.load(Ordering::SeqCst);
        wait_until(|| seen.written.load(Ordering::SeqCst) > before + 2);
    }

    #[test]
    fn a_task_comes_and_goes_with_its_function() {
        static SEEN: std::sync::LazyLock<Seen> = std::sync::LazyLock::new(Seen::default);
        let with = |function: &str| chain("\"ttl\", \"a\"", &format!("[function.a]\nuse = \"{function}\""));
        let (ticking, wire) = (with("ticking"), with("wire"));
        let more = ticking.replace("\"ttl\", ", "");
        let summary = while_running_with(registry(&SEEN), &wire.clone(), move |asking| {
            asking.let_packets_pass();
            assert_eq!(SEEN.made.load(Ordering::SeqCst), 0);
            asking.apply(&ticking).unwrap();
            written(&SEEN, asking);
            // It goes on where its function does.
            asking.apply(&more).unwrap();
            written(&SEEN, asking);
            let made = || SEEN.made.load(Ordering::SeqCst);
            let dropped = || SEEN.dropped.load(Ordering::SeqCst);
            assert_eq!((made(), dropped()), (1, 0));
            // No file with a fault ends it.
            asking.apply(&with("tiking")).unwrap_err();
            written(&SEEN, asking);
            asking.apply(&wire).unwrap();
            wait_until(|| dropped() == 1);
            asking.apply(&ticking).unwrap();
            written(&SEEN, asking);
            assert_eq!(made(), 2);
            let events = asking.ask(|director| director.events());
            let told = events.since(0).into_iter().find(|event| event.kind == "control-task").unwrap();
            assert_eq!((told.subject.as_str(), told.message.as_str()), ("a", "ticks"));
            assert!(
                asking.ask(|director| director.written().is_empty()),
                "the journal has no writes of tasks"
            );
            // A panic costs one run of the task.
            SEEN.panics.store(true, Ordering::SeqCst);
            wait_until(|| made() == 3);
            written(&SEEN, asking);
            let told = events.since(0).into_iter().find(|event| event.message.contains("planted")).unwrap();
            assert_eq!(told.level, EventLevel::Error);
        });
        lost_nothing(&summary);
        assert_eq!(SEEN.dropped.load(Ordering::SeqCst), 3, "the end of the run ends the task");
    }
}
