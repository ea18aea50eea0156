//! Routes that workers share, as a lookup reads them: by one read for each whole batch.
//!
//! Lookups in a read that stays open cost as much as those in a worker's own table. A writer waits until the
//! batches in progress have ended.

use std::cell::Cell;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use netbricks_tables::{Asked, Encode, HeldRead, LpmTicket, Missed, Routes, RoutesAnnouncer, Table};

use super::{Bounded, Contents};
use crate::operators::Expiring;
use crate::state::{Settle, State};
use crate::worker::Worker;

/// State with routes in it, in which [`HeldRoutes`] look up.
pub trait RoutesState: Contents {
    /// The value of a prefix.
    type Value: Copy + Eq + Hash + 'static;

    /// The routes.
    fn routes(&self) -> &Routes<Self::Value>;
}

impl<V: Copy + Eq + Hash + Encode + Send + Sync + 'static> RoutesState for Routes<V> {
    type Value = V;
    #[inline(always)]
    fn routes(&self) -> &Self {
        self
    }
}

thread_local! {
    /// Reads on this thread that go on for their batch.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a batch that has such a read.
pub(super) fn is_held() -> bool {
    HELD.get() > 0
}

/// Routes that all workers share, for the lookups of one of them.
///
/// [`Bounded::held`] makes them.
pub struct HeldRoutes<T: RoutesState> {
    state: Bounded<T>,
    /// The read of the batch in progress; between batches a read of empty routes.
    read: HeldRead<T>,
    /// The read of empty routes, during a batch.
    idle: Option<HeldRead<T>>,
}

impl<T: RoutesState> HeldRoutes<T> {
    #[inline(always)]
    fn open(&mut self) {
        // The read of the batch before has ended, unless its end could not be told.
        self.close();
        self.idle = Some(std::mem::replace(&mut self.read, self.state.hold()));
        HELD.set(HELD.get() + 1);
    }

    #[inline(always)]
    fn close(&mut self) {
        if let Some(idle) = self.idle.take() {
            HELD.set(HELD.get() - 1);
            self.read = idle;
        }
    }
}

impl<T: RoutesState> Drop for HeldRoutes<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends the read when the batch has ended.
struct Release<T: RoutesState>(State<HeldRoutes<T>>);

impl<T: RoutesState> Settle for Release<T> {
    fn begin(&self) {}
    #[inline]
    fn settle(&self) {
        if let Some(mut routes) = self.0.try_borrow_mut() {
            routes.close();
        }
    }
}

impl<T: RoutesState> Bounded<T> {
    /// The routes for [`lookup`](crate::Operator::lookup), which reads them once for each batch.
    ///
    /// The read goes on until the batch has left the function, so that packets cost as little as with a
    /// worker's own table. All packets of a batch find the same routes. A function that calls this may change
    /// the state only in its handlers: a change inside a batch, or inside a call on
    /// [strict](super::Strict) state, is [refused](super::CannotWrite).
    ///
    /// ```
    /// use netbricks_core::consistency::BoundedInconsistency;
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::tables::{LpmConfig, Routes};
    /// use netbricks_core::view::IpRewrite;
    /// use netbricks_core::{DropReason, Function, Input, Operator, Worker};
    ///
    /// /// Drops packets without a route.
    /// fn routed(input: Input, worker: &Worker) -> impl Function {
    ///     let size = LpmConfig { prefixes: 1_000, groups: 1_000 };
    ///     let bounded = BoundedInconsistency { updates: 0 };
    ///     let routes = worker.state::<Routes<u32>, _>("routes", bounded, (Some(size), None));
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .lookup(&routes.held(worker), |packet| packet.header().destination(), |_, hop| hop.copied())
    ///         .filter(DropReason::NoRoute, |packet| packet.get::<Option<u32>>().is_some())
    ///         .done()
    /// }
    ///
    /// let packet = netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2);
    /// let report = netbricks_testkit::run_with(routed, [packet]);
    /// assert_eq!(report.dropped(DropReason::NoRoute), 1);
    /// ```
    pub fn held(&self, worker: &Worker) -> State<HeldRoutes<T>> {
        self.writes_apart();
        let read = HeldRead::own(Rc::new(T::least()));
        let routes = State::of(HeldRoutes { state: self.clone(), read, idle: None });
        worker.declarations.borrow_mut().settles(Rc::new(Release(routes.clone())));
        routes
    }
}

impl<T: RoutesState> HeldRoutes<T> {
    #[inline(always)]
    fn routes(&self) -> &Routes<T::Value> {
        self.read.routes()
    }
}

/// Begins the read of the batch. Routes that end are ended by their writer.
impl<T: RoutesState> Expiring for HeldRoutes<T> {
    #[inline(always)]
    fn expire(&mut self, _: u64, _: usize) {
        self.open();
    }
}

impl<T: RoutesState> Table for HeldRoutes<T> {
    type Key = IpAddr;
    type Short = Ipv4Addr;
    type Ticket = LpmTicket<Ipv6Addr>;
    type Entry<'t> = Option<&'t T::Value>;
    type Hasher = RoutesAnnouncer;

    #[inline(always)]
    fn shorten(address: &IpAddr) -> Option<Ipv4Addr> {
        Routes::<T::Value>::shorten(address)
    }
    #[inline(always)]
    fn lengthen(address: Ipv4Addr) -> IpAddr {
        Routes::<T::Value>::lengthen(address)
    }
    #[inline(always)]
    fn hasher(&self) -> RoutesAnnouncer {
        self.routes().hasher()
    }
    #[inline(always)]
    fn hash(hasher: &RoutesAnnouncer, address: &IpAddr) -> Self::Ticket {
        <Routes<T::Value> as Table>::hash(hasher, address)
    }
    #[inline(always)]
    fn prefetch(&self, _: &IpAddr, _: &mut Self::Ticket) {}
    #[inline(always)]
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<IpAddr>, &'k mut Self::Ticket)>,
        missed: &mut Missed,
    ) {
        self.routes().prefetch_all(keys, missed);
    }
    #[inline(always)]
    fn tell(&mut self, _: u64) {}
    #[inline(always)]
    fn resolve(&mut self, address: IpAddr, ticket: Self::Ticket) -> Option<&T::Value> {
        self.routes().known(address, ticket)
    }
    #[inline(always)]
    fn resolve_here(&mut self, address: Ipv4Addr, _: Self::Ticket) -> Option<Option<&T::Value>> {
        self.routes().known_here(address)
    }
    #[inline(always)]
    fn resolve_there(&mut self, address: &IpAddr, ticket: Self::Ticket) -> Option<Option<&T::Value>> {
        self.routes().known_there(address, ticket)
    }
}
