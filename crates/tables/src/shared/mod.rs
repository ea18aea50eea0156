//! State that several threads see: replicated, for one writer and readers that never wait ([`replicated`]), or behind
//! one lock, for whoever needs the latest ([`Locked`]). Both take their state as something that changes by plain
//! [changes](Changing), so that one function runs over either.

mod atomics;
mod locked;
mod replica;
mod shown;
#[cfg(all(test, not(loom)))]
mod tests;

pub use locked::Locked;
pub use replica::{MAXIMUM_READERS, NoReaderLeft, Publication, Reader, Writer, replicated, replicated_of};
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
    /// One change, with all that it depends on: no clock is read and no dice are thrown while it is applied.
    type Change: Clone + Send + 'static;
    /// What came of it.
    type Outcome;
    /// Does it.
    fn apply(&mut self, change: &Self::Change) -> Self::Outcome;
}
