//! Counts of a shaper, and the report of them.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::{Handler, Section, Worker};

use super::queues::{Congestion, Queues};
use crate::count::Count;

/// A worker's own counts.
#[derive(Clone)]
pub(super) struct Tally(Rc<Counts>);

struct Counts {
    packets: Count,
    bytes: Count,
    marked: Count,
    congested: Count,
    full: Count,
    /// The counts of the queues when it was last told.
    told: Cell<Congestion>,
    /// Packets and bytes that wait.
    waiting: Cell<(usize, u64)>,
    /// The most packets that waited.
    longest: Cell<usize>,
    /// The sum of the delays, and the longest (ns).
    delays: Cell<(u128, u64)>,
}

impl Tally {
    pub(super) fn new(worker: &Worker) -> Self {
        let count = |name| Count::new(name, worker);
        let this = Self(Rc::new(Counts {
            packets: count("left"),
            bytes: count("left_bytes"),
            marked: count("marked"),
            congested: count("congested"),
            full: count("full"),
            told: Cell::default(),
            waiting: Cell::default(),
            longest: Cell::default(),
            delays: Cell::default(),
        }));
        let counts = this.0.clone();
        let queued = Handler::read("queued", "Packets and bytes that wait on this worker.");
        worker.handler(queued, move |_| {
            let (packets, bytes) = counts.waiting.get();
            Ok(format!("{packets} {bytes}"))
        });
        let counts = this.0.clone();
        let delay = Handler::read("delay", "The mean and the longest delay of packets that left, in ns.");
        worker.handler(delay, move |_| Ok(format!("{} {}", counts.mean(), counts.delays.get().1)));
        let counts = this.0.clone();
        worker.explain(move |_, why| {
            let (packets, bytes) = counts.waiting.get();
            write!(why, "{packets} packets with {bytes} bytes wait before it")
        });
        this
    }

    /// Counts a packet that leaves after this time (ns).
    pub(super) fn left(&self, bytes: u64, waited: u64) {
        self.0.packets.add(1);
        self.0.bytes.add(bytes);
        let (sum, longest) = self.0.delays.get();
        self.0.delays.set((sum + u128::from(waited), longest.max(waited)));
    }

    /// Notes the length of the queues after a packet came.
    pub(super) fn queued(&self, queues: &Queues) {
        self.0.longest.set(self.0.longest.get().max(queues.packets()));
    }

    /// Takes over what the queues have counted, and their length.
    pub(super) fn congestion(&self, queues: &Queues) {
        let counts = &*self.0;
        counts.waiting.set((queues.packets(), queues.bytes()));
        let (now, before) = (queues.congestion, counts.told.replace(queues.congestion));
        // Queues that survived a panic counted before this.
        counts.marked.add(now.marked.saturating_sub(before.marked));
        counts.congested.add(now.dropped.saturating_sub(before.dropped));
        counts.full.add(now.full.saturating_sub(before.full));
    }

    /// Declares the report.
    pub(super) fn report(self, worker: &Worker) {
        worker.report(move || {
            let counts = &*self.0;
            let row = [
                counts.packets.here(),
                counts.bytes.here(),
                counts.marked.here(),
                counts.congested.here(),
                counts.full.here(),
                counts.longest.get() as u64,
                counts.mean() / 1_000,
                counts.delays.get().1 / 1_000,
            ];
            let columns = [
                "packets",
                "bytes",
                "marked",
                "congested",
                "queue full",
                "most waiting",
                "mean delay (us)",
                "longest delay (us)",
            ];
            Section {
                title: "shaped".into(),
                columns: columns.map(Into::into).into(),
                rows: vec![row.map(|number| number.to_string()).into()],
                ..Section::default()
            }
        });
    }
}

impl Counts {
    /// The mean delay (ns).
    fn mean(&self) -> u64 {
        let packets = u128::from(self.packets.here());
        self.delays.get().0.checked_div(packets).unwrap_or(0) as u64
    }
}
