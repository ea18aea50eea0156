//! A live change on several workers, one after the other, of graphs whose workers share state.
//!
//! No count is lost.

use std::cell::RefCell;

use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, Strict};
use netbricks_core::packet::Link;
use netbricks_core::tables::CounterArray;
use netbricks_core::{Blueprint, Function, Handler, Input, Operator, Verdict, Worker, compose};
use netbricks_runtime::{Config, Factory, FactoryError, IdlePolicy, Runtime, WorkerContext};

use crate::nodes::{Position, Sink, Source, chain, config, pool};

/// Counts packets together with other workers. Packets that it could not count, as another worker wrote, it
/// counts for itself.
fn counting<C: Consistency>(
    input: Input,
    worker: &Worker,
    consistency: C,
    counters: usize,
) -> impl Function + use<C> {
    let seen = worker.state::<CounterArray, C>("seen", consistency, counters);
    let missed = worker.counter("missed");
    let all = seen.clone();
    worker.handler(Handler::read("all", "What all workers counted."), move |_| {
        Ok(all.read(|seen| seen.get(0)).unwrap_or_default().to_string())
    });
    let own = missed.clone();
    worker.handler(Handler::read("own", "What this worker could not count there."), move |_| {
        Ok(own.get().to_string())
    });
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .inspect(move |_| {
            if seen.update((0, 1)).is_err() {
                missed.add(1);
            }
        })
        .done()
}

fn blueprint<C: Consistency + Copy + Send + Sync + 'static>(consistency: C, counters: usize) -> Blueprint {
    Blueprint::new(move |worker| compose(worker, |input| counting(input, worker, consistency, counters)))
}

fn factory(name: String, blueprint: &Blueprint) -> Factory {
    let blueprint = blueprint.clone();
    Factory::new(move |context: &WorkerContext| {
        let position = context.kept("source", || Ok(RefCell::new(Position::default())))?;
        let nodes: Vec<(&str, Box<dyn netbricks_core::Node>)> = vec![
            ("in", Box::new(Source::at(position, PACKETS))),
            ("count", blueprint.build(context.worker())?),
            ("out", Box::new(Sink)),
        ];
        Ok::<_, FactoryError>(chain(&name, nodes)?.build(context.pool().clone())?)
    })
}

/// Packets of each worker's source: more than there is time for.
const PACKETS: u64 = u64::MAX;
const CHANGES: usize = 60;

fn busy() -> Config {
    config(pool(), 2).idle(IdlePolicy::Latency)
}

/// Replaces the graph several times, and compares the counted packets with the received ones.
///
/// `counters` gives the number of counters of the state in each graph.
fn nothing_is_lost<C: Consistency + Copy + Send + Sync + 'static>(
    consistency: C,
    counters: fn(usize) -> usize,
    anew: bool,
) {
    let mut of = blueprint(consistency, counters(0));
    let runtime = Runtime::start(busy(), |_| factory("v0".into(), &of)).unwrap();
    let control = runtime.control();
    for change in 1..=CHANGES {
        if anew {
            of = blueprint(consistency, counters(change));
        }
        let before = control.progress().received.packets;
        let replaced =
            control.replace_all(&format!("v{}", change - 1), |_| factory(format!("v{change}"), &of)).unwrap();
        for replaced in replaced {
            assert!(replaced.refused.is_empty(), "{:?}", replaced.refused);
            assert_eq!(replaced.moved, ["count: seen", "count: missed"]);
        }
        // Both workers write it from their new graphs before the next change.
        while control.progress().received.packets < before + 1_000 {
            std::thread::yield_now();
        }
    }
    // Graphs without sources, so that no packet comes in between.
    let last = |name: &'static str| {
        let of = of.clone();
        move |_| {
            let of = of.clone();
            Factory::new(move |context: &WorkerContext| {
                let nodes: Vec<(&str, Box<dyn netbricks_core::Node>)> = vec![
                    ("in", Box::new(Silent)),
                    ("count", of.build(context.worker())?),
                    ("out", Box::new(Sink)),
                ];
                Ok::<_, FactoryError>(chain(name, nodes)?.build(context.pool().clone())?)
            })
        }
    };
    control.replace_all(&format!("v{CHANGES}"), last("quiet")).unwrap();
    let ask =
        |worker, what| -> u64 { control.call(worker, "quiet", "count", what, "").unwrap().parse().unwrap() };
    let counted = [ask(0, "all"), ask(1, "all")];
    let missed = ask(0, "own") + ask(1, "own");
    let report = runtime.stop();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    let came = report.totals.received.packets;
    assert_eq!(counted, [came - missed; 2], "{missed} of {came} could not be counted");
}

/// A source without packets, which does not end.
struct Silent;

impl netbricks_core::Node for Silent {
    fn process(&mut self, _: usize, _: &mut netbricks_buffer::Batch, _: &mut netbricks_core::Context) {}
    fn poll(
        &mut self,
        _: &mut netbricks_buffer::Batch,
        _: &mut netbricks_core::Context,
    ) -> netbricks_core::Poll {
        netbricks_core::Poll::Idle
    }
    fn shape(&self) -> netbricks_core::Shape {
        netbricks_core::Shape::receive()
    }
}

const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 8 };

#[test]
fn strict_state_goes_on_while_workers_change_one_by_one() {
    nothing_is_lost(Strict, |_| 4, true);
}

#[test]
fn bounded_state_goes_on_while_workers_change_one_by_one() {
    nothing_is_lost(BOUNDED, |_| 4, true);
}

#[test]
fn state_of_one_blueprint_goes_on_while_workers_change_one_by_one() {
    nothing_is_lost(Strict, |_| 4, false);
    nothing_is_lost(BOUNDED, |_| 4, false);
}
