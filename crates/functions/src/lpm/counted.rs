//! Routes whose packets are counted by next hop.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use netbricks_core::packet::{Ip, Link};
use netbricks_core::{Function, Input, Operator, Verdict, Worker};

use super::LpmSettings;
use crate::count::Count;

/// A next hop, and the place of its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hop {
    number: u32,
    place: u32,
}

/// As [`lpm`](super::lpm), with a report of the packets of each next hop.
///
/// Counting takes some instructions a packet.
pub fn lpm_counted(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function + use<> {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    // Unreadable routes are reported where the table is made.
    let routes = config.all().unwrap_or_default();
    let numbers: BTreeSet<u32> = routes.iter().map(|route| route.next_hop).collect();
    let numbers: Box<[u32]> = numbers.into_iter().collect();
    let hop = |number| Hop { number, place: numbers.partition_point(|other| *other < number) as u32 };
    let table = super::table(config, worker, hop);
    super::answer(&table, worker, |hop| hop.number);
    let packets: Rc<[Cell<u64>]> = numbers.iter().map(|_| Cell::new(0)).collect();
    let none = Count::new("no-route", worker);
    let (counted, unrouted) = (packets.clone(), none.clone());
    worker.report(move || {
        let hops = numbers.iter().copied().zip(counted.iter().map(Cell::get));
        super::section(hops.filter(|(_, packets)| *packets > 0), unrouted.here())
    });
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
                    if let Some(packets) = packets.get(*place as usize) {
                        packets.set(packets.get() + 1);
                    }
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
