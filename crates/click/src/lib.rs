//! Click: its configuration language and its elements, on NetBricks's packets and graph.
//!
//! A Click configuration is a graph of small elements: `FromDevice(eth0) -> Counter -> ToDevice(eth1)`. The language
//! and the elements are those of Click (Kohler, Morris, Chen, Jannotti and Kaashoek, TOCS 2000).
#![forbid(unsafe_code)]

pub mod annotation;
pub mod arguments;
pub mod build;
pub mod classes;
pub mod clock;
pub mod command;
pub mod drive;
pub mod element;
mod elements;
pub mod handler;
pub mod handler_call;
mod hash;
pub mod instances;
pub mod language;
pub mod llrpc;
pub mod names;
mod node;
pub mod notifier;
pub mod packet;
mod reconfigure;
mod root;
pub mod router;
pub mod scheduler;
#[cfg(test)]
mod testing;
pub mod value;

pub use elements::device::HostDevice;
#[doc(hidden)]
pub use elements::outside::control_socket::protocol::requests_of;
pub use node::{ClickSettings, Devices, devices, node, register};
