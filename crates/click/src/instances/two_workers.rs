//! Instances on two workers, whose graphs take turns one after the other: what crosses, and that nothing is lost.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    BuildError, CallError, Context, Edge, Graph, GraphBuilder, Node, Poll, Shape, Worker, WorkerGroup,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{InstanceSettings, InstancesSettings, node};

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// Brings in frames that a test puts there, until it says that there are no more.
struct Source(Frames, Rc<Cell<bool>>);

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < 32
            && let Some(frame) = self.0.borrow_mut().pop_front()
        {
            let packet = cx.pool().packet(&frame).expect("a frame is free");
            assert!(batch.push(packet).is_ok());
        }
        match batch.is_empty() {
            true if self.1.get() => Poll::Done,
            true => Poll::Idle,
            false => Poll::Busy,
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Keeps the frames that leave.
struct Sink(Frames);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The function on two workers, with a queue of one device on each.
struct Two {
    graphs: [Graph; 2],
    pool: Pool,
    to: [Frames; 2],
    from: [Frames; 2],
    over: Rc<Cell<bool>>,
    now: u64,
}

fn learning() -> InstancesSettings {
    InstancesSettings { learning: true, ..InstancesSettings::default() }
}

impl Two {
    fn new(settings: &InstancesSettings) -> Self {
        let (pool, group) = (Pool::builder().frames(8_192).build().expect("memory"), WorkerGroup::new(2));
        let (to, from): ([Frames; 2], [Frames; 2]) = Default::default();
        let over = Rc::new(Cell::new(false));
        let graphs = [0, 1].map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let mut builder = GraphBuilder::new("rig");
            let source = Source(Rc::clone(&to[index]), Rc::clone(&over));
            let source = builder.add("in", Box::new(source)).expect("a name");
            let host = builder.add("host", node(settings, &worker).expect("a node")).expect("a name");
            let sink = builder.add("out", Box::new(Sink(Rc::clone(&from[index])))).expect("a name");
            builder.connect(source, Edge::OUT, host, 0).expect("an input");
            builder.connect(host, Edge::OUT, sink, 0).expect("a way out");
            builder.build(pool.clone()).expect("a graph")
        });
        Self { graphs, pool, to, from, over, now: 1_000 }
    }

    /// Calls a handler as the control side does that asks one worker.
    fn call(&mut self, handler: &str, argument: &str) -> String {
        self.graphs[0].call("host", handler, argument).expect("a good call")
    }
    /// Calls a handler on both workers; one of them has the instance.
    fn on_its_worker(&mut self, handler: &str, argument: &str) -> (usize, String) {
        let mut answers = Vec::new();
        for (worker, graph) in self.graphs.iter_mut().enumerate() {
            match graph.call("host", handler, argument) {
                Ok(answer) => answers.push((worker, answer)),
                Err(CallError::Elsewhere { .. }) => {}
                Err(error) => panic!("{handler} {argument}: {error}"),
            }
        }
        assert_eq!(answers.len(), 1, "{handler} {argument}: {answers:?}");
        answers.remove(0)
    }
    fn listed(&mut self, name: &str) -> serde_json::Value {
        let mut all = Vec::new();
        for graph in &mut self.graphs {
            let answer = graph.call("host", "list", "").expect("a list");
            all.extend(serde_json::from_str::<Vec<serde_json::Value>>(&answer).expect("JSON"));
        }
        all.into_iter().find(|one| one["name"] == name).expect("there is one")
    }
    fn turn(&mut self) {
        self.now += 1_000;
        for graph in &mut self.graphs {
            graph.turn(self.now);
        }
    }
    fn run(&mut self) {
        (0..400).for_each(|_| self.turn());
    }
    /// Sends frames into a worker's queue. Returns those that left by each worker.
    fn pass(&mut self, worker: usize, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
        self.to[worker].borrow_mut().extend(frames.iter().cloned());
        self.run();
        self.came()
    }
    fn came(&mut self) -> [Vec<Vec<u8>>; 2] {
        self.from.each_ref().map(|frames| frames.borrow_mut().drain(..).collect())
    }
    /// Ends both graphs: all packets are accounted for, what crossed arrived, and the pool is full again.
    fn end(mut self) {
        self.over.set(true);
        let mut ended = [false; 2];
        for _ in 0..20_000 {
            self.now += 1_000;
            if ended == [true; 2] {
                break;
            }
            for (graph, ended) in self.graphs.iter_mut().zip(&mut ended) {
                *ended = *ended || graph.turn(self.now) == netbricks_core::graph::Turn::Done;
            }
        }
        assert_eq!(ended, [true; 2], "both come to an end");
        let mut between = 0_i64;
        for graph in &mut self.graphs {
            assert_eq!(graph.drain(self.now), 0, "packets are held");
            let totals = graph.totals();
            assert!(totals.is_conserved(), "{totals:?}");
            assert_eq!(graph.unbalanced(), Vec::<String>::new());
            between += totals.handoff_out.packets as i64 - totals.handoff_in.packets as i64;
        }
        assert_eq!(between, 0, "packets are lost between the workers");
        drop(self.graphs);
        assert_eq!(self.pool.available(), self.pool.capacity());
    }
}

