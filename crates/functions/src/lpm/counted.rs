//! Routes whose packets are counted by next hop.

use std::cell::Cell;
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

/// Next hops that may come after the function was built, and have counts of their own.
///
/// Those after them have one count together.
pub(super) const MORE: usize = 4_096;

/// As [`lpm`](super::lpm), with a report of the packets of each next hop.
///
/// Counting takes some instructions a packet.
pub fn lpm_counted(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function + use<> {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    let table = super::declare::<Hop>(config, worker);
    let places = table.read(|table| table.places().count()) + MORE;
    let packets: Rc<[Cell<u64>]> = (0..places).map(|_| Cell::new(0)).collect();
    let others: Rc<Cell<u64>> = Rc::default();
    let none = Count::new("no-route", worker);
    let (counted, late, unrouted, named) = (packets.clone(), others.clone(), none.clone(), table.clone());
    worker.report(move || {
        let of = |(number, place): (u32, usize)| Some((number.to_string(), counted.get(place)?.get()));
        let hops: Vec<_> = named.read(|table| table.places().filter_map(of).collect());
        let others = ("other next hops".to_owned(), late.get());
        let rows = hops.into_iter().chain([others]).filter(|(_, packets)| *packets > 0);
        super::section(rows, unrouted.here())
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
                    let packets = packets.get(*place as usize).unwrap_or(&others);
                    packets.set(packets.get() + 1);
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
