//! The only unsafe code of this crate, each file with one purpose and a safe interface.
//!
//! - the timer that ticks a thread's engine (`ticks`)
//! - native code that this process compiled (`artifact`)
//! - linear memories into which frames can be mapped (`memory`)
//! - pools of mapped frames, and copies of packets in them (`frames`)
//! - native code to compare with, for benchmarks alone (`native`)

pub(crate) mod artifact;
pub(crate) mod frames;
pub(crate) mod memory;
#[cfg(feature = "native")]
pub(crate) mod native;
pub(crate) mod ticks;
