//! Authors' code outside `process` and `poll`.
//!
//! A panic of a node costs an answer or that node's state, and never the graph or another node's answer.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::graph::observe_panics;
use netbricks_core::shuffle::Handoff;
use netbricks_core::{
    BuildError, CallError, Context, DropReason, Graph, GraphError, Handler, ImportError, InvalidSetting,
    NoSettings, Node, NodeQueue, NodeState, Operator, Poll, Registry, Role, Section, Settings, Shape,
    StateImage, Worker, compose,
};

use crate::harness::{Feed, Rig, Sink, blueprint, check, counters, number, numbered, pool, run_out, worker};

/// Lets every third packet pass and keeps the others until the end.
///
/// It panics when it is asked, for the given time, how many packets it keeps, and in as many questions after
/// that.
#[derive(Clone, Default)]
struct Silent {
    kept: Rc<RefCell<Vec<Packet>>>,
    asked: Rc<Cell<u32>>,
    breaks: (u32, u32),
    /// The number of packets that it brings in itself.
    brings: Option<u32>,
}

impl Silent {
    fn boxed(self) -> Box<dyn Node> {
        Box::new(self)
    }
    /// A copy that replaces it after a panic, without its packets.
    fn anew(&self) -> Self {
        Self { kept: Rc::default(), ..self.clone() }
    }
}

