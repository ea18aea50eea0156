//! Byte streams against naive models, and the bounds that they keep.
#![forbid(unsafe_code)]

mod captures;
mod dense;
mod endpoints;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod flood;
mod frames;
mod gates;
mod homeless;
mod images;
mod model;
mod moving;
mod numbering;
mod rewriting;
#[expect(unreachable_pub, reason = "as above")]
mod rewritten;
mod rules;
mod schedules;
mod selective;
mod windows;
