//! Printing packets: one value, one line, the whole tree, and the changes between two packets.
//!
//! All values are read from the field tables and written directly to the formatter: no code here allocates.

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
