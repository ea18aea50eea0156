//! One function with state in several places of a worker's graph: each place has its own edges and counters.
//!
//! All places lead to one node. So a NAT sees both directions, because both chains pass through the same
//! node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_buffer::Batch;
use netbricks_core::{Blueprint, BuildError, Context, Node, NodeState, Poll, Shape};
use send_wrapper::SendWrapper;

type Inner = Rc<RefCell<Option<Box<dyn Node>>>>;

/// The node behind all places; it never leaves its worker's thread.
#[derive(Default)]
pub(super) struct Shared(Inner);

impl Shared {
    /// A blueprint for one place, which is `place` in the order of the function's uses.
    ///
    /// The first blueprint to be built makes the node. When a blueprint is built a second time, which happens
    /// after a panic in its place, it makes a new node for all places.
    pub(super) fn place(&self, function: &Blueprint, place: usize) -> Blueprint {
        let function = function.clone();
        // A blueprint may cross threads, but this one never does: the graph that keeps it belongs to its
        // worker.
        let held = SendWrapper::new((self.0.clone(), Cell::new(false)));
        let restart = function.restart();
        Blueprint::new(move |worker| {
            let (inner, built) = &*held;
            if built.replace(true) || inner.borrow().is_none() {
                let fresh = function.build(worker)?;
                // The places share the node's state, but can share neither packets nor turns.
                let shape = fresh.shape();
                if shape.keeps_packets || shape.schedulable {
                    return Err(BuildError::new("it holds packets, and so can stand in one place only"));
                }
                let mut old = inner.borrow_mut().replace(fresh);
                // The node's events go on, whichever of its places panicked.
                if let Some(before) = old.as_mut().and_then(|node| node.schedule())
                    && let Some(schedule) = inner.borrow_mut().as_mut().and_then(|node| node.schedule())
                {
                    schedule.resume(&before);
                }
                // The drop runs the author's code and may panic, so nothing may be borrowed meanwhile.
                drop(old);
            }
            Ok(Box::new(Door { node: inner.clone(), place }))
        })
        .restarting(restart)
    }
}

/// A place in the graph through which the shared node is reached.
struct Door {
    node: Inner,
    place: usize,
}

impl Node for Door {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        if let Some(node) = self.node.borrow_mut().as_mut() {
            cx.set_place(self.place);
            node.process(input, batch, cx);
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        cx.set_place(self.place);
        self.node.borrow_mut().as_mut().map_or(Poll::Done, |node| node.poll(batch, cx))
    }
    /// The shape of the shared node, marked as one whose state all places share.
    ///
    /// The graph asks only the first place for that state, and packets that an event sends leave from there.
    /// The node moves its state once all shuffles before its places have released the flows. Any of its
    /// places represents it then.
    fn shape(&self) -> Shape {
        let shape = self.node.borrow().as_ref().map(|node| node.shape()).unwrap_or_default();
        Shape { shares_state: Some(Rc::as_ptr(&self.node).addr()), ..shape }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        if let Some(node) = self.node.borrow_mut().as_mut() {
            node.with_state(ask);
        }
    }
}

