//! The state that the workers of one function share: the directory, rings between workers, and bells that wake sleepers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netbricks_core::buffer::Packet;
use netbricks_core::buffer::queue::{Receiver, Sender, queue};
use netbricks_core::{BuildError, Worker};
use rustix::event::{EventfdFlags, eventfd};

use super::InstancesSettings;
use super::directory::{Change, Directory};

/// Packets that a ring between two workers holds at most.
const RING: usize = 1_024;
/// Packets that the rings from one worker to all others hold together, where these are many.
const RINGS: usize = 16 * RING;

/// A packet on its way to a port of another worker.
pub(super) struct Crossing {
    pub packet: Packet,
    /// The port that it came from.
    pub from: usize,
    pub to: usize,
    /// Which port of this number it is for: another may have got it meanwhile.
    pub generation: u64,
}

/// A worker's ends of the rings, by the other worker's number; there is none to itself.
pub(super) struct Ends {
    pub out: Vec<Option<Sender<Crossing>>>,
    pub into: Vec<Option<Receiver<Crossing>>>,
}

/// The state of a worker that others see.
#[repr(align(128))]
struct Member {
    /// Packets come only from other workers any more.
    closing: AtomicBool,
    /// It has nothing left to do, and nothing that it sent is on its way.
    quiet: AtomicBool,
    /// Its node is gone: nothing waits for it.
    gone: AtomicBool,
    /// It may sleep until its bell rings.
    sleeps: AtomicBool,
    bell: Option<OwnedFd>,
}

pub(super) struct Shared {
    pub workers: usize,
    /// Packets that a ring holds.
    pub ring: usize,
    directory: Mutex<Directory>,
    /// Counts changes of the directory.
    version: AtomicU64,
    ends: Mutex<Vec<Option<Ends>>>,
    members: Vec<Member>,
}

impl Shared {
    /// The shared state of the workers of a group, with the instances that a file declares.
    ///
    /// # Errors
    /// Two declared instances have the same MAC address, one is on a worker that does not exist, there are too many,
    /// or a file has changed since it was checked. The system may have no descriptor.
    pub(super) fn new(settings: &InstancesSettings, worker: &Worker) -> Result<Self, BuildError> {
        let workers = worker.group().workers();
        let mut directory = Directory::new(workers, settings.most, &settings.devices, settings.learning);
        for (name, one) in &settings.instance {
            let refused = |problem: String| BuildError::new(format_args!("instance `{name}`: {problem}"));
            let (mut creation, awaited) = one.declared(name).map_err(refused)?;
            // How many workers there will be is not known yet.
            creation.worker = creation.worker.filter(|_| !worker.is_on_trial());
            directory.create(creation, awaited).map_err(refused)?;
        }
        let ring = (RINGS / workers).clamp(RING / 8, RING);
        let exchanges = workers > 1 && !worker.is_control();
        let members = (0..workers).map(|_| Member::new(exchanges)).collect::<Result<_, _>>()?;
        let ends = if exchanges { ends(workers, ring).into_iter().map(Some).collect() } else { Vec::new() };
        Ok(Self {
            workers,
            ring,
            directory: Mutex::new(directory),
            version: AtomicU64::new(1),
            ends: Mutex::new(ends),
            members,
        })
    }

    /// The ends of a worker's rings. Only the first call gets them, until they are [given back](Self::give_back).
    pub(super) fn take_ends(&self, worker: usize) -> Option<Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }
    /// Leaves a worker's ends to the node that replaces its own.
    pub(super) fn give_back(&self, worker: usize, ends: Ends) {
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = Some(ends);
        }
    }

    /// Locks the directory: for commands, never for a packet.
    pub(super) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Changes the directory; all workers learn of it before their next batch.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Directory) -> T) -> T {
        let mut directory = self.directory();
        let answer = change(&mut directory);
        self.version.fetch_add(1, Ordering::Release);
        answer
    }
    /// The number of the last change.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    /// The news that a worker has not learnt, and the number of the last change among it.
    pub(super) fn news(&self, worker: usize) -> (Vec<Change>, u64) {
        let mut directory = self.directory();
        (directory.news(worker), self.version())
    }
    /// As [`news`](Self::news), for a worker that knows nothing.
    pub(super) fn all(&self, worker: usize) -> (Vec<Change>, u64) {
        let mut directory = self.directory();
        (directory.all(worker), self.version())
    }

    /// Says that a worker may sleep from now on.
    ///
    /// Packets that are in its rings already do not ring its bell.
    pub(super) fn sleeps(&self, worker: usize) {
        self.members[worker].sleeps.store(true, Ordering::Relaxed);
        // The rings are looked at after this is seen, or the bell is rung.
        fence(Ordering::SeqCst);
    }
    /// Says that a worker is awake, and stops its bell.
    pub(super) fn is_awake(&self, worker: usize) {
        let member = &self.members[worker];
        if member.sleeps.load(Ordering::Relaxed) {
            member.sleeps.store(false, Ordering::Relaxed);
        }
        if let Some(bell) = &member.bell {
            // It fails where the bell has not rung.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
    /// Wakes a worker that sleeps, after packets were put into a ring to it.
    #[inline]
    pub(super) fn wake(&self, worker: usize) {
        fence(Ordering::SeqCst);
        if self.members[worker].sleeps.load(Ordering::Relaxed) {
            self.ring(worker);
        }
    }
    /// Rings a worker's bell.
    #[cold]
    pub(super) fn ring(&self, worker: usize) {
        let member = &self.members[worker];
        member.sleeps.store(false, Ordering::Relaxed);
        if let Some(bell) = &member.bell {
            // It fails where the bell rings already.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
    /// The descriptor that is readable when a worker's bell rings.
    pub(super) fn bell(&self, worker: usize) -> Option<BorrowedFd<'_>> {
        self.members[worker].bell.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn close(&self, worker: usize) {
        self.members[worker].closing.store(true, Ordering::Release);
    }
    pub(super) fn go(&self, worker: usize) {
        self.members[worker].gone.store(true, Ordering::Release);
    }
    pub(super) fn set_quiet(&self, worker: usize, quiet: bool) {
        let flag = &self.members[worker].quiet;
        if flag.load(Ordering::Relaxed) != quiet {
            flag.store(quiet, Ordering::Release);
        }
    }
    /// Whether all workers get packets only from each other.
    pub(super) fn is_closing(&self) -> bool {
        self.all_are(|member| &member.closing)
    }
    /// Whether all workers have nothing left to do.
    pub(super) fn is_quiet(&self) -> bool {
        self.all_are(|member| &member.quiet)
    }
    fn all_are(&self, of: fn(&Member) -> &AtomicBool) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        self.members.iter().all(|member| is(of(member)) || is(&member.gone))
    }
}

impl Member {
    fn new(has_bell: bool) -> Result<Self, BuildError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = has_bell.then(|| eventfd(0, flags)).transpose();
        let problem = |error| BuildError::new(format_args!("no eventfd for a worker's bell: {error}"));
        Ok(Self {
            closing: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            bell: bell.map_err(problem)?,
        })
    }
}

/// Rings between all pairs of workers: each has one producer and one consumer.
fn ends(workers: usize, ring: usize) -> Vec<Ends> {
    let mut ends: Vec<Ends> = (0..workers)
        .map(|_| Ends {
            out: (0..workers).map(|_| None).collect(),
            into: (0..workers).map(|_| None).collect(),
        })
        .collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (sender, receiver) = queue(ring);
            ends[from].out[to] = Some(sender);
            ends[to].into[from] = Some(receiver);
        }
    }
    ends
}
