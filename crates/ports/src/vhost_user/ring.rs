//! A virtqueue in a guest's memory (Virtio 1.2, section 2.7), and the place where a worker finds it.
//!
//! `virtio-queue` finds the chains of descriptors, and `vm-memory` compares every address with the guest's memory. The
//! guest is not trusted: an impossible number ends the connection, see [`Lie`].
//!
//! Used buffers are published here, since the library shows each to the guest at once. Linux's driver drops a packet
//! of several buffers if it sees the first before the last.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rustix::event::{EventfdFlags, eventfd};
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::peer::bells::Bells;
use crate::peer::interrupt::Interrupt;
use crate::seat::lock;

/// The most descriptors of a packet.
pub(super) const MOST_PIECES: usize = 64;
/// The most chains that are used before they are published.
const MOST_USED: usize = 256;
/// The places in the available and the used ring: flags, index, elements (Virtio 1.2, sections 2.7.6 and 2.7.8).
const INDEX: u64 = 2;
const ELEMENTS: u64 = 4;
/// The flag of a driver that wants no notification.
const NO_INTERRUPT: u16 = 1;

/// Something that no honest guest writes into a virtqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lie {
    /// The available index is further on than the queue has descriptors.
    Index = 1,
    /// A chain begins with a descriptor that the queue does not have.
    Head = 2,
    /// A buffer to receive into is not in the guest's memory, not writable, or its chain is broken.
    Buffer = 3,
}

impl Lie {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Index => "the guest's available index is further on than the queue has descriptors",
            Self::Head => "the guest's available ring names a descriptor that the queue does not have",
            Self::Buffer => {
                "the guest offers a buffer that is outside of its memory, not writable, or in a broken chain"
            }
        }
    }
}

/// Where a connection's queues report a lie. The first one stays.
#[derive(Debug)]
pub(super) struct Fault {
    lie: AtomicU8,
    /// The connection, which ends with it.
    stream: UnixStream,
}

impl Fault {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { lie: AtomicU8::new(0), stream }
    }
    pub(super) fn get(&self) -> Option<Lie> {
        match self.lie.load(Ordering::Acquire) {
            1 => Some(Lie::Index),
            2 => Some(Lie::Head),
            3 => Some(Lie::Buffer),
            _ => None,
        }
    }
    #[cold]
    fn report(&self, lie: Lie) {
        if self.lie.compare_exchange(0, lie as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // It can only fail because the connection has ended already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The packet format and the offloads on which both ends agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bytes of the virtio-net header.
    pub(super) header: usize,
    /// A packet to the guest may take several chains.
    pub(super) mergeable: bool,
    /// Notifications are asked for by index, not by a flag.
    pub(super) event_idx: bool,
    /// The guest may leave checksums to us.
    pub(super) takes_checksum: bool,
    /// The guest takes partial checksums.
    pub(super) gives_checksum: bool,
    /// The guest takes TCP and UDP packets that are not cut.
    pub(super) gives_segments: bool,
}

/// A buffer of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) at: GuestAddress,
    pub(super) len: usize,
}

/// The buffers of a chain.
pub(super) enum Chain {
    /// This many pieces, with all their bytes.
    Whole { pieces: usize, bytes: usize },
    /// It has more pieces than there is room for.
    TooLong,
    /// It has no end, leaves its table, or has a buffer of the wrong direction.
    Broken,
}

/// Reads the descriptors of a chain into `places`.
#[inline]
pub(super) fn collect(
    chain: DescriptorChain<&GuestMemoryMmap>,
    writable: bool,
    places: &mut [Piece],
) -> Chain {
    let (mut pieces, mut bytes, mut goes_on) = (0, 0, true);
    for descriptor in chain {
        if descriptor.is_write_only() != writable {
            return Chain::Broken;
        }
        let Some(place) = places.get_mut(pieces) else { return Chain::TooLong };
        *place = Piece { at: descriptor.addr(), len: descriptor.len() as usize };
        pieces += 1;
        bytes += place.len;
        goes_on = descriptor.has_next();
    }
    // The library also ends a chain at a descriptor that it cannot follow.
    if goes_on { Chain::Broken } else { Chain::Whole { pieces, bytes } }
}

/// Chains that were used and not published yet, as elements of a used ring.
pub(super) struct Used {
    elements: [u64; MOST_USED],
    count: usize,
}

impl Used {
    fn new() -> Self {
        Self { elements: [0; MOST_USED], count: 0 }
    }
    /// Chains for which there is room.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        MOST_USED - self.count
    }
    /// Adds a chain by its head, with the bytes that were written into it. There must be room.
    #[inline(always)]
    pub(super) fn push(&mut self, head: u16, written: u32) {
        if let Some(place) = self.elements.get_mut(self.count) {
            *place = u64::from(head) | u64::from(written) << 32;
            self.count += 1;
        }
    }
}

/// A virtqueue in use.
pub(super) struct Ring {
    pub(super) queue: Queue,
    pub(super) memory: Arc<GuestMemoryMmap>,
    pub(super) format: Format,
    /// The guest switched it on.
    pub(super) enabled: bool,
    /// The guest wakes no one, but expects to be asked.
    polled: bool,
    pub(super) used: Used,
    pub(super) pieces: [Piece; MOST_PIECES],
    is_lost: bool,
    sleeps: bool,
    bells: Arc<Bells>,
    /// The ring's number among the bells.
    bell: usize,
    fault: Arc<Fault>,
}

