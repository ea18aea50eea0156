//! Events: asked for and written only where one end sleeps, and never a reason to wait.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use super::guest::{IN, OUT};
use super::*;
use crate::vhost_user::device::feature;

/// A port that only receives, into a far end.
fn sleeper(name: &str) -> Lab {
    let pool = Pool::builder().frames(2_048).large(64, 69_632).build().unwrap();
    let directory = Directory::new(&format!("vhost-user-{name}"));
    let mut port = open("vhost-user", "socket = \"s\"", &context(&pool, &directory)).unwrap();
    let (mut sink, far) = Memory::new("sink", 1, 4_096, &pool);
    let graph = joined(&mut *port, &mut sink, &pool, 32);
    Lab { graph: Some(graph), port, far, directory, pool }
}

/// The descriptors on which a graph's worker sleeps.
fn bed(lab: &mut Lab) -> Vec<OwnedFd> {
    let graph = lab.graph.as_mut().unwrap();
    assert!(graph.can_sleep());
    let mut files = Vec::new();
    graph.descriptors(&mut |file: BorrowedFd<'_>| files.push(file.try_clone_to_owned().unwrap()));
    files
}

fn wakes(bed: &[OwnedFd], patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        if bed.iter().any(|file| wait([file.as_fd()], Duration::ZERO) == [true]) {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_sleeping_worker_is_woken() {
    for features in [feature::VERSION_1, u64::MAX] {
        let mut lab = sleeper(&format!("sleep-{features:x}"));
        lab.turns();
        let asleep = bed(&mut lab);
        assert_eq!(asleep.len(), 1, "without a guest");
        assert!(!wakes(&asleep, Duration::ZERO));
        let mut guest = Guest::connect(&lab, features);
        assert!(wakes(&asleep, PATIENCE), "for its virtqueue");
        lab.turns();
        for round in 0..5 {
            assert_eq!(guest.flags(OUT), u16::from(features & feature::EVENT_IDX == 0), "it polls");
            let asleep = bed(&mut lab);
            assert_eq!((asleep.len(), guest.flags(OUT)), (2, 0));
            assert!(!wakes(&asleep, Duration::ZERO), "there is nothing");
            guest.send(&frame(round, 60));
            guest.kicks[OUT].write(1).unwrap();
            assert!(wakes(&asleep, PATIENCE), "{round}");
            lab.turns();
            assert!(lab.far.frames(0) == [frame(round, 60)]);
            // What came before the sleep needs no event.
            guest.send(&frame(round, 61));
            assert!(wakes(&bed(&mut lab), Duration::ZERO), "{round}");
            lab.turns();
            assert!(lab.far.frames(0) == [frame(round, 61)]);
        }
        lab.finish();
    }
}

/// How often the event of a virtqueue was written since the last call.
fn count(guest: &Guest, queue: usize) -> u64 {
    guest.calls[queue].read().unwrap_or(0)
}

/// Waits until the events that are on their way were written: the other virtqueue's have their turn in between.
fn settle(guest: &Guest) {
    for _ in 0..5 {
        // A virtqueue that runs is announced to its new event.
        guest.front.set_vring_call(IN, &guest.calls[IN]).unwrap();
        eventually("an event", || count(guest, IN) > 0);
    }
}

#[test]
fn a_guest_is_woken_only_where_it_wants_that() {
    for features in [feature::VERSION_1, u64::MAX] {
        let mut lab = Lab::new(&format!("calls-{features:x}"), "");
        let mut guest = Guest::connect(&lab, features);
        settle(&guest);
        assert!(count(&guest, OUT) > 0, "a new virtqueue is announced");
        for round in 0..6 {
            let wants = round % 2 == 1;
            guest.mask(OUT, !wants);
            guest.want(OUT, if wants { 2 } else { 9 });
            guest.send(&frame(round, 60));
            guest.send(&frame(round, 60));
            lab.turns();
            assert_eq!(guest.used(OUT).len(), 2);
            settle(&guest);
            assert_eq!(count(&guest, OUT), u64::from(wants), "{round} {features:x}");
        }
        lab.finish();
    }
}

/// A guest whose event descriptor blocks holds up neither the worker nor the end of the port.
#[test]
fn an_event_that_blocks_holds_up_nothing() {
    for _ in 0..2 {
        let mut lab = Lab::new("blocks", "");
        let mut guest = Guest::connect(&lab, feature::VERSION_1);
        let blocks = vmm_sys_util::eventfd::EventFd::new(0).unwrap();
        assert!(blocks.as_raw_fd() > 0);
        blocks.write(u64::MAX - 1).unwrap();
        guest.front.set_vring_call(OUT, &blocks).unwrap();
        for number in 0..64 {
            guest.send(&frame(number, 60));
            lab.turns();
            assert!(lab.far.frames(0) == [frame(number, 60)]);
        }
        assert_eq!(guest.used(OUT).len(), 64);
        guest.front.set_vring_enable(IN, false).unwrap();
        lab.finish();
    }
}
