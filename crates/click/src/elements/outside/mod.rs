//! Elements that reach outside of a configuration: control sockets and sockets of packets.

use crate::element::Class;

mod chatter_socket;
pub(crate) mod control_socket;
mod datagram;
mod listen;
mod mcast_socket;
mod socket;
#[cfg(test)]
mod tests;

pub(super) const FAMILIES: &[&[Class]] =
    &[chatter_socket::CLASSES, control_socket::CLASSES, mcast_socket::CLASSES, socket::CLASSES];
