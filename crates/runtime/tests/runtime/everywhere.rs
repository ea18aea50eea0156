//! Graphs that exchange packets run on all workers, with the same shuffles in one order.
//!
//! Other graphs do not start, because some workers would wait for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::{Edge, GraphBuilder, GraphError, Shuffle, ShuffleConfig, ShuffleKey};
use netbricks_runtime::{Clock, CommandError, Factory, Runtime, ShuffleMismatch, StartError};

use crate::nodes::{Sink, config};
use crate::shuffle::{Flows, Seen, Witness, check_order, pool};

/// Flows of each worker, and the packets that it sends of all of them together.
const FLOWS: u16 = 32;
const PACKETS: u64 = 3_000;

fn shuffles() -> [Shuffle; 2] {
    [ShuffleKey::SymmetricFlow, ShuffleKey::Source]
        .map(|key| Shuffle::new(ShuffleConfig { key, ring: 8, ..ShuffleConfig::default() }))
}

/// A source, these shuffles one behind the other, and the exit.
fn through(
    worker: usize,
    name: &'static str,
    shuffles: Vec<(&'static str, Shuffle)>,
    seen: &Seen,
) -> Factory {
    let seen = seen.clone();
    Factory::new(move |context| -> Result<_, GraphError> {
        let mut graph = GraphBuilder::new(name);
        let mut last = graph.add("in", Box::new(Flows::new(worker, FLOWS, PACKETS)))?;
        for (name, shuffle) in shuffles {
            let failed = |error| GraphError::Node { name: name.into(), error };
            let node = graph.add(name, shuffle.node(context.worker()).map_err(failed)?)?;
            graph.connect(last, Edge::OUT, node, 0)?;
            last = node;
        }
        let out = graph.add("out", Box::new(Witness { worker, seen }))?;
        graph.connect(last, Edge::OUT, out, 0)?;
        graph.build(context.pool().clone())
    })
}

fn idle(pool: &Pool, workers: usize) -> Runtime {
    // No graph runs yet.
    let mut config = config(pool.clone(), workers).clock(Clock::Driven);
    config.linger = true;
    Runtime::start_several(config, |_| Vec::new()).unwrap()
}

#[test]
fn a_graph_with_a_shuffle_does_not_run_on_some_of_the_workers() {
    let (pool, seen) = (pool(), Seen::default());
    let runtime = idle(&pool, 2);
    let control = runtime.control();
    let [first, _] = shuffles();
    let error = control.install(0, through(0, "g", vec![("by-flow", first)], &seen)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "worker 0: graph `g` has the shuffle `by-flow`, by which it and the other workers' exchange packets: install, \
         replace or remove it on all of them at once (`install_all`, `replace_all`, `remove_all`)"
    );

    // On all workers it starts. A graph without shuffles starts on one worker as before.
    let plain = |seen: &Seen| through(1, "g", Vec::new(), seen);
    assert_eq!(control.install(1, plain(&Seen::default())).unwrap(), "g");
    let [first, _] = shuffles();
    let replaced = control.replace(1, "g", through(1, "other", vec![("by-flow", first)], &seen));
    assert!(matches!(replaced, Err(CommandError::Alone { worker: 1, .. })), "{replaced:?}");
    control.replace(1, "g", through(1, "h", Vec::new(), &Seen::default())).unwrap();
    let [first, _] = shuffles();
    let make = |worker| through(worker, "all", vec![("by-flow", first.clone())], &seen);
    assert_eq!(control.install_all(make).unwrap(), ["all", "all"]);
    while seen.lock().unwrap().values().map(|packets| packets.len() as u64).sum::<u64>() < 2 * PACKETS {
        std::thread::yield_now();
    }
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    check_order(&seen, 2 * usize::from(FLOWS), 2 * PACKETS);

    // A single worker has all ends.
    let runtime = idle(&pool, 1);
    let [first, _] = shuffles();
    runtime.control().install(0, through(0, "g", vec![("by-flow", first)], &Seen::default())).unwrap();
    assert!(runtime.stop().conserved);
}

/// The refusal of a runtime whose workers' graphs have these shuffles.
fn refusal(
    pool: &Pool,
    workers: usize,
    of: impl Fn(usize) -> Vec<(&'static str, Shuffle)>,
) -> Option<ShuffleMismatch> {
    let seen = Seen::default();
    let config = config(pool.clone(), workers).clock(Clock::Driven);
    match Runtime::start(config, |worker| through(worker, "g", of(worker), &seen)) {
        Ok(runtime) => {
            let report = runtime.wait();
            assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
            None
        }
        Err(StartError::Shuffles(mismatch)) => {
            assert_eq!(pool.available(), pool.capacity());
            Some(mismatch)
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn workers_do_not_begin_with_shuffles_of_which_some_have_no_end() {
    let (pool, [first, second]) = (pool(), shuffles());
    let of = |worker| match worker {
        2 => vec![("a", first.clone())],
        _ => vec![("a", first.clone()), ("b", second.clone())],
    };
    assert_eq!(
        refusal(&pool, 3, of).unwrap().to_string(),
        "worker 2 has no end of shuffle `b`, which worker 0 has: no worker would take the packets that belong to worker 2; make \
         every worker's graph with a node of the same shuffle, a clone of one `Shuffle`, also where it receives nothing \
         itself"
    );
    // A separate shuffle for each worker connects no workers.
    let [first, second] = shuffles();
    let apart =
        refusal(&pool, 2, |worker| vec![("a", if worker == 0 { first.clone() } else { second.clone() })]);
    assert_eq!(apart, Some(ShuffleMismatch::Missing { shuffle: "a".into(), has: 0, lacks: 1 }));
}

#[test]
fn workers_do_not_begin_with_shuffles_in_different_orders() {
    let (pool, [first, second]) = (pool(), shuffles());
    let of = |worker| match worker {
        0 => vec![("a", first.clone()), ("b", second.clone())],
        _ => vec![("second", second.clone()), ("first", first.clone())],
    };
    let found = refusal(&pool, 2, of).unwrap();
    assert!(matches!(found, ShuffleMismatch::Order { .. }));
    let said = found.to_string();
    let begins = "packets come to the workers' shuffles in different orders, so that workers could wait for each other for \
                  ever: from `";
    assert!(
        said.starts_with(begins) && said.ends_with("; connect them in one order on all workers"),
        "{said}"
    );
    for step in ["from `a` to `b` on worker 0", "from `second` to `first` on worker 1"] {
        assert!(said.contains(step), "{said}");
    }

    // Three shuffles, and each two of them have the same order on two workers.
    let three = [(); 3].map(|()| Shuffle::new(ShuffleConfig { ring: 8, ..ShuffleConfig::default() }));
    let names = ["a", "b", "c"];
    let of = |worker: usize| {
        let order = [worker, (worker + 1) % 3, (worker + 2) % 3];
        order.map(|number| (names[number], three[number].clone())).to_vec()
    };
    assert!(matches!(refusal(&pool, 3, of), Some(ShuffleMismatch::Order { .. })));

    // The same order under other names is equal.
    let [first, second] = shuffles();
    let names = [["a", "b"], ["b", "a"]];
    let of = |worker: usize| vec![(names[worker][0], first.clone()), (names[worker][1], second.clone())];
    assert_eq!(refusal(&pool, 2, of), None);
}

#[test]
fn shuffles_of_which_none_leads_to_another_are_made_in_any_order() {
    let (pool, shuffles) = (pool(), shuffles());
    let config = config(pool, 2).clock(Clock::Driven);
    let runtime = Runtime::start(config, |worker| {
        let shuffles = shuffles.clone();
        Factory::new(move |context| -> Result<_, GraphError> {
            let mut graph = GraphBuilder::new("g");
            for number in [worker, 1 - worker] {
                let failed = |error| GraphError::Node { name: "shuffle".into(), error };
                let source = graph
                    .add(format!("in {number}"), Box::new(Flows::new(2 * number + worker, FLOWS, PACKETS)))?;
                let node = shuffles[number].node(context.worker()).map_err(failed)?;
                let node = graph.add(format!("shuffle {number}"), node)?;
                let out = graph.add(format!("out {number}"), Box::new(Sink))?;
                graph.connect(source, Edge::OUT, node, 0)?;
                graph.connect(node, Edge::OUT, out, 0)?;
            }
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    let report = runtime.wait();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!(report.totals.sent.packets, 4 * PACKETS);
}

#[test]
fn graphs_that_do_not_fit_together_do_not_take_over() {
    let (pool, seen) = (pool(), Seen::default());
    let runtime = idle(&pool, 2);
    let control = runtime.control();
    let [first, second] = shuffles();
    let make = |worker| match worker {
        0 => through(worker, "g", vec![("a", first.clone()), ("b", second.clone())], &seen),
        _ => through(worker, "g", vec![("b", second.clone()), ("a", first.clone())], &seen),
    };
    let error = control.install_all(make).unwrap_err();
    assert!(matches!(error, CommandError::Shuffles(ShuffleMismatch::Order { .. })), "{error}");
    let known = control.snapshot().unwrap();
    assert!(known.workers.iter().all(|worker| worker.graphs.is_empty()), "{known:?}");

    let [first, _] = shuffles();
    control.install_all(|worker| through(worker, "g", vec![("a", first.clone())], &Seen::default())).unwrap();
    let [first, _] = shuffles();
    let make = |worker| match worker {
        0 => through(worker, "h", vec![("a", first.clone())], &seen),
        _ => through(worker, "h", Vec::new(), &seen),
    };
    let error = control.replace_all("g", make).unwrap_err();
    assert!(matches!(error, CommandError::Shuffles(ShuffleMismatch::Missing { lacks: 1, .. })), "{error}");
    let known = control.snapshot().unwrap();
    assert!(known.workers.iter().all(|worker| worker.graphs[0].graph == "g"), "{known:?}");
    assert!(seen.lock().unwrap().is_empty());
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
}

#[test]
fn a_graph_with_a_shuffle_does_not_go_from_some_of_the_workers() {
    let (pool, seen) = (pool(), Seen::default());
    let runtime = idle(&pool, 2);
    let control = runtime.control();
    let [first, _] = shuffles();
    // They send to each other without end.
    let make = |worker: usize| endless(worker, "g", &first, &seen);
    control.install_all(make).unwrap();
    let refused = [
        control.remove(0, "g").unwrap_err(),
        control.replace(0, "g", through(0, "h", Vec::new(), &Seen::default())).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, CommandError::Alone { worker: 0, .. }), "{error}");
        assert!(error.to_string().contains("`remove_all`"), "{error}");
    }
    let running = control.snapshot().unwrap();
    assert!(running.workers.iter().all(|worker| worker.graphs[0].graph == "g"), "{running:?}");
    let removed = control.remove_all("g").unwrap();
    assert!(removed.iter().all(|report| report.totals.is_conserved() && report.totals.held == 0));
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);

    // A single worker is all workers.
    let runtime = idle(&pool, 1);
    let [first, _] = shuffles();
    let control = runtime.control();
    control.install(0, endless(0, "g", &first, &Seen::default())).unwrap();
    control.replace(0, "g", through(0, "h", Vec::new(), &Seen::default())).unwrap();
    control.remove(0, "h").unwrap();
    assert!(runtime.stop().conserved);
}

fn endless(worker: usize, name: &'static str, shuffle: &Shuffle, seen: &Seen) -> Factory {
    let (shuffle, seen) = (shuffle.clone(), seen.clone());
    Factory::new(move |context| -> Result<_, GraphError> {
        let mut graph = GraphBuilder::new(name);
        let failed = |error| GraphError::Node { name: "shuffle".into(), error };
        let source = graph.add("in", Box::new(Flows::new(worker, FLOWS, u64::MAX)))?;
        let shuffle = graph.add("shuffle", shuffle.node(context.worker()).map_err(failed)?)?;
        let out = graph.add("out", Box::new(Witness { worker, seen }))?;
        graph.connect(source, Edge::OUT, shuffle, 0)?;
        graph.connect(shuffle, Edge::OUT, out, 0)?;
        graph.build(context.pool().clone())
    })
}

/// Workers with graphs in different orders would wait for each other in different orders at their end.
#[test]
fn one_change_of_all_workers_comes_after_another() {
    let (pool, seen) = (pool(), Seen::default());
    let runtime = idle(&pool, 2);
    let control = runtime.control();
    let [first, second] = shuffles();
    let [in_first, second_asks, in_second] = [(); 3].map(|()| AtomicBool::new(false));
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let make = |worker| {
                if worker == 1 {
                    in_first.store(true, Ordering::Release);
                    wait_for(&second_asks);
                    // Long enough for the other change to come between, if it can.
                    thread::sleep(Duration::from_millis(50));
                    assert!(
                        !in_second.load(Ordering::Acquire),
                        "the other has begun in the middle of this one"
                    );
                }
                through(worker, "first", vec![("by-flow", first.clone())], &seen)
            };
            control.install_all(make).unwrap();
        });
        scope.spawn(|| {
            wait_for(&in_first);
            second_asks.store(true, Ordering::Release);
            let make = |worker| {
                in_second.store(true, Ordering::Release);
                through(worker, "second", vec![("by-flow", second.clone())], &Seen::default())
            };
            control.install_all(make).unwrap();
        });
    });
    for worker in control.snapshot().unwrap().workers {
        let order: Vec<_> = worker.graphs.iter().map(|graph| graph.graph.as_str()).collect();
        assert_eq!(order, ["first", "second"]);
    }
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
}
