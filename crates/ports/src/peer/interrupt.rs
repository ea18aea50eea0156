//! An event descriptor that a peer shares, to sleep on.
//!
//! The peer can make it block, or fill its counter. It is therefore never read: a poll set of this process watches
//! it for edges, and clearing the set never blocks.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::event::{Timespec, epoll};

use crate::seat::lock;

/// A descriptor that is readable after the peer has written to its event descriptor.
#[derive(Debug)]
pub(crate) struct Interrupt {
    edges: OwnedFd,
    /// Watched for as long as it is here.
    event: Mutex<Option<OwnedFd>>,
}

/// The descriptor, if it is an event descriptor.
///
/// # Errors
/// The reason why it cannot be used: asking any other file may wait for the peer.
pub(crate) fn event_of(file: OwnedFd) -> Result<OwnedFd, String> {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        // No path looks like this: paths begin with a slash.
        Ok(link) if link.as_os_str() == "anon_inode:[eventfd]" => Ok(file),
        Ok(_) => Err("what came with the message is no eventfd(2)".into()),
        Err(error) => Err(format!("its event descriptor cannot be looked at in /proc/self/fd: {error}")),
    }
}

impl Interrupt {
    /// Watches nothing yet.
    pub(crate) fn empty() -> io::Result<Self> {
        Ok(Self { edges: epoll::create(epoll::CreateFlags::CLOEXEC)?, event: Mutex::new(None) })
    }

    /// Watches an event descriptor.
    pub(crate) fn new(event: OwnedFd) -> io::Result<Self> {
        let interrupt = Self::empty()?;
        interrupt.watch(Some(event))?;
        Ok(interrupt)
    }

    /// Watches another event descriptor, or none.
    pub(crate) fn watch(&self, event: Option<OwnedFd>) -> io::Result<()> {
        let mut watched = lock(&self.event);
        if let Some(old) = watched.take() {
            // The peer has it too, so that closing ours would not take it out of the set.
            epoll::delete(&self.edges, &old)?;
        }
        if let Some(event) = event {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&self.edges, &event, epoll::EventData::new_u64(0), flags)?;
            *watched = Some(event);
        }
        Ok(())
    }

    /// Is not readable any more until the peer writes again.
    pub(crate) fn clear(&self) {
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
