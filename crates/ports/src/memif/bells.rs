//! The events that wake a peer, written by a thread of their own.
//!
//! The peer shares its event descriptors: it can make them block, and fill their counters. A write may then wait
//! for as long as the peer likes, so no worker does it, and no other thread waits for the one that does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Thread};

/// The threads of a port that may wait for peers that have gone, before the port takes no more peers.
const MOST_THREADS: usize = 8;

/// One connection's event descriptors.
#[derive(Debug)]
pub(super) struct Bells {
    state: Arc<State>,
    thread: Thread,
}

#[derive(Debug)]
struct State {
    rung: Vec<AtomicBool>,
    stop: AtomicBool,
}

/// A thread that has not ended.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Bells {
    /// Starts a thread, one of the `alive` ones of the port, that writes to `events`.
    ///
    /// # Errors
    /// If the system has no more threads, or too many wait for peers already.
    pub(super) fn start(port: &str, events: Vec<OwnedFd>, alive: &Arc<AtomicUsize>) -> io::Result<Arc<Self>> {
        if alive.load(Ordering::Acquire) >= MOST_THREADS {
            return Err(io::Error::other(format!(
                "{MOST_THREADS} earlier peers hold up the threads that would wake them: end those processes"
            )));
        }
        alive.fetch_add(1, Ordering::AcqRel);
        let counted = Alive(Arc::clone(alive));
        let rung = events.iter().map(|_| AtomicBool::new(false)).collect();
        let state = Arc::new(State { rung, stop: AtomicBool::new(false) });
        let thread = {
            let state = Arc::clone(&state);
            Builder::new().name(format!("{port} bells")).spawn(move || {
                let _counted = counted;
                state.write(&events);
            })?
        };
        Ok(Arc::new(Self { state, thread: thread.thread().clone() }))
    }

    /// Has the event of a ring written. Makes a system call only if the thread sleeps.
    #[inline]
    pub(super) fn ring(&self, number: usize) {
        if let Some(rung) = self.state.rung.get(number)
            && !rung.swap(true, Ordering::AcqRel)
        {
            self.thread.unpark();
        }
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        // Not joined: it may wait for the peer.
        self.state.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl State {
    fn write(&self, events: &[OwnedFd]) {
        while !self.stop.load(Ordering::Acquire) {
            for (event, rung) in events.iter().zip(&self.rung) {
                if rung.swap(false, Ordering::AcqRel) {
                    // It fails only if the counter is full, and then the descriptor is readable.
                    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
                }
            }
            if self.rung.iter().all(|rung| !rung.load(Ordering::Acquire)) {
                std::thread::park();
            }
        }
    }
}
