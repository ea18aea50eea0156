//! A node with a large table gives way to one of another size: flows move while packets do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Batch;
use netbricks_core::state::Declarations;
use netbricks_core::tables::{FlowTableConfig, Table};
use netbricks_core::{Blueprint, Context, Edge, Flows, GraphBuilder, Node, NodeState};
use netbricks_runtime::{Change, Factory, FactoryError, IdlePolicy, Runtime, WorkerContext};

use crate::nodes::{Sink, Source, config, pool, sequence};

const FLOWS: u64 = 50_000;

/// Counts the packets of each flow, and those before which it did not know of all that had come.
struct Counted {
    flows: Flows<u64, u64>,
    declarations: Declarations,
    forgotten: Arc<AtomicU64>,
}

impl Node for Counted {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let mut flows = self.flows.borrow_mut();
        for packet in batch.iter() {
            let (flow, round) = (sequence(packet) % FLOWS, sequence(packet) / FLOWS);
            let packets = flows.lookup([flow], cx.now()).or_insert_with(|| 0).unwrap();
            if *packets != round {
                self.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            *packets += 1;
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}

fn counted(capacity: usize, forgotten: &Arc<AtomicU64>) -> Blueprint {
    let forgotten = forgotten.clone();
    Blueprint::new(move |worker| {
        let config = FlowTableConfig::new(capacity);
        let (flows, declarations) = worker.declaring(|| worker.flow_table::<u64, u64>("flows", config))?;
        Ok(Box::new(Counted { flows, declarations, forgotten: forgotten.clone() }))
    })
}

/// The graph: the ends are those of `running`, if there is one.
fn graph(
    context: &WorkerContext,
    running: Option<&netbricks_core::Graph>,
    blueprint: &Blueprint,
) -> Result<GraphBuilder, FactoryError> {
    let mut builder = GraphBuilder::new("g");
    let source = match running {
        Some(running) => builder.keep("in", running)?,
        None => builder.add("in", Box::new(Source::new(u64::MAX)))?,
    };
    let function = builder.add_function("count", blueprint, context.worker())?;
    let sink = match running {
        Some(running) => builder.keep("out", running)?,
        None => builder.add("out", Box::new(Sink))?,
    };
    builder.connect(source, Edge::OUT, function, 0)?;
    builder.connect(function, Edge::OUT, sink, 0)?;
    Ok(builder)
}

#[test]
fn a_large_table_moves_in_steps_while_packets_flow() {
    const WORKERS: usize = 2;
    let forgotten = Arc::new(AtomicU64::new(0));
    let first = counted(FLOWS as usize, &forgotten);
    let config = config(pool(), WORKERS).idle(IdlePolicy::Latency);
    let runtime = Runtime::start(config, |_| {
        let first = first.clone();
        Factory::new(move |context: &WorkerContext| {
            Ok::<_, FactoryError>(graph(context, None, &first)?.build(context.pool().clone())?)
        })
    })
    .unwrap();
    let control = runtime.control().clone();
    let occupancy = |worker| control.call(worker, "g", "count", "flows.occupancy", "").unwrap();
    while !(0..WORKERS).all(|worker| occupancy(worker) == format!("{FLOWS} {FLOWS}")) {
        std::thread::yield_now();
    }
    control.take_longest_pause();
    for capacity in [70_000, 100_000, 60_000, FLOWS as usize, 120_000] {
        let next = counted(capacity, &forgotten);
        let replaced = control
            .change_all("g", |_| {
                let next = next.clone();
                Change::new(move |context, running| graph(context, Some(running), &next))
            })
            .unwrap();
        for replaced in replaced {
            assert_eq!((replaced.moved, replaced.refused.len()), (vec!["count: flows".to_owned()], 0));
            assert_eq!(replaced.copied.len(), 0, "no bytes were copied while packets waited");
        }
        // Who asks finds all of it, wherever it is.
        for worker in 0..WORKERS {
            assert_eq!(occupancy(worker), format!("{FLOWS} {capacity}"));
        }
    }
    println!("longest pause of a worker: {} us", control.take_longest_pause() / 1_000);
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!(report.totals.received, report.totals.sent);
    assert_eq!(forgotten.load(Ordering::Relaxed), 0, "each flow was found with all its packets");
}