/// A frame to an address, from another, with a number of its own.
fn frame(to: u8, from: u8, mark: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame[56..].copy_from_slice(&mark.to_be_bytes());
    frame
}

fn marks(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|frame| u32::from_be_bytes([frame[56], frame[57], frame[58], frame[59]])).collect()
}

const MIRROR: &str = "FromDevice(0) -> c :: Counter -> EtherMirror -> ToDevice(0);";

/// The rig with a mirror on worker 1.
fn with_mirror() -> Two {
    let mut rig = Two::new(&learning());
    rig.call("create", "echo mac=02:00:00:00:00:01 ring=2048 worker=1");
    assert_eq!(rig.on_its_worker("install", &format!("echo\n{MIRROR}")), (1, "echo runs 4 elements".into()));
    rig
}

#[test]
fn frames_cross_to_an_instance_on_another_worker() {
    let mut rig = with_mirror();
    let frames: Vec<Vec<u8>> = (0..100).map(|mark| frame(1, 9, mark)).collect();
    let [here, there] = rig.pass(0, &frames);
    // The instance's worker sends by its own queue of the device.
    assert_eq!((here.len(), marks(&there)), (0, (0..100).collect::<Vec<_>>()));
    assert!(there.iter().all(|frame| frame[..12] == [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]));
    let totals = rig.graphs[0].totals();
    assert_eq!((totals.handoff_out.packets, totals.sent.packets), (100, 0));
    let echo = rig.listed("echo");
    let port = &echo["ports"][0];
    assert_eq!((echo["worker"].as_u64(), port["received"].as_u64()), (Some(1), Some(100)));
    assert_eq!((port["sent"].as_u64(), port["lost"].as_u64()), (Some(100), Some(0)));
    // The answer's way was learnt from the packets that crossed: nothing was flooded.
    for graph in &mut rig.graphs {
        assert!(graph.call("host", "switch", "").expect("JSON").contains("\"flooded\":0"));
    }
    rig.end();
}

#[test]
fn instances_of_two_workers_send_to_each_other() {
    let mut rig = Two::new(&learning());
    rig.call("create", "near mac=02:00:00:00:00:01 ports=2 worker=0");
    rig.call("create", "far mac=02:00:00:00:00:07 worker=1");
    let near = "near\nFromDevice(0) -> EtherRewrite(02:00:00:00:00:02, 02:00:00:00:00:07) -> ToDevice(1); \
                FromDevice(1) -> c :: Counter -> EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:09) -> ToDevice(0);";
    rig.on_its_worker("install", near);
    rig.on_its_worker("install", &format!("far\n{MIRROR}"));
    let frames: Vec<Vec<u8>> = (0..200).map(|mark| frame(1, 9, mark)).collect();
    let [here, there] = rig.pass(0, &frames);
    assert_eq!((marks(&here), there.len()), ((0..200).collect::<Vec<_>>(), 0));
    assert_eq!(rig.on_its_worker("read", "far c.count"), (1, "200".into()));
    assert_eq!(rig.on_its_worker("read", "near c.count"), (0, "200".into()));
    rig.end();
}

