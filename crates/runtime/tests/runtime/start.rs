//! Starting: every worker gets its own copy of the graph and its core, or none starts.

use std::sync::{Arc, Mutex};

use netbricks_core::{Graph, GraphError};
use netbricks_runtime::{
    Event, EventSink, Factory, Placement, PlacementError, Runtime, StartError, WorkerContext, allowed_cores,
};

use crate::nodes::{Sink, Source, chain, config, pool};

fn finite(context: &WorkerContext) -> Result<Graph, GraphError> {
    chain("g", vec![("in", Box::new(Source::new(100))), ("out", Box::new(Sink))])?
        .build(context.pool().clone())
}

#[test]
fn a_worker_that_cannot_be_built_stops_all() {
    let pool = pool();
    for panics in [false, true] {
        let error = Runtime::start(config(pool.clone(), 4), |worker| {
            Factory::new(move |context| match worker {
                2 if panics => panic!("planted"),
                2 => Err("queue 2 does not exist".into()),
                _ => finite(context).map_err(|error| error.to_string()),
            })
        })
        .unwrap_err();
        let problem = if panics { "its factory panicked: planted" } else { "queue 2 does not exist" };
        let expected = format!("worker 2 could not make the graph: {problem}");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(pool.available(), pool.capacity());
    }
    // Nothing of it prevents the next start.
    assert!(Runtime::start(config(pool, 4), |_| Factory::new(finite)).unwrap().wait().conserved);
}

#[test]
fn workers_run_on_the_cores_that_they_report() {
    let cores = allowed_cores();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let workers = cores.len().min(4);
    let config = config(pool(), workers).placement(Placement::Cores(cores[..workers].to_vec()));
    let report = Runtime::start(config, |_| {
        let seen = seen.clone();
        Factory::new(move |context| {
            assert_eq!(allowed_cores(), [context.core().unwrap()]);
            seen.lock().unwrap().push(context.core().unwrap());
            finite(context)
        })
    })
    .unwrap()
    .wait();
    let reported: Vec<_> = report.workers.iter().filter_map(|worker| worker.core).collect();
    assert_eq!(reported, cores[..workers]);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, reported);
}

#[test]
fn more_workers_than_cores_share_them_and_say_so() {
    let (sink, events) = EventSink::channel(100);
    let workers = allowed_cores().len() + 1;
    let config = config(pool(), workers).placement(Placement::Automatic).events(sink);
    let report = Runtime::start(config, |_| Factory::new(finite)).unwrap().wait();
    assert_eq!(report.totals.sent.packets, 100 * workers as u64);
    assert!(events.try_iter().any(|event| matches!(event, Event::Warning(text) if text.contains("share"))));
}

#[test]
fn bad_configurations_are_refused_before_anything_starts() {
    let none = |workers| Runtime::start(config(pool(), workers), |_| Factory::new(finite));
    assert!(matches!(none(0), Err(StartError::Workers { workers: 0 })));
    assert!(matches!(none(65), Err(StartError::Workers { workers: 65 })));
    let config = config(pool(), 1).placement(Placement::Cores(vec![5_000]));
    let error = Runtime::start(config, |_| Factory::new(finite)).unwrap_err();
    assert!(
        matches!(error, StartError::Placement(PlacementError::NotAllowed { core: 5_000, .. })),
        "{error}"
    );
}