#[cfg(test)]
mod migration;
#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;
    use netbricks_core::{
        DropReason, Edge, Function, GraphBuilder, GroupConfig, Groups, Handler, Input, Operator, Poll,
        Section, ShuffleKey, Turn, Worker, compose,
    };

    use super::*;

    /// Sends a packet at every tick, and panics at every packet.
    fn ticking(input: Input, worker: &Worker) -> impl Function + use<> {
        worker.invoke_every("tick", 100, |event| {
            event.inject(Edge::OUT, 60, |frame| frame.fill(1));
        });
        worker.invoke_at("once", 5, |_| ());
        input.inspect(|_| panic!("no packets, please")).done()
    }

    /// Brings one packet, in its poll number `at`.
    struct Source {
        asked: u32,
        at: u32,
    }
    impl Node for Source {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
        fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
            self.asked += 1;
            if self.asked == self.at {
                assert!(batch.push(cx.pool().packet(&[0; 60]).unwrap()).is_ok());
            }
            Poll::Idle
        }
        fn shape(&self) -> Shape {
            Shape::receive()
        }
    }

    /// Counts the packets that arrive at each of its inputs.
    struct Ends(Rc<Cell<[u32; 2]>>);
    impl Node for Ends {
        fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
            let mut counts = self.0.get();
            counts[input] += batch.len() as u32;
            self.0.set(counts);
            cx.drop_batch(batch, DropReason::Discarded);
        }
        fn shape(&self) -> Shape {
            Shape { inputs: 2, outputs: Vec::new(), ..Shape::default() }
        }
    }

    #[test]
    fn places_hand_on_the_state_of_one_node_whole() {
        let worker = Worker::new(0, 1, Pool::builder().frames(16).build().unwrap());
        let function = Blueprint::new(|worker| {
            compose(worker, |input| {
                worker.at_the_end(|| ());
                worker.counter("seen");
                worker.handler(Handler::read("ask", "Answers."), |_| Ok("answer".into()));
                worker.report(Section::default);
                ticking(input, worker)
            })
        });
        let mut alone = function.build(&worker).unwrap();
        let shared = Shared::default();
        let places = [0, 1].map(|place| shared.place(&function, place).build(&worker).unwrap());
        let marks = places.each_ref().map(|place| place.shape().shares_state);
        assert!(marks[0].is_some() && marks[0] == marks[1]);
        for mut place in places {
            let shape = Shape { shares_state: None, ..place.shape() };
            assert_eq!(shape, alone.shape());
            assert!(shape.has_end);
            assert_eq!(place.handlers(), alone.handlers());
            assert_eq!(place.call("ask", ""), Ok("answer".into()));
            assert_eq!(place.export(), alone.export());
            assert_eq!(place.report(), alone.report());
            assert!(place.schedule().is_some() && alone.schedule().is_some());
        }
    }

    #[test]
    fn functions_that_keep_packets_or_want_turns_stand_in_one_place() {
        let worker = Worker::new(0, 1, Pool::builder().frames(16).build().unwrap());
        let groups = Groups::new(GroupConfig { groups: 2, queue: 8 }).unwrap();
        let keeper = Blueprint::new(move |worker| Ok(groups.node(worker, ShuffleKey::Flow)));
        let turns = Blueprint::new(|_| Ok(Box::new(Source { asked: 0, at: 0 })));
        for function in [keeper, turns] {
            let problem = Shared::default().place(&function, 0).build(&worker).err().unwrap();
            assert!(problem.to_string().contains("one place"), "{problem}");
        }
    }

    #[test]
    fn events_run_once_for_all_places_and_outlive_a_panic_in_any() {
        for breaks in [0, 1] {
            let pool = Pool::builder().frames(64).build().unwrap();
            let worker = Worker::new(0, 1, pool.clone());
            let function = Blueprint::new(|worker| compose(worker, |input| ticking(input, worker)));
            let (shared, left) = (Shared::default(), Rc::new(Cell::new([0; 2])));
            let mut builder = GraphBuilder::new("test");
            let ends = builder.add("ends", Box::new(Ends(left.clone()))).unwrap();
            for place in 0..2 {
                let at = if place == breaks { 3 } else { 0 };
                let source = builder.add(format!("in {place}"), Box::new(Source { asked: 0, at })).unwrap();
                let node = builder
                    .add_function(format!("at {place}"), &shared.place(&function, place), &worker)
                    .unwrap();
                builder.connect(source, Edge::OUT, node, 0).unwrap();
                builder.connect(node, Edge::OUT, ends, place).unwrap();
            }
            let mut graph = builder.build(pool.clone()).unwrap();
            for now in (1_000..2_000).step_by(10) {
                graph.wake();
                while !matches!(graph.turn(now), Turn::Idle(_)) {}
            }
            let panics = graph.take_panics();
            assert_eq!((panics.len(), panics[0].node.clone()), (1, format!("at {breaks}")));
            assert_eq!(left.get(), [9, 0], "at 1,100 and so on, from the first place");
            assert_eq!(graph.call("at 0", "tick.runs", "").unwrap(), "9");
            assert_eq!(graph.call("at 0", "once.runs", "").unwrap(), "1");
            graph.drain(2_000);
            assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}
