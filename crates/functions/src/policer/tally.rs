//! Counts of packets and bytes by colour, and the report of them.

use std::rc::Rc;

use netbricks_core::node::SectionMerge;
use netbricks_core::{Section, Worker};

use super::meter::Colour;
use crate::count::Count;

/// A worker's own counts by colour, and of packets that had no meter.
#[derive(Clone)]
pub(super) struct Tally(Rc<[[Count; 2]; 4]>);

/// The names of the counters: packets and bytes of each colour, and of packets without a meter.
const NAMES: [[&str; 2]; 4] = [
    ["green", "green_bytes"],
    ["yellow", "yellow_bytes"],
    ["red", "red_bytes"],
    ["unmetered", "unmetered_bytes"],
];

impl Tally {
    pub(super) fn new(worker: &Worker) -> Self {
        Self(Rc::new(NAMES.map(|names| names.map(|name| Count::new(name, worker)))))
    }

    #[inline(always)]
    pub(super) fn count(&self, colour: Colour, bytes: u64) {
        self.add(colour as usize, bytes);
    }

    /// Counts a packet for which the table had no room.
    pub(super) fn unmetered(&self, bytes: u64) {
        self.add(3, bytes);
    }

    #[inline(always)]
    fn add(&self, row: usize, counted: u64) {
        let [packets, bytes] = &self.0[row];
        packets.add(1);
        bytes.add(counted);
    }

    /// Declares the report.
    pub(super) fn report(self, worker: &Worker) {
        worker.report(move || {
            let names = Colour::ALL.map(Colour::name).into_iter().chain(["unmetered"]);
            let rows = self.0.iter().zip(names);
            Section {
                title: "colours".into(),
                columns: ["colour", "packets", "bytes"].map(Into::into).into(),
                rows: rows
                    .map(|([packets, bytes], name)| {
                        vec![name.to_owned(), packets.here().to_string(), bytes.here().to_string()]
                    })
                    .collect(),
                merge: SectionMerge::Sum,
                ..Section::default()
            }
        });
    }
}
