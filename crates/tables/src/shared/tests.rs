use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;

/// Every change's number, at many places: a reader that sees two of them sees half of a change.
struct Pages([u64; 64]);

impl Changing for Pages {
    type Change = u64;
    type Outcome = u64;
    fn apply(&mut self, change: &u64) -> u64 {
        if *change == PANIC {
            self.0[0] = 999;
            panic!("half done");
        }
        self.0.iter_mut().for_each(|page| *page += change);
        self.0[0]
    }
}

const PANIC: u64 = u64::MAX;

fn pages() -> Pages {
    Pages([0; 64])
}

fn whole(pages: &Pages) -> u64 {
    assert!(pages.0.iter().all(|page| *page == pages.0[0]), "half of a change: {:?}", pages.0);
    pages.0[0]
}

/// Repeats the model checker's checks of a few steps, for many steps and with real memory.
fn stress(updates: usize, changes: u64) {
    let (mut writer, publication) = replicated(updates, pages);
    let (returned, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (start, reads) = (Arc::new(Barrier::new(4)), Arc::new(AtomicU64::new(0)));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (publication, returned, done) = (publication.clone(), returned.clone(), done.clone());
            let (start, reads) = (start.clone(), reads.clone());
            thread::spawn(move || {
                let reader = publication.reader().expect("there is room for a reader");
                let mut last = 0;
                start.wait();
                while !done.load(Ordering::Acquire) {
                    let returned = returned.load(Ordering::Acquire);
                    let seen = reader.read(whole);
                    assert!(
                        seen >= last && seen + updates as u64 >= returned,
                        "{last}, {seen} of {returned}"
                    );
                    last = seen;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(reader.read(whole), changes);
            })
        })
        .collect();
    start.wait();
    for change in 1..=changes {
        assert_eq!(writer.update(1), change);
        assert!(writer.unpublished() <= updates);
        returned.store(change, Ordering::Release);
        // On a busy machine all changes could be over before anybody reads.
        let waits = || reads.load(Ordering::Relaxed) == 0 && !readers.iter().all(JoinHandle::is_finished);
        while change == changes / 2 && waits() {
            thread::yield_now();
        }
    }
    writer.publish();
    done.store(true, Ordering::Release);
    for reader in readers {
        reader.join().expect("no reader panics");
    }
}

#[test]
fn readers_miss_no_more_than_agreed() {
    stress(0, 20_000);
    stress(1, 20_000);
    stress(64, 100_000);
}

#[test]
fn an_idle_or_leaving_writer_publishes_its_changes() {
    let (mut writer, publication) = replicated(10, pages);
    let reader = publication.reader().expect("there is room for a reader");
    writer.update(5);
    assert_eq!((reader.read(whole), writer.unpublished(), reader.published()), (0, 1, 0));
    writer.publish();
    assert_eq!((reader.read(whole), writer.unpublished(), reader.published()), (5, 0, 1));
    writer.update(7);
    assert_eq!((reader.read(whole), writer.read(whole)), (5, 12));
    drop(writer);
    assert_eq!((reader.read(whole), reader.published()), (12, 2));
}

#[test]
fn a_read_inside_a_read_keeps_the_writer_off_until_the_outer_one_ends() {
    let (mut writer, publication) = replicated(0, pages);
    let reader = publication.reader().expect("there is room for a reader");
    reader.read(|outer| {
        writer.update(1); // to the side without readers, and published
        assert_eq!((whole(outer), reader.read(whole)), (0, 1));
        assert!(reader.is_reading());
    });
    assert!(!reader.is_reading());
    writer.update(1);
    assert_eq!(reader.read(whole), 2);
}

/// The other side is still read elsewhere; what was published is as new as what would be ours after that.
#[test]
fn a_writer_reads_without_waiting_for_readers() {
    let (mut writer, publication) = replicated(1, pages);
    let reader = publication.reader().expect("there is room for a reader");
    let (done, is_done) = mpsc::channel();
    reader.read(|outer| {
        thread::spawn(move || {
            writer.update_all([1, 2], |_| ()); // published
            let published = writer.read(whole);
            done.send((published, writer)).expect("the receiver waits for it");
        });
        let (published, mut writer) =
            is_done.recv_timeout(Duration::from_secs(10)).expect("the writer waits for a read");
        assert_eq!((whole(outer), published, reader.read(whole)), (0, 3, 3));
        assert_eq!((writer.read(whole), writer.unpublished()), (3, 0));
        drop(writer);
    });
}

