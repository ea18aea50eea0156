//! The control side: graphs come, take over and go while workers run, and nothing is lost.

use std::cell::RefCell;
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::{CallError, Graph, GraphError};
use netbricks_runtime::{CommandError, Config, Factory, FactoryError, IdlePolicy, Runtime, WorkerContext};

use crate::nodes::{Counting, Keeper, Position, Sink, Source, chain, config, pool};

/// An endless source that outlives its graph, a keeper, a counter under `state`, a sink.
fn counting(context: &WorkerContext, name: &str, state: &'static str) -> Result<Graph, FactoryError> {
    let position = context.kept("source", || Ok(RefCell::new(Position::default())))?;
    let nodes: Vec<(&str, Box<dyn netbricks_core::Node>)> = vec![
        ("in", Box::new(Source::at(position, u64::MAX))),
        ("keeper", Box::new(Keeper::new(50))),
        ("count", Box::new(Counting::named(state))),
        ("out", Box::new(Sink)),
    ];
    Ok(chain(name, nodes)?.build(context.pool().clone())?)
}

fn factory(name: &'static str, state: &'static str) -> Factory {
    Factory::new(move |context| counting(context, name, state))
}

fn busy(pool: Pool, workers: usize) -> Config {
    config(pool, workers).idle(IdlePolicy::Latency)
}

#[test]
fn replacing_under_load_loses_nothing_and_moves_the_state() {
    let runtime = Runtime::start(busy(pool(), 2), |_| factory("v0", "seen")).unwrap();
    let names: Vec<&'static str> = (1..20).map(|i| &*format!("v{i}").leak()).collect();
    let mut old = "v0";
    for name in names {
        let replaced = runtime.control().replace_all(old, |_| factory(name, "seen")).unwrap();
        for replaced in &replaced {
            assert_eq!(replaced.graph, name);
            assert_eq!(replaced.moved, ["count: seen"]);
            assert!(replaced.refused.is_empty());
            assert_eq!(replaced.old.graph, old);
            assert_eq!(replaced.old.totals.held, 0);
            assert!(replaced.old.totals.is_conserved());
        }
        old = name;
    }
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!(report.totals.received, report.totals.sent);
    // Each worker's count passed through twenty graphs.
    for (worker, row) in report.workers.iter().zip(&report.sections[0].section.rows) {
        let sent: u64 = worker.graphs.iter().map(|graph| graph.totals.sent.packets).sum();
        assert_eq!(row[0].parse(), Ok(sent));
        assert_eq!(worker.graphs.len(), 20);
    }
}

#[test]
fn state_that_does_not_fit_is_told_and_left_behind() {
    let runtime = Runtime::start(busy(pool(), 1), |_| factory("a", "seen")).unwrap();
    let replaced = runtime.control().replace(0, "a", factory("a", "heard")).unwrap();
    assert!(replaced.moved.is_empty());
    assert_eq!(replaced.refused, ["count: no state `seen` is declared here"]);
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole);
    // One graph of one name: the counters of both together, and the tables of the running one.
    assert_eq!(report.workers[0].graphs.len(), 1);
    assert_eq!(report.totals.received, report.totals.sent);
    assert_eq!(report.sections[0].section.rows.len(), 1);
}

#[test]
fn a_replacement_that_fails_leaves_what_ran_on_every_worker() {
    let runtime = Runtime::start(busy(pool(), 2), |_| factory("a", "seen")).unwrap();
    let control = runtime.control();
    let fail = |worker| match worker {
        0 => factory("b", "seen"),
        _ => Factory::new(|_: &WorkerContext| Err::<Graph, _>("no memory for its table")),
    };
    let error = control.replace_all("a", fail).unwrap_err();
    assert_eq!(error.to_string(), "worker 1 could not make the graph: no memory for its table");
    let error = control
        .replace(1, "a", Factory::new(|_: &WorkerContext| -> Result<Graph, GraphError> { panic!("planted") }))
        .unwrap_err();
    // With the place, if the panic hook keeps it.
    let expected = "worker 1 could not make the graph: its factory panicked: planted";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(matches!(control.replace(0, "c", factory("d", "seen")), Err(CommandError::NoGraph { .. })));
    assert!(matches!(control.install(0, factory("a", "seen")), Err(CommandError::NameTaken { .. })));
    assert!(matches!(
        control.install(7, factory("x", "seen")),
        Err(CommandError::NoWorker { workers: 2, .. })
    ));

    // All of it is still there and runs: the counts continue.
    let before = control.snapshot().unwrap();
    for worker in &before.workers {
        assert_eq!(worker.graphs.iter().map(|graph| graph.graph.as_str()).collect::<Vec<_>>(), ["a"]);
        let seen = |_| control.call(worker.worker, "a", "count", "seen", "").unwrap().parse::<u64>().unwrap();
        let first = seen(());
        while seen(()) == first {}
    }
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole);
}

