//! Printing packets: one value, one line, the whole tree, and what changed between two packets.
//!
//! Everything is read from the field tables and written straight to the formatter: nothing here allocates.

mod difference;
mod dissect;
mod line;
mod parts;
mod show;
mod tree;

pub use difference::{Change, Difference, difference};
pub use dissect::{DissectedLayer, Dissection, MOST_LAYERS, Protocol, dissect, dissect_from, dissect_ip};
pub use line::{OneLine, one_line};
pub use parts::{Part, Parts};
pub use show::{Fields, Shown};
pub use tree::{Tree, tree};
