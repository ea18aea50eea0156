//! A function under a clock that its test moves: expiry, rate limits, events.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use netbricks_core::{
    Blueprint, BuildError, Function, Graph, ImportError, Input, Node, Turn, Worker, compose,
};

use crate::run::{BURSTS, Frame, Report, Sink, assemble, worker};

/// A function that goes on from step to step, under a clock that its test moves.
///
/// The clock begins at one second.
///
/// Each step runs in three graphs, one for each [batch size](BURSTS), which must agree. After each step,
/// packets are accounted for. At the end, when it is [finished](Self::finish) or dropped, all buffers are
/// back in the pool.
///
/// ```
/// use std::time::Duration;
///
/// use netbricks_core::packet::{FlowKey, Ip, Link};
/// use netbricks_core::tables::FlowTableConfig;
/// use netbricks_core::view::{IpRewrite, Metadata};
/// use netbricks_core::{DropReason, Function, Input, Operator, Worker};
/// use netbricks_testkit::{Clocked, build::ethernet};
///
/// /// Lets two packets of each flow pass, and forgets flows that are silent for a second.
/// fn quota(input: Input, worker: &Worker) -> impl Function {
///     let config = FlowTableConfig { idle_timeout: Some(1_000_000_000), ..FlowTableConfig::new(64) };
///     let flows = worker.flow_table::<FlowKey, u64>("flows", config);
///     let seconds = worker.counter("seconds");
///     worker.invoke_every("tick", 1_000_000_000, move |_| seconds.add(1));
///     input
///         .parse::<Link>()
///         .parse::<Ip>()
///         .lookup(&flows, |packet| packet.flow_key(), |_, entry| {
///             entry.or_insert_with(|| 0).map_or(0, |seen| {
///                 *seen += 1;
///                 *seen
///             })
///         })
///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 2)
///         .done()
/// }
///
/// let packet = || ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53);
/// let mut test = Clocked::new(quota);
/// assert_eq!(test.send([packet(), packet(), packet()]).out.len(), 2);
/// test.advance(Duration::from_millis(400));
/// assert_eq!(test.send([packet()]).out.len(), 0);
/// // Silent for longer than a second, it is a new flow.
/// test.advance(Duration::from_millis(2_100));
/// assert_eq!(test.send([packet()]).out.len(), 1);
/// // Events ran as the clock passed their times.
/// assert_eq!((test.call("tick.runs", ""), test.call("tick.missed", "")), ("2".into(), "0".into()));
/// assert_eq!(test.finish().dropped(DropReason::RateLimited), 2);
/// ```
pub struct Clocked {
    graphs: Vec<Bench>,
    now: u64,
}

/// One of the graphs.
struct Bench {
    burst: usize,
    graph: Graph,
    waiting: Rc<RefCell<VecDeque<Vec<u8>>>>,
    out: Sink,
    replies: Sink,
}

/// The time at which the clock begins (ns): 0 would be an unknown time.
const START: u64 = 1_000_000_000;
/// Most timers in a row that move nothing at one time.
///
/// An event that is always due would stop the clock for ever.
const MOST_AT_ONCE: u32 = 1 << 16;

