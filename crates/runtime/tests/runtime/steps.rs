//! Reads and reports that are made in steps, and counters of nodes that are gone: packets move meanwhile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use netbricks_buffer::Batch;
use netbricks_core::{CallError, Context, Graph, Node, NodeState, Section, Steps};
use netbricks_runtime::{
    CommandError, Control, Factory, FactoryError, HandlerCall, IdlePolicy, Runtime, WorkerContext,
};

use crate::nodes::{Counting, Position, Sink, Source, chain, config, pool};

const STEPS: u64 = 200;

/// Counts packets; its answers take steps, or never end.
struct Stepwise {
    seen: Rc<Cell<u64>>,
    ends: bool,
}

impl Stepwise {
    fn new(ends: bool) -> Self {
        Self { seen: Rc::new(Cell::new(0)), ends }
    }

    /// Answers in how many steps there were more packets than in the one before.
    fn steps<T: 'static>(&self, end: impl Fn(u64) -> T + 'static) -> Steps<T> {
        let (seen, ends) = (self.seen.clone(), self.ends);
        let (mut last, mut moved, mut made) = (0, 0, 0);
        Box::new(move || {
            let now = seen.get();
            (moved, made, last) = (moved + u64::from(now > last), made + 1, now);
            (ends && made == STEPS).then(|| end(moved))
        })
    }
}

impl Node for Stepwise {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.seen.set(self.seen.get() + batch.len() as u64);
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Stepwise {
    fn call_steps(&mut self, name: &str, _: &str) -> Option<Result<Steps<String>, CallError>> {
        (name == "look").then(|| Ok(self.steps(|moved| moved.to_string())))
    }
    fn report_steps(&mut self, _: u64) -> Vec<Steps<Section>> {
        if !self.ends {
            return Vec::new();
        }
        let section = |moved: u64| Section {
            title: "steps".into(),
            columns: vec!["moved".into()],
            rows: vec![vec![moved.to_string()]],
            ..Section::default()
        };
        vec![self.steps(section)]
    }
}

fn graph(context: &WorkerContext, node: &str, ends: bool) -> Result<Graph, FactoryError> {
    let position = context.kept("source", || Ok(RefCell::new(Position::default())))?;
    let nodes: Vec<(&str, Box<dyn Node>)> = vec![
        ("in", Box::new(Source::at(position, u64::MAX))),
        (node, Box::new(Stepwise::new(ends))),
        ("count", Box::new(Counting::new())),
        ("out", Box::new(Sink)),
    ];
    Ok(chain("a", nodes)?.build(context.pool().clone())?)
}

fn factory(node: &'static str, ends: bool) -> Factory {
    Factory::new(move |context| graph(context, node, ends))
}

fn started(ends: bool) -> Runtime {
    let config = config(pool(), 1).idle(IdlePolicy::Latency);
    Runtime::start(config, |_| factory("steps", ends)).unwrap()
}

fn look(control: &Control, within: Duration) -> Receiver<Result<String, CommandError>> {
    let (sender, answer) = channel();
    let call = HandlerCall {
        graph: "a".into(),
        node: "steps".into(),
        handler: "look".into(),
        argument: String::new(),
    };
    let answered = move |result| drop(sender.send(result));
    control.post_call(0, call, Instant::now() + within, answered).unwrap();
    answer
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn packets_move_between_the_steps_of_a_read_and_of_a_report() {
    let runtime = started(true);
    let control = runtime.control();
    let moved: u64 = look(control, LONG).recv_timeout(LONG).unwrap().unwrap().parse().unwrap();
    assert!(moved >= STEPS - 1, "packets moved before {moved} of {STEPS} steps");
    let snapshot = control.snapshot().unwrap();
    let section = snapshot.sections.iter().find(|section| section.node == "steps").unwrap();
    let moved: u64 = section.section.rows[0][0].parse().unwrap();
    assert!(moved >= STEPS - 1, "packets moved before {moved} of {STEPS} steps");
    assert!(control.counters().unwrap().sections.is_empty());
    assert!(runtime.stop().conserved);
}

#[test]
fn a_read_in_steps_ends_with_its_deadline_and_begins_again_in_a_graph_that_takes_over() {
    let runtime = started(false);
    let control = runtime.control();
    let late = look(control, Duration::from_millis(1)).recv_timeout(LONG).unwrap();
    assert!(matches!(late, Err(CommandError::TooLate { worker: 0 })), "{late:?}");
    let answer = look(control, LONG);
    control.snapshot().unwrap();
    assert!(answer.try_recv().is_err());
    control.replace(0, "a", factory("steps", true)).unwrap();
    assert!(answer.recv_timeout(LONG).unwrap().is_ok());
    let gone = look(control, LONG);
    control.replace(0, "a", factory("other", true)).unwrap();
    let answered = gone.recv_timeout(LONG).unwrap();
    assert!(matches!(answered, Ok(_) | Err(CommandError::NoNode { .. })), "{answered:?}");
    // One that never ends does not hold up the run's end.
    control.replace(0, "a", factory("steps", false)).unwrap();
    let dropped = look(control, LONG);
    assert!(runtime.stop().conserved);
    assert!(dropped.recv_timeout(LONG).is_err());
}

#[test]
fn nodes_that_are_gone_are_told_once_and_counted_for_ever() {
    let runtime = started(true);
    let control = runtime.control();
    let names: Vec<&'static str> = (0..60).map(|number| &*format!("n{number}").leak()).collect();
    for name in &names {
        let received = control.progress().received.packets;
        control.replace(0, "a", factory(name, true)).unwrap();
        while control.progress().received.packets == received {
            std::thread::yield_now();
        }
    }
    let (sender, answer) = channel();
    control.post_counters(0, move |report| drop(sender.send(report))).unwrap();
    let mut report = answer.recv_timeout(LONG).unwrap();
    let nodes = |report: &netbricks_runtime::WorkerReport| report.graphs[0].nodes.len();
    assert_eq!(nodes(&report), 4, "a worker tells of the nodes that it has");
    control.complete(&mut report);
    control.complete(&mut report);
    assert_eq!(nodes(&report), 4 + 60);
    let graph = &report.graphs[0];
    assert!(graph.unbalanced.is_empty(), "{:?}", graph.unbalanced);
    let through = |graph: &netbricks_runtime::GraphReport| -> u64 {
        let nodes = graph.nodes.iter().filter(|node| node.node == "steps" || node.node.starts_with('n'));
        nodes.map(|node| node.counters.arrived.packets).sum()
    };
    assert_eq!(through(graph), graph.totals.received.packets);
    let report = runtime.stop();
    assert!(report.conserved, "{:?}", report.unbalanced);
    assert_eq!(through(&report.workers[0].graphs[0]), report.totals.received.packets);
}
