//! Click's standard elements: sources, queues, schedulers, shapers, switches and what else needs no protocol.

use crate::element::Class;

mod basic;
mod chance;
mod codel;
mod count;
mod delay;
mod drr;
mod length;
mod mark;
pub(in crate::elements) mod paint;
mod print;
mod queue;
mod rated;
mod red;
mod sched;
mod schedule;
mod source;
mod storages;
mod switch;
#[cfg(test)]
mod tests;
mod tokens;
mod unqueue;
mod watch;

pub(super) const FAMILIES: &[&[Class]] = &[
    basic::CLASSES,
    chance::CLASSES,
    codel::CLASSES,
    count::CLASSES,
    delay::CLASSES,
    drr::CLASSES,
    length::CLASSES,
    mark::CLASSES,
    paint::CLASSES,
    print::CLASSES,
    queue::CLASSES,
    rated::CLASSES,
    red::CLASSES,
    sched::CLASSES,
    schedule::CLASSES,
    source::CLASSES,
    switch::CLASSES,
    unqueue::CLASSES,
    watch::CLASSES,
];