impl Ring {
    /// A virtqueue that was checked against the memory.
    pub(super) fn new(
        (queue, memory): (Queue, Arc<GuestMemoryMmap>),
        format: Format,
        (enabled, polled): (bool, bool),
        (bells, bell): (Arc<Bells>, usize),
        fault: Arc<Fault>,
    ) -> Self {
        let mut ring = Self {
            queue,
            memory,
            format,
            enabled,
            polled,
            used: Used::new(),
            pieces: [Piece::default(); MOST_PIECES],
            is_lost: false,
            sleeps: false,
            bells,
            bell,
            fault,
        };
        // The place was checked: it cannot fail.
        let _ = ring.queue.disable_notification(&*ring.memory);
        // A guest that was not told of buffers while there was no bell looks at them now.
        ring.bells.ring(bell);
        ring
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
    #[cold]
    pub(super) fn lose(&mut self, lie: Lie) {
        self.is_lost = true;
        self.fault.report(lie);
    }

    /// Shows the guest all used chains at once, and wakes it if it wants that.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.used.count > 0 && self.try_publish().is_err() {
            // Not reached: both rings are inside of the memory.
            self.lose(Lie::Index);
        }
    }

    #[inline]
    fn try_publish(&mut self) -> Result<(), vm_memory::GuestMemoryError> {
        let (memory, size) = (&*self.memory, self.queue.size());
        let place = |ring: u64, at: u64| GuestAddress(ring.wrapping_add(at));
        let (used, available) = (self.queue.used_ring(), self.queue.avail_ring());
        let before = self.queue.next_used();
        let mut next = before;
        for element in &self.used.elements[..self.used.count] {
            memory.write_obj(element.to_le(), place(used, ELEMENTS + 8 * u64::from(next % size)))?;
            next = next.wrapping_add(1);
        }
        self.used.count = 0;
        memory.store(next.to_le(), place(used, INDEX), Ordering::Release)?;
        self.queue.set_next_used(next);
        // The guest asks for notifications and then looks at the index, so one of the two sees the other's write.
        fence(Ordering::SeqCst);
        let wanted = if self.format.event_idx {
            let event = place(available, ELEMENTS + 2 * u64::from(size));
            let event = u16::from_le(memory.load(event, Ordering::Relaxed)?);
            next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(before)
        } else {
            let flags = u16::from_le(memory.load(place(available, 0), Ordering::Relaxed)?);
            flags & NO_INTERRUPT == 0
        };
        if wanted {
            self.bells.ring(self.bell);
        }
        Ok(())
    }

    /// Wants no notifications while the worker polls.
    #[inline(always)]
    pub(super) fn wake(&mut self, place: &Place) {
        if self.sleeps {
            self.sleeps = false;
            // The place was checked: it cannot fail.
            let _ = self.queue.disable_notification(&*self.memory);
            place.kick.clear();
        }
    }

    /// Asks for notifications. Answers whether the worker must look again before it sleeps.
    fn sleep(&mut self) -> bool {
        if self.is_lost {
            return false;
        }
        if self.polled {
            return true;
        }
        self.sleeps = true;
        self.queue.enable_notification(&*self.memory).unwrap_or(true)
    }
}

/// The place of a direction of a queue, where the worker finds its virtqueue while there is one.
///
/// The worker never waits for it: it only tries, once a batch. The port's thread waits until a batch is done.
pub(super) struct Place {
    ring: Mutex<Option<Box<Ring>>>,
    /// The port's thread waits.
    wanted: AtomicBool,
    /// The virtqueue was replaced, and the bell rings for it.
    changed: AtomicBool,
    /// Wakes a worker that sleeps, when its virtqueue was replaced.
    bell: OwnedFd,
    /// The guest's events.
    pub(super) kick: Interrupt,
    /// A descriptor that is always readable.
    ready: OwnedFd,
}

impl Place {
    pub(super) fn new() -> std::io::Result<Self> {
        let event = |count| eventfd(count, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self {
            ring: Mutex::new(None),
            wanted: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            bell: event(0)?,
            kick: Interrupt::empty()?,
            ready: event(1)?,
        })
    }

    /// The virtqueue for a turn of its worker. `None` while the port's thread changes it.
    #[inline(always)]
    pub(super) fn turn(&self) -> Option<MutexGuard<'_, Option<Box<Ring>>>> {
        if self.wanted.load(Ordering::Relaxed) {
            return None;
        }
        if self.changed.load(Ordering::Relaxed) {
            self.hear();
        }
        self.try_ring()
    }
    #[inline(always)]
    fn try_ring(&self) -> Option<MutexGuard<'_, Option<Box<Ring>>>> {
        match self.ring.try_lock() {
            Ok(ring) => Some(ring),
            // A panic of the worker is told elsewhere.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
    #[cold]
    fn hear(&self) {
        self.changed.store(false, Ordering::Relaxed);
        // It can only fail because it was heard already.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Changes the virtqueue between two turns of the worker.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Option<Box<Ring>>) -> R) -> R {
        self.wanted.store(true, Ordering::Relaxed);
        let mut ring = lock(&self.ring);
        self.wanted.store(false, Ordering::Relaxed);
        let answer = change(&mut ring);
        self.changed.store(true, Ordering::Relaxed);
        drop(ring);
        // It can only fail because it rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        answer
    }

    /// Names the descriptors on which the worker sleeps, after the guest was asked for events.
    pub(super) fn sleep<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        watch(self.bell.as_fd());
        match self.try_ring().as_deref_mut() {
            Some(Some(ring)) => watch(if ring.sleep() { self.ready.as_fd() } else { self.kick.as_fd() }),
            Some(None) => {}
            None => watch(self.ready.as_fd()),
        }
    }
}
