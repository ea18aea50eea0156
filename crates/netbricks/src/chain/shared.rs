//! One function with state in several places of a worker's graph: each place has its own edges and counters.
//!
//! All places lead to one node. So a NAT sees both directions, because both chains pass through the same
//! node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_buffer::Batch;
use netbricks_core::consistency::SharedStateRef;
use netbricks_core::shuffle::{Part, PartStep};
use netbricks_core::{
    Blueprint, CallError, Context, Handler, ImportError, Node, Output, Poll, Role, Schedule, Section,
    ShuffleKey, StateImage,
};
use send_wrapper::SendWrapper;

type Inner = Rc<RefCell<Option<Box<dyn Node>>>>;

/// The node behind all places; it never leaves its worker's thread.
#[derive(Default)]
pub(super) struct Shared(Inner);

impl Shared {
    /// A blueprint for one place.
    ///
    /// The first blueprint to be built makes the node. When a blueprint is built a second time, which happens
    /// after a panic in its place, it makes a new node for all places.
    pub(super) fn place(&self, function: &Blueprint) -> Blueprint {
        let function = function.clone();
        let first = self.0.borrow().is_none() && Rc::strong_count(&self.0) == 1;
        // A blueprint may cross threads, but this one never does: the graph that keeps it belongs to its
        // worker.
        let held = SendWrapper::new((self.0.clone(), Cell::new(false)));
        Blueprint::new(move |worker| {
            let (inner, built) = &*held;
            if built.replace(true) || inner.borrow().is_none() {
                let fresh = function.build(worker)?;
                let old = inner.borrow_mut().replace(fresh);
                // The node's events go on, whichever of its places panicked.
                if let Some(before) = old.as_ref().and_then(|node| node.schedule())
                    && let Some(schedule) = inner.borrow().as_ref().and_then(|node| node.schedule())
                {
                    schedule.resume(&before);
                }
                // The drop runs the author's code and may panic, so nothing may be borrowed meanwhile.
                drop(old);
            }
            Ok(Box::new(Door { inner: inner.clone(), first }))
        })
    }
}

/// A place in the graph through which the shared node is reached.
struct Door {
    inner: Inner,
    /// Whether this place represents the node where it must be asked once: for state, handlers, reports and
    /// events.
    ///
    /// Packets that an event sends leave from this place.
    first: bool,
}

impl Door {
    fn ask<T>(&self, question: impl FnOnce(&dyn Node) -> T) -> Option<T> {
        self.inner.borrow().as_ref().map(|node| question(node.as_ref()))
    }
}

impl Node for Door {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        if let Some(node) = self.inner.borrow_mut().as_mut() {
            node.process(input, batch, cx);
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.inner.borrow_mut().as_mut().map_or(Poll::Done, |node| node.poll(batch, cx))
    }
    fn is_schedulable(&self) -> bool {
        self.schedule().is_some()
    }
    fn schedule(&self) -> Option<Schedule> {
        self.ask(|node| node.schedule()).flatten().filter(|_| self.first)
    }
    fn has_an_end(&self) -> bool {
        self.first && self.ask(|node| node.has_an_end()).unwrap_or(false)
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        if let Some(node) = self.inner.borrow_mut().as_mut() {
            node.drain(batch, cx);
        }
    }
    fn role(&self) -> Role {
        Role::Function
    }
    fn inputs(&self) -> usize {
        self.ask(|node| node.inputs()).unwrap_or(1)
    }
    fn outputs(&self) -> Vec<Output> {
        self.ask(|node| node.outputs()).unwrap_or_default()
    }
    fn handlers(&self) -> Vec<Handler> {
        if self.first { self.ask(|node| node.handlers()).unwrap_or_default() } else { Vec::new() }
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        match self.inner.borrow_mut().as_mut() {
            Some(node) => node.call(name, argument),
            None => Err(CallError::Unknown { name: name.into(), known: String::new() }),
        }
    }
    fn export(&self) -> Vec<StateImage> {
        if self.first { self.ask(|node| node.export()).unwrap_or_default() } else { Vec::new() }
    }
    fn import(&mut self, name: &str, bytes: &[u8], now: u64) -> Result<(), ImportError> {
        match self.inner.borrow_mut().as_mut() {
            Some(node) => node.import(name, bytes, now),
            None => Err(ImportError::Unknown { name: name.into() }),
        }
    }
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        if self.first { self.ask(|node| node.shared_state()).unwrap_or_default() } else { Vec::new() }
    }
    fn adopt(&mut self, name: &str, heritage: &SharedStateRef, now: u64) -> Option<Result<(), ImportError>> {
        self.inner.borrow_mut().as_mut()?.adopt(name, heritage, now)
    }
    /// The node moves its state once all shuffles before its places have released the flows.
    ///
    /// Any of its places represents it then.
    fn shares_state(&self) -> Option<usize> {
        Some(Rc::as_ptr(&self.inner).addr())
    }
    fn take_part(&mut self, part: &Part, step: &mut PartStep) -> Option<StateImage> {
        match self.inner.borrow_mut().as_mut() {
            Some(node) => node.take_part(part, step),
            None => {
                step.end();
                None
            }
        }
    }
    fn bound(&self, by: ShuffleKey) -> Vec<String> {
        self.ask(|node| node.bound(by)).unwrap_or_default()
    }
    fn follows(&self, by: ShuffleKey) -> Vec<String> {
        self.ask(|node| node.follows(by)).unwrap_or_default()
    }
    fn report(&self) -> Vec<Section> {
        if self.first { self.ask(|node| node.report()).unwrap_or_default() } else { Vec::new() }
    }
}

#[cfg(test)]
mod migration;
#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;
    use netbricks_core::{
        DropReason, Edge, Function, GraphBuilder, Input, Operator, Poll, Turn, Worker, compose,
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
        fn is_schedulable(&self) -> bool {
            true
        }
        fn role(&self) -> Role {
            Role::Receive
        }
        fn inputs(&self) -> usize {
            0
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
        fn inputs(&self) -> usize {
            2
        }
        fn outputs(&self) -> Vec<Output> {
            Vec::new()
        }
    }

    #[test]
    fn one_place_alone_speaks_for_the_events() {
        let worker = Worker::new(0, 1, Pool::builder().frames(16).build().unwrap());
        let function = Blueprint::new(|worker| compose(worker, |input| ticking(input, worker)));
        let shared = Shared::default();
        let places = [(); 2].map(|()| shared.place(&function).build(&worker).unwrap());
        assert_eq!(places.map(|place| place.schedule().is_some()), [true, false]);
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
                let node =
                    builder.add_function(format!("at {place}"), &shared.place(&function), &worker).unwrap();
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
