//! Reads inside code that has the state already: the promises of `Access::read` for each consistency.

use std::panic::{AssertUnwindSafe, catch_unwind};

use netbricks_core::consistency::{
    Access, BoundedInconsistency, Consistency, Lookable, NoExternalAccess, Strict,
};
use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::{CounterArray, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{Function, Handler, Input, Node, Operator, Verdict, Worker, compose};

use crate::consistency::{Flows, frame, through};
use crate::harness::{pool, worker};

const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 10 };

/// Reads by handlers: inside a read, inside a read after a change in the same call, and inside a change.
fn reading<C: Consistency>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C> {
    let state = worker.state::<CounterArray, C>("seen", consistency, 1);
    let first = move |state: &C::Handle<CounterArray>| state.read(|seen| seen.get(0)).unwrap();
    let (once, inside, after) = (state.clone(), state.clone(), state.clone());
    worker.handler(Handler::read("once", "Reads."), move |_| Ok(first(&once).to_string()));
    worker.handler(Handler::write("inside", "Reads inside a read."), move |_| {
        Ok(inside.read(|_| first(&inside)).to_string())
    });
    worker.handler(Handler::write("after", "Changes, and reads inside a read."), move |_| {
        after.update((0, 1)).unwrap();
        Ok(after.read(|_| first(&after)).to_string())
    });
    worker.handler(Handler::write("change", "Reads inside a change."), move |_| {
        let mut read = 0;
        state.update_all([(0, 1)], |_| read = first(&state)).unwrap();
        Ok(read.to_string())
    });
    input.done()
}

fn node<C: Consistency>(consistency: C) -> Box<dyn Node> {
    let worker = worker(&pool());
    compose(&worker, |input| reading(input, &worker, consistency)).unwrap()
}

/// A handler's answer, or `None` where it panics.
fn call(node: &mut dyn Node, handler: &str) -> Option<String> {
    catch_unwind(AssertUnwindSafe(|| node.call(handler, "").unwrap())).ok()
}

#[test]
fn a_read_inside_a_read_panics_where_that_is_promised() {
    let answers = |mut node: Box<dyn Node>| {
        ["inside", "after", "once", "inside"].map(|handler| call(node.as_mut(), handler))
    };
    let some = |value: &str| Some(value.to_owned());
    assert_eq!(answers(node(NoExternalAccess)), ["0", "1", "1", "1"].map(some));
    // The change of the second call stays; its worker is no longer the writer after the call.
    assert_eq!(answers(node(BOUNDED)), [some("0"), None, some("1"), some("1")]);
    // Each panic makes the state again.
    assert_eq!(answers(node(Strict)), [None, None, some("0"), None]);
}

#[test]
fn a_read_inside_a_change_panics() {
    for mut node in [node(NoExternalAccess), node(BOUNDED), node(Strict)] {
        assert_eq!(call(node.as_mut(), "change"), None);
        assert!(call(node.as_mut(), "once").is_some(), "it can be read after that");
    }
}

/// Reads the table from inside its lookups.
fn sizing<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Flows>: Lookable<Table = Flows>,
{
    let flows = worker.state::<Flows, C>("flows", consistency, FlowTableConfig::new(16));
    let asked = flows.clone();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(&flows, |packet| packet.flow_key(), move |_, _| asked.read(|flows| flows.len()))
        .done()
}

#[test]
fn a_read_inside_a_lookup_panics_where_the_table_is_lent_out() {
    fn passes<C>(consistency: C) -> bool
    where
        C: Consistency,
        C::Handle<Flows>: Lookable<Table = Flows>,
    {
        let pool = pool();
        let worker = worker(&pool);
        let mut node = compose(&worker, |input| sizing(input, &worker, consistency)).unwrap();
        catch_unwind(AssertUnwindSafe(|| through(node.as_mut(), &pool, &[frame(1)]))).is_ok()
    }
    assert_eq!((passes(NoExternalAccess), passes(Strict), passes(BOUNDED)), (false, false, true));
}
