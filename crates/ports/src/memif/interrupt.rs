//! An event descriptor that a peer shares, to sleep on.
//!
//! The peer can make it block, or fill its counter. It is therefore never read: a poll set of this process watches
//! it for edges, and clearing the set never blocks.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

/// A descriptor that is readable after the peer has written to its event descriptor.
#[derive(Debug)]
pub(super) struct Interrupt {
    edges: OwnedFd,
    /// Watched for as long as it is open.
    _event: OwnedFd,
}

/// Whether a descriptor is an event descriptor. Asking any other file may wait for the peer.
pub(super) fn is_event(file: BorrowedFd<'_>) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // No path looks like this: paths begin with a slash.
    Ok(link.as_os_str() == "anon_inode:[eventfd]")
}

impl Interrupt {
    /// Watches an event descriptor.
    pub(super) fn new(event: OwnedFd) -> io::Result<Self> {
        let edges = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&edges, &event, epoll::EventData::new_u64(0), flags)?;
        Ok(Self { edges, _event: event })
    }

    /// Is not readable any more until the peer writes again.
    pub(super) fn clear(&self) {
        let mut events = [MaybeUninit::uninit(); 1];
        // It can only fail because there is nothing to clear.
        let _ = epoll::wait(&self.edges, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.edges.as_fd()
    }
}
