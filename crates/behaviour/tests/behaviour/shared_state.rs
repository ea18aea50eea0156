//! Shared state when graphs change and when memory is short.
//!
//! It is one state for all workers, and never loses anything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, Consistency, Contents, Shares, Strict,
};
use netbricks_core::tables::{Changing, FlowTable, FlowTableConfig, MapChange};
use netbricks_core::{Declared, ImportError, Node, Operator, Worker, compose};

use crate::harness::{pool, worker};

const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 0 };

type Flows = FlowTable<u64, u64>;

fn put(key: u64) -> MapChange<u64, u64> {
    MapChange::Put { key, value: key, timeout: None, now: 0 }
}

fn holder<C: Consistency>(
    worker: &Worker,
    consistency: C,
    capacity: usize,
) -> (Box<dyn Node>, C::Handle<Flows>) {
    let mut handle = None;
    let node = compose(worker, |input| {
        handle = Some(worker.state::<Flows, C>("flows", consistency, FlowTableConfig::new(capacity)));
        input.done()
    });
    (node.unwrap(), handle.unwrap())
}

/// Makes `new` take over the state of `old`; answers whether it does.
fn adopt(new: &mut dyn Node, old: &mut dyn Node) -> Result<(), ImportError> {
    let shared = old.shared_state();
    let [(name, shared)] = &shared[..] else { panic!("one state is shared") };
    new.adopt(name, shared, 0).expect("it is of the same type")
}

/// Two workers, of which the first changes to a larger table while the second still writes from its old
/// graph.
fn one_state_in_another_size<C: Consistency + Copy>(consistency: C) {
    let (before, after) = (Shares::default(), Shares::default());
    let of = |shares: &Shares, capacity| holder(&worker(&pool()).sharing(shares), consistency, capacity);
    let mut old = [of(&before, 100), of(&before, 100)];
    let mut new = [of(&after, 200), of(&after, 200)];
    old[0].1.update(put(1)).unwrap();
    adopt(&mut *new[0].0, &mut *old[0].0).unwrap();
    assert_eq!(old[0].0.export(), [("flows".to_owned(), Vec::new())], "there is no second copy");
    new[0].1.update(put(2)).unwrap();
    old[1].1.update(put(3)).unwrap();
    adopt(&mut *new[1].0, &mut *old[1].0).unwrap();
    new[1].1.update(put(4)).unwrap();
    // A worker that comes later, after a panic, has it too.
    let later = of(&after, 200);
    for handle in [&new[0].1, &new[1].1, &later.1] {
        assert_eq!(handle.read(|flows| (flows.len(), flows.capacity())), (4, 200));
    }
}

#[test]
fn workers_that_change_one_by_one_to_another_size_have_one_state() {
    one_state_in_another_size(Strict);
    one_state_in_another_size(BOUNDED);
}

/// The first worker's answer counts for all, even if state that did not fit would fit later.
fn all_or_none<C: Consistency + Copy>(consistency: C) {
    let (before, after) = (Shares::default(), Shares::default());
    let of = |shares: &Shares, capacity| holder(&worker(&pool()).sharing(shares), consistency, capacity);
    let mut old = [of(&before, 100), of(&before, 100)];
    let mut new = [of(&after, 2), of(&after, 2)];
    for key in 0..3 {
        old[0].1.update(put(key)).unwrap();
    }
    adopt(&mut *new[0].0, &mut *old[0].0).unwrap_err();
    assert_eq!(old[1].1.read(|flows| flows.len()), 3, "what ran goes on");
    old[1].1.update(MapChange::Remove { key: 0, now: 0 }).unwrap();
    adopt(&mut *new[1].0, &mut *old[1].0).unwrap_err();
    new[0].1.update(put(7)).unwrap();
    assert_eq!(new[1].1.read(|flows| flows.len()), 1);
}

#[test]
fn state_that_does_not_fit_is_refused_on_all_workers_or_on_none() {
    all_or_none(Strict);
    all_or_none(BOUNDED);
}

/// Checks workers that come from different graphs.
///
/// One already runs the new graph, or goes back to the old one. A refusal by one worker's graph does not
/// concern another.
fn workers_of_several_graphs_keep_their_state<C: Consistency + Copy>(consistency: C) {
    let of = |shares: &Shares, capacity| holder(&worker(&pool()).sharing(shares), consistency, capacity);
    let (before, after) = (Shares::default(), Shares::default());
    let [mut old, mut stays] = [of(&before, 100), of(&before, 100)];
    let canary = of(&after, 100);
    canary.1.update(put(9)).unwrap();
    old.1.update(put(1)).unwrap();
    let mut new = of(&after, 100);
    adopt(&mut *new.0, &mut *old.0).unwrap();
    canary.1.update(put(8)).unwrap();
    stays.1.update(put(2)).unwrap();
    let found =
        [&new.1, &stays.1, &canary.1].map(|handle| handle.read(|flows| (flows.len(), flows.capacity())));
    assert_eq!(found, [(2, 100), (2, 100), (2, 100)]);
    // Back to the old graph, while another worker never left it.
    let mut back = of(&Shares::default(), 100);
    adopt(&mut *back.0, &mut *new.0).unwrap();
    assert_eq!(stays.1.read(|flows| flows.capacity()), 100);
    // State that fits, after state that did not.
    let (small, other) = (Shares::default(), Shares::default());
    for key in 0..3 {
        stays.1.update(put(key)).unwrap();
    }
    adopt(&mut *of(&small, 2).0, &mut *stays.0).unwrap_err();
    let mut less = of(&other, 100);
    less.1.update(put(5)).unwrap();
    adopt(&mut *of(&small, 2).0, &mut *less.0).unwrap();
}

