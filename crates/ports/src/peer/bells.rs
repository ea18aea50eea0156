//! The events that wake a peer, written by a thread of their own.
//!
//! The peer shares its event descriptors: it can make them block, and fill their counters. A write may then wait
//! for as long as the peer likes, so no worker does it, and no other thread waits for the one that does.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, Thread};

use rustix::io::ReadWriteFlags;

use crate::seat::lock;

/// The threads of a port that have not ended, before the port takes no more peers.
const MOST_THREADS: usize = 8;

/// One connection's event descriptors.
#[derive(Debug)]
pub(crate) struct Bells {
    state: Arc<State>,
    thread: Thread,
}

#[derive(Debug)]
struct State {
    events: Vec<Mutex<Option<Arc<OwnedFd>>>>,
    /// The descriptor that is written to now: the peer may have replaced it.
    writing: Mutex<Option<Arc<OwnedFd>>>,
    rung: Vec<AtomicBool>,
    stop: AtomicBool,
}

/// The threads of a port that write to peers' event descriptors.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<Vec<Writer>>);

#[derive(Debug)]
struct Writer {
    state: Arc<State>,
    thread: JoinHandle<()>,
}

impl Writers {
    /// Has all threads end, since their connections have ended.
    pub(crate) fn stop(&self) {
        for writer in &*lock(&self.0) {
            writer.state.stop();
            writer.thread.thread().unpark();
        }
    }
}

impl Writer {
    /// Frees a thread of an ended connection that waits for the peer. Answers whether it has not ended yet.
    fn is_alive(&self) -> bool {
        if self.state.stop.load(Ordering::Acquire) {
            let writing = lock(&self.state.writing).clone();
            if let Some(event) = writing {
                // With this flag it never waits, also where the peer has made the descriptor block.
                let mut counter = [0; 8];
                let _ = rustix::io::preadv2(
                    &*event,
                    &mut [IoSliceMut::new(&mut counter)],
                    u64::MAX,
                    ReadWriteFlags::NOWAIT,
                );
            }
        }
        !self.thread.is_finished()
    }
}

impl Bells {
    /// Starts a thread, one of the port's, that writes to `events`.
    ///
    /// An event that is not there yet is not written to.
    ///
    /// # Errors
    /// If the system has no more threads, or too many wait for peers already.
    pub(crate) fn start(
        port: &str,
        events: Vec<Option<OwnedFd>>,
        writers: &Writers,
    ) -> io::Result<Arc<Self>> {
        let mut writers = lock(&writers.0);
        writers.retain(Writer::is_alive);
        if writers.len() >= MOST_THREADS {
            return Err(io::Error::other(format!(
                "{MOST_THREADS} earlier peers hold up the threads that would wake them: end those processes"
            )));
        }
        let rung = events.iter().map(|_| AtomicBool::new(false)).collect();
        let events = events.into_iter().map(|event| Mutex::new(event.map(Arc::new))).collect();
        let (writing, stop) = (Mutex::new(None), AtomicBool::new(false));
        let state = Arc::new(State { events, writing, rung, stop });
        let of_thread = Arc::clone(&state);
        let thread = Builder::new().name(format!("{port} bells")).spawn(move || of_thread.write())?;
        let bells = Arc::new(Self { state: Arc::clone(&state), thread: thread.thread().clone() });
        writers.push(Writer { state, thread });
        Ok(bells)
    }

    /// Replaces the event of a ring.
    pub(crate) fn set(&self, number: usize, event: Option<OwnedFd>) {
        if let Some(place) = self.state.events.get(number) {
            *lock(place) = event.map(Arc::new);
        }
    }

    /// Has the event of a ring written. Makes a system call only if the thread sleeps.
    #[inline]
    pub(crate) fn ring(&self, number: usize) {
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
        self.state.stop();
        self.thread.unpark();
    }
}

impl State {
    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
    fn write(&self) {
        while !self.stop.load(Ordering::Acquire) {
            for (event, rung) in self.events.iter().zip(&self.rung) {
                if !rung.swap(false, Ordering::AcqRel) {
                    continue;
                }
                let event = lock(event).clone();
                lock(&self.writing).clone_from(&event);
                if let Some(event) = event {
                    // It fails only if the counter is full, and then the descriptor is readable.
                    let _ = rustix::io::write(&*event, &1_u64.to_ne_bytes());
                }
                *lock(&self.writing) = None;
            }
            if self.rung.iter().all(|rung| !rung.load(Ordering::Acquire)) {
                std::thread::park();
            }
        }
    }
}
