//! Tenants: graphs of several parties on one worker, which share its time by weight and priority.
//!
//! A tenant's packets wait in a [queue](TenantQueue) of its own. The graph gives tenants turns by start-time fair
//! queueing on measured cycles (FastPaas, section 4). The operator's own nodes, such as ports and the
//! [`Demultiplexer`], get their turns between those of tenants.

mod demultiplexer;
mod policy;
mod queue;
pub(crate) mod scheduler;

pub use demultiplexer::{Demultiplexer, TenantFilter, TenantFilterError};
pub use policy::{TenantPolicy, TenantPolicyError};
pub use queue::TenantQueue;
pub use scheduler::{TenantEvent, TenantStatus, ThreadClock, ThreadTime};
