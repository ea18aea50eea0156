//! A node of the graph: the one interface behind receive queues, fused functions, keepers of packets and transmit
//! queues. One dynamic call hands over a whole batch.

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use netbricks_buffer::Batch;

use crate::consistency::SharedStateRef;
use crate::context::Context;
use crate::events::Schedule;
use crate::reason::Edge;
use crate::shuffle::{Handoff, Part, PartStep, ShuffleKey};

/// What a node does in the graph, which is how its packets are accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Brings packets in from outside: what its `poll` yields is counted as received.
    Receive,
    /// Works on packets.
    Function,
    /// Gives packets to the outside: what it reports through [`Context::sent`] is counted as sent.
    Transmit,
}

/// How a schedulable node's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There may be more at once.
    Busy,
    /// Nothing to do now; ask again as the idle policy says, or when one of [`Node::descriptors`] becomes readable.
    Idle,
    /// Nothing to do before this time (ns, the graph's clock).
    Until(u64),
    /// The source has ended and will never yield again.
    Done,
}

/// A way out that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its number.
    pub edge: Edge,
    /// Its name in configuration and drawings: `"out"`, `"reply"`.
    pub name: String,
    /// Whether the graph may leave it unconnected; packets on it are then dropped as
    /// [`Unconnected`](crate::DropReason::Unconnected).
    pub optional: bool,
}

/// A named operation of the control side on a node, as Click's read and write handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// `"flows.occupancy"`
    pub name: String,
    /// One sentence: what it answers, what argument it takes.
    pub summary: String,
}

/// A handler that could not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node has no handler of that name.
    #[error("no handler `{name}`; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, separated by commas.
        known: String,
    },
    /// The argument does not fit.
    #[error("handler `{name}`: {problem}")]
    Argument {
        /// The handler.
        name: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// It panicked, and its node was made anew.
    #[error("handler `{name}` panicked: {message}")]
    Panicked {
        /// The handler.
        name: String,
        /// What it said.
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
        /// What is wrong.
        problem: String,
    },
    /// Taking it over panicked: the node began anew, without what it had been given before.
    #[error("state `{name}`: taking it over panicked: {message}; its node began anew")]
    Panicked {
        /// The state's name.
        name: String,
        /// What it said.
        message: String,
    },
}

/// How far a way out is: what another worker sends may overtake packets of it that have not left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Packets that it was given since the node began.
    pub given: u64,
    /// How many of these, the first ones, have left: for certain where it sends in the order in which it was given.
    pub left: u64,
}

/// Exported state: name and versioned, checked bytes.
pub type StateImage = (String, Vec<u8>);

