//! The design's claims about operators and graphs, through the public interface and on generated packets.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod annotations;
mod asked;
mod bounded_lookups;
mod branches;
mod conservation;
mod consistency;
mod control;
mod divided;
mod drawing;
mod ends;
mod event_panics;
mod event_replay;
mod event_state;
mod events;
mod exports;
mod fused;
mod graphs;
mod harness;
mod held;
mod icmp;
mod incomplete;
mod isolation;
mod lookups;
mod operators;
mod outward;
mod panics;
mod parsing;
mod parts;
mod reads;
mod replacing;
mod replies;
mod resizing;
mod rewriting;
mod schedule;
mod shared_state;
mod state;
mod waiting;
mod windows;
mod worklist;