#[test]
fn two_hundred_installs_on_another_worker_lose_nothing() {
    let mut rig = with_mirror();
    let mut came = Vec::new();
    for round in 0..200 {
        let frames = (0..40).map(|mark| frame(1, 9, round * 40 + mark));
        rig.to[0].borrow_mut().extend(frames);
        rig.turn();
        rig.on_its_worker("install", &format!("echo\n{MIRROR}"));
        came.extend(rig.came().concat());
    }
    rig.run();
    rig.run();
    came.extend(rig.came().concat());
    assert_eq!(marks(&came), (0..8_000).collect::<Vec<_>>());
    rig.end();
}

#[test]
fn what_waits_for_a_suspended_instance_comes_when_it_goes_on() {
    let mut rig = with_mirror();
    rig.on_its_worker("suspend", "echo");
    let frames: Vec<Vec<u8>> = (0..500).map(|mark| frame(1, 9, mark)).collect();
    assert_eq!(rig.pass(0, &frames).concat().len(), 0);
    assert_eq!(rig.listed("echo")["ports"][0]["waiting"], 500);
    rig.on_its_worker("resume", "echo");
    rig.run();
    assert_eq!(marks(&rig.came().concat()), (0..500).collect::<Vec<_>>());
    rig.end();
}

#[test]
fn an_instance_that_is_destroyed_and_made_again_gets_no_packet_of_the_first() {
    let mut rig = with_mirror();
    for round in 0..50 {
        let worker = round % 2;
        rig.to[0].borrow_mut().extend((0..64).map(|mark| frame(1, 9, round * 1_000 + mark)));
        // Packets are on their way to the worker that had it.
        rig.now += 1_000;
        rig.graphs[0].turn(rig.now);
        assert_eq!(rig.on_its_worker("destroy", "echo").1, "destroyed echo");
        rig.call("create", &format!("echo mac=02:00:00:00:00:01 ring=2048 worker={worker}"));
        rig.on_its_worker("install", &format!("echo\n{MIRROR}"));
        rig.run();
        let count: u64 = rig.on_its_worker("read", "echo c.count").1.parse().expect("a number");
        assert_eq!(count, rig.came().concat().len() as u64);
        assert!(count <= 64, "{count}");
    }
    rig.end();
}

#[test]
fn a_port_waits_while_another_worker_takes_nothing() {
    let mut rig = with_mirror();
    rig.to[0].borrow_mut().extend((0..4_000).map(|mark| frame(1, 9, mark)));
    for _ in 0..400 {
        rig.now += 1_000;
        rig.graphs[0].turn(rig.now);
    }
    // The ring is full, and a burst waits for room.
    let waits = rig.to[0].borrow().len();
    assert!((2_900..3_000).contains(&waits), "{waits} frames wait outside");
    rig.run();
    assert_eq!(marks(&rig.came().concat()), (0..4_000).collect::<Vec<_>>());
    assert_eq!(rig.listed("echo")["ports"][0]["lost"], 0);
    rig.end();
}

#[test]
fn what_an_instance_sends_to_a_full_ring_is_counted_as_lost() {
    let mut rig = Two::new(&learning());
    rig.call("create", "sink mac=02:00:00:00:00:01 worker=1");
    rig.on_its_worker("install", "sink\nFromDevice(0) -> Discard;");
    rig.call("create", "spring worker=0");
    let spring = "spring\nInfiniteSource(LIMIT 6000) -> EtherEncap(0x0800, 02:00:00:00:00:05, 02:00:00:00:00:01) \
                  -> ToDevice(0);";
    rig.on_its_worker("install", spring);
    for _ in 0..2_000 {
        rig.now += 1_000;
        rig.graphs[0].turn(rig.now);
    }
    let lost = rig.listed("sink")["ports"][0]["lost"].as_u64().expect("a number");
    // 1,024 packets are in the ring, and as many wait for room.
    assert_eq!(lost, 6_000 - 2_048);
    rig.run();
    let sink = rig.listed("sink");
    assert_eq!(sink["ports"][0]["received"].as_u64(), Some(2_048));
    rig.end();
}