impl Clocked {
    /// Tests a function that asks its worker for state.
    pub fn new<F: Function>(
        function: impl Fn(Input, &'static Worker) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::of_node(move |worker| {
            let worker: &'static Worker = Box::leak(Box::new(worker.clone()));
            compose(worker, |input| function(input, worker))
        })
    }

    /// Tests a function with settings.
    pub fn configured<C: Send + Sync + 'static, F: Function>(
        function: impl Fn(Input, &'static C, &'static Worker) -> F + Clone + Send + Sync + 'static,
        config: C,
    ) -> Self {
        let config: &'static C = Box::leak(Box::new(config));
        Self::new(move |input, worker| function(input, config, worker))
    }

    /// Tests a node.
    pub fn of_node(
        make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + 'static,
    ) -> Self {
        let graphs = BURSTS.into_iter().map(|burst| Bench::new(burst, &Blueprint::new(make.clone())));
        Self { graphs: graphs.collect(), now: START }
    }

    /// The time (ns), from 1,000,000,000.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sends these frames now, and returns the frames that left since the step before.
    ///
    /// Drops, counters, sections and panics in the report are those since the beginning.
    pub fn send<P: Frame>(&mut self, frames: impl IntoIterator<Item = P>) -> Report {
        let frames: Vec<Vec<u8>> = frames.into_iter().map(Frame::bytes).collect();
        let now = self.now;
        self.step(|bench| {
            bench.waiting.borrow_mut().extend(frames.iter().cloned());
            bench.run_until(now, now);
        })
    }

    /// Moves the clock on; expiry, events and held packets on the way happen at their own times.
    pub fn advance(&mut self, by: Duration) -> Report {
        let from = self.now;
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.now = from.saturating_add(by);
        let to = self.now;
        self.step(|bench| bench.run_until(from, to))
    }

    /// Calls a handler of the function, in all three graphs.
    ///
    /// # Panics
    /// When the handler refuses, or the answers differ.
    pub fn call(&mut self, handler: &str, argument: &str) -> String {
        let mut answers = self.graphs.iter_mut().map(|bench| {
            let answer = bench.graph.call("function", handler, argument);
            answer.unwrap_or_else(|error| panic!("`{handler}` at bursts of {}: {error}", bench.burst))
        });
        let first = answers.next().unwrap_or_default();
        answers.for_each(|other| assert_eq!(first, other, "`{handler}` depends on the batch size"));
        first
    }

    /// Has another function take over, as in a run whose configuration changes: by state that both declare.
    ///
    /// # Panics
    /// When the function cannot be built, or refuses state that it is given.
    pub fn replace_by(
        &mut self,
        make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + 'static,
    ) {
        let now = self.now;
        for bench in &mut self.graphs {
            bench.replace_by(&Blueprint::new(make.clone()), now);
        }
    }

    /// Ends the test: the packets that the function holds leave, as at the end of a run.
    ///
    /// # Panics
    /// When a packet is not accounted for, or a buffer has not come back.
    pub fn finish(mut self) -> Report {
        let now = self.now;
        let report = self.step(|bench| {
            bench.graph.drain(now);
        });
        self.graphs.clear();
        let pool = worker().pool();
        assert_eq!(pool.available(), pool.capacity(), "packets leaked");
        report
    }

    fn step(&mut self, mut run: impl FnMut(&mut Bench)) -> Report {
        let mut reports = self.graphs.iter_mut().map(|bench| {
            run(bench);
            (bench.burst, bench.report())
        });
        let Some((_, first)) = reports.next() else { unreachable!("there are three batch sizes") };
        for (burst, other) in reports {
            first.assert_same(&other, burst);
        }
        first
    }
}

impl std::fmt::Debug for Clocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clocked(at {} ns)", self.now)
    }
}

impl Bench {
    fn new(burst: usize, blueprint: &Blueprint) -> Self {
        let (waiting, out, replies) = (Rc::default(), Sink::default(), Sink::default());
        let graph = Self::graph(burst, blueprint, &waiting, &out, &replies);
        let mut bench = Self { burst, graph, waiting, out, replies };
        // Events count their periods from the first turn.
        bench.run_until(START, START);
        bench
    }

    fn graph(
        burst: usize,
        blueprint: &Blueprint,
        waiting: &Rc<RefCell<VecDeque<Vec<u8>>>>,
        out: &Sink,
        replies: &Sink,
    ) -> Graph {
        match assemble(blueprint, Rc::clone(waiting), false, worker().pool(), out, replies) {
            Ok(mut graph) => {
                graph.set_burst(burst);
                graph
            }
            Err(error) => panic!("a test's graph cannot be built: {error}"),
        }
    }