impl Node for Silent {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        let packets: Vec<_> = batch.drain().collect();
        for packet in packets {
            if number(packet.data()).is_multiple_of(3) {
                assert!(batch.push(packet).is_ok());
            } else {
                self.kept.borrow_mut().push(packet);
            }
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let Some(left) = &mut self.brings else { return Poll::Done };
        for _ in 0..(*left).min(10) {
            *left -= 1;
            let packet = cx.pool().packet(&numbered(*left)).unwrap();
            if left.is_multiple_of(3) {
                assert!(batch.push(packet).is_ok());
            } else {
                self.kept.borrow_mut().push(packet);
            }
        }
        if *left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape {
            role: if self.brings.is_some() { Role::Receive } else { Role::Function },
            inputs: usize::from(self.brings.is_none()),
            schedulable: self.brings.is_some(),
            keeps_packets: true,
            ..Shape::default()
        }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Silent {
    fn held(&self) -> u64 {
        let asked = self.asked.replace(self.asked.get() + 1);
        let (first, more) = self.breaks;
        assert!(!(first..=first + more).contains(&asked), "question {asked}");
        self.kept.borrow().len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        let mut kept = self.kept.borrow_mut();
        while let Some(packet) = kept.pop() {
            if let Err(back) = batch.push(packet) {
                kept.push(back);
                break;
            }
        }
    }
}

/// Tries a panic at every question of a run, and in several questions in a row.
#[test]
fn a_panic_over_how_many_packets_are_held_is_contained_at_every_question() {
    observe_panics();
    for (rebuilt, brings) in [(false, false), (true, false), (false, true)] {
        for more in [0, 1, 5] {
            let mut first = 0;
            loop {
                let what = format!("rebuilt: {rebuilt}, source: {brings}, question {first} and {more} more");
                let silent = Silent { breaks: (first, more), ..Silent::default() };
                let sink = Sink::default();
                let mut rig = Rig::new();
                let node = if brings {
                    rig.add("silent", Silent { brings: Some(100), ..silent.clone() }.boxed())
                } else {
                    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
                    let node = if rebuilt {
                        // Blueprints cross threads and their nodes do not: the state is on this thread.
                        NEXT.set(Some(silent.clone()));
                        rig.function("silent", &blueprint(|_| Ok(next().boxed())))
                    } else {
                        rig.add("silent", silent.clone().boxed())
                    };
                    rig.chain(&[source, node]);
                    node
                };
                let end = rig.add("end", Box::new(sink.clone()));
                rig.chain(&[node, end]);
                let (mut graph, pool) = rig.build();
                graph.set_burst(10);
                run_out(&mut graph);
                assert_eq!(graph.drain(0), 0, "{what}");
                let asked = silent.asked.get();
                check(&graph);
                let lost = graph.totals().drops.of(DropReason::Panicked).packets;
                assert_eq!(sink.numbers().len() as u64 + lost, graph.totals().received.packets, "{what}");
                assert_eq!(graph.totals().received.packets, 100, "{what}");
                let panics = graph.take_panics();
                assert!(panics.iter().all(|panic| panic.node == "silent"), "{what}: {panics:?}");
                assert!(panics.iter().all(|panic| panic.message.starts_with("question")), "{what}");
                assert_eq!(panics.iter().map(|panic| panic.packets).sum::<u64>(), lost, "{what}");
                // A batch or two with each question, and with a new node all that the old one had.
                assert!(
                    if rebuilt { lost <= 100 } else { lost <= 10 * u64::from(more + 1) },
                    "{what}: {lost}"
                );
                drop(graph);
                NEXT.set(None);
                drop(silent);
                assert_eq!(pool.available(), pool.capacity(), "{what}");
                if asked < first {
                    assert!(first > 30, "{what}: too few questions for this to be a test");
                    assert_eq!(lost, 0, "{what}");
                    break;
                }
                first += 1;
            }
        }
    }
}

thread_local! {
    static NEXT: RefCell<Option<Silent>> = const { RefCell::new(None) };
}

fn next() -> Silent {
    NEXT.with_borrow(|next| next.as_ref().map(Silent::anew).unwrap())
}

/// Panics in every question between batches.
#[derive(Default)]
struct Sullen {
    polled: bool,
}

impl Node for Sullen {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        if std::mem::replace(&mut self.polled, true) { Poll::Done } else { Poll::Idle }
    }
    fn descriptors<'n>(&'n self, _: &mut dyn FnMut(BorrowedFd<'n>)) {
        panic!("descriptor")
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, has_end: true, ..Shape::default() }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Sullen {
    fn end(&mut self) {
        panic!("end")
    }
    fn export(&self) -> Vec<StateImage> {
        panic!("export")
    }
    fn report(&self) -> Vec<Section> {
        panic!("report")
    }
}

/// A well-behaved neighbour.
struct Open;

impl Node for Open {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Open {
    fn export(&self) -> Vec<StateImage> {
        vec![("open".into(), vec![1])]
    }
    fn report(&self) -> Vec<Section> {
        vec![Section { title: "open".into(), ..Section::default() }]
    }
}

fn messages(graph: &mut Graph) -> Vec<String> {
    graph.take_panics().into_iter().map(|panic| format!("{}: {}", panic.node, panic.message)).collect()
}

#[test]
fn a_node_that_panics_over_a_question_spoils_no_other_answer() {
    observe_panics();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let (sullen, open) = (rig.add("sullen", Box::new(Sullen::default())), rig.add("open", Box::new(Open)));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, sullen, open, end]);
    let (mut graph, pool) = rig.build();
    assert_eq!(graph.export(), [("open".to_owned(), ("open".to_owned(), vec![1]))]);
    assert_eq!(graph.reports().iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["open"]);
    assert_eq!(messages(&mut graph), ["sullen: export", "sullen: report"]);
    let mut turns = 0;
    let watched = |graph: &mut Graph| {
        let mut any = false;
        graph.descriptors(&mut |_| any = true);
        any
    };
    while graph.can_sleep() || watched(&mut graph) || graph.take_panics().is_empty() {
        // Descriptors are asked for only when it idles.
        graph.turn(0);
        turns += 1;
        assert!(turns < 100);
    }
    run_out(&mut graph);
    assert_eq!(graph.drain(0), 0);
    check(&graph);
    assert_eq!(messages(&mut graph).last().map(String::as_str), Some("sullen: end"));
    assert!(counters(&graph, "sullen").panics >= 4);
    assert_eq!((graph.totals().sent.packets, pool.available()), (10, pool.capacity()));
}

fn counting(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose(worker, |input| {
        let seen = worker.counter("seen");
        let half_done = seen.clone();
        worker.handler(
            Handler::write("break", "Adds a thousand, and panics.").argument("[loud]"),
            move |argument| {
                half_done.add(1_000);
                panic!("told to: {argument}");
            },
        );
        input.inspect(move |_| seen.add(1)).done()
    })
}

#[test]
fn a_handler_that_panics_resets_its_nodes_state() {
    observe_panics();
    let mut rig = Rig::new();
    let feed = Feed::default();
    feed.add((0..10).map(numbered));
    let source = rig.add("source", Box::new(feed.clone()));
    let node = rig.function("count", &blueprint(counting));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, _) = rig.build();
    graph.turn(0);
    assert_eq!(graph.call("count", "seen.occupancy", "").unwrap(), format!("10 {}", u64::MAX));
    let error = graph.call("count", "break", "loud").unwrap_err();
    assert_eq!(error, CallError::Panicked { name: "break".into(), message: "told to: loud".into() });
    let panic = graph.take_panics().pop().unwrap();
    assert_eq!((panic.node.as_str(), panic.packets, panic.rebuilt), ("count", 0, true));
    assert!(panic.place.unwrap().contains("asked.rs:"));
    assert_eq!(
        graph.call("count", "seen.occupancy", "").unwrap(),
        format!("0 {}", u64::MAX),
        "half-done state"
    );
    feed.add((0..5).map(numbered));
    feed.end();
    run_out(&mut graph);
    assert_eq!(graph.call("count", "seen.occupancy", "").unwrap(), format!("5 {}", u64::MAX));
}

