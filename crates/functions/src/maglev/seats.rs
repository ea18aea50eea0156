//! Addresses and packet counts of the backends of a worker's flows, by number and side by side.
//!
//! A packet of a known flow needs nothing else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::packet::MacAddress;

use super::backends::Snapshot;

/// A backend's address and packet count, at its number.
#[derive(Clone)]
#[repr(align(32))]
pub(super) struct Seat {
    /// The value of flows to the backend; [`NO_BACKEND`] if there is no backend.
    chosen: Cell<u64>,
    packets: Cell<u64>,
    mac: Cell<MacAddress>,
}

/// A value that no flow remembers, because all numbers are smaller.
const NO_BACKEND: u64 = u64::MAX;

impl Seat {
    fn empty() -> Self {
        Self { chosen: Cell::new(NO_BACKEND), packets: Cell::new(0), mac: Cell::new(MacAddress::BROADCAST) }
    }

    /// The value of flows to the backend.
    #[inline(always)]
    pub(super) fn chosen(&self) -> u64 {
        self.chosen.get()
    }

    /// The backend's Ethernet address.
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

/// The seats of all numbers, as one worker's packets see them. Only these packets change them.
pub(super) struct Seats {
    all: Rc<[Seat]>,
    ledger: Rc<Ledger>,
}

/// The packet counts for a report.
#[derive(Default)]
pub(super) struct Ledger {
    seats: RefCell<Rc<[Seat]>>,
    /// Packets to backends that were removed.
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

    /// The seat of a flow's backend, if the backend still has the number that the flow remembers.
    #[inline(always)]
    pub(super) fn live(&self, chosen: u64) -> Option<&Seat> {
        self.all.get((chosen >> 48) as usize).filter(|seat| seat.chosen() == chosen)
    }

    /// The seat of the backend with this number.
    #[inline(always)]
    pub(super) fn of(&self, number: usize) -> Option<&Seat> {
        self.all.get(number).filter(|seat| seat.chosen() != NO_BACKEND)
    }

    /// Follows a change of the backends, after which numbers may belong to other backends.
    #[cold]
    pub(super) fn follow(&mut self, backends: &Snapshot) {
        let places = backends.places();
        if places.len() > self.all.len() {
            let more = (self.all.len()..places.len().next_power_of_two()).map(|_| Seat::empty());
            self.all = self.all.iter().cloned().chain(more).collect();
            *self.ledger.seats.borrow_mut() = self.all.clone();
        }
        for (seat, place) in self.all.iter().zip(places.chain(std::iter::repeat(None))) {
            let (chosen, mac) = place.unwrap_or((NO_BACKEND, MacAddress::BROADCAST));
            if seat.chosen() != chosen {
                self.ledger.gone.set(self.ledger.gone.get() + seat.packets.take());
            }
            seat.chosen.set(chosen);
            seat.mac.set(mac);
        }
    }
}

impl Ledger {
    /// Packets to the backend of this number, if its flows still remember `chosen`.
    pub(super) fn packets(&self, number: usize, chosen: u64) -> u64 {
        let seats = self.seats.borrow();
        seats.get(number).filter(|seat| seat.chosen() == chosen).map_or(0, |seat| seat.packets.get())
    }

    /// Packets to all present and former backends.
    pub(super) fn all(&self) -> u64 {
        self.gone.get() + self.seats.borrow().iter().map(|seat| seat.packets.get()).sum::<u64>()
    }
}
