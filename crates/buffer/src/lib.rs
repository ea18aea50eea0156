//! Frame pools, owned packets, batches and rings between cores.
//!
//! Frames lie in a shared memory file, metadata in a private table; a [`Packet`] is the one handle to both. Read in
//! this order: `region` (the memory), `class` (frames that are free), `depot` (all that a pool has), `pool`, `packet`,
//! `batch`, `queue`, `ring`.

mod annotations;
mod batch;
mod class;
mod depot;
mod meta;
mod packet;
mod poison;
mod pool;
mod prefetch;
mod pulled;
pub mod queue;
mod region;
mod ring;
mod worker;

pub use annotations::Annotations;
pub use batch::{BATCH, Batch, Drain, PacketMut, Visit};
pub use meta::{GsoKind, Offload, VlanTag};
pub use packet::{Bytes, NoRoom, Packet, RawFrame};
pub use pool::{Pool, PoolBuilder, PoolCounters, PoolError};
pub use prefetch::prefetch_read;
pub use region::{Pages, Region};
pub use ring::{Consumer, Producer, Ring};
pub use worker::{NoWorkerSlot, WorkerSlot};

/// Bytes kept free before an arriving packet's first byte, for headers to be pushed; the room that AF_XDP reserves.
pub const HEADROOM: usize = 256;