#[test]
fn a_writer_reads_what_it_has_not_published_yet() {
    let (mut writer, publication) = replicated(1, pages);
    let reader = publication.reader().expect("there is room for a reader");
    for change in 1..=6 {
        writer.update(1);
        assert_eq!((writer.read(whole), reader.read(whole)), (change, change / 2 * 2));
    }
    // After a panic the state starts again with the next change, without changes that were half-done or not
    // yet published. Until then the writer sees the published state, as readers do.
    writer.update(1);
    catch_unwind(AssertUnwindSafe(|| writer.update(PANIC))).unwrap_err();
    assert_eq!((writer.read(whole), reader.read(whole)), (6, 6));
    assert_eq!((writer.update(1), writer.read(whole)), (1, 1));
}

#[test]
fn a_read_that_panics_leaves() {
    let (mut writer, publication) = replicated(0, pages);
    let reader = publication.reader().expect("there is room for a reader");
    catch_unwind(AssertUnwindSafe(|| reader.read(|_| panic!("in a read")))).unwrap_err();
    for _ in 0..10 {
        writer.update(1);
    }
    assert_eq!(reader.read(whole), 10);
}

#[test]
fn a_change_that_panics_is_never_seen_and_resets_the_state() {
    let (mut writer, publication) = replicated(0, pages);
    let reader = publication.reader().expect("there is room for a reader");
    writer.update(3);
    catch_unwind(AssertUnwindSafe(|| writer.update(PANIC))).unwrap_err();
    writer.publish();
    assert_eq!(reader.read(whole), 3);
    assert_eq!(writer.update(4), 4);
    assert_eq!((reader.read(whole), writer.update(1)), (4, 5));
    assert_eq!(reader.read(whole), 5);
}

/// This holds where the change, the source of changes or `outcome` panics, also while a drop publishes.
#[test]
fn half_of_several_changes_is_never_published() {
    fn panicking(writer: &mut Writer<Pages>, which: usize) {
        match which {
            0 => writer.update_all([1, PANIC], |_| ()),
            1 => writer.update_all([1, 2].into_iter().inspect(|change| assert!(*change < 2)), |_| ()),
            _ => writer.update_all([1, 2], |value| assert!(value > 4, "the first of two")),
        }
    }
    for which in 0..3 {
        for leaves in [false, true] {
            let (mut writer, publication) = replicated(10, pages);
            let reader = publication.reader().expect("there is room for a reader");
            writer.update(3);
            writer.publish();
            catch_unwind(AssertUnwindSafe(|| panicking(&mut writer, which))).unwrap_err();
            if leaves {
                drop(writer);
                assert_eq!(reader.read(whole), 3, "panic {which}");
                continue;
            }
            writer.publish();
            assert_eq!(reader.read(whole), 3, "panic {which}");
            writer.update_all([], |_| ());
            writer.publish();
            assert_eq!(reader.read(whole), 3, "panic {which}");
            writer.update_all([4, 5], |_| ());
            writer.publish();
            assert_eq!((reader.read(whole), writer.read(whole)), (9, 9), "panic {which}");
        }
    }
}

#[test]
fn readers_are_counted_and_their_places_used_again() {
    let (_writer, publication) = replicated(0, pages);
    let readers: Vec<_> = (0..MAXIMUM_READERS).map(|_| publication.reader().unwrap()).collect();
    assert_eq!(publication.reader().map(|_| ()), Err(NoReaderLeft));
    drop(readers);
    assert!(publication.reader().is_ok());
}

#[test]
fn a_holder_that_panics_leaves_nothing_half_done() {
    let locked = Locked::new(|| [1, 2]);
    locked.hold(|state| state[0] = 5);
    catch_unwind(AssertUnwindSafe(|| {
        locked.hold(|state| {
            state[1] = 9;
            panic!("in a hold");
        })
    }))
    .unwrap_err();
    // The holder asks how often the state was made again. It used to wait for itself.
    assert_eq!(locked.hold(|state| (*state, locked.remade())), ([1, 2], 1));
}
