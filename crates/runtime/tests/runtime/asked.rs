//! Code of functions that workers call outside turns: a panic there is reported, and affects nothing else.

use netbricks_buffer::Batch;
use netbricks_core::{Context, ImportError, Node, NodeQueue, NodeState, Section, Shape, StateImage};
use netbricks_runtime::{Event, EventSink, Factory, FactoryError, IdlePolicy, Runtime, WorkerContext};

use crate::nodes::{Counting, Sink, Source, chain, config, pool};

/// Panics at export, import and report, and when it is dropped.
struct Rude;

impl Node for Rude {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Rude {
    fn export(&self) -> Vec<StateImage> {
        panic!("no export")
    }
    fn import(&mut self, _: &str, _: &[u8], _: u64) -> Result<(), ImportError> {
        panic!("no import")
    }
    fn report(&self) -> Vec<Section> {
        panic!("no report")
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        panic!("no end")
    }
}

/// Panics when it is asked how many packets it holds.
struct Mute;

impl Node for Mute {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Mute {
    fn held(&self) -> u64 {
        panic!("no answer")
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
}

/// Two nodes that panic when they are dropped, which together would have ended the process.
fn rude(context: &WorkerContext, name: &str, packets: u64) -> Result<netbricks_core::Graph, FactoryError> {
    let nodes: Vec<(&str, Box<dyn Node>)> = vec![
        ("in", Box::new(Source::new(packets))),
        ("rude", Box::new(Rude)),
        ("count", Box::new(Counting::new())),
        ("ruder", Box::new(Rude)),
        ("out", Box::new(Sink)),
    ];
    Ok(chain(name, nodes)?.build(context.pool().clone())?)
}

#[test]
fn a_report_an_export_and_an_end_that_panic_cost_nothing_but_themselves() {
    let (sink, events) = EventSink::channel(1_024);
    let config = config(pool(), 2).idle(IdlePolicy::Latency).events(sink);
    let factory = |name: &'static str| Factory::new(move |context| rude(context, name, u64::MAX));
    let runtime = Runtime::start(config, |_| factory("a")).unwrap();
    let control = runtime.control();
    let snapshot = control.snapshot().unwrap();
    assert_eq!(snapshot.nodes.len(), 5, "counters are no author's");
    assert_eq!(snapshot.sections.len(), 1, "and neither are the others' reports");
    for replaced in control.replace_all("a", |_| factory("b")).unwrap() {
        assert_eq!(replaced.moved, ["count: seen"]);
        assert_eq!(replaced.refused.len(), 2);
        assert!(replaced.refused.iter().any(|what| what == "rude: the export panicked: no export"));
        assert!(replaced.old.totals.is_conserved());
    }
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert!(report.workers.iter().all(|worker| worker.failure.is_none()));
    let panics = report.panics.iter().filter(|panic| panic.message == "no report").count();
    assert!(panics > 0, "{:?}", report.panics);
    let warnings = events.try_iter().filter_map(|event| match event {
        Event::Warning(warning) if warning.contains("taken down: no end") => Some(warning),
        _ => None,
    });
    // Two nodes of two graphs on two workers.
    assert_eq!(warnings.count(), 8);
}

#[test]
fn a_node_that_cannot_say_what_it_holds_loses_its_batches_and_the_worker_runs_on() {
    let factory = |name: &'static str, mute: bool| {
        Factory::new(move |context: &WorkerContext| -> Result<_, FactoryError> {
            let node: Box<dyn Node> = if mute { Box::new(Mute) } else { Box::new(Counting::new()) };
            let nodes = vec![
                ("in", Box::new(Source::new(1_000)) as Box<dyn Node>),
                ("node", node),
                ("out", Box::new(Sink)),
            ];
            Ok(chain(name, nodes)?.build(context.pool().clone())?)
        })
    };
    let runtime =
        Runtime::start_several(config(pool(), 1), |_| vec![factory("mute", true), factory("good", false)]);
    let report = runtime.unwrap().wait();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!((report.totals.received.packets, report.totals.sent.packets), (2_000, 1_000));
    assert_eq!(report.totals.drops.of(netbricks_core::DropReason::Panicked).packets, 1_000);
    assert_eq!(report.totals.held, 0);
}

#[test]
fn a_sink_that_panics_over_an_event_does_not_end_the_worker() {
    let config = config(pool(), 1).events(EventSink::new(|_| panic!("no events")));
    let factory = |_| Factory::new(|context: &WorkerContext| rude(context, "a", 100));
    let report = Runtime::start(config, factory).unwrap().wait();
    assert!(report.conserved && report.workers[0].failure.is_none(), "{:?}", report.workers[0].failure);
    assert_eq!(report.totals.sent.packets, 100);
}
