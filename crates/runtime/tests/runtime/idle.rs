//! Idle workers sleep where they may, wake for every cause, and spin only where they were configured to.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netbricks_runtime::{Clock, Config, Factory, IdlePolicy, Runtime};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::nodes::{Counting, PipeSource, Sink, chain, config, pool};

struct Piped {
    runtime: Runtime,
    pipe: OwnedFd,
    polls: Arc<AtomicU64>,
}

fn piped(config: Config, watched: bool) -> Piped {
    with_other(config, watched, None)
}

fn with_other(config: Config, watched: bool, other: Option<OwnedFd>) -> Piped {
    let (read, pipe) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    let mut read = Some((read, polls.clone(), other));
    let runtime = Runtime::start(config, |_| {
        let (pipe, polls, other) = read.take().unwrap();
        Factory::new(move |context| {
            chain(
                "g",
                vec![
                    ("in", Box::new(PipeSource { pipe, polls, watched, other })),
                    ("count", Box::new(Counting::new())),
                    ("out", Box::new(Sink)),
                ],
            )?
            .build(context.pool().clone())
        })
    })
    .unwrap();
    Piped { runtime, pipe, polls }
}

/// A worker that watched only the first descriptor would sleep for ever.
#[test]
fn a_sleeping_worker_wakes_for_each_of_a_nodes_descriptors() {
    let (read, other) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let config = config(pool(), 1).clock(Clock::real()).idle(IdlePolicy::Quiet);
    let Piped { runtime, pipe, polls } = with_other(config, true, Some(read));
    for (number, from) in (1..).zip([&other, &pipe, &other]) {
        // It sleeps: the node is not polled any more.
        let mut before = u64::MAX;
        while std::mem::replace(&mut before, polls.load(Ordering::Relaxed)) != before {
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix::io::write(from, &[7; 20]).unwrap();
        // The test does not call the worker, since a call would wake it.
        let late = Instant::now() + Duration::from_secs(120);
        while runtime.progress().sent.packets < number * 20 {
            assert!(Instant::now() < late, "packets that wait in a pipe wake no worker");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let report = runtime.stop();
    assert_eq!(report.totals.sent.packets, 60);
    assert!(report.conserved && report.pool_whole);
}

#[test]
fn a_sleeping_worker_answers_and_does_nothing_unasked() {
    let Piped { runtime, pipe, polls } = piped(config(pool(), 1).clock(Clock::real()), true);
    let calls = 50;
    for _ in 0..calls {
        assert_eq!(runtime.control().call(0, "g", "count", "seen", "").unwrap(), "0");
    }
    let snapshot = runtime.snapshot().unwrap();
    assert!(snapshot.workers[0].sleeps >= 1);
    // A call wakes it at most twice (the bell may be seen as a flag and as a descriptor), each time for one
    // poll of the source.
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 2 * calls + 10, "{polls} polls for {calls} calls");

    rustix::io::write(&pipe, &[7; 20]).unwrap();
    while runtime.control().call(0, "g", "count", "seen", "").unwrap() != "20" {}
    let report = runtime.stop();
    assert_eq!(report.totals.sent.packets, 20);
    assert!(report.conserved && report.pool_whole);
}

#[test]
fn packets_alone_wake_a_quiet_worker() {
    let Piped { runtime, pipe, polls } = piped(config(pool(), 1).clock(Clock::real()), true);
    for sent in 1..=50u64 {
        rustix::io::write(&pipe, &[7]).unwrap();
        while runtime.progress().sent.packets < sent {
            std::thread::yield_now();
        }
    }
    // One poll finds the packet, one finds nothing, and then it sleeps. A few more happen where it was caught
    // in between.
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 50 * 70, "{polls} polls for 50 packets");
    assert!(runtime.stop().workers[0].sleeps >= 10);
}

#[test]
fn a_quiet_worker_without_descriptors_polls_seldom() {
    let Piped { runtime, polls, .. } = piped(config(pool(), 1).clock(Clock::real()), false);
    // Progress is read without a question to the worker.
    while runtime.progress().sleeps < 100 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let report = runtime.stop();
    let (polls, sleeps) = (polls.load(Ordering::Relaxed), report.workers[0].sleeps);
    // It sleeps for 4 ms at a time; the first sleeps are shorter, and one ends with the run.
    assert!(sleeps as f64 <= report.seconds / 4e-3 + 10.0, "{sleeps} sleeps in {} s", report.seconds);
    assert!(polls <= 2 * sleeps + 10, "{polls} polls in {sleeps} sleeps");
}

#[test]
fn a_descriptor_in_error_does_not_make_a_quiet_worker_spin() {
    let Piped { runtime, pipe, polls } = piped(config(pool(), 1).clock(Clock::real()), true);
    // The read end is at its end of file from now on: always readable, and never with a packet.
    drop(pipe);
    while runtime.snapshot().unwrap().workers[0].sleeps < 40 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let sleeps = runtime.stop().workers[0].sleeps;
    let polls = polls.load(Ordering::Relaxed);
    // One poll a sleep: it never runs on without one.
    assert!(polls <= 2 * sleeps + 10, "{polls} polls in {sleeps} sleeps");
}

#[test]
fn latency_never_sleeps_and_balanced_does() {
    for (policy, sleeps) in [(IdlePolicy::Latency, false), (IdlePolicy::Balanced, true)] {
        let Piped { runtime, pipe, polls } = piped(config(pool(), 1).clock(Clock::real()).idle(policy), true);
        while polls.load(Ordering::Relaxed) < 1_000 {
            std::thread::yield_now();
        }
        rustix::io::write(&pipe, &[7; 5]).unwrap();
        while runtime.progress().sent.packets < 5 {
            std::thread::yield_now();
        }
        let report = runtime.stop();
        assert_eq!(report.workers[0].sleeps > 0, sleeps, "{policy:?}");
        assert!(report.conserved && report.pool_whole);
    }
}
