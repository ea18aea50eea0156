//! Routes whose packets are counted by next hop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use netbricks_core::consistency::Access;
use netbricks_core::packet::{Ip, Link};
use netbricks_core::{Function, Input, Operator, Verdict, Worker};

use super::LpmSettings;
use super::table::NextHop;
use crate::count::Count;

/// A next hop, and the place of its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hop {
    number: u32,
    place: u32,
}

impl NextHop for Hop {
    fn of(number: u32, places: &mut BTreeMap<u32, u32>) -> Self {
        let next = places.len() as u32;
        Self { number, place: *places.entry(number).or_insert(next) }
    }
    fn number(self) -> u32 {
        self.number
    }
}

/// The counts of a worker's packets by the place of their next hop.
struct Counts {
    all: Rc<[Cell<u64>]>,
    /// The same counts, for the report.
    shown: Rc<RefCell<Rc<[Cell<u64>]>>>,
}

impl Counts {
    fn new(places: usize) -> Self {
        let all: Rc<[Cell<u64>]> = (0..places).map(|_| Cell::new(0)).collect();
        Self { shown: Rc::new(RefCell::new(all.clone())), all }
    }

    #[inline(always)]
    fn count(&mut self, place: u32) {
        match self.all.get(place as usize) {
            Some(packets) => packets.set(packets.get() + 1),
            None => self.count_new(place as usize),
        }
    }

    /// Counts the first packet of a next hop that came after these counts were made.
    #[cold]
    #[inline(never)]
    fn count_new(&mut self, place: usize) {
        let more = (self.all.len()..(place + 1).next_power_of_two()).map(|_| Cell::new(0));
        self.all = self.all.iter().cloned().chain(more).collect();
        self.all[place].set(1);
        *self.shown.borrow_mut() = self.all.clone();
    }
}

/// As [`lpm`](super::lpm), with a report of the packets of each next hop.
///
/// Counting takes some instructions a packet.
pub fn lpm_counted(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function + use<> {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    let table = super::declare::<Hop>(config, worker);
    let mut counts = Counts::new(table.read(|table| table.places().count()));
    let none = Count::new("no-route", worker);
    let (shown, unrouted, named) = (counts.shown.clone(), none.clone(), table.clone());
    worker.report(move || {
        let packets = shown.borrow().clone();
        let count = |(number, place): (u32, usize)| Some((number, packets.get(place)?.get()));
        let hops: Vec<_> = named.read(|table| table.places().filter_map(count).collect());
        super::section(hops.into_iter().filter(|(_, packets)| *packets > 0), unrouted.here())
    });
    let table = table.held(worker);
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &table,
            |packet| packet.header().destination(),
            move |packet, found| match found {
                Some(Hop { number, place }) => {
                    counts.count(*place);
                    packet.annotate(next_hop, *number);
                }
                None => {
                    none.add(1);
                    packet.take_annotation(next_hop);
                }
            },
        )
        .done()
}
