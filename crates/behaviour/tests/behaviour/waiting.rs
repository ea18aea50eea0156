//! Several states that workers share, nested in each other: no two workers ever wait for each other for ever.
//!
//! Each test runs in threads of its own, and has failed when they have not ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use netbricks_core::consistency::{
    Access, Bounded, BoundedInconsistency, CannotWrite, Shares, Strict, StrictState,
};
use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::{CounterArray, FlowTable, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{Operator, StoredFlow, Worker, compose};

use crate::consistency::{frame, through};
use crate::harness::{pool, worker};

/// Publishes all changes at once: the second of two changes waits for reads that began before the first.
const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 0 };

/// Far more time than any test takes: it stops only threads that wait for each other.
const FOR_EVER: Duration = Duration::from_secs(30);

type Run<T> = Box<dyn FnOnce() -> T + Send>;

/// The answers of `runs`, each in its own thread, all at the same time.
fn at_once<T: Send + 'static>(runs: impl IntoIterator<Item = Run<T>>) -> Vec<T> {
    let ends: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let (done, end) = channel();
            thread::spawn(move || done.send(run()));
            end
        })
        .collect();
    ends.into_iter()
        .map(|end: Receiver<T>| end.recv_timeout(FOR_EVER).expect("it panicked, or they wait for each other"))
        .collect()
}

fn alone<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    at_once([Box::new(run) as Run<T>]).remove(0)
}

/// One worker's handles to the shared states, declared in this order.
struct Sides {
    strict: [StrictState<CounterArray>; 2],
    bounded: [Bounded<CounterArray>; 2],
}

fn sides(shares: &Shares) -> Sides {
    let worker = Worker::new(0, 1, pool()).sharing(shares);
    Sides {
        strict: ["counts", "sums"].map(|name| worker.state(name, Strict, 1)),
        bounded: ["routes", "hosts"].map(|name| worker.state(name, BOUNDED, 1)),
    }
}

fn first(state: &impl Access<CounterArray>) -> u64 {
    state.read(|seen| seen.get(0).unwrap())
}

type Written = Result<Option<u64>, CannotWrite>;

/// One worker changes bounded state while it has strict state.
///
/// The other asks for the strict state inside a read of the bounded state.
#[test]
fn strict_state_inside_a_read_of_bounded_state_is_refused() {
    let (shares, both) = (Shares::default(), Arc::new(Barrier::new(2)));
    let changes = {
        let (shares, both) = (shares.clone(), both.clone());
        move || {
            let Sides { strict: [counts, _], bounded: [routes, _] } = sides(&shares);
            let written: [Written; 2] = counts.transact(|_| {
                both.wait();
                [routes.update((0, 1)), routes.update((0, 1))]
            });
            assert_eq!(written, [Ok(Some(1)), Ok(Some(2))]);
            String::new()
        }
    };
    let reads = move || {
        let Sides { strict: [counts, _], bounded: [routes, _] } = sides(&shares);
        routes.read(|_| {
            both.wait();
            assert_eq!(counts.update_all([(0, 1)], |_| ()), Err(CannotWrite::OutOfOrder));
            let asked = catch_unwind(AssertUnwindSafe(|| counts.transact(|_| ())));
            *asked.expect_err("it is refused").downcast::<String>().expect("a text")
        })
    };
    let said = at_once([Box::new(changes) as Run<String>, Box::new(reads)]);
    assert!(said[1].contains("inside a read of bounded state"), "{said:?}");
}

#[test]
fn two_that_change_what_the_other_one_reads_are_both_refused() {
    let (shares, both) = (Shares::default(), Arc::new(Barrier::new(2)));
    let run = |read: usize| {
        let (shares, both) = (shares.clone(), both.clone());
        Box::new(move || {
            let bounded = sides(&shares).bounded;
            bounded[read].read(|_| {
                both.wait();
                let inside = [(); 2].map(|()| bounded[1 - read].update((0, 1)));
                assert_eq!(inside, [Err(CannotWrite::OutOfOrder); 2]);
            });
            both.wait();
            (bounded[1 - read].update((0, 1)), bounded[1 - read].update((0, 1)))
        }) as Run<(Written, Written)>
    };
    assert_eq!(at_once([run(0), run(1)]), [(Ok(Some(1)), Ok(Some(2))); 2]);
}

