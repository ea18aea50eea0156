//! Control of a running dataplane.
#![forbid(unsafe_code)]

pub mod store;
