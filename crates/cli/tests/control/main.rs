//! Runs that the command asks and changes while packets move, and what they leave when they are killed.
//!
//! Tests on real traffic need root; without it, each of them prints that it was skipped.

mod commands;
mod dataplane;
mod filters;
mod function_events;
mod hangup;
mod instances;
mod killed;
mod log;
mod named;
mod places;
mod refusals;
mod segment;
mod service;
mod shell;
mod two_hundred;
mod unconfirmed;
mod veth;
