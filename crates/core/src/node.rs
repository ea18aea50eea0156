//! A node of the graph: the one interface of receive queues, fused functions, queues and transmit queues.
//!
//! The graph makes one dynamic call for each batch.

mod handler;
mod queue;
mod shape;
mod state;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use netbricks_buffer::Batch;

pub use handler::{CallError, Handler, HandlerKind, HandlerSide, TENANT_READ, TENANT_WRITE, WriteSubject};
pub use queue::{Departed, NodeQueue};
pub use shape::{Output, Role, Shape};
pub use state::NodeState;

use crate::context::Context;
use crate::guards::Guards;
use crate::reason::Edge;
use crate::shuffle::Handoff;

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
    /// The node has nothing to do until packets come to it and it asks for a turn by [`Context::wake`].
    ///
    /// The graph does not ask again before that, so that a thousand such nodes cost nothing.
    Asleep,
    /// The source has ended and will never yield again.
    Done,
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
    #[error(
        "state `{name}`: taking it over panicked: {message}; its node was rebuilt, without the state taken over before"
    )]
    Panicked {
        /// The state's name.
        name: String,
        /// The panic's message.
        message: String,
    },
}

/// Exported state: its name, and bytes with a version and a checksum.
pub type StateImage = (String, Vec<u8>);

/// A node of the graph.
///
/// An implementation needs only `process` or `poll`; all other methods have sensible defaults.
///
/// Beside the packets of a call a node has parts. These are its [state](NodeState), the
/// [packets that it keeps](NodeQueue), and its part in the [exchange between workers](Handoff). The graph
/// asks for each part as a whole. A node around another passes on each part as it is, so that it hides
/// nothing of the other node:
///
/// ```
/// use netbricks_core::buffer::Batch;
/// use netbricks_core::guards::Guards;
/// use netbricks_core::shuffle::Handoff;
/// use netbricks_core::{Context, Edge, Node, NodeQueue, NodeState, Poll, Shape};
///
/// struct Around(Box<dyn Node>);
///
/// impl Node for Around {
///     fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
///         self.0.process(input, batch, cx);
///     }
///     fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
///         self.0.poll(batch, cx)
///     }
///     fn shape(&self) -> Shape {
///         Shape { kind: "around".into(), ..self.0.shape() }
///     }
///     fn guards(&self, edge: Edge) -> Guards {
///         self.0.guards(edge)
///     }
///     fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
///         self.0.with_state(ask);
///     }
///     fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
///         self.0.as_queue()
///     }
///     fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
///         self.0.as_handoff()
///     }
/// }
/// ```
pub trait Node {
    /// Processes a batch that arrived on input `input`.
    ///
    /// Packets that are in `batch` afterwards leave on [`Edge::OUT`](crate::Edge::OUT). The node keeps all
    /// others, or passes them to `cx`: dropped, emitted on another edge, created or sent.
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context);

    /// Takes the turn of a schedulable node.
    ///
    /// `batch` is empty when called. Packets that the node puts into it then leave on
    /// [`Edge::OUT`](crate::Edge::OUT).
    fn poll(&mut self, _batch: &mut Batch, _cx: &mut Context) -> Poll {
        Poll::Done
    }
    /// The node's properties: its role, kind, inputs, ways out and so on.
    ///
    /// Asked once, when the graph is built.
    fn shape(&self) -> Shape {
        Shape::default()
    }
    /// The packets that may leave by an edge; asked when filters are derived from the graph.
    ///
    /// The default knows nothing.
    fn guards(&self, _edge: Edge) -> Guards {
        Guards::Unknown
    }
    /// Calls `watch` with file descriptors on which an idle worker sleeps.
    ///
    /// One of them becomes readable when a poll would yield packets. A node without such descriptors calls
    /// nothing. The worker does not watch them while there are packets, since that would cost a system call
    /// for each packet.
    fn descriptors<'n>(&'n self, _watch: &mut dyn FnMut(BorrowedFd<'n>)) {}
    /// Whether [`descriptors`](Self::descriptors) names any.
    ///
    /// Asked also where the worker does not sleep. A node for which preparing a sleep costs something answers without that.
    fn has_descriptor(&self) -> bool {
        let mut any = false;
        self.descriptors(&mut |_| any = true);
        any
    }
    /// Calls `ask` with the node's state, where it has any: `ask(self)`, or `ask` with the part that keeps
    /// it.
    ///
    /// The method returns no reference, so that nodes can share state that is borrowed only for the time of
    /// the call.
    fn with_state(&mut self, _ask: &mut dyn FnMut(&mut dyn NodeState)) {}
    /// The packets that the node keeps, where it keeps any.
    ///
    /// For a node that transmits, these are the packets that are on their way.
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        None
    }
    /// The node's part in the exchange of packets between workers, where it has one.
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        None
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