#[test]
fn graphs_are_installed_beside_others_and_removed_with_their_totals() {
    let runtime = Runtime::start(busy(pool(), 2), |_| factory("a", "seen")).unwrap();
    let control = runtime.control();
    let finite = |name: &'static str, packets| {
        Factory::new(move |context: &WorkerContext| {
            chain(
                name,
                vec![
                    ("in", Box::new(Source::new(packets))),
                    ("keeper", Box::new(Keeper::new(40))),
                    ("out", Box::new(Sink)),
                ],
            )?
            .build(context.pool().clone())
        })
    };
    assert_eq!(control.install_all(|_| finite("b", 1_000)).unwrap(), ["b", "b"]);
    assert_eq!(control.install(1, finite("c", 7)).unwrap(), "c");
    while control.snapshot().unwrap().totals.received.packets < 10_000 {}
    let removed = control.remove(1, "c").unwrap();
    assert_eq!(
        (removed.totals.received.packets, removed.totals.sent.packets, removed.totals.held),
        (7, 7, 0)
    );
    let removed = control.remove_all("b").unwrap();
    assert!(removed.iter().all(|graph| graph.totals.is_conserved() && graph.totals.held == 0));
    assert!(matches!(control.remove(0, "b"), Err(CommandError::NoGraph { .. })));
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    let of = |graph: &str| {
        let nodes = report.nodes.iter().filter(|node| node.graph == graph);
        nodes.map(|node| node.counters.received.packets).sum::<u64>()
    };
    assert_eq!(of("c"), 7);
    assert_eq!(of("b"), removed.iter().map(|graph| graph.totals.received.packets).sum::<u64>());
    assert_eq!(report.totals.received, report.totals.sent);
}

#[test]
fn calls_are_answered_and_their_panics_are_the_callers() {
    let runtime = Runtime::start(busy(pool(), 1), |_| factory("a", "seen")).unwrap();
    let control = runtime.control();
    assert!(control.call(0, "a", "count", "seen", "").unwrap().parse::<u64>().is_ok());
    let error = control.call(0, "a", "count", "heard", "").unwrap_err();
    assert!(matches!(&error, CommandError::Call { error: CallError::Unknown { .. }, .. }), "{error}");
    let error = control.call(0, "a", "count", "panic", "loud").unwrap_err();
    assert_eq!(error.to_string(), "worker 0: the call panicked: asked to: loud");
    assert!(control.call(0, "a", "count", "seen", "").is_ok());
    assert!(runtime.stop().conserved);
}

#[test]
fn a_lingering_worker_waits_for_graphs_and_an_ended_one_says_so() {
    let mut config = config(pool(), 2);
    config.linger = true;
    let runtime = Runtime::start_several(config, |_| Vec::new()).unwrap();
    let control = runtime.control().clone();
    control.install_all(|_| factory("a", "seen")).unwrap();
    while control.progress().received.packets == 0 {
        std::thread::yield_now();
    }
    let by_worker = control.progress_by_worker();
    assert_eq!(by_worker.len(), 2);
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole);
    assert!(matches!(control.install(0, factory("b", "seen")), Err(CommandError::Ended { worker: 0 })));
    assert_eq!(control.progress().received, report.totals.received);
    assert_eq!(control.progress().ended, 2);
    assert_eq!(control.snapshot().unwrap().totals, report.totals);
}

#[test]
fn a_worker_that_never_answers_does_not_hang_the_control_side() {
    let mut config = busy(pool(), 1);
    config.patience = Duration::from_secs(1);
    let (entered, inside) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let runtime = Runtime::start(config, |_| factory("a", "seen")).unwrap();
    let control = runtime.control().clone();
    let asked = std::thread::spawn({
        let control = control.clone();
        move || {
            control.install(
                0,
                Factory::new(move |_: &WorkerContext| {
                    entered.send(()).unwrap();
                    let _released = released.recv();
                    Err::<Graph, _>("given up")
                }),
            )
        }
    });
    inside.recv().unwrap();
    assert!(matches!(control.snapshot(), Err(CommandError::NoAnswer { worker: 0, .. })));
    assert!(matches!(asked.join().unwrap(), Err(CommandError::NoAnswer { .. })));
    release.send(()).unwrap();
    assert!(runtime.stop().conserved);
}

/// A worker that is held up, with the way to let it go on.
fn hold_up(
    control: &netbricks_runtime::Control,
) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (entered, inside) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let control = control.clone();
    let asked = std::thread::spawn(move || {
        let held = Factory::new(move |_: &WorkerContext| {
            entered.send(()).unwrap();
            let _released = released.recv();
            Err::<Graph, _>("given up")
        });
        control.install(1, held).unwrap_err();
    });
    inside.recv().unwrap();
    (release, asked)
}

