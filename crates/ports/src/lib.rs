//! Ports: memory, captures, generator, TAP, AF_PACKET, AF_XDP, memif, vhost-user, and wrappers.
//!
//! Read in this order: `port` (the traits of every port), `driver` (how settings become an open port), `open`
//! (drivers by name), `node` (a port in a graph), then any driver. `wrap` has the wrappers for all ports,
//! `steer` the rules by which packets come to queues.
#![deny(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod arrival;
pub mod bench;
pub mod checksum;
mod device;
pub mod driver;
pub mod generator;
pub mod interface;
pub mod memif;
pub mod memory;
pub mod node;
pub mod null;
pub mod open;
#[cfg(test)]
mod panics;
pub mod pcap;
mod peer;
pub mod port;
mod privileges;
mod returning;
mod seat;
mod segment;
mod standard;
pub mod steer;
#[expect(unsafe_code, reason = "system calls that no library wraps; each block has its proof")]
mod sys;
mod taken;
pub mod tap;
#[cfg(test)]
mod testing;
pub mod vhost_user;
mod virtio;
pub mod wrap;

pub use driver::{Demands, Directions, OpenContext, PortDriver, QueueDivision};
pub use node::{LiveLimits, ReceiveNode, SharedTransmit, TransmitLimits, TransmitNode};
pub use open::{ConfiguredPort, Driver, Drivers, OpenError};
pub use port::{
    Capabilities, ChecksumPolicy, Counters, Failure, Link, Port, PortError, ReceiveQueue, TransmitQueue,
};
pub use wrap::{COMMON_KEYS, COMMON_RENAMED};
