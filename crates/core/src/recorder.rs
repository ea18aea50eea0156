//! The last dropped headers, by node and reason.
//!
//! They are recorded always, so that a user learns why a packet was dropped without starting a recording
//! first. The memory is bounded and the rate limited, so that a flood of drops costs one comparison a packet.

use crate::reason::DropReason;

/// Bytes of a dropped packet that are kept.
pub const KEPT_BYTES: usize = 128;
const RECORDS: usize = 64;
/// The time between two records of a node and reason: a millisecond.
///
/// Nodes and reasons share places when a graph is large: they then limit each other.
const INTERVAL: u64 = 1_000_000;
const PLACES: usize = 256;

#[inline(always)]
fn place(node: usize, reason: DropReason) -> usize {
    (node * DropReason::COUNT + reason as usize) % PLACES
}

/// The beginning of one dropped packet.
#[derive(Clone, Debug)]
pub struct Record {
    /// The node's number in its graph.
    pub node: usize,
    /// The reason.
    pub reason: DropReason,
    /// The time (ns).
    pub time: u64,
    /// The frame's length in bytes.
    pub frame_len: usize,
    len: usize,
    bytes: [u8; KEPT_BYTES],
}

impl Record {
    /// The frame's first bytes, at most [`KEPT_BYTES`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A ring of the last records.
#[derive(Debug)]
pub struct Recorder {
    records: Vec<Record>,
    next: usize,
    due: [u64; PLACES],
    /// While every drop is to be shown, the times that `due` had.
    apart: Option<Box<[u64; PLACES]>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { records: Vec::with_capacity(RECORDS), next: 0, due: [0; PLACES], apart: None }
    }
}

impl Recorder {
    /// Whether a drop is to be recorded, or to be shown to watches.
    #[inline(always)]
    pub(crate) fn is_due(&self, node: usize, reason: DropReason, now: u64) -> bool {
        now >= self.due[place(node, reason)]
    }

    /// Has every drop count as due, so that watches see it, or no longer. The records stay as rare.
    pub(crate) fn show_all(&mut self, all: bool) {
        match (all, self.apart.take()) {
            (true, None) => self.apart = Some(Box::new(std::mem::replace(&mut self.due, [0; PLACES]))),
            (true, apart) => self.apart = apart,
            (false, Some(due)) => self.due = *due,
            (false, None) => {}
        }
    }

    /// Records a drop, unless one of this node and reason was recorded a moment ago.
    #[cold]
    pub(crate) fn record(&mut self, node: usize, reason: DropReason, now: u64, frame: &[u8]) {
        let due = &mut self.apart.as_deref_mut().unwrap_or(&mut self.due)[place(node, reason)];
        if now < *due {
            return;
        }
        *due = now.saturating_add(INTERVAL);
        let len = frame.len().min(KEPT_BYTES);
        let mut bytes = [0; KEPT_BYTES];
        bytes[..len].copy_from_slice(&frame[..len]);
        let record = Record { node, reason, time: now, frame_len: frame.len(), len, bytes };
        match self.records.get_mut(self.next) {
            Some(old) => *old = record,
            // Within the capacity reserved at the start: nothing is allocated.
            None => self.records.push(record),
        }
        self.next = (self.next + 1) % RECORDS;
    }

    /// Takes over the records of the recorder before, of nodes whose number `place` knows.
    pub(crate) fn follow(&mut self, before: &mut Self, place: impl Fn(usize) -> Option<usize>) {
        let (newer, older) = before.records.split_at(before.next.min(before.records.len()));
        for record in older.iter().chain(newer) {
            let Some(node) = place(record.node) else { continue };
            if self.records.len() < RECORDS {
                self.records.push(Record { node, ..record.clone() });
            }
        }
        self.next = self.records.len() % RECORDS;
    }

    /// The records, newest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.next.min(self.records.len()));
        newer.iter().rev().chain(older.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_records_stay_and_a_flood_is_limited() {
        let mut recorder = Recorder::default();
        for i in 0..10_000u64 {
            recorder.record(1, DropReason::Denied, i * 1_000, &i.to_be_bytes());
        }
        let times: Vec<_> = recorder.records().map(|record| record.time).collect();
        assert_eq!(times, (0..10).rev().map(|ms| ms * INTERVAL).collect::<Vec<_>>());
        for i in 0..1_000u64 {
            recorder.record(2, DropReason::TtlExpired, i * INTERVAL, &[0; 2_000]);
        }
        assert_eq!(recorder.records().count(), RECORDS);
        assert_eq!(recorder.records().next().map(|record| record.time), Some(999 * INTERVAL));
        assert!(recorder.records().all(|record| record.bytes().len() <= KEPT_BYTES));
    }
}
