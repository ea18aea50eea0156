//! Maglev's table for your own functions: it only gives the backend of a new flow.

use netbricks_core::consistency::{Bounded, BoundedInconsistency};
use netbricks_core::packet::FlowKey;
use netbricks_core::{TableKey, Worker};

use super::MaglevConfig;
use super::backends::Backends;
use super::handlers;
use crate::snapshot::Current;

/// The backends that new flows go to, the same for every worker and node with one configuration.
///
/// [`maglev`](super::maglev) uses it for flows that it does not know. All workers share it under bounded
/// inconsistency, so that the handlers `add`, `drain` and `remove` change backends while packets flow.
///
/// ```
/// use netbricks_core::packet::FlowKey;
/// use netbricks_functions::maglev::{LookupTable, MaglevConfig};
/// # let pool = netbricks_core::buffer::Pool::builder().frames(64).build()?;
/// # let worker = netbricks_core::Worker::new(0, 1, pool);
///
/// let backends = ["web-1 02:00:00:00:00:01", "web-2 02:00:00:00:00:02"].map(|backend| backend.parse());
/// let config = MaglevConfig { backends: Vec::from_iter(backends.into_iter().flatten()), slots: 251, ..Default::default() };
/// let mut table = LookupTable::new(&worker, &config);
/// let flow = FlowKey::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 1_000, 80, 6);
/// assert!(table.lookup(&flow).is_some_and(|backend| backend < 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LookupTable(Current<Backends>);

impl LookupTable {
    /// Declares the backends of `config` as the function's state `backends`, with the handlers that change them.
    ///
    /// Settings of `config` about connections and addresses are ignored. If a setting is invalid (slots that
    /// are no prime, a backend given twice), the function is not built.
    pub fn new(worker: &Worker, config: &MaglevConfig) -> Self {
        let backends: Bounded<Backends> =
            worker.state("backends", BoundedInconsistency { updates: 0 }, config.state());
        handlers::declare_changes(&backends, worker);
        Self(Current::of(backends))
    }

    /// The number of the backend for a new flow; `None` while no backend takes new flows.
    ///
    /// Backends of the configuration have numbers in its order, from 0. A backend that is added later gets
    /// the first free number.
    #[inline]
    pub fn lookup(&mut self, flow: &FlowKey) -> Option<usize> {
        self.0.get().choose(&flow.store())
    }
}
