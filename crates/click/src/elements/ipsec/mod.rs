//! IPsec's Encapsulating Security Payload: security associations, encryption, authentication, routes into tunnels.

use crate::element::Class;

mod association;
mod esp;
mod lookup;
#[cfg(test)]
mod tests;

pub(super) const FAMILIES: &[&[Class]] = &[esp::CLASSES, lookup::CLASSES];
