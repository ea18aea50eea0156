//! IPv4 and its transports: checks, encapsulation, fragments, errors, annotations.

use netbricks_core::buffer::Batch;

use crate::element::{Class, Element};
use crate::router::At;

mod address;
mod anonymize;
mod check;
mod check_transport;
mod checksum;
mod combo;
mod encap;
mod field;
mod fragment;
pub(crate) mod fuse;
mod gre;
mod header;
mod icmp_encap;
mod icmp_error;
mod igmp;
mod names;
mod options;
mod payload;
mod ping;
mod pppoe;
mod print;
mod reassemble;
mod rip;
mod strip;
mod tcp_collector;
mod tcp_fragment;
#[cfg(test)]
mod tests;
mod udp_source;

pub(super) const FAMILIES: &[&[Class]] = &[
    address::CLASSES,
    anonymize::CLASSES,
    check::CLASSES,
    check_transport::CLASSES,
    checksum::CLASSES,
    combo::CLASSES,
    encap::CLASSES,
    field::CLASSES,
    fragment::CLASSES,
    gre::CLASSES,
    icmp_encap::CLASSES,
    icmp_error::CLASSES,
    igmp::CLASSES,
    options::CLASSES,
    payload::CLASSES,
    ping::CLASSES,
    pppoe::CLASSES[0],
    pppoe::CLASSES[1],
    pppoe::CLASSES[2],
    print::CLASSES,
    reassemble::CLASSES,
    rip::CLASSES,
    strip::CLASSES,
    tcp_collector::CLASSES,
    tcp_fragment::CLASSES,
    udp_source::CLASSES,
];

/// Gives each packet of a batch to an element's `action`, and passes on those that it yields, together.
fn pass<E: Element>(element: &E, at: At<'_>, batch: &mut Batch) {
    at.gather(batch, |packet| element.action(at, packet));
}
