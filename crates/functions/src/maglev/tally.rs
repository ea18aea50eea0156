//! What a worker's packets came to: how many went to which backend, and why there. And the report of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::{Flows, Section, Worker};

use crate::count::Count;

use super::backends::{Backends, Current, MOST, Snapshot};

/// A worker's own counts. Packets are counted by what they add to one number each; whatever can be told from that at the end
/// is not counted apart.
#[derive(Clone)]
pub(super) struct Tally {
    /// To each backend, by its number.
    packets: Rc<[Cell<u64>; MOST]>,
    of: Rc<RefCell<Of>>,
    /// Connections that began, with a packet each.
    pub(super) assigned: Count,
    /// Connections that went elsewhere since their backend was gone.
    pub(super) moved: Count,
    /// Packets that made no connection, and belong to none that is known: of errors, and where there was no room.
    pub(super) strangers: Count,
}

/// Of whom the packets are counted.
#[derive(Default)]
struct Of {
    /// What flows to each backend remember, by number.
    remembered: Vec<u64>,
    /// Packets to backends that were taken out.
    gone: u64,
}

impl Tally {
    pub(super) fn new(backends: &Snapshot, worker: &Worker) -> Self {
        let none: Rc<[Cell<u64>]> = (0..MOST).map(|_| Cell::new(0)).collect();
        let tally = Self {
            packets: none.try_into().expect("as many were collected"),
            of: Rc::default(),
            assigned: Count::new("assigned", worker),
            moved: Count::new("moved", worker),
            strangers: Count::new("strangers", worker),
        };
        tally.follow(backends);
        tally
    }

    /// Counts a packet of a flow that remembers this.
    #[inline(always)]
    pub(super) fn count(&self, chosen: u64) {
        // The number is a backend's, so that nothing is cut off; it spares the comparison.
        let packets = &self.packets[Current::number(chosen) % MOST];
        packets.set(packets.get() + 1);
    }

    /// Numbers may be others' now.
    #[cold]
    pub(super) fn follow(&self, backends: &Snapshot) {
        let mut of = self.of.borrow_mut();
        let remembered: Vec<u64> = backends.remembered().collect();
        for number in 0..of.remembered.len() {
            if remembered.get(number) != of.remembered.get(number) {
                of.gone += self.packets[number].take();
            }
        }
        of.remembered = remembered;
    }

    /// Declares the report of each backend, and of how packets found theirs.
    pub(super) fn report(
        self,
        backends: &Bounded<Backends>,
        connections: &Flows<FlowKey, u64>,
        worker: &Worker,
    ) {
        let (backends, connections) = (backends.clone(), connections.clone());
        worker.report(move || {
            let now = backends.read(|backends| backends.snapshot().clone());
            self.follow(&now);
            let (open, shares) = (now.connections(&connections), now.shares());
            let rows = now.all().map(|(number, known)| {
                let share = 100.0 * shares[number] as f64 / now.slots() as f64;
                vec![
                    known.backend.name.clone(),
                    if known.draining { "draining" } else { "active" }.into(),
                    format!("{share:.2} %"),
                    open[number].to_string(),
                    self.packets[number].get().to_string(),
                ]
            });
            let rows: Vec<_> = rows.collect();
            let gone = self.of.borrow().gone;
            let all = gone + self.packets.iter().map(Cell::get).sum::<u64>();
            let (new, strangers) = (self.assigned.here(), self.strangers.here());
            let counts = [
                ("known_connection_packets", all - new - strangers),
                ("new_connection_packets", new),
                ("unremembered_packets", strangers),
                ("moved_connections", self.moved.here()),
                ("removed_backends_packets", gone),
            ];
            Section {
                title: "backends".into(),
                columns: ["backend", "state", "slots", "connections", "packets"].map(Into::into).into(),
                rows,
                counts: counts.map(|(name, count)| (name.into(), count)).into(),
                merge: SectionMerge::Sum,
                ..Section::default()
            }
        });
    }
}
