//! Tests of the router as a node.

mod forwarding;
mod fragments;
pub(crate) mod rig;
mod settings;
