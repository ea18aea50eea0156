//! Ports on real devices, between network namespaces that the tests make.
//!
//! They need root. Without it they print a line and pass.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its laboratory has failed")]

mod filters;
mod fixture;
mod forwarding;
mod leaving;
mod overlap;
mod sizes;
mod spreading;
mod steering;
mod trouble;
mod tun;
