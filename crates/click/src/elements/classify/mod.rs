//! Classifiers and lookups: which output a packet's bytes, fields or addresses choose.

use crate::element::Class;

mod classifier;
pub(crate) mod filter;
mod hash_switch;
mod ip_filter;
pub(crate) mod lookup;
pub(crate) mod program;
mod regex_classifier;
pub(crate) mod sorter;
#[cfg(test)]
mod tests;

pub(super) const FAMILIES: &[&[Class]] = &[
    classifier::CLASSES,
    hash_switch::CLASSES,
    ip_filter::CLASSES,
    lookup::CLASSES,
    regex_classifier::CLASSES,
];