#[test]
fn a_suspension_that_a_worker_does_not_hear_of_takes_no_effect_on_any() {
    let mut config = busy(pool(), 2);
    config.patience = Duration::from_secs(1);
    let runtime = Runtime::start(config, |_| factory("a", "seen")).unwrap();
    let control = runtime.control().clone();
    let (release, asked) = hold_up(&control);
    assert!(matches!(control.suspend_all(), Err(CommandError::NoAnswer { worker: 1, .. })));
    release.send(()).unwrap();
    asked.join().unwrap();
    // Behind all that was asked before.
    control.snapshot().unwrap();
    let received = |worker: usize| control.progress_by_worker()[worker].received.packets;
    let until = std::time::Instant::now() + Duration::from_secs(60);
    for worker in 0..2 {
        let before = received(worker);
        while received(worker) < before + 1_000 {
            assert!(std::time::Instant::now() < until, "worker {worker} receives nothing");
            std::thread::yield_now();
        }
    }
    assert!(runtime.stop().conserved);
}

/// The one who waits looks around meanwhile, and decides how long to wait for a worker that has not begun.
#[test]
fn a_call_waits_no_longer_than_its_caller_hopes() {
    let mut config = busy(pool(), 2);
    config.patience = Duration::from_secs(3_600);
    let runtime = Runtime::start(config, |_| factory("a", "seen")).unwrap();
    let control = runtime.control().clone();
    let (release, asked) = hold_up(&control);
    let looked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let looks = looked.clone();
    control.while_waiting(move |worker| {
        looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        worker == 1
    });
    assert!(matches!(control.suspend_all(), Err(CommandError::NoAnswer { worker: 1, .. })));
    assert!(looked.load(std::sync::atomic::Ordering::Relaxed) > 0);
    release.send(()).unwrap();
    asked.join().unwrap();
    control.suspend_all().unwrap();
    control.resume_all().unwrap();
    assert!(runtime.stop().conserved);
}

/// State with an age, as a monitor's flows have.
///
/// An import refuses entries that were not seen within 60 s before it.
struct Ageing {
    last: u64,
}

const IDLE: u64 = 60_000_000_000;

impl netbricks_core::Node for Ageing {
    fn process(&mut self, _: usize, _: &mut netbricks_buffer::Batch, cx: &mut netbricks_core::Context) {
        self.last = cx.now();
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn netbricks_core::NodeState)) {
        ask(self);
    }
}

impl netbricks_core::NodeState for Ageing {
    fn export(&self) -> Vec<netbricks_core::StateImage> {
        vec![("flows".into(), self.last.to_be_bytes().to_vec())]
    }
    fn import(&mut self, name: &str, bytes: &[u8], now: u64) -> Result<(), netbricks_core::ImportError> {
        let last = u64::from_be_bytes(bytes.try_into().unwrap());
        let fresh = last <= now && now - last < IDLE;
        self.last = last;
        let problem = format!("last seen at {last}, and it is {now}");
        fresh.then_some(()).ok_or(netbricks_core::ImportError::Refused { name: name.into(), problem })
    }
}

#[test]
fn imported_flows_keep_their_age() {
    let start = 1_800_000_000_000_000_000;
    let (clock, hand) = netbricks_runtime::Clock::manual(start);
    let mut config = busy(pool(), 1);
    config.clock = clock;
    let ageing = |name: &'static str| {
        Factory::new(move |context: &WorkerContext| -> Result<Graph, FactoryError> {
            let position = context.kept("source", || Ok(RefCell::new(Position::default())))?;
            let nodes: Vec<(&str, Box<dyn netbricks_core::Node>)> = vec![
                ("in", Box::new(Source::at(position, u64::MAX))),
                ("flows", Box::new(Ageing { last: 0 })),
                ("out", Box::new(Sink)),
            ];
            Ok(chain(name, nodes)?.build(context.pool().clone())?)
        })
    };
    let runtime = Runtime::start(config, |_| ageing("a")).unwrap();
    let control = runtime.control();
    while control.progress().received.packets == 0 {
        std::thread::yield_now();
    }
    hand.store(start + IDLE / 2, std::sync::atomic::Ordering::Relaxed);
    for (old, new) in [("a", "b"), ("b", "c")] {
        let replaced = control.replace(0, old, ageing(new)).unwrap();
        assert_eq!((replaced.moved, replaced.refused), (vec!["flows: flows".to_owned()], Vec::new()));
    }
    assert!(runtime.stop().conserved);
}
