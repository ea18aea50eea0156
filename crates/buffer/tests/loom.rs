//! The ring's queue under loom.
//!
//! Loom finds two threads at one place, items that are lost or doubled, and items that are never dropped. It runs every
//! order of the atomic operations that its memory model has. Where a test names a number of preemptions, it runs every
//! order with no more interruptions of a thread than that, since all orders are too many.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p netbricks-buffer --test loom`

#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use netbricks_buffer::queue::queue;

/// Sends `items` in pieces of up to `piece` through `size` places; the receiver checks their order.
fn through(size: usize, piece: usize, items: usize, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let (mut sender, mut receiver) = queue::<Box<usize>>(size);
        let sending = thread::spawn(move || {
            let mut next = 0;
            while next < items {
                let mut places = sender.write(piece.min(items - next));
                let room = places.room();
                for _ in 0..room {
                    places.put(Box::new(next)).unwrap();
                    next += 1;
                }
                drop(places);
                if room == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while !receiver.is_closed() {
            let mut got = 0;
            for item in receiver.read(piece) {
                assert_eq!(*item, expected);
                expected += 1;
                got += 1;
            }
            if got == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(expected, items);
        sending.join().unwrap();
    });
}

#[test]
fn items_come_out_once_and_in_order() {
    through(2, 1, 3, Some(4));
}

#[test]
fn pieces_wrap_around_the_end() {
    through(2, 2, 4, None);
}

/// Either end may go first while items are inside; loom reports an `Arc` that is still alive at the end.
#[test]
fn items_left_inside_are_dropped() {
    loom::model(|| {
        let (mut sender, mut receiver) = queue::<Arc<usize>>(2);
        let sending = thread::spawn(move || {
            let mut places = sender.write(2);
            while places.room() > 0 {
                places.put(Arc::new(places.room())).unwrap();
            }
        });
        let first = receiver.read(1).next();
        assert!(first.is_none_or(|item| *item == 2));
        drop(receiver);
        sending.join().unwrap();
    });
}

/// A closed queue that nothing waits in has given out all that its sender ever wrote.
#[test]
fn closed_means_that_nothing_follows() {
    loom::model(|| {
        let (mut sender, mut receiver) = queue::<usize>(2);
        let sending = thread::spawn(move || assert!(sender.write(1).put(7).is_ok()));
        let before = receiver.read(2).count();
        let closed = receiver.is_closed();
        let after = receiver.read(2).count();
        if closed {
            assert_eq!((before + after, after), (1, 0));
        }
        sending.join().unwrap();
    });
}