    fn replace_by(&mut self, blueprint: &Blueprint, now: u64) {
        let mut graph = Self::graph(self.burst, blueprint, &self.waiting, &self.out, &self.replies);
        graph.advance(now);
        let shared = graph.adopt(&self.graph);
        let refused =
            |node: &str, error: ImportError| -> () { panic!("state of {node} is refused: {error}") };
        let mut known = Vec::new();
        for (node, state, done) in shared {
            done.unwrap_or_else(|error| refused(&node, error));
            known.push((node, state));
        }
        for (node, (state, bytes)) in self.graph.export() {
            if !known.contains(&(node.clone(), state.clone())) {
                graph.import(&node, &state, &bytes).unwrap_or_else(|error| refused(&node, error));
            }
        }
        self.graph.drain(now);
        self.graph = graph;
        self.run_until(now, now);
    }

    /// Runs everything that is due up to `to`, each at its time.
    fn run_until(&mut self, from: u64, to: u64) {
        let (mut now, mut in_vain) = (from, 0);
        loop {
            match self.graph.turn(now) {
                Turn::Moved(_) => in_vain = 0,
                Turn::Idle(Some(next)) if next <= to => {
                    in_vain = if next > now { 0 } else { in_vain + 1 };
                    assert!(in_vain < MOST_AT_ONCE, "something is due again and again at {now} ns");
                    now = now.max(next);
                }
                // One more turn at the end itself, because a table looks for expired entries when it is
                // called.
                Turn::Idle(_) if now < to => now = to,
                Turn::Idle(_) | Turn::Done => return,
            }
        }
    }

    fn report(&mut self) -> Report {
        Report::of(&mut self.graph, &self.out, &self.replies)
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::{DropReason, Operator};

    use super::*;
    use crate::build::ethernet;

    fn packet() -> Vec<u8> {
        Frame::bytes(ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2))
    }

    #[test]
    fn every_event_runs_at_its_own_time_however_far_the_clock_moves() {
        fn ticking(input: Input, worker: &Worker) -> impl Function {
            worker.invoke_every("tick", 1_000, |event| assert_eq!(event.now() % 1_000, 0));
            input.done()
        }
        let mut test = Clocked::new(ticking);
        let runs = |test: &mut Clocked| test.call("tick.runs", "");
        test.advance(Duration::from_nanos(999));
        assert_eq!(runs(&mut test), "0");
        test.advance(Duration::from_nanos(1));
        assert_eq!(runs(&mut test), "1");
        let report = test.advance(Duration::from_micros(9));
        assert_eq!(
            (test.now(), runs(&mut test), test.call("tick.missed", "")),
            (START + 10_000, "10".into(), "0".into())
        );
        assert_eq!(report.panics, []);
        test.finish();
    }

    #[test]
    fn a_step_has_what_left_in_it_and_counts_from_the_beginning() {
        let mut test = Clocked::new(|input, _| {
            input.filter(DropReason::Denied, |packet| packet.now() < START + 5).done()
        });
        let first = test.send([packet(), packet()]);
        assert_eq!((first.out.len(), first.totals.received.packets), (2, 2));
        test.advance(Duration::from_nanos(5));
        let second = test.send(vec![packet(); 40]);
        assert_eq!((second.out.len(), second.dropped(DropReason::Denied)), (0, 40));
        assert_eq!(test.finish().totals.received.packets, 42);
    }

    #[test]
    #[should_panic(expected = "what leaves depends on the batch size (32)")]
    fn batch_size_dependence_is_found_at_the_step() {
        let mut test = Clocked::of_node(|_| Ok(Box::new(Whole)));
        test.send(vec![packet(); 40]);
    }

    /// Drops batches of more than one packet.
    struct Whole;

    impl Node for Whole {
        fn process(
            &mut self,
            _: usize,
            batch: &mut netbricks_core::buffer::Batch,
            cx: &mut netbricks_core::Context,
        ) {
            if batch.len() > 1 {
                cx.drop_batch(batch, DropReason::Denied);
            }
        }
    }
}
