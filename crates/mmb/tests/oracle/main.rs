//! A naive evaluator of rules, which shares no code with the engine, over random rules and packets.
//!
//! `NETBRICKS_MMB_PAIRS` is the number of pairs of rules and a packet; 1,000,000 take some minutes.

mod fields;
mod generate;
mod history;
mod matching;
mod packets;
mod places;
mod rewriting;
mod stateful;
mod stateless;
mod tracking;
mod translated;
mod verdict;
