//! A node of the graph: the one interface of receive queues, fused functions, queues and transmit queues.
//!
//! The graph makes one dynamic call for each batch.

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use netbricks_buffer::Batch;

use crate::consistency::SharedStateRef;
use crate::context::Context;
use crate::events::Schedule;
use crate::reason::Edge;
use crate::shuffle::{Handoff, Part, PartStep, ShuffleKey};

/// The kind of work of a node, which decides how the graph counts its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It brings packets in from outside. The graph counts packets that its `poll` yields as received.
    Receive,
    /// It works on packets.
    Function,
    /// It gives packets to the outside. The graph counts packets that it reports through [`Context::sent`] as
    /// sent.
    Transmit,
}

/// How the turn of a schedulable node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// The node may have more packets at once.
    Busy,
    /// The node has nothing to do now.
    ///
    /// The graph asks again as the idle policy says, or when one of [`Node::descriptors`] becomes readable.
    Idle,
    /// The node has nothing to do before this time (ns, the graph's clock).
    Until(u64),
    /// The source has ended and will never yield again.
    Done,
}

/// An edge by which packets may leave a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The edge's number.
    pub edge: Edge,
    /// The edge's name in configuration and drawings: `"out"`, `"reply"`.
    pub name: String,
    /// Whether the graph may leave the edge unconnected.
    ///
    /// Packets on it are then dropped as [`Unconnected`](crate::DropReason::Unconnected).
    pub optional: bool,
}

/// A named operation of the control side on a node, like Click's read and write handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// `"flows.occupancy"`
    pub name: String,
    /// One sentence that says what the handler answers and what argument it takes.
    pub summary: String,
}

/// A handler that could not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node has no handler of that name.
    #[error("no handler `{name}`; there are: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// All handlers of the node, separated by commas.
        known: String,
    },
    /// The argument does not fit.
    #[error("handler `{name}`: {problem}")]
    Argument {
        /// The handler.
        name: String,
        /// The error, and what was expected.
        problem: String,
    },
    /// The handler panicked, and its node was rebuilt.
    #[error("handler `{name}` panicked: {message}")]
    Panicked {
        /// The handler.
        name: String,
        /// The panic's message.
        message: String,
    },
}

/// Declared state that could not be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The node declares no state of that name.
    #[error("no state `{name}` is declared here")]
    Unknown {
        /// The state's name.
        name: String,
    },
    /// The bytes are not an export of such a state.
    #[error("state `{name}`: {problem}")]
    Refused {
        /// The state's name.
        name: String,
        /// The error.
        problem: String,
    },
    /// The import panicked. The node was rebuilt, without state that it took over before.
    #[error("state `{name}`: taking it over panicked: {message}; its node began anew")]
    Panicked {
        /// The state's name.
        name: String,
        /// The panic's message.
        message: String,
    },
}

/// The progress of a way out of a worker.
///
/// While packets that were given to it have not left, packets from another worker may overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Packets that the way out was given since the node began.
    pub given: u64,
    /// How many of these, counted from the first, have left.
    ///
    /// The number is certain where the way out sends packets in the order in which it was given them.
    pub left: u64,
}

/// Exported state: its name, and bytes with a version and a checksum.
pub type StateImage = (String, Vec<u8>);