/// Two nodes of one worker have a handle each, and must not wait for each other on the same thread.
#[test]
fn a_worker_does_not_wait_for_itself_by_another_handle() {
    alone(|| {
        let shares = Shares::default();
        let (one, other) = (sides(&shares), sides(&shares));
        let inside = one.bounded[0].read(|_| [(); 2].map(|()| other.bounded[0].update((0, 1))));
        assert_eq!(inside, [Err(CannotWrite::OutOfOrder); 2]);
        let inside = one.strict[0].transact(|_| other.strict[0].update_all([(0, 1)], |_| ()));
        assert_eq!(inside, Err(CannotWrite::Reading));
        let inside = one.strict[1].transact(|_| other.strict[0].update_all([(0, 1)], |_| ()));
        assert_eq!(inside, Err(CannotWrite::OutOfOrder));
        // Nothing is open or held any more.
        assert_eq!(other.bounded[0].update((0, 1)), Ok(Some(1)));
        assert_eq!(other.strict[0].update((0, 1)), Ok(Some(1)));
    });
}

#[test]
fn a_read_that_panics_is_no_longer_open() {
    alone(|| {
        let Sides { strict: [counts, _], bounded: [routes, hosts] } = sides(&Shares::default());
        catch_unwind(AssertUnwindSafe(|| routes.read(|_| panic!("in a read")))).unwrap_err();
        assert_eq!((hosts.update((0, 1)), counts.update((0, 1))), (Ok(Some(1)), Ok(Some(1))));
    });
}

/// Checks that calls which delay no other worker stay allowed.
///
/// These are reads inside reads and inside strict state, and changes inside strict state and inside changes.
#[test]
fn calls_that_delay_no_other_worker_are_not_refused() {
    alone(|| {
        let Sides { strict: [counts, sums], bounded: [routes, hosts] } = sides(&Shares::default());
        let read = counts.transact(|_| sums.transact(|_| routes.read(|_| hosts.read(|hosts| hosts.get(0)))));
        assert_eq!(read, Some(0));
        assert_eq!(counts.transact(|_| (routes.update((0, 1)), first(&routes))), (Ok(Some(1)), 1));
        let mut inside = Vec::new();
        let changed = routes.update_all([(0, 1)], |_| {
            inside.push(hosts.update((0, 1)));
            inside.push(counts.update((0, 1)));
        });
        assert_eq!((changed, inside), (Ok(()), vec![Ok(Some(1)); 2]));
    });
}

/// Checks that a read waits for no other worker.
///
/// This includes the read of a worker that has just written, while the earlier published state is still read
/// elsewhere.
#[test]
fn a_writer_reads_without_waiting() {
    let shares = Shares::default();
    let (reading, is_read): (Sender<()>, _) = channel();
    let (written, is_written): (Sender<()>, _) = channel();
    let reader = {
        let shares = shares.clone();
        move || {
            let [routes, _] = sides(&shares).bounded;
            routes.read(|before| {
                reading.send(()).unwrap();
                is_written.recv_timeout(FOR_EVER).expect("the writer waits for this read");
                before.get(0).unwrap()
            })
        }
    };
    let writer = move || {
        let [routes, hosts] = sides(&shares).bounded;
        is_read.recv().unwrap();
        assert_eq!(routes.update((0, 7)), Ok(Some(7)));
        let seen = hosts.read(|_| first(&routes));
        written.send(()).unwrap();
        seen
    };
    assert_eq!(at_once([Box::new(reader) as Run<u64>, Box::new(writer)]), [0, 7]);
}

