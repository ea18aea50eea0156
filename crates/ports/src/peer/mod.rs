//! Parts of the drivers whose other end is another process, which is not trusted.
//!
//! They are the socket that listens for it (`listener`), event descriptors that it shares (`interrupt`, `bells`), and how
//! a port waits for it.

pub(crate) mod bells;
pub(crate) mod interrupt;
pub(crate) mod listener;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netbricks_buffer::Batch;
use netbricks_core::{Context, DropReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::port::Counters;

/// How long a port that is closed waits for its thread.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Waits until a file or `wake` is readable, or for `time`. Answers which of the files are.
pub(crate) fn wait<const N: usize>(files: [BorrowedFd<'_>; N], time: Duration) -> [bool; N] {
    let mut watched = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let time = Timespec::try_from(time).ok();
    // After a signal no file counts as readable, and the caller looks again.
    let _ = poll(&mut watched, time.as_ref());
    watched.map(|file| !file.revents().is_empty())
}

/// Waits for the end of a port's thread, which was told to stop and woken.
///
/// The thread waits for no peer. But the last close of a peer's descriptor may, such as that of a socket that lingers.
pub(crate) fn wait_for_end(thread: JoinHandle<()>) {
    let until = Instant::now() + LONGEST_END;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    if thread.is_finished() {
        // A panic was told already.
        let _ = thread.join();
    }
}

/// Takes packets out of a batch and counts them as sent or as dropped.
#[derive(Debug)]
pub(crate) struct TransmitCounts {
    counters: Arc<Counters>,
    /// Room for the packets that are counted.
    counted: Batch,
}

impl TransmitCounts {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { counters, counted: Batch::new() }
    }

    /// The peer has the first packets of a batch.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize, batch: &mut Batch, cx: &mut Context) {
        batch.take_front(count, &mut self.counted);
        let (packets, bytes) = (self.counted.len() as u64, self.counted.bytes());
        cx.transmitting().sent(packets, bytes);
        Counters::add(&self.counters.sent, packets);
        Counters::add(&self.counters.sent_bytes, bytes);
        self.counted.clear();
    }

    /// Drops the first packets of a batch.
    #[cold]
    pub(crate) fn lose(&mut self, count: usize, reason: DropReason, batch: &mut Batch, cx: &mut Context) {
        batch.take_front(count, &mut self.counted);
        Counters::add_shared(&self.counters.not_sent, self.counted.len() as u64);
        if reason == DropReason::TooBig {
            Counters::add_shared(&self.counters.too_big_to_send, 1);
        }
        cx.drop_batch(&mut self.counted, reason);
    }
}