/// A node of the graph.
///
/// An implementation needs only `process` or `poll`; all other methods have sensible defaults.
pub trait Node {
    /// Processes a batch that arrived on input `input`.
    ///
    /// Packets that are in `batch` afterwards leave on [`Edge::OUT`]. The node keeps all others, or passes
    /// them to `cx`: dropped, emitted on another edge, created or sent.
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context);

    /// Takes the turn of a schedulable node.
    ///
    /// `batch` is empty when called. Packets that the node puts into it then leave on [`Edge::OUT`].
    fn poll(&mut self, _batch: &mut Batch, _cx: &mut Context) -> Poll {
        Poll::Done
    }
    /// Whether the node wants turns.
    fn is_schedulable(&self) -> bool {
        false
    }
    /// The schedule of the node's events, where it has any.
    ///
    /// `poll` then runs one event that is due, and answers [`Poll::Until`] with the time of the next. Nodes
    /// that [`compose`](crate::compose()) makes have the events of
    /// [`Worker::invoke_every`](crate::Worker::invoke_every). A node written by hand asks for turns with
    /// [`is_schedulable`](Self::is_schedulable) alone.
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    /// How the graph counts the node's packets.
    fn role(&self) -> Role {
        Role::Function
    }
    /// The kind of node, for drawings and reports: `"function"`, `"af_xdp receive"`.
    fn kind(&self) -> &str {
        "function"
    }
    /// The number of inputs.
    fn inputs(&self) -> usize {
        1
    }
    /// The edges by which packets may leave.
    fn outputs(&self) -> Vec<Output> {
        vec![Output { edge: Edge::OUT, name: "out".into(), optional: false }]
    }
    /// Whether the node may keep packets between calls. Asked once, when the graph is built.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// The number of packets that the node keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// The capacity in packets of a node that queues packets until its turn; `None` for other nodes.
    ///
    /// A source that leads to the queue never gets a longer burst, so the packets of one turn have room.
    /// Asked once, when the graph is built.
    fn queue(&self) -> Option<usize> {
        None
    }
    /// Gives up packets that the node holds, when the graph is taken down.
    ///
    /// The packets go through `batch`, which leaves on [`Edge::OUT`], or through `cx`. The graph calls this
    /// again until it leaves `batch` empty.
    fn drain(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// Whether the graph calls `drain` once although the node keeps no packets.
    ///
    /// A node answers `true` where it waits for more packets and must learn that there are none.
    fn has_an_end(&self) -> bool {
        false
    }
    /// Calls `watch` with file descriptors on which an idle worker sleeps.
    ///
    /// One of them becomes readable when a poll would yield packets. A node without such descriptors calls
    /// nothing. The worker does not watch them while there are packets, since that would cost a system call
    /// for each packet.
    fn descriptors<'n>(&'n self, _watch: &mut dyn FnMut(BorrowedFd<'n>)) {}
    /// The node's handlers.
    fn handlers(&self) -> Vec<Handler> {
        Vec::new()
    }
    /// Calls a handler, from the control side, between batches.
    ///
    /// # Errors
    /// [`CallError`] when there is no such handler or its argument does not fit.
    fn call(&mut self, name: &str, _argument: &str) -> Result<String, CallError> {
        let known = self.handlers().into_iter().map(|handler| handler.name).collect::<Vec<_>>().join(", ");
        Err(CallError::Unknown { name: name.into(), known })
    }
    /// All declared state of the node.
    fn export(&self) -> Vec<StateImage> {
        Vec::new()
    }
    /// Takes over state that a node of the same kind exported, at time `now` (ns).
    ///
    /// # Errors
    /// [`ImportError`] names the state and the error; nothing is changed then.
    fn import(&mut self, name: &str, _bytes: &[u8], _now: u64) -> Result<(), ImportError> {
        Err(ImportError::Unknown { name: name.into() })
    }
    /// The node's declared state that workers share, by name, for the graph that replaces this one.
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        Vec::new()
    }
    /// Takes over shared state of a node of the same kind, at time `now` (ns).
    ///
    /// `None` where the node cannot use that state as it is. It is then moved as [bytes](Self::import).
    fn adopt(
        &mut self,
        _name: &str,
        _heritage: &SharedStateRef,
        _now: u64,
    ) -> Option<Result<(), ImportError>> {
        None
    }
    /// Takes out a bounded piece of the state of flows that move to another worker.
    ///
    /// The answer is an image, which [`import`](Self::import) of the same node on the other worker adds to
    /// its state. State that belongs to no flow stays. The graph calls this again, with other packets in
    /// between, until `step` [is over](PartStep::is_over).
    fn take_part(&mut self, _part: &Part, step: &mut PartStep) -> Option<StateImage> {
        step.end();
        None
    }
    /// The names of the state by flow that cannot move with flows where a shuffle uses the key `by`.
    ///
    /// No flow moves where such state is behind that shuffle. Asked once, when the graph is built. A node
    /// that exports state and overrides [`take_part`](Self::take_part) names here the state that `take_part`
    /// leaves. The default is all exported state.
    fn bound(&self, _by: ShuffleKey) -> Vec<String> {
        self.export().into_iter().map(|(name, _)| name).collect()
    }
    /// The names of the state that moves with flows where a shuffle uses the key `by`.
    ///
    /// Together with [`bound`](Self::bound) these are all state by flow: they make it matter to which worker
    /// a packet comes.
    fn follows(&self, _by: ShuffleKey) -> Vec<String> {
        Vec::new()
    }
    /// A number that is equal for nodes of one graph that use the same state.
    ///
    /// Such nodes are, for example, the places of a function that stands in several chains.
    fn shares_state(&self) -> Option<usize> {
        None
    }
    /// Passes on queued packets, a batch at most, as [`drain`](Self::drain) does, but the node goes on
    /// afterwards.
    ///
    /// The graph calls this while flows move to another worker, since their state may follow only after their
    /// packets were processed. It calls until the node holds no packets, or passes none on. A transmit node
    /// continues to send the packets that it was given.
    fn flush(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// The progress of a node that transmits or gives packets to other workers.
    ///
    /// The answer has an entry for each way out that keeps its own order. Asked while flows move.
    fn departed(&self) -> Vec<Departed> {
        Vec::new()
    }
    /// The node itself, where a part of it survives a panic: queued packets, or its ends of rings.
    ///
    /// The graph asks before it builds the new node, and again to let the new node [restore](Self::restore)
    /// that part.
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        None
    }
    /// Takes over the surviving part of the node that this one replaces.
    ///
    /// Where it panics, the graph builds another node, which begins with nothing.
    fn restore(&mut self, _before: &mut dyn Any) {}
    /// Says that no node replaces this one, though the graph asked for its [survivors](Self::survivors).
    ///
    /// The node then goes on.
    fn restore_failed(&mut self) {}
    /// The node's part in the exchange of packets between workers, where it has one.
    fn handoff(&mut self) -> Option<&mut dyn Handoff> {
        None
    }
    /// Tables for the report at the end of a run, beside the counters; for example a monitor's largest flows.
    fn report(&self) -> Vec<Section> {
        Vec::new()
    }
}

