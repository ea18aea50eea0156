//! Tables that a packet's `lookup` may ask.
//!
//! There are three: a worker's private table, one that all workers share under one lock, and one that a
//! writer keeps for readers.

use std::marker::PhantomData;

use netbricks_tables::Table;

use super::entry::Shown;
use super::{Bounded, Contents, StrictState};
use crate::operator::{Known, Operator};
use crate::operators::{Expiring, Lookup, LookupLocked, LookupShown};
use crate::state::{State, TableKey};
use crate::view::View;

/// A handle to a table that [`Operator::lookup`] can ask.
///
/// Its consistency decides which operator that is, and what the entry can do. [`MapEntry`](super::MapEntry) has what
/// all entries can do, for a function that leaves the consistency open.
///
/// ```
/// use netbricks_core::consistency::{BoundedInconsistency, Consistency, Lookable, MapEntry, NoExternalAccess, Strict};
/// use netbricks_core::packet::{Ip, Link};
/// use netbricks_core::tables::{FlowTable, FlowTableConfig};
/// use netbricks_core::view::{IpRewrite, Metadata};
/// use netbricks_core::{DropReason, Function, Input, Operator, StoredFlow, Worker};
///
/// type Flows = FlowTable<StoredFlow, u64>;
///
/// /// Lets the first two packets of each flow pass: of each worker's, or of all workers together.
/// fn quota<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
/// where
///     C: Consistency,
///     C::Handle<Flows>: Lookable<Table = Flows>,
///     for<'e> <C::Handle<Flows> as Lookable>::Entry<'e>: MapEntry<Value = u64>,
/// {
///     let flows = worker.state::<Flows, C>("flows", consistency, FlowTableConfig::new(64));
///     input
///         .parse::<Link>()
///         .parse::<Ip>()
///         .lookup(&flows, |packet| packet.flow_key(), |_, entry| {
///             let seen = entry.value().map_or(1, |seen| seen + 1);
///             // Where it could not be written this packet goes uncounted.
///             let _ = entry.put(seen);
///             seen
///         })
///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 2)
///         .done()
/// }
///
/// let packets = || [(); 3].map(|()| netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2));
/// let own = netbricks_testkit::run_with(|input, worker| quota(input, worker, NoExternalAccess), packets());
/// let strict = netbricks_testkit::run_with(|input, worker| quota(input, worker, Strict), packets());
/// let bounded = BoundedInconsistency { updates: 8 };
/// let bounded = netbricks_testkit::run_with(move |input, worker| quota(input, worker, bounded), packets());
/// assert_eq!([own, strict, bounded].map(|report| report.dropped(DropReason::RateLimited)), [1; 3]);
/// ```
pub trait Lookable: Clone + 'static {
    /// The table.
    type Table: Table;
    /// The entry for a key.
    type Entry<'e>;
    /// The operator.
    #[doc(hidden)]
    type Lookup<A: Operator, F: Ask<A, Self>>: Operator<In = A::In, Out = Known<A, F::Found>>;

    /// Puts it behind `input`.
    #[doc(hidden)]
    fn lookup<A: Operator, F: Ask<A, Self>>(&self, input: A, functions: F) -> Self::Lookup<A, F>;
}

/// A lookup's two functions: one computes a packet's key, the other gets the entry.
#[doc(hidden)]
pub trait Ask<A: Operator, L: Lookable> {
    type Query: TableKey<Stored = <L::Table as Table>::Key>;
    type Found: Copy + 'static;
    type Key: FnMut(&View<'_, A::Out>) -> Self::Query + 'static;
    type Visit: FnMut(&mut View<'_, A::Out>, L::Entry<'_>) -> Self::Found + 'static;
    fn both(self) -> (Self::Key, Self::Visit);
}

/// The two functions as the author wrote them.
#[doc(hidden)]
pub struct Asked<Q, K, U, M>(K, U, PhantomData<fn() -> (Q, M)>);

impl<Q, K, U, M> Asked<Q, K, U, M> {
    pub(crate) fn new(key: K, visit: U) -> Self {
        Self(key, visit, PhantomData)
    }
}

impl<A, L, Q, K, U, M> Ask<A, L> for Asked<Q, K, U, M>
where
    A: Operator,
    L: Lookable,
    Q: TableKey<Stored = <L::Table as Table>::Key>,
    M: Copy + 'static,
    K: FnMut(&View<'_, A::Out>) -> Q + 'static,
    U: FnMut(&mut View<'_, A::Out>, L::Entry<'_>) -> M + 'static,
{
    type Query = Q;
    type Found = M;
    type Key = K;
    type Visit = U;
    fn both(self) -> (K, U) {
        (self.0, self.1)
    }
}

impl<T: Table + Expiring> Lookable for State<T> {
    type Table = T;
    type Entry<'e> = T::Entry<'e>;
    type Lookup<A: Operator, F: Ask<A, Self>> = Lookup<A, T, F::Query, F::Key, F::Visit, F::Found>;

    fn lookup<A: Operator, F: Ask<A, Self>>(&self, input: A, functions: F) -> Self::Lookup<A, F> {
        let (key, visit) = functions.both();
        Lookup::new(input, self.clone(), key, visit)
    }
}

impl<T: Table + Expiring + Contents> Lookable for StrictState<T> {
    type Table = T;
    type Entry<'e> = T::Entry<'e>;
    type Lookup<A: Operator, F: Ask<A, Self>> = LookupLocked<A, T, F::Query, F::Key, F::Visit, F::Found>;

    fn lookup<A: Operator, F: Ask<A, Self>>(&self, input: A, functions: F) -> Self::Lookup<A, F> {
        let (key, visit) = functions.both();
        LookupLocked::new(input, self.clone(), key, visit)
    }
}

impl<T: Shown> Lookable for Bounded<T> {
    type Table = T;
    type Entry<'e> = T::Seen<'e>;
    type Lookup<A: Operator, F: Ask<A, Self>> = LookupShown<A, T, F::Query, F::Key, F::Visit, F::Found>;

    fn lookup<A: Operator, F: Ask<A, Self>>(&self, input: A, functions: F) -> Self::Lookup<A, F> {
        let (key, visit) = functions.both();
        LookupShown::new(input, self.clone(), key, visit)
    }
}
