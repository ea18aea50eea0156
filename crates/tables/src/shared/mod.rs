//! State that several threads see: replicated, or behind one lock.
//!
//! [`replicated`] state has one writer and readers that never wait. [`Locked`] state is for readers that need the
//! latest. Both hold state that is altered by plain [changes](Changing), so that one function runs over either.

mod atomics;
mod locked;
mod replica;
mod shown;
#[cfg(all(test, not(loom)))]
mod tests;

pub use locked::Locked;
pub use replica::{
    HeldRead, MAXIMUM_READERS, NoReaderLeft, Publication, Reader, Writer, replicated, replicated_of,
};
pub use shown::ReadTable;

/// State that changes by changes: values which give the same result wherever they are applied in the same order.
///
/// ```
/// use netbricks_tables::Changing;
///
/// #[derive(Default)]
/// struct Sum(u64);
///
/// impl Changing for Sum {
///     type Change = u64;
///     type Outcome = u64;
///     fn apply(&mut self, change: &u64) -> u64 {
///         self.0 += change;
///         self.0
///     }
/// }
/// assert_eq!(Sum(3).apply(&4), 7);
/// ```
pub trait Changing: 'static {
    /// One change, with all that it depends on: applying it reads no clock and draws no random number.
    type Change: Clone + Send + 'static;
    /// The result of a change.
    type Outcome;
    /// Does it.
    fn apply(&mut self, change: &Self::Change) -> Self::Outcome;
}
