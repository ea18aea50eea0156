//! Traffic, oracles and network-namespace fixtures for tests.
//!
//! [`run`] sends frames through a function at several batch sizes, and returns the fate of each frame. So a
//! function's tests need no port and no root. [`Clocked`] does so step by step, under a clock that the test
//! moves.
#![forbid(unsafe_code)]

pub mod captures;
pub mod checksums;
mod clocked;
pub mod kinds;
pub mod linear;
pub mod mutate;
pub mod namespace;
mod run;

pub use clocked::Clocked;
pub use netbricks_core::packet::build;
/// Byte streams, for tests of crates that do not depend on them otherwise.
pub use netbricks_stream as stream;
pub use run::{BURSTS, Frame, Report, run, run_configured, run_node, run_with};
