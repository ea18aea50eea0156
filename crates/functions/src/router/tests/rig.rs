//! A router between ports of a test, under a clock that it moves, at three batch sizes.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::graph::GraphBuilder;
use netbricks_core::{
    Blueprint, Context, ControlCopy, DropReason, Graph, Node, Poll, Registry, Shape, Turn, Worker,
};
use netbricks_testkit::Frame;

/// Frames that left, with the number of their port.
pub(crate) type Out = Vec<(usize, Vec<u8>)>;

/// The second at which the clock begins (ns).
const START: u64 = 1_000_000_000;
pub(crate) const MS: u64 = 1_000_000;

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl Node for Wire {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(frame) = self.0.borrow_mut().pop_front() else { return Poll::Idle };
            let packet = cx.pool().packet(&frame).unwrap();
            assert!(batch.push(packet).is_ok());
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[derive(Clone)]
struct Sink(usize, Rc<RefCell<Out>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.1.borrow_mut().extend(batch.drain().map(|packet| (self.0, packet.data().to_vec())));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

struct Bench {
    graph: Graph,
    control: ControlCopy,
    wires: Vec<Wire>,
    out: Rc<RefCell<Out>>,
    pool: Pool,
}

pub(crate) struct Rig {
    benches: Vec<Bench>,
    pub(crate) now: u64,
}

/// The blueprint of a router with these settings.
pub(crate) fn blueprint(settings: &str) -> Blueprint {
    blueprint_of("router", settings)
}

/// The blueprint of a function with these settings.
pub(crate) fn blueprint_of(function: &str, settings: &str) -> Blueprint {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    registry.get(function).unwrap().blueprint(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// The error of wrong settings, with the text at its place.
pub(crate) fn refused(settings: &str) -> (String, String) {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    match registry.get("router").unwrap().blueprint(settings) {
        Ok(_) => panic!("these settings are taken"),
        Err(error) => (error.message, error.span.map(|span| settings[span].to_owned()).unwrap_or_default()),
    }
}

impl Rig {
    pub(crate) fn new(settings: &str) -> Self {
        Self::of("router", settings)
    }

    /// As [`new`](Self::new), of another function whose inputs are ports.
    pub(crate) fn of(function: &str, settings: &str) -> Self {
        let benches = [1, 32, 256].map(|burst| Bench::new(&blueprint_of(function, settings), burst));
        Self { benches: benches.into(), now: START }
    }

    /// Calls a handler of the worker, in each of the graphs.
    pub(crate) fn ask(&mut self, handler: &str, argument: &str) -> Result<String, String> {
        let mut answers = self
            .benches
            .iter_mut()
            .map(|bench| bench.graph.call("router", handler, argument).map_err(|error| error.to_string()));
        let first = answers.next().unwrap();
        answers.for_each(|other| assert_eq!(first, other));
        first
    }

    /// Sends frames into a port now; answers what leaves, by port and in order.
    pub(crate) fn send<F: Frame>(&mut self, port: usize, frames: impl IntoIterator<Item = F>) -> Out {
        let frames: Vec<Vec<u8>> = frames.into_iter().map(Frame::bytes).collect();
        let now = self.now;
        self.step(|bench| {
            bench.wires[port].0.borrow_mut().extend(frames.iter().cloned());
            bench.run(now);
        })
    }

    /// Moves the clock on by so many ms, in steps of 100; answers what leaves meanwhile.
    pub(crate) fn wait(&mut self, ms: u64) -> Out {
        let mut out = Out::new();
        for _ in 0..ms.div_ceil(100) {
            self.now += 100 * MS;
            let now = self.now;
            out.extend(self.step(|bench| bench.run(now)));
        }
        out
    }

    /// Calls a handler of the control side.
    pub(crate) fn call(&mut self, handler: &str, argument: &str) -> Result<String, String> {
        let mut answers = self
            .benches
            .iter_mut()
            .map(|bench| bench.control.call(handler, argument).map_err(|e| e.to_string()));
        let first = answers.next().unwrap();
        answers.for_each(|other| assert_eq!(first, other));
        first
    }

    /// The bytes of all recorded drops of the first graph.
    pub(crate) fn recorded(&self) -> Vec<u8> {
        self.benches[0].graph.dropped_headers().flat_map(|(_, record)| record.bytes().to_vec()).collect()
    }

    /// The image of a state of the first graph.
    pub(crate) fn export(&mut self, state: &str) -> Vec<u8> {
        let images = self.benches[0].graph.export_of(|node| node == "router");
        images.into_iter().find(|(_, (name, _))| name == state).map(|(_, (_, image))| image).unwrap()
    }

    /// Packets dropped for a reason so far, in each of the graphs.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        let all: Vec<u64> =
            self.benches.iter().map(|bench| bench.graph.totals().drops.of(reason).packets).collect();
        assert!(all.iter().all(|count| *count == all[0]), "{reason}: {all:?}");
        all[0]
    }

    pub(crate) fn held(&self) -> u64 {
        let all: Vec<u64> = self.benches.iter().map(|bench| bench.graph.totals().held).collect();
        assert!(all.iter().all(|count| *count == all[0]), "{all:?}");
        all[0]
    }

    fn step(&mut self, run: impl Fn(&mut Bench)) -> Out {
        let mut outs = self.benches.iter_mut().map(|bench| {
            run(bench);
            assert!(bench.graph.totals().is_conserved(), "{:?}", bench.graph.totals());
            assert_eq!(bench.graph.unbalanced(), Vec::<String>::new());
            assert!(bench.graph.take_panics().is_empty());
            bench.out.take()
        });
        let first = outs.next().unwrap();
        // Each port's order counts; that between ports does not.
        let by_port = |out: &Out| {
            let mut ports: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
            out.iter().for_each(|(port, frame)| ports.entry(*port).or_default().push(frame.clone()));
            ports
        };
        outs.for_each(|other| assert!(by_port(&first) == by_port(&other), "it depends on the batch size"));
        first
    }
}

impl Bench {
    fn new(blueprint: &Blueprint, burst: usize) -> Self {
        let pool = Pool::builder().frames(1_024).large(16, 4_096).build().unwrap();
        Self::on(blueprint, burst, Worker::new(0, 1, pool.clone()), pool)
    }

    fn on(blueprint: &Blueprint, burst: usize, worker: Worker, pool: Pool) -> Self {
        let control = blueprint.control(pool.clone(), 1).unwrap();
        let mut graph = GraphBuilder::new("test");
        let node = graph.add_function("router", blueprint, &worker).unwrap();
        let out = Rc::new(RefCell::new(Out::new()));
        let mut wires = Vec::new();
        for (port, output) in graph.outputs(node).to_vec().iter().enumerate() {
            let wire = Wire::default();
            let source = graph.add(format!("in{port}"), Box::new(wire.clone())).unwrap();
            graph.connect(source, netbricks_core::Edge::OUT, node, port).unwrap();
            let sink = graph.add(format!("out{port}"), Box::new(Sink(port, out.clone()))).unwrap();
            graph.connect(node, output.edge, sink, 0).unwrap();
            wires.push(wire);
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(burst);
        Self { graph, control, wires, out, pool }
    }

    fn run(&mut self, now: u64) {
        let mut idle = 0;
        while idle < 8 {
            match self.graph.turn(now) {
                Turn::Moved(packets) if packets > 0 => idle = 0,
                _ => idle += 1,
            }
        }
    }
}

/// Two workers that share the router's state.
pub(crate) struct Two {
    workers: [Bench; 2],
    pub(crate) now: u64,
}

impl Two {
    pub(crate) fn new(settings: &str) -> Self {
        let blueprint = blueprint(settings);
        let group = netbricks_core::WorkerGroup::new(2);
        let workers = [0, 1].map(|index| {
            let pool = Pool::builder().frames(256).build().unwrap();
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            Bench::on(&blueprint, 32, worker, pool)
        });
        Self { workers, now: START }
    }
    /// Sends frames to a worker by a port; answers what leaves that worker.
    pub(crate) fn send(
        &mut self,
        worker: usize,
        port: usize,
        frames: impl IntoIterator<Item = Vec<u8>>,
    ) -> Out {
        let bench = &mut self.workers[worker];
        bench.wires[port].0.borrow_mut().extend(frames);
        bench.run(self.now);
        bench.out.take()
    }
    /// Moves the clock of a worker on by so many ms; answers what leaves it.
    pub(crate) fn wait(&mut self, worker: usize, ms: u64) -> Out {
        self.now += ms * MS;
        self.send(worker, 0, [])
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for Bench { mut graph, pool, .. } in self.benches.drain(..) {
            if std::thread::panicking() {
                return;
            }
            graph.drain(self.now);
            assert!(graph.totals().is_conserved(), "{:?}", graph.totals());
            assert_eq!(graph.totals().held, 0);
            drop(graph);
            assert_eq!(pool.available(), pool.capacity(), "packets leaked");
        }
    }
}
