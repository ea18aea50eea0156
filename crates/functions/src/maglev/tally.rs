//! Counts of a worker's packets by backend and by cause, and the report of them.

use std::rc::Rc;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::{Flows, Section, Worker};

use crate::count::Count;

use super::backends::Backends;
use super::seats::Ledger;
use crate::snapshot::Holds;

/// A worker's own counts of packets, by the way in which their backend was found.
///
/// [Seats](super::seats) count the packets of each backend. Numbers that can be derived at the end are not
/// counted.
#[derive(Clone)]
pub(super) struct Tally {
    /// Connections that began, each with one packet.
    pub(super) assigned: Count,
    /// Connections that changed their backend because it was gone.
    pub(super) moved: Count,
    /// Packets that made no connection and belong to no known one: errors, and packets that found no room.
    pub(super) strangers: Count,
}

impl Tally {
    pub(super) fn new(worker: &Worker) -> Self {
        Self {
            assigned: Count::new("assigned", worker),
            moved: Count::new("moved", worker),
            strangers: Count::new("strangers", worker),
        }
    }

    /// Declares the report of each backend, and of how packets found their backends.
    pub(super) fn report(
        self,
        ledger: Rc<Ledger>,
        backends: &Bounded<Backends>,
        connections: &Flows<FlowKey, u64>,
        worker: &Worker,
    ) {
        let (backends, connections) = (backends.clone(), connections.clone());
        let tally = Rc::new(self);
        worker.report_in_steps(move || {
            let now = backends.read(|backends| backends.snapshot().clone());
            let (tally, ledger) = (tally.clone(), ledger.clone());
            now.with_connections(&connections, move |now, open| {
                let shares = now.shares();
                let mut here = 0;
                let rows = now.all().map(|(number, known)| {
                    let share = 100.0 * shares[number] as f64 / now.slots() as f64;
                    let packets = ledger.packets(number, known.remembered(number));
                    here += packets;
                    vec![
                        known.backend.name.clone(),
                        if known.draining { "draining" } else { "active" }.into(),
                        format!("{share:.2} %"),
                        open[number].to_string(),
                        packets.to_string(),
                    ]
                });
                let rows: Vec<_> = rows.collect();
                let all = ledger.all();
                let (new, strangers) = (tally.assigned.here(), tally.strangers.here());
                let counts = [
                    ("known_connection_packets", all - new - strangers),
                    ("new_connection_packets", new),
                    ("unremembered_packets", strangers),
                    ("moved_connections", tally.moved.here()),
                    ("removed_backends_packets", all - here),
                ];
                Section {
                    title: "backends".into(),
                    columns: ["backend", "state", "slots", "connections", "packets"].map(Into::into).into(),
                    rows,
                    counts: counts.map(|(name, count)| (name.into(), count)).into(),
                    merge: SectionMerge::Sum,
                    ..Section::default()
                }
            })
        });
    }
}
