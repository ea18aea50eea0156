//! IPv6 and its neighbours, and translation between the versions.

use crate::element::Class;

mod address;
mod check;
mod encap;
mod header;
mod icmp_error;
mod lookup;
mod mapping;
mod neighbour;
#[cfg(test)]
mod tests;
mod translate;

pub(super) const FAMILIES: &[&[Class]] = &[
    address::CLASSES,
    check::CLASSES,
    encap::CLASSES,
    icmp_error::CLASSES,
    lookup::CLASSES,
    mapping::CLASSES,
    neighbour::CLASSES,
    translate::CLASSES,
];
