//! What a packet's `lookup` may ask: a worker's own table, or one that all share under one lock.

use netbricks_tables::Table;

use super::{Contents, StrictState};
use crate::operator::{Known, Operator};
use crate::operators::{Expiring, Lookup, LookupLocked};
use crate::state::{State, TableKey};
use crate::view::View;

/// A handle to a table that [`Operator::lookup`] can ask. Its consistency decides which operator that is, and nothing else
/// in the function.
pub trait Lookable: Clone + 'static {
    /// The table.
    type Table: Table + Expiring;
    /// The operator.
    #[doc(hidden)]
    type Lookup<A, Q, K, U, M>: Operator<In = A::In, Out = Known<A, M>>
    where
        A: Operator,
        Q: TableKey<Stored = <Self::Table as Table>::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, <Self::Table as Table>::Entry<'_>) -> M + 'static;

    /// Puts it behind `input`.
    #[doc(hidden)]
    fn lookup<A, Q, K, U, M>(&self, input: A, key: K, visit: U) -> Self::Lookup<A, Q, K, U, M>
    where
        A: Operator,
        Q: TableKey<Stored = <Self::Table as Table>::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, <Self::Table as Table>::Entry<'_>) -> M + 'static;
}

impl<T: Table + Expiring> Lookable for State<T> {
    type Table = T;
    type Lookup<A, Q, K, U, M>
        = Lookup<A, T, Q, K, U, M>
    where
        A: Operator,
        Q: TableKey<Stored = T::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static;

    fn lookup<A, Q, K, U, M>(&self, input: A, key: K, visit: U) -> Lookup<A, T, Q, K, U, M>
    where
        A: Operator,
        Q: TableKey<Stored = T::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static,
    {
        Lookup::new(input, self.clone(), key, visit)
    }
}

impl<T: Table + Expiring + Contents> Lookable for StrictState<T> {
    type Table = T;
    type Lookup<A, Q, K, U, M>
        = LookupLocked<A, T, Q, K, U, M>
    where
        A: Operator,
        Q: TableKey<Stored = T::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static;

    fn lookup<A, Q, K, U, M>(&self, input: A, key: K, visit: U) -> LookupLocked<A, T, Q, K, U, M>
    where
        A: Operator,
        Q: TableKey<Stored = T::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, A::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static,
    {
        LookupLocked::new(input, self.clone(), key, visit)
    }
}