/// A node. Only `process` or `poll` must do something; the rest has sensible defaults.
pub trait Node {
    /// A batch arrived on input `input`. What is in `batch` afterwards leaves on [`Edge::OUT`]; everything else goes
    /// through `cx` (dropped, emitted on another edge, created, sent) or is held by the node.
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context);

    /// Its turn as a schedulable: puts what it has into `batch` (empty when called), which then leaves on
    /// [`Edge::OUT`].
    fn poll(&mut self, _batch: &mut Batch, _cx: &mut Context) -> Poll {
        Poll::Done
    }
    /// Whether it wants turns.
    fn is_schedulable(&self) -> bool {
        false
    }
    /// When its events are due, where it has any: `poll` then runs one that is due and answers
    /// [`Poll::Until`] the next. What [`compose`](crate::compose()) makes has them from
    /// [`Worker::invoke_every`](crate::Worker::invoke_every); a node written by hand asks for turns by
    /// [`is_schedulable`](Self::is_schedulable) alone.
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    /// How its packets are accounted for.
    fn role(&self) -> Role {
        Role::Function
    }
    /// What kind of node it is, for drawings and reports: `"function"`, `"af_xdp receive"`.
    fn kind(&self) -> &str {
        "function"
    }
    /// How many inputs it has.
    fn inputs(&self) -> usize {
        1
    }
    /// Its ways out.
    fn outputs(&self) -> Vec<Output> {
        vec![Output { edge: Edge::OUT, name: "out".into(), optional: false }]
    }
    /// Whether it may keep packets between calls. Asked once, when the graph is built.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// Packets that it keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// How many packets it queues until it gets its turn, where it is such a queue. No burst of a source that leads to it is
    /// longer, so that what that brings in a turn finds room. Asked once, when the graph is built.
    fn queue(&self) -> Option<usize> {
        None
    }
    /// Gives up what it holds when the graph is taken down, through `batch` (leaves on [`Edge::OUT`]) or `cx`.
    /// Called again until it leaves `batch` empty.
    fn drain(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// Whether `drain` is called once though it keeps no packets: it was waiting for more.
    fn has_an_end(&self) -> bool {
        false
    }
    /// Calls `watch` with file descriptors of which one becomes readable when a poll would yield packets: idle workers sleep
    /// on them. With none, where there are none. Nobody watches them while there are packets, which would cost the kernel
    /// a call a packet.
    fn descriptors<'n>(&'n self, _watch: &mut dyn FnMut(BorrowedFd<'n>)) {}
    /// Its handlers.
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
    /// All its declared state.
    fn export(&self) -> Vec<StateImage> {
        Vec::new()
    }
    /// Takes over state that a node of its kind exported, at time `now` (ns).
    ///
    /// # Errors
    /// [`ImportError`] names the state and what does not fit; nothing is changed then.
    fn import(&mut self, name: &str, _bytes: &[u8], _now: u64) -> Result<(), ImportError> {
        Err(ImportError::Unknown { name: name.into() })
    }
    /// Its declared state that workers share, by name, for the graph that replaces this one.
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        Vec::new()
    }
    /// Goes on with shared state of a node of its kind, at time `now` (ns). `None` where it cannot be had as it is, and moves as
    /// [bytes](Self::import).
    fn adopt(
        &mut self,
        _name: &str,
        _heritage: &SharedStateRef,
        _now: u64,
    ) -> Option<Result<(), ImportError>> {
        None
    }
    /// Takes out the state of flows that move to another worker, a bounded piece of it: an image that
    /// [`import`](Self::import) of the same node there adds to what it has. State that is no flow's stays. Called again, with
    /// other packets in between, until `step` [is over](PartStep::is_over).
    fn take_part(&mut self, _part: &Part, step: &mut PartStep) -> Option<StateImage> {
        step.end();
        None
    }
    /// The names of its state that is of flows but cannot go with them where a shuffle sorts them by `by`: with it behind
    /// that shuffle no flow moves. Asked once, when the graph is built. A node that exports state and overrides
    /// [`take_part`](Self::take_part) says here what that does not take; without, it is all.
    fn bound(&self, _by: ShuffleKey) -> Vec<String> {
        self.export().into_iter().map(|(name, _)| name).collect()
    }
    /// The names of its state that goes with flows where a shuffle sorts them by `by`. With [`bound`](Self::bound), all that
    /// it knows by flow: what makes it matter which worker a packet comes to.
    fn follows(&self, _by: ShuffleKey) -> Vec<String> {
        Vec::new()
    }
    /// What nodes of one graph answer alike whose state is one, such as the places of a function that stands in several.
    fn shares_state(&self) -> Option<usize> {
        None
    }
    /// Lets go of packets that it queues, a batch at most, as [`drain`](Self::drain) does, but goes on afterwards: flows
    /// move to another worker, and their state may follow only what has been worked on. Called until it holds none, or
    /// lets none go. What transmits gets on with what it was given.
    fn flush(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// Of what transmits or gives packets to other workers: how far it is with what it was given, for each of its ways out that
    /// keep an order of their own. Asked while flows move.
    fn departed(&self) -> Vec<Departed> {
        Vec::new()
    }
    /// Itself, where a part of it survives a panic in its function: packets that it queues, its ends of rings. It is asked before
    /// a node is made in its place, and again for that one to [restore](Self::restore).
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        None
    }
    /// Takes over what survives of the node in whose place it comes. Where it panics, another node begins with nothing.
    fn restore(&mut self, _before: &mut dyn Any) {}
    /// None came in its place, though it was asked for its [survivors](Self::survivors): it goes on itself.
    fn restore_failed(&mut self) {}
    /// Its part in what goes from worker to worker, where it has one.
    fn handoff(&mut self) -> Option<&mut dyn Handoff> {
        None
    }
    /// Lines for the end-of-run report, beside the counters (a monitor's top flows): a title and rows.
    fn report(&self) -> Vec<Section> {
        Vec::new()
    }
}

/// A table in a report, printed for people and in `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Section {
    /// `"largest flows"`. Workers' sections of one node, title and columns become one.
    pub title: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows, one text a column.
    pub rows: Vec<Vec<String>>,
    /// How many rows there would be, had none been left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// What was counted beside the rows, by name: `"refused_packets"`. Workers' counts are added up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// What becomes of the rows of several workers.
    #[serde(skip)]
    pub merge: SectionMerge,
}

/// How sections of several workers become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectionMerge {
    /// Their rows follow each other in the order of the workers.
    #[default]
    Concatenate,
    /// Rows with the same first cell become one, their other numbers added.
    Sum,
    /// As [`Sum`](Self::Sum); then those `rows` with the largest numbers in column `by` are kept, largest first. That
    /// is the truth over all workers where each first cell is one worker's own, as flows are.
    Largest {
        /// The column, from 0.
        by: usize,
        /// How many rows.
        rows: usize,
    },
}

impl Section {
    /// Takes over another worker's rows, as [`merge`](Self::merge) says, and its counts.
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
                    // Both counted it.
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

/// Adds the whole numbers of a row to another; other cells stay as they are.
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
        // Each key is one worker's: the oracle is a sort of everything.
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
