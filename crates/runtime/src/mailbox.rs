//! How the control side reaches a worker: commands that it reads between batches, and a bell that wakes it.
//!
//! A busy worker looks at one relaxed flag a round; a sleeping one has the bell among its descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};

use crate::worker::Worker;

/// What a worker is to do between two batches.
pub(crate) type Command = Box<dyn FnOnce(&mut Worker) + Send>;

/// Tells a worker that something waits for it.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { rung: AtomicBool::new(false), event })
    }
    /// Wakes the worker, or lets it know on its next round.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        // The only failure is a counter that is full: then it is readable, which is all that is wanted.
        let _full = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
    /// Whether it rang; one relaxed load.
    #[inline(always)]
    pub(crate) fn rang(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }
    /// Stops the ringing. What was sent before the ring is there to be read after this call.
    fn silence(&self) {
        self.rung.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        let _empty = rustix::io::read(&self.event, &mut count);
        // Pairs with the release in `ring`.
        std::sync::atomic::fence(Ordering::Acquire);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The worker's end.
pub(crate) struct Mailbox {
    commands: Receiver<Command>,
    pub(crate) bell: Arc<Bell>,
}

impl Mailbox {
    /// What arrived, oldest first.
    pub(crate) fn take(&self) -> impl Iterator<Item = Command> + '_ {
        self.bell.silence();
        self.commands.try_iter()
    }
}

/// The control side's end.
#[derive(Clone, Debug)]
pub(crate) struct Letterbox {
    commands: Sender<Command>,
    pub(crate) bell: Arc<Bell>,
}

impl Letterbox {
    /// Hands a command in; `false` when the worker has ended.
    pub(crate) fn post(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.bell.ring();
        sent
    }
}

/// A mailbox and the way into it.
pub(crate) fn mailbox() -> std::io::Result<(Letterbox, Mailbox)> {
    let bell = Arc::new(Bell::new()?);
    let (sender, receiver) = channel();
    Ok((Letterbox { commands: sender, bell: bell.clone() }, Mailbox { commands: receiver, bell }))
}
