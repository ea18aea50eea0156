//! Whether a chain passes its packets on, or sends others in their place.

/// Whether an operator chain sends its own packets in place of those that come to it.
///
/// Its own packets leave the node at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// It passes its packets on.
    Nothing,
    /// Its last function replaces packets.
    Last,
    /// An earlier function replaces packets, and its last function gets none of them.
    TooEarly,
}

impl Replaces {
    /// The value for one function behind another.
    pub(crate) const fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Nothing, next) => next,
            _ => Self::TooEarly,
        }
    }
    /// The value for operators of one function.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => Self::Nothing,
            (Self::TooEarly, _) | (_, Self::TooEarly) => Self::TooEarly,
            _ => Self::Last,
        }
    }
}
