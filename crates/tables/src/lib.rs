//! Data structures that wait on memory: the flow table, timer wheel, longest-prefix match, prefetch and SIMD probes.
//!
//! - [`FlowTable`] maps keys to values for a bounded number of flows, with a keyed hash, expiry, and a policy for when
//!   it is full.
//! - [`Table`] is the interface by which a batch of packets looks up a table without waiting for memory packet by
//!   packet.
//! - [`KeyedCounterArray`] counts by key, over a flow table.
//! - [`Classifier`](classifier::Classifier) finds the rules whose tests of fields hold for a packet; [`MatchCache`](classifier::MatchCache) remembers them by flow.
//! - [`Lpm`] maps prefixes of addresses to values, and answers by the longest.
//! - [`MaglevTable`] says which backend a flow goes to, alike on every node.
//! - [`replicated`] state has one writer and readers that never wait; [`Locked`] state is one for all.
//! - [`TimerWheel`] keeps deadlines of numbered things.
//!
//! This is one of the crates that may use `unsafe`: one operation a block, each with its proof.

pub mod classifier;
mod counter_array;
pub mod cycles;
mod flow;
mod group;
mod handover;
mod hash;
mod lpm;
mod maglev;
mod memory;
mod parts;
mod prefetch;
mod ring_log;
mod shared;
pub mod stock;
mod table;
mod wheel;

pub use counter_array::{CounterArray, CounterChange, CounterOutcome, KeyedCounterArray};
pub use flow::{
    BUCKETS, Counters, Cursor, Encode, Entry, FlowHasher, FlowSuccession, FlowTable, FlowTableConfig,
    FlowTerms, FlowTicket, Full, ImportError, Iter, MAXIMUM_WORK, MapChange, MapOutcome, Occupied,
    TableError, Vacant,
};
pub use handover::Handover;
pub use hash::{Key, Secret, hash_pair, hash_words};
pub use lpm::{
    Address, Lpm, LpmConfig, LpmError, LpmHasher, LpmImportError, LpmTableError, LpmTicket, RouteChange,
    RouteLifetime, RouteOutcome, Routes, RoutesAnnouncer, RoutesFull,
};
pub use maglev::{MaglevBackend, MaglevError, MaglevTable};
pub use memory::{HugeArray, MemoryError, Zeroable};
pub use parts::{Parts, Whole};
pub use prefetch::{CACHE_LINE, prefetch};
pub use ring_log::{ImageError, RecentItem, RingLog};
pub use shared::{
    Changing, HeldRead, Locked, MAXIMUM_READERS, NoReaderLeft, Publication, ReadTable, Reader, Writer,
    replicated, replicated_of,
};
pub use table::{Asked, BULK, Missed, Table};
pub use wheel::TimerWheel;
