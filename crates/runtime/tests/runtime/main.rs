//! The runtime's behaviour through its public interface.
#![expect(clippy::unwrap_used, reason = "what tests build on must be there, or they fail")]

mod asked;
mod blocked_events;
mod buffers;
mod change;
mod clocks;
mod conservation;
mod deadlines;
mod events;
mod everywhere;
mod groups;
mod idle;
mod inherited;
mod mail;
mod moves;
mod no_room;
mod nodes;
mod queues;
mod renewed;
mod rewritten;
mod series;
mod shuffle;
mod signals;
mod start;
mod steps;
mod stopped;
mod streams;
mod succeeded;
mod together;