/// A table in a report, for people and for `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Section {
    /// `"largest flows"`. Sections of several workers merge where their node, title and columns are the same.
    pub title: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows, one text for each column.
    pub rows: Vec<Vec<String>>,
    /// How many rows there would be if none were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Counts beside the rows, by name: `"refused_packets"`. The counts of workers are added up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// How the rows of several workers merge.
    #[serde(skip)]
    pub merge: SectionMerge,
}

/// How sections of several workers become one section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectionMerge {
    /// The rows follow each other in the order of the workers.
    #[default]
    Concatenate,
    /// Rows with the same first cell become one row, and their other numbers are added.
    Sum,
    /// As [`Sum`](Self::Sum), and then only the `rows` with the largest numbers in column `by` stay, largest
    /// first.
    ///
    /// The result is exact over all workers where each first cell occurs at one worker only, as a flow does.
    Largest {
        /// The column, from 0.
        by: usize,
        /// The number of rows.
        rows: usize,
    },
}

impl Section {
    /// Takes over the rows and counts of another worker, as [`merge`](Self::merge) says.
    pub fn absorb(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        self.of = match (self.of, other.of) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        if self.merge == SectionMerge::Concatenate {
            self.rows.extend(other.rows.iter().cloned());
            return;
        }
        let mut places: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        for (place, row) in self.rows.iter().enumerate() {
            places.insert(row.first().cloned().unwrap_or_default(), place);
        }
        for row in &other.rows {
            let key = row.first().cloned().unwrap_or_default();
            match places.get(&key) {
                Some(place) => {
                    add_numbers(&mut self.rows[*place], row);
                    // Both workers counted this row.
                    self.of = self.of.map(|of| of.saturating_sub(1));
                }
                None => {
                    places.insert(key, self.rows.len());
                    self.rows.push(row.clone());
                }
            }
        }
        if let SectionMerge::Largest { by, rows } = self.merge {
            let number =
                |row: &Vec<String>| row.get(by).and_then(|cell| cell.parse::<u64>().ok()).unwrap_or(0);
            self.rows.sort_by(|a, b| number(b).cmp(&number(a)).then_with(|| a.first().cmp(&b.first())));
            self.rows.truncate(rows);
        }
    }
}