/// A lookup under one lock, whose function changes state that others read.
#[test]
fn a_lookup_in_strict_state_changes_bounded_state() {
    alone(|| {
        let (pool, shares) = (pool(), Shares::default());
        let worker = worker(&pool).sharing(&shares);
        let mut node = compose(&worker, |input| {
            let flows =
                worker.state::<FlowTable<StoredFlow, u64>, _>("flows", Strict, FlowTableConfig::new(16));
            let routes = worker.state::<CounterArray, _>("routes", BOUNDED, 1);
            input
                .parse::<Link>()
                .parse::<Ip>()
                .lookup(&flows, |p| p.flow_key(), move |_, _| assert!(routes.update((0, 1)).is_ok()))
                .done()
        })
        .unwrap();
        assert_eq!(through(node.as_mut(), &pool, &[frame(1), frame(2), frame(3)]).len(), 3);
        assert_eq!(first(&sides(&shares).bounded[0]), 3);
    });
}

/// Nested calls of a thread on its handles, and whether they were allowed.
struct Nesting {
    sides: Sides,
    dice: u64,
    /// The bounded states that it reads or changes now: a read inside would panic.
    inside: [bool; 2],
    done: [u64; 2],
}

impl Nesting {
    fn throw(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    /// Reads or changes some state, and repeats that inside.
    fn nest(&mut self, depth: u32) {
        if depth == 0 {
            return thread::yield_now();
        }
        let which = self.throw(2) as usize;
        let before = self.inside;
        let outcome = match self.throw(3) {
            0 => {
                let strict = self.sides.strict[which].clone();
                strict.update_all([(0, 1)], |_| self.nest(depth - 1))
            }
            1 => {
                let bounded = self.sides.bounded[which].clone();
                self.inside[which] = true;
                bounded.update_all([(0, 1)], |_| self.nest(depth - 1))
            }
            _ if self.inside[which] => Ok(()),
            _ => {
                let bounded = self.sides.bounded[which].clone();
                self.inside[which] = true;
                bounded.read(|_| self.nest(depth - 1));
                Ok(())
            }
        };
        self.inside = before;
        self.done[usize::from(outcome.is_ok())] += 1;
    }
}

/// Three threads use any of four states, nested up to four deep.
#[test]
fn every_nesting_comes_to_an_end() {
    let shares = Shares::default();
    let runs = (0..3).map(|seed| {
        let shares = shares.clone();
        Box::new(move || {
            let mut nesting = Nesting { sides: sides(&shares), dice: seed, inside: [false; 2], done: [0; 2] };
            for _ in 0..2_000 {
                nesting.nest(4);
            }
            nesting.done
        }) as Run<[u64; 2]>
    });
    for [refused, done] in at_once(runs) {
        assert!(refused > 0 && done > 1_000, "{refused} refused, {done} done");
    }
}

/// A control thread has no batch whose end would publish its change: each change is published alone.
#[test]
fn an_idle_control_thread_keeps_no_worker_from_writing() {
    let shares = Shares::default();
    let state = |shares: &Shares| {
        let bounded = BoundedInconsistency { updates: 1 };
        Worker::new(0, 1, pool()).sharing(shares).state::<CounterArray, _>("seen", bounded, 1)
    };
    let (changed, is_changed) = channel();
    let (seen, is_seen) = channel();
    let control = {
        let shares = shares.clone();
        move || {
            let state = state(&shares);
            assert_eq!(state.update((0, 1)), Ok(Some(1)));
            changed.send(()).unwrap();
            // Idle, and not gone.
            is_seen.recv_timeout(FOR_EVER).expect("the worker has gone on");
            first(&state)
        }
    };
    let worker = move || {
        let state = state(&shares);
        is_changed.recv().unwrap();
        let story = (first(&state), state.update((0, 1)));
        seen.send(()).unwrap();
        assert_eq!(story, (1, Ok(Some(2))));
        first(&state)
    };
    assert_eq!(at_once([Box::new(control) as Run<u64>, Box::new(worker)]), [2, 2]);
}
