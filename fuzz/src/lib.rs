//! What the fuzz targets share: the checks that the crates' own tests run, so that a target is a few lines.

#[path = "../../crates/packet/tests/packet/exercise.rs"]
mod exercise;

pub use exercise::{changes, difference, flow_key, header, parsers, printing};
