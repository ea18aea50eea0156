//! Parts of the drivers whose other end is another process, which is not trusted.
//!
//! They are the socket that listens for it (`listener`), event descriptors that it shares (`interrupt`, `bells`), and how
//! a port waits for it.

pub(crate) mod bells;
pub(crate) mod interrupt;
pub(crate) mod listener;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until a file or `wake` is readable, or for `time`. Answers which of the files are.
pub(crate) fn wait<const N: usize>(files: [BorrowedFd<'_>; N], time: Duration) -> [bool; N] {
    let mut watched = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let time = Timespec::try_from(time).ok();
    // After a signal no file counts as readable, and the caller looks again.
    let _ = poll(&mut watched, time.as_ref());
    watched.map(|file| !file.revents().is_empty())
}
