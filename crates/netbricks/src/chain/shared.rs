//! One function with state in several places of a worker's graph: a NAT sees both directions because both chains pass
//! through the same node. Each place has its own edges and counters; what stands behind them is one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_buffer::Batch;
use netbricks_core::{
    Blueprint, CallError, Context, Handler, ImportError, Node, Output, Role, Section, StateImage,
};
use send_wrapper::SendWrapper;

type Inner = Rc<RefCell<Option<Box<dyn Node>>>>;

/// The node behind all places; it never leaves its worker's thread.
#[derive(Default)]
pub(super) struct Shared(Inner);

impl Shared {
    /// A blueprint for one place. The first to be built makes the node; one that is built a second time, which is
    /// after a panic in it, makes the node anew for all.
    pub(super) fn place(&self, function: &Blueprint) -> Blueprint {
        let function = function.clone();
        let first = self.0.borrow().is_none() && Rc::strong_count(&self.0) == 1;
        // A blueprint may cross threads, this one does not: the graph that keeps it is its worker's own.
        let held = SendWrapper::new((self.0.clone(), Cell::new(false)));
        Blueprint::new(move |worker| {
            let (inner, built) = &*held;
            if built.replace(true) || inner.borrow().is_none() {
                let fresh = function.build(worker)?;
                let old = inner.borrow_mut().replace(fresh);
                // Its drop is the author's code and may panic: nothing is borrowed then.
                drop(old);
            }
            Ok(Box::new(Door { inner: inner.clone(), first }))
        })
    }
}

/// A place in the graph through which the shared node is reached.
struct Door {
    inner: Inner,
    /// Speaks for the node where it must be asked once: state, handlers, reports.
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
    fn report(&self) -> Vec<Section> {
        if self.first { self.ask(|node| node.report()).unwrap_or_default() } else { Vec::new() }
    }
}
