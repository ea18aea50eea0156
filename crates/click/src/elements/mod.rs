//! The elements, a folder a family.

use crate::element::Class;

mod analysis;
mod classify;
pub(crate) mod control;
pub(crate) mod device;
mod ethernet;
pub(crate) mod ip;
mod ip6;
mod ipsec;
#[cfg(test)]
mod memory_tests;
pub(crate) mod outside;
mod rewrite;
mod standard;

/// The classes of all families.
pub(crate) const FAMILIES: &[&[&[Class]]] = &[
    analysis::FAMILIES,
    classify::FAMILIES,
    control::FAMILIES,
    device::FAMILIES,
    ethernet::FAMILIES,
    ip::FAMILIES,
    ip6::FAMILIES,
    ipsec::FAMILIES,
    outside::FAMILIES,
    rewrite::FAMILIES,
    standard::FAMILIES,
];
