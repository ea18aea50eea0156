//! Whether packets come out of a chain as they came in, or others in their place.

/// Whether an operator chain sends packets of its own in place of those that come to it. These leave the node at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// It does not.
    Nothing,
    /// In its last function.
    Last,
    /// Before its last one, which gets none of them.
    TooEarly,
}

impl Replaces {
    /// Of one function behind another.
    pub(crate) const fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Nothing, next) => next,
            _ => Self::TooEarly,
        }
    }
    /// Of operators in one function.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => Self::Nothing,
            (Self::TooEarly, _) | (_, Self::TooEarly) => Self::TooEarly,
            _ => Self::Last,
        }
    }
}