/// Adds the whole numbers of a row to another row; other cells stay as they are.
fn add_numbers(to: &mut [String], from: &[String]) {
    for (cell, more) in to.iter_mut().zip(from).skip(1) {
        if let (Ok(ours), Ok(theirs)) = (cell.parse::<u64>(), more.parse::<u64>()) {
            *cell = ours.saturating_add(theirs).to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(merge: SectionMerge, rows: &[(&str, u64)]) -> Section {
        Section {
            title: "largest".into(),
            columns: vec!["key".into(), "bytes".into()],
            rows: rows.iter().map(|(key, bytes)| vec![(*key).into(), bytes.to_string()]).collect(),
            of: Some(rows.len() as u64),
            counts: BTreeMap::from([("left_out".into(), 2)]),
            merge,
        }
    }

    fn rows(section: &Section) -> Vec<(&str, u64)> {
        section.rows.iter().map(|row| (row[0].as_str(), row[1].parse().unwrap())).collect()
    }

    #[test]
    fn the_largest_of_all_workers_are_those_of_one_sorted_list() {
        // Each key occurs at one worker: the oracle is a sort of all rows.
        let all: Vec<(String, u64)> = (0..60u64).map(|i| (format!("k{i:02}"), i * 7_919 % 101)).collect();
        let merge = SectionMerge::Largest { by: 1, rows: 10 };
        let mut merged: Option<Section> = None;
        for worker in 0..3 {
            let mut own: Vec<(&str, u64)> =
                all.iter().skip(worker).step_by(3).map(|(key, bytes)| (key.as_str(), *bytes)).collect();
            own.sort_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
            let mut part = section(merge, &own[..10]);
            part.of = Some(own.len() as u64);
            match &mut merged {
                Some(merged) => merged.absorb(&part),
                None => merged = Some(part),
            }
        }
        let merged = merged.unwrap();
        let mut sorted: Vec<(&str, u64)> = all.iter().map(|(key, bytes)| (key.as_str(), *bytes)).collect();
        sorted.sort_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
        assert_eq!(rows(&merged), sorted[..10]);
        assert_eq!((merged.of, merged.counts["left_out"]), (Some(60), 6));
    }

    #[test]
    fn equal_keys_are_added_up_and_plain_sections_follow_each_other() {
        let mut sum = section(SectionMerge::Sum, &[("a", 1), ("b", 2)]);
        sum.absorb(&section(SectionMerge::Sum, &[("b", 40), ("c", 3)]));
        assert_eq!(rows(&sum), [("a", 1), ("b", 42), ("c", 3)]);
        assert_eq!(sum.of, Some(3), "what both have is one row");
        let mut plain = section(SectionMerge::Concatenate, &[("a", 1)]);
        plain.absorb(&section(SectionMerge::Concatenate, &[("a", 2)]));
        assert_eq!(rows(&plain), [("a", 1), ("a", 2)]);
        plain.absorb(&Section { counts: BTreeMap::from([("late".into(), 1)]), ..section(plain.merge, &[]) });
        assert_eq!(plain.counts, BTreeMap::from([("late".into(), 1), ("left_out".into(), 4)]));
    }
}
