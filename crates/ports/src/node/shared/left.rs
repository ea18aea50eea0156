//! Packets that one worker leaves for others to send.
//!
//! They lie in a ring, with a ticket for each batch, so that the sender takes packets by age and not by
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use netbricks_buffer::{Batch, Consumer, Producer, Ring};

/// Packets that a worker may leave for others to send; a power of two.
pub(super) const WAITING: usize = 1024;

/// The source of the tickets.
#[derive(Default)]
pub(super) struct Tickets(AtomicU64);

impl Tickets {
    /// All packets that were left before this call have a lower ticket.
    pub(super) fn next(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn draw(&self) -> u64 {
        // A worker that draws a later ticket has seen the writes that led to the earlier ones.
        self.0.fetch_add(1, Ordering::AcqRel)
    }
}

/// The ticket of some packets of a ring: those up to `end`, counted since the start.
#[derive(Default)]
struct Mark {
    ticket: AtomicU64,
    end: AtomicU64,
}

/// The marks of a ring.
///
/// Each waiting mark has a waiting packet, and is read before that packet. So a worker that has room for a
/// packet has room for its mark. It also sees that the earlier mark in the same place was read.
struct Marks {
    places: Box<[Mark]>,
    written: AtomicUsize,
}

/// The end of the worker that leaves packets.
pub(super) struct Leaves {
    packets: Producer,
    marks: Arc<Marks>,
    pushed: u64,
    written: usize,
}

/// The end of the worker that sends.
pub(super) struct Left {
    packets: Consumer,
    marks: Arc<Marks>,
    popped: u64,
    read: usize,
    /// The mark of the first packet: its ticket and its end.
    first: Option<(u64, u64)>,
}

pub(super) fn ring() -> (Leaves, Left) {
    let (producer, consumer) = Ring::new(WAITING);
    let places = (0..WAITING).map(|_| Mark::default()).collect();
    let marks = Arc::new(Marks { places, written: AtomicUsize::new(0) });
    (
        Leaves { packets: producer, marks: marks.clone(), pushed: 0, written: 0 },
        Left { packets: consumer, marks, popped: 0, read: 0, first: None },
    )
}

impl Leaves {
    /// Leaves as many packets as fit, off the front of the batch. Answers how many.
    pub(super) fn push(&mut self, batch: &mut Batch, tickets: &Tickets) -> usize {
        let ticket = tickets.draw();
        let pushed = self.packets.push(batch);
        if pushed > 0 {
            self.pushed += pushed as u64;
            let mark = &self.marks.places[self.written % WAITING];
            mark.ticket.store(ticket, Ordering::Relaxed);
            mark.end.store(self.pushed, Ordering::Relaxed);
            self.written += 1;
            self.marks.written.store(self.written, Ordering::Release);
        }
        pushed
    }
}

impl Left {
    /// The number of packets that were left and not taken.
    pub(super) fn waiting(&self) -> usize {
        self.packets.waiting()
    }
    /// The ticket of the first packet.
    fn ticket(&mut self) -> Option<u64> {
        if self.first.is_none() && self.marks.written.load(Ordering::Acquire) > self.read {
            let mark = &self.marks.places[self.read % WAITING];
            self.first = Some((mark.ticket.load(Ordering::Relaxed), mark.end.load(Ordering::Relaxed)));
            self.read += 1;
        }
        self.first.map(|(ticket, _)| ticket)
    }

    /// Takes packets with the first ticket, as many as there is room for and at most `count`.
    ///
    /// Answers how many.
    fn pop(&mut self, batch: &mut Batch, count: usize) -> usize {
        let Some((_, end)) = self.first else { return 0 };
        let popped = self.packets.pop_up_to(batch, count.min((end - self.popped) as usize));
        self.popped += popped as u64;
        if self.popped == end {
            self.first = None;
        }
        popped
    }
}

/// The ring with the oldest first packets, if they were left before ticket `before`.
pub(super) fn oldest(rings: &mut [Left], before: u64) -> Option<&mut Left> {
    let mut look = || {
        let tickets = rings.iter_mut().enumerate().filter_map(|(place, ring)| Some((ring.ticket()?, place)));
        tickets.min()
    };
    // Packets left before those that the first look finds are visible to the second look.
    look()?;
    let (ticket, place) = look()?;
    if ticket < before { rings.get_mut(place) } else { None }
}

/// Moves packets left before ticket `before` to the end of the batch, by age.
///
/// At most `count` packets. Answers how many.
pub(super) fn take(rings: &mut [Left], before: u64, count: usize, batch: &mut Batch) -> usize {
    let mut taken = 0;
    while taken < count
        && let Some(ring) = oldest(rings, before)
    {
        let popped = ring.pop(batch, count - taken);
        if popped == 0 {
            // The batch is full.
            break;
        }
        taken += popped;
    }
    taken
}
