//! The parts of a node, by which the graph asks for its state and its packets.
//!
//! No part is lost between the graph and a node inside another node.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::consistency::{Shares, Strict};
use netbricks_core::shuffle::{Handoff, Part, PartStep};
use netbricks_core::tables::{FlowTable, FlowTableConfig};
use netbricks_core::{
    Blueprint, BuildError, Context, Function, GroupConfig, Groups, Handler, Input, Node, NodeQueue,
    NodeState, Operator, Poll, Section, Shape, Shuffle, ShuffleConfig, ShuffleKey, StateImage, Worker,
    compose,
};

use crate::harness::{Feed, Rig, Sink, check, numbered, pool, run_out, worker};

/// Declares every kind of state that a function can have.
fn declaring(
    input: Input,
    worker: &Worker,
) -> impl Function<Out = netbricks_core::packet::stack::Root> + use<> {
    worker.counter("seen");
    worker.handler(Handler::read("ask", "Answers."), |_| Ok("answer".into()));
    worker.report(|| Section { title: "said".into(), ..Section::default() });
    worker.state::<FlowTable<u64, u64>, Strict>("shared", Strict, FlowTableConfig::new(8));
    input
}

type Make = fn(&Worker) -> Result<Box<dyn Node>, BuildError>;

/// The kinds of node in which a function can stand.
const MAKES: [(&str, Make); 4] = [
    ("compose", |worker| compose(worker, |input| declaring(input, worker).done())),
    ("group", |worker| {
        Groups::new(GroupConfig { groups: 2, queue: 0 })?.node_by(
            worker,
            |input| declaring(input, worker),
            |_| 0,
        )
    }),
    ("queues", |worker| {
        Groups::new(GroupConfig { groups: 2, queue: 8 })?.node_by(
            worker,
            |input| declaring(input, worker),
            |_| 0,
        )
    }),
    ("shuffle", |worker| {
        Shuffle::new(ShuffleConfig::default()).node_by(worker, |input| declaring(input, worker), |_| 0u32)
    }),
];

#[test]
fn a_functions_state_is_all_there_whichever_node_it_stands_in() {
    for (kind, make) in MAKES {
        let shares = Shares::default();
        let worker = worker(&pool()).sharing(&shares);
        let mut node = make(&worker).unwrap();
        let handlers: Vec<String> = node.handlers().into_iter().map(|handler| handler.name).collect();
        assert!(handlers.contains(&"ask".into()) && handlers.contains(&"shared.occupancy".into()), "{kind}");
        assert_eq!(node.call("ask", ""), Ok("answer".into()), "{kind}");
        let names = |images: Vec<StateImage>| images.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(node.export()), ["seen", "shared"], "{kind}");
        let (name, image) = node.export().remove(0);
        assert_eq!(node.import(&name, &image, 0), Ok(()), "{kind}");
        assert_eq!(node.report().len(), 1, "{kind}");
        let shared = node.shared_state();
        assert_eq!(shared.len(), 1, "{kind}");
        let fresh = Shares::default();
        let mut next = make(&worker.clone().sharing(&fresh)).unwrap();
        assert_eq!(next.adopt("shared", &shared[0].1, 0), Some(Ok(())), "{kind}");
        let moves = node.state(|state| (state.bound(ShuffleKey::Flow), state.follows(ShuffleKey::Flow)));
        let (bound, follows) = moves.unwrap();
        let expected = make_bare(&worker).state(|state| state.bound(ShuffleKey::Flow)).unwrap();
        assert_eq!((bound, follows.len()), (expected, 0), "{kind}");
    }
}

fn make_bare(worker: &Worker) -> Box<dyn Node> {
    compose(worker, |input| declaring(input, worker).done()).unwrap()
}

/// Such a node would wait forever.
#[test]
fn a_node_that_keeps_packets_and_waits_for_its_end_is_refused() {
    fn ending(
        input: Input,
        worker: &Worker,
    ) -> impl Function<Out = netbricks_core::packet::stack::Root> + use<> {
        worker.at_the_end(|| ());
        input
    }
    let makes: [(Make, bool); 4] = [
        (|worker| compose(worker, |input| ending(input, worker).done()), true),
        (
            |worker| {
                let groups = Groups::new(GroupConfig { groups: 2, queue: 0 })?;
                groups.node_by(worker, |input| ending(input, worker), |_| 0)
            },
            true,
        ),
        (
            |worker| {
                let groups = Groups::new(GroupConfig { groups: 2, queue: 8 })?;
                groups.node_by(worker, |input| ending(input, worker), |_| 0)
            },
            false,
        ),
        (
            |worker| {
                let shuffle = Shuffle::new(ShuffleConfig::default());
                shuffle.node_by(worker, |input| ending(input, worker), |_| 0u32)
            },
            false,
        ),
    ];
    for (make, fits) in makes {
        let mut rig = Rig::new();
        let worker = worker(&rig.pool);
        let added = rig.builder.add_function("ending", &Blueprint::new(make), &worker);
        match added {
            Ok(_) => assert!(fits),
            Err(problem) => assert!(!fits && problem.to_string().contains("`at_the_end`"), "{problem}"),
        }
    }
}