#[test]
fn instances_go_where_the_least_weight_is() {
    let mut rig = Two::new(&learning());
    for (name, weight) in [("a", 1_024), ("b", 4_096), ("c", 1_024), ("d", 1_024), ("e", 1_024)] {
        rig.call("create", &format!("{name} weight={weight}"));
    }
    let workers = ["a", "b", "c", "d", "e"].map(|name| rig.listed(name)["worker"].as_u64());
    assert_eq!(workers, [0, 1, 0, 0, 0].map(Some));
    rig.on_its_worker("destroy", "b");
    rig.call("create", "f");
    assert_eq!(rig.listed("f")["worker"], 1);
    let refused = |rig: &mut Two, argument: &str| match rig.graphs[0].call("host", "create", argument) {
        Err(CallError::Argument { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut rig, "g worker=2"), "worker 2 does not exist: there are 2, from 0");
    let problem = refused(&mut rig, "g worker=one");
    assert_eq!(problem, "`worker` must be a worker's number, from 0, found `one`");
    let wrong = rig.graphs[0].call("host", "suspend", "f").expect_err("it is on worker 1");
    assert_eq!(wrong.to_string(), "handler `suspend`: instance `f` is on worker 1");
    let wrong = rig.graphs[1].call("host", "suspend", "ff").expect_err("there is none");
    assert!(wrong.to_string().ends_with("there is no instance `ff`; did you mean `f`?"), "{wrong}");
    rig.end();
}

#[test]
fn declared_instances_start_on_their_workers() {
    let mut settings = learning();
    let declared = |mac: &str, worker| InstanceSettings {
        text: Some(MIRROR.into()),
        mac: Some(mac.into()),
        worker,
        ..InstanceSettings::default()
    };
    settings.instance.insert("first".into(), declared("02:00:00:00:00:01", Some(1)));
    settings.instance.insert("second".into(), declared("02:00:00:00:00:02", None));
    let mut rig = Two::new(&settings);
    assert_eq!(
        rig.pass(0, &[frame(1, 9, 0), frame(2, 9, 1)]).map(|frames| marks(&frames)),
        [vec![1], vec![0]]
    );
    assert_eq!(rig.listed("first")["worker"], 1);
    rig.end();
    settings.instance.insert("third".into(), declared("02:00:00:00:00:03", Some(7)));
    let pool = Pool::builder().frames(64).build().expect("memory");
    let worker = Worker::new(1, 1, pool).in_group(WorkerGroup::new(3));
    // As a new parse of the file has it.
    let settings = InstancesSettings { instance: settings.instance, ..learning() };
    let Err(BuildError { problem }) = node(&settings, &worker) else { panic!("there is no worker 7") };
    assert_eq!(problem, "instance `third`: worker 7 does not exist: there are 3, from 0");
    // Where the number of workers is not known, this cannot be said.
    assert!(node(&learning_with(&settings), &worker.in_group(WorkerGroup::new(1)).on_trial()).is_ok());
}

fn learning_with(settings: &InstancesSettings) -> InstancesSettings {
    InstancesSettings { instance: settings.instance.clone(), ..learning() }
}

#[test]
fn packets_wake_a_worker_that_sleeps() {
    let mut rig = with_mirror();
    rig.run();
    let rings = |graph: &mut Graph| {
        let mut any = 0;
        graph.descriptors(&mut |descriptor| {
            let mut one = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            any += poll(&mut one, Some(&never)).expect("it polls");
        });
        any
    };
    assert_eq!(rings(&mut rig.graphs[1]), 0);
    rig.to[0].borrow_mut().push_back(frame(1, 9, 3));
    for _ in 0..4 {
        rig.graphs[0].turn(rig.now);
    }
    assert_eq!(rings(&mut rig.graphs[1]), 1, "the bell");
    rig.graphs[1].wake();
    rig.run();
    assert_eq!(marks(&rig.came().concat()), [3]);
    assert_eq!(rings(&mut rig.graphs[1]), 0, "it is over");
    // A timer of an instance wakes it, too.
    rig.on_its_worker(
        "install",
        "echo\nTimedSource(0.000001) -> c :: Counter -> Discard; FromDevice(0) -> Discard;",
    );
    rig.run();
    (0..1_000).find(|_| rings(&mut rig.graphs[1]) == 1).expect("the timer goes off");
    rig.end();
}
