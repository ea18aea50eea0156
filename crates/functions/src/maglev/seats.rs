//! Addresses and packet counts of the backends of a worker's flows, by number and side by side.
//!
//! A packet of a known flow needs nothing else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::packet::MacAddress;

use super::backends::Snapshot;

/// Of one number.
#[derive(Clone)]
#[repr(align(32))]
pub(super) struct Seat {
    /// The value of flows to the backend, [`NOBODY`] where there is none.
    chosen: Cell<u64>,
    packets: Cell<u64>,
    mac: Cell<MacAddress>,
}

/// No flow remembers it, since numbers end below.
const NOBODY: u64 = u64::MAX;

impl Seat {
    fn empty() -> Self {
        Self { chosen: Cell::new(NOBODY), packets: Cell::new(0), mac: Cell::new(MacAddress::BROADCAST) }
    }

    /// The value of flows to the backend.
    #[inline(always)]
    pub(super) fn chosen(&self) -> u64 {
        self.chosen.get()
    }

    /// Where the backend is.
    #[inline(always)]
    pub(super) fn mac(&self) -> MacAddress {
        self.mac.get()
    }

    /// Counts a packet.
    #[inline(always)]
    pub(super) fn count(&self) {
        self.packets.set(self.packets.get() + 1);
    }
}

/// Of all numbers, as one worker's packets see them: they alone change them.
pub(super) struct Seats {
    all: Rc<[Seat]>,
    ledger: Rc<Ledger>,
}

/// Counts for a report.
#[derive(Default)]
pub(super) struct Ledger {
    seats: RefCell<Rc<[Seat]>>,
    /// Packets to backends that were taken out.
    gone: Cell<u64>,
}

impl Seats {
    pub(super) fn new(backends: &Snapshot) -> Self {
        let mut seats = Self { all: Rc::default(), ledger: Rc::default() };
        seats.follow(backends);
        seats
    }

    pub(super) fn ledger(&self) -> Rc<Ledger> {
        self.ledger.clone()
    }

    /// Where the backend of a flow is, if it is where the flow remembers it.
    #[inline(always)]
    pub(super) fn live(&self, chosen: u64) -> Option<&Seat> {
        self.all.get((chosen >> 48) as usize).filter(|seat| seat.chosen() == chosen)
    }

    /// The backend of this number.
    #[inline(always)]
    pub(super) fn of(&self, number: usize) -> Option<&Seat> {
        self.all.get(number).filter(|seat| seat.chosen() != NOBODY)
    }

    /// Numbers may be others' now.
    #[cold]
    pub(super) fn follow(&mut self, backends: &Snapshot) {
        let places = backends.places();
        if places.len() > self.all.len() {
            let more = (self.all.len()..places.len().next_power_of_two()).map(|_| Seat::empty());
            self.all = self.all.iter().cloned().chain(more).collect();
            *self.ledger.seats.borrow_mut() = self.all.clone();
        }
        for (seat, place) in self.all.iter().zip(places.chain(std::iter::repeat(None))) {
            let (chosen, mac) = place.unwrap_or((NOBODY, MacAddress::BROADCAST));
            if seat.chosen() != chosen {
                self.ledger.gone.set(self.ledger.gone.get() + seat.packets.take());
            }
            seat.chosen.set(chosen);
            seat.mac.set(mac);
        }
    }
}

impl Ledger {
    /// Packets to the backend of this number, if that is still what its flows remember.
    pub(super) fn packets(&self, number: usize, chosen: u64) -> u64 {
        let seats = self.seats.borrow();
        seats.get(number).filter(|seat| seat.chosen() == chosen).map_or(0, |seat| seat.packets.get())
    }

    /// Packets to all backends that there have been.
    pub(super) fn all(&self) -> u64 {
        self.gone.get() + self.seats.borrow().iter().map(|seat| seat.packets.get()).sum::<u64>()
    }
}
