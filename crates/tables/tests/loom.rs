//! Replicated and locked state under loom.
//!
//! Loom finds a writer on a side that is read, reads that miss more than they may, and halves of changes. It runs every
//! order of the atomic operations that its memory model has. Through `preempted` it runs every order in which threads
//! are interrupted at most four times, since all orders are too many.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p netbricks-tables --test loom`

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use netbricks_tables::{Changing, Locked, replicated};

/// The number of changes, twice: a reader that sees two numbers sees half of a change.
#[derive(Default)]
struct Twice(u64, u64);

impl Changing for Twice {
    type Change = u64;
    type Outcome = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.0 += by;
        self.1 += by;
        self.0
    }
}

/// Checks the orders with at most four preemptions.
fn preempted(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(check);
}

/// `changes` updates of which readers may miss `updates`, beside `reads` reads.
fn bounded(updates: usize, changes: u64, reads: usize) {
    preempted(move || {
        let (mut writer, publication) = replicated(updates, Twice::default);
        let returned = Arc::new(AtomicU64::new(0));
        let reader = publication.reader().unwrap();
        let writing = {
            let returned = returned.clone();
            thread::spawn(move || {
                for change in 1..=changes {
                    assert_eq!(writer.update(1), change);
                    returned.store(change, Ordering::Release);
                }
                writer.publish();
                returned.store(changes + updates as u64, Ordering::Release);
                writer
            })
        };
        let mut last = 0;
        for _ in 0..reads {
            let returned = returned.load(Ordering::Acquire);
            let published = reader.published();
            let (one, other) = reader.read(|state| (state.0, state.1));
            assert_eq!(one, other);
            assert!(one >= last, "time goes back: {one} after {last}");
            assert!(one + updates as u64 >= returned, "{one} of {returned}");
            assert!(one >= published && published + updates as u64 >= returned, "{published}, {one}");
            last = one;
        }
        let writer = writing.join().unwrap();
        assert_eq!(reader.read(|state| state.0), changes);
        drop(writer);
    });
}

#[test]
fn reads_see_every_update_that_returned() {
    bounded(0, 3, 2);
}

#[test]
fn reads_miss_one_update_at_most() {
    bounded(1, 4, 2);
}

#[test]
fn two_readers_hold_the_writer_off() {
    preempted(|| {
        let (mut writer, publication) = replicated(0, Twice::default);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = publication.reader().unwrap();
                thread::spawn(move || {
                    let (one, other) = reader.read(|state| (state.0, state.1));
                    assert_eq!(one, other);
                })
            })
            .collect();
        writer.update(1);
        writer.update(1);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn readers_see_all_of_a_group_or_nothing() {
    loom::model(|| {
        let (mut writer, publication) = replicated(0, Twice::default);
        let reader = publication.reader().unwrap();
        let writing = thread::spawn(move || {
            writer.update_all([1, 2], |_| ());
            writer.update_all([4, 8], |_| ());
        });
        let seen = reader.read(|state| state.0);
        assert!([0, 3, 15].contains(&seen), "{seen}");
        writing.join().unwrap();
        assert_eq!(reader.read(|state| state.0), 15);
    });
}

/// A reader's place goes to the next one, whose reads are seen as well.
#[test]
fn a_place_is_used_again() {
    loom::model(|| {
        let (mut writer, publication) = replicated(0, Twice::default);
        let reading = {
            let publication = publication.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let reader = publication.reader().unwrap();
                    let (one, other) = reader.read(|state| (state.0, state.1));
                    assert_eq!(one, other);
                }
            })
        };
        writer.update(1);
        writer.update(1);
        reading.join().unwrap();
    });
}

/// Money goes from account to account; what one thread counts is never more or less than there is.
#[test]
fn holds_of_a_lock_are_one_step_each() {
    loom::model(|| {
        let accounts = Arc::new(Locked::new(|| [10u64, 0]));
        let moving: Vec<_> = (0..2)
            .map(|_| {
                let accounts = accounts.clone();
                thread::spawn(move || {
                    accounts.hold(|[from, to]| {
                        *from -= 1;
                        *to += 1;
                    });
                })
            })
            .collect();
        let [from, to] = accounts.hold(|accounts| *accounts);
        assert_eq!(from + to, 10);
        for moving in moving {
            moving.join().unwrap();
        }
        assert_eq!(accounts.hold(|accounts| *accounts), [8, 2]);
    });
}