/// The calls of a node's state, each with the number of the place.
type Asked = Rc<RefCell<Vec<(usize, &'static str)>>>;

/// A place of a node, which notes the calls of its state.
///
/// Places with the same mark share their state. A place without a mark has its own.
struct Place {
    number: usize,
    mark: Option<usize>,
    asked: Asked,
}

impl Node for Place {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { has_end: true, shares_state: self.mark, ..Shape::default() }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl Place {
    fn note(&self, what: &'static str) {
        self.asked.borrow_mut().push((self.number, what));
    }
}

impl NodeState for Place {
    fn call(&mut self, _: &str, _: &str) -> Result<String, netbricks_core::CallError> {
        self.note("call");
        Ok(String::new())
    }
    fn import(&mut self, _: &str, _: &[u8], _: u64) -> Result<(), netbricks_core::ImportError> {
        self.note("import");
        Ok(())
    }
    fn export(&self) -> Vec<StateImage> {
        self.note("export");
        Vec::new()
    }
    fn report(&self) -> Vec<Section> {
        self.note("report");
        Vec::new()
    }
    fn end(&mut self) {
        self.note("end");
    }
}

#[test]
fn of_nodes_that_share_their_state_the_first_is_asked_what_it_is_and_each_can_be_called() {
    let asked = Asked::default();
    let mut rig = Rig::new();
    let mut nodes = vec![rig.add("source", Box::new(Feed::of((0..10).map(numbered))))];
    for (number, mark) in [None, Some(7), Some(8), Some(7), None, Some(8)].into_iter().enumerate() {
        let place = Place { number, mark, asked: asked.clone() };
        nodes.push(rig.add(&format!("place {number}"), Box::new(place)));
    }
    nodes.push(rig.add("end", Box::new(Sink::default())));
    rig.chain(&nodes);
    let (mut graph, _) = rig.build();
    let who = |what: &'static str| -> Vec<usize> {
        let asked = std::mem::take(&mut *asked.borrow_mut());
        let mut who: Vec<usize> =
            asked.into_iter().filter(|(_, of)| *of == what).map(|(number, _)| number).collect();
        who.sort_unstable();
        who
    };
    who("");
    graph.export();
    assert_eq!(who("export"), [0, 1, 2, 4]);
    graph.reports();
    assert_eq!(who("report"), [0, 1, 2, 4]);
    for number in 0..6 {
        graph.call(&format!("place {number}"), "any", "").unwrap();
        assert_eq!(who("call"), [number]);
        graph.import(&format!("place {number}"), "any", &[]).unwrap();
        assert_eq!(who("import"), [number]);
    }
    run_out(&mut graph);
    graph.drain(0);
    check(&graph);
    assert_eq!(who("end"), [0, 1, 2, 4]);
}

/// A node around another, as in the documentation of [`Node`].
struct Around(Box<dyn Node>);

impl Node for Around {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        self.0.process(input, batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.0.poll(batch, cx)
    }
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        self.0.with_state(ask);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        self.0.as_queue()
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        self.0.as_handoff()
    }
}

/// Keeps the last packet of its first batch, and has state by flow that cannot move.
#[derive(Default)]
struct Whole(Vec<Packet>);

impl Node for Whole {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        if self.0.is_empty() {
            self.0.extend(batch.pop());
        }
    }
    fn shape(&self) -> Shape {
        Shape { keeps_packets: true, ..Shape::default() }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Whole {
    fn held(&self) -> u64 {
        self.0.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        while let Some(packet) = self.0.pop() {
            batch.push(packet).unwrap();
        }
    }
}

impl NodeState for Whole {
    fn handlers(&self) -> Vec<Handler> {
        vec![Handler::read("any", "")]
    }
    fn export(&self) -> Vec<StateImage> {
        vec![("flows".into(), vec![1])]
    }
    fn take_part(&mut self, _: &Part, step: &mut PartStep) -> Option<StateImage> {
        step.end();
        Some(("flows".into(), vec![1]))
    }
}

#[test]
fn a_node_around_another_hides_nothing_of_it() {
    let mut around: Box<dyn Node> = Box::new(Around(Box::new(Whole::default())));
    assert_eq!(around.handlers().len(), 1);
    // It overrides `take_part` and not `bound`, so all its state counts as bound.
    assert_eq!(around.state(|state| state.bound(ShuffleKey::Flow)).unwrap(), ["flows"]);
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let (around, end) = (rig.add("around", around), rig.add("end", Box::new(Sink::default())));
    rig.chain(&[source, around, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(graph.totals().held, 1);
    assert_eq!(graph.drain(0), 0);
    check(&graph);
    assert_eq!((graph.totals().sent.packets, pool.available()), (10, pool.capacity()));
}
