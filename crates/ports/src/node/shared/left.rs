//! What one worker leaves for others to send: a ring of packets, and a ticket for each batch of them, so that whoever sends
//! goes by age and not by worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use netbricks_buffer::{Batch, Consumer, Producer, Ring};

/// Packets that a worker may leave for others to send; a power of two.
pub(super) const WAITING: usize = 1024;

/// Where the tickets come from.
#[derive(Default)]
pub(super) struct Tickets(AtomicU64);

impl Tickets {
    /// All that was left before this is known to have a lower one.
    pub(super) fn next(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn draw(&self) -> u64 {
        // Who draws a later one has seen what led to the earlier ones.
        self.0.fetch_add(1, Ordering::AcqRel)
    }
}

/// Which packets of a ring were left with which ticket: up to `end`, counted since the start.
#[derive(Default)]
struct Mark {
    ticket: AtomicU64,
    end: AtomicU64,
}

/// Each mark that waits has a packet that waits, and is read before that is: who had room for a packet has it for a mark, and
/// sees that the one before in its place was read.
struct Marks {
    places: Box<[Mark]>,
    written: AtomicUsize,
}

/// The worker's end.
pub(super) struct Leaves {
    packets: Producer,
    marks: Arc<Marks>,
    pushed: u64,
    written: usize,
}

/// The end of whoever sends.
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
    /// As many packets as fit, off the front of the batch; answers how many.
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
    /// Packets that were left and not taken.
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

    /// Of the packets with the first ticket as many as there is room for, at most `count`; answers how many.
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

/// The ring whose first packets were left first of all, if that was before ticket `before`.
pub(super) fn oldest(rings: &mut [Left], before: u64) -> Option<&mut Left> {
    let mut look = || {
        let tickets = rings.iter_mut().enumerate().filter_map(|(place, ring)| Some((ring.ticket()?, place)));
        tickets.min()
    };
    // What was left before that which the first look finds is there for the second at the latest.
    look()?;
    let (ticket, place) = look()?;
    if ticket < before { rings.get_mut(place) } else { None }
}

/// Moves what was left before ticket `before` behind the last of the batch, by age, at most `count` packets; answers how many.
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
