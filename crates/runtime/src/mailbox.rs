//! The way to a worker: commands that it reads between batches, and a bell that wakes it.
//!
//! A busy worker checks one relaxed flag a round. A sleeping one has the bell among its descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};

use crate::worker::Worker;

/// A call that a worker runs between two batches.
pub(crate) type Command = Box<dyn FnOnce(&mut Worker) + Send>;

/// Whether a command was begun, or withdrawn before.
#[derive(Debug, Default)]
pub(crate) struct Claim(AtomicU8);

impl Claim {
    const WAITS: u8 = 0;
    const BEGUN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    fn pass_to(&self, state: u8) -> bool {
        self.0.compare_exchange(Self::WAITS, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Lets the worker begin. Answers `false` where the command was withdrawn.
    pub(crate) fn begin(&self) -> bool {
        self.pass_to(Self::BEGUN)
    }
    /// Takes the command back. Answers `false` where the worker has begun it.
    pub(crate) fn withdraw(&self) -> bool {
        self.pass_to(Self::WITHDRAWN)
    }
    /// Whether the worker has begun it.
    pub(crate) fn is_begun(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::BEGUN
    }
}

/// Tells a worker that a command waits for it.
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
    /// Wakes the worker, or lets it see the flag in its next round.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        // The only failure is a full counter. It is readable then, which suffices.
        let _full = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
    /// Whether it rang; one relaxed load.
    #[inline(always)]
    pub(crate) fn rang(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }
    /// Stops the ringing. Commands that were sent before the ring can be read after this call.
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
    /// Begins to read. Commands that arrive from now on ring the bell again.
    pub(crate) fn open(&self) {
        self.bell.silence();
    }
    /// The oldest command that was not read.
    pub(crate) fn next(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }
}

/// The control side's end.
#[derive(Clone, Debug)]
pub(crate) struct Letterbox {
    commands: Sender<Command>,
    pub(crate) bell: Arc<Bell>,
}

impl Letterbox {
    /// Hands in a command. Answers `false` when the worker has ended.
    pub(crate) fn post(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.bell.ring();
        sent
    }
}

/// A mailbox and its letterbox.
pub(crate) fn mailbox() -> std::io::Result<(Letterbox, Mailbox)> {
    let bell = Arc::new(Bell::new()?);
    let (sender, receiver) = channel();
    Ok((Letterbox { commands: sender, bell: bell.clone() }, Mailbox { commands: receiver, bell }))
}
