//! Rules that can be meant otherwise.
use crate::rule::Rule;
/// A lint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lint {
    /// Host bits.
    HostBits {
        /// The end.
        end: usize,
        /// Written.
        written: String,
        /// Cleared.
        cleared: String,
    },
}
pub(crate) fn one_way(_: &Rule) -> Option<Lint> {
    None
}