/// Has two pieces of state, keeps packets, and panics half-way in the import of the second.
#[derive(Default)]
struct Importer {
    taken: Vec<u8>,
    kept: Vec<Packet>,
}

impl Node for Importer {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.kept.extend(batch.drain());
    }
    fn shape(&self) -> Shape {
        Shape { keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeQueue for Importer {
    fn held(&self) -> u64 {
        self.kept.len() as u64
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
}

impl NodeState for Importer {
    fn export(&self) -> Vec<StateImage> {
        vec![("first".into(), self.taken.clone())]
    }
    fn import(&mut self, name: &str, bytes: &[u8], _: u64) -> Result<(), ImportError> {
        self.taken.extend(bytes);
        assert_eq!(name, "first", "half of it");
        Ok(())
    }
}

#[test]
fn an_import_that_panics_leaves_no_half_of_it() {
    observe_panics();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let node = rig.function("importer", &blueprint(|_| Ok(Box::new(Importer::default()))));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(graph.import("importer", "first", &[1, 2]), Ok(()));
    let error = graph.import("importer", "second", &[3]).unwrap_err();
    assert!(matches!(&error, ImportError::Panicked { name, .. } if name == "second"), "{error}");
    assert_eq!(graph.export(), [("importer".to_owned(), ("first".to_owned(), vec![]))]);
    // The packets that it held are lost with it, and counted.
    check(&graph);
    assert_eq!(counters(&graph, "importer").drops.of(DropReason::Panicked).packets, 10);
    assert_eq!(pool.available(), pool.capacity());
}

/// Panics in its drop, and in the drop of its contents, but not at the same time.
struct Sore(Rc<Cell<u32>>);

impl Node for Sore {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
}

impl std::ops::Drop for Sore {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        panic!("sore");
    }
}

/// If both had been dropped together, the second panic would have ended the process.
#[test]
fn nodes_that_panic_in_their_end_go_one_by_one() {
    observe_panics();
    let ended = Rc::new(Cell::new(0));
    let rig = |ended: &Rc<Cell<u32>>| {
        let mut rig = Rig::new();
        let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
        let sore = ["one", "two", "three"].map(|name| rig.add(name, Box::new(Sore(ended.clone()))));
        let end = rig.add("end", Box::new(Sink::default()));
        rig.chain(&[source, sore[0], sore[1], sore[2], end]);
        rig
    };
    let (graph, _) = rig(&ended).build();
    let panics: Vec<_> = graph.take_down().into_iter().map(|panic| (panic.node, panic.message)).collect();
    assert_eq!(panics, ["one", "two", "three"].map(|name| (name.to_owned(), "sore".to_owned())));
    drop(rig(&ended).build());
    drop(rig(&ended));
    assert_eq!(ended.get(), 9);
}

/// Panics in one of the questions that are asked when it is added.
struct Shy(&'static str);

impl Shy {
    fn at(&self, question: &str) {
        assert_ne!(self.0, question, "shy");
    }
}

impl Node for Shy {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        self.at("shape");
        Shape::default()
    }
    fn with_state(&mut self, _: &mut dyn FnMut(&mut dyn NodeState)) {
        self.at("state");
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        self.at("queue");
        None
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        self.at("handoff");
        None
    }
}

/// A node whose shape says that it keeps packets, or that has a queue, but not both.
struct Contrary {
    says: bool,
    role: Role,
}

impl Node for Contrary {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { role: self.role, keeps_packets: self.says, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        if self.says { None } else { Some(self) }
    }
}

impl NodeQueue for Contrary {
    fn held(&self) -> u64 {
        0
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
}

/// Such a node would keep packets that nothing counts.
#[test]
fn a_node_whose_shape_and_queue_contradict_each_other_is_refused() {
    for role in [Role::Receive, Role::Function, Role::Transmit] {
        for (says, way_out) in [(true, "let `as_queue`"), (false, "`keeps_packets: true`")] {
            let added = Rig::new().builder.add("contrary", Box::new(Contrary { says, role }));
            if role == Role::Transmit && !says {
                // A node that transmits reports its progress by the queue.
                assert!(added.is_ok());
                continue;
            }
            let problem = added.unwrap_err().to_string();
            assert!(problem.starts_with("`contrary`: ") && problem.contains(way_out), "{problem}");
        }
    }
}

#[test]
fn a_node_that_panics_while_it_is_made_or_added_is_an_error_that_names_it() {
    observe_panics();
    for question in ["shape", "state", "queue", "handoff"] {
        let mut rig = Rig::new();
        let error = rig.builder.add("shy", Box::new(Shy(question))).unwrap_err();
        assert!(matches!(&error, GraphError::Node { name, .. } if name == "shy"), "{error}");
        assert!(error.to_string().contains("asked.rs:"), "{error}");
    }
    let pool = pool();
    let mut rig = Rig::new();
    let broken = blueprint(|_| panic!("not today"));
    let error = rig.builder.add_function("broken", &broken, &worker(&pool)).unwrap_err().to_string();
    assert!(error.starts_with("`broken`: making it panicked: not today (at "), "{error}");

    netbricks_core::settings! {
        /// None that would do.
        struct Fussy {}
    }
    impl Settings for Fussy {
        fn check(&self) -> Result<(), InvalidSetting> {
            panic!("no settings are good enough")
        }
    }
    let mut registry = Registry::new();
    registry.add("fussy", "Never content.", |_: &Fussy, worker| counting(worker));
    registry.add("good", "Always content.", |_: &NoSettings, worker| counting(worker));
    let table = || toml::Spanned::new(7..9, toml::de::DeTable::new());
    let error = registry.get("fussy").unwrap().configure(table(), Path::new("")).err().unwrap();
    assert!(error.message.starts_with("checking the settings of `fussy` panicked: no settings"), "{error}");
    assert_eq!(error.span, Some(7..9));
    assert!(registry.get("good").unwrap().configure(table(), Path::new("")).is_ok());
}