#[test]
fn state_of_workers_that_take_over_from_none_stays_as_it_is() {
    workers_of_several_graphs_keep_their_state(Strict);
    workers_of_several_graphs_keep_their_state(BOUNDED);
}

/// Checks that nested calls never find two states in the opposite order.
///
/// This also holds where a graph comes back whose states were made before those that it would take over.
#[test]
fn strict_states_are_inherited_only_where_the_order_of_locking_stays() {
    let two = |shares: &Shares, names: [&str; 2]| {
        let mut handles = None;
        let worker = worker(&pool()).sharing(shares);
        let node = compose(&worker, |input| {
            let config = || FlowTableConfig::new(10);
            handles = Some(names.map(|name| worker.state::<Flows, _>(name, Strict, config())));
            input.done()
        });
        (node.unwrap(), handles.unwrap())
    };
    let (first, second) = (Shares::default(), Shares::default());
    let mut old = two(&first, ["flows", "totals"]);
    let mut new = two(&second, ["others", "flows"]);
    let given =
        |node: &mut dyn Node| node.shared_state().into_iter().find(|(name, _)| name == "flows").unwrap().1;
    assert!(
        new.0.adopt("flows", &given(&mut *old.0), 0).is_none(),
        "made before the state that is asked for before it"
    );
    let mut back = two(&first, ["flows", "totals"]);
    assert!(
        back.0.adopt("flows", &given(&mut *new.0), 0).is_none(),
        "made after the state that is asked for after it"
    );
    for (_, [outer, inner]) in [&old, &new, &back] {
        outer.transact(|outer| inner.transact(|inner| outer.apply(&put(inner.len() as u64))));
    }
    // Both as they were: the usual order.
    let mut next = two(&Shares::default(), ["flows", "totals"]);
    for (name, shared) in back.0.shared_state() {
        next.0.adopt(&name, &shared, 0).unwrap().unwrap();
    }
    assert_eq!(next.1[0].read(|flows| flows.len()), 1);
}

/// State that can be made as often as there is memory.
struct Scarce(Vec<u64>);

#[derive(Clone)]
struct Memory(Arc<AtomicUsize>);

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Changing for Scarce {
    type Change = u64;
    type Outcome = usize;
    fn apply(&mut self, change: &u64) -> usize {
        assert_ne!(*change, 666, "planted");
        self.0[0] += change;
        self.0.len()
    }
}

impl Declared for Scarce {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, _: &[u8], _: u64) -> Result<(), String> {
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        (0, self.0.len() as u64)
    }
}

impl Contents for Scarce {
    type Config = Memory;
    fn make(Memory(left): &Memory) -> Result<Self, String> {
        let one_less = |left: usize| left.checked_sub(1);
        let made = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        made.map(|_| Self(vec![0; 1_000])).map_err(|_| "there is no memory".into())
    }
    fn least() -> Self {
        Self(vec![0])
    }
}

fn scarce<C: Consistency>(times: usize, consistency: C) -> (Arc<AtomicUsize>, C::Handle<Scarce>) {
    let memory = Arc::new(AtomicUsize::new(times));
    let worker = Worker::new(0, 1, pool());
    let mut handle = None;
    let built = compose(&worker, |input| {
        handle = Some(worker.state::<Scarce, C>("scarce", consistency, Memory(memory.clone())));
        input.done()
    });
    built.map(drop).unwrap();
    (memory, handle.unwrap())
}

/// There used to be one whole copy and one of a single entry, which readers saw in turns.
#[test]
fn both_copies_are_made_or_the_building_fails() {
    let worker = worker(&pool());
    let memory = Memory(Arc::new(AtomicUsize::new(1)));
    let build = || {
        compose(&worker, |input| {
            worker.state::<Scarce, _>("scarce", BOUNDED, memory.clone());
            input.done()
        })
    };
    let problem = build().map(drop).unwrap_err().to_string();
    assert_eq!(problem, "state `scarce`: there is no memory");
    // A failure is not kept for the next attempt.
    assert!(build().is_err());
    memory.0.store(2, Ordering::Relaxed);
    assert!(build().is_ok());
}

#[test]
fn bounded_state_that_cannot_be_remade_stays_as_published() {
    for left in [0, 1] {
        let (memory, state) = scarce(2, BOUNDED);
        state.update(5).unwrap();
        state.update(0).unwrap();
        memory.store(left, Ordering::Relaxed);
        catch_unwind(AssertUnwindSafe(|| state.update(666))).unwrap_err();
        for _ in 0..3 {
            assert_eq!(state.update(1), Err(CannotWrite::Spoilt));
            let kept = if left == 0 { 5 } else { 0 };
            assert_eq!(
                state.read(|scarce| (scarce.0[0], scarce.0.len())),
                (kept, 1_000),
                "{left} could be made"
            );
        }
        memory.store(2, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(state.update(1), Ok(1_000));
        }
        assert_eq!(state.read(|scarce| scarce.0[0]), 3);
    }
}

#[test]
fn strict_state_is_remade_once_there_is_memory() {
    let (memory, state) = scarce(1, Strict);
    memory.store(0, Ordering::Relaxed);
    catch_unwind(AssertUnwindSafe(|| state.update(666))).unwrap_err();
    assert_eq!((state.update(1), state.remade()), (Err(CannotWrite::Spoilt), 0));
    assert_eq!(state.read(|scarce| (scarce.0[0], scarce.0.len())), (0, 1), "the least there can be");
    memory.store(1, Ordering::Relaxed);
    assert_eq!((state.update(1), state.remade()), (Ok(1_000), 1));
    assert_eq!(state.read(|scarce| scarce.0[0]), 1);
}
