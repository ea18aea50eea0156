//! State that workers share, read and written by an event.
//!
//! The event is the state's writer for as long as it runs, and no longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, Consistency, NoExternalAccess, Shares, Strict,
};
use netbricks_core::tables::CounterArray;
use netbricks_core::{DetachedContext, Function, Handler, Input, Node, Operator, Worker, compose};

use crate::harness::pool;

const PERIOD: u64 = 100;
/// The times at which events panic: after their writes, and in the middle of a change.
const AFTER: u64 = 300;
const WITHIN: u64 = 500;

/// Counts its ticks and adds up their times, after a read of the counts of all workers.
///
/// `elsewhere` is called in each tick between its changes.
fn ticking<C: Consistency>(
    input: Input,
    worker: &Worker,
    consistency: C,
    elsewhere: Box<dyn Fn()>,
) -> impl Function + use<C> {
    let seen = worker.state::<CounterArray, C>("seen", consistency, 2);
    let (asked, told) = (seen.clone(), seen.clone());
    worker.handler(Handler::read("read", "What is counted."), move |_| {
        Ok(format!("{:?}", asked.read(|seen| seen.all().to_vec())))
    });
    worker.handler(Handler::write("add", "Counts one."), move |_| {
        told.update((0, 1)).map(|value| format!("{value:?}")).map_err(|error| error.to_string())
    });
    worker.invoke_every("tick", PERIOD, move |event| {
        let before = seen.read(|seen| seen.get(0)).unwrap();
        assert_eq!(seen.update((0, 1)), Ok(Some(before + 1)));
        elsewhere();
        let change = [(1, event.now())];
        let within = |_| assert!(event.now() != WITHIN, "within a change");
        assert_eq!(seen.update_all(change, within), Ok(()));
        assert_eq!(seen.read(|seen| seen.get(0)), Some(before + 1), "it sees what it wrote");
        assert!(event.now() != AFTER, "after its changes");
    });
    input.done()
}

/// A worker's node, and a time that advances.
struct Side {
    node: Box<dyn Node>,
    cx: DetachedContext,
}

impl Side {
    fn new<C: Consistency>(pool: &Pool, shares: &Shares, consistency: C, elsewhere: Box<dyn Fn()>) -> Self {
        let worker = Worker::new(0, 1, pool.clone()).sharing(shares);
        let node = compose(&worker, |input| ticking(input, &worker, consistency, elsewhere)).unwrap();
        let mut side = Self { node, cx: DetachedContext::new(pool.clone()) };
        // The clock begins: nothing is due before the first period is over.
        side.at(PERIOD).unwrap();
        side
    }
    /// Runs the event that is due; answers whether it came to its end.
    fn at(&mut self, now: u64) -> Result<(), String> {
        self.cx.advance(now);
        let poll = AssertUnwindSafe(|| self.node.poll(&mut Batch::new(), &mut self.cx));
        let panicked =
            |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<&str>().unwrap().to_string();
        catch_unwind(poll).map(drop).map_err(panicked)
    }
    fn call(&mut self, handler: &str) -> String {
        self.node.call(handler, "").unwrap_or_else(|error| error.to_string())
    }
}

/// The nodes of two workers that share state. A third side tries to write while events run, and adds nothing.
fn two_sides<C: Consistency + Copy + 'static>(
    consistency: C,
    can_write: Result<(), CannotWrite>,
) -> [Side; 2] {
    let (pool, shares) = (pool(), Shares::default());
    [0, 1].map(|_| {
        let third = Worker::new(2, 1, pool.clone()).sharing(&shares).state("seen", consistency, 2);
        Side::new(
            &pool,
            &shares,
            consistency,
            Box::new(move || {
                assert_eq!(Access::<CounterArray>::update(&third, (1, 0)).map(drop), can_write);
            }),
        )
    })
}

/// The values that both workers see after each of four ticks of one worker.
///
/// The second tick panics after its changes and the fourth within one.
fn story<C: Consistency + Copy + 'static>(
    consistency: C,
    can_write: Result<(), CannotWrite>,
) -> Vec<[String; 2]> {
    let mut sides = two_sides(consistency, can_write);
    let mut said = Vec::new();
    for (now, outcome) in [
        (200, Ok(())),
        (AFTER, Err("after its changes".to_owned())),
        (400, Ok(())),
        (WITHIN, Err("within a change".to_owned())),
    ] {
        let [first, second] = &mut sides;
        assert_eq!(first.at(now), outcome);
        // The worker that ticked idles now. The other reads its writes, and may write.
        said.push(["read", "add"].map(|handler| second.call(handler)));
    }
    let [first, second] = &mut sides;
    assert_eq!(second.at(600), Ok(()));
    said.push(["read", "add"].map(|handler| first.call(handler)));
    said
}

#[test]
fn an_event_gives_the_writer_up_when_it_ends_or_panics() {
    // Ticks at 200, 300 and 400 count, panic or not, and each is followed by one of the other's. Between two
    // changes in one event, only the write of `update` is done when `update_all` panics.
    let counted = [["[1, 200]", "Some(2)"], ["[3, 500]", "Some(4)"], ["[5, 900]", "Some(6)"]];
    // Strict and bounded state start empty after a panic within.
    let anew = [["[0, 0]", "Some(1)"], ["[2, 600]", "Some(3)"]];
    let expected: Vec<[String; 2]> =
        counted.iter().chain(&anew).map(|said| said.map(str::to_owned)).collect();
    assert_eq!(story(Strict, Ok(())), expected);
    let elsewhere = Err(CannotWrite::Elsewhere);
    // However much readers may miss, an idle writer has published everything.
    for updates in [0, 1, 1_000] {
        let told = story(BoundedInconsistency { updates }, elsewhere);
        assert_eq!(told[..3], expected[..3], "{updates} updates");
        // No reader sees the change that panicked; the next change starts from empty state.
        assert_eq!((&told[3][1], &told[4]), (&expected[3][1], &expected[4]), "{updates} updates");
    }
}

#[test]
fn an_event_of_own_state_sees_no_other_workers() {
    let [mut first, mut second] = two_sides(NoExternalAccess, Ok(()));
    assert_eq!(first.at(200), Ok(()));
    assert_eq!([first.call("read"), second.call("read")], ["[1, 200]", "[0, 0]"]);
}
