//! Rewriters: addresses and ports of flows, with the state that takes answers back.

use crate::element::Class;

mod configure;
mod flow_id;
mod flows;
mod ftp;
mod handlers;
mod icmp;
mod mapper;
mod pattern;
mod rewriter;
mod sequence;
mod spec;
#[cfg(test)]
mod tests;
mod translate;

pub(super) const FAMILIES: &[&[Class]] =
    &[pattern::CLASSES, rewriter::CLASSES, mapper::CLASSES, icmp::CLASSES, ftp::CLASSES];
